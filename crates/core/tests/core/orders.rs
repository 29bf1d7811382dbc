//! Orders about jobs: hold, release, another class or time limit.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, HeldBy, JobState, SubmitOptions, WaitReason};
use tutti_types::{
    BankAccount, ClassName, ClusterTime, JobId, JobSpec, Nanos, ProcessorTime, Refusal,
};

const OWNER: HeldBy = HeldBy::Owner;
const ADMINISTRATOR: HeldBy = HeldBy::Administrator;

/// One row on two processors: the second job waits.
fn line(queue: &str) -> Cluster {
    let mut params = params(&[("rows", 1)]);
    params.choose("discipline", queue).unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 2);
    c
}

fn why(c: &Cluster, job: JobId) -> Option<WaitReason> {
    match c.core.job(job, ClusterTime(c.now))?.state {
        JobState::Queued { why, .. } => Some(why),
        JobState::Running { .. } | JobState::Ending { .. } => None,
    }
}

fn class(c: &Cluster, job: JobId) -> String {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    let former = view.former_class.map_or(String::new(), |class| format!(", was {class}"));
    format!("{}{former}", view.spec.class)
}

fn set_class(c: &mut Cluster, job: JobId, class: &str) {
    c.event(Event::SetJobClass { job, class: ClassName::new(class) });
}

#[test]
fn a_held_job_lets_others_pass_and_has_its_place_again_when_released() {
    for queue in ["fcfs", "easy", "sjbf", "conservative"] {
        let mut c = line(queue);
        let [runs, held, behind, last] = [0; 4].map(|_| c.submit(job(2)));
        c.event(Event::Hold { job: held, by: OWNER });
        assert_eq!(why(&c, held), Some(WaitReason::Held { by: OWNER }));
        c.finish(runs);
        assert_eq!(why(&c, behind), None, "{queue}: the next one runs");
        c.event(Event::Release { job: held, by: OWNER });
        assert_ne!(why(&c, held), Some(WaitReason::Held { by: OWNER }));
        c.finish(behind);
        assert_eq!(why(&c, held), None, "{queue}: it comes before the one that arrived later");
        assert!(why(&c, last).is_some());
        // A job that runs can't be held.
        c.event(Event::Hold { job: held, by: ADMINISTRATOR });
        assert_eq!(c.core.held_by(held), None);
        c.drain();
    }
}

#[test]
fn the_owner_cannot_release_what_an_administrator_holds() {
    let mut c = line("fcfs");
    let [_runs, held] = [0; 2].map(|_| c.submit(job(2)));
    c.event(Event::Hold { job: held, by: ADMINISTRATOR });
    c.event(Event::Hold { job: held, by: OWNER });
    c.event(Event::Release { job: held, by: OWNER });
    assert_eq!(c.core.held_by(held), Some(ADMINISTRATOR));
    c.event(Event::Release { job: held, by: ADMINISTRATOR });
    assert_eq!(c.core.held_by(held), None);
    // An administrator's hold replaces the owner's, and may release that.
    c.event(Event::Hold { job: held, by: OWNER });
    c.event(Event::Hold { job: held, by: ADMINISTRATOR });
    assert_eq!(c.core.held_by(held), Some(ADMINISTRATOR));
    c.cancel(held, false);
    assert_eq!(c.core.held_by(held), None, "it has ended");
    c.drain();
}

#[test]
fn a_job_is_in_line_when_neither_held_nor_suspended() {
    let mut c = line("fcfs");
    let [runs, waits] = [0; 2].map(|_| c.submit(job(2)));
    c.event(Event::Hold { job: waits, by: OWNER });
    c.event(Event::Suspend { job: waits });
    c.finish(runs);
    c.event(Event::Release { job: waits, by: OWNER });
    assert_eq!(why(&c, waits), Some(WaitReason::Suspended));
    c.event(Event::Hold { job: waits, by: OWNER });
    c.event(Event::Resume { job: waits });
    assert_eq!(why(&c, waits), Some(WaitReason::Held { by: OWNER }));
    c.event(Event::Release { job: waits, by: OWNER });
    assert_eq!(why(&c, waits), None);
    c.drain();
}

#[test]
fn a_job_may_be_held_from_its_submission_on_but_not_with_a_deadline() {
    let mut c = line("fcfs");
    let options = SubmitOptions { hold: Some(OWNER), ..SubmitOptions::default() };
    let held = |spec| |request| Event::submit(request, spec, options.clone());
    let waits = c.submits(held(job(2))).unwrap();
    assert_eq!(why(&c, waits), Some(WaitReason::Held { by: OWNER }));
    let other = c.submit(job(2));
    assert_eq!(why(&c, other), None);
    let hasty = JobSpec { deadline: Some(Nanos::from_secs(9)), ..job(1) };
    assert_eq!(c.submits(held(hasty)), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::HeldWithDeadline));
    c.finish(other);
    c.event(Event::Release { job: waits, by: OWNER });
    assert_eq!(why(&c, waits), None);
    c.drain();
}

#[test]
fn a_promised_deadline_of_a_job_that_is_held_is_at_risk() {
    let mut params = params(&[]);
    params.choose("policy", "deadline").unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 2);
    let in_time = |s| JobSpec {
        time_limit: Some(Nanos::from_secs(1)),
        deadline: Some(Nanos::from_secs(s)),
        grace: Nanos::ZERO,
        ..job(2)
    };
    let [runs, waits] = [10, 20].map(|s| c.submit(in_time(s)));
    assert!(why(&c, waits).is_some() && c.core.at_risk(waits).is_none());
    c.event(Event::Hold { job: waits, by: OWNER });
    assert!(c.core.at_risk(waits).is_some());
    c.event(Event::Release { job: waits, by: OWNER });
    assert!(c.core.at_risk(waits).is_none(), "it is promised again");
    c.finish(runs);
    c.drain();
}

#[test]
fn a_new_class_counts_at_once_for_a_job_that_runs() {
    let mut params = params(&[("quantum", 100_000_000)]);
    params.choose("policy", "gang").unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 2);
    let spec = c.core.classes()[&ClassName::new("interactive")].with("share", 7500).unwrap();
    c.event(Event::SetClass { class: ClassName::new("interactive"), spec });
    let [first, second] = [0; 2].map(|_| c.submit(job(2)));
    c.advance_ms(800);
    let served =
        |c: &Cluster, job| c.core.job(job, ClusterTime(c.now)).unwrap().service.0 / 1_000_000;
    assert_eq!((served(&c, first), served(&c, second)), (400, 400));
    set_class(&mut c, second, "interactive");
    assert_eq!(class(&c, second), "interactive");
    c.advance_ms(8_000);
    assert!(served(&c, second) > 400 + 5_500, "{}", served(&c, second));
    set_class(&mut c, first, "no-such-class");
    assert_eq!(class(&c, first), "production");
    c.drain();
}

#[test]
fn a_new_class_of_a_job_that_counts_as_standby_is_what_it_goes_back_to() {
    let mut c = line("fcfs");
    let account = BankAccount::User(job(1).owner);
    let allow = |c: &mut Cluster, seconds| {
        let allowance = Some(ProcessorTime::of_one(Nanos::from_secs(seconds)));
        c.event(Event::SetBank { account, allowance });
    };
    let [runs, waits] = [0; 2].map(|_| c.submit(job(2)));
    allow(&mut c, 0);
    assert_eq!([runs, waits].map(|it| class(&c, it)), ["standby, was production"; 2]);
    set_class(&mut c, runs, "interactive");
    set_class(&mut c, waits, "standby");
    assert_eq!(class(&c, runs), "standby, was interactive");
    assert_eq!(class(&c, waits), "standby");
    allow(&mut c, 1000);
    assert_eq!([runs, waits].map(|it| class(&c, it)), ["interactive", "standby"]);
    c.drain();
}

fn set_limit(c: &mut Cluster, job: JobId, seconds: Option<u64>) {
    c.event(Event::SetTimeLimit { job, limit: seconds.map(Nanos::from_secs) });
}

fn limited(seconds: u64) -> JobSpec {
    JobSpec { time_limit: Some(Nanos::from_secs(seconds)), ..job(2) }
}

#[test]
fn a_running_job_ends_by_the_limit_that_it_has_now() {
    for (before, now) in [(None, Some(30)), (Some(20), Some(30)), (Some(50), Some(30))] {
        let mut c = line("easy");
        let runs = c.submit(JobSpec { time_limit: before.map(Nanos::from_secs), ..job(2) });
        c.advance_ms(10_000);
        set_limit(&mut c, runs, now);
        c.advance_ms(19_000);
        let state = |c: &Cluster| c.core.job(runs, ClusterTime(c.now)).map(|view| view.state);
        assert!(matches!(state(&c), Some(JobState::Running { .. })), "{before:?}: {:?}", state(&c));
        c.advance_ms(2_000);
        assert!(matches!(state(&c), Some(JobState::Ending { .. })), "{before:?}: {:?}", state(&c));
        // What ends keeps its limit.
        assert!(c.core.may_change_limit(runs).is_err());
        set_limit(&mut c, runs, None);
        assert!(matches!(state(&c), Some(JobState::Ending { .. })));
        c.drain();
    }
}

#[test]
fn a_waiting_job_is_planned_by_the_limit_that_it_has_now() {
    let mut c = line("sjbf");
    let runs = c.submit(limited(100));
    let [long, short] = [90, 80].map(|seconds| c.submit(limited(seconds)));
    set_limit(&mut c, long, Some(10));
    c.finish(runs);
    assert_eq!(why(&c, long), None, "it is the shorter one now");
    assert!(why(&c, short).is_some());
    c.finish(long);
    c.drain();
}

#[test]
fn a_longer_limit_delays_promised_starts_and_a_shorter_one_brings_them_forward() {
    let mut c = line("conservative");
    let runs = c.submit(limited(100));
    let waits = c.submit(limited(100));
    let promised =
        |c: &Cluster| c.core.promised_start(waits).map(|at| at.0.div_ceil(1_000_000_000));
    let first = promised(&c).unwrap();
    set_limit(&mut c, runs, Some(300));
    assert!(promised(&c).unwrap() >= first + 190, "{first}, {:?}", promised(&c));
    let broken = c.core.overridden(waits).expect("its promise is broken");
    assert_eq!(broken.by, runs);
    set_limit(&mut c, runs, Some(20));
    assert!(promised(&c).unwrap() <= first - 70, "{first}, {:?}", promised(&c));
    c.finish(runs);
    assert_eq!(why(&c, waits), None);
    c.drain();
}
