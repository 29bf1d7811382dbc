//! Allowances of processor time: which account is charged what, and what becomes of jobs when one
//! is spent.

use crate::cluster::{Cluster, job};
use tutti_core::Event;
use tutti_types::{
    BankAccount, ClassName, ClusterTime, GroupId, JobId, JobSpec, Nanos, ProcessorTime, UserId,
};

const ADA: BankAccount = BankAccount::User(UserId(7));
const PHYSICS: BankAccount = BankAccount::Group(GroupId(3));

fn of_ada(processors: u32) -> JobSpec {
    JobSpec { owner: UserId(7), group: GroupId(3), ..job(processors) }
}

fn allow(c: &mut Cluster, account: BankAccount, seconds: Option<u64>) {
    let allowance = seconds.map(|it| ProcessorTime::of_one(Nanos::from_secs(it)));
    c.event(Event::SetBank { account, allowance });
}

fn used_s(c: &Cluster, account: BankAccount) -> u64 {
    c.core.bank().find(|&(of, _)| of == account).unwrap().1.used.seconds()
}

/// `standby, was production`.
fn class(c: &Cluster, job: JobId) -> String {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    let former = view.former_class.map_or(String::new(), |class| format!(", was {class}"));
    format!("{}{former}", view.spec.class)
}

#[test]
fn a_spent_allowance_makes_jobs_standby_until_there_is_more() {
    let mut c = Cluster::with_nodes(&[4]);
    allow(&mut c, ADA, Some(20));
    let (hers, other) = (c.submit(of_ada(2)), c.submit(job(2)));
    c.advance_ms(9_999);
    assert_eq!((used_s(&c, ADA), class(&c, hers).as_str()), (0, "production"), "as of the event");
    c.advance_ms(1);
    assert_eq!((used_s(&c, ADA), class(&c, hers).as_str()), (20, "standby, was production"));
    assert_eq!(class(&c, other), "production");
    let next = c.submit(JobSpec { class: ClassName::new("interactive"), ..of_ada(1) });
    assert_eq!(class(&c, next), "standby, was interactive");
    let idle = c.submit(JobSpec { class: ClassName::new("standby"), ..of_ada(1) });
    allow(&mut c, ADA, Some(30));
    assert_eq!(
        [hers, next, idle].map(|it| class(&c, it)),
        ["production", "interactive", "standby"]
    );
    c.drain();
}

#[test]
fn a_group_is_charged_for_all_its_jobs_and_either_account_counts() {
    let mut c = Cluster::with_nodes(&[4]);
    allow(&mut c, ADA, Some(1000));
    allow(&mut c, PHYSICS, Some(40));
    let hers = c.submit(of_ada(2));
    let his = c.submit(JobSpec { owner: UserId(8), ..of_ada(2) });
    c.advance_ms(10_000);
    assert_eq!((used_s(&c, ADA), used_s(&c, PHYSICS)), (20, 40));
    assert_eq!([hers, his].map(|it| class(&c, it)), ["standby, was production"; 2]);
    allow(&mut c, PHYSICS, None);
    assert_eq!([hers, his].map(|it| class(&c, it)), ["production"; 2]);
    c.drain();
}

#[test]
fn only_turns_are_charged_and_only_from_when_there_is_an_account() {
    let mut c = Cluster::with_nodes(&[2]);
    let (hers, _other) = (c.submit(of_ada(2)), c.submit(job(2)));
    c.advance_ms(10_000);
    allow(&mut c, ADA, Some(10));
    // She has half of the time of both processors: a second for each second.
    c.advance_ms(9_000);
    assert_eq!(class(&c, hers), "production");
    c.advance_ms(2_000);
    assert_eq!(class(&c, hers), "standby, was production");
    c.event(Event::Suspend { job: hers });
    let used = used_s(&c, ADA);
    assert!((10..=11).contains(&used), "{used}");
    c.advance_ms(10_000);
    c.event(Event::Tick);
    assert_eq!(used_s(&c, ADA), used);
    c.drain();
}

#[test]
fn what_ended_jobs_used_stays_used() {
    let mut c = Cluster::with_nodes(&[2]);
    allow(&mut c, ADA, Some(10));
    let first = c.submit(of_ada(2));
    c.advance_ms(4_000);
    c.finish(first);
    assert_eq!(used_s(&c, ADA), 8);
    let second = c.submit(of_ada(1));
    c.advance_ms(2_000);
    assert_eq!(class(&c, second), "standby, was production");
    c.drain();
}

/// An account with a spent allowance gives way to others, as standby jobs do.
#[test]
fn who_has_spent_all_gives_way() {
    let mut c = Cluster::with_nodes(&[4]);
    let mut params = c.core.params().clone();
    params.set("policy", 2).unwrap();
    c.event(Event::SetParams { params });
    allow(&mut c, ADA, Some(80));
    let quick = c.submit(JobSpec { class: ClassName::new("interactive"), ..of_ada(4) });
    let long = c.submit(job(4));
    c.advance_ms(19_000);
    assert_eq!(class(&c, quick), "interactive");
    c.advance_ms(1_000);
    assert_eq!(class(&c, quick), "standby, was interactive");
    c.advance_ms(30 * 60_000 - 20_000);
    c.arrive();
    assert!(!c.core.runs_in(long).is_empty() && c.core.runs_in(quick).is_empty());
    c.drain();
}
