//! A job as the keeper holds it, and the life of its tasks.
//!
//! ```text
//! Waiting --start--> Running (or Adopted) --root ended--> Ending --nothing left--> Ended
//!    \-- can't be started, or killed before -----^
//! ```
//!
//! A task has ended when its root was reaped *and* nothing else of it lives: its cgroup could be
//! removed, or its minder, which waits for all descendants, has exited. The kernel removes no group
//! with a process in it, so trying to is the test, and it is tried again after short naps:
//! `cgroup.events` tells of changes at most once in 10 ms.

mod force;
mod group;
mod handover;
mod life;
pub(super) mod limits;
mod sweep;

use super::adopt::{Adopted, Attaching};
use super::context::{Context, Room, chain};
use super::disk;
use super::emptied;
use super::environment;
use super::front::Readers;
use super::pmi::PmiJob;
use super::pmix::{self, Pmix};
use super::program::{Program, Refusal};
use super::saver;
use super::scratch;
use super::script;
use super::spawner::Spawners;
use super::starters;
use super::stdio::{InPipe, OutPipe};
use super::terminal::Terminal;
use super::watch::Token;
use super::writer::OutputFiles;
use force::{Force, Killer, Order};
use group::JobGroup;
use life::Life;
use nix::sys::signal::Signal;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sweep::Traces;
use tracing::warn;
use tutti_linux::pidfd::Held;
use tutti_linux::reap::End;
use tutti_linux::spawn::read_number;
use tutti_node::layout::{self, FIRST_STEP};
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::processes::{send_to_group, send_to_one};
use tutti_node::platform::time as clock;
use tutti_types::{Checkpoint, JobId, Rank, StepId, StepKey, TaskStatus};
use tutti_wire::attach::{Stream, TerminalSize};
use tutti_wire::code::Code;
use tutti_wire::keeper::{FromKeeper, HeldJob, StoppedPart};
use tutti_wire::launch::{Launch, NULL_DEVICE, Stdio, Usage, cut};
use tutti_wire::limits::TASK_DETAIL_BYTES_MAX;
use tutti_wire::saver::{
    DAMAGED, NOT_KEPT, NOT_RESTORED, NOT_SAVED, NOT_STARTED, SAVE_AND_END, SAVE_AND_GO_ON, SAVED,
    SAVED_GOES_ON,
};
use tutti_wire::units::format_bytes;

/// The first pause before a task's cgroup is tried again, and the longest.
const NAP_FIRST_NS: u64 = 50_000;
const NAP_LONGEST_NS: u64 = 5_000_000;

/// After so many pauses whatever is left hangs in the kernel; looking seldom does then.
const NAPS_BEFORE_PATIENCE: u32 = 1_000;
const NAP_PATIENT_NS: u64 = 200_000_000;

/// Files of shared memory.
type SharedFiles = BTreeSet<PathBuf>;

/// A job with tasks on this node.
pub(super) struct Job {
    pub(super) launch: Launch,
    pub(super) cgroup: JobGroup,
    /// What all tasks run, or why none can.
    pub(super) program: Result<Program, Refusal>,
    pub(super) tasks: Vec<Task>,
    pub(super) readers: Readers,
    pub(super) output_files: OutputFiles,
    pub(super) pmi: Option<PmiJob>,
    /// The process that serves Open MPI's tasks, if they are to find one.
    pub(super) pmix: Option<Pmix>,
    pub(super) life: Life,
    /// What the next agent must know of what this one has stopped.
    pub(super) stopped: Vec<StoppedPart>,
    force: Force,
    /// A question to the service manager about processes that are to be adopted.
    pub(super) attaching: Option<Attaching>,
    pub(super) traces: Traces,
    /// The size of the terminal of rank 0, if it is to have one.
    pub(super) terminal: Option<TerminalSize>,
    pub(super) spawners: Spawners,
}

/// A task of a job on this node.
pub(super) struct Task {
    pub(super) rank: Rank,
    pub(super) group: Option<Cgroup>,
    pub(super) phase: Phase,
    pub(super) output: Option<OutPipe>,
    pub(super) error: Option<OutPipe>,
    pub(super) input: Option<InPipe>,
    /// Files that its output goes to.
    pub(super) files: Vec<Vec<u8>>,
    /// The status with which it asked that the job end.
    pub(super) aborted: Option<(u8, String)>,
    /// What it used.
    pub(super) usage: Usage,
    /// Whether its end and all its output were put into the front end's outlet.
    pub(super) delivered: bool,
    /// Its terminal; its output and input are the other end. We keep it open: so reading goes on
    /// when all processes of the task have closed it and some open it again. It is behind the
    /// pipes here, and so is dropped after them.
    pub(super) terminal: Option<Terminal>,
    /// Ends its processes, where no group does.
    killer: Killer,
}

/// Where a task is in its life.
pub(super) enum Phase {
    Waiting,
    Running(Process),
    Adopted(Adopted),
    Ending { status: TaskStatus, detail: String, naps: u32 },
    Ended { status: TaskStatus, detail: String },
}

/// The process from which all others of a task descend.
pub(super) struct Process {
    /// The root, or its minder.
    pub(super) pid: i32,
    /// Tells whether the program was started.
    pub(super) report: OwnedFd,
    pub(super) minder: Option<Minder>,
}

/// What a minder has said: the root's number, then its wait status.
pub(super) struct Minder {
    pub(super) fd: OwnedFd,
    /// Set until the root has ended.
    pub(super) token: Option<Token>,
    pub(super) root: Option<i32>,
    status: Option<i32>,
    silent: bool,
    /// Signals that came before the root's number was known.
    early: Vec<i32>,
    /// What a saver has said instead of a wait status.
    told: Option<i32>,
    /// What a saver has said of processes that go on, which was not reported yet.
    goes_on: Option<i32>,
}

impl Minder {
    pub(super) const fn new(fd: OwnedFd, token: Option<Token>) -> Self {
        let (root, status, told) = (None, None, None);
        let (silent, goes_on) = (false, None);
        Self { fd, token, root, status, silent, early: Vec::new(), told, goes_on }
    }

    /// Whether the root has ended, as far as it was heard.
    const fn is_over(&self) -> bool {
        self.silent || self.status.is_some() || self.told.is_some()
    }

    /// Takes in what it said; whether there is nothing more to come.
    fn listen(&mut self) -> bool {
        while !self.is_over() {
            match read_number(self.fd.as_fd()) {
                Ok(Some(number @ (NOT_SAVED | NOT_KEPT | SAVED_GOES_ON))) => {
                    self.goes_on = Some(number)
                }
                Ok(Some(number @ (SAVED | NOT_RESTORED | NOT_STARTED | DAMAGED))) => {
                    self.told = Some(number);
                }
                Ok(Some(number)) if self.root.is_none() => self.root = Some(number),
                Ok(Some(number)) => self.status = Some(number),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Ok(None) | Err(_) => self.silent = true,
            }
        }
        true
    }
}

impl Task {
    pub(super) fn stream(&mut self, stream: Stream) -> &mut Option<OutPipe> {
        match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }
}

impl Job {
    /// Takes in a launch; starts nothing yet.
    pub(super) fn new(launch: Launch, cgroup_path: Option<ByteBuf>, context: &mut Context) -> Self {
        let scratch = Self::make_scratch(&launch, context);
        let ipc = Self::make_ipc(&launch, context);
        let mut job = Self::with((launch, cgroup_path), scratch.as_deref(), ipc, context);
        job.traces.pmix_scratch = match scratch {
            Some(_) => None,
            None => job.make_scratch_of_pmix(context),
        };
        job.traces.scratch = scratch;
        job
    }

    fn with(
        (launch, cgroup_path): (Launch, Option<ByteBuf>),
        scratch: Option<&Path>,
        ipc: Option<OwnedFd>,
        context: &Context,
    ) -> Self {
        let kept = saver::prepare(&launch, context);
        let scratch = kept.as_ref().ok().and_then(Option::as_deref).or(scratch);
        let mut program = Program::new(&launch, scratch, context);
        if let Err(refusal) = kept {
            program = Err(refusal);
        }
        let (cgroup, missing) = JobGroup::of(cgroup_path);
        if let Some(refusal) = missing {
            program = Err(refusal);
        }
        let tasks: Vec<Task> = launch.share.tasks.iter().map(|task| Task::new(task.rank)).collect();
        Self {
            readers: Readers::of(tasks.len()),
            launch,
            cgroup,
            program,
            tasks,
            output_files: OutputFiles::default(),
            pmi: None,
            pmix: None,
            life: Life::default(),
            stopped: Vec::new(),
            force: Force::default(),
            attaching: None,
            traces: Traces::new(ipc),
            terminal: None,
            spawners: Spawners::default(),
        }
    }

    /// A further step of a job that is here: it has that job's directory for temporary files, and
    /// its IPC. From now on all of the job together is held to its allocated memory.
    pub(super) fn further(
        launch: Launch,
        cgroup_path: Option<ByteBuf>,
        first: &Self,
        context: &mut Context,
    ) -> Self {
        let of_first = &first.traces;
        let ipc = of_first.ipc.as_ref().and_then(|ipc| ipc.try_clone().ok());
        let scratch = of_first.scratch.as_deref();
        let mut step = Self::with((launch, cgroup_path), scratch, ipc, context);
        if let (Some(rank), Ok(program)) = (step.launch.beside, &mut step.program) {
            let of_job = (&first.launch, rank);
            let places = [scratch, Some(&*context.launching.spool)];
            program.environment = environment::of_beside(&step.launch, of_job, places);
        }
        step.traces.pmix_scratch = step.make_scratch_of_pmix(context);
        if let Some(group) = first.cgroup.get() {
            limits::set_of_job(group, &first.launch);
        }
        step
    }

    /// Names it among all that are here.
    pub(super) fn key(&self) -> StepKey {
        self.launch.id().key()
    }

    /// A variable that says where temporary files go has a reason, unless it was another job.
    fn make_scratch(launch: &Launch, context: &mut Context) -> Option<PathBuf> {
        let is_wanted = launch.spec.adopt.is_empty()
            && !launch.saves_image
            && environment::value_of(launch, "TMPDIR").is_none_or(scratch::is_a_jobs);
        let owner = (context.launching.uid == 0).then_some(&launch.credentials);
        is_wanted.then(|| context.launching.scratches.make(launch.job, owner)).flatten()
    }

    /// A directory for the files of its PMIx server alone: no task finds it as `TMPDIR`.
    fn make_scratch_of_pmix(&self, context: &mut Context) -> Option<PathBuf> {
        let owner = (context.launching.uid == 0).then_some(&self.launch.credentials);
        let is_wanted = pmix::is_wanted(&self.launch);
        is_wanted.then(|| context.launching.scratches.make(self.launch.job, owner)).flatten()
    }

    /// Only root may make one; without, it has that of the node.
    fn make_ipc(launch: &Launch, context: &mut Context) -> Option<OwnedFd> {
        let is_wanted =
            launch.own_ipc && context.launching.uid == 0 && launch.spec.adopt.is_empty();
        let made = is_wanted.then(|| context.launching.namespaces.take())?;
        let say = |error: &tutti_linux::Error| {
            warn!(code = %Code::GoesWithout, "job {} has the IPC of the node: {}", launch.job, chain(error));
        };
        made.inspect_err(say).ok()
    }

    /// Makes the group that a task is to be born into, if the job has one; held to the task's own processors, if
    /// `is_held`. The file in cgroup v1 that the task must join for its memory to be counted, if that takes one.
    pub(super) fn make_group(
        &mut self,
        index: usize,
        is_held: bool,
        room: Room,
    ) -> Result<Option<PathBuf>, Refusal> {
        let Some(cgroup) = self.cgroup.get() else { return Ok(None) };
        let counts_already = self.launch.memory_per_task_bytes.is_some()
            || self.is_adopted()
            || (self.tasks.len() == 1 && cgroup.memory_peak().is_some());
        let task = &mut self.tasks[index];
        let group = cgroup
            .create_child(&match self.launch.step {
                StepId::FIRST => format!("{FIRST_STEP}/{}", layout::group_of_task(task.rank)),
                // Its group is that of the step.
                _ => layout::group_of_task(task.rank),
            })
            .map_err(|error| Refusal::new(format!("no cgroup for a task: {}", chain(&error))))?;
        room.check(&group.fd()).map_err(|error| {
            Refusal::new(format!("no room for the cgroup of another task: {error}"))
        })?;
        limits::set(&group, &self.launch);
        if is_held {
            limits::hold(&group, &self.launch, index);
        }
        let counter = if counts_already { None } else { group.count_memory() };
        task.group = Some(group);
        Ok(counter)
    }

    /// Whether its output goes to a front end: that of its user, or a writer.
    pub(super) fn has_front_end(&self) -> bool {
        matches!(self.launch.spec.stdio, Stdio::FrontEnd { .. }) || self.launch.written().any()
    }

    /// Whether a later launch of the job takes its place: the agent has taken note of its end, and all that is
    /// left of it is output that no front end will fetch.
    pub(super) const fn is_superseded_by(&self, number: u32) -> bool {
        self.life.is_cleared() && self.life.is_forgotten() && self.launch.number < number
    }

    /// Whether its processes go on as external load, if jobs up to this number do.
    pub(super) fn is_released(&self, until: JobId) -> bool {
        self.launch.job <= until
    }

    /// Whether nothing of it needs to be kept.
    pub(super) fn is_over(&self) -> bool {
        let is_known = self.life.is_cleared() && self.life.is_forgotten();
        is_known && self.readers.are_served() && self.spawners.is_empty()
    }

    pub(super) fn held(&self, context: &Context) -> HeldJob {
        let mut held = HeldJob {
            launch: self.launch.id(),
            cgroup: self.cgroup.path.clone(),
            control: self.launch.control,
            roots: Vec::new(),
            adopted: Vec::new(),
            ended: Vec::new(),
            stopped: self.stopped.clone(),
            vacate: self.launch.spec.vacate,
            has_image: self.has_image(context),
            serves: self.launch.serves,
            cleared: self.life.cleared(),
        };
        for task in &self.tasks {
            match &task.phase {
                Phase::Running(process) => held.roots.push((task.rank, process.pid)),
                Phase::Adopted(_) => {
                    let adopted = self.launch.spec.adopt.iter();
                    held.adopted = adopted.map(|it| (it.pid, it.start_time)).collect();
                    held.roots.extend(held.adopted.first().map(|&(root, _)| (task.rank, root)));
                }
                Phase::Ended { status, detail } => {
                    held.ended.push((task.rank, *status, detail.clone(), task.usage));
                }
                Phase::Waiting | Phase::Ending { .. } => {}
            }
        }
        held
    }

    /// Sends a signal to the process groups of tasks' roots.
    pub(super) fn signal(&mut self, ranks: Vec<Rank>, number: u8, context: &mut Context) {
        let order = Order::Signal(ranks, number);
        match ends_by_default(i32::from(number)) {
            true => self.after_a_look(order, context),
            false => self.in_turn(order, context),
        }
    }

    /// Sends a signal to the root processes of tasks alone: what they have started gets none. A
    /// task that has no process yet gets none either.
    pub(super) fn signal_roots(&mut self, number: u8) {
        let signal = i32::from(number);
        match number {
            Checkpoint::IMAGE => return self.ask_savers(SAVE_AND_END),
            Checkpoint::IMAGE_AND_GO_ON => return self.ask_savers(SAVE_AND_GO_ON),
            _ => {}
        }
        for task in &mut self.tasks {
            let Phase::Running(process) = &mut task.phase else { continue };
            let Some(minder) = &mut process.minder else {
                // Not reaped yet, or we would not be here: the number is still its own.
                send_to_one(process.pid, signal);
                continue;
            };
            let held = minder.root.map(Held::whoever_is);
            // The minder reaps it after it has said so: what was held before belongs to the root.
            if let Some(Ok(held)) = held.filter(|_| !minder.listen()) {
                held.signal(signal);
            }
        }
    }

    /// Looks after what threads do for this job.
    pub(super) fn look_beside(&mut self, context: &mut Context) {
        self.watch_look(context);
        self.watch_attaching(context);
        self.watch_sweep(context);
    }

    /// A task that never had a process has ended.
    pub(super) fn end_unstarted(
        &mut self,
        index: usize,
        status: TaskStatus,
        detail: String,
        context: &mut Context,
    ) {
        self.tasks[index].phase = Phase::Ending { status, detail, naps: 0 };
        self.try_to_clear(index, context);
    }

    /// The process from which all others of a task descend was reaped.
    pub(super) fn on_reaped(
        &mut self,
        index: usize,
        mut end: End,
        usage: &Usage,
        context: &mut Context,
    ) {
        let task = &mut self.tasks[index];
        task.usage.add(usage);
        let Phase::Running(process) = &mut task.phase else { return };
        let (mut told, mut had_root) = (None, false);
        if let Some(minder) = &mut process.minder {
            minder.listen();
            (told, had_root) = (minder.told, minder.root.is_some());
            if let Some(token) = minder.token.take() {
                context.watches.remove(&minder.fd, token);
            }
            let of_root = minder.status.zip(minder.root);
            match of_root.and_then(|(raw, _)| End::of(raw)) {
                Some(of_root) => end = of_root,
                // The kernel ends all that is in its namespace.
                _ if self.launch.saves_image => {}
                // Killed itself; the root, which it minded, is ours now and must not stay.
                _ => {
                    let root = minder.root;
                    task.kill_orphan(root, self.launch.credentials.uid);
                }
            }
        }
        let (status, detail) = match told {
            Some(told) => self.judge_saver(told, context),
            None => {
                let end = self.judge(index, end);
                self.or_not_restored(had_root, end)
            }
        };
        self.tasks[index].phase = Phase::Ending { status, detail, naps: 0 };
        if let Some(input) = self.tasks[index].input.take() {
            input.close(&mut context.watches);
        }
        self.try_to_clear(index, context);
    }

    /// What an end means.
    fn judge(&self, index: usize, end: End) -> (TaskStatus, String) {
        let task = &self.tasks[index];
        if let Phase::Running(process) = &task.phase
            && let Some(failure) = self.start_failure(index, &process.report)
        {
            return failure;
        }
        if let Some((code, message)) = &task.aborted {
            return (TaskStatus::Aborted(*code), message.clone());
        }
        let status = match task_status(end) {
            TaskStatus::Exited(code) if self.is_unfinalized(index) => TaskStatus::Unfinalized(code),
            status => status,
        };
        let group = task.group.as_ref();
        if !self.life.is_killed()
            && let Some(limit) = self.launch.memory_per_task_bytes
            && group.is_some_and(|group| group.oom_kills() > 0)
        {
            let limit = format_bytes(limit);
            let detail = format!("more memory was used than the {limit} that --memory gives");
            // A task that was not killed itself may have lost a child, and reported it by its status, or not.
            return match status {
                TaskStatus::Exited(0) | TaskStatus::Unfinalized(0) => {
                    (status, format!("a process was killed: {detail}"))
                }
                _ => (TaskStatus::OutOfMemory, detail),
            };
        }
        let failure = self.output_files.failure().filter(|_| status != TaskStatus::Exited(0));
        let mut detail = failure.map_or_else(|| self.full_disk(index), str::to_owned);
        if detail.is_empty() && status != TaskStatus::Exited(0) {
            detail = self.lowered_limits();
        }
        if detail.is_empty() && died_of_a_closed_pipe(status) && self.has_finalized(index) {
            detail = SHUT_PMI.into();
        }
        (status, detail)
    }

    /// The nice value of its tasks. Only root's own jobs may be ahead of others.
    pub(super) fn nice(&self) -> i32 {
        let least = if self.launch.credentials.uid == 0 { -20 } else { 0 };
        self.launch.spec.nice.clamp(least, 19)
    }

    /// Says which limits are lower than its user wanted, since this instance can give no more.
    fn lowered_limits(&self) -> String {
        let Ok(program) = &self.program else { return String::new() };
        let is_lowered = |&&(resource, soft, _): &&(u32, u64, u64)| {
            let given = program.rlimits.iter().find(|it| u32::try_from(it.0) == Ok(resource));
            given.is_some_and(|given| given.1 < soft)
        };
        let lowered = self.launch.spec.rlimits.iter().filter(is_lowered);
        let names: Vec<&str> = lowered.filter_map(|it| limits::resource_name(it.0)).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!(
                "its limits were lower than yours ({}): the instance was started from a shell with these; \
                 `tutti down`, then start it from a shell with higher ones",
                names.join(", ")
            ),
        }
    }

    /// Says so if a file that the task wrote to lies where no byte is left.
    fn full_disk(&self, index: usize) -> String {
        let files = self.tasks[index].files.iter().filter(|path| **path != NULL_DEVICE);
        let paths: Vec<_> = files.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        if paths.is_empty() {
            return String::new();
        }
        match disk::first_full(paths) {
            Some(path) => {
                let path = path.display();
                format!("the file system of '{path}' is full: output may be cut")
            }
            None => String::new(),
        }
    }

    /// A minder has said something: the root's number, or how the root ended.
    pub(super) fn on_minder(&mut self, index: usize, context: &mut Context) {
        let Phase::Running(process) = &mut self.tasks[index].phase else { return };
        let Some(minder) = &mut process.minder else { return };
        let known_before = minder.root.is_some();
        let is_over = minder.listen();
        if is_over && let Some(token) = minder.token.take() {
            context.watches.remove(&minder.fd, token);
        }
        // Whatever the root left behind ends with it; the minder exits when all are reaped. And
        // what was to be killed before the minder had made it is there now.
        if let Some(said) = minder.goes_on.take() {
            self.report_goes_on(said, context);
        }
        let Phase::Running(process) = &mut self.tasks[index].phase else { return };
        let Some(minder) = &mut process.minder else { return };
        if self.launch.saves_image && (is_over || self.life.is_killed()) {
            // It ends, and all that is left with it.
        } else if is_over || (self.life.is_killed() && !known_before) {
            let task = &self.tasks[index];
            if let Phase::Running(process) = &task.phase {
                task.kill_below(process, self.launch.credentials.uid);
            }
        } else if !known_before {
            for signal in std::mem::take(&mut minder.early) {
                signal_root(process, signal);
            }
        }
    }

    /// The time has come to look at a task that was killed, or of which something was left.
    pub(super) fn look_again(&mut self, index: usize, context: &mut Context) {
        match &self.tasks[index].phase {
            Phase::Running(_) | Phase::Adopted(_) => say_what_hangs(&self.tasks[index]),
            _ => self.try_to_clear(index, context),
        }
    }

    /// Looks whether anything is left of a task whose root has ended; ends that if so.
    pub(super) fn try_to_clear(&mut self, index: usize, context: &mut Context) {
        let (is_only, is_whole) = (self.tasks.len() == 1, !self.is_adopted());
        let task = &mut self.tasks[index];
        let Phase::Ending { detail, naps, .. } = &mut task.phase else { return };
        if let Some(group) = &task.group {
            let of_job = self.cgroup.get().filter(|_| is_only);
            measure([Some(group), of_job], is_whole, &mut task.usage);
            limits::note_reached(group, &self.launch, detail);
        }
        let is_limited = limits::is_limited(&self.launch);
        let cleared = match &task.group {
            None => Ok(!task.killer.is_at_work()),
            Some(group) => match group.is_populated() {
                Ok(false) => Ok(true),
                // It may be gone.
                Ok(true) | Err(_) => emptied::remove(group, is_limited),
            },
        };
        match cleared {
            Ok(false) => {
                // Again and again: a process that was moved out of the group may be brought back after a kill.
                if let Some(group) = &task.group
                    && !task.killer.is_at_work()
                {
                    task.killer.kill_group(self.launch.credentials.uid, group);
                }
                *naps = naps.saturating_add(1);
                let at_ns = clock::monotonic_ns() + nap_ns(*naps);
                if *naps == NAPS_BEFORE_PATIENCE {
                    say_what_hangs(task);
                }
                context.endings.insert((self.key(), index), at_ns);
                return;
            }
            Ok(true) => {}
            // Waiting would not help; the group goes with the instance's subtree.
            Err(error) => warn!("{}", chain(&error)),
        }
        if self.is_waiting_for_an_abort(index) {
            self.let_group_go(index, context);
            context.endings.insert((self.key(), index), clock::monotonic_ns() + NAP_FIRST_NS);
            return;
        }
        self.end_task(index, context);
    }

    /// Nothing is left in the group of a task.
    fn let_group_go(&mut self, index: usize, context: &mut Context) {
        if let Some(group) = self.tasks[index].group.take() {
            context.emptied.push(&self.launch, group);
        }
    }

    /// The end of the task that aborted the job is told first: it is what ended the others, and
    /// whose status counts.
    fn is_waiting_for_an_abort(&self, index: usize) -> bool {
        let pending = |task: &Task| task.aborted.is_some() && !task.has_ended();
        self.tasks[index].aborted.is_none() && self.tasks.iter().any(pending)
    }

    /// Counts what a helper has used.
    pub(super) fn count_helper(&mut self, usage: &Usage) {
        self.life.add_helper(usage);
    }

    fn end_task(&mut self, index: usize, context: &mut Context) {
        self.let_group_go(index, context);
        let task = &mut self.tasks[index];
        let Phase::Ending { status, detail, .. } = &mut task.phase else { return };
        let (status, detail) = (*status, cut(std::mem::take(detail), TASK_DETAIL_BYTES_MAX));
        self.life.add(&task.usage);
        let usage = task.usage;
        task.phase = Phase::Ended { status, detail: detail.clone() };
        context.reports.push(FromKeeper::TaskEnded {
            launch: self.launch.id(),
            rank: task.rank,
            status,
            detail,
            usage,
        });
        self.end_pmi(index, context);
        self.deliver_end(index, context);
        self.clear_if_ended(context);
    }

    /// As [`Job::end_task`] does after the last one.
    pub(super) fn clear_if_empty(&mut self, context: &mut Context) {
        if self.tasks.is_empty() {
            self.clear_if_ended(context);
        }
    }

    /// When all tasks have ended, and all that they wrote is in their files. A part that is held
    /// ends only when it is killed, which is its release.
    pub(super) fn clear_if_ended(&mut self, context: &mut Context) {
        let may_end = self.life.is_killed() || self.launch.share.held.is_none();
        if may_end
            && !self.life.is_cleared()
            && self.tasks.iter().all(Task::has_ended)
            && self.output_files.are_written()
            && self.end_pmix_server(context)
        {
            self.clear(context);
        }
    }

    /// All tasks have ended and nothing is left of them. Output that the front end has not read yet
    /// is still delivered, but what the job held is free for others.
    fn clear(&mut self, context: &mut Context) {
        if let Some(counts) = self.cgroup.get().and_then(Cgroup::io_bytes) {
            let is_whole = !self.is_adopted();
            self.life.count_io(counts, is_whole);
        }
        if !context.agent_connected
            && let Some(Err(error)) = self.cgroup.get().map(Cgroup::remove)
        {
            warn!("{}", chain(&error));
        }
        self.cgroup.close();
        self.note_silent_end(context);
        self.hurry_spawners();
        if self.launch.share.tasks.len() == self.launch.size as usize {
            // Other nodes would lack what was stored here, if the answer to a barrier was lost on its way to them.
            self.drop_pmi(context);
        }
        context.launching.namespace_wanted |= self.traces.drop_ipc();
        if self.launch.step == StepId::FIRST {
            context.mpi.names.forget(self.launch.job);
        }
        if self.launch.spec.script.is_some() || starters::is_wanted(&self.launch) {
            script::remove(&script::directory(&context.launching.spool, self.launch.job));
        }
        self.begin_sweep(context);
    }

    /// Nothing of it is left.
    fn report_cleared(&mut self, context: &mut Context) {
        let (launch, usage) = (self.launch.id(), self.life.clear());
        context.reports.push(FromKeeper::Cleared { launch, usage });
        context.touched.insert(launch.key());
    }
}

/// What may have ended a task after its first MPI program. MPICH shuts the socket itself down, so that every
/// process that holds it loses it.
const SHUT_PMI: &str = "SIGPIPE, perhaps since an earlier MPI program of this task had shut down its PMI connection, as \
                        MPICH before 5 does at its end; start each MPI program by a `tutti run` of its own";

/// Whether a task, or the last command of a shell, ended by SIGPIPE.
fn died_of_a_closed_pipe(status: TaskStatus) -> bool {
    const PIPE: u8 = Signal::SIGPIPE as u8;
    const OF_SHELL: u8 = 128 + PIPE;
    matches!(status, TaskStatus::Signaled(PIPE) | TaskStatus::Exited(OF_SHELL))
}

impl Task {
    fn new(rank: Rank) -> Self {
        Self {
            rank,
            group: None,
            phase: Phase::Waiting,
            output: None,
            error: None,
            input: None,
            files: Vec::new(),
            aborted: None,
            usage: Usage::default(),
            delivered: false,
            terminal: None,
            killer: Killer::default(),
        }
    }
}

/// What the kernel has counted for a task in its group, or in the group of its job where it is the only one there:
/// also what was never waited for. To be read while the groups exist. `is_whole`: the processes began in them.
fn measure(groups: [Option<&Cgroup>; 2], is_whole: bool, usage: &mut Usage) {
    fn first<T>(groups: [Option<&Cgroup>; 2], read: impl Fn(&Cgroup) -> Option<T>) -> Option<T> {
        groups.into_iter().flatten().find_map(read)
    }
    if let Some(cpu) = first(groups, |group| group.cpu_usage().ok()) {
        (usage.user_us, usage.system_us, usage.cpu_whole) = (cpu.user_us, cpu.system_us, true);
    }
    if let Some(peak) = first(groups, Cgroup::memory_peak) {
        usage.memory_peak_bytes = peak.max(if is_whole { 0 } else { usage.memory_peak_bytes });
        usage.memory_whole = is_whole;
    }
    if let Some((read, written)) = first(groups, Cgroup::io_bytes) {
        (usage.read_bytes, usage.written_bytes, usage.io_whole) = (read, written, is_whole);
    }
}

pub(super) fn nap_ns(naps: u32) -> u64 {
    if naps > NAPS_BEFORE_PATIENCE {
        NAP_PATIENT_NS
    } else {
        (NAP_FIRST_NS << naps.saturating_sub(1).min(16)).min(NAP_LONGEST_NS)
    }
}

/// How many processes the log names that do not end.
const STUCK_NAMED_MAX: usize = 16;

fn say_what_hangs(task: &Task) {
    let within = task.group.as_ref().and_then(|group| group.processes().ok());
    let left = within.unwrap_or_else(|| match &task.phase {
        Phase::Running(process) => vec![process.pid],
        Phase::Adopted(adopted) => adopted.pids(),
        _ => Vec::new(),
    });
    let named = &left[..left.len().min(STUCK_NAMED_MAX)];
    let more = match left.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    warn!(code = %Code::ProcessStuck, "task {} was killed and processes {named:?}{more} do not end", task.rank);
}

pub(super) const fn task_status(end: End) -> TaskStatus {
    match end {
        End::Exited(code) => TaskStatus::Exited(code),
        End::Signaled(signal) => TaskStatus::Signaled(signal),
    }
}

/// Sends a signal to one task.
fn send_order(job: &mut Job, index: usize, number: u8, context: &mut Context) {
    let signal = i32::from(number);
    let is_attaching = job.is_attaching(index);
    match &mut job.tasks[index].phase {
        Phase::Running(process) => signal_root(process, signal),
        Phase::Adopted(adopted) => adopted.signal(signal),
        // Nothing else ends one whose processes the service manager is about to move.
        Phase::Waiting if ends_by_default(signal) && !is_attaching => {
            job.end_unstarted(index, TaskStatus::Signaled(number), String::new(), context);
        }
        _ => {}
    }
}

/// To the group that the root leads; before it leads one, to the root itself.
fn signal_root(process: &mut Process, signal: i32) {
    let root = match &mut process.minder {
        None => process.pid,
        Some(minder) => {
            let Some(root) = minder.root else {
                // The minder is still about to make it, or to say so.
                minder.early.push(signal);
                return;
            };
            let held = Held::whoever_is(root);
            // The minder reaps it after it has said so: what was held before belongs to the root.
            if minder.listen() {
                return;
            }
            return match held {
                Ok(held) => held.signal_group(signal),
                Err(error) if error.is_gone() => {}
                // An old kernel.
                Err(_) => send_to_group(root, signal),
            };
        }
    };
    // Not reaped yet, or we would not be here: the number is still its own.
    send_to_group(root, signal);
}

/// Whether a program that does nothing about the signal ends of it.
fn ends_by_default(signal: i32) -> bool {
    !matches!(
        Signal::try_from(signal),
        Ok(Signal::SIGCHLD
            | Signal::SIGCONT
            | Signal::SIGSTOP
            | Signal::SIGTSTP
            | Signal::SIGTTIN
            | Signal::SIGTTOU
            | Signal::SIGURG
            | Signal::SIGWINCH)
    )
}
