//! Front ends of what runs in a virtual machine: `tutti run` inside the job, for the user's program
//! and for each batch of spawned tasks.

use super::collected::Collected;
use super::manager::Batch;
use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde_bytes::ByteBuf;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use tutti_wire::pvm::Message;

/// The status of a process that was not started, as `wait` gives it.
pub(super) const NOT_STARTED: i32 = 126 << 8;

/// Maximum length of a line of a front end: why a step was declined.
const LINE_BYTES_MAX: usize = 1024;

/// How such a line begins.
const DECLINED: &str = "declined ";

/// Maximum length of a line of output that another task collects, as its front end prints it.
pub(super) const LINE_OF_OUTPUT_MAX: usize = 1 << 20;

/// The variable with the variables that each task has for itself.
const OWN: &str = "PVM_OF_TASKS";

/// What each spawned task is at first: it sets the variable that is its own.
const SETS_OWN: &str = "n=0; for own in $PVM_OF_TASKS; do [ $n = $TUTTI_RANK ] && export \"$own\"; \
    n=$((n + 1)); done; unset PVM_OF_TASKS n own; exec \"$0\" \"$@\"";

/// What a front end has of its own beside the environment of this process, and each argument and
/// variable beside its bytes, is within this.
const RESERVE_BYTES: usize = 16 << 10;

/// Maximum length of arguments and variables of a batch together: the kernel starts no process with
/// more, and the front end has the environment of this process, too.
pub(super) fn room() -> usize {
    let most = sysconf(SysconfVar::ARG_MAX).ok().flatten();
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(128 << 10);
    let variables = std::env::vars_os();
    let own: usize = variables.map(|(name, value)| name.len() + value.len() + 16).sum();
    most.saturating_sub(own + RESERVE_BYTES)
}

/// Where tasks start.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The node; `None`: the job has no other.
    pub(super) node: Option<String>,
    /// The variables by which they find the daemon there.
    pub(super) variables: Vec<(OsString, OsString)>,
}

impl Spot {
    fn apply(&self, front: &mut Command) {
        if let Some(node) = &self.node {
            front.arg("-w").arg(node);
        }
        front.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }
}

/// Spawned tasks that run.
#[derive(Debug)]
pub(super) struct Step {
    front: Child,
    ends: UnixStream,
    text: Vec<u8>,
    /// By rank; `None`: it has ended.
    tasks: Vec<Option<u32>>,
    /// Their output, if a task collects it.
    output: Option<Collected>,
    /// Why it was declined, until that is said.
    declined: Option<String>,
    /// The host on which they are.
    pub(super) host: u32,
    is_server: bool,
    is_open: bool,
}

/// Starts the program, which reads what this process would.
///
/// # Errors
/// If there can be no further process.
pub(super) fn start_program(command: &[OsString], spot: &Spot) -> anyhow::Result<Child> {
    let mut front = Command::new(std::env::current_exe()?);
    front.args(["run", "--only-step", "-n", "1"]);
    spot.apply(&mut front);
    front.arg("--").args(command);
    spawn(&mut front)
}

/// Starts a batch of tasks.
///
/// # Errors
/// If there can be no further process, or arguments and environment are too long.
pub(super) fn start(batch: &Batch, spot: &Spot) -> anyhow::Result<Step> {
    let (ends, theirs) = UnixStream::pair()?;
    ends.set_nonblocking(true)?;
    let path = batch.argv.first().context("no program")?;
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut front = Command::new(std::env::current_exe()?);
    front.args(["run", "--only-step", "--tell-ends", "--keep-going", "-n"]);
    front.arg(batch.tasks.len().to_string());
    front.args(batch.is_server.then_some("--overlap"));
    front.args(batch.output.map(|_| "--label=json"));
    spot.apply(&mut front);
    if let Some(directory) = &batch.directory {
        front.arg("-D").arg(OsStr::from_bytes(directory));
    }
    front.arg("--name").arg(OsStr::from_bytes(name)).args(["--", "/bin/sh", "-c", SETS_OWN]);
    front.args(batch.argv.iter().map(|word| OsStr::from_bytes(word)));
    front.envs(batch.environment.iter().filter_map(variable));
    let own: Vec<&[u8]> = batch.tasks.iter().map(|(_, own)| own.as_slice()).collect();
    front.env(OWN, OsStr::from_bytes(&own.join(&b' ')));
    front.stdin(Stdio::from(OwnedFd::from(theirs)));
    let output = batch.output.map(|to| Collected::of(&mut front, to, batch)).transpose()?;
    if batch.is_server {
        // It never ends by itself, and how it was ended is no news.
        front.stderr(Stdio::null());
    }
    Ok(Step {
        front: spawn(&mut front)?,
        ends,
        text: Vec::new(),
        tasks: batch.tasks.iter().map(|(task, _)| Some(*task)).collect(),
        output,
        declined: None,
        host: batch.host,
        is_server: batch.is_server,
        is_open: true,
    })
}

/// Name and value, if it has both.
fn variable(text: &ByteBuf) -> Option<(&OsStr, &OsStr)> {
    let at = text.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
    Some((OsStr::from_bytes(&text[..at]), OsStr::from_bytes(&text[at + 1..])))
}

/// Starts a front end. It inherits the signals that are held here, and holds and reads them itself:
/// one that this process let through meanwhile would be lost, such as that of the program's end.
///
/// # Errors
/// If there can be no further process.
pub(super) fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command.spawn().context("cannot start a front end of the job")
}

/// Has a front end end what it shows.
pub(super) fn ask_to_end(front: &Child) {
    if let Ok(pid) = i32::try_from(front.id()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// The exit code that a shell would show.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

impl Step {
    /// The tasks that have ended since, with their statuses. All have when the front end has.
    pub(super) fn read_ends(&mut self) -> Vec<(u32, i32)> {
        let mut found = Vec::new();
        let mut room = [0; 1024];
        while self.is_open {
            match self.ends.read(&mut room) {
                Ok(0) => self.is_open = false,
                Ok(count) => self.text.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_open = error.kind() == ErrorKind::WouldBlock;
                    break;
                }
            }
            while let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                found.extend(self.end_of(&line));
            }
            self.is_open &= self.text.len() <= LINE_BYTES_MAX;
        }
        if !self.is_open {
            found
                .extend(self.tasks.iter_mut().filter_map(Option::take).map(|it| (it, NOT_STARTED)));
        }
        found
    }

    fn end_of(&mut self, line: &[u8]) -> Option<(u32, i32)> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        if let Some(reason) = line.strip_prefix(DECLINED) {
            self.declined = Some(reason.to_owned());
            return None;
        }
        let (rank, status) = line.split_once(' ')?;
        let task = self.tasks.get_mut(rank.parse::<usize>().ok()?)?.take()?;
        Some((task, status.parse().ok()?))
    }

    /// Why it was declined, if it was and that was not asked before.
    pub(super) const fn take_declined(&mut self) -> Option<String> {
        self.declined.take()
    }

    /// Whether its front end has ended, which is waited for then.
    pub(super) fn is_over(&mut self) -> bool {
        let is_read = self.output.as_ref().is_none_or(|it| !it.is_open());
        !self.is_open && is_read && !matches!(self.front.try_wait(), Ok(None))
    }

    /// The output of its tasks, while more may come.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().filter(|it| it.is_open()).map(AsFd::as_fd)
    }

    /// What those hear that collect the output of its tasks.
    pub(super) fn read_output(&mut self) -> Vec<Message> {
        self.output.as_mut().map(Collected::read).unwrap_or_default()
    }

    /// Whether its front end may tell more.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether it only serves other tasks.
    pub(super) const fn is_server(&self) -> bool {
        self.is_server
    }

    /// Has its tasks end.
    pub(super) fn ask_to_end(&mut self) {
        ask_to_end(&self.front);
    }
}

impl AsFd for Step {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }
}
