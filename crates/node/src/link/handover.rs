//! Connections that go from one program to the next in the same process.

use super::Link;
use serde_bytes::ByteBuf;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use tutti_linux::inherited::Inherited;
use tutti_wire::handover::HeldLink;

impl Link {
    /// What another program must know to go on with it.
    pub fn hand_over(&self) -> HeldLink {
        HeldLink {
            fd: self.stream.as_raw_fd(),
            greeted: self.greeted,
            input: ByteBuf::from(self.input.rest()),
            output: ByteBuf::from(&self.output[self.sent..]),
            taken: self.taken,
        }
    }

    /// Goes on with one of another program; `limit` is the longest message that it takes, in bytes.
    ///
    /// # Errors
    /// If the descriptor was not left, or is no socket.
    pub fn take_over(held: HeldLink, limit: usize, inherited: &mut Inherited) -> io::Result<Self> {
        let mut link = Self::new(UnixStream::from(inherited.take(held.fd)?))?;
        link.limit(limit);
        link.input.extend(&held.input);
        link.output = held.output.into_vec();
        link.greeted = held.greeted;
        link.taken = held.taken;
        Ok(link)
    }
}
