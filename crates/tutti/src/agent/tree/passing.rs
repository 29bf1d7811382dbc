//! What passes through an agent: the one place at which an inner agent sees the orders for the nodes of
//! its branch, and what they report.
//!
//! From it an agent knows the state of its level: how many nodes have parts of which jobs.

use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{LaunchId, NodeId};
use tutti_wire::branch::{Order, Origin, Report};
use tutti_wire::tree::{FromAgent, ToAgent};

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// The nodes of the branch, this one included, that have a part of each job.
    launches: BTreeMap<LaunchId, BTreeSet<NodeId>>,
}

impl Passing {
    /// An order came from above, for this node or the branch.
    pub(super) fn on_order(&mut self, order: &Order) {
        match &order.order {
            ToAgent::Launch { launch, shares } => {
                let nodes = shares.iter().map(|(node, _)| *node);
                self.launches.entry(launch.id()).or_default().extend(nodes);
            }
            ToAgent::Welcome { node, known, .. } => {
                for launch in known {
                    self.launches.entry(*launch).or_default().insert(*node);
                }
            }
            ToAgent::Forget { launch } => {
                self.launches.remove(launch);
            }
            _ => {}
        }
    }

    /// A report came from below, or from this node.
    pub(super) fn on_report(&mut self, report: &Report) {
        let (Origin::Nodes(cleared), FromAgent::Cleared { launch, .. }) =
            (&report.from, &report.report)
        else {
            return;
        };
        if let Some(nodes) = self.launches.get_mut(launch) {
            nodes.retain(|node| !cleared.contains(node));
            if nodes.is_empty() {
                self.launches.remove(launch);
            }
        }
    }

    /// Nodes of the branch are out of reach.
    pub(super) fn on_gone(&mut self, nodes: &[NodeId]) {
        self.launches.retain(|_, of_job| {
            of_job.retain(|node| !nodes.contains(node));
            !of_job.is_empty()
        });
    }

    /// Nothing is known of the branch any more: it joins again.
    pub(super) fn clear(&mut self) {
        self.launches.clear();
    }

    /// How many jobs have parts in the branch.
    pub(super) fn jobs(&self) -> usize {
        self.launches.len()
    }
}
