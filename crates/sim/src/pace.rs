//! How fast jobs get on where nodes differ.
//!
//! A task runs as fast as a processor of its node is for what it computes with, in terms of the
//! mean node; and it has its fair share of the node's processors, with the other tasks of its job
//! there and with what others run: of `p` processors for `t` tasks on a node with `w` and a load of
//! `l`, each has the least of 1, `p / t` and `w / (l + t)`. A gang waits for its slowest task at
//! every step, so it gets on as fast as that one. The tasks of a bag go on by themselves, and each
//! ends when it is done.

use crate::hosts::Host;
use tutti_core::Part;
use tutti_types::node_performance::{MEAN, Means};
use tutti_types::{Nanos, Weights};

/// What tells how long a run takes where.
#[derive(Debug)]
pub(crate) struct Pace {
    hosts: Vec<Host>,
    means: Means,
    weights: Weights,
}

/// Some tasks of a job, that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Batch {
    /// How long they run.
    pub(crate) run: Nanos,
    /// The lowest rank.
    pub(crate) first: u32,
    /// How many they are.
    pub(crate) tasks: u32,
    /// How many processors they have.
    pub(crate) processors: u32,
}

/// One, for loads and shares.
const UNIT: u128 = 1000;

impl Pace {
    pub(crate) fn new(hosts: &[Host], weights: Weights) -> Self {
        let means = Means::of(hosts.iter().map(|host| host.figures))
            .with_network(hosts.iter().filter_map(|host| host.network));
        Self { hosts: hosts.to_vec(), means, weights }
    }

    /// The tasks of a job by node; those that are done first come first.
    pub(crate) fn batches(&self, parts: &[Part], run: Nanos) -> Vec<Batch> {
        let batch = |part: &Part| Batch {
            run: self.takes(part, run),
            first: part.first,
            tasks: part.tasks,
            processors: part.processors.count(),
        };
        let mut batches: Vec<Batch> = parts.iter().map(batch).collect();
        batches.sort_unstable();
        batches
    }

    /// How long a task of a part takes for what takes `run` on the mean node without other load.
    fn takes(&self, part: &Part, run: Nanos) -> Nanos {
        let Some(host) = self.hosts.get(part.node.0 as usize) else { return run };
        let whole = u128::from(self.weights.sum());
        let peak = self.means.peak(Some(host.figures), host.network, self.weights);
        let peak = u128::from(peak).max(1);
        let tasks = UNIT * u128::from(part.tasks);
        let own = tasks / u128::from(part.processors.count().max(1));
        let all = (tasks + u128::from(host.load_milli)) / u128::from(host.processors);
        let crowd = own.max(all).max(UNIT);
        let takes = u128::from(run.0) * (whole * u128::from(MEAN)) / peak * crowd / UNIT;
        Nanos(u64::try_from(takes).unwrap_or(u64::MAX / 2).clamp(1, u64::MAX / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use crate::hosts::parse_hosts;
    use tutti_core::Part;
    use tutti_types::{Nanos, NodeId, ProcessorSet, Weights};

    #[test]
    fn a_run_takes_as_long_as_speed_and_company_make_it() {
        let hosts = parse_hosts("fast 2 0 3 3 3 9 2\nslow 1 0 1 1 1 9 0").unwrap();
        let even = Weights { int: 1, float: 1, double: 1, ..Weights::NONE };
        let pace = Pace::new(&hosts, even);
        let takes = |node, processors, tasks| {
            let processors = ProcessorSet::first(processors);
            pace.takes(&Part::new(NodeId(node), processors, 0, tasks), Nanos(6_000)).0
        };
        // The means are 2: half as long on the fast one, twice as long on the slow one.
        assert_eq!(takes(1, 1, 1), 12_000);
        assert_eq!(takes(1, 1, 3), 36_000);
        assert_eq!(takes(0, 1, 1), 6_000, "three processes on two processors");
        assert_eq!(takes(0, 2, 2), 8_000);
        assert_eq!(takes(0, 1, 4), 16_000, "four on one, where six on two are less of a crowd");
        let memory = Weights { memory: 1, ..Weights::NONE };
        let pace = Pace::new(&hosts, memory);
        let part = Part::new(NodeId(1), ProcessorSet::first(1), 0, 1);
        assert_eq!(pace.takes(&part, Nanos(6_000)), Nanos(6_000), "that is all alike");
        let batches = pace.batches(
            &[Part::new(NodeId(0), ProcessorSet::first(1), 0, 2), part.clone()],
            Nanos(10),
        );
        assert_eq!(batches.iter().map(|it| it.run.0).collect::<Vec<_>>(), [10, 20]);
        let hosts = parse_hosts("far 1 0 1 1 1 1 0 10 90\nnear 1 0 1 1 1 1 0 30 10").unwrap();
        let pace = Pace::new(&hosts, Weights { network: 1, ..Weights::NONE });
        assert_eq!(pace.takes(&part, Nanos(6_000)), Nanos(4_000), "30 MB/s where the mean is 20");
    }
}
