//! Who comes to the port of an agent: other agents, with the certificate of a node; machines that want to
//! join, with a token and nothing else; and everybody whom that is none of the business of.

use super::below::{Below, PATIENCE_NS};
use super::renewal::Renewal;
use super::{Carrier, Neighbour, PORT, Stranger, Tree};
use crate::agent::carrier;
use crate::link::{Interest, Link, LinkError, Poller};
use crate::outside::time::monotonic_ns;
use anyhow::Context;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use tutti_secure::Member;
use tutti_wire::Role;
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::limits::{FRAME_BYTES_MAX, STRANGER_FRAME_BYTES_MAX};

/// How long somebody who has come may take to say who he is.
const STRANGER_PATIENCE_NS: u64 = 5_000_000_000;

/// Those who have not said yet, at once.
const STRANGERS_MAX: usize = 512;

impl Tree {
    pub(super) fn open_port(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let Some(membership) = &self.options.membership else { return Ok(()) };
        self.endpoint = Some(self.options.place.endpoint()?);
        self.renewal = Renewal::of(&self.options.place)?;
        let Some(address) = &membership.listen else { return Ok(()) };
        let port = TcpListener::bind(address).or_else(|error| match error.kind() {
            // Another cluster's agent has it. Who is to find the head must know its port; where the
            // others are, their parents say.
            ErrorKind::AddrInUse if !self.options.is_root() => listen_anywhere(address),
            _ => Err(error),
        });
        let port = port.with_context(|| {
            format!("cannot listen at {address}; `tutti up --listen` takes another address")
        })?;
        port.set_nonblocking(true)?;
        poller.add(&port, PORT, Interest::READ)?;
        self.address = match self.options.is_root() {
            true => membership.address.clone().unwrap_or_default(),
            false => port.local_addr()?.to_string(),
        };
        self.port = Some(port);
        Ok(())
    }

    pub(super) fn on_port(&mut self, poller: &Poller) {
        while let Some(accepted) = self.port.as_ref().map(TcpListener::accept) {
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) => return self.cannot_accept(&error, poller),
            };
            if self.strangers.len() >= STRANGERS_MAX {
                self.drop_slowest_stranger();
            }
            let Some(endpoint) = &self.endpoint else { continue };
            let stream = carrier::end_when_silent(&socket).and_then(|()| endpoint.accept(socket));
            let Ok(stream) = stream else { continue };
            self.let_in(Carrier::Far(Box::new(stream)), poller);
        }
    }

    /// Somebody has come, and may say what he wants.
    pub(in crate::agent) fn let_in(&mut self, carrier: Carrier, poller: &Poller) {
        let mut link = Link::over(carrier);
        link.limit(STRANGER_FRAME_BYTES_MAX);
        link.greet(Role::Server);
        let token = self.token();
        if poller.add(&link, token, Interest::READ).is_ok() {
            let until_ns = monotonic_ns() + STRANGER_PATIENCE_NS;
            self.strangers.insert(token, Stranger { link, until_ns });
        }
    }

    pub(super) fn on_stranger(&mut self, token: u64) {
        let Some(Stranger { link, .. }) = self.strangers.get_mut(&token) else { return };
        let received = link.receive();
        let role = match link.next_greeting() {
            Ok(Some(role)) => role,
            Ok(None) => match received {
                Ok(()) => return,
                Err(LinkError::Closed) => return drop(self.strangers.remove(&token)),
                Err(error) => return self.turn_away(token, &error.whole()),
            },
            Err(error) => return self.turn_away(token, &error.whole()),
        };
        let peer = link.transport().peer().cloned();
        match (role, peer) {
            (Role::Newcomer, None) => match link.next::<Redeem>() {
                Ok(Some(asked)) => self.admit(token, &asked),
                Ok(None) if received.is_ok() => {}
                Ok(None) => drop(self.strangers.remove(&token)),
                Err(error) => self.turn_away(token, &error.whole()),
            },
            (Role::Agent, Some(member)) => self.adopt(token, &member),
            _ => self.turn_away(token, "it has not the certificate for what it wants"),
        }
    }

    fn turn_away(&mut self, token: u64, why: &str) {
        say_provoked!([NotTrusted] "tutti agent: turned away somebody at the port: {why}");
        if let Some(mut stranger) = self.strangers.remove(&token) {
            // Our greeting tells one of another release so.
            let _ = stranger.link.flush();
        }
    }

    /// Who means well says in a moment what he wants: so he finds a place, however many say nothing.
    fn drop_slowest_stranger(&mut self) {
        let slowest = self.strangers.iter().min_by_key(|(_, stranger)| stranger.until_ns);
        if let Some(token) = slowest.map(|(&token, _)| token) {
            self.strangers.remove(&token);
        }
    }

    /// Takes a token for a certificate.
    fn admit(&mut self, token: u64, asked: &Redeem) {
        let Some(mut stranger) = self.strangers.remove(&token) else { return };
        let Some(membership) = &self.options.membership else { return };
        let signed = if self.options.is_root() {
            self.options.place.admit(&asked.secret, &asked.name, &asked.request)
        } else {
            Err(anyhow::anyhow!("join at the head of the cluster: {}", membership.head.join(", ")))
        };
        let answer = match signed {
            Ok((certificate, authority)) => {
                say!("tutti agent: {} is a machine of the cluster now", asked.name);
                Redeemed::Taken {
                    cluster: membership.cluster.clone(),
                    certificate: certificate.into(),
                    authority: authority.into(),
                    addresses: membership.address.iter().cloned().collect(),
                }
            }
            Err(error) => Redeemed::Refused { reason: format!("{error:#}") },
        };
        stranger.link.send(&answer);
        // So little always fits.
        let _ = stranger.link.flush();
    }

    /// Another agent wants to be a child of this one.
    fn adopt(&mut self, token: u64, member: &Member) {
        let name = member.name.as_str();
        let is_removed = self.options.is_root() && !self.members.has(member);
        let Some(mut stranger) = self.strangers.remove(&token) else { return };
        stranger.link.limit(FRAME_BYTES_MAX);
        let neighbour = Neighbour::new(stranger.link, token);
        let below = Below::new(neighbour, member, monotonic_ns() + PATIENCE_NS);
        self.children.insert(token, below);
        self.estimator.hurry(self.ask_every_ns());
        if is_removed {
            let reason = format!(
                "node {name} was removed from the cluster; `tutti down` there ends what is left on it, \
                 `tutti leave` and a new token let it join again"
            );
            say!("tutti agent: turned away a machine at the port: {reason}");
            return self.refuse(token, reason);
        }
        self.on_child(token);
    }
}

/// At another port of the same address.
fn listen_anywhere(address: &str) -> io::Result<TcpListener> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    TcpListener::bind(format!("{host}:0"))
}
