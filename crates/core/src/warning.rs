//! Signals before time limits (`--signal`).
//!
//! A job may ask for a signal so long before its time limit, counted as the limit itself is: in
//! time of its turns. It comes once for each time that the job is started. In a batch job it goes
//! to the steps, or to the script's shell alone if the job asks for that; in other jobs to all
//! tasks.

use crate::action::Action;
use crate::apply::Core;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::job::Warning;
use tutti_types::time::{ClusterTime, Nanos};

/// How much a job must have got in any case, so that its tasks are there; but at most half of its
/// limit.
const AFTER_START: Nanos = Nanos::from_secs(1);

/// The jobs that ask for a signal before their limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Warnings {
    asked: BTreeMap<JobId, Warning>,
    /// Those that have begun, and had no signal since.
    open: BTreeSet<JobId>,
}

impl Warnings {
    pub(crate) fn note(&mut self, job: JobId, warning: Warning) {
        self.asked.insert(job, warning);
    }

    /// A job has processors: its signal is to come.
    pub(crate) fn note_start(&mut self, job: JobId) {
        if self.asked.contains_key(&job) {
            self.open.insert(job);
        }
    }

    /// A job is ending, or in line again: no signal comes before it starts anew.
    pub(crate) fn close(&mut self, job: JobId) {
        self.open.remove(&job);
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.open.remove(&job);
        self.asked.remove(&job);
    }
}

impl Core {
    /// How much a job must have got for its signal.
    fn warned_at(&self, job: JobId) -> Option<Nanos> {
        let (warning, record) = (self.warnings.asked.get(&job)?, self.jobs.get(&job)?);
        let limit = record.spec.time_limit.filter(|_| !self.is_overrun(job))?;
        let least = AFTER_START.0.min(limit.0 / 2);
        Some(Nanos(limit.0.saturating_sub(warning.before.0).max(least)))
    }

    /// Sends the signals that are due.
    pub(crate) fn warn_due(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        let is_due = |job: &JobId| {
            self.warned_at(*job).is_some_and(|need| self.ledger.service(*job, now) >= need)
        };
        let due: Vec<JobId> = self.warnings.open.iter().copied().filter(is_due).collect();
        for job in due {
            self.warnings.close(job);
            self.warn(job, actions);
        }
    }

    fn warn(&self, job: JobId, actions: &mut Vec<Action>) {
        if let Some(&Warning { signal, only_shell, .. }) = self.warnings.asked.get(&job) {
            self.signal_run(job, signal, only_shell, actions);
        }
    }

    /// When a signal could be due at the earliest, as the slots are now.
    pub(crate) fn next_warning(&self) -> ClusterTime {
        let needs = self.warnings.open.iter().filter_map(|&job| Some((job, self.warned_at(job)?)));
        let due = needs.map(|(job, need)| self.ledger.reaches(job, need)).min();
        // When a timetable activates, this must be foretold anew.
        due.map_or(ClusterTime::NEVER, |at| at.min(self.ledger.next_stage()))
    }

    /// What is wrong with the signals before limits, if anything is.
    pub(crate) fn wrong_warnings(&self, now: ClusterTime) -> Option<String> {
        let unknown = self.warnings.asked.keys().find(|job| self.jobs.get(job).is_none());
        if let Some(job) = unknown {
            return Some(format!("a signal is kept of job {job}, which is unknown"));
        }
        let is_wrong = |job: &&JobId| {
            let runs = self.residence(**job).is_some_and(|residence| !residence.ending());
            let late = self.warned_at(**job).is_some_and(|n| self.ledger.service(**job, now) >= n);
            !runs || late || !self.warnings.asked.contains_key(job)
        };
        let wrong = self.warnings.open.iter().find(is_wrong);
        wrong.map(|job| format!("job {job} should have had its signal, or be in no list"))
    }
}
