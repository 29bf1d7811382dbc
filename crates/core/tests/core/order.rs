//! The order of the line: class priority, users in turn, arrival; and what stays as it was
//! promised.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, JobState, WaitReason};
use tutti_types::{BankAccount, ClassName, ClusterTime, JobId, JobSpec, Nanos, TaskStatus, UserId};

const ADA: u32 = 1;
const BOB: u32 = 2;
const CAROL: u32 = 3;
const SECOND: u64 = 1_000_000_000;

fn of(user: u32, processors: u32) -> JobSpec {
    JobSpec { owner: UserId(user), ..job(processors) }
}

fn limited(user: u32, processors: u32, seconds: u64) -> JobSpec {
    JobSpec {
        time_limit: Some(Nanos::from_secs(seconds)),
        grace: Nanos::ZERO,
        ..of(user, processors)
    }
}

/// A node of so many processors, each job to its end.
fn space(processors: u32, discipline: u64, more: &[(&str, u64)]) -> Cluster {
    let mut c =
        Cluster::new(params(&[&[("policy", 1), ("discipline", discipline)], more].concat()));
    c.join(0, processors);
    c
}

fn runs(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    !matches!(view.state, JobState::Queued { .. })
}

fn why(c: &Cluster, job: JobId) -> WaitReason {
    match c.core.job(job, ClusterTime(c.now)).unwrap().state {
        JobState::Queued { why, .. } => why,
        state => panic!("job {job} is {state:?}"),
    }
}

/// Ends the job that runs, until none is left; in which order jobs ran.
fn play(c: &mut Cluster, lasts: u64) -> Vec<JobId> {
    let mut order = Vec::new();
    loop {
        let jobs: Vec<JobId> = c.core.jobs(ClusterTime(c.now)).map(|view| view.id).collect();
        let Some(running) = jobs.into_iter().find(|&job| runs(c, job)) else { return order };
        order.push(running);
        c.advance(lasts);
        c.end_job(running, TaskStatus::Exited(0));
    }
}

fn users(c: &Cluster, order: &[JobId], jobs: &[(JobId, u32)]) -> Vec<u32> {
    assert!(c.core.job_count() == 0);
    order.iter().map(|job| jobs.iter().find(|(id, _)| id == job).unwrap().1).collect()
}

fn submit_all(c: &mut Cluster, users: &[u32]) -> Vec<(JobId, u32)> {
    users.iter().map(|&user| (c.submit(of(user, 1)), user)).collect()
}

#[test]
fn users_take_turns() {
    let mut c = space(1, 0, &[]);
    let jobs = submit_all(&mut c, &[ADA, ADA, ADA, ADA, BOB, BOB, CAROL]);
    let order = play(&mut c, 10 * SECOND);
    assert_eq!(users(&c, &order, &jobs), [ADA, BOB, CAROL, ADA, BOB, ADA, ADA]);
}

#[test]
fn jobs_that_start_at_one_moment_alternate_between_users() {
    let mut c = space(4, 0, &[]);
    let all = c.submit(of(CAROL, 4));
    let jobs = submit_all(&mut c, &[ADA, ADA, ADA, ADA, BOB, BOB]);
    c.finish(all);
    let running: Vec<u32> =
        jobs.iter().filter(|&&(job, _)| runs(&c, job)).map(|&(_, user)| user).collect();
    assert_eq!(running, [ADA, ADA, BOB, BOB]);
}

#[test]
fn a_user_with_a_weight_gets_that_much_more() {
    let mut c = space(1, 0, &[("half_life", u64::MAX)]);
    let account = BankAccount::User(UserId(BOB));
    c.event(Event::SetWeight { account, weight: Some(3) });
    let jobs = submit_all(&mut c, &[[ADA; 12], [BOB; 12]].concat());
    let order = play(&mut c, 10 * SECOND);
    let of_bob = users(&c, &order, &jobs)[..12].iter().filter(|&&user| user == BOB).count();
    assert_eq!(of_bob, 9, "three of four");
}

#[test]
fn use_counts_less_once_it_is_long_ago() {
    let hour = 3600 * SECOND;
    let mut c = space(1, 0, &[("half_life", hour)]);
    let long = c.submit(of(ADA, 1));
    c.advance(4 * hour);
    c.finish(long);
    // Ada's four hours are as little as a second after half a day; Bob's half hour is not.
    c.advance(14 * hour);
    let short = c.submit(of(BOB, 1));
    c.advance(hour / 2);
    let jobs = submit_all(&mut c, &[BOB, ADA]);
    c.finish(short);
    assert!(runs(&c, jobs[1].0), "Ada's is next");
}

#[test]
fn a_class_of_higher_priority_comes_first_under_every_policy_with_a_line() {
    for policy in [0, 1] {
        let mut c = Cluster::new(params(&[("policy", policy), ("rows", 1)]));
        c.join(0, 1);
        let first = c.submit(of(ADA, 1));
        let later = c.submit(of(BOB, 1));
        let quick = c.submit(JobSpec { class: ClassName::new("interactive"), ..of(ADA, 1) });
        c.advance(SECOND);
        c.finish(first);
        assert!(runs(&c, quick) && !runs(&c, later));
        // A rule of a class may change while jobs wait.
        let (class, spec) =
            (ClassName::new("production"), c.core.classes()[&ClassName::new("production")]);
        let another = c.submit(JobSpec { class: ClassName::new("interactive"), ..of(CAROL, 1) });
        c.event(Event::SetClass { class, spec: spec.with("priority", 9).unwrap() });
        c.finish(quick);
        assert!(runs(&c, later) && !runs(&c, another));
    }
}

#[test]
fn the_order_changes_while_jobs_wait() {
    let mut c = space(1, 0, &[("order", 1)]);
    let first = c.submit(of(ADA, 1));
    let jobs = submit_all(&mut c, &[ADA, ADA, BOB]);
    c.advance(SECOND);
    c.finish(first);
    assert!(runs(&c, jobs[0].0), "by arrival");
    let mut params = c.core.params().clone();
    params.choose("order", "users").unwrap();
    c.event(Event::SetParams { params: params.clone() });
    c.advance(SECOND);
    c.finish(jobs[0].0);
    assert!(runs(&c, jobs[2].0), "Bob has used nothing since");
    params.choose("order", "arrival").unwrap();
    c.event(Event::SetParams { params });
    let last = c.submit(of(CAROL, 1));
    c.finish(jobs[2].0);
    assert!(runs(&c, jobs[1].0) && !runs(&c, last));
}

#[test]
fn a_promise_of_easy_is_kept_whatever_users_use() {
    for discipline in [1, 2] {
        let mut c = space(4, discipline, &[]);
        let running = c.submit(limited(ADA, 2, 100));
        let wide = c.submit(limited(ADA, 4, 100));
        assert!(matches!(why(&c, wide), WaitReason::Reserved { .. }));
        c.advance(10 * SECOND);
        // Bob has used nothing, and Bob's jobs could start now; they would delay the promised one.
        let delays = c.submit(limited(BOB, 2, 1000));
        let other = c.submit(limited(BOB, 4, 10));
        let short = c.submit(limited(BOB, 2, 20));
        assert!(!runs(&c, delays) && runs(&c, short), "only what delays nothing passes");
        assert!(matches!(why(&c, delays), WaitReason::Delays { job, .. } if job == wide));
        c.advance(30 * SECOND);
        c.finish(short);
        c.advance(59 * SECOND);
        c.finish(running);
        assert!(runs(&c, wide) && !runs(&c, other));
    }
}

#[test]
fn a_held_job_loses_the_first_place() {
    let mut c = space(4, 1, &[]);
    c.submit(limited(ADA, 2, 100));
    let wide = c.submit(limited(ADA, 4, 100));
    c.advance(SECOND);
    let other = c.submit(limited(BOB, 3, 100));
    assert!(matches!(why(&c, other), WaitReason::Delays { .. }));
    c.event(Event::Suspend { job: wide });
    assert!(matches!(why(&c, other), WaitReason::Reserved { .. }));
    c.event(Event::Resume { job: wide });
    assert!(matches!(why(&c, wide), WaitReason::Delays { job, .. } if job == other));
}

#[test]
fn a_reservation_is_not_moved_back_by_a_user_with_less_use() {
    let mut c = space(2, 3, &[]);
    let running = c.submit(limited(ADA, 2, 100));
    let hers: Vec<JobId> = (0..3).map(|_| c.submit(limited(ADA, 2, 100))).collect();
    let within = |c: &Cluster, job| match why(c, job) {
        WaitReason::Reserved { within } => within.0 / SECOND,
        why => panic!("{why:?}"),
    };
    let before: Vec<u64> = hers.iter().map(|&job| within(&c, job)).collect();
    assert_eq!(before, [100, 200, 300]);
    let late = c.submit(limited(BOB, 2, 100));
    assert_eq!(within(&c, late), 400);
    assert_eq!(hers.iter().map(|&job| within(&c, job)).collect::<Vec<_>>(), before);
    c.advance(50 * SECOND);
    c.finish(running);
    assert!(runs(&c, hers[0]));
}

#[test]
fn places_in_line_name_the_job_before_and_say_whose_user_used_more() {
    let mut c = space(1, 0, &[]);
    c.submit(of(ADA, 1));
    let jobs = submit_all(&mut c, &[ADA, ADA, BOB]);
    let ids: Vec<JobId> = jobs.iter().map(|&(job, _)| job).collect();
    let line: Vec<_> = c.core.line().collect();
    assert_eq!(line.iter().map(|&(job, _)| job).collect::<Vec<_>>(), [ids[2], ids[0], ids[1]]);
    let places: Vec<_> = line.iter().map(|(_, it)| (it.position, it.before, it.yields)).collect();
    assert_eq!(places, [(1, None, false), (2, Some(ids[2]), true), (3, Some(ids[0]), true)]);
    let mut params = c.core.params().clone();
    params.choose("order", "arrival").unwrap();
    c.event(Event::SetParams { params });
    assert_eq!(c.core.line().map(|(job, _)| job).collect::<Vec<_>>(), ids);
    assert!(c.core.line().all(|(_, it)| !it.yields));
}
