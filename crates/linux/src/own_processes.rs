//! Processes that are not to be those of their user's others: that become a user and stay closed to
//! them, or are the first of a PID namespace.

use crate::spawn::Identity;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::fs::File;
use std::io;

/// Numbers of capabilities (`linux/capability.h`).
const CAP_SETPCAP: u32 = 8;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// What a program needs to restore processes of its own user with their PIDs. The first of these
/// also to take from them what its bounding set lacks.
const TO_RESTORE: [u32; 2] = [CAP_SETPCAP, CAP_CHECKPOINT_RESTORE];

/// Version 3 of the layout that `capset` takes.
const LAYOUT: u32 = 0x2008_0522;

/// Gives the first process of a PID namespace, in a mount namespace of its own, a `/proc` that
/// shows these processes. Mounts that are made outside from now on appear here too. Returns the
/// directory of before, by which the PIDs of outside can be found.
///
/// # Errors
/// What mounting says.
pub fn mount_own_proc() -> io::Result<File> {
    let outside = File::open("/proc")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)?;
    Ok(outside)
}

/// Closes the memory of this process to others, until it executes a program: no process of its user
/// traces it or reads its memory, and it leaves no core dump. Root may still.
///
/// # Errors
/// What the kernel says.
pub fn hide_memory() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })
}

/// Becomes a user for good, and at no moment lets other processes of that user trace this one. Only
/// a process that was executed with other rights can: between its execution and this call that user
/// could reach one that was its own from the start. For a process with one thread.
///
/// # Errors
/// What the kernel says; the process is to end then.
pub fn become_user_unseen(identity: &Identity) -> io::Result<()> {
    let Identity { uid, gid, ref groups } = *identity;
    hide_memory()?;
    // SAFETY: the list is as long as said; the other calls take numbers.
    unsafe {
        // In a user namespace of one user there is no right to set groups, and no other user.
        let is_already = libc::geteuid() == uid && libc::getegid() == gid;
        match check(libc::setgroups(groups.len(), groups.as_ptr())) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_already => {}
            other => other?,
        }
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    // The kernel has set anew what may be seen.
    hide_memory()
}

/// Becomes a user for good, but for the capabilities by which a program can restore that user's
/// processes: they pass on to the program that is executed next. Root stays what it is. For a
/// process with one thread.
///
/// # Errors
/// What the kernel says; the process is to end then.
pub fn become_user_that_restores(identity: &Identity) -> io::Result<()> {
    let Identity { uid, gid, ref groups } = *identity;
    // SAFETY: the list is as long as said; the other calls take numbers.
    unsafe {
        check(libc::setgroups(groups.len(), groups.as_ptr()))?;
        check(libc::setresgid(gid, gid, gid))?;
        if uid == 0 {
            return Ok(());
        }
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    set_capabilities()?;
    for capability in TO_RESTORE {
        // SAFETY: takes numbers.
        check(unsafe {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0)
        })?;
    }
    Ok(())
}

/// Has exactly the capabilities above, which pass on.
fn set_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // Effective, permitted, inheritable; the lower numbers, then the upper ones.
    let mut sets = [[0_u32; 3]; 2];
    for number in TO_RESTORE {
        for set in &mut sets[(number / 32) as usize] {
            *set |= 1 << (number % 32);
        }
    }
    let header = Header { version: LAYOUT, pid: 0 };
    // SAFETY: header and data are laid out as version 3 says, and are only read.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    check(i32::try_from(set).unwrap_or(-1))
}

fn check(answer: i32) -> io::Result<()> {
    match answer {
        -1 => Err(Errno::last().into()),
        _ => Ok(()),
    }
}

/// Has what this process, or the program that it executes, writes beyond a limit fail
/// (`RLIMIT_FSIZE`), and not end it.
pub fn fail_beyond_limit() {
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Has all that a process writes to files fail from now on, or end it: see [`fail_beyond_limit`].
pub fn write_no_more(process: i32) {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the first pointer is to a value of ours, and the other to none.
    unsafe {
        libc::prlimit(process, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut());
    }
}
