//! Streams between users and daemons of different nodes: where they begin and end at an agent, and
//! which way their parts go. The connections themselves are the affair of [`crate::tunnels`].

use super::{DOOR, GATE, Guest, PORT, Refused, Tree, Way};
use crate::tunnels::{Opening, answer};
use nix::unistd::geteuid;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use tracing::warn;
use tutti_linux::peer;
use tutti_node::instance::may_run_instance;
use tutti_node::link::{Interest, Link, Poller};
use tutti_node::log::PROVOKED;
use tutti_node::platform::time::monotonic_ns;
use tutti_node::platform::ways::{self, Stream};
use tutti_node::platform::{chance, hardware};
use tutti_types::NodeId;
use tutti_wire::Role;
use tutti_wire::branch::{Part, Place, Refusal, Through, TunnelId, Tunnelled, Vouch};
use tutti_wire::code::Code;
use tutti_wire::limits::NEWCOMER_FRAME_BYTES_MAX;

/// How long a new connection may take to say where it wants to go.
const GUEST_PATIENCE_NS: u64 = 10_000_000_000;

/// Connections that have not said yet, or were told that they can't get there, at once; and of one
/// user.
const GUESTS_MAX: usize = 512;
const GUESTS_PER_USER_MAX: usize = GUESTS_MAX / 4;

/// What is read at once of what no reader wants.
const REFUSED_READ_BYTES: usize = 16 << 10;

/// How long no connection is accepted when there is no descriptor for another connection.
const ACCEPT_PAUSE_NS: u64 = 500_000_000;

/// What an end of a stream is told when the way to its other end is unknown.
const NOWHERE: &str = "the node is out of reach";

impl Tree {
    pub(super) fn on_gate(&mut self, poller: &Poller) {
        while let Some(accepted) = self.ways.gate.as_ref().map(UnixListener::accept) {
            match accepted {
                Ok((stream, _)) => self.take_guest(stream, poller),
                Err(error) => return self.cannot_accept(&error, poller),
            }
        }
    }

    /// No other waits, or there is no descriptor for it: then, without a pause, we would do nothing
    /// else.
    pub(super) fn cannot_accept(&mut self, error: &io::Error, poller: &Poller) {
        use ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if !matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
            warn!(code = %Code::System, "cannot take a connection: {error}");
            self.watch_doors(Interest::NONE, poller);
            self.entrance.accept_again_ns = Some(monotonic_ns() + ACCEPT_PAUSE_NS);
        }
    }

    pub(super) fn accept_again(&mut self, poller: &Poller) {
        if self.entrance.accept_again_ns.is_some_and(|at| at <= monotonic_ns()) {
            self.entrance.accept_again_ns = None;
            self.watch_doors(Interest::READ, poller);
        }
    }

    fn watch_doors(&self, interest: Interest, poller: &Poller) {
        // They are watched since they are there: only how can't be refused.
        for (door, token) in [(&self.ways.gate, GATE), (&self.ways.door, DOOR)] {
            let _ = door.as_ref().map(|door| poller.modify(door, token, interest));
        }
        let _ = self.entrance.port.as_ref().map(|port| poller.modify(port, PORT, interest));
    }

    /// No user may keep others out by connections that say nothing.
    fn has_room_for(&self, uid: u32) -> bool {
        let refused = self.entrance.refused.values().map(|refused| refused.uid);
        let of_user = self.entrance.guests.values().map(|guest| guest.uid).chain(refused);
        let of_user = of_user.filter(|other| *other == uid).count();
        let all = self.entrance.guests.len() + self.entrance.refused.len();
        let has_room = all < GUESTS_MAX && of_user < GUESTS_PER_USER_MAX;
        has_room || may_run_instance(uid, geteuid().as_raw())
    }

    /// A new connection.
    pub(crate) fn take_guest(&mut self, stream: impl Into<Stream>, poller: &Poller) {
        let stream = stream.into();
        let Ok(uid) = peer::peer_credentials(&stream).map(|who| who.uid) else { return };
        if !self.has_room_for(uid) {
            return warn!(target: PROVOKED, code = %Code::TooMuchAsked, "too many of user {uid} at the gate say nothing");
        }
        let Ok(mut link) = Link::new(stream) else { return };
        link.limit(NEWCOMER_FRAME_BYTES_MAX);
        link.one_at_a_time();
        let token = self.token();
        if poller.add(&link, token, Interest::READ).is_ok() {
            let until_ns = monotonic_ns() + GUEST_PATIENCE_NS;
            self.entrance.guests.insert(token, Guest { link, uid, until_ns });
            self.on_guest(token, poller);
        }
    }

    /// All that is said here is for the controller.
    pub(super) fn on_door(&mut self, poller: &Poller) {
        while let Some(accepted) = self.ways.door.as_ref().map(UnixListener::accept) {
            match accepted {
                Ok((stream, _)) => self.open(stream, Vec::new(), Place::Controller, poller),
                Err(error) => return self.cannot_accept(&error, poller),
            }
        }
    }

    pub(super) fn token(&mut self) -> u64 {
        self.entrance.next_token += 1;
        self.entrance.next_token
    }

    pub(super) fn on_guest(&mut self, token: u64, poller: &Poller) {
        let Some(Guest { link, .. }) = self.entrance.guests.get_mut(&token) else { return };
        let received = link.receive();
        let asked = link.next_greeting().and_then(|role| match role {
            Some(Role::Gate) => link.next::<Through>(),
            Some(_) => Err(tutti_wire::DecodeError::NotTutti.into()),
            None => Ok(None),
        });
        if matches!(asked, Ok(None)) && received.is_ok() {
            return;
        }
        let Some(Guest { link, .. }) = self.entrance.guests.remove(&token) else { return };
        poller.remove(&link);
        if let Ok(Some(through)) = asked {
            let (stream, said) = link.into_rest();
            self.open(stream, said, Place::Node(through.node), poller);
        }
    }

    /// Begins a stream from a client here, which has said this much already.
    fn open(&mut self, stream: impl Into<Stream>, said: Vec<u8>, to: Place, poller: &Poller) {
        let stream = stream.into();
        let Some(node) = self.routes.own() else { return self.send_away(stream, to, poller) };
        let vouch = match vouch(&stream, node) {
            Ok(vouch) => vouch,
            Err(error) => {
                return warn!(target: PROVOKED, code = %Code::NotUnderstood, "unknown peer at the socket for streams: {error:#}");
            }
        };
        let number = match chance::number() {
            Ok(number) => number,
            Err(error) => return warn!(code = %Code::System, "cannot pass a client on: {error}"),
        };
        let tunnel = TunnelId { opener: node, number };
        let (token, from) = (self.token(), Place::Node(node));
        let opening = Opening { tunnel, from, to, uid: vouch.uid };
        if let Err(error) = self.ways.tunnels.add(opening, (stream, token), Vec::new(), poller) {
            return warn!(code = %Code::System, "cannot pass a client on: {error}");
        }
        self.ways.tunnelled.push(Tunnelled { from, to, tunnel, part: Part::Open(vouch) });
        self.ways.tunnels.say_first(tunnel, said);
    }

    /// Tells a client of the controller that it can't be reached. A client of another node's keeper
    /// asks again by itself.
    fn send_away(&mut self, mut stream: Stream, to: Place, poller: &Poller) {
        let Ok(uid) = peer::peer_credentials(&stream).map(|who| who.uid) else { return };
        if to != Place::Controller || !self.has_room_for(uid) {
            return;
        }
        let answer = answer(refusal(self.out_of_reach(), Code::OutOfReach));
        let token = self.token();
        let told = stream
            .set_nonblocking(true)
            .and_then(|()| stream.write_all(&answer))
            .and_then(|()| stream.shutdown(Shutdown::Write))
            .and_then(|()| poller.add(&stream, token, Interest::READ));
        if told.is_ok() {
            let until_ns = monotonic_ns() + GUEST_PATIENCE_NS;
            self.entrance.refused.insert(token, Refused { stream, uid, until_ns });
        }
    }

    fn out_of_reach(&self) -> String {
        let name = &self.options.name;
        let Some(membership) = &self.options.membership else {
            return format!("node {name} has not joined yet");
        };
        let what = if self.options.is_client() { "client machine" } else { "node" };
        let (cluster, head) = (&membership.cluster, membership.head.join(", "));
        if let Some(reason) = &self.above.refused {
            return format!("{what} {name} is not taken by cluster {cluster}: {reason}");
        }
        format!(
            "{what} {name} cannot reach the head of cluster {cluster}, {head}; it tries again and again"
        )
    }

    /// What a client still says that was told that the controller is out of reach.
    pub(super) fn on_refused(&mut self, token: u64, poller: &Poller) {
        let Some(Refused { stream, .. }) = self.entrance.refused.get_mut(&token) else { return };
        let is_over = match stream.read(&mut [0; REFUSED_READ_BYTES]) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        if is_over && let Some(Refused { stream, .. }) = self.entrance.refused.remove(&token) {
            poller.remove(&stream);
        }
    }

    /// A remote client wants to speak with a daemon of this machine.
    fn arrive(&mut self, opening: Opening, mut vouch: Vouch, poller: &Poller) {
        vouch.is_trusted = self.options.is_root() && self.trusts_node(vouch.node);
        let daemon = match opening.from {
            Place::Controller => &self.options.controller,
            Place::Node(_) => {
                // A keeper asks for nothing but the user, and takes nothing long from a newcomer.
                vouch.groups.clear();
                vouch.hard_limits.clear();
                &self.options.keeper
            }
        };
        let mut introduction = tutti_wire::Hello { role: Role::Proxy }.to_frame().to_vec();
        let added = tutti_wire::frame::encode(&vouch, &mut introduction)
            .map_err(std::io::Error::other)
            .and_then(|()| ways::connect(daemon))
            .and_then(|stream| {
                let token = self.token();
                self.ways.tunnels.add(opening, (stream, token), introduction, poller)
            });
        if let Err(error) = added {
            let reason = format!("node {} cannot take it: {error}", self.options.name);
            let Opening { tunnel, from, to, .. } = opening;
            let part = Part::End(Some(refusal(reason, Code::ControllerAway)));
            self.ways.tunnelled.push(Tunnelled { from, to, tunnel, part });
        }
    }

    /// A neighbour has passed on a part of a stream, which is taken only if it may have come that
    /// way. If not, the stream is over for its sender, without a gap; no other hears of it.
    pub(super) fn on_tunnelled(&mut self, came: Way, part: Tunnelled) {
        let Some(refusal) = self.objection(came, &part) else {
            return self.ways.tunnelled.push(part);
        };
        // What is said to that would be said to itself without an end.
        if !matches!(part.part, Part::End(_)) {
            self.send_part(came, part.refused(refusal));
        }
    }

    /// Why a part of a stream from this neighbour is not passed on, if it is not. A child speaks
    /// for its branch, the parent for all that is not below.
    fn objection(&mut self, came: Way, part: &Tunnelled) -> Option<Refusal> {
        let for_another = || refusal("its agent speaks for another node", Code::NotTrusted);
        if self.routes.way(part.from) != came {
            return Some(for_another());
        }
        if came == Way::Up && self.routes.way(part.to) == Way::Up {
            return Some(refusal(NOWHERE, Code::OutOfReach));
        }
        let Part::Open(vouch) = &part.part else {
            let too_much = || refusal("it says too much at once", Code::NotUnderstood);
            return (!part.part.is_proper()).then(too_much);
        };
        let opener = part.tunnel.opener;
        if part.from != Place::Node(opener) || vouch.node != opener {
            return Some(for_another());
        }
        if let Some(reason) = self.client_objection(vouch, part.to) {
            return Some(refusal(reason, Code::NotAllowed));
        }
        let is_believed = !self.options.is_root() || vouch.uid != 0 || self.trusts_node(opener);
        (!is_believed).then(|| {
            let reason = "root of this machine is not root in the cluster: ask as another user, join by what \
                          `tutti invite --admin` prints at the head, or have that started with `tutti up --listen \
                          ADDRESS --trust-root`";
            refusal(reason, Code::NotAllowed)
        })
    }

    fn send_part(&mut self, way: Way, part: Tunnelled) {
        let neighbour = match way {
            Way::Here => None,
            Way::Up => self.above.up.as_mut().map(|up| &mut up.neighbour),
            Way::Down(child) => {
                self.branch.children.get_mut(&child).map(|below| &mut below.neighbour)
            }
        };
        if let Some(neighbour) = neighbour {
            neighbour.send_bulk(part);
        }
    }

    /// Brings parts of streams on their way, or to their end here.
    pub(super) fn pass_on(&mut self, poller: &Poller) {
        let mut parts = std::mem::take(&mut self.ways.tunnelled);
        while !parts.is_empty() {
            for part in parts.drain(..) {
                match self.routes.way(part.to) {
                    Way::Here => self.on_part_for_here(part, poller),
                    Way::Up if self.is_nowhere(part.to) => self.say_nowhere(&part),
                    way => self.send_part(way, part),
                }
            }
            std::mem::swap(&mut parts, &mut self.ways.tunnelled);
        }
    }

    fn on_part_for_here(&mut self, part: Tunnelled, poller: &Poller) {
        let Tunnelled { from, to, tunnel, part } = part;
        match part {
            Part::Open(vouch) => {
                let opening = Opening { tunnel, from: to, to: from, uid: vouch.uid };
                self.arrive(opening, vouch, poller);
            }
            part => self.ways.tunnels.on_part(Tunnelled { from, to, tunnel, part }),
        }
    }

    /// A part of a stream has come to the root, and its end is out of reach: the other end should
    /// know.
    fn say_nowhere(&mut self, part: &Tunnelled) {
        if !matches!(part.part, Part::End(_)) {
            self.ways.tunnelled.push(part.refused(refusal(NOWHERE, Code::OutOfReach)));
        }
    }
}

fn refusal(reason: impl Into<String>, code: Code) -> Refusal {
    Refusal { reason: reason.into(), code }
}

/// The peer, as the kernel says.
fn vouch(stream: &Stream, node: NodeId) -> anyhow::Result<Vouch> {
    let who = peer::peer_credentials(stream)?;
    Ok(Vouch {
        node,
        uid: who.uid,
        gid: who.gid,
        groups: peer::peer_groups(stream)?,
        pid: who.pid,
        hard_limits: hardware::hard_limits(who.pid, who.uid).unwrap_or_default(),
        is_trusted: false,
    })
}

#[cfg(test)]
mod tests;
