//! Queues, weights and counted resources, simulated.

use crate::scenario::{S, ends, job, settings, simulate};
use std::collections::BTreeSet;
use std::convert::Infallible;
use tutti_sim::{Job, Machine, Settings, SimError, Site, SiteQueue, Summary, run};
use tutti_types::{
    Amount, BankAccount, ClusterTime, Nanos, NodeId, QueueName, QueueSpec, ResourceName,
    ResourceSpec, ResourceWish, UserId,
};

fn queue(name: &str, limits: &[(&str, u64)]) -> SiteQueue {
    let mut spec = QueueSpec::default();
    limits.iter().for_each(|(name, value)| spec.limits.set(name, *value).unwrap());
    SiteQueue { name: QueueName::new(name), spec, nodes: None }
}

fn with(site: Site) -> Settings {
    Settings { site, ..settings(4, "space:easy") }
}

/// A job of a user, of ten seconds and one processor.
fn of(user: u32, queue: Option<u16>) -> Job {
    Job { user, queue, ..job(0, 10 * S, 1) }
}

fn starts_s(settings: &Settings, jobs: &[Job]) -> Vec<u64> {
    let (finished, _) = simulate(settings, jobs.iter().copied());
    finished.iter().map(|job| job.start.0 / S).collect()
}

#[test]
fn limits_of_a_queue_hold_for_each_user_and_keep_out_no_other() {
    let site = Site { queues: vec![queue("short", &[("user_jobs", 1)])], ..Site::default() };
    let jobs = [of(1, Some(0)), of(1, Some(0)), of(1, Some(0)), of(2, Some(0)), of(1, None)];
    assert_eq!(starts_s(&with(site), &jobs), [0, 10, 20, 0, 0]);
}

#[test]
fn limits_of_a_queue_follow_the_hours() {
    let mut short = queue("short", &[("jobs", 0)]);
    short.spec.periods.push(("06:00-12:00".parse().unwrap(), [("jobs".to_owned(), 2)].into()));
    let site = Site { queues: vec![short], ..Site::default() };
    // The workload begins an hour before.
    let begins = Nanos(5 * 3600 * S);
    let settings = Settings { calendar: vec![(ClusterTime(0), begins)], ..with(site) };
    assert_eq!(starts_s(&settings, &[of(1, Some(0)); 3]), [3600, 3600, 3610]);
}

#[test]
fn a_job_that_no_hour_lets_in_is_declined_or_passed_over() {
    let site = Site { queues: vec![queue("short", &[("job_processors", 2)])], ..Site::default() };
    let wide = Job { processors: 3, number: 7, ..of(1, Some(0)) };
    let outcome = |settings: &Settings| {
        let mut summary = Summary::new(4, None);
        let jobs = [wide, of(1, Some(0))].into_iter().map(Ok::<Job, Infallible>);
        let ran = run(settings, jobs, &mut summary);
        (ran, summary.declined())
    };
    let (ran, _) = outcome(&with(site.clone()));
    let error = ran.unwrap_err();
    assert!(matches!(error, SimError::Declined { number: 7, .. }), "{error}");
    assert!(error.to_string().contains("short"), "{error}");
    let lenient = Settings { skips_declined: true, ..with(site.clone()) };
    let (ran, declined) = outcome(&lenient);
    assert!(ran.is_ok() && declined == 1, "{ran:?}");
    // A user that may not use the queue.
    let mut own = site;
    own.queues[0].spec.allowed.users = BTreeSet::from([UserId(2)]);
    let narrow = |user| Job { processors: 1, ..of(user, Some(0)) };
    let jobs = [narrow(1)].into_iter().map(Ok::<Job, Infallible>);
    let error = run(&with(own.clone()), jobs, &mut Summary::new(4, None)).unwrap_err();
    assert!(error.to_string().contains("user 1 may not use queue short"), "{error}");
    assert_eq!(starts_s(&with(own), &[narrow(2)]), [0]);
}

#[test]
fn jobs_of_a_queue_run_on_its_nodes() {
    let mut one = queue("one", &[]);
    one.nodes = Some(BTreeSet::from([NodeId(1)]));
    let site = Site { queues: vec![one], ..Site::default() };
    let settings = Settings { machine: Machine::new(2, 2).unwrap(), ..with(site) };
    assert_eq!(starts_s(&settings, &[of(1, Some(0)); 3]), [0, 0, 10]);
    assert_eq!(starts_s(&settings, &[of(1, None); 3]), [0, 0, 0]);
}

#[test]
fn a_counted_resource_lets_so_many_jobs_run() {
    let name = ResourceName::new("licence").unwrap();
    let spec = ResourceSpec { count: 2, jobs_each: 1, lent: false };
    let wish = ResourceWish { name, amount: Amount::One };
    let site = |uses| Site { resources: vec![(name, spec)], uses, ..Site::default() };
    let jobs = [of(1, None); 4];
    assert_eq!(starts_s(&with(site(vec![(None, wish)])), &jobs), [0, 0, 10, 10]);
    // Those of another class have none.
    assert_eq!(starts_s(&with(site(vec![(Some(1), wish)])), &jobs), [0, 0, 0, 0]);
}

#[test]
fn users_of_a_trace_take_turns_by_their_weights() {
    // One processor; user 1 has three jobs in line before user 2 has any.
    let jobs = [of(1, None), of(1, None), of(1, None), of(2, None), of(2, None)];
    let mut settings = settings(1, "space:fcfs");
    let last = |settings: &Settings| ends(settings, &jobs).iter().map(|end| end / S).collect();
    let by_arrival: Vec<u64> = last(&settings);
    assert_eq!(by_arrival, [10, 20, 30, 40, 50]);
    settings.params.choose("order", "users").unwrap();
    let in_turn: Vec<u64> = last(&settings);
    assert_eq!(in_turn, [10, 30, 50, 20, 40]);
    let weights = vec![(BankAccount::User(UserId(1)), 100)];
    settings.site = Site { weights, ..Site::default() };
    let heavy: Vec<u64> = last(&settings);
    // What user 1 has used counts a hundredth; user 2 comes once.
    assert_eq!(heavy, [10, 30, 40, 20, 50]);
}

#[test]
fn fairness_is_jains_index_of_the_users_slowdowns() {
    // Both users' jobs are at once there; the machine is user 1's first.
    let jobs = [of(1, None), Job { processors: 4, ..of(2, None) }];
    let (_, summary) = simulate(&with(Site::default()), jobs);
    let fairness = summary.fairness().unwrap();
    // Slowdowns of 1 and 2: 3^2 / (2 x 5).
    assert!((fairness.jain - 0.9).abs() < 1e-12, "{fairness:?}");
    assert_eq!((fairness.users, fairness.worst_slowdown), (2, 2.0));
    assert_eq!(fairness.median_slowdown, 1.0);
    let (_, unknown) = simulate(&with(Site::default()), [of(0, None)]);
    assert_eq!(unknown.fairness(), None);
}
