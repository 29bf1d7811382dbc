//! The memory of jobs that leaves while they do not run.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use tutti_core::{
    CheckpointOrder, Event, JobState, Place, SubmitOptions, SwapCourse, SwapView, WaitReason,
};
use tutti_types::{Checkpoint, ClassName, ClusterTime, JobId, JobSpec, Nanos, NodeId};

/// Four rows on two processors with 1000 bytes of memory.
fn cluster() -> Cluster {
    let mut c = Cluster::new(params(&[("rows", 4)]));
    c.join(0, 2);
    c
}

/// Two tasks with so many bytes each.
fn tasks(bytes: u64) -> JobSpec {
    JobSpec { memory_per_task_bytes: Some(bytes), ..job(2) }
}

fn submit(c: &mut Cluster, bytes: u64) -> JobId {
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, tasks(bytes), options)).unwrap()
}

fn counted(c: &Cluster) -> u64 {
    c.core.nodes().next().unwrap().admitted_bytes
}

fn view(c: &Cluster, job: JobId) -> Option<SwapView> {
    c.core.job(job, ClusterTime(c.now)).unwrap().swap
}

fn course(c: &Cluster, job: JobId) -> Option<SwapCourse> {
    view(c, job).map(|it| it.course)
}

/// Whether a job has turns by the latest timetable.
fn has_turns(c: &Cluster, job: JobId) -> bool {
    let slots = c.core.timetable(NodeId(0)).unwrap().slots;
    slots.iter().flat_map(|slot| &slot.candidates).any(|it| it.launch.job == job)
}

#[test]
fn memory_is_free_once_it_has_left_and_whole_before_the_job_runs_again() {
    let mut c = cluster();
    let first = submit(&mut c, 300);
    let second = c.submit(tasks(300));
    assert_eq!(why(&c, second), Some(WaitReason::Memory));
    c.event(Event::Suspend { job: first });
    assert_eq!(why(&c, second), Some(WaitReason::MemoryLeaves { job: first }));
    assert_eq!(counted(&c), 600, "it has not left");
    c.answer_swap(0, 50);
    assert_eq!(why(&c, second), None, "300 bytes are free");
    assert_eq!(counted(&c), 900);
    assert_eq!(view(&c, first).map(|it| (it.left_bytes, it.freed_bytes)), Some((300, 300)));
    c.event(Event::Resume { job: first });
    assert_eq!((course(&c, first), counted(&c)), (Some(SwapCourse::Wanted), 1000));
    assert!(!has_turns(&c, first), "200 bytes are missing");
    c.finish(second);
    assert_eq!((course(&c, first), counted(&c)), (Some(SwapCourse::In), 600));
    assert!(!has_turns(&c, first), "it is on its way");
    c.answer_swap(0, 0);
    assert_eq!(course(&c, first), None);
    assert!(has_turns(&c, first));
}

#[test]
fn jobs_that_did_not_ask_are_swapped_only_where_the_parameter_says_so() {
    for (swap, asks, leaves) in
        [(0, true, true), (0, false, false), (1, false, true), (2, true, false)]
    {
        let mut c = cluster();
        c.event(Event::SetParams { params: params(&[("rows", 2), ("swap", swap)]) });
        let job = if asks { submit(&mut c, 300) } else { c.submit(tasks(300)) };
        c.event(Event::Suspend { job });
        assert_eq!(course(&c, job).is_some(), leaves, "swap={swap}, asks: {asks}");
    }
}

#[test]
fn a_job_is_where_it_was_if_nothing_has_left() {
    let mut c = cluster();
    let first = submit(&mut c, 300);
    c.event(Event::Suspend { job: first });
    c.answer_swap(0, 100);
    assert_eq!(counted(&c), 600);
    c.event(Event::Resume { job: first });
    c.answer_swap(0, 0);
    assert!(has_turns(&c, first));
}

#[test]
fn a_job_that_is_resumed_while_its_memory_leaves_waits_for_the_nodes_alone() {
    let mut c = cluster();
    let first = submit(&mut c, 300);
    c.event(Event::Suspend { job: first });
    c.event(Event::Resume { job: first });
    assert_eq!((course(&c, first), counted(&c)), (Some(SwapCourse::In), 600));
    // The answer to the first order is late.
    c.answer_swap(0, 0);
    assert_eq!((course(&c, first), counted(&c)), (Some(SwapCourse::In), 600));
    c.answer_swap(0, 0);
    assert!(has_turns(&c, first));
}

#[test]
fn a_job_that_waits_for_its_memory_takes_it_before_later_ones() {
    let mut c = cluster();
    let first = submit(&mut c, 300);
    c.event(Event::Suspend { job: first });
    c.answer_swap(0, 0);
    let second = c.submit(tasks(250));
    let third = c.submit(tasks(250));
    assert_eq!((why(&c, second), why(&c, third)), (None, None));
    c.event(Event::Resume { job: first });
    let later = c.submit(tasks(50));
    c.finish(second);
    assert_eq!(why(&c, later), Some(WaitReason::Memory), "what came free is the first's");
    c.finish(third);
    c.answer_swap(0, 0);
    assert!(has_turns(&c, first));
    assert_eq!(why(&c, later), None);
}

#[test]
fn a_job_that_is_asked_to_end_comes_back_first_and_is_killed_if_it_cannot() {
    let mut c = cluster();
    let first = submit(&mut c, 300);
    c.event(Event::Suspend { job: first });
    c.answer_swap(0, 0);
    let second = c.submit(tasks(500));
    c.cancel(first, false);
    assert_eq!(course(&c, first), Some(SwapCourse::Wanted));
    assert!(!has_turns(&c, first));
    c.advance_ms(600_000);
    c.deliver_kills();
    assert!(c.outcomes.contains_key(&first));
    assert_eq!(counted(&c), 1000);
    c.finish(second);
    assert_eq!(counted(&c), 0);
}

#[test]
fn a_job_that_is_to_save_its_state_has_its_grace_once_its_memory_is_back() {
    let mut c = cluster();
    let grace = Nanos::from_secs(10);
    let saves = Checkpoint { signal: 10, only_shell: false, grace, exit_code: None, every: None };
    let options = SubmitOptions { swap: true, checkpoint: Some(saves), ..SubmitOptions::default() };
    let first = c.submits(|request| Event::submit(request, tasks(300), options)).unwrap();
    c.event(Event::Suspend { job: first });
    c.answer_swap(0, 0);
    let second = c.submit(tasks(500));
    let order = CheckpointOrder::End { force: true, hold: false };
    c.event(Event::Checkpoint { job: first, order });
    c.advance_ms(60_000);
    assert_eq!(course(&c, first), Some(SwapCourse::Wanted), "it waits, and is not ended");
    c.finish(second);
    c.answer_swap(0, 0);
    assert!(has_turns(&c, first));
    let is_asked_to_end = |c: &Cluster| {
        let state = c.core.job(first, ClusterTime(c.now)).unwrap().state;
        matches!(state, JobState::Ending { .. })
    };
    c.advance_ms(9_000);
    assert!(!is_asked_to_end(&c));
    c.advance_ms(2_000);
    assert!(is_asked_to_end(&c), "its grace is over");
}

#[test]
fn memory_of_a_preempted_job_leaves_and_comes_back_with_its_processors() {
    let mut c = Cluster::new(params(&[("policy", 2), ("rows", 2)]));
    c.join(0, 2);
    let first = submit(&mut c, 300);
    c.event(Event::Suspend { job: first });
    c.arrive();
    let place = |c: &Cluster| c.core.job(first, ClusterTime(c.now)).unwrap().place;
    assert_eq!(place(&c), Place::Aside);
    c.answer_swap(0, 0);
    let second = c.submit(tasks(400));
    assert_eq!(why(&c, second), None);
    c.event(Event::Resume { job: first });
    assert_eq!((place(&c), course(&c, first)), (Place::Aside, Some(SwapCourse::Out)));
    // It comes back at once, whatever `swap_cost` says of jobs that were preempted.
    c.finish(second);
    c.arrive();
    assert_eq!((place(&c), course(&c, first)), (Place::Home, Some(SwapCourse::In)));
    c.answer_swap(0, 0);
    assert!(has_turns(&c, first));
}

#[test]
fn an_agent_that_joins_again_gets_the_orders_that_it_has_not_answered() {
    let mut c = cluster();
    let first = submit(&mut c, 300);
    c.event(Event::Suspend { job: first });
    let orders = |c: &Cluster| {
        let is_order = |it: &&tutti_core::Action| matches!(it, tutti_core::Action::Swap { .. });
        c.log.iter().filter(is_order).count()
    };
    assert_eq!(orders(&c), 1);
    c.join(0, 2);
    assert_eq!(orders(&c), 2);
    c.answer_swap(1, 0);
    c.join(0, 2);
    assert_eq!(orders(&c), 2, "it has answered");
}

/// Four processors under `policy=classes`, with so much swap space.
fn classes(space_bytes: u64) -> Cluster {
    let mut c = Cluster::new(params(&[("policy", 2)]));
    c.join(0, 4);
    c.event(Event::NodeSwap { node: NodeId(0), space_bytes });
    c
}

fn in_class(class: &str, spec: JobSpec) -> JobSpec {
    JobSpec { class: ClassName::new(class), ..spec }
}

fn submit_to(c: &mut Cluster, class: &str) -> JobId {
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    let spec = in_class(class, tasks(400));
    c.submits(|request| Event::submit(request, spec, options)).unwrap()
}

#[test]
fn a_job_gets_the_memory_of_those_that_are_preempted_for_it() {
    let mut c = classes(1000);
    let idle = submit_to(&mut c, "standby");
    let quick = submit_to(&mut c, "interactive");
    assert!(matches!(why(&c, quick), Some(WaitReason::Reserved { .. })), "{:?}", why(&c, quick));
    c.advance_ms(10_000);
    c.arrive();
    let place = |c: &Cluster| c.core.job(idle, ClusterTime(c.now)).unwrap().place;
    assert_eq!((place(&c), course(&c, idle)), (Place::Aside, Some(SwapCourse::Out)));
    assert_eq!(why(&c, quick), Some(WaitReason::MemoryLeaves { job: idle }));
    c.answer_swap(0, 0);
    assert_eq!(why(&c, quick), None);
    c.finish(quick);
    let stays = |c: &Cluster| c.core.job(idle, ClusterTime(c.now)).unwrap().why_aside;
    assert!(matches!(stays(&c), Some(WaitReason::SwappedOut { .. })), "{:?}", stays(&c));
    c.advance_ms(1);
    c.arrive();
    assert_eq!((place(&c), course(&c, idle)), (Place::Home, Some(SwapCourse::In)));
    c.answer_swap(0, 0);
    assert!(has_turns(&c, idle));
}

#[test]
fn no_job_is_preempted_for_memory_that_cannot_leave() {
    let mut c = classes(100);
    let idle = submit_to(&mut c, "standby");
    let quick = submit_to(&mut c, "interactive");
    assert_eq!(why(&c, quick), Some(WaitReason::Memory));
    c.advance_ms(60_000);
    assert!(has_turns(&c, idle));
}

#[test]
fn memory_that_leaves_for_a_job_is_kept_for_it() {
    let mut c = classes(1000);
    submit_to(&mut c, "standby");
    let quick = submit_to(&mut c, "interactive");
    c.advance_ms(10_000);
    c.arrive();
    let small = JobSpec { memory_per_task_bytes: Some(300), ..job(1) };
    let other = c.submit(in_class("standby", small));
    c.answer_swap(0, 0);
    assert_eq!(why(&c, quick), None);
    assert_eq!(why(&c, other), Some(WaitReason::Memory));
}

#[test]
fn memory_that_is_free_is_kept_for_the_job_that_preempts_others() {
    let mut c = classes(1000);
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    let spec = in_class("standby", tasks(350));
    c.submits(|request| Event::submit(request, spec, options)).unwrap();
    let quick = submit_to(&mut c, "interactive");
    let small = JobSpec { memory_per_task_bytes: Some(300), ..job(1) };
    let other = c.submit(in_class("standby", small));
    assert!(why(&c, other).is_some(), "300 bytes are free, and reserved");
    c.advance_ms(10_000);
    c.arrive();
    c.answer_swap(0, 0);
    assert_eq!(why(&c, quick), None);
}

#[test]
fn a_job_whose_memory_stays_is_not_preempted_for_it_again() {
    let mut c = classes(1000);
    let idle = submit_to(&mut c, "standby");
    let quick = submit_to(&mut c, "interactive");
    let moves = |c: &Cluster| {
        let is_out = |it: &&tutti_core::Action| matches!(it, tutti_core::Action::MoveOut { .. });
        c.log.iter().filter(is_out).count()
    };
    for _ in 0..20 {
        c.advance_ms(5_000);
        c.arrive();
        c.answer_swap(0, 100);
    }
    assert!(has_turns(&c, idle));
    assert_eq!(why(&c, quick), Some(WaitReason::Memory));
    assert_eq!(moves(&c), 1);
}

/// The first memory that is to leave has left; after it there is so much swap space.
fn leave(c: &mut Cluster, space_bytes: u64) {
    c.answer_swap(0, 0);
    c.event(Event::NodeSwap { node: NodeId(0), space_bytes });
}

fn submit_part(c: &mut Cluster, class: &str, (tasks, bytes): (u32, u64)) -> JobId {
    let options = SubmitOptions { swap: true, ..SubmitOptions::default() };
    let spec = JobSpec { memory_per_task_bytes: Some(bytes), ..job(tasks) };
    c.submits(|request| Event::submit(request, in_class(class, spec), options)).unwrap()
}

#[test]
fn what_leaves_for_a_job_counts_though_it_takes_the_swap_space() {
    let mut c = classes(600);
    for _ in 0..2 {
        submit_part(&mut c, "standby", (2, 150));
    }
    let quick = submit_part(&mut c, "interactive", (4, 250));
    c.advance_ms(10_000);
    c.arrive();
    let other = submit_part(&mut c, "standby", (1, 300));
    leave(&mut c, 290);
    let reason = why(&c, quick);
    assert!(matches!(reason, Some(WaitReason::MemoryLeaves { .. })), "{reason:?}");
    assert!(why(&c, other).is_some(), "what has left is kept for the job");
    leave(&mut c, 0);
    assert_eq!(why(&c, quick), None);
}

#[test]
fn swap_space_of_a_job_that_ends_while_it_is_out_is_free_again() {
    let mut c = classes(400);
    let first = submit_part(&mut c, "standby", (2, 150));
    c.event(Event::Suspend { job: first });
    c.arrive();
    leave(&mut c, 100);
    assert_eq!(c.core.swap_space(NodeId(0)), Some(100));
    c.cancel(first, true);
    c.deliver_kills();
    assert!(c.outcomes.contains_key(&first));
    assert_eq!(c.core.swap_space(NodeId(0)), Some(400));
    // One that has come back before has given it back already.
    let second = submit_part(&mut c, "standby", (2, 150));
    c.event(Event::Suspend { job: second });
    c.arrive();
    leave(&mut c, 100);
    c.event(Event::Resume { job: second });
    c.arrive();
    leave(&mut c, 400);
    c.finish(second);
    assert_eq!(c.core.swap_space(NodeId(0)), Some(400));
}

#[test]
fn a_job_does_not_come_back_to_memory_that_is_reserved() {
    let mut c = classes(1000);
    let idle = submit_part(&mut c, "standby", (2, 300));
    let back = submit_part(&mut c, "standby", (1, 300));
    c.event(Event::Suspend { job: back });
    c.arrive();
    leave(&mut c, 700);
    let quick = submit_part(&mut c, "interactive", (2, 400));
    let reserved = |c: &Cluster| matches!(why(c, quick), Some(WaitReason::Reserved { .. }));
    assert!(reserved(&c), "{:?}", why(&c, quick));
    c.event(Event::Resume { job: back });
    c.arrive();
    assert_eq!(course(&c, back), Some(SwapCourse::Out), "400 are free and reserved");
    assert!(reserved(&c), "{:?}", why(&c, quick));
    c.advance_ms(10_000);
    c.arrive();
    c.answer_swap(0, 0);
    assert_eq!(why(&c, quick), None);
    assert_eq!(course(&c, idle), Some(SwapCourse::Out));
    c.finish(quick);
    c.arrive();
    assert_eq!(course(&c, back), Some(SwapCourse::In));
}

#[test]
fn no_job_waits_for_ever_for_memory_that_others_could_give_up() {
    for seed in 1..=300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        let mut c = classes(100 * below(12));
        let production = c.core.classes()[&ClassName::new("production")];
        let spec = production.with("wait", 20_000_000_000).unwrap();
        c.event(Event::SetClass { class: ClassName::new("production"), spec });
        let mut jobs = Vec::new();
        for _ in 0..8 {
            let class =
                ["interactive", "production", "standby"][usize::try_from(below(3)).unwrap()];
            let swap = below(4) > 0;
            let spec = JobSpec {
                memory_per_task_bytes: Some(50 + below(200)),
                ..job(1 + u32::try_from(below(4)).unwrap())
            };
            let spec = in_class(class, spec);
            let options = SubmitOptions { swap, ..SubmitOptions::default() };
            jobs.push(c.submits(|request| Event::submit(request, spec, options)).unwrap());
            c.advance_ms(below(15_000));
            c.arrive();
        }
        for _ in 0..400 {
            jobs.retain(|job| !c.outcomes.contains_key(job));
            c.advance_ms(1_000 + below(3_000));
            c.arrive();
            (0..below(4)).for_each(|_| c.answer_swap(0, below(101)));
            // The first that has its turns ends, now and then.
            let runs = jobs.iter().copied().find(|&job| has_turns(&c, job));
            if let Some(job) = runs.filter(|_| below(3) == 0) {
                c.finish(job);
            }
        }
        let left: Vec<_> = jobs.iter().map(|&job| (job, why(&c, job))).collect();
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
}
