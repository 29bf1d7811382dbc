//! A scheduler *like* Slurm's multifactor priority with fair share, to compare orders of the line
//! with.
//!
//! It is no part of the product and no copy of Slurm: jobs have processors of their own from start
//! to end, and the line is ordered anew at every decision by
//!
//! `fair_share x 2 ^ -(U / S) + age x min(1, waited / age_max)`
//!
//! where `U` is the user's part of all decayed use, processors times run time, running jobs
//! included, and `S` an equal share: one over the number of users seen so far. That is the formula
//! of Slurm's classic fair share with one level of accounts and a dampening of 1. The first job
//! that does not fit is promised the earliest start that running jobs leave it, and others pass it
//! if they can't delay that, in the order of the line: EASY backfilling. Slurm plans more jobs than
//! one in its backfilling, looks at it every half a minute, and recomputes use every five minutes.
//!
//! With `fair_share` 0 it is EASY in the order of arrival, which tests compare with the core job by
//! job.

use crate::driver::Order;
use crate::error::SimError;
use crate::jobs::{Finished, Job};
use crate::observer::{Observer, Passed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use tutti_types::limits::TIME_LIMIT_MIN;
use tutti_types::{ClusterTime, JobId, Nanos};

/// The weights and times of the priority.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multifactor {
    /// The weight of the fair share.
    pub fair_share: f64,
    /// The weight of the time that a job has waited.
    pub age: f64,
    /// The wait from which on age counts in full.
    pub age_max: Nanos,
    /// The time after which use counts half.
    pub half_life: Nanos,
    /// What comes first of what happens at one moment.
    pub order: Order,
}

const WEEK: Nanos = Nanos::from_secs(7 * 24 * 3600);

impl Default for Multifactor {
    /// Slurm's default times, and ten times as much weight for the fair share as for age.
    fn default() -> Self {
        Self {
            fair_share: 10_000.0,
            age: 1_000.0,
            age_max: WEEK,
            half_life: WEEK,
            order: Order::SubmitFirst,
        }
    }
}

/// Simulates a workload, to its end, on so many processors. Jobs must come in the order in which
/// they are submitted, and each must fit the machine.
///
/// # Errors
/// If the workload has an error, or the observer can't write.
pub fn run_multifactor<E>(
    processors: u32,
    priority: Multifactor,
    mut workload: impl Iterator<Item = Result<Job, E>>,
    observer: &mut impl Observer,
) -> Result<(), SimError<E>> {
    let mut machine = Multi { free: processors, processors, ..Multi::new(priority) };
    let mut coming = workload.next().transpose().map_err(SimError::Workload)?;
    loop {
        let submit = coming.as_ref().map_or(u64::MAX, |job| job.submit.0.max(machine.now));
        let done = machine.next_end();
        let due = submit.min(done);
        if due == u64::MAX {
            return Ok(());
        }
        machine.pass(due, observer);
        let order = priority.order;
        if order != Order::OneByOne && machine.end_those_at_their_limits(observer)? {
            continue;
        }
        if submit == due && (done > due || order != Order::EndFirst) {
            if let Some(job) = coming.take() {
                machine.submit(job, observer)?;
            }
            coming = workload.next().transpose().map_err(SimError::Workload)?;
        } else {
            machine.end_first(observer)?;
        }
    }
}

/// A job that waits.
#[derive(Clone, Copy)]
struct Waiting {
    job: Job,
    sequence: u64,
}

/// A job that runs: when it ends, whether before its limit, and its place in the order of starts.
type Running = (u64, bool, u64);

/// What a user has used, and the processors that the user's jobs have now.
#[derive(Clone, Copy, Default)]
struct Use {
    /// Decayed use as of `at`, in processor seconds.
    used: f64,
    at: u64,
    processors: f64,
}

struct Multi {
    priority: Multifactor,
    processors: u32,
    free: u32,
    now: u64,
    waiting: Vec<Waiting>,
    running: BinaryHeap<Reverse<Running>>,
    /// By the order of starts.
    started: BTreeMap<u64, (Waiting, u64)>,
    starts: u64,
    submitted: u64,
    uses: BTreeMap<u32, Use>,
    all: Use,
}

const NS_PER_S: f64 = 1e9;

/// The time limit of a job: none is shorter than that of the core.
fn limit(job: &Job) -> u64 {
    job.estimate.max(TIME_LIMIT_MIN).0
}

impl Use {
    /// The decayed use at `now`, in closed form for what runs meanwhile.
    fn at(&self, now: u64, half_life: Nanos) -> f64 {
        let passed = now.saturating_sub(self.at) as f64 / NS_PER_S;
        let rate = std::f64::consts::LN_2 / (half_life.0.max(1) as f64 / NS_PER_S);
        let left = (-rate * passed).exp();
        self.used * left + self.processors * (1.0 - left) / rate
    }

    fn change(&mut self, now: u64, half_life: Nanos, processors: f64) {
        self.used = self.at(now, half_life);
        self.at = now;
        self.processors += processors;
    }
}

impl Multi {
    fn new(priority: Multifactor) -> Self {
        Self {
            priority,
            processors: 0,
            free: 0,
            now: 0,
            waiting: Vec::new(),
            running: BinaryHeap::new(),
            started: BTreeMap::new(),
            starts: 0,
            submitted: 0,
            uses: BTreeMap::new(),
            all: Use::default(),
        }
    }

    fn next_end(&self) -> u64 {
        self.running.peek().map_or(u64::MAX, |&Reverse((end, ..))| end)
    }

    fn pass(&mut self, to: u64, observer: &mut impl Observer) {
        if to <= self.now {
            return;
        }
        let used = u128::from(self.processors - self.free) * u128::from(to - self.now);
        observer.passed(&Passed {
            from: ClusterTime(self.now),
            to: ClusterTime(to),
            useful_ns: used,
            held_ns: used,
            switches: 0,
            waiting: self.waiting.len(),
        });
        self.now = to;
    }

    fn submit<E>(&mut self, mut job: Job, observer: &mut impl Observer) -> Result<(), SimError<E>> {
        job.submit = job.submit.max(ClusterTime(self.now));
        self.uses.entry(job.user).or_default();
        observer.submitted(self.submitted, &job)?;
        self.waiting.push(Waiting { job, sequence: self.submitted });
        self.submitted += 1;
        self.decide();
        Ok(())
    }

    fn end_those_at_their_limits<E>(
        &mut self,
        observer: &mut impl Observer,
    ) -> Result<bool, SimError<E>> {
        let mut any = false;
        while let Some(&Reverse((end, false, start))) = self.running.peek()
            && end == self.now
        {
            self.running.pop();
            self.end(start, observer)?;
            any = true;
        }
        if any {
            self.decide();
        }
        Ok(any)
    }

    fn end_first<E>(&mut self, observer: &mut impl Observer) -> Result<(), SimError<E>> {
        if let Some(Reverse((_, _, start))) = self.running.pop() {
            self.end(start, observer)?;
            self.decide();
        }
        Ok(())
    }

    fn end<E>(&mut self, start: u64, observer: &mut impl Observer) -> Result<(), SimError<E>> {
        let Some((Waiting { job, sequence }, began)) = self.started.remove(&start) else {
            return Ok(());
        };
        self.free += job.processors;
        self.charge(&job, -f64::from(job.processors));
        let (start, end) = (ClusterTime(began), ClusterTime(self.now));
        observer
            .ended(JobId(sequence + 1), &Finished { job, sequence, start, end, preemptions: 0 })?;
        Ok(())
    }

    fn charge(&mut self, job: &Job, processors: f64) {
        let (now, half_life) = (self.now, self.priority.half_life);
        self.all.change(now, half_life, processors);
        self.uses.entry(job.user).or_default().change(now, half_life, processors);
    }

    fn start(&mut self, waiting: Waiting) {
        let job = waiting.job;
        self.free -= job.processors;
        self.charge(&job, f64::from(job.processors));
        self.starts += 1;
        let end = self.now.saturating_add(job.need().0);
        let is_early = self.priority.order != Order::OneByOne && !job.reaches_limit();
        self.running.push(Reverse((end, is_early, self.starts)));
        self.started.insert(self.starts, (waiting, self.now));
    }

    /// Puts the line in the order of priority; of equal ones, the first that came.
    fn order_line(&mut self) {
        let Multifactor { fair_share, age, age_max, half_life, .. } = self.priority;
        if fair_share == 0.0 || self.waiting.len() < 2 {
            return self.waiting.sort_by_key(|waiting| waiting.sequence);
        }
        let all = self.all.at(self.now, half_life);
        let users = self.uses.len() as f64;
        let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
        let mut keyed: Vec<(f64, Waiting)> = Vec::with_capacity(self.waiting.len());
        for &waiting in &self.waiting {
            let user = waiting.job.user;
            let of_share = *shares.entry(user).or_insert_with(|| {
                let used = self.uses.get(&user).map_or(0.0, |it| it.at(self.now, half_life));
                let part = if all > 0.0 { used / all } else { 0.0 };
                (-part * users).exp2()
            });
            let waited = self.now.saturating_sub(waiting.job.submit.0) as f64;
            let of_age = (waited / age_max.0.max(1) as f64).min(1.0);
            keyed.push((fair_share * of_share + age * of_age, waiting));
        }
        keyed.sort_by(|(first, one), (second, other)| {
            second.total_cmp(first).then(one.sequence.cmp(&other.sequence))
        });
        self.waiting = keyed.into_iter().map(|(_, waiting)| waiting).collect();
    }

    /// Starts the jobs that may start now.
    fn decide(&mut self) {
        if self.waiting.is_empty() || self.free == 0 {
            return;
        }
        self.order_line();
        let fits = self
            .waiting
            .iter()
            .scan(self.free, |free, waiting| {
                *free = free.checked_sub(waiting.job.processors)?;
                Some(())
            })
            .count();
        for waiting in self.waiting.drain(..fits).collect::<Vec<_>>() {
            self.start(waiting);
        }
        let Some(first) = self.waiting.first() else { return };
        let (at, mut spare) = self.reservation(first.job.processors);
        let mut place = 1;
        while place < self.waiting.len() && self.free > 0 {
            let job = self.waiting[place].job;
            let in_time = self.now.saturating_add(limit(&job)) <= at;
            if job.processors <= self.free && (in_time || job.processors <= spare) {
                spare -= if in_time { 0 } else { job.processors };
                let waiting = self.waiting.remove(place);
                self.start(waiting);
            } else {
                place += 1;
            }
        }
    }

    /// When so many processors are free at the latest, and how many more are then.
    fn reservation(&self, processors: u32) -> (u64, u32) {
        let mut ends: Vec<(u64, u32)> = self
            .started
            .values()
            .map(|(waiting, began)| {
                (began.saturating_add(limit(&waiting.job)), waiting.job.processors)
            })
            .collect();
        ends.sort_unstable();
        let mut free = self.free;
        let mut ends = ends.into_iter().peekable();
        while let Some((at, width)) = ends.next() {
            free += width;
            // All that end at one moment count.
            if free >= processors && ends.peek().is_none_or(|&(next, _)| next > at) {
                return (at, free - processors);
            }
        }
        (u64::MAX, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::InOrder;

    fn job(user: u32, submit_s: u64, run_s: u64, processors: u32) -> Job {
        let run = Nanos::from_secs(run_s);
        let submit = ClusterTime(submit_s * 1_000_000_000);
        Job { user, submit, run, estimate: run, processors, ..Job::default() }
    }

    fn starts_s(priority: Multifactor, jobs: &[Job]) -> Vec<u64> {
        let mut starts = Vec::new();
        let mut in_order = InOrder::new(|job: &Finished| {
            starts.push(job.start.0 / 1_000_000_000);
            Ok(())
        });
        let workload = jobs.iter().map(|&job| Ok::<Job, std::convert::Infallible>(job));
        run_multifactor(4, priority, workload, &mut in_order).unwrap();
        drop(in_order);
        starts
    }

    #[test]
    fn a_user_with_less_use_comes_first() {
        // User 1 fills the machine twice; user 2 comes last, and has used nothing.
        let jobs = [job(1, 0, 100, 4), job(1, 1, 100, 4), job(1, 2, 100, 4), job(2, 3, 10, 4)];
        assert_eq!(starts_s(Multifactor::default(), &jobs), [0, 110, 210, 100]);
        let by_age = Multifactor { fair_share: 0.0, ..Multifactor::default() };
        assert_eq!(starts_s(by_age, &jobs), [0, 100, 200, 300]);
    }

    #[test]
    fn use_halves_in_a_half_life_and_counts_what_runs() {
        let half_life = Nanos::from_secs(100);
        let mut used = Use::default();
        used.change(0, half_life, 2.0);
        // The sum of what decays: 2 / rate x (1 - 1/2).
        let after = used.at(100_000_000_000, half_life);
        assert!((after - 100.0 / std::f64::consts::LN_2).abs() < 1e-6, "{after}");
        used.change(100_000_000_000, half_life, -2.0);
        let later = used.at(200_000_000_000, half_life);
        assert!((later - after / 2.0).abs() < 1e-9, "{later}");
    }
}
