//! Moments that jobs wait for: one for each job, and the first that is noted counts.

use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::time::ClusterTime;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Dues {
    due: BTreeSet<(ClusterTime, JobId)>,
    /// The same, by job.
    due_of: BTreeMap<JobId, ClusterTime>,
}

impl Dues {
    /// The first of all moments; never, if there is none.
    pub(crate) fn next(&self) -> ClusterTime {
        self.due.first().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    /// A job waits for this moment, unless it waits for one already.
    pub(crate) fn note(&mut self, job: JobId, at: ClusterTime) {
        if self.due_of.contains_key(&job) {
            return;
        }
        self.due_of.insert(job, at);
        self.due.insert((at, job));
    }

    /// A job waits for nothing any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(at) = self.due_of.remove(&job) {
            self.due.remove(&(at, job));
        }
    }

    /// A job with a moment that has come.
    pub(crate) fn pop(&mut self, now: ClusterTime) -> Option<JobId> {
        let (at, job) = self.due.first().copied().filter(|&(at, _)| at <= now)?;
        self.due.remove(&(at, job));
        self.due_of.remove(&job);
        Some(job)
    }
}
