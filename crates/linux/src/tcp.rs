//! What the kernel keeps of a TCP connection.

use crate::{Error, Result};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// From now on a socket has no room while about so much of what it took waits to be sent. What is
/// on its way to the other end does not count: a way that takes much at once is not slower for it.
///
/// # Errors
/// What `setsockopt(TCP_NOTSENT_LOWAT)` says, for a descriptor that is no TCP socket for one.
pub fn limit_unsent(socket: impl AsFd, bytes: u32) -> Result<()> {
    let size = libc::socklen_t::try_from(size_of::<u32>()).expect("4 bytes");
    // SAFETY: the value is `size` bytes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(Error::last("setsockopt(TCP_NOTSENT_LOWAT)")) }
}
