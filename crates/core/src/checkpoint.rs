//! Jobs that save their state: by themselves (`--checkpoint-signal`), or as an image of their
//! processes (`--checkpoint`).
//!
//! Such a job names a signal that asks its tasks to save their state. It is asked in one of two
//! ways:
//!
//! - To save its state and go on: now and then (`--checkpoint-every`), or by request.
//! - To save its state and end. Its tasks have the grace that the job named. When nothing is left
//!   of them, the job is queued again, and its next run resumes.
//!
//! ```text
//! Ends --run ended--> (queued again: saved, or died of the signal)
//!   |--grace over, forced--> Forced --SIGTERM, grace, SIGKILL--> (queued again: ended)
//!   \--grace over----------> Late: it goes on as it was
//! ```
//!
//! A run that ends late has saved its state, too: it is queued again as well. Late is up to as much
//! time of its turns as the grace, or without a bound for a job that names the exit code of such
//! ends. A run that ends with another exit code is the end of the job. So is one that fails, is
//! cancelled or exceeds its time limit: the reason of such an end stands.
//!
//! Of a job whose processes are saved, only the end of its task says whether they were. Then the
//! job may be only on nodes that can read its image, and its next run is restored from that. If its
//! processes could not be saved, they go on; or they may be damaged by that, and the job goes on
//! from an earlier image. If they can't be restored, the job waits in line again
//! and is held: the image is kept, also after further runs, until it has ended.
//!
//! While tasks save their state, an exit status is no failure, and no task waits for another: ranks
//! need not end at once. What a job keeps for its next run is its own; here is only noted that
//! there may be something.

mod images;

use crate::action::{Action, StepAction};
use crate::apply::Core;
use crate::state::record::{Course, Phase, Record, Residence, Rules};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId, Rank};
use tutti_types::job::{Checkpoint, EndReason, FirstStep, OnBadExit, SharedImage, TaskStatus};
use tutti_types::time::{ClusterTime, Nanos};

/// What a job is asked to do with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckpointOrder {
    /// To save it and go on.
    GoOn,
    /// To save it and end, so that the job can be queued again.
    End {
        /// Whether the run is ended when the grace is over; otherwise it goes on.
        force: bool,
        /// Whether the job is held in line.
        hold: bool,
    },
    /// Nothing: an order of the driver. Asked to end after that, its processes could not be saved to
    /// an image, and go on.
    NotSaved,
    /// To start from the beginning when it runs next. Its image is not kept.
    Anew,
    /// Nothing: an order of the driver. Its processes were saved to an image, and go on.
    Kept,
    /// Nothing: an order of the driver. Asked to go on after that, its processes could not be saved
    /// to an image. This answers no request to end.
    NotKept,
}

/// What became of a request to a job to save its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckpointNews {
    /// The job is asked to save its state and go on.
    AskedToGoOn,
    /// The job is asked to save its state and end.
    AskedToEnd {
        /// When its grace is over.
        until: ClusterTime,
    },
    /// Its tasks have ended in time: the job is queued again.
    Saved,
    /// A task had no handler and died of the signal: the job is queued again, and what this run has
    /// not saved before is lost.
    Died,
    /// Its tasks have not ended in time: the run goes on as it was.
    Unanswered,
    /// Its tasks have not ended in time: the run is being ended, and the job is queued again.
    Forced,
    /// Its processes could not be saved to an image: the run goes on as it was.
    NotSaved,
    /// Its processes could not be restored from their image: the job is queued again, and held.
    NotRestored,
    /// Its processes were saved to an image: the run goes on as it was.
    Kept,
    /// Its processes could not be saved to an image and may be damaged by that: they were ended,
    /// and the job is queued again with an earlier image.
    Damaged,
}

/// Why a job can't be asked to save its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointRefusal {
    /// There is no such job.
    NoJob,
    /// It names no signal for that.
    NotAble,
    /// It waits in line.
    Waits,
    /// It is ending.
    Ending,
    /// It has no processors at present.
    Preempted,
    /// A front end waits for its end, so it can't be queued again.
    HasFront,
    /// Its signal is for the steps of a batch script, and no step runs.
    NoStep,
    /// Steps of it run, whose front ends can't be saved with it.
    HasSteps,
    /// It has no image.
    NoImage,
}

/// A job that saves its state by itself, as its owner and administrators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointView {
    /// What it named.
    pub spec: Checkpoint,
    /// Until when its tasks may take to end; `None`: they are not asked to.
    pub until: Option<ClusterTime>,
    /// How many earlier runs were asked to save their state, and did not die of that.
    pub resumes: u32,
    /// What became of the latest request.
    pub last: Option<CheckpointNews>,
}

/// The jobs that save their state by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Checkpoints {
    jobs: BTreeMap<JobId, Saver>,
    /// When a grace is over, or a job is to be asked to save its state and go on.
    due: BTreeSet<(ClusterTime, JobId)>,
    /// Those that are asked before they are preempted, at the end of this event.
    pub(crate) wanted: BTreeSet<JobId>,
    /// Where nodes put images that others can read.
    pub(crate) places: images::Places,
}

/// A job that saves its state by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Saver {
    spec: Checkpoint,
    /// How many earlier runs were asked, and did not die of that.
    resumes: u32,
    last: Option<CheckpointNews>,
    /// What the present run was asked last.
    ask: Option<Ask>,
    /// When the run is asked next to save its state and go on.
    next: ClusterTime,
    /// Its moment in the list.
    due: ClusterTime,
    /// Whether its processes were saved to an image, or could not be restored from one, as the end
    /// of a task has it.
    told: Option<CheckpointNews>,
    /// Where its image is.
    image: Option<images::Image>,
    /// Where its images are, if in a directory that nodes share.
    shared: Option<SharedImage>,
}

/// What a run was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Ask {
    stage: Stage,
    /// Whether the job was suspended before, and is so again.
    suspended: bool,
    /// Whether a task died of the signal.
    died: bool,
    /// Whether a task ended that others may wait for.
    failing: bool,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Stage {
    /// To save its state and go on.
    GoesOn,
    /// To save its state and end.
    Ends { until: ClusterTime, force: bool, hold: bool },
    /// It did not end in time, and goes on; it had got so much time of its turns then.
    Late { service: Nanos, hold: bool },
    /// It did not end in time, and is ended.
    Forced,
}

/// What the end of a run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// What the driver is to say; `None`: the run ended for another reason.
    pub(crate) news: Option<CheckpointNews>,
    /// Whether the job is queued again for that; then, whether it is held.
    pub(crate) requeue: Option<bool>,
    /// Whether the job was to be held in line when this run has ended, however it ends.
    pub(crate) holds: bool,
    /// Whether the next run finds something to resume from that none has found before.
    pub(crate) resumes: bool,
    /// Whether the job is suspended in line.
    pub(crate) suspended: bool,
}

impl Checkpoints {
    pub(crate) fn note(&mut self, job: JobId, spec: Checkpoint) {
        let (next, due) = (ClusterTime::NEVER, ClusterTime::NEVER);
        let (last, told, image, shared) = (None, None, None, None);
        let saver = Saver { spec, resumes: 0, last, ask: None, next, due, told, image, shared };
        self.jobs.insert(job, saver);
    }

    /// A job has processors, the first of them on this node.
    pub(crate) fn note_start(&mut self, now: ClusterTime, job: JobId, node: Option<NodeId>) {
        let place = node.and_then(|node| self.places.of(node));
        if let Some(saver) = self.jobs.get_mut(&job) {
            if saver.spec.saves_image() && saver.image.is_none() {
                saver.shared = place.map(|place| SharedImage { place, number: now.0 });
            }
            saver.next = saver.spec.every.map_or(ClusterTime::NEVER, |every| now + every);
            saver.told = None;
            self.set_due(job);
        }
    }

    /// A run is ending: it is asked nothing more.
    pub(crate) fn close(&mut self, job: JobId) {
        self.wanted.remove(&job);
        if let Some(saver) = self.jobs.get_mut(&job) {
            saver.next = ClusterTime::NEVER;
            let due = core::mem::replace(&mut saver.due, ClusterTime::NEVER);
            self.due.remove(&(due, job));
        }
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.close(job);
        self.jobs.remove(&job);
    }

    /// Keeps the list of moments up to date.
    fn set_due(&mut self, job: JobId) {
        let Some(saver) = self.jobs.get_mut(&job) else { return };
        let at = match saver.ask.map(|ask| ask.stage) {
            Some(Stage::Ends { until, .. }) => until,
            Some(Stage::Forced) => ClusterTime::NEVER,
            Some(Stage::GoesOn | Stage::Late { .. }) | None => saver.next,
        };
        let before = core::mem::replace(&mut saver.due, at);
        self.due.remove(&(before, job));
        if at < ClusterTime::NEVER {
            self.due.insert((at, job));
        }
    }

    pub(crate) fn next(&self) -> ClusterTime {
        self.due.first().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    fn ask_of(&self, job: JobId) -> Option<&Ask> {
        self.jobs.get(&job)?.ask.as_ref()
    }

    /// Until when a run may take that is asked to end.
    pub(crate) fn until(&self, job: JobId) -> Option<ClusterTime> {
        let saver = self.jobs.get(&job).filter(|saver| saver.due < ClusterTime::NEVER)?;
        match saver.ask?.stage {
            Stage::Ends { until, .. } => Some(until),
            Stage::GoesOn | Stage::Late { .. } | Stage::Forced => None,
        }
    }

    /// No job is asked now and then any more: for a copy that only looks ahead.
    pub(crate) fn ask_no_more(&mut self) {
        for job in self.jobs.keys().copied().collect::<Vec<JobId>>() {
            if let Some(saver) = self.jobs.get_mut(&job) {
                (saver.spec.every, saver.next) = (None, ClusterTime::NEVER);
            }
            self.set_due(job);
        }
    }

    /// Whether the latest request ended a run with its state saved.
    pub(crate) fn is_saved(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|saver| saver.last == Some(CheckpointNews::Saved))
    }

    /// Tasks of a job have ended like this.
    pub(crate) fn note_status(&mut self, job: JobId, status: TaskStatus) {
        let Some(saver) = self.jobs.get_mut(&job) else { return };
        if status == TaskStatus::Saved {
            saver.told = Some(CheckpointNews::Saved);
        } else if status == TaskStatus::NotRestored {
            saver.told = Some(CheckpointNews::NotRestored);
        } else if status == TaskStatus::Damaged {
            saver.told = Some(CheckpointNews::Damaged);
        }
        if let Some(ask) = &mut saver.ask {
            ask.died |= status == TaskStatus::Signaled(saver.spec.signal);
        }
    }

    /// Whether a run is asked to save its state and end.
    pub(crate) fn is_asked_to_end(&self, job: JobId) -> bool {
        self.until(job).is_some()
    }

    /// A task of a run has ended that others may wait for. Whether that waits for the end of its
    /// grace.
    pub(crate) fn note_failing(&mut self, job: JobId) -> bool {
        let ask = self.jobs.get_mut(&job).and_then(|saver| saver.ask.as_mut());
        let Some(ask) = ask.filter(|ask| matches!(ask.stage, Stage::Ends { .. })) else {
            return false;
        };
        ask.failing = true;
        true
    }

    /// What the end of a run says that got so much time.
    pub(crate) fn answer(
        &mut self,
        job: JobId,
        residence: &Residence,
        service: Nanos,
    ) -> Option<Answer> {
        self.close(job);
        let saver = self.jobs.get_mut(&job)?;
        if saver.spec.saves_image() {
            let is_requeued = matches!(residence.reason(), Some(EndReason::Requeued { .. }));
            return saver.answer_of_image(is_requeued);
        }
        let Ask { stage, suspended, died, .. } = saver.ask.take()?;
        let (grace, code) = (saver.spec.grace, saver.spec.exit_code);
        let has_said = code.is_some_and(|code| code == residence.exit_code);
        let is_in_time = |since: Nanos| service.0.saturating_sub(since.0) <= grace.0;
        let hold = stage.holds();
        let news = match stage {
            Stage::Forced => None,
            _ if !ended_by_itself(residence, died) => None,
            Stage::Ends { .. } | Stage::Late { .. } if died => Some(CheckpointNews::Died),
            Stage::Ends { .. } => (has_said || code.is_none()).then_some(CheckpointNews::Saved),
            Stage::Late { service, .. } => {
                let is_meant = has_said || code.is_none() && is_in_time(service);
                is_meant.then_some(CheckpointNews::Saved)
            }
            Stage::GoesOn => has_said.then_some(CheckpointNews::Saved),
        };
        saver.last = news.or(saver.last);
        Some(Answer { news, requeue: news.map(|_| hold), holds: hold, resumes: !died, suspended })
    }

    /// A job is queued again, and its next run finds something to resume from.
    pub(crate) fn note_resume(&mut self, job: JobId) {
        if let Some(saver) = self.jobs.get_mut(&job) {
            saver.resumes = saver.resumes.saturating_add(1);
        }
    }
}

impl Saver {
    /// See [`Checkpoints::answer`]. `is_requeued`: its end was an order to queue the job again.
    fn answer_of_image(&mut self, is_requeued: bool) -> Option<Answer> {
        let (ask, news) = (self.ask.take(), self.told.take());
        let is_restored = news != Some(CheckpointNews::NotRestored);
        let holds = ask.is_some_and(|ask| ask.stage.holds());
        let hold = !is_restored || holds;
        self.last = news.or(self.last);
        // It may not have been heard of when it was made. After that order it may be one that was
        // dropped.
        let is_unheard = self.image.is_none() && !is_requeued;
        (ask.is_some() || news.is_some()).then(|| Answer {
            news,
            requeue: news.map(|_| hold),
            holds,
            resumes: match news {
                Some(CheckpointNews::Damaged) => is_unheard,
                _ => news == Some(CheckpointNews::Saved),
            },
            suspended: ask.is_some_and(|ask| ask.suspended),
        })
    }
}

/// Whether the tasks of a run have ended without an order to end, and without a failure.
fn ended_by_itself(residence: &Residence, died: bool) -> bool {
    match residence.course {
        Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => true,
        Course::Terminating { reason, .. } | Course::Killed { reason, .. } => match reason {
            EndReason::Completed => true,
            EndReason::TaskFailed => died,
            EndReason::Cancelled
            | EndReason::TimedOut
            | EndReason::OutOfMemory
            | EndReason::FrontEndLost
            | EndReason::NodeLost(_)
            | EndReason::ShutDown
            | EndReason::NeverAfter(_)
            | EndReason::Declined
            | EndReason::Requeued { .. } => false,
        },
    }
}

impl Core {
    /// What is known of a job that saves its state by itself.
    #[must_use]
    pub fn checkpoint(&self, job: JobId) -> Option<CheckpointView> {
        let &Saver { spec, resumes, last, .. } = self.checkpoints.jobs.get(&job)?;
        Some(CheckpointView { spec, until: self.checkpoints.until(job), resumes, last })
    }

    /// Why a job can't be asked to save its state, if it can't.
    #[must_use]
    pub fn why_no_checkpoint(
        &self,
        job: JobId,
        order: CheckpointOrder,
    ) -> Option<CheckpointRefusal> {
        let Some(record) = self.jobs.get(&job) else { return Some(CheckpointRefusal::NoJob) };
        let Some(saver) = self.checkpoints.jobs.get(&job) else {
            return Some(CheckpointRefusal::NotAble);
        };
        if order == CheckpointOrder::Anew {
            return saver.image.is_none().then_some(CheckpointRefusal::NoImage);
        }
        match &record.phase {
            Phase::Queued { .. } => Some(CheckpointRefusal::Waits),
            Phase::Resident(it) if it.ending() => Some(CheckpointRefusal::Ending),
            Phase::Resident(it) if !it.place.is_home() => Some(CheckpointRefusal::Preempted),
            Phase::Resident(_) if record.spec.attached && order != CheckpointOrder::GoOn => {
                Some(CheckpointRefusal::HasFront)
            }
            Phase::Resident(_) if saver.spec.saves_image() => {
                let has_steps = self.steps(job).next().is_some();
                has_steps.then_some(CheckpointRefusal::HasSteps)
            }
            Phase::Resident(_) => {
                let reaches = self.reaches_tasks(job, saver.spec.only_shell);
                (!reaches).then_some(CheckpointRefusal::NoStep)
            }
        }
    }

    /// Whether a signal to the run of a job reaches any task ([`Self::signal_run`]).
    fn reaches_tasks(&self, job: JobId, only_shell: bool) -> bool {
        let mut signals = Vec::new();
        self.signal_run(job, 0, only_shell, &mut signals);
        !signals.is_empty()
    }

    /// A user asks a job to save its state.
    pub(crate) fn on_checkpoint(
        &mut self,
        now: ClusterTime,
        (job, order): (JobId, CheckpointOrder),
        actions: &mut Vec<Action>,
    ) {
        match order {
            CheckpointOrder::NotSaved => return self.on_not_saved(now, job, actions),
            CheckpointOrder::NotKept => return self.on_not_kept(now, job, actions),
            CheckpointOrder::Kept => return self.on_kept(job, actions),
            CheckpointOrder::GoOn | CheckpointOrder::End { .. } | CheckpointOrder::Anew => {}
        }
        if self.why_no_checkpoint(job, order).is_some() {
            return;
        }
        match order {
            CheckpointOrder::NotSaved | CheckpointOrder::NotKept | CheckpointOrder::Kept => {}
            CheckpointOrder::Anew => self.drop_image(job),
            CheckpointOrder::GoOn => self.ask_to_go_on(job, actions),
            CheckpointOrder::End { force, hold } => {
                self.ask_to_end(now, job, (force, hold), actions);
            }
        }
    }

    /// Asks a job to save its state and go on.
    fn ask_to_go_on(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return };
        let spec = saver.spec;
        let stage = Stage::GoesOn;
        saver.ask.get_or_insert(Ask { stage, suspended: false, died: false, failing: false });
        match spec.saves_image() {
            true => self.signal_run(job, Checkpoint::IMAGE_AND_GO_ON, true, actions),
            false => self.signal_run(job, spec.signal, spec.only_shell, actions),
        }
        actions.push(Action::Checkpoint { job, news: CheckpointNews::AskedToGoOn });
    }

    /// Asks a job to save its state and end. One that is asked already is not asked again, but may
    /// be ended after its grace.
    fn ask_to_end(
        &mut self,
        now: ClusterTime,
        job: JobId,
        (force, hold): (bool, bool),
        actions: &mut Vec<Action>,
    ) {
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return };
        let latest = self.roll_out.until();
        if let Some(Ask {
            stage: Stage::Ends { force: forces, hold: holds, until: ends }, ..
        }) = &mut saver.ask
        {
            *forces |= force;
            *holds |= hold;
            *ends = latest.min(*ends);
            return self.checkpoints.set_due(job);
        }
        let (spec, until) = (saver.spec, latest.min(now + saver.spec.grace));
        let suspended = self.jobs.get(&job).is_some_and(|record| record.suspended);
        let stage = Stage::Ends { until, force, hold };
        saver.ask = Some(Ask { stage, suspended, died: false, failing: false });
        saver.last = None;
        self.checkpoints.set_due(job);
        // It can't heed the request while it is suspended.
        self.on_resume(job);
        let only_roots = spec.only_shell || spec.saves_image();
        self.signal_run(job, spec.signal, only_roots, actions);
        self.queue.disturbed = true;
        actions.push(Action::Checkpoint { job, news: CheckpointNews::AskedToEnd { until } });
    }

    /// A job that is asked to save its state and end has its whole grace from now on. Its memory
    /// had left, so it could not heed the request before. Whether it has any grace.
    pub(crate) fn begin_grace(&mut self, job: JobId) -> bool {
        let (now, latest) = (self.now, self.roll_out.until());
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return false };
        let ends = latest.min(now + saver.spec.grace);
        if let Some(Ask { stage: Stage::Ends { until, .. }, .. }) = &mut saver.ask {
            *until = ends;
            self.checkpoints.set_due(job);
        }
        ends > now
    }

    /// Whether a job can save its state and end.
    pub(crate) fn can_be_asked(&self, job: JobId) -> bool {
        let order = CheckpointOrder::End { force: true, hold: false };
        self.why_no_checkpoint(job, order).is_none()
    }

    /// Asks a job to save its state and end, and ends it after its grace.
    pub(crate) fn save_by_force(
        &mut self,
        now: ClusterTime,
        job: JobId,
        actions: &mut Vec<Action>,
    ) {
        self.ask_to_end(now, job, (true, false), actions);
    }

    /// Sends a signal to the run of a job: to all tasks, but in a batch job to the steps; or only
    /// to the root processes of its first step.
    pub(crate) fn signal_run(
        &self,
        job: JobId,
        signal: u8,
        only_shell: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(residence) = self.residence(job).filter(|it| !it.ending()) else { return };
        let is_batch = self.first_step(job) == FirstStep::Once;
        if only_shell {
            let parts = residence.parts.iter().filter(|part| !part.cleared);
            let meant = parts.filter(|part| !is_batch || part.has(Rank(0)));
            let each = meant.map(|part| Action::SignalRoots { job, node: part.node, signal });
            return actions.extend(each);
        }
        if !is_batch {
            self.on_signal(job, &[], signal, actions);
        }
        for step in self.steps(job).filter(|step| !step.is_ending) {
            let parts = step.parts.iter().filter(|part| !part.cleared);
            let signal = |node| StepAction::Signal { key: step.key, node, signal }.into();
            actions.extend(parts.map(|part| signal(part.node)));
        }
    }

    /// What the end of a task means for the others of its job at present.
    pub(crate) fn rules_of(&self, record: &Record) -> Rules {
        self.rules_at_present(record.id, Rules::of(&record.spec))
    }

    /// These rules, but that an exit status is no failure while a job may end to be queued again.
    pub(crate) fn rules_at_present(&self, job: JobId, rules: Rules) -> Rules {
        let is_asked = self.checkpoints.ask_of(job).is_some_and(Ask::may_end);
        let is_kill = rules.on_bad_exit == OnBadExit::Kill;
        match is_asked && is_kill {
            true => Rules { on_bad_exit: OnBadExit::KillOnSignal, ..rules },
            false => rules,
        }
    }

    /// A job is queued again after a run that was asked to save its state.
    pub(crate) fn note_answer(
        &mut self,
        record: &mut Record,
        answer: Option<Answer>,
        actions: &mut Vec<Action>,
    ) {
        let Some(Answer { news, resumes, suspended, .. }) = answer else { return };
        record.suspended |= suspended;
        if news == Some(CheckpointNews::NotRestored) {
            self.checkpoints.note_not_restored(record);
        }
        if resumes {
            self.checkpoints.note_resume(record.id);
            self.checkpoints.note_image(record);
        }
        let job = record.id;
        actions.extend(news.map(|news| Action::Checkpoint { job, news }));
    }

    /// Whether a job is to save its state before it is preempted; then it is asked at the end of
    /// this event, unless it was before.
    pub(crate) fn saves_before_preemption(&mut self, job: JobId) -> bool {
        if self.checkpoints.until(job).is_some() || self.checkpoints.wanted.contains(&job) {
            return true;
        }
        let order = CheckpointOrder::End { force: false, hold: false };
        if !self.params.preempts_by_checkpoint() || self.why_no_checkpoint(job, order).is_some() {
            return false;
        }
        let Some(saver) = self.checkpoints.jobs.get(&job) else { return false };
        // One that did not answer is suspended in place from then on.
        let failed = |last| {
            use CheckpointNews::{Damaged, Died, NotSaved, Unanswered};
            matches!(last, Damaged | Died | Unanswered | NotSaved)
        };
        let wants = !saver.last.is_some_and(failed);
        if wants {
            self.checkpoints.wanted.insert(job);
        }
        wants
    }

    /// Asks the jobs that are to be preempted.
    pub(crate) fn ask_wanted(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        for job in core::mem::take(&mut self.checkpoints.wanted) {
            let order = CheckpointOrder::End { force: false, hold: false };
            self.on_checkpoint(now, (job, order), actions);
        }
    }

    /// Carries out what is due: ends of graces, and requests to save the state and go on.
    pub(crate) fn checkpoints_due(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        while let Some(&(at, job)) = self.checkpoints.due.first()
            && at <= now
        {
            match self.checkpoints.until(job) {
                Some(until) if until <= now => self.end_grace(now, job, actions),
                _ => {
                    if let Some(saver) = self.checkpoints.jobs.get_mut(&job) {
                        let every = saver.spec.every;
                        saver.next = every.map_or(ClusterTime::NEVER, |every| now + every);
                    }
                    if self.takes_turns(job)
                        && self.why_no_checkpoint(job, CheckpointOrder::GoOn).is_none()
                    {
                        self.ask_to_go_on(job, actions);
                    }
                }
            }
            self.checkpoints.set_due(job);
        }
    }

    /// The tasks of a run have not ended within their grace.
    fn end_grace(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        if self.swaps.has(job) && self.begin_grace(job) {
            return;
        }
        let service = self.ledger.service(job, now);
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return };
        let Some(ask) = &mut saver.ask else { return };
        let Stage::Ends { force, hold, .. } = ask.stage else { return };
        if force {
            self.force_end(now, job, actions);
            return;
        }
        let (suspended, failing) = (ask.suspended, ask.failing);
        ask.stage = Stage::Late { service, hold };
        saver.last = Some(CheckpointNews::Unanswered);
        self.queue.disturbed = true;
        self.queue.reconsider();
        actions.push(Action::Checkpoint { job, news: CheckpointNews::Unanswered });
        if suspended {
            self.on_suspend(job);
        }
        if failing {
            self.fail_after_grace(job);
        }
    }

    /// The processes of a job could not be saved to an image.
    fn on_not_saved(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return };
        let Some(Ask { stage, suspended, .. }) = saver.ask else { return };
        match stage {
            Stage::Ends { force: true, .. } => {
                self.force_end(now, job, actions);
                return;
            }
            Stage::Ends { .. } | Stage::Late { .. } | Stage::GoesOn => {}
            Stage::Forced => return,
        }
        saver.ask = None;
        saver.last = Some(CheckpointNews::NotSaved);
        self.checkpoints.set_due(job);
        self.queue.disturbed = true;
        self.queue.reconsider();
        actions.push(Action::Checkpoint { job, news: CheckpointNews::NotSaved });
        if suspended {
            self.on_suspend(job);
        }
    }

    /// The processes of a job, which were to go on, could not be saved to an image. A request to
    /// end that has come since stays open: the driver answers it next.
    fn on_not_kept(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        if self.checkpoints.ask_of(job).is_some_and(|ask| ask.stage == Stage::GoesOn) {
            self.on_not_saved(now, job, actions);
        }
    }

    /// The processes of a job were saved to an image, and go on. That is what its next run finds.
    fn on_kept(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return };
        let Some(record) = self.jobs.get_mut(&job).filter(|it| it.residence().is_some()) else {
            return;
        };
        if !saver.spec.saves_image() {
            return;
        }
        saver.last = Some(CheckpointNews::Kept);
        saver.ask = saver.ask.take().filter(|ask| ask.stage != Stage::GoesOn);
        self.checkpoints.note_resume(job);
        self.checkpoints.note_image(record);
        actions.push(Action::Checkpoint { job, news: CheckpointNews::Kept });
    }

    /// Ends a run that was asked to save its state and end, and queues its job again. Whether that
    /// was asked.
    pub(crate) fn force_end(
        &mut self,
        now: ClusterTime,
        job: JobId,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.checkpoints.until(job).is_none() {
            return false;
        }
        let Some(saver) = self.checkpoints.jobs.get_mut(&job) else { return false };
        let Some(ask) = &mut saver.ask else { return false };
        let Stage::Ends { hold, .. } = ask.stage else { return false };
        ask.stage = Stage::Forced;
        saver.last = Some(CheckpointNews::Forced);
        actions.push(Action::Checkpoint { job, news: CheckpointNews::Forced });
        self.end_job(now, job, EndReason::Requeued { hold }, actions);
        true
    }

    /// What is wrong with what jobs are asked, if anything is.
    pub(crate) fn wrong_checkpoints(&self, now: ClusterTime) -> Option<String> {
        for (&job, saver) in &self.checkpoints.jobs {
            let Some(record) = self.jobs.get(&job) else {
                return Some(format!("how job {job} saves its state is kept, and it is unknown"));
            };
            let runs = record.residence().is_some_and(|it| !it.ending());
            let is_late = saver.due < now;
            let is_listed = self.checkpoints.due.contains(&(saver.due, job));
            let is_due = saver.due < ClusterTime::NEVER;
            if is_late || is_listed != is_due || is_due && !runs {
                return Some(format!("job {job} is asked to save its state at a wrong time"));
            }
            if saver.ask.is_some() && record.residence().is_none() {
                return Some(format!("job {job} is asked to save its state, and does not run"));
            }
            let ends = |ask: &Ask| matches!(ask.stage, Stage::Ends { .. });
            if saver.ask.as_ref().is_some_and(ends) && runs && !is_due {
                return Some(format!("job {job} is asked to end, and its grace has no end"));
            }
        }
        let is_unknown =
            |&&(_, job): &&(ClusterTime, JobId)| !self.checkpoints.jobs.contains_key(&job);
        let unknown = self.checkpoints.due.iter().find(is_unknown);
        unknown.map(|(_, job)| format!("job {job} has a moment to save its state, and can't"))
    }
}

impl Stage {
    /// Whether the job is to be held in line.
    const fn holds(self) -> bool {
        match self {
            Self::Ends { hold, .. } | Self::Late { hold, .. } => hold,
            Self::GoesOn | Self::Forced => false,
        }
    }
}

impl Ask {
    /// Whether the run may end to be queued again.
    const fn may_end(&self) -> bool {
        matches!(self.stage, Stage::Ends { .. } | Stage::Late { .. } | Stage::Forced)
    }
}
