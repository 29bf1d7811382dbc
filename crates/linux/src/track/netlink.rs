//! A netlink socket of which messages are read in batches. Nothing of it blocks.

use crate::{Error, Result};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// How many messages are read at once.
pub(super) const MESSAGES: usize = 64;

/// The socket, with room for messages of at most so many bytes; of longer ones the rest is dropped.
#[derive(Debug)]
pub(super) struct Netlink<const BYTES: usize> {
    socket: OwnedFd,
    room: Box<[[u8; BYTES]]>,
}

impl<const BYTES: usize> Netlink<BYTES> {
    pub(super) fn open(protocol: libc::c_int) -> Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(Error::last("socket(AF_NETLINK)"));
        }
        // SAFETY: the kernel has just made it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { socket, room: vec![[0; BYTES]; MESSAGES].into_boxed_slice() })
    }

    pub(super) fn set_option<T>(&self, option: libc::c_int, value: &T) -> Result<()> {
        let size = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
        // SAFETY: the value is as long as said.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                std::ptr::from_ref(value).cast(),
                size,
            )
        };
        if result == 0 { Ok(()) } else { Err(Error::last("setsockopt(AF_NETLINK)")) }
    }

    /// Makes room in the kernel for messages that are not read yet: as asked for root, at most what
    /// the system allows for others.
    pub(super) fn set_buffer(&self, bytes: i32) {
        for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
            if self.set_option(option, &bytes).is_ok() {
                break;
            }
        }
    }

    pub(super) fn bind(&self, groups: u32) -> Result<()> {
        // SAFETY: all zero is a valid address.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).expect("a small number");
        address.nl_groups = groups;
        let size = libc::socklen_t::try_from(size_of::<libc::sockaddr_nl>()).expect("12 bytes");
        // SAFETY: the address is as long as said.
        let result =
            unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), size) };
        if result == 0 { Ok(()) } else { Err(Error::last("bind(AF_NETLINK)")) }
    }

    pub(super) fn send(&self, message: &[u8]) -> Result<()> {
        // SAFETY: the message is as long as said.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0)
        };
        if sent >= 0 { Ok(()) } else { Err(Error::last("send(AF_NETLINK)")) }
    }

    /// The messages that have come, at most [`MESSAGES`].
    pub(super) fn receive(&mut self) -> io::Result<&[[u8; BYTES]]> {
        let mut slices: [libc::iovec; MESSAGES] = std::array::from_fn(|index| libc::iovec {
            iov_base: self.room[index].as_mut_ptr().cast(),
            iov_len: BYTES,
        });
        let mut headers: [libc::mmsghdr; MESSAGES] = std::array::from_fn(|index| {
            // SAFETY: all zero is a valid header, without name and control data.
            let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
            header.msg_hdr.msg_iov = &raw mut slices[index];
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        // SAFETY: every header points to a slice of its own, which points to a message of its own.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                libc::c_uint::try_from(MESSAGES).expect("64"),
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(&self.room[..count]),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Has `take` read all messages that have come, at most so many; whether none was lost.
    pub(super) fn drain(&mut self, most: usize, mut take: impl FnMut(&[u8; BYTES])) -> bool {
        let mut is_whole = true;
        let mut taken = 0;
        while taken < most {
            match self.receive() {
                Ok(messages) => {
                    messages.iter().for_each(&mut take);
                    taken += messages.len();
                    if messages.len() < MESSAGES {
                        break;
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => is_whole = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        is_whole
    }
}

impl<const BYTES: usize> AsFd for Netlink<BYTES> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
