//! Figures for monitoring, which the controller counts while it runs.

use super::driver::Driver;
use super::report::state_word;
use std::collections::BTreeMap;
use tutti_core::Core;
use tutti_node::platform::time::wall_ms;
use tutti_types::{ClusterTime, JobId};
use tutti_wire::history::Ending;
use tutti_wire::local::Reply;
use tutti_wire::metrics::{Histogram, JobsCount, LAUNCH_BOUNDS_MS, MetricsReport, WAIT_BOUNDS_MS};
use tutti_wire::report::JobReport;
use tutti_wire::usage::CarriedBytes;

/// Classes whose service is counted one by one; that of others is counted under `other`.
const CLASSES_MAX: usize = 100;

const MS: u64 = 1_000_000;

/// What is counted; see [`MetricsReport`].
pub(super) struct Metrics {
    began_ms: u64,
    submitted: u64,
    started: u64,
    ended: BTreeMap<Ending, u64>,
    queue_wait: Histogram,
    launch: Histogram,
    service_ms: BTreeMap<String, u64>,
    carried: CarriedBytes,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            began_ms: wall_ms(),
            submitted: 0,
            started: 0,
            ended: BTreeMap::new(),
            queue_wait: Histogram::default(),
            launch: Histogram::default(),
            service_ms: BTreeMap::new(),
            carried: CarriedBytes::default(),
        }
    }
}

impl Metrics {
    pub(super) const fn count_submitted(&mut self) {
        self.submitted += 1;
    }

    /// A job is being started that was accepted at this time. A later launch of it follows a run
    /// that lost a node: the time since acceptance is no wait then.
    pub(super) fn count_started(&mut self, launch: u32, accepted: ClusterTime, now: ClusterTime) {
        self.started += 1;
        if launch == 0 {
            self.queue_wait.add(now.since(accepted).0 / MS, &WAIT_BOUNDS_MS);
        }
    }

    /// The first task of a job that was started at this time has begun.
    pub(super) fn count_begun(&mut self, started: ClusterTime, now: ClusterTime) {
        self.launch.add(now.since(started).0 / MS, &LAUNCH_BOUNDS_MS);
    }

    /// A node's keeper has carried so much standard input and output in an interval.
    pub(super) const fn count_carried(&mut self, carried: CarriedBytes) {
        self.carried.add(carried);
    }

    pub(super) fn count_ended(&mut self, report: &JobReport, ending: Ending) {
        *self.ended.entry(ending).or_default() += 1;
        let is_known = self.service_ms.contains_key(&report.class);
        let class = match is_known || self.service_ms.len() < CLASSES_MAX {
            true => report.class.as_str(),
            false => "other",
        };
        *self.service_ms.entry(class.to_owned()).or_default() += report.service_ms;
    }
}

impl Driver {
    pub(super) fn reply_metrics(&mut self, token: u64) {
        let mut jobs: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
        for view in self.core.jobs(self.now()) {
            let word = state_word(&view);
            *jobs.entry((view.spec.class.to_string(), word)).or_default() += 1;
        }
        let count = |((class, state), count): ((String, &'static str), u64)| JobsCount {
            class,
            state: state.into(),
            count,
        };
        let metrics = &self.monitoring.metrics;
        let report = MetricsReport {
            began_ms: metrics.began_ms,
            jobs: jobs.into_iter().map(count).collect(),
            submitted: metrics.submitted,
            started: metrics.started,
            ended: metrics.ended.iter().map(|(&ending, &count)| (ending, count)).collect(),
            queue_wait: metrics.queue_wait,
            launch: metrics.launch,
            service_ms: metrics.service_ms.clone().into_iter().collect(),
            rows_used_milli: rows_used(&self.core),
            events: self.memory.journal.published_until(),
            carried: metrics.carried,
            journal_bytes: self.memory.journal.bytes(),
        };
        self.reply(token, &Reply::Metrics(Box::new(report)));
    }

    /// A task of a job has begun, the first one that is known of. Agents also report tasks of jobs
    /// that an earlier controller started: when those began is not known here.
    pub(super) fn count_begun(&mut self, job: JobId) {
        let now = self.now();
        let started = self.jobs.get(&job).and_then(|entry| entry.times.started);
        if let Some(started) = started.filter(|started| *started >= self.clock.started) {
            self.monitoring.metrics.count_begun(started, now);
        }
    }
}

/// The part of the processors of nodes that are up which jobs have in each row, in thousandths.
fn rows_used(core: &Core) -> Vec<u32> {
    let up = core.nodes().filter(|view| view.up);
    let all = up.map(|view| u64::from(view.spec.processors.count())).sum::<u64>().max(1);
    let used = |row: tutti_core::RowView| {
        let used = row.cells.iter().map(|cell| u64::from(cell.processors.count())).sum::<u64>();
        u32::try_from(used * 1000 / all).unwrap_or(u32::MAX)
    };
    core.rows().filter(|row| row.length.is_some()).map(used).collect()
}
