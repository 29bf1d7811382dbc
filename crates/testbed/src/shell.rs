//! Commands of `testbed`, and what ends them early: the cluster must be cleared away whatever
//! comes.

use anyhow::{Context, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::io::{self, PipeReader, pipe};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take to end that was told to.
const PATIENCE_MS: u16 = 2_000;

/// What tells this process to end: held, so that it can be heeded when nothing is half done.
#[derive(Debug)]
pub(crate) struct Ends(SignalFd);

impl Ends {
    /// To be called before any other thread is there: one that does not hold them would be ended by
    /// them.
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

    /// Sleeps.
    ///
    /// # Errors
    /// If this process gets SIGTERM meanwhile.
    pub(crate) fn sleep(&self, how_long: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + how_long;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = left.as_millis().try_into().unwrap_or(PollTimeout::MAX);
            poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], left)?;
            if let Some(told) = self.next() {
                bail!("ended by {told}");
            }
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// Runs a command to its end, which must be a good one.
    ///
    /// # Errors
    /// With what it said; or if this process gets SIGTERM before: then the command has ended, too.
    pub(crate) fn expect(&self, mut command: Command) -> anyhow::Result<Output> {
        let named = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What it has started ends with it.
        command.process_group(0);
        let running = Running::start(command, Child::wait_with_output, false)?;
        if let Some(told) = running.wait(self, |_| true)? {
            let _ = killpg(running.pid, Signal::SIGKILL);
            bail!("ended by {told}");
        }
        tutti_testbed::is_good(&named, running.result()?)
    }
}

fn held() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Runs a command to its end, or until this process gets SIGTERM. Interrupts are the command's, not
/// ours.
///
/// # Errors
/// If it can't be started.
pub(crate) fn run(command: Command, ends: &Ends) -> anyhow::Result<ExitCode> {
    if let Some(told) = ends.next() {
        bail!("ended by {told}");
    }
    let running = Running::start(command, |mut child| child.wait(), true)?;
    let Some(told) = running.wait(ends, |signal| signal != Signal::SIGINT)? else {
        let code = running.result()?.code();
        return Ok(code
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from));
    };
    // An interactive shell ignores SIGTERM.
    for signal in [Signal::SIGHUP, Signal::SIGCONT] {
        let _ = kill(running.pid, signal);
    }
    let gone = PollFd::new(running.lasts.as_fd(), PollFlags::POLLIN);
    if poll(&mut [gone], PATIENCE_MS)? == 0 {
        let _ = kill(running.pid, Signal::SIGKILL);
    }
    Ok(ExitCode::from(u8::try_from(128 + told as i32).unwrap_or(u8::MAX)))
}

/// A command that runs.
struct Running<T> {
    pid: Pid,
    /// Closed at the other side when it has ended.
    lasts: PipeReader,
    /// What came of it.
    result: Receiver<io::Result<T>>,
}

impl<T: Send + 'static> Running<T> {
    /// `is_told`: whether the command gets the signals that are held here.
    fn start(
        mut command: Command,
        wait: impl FnOnce(Child) -> io::Result<T> + Send + 'static,
        is_told: bool,
    ) -> anyhow::Result<Self> {
        let (lasts, closed_at_end) = pipe()?;
        let (sender, result) = channel();
        let (begun, child) = channel();
        thread::Builder::new().name("command".into()).spawn(move || {
            // It inherits what is held. For this moment, then, nothing is.
            let unheld = if is_told { held().thread_unblock() } else { Ok(()) };
            let spawned = unheld.map_err(io::Error::from).and_then(|()| command.spawn());
            let _ = held().thread_block();
            let spawned = match spawned {
                Ok(spawned) => spawned,
                Err(error) => return drop(begun.send(Err(error))),
            };
            let _ = begun.send(Ok(spawned.id()));
            let _ = sender.send(wait(spawned));
            drop(closed_at_end);
        })?;
        let pid =
            child.recv().context("the command is lost")?.context("cannot start the command")?;
        Ok(Self { pid: Pid::from_raw(pid.cast_signed()), lasts, result })
    }

    /// Waits for its end; or for a signal that is to end this process, which it returns.
    fn wait(&self, ends: &Ends, is_end: impl Fn(Signal) -> bool) -> anyhow::Result<Option<Signal>> {
        loop {
            let mut looks = [
                PollFd::new(ends.0.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.lasts.as_fd(), PollFlags::POLLIN),
            ];
            poll(&mut looks, PollTimeout::NONE)?;
            match ends.next() {
                Some(signal) if is_end(signal) => return Ok(Some(signal)),
                None if looks[1].any() == Some(true) => return Ok(None),
                _ => {}
            }
        }
    }

    fn result(&self) -> anyhow::Result<T> {
        Ok(self.result.recv().context("the command is lost")??)
    }
}
