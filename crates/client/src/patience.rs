//! How long an answer is waited for. A daemon that is stopped, or hangs, takes connections and
//! never answers: a client says so, and a verb that looks for faults gives up.

use crate::dial;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tutti_linux::peer::peer_credentials;
use tutti_linux::pidfd::Held;
use tutti_linux::proc::{ProcessStat, command_line};
use tutti_node::codes::coded;
use tutti_node::instance::Instance;
use tutti_node::link::Link;
use tutti_wire::code::Code;
use tutti_wire::local::Request;

/// After so long without an answer, it is said once.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// After how many milliseconds a question is given up; 0: never.
static GIVEN_UP_AFTER_MS: AtomicU64 = AtomicU64::new(0);

/// Whether it was said that there is no answer.
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// From now on a question of this process that has no answer for so long is an error.
pub fn give_up_after(patience: Duration) {
    let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    GIVEN_UP_AFTER_MS.store(ms, Ordering::Relaxed);
}

/// Waits until an answer begins to come.
///
/// # Errors
/// If it is given up ([`give_up_after`]).
pub(crate) fn await_answer(link: &mut Link) -> anyhow::Result<()> {
    let given_up = GIVEN_UP_AFTER_MS.load(Ordering::Relaxed);
    let first = if given_up > 0 { Duration::from_millis(given_up) } else { SAID_AFTER };
    if begins_within(link, first) {
        return Ok(());
    }
    let reason = no_answer(link, first);
    if given_up > 0 {
        return Err(coded(Code::ControllerAway, reason));
    }
    // Some answers take long: a job's state is saved, an instance is rolled out.
    if !others_are_answered() && !IS_SAID.swap(true, Ordering::Relaxed) {
        say!("tutti: {reason}");
    }
    Ok(())
}

/// Waits until an answer begins to come, for so long.
///
/// # Errors
/// If none does: what gives none, and what to do about it.
pub fn require_answer(link: &mut Link, patience: Duration) -> anyhow::Result<()> {
    match begins_within(link, patience) {
        true => Ok(()),
        false => Err(coded(Code::ControllerAway, no_answer(link, patience))),
    }
}

/// Whether a question that is answered at once has an answer.
fn others_are_answered() -> bool {
    const SOON: Duration = Duration::from_secs(2);
    let Ok(mut link) = dial(&Instance::locate()) else { return true };
    link.send(&Request::Weights);
    begins_within(&mut link, SOON)
}

/// Whether an answer begins to come in time; also where that can't be waited for.
pub fn begins_within(link: &mut Link, patience: Duration) -> bool {
    if link.has_message() || link.flush().is_err() || link.waits_for_room() {
        return true;
    }
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(link.as_fd(), PollFlags::POLLIN)];
    !matches!(poll(&mut fds, timeout), Ok(0))
}

/// The daemon at the other end: what it is, and its process.
struct Daemon {
    role: String,
    pid: i32,
    is_stopped: bool,
}

impl Daemon {
    fn at(link: &Link) -> Option<Self> {
        let pid = peer_credentials(link.stream()).ok()?.pid;
        let stat = ProcessStat::read(pid).ok()?;
        let line = command_line(&stat);
        let role = line.split_whitespace().nth(1).unwrap_or("daemon").to_owned();
        Some(Self { role, pid, is_stopped: stat.is_stopped() })
    }
}

fn no_answer(link: &Link, waited: Duration) -> String {
    let seconds = waited.as_secs_f64();
    let Some(Daemon { role, pid, is_stopped }) = Daemon::at(link) else {
        return format!("no answer for {seconds:.0} s; `tutti doctor` looks for the reason");
    };
    if is_stopped {
        return format!(
            "the {role} (process {pid}) is stopped, and does not answer; `kill -CONT {pid}` lets it go on"
        );
    }
    match role.as_str() {
        "agent" => format!(
            "no answer for {seconds:.0} s by the agent (process {pid}), or by the controller at the head; \
             `tutti doctor --cluster` there looks for the reason"
        ),
        _ => format!(
            "the {role} (process {pid}) has not answered for {seconds:.0} s; if it hangs, `kill -KILL {pid}` has \
             its supervisor start another, and jobs go on"
        ),
    }
}

/// Ends the daemon at the other end, which does not answer: its supervisor starts another. What it
/// was, if that was possible.
#[must_use]
pub fn end_silent(link: &Link) -> Option<String> {
    let Daemon { role, pid, .. } = Daemon::at(link)?;
    let process = Held::whoever_is(pid).ok()?;
    // The number was its own while it was looked at, if it is now.
    let is_it = Daemon::at(link).is_some_and(|again| again.role == role);
    is_it.then(|| process.signal(Signal::SIGKILL as i32))?;
    Some(format!("the {role} (process {pid})"))
}
