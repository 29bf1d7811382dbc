//! Jobs that go on beyond their time limits, in what is otherwise idle.
//!
//! A class says what becomes of its jobs at their limit (`overrun`): they end, or go on as standby.
//! A job that goes on is of class `standby` from then on, and keeps no class that a user gives it
//! later.
//!
//! - Where jobs take turns, its row has no slot for it: it runs on processors that are idle in the
//!   slots of others, or in its own turns while no other job is there.
//! - Where there is a line, it is preempted as soon as the first in line could start without it,
//!   and comes back when no job waits and its processors are free.
//! - Under the policy `classes`, it is preempted as jobs of class `standby` are.
//!
//! Its memory and its resources stay its own. A job that was accepted with a deadline ends at its
//! limit, since the plan of others rests on that. A requeued job has its limit anew.

use crate::action::Action;
use crate::controller::Core;
use crate::policy::{Decision, Machine, WaitReason};
use crate::share;
use crate::state::record::{Course, Place};
use alloc::vec::Vec;
use tutti_types::class::Overrun;
use tutti_types::ids::{ClassName, JobId};
use tutti_types::job::JobSpec;

/// The class that such jobs get.
const STANDBY: &str = "standby";

impl Core {
    /// Whether a job goes on beyond its time limit.
    #[must_use]
    pub fn is_overrun(&self, job: JobId) -> bool {
        self.overrun.contains(&job)
    }

    /// What a job counts as where time is divided: as its class, unless it has what is idle only.
    pub(crate) fn seat_class(&self, job: JobId, class: &ClassName) -> ClassName {
        if self.is_overrun(job) { share::idle_only() } else { class.clone() }
    }

    /// Has a job go on that has reached its time limit, if its class says so. Whether it does.
    pub(crate) fn let_overrun(&mut self, job: JobId, actions: &mut Vec<Action>) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let rule = self.classes.get(&record.spec.class).map(|class| class.overrun());
        let course = record.residence().map(|residence| residence.course);
        let goes_on = matches!(course, Some(Course::Running | Course::Orphaned { .. }));
        let standby = ClassName::new(STANDBY);
        let allowed = rule == Some(Overrun::Standby) && self.classes.contains_key(&standby);
        if !goes_on || !allowed || record.deadline.is_some() || self.is_overrun(job) {
            return false;
        }
        self.ledger.unlimit(job);
        self.on_set_job_class(job, &standby);
        self.overrun.insert(job);
        self.after_reclass(job);
        actions.push(Action::Reclassed { job, class: standby });
        true
    }

    /// Preempts the jobs that go on beyond their limits, if the first in line could start without
    /// them. They are suspended in place, as all that is preempted.
    pub(crate) fn preempt_overrun(&mut self) {
        if self.overrun.is_empty() || self.queue.waiting.is_empty() {
            return;
        }
        let is_home = |job: &JobId| {
            let residence = self.residence(*job);
            residence.is_some_and(|it| it.place == Place::Home && !it.ending())
        };
        let at_home: Vec<JobId> = self.overrun.iter().copied().filter(is_home).collect();
        let first = self.queue.first().and_then(|job| self.jobs.get(&job));
        if !at_home.is_empty() && first.is_some_and(|it| self.starts_without(&it.spec, &at_home)) {
            let blocked = self.queue.blocked;
            for job in at_home {
                self.move_out(job);
            }
            // Until they are gone, the first in line waits as before.
            self.queue.blocked = blocked;
        }
    }

    fn starts_without(&self, spec: &JobSpec, jobs: &[JobId]) -> bool {
        if self.lacks_resource(spec).is_some() {
            return false;
        }
        let mut matrix = self.matrix.clone();
        for &job in jobs {
            matrix.remove(job);
        }
        let machine = Machine { matrix: &matrix, ..self.machine() };
        matches!(self.policy().decide(machine, spec), Some(Decision::Start { .. }))
    }

    /// Whether a preempted job stays so: others wait in line, or have its processors.
    pub(crate) fn yields_to_line(&self, job: JobId) -> bool {
        self.is_overrun(job) && (!self.queue.waiting.is_empty() || !self.has_room_again(job))
    }

    /// Whether no home is where the processors of a preempted job are.
    fn has_room_again(&self, job: JobId) -> bool {
        let mut rows = self.matrix.ordinary();
        rows.next().is_none() || self.row_with_its_processors(job).is_some()
    }

    /// Why such a job has no processors under a policy with a line.
    pub(crate) fn why_yielding(&self, job: JobId) -> Option<WaitReason> {
        let waits = !self.policy().sets_aside() && self.yields_to_line(job);
        waits.then_some(WaitReason::Overrun)
    }
}
