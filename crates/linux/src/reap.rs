//! Reaping one child, and what it used.

use crate::{Error, Result};
use std::mem::MaybeUninit;

/// A child that has ended and was reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// The wait status, as `waitpid(2)` gives it.
    pub status: i32,
    /// Processor time in user mode of it and of those that it waited for, microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, likewise.
    pub system_us: u64,
    /// The largest resident set of any one of them, bytes.
    pub memory_peak_bytes: u64,
    /// What was read from devices for it and those that it waited for, bytes.
    pub read_bytes: u64,
    /// What was written, likewise.
    pub written_bytes: u64,
}

/// How a process ended. Unlike the types of `nix`, it knows of the real-time signals (32 to 64):
/// any process may end itself by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

impl End {
    /// What a wait status means; nothing if the process has not ended.
    #[must_use]
    pub fn of(status: i32) -> Option<Self> {
        let low = |number: i32| number.to_le_bytes()[0];
        if libc::WIFEXITED(status) {
            return Some(Self::Exited(low(libc::WEXITSTATUS(status))));
        }
        libc::WIFSIGNALED(status).then(|| Self::Signaled(low(libc::WTERMSIG(status))))
    }
}

/// A child of this thread that has ended and is still to be reaped, if there is one. Those of other
/// threads are theirs to wait for: reaped here, a program that one of them runs would end without a
/// status. What a thread leaves as it ends, and orphans, fall to the first thread of the process.
#[must_use]
pub fn ended_child() -> Option<i32> {
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD;
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `found` can be written.
        if unsafe { libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), look) } == 0 {
            break;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
    }
    // SAFETY: all zero is valid, and stays if there is none; else the kernel has filled in the
    // ended process.
    let pid = unsafe { found.assume_init().si_pid() };
    (pid > 0).then_some(pid)
}

/// In these the kernel counts what is read and written.
const BLOCK_BYTES: u64 = 512;

/// Reaps this child if it has ended; `None` if it lives.
///
/// # Errors
/// What `wait4` says: it is no child of ours, or was reaped before.
pub fn reap(pid: i32) -> Result<Option<Reaped>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: status and usage can be written.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match result {
        -1 => return Err(Error::last("wait4")),
        0 => return Ok(None),
        _ => {}
    }
    // SAFETY: all zero is valid, and the kernel has filled it in.
    let usage = unsafe { usage.assume_init() };
    let micros =
        |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Ok(Some(Reaped {
        status,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        memory_peak_bytes: usage.ru_maxrss.unsigned_abs() << 10,
        read_bytes: usage.ru_inblock.unsigned_abs().saturating_mul(BLOCK_BYTES),
        written_bytes: usage.ru_oublock.unsigned_abs().saturating_mul(BLOCK_BYTES),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    #[expect(clippy::zombie_processes, reason = "what is tested reaps it")]
    fn a_child_is_reaped_once_with_what_it_used() {
        let mut command = Command::new("sh");
        command.args(["-c", "read x; exit 3"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        assert_eq!(reap(pid).unwrap(), None);
        drop(child.stdin.take());
        let reaped = loop {
            if let Some(reaped) = reap(pid).unwrap() {
                break reaped;
            }
            std::thread::yield_now();
        };
        assert_eq!(End::of(reaped.status), Some(End::Exited(3)));
        assert!(reaped.memory_peak_bytes > 100_000);
        assert_eq!(reap(pid).unwrap_err().errno(), Some(libc::ECHILD));
    }

    #[test]
    fn what_another_thread_runs_is_left_to_it() {
        let (tell, ended) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
            let pid = i64::from(child.id());
            while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ") {
                std::thread::yield_now();
            }
            tell.send(()).unwrap();
            may_go_on.recv().unwrap();
            child.wait().unwrap().code()
        });
        ended.recv().unwrap();
        assert_eq!(ended_child(), None);
        go_on.send(()).unwrap();
        assert_eq!(other.join().unwrap(), Some(3));
        // One of this thread is found.
        let mut child = Command::new("true").spawn().unwrap();
        let found = loop {
            if let Some(pid) = ended_child() {
                break pid;
            }
            std::thread::yield_now();
        };
        assert_eq!(found, child.id().cast_signed());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn whatever_signal_ends_a_process_is_told() {
        for signal in [libc::SIGKILL, 34, 64] {
            let raw = std::os::unix::process::ExitStatusExt::into_raw(
                Command::new("sh").args(["-c", &format!("kill -{signal} $$")]).status().unwrap(),
            );
            assert_eq!(End::of(raw), Some(End::Signaled(signal.to_le_bytes()[0])));
        }
        assert_eq!(End::of(0x137f), None, "stopped");
    }
}
