//! A job with its tasks, as it goes from one program to the next.

use super::force::Force;
use super::group::JobGroup;
use super::life::Life;
use super::sweep::Traces;
use super::{Job, Killer, Minder, Phase, Process, Task};
use crate::adopt::Adopted;
use crate::context::{Context, chain};
use crate::front::{Front, Readers};
use crate::pmi::PmiJob;
use crate::pmix::Pmix;
use crate::program::{Program, Refusal};
use crate::spawner::Spawners;
use crate::stdio::{InPipe, OutPipe};
use crate::terminal::Terminal;
use crate::watch::Watch;
use crate::writer::{OutputFiles, Writer};
use serde_bytes::ByteBuf;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tracing::info;
use tutti_linux::inherited::Inherited;
use tutti_node::layout;
use tutti_node::link::Interest;
use tutti_node::platform::groups::Cgroup;
use tutti_types::{StepId, StepKey};
use tutti_wire::attach::Stream;
use tutti_wire::handover::{
    HandedJob, HandedMinder, HandedOutPipe, HandedPhase, HandedProgram, HandedTask,
};

impl Job {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HandedJob {
        let path = |path: &PathBuf| ByteBuf::from(path.as_os_str().as_bytes());
        let since_1970 =
            self.traces.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        HandedJob {
            launch: self.launch.clone(),
            cgroup_path: self.cgroup.path.clone(),
            has_group: self.cgroup.get().is_some(),
            program: hand_over_program(&self.program),
            tasks: self.tasks.iter().map(Task::hand_over).collect(),
            front: self.readers.front.as_ref().map(Front::hand_over),
            parked: self.readers.parked().map(|(index, it)| (number(index), it)).collect(),
            pmi: self.pmi.as_ref().map(PmiJob::hand_over),
            writer: self.output_files.writer().map(Writer::hand_over),
            writer_until_ns: self.output_files.until_ns(),
            output_failure: self.output_files.failure().map(str::to_owned),
            lost: self.output_files.lost().to_owned(),
            started: self.life.started,
            killed: self.life.killed,
            undelivered: number(self.readers.undelivered()),
            stopped: self.stopped.clone(),
            usage: self.life.usage,
            cleared: self.life.cleared,
            forgotten: self.life.forgotten,
            shared: self.traces.shared.iter().map(path).collect(),
            scratch: self.traces.scratch.as_ref().map(path),
            ipc: self.traces.ipc.as_ref().map(AsRawFd::as_raw_fd),
            began: (since_1970.as_secs(), since_1970.subsec_nanos()),
            pmix: self.pmix.as_ref().map(Pmix::hand_over),
            pmix_scratch: self.traces.pmix_scratch.as_ref().map(path),
            terminal: self.terminal,
            spawners: self.spawners.hand_over(),
        }
    }

    /// Goes on with one of another program.
    ///
    /// # Errors
    /// If a descriptor of it was not left.
    pub(crate) fn take_over(
        handed: HandedJob,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let job = handed.launch.id().key();
        let cgroup = handed.cgroup_path.as_ref().filter(|_| handed.has_group);
        let cgroup = cgroup.and_then(|path| open_group(job, path));
        let step = cgroup.as_ref().map(|group| match job.step {
            StepId::FIRST => layout::step_of(group.path()),
            _ => group.path().to_owned(),
        });
        let mut tasks = Vec::new();
        for (index, task) in handed.tasks.into_iter().enumerate() {
            let place = (step.as_deref(), handed.launch.credentials.uid);
            tasks.push(Task::take_over(task, (job, index), place, context, inherited)?);
        }
        let mut spawners = Spawners::take_over(handed.spawners, job, context, inherited)?;
        if handed.killed && handed.cleared.is_some() {
            // They may take as long once more.
            spawners.hurry();
        }
        let path = |bytes: ByteBuf| PathBuf::from(OsString::from_vec(bytes.into_vec()));
        let (seconds, nanos) = handed.began;
        let front = handed.front.map(|it| Front::take_over(it, job, context, inherited));
        let parked = handed.parked.iter().map(|&(index, it)| (index as usize, it)).collect();
        let pmi = handed.pmi.map(|it| PmiJob::take_over(it, job, context, inherited));
        let writer = handed.writer.map(|it| Writer::take_over(it, job, context, inherited));
        let pmix = handed.pmix.map(|it| Pmix::take_over(it, job, context, inherited));
        let writer = (writer.transpose()?, handed.writer_until_ns);
        let mut traces = Traces::new(handed.ipc.map(|fd| inherited.take(fd)).transpose()?);
        traces.scratch = handed.scratch.map(path);
        traces.pmix_scratch = handed.pmix_scratch.map(path);
        traces.shared = handed.shared.into_iter().map(path).collect();
        traces.began = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos.min(999_999_999));
        Ok(Self {
            cgroup: JobGroup { path: handed.cgroup_path, open: cgroup },
            program: take_over_program(handed.program)?,
            readers: Readers::of_before(front.transpose()?, parked, handed.undelivered as usize),
            pmi: pmi.transpose()?,
            output_files: OutputFiles::of_before(writer, handed.output_failure, handed.lost),
            pmix: pmix.transpose()?,
            life: Life {
                started: handed.started,
                killed: handed.killed,
                forgotten: handed.forgotten,
                usage: handed.usage,
                cleared: handed.cleared,
            },
            stopped: handed.stopped,
            force: Force::default(),
            attaching: None,
            traces,
            terminal: handed.terminal,
            spawners,
            launch: handed.launch,
            tasks,
        })
    }
}

impl Task {
    fn hand_over(&self) -> HandedTask {
        HandedTask {
            rank: self.rank,
            has_group: self.group.is_some(),
            phase: self.phase.hand_over(),
            output: self.output.as_ref().map(OutPipe::hand_over),
            error: self.error.as_ref().map(OutPipe::hand_over),
            input: self.input.as_ref().map(InPipe::hand_over),
            files: self.files.iter().map(|name| ByteBuf::from(&name[..])).collect(),
            aborted: self.aborted.clone(),
            usage: self.usage,
            delivered: self.delivered,
            terminal: self.terminal.as_ref().and_then(Terminal::hand_over),
        }
    }

    fn take_over(
        handed: HandedTask,
        (job, index): (StepKey, usize),
        (step, user): (Option<&Path>, u32),
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut pipe = |handed: Option<HandedOutPipe>, stream: Stream| {
            let watch = Watch::Output(job, index, stream);
            let take = |pipe| OutPipe::take_over(&pipe, watch, &mut context.watches, inherited);
            handed.map(take).transpose()
        };
        let (output, error) =
            (pipe(handed.output, Stream::Output)?, pipe(handed.error, Stream::Error)?);
        let watch = Watch::Input(job, index);
        let mut input =
            handed.input.map(|it| InPipe::take_over(it, watch, inherited)).transpose()?;
        if let Some(input) = &mut input {
            // Has it watched for room, if something waits.
            input.write(&mut context.watches);
        }
        Ok(Self {
            rank: handed.rank,
            group: step.filter(|_| handed.has_group).and_then(|step| {
                Cgroup::open(&step.join(layout::group_of_task(handed.rank)))
                    .inspect_err(|error| info!(%job, "{}", chain(error)))
                    .ok()
            }),
            phase: Phase::take_over(handed.phase, (job, index), context, inherited)?,
            output,
            error,
            input,
            files: handed.files.into_iter().map(ByteBuf::into_vec).collect(),
            aborted: handed.aborted,
            usage: handed.usage,
            delivered: handed.delivered,
            terminal: handed
                .terminal
                .map(|it| Terminal::take_over(it, user, inherited))
                .transpose()?,
            killer: Killer::default(),
        })
    }
}

impl Phase {
    fn hand_over(&self) -> HandedPhase {
        match self {
            Self::Waiting => HandedPhase::Waiting,
            Self::Running(process) => HandedPhase::Running {
                pid: process.pid,
                report: process.report.as_raw_fd(),
                minder: process.minder.as_ref().map(Minder::hand_over),
            },
            Self::Adopted(adopted) => HandedPhase::Adopted(adopted.hand_over()),
            Self::Ending { status, detail, naps } => {
                HandedPhase::Ending { status: *status, detail: detail.clone(), naps: *naps }
            }
            Self::Ended { status, detail } => {
                HandedPhase::Ended { status: *status, detail: detail.clone() }
            }
        }
    }

    fn take_over(
        handed: HandedPhase,
        (job, index): (StepKey, usize),
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        Ok(match handed {
            HandedPhase::Waiting => Self::Waiting,
            HandedPhase::Running { pid, report, minder } => {
                let report = inherited.take(report)?;
                let watch = Watch::Minder(job, index);
                let minder = minder
                    .map(|minder| Minder::take_over(minder, watch, context, inherited))
                    .transpose()?;
                context.children.roots.insert(pid, (job, index));
                Self::Running(Process { pid, report, minder })
            }
            HandedPhase::Adopted(processes) => {
                let watch = Watch::Adopted(job, index);
                Self::Adopted(Adopted::take_over(processes, watch, context, inherited)?)
            }
            HandedPhase::Ending { status, detail, naps } => Self::Ending { status, detail, naps },
            HandedPhase::Ended { status, detail } => Self::Ended { status, detail },
        })
    }
}

impl Minder {
    fn hand_over(&self) -> HandedMinder {
        HandedMinder {
            fd: self.fd.as_raw_fd(),
            root: self.root,
            status: self.status,
            silent: self.silent,
            early: self.early.clone(),
            told: self.told,
            goes_on: self.goes_on,
        }
    }

    fn take_over(
        handed: HandedMinder,
        watch: Watch,
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let fd = inherited.take(handed.fd)?;
        let is_over = handed.silent || handed.status.is_some() || handed.told.is_some();
        let token = match is_over {
            true => None,
            false => Some(context.watches.add(&fd, watch, Interest::READ)?),
        };
        Ok(Self {
            root: handed.root,
            status: handed.status,
            silent: handed.silent,
            early: handed.early,
            told: handed.told,
            goes_on: handed.goes_on,
            ..Self::new(fd, token)
        })
    }
}

fn hand_over_program(
    program: &Result<Program, Refusal>,
) -> Result<HandedProgram, (tutti_types::TaskStatus, String)> {
    match program {
        Ok(program) => Ok(program.hand_over()),
        Err(Refusal { status, detail }) => Err((*status, detail.clone())),
    }
}

fn take_over_program(
    handed: Result<HandedProgram, (tutti_types::TaskStatus, String)>,
) -> io::Result<Result<Program, Refusal>> {
    Ok(match handed {
        Ok(program) => Ok(Program::take_over(program)?),
        Err((status, detail)) => Err(Refusal { status, detail }),
    })
}

/// The group is there, or the job would have ended; if it can't be opened all the same, it is the
/// agent's to end what is in it.
fn open_group(job: StepKey, path: &[u8]) -> Option<Cgroup> {
    Cgroup::open(Path::new(OsStr::from_bytes(path)))
        .inspect_err(|error| info!(%job, "{}", chain(error)))
        .ok()
}

/// A task's place, or how many there are: at most `TASKS_PER_NODE_MAX`.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
