//! The jobs of each row, from event to event.
//!
//! A row holds only jobs that run now, and each has its processors to itself: a job that is not to
//! run is preempted, suspended in place, and comes back in one step when it is its turn. Jobs that
//! were not promised anything start on what is free then, in the order of acceptance, if they fit.

use super::dispatch::{Claim, Contender, decide};
use super::row_shares::{Sharers, sharers};
use crate::apply::Core;
use crate::policy::classes::ByClass;
use crate::policy::{Lack, WaitReason};
use crate::state::record::Place;
use crate::state::record::{Part, Phase, Record, Residence};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RowId};
use tutti_types::limits::BACKFILL_TRIES_MAX;
use tutti_types::time::{ClusterTime, Nanos};

impl Core {
    /// Gives the processors of all rows to those that have their turn.
    pub(crate) fn seat_planned(&mut self, now: ClusterTime) {
        self.follow_settings();
        self.by_class = ByClass::default();
        self.grant_again();
        self.update_promises(now);
        let mut rows = self.who_runs(now);
        self.set_aside_others(&rows);
        for (sharers, jobs) in &mut rows {
            for job in core::mem::take(jobs) {
                self.seat(now, sharers, job);
            }
        }
        self.start_unpromised(now);
        self.drop_empty_rows();
        let waits = !self.queue.waiting.is_empty();
        self.queue.blocked = waits.then_some(WaitReason::Rows { limit: 1 });
        self.queue.stale = false;
        self.queue.disturbed = false;
        self.queue.newcomer = None;
    }

    /// The jobs of those that have processors, or were promised some, that are to run, by row.
    pub(crate) fn who_runs(&self, now: ClusterTime) -> BTreeMap<Sharers, Vec<JobId>> {
        let ahead = self.ahead(now);
        let mut contenders: BTreeMap<Sharers, Vec<Contender<'_>>> = BTreeMap::new();
        for (job, record) in self.jobs.iter() {
            let sharers = sharers(&self.classes, &record.spec.class);
            let row = self.plans.rows.get(&sharers).map(|plan| plan.row);
            let Some(parts) = self.parts_to_run_on(job, record) else { continue };
            let claim = self.claim(job, record, ahead.clock(row));
            let contender = Contender { claim, job, parts };
            contenders.entry(sharers).or_default().push(contender);
        }
        let meets = |job, run: &[JobId]| self.matrix.kept_apart(job).any(|it| run.contains(&it));
        let rows = contenders.into_iter();
        rows.map(|(sharers, mut contenders)| (sharers, decide(&mut contenders, meets).0)).collect()
    }

    /// Where a job runs if it does; `None` if it can't, or may be put anywhere.
    pub(crate) fn parts_to_run_on<'a>(
        &'a self,
        job: JobId,
        record: &'a Record,
    ) -> Option<&'a [Part]> {
        if self.is_kept_back(record) || self.awaits_resource(record) {
            return None;
        }
        match &record.phase {
            Phase::Queued { .. } => self.plans.promise(job).map(|promise| &promise.parts[..]),
            Phase::Resident(residence) => match residence.place {
                Place::Home => Some(&residence.parts),
                Place::Aside => residence.may_come_back().then_some(&residence.parts[..]),
                Place::Leaving | Place::Coming => None,
            },
        }
    }

    /// What speaks for a job when a row's clock shows so much.
    pub(crate) fn claim(&self, job: JobId, record: &Record, clock: u64) -> Claim {
        if record.residence().is_some_and(|residence| !residence.may_come_back()) {
            return Claim::Gone;
        }
        let ending = record.residence().is_some_and(Residence::ending);
        let promise = self.plans.promise(job);
        if promise.and_then(|promise| promise.time.first()).is_some_and(|first| first.from <= clock)
        {
            return Claim::Now;
        }
        match (promise, record.deadline) {
            _ if ending => Claim::Ending,
            (Some(promise), _) => Claim::Due(promise.due),
            (None, Some(deadline)) => Claim::Late(deadline.0),
            (None, None) => Claim::None,
        }
    }

    /// Preempts jobs that are in a row and not to run there.
    fn set_aside_others(&mut self, rows: &BTreeMap<Sharers, Vec<JobId>>) {
        let mut homes: BTreeMap<JobId, RowId> = BTreeMap::new();
        for (sharers, jobs) in rows {
            if let Some(plan) = self.plans.rows.get(sharers) {
                homes.extend(jobs.iter().map(|&job| (job, plan.row)));
            }
        }
        let is_home = |job: JobId| {
            self.residence(job).is_some_and(|residence| residence.place == Place::Home)
        };
        let others = self.matrix.seats().filter(|(job, seat)| homes.get(job) != Some(&seat.row));
        let others: Vec<JobId> = others.map(|(job, _)| job).filter(|&job| is_home(job)).collect();
        for job in others {
            self.put_aside(job);
        }
    }

    /// Puts a job in its row, unless another is still leaving there.
    fn seat(&mut self, now: ClusterTime, sharers: &Sharers, job: JobId) {
        let row = self.row_of(sharers);
        if self.matrix.seat(job).is_some() || !self.is_free_in(row, job) {
            return;
        }
        let Some(record) = self.jobs.get(&job) else { return };
        match &record.phase {
            Phase::Resident(_) => self.put_back(job, row),
            Phase::Queued { .. } => {
                if let Some(promise) = self.plans.promise(job) {
                    let parts = promise.parts.clone();
                    // Its memory was kept for it.
                    self.settle_in(now, job, Some(row), parts);
                }
            }
        }
    }

    fn is_free_in(&self, row: RowId, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let parts = self.parts_to_run_on(job, record).unwrap_or_default();
        parts
            .iter()
            .filter(|part| !part.lost)
            .all(|part| part.processors.is_subset(&self.matrix.free_on(Some(row), part.node)))
            && !self.matrix.is_barred(job, row)
    }

    /// Starts jobs that wait and were promised nothing, wherever they fit: those at risk first,
    /// then in the order of acceptance, but for those that an administrator has moved.
    fn start_unpromised(&mut self, now: ClusterTime) {
        let machine = self.matrix.blank().free();
        let mut waiting = Vec::new();
        for &job in &self.queue.waiting {
            if let Some(record) = self.jobs.get(&job)
                && self.plans.promise(job).is_none()
            {
                let claim = self.claim(job, record, 0);
                waiting.push((claim, self.queue.line.place(job)));
            }
        }
        waiting.sort_unstable();
        let mut failures = 0;
        for (_, (.., job)) in waiting {
            if failures == BACKFILL_TRIES_MAX {
                return;
            }
            let Some(record) = self.jobs.get(&job) else { continue };
            let (spec, lay) = (&record.spec, self.policy().placement);
            let sharers = sharers(&self.classes, &spec.class);
            let row = self.plans.rows.get(&sharers).map(|plan| plan.row);
            let index = row.and_then(|row| self.matrix.row(row)).map(|row| &row.index);
            let free = index.map_or(machine, |index| index.free());
            let enough = self.machine().least_processors(spec) <= free;
            let parts = match enough && self.lacks_resource(spec).is_none() {
                true => lay(self.machine(), spec, row),
                false => Err(Lack::Nodes),
            };
            if let Ok(parts) = parts {
                let row = self.row_of(&sharers);
                self.start(now, job, Some(row), parts);
                continue;
            }
            failures += 1;
            if self.queue.stale && lay(self.machine(), &record.spec, None) == Err(Lack::Nodes) {
                self.park(job);
            }
        }
    }

    /// When a job's promised time begins, or is over for a while; decided on so much earlier as it
    /// takes to have an effect.
    pub(crate) fn next_turn(&self, now: ClusterTime) -> ClusterTime {
        let ahead = self.ahead(now);
        let mut next = ClusterTime::NEVER;
        for plan in self.plans.rows.values() {
            let clock = ahead.clock(Some(plan.row));
            for (job, promise) in plan.promises.iter() {
                let Some(first) = promise.time.first() else { continue };
                let turn = match first.from <= clock {
                    true => first.to,
                    false if self.matrix.seat(job).is_some() => continue,
                    false => first.from,
                };
                // No moment that has passed: its time would not come by waiting.
                next = next.min(ahead.when(plan.row, turn).max(ahead.at + Nanos(1)));
            }
        }
        if next == ClusterTime::NEVER { next } else { next - self.params.lead() }
    }
}
