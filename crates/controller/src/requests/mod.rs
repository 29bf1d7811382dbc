//! Requests of users' verbs: which user may ask for what, and the answers.
//!
//! [`Driver::on_request`] has one arm for each request; most groups of requests have a file beside
//! this folder, such as `settings.rs`. Here are the rules that all share: which user may do what
//! ([`Forbidden`]), and which changes need a journal that takes them ([`Change`]).
//!
//! - [`after`]: the jobs that a job starts after;
//! - [`submit`]: a job, from the request to the answer;
//! - [`waits`]: front ends, and clients that wait for a job's begin or end;
//! - [`parts`]: signals and orders to jobs, ranks and processes.

mod after;
mod parts;
mod submit;
mod waits;

pub(super) use submit::{Deferred, Improper, Submission};

use super::driver::Driver;
use super::error::Problem;
use super::node_queries::Page;
use super::report;
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{Event, JobState};
use tutti_node::instance::may_run_instance;
use tutti_types::limits::MOVED_MAX;
use tutti_types::{Figures, JobId, NodeId, Rank, StepKey};
use tutti_wire::code::Code;
use tutti_wire::limits::SUSPENDED_PARTS_MAX;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::Target;
use tutti_wire::tree::Question;
use tutti_wire::units::format_seconds;

/// What a client's connection stands for.
#[derive(Default)]
pub(super) struct Client {
    /// The job whose front end it is.
    front_of: Option<JobId>,
    /// The further step whose front end it is.
    pub(super) front_of_step: Option<StepKey>,
    /// Jobs whose end it waits for, or that a task of them begins.
    waits_for: BTreeSet<JobId>,
}

impl Client {
    /// Whether it is the front end of a job or of a step.
    pub(super) fn is_front(&self) -> bool {
        self.front_of.is_some() || self.front_of_step.is_some()
    }

    /// Another job whose end, or begin, it waits for; whether it did not before.
    pub(super) fn wait_for(&mut self, job: JobId) -> bool {
        self.waits_for.insert(job)
    }

    /// It waits for nothing of a job any more.
    pub(super) fn wait_no_more(&mut self, job: JobId) {
        self.waits_for.remove(&job);
    }

    /// The job has ended; there is nothing to wait for any more.
    pub(super) fn forget(&mut self, job: JobId) {
        self.waits_for.remove(&job);
        if self.front_of == Some(job) {
            self.front_of = None;
        }
    }
}

/// Why a client may not have what it asks for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Forbidden {
    #[error("there is no job {0}; `tutti ps --all` shows those that are known")]
    NoJob(JobId),
    #[error(
        "job {0} is released: the instance was started without its former state since (`tutti up --fresh`), and what \
         still runs of the job is external load"
    )]
    Released(JobId),
    #[error("job {job} has ended (exit {exit_code}, {} ago)", format_seconds(*ago_s))]
    Ended { job: JobId, exit_code: u8, ago_s: u64 },
    #[error("job {job} has no rank {rank}; its ranks are 0 to {last}")]
    NoRank { job: JobId, rank: Rank, last: u32 },
    #[error("rank {rank} of job {job} has ended; `tutti ps {job}` shows the job")]
    RankEnded { job: JobId, rank: Rank },
    #[error("job {0} has not ended; `tutti ps -l {0}` shows what it has used so far")]
    NotEnded(JobId),
    #[error("job {0} has begun or ended; only a job that waits has a place in line to give away")]
    NoPlace(JobId),
    #[error("job {0} is an array; name an element, such as {0}_3")]
    IsArray(JobId),
    #[error(
        "job {0} is over its time limit and stays of class standby; cancel it, or let it go on"
    )]
    Overrun(JobId),
    #[error("job {0} is ending, and has no other time limit any more")]
    LimitEnds(JobId),
    #[error("job {0} is planned by its time limit (policy deadline), and keeps it")]
    LimitPlanned(JobId),
    #[error("job {0} has no time limit that could be longer or shorter; name one, such as 2h")]
    NoLimit(JobId),
    #[error("a longer time limit is for administrators to give; job {0} may run {1}")]
    LongerLimit(JobId, String),
    #[error("job {0} has run {1} already; `tutti cancel {0}` ends it")]
    LimitPassed(JobId, String),
    #[error("job {0} can't stand before itself; name another job, or --first")]
    BeforeItself(JobId),
    #[error(
        "{MOVED_MAX} jobs that wait were moved, and no more are possible; wait until some have started"
    )]
    TooManyMoved,
    #[error("job {0} is queued; none of its tasks has begun")]
    NotBegun(JobId),
    #[error(
        "{SUSPENDED_PARTS_MAX} parts of job {0} are suspended by themselves, and no more are possible: resume some, or \
         suspend whole ranks, such as {0}.0"
    )]
    TooManyParts(JobId),
    #[error("job {0} belongs to {1}; only its owner, or root, may do that")]
    NotYours(JobId, String),
    #[error("only root, or the owner of the instance, may do that")]
    NotAdmin,
    #[error(
        "job {0} has begun, and only waiting jobs can be held; `tutti suspend {0}` takes its turns"
    )]
    HasBegun(JobId),
    #[error("job {0} is not held; `tutti ps {0}` says why it waits")]
    NotHeld(JobId),
    #[error("an administrator holds job {0}, and only an administrator can release it")]
    HeldByAdministrator(JobId),
}

/// What a request changes that is not over with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// How it is from now on.
    Set,
    /// What becomes of a job. That is done in any case: it may be the one that fills the disk.
    Job,
}

/// Jobs that are handed in have their own way.
#[expect(clippy::too_many_lines, reason = "one line for each request")]
const fn change_of(request: &Request) -> Option<Change> {
    match request {
        Request::SetNodeSets { .. }
        | Request::ChangeNodes { .. }
        | Request::SetParams { .. }
        | Request::SetClass { .. }
        | Request::ForgetClass { .. }
        | Request::SetPeriod { .. }
        | Request::ForgetPeriod { .. }
        | Request::Measured { .. }
        | Request::SetWeights { .. }
        | Request::SetResources { .. }
        | Request::SetDevices { .. }
        | Request::SetNodeResources { .. }
        | Request::SetAccess { .. }
        | Request::Configure { .. } => Some(Change::Set),
        Request::Cancel { .. }
        | Request::CancelStep { .. }
        | Request::Suspend { .. }
        | Request::Resume { .. }
        | Request::Hold { .. }
        | Request::Requeue { .. }
        | Request::Checkpoint { .. }
        | Request::Release { .. }
        | Request::Elements { .. }
        | Request::SetJobClass { .. }
        | Request::SetTimeLimit { .. }
        | Request::Move { .. } => Some(Change::Job),
        Request::Run(_)
        | Request::Lend { .. }
        | Request::RunStep(_)
        | Request::SignalStep { .. }
        | Request::SignalSteps { .. }
        | Request::Return { .. }
        | Request::Submit(..)
        | Request::Wait { .. }
        | Request::AwaitCheckpoint { .. }
        | Request::WaitBegun { .. }
        | Request::Jobs { .. }
        | Request::JobsWithUsage { .. }
        | Request::ShowAll { .. }
        | Request::History { .. }
        | Request::Past(_)
        | Request::Usage(_)
        | Request::Processes { .. }
        | Request::Nodes { .. }
        | Request::NodesClosely { .. }
        | Request::Clients { .. }
        | Request::Upgrade { .. }
        | Request::Runs { .. }
        | Request::Signal { .. }
        | Request::Params
        | Request::Bank
        | Request::Weights
        | Request::Access
        | Request::Queues
        | Request::Timed { .. }
        | Request::StandingParams
        | Request::Resources
        | Request::Switches { .. }
        | Request::Timetable { .. }
        | Request::SignsOfLife { .. }
        | Request::Status
        | Request::When(_)
        | Request::Starts { .. }
        | Request::Show { .. }
        | Request::Events(_)
        | Request::Keepers { .. }
        | Request::Metrics
        | Request::FindElements { .. }
        | Request::UsageByNode { .. }
        | Request::ReadOutput { .. }
        | Request::Down { .. } => None,
    }
}

impl Driver {
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    pub(super) fn on_request(&mut self, token: u64, request: Request) {
        let uid = self.intake.connections.get(&token).map_or(u32::MAX, |connection| connection.uid);
        if !self.can_store(token, &request) {
            return;
        }
        match request {
            Request::Run(job) => self.on_submit(token, uid, job, None),
            Request::RunStep(step) => self.on_run_step(token, uid, *step),
            Request::CancelStep { key, at_once } => self.on_cancel_step(token, uid, key, at_once),
            Request::SignalStep { key, signal } => self.on_signal_step(token, uid, key, signal),
            Request::Checkpoint { job, order } => self.on_checkpoint(token, uid, job, order),
            Request::AwaitCheckpoint { job } => self.on_await_checkpoint(token, uid, job),
            Request::Requeue { job, hold, anew } => self.on_requeue(token, uid, job, (hold, anew)),
            Request::SignalSteps { job, signal, only_script } => {
                self.on_signal_steps(token, uid, job, (signal, only_script));
            }
            Request::Return { job } => self.on_return(token, uid, job),
            Request::Submit(job, key) => self.on_submit(token, uid, job, Some(key)),
            Request::Wait { job } => self.on_wait(token, uid, job),
            Request::WaitBegun { job } => self.on_wait_begun(token, uid, job),
            Request::Jobs { ended, from } => {
                let page = report::jobs(self, ended, from, &BTreeMap::new());
                self.reply(token, &page);
            }
            Request::JobsWithUsage { from } => self.on_jobs_with_usage(token, from),
            Request::UsageByNode { job } => self.on_usage_by_node(token, job),
            Request::History { job } => self.on_history(token, uid, job),
            Request::Past(query) => self.on_past(token, uid, &query),
            Request::Usage(query) => self.on_usage(token, &query),
            Request::Processes { target, from } => {
                let page = Page::of_nodes(from);
                self.on_page_of_part(token, uid, target, (Question::Processes(target), page));
            }
            Request::Nodes { from } => self.reply_nodes_from(token, from),
            Request::NodesClosely { from } => self.on_nodes_closely(token, from),
            Request::Clients { from } => self.reply_clients(token, from),
            Request::SetNodeSets { settings } => self.on_set_node_sets(token, uid, &settings),
            Request::ChangeNodes { nodes, change } => {
                self.on_change_nodes(token, uid, &nodes, &change);
            }
            Request::Upgrade { node, program } => {
                self.on_upgrade(token, uid, &node, &Question::Upgrade { program });
            }
            Request::Runs { node, program } => {
                self.on_upgrade(token, uid, &node, &Question::Runs { program });
            }
            Request::Cancel { target, at_once } => self.on_cancel(token, uid, target, at_once),
            Request::Signal { target, signal, every_process } => {
                self.on_signal(token, uid, target, signal, every_process);
            }
            Request::Suspend { target } => {
                self.on_part(token, uid, target, Question::SuspendPart(target));
            }
            Request::Resume { target } => {
                self.on_part(token, uid, target, Question::ResumePart(target));
            }
            Request::Hold { job } => self.on_hold(token, uid, job),
            Request::Release { job } => self.on_release(token, uid, job),
            Request::SetJobClass { job, class } => self.on_set_job_class(token, uid, job, class),
            Request::Lend { job, lends } => self.for_owner(token, uid, job, |it| {
                it.apply(&Event::Lend { job, lends });
            }),
            Request::SetTimeLimit { job, limit } => self.on_set_time_limit(token, uid, job, limit),
            Request::Move { job, before, dry_run } => {
                self.on_move(token, uid, (job, before), dry_run);
            }
            Request::Resources => self.reply_resources(token),
            Request::SetResources { settings, jobs_each, lent } => {
                self.on_set_resources(token, uid, &settings, (jobs_each, lent));
            }
            Request::SetDevices { node, settings } => {
                self.on_set_devices(token, uid, &node, &settings);
            }
            Request::SetNodeResources { nodes, settings } => {
                self.on_set_node_resources(token, uid, &nodes, &settings);
            }
            Request::Params => self.reply_params(token),
            Request::SetParams { settings } => self.on_set_params(token, uid, &settings),
            Request::SetClass { class, settings } => {
                self.on_set_class(token, uid, class, &settings);
            }
            Request::ForgetClass { class } => self.on_forget_class(token, uid, class),
            Request::SetPeriod { period, class, settings } => {
                self.on_set_period(token, uid, (&period, class.as_ref()), &settings);
            }
            Request::ForgetPeriod { period } => self.on_forget_period(token, uid, &period),
            Request::Measured { node, figures } => self.on_measured(token, uid, &node, figures),
            Request::Bank => self.reply_bank(token),
            Request::Weights => self.reply_weights(token),
            Request::SetWeights { settings } => self.on_set_weights(token, uid, &settings),
            Request::Access => self.reply_access(token),
            Request::SetAccess { settings } => self.on_set_access(token, uid, &settings),
            Request::Queues => self.reply_queues(token),
            Request::Timed { ahead_s } => self.on_timed(token, ahead_s),
            Request::StandingParams => self.reply_standing_params(token),
            Request::Configure { settings, dry_run } => {
                self.on_configure(token, uid, &settings, dry_run);
            }
            Request::Switches { count, from } => self.on_switches(token, count, from),
            Request::SignsOfLife { of_keepers, from } => {
                let nodes: Vec<_> = self.cluster.nodes.keys().copied().collect();
                let question = Question::SignOfLife { of_keeper: of_keepers };
                self.ask_for_page(token, &nodes, &question, Page::of_nodes(from));
            }
            Request::Timetable { node } => self.on_timetable(token, &node),
            Request::Status => self.on_status(token),
            Request::When(job) => self.on_when(token, uid, job),
            Request::Starts { from, forecast } => self.on_starts(token, uid, from, forecast),
            Request::ShowAll { from } => self.on_show_all(token, uid, from),
            Request::Show { job, environment } => self.on_show(token, uid, job, environment),
            Request::ReadOutput { file, from } => self.on_read_output(token, uid, file, from),
            Request::Events(query) => self.on_events(token, uid, query),
            Request::Keepers { job } => self.on_keepers(token, uid, job),
            Request::Metrics => self.reply_metrics(token),
            Request::Elements { array, indices, order } => {
                self.on_elements(token, uid, (array, indices.as_ref()), order);
            }
            Request::FindElements { array, indices } => {
                self.on_find_elements(token, array, indices.as_ref());
            }
            Request::Down { roll_out } => self.on_down(token, uid, roll_out),
        }
    }

    /// Whether a request may be carried out while the disk is as it is.
    fn can_store(&mut self, token: u64, request: &Request) -> bool {
        if let Some(change) = change_of(request) {
            if let Some(reason) = self.why_nothing_is_set().filter(|_| change == Change::Set) {
                self.fail(token, Problem::new(Code::JournalUnusable, reason));
                return false;
            }
            self.memory.change(token);
        }
        true
    }

    /// Why nothing can be set at present, if so: the next controller would not know of it.
    fn why_nothing_is_set(&mut self) -> Option<String> {
        if self.memory.journal.failure().is_some() {
            // It may take more by now.
            self.store();
        }
        let reason = self.memory.journal.failure()?;
        Some(format!("nothing is set at present: {reason}"))
    }

    pub(super) fn fail(&mut self, token: u64, problem: impl Into<Problem>) {
        self.reply(token, &problem.into().failed());
    }

    pub(super) fn admin(&self, uid: u32) -> Result<(), Forbidden> {
        if may_run_instance(uid, geteuid().as_raw()) { Ok(()) } else { Err(Forbidden::NotAdmin) }
    }

    pub(super) fn owned(&self, uid: u32, job: JobId) -> Result<(), Forbidden> {
        let (owner, user, ended) = match (self.entry(job), self.ends.ended.get(job)) {
            (Some(entry), _) => (entry.owner.uid(), &entry.owner.user, None),
            (None, Some(ended)) => (ended.uid, &ended.report.user, Some(ended)),
            (None, None) if job <= self.memory.released => return Err(Forbidden::Released(job)),
            (None, None) => return Err(Forbidden::NoJob(job)),
        };
        if uid != 0 && uid != owner {
            return Err(Forbidden::NotYours(job, user.clone()));
        }
        ended.map_or(Ok(()), |ended| {
            let exit_code = ended.outcome.exit_code;
            let ago_s = self.now().since(ended.at).0 / 1_000_000_000;
            Err(Forbidden::Ended { job, exit_code, ago_s })
        })
    }

    /// Whether the user may do something to a part of a job, and there is that part.
    fn owned_part(&self, uid: u32, target: Target) -> Result<(), Forbidden> {
        let job = target.job;
        self.owned(uid, job)?;
        let (Some(rank), Some(entry)) = (target.rank, self.jobs.get(&job)) else { return Ok(()) };
        if rank.0 >= entry.terms.tasks {
            return Err(Forbidden::NoRank { job, rank, last: entry.terms.tasks.saturating_sub(1) });
        }
        if entry.run.has_ended(rank) {
            return Err(Forbidden::RankEnded { job, rank });
        }
        match self.core.job(job, self.now()).map(|view| view.state) {
            Some(JobState::Queued { .. }) => Err(Forbidden::NotBegun(job)),
            Some(JobState::Running { .. } | JobState::Ending { .. }) | None => Ok(()),
        }
    }

    fn for_owner(&mut self, token: u64, uid: u32, job: JobId, act: impl FnOnce(&mut Self)) {
        match self.owned(uid, job) {
            Ok(()) => {
                act(self);
                self.reply(token, &Reply::Done);
            }
            Err(error) => self.fail(token, error),
        }
    }

    fn on_measured(&mut self, token: u64, uid: u32, name: &str, figures: Figures) {
        if let Err(error) = self.admin(uid) {
            return self.fail(token, error);
        }
        if let Some(why) = super::measuring::absurdity(figures, None) {
            return self.fail(token, Problem::new(Code::BadValue, why));
        }
        match self.cluster.nodes.iter().find(|(_, entry)| entry.name == name).map(|(&node, _)| node)
        {
            Some(node) => {
                self.apply(&Event::NodeMeasured { node, figures });
                self.reply(token, &Reply::Done);
            }
            None => {
                let reason = format!("no node is named {name}; see `tutti nodes`");
                self.fail(token, Problem::new(Code::NoSuchNodes, reason));
            }
        }
    }

    /// Nodes without an agent just now are left out: the rest is better than nothing.
    pub(super) fn nodes_with_agents(&self) -> Vec<NodeId> {
        let nodes = self.cluster.nodes.iter().filter(|(_, entry)| entry.agent.is_some());
        nodes.map(|(&node, _)| node).collect()
    }

    fn on_switches(&mut self, token: u64, count: u32, from: NodeId) {
        let nodes: Vec<_> = self.cluster.nodes.keys().copied().collect();
        self.ask_for_page(token, &nodes, &Question::Switches { count }, Page::of_nodes(from));
    }

    fn on_jobs_with_usage(&mut self, token: u64, from: JobId) {
        let nodes = self.nodes_with_agents();
        let page = Page::of_jobs(from);
        self.ask_for_page(token, &nodes, &Question::Usages, page);
    }

    fn on_timetable(&mut self, token: u64, node: &str) {
        match self.named(node) {
            Ok(nodes) if nodes.len() == 1 => {
                let nodes: Vec<_> = nodes.into_iter().collect();
                self.ask(token, &nodes, &Question::Timetable);
            }
            Ok(nodes) => {
                let nodes = nodes.len();
                let reason = format!("{node} is {nodes} nodes; ask for the timetable of one");
                self.fail(token, Problem::new(Code::BadValue, reason));
            }
            Err(error) => self.fail(token, error),
        }
    }

    fn on_usage_by_node(&mut self, token: u64, job: JobId) {
        let Some(view) = self.core.job(job, self.now()) else {
            return self.fail(token, Forbidden::NoJob(job));
        };
        let nodes: Vec<NodeId> = view.placements.iter().map(|placed| placed.node).collect();
        self.ask_for_page(token, &nodes, &Question::Usages, Page::of_one_job(job));
    }

    fn on_status(&mut self, token: u64) {
        let nodes = self.nodes_with_agents();
        if nodes.is_empty() {
            let status = report::status(self, Vec::new());
            self.reply(token, &Reply::Status(status));
        } else {
            self.ask(token, &nodes, &Question::Status);
        }
    }
}
