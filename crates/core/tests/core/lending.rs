//! Idle slots of allocations, which other jobs use until a step wants them: worked out by hand.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::matrix;
use tutti_core::{Event, SubmitOptions};
use tutti_types::{
    ClusterTime, EndReason, FirstStep, JobId, JobSpec, Nanos, NodeId, NodeWish, OnBadExit,
    RequestId, StepId, StepSpec, TaskStatus,
};

const ENDED: TaskStatus = TaskStatus::Exited(0);

fn starts_with(c: &mut Cluster, spec: JobSpec, first: FirstStep) -> JobId {
    let options = SubmitOptions { first, ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, spec, options)).expect("accepted")
}

/// A batch job with a task that only waits, as that of `tutti alloc`.
fn alloc(c: &mut Cluster, spec: JobSpec) -> JobId {
    let job = starts_with(c, spec, FirstStep::Once);
    c.event(Event::Lend { job, lends: true });
    job
}

fn service_ms(c: &Cluster, job: JobId) -> u64 {
    c.core.job(job, ClusterTime(c.now)).unwrap().service.0 / 1_000_000
}

fn lent(c: &Cluster, job: JobId) -> u64 {
    c.core.job(job, ClusterTime(c.now)).unwrap().lent
}

fn has_started(c: &Cluster, job: JobId) -> bool {
    c.core.steps(job).any(|step| !step.parts.is_empty())
}

#[test]
fn a_busy_job_has_all_time_until_a_step_of_an_idle_allocation_starts() {
    let mut c = Cluster::with_nodes(&[2]);
    let (idle, busy) = (alloc(&mut c, job(2)), c.submit(job(2)));
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0-1\n");
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 -: 1@0/0-1\n2 100ms: 2@0/0-1\n");
    let before = service_ms(&c, busy);
    c.advance_ms(10_000);
    assert_eq!(service_ms(&c, busy) - before, 10_000);
    c.start_step(idle, (2, 1), false);
    assert!(has_started(&c, idle), "at once");
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1\n2 100ms: 2@0/0-1\n");
    let before = service_ms(&c, busy);
    c.advance_ms(10_000);
    assert_eq!(service_ms(&c, busy) - before, 5_000);
    c.end_step(0, ENDED);
    c.advance_ms(99);
    assert_eq!(lent(&c, idle), 0, "another step may follow");
    c.advance_ms(1);
    assert_eq!((lent(&c, idle), c.core.frame().slots.len()), (2, 1));
}

#[test]
fn a_job_of_another_row_runs_on_the_slots_that_steps_leave_idle() {
    let mut c = Cluster::with_nodes(&[4]);
    let idle = alloc(&mut c, job(4));
    c.start_step(idle, (1, 1), false);
    let busy = c.submit(job(3));
    c.advance_ms(100);
    assert_eq!(lent(&c, idle), 3);
    // Its processors are not those that are idle, so it has its own row alone.
    assert_eq!(matrix(&c), "1 100ms: 1@0/0\n2 100ms: 2@0/0-2\n");
    c.end_step(0, ENDED);
    c.start_step(idle, (1, 1), false);
    c.finish(busy);
    assert_eq!(lent(&c, idle), 0, "no other row has turns");
}

#[test]
fn a_guest_leaves_when_a_step_wants_its_processors() {
    let mut c = Cluster::with_nodes(&[4]);
    let idle = alloc(&mut c, job(4));
    c.start_step(idle, (2, 1), false);
    let busy = c.submit(job(2));
    let other = c.submit(job(2));
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 (3@0/2-3)\n2 100ms: 2@0/0-1 3@0/2-3\n");
    c.start_step(idle, (1, 1), false);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-3\n2 100ms: 2@0/0-1 3@0/2-3\n");
    c.advance_ms(100);
    assert_eq!((lent(&c, idle), c.core.steps(idle).count()), (1, 2));
    c.finish(busy);
    c.finish(other);
}

#[test]
fn with_a_lead_a_step_starts_when_the_guests_have_left() {
    let mut c = Cluster::with_nodes(&[4]);
    c.event(Event::SetParams { params: params(&[("lead", 20_000_000)]) });
    let idle = alloc(&mut c, job(4));
    c.start_step(idle, (2, 1), false);
    c.submit(job(2));
    c.submit(job(2));
    c.advance_ms(200);
    assert_eq!(lent(&c, idle), 2);
    c.start_step(idle, (1, 1), false);
    c.start_step(idle, (1, 1), false);
    let started = |c: &Cluster| c.core.steps(idle).filter(|step| !step.parts.is_empty()).count();
    assert_eq!((lent(&c, idle), started(&c)), (0, 1));
    c.advance_ms(19);
    assert_eq!(started(&c), 1, "the guest may run still");
    c.advance_ms(1);
    assert_eq!(started(&c), 3);
    c.advance_ms(1_000);
    assert_eq!(lent(&c, idle), 0);
}

#[test]
fn of_allocations_that_are_idle_together_one_has_all_turns_and_lends_nothing() {
    let mut c = Cluster::with_nodes(&[4]);
    let first = alloc(&mut c, job(4));
    c.start_step(first, (1, 1), false);
    let other = alloc(&mut c, job(4));
    c.advance_ms(1_000);
    // The row of the second is the only one that could want what the first does not use.
    assert_eq!((lent(&c, first), lent(&c, other)), (0, 4));
    c.end_step(0, ENDED);
    c.advance_ms(1_000);
    assert_eq!((lent(&c, first), lent(&c, other)), (0, 4));
    c.start_step(other, (1, 1), false);
    c.advance_ms(1_000);
    assert_eq!((lent(&c, first), lent(&c, other)), (4, 0));
}

#[test]
fn nothing_is_lent_with_one_row_and_nothing_of_a_running_script() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let idle = alloc(&mut c, job(2));
    c.advance_ms(1_000);
    assert_eq!(lent(&c, idle), 0);
    let script = starts_with(&mut c, job(4), FirstStep::Once);
    c.advance_ms(1_000);
    // The script may use all of its first node, and has no task on the other.
    assert_eq!((lent(&c, idle), lent(&c, script)), (2, 0), "only the row of the script has turns");
    c.submit(job(4));
    c.advance_ms(100);
    assert_eq!(lent(&c, script), 2);
}

#[test]
fn slots_for_tasks_that_may_be_spawned_are_lent() {
    let mut c = Cluster::with_nodes(&[4]);
    let spawner = starts_with(&mut c, job(4), FirstStep::Tasks(2));
    let busy = c.submit(job(2));
    c.submit(job(2));
    c.advance_ms(100);
    assert_eq!(matrix(&c), "1 100ms: 1@0/0-1 (3@0/2-3)\n2 100ms: 2@0/0-1 3@0/2-3\n");
    // The spawn of one task (each 0: by the first step).
    c.start_step(spawner, (3, 0), false);
    assert!(!has_started(&c, spawner), "only two slots are free");
    c.finish(busy);
}

#[test]
fn what_is_spawned_in_slots_that_are_lent_is_refused_where_others_wait_for_them() {
    let mut c = Cluster::with_nodes(&[4]);
    let spawner = starts_with(&mut c, job(4), FirstStep::Tasks(2));
    let busy = c.submit(job(2));
    c.submit(job(2));
    c.advance_ms(100);
    assert_eq!(lent(&c, spawner), 2);
    let params = params(&[("lead", 50_000_000)]);
    c.event(Event::SetParams { params });
    for key in 0..3 {
        let spec = StepSpec {
            tasks: 1,
            processors_per_task: None,
            overlap: false,
            nodes: None,
            grace: Nanos::from_millis(50),
            on_bad_exit: OnBadExit::KillOnSignal,
            lender: None,
            beside: None,
            spawned_by: Some(StepId::FIRST),
            on_node: None,
        };
        let request = RequestId(1000 + u64::from(key));
        c.event(Event::SubmitStep { request, job: spawner, key: [key; 16], spec });
    }
    c.advance_ms(100);
    let steps = |c: &Cluster| c.steps.keys().filter(|key| key.job == spawner).count();
    assert_eq!(steps(&c), 2, "two slots are free, and the third is refused at once");
    assert!(c.step_outcomes.is_empty(), "{:?}", c.step_outcomes);
    c.finish(busy);
}

#[test]
fn what_is_lent_is_charged_to_no_account_and_the_limit_goes_on_by_the_clock() {
    let mut c = Cluster::with_nodes(&[2]);
    let limit = Some(Nanos::from_secs(5));
    let idle = alloc(&mut c, JobSpec { time_limit: limit, ..job(2) });
    let busy = c.submit(job(2));
    c.advance_ms(100);
    let before = service_ms(&c, idle);
    c.advance_ms(2_000);
    assert_eq!(service_ms(&c, idle) - before, 2_000);
    assert_eq!(service_ms(&c, busy) + before, 2_100);
    c.advance_ms(2_850);
    assert!(c.core.job(idle, ClusterTime(c.now)).is_some());
    c.advance_ms(100);
    c.advance_ms(1_000);
    c.deliver_kills();
    assert_eq!(c.outcomes[&idle].reason, EndReason::TimedOut);
}

#[test]
fn a_lender_that_is_to_end_or_to_go_on_has_its_turns_again() {
    let mut c = Cluster::with_nodes(&[2]);
    let (idle, _) = (alloc(&mut c, job(2)), c.submit(job(2)));
    c.advance_ms(100);
    assert!(c.core.lends_all(idle));
    c.event(Event::Lend { job: idle, lends: false });
    assert!(!c.core.lends_all(idle));
    c.event(Event::Lend { job: idle, lends: true });
    c.advance_ms(100);
    assert!(c.core.lends_all(idle));
    c.event(Event::Suspend { job: idle });
    assert!(!c.core.lends_all(idle));
    c.event(Event::Resume { job: idle });
    assert!(c.core.lends_all(idle), "it is idle as before");
    c.cancel(idle, false);
    assert_eq!(c.core.frame().slots.len(), 2, "it may clean up in its turns");
}

#[test]
fn a_job_with_nodes_to_itself_lends_all_or_nothing() {
    let mut c = Cluster::with_nodes(&[4]);
    let nodes = NodeWish { exclusive: true, ..NodeWish::default() };
    let idle = alloc(&mut c, JobSpec { nodes, ..job(4) });
    c.submit(job(4));
    c.advance_ms(100);
    assert_eq!(lent(&c, idle), 4);
    c.start_step(idle, (1, 1), false);
    c.advance_ms(500);
    assert_eq!(lent(&c, idle), 0);
    assert!(c.core.timetable(NodeId(0)).is_some());
}

/// The first job is a guest in the row of the third, on other nodes than that. What it lends there
/// is for none: the second job, which runs on it in the row of the first, does so in no other.
#[test]
fn what_a_guest_lends_is_idle_in_its_own_turns_alone() {
    let mut c = Cluster::new(params(&[("policy", 5)]));
    for (node, width) in [(0, 1), (1, 4), (2, 1)] {
        c.join(node, width);
    }
    let idle = starts_with(&mut c, job(5), FirstStep::Once);
    let busy = c.submit(job(2));
    c.advance_ms(100);
    assert_eq!((lent(&c, idle), c.core.runs_in(busy).len()), (4, 2));
    c.submit(job(1));
    assert_eq!((c.core.rows().count(), c.core.runs_in(busy).len()), (3, 2));
}
