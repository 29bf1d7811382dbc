//! The placements of the General Resource Manager (GRM paper, section 5.1).
//!
//! Tasks are placed one after the other, each on the node that looks best for it then:
//!
//! - `round-robin`: the nodes in turn; a job goes on where the job before it ended
//! - `spare-cycles`: the least loaded, however fast it is
//! - `low-load`: the one with the best estimated performance; each node takes one task, and only if
//!   no other job is at home on it in that row
//! - `high-load`: the same, with as many tasks on a node as are expected to run faster there than
//!   elsewhere; tasks that have no processors of their own asked for (`-c`) may also outnumber a
//!   node's processors, up to the parameter `tasks_per_node`
//!
//! Ranks are then counted through node by node, as with every placement. Which nodes look good
//! changes with the load; whether a job fits does not.

use super::Machine;
use super::placement::{Lack, choose, most_tasks, share_all, shares_all};
use crate::matrix::Column;
use crate::state::record::{Binding, Part};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use tutti_types::ids::{NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::node_performance::{Means, Prospect, Weights, loading};
use tutti_types::placing::Placement;

/// A node that can take tasks.
pub(super) struct Place {
    pub(super) node: NodeId,
    /// How many tasks it can take.
    pub(super) most: u32,
    prospect: Prospect,
    /// In how many rows its processors are taken, added up; external load counts as one row.
    rows_taken: u32,
}

/// What a node is chosen by, the least first: how good it is, and two ways to break ties.
type Key = (u64, u64, NodeId);

/// By what nodes are compared for a job.
pub(super) struct Scale {
    means: Means,
    weights: Weights,
}

impl Scale {
    pub(super) fn of(machine: Machine<'_>, spec: &JobSpec) -> Self {
        let up = || machine.nodes.up();
        let means = Means::of(up().filter_map(|(_, node)| node.figures))
            .with_network(up().filter_map(|(id, _)| machine.network.of(id)));
        Self { means, weights: spec.weights.unwrap_or(machine.params.weights()) }
    }

    /// A node with so many processors free that can take so many tasks, if that is any.
    pub(super) fn place(
        &self,
        machine: Machine<'_>,
        (node, column): (NodeId, &Column),
        (free, most): (u32, u32),
    ) -> Option<Place> {
        let record = machine.nodes.get(node).filter(|_| most > 0)?;
        let prospect = Prospect {
            peak: self.means.peak(record.figures, machine.network.of(node), self.weights),
            loading: loading(record.averages.unwrap_or_default(), machine.params),
            width: column.width,
            free,
            tasks: 0,
        };
        let external = machine.external.get(&node).map_or(0, ProcessorSet::count);
        Some(Place { node, most, prospect, rows_taken: column.load.saturating_add(external) })
    }
}

impl Place {
    /// How many tasks it was given.
    pub(super) const fn tasks(&self) -> u32 {
        self.prospect.tasks
    }
}

/// See the module.
pub(super) fn lay(
    machine: Machine<'_>,
    spec: &JobSpec,
    row: Option<RowId>,
) -> Result<Vec<Part>, Lack> {
    if shares_all(machine, spec) {
        return share_all(machine, spec, row);
    }
    let mut room = 0;
    let mut places = places(machine, spec, row, &mut room);
    let tasks = u64::from(spec.tasks);
    if places.iter().map(|place| u64::from(place.most)).sum::<u64>() < tasks {
        return Err(if room >= tasks { Lack::Memory } else { Lack::Nodes });
    }
    deal(machine, spec.tasks, &mut places);
    let each = spec.processors_per_task.unwrap_or(1).max(1);
    let mut first = 0;
    let taken = places.iter().filter(|place| place.prospect.tasks > 0);
    let part = |place: &Place| {
        let Prospect { tasks, free, .. } = place.prospect;
        let (count, binding) = match tasks.saturating_mul(each) {
            wanted if wanted <= free => (wanted, Binding::Own(each)),
            _ => (free, Binding::Shared),
        };
        let processors = match machine.params.placement() {
            // Those of any two tasks on a node overlap, so that they never get into one row.
            Placement::LowLoad => machine.matrix.free_on(None, place.node).lowest(count),
            Placement::Packed
            | Placement::RoundRobin
            | Placement::SpareCycles
            | Placement::HighLoad => choose(machine, &spec.class, row, place.node, count),
        };
        let part = Part { binding, ..Part::new(place.node, processors, first, tasks) };
        first += tasks;
        part
    };
    Ok(taken.map(part).collect())
}

/// The nodes that can take any tasks, by number; and, in `room`, how many they could all take if
/// memory were no matter.
fn places(machine: Machine<'_>, spec: &JobSpec, row: Option<RowId>, room: &mut u64) -> Vec<Place> {
    let scale = Scale::of(machine, spec);
    let place = |(node, column): (NodeId, &Column)| {
        let free = row.map_or(column.width, |row| column.free(row));
        let most = most_tasks(machine, spec, free, column.width);
        *room += u64::from(most);
        let most = most.min(machine.room_beside(node, spec, row));
        scale.place(machine, (node, column), (free, most))
    };
    machine.matrix.open_columns().filter_map(place).collect()
}

/// Gives the tasks to the nodes, which can take them all.
pub(super) fn deal(machine: Machine<'_>, tasks: u32, places: &mut [Place]) {
    let indices = 0..places.len();
    let entry = |(index, place): (usize, &Place)| Reverse((key(machine, place), index));
    let mut best: BinaryHeap<_> = indices.zip(&*places).map(entry).collect();
    for _ in 0..tasks {
        let Some(Reverse((_, index))) = best.pop() else { return };
        let place = &mut places[index];
        place.prospect.tasks += 1;
        if place.prospect.tasks < place.most {
            best.push(Reverse((key(machine, place), index)));
        }
    }
}

/// How good a place is for one more task, the best first.
pub(super) fn key(machine: Machine<'_>, place: &Place) -> Key {
    let Place { node, prospect, rows_taken, .. } = *place;
    match machine.params.placement() {
        Placement::RoundRobin => {
            let past = node < machine.nodes.in_turn();
            (u64::from(prospect.tasks), u64::from(past), node)
        }
        Placement::Packed | Placement::SpareCycles => {
            let taken = u64::from(rows_taken) * 1000 / u64::from(prospect.width.max(1));
            (prospect.load(), taken, node)
        }
        Placement::LowLoad | Placement::HighLoad => (u64::MAX - prospect.performance(), 0, node),
    }
}

/// The node after the one that got the last task of a job that was dealt in turn.
pub(crate) fn after(parts: &[Part], in_turn: NodeId) -> Option<NodeId> {
    // Those with the most tasks got some in the last round, the last of them in turn the last.
    let last = parts.iter().max_by_key(|part| (part.tasks, part.node < in_turn, part.node))?;
    Some(NodeId(last.node.0 + 1))
}
