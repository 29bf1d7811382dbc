//! A job from the request to the answer, top to bottom.
//!
//! [`Driver::submit_or_foretell`] checks the request, makes the job's specification of it, and puts
//! it to the core. The core accepts or declines in the same call: [`Driver::submit`] returns its
//! decision. A job without a front end is answered when the disk has it; one with a front end at
//! once, since it would end with the front end in any case.
//!
//! A request that comes before the first node has joined, or before the disk has the numbers that
//! jobs may have, is [`Deferred`]. It costs memory, so each user has a bound.

use super::after::{Asked, Waits};
use crate::adopt::CannotAdopt;
use crate::driver::{Connection, Driver, Kind};
use crate::error::Problem;
use crate::jobs::{Clients, Entry};
use crate::notify::notify_bytes;
use crate::settings::RENEW_EVERY;
use crate::{launch_store, remote_identity, report};
use tutti_core::policy::{POLICIES, Policy};
use tutti_core::{Event, HeldBy, SubmitOptions};
use tutti_journal::Job;
use tutti_linux::{peer, proc};
use tutti_node::codes::code_of_refusal;
use tutti_node::platform::time::wall_ms;
use tutti_types::{
    ArraySpec, ClusterTime, FirstStep, GroupId, JobId, JobSpec, Nanos, NodeWish, OnNodeLoss,
    RequestId, UserId,
};
use tutti_wire::code::Code;
use tutti_wire::launch::{Credentials, LaunchSpec, Stdio};
use tutti_wire::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use tutti_wire::local::{JobRequest, NodesRequest, SubmitKey};
use tutti_wire::notify::Notify;

/// What the controller knows of a job that it puts to the core, until the core has decided.
pub(crate) struct Submission {
    /// The connection of its front end, if it has one.
    front: Option<u64>,
    within: Option<JobId>,
    job: Job,
    spec: JobSpec,
    launch: launch_store::Request,
}

/// A request for a job that came before the first node, or before the disk had what numbers jobs
/// may have.
pub(crate) struct Deferred {
    pub(crate) token: u64,
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

/// Why a request for a job is not even put to the core: it is no proper request, or more than
/// messages and memory can hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Improper {
    #[error("a job with a front end must say so, and no other")]
    Stdio,
    #[error(
        "a job that its front end waits for can't be queued again when a node is lost; hand it in with \
         `tutti submit`, or choose another --on-node-loss"
    )]
    RequeueWithFront,
    #[error(
        "only a job of `tutti submit` with a task in each slot can have lost ranks started again; use that, \
         or choose another --on-node-loss"
    )]
    RespawnOfOther,
    #[error(
        "the policy deadline promises all processors by time, so no lost ranks are started again; choose \
         another --on-node-loss"
    )]
    RespawnWithPlans,
    #[error(transparent)]
    Adopt(#[from] CannotAdopt),
    #[error("a connection is the front end of one job; this one has one already")]
    SecondFront,
    #[error(transparent)]
    PolicyArgs(#[from] tutti_types::PolicyArgsError),
    #[error("the signal before the time limit is none; signals are 1 to 64")]
    NoSignal,
    #[error(
        "a job saves its state for a signal from 1 to 64 but SIGKILL and SIGSTOP \
         (--checkpoint-signal), at most once a second, and its exit code for that is not 0"
    )]
    Checkpoint,
    #[error(
        "a job of `tutti run` ends with its front end, so it can't go on from an image \
         (--checkpoint); hand it in with `tutti submit`"
    )]
    ImageWithFront,
    #[error(
        "--checkpoint is for jobs of one task (-n 1), which may have any number of processes and, \
         with --processors, of processors; an array has many such jobs"
    )]
    ImageOfSeveral,
    #[error("--checkpoint takes no --vacate, --resume-command or adopted processes")]
    ImageWithOthers,
    #[error(
        "--checkpoint needs CRIU, which needs an instance that root has started; in this one, use \
         --checkpoint-signal"
    )]
    ImageWithoutRoot,
    #[error(
        "the name of the {what} has {bytes} bytes; at most {NAME_BYTES_MAX} are possible: give a \
         shorter one with {option}"
    )]
    LongName { what: &'static str, option: &'static str, bytes: usize },
    #[error(
        "the job's directory, or the name of its input or output file, has {bytes} bytes; paths have \
         at most {PATH_BYTES_MAX}: give a shorter one"
    )]
    LongPath { bytes: usize },
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

/// Whether the processes of a job can be saved to an image, as far as its request tells.
fn check_image(request: &JobRequest, front: bool) -> Result<(), Improper> {
    let launch = &request.launch;
    if front {
        return Err(Improper::ImageWithFront);
    }
    if request.tasks != 1 || matches!(request.first, FirstStep::Tasks(_)) {
        return Err(Improper::ImageOfSeveral);
    }
    if launch.vacate.is_some() || launch.resume.is_some() || !launch.adopt.is_empty() {
        return Err(Improper::ImageWithOthers);
    }
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Improper::ImageWithoutRoot),
    }
}

/// What all jobs of one user may take here.
const KEPT_PER_USER_BYTES_MAX: usize = 256 << 20;

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

/// The submission of a job that is only asked about: not held, since a hold has no end.
fn asked_when(spec: JobSpec, options: SubmitOptions) -> Event {
    Event::submit(RequestId(0), spec, SubmitOptions { hold: None, ..options })
}

/// The event of a job's submission, or of an array's.
fn submission(
    request: RequestId,
    spec: JobSpec,
    options: SubmitOptions,
    array: Option<ArraySpec>,
) -> Event {
    match array {
        None => Event::submit(request, spec, options),
        Some(array) => Event::SubmitArray { request, spec, options, array },
    }
}

impl Driver {
    /// From when on a request is answered even if no node has joined.
    pub(crate) fn nodes_due(&self) -> ClusterTime {
        self.clock.started + NODES_PATIENCE
    }

    /// A node is there, or none will be.
    pub(crate) fn stop_waiting_for_nodes(&mut self) {
        self.pending.waits_for_nodes = false;
        self.take_early();
    }

    /// Answers what waited for the first node, or the disk, if it need not any more.
    pub(crate) fn take_early(&mut self) {
        for Deferred { token, uid, request, key, .. } in std::mem::take(&mut self.pending.early) {
            self.on_submit(token, uid, request, key);
        }
    }

    /// Whether a job would be too early: there is no node yet, or its number may have been given
    /// before.
    fn is_early(&self) -> bool {
        self.pending.waits_for_nodes || self.memory.may_repeat_numbers()
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
            let bytes = self
                .pending
                .early
                .iter()
                .filter(|it| it.uid == uid)
                .map(|it| it.bytes)
                .sum::<usize>();
            let early = Deferred { token, uid, bytes: request.launch.bytes(), request, key };
            if bytes + early.bytes > EARLY_PER_USER_BYTES_MAX {
                let reason = "the controller has just begun, and keeps no more of your jobs until its nodes are \
                              there; try again in a moment";
                self.fail(token, Problem::new(Code::TooMuchAsked, reason));
                return None;
            }
            self.pending.early.push(early);
            return None;
        }
        Some(request)
    }

    /// A job with a key has no front end; the others have.
    pub(super) fn on_submit(
        &mut self,
        token: u64,
        uid: u32,
        request: JobRequest,
        key: Option<SubmitKey>,
    ) {
        if let Some(job) = self.users.submitted.find(uid, key) {
            // The client was told, and has not heard it.
            return self.accept_when_stored(token, job);
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
        if let Err(problem) = self.prepare(token, uid, &mut request, front) {
            return self.fail(token, problem);
        }
        if let Some(reason) = self.too_many_tasks(&request) {
            return self.reply(token, &Problem::new(Code::TooLarge, reason).declined());
        }
        let nodes = match self.in_queue(token, &mut request, &credentials) {
            Ok(nodes) => nodes,
            Err(problem) => return self.reply(token, &problem.declined()),
        };
        let options = self.options_of(&mut request);
        let notify = self.notify_of(request.notify.take());
        let launch = launch_store::Request::new(request.launch, notify_bytes(notify.as_ref()));
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
            resources: self.wishes(request.resources),
            on_bad_exit: request.on_bad_exit,
            on_node_loss: request.on_node_loss,
        };
        let job = self.new_job(credentials, (key, notify), launch.name().to_owned());
        if let Some(problem) = self.why_stuck_within(request.within, &spec) {
            return self.reply(token, &problem.declined());
        }
        let own = request.array.as_ref().map(|array| &array.indices);
        let asked = Asked { name: &job.name, array: own, singleton: request.singleton };
        let after = match self.jobs_before(uid, &asked, request.after) {
            Ok(after) => after,
            Err(problem) => return self.reply(token, &problem.declined()),
        };
        let options = self.with_after(options, after);
        if let Asks::When = asks {
            let submit = asked_when(spec.clone(), options);
            return self.foretell_job((token, uid), job.name, spec, submit);
        }
        let (within, begins) = (request.within, options.begin.is_some());
        let event = submission(self.next_request(), spec.clone(), options, request.array);
        let front = front.then_some(token);
        match self.submit(&event, Submission { front, within, job, spec, launch }) {
            Some(Ok(job)) => self.answer_accepted(token, job, front.is_some()),
            Some(Err(refusal)) => {
                let problem = Problem::new(code_of_refusal(&refusal), &refusal);
                self.reply(token, &problem.declined());
            }
            None => {}
        }
        if begins {
            self.due.calendar_due = self.due.calendar_due.min(self.now() + RENEW_EVERY);
        }
        self.follow_up();
    }

    /// What is asked for a job beside its specification, but for the jobs that it starts after.
    fn options_of(&self, request: &mut JobRequest) -> SubmitOptions {
        SubmitOptions {
            queue: request.queue.take(),
            hold: request.hold.then_some(HeldBy::Owner),
            first: request.first,
            after: None,
            begin: request.begin_ms.and_then(|unix_ms| self.begin_of(unix_ms)),
            warning: request.warning,
            vacate: request.launch.vacate,
            args: std::mem::take(&mut request.policy_args),
            checkpoint: request.checkpoint,
            swap: request.swap,
            no_requeue: request.no_requeue,
            never: None,
        }
    }

    /// The same with what is left for a job to wait for of others.
    fn with_after(&self, options: SubmitOptions, after: Waits) -> SubmitOptions {
        let Waits { after, moment, never } = after;
        let moment = moment.map(|at| self.begin_at(at));
        let begin = options.begin.into_iter().chain(moment).max_by_key(|begin| begin.at);
        SubmitOptions { after, begin, never, ..options }
    }

    /// Takes out of a request what its user may not ask or has inherited, and checks the rest.
    fn prepare(
        &self,
        token: u64,
        uid: u32,
        request: &mut JobRequest,
        front: bool,
    ) -> Result<(), Problem> {
        self.lower_limits(token, uid, &mut request.launch);
        crate::arrays::drop_inherited(request);
        self.check_request(token, uid, request, front)?;
        self.check_notify(request.notify.as_ref())?;
        crate::arrays::why_no_array(request).map_or(Ok(()), Err)
    }

    /// What is stored of a job. Its number is the core's to give.
    fn new_job(
        &mut self,
        credentials: Credentials,
        (key, notify): (Option<SubmitKey>, Option<Notify>),
        name: String,
    ) -> Job {
        Job {
            job: JobId(0),
            key,
            user: self.user_name(credentials.uid),
            credentials,
            name,
            launch: Vec::new(),
            accepted: self.now(),
            accepted_ms: wall_ms(),
            notify,
        }
    }

    /// Answers that a job is accepted: to a front end at once, else as soon as it is stored.
    fn answer_accepted(&mut self, token: u64, job: JobId, has_front: bool) {
        if !has_front {
            return self.accept_when_stored(token, job);
        }
        // It would end with its front end in any case: the disk is not waited for.
        self.be_front(token, job);
        self.memory.begin(token, job);
        self.tell_why_it_waits(token, job);
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
    pub(super) fn on_when(&mut self, token: u64, uid: u32, request: JobRequest) {
        self.submit_or_foretell(token, uid, request, Asks::When);
    }

    /// On which nodes it wants to be. Processes that are adopted are where the asker is.
    fn nodes_for(&self, token: u64, request: &JobRequest) -> NodesRequest {
        let mut nodes = request.nodes.clone();
        if !request.launch.adopt.is_empty() && self.cluster.nodes.len() > 1 {
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
        if let OnNodeLoss::Respawn { signal, .. } = request.on_node_loss {
            let is_plain = request.first == FirstStep::EachSlot && request.launch.adopt.is_empty();
            if front || !is_plain {
                return Err(Improper::RespawnOfOther);
            }
            let policy = POLICIES.get(self.core.params().policy());
            if policy.is_some_and(Policy::plans) {
                return Err(Improper::RespawnWithPlans);
            }
            if signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
                return Err(Improper::NoSignal);
            }
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get(&token)
            && front
            && client.is_front()
        {
            return Err(Improper::SecondFront);
        }
        if request.warning.is_some_and(|warning| !(1..=64).contains(&warning.signal)) {
            return Err(Improper::NoSignal);
        }
        if request.checkpoint.is_some_and(|checkpoint| !checkpoint.is_proper()) {
            return Err(Improper::Checkpoint);
        }
        if request.checkpoint.is_some_and(|checkpoint| checkpoint.saves_image()) {
            check_image(request, front)?;
        }
        if request.launch.resume.is_some() && request.checkpoint.is_none() {
            return Err(Improper::Checkpoint);
        }
        tutti_types::check_policy_args(&request.policy_args)?;
        for (what, option, bytes) in [
            ("job", "-J", request.launch.name.len()),
            ("class", "--class", request.class.0.len()),
            ("queue", "-q", request.queue.as_ref().map_or(0, |queue| queue.0.len())),
        ] {
            if bytes > NAME_BYTES_MAX {
                return Err(Improper::LongName { what, option, bytes });
            }
        }
        if let Some(bytes) = request.launch.paths().map(<[u8]>::len).find(|&it| it > PATH_BYTES_MAX)
        {
            return Err(Improper::LongPath { bytes });
        }
        self.check_limits(token, uid, &request.launch)?;
        let client =
            self.intake.connections.get(&token).filter(|connection| connection.vouch.is_none());
        crate::adopt::check(request, uid, client.map(|connection| connection.pid))?;
        Ok(())
    }

    /// Whether there is room for what another job is to run, beside what the user's other jobs have
    /// here.
    fn check_room(&self, uid: u32, launch: &launch_store::Request) -> Result<(), Improper> {
        let none = launch_store::Shelf::default();
        let shelf = self.users.shelves.get(&uid).unwrap_or(&none);
        let bytes = shelf.bytes() + shelf.more_with(launch);
        match bytes > KEPT_PER_USER_BYTES_MAX && self.admin(uid).is_err() {
            true => Err(Improper::TooMuch { bytes }),
            false => Ok(()),
        }
    }

    /// What the machine says of the user's limits counts only if root there is trusted.
    pub(crate) fn lower_limits(&self, token: u64, uid: u32, launch: &mut LaunchSpec) {
        let connection = self.intake.connections.get(&token);
        if let Some(vouch) = connection.and_then(|connection| connection.vouch.as_ref())
            && self.admin(uid).is_err()
        {
            remote_identity::lower_limits(vouch, &self.users.hard_limits, &mut launch.rlimits);
        }
    }

    /// Root sets the limits for the tasks, so it must not set what their user could not: real-time
    /// priority, say. Looking users up takes time, so it is done only for those that want more than
    /// any user may have that this instance starts.
    pub(crate) fn check_limits(
        &self,
        token: u64,
        uid: u32,
        spec: &LaunchSpec,
    ) -> Result<(), Improper> {
        let exceeds = |limits: &[u64]| {
            let allowed = |resource: u32| limits.get(resource as usize).copied().unwrap_or(0);
            spec.rlimits.iter().find_map(|&(resource, soft, hard)| {
                let (asked, allowed) = (soft.max(hard), allowed(resource));
                (asked > allowed).then_some(Improper::Limit { resource, asked, allowed })
            })
        };
        let Some(error) = exceeds(&self.users.hard_limits) else { return Ok(()) };
        if self.admin(uid).is_ok() {
            return Ok(());
        }
        let Some(connection) = self.intake.connections.get(&token) else { return Err(error) };
        let allowed = match &connection.vouch {
            Some(vouch) => vouch.hard_limits.clone(),
            None => proc::hard_limits(connection.pid, uid).unwrap_or_default(),
        };
        if allowed.is_empty() { Err(error) } else { exceeds(&allowed).map_or(Ok(()), Err) }
    }

    /// Declines what no keeper could hold, whatever else there is on its node.
    fn too_many_tasks(&self, request: &JobRequest) -> Option<String> {
        let most = self.cluster.nodes.values().map(|node| u64::from(node.tasks_max)).sum::<u64>();
        (!self.cluster.nodes.is_empty() && u64::from(request.tasks) > most).then(|| {
            format!(
                "{} tasks were asked for and the nodes can hold {most} at once, by what their \
                 keepers may open (see `ulimit -Hn`); ask for at most -n {most}",
                request.tasks
            )
        })
    }

    /// Looked up once: the system's answer may take longer than the rest of a launch.
    pub(crate) fn user_name(&mut self, uid: u32) -> String {
        self.users.user_names.entry(uid).or_insert_with(|| report::user_name(uid)).clone()
    }

    pub(crate) fn credentials(&mut self, token: u64, uid: u32) -> Option<Credentials> {
        let connection = self.intake.connections.get(&token)?;
        if let Some(vouch) = &connection.vouch {
            let believed = self.users.accounts.credentials(vouch);
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

    /// The core has accepted a job: it is stored, and known from now on.
    pub(crate) fn note_accepted(&mut self, job: JobId, submission: Submission) {
        let Submission { front, within, job: made, spec, launch } = submission;
        let uid = made.credentials.uid;
        let shelf = self.users.shelves.entry(uid).or_default();
        let launch = shelf.keep(launch, &mut self.memory.journal);
        let made = Job { job, launch: launch.segments(), ..made };
        self.memory.journal.note_job(&made);
        self.users.submitted.note(uid, made.key, job);
        let shown = self.shown_of(job, &spec, made.accepted_ms);
        if made.notify.is_some() {
            self.want_notifier();
        }
        if let Some(view) = self.core.array(job) {
            let made = Entry::new(made, (&spec, view.first), view.queue, launch);
            let mut entry = Entry { shown, ..made };
            entry.terms.array = Some(view.array.clone());
            self.arrays.insert(job, Box::new(entry));
            self.job_submitted(job);
            return self.ask_disk_soon();
        }
        let (queue, first) = (self.core.queue_of(job), self.core.first_step(job));
        let clients = Clients::of_new(front);
        let made = Entry::new(made, (&spec, first), queue, launch);
        let entry = Entry { shown, clients, within, ..made };
        self.jobs.insert(job, Box::new(entry));
        self.note_checkpoint(job);
        self.job_submitted(job);
        self.ask_disk_soon();
    }
}
