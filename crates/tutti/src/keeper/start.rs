//! Starting tasks: from a launch to processes, and from what failed on the way to words.

use super::context::Context;
use super::environment::{self, PMI_FD};
use super::job::{Job, Minder, Phase, Process};
use super::pmi;
use super::script;
use super::stdio::{InPipe, OutPipe, input_pipe, output_pipe};
use super::watch::Watch;
use crate::link::Interest;
use nix::errno::Errno;
use nix::libc;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use tutti_core::TaskStatus;
use tutti_linux::cgroup::Cgroup;
use tutti_linux::spawn::{
    Identity, Report, Spawn, StdioFd, Step, program_candidates, read_report, spawn,
};
use tutti_wire::attach::Stream;
use tutti_wire::keeper::FromKeeper;
use tutti_wire::launch::{Credentials, InputTo, Launch, Stdio};
use tutti_wire::pattern::{self, PatternValues};

/// Where most output of no interest goes; there is nothing in it to lose.
const NULL: &[u8] = b"/dev/null";

/// Permissions of output files, before the user's mask.
const FILE_MODE: u32 = 0o666;

/// Why a task can't be started.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: TaskStatus,
    pub(super) detail: String,
}

impl Refusal {
    pub(super) const fn new(detail: String) -> Self {
        Self { status: TaskStatus::NotExecutable, detail }
    }

    fn io(what: &str, error: &io::Error) -> Self {
        Self::new(format!("{what}: {}", reason(error)))
    }
}

/// What all tasks of a job run, in the form that starting a process wants.
pub(super) struct Program {
    argv: Vec<CString>,
    candidates: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
    rlimits: Vec<(i32, u64, u64)>,
    identity: Option<Identity>,
}

impl Program {
    /// Prepares a launch; writes its script, if it has one.
    pub(super) fn new(
        launch: &Launch,
        scratch: Option<&Path>,
        context: &Context,
    ) -> Result<Self, Refusal> {
        let spec = &launch.spec;
        let identity = identity(&launch.credentials, context.uid)?;
        let mut argv = Vec::new();
        let mut name = spec.argv.first().map_or(&b""[..], |name| name);
        let (script_path, command);
        if let Some(text) = &spec.script {
            let owner = identity.is_some().then_some(&launch.credentials);
            script_path =
                script::write(&context.spool, launch.job, text, owner).map_err(Refusal::new)?;
            command = script::command(text, script_path.as_os_str().as_bytes());
            name = &command[0];
            for word in &command {
                argv.push(without_zero_byte("an argument", word)?);
            }
        } else {
            argv.push(without_zero_byte("the program's name", name)?);
        }
        for word in spec.argv.iter().skip(1) {
            argv.push(without_zero_byte("an argument", word)?);
        }
        let name = without_zero_byte("the program's name", name)?;
        let candidates = match spec.script {
            // An interpreter is never searched for.
            Some(_) => vec![name],
            None => program_candidates(&name, environment::value_of(launch, "PATH")),
        };
        Ok(Self {
            argv,
            candidates,
            environment: environment::of_job(launch, scratch),
            directory: without_zero_byte("the directory's name", &spec.directory)?,
            rlimits: rlimits(launch, context.descriptors),
            identity,
        })
    }
}

/// Root becomes whoever the job is of; others can only start their own.
fn identity(credentials: &Credentials, uid: u32) -> Result<Option<Identity>, Refusal> {
    let Credentials { uid: wanted, gid, ref groups } = *credentials;
    match uid {
        0 => Ok(Some(Identity { uid: wanted, gid, groups: groups.clone() })),
        _ if uid == wanted => Ok(None),
        _ => Err(Refusal::new(format!(
            "this instance runs as user {uid} and can't start programs as user {wanted}"
        ))),
    }
}

fn rlimits(launch: &Launch, descriptors: (u64, u64)) -> Vec<(i32, u64, u64)> {
    let of_user = &launch.spec.rlimits;
    let mut limits: Vec<(i32, u64, u64)> = of_user
        .iter()
        .filter_map(|&(resource, soft, hard)| Some((i32::try_from(resource).ok()?, soft, hard)))
        .collect();
    let nofile = libc::RLIMIT_NOFILE.cast_signed();
    if !limits.iter().any(|&(resource, ..)| resource == nofile) {
        limits.push((nofile, descriptors.0, descriptors.1));
    }
    limits
}

fn without_zero_byte(what: &str, text: &[u8]) -> Result<CString, Refusal> {
    CString::new(text).map_err(|_| Refusal::new(format!("{what} has a zero byte in it")))
}

/// The task's side of one of its standard streams.
enum Source {
    Null,
    Pipe(OwnedFd),
    File { path: CString, flags: i32 },
    Stdout,
}

impl Source {
    fn for_child(&self) -> StdioFd<'_> {
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

impl Job {
    /// Starts all tasks, once; those that can't be started end at once with the reason.
    pub(super) fn start(&mut self, context: &mut Context) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.clear_if_empty(context);
        self.held_back = self.must_empty_first();
        let count = if self.held_back { 1 } else { self.tasks.len() };
        for index in 0..count {
            self.start_task(index, context);
        }
    }

    /// Starts the tasks that waited for the first one.
    pub(super) fn start_rest(&mut self, context: &mut Context) {
        if std::mem::take(&mut self.held_back) {
            for index in 1..self.tasks.len() {
                self.start_task(index, context);
            }
        }
    }

    fn start_task(&mut self, index: usize, context: &mut Context) {
        if !matches!(self.tasks[index].phase, Phase::Waiting) {
            return;
        }
        if self.is_adopted() {
            return self.adopt(index, context);
        }
        match self.try_to_start(index, context) {
            Ok(process) => {
                let (job, rank, root) = (self.launch.job, self.tasks[index].rank, process.pid);
                context.roots.insert(root, (job, index));
                context.reports.push(FromKeeper::TaskStarted { job, rank, root });
                self.tasks[index].phase = Phase::Running(process);
            }
            Err(Refusal { status, detail }) => {
                self.end_unstarted(index, status, detail, context);
            }
        }
    }

    fn try_to_start(&mut self, index: usize, context: &mut Context) -> Result<Process, Refusal> {
        let streams = self.streams(index, context)?;
        let pmi = pmi::connect(self, index, context)
            .map_err(|error| Refusal::io("cannot connect a PMI server", &error))?;
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let group = self.tasks[index].group.as_ref();
        let companions: Vec<CString> = group.map_or_else(Vec::new, |group| {
            let files = group.companions();
            files.iter().filter_map(|f| CString::new(f.as_os_str().as_bytes()).ok()).collect()
        });
        let environment =
            environment::of_task(&program.environment, &self.launch, index, Some(PMI_FD));
        let processors: Vec<u32> = self.launch.share.tasks[index].processors.iter().collect();
        let child = spawn(&Spawn {
            argv: &program.argv,
            env: &environment,
            program: &program.candidates,
            cwd: &program.directory,
            umask: self.launch.spec.umask & 0o777,
            rlimits: &program.rlimits,
            identity: program.identity.clone(),
            cgroup: group.map(Cgroup::fd),
            companions: &companions,
            processors: (!processors.is_empty()).then_some(&processors),
            stdio: [&streams[0], &streams[1], &streams[2]].map(Source::for_child),
            pass: &[(pmi.as_raw_fd(), PMI_FD)],
            new_session: true,
            minder: group.is_none(),
            complaint: self.complaint(index).as_deref(),
        })
        .map_err(|error| Refusal::io("cannot make a process", &error))?;
        let job = self.launch.job;
        let mut watch = |fd: &OwnedFd, what| {
            context.watches.add(fd, what, Interest::READ).inspect_err(|error| {
                say!("tutti keeper: job {job}: cannot watch a new process: {error}");
            })
        };
        let report_token = if self.held_back {
            watch(&child.report, Watch::Report(job, index)).ok()
        } else {
            None
        };
        let minder = child.status.map(|fd| {
            let token = watch(&fd, Watch::Minder(job, index)).ok();
            Minder::new(fd, token)
        });
        Ok(Process { pid: child.pid, report: child.report, report_token, minder })
    }

    /// What a task that can't be executed says in its file; with a front end, that says it.
    fn complaint(&self, index: usize) -> Option<CString> {
        let Stdio::Files { .. } = self.launch.spec.stdio else { return None };
        let program = self.program.as_ref().ok()?.argv.first()?.to_string_lossy();
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
                self.pipes(index, wanted, context)
                    .map_err(|error| Refusal::io("cannot make pipes", &error))
            }
            Stdio::Files { .. } => self.files(index),
            Stdio::Kept => Ok([Source::Null, Source::Null, Source::Null]),
        }
    }

    fn pipes(
        &mut self,
        index: usize,
        input_wanted: bool,
        context: &mut Context,
    ) -> io::Result<[Source; 3]> {
        let job = self.launch.job;
        let task = &mut self.tasks[index];
        let mut input = Source::Null;
        if input_wanted {
            let ends = input_pipe()?;
            task.input = Some(InPipe::new(ends.ours, Watch::Input(job, index)));
            input = Source::Pipe(ends.theirs);
        }
        let mut output = |stream| {
            let ends = output_pipe()?;
            let watch = Watch::Output(job, index, stream);
            *task.stream(stream) = Some(OutPipe::new(ends.ours, watch, &mut context.watches)?);
            io::Result::Ok(Source::Pipe(ends.theirs))
        };
        Ok([input, output(Stream::Output)?, output(Stream::Error)?])
    }

    fn files(&mut self, index: usize) -> Result<[Source; 3], Refusal> {
        let Stdio::Files { input, output, error, append } = self.launch.spec.stdio.clone() else {
            return Ok([Source::Null, Source::Null, Source::Null]);
        };
        let input = match input {
            None => Source::Null,
            Some(pattern) => Source::File {
                path: without_zero_byte("a file's name", &self.file_name(index, &pattern)?)?,
                flags: libc::O_RDONLY,
            },
        };
        let output = self.file_name(index, &output)?;
        let error = error.map(|pattern| self.file_name(index, &pattern)).transpose()?;
        let error = match error {
            Some(error) if error != output => self.output_file(index, error, append)?,
            _ => Source::Stdout,
        };
        Ok([input, self.output_file(index, output, append)?, error])
    }

    /// The first task to open a file empties it (see [`Job::must_empty_first`]: the others wait until
    /// it has); all append, so that they do not overwrite each other.
    fn output_file(
        &mut self,
        index: usize,
        path: Vec<u8>,
        append: bool,
    ) -> Result<Source, Refusal> {
        let mut flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
        if !append && self.emptied.insert(path.clone()) {
            flags |= libc::O_TRUNC;
        }
        let source = Source::File { path: without_zero_byte("a file's name", &path)?, flags };
        self.tasks[index].files.push(path);
        Ok(source)
    }

    /// The name that a pattern gives for a task, from the root.
    fn file_name(&self, index: usize, pattern: &[u8]) -> Result<Vec<u8>, Refusal> {
        let launch = &self.launch;
        // Whoever it is: asking the machine's user database could take long.
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
            },
        )
        .map_err(|error| Refusal::new(error.to_string()))?;
        let path = Path::new(OsStr::from_bytes(&launch.spec.directory));
        Ok(path.join(OsStr::from_bytes(&name)).into_os_string().into_vec())
    }

    /// Whether the tasks share a file that is to be emptied. Then the first one must have opened it
    /// before another writes: what was written before would be lost. Whether there is anything in it
    /// is not looked at: on a file system that does not answer, that would stop all jobs.
    fn must_empty_first(&self) -> bool {
        let Stdio::Files { output, error, append: false, .. } = &self.launch.spec.stdio else {
            return false;
        };
        self.tasks.len() > 1
            && [Some(output), error.as_ref()]
                .into_iter()
                .flatten()
                .any(|pattern| !pattern::names_rank(pattern) && pattern != NULL)
    }

    /// The first task has opened its files, or failed to: the others may begin.
    pub(super) fn on_report(&mut self, index: usize, context: &mut Context) {
        if let Phase::Running(process) = &mut self.tasks[index].phase
            && let Some(token) = process.report_token.take()
        {
            context.watches.remove(&process.report, token);
        }
        self.start_rest(context);
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
            Step::Execute => return Some(self.execute_failure(errno, why)),
            Step::Directory if errno == libc::ENOENT => {
                format!("no such directory: {}", quoted(&self.launch.spec.directory))
            }
            Step::Directory => {
                format!("cannot enter directory '{}': {why}", quoted(&self.launch.spec.directory))
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

    fn execute_failure(&self, errno: i32, why: &str) -> (TaskStatus, String) {
        let spec = &self.launch.spec;
        let program = self.program.as_ref().ok();
        let first = program.and_then(|program| program.candidates.first());
        let first = first.map_or(&b""[..], |path| path.to_bytes());
        let name = if spec.script.is_some() {
            first
        } else {
            spec.argv.first().map_or(&b""[..], |name| name)
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
        let path = Path::new(OsStr::from_bytes(&spec.directory)).join(OsStr::from_bytes(name));
        if path.exists() {
            let detail =
                format!("cannot execute '{shown}': the interpreter it needs does not exist");
            return (TaskStatus::NotExecutable, detail);
        }
        (TaskStatus::NotFound, format!("no such program: {shown}"))
    }
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}
