//! Streams between users and daemons of different nodes: where they begin and end at an agent, and which
//! way their parts go. The connections themselves are the affair of [`crate::agent::tunnels`].

use super::{DOOR, GATE, Guest, PORT, Refused, Tree, Way};
use crate::agent::tunnels::{Opening, refusal};
use crate::instance::may_run_instance;
use crate::link::{Interest, Link, Poller};
use crate::outside::hardware;
use crate::outside::time::monotonic_ns;
use crate::outside::ways::{self, Stream};
use nix::unistd::geteuid;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use tutti_core::NodeId;
use tutti_linux::peer;
use tutti_wire::Role;
use tutti_wire::branch::{Part, Place, Through, TunnelId, Tunnelled, Vouch};
use tutti_wire::code::Code;
use tutti_wire::limits::NEWCOMER_FRAME_BYTES_MAX;

/// How long somebody at the gate may take to say where he wants to.
const GUEST_PATIENCE_NS: u64 = 10_000_000_000;

/// Those who have not said yet, or were told that they can't get there, at once; and of one user.
const GUESTS_MAX: usize = 512;
const GUESTS_PER_USER_MAX: usize = GUESTS_MAX / 4;

/// What is read at once of what nobody wants to know.
const REFUSED_READ_BYTES: usize = 16 << 10;

/// How long nobody is let in when there is no descriptor for another connection.
const ACCEPT_PAUSE_NS: u64 = 500_000_000;

impl Tree {
    pub(super) fn on_gate(&mut self, poller: &Poller) {
        while let Some(accepted) = self.gate.as_ref().map(UnixListener::accept) {
            match accepted {
                Ok((stream, _)) => self.take_guest(stream, poller),
                Err(error) => return self.cannot_accept(&error, poller),
            }
        }
    }

    /// Nobody else waits, or there is no descriptor for him: then, without a pause, we would do nothing else.
    pub(super) fn cannot_accept(&mut self, error: &io::Error, poller: &Poller) {
        use ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if !matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
            say!([System] "tutti agent: cannot take a connection: {error}");
            self.watch_doors(Interest::NONE, poller);
            self.accept_again_ns = Some(monotonic_ns() + ACCEPT_PAUSE_NS);
        }
    }

    pub(super) fn accept_again(&mut self, poller: &Poller) {
        if self.accept_again_ns.is_some_and(|at| at <= monotonic_ns()) {
            self.accept_again_ns = None;
            self.watch_doors(Interest::READ, poller);
        }
    }

    fn watch_doors(&self, interest: Interest, poller: &Poller) {
        // They are watched since they are there: only how can't be refused.
        for (door, token) in [(&self.gate, GATE), (&self.door, DOOR)] {
            let _ = door.as_ref().map(|door| poller.modify(door, token, interest));
        }
        let _ = self.port.as_ref().map(|port| poller.modify(port, PORT, interest));
    }

    /// Nobody may keep others out by connections that say nothing.
    fn has_room_for(&self, uid: u32) -> bool {
        let refused = self.refused.values().map(|refused| refused.uid);
        let of_user = self.guests.values().map(|guest| guest.uid).chain(refused);
        let of_user = of_user.filter(|other| *other == uid).count();
        let all = self.guests.len() + self.refused.len();
        let has_room = all < GUESTS_MAX && of_user < GUESTS_PER_USER_MAX;
        has_room || may_run_instance(uid, geteuid().as_raw())
    }

    /// Somebody is at the gate.
    pub(in crate::agent) fn take_guest(&mut self, stream: impl Into<Stream>, poller: &Poller) {
        let stream = stream.into();
        let Ok(uid) = peer::peer_credentials(&stream).map(|who| who.uid) else { return };
        if !self.has_room_for(uid) {
            return say_provoked!([TooMuchAsked] "tutti agent: too many of user {uid} at the gate say nothing");
        }
        let Ok(mut link) = Link::new(stream) else { return };
        link.limit(NEWCOMER_FRAME_BYTES_MAX);
        link.one_at_a_time();
        let token = self.token();
        if poller.add(&link, token, Interest::READ).is_ok() {
            let until_ns = monotonic_ns() + GUEST_PATIENCE_NS;
            self.guests.insert(token, Guest { link, uid, until_ns });
            self.on_guest(token, poller);
        }
    }

    /// All that is said here is for the controller.
    pub(super) fn on_door(&mut self, poller: &Poller) {
        while let Some(accepted) = self.door.as_ref().map(UnixListener::accept) {
            match accepted {
                Ok((stream, _)) => self.open(stream, Vec::new(), Place::Controller, poller),
                Err(error) => return self.cannot_accept(&error, poller),
            }
        }
    }

    pub(super) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub(super) fn on_guest(&mut self, token: u64, poller: &Poller) {
        let Some(Guest { link, .. }) = self.guests.get_mut(&token) else { return };
        let received = link.receive();
        let asked = link.next_greeting().and_then(|role| match role {
            Some(Role::Gate) => link.next::<Through>(),
            Some(_) => Err(tutti_wire::DecodeError::NotTutti.into()),
            None => Ok(None),
        });
        if matches!(asked, Ok(None)) && received.is_ok() {
            return;
        }
        let Some(Guest { link, .. }) = self.guests.remove(&token) else { return };
        poller.remove(&link);
        if let Ok(Some(through)) = asked {
            let (stream, said) = link.into_rest();
            self.open(stream, said, Place::Node(through.node), poller);
        }
    }

    /// Begins a stream from a client here, who has said this much already.
    fn open(&mut self, stream: impl Into<Stream>, said: Vec<u8>, to: Place, poller: &Poller) {
        let stream = stream.into();
        let Some(node) = self.routes.own() else { return self.send_away(stream, to, poller) };
        let vouch = match vouch(&stream, node) {
            Ok(vouch) => vouch,
            Err(error) => {
                return say_provoked!([NotUnderstood] "tutti agent: who is at the gate? {error:#}");
            }
        };
        self.next_tunnel += 1;
        let tunnel = TunnelId { opener: node, number: self.next_tunnel };
        let token = self.token();
        let opening = Opening { tunnel, to, uid: vouch.uid };
        if let Err(error) = self.tunnels.add(opening, (stream, token), Vec::new(), poller) {
            return say!([System] "tutti agent: cannot pass a client on: {error}");
        }
        self.tunnelled.push(Tunnelled { to, tunnel, part: Part::Open(vouch) });
        self.tunnels.say_first(tunnel, said);
    }

    /// Tells a client of the controller that it can't be reached. Who wants another node's keeper asks again by himself.
    fn send_away(&mut self, mut stream: Stream, to: Place, poller: &Poller) {
        let Ok(uid) = peer::peer_credentials(&stream).map(|who| who.uid) else { return };
        if to != Place::Controller || !self.has_room_for(uid) {
            return;
        }
        let answer = refusal(self.out_of_reach(), Code::OutOfReach);
        let token = self.token();
        let told = stream
            .set_nonblocking(true)
            .and_then(|()| stream.write_all(&answer))
            .and_then(|()| stream.shutdown(Shutdown::Write))
            .and_then(|()| poller.add(&stream, token, Interest::READ));
        if told.is_ok() {
            let until_ns = monotonic_ns() + GUEST_PATIENCE_NS;
            self.refused.insert(token, Refused { stream, uid, until_ns });
        }
    }

    fn out_of_reach(&self) -> String {
        let name = &self.options.name;
        let Some(membership) = &self.options.membership else {
            return format!("node {name} has not joined yet");
        };
        let (cluster, head) = (&membership.cluster, membership.head.join(", "));
        format!(
            "node {name} cannot reach the head of cluster {cluster}, {head}; it tries again and again"
        )
    }

    /// What a client still says that was told that the controller is out of reach.
    pub(super) fn on_refused(&mut self, token: u64, poller: &Poller) {
        let Some(Refused { stream, .. }) = self.refused.get_mut(&token) else { return };
        let is_over = match stream.read(&mut [0; REFUSED_READ_BYTES]) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        if is_over && let Some(Refused { stream, .. }) = self.refused.remove(&token) {
            poller.remove(&stream);
        }
    }

    /// Somebody far away wants to speak with a daemon of this machine.
    fn arrive(&mut self, to: Place, tunnel: TunnelId, mut vouch: Vouch, poller: &Poller) {
        vouch.is_trusted = self.options.is_root() && self.trusts_node(vouch.node);
        let daemon = match to {
            Place::Controller => &self.options.controller,
            Place::Node(_) => {
                // A keeper asks for nothing but the user, and takes nothing long from a newcomer.
                vouch.groups.clear();
                vouch.hard_limits.clear();
                &self.options.keeper
            }
        };
        let back = Place::Node(tunnel.opener);
        let opening = Opening { tunnel, to: back, uid: vouch.uid };
        let mut introduction = tutti_wire::Hello { role: Role::Proxy }.to_frame().to_vec();
        let added = tutti_wire::frame::encode(&vouch, &mut introduction)
            .map_err(std::io::Error::other)
            .and_then(|()| ways::connect(daemon))
            .and_then(|stream| {
                let token = self.token();
                self.tunnels.add(opening, (stream, token), introduction, poller)
            });
        if let Err(error) = added {
            let reason = format!("node {} cannot take it: {error}", self.options.name);
            self.tunnelled.push(Tunnelled { to: back, tunnel, part: Part::End(reason) });
        }
    }

    /// Brings parts of streams on their way, or to their end here.
    pub(super) fn pass_on(&mut self, poller: &Poller) {
        let mut parts = std::mem::take(&mut self.tunnelled);
        while !parts.is_empty() {
            for Tunnelled { to, tunnel, part } in parts.drain(..) {
                match (self.routes.way(to), part) {
                    (Way::Here, Part::Open(vouch)) => self.arrive(to, tunnel, vouch, poller),
                    (Way::Here, part) => self.tunnels.on_part(tunnel, part),
                    (Way::Down(child), part) => {
                        if let Some(below) = self.children.get_mut(&child) {
                            below.neighbour.send_bulk(Tunnelled { to, tunnel, part });
                        }
                    }
                    (Way::Up, Part::End(_)) if self.is_nowhere(to) => {}
                    (Way::Up, _) if self.is_nowhere(to) => self.say_nowhere(to, tunnel),
                    (Way::Up, part) => {
                        if let Some(up) = &mut self.up {
                            up.neighbour.send_bulk(Tunnelled { to, tunnel, part });
                        }
                    }
                }
            }
            std::mem::swap(&mut parts, &mut self.tunnelled);
        }
    }

    /// A part of a stream has come to the root, and its end is out of reach: the other end should know.
    fn say_nowhere(&mut self, to: Place, tunnel: TunnelId) {
        let opener = Place::Node(tunnel.opener);
        if to != opener {
            let part = Part::End("the node is out of reach".into());
            self.tunnelled.push(Tunnelled { to: opener, tunnel, part });
        }
    }
}

/// Who is at the other end, as the kernel says.
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
