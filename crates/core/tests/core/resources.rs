//! Counted resources under every policy: what a job gets, when it waits, and when they are free.

use crate::cluster::{Cluster, job, node_spec, params};
use proptest::prelude::*;
use tutti_core::policy::POLICIES;
use tutti_core::{Event, JobState, WaitReason};
use tutti_types::{
    Amount, ClassName, ClusterTime, JobId, JobSpec, Nanos, NodeId, OnNodeLoss, Params, Refusal,
    ResourceName, ResourceSpec, ResourceWish,
};

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

fn needs(processors: u32, wishes: &[(&str, Amount)]) -> JobSpec {
    let wish = |&(text, amount): &(&str, Amount)| ResourceWish { name: name(text), amount };
    JobSpec { resources: wishes.iter().map(wish).collect(), ..job(processors) }
}

fn licences(processors: u32, count: u32) -> JobSpec {
    needs(processors, &[("licence", Amount::Count(count))])
}

fn set(c: &mut Cluster, text: &str, count: u32) {
    let spec = ResourceSpec { count, jobs_each: 1, lent: false };
    c.event(Event::SetResource { name: name(text), spec });
}

fn cluster(policy: &str) -> Cluster {
    let mut params = Params::default();
    params.choose("policy", policy).unwrap();
    let mut c = Cluster::new(params);
    c.join(0, 8);
    set(&mut c, "licence", 4);
    c
}

fn has(c: &Cluster, job: JobId) -> Vec<String> {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    view.resources.iter().map(ToString::to_string).collect()
}

fn why(c: &Cluster, job: JobId) -> Option<WaitReason> {
    match c.core.job(job, ClusterTime(c.now))?.state {
        JobState::Queued { why, .. } => Some(why),
        JobState::Running { .. } | JobState::Ending { .. } => None,
    }
}

const LICENCE: fn() -> Option<WaitReason> = || Some(WaitReason::Resource { name: name("licence") });

#[test]
fn a_job_gets_its_numbers_or_waits_under_every_policy() {
    for policy in POLICIES.map(|policy| policy.name) {
        let mut c = cluster(policy);
        let [first, second] = [3, 2].map(|count| c.submit(licences(1, count)));
        assert_eq!(has(&c, first), ["licence=0,1,2"], "{policy}");
        assert_eq!((why(&c, second), has(&c, second)), (LICENCE(), vec![]), "{policy}");
        let in_use = |c: &Cluster| c.core.resources().next().unwrap().in_use;
        assert_eq!(in_use(&c), 3);
        c.finish(first);
        // Round robin: the search goes on behind the last.
        assert_eq!(has(&c, second), ["licence=0,3"], "{policy}");
        c.finish(second);
        assert_eq!(in_use(&c), 0);
        c.drain();
    }
}

#[test]
fn rows_that_a_class_keeps_are_no_way_around_a_resource() {
    let mut c = cluster("gang");
    let quick = JobSpec { class: ClassName::new("interactive"), ..licences(1, 3) };
    let [first, second] = [0; 2].map(|_| c.submit(quick.clone()));
    assert_eq!((has(&c, first).len(), why(&c, second)), (1, LICENCE()));
    c.finish(first);
    assert_eq!(has(&c, second), ["licence=0,1,3"]);
    c.drain();
}

#[test]
fn a_suspended_job_keeps_its_numbers() {
    let mut c = cluster("gang");
    let [first, second] = [0; 2].map(|_| c.submit(licences(1, 4)));
    c.event(Event::Suspend { job: first });
    assert_eq!(why(&c, second), LICENCE());
    c.event(Event::Resume { job: first });
    c.cancel(first, true);
    c.deliver_kills();
    assert_eq!(why(&c, second), None);
    c.drain();
}

#[test]
fn what_can_never_be_met_is_declined_with_what_would_be() {
    let mut c = cluster("gang");
    let mut says = |spec| {
        assert_eq!(c.try_submit(spec), None);
        c.refusals.last().unwrap().to_string()
    };
    assert!(says(licences(1, 5)).ends_with("ask for at most licence:4"));
    assert!(says(needs(1, &[("licence", Amount::Number(4))])).ends_with("ask for one of 0 to 3"));
    assert!(says(needs(1, &[("gpu", Amount::One)])).starts_with("there is no resource gpu"));
    let twice = [("licence", Amount::One); 2];
    assert!(says(needs(1, &twice)).contains("asked for twice"));
    let many: Vec<(String, Amount)> = (0..17).map(|n| (format!("a{n}"), Amount::One)).collect();
    let many: Vec<(&str, Amount)> = many.iter().map(|(name, it)| (name.as_str(), *it)).collect();
    assert_eq!(says(needs(1, &many)), Refusal::TooManyResources { limit: 16 }.to_string());
}

#[test]
fn a_lower_count_takes_nothing_and_gives_nothing() {
    let mut c = cluster("gang");
    let [first, second] = [0; 2].map(|_| c.submit(licences(1, 2)));
    set(&mut c, "licence", 2);
    assert_eq!([first, second].map(|job| has(&c, job)), [["licence=0,1"], ["licence=2,3"]]);
    let third = c.submit(licences(1, 2));
    c.finish(second);
    assert_eq!(why(&c, third), LICENCE(), "two are in use, and there are two");
    set(&mut c, "licence", 0);
    c.finish(first);
    assert_eq!((c.core.resources().count(), why(&c, third)), (0, LICENCE()));
    set(&mut c, "licence", 2);
    assert_eq!(has(&c, third), ["licence=0,1"]);
    c.drain();
}

#[test]
fn a_job_that_waits_for_a_resource_is_passed_but_not_delayed() {
    let mut c = cluster("space:easy");
    let limited = |spec, s| JobSpec { time_limit: Some(Nanos::from_secs(s)), ..spec };
    let has_it = c.submit(limited(licences(2, 4), 100));
    let first = c.submit(limited(licences(2, 1), 100));
    assert_eq!(why(&c, first), LICENCE());
    // It is gone before the licences can come free.
    let short = c.submit(limited(job(2), 50));
    assert_eq!(why(&c, short), None);
    let long = c.submit(limited(job(2), 200));
    assert!(why(&c, long).is_some());
    // Nothing is said of when it begins, since nothing is certain.
    assert_eq!(why(&c, first), LICENCE());
    c.finish(has_it);
    assert_eq!([first, long].map(|job| why(&c, job)), [None; 2]);
    c.drain();
}

#[test]
fn none_may_take_what_the_first_in_line_waits_for() {
    let mut c = cluster("space:easy");
    let limited = |spec, s| JobSpec { time_limit: Some(Nanos::from_secs(s)), ..spec };
    let _has_three = c.submit(limited(licences(2, 3), 100));
    let first = c.submit(limited(licences(2, 2), 100));
    let passes = c.submit(limited(licences(2, 1), 10));
    assert_eq!(why(&c, first), LICENCE());
    assert!(why(&c, passes).is_some(), "one is left, and the first needs two");
    c.drain();
}

#[test]
fn a_job_that_is_queued_again_gets_numbers_anew() {
    let mut c = cluster("gang");
    c.join(1, 8);
    let requeued = JobSpec { on_node_loss: OnNodeLoss::Requeue, ..licences(8, 4) };
    let lost = c.submit(requeued);
    let waits = c.submit(licences(1, 1));
    assert_eq!(why(&c, waits), LICENCE());
    let node = c.core.parts(lost)[0].node;
    c.lose(node.0);
    assert_eq!(has(&c, lost), ["licence=0,1,2,3"], "it comes first, on the other node");
    assert_eq!(why(&c, waits), LICENCE());
    c.event(Event::NodeJoined { node: NodeId(2), spec: node_spec(1, 1000) });
    c.drain();
}

#[test]
fn deadlines_are_not_promised_to_jobs_with_resources() {
    let mut c = cluster("deadline");
    let second = Some(Nanos::from_secs(1));
    let spec =
        JobSpec { time_limit: second, deadline: Some(Nanos::from_secs(9)), ..licences(1, 1) };
    assert_eq!(c.try_submit(spec), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::DeadlineWithResources));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever jobs ask for, under whatever policy and queue: what the invariants say holds, and
    /// no job waits for ever.
    #[test]
    fn every_job_gets_its_turn(
        policy in 0..4usize,
        queue in prop::sample::select(vec!["fcfs", "easy", "sjbf", "conservative"]),
        jobs in prop::collection::vec((1..4u32, 1..5u32, prop::bool::ANY), 1..20),
    ) {
        let mut params = params(&[("rows", 2)]);
        params.choose("policy", POLICIES[policy].name).unwrap();
        params.choose("discipline", queue).unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 4);
        set(&mut c, "licence", 4);
        let ids: Vec<JobId> = jobs.iter().map(|&(processors, count, limited)| {
            let time_limit = limited.then(|| Nanos::from_secs(10));
            c.submit(JobSpec { time_limit, ..licences(processors, count) })
        }).collect();
        for _ in &ids {
            let runs = c.first_running(&ids).expect("one of those that are left runs");
            prop_assert!(!has(&c, runs).is_empty());
            c.finish(runs);
        }
        c.drain();
    }
}
