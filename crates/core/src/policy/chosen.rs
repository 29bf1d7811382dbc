//! Placement for jobs that have a wish about their nodes ([`NodeWish`]).
//!
//! Each node that the job may be on has seats: as many tasks as its free processors and its
//! unallocated memory allow, or none if the job wants nodes to itself and another is at home there
//! in that row. The tasks are shared out over the seats:
//!
//! - `count`: over exactly so many nodes, none with more than one task more than another; the first
//!   of them get one more;
//! - `spread`: so that the node with the most tasks has as few as can be;
//! - otherwise on one node if any has seats enough, else on those with the most.
//!
//! Among nodes that are as good, the parameter `placement` says which come first; and if a job
//! merely names nodes, it deals with these as it does with all for other jobs. Whether a job fits
//! depends on the seats alone, so what is found here is found whenever there is anything to find.
//!
//! A job without processors of its own asked for whose tasks find too few seats even on empty nodes
//! shares all processors of its nodes. One that wants nodes to itself has all their processors in
//! its row, though its tasks are bound to those that they asked for: so no other can be there, at
//! home or as a guest, and it is itself a guest only where none is.

use super::Machine;
use super::grm::{Place, Scale, deal, key};
use super::placement::{Lack, choose, most_tasks, shared};
use crate::matrix::Column;
use crate::state::record::{Binding, Part};
use alloc::vec::Vec;
use tutti_types::constraints::NodeWish;
use tutti_types::ids::{NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::placing::Placement;

/// A node with seats for tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seats {
    pub(super) node: NodeId,
    pub(super) count: u32,
}

/// What a job finds on nodes.
struct Found<'a> {
    /// How many processors of a node are free for it.
    free: &'a dyn Fn(NodeId, &Column) -> u32,
    /// For how many tasks a node has the memory and the devices.
    room: &'a dyn Fn(NodeId) -> u32,
}

/// The processors for a job with a wish, in a row, or in a new row if `None`.
pub(super) fn lay(
    machine: Machine<'_>,
    spec: &JobSpec,
    row: Option<RowId>,
) -> Result<Vec<Part>, Lack> {
    let found = Found {
        free: &|_, column| row.map_or(column.width, |row| column.free(row)),
        room: &|node| machine.room_beside(node, spec, row),
    };
    let counts = counts(machine, spec, &found)?;
    let pick = |node, count| choose(machine, &spec.class, row, node, count);
    let free = |node| machine.matrix.free_on(row, node);
    Ok(parts(machine, spec, counts, &free, &pick))
}

/// The same on these processors, with memory and devices for so many tasks on each node.
pub(crate) fn lay_on(
    machine: Machine<'_>,
    spec: &JobSpec,
    floor: &[(NodeId, ProcessorSet)],
    room: impl Fn(NodeId) -> u32,
) -> Option<Vec<Part>> {
    let set = |node| {
        let found = floor.binary_search_by_key(&node, |&(node, _)| node);
        found.map_or(ProcessorSet::new(), |index| floor[index].1.clone())
    };
    let found = Found { free: &|node, _| set(node).count(), room: &room };
    let counts = counts(machine, spec, &found).ok()?;
    Some(parts(machine, spec, counts, &set, &|node, count| set(node).lowest(count)))
}

/// How many seats each node has with nothing else on it, as far as processors go.
pub(super) fn blank_seats(machine: Machine<'_>, spec: &JobSpec) -> Vec<Seats> {
    let found = Found { free: &|_, column| column.width, room: &|_| u32::MAX };
    seats(&places(machine, spec, &found, false))
}

/// Whether a job would fit if nothing else ran.
pub(super) fn fits(machine: Machine<'_>, spec: &JobSpec) -> bool {
    let whole = |node| machine.room_if_alone(node, spec);
    let found = Found { free: &|_, column| column.width, room: &whole };
    counts(machine, spec, &found).is_ok()
}

/// Whether tasks share the processors of their nodes, since there are too few even if all are empty
/// and take jobs.
fn shares_nodes(machine: Machine<'_>, spec: &JobSpec) -> bool {
    spec.processors_per_task.is_none()
        && machine.params.placement() != Placement::LowLoad
        && share_out(&spec.nodes, spec.tasks, &blank_seats(machine.whole(), spec)).is_none()
}

/// How many tasks go to which nodes, by node number.
fn counts(
    machine: Machine<'_>,
    spec: &JobSpec,
    found: &Found<'_>,
) -> Result<Vec<(NodeId, u32)>, Lack> {
    let shares = shares_nodes(machine, spec);
    if shares && spec.nodes.count.is_none() && !spec.nodes.spread {
        return in_proportion(machine, spec, found);
    }
    let share = |places: &[Place]| share_out(&spec.nodes, spec.tasks, &seats(places));
    let mut there = places(machine, spec, found, shares);
    let counts = share(&there).ok_or_else(|| {
        let unbounded = Found { room: &|_| u32::MAX, ..*found };
        let by_memory = share(&places(machine, spec, &unbounded, shares)).is_some();
        if by_memory { Lack::Memory } else { Lack::Nodes }
    })?;
    if !spec.nodes.names_only() || machine.params.placement() == Placement::Packed {
        return Ok(counts);
    }
    deal(machine, spec.tasks, &mut there);
    there.sort_unstable_by_key(|place| place.node);
    let dealt = there.iter().map(|place| (place.node, place.tasks()));
    Ok(dealt.filter(|&(_, tasks)| tasks > 0).collect())
}

/// Places as seats, in the same order.
fn seats(places: &[Place]) -> Vec<Seats> {
    places.iter().map(|place| Seats { node: place.node, count: place.most }).collect()
}

/// More tasks than the nodes have processors, over all of them.
fn in_proportion(
    machine: Machine<'_>,
    spec: &JobSpec,
    found: &Found<'_>,
) -> Result<Vec<(NodeId, u32)>, Lack> {
    let parts = shared(machine, spec, found.room)?;
    let empty = |part: &Part| {
        let column = machine.matrix.column(part.node);
        column.is_some_and(|column| (found.free)(part.node, column) == column.width)
    };
    if !parts.iter().all(empty) {
        return Err(Lack::Nodes);
    }
    Ok(parts.iter().map(|part| (part.node, part.tasks)).collect())
}

/// The nodes that can take tasks, the best first.
fn places(machine: Machine<'_>, spec: &JobSpec, found: &Found<'_>, shares: bool) -> Vec<Place> {
    let scale = Scale::of(machine, spec);
    let place = |(node, column): (NodeId, &Column)| {
        let free = (found.free)(node, column);
        let by_processors = match (free == column.width && free > 0, shares) {
            (true, true) => u32::MAX,
            (false, true) => 0,
            (false, false) if spec.nodes.exclusive => 0,
            (_, false) => most_tasks(machine, spec, free, column.width),
        };
        let most = by_processors.min((found.room)(node));
        scale.place(machine, (node, column), (free, most))
    };
    let nodes = machine.columns().filter(|&(node, _)| spec.nodes.allows(node));
    let mut places: Vec<Place> = nodes.filter_map(place).collect();
    places.sort_by_cached_key(|place| key(machine, place));
    places
}

/// Gives so many tasks to nodes with seats, of which the first are the best; by node number.
pub(super) fn share_out(
    wish: &NodeWish,
    tasks: u32,
    there: &[Seats],
) -> Option<Vec<(NodeId, u32)>> {
    let mut counts = match (wish.count, wish.spread) {
        (Some(nodes), _) => evenly(nodes, tasks, there)?,
        (None, true) => spread(tasks, there)?,
        (None, false) => packed(tasks, there)?,
    };
    counts.sort_unstable();
    Some(counts)
}

fn evenly(nodes: u32, tasks: u32, there: &[Seats]) -> Option<Vec<(NodeId, u32)>> {
    let share = tasks.checked_div(nodes).filter(|&share| share > 0)?;
    let more = (tasks % nodes) as usize;
    let (wide, rest): (Vec<Seats>, Vec<Seats>) = {
        let good = || there.iter().copied().filter(|seats| seats.count >= share);
        let wide: Vec<Seats> = good().filter(|seats| seats.count > share).take(more).collect();
        let rest = good().filter(|seats| !wide.contains(seats)).collect();
        (wide, rest)
    };
    let others = nodes as usize - more;
    if wide.len() < more || rest.len() < others {
        return None;
    }
    let mut chosen: Vec<Seats> = wide.into_iter().chain(rest.into_iter().take(others)).collect();
    chosen.sort_unstable_by_key(|seats| seats.node);
    let mut left = more;
    let count = |seats: Seats| {
        let one_more = left > 0 && seats.count > share;
        left -= usize::from(one_more);
        (seats.node, share + u32::from(one_more))
    };
    Some(chosen.into_iter().map(count).collect())
}

fn spread(tasks: u32, there: &[Seats]) -> Option<Vec<(NodeId, u32)>> {
    let room = |level: u32| there.iter().map(|it| u64::from(it.count.min(level))).sum::<u64>();
    let tasks = u64::from(tasks);
    let (mut too_low, mut enough) = (0, u32::MAX);
    if room(enough) < tasks {
        return None;
    }
    while enough - too_low > 1 {
        let middle = too_low + (enough - too_low) / 2;
        if room(middle) < tasks {
            too_low = middle;
        } else {
            enough = middle;
        }
    }
    let mut left = tasks - room(too_low);
    let count = |seats: &Seats| {
        let one_more = left > 0 && seats.count > too_low;
        left -= u64::from(one_more);
        (seats.node, seats.count.min(too_low) + u32::from(one_more))
    };
    let counts = there.iter().map(count).collect::<Vec<_>>();
    Some(counts.into_iter().filter(|&(_, count)| count > 0).collect())
}

fn packed(tasks: u32, there: &[Seats]) -> Option<Vec<(NodeId, u32)>> {
    if let Some(whole) = there.iter().find(|seats| seats.count >= tasks) {
        return Some([(whole.node, tasks)].into());
    }
    let mut widest: Vec<Seats> = there.to_vec();
    widest.sort_by_key(|seats| u32::MAX - seats.count);
    let mut left = tasks;
    let mut counts = Vec::new();
    for seats in widest {
        let taken = seats.count.min(left);
        left -= taken;
        counts.push((seats.node, taken));
        if left == 0 {
            return Some(counts);
        }
    }
    None
}

/// The parts of a job with so many tasks on these nodes, ranks counted through node by node.
fn parts(
    machine: Machine<'_>,
    spec: &JobSpec,
    counts: Vec<(NodeId, u32)>,
    free: &dyn Fn(NodeId) -> ProcessorSet,
    pick: &dyn Fn(NodeId, u32) -> ProcessorSet,
) -> Vec<Part> {
    let each = spec.processors_per_task.unwrap_or(1).max(1);
    let mut first = 0;
    let part = |(node, tasks): (NodeId, u32)| {
        let there = free(node);
        let own = tasks.checked_mul(each).filter(|&wanted| wanted <= there.count());
        let binding = own.map_or(Binding::Shared, |_| Binding::Own(each));
        let processors = match own {
            Some(wanted) if !spec.nodes.exclusive => match machine.params.placement() {
                // Those of any two tasks on a node overlap, so that they never get into one row.
                Placement::LowLoad => there.lowest(wanted),
                Placement::Packed
                | Placement::RoundRobin
                | Placement::SpareCycles
                | Placement::HighLoad => pick(node, wanted),
            },
            Some(_) | None => there,
        };
        let part = Part { binding, ..Part::new(node, processors, first, tasks) };
        first += tasks;
        part
    };
    counts.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::{Seats, share_out};
    use proptest::prelude::*;
    use tutti_types::constraints::NodeWish;
    use tutti_types::ids::NodeId;

    /// All ways to give tasks to nodes with so many seats.
    fn all_ways(tasks: u32, seats: &[u32]) -> Vec<Vec<u32>> {
        let Some((&first, rest)) = seats.split_first() else {
            return if tasks == 0 { vec![vec![]] } else { vec![] };
        };
        let ways = (0..=first.min(tasks)).flat_map(|here| {
            let others = all_ways(tasks - here, rest).into_iter();
            others.map(move |others| [vec![here], others].concat())
        });
        ways.collect()
    }

    fn check(wish: &NodeWish, tasks: u32, seats: &[u32]) -> Result<(), TestCaseError> {
        let there = (0..).map(NodeId).zip(seats).filter(|&(_, &count)| count > 0);
        let there: Vec<Seats> = there.map(|(node, &count)| Seats { node, count }).collect();
        let found = share_out(wish, tasks, &there).map(|counts| {
            let mut way = vec![0; seats.len()];
            counts.iter().for_each(|&(node, count)| way[node.0 as usize] = count);
            way
        });
        let used = |way: &Vec<u32>| way.iter().filter(|&&count| count > 0).count();
        let most = |way: &Vec<u32>| way.iter().copied().max().unwrap_or(0);
        let ways = all_ways(tasks, seats).into_iter();
        let good: Vec<Vec<u32>> = match wish.count {
            None => ways.collect(),
            Some(count) => ways
                .filter(|way| {
                    let least = way.iter().copied().filter(|&it| it > 0).min().unwrap_or(0);
                    used(way) == count as usize && most(way) - least <= 1
                })
                .collect(),
        };
        prop_assert_eq!(found.is_some(), !good.is_empty());
        let Some(way) = found else { return Ok(()) };
        prop_assert!(good.contains(&way), "{:?}", way);
        let best = |of: &dyn Fn(&Vec<u32>) -> usize| good.iter().map(of).min();
        if wish.count.is_none() && wish.spread {
            prop_assert_eq!(Some(most(&way) as usize), best(&|way| most(way) as usize));
        } else if wish.count.is_none() {
            prop_assert_eq!(Some(used(&way)), best(&used));
        }
        Ok(())
    }

    proptest! {
        /// Whatever way there is to do as wished is found, and it is the best of all.
        #[test]
        fn tasks_are_shared_out_as_wished(
            tasks in 1u32..9,
            seats in prop::collection::vec(0u32..5, 1..5),
            count in prop::option::of(1u32..5),
            spread in any::<bool>(),
        ) {
            check(&NodeWish { count, spread, ..NodeWish::default() }, tasks, &seats)?;
        }
    }
}
