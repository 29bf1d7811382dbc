//! Processes that are not our children: watching for their end, and learning how it came.
//!
//! A descriptor of a process is readable once the process has ended. How it ended, its parent alone
//! has a right to know from `wait`; others learn it from `/proc` while it is not reaped, and from
//! the descriptor itself after that, on kernels from 6.15 on. On older ones a process whose parent
//! is quicker than we are has ended in an unknown way.

use crate::proc::{ProcessStat, ended_status};
use crate::signal::send_to_group;
use crate::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct pidfd_info` as it was first.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    numbers: [u32; 11],
    exit_code: i32,
}

/// `_IOWR(0xff, 11, struct pidfd_info)`.
const GET_INFO: libc::Ioctl = 0xc040_ff0b;
const INFO_EXIT: u64 = 1 << 3;

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub struct Held {
    pid: i32,
    fd: OwnedFd,
}

impl Held {
    /// Takes hold of process `pid`, if it is still the one that began at `start_time` (clock ticks
    /// since boot, as in [`ProcessStat`]).
    ///
    /// # Errors
    /// [`Error::is_gone`] if it has ended, or its number is another's; what `pidfd_open` says
    /// (kernel 5.3 or later).
    pub fn open(pid: i32, start_time: u64) -> Result<Self> {
        let held = Self { pid, fd: open(pid)? };
        // Read after the descriptor was opened: both are of the same process.
        let stat = ProcessStat::read(pid)?;
        if stat.start_time == start_time && !stat.has_ended() {
            return Ok(held);
        }
        Err(gone("pidfd_open"))
    }

    /// Opens the process that has this number now.
    ///
    /// # Errors
    /// [`Error::is_gone`] if that has ended; what `pidfd_open` says (kernel 5.3 or later).
    pub fn whoever_is(pid: i32) -> Result<Self> {
        let held = Self { pid, fd: open(pid)? };
        if held.has_ended() { Err(gone("pidfd_open")) } else { Ok(held) }
    }

    /// What another program held in this process, by its number and its descriptor.
    #[must_use]
    pub const fn resume(pid: i32, fd: OwnedFd) -> Self {
        Self { pid, fd }
    }

    /// Its number.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has ended, reaped or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        has_ended(self.fd.as_fd())
    }

    /// Sends it a signal; nothing happens if it has ended.
    pub fn signal(&self, signal: i32) {
        let none: *mut libc::siginfo_t = std::ptr::null_mut();
        // SAFETY: `none` stands for no information along with the signal; the rest are numbers.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), signal, none, 0);
        }
    }

    /// Sends a signal to the process group that it leads, or to it alone if it leads none. Nothing
    /// happens if both are gone. Kernels before 6.9 take the group by its number, which may be
    /// another's by then if it has ended.
    pub fn signal_group(&self, signal: i32) {
        const PROCESS_GROUP: libc::c_uint = 1 << 2;
        let none: *mut libc::siginfo_t = std::ptr::null_mut();
        let fd = self.fd.as_raw_fd();
        // SAFETY: `none` stands for no information along with the signal; the rest are numbers.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, PROCESS_GROUP) };
        if sent == 0 {
            return;
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINVAL) if !self.has_ended() => send_to_group(self.pid, signal),
            _ => self.signal(signal),
        }
    }

    /// What names the process for good: its number and start time. `None` if it has ended.
    #[must_use]
    pub fn name(&self) -> Option<(i32, u64)> {
        let stat = ProcessStat::read(self.pid).ok()?;
        // Read while it lived, it is its own.
        (!self.has_ended()).then_some((self.pid, stat.start_time))
    }

    /// Its wait status, once its descriptor is readable; `None` if unknown.
    #[must_use]
    pub fn status(&self) -> Option<i32> {
        // Its number is its own until it is reaped, and until then the descriptor knows nothing.
        self.reaped_status().or_else(|| ended_status(self.pid)).or_else(|| self.reaped_status())
    }

    fn reaped_status(&self) -> Option<i32> {
        let mut info = Info { mask: INFO_EXIT, ..Info::default() };
        // SAFETY: the structure is as long as the number of the call says, and can be written.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), GET_INFO, &raw mut info) };
        (result == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit_code)
    }
}

/// Processes that are held at once while a list of them is gone through.
const HELD_MAX: usize = 256;

/// Does `act` to each process of a list, and to no later process with the number of one that has
/// ended: each is held, and is on the list when that is read again. Gives how many were on it.
///
/// # Errors
/// What reading the list says.
pub fn for_each_listed(
    list: impl Fn() -> Result<Vec<i32>>,
    mut act: impl FnMut(&Held),
) -> Result<usize> {
    let listed = list()?;
    for some in listed.chunks(HELD_MAX) {
        let held: Vec<Held> = some.iter().filter_map(|&pid| Held::whoever_is(pid).ok()).collect();
        if held.is_empty() {
            continue;
        }
        let still: BTreeSet<i32> = list()?.into_iter().collect();
        held.iter().filter(|process| still.contains(&process.pid)).for_each(&mut act);
    }
    Ok(listed.len())
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor of the process that has this number now.
pub(crate) fn open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0);
    let fd = fd.ok_or_else(|| Error::last("pidfd_open"))?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the process of this descriptor has ended, reaped or not.
#[must_use]
pub fn has_ended(process: BorrowedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(count) if count > 0)
}

/// What a call says of a process that is gone.
pub(crate) fn gone(call: &'static str) -> Error {
    Error::Call { call, source: std::io::Error::from_raw_os_error(libc::ESRCH) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    pub(crate) fn hold(pid: i32) -> Held {
        Held::open(pid, ProcessStat::read(pid).unwrap().start_time).unwrap()
    }

    /// Ended with the test, also if that fails.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            let mut command = Command::new("sleep");
            command.arg("1000").stdout(Stdio::null()).stderr(Stdio::null());
            Self(command.spawn().unwrap())
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Checks with the hold on a process that has ended, and the number, which another has now.
    pub(crate) fn with_number_used_again(check: impl FnOnce(&Held, i32)) {
        const TRIES_MAX: u32 = 1000;
        for _ in 0..TRIES_MAX {
            let child = Sleeper::start();
            let held = hold(child.pid());
            drop(child);
            let last = Path::new("/proc/sys/kernel/ns_last_pid");
            fs::write(last, (held.pid() - 1).to_string()).expect("the test needs root");
            let other = Sleeper::start();
            if other.pid() == held.pid() {
                return check(&held, held.pid());
            }
        }
        panic!("others have taken the number {TRIES_MAX} times");
    }

    #[test]
    fn whoever_has_a_number_is_held() {
        with_number_used_again(|ended, pid| {
            let other = Held::whoever_is(pid).unwrap();
            assert!(ended.has_ended() && !other.has_ended());
        });
        assert!(Held::whoever_is(i32::MAX).unwrap_err().is_gone());
    }

    #[test]
    fn a_process_that_is_on_a_list_no_more_is_left_alone() {
        let child = Sleeper::start();
        let lists = std::cell::RefCell::new(vec![Vec::new(), vec![child.pid()]]);
        let mut met = Vec::new();
        let next = || Ok(lists.borrow_mut().pop().unwrap_or_default());
        // As when it has ended, and another has its number.
        let listed = for_each_listed(next, |process| met.push(process.pid())).unwrap();
        assert_eq!((listed, met.len()), (1, 0));
        for_each_listed(|| Ok(vec![child.pid()]), |process| met.push(process.pid())).unwrap();
        assert_eq!(met, [child.pid()]);
    }

    #[test]
    fn a_signal_reaches_the_group_that_a_process_leads_or_it_alone() {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & read x"]).stdin(Stdio::piped()).process_group(0);
        let mut leader = command.spawn().unwrap();
        let held = hold(leader.id().cast_signed());
        held.signal_group(libc::SIGKILL);
        leader.wait().unwrap();
        let mut alone = Sleeper::start();
        hold(alone.pid()).signal_group(libc::SIGKILL);
        alone.0.wait().unwrap();
        assert_eq!(held.name(), None);
        held.signal_group(libc::SIGKILL);
    }

    #[test]
    fn the_status_is_known_before_and_after_the_parent_has_reaped() {
        let mut command = Command::new("sh");
        command.args(["-c", "read x; exit 3"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let held = hold(child.id().cast_signed());
        assert!(!held.has_ended());
        drop(child.stdin.take());
        poll(&mut [PollFd::new(held.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
        assert!(held.has_ended());
        assert_eq!(held.status(), Some(3 << 8), "not reaped");
        child.wait().unwrap();
        // Older kernels do not tell.
        assert!(matches!(held.status(), Some(768) | None), "reaped: {:?}", held.status());
        held.signal(libc::SIGKILL);
    }

    #[test]
    fn a_number_that_is_anothers_now_is_not_taken() {
        let own = std::process::id().cast_signed();
        let start_time = ProcessStat::read(own).unwrap().start_time;
        assert_eq!(Held::open(own, start_time).unwrap().pid(), own);
        assert!(Held::open(own, start_time + 1).unwrap_err().is_gone());
        assert!(Held::open(i32::MAX, 0).unwrap_err().is_gone());
    }
}
