//! This agent's place in the control tree: its parent, its children, and what passes between them.
//!
//! What comes from above is for this node, for children's branches, or for several of them; what comes
//! from below goes up, all that has gathered in a round of the loop together. Nothing here decides
//! anything: [`super::routes`] knows the ways.

use super::clock::{ClusterClock, Estimator};
use super::neighbour::Neighbour;
use super::routes::{Child, Routes, Way};
use super::tunnels::Tunnels;
use crate::link::{Interest, Link, LinkError, Poller};
use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use tutti_core::{Nanos, NodeId};
use tutti_linux::clock::monotonic_ns;
use tutti_linux::{peer, proc};
use tutti_wire::Role;
use tutti_wire::branch::{
    ClockReply, FromBranch, Order, Part, Place, Report, Through, ToBranch, TunnelId, Tunnelled,
    Vouch, batches,
};
use tutti_wire::limits::{BATCH_MAX, NEWCOMER_FRAME_BYTES_MAX};
use tutti_wire::tree::{FromAgent, ToAgent};

/// The parent's connection.
pub(super) const UP: u64 = 0;
/// Users who want to be connected with a daemon of another node.
const GATE: u64 = 2;
/// The first number of a connection that is not there from the beginning.
const FIRST_TOKEN: u64 = 16;

/// What an agent is to its machine's part of the cluster.
#[derive(Clone, Debug)]
pub(super) struct TreeOptions {
    /// The node's name.
    pub(super) name: String,
    /// Where the controller listens, if it is on this machine.
    pub(super) controller: PathBuf,
    /// Where the node's keeper listens.
    pub(super) keeper: PathBuf,
    /// Where users find the agent.
    pub(super) gate: PathBuf,
}

/// What the tree has for the agent itself.
#[derive(Debug)]
pub(super) enum Heard {
    /// Something to do.
    Order(ToAgent),
    /// The parent is gone.
    ParentLost(String),
}

/// A client at the gate that has not said yet where it wants to.
struct Newcomer {
    link: Link,
}

/// See the head of the file.
pub(super) struct Tree {
    options: TreeOptions,
    routes: Routes,
    up: Option<Neighbour>,
    children: BTreeMap<Child, Neighbour>,
    reports: Vec<Report>,
    gone: Vec<NodeId>,
    orders: BTreeMap<Child, Vec<Order>>,
    tunnels: Tunnels,
    tunnelled: Vec<Tunnelled>,
    gate: Option<UnixListener>,
    newcomers: BTreeMap<u64, Newcomer>,
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
            routes: Routes::new(options.name.clone(), true),
            options,
            up: None,
            children: BTreeMap::new(),
            reports: Vec::new(),
            gone: Vec::new(),
            orders: BTreeMap::new(),
            tunnels: Tunnels::default(),
            tunnelled: Vec::new(),
            gate: None,
            newcomers: BTreeMap::new(),
            next_token: FIRST_TOKEN,
            next_tunnel: tutti_linux::clock::monotonic_ns(),
            clock,
            estimator: Estimator::default(),
            heard: Vec::new(),
        };
        if let Err(error) = tree.open_gate(poller) {
            say!("tutti agent: no client can reach other nodes from here: {error:#}");
        }
        tree
    }

    fn open_gate(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(&self.options.gate);
        let gate = UnixListener::bind(&self.options.gate)?;
        gate.set_nonblocking(true)?;
        poller.add(&gate, GATE, Interest::READ)?;
        self.gate = Some(gate);
        Ok(())
    }

    /// Leaves nothing behind.
    pub(super) fn close(&mut self) {
        if self.gate.take().is_some() {
            let _ = std::fs::remove_file(&self.options.gate);
        }
    }

    /// Whether there is a parent.
    pub(super) const fn has_parent(&self) -> bool {
        self.up.is_some()
    }

    /// Connects to the parent and asks to be taken in with this.
    pub(super) fn join(&mut self, join: FromAgent, poller: &Poller) -> bool {
        let Ok(stream) = UnixStream::connect(&self.options.controller) else { return false };
        let Ok(mut link) = Link::new(stream) else { return false };
        link.greet(Role::Agent);
        if poller.add(&link, UP, Interest::READ).is_err() {
            return false;
        }
        let mut up = Neighbour::new(link, UP);
        up.send(&FromBranch::Here { name: self.options.name.clone(), address: String::new() });
        up.send(&FromBranch::Reports(vec![Report { from: None, report: join }]));
        self.routes.forget_all();
        self.reports.clear();
        self.gone.clear();
        self.up = Some(up);
        true
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) fn due_ns(&self) -> Option<u64> {
        (!self.is_root() && self.up.is_some()).then(|| self.estimator.due_ns())
    }

    /// Asks what time it is, when it is time to ask.
    pub(super) fn on_time(&mut self, now_ns: u64) {
        if self.due_ns().is_some_and(|due| due <= now_ns)
            && let Some(up) = &mut self.up
        {
            self.estimator.asked(now_ns);
            up.send(&FromBranch::Clock { asked_ns: monotonic_ns() });
        }
    }

    /// Whether the controller is on this machine, so that its clock is cluster time.
    const fn is_root(&self) -> bool {
        true
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
            token if self.tunnels.is_end(token) => {
                self.tunnels.on_ready(token, &mut self.tunnelled);
            }
            token if self.newcomers.contains_key(&token) => self.on_newcomer(token, poller),
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
                    self.clock.correct(correction);
                }
            }
            ToBranch::Ancestors(_) | ToBranch::Elsewhere { .. } => {}
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
            FromBranch::Tunnel(part) => {
                if self.may_speak_for(child, &part) {
                    self.tunnelled.push(part);
                }
            }
            FromBranch::Clock { asked_ns } => self.tell_time(child, asked_ns),
            FromBranch::Here { .. } => {}
        }
    }

    fn tell_time(&mut self, child: Child, asked_ns: u64) {
        let now = monotonic_ns();
        // Who doesn't know what time it is can't tell others.
        let error = if self.is_root() { Some(Nanos::ZERO) } else { self.estimator.error(now) };
        if let Some(error) = error
            && let Some(neighbour) = self.children.get_mut(&child)
        {
            let now = self.clock.at(now);
            let reply = ClockReply { asked_ns, came: now, went: now, error };
            neighbour.send(&ToBranch::Clock(reply));
        }
    }

    /// Whether a part of a stream can be from this child's branch.
    fn may_speak_for(&self, child: Child, part: &Tunnelled) -> bool {
        match &part.part {
            Part::Open(vouch) => {
                vouch.node == part.tunnel.opener && self.routes.is_below(vouch.node, child)
            }
            part => part.is_proper(),
        }
    }

    fn lose_child(&mut self, child: Child, error: &LinkError) {
        if self.children.remove(&child).is_none() {
            return;
        }
        say!("tutti agent: lost a branch of the tree: {error}");
        self.orders.remove(&child);
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

    // ------------------------------------------------------------------ streams

    fn on_gate(&mut self, poller: &Poller) {
        while let Some(Ok((stream, _))) = self.gate.as_ref().map(UnixListener::accept) {
            let Ok(mut link) = Link::new(stream) else { continue };
            link.limit(NEWCOMER_FRAME_BYTES_MAX);
            link.one_at_a_time();
            let token = self.token();
            if poller.add(&link, token, Interest::READ).is_ok() {
                self.newcomers.insert(token, Newcomer { link });
                self.on_newcomer(token, poller);
            }
        }
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn on_newcomer(&mut self, token: u64, poller: &Poller) {
        let Some(newcomer) = self.newcomers.get_mut(&token) else { return };
        let received = newcomer.link.receive();
        let asked = newcomer.link.next_greeting().and_then(|role| match role {
            Some(Role::Gate) => newcomer.link.next::<Through>(),
            Some(_) => Err(tutti_wire::DecodeError::NotTutti.into()),
            None => Ok(None),
        });
        match asked {
            Ok(Some(through)) => {
                if let Some(newcomer) = self.newcomers.remove(&token) {
                    poller.remove(&newcomer.link);
                    let (stream, said) = newcomer.link.into_rest();
                    self.open(stream, said, Place::Node(through.node), poller);
                }
            }
            Ok(None) if received.is_ok() => {}
            Ok(None) | Err(_) => {
                if let Some(newcomer) = self.newcomers.remove(&token) {
                    poller.remove(&newcomer.link);
                }
            }
        }
    }

    /// Begins a stream from a client here, who has said this much already.
    fn open(&mut self, stream: UnixStream, said: Vec<u8>, to: Place, poller: &Poller) {
        let Some(node) = self.routes.own() else { return };
        let vouch = match vouch(&stream, node) {
            Ok(vouch) => vouch,
            Err(error) => return say!("tutti agent: who is at the gate? {error:#}"),
        };
        self.next_tunnel += 1;
        let tunnel = TunnelId { opener: node, number: self.next_tunnel };
        let token = self.token();
        if let Err(error) = self.tunnels.add(tunnel, to, (stream, token), Vec::new(), poller) {
            return say!("tutti agent: cannot pass a client on: {error}");
        }
        self.tunnelled.push(Tunnelled { to, tunnel, part: Part::Open(vouch) });
        if !said.is_empty() {
            self.tunnelled.push(Tunnelled { to, tunnel, part: Part::Bytes(said.into()) });
        }
    }

    /// Somebody far away wants to speak with a daemon of this machine.
    fn arrive(&mut self, to: Place, tunnel: TunnelId, mut vouch: Vouch, poller: &Poller) {
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
        let mut introduction = tutti_wire::Hello { role: Role::Proxy }.to_frame().to_vec();
        let added = tutti_wire::frame::encode(&vouch, &mut introduction)
            .map_err(std::io::Error::other)
            .and_then(|()| UnixStream::connect(daemon))
            .and_then(|stream| {
                let token = self.token();
                self.tunnels.add(tunnel, back, (stream, token), introduction, poller)
            });
        if let Err(error) = added {
            let reason = format!("node {} cannot take it: {error}", self.options.name);
            self.tunnelled.push(Tunnelled { to: back, tunnel, part: Part::End(reason) });
        }
    }

    /// Brings parts of streams on their way, or to their end here.
    fn pass_on(&mut self, poller: &Poller) {
        let mut parts = std::mem::take(&mut self.tunnelled);
        while !parts.is_empty() {
            for Tunnelled { to, tunnel, part } in parts.drain(..) {
                match (self.routes.way(to), part) {
                    (Way::Here, Part::Open(vouch)) => self.arrive(to, tunnel, vouch, poller),
                    (Way::Here, part) => self.tunnels.on_part(tunnel, part),
                    (Way::Down(child), part) => {
                        if let Some(neighbour) = self.children.get_mut(&child) {
                            neighbour.send_bulk(Tunnelled { to, tunnel, part });
                        }
                    }
                    (Way::Up, part) => {
                        if let Some(up) = &mut self.up {
                            up.send_bulk(Tunnelled { to, tunnel, part });
                        }
                    }
                }
            }
            std::mem::swap(&mut parts, &mut self.tunnelled);
        }
    }

    fn is_busy(&self, place: Place) -> bool {
        match self.routes.way(place) {
            Way::Here => false,
            Way::Up => self.up.as_ref().is_some_and(Neighbour::is_busy),
            Way::Down(child) => self.children.get(&child).is_some_and(Neighbour::is_busy),
        }
    }

    // ------------------------------------------------------------------ the end of a round

    /// Sends all that has gathered. Gives what concerns the agent itself.
    pub(super) fn settle(&mut self, poller: &Poller) -> Vec<Heard> {
        let mut tunnels = std::mem::take(&mut self.tunnels);
        let mut parts = Vec::new();
        tunnels.settle(poller, |place| self.is_busy(place), &mut parts);
        self.tunnels = tunnels;
        self.tunnelled.extend(parts);
        self.pass_on(poller);
        for (child, orders) in std::mem::take(&mut self.orders) {
            if let Some(neighbour) = self.children.get_mut(&child) {
                for batch in batches(orders) {
                    neighbour.send(&ToBranch::Orders(batch));
                }
            }
        }
        if let Some(up) = &mut self.up {
            if !self.gone.is_empty() {
                up.send(&FromBranch::Gone(std::mem::take(&mut self.gone)));
            }
            while !self.reports.is_empty() {
                let rest = self.reports.split_off(self.reports.len().min(BATCH_MAX));
                let batch = std::mem::replace(&mut self.reports, rest);
                up.send(&FromBranch::Reports(batch));
            }
            if let Err(error) = up.settle::<FromBranch>(poller) {
                self.lose_parent(&error.to_string());
            }
        }
        let broken: Vec<(Child, LinkError)> = self
            .children
            .iter_mut()
            .filter_map(|(&child, link)| Some((child, link.settle::<ToBranch>(poller).err()?)))
            .collect();
        for (child, error) in broken {
            self.lose_child(child, &error);
        }
        std::mem::take(&mut self.heard)
    }
}

/// Who is at the other end, as the kernel says.
fn vouch(stream: &UnixStream, node: NodeId) -> anyhow::Result<Vouch> {
    let who = peer::peer_credentials(stream)?;
    Ok(Vouch {
        node,
        uid: who.uid,
        gid: who.gid,
        groups: peer::peer_groups(stream)?,
        pid: who.pid,
        hard_limits: proc::hard_limits(who.pid, who.uid).unwrap_or_default(),
    })
}
