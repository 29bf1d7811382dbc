//! The ends of streams between users and daemons of different nodes.
//!
//! A client that is far from the daemon it wants connects to the agent of its own node instead.
//! What it says travels through the tree as bytes, and the agent at the other end has a connection
//! with the daemon, on which it first names the user. Neither the client nor the daemon speaks
//! otherwise than if they were on one machine.
//!
//! No other has a say in it. Each part of a stream names both ends; the agents on its way, who know
//! no streams but routes, see that it comes from the side where the first is (`tree/streams.rs`),
//! and each end that the first is the other one. A stream's number is nothing that could be
//! guessed, besides.
//!
//! Of each stream at most [`TUNNEL_WINDOW_BYTES`] are on their way in each direction: an end sends
//! no more until the other has passed on what came. So a reader that stalls holds up its own
//! stream, and the agents between hold no more of it than that.

use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use tutti_node::instance::may_run_instance;
use tutti_node::link::{Interest, Poller};
use tutti_node::platform::ways::Stream;
use tutti_wire::branch::{Part, Place, Refusal, TunnelId, Tunnelled};
use tutti_wire::frame::encode;
use tutti_wire::limits::{TUNNEL_CHUNK_BYTES, TUNNEL_WINDOW_BYTES};
use tutti_wire::local::Reply;
use tutti_wire::{Hello, Role};

/// Streams that end at one agent, at once. One user may have a quarter of them.
const ENDS_MAX: usize = 4096;

/// The other end is told of what was passed on when it is so much.
const TAKEN_BYTES: usize = TUNNEL_WINDOW_BYTES / 4;

/// Which stream, which of its ends is here and which is the other, and its user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) tunnel: TunnelId,
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) uid: u32,
}

/// Bytes for the socket, and what of them it has taken.
#[derive(Debug)]
struct Outgoing {
    /// Bytes for the socket that it has not taken yet.
    pending: Vec<u8>,
    /// What of them it has taken.
    written: usize,
    /// The first of them that did not come from the other end, which is told nothing of them.
    unsaid: usize,
}

/// One end of a stream, which is a connection here.
#[derive(Debug)]
struct End {
    socket: Stream,
    token: u64,
    /// The user of the stream.
    uid: u32,
    /// Which end this is.
    from: Place,
    /// Where the other end is.
    to: Place,
    /// What was read from the socket before it became an end, and has not been sent.
    said: Vec<u8>,
    outgoing: Outgoing,
    /// Bytes that may be sent to the other end.
    credit: usize,
    /// Bytes that were passed on and of which the other end has not been told.
    taken: usize,
    /// Nothing more comes from the socket, and the other end was told.
    read_all: bool,
    /// Nothing more is passed on of what comes from the other end.
    got_all: bool,
    /// The other end sent more than it may, and is to be told that the stream is over.
    is_cut: bool,
    /// Nothing has come from it at all.
    is_untouched: bool,
    interest: Interest,
}

/// All ends at this agent.
#[derive(Debug)]
pub(super) struct Tunnels {
    ends: BTreeMap<TunnelId, End>,
    tokens: BTreeMap<u64, TunnelId>,
    most: usize,
    /// Room to read into, once something was read.
    room: Vec<u8>,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self { ends: BTreeMap::new(), tokens: BTreeMap::new(), most: ENDS_MAX, room: Vec::new() }
    }
}

impl Tunnels {
    /// Makes a connection the end of a stream; `unsaid` is what the socket is to be sent first.
    ///
    /// # Errors
    /// If there are too many, or the socket can't be watched.
    pub(super) fn add(
        &mut self,
        Opening { tunnel, from, to, uid }: Opening,
        (socket, token): (impl Into<Stream>, u64),
        unsaid: Vec<u8>,
        poller: &Poller,
    ) -> io::Result<()> {
        self.check_room_for(uid)?;
        if self.ends.contains_key(&tunnel) {
            return Err(io::Error::other("there is such a stream already"));
        }
        let socket = socket.into();
        socket.set_nonblocking(true)?;
        let interest = Interest::READ;
        poller.add(&socket, token, interest)?;
        self.tokens.insert(token, tunnel);
        let end = End {
            socket,
            token,
            uid,
            from,
            to,
            said: Vec::new(),
            outgoing: Outgoing { written: 0, unsaid: unsaid.len(), pending: unsaid },
            credit: TUNNEL_WINDOW_BYTES,
            taken: 0,
            read_all: false,
            got_all: false,
            is_cut: false,
            is_untouched: true,
            interest,
        };
        self.ends.insert(tunnel, end);
        Ok(())
    }

    /// No user may keep the others out; the instance's owner may have all there is.
    fn check_room_for(&self, uid: u32) -> io::Result<()> {
        if self.ends.len() >= self.most {
            let reason = format!("{} streams are open, which is all", self.most);
            return Err(io::Error::other(reason));
        }
        let of_user = self.ends.values().filter(|end| end.uid == uid).count();
        if of_user >= self.most / 4 && !may_run_instance(uid, geteuid().as_raw()) {
            let reason = format!("user {uid} has {of_user} streams open, the most for one user");
            return Err(io::Error::other(reason));
        }
        Ok(())
    }

    /// What was read from a connection before it became an end goes ahead of all else, by the same
    /// rules.
    pub(super) fn say_first(&mut self, tunnel: TunnelId, said: Vec<u8>) {
        if let Some(end) = self.ends.get_mut(&tunnel) {
            end.said = said;
        }
    }

    /// Whether no stream ends here.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether this is the number of an end.
    pub(super) fn is_end(&self, token: u64) -> bool {
        self.tokens.contains_key(&token)
    }

    /// Reads from the connection of this number, unless there is no room on the way.
    pub(super) fn on_ready(&mut self, token: u64, out: &mut Vec<Tunnelled>) {
        if let Some(tunnel) = self.tokens.get(&token).copied() {
            self.read(tunnel, out);
        }
    }

    fn read(&mut self, tunnel: TunnelId, out: &mut Vec<Tunnelled>) {
        let Some(end) = self.ends.get_mut(&tunnel) else { return };
        if end.read_all || end.credit == 0 || !end.said.is_empty() {
            return;
        }
        self.room.resize(TUNNEL_CHUNK_BYTES, 0);
        let most = TUNNEL_CHUNK_BYTES.min(end.credit);
        let part = match end.socket.read(&mut self.room[..most]) {
            Ok(0) => Part::End(None),
            Ok(count) => {
                end.credit -= count;
                Part::Bytes(self.room[..count].to_vec().into())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            // A close with something unread resets the connection; it ends all the same.
            Err(_) => Part::End(None),
        };
        end.read_all = matches!(part, Part::End(_));
        out.push(end.part(tunnel, part));
    }

    /// A part of a stream that ends here has come.
    pub(super) fn on_part(&mut self, Tunnelled { from, to, tunnel, part }: Tunnelled) {
        // Of a stream that has ended meanwhile something may still come.
        let Some(end) = self.ends.get_mut(&tunnel) else { return };
        // Only the two ends have a say in it.
        if (end.to, end.from) != (from, to) {
            return;
        }
        match part {
            // Behind what was thrown away it would be taken for what comes next.
            Part::Bytes(_) if end.got_all => {}
            Part::Bytes(data) => {
                end.is_untouched = false;
                let waiting =
                    end.outgoing.pending.len() - end.outgoing.written - end.outgoing.unsaid;
                // A client that sends more than it may gets its stream cut, and no other.
                if waiting + data.len() > TUNNEL_WINDOW_BYTES {
                    end.is_cut = true;
                    end.take_no_more();
                } else {
                    if end.outgoing.written >= TAKEN_BYTES {
                        end.outgoing.pending.drain(..end.outgoing.written);
                        end.outgoing.written = 0;
                    }
                    end.outgoing.pending.extend_from_slice(&data);
                }
            }
            Part::Taken(bytes) => {
                end.credit = (end.credit + bytes as usize).min(TUNNEL_WINDOW_BYTES);
            }
            Part::End(refused) => {
                if let Some(refused) = refused
                    && end.is_untouched
                    && end.to == Place::Controller
                {
                    end.outgoing.pending = answer(refused);
                }
                end.got_all = true;
            }
            Part::Open(_) => end.got_all = true,
        }
    }

    /// Streams to nodes that are out of reach end.
    pub(super) fn lose(&mut self, is_lost: impl Fn(Place, TunnelId) -> bool) {
        for (tunnel, end) in &mut self.ends {
            if is_lost(end.to, *tunnel) {
                end.got_all = true;
                end.read_all = true;
            }
        }
    }

    /// The end of a round: writes what waits, watches for what is wanted, lets go of what is over.
    /// `is_busy` says where more would only wait.
    pub(super) fn settle(
        &mut self,
        poller: &Poller,
        is_busy: impl Fn(Place) -> bool,
        out: &mut Vec<Tunnelled>,
    ) {
        let mut over = Vec::new();
        for (&tunnel, end) in &mut self.ends {
            end.send_said(tunnel, out);
            // What it said before it was gone is still to be read.
            if end.write().is_err() {
                end.take_no_more();
            }
            if end.is_cut && !end.read_all {
                end.read_all = true;
                out.push(end.part(tunnel, Part::End(None)));
            }
            let all = end.got_all && end.outgoing.pending.is_empty();
            if end.taken >= TAKEN_BYTES && !end.got_all {
                let taken = u32::try_from(end.taken).unwrap_or(u32::MAX);
                end.taken = 0;
                out.push(end.part(tunnel, Part::Taken(taken)));
            }
            if all {
                // A socket that is gone needs no word.
                let _ = end.socket.shutdown(Shutdown::Write);
            }
            if all && end.read_all {
                over.push(tunnel);
                continue;
            }
            let may_read = !end.read_all && end.said.is_empty();
            let read = may_read && end.credit > 0 && !is_busy(end.to);
            let interest = Interest { read, write: !end.outgoing.pending.is_empty() };
            end.watch_for(interest, poller);
        }
        for tunnel in over {
            if let Some(end) = self.ends.remove(&tunnel) {
                poller.remove(&end.socket);
                self.tokens.remove(&end.token);
            }
        }
    }
}

/// What a client of the controller is told that does not reach it.
pub(super) fn answer(Refusal { reason, code }: Refusal) -> Vec<u8> {
    let mut answer = Hello { role: Role::Server }.to_frame().to_vec();
    // So short a message always fits.
    let _ = encode(&Reply::Failed { reason, code }, &mut answer);
    answer
}

impl End {
    /// A part of the stream for its other end.
    const fn part(&self, tunnel: TunnelId, part: Part) -> Tunnelled {
        Tunnelled { from: self.from, to: self.to, tunnel, part }
    }

    /// Where nothing is wanted of the socket it is not watched at all: that its other end is gone
    /// would be told again and again.
    fn watch_for(&mut self, interest: Interest, poller: &Poller) {
        let before = std::mem::replace(&mut self.interest, interest);
        let _ = match (before, interest) {
            (before, now) if before == now => Ok(()),
            (_, Interest::NONE) => {
                poller.remove(&self.socket);
                Ok(())
            }
            (Interest::NONE, _) => poller.add(&self.socket, self.token, interest),
            _ => poller.modify(&self.socket, self.token, interest),
        };
    }

    fn send_said(&mut self, tunnel: TunnelId, out: &mut Vec<Tunnelled>) {
        let most = self.said.len().min(self.credit);
        self.credit -= most;
        let (from, to) = (self.from, self.to);
        for chunk in self.said.drain(..most).as_slice().chunks(TUNNEL_CHUNK_BYTES) {
            let part = Part::Bytes(chunk.to_vec().into());
            out.push(Tunnelled { from, to, tunnel, part });
        }
    }

    /// What waits for the socket, and all that still comes for it, is thrown away.
    fn take_no_more(&mut self) {
        self.got_all = true;
        self.outgoing.pending.clear();
        self.outgoing.written = 0;
        self.outgoing.unsaid = 0;
    }

    fn write(&mut self) -> io::Result<()> {
        while self.outgoing.written < self.outgoing.pending.len() {
            match self.socket.write(&self.outgoing.pending[self.outgoing.written..]) {
                Ok(count) => {
                    let own = count.min(self.outgoing.unsaid);
                    self.outgoing.unsaid -= own;
                    self.outgoing.written += count;
                    self.taken += count - own;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outgoing.pending.clear();
        self.outgoing.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tutti_types::NodeId;
    use tutti_wire::code::Code;

    const HERE: Place = Place::Node(NodeId(0));
    const THERE: Place = Place::Node(NodeId(1));

    fn from_there(tunnel: TunnelId, part: Part) -> Tunnelled {
        Tunnelled { from: THERE, to: HERE, tunnel, part }
    }

    fn settled(tunnels: &mut Tunnels, poller: &Poller) -> Vec<usize> {
        let mut parts = Vec::new();
        tunnels.settle(poller, |_| false, &mut parts);
        let length = |part: &Tunnelled| match &part.part {
            Part::Bytes(data) => Some(data.len()),
            Part::Open(_) | Part::Taken(_) | Part::End(_) => None,
        };
        assert!(parts.iter().all(|part| part.part.is_proper()), "a parent would not pass it on");
        parts.iter().filter_map(length).collect()
    }

    #[test]
    fn one_user_keeps_nobody_out() {
        let poller = Poller::new().unwrap();
        let mut tunnels = Tunnels { most: 16, ..Tunnels::default() };
        let mut number = 0;
        let mut opens = |uid: u32| {
            number += 1;
            let tunnel = TunnelId { opener: NodeId(0), number };
            let opening = Opening { tunnel, from: HERE, to: Place::Controller, uid };
            let (_, socket) = UnixStream::pair().unwrap();
            tunnels.add(opening, (socket, number), Vec::new(), &poller).is_ok()
        };
        let others = [1, 2, 3].map(|past| geteuid().as_raw() + past);
        assert_eq!((0..10).filter(|_| opens(others[0])).count(), 4);
        assert_eq!((0..10).filter(|_| opens(others[1])).count(), 4);
        assert_eq!((0..10).filter(|_| opens(0)).count(), 8);
        assert!(!opens(others[2]), "there is no room for anybody");
    }

    #[test]
    fn who_has_hung_up_wakes_nobody_while_the_other_end_has_not_ended() {
        let mut poller = Poller::new().unwrap();
        let (client, socket) = UnixStream::pair().unwrap();
        let mut tunnels = Tunnels::default();
        let tunnel = TunnelId { opener: NodeId(0), number: 1 };
        let opening = Opening { tunnel, from: HERE, to: THERE, uid: 1 };
        tunnels.add(opening, (socket, 7), Vec::new(), &poller).unwrap();
        drop(client);
        let mut ready = Vec::new();
        poller.look(&mut ready).unwrap();
        assert_eq!(ready.iter().map(|it| it.token).collect::<Vec<_>>(), [7]);
        tunnels.on_ready(7, &mut Vec::new());
        settled(&mut tunnels, &poller);
        poller.look(&mut ready).unwrap();
        assert!(ready.is_empty(), "{ready:?}");
        tunnels.on_part(from_there(tunnel, Part::End(None)));
        settled(&mut tunnels, &poller);
        assert!(!tunnels.is_end(7));
    }

    #[test]
    fn what_a_client_says_at_once_is_sent_in_proper_parts_and_no_more_than_the_window() {
        let poller = Poller::new().unwrap();
        let (mut client, socket) = UnixStream::pair().unwrap();
        let mut tunnels = Tunnels::default();
        let tunnel = TunnelId { opener: NodeId(0), number: 1 };
        let opening = Opening { tunnel, from: HERE, to: THERE, uid: 1 };
        tunnels.add(opening, (socket, 7), Vec::new(), &poller).unwrap();
        tunnels.say_first(tunnel, vec![b'a'; TUNNEL_WINDOW_BYTES + 5]);
        client.write_all(b"later").unwrap();
        assert_eq!(settled(&mut tunnels, &poller).iter().sum::<usize>(), TUNNEL_WINDOW_BYTES);
        tunnels.on_part(from_there(tunnel, Part::Taken(100)));
        // What came later waits for what came first.
        let mut parts = Vec::new();
        tunnels.on_ready(7, &mut parts);
        assert!(parts.is_empty(), "{parts:?}");
        assert_eq!(settled(&mut tunnels, &poller), [5]);
        tunnels.on_ready(7, &mut parts);
        assert!(
            matches!(&parts[..], [Tunnelled { part: Part::Bytes(data), .. }] if data == b"later")
        );
    }

    fn bytes(count: usize) -> Part {
        Part::Bytes(vec![b'a'; count].into())
    }

    /// A stream of this agent's, with socket number 7, with the peer of the socket.
    fn one_stream(poller: &Poller, unsaid: Vec<u8>) -> (Tunnels, TunnelId, UnixStream) {
        let (peer, socket) = UnixStream::pair().unwrap();
        let (mut tunnels, tunnel) = (Tunnels::default(), TunnelId { opener: NodeId(0), number: 1 });
        let opening = Opening { tunnel, from: HERE, to: THERE, uid: 1 };
        tunnels.add(opening, (socket, 7), unsaid, poller).unwrap();
        (tunnels, tunnel, peer)
    }

    fn parts_of_round(tunnels: &mut Tunnels, poller: &Poller) -> Vec<Part> {
        let mut parts = Vec::new();
        tunnels.on_ready(7, &mut parts);
        tunnels.settle(poller, |_| false, &mut parts);
        parts.into_iter().map(|it| it.part).collect()
    }

    #[test]
    fn what_a_daemon_is_told_first_is_none_of_what_the_other_end_sent() {
        let poller = Poller::new().unwrap();
        let first = vec![b'f'; 3 * TAKEN_BYTES];
        let (mut tunnels, tunnel, mut peer) = one_stream(&poller, first.clone());
        // A window is never too much, whatever else waits for the socket.
        tunnels.on_part(from_there(tunnel, bytes(TUNNEL_WINDOW_BYTES)));
        let (mut sent, mut told, mut got) = (TUNNEL_WINDOW_BYTES, 0, Vec::new());
        let mut room = vec![0; TAKEN_BYTES / 3];
        while sent < 4 * TUNNEL_WINDOW_BYTES {
            for part in parts_of_round(&mut tunnels, &poller) {
                let Part::Taken(more) = part else { panic!("{part:?}") };
                told += more as usize;
            }
            let end = &tunnels.ends[&tunnel];
            let waiting = end.outgoing.pending.len() - end.outgoing.written - end.outgoing.unsaid;
            assert_eq!(told + end.taken, sent - waiting);
            tunnels.on_part(from_there(tunnel, bytes(told + TUNNEL_WINDOW_BYTES - sent)));
            sent = told + TUNNEL_WINDOW_BYTES;
            assert!(!tunnels.ends[&tunnel].is_cut);
            let count = peer.read(&mut room).unwrap();
            got.extend_from_slice(&room[..count]);
        }
        assert!(got.starts_with(&first));
        assert!(got[first.len()..].iter().all(|byte| *byte == b'a'));
    }

    #[test]
    fn who_sends_more_than_he_may_is_told_that_the_stream_is_over() {
        let poller = Poller::new().unwrap();
        let (mut tunnels, tunnel, mut peer) = one_stream(&poller, Vec::new());
        tunnels.on_part(from_there(tunnel, bytes(TUNNEL_WINDOW_BYTES)));
        tunnels.on_part(from_there(tunnel, bytes(1)));
        // Nor does anything follow with a gap before it.
        tunnels.on_part(from_there(tunnel, bytes(1)));
        // That nothing may be sent to it holds the word up no more than anything else.
        tunnels.ends.get_mut(&tunnel).unwrap().credit = 0;
        let parts = parts_of_round(&mut tunnels, &poller);
        assert!(matches!(&parts[..], [Part::End(_)]), "{parts:?}");
        assert!(!tunnels.is_end(7));
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        assert!(got.is_empty(), "{} bytes", got.len());
    }

    #[test]
    fn nobody_but_the_other_end_has_a_say_in_a_stream() {
        let poller = Poller::new().unwrap();
        let (mut tunnels, tunnel, mut peer) = one_stream(&poller, Vec::new());
        tunnels.ends.get_mut(&tunnel).unwrap().credit = 0;
        let cut = Refusal { reason: "cut".into(), code: Code::Other };
        for from in [Place::Controller, Place::Node(NodeId(2)), HERE] {
            for part in [bytes(1), Part::Taken(9), Part::End(Some(cut.clone()))] {
                tunnels.on_part(Tunnelled { from, to: HERE, tunnel, part });
            }
            // Nor does what is meant for another daemon of this machine reach this one.
            let to = Place::Controller;
            tunnels.on_part(Tunnelled { from: THERE, to, tunnel, part: bytes(1) });
        }
        assert!(parts_of_round(&mut tunnels, &poller).is_empty());
        assert_eq!(tunnels.ends[&tunnel].credit, 0);
        tunnels.on_part(from_there(tunnel, Part::Bytes(b"theirs".to_vec().into())));
        tunnels.on_part(from_there(tunnel, Part::End(None)));
        assert!(parts_of_round(&mut tunnels, &poller).is_empty());
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"theirs");
    }

    #[test]
    fn the_last_words_of_who_has_hung_up_arrive() {
        let poller = Poller::new().unwrap();
        let (mut tunnels, tunnel, mut peer) = one_stream(&poller, Vec::new());
        // What waits in the socket is never read by it, and there is more.
        tunnels.on_part(from_there(tunnel, bytes(TUNNEL_WINDOW_BYTES)));
        assert!(parts_of_round(&mut tunnels, &poller).is_empty());
        peer.write_all(b"finished").unwrap();
        drop(peer);
        let mut parts = Vec::new();
        tunnels.settle(&poller, |_| false, &mut parts);
        for _ in 0..3 {
            tunnels.on_ready(7, &mut parts);
            tunnels.settle(&poller, |_| false, &mut parts);
        }
        let parts: Vec<Part> = parts.into_iter().map(|it| it.part).collect();
        assert!(
            matches!(&parts[..], [Part::Bytes(said), Part::End(_)] if said == b"finished"),
            "{parts:?}"
        );
        assert!(!tunnels.is_end(7));
    }
}
