//! Jobs that are asked to vacate before they lose a turn (`--vacate`).
//!
//! At the end of a slot the node alone gives notice: it knows the timetable. A new timetable may
//! take a turn away at once, when a job is suspended, preempted, or another one comes. So while
//! such a job has turns, a change takes effect later by as much as the job wants, at most by half a
//! quantum. The nodes see what is coming and give notice. Jobs with promised times are never kept
//! waiting for it: while there are any, changes are not put off.

use crate::apply::Core;
use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::time::Nanos;

/// The jobs that may be asked to vacate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Vacates {
    asked: BTreeMap<JobId, Nanos>,
    /// Those that had turns when timetables were last sent.
    seated: BTreeSet<JobId>,
}

impl Vacates {
    pub(crate) fn note(&mut self, job: JobId, lead: Nanos) {
        self.asked.insert(job, lead);
    }

    /// A job is ending, or in line again: it is not asked any more.
    pub(crate) fn close(&mut self, job: JobId) {
        self.seated.remove(&job);
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.seated.remove(&job);
        self.asked.remove(&job);
    }
}

impl Core {
    /// How long before a change takes effect the nodes must know of it.
    pub(crate) fn lead(&self) -> Nanos {
        let most = Nanos(self.params.quantum().0 / 2);
        // One whose tasks have all ended loses nothing, and others run in its place already.
        let is_there = |job: &&JobId| self.residence(**job).is_some_and(|it| it.present());
        let seated = self.vacates.seated.iter().filter(is_there);
        let longest = seated.filter_map(|job| self.vacates.asked.get(job)).max();
        // Promises count on timetables that are in force at once, also those that are being made.
        let promises = !self.plans.at_risk.is_empty() && self.policy().plans();
        let longest = longest.filter(|_| self.plans.rows.is_empty() && !promises);
        longest.map_or(self.params.lead(), |&lead| lead.min(most).max(self.params.lead()))
    }

    /// Timetables were sent: jobs that have turns by them are asked before they lose those.
    pub(crate) fn note_seated(&mut self) {
        let has_turns = |job: &JobId| {
            self.matrix.seat(*job).is_some()
                && self.jobs.get(job).is_some_and(|record| !record.suspended)
                && self.residence(*job).is_some_and(|residence| !residence.ending())
        };
        let seated = self.vacates.asked.keys().copied().filter(has_turns).collect();
        self.vacates.seated = seated;
    }
}
