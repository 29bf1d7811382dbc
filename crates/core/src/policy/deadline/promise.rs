//! What the jobs of one row were promised: on which processors, and when.

use super::timeline::Busy;
use crate::state::record::Part;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId, ProcessorSet};
use tutti_types::time::ClusterTime;

/// What a job was promised.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Promise {
    /// When it is done at the latest.
    pub(crate) deadline: ClusterTime,
    /// When its processors are planned to be free, by the row's clock: its grace after it is
    /// planned to be done, which is some slack before the deadline.
    pub(crate) due: u64,
    /// What the row's clock shows at the deadline at least, and its grace.
    pub(crate) last: u64,
    /// Where its tasks are, or will be.
    pub(crate) parts: Vec<Part>,
    /// The time kept for it there: as long as it may still run, and then for its grace.
    pub(crate) time: Busy,
}

/// The promises of one row. No two of them have a processor at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Promises {
    by_job: BTreeMap<JobId, Promise>,
    by_node: BTreeMap<NodeId, Vec<JobId>>,
}

impl Promises {
    pub(crate) fn get(&self, job: JobId) -> Option<&Promise> {
        self.by_job.get(&job)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Promise)> {
        self.by_job.iter().map(|(&job, promise)| (job, promise))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// The jobs that were promised processors of a node, by number.
    pub(crate) fn on(&self, node: NodeId) -> impl Iterator<Item = (JobId, &ProcessorSet)> {
        let jobs = self.by_node.get(&node).into_iter().flatten();
        jobs.filter_map(move |&job| {
            let parts = &self.by_job.get(&job)?.parts;
            let found = parts.binary_search_by_key(&node, |part| part.node).ok()?;
            Some((job, &parts[found].processors))
        })
    }

    /// When any of these jobs was promised to run.
    pub(crate) fn time_of(&self, jobs: &[JobId]) -> Busy {
        let mut time = Busy::default();
        for promise in jobs.iter().filter_map(|job| self.by_job.get(job)) {
            time.add(&promise.time);
        }
        time
    }

    /// When anybody but `job` was promised any of these processors.
    pub(crate) fn taken(&self, job: JobId, parts: &[Part]) -> Busy {
        self.time_of(&self.rivals(job, parts))
    }

    /// The jobs but `job` that were promised any of these processors.
    pub(crate) fn rivals(&self, job: JobId, parts: &[Part]) -> Vec<JobId> {
        let here = |part: &Part| {
            let on = self.on(part.node).filter(|(other, _)| *other != job);
            on.filter(|(_, set)| set.overlaps(&part.processors)).map(|(other, _)| other).collect()
        };
        let mut rivals: Vec<JobId> =
            parts.iter().flat_map(|part| -> Vec<JobId> { here(part) }).collect();
        rivals.sort_unstable();
        rivals.dedup();
        rivals
    }

    pub(crate) fn insert(&mut self, job: JobId, promise: Promise) {
        self.remove(job);
        for part in &promise.parts {
            let jobs = self.by_node.entry(part.node).or_default();
            let place = jobs.partition_point(|&other| other < job);
            jobs.insert(place, job);
        }
        self.by_job.insert(job, promise);
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<Promise> {
        let promise = self.by_job.remove(&job)?;
        for part in &promise.parts {
            if let Some(jobs) = self.by_node.get_mut(&part.node) {
                jobs.retain(|&other| other != job);
                if jobs.is_empty() {
                    self.by_node.remove(&part.node);
                }
            }
        }
        Some(promise)
    }

    /// A job holds its processors no longer than so much any more: it gives back the earliest.
    pub(crate) fn shorten(&mut self, job: JobId, left: u64) {
        if let Some(promise) = self.by_job.get_mut(&job) {
            promise.time.shorten(left);
        }
    }

    /// Looks anew for the latest time of a job beside all others, from a moment on, with no more of
    /// the slack than it must. Whether there is enough; if not, it keeps what it has.
    pub(crate) fn put_off(&mut self, job: JobId, from: u64, left: u64) -> bool {
        let Some(promise) = self.by_job.get(&job) else { return false };
        let taken = self.taken(job, &promise.parts);
        let latest = taken.latest(from, promise.due, left);
        let soonest = || Some(taken.completes(from, left)).filter(|&done| done <= promise.last);
        let latest = latest.or_else(|| taken.latest(from, soonest()?, left));
        let Some((promise, latest)) = self.by_job.get_mut(&job).zip(latest) else { return false };
        promise.time = latest;
        true
    }
}
