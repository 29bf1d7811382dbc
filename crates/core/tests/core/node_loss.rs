//! What becomes of jobs when nodes are lost, as they asked.

use crate::cluster::{Cluster, job};
use crate::scenarios::why;
use tutti_core::{Action, Event, JobState, WaitReason};
use tutti_types::{JobId, JobSpec, NodeId, NodeWish, OnNodeLoss, Rank, TaskStatus};

/// A job with a task on each of so many nodes.
fn spec(nodes: u32, on_node_loss: OnNodeLoss) -> JobSpec {
    let wish = NodeWish { count: Some(nodes), ..NodeWish::default() };
    JobSpec { nodes: wish, on_node_loss, ..job(nodes) }
}

fn is_running(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, tutti_types::ClusterTime(c.now));
    view.is_some_and(|view| matches!(view.state, JobState::Running { .. }))
}

/// Where a job is.
fn nodes(c: &Cluster, job: JobId) -> Vec<u32> {
    c.core.parts(job).iter().map(|part| part.node.0).collect()
}

#[test]
fn a_job_ends_whole_by_default() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let id = c.submit(spec(2, OnNodeLoss::Kill));
    c.lose(1);
    c.deliver_kills();
    let outcome = c.outcomes[&id];
    assert_eq!((&*outcome.reason.to_string(), outcome.exit_code), ("node 1 was lost", 121));
}

#[test]
fn a_job_is_in_line_again_once_its_other_nodes_are_clear() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let again = c.submit(spec(2, OnNodeLoss::Requeue));
    assert_eq!(nodes(&c, again), [0, 1]);
    c.event(Event::SetParams { params: crate::cluster::params(&[("rows", 1)]) });
    let later = c.submit(job(2));
    c.lose(0);
    // Something of it may be left on node 1, so it is nowhere else.
    assert!(!is_running(&c, again) && !is_running(&c, later));
    c.deliver_kills();
    assert_eq!(nodes(&c, again), [1, 2], "before who came later");
    assert!(is_running(&c, again));
    assert_eq!(why(&c, later), Some(WaitReason::Rows { limit: 1 }));
    assert_eq!(c.core.job(again, tutti_types::ClusterTime(c.now)).unwrap().requeues, 1);
    let outcome = c.finish(again);
    assert_eq!((&*outcome.reason.to_string(), outcome.exit_code), ("completed", 0));
}

#[test]
fn a_node_out_of_reach_keeps_its_jobs_and_takes_no_others_until_it_is_back() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    c.event(Event::SetParams { params: crate::cluster::params(&[("rows", 1)]) });
    let stays = c.submit(job(1));
    let away = nodes(&c, stays)[0];
    let other = 1 - away;
    c.event(Event::NodeOutOfReach { node: NodeId(away) });
    assert!(is_running(&c, stays));
    let near = c.submit(job(2));
    assert_eq!(nodes(&c, near), [other]);
    // What needs it is accepted, and waits for it.
    let wide = c.submit(job(3));
    c.finish(near);
    assert_eq!((is_running(&c, wide), c.refusals.len()), (false, 0));
    assert_eq!(c.try_submit(job(5)), None, "nor would that fit if it were back");
    // An administrator that says that it takes jobs does not bring it back.
    c.event(Event::SetDrained { node: NodeId(away), reason: None });
    assert!(!is_running(&c, wide));
    c.join(away, 2);
    assert!(is_running(&c, wide) && is_running(&c, stays));
    assert_eq!(c.core.job(stays, tutti_types::ClusterTime(c.now)).unwrap().requeues, 0);
    c.event(Event::NodeOutOfReach { node: NodeId(away) });
    c.lose(away);
    c.deliver_kills();
    assert_eq!(c.outcomes[&stays].exit_code, 121);
    // Lost and back, it is a node like any other; drained meanwhile, it stays so.
    c.join(away, 2);
    c.event(Event::NodeOutOfReach { node: NodeId(away) });
    c.event(Event::SetDrained { node: NodeId(away), reason: Some(String::new()) });
    c.join(away, 2);
    let late = c.submit(job(2));
    assert_eq!(nodes(&c, late), [other]);
}

#[test]
fn after_a_loss_of_power_no_job_begins_before_all_nodes_are_back_or_lost() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    c.forget(7);
    let waits = c.submit(job(1));
    assert_eq!(waits, tutti_types::JobId(8), "numbers that nodes may know are not given again");
    for node in [0, 1] {
        c.join(node, 2);
        assert!(!is_running(&c, waits), "node 2 may run it");
    }
    c.lose(2);
    assert!(is_running(&c, waits));
    c.join(2, 2);
    // From then on a node that is out of reach holds up no job.
    c.event(Event::NodeOutOfReach { node: NodeId(2) });
    let other = c.submit(job(1));
    assert!(is_running(&c, other));
    // No node is waited for where all were lost.
    (0..3).for_each(|node| c.lose(node));
    c.forget(19);
    c.join(0, 2);
    let last = c.submit(job(1));
    assert!(is_running(&c, last));
}

#[test]
fn after_a_loss_of_power_no_job_begins_before_it_is_said_who_is_out_of_reach() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    c.event(Event::SetParams { params: crate::cluster::params(&[("rows", 1)]) });
    let ends = c.submit(job(4));
    let waits = c.submit(job(1));
    c.event(Event::Forgot { job: JobId(7) });
    c.finish(ends);
    c.join(2, 2);
    assert!(!is_running(&c, waits), "nodes 0 and 1 may run it");
    c.event(Event::Began);
    for node in [0, 1] {
        assert!(!is_running(&c, waits), "node {node} may run it");
        c.join(node, 2);
    }
    assert!(!is_running(&c, waits), "node 2 may run it");
    c.lose(2);
    assert!(is_running(&c, waits));
}

#[test]
fn who_goes_down_for_a_while_keeps_who_waits() {
    let mut c = Cluster::with_nodes(&[1]);
    c.event(Event::SetParams { params: crate::cluster::params(&[("rows", 1)]) });
    let (runs, waits) = (c.submit(job(1)), c.submit(job(1)));
    let has_front_end = c.submit(JobSpec { attached: true, ..job(1) });
    c.event(Event::GoDown);
    assert_eq!(c.outcomes[&has_front_end].reason, tutti_types::EndReason::ShutDown);
    c.advance_ms(1_000);
    c.deliver_kills();
    assert_eq!(c.outcomes[&runs].reason, tutti_types::EndReason::ShutDown);
    assert!(!is_running(&c, waits) && !c.outcomes.contains_key(&waits));
    assert!(c.try_submit(job(1)).is_none(), "it is ending");
    c.event(Event::Began);
    assert!(!is_running(&c, waits));
    c.join(0, 1);
    assert!(is_running(&c, waits));
}

#[test]
fn who_begins_gives_nothing_to_nodes_that_are_not_there_yet() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    c.event(Event::Began);
    let waits = c.submit(job(1));
    assert!(!is_running(&c, waits));
    c.join(1, 2);
    assert!(is_running(&c, waits));
    assert_eq!(nodes(&c, waits), [1]);
}

#[test]
fn a_job_that_takes_nodes_down_does_not_go_round_for_ever() {
    let mut c = Cluster::with_nodes(&[1]);
    let id = c.submit(spec(1, OnNodeLoss::Requeue));
    for _ in 0..3 {
        c.lose(0);
        assert!(!c.outcomes.contains_key(&id));
        c.join(0, 1);
        assert!(is_running(&c, id));
    }
    c.lose(0);
    assert_eq!(c.outcomes[&id].exit_code, 121);
    assert_eq!(c.requeued[&id], 3);
}

#[test]
fn who_asks_that_it_end_has_it_end() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = c.submit(spec(2, OnNodeLoss::Requeue));
    c.lose(0);
    c.cancel(id, false);
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].exit_code, 121);
    // A job that its front end waits for is not in line again either.
    c.join(0, 1);
    let attached = c.submit(JobSpec { attached: true, ..spec(1, OnNodeLoss::Requeue) });
    c.lose(0);
    assert_eq!(c.outcomes[&attached].exit_code, 121);
}

/// The signals sent since then, each with its node.
fn signals(c: &Cluster, from: usize) -> Vec<(u32, u8)> {
    let signal = |action: &Action| match action {
        Action::Signal { node, signal, .. } => Some((node.0, *signal)),
        _ => None,
    };
    c.log[from..].iter().filter_map(signal).collect()
}

#[test]
fn tasks_that_their_node_reports_as_lost_are_a_loss_like_that_of_the_node() {
    let told = OnNodeLoss::Notify { signal: Some(10) };
    // As after a new start of the machine within its lease, or the end of its keeper.
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let id = c.submit(JobSpec { tasks: 6, ..spec(3, told) });
    let from = c.log.len();
    for rank in [2, 3] {
        c.end_task(id, rank, TaskStatus::Lost);
    }
    assert_eq!(signals(&c, from), [], "something of it may be left there");
    c.clear(id);
    assert_eq!(signals(&c, from), [(0, 10), (2, 10)], "once, and not for each of its tasks");
    // A node that is lost before it has reported that nothing is left.
    c.end_task(id, 4, TaskStatus::Exited(0));
    c.end_task(id, 5, TaskStatus::Lost);
    c.lose(2);
    assert_eq!(signals(&c, from)[2..], [(0, 10)]);
    assert!(is_running(&c, id));
    assert_eq!(c.finish(id).exit_code, 121);
    // Tasks that have ended by themselves are no loss, whatever becomes of their node then.
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let id = c.submit(spec(3, told));
    let from = c.log.len();
    for rank in [1, 2] {
        c.end_task(id, rank, TaskStatus::Exited(0));
    }
    c.lose(1);
    c.clear(id);
    assert_eq!(signals(&c, from), []);
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn others_go_on_and_are_told() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let id = c.submit(spec(3, OnNodeLoss::Notify { signal: Some(10) }));
    let from = c.log.len();
    c.lose(1);
    assert_eq!(signals(&c, from), [(0, 10), (2, 10)]);
    let view = c.core.job(id, tutti_types::ClusterTime(c.now)).unwrap();
    assert_eq!(view.ended, [(Rank(1), TaskStatus::Lost)]);
    assert!(is_running(&c, id));
    c.advance_ms(5);
    let outcome = c.finish(id);
    assert_eq!((&*outcome.reason.to_string(), outcome.exit_code), ("completed", 121));
    // So too if it is the keeper that lost them.
    let id = c.submit(spec(2, OnNodeLoss::Notify { signal: None }));
    c.end_task(id, 0, TaskStatus::Lost);
    assert!(is_running(&c, id));
    assert_eq!(c.finish(id).exit_code, 121);
}
