//! This agent's place in the control tree: its parent, its children, and what passes between them.
//!
//! What comes from above is for this node, for children's branches, or for several of them; what comes
//! from below goes up, all that has gathered in a round of the loop together. Nothing here decides
//! anything: [`super::routes`] knows the ways.

mod strangers;
mod streams;

use super::carrier::{self, Carrier};
use super::clock::{ClusterClock, Correction, Estimator};
use super::neighbour::Neighbour;
use super::routes::{Child, Routes, Way};
use super::tunnels::Tunnels;
use crate::link::{Interest, Link, LinkError, Poller};
use crate::membership::{self, Membership};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tutti_core::{Nanos, NodeId};
use tutti_linux::clock::monotonic_ns;
use tutti_secure::Endpoint;
use tutti_wire::Role;
use tutti_wire::branch::{
    ClockReply, FromBranch, Order, Part, Place, Report, ToBranch, Tunnelled, batches,
};
use tutti_wire::limits::BATCH_MAX;
use tutti_wire::tree::{FromAgent, ToAgent};

/// The parent's connection.
pub(super) const UP: u64 = 0;
/// Users who want to be connected with a daemon of another node.
const GATE: u64 = 2;
/// Users who want the controller, where it is on another machine.
const DOOR: u64 = 3;
/// Agents of other machines.
const PORT: u64 = 4;
/// The first number of a connection that is not there from the beginning.
const FIRST_TOKEN: u64 = 16;

/// Where an agent is.
#[derive(Clone, Debug)]
pub(super) struct TreeOptions {
    /// The node's name.
    pub(super) name: String,
    /// Where the controller listens; on a member, where its clients knock.
    pub(super) controller: PathBuf,
    /// Where the node's keeper listens.
    pub(super) keeper: PathBuf,
    /// Where users find the agent.
    pub(super) gate: PathBuf,
    /// Whether the instance is one user's own.
    pub(super) private: bool,
    /// What the machine is in its cluster, if it is in one.
    pub(super) membership: Option<Membership>,
    /// Where that is kept.
    pub(super) place: membership::Place,
}

impl TreeOptions {
    /// Whether the controller is on this machine.
    fn is_root(&self) -> bool {
        self.membership.as_ref().is_none_or(|membership| membership.head.is_empty())
    }
}

/// What the tree has for the agent itself.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a few at a time, used at once")]
pub(super) enum Heard {
    /// Something to do.
    Order(ToAgent),
    /// The parent is gone.
    ParentLost(String),
    /// It is another time than was thought: what waits for a moment must look again.
    ClockStepped,
}

/// Somebody from another machine who has not said yet what he wants.
struct Stranger {
    link: Link<Carrier>,
    until_ns: u64,
}

/// See the head of the file.
pub(super) struct Tree {
    options: TreeOptions,
    routes: Routes,
    up: Option<Neighbour>,
    children: BTreeMap<Child, Neighbour>,
    /// What their certificates call them.
    names: BTreeMap<Child, String>,
    reports: Vec<Report>,
    gone: Vec<NodeId>,
    orders: BTreeMap<Child, Vec<Order>>,
    tunnels: Tunnels,
    tunnelled: Vec<Tunnelled>,
    gate: Option<UnixListener>,
    door: Option<UnixListener>,
    port: Option<TcpListener>,
    endpoint: Option<Endpoint>,
    strangers: BTreeMap<u64, Stranger>,
    /// Clients at the gate that have not said yet where they want to.
    guests: BTreeMap<u64, Link>,
    /// The request to join, until it is known what time it is: who joins gets a timetable.
    asking: Option<Report>,
    /// How often a parent was dialled in vain.
    dialled: usize,
    next_token: u64,
    next_tunnel: u64,
    clock: ClusterClock,
    estimator: Estimator,
    heard: Vec<Heard>,
}

impl Tree {
    /// An agent that knows nobody yet.
    pub(super) fn new(options: TreeOptions, clock: ClusterClock, poller: &Poller) -> Self {
        let mut tree = Self {
            routes: Routes::new(options.name.clone(), options.is_root()),
            options,
            up: None,
            children: BTreeMap::new(),
            names: BTreeMap::new(),
            reports: Vec::new(),
            gone: Vec::new(),
            orders: BTreeMap::new(),
            tunnels: Tunnels::default(),
            tunnelled: Vec::new(),
            gate: None,
            door: None,
            port: None,
            endpoint: None,
            strangers: BTreeMap::new(),
            guests: BTreeMap::new(),
            asking: None,
            dialled: 0,
            next_token: FIRST_TOKEN,
            next_tunnel: tutti_linux::clock::monotonic_ns(),
            clock,
            estimator: Estimator::default(),
            heard: Vec::new(),
        };
        if let Err(error) = tree.open_doors(poller) {
            say!("tutti agent: nobody can reach other nodes from here: {error:#}");
        }
        if let Err(error) = tree.open_port(poller) {
            say!("tutti agent: no other machine can reach this one: {error:#}");
        }
        tree
    }

    fn open_doors(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let mode = if self.options.private { 0o600 } else { 0o666 };
        let Some(membership) = &self.options.membership else { return Ok(()) };
        self.gate = Some(listen(&self.options.gate, mode, GATE, poller)?);
        if !membership.head.is_empty() {
            self.door = Some(listen(&self.options.controller, mode, DOOR, poller)?);
        }
        Ok(())
    }

    fn open_port(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let Some(membership) = &self.options.membership else { return Ok(()) };
        self.endpoint = Some(self.options.place.endpoint()?);
        if let Some(address) = &membership.listen {
            let port = TcpListener::bind(address).with_context(|| {
                format!("cannot listen at {address}; `tutti up --listen` takes another address")
            })?;
            port.set_nonblocking(true)?;
            poller.add(&port, PORT, Interest::READ)?;
            self.port = Some(port);
        }
        Ok(())
    }

    /// Leaves nothing behind.
    pub(super) fn close(&mut self) {
        if self.gate.take().is_some() {
            let _ = std::fs::remove_file(&self.options.gate);
        }
        if self.door.take().is_some() {
            let _ = std::fs::remove_file(&self.options.controller);
        }
    }

    /// Whether there is a parent.
    pub(super) const fn has_parent(&self) -> bool {
        self.up.is_some()
    }

    /// Begins to connect to the parent, and asks to be taken in with this. Whether it can be reached is
    /// known later.
    pub(super) fn join(&mut self, join: FromAgent, poller: &Poller) {
        let carrier = match self.dial() {
            Ok(carrier) => carrier,
            Err(error) => {
                // On this machine the controller may only be starting, and will be there in a moment.
                if !self.options.is_root() {
                    say!("tutti agent: cannot reach the cluster: {error:#}");
                }
                return;
            }
        };
        let mut link = Link::over(carrier);
        link.greet(Role::Agent);
        if poller.add(&link, UP, Interest::READ).is_err() {
            return;
        }
        let mut up = Neighbour::new(link, UP);
        let address = self.options.membership.as_ref().and_then(|m| m.address.clone());
        let name = self.options.name.clone();
        up.send(&FromBranch::Here { name, address: address.unwrap_or_default() });
        let report = Report { from: None, report: join };
        if self.options.is_root() {
            up.send(&FromBranch::Reports(vec![report]));
        } else {
            self.asking = Some(report);
        }
        self.routes.forget_all();
        self.reports.clear();
        self.gone.clear();
        self.estimator.another_parent();
        for child in self.children.values_mut() {
            child.send(&ToBranch::JoinAgain);
        }
        self.up = Some(up);
    }

    fn dial(&mut self) -> anyhow::Result<Carrier> {
        let Some(membership) = self.options.membership.as_ref().filter(|m| !m.head.is_empty())
        else {
            let stream = UnixStream::connect(&self.options.controller)?;
            stream.set_nonblocking(true)?;
            return Ok(Carrier::Local(stream));
        };
        let address = &membership.head[self.dialled % membership.head.len()];
        self.dialled += 1;
        let found = address.to_socket_addrs().ok().and_then(|mut found| found.next());
        let found = found.with_context(|| format!("no such address: {address}"))?;
        let endpoint = self.endpoint.as_ref().context("there are no credentials")?;
        let stream = carrier::dial(found).and_then(|socket| endpoint.connect(socket));
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        Ok(Carrier::Far(Box::new(stream)))
    }

    /// On the controller's machine: cluster time is so far ahead of the clock that both have.
    pub(super) fn learn_time(&mut self, ahead_ns: u64) {
        if self.options.is_root() && self.clock.correct(Correction::ahead(ahead_ns)) {
            self.heard.push(Heard::ClockStepped);
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let ask = (!self.options.is_root() && self.up.is_some()).then(|| self.estimator.due_ns());
        let strangers = self.strangers.values().map(|stranger| stranger.until_ns);
        strangers.chain(ask).min()
    }

    /// Asks what time it is, when it is time to ask.
    pub(super) fn on_time(&mut self, now_ns: u64) {
        self.strangers.retain(|_, stranger| stranger.until_ns > now_ns);
        let is_due = !self.options.is_root() && self.estimator.due_ns() <= now_ns;
        if is_due && let Some(up) = &mut self.up {
            self.estimator.asked(now_ns);
            up.send(&FromBranch::Clock { asked_ns: monotonic_ns() });
        }
    }

    /// Queues a report of this node.
    pub(super) fn report(&mut self, report: FromAgent) {
        let from = self.routes.own();
        self.reports.push(Report { from, report });
    }

    /// Something happened on the connection of this number. Gives what concerns the agent itself.
    pub(super) fn on_ready(&mut self, token: u64, poller: &Poller) -> Vec<Heard> {
        match token {
            UP => self.on_up(),
            GATE => self.on_gate(poller),
            DOOR => self.on_door(poller),
            PORT => self.on_port(poller),
            token if self.strangers.contains_key(&token) => self.on_stranger(token),
            token if self.tunnels.is_end(token) => {
                self.tunnels.on_ready(token, &mut self.tunnelled);
            }
            token if self.guests.contains_key(&token) => self.on_guest(token, poller),
            token => self.on_child(token),
        }
        self.pass_on(poller);
        std::mem::take(&mut self.heard)
    }

    // ------------------------------------------------------------------ orders, downwards

    fn on_up(&mut self) {
        let Some(up) = &mut self.up else { return };
        let received = up.link.receive();
        loop {
            let Some(up) = &mut self.up else { return };
            match up.next::<ToBranch>() {
                Ok(Some(message)) => self.on_order(message),
                Ok(None) => break,
                Err(error) => return self.lose_parent(&error.to_string()),
            }
        }
        if let Err(error) = received {
            self.lose_parent(&error.to_string());
        }
    }

    fn on_order(&mut self, message: ToBranch) {
        match message {
            ToBranch::Orders(orders) => {
                for order in orders {
                    for (way, order) in self.routes.split(order) {
                        self.send_order(way, order);
                    }
                }
            }
            ToBranch::Tunnel(part) => self.tunnelled.push(part),
            ToBranch::Refused { reason } => self.lose_parent(&reason),
            ToBranch::Clock(reply) => {
                if let Some(correction) = self.estimator.answered(&reply, monotonic_ns()) {
                    if self.clock.correct(correction) {
                        self.heard.push(Heard::ClockStepped);
                    }
                    self.reports.extend(self.asking.take());
                }
            }
            ToBranch::JoinAgain => self.lose_parent("it has another parent itself"),
        }
    }

    fn send_order(&mut self, way: Way, order: Order) {
        match way {
            Way::Here => self.heard.push(Heard::Order(order.order)),
            Way::Down(child) => self.orders.entry(child).or_default().push(order),
            Way::Up => {}
        }
    }

    /// The parent is of no more use. What is below stays, and joins again with this agent.
    pub(super) fn lose_parent(&mut self, reason: &str) {
        self.up = None;
        self.reports.clear();
        self.asking = None;
        self.tunnels.lose(|_, _| true);
        self.heard.push(Heard::ParentLost(reason.to_owned()));
    }

    // ------------------------------------------------------------------ reports, upwards

    fn on_child(&mut self, child: Child) {
        let Some(neighbour) = self.children.get_mut(&child) else { return };
        let received = neighbour.link.receive();
        loop {
            let Some(neighbour) = self.children.get_mut(&child) else { return };
            match neighbour.next::<FromBranch>() {
                Ok(Some(message)) => self.on_report(child, message),
                Ok(None) => break,
                Err(error) => return self.lose_child(child, &error),
            }
        }
        if let Err(error) = received {
            self.lose_child(child, &error);
        }
    }

    fn on_report(&mut self, child: Child, message: FromBranch) {
        match message {
            FromBranch::Reports(reports) => {
                for report in reports {
                    if self.routes.note_report(child, &report) {
                        self.reports.push(report);
                    }
                }
            }
            FromBranch::Gone(nodes) => {
                let nodes = self.routes.gone(child, nodes);
                self.lose_nodes(nodes);
            }
            FromBranch::Tunnel(part) => match self.objection(child, &part) {
                None => self.tunnelled.push(part),
                Some(reason) => {
                    let (to, tunnel) = (Place::Node(part.tunnel.opener), part.tunnel);
                    self.tunnelled.push(Tunnelled { to, tunnel, part: Part::End(reason) });
                }
            },
            FromBranch::Clock { asked_ns } => self.tell_time(child, asked_ns),
            FromBranch::Here { name, .. } => {
                if self.names.get(&child).is_none_or(|certified| *certified != name) {
                    let reason = format!("its certificate is not that of a node named {name}");
                    if let Some(neighbour) = self.children.get_mut(&child) {
                        neighbour.send(&ToBranch::Refused { reason });
                    }
                }
            }
        }
    }

    fn tell_time(&mut self, child: Child, asked_ns: u64) {
        let now = monotonic_ns();
        // Who doesn't know what time it is can't tell others.
        let error =
            if self.options.is_root() { Some(Nanos::ZERO) } else { self.estimator.error(now) };
        if let Some(error) = error
            && let Some(neighbour) = self.children.get_mut(&child)
        {
            let now = self.clock.at(now);
            let reply = ClockReply { asked_ns, came: now, went: now, error };
            neighbour.send(&ToBranch::Clock(reply));
        }
    }

    /// Why a part of a stream from this child's branch is not passed on, if it is not.
    fn objection(&self, child: Child, part: &Tunnelled) -> Option<String> {
        let Part::Open(vouch) = &part.part else {
            return (!part.part.is_proper()).then(|| "it says too much at once".into());
        };
        if vouch.node != part.tunnel.opener || !self.routes.is_below(vouch.node, child) {
            return Some("its agent speaks for another node".into());
        }
        let is_trusted = self.options.membership.as_ref().is_some_and(|m| m.trusts_root);
        (self.options.is_root() && vouch.uid == 0 && !is_trusted).then(|| {
            "root of this machine is not root in the cluster: ask as another user, or have the head \
             started with `tutti up --listen ADDRESS --trust-root`"
                .into()
        })
    }

    fn lose_child(&mut self, child: Child, error: &LinkError) {
        if self.children.remove(&child).is_none() {
            return;
        }
        say!("tutti agent: lost a branch of the tree: {error}");
        self.orders.remove(&child);
        self.names.remove(&child);
        let nodes = self.routes.lose(child);
        self.lose_nodes(nodes);
    }

    fn lose_nodes(&mut self, nodes: Vec<NodeId>) {
        let is_lost = |node: NodeId| nodes.contains(&node);
        self.tunnels.lose(|to, tunnel| {
            is_lost(tunnel.opener) || matches!(to, Place::Node(node) if is_lost(node))
        });
        self.gone.extend(nodes);
    }

    // ------------------------------------------------------------------ the end of a round

    /// Sends all that has gathered. Gives what concerns the agent itself.
    pub(super) fn settle(&mut self, poller: &Poller) -> Vec<Heard> {
        self.send_gathered();
        self.settle_neighbours(poller);
        // Only now is known where there is room for more of streams: who is told here that there is
        // none hears from the poller when there is.
        let mut tunnels = std::mem::take(&mut self.tunnels);
        let mut parts = Vec::new();
        tunnels.settle(poller, |place| self.is_busy(place), &mut parts);
        self.tunnels = tunnels;
        if !parts.is_empty() {
            self.tunnelled.extend(parts);
            self.pass_on(poller);
            self.settle_neighbours(poller);
        }
        std::mem::take(&mut self.heard)
    }

    fn send_gathered(&mut self) {
        for (child, orders) in std::mem::take(&mut self.orders) {
            if let Some(neighbour) = self.children.get_mut(&child) {
                for batch in batches(orders) {
                    neighbour.send(&ToBranch::Orders(batch));
                }
            }
        }
        let Some(up) = &mut self.up else { return };
        if !self.gone.is_empty() {
            up.send(&FromBranch::Gone(std::mem::take(&mut self.gone)));
        }
        while !self.reports.is_empty() {
            let rest = self.reports.split_off(self.reports.len().min(BATCH_MAX));
            let batch = std::mem::replace(&mut self.reports, rest);
            up.send(&FromBranch::Reports(batch));
        }
    }

    fn settle_neighbours(&mut self, poller: &Poller) {
        if let Some(up) = &mut self.up
            && let Err(error) = up.settle::<FromBranch>(poller)
        {
            self.lose_parent(&error.to_string());
        }
        self.strangers.retain(|&token, stranger| stranger.link.settle(poller, token).is_ok());
        let broken: Vec<(Child, LinkError)> = self
            .children
            .iter_mut()
            .filter_map(|(&child, link)| Some((child, link.settle::<ToBranch>(poller).err()?)))
            .collect();
        for (child, error) in broken {
            self.lose_child(child, &error);
        }
    }
}

fn listen(path: &Path, mode: u32, token: u64, poller: &Poller) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    poller.add(&listener, token, Interest::READ)?;
    Ok(listener)
}
