//! Jobs that their owners have wait in line again.

use crate::cluster::{Cluster, job};
use crate::scenarios::why;
use tutti_core::{Event, HeldBy, JobState, SubmitOptions, WaitReason};
use tutti_types::limits::REQUEUES_MAX;
use tutti_types::{ClusterTime, EndReason, JobId, JobSpec, OnNodeLoss, TaskStatus};

fn state(c: &Cluster, job: JobId) -> JobState {
    c.core.job(job, ClusterTime(c.now)).unwrap().state
}

fn runs(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Running { .. })
}

#[test]
fn a_job_ends_its_run_and_waits_from_the_start_under_its_number() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(job(2));
    c.requeue(id, false);
    assert!(matches!(state(&c, id), JobState::Ending { .. }), "nothing of it may be left");
    c.end_tasks(id, TaskStatus::Signaled(15));
    c.clear(id);
    assert!(runs(&c, id), "its processors are free");
    assert_eq!(c.core.job(id, ClusterTime(c.now)).unwrap().requeues, 1);
    assert_eq!(c.core.launch_of(id).number, 1, "what is reported of the first run does not count");
    // As often as it takes.
    for _ in 0..5 {
        c.requeue(id, false);
        c.end_tasks(id, TaskStatus::Exited(0));
        c.clear(id);
        assert!(runs(&c, id));
    }
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn a_job_that_is_to_be_held_waits_for_its_release() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(job(2));
    c.requeue(id, true);
    c.end_tasks(id, TaskStatus::Signaled(15));
    c.clear(id);
    assert_eq!(why(&c, id), Some(WaitReason::Held { by: HeldBy::Owner }));
    c.event(Event::Release { job: id, by: HeldBy::Owner });
    assert!(runs(&c, id));
}

#[test]
fn a_job_that_is_asked_to_end_meanwhile_ends_for_that_reason() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = c.submit(job(2));
    c.requeue(id, false);
    c.cancel(id, false);
    c.end_tasks(id, TaskStatus::Signaled(15));
    c.clear(id);
    assert_eq!(c.outcomes[&id].reason.to_string(), "cancelled");
    // And one that is to end is not queued again.
    let id = c.submit(job(2));
    c.cancel(id, false);
    c.requeue(id, false);
    c.end_tasks(id, TaskStatus::Signaled(15));
    c.clear(id);
    assert_eq!(c.outcomes[&id].reason.to_string(), "cancelled");
}

#[test]
fn a_job_in_line_and_one_with_a_front_end_stay_as_they_are() {
    let mut c = Cluster::with_nodes(&[2]);
    c.event(Event::SetParams { params: crate::cluster::params(&[("rows", 1)]) });
    let attached = c.submit(JobSpec { attached: true, ..job(2) });
    let waits = c.submit(job(2));
    c.requeue(attached, false);
    c.requeue(waits, true);
    assert!(runs(&c, attached));
    assert_eq!(why(&c, waits), Some(WaitReason::Rows { limit: 1 }));
}

#[test]
fn a_job_keeps_its_place_in_line() {
    let mut c = Cluster::with_nodes(&[2]);
    c.event(Event::SetParams { params: crate::cluster::params(&[("rows", 1)]) });
    let again = c.submit(job(2));
    let later = c.submit(job(2));
    c.requeue(again, true);
    c.end_tasks(again, TaskStatus::Signaled(15));
    c.clear(again);
    assert!(runs(&c, later), "what is held keeps no processors");
    let last = c.submit(job(2));
    c.event(Event::Release { job: again, by: HeldBy::Owner });
    c.finish(later);
    assert!(runs(&c, again) && !runs(&c, last), "before what came later");
}

#[test]
fn a_lost_node_ends_a_requeued_job_by_its_rule_and_stops_no_requeue() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let id = c.submit(JobSpec { on_node_loss: OnNodeLoss::Kill, ..job(2) });
    c.requeue(id, false);
    c.end_tasks(id, TaskStatus::Signaled(15));
    c.clear(id);
    let node = c.core.parts(id)[0].node;
    c.lose(node.0);
    assert_eq!(c.outcomes[&id].reason, EndReason::NodeLost(node), "as its rule has it");
    // A node that is lost while the job ends for a requeue takes nothing from that.
    let id = c.submit(JobSpec { on_node_loss: OnNodeLoss::Kill, ..job(2) });
    let node = c.core.parts(id)[0].node;
    c.requeue(id, false);
    c.lose(node.0);
    assert!(!c.outcomes.contains_key(&id), "it is in line again");
}

#[test]
fn requests_do_not_count_against_the_losses_that_a_job_survives() {
    let mut c = Cluster::with_nodes(&[2; 4]);
    let id = c.submit(JobSpec { on_node_loss: OnNodeLoss::Requeue, ..job(2) });
    for _ in 0..REQUEUES_MAX {
        c.requeue(id, false);
        c.end_tasks(id, TaskStatus::Signaled(15));
        c.clear(id);
    }
    for loss in 0..REQUEUES_MAX {
        assert!(runs(&c, id), "{loss}");
        let node = c.core.parts(id)[0].node;
        c.lose(node.0);
    }
    assert!(runs(&c, id), "after all losses but one");
    let node = c.core.parts(id)[0].node;
    c.lose(node.0);
    assert_eq!(c.outcomes[&id].reason, EndReason::NodeLost(node));
}

#[test]
fn a_job_that_must_not_be_queued_again_runs_once() {
    let mut c = Cluster::with_nodes(&[2, 2]);
    let on_node_loss = OnNodeLoss::Requeue;
    let options = SubmitOptions { no_requeue: true, ..SubmitOptions::default() };
    let id = crate::begin::submit_with(&mut c, JobSpec { on_node_loss, ..job(2) }, options);
    let id = id.unwrap();
    c.requeue(id, false);
    assert!(runs(&c, id), "it was not asked to end");
    let node = c.core.parts(id)[0].node;
    c.lose(node.0);
    assert_eq!(c.outcomes[&id].reason, EndReason::NodeLost(node));
}
