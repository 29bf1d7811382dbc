//! Trying a group out: a process can be born into it, does not run while it is frozen, and runs
//! after.
//!
//! A process that is born frozen has all the descriptors of its maker and can't close them: if that
//! one is killed in the middle of a trial, its locks stay held, and its sockets open, for as long
//! as no supervisor finds the frozen process. So a helper stands between, which has closed
//! everything before it makes the process, and ends it as soon as the trying process has seen
//! enough or is gone.

use super::{Cgroup, subdirectories};
use crate::clock::Naps;
use crate::pidfd;
use crate::proc::ProcessStat;
use crate::spawn::{Fork, close_all_but, fork_into, read_number, write_number};
use crate::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a trial waits for the kernel. Far above what a loaded machine needs.
const TRIAL: Duration = Duration::from_secs(10);

/// How the names of groups begin in which something is tried; the number of the process follows.
const NAME: &str = "trial-";

/// The name of the group for a trial of this process.
pub(super) fn name() -> String {
    format!("{NAME}{}", std::process::id())
}

/// Proves that a process can be born into `group`, does not run while it is frozen, and runs after.
///
/// # Errors
/// What it does instead, or what the kernel says.
pub(super) fn try_out(group: &Cgroup) -> Result<()> {
    let misbehaves = |what| Error::Misbehaves { path: group.path().to_owned(), what };
    group.request_freeze()?;
    let born = Born::into(group)?;
    let freezes = settles_frozen(group);
    let ran_early = ends_within(born.process.as_fd(), Duration::ZERO);
    let thaws = group.request_thaw();
    let ran = ends_within(born.process.as_fd(), TRIAL);
    drop(born);
    thaws?;
    match (freezes?, ran_early, ran) {
        (false, _, _) => Err(misbehaves("it does not become frozen")),
        (_, true, _) => Err(misbehaves("a process runs in it while it is frozen")),
        (_, _, false) => Err(misbehaves("a process does not run in it after the thaw")),
        (true, false, true) => Ok(()),
    }
}

/// Ends what is left below `top` of trials whose processes are gone, helpers and all. What can't be
/// removed stays: it is in no way.
pub(super) fn sweep(top: &Cgroup) {
    for path in subdirectories(top.path()).unwrap_or_default() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let tries = name.strip_prefix(NAME).and_then(|pid| pid.parse().ok());
        if tries.is_some_and(|pid| ProcessStat::read(pid).is_err_and(|error| error.is_gone()))
            && let Ok(group) = Cgroup::open_below(&path, Arc::clone(&top.top))
        {
            let _ = group.kill();
            let _ = group.remove();
        }
    }
}

/// A process that was born into a group and does nothing but end, and the helper that has made it.
/// Both are gone when this is dropped.
struct Born {
    process: OwnedFd,
    /// Ends it when dropped.
    _helper: Helper,
}

impl Born {
    fn into(group: &Cgroup) -> Result<Self> {
        let helper = Helper::start(group)?;
        let refused = Error::file("start a process in", group.path());
        let pid = match helper.answer() {
            Ok(pid) if pid > 0 => pid,
            Ok(errno) => return Err(refused(io::Error::from_raw_os_error(-errno))),
            Err(error) => return Err(refused(error)),
        };
        // The number is its own: its parent, the helper, has not reaped it.
        Ok(Self { process: pidfd::open(pid)?, _helper: helper })
    }
}

/// What stands between the trying process and the process that is born.
struct Helper {
    pid: i32,
    pidfd: OwnedFd,
    /// It tells what came of it there, and ends when this end is closed.
    line: UnixStream,
}

impl Helper {
    fn start(group: &Cgroup) -> Result<Self> {
        let pair = UnixStream::pair();
        let (ours, its) = pair.map_err(|source| Error::Call { call: "socketpair", source })?;
        // SAFETY: the child only enters `help`, which makes system calls and nothing else.
        let fork = unsafe { fork_into(None, 0, None) };
        match fork.map_err(|source| Error::Call { call: "clone", source })? {
            Fork::Child => help(group.fd(), its.as_raw_fd()),
            Fork::Parent { pid, pidfd } => Ok(Self { pid, pidfd, line: ours }),
        }
    }

    /// The number of the process that it has made, or that of the error, negated.
    fn answer(&self) -> io::Result<i32> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut fds =
            [self.line.as_fd(), self.pidfd.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        while let Err(error) = poll(&mut fds, PollTimeout::NONE) {
            if error != nix::errno::Errno::EINTR {
                return Err(error.into());
            }
        }
        // The process itself may hold the line open when the helper was killed.
        self.line.set_nonblocking(true)?;
        read_number(self.line.as_fd())?.ok_or_else(gone)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Other children may have a copy: it must end for all of them.
        let _ = self.line.shutdown(Shutdown::Both);
        // SAFETY: it is our child and not yet reaped; no status is wanted.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
    }
}

/// All that the helper does: between fork and exec, so only system calls.
fn help(group: BorrowedFd, line: RawFd) -> ! {
    close_all_but(group.as_raw_fd(), line);
    // SAFETY: the child does nothing but exit.
    let said = match unsafe { fork_into(Some(group), 0, None) } {
        // SAFETY: ends the process without running anything of the trying process.
        Ok(Fork::Child) => unsafe { libc::_exit(0) },
        Ok(Fork::Parent { pid, .. }) => pid,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    };
    write_number(line, said);
    let mut nothing = 0_u8;
    // SAFETY: the buffer is one byte. No end ever writes: it returns when the other end is closed.
    while unsafe { libc::read(line, (&raw mut nothing).cast(), 1) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    if said > 0 {
        // SAFETY: it is this process's child and not yet reaped. SIGKILL reaches frozen processes
        // too.
        unsafe {
            libc::kill(said, libc::SIGKILL);
            libc::waitpid(said, std::ptr::null_mut(), libc::__WALL);
        }
    }
    // SAFETY: as above.
    unsafe { libc::_exit(0) }
}

fn settles_frozen(group: &Cgroup) -> Result<bool> {
    let end = Instant::now() + TRIAL;
    let mut naps = Naps::default();
    loop {
        if group.is_frozen()? && group.is_populated()? {
            return Ok(true);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        naps.nap(left);
    }
}

/// Whether the process has ended, after waiting for that for at most `limit`.
fn ends_within(process: BorrowedFd, limit: Duration) -> bool {
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(process, PollFlags::POLLIN)];
    matches!(poll(&mut fds, timeout), Ok(count) if count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Hierarchy;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    /// What a process has open.
    fn open_files(pid: i32) -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect()
    }

    fn members(group: &Cgroup) -> Vec<i32> {
        let text = fs::read_to_string(group.path().join("cgroup.procs")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn subtree(name: &str) -> Hierarchy {
        Hierarchy::find(&format!("tutti-test-{}-{name}", std::process::id()))
            .unwrap_or_else(|why| panic!("THIS TEST NEEDS ROOT AND CGROUP2: {why}"))
    }

    #[test]
    fn who_is_born_frozen_holds_nothing_of_whoever_tries() {
        let top = subtree("holds");
        let group = top.create("trial").unwrap();
        let (secret, _) = UnixStream::pair().unwrap();
        let secret = fs::read_link(format!("/proc/self/fd/{}", secret.as_raw_fd())).unwrap();
        group.request_freeze().unwrap();
        let born = Born::into(&group).unwrap();
        assert!(settles_frozen(&group).unwrap());
        let [pid] = members(&group)[..] else { panic!("{:?}", members(&group)) };
        for process in [pid, born._helper.pid] {
            let open = open_files(process);
            assert!(!open.contains(&secret) && open.len() <= 3, "{open:?}");
        }
        // Also when it never comes to run: no process is left.
        drop(born);
        assert!(!group.is_populated().unwrap());
        assert!(top.remove().unwrap());
    }

    #[test]
    fn trials_of_who_is_gone_are_swept_away() {
        let top = subtree("swept");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let gone = top.create(&format!("{NAME}{}", ended.id())).unwrap();
        ended.wait().unwrap();
        gone.request_freeze().unwrap();
        let born = Born::into(&gone).unwrap();
        // SAFETY: it is our child and not yet reaped.
        unsafe { libc::kill(born._helper.pid, libc::SIGKILL) };
        drop(born);
        assert!(gone.is_populated().unwrap(), "the helper was to leave it behind");
        let own = top.create(&name()).unwrap();
        sweep(top.group());
        let left: Vec<String> = top.children().unwrap();
        assert!(left.contains(&name()), "{left:?}");
        // Its directory goes once it has been reaped, by the next trial.
        let end = Instant::now() + TRIAL;
        while gone.path().exists() {
            assert!(Instant::now() < end, "{left:?}");
            sweep(top.group());
        }
        own.remove().unwrap();
        assert!(top.remove().unwrap());
    }
}
