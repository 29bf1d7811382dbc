//! Removing a directory with all that is in it, whatever its owner has made there.
//!
//! The problem: its owner may have nested directories by the thousand, so that a function that
//! calls itself, or holds a descriptor for each level, comes to an end before the tree does; links
//! may be in it; and the owner may be at it while it is removed. The approach: nothing is ever as
//! deep as it was. A directory that is found in another moves up into the topmost one, under a new
//! name that is a number, and is emptied there when its turn comes: so three descriptors are enough
//! for any tree, and what waits is a range of numbers. Everything is reached by the descriptor of
//! the directory that it is in, never through a link.
//!
//! What is a mount point stays, and so does what the kernel keeps from being removed. What root
//! removes for another user, it removes with that user's rights ([`remove_tree_of`]): a directory
//! of another user that the owner could move into the tree, but not empty, stays.

use crate::as_user::with_rights_of;
use crate::random::random_u32;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmodat, fstat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use std::ffi::CStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How often is begun anew where something was left: another process may have made it meanwhile. A
/// process that goes on for ever has something left.
const ROUNDS_MAX: u32 = 3;

/// Removes a directory with all that is in it; or a file, or a link. That nothing is there is fine.
///
/// # Errors
/// If something is left; then the error names the first thing that could not be removed. All else
/// is.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove(path, |top| {
        let own = geteuid();
        empty(top, (!own.is_root()).then(|| own.as_raw()))
    })
}

/// Removes what belongs to a user with that user's rights only, all but the emptied directory
/// itself: its place may be one where the user can't remove it. Without `owner`, as the directory's
/// owner, if no other user could have put it there. A caller that is not root does it with its own
/// rights.
///
/// # Errors
/// As [`remove_tree`]; and if the directory is another's.
pub fn remove_tree_of(path: &Path, owner: Option<u32>) -> io::Result<()> {
    if !geteuid().is_root() {
        return remove_tree(path);
    }
    remove(path, |top| {
        let found = fstat(&top)?;
        let is_his = match owner {
            Some(owner) => found.st_uid == owner,
            None => nobody_else_put(path, &found)?,
        };
        match (is_his, found.st_uid, found.st_gid) {
            (false, uid, _) => Err(io::Error::other(format!("it is user {uid}'s directory"))),
            (true, 0, _) => empty(top, None),
            (true, uid, gid) => with_rights_of(uid, gid, &[], || empty(top, Some(uid))),
        }
    })
}

/// Whether a directory can have been moved to where it is by its owner only: another must be able
/// to write it for that, or to change a name in a directory that protects none.
fn nobody_else_put(path: &Path, found: &FileStat) -> io::Result<bool> {
    let above = path.parent().map_or_else(|| fs::metadata("."), fs::metadata)?.mode();
    let others = libc::S_IWGRP | libc::S_IWOTH;
    Ok(found.st_mode & others == 0 && (above & others == 0 || above & libc::S_ISVTX != 0))
}

/// Removes a path, after `empty` has emptied it where it is a directory. It gives the first thing
/// that was left.
fn remove(path: &Path, empty: impl Fn(OwnedFd) -> io::Result<Option<io::Error>>) -> io::Result<()> {
    match remove_empty(path) {
        Err(error) if is_not_empty(&error) => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return unless_gone(fs::remove_file(path));
        }
        done => return done,
    }
    for round in 1..=ROUNDS_MAX {
        let top = match open(AT_FDCWD, path) {
            Err(Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        let obstacle = empty(top)?;
        match remove_empty(path) {
            Err(error) if round == ROUNDS_MAX || !is_not_empty(&error) => {
                return Err(obstacle.unwrap_or(error));
            }
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
    }
    Ok(())
}

/// Goes once through a tree; gives the first thing that could not be removed.
fn empty(top: OwnedFd, owner: Option<u32>) -> io::Result<Option<io::Error>> {
    let mut flattening = Flattening::new(top, owner)?;
    flattening.empty_all();
    Ok(flattening.obstacle)
}

/// Opens up a directory that its owner has closed to everyone, as read-only ones are. Only the
/// owner's rights are needed.
fn open_up(directory: impl AsFd, owner: Option<u32>) -> nix::Result<()> {
    let found = fstat(&directory)?;
    if owner == Some(found.st_uid) && found.st_mode & libc::S_IRWXU != libc::S_IRWXU {
        // By the descriptor: the name may be a link's by now.
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        fchmodat(AT_FDCWD, path.as_str(), Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
    }
    Ok(())
}

fn remove_empty(path: &Path) -> io::Result<()> {
    unless_gone(fs::remove_dir(path))
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

fn is_not_empty(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST))
}

/// Opens a directory, and nothing else.
fn open<P: ?Sized + nix::NixPath>(at: impl AsFd, path: &P) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

/// One time through a tree.
struct Flattening {
    top: OwnedFd,
    /// The user whose rights are used to delete files. `None` means root.
    owner: Option<u32>,
    /// How the new names begin: as none that is there, and as none that can be foreseen.
    prefix: String,
    /// Directories that have got names, and how many of these were dealt with.
    named: u64,
    done: u64,
    /// The first thing that could not be removed.
    obstacle: Option<io::Error>,
}

impl Flattening {
    fn new(top: OwnedFd, owner: Option<u32>) -> io::Result<Self> {
        open_up(&top, owner)?;
        let prefix = format!(".removed-{:08x}-", random_u32()?);
        Ok(Self { top, owner, prefix, named: 0, done: 0, obstacle: None })
    }

    fn empty_all(&mut self) {
        let top = self.top.try_clone();
        match top {
            Ok(top) => self.empty(&top),
            Err(error) => self.obstacle = Some(error),
        }
        while self.done < self.named {
            let name = format!("{}{}", self.prefix, self.done);
            self.done += 1;
            self.remove_named(&name);
        }
    }

    /// Removes a directory that has moved up.
    fn remove_named(&mut self, name: &str) {
        match open(&self.top, name) {
            Ok(directory) => self.empty(&directory),
            Err(errno) => return self.note(name.as_bytes(), errno),
        }
        if let Err(errno) = unlinkat(&self.top, name, UnlinkatFlags::RemoveDir) {
            self.note(name.as_bytes(), errno);
        }
    }

    /// Takes everything out of a directory: what is a directory itself goes up.
    fn empty(&mut self, directory: &OwnedFd) {
        let entries = directory.try_clone().map(Dir::from_fd);
        let mut entries = match entries {
            Ok(Ok(entries)) => entries,
            Ok(Err(errno)) => return self.note(b".", errno),
            Err(error) => return self.obstacle = Some(error),
        };
        for entry in entries.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return self.note(b".", errno),
            };
            let name = entry.file_name();
            let is_ours = name.to_bytes().starts_with(self.prefix.as_bytes());
            if !is_ours && !matches!(name.to_bytes(), b"." | b"..") {
                self.take_out(directory, name, entry.file_type());
            }
        }
    }

    fn take_out(&mut self, directory: &OwnedFd, name: &CStr, kind: Option<Type>) {
        if kind != Some(Type::Directory) {
            match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
                // Not every file system says in a listing what is a directory.
                Err(Errno::EISDIR) => {}
                Err(errno) => return self.note(name.to_bytes(), errno),
                Ok(()) => return,
            }
        }
        // Of a mount point the kernel says that it is busy, before it looks what is in it.
        match unlinkat(directory, name, UnlinkatFlags::RemoveDir) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(errno) => return self.note(name.to_bytes(), errno),
            Ok(()) => return,
        }
        let up = format!("{}{}", self.prefix, self.named);
        if self.owner.is_some() {
            // To get another parent it must be one that its owner can write. What fails now fails
            // below.
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let found = openat(directory, name, flags, Mode::empty());
            let _ = found.and_then(|found| open_up(&found, self.owner));
        }
        match renameat(directory, name, &self.top, up.as_str()) {
            Ok(()) => self.named += 1,
            Err(errno) => self.note(name.to_bytes(), errno),
        }
    }

    /// The first one is reported; that something has gone already is none.
    fn note(&mut self, name: &[u8], errno: Errno) {
        if errno != Errno::ENOENT && self.obstacle.is_none() {
            let (error, name) = (io::Error::from(errno), String::from_utf8_lossy(name));
            self.obstacle = Some(io::Error::new(error.kind(), format!("{name:?} in it: {error}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::mkdirat;
    use std::fs::Permissions;
    use std::fs::create_dir;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    fn new(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tutti-{name}-{}", std::process::id()));
        create_dir(&path).unwrap();
        path
    }

    /// Makes directories within each other: no path could name the lowest.
    fn nest(path: &Path, levels: usize) {
        let mut at = open(AT_FDCWD, path).unwrap();
        for _ in 0..levels {
            mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = open(&at, "d").unwrap();
        }
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
        openat(&at, "file", flags, Mode::S_IRUSR).unwrap();
    }

    #[test]
    fn however_deep_a_tree_is_a_small_stack_is_enough() {
        let path = new("deep");
        nest(&path, 5000);
        create_dir(path.join("e")).unwrap();
        nest(&path.join("e"), 500);
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(move || remove_tree(&path)).unwrap().join().unwrap().unwrap();
    }

    #[test]
    fn links_are_removed_and_what_they_point_to_stays() {
        let (path, elsewhere) = (new("links"), new("elsewhere"));
        fs::write(elsewhere.join("kept"), "x").unwrap();
        create_dir(path.join("below")).unwrap();
        for at in [path.join("link"), path.join("below/link")] {
            symlink(&elsewhere, at).unwrap();
        }
        fs::write(path.join("file"), "x").unwrap();
        remove_tree(&path).unwrap();
        assert!(!path.exists() && elsewhere.join("kept").exists());
        symlink(&elsewhere, &path).unwrap();
        remove_tree(&path).unwrap();
        assert!(fs::symlink_metadata(&path).is_err() && elsewhere.join("kept").exists());
        remove_tree(&path).unwrap();
        remove_tree(&elsewhere).unwrap();
    }

    /// A directory of `owner`, a user without privileges.
    fn give(path: &Path, owner: u32, mode: u32) {
        chown(path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_its_owner_may_not_remove_stays_and_what_he_has_closed_goes() {
        if !geteuid().is_root() {
            return;
        }
        let (ada, bob) = (70_001, 70_002);
        let path = new("owners");
        give(&path, ada, 0o700);
        let make = |name: &str, owner: u32, mode: u32| {
            create_dir(path.join(name)).unwrap();
            fs::write(path.join(name).join("file"), "x").unwrap();
            give(&path.join(name), owner, mode);
        };
        make("read-only", ada, 0o555);
        make("closed", ada, 0);
        // As if she had moved it here: she can empty it, but not what is in it.
        make("theirs", bob, 0o777);
        make("theirs/within", bob, 0o755);
        assert!(remove_tree_of(&path, Some(bob)).is_err(), "it is not his");
        assert!(path.join("theirs/file").exists());
        let error = remove_tree_of(&path, Some(ada)).unwrap_err().to_string();
        assert!(error.contains("\"within\" in it: Permission denied"), "{error}");
        let left: Vec<_> = fs::read_dir(&path).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(
            left[0].path().join("within/file").exists() && !left[0].path().join("file").exists()
        );
        // The owner is taken from the directory only where no other user could have moved it.
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        assert!(remove_tree_of(&path, None).unwrap_err().to_string().contains("user 70001's"));
        give(&path, bob, 0o700);
        remove_tree_of(&path, None).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_cannot_be_removed_is_named_and_all_else_goes() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (path, source) = (new("mounted"), new("source"));
        fs::write(source.join("kept"), "x").unwrap();
        let mount_point = path.join("a/b");
        fs::create_dir_all(&mount_point).unwrap();
        nest(&path, 20);
        let (none, flags) = (None::<&str>, nix::mount::MsFlags::MS_BIND);
        nix::mount::mount(Some(&source), &mount_point, none, flags, none).unwrap();
        let removed = remove_tree(&path);
        nix::mount::umount(&mount_point)
            .or_else(|_| {
                // Its parent may have moved up.
                let moved = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
                nix::mount::umount(&moved.join("b"))
            })
            .unwrap();
        let error = removed.unwrap_err().to_string();
        assert!(error.contains("\"b\" in it"), "{error}");
        assert!(source.join("kept").exists());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        remove_tree(&path).unwrap();
        remove_tree(&source).unwrap();
    }
}
