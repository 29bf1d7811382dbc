//! The peer of a Unix socket: process, user and group, as the kernel says.

use crate::pidfd::{gone, has_ended, open};
use crate::{Error, Result};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The identity of the process that connected, or listened, at the time it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process; it may have ended, and its number be another's.
    pub pid: i32,
}

/// The credentials of the other end of a connected Unix socket.
///
/// # Errors
/// What `getsockopt(SO_PEERCRED)` says, for a descriptor that is no socket for one.
pub fn peer_credentials(socket: impl AsFd) -> Result<PeerCredentials> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("12 bytes");
    // SAFETY: the buffer is `size` bytes, and a ucred is valid with any content.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(Error::last("getsockopt(SO_PEERCRED)"));
    }
    Ok(PeerCredentials { uid: credentials.uid, gid: credentials.gid, pid: credentials.pid })
}

/// The process at the other end of a connected Unix socket that was made at the time it connected,
/// or listened: readable once it has ended. The socket does not tell: other processes may have it
/// open, too.
///
/// # Errors
/// [`Error::is_gone`] if it has ended and is reaped; what `pidfd_open` says on kernels before 6.5,
/// which know it by its number only.
pub fn peer_process(socket: impl AsFd) -> Result<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut size = libc::socklen_t::try_from(size_of::<RawFd>()).expect("4 bytes");
    // SAFETY: the buffer is `size` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut size,
        )
    };
    if result == 0 {
        // SAFETY: the kernel has just opened it for us.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    match Error::last("getsockopt(SO_PEERPIDFD)") {
        error if error.errno() == Some(libc::ENOPROTOOPT) => open(peer_credentials(socket)?.pid),
        // So some kernels say it of one that is reaped.
        error if error.errno() == Some(libc::EINVAL) => Err(gone("getsockopt(SO_PEERPIDFD)")),
        error => Err(error),
    }
}

/// Whether the process at the other end of a connected Unix socket, that connected or listened,
/// lives. One that is unknown does.
pub fn peer_lives(socket: impl AsFd) -> bool {
    match peer_process(socket) {
        Ok(process) => !has_ended(process.as_fd()),
        Err(error) => !error.is_gone(),
    }
}

/// The supplementary groups of the other end of a connected Unix socket.
///
/// # Errors
/// What `getsockopt(SO_PEERGROUPS)` says (kernel 4.13 or later).
pub fn peer_groups(socket: impl AsFd) -> Result<Vec<u32>> {
    let mut groups = vec![0_u32; 32];
    loop {
        let bytes = groups.len() * size_of::<u32>();
        let mut size = libc::socklen_t::try_from(bytes).expect("at most 65,536 groups");
        // SAFETY: the buffer is `size` bytes; the kernel writes no more and sets `size`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        let error = std::io::Error::last_os_error();
        let count = usize::try_from(size).expect("u32 fits usize") / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        // ERANGE: `size` now says how much is needed.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(Error::Call { call: "getsockopt(SO_PEERGROUPS)", source: error });
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_of_a_pair_is_ourselves() {
        let (one, _other) = UnixStream::pair().unwrap();
        let credentials = peer_credentials(&one).unwrap();
        assert_eq!(credentials.pid.unsigned_abs(), std::process::id());
        assert_eq!(credentials.uid, nix::unistd::geteuid().as_raw());
        let own: Vec<u32> = nix::unistd::getgroups().unwrap().iter().map(|g| g.as_raw()).collect();
        assert_eq!(peer_groups(&one).unwrap(), own);
    }

    #[test]
    fn a_peer_lives_until_its_process_ends_whoever_has_its_socket() {
        let path = std::env::temp_dir().join(format!("tutti-peer-{}", std::process::id()));
        let line = "import socket, sys, os, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); \
                    s.listen(); os.fork() or time.sleep(3600); print('up', flush=True); time.sleep(3600)";
        let mut python = std::process::Command::new("python3");
        python.args(["-c", line]).arg(&path).stdout(std::process::Stdio::piped());
        let mut listener = python.spawn().unwrap();
        let mut said = [0; 2];
        std::io::Read::read_exact(&mut listener.stdout.take().unwrap(), &mut said).unwrap();
        let child = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", listener.id()));
        let child: i32 = child.unwrap().trim().parse().unwrap();
        let before = UnixStream::connect(&path).unwrap();
        assert!(peer_lives(&before));
        listener.kill().unwrap();
        let process = peer_process(&before).unwrap();
        let mut ends = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut ends, PollTimeout::NONE), Ok(1));
        // Not reaped, and then reaped; a client that connects now finds another that has the
        // socket, too.
        assert!(!peer_lives(&before));
        listener.wait().unwrap();
        assert!(!peer_lives(&before) && !peer_lives(UnixStream::connect(&path).unwrap()));
        // SAFETY: takes no pointer; the process sleeps for an hour.
        unsafe { libc::kill(child, libc::SIGKILL) };
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_has_no_peer() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer_credentials(&file).unwrap_err().errno(), Some(libc::ENOTSOCK));
    }
}
