//! What the controller keeps of a job beside what the core decides on.

mod clients;
mod run;
mod saving;
mod terms;

use super::launch_store::Kept;
use super::show::Shown;
use super::steps::Steps;
pub(super) use clients::Clients;
use run::Run;
pub(super) use saving::Saving;
use std::collections::VecDeque;
use terms::Terms;
use tutti_journal::Job;
use tutti_node::exit::Exit;
use tutti_node::platform::time::wall_ms;
use tutti_types::{ClusterTime, EndReason, FirstStep, JobId, JobSpec, Nanos, Outcome, QueueName};
use tutti_wire::code::Code;
use tutti_wire::launch::{Credentials, Usage, cut};
use tutti_wire::limits::{ENDED_JOBS_BYTES_MAX, JOB_DETAIL_BYTES_MAX};
use tutti_wire::local::SubmitKey;
use tutti_wire::notify::Notify;
use tutti_wire::report::{JobReport, TaskHistory};

/// Jobs that ended and can still be shown; older ones are forgotten.
pub(super) const ENDED_MAX: usize = 10_000;

/// A job that has not ended.
pub(super) struct Entry {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) times: Times,
    pub(super) clients: Clients,
    /// What its nodes have reported of its latest launch.
    pub(super) run: Run,
    /// What its nodes reported so far.
    pub(super) usage: Usage,
    pub(super) saving: Saving,
    pub(super) steps: Steps,
    /// The job that waits for this one, as far as this controller knows.
    pub(super) within: Option<JobId>,
    /// What of its output is not in its files.
    pub(super) output_lost: String,
    /// The first process that was not ready when the turn ended, of those that wanted notice.
    pub(super) not_vacated: String,
    /// Why the site's policy declined it, if it did.
    pub(super) declined: Option<String>,
    /// How often it was queued again: since a node was lost, or by request.
    pub(super) requeues: u32,
    /// What `tutti show` shows besides.
    pub(super) shown: Shown,
    /// When and how its user is notified, if it is.
    pub(super) notify: Option<Box<Notify>>,
}

/// The user of a job.
pub(super) struct Owner {
    /// The user that it runs as.
    pub(super) credentials: Credentials,
    /// The user's name.
    pub(super) user: String,
    /// By what the user would ask for it again.
    pub(super) key: Option<SubmitKey>,
}

impl Owner {
    pub(super) const fn uid(&self) -> u32 {
        self.credentials.uid
    }
}

/// When a job came, and began.
pub(super) struct Times {
    /// When it was accepted.
    pub(super) accepted: ClusterTime,
    /// When people's clocks said that, in milliseconds since 1970.
    pub(super) accepted_ms: u64,
    /// When it was launched first, if it was.
    pub(super) started: Option<ClusterTime>,
}

impl Times {
    /// How long it was, or has been, in the queue.
    pub(super) fn waited(&self, now: ClusterTime) -> Nanos {
        self.started.unwrap_or(now).since(self.accepted)
    }

    /// How long it has been resident.
    pub(super) fn resident(&self, now: ClusterTime) -> Nanos {
        self.started.map_or(Nanos::ZERO, |started| now.since(started))
    }

    /// How old it is.
    pub(super) fn age(&self, now: ClusterTime) -> Nanos {
        now.since(self.accepted)
    }

    /// A moment in its life by people's clocks, in milliseconds since 1970.
    pub(super) fn moment_ms(&self, at: ClusterTime) -> u64 {
        let Nanos(since) = at.since(self.accepted);
        self.accepted_ms.saturating_add(since / 1_000_000)
    }
}

/// Tasks of all jobs that have ended of which it is remembered what each used.
const TASKS_KEPT_IN_ALL_MAX: usize = 100_000;

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
            terms: Terms::new((spec, first), queue, launch, key.is_some()),
            owner: Owner { credentials, user, key },
            times: Times { accepted, accepted_ms, started: None },
            clients: Clients::default(),
            run: Run::default(),
            usage: Usage::default(),
            saving: Saving::default(),
            steps: Steps::default(),
            within: None,
            output_lost: String::new(),
            not_vacated: String::new(),
            declined: None,
            requeues: 0,
            shown: Shown::default(),
            notify: notify.map(Box::new),
        }
    }

    /// Its tasks are to be started once more: what was reported of the earlier ones is over. What they
    /// used stays used.
    pub(super) fn begin_anew(&mut self) {
        self.note_silent_nodes();
        let former = std::mem::take(&mut self.run);
        self.saving.note_run(former.started_on());
        self.requeues += 1;
        self.times.started = None;
        self.steps.forget_ended();
        self.shown.begin_anew();
    }

    /// What was used on nodes that were lost is unknown.
    pub(super) fn note_silent_nodes(&mut self) {
        if self.run.has_silent_nodes() {
            self.usage.add(&Usage::unknown());
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
        lines.extend(self.run.details(self.terms.tasks));
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
            EndReason::Completed => self.terms.tasks > 1 && detail.is_empty(),
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
        if let Some(words) = self.run.words_of_failure(outcome).filter(|_| unsaid) {
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
            accepted: self.times.accepted,
            at,
            accepted_ms: self.times.accepted_ms,
            ended_ms: wall_ms(),
            uid: self.owner.uid(),
            gid: self.owner.credentials.gid,
            key: self.owner.key,
            time_limit: self.terms.time_limit,
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
