//! What passes through an agent: the one place at which an inner agent sees the orders for the
//! nodes of its branch, and what they report.
//!
//! From it an agent knows the state of its level: how many nodes have parts of which jobs.

use std::collections::{BTreeMap, BTreeSet};
use tutti_types::{LaunchId, NodeId};
use tutti_wire::branch::{Order, Origin, Report};
use tutti_wire::tree::{FromAgent, ToAgent};

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// The nodes of the branch, this one included, that have a part of each job, and whether it
    /// starts tasks there, as far as is known.
    launches: BTreeMap<LaunchId, BTreeMap<NodeId, bool>>,
}

impl Passing {
    /// An order came from above, for this node or the branch.
    pub(super) fn on_order(&mut self, order: &Order) {
        match &order.order {
            ToAgent::Launch { launch, shares } => {
                let nodes = shares.iter().map(|(node, share)| (*node, !share.tasks.is_empty()));
                self.launches.entry(launch.id()).or_default().extend(nodes);
            }
            ToAgent::Welcome { node, known, .. } => {
                for launch in known {
                    self.launches.entry(*launch).or_default().insert(*node, true);
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
            nodes.retain(|node, _| !cleared.contains(node));
            if nodes.is_empty() {
                self.launches.remove(launch);
            }
        }
    }

    /// Nodes of the branch are out of reach.
    pub(super) fn on_gone(&mut self, nodes: &[NodeId]) {
        self.launches.retain(|_, of_job| {
            of_job.retain(|node, _| !nodes.contains(node));
            !of_job.is_empty()
        });
    }

    /// Nothing is known of the branch any more: it joins again.
    pub(super) fn clear(&mut self) {
        self.launches.clear();
    }

    /// The nodes of the branch on which a job starts tasks.
    pub(super) fn nodes_of(&self, launch: &LaunchId) -> BTreeSet<NodeId> {
        let nodes = self.launches.get(launch).into_iter().flatten();
        nodes.filter_map(|(&node, &has_tasks)| has_tasks.then_some(node)).collect()
    }

    /// Whether a job has parts in the branch.
    pub(super) fn knows(&self, launch: &LaunchId) -> bool {
        self.launches.contains_key(launch)
    }

    /// How many jobs have parts in the branch.
    pub(super) fn jobs(&self) -> usize {
        self.launches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Passing;
    use tutti_types::{JobId, LaunchId, NodeId};
    use tutti_wire::branch::{Order, Origin, Recipients, Report};
    use tutti_wire::launch::Usage;
    use tutti_wire::tree::{FromAgent, Settings, ToAgent};

    fn launches(jobs: &[u64]) -> Vec<LaunchId> {
        jobs.iter().map(|&job| LaunchId::first(JobId(job))).collect()
    }

    /// A node of the branch has joined again, with these jobs.
    fn welcome(passing: &mut Passing, node: u32, jobs: &[u64]) {
        let settings = Settings { fan_out: 2, ..Settings::default() };
        let (node, known) = (NodeId(node), launches(jobs));
        let order = ToAgent::Welcome { node, clock_ahead_ns: 0, settings, known };
        let to = Recipients::Joiner { name: "a".into(), attempt: 1, life: 1 };
        passing.on_order(&Order { to, order });
    }

    fn cleared(passing: &mut Passing, nodes: &[u32], job: u64) {
        let launch = LaunchId::first(JobId(job));
        let from = Origin::Nodes(nodes.iter().copied().map(NodeId).collect());
        let report = FromAgent::Cleared { launch, usage: Usage::default() };
        passing.on_report(&Report { from, report });
    }

    #[test]
    fn a_job_is_in_the_branch_until_no_node_there_has_a_part_of_it() {
        let mut passing = Passing::default();
        for (node, jobs) in [(1, &[7, 8][..]), (2, &[7]), (3, &[7, 9])] {
            welcome(&mut passing, node, jobs);
        }
        assert_eq!(passing.jobs(), 3);
        cleared(&mut passing, &[1], 8);
        assert_eq!(passing.jobs(), 2, "8 was on one node");
        // Several that have said it at once, and one that says it twice.
        cleared(&mut passing, &[1, 2], 7);
        cleared(&mut passing, &[2], 7);
        assert_eq!(passing.jobs(), 2, "7 is on node 3, too");
        passing.on_gone(&[NodeId(3)]);
        assert_eq!(passing.jobs(), 0);
        welcome(&mut passing, 3, &[9]);
        assert_eq!(passing.jobs(), 1, "it is back");
        let to = Recipients::Nodes(vec![NodeId(3)]);
        let order = ToAgent::Forget { launch: LaunchId::first(JobId(9)) };
        passing.on_order(&Order { to, order });
        assert_eq!(passing.jobs(), 0);
    }
}
