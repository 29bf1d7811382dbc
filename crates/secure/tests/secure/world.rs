//! A cluster with a clock of its own, and two ends of a connection.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tutti_secure::{
    Authority, Clock, Credentials, Endpoint, Key, Member, Name, Role, SecureStream, StreamError,
    Tokens, UnixTime,
};

/// The version that all endpoints of these tests speak.
pub(crate) const VERSION: u16 = 7;

/// When all clusters here are made: in November 2026.
const BEGIN_S: u64 = 1_795_000_000;

/// Nothing here takes so long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Cluster {
    pub(crate) authority: Authority,
    pub(crate) tokens: Tokens,
    time_s: Arc<AtomicU64>,
}

impl Cluster {
    pub(crate) fn new(cluster: &str) -> Self {
        Self {
            authority: Authority::create(&name(cluster), at(BEGIN_S)).unwrap(),
            tokens: Tokens::default(),
            time_s: Arc::new(AtomicU64::new(BEGIN_S)),
        }
    }

    pub(crate) fn now(&self) -> UnixTime {
        at(self.time_s.load(Ordering::Relaxed))
    }

    pub(crate) fn clock(&self) -> Clock {
        let time_s = self.time_s.clone();
        Clock::new(move || at(time_s.load(Ordering::Relaxed)))
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, span: Duration) {
        self.time_s.fetch_add(span.as_secs(), Ordering::Relaxed);
    }

    /// Sets the clock back.
    pub(crate) fn set_back(&self, span: Duration) {
        self.time_s.fetch_sub(span.as_secs(), Ordering::Relaxed);
    }

    /// Credentials that are handed out without a token.
    pub(crate) fn member(&self, role: Role, member: &str) -> Credentials {
        let key = Key::generate().unwrap();
        let request = key.request().unwrap();
        let certificate = self.authority.sign(&request, role, &name(member), self.now()).unwrap();
        Credentials::new(key, &certificate, self.authority.certificate()).unwrap()
    }

    pub(crate) fn endpoint(&self, credentials: &Credentials) -> Endpoint {
        Endpoint::new(credentials, VERSION, self.clock()).unwrap()
    }

    pub(crate) fn node(&self, member: &str) -> Endpoint {
        self.endpoint(&self.member(Role::Node, member))
    }

    pub(crate) fn named(&self, role: Role, member: &str) -> Member {
        Member { cluster: self.authority.cluster().clone(), role, name: name(member) }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) const fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// Two ends of a connection over loopback.
pub(crate) fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    for socket in [&one, &other] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (one, other)
}

/// What came of an attempt to meet.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) client: io::Result<SecureStream>,
    pub(crate) server: io::Result<SecureStream>,
}

impl Met {
    pub(crate) fn both(self) -> (SecureStream, SecureStream) {
        (self.client.unwrap(), self.server.unwrap())
    }

    pub(crate) fn client_error(&self) -> StreamError {
        reason(self.client.as_ref().err())
    }

    pub(crate) fn server_error(&self) -> StreamError {
        reason(self.server.as_ref().err())
    }
}

fn reason(error: Option<&io::Error>) -> StreamError {
    let error = error.expect("it should have failed");
    StreamError::of(error)
        .unwrap_or_else(|| panic!("it failed for another reason: {error:?}"))
        .clone()
}

/// Lets both sides finish their handshake, as blocking clients do, and hear a first word of the
/// other: only by that a client knows that it is taken.
pub(crate) fn meet(
    client: impl FnOnce(TcpStream) -> io::Result<SecureStream> + Send,
    server: impl FnOnce(TcpStream) -> io::Result<SecureStream> + Send,
) -> Met {
    let (one, other) = sockets();
    thread::scope(|scope| {
        let server = scope.spawn(move || greet(server(other)?));
        let client = client(one).and_then(greet);
        Met { client, server: server.join().unwrap() }
    })
}

/// Lets an endpoint of ours meet a peer that does anything, and says what ours heard of it.
pub(crate) fn meet_with(
    ours: impl FnOnce(TcpStream) -> io::Result<SecureStream> + Send,
    theirs: impl FnOnce(TcpStream) + Send,
) -> Result<(), StreamError> {
    let (one, other) = sockets();
    thread::scope(|scope| {
        scope.spawn(move || theirs(other));
        let met = ours(one).and_then(greet);
        met.map(drop).map_err(|error| reason(Some(&error)))
    })
}

fn greet(mut stream: SecureStream) -> io::Result<SecureStream> {
    stream.set_nonblocking(false)?;
    stream.handshake()?;
    stream.write_all(b"!")?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// Waits until something can be done at a stream; as a poller would.
pub(crate) fn wait(stream: &impl AsFd, read: bool, write: bool) {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, read);
    flags.set(PollFlags::POLLOUT, write);
    let mut watched = [PollFd::new(stream.as_fd(), flags)];
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert_ne!(poll(&mut watched, patience).unwrap(), 0, "nothing happened");
}
