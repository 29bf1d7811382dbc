//! Queues: which jobs a limit keeps beside the line, under every policy.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, JobState, SubmitOptions, WaitReason};
use tutti_types::{
    Allowed, ClassName, ClusterTime, JobId, JobSpec, Nanos, QueueName, QueueRefusal, QueueSpec,
    Refusal, RequestId, UserId,
};

fn queue(limits: &[(&str, u64)]) -> QueueSpec {
    let mut spec = QueueSpec::default();
    for &(name, value) in limits {
        spec.limits.set(name, value).unwrap();
    }
    spec
}

fn set(c: &mut Cluster, limits: &[(&str, u64)]) {
    c.event(Event::SetQueue { name: QueueName::new("q"), spec: Some(queue(limits)) });
}

fn submit(c: &mut Cluster, owner: u32, tasks: u32) -> JobId {
    let spec = JobSpec { owner: UserId(owner), ..job(tasks) };
    c.try_submit_to(QueueName::new("q"), spec).expect("accepted")
}

fn runs(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    matches!(view.state, JobState::Running { .. })
}

fn why(c: &Cluster, job: JobId) -> String {
    match c.core.job(job, ClusterTime(c.now)).unwrap().state {
        JobState::Queued { why: WaitReason::Queue { limit, most }, .. } => {
            format!("{limit}={most}")
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn a_limit_of_a_user_keeps_jobs_beside_the_line_under_every_policy() {
    for policy in 0..4 {
        let mut c = Cluster::new(params(&[("policy", policy)]));
        c.join(0, 8);
        set(&mut c, &[("user_jobs", 2)]);
        let [a, b, held] = [1, 1, 1].map(|_| submit(&mut c, 7, 1));
        let other = submit(&mut c, 8, 1);
        let free = c.submit(job(1));
        assert!(runs(&c, a) && runs(&c, b) && !runs(&c, held), "policy {policy}");
        assert!(runs(&c, other) && runs(&c, free), "policy {policy}: a later job is held up");
        assert_eq!(why(&c, held), "user_jobs=2");
        c.finish(a);
        assert!(runs(&c, held), "policy {policy}");
    }
}

#[test]
fn a_large_job_is_not_kept_out_by_later_small_ones() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 8);
    set(&mut c, &[("processors", 4)]);
    let first = submit(&mut c, 7, 2);
    let large = submit(&mut c, 7, 4);
    let small = submit(&mut c, 8, 1);
    assert!(runs(&c, first) && !runs(&c, large) && !runs(&c, small));
    assert_eq!(why(&c, small), "processors=4");
    c.finish(first);
    assert!(runs(&c, large) && !runs(&c, small));
    c.finish(large);
    assert!(runs(&c, small));
}

#[test]
fn what_can_never_fit_and_what_is_full_is_declined() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 8);
    set(&mut c, &[("processors", 4), ("jobs", 1), ("user_waiting", 1)]);
    let mut refusal = |tasks| {
        let request = RequestId(1_000_000);
        let queue = Some(QueueName::new("q"));
        let options = SubmitOptions { queue, ..SubmitOptions::default() };
        let event = Event::submit(request, job(tasks), options);
        let mut actions = Vec::new();
        c.core.apply(ClusterTime(c.now), &event, &mut actions);
        actions.into_iter().find_map(|action| match action {
            tutti_core::Action::Decline { refusal: Refusal::Queue(refusal), .. } => Some(refusal),
            _ => None,
        })
    };
    let text = refusal(5).unwrap().to_string();
    assert!(text.contains("processors=4") && text.contains("at most 4"), "{text}");
    assert_eq!(refusal(1), None, "it runs");
    assert_eq!(refusal(1), None, "it waits");
    assert!(matches!(refusal(1), Some(QueueRefusal::Full { most: 1, .. })));
}

#[test]
fn a_lowered_limit_ends_nothing_and_a_raised_one_lets_in() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 8);
    set(&mut c, &[("jobs", 3)]);
    let jobs = [1, 1, 1, 1].map(|_| submit(&mut c, 7, 1));
    set(&mut c, &[("jobs", 1)]);
    assert!(runs(&c, jobs[0]) && runs(&c, jobs[2]) && !runs(&c, jobs[3]));
    c.finish(jobs[0]);
    c.finish(jobs[1]);
    assert!(!runs(&c, jobs[3]));
    set(&mut c, &[("jobs", 2)]);
    assert!(runs(&c, jobs[3]));
    c.event(Event::SetQueue { name: QueueName::new("q"), spec: None });
    assert_eq!(c.core.queues().len(), 1, "a queue with jobs stays");
}

#[test]
fn a_limit_of_some_hours_holds_in_these() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 8);
    let hour = Nanos::from_secs(3600);
    c.event(Event::Calendar { week: Nanos(9 * hour.0) });
    let mut spec = queue(&[]);
    let limits = [("jobs".to_owned(), 1)].into();
    spec.periods.push(("mon-fri 08:00-18:00".parse().unwrap(), limits));
    c.event(Event::SetQueue { name: QueueName::new("q"), spec: Some(spec) });
    let [a, b] = [1, 1].map(|_| submit(&mut c, 7, 1));
    assert!(runs(&c, a) && !runs(&c, b));
    c.advance(8 * hour.0);
    assert!(!runs(&c, b));
    c.advance(2 * hour.0);
    assert!(runs(&c, b), "{}", why(&c, b));
}

#[test]
fn a_suspended_job_takes_nothing_of_a_limit() {
    let mut c = Cluster::new(params(&[("policy", 1)]));
    c.join(0, 1);
    set(&mut c, &[("jobs", 2)]);
    let [a, b, held] = [1, 1, 1].map(|_| submit(&mut c, 7, 1));
    assert!(runs(&c, a) && why(&c, held) == "jobs=2");
    c.event(Event::Suspend { job: b });
    assert!(!why(&c, held).contains("jobs=2"), "it is in line now");
    c.event(Event::Resume { job: b });
    assert_eq!(why(&c, b), "jobs=2");
}

#[test]
fn a_class_may_be_for_some_users() {
    let mut c = Cluster::new(params(&[]));
    let class = ClassName::new("benchmark");
    let allowed = Allowed { users: [UserId(7)].into(), ..Allowed::default() };
    c.event(Event::SetClassUsers { class: class.clone(), allowed });
    let allowed = c.core.class_users(&class).unwrap();
    assert!(allowed.allows(UserId(7), [].into_iter()));
    assert!(!allowed.allows(UserId(8), [].into_iter()));
    c.event(Event::SetClassUsers { class: class.clone(), allowed: Allowed::default() });
    assert!(c.core.class_users(&class).is_none());
}
