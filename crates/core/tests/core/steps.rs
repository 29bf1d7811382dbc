//! Jobs that are more than a task in each slot: batch jobs, which are held, and further steps.

use crate::cluster::{Cluster, job};
use crate::scenarios::matrix;
use tutti_core::{Action, Event, JobState, StepAction, SubmitOptions};
use tutti_types::{
    ClusterTime, EndReason, FirstStep, JobId, JobSpec, Nanos, NodeId, OnBadExit, OnNodeLoss, Rank,
    RequestId, StepId, StepKey, StepRefusal, StepSpec, TaskStatus,
};

/// A batch job is submitted, and accepted.
fn batch(cluster: &mut Cluster, spec: JobSpec) -> JobId {
    let options = SubmitOptions { first: FirstStep::Once, ..SubmitOptions::default() };
    cluster.submits(|request| Event::submit(request, spec, options)).expect("accepted")
}

/// The nodes that were told to end what they have of a job.
fn killed_on(cluster: &Cluster, job: JobId) -> Vec<u32> {
    let node = |action: &Action| match action {
        Action::Kill { job: of, node } if *of == job => Some(node.0),
        _ => None,
    };
    cluster.log.iter().filter_map(node).collect()
}

fn is_running(cluster: &Cluster, job: JobId) -> bool {
    let view = cluster.core.job(job, ClusterTime(cluster.now));
    matches!(view.map(|view| view.state), Some(JobState::Running { .. }))
}

#[test]
fn a_batch_job_has_one_task_and_all_its_slots() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let job_of_three = batch(&mut cluster, job(3));
    let view = cluster.core.job(job_of_three, ClusterTime(0)).unwrap();
    assert_eq!(view.first, FirstStep::Once);
    let parts: Vec<(u32, u32, u32)> =
        view.placements.iter().map(|it| (it.slots, it.tasks, it.processors.count())).collect();
    assert_eq!(parts, [(2, 1, 2), (1, 0, 1)]);
    // The one processor that is left is not enough for another of two.
    let other = cluster.submit(job(2));
    let rows = cluster.core.rows().count();
    assert_eq!((rows, is_running(&cluster, other)), (2, true), "it takes turns with the other");
}

#[test]
fn a_part_without_a_task_has_its_turns_until_the_job_is_released() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let held = batch(&mut cluster, job(4));
    let other = cluster.submit(job(4));
    cluster.advance_ms(2_000);
    let got = cluster.core.job(held, ClusterTime(cluster.now)).unwrap().service;
    assert!(got.0 > 0 && is_running(&cluster, other));
    // Nothing has ended, so no other runs in its place on the node without a task.
    for node in [0, 1] {
        assert!(!cluster.core.timetable(NodeId(node)).unwrap().slots.is_empty());
    }
    assert!(killed_on(&cluster, held).is_empty());
    cluster.end_task(held, 0, TaskStatus::Exited(7));
    assert_eq!(killed_on(&cluster, held), [0, 1], "all nodes are told to release it");
    assert!(!cluster.outcomes.contains_key(&held), "until they say that nothing is left");
    cluster.deliver_kills();
    let outcome = cluster.outcomes[&held];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::Completed, 7));
}

#[test]
fn a_batch_job_that_is_cancelled_is_released_when_its_task_ends_or_its_grace_does() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let job_of_four = batch(&mut cluster, job(4));
    cluster.cancel(job_of_four, false);
    assert!(killed_on(&cluster, job_of_four).is_empty(), "it may clean up");
    cluster.end_task(job_of_four, 0, TaskStatus::Signaled(15));
    cluster.deliver_kills();
    let outcome = cluster.outcomes[&job_of_four];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::Cancelled, 143));
    let stubborn = batch(&mut cluster, job(4));
    cluster.cancel(stubborn, false);
    cluster.advance_ms(1_100);
    assert_eq!(killed_on(&cluster, stubborn), [0, 1]);
}

#[test]
fn a_batch_job_that_is_cancelled_and_loses_a_node_has_not_ended_well() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let victim = batch(&mut cluster, job(4));
    cluster.cancel(victim, false);
    cluster.lose(1);
    cluster.deliver_kills();
    let outcome = cluster.outcomes[&victim];
    let lost = TaskStatus::Lost.exit_code();
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::Cancelled, lost));
}

#[test]
fn the_loss_of_a_node_without_a_task_counts() {
    for by_keeper in [false, true] {
        let mut cluster = Cluster::with_nodes(&[2, 2]);
        let victim = batch(&mut cluster, job(4));
        if by_keeper {
            // What held it there is gone.
            let held = cluster.held.get_mut(&victim).unwrap();
            held.tasks.remove(&NodeId(1));
            cluster.event(Event::JobCleared { job: victim, nodes: vec![NodeId(1)] });
        } else {
            cluster.lose(1);
        }
        cluster.deliver_kills();
        let outcome = cluster.outcomes[&victim];
        assert_eq!(outcome.reason, EndReason::NodeLost(NodeId(1)), "by keeper: {by_keeper}");
    }
}

#[test]
fn a_batch_job_that_is_queued_again_is_held_again() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let on_node_loss = OnNodeLoss::Requeue;
    let again = batch(&mut cluster, JobSpec { on_node_loss, ..job(4) });
    cluster.lose(1);
    cluster.deliver_kills();
    cluster.join(1, 2);
    assert!(is_running(&cluster, again));
    let tasks: Vec<u32> = cluster
        .core
        .job(again, ClusterTime(cluster.now))
        .unwrap()
        .placements
        .iter()
        .map(|it| it.tasks)
        .collect();
    assert_eq!(tasks, [1, 0]);
}

#[test]
fn a_batch_job_that_wants_notices_goes_on_without_a_node_but_not_without_its_task() {
    for (lost, ends) in [(1, false), (0, true)] {
        let mut cluster = Cluster::with_nodes(&[2, 2]);
        let on_node_loss = OnNodeLoss::Notify { signal: Some(10) };
        let told = batch(&mut cluster, JobSpec { on_node_loss, ..job(4) });
        cluster.lose(lost);
        assert_eq!(is_running(&cluster, told), !ends, "without node {lost}");
        cluster.deliver_kills();
        assert_eq!(cluster.outcomes.contains_key(&told), ends);
    }
}

/// A job is asked for a step; what the core answers last.
fn step(cluster: &mut Cluster, job: JobId, key: u8, spec: StepSpec) -> Option<Action> {
    let (request, key) = (RequestId(9_000), [key; 16]);
    let before = cluster.log.len();
    cluster.event(Event::SubmitStep { request, job, key, spec });
    let answers = |action: &&Action| !matches!(action, Action::WakeAt { .. });
    cluster.log[before..].iter().rfind(answers).cloned()
}

const fn tasks(tasks: u32) -> StepSpec {
    StepSpec {
        tasks,
        processors_per_task: None,
        overlap: false,
        nodes: None,
        grace: Nanos::from_millis(100),
        on_bad_exit: OnBadExit::KillOnSignal,
        lender: None,
        beside: None,
        spawned_by: None,
        on_node: None,
    }
}

fn nth(job: JobId, step: u32) -> StepKey {
    StepKey { job, step: StepId(step) }
}

/// Where a step has tasks: node, and how many.
fn placed(cluster: &Cluster, key: StepKey) -> Vec<(u32, u32)> {
    cluster.core.step_parts(key).iter().map(|part| (part.node.0, part.tasks)).collect()
}

/// A step ends on all its nodes.
fn finish_step(cluster: &mut Cluster, key: StepKey, status: TaskStatus) {
    cluster.steps.entry(key).and_modify(std::collections::BTreeMap::clear);
    cluster.event(Event::StepTasksEnded { key, ranks: Vec::new(), status });
    cluster.event(Event::StepCleared { key, nodes: Vec::new() });
}

#[test]
fn steps_get_free_processors_in_order_and_wait_for_them() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let all = batch(&mut cluster, job(4));
    assert_eq!(
        step(&mut cluster, all, 1, tasks(3)),
        Some(Action::Step(StepAction::Launch { key: nth(all, 1) }))
    );
    assert_eq!(placed(&cluster, nth(all, 1)), [(0, 2), (1, 1)]);
    step(&mut cluster, all, 2, tasks(2));
    assert_eq!(placed(&cluster, nth(all, 2)), [], "one processor is free");
    step(&mut cluster, all, 3, tasks(1));
    assert_eq!(placed(&cluster, nth(all, 3)), [], "it would fit, and is behind another");
    finish_step(&mut cluster, nth(all, 1), TaskStatus::Exited(0));
    assert_eq!(placed(&cluster, nth(all, 2)), [(0, 2)]);
    assert_eq!(placed(&cluster, nth(all, 3)), [(1, 1)]);
}

#[test]
fn a_step_that_is_larger_than_its_job_is_declined_with_what_the_job_has() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let all = batch(&mut cluster, job(4));
    let refusal = |it: Option<Action>| match it {
        Some(Action::Step(StepAction::Decline { refusal, .. })) => Some(refusal),
        _ => None,
    };
    let has = StepRefusal::TooLarge { tasks: 4, processors: 4, nodes: 2 };
    assert_eq!(refusal(step(&mut cluster, all, 1, tasks(5))), Some(has));
    let wide = StepSpec { processors_per_task: Some(3), ..tasks(1) };
    let has = StepRefusal::TooLarge { tasks: 0, processors: 4, nodes: 2 };
    assert_eq!(refusal(step(&mut cluster, all, 2, wide)), Some(has));
    let spread = StepSpec { nodes: Some(3), ..tasks(3) };
    assert!(refusal(step(&mut cluster, all, 3, spread)).is_some());
    assert_eq!(refusal(step(&mut cluster, all, 4, tasks(0))), Some(StepRefusal::Nothing));
    assert_eq!(refusal(step(&mut cluster, JobId(77), 5, tasks(1))), Some(StepRefusal::NoJob));
    assert_eq!(cluster.core.steps(all).count(), 0);
}

#[test]
fn a_step_on_more_nodes_has_a_task_on_each() {
    let mut cluster = Cluster::with_nodes(&[3, 3]);
    let all = batch(&mut cluster, job(6));
    step(&mut cluster, all, 1, StepSpec { nodes: Some(2), ..tasks(2) });
    assert_eq!(placed(&cluster, nth(all, 1)), [(0, 1), (1, 1)]);
}

#[test]
fn a_step_that_names_a_node_waits_for_that_one_and_its_spawned_kin_does_not() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let all = batch(&mut cluster, job(4));
    let on = |node, spec| StepSpec { on_node: Some(NodeId(node)), ..spec };
    step(&mut cluster, all, 1, on(1, tasks(1)));
    step(&mut cluster, all, 2, on(1, spawned(1, 0)));
    for number in [1, 2] {
        assert_eq!(placed(&cluster, nth(all, number)), [(1, 1)], "{number}");
    }
    let none = step(&mut cluster, all, 3, on(1, spawned(1, 0)));
    assert_eq!(refusal_of(none), Some(StepRefusal::NotFree { slots: 0 }));
    step(&mut cluster, all, 4, on(1, tasks(1)));
    assert_eq!(placed(&cluster, nth(all, 3)), [], "the other node is free");
    finish_step(&mut cluster, nth(all, 1), TaskStatus::Exited(0));
    assert_eq!(placed(&cluster, nth(all, 3)), [(1, 1)]);
    let has = StepRefusal::TooLarge { tasks: 2, processors: 2, nodes: 1 };
    let three = step(&mut cluster, all, 5, on(0, tasks(3)));
    assert_eq!(refusal_of(three), Some(has));
}

#[test]
fn a_step_that_overlaps_waits_for_nothing() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let all = batch(&mut cluster, job(2));
    step(&mut cluster, all, 1, tasks(2));
    let shares = StepSpec { overlap: true, ..tasks(2) };
    assert_eq!(
        step(&mut cluster, all, 2, shares),
        Some(Action::Step(StepAction::Launch { key: nth(all, 2) }))
    );
}

#[test]
fn a_step_beside_a_task_has_its_processors_and_waits_behind_no_other() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let plain = cluster.submit(job(4));
    step(&mut cluster, plain, 1, tasks(2));
    assert_eq!(placed(&cluster, nth(plain, 1)), [], "no processor is free");
    let beside = |rank| StepSpec { beside: Some(Rank(rank)), ..tasks(1) };
    for (number, rank) in [(2, 0), (3, 3)] {
        let key = nth(plain, number.into());
        let launched = step(&mut cluster, plain, number, beside(rank));
        assert_eq!(launched, Some(Action::Step(StepAction::Launch { key })));
        let parts = cluster.core.step_parts(key);
        let of_job = cluster.core.parts(plain).iter().find(|part| part.has(Rank(rank))).unwrap();
        let task = of_job.placements().into_iter().find(|it| it.rank == Rank(rank)).unwrap();
        let found: Vec<_> = parts.iter().map(|it| (it.node, it.processors.clone())).collect();
        assert_eq!(found, [(of_job.node, task.processors)]);
    }
    // It takes nothing from the step that waits, and gives it nothing.
    cluster.end_task(plain, 0, TaskStatus::Exited(0));
    cluster.end_task(plain, 2, TaskStatus::Exited(0));
    assert_eq!(placed(&cluster, nth(plain, 1)), [(0, 1), (1, 1)]);
}

#[test]
fn a_step_beside_a_task_needs_a_rank_whose_node_the_job_has_and_a_job_with_turns() {
    let mut cluster = Cluster::with_nodes(&[1, 1]);
    let plain = cluster.submit(job(2));
    let refusal = |cluster: &mut Cluster, key, rank| {
        let spec = StepSpec { beside: Some(Rank(rank)), ..tasks(1) };
        match step(cluster, plain, key, spec) {
            Some(Action::Step(StepAction::Decline { refusal, .. })) => Some(refusal),
            _ => None,
        }
    };
    let none = |rank| Some(StepRefusal::NoRank { rank: Rank(rank) });
    assert_eq!(refusal(&mut cluster, 1, 2), none(2));
    cluster.end_task(plain, 1, TaskStatus::Exited(0));
    assert_eq!(refusal(&mut cluster, 2, 1), none(1), "its node has left the job");
    cluster.event(Event::Suspend { job: plain });
    assert_eq!(refusal(&mut cluster, 3, 0), Some(StepRefusal::Suspended));
    cluster.event(Event::Resume { job: plain });
    assert_eq!(refusal(&mut cluster, 4, 0), None);
    let two = StepSpec { beside: Some(Rank(0)), ..tasks(2) };
    let answer = step(&mut cluster, plain, 5, two);
    let request = RequestId(9_000);
    let refusal = StepRefusal::Nothing;
    assert_eq!(answer, Some(Action::Step(StepAction::Decline { request, refusal })));
}

#[test]
fn the_task_that_waits_for_a_step_lends_it_its_processor() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let plain = cluster.submit(job(2));
    let lent = StepSpec { lender: Some(Rank(0)), ..tasks(2) };
    step(&mut cluster, plain, 1, lent);
    assert_eq!(placed(&cluster, nth(plain, 1)), [], "rank 1 runs");
    cluster.end_task(plain, 1, TaskStatus::Exited(0));
    assert_eq!(placed(&cluster, nth(plain, 1)), [(0, 2)]);
}

#[test]
fn a_step_that_needs_the_slots_of_a_task_that_has_ended_is_declined_where_none_is_left() {
    let mut cluster = Cluster::with_nodes(&[1, 1]);
    let plain = cluster.submit(job(2));
    let lent = StepSpec { lender: Some(Rank(0)), ..tasks(2) };
    step(&mut cluster, plain, 1, lent);
    assert_eq!(placed(&cluster, nth(plain, 1)), [], "rank 1 runs");
    cluster.end_task(plain, 1, TaskStatus::Exited(0));
    let outcome = cluster.step_outcomes[&nth(plain, 1)];
    assert_eq!(outcome.reason, EndReason::Cancelled, "its node has left the job");
    assert!(matches!(
        step(&mut cluster, plain, 2, lent),
        Some(Action::Step(StepAction::Decline {
            refusal: StepRefusal::TooLarge { tasks: 1, .. },
            ..
        }))
    ));
}

#[test]
fn a_step_that_is_asked_for_again_is_the_same_also_after_its_end() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let all = batch(&mut cluster, job(2));
    step(&mut cluster, all, 1, tasks(1));
    let request = RequestId(9_000);
    let again = step(&mut cluster, all, 1, tasks(1));
    assert_eq!(again, Some(Action::Step(StepAction::Accept { request, key: nth(all, 1) })));
    finish_step(&mut cluster, nth(all, 1), TaskStatus::Exited(4));
    let outcome = cluster.step_outcomes[&nth(all, 1)];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::Completed, 4));
    cluster.step_outcomes.clear();
    let again = step(&mut cluster, all, 1, tasks(1));
    assert_eq!(again, Some(Action::Step(StepAction::Ended { key: nth(all, 1), outcome })));
    assert_eq!(cluster.core.steps(all).count(), 0);
}

#[test]
fn the_matrix_and_the_time_of_a_job_are_the_same_with_a_hundred_steps() {
    let run = |steps: u8| {
        let mut cluster = Cluster::with_nodes(&[4]);
        let all = batch(&mut cluster, job(4));
        let other = cluster.submit(job(4));
        for number in 0..steps {
            step(&mut cluster, all, number, tasks(2));
            cluster.advance_ms(10);
            if number % 2 == 1 {
                for number in [number, number + 1] {
                    finish_step(&mut cluster, nth(all, number.into()), TaskStatus::Exited(0));
                }
            }
        }
        cluster.advance_ms(10 * u64::from(100 - steps));
        cluster.event(Event::Tick);
        let service = [all, other].map(|job| cluster.core.service(job));
        (matrix(&cluster), service, cluster.core.timetable(NodeId(0)))
    };
    assert_eq!(run(0), run(100));
}

#[test]
fn steps_end_with_their_job() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let all = batch(&mut cluster, job(4));
    step(&mut cluster, all, 1, tasks(4));
    step(&mut cluster, all, 2, tasks(1));
    cluster.end_task(all, 0, TaskStatus::Exited(0));
    let waiting = cluster.step_outcomes[&nth(all, 2)];
    assert_eq!(waiting.reason, EndReason::Cancelled, "it will never begin");
    cluster.deliver_kills();
    assert_eq!(cluster.outcomes[&all].reason, EndReason::Completed);
    assert_eq!(cluster.step_outcomes[&nth(all, 1)].exit_code, 137);
}

#[test]
fn a_failing_task_ends_its_step_and_not_the_job() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let all = batch(&mut cluster, job(2));
    step(&mut cluster, all, 1, tasks(2));
    let (key, status) = (nth(all, 1), TaskStatus::Signaled(11));
    cluster.steps.entry(key).and_modify(|it| {
        for ranks in it.values_mut() {
            ranks.remove(&Rank(0));
        }
    });
    cluster.event(Event::StepTasksEnded { key, ranks: vec![Rank(0)], status });
    cluster.deliver_kills();
    let outcome = cluster.step_outcomes[&key];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::TaskFailed, 139));
    assert!(is_running(&cluster, all));
}

#[test]
fn the_loss_of_its_front_end_ends_a_step_alone_after_the_grace() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let all = batch(&mut cluster, job(2));
    step(&mut cluster, all, 1, tasks(1));
    cluster.event(Event::StepFrontEndLost { key: nth(all, 1) });
    let grace = cluster.core.params().front_end_grace();
    cluster.advance(grace.0 + 1);
    cluster.deliver_kills();
    let outcome = cluster.step_outcomes[&nth(all, 1)];
    assert_eq!(outcome.reason, EndReason::FrontEndLost);
    assert!(is_running(&cluster, all));
}

#[test]
fn a_step_that_is_cancelled_has_its_grace() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let all = batch(&mut cluster, job(2));
    step(&mut cluster, all, 1, tasks(1));
    cluster.cancel_step(0, false);
    cluster.deliver_kills();
    assert!(!cluster.step_outcomes.contains_key(&nth(all, 1)));
    cluster.advance_ms(101);
    cluster.deliver_kills();
    assert_eq!(cluster.step_outcomes[&nth(all, 1)].reason, EndReason::Cancelled);
}

#[test]
fn a_lost_node_ends_what_steps_had_there_where_the_job_goes_on() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let on_node_loss = OnNodeLoss::Notify { signal: None };
    let all = batch(&mut cluster, JobSpec { on_node_loss, ..job(4) });
    step(&mut cluster, all, 1, tasks(2));
    step(&mut cluster, all, 2, tasks(2));
    step(&mut cluster, all, 3, tasks(3));
    cluster.lose(1);
    assert_eq!(cluster.step_outcomes[&nth(all, 2)].reason, EndReason::NodeLost(NodeId(1)));
    assert_eq!(cluster.step_outcomes[&nth(all, 3)].reason, EndReason::Cancelled, "too large now");
    assert_eq!(placed(&cluster, nth(all, 1)), [(0, 2)]);
}

/// A job that starts with fewer tasks than it has slots is submitted, and accepted.
fn with_room(cluster: &mut Cluster, slots: u32, tasks: u32) -> JobId {
    let first = FirstStep::Tasks(tasks);
    let options = SubmitOptions { first, ..SubmitOptions::default() };
    cluster.submits(|request| Event::submit(request, job(slots), options)).expect("accepted")
}

const fn spawned(count: u32, by: u32) -> StepSpec {
    StepSpec { spawned_by: Some(StepId(by)), ..tasks(count) }
}

fn refusal_of(action: Option<Action>) -> Option<StepRefusal> {
    match action {
        Some(Action::Step(StepAction::Decline { refusal, .. })) => Some(refusal),
        _ => None,
    }
}

#[test]
fn spawned_tasks_take_free_slots_at_once_or_are_refused() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let job = with_room(&mut cluster, 4, 1);
    let four = step(&mut cluster, job, 1, spawned(4, 0));
    assert_eq!(refusal_of(four), Some(StepRefusal::NotFree { slots: 3 }));
    let launched = Some(Action::Step(StepAction::Launch { key: nth(job, 1) }));
    assert_eq!(step(&mut cluster, job, 2, spawned(3, 0)), launched);
    assert_eq!(placed(&cluster, nth(job, 1)), [(0, 1), (1, 2)]);
    let of_first = cluster.core.parts(job)[0].placements()[0].processors.clone();
    let mut of_child = cluster.core.step_parts(nth(job, 1))[0].processors.clone();
    let before = of_child.count();
    of_child.subtract(&of_first);
    assert_eq!((before, of_child.count()), (1, 1), "none is shared");
    let none = step(&mut cluster, job, 3, spawned(1, 0));
    assert_eq!(refusal_of(none), Some(StepRefusal::NotFree { slots: 0 }), "it does not wait");
    assert_eq!(refusal_of(step(&mut cluster, job, 4, spawned(0, 0))), Some(StepRefusal::Nothing));
    finish_step(&mut cluster, nth(job, 1), TaskStatus::Exited(0));
    step(&mut cluster, job, 5, spawned(3, 0));
    assert_eq!(placed(&cluster, nth(job, 2)), [(0, 1), (1, 2)]);
}

#[test]
fn a_job_is_released_when_its_tasks_and_what_they_spawned_have_ended() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let job = with_room(&mut cluster, 4, 2);
    step(&mut cluster, job, 1, spawned(1, 0));
    for rank in [0, 1] {
        cluster.end_task(job, rank, TaskStatus::Exited(0));
    }
    assert!(killed_on(&cluster, job).is_empty(), "a child is left");
    finish_step(&mut cluster, nth(job, 1), TaskStatus::Exited(0));
    assert_eq!(killed_on(&cluster, job), [0, 1]);
    cluster.deliver_kills();
    let outcome = cluster.outcomes[&job];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::Completed, 0));
}

#[test]
fn the_failure_of_spawned_tasks_is_that_of_the_step_that_spawned_them() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let job = with_room(&mut cluster, 4, 1);
    step(&mut cluster, job, 1, spawned(1, 0));
    step(&mut cluster, job, 2, spawned(1, 1));
    finish_step(&mut cluster, nth(job, 2), TaskStatus::Signaled(11));
    assert_eq!(killed_on(&cluster, job), [0, 1], "a child of a child");
    cluster.deliver_kills();
    let outcome = cluster.outcomes[&job];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::TaskFailed, 139));
    // One that leaves MPI without a word is given its grace, and then has failed.
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let job = with_room(&mut cluster, 4, 1);
    step(&mut cluster, job, 1, spawned(2, 0));
    let (key, ranks) = (nth(job, 1), vec![Rank(0)]);
    cluster.event(Event::StepTasksEnded { key, ranks, status: TaskStatus::Unfinalized(3) });
    cluster.advance_ms(60_000);
    finish_step(&mut cluster, key, TaskStatus::Signaled(9));
    assert_eq!(killed_on(&cluster, job), [0, 1]);
    cluster.deliver_kills();
    let outcome = cluster.outcomes[&job];
    assert_eq!((outcome.reason, outcome.exit_code), (EndReason::TaskFailed, 3));
    // In a batch job it is a step's failure.
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let script = batch(&mut cluster, self::job(4));
    step(&mut cluster, script, 1, tasks(1));
    step(&mut cluster, script, 2, spawned(1, 1));
    finish_step(&mut cluster, nth(script, 2), TaskStatus::Signaled(11));
    assert!(killed_on(&cluster, script).is_empty());
    let is_ending = |it: tutti_core::StepView<'_>| it.key == nth(script, 1) && it.is_ending;
    assert!(cluster.core.steps(script).any(is_ending));
    assert_eq!(refusal_of(step(&mut cluster, script, 3, spawned(1, 1))), Some(StepRefusal::Ending));
}

#[test]
fn spawned_tasks_that_are_to_go_on_in_any_case_take_nothing_along() {
    let mut cluster = Cluster::with_nodes(&[2, 2]);
    let spec = JobSpec { on_bad_exit: OnBadExit::Kill, ..job(4) };
    let options = SubmitOptions { first: FirstStep::Tasks(1), ..SubmitOptions::default() };
    let job = cluster.submits(|it| Event::submit(it, spec, options)).expect("accepted");
    let goes_on = StepSpec { on_bad_exit: OnBadExit::Continue, ..spawned(1, 0) };
    for (number, status) in [(1, TaskStatus::Signaled(11)), (2, TaskStatus::Exited(3))] {
        step(&mut cluster, job, number, goes_on);
        finish_step(&mut cluster, nth(job, u32::from(number)), status);
        assert!(killed_on(&cluster, job).is_empty(), "{status:?}");
    }
    // Others have the rule of the job, whatever they ask for else.
    let alike = StepSpec { on_bad_exit: OnBadExit::KillOnSignal, ..spawned(1, 0) };
    step(&mut cluster, job, 3, alike);
    finish_step(&mut cluster, nth(job, 3), TaskStatus::Exited(3));
    assert_eq!(killed_on(&cluster, job), [0, 1]);
}

#[test]
fn where_slots_share_processors_spawned_tasks_do() {
    let mut cluster = Cluster::with_nodes(&[2]);
    let first = FirstStep::Tasks(1);
    let options = SubmitOptions { first, ..SubmitOptions::default() };
    let spec = JobSpec { processors_per_task: None, ..job(4) };
    let shared = cluster.submits(|it| Event::submit(it, spec, options)).expect("accepted");
    step(&mut cluster, shared, 1, spawned(2, 0));
    assert_eq!(placed(&cluster, nth(shared, 1)), [(0, 2)]);
    let two = step(&mut cluster, shared, 2, spawned(2, 0));
    assert_eq!(refusal_of(two), Some(StepRefusal::NotFree { slots: 1 }));
}
