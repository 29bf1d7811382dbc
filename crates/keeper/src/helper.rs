//! A helper: a process of a job's user that the keeper starts beside the job's tasks.
//!
//! There are three kinds: the writer of output ([`super::writer`]), the PMIx server
//! ([`super::pmix`]) and spawners ([`super::spawner`]). All are this program, executed with another
//! verb. A connection with the keeper is their first descriptor above the standard streams, and the
//! keeper's order is the first message on it.
//!
//! A helper becomes the job's user by itself ([`tutti_node::helper_user`]): it is executed with the
//! rights of the keeper, so that no process of the job can take it over.
//!
//! A helper is no process of the job's group, so a switch does not stop it. The PMIx server has a
//! group of its own beside that of its job: its memory and its threads are limited there, and the
//! next keeper ends what this one has left.

use super::context::{Context, chain};
use super::job::Job;
use super::program::{Refusal, identity};
use super::start::Source;
use super::watch::{Token, Watch};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::Serialize;
use serde_bytes::ByteBuf;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tracing::warn;
use tutti_linux::inherited::Inherited;
use tutti_linux::reap::End;
use tutti_linux::spawn::{Child, Report, Spawn, read_report};
use tutti_node::executable::RUNNING;
use tutti_node::link::{Interest, Link};
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::processes::{self, Nursery, kill};
use tutti_types::StepKey;
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::handover::HandedHelper;
use tutti_wire::launch::Credentials;
use tutti_wire::limits::FRONT_END_FRAME_BYTES_MAX;
use tutti_wire::pmix::{PMIX_FD, PMIX_FRAME_BYTES_MAX};
use tutti_wire::spawn::SPAWNER_FD;
use tutti_wire::units::format_bytes;
use tutti_wire::writer::WRITER_FD;

/// How often the group of a helper that has ended is tried to be removed, and the pause after each
/// time. The kernel may need a moment.
const REMOVALS_MAX: u32 = 20;
const REMOVAL_NAP: Duration = Duration::from_micros(100);

/// What a helper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Writes the files that several tasks share.
    Writer,
    /// Serves PMIx.
    Pmix,
    /// Serves a spawn, by its number in the job.
    Spawner(u32),
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Writer => "the process that writes the output",
            Self::Pmix => "the PMIx server",
            Self::Spawner(_) => "the process that serves a spawn",
        }
    }

    /// Where it finds its connection.
    const fn descriptor(self) -> i32 {
        match self {
            Self::Writer => WRITER_FD,
            Self::Pmix => PMIX_FD,
            Self::Spawner(_) => SPAWNER_FD,
        }
    }

    const fn frame_bytes_max(self) -> usize {
        match self {
            Self::Writer | Self::Spawner(_) => FRONT_END_FRAME_BYTES_MAX,
            Self::Pmix => PMIX_FRAME_BYTES_MAX,
        }
    }

    const fn watch(self, job: StepKey) -> Watch {
        match self {
            Self::Writer => Watch::Writer(job),
            Self::Pmix => Watch::Pmix(job),
            Self::Spawner(number) => Watch::Spawner(job, number),
        }
    }
}

/// A helper that is to be started.
pub(super) struct Start<'a> {
    pub(super) kind: Kind,
    pub(super) argv: &'a [CString],
    pub(super) environment: &'a [CString],
    pub(super) umask: u32,
    /// The processors that it runs on; those of the keeper if there are none.
    pub(super) processors: &'a [u32],
    /// Its own group, with the limit on memory there.
    pub(super) group: Option<(Cgroup, u64)>,
    /// Its standard streams.
    pub(super) streams: [Source; 3],
}

/// A helper of a job on this node.
#[derive(Debug)]
pub(super) struct Helper {
    kind: Kind,
    /// Its process, until that is reaped.
    pid: Option<i32>,
    /// Tells whether its program was started.
    report: OwnedFd,
    /// Its connection, while that is of use.
    link: Option<(Link, Token)>,
    /// Its own group, until that is removed, with the limit on memory there.
    group: Option<(Cgroup, u64)>,
    /// Whether messages of it wait for the next round.
    has_more: bool,
}

impl Job {
    /// The user that a helper of this job is to become; `None`: it is the keeper's.
    ///
    /// # Errors
    /// If this instance can't start programs as that user.
    pub(super) fn user_of_helper(&self, context: &Context) -> Result<Option<Credentials>, Refusal> {
        let credentials = &self.launch.credentials;
        Ok(identity(credentials, context.launching.uid)?.map(|_| credentials.clone()))
    }
}

impl Helper {
    /// Starts one, and gives it its order.
    ///
    /// # Errors
    /// With the reason. There is no process then.
    pub(super) fn start(
        start: Start<'_>,
        order: &impl Serialize,
        job: StepKey,
        context: &mut Context,
    ) -> Result<Self, Refusal> {
        let kind = start.kind;
        let refused =
            |error: &io::Error| Refusal::io(&format!("cannot start {}", kind.name()), error);
        let room = context.launching.room;
        let made = || -> io::Result<(Link, UnixStream)> {
            let (ours, theirs) = UnixStream::pair()?;
            room.check(&theirs)?;
            let mut link = Link::new(ours)?;
            link.limit(kind.frame_bytes_max());
            link.greet(Role::Server);
            link.send(order);
            Ok((link, theirs))
        };
        let spawned = made().and_then(|(link, theirs)| {
            let both = Interest { read: true, write: true };
            let token = context.watches.add(&link, kind.watch(job), both)?;
            // After this nothing fails: a process that exists is known, and reaped.
            match start.spawn(&theirs, &mut context.launching.nursery) {
                Ok(child) => Ok((child, link, token)),
                Err(error) => {
                    context.watches.remove(&link, token);
                    Err(error)
                }
            }
        });
        let (child, mut link, token) = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                if let Some((group, _)) = &start.group {
                    remove(group);
                }
                return Err(refused(&error));
            }
        };
        context.children.helpers.insert(child.pid, (kind, job));
        // What does not fit is sent with the next event.
        let _ = link.flush();
        Ok(Self {
            kind,
            pid: Some(child.pid),
            report: child.report,
            link: Some((link, token)),
            group: start.group,
            has_more: false,
        })
    }

    /// Whether its process was not reaped yet.
    pub(super) const fn is_there(&self) -> bool {
        self.pid.is_some()
    }

    /// Its connection, while that is of use.
    pub(super) fn link(&mut self) -> Option<&mut Link> {
        self.link.as_mut().map(|(link, _)| link)
    }

    /// Takes its connection away from it.
    pub(super) const fn take_link(&mut self) -> Option<(Link, Token)> {
        self.link.take()
    }

    /// Takes note whether messages of it were left for the next round: no more is read of it then.
    pub(super) const fn leave_more(&mut self, has_more: bool) {
        self.has_more = has_more;
    }

    /// Whether messages of it wait for the next round.
    pub(super) const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Sends what waits.
    pub(super) fn settle(&mut self, context: &Context) {
        let Some((link, token)) = &mut self.link else { return };
        // Where that fails, reading does too.
        let write = link.flush().is_ok() && link.unsent() > 0;
        let interest = Interest { read: !self.has_more, write };
        context.watches.modify(&*link, *token, interest);
    }

    /// Hears no more of it.
    pub(super) fn drop_link(&mut self, context: &mut Context) {
        if let Some((link, token)) = self.link.take() {
            context.watches.remove(&link, token);
        }
    }

    /// Kills it, also while it is stopped. It is still to be reaped.
    pub(super) fn kill(&self) {
        if let Some(pid) = self.pid {
            // Not reaped yet: the number is still its own.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if let Some((group, _)) = &self.group {
            let _ = group.kill_at_once();
        }
    }

    /// Kills one that the kernel may hold, and does not wait for its end.
    pub(super) fn give_up(&mut self, context: &mut Context) {
        self.kill();
        if let Some(pid) = self.pid.take() {
            context.children.helpers.remove(&pid);
        }
    }

    /// Whether this is its process, which was not reaped before.
    pub(super) fn is_its(&self, pid: i32) -> bool {
        self.pid == Some(pid)
    }

    /// Takes note that its process was reaped, and removes its group. Why it ended, or never began.
    pub(super) fn end(&mut self, end: End) -> String {
        self.pid = None;
        let reason = self.reason(end);
        if let Some((group, _)) = self.group.take() {
            remove(&group);
        }
        reason
    }

    fn reason(&self, end: End) -> String {
        let name = self.kind.name();
        if let Ok(Report::Failed { step, errno }) = read_report(self.report.as_fd()) {
            return format!("cannot start {name} ({step}): {}", Errno::from_raw(errno).desc());
        }
        if let Some((group, most)) = &self.group
            && group.oom_kills() > 0
        {
            return format!("{name} needed more memory than its {}", format_bytes(*most));
        }
        match end {
            End::Exited(code) => format!("{name} ended with status {code}"),
            End::Signaled(signal) => format!("{name} was ended by signal {signal}"),
        }
    }

    /// What another program must know to go on with it.
    pub(super) fn hand_over(&self) -> HandedHelper {
        let group = self.group.as_ref();
        HandedHelper {
            pid: self.pid,
            report: self.report.as_raw_fd(),
            link: self.link.as_ref().map(|(link, _)| link.hand_over()),
            group: group.map(|(it, most)| (ByteBuf::from(it.path().as_os_str().as_bytes()), *most)),
        }
    }

    /// Goes on with one of another program.
    ///
    /// # Errors
    /// If a descriptor of it was not left.
    pub(super) fn take_over(
        handed: HandedHelper,
        (kind, job): (Kind, StepKey),
        context: &mut Context,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let mut link = None;
        if let Some(held) = handed.link {
            let taken = Link::take_over(held, kind.frame_bytes_max(), inherited)?;
            // What waited for room is sent with the next event.
            let both = Interest { read: true, write: true };
            let token = context.watches.add(&taken, kind.watch(job), both)?;
            link = Some((taken, token));
        }
        if let Some(pid) = handed.pid {
            context.children.helpers.insert(pid, (kind, job));
        }
        let open = |(path, most): (ByteBuf, u64)| {
            // If it can't be opened, the next keeper removes it.
            Some((Cgroup::open(Path::new(OsStr::from_bytes(&path))).ok()?, most))
        };
        let group = handed.group.and_then(open);
        let report = inherited.take(handed.report)?;
        // Room to write is watched, and so what was left is looked at.
        let has_more = matches!(kind, Kind::Pmix);
        Ok(Self { kind, pid: handed.pid, report, link, group, has_more })
    }
}

impl Start<'_> {
    /// See [`Spawn::companions`].
    fn companions(&self) -> Vec<CString> {
        let files = self.group.as_ref().map(|(group, _)| group.companions()).unwrap_or_default();
        files.iter().filter_map(|file| CString::new(file.as_os_str().as_bytes()).ok()).collect()
    }

    /// Makes the process, which finds its connection in this socket.
    fn spawn(&self, theirs: &UnixStream, nursery: &mut Nursery) -> io::Result<Child> {
        let spawn = Spawn {
            argv: self.argv,
            env: [self.environment, &[]],
            program: &[CString::new(RUNNING).unwrap_or_default()],
            cwd: c"/",
            umask: self.umask,
            nice: Some(0),
            rlimits: &[],
            identity: None,
            cgroup: self.group.as_ref().map(|(group, _)| group.fd()),
            companions: &self.companions(),
            limits_memory: self.group.is_some(),
            ipc: None,
            processors: (!self.processors.is_empty()).then_some(self.processors),
            held_by_group: false,
            stdio: [&self.streams[0], &self.streams[1], &self.streams[2]].map(Source::for_child),
            pass: &[(theirs.as_raw_fd(), self.kind.descriptor())],
            new_session: true,
            terminal: false,
            minder: false,
            isolated: false,
            adopts_orphans: false,
            ends_with_parent: false,
            complaint: None,
        };
        nursery.spawn(&spawn, &processes::unwanted())
    }
}

/// Removes a group in which nothing runs any more.
fn remove(group: &Cgroup) {
    for _ in 0..REMOVALS_MAX {
        match group.remove() {
            Ok(true) => return,
            Ok(false) => {
                let _ = group.kill_at_once();
                std::thread::sleep(REMOVAL_NAP);
            }
            Err(error) => {
                warn!(code = %Code::System, "{}", chain(&error));
                return;
            }
        }
    }
    warn!(code = %Code::ProcessStuck, "{} does not end", group.path().display());
}
