//! The memory of jobs that leaves while they do not run.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use tutti_core::{
    CheckpointOrder, Event, JobState, Place, SubmitOptions, SwapCourse, SwapView, WaitReason,
};
use tutti_types::{Checkpoint, ClusterTime, JobId, JobSpec, Nanos, NodeId};

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
