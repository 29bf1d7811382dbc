//! Descriptors that go to another process over a Unix socket (`SCM_RIGHTS`).
//!
//! A descriptor travels with the first of the bytes that it is sent with. A reader that does not
//! ask for descriptors gets those bytes without them; one that asks gets them in the order of the
//! bytes.

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Sends a descriptor with these bytes, at least the first of them, and says how many were sent.
///
/// # Errors
/// What `sendmsg` says: `EAGAIN` where the socket does not wait and has no room, `ETOOMANYREFS`
/// where too many descriptors of this user are on their way.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let descriptors = [descriptor.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let count = sendmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &[IoSlice::new(bytes)],
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(count)
}

/// Reads bytes into `room` and says how many; adds the descriptors that came with them to
/// `received`: `None` for one for which this process, or the system, has no place.
///
/// # Errors
/// What `recvmsg` says.
pub fn receive(
    socket: impl AsFd,
    room: &mut [u8],
    received: &mut VecDeque<Option<OwnedFd>>,
) -> io::Result<usize> {
    let mut rights = nix::cmsg_space!(RawFd);
    let mut slices = [IoSliceMut::new(room)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message =
        recvmsg::<UnixAddr>(socket.as_fd().as_raw_fd(), &mut slices, Some(&mut rights), flags)?;
    match message.cmsgs() {
        Ok(all) => {
            for each in all {
                if let ControlMessageOwned::ScmRights(numbers) = each {
                    // SAFETY: the kernel has just made these for us, and no other owner knows them.
                    let owned = |number| Some(unsafe { OwnedFd::from_raw_fd(number) });
                    received.extend(numbers.into_iter().map(owned));
                }
            }
        }
        // Cut short. Senders send one at a time, so none was made.
        Err(Errno::ENOBUFS) => received.push_back(None),
        Err(error) => return Err(error.into()),
    }
    Ok(message.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_in_the_order_of_the_bytes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (one, mut to_one) = io::pipe().unwrap();
        let (other, mut to_other) = io::pipe().unwrap();
        theirs.write_all(b"before").unwrap();
        assert_eq!(send(&theirs, b"one", one.as_fd()).unwrap(), 3);
        assert_eq!(send(&theirs, b"other", other.as_fd()).unwrap(), 5);
        theirs.write_all(b"behind").unwrap();
        drop((one, other, theirs));
        let mut received = VecDeque::new();
        let mut bytes = Vec::new();
        let mut room = [0; 100];
        while let count @ 1.. = receive(&ours, &mut room, &mut received).unwrap() {
            bytes.extend_from_slice(&room[..count]);
        }
        assert_eq!(bytes, b"beforeoneotherbehind");
        to_one.write_all(b"1").unwrap();
        to_other.write_all(b"2").unwrap();
        drop((to_one, to_other));
        let contents: Vec<String> = received
            .into_iter()
            .map(|descriptor| {
                let mut text = String::new();
                File::from(descriptor.unwrap()).read_to_string(&mut text).unwrap();
                text
            })
            .collect();
        assert_eq!(contents, ["1", "2"]);
    }

    /// In a process of its own, so that its limit concerns no other.
    #[test]
    fn one_without_a_place_is_told_of() {
        use nix::sys::resource::{Resource, setrlimit};
        use nix::sys::wait::{WaitStatus, waitpid};
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&theirs, b"x", theirs.as_fd()).unwrap();
        // SAFETY: the child needs no lock but the allocator's, which is free after a fork, and
        // exits.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                let mut received = VecDeque::new();
                let limited = setrlimit(Resource::RLIMIT_NOFILE, 0, 0).is_ok();
                let count = receive(&ours, &mut [0; 10], &mut received);
                let right = limited
                    && matches!(count, Ok(1))
                    && matches!(received.make_contiguous(), [None]);
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!right)) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }
}
