//! Jobs that an administrator moves in line, and what becomes of promises.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, JobState};
use tutti_types::limits::MOVED_MAX;
use tutti_types::{ClassName, ClusterTime, JobId, JobSpec, Nanos, UserId};

const ADA: u32 = 1;
const BOB: u32 = 2;
const ORDERS: [u64; 2] = [0, 1];
const DISCIPLINES: [&str; 4] = ["fcfs", "easy", "sjbf", "conservative"];

fn of(user: u32, processors: u32) -> JobSpec {
    let (time_limit, grace) = (Some(Nanos::from_secs(60)), Nanos::ZERO);
    JobSpec { owner: UserId(user), time_limit, grace, ..job(processors) }
}

/// One row on two processors.
fn line(order: u64, discipline: &str) -> Cluster {
    let mut params = params(&[("rows", 1), ("order", order)]);
    params.choose("discipline", discipline).unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 2);
    c
}

fn move_job(c: &mut Cluster, job: JobId, before: Option<JobId>) {
    c.event(Event::MoveJob { job, before });
}

fn waits(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, ClusterTime(c.now));
    view.is_some_and(|view| matches!(view.state, JobState::Queued { .. }))
}

fn in_line(c: &Cluster) -> Vec<JobId> {
    c.core.line().map(|(job, _)| job).collect()
}

/// Ends what runs, until nothing is left; in which order jobs ran.
fn play(c: &mut Cluster) -> Vec<JobId> {
    let mut order = Vec::new();
    loop {
        let jobs: Vec<JobId> = c.core.jobs(ClusterTime(c.now)).map(|view| view.id).collect();
        let Some(runs) = jobs.into_iter().find(|&job| !waits(c, job)) else { return order };
        order.push(runs);
        c.advance_ms(1000);
        c.finish(runs);
    }
}

#[test]
fn a_job_that_is_moved_first_is_the_next_to_start() {
    for (order, discipline) in ORDERS.into_iter().flat_map(|o| DISCIPLINES.map(|d| (o, d))) {
        let mut c = line(order, discipline);
        let runs = c.submit(of(ADA, 2));
        let [a, b, d] = [ADA, BOB, ADA].map(|user| c.submit(of(user, 2)));
        move_job(&mut c, d, None);
        assert_eq!(in_line(&c)[0], d, "{discipline}, order {order}");
        move_job(&mut c, b, None);
        assert_eq!(in_line(&c)[..2], [b, d], "the latest that is moved first is first");
        let ran = play(&mut c);
        assert_eq!(ran, [runs, b, d, a], "{discipline}, order {order}");
    }
}

#[test]
fn a_job_is_just_before_the_one_that_it_was_moved_before() {
    for (order, discipline) in ORDERS.into_iter().flat_map(|o| DISCIPLINES.map(|d| (o, d))) {
        let mut c = line(order, discipline);
        let runs = c.submit(of(ADA, 2));
        let [a, b, d, e] = [ADA, ADA, ADA, ADA].map(|user| c.submit(of(user, 2)));
        move_job(&mut c, e, Some(b));
        assert_eq!(in_line(&c), [a, e, b, d], "{discipline}, order {order}");
        // Before a job that was moved itself, and back behind it.
        move_job(&mut c, d, Some(e));
        assert_eq!(in_line(&c), [a, d, e, b]);
        move_job(&mut c, e, Some(d));
        assert_eq!(in_line(&c), [a, e, d, b]);
        // The place stays when that job has left the line.
        c.event(Event::Hold { job: b, by: tutti_core::HeldBy::Administrator });
        c.cancel(b, true);
        assert_eq!(in_line(&c), [a, e, d]);
        assert_eq!(play(&mut c), [runs, a, e, d], "{discipline}, order {order}");
    }
}

#[test]
fn a_moved_job_keeps_its_place_while_it_is_held() {
    for order in ORDERS {
        let mut c = line(order, "fcfs");
        let _runs = c.submit(of(ADA, 2));
        let [a, b] = [ADA, BOB].map(|user| c.submit(of(user, 2)));
        let held = |by| Event::Hold { job: b, by };
        c.event(held(tutti_core::HeldBy::Owner));
        move_job(&mut c, b, Some(a));
        c.event(Event::Release { job: b, by: tutti_core::HeldBy::Owner });
        assert_eq!(in_line(&c), [b, a]);
        // Another order of the line keeps it, too.
        let mut params = c.core.params().clone();
        params.set("order", 1 - order).unwrap();
        c.event(Event::SetParams { params });
        assert_eq!(in_line(&c), [b, a]);
        c.drain();
    }
}

#[test]
fn a_job_of_another_user_stands_in_the_lane_of_the_one_that_it_was_moved_before() {
    let mut c = line(0, "fcfs");
    let order = tutti_types::params::LineOrder::Users;
    assert_eq!(c.core.params().order(), order);
    let runs = c.submit(of(ADA, 2));
    let [a, b, x, y] = [ADA, ADA, BOB, BOB].map(|user| c.submit(of(user, 2)));
    assert_eq!(in_line(&c), [x, a, y, b], "Ada has used more");
    move_job(&mut c, y, Some(a));
    assert_eq!(in_line(&c), [x, y, a, b]);
    c.finish(runs);
    c.drain();
}

#[test]
fn promises_that_a_move_breaks_are_noted_until_the_job_starts() {
    for discipline in ["easy", "conservative"] {
        let mut c = line(0, discipline);
        let runs = c.submit(of(ADA, 2));
        let [promised, other] = [ADA, ADA].map(|user| c.submit(of(user, 2)));
        let before = c.core.promised_start(promised).expect(discipline);
        move_job(&mut c, other, None);
        let broken = c.core.overridden(promised).expect(discipline);
        assert_eq!((broken.by, broken.at), (other, before), "{discipline}");
        assert_eq!(c.core.overridden(other), None);
        assert_eq!(c.core.overridden_jobs().count(), 1);
        c.finish(runs);
        c.finish(other);
        assert_eq!(c.core.overridden(promised), None, "it has started");
        c.drain();
    }
}

#[test]
fn a_move_that_delays_no_promise_breaks_none() {
    for discipline in DISCIPLINES {
        let mut c = line(0, discipline);
        let _runs = c.submit(of(ADA, 2));
        let [first, second, third] = [ADA; 3].map(|user| c.submit(of(user, 2)));
        move_job(&mut c, first, None);
        assert_eq!(c.core.overridden_jobs().count(), 0, "{discipline}: it was the first");
        move_job(&mut c, third, Some(second));
        let broken: Vec<JobId> = c.core.overridden_jobs().map(|(job, _)| job).collect();
        let expected: &[JobId] = if discipline == "conservative" { &[second] } else { &[] };
        assert_eq!(broken, expected, "{discipline}");
        c.drain();
    }
}

#[test]
fn under_the_policies_without_a_line_a_moved_job_is_tried_first() {
    for policy in ["classes", "deadline"] {
        let mut params = params(&[]);
        params.choose("policy", policy).unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 2);
        let standby = |processors| JobSpec { class: ClassName::new("standby"), ..job(processors) };
        let runs = c.submit(standby(2));
        let [a, b, d] = [0; 3].map(|_| c.submit(standby(2)));
        move_job(&mut c, d, Some(b));
        move_job(&mut c, b, None);
        let mut order = Vec::new();
        c.finish(runs);
        while let Some(&next) = [a, b, d]
            .iter()
            .find(|&&it| c.core.job(it, ClusterTime(c.now)).is_some() && !waits(&c, it))
        {
            order.push(next);
            c.finish(next);
        }
        assert_eq!(order, [b, a, d].map(|it| it), "{policy}");
    }
}

#[test]
fn impossible_moves_change_nothing() {
    let mut c = line(0, "fcfs");
    let runs = c.submit(of(ADA, 2));
    let [a, b] = [ADA, ADA].map(|user| c.submit(of(user, 2)));
    for (job, before) in
        [(runs, None), (a, Some(runs)), (a, Some(a)), (JobId(99), None), (b, Some(JobId(99)))]
    {
        move_job(&mut c, job, before);
        assert_eq!(in_line(&c), [a, b]);
        assert_eq!(c.core.moved_jobs(), 0);
    }
    for _ in 0..MOVED_MAX {
        let job = c.submit(of(ADA, 2));
        move_job(&mut c, job, Some(b));
    }
    assert_eq!(c.core.moved_jobs(), MOVED_MAX);
    move_job(&mut c, b, None);
    assert!(!c.core.is_moved(b), "as many were moved as may be");
}

#[test]
fn a_start_that_is_only_expected_is_no_promise_that_a_move_could_break() {
    for discipline in ["easy", "conservative"] {
        let mut params = params(&[("rows", 2)]);
        params.choose("discipline", discipline).unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 2);
        let spec = |user| JobSpec { class: ClassName::new("production"), ..of(user, 2) };
        let _run = [ADA, BOB].map(|user| c.submit(spec(user)));
        let [_first, other] = [ADA, ADA].map(|user| c.submit(spec(user)));
        move_job(&mut c, other, None);
        assert_eq!(c.core.overridden_jobs().count(), 0, "{discipline}: turns may change");
        c.drain();
    }
}

/// Two jobs run on a processor each and one needs both; of those that may pass it, the job that is
/// moved is the last. Which of these starts when a processor is free.
fn passes(from: &str, to: &str, limits_s: [u64; 3], moved_before: usize) -> usize {
    let mut c = line(1, from);
    let [_stays, ends] = [0; 2].map(|_| c.submit(of(ADA, 1)));
    let _needs_both = c.submit(of(ADA, 2));
    let short = |seconds| JobSpec { time_limit: Some(Nanos::from_secs(seconds)), ..of(ADA, 1) };
    let jobs = limits_s.map(|seconds| c.submit(short(seconds)));
    move_job(&mut c, jobs[2], Some(jobs[moved_before]));
    let mut params = c.core.params().clone();
    params.choose("discipline", to).unwrap();
    c.event(Event::SetParams { params });
    c.finish(ends);
    let started = jobs.iter().position(|&job| !waits(&c, job)).expect("one passes");
    c.drain();
    started
}

#[test]
fn a_moved_job_has_its_place_under_each_discipline_that_comes_later() {
    assert_eq!(passes("sjbf", "easy", [9, 9, 9], 0), 2, "before the first that may pass");
    assert_eq!(passes("easy", "sjbf", [20, 9, 30], 0), 1, "before a long one, behind a short one");
    assert_eq!(passes("easy", "sjbf", [20, 9, 30], 1), 2, "before the short one");
}
