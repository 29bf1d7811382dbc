//! A connection that carries frames, and the poller that watches many of them.
//!
//! Every daemon of Tutti is one thread around one [`Poller`]: it waits, reads what came, decides,
//! and queues what must go out. Nothing blocks: what a peer does not read yet waits in the
//! connection's own buffer, and a caller that must not fill it asks [`Link::unsent`] first.

mod handover;

use crate::log::PROVOKED;
use crate::platform::ways::Stream;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tracing::warn;
use tutti_secure::SecureStream;
use tutti_wire::code::Code;
use tutti_wire::frame::{self, DecodeError, FrameBuffer, Hello, Role, TooLong};

/// How much one call to [`Link::receive`] reads at most, so that a fast peer can't starve others.
const READ_BYTES_MAX: usize = 1 << 20;

/// Room for one read of a connection that carries messages, and of one that carries output.
const READ_SIZE: usize = 4 << 10;
const READ_SIZE_BULK: usize = 256 << 10;

/// Answers that a peer whose requests are taken one at a time may leave unread before no more of
/// them are taken.
const BEHIND_BYTES: usize = 1 << 20;

/// Room for messages that is kept when all have been sent.
const ROOM_KEPT_BYTES: usize = 1 << 20;

/// The same of one whose requests are taken one at a time: there may be thousands.
const ROOM_OF_CLIENT_BYTES: usize = 16 << 10;

/// Why a connection is of no more use. Closing it is all that needs to be done.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The kernel said so.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The peer sent what is no message.
    #[error("the peer sent what is no message")]
    Decode(#[from] DecodeError),
    /// We have a message for the peer that no frame holds.
    #[error("the peer was to be sent too much at once")]
    TooLong(#[from] TooLong),
    /// The peer closed its end.
    #[error("the peer closed the connection")]
    Closed,
}

impl LinkError {
    /// The text with that of what caused it, which says what is wrong.
    pub fn whole(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}

/// What carries the bytes of a connection: without waiting, as sockets that are set so do.
pub trait Transport: Read + Write + AsFd {
    /// Whether something must be written before anything else can happen, as while both sides are
    /// still getting to know each other.
    fn wants_write(&self) -> bool {
        false
    }

    /// Whether what is said to the other end is taken when there is room for it: not while both
    /// sides are still getting to know each other. A watcher of room then finds some all the time.
    fn takes_messages(&self) -> bool {
        true
    }

    /// Whether more can be read though nothing more arrives.
    fn has_more(&self) -> bool {
        false
    }

    /// Reads, and takes in descriptors that came along.
    fn receive(
        &mut self,
        room: &mut [u8],
        _descriptors: &mut VecDeque<Option<OwnedFd>>,
    ) -> io::Result<usize> {
        self.read(room)
    }
}

#[cfg(not(feature = "simulation"))]
impl Transport for Stream {
    fn receive(
        &mut self,
        room: &mut [u8],
        descriptors: &mut VecDeque<Option<OwnedFd>>,
    ) -> io::Result<usize> {
        tutti_linux::scm_rights::receive(&*self, room, descriptors)
    }
}

/// A connection with another machine.
pub type FarLink = Link<SecureStream>;

impl Transport for SecureStream {
    fn wants_write(&self) -> bool {
        Self::wants_write(self)
    }

    fn takes_messages(&self) -> bool {
        !self.is_handshaking()
    }

    fn has_more(&self) -> bool {
        self.has_unread()
    }
}

/// One framed connection.
#[derive(Debug)]
pub struct Link<S = Stream> {
    stream: S,
    input: FrameBuffer,
    output: Vec<u8>,
    sent: usize,
    greeted: Option<Role>,
    watched: Interest,
    one_at_a_time: bool,
    overlong: Option<TooLong>,
    /// Whether this end is a user's verb, which ends with the connection.
    is_of_a_verb: bool,
    read_size: usize,
    /// How many bytes the messages had that were taken out, with what frames them.
    taken: u64,
    /// How many bytes the peer, or the kernel for it, has taken.
    written: u64,
    /// Those that came with what was read; `None`: none is wanted.
    descriptors: Option<VecDeque<Option<OwnedFd>>>,
}

impl Link {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// If the socket can't be made non-blocking.
    pub fn new(stream: impl Into<Stream>) -> io::Result<Self> {
        let stream = stream.into();
        stream.set_nonblocking(true)?;
        Ok(Self::over(stream))
    }

    /// The socket, for credentials.
    #[must_use]
    pub const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Sends all that is queued and waits for one message; for clients, which have nothing else to
    /// do meanwhile.
    ///
    /// # Errors
    /// If the peer is gone or sends what is no message, or ours was too long.
    pub fn call<M: DeserializeOwned>(&mut self) -> Result<M, LinkError> {
        self.stream.set_nonblocking(false)?;
        let result = self.call_blocking();
        self.stream.set_nonblocking(true)?;
        result
    }

    /// As [`Link::call`]. From the bytes of the message `next` may make another one to send, which
    /// goes out before this one is read: so the peer works on it meanwhile.
    ///
    /// # Errors
    /// As those of [`Link::call`].
    pub fn call_and_send<M: DeserializeOwned, N: Serialize>(
        &mut self,
        next: impl FnOnce(&[u8]) -> Option<N>,
    ) -> Result<M, LinkError> {
        self.stream.set_nonblocking(false)?;
        let result = self.call_and_send_blocking(next);
        self.stream.set_nonblocking(true)?;
        result
    }

    fn call_and_send_blocking<M: DeserializeOwned, N: Serialize>(
        &mut self,
        next: impl FnOnce(&[u8]) -> Option<N>,
    ) -> Result<M, LinkError> {
        self.send_all()?;
        while !(self.take_greeting()? && self.input.has_frame()) {
            self.receive_some()?;
        }
        let payload = self.input.next_frame()?.unwrap_or_default();
        self.taken += (size_of::<u32>() + payload.len()) as u64;
        if let Some(message) = next(payload) {
            let mut bytes = Vec::new();
            frame::encode(&message, &mut bytes)?;
            self.stream.write_all(&bytes)?;
        }
        Ok(frame::decode(payload)?)
    }

    /// The socket, for a caller that goes on with it otherwise, and the bytes that were read from
    /// it beyond the messages that were taken.
    #[must_use]
    pub fn into_rest(self) -> (Stream, Vec<u8>) {
        let rest = self.input.rest().to_vec();
        (self.stream, rest)
    }
}

impl FarLink {
    /// Sends all that is queued and waits for one message, over a stream that waits.
    ///
    /// # Errors
    /// As for other connections.
    pub fn call<M: DeserializeOwned>(&mut self) -> Result<M, LinkError> {
        self.call_blocking()
    }

    /// Sends all that is queued and waits for the peer's greeting, which tells its version: for a
    /// caller that has something to say that is not for all.
    ///
    /// # Errors
    /// If the peer is gone, or does not speak this version of the protocol.
    pub fn meet(&mut self) -> Result<(), LinkError> {
        self.send_all()?;
        while !self.take_greeting()? {
            self.receive_some()?;
        }
        Ok(())
    }
}

impl<S: Transport> Link<S> {
    fn send_all(&mut self) -> Result<(), LinkError> {
        if let Some(error) = self.overlong {
            return Err(error.into());
        }
        self.stream.write_all(&self.output[self.sent..])?;
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    fn call_blocking<M: DeserializeOwned>(&mut self) -> Result<M, LinkError> {
        self.send_all()?;
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            self.receive_some()?;
        }
    }

    fn receive_some(&mut self) -> Result<(), LinkError> {
        let room = self.input.room(self.read_size);
        let size = room.len();
        match self.stream.read(room) {
            Ok(0) => Err(LinkError::Closed),
            Ok(count) => {
                self.input.filled(count);
                if count == size {
                    // A peer that fills the room sends in bulk.
                    self.read_size = READ_SIZE_BULK;
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over a stream that never waits.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            input: FrameBuffer::new(),
            output: Vec::new(),
            sent: 0,
            greeted: None,
            watched: Interest::READ,
            one_at_a_time: false,
            overlong: None,
            is_of_a_verb: false,
            read_size: READ_SIZE,
            taken: 0,
            written: 0,
            descriptors: None,
        }
    }

    /// What carries it.
    pub const fn transport(&self) -> &S {
        &self.stream
    }

    /// Another peer speaks from now on: its greeting comes first.
    pub const fn expect_greeting(&mut self) {
        self.greeted = None;
    }

    /// Refuses frames of more than so many bytes.
    pub const fn limit(&mut self, bytes: usize) {
        self.input.limit(bytes);
    }

    /// From now on descriptors are taken in that the peer sends with messages.
    pub fn take_descriptors(&mut self) {
        self.descriptors = Some(VecDeque::new());
    }

    /// From now on [`Link::settle`] reads nothing ahead: not while a message waits to be taken, nor
    /// while the peer does not read its answers.
    pub const fn one_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Whether [`Link::next`] gives something.
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.input.has_frame()
    }

    /// Whether the peer leaves too many answers unread to be given more.
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.unsent() > BEHIND_BYTES
    }

    /// How many bytes of a message wait for the rest of it.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.input.pending()
    }

    /// Whether nothing is to be read now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.one_at_a_time && (self.is_behind() || self.has_message())
    }

    /// Queues our greeting, the first frame of a connection.
    pub fn greet(&mut self, role: Role) {
        self.is_of_a_verb =
            matches!(role, Role::Client | Role::FrontEnd | Role::Gate | Role::Newcomer);
        self.output.extend_from_slice(&Hello { role }.to_frame());
    }

    /// Reads what has arrived, without waiting.
    ///
    /// # Errors
    /// [`LinkError::Closed`] when the peer closed its end and everything was read.
    pub fn receive(&mut self) -> Result<(), LinkError> {
        let mut total = 0;
        loop {
            let room = self.input.room(self.read_size);
            let size = room.len();
            let read = match &mut self.descriptors {
                None => self.stream.read(room),
                Some(descriptors) => self.stream.receive(room, descriptors),
            };
            match read {
                Ok(0) if total == 0 => return Err(LinkError::Closed),
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.input.filled(count);
                    total += count;
                    // A short read emptied the socket: no second call to hear "would block".
                    let is_enough = count < size || total >= READ_BYTES_MAX;
                    if is_enough && !self.stream.has_more() {
                        return Ok(());
                    }
                    // A peer that fills the room sends in bulk.
                    self.read_size = READ_SIZE_BULK;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next descriptor that came with a message, in the order of the messages; `None` if it
    /// came and there was no place for it.
    pub fn next_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.as_mut()?.pop_front()?
    }

    /// The next whole message, if one has arrived; the peer's greeting is taken in on the way.
    ///
    /// # Errors
    /// If the bytes are no such message, or the peer's version is another.
    pub fn next<'a, M: Deserialize<'a>>(&'a mut self) -> Result<Option<M>, LinkError> {
        if !self.take_greeting()? {
            return Ok(None);
        }
        match self.input.next_frame()? {
            Some(payload) => {
                self.taken += (size_of::<u32>() + payload.len()) as u64;
                Ok(Some(frame::decode(payload)?))
            }
            None => Ok(None),
        }
    }

    /// How many bytes the messages had that were taken out so far, with what frames them.
    pub const fn taken_bytes(&self) -> u64 {
        self.taken
    }

    /// Whether the peer's greeting is there. One that announces another length is refused before a
    /// byte of it is waited for: a peer that has not greeted may not make us keep anything.
    fn take_greeting(&mut self) -> Result<bool, LinkError> {
        if self.greeted.is_some() {
            return Ok(true);
        }
        if self.input.announced().is_some_and(|bytes| bytes != Hello::BYTES) {
            return Err(DecodeError::NotTutti.into());
        }
        match self.input.next_frame()? {
            Some(payload) => self.greeted = Some(Hello::decode(payload)?.role),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the greeting alone; `None` while it has not arrived.
    ///
    /// # Errors
    /// If the peer does not speak this version of the protocol.
    pub fn next_greeting(&mut self) -> Result<Option<Role>, LinkError> {
        self.take_greeting()?;
        Ok(self.greeted)
    }

    /// Queues a message.
    ///
    /// Messages are bounded where they are made. If one is too long all the same, a user's verb
    /// fails when it next flushes. A daemon logs the message and drops it, since its connection
    /// carries messages about all jobs.
    pub fn send<M: Serialize>(&mut self, message: &M) {
        let Err(error) = self.try_send(message) else { return };
        if self.is_of_a_verb {
            self.overlong = Some(error);
        } else {
            let name = std::any::type_name::<M>().rsplit(':').next().unwrap_or_default();
            warn!(target: PROVOKED, code = %Code::TooMuchAsked, "dropping a message ({name}): {error}");
        }
    }

    /// Queues a message.
    ///
    /// # Errors
    /// If no frame holds it; then it is not queued, and the connection is as it was.
    pub fn try_send<M: Serialize>(&mut self, message: &M) -> Result<(), TooLong> {
        frame::encode(message, &mut self.output)
    }

    /// Writes what is queued as far as the peer takes it, without waiting.
    ///
    /// # Errors
    /// If the peer is gone, or a message was too long to be queued.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        if let Some(error) = self.overlong {
            return Err(error.into());
        }
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.written += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.output.shrink_to(if self.one_at_a_time {
            ROOM_OF_CLIENT_BYTES
        } else {
            ROOM_KEPT_BYTES
        });
        self.sent = 0;
        // What the stream has taken it may still hold.
        match self.stream.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => Ok(result?),
        }
    }

    /// Sends what is queued as far as it goes, and has the poller watch for room if not all went.
    ///
    /// # Errors
    /// If the peer is gone.
    #[inline]
    pub fn settle(&mut self, poller: &Poller, token: u64) -> Result<(), LinkError> {
        // Most have nothing to do in most rounds.
        if self.is_settled() { Ok(()) } else { self.settle_now(poller, token) }
    }

    /// Whether all was sent, and the poller watches for what may come, and for nothing else.
    #[inline]
    fn is_settled(&self) -> bool {
        self.output.is_empty()
            && self.overlong.is_none()
            && !self.one_at_a_time
            && self.watched == Interest::READ
            && !self.stream.wants_write()
    }

    fn settle_now(&mut self, poller: &Poller, token: u64) -> Result<(), LinkError> {
        self.flush()?;
        let waits = self.unsent() > 0 && self.stream.takes_messages();
        let write = waits || self.stream.wants_write();
        let interest = Interest { read: !self.is_held(), write };
        if interest != self.watched {
            self.watched = interest;
            poller.modify(&*self, token, interest)?;
        }
        Ok(())
    }

    /// How many bytes are queued and not yet taken by what carries them.
    #[must_use]
    pub const fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// How many bytes were taken from what was queued, since the connection began.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Whether something waits until the kernel has room for it.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.unsent() > 0 || self.stream.wants_write()
    }
}

impl<S: AsFd> AsFd for Link<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Something can be read, or the peer closed.
    pub read: bool,
    /// Something can be written.
    pub write: bool,
}

impl Interest {
    /// Reading alone.
    pub const READ: Self = Self { read: true, write: false };
    /// Writing alone.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Nothing but errors and hang-ups.
    pub const NONE: Self = Self { read: false, write: false };

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, self.read);
        flags.set(EpollFlags::EPOLLOUT, self.write);
        flags
    }
}

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The number that it was added with.
    pub token: u64,
    /// Reading will not wait (also at the end of the stream and on errors).
    pub read: bool,
}

/// Watches descriptors, level-triggered, with one deadline of nanosecond resolution.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    timer: Option<TimerFd>,
    armed: Option<u64>,
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// The token of the poller's own timer; not to be used by callers.
const TIMER_TOKEN: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER_TOKEN))?;
        Ok(Self { epoll, timer: Some(timer), armed: None })
    }

    /// One that has no deadlines, for a caller that has thousands and waits for all of them: a
    /// descriptor each is enough.
    ///
    /// # Errors
    /// If the process has none left.
    pub fn without_deadlines() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, timer: None, armed: None })
    }

    /// Watches a descriptor.
    ///
    /// # Errors
    /// If the kernel refuses, as for a regular file.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if self.knows(&fd, token, interest) {
            return Ok(());
        }
        Ok(self.epoll.add(fd, EpollEvent::new(interest.flags(), token))?)
    }

    /// Watches it for something else.
    ///
    /// # Errors
    /// If it is not being watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if self.knows(&fd, token, interest) {
            return Ok(());
        }
        Ok(self.epoll.modify(fd, &mut EpollEvent::new(interest.flags(), token))?)
    }

    /// Watches it no more. A descriptor that is closed everywhere leaves by itself.
    pub fn remove(&self, fd: impl AsFd) {
        #[cfg(feature = "simulation")]
        if crate::simulated::stream::unwatch(&fd) {
            return;
        }
        // It may have left already; then there is nothing to do.
        let _ = self.epoll.delete(fd);
    }

    /// Waits until something happens or the monotonic clock reaches `deadline_ns`, and puts what
    /// happened into `ready`.
    ///
    /// # Errors
    /// If the kernel fails to wait.
    pub fn wait(&mut self, deadline_ns: Option<u64>, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.arm(deadline_ns)?;
        ready.clear();
        self.take(EpollTimeout::NONE, ready)
    }

    /// Puts into `ready` what has happened, without waiting.
    ///
    /// # Errors
    /// If the kernel fails to say.
    pub fn look(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        #[cfg(feature = "simulation")]
        if !crate::simulated::stream::look(&*self, ready) {
            return Ok(());
        }
        self.take(EpollTimeout::ZERO, ready)
    }

    /// Whether that is watched by the simulated world that it is in.
    #[cfg(feature = "simulation")]
    fn knows(&self, fd: &impl AsFd, token: u64, interest: Interest) -> bool {
        crate::simulated::stream::watch(self, fd, token, interest)
    }

    fn take(&mut self, timeout: EpollTimeout, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            if event.data() == TIMER_TOKEN {
                self.armed = None;
                let _ = self.timer.as_ref().map(TimerFd::unset);
                continue;
            }
            let flags = event.events();
            let broken = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
            ready.push(Ready {
                token: event.data(),
                read: broken || flags.contains(EpollFlags::EPOLLIN),
            });
        }
        Ok(())
    }

    fn arm(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        if self.armed == deadline_ns {
            return Ok(());
        }
        let timer = self.timer.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        match deadline_ns {
            Some(ns) => {
                // A deadline of zero would disarm the timer.
                let at = TimeSpec::from(Duration::from_nanos(ns.max(1)));
                timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => timer.unset()?,
        }
        self.armed = deadline_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tutti_wire::limits::FRAME_BYTES_MAX;

    /// A connection, after a message that no frame holds and a short one; and its other end.
    fn after_a_long_message(role: Role) -> (Link, Link) {
        let (own, theirs) = UnixStream::pair().expect("two ends");
        let link = |end: UnixStream| {
            end.set_nonblocking(true).expect("a socket");
            Link::over(Stream::from(end))
        };
        let (mut own, theirs) = (link(own), link(theirs));
        own.greet(role);
        own.send(&vec![0_u8; FRAME_BYTES_MAX]);
        own.send(&7_u32);
        (own, theirs)
    }

    #[test]
    fn a_daemon_drops_a_message_that_no_frame_holds_and_sends_the_next() {
        for role in [Role::Agent, Role::Server, Role::Proxy] {
            let (mut own, mut theirs) = after_a_long_message(role);
            own.flush().expect("the connection is of use");
            theirs.receive().expect("the other end is there");
            assert_eq!(theirs.next::<u32>().expect("a message"), Some(7));
        }
    }

    #[test]
    fn a_verb_with_a_request_that_no_frame_holds_fails() {
        let (mut own, _theirs) = after_a_long_message(Role::Client);
        assert!(matches!(own.flush(), Err(LinkError::TooLong(_))));
    }

    #[test]
    fn a_message_is_sent_before_the_one_that_names_it_is_read() {
        let (own, theirs) = UnixStream::pair().expect("two ends");
        let (mut own, mut theirs) =
            (Link::new(own).expect("a socket"), Link::new(theirs).expect("a socket"));
        theirs.greet(Role::Server);
        theirs.send(&(5_u8, "unread".to_owned()));
        theirs.flush().expect("the connection is of use");
        own.greet(Role::Client);
        // Text is wanted as a number: the answer can't be read, and what it names is asked for.
        let read = own.call_and_send::<(u8, u64), _>(|bytes| bytes.first().copied());
        assert!(matches!(read, Err(LinkError::Decode(_))), "{read:?}");
        assert_eq!(theirs.call::<u8>().expect("a message"), 5);
    }
}
