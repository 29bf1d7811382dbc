//! What goes up to the parent at the end of a round: in its order, in as few messages as that allows,
//! and what several nodes have in common once.

use tutti_core::{Nanos, NodeId};
use tutti_wire::branch::{FromBranch, Report};
use tutti_wire::limits::BATCH_MAX;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Upward(Vec<FromBranch>);

impl Upward {
    /// A report of this node or of one below.
    pub(super) fn report(&mut self, report: Report) {
        match self.0.last_mut() {
            Some(FromBranch::Reports(reports)) if reports.len() < BATCH_MAX => reports.push(report),
            _ => self.0.push(FromBranch::Reports(vec![report])),
        }
    }

    /// Nodes are out of reach. What they have reported goes first, and what they report if they are
    /// back at once goes after it.
    pub(super) fn gone(&mut self, nodes: Vec<NodeId>) {
        match self.0.last_mut() {
            _ if nodes.is_empty() => {}
            Some(FromBranch::Gone(gone)) => gone.extend(nodes),
            _ => self.0.push(FromBranch::Gone(nodes)),
        }
    }

    /// How far off the clocks of nodes may be. In which order that comes is nothing to anybody.
    pub(super) fn times(&mut self, times: Vec<(NodeId, Nanos)>) {
        let known = self.0.iter_mut().find_map(|message| match message {
            FromBranch::Times(known) => Some(known),
            _ => None,
        });
        match known {
            _ if times.is_empty() => {}
            Some(known) => known.extend(times),
            None => self.0.push(FromBranch::Times(times)),
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// All of it.
    pub(super) fn take(&mut self) -> Vec<FromBranch> {
        std::mem::take(&mut self.0)
    }
}
