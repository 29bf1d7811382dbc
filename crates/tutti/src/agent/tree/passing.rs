//! What passes through an agent: the one place at which an inner agent sees the orders for the nodes of
//! its branch, and what they report.
//!
//! From it an agent knows the state of its level: how many nodes have parts of which jobs.

use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{JobId, NodeId};
use tutti_wire::branch::{Order, Origin, Report};
use tutti_wire::tree::{FromAgent, ToAgent};

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// The nodes of the branch, this one included, that have a part of each job.
    jobs: BTreeMap<JobId, BTreeSet<NodeId>>,
}

impl Passing {
    /// An order came from above, for this node or the branch.
    pub(super) fn on_order(&mut self, order: &Order) {
        match &order.order {
            ToAgent::Launch { launch, shares } => {
                let nodes = shares.iter().map(|(node, _)| *node);
                self.jobs.entry(launch.job).or_default().extend(nodes);
            }
            ToAgent::Welcome { node, known, .. } => {
                for job in known {
                    self.jobs.entry(*job).or_default().insert(*node);
                }
            }
            ToAgent::Forget { job } => {
                self.jobs.remove(job);
            }
            _ => {}
        }
    }

    /// A report came from below, or from this node.
    pub(super) fn on_report(&mut self, report: &Report) {
        let (Origin::Nodes(cleared), FromAgent::Cleared { job, .. }) =
            (&report.from, &report.report)
        else {
            return;
        };
        if let Some(nodes) = self.jobs.get_mut(job) {
            nodes.retain(|node| !cleared.contains(node));
            if nodes.is_empty() {
                self.jobs.remove(job);
            }
        }
    }

    /// Nodes of the branch are out of reach.
    pub(super) fn on_gone(&mut self, nodes: &[NodeId]) {
        self.jobs.retain(|_, of_job| {
            of_job.retain(|node| !nodes.contains(node));
            !of_job.is_empty()
        });
    }

    /// Nothing is known of the branch any more: it joins again.
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// How many jobs have parts in the branch.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.len()
    }
}
