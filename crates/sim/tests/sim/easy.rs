//! EASY backfilling in sixty lines that know nothing of rows and nodes, to compare with job by job.

use crate::reference::random_jobs;
use crate::scenario::{settings, simulate};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::convert::Infallible;
use tutti_sim::{InOrder, Job, Multifactor, Order, Settings, run_multifactor};

/// Every order of what happens at one moment.
pub(crate) const ORDERS: [Order; 3] = [Order::SubmitFirst, Order::EndFirst, Order::OneByOne];

/// A job that has processors.
#[derive(Clone, Copy)]
struct Running {
    width: u32,
    /// When it will be gone at the latest.
    limit: u64,
    end: u64,
    ends_at_limit: bool,
}

/// The run time that the scheduler gets for a job: no limit is shorter than a millisecond.
fn told(job: &Job) -> u64 {
    job.estimate.0.max(tutti_types::limits::TIME_LIMIT_MIN.0)
}

struct Easy<'a> {
    jobs: &'a [Job],
    free: u32,
    waiting: VecDeque<usize>,
    /// In the order in which they started.
    running: Vec<Running>,
    times: Vec<(u64, u64)>,
}

impl Easy<'_> {
    fn start(&mut self, now: u64, index: usize) {
        let job = &self.jobs[index];
        self.free -= job.processors;
        let (limit, end) = (now + told(job), now + job.need().0);
        let (width, ends_at_limit) = (job.processors, job.need() == job.estimate);
        self.running.push(Running { width, limit, end, ends_at_limit });
        self.times[index] = (now, end);
    }

    /// When the first in line can start at the latest, and how many processors are left then.
    fn reservation(&self, need: u32) -> (u64, u32) {
        let mut ends: Vec<(u64, u32)> =
            self.running.iter().map(|it| (it.limit, it.width)).collect();
        ends.sort_unstable();
        let mut free = self.free;
        let enough = ends.iter().find(|(_, width)| {
            free += width;
            free >= need
        });
        let at = enough.expect("it fits the machine").0;
        let by_then = ends.iter().filter(|(end, _)| *end <= at).map(|(_, width)| width);
        (at, self.free + by_then.sum::<u32>() - need)
    }

    fn pass(&mut self, now: u64) {
        while let Some(&first) = self.waiting.front()
            && self.jobs[first].processors <= self.free
        {
            self.waiting.pop_front();
            self.start(now, first);
        }
        let Some(&first) = self.waiting.front() else { return };
        let (at, mut spare) = self.reservation(self.jobs[first].processors);
        for index in self.waiting.clone().into_iter().skip(1) {
            let job = &self.jobs[index];
            let in_time = now + told(job) <= at;
            if job.processors <= self.free && (in_time || job.processors <= spare) {
                spare -= if in_time { 0 } else { job.processors };
                self.waiting.retain(|&other| other != index);
                self.start(now, index);
            }
        }
    }

    /// Ends those at `now` for which `of` is true: the first of them, or all at once.
    fn end(&mut self, now: u64, all: bool, of: impl Fn(&Running) -> bool) -> bool {
        let mut any = false;
        while (all || !any)
            && let Some(at) = self.running.iter().position(|it| it.end == now && of(it))
        {
            self.free += self.running.remove(at).width;
            any = true;
        }
        if any {
            self.pass(now);
        }
        any
    }
}

/// Starts and ends in ns.
fn easy(processors: u32, jobs: &[Job], order: Order) -> Vec<(u64, u64)> {
    let (waiting, running, times) = (VecDeque::new(), Vec::new(), vec![(0, 0); jobs.len()]);
    let mut easy = Easy { jobs, free: processors, waiting, running, times };
    let mut coming = jobs.iter().enumerate().peekable();
    loop {
        let submit = coming.peek().map_or(u64::MAX, |(_, job)| job.submit.0);
        let done = easy.running.iter().map(|it| it.end).min().unwrap_or(u64::MAX);
        let now = submit.min(done);
        if now == u64::MAX {
            return easy.times;
        }
        let limits_first = order != Order::OneByOne;
        if limits_first && easy.end(now, true, |it| it.ends_at_limit) {
            continue;
        }
        if submit == now && (done > now || order != Order::EndFirst) {
            if let Some((index, _)) = coming.next() {
                easy.waiting.push_back(index);
                easy.pass(now);
            }
        } else {
            easy.end(now, false, |_| true);
        }
    }
}

#[track_caller]
pub(crate) fn assert_backfilled(settings: &Settings, jobs: &[Job]) {
    let (finished, _) = simulate(settings, jobs.iter().copied());
    let found = finished.iter().map(|job| (job.start.0, job.end.0));
    let expected = easy(settings.machine.processors(), jobs, settings.order);
    for (index, (found, expected)) in found.zip(expected).enumerate() {
        assert_eq!(found, expected, "job {index}: {:?}", jobs[index]);
    }
    assert_eq!(finished.len(), jobs.len());
}

proptest! {
    #[test]
    fn who_passes_delays_nobody_who_was_promised_a_start(jobs in random_jobs(8)) {
        for order in ORDERS {
            assert_backfilled(&Settings { order, ..settings(8, "space:easy") }, &jobs);
        }
    }

    #[test]
    fn the_scheduler_like_slurms_is_easy_where_only_age_counts(jobs in random_jobs(8)) {
        for order in ORDERS {
            let priority = Multifactor { fair_share: 0.0, order, ..Multifactor::default() };
            let mut found = Vec::new();
            let mut in_order = InOrder::new(|job: &tutti_sim::Finished| {
                found.push((job.start.0, job.end.0));
                Ok(())
            });
            let workload = jobs.iter().map(|&job| Ok::<Job, Infallible>(job));
            run_multifactor(8, priority, workload, &mut in_order).unwrap();
            drop(in_order);
            prop_assert_eq!(found, easy(8, &jobs, order));
        }
    }
}
