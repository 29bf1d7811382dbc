//! What carries a connection of the control tree: a Unix socket to the controller on this machine,
//! or TLS to an agent on another.

use anyhow::Context;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, getpeername,
    setsockopt, socket, sockopt,
};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;
use tutti_linux::tcp::limit_unsent;
use tutti_node::link::Transport;
use tutti_node::platform::ways::Stream;
use tutti_secure::{Endpoint, Fingerprint, Member, SecureStream};

/// A neighbour that acknowledges nothing for so long is out of reach.
const SILENCE: Duration = Duration::from_secs(5);

/// What the kernel takes of a connection ahead of what it can send, which on a slow way would be
/// megabytes: an order waits for all of that.
const UNSENT_BYTES: u32 = 128 << 10;

/// One of the two.
#[derive(Debug)]
pub(super) enum Carrier {
    /// On this machine.
    Local(Stream),
    /// To another.
    Far(Box<SecureStream>),
    /// To another of a simulated world, and its peer.
    #[cfg(feature = "simulation")]
    Simulated(Stream, tutti_secure::Member),
}

impl Carrier {
    /// Begins a connection with the agent at this address.
    ///
    /// # Errors
    /// If it can't even begin.
    pub(super) fn to(address: &str, endpoint: Option<&Endpoint>) -> anyhow::Result<Self> {
        #[cfg(feature = "simulation")]
        if let Some((stream, peer)) = tutti_node::platform::ways::far(address) {
            return Ok(Self::Simulated(stream?, peer));
        }
        let found = address.to_socket_addrs().ok().and_then(|mut found| found.next());
        let found = found.with_context(|| format!("no such address: {address}"))?;
        let endpoint = endpoint.context("there are no credentials")?;
        let stream = dial(found).and_then(|socket| endpoint.connect(socket));
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        Ok(Self::Far(Box::new(stream)))
    }

    /// Takes over a connection that came in from another machine.
    ///
    /// # Errors
    /// If the socket can't be used.
    pub(super) fn from(socket: TcpStream, endpoint: &Endpoint) -> io::Result<Self> {
        set_up(&socket)?;
        Ok(Self::Far(Box::new(endpoint.accept(socket)?)))
    }

    /// The peer, by its certificate, and the key that it has shown, once that is known.
    pub(super) fn peer(&self) -> Option<(&Member, Fingerprint)> {
        match self {
            Self::Local(_) => None,
            Self::Far(stream) => stream.peer().map(|peer| (&peer.member, peer.key)),
            #[cfg(feature = "simulation")]
            Self::Simulated(_, member) => Some((member, Fingerprint::from_bytes([0; 32]))),
        }
    }
}

impl Carrier {
    /// The address of the peer's machine, as the kernel has it; `None` on this machine.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let Self::Far(stream) = self else { return None };
        let peer = getpeername::<SockaddrStorage>(stream.as_fd().as_raw_fd()).ok()?;
        let v4 = peer.as_sockaddr_in().map(|peer| IpAddr::V4(peer.ip()));
        v4.or_else(|| peer.as_sockaddr_in6().map(|peer| IpAddr::V6(peer.ip())))
            .map(|address| address.to_canonical())
    }
}

impl Read for Carrier {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.read(room),
            Self::Far(stream) => stream.read(room),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream, _) => stream.read(room),
        }
    }
}

impl Write for Carrier {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.write(data),
            Self::Far(stream) => stream.write(data),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream, _) => stream.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.flush(),
            Self::Far(stream) => stream.flush(),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream, _) => stream.flush(),
        }
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Local(stream) => stream.as_fd(),
            Self::Far(stream) => stream.as_fd(),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream, _) => stream.as_fd(),
        }
    }
}

impl Transport for Carrier {
    fn wants_write(&self) -> bool {
        matches!(self, Self::Far(stream) if stream.wants_write())
    }

    fn takes_messages(&self) -> bool {
        !matches!(self, Self::Far(stream) if stream.is_handshaking())
    }

    fn has_more(&self) -> bool {
        matches!(self, Self::Far(stream) if stream.has_unread())
    }
}

/// Begins a connection without waiting for it; that it failed is known when something is read.
fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    set_up(&socket)?;
    Ok(socket)
}

/// Has the kernel keep little that it can't send, and end the connection when its other end is out
/// of reach, also if nothing is said.
fn set_up(socket: &TcpStream) -> io::Result<()> {
    let millis = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
    setsockopt(socket, sockopt::TcpUserTimeout, &millis)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &1)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &1)?;
    setsockopt(socket, sockopt::TcpKeepCount, &4)?;
    Ok(limit_unsent(socket, UNSENT_BYTES)?)
}
