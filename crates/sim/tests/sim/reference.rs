//! A scheduler in twenty lines that knows nothing of rows and nodes, to compare with job by job.

use crate::scenario::{job, settings, simulate};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tutti_sim::{Job, Machine, Settings};
use tutti_types::Nanos;

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

pub(crate) fn random_jobs(most: u32) -> impl Strategy<Value = Vec<Job>> {
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

/// In milliseconds: a time limit can't be shorter than one. Some end before their limits.
fn job_of(submit_ms: u64, run_ms: u64, processors: u32) -> Job {
    let job = job(submit_ms * 1_000_000, run_ms * 1_000_000, processors);
    let spare_ms = if submit_ms.is_multiple_of(3) { 0 } else { 1 + submit_ms % 20 };
    Job { estimate: Nanos(job.run.0 + spare_ms * 1_000_000), ..job }
}

proptest! {
    #[test]
    fn in_one_row_who_comes_first_starts_first(jobs in random_jobs(8)) {
        assert_first_come_first_served(&settings(8, "space:fcfs"), &jobs);
    }

    #[test]
    fn turns_with_one_row_are_no_turns(jobs in random_jobs(8), nodes in 1u32..4) {
        let machine = Machine::new(nodes, 8 / nodes).unwrap();
        let jobs = || jobs.iter().copied().filter(|job| job.processors <= machine.processors());
        for discipline in ["fcfs", "easy", "sjbf", "conservative"] {
            let space = Settings { machine, ..settings(1, &format!("space:{discipline}")) };
            let mut gang = Settings { machine, ..settings(1, &format!("gang:{discipline}")) };
            gang.params.set("rows", 1).unwrap();
            prop_assert_eq!(simulate(&space, jobs()).0, simulate(&gang, jobs()).0, "{}", discipline);
        }
    }
}
