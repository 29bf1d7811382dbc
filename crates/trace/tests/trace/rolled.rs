//! Jobs that were rolled out and in: a line that sums up, then the bursts.

use crate::{line, message, read};
use tutti_trace::{Job, Order, ReadOptions, Reader, RolledJobs, Tolerance, Tolerated};

/// Job 2 ran in three bursts; job 3 did not, and has the next submit time.
fn log() -> String {
    [
        line(1, 0, 9, 1),
        line(2, 5, 60, 0),
        line(2, -1, 10, 2),
        line(2, -1, 20, 2),
        line(2, -1, 30, 4),
        line(3, 7, 8, 1),
    ]
    .concat()
}

/// Number, submit time in seconds and run time in seconds of each job.
fn told(jobs: &[Job]) -> Vec<(u64, Option<u64>, Option<u64>)> {
    let s = |ns: Option<u64>| ns.map(|ns| ns / 1_000_000_000);
    jobs.iter().map(|job| (job.number, s(job.submit_ns), s(job.run_ns))).collect()
}

fn rolled(rolled: RolledJobs) -> ReadOptions {
    ReadOptions { rolled, ..ReadOptions::default() }
}

#[test]
fn as_one_job() {
    let text = log();
    let mut reader = Reader::new("t", text.as_bytes(), ReadOptions::default()).unwrap();
    let jobs: Vec<Job> = reader.by_ref().map(Result::unwrap).collect();
    let expected = [(1, Some(0), Some(9)), (2, Some(5), Some(60)), (3, Some(7), Some(8))];
    assert_eq!(told(&jobs), expected);
    assert_eq!(reader.bursts_left_out(), 3);
}

#[test]
fn as_bursts_of_which_the_first_has_the_submit_time() {
    let expected = [
        (1, Some(0), Some(9)),
        (2, Some(5), Some(10)),
        (2, None, Some(20)),
        (2, None, Some(30)),
        (3, Some(7), Some(8)),
    ];
    let jobs = read(log().as_bytes(), rolled(RolledJobs::Bursts)).unwrap();
    assert_eq!(told(&jobs), expected);
}

#[test]
fn bursts_stay_together_when_sorted() {
    let late_first = [line(9, 100, 1, 1), log()].concat();
    let options = ReadOptions { order: Order::Sorted, ..rolled(RolledJobs::Bursts) };
    let numbers: Vec<u64> =
        read(late_first.as_bytes(), options).unwrap().iter().map(|job| job.number).collect();
    assert_eq!(numbers, [1, 2, 2, 2, 3, 9]);
}

#[test]
fn a_burst_without_its_job() {
    let text = [line(1, 0, 9, 1), line(2, 5, 10, 2)].concat();
    assert_eq!(
        message(text.as_bytes(), ReadOptions::default()),
        "t, line 2: a burst of job 2 without the line that sums the job up (a reader of bursts \
         can take it); correct the line, or read the file leniently"
    );
    assert_eq!(read(text.as_bytes(), rolled(RolledJobs::Bursts)).unwrap().len(), 2);
}

#[test]
fn a_number_that_repeats_otherwise() {
    let text = [line(1, 0, 9, 1), line(1, 5, 10, 1)].concat();
    assert_eq!(
        message(text.as_bytes(), ReadOptions::default()),
        "t, line 2: job 1 again (only bursts, with status 2, 3 or 4, repeat the number); correct the \
         line, or read the file leniently"
    );
    let lenient = ReadOptions { tolerance: Tolerance::Lenient, ..ReadOptions::default() };
    let mut reader = Reader::new("t", text.as_bytes(), lenient).unwrap();
    assert_eq!(reader.by_ref().count(), 2);
    assert_eq!(reader.tolerated().count(Tolerated::Repeated), 1);
}
