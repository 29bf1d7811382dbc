//! Switches of several nodes, side by side: how far apart they were.

use std::collections::{BTreeMap, BTreeSet};
use tutti_types::JobId;
use tutti_wire::report::SwitchRecord;

/// What is known of several nodes together.
#[derive(Debug, Default)]
pub struct Together {
    /// How many nodes have a job, as far as records name it.
    nodes: BTreeMap<JobId, usize>,
    /// When a job was running on each node, by when the switch to it was due.
    resumed: BTreeMap<(u64, JobId), Vec<u64>>,
}

impl Together {
    /// Of the switches that each node recorded.
    #[must_use]
    pub fn of(nodes: &[(String, Vec<SwitchRecord>)]) -> Self {
        let mut all = Self::default();
        for (_, records) in nodes {
            let named = records.iter().flat_map(|record| record.left.iter().chain(&record.came));
            for &job in named.collect::<BTreeSet<_>>() {
                *all.nodes.entry(job).or_default() += 1;
            }
            for record in records {
                for &job in &record.came {
                    let resumed = all.resumed.entry((record.due_ns, job)).or_default();
                    resumed.push(record.resumed_ns);
                }
            }
        }
        all
    }

    /// How far apart the nodes were, in nanoseconds: from the first to the last node's start of the
    /// jobs that came. `None` where a node has no record of it.
    #[must_use]
    pub fn spread_ns(&self, record: &SwitchRecord) -> Option<u64> {
        let spread = |&job: &JobId| {
            let resumed = self.resumed.get(&(record.due_ns, job))?;
            let spread = resumed.iter().max()? - resumed.iter().min()?;
            (self.nodes.get(&job) == Some(&resumed.len())).then_some(spread)
        };
        let on_several = |job: &&JobId| self.nodes.get(job).is_some_and(|&nodes| nodes > 1);
        let spreads = record.came.iter().filter(on_several).map(spread);
        spreads.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }
}

/// How far apart the nodes made each switch that all of them recorded, in nanoseconds, in order.
#[must_use]
pub fn spreads_ns(nodes: &[(String, Vec<SwitchRecord>)]) -> Vec<u64> {
    let together = Together::of(nodes);
    let mut by_due = BTreeMap::<u64, u64>::new();
    for record in nodes.iter().flat_map(|(_, records)| records) {
        if let Some(spread) = together.spread_ns(record) {
            let known = by_due.entry(record.due_ns).or_default();
            *known = spread.max(*known);
        }
    }
    let mut spreads: Vec<u64> = by_due.into_values().collect();
    spreads.sort_unstable();
    spreads
}
