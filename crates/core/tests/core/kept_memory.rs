//! Memory that classes keep on each node.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tutti_core::policy::POLICIES;
use tutti_core::{Event, JobState, SubmitOptions, WaitReason};
use tutti_types::class::default_classes;
use tutti_types::param::NodePart;
use tutti_types::{ClassName, ClusterTime, JobId, JobSpec, NodeId, Refusal};

/// Tasks of a class with so many bytes each.
fn asks(class: &str, tasks: u32, bytes: u64) -> JobSpec {
    let class = ClassName::new(class);
    JobSpec { class, memory_per_task_bytes: Some(bytes), ..job(tasks) }
}

fn keep(c: &mut Cluster, class: &str, memory: NodePart) {
    let class = ClassName::new(class);
    let spec = c.core.classes()[&class].with("memory", memory.value()).unwrap();
    c.event(Event::SetClass { class, spec });
}

/// A node of four processors and 1000 bytes, of which `interactive` keeps 40 %.
fn cluster() -> Cluster {
    let mut c = Cluster::with_nodes(&[4]);
    keep(&mut c, "interactive", NodePart::Part(4000));
    c
}

#[test]
fn jobs_of_other_classes_get_none_of_it_and_a_quick_job_does() {
    let mut c = cluster();
    let long = c.submit(asks("production", 1, 500));
    let waits = c.submit(asks("production", 1, 200));
    assert_eq!((why(&c, long), why(&c, waits)), (None, Some(WaitReason::KeptMemory)));
    assert_eq!(WaitReason::KeptMemory.word(), "memory");
    let plain = c.submit(job(1));
    assert_eq!(why(&c, plain), Some(WaitReason::Behind(waits)));
    let quick = c.submit(asks("interactive", 1, 400));
    assert_eq!(why(&c, quick), None);
    // It has what its class keeps, so nothing more is kept from the others.
    let small = c.submit(asks("interactive", 1, 100));
    assert_eq!(why(&c, small), None);
    c.finish(small);
    assert_eq!(why(&c, waits), Some(WaitReason::Memory), "only 100 bytes are free at all");
    c.finish(quick);
    assert_eq!(why(&c, waits), Some(WaitReason::KeptMemory));
    c.finish(long);
    assert_eq!((why(&c, waits), why(&c, plain)), (None, None));
}

#[test]
fn what_never_fits_beside_it_is_declined_with_what_would() {
    let mut c = cluster();
    assert_eq!(c.try_submit(asks("production", 1, 700)), None);
    let refusal = Refusal::TooMuchMemory { asked_bytes: 700, available_bytes: 600 };
    assert_eq!(c.refusals.pop(), Some(refusal));
    assert!(c.try_submit(asks("interactive", 1, 700)).is_some());
}

#[test]
fn a_change_takes_nothing_from_jobs_and_holds_at_once() {
    let mut c = Cluster::with_nodes(&[4]);
    let first = c.submit(asks("production", 1, 700));
    let waits = c.submit(asks("production", 1, 700));
    assert_eq!(why(&c, waits), Some(WaitReason::Memory));
    keep(&mut c, "interactive", NodePart::Bytes(500));
    c.finish(first);
    // It was accepted before, and would be declined now.
    assert_eq!(why(&c, waits), Some(WaitReason::KeptMemory));
    keep(&mut c, "interactive", NodePart::Bytes(300));
    assert_eq!(why(&c, waits), None);
}

#[test]
fn a_job_that_changes_its_class_leaves_what_the_other_keeps() {
    let mut c = cluster();
    let quick = c.submit(asks("interactive", 1, 400));
    let long = c.submit(asks("production", 1, 300));
    let waits = c.submit(asks("production", 1, 300));
    assert_eq!(why(&c, waits), None);
    c.finish(waits);
    let class = ClassName::new("production");
    c.event(Event::SetJobClass { job: quick, class });
    let waits = c.submit(asks("production", 1, 200));
    assert_eq!(why(&c, waits), Some(WaitReason::KeptMemory), "700 of 600 bytes are theirs");
    let class = ClassName::new("interactive");
    c.event(Event::SetJobClass { job: long, class });
    assert_eq!(why(&c, waits), None, "of 300 free bytes only 100 are kept now");
}

#[test]
fn a_job_comes_back_from_swap_space_only_beside_what_is_kept() {
    let mut c = cluster();
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    let swaps = |c: &mut Cluster, bytes| {
        let spec = asks("production", 1, bytes);
        c.submits(|request| Event::submit(request, spec, options.clone())).unwrap()
    };
    let out = swaps(&mut c, 500);
    c.event(Event::Suspend { job: out });
    c.answer_swap(0, 0);
    let other = c.submit(asks("production", 1, 300));
    assert_eq!(why(&c, other), None);
    c.event(Event::Resume { job: out });
    let counted = |c: &Cluster| c.core.nodes().next().unwrap().admitted_bytes;
    assert_eq!(counted(&c), 600, "of 700 free bytes 400 are kept");
    c.finish(other);
    assert_eq!(counted(&c), 500);
    c.drain();
}

#[test]
fn parts_of_all_classes_are_no_more_than_the_whole() {
    let classes = default_classes();
    let spec = |part| classes[&ClassName::new("standby")].with("memory", part).unwrap();
    let mut others = classes.clone();
    let most = NodePart::Part(7000).value();
    others.get_mut(&ClassName::new("production")).unwrap().set("memory", most).unwrap();
    let check =
        |part| spec(NodePart::Part(part).value()).check(&ClassName::new("standby"), &others);
    assert!(check(3000).is_ok());
    let said = check(3001).unwrap_err().to_string();
    assert!(said.contains("70%") && said.contains("at most 30%"), "{said}");
    assert!(classes[&ClassName::new("standby")].with("memory", NodePart::MAX + 1).is_err());
}

/// Memory of the nodes that is kept and that jobs of the class do not have yet is free.
fn is_kept(c: &Cluster) -> bool {
    let mut has: BTreeMap<(NodeId, ClassName), u64> = BTreeMap::new();
    for view in c.core.jobs(ClusterTime(c.now)) {
        for part in c.core.parts(view.id) {
            let bytes = view.spec.memory_per_task_bytes.unwrap_or(0) * u64::from(part.tasks);
            *has.entry((part.node, view.spec.class.clone())).or_default() += bytes;
        }
    }
    c.core.nodes().all(|node| {
        let total = node.spec.memory_bytes;
        let kept = c.core.classes().iter().map(|(class, spec)| {
            let has = has.get(&(node.id, class.clone())).copied().unwrap_or(0);
            spec.memory().bytes(total).saturating_sub(has)
        });
        node.admitted_bytes + kept.sum::<u64>() <= total
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is submitted and ends, under every policy and discipline: what classes keep is
    /// there for their jobs, and each accepted job runs in the end.
    #[test]
    fn what_is_kept_stays_free_for_the_class(
        policy in 0..POLICIES.len(),
        queue in prop::sample::select(vec!["fcfs", "easy", "sjbf", "conservative"]),
        kept in (0..3000u64, 0..600u64),
        jobs in prop::collection::vec((0..4usize, 1..7u32, 1..500u64, any::<bool>()), 1..25),
    ) {
        let mut params = params(&[("rows", 3)]);
        params.choose("policy", POLICIES[policy].name).unwrap();
        params.choose("discipline", queue).unwrap();
        let mut c = Cluster::new(params);
        (0..2).for_each(|node| c.join(node, 4));
        keep(&mut c, "interactive", NodePart::Part(kept.0));
        keep(&mut c, "benchmark", NodePart::Bytes(kept.1));
        let mut ids = Vec::new();
        for (class, tasks, bytes, ends) in jobs {
            let class = ["interactive", "benchmark", "production", "standby"][class];
            ids.extend(c.try_submit(asks(class, tasks, bytes)));
            prop_assert!(is_kept(&c));
            if ends && let Some(runs) = c.first_running(&ids) {
                c.finish(runs);
                prop_assert!(is_kept(&c));
            }
        }
        let lives = |c: &Cluster, id: &JobId| c.core.job(*id, ClusterTime(c.now)).is_some();
        while ids.iter().any(|id| lives(&c, id)) {
            let runs = c.first_running(&ids).expect("one of those that are left runs");
            c.finish(runs);
            prop_assert!(is_kept(&c));
        }
        let is_running = |state: &JobState| matches!(state, JobState::Running { .. });
        prop_assert!(!c.core.jobs(ClusterTime(c.now)).any(|view| is_running(&view.state)));
    }
}
