//! Jobs that are more than a task in each slot: batch jobs, which are held.

use crate::cluster::{Cluster, job};
use tutti_core::{Action, Event, JobState, SubmitOptions};
use tutti_types::{
    ClusterTime, EndReason, FirstStep, JobId, JobSpec, NodeId, OnNodeLoss, TaskStatus,
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
