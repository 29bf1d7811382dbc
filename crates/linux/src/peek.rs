//! Looking at what has arrived at a stream socket without taking it.

use crate::{Error, Result};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many bytes can be read without waiting. At the end of the stream none can.
///
/// # Errors
/// If it is not a socket.
pub fn arrived_bytes(socket: BorrowedFd<'_>) -> Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int through the pointer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if result < 0 {
        return Err(Error::last("ioctl FIONREAD"));
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Copies what lies `offset` bytes ahead into `room`, as far as it has arrived, and says how many
/// bytes that are (none at the end of the stream, and none if nothing has arrived that far ahead).
/// It is read again later, as if nobody had looked.
///
/// # Errors
/// If it is not a stream socket.
pub fn peek_ahead(socket: BorrowedFd<'_>, offset: usize, room: &mut [u8]) -> Result<usize> {
    let offset = libc::c_int::try_from(offset).unwrap_or(libc::c_int::MAX);
    let size = libc::socklen_t::try_from(size_of_val(&offset)).unwrap_or_default();
    // SAFETY: the kernel reads one int through the pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw const offset).cast(),
            size,
        )
    };
    if result < 0 {
        return Err(Error::last("setsockopt SO_PEEK_OFF"));
    }
    // SAFETY: the kernel writes at most so many bytes into the room.
    let count = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            room.as_mut_ptr().cast(),
            room.len(),
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
    match usize::try_from(count) {
        Ok(count) => Ok(count),
        Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(Error::last("recv MSG_PEEK")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_was_looked_at_is_read_again() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut room = [0; 4];
        assert_eq!(arrived_bytes(ours.as_fd()).unwrap(), 0);
        assert_eq!(peek_ahead(ours.as_fd(), 0, &mut room).unwrap(), 0);
        theirs.write_all(b"one two").unwrap();
        theirs.write_all(b" three").unwrap();
        assert_eq!(arrived_bytes(ours.as_fd()).unwrap(), 13);
        for _ in 0..2 {
            assert_eq!(peek_ahead(ours.as_fd(), 4, &mut room).unwrap(), 4);
            assert_eq!(&room, b"two ");
        }
        assert_eq!(peek_ahead(ours.as_fd(), 11, &mut room).unwrap(), 2);
        assert_eq!(peek_ahead(ours.as_fd(), 13, &mut room).unwrap(), 0);
        let mut read = [0; 8];
        ours.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"one two ");
        assert_eq!(peek_ahead(ours.as_fd(), 0, &mut room).unwrap(), 4);
        assert_eq!(&room, b"thre");
    }
}
