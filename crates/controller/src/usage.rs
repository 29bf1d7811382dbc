//! What the processors of nodes were used for, interval by interval: kept in the journal for
//! `tutti history --usage`.
//!
//! All agents tell of an interval at its end, which is the same cluster time everywhere. That is
//! gathered for a while and stored as one row. A controller that is killed meanwhile loses that
//! interval, and no other.

use super::driver::Driver;
use std::collections::BTreeMap;
use tracing::warn;
use tutti_journal::JournalError;
use tutti_node::codes::code_of_journal;
use tutti_node::platform::time::wall_ms;
use tutti_types::{ClusterTime, Nanos, NodeId};
use tutti_wire::limits::USAGE_BYTES_MAX;
use tutti_wire::local::Reply;
use tutti_wire::usage::{NodeUsage, UsageQuery, UsageSample, UsedProcessors};

/// What nodes tell of an interval is awaited for a tenth of its length, at most so long.
const GATHER_MAX: Nanos = Nanos::from_secs(10);

/// Intervals that are gathered at once. Beyond that, clocks are far off.
const OPEN_MAX: usize = 4;

/// Intervals of which not all has been told.
#[derive(Default)]
pub(super) struct Gathering {
    /// By their ends.
    open: BTreeMap<ClusterTime, BTreeMap<NodeId, UsedProcessors>>,
    stored: ClusterTime,
}

impl Gathering {
    fn due(&self, interval: Nanos) -> ClusterTime {
        let wait = Nanos(interval.0 / 10).min(GATHER_MAX);
        self.open.first_key_value().map_or(ClusterTime::NEVER, |(&until, _)| until + wait)
    }
}

impl Driver {
    /// When an interval is stored next.
    pub(super) fn usage_due(&self) -> ClusterTime {
        self.monitoring.usage.due(self.core.params().usage_interval())
    }

    pub(super) fn on_used(&mut self, node: NodeId, used: UsedProcessors) {
        if let Some(carried) = used.carried {
            self.monitoring.metrics.count_carried(carried);
        }
        let (interval, now) = (self.core.params().usage_interval(), self.now());
        let is_now = used.until <= now + GATHER_MAX && now.since(used.until).0 < interval.0;
        if !is_now || used.until <= self.monitoring.usage.stored {
            return;
        }
        let open = &mut self.monitoring.usage.open;
        if open.contains_key(&used.until) || open.len() < OPEN_MAX {
            open.entry(used.until).or_default().insert(node, used);
        }
    }

    /// Stores the intervals that are over, and forgets those that are too old.
    pub(super) fn store_usage(&mut self) {
        let interval = self.core.params().usage_interval();
        let now = self.now();
        while self.monitoring.usage.due(interval) <= now {
            let Some((until, told)) = self.monitoring.usage.open.pop_first() else { break };
            self.monitoring.usage.stored = until;
            let sample = self.sample(until, interval, &told);
            self.memory.journal.note_used(&sample);
        }
        let params = self.core.params();
        let before_ms = wall_ms().saturating_sub(params.keep_usage().0 / 1_000_000);
        if let Err(error) = self.memory.journal.forget_used(before_ms, params.usage_bytes()) {
            warn!(code = %code_of_journal(&error), "{error}");
        }
    }

    fn sample(
        &self,
        until: ClusterTime,
        interval: Nanos,
        told: &BTreeMap<NodeId, UsedProcessors>,
    ) -> UsageSample {
        let of_each = self.core.nodes().filter(|view| told.contains_key(&view.id));
        let of_each = of_each.map(|view| (view.id, view.spec.processors.count()));
        let processors: BTreeMap<NodeId, u32> = of_each.collect();
        let of_node = |(&node, used): (&NodeId, &UsedProcessors)| NodeUsage {
            node: self.node_name(node),
            processors: processors.get(&node).copied().unwrap_or(0),
            busy_milli: used.busy_milli,
            jobs_milli: used.jobs_milli,
            carried: used.carried,
        };
        let mut nodes: Vec<NodeUsage> = told.iter().map(of_node).collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        UsageSample {
            until_ms: wall_ms().saturating_sub(self.now().since(until).0 / 1_000_000),
            interval_ms: interval.0 / 1_000_000,
            nodes,
        }
    }

    pub(super) fn on_usage(&mut self, token: u64, query: &UsageQuery) {
        let found = used_page(query, |since_ms, until_ms| {
            self.memory.journal.used(since_ms, until_ms, USAGE_BYTES_MAX)
        });
        match found {
            Ok(page) => self.reply(token, &page),
            Err(error) => self.fail(token, error),
        }
    }
}

/// The answer to a query, of intervals that `read` gives from one time to another.
pub(super) fn used_page(
    query: &UsageQuery,
    read: impl FnOnce(u64, u64) -> Result<Vec<UsageSample>, JournalError>,
) -> Result<Reply, JournalError> {
    let (since_ms, until_ms) = (query.since_ms.unwrap_or(0), query.until_ms.unwrap_or(u64::MAX));
    let mut samples = read(since_ms, until_ms)?;
    if let Some(wanted) = &query.node {
        samples.iter_mut().for_each(|sample| sample.nodes.retain(|it| it.node == *wanted));
    }
    Ok(Reply::Usage(samples))
}
