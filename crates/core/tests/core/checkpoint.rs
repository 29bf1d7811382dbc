//! Jobs that save their state by themselves.

use crate::cluster::{Cluster, job, params};
use crate::scenarios::why;
use tutti_core::{
    Action, CheckpointNews, CheckpointOrder, CheckpointRefusal, Event, HeldBy, JobState, Place,
    SubmitOptions, WaitReason,
};
use tutti_types::{
    Checkpoint, ClassName, ClusterTime, EndReason, FirstStep, JobId, JobSpec, Nanos, NodeId,
    OnBadExit, OnNodeLoss, TaskStatus,
};

const SECOND: u64 = 1_000_000_000;

/// The signal that asks for it, and how long tasks may take, in seconds.
const SIGNAL: u8 = 10;
const GRACE: u64 = 10;

const SAVES: Checkpoint = Checkpoint {
    signal: SIGNAL,
    only_shell: false,
    grace: Nanos::from_secs(GRACE),
    exit_code: None,
    every: None,
};

const END: CheckpointOrder = CheckpointOrder::End { force: false, hold: false };

fn submit(c: &mut Cluster, spec: JobSpec, saves: Checkpoint) -> JobId {
    let options = SubmitOptions { checkpoint: Some(saves), ..SubmitOptions::default() };
    c.submits(|request| Event::submit(request, spec, options)).unwrap()
}

fn ask(c: &mut Cluster, job: JobId, order: CheckpointOrder) {
    c.event(Event::Checkpoint { job, order });
}

/// What was said of a job since the last time.
fn news(c: &mut Cluster) -> Vec<CheckpointNews> {
    let said = |action: &Action| match action {
        Action::Checkpoint { news, .. } => Some(*news),
        _ => None,
    };
    std::mem::take(&mut c.log).iter().filter_map(said).collect()
}

fn state(c: &Cluster, job: JobId) -> JobState {
    c.core.job(job, ClusterTime(c.now)).unwrap().state
}

fn runs(c: &Cluster, job: JobId) -> bool {
    matches!(state(c, job), JobState::Running { .. })
}

fn end(c: &mut Cluster, job: JobId, status: TaskStatus) {
    c.end_tasks(job, status);
    c.clear(job);
}

#[test]
fn a_job_that_ends_within_its_grace_is_queued_again_and_resumes() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), SAVES);
    assert_eq!(c.core.checkpoint(id).unwrap().resumes, 0);
    ask(&mut c, id, END);
    let until = ClusterTime(c.now + GRACE * SECOND);
    assert!(c.log.iter().any(|it| matches!(it, Action::Signal { signal: SIGNAL, .. })));
    assert_eq!(news(&mut c), [CheckpointNews::AskedToEnd { until }]);
    assert_eq!(c.core.checkpoint(id).unwrap().until, Some(until));
    ask(&mut c, id, END);
    assert_eq!(news(&mut c), [], "it is asked once");
    end(&mut c, id, TaskStatus::Exited(3));
    assert_eq!(news(&mut c), [CheckpointNews::Saved]);
    assert!(runs(&c, id), "its processors are free");
    let view = c.core.checkpoint(id).unwrap();
    assert_eq!((view.resumes, view.until, view.last), (1, None, Some(CheckpointNews::Saved)));
    assert_eq!(c.core.launch_of(id).number, 1);
    // It is done when it ends by itself.
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn a_job_that_does_not_answer_goes_on_and_one_that_is_forced_is_ended() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(1), SAVES);
    let forced = submit(&mut c, job(1), SAVES);
    ask(&mut c, id, END);
    ask(&mut c, forced, CheckpointOrder::End { force: true, hold: false });
    news(&mut c);
    c.advance(GRACE * SECOND);
    assert_eq!(news(&mut c), [CheckpointNews::Unanswered, CheckpointNews::Forced]);
    assert!(runs(&c, id));
    assert!(matches!(state(&c, forced), JobState::Ending { kill_at: Some(_), .. }));
    end(&mut c, forced, TaskStatus::Signaled(15));
    assert!(runs(&c, forced), "it is in line again, and has begun");
    let view = c.core.checkpoint(forced).unwrap();
    assert_eq!((view.resumes, view.last), (1, Some(CheckpointNews::Forced)));
    // Much later it ends by itself.
    c.advance(3 * GRACE * SECOND);
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn an_answer_that_is_late_counts_in_time_of_turns() {
    for (seconds, counts) in [(GRACE - 1, true), (GRACE + 1, false)] {
        let mut c = Cluster::with_nodes(&[2]);
        let id = submit(&mut c, job(2), SAVES);
        ask(&mut c, id, END);
        c.advance(GRACE * SECOND);
        c.event(Event::Suspend { job: id });
        c.advance(100 * SECOND);
        c.event(Event::Resume { job: id });
        c.advance(seconds * SECOND);
        end(&mut c, id, TaskStatus::Exited(0));
        assert_eq!(!c.outcomes.contains_key(&id), counts, "{seconds} s late");
    }
}

#[test]
fn a_job_that_names_an_exit_code_is_queued_again_for_that_alone() {
    let saves = Checkpoint { exit_code: Some(85), ..SAVES };
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), saves);
    // Also when it was asked only to save its state, and long after.
    ask(&mut c, id, CheckpointOrder::GoOn);
    assert_eq!(news(&mut c), [CheckpointNews::AskedToGoOn]);
    c.advance(1000 * SECOND);
    end(&mut c, id, TaskStatus::Exited(85));
    assert!(runs(&c, id));
    ask(&mut c, id, END);
    end(&mut c, id, TaskStatus::Exited(0));
    assert_eq!(c.outcomes[&id].reason.to_string(), "completed", "it was done just then");
    let id = submit(&mut c, job(2), saves);
    end(&mut c, id, TaskStatus::Exited(85));
    assert_eq!(c.outcomes[&id].exit_code, 85, "it was not asked");
}

#[test]
fn a_job_without_a_handler_is_queued_again_and_has_nothing_to_resume_from() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), SAVES);
    ask(&mut c, id, END);
    news(&mut c);
    end(&mut c, id, TaskStatus::Signaled(SIGNAL));
    assert_eq!(news(&mut c), [CheckpointNews::Died]);
    assert!(runs(&c, id));
    assert_eq!(c.core.checkpoint(id).unwrap().resumes, 0);
    // Another signal is its own failure.
    ask(&mut c, id, END);
    end(&mut c, id, TaskStatus::Signaled(11));
    assert_eq!(c.outcomes[&id].reason.to_string(), "a task failed");
}

#[test]
fn ranks_that_save_their_state_one_after_the_other_do_not_end_each_other() {
    for status in [TaskStatus::Exited(1), TaskStatus::Unfinalized(0)] {
        let mut c = Cluster::with_nodes(&[2]);
        let spec = JobSpec { on_bad_exit: OnBadExit::Kill, ..job(2) };
        let id = submit(&mut c, spec, SAVES);
        ask(&mut c, id, END);
        c.end_task(id, 0, status);
        assert!(runs(&c, id), "{status:?}");
        c.advance(GRACE * SECOND - 1);
        assert!(runs(&c, id), "{status:?}");
        c.end_task(id, 1, status);
        c.clear(id);
        assert_eq!(c.core.checkpoint(id).unwrap().resumes, 1, "{status:?}");
    }
    // What may wait for an ended rank has its grace again when it has not answered.
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), SAVES);
    ask(&mut c, id, END);
    c.end_task(id, 0, TaskStatus::Unfinalized(0));
    c.advance(GRACE * SECOND);
    assert!(runs(&c, id));
    let grace = c.core.job(id, ClusterTime(c.now)).unwrap().spec.grace;
    c.advance(grace.0);
    assert!(matches!(state(&c, id), JobState::Ending { .. }));
}

#[test]
fn a_cancel_and_a_failure_stand_and_a_time_limit_queues_again() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), SAVES);
    ask(&mut c, id, END);
    c.cancel(id, false);
    end(&mut c, id, TaskStatus::Exited(0));
    assert_eq!(c.outcomes[&id].reason.to_string(), "cancelled");
    let spec = JobSpec { time_limit: Some(Nanos::from_secs(GRACE / 2)), ..job(2) };
    let id = submit(&mut c, spec, SAVES);
    ask(&mut c, id, END);
    news(&mut c);
    c.advance(GRACE * SECOND);
    assert_eq!(news(&mut c), [CheckpointNews::Forced]);
    end(&mut c, id, TaskStatus::Signaled(15));
    assert!(runs(&c, id));
}

#[test]
fn a_suspended_job_runs_to_save_its_state_and_is_suspended_again() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), SAVES);
    let suspended = |c: &Cluster| c.core.job(id, ClusterTime(c.now)).unwrap().suspended;
    for answers in [false, true] {
        c.event(Event::Suspend { job: id });
        ask(&mut c, id, END);
        assert!(!suspended(&c));
        match answers {
            false => c.advance(GRACE * SECOND),
            true => end(&mut c, id, TaskStatus::Exited(0)),
        }
        assert!(suspended(&c));
        if !answers {
            c.event(Event::Resume { job: id });
        }
    }
    assert!(matches!(state(&c, id), JobState::Queued { .. }));
}

#[test]
fn a_job_that_is_to_be_held_waits_for_its_release() {
    let mut c = Cluster::with_nodes(&[2]);
    let id = submit(&mut c, job(2), SAVES);
    ask(&mut c, id, CheckpointOrder::End { force: false, hold: true });
    end(&mut c, id, TaskStatus::Exited(0));
    assert_eq!(why(&c, id), Some(WaitReason::Held { by: HeldBy::Owner }));
    assert_eq!(c.core.why_no_checkpoint(id, END), Some(CheckpointRefusal::Waits));
}

#[test]
fn what_can_not_be_asked_is_refused_and_stays_as_it_is() {
    let mut c = Cluster::with_nodes(&[4]);
    let plain = c.submit(job(1));
    let attached = submit(&mut c, JobSpec { attached: true, ..job(1) }, SAVES);
    let batch = {
        let (first, checkpoint) = (FirstStep::Once, Some(SAVES));
        let options = SubmitOptions { first, checkpoint, ..SubmitOptions::default() };
        c.submits(|request| Event::submit(request, job(1), options)).unwrap()
    };
    let ending = submit(&mut c, job(1), SAVES);
    c.cancel(ending, false);
    c.log.clear();
    for (job, refusal) in [
        (plain, CheckpointRefusal::NotAble),
        (attached, CheckpointRefusal::HasFront),
        (batch, CheckpointRefusal::NoStep),
        (ending, CheckpointRefusal::Ending),
        (JobId(99), CheckpointRefusal::NoJob),
    ] {
        assert_eq!(c.core.why_no_checkpoint(job, END), Some(refusal));
        ask(&mut c, job, END);
        assert_eq!(news(&mut c), []);
    }
    assert_eq!(c.core.why_no_checkpoint(attached, CheckpointOrder::GoOn), None);
}

#[test]
fn a_job_is_asked_now_and_then_to_save_its_state_while_it_has_turns() {
    let mut c = Cluster::with_nodes(&[2]);
    let saves = Checkpoint { every: Some(Nanos::from_secs(60)), ..SAVES };
    let id = submit(&mut c, job(2), saves);
    c.advance(179 * SECOND);
    assert_eq!(news(&mut c), [CheckpointNews::AskedToGoOn; 2]);
    c.event(Event::Suspend { job: id });
    c.advance(100 * SECOND);
    c.event(Event::Resume { job: id });
    assert_eq!(news(&mut c), []);
    c.advance(60 * SECOND);
    assert_eq!(news(&mut c), [CheckpointNews::AskedToGoOn]);
    assert_eq!(c.finish(id).exit_code, 0);
    c.advance(1000 * SECOND);
    assert_eq!(news(&mut c), []);
}

/// Under the policy `classes`, an interactive job preempts one of class `standby` at once.
fn preempting(preemption: u64) -> (Cluster, JobId, JobId) {
    let mut c = Cluster::new(params(&[("policy", 2), ("preemption", preemption)]));
    c.join(0, 2);
    let idle = submit(&mut c, JobSpec { class: ClassName::new("standby"), ..job(2) }, SAVES);
    c.advance(SECOND);
    let urgent = c.submit(job(2));
    (c, idle, urgent)
}

#[test]
fn a_job_saves_its_state_before_it_is_preempted_if_the_site_says_so() {
    let (mut c, idle, urgent) = preempting(1);
    c.advance(100 * SECOND);
    while c.core.checkpoint(idle).unwrap().until.is_none() {
        c.advance(SECOND);
    }
    assert!(runs(&c, idle) && !runs(&c, urgent));
    end(&mut c, idle, TaskStatus::Exited(0));
    assert!(runs(&c, urgent));
    assert!(matches!(state(&c, idle), JobState::Queued { .. }));
    c.finish(urgent);
    assert!(runs(&c, idle));
    assert_eq!(c.core.checkpoint(idle).unwrap().resumes, 1);
}

#[test]
fn a_job_that_does_not_answer_is_preempted_in_place() {
    let (mut c, idle, urgent) = preempting(1);
    for _ in 0..100_000 {
        c.advance(SECOND);
        if c.core.job(idle, ClusterTime(c.now)).unwrap().place != Place::Home {
            break;
        }
    }
    c.arrive();
    let (view, saves) = (c.core.job(idle, ClusterTime(c.now)).unwrap(), c.core.checkpoint(idle));
    assert!(runs(&c, urgent), "{view:?} {saves:?}");
    assert_eq!(c.core.job(idle, ClusterTime(c.now)).unwrap().place, Place::Aside);
    assert_eq!(c.core.checkpoint(idle).unwrap().last, Some(CheckpointNews::Unanswered));
    assert_eq!(c.core.why_no_checkpoint(idle, END), Some(CheckpointRefusal::Preempted));
}

/// Its processes are saved to an image.
const IMAGE: Checkpoint = Checkpoint { signal: Checkpoint::IMAGE, ..SAVES };

#[test]
fn a_job_whose_processes_go_on_is_restored_from_its_latest_image() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let every = Some(Nanos::from_secs(60));
    let id = submit(&mut c, job(1), Checkpoint { every, ..IMAGE });
    let node = c.core.parts(id)[0].node;
    let order = Action::SignalRoots { job: id, node, signal: Checkpoint::IMAGE_AND_GO_ON };
    ask(&mut c, id, CheckpointOrder::GoOn);
    assert!(c.log.contains(&order));
    assert_eq!(news(&mut c), [CheckpointNews::AskedToGoOn]);
    ask(&mut c, id, CheckpointOrder::NotKept);
    assert_eq!(news(&mut c), [CheckpointNews::NotSaved]);
    assert_eq!(c.core.image_of(id), None);
    // It is asked now and then.
    c.advance(60 * SECOND);
    assert_eq!(news(&mut c), [CheckpointNews::AskedToGoOn]);
    ask(&mut c, id, CheckpointOrder::Kept);
    assert_eq!(news(&mut c), [CheckpointNews::Kept]);
    assert_eq!(c.core.image_of(id), Some(node));
    assert!(matches!(c.core.job(id, ClusterTime(c.now)).unwrap().state, JobState::Running { .. }));
    // It is asked to end before it has answered the next request.
    ask(&mut c, id, CheckpointOrder::GoOn);
    ask(&mut c, id, CheckpointOrder::End { force: false, hold: true });
    ask(&mut c, id, CheckpointOrder::Kept);
    assert!(c.core.checkpoint(id).unwrap().until.is_some(), "it is still asked to end");
    // Nor does a failure to save it and go on answer that, also where it is forced.
    news(&mut c);
    ask(&mut c, id, CheckpointOrder::End { force: true, hold: true });
    ask(&mut c, id, CheckpointOrder::NotKept);
    assert_eq!(news(&mut c), []);
    assert!(c.core.checkpoint(id).unwrap().until.is_some(), "it is still asked to end");
    end(&mut c, id, TaskStatus::Saved);
    assert_eq!(c.core.image_of(id), Some(node));
    assert_eq!(c.core.job(id, ClusterTime(c.now)).unwrap().spec.nodes.among, Some([node].into()));
    ask(&mut c, id, CheckpointOrder::Anew);
    assert_eq!(c.core.job(id, ClusterTime(c.now)).unwrap().spec.nodes.among, None);
}

#[test]
fn a_job_whose_processes_are_saved_goes_on_where_its_image_is() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = submit(&mut c, job(1), IMAGE);
    let node = c.core.parts(id)[0].node;
    ask(&mut c, id, CheckpointOrder::End { force: false, hold: true });
    let order = Action::SignalRoots { job: id, node, signal: Checkpoint::IMAGE };
    assert!(c.log.contains(&order));
    news(&mut c);
    // Also long after its grace.
    c.advance(GRACE * SECOND);
    assert_eq!(news(&mut c), [CheckpointNews::Unanswered]);
    c.advance(9 * GRACE * SECOND);
    end(&mut c, id, TaskStatus::Saved);
    assert_eq!(news(&mut c), [CheckpointNews::Saved]);
    assert_eq!(c.core.image_of(id), Some(node));
    assert_eq!(c.core.images_on(node).collect::<Vec<_>>(), [id]);
    // Others have its node now, and the other node is free: it waits for its own.
    let (first, other) = (submit(&mut c, job(1), SAVES), submit(&mut c, job(1), SAVES));
    let blocker = if c.core.parts(first)[0].node == node { first } else { other };
    c.finish(if blocker == first { other } else { first });
    c.event(Event::Release { job: id, by: HeldBy::Owner });
    let rows = c.core.parts(id).first().map(|part| part.node);
    assert!(rows.is_none_or(|it| it == node), "{rows:?}");
    c.finish(blocker);
    assert_eq!(c.core.parts(id)[0].node, node);
    assert_eq!(c.core.checkpoint(id).unwrap().resumes, 1);
    // A run that is lost leaves the image.
    c.event(Event::Cancel { job: id, reason: EndReason::Requeued { hold: true }, at_once: false });
    end(&mut c, id, TaskStatus::Signaled(15));
    assert_eq!((c.core.image_of(id), c.core.checkpoint(id).unwrap().resumes), (Some(node), 1));
    ask(&mut c, id, CheckpointOrder::Anew);
    assert_eq!((c.core.image_of(id), c.core.checkpoint(id).unwrap().resumes), (None, 0));
    assert_eq!(
        c.core.why_no_checkpoint(id, CheckpointOrder::Anew),
        Some(CheckpointRefusal::NoImage)
    );
    assert_eq!(c.core.job(id, ClusterTime(c.now)).unwrap().spec.nodes.among, None);
    c.event(Event::Release { job: id, by: HeldBy::Owner });
    assert_eq!(c.finish(id).exit_code, 0);
}

#[test]
fn a_job_whose_image_is_shared_goes_on_at_any_node_that_can_read_it() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let [own, other, apart] = [0, 1, 2].map(NodeId);
    for (node, place) in [(own, 7), (other, 7), (apart, 8)] {
        c.event(Event::ImagePlace { node, place: Some(place) });
    }
    let drained = |c: &mut Cluster, node, drained: bool| {
        c.event(Event::SetDrained { node, reason: drained.then(String::new) });
    };
    let node_of = |c: &Cluster, id| c.core.parts(id).first().map(|part| part.node);
    let save = |c: &mut Cluster, id| {
        ask(c, id, END);
        end(c, id, TaskStatus::Saved);
    };
    drained(&mut c, other, true);
    drained(&mut c, apart, true);
    let id = submit(&mut c, job(1), IMAGE);
    let number = c.core.shared_image(id).unwrap().number;
    assert_eq!(node_of(&c, id), Some(own));
    // Its node is drained, and the others are free.
    drained(&mut c, own, true);
    save(&mut c, id);
    drained(&mut c, apart, false);
    assert_eq!(node_of(&c, id), None, "a node that can't read it is none for it");
    drained(&mut c, other, false);
    assert_eq!(node_of(&c, id), Some(other));
    assert_eq!((c.core.image_of(id), c.core.shared_image(id).unwrap().number), (Some(own), number));
    // It can't be restored there: the other one is tried, and all once more when none is left.
    drained(&mut c, own, false);
    let not_restored = |c: &mut Cluster| {
        end(c, id, TaskStatus::NotRestored);
        c.event(Event::Release { job: id, by: HeldBy::Owner });
    };
    not_restored(&mut c);
    assert_eq!(node_of(&c, id), Some(own));
    drained(&mut c, own, true);
    not_restored(&mut c);
    assert_eq!(node_of(&c, id), Some(other));
    // Saved anew, the image is that node's.
    save(&mut c, id);
    assert_eq!((c.core.image_of(id), node_of(&c, id)), (Some(other), Some(other)));
    assert_eq!(c.core.shared_images().collect::<Vec<_>>(), [(id, number)]);
    // A node whose directory is another one by now is none for it.
    c.event(Event::ImagePlace { node: other, place: None });
    drained(&mut c, own, false);
    drained(&mut c, other, true);
    save(&mut c, id);
    assert_eq!(node_of(&c, id), Some(own));
    c.finish(id);
}

#[test]
fn a_job_that_a_failed_save_has_damaged_goes_on_from_its_earlier_image() {
    let mut c = Cluster::with_nodes(&[1, 1]);
    let id = submit(&mut c, job(1), IMAGE);
    let node = c.core.parts(id)[0].node;
    ask(&mut c, id, CheckpointOrder::GoOn);
    ask(&mut c, id, CheckpointOrder::Kept);
    // It is asked to go on, to end, and to be held.
    let orders = [CheckpointOrder::GoOn, END, CheckpointOrder::End { force: true, hold: true }];
    for (order, held_by) in orders.into_iter().zip([None, None, Some(HeldBy::Owner)]) {
        ask(&mut c, id, order);
        news(&mut c);
        end(&mut c, id, TaskStatus::Damaged);
        assert_eq!(news(&mut c), [CheckpointNews::Damaged]);
        assert_eq!((c.core.image_of(id), c.core.held_by(id)), (Some(node), held_by));
        assert_eq!(c.core.checkpoint(id).unwrap().resumes, 1, "it is the same image");
        assert_eq!(runs(&c, id), held_by.is_none());
    }
    // One that was dropped since is not taken again, and one that was not heard of is.
    c.event(Event::Release { job: id, by: HeldBy::Owner });
    ask(&mut c, id, CheckpointOrder::Anew);
    c.event(Event::Cancel { job: id, reason: EndReason::Requeued { hold: false }, at_once: false });
    end(&mut c, id, TaskStatus::Damaged);
    assert_eq!((c.core.image_of(id), c.core.checkpoint(id).unwrap().resumes), (None, 0));
    let on = c.core.parts(id)[0].node;
    end(&mut c, id, TaskStatus::Damaged);
    assert_eq!((c.core.image_of(id), c.core.checkpoint(id).unwrap().resumes), (Some(on), 1));
    // What its owner asks for stands.
    c.event(Event::Cancel { job: id, reason: EndReason::Cancelled, at_once: false });
    end(&mut c, id, TaskStatus::Damaged);
    assert_eq!(c.outcomes[&id].reason, EndReason::Cancelled);
}

#[test]
fn a_job_that_is_lost_while_it_is_to_be_saved_and_held_is_held() {
    for saves in [IMAGE, SAVES] {
        for hold in [true, false] {
            let mut c = Cluster::with_nodes(&[1, 1]);
            let spec = JobSpec { on_node_loss: OnNodeLoss::Requeue, ..job(1) };
            let id = submit(&mut c, spec, saves);
            ask(&mut c, id, CheckpointOrder::End { force: false, hold });
            let node = c.core.parts(id)[0].node;
            c.lose(node.0);
            assert_eq!(c.core.held_by(id), hold.then_some(HeldBy::Owner));
            assert_eq!(runs(&c, id), !hold);
        }
    }
}

#[test]
fn a_job_that_named_its_nodes_is_restored_on_these_alone() {
    let mut c = Cluster::with_nodes(&[1, 1, 1]);
    let [own, other, unnamed] = [0, 1, 2].map(NodeId);
    for node in [own, other, unnamed] {
        c.event(Event::ImagePlace { node, place: Some(7) });
    }
    let drained = |c: &mut Cluster, node, drained: bool| {
        c.event(Event::SetDrained { node, reason: drained.then(String::new) });
    };
    let node_of = |c: &Cluster, id| c.core.parts(id).first().map(|part| part.node);
    let save = |c: &mut Cluster, id, hold| {
        ask(c, id, CheckpointOrder::End { force: false, hold });
        end(c, id, TaskStatus::Saved);
    };
    drained(&mut c, other, true);
    let mut named = job(1);
    named.nodes.among = Some([own, other].into());
    let id = submit(&mut c, named, IMAGE);
    assert_eq!(node_of(&c, id), Some(own));
    drained(&mut c, own, true);
    save(&mut c, id, false);
    assert_eq!(node_of(&c, id), None, "it did not name the one that is free");
    drained(&mut c, other, false);
    assert_eq!(node_of(&c, id), Some(other));
    // The image of the next is that node's. Without one, the job may be where it wanted to be.
    drained(&mut c, own, false);
    save(&mut c, id, true);
    c.remove(own.0);
    assert_eq!(c.core.image_place(own), None);
    let among = |c: &Cluster| c.core.job(id, ClusterTime(c.now)).unwrap().spec.nodes.among.clone();
    assert_eq!(among(&c), Some([other].into()), "a node that is removed reads no image");
    ask(&mut c, id, CheckpointOrder::Anew);
    assert_eq!(among(&c), Some([own, other].into()));
    c.event(Event::Release { job: id, by: HeldBy::Owner });
    assert_eq!(node_of(&c, id), Some(other));
    c.finish(id);
}

#[test]
fn a_job_that_cannot_be_saved_goes_on_and_one_that_cannot_be_restored_is_held() {
    let mut c = Cluster::with_nodes(&[1]);
    let id = submit(&mut c, job(1), IMAGE);
    ask(&mut c, id, CheckpointOrder::NotSaved);
    assert_eq!(news(&mut c), [], "it was not asked");
    ask(&mut c, id, END);
    news(&mut c);
    ask(&mut c, id, CheckpointOrder::NotSaved);
    assert_eq!(news(&mut c), [CheckpointNews::NotSaved]);
    assert!(runs(&c, id));
    assert_eq!(c.core.checkpoint(id).unwrap().until, None);
    // Its own end is one.
    ask(&mut c, id, END);
    news(&mut c);
    end(&mut c, id, TaskStatus::Saved);
    assert_eq!(news(&mut c), [CheckpointNews::Saved]);
    assert!(runs(&c, id));
    end(&mut c, id, TaskStatus::NotRestored);
    assert_eq!(news(&mut c), [CheckpointNews::NotRestored]);
    assert!(matches!(state(&c, id), JobState::Queued { .. }));
    assert_eq!(c.core.held_by(id), Some(HeldBy::Owner));
    assert_eq!(c.core.checkpoint(id).unwrap().resumes, 1, "its image is tried again");
    c.event(Event::Release { job: id, by: HeldBy::Owner });
    ask(&mut c, id, CheckpointOrder::End { force: true, hold: false });
    news(&mut c);
    ask(&mut c, id, CheckpointOrder::NotSaved);
    assert_eq!(news(&mut c), [CheckpointNews::Forced]);
    end(&mut c, id, TaskStatus::Signaled(15));
    assert!(runs(&c, id));
    assert_eq!(c.finish(id).exit_code, 0);
}
