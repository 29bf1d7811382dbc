//! Nodes that are out of reach: how long that may be before they are lost.
//!
//! A node that has lost its connection goes on with its jobs for as long as its lease lasts, which
//! its agent renews while it is in reach, and which begins no later than the controller misses it
//! (the head of `agent/src/tree/lease_from_head.rs`). So it is lost, and its jobs may run
//! elsewhere, when that lease is over, and a margin with it (`core/src/longer_leases.rs`). Until
//! then nothing new is placed there, unless it is back within a moment.
//!
//! What began to count before the agent of this machine (re)joined counts from then: it vouches for
//! the others, and did so also while there was no controller. So no node is lost before it has
//! joined, as long as the supervisor starts it again: it may stand still, and then vouch for any
//! agent that is still connected to it. Nor does its own node have a lease that could end. Nothing
//! waits for that longer than for the agent, without which no node is in reach.

use super::agents::NodeEntry;
use super::driver::Driver;
use tracing::warn;
use tutti_core::Event;
use tutti_types::{ClusterTime, Nanos, NodeId, NodeSpec};
use tutti_wire::code::Code;
use tutti_wire::tree::Join;

/// Agents that are started again, or look for another parent, are back sooner: so long, nothing is
/// said.
const MOMENT: Nanos = Nanos::from_secs(1);

/// How long an agent of this machine may be gone when there is no supervisor to start it: it may
/// only have lost its connection.
const ABANDONED: Nanos = Nanos::from_secs(3);

/// When a node that is out of reach counts as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    /// Nothing is placed there from then on.
    away_at: ClusterTime,
    /// It is lost then.
    pub(super) lost_at: ClusterTime,
}

impl Missed {
    /// When there is something to be done next.
    pub(super) fn due(&self) -> ClusterTime {
        self.away_at.min(self.lost_at)
    }
}

impl Driver {
    /// A node is out of reach from now on.
    pub(super) fn miss(&mut self, node: NodeId) {
        let now = self.now();
        let is_abandoned = self.is_abandoned();
        let Some(entry) = self.cluster.nodes.get_mut(&node) else { return };
        entry.agent = None;
        let lost_at = match is_abandoned && entry.is_here {
            true => now + ABANDONED,
            false => self.core.lost_at(now, entry.joined, entry.confirmed),
        };
        entry.absence.missed = Some(Missed { away_at: now + MOMENT, lost_at });
    }

    /// A controller that takes over has none of its nodes in reach yet, which its core knows.
    pub(super) fn miss_nodes(&mut self) {
        let up: Vec<NodeId> =
            self.core.nodes().filter(|view| view.up).map(|view| view.id).collect();
        for node in up {
            self.miss(node);
            if let Some(missed) =
                self.cluster.nodes.get_mut(&node).and_then(|it| it.absence.missed.as_mut())
            {
                missed.away_at = ClusterTime::NEVER;
            }
        }
    }

    /// Nodes that were lost may have joined since, under a controller of whose journal that is
    /// missing, and run what it has launched there. So they are to be back or lost once more.
    pub(super) fn regain_lost_nodes(&mut self) {
        let lost = self.core.nodes().filter(|view| !view.up);
        let lost: Vec<(NodeId, NodeSpec)> = lost.map(|view| (view.id, view.spec.clone())).collect();
        for (node, spec) in lost {
            // Readers hear that it is there when its agent joins.
            self.monitoring.events.count_as_up(node, true);
            self.apply(&Event::NodeJoined { node, spec });
            self.monitoring.events.count_as_up(node, false);
        }
    }

    /// The agent of this machine has joined: it has vouched for nodes up to now. One on which the
    /// controller was before is a node like others.
    pub(super) fn count_anew(&mut self, here: NodeId) {
        let now = self.now();
        for (&node, entry) in &mut self.cluster.nodes {
            entry.is_here = node == here;
            if let Some(missed) = &mut entry.absence.missed {
                missed.lost_at =
                    missed.lost_at.max(self.core.lost_at(now, entry.joined, entry.confirmed));
            }
        }
    }

    /// When something is to be done about nodes that are out of reach.
    pub(super) fn misses_due(&self) -> ClusterTime {
        let due = self
            .cluster
            .nodes
            .values()
            .filter_map(|entry| entry.absence.missed.map(|missed| missed.due()));
        due.min().unwrap_or(ClusterTime::NEVER)
    }

    /// Does it.
    pub(super) fn look_after_missed(&mut self, now: ClusterTime) {
        let due = |(&node, entry): (&NodeId, &NodeEntry)| {
            entry.absence.missed.filter(|missed| missed.due() <= now).map(|missed| (node, missed))
        };
        for (node, missed) in self.cluster.nodes.iter().filter_map(due).collect::<Vec<_>>() {
            if missed.lost_at > now {
                self.tell_away(node);
            } else if self.waits_for_own_agent() {
                self.wait_longer(now, node);
            } else {
                self.on_node_lost(node);
            }
        }
    }

    /// Whether the agent of this machine is not there, and will be started again.
    fn waits_for_own_agent(&self) -> bool {
        let is_own = |entry: &NodeEntry| entry.is_here && entry.absence.missed.is_some();
        !self.is_abandoned() && self.cluster.nodes.values().any(is_own)
    }

    fn wait_longer(&mut self, now: ClusterTime, node: NodeId) {
        let Some(entry) = self.cluster.nodes.get_mut(&node) else { return };
        if let Some(missed) = &mut entry.absence.missed {
            missed.lost_at = self.core.lost_at(now, entry.joined, entry.confirmed);
        }
    }

    fn tell_away(&mut self, node: NodeId) {
        if let Some(missed) =
            self.cluster.nodes.get_mut(&node).and_then(|entry| entry.absence.missed.as_mut())
        {
            missed.away_at = ClusterTime::NEVER;
            self.apply(&Event::NodeOutOfReach { node });
        }
    }

    /// Whether a node that joins is there as it was, since it was not lost meanwhile and has the
    /// same processors; and whether it was said to be out of reach.
    pub(super) fn is_back(&mut self, node: NodeId, join: &Join) -> (bool, bool) {
        let view = self.core.nodes().find(|view| view.id == node && view.up);
        let Some((same, away)) =
            view.map(|view| (view.spec.processors == join.spec.processors, view.away))
        else {
            return (false, false);
        };
        if !same {
            warn!(code = %Code::NodeLost, "node {} has other processors than before", join.spec.name);
            self.on_node_lost(node);
        }
        (same, away)
    }
}
