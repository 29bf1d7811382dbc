//! Who is at the other end of a Unix socket, as the kernel says.

use crate::{Error, Result};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

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
    fn a_file_has_no_peer() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer_credentials(&file).unwrap_err().errno(), Some(libc::ENOTSOCK));
    }
}
