//! Starting a process with everything set, straight in its group, without waiting for it.
//!
//! [`Nursery::spawn`] makes the child by one system call that also puts it into the group, so there
//! is no moment at which it, or a child of it, is outside. Where that call can't be had, the child
//! moves into the group before it does anything else. Everything else is set in the child, in an
//! order that the comments of `child.rs` explain; whatever fails there comes back through a pipe.
//! The child may be born frozen: none may wait for it, so the pipe is read when it is readable.
//!
//! The *minder*: without a group, a process that detaches from its parent would be lost. So a
//! small process of ours stands between: a child subreaper, to which all orphans below it fall.
//! Whatever lives below the minder is the task, and the minder ends when nothing does any more.
//!
//! Nothing is allocated and no lock is taken between fork and exec: all that the child needs is
//! prepared before. Where it may, the child uses the caller's memory instead of a copy
//! (`nursery.rs` says when, and why). The caller should have one thread only, since descriptors
//! that other threads open without `O_CLOEXEC` at the same time might be inherited before they are
//! closed.

mod child;
mod prepare;
mod raw;
mod spawn_pool;

pub(crate) use child::{Fork, close_all_but, fork_into, has_births_into_groups, write_number};
pub(crate) use prepare::words as mask_of;
pub use prepare::{Unwanted, program_candidates};
pub use spawn_pool::Nursery;

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Everything that a new process needs.
#[derive(Clone, Debug)]
pub struct Spawn<'a> {
    /// The arguments, the name of the program first.
    pub argv: &'a [CString],
    /// The environment, `NAME=value`: what it shares with others, and what is its own.
    pub env: [&'a [CString]; 2],
    /// The files to execute, tried in order as `execvp` does (see [`program_candidates`]).
    pub program: &'a [CString],
    /// The directory to start in; entered as the new user.
    pub cwd: &'a CStr,
    /// The file mode creation mask.
    pub umask: u32,
    /// The nice value, as far as it may be had; `None`: that of the caller, if it is no better than
    /// others'.
    pub nice: Option<c_int>,
    /// Resource limits: the kernel's number of the resource, soft, hard.
    pub rlimits: &'a [(c_int, u64, u64)],
    /// The user and groups to run as; `None`: as the caller.
    pub identity: Option<Identity>,
    /// The group to be born into (`O_PATH` or read-only descriptor of its directory).
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `tasks` files of v1 groups to join before all else.
    pub companions: &'a [CString],
    /// Whether one of these groups limits memory, so that the kernel may kill for want of it.
    pub limits_memory: bool,
    /// The IPC namespace to be in (see [`crate::ipc_namespace`]); `None`: that of the caller.
    pub ipc: Option<BorrowedFd<'a>>,
    /// The processors to run on; `None`: those of the caller.
    pub processors: Option<&'a [u32]>,
    /// Whether the group holds it to processors. If those are others than `processors` by then, it
    /// runs on those.
    pub held_by_group: bool,
    /// Standard input, output and error.
    pub stdio: [StdioFd<'a>; 3],
    /// Further descriptors to hand over: source here, target there. Targets are at least 3 and
    /// differ. All others are closed.
    pub pass: &'a [(RawFd, RawFd)],
    /// Whether it leads a new session, without terminal.
    pub new_session: bool,
    /// Whether standard input is its terminal: the session's, with its group in the foreground.
    pub terminal: bool,
    /// Whether a minder stands between the caller and the process (see the module).
    pub minder: bool,
    /// What is written to standard error, followed by the reason, if the program can't be
    /// executed; `None`: nothing.
    pub complaint: Option<&'a CStr>,
    /// Whether it is the first process of a PID namespace, in a mount namespace of its own.
    pub isolated: bool,
    /// Whether descendants that lose their parent become its children.
    pub adopts_orphans: bool,
    /// Whether it is killed when the thread that spawns it ends.
    pub ends_with_parent: bool,
}

/// A user, set for real, effective and saved ids alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups; the caller's are dropped.
    pub groups: Vec<u32>,
}

/// Where a standard stream goes.
#[derive(Clone, Debug)]
pub enum StdioFd<'a> {
    /// A descriptor of the caller's.
    Fd(BorrowedFd<'a>),
    /// A file, opened by the child as the new user, relative to its directory.
    Open {
        /// The file.
        path: CString,
        /// As for `open(2)`; `O_CLOEXEC` and `O_NOCTTY` are added.
        flags: c_int,
        /// Permissions of a file that is made, before the mask.
        mode: u32,
    },
    /// The same open file as standard output. For standard error only.
    Stdout,
    /// `/dev/null`.
    Null,
}

/// A process that was started. Its parent is the caller, which must reap it.
#[derive(Debug)]
pub struct Child {
    /// The process; with a minder, the minder.
    pub pid: i32,
    /// Refers to `pid` whatever becomes of the number; readable when it has ended.
    pub pidfd: OwnedFd,
    /// Ends when the program runs, or says why not: see [`read_report`]. Non-blocking.
    pub report: OwnedFd,
    /// With a minder: first the number of the process itself, then, when that has ended, its wait
    /// status: see [`read_number`]. Non-blocking.
    pub status: Option<OwnedFd>,
}

/// What became of the execution of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The program runs. Or the process was killed before it did: its wait status tells.
    Running,
    /// The process ended with status 127 before the program ran.
    Failed {
        /// What it was at.
        step: Step,
        /// What the kernel answered.
        errno: i32,
    },
}

/// What a new process does before its program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Step {
    /// Becoming a minder and making the process proper.
    Minder = 1,
    /// Joining the v1 groups.
    Companions,
    /// Leading a session.
    Session,
    /// Arranging the descriptors that were handed over.
    Descriptors,
    /// Setting resource limits.
    Limits,
    /// Binding to processors.
    Processors,
    /// Becoming the user.
    Identity,
    /// Entering the directory.
    Directory,
    /// Opening the file for standard input.
    Stdin,
    /// Opening the file for standard output.
    Stdout,
    /// Opening the file for standard error.
    Stderr,
    /// Executing the program.
    Execute,
    /// Entering the IPC namespace.
    Ipc,
    /// Moving into the group, where it can't be made there.
    Group,
    /// Making the terminal that of its session.
    Terminal,
}

impl Step {
    const ALL: [Self; 15] = [
        Self::Minder,
        Self::Companions,
        Self::Session,
        Self::Descriptors,
        Self::Limits,
        Self::Processors,
        Self::Identity,
        Self::Directory,
        Self::Stdin,
        Self::Stdout,
        Self::Stderr,
        Self::Execute,
        Self::Ipc,
        Self::Group,
        Self::Terminal,
    ];

    fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|&step| step as i32 == number)
    }
}

impl std::fmt::Display for Step {
    /// To be read after "cannot".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Minder => "start the minder",
            Self::Companions => "join the groups that limit it",
            Self::Session => "lead a session",
            Self::Descriptors => "arrange the descriptors",
            Self::Limits => "set the resource limits",
            Self::Processors => "bind to the processors",
            Self::Identity => "become the user",
            Self::Directory => "enter the directory",
            Self::Stdin => "open the file for standard input",
            Self::Stdout => "open the file for standard output",
            Self::Stderr => "open the file for standard error",
            Self::Execute => "execute the program",
            Self::Ipc => "enter the namespace of its IPC",
            Self::Group => "move into its cgroup",
            Self::Terminal => "take its terminal",
        })
    }
}

/// Reads what became of a process from its [`Child::report`].
///
/// # Errors
/// `WouldBlock` while it is not decided; `InvalidData` for what no child of ours writes.
pub fn read_report(report: BorrowedFd) -> io::Result<Report> {
    let Some(bytes) = read_exactly::<8>(report)? else { return Ok(Report::Running) };
    let [step, errno] = [&bytes[..4], &bytes[4..]]
        .map(|half| i32::from_ne_bytes(half.try_into().expect("four bytes")));
    let step = Step::from_number(step).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Report::Failed { step, errno })
}

/// Reads the next number from [`Child::status`]: the pid first, then the wait status. `None` after
/// both, or if the minder was killed.
///
/// # Errors
/// `WouldBlock` while there is nothing to read.
pub fn read_number(status: BorrowedFd) -> io::Result<Option<i32>> {
    Ok(read_exactly::<4>(status)?.map(i32::from_ne_bytes))
}

/// `N` bytes, which were written at once; `None` at the end.
fn read_exactly<const N: usize>(fd: BorrowedFd) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    loop {
        // SAFETY: the buffer is N bytes long.
        match unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), N) } {
            0 => return Ok(None),
            length if usize::try_from(length) == Ok(N) => return Ok(Some(bytes)),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A pipe whose reading end does not block. (Its writing end does: writes fit, and none is lost.)
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: the array has the two elements that are written.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are open and have no other owner.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: takes no pointer.
    match unsafe { libc::fcntl(read.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((read, write)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn steps_travel_as_numbers() {
        for (index, step) in (1..).zip(Step::ALL) {
            assert_eq!(Step::from_number(index), Some(step));
        }
        assert_eq!(Step::from_number(0), None);
        assert_eq!(Step::from_number(16), None);
    }

    #[test]
    fn a_report_is_read_once_it_is_there() {
        let (read, write) = pipe().unwrap();
        assert_eq!(read_report(read.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&(Step::Directory as i32).to_ne_bytes());
        bytes[4..].copy_from_slice(&libc::ENOTDIR.to_ne_bytes());
        nix::unistd::write(&write, &bytes).unwrap();
        let expected = Report::Failed { step: Step::Directory, errno: libc::ENOTDIR };
        assert_eq!(read_report(read.as_fd()).unwrap(), expected);
        nix::unistd::write(&write, &[9; 8]).unwrap();
        assert_eq!(read_report(read.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(write);
        assert_eq!(read_report(read.as_fd()).unwrap(), Report::Running);
    }
}
