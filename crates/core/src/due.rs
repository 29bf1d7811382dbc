//! Moments that jobs, or nodes, wait for: one for each, and the first that is noted counts.

use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::time::ClusterTime;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Dues<T: Ord = JobId> {
    due: BTreeSet<(ClusterTime, T)>,
    /// The same, by job.
    due_of: BTreeMap<T, ClusterTime>,
}

impl<T: Ord> Default for Dues<T> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), due_of: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Dues<T> {
    /// The first of all moments; never, if there is none.
    pub(crate) fn next(&self) -> ClusterTime {
        self.due.first().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    /// A job waits for this moment, unless it waits for one already.
    pub(crate) fn note(&mut self, job: T, at: ClusterTime) {
        if self.due_of.contains_key(&job) {
            return;
        }
        self.due_of.insert(job, at);
        self.due.insert((at, job));
    }

    /// A job waits for nothing any more.
    pub(crate) fn forget(&mut self, job: T) {
        if let Some(at) = self.due_of.remove(&job) {
            self.due.remove(&(at, job));
        }
    }

    /// A job with a moment that has come.
    pub(crate) fn pop(&mut self, now: ClusterTime) -> Option<T> {
        let (at, job) = self.due.first().copied().filter(|&(at, _)| at <= now)?;
        self.due.remove(&(at, job));
        self.due_of.remove(&job);
        Some(job)
    }
}
