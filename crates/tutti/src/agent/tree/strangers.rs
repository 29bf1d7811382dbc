//! Who comes to the port of an agent: other agents, with the certificate of a node; machines that want to
//! join, with a token and nothing else; and everybody whom that is none of the business of.

use super::{Carrier, Neighbour, Stranger, Tree};
use crate::agent::carrier;
use crate::link::{Interest, Link, Poller};
use std::net::TcpListener;
use tutti_linux::clock::monotonic_ns;
use tutti_wire::Role;
use tutti_wire::branch::ToBranch;
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::limits::{FRAME_BYTES_MAX, STRANGER_FRAME_BYTES_MAX};

/// How long somebody who has come may take to say who he is.
const STRANGER_PATIENCE_NS: u64 = 5_000_000_000;

/// Those who have not said yet, at once.
const STRANGERS_MAX: usize = 512;

impl Tree {
    pub(super) fn on_port(&mut self, poller: &Poller) {
        while let Some(Ok((socket, _))) = self.port.as_ref().map(TcpListener::accept) {
            if self.strangers.len() >= STRANGERS_MAX {
                continue;
            }
            let Some(endpoint) = &self.endpoint else { continue };
            let stream = carrier::end_when_silent(&socket).and_then(|()| endpoint.accept(socket));
            let Ok(stream) = stream else { continue };
            let mut link = Link::over(Carrier::Far(Box::new(stream)));
            link.limit(STRANGER_FRAME_BYTES_MAX);
            link.greet(Role::Server);
            let token = self.token();
            if poller.add(&link, token, Interest::READ).is_ok() {
                let until_ns = monotonic_ns() + STRANGER_PATIENCE_NS;
                self.strangers.insert(token, Stranger { link, until_ns });
            }
        }
    }

    pub(super) fn on_stranger(&mut self, token: u64) {
        let Some(Stranger { link, .. }) = self.strangers.get_mut(&token) else { return };
        let received = link.receive();
        let role = match link.next_greeting() {
            Ok(Some(role)) => role,
            Ok(None) if received.is_ok() => return,
            Ok(None) => return drop(self.strangers.remove(&token)),
            Err(error) => return self.turn_away(token, &error.to_string()),
        };
        let peer = match link.transport() {
            Carrier::Far(stream) => stream.peer().map(|peer| peer.member.clone()),
            Carrier::Local(_) => None,
        };
        match (role, peer) {
            (Role::Newcomer, None) => match link.next::<Redeem>() {
                Ok(Some(asked)) => self.admit(token, &asked),
                Ok(None) if received.is_ok() => {}
                Ok(None) => drop(self.strangers.remove(&token)),
                Err(error) => self.turn_away(token, &error.to_string()),
            },
            (Role::Agent, Some(member)) if member.role == tutti_secure::Role::Node => {
                self.adopt(token, member.name.as_str());
            }
            _ => self.turn_away(token, "it has not the certificate for what it wants"),
        }
    }

    fn turn_away(&mut self, token: u64, why: &str) {
        say!("tutti agent: turned away somebody at the port: {why}");
        self.strangers.remove(&token);
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
    fn adopt(&mut self, token: u64, name: &str) {
        if self.options.is_root() && !self.options.place.is_member(name) {
            return self.turn_away(token, &format!("{name} was removed from the cluster"));
        }
        let Some(mut stranger) = self.strangers.remove(&token) else { return };
        stranger.link.limit(FRAME_BYTES_MAX);
        let mut child = Neighbour::new(stranger.link, token);
        if self.routes.own().is_none() {
            // Nobody here could answer; it will ask again.
            child.send(&ToBranch::Refused { reason: "its parent has no controller yet".into() });
            let _ = child.link.flush();
            return;
        }
        self.children.insert(token, child);
        self.names.insert(token, name.to_owned());
        self.on_child(token);
    }
}
