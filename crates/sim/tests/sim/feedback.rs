//! Jobs that wait for others before they are submitted.

use crate::scenario::{S, job, settings, simulate};
use std::convert::Infallible;
use tutti_sim::{Feedback, Finished, Follows, Job, Observer, Settings, SimError, Summary, run};
use tutti_trace::model::{Estimates, Poisson, PoissonModel, Service, Sizes};
use tutti_types::Nanos;

fn closed(processors: u32, policy: &str) -> Settings {
    Settings { feedback: Some(Feedback::default()), ..settings(processors, policy) }
}

/// A job by number, submit time and run time in seconds, with what it follows and the think time.
fn user(number: u64, submit_s: u64, run_s: u64, follows: Option<(u64, u64)>) -> Job {
    let follows = follows.map(|(job, think_s)| Follows { job, think: Nanos(think_s * S) });
    Job { number, follows, ..job(submit_s * S, run_s * S, 1) }
}

/// Number, submit time and end in seconds, in the order of submission.
fn told(settings: &Settings, jobs: &[Job]) -> Vec<(u64, u64, u64)> {
    let (finished, _) = simulate(settings, jobs.iter().copied());
    let seconds = |job: &Finished| (job.job.number, job.job.submit.0 / S, job.end.0 / S);
    finished.iter().map(seconds).collect()
}

#[test]
fn who_waits_for_a_result_hands_in_later_where_it_comes_later() {
    let jobs = [
        user(1, 0, 100, None),
        user(2, 10, 30, None),
        user(3, 40, 5, Some((2, 20))),
        user(4, 500, 1, Some((3, 0))),
        user(5, 501, 1, Some((4, 3))),
    ];
    // Job 2 waits for job 1 and ends at 130; 20 s later comes job 3, at its own time job 4.
    let one = [(1, 0, 100), (2, 10, 130), (3, 150, 155), (4, 500, 501), (5, 504, 505)];
    assert_eq!(told(&closed(1, "space:fcfs"), &jobs), one);
    let two = [(1, 0, 100), (2, 10, 40), (3, 60, 65), (4, 500, 501), (5, 504, 505)];
    assert_eq!(told(&closed(2, "space:fcfs"), &jobs), two);
    let open = [(1, 0, 100), (2, 10, 130), (3, 40, 135), (4, 500, 501), (5, 501, 502)];
    assert_eq!(told(&settings(1, "space:fcfs"), &jobs), open);
}

#[test]
fn hours_hold_for_those_who_had_to_wait() {
    let hour = 3600;
    let mut settings = closed(1, "space:fcfs");
    settings.calendar = vec![(tutti_types::ClusterTime(0), Nanos(0))];
    let hours = Some("mon-fri 08:00-18:00".parse().unwrap());
    settings.feedback = Some(Feedback { hours, lets_alone: false });
    let jobs = [
        user(1, 3 * hour, 2 * hour, None),
        user(2, 4 * hour, hour, Some((1, 0))),
        user(3, 5 * hour, 9 * hour, Some((2, 0))),
        user(4, 6 * hour, hour, Some((3, 0))),
    ];
    let ends =
        told(&settings, &jobs).iter().map(|it| (it.1 / hour, it.2 / hour)).collect::<Vec<_>>();
    assert_eq!(ends, [(3, 5), (8, 9), (9, 18), (32, 33)]);
}

#[test]
fn a_job_that_is_declined_keeps_nobody_waiting() {
    let wide = Job { processors: 2, ..user(1, 0, 9, None) };
    let jobs = [wide, user(2, 1, 5, Some((1, 3)))];
    let settings = Settings { skips_declined: true, ..closed(1, "space:fcfs") };
    assert_eq!(told(&settings, &jobs), [(2, 3, 8)]);
}

#[test]
fn to_follow_what_is_not_above_is_an_error_unless_it_is_tolerated() {
    struct Alone(Vec<u64>);
    impl Observer for Alone {
        fn let_alone(&mut self, job: &Job) {
            self.0.push(job.number);
        }
    }
    let jobs =
        [user(1, 0, 1, Some((1, 9))), user(2, 5, 1, Some((7, 9))), user(3, 6, 1, Some((2, 9)))];
    let workload = || jobs.iter().copied().map(Ok::<_, Infallible>);
    let strict = closed(1, "space:fcfs");
    let error = run(&strict, workload(), &mut ()).unwrap_err();
    assert!(matches!(error, SimError::Preceding { number: 1, preceding: 1, .. }), "{error}");
    let lenient = Feedback { hours: None, lets_alone: true };
    let lenient = Settings { feedback: Some(lenient), ..strict };
    let mut alone = Alone(Vec::new());
    run(&lenient, workload(), &mut alone).unwrap();
    assert_eq!(alone.0, [1, 2]);
    assert_eq!(told(&lenient, &jobs), [(1, 0, 1), (2, 5, 6), (3, 15, 16)]);
}

/// Exponential run times and gaps.
fn exponential(mean_s: f64, seed: u64) -> impl Iterator<Item = (u64, u64)> {
    let model = PoissonModel {
        machine_processors: 1,
        arrival_mean_s: mean_s,
        service: Service::Exponential { mean_s },
        sizes: Sizes::Fixed(1),
        estimates: Estimates::Exact,
    };
    let mut before = 0;
    Poisson::new(model, seed).unwrap().map(move |record| {
        let submit = record.submit_ns.unwrap();
        (record.run_ns.unwrap(), submit - std::mem::replace(&mut before, submit))
    })
}

#[test]
fn without_preceding_jobs_nothing_changes() {
    let mut submit = 0;
    let times = (1..).zip([1, 2, 3].into_iter().cycle()).zip(exponential(10.0, 5));
    let of = |((number, processors), (run, gap))| {
        submit += gap;
        Job { number, ..job(submit, run, processors) }
    };
    let jobs: Vec<Job> = times.map(of).take(2000).collect();
    for policy in ["space:easy", "gang", "classes"] {
        let open = simulate(&settings(4, policy), jobs.iter().copied()).0;
        assert_eq!(simulate(&closed(4, policy), jobs.iter().copied()).0, open, "{policy}");
    }
}

/// Three users of one processor, with think times twice as long as their jobs' run times, both
/// exponential: the processor is idle with probability 1 / sum of 3! / (3 - n)! / 2^n over n from 0
/// to 3, or 4/19.
#[test]
fn users_in_a_loop_keep_a_processor_as_busy_as_theory_says() {
    const USERS: u64 = 3;
    let times: Vec<(u64, u64)> = exponential(60.0, 2).take(60_000).collect();
    let jobs = (1..).zip(times).map(|(number, (run, gap)): (u64, (u64, u64))| {
        let follows = number.checked_sub(USERS).filter(|&it| it > 0);
        let follows = follows.map(|job| Follows { job, think: Nanos(2 * gap) });
        Job { number, follows, ..job(0, run, 1) }
    });
    for policy in ["space:fcfs", "gang"] {
        let summary: Summary = simulate(&closed(1, policy), jobs.clone()).1;
        let idle = 1.0 - summary.utilisation();
        assert!((idle - 4.0 / 19.0).abs() < 0.01, "{policy}: {idle}");
    }
}
