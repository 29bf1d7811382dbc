//! What nodes of this branch have stored before barriers: held until all of them that take part
//! have completed a barrier, then passed on as one.
//!
//! So a parent gets one sequence of parts for each child, however many nodes are below. Nothing
//! depends on what this agent knows of a job: a sum that is not complete within [`HELD_NS`] goes on
//! as far as it has come. What was on its way when an agent ends comes again from the keepers.

use crate::routes::Child;
use std::collections::{BTreeMap, BTreeSet};
use tutti_types::{LaunchId, NodeId};
use tutti_wire::branch::Passed;
#[cfg(not(test))]
use tutti_wire::limits::EXCHANGE_BYTES_MAX;
use tutti_wire::limits::ORIGINS_MAX;
use tutti_wire::pmi::{Barrier, BarrierGroup, Collected, Exchange, Values, packed};

/// How long the values of a node wait here for those of others, in nanoseconds. It is above the
/// differences with which tasks of a launch begin, and only what was lost or misjudged waits so
/// long.
const HELD_NS: u64 = 1_000_000_000;

/// In tests little, so that a few parts reach it.
#[cfg(test)]
const EXCHANGE_BYTES_MAX: usize = 1 << 20;

/// A sequence of parts: the child that it comes from (`None`: this node), and the nodes that it is
/// of, as its sender wrote them.
type Sender = (Option<Child>, Vec<NodeId>);

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    launches: BTreeMap<LaunchId, BTreeMap<Barrier, Held>>,
}

/// What has come of one barrier.
#[derive(Debug)]
struct Held {
    sequences: BTreeMap<Sender, Sequence>,
    /// When the first part came.
    since_ns: u64,
}

/// What has come of one sender.
#[derive(Debug)]
struct Sequence {
    /// Those of its nodes that were below the child when it began.
    nodes: Vec<NodeId>,
    collected: Collected,
}

impl Held {
    fn bytes(&self) -> usize {
        self.sequences.values().map(|it| it.collected.bytes()).sum()
    }

    /// Takes in a part; whether its sequence is whole now. `there`: see [`Sequence::nodes`].
    fn take_in(&mut self, sender: Sender, there: Vec<NodeId>, exchange: Exchange) -> bool {
        if exchange.number == 0 {
            // What it has stored before a barrier does not change: it may say it once more.
            let anew = Sequence { nodes: there, collected: Collected::default() };
            self.sequences.insert(sender.clone(), anew);
        }
        let Some(sequence) = self.sequences.get_mut(&sender) else { return false };
        sequence.collected.take_in(exchange);
        sequence.collected.is_whole()
    }

    /// Whether all of these nodes have completed the barrier.
    fn has_all(&self, members: &BTreeSet<NodeId>) -> bool {
        let whole = self.sequences.values().filter(|it| it.collected.is_whole());
        let complete: BTreeSet<NodeId> = whole.flat_map(|it| &it.nodes).copied().collect();
        complete.is_superset(members)
    }

    /// What is whole, as few sums as a list of nodes has room for.
    fn take_whole(&mut self, launch: LaunchId, barrier: &Barrier) -> Vec<Passed> {
        let (whole, rest): (BTreeMap<_, _>, _) = std::mem::take(&mut self.sequences)
            .into_iter()
            .partition(|(_, it)| it.collected.is_whole());
        self.sequences = rest;
        let mut sums: Vec<(BTreeSet<NodeId>, Vec<Values>)> = Vec::new();
        for Sequence { nodes, collected } in whole.into_values() {
            match sums.last_mut() {
                Some((of, parts)) if of.len() + nodes.len() <= ORIGINS_MAX => {
                    of.extend(nodes);
                    parts.extend(collected.into_parts());
                }
                _ => sums.push((nodes.into_iter().collect(), collected.into_parts())),
            }
        }
        let sums = sums.into_iter().filter(|(nodes, _)| !nodes.is_empty());
        sums.flat_map(|(nodes, parts)| sum(launch, barrier, nodes, parts)).collect()
    }

    /// The announcements of what is not whole.
    fn announce(&self, launch: LaunchId, barrier: &Barrier) -> Vec<Passed> {
        let open = self.sequences.values().filter(|it| !it.collected.is_whole());
        let announcement = |it: &Sequence| Passed {
            nodes: it.nodes.clone(),
            exchange: Exchange {
                launch,
                barrier: barrier.clone(),
                number: 0,
                is_last: false,
                bytes: it.collected.bytes(),
                values: Values::default(),
            },
        };
        open.map(announcement).collect()
    }
}

/// The parts of what these nodes have stored.
fn sum(
    launch: LaunchId,
    barrier: &Barrier,
    nodes: BTreeSet<NodeId>,
    parts: Vec<Values>,
) -> Vec<Passed> {
    let nodes: Vec<NodeId> = nodes.into_iter().collect();
    let parts = packed(parts);
    let bytes = parts.iter().map(Values::bytes).sum();
    let part = |place| Passed {
        nodes: nodes.clone(),
        exchange: Exchange::of_parts(launch, barrier, (&parts, bytes), place),
    };
    (0..parts.len().max(1)).map(part).collect()
}

impl Gathering {
    /// A part has come from a child, or from this node. `is_there`: whether a node is below that
    /// child; `members`: the nodes of this branch with tasks of the job, as far as is known.
    /// Gives what goes to the parent.
    pub(super) fn take_in(
        &mut self,
        child: Option<Child>,
        Passed { nodes, exchange }: Passed,
        is_there: impl Fn(&NodeId) -> bool,
        members: &BTreeSet<NodeId>,
        now_ns: u64,
    ) -> Vec<Passed> {
        let there: Vec<NodeId> = nodes.iter().filter(|node| is_there(node)).copied().collect();
        let (launch, barrier) = (exchange.launch, exchange.barrier.clone());
        // Which nodes some ranks are on is not known here.
        let unknown = BTreeSet::new();
        let is_of_all = barrier.group == BarrierGroup::World;
        let members = if is_of_all { members } else { &unknown };
        if nodes.len() == 1 && members.len() < 2 {
            let passed = Passed { nodes: there, exchange };
            return [passed].into_iter().filter(|it| !it.nodes.is_empty()).collect();
        }
        if exchange.number == 0 && there.is_empty() {
            return Vec::new();
        }
        let of_launch = self.launches.entry(launch).or_default();
        let new = || Held { sequences: BTreeMap::new(), since_ns: now_ns };
        let held = of_launch.entry(barrier.clone()).or_insert_with(new);
        let go_on = match held.take_in((child, nodes), there, exchange) {
            true if held.has_all(members) => held.take_whole(launch, &barrier),
            _ => Vec::new(),
        };
        of_launch.retain(|_, held| !held.sequences.is_empty());
        if of_launch.values().map(Held::bytes).sum::<usize>() > EXCHANGE_BYTES_MAX {
            // It is for the controller to say so.
            let each = of_launch.iter_mut().flat_map(|(barrier, held)| {
                let whole = held.take_whole(launch, barrier);
                whole.into_iter().chain(held.announce(launch, barrier)).collect::<Vec<_>>()
            });
            return go_on.into_iter().chain(each).collect();
        }
        if of_launch.is_empty() {
            self.launches.remove(&launch);
        }
        go_on
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let all = self.launches.values().flat_map(BTreeMap::values);
        all.map(|held| held.since_ns + HELD_NS).min()
    }

    /// Gives what has waited long enough. What is not whole waits on, unless its job is unknown.
    pub(super) fn on_time(
        &mut self,
        now_ns: u64,
        is_known: impl Fn(&LaunchId) -> bool,
    ) -> Vec<Passed> {
        let mut go_on = Vec::new();
        for (launch, of_launch) in &mut self.launches {
            for (barrier, held) in of_launch.iter_mut() {
                if held.since_ns + HELD_NS <= now_ns {
                    go_on.extend(held.take_whole(*launch, barrier));
                    held.since_ns = now_ns;
                    // Reports of its end may have come before a part that is whole.
                    if !is_known(launch) {
                        held.sequences.clear();
                    }
                }
            }
            of_launch.retain(|_, held| !held.sequences.is_empty());
        }
        self.launches.retain(|_, of_launch| !of_launch.is_empty());
        go_on
    }

    /// A child is lost, and with it the rest of what it was sending.
    pub(super) fn lose(&mut self, child: Child) {
        for held in self.launches.values_mut().flat_map(BTreeMap::values_mut) {
            held.sequences.retain(|(of, _), it| *of != Some(child) || it.collected.is_whole());
        }
    }

    /// The parent is gone: all of it comes again.
    pub(super) fn clear(&mut self) {
        self.launches.clear();
    }
}

#[cfg(test)]
mod tests;
