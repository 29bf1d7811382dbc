//! A job with its tasks, as it goes from one program to the next.

use super::{Job, Killer, Minder, Phase, Process, Task};
use crate::adopt::Adopted;
use crate::context::{Context, chain};
use crate::front::Front;
use crate::pmi::PmiJob;
use crate::pmix::Pmix;
use crate::program::{Program, Refusal};
use crate::spawner::{LAST_OUTPUT_NS, Spawner};
use crate::stdio::{InPipe, OutPipe};
use crate::terminal::Terminal;
use crate::watch::Watch;
use crate::writer::Writer;
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
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{StepId, StepKey};
use tutti_wire::attach::Stream;
use tutti_wire::handover::{
    HandedJob, HandedMinder, HandedOutPipe, HandedPhase, HandedProgram, HandedTask,
};

impl Job {
    /// What another program must know to go on with it.
    pub(crate) fn hand_over(&self) -> HandedJob {
        let path = |path: &PathBuf| ByteBuf::from(path.as_os_str().as_bytes());
        let since_1970 = self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        HandedJob {
            launch: self.launch.clone(),
            cgroup_path: self.cgroup_path.clone(),
            has_group: self.cgroup.is_some(),
            program: hand_over_program(&self.program),
            tasks: self.tasks.iter().map(Task::hand_over).collect(),
            front: self.front.as_ref().map(Front::hand_over),
            parked: self.parked.iter().map(|&(index, stream)| (number(index), stream)).collect(),
            pmi: self.pmi.as_ref().map(PmiJob::hand_over),
            writer: self.writer.as_ref().map(Writer::hand_over),
            writer_until_ns: self.writer_until_ns,
            output_failure: self.output_failure.clone(),
            lost: self.lost.clone(),
            started: self.started,
            killed: self.killed,
            undelivered: number(self.undelivered),
            stopped: self.stopped.clone(),
            usage: self.usage,
            cleared: self.cleared,
            forgotten: self.forgotten,
            shared: self.shared.iter().map(path).collect(),
            scratch: self.scratch.as_ref().map(path),
            ipc: self.ipc.as_ref().map(AsRawFd::as_raw_fd),
            began: (since_1970.as_secs(), since_1970.subsec_nanos()),
            pmix: self.pmix.as_ref().map(Pmix::hand_over),
            pmix_scratch: self.pmix_scratch.as_ref().map(path),
            terminal: self.terminal,
            spawners: self.spawners.iter().map(Spawner::hand_over).collect(),
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
        let mut spawners = Vec::new();
        for spawner in handed.spawners {
            spawners.push(Spawner::take_over(spawner, job, context, inherited)?);
        }
        let path = |bytes: ByteBuf| PathBuf::from(OsString::from_vec(bytes.into_vec()));
        let (seconds, nanos) = handed.began;
        Ok(Self {
            cgroup,
            cgroup_path: handed.cgroup_path,
            program: take_over_program(handed.program)?,
            viewers: Vec::new(),
            front: handed
                .front
                .map(|front| Front::take_over(front, job, context, inherited))
                .transpose()?,
            parked: handed.parked.iter().map(|&(index, it)| (index as usize, it)).collect(),
            pmi: handed
                .pmi
                .map(|pmi| PmiJob::take_over(pmi, job, context, inherited))
                .transpose()?,
            writer: handed
                .writer
                .map(|writer| Writer::take_over(writer, job, context, inherited))
                .transpose()?,
            pmix: handed
                .pmix
                .map(|pmix| Pmix::take_over(pmix, job, context, inherited))
                .transpose()?,
            writer_until_ns: handed.writer_until_ns,
            output_failure: handed.output_failure,
            lost: handed.lost,
            started: handed.started,
            killed: handed.killed,
            undelivered: handed.undelivered as usize,
            stopped: handed.stopped,
            usage: handed.usage,
            cleared: handed.cleared,
            forgotten: handed.forgotten,
            shared: handed.shared.into_iter().map(path).collect(),
            look: None,
            killer: Killer::default(),
            attaching: None,
            sweep: None,
            scratch: handed.scratch.map(path),
            pmix_scratch: handed.pmix_scratch.map(path),
            ipc: handed.ipc.map(|fd| inherited.take(fd)).transpose()?,
            began: SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos.min(999_999_999)),
            terminal: handed.terminal,
            spawners,
            // They may take as long once more.
            spawners_until_ns: (handed.killed && handed.cleared.is_some())
                .then(|| monotonic_ns() + LAST_OUTPUT_NS),
            launch: handed.launch,
            tasks,
        })
    }

    /// Where its temporary files are, and those of its PMIx server.
    pub(crate) fn scratches(&self) -> impl Iterator<Item = &Path> {
        self.scratch.as_deref().into_iter().chain(self.pmix_scratch.as_deref())
    }

    /// Where its PMIx server has its files.
    pub(crate) fn directory_of_pmix(&self) -> Option<&Path> {
        self.pmix_scratch.as_deref().or(self.scratch.as_deref())
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
