//! Ranks that fail in jobs that go on, and are named to the others.

use crate::cluster::{Cluster, job};
use tutti_core::{Action, JobState, StepAction};
use tutti_types::{JobId, JobSpec, NodeWish, OnBadExit, OnNodeLoss, Rank, StepKey, TaskStatus};

/// A job with two tasks on each of three nodes.
fn spec(signal: Option<u8>) -> JobSpec {
    let nodes = NodeWish { count: Some(3), ..NodeWish::default() };
    let on_bad_exit = OnBadExit::Notify { signal };
    JobSpec { nodes, on_bad_exit, on_node_loss: OnNodeLoss::Notify { signal: None }, ..job(6) }
}

/// What was said since: of signals the nodes; of failed ranks the nodes and the ranks.
fn said(c: &Cluster, from: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    let each = |action: &Action| match action {
        Action::Signal { node, signal: 10, .. } => Some((vec![node.0], Vec::new())),
        Action::Step(StepAction::RanksFailed { nodes, ranks, .. }) => Some((
            nodes.iter().map(|node| node.0).collect(),
            ranks.iter().map(|rank| rank.0).collect(),
        )),
        _ => None,
    };
    c.log[from..].iter().filter_map(each).collect()
}

fn is_running(c: &Cluster, job: JobId) -> bool {
    let view = c.core.job(job, tutti_types::ClusterTime(c.now));
    view.is_some_and(|view| matches!(view.state, JobState::Running { .. }))
}

#[test]
fn a_rank_that_fails_is_named_where_others_are_left() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let id = c.submit(spec(None));
    let from = c.log.len();
    c.end_task(id, 0, TaskStatus::Exited(0));
    assert_eq!(said(&c, from), [], "it has not failed");
    c.end_task(id, 1, TaskStatus::Signaled(9));
    assert_eq!(said(&c, from), [(vec![1, 2], vec![1])], "no task is left on its own node");
    c.end_task(id, 2, TaskStatus::Unfinalized(0));
    assert_eq!(said(&c, from)[1..], [(vec![1, 2], vec![2])]);
    assert!(is_running(&c, id));
    // For an agent that comes back.
    assert_eq!(c.core.failed_ranks(StepKey::first(id)), [Rank(1), Rank(2)]);
    assert_eq!(c.finish(id).exit_code, 137);
}

#[test]
fn a_signal_goes_with_it_if_one_is_named() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let id = c.submit(spec(Some(10)));
    let from = c.log.len();
    c.end_task(id, 5, TaskStatus::Exited(3));
    let signals = [0, 1, 2].map(|node| (vec![node], Vec::new()));
    assert_eq!(said(&c, from)[..3], signals);
    assert_eq!(said(&c, from)[3..], [(vec![0, 1, 2], vec![5])]);
}

#[test]
fn ranks_of_a_lost_node_are_named_once() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let id = c.submit(spec(None));
    let from = c.log.len();
    c.lose(1);
    assert_eq!(said(&c, from), [(vec![0, 2], vec![2, 3])]);
    for rank in [4, 5] {
        c.end_task(id, rank, TaskStatus::Lost);
    }
    c.clear(id);
    assert_eq!(said(&c, from)[1..], [(vec![0], vec![4, 5])]);
    assert!(is_running(&c, id));
}

#[test]
fn a_task_that_aborts_for_all_ends_the_job() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let id = c.submit(spec(None));
    let from = c.log.len();
    c.end_task(id, 3, TaskStatus::Aborted(7));
    assert!(!is_running(&c, id));
    assert_eq!(said(&c, from), [], "all end");
    c.deliver_kills();
    assert_eq!(c.outcomes[&id].exit_code, 7);
}

#[test]
fn jobs_that_do_not_ask_hear_nothing() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let id = c.submit(JobSpec { on_bad_exit: OnBadExit::Continue, ..spec(None) });
    let from = c.log.len();
    c.end_task(id, 3, TaskStatus::Signaled(9));
    assert_eq!(said(&c, from), []);
    assert_eq!(c.core.failed_ranks(StepKey::first(id)), []);
}
