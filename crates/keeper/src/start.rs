//! Starting tasks: from a launch to processes, and from what failed on the way to words.

use super::context::Context;
use super::environment::{self, PMI_FD};
use super::job::limits::{have_own_processors, is_limited};
use super::job::{Job, Minder, Phase, Process};
use super::pmi;
use super::program::{Program, Refusal, without_zero_byte};
use super::saver;
use super::stdio::{InPipe, OutPipe, input_pipe, output_pipe};
use super::watch::Watch;
use nix::errno::Errno;
use nix::libc;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tracing::warn;
use tutti_linux::spawn::{Child, Report, Spawn, StdioFd, Step, Unwanted, read_report};
use tutti_node::layout::FIRST_STEP;
use tutti_node::link::Interest;
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::{processes, ways};
use tutti_types::{StepId, TaskStatus};
use tutti_wire::attach::Stream;
use tutti_wire::code::Code;
use tutti_wire::keeper::FromKeeper;
use tutti_wire::launch::{InputTo, OpenMode, Stdio};
use tutti_wire::pattern::{self, PatternValues};

/// Permissions of output files, before the user's mask.
const FILE_MODE: u32 = 0o666;

/// The task's side of one of its standard streams.
pub(super) enum Source {
    Null,
    Pipe(OwnedFd),
    File { path: CString, flags: i32 },
    Stdout,
}

impl Source {
    /// No stream at all.
    pub(super) const NONE: [Self; 3] = [Self::Null, Self::Null, Self::Null];

    pub(super) fn for_child(&self) -> StdioFd<'_> {
        match self {
            Self::Null => StdioFd::Null,
            Self::Pipe(theirs) => StdioFd::Fd(theirs.as_fd()),
            Self::File { path, flags } => {
                StdioFd::Open { path: path.clone(), flags: *flags, mode: FILE_MODE }
            }
            Self::Stdout => StdioFd::Stdout,
        }
    }
}

/// A task for which only the process is missing.
struct Ready {
    index: usize,
    streams: [Source; 3],
    /// Its connection with the PMI server, open until it has it.
    _pmi: Option<ways::Stream>,
    pass: Option<[(RawFd, RawFd); 1]>,
    companions: Vec<CString>,
    environment: Vec<CString>,
    processors: Vec<u32>,
    complaint: Option<CString>,
}

impl Job {
    /// Starts all tasks, once; those that can't be started end at once with the reason.
    pub(super) fn start(&mut self, context: &mut Context) {
        if !self.life.has_started() && self.awaits_pmix() {
            return;
        }
        if !self.life.start() {
            return;
        }
        self.clear_if_empty(context);
        let is_first = self.launch.step == StepId::FIRST && !self.tasks.is_empty();
        if let Some(group) = self.cgroup.get().filter(|_| is_first) {
            // Where it can't be made, no group of a task can be, which is told then.
            let _ = group.create_child(FIRST_STEP);
        }
        self.start_tasks(context);
    }

    /// Each as soon as it is ready: it begins on another processor while the next is made ready
    /// here.
    fn start_tasks(&mut self, context: &mut Context) {
        let unwanted = processes::unwanted();
        // Without limits or processors of its own, a task's group has no companion but the job's
        // and one that counts its memory.
        let own_processors =
            self.cgroup.get().is_some_and(|group| have_own_processors(&self.launch, group));
        let is_alike = !is_limited(&self.launch) && !own_processors;
        let of_all = self.cgroup.get().filter(|_| is_alike).map(companions_of);
        for index in 0..self.tasks.len() {
            if !matches!(self.tasks[index].phase, Phase::Waiting) {
                continue;
            }
            let counter = match self.make_group(index, own_processors, context.launching.room) {
                Ok(counter) => counter,
                Err(refusal) => {
                    self.refuse(index, refusal, context);
                    continue;
                }
            };
            if self.is_adopted() {
                self.adopt(index, context);
                continue;
            }
            let companions = of_all.as_ref().map(|of_all| with_counter(of_all, counter));
            match self.start_task(index, companions, &unwanted, context) {
                Ok(child) => self.on_forked(index, child, context),
                Err(refusal) => self.refuse(index, refusal, context),
            }
        }
    }

    fn start_task(
        &mut self,
        index: usize,
        companions: Option<Vec<CString>>,
        unwanted: &Unwanted,
        context: &mut Context,
    ) -> Result<Child, Refusal> {
        let task = self.make_ready(index, companions, context)?;
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let spawn = self.spawn_of(&task, program);
        if self.launch.saves_image {
            return saver::spawn(&self.launch, &spawn, unwanted, context);
        }
        let child = context.launching.nursery.spawn(&spawn, unwanted);
        child.map_err(|error| Refusal::io("cannot make a process", &error))
    }

    pub(super) fn refuse(&mut self, index: usize, refusal: Refusal, context: &mut Context) {
        let end = (refusal.status, refusal.detail);
        let (status, detail) = self.or_not_restored(false, end);
        self.end_unstarted(index, status, detail, context);
    }

    /// All that can be done for a task before its process is made, given the companions of its
    /// group if they are known.
    fn make_ready(
        &mut self,
        index: usize,
        companions: Option<Vec<CString>>,
        context: &mut Context,
    ) -> Result<Ready, Refusal> {
        let streams = self.streams(index, context)?;
        let mut pmi = None;
        if !self.launch.saves_image {
            let connected = pmi::connect(self, index, context)
                .map_err(|error| Refusal::io("cannot connect a PMI server", &error))?;
            pmi = Some(connected);
        }
        let pmi_fd = pmi.as_ref().map(|_| PMI_FD);
        let mut environment = environment::of_task(&self.launch, index, pmi_fd);
        environment.extend(self.pmix_environment(index));
        Ok(Ready {
            index,
            streams,
            pass: pmi.as_ref().map(|pmi| [(pmi.as_raw_fd(), PMI_FD)]),
            _pmi: pmi,
            companions: match (&self.tasks[index].group, companions) {
                (None, _) => Vec::new(),
                (Some(_), Some(known)) => known,
                (Some(group), None) => companions_of(group),
            },
            environment,
            // A server has all that its group has.
            processors: match self.launch.serves {
                true => Vec::new(),
                false => self.launch.share.tasks[index].processors.iter().collect(),
            },
            complaint: self.complaint(index),
        })
    }

    fn spawn_of<'a>(&'a self, task: &'a Ready, program: &'a Program) -> Spawn<'a> {
        let group = self.tasks[task.index].group.as_ref();
        let command = program.command_of(self.tasks[task.index].rank);
        Spawn {
            argv: &command.argv,
            env: [&program.environment, &task.environment],
            program: &command.candidates,
            cwd: &command.directory,
            umask: self.launch.spec.umask & 0o777,
            nice: Some(self.nice()),
            rlimits: &program.rlimits,
            identity: program.identity.clone(),
            cgroup: group.map(Cgroup::fd),
            companions: &task.companions,
            limits_memory: self.launch.memory_per_task_bytes.is_some(),
            ipc: self.traces.ipc(),
            processors: (!task.processors.is_empty()).then_some(&task.processors),
            held_by_group: self.launch.share.is_bound,
            stdio: [&task.streams[0], &task.streams[1], &task.streams[2]].map(Source::for_child),
            pass: task.pass.as_ref().map_or(&[], |pass| pass),
            new_session: true,
            terminal: self.tasks[task.index].terminal.is_some(),
            minder: group.is_none(),
            complaint: task.complaint.as_deref(),
            isolated: false,
            adopts_orphans: false,
            ends_with_parent: false,
        }
    }

    fn on_forked(&mut self, index: usize, child: Child, context: &mut Context) {
        let (job, rank, root) = (self.key(), self.tasks[index].rank, child.pid);
        let mut watch = |fd: &OwnedFd, what| {
            context.watches.add(fd, what, Interest::READ).inspect_err(|error| {
                warn!(code = %Code::System, %job, "cannot watch a new process: {error}");
            })
        };
        let minder = child.status.map(|fd| {
            let token = watch(&fd, Watch::Minder(job, index)).ok();
            Minder::new(fd, token)
        });
        context.children.roots.insert(root, (job, index));
        context.reports.push(FromKeeper::TaskStarted { launch: self.launch.id(), rank, root });
        self.tasks[index].phase =
            Phase::Running(Process { pid: root, report: child.report, minder });
    }

    /// What a task that can't be executed says in its file; with a front end, that says it.
    fn complaint(&self, index: usize) -> Option<CString> {
        let Stdio::Files { .. } = self.launch.spec.stdio else { return None };
        let command = self.program.as_ref().ok()?.command_of(self.tasks[index].rank);
        let program = command.argv.first()?.to_string_lossy();
        let rank = match self.launch.size {
            1 => String::new(),
            _ => format!("rank {}: ", self.tasks[index].rank),
        };
        CString::new(format!("tutti: {rank}cannot execute '{program}': ")).ok()
    }

    /// Makes the pipes of a task, or names its files.
    fn streams(&mut self, index: usize, context: &mut Context) -> Result<[Source; 3], Refusal> {
        match &self.launch.spec.stdio {
            Stdio::FrontEnd { input } => {
                let rank = self.tasks[index].rank;
                let wanted = match *input {
                    InputTo::Nobody => false,
                    InputTo::All | InputTo::Tagged => true,
                    InputTo::Rank(one) => one == rank.0,
                };
                if let Some(size) = self.terminal_of(index) {
                    let made = self.terminal_streams(index, size, context);
                    return made.map_err(|error| Refusal::io("cannot make a terminal", &error));
                }
                self.pipes(index, wanted, context)
                    .map_err(|error| Refusal::io("cannot make pipes", &error))
            }
            Stdio::Files { .. } => self.files(index, context),
            Stdio::Kept => Ok([Source::Null, Source::Null, Source::Null]),
        }
    }

    fn pipes(
        &mut self,
        index: usize,
        input_wanted: bool,
        context: &mut Context,
    ) -> io::Result<[Source; 3]> {
        let job = self.key();
        let task = &mut self.tasks[index];
        let mut input = Source::Null;
        if input_wanted {
            let ends = input_pipe()?;
            task.input = Some(InPipe::new(ends.ours, Watch::Input(job, index)));
            input = Source::Pipe(ends.theirs);
        }
        let output = self.output_pipe(index, Stream::Output, context)?;
        Ok([input, output, self.output_pipe(index, Stream::Error, context)?])
    }

    /// A pipe that the task writes to and the keeper reads.
    fn output_pipe(
        &mut self,
        index: usize,
        stream: Stream,
        context: &mut Context,
    ) -> io::Result<Source> {
        let ends = output_pipe()?;
        let watch = Watch::Output(self.key(), index, stream);
        let pipe = OutPipe::new(ends.ours, watch, &mut context.watches)?;
        *self.tasks[index].stream(stream) = Some(pipe);
        Ok(Source::Pipe(ends.theirs))
    }

    /// Files that tasks share are a writer's: it gets what they write by pipes.
    fn files(&mut self, index: usize, context: &mut Context) -> Result<[Source; 3], Refusal> {
        let Stdio::Files { input, output, error, mode } = self.launch.spec.stdio.clone() else {
            return Ok([Source::Null, Source::Null, Source::Null]);
        };
        let written = self.launch.written();
        let pipe = |job: &mut Self, stream, context: &mut Context| {
            job.output_pipe(index, stream, context)
                .map_err(|error| Refusal::io("cannot make pipes", &error))
        };
        let input = match input {
            None => Source::Null,
            Some(pattern) => Source::File {
                path: without_zero_byte("a file's name", &self.file_name(index, &pattern)?)?,
                flags: libc::O_RDONLY,
            },
        };
        let output_name = self.file_name(index, &output)?;
        let error = error.map(|pattern| self.file_name(index, &pattern)).transpose()?;
        let error = match error {
            _ if written.error => pipe(self, Stream::Error, context)?,
            Some(error) if error != output_name => self.output_file(index, error, mode)?,
            _ => Source::Stdout,
        };
        let output = match written.output {
            true => pipe(self, Stream::Output, context)?,
            false => self.output_file(index, output_name, mode)?,
        };
        Ok([input, output, error])
    }

    /// A file of this task alone. It appends in any case, as others may write there too.
    fn output_file(
        &mut self,
        index: usize,
        path: Vec<u8>,
        mode: OpenMode,
    ) -> Result<Source, Refusal> {
        let mut flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
        if mode.truncates(self.launch.id()) && !self.launch.joins {
            flags |= libc::O_TRUNC;
        }
        let source = Source::File { path: without_zero_byte("a file's name", &path)?, flags };
        self.tasks[index].files.push(path);
        Ok(source)
    }

    /// The name that a pattern gives for a task, from the root.
    pub(super) fn file_name(&self, index: usize, pattern: &[u8]) -> Result<Vec<u8>, Refusal> {
        let launch = &self.launch;
        // By number: asking the machine's user database could take long.
        let user = environment::value_of(launch, "USER").map(String::from_utf8_lossy);
        let uid = launch.credentials.uid.to_string();
        let node =
            launch.nodes.get(launch.share.node_rank as usize).map_or("", |node| node.name.as_str());
        let name = pattern::expand(
            pattern,
            &PatternValues {
                job: launch.job,
                rank: self.tasks[index].rank,
                name: &launch.spec.name,
                node,
                user: user.as_deref().unwrap_or(&uid),
                step: launch.id().key().step.0,
            },
        )
        .map_err(|error| Refusal::new(error.to_string()))?;
        let path = Path::new(OsStr::from_bytes(&launch.spec.directory));
        Ok(path.join(OsStr::from_bytes(&name)).into_os_string().into_vec())
    }

    /// How a task ended whose program never ran; `None` if it did.
    pub(super) fn start_failure(
        &self,
        index: usize,
        report: &OwnedFd,
    ) -> Option<(TaskStatus, String)> {
        let Ok(Report::Failed { step, errno }) = read_report(report.as_fd()) else { return None };
        let why = Errno::from_raw(errno).desc();
        let quoted = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let files = &self.tasks[index].files;
        let detail = match step {
            Step::Execute => return Some(self.execute_failure(index, errno, why)),
            Step::Directory if errno == libc::ENOENT => {
                format!("no such directory: {}", quoted(self.directory_of(index)))
            }
            Step::Directory => {
                format!("cannot enter directory '{}': {why}", quoted(self.directory_of(index)))
            }
            Step::Stdin => {
                let name = match &self.launch.spec.stdio {
                    Stdio::Files { input: Some(pattern), .. } => self.file_name(index, pattern),
                    _ => Ok(Vec::new()),
                };
                format!("cannot open input file '{}': {why}", quoted(&name.unwrap_or_default()))
            }
            Step::Stdout | Step::Stderr => {
                // The names are kept in the order in which they were made: error first.
                let name = if step == Step::Stdout { files.last() } else { files.first() };
                let name = quoted(name.map_or(&[], |name| name));
                format!("cannot open output file '{name}': {why}")
            }
            _ => format!("cannot {step}: {why}"),
        };
        Some((TaskStatus::NotExecutable, detail))
    }

    /// Where a task starts.
    fn directory_of(&self, index: usize) -> &[u8] {
        let program = self.program.as_ref().ok();
        let command = program.map(|program| program.command_of(self.tasks[index].rank));
        command.map_or(&self.launch.spec.directory, |command| command.directory.to_bytes())
    }

    fn execute_failure(&self, index: usize, errno: i32, why: &str) -> (TaskStatus, String) {
        let spec = &self.launch.spec;
        let program = self.program.as_ref().ok();
        let command = program.map(|program| program.command_of(self.tasks[index].rank));
        let first = command.and_then(|command| command.candidates.first());
        let first = first.map_or(&b""[..], |path| path.to_bytes());
        let name = if spec.script.is_some() {
            first
        } else {
            let named = command.and_then(|command| command.argv.first());
            named.map_or(&b""[..], |name| name.to_bytes())
        };
        let shown = String::from_utf8_lossy(name);
        if errno != libc::ENOENT && errno != libc::ENOTDIR {
            return (TaskStatus::NotExecutable, format!("cannot execute '{shown}': {why}"));
        }
        if spec.script.is_some() {
            let detail = format!("the script's interpreter does not exist: {shown}");
            return (TaskStatus::NotExecutable, detail);
        }
        if !name.contains(&b'/') {
            let detail = format!("no such program: {shown} (searched for in PATH)");
            return (TaskStatus::NotFound, detail);
        }
        let directory = Path::new(OsStr::from_bytes(self.directory_of(index)));
        let path = directory.join(OsStr::from_bytes(name));
        if path.exists() {
            let detail =
                format!("cannot execute '{shown}': the interpreter it needs does not exist");
            return (TaskStatus::NotExecutable, detail);
        }
        (TaskStatus::NotFound, format!("no such program: {shown}"))
    }
}

/// The companions of all tasks, and the one that counts the memory of one task.
fn with_counter(of_all: &[CString], counter: Option<PathBuf>) -> Vec<CString> {
    let counter = counter.and_then(|file| CString::new(file.into_os_string().into_vec()).ok());
    of_all.iter().cloned().chain(counter).collect()
}

/// See [`Spawn::companions`].
fn companions_of(group: &Cgroup) -> Vec<CString> {
    let files = group.companions();
    files.iter().filter_map(|file| CString::new(file.as_os_str().as_bytes()).ok()).collect()
}
