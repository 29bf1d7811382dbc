//! A scheduler in twenty lines that knows nothing of rows and nodes, to compare with job by job.

use crate::scenario::{job, settings, simulate};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tutti_sim::{Job, Settings};

/// Starts and ends in ns under first come first served: a job starts when those before it have
/// started and enough processors are free.
pub(crate) fn first_come_first_served(processors: u32, jobs: &[Job]) -> Vec<(u64, u64)> {
    let mut free = processors;
    let mut now = 0;
    let mut running: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut times = Vec::new();
    for job in jobs {
        now = now.max(job.submit.0);
        while let Some(&Reverse((end, width))) = running.peek()
            && (end <= now || free < job.processors)
        {
            running.pop();
            free += width;
            now = now.max(end);
        }
        free -= job.processors;
        let end = now + job.need().0;
        running.push(Reverse((end, job.processors)));
        times.push((now, end));
    }
    times
}

#[track_caller]
pub(crate) fn assert_first_come_first_served(settings: &Settings, jobs: &[Job]) {
    let (finished, _) = simulate(settings, jobs.iter().copied());
    let found: Vec<(u64, u64)> = finished.iter().map(|job| (job.start.0, job.end.0)).collect();
    let expected = first_come_first_served(settings.machine.processors(), jobs);
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "job {index}: {:?}", jobs[index]);
    }
}

fn random_jobs(most: u32) -> impl Strategy<Value = Vec<Job>> {
    let job = (0u64..40, 0u64..60, 1..=most).prop_map(|(gap, run, width)| (gap, run, width));
    prop::collection::vec(job, 1..80).prop_map(|jobs| {
        let mut submit = 0;
        let spaced = jobs.into_iter().map(|(gap, run, width)| {
            submit += gap;
            job_of(submit, run, width)
        });
        spaced.collect()
    })
}

/// In milliseconds: a time limit can't be shorter than one.
fn job_of(submit_ms: u64, run_ms: u64, processors: u32) -> Job {
    job(submit_ms * 1_000_000, run_ms * 1_000_000, processors)
}

proptest! {
    #[test]
    fn in_one_row_who_comes_first_starts_first(jobs in random_jobs(8)) {
        assert_first_come_first_served(&settings(8, "space:fcfs"), &jobs);
    }
}
