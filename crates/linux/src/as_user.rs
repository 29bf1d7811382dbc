//! Doing something with files with the rights of another user, for root.
//!
//! The kernel has an identity for each thread by which it decides about files (`setfsuid(2)`); with
//! another than root's there, root's privileges about files are gone, too. So it is a thread of its
//! own that does it, and the identity goes with the thread: nothing has to be taken back.

use std::io;
use std::thread;

/// Enough for what is done here, which calls nothing deep.
const STACK_BYTES: usize = 256 << 10;

/// Has a thread do this with the rights of `uid`, `gid` and these supplementary groups. It has no
/// other group, and none of root's privileges about files.
///
/// The kernel closes the memory of this process to others for good then, as
/// [`hide_memory`](crate::own_processes::hide_memory) does. It must stay closed: a process that
/// shares this memory until it executes a program may be of another user already.
///
/// # Errors
/// If no such thread can be had; then nothing is done.
pub fn with_rights_of<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    thread::scope(|scope| {
        let begun = thread.spawn_scoped(scope, || {
            take(uid, gid, groups)?;
            act()
        })?;
        begun.join().unwrap_or_else(|_| Err(io::Error::other("its thread has failed")))
    })
}

/// Takes the identity, for the calling thread alone and for the rest of its life.
fn take(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // The C library's function would have all threads lose their groups.
    // SAFETY: as many groups are read as the slice has, which lives longer than the call.
    if unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_taken = is_taken(libc::SYS_setfsgid, gid) && is_taken(libc::SYS_setfsuid, uid);
    if is_taken { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Sets one of the two, and asks whether it is so: the calls themselves know no errors.
fn is_taken(call: libc::c_long, id: u32) -> bool {
    // SAFETY: takes a number; one that no user has changes nothing.
    let set = |id: u32| unsafe { libc::syscall(call, id) };
    set(id);
    set(u32::MAX) == libc::c_long::from(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn rights_are_those_of_the_other_in_that_thread_alone() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let base = std::env::temp_dir().join(format!("tutti-rights-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        std::os::unix::fs::chown(&base, Some(1001), Some(1002)).unwrap();
        let (made, secret) = (base.join("made"), base.join("secret"));
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        with_rights_of(1001, 1002, &[], || fs::write(&made, "")).unwrap();
        let found = fs::metadata(&made).unwrap();
        assert_eq!((found.uid(), found.gid()), (1001, 1002));
        let read = |groups: &[u32]| with_rights_of(1001, 1002, groups, || fs::read(&secret));
        assert!(read(&[]).is_err(), "root's, by group, too");
        assert!(read(&[1003]).is_err());
        assert!(read(&[1003, 0]).is_ok(), "by a supplementary group");
        fs::read(&secret).unwrap();
        assert!(!nix::sys::prctl::get_dumpable().unwrap(), "no user looks into it from now on");
        fs::remove_dir_all(&base).unwrap();
    }
}
