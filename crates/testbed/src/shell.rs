//! The command of `testbed up`, and what ends it early: the cluster must be cleared away whatever comes.

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::io::{self, PipeReader, pipe};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// How long a command may take to end that was told to.
const PATIENCE_MS: u16 = 2_000;

/// What tells this process to end: held, so that it can be heeded when nothing is half done.
#[derive(Debug)]
pub(crate) struct Ends(SignalFd);

impl Ends {
    /// To be called before any other thread is there: one that does not hold them would be ended by them.
    pub(crate) fn hold() -> io::Result<Self> {
        let held = held();
        held.thread_block()?;
        Ok(Self(SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// One that has come.
    pub(crate) fn next(&self) -> Option<Signal> {
        let found = self.0.read_signal().ok()??;
        Signal::try_from(i32::try_from(found.ssi_signo).ok()?).ok()
    }
}

fn held() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Runs a command to its end, or until this process is told to end. Interrupts are the command's, not ours.
///
/// # Errors
/// If it can't be started.
pub(crate) fn run(command: Command, ends: &Ends) -> anyhow::Result<ExitCode> {
    let (pid, running, status) = start(command)?;
    let told = loop {
        let mut looks = [
            PollFd::new(ends.0.as_fd(), PollFlags::POLLIN),
            PollFd::new(running.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut looks, PollTimeout::NONE)?;
        match ends.next() {
            Some(Signal::SIGINT) => {}
            None if looks[1].any() != Some(true) => {}
            told => break told,
        }
    };
    let Some(told) = told else {
        let code = status.recv().context("the command is lost")??.code();
        return Ok(code
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from));
    };
    // A shell that is used by somebody takes no notice of SIGTERM.
    for signal in [Signal::SIGHUP, Signal::SIGCONT] {
        let _ = kill(pid, signal);
    }
    let gone = PollFd::new(running.as_fd(), PollFlags::POLLIN);
    if poll(&mut [gone], PATIENCE_MS)? == 0 {
        let _ = kill(pid, Signal::SIGKILL);
    }
    Ok(ExitCode::from(u8::try_from(128 + told as i32).unwrap_or(u8::MAX)))
}

/// A command that runs: its process, what is closed when it has ended, and how it ended.
type Running = (Pid, PipeReader, Receiver<io::Result<ExitStatus>>);

fn start(mut command: Command) -> anyhow::Result<Running> {
    let (running, closed_at_end) = pipe()?;
    let (sender, status) = channel();
    let (begun, child) = channel();
    thread::Builder::new().name("command".into()).spawn(move || {
        // It inherits what is held. For this moment, then, nothing is.
        let spawned =
            held().thread_unblock().map_err(io::Error::from).and_then(|()| command.spawn());
        let _ = held().thread_block();
        let mut spawned = match spawned {
            Ok(spawned) => spawned,
            Err(error) => return drop(begun.send(Err(error))),
        };
        let _ = begun.send(Ok(spawned.id()));
        let _ = sender.send(Child::wait(&mut spawned));
        drop(closed_at_end);
    })?;
    let pid = child.recv().context("the command is lost")?.context("cannot start the command")?;
    Ok((Pid::from_raw(pid.cast_signed()), running, status))
}
