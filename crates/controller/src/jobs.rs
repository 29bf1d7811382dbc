//! What the controller keeps of a job beside what the core decides on.

use super::arrays::Element;
use super::exchange::Exchanges;
use super::failures::Failures;
use super::launch_store::Kept;
use super::show::Shown;
use super::steps::StepEntry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tutti_core::PlacementView;
use tutti_journal::Job;
use tutti_node::exit::Exit;
use tutti_node::platform::time::wall_ms;
use tutti_types::{
    ArraySpec, ClusterTime, EndReason, FirstStep, JobId, JobSpec, Nanos, NodeId, Outcome,
    QueueName, Rank, StepId, TaskStatus,
};
use tutti_wire::code::Code;
use tutti_wire::launch::{Credentials, LaunchSpec, Usage, cut};
use tutti_wire::limits::{ENDED_JOBS_BYTES_MAX, JOB_DETAIL_BYTES_MAX};
use tutti_wire::local::SubmitKey;
use tutti_wire::notify::Notify;
use tutti_wire::report::{JobReport, Target, TaskHistory};
use tutti_wire::show::{CheckpointReport, StepReport};

/// Jobs that ended and can still be shown; older ones are forgotten.
pub(super) const ENDED_MAX: usize = 10_000;

/// A job that has not ended.
pub(super) struct Entry {
    /// The user that it runs as.
    pub(super) credentials: Credentials,
    /// By what its owner would ask for it again.
    pub(super) key: Option<SubmitKey>,
    /// The owner's name.
    pub(super) user: String,
    /// Its class.
    pub(super) class: String,
    /// Its queue, if any.
    pub(super) queue: Option<String>,
    /// How many tasks it starts with.
    pub(super) tasks: u32,
    /// What it starts with.
    pub(super) first: FirstStep,
    /// How many slots it asked for.
    pub(super) slots: u32,
    /// How many processors it asked for; once it has some, how many these are.
    pub(super) processors: u32,
    /// Whether `tutti submit` made it.
    pub(super) submitted: bool,
    /// How long it may run.
    pub(super) time_limit: Option<Nanos>,
    /// What to run.
    pub(super) launch: Kept,
    /// When it was accepted.
    pub(super) accepted: ClusterTime,
    /// When people's clocks said that, in milliseconds since 1970.
    pub(super) accepted_ms: u64,
    /// When it was launched, if it was.
    pub(super) started: Option<ClusterTime>,
    /// The job that waits for this one, as far as this controller knows.
    pub(super) within: Option<JobId>,
    /// Whether a front end must be told where its output is.
    pub(super) front: Option<u64>,
    /// Whether one may have been told, also by an earlier controller.
    pub(super) has_told_front: bool,
    /// Whether its front end has yet to be answered that it is accepted.
    pub(super) is_unanswered: bool,
    /// Clients that wait for its end.
    pub(super) waiting: Vec<u64>,
    /// Clients that wait until a task of it has begun, or for its end.
    pub(super) waiting_begun: Vec<u64>,
    /// Clients that wait for what becomes of a request to save its state.
    pub(super) waiting_checkpoint: Vec<u64>,
    /// Whether a task of its latest launch has begun, as far as its nodes have reported.
    pub(super) has_begun: bool,
    /// What its nodes reported so far.
    pub(super) usage: Usage,
    /// The nodes of which that is all.
    pub(super) cleared: BTreeSet<NodeId>,
    /// What its tasks used that have ended; of the first [`TASKS_KEPT_MAX`] of them.
    pub(super) tasks_ended: Vec<TaskHistory>,
    /// What a reader should know beyond the outcome, and of which ranks.
    pub(super) details: BTreeMap<String, Vec<Rank>>,
    /// Parts of it that are suspended by themselves.
    pub(super) suspended: BTreeSet<Target>,
    /// How tasks ended.
    pub(super) statuses: BTreeMap<Rank, TaskStatus>,
    /// What of its output is not in its files.
    pub(super) output_lost: String,
    /// The nodes that may have an image of its processes, from earlier runs.
    pub(super) images_on: Vec<NodeId>,
    /// Why its processes could not be saved to an image, or restored from one.
    pub(super) not_saved: String,
    /// The first process that was not ready when the turn ended, of those that wanted notice.
    pub(super) not_vacated: String,
    /// Which of them ended badly.
    pub(super) failures: Failures,
    /// Why the site's policy declined it, if it did.
    pub(super) declined: Option<String>,
    /// How often it was queued again: since a node was lost, or by request.
    pub(super) requeues: u32,
    /// What its nodes have stored before barriers.
    pub(super) exchanges: Exchanges,
    /// The nodes that it was started on.
    pub(super) started_on: Vec<NodeId>,
    /// What `tutti show` shows besides.
    pub(super) shown: Shown,
    /// Its further steps that have not ended.
    pub(super) steps: BTreeMap<StepId, StepEntry>,
    /// Those that ended last.
    pub(super) steps_ended: VecDeque<StepReport>,
    /// What tells it from the others of its array, if it is an element.
    pub(super) element: Option<Element>,
    /// The indices and the limit, if it is an array.
    pub(super) array: Option<ArraySpec>,
    /// How it saves its state by itself, if it does.
    pub(super) checkpoint: Option<CheckpointReport>,
    /// When and how its user is notified, if it is.
    pub(super) notify: Option<Box<Notify>>,
}

/// Tasks of a job of which it is remembered what each used.
pub(super) const TASKS_KEPT_MAX: usize = 1 << 10;

/// The same of all jobs that have ended.
const TASKS_KEPT_IN_ALL_MAX: usize = 100_000;

/// Different texts about the tasks of a job; a reader learns nothing from more.
const DETAILS_MAX: usize = 64;

impl Entry {
    /// A job of which nothing has happened yet.
    pub(super) fn new(
        job: Job,
        (spec, first): (&JobSpec, FirstStep),
        queue: Option<&QueueName>,
        launch: Kept,
    ) -> Self {
        let Job { credentials, key, user, accepted, accepted_ms, notify, .. } = job;
        Self {
            submitted: key.is_some(),
            credentials,
            key,
            user,
            class: spec.class.to_string(),
            queue: queue.map(ToString::to_string),
            tasks: first.tasks(spec.tasks),
            first,
            slots: spec.tasks,
            processors: spec.tasks.saturating_mul(spec.processors_per_task.unwrap_or(1)),
            time_limit: spec.time_limit,
            launch,
            accepted,
            accepted_ms,
            started: None,
            front: None,
            within: None,
            has_told_front: false,
            is_unanswered: false,
            waiting: Vec::new(),
            waiting_begun: Vec::new(),
            waiting_checkpoint: Vec::new(),
            has_begun: false,
            usage: Usage::default(),
            cleared: BTreeSet::new(),
            tasks_ended: Vec::new(),
            details: BTreeMap::new(),
            suspended: BTreeSet::new(),
            statuses: BTreeMap::new(),
            output_lost: String::new(),
            images_on: Vec::new(),
            not_saved: String::new(),
            not_vacated: String::new(),
            failures: Failures::default(),
            declined: None,
            requeues: 0,
            exchanges: Exchanges::default(),
            started_on: Vec::new(),
            shown: Shown::default(),
            steps: BTreeMap::new(),
            steps_ended: VecDeque::new(),
            element: None,
            array: None,
            checkpoint: None,
            notify: notify.map(Box::new),
        }
    }

    /// What it is to run, with what is its own as an element.
    pub(super) fn whole_launch(&self) -> Option<LaunchSpec> {
        let mut launch = self.launch.whole()?;
        if let Some(element) = self.element {
            element.fill_in(&mut launch);
        }
        Some(launch)
    }

    /// It has these: fewer than it asked for, if tasks share some.
    pub(super) fn note_processors(&mut self, placements: &[PlacementView]) {
        let had = placements.iter().map(|placed| placed.processors.count()).sum();
        if had > 0 {
            self.processors = had;
        }
    }

    /// Its tasks are to be started once more: what was reported of the earlier ones is over. What they
    /// used stays used.
    pub(super) fn begin_anew(&mut self) {
        self.note_silent_nodes();
        self.requeues += 1;
        self.started = None;
        self.has_begun = false;
        self.cleared.clear();
        self.tasks_ended.clear();
        self.steps_ended.clear();
        self.details.clear();
        self.suspended.clear();
        self.statuses.clear();
        self.failures = Failures::default();
        self.exchanges = Exchanges::default();
        if self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.signal == 0) {
            self.images_on.append(&mut self.started_on);
        }
        self.started_on.clear();
        self.shown.begin_anew();
    }

    /// What was used on nodes that were lost is unknown.
    pub(super) fn note_silent_nodes(&mut self) {
        if self.started_on.iter().any(|node| !self.cleared.contains(node)) {
            self.usage.add(&Usage::unknown());
        }
    }

    /// Keeps what a reader should know of a task.
    pub(super) fn note_detail(&mut self, rank: Rank, detail: String) {
        let known = self.details.contains_key(&detail);
        if !detail.is_empty() && (known || self.details.len() < DETAILS_MAX) {
            self.details.entry(detail).or_default().push(rank);
        }
    }

    /// What a reader should know: each different text once, with the ranks it holds for.
    pub(super) fn detail(&self) -> String {
        let mut lines = Vec::new();
        match self.requeues {
            0 => {}
            1 => lines.push("queued again once".into()),
            times => lines.push(format!("queued again {times} times")),
        }
        for (text, ranks) in &self.details {
            match ranks.as_slice() {
                _ if self.tasks as usize == ranks.len() => lines.push(text.clone()),
                [rank] => lines.push(format!("rank {rank}: {text}")),
                [first, second] => lines.push(format!("ranks {first} and {second}: {text}")),
                [first, ..] => {
                    lines.push(format!("rank {first} and {} others: {text}", ranks.len() - 1));
                }
                [] => {}
            }
        }
        if !self.output_lost.is_empty() {
            lines.push(Code::OutputLost.mark(&self.output_lost));
        }
        if !self.not_vacated.is_empty() {
            lines.push(Code::NotVacated.mark(&self.not_vacated));
        }
        cut(lines.join("\n"), JOB_DETAIL_BYTES_MAX)
    }

    /// The same of a job that has ended, with the cause of the decision.
    pub(super) fn detail_of_end(&self, outcome: Outcome) -> String {
        let mut detail = self.detail();
        let unsaid = match outcome.reason {
            EndReason::TaskFailed => true,
            EndReason::Completed if Exit::OF_TUTTI.contains(&outcome.exit_code) => true,
            // The exit code of a single task says it all.
            EndReason::Completed => self.tasks > 1 && detail.is_empty(),
            EndReason::Cancelled
            | EndReason::TimedOut
            | EndReason::OutOfMemory
            | EndReason::FrontEndLost
            | EndReason::NodeLost(_)
            | EndReason::ShutDown
            | EndReason::Declined
            | EndReason::Requeued { .. }
            | EndReason::NeverAfter(_) => false,
        };
        if let Some(words) = self.failures.words(outcome).filter(|_| unsaid) {
            if !detail.is_empty() {
                detail.push('\n');
            }
            detail.push_str(&words);
        }
        detail
    }
}

impl Entry {
    /// What is kept of it once it has ended.
    pub(super) fn ended(
        &self,
        report: JobReport,
        at: ClusterTime,
        outcome: Outcome,
        tasks: Vec<TaskHistory>,
    ) -> Ended {
        Ended {
            report,
            accepted: self.accepted,
            at,
            accepted_ms: self.accepted_ms,
            ended_ms: wall_ms(),
            uid: self.credentials.uid,
            gid: self.credentials.gid,
            key: self.key,
            time_limit: self.time_limit,
            outcome,
            tasks,
        }
    }
}

/// A job that has ended.
pub(super) struct Ended {
    /// What tables show.
    pub(super) report: JobReport,
    /// When it was accepted.
    pub(super) accepted: ClusterTime,
    /// When it had ended.
    pub(super) at: ClusterTime,
    /// Both by people's clocks, in milliseconds since 1970.
    pub(super) accepted_ms: u64,
    pub(super) ended_ms: u64,
    /// Whose it was.
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// By what its owner would ask for it again.
    pub(super) key: Option<SubmitKey>,
    /// How long it might have run.
    pub(super) time_limit: Option<Nanos>,
    /// How it ended.
    pub(super) outcome: Outcome,
    /// Its tasks by rank; none where there were too many to be remembered.
    pub(super) tasks: Vec<TaskHistory>,
}

/// The jobs that ended lately, by number.
#[derive(Default)]
pub(super) struct EndedJobs {
    jobs: VecDeque<Ended>,
    tasks: usize,
}

impl EndedJobs {
    pub(super) fn push(&mut self, ended: Ended) {
        if self.jobs.len() == ENDED_MAX
            && let Some(oldest) = self.jobs.pop_front()
        {
            self.tasks -= oldest.tasks.len();
        }
        self.tasks += ended.tasks.len();
        self.jobs.push_back(ended);
        let mut oldest = self.jobs.iter_mut().filter(|ended| !ended.tasks.is_empty());
        while self.tasks > TASKS_KEPT_IN_ALL_MAX
            && let Some(ended) = oldest.next()
        {
            self.tasks -= std::mem::take(&mut ended.tasks).len();
        }
    }

    /// Forgets those that ended before, in milliseconds since 1970.
    pub(super) fn forget(&mut self, before_ms: u64) {
        while self.jobs.front().is_some_and(|oldest| oldest.ended_ms < before_ms) {
            self.tasks -= self.jobs.pop_front().map_or(0, |oldest| oldest.tasks.len());
        }
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Ended> {
        self.jobs.iter().rev().find(|ended| ended.report.job == job)
    }

    /// The latest, as many as fit into an answer.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Ended> {
        let mut bytes = 0;
        self.jobs.iter().rev().take_while(move |ended| {
            bytes += ended.report.bytes();
            bytes <= ENDED_JOBS_BYTES_MAX
        })
    }
}
