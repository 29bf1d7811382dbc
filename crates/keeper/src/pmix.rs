//! The PMIx server of a job: a process of its user that serves Open MPI's tasks.
//!
//! It is started where the launch says so, by `TUTTI_PMIX=1` in the environment: `tutti run` and
//! `submit` set that where the program needs Open MPI's library. All others have none, and their
//! launch is as if there were no such thing. Tasks begin when the server is ready, since its
//! address must be in their environment.
//!
//! It is no process of the job's group, so that a switch does not stop it: it is a child of the
//! keeper, ends before the job is reported as ended, and its use counts as the job's. Nothing that
//! it says is taken as given ([`tutti_wire::pmix`]).

mod handover;

use super::context::Context;
use super::environment::value_of;
use super::job::{Job, Phase, Task};
use super::pmi::Abort;
use super::program::{Refusal, identity, without_zero_byte};
use super::watch::{Token, Watch};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_bytes::ByteBuf;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tutti_linux::random::random_u32;
use tutti_linux::reap::End;
use tutti_linux::spawn::{Report, Spawn, StdioFd, read_report};
use tutti_node::executable::RUNNING;
use tutti_node::link::{Interest, Link};
use tutti_node::platform::processes::{self, kill};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::ProcessorSet;
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::launch::{Launch, Usage};
use tutti_wire::pmi::TaskState;
use tutti_wire::pmix::{
    FENCE_PART_BYTES, FromPmix, Heard, PMIX_FD, PMIX_FRAME_BYTES_MAX, PmixNode, PmixOrder, Session,
    ToPmix, is_space,
};

/// How long a PMIx server may take to be ready: a library may hang.
const READY_NS: u64 = if cfg!(test) { 2_000_000_000 } else { 20_000_000_000 };

/// Longest text of the user's for the server, and the most of them.
const TEXT_BYTES_MAX: usize = 4 << 10;
const TEXTS_MAX: usize = 64;

/// Variables of the user that the library reads.
const READ_BY_LIBRARY: [&[u8]; 2] = [b"PMIX_MCA_", b"PMIX_PREFIX="];

/// Variables that tasks find where the user has not set them. Open MPI 4 would look for its own
/// daemon, and MPICH 5 would take PMIx, which it does not speak.
const DEFAULTS: [(&str, &str); 2] = [("OMPI_MCA_schizo", "^orte"), ("MPIR_CVAR_PMI_VERSION", "1")];

/// The PMIx server of a job on this node.
#[derive(Debug)]
pub(super) struct Pmix {
    /// Its process, until that is reaped.
    pid: Option<i32>,
    /// Tells whether its program was started.
    report: OwnedFd,
    /// Its connection, while that is of use.
    link: Option<(Link, Token)>,
    session: Session,
    /// When it counts as stuck, until it is ready.
    until_ns: Option<u64>,
    /// Whether the start of the tasks waits for it.
    is_awaited: bool,
    /// How many parts of the next fence it has sent.
    parts: u32,
    /// The fence that waits for other nodes.
    fence: Option<u32>,
}

/// Whether the tasks of a launch are to find a PMIx server.
pub(super) fn is_wanted(launch: &Launch) -> bool {
    launch.size > 1
        && !launch.share.tasks.is_empty()
        && launch.spec.adopt.is_empty()
        && value_of(launch, "TUTTI_PMIX") == Some(b"1")
}

/// The name space of a step. Any user of the machine that knows it may pose as a task.
fn space_of(launch: &Launch) -> Result<String, Refusal> {
    let random = match value_of(launch, "TUTTI_PMIX_SPACE").filter(|text| is_space(text)) {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None if launch.nodes.len() > 1 => {
            let reason = "no name space for PMIx came with the job: submit it by `tutti run`";
            return Err(Refusal::new(Code::OpenMpi.mark(reason)));
        }
        None => (0..4)
            .map(|_| random_u32().map(|number| format!("{number:08x}")))
            .collect::<io::Result<_>>()
            .map_err(|error| Refusal::io("no random name space", &error))?,
    };
    Ok(format!("tutti-{}-{}-{}-{random}", launch.job, launch.number, launch.step))
}

impl Job {
    /// Starts the PMIx server, if tasks are to find one.
    pub(super) fn start_pmix(&mut self, context: &mut Context) {
        if self.started || self.killed || self.program.is_err() || !is_wanted(&self.launch) {
            return;
        }
        match self.spawn_pmix(context) {
            Ok(pmix) => self.pmix = Some(pmix),
            Err(refusal) => self.program = Err(refusal),
        }
    }

    fn spawn_pmix(&self, context: &mut Context) -> Result<Pmix, Refusal> {
        let refused = |error: &io::Error| Refusal::io("cannot start a PMIx server", error);
        let identity = identity(&self.launch.credentials, context.launching.uid)?;
        let order = ToPmix::Order(self.pmix_order(identity.is_some())?);
        let (ours, theirs) = UnixStream::pair().map_err(|error| refused(&error))?;
        context.launching.room.check(&theirs).map_err(|error| refused(&error))?;
        let tasks = self.launch.share.tasks.iter();
        let mut processors = ProcessorSet::new();
        tasks.for_each(|task| processors.union_with(&task.processors));
        let processors: Vec<u32> = processors.iter().collect();
        let child = context.launching.nursery.spawn(
            &Spawn {
                argv: &[CString::from(c"tutti"), CString::from(c"pmix-server")],
                env: [&[], &[]],
                program: &[CString::new(RUNNING).unwrap_or_default()],
                cwd: c"/",
                umask: 0o077,
                nice: Some(0),
                rlimits: &[],
                // It becomes its user when that user can't trace it any more.
                identity: None,
                cgroup: None,
                companions: &[],
                limits_memory: false,
                ipc: None,
                processors: (!processors.is_empty()).then_some(&processors),
                stdio: [StdioFd::Null, StdioFd::Null, StdioFd::Null],
                pass: &[(theirs.as_raw_fd(), PMIX_FD)],
                new_session: true,
                minder: false,
                complaint: None,
            },
            &processes::unwanted(),
        );
        let child = child.map_err(|error| refused(&error))?;
        context.children.pmix.insert(child.pid, self.key());
        let mut link = Link::new(ours).map_err(|error| refused(&error))?;
        link.limit(PMIX_FRAME_BYTES_MAX);
        link.greet(Role::Server);
        link.send(&order);
        let _ = link.flush();
        let interest = Interest { read: true, write: link.unsent() > 0 };
        let watch = Watch::Pmix(self.key());
        let token = context.watches.add(&link, watch, interest).map_err(|it| refused(&it))?;
        Ok(Pmix {
            pid: Some(child.pid),
            report: child.report,
            link: Some((link, token)),
            session: Session::new(self.tasks.len(), self.launch.nodes.len() > 1),
            until_ns: Some(monotonic_ns() + READY_NS),
            is_awaited: false,
            parts: 0,
            fence: None,
        })
    }

    fn pmix_order(&self, is_other: bool) -> Result<PmixOrder, Refusal> {
        let launch = &self.launch;
        let directory = self.scratch().map(PathBuf::from);
        let directory = directory.ok_or_else(|| {
            Refusal::new("the job has no directory for the files of a PMIx server".into())
        })?;
        let own = value_of(launch, "TUTTI_LIBPMIX").filter(|path| path.len() <= TEXT_BYTES_MAX);
        let libraries = own.into_iter().chain([&b"libpmix.so.2"[..]]);
        let is_read = |variable: &&ByteBuf| {
            variable.len() <= TEXT_BYTES_MAX
                && READ_BY_LIBRARY.iter().any(|start| variable.starts_with(start))
        };
        let environment = launch.spec.environment.iter().filter(is_read).take(TEXTS_MAX);
        let node = |node: &tutti_wire::launch::JobNode| PmixNode {
            name: node.name.clone(),
            tasks: node.tasks,
        };
        Ok(PmixOrder {
            space: space_of(launch)?,
            libraries: libraries.map(ByteBuf::from).collect(),
            directory: ByteBuf::from(directory.as_os_str().as_bytes()),
            identity: is_other.then(|| launch.credentials.clone()),
            environment: environment.cloned().collect(),
            nodes: launch.nodes.iter().map(node).collect(),
            node: launch.share.node_rank,
        })
    }

    /// Whether tasks must not begin yet. They will, when the server is ready.
    pub(super) fn awaits_pmix(&mut self) -> bool {
        // Tasks without a program, because there will be no server, end with the reason.
        if self.program.is_err() {
            return false;
        }
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| !pmix.session.is_ready()) else {
            return false;
        };
        pmix.is_awaited = true;
        true
    }

    /// What a task finds beside its other variables.
    pub(super) fn pmix_environment(&self, index: usize) -> Vec<CString> {
        let Some(pmix) = &self.pmix else { return Vec::new() };
        let defaults = DEFAULTS.iter().filter(|(name, _)| value_of(&self.launch, name).is_none());
        let defaults = defaults.map(|(name, value)| format!("{name}={value}").into_bytes());
        let own = pmix.session.environment(index).iter().map(|variable| variable.to_vec());
        // Those with a zero byte were refused.
        own.chain(defaults).filter_map(|variable| without_zero_byte("", &variable).ok()).collect()
    }

    /// How far a task is with its PMIx server.
    pub(super) fn pmix_state(&self, index: usize) -> TaskState {
        self.pmix.as_ref().map_or(TaskState::Silent, |pmix| pmix.session.state(index))
    }

    /// The server has said something, or takes more.
    pub(super) fn on_pmix(&mut self, context: &mut Context) {
        let Some(Pmix { link: Some((link, _)), .. }) = &mut self.pmix else { return };
        let received = link.receive();
        loop {
            let Some(Pmix { link: Some((link, _)), session, .. }) = &mut self.pmix else { return };
            let heard = match link.next::<FromPmix>() {
                Ok(None) => break,
                Ok(Some(message)) => session.hear(message).map_err(|error| error.to_string()),
                Err(error) => Err(error.whole()),
            };
            match heard {
                Ok(heard) => {
                    self.on_heard(heard, context);
                    if self.killed {
                        // Whatever else it says: each order to kill has its cost.
                        return self.drop_pmix_link(context);
                    }
                }
                Err(error) => {
                    return self
                        .fail_pmix(&format!("the PMIx server misbehaved: {error}"), context);
                }
            }
        }
        if received.is_err() {
            // Its end says why.
            return self.drop_pmix_link(context);
        }
        self.settle_pmix(context);
    }

    fn settle_pmix(&mut self, context: &mut Context) {
        let Some(Pmix { link: Some((link, token)), .. }) = &mut self.pmix else { return };
        if link.flush().is_ok() {
            let interest = Interest { read: true, write: link.unsent() > 0 };
            context.watches.modify(&*link, *token, interest);
        }
    }

    fn on_heard(&mut self, heard: Heard, context: &mut Context) {
        match heard {
            Heard::Nothing => {}
            Heard::Ready => {
                let Some(pmix) = &mut self.pmix else { return };
                pmix.until_ns = None;
                if std::mem::take(&mut pmix.is_awaited) && !self.killed {
                    self.start(context);
                }
            }
            Heard::Failed(reason) => self.fail_pmix(&reason, context),
            Heard::Abort { task, code, message } => {
                self.abort(Abort { index: task, code, message }, context);
            }
            Heard::FencePart { is_last, data } => self.on_fence_part(is_last, &data, context),
        }
    }

    /// A part of what this node says in a fence. It goes the way of a PMI barrier's values.
    fn on_fence_part(&mut self, is_last: bool, data: &[u8], context: &mut Context) {
        let node = self.launch.share.node_rank;
        let Some(pmix) = &mut self.pmix else { return };
        // A fence follows when the answer to the one before has been read: what waits to be written
        // can't grow.
        if pmix.link.as_ref().is_some_and(|(link, _)| link.unsent() > 0) {
            let reason = "the PMIx server misbehaved: it asks again before it has read the answer";
            return self.fail_pmix(reason, context);
        }
        let part = pmix.parts;
        pmix.parts = if is_last { 0 } else { part.saturating_add(1) };
        let Some(fence) = self.store_fence((node, part), data, is_last, context) else { return };
        if let Some(pmix) = &mut self.pmix {
            pmix.fence = Some(fence);
        }
    }

    /// Passes on what all nodes have said in the fence that waits, once they all have.
    pub(super) fn answer_fence(&mut self, context: &mut Context) {
        let Some(fence) = self.pmix.as_ref().and_then(|pmix| pmix.fence) else { return };
        let Some(said) = self.take_fence(fence) else { return };
        let Some(pmix) = &mut self.pmix else { return };
        pmix.fence = None;
        pmix.session.end_fence();
        if let Some((link, _)) = &mut pmix.link {
            for piece in said.iter().flat_map(|said| said.chunks(FENCE_PART_BYTES)) {
                link.send(&ToPmix::Fenced { is_last: false, data: ByteBuf::from(piece) });
            }
            link.send(&ToPmix::Fenced { is_last: true, data: ByteBuf::new() });
        }
        self.settle_pmix(context);
    }

    /// There is no service: tasks that have not begun end with the reason; otherwise the job does.
    fn fail_pmix(&mut self, reason: &str, context: &mut Context) {
        self.drop_pmix_link(context);
        let Some(pmix) = &mut self.pmix else { return };
        pmix.until_ns = None;
        let is_awaited = std::mem::take(&mut pmix.is_awaited);
        self.kill_pmix();
        let reason = Code::OpenMpi.mark(reason);
        if self.started {
            let lives =
                |task: &Task| !task.has_ended() && !matches!(task.phase, Phase::Ending { .. });
            if let Some(index) = self.tasks.iter().position(lives).filter(|_| !self.killed) {
                self.abort(Abort { index, code: 1, message: reason }, context);
            }
            return;
        }
        self.program = Err(Refusal::new(reason));
        if is_awaited {
            // Each ends with the reason.
            self.start(context);
        }
    }

    fn drop_pmix_link(&mut self, context: &mut Context) {
        let link = self.pmix.as_mut().and_then(|pmix| pmix.link.take());
        if let Some((link, token)) = link {
            context.watches.remove(&link, token);
        }
    }

    fn kill_pmix(&self) {
        if let Some(pid) = self.pmix.as_ref().and_then(|pmix| pmix.pid) {
            // Not reaped yet: the number is still its own.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// All tasks have ended: the server does. Whether it has.
    pub(super) fn end_pmix_server(&mut self, context: &mut Context) -> bool {
        self.drop_pmix_link(context);
        self.kill_pmix();
        self.pmix.as_ref().is_none_or(|pmix| pmix.pid.is_none())
    }

    /// The process of the server was reaped.
    pub(super) fn on_pmix_reaped(&mut self, end: End, usage: &Usage, context: &mut Context) {
        self.count_pmix(usage);
        let Some(pmix) = &mut self.pmix else { return };
        pmix.pid = None;
        let reason = match (read_report(pmix.report.as_fd()), end) {
            (Ok(Report::Failed { step, errno }), _) => {
                format!("cannot start the PMIx server ({step}): {}", Errno::from_raw(errno).desc())
            }
            (_, End::Exited(code)) => format!("the PMIx server ended with status {code}"),
            (_, End::Signaled(signal)) => format!("the PMIx server was ended by signal {signal}"),
        };
        // What it has said last may be a better reason.
        self.on_pmix(context);
        let has_failed = self.program.is_err() || self.killed;
        if !has_failed && !self.tasks.iter().all(Task::has_ended) {
            self.fail_pmix(&reason, context);
        }
        self.clear_if_ended(context);
        context.touched.insert(self.key());
    }

    /// When the server counts as stuck, if it may.
    pub(super) fn pmix_due_ns(&self) -> Option<u64> {
        self.pmix.as_ref()?.until_ns
    }

    /// A server that is not ready in time is ended, and the tasks with it.
    pub(super) fn look_at_pmix(&mut self, now_ns: u64, context: &mut Context) {
        if self.pmix_due_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.fail_pmix("the PMIx server was not ready in time; the library hangs", context);
        }
    }
}
