//! A TCP connection with TLS 1.3 in it, which behaves as a non-blocking socket does.
//!
//! Nothing waits here and nothing is timed: [`SecureStream::read`] and [`SecureStream::write`] go
//! as far as the socket goes and say `WouldBlock` where it ends; a poller then watches for what
//! [`SecureStream::wants_read`] and [`SecureStream::wants_write`] say. Three things differ from a
//! plain socket:
//!
//! - Writing is refused (`WouldBlock`) as long as the handshake lasts, although the socket has
//!   room: a poller that watches for room then would not rest. Reading brings the handshake
//!   forward.
//! - What was written may wait here for room in the socket: [`SecureStream::flush`] sends it when
//!   there is some.
//! - What was read from the socket may wait here: a caller that stops reading before a read comes
//!   back short or with `WouldBlock` asks [`SecureStream::has_unread`] before waiting.
//!
//! At most one piece of input and one of output are held, whatever the peer does or leaves undone.

use crate::certificate::{Certificate, Fingerprint};
use crate::input::Input;
use crate::limits::UNSENT_BYTES_MAX;
use crate::name::Member;
use crate::stream_error::StreamError;
use crate::verify::Distrust;
use rustls::Connection;
use rustls::pki_types::UnixTime;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// The peer, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its identity. The caller has to compare it with the wanted one.
    pub member: Member,
    /// The fingerprint of its key: it distinguishes a member from another that had the same name
    /// before.
    pub key: Fingerprint,
    /// When its certificate runs out. A connection does not end by that; its owner may close it.
    pub expires: UnixTime,
}

/// A secure connection.
pub struct SecureStream {
    socket: TcpStream,
    tls: Connection,
    input: Input,
    peer: Option<Peer>,
    progress: Progress,
    /// Decrypted bytes that are not read yet.
    unread: usize,
    /// The peer has said farewell.
    ended: bool,
    blocking: bool,
}

/// How far a connection has come.
#[derive(Clone, Debug, PartialEq)]
enum Progress {
    Handshake,
    Open,
    /// We have said farewell.
    Closing,
    Failed(StreamError),
}

impl SecureStream {
    /// Begins the handshake on a socket, which from now on does not block.
    pub(crate) fn new(socket: TcpStream, mut tls: Connection) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let mut stream = Self {
            socket,
            tls,
            input: Input::default(),
            peer: None,
            progress: Progress::Handshake,
            unread: 0,
            ended: false,
            blocking: false,
        };
        // One that is still being connected takes nothing yet; the poller tells when.
        match stream.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => other?,
        }
        Ok(stream)
    }

    /// Lets reads and writes wait, or not; for clients, which have nothing else to do meanwhile.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)?;
        self.blocking = !nonblocking;
        Ok(())
    }

    /// Brings the handshake forward as far as it goes; nothing is to be done where it is over.
    ///
    /// # Errors
    /// `WouldBlock` if the peer's part is awaited; otherwise why there is no connection.
    pub fn handshake(&mut self) -> io::Result<()> {
        while self.is_handshaking() {
            self.flush()?;
            if self.input.is_empty() && self.input.fill(&mut self.socket)? == 0 {
                return Err(StreamError::Truncated.into());
            }
            self.decrypt()?;
        }
        self.check()
    }

    /// Whether the handshake is going on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.progress == Progress::Handshake
    }

    /// The peer. `None` as long as the handshake lasts; after it, for a newcomer that
    /// has no certificate, with which nothing but a token is to be exchanged.
    #[must_use]
    pub const fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Whether there may be more to read: the peer has not said farewell.
    #[must_use]
    pub const fn wants_read(&self) -> bool {
        !self.ended && !matches!(self.progress, Progress::Failed(_))
    }

    /// Whether something waits for room in the socket, to be [flushed](Self::flush). What the
    /// caller wants to write counts besides, but not while the connection [is
    /// made](Self::is_handshaking).
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write() && !matches!(self.progress, Progress::Failed(_))
    }

    /// Whether a read gives more, or may, without anything happening at the socket.
    #[must_use]
    pub const fn has_unread(&self) -> bool {
        self.unread > 0 || !self.input.is_empty()
    }

    /// Says farewell, after all that was written; the peer may still write. A connection that is
    /// not made yet is given up.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room for all: to be called again when there is. Otherwise the
    /// peer is gone.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.check()?;
        if self.progress != Progress::Closing {
            self.tls.send_close_notify();
        }
        if self.is_handshaking() {
            // The sender of what still comes has not been checked.
            return self.fail(StreamError::GivenUp);
        }
        self.progress = Progress::Closing;
        self.flush()?;
        self.socket.shutdown(Shutdown::Write)
    }

    /// The socket, for its addresses and options; code that reads or writes it breaks the
    /// connection.
    #[must_use]
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Why nothing goes any more, if so.
    fn check(&self) -> io::Result<()> {
        match &self.progress {
            Progress::Failed(error) => Err(error.clone().into()),
            Progress::Handshake | Progress::Open | Progress::Closing => Ok(()),
        }
    }

    /// Takes in what was read from the socket, up to a record or so.
    fn decrypt(&mut self) -> io::Result<()> {
        self.check()?;
        self.tls.read_tls(&mut self.input)?;
        match self.tls.process_new_packets() {
            Ok(state) => self.unread = state.plaintext_bytes_to_read(),
            Err(error) => return self.fail(error.into()),
        }
        if self.is_handshaking()
            && !self.tls.is_handshaking()
            && let Err(error) = self.open()
        {
            return self.fail(error);
        }
        // An answer that finds no room goes later, and one that finds no peer is for a write to
        // tell.
        let _ = self.flush();
        Ok(())
    }

    /// The handshake is over: check the peer.
    fn open(&mut self) -> Result<(), StreamError> {
        // TLS lets a peer be that speaks of no protocol at all.
        if self.tls.alpn_protocol().is_none() {
            return Err(StreamError::NotTutti);
        }
        if let Some([certificate, ..]) = self.tls.peer_certificates() {
            let certificate = Certificate::read(certificate).map_err(|_| Distrust::NoMember)?;
            let member = certificate.member().map_err(|_| Distrust::NoMember)?;
            let Certificate { key, not_after: expires, .. } = certificate;
            self.peer = Some(Peer { member, key, expires });
        }
        self.progress = Progress::Open;
        Ok(())
    }

    /// The peer gets the reason, if it still listens.
    fn fail<T>(&mut self, error: StreamError) -> io::Result<T> {
        let _ = self.flush();
        self.unread = 0;
        self.progress = Progress::Failed(error.clone());
        Err(error.into())
    }

    /// The socket gives nothing more: after a farewell, or in the midst of something.
    fn end(&mut self) -> io::Result<()> {
        self.tls.read_tls(&mut io::empty())?;
        self.check()?;
        self.look_for_farewell();
        if self.ended { Ok(()) } else { self.fail(StreamError::Truncated) }
    }

    fn look_for_farewell(&mut self) {
        self.ended = matches!(self.tls.reader().read(&mut [0]), Ok(0));
    }
}

impl Read for SecureStream {
    /// Reads what the peer wrote. 0: it has said farewell.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let mut total = 0;
        while total < room.len() && !self.ended {
            if self.unread > 0 {
                let count = self.tls.reader().read(&mut room[total..])?;
                self.unread -= count;
                total += count;
            } else if !self.input.is_empty() {
                match self.decrypt() {
                    Ok(()) if self.unread == 0 => self.look_for_farewell(),
                    Ok(()) => {}
                    // What came before can be used; the error is returned again.
                    Err(_) if total > 0 => break,
                    Err(error) => return Err(error),
                }
            } else if total > 0 {
                break;
            } else if self.input.fill(&mut self.socket)? == 0 {
                self.end()?;
            }
        }
        Ok(total)
    }
}

impl Write for SecureStream {
    /// Encrypts and sends; what is not sent at once waits here, and as long as it does, nothing
    /// more is taken.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.blocking {
            self.handshake()?;
        }
        self.check()?;
        self.flush()?;
        match self.progress {
            Progress::Handshake => return Err(ErrorKind::WouldBlock.into()),
            Progress::Closing => return Err(ErrorKind::BrokenPipe.into()),
            Progress::Open | Progress::Failed(_) => {}
        }
        let count = self.tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends what waits, as far as there is room.
    ///
    /// # Errors
    /// `WouldBlock` if something waits still.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for SecureStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for SecureStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecureStream")
            .field("socket", &self.socket)
            .field("peer", &self.peer)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
