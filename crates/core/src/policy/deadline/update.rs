//! How promises are kept up to date as jobs get on, end, and are interfered with.

use super::accept::Wish;
use super::plans::Basis;
use super::promise::Promise;
use super::row_shares::{Sharers, cuts, paces, sharers};
use crate::apply::Core;
use crate::state::record::{Phase, Record, Residence};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;
use tutti_types::ids::{JobId, NodeId};
use tutti_types::time::ClusterTime;

impl Core {
    /// Brings all promises up to now: a job that ran gives back what it needs no more, one that is
    /// gone or was taken out gives back all, and one that was promised none is tried again when
    /// something came free.
    pub(crate) fn update_promises(&mut self, now: ClusterTime) {
        if !self.policy().plans() {
            return;
        }
        let basis = Basis {
            paces: paces(&self.classes, self.params.quantum()),
            cuts: cuts(&self.classes),
            slack: self.params.deadline_slack(),
        };
        if basis != self.plans.basis {
            self.make_promises_anew(now, basis);
        }
        self.plans.at_risk.retain(|job, _| self.jobs.contains_key(job));
        for job in self.void_promises() {
            self.break_promise(now, job);
        }
        let late = self.shorten_promises(now);
        for (sharers, job, left, clock) in late {
            let plan = self.plans.rows.get_mut(&sharers);
            if !plan.is_some_and(|plan| plan.promises.put_off(job, clock, left)) {
                self.break_promise(now, job);
            }
        }
        let freed = core::mem::take(&mut self.plans.freed);
        if freed {
            self.put_off_all(now);
        }
        if freed || self.queue.stale {
            self.promise_to_those_at_risk(now);
        }
    }

    /// Nothing of a node is there any more: a job that was to begin there is not.
    pub(crate) fn break_promises_on(&mut self, now: ClusterTime, node: NodeId) {
        let plans = self.plans.rows.values();
        let here = plans.flat_map(|plan| plan.promises.on(node)).map(|(job, _)| job);
        for job in here.collect::<Vec<JobId>>() {
            self.break_promise(now, job);
        }
    }

    /// What a job was promised holds no more; it is at risk until it is promised something else.
    pub(crate) fn break_promise(&mut self, now: ClusterTime, job: JobId) {
        self.drop_promise(job);
        self.want_promise(now, job);
    }

    /// A job without a promise is at risk, if its deadline is to be kept.
    pub(crate) fn want_promise(&mut self, now: ClusterTime, job: JobId) {
        let wants = self.jobs.get(&job).is_some_and(wants_promise);
        if wants && self.plans.promise(job).is_none() {
            self.plans.at_risk.entry(job).or_insert(now);
        }
    }

    /// Promises to jobs that are gone, killed, held, suspended by a user, or in another row by now,
    /// since their class is another.
    fn void_promises(&self) -> Vec<JobId> {
        let mut void = Vec::new();
        for (of, plan) in &self.plans.rows {
            let is_kept = |record: &Record| {
                let theirs = sharers(&self.classes, &record.spec.class) == *of;
                keeps_promise(record) && theirs && !self.is_kept_back(record)
            };
            let jobs = plan.promises.iter().map(|(job, _)| job);
            void.extend(jobs.filter(|job| !self.jobs.get(job).is_some_and(is_kept)));
        }
        void
    }

    /// Gives back what jobs need no more. Names those that missed the begin of their time, with how
    /// long they still hold processors and what the row's clock shows.
    fn shorten_promises(&mut self, now: ClusterTime) -> Vec<(Sharers, JobId, u64, u64)> {
        let ahead = self.ahead(now);
        let mut all = Vec::new();
        for (sharers, plan) in &self.plans.rows {
            let clock = ahead.clock(Some(plan.row));
            for (job, _) in plan.promises.iter() {
                let holds = self.jobs.get(&job).and_then(|record| ahead.holds(record));
                all.push((sharers.clone(), job, holds.unwrap_or(0), clock));
            }
        }
        for (sharers, job, left, _) in &all {
            if let Some(plan) = self.plans.rows.get_mut(sharers) {
                plan.promises.shorten(*job, *left);
            }
        }
        all.retain(|(_, job, _, clock)| {
            let first = self.plans.promise(*job).and_then(|promise| promise.time.first());
            first.is_some_and(|first| first.from < *clock)
        });
        all
    }

    /// The time of all as late as can be, the last to be due first: what is early is free for those
    /// that come.
    fn put_off_all(&mut self, now: ClusterTime) {
        let ahead = self.ahead(now);
        let mut order = Vec::new();
        for (sharers, plan) in &self.plans.rows {
            let clock = ahead.clock(Some(plan.row));
            for (job, promise) in plan.promises.iter() {
                let left = promise.time.length();
                order.push((Reverse(promise.due), job, sharers.clone(), clock, left));
            }
        }
        order.sort_unstable();
        for (_, job, sharers, clock, left) in order {
            if let Some(plan) = self.plans.rows.get_mut(&sharers) {
                plan.promises.put_off(job, clock, left);
            }
        }
    }

    fn promise_to_those_at_risk(&mut self, now: ClusterTime) {
        let deadline = |job: &JobId| self.jobs.get(job).and_then(|record| record.deadline);
        let at_risk = self.plans.at_risk.keys().copied();
        let mut order: Vec<(Option<ClusterTime>, JobId)> =
            at_risk.map(|job| (deadline(&job), job)).collect();
        order.sort_unstable();
        for (_, job) in order {
            if let Some((sharers, promise)) = self.find_again(now, job) {
                self.enter_promise(&sharers, job, promise);
            }
        }
    }

    /// A promise for a job that was accepted before, where its tasks are if it has begun.
    fn find_again(&self, now: ClusterTime, job: JobId) -> Option<(Sharers, Promise)> {
        let record =
            self.jobs.get(&job).filter(|it| wants_promise(it) && !self.is_kept_back(it))?;
        let ahead = self.ahead(now);
        let (spec, deadline) = (&record.spec, record.deadline?);
        let wish = Wish { job, spec, deadline, holds: ahead.holds(record)? };
        let sharers = sharers(&self.classes, &spec.class);
        let found = match &record.phase {
            // When a resource comes free is unknown.
            Phase::Queued { .. } if !spec.resources.is_empty() => return None,
            Phase::Queued { .. } => self.find_promise(&ahead, &sharers, wish),
            Phase::Resident(residence) => {
                self.promise_on(&ahead, &sharers, wish, residence.parts.clone())
            }
        };
        found.ok().map(|promise| (sharers, promise))
    }

    /// Promises rest on other slots from now on. Each job has its place in another plan, the last
    /// to be due first; a job that finds none is at risk.
    fn make_promises_anew(&mut self, now: ClusterTime, basis: Basis) {
        self.plans.basis = basis;
        let jobs = self.jobs.iter().filter(|(_, record)| record.deadline.is_some());
        let mut order: Vec<(Reverse<Option<ClusterTime>>, JobId)> =
            jobs.map(|(job, record)| (Reverse(record.deadline), job)).collect();
        order.sort_unstable();
        // A job that is to begin keeps its processors if there is time for it there.
        let promises: Vec<(JobId, Promise)> = order
            .iter()
            .filter_map(|&(_, job)| Some((job, self.plans.promise(job)?.clone())))
            .collect();
        let promised: BTreeSet<JobId> = promises.iter().map(|(job, _)| *job).collect();
        for &job in &promised {
            self.drop_promise(job);
        }
        for (job, before) in promises {
            let again = self.find_there(now, job, &before).or_else(|| self.find_again(now, job));
            match again {
                Some((sharers, promise)) => self.enter_promise(&sharers, job, promise),
                None => self.break_promise(now, job),
            }
        }
        for (_, job) in order.into_iter().filter(|(_, job)| !promised.contains(job)) {
            match self.find_again(now, job) {
                Some((sharers, promise)) => self.enter_promise(&sharers, job, promise),
                None => self.break_promise(now, job),
            }
        }
    }

    fn find_there(
        &self,
        now: ClusterTime,
        job: JobId,
        before: &Promise,
    ) -> Option<(Sharers, Promise)> {
        let record =
            self.jobs.get(&job).filter(|it| keeps_promise(it) && !self.is_kept_back(it))?;
        let ahead = self.ahead(now);
        let (spec, deadline) = (&record.spec, record.deadline?);
        let wish = Wish { job, spec, deadline, holds: ahead.holds(record)? };
        let sharers = sharers(&self.classes, &spec.class);
        let found = self.promise_on(&ahead, &sharers, wish, before.parts.clone());
        found.ok().map(|promise| (sharers, promise))
    }
}

/// Whether what a job was promised may still be its own: while it is asked to end, for its grace.
pub(crate) fn keeps_promise(record: &Record) -> bool {
    let may_run = record.residence().is_none_or(Residence::may_come_back);
    may_run && record.deadline.is_some()
}

/// Whether a job has a deadline to be kept, and may still run.
pub(crate) fn wants_promise(record: &Record) -> bool {
    let goes_on = match &record.phase {
        Phase::Queued { .. } => true,
        Phase::Resident(residence) => residence.present() && !residence.ending(),
    };
    goes_on && record.deadline.is_some()
}
