//! The connections of clients and agents: which are taken in, whose requests are taken when, and
//! how much each user may leave unread.

use super::{Driver, LISTENER};
use crate::agents::Branch;
use crate::error::Problem;
use crate::exchange::send_parts;
use crate::requests::Client;
use nix::unistd::geteuid;
use std::cmp::Reverse;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use tracing::warn;
use tutti_linux::peer;
use tutti_node::instance::may_run_instance;
use tutti_node::link::{Interest, Link, LinkError, Poller};
use tutti_node::log::PROVOKED;
use tutti_node::platform::time as clock;
use tutti_node::platform::ways::Stream;
use tutti_types::{ClusterTime, Nanos};
use tutti_wire::Role;
use tutti_wire::branch::Vouch;
use tutti_wire::code::Code;
use tutti_wire::limits::{FRAME_BYTES_MAX, JOB_REQUEST_BYTES_MAX};
use tutti_wire::local::Reply;

/// Connections at once; one more is closed. Far above what a machine's users open, far below what
/// a process may.
const CONNECTIONS_MAX: usize = 4096;

/// Connections of one user at once, so that none can keep the others out.
const CONNECTIONS_PER_USER_MAX: usize = CONNECTIONS_MAX / 4;

/// Descriptors that are not for connections.
const DESCRIPTORS_KEPT: u64 = 64;

/// How long no connection is accepted when there is no descriptor for another connection.
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(500);

/// Halves of messages from one user, in all, beyond the first [`PENDING_FREE_BYTES`] of each
/// connection.
const PENDING_PER_USER_BYTES_MAX: usize = 64 << 20;
const PENDING_FREE_BYTES: usize = 64 << 10;

/// What may be queued for a client that does not read before it is cut off.
const CLIENT_UNSENT_MAX: usize = 64 << 20;

/// What may be queued for all connections of a user together before no more of that user's requests
/// are taken, and those that do not read are cut off.
const USER_UNSENT_MAX: usize = 32 << 20;

/// How long a connection may take nothing of what is queued for it while its user has too much
/// queued.
const STALLED: Nanos = Nanos::from_secs(5);

/// How long one user's requests are answered in a round. The rest waits for the next rounds:
/// requests of other users and reports of agents come between.
const USER_ROUND: Nanos = Nanos::from_millis(20);

/// Questions to agents that may be open for one user: the answers wait here for each other.
const QUESTIONS_PER_USER_MAX: usize = 16;

/// One connection.
pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(crate) uid: u32,
    pub(crate) pid: i32,
    /// The user, if an agent of the cluster vouched for one on another node.
    pub(crate) vouch: Option<Vouch>,
    pub(crate) kind: Kind,
    /// How much its peer had taken when it was last seen to take something, and when that was.
    progress: (u64, ClusterTime),
    /// How long its requests were answered in all.
    pub(crate) served: Nanos,
}

impl Connection {
    /// Sends what is queued as far as the peer takes it: to an agent, after that, what MPI programs
    /// exchange.
    fn settle(&mut self, poller: &Poller, token: u64) -> Result<(), LinkError> {
        loop {
            self.link.settle(poller, token)?;
            match &mut self.kind {
                Kind::Branch(branch) if !branch.sending.is_empty() && self.link.unsent() == 0 => {
                    send_parts(&mut branch.sending, &mut self.link);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Whose connection it is.
pub(crate) enum Kind {
    /// Not greeted yet.
    Unknown,
    /// An agent that will name the user that it speaks for.
    Proxy,
    /// A user's verb.
    Client(Client),
    /// An agent with its branch of the control tree.
    Branch(Branch),
}

impl Driver {
    pub(super) fn accept(&mut self, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.take_in(stream) {
                        warn!(code = %Code::System, "cannot take a connection: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // It still waits: without a pause we would do nothing else.
                    warn!(code = %Code::System, "cannot take a connection: {error}");
                    self.intake.accept_again = self.now() + ACCEPT_PAUSE;
                    let _ = self.intake.poller.modify(listener, LISTENER, Interest::NONE);
                    return;
                }
            }
        }
    }

    pub(crate) fn take_in(&mut self, stream: impl Into<Stream>) -> std::io::Result<()> {
        let stream = stream.into();
        let who = peer::peer_credentials(&stream)?;
        let mut link = Link::new(stream)?;
        link.limit(JOB_REQUEST_BYTES_MAX);
        link.one_at_a_time();
        link.greet(Role::Server);
        if let Some(reason) = self.has_no_room_for(who.uid) {
            warn!(target: PROVOKED, code = %Code::TooMuchAsked, "turned away process {}: {reason}", who.pid);
            link.send(&Problem::new(Code::TooMuchAsked, reason).failed());
            let _ = link.flush();
            return Ok(());
        }
        let token = self.intake.next_token;
        self.intake.next_token += 1;
        self.intake.poller.add(&link, token, Interest::READ)?;
        let kind = Kind::Unknown;
        let progress = (0, self.now());
        let (uid, pid, served) = (who.uid, who.pid, Nanos::ZERO);
        let connection = Connection { link, uid, pid, vouch: None, kind, progress, served };
        self.intake.connections.insert(token, connection);
        self.intake.newcomers.push(token);
        Ok(())
    }

    /// Why one more connection of a user is not taken. The instance's owner always gets
    /// in: its agents are the owner's, and only the owner could end what is wrong.
    fn has_no_room_for(&mut self, uid: u32) -> Option<String> {
        if self.admin(uid).is_ok() {
            return None;
        }
        if self.intake.connections.len() >= self.intake.connections_max {
            return Some(format!(
                "{} connections are open, which is all",
                self.intake.connections_max
            ));
        }
        let of_user = self.intake.connections.values().filter(|c| c.uid == uid).count();
        let most = CONNECTIONS_PER_USER_MAX.min(self.intake.connections_max / 4);
        (of_user >= most).then(|| {
            let user = self.user_name(uid);
            format!("user {user} has {of_user} connections open, the most that one user may have")
        })
    }

    /// Reads what has come.
    pub(super) fn receive(&mut self, token: u64) -> Result<(), LinkError> {
        match self.intake.connections.get_mut(&token) {
            Some(connection) if !connection.link.is_held() => connection.link.receive(),
            _ => Ok(()),
        }
    }

    pub(super) fn is_agent(&self, token: u64) -> bool {
        self.intake.connections.get(&token).is_some_and(|it| matches!(it.kind, Kind::Branch(_)))
    }

    pub(super) fn take_messages(&mut self, token: u64, received: Result<(), LinkError>) {
        if let Err(error) = self.read_messages(token).and(received) {
            self.close(token, &error);
        } else if self.keeps_too_much(token) {
            self.close(token, &LinkError::Closed);
        }
    }

    /// Whether the user of this connection makes us keep too many halves of messages.
    fn keeps_too_much(&self, token: u64) -> bool {
        let kept = |c: &Connection| c.link.pending().saturating_sub(PENDING_FREE_BYTES);
        self.intake.connections.get(&token).is_some_and(|connection| {
            kept(connection) > 0
                && matches!(connection.kind, Kind::Client(_))
                && self
                    .intake
                    .connections
                    .values()
                    .filter(|other| other.uid == connection.uid)
                    .map(kept)
                    .sum::<usize>()
                    > PENDING_PER_USER_BYTES_MAX
        })
    }

    /// Whether a client's next request may be taken: one at a time, so that a client that sends
    /// many waits for itself, not all for it.
    fn may_ask(&self, token: u64) -> bool {
        !self.pending.questions.is_open_for(token)
            && !self.pending.forecasts.is_open_for(token)
            && !self.cluster.removals.is_open_for(token)
            && !self.monitoring.events.is_open_for(token)
            && !self.memory.has_enough_pending(token)
            && !self.pending.early.iter().any(|early| early.token == token)
            && self.intake.connections.get(&token).is_some_and(|connection| {
                !connection.link.is_behind()
                    && self.has_time_in_round(connection.uid)
                    && self.has_room_for_answers(connection.uid)
            })
    }

    /// Clients with a message that waits, in turn: those that were served least come first, so one
    /// that sends many requests holds up no other of its user. Of new ones the latest does: verbs
    /// that have just been called do not wait behind those that do not read.
    pub(crate) fn take_unread(&mut self) -> Vec<u64> {
        let served = |token| self.intake.connections.get(&token).map(|it| it.served);
        let unread = std::mem::take(&mut self.intake.unread);
        let mut in_turn: Vec<u64> = unread.into_iter().collect();
        in_turn.sort_by_cached_key(|&token| (served(token), Reverse(token)));
        in_turn
    }

    /// Whether another request of this user is answered in this round.
    fn has_time_in_round(&self, uid: u32) -> bool {
        self.intake.answered.get(&uid).is_none_or(|took| *took < USER_ROUND)
    }

    /// Whether a user's connections leave room for another answer. Others' requests do not wait for
    /// that.
    fn has_room_for_answers(&self, uid: u32) -> bool {
        let is_theirs = |token| self.intake.connections.get(&token).is_some_and(|it| it.uid == uid);
        self.intake.unsent.get(&uid).is_none_or(|bytes| *bytes <= USER_UNSENT_MAX)
            && self.pending.questions.open_for(is_theirs) < QUESTIONS_PER_USER_MAX
    }

    fn read_messages(&mut self, token: u64) -> Result<(), LinkError> {
        loop {
            let Some(connection) = self.intake.connections.get_mut(&token) else { return Ok(()) };
            match &connection.kind {
                Kind::Unknown => {
                    if !self.take_greeting(token)? {
                        return Ok(());
                    }
                }
                Kind::Client(_) => {
                    if self.may_ask(token)
                        && let Some(connection) = self.intake.connections.get_mut(&token)
                        && let Some(request) = connection.link.next()?
                    {
                        let (uid, began) = (connection.uid, clock::monotonic_ns());
                        self.on_request(token, request);
                        let took = Nanos(clock::monotonic_ns().saturating_sub(began));
                        *self.intake.answered.entry(uid).or_default() += took;
                        if let Some(connection) = self.intake.connections.get_mut(&token) {
                            connection.served += took;
                        }
                    }
                    return Ok(());
                }
                Kind::Proxy => {
                    let Some(vouch) = connection.link.next()? else { return Ok(()) };
                    self.on_vouch(token, vouch)?;
                }
                Kind::Branch(_) => match connection.link.next()? {
                    Some(message) => self.on_branch(token, message),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Whether a client that had not greeted has.
    pub(super) fn take_greeting(&mut self, token: u64) -> Result<bool, LinkError> {
        match self.intake.connections.get_mut(&token) {
            Some(Connection { link, kind: Kind::Unknown, .. }) => match link.next_greeting()? {
                Some(role) => self.on_greeting(token, role).map(|()| true),
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    fn on_greeting(&mut self, token: u64, role: Role) -> Result<(), LinkError> {
        let Some(connection) = self.intake.connections.get_mut(&token) else { return Ok(()) };
        let trusted = may_run_instance(connection.uid, geteuid().as_raw());
        connection.kind = match role {
            Role::Client => Kind::Client(Client::default()),
            Role::Agent if trusted => {
                connection.link.limit(FRAME_BYTES_MAX);
                Kind::Branch(Branch::default())
            }
            Role::Proxy if trusted && connection.vouch.is_none() => Kind::Proxy,
            Role::Agent
            | Role::Proxy
            | Role::FrontEnd
            | Role::Server
            | Role::Gate
            | Role::Newcomer
            | Role::Supervisor => {
                return Err(tutti_wire::DecodeError::NotTutti.into());
            }
        };
        Ok(())
    }

    /// From now on the connection is that of a user on another node.
    fn on_vouch(&mut self, token: u64, vouch: Vouch) -> Result<(), LinkError> {
        let refused = self.has_no_room_for(vouch.uid);
        let Some(connection) = self.intake.connections.get_mut(&token) else { return Ok(()) };
        connection.kind = Kind::Unknown;
        connection.uid = vouch.uid;
        connection.pid = vouch.pid;
        connection.vouch = Some(vouch);
        connection.link.expect_greeting();
        if let Some(reason) = refused {
            connection.link.send(&Problem::new(Code::TooMuchAsked, reason).failed());
            connection.link.flush()?;
            return Err(LinkError::Closed);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, token: u64, error: &LinkError) {
        let Some(connection) = self.intake.connections.remove(&token) else { return };
        self.intake.poller.remove(&connection.link);
        if let Some(unsent) = self.intake.unsent.get_mut(&connection.uid) {
            *unsent = unsent.saturating_sub(connection.link.unsent());
        }
        if !is_end(error) {
            warn!(target: PROVOKED, code = %Code::NotUnderstood, "closing a connection of process {} of user {}: {:#}",
                connection.pid,
                connection.uid,
                anyhow::Error::msg(chain(error))
            );
        }
        match connection.kind {
            Kind::Unknown | Kind::Proxy => {}
            Kind::Client(client) => {
                self.monitoring.events.forget(token);
                let from = connection.vouch.map(|vouch| vouch.node);
                self.on_client_gone(client, from);
            }
            Kind::Branch(_) => self.on_branch_gone(token),
        }
        self.clock.active = self.now();
    }

    /// Answers a client, in the order of its requests.
    pub(crate) fn reply(&mut self, token: u64, reply: &Reply) {
        if !self.memory.defer(token, reply) {
            self.send_reply(token, reply);
        }
    }

    pub(crate) fn send_reply(&mut self, token: u64, reply: &Reply) {
        let now = self.now();
        let Some(connection) = self.intake.connections.get_mut(&token) else { return };
        let before = connection.link.unsent();
        if before == 0 {
            connection.progress = (connection.link.written(), now);
        }
        if connection.link.try_send(reply).is_err() {
            let reason = "the answer is too long to be sent; ask for less";
            connection.link.send(&Problem::new(Code::TooMuchAsked, reason).failed());
        }
        *self.intake.unsent.entry(connection.uid).or_default() += connection.link.unsent() - before;
    }

    /// Counts what is queued for each user's clients, and lists connections of those with too much
    /// that have taken nothing for a while.
    pub(super) fn count_unsent(&mut self) -> Vec<u64> {
        let now = self.now();
        self.intake.unsent.clear();
        self.intake.stalled_due = ClusterTime::NEVER;
        for connection in self.intake.connections.values_mut() {
            let (unsent, written) = (connection.link.unsent(), connection.link.written());
            if unsent == 0 || !matches!(connection.kind, Kind::Client(_)) {
                continue;
            }
            if connection.progress.0 != written {
                connection.progress = (written, now);
            }
            *self.intake.unsent.entry(connection.uid).or_default() += unsent;
        }
        self.intake.unsent.retain(|_, bytes| *bytes > USER_UNSENT_MAX / 2);
        let mut stalled = Vec::new();
        for (&token, connection) in &self.intake.connections {
            let has_too_much =
                self.intake.unsent.get(&connection.uid).is_some_and(|it| *it > USER_UNSENT_MAX);
            if has_too_much && connection.link.unsent() > 0 {
                let until = connection.progress.1 + STALLED;
                if until <= now {
                    stalled.push(token);
                } else {
                    self.intake.stalled_due = self.intake.stalled_due.min(until);
                }
            }
        }
        stalled
    }

    /// Sends what is queued, as far as each peer takes it, and closes connections that are of no
    /// more use.
    pub(super) fn settle_connections(&mut self) {
        let mut broken = Vec::new();
        let waits = |(token, connection): (&u64, &Connection)| {
            (matches!(connection.kind, Kind::Client(_)) && connection.link.has_message())
                .then_some(*token)
        };
        let waiting: Vec<u64> = self.intake.connections.iter().filter_map(waits).collect();
        for (&token, connection) in &mut self.intake.connections {
            if let Err(error) = connection.settle(&self.intake.poller, token) {
                broken.push((token, error));
            } else if matches!(connection.kind, Kind::Client(_))
                && connection.link.unsent() > CLIENT_UNSENT_MAX
            {
                broken.push((token, LinkError::Closed));
            }
        }
        broken.extend(self.count_unsent().into_iter().map(|token| (token, LinkError::Closed)));
        for (token, error) in broken {
            self.close(token, &error);
        }
        self.intake.answered.clear();
        self.intake.unread = waiting.into_iter().filter(|&token| self.may_ask(token)).collect();
    }
}

/// As many connections as there can be descriptors.
pub(super) fn connections_max() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let room = descriptors.saturating_sub(DESCRIPTORS_KEPT);
    usize::try_from(room).map_or(CONNECTIONS_MAX, |room| room.min(CONNECTIONS_MAX))
}

/// Whether the peer merely ended, whatever it had not read by then.
fn is_end(error: &LinkError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error {
        LinkError::Closed => true,
        LinkError::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionReset),
        LinkError::Decode(_) | LinkError::TooLong(_) => false,
    }
}

/// An error with all its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
