//! A fixed set of jobs for the Cray T3D at LLNL, to time schedulers with: theirs was "a very heavy
//! load of interactive and NQS jobs typical of those executed at LLNL", which is not published.
//!
//! From the paper: that there were both kinds of jobs, and how long UNICOS MAX took for them: 3,397
//! s for the batch jobs alone; with the others, 3,347 s for the batch jobs and 3,553 s for the
//! interactive ones. So they offer less than the machine can do in that time, and not much less.
//!
//! Made up: everything else. Sixteen batch jobs are submitted at once, sized so that before they
//! take about as long as theirs did; and four people run eight interactive jobs each, one after the
//! other, without thinking. Nothing is sized by what came after.

use super::ns_of_seconds;
use super::t3d::{HOUR_S, T3dClass};
use crate::job::{Job, Status};

/// The first so many of [`t3d_benchmark`] are batch jobs.
pub const T3D_BENCHMARK_BATCH: usize = 16;

/// Processors and run time in seconds.
const BATCH: [(u32, f64); T3D_BENCHMARK_BATCH] = [
    (64, 800.0),
    (32, 1000.0),
    (128, 400.0),
    (64, 600.0),
    (32, 800.0),
    (16, 1200.0),
    (256, 200.0),
    (64, 1000.0),
    (128, 600.0),
    (32, 600.0),
    (8, 1600.0),
    (64, 400.0),
    (32, 1200.0),
    (16, 800.0),
    (128, 200.0),
    (64, 600.0),
];

/// What each of the people runs, in seconds, each beginning elsewhere in the list.
const INTERACTIVE: [f64; 8] = [60.0, 300.0, 120.0, 600.0, 30.0, 240.0, 180.0, 420.0];
/// Their processors.
const PEOPLE: [u32; 4] = [8, 16, 32, 32];

/// The jobs, with the queues of [`super::T3dMix`]. Those of one user follow one another.
#[must_use]
pub fn t3d_benchmark() -> Vec<Job> {
    let mut jobs: Vec<Job> = BATCH
        .into_iter()
        .map(|(processors, run_s)| job(T3dClass::Production, processors, run_s))
        .collect();
    for ((user, begin), processors) in (1..).zip((0..).step_by(2)).zip(PEOPLE) {
        for turn in 0..INTERACTIVE.len() {
            let run_s = INTERACTIVE[(begin + turn) % INTERACTIVE.len()];
            let before = (turn > 0).then_some(jobs.len() as u64);
            jobs.push(Job {
                user: Some(user),
                preceding_job: before,
                think_ns: before.map(|_| 0),
                ..job(T3dClass::Interactive, processors, run_s)
            });
        }
    }
    for (number, job) in (1..).zip(&mut jobs) {
        job.number = number;
        // Each batch job has a user of its own.
        job.user = job.user.or(Some(number + PEOPLE.len() as u64));
    }
    jobs
}

fn job(class: T3dClass, processors: u32, run_s: f64) -> Job {
    Job {
        submit_ns: Some(0),
        run_ns: Some(ns_of_seconds(run_s)),
        allocated_processors: Some(processors),
        requested_processors: Some(processors),
        requested_ns: Some(ns_of_seconds(HOUR_S)),
        status: Some(Status::Completed),
        queue: Some(class.queue()),
        ..Job::default()
    }
}

#[cfg(test)]
mod tests {
    use super::t3d_benchmark;

    #[test]
    fn it_is_work_for_less_than_their_time() {
        let jobs = t3d_benchmark();
        let work = |is_batch: bool| -> f64 {
            let of = jobs.iter().filter(|job| (job.queue == Some(1)) == is_batch);
            let machine = |it: &crate::Job| {
                it.run_ns.unwrap() as f64 / 1e9 * f64::from(it.allocated_processors.unwrap())
                    / 256.0
            };
            of.map(machine).sum()
        };
        assert!((2_000.0..3_397.0).contains(&work(true)), "{}", work(true));
        assert!(work(true) + work(false) < 3_553.0);
        assert_eq!(jobs.iter().filter(|job| job.preceding_job.is_none()).count(), 16 + 4);
        let before = |job: &crate::Job| job.preceding_job.is_none_or(|it| it + 1 == job.number);
        assert!(jobs.iter().all(before));
    }
}
