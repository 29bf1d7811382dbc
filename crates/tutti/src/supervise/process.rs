//! A daemon's process: a child of ours, also one that the program before in this process has
//! started, or the child of a supervisor that has ended.

use nix::libc::{self, pid_t};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use tutti_linux::pidfd::Held;
use tutti_linux::proc::ProcessStat;

/// A daemon that is not reaped, or not seen to have ended.
pub(super) struct Process {
    pid: Pid,
    /// If it is no child of ours.
    held: Option<Held>,
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
    const fn of(pid: pid_t) -> Self {
        Self { pid: Pid::from_raw(pid), held: None }
    }

    /// One that another supervisor has started.
    pub(super) const fn held(pid: pid_t, process: OwnedFd) -> Self {
        Self { pid: Pid::from_raw(pid), held: Some(Held::resume(pid, process)) }
    }

    /// What the program before in this process had as this daemon: a child, or not.
    pub(super) fn resume(pid: pid_t) -> Self {
        let own = std::process::id().cast_signed();
        match ProcessStat::read(pid) {
            Ok(stat) if stat.ppid != own => {
                Self { pid: Pid::from_raw(pid), held: Held::open(pid, stat.start_time).ok() }
            }
            _ => Self::of(pid),
        }
    }

    pub(super) const fn pid(&self) -> pid_t {
        self.pid.as_raw()
    }

    pub(super) const fn is_child(&self) -> bool {
        self.held.is_none()
    }

    /// Readable once it has ended, if no signal tells that.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().map(Held::as_fd)
    }

    /// The number of a child is its own, since it is not reaped.
    pub(super) fn signal(&self, signal: Signal) {
        match &self.held {
            Some(held) => held.signal(signal as libc::c_int),
            None => drop(kill(self.pid, signal)),
        }
    }

    /// Reaps it, if it has ended; it is gone then.
    pub(super) fn try_wait(&self) -> Option<Ended> {
        match &self.held {
            Some(held) => held.has_ended().then(|| Ended::of(held)),
            None => self.reap(WaitPidFlag::WNOHANG),
        }
    }

    /// Kills it, and waits until it has ended.
    pub(super) fn end(&self) {
        self.signal(Signal::SIGKILL);
        match &self.held {
            Some(held) => {
                let mut ended = [PollFd::new(held.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut ended, PollTimeout::NONE);
            }
            None => drop(self.reap(WaitPidFlag::empty())),
        }
    }

    fn reap(&self, flags: WaitPidFlag) -> Option<Ended> {
        loop {
            return match waitpid(self.pid, Some(flags)) {
                Ok(WaitStatus::Exited(_, status)) => Some(Ended::Exited(status)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ended::Killed(signal)),
                Err(nix::errno::Errno::EINTR) => continue,
                // No child of ours: another process has reaped it.
                Err(_) => Some(Ended::Exited(-1)),
                Ok(_) => None,
            };
        }
    }
}

impl Ended {
    /// Kernels before 6.15 don't tell others than its parent.
    fn of(held: &Held) -> Self {
        let status = held.status().map(|raw| WaitStatus::from_raw(Pid::from_raw(held.pid()), raw));
        match status {
            Some(Ok(WaitStatus::Exited(_, status))) => Self::Exited(status),
            Some(Ok(WaitStatus::Signaled(_, signal, _))) => Self::Killed(signal),
            _ => Self::Exited(-1),
        }
    }

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
