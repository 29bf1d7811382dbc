//! Jobs that are rolled out before the machine goes down, and in again.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Action, Event, JobState, SubmitOptions};
use tutti_types::{
    Checkpoint, ClusterTime, EndReason, JobId, JobSpec, Nanos, NodeId, OnNodeLoss, TaskStatus,
};

const SECOND: u64 = 1_000_000_000;
const GRACE: u64 = 10;
const PATIENCE: u64 = 60;

fn saver(c: &mut Cluster, spec: JobSpec) -> JobId {
    let checkpoint = Some(Checkpoint {
        signal: 10,
        only_shell: false,
        grace: Nanos::from_secs(GRACE),
        exit_code: None,
        every: None,
    });
    let options = SubmitOptions { checkpoint, ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, spec, options)).unwrap()
}

fn roll_out(c: &mut Cluster) {
    c.roll_outs += 1;
    c.event(Event::RollOut { patience: Nanos::from_secs(PATIENCE) });
}

fn state(c: &Cluster, job: JobId) -> JobState {
    c.core.job(job, ClusterTime(c.now)).unwrap().state
}

fn runs(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Running { .. })
}

fn waits(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Queued { .. })
}

fn end(c: &mut Cluster, job: JobId, status: TaskStatus) {
    c.end_tasks(job, status);
    c.clear(job);
}

#[test]
fn each_job_leaves_as_it_can_and_comes_back_in_the_order_of_the_line() {
    let mut c = Cluster::new(params(&[("rows", 1)]));
    c.join(0, 4);
    let saves = saver(&mut c, job(1));
    let anew = c.submit(JobSpec { on_node_loss: OnNodeLoss::Requeue, ..job(1) });
    let plain = c.submit(job(1));
    let front = c.submit(JobSpec { attached: true, ..job(1) });
    let line = c.submit(job(4));
    c.advance(5 * SECOND);
    roll_out(&mut c);
    assert!(c.core.checkpoint(saves).unwrap().until.is_some());
    assert!(matches!(state(&c, anew), JobState::Ending { .. }));
    assert!(runs(&c, plain) && runs(&c, front));
    assert!(c.try_submit(job(1)).is_none(), "nothing is accepted");
    end(&mut c, anew, TaskStatus::Signaled(15));
    end(&mut c, saves, TaskStatus::Exited(0));
    assert!(waits(&c, anew) && waits(&c, saves) && waits(&c, line), "nothing begins");
    assert_eq!(c.core.checkpoint(saves).unwrap().resumes, 1);
    // One ends by itself in time, one is ended.
    end(&mut c, front, TaskStatus::Exited(0));
    assert_eq!(c.outcomes[&front].reason, EndReason::Completed);
    c.advance(PATIENCE * SECOND);
    assert!(c.core.is_stopping());
    end(&mut c, plain, TaskStatus::Signaled(15));
    assert_eq!(c.outcomes[&plain].reason, EndReason::ShutDown);
    assert!(waits(&c, anew) && waits(&c, saves) && waits(&c, line));
    c.event(Event::Began);
    assert!(c.core.is_rolling_out(), "a successor goes on");
    c.event(Event::RollIn);
    c.join(0, 4);
    assert!(runs(&c, saves) && runs(&c, anew), "the earlier ones are first");
    c.drain();
}

#[test]
fn what_does_not_answer_is_ended_after_its_grace_and_comes_back() {
    let mut c = Cluster::with_nodes(&[2]);
    let deaf = saver(&mut c, job(2));
    c.advance(5 * SECOND);
    roll_out(&mut c);
    c.advance(GRACE * SECOND);
    assert!(matches!(state(&c, deaf), JobState::Ending { .. }));
    end(&mut c, deaf, TaskStatus::Signaled(9));
    assert!(waits(&c, deaf));
    c.event(Event::RollIn);
    assert!(runs(&c, deaf));
}

#[test]
fn no_grace_of_a_job_is_longer_than_the_time_for_all() {
    let mut c = Cluster::with_nodes(&[2]);
    let asked = saver(&mut c, job(1));
    let batch = saver(&mut c, JobSpec { attached: true, ..job(1) });
    c.advance(5 * SECOND);
    c.roll_outs += 1;
    c.event(Event::RollOut { patience: Nanos::from_secs(GRACE / 2) });
    c.advance(GRACE / 2 * SECOND);
    assert!(matches!(state(&c, asked), JobState::Ending { .. }));
    let JobState::Ending { reason, .. } = state(&c, batch) else { panic!("it goes on") };
    assert_eq!(reason, EndReason::ShutDown, "its front end waits for its end");
    c.drain();
}

#[test]
fn a_job_that_has_only_just_begun_has_nothing_to_save() {
    let mut c = Cluster::with_nodes(&[2]);
    let new = saver(&mut c, job(2));
    roll_out(&mut c);
    assert!(matches!(state(&c, new), JobState::Ending { .. }));
    assert!(!c.log.iter().any(|it| matches!(it, Action::Signal { .. })));
    end(&mut c, new, TaskStatus::Signaled(15));
    assert!(waits(&c, new));
}

#[test]
fn a_machine_that_fails_meanwhile_loses_no_job_that_can_come_back() {
    let mut c = Cluster::with_nodes(&[3]);
    let saves = saver(&mut c, job(1));
    let anew = c.submit(JobSpec { on_node_loss: OnNodeLoss::Requeue, ..job(1) });
    let plain = c.submit(job(1));
    c.advance(5 * SECOND);
    roll_out(&mut c);
    c.event(Event::Began);
    c.event(Event::RollIn);
    c.lose(0);
    assert_eq!(c.outcomes[&plain].reason, EndReason::NodeLost(NodeId(0)));
    assert!(waits(&c, saves) && waits(&c, anew));
    assert_eq!(c.core.checkpoint(saves).unwrap().resumes, 1);
    c.join(0, 3);
    assert!(runs(&c, saves) && runs(&c, anew));
}

#[test]
fn a_job_comes_back_to_the_nodes_that_it_had() {
    let mut c = Cluster::with_nodes(&[2, 2, 2]);
    let other = c.submit(job(2));
    let saves = saver(&mut c, job(2));
    let nodes =
        |c: &Cluster, id: JobId| c.core.parts(id).iter().map(|part| part.node).collect::<Vec<_>>();
    let had = nodes(&c, saves);
    assert_ne!(had, [NodeId(0)]);
    c.advance(5 * SECOND);
    roll_out(&mut c);
    end(&mut c, other, TaskStatus::Exited(0));
    end(&mut c, saves, TaskStatus::Exited(0));
    assert!(waits(&c, saves));
    c.event(Event::RollIn);
    assert_eq!(nodes(&c, saves), had, "though the first node is free");
    // Where these are gone, it begins elsewhere.
    c.advance(5 * SECOND);
    roll_out(&mut c);
    end(&mut c, saves, TaskStatus::Exited(0));
    c.lose(had[0].0);
    c.event(Event::RollIn);
    assert!(runs(&c, saves) && nodes(&c, saves) != had);
}
