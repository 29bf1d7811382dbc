//! Jobs that begin no earlier than at a moment.
//!
//! Such a job is in no place of the line until then, as a held job is. Then it comes in, and has
//! its place by arrival. The moment is one of cluster time; the time of people's clocks is kept
//! beside it. When both clocks do not agree any more, as after a restart of the machine, the driver
//! names the moment anew ([`Event::SetBegin`](crate::Event::SetBegin)).

use crate::apply::Core;
use crate::policy::WaitReason;
use crate::state::record::Phase;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::time::ClusterTime;

/// When a job begins at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Begin {
    /// By cluster time.
    pub at: ClusterTime,
    /// By people's clocks, in milliseconds since 1970. The core only keeps it.
    pub unix_ms: u64,
}

/// The waiting jobs whose moment has not come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Begins {
    jobs: BTreeMap<JobId, Begin>,
    moments: BTreeSet<(ClusterTime, JobId)>,
}

impl Begins {
    /// Whether a job waits for its moment.
    pub(crate) fn waits(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// When the next moment comes; never, if none does.
    pub(crate) fn next(&self) -> ClusterTime {
        self.moments.first().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    fn note(&mut self, job: JobId, begin: Begin) {
        self.forget(job);
        self.jobs.insert(job, begin);
        self.moments.insert((begin.at, job));
    }

    /// A job waits for no moment any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(begin) = self.jobs.remove(&job) {
            self.moments.remove(&(begin.at, job));
        }
    }
}

impl Core {
    /// The jobs that wait for a moment, each with it.
    pub fn begins(&self) -> impl Iterator<Item = (JobId, Begin)> + '_ {
        self.begins.jobs.iter().map(|(&job, &begin)| (job, begin))
    }

    /// A job is to begin at a moment; whether it has to wait for it.
    pub(crate) fn begin_at(&mut self, now: ClusterTime, job: JobId, begin: Begin) -> bool {
        let waits = begin.at > now;
        if waits {
            self.begins.note(job, begin);
        }
        waits
    }

    /// The moment of a job that waits for it is another one by cluster time.
    pub(crate) fn on_set_begin(&mut self, job: JobId, at: ClusterTime) {
        if let Some(&begin) = self.begins.jobs.get(&job) {
            self.begins.note(job, Begin { at, ..begin });
        }
    }

    /// Lets jobs into line whose moment has come.
    pub(crate) fn follow_begins(&mut self, now: ClusterTime) {
        while let Some(&(at, job)) = self.begins.moments.first()
            && at <= now
        {
            self.begins.forget(job);
            self.enter_line_late(job);
        }
    }

    /// The moment that a job waits for.
    pub(crate) fn why_begin(&self, job: JobId) -> Option<WaitReason> {
        let begin = self.begins.jobs.get(&job)?;
        Some(WaitReason::Begin { unix_ms: begin.unix_ms })
    }

    /// What is wrong with the jobs that wait for a moment, if anything is.
    pub(crate) fn wrong_begins(&self, now: ClusterTime) -> Option<String> {
        let moments: BTreeSet<_> =
            self.begins.jobs.iter().map(|(&job, begin)| (begin.at, job)).collect();
        if moments != self.begins.moments {
            return Some(format!("{:?}, not {moments:?}", self.begins.moments));
        }
        let is_wrong = |&(at, job): &(ClusterTime, JobId)| {
            let queued =
                self.jobs.get(&job).is_some_and(|it| matches!(it.phase, Phase::Queued { .. }));
            at <= now || !queued
        };
        let wrong = moments.into_iter().find(is_wrong);
        wrong.map(|(at, job)| format!("job {job} waits for {at:?}"))
    }
}
