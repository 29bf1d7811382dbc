//! Changes at times: node sets in and out of service, parameters, held jobs.

use crate::cluster::{Cluster, job, params};
use proptest::prelude::*;
use tutti_core::{DueChange, Event, HeldBy, JobState, Moment, SubmitOptions, WaitReason};
use tutti_types::{
    ClassName, ClusterTime, JobId, JobSpec, NamedJobs, NamedNodes, Nanos, NodeId, NodeSetName,
    Overrides, QueueName, QueueSpec, TimedChange, When,
};

const SECOND: u64 = 1_000_000_000;
const WHEN: When = When::Weekly { days: 1, minute: 0 };

fn moment(c: &Cluster, seconds: u64) -> Moment {
    Moment { at: ClusterTime(c.now) + Nanos::from_secs(seconds), unix_ms: seconds * 1000 }
}

fn nodes(nodes: &[u32]) -> NamedNodes {
    let nodes = nodes.iter().map(|&node| NodeId(node)).collect();
    NamedNodes { list: "n".into(), nodes, sets: [].into() }
}

const fn out(nodes: NamedNodes) -> TimedChange {
    TimedChange::Out { nodes, ahead: None }
}

/// Something changes in so many seconds.
fn plan(c: &mut Cluster, change: TimedChange, seconds: u64) -> u32 {
    let number = c.core.timed_made() + 1;
    let entry = Some((WHEN, change, Some(moment(c, seconds))));
    c.event(Event::SetTimed { number, entry });
    number
}

/// The moments of these have come, and there are no others.
fn due(c: &mut Cluster, numbers: &[u32]) {
    let due = |&number: &u32| DueChange { number, unix_ms: 7, next: None };
    c.event(Event::TimedDue { due: numbers.iter().map(due).collect() });
}

fn limited(tasks: u32, seconds: u64) -> JobSpec {
    let time_limit = Some(Nanos::from_secs(seconds));
    JobSpec { time_limit, grace: Nanos::ZERO, ..job(tasks) }
}

fn state(c: &Cluster, job: JobId) -> JobState {
    c.core.job(job, ClusterTime(c.now)).unwrap().state
}

fn runs(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Running { .. })
}

fn why(c: &Cluster, job: JobId) -> Option<WaitReason> {
    match state(c, job) {
        JobState::Queued { why, .. } => Some(why),
        JobState::Running { .. } | JobState::Ending { .. } => None,
    }
}

fn on(c: &Cluster, job: JobId) -> Vec<u32> {
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    view.placements.iter().map(|placed| placed.node.0).collect()
}

fn drained(c: &Cluster) -> Vec<bool> {
    c.core.nodes().map(|node| node.drained.is_some()).collect()
}

/// Under each policy that seats jobs by itself, and each discipline of the queue.
fn everywhere(check: impl Fn(&mut Cluster)) {
    for (policy, discipline) in (0..4).flat_map(|policy| (0..4).map(move |rule| (policy, rule))) {
        let mut c = Cluster::with_nodes(&[2, 2, 2, 2]);
        let params = params(&[("policy", policy), ("discipline", discipline)]);
        c.event(Event::SetParams { params });
        check(&mut c);
    }
}

#[test]
fn what_lasts_too_long_does_not_start_on_a_node_that_goes_out() {
    everywhere(|c| {
        plan(c, out(nodes(&[0, 1])), 100);
        let [short, long, endless] = [limited(8, 100), limited(2, 101), job(2)].map(|spec| {
            let job = c.submit(spec);
            (job, on(c, job))
        });
        assert_eq!(short.1, [0, 1, 2, 3], "it is gone in time");
        c.finish(short.0);
        for (job, _) in [long, endless] {
            assert!(on(c, job).iter().all(|&node| node > 1), "{:?}", on(c, job));
            c.finish(job);
        }
        let wide = c.submit(limited(5, 101));
        let leaves = WaitReason::Leaves { node: NodeId(0), unix_ms: 100_000, limited: true };
        assert_eq!(why(c, wide), Some(leaves));
        let unlimited = c.submit(job(8));
        let leaves = WaitReason::Leaves { node: NodeId(0), unix_ms: 100_000, limited: false };
        assert_eq!(why(c, unlimited), Some(leaves));
        // They hold up no other.
        let beside = c.submit(limited(4, 10));
        assert!(runs(c, beside));
        c.finish(beside);
        // Without the change they start, in the order of the policy.
        c.event(Event::SetTimed { number: 1, entry: None });
        for _ in 0..2 {
            let starts = [wide, unlimited].into_iter();
            let known = |&job: &JobId| c.core.job(job, ClusterTime(c.now)).is_some();
            let first = starts.filter(known).find(|&job| runs(c, job)).unwrap();
            c.finish(first);
        }
    });
}

#[test]
fn nodes_go_out_and_come_back_and_their_jobs_run_on() {
    everywhere(|c| {
        let gpu = NodeSetName::new("gpu");
        c.event(Event::SetNodeSet { name: gpu.clone(), nodes: [NodeId(3)].into() });
        let stays = c.submit(job(8));
        let set = NamedNodes { list: "set:gpu".into(), nodes: [].into(), sets: [gpu].into() };
        let (goes, comes) =
            (plan(c, out(set.clone()), 10), plan(c, TimedChange::In { nodes: set }, 20));
        due(c, &[goes]);
        assert!(runs(c, stays));
        assert_eq!(drained(c), [false, false, false, true]);
        c.finish(stays);
        let waits = c.submit(job(8));
        assert_eq!(why(c, waits), Some(WaitReason::Nodes));
        due(c, &[comes]);
        assert!(runs(c, waits));
        assert_eq!(c.core.timed().count(), 0, "each was for one moment");
        c.finish(waits);
    });
}

#[test]
fn a_node_that_an_administrator_drained_comes_back_by_no_change() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let drain = |node, reason: Option<&str>| Event::SetDrained {
        node: NodeId(node),
        reason: reason.map(Into::into),
    };
    c.event(drain(0, Some("broken")));
    let goes = plan(&mut c, out(nodes(&[0, 1, 2])), 10);
    let comes = plan(&mut c, TimedChange::In { nodes: nodes(&[0, 1, 2]) }, 20);
    due(&mut c, &[goes]);
    assert_eq!(drained(&c), [true, true, true]);
    // By hand, after the change.
    c.event(drain(1, Some("broken too")));
    due(&mut c, &[comes]);
    assert_eq!(drained(&c), [true, true, false]);
}

#[test]
fn moments_that_come_together_come_in_their_order() {
    let mut c = Cluster::with_nodes(&[2]);
    let goes = plan(&mut c, out(nodes(&[0])), 10);
    let comes = plan(&mut c, TimedChange::In { nodes: nodes(&[0]) }, 10);
    let waits = c.submit(job(2));
    let due_again = |numbers: [u32; 2], c: &Cluster| {
        let next = Some(moment(c, 1000));
        let due = numbers.map(|number| DueChange { number, unix_ms: 7, next });
        Event::TimedDue { due: due.to_vec() }
    };
    let event = due_again([comes, goes], &c);
    c.event(event);
    assert_eq!(drained(&c), [true]);
    let event = due_again([goes, comes], &c);
    c.event(event);
    assert_eq!(drained(&c), [false], "nothing started between the two");
    assert!(!runs(&c, waits), "the next moment is nearer than it lasts");
    assert_eq!(c.core.timed().map(|(_, it)| it.last.as_ref().unwrap().unix_ms).sum::<u64>(), 14);
}

#[test]
fn how_long_before_it_is_looked_at_how_long_jobs_last() {
    let mut c = Cluster::with_nodes(&[2]);
    let ahead = Some(Nanos::from_secs(100));
    plan(&mut c, TimedChange::Out { nodes: nodes(&[0]), ahead }, 1000);
    let early = c.submit(job(2));
    assert!(runs(&c, early), "there is time");
    c.finish(early);
    c.advance(901 * SECOND);
    let late = c.submit(job(2));
    assert!(!runs(&c, late));
    let short = c.submit(limited(2, 90));
    assert!(runs(&c, short));
}

#[test]
fn parameters_change_or_it_is_said_why_not() {
    let mut c = Cluster::with_nodes(&[2]);
    let mut set = Overrides::default();
    set.params.insert("rows".into(), 3);
    let rows = plan(&mut c, TimedChange::Set(set.clone()), 10);
    set.classes.insert(ClassName::new("gone"), [("share".into(), 1)].into());
    let gone = plan(&mut c, TimedChange::Set(set.clone()), 10);
    set.params.insert("rows".into(), 9);
    due(&mut c, &[gone]);
    assert_ne!(c.core.params().get("rows"), Some(9), "all of it, or nothing");
    let entry = c.core.timed().find(|(number, _)| *number == gone).unwrap().1;
    assert_eq!(entry.last.as_ref().unwrap().failed.as_deref(), Some("there is no class gone"));
    due(&mut c, &[rows]);
    assert_eq!(c.core.params().get("rows"), Some(3));
    assert_eq!(c.core.settings().params.get("rows"), Some(3), "also when no period holds");
}

#[test]
fn held_jobs_are_released_by_number_queue_and_class() {
    let mut c = Cluster::with_nodes(&[8]);
    let queue = QueueName::new("night");
    c.event(Event::SetQueue { name: queue.clone(), spec: Some(QueueSpec::default()) });
    let mut held = |queue: Option<&QueueName>, class: &str, by| {
        let options =
            SubmitOptions { hold: Some(by), queue: queue.cloned(), ..SubmitOptions::default() };
        let spec = JobSpec { class: ClassName::new(class), ..job(1) };
        c.submits(|request| Event::submit(request, spec, options)).unwrap()
    };
    let of_queue = held(Some(&queue), "production", HeldBy::Owner);
    let of_class = held(None, "standby", HeldBy::Administrator);
    let [numbered, other] = [1, 2].map(|_| held(None, "production", HeldBy::Owner));
    let named = NamedJobs {
        jobs: [numbered].into(),
        queues: [queue].into(),
        classes: [ClassName::new("standby")].into(),
    };
    let release = plan(&mut c, TimedChange::Release(named), 10);
    due(&mut c, &[release]);
    assert!([of_queue, of_class, numbered].iter().all(|&job| runs(&c, job)));
    assert_eq!(why(&c, other), Some(WaitReason::Held { by: HeldBy::Owner }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Under all policies but `deadline`, which has promised: no job that starts once a change is
    /// known could be on its nodes after the moment, by its limit.
    #[test]
    fn no_job_is_started_where_its_limit_is_too_long(
        policy in 0u64..3,
        discipline in 0u64..4,
        packing in 0u64..3,
        placement in 0u64..5,
        leaves in 20u64..200,
        jobs in prop::collection::vec((1u32..7, 1u64..200, any::<bool>(), any::<bool>()), 1..20),
    ) {
        let mut c = Cluster::with_nodes(&[2, 4, 2]);
        let set = [
            ("policy", policy),
            ("discipline", discipline),
            ("packing", packing),
            ("placement", placement),
        ];
        c.event(Event::SetParams { params: params(&set) });
        plan(&mut c, out(nodes(&[1])), leaves);
        let end = ClusterTime(c.now) + Nanos::from_secs(leaves);
        let mut asked = Vec::new();
        for (tasks, limit, bound, ends) in jobs {
            let each = bound.then_some(1);
            let spec = JobSpec { processors_per_task: each, ..limited(tasks, limit) };
            asked.extend(c.try_submit(spec));
            c.advance(3 * SECOND);
            let known = |job: &JobId| c.core.job(*job, ClusterTime(c.now)).is_some();
            let running = asked.iter().copied().filter(known).find(|&job| runs(&c, job));
            if let Some(job) = running.filter(|_| ends) {
                c.finish(job);
            }
            for view in c.core.jobs(ClusterTime(c.now)) {
                if let JobState::Running { since } = view.state
                    && view.placements.iter().any(|placed| placed.node == NodeId(1))
                {
                    let gone = since + view.spec.time_limit.unwrap();
                    prop_assert!(gone <= end, "job {} is there until {gone:?}", view.id);
                }
            }
        }
    }
}
