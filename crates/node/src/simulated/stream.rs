//! Connections in tests: the kernel's, or, between daemons of a simulated world, such as are in
//! memory. A reader and writes them is the same code, and finds them as it would find the kernel's:
//! bytes in order, as many as there is room for, then nothing for now; an end that was closed, with
//! something unread or not. And a watcher them hears of them in the order in which epoll would tell
//! ([`crate::link::Poller`] asks here first).

mod memory;
#[cfg(test)]
mod tests;

use super::machine::{Ear, is_cut_off};
use crate::link::{Interest, Ready, Transport};
use memory::Streams;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use tutti_linux::scm_rights;

/// One end of a connection.
#[derive(Debug)]
pub struct Stream {
    /// The connection; for one in memory only its name, and its peer: nothing passes through it.
    socket: UnixStream,
    /// Its number in memory.
    end: Option<usize>,
}

thread_local! {
    static STREAMS: RefCell<Streams> = RefCell::new(Streams::default());
    static IS_STIRRED: Cell<bool> = const { Cell::new(false) };
}

/// Connections in memory are named after this, of which the other end is this process, too.
static NAMESAKE: LazyLock<(UnixStream, UnixStream)> =
    LazyLock::new(|| UnixStream::pair().expect("a descriptor"));

/// Two ends of a connection in memory.
pub fn pair() -> io::Result<(Stream, Stream)> {
    let sockets = (NAMESAKE.0.try_clone()?, NAMESAKE.0.try_clone()?);
    let ends =
        STREAMS.with_borrow_mut(|streams| streams.pair([index(&sockets.0), index(&sockets.1)]));
    let stream = |socket, end| Stream { socket, end: Some(end) };
    Ok((stream(sockets.0, ends[0]), stream(sockets.1, ends[1])))
}

/// Something of the kernel's that is watched in this world may be ready: it is to be asked.
pub fn stir() {
    IS_STIRRED.set(true);
}

/// Whether it is.
pub fn is_stirred() -> bool {
    IS_STIRRED.get()
}

/// Nothing of the kernel's is ready.
pub fn settle() {
    IS_STIRRED.set(false);
}

/// From now on it is heard when a poller has something.
pub fn listen(poller: impl AsFd, ear: (usize, Ear)) {
    STREAMS.with_borrow_mut(|streams| streams.listen(index(poller), ear));
}

/// A poller has something of the kernel's.
pub fn has_more(poller: RawFd) {
    let poller = usize::try_from(poller).unwrap_or(usize::MAX);
    STREAMS.with_borrow_mut(|streams| streams.note_more(poller));
}

/// The machines with pollers that have something in memory, in no order.
pub fn heard(heard: &mut Vec<(usize, Ear)>) {
    STREAMS.with_borrow_mut(|streams| streams.heard(heard));
}

/// Bytes from [`Stream::read_at_most`] that are not needed any more.
pub fn give_back(bytes: Vec<u8>) {
    STREAMS.with_borrow_mut(|streams| streams.give_back(bytes));
}

/// For pollers: watches this, if it is in memory; in place of what it was watched for before.
pub fn watch(poller: impl AsFd, fd: impl AsFd, token: u64, interest: Interest) -> bool {
    let (poller, fd) = (index(poller), index(fd));
    STREAMS.with_borrow_mut(|streams| match streams.end(fd) {
        Some(end) => {
            streams.watch(end, (poller, token, interest));
            true
        }
        None => {
            stir();
            false
        }
    })
}

/// For pollers: watches this no more, if it is in memory.
pub fn unwatch(fd: impl AsFd) -> bool {
    let fd = index(fd);
    STREAMS.with_borrow_mut(|streams| {
        let end = streams.end(fd);
        end.inspect(|&end| streams.unwatch(end)).is_some()
    })
}

/// For pollers: adds what is ready in memory; whether the kernel is to be asked, too.
pub fn look(poller: impl AsFd, ready: &mut Vec<Ready>) -> bool {
    STREAMS.with_borrow_mut(|streams| streams.look(index(poller), ready))
}

/// The number of a descriptor.
fn index(fd: impl AsFd) -> usize {
    usize::try_from(fd.as_fd().as_raw_fd()).unwrap_or(usize::MAX)
}

impl Stream {
    /// What has come, at most so many bytes; none if nothing more comes.
    pub fn read_at_most(&mut self, most: usize) -> io::Result<Vec<u8>> {
        match self.end {
            Some(end) => STREAMS.with_borrow_mut(|streams| streams.read_at_most(end, most)),
            None => {
                let mut bytes = vec![0; most];
                let count = self.socket.read(&mut bytes)?;
                bytes.truncate(count);
                Ok(bytes)
            }
        }
    }

    /// Whether reading and writing wait; in memory they never do.
    pub fn set_nonblocking(&self, never_waits: bool) -> io::Result<()> {
        if self.end.is_some() { Ok(()) } else { self.socket.set_nonblocking(never_waits) }
    }

    /// Closes the way in one direction, or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let Some(end) = self.end else { return self.socket.shutdown(how) };
        STREAMS.with_borrow_mut(|streams| streams.end_writing(end));
        Ok(())
    }
}

/// A further holder of the end of a connection in memory, as of a descriptor that a process
/// inherits.
pub fn inherited(fd: RawFd) -> Option<Stream> {
    let socket = NAMESAKE.0.try_clone().ok()?;
    let fd = usize::try_from(fd).ok()?;
    let end = STREAMS.with_borrow_mut(|streams| streams.hold(fd))?;
    Some(Stream { socket, end: Some(end) })
}

impl Stream {
    /// Writes what a process says, whatever becomes of a daemon meanwhile. `None` if it can't all
    /// be written.
    pub fn write_of_process(&self, data: &[u8]) -> Option<()> {
        let written = STREAMS.with_borrow_mut(|streams| streams.write(self.end?, data).ok());
        (written? == data.len()).then_some(())
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Self {
        Self { socket, end: None }
    }
}

impl From<OwnedFd> for Stream {
    fn from(socket: OwnedFd) -> Self {
        UnixStream::from(socket).into()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Some(end) = self.end else { return };
        let fd = index(&self.socket);
        // When the thread ends they go all at once.
        let _ = STREAMS.try_with(|streams| streams.borrow_mut().close(end, fd));
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.end {
            Some(end) => STREAMS.with_borrow_mut(|streams| streams.read(end, room)),
            None => self.socket.read(room),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.end {
            Some(_) if is_cut_off() => Ok(data.len()),
            Some(end) => STREAMS.with_borrow_mut(|streams| streams.write(end, data)),
            None => (&self.socket).write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Stream {
    fn receive(
        &mut self,
        room: &mut [u8],
        descriptors: &mut VecDeque<Option<OwnedFd>>,
    ) -> io::Result<usize> {
        match self.end {
            // No descriptor gets through memory.
            Some(_) => self.read(room),
            None => scm_rights::receive(&self.socket, room, descriptors),
        }
    }
}
