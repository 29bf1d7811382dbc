//! Lost ranks that are started again.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Action, Event, JobState};
use tutti_types::limits::RESPAWNS_MAX;
use tutti_types::{
    ClusterTime, JobId, JobSpec, Nanos, NoRespawn, NodeId, NodeWish, OnNodeLoss, ProcessorSet,
    Rank, TaskStatus,
};

const SIGNAL: u8 = 10;

/// Lost ranks wait for a second.
fn rule(otherwise: NoRespawn) -> OnNodeLoss {
    OnNodeLoss::Respawn { wait: Nanos::from_secs(1), signal: Some(SIGNAL), otherwise }
}

/// A job with a task on each of so many nodes.
fn spec(nodes: u32, otherwise: NoRespawn) -> JobSpec {
    let wish = NodeWish { count: Some(nodes), ..NodeWish::default() };
    JobSpec { nodes: wish, on_node_loss: rule(otherwise), ..job(nodes) }
}

/// Where each rank of a job is.
fn nodes(c: &Cluster, job: JobId) -> Vec<u32> {
    c.core.parts(job).iter().map(|part| part.node.0).collect()
}

fn waits(c: &Cluster, job: JobId) -> Vec<Rank> {
    c.core.waiting_ranks(job).into_iter().flat_map(|waiting| waiting.ranks).collect()
}

fn is_running(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, ClusterTime(c.now));
    view.is_some_and(|view| matches!(view.state, JobState::Running { .. }))
}

fn launch(c: &Cluster, job: JobId, node: u32) -> u32 {
    c.core.launch_on(job, NodeId(node)).number
}

/// The nodes where tasks got the signal since so many actions.
fn told(c: &Cluster, since: usize) -> Vec<u32> {
    let told = c.log[since..].iter().filter_map(|action| match action {
        Action::Signal { node, signal: SIGNAL, .. } => Some(node.0),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_lost_rank_starts_again_on_a_free_node_with_a_launch_of_its_own() {
    let mut c = Cluster::with_nodes(&[1, 1, 1, 1]);
    let id = c.submit(spec(3, NoRespawn::Kill));
    assert_eq!(nodes(&c, id), [0, 1, 2]);
    let since = c.log.len();
    c.lose(1);
    assert_eq!(nodes(&c, id), [0, 3, 2], "rank 1 is on node 3");
    let launches = [0, 3, 2].map(|node| launch(&c, id, node));
    assert_eq!(launches, [0, 1, 0], "the others keep theirs");
    assert_eq!(told(&c, since), [0, 2], "only the others get the signal");
    assert!(is_running(&c, id) && waits(&c, id).is_empty());
    // Its node comes back, and the next one is lost.
    c.join(1, 1);
    c.lose(0);
    assert_eq!((nodes(&c, id), launch(&c, id, 1)), (vec![1, 3, 2], 2));
    c.end_tasks(id, TaskStatus::Exited(0));
    c.clear(id);
    assert_eq!(c.outcomes[&id].exit_code, 0, "nothing is lost in the end");
}

#[test]
fn only_ranks_that_had_not_ended_start_again() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let id = c.submit(JobSpec { on_node_loss: rule(NoRespawn::Kill), ..job(2) });
    let from = nodes(&c, id)[0];
    c.end_task(id, 0, TaskStatus::Exited(0));
    c.lose(from);
    assert_eq!(nodes(&c, id), [1 - from]);
    let begun = c.log.iter().find_map(|action| match action {
        Action::Respawn { ranks, .. } => Some(ranks.clone()),
        _ => None,
    });
    assert_eq!(begun, Some(vec![Rank(1)]));
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn a_lost_rank_waits_for_processors_of_its_size() {
    let mut c = Cluster::with_nodes(&[2, 2, 1]);
    c.event(Event::SetParams { params: params(&[("rows", 1)]) });
    let of = |nodes: u32| JobSpec { processors_per_task: Some(2), ..spec(nodes, NoRespawn::Kill) };
    let id = c.submit(of(2));
    c.lose(1);
    assert_eq!(waits(&c, id), [Rank(1)], "node 2 has one processor");
    assert!(is_running(&c, id));
    // One that joins has as many.
    c.join(3, 2);
    assert_eq!((nodes(&c, id), waits(&c, id)), (vec![0, 3], vec![]));
    // So has one whose job ends.
    let other = c.submit(job(1));
    c.lose(3);
    c.join(1, 2);
    assert_eq!(nodes(&c, id), [0, 1]);
    c.lose(1);
    c.finish(other);
    c.end_tasks(id, TaskStatus::Exited(0));
    c.clear(id);
    assert!(is_running(&c, id), "the rank is still to run when the others have ended");
    c.join(4, 2);
    assert_eq!(nodes(&c, id), [0, 4]);
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn after_its_time_the_other_choice_holds() {
    for (otherwise, ends, requeues) in
        [(NoRespawn::Kill, true, 0), (NoRespawn::Requeue, false, 1), (NoRespawn::Notify, false, 0)]
    {
        let mut c = Cluster::with_nodes(&[1, 1]);
        let id = c.submit(spec(2, otherwise));
        c.lose(1);
        c.advance_ms(999);
        assert_eq!(waits(&c, id), [Rank(1)], "{otherwise:?}");
        c.advance_ms(1);
        c.deliver_kills();
        assert_eq!(waits(&c, id), [], "{otherwise:?}");
        assert_eq!(c.outcomes.contains_key(&id), ends, "{otherwise:?}");
        if ends {
            let outcome = c.outcomes[&id];
            assert_eq!((&*outcome.reason.to_string(), outcome.exit_code), ("node 1 was lost", 121));
            continue;
        }
        let view = c.core.job(id, ClusterTime(c.now)).unwrap();
        assert_eq!(view.requeues, requeues, "{otherwise:?}");
        if otherwise == NoRespawn::Requeue {
            c.join(1, 1);
            assert!(is_running(&c, id));
            assert_eq!((launch(&c, id, 0), launch(&c, id, 1)), (1, 1));
        } else {
            assert_eq!(c.finish(id).exit_code, 121, "the loss speaks for the job");
        }
    }
}

#[test]
fn a_launch_after_a_requeue_is_newer_than_all_respawns() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let id = c.submit(spec(2, NoRespawn::Requeue));
    c.lose(1);
    assert_eq!(launch(&c, id, 2), 1);
    c.lose(2);
    c.advance_ms(1_000);
    c.deliver_kills();
    c.join(1, 1);
    assert_eq!((nodes(&c, id), launch(&c, id, 0), launch(&c, id, 1)), (vec![0, 1], 2, 2));
}

#[test]
fn no_time_runs_while_the_job_is_suspended() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = c.submit(spec(2, NoRespawn::Kill));
    c.event(Event::Suspend { job: id });
    c.lose(1);
    c.join(1, 1);
    c.advance_ms(5_000);
    assert_eq!(waits(&c, id), [Rank(1)], "a rank of a suspended job does not start");
    c.event(Event::Resume { job: id });
    assert_eq!((nodes(&c, id), waits(&c, id)), (vec![0, 1], vec![]));
    c.event(Event::Suspend { job: id });
    c.lose(1);
    c.advance_ms(5_000);
    c.event(Event::Resume { job: id });
    c.advance_ms(999);
    assert!(is_running(&c, id), "its time began with its turns");
    c.advance_ms(1);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].exit_code, 121);
}

#[test]
fn a_job_that_is_cancelled_does_not_wait() {
    for at_once in [false, true] {
        let mut c = Cluster::with_nodes(&[1, 1]);
        let id = c.submit(spec(2, NoRespawn::Kill));
        c.lose(0);
        c.lose(1);
        assert_eq!(waits(&c, id), [Rank(0), Rank(1)], "it lives on without any node");
        c.cancel(id, at_once);
        assert_eq!(c.outcomes[&id].reason, tutti_types::EndReason::Cancelled);
    }
}

#[test]
fn a_job_that_lost_all_nodes_begins_where_there_are_others() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = c.submit(spec(2, NoRespawn::Kill));
    c.lose(0);
    c.lose(1);
    c.join(5, 1);
    assert_eq!(waits(&c, id).len(), 1);
    c.join(6, 1);
    assert_eq!(waits(&c, id), []);
    assert!(is_running(&c, id));
    c.advance_ms(100);
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn tasks_that_a_keeper_lost_start_again_where_they_were() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = c.submit(spec(2, NoRespawn::Kill));
    c.end_task(id, 1, TaskStatus::Lost);
    assert!(is_running(&c, id));
    let held = c.held.get_mut(&id).unwrap();
    held.tasks.remove(&NodeId(1));
    c.event(Event::JobCleared { job: id, nodes: vec![NodeId(1)] });
    assert_eq!((nodes(&c, id), launch(&c, id, 1)), (vec![0, 1], 1));
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn a_rank_finds_room_in_another_row_with_the_rest_of_its_job() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    c.event(Event::SetParams { params: params(&[("rows", 2)]) });
    let id = c.submit(spec(2, NoRespawn::Kill));
    let beside = c.submit(job(1));
    assert_eq!(nodes(&c, beside), [2]);
    c.lose(1);
    assert_eq!((nodes(&c, id), waits(&c, id)), (vec![0, 2], vec![]), "in turns with the other");
    c.advance_ms(500);
    c.finish(beside);
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn ranks_are_not_started_again_for_ever() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = c.submit(spec(2, NoRespawn::Kill));
    for again in 0..RESPAWNS_MAX {
        assert!(is_running(&c, id), "{again}");
        c.lose(1);
        c.join(1, 1);
    }
    assert_eq!(launch(&c, id, 1), RESPAWNS_MAX);
    c.lose(1);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].exit_code, 121);
}

#[test]
fn a_wish_about_nodes_holds_for_ranks_that_start_again() {
    let mut c = Cluster::with_nodes(&[2, 2, 2, 2]);
    let except = [NodeId(2)].into();
    let nodes_of = NodeWish { count: Some(2), except, exclusive: true, ..NodeWish::default() };
    let id = c.submit(JobSpec { nodes: nodes_of, ..spec(2, NoRespawn::Kill) });
    assert_eq!(nodes(&c, id), [0, 1]);
    c.lose(1);
    assert_eq!(nodes(&c, id), [0, 3]);
    assert_eq!(c.core.parts(id)[1].processors, ProcessorSet::first(2), "all of the node");
}
