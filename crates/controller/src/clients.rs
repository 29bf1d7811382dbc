//! The controller's side of users' verbs.

use super::adopt::CannotAdopt;
use super::agents::ranks_of;
use super::driver::{Connection, Driver, Kind};
use super::jobs::Entry;
use super::kept;
use super::problem::Problem;
use super::questions::Page;
use super::report;
use super::vouched;
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use tutti_core::{Event, HeldBy, JobState};
use tutti_journal::Job;
use tutti_linux::{peer, proc};
use tutti_node::codes::code_of_refusal;
use tutti_node::instance::may_run_instance;
use tutti_node::platform::time::wall_ms;
use tutti_types::{
    ClusterTime, EndReason, Figures, GroupId, JobId, JobSpec, Nanos, NodeId, NodeWish, OnNodeLoss,
    QueueName, Rank, Refusal, RequestId, UserId,
};
use tutti_wire::code::Code;
use tutti_wire::launch::{Credentials, LaunchSpec, Stdio};
use tutti_wire::limits::{NAME_BYTES_MAX, SUSPENDED_PARTS_MAX};
use tutti_wire::local::{JobRequest, KeeperAt, NodesRequest, Reply, Request, SubmitKey};
use tutti_wire::report::Target;
use tutti_wire::tree::Question;
use tutti_wire::units::format_seconds;

/// What a client's connection stands for.
#[derive(Default)]
pub(super) struct Client {
    /// The job whose front end it is.
    front_of: Option<JobId>,
    /// Jobs whose end it waits for, or that a task of them begins.
    waits_for: BTreeSet<JobId>,
}

impl Client {
    /// The job has ended; there is nothing to wait for any more.
    pub(super) fn forget(&mut self, job: JobId) {
        self.waits_for.remove(&job);
        if self.front_of == Some(job) {
            self.front_of = None;
        }
    }
}

/// A request for a job while the core decides on it.
pub(super) struct Submission {
    token: u64,
    front: bool,
    within: Option<JobId>,
    made: Option<(Job, JobSpec, kept::Request)>,
    accepted: Option<JobId>,
}

/// A request for a job that came before the first node, or before the disk had what numbers jobs may have.
pub(super) struct Early {
    pub(super) token: u64,
    uid: u32,
    request: JobRequest,
    key: Option<SubmitKey>,
    /// How much memory it takes, about.
    bytes: usize,
}

/// How much memory such requests of one user may take.
const EARLY_PER_USER_BYTES_MAX: usize = 64 << 20;

/// How long requests wait for the first node: the agent starts at the same time as the controller.
const NODES_PATIENCE: Nanos = Nanos::from_secs(10);

/// Why a client may not have what it asks for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Forbidden {
    #[error("there is no job {0}; `tutti ps --all` shows those that are known")]
    NoJob(JobId),
    #[error("job {job} has ended (exit {exit_code}, {} ago)", format_seconds(*ago_s))]
    Ended { job: JobId, exit_code: u8, ago_s: u64 },
    #[error("job {job} has no rank {rank}; its ranks are 0 to {last}")]
    NoRank { job: JobId, rank: Rank, last: u32 },
    #[error("rank {rank} of job {job} has ended; `tutti ps {job}` shows the job")]
    RankEnded { job: JobId, rank: Rank },
    #[error("job {0} has not ended; `tutti ps -l {0}` shows what it has used so far")]
    NotEnded(JobId),
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

/// Why a request for a job is not even put to the core: it is no proper request, or more than
/// messages and memory can hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum Improper {
    #[error("a job with a front end must say so, and no other")]
    Stdio,
    #[error(
        "a job that its front end waits for can't be queued again when a node is lost; hand it in with \
         `tutti submit`, or choose another --on-node-loss"
    )]
    RequeueWithFront,
    #[error(transparent)]
    Adopt(#[from] CannotAdopt),
    #[error("a connection is the front end of one job; this one has one already")]
    SecondFront,
    #[error(
        "the name of the {what} has {bytes} bytes; at most {NAME_BYTES_MAX} are possible: give a \
         shorter one with {option}"
    )]
    LongName { what: &'static str, option: &'static str, bytes: usize },
    #[error(
        "programs, arguments, environments and scripts of your jobs would take {} MiB; at most {} \
         MiB are possible: wait until some have ended",
        bytes >> 20,
        KEPT_PER_USER_BYTES_MAX >> 20
    )]
    TooMuch { bytes: usize },
    #[error(
        "resource limit {resource} (see `man prlimit`) was asked to be {asked}, and the process that \
         asks may have {allowed}"
    )]
    Limit { resource: u32, asked: u64, allowed: u64 },
}

/// What all jobs of one user may take here.
const KEPT_PER_USER_BYTES_MAX: usize = 256 << 20;

/// What a request changes that is not over with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// How it is from now on.
    Set,
    /// What becomes of a job. That is done in any case: it may be the one that fills the disk.
    Job,
}

/// What a request for a job asks.
#[derive(Clone, Copy, Debug)]
enum Asks {
    /// That it is submitted; with a key, unless a front end waits for it.
    ToSubmit(Option<SubmitKey>),
    /// When it would start.
    When,
}

impl Asks {
    /// Whether a front end waits for the job, and the key of one without.
    const fn front_and_key(self, request: &JobRequest) -> (bool, Option<SubmitKey>) {
        match self {
            Self::ToSubmit(key) => (key.is_none(), key),
            Self::When => (matches!(request.launch.stdio, Stdio::FrontEnd { .. }), None),
        }
    }
}

/// Jobs that are handed in have their own way.
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
        | Request::SetBank { .. }
        | Request::SetWeights { .. }
        | Request::SetResources { .. }
        | Request::SetAccess { .. }
        | Request::Configure { .. } => Some(Change::Set),
        Request::Cancel { .. }
        | Request::Suspend { .. }
        | Request::Resume { .. }
        | Request::Hold { .. }
        | Request::Release { .. }
        | Request::SetJobClass { .. } => Some(Change::Job),
        Request::Run(_)
        | Request::Return { .. }
        | Request::Submit(..)
        | Request::Wait { .. }
        | Request::WaitBegun { .. }
        | Request::Jobs { .. }
        | Request::JobsWithUsage { .. }
        | Request::History { .. }
        | Request::Past(_)
        | Request::Processes { .. }
        | Request::Nodes { .. }
        | Request::NodesClosely { .. }
        | Request::Upgrade { .. }
        | Request::Runs { .. }
        | Request::Signal { .. }
        | Request::Params
        | Request::Bank
        | Request::Weights
        | Request::Access
        | Request::Queues
        | Request::StandingParams
        | Request::Resources
        | Request::Switches { .. }
        | Request::Status
        | Request::When(_)
        | Request::Starts { .. }
        | Request::Show { .. }
        | Request::Down => None,
    }
}

fn submit_event(
    request: RequestId,
    (queue, hold): (Option<QueueName>, bool),
    spec: JobSpec,
) -> Event {
    match queue {
        queue if hold => Event::SubmitHeld { request, spec, by: HeldBy::Owner, queue },
        Some(queue) => Event::SubmitTo { request, queue, spec },
        None => Event::Submit { request, spec },
    }
}

impl Driver {
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    pub(super) fn on_request(&mut self, token: u64, request: Request) {
        let uid = self.connections.get(&token).map_or(u32::MAX, |connection| connection.uid);
        if !self.can_store(token, &request) {
            return;
        }
        match request {
            Request::Run(job) => self.on_submit(token, uid, job, None),
            Request::Return { job } => self.on_return(token, uid, job),
            Request::Submit(job, key) => self.on_submit(token, uid, job, Some(key)),
            Request::Wait { job } => self.on_wait(token, uid, job),
            Request::WaitBegun { job } => self.on_wait_begun(token, uid, job),
            Request::Jobs { ended, from } => {
                let page = report::jobs(self, ended, from, &BTreeMap::new());
                self.reply(token, &page);
            }
            Request::JobsWithUsage { from } => self.on_jobs_with_usage(token, from),
            Request::History { job } => self.on_history(token, uid, job),
            Request::Past(query) => self.on_past(token, &query),
            Request::Processes { target, from } => {
                let page = Page::of_nodes(from);
                self.on_page_of_part(token, uid, target, (Question::Processes(target), page));
            }
            Request::Nodes { from } => self.reply_nodes_from(token, from),
            Request::NodesClosely { from } => self.on_nodes_closely(token, from),
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
            Request::Resources => self.reply_resources(token),
            Request::SetResources { settings, jobs_each, lent } => {
                self.on_set_resources(token, uid, &settings, (jobs_each, lent));
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
            Request::SetBank { settings } => self.on_set_bank(token, uid, &settings),
            Request::Weights => self.reply_weights(token),
            Request::SetWeights { settings } => self.on_set_weights(token, uid, &settings),
            Request::Access => self.reply_access(token),
            Request::SetAccess { settings } => self.on_set_access(token, uid, &settings),
            Request::Queues => self.reply_queues(token),
            Request::StandingParams => self.reply_standing_params(token),
            Request::Configure { settings, dry_run } => {
                self.on_configure(token, uid, &settings, dry_run);
            }
            Request::Switches { count, from } => self.on_switches(token, count, from),
            Request::Status => self.on_status(token),
            Request::When(job) => self.on_when(token, uid, job),
            Request::Starts { from, forecast } => self.on_starts(token, uid, from, forecast),
            Request::Show { job, environment } => self.on_show(token, uid, job, environment),
            Request::Down => match self.admin(uid) {
                Ok(()) => self.stop(Some(token)),
                Err(error) => self.fail(token, error),
            },
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
        let (owner, user, ended) = match (self.jobs.get(&job), self.ended.get(job)) {
            (Some(entry), _) => (entry.credentials.uid, &entry.user, None),
            (None, Some(ended)) => (ended.uid, &ended.report.user, Some(ended)),
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
        if rank.0 >= entry.tasks {
            return Err(Forbidden::NoRank { job, rank, last: entry.tasks.saturating_sub(1) });
        }
        if entry.statuses.contains_key(&rank) {
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

    // ------------------------------------------------------------------ a job's begin and end

    /// From when on a request is answered even if no node has joined.
    pub(super) fn nodes_due(&self) -> ClusterTime {
        self.started + NODES_PATIENCE
    }

    /// A node is there, or none will be.
    pub(super) fn stop_waiting_for_nodes(&mut self) {
        self.waits_for_nodes = false;
        self.take_early();
    }

    /// Answers what waited for the first node, or the disk, if it need not any more.
    pub(super) fn take_early(&mut self) {
        for Early { token, uid, request, key, .. } in std::mem::take(&mut self.early) {
            self.on_submit(token, uid, request, key);
        }
    }

    /// Whether a job would be too early: there is no node yet, or its number may have been given before.
    fn is_early(&self) -> bool {
        self.waits_for_nodes || self.memory.may_repeat_numbers()
    }

    /// Gives the request back if it can be decided on. If not, it is rejected, or deferred.
    fn if_ready(
        &mut self,
        token: u64,
        uid: u32,
        request: JobRequest,
        key: Option<SubmitKey>,
    ) -> Option<JobRequest> {
        if let Some(reason) = self.memory.why_it_takes_none() {
            let reason = format!("no job is accepted at present: {reason}");
            self.fail(token, Problem::new(Code::JournalUnusable, reason));
            return None;
        }
        if self.is_early() {
            let bytes =
                self.early.iter().filter(|it| it.uid == uid).map(|it| it.bytes).sum::<usize>();
            let early = Early { token, uid, bytes: request.launch.bytes(), request, key };
            if bytes + early.bytes > EARLY_PER_USER_BYTES_MAX {
                let reason = "the controller has just begun, and keeps no more of your jobs until its nodes are \
                              there; try again in a moment";
                self.fail(token, Problem::new(Code::TooMuchAsked, reason));
                return None;
            }
            self.early.push(early);
            return None;
        }
        Some(request)
    }

    /// A job with a key has no front end; the others have.
    fn on_submit(&mut self, token: u64, uid: u32, request: JobRequest, key: Option<SubmitKey>) {
        if let Some(job) = self.submitted.find(uid, key) {
            // The client was told, and has not heard it.
            return self.promise(token, job);
        }
        let Some(request) = self.if_ready(token, uid, request, key) else { return };
        self.submit_or_foretell(token, uid, request, Asks::ToSubmit(key));
    }

    /// Submits a job, or says when it would start, after the same checks.
    fn submit_or_foretell(&mut self, token: u64, uid: u32, mut request: JobRequest, asks: Asks) {
        let (front, key) = asks.front_and_key(&request);
        let Some(credentials) = self.credentials(token, uid) else { return };
        if let Some(problem) = self.no_access(token, &credentials) {
            return self.reply(token, &problem.declined());
        }
        self.lower_limits(token, uid, &mut request.launch);
        if let Err(error) = self.check_request(token, uid, &request, front) {
            self.fail(token, error);
            return;
        }
        if let Some(reason) = self.too_many_tasks(&request) {
            self.reply(token, &Problem::new(Code::TooLarge, reason).declined());
            return;
        }
        let nodes = match self.in_queue(token, &mut request, &credentials) {
            Ok(nodes) => nodes,
            Err(problem) => return self.reply(token, &problem.declined()),
        };
        let launch = kept::Request::new(request.launch);
        if let Err(error) = self.check_room(uid, &launch) {
            return self.fail(token, error);
        }
        let spec = JobSpec {
            owner: UserId(uid),
            group: GroupId(credentials.gid),
            class: request.class,
            tasks: request.tasks,
            processors_per_task: request.processors_per_task,
            memory_per_task_bytes: request.memory_per_task_bytes,
            time_limit: request.time_limit,
            deadline: request.deadline,
            grace: request.grace,
            attached: front,
            // Tasks can't be moved to other processors while they run.
            movable: false,
            weights: request.weights,
            nodes,
            resources: request.resources,
            on_bad_exit: request.on_bad_exit,
            on_node_loss: request.on_node_loss,
        };
        let job = Job {
            // Its number is the core's to give.
            job: JobId(0),
            credentials,
            key,
            user: self.user_name(uid),
            name: launch.name().to_owned(),
            launch: Vec::new(),
            accepted: self.now(),
            accepted_ms: wall_ms(),
        };
        if let Some(problem) = self.why_stuck_within(request.within, &spec) {
            return self.reply(token, &problem.declined());
        }
        if let Asks::When = asks {
            let submit = submit_event(RequestId(0), (request.queue, false), spec.clone());
            return self.foretell_job((token, uid), job.name, spec, submit);
        }
        let made = Some((job, spec.clone(), launch));
        let (within, queue, hold) = (request.within, request.queue, request.hold);
        self.submitting = Some(Submission { token, front, within, made, accepted: None });
        let request = self.next_request();
        self.apply(&submit_event(request, (queue, hold), spec));
        self.answer_accepted(token);
    }

    /// Answers the submission that was just made, if it was accepted.
    fn answer_accepted(&mut self, token: u64) {
        match self.submitting.take() {
            Some(Submission { accepted: Some(job), front: false, .. }) => self.promise(token, job),
            // It would end with its front end in any case: the disk is not waited for.
            Some(Submission { accepted: Some(job), .. }) => {
                self.memory.begin(token, job);
                self.tell_why_it_waits(token, job);
            }
            _ => {}
        }
    }

    /// Fills in what its queue decides. On which nodes it may be.
    fn in_queue(
        &self,
        token: u64,
        request: &mut JobRequest,
        who: &Credentials,
    ) -> Result<NodeWish, Problem> {
        self.apply_queue(request, who)?;
        let nodes = self.node_wish(&self.nodes_for(token, request))?;
        self.nodes_of_queue(request.queue.as_ref(), nodes)
    }

    /// Says when such a job would start, and submits nothing.
    fn on_when(&mut self, token: u64, uid: u32, request: JobRequest) {
        self.submit_or_foretell(token, uid, request, Asks::When);
    }

    /// On which nodes it wants to be. Processes that are adopted are where who asks is.
    fn nodes_for(&self, token: u64, request: &JobRequest) -> NodesRequest {
        let mut nodes = request.nodes.clone();
        if !request.launch.adopt.is_empty() && self.nodes.len() > 1 {
            nodes.only = Some(self.machine_of(token));
        }
        nodes
    }

    fn check_request(
        &self,
        token: u64,
        uid: u32,
        request: &JobRequest,
        front: bool,
    ) -> Result<(), Improper> {
        if front != matches!(request.launch.stdio, Stdio::FrontEnd { .. }) {
            return Err(Improper::Stdio);
        }
        if front && request.on_node_loss == OnNodeLoss::Requeue {
            return Err(Improper::RequeueWithFront);
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) = self.connections.get(&token)
            && front
            && client.front_of.is_some()
        {
            return Err(Improper::SecondFront);
        }
        for (what, option, bytes) in [
            ("job", "-J", request.launch.name.len()),
            ("class", "--class", request.class.0.len()),
            ("queue", "-q", request.queue.as_ref().map_or(0, |queue| queue.0.len())),
        ] {
            if bytes > NAME_BYTES_MAX {
                return Err(Improper::LongName { what, option, bytes });
            }
        }
        self.check_limits(token, uid, &request.launch)?;
        let client = self.connections.get(&token).filter(|connection| connection.vouch.is_none());
        super::adopt::check(request, uid, client.map(|connection| connection.pid))?;
        Ok(())
    }

    /// Whether there is room for what another job is to run, beside what the user's other jobs have here.
    fn check_room(&self, uid: u32, launch: &kept::Request) -> Result<(), Improper> {
        let none = kept::Shelf::default();
        let shelf = self.shelves.get(&uid).unwrap_or(&none);
        let bytes = shelf.bytes() + shelf.more_with(launch);
        match bytes > KEPT_PER_USER_BYTES_MAX && self.admin(uid).is_err() {
            true => Err(Improper::TooMuch { bytes }),
            false => Ok(()),
        }
    }

    /// What his machine says of his limits counts only if root there is trusted.
    fn lower_limits(&self, token: u64, uid: u32, launch: &mut LaunchSpec) {
        let connection = self.connections.get(&token);
        if let Some(vouch) = connection.and_then(|connection| connection.vouch.as_ref())
            && self.admin(uid).is_err()
        {
            vouched::lower_limits(vouch, &self.hard_limits, &mut launch.rlimits);
        }
    }

    /// Root sets the limits for the tasks, so it must not set what their user could not: real-time
    /// priority, say. Asking who asks takes time, so only those are asked who want more than anybody
    /// may have that this instance starts.
    fn check_limits(&self, token: u64, uid: u32, spec: &LaunchSpec) -> Result<(), Improper> {
        let exceeds = |limits: &[u64]| {
            let allowed = |resource: u32| limits.get(resource as usize).copied().unwrap_or(0);
            spec.rlimits.iter().find_map(|&(resource, soft, hard)| {
                let (asked, allowed) = (soft.max(hard), allowed(resource));
                (asked > allowed).then_some(Improper::Limit { resource, asked, allowed })
            })
        };
        let Some(error) = exceeds(&self.hard_limits) else { return Ok(()) };
        if self.admin(uid).is_ok() {
            return Ok(());
        }
        let Some(connection) = self.connections.get(&token) else { return Err(error) };
        let allowed = match &connection.vouch {
            Some(vouch) => vouch.hard_limits.clone(),
            None => proc::hard_limits(connection.pid, uid).unwrap_or_default(),
        };
        if allowed.is_empty() { Err(error) } else { exceeds(&allowed).map_or(Ok(()), Err) }
    }

    /// Declines what no keeper could hold, whatever else there is on its node.
    fn too_many_tasks(&self, request: &JobRequest) -> Option<String> {
        let most = self.nodes.values().map(|node| u64::from(node.tasks_max)).sum::<u64>();
        (!self.nodes.is_empty() && u64::from(request.tasks) > most).then(|| {
            format!(
                "{} tasks were asked for and the nodes can hold {most} at once, by what their \
                 keepers may open (see `ulimit -Hn`); ask for at most -n {most}",
                request.tasks
            )
        })
    }

    /// Looked up once: the system's answer may take longer than the rest of a launch.
    pub(super) fn user_name(&mut self, uid: u32) -> String {
        self.user_names.entry(uid).or_insert_with(|| report::user_name(uid)).clone()
    }

    fn credentials(&mut self, token: u64, uid: u32) -> Option<Credentials> {
        let connection = self.connections.get(&token)?;
        if let Some(vouch) = &connection.vouch {
            let believed = self.accounts.credentials(vouch);
            return believed.map_err(|problem| self.fail(token, problem)).ok();
        }
        let found = peer::peer_credentials(connection.link.stream())
            .and_then(|who| Ok((who.gid, peer::peer_groups(connection.link.stream())?)));
        match found {
            Ok((gid, groups)) => Some(Credentials { uid, gid, groups }),
            Err(error) => {
                let reason = format!("the kernel does not name your user: {error}");
                self.fail(token, Problem::new(Code::System, reason));
                None
            }
        }
    }

    pub(super) fn on_accept(&mut self, job: JobId) {
        let Some(Submission { token, front, within, made, accepted }) = &mut self.submitting else {
            return;
        };
        *accepted = Some(job);
        let (token, front, within) = (*token, *front, *within);
        let Some((made, spec, launch)) = made.take() else { return };
        let uid = made.credentials.uid;
        let shelf = self.shelves.entry(uid).or_default();
        let launch = shelf.keep(launch, &mut self.memory.journal);
        let made = Job { job, launch: launch.segments(), ..made };
        self.memory.journal.note_job(&made);
        self.submitted.note(uid, made.key, job);
        let shown = self.shown_of(&spec, made.accepted_ms);
        let queue = self.core.queue_of(job);
        let mut entry = Entry { shown, ..Entry::new(made, &spec, queue, launch) };
        entry.front = front.then_some(token);
        entry.within = within;
        self.jobs.insert(job, Box::new(entry));
        self.ask_disk_soon();
        if front {
            self.be_front(token, job);
        }
    }

    /// The connection is that of the job's front end.
    pub(super) fn be_front(&mut self, token: u64, job: JobId) {
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.connections.get_mut(&token)
        {
            client.front_of = Some(job);
        }
    }

    pub(super) fn on_decline(&mut self, refusal: &Refusal) {
        if let Some(Submission { token, .. }) = &self.submitting {
            let token = *token;
            self.reply(token, &Problem::new(code_of_refusal(refusal), refusal).declined());
        }
    }

    pub(super) fn tell_why_it_waits(&mut self, token: u64, job: JobId) {
        let waits = report::why_it_waits(self, job);
        self.reply(token, &Reply::Accepted { job, waits });
        self.tell_front_where(job);
    }

    /// The same for a front end that has come back: what was launched meanwhile waits for it. One that knows
    /// better has seen a beginning that is not in the journal, and gives the job up.
    pub(super) fn tell_why_it_waited(&mut self, token: u64, job: JobId) {
        let is_told = |entry: &Entry| entry.has_told_front || entry.started_on.is_empty();
        if self.jobs.get(&job).map(Box::as_ref).is_none_or(is_told) {
            return self.tell_why_it_waits(token, job);
        }
        self.reply(token, &Reply::Accepted { job, waits: "for its front end".into() });
        self.tell_front_where(job);
    }

    /// The job is being started on these nodes.
    pub(super) fn tell_front_of_start(&mut self, job: JobId, nodes: Vec<NodeId>) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        entry.started_on = nodes;
        // Whoever asks for it just now hears first that it is accepted.
        if !matches!(&self.submitting, Some(s) if s.accepted == Some(job)) {
            self.tell_front_where(job);
        }
    }

    /// Tells a job's front end where the keepers of its tasks are, as seen from its own node.
    fn tell_front_where(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let Some(front) = entry.front.filter(|_| !entry.started_on.is_empty()) else { return };
        let vouch = self.connections.get(&front).and_then(|connection| connection.vouch.as_ref());
        let attach = |node: &NodeId| {
            let entry = self.nodes.get(node);
            let is_near = match vouch {
                Some(vouch) => vouch.node == *node,
                None => entry.is_some_and(|entry| entry.is_here),
            };
            match entry.filter(|_| is_near) {
                Some(entry) => KeeperAt::Here(entry.attach.clone()),
                None => KeeperAt::Node(*node),
            }
        };
        let attach = entry.started_on.iter().map(attach).collect();
        self.reply(front, &Reply::Starting { job, attach });
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.has_told_front = true;
        }
    }

    /// Answers a client whose job has ended, or is not his.
    pub(super) fn is_ended_for(&mut self, token: u64, uid: u32, job: JobId) -> bool {
        match (self.owned(uid, job), self.ended.get(job)) {
            (Err(Forbidden::Ended { .. }), Some(ended)) => {
                let (outcome, detail) = (ended.outcome, ended.report.detail.clone());
                let report = Box::new(ended.report.clone());
                self.reply(token, &Reply::Ended { job, outcome, detail, report });
            }
            (Err(error), _) => self.fail(token, error),
            (Ok(()), _) => return false,
        }
        true
    }

    fn on_wait(&mut self, token: u64, uid: u32, job: JobId) {
        if self.is_ended_for(token, uid, job) {
            return;
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.connections.get_mut(&token)
            && client.waits_for.insert(job)
            && let Some(entry) = self.jobs.get_mut(&job)
        {
            entry.waiting.push(token);
        }
    }

    fn on_wait_begun(&mut self, token: u64, uid: u32, job: JobId) {
        if self.is_ended_for(token, uid, job) {
            return;
        }
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if entry.has_begun {
            return self.reply(token, &Reply::Done);
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.connections.get_mut(&token)
            && client.waits_for.insert(job)
        {
            entry.waiting_begun.push(token);
        }
    }

    /// A node reports that a task of the job has begun.
    pub(super) fn note_begun(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        entry.has_begun = true;
        for token in std::mem::take(&mut entry.waiting_begun) {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.connections.get_mut(&token)
            {
                client.waits_for.remove(&job);
            }
            self.reply(token, &Reply::Done);
        }
    }

    /// A client is gone; from another node, if one is named, and perhaps only the way there broke.
    pub(super) fn on_client_gone(&mut self, client: Client, from: Option<NodeId>) {
        for job in client.waits_for {
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.waiting.retain(|token| self.connections.contains_key(token));
                entry.waiting_begun.retain(|token| self.connections.contains_key(token));
            }
        }
        if let Some(job) = client.front_of {
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.front = None;
            }
            match from {
                Some(node) => self.await_front(job, node),
                None => self.apply(&Event::FrontEndLost { job }),
            }
        }
    }

    // ------------------------------------------------------------------ control

    /// Whole jobs are ended by the core; parts of them by the agents of their nodes.
    fn on_cancel(&mut self, token: u64, uid: u32, target: Target, at_once: bool) {
        let job = target.job;
        if target.rank.is_none() {
            return self.for_owner(token, uid, job, |driver| {
                let reason = EndReason::Cancelled;
                driver.apply(&Event::Cancel { job, reason, at_once });
            });
        }
        let grace = self.core.job(job, self.now()).map_or(Nanos::ZERO, |view| view.spec.grace);
        let grace = if at_once { Nanos::ZERO } else { grace };
        self.on_part(token, uid, target, Question::EndPart { target, grace });
    }

    fn on_signal(&mut self, token: u64, uid: u32, target: Target, signal: u8, every: bool) {
        if !(1..=64).contains(&signal) {
            return self.fail(token, format!("{signal} is no signal; signals are 1 to 64"));
        }
        if every || target.pid.is_some() {
            return self.on_part(token, uid, target, Question::SignalPart { target, signal });
        }
        if let Err(error) = self.owned_part(uid, target) {
            return self.fail(token, error);
        }
        let job = target.job;
        let ranks = target.rank.into_iter().collect();
        self.for_owner(token, uid, job, |driver| {
            driver.apply(&Event::Signal { job, ranks, signal });
        });
    }

    /// Whole jobs are suspended in the matrix; parts of them by the agents of their nodes.
    fn on_part(&mut self, token: u64, uid: u32, target: Target, question: Question) {
        self.on_page_of_part(token, uid, target, (question, Page::default()));
    }

    fn on_page_of_part(
        &mut self,
        token: u64,
        uid: u32,
        target: Target,
        (question, page): (Question, Page),
    ) {
        let job = target.job;
        let allowed = self.owned_part(uid, target).and_then(|()| self.room_for_part(&question));
        if let Err(error) = allowed {
            return self.fail(token, error);
        }
        if target.rank.is_none() {
            match question {
                Question::SuspendPart(_) => {
                    return self.for_owner(token, uid, job, |d| d.apply(&Event::Suspend { job }));
                }
                Question::ResumePart(_) => {
                    return self.for_owner(token, uid, job, |d| d.apply(&Event::Resume { job }));
                }
                Question::Switches { .. }
                | Question::Status
                | Question::Usages
                | Question::Fares
                | Question::Processes(_)
                | Question::EndPart { .. }
                | Question::SignalPart { .. }
                | Question::Upgrade { .. }
                | Question::Runs { .. } => {}
            }
        }
        let nodes: Vec<_> = self
            .core
            .job(job, self.now())
            .into_iter()
            .flat_map(|view| view.placements)
            .filter(|placed| {
                target.rank.is_none_or(|rank| ranks_of(placed).any(|other| other == rank))
            })
            .map(|placed| placed.node)
            .collect();
        if nodes.is_empty() {
            let reason = format!("{target} is not running; see `tutti ps`");
            return self.fail(token, Problem::new(Code::NoPart, reason));
        }
        self.ask_for_page(token, &nodes, &question, page);
    }

    /// Whether another subtree may be suspended, if that is asked. Of whole tasks there are no more than the job has.
    fn room_for_part(&self, question: &Question) -> Result<(), Forbidden> {
        let Question::SuspendPart(target) = question else { return Ok(()) };
        let Some(entry) = self.jobs.get(&target.job).filter(|_| target.pid.is_some()) else {
            return Ok(());
        };
        let subtrees = entry.suspended.iter().filter(|part| part.pid.is_some()).count();
        match subtrees >= SUSPENDED_PARTS_MAX && !entry.suspended.contains(target) {
            true => Err(Forbidden::TooManyParts(target.job)),
            false => Ok(()),
        }
    }

    /// Remembers what `ps` shows of parts; called when their nodes have answered.
    pub(super) fn note_part(&mut self, question: &Question, done: bool) {
        let (Question::SuspendPart(target)
        | Question::ResumePart(target)
        | Question::EndPart { target, .. }) = question
        else {
            return;
        };
        let Some(entry) = self.jobs.get_mut(&target.job) else { return };
        match question {
            Question::SuspendPart(_) if done => drop(entry.suspended.insert(*target)),
            // A process that can't be resumed has gone.
            Question::ResumePart(_) | Question::EndPart { .. } if done || target.pid.is_some() => {
                entry.suspended.remove(target);
            }
            _ => {}
        }
    }

    fn on_measured(&mut self, token: u64, uid: u32, name: &str, figures: Figures) {
        if let Err(error) = self.admin(uid) {
            return self.fail(token, error);
        }
        match self.nodes.iter().find(|(_, entry)| entry.name == name).map(|(&node, _)| node) {
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
        let nodes = self.nodes.iter().filter(|(_, entry)| entry.agent.is_some());
        nodes.map(|(&node, _)| node).collect()
    }

    fn on_switches(&mut self, token: u64, count: u32, from: NodeId) {
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        self.ask_for_page(token, &nodes, &Question::Switches { count }, Page::of_nodes(from));
    }

    fn on_jobs_with_usage(&mut self, token: u64, from: JobId) {
        let nodes = self.nodes_with_agents();
        let page = Page::of_jobs(from);
        self.ask_for_page(token, &nodes, &Question::Usages, page);
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
