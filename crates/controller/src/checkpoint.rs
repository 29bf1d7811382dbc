//! Jobs whose state is saved, by themselves or as an image of their processes: requests, and what
//! became of them.
//!
//! A client asks for a checkpoint, and hears which jobs are asked. For each it waits in a request
//! of its own, which it may repeat to the next controller. The core knows what became of the latest
//! request: kept here are only the clients that wait.

use super::driver::{Connection, Driver, Kind};
use super::error::Problem;
use tutti_core::{CheckpointNews, CheckpointOrder, CheckpointRefusal, Event, JobState};
use tutti_types::{EndReason, JobId, NodeId};
use tutti_wire::code::Code;
use tutti_wire::event::{CheckpointFault, What};
use tutti_wire::local::{CheckpointEnd, CheckpointWish, Reply};
use tutti_wire::show::CheckpointReport;
use tutti_wire::tree::{FromAgent, ToAgent};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// A node with more images removes none.
const IMAGES_MAX: usize = 100_000;

const fn order_of(wish: CheckpointWish) -> CheckpointOrder {
    match wish {
        CheckpointWish::GoOn => CheckpointOrder::GoOn,
        CheckpointWish::End { force, hold } => CheckpointOrder::End { force, hold },
    }
}

/// What a request has come to, once that is known.
const fn end_of(news: CheckpointNews) -> Option<CheckpointEnd> {
    match news {
        CheckpointNews::AskedToGoOn | CheckpointNews::AskedToEnd { .. } => None,
        CheckpointNews::Saved | CheckpointNews::Kept => Some(CheckpointEnd::Saved),
        CheckpointNews::Died => Some(CheckpointEnd::Died),
        CheckpointNews::Unanswered => Some(CheckpointEnd::Unanswered),
        CheckpointNews::Forced => Some(CheckpointEnd::Forced),
        CheckpointNews::NotSaved => Some(CheckpointEnd::NotSaved),
        CheckpointNews::NotRestored => Some(CheckpointEnd::NotRestored),
        CheckpointNews::Damaged => Some(CheckpointEnd::Damaged),
    }
}

impl Driver {
    /// How many earlier runs of a job were asked to save their state: then it resumes.
    pub(super) fn resumes(&self, job: JobId) -> u32 {
        self.core.checkpoint(job).map_or(0, |checkpoint| checkpoint.resumes)
    }

    /// Asks a job to save its state, or the elements of an array that can.
    pub(super) fn on_checkpoint(&mut self, token: u64, uid: u32, job: JobId, wish: CheckpointWish) {
        if let Err(error) = self.owned(uid, job) {
            return self.fail(token, error);
        }
        let order = order_of(wish);
        let jobs = match self.live_elements(job) {
            None => self.check_checkpoint(job, order).map(|()| vec![job]),
            Some(mut elements) => {
                elements.retain(|&job| self.check_checkpoint(job, order).is_ok());
                let why = format!("no element of array {job} runs that can save its state");
                let none = elements.is_empty();
                if none { Err(Problem::new(Code::NotInThatState, why)) } else { Ok(elements) }
            }
        };
        match jobs {
            Ok(jobs) => {
                for &job in &jobs {
                    self.apply(&Event::Checkpoint { job, order });
                }
                self.reply(token, &Reply::Asked { jobs });
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// Whether a job can be asked to save its state.
    fn check_checkpoint(&self, job: JobId, order: CheckpointOrder) -> Result<(), Problem> {
        let Some(refusal) = self.core.why_no_checkpoint(job, order) else { return Ok(()) };
        let (code, why) = match refusal {
            CheckpointRefusal::NoJob => (
                Code::NotInThatState,
                format!("job {job} is not running; `tutti ps` lists the jobs that are"),
            ),
            CheckpointRefusal::NotAble => (
                Code::Improper,
                format!(
                    "job {job} can't save its state: it was submitted without --checkpoint and \
                     --checkpoint-signal; `tutti requeue {job}` queues it again from the start"
                ),
            ),
            CheckpointRefusal::Waits => {
                (Code::NotInThatState, format!("job {job} waits in line, and has nothing to save"))
            }
            CheckpointRefusal::Ending => {
                (Code::NotInThatState, format!("job {job} is ending; submit it again"))
            }
            CheckpointRefusal::Preempted => (
                Code::NotInThatState,
                format!("job {job} is preempted, and can save its state only when it runs again"),
            ),
            CheckpointRefusal::HasFront => (
                Code::Improper,
                format!(
                    "job {job} can't be queued again, since its front end waits for its end; with \
                     --keep-running it saves its state and goes on"
                ),
            ),
            CheckpointRefusal::NoStep => (
                Code::NotInThatState,
                format!(
                    "job {job} has no step at present that could save its state; where its script \
                     does, submit it with --checkpoint-signal B:USR1"
                ),
            ),
            CheckpointRefusal::HasSteps => (
                Code::NotInThatState,
                format!(
                    "steps of job {job} run (`tutti show {job}`), and their front ends can't be \
                     saved; try again when they have ended"
                ),
            ),
            CheckpointRefusal::NoImage => {
                (Code::NotInThatState, format!("job {job} has no image that could be dropped"))
            }
        };
        Err(Problem::new(code, why))
    }

    /// A node reports of processes that can be saved to an image.
    pub(super) fn on_saver(&mut self, node: NodeId, report: FromAgent) {
        match report {
            FromAgent::GoesOn { launch, failure, ends } => {
                self.on_goes_on(launch.job, failure, ends);
            }
            FromAgent::HasImage { launch }
                if self.is_latest(node, launch) && self.is_launched(node, launch) =>
            {
                self.on_image(node, launch.job);
            }
            _ => {}
        }
    }

    /// The processes of a job go on: they are saved, or could not be.
    fn on_goes_on(&mut self, job: JobId, failure: Option<String>, ends: bool) {
        let order = match failure {
            None => CheckpointOrder::Kept,
            Some(_) if ends => CheckpointOrder::NotSaved,
            Some(_) => CheckpointOrder::NotKept,
        };
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.saving.note_failure(failure.unwrap_or_default());
        }
        self.apply(&Event::Checkpoint { job, order });
    }

    /// A node has an image of a job's processes, made while they went on. That may not have been
    /// heard when it was made. A run that is to be queued again has its image only if it was heard:
    /// it may be one that was dropped.
    fn on_image(&mut self, node: NodeId, job: JobId) {
        let state = self.core.job(job, self.now()).map(|view| view.state);
        let is_requeued =
            matches!(state, Some(JobState::Ending { reason: EndReason::Requeued { .. }, .. }));
        if !is_requeued && self.core.image_of(job) != Some(node) {
            self.on_goes_on(job, None, false);
        }
    }

    /// Has a node remove images of jobs that have ended.
    pub(super) fn tell_images(&mut self, node: NodeId) {
        let jobs: Vec<JobId> = self.core.images_on(node).take(IMAGES_MAX + 1).collect();
        let shared: Vec<_> = self.core.shared_images().take(IMAGES_MAX + 1).collect();
        if jobs.len().max(shared.len()) <= IMAGES_MAX {
            self.tell_node(node, ToAgent::KeepImages { jobs, shared });
        }
    }

    /// A client waits until it is known what became of the latest request to a job.
    pub(super) fn on_await_checkpoint(&mut self, token: u64, uid: u32, job: JobId) {
        if self.is_ended_for(token, uid, job) {
            return;
        }
        if let Some(end) = self.end_of_checkpoint(job) {
            let why = self.why_not_saved(job);
            return self.reply(token, &Reply::Checkpointed { job, end, why });
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get_mut(&token)
            && client.wait_for(job)
            && let Some(entry) = self.jobs.get_mut(&job)
        {
            entry.clients.await_checkpoint(token);
        }
    }

    /// What the latest request to a job has come to; `None` while that is open.
    fn end_of_checkpoint(&self, job: JobId) -> Option<CheckpointEnd> {
        let Some(checkpoint) = self.core.checkpoint(job) else {
            return Some(CheckpointEnd::Unknown);
        };
        let state = self.core.job(job, self.now()).map(|view| view.state);
        let is_requeued = |reason| matches!(reason, EndReason::Requeued { .. });
        match state {
            Some(JobState::Ending { reason, .. }) if is_requeued(reason) => None,
            _ if checkpoint.until.is_some() => None,
            _ => Some(checkpoint.last.and_then(end_of).unwrap_or(CheckpointEnd::Unknown)),
        }
    }

    /// Answers the clients that wait for a job, once it is known what became of the request.
    pub(super) fn answer_checkpoint(&mut self, job: JobId) {
        let Some(end) = self.end_of_checkpoint(job) else { return };
        let why = self.why_not_saved(job);
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        for token in entry.clients.take_checkpoint() {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.intake.connections.get_mut(&token)
            {
                client.wait_no_more(job);
            }
            self.reply(token, &Reply::Checkpointed { job, end, why: why.clone() });
        }
    }

    /// Why the processes of a job could not be saved or restored, as far as this controller knows.
    fn why_not_saved(&self, job: JobId) -> String {
        self.jobs.get(&job).map(|entry| entry.saving.failure().to_owned()).unwrap_or_default()
    }

    /// A job was asked to save its state, or it is known what became of that.
    pub(super) fn on_checkpoint_news(&mut self, job: JobId, news: CheckpointNews) {
        self.note_checkpoint(job);
        if news == CheckpointNews::Kept {
            return;
        }
        let grace = self.core.checkpoint(job).map(|checkpoint| checkpoint.spec.grace.0 / MS);
        let (what, state) = match news {
            CheckpointNews::AskedToGoOn => {
                (What::JobCheckpointing { ends: false, grace_ms: None }, None)
            }
            CheckpointNews::AskedToEnd { .. } => {
                (What::JobCheckpointing { ends: true, grace_ms: grace }, Some("checkpointing"))
            }
            CheckpointNews::Saved | CheckpointNews::Kept => {
                (What::JobCheckpointed {}, Some("checkpointed"))
            }
            CheckpointNews::Unanswered => {
                let what = What::JobCheckpointFailed { why: CheckpointFault::Unanswered };
                let view = self.core.job(job, self.now());
                (what, view.map(|it| if it.suspended { "suspended" } else { "running" }))
            }
            CheckpointNews::Forced => {
                (What::JobCheckpointFailed { why: CheckpointFault::Forced }, None)
            }
            CheckpointNews::Died => {
                (What::JobCheckpointFailed { why: CheckpointFault::Died }, None)
            }
            CheckpointNews::NotSaved => {
                let what = What::JobCheckpointFailed { why: CheckpointFault::NotSaved };
                let view = self.core.job(job, self.now());
                (what, view.map(|it| if it.suspended { "suspended" } else { "running" }))
            }
            CheckpointNews::NotRestored => {
                (What::JobCheckpointFailed { why: CheckpointFault::NotRestored }, None)
            }
            CheckpointNews::Damaged => {
                (What::JobCheckpointFailed { why: CheckpointFault::Damaged }, None)
            }
        };
        if let (Some(entry), Some(state)) = (self.jobs.get_mut(&job), state) {
            entry.shown.note(state);
        }
        self.job_event(job, what);
        if matches!(news, CheckpointNews::Unanswered | CheckpointNews::NotSaved) {
            self.answer_checkpoint(job);
        }
    }

    /// Keeps what `show` says of how a job saves its state.
    pub(super) fn note_checkpoint(&mut self, job: JobId) {
        let Some(checkpoint) = self.core.checkpoint(job) else { return };
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let spec = checkpoint.spec;
        let last = match checkpoint.last {
            _ if checkpoint.until.is_some() => Some("asked"),
            Some(CheckpointNews::Saved | CheckpointNews::Kept) => Some("saved"),
            Some(CheckpointNews::Died) => Some("died"),
            Some(CheckpointNews::Unanswered) => Some("unanswered"),
            Some(CheckpointNews::Forced) => Some("forced"),
            Some(CheckpointNews::NotSaved) => Some("not-saved"),
            Some(CheckpointNews::NotRestored) => Some("not-restored"),
            Some(CheckpointNews::Damaged) => Some("damaged"),
            Some(CheckpointNews::AskedToGoOn | CheckpointNews::AskedToEnd { .. }) | None => None,
        };
        entry.saving.note_report(CheckpointReport {
            signal: spec.signal,
            only_shell: spec.only_shell,
            grace_ms: spec.grace.0 / MS,
            exit_code: spec.exit_code,
            every_ms: spec.every.map(|every| every.0 / MS),
            resumes: checkpoint.resumes,
            last: last.map(Into::into),
            why: None,
        });
    }
}
