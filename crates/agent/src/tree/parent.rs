//! The parent: looking for one, joining through it, what it says, and losing it.

use super::{Heard, Tree, UP};
use crate::clock::{Need, ask_every_ns};
use crate::peer::Neighbour;
use crate::routes::{Child, Way};
use crate::transport::Carrier;
use anyhow::Context;
use tracing::warn;
use tutti_node::link::{Interest, Link, Poller};
use tutti_node::platform::time::monotonic_ns;
use tutti_node::platform::ways;
use tutti_types::{LaunchId, Nanos, NodeId};
use tutti_wire::Role;
use tutti_wire::branch::{
    Contact, FromBranch, Joining, Order, Origin, Passed, Place, Report, ToBranch,
};
use tutti_wire::code::Code;
use tutti_wire::pmi::Exchange;
use tutti_wire::tree::{FromAgent, ToAgent};

/// A parent that leaves questions unanswered for so long is stuck: the network may be in order, and
/// its kernel answer for it.
const SILENCE_NS: u64 = 10_000_000_000;

/// An agent that is asked to be the parent has so long to answer.
const TAKING_NS: u64 = 5_000_000_000;

/// What is below looks for another parent when this agent has had none for so long.
const WITHOUT_PARENT_NS: u64 = 5_000_000_000;

/// The connection to the parent, or to the agent that may become it.
pub(super) struct Up {
    pub(super) neighbour: Neighbour,
    /// Until when it must have said whether this branch is taken; `None`: it is.
    until_ns: Option<u64>,
}

/// Parts of exchanges that went in one direction, and what their values take.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(crate) parts: u64,
    pub(crate) bytes: u64,
}

impl Passage {
    fn count(&mut self, passed: &Passed) {
        self.parts += 1;
        self.bytes += passed.exchange.values.bytes() as u64;
    }
}

impl Tree {
    /// Whether there is a parent, or an agent that is asked to be it.
    pub(crate) const fn has_parent(&self) -> bool {
        self.above.up.is_some()
    }

    /// Whether it is worth asking another at once, after one was asked in vain.
    pub(crate) fn has_another_way(&mut self) -> bool {
        self.above.candidates.has_another(monotonic_ns())
    }

    /// Begins to connect to an agent that may be the parent. What comes of it is heard later.
    pub(crate) fn connect(&mut self, poller: &Poller) {
        let carrier = match self.dial() {
            Ok(carrier) => carrier,
            Err(error) => {
                // On this machine the controller may only be starting, and will be there in a
                // moment.
                if !self.options.is_root() {
                    warn!(code = %Code::OutOfReach, "cannot reach the cluster: {error:#}");
                    self.above.candidates.failed(monotonic_ns());
                }
                return;
            }
        };
        let mut link = Link::over(carrier);
        link.greet(Role::Agent);
        if poller.add(&link, UP, Interest::READ).is_err() {
            return;
        }
        let mut neighbour = Neighbour::new(link, UP);
        neighbour.send(&FromBranch::Here {
            name: self.options.name.clone(),
            address: self.address.clone(),
            unreachable: self.above.candidates.unreachable(),
        });
        let is_root = self.options.is_root();
        let until_ns = (!is_root).then(|| monotonic_ns() + TAKING_NS);
        self.above.up = Some(Up { neighbour, until_ns });
        if is_root {
            self.begin_anew();
            self.heard.push(Heard::Taken);
        }
    }

    fn dial(&mut self) -> anyhow::Result<Carrier> {
        if self.options.is_root() {
            let stream = ways::connect(&self.options.controller)?;
            stream.set_nonblocking(true)?;
            return Ok(Carrier::Local(stream));
        }
        let candidate = self.above.candidates.next(monotonic_ns()).context("there is no head")?;
        let carrier = Carrier::to(&candidate.address, self.entrance.endpoint.as_ref())?;
        self.above.expected.clone_from(&candidate.name);
        Ok(carrier)
    }

    /// What the former place in the tree was told, or was to be told, counts no more; so for all
    /// below.
    fn begin_anew(&mut self) {
        self.routes.forget_all();
        self.branch.upward.clear();
        self.branch.passing.clear();
        self.branch.gathering.clear();
        self.time.estimator.another_parent();
        self.lease.begin_anew();
        self.ways.tunnels.lose(|_, _| true);
        let above = self.above_children();
        for below in self.branch.children.values_mut() {
            below.neighbour.send(&ToBranch::JoinAgain { above: above.clone() });
        }
        self.number_clients();
    }

    /// The agents above this one's children.
    pub(super) fn above_children(&self) -> Vec<Contact> {
        let own = Contact { name: self.options.name.clone(), address: self.address.clone() };
        self.above.candidates.above().iter().cloned().chain([own]).collect()
    }

    /// Asks to be taken in with this, after [`Heard::Taken`].
    pub(crate) fn join(&mut self, join: FromAgent) {
        self.above.attempt += 1;
        self.routes.note_own(self.above.attempt);
        let above = self.above.candidates.above();
        let error = self.time_error(monotonic_ns()).unwrap_or(Nanos(u64::MAX));
        self.time.told_error = error;
        let joining = Joining {
            attempt: self.above.attempt,
            life: self.above.life,
            parent: above.last().map_or_else(String::new, |parent| parent.name.clone()),
            depth: u16::try_from(above.len()).unwrap_or(u16::MAX),
            time_error: error,
            ..Joining::default()
        };
        self.branch.upward.report(Report { from: Origin::Joiner(joining), report: join });
    }

    /// Queues a report of this node.
    pub(crate) fn report(&mut self, report: FromAgent) {
        if let Some(node) = self.routes.own() {
            let report = Report { from: Origin::Nodes(vec![node]), report };
            self.branch.passing.on_report(&report);
            self.branch.upward.report(report);
        }
    }

    /// Queues a part of what was stored on this node before a barrier.
    pub(crate) fn exchange(&mut self, exchange: Exchange) {
        if let Some(node) = self.routes.own() {
            self.gather(None, Passed { nodes: vec![node], exchange });
        }
    }

    /// A part of what was stored before a barrier on this node, or on nodes below a child.
    pub(super) fn gather(&mut self, child: Option<Child>, passed: Passed) {
        let routes = &self.routes;
        let is_there = |node: &NodeId| match child {
            Some(child) => routes.is_below(*node, child),
            None => true,
        };
        let members = self.branch.passing.nodes_of(&passed.exchange.launch);
        let now_ns = monotonic_ns();
        let sum = self.branch.gathering.take_in(child, passed, is_there, &members, now_ns);
        self.pass_up(sum);
    }

    /// Passes on what has waited in vain for other nodes of the branch.
    pub(super) fn look_at_gathered(&mut self, now_ns: u64) {
        let passing = &self.branch.passing;
        let is_known = |launch: &LaunchId| passing.knows(launch);
        let sum = self.branch.gathering.on_time(now_ns, is_known);
        self.pass_up(sum);
    }

    fn pass_up(&mut self, parts: Vec<Passed>) {
        let Some(up) = &mut self.above.up else { return };
        for part in parts {
            self.above.passages[0].count(&part);
            up.neighbour.exchange(part);
        }
    }

    /// What of exchanges went up and down between this agent and its parent, if that is the head.
    pub(crate) fn passages_with_head(&self) -> Option<&[Passage; 2]> {
        (self.above.candidates.above().len() == 1).then_some(&self.above.passages)
    }

    /// How many messages with orders have come from the parent. Those with questions alone do not
    /// count.
    pub(crate) const fn ordered(&self) -> u64 {
        self.above.ordered
    }

    /// A part of what all nodes of a job have stored before a barrier: for this node, for nodes
    /// below, or both.
    fn on_exchanged(&mut self, passed: Passed) {
        self.above.passages[1].count(&passed);
        let Passed { nodes, exchange } = passed;
        for (way, nodes) in self.routes.ways(nodes) {
            match way {
                Way::Here => self.heard.push(Heard::Exchanged(exchange.clone())),
                Way::Down(child) => {
                    if let Some(below) = self.branch.children.get_mut(&child) {
                        let exchange = exchange.clone();
                        below.neighbour.exchange(Passed { nodes, exchange });
                    }
                }
                Way::Up => {}
            }
        }
    }

    pub(super) fn on_up(&mut self) {
        let Some(up) = &mut self.above.up else { return };
        let received = up.neighbour.link.receive();
        loop {
            let Some(up) = &mut self.above.up else { return };
            match up.neighbour.next::<ToBranch>() {
                Ok(Some(message)) => self.on_word_from_above(message),
                Ok(None) => break,
                Err(error) => return self.lose_parent(&error.whole()),
            }
        }
        if let Err(error) = received {
            self.lose_parent(&error.whole());
        }
    }

    fn on_word_from_above(&mut self, message: ToBranch) {
        match message {
            ToBranch::Orders(orders) => {
                let is_question = |it: &Order| matches!(it.order, ToAgent::Ask { .. });
                self.above.ordered += u64::from(!orders.iter().all(is_question));
                for order in orders {
                    self.on_order(order);
                }
            }
            ToBranch::Exchanged(passed) => self.on_exchanged(passed),
            ToBranch::Tunnel(part) => self.on_tunnelled(Way::Up, part),
            ToBranch::Clock(reply) => self.on_clock(&reply),
            ToBranch::Probed { number } => self.on_probed(number),
            ToBranch::Gone(nodes) => self.end_streams_of(&nodes, None),
            ToBranch::Removed { node } => self.on_removed(node),
            ToBranch::Renewed { name, certificate } => {
                self.on_renewed(name, certificate.into_vec());
            }
            ToBranch::Taken { above } => self.on_taken(above),
            ToBranch::Elsewhere(contact) => self.on_elsewhere(contact),
            ToBranch::JoinAgain { above } => {
                if self.above.candidates.taken(above, &self.options.name) {
                    self.heard.push(Heard::JoinAgain);
                    self.above.awaits_time = true;
                    self.begin_anew();
                } else {
                    self.lose_parent("it is below this node itself");
                }
            }
            ToBranch::Leaving => self.lose_parent("it goes out of service"),
            ToBranch::Refused { reason } => {
                self.lose_parent(&reason);
                self.above.refused = Some(reason);
            }
            ToBranch::Client { node } if self.options.is_client() => self.routes.be_client(node),
            ToBranch::Client { .. } => {}
        }
    }

    /// There is a parent: the time is asked for, and then which agents may join.
    fn on_taken(&mut self, above: Vec<Contact>) {
        let Some(up) = &mut self.above.up else { return };
        if up.until_ns.is_none() {
            return self.lose_parent("it took this node twice");
        }
        if !is_node(&up.neighbour, &self.above.expected) {
            return self.lose_parent("it has not the certificate of the node that it should be");
        }
        up.until_ns = None;
        if !self.above.candidates.taken(above, &self.options.name) {
            return self.lose_parent("it is below this node itself");
        }
        self.above.awaits_time = true;
        self.above.without_parent_ns = None;
        self.above.refused = None;
        self.begin_anew();
    }

    fn on_elsewhere(&mut self, contact: Contact) {
        let is_asked = self.above.up.as_ref().is_some_and(|up| up.until_ns.is_some());
        if is_asked && self.above.candidates.sent_to(contact) {
            self.above.up = None;
            self.heard.push(Heard::AskAnother);
        } else {
            self.lose_parent("it sends this node about");
        }
    }

    fn on_order(&mut self, order: Order) {
        self.branch.passing.on_order(&order);
        self.time.estimator.hurry(self.ask_every_ns());
        let had_joined = self.routes.own().is_some();
        let split = self.routes.split(order);
        if !had_joined && self.routes.own().is_some() {
            self.find_places();
        }
        for (way, order) in split.orders {
            match way {
                Way::Here => self.heard.push(Heard::Order(order.order)),
                Way::Down(child) => self.order_child(child, order),
                Way::Up => {}
            }
        }
        self.branch.upward.gone(split.gone);
    }

    /// The parent is of no more use. What is below stays, and joins again with this agent.
    pub(crate) fn lose_parent(&mut self, reason: &str) {
        let Some(up) = self.above.up.take() else { return };
        self.end_probe();
        let now_ns = monotonic_ns();
        self.above.candidates.failed(now_ns);
        self.above.awaits_time = false;
        self.branch.upward.clear();
        self.branch.gathering.clear();
        if up.until_ns.is_none() {
            self.above.without_parent_ns = Some(now_ns);
            self.ways.tunnels.lose(|_, _| true);
            self.turn_away_waiting();
        }
        self.heard.push(Heard::ParentLost(reason.to_owned()));
    }

    /// When [`Self::look_up`] has something to do.
    pub(super) fn up_due_ns(&self) -> Option<u64> {
        if self.options.is_root() {
            return None;
        }
        let Some(up) = &self.above.up else {
            let patience =
                self.above.without_parent_ns.filter(|_| !self.branch.children.is_empty());
            return patience.map(|since_ns| since_ns + WITHOUT_PARENT_NS);
        };
        up.until_ns.or(Some(self.time.estimator.due_ns()))
    }

    /// Asks what time it is, when it is time to ask, and sees whether the parent is still there.
    pub(super) fn look_up(&mut self, now_ns: u64) {
        if self.options.is_root() {
            return;
        }
        match &mut self.above.up {
            None => {
                let since_ns = self.above.without_parent_ns;
                if since_ns.is_some_and(|since_ns| since_ns + WITHOUT_PARENT_NS <= now_ns) {
                    self.above.without_parent_ns = None;
                    self.release_children();
                }
            }
            Some(Up { until_ns: Some(until_ns), .. }) => {
                if *until_ns <= now_ns {
                    self.lose_parent("it does not answer");
                }
            }
            Some(up) if self.time.estimator.due_ns() <= now_ns => {
                let since_ns = self.time.estimator.unanswered_since_ns();
                if since_ns.is_some_and(|since_ns| since_ns + SILENCE_NS <= now_ns) {
                    return self.lose_parent("it does not say what time it is");
                }
                up.neighbour.send(&FromBranch::Clock { asked_ns: monotonic_ns() });
                let every_ns = self.ask_every_ns();
                self.time.estimator.asked(now_ns, every_ns);
            }
            Some(_) => {}
        }
    }

    /// How often it is asked what time it is.
    pub(super) fn ask_every_ns(&self) -> u64 {
        let need = match (self.branch.passing.jobs(), self.branch.children.len()) {
            (0, 0) => Need::Idle,
            (0, _) => Need::Below,
            _ => Need::Jobs,
        };
        ask_every_ns(need, self.lease.length(), self.time.estimator.doubles_ns())
    }

    /// Whether more of streams to the parent would only wait.
    pub(super) fn is_up_busy(&self) -> bool {
        self.above.up.as_ref().is_some_and(|up| up.neighbour.is_busy())
    }

    /// Sends all that has gathered for the parent.
    pub(super) fn send_up(&mut self) {
        let Some(up) = &mut self.above.up else { return self.branch.upward.clear() };
        // Of a client machine the head wants no report, not even how well it knows the time.
        if self.options.is_client() {
            return self.branch.upward.clear();
        }
        if self.branch.upward.is_empty() {
            return;
        }
        for message in self.branch.upward.take() {
            up.neighbour.send(&message);
        }
    }

    /// A stream's end is told to the other end, if that is in reach.
    pub(super) fn is_nowhere(&self, to: Place) -> bool {
        // The root knows all nodes: an agent that is not below it is nowhere.
        self.options.is_root() && self.routes.way(to) == Way::Up
    }
}

/// Whether the other end is a node of the cluster, and the one that it should be if that is known.
fn is_node(neighbour: &Neighbour, name: &str) -> bool {
    neighbour.link.transport().peer().is_some_and(|(peer, _)| {
        peer.role == tutti_secure::Role::Node && (name.is_empty() || peer.name.as_str() == name)
    })
}
