//! Orders, horizons, limits, and jobs that can't be run.

use crate::scenario::{S, ends, job, jobs, settings, simulate};
use std::convert::Infallible;
use std::io;
use tutti_sim::{Finished, Job, Observer, Order, Settings, SimError, Start, Summary, run};
use tutti_trace::model::T3dMix;
use tutti_types::{ClusterTime, JobId, Nanos};

/// What happened, in order.
#[derive(Default)]
struct Log(Vec<String>);

impl Observer for Log {
    fn submitted(&mut self, sequence: u64, job: &Job) -> io::Result<()> {
        self.0.push(format!("{sequence} comes at {}", job.submit.0));
        Ok(())
    }

    fn started(&mut self, start: Start<'_>) -> io::Result<()> {
        self.0.push(format!("starts at {}", start.at.0));
        Ok(())
    }

    fn ended(&mut self, _: JobId, job: &Finished) -> io::Result<()> {
        self.0.push(format!("{} ends at {}", job.sequence, job.end.0));
        Ok(())
    }
}

#[test]
fn at_one_moment_submissions_or_ends_come_first() {
    let happens = |order, estimate_s| {
        let settings = Settings { order, ..settings(2, "space:fcfs") };
        let first = Job { estimate: Nanos(estimate_s * S), ..job(0, 10 * S, 2) };
        let jobs = [first, job(10 * S, 5 * S, 2)];
        let mut log = Log::default();
        run(&settings, jobs.into_iter().map(Ok::<_, Infallible>), &mut log).unwrap();
        log.0[2..5].to_vec()
    };
    let [comes, ends, starts] =
        ["1 comes at 10000000000", "0 ends at 10000000000", "starts at 10000000000"];
    assert_eq!(happens(Order::SubmitFirst, 11), [comes, ends, starts]);
    assert_eq!(happens(Order::EndFirst, 11), [ends, comes, starts]);
    // A job that has reached its limit is gone, unless none is to be preferred.
    assert_eq!(happens(Order::SubmitFirst, 10), [ends, comes, starts]);
    assert_eq!(happens(Order::OneByOne, 10), [comes, ends, starts]);
    assert_eq!(happens(Order::OneByOne, 11), [comes, ends, starts]);
}

#[test]
fn who_has_reached_its_limit_is_gone_before_whoever_ends_early() {
    let early = Job { estimate: Nanos(20 * S), ..job(0, 10 * S, 1) };
    let jobs = [early, job(0, 10 * S, 1), job(10 * S, S, 2)];
    let mut log = Log::default();
    let workload = jobs.into_iter().map(Ok::<_, Infallible>);
    run(&settings(2, "space:fcfs"), workload, &mut log).unwrap();
    let expected = [
        "1 ends at 10000000000",
        "2 comes at 10000000000",
        "0 ends at 10000000000",
        "starts at 10000000000",
    ];
    assert_eq!(log.0[4..8], expected);
}

#[test]
fn the_horizon_ends_a_run_with_jobs_left() {
    let horizon = Some(ClusterTime(12 * S));
    let settings = Settings { horizon, ..settings(2, "space:fcfs") };
    let jobs = [job(2 * S, 5 * S, 2), job(2 * S, 10 * S, 1), job(20 * S, 5 * S, 2)];
    let (finished, summary) = simulate(&settings, jobs);
    assert_eq!(finished.len(), 1);
    assert_eq!((summary.submitted(), summary.left()), (2, 1));
    assert_eq!(summary.makespan_s(), 10.0);
    assert_eq!(summary.utilisation(), (10.0 + 5.0) / 20.0);
}

#[test]
fn a_job_is_ended_at_its_limit() {
    let limited = Job { estimate: Nanos(3 * S), ..job(0, 10 * S, 1) };
    let (finished, summary) = simulate(&settings(1, "space:fcfs"), [limited, job(0, S, 1)]);
    assert_eq!((finished[0].end.0, finished[1].end.0), (3 * S, 4 * S));
    assert_eq!(summary.results().at_limit, 1);
}

#[test]
fn a_job_that_is_too_wide_is_an_error_or_passed_over() {
    let strict = settings(4, "gang");
    let wide = Job { number: 17, line: 3, ..job(0, S, 5) };
    let jobs = || [job(0, S, 4), wide].into_iter().map(Ok::<_, Infallible>);
    let error = run(&strict, jobs(), &mut ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "job 17 (line 3) is declined: 5 processors were asked for and the machine has 4; ask for at \
         most 4, or leave out -c to let tasks share processors"
    );
    let lenient = Settings { skips_declined: true, ..strict };
    let mut summary = Summary::new(4, None);
    run(&lenient, jobs(), &mut summary).unwrap();
    assert_eq!((summary.submitted(), summary.declined(), summary.results().jobs), (1, 1, 1));
}

#[test]
fn an_error_of_the_workload_ends_the_run() {
    let jobs = [Ok(job(0, S, 1)), Err("line 2 is wrong")];
    let error = run(&settings(1, "gang"), jobs.into_iter(), &mut ()).unwrap_err();
    assert!(matches!(error, SimError::Workload("line 2 is wrong")));
}

#[test]
fn extreme_times_end() {
    let late = job(u64::MAX - 10, 5, 1);
    assert_eq!(ends(&settings(1, "gang"), &[late]), [u64::MAX - 5]);
    let long = [job(0, u64::MAX, 1)];
    let error = run(&settings(1, "gang"), long.into_iter().map(Ok::<_, Infallible>), &mut ());
    assert!(matches!(error, Err(SimError::Stuck { left: 1 })));
}

#[test]
fn jobs_that_a_limit_keeps_out_are_reported_as_not_run() {
    let mut limited = settings(8, "classes");
    limited.params.set("job_limit", 4).unwrap();
    let jobs = [job(0, S, 2), job(1, S, 5), job(2, S, 8), job(3, S, 4)];
    let mut summary = Summary::new(8, None);
    run(&limited, jobs.into_iter().map(Ok::<_, Infallible>), &mut summary).unwrap();
    assert_eq!((summary.submitted(), summary.results().jobs), (4, 2));
    let not_run: Vec<_> = summary.not_run().iter().collect();
    let why = "a job may have at most 4 processors now (job_limit)".to_owned();
    assert_eq!(not_run, [(&why, &2)]);
}

/// Jobs of the T3D are of up to 256 processors, and large ones may have 128 together.
#[test]
fn the_week_of_the_t3d_goes_on_without_jobs_that_large_limit_keeps_out() {
    const JOBS: usize = 400;
    let mut limited = settings(T3dMix::PROCESSORS, "classes");
    limited.params.set("large_job", 64).unwrap();
    limited.params.set("large_limit", 128).unwrap();
    let of_week: Vec<Job> = jobs(T3dMix::new(1).take(JOBS)).collect();
    let too_large = of_week.iter().filter(|job| job.processors > 128).count();
    let large = of_week.iter().filter(|job| (64..=128).contains(&job.processors)).count();
    assert!(too_large > 0 && large > 1, "the model has {too_large} and {large} such jobs");
    let mut summary = Summary::new(T3dMix::PROCESSORS, None);
    run(&limited, of_week.into_iter().map(Ok::<_, Infallible>), &mut summary).unwrap();
    assert_eq!(summary.submitted(), JOBS as u64);
    assert_eq!(summary.results().jobs, (JOBS - too_large) as u64);
    let not_run: Vec<_> = summary.not_run().iter().collect();
    let [(why, count)] = *not_run else { panic!("{not_run:?}") };
    assert_eq!(*count, too_large as u64);
    assert!(why.contains("(large_limit)"), "{why}");
}
