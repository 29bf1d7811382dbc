//! State directories that no other user can have put anything into, and the sockets of instances.
//!
//! A private instance may lie in a directory like `/tmp`, where anybody could have been first. All
//! that is in a directory of another's is that user's: a lock that is a link to a file of ours, the
//! number of a process that is to be ended, a pipe that holds up a process that opens it. So what
//! is opened, written or removed in one goes through a [`Directory`], which is opened only if it is
//! root's or our own, and which stays the same one whatever gets its name afterwards.

use crate::codes::coded;
use crate::instance::said_directory;
use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, setsockopt, socket,
};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{Uid, UnlinkatFlags, User, geteuid, unlinkat};
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tutti_linux::peer::peer_credentials;
use tutti_wire::code::Code;

/// How long a verb waits for a daemon that has more connections than it has taken.
const CONNECT_WITHIN_S: i64 = 20;

/// It is another user's. A daemon that takes a job is told all of its environment, and what it
/// reads.
#[derive(Debug)]
pub struct NotOurs {
    directory: PathBuf,
    owner: Uid,
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, owner } = self;
        let name = User::from_uid(*owner).ok().flatten();
        let name = name.map_or(String::new(), |user| format!(" ({})", user.name));
        let us = match (geteuid().is_root(), owner.is_root()) {
            (true, _) => "to root; act as that user",
            (false, false) => "to you or root",
            (false, true) => "to you, and is no system's instance",
        };
        write!(f, "the instance in {directory:?} belongs to user {owner}{name}, not {us}")?;
        // A place that was not chosen may be taken by the first to come.
        f.write_str(match said_directory() {
            Some(_) => "; unset TUTTI_DIR, or set it to a directory of your own",
            None => "; have it removed, or set TUTTI_DIR to a directory of your own",
        })
    }
}

impl std::error::Error for NotOurs {}

/// A directory that is root's or our own, and that no other can write.
///
/// Of the paths that are given to it only the last names count: they are looked for in this
/// directory.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
    owner: Uid,
}

impl Directory {
    /// The one that is at this path; nothing if there is none.
    ///
    /// # Errors
    /// [`NotOurs`]; or if it is a link or no directory, others can write it, or it can't be got at.
    pub fn open(path: &Path) -> anyhow::Result<Option<Self>> {
        // A slash at the end would have a link followed.
        let path: PathBuf = path.components().collect();
        Self::open_from(AT_FDCWD, &path, &path)
    }

    /// The same for one in it.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn below(&self, path: &Path) -> anyhow::Result<Option<Self>> {
        Self::open_from(&self.descriptor, name_of(path), path)
    }

    fn open_from(from: impl AsFd, name: &Path, path: &Path) -> anyhow::Result<Option<Self>> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = match openat(from, name, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ENOTDIR | Errno::ELOOP) => return Err(open_to_others(path)),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let found = fstat(&descriptor).map_err(io::Error::from)?;
        let owner = Uid::from_raw(found.st_uid);
        if !is_trusted(owner) {
            return Err(NotOurs { directory: path.to_owned(), owner }.into());
        }
        if found.st_mode & 0o022 != 0 {
            return Err(open_to_others(path));
        }
        Ok(Some(Self { descriptor, path: path.to_owned(), owner }))
    }

    /// Whether it belongs to the user that asks, as root's does to root alone.
    pub fn is_own(&self) -> bool {
        self.owner == geteuid()
    }

    /// That it belongs to another, which alone may do what is asked for.
    pub fn not_ours(&self) -> anyhow::Error {
        NotOurs { directory: self.path.clone(), owner: self.owner }.into()
    }

    /// Opens a file; one that is made is its owner's alone.
    ///
    /// # Errors
    /// What the kernel says, as for links; [`ErrorKind::InvalidInput`] for what is no file, like a
    /// pipe.
    pub fn file(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        // A process that opens a pipe would wait for its other end.
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = File::from(openat(&self.descriptor, name_of(path), flags, mode)?);
        if !file.metadata()?.is_file() {
            let reason = format!("{} is no file", self.path.join(name_of(path)).display());
            return Err(io::Error::new(ErrorKind::InvalidInput, reason));
        }
        Ok(file)
    }

    /// The number of a file, also of one that may not be opened.
    pub fn inode(&self, path: &Path) -> Option<u64> {
        let found = fstatat(&self.descriptor, name_of(path), AtFlags::AT_SYMLINK_NOFOLLOW);
        found.ok().map(|found| found.st_ino)
    }

    /// Whether this file still has this name: a process that has just ended may have removed it
    /// after it was opened here, and the next would lock another.
    pub fn has(&self, file: &File, path: &Path) -> bool {
        let found = fstatat(&self.descriptor, name_of(path), AtFlags::AT_SYMLINK_NOFOLLOW);
        match (found, fstat(file)) {
            (Ok(found), Ok(own)) => (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino),
            _ => false,
        }
    }

    /// Writes a file that only its owner can read. The old one stays until the new one is whole.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn write(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let mut new = name_of(path).as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        // One that was not finished.
        self.remove(&new);
        let mut file = self.file(&new, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL)?;
        file.write_all(text)?;
        file.sync_all()?;
        Ok(renameat(&self.descriptor, name_of(&new), &self.descriptor, name_of(path))?)
    }

    /// Removes a file or socket, if there is one.
    pub fn remove(&self, path: &Path) {
        let _ = unlinkat(&self.descriptor, name_of(path), UnlinkatFlags::NoRemoveDir);
    }

    /// Removes a directory in it, if it is empty.
    pub fn remove_directory(&self, path: &Path) {
        let _ = unlinkat(&self.descriptor, name_of(path), UnlinkatFlags::RemoveDir);
    }
}

/// Nothing gets out of the directory by `..`: that is no name.
fn name_of(path: &Path) -> &Path {
    Path::new(path.file_name().unwrap_or_default())
}

fn is_trusted(user: Uid) -> bool {
    user.is_root() || user == geteuid()
}

/// One that anybody may have put something into.
pub fn open_to_others(path: &Path) -> anyhow::Error {
    let reason = format!(
        "{path:?} exists and is not a directory that only you can write; remove it, or set TUTTI_DIR to \
         another place"
    );
    coded(Code::OthersInstance, reason)
}

/// Connects to a daemon of an instance, which is ours or root's.
///
/// # Errors
/// What the kernel says if nothing takes the connection, or [`NotOurs`].
pub fn connect(path: &Path) -> anyhow::Result<UnixStream> {
    let directory = path.parent().unwrap_or(path);
    Directory::open(directory)?;
    let stream = connect_with(path, SockFlag::empty())?;
    let owner = Uid::from_raw(peer_credentials(&stream)?.uid);
    if !is_trusted(owner) {
        return Err(NotOurs { directory: directory.to_owned(), owner }.into());
    }
    Ok(stream)
}

/// Takes connections at a place, instead of the one that did so before, without waiting for one.
///
/// A client that looks there finds the former socket or this one: without either, an instance whose
/// daemon is only being started again would be taken for none.
///
/// # Errors
/// What the kernel says.
pub fn listen(path: &Path, for_all: bool) -> anyhow::Result<UnixListener> {
    let made = || -> io::Result<UnixListener> {
        // It may be too long, though the other one is not.
        UnixAddr::new(path)?;
        let made_at = unborn(path);
        match fs::remove_file(&made_at) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // On Linux the file gets the socket's mode: it is closed to others from its first moment
        // on.
        fchmod(&listener, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(listener.as_raw_fd(), &UnixAddr::new(&made_at)?)?;
        nix::sys::socket::listen(&listener, Backlog::MAXALLOWABLE)?;
        if for_all {
            // The kernel names the peer.
            fs::set_permissions(&made_at, Permissions::from_mode(0o666))?;
        }
        fs::rename(&made_at, path)?;
        Ok(listener.into())
    };
    made().with_context(|| format!("cannot listen at {}", path.display()))
}

/// Where a socket is made that is to be at this place.
pub fn unborn(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Whether anybody takes connections there, now or later.
pub fn listens(path: &Path) -> bool {
    match connect_with(path, SockFlag::SOCK_NONBLOCK) {
        Ok(_) => true,
        // As many wait as may.
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn connect_with(path: &Path, flags: SockFlag) -> io::Result<UnixStream> {
    connect_in(path, flags, CONNECT_WITHIN_S)
}

/// Connects to a daemon of the machine that may have more connections than it takes.
///
/// # Errors
/// What the kernel says if the connection is not taken within so many seconds.
pub(crate) fn connect_within(path: &Path, seconds: i64) -> io::Result<UnixStream> {
    connect_in(path, SockFlag::empty(), seconds)
}

fn connect_in(path: &Path, flags: SockFlag, within_s: i64) -> io::Result<UnixStream> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // It bounds the wait of `connect`, too.
    setsockopt(&socket, SendTimeout, &TimeVal::seconds(within_s))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn a_socket_is_for_others_only_if_it_is_said() {
        let path = std::env::temp_dir().join(format!("tutti-door-{}.sock", std::process::id()));
        for (for_all, mode) in [(false, 0o600), (true, 0o666)] {
            let _listener = listen(&path, for_all).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_socket_is_replaced_without_being_away() {
        let place = std::env::temp_dir().join(format!("tutti-listen-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let (path, done) = (place.join("controller.sock"), AtomicBool::new(false));
        let mut listener = listen(&path, true).unwrap();
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                while !done.load(Relaxed) {
                    let found = fs::symlink_metadata(&path).expect("it is always there");
                    assert!(found.file_type().is_socket());
                    assert_eq!(found.permissions().mode() & 0o777, 0o666);
                }
            });
            let replaced = (0..1_000).try_for_each(|_| {
                listener = listen(&path, true)?;
                anyhow::Ok(())
            });
            done.store(true, Relaxed);
            looks.join().unwrap();
            replaced.unwrap();
        });
        UnixStream::connect(&path).unwrap();
        assert!(listener.accept().is_ok());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        fs::remove_dir_all(&place).unwrap();
    }
}
