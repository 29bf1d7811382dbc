//! What the core itself seats while a policy outside is in charge, and what it keeps clear.

use super::orders::OrderRefusal;
use crate::apply::Core;
use crate::policy::classes::ByClass;
use crate::policy::{Decision, WaitReason};
use crate::queue::{Promise, holds};
use crate::state::record::Part;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RowId};
use tutti_types::job::JobSpec;
use tutti_types::time::ClusterTime;

/// How a job starts that was ordered to.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// In this row; `None`: in a new one.
    pub(crate) row: Option<RowId>,
    /// On these processors.
    pub(crate) parts: Vec<Part>,
    /// What is left of the promise to the first in line.
    pub(crate) promise: Option<Promise>,
}

impl Core {
    /// Starts a job that was ordered to, as was found possible.
    pub(crate) fn start_as_ordered(&mut self, now: ClusterTime, job: JobId, start: Start) {
        let Start { row, parts, promise } = start;
        self.start(now, job, row, parts);
        if self.queue.promise.is_some() {
            self.queue.promise = promise;
        }
        // Room is less now, and the rows may be others.
        self.queue.reconsider();
    }

    /// Seats the jobs that the built-in policy promised a start, and those that are left to it.
    pub(crate) fn seat_for_outside(&mut self, now: ClusterTime) {
        self.follow_settings();
        self.queue.newcomer = None;
        if self.by_class != ByClass::default() {
            self.by_class = ByClass::default();
        }
        if !self.queue.reservations.is_empty() {
            self.seat_reserved(now, None);
        }
        self.keep_promise(now);
        self.seat_left(now);
        let waits = !self.queue.waiting.is_empty();
        self.queue.blocked = waits.then_some(WaitReason::Outside);
        self.queue.stale = false;
        self.queue.disturbed = false;
    }

    /// Starts the first in line if it was promised that, or keeps the promise up to date.
    fn keep_promise(&mut self, now: ClusterTime) {
        let Some(before) = self.queue.promise else { return };
        let Some(record) = self.jobs.get(&before.job).filter(|_| before.is_said()) else {
            self.queue.promise = None;
            return;
        };
        if let Some(Decision::Start { row, parts }) = self.decide(&record.spec) {
            self.queue.promise = None;
            return self.start(now, before.job, row, parts);
        }
        if self.queue.stale || before.at < now {
            self.outbox.reframed |= self.reframe(now);
            let mut promise = self.promise(now, before.job);
            if !(self.queue.disturbed || self.slots_may_change()) {
                promise.first = before.first;
            }
            if self.can_keep_to(before.job, promise.at) {
                promise.first = promise.first.min(promise.at);
            }
            self.queue.promise = Some(promise).filter(Promise::is_said);
        }
    }

    /// Starts the jobs that were left to the built-in policy, by number, until one does not fit.
    fn seat_left(&mut self, now: ClusterTime) {
        loop {
            let waits = |job: &&JobId| self.queue.waiting.contains(*job);
            let Some(&job) = self.outside.left.iter().find(waits) else { return };
            let Some(record) = self.jobs.get(&job) else { return };
            let Some(Decision::Start { row, parts }) = self.decide(&record.spec) else { return };
            let Ok(promise) = self.keeps_promises((job, &record.spec), row, &parts) else { return };
            self.outside.left.remove(&job);
            self.start_as_ordered(now, job, Start { row, parts, promise });
        }
    }

    /// Whether a job can start there without delay to any that was promised a start; what is left
    /// of the promise to the first in line then.
    pub(crate) fn keeps_promises(
        &self,
        (job, spec): (JobId, &JobSpec),
        row: Option<RowId>,
        parts: &[Part],
    ) -> Result<Option<Promise>, OrderRefusal> {
        if !self.queue.promised() {
            return Ok(None);
        }
        let promise = self.queue.promise;
        if promise.is_some_and(|promise| promise.job == job) {
            return Ok(None);
        }
        let other = promise.map(|promise| promise.job);
        let other = other.or_else(|| self.queue.reservations.keys().copied().find(|&it| it != job));
        let Some(other) = other else { return Ok(promise) };
        let delays = OrderRefusal::Delays(job, other);
        let rivals = self.jobs.get(&other).is_some_and(|it| Self::share_a_resource(&it.spec, spec));
        let Some(row) = row.filter(|_| !rivals) else { return Err(delays) };
        if !self.machine().keeps_slots(row, spec, &self.frame) {
            return Err(delays);
        }
        let taken = parts.iter().map(|part| u64::from(part.processors.count())).sum();
        if !self.queue.reservations.is_empty() {
            let fits = self.fits_beside_reserved(self.now, (job, spec), row, taken);
            return if fits { Ok(promise) } else { Err(delays) };
        }
        let Some(mut promise) = promise else { return Ok(None) };
        let is_open = promise.row.is_some_and(|promised| promised != row);
        let is_gone = holds(spec) <= self.window(self.now, row, &promise);
        if is_open || is_gone {
            return Ok(Some(promise));
        }
        if promise.row.is_none() || taken > promise.extra {
            return Err(delays);
        }
        promise.extra -= taken;
        Ok(Some(promise))
    }
}
