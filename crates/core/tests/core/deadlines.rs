//! The policy `deadline`, told as little stories. Times are in milliseconds.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, JobState, WaitReason};
use tutti_types::{
    ClassName, ClassSpec, ClusterTime, JobId, JobSpec, Nanos, NodeId, Refusal, TaskStatus,
};

const MS: u64 = 1_000_000;
const POLICY: u64 = 3;

fn cluster(widths: &[u32]) -> Cluster {
    let mut cluster = Cluster::with_nodes(widths);
    set_policy(&mut cluster, POLICY);
    cluster
}

fn set_policy(cluster: &mut Cluster, policy: u64) {
    let values = [("policy", policy), ("deadline_slack", 0), ("quantum", 10 * MS)];
    cluster.event(Event::SetParams { params: params(&values) });
}

fn set_shares(cluster: &mut Cluster, shares: &[(&str, u32)]) {
    for &(class, share) in shares {
        let spec = ClassSpec::default().with("share", u64::from(share)).unwrap();
        cluster.event(Event::SetClass { class: ClassName::new(class), spec });
    }
}

/// So many tasks, for so long, by then.
fn due(tasks: u32, limit: u64, deadline: u64) -> JobSpec {
    let deadline = Some(Nanos(deadline * MS));
    JobSpec { time_limit: Some(Nanos(limit * MS)), deadline, grace: Nanos(0), ..job(tasks) }
}

fn in_class(class: &str, spec: JobSpec) -> JobSpec {
    JobSpec { class: ClassName::new(class), ..spec }
}

fn got(cluster: &Cluster, job: JobId) -> u64 {
    cluster.service.get(&job).copied().unwrap_or(0) / MS
}

/// The earliest deadline that is named instead, in nanoseconds.
fn named(cluster: &mut Cluster, spec: JobSpec) -> Option<u64> {
    assert_eq!(cluster.try_submit(spec), None);
    match cluster.refusals.last() {
        Some(Refusal::Deadline { earliest, .. }) => earliest.map(|earliest| earliest.0),
        other => panic!("declined for another reason: {other:?}"),
    }
}

fn place(cluster: &Cluster, job: JobId) -> String {
    let view = cluster.core.job(job, ClusterTime(cluster.now)).unwrap();
    let parts = view.placements.iter().map(|part| format!("{}/{}", part.node, part.processors));
    parts.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_job_is_accepted_if_there_is_time_and_else_told_when_there_would_be() {
    let mut c = cluster(&[2]);
    c.submit(due(2, 1000, 1500));
    // All processors have 500 until 1500, and all time after that.
    assert_eq!(named(&mut c, due(1, 600, 1400)), Some(1600 * MS));
    c.submit(due(1, 600, 1600));
    assert_eq!(named(&mut c, due(2, 1, 1600)), Some(1601 * MS));
    c.submit(due(1, 300, 1000));
    assert_eq!(named(&mut c, due(1, 301, 1600)), Some(1601 * MS));
}

#[test]
fn who_is_in_a_hurry_goes_before_who_is_not_and_both_are_in_time() {
    let mut c = cluster(&[2]);
    let loose = c.submit(due(2, 1000, 2000));
    c.advance_ms(100);
    let tight = c.submit(due(2, 500, 800));
    c.advance_ms(200);
    assert_eq!((got(&c, loose), got(&c, tight)), (100, 200), "the loose one is set aside");
    c.advance_ms(1200);
    // No processor idles: the loose one went on when the tight one had reached its limit.
    c.deliver_kills();
    assert!(c.outcomes.contains_key(&tight));
    assert_eq!(c.outcomes[&loose].service, Nanos(1000 * MS));
}

#[test]
fn a_promise_comes_before_jobs_without_one() {
    let mut c = cluster(&[2]);
    let plain = c.submit(job(1));
    let other = c.submit(job(2));
    let waits = |c: &Cluster| c.core.job(other, ClusterTime(c.now)).unwrap().state;
    let too_few = WaitReason::Rows { limit: 1 };
    assert!(matches!(waits(&c), JobState::Queued { why, .. } if why == too_few));
    c.advance_ms(100);
    let first = c.submit(due(2, 300, 400));
    c.advance_ms(100);
    assert_eq!((got(&c, plain), got(&c, first)), (100, 100));
    // Ranks that end free what they leave.
    c.end_job(first, TaskStatus::Exited(0));
    c.advance_ms(100);
    assert_eq!(got(&c, plain), 200);
    c.finish(plain);
    assert!(matches!(waits(&c), JobState::Running { .. }));
}

#[test]
fn who_comes_late_in_the_day_waits_for_its_promised_time() {
    let mut c = cluster(&[1]);
    let first = c.submit(due(1, 500, 500));
    let second = c.submit(due(1, 300, 1000));
    let view = c.core.job(second, ClusterTime(c.now)).unwrap();
    let within = Nanos(700 * MS);
    let since = ClusterTime(0);
    assert_eq!(view.state, JobState::Queued { since, why: WaitReason::Reserved { within } });
    // It is promised the latest time, and expected to begin when the first must be done.
    let expected = &c.core.expected(ClusterTime(c.now))[&second];
    assert_eq!(expected.begins, Some(ClusterTime(500 * MS)));
    assert_eq!(expected.ends, Some(ClusterTime(800 * MS)));
    // A request that comes later, while nothing happens, hears the same.
    for later in [c.now + 1, c.now + 350 * MS] {
        let expected = c.core.expected(ClusterTime(later));
        let ends = [first, second].map(|job| expected[&job].ends);
        assert_eq!(ends, [Some(ClusterTime(500 * MS)), Some(ClusterTime(800 * MS))], "{later}");
    }
    c.advance_ms(200);
    c.end_job(first, TaskStatus::Exited(0));
    let expected = &c.core.expected(ClusterTime(c.now))[&second];
    assert_eq!(expected.ends, Some(ClusterTime(500 * MS)), "an early end moves all forward");
}

#[test]
fn an_early_end_leaves_its_time_to_others() {
    let mut c = cluster(&[1]);
    let first = c.submit(due(1, 900, 1000));
    assert_eq!(named(&mut c, due(1, 200, 1000)), Some(1100 * MS));
    c.advance_ms(100);
    c.end_job(first, TaskStatus::Exited(0));
    c.submit(due(1, 200, 200));
}

#[test]
fn the_least_loaded_processors_come_first() {
    let mut c = cluster(&[1, 1, 1, 1]);
    let a = c.submit(due(1, 900, 1000));
    let b = c.submit(due(1, 300, 1000));
    let d = c.submit(due(3, 100, 2000));
    c.advance_ms(300);
    c.deliver_kills();
    // The third had two idle ones, and that of the shorter job.
    assert_eq!([a, d].map(|job| place(&c, job)), ["0/0", "1/0 2/0 3/0"]);
    assert!(c.outcomes.contains_key(&b));
    let all = c.submit(due(4, 100, 5000));
    assert_eq!(place(&c, all), "", "it waits");
    c.advance_ms(2000);
    c.deliver_kills();
    assert_eq!(c.outcomes.len(), 4, "a job of as many tasks as there are processors gets all");
}

#[test]
fn classes_are_apart_in_space_where_they_can() {
    let mut c = cluster(&[1, 1]);
    set_shares(&mut c, &[("interactive", 4000), ("production", 6000)]);
    let a = c.submit(in_class("production", due(1, 600, 2000)));
    let b = c.submit(in_class("interactive", due(1, 400, 2000)));
    assert_eq!([a, b].map(|job| place(&c, job)), ["0/0", "1/0"]);
    c.advance_ms(200);
    assert_eq!((got(&c, a), got(&c, b)), (200, 200), "neither waits for the other");
    let wide = c.submit(in_class("interactive", due(2, 100, 1500)));
    assert_eq!(place(&c, wide), "0/0 1/0", "in time where not in space");
}

#[test]
fn a_class_is_sure_of_its_share_and_of_no_more() {
    let mut c = cluster(&[1]);
    set_shares(&mut c, &[("interactive", 4000), ("production", 6000)]);
    // A cycle of both is 20 ms, 8 for one and 12 for the other; each may have to wait for it first.
    let interactive = |limit, deadline| in_class("interactive", due(1, limit, deadline));
    assert_eq!(named(&mut c, interactive(80, 80)), Some(200 * MS));
    assert_eq!(named(&mut c, interactive(81, 80)), Some(213 * MS));
    let a = c.submit(interactive(80_000, 200_000));
    let b = c.submit(in_class("production", job(1)));
    c.advance_ms(100_000);
    // Within a percent, and exactly so.
    assert_eq!((got(&c, a), got(&c, b)), (40_000, 60_000));
    c.advance_ms(100_000);
    c.deliver_kills();
    assert!(c.outcomes.contains_key(&a) && c.outcomes[&a].service == Nanos(80_000 * MS));
    // What a class does not use goes to the others.
    c.advance_ms(1000);
    assert_eq!(got(&c, b), 121_000);
    let none = in_class("standby", due(1, 10, 1000));
    assert_eq!(c.try_submit(none), None);
    let class = ClassName::new("standby");
    assert_eq!(c.refusals.last(), Some(&Refusal::NoTimeForClass { class }));
}

#[test]
fn three_classes_share_within_a_percent_whoever_is_absent() {
    let mut c = cluster(&[2]);
    set_shares(&mut c, &[("interactive", 5000), ("production", 3000), ("benchmark", 1000)]);
    let classes = ["interactive", "production", "benchmark", "standby"];
    let jobs = classes.map(|class| c.submit(in_class(class, job(2))));
    c.advance_ms(100_000);
    assert_eq!(jobs.map(|job| got(&c, job)), [50_000, 30_000, 10_000, 10_000]);
    c.finish(jobs[0]);
    let before = jobs[1..].iter().map(|&job| got(&c, job)).collect::<Vec<_>>();
    c.advance_ms(100_000);
    let since = jobs[1..].iter().zip(before).map(|(&job, before)| got(&c, job) - before);
    assert_eq!(since.collect::<Vec<_>>(), [60_000, 20_000, 20_000], "in the same ratios");
}

#[test]
fn a_class_may_have_many_short_slots_where_others_have_few_long_ones() {
    for policy in [0, POLICY] {
        let mut c = cluster(&[1]);
        // Slots of more than a quantum and a half would be cut.
        let values = [("policy", policy), ("deadline_slack", 0), ("quantum", 30 * MS)];
        c.event(Event::SetParams { params: params(&values) });
        let rules = |share, slots, slot_min| {
            let spec = ClassSpec::default().with("share", share).unwrap();
            spec.with("slots", slots).unwrap().with("slot_min", slot_min * MS).unwrap()
        };
        for (class, spec) in [
            ("interactive", rules(4000, 3, 5)),
            ("production", rules(3000, 1, 60)),
            ("benchmark", rules(2000, 1, 2)),
            ("standby", rules(1000, 1, 2)),
        ] {
            c.event(Event::SetClass { class: ClassName::new(class), spec });
        }
        let classes = ["interactive", "production", "benchmark", "standby"];
        let jobs = classes.map(|class| c.submit(in_class(class, job(1))));
        let row = |job: JobId| c.core.job(job, ClusterTime(0)).unwrap().row.unwrap();
        let name = |at: usize| classes[at].get(..1).unwrap().to_owned();
        let slots = c.core.frame().slots.iter().map(|slot| {
            let at = jobs.iter().position(|&job| row(job) == slot.row).unwrap();
            format!("{}{}", name(at), slot.length.0 / MS)
        });
        let slots: Vec<String> = slots.collect();
        // The frame is as long as it takes for production to have 60 ms in one.
        let again = slots.iter().cycle().skip_while(|slot| **slot != "p60").take(6);
        let again = again.cloned().collect::<Vec<_>>().join(" ");
        assert!(
            ["p60 i26 b40 i26 s20 i26", "p60 i26 s20 i26 b40 i26"].contains(&&*again),
            "{again}"
        );
        c.advance_ms(100_000);
        assert_eq!(jobs.map(|job| got(&c, job) / 100), [400, 300, 200, 100]);
    }
}

#[test]
fn what_interferes_with_a_promise_is_said_and_mended_if_it_can() {
    let mut c = cluster(&[1, 1]);
    let a = c.submit(due(1, 500, 1000));
    let b = c.submit(due(1, 500, 600));
    c.advance_ms(100);
    c.event(Event::Suspend { job: a });
    assert_eq!(c.core.at_risk(a), Some(ClusterTime(100 * MS)));
    c.advance_ms(100);
    c.event(Event::Resume { job: a });
    assert_eq!(c.core.at_risk(a), None, "there is time enough left");
    // A job that is to begin on a node that is lost begins elsewhere if there is time.
    let waits = c.submit(due(2, 100, 2000));
    c.lose(1);
    c.deliver_kills();
    assert!(c.outcomes.contains_key(&b));
    assert_eq!(c.core.at_risk(waits), Some(ClusterTime(200 * MS)), "nobody can say");
    c.join(1, 1);
    assert_eq!(c.core.at_risk(waits), None);
    set_policy(&mut c, 0);
    assert_eq!(c.core.at_risk(waits), Some(ClusterTime(200 * MS)), "gang promises nothing");
    set_policy(&mut c, POLICY);
    assert_eq!(c.core.at_risk(waits), None);
    let node = c.core.job(a, ClusterTime(c.now)).unwrap().placements[0].node;
    assert_eq!(node, NodeId(0));
}

#[test]
fn smaller_shares_put_a_deadline_at_risk() {
    let mut c = cluster(&[1]);
    set_shares(&mut c, &[("interactive", 5000)]);
    let a = c.submit(in_class("interactive", due(1, 400, 1000)));
    set_shares(&mut c, &[("interactive", 1000)]);
    assert_eq!(c.core.at_risk(a), Some(ClusterTime(0)));
    set_shares(&mut c, &[("interactive", 6000)]);
    assert_eq!(c.core.at_risk(a), None);
}

#[test]
fn memory_is_kept_for_who_is_to_begin() {
    let mut c = cluster(&[1]);
    let memory = |bytes, spec| JobSpec { memory_per_task_bytes: Some(bytes), ..spec };
    c.submit(memory(500, due(1, 500, 500)));
    let second = c.submit(memory(400, due(1, 300, 1000)));
    assert_eq!(c.try_submit(memory(200, due(1, 10, 5000))), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::NoMemoryByDeadline));
    c.cancel(second, false);
    c.submit(memory(200, due(1, 10, 5000)));
}

#[test]
fn a_deadline_needs_a_limit_and_a_policy_that_keeps_it() {
    let mut c = cluster(&[1]);
    let endless = JobSpec { time_limit: None, ..due(1, 1, 100) };
    assert_eq!(c.try_submit(endless), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::DeadlineWithoutLimit));
    set_policy(&mut c, 0);
    assert_eq!(c.try_submit(due(1, 1, 100)), None);
    assert_eq!(c.refusals.last(), Some(&Refusal::NoDeadlines));
}

fn with_grace(grace: u64, spec: JobSpec) -> JobSpec {
    JobSpec { grace: Nanos(grace * MS), ..spec }
}

#[test]
fn a_deadline_is_promised_with_the_grace_of_those_before_it() {
    let mut c = cluster(&[2]);
    let first = c.submit(with_grace(500, due(2, 1000, 1000)));
    // Its own grace is after its deadline, and no other job's.
    assert_eq!(named(&mut c, with_grace(900, due(2, 1000, 2499))), Some(2500 * MS));
    let second = c.submit(due(2, 1000, 2500));
    assert_eq!(named(&mut c, with_grace(1, due(1, 1, 1000))), Some(2501 * MS));
    c.advance_ms(1300);
    assert!(matches!(
        c.core.job(first, ClusterTime(c.now)).unwrap().state,
        JobState::Ending { .. }
    ));
    assert_eq!((got(&c, first), got(&c, second)), (1300, 0), "it has its processors to end");
    c.advance_ms(300);
    c.deliver_kills();
    assert_eq!(c.core.at_risk(second), None);
    c.advance_ms(900);
    c.deliver_kills();
    assert!(c.outcomes.contains_key(&second), "done by its deadline, at {}", c.now / MS);
}

#[test]
fn who_ends_sooner_than_it_could_gives_its_grace_back() {
    let mut c = cluster(&[2]);
    let job = c.submit(with_grace(500, due(2, 1000, 1000)));
    c.advance_ms(100);
    c.cancel(job, false);
    // At its deadline it would still have been there; now it is gone after its grace.
    assert_eq!(named(&mut c, due(2, 1000, 1000)), Some(1500 * MS));
    c.finish(job);
    assert_eq!(named(&mut c, due(2, 1000, 999)), Some(1000 * MS));
}

/// The core is told of each moment some milliseconds late, as by real clocks.
#[test]
fn a_late_tick_costs_no_more_of_the_slack_than_it_is_late() {
    let mut c = cluster(&[2]);
    let values = [("policy", POLICY), ("deadline_slack", 100 * MS), ("quantum", 10 * MS)];
    c.event(Event::SetParams { params: params(&values) });
    // Without a promise of its own it has the processors until it is another job's promised time.
    let other = c.submit(JobSpec { deadline: None, ..with_grace(60_000, due(2, 1000, 0)) });
    let promised = c.submit(due(2, 1000, 12_000));
    c.advance_ms(500);
    c.cancel(other, false);
    while !c.outcomes.contains_key(&promised) {
        let wake = c.core.wake_at().0;
        c.pass(wake + 3 * MS);
        c.event(Event::Tick);
        c.deliver_kills();
        assert_eq!(c.core.at_risk(promised), None, "at {}", c.now / MS);
        assert!(c.now < 13_000 * MS);
    }
    assert!(!c.outcomes.contains_key(&other), "its processors were taken from it");
}
