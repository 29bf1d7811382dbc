//! A daemon's process: a child of ours, also one that the program before in this process has started.

use nix::libc::pid_t;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fmt;
use std::io;
use std::process::Command;

/// A child that is not reaped.
pub(super) struct Process {
    pid: Pid,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Killed(Signal),
}

impl Process {
    /// Starts one.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        Ok(Self::of(child.id().cast_signed()))
    }

    /// A child that is there.
    pub(super) const fn of(pid: pid_t) -> Self {
        Self { pid: Pid::from_raw(pid) }
    }

    pub(super) const fn pid(&self) -> pid_t {
        self.pid.as_raw()
    }

    /// It is not reaped, so the number is its own.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }

    /// Reaps it, if it has ended; it is gone then.
    pub(super) fn try_wait(&self) -> Option<Ended> {
        self.reap(WaitPidFlag::WNOHANG)
    }

    /// Kills it, and reaps it.
    pub(super) fn end(&self) {
        self.signal(Signal::SIGKILL);
        self.reap(WaitPidFlag::empty());
    }

    fn reap(&self, flags: WaitPidFlag) -> Option<Ended> {
        loop {
            return match waitpid(self.pid, Some(flags)) {
                Ok(WaitStatus::Exited(_, status)) => Some(Ended::Exited(status)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ended::Killed(signal)),
                Err(nix::errno::Errno::EINTR) => continue,
                // No child of ours: somebody else has reaped it.
                Err(_) => Some(Ended::Exited(-1)),
                Ok(_) => None,
            };
        }
    }
}

impl Ended {
    pub(super) const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "{signal}"),
        }
    }
}
