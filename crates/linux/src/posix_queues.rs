//! POSIX message queues, as files.
//!
//! The kernel shows them in a file system of their own, with their users and when they were last
//! used. Where it is not mounted, root can read them without a mount point.

use crate::proc;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

const USUAL: &str = "/dev/mqueue";

/// What `statfs` calls the file system (`MQUEUE_MAGIC` in the kernel).
const MAGIC: i64 = 0x1980_0202;

/// A command of `fsconfig`: all is said, make it.
const CMD_CREATE: libc::c_uint = 6;

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixQueue {
    /// Its name, without the slash.
    pub name: OsString,
    /// Tells it from others that had or will have its name.
    pub inode: u64,
    /// Its owner.
    pub uid: u32,
    /// When it was made or used last, seconds since 1970.
    pub used_s: i64,
    /// Whether a process has it open, of those that may be looked at.
    pub open: bool,
}

/// The queues there are; none where they can't be seen.
#[must_use]
pub fn all() -> Vec<PosixQueue> {
    those(|_| true)
}

/// Those that are wanted, by what is known before their users are known: to find that out, all that
/// processes have open must be looked at.
#[must_use]
pub fn those(wanted: impl Fn(&PosixQueue) -> bool) -> Vec<PosixQueue> {
    look(|directory| within(directory, wanted)).unwrap_or_default()
}

/// The inodes of those there are; nothing where they can't be seen.
#[must_use]
pub fn inodes() -> Option<BTreeSet<u64>> {
    let inode = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.ino());
    look(|directory| fs::read_dir(directory)?.map(inode).collect::<io::Result<_>>())?.ok()
}

/// Removes some that no process had open, unless one has used or opened them since they were looked
/// at; says of each what came of it: it may be gone, or another user's.
#[must_use]
pub fn remove(queues: &[PosixQueue]) -> Vec<Result<()>> {
    let remove = |directory: &Path| {
        let unused = within(directory, |it| queues.contains(it));
        let one = |queue: &PosixQueue| {
            if !unused.contains(queue) {
                return Err(gone());
            }
            let path = directory.join(&queue.name);
            fs::remove_file(&path).map_err(Error::file("remove", &path))
        };
        queues.iter().map(one).collect()
    };
    look(remove).unwrap_or_else(|| queues.iter().map(|_| Err(gone())).collect())
}

fn gone() -> Error {
    Error::file("remove from", Path::new(USUAL))(io::Error::from_raw_os_error(libc::ENOENT))
}

/// Looks at their file system, where that can be done.
fn look<T>(read: impl FnOnce(&Path) -> T) -> Option<T> {
    if is_theirs(Path::new(USUAL)) {
        return Some(read(Path::new(USUAL)));
    }
    let mount = mounted()?;
    Some(read(&PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()))))
}

fn within(directory: &Path, wanted: impl Fn(&PosixQueue) -> bool) -> Vec<PosixQueue> {
    let mut device = 0;
    let queue = |entry: fs::DirEntry| {
        let found = fs::metadata(directory.join(entry.file_name())).ok()?;
        device = found.dev();
        Some(PosixQueue {
            name: entry.file_name(),
            inode: found.ino(),
            uid: found.uid(),
            used_s: found.mtime(),
            open: false,
        })
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut queues: Vec<PosixQueue> = entries.filter_map(queue).filter(wanted).collect();
    if !queues.is_empty() {
        let open = open_files(&queues.iter().map(|it| it.name.as_os_str()).collect());
        queues.iter_mut().for_each(|it| it.open = open.contains(&(device, it.inode)));
    }
    queues
}

/// What processes have open under one of these names, as devices and numbers on them. Of other
/// files nothing is asked: the server of one may never answer.
fn open_files(names: &BTreeSet<&OsStr>) -> BTreeSet<(u64, u64)> {
    let descriptors = |pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_queue = |entry: &fs::DirEntry| {
        let path = fs::read_link(entry.path()).unwrap_or_default();
        let is_in = [Some(Path::new("/")), Some(Path::new(USUAL))].contains(&path.parent());
        is_in && path.file_name().is_some_and(|name| names.contains(name))
    };
    let files = proc::all().into_iter().flat_map(descriptors).filter(is_queue);
    let found = files.filter_map(|entry| fs::metadata(entry.path()).ok());
    found.map(|found| (found.dev(), found.ino())).collect()
}

fn is_theirs(directory: &Path) -> bool {
    nix::sys::statfs::statfs(directory).is_ok_and(|found| found.filesystem_type().0 == MAGIC)
}

/// The file system, mounted nowhere; nothing without the privilege.
fn mounted() -> Option<OwnedFd> {
    let name: &CStr = c"mqueue";
    // SAFETY: `name` ends with a NUL byte.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), 1) })?;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither key nor value.
    let made = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CMD_CREATE, null, null, 0)
    };
    // SAFETY: takes no pointer. As above, 1 is to close the descriptor on exec.
    let mount = || unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, 0) };
    (made == 0).then(mount).and_then(descriptor)
}

fn descriptor(answer: libc::c_long) -> Option<OwnedFd> {
    let number = i32::try_from(answer).ok().filter(|&number| number >= 0)?;
    // SAFETY: the kernel has just opened it, for us.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn a_queue_is_seen_until_it_is_removed() {
        let name = format!("tutti-test-{}", std::process::id());
        let path = CString::new(format!("/{name}")).unwrap();
        let null = std::ptr::null::<libc::mq_attr>();
        // SAFETY: the name ends with a NUL byte; without attributes, the defaults hold.
        let queue =
            unsafe { libc::mq_open(path.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600, null) };
        assert!(queue >= 0, "{}", std::io::Error::last_os_error());
        let find = || all().into_iter().find(|queue| queue.name == *name);
        let found = find().unwrap();
        assert!(inodes().unwrap().contains(&found.inode));
        let own = nix::unistd::geteuid().as_raw();
        assert!(found.open);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mq_close(queue) }, 0);
        let closed = find().unwrap();
        assert!(!closed.open);
        let remove = |queue: &PosixQueue| remove(std::slice::from_ref(queue)).remove(0);
        assert!(remove(&found).unwrap_err().is_gone(), "it was open");
        remove(&closed).unwrap();
        assert!(found.uid == own && found.used_s > 0, "{found:?}");
        assert!(find().is_none() && remove(&closed).unwrap_err().is_gone());
        assert!(!inodes().unwrap().contains(&found.inode));
    }
}
