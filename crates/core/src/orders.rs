//! Orders of owners and administrators about jobs: hold, release, another class or time limit.
//!
//! A held job is in no place of the line until it is released. It then has its place by arrival, as
//! if it had never been held. Hold and `suspend` are independent: a queued job is in line while
//! neither keeps it out. A hold concerns waiting jobs only; one that runs can be suspended.
//!
//! A job's new class takes effect at once: its share of the time, its limits, its priority. While
//! the owner's allowance is spent, the job counts as standby, and goes back to the new class.
//!
//! A new time limit takes effect at once, too: a waiting job is planned by it, and one that runs
//! has what the limit leaves of what it has run. Promises that this breaks are named as for a move.
//! A job that ends or fails, was accepted with a plan, goes on beyond its limit, or has run longer
//! than the new one keeps its limit.

use crate::action::Action;
use crate::apply::Core;
use crate::arrays::ElementOrder;
use crate::event::Event;
use crate::state::record::{Course, Record};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{ClassName, JobId};
use tutti_types::limits::TIME_LIMIT_MIN;
use tutti_types::time::{ClusterTime, Nanos};

/// The user that keeps a job out of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldBy {
    /// Its owner: the owner can release it, and so can administrators.
    Owner,
    /// An administrator: only administrators can release it.
    Administrator,
}

impl Core {
    /// The user that holds a job; `None`: the job is not held.
    #[must_use]
    pub fn held_by(&self, job: JobId) -> Option<HeldBy> {
        self.holds.get(&job).copied()
    }

    /// Whether a hold, jobs that it starts after, or its moment keep a job out of the line.
    pub(crate) fn is_out_of_line(&self, job: JobId) -> bool {
        self.holds.contains_key(&job) || self.after.waits(job) || self.begins.waits(job)
    }

    /// Whether that, or a suspension, keeps a job from being placed.
    pub(crate) fn is_kept_back(&self, record: &Record) -> bool {
        record.suspended || self.is_out_of_line(record.id)
    }

    /// Holds a waiting job. An administrator's hold replaces the owner's, and is never replaced.
    pub(crate) fn on_hold(&mut self, job: JobId, by: HeldBy) {
        let Some(record) = self.jobs.get(&job) else { return };
        if record.residence().is_some() {
            return;
        }
        let (before, was_in_line) = (self.holds.get(&job).copied(), !self.is_kept_back(record));
        self.holds.insert(job, before.map_or(by, |before| before.max(by)));
        self.arrays.note_hold(job);
        if was_in_line {
            self.leave_line(job);
            self.queue.reconsider();
        }
    }

    /// Jobs are held, or released.
    pub(crate) fn on_hold_event(
        &mut self,
        now: ClusterTime,
        event: &Event,
        actions: &mut Vec<Action>,
    ) {
        if let Event::Hold { job, by } = event {
            self.on_hold_order(now, (*job, *by), actions);
        } else if let Event::Release { job, by } = event {
            self.on_release_order(now, (*job, *by), actions);
        }
    }

    /// Holds a job, or all elements of an array.
    fn on_hold_order(
        &mut self,
        now: ClusterTime,
        (job, by): (JobId, HeldBy),
        actions: &mut Vec<Action>,
    ) {
        match self.arrays.contains(job) {
            true => self.on_elements(now, (job, None), ElementOrder::Hold { by }, actions),
            false => self.on_hold(job, by),
        }
    }

    /// Releases a job, or all elements of an array.
    pub(crate) fn on_release_order(
        &mut self,
        now: ClusterTime,
        (job, by): (JobId, HeldBy),
        actions: &mut Vec<Action>,
    ) {
        match self.arrays.contains(job) {
            true => self.on_elements(now, (job, None), ElementOrder::Release { by }, actions),
            false => self.on_release(job, by),
        }
    }

    /// Puts a held job in line. The owner's release of an administrator's hold changes nothing.
    pub(crate) fn on_release(&mut self, job: JobId, by: HeldBy) {
        if self.holds.get(&job).is_none_or(|&before| before > by) {
            return;
        }
        self.holds.remove(&job);
        if self.jobs.get(&job).is_some_and(|record| !self.is_kept_back(record)) {
            self.enter_line(job);
            self.queue.reconsider();
        }
    }

    /// What was asked for a job becomes something else, or where it stands.
    pub(crate) fn on_job_change(&mut self, event: &Event) {
        if let Event::SetJobClass { job, class } = event {
            self.on_set_job_class(*job, class);
        } else if let Event::SetTimeLimit { job, limit } = event {
            self.on_set_time_limit(*job, *limit);
        } else if let Event::SetBegin { job, at } = event {
            self.on_set_begin(*job, *at);
        } else if let Event::MoveJob { job, before } = event {
            self.on_move_job(*job, *before);
        } else if let Event::MovedOut { job } = event {
            self.on_moved_out(*job);
        } else if let Event::MovedIn { job } = event {
            self.on_moved_in(*job);
        } else if let Event::Suspend { job } = event {
            self.on_suspend(*job);
        } else if let Event::Resume { job } = event {
            self.on_resume(*job);
        }
    }

    /// Gives a job another class, or has it go back to that one when its owner's allowance is not
    /// spent any more. An unknown class changes nothing.
    pub(crate) fn on_set_job_class(&mut self, job: JobId, class: &ClassName) {
        if !self.classes.contains_key(class) || self.is_overrun(job) {
            return;
        }
        if self.arrays.contains(job) {
            return self.set_array_class(job, class);
        }
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let before = core::mem::replace(&mut record.spec.class, class.clone());
        record.former = None;
        self.bank.reclassify(record);
        if record.spec.class != before {
            self.after_reclass(job);
        }
    }

    /// A job is of another class than before: its place, shares and promises are looked at anew.
    pub(crate) fn after_reclass(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        let class = self.seat_class(job, &record.spec.class);
        self.matrix.reclass(job, &class);
        if self.queue.waiting.contains(&job) {
            self.line_up(job);
        }
        self.queue.reconsider();
        self.queue.disturbed = true;
        self.quick.look_again();
    }

    /// Whether a job's time limit may become another one.
    ///
    /// # Errors
    /// Why not.
    pub fn may_change_limit(&self, job: JobId) -> Result<(), LimitStays> {
        if self.policy().plans() {
            return Err(LimitStays::Planned);
        }
        if self.arrays.contains(job) {
            return Ok(());
        }
        let record = self.jobs.get(&job).ok_or(LimitStays::Ending)?;
        if record.spec.deadline.is_some() {
            return Err(LimitStays::Planned);
        }
        if self.is_overrun(job) {
            return Err(LimitStays::Overrun);
        }
        match record.residence().map(|residence| residence.course) {
            None | Some(Course::Running | Course::Orphaned { .. }) => Ok(()),
            Some(Course::Terminating { .. } | Course::Killed { .. } | Course::Failing { .. }) => {
                Err(LimitStays::Ending)
            }
        }
    }

    /// Whether a job, or an element of an array, could run longer with this limit.
    pub(crate) fn is_longer(&self, job: JobId, limit: Option<Nanos>) -> bool {
        let spec = self.array(job).map(|array| array.spec);
        let spec = spec.or_else(|| self.jobs.get(&job).map(|record| &record.spec));
        let before = spec.and_then(|spec| spec.time_limit);
        before.is_some_and(|before| limit.is_none_or(|limit| limit > before))
    }

    /// Gives a job, or all of an array that has not ended, another time limit.
    pub(crate) fn on_set_time_limit(&mut self, job: JobId, limit: Option<Nanos>) {
        if self.may_change_limit(job).is_err() || limit.is_some_and(|it| it < TIME_LIMIT_MIN) {
            return;
        }
        if self.arrays.contains(job) {
            return self.set_array_limit(job, limit);
        }
        if limit.is_some_and(|limit| limit <= self.ledger.service(job, self.now)) {
            return;
        }
        let Some(record) = self.jobs.get(&job) else { return };
        let (runs, kept_back) = (record.residence().is_some(), self.is_kept_back(record));
        // Its place among others may rest on the limit, and so may limits of its queue.
        let is_in_line = !runs && !kept_back;
        if is_in_line {
            self.leave_line(job);
        }
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let before = core::mem::replace(&mut record.spec.time_limit, limit);
        if runs {
            self.queues.recount(job, before, &record.spec);
            self.ledger.set_limit(job, limit);
            // The signal before the limit may have been sent before another limit.
            self.warnings.note_start(job);
        }
        if is_in_line {
            self.enter_line(job);
        }
        self.queue.reconsider();
        self.queue.disturbed = true;
        self.quick.look_again();
    }
}

/// Why a job keeps its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStays {
    /// It was accepted with a plan that rests on it, or may be.
    Planned,
    /// It goes on beyond it.
    Overrun,
    /// It is ending.
    Ending,
}
