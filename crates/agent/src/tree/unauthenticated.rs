//! Connections at the port of an agent: other agents, with the certificate of a node; machines that
//! want to join, with a token and nothing else; and everything else.

use super::children::{Below, PATIENCE_NS};
use super::renewal::Renewal;
use super::{Carrier, Neighbour, PORT, Stranger, Tree};
use anyhow::Context;
use nix::sys::socket::{Backlog, listen};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use tracing::{info, warn};
use tutti_node::link::{Interest, Link, LinkError, Poller};
use tutti_node::log::PROVOKED;
use tutti_node::platform::time::monotonic_ns;
use tutti_secure::{Fingerprint, Member, Role as MemberRole};
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::limits::{FRAME_BYTES_MAX, STRANGER_FRAME_BYTES_MAX};

/// How long a new connection may take to identify itself.
const STRANGER_PATIENCE_NS: u64 = 5_000_000_000;

/// Connections that have not said yet, at once. Further ones wait in the kernel's queue.
const STRANGERS_MAX: usize = 512;

/// After so long it makes room for another that waits. Not sooner: when thousands come at once, as
/// after a failure of power, they would only push each other out.
const STRANGER_GRACE_NS: u64 = 1_000_000_000;

impl Tree {
    pub(super) fn open_port(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let Some(membership) = &self.options.membership else { return Ok(()) };
        self.entrance.endpoint = Some(self.options.place.endpoint()?);
        self.entrance.renewal = Renewal::of(&self.options.place)?;
        let Some(address) = &membership.listen else { return Ok(()) };
        let port = TcpListener::bind(address).or_else(|error| match error.kind() {
            // Another cluster's agent has it. An agent that is to find the head must know its port;
            // where the others are, their parents say.
            ErrorKind::AddrInUse if !self.options.is_root() => listen_anywhere(address),
            _ => Err(error),
        });
        let port = port.with_context(|| {
            format!("cannot listen at {address}; `tutti up --listen` takes another address")
        })?;
        // The standard library's queue is short for a cluster that comes at once.
        listen(&port, Backlog::MAXCONN)?;
        port.set_nonblocking(true)?;
        poller.add(&port, PORT, Interest::READ)?;
        self.address = match self.options.is_root() {
            true => membership.address.clone().unwrap_or_default(),
            false => port.local_addr()?.to_string(),
        };
        self.entrance.port = Some(port);
        Ok(())
    }

    pub(super) fn on_port(&mut self, poller: &Poller) {
        while let Some(port) = &self.entrance.port {
            if self.room_at_ns().is_some_and(|at_ns| at_ns > monotonic_ns()) {
                self.entrance.is_crowded = true;
                let _ = poller.modify(port, PORT, Interest::NONE);
                return;
            }
            let socket = match port.accept() {
                Ok((socket, _)) => socket,
                Err(error) => return self.cannot_accept(&error, poller),
            };
            if self.entrance.strangers.len() >= STRANGERS_MAX {
                self.drop_slowest_stranger();
            }
            let Some(endpoint) = &self.entrance.endpoint else { continue };
            let Ok(carrier) = Carrier::from(socket, endpoint) else { continue };
            self.let_in(carrier, poller);
        }
    }

    /// When there is room for another stranger, if all places are taken.
    pub(super) fn room_at_ns(&self) -> Option<u64> {
        if self.entrance.strangers.len() < STRANGERS_MAX {
            return None;
        }
        let slowest_ns =
            self.entrance.strangers.values().map(|stranger| stranger.until_ns).min()?;
        Some(slowest_ns - STRANGER_PATIENCE_NS + STRANGER_GRACE_NS)
    }

    /// Takes strangers again as soon as there is room.
    pub(super) fn let_more_in(&mut self, poller: &Poller) {
        if self.entrance.is_crowded && self.room_at_ns().is_none_or(|at_ns| at_ns <= monotonic_ns())
        {
            self.entrance.is_crowded = false;
            let _ =
                self.entrance.port.as_ref().map(|port| poller.modify(port, PORT, Interest::READ));
        }
    }

    /// A new connection, which may say what it wants.
    pub(crate) fn let_in(&mut self, carrier: Carrier, poller: &Poller) {
        let mut link = Link::over(carrier);
        link.limit(STRANGER_FRAME_BYTES_MAX);
        link.greet(Role::Server);
        let token = self.token();
        if poller.add(&link, token, Interest::READ).is_ok() {
            let until_ns = monotonic_ns() + STRANGER_PATIENCE_NS;
            self.entrance.strangers.insert(token, Stranger { link, until_ns });
        }
    }

    pub(super) fn on_stranger(&mut self, token: u64) {
        let Some(Stranger { link, .. }) = self.entrance.strangers.get_mut(&token) else { return };
        let received = link.receive();
        let role = match link.next_greeting() {
            Ok(Some(role)) => role,
            Ok(None) => match received {
                Ok(()) => return,
                Err(LinkError::Closed) => return drop(self.entrance.strangers.remove(&token)),
                Err(error) => return self.turn_away(token, &error.whole()),
            },
            Err(error) => return self.turn_away(token, &error.whole()),
        };
        let peer = link.transport().peer().map(|(member, key)| (member.clone(), key));
        match (role, peer) {
            (Role::Newcomer, None) => match link.next::<Redeem>() {
                Ok(Some(asked)) => self.admit(token, &asked),
                Ok(None) if received.is_ok() => {}
                Ok(None) => drop(self.entrance.strangers.remove(&token)),
                Err(error) => self.turn_away(token, &error.whole()),
            },
            (Role::Agent, Some((member, key))) => self.adopt(token, &member, key),
            _ => self.turn_away(token, "it has not the certificate for what it wants"),
        }
    }

    fn turn_away(&mut self, token: u64, why: &str) {
        warn!(target: PROVOKED, code = %Code::NotTrusted, "refused a connection to the port: {why}");
        if let Some(mut stranger) = self.entrance.strangers.remove(&token) {
            // Our greeting tells one of another release so.
            let _ = stranger.link.flush();
        }
    }

    /// A well-behaved peer says in a moment what it wants: so it finds a place soon, however many
    /// say nothing.
    fn drop_slowest_stranger(&mut self) {
        let slowest = self.entrance.strangers.iter().min_by_key(|(_, stranger)| stranger.until_ns);
        if let Some(token) = slowest.map(|(&token, _)| token) {
            self.entrance.strangers.remove(&token);
        }
    }

    /// Takes a token for a certificate.
    fn admit(&mut self, token: u64, asked: &Redeem) {
        let Some(mut stranger) = self.entrance.strangers.remove(&token) else { return };
        let Some(membership) = &self.options.membership else { return };
        let signed = if self.options.is_root() {
            let Redeem { secret, name, request, is_client } = asked;
            self.options.place.admit(secret, name, request, *is_client)
        } else {
            Err(anyhow::anyhow!("join at the head of the cluster: {}", membership.head.join(", ")))
        };
        let answer = match signed {
            Ok((certificate, authority)) => {
                info!("{} is a machine of the cluster now", asked.name);
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
    fn adopt(&mut self, token: u64, member: &Member, key: Fingerprint) {
        let (name, role) = (member.name.as_str(), Some(member.role));
        // Elsewhere it is unknown: there the controller has a say, when it asks to join.
        let is_root = self.options.is_root();
        let objection = match is_root {
            true => self.entrance.members.objection(name, role, key),
            false if member.role == MemberRole::Client => {
                Some("a client machine connects to the head alone".into())
            }
            false => None,
        };
        let Some(mut stranger) = self.entrance.strangers.remove(&token) else { return };
        stranger.link.limit(FRAME_BYTES_MAX);
        let neighbour = Neighbour::new(stranger.link, token);
        let below = Below::new(neighbour, (member, key), monotonic_ns() + PATIENCE_NS);
        self.branch.children.insert(token, below);
        self.time.estimator.hurry(self.ask_every_ns());
        if let Some(reason) = objection {
            warn!(target: PROVOKED, code = %Code::NotTrusted, "turned away a machine at the port: {reason}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClusterClock;
    use crate::tree::TreeOptions;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use std::net::{SocketAddr, TcpStream};
    use std::path::{Path, PathBuf};
    use tutti_node::instance::Instance;
    use tutti_node::membership::{Membership, Place};

    /// The agent of a cluster's head.
    struct Head {
        directory: PathBuf,
        tree: Tree,
        poller: Poller,
    }

    impl Head {
        fn new(name: &str) -> Self {
            let name = format!("tutti-{name}-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            let poller = Poller::new().expect("a descriptor");
            let tree = Tree::new(options(&directory), ClusterClock::default(), &poller);
            Self { directory, tree, poller }
        }

        fn address(&self) -> SocketAddr {
            self.tree.entrance.port.as_ref().expect("a port").local_addr().expect("an address")
        }

        fn callers(&self, count: usize) -> Vec<TcpStream> {
            let address = self.address();
            (0..count).map(|_| TcpStream::connect(address).expect("a connection")).collect()
        }

        /// A round of the agent's loop; gives the agents that had something.
        fn round(&mut self) -> Vec<u64> {
            let mut ready = Vec::new();
            self.poller.look(&mut ready).expect("the poller is there");
            let tokens: Vec<u64> = ready.iter().map(|event| event.token).collect();
            for token in &tokens {
                self.tree.on_ready(*token, &self.poller);
            }
            self.tree.settle(&self.poller);
            tokens
        }

        /// Rounds until it is so.
        fn rounds_until(&mut self, is_so: impl Fn(&Self) -> bool) {
            let until_ns = monotonic_ns() + STRANGER_PATIENCE_NS;
            while !is_so(self) {
                assert!(monotonic_ns() < until_ns, "{} are let in", self.let_in().len());
                self.round();
            }
        }

        /// The accepted connections, by number.
        fn let_in(&self) -> Vec<u64> {
            self.tree.entrance.strangers.keys().copied().collect()
        }
    }

    impl Drop for Head {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    fn options(directory: &Path) -> TreeOptions {
        let instance = Instance::at(directory.to_owned());
        let place = Place::of(&instance);
        let membership = Membership {
            cluster: "test".into(),
            name: "head".into(),
            listen: Some("127.0.0.1:0".into()),
            address: None,
            head: Vec::new(),
            trusts_root: true,
            is_client: false,
            certificates_s: None,
        };
        std::fs::create_dir_all(directory).expect("a directory");
        place.found(&membership).expect("a cluster");
        TreeOptions {
            name: membership.name.clone(),
            controller: instance.controller_socket(),
            keeper: instance.keeper_socket(),
            gate: instance.gate_socket(),
            private: true,
            membership: Some(membership),
            place,
        }
    }

    #[test]
    fn who_says_nothing_costs_nothing() {
        let mut head = Head::new("silent");
        let _silent = head.callers(1);
        assert_eq!(head.round(), [PORT]);
        assert_eq!(head.let_in().len(), 1);
        assert!(head.round().is_empty(), "the agent goes round without a pause");
    }

    #[test]
    fn thousands_who_come_at_once_wait_instead_of_pushing_each_other_out() {
        // Both ends of each connection are in this process.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("it is allowed");
        let mut head = Head::new("crowd");
        let mut callers = head.callers(STRANGERS_MAX + 100);
        head.rounds_until(|head| head.let_in().len() == STRANGERS_MAX);
        let first = head.let_in();
        assert!(head.round().is_empty(), "it looks at the port, where it lets nobody in");
        assert_eq!(head.let_in(), first);
        // One goes, and another has its place.
        drop(callers.remove(0));
        head.rounds_until(|head| head.let_in() != first);
        head.rounds_until(|head| head.let_in().len() == STRANGERS_MAX);
        assert_eq!(head.let_in()[..STRANGERS_MAX - 1], first[1..]);
        // Connections that have had their time make room.
        for stranger in head.tree.entrance.strangers.values_mut() {
            stranger.until_ns -= STRANGER_GRACE_NS;
        }
        assert!(head.tree.due_ns().is_some_and(|due_ns| due_ns <= monotonic_ns()));
        head.round();
        head.round();
        let (last, now) = (first[STRANGERS_MAX - 1], head.let_in());
        assert_eq!(now.len(), STRANGERS_MAX);
        assert_eq!(now.iter().filter(|&&number| number > last).count(), 100);
    }
}
