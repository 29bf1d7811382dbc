//! Further steps of jobs: their front ends, what nodes report of them, and what readers see.
//!
//! What a step is to run is not in the journal. A front end that was cut off asks for its step
//! again, with the same key, and so brings it back; one that does not is lost, and its step ends.

use super::driver::{Connection, Driver, Kind};
use super::durability::{Abandoned, FRONT_MOMENT, FRONT_PATIENCE};
use super::error::Problem;
use super::exchange::Exchanges;
use super::report;
use super::requests::{Forbidden, Improper};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use tutti_core::{Event, Part, StepAction, StepView};
use tutti_node::codes::code_of_end;
use tutti_types::{
    ClusterTime, EndReason, FirstStep, JobId, LaunchId, NodeId, Outcome, Rank, StepId, StepKey,
    StepRefusal, TaskStatus,
};
use tutti_wire::code::Code;
use tutti_wire::launch::{Credentials, JobNode, Launch, LaunchSpec, Share, Stdio, Usage};
use tutti_wire::limits::{
    NAME_BYTES_MAX, SPAWN_BYTES_MAX, SPAWN_PROGRAMS_MAX, STEPS_BYTES_MAX, STEPS_SHOWN_MAX,
    STEPS_USER_BYTES_MAX,
};
use tutti_wire::local::{Reply, StepRequest};
use tutti_wire::report::JobReport;
use tutti_wire::show::StepReport;
use tutti_wire::spawn::Spawned;
use tutti_wire::tree::{FromAgent, ToAgent};
use tutti_wire::units::{format_bytes, shown};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// A further step of a job that has not ended.
#[derive(Default)]
pub(super) struct StepEntry {
    /// What it is called; empty until its front end is back.
    name: String,
    /// What to run; `None` until its front end is back.
    launch: Option<LaunchSpec>,
    /// What its tasks run, if tasks of the job have spawned it.
    spawned: Option<Spawned>,
    memory_per_task_bytes: Option<u64>,
    /// See [`Launch::serves`].
    serves: bool,
    tasks: u32,
    /// Its front end, while that is connected.
    front: Option<u64>,
    /// The nodes that it was started on.
    started_on: Vec<NodeId>,
    /// When that was.
    started: Option<ClusterTime>,
    /// Those of them that have no launch, since it was not known what to run.
    untold: BTreeSet<NodeId>,
    statuses: BTreeMap<Rank, TaskStatus>,
    cleared: BTreeSet<NodeId>,
    usage: Usage,
    /// What a reader should know beyond the outcome.
    detail: String,
    /// What its nodes have stored before barriers.
    pub(super) exchanges: Exchanges,
}

/// A request for a step while the core decides on it.
pub(super) struct Stepping {
    token: u64,
    request: StepRequest,
    accepted: Option<StepKey>,
}

impl StepEntry {
    /// Notes what a reader should know beyond the outcome; what came first stays.
    pub(super) fn note_detail(&mut self, detail: &str) {
        if self.detail.is_empty() {
            detail.clone_into(&mut self.detail);
        }
    }

    /// Whether a task has ended so.
    pub(super) fn has_said(&self, so: impl Fn(&TaskStatus) -> bool) -> bool {
        self.statuses.values().any(so)
    }

    /// What it is to run takes this much memory, about.
    fn launch_bytes(&self) -> usize {
        let spawned = self.spawned.as_ref().map_or(0, Spawned::bytes);
        self.launch.as_ref().map_or(0, LaunchSpec::bytes) + spawned
    }
}

/// The variables of a job, and a step's own in place of those with the same names.
fn joined(of_job: Vec<ByteBuf>, own: Vec<ByteBuf>) -> Vec<ByteBuf> {
    let name = |variable: &[u8]| variable.iter().position(|&byte| byte == b'=');
    let names: HashSet<&[u8]> = own.iter().filter_map(|it| Some(&it[..name(it)?])).collect();
    let is_own = |it: &ByteBuf| name(it).is_some_and(|end| names.contains(&it[..end]));
    let mut all: Vec<ByteBuf> = of_job.into_iter().filter(|it| !is_own(it)).collect();
    all.extend(own);
    all
}

/// The further steps of a job.
#[derive(Default)]
pub(super) struct Steps {
    /// Those that have not ended.
    live: BTreeMap<StepId, StepEntry>,
    /// Those that ended last.
    ended: VecDeque<StepReport>,
}

impl Steps {
    /// Those that have not ended.
    pub(super) fn ids(&self) -> impl Iterator<Item = StepId> {
        self.live.keys().copied()
    }

    pub(super) fn get(&self, step: StepId) -> Option<&StepEntry> {
        self.live.get(&step)
    }

    pub(super) fn get_mut(&mut self, step: StepId) -> Option<&mut StepEntry> {
        self.live.get_mut(&step)
    }

    /// What they are to run takes this much memory, about.
    fn launch_bytes(&self) -> usize {
        self.live.values().map(StepEntry::launch_bytes).sum()
    }

    /// One has ended, which a reader still sees for a while.
    fn note_ended(&mut self, report: StepReport) {
        self.ended.push_back(report);
        if self.ended.len() > STEPS_SHOWN_MAX {
            self.ended.pop_front();
        }
    }

    /// The job begins anew: those that have ended are of an earlier run.
    pub(super) fn forget_ended(&mut self) {
        self.ended.clear();
    }

    /// Those that ended last, which are stored with the job.
    pub(super) fn take_ended(&mut self) -> VecDeque<StepReport> {
        std::mem::take(&mut self.ended)
    }
}

impl Driver {
    pub(super) fn on_run_step(&mut self, token: u64, uid: u32, mut request: StepRequest) {
        if let Err(error) = self.owned(uid, request.job) {
            return self.fail(token, error);
        }
        if uid != 0 {
            let Some(who) = self.credentials(token, uid) else { return };
            if let Err(problem) = self.may_have_step(token, &who, request.job) {
                return self.fail(token, problem);
            }
        }
        self.lower_limits(token, uid, &mut request.launch);
        if let Err(problem) = self.check_step(token, uid, &request) {
            return self.fail(token, problem);
        }
        if request.spec.spawned_by.is_some()
            && let Some(of_job) = self.jobs.get(&request.job).and_then(|it| it.terms.whole_launch())
        {
            // What asks is no process of the user's session.
            request.launch.rlimits = of_job.rlimits;
        }
        request.spec.on_node = match self.node_of_step(&request) {
            Ok(node) => node,
            Err(problem) => return self.fail(token, problem),
        };
        if request.spec.beside.is_some() {
            self.lend_surroundings(&mut request);
            // With what it was lent.
            if let Err(problem) = self.check_step_bytes(uid, &request) {
                return self.fail(token, problem);
            }
        }
        if request.again && self.core.step_by_key(request.job, &request.key.0).is_none() {
            let reason = format!("no step of job {} is known by that key any more", request.job);
            return self.fail(token, Problem::new(Code::NoJob, reason));
        }
        if let Some(why) = self.lacks_memory(&request) {
            return self.reply(token, &Problem::new(Code::TooLarge, why).declined());
        }
        let (job, key, spec) = (request.job, request.key.0, request.spec);
        self.pending.stepping = Some(Stepping { token, request, accepted: None });
        let request = self.next_request();
        self.apply(&Event::SubmitStep { request, job, key, spec });
        let Some(Stepping { accepted: Some(key), .. }) = self.pending.stepping.take() else {
            return;
        };
        self.launch_untold(key);
        self.tell_step_front_where(key);
        self.follow_up();
    }

    /// A step that runs beside a task finds what that task found: environment, directory, limits.
    /// Of its own it has a program, and variables that it names. A job that has not begun lends
    /// nothing: the core refuses the step.
    fn lend_surroundings(&self, request: &mut StepRequest) {
        request.memory_per_task_bytes = None;
        if self.core.parts(request.job).is_empty() {
            return;
        }
        let of_job = self.jobs.get(&request.job).and_then(|entry| entry.terms.whole_launch());
        let Some(of_job) = of_job else { return };
        let launch = &mut request.launch;
        launch.environment = joined(of_job.environment, std::mem::take(&mut launch.environment));
        if launch.directory.is_empty() {
            launch.directory = of_job.directory;
        }
        (launch.umask, launch.nice, launch.slurm) = (of_job.umask, of_job.nice, of_job.slurm);
        (launch.rlimits, launch.processes_max) = (of_job.rlimits, of_job.processes_max);
    }

    /// The node that a step asks for. What the job has there, the core looks at.
    fn node_of_step(&self, request: &StepRequest) -> Result<Option<NodeId>, Problem> {
        let Some(list) = &request.node else { return Ok(None) };
        let nodes = self.named(list)?;
        let of_job = self.core.parts(request.job);
        let is_of_job = |node: &NodeId| of_job.iter().any(|part| part.node == *node);
        match nodes.first() {
            Some(node) if nodes.len() == 1 && is_of_job(node) => Ok(Some(*node)),
            _ => {
                let reason = format!(
                    "-w {}: inside job {}, name one of its nodes (TUTTI_NODELIST has them)",
                    shown(list),
                    request.job
                );
                Err(Problem::new(Code::BadValue, reason))
            }
        }
    }

    /// Whether a user may start tasks here, and has the groups that the job's tasks have.
    fn may_have_step(&self, token: u64, who: &Credentials, job: JobId) -> Result<(), Problem> {
        if let Some(problem) = self.no_access(token, who) {
            return Err(problem);
        }
        let has = |group: &u32| *group == who.gid || who.groups.contains(group);
        let of_job = self.jobs.get(&job).map(|entry| &entry.owner.credentials);
        if of_job.is_some_and(|job| !has(&job.gid) || !job.groups.iter().all(has)) {
            let reason = format!(
                "job {job} has groups that this process does not have, and so would its steps; \
                 start a job of its own with --outside"
            );
            return Err(Problem::new(Code::NotAllowed, reason));
        }
        Ok(())
    }

    fn check_step(&self, token: u64, uid: u32, request: &StepRequest) -> Result<(), Problem> {
        let is_front = matches!(request.launch.stdio, Stdio::FrontEnd { .. });
        let is_plain = request.launch.script.is_none() && request.launch.adopt.is_empty();
        let name = request.launch.name.len();
        let spawned = request.spawned.as_ref();
        let is_alike = request.spec.spawned_by.is_some() == spawned.is_some()
            && (spawned.is_none() || request.spec.beside.is_none())
            && spawned
                .is_none_or(|it| !it.argv_is_missing() && it.tasks() == Some(request.spec.tasks));
        let of_one = request.spec.tasks == 1 && request.spec.overlap && spawned.is_none();
        let may_serve = of_one && request.spec.beside.is_none() && request.node.is_some();
        let is_alike = is_alike && (!request.serves || may_serve);
        if !is_front || !is_plain || !is_alike || name > NAME_BYTES_MAX {
            return Err(Problem::new(Code::Improper, "this is no proper request for a step"));
        }
        if spawned.is_some_and(|it| !it.is_within_limits()) {
            let reason = format!(
                "spawned tasks have at most {SPAWN_PROGRAMS_MAX} programs, with arguments of at \
                 most {} KiB",
                SPAWN_BYTES_MAX >> 10
            );
            return Err(Problem::new(Code::TooMuchAsked, reason));
        }
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get(&token)
            && client.is_front()
        {
            return Err(Improper::SecondFront.into());
        }
        if request.spec.beside.is_none() && request.spec.spawned_by.is_none() {
            // Else they are those of its job.
            self.check_limits(token, uid, &request.launch)?;
        }
        self.check_step_bytes(uid, request)
    }

    /// Whether there is room for what a step is to run.
    fn check_step_bytes(&self, uid: u32, request: &StepRequest) -> Result<(), Problem> {
        // What a step is to run is taken from the first request.
        let known = self.core.step_by_key(request.job, &request.key.0);
        let has_launch = known.and_then(|key| self.step(key)).is_some_and(|it| it.launch.is_some());
        let spawned = request.spawned.as_ref().map_or(0, Spawned::bytes);
        let more = if has_launch { 0 } else { request.launch.bytes() + spawned };
        let taken = self.jobs.get(&request.job).map_or(0, |entry| entry.steps.launch_bytes());
        let owner = self.jobs.get(&request.job).map_or(uid, |entry| entry.owner.uid());
        let of_user = self.users.step_bytes.get(&owner).copied().unwrap_or(0);
        if of_user + more > STEPS_USER_BYTES_MAX {
            let reason = format!(
                "programs, arguments and environments of the steps of your jobs would take more \
                 than {} MiB: wait until some have ended",
                STEPS_USER_BYTES_MAX >> 20
            );
            return Err(Problem::new(Code::TooMuchAsked, reason));
        }
        if taken + more > STEPS_BYTES_MAX {
            let reason = format!(
                "programs, arguments and environments of the steps of job {} would take more than \
                 {} MiB: wait until some have ended",
                request.job,
                STEPS_BYTES_MAX >> 20
            );
            return Err(Problem::new(Code::TooMuchAsked, reason));
        }
        Ok(())
    }

    /// Why a job can never have such a step, if its tasks ask for more memory than the job has. A
    /// job that asked for none has that of its nodes.
    fn lacks_memory(&self, request: &StepRequest) -> Option<String> {
        let asked = request.memory_per_task_bytes?;
        let view = self.core.job(request.job, self.now())?;
        let parts = self.core.parts(request.job);
        let has = match view.spec.memory_per_task_bytes {
            Some(of_slot) => {
                let most = parts.iter().map(|part| part.tasks).max()?;
                of_slot.saturating_mul(most.into())
            }
            None => {
                let of_node = |part: &Part| Some(self.core.node_spec(part.node)?.memory_bytes);
                parts.iter().filter_map(of_node).max().filter(|bytes| *bytes > 0)?
            }
        };
        (asked > has).then(|| {
            format!(
                "job {} has {} of memory on a node, and each task of the step asks for {}; ask for \
                 less{}",
                request.job,
                format_bytes(has),
                format_bytes(asked),
                or_outside(request)
            )
        })
    }

    pub(super) fn carry_out_of_step(&mut self, action: StepAction) {
        match action {
            StepAction::Accept { key, .. } => self.on_accept_step(key),
            StepAction::Decline { refusal, .. } => self.on_decline_step(refusal),
            StepAction::Launch { key } => self.on_launch_step(key),
            StepAction::Terminate { key, node } => self.end_step_on(key, node, false),
            StepAction::Kill { key, node } => self.end_step_on(key, node, true),
            StepAction::Ended { key, outcome } => self.on_step_ended(key, outcome),
            StepAction::Signal { key, node, signal } => {
                let (launch, ranks) = (self.launch_of(key, node), Vec::new());
                self.tell_node(node, ToAgent::Signal { launch, ranks, signal });
            }
            StepAction::RanksFailed { key, nodes, ranks } => self.name_failed(key, nodes, ranks),
        }
    }

    /// Names failed ranks to the tasks of their step on these nodes.
    fn name_failed(&mut self, key: StepKey, nodes: Vec<NodeId>, ranks: Vec<Rank>) {
        let mut by_launch: BTreeMap<LaunchId, Vec<NodeId>> = BTreeMap::new();
        for node in nodes {
            by_launch.entry(self.launch_of(key, node)).or_default().push(node);
        }
        for (launch, nodes) in by_launch {
            self.tell_nodes(nodes, ToAgent::RanksFailed { launch, ranks: ranks.clone() });
        }
    }

    /// Names all failed ranks of a launch again to a node that is back: word of some may be lost.
    pub(super) fn repeat_failed(&mut self, node: NodeId, launch: LaunchId) {
        let ranks = self.core.failed_ranks(launch.key());
        if !ranks.is_empty() {
            self.tell_node(node, ToAgent::RanksFailed { launch, ranks });
        }
    }

    /// The core has accepted a step, or had before.
    fn on_accept_step(&mut self, key: StepKey) {
        let Some(Stepping { token, request, accepted }) = &mut self.pending.stepping else {
            return;
        };
        *accepted = Some(key);
        let token = *token;
        let (memory, tasks) = (request.memory_per_task_bytes, request.spec.tasks);
        let (launch, spawned) = (request.launch.clone(), request.spawned.clone());
        let Some(entry) = self.jobs.get_mut(&key.job) else { return };
        let step = entry.steps.live.entry(key.step).or_default();
        if step.launch.is_none() {
            step.name.clone_from(&launch.name);
            (step.launch, step.memory_per_task_bytes) = (Some(launch), memory);
            (step.spawned, step.serves) = (spawned, request.serves);
            let bytes = step.launch_bytes();
            *self.users.step_bytes.entry(entry.owner.uid()).or_default() += bytes;
        }
        (step.tasks, step.front) = (tasks, Some(token));
        self.pending.steps_abandoned.remove(&key);
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get_mut(&token)
        {
            client.front_of_step = Some(key);
        }
        let waits = match self.core.step_parts(key).is_empty() {
            true => format!("for free processors of job {}", key.job),
            false => String::new(),
        };
        self.reply(token, &Reply::StepAccepted { key, waits });
    }

    fn on_decline_step(&mut self, refusal: StepRefusal) {
        let Some(Stepping { token, request, .. }) = &self.pending.stepping else { return };
        let (token, text) = (*token, refused(request, refusal));
        let answer = match (request.spec.beside, refusal) {
            (Some(_), StepRefusal::NoRank { .. }) => Problem::new(Code::NoPart, text).failed(),
            (Some(_), StepRefusal::TooMany { .. }) => {
                Problem::new(Code::TooMuchAsked, text).failed()
            }
            (Some(_), _) => Problem::new(Code::NotInThatState, text).failed(),
            (None, _) => Problem::new(Code::TooLarge, text).declined(),
        };
        self.reply(token, &answer);
    }

    /// The core has found room for a step.
    fn on_launch_step(&mut self, key: StepKey) {
        let nodes: Vec<NodeId> = self.core.step_parts(key).iter().map(|part| part.node).collect();
        let now = self.now();
        let Some(step) = self.step_mut(key) else { return };
        step.started = Some(now);
        step.started_on.clone_from(&nodes);
        step.untold = nodes.into_iter().collect();
        self.launch_untold(key);
        let is_asked_just_now =
            matches!(&self.pending.stepping, Some(it) if it.accepted == Some(key));
        if !is_asked_just_now {
            self.tell_step_front_where(key);
        }
    }

    /// Starts a step where that is still to be done, as soon as it is known what to run.
    fn launch_untold(&mut self, key: StepKey) {
        if self.step(key).is_none_or(|step| step.untold.is_empty()) {
            return;
        }
        let Some((launch, mut shares)) = self.make_step_launch(key) else { return };
        let Some(step) = self.step_mut(key) else { return };
        let untold = std::mem::take(&mut step.untold);
        shares.retain(|(node, _)| untold.contains(node));
        if !shares.is_empty() && !self.launch_step_on_nodes(&launch, shares) {
            if let Some(step) = self.step_mut(key) {
                // No node was told.
                step.untold = untold;
                let detail = "its launch takes more bytes than one message may have; use fewer \
                              nodes or a smaller environment";
                step.detail = Code::TooMuchAsked.mark(detail);
            }
            let (reason, at_once) = (EndReason::TaskFailed, true);
            self.decision.follow_ups.push_back(Event::CancelStep { key, reason, at_once });
        }
    }

    /// The launch of a step, and the share of each node.
    fn make_step_launch(&self, key: StepKey) -> Option<(Launch, Vec<(NodeId, Share)>)> {
        let entry = self.jobs.get(&key.job)?;
        let step = entry.steps.get(key.step)?;
        let parts = self.core.step_parts(key);
        let view = self.core.job(key.job, self.now()).filter(|_| !parts.is_empty())?;
        let own_memory = step.memory_per_task_bytes;
        let node = |part: &Part| JobNode {
            node: part.node,
            name: self.node_name(part.node),
            address: self
                .cluster
                .nodes
                .get(&part.node)
                .map_or_else(String::new, |n| n.address.clone()),
            tasks: part.launched(),
            slots: self.slots_on(key.job, part.node),
        };
        let number = entry.terms.first.number_after_script(key.step);
        let launch = Launch {
            job: key.job,
            number: self.core.launch_of(key.job).number,
            step: key.step,
            began: entry.times.started.unwrap_or_default(),
            control: self.core.control_of(key.job)?,
            own_ipc: false,
            credentials: entry.owner.credentials.clone(),
            size: step.tasks,
            share: Share::default(),
            nodes: parts.iter().map(node).collect(),
            class: view.spec.class.to_string(),
            resources: view.resources.to_vec(),
            quantum: self.core.params().quantum(),
            processors_per_task: each_of(parts),
            memory_per_task_bytes: own_memory.or(view.spec.memory_per_task_bytes),
            spec: with_slurm_step(step.launch.clone()?, number),
            beside: self.core.step_beside(key),
            spawned: step.spawned.clone(),
            joins: false,
            resumes: self.resumes(key.job),
            saves_image: false,
            shared_image: None,
            serves: step.serves,
            hub: self.hub_of(key.job),
        };
        let share = |(node_rank, part): (u32, &Part)| {
            let devices = self.devices_of(key.job, part.node);
            let closed = self.files_closed_to(key.job, part.node);
            let tasks = part.placements();
            (part.node, Share { tasks, node_rank, devices, closed, ..Share::default() })
        };
        Some((launch, (0..).zip(parts).map(share).collect()))
    }

    /// Starts a step on nodes, on each by the number of the launch that its job has there.
    fn launch_step_on_nodes(&mut self, launch: &Launch, shares: Vec<(NodeId, Share)>) -> bool {
        let mut by_number: BTreeMap<u32, Vec<(NodeId, Share)>> = BTreeMap::new();
        for (node, share) in shares {
            let number = self.core.launch_on(launch.job, node).number;
            by_number.entry(number).or_default().push((node, share));
        }
        by_number.into_iter().all(|(number, shares)| {
            let launch = Launch { number, ..launch.clone() };
            self.launch_on_nodes(launch, shares)
        })
    }

    fn slots_on(&self, job: JobId, node: NodeId) -> u32 {
        self.core.parts(job).iter().find(|part| part.node == node).map_or(0, |part| part.tasks)
    }

    fn tell_step_front_where(&mut self, key: StepKey) {
        let Some(step) = self.step(key) else { return };
        let Some(front) = step.front.filter(|_| !step.started_on.is_empty()) else { return };
        let attach = self.keepers_of(front, &step.started_on);
        self.reply(front, &Reply::Starting { job: key.job, attach });
    }

    fn step(&self, key: StepKey) -> Option<&StepEntry> {
        self.jobs.get(&key.job)?.steps.get(key.step)
    }

    fn step_mut(&mut self, key: StepKey) -> Option<&mut StepEntry> {
        self.jobs.get_mut(&key.job)?.steps.get_mut(key.step)
    }

    fn launch_of(&self, key: StepKey, node: NodeId) -> LaunchId {
        LaunchId { step: key.step, ..self.core.launch_on(key.job, node) }
    }

    /// A step is to end on a node. Where it was never started, it has.
    fn end_step_on(&mut self, key: StepKey, node: NodeId, at_once: bool) {
        let launch = self.launch_of(key, node);
        let is_untold = self.step_mut(key).is_some_and(|step| step.untold.remove(&node));
        match (is_untold, at_once) {
            (true, _) => {
                self.decision
                    .follow_ups
                    .push_back(Event::StepCleared { key, nodes: [node].into() });
            }
            (false, true) => self.tell_node(node, ToAgent::Kill { launch }),
            (false, false) => self.tell_node(node, ToAgent::Terminate { launch }),
        }
    }

    /// What a node reports of a step that has not ended.
    pub(super) fn on_step_report(&mut self, node: NodeId, report: FromAgent) {
        match report {
            FromAgent::TaskEnded { launch, rank, status, detail, .. } => {
                let key = launch.key();
                let Some(step) = self.step_mut(key) else { return };
                if step.statuses.insert(rank, status).is_some() {
                    return;
                }
                if !detail.is_empty() {
                    step.note_detail(&format!("rank {rank}: {detail}"));
                }
                self.apply(&Event::StepTasksEnded { key, ranks: [rank].into(), status });
                self.give_up_barriers(key);
            }
            FromAgent::Cleared { launch, usage } => {
                let key = launch.key();
                if let Some(entry) = self.jobs.get_mut(&key.job)
                    && let Some(step) = entry.steps.get_mut(key.step)
                    && step.cleared.insert(node)
                {
                    step.usage.add(&usage);
                    // The job's own count of these has the steps in it, where the kernel makes it.
                    let io = Usage { read_bytes: 0, written_bytes: 0, ..usage };
                    entry.usage.add(if usage.io_whole { &io } else { &usage });
                }
                self.apply(&Event::StepCleared { key, nodes: [node].into() });
            }
            _ => {}
        }
    }

    /// A node that has joined again does not have a step that was launched there.
    pub(super) fn reconcile_step(&mut self, node: NodeId, launch: LaunchId, same_keeper: bool) {
        let key = launch.key();
        let mut parts = self.core.step_parts(key).iter();
        let Some(part) = parts.find(|part| part.node == node && !part.cleared) else { return };
        let spoke = |step: &StepEntry| step.statuses.keys().any(|&rank| part.has(rank));
        let has_spoken = self.step(key).is_some_and(spoke);
        if same_keeper && !has_spoken && !self.core.is_in_doubt() && !self.core.is_step_killed(key)
        {
            // Its keeper never had it.
            if let Some(step) = self.step_mut(key) {
                step.untold.insert(node);
            }
            return self.launch_untold(key);
        }
        self.apply(&Event::StepCleared { key, nodes: [node].into() });
    }

    fn on_step_ended(&mut self, key: StepKey, outcome: Outcome) {
        self.pending.steps_abandoned.remove(&key);
        let Some(entry) = self.jobs.get_mut(&key.job) else { return };
        let owner = entry.owner.uid();
        let Some(step) = entry.steps.live.remove(&key.step) else { return };
        if let Some(bytes) = self.users.step_bytes.get_mut(&owner) {
            *bytes = bytes.saturating_sub(step.launch_bytes());
            if *bytes == 0 {
                self.users.step_bytes.remove(&owner);
            }
        }
        for &node in &step.started_on {
            let launch = self.launch_of(key, node);
            if let Some(entry) = self.cluster.nodes.get_mut(&node) {
                entry.launches.launched.remove(&launch);
                entry.launches.unconfirmed.remove(&launch);
            }
            self.tell_node(node, ToAgent::Forget { launch });
        }
        let reason = match outcome.reason {
            EndReason::NodeLost(node) => self.how_it_went(node),
            reason => reason.to_string(),
        };
        let now = self.now();
        let Some(entry) = self.jobs.get_mut(&key.job) else { return };
        let of_job = report::ended_job(key.job, entry, outcome, reason.clone(), now);
        let report = JobReport {
            name: step.name.clone(),
            code: code_of_end(outcome, step.statuses.values()),
            detail: step.detail.clone(),
            tasks: step.tasks,
            usage: Some(step.usage),
            cpu_ms: Some(cpu_ms(&step.usage)),
            ..of_job
        };
        entry.steps.note_ended(StepReport {
            step: key.step.0,
            name: step.name,
            tasks: step.tasks,
            state: "ended".into(),
            reason,
            exit_code: Some(outcome.exit_code),
            placement: Vec::new(),
            cpu_ms: cpu_ms(&step.usage),
            elapsed_ms: step.started.map(|started| now.since(started).0 / MS),
        });
        let Some(token) = step.front else { return };
        if let Some(Connection { kind: Kind::Client(client), .. }) =
            self.intake.connections.get_mut(&token)
        {
            client.front_of_step = None;
        }
        let (job, detail, report) = (key.job, step.detail, Box::new(report));
        self.reply(token, &Reply::Ended { job, outcome, detail, report });
    }

    /// The connection of a step's front end is gone: from another node, perhaps only the way broke.
    pub(super) fn on_step_front_gone(&mut self, key: StepKey, from: Option<NodeId>) {
        let front = self.step(key).and_then(|step| step.front);
        if front.is_some_and(|token| self.intake.connections.contains_key(&token)) {
            // It came back over another connection.
            return;
        }
        let Some(step) = self.step_mut(key) else { return };
        step.front = None;
        match from {
            Some(_) => {
                let until = self.now() + FRONT_MOMENT;
                self.pending.steps_abandoned.insert(key, Abandoned { until, node: from });
            }
            None => self.apply(&Event::StepFrontEndLost { key }),
        }
    }

    /// Front ends that have not come back will not.
    pub(super) fn give_up_steps(&mut self, now: ClusterTime) {
        let nodes = &self.cluster.nodes;
        let late = Abandoned::late(&mut self.pending.steps_abandoned, now, nodes);
        for key in late {
            self.pending.steps_abandoned.remove(&key);
            self.apply(&Event::StepFrontEndLost { key });
        }
    }

    /// What an earlier controller knew of steps. Their front ends are on their way.
    pub(super) fn remember_steps(&mut self) {
        // They may be on nodes that are out of reach.
        let now = self.now();
        let until = self.core.lost_at(now, now, now).max(now + FRONT_PATIENCE);
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            let steps = self.core.steps(job).map(|it| remembered(&it)).collect::<Vec<_>>();
            for (key, entry) in steps {
                for &node in &entry.started_on {
                    let launch = self.launch_of(key, node);
                    if let Some(node) = self.cluster.nodes.get_mut(&node) {
                        node.launches.launched.insert(launch);
                    }
                }
                self.pending.steps_abandoned.insert(key, Abandoned { until, node: None });
                if let Some(job) = self.jobs.get_mut(&key.job) {
                    job.steps.live.insert(key.step, entry);
                }
            }
        }
    }

    pub(super) fn on_cancel_step(&mut self, token: u64, uid: u32, key: StepKey, at_once: bool) {
        match self.owned(uid, key.job) {
            Ok(()) => {
                let reason = EndReason::Cancelled;
                self.apply(&Event::CancelStep { key, reason, at_once });
                self.reply(token, &Reply::Done);
            }
            Err(error) => self.fail(token, error),
        }
    }

    pub(super) fn on_signal_step(&mut self, token: u64, uid: u32, key: StepKey, signal: u8) {
        if !(1..=64).contains(&signal) {
            return self.fail(token, format!("{signal} is no signal; signals are 1 to 64"));
        }
        let allowed = self.owned(uid, key.job).map_err(Problem::from).and_then(|()| {
            let found = self.step(key).map(|step| step.started_on.clone());
            found.ok_or_else(|| Problem::new(Code::NoPart, Forbidden::NotBegun(key.job)))
        });
        match allowed {
            Ok(nodes) => {
                for node in nodes {
                    let (launch, ranks) = (self.launch_of(key, node), Vec::new());
                    self.tell_node(node, ToAgent::Signal { launch, ranks, signal });
                }
                self.reply(token, &Reply::Done);
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// Signals the steps of a job, or its batch script alone.
    pub(super) fn on_signal_steps(
        &mut self,
        token: u64,
        uid: u32,
        job: JobId,
        (signal, only_script): (u8, bool),
    ) {
        if !(1..=64).contains(&signal) {
            return self.fail(token, format!("{signal} is no signal; signals are 1 to 64"));
        }
        if let Err(error) = self.owned(uid, job) {
            return self.fail(token, error);
        }
        let jobs = self.live_elements(job).unwrap_or_else(|| vec![job]);
        for job in jobs {
            match only_script {
                true => self.signal_script_of(job, signal),
                false => self.signal_steps_of(job, signal),
            }
        }
        self.reply(token, &Reply::Done);
    }

    /// Signals the root processes of what a job began with: the shell of its script.
    fn signal_script_of(&mut self, job: JobId, signal: u8) {
        let is_batch = self.core.first_step(job) == FirstStep::Once;
        let parts = self.core.parts(job).iter().filter(|part| !part.cleared);
        let meant = parts.filter(|part| !is_batch || part.has(Rank(0)));
        let nodes: Vec<NodeId> = meant.map(|part| part.node).collect();
        for node in nodes {
            let launch = self.core.launch_on(job, node);
            self.tell_node(node, ToAgent::SignalRoots { launch, signal });
        }
    }

    /// Signals all tasks of a job but its batch script.
    fn signal_steps_of(&mut self, job: JobId, signal: u8) {
        if self.core.first_step(job) != FirstStep::Once {
            self.apply(&Event::Signal { job, ranks: Vec::new(), signal });
        }
        let steps = self.jobs.get(&job).into_iter().flat_map(|entry| &entry.steps.live);
        let started = steps.flat_map(|(&step, entry)| {
            let key = StepKey { job, step };
            let nodes = entry.started_on.iter().filter(|node| !entry.cleared.contains(node));
            nodes.map(move |&node| (key, node))
        });
        for (key, node) in started.collect::<Vec<_>>() {
            let (launch, ranks) = (self.launch_of(key, node), Vec::new());
            self.tell_node(node, ToAgent::Signal { launch, ranks, signal });
        }
    }

    /// The steps of a job for a reader.
    pub(super) fn steps_of(&self, job: JobId) -> Vec<StepReport> {
        let Some(entry) = self.jobs.get(&job) else { return Vec::new() };
        let now = self.now();
        let live = self.core.steps(job).filter_map(|view| {
            let step = entry.steps.get(view.key.step)?;
            let place = |part: &Part| format!("{}:{}", self.node_name(part.node), part.processors);
            Some(StepReport {
                step: view.key.step.0,
                name: step.name.clone(),
                tasks: view.spec.tasks,
                state: state_word(&view).into(),
                reason: String::new(),
                exit_code: None,
                placement: view.parts.iter().take(STEPS_SHOWN_MAX).map(place).collect(),
                cpu_ms: cpu_ms(&step.usage),
                elapsed_ms: step.started.map(|started| now.since(started).0 / MS),
            })
        });
        let mut steps: Vec<StepReport> = entry.steps.ended.iter().cloned().chain(live).collect();
        steps.sort_by_key(|step| step.step);
        steps.split_off(steps.len().saturating_sub(2 * STEPS_SHOWN_MAX))
    }
}

fn state_word(view: &StepView<'_>) -> &'static str {
    match (view.parts.is_empty(), view.is_ending) {
        (true, _) => "waiting",
        (false, true) => "ending",
        (false, false) => "running",
    }
}

const fn cpu_ms(usage: &Usage) -> u64 {
    (usage.user_us + usage.system_us) / 1000
}

/// What is known of a step of which only the core knows.
fn remembered(view: &StepView<'_>) -> (StepKey, StepEntry) {
    let nodes = view.parts.iter().filter(|part| !part.cleared).map(|part| part.node);
    let entry = StepEntry {
        tasks: view.spec.tasks,
        started_on: nodes.collect(),
        started: (!view.parts.is_empty()).then_some(view.since),
        ..StepEntry::default()
    };
    (view.key, entry)
}

/// What a step is to run, with its number for tasks that find Slurm's variables; `None`: it is a
/// batch script, which has none.
pub(super) fn with_slurm_step(mut launch: LaunchSpec, number: Option<u32>) -> LaunchSpec {
    if !launch.slurm {
        return launch;
    }
    let is_number =
        |it: &ByteBuf| it.starts_with(b"SLURM_STEP_ID=") || it.starts_with(b"SLURM_STEPID=");
    launch.environment.retain(|it| !is_number(it));
    let names = ["SLURM_STEP_ID", "SLURM_STEPID"];
    let all = number.into_iter().flat_map(|number| names.map(|name| format!("{name}={number}")));
    launch.environment.extend(all.map(|it| ByteBuf::from(it.into_bytes())));
    launch
}

/// The processors of each task of a step.
fn each_of(parts: &[Part]) -> u32 {
    let placements = parts.first().map(Part::placements).unwrap_or_default();
    placements.first().map_or(1, |task| task.processors.count())
}

/// What else a user can do if the job can't have a step. `srun` has no such option.
fn or_outside(request: &StepRequest) -> &'static str {
    if request.launch.slurm { "" } else { ", or start a job of its own with --outside" }
}

/// Why a job can't have a step, in words.
fn refused(request: &StepRequest, refusal: StepRefusal) -> String {
    let (job, spec) = (request.job, &request.spec);
    match refusal {
        StepRefusal::NoJob if spec.beside.is_some() => {
            format!("job {job} has not begun; `tutti ps --start {job}` shows when it may")
        }
        StepRefusal::NoJob => format!("job {job} has not begun"),
        StepRefusal::Ending => format!("job {job} is ending, and begins no step"),
        StepRefusal::Nothing => "a step needs at least one task with one processor".into(),
        StepRefusal::TooLarge { tasks, processors, nodes } => {
            let many = |count: u32, noun: &str| match count {
                1 => format!("1 {noun}"),
                count => format!("{count} {noun}s"),
            };
            let each = spec.processors_per_task;
            let each =
                each.map_or_else(String::new, |each| format!(" of {}", many(each, "processor")));
            let on =
                spec.nodes.map_or_else(String::new, |nodes| format!(" on {}", many(nodes, "node")));
            // Then they are on too many nodes, or on too few.
            let why = match spec.nodes {
                Some(asked) if spec.tasks <= tasks && spec.tasks < asked => {
                    "; each node needs a task"
                }
                Some(asked) if spec.tasks <= tasks && asked <= nodes => {
                    "; so few nodes have no room for so many tasks"
                }
                _ => "",
            };
            format!(
                "job {job} has {} on {}, room for {}{each}, and the step asks for {}{on}{why}; ask \
                 for less{}",
                many(processors, "processor"),
                many(nodes, "node"),
                many(tasks, "task"),
                spec.tasks,
                or_outside(request)
            )
        }
        StepRefusal::NotFree { slots } => {
            let free = match slots {
                0 => "no free slot".to_owned(),
                1 => "1 free slot".to_owned(),
                slots => format!("{slots} free slots"),
            };
            format!(
                "job {job} has {free}, and a spawn asks for {}; start the job with room for \
                 them (--max-tasks)",
                spec.tasks
            )
        }
        StepRefusal::TooMany { limit } => {
            format!("job {job} has {limit} steps that have not ended; wait until some have")
        }
        StepRefusal::NoRank { rank } => {
            format!(
                "job {job} has no rank {rank} on any of its nodes; `tutti show {job}` shows them"
            )
        }
        StepRefusal::Suspended => format!(
            "job {job} is suspended, and what is started in it would not run; `tutti ps {job}` shows \
             why, and `tutti resume {job}` resumes what a user has suspended"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steps_own_variables_take_the_place_of_its_jobs() {
        let all = |texts: &[&str]| -> Vec<ByteBuf> {
            texts.iter().map(|text| ByteBuf::from(text.as_bytes())).collect()
        };
        let of_job = all(&["A=1", "AB=2", "none", "B=3=4", "=5"]);
        let own = all(&["A=6", "none", "B=", "C=7"]);
        let expected = all(&["AB=2", "none", "=5", "A=6", "none", "B=", "C=7"]);
        assert_eq!(joined(of_job, own), expected);
    }

    #[test]
    fn very_many_variables_take_no_time() {
        let many = |sign: char| -> Vec<ByteBuf> {
            (0..300_000).map(|number| ByteBuf::from(format!("{sign}{number}="))).collect()
        };
        assert_eq!(joined(many('a'), many('b')).len(), 600_000);
        assert_eq!(joined(many('a'), many('a')).len(), 300_000);
    }
}
