//! Children: which are taken, which are sent on to another, what they report, and losing them.
//!
//! An agent takes as many children as the fan-out says, and sends further ones on to the child with
//! the fewest nodes in its branch, so that the tree stays about as flat as it can be. Those that no
//! agent can connect to, being behind a firewall, can't have children: they are counted apart, so
//! that they don't take the places of those that can. An agent that finds all places elsewhere out
//! of reach is taken all the same.

use super::Tree;
use super::clients::ONLY_STREAMS;
use crate::peer::Neighbour;
use crate::routes::{Child, Way};
use tracing::warn;
use tutti_node::link::LinkError;
use tutti_node::platform::time::monotonic_ns;
use tutti_secure::{Fingerprint, Member, Role};
use tutti_types::NodeId;
use tutti_wire::branch::{
    ClockReply, Contact, FromBranch, Order, Origin, Place, Recipients, Report, ToBranch, batches,
};
use tutti_wire::code::Code;
use tutti_wire::tree::{FromAgent, ToAgent};

/// An agent that has come has so long to say where it listens and to be taken, and one that was
/// told to go to be gone.
pub(super) const PATIENCE_NS: u64 = 5_000_000_000;

/// An agent that is part of the tree asks every four seconds at least what time it is. One that
/// says nothing for so long is stuck, though its kernel may answer for it.
const SILENCE_NS: u64 = 10_000_000_000;

/// Then it has so long once more: this agent may have been stopped itself, and not have listened.
const DOUBT_NS: u64 = 1_000_000_000;

/// The agent at the head of a branch.
pub(super) struct Below {
    pub(super) neighbour: Neighbour,
    /// The name and the role of its machine, as its certificate says. Root of an admin is root in
    /// the cluster.
    name: String,
    pub(super) role: Role,
    /// The key that it has shown.
    pub(super) key: Fingerprint,
    /// Where it listens, or empty.
    address: String,
    stage: Stage,
    /// Until when it must have got further; `None`: it has.
    until_ns: Option<u64>,
    /// When it asked what time it is, by its clock and by the one here, while it has no answer.
    asked_ns: Option<(u64, u64)>,
    /// When it was last heard.
    heard_ns: u64,
    /// Since when it is doubted whether it can be heard.
    doubted_ns: Option<u64>,
}

/// How far a child has come.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// It has not said where it listens.
    New,
    /// It waits to be taken, or sent on: but not to these. This node has not joined itself.
    Waiting(Vec<String>),
    /// It is part of the tree.
    Taken,
    /// It was told to look for another place, and is to close the connection.
    Leaving,
}

impl Below {
    /// A child that has just come.
    pub(super) fn new(
        neighbour: Neighbour,
        (member, key): (&Member, Fingerprint),
        until_ns: u64,
    ) -> Self {
        Self {
            neighbour,
            name: member.name.to_string(),
            role: member.role,
            key,
            address: String::new(),
            stage: Stage::New,
            until_ns: Some(until_ns),
            asked_ns: None,
            heard_ns: monotonic_ns(),
            doubted_ns: None,
        }
    }

    /// It is told to go, and has so long to do so.
    fn leave(&mut self, word: &ToBranch) {
        self.neighbour.send(word);
        self.stage = Stage::Leaving;
        self.until_ns = Some(monotonic_ns() + PATIENCE_NS);
    }

    /// The name of its machine.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a client machine.
    pub(super) fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    /// Whether its own node has this name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// Whether it was told to go.
    pub(super) fn is_leaving(&self) -> bool {
        self.stage == Stage::Leaving
    }

    pub(super) fn is_taken(&self) -> bool {
        self.stage == Stage::Taken
    }

    /// When it is to be looked after.
    fn due_ns(&self) -> Option<u64> {
        let silent_ns = self.doubted_ns.map(|since_ns| since_ns + DOUBT_NS);
        let silent_ns = silent_ns.unwrap_or(self.heard_ns + SILENCE_NS);
        self.until_ns.or(self.is_taken().then_some(silent_ns))
    }

    /// Whether it takes too long, or is not to be heard any more.
    fn is_late(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        let is_doubted = self.until_ns.is_some() || self.doubted_ns.is_some();
        if is_due && !is_doubted {
            self.doubted_ns = Some(now_ns);
        }
        is_due && is_doubted
    }
}

impl Tree {
    pub(super) fn on_child(&mut self, child: Child) {
        let Some(below) = self.branch.children.get_mut(&child) else { return };
        let received = below.neighbour.link.receive();
        below.heard_ns = monotonic_ns();
        below.doubted_ns = None;
        loop {
            let Some(below) = self.branch.children.get_mut(&child) else { return };
            match below.neighbour.next::<FromBranch>() {
                Ok(Some(message)) => self.on_word_from_below(child, message),
                Ok(None) => break,
                Err(error) => return self.lose_child(child, &error),
            }
        }
        if let Err(error) = received {
            self.lose_child(child, &error);
        }
    }

    fn on_word_from_below(&mut self, child: Child, message: FromBranch) {
        if self.speaks_as_node(child, &message) {
            return self.let_go(child, ONLY_STREAMS.into());
        }
        let Some(below) = self.branch.children.get_mut(&child) else { return };
        match (&below.stage, message) {
            (Stage::New, FromBranch::Here { name, address, unreachable }) => {
                if name != below.name {
                    let reason = format!("its certificate is not that of a node named {name}");
                    return self.refuse(child, reason);
                }
                // No other agent connects to a client machine.
                below.address = if below.is_client() { String::new() } else { address };
                below.stage = Stage::Waiting(unreachable);
                self.find_place(child);
            }
            (Stage::Taken, FromBranch::Reports(reports)) => {
                reports.into_iter().for_each(|report| self.on_report(child, report));
            }
            (Stage::Taken, FromBranch::Exchange(passed)) => self.gather(Some(child), passed),
            (Stage::Taken, FromBranch::Gone(nodes)) => {
                let nodes = self.routes.gone(child, nodes);
                self.lose_nodes(child, nodes);
            }
            (Stage::Taken, FromBranch::Times(mut times)) => {
                times.retain(|(node, _)| self.routes.is_below(*node, child));
                self.branch.upward.times(times);
            }
            (Stage::Taken, FromBranch::Tunnel(part)) => self.on_tunnelled(Way::Down(child), part),
            (Stage::Taken, FromBranch::Renew { name, request, shown, current }) => {
                self.on_renew(child, (name, request.into_vec()), [shown, current]);
            }
            (Stage::Taken, FromBranch::Clock { asked_ns }) => {
                below.asked_ns = Some((asked_ns, monotonic_ns()));
                self.branch.asking.insert(child);
                self.tell_time();
            }
            // A peer that reads no answers gets no more of them: they would gather here.
            (Stage::Taken, FromBranch::Probe { number, is_last: true, .. })
                if !below.neighbour.link.is_behind() =>
            {
                below.neighbour.send(&ToBranch::Probed { number });
            }
            // An agent outside the tree has no say; what was on its way when it was told is lost.
            (Stage::New | Stage::Waiting(_) | Stage::Taken | Stage::Leaving, _) => {}
        }
    }

    fn on_report(&mut self, child: Child, mut report: Report) {
        if let Some(refusal) = self.refusal(child, &mut report) {
            return self.branch.orders.entry(child).or_default().push(refusal);
        }
        if let Some((left, node)) = self.routes.has_left(&report) {
            let nodes = self.routes.gone(left, vec![node]);
            self.lose_nodes(left, nodes);
        }
        if self.routes.note_report(child, &mut report) {
            self.note_arrival(&report);
            self.branch.passing.on_report(&report);
            self.branch.upward.report(report);
        }
    }

    /// The answer to an agent that asks to join and can't; of one that can, the key that it has
    /// shown is recorded. Another than the child itself has shown it to an agent in its branch,
    /// which is part of the tree only if the child has asked to be; where all are the head's own
    /// children, there is no other. So is the address from which it has come.
    fn refusal(&self, child: Child, report: &mut Report) -> Option<Order> {
        let (Origin::Joiner(joining), FromAgent::Join(join)) = (&mut report.from, &report.report)
        else {
            return None;
        };
        let (below, name) = (self.branch.children.get(&child)?, &join.spec.name);
        if below.is_named(name) {
            joining.key = *below.key.as_bytes();
            let address = below.neighbour.link.transport().address();
            joining.address = address.map_or_else(String::new, |address| address.to_string());
            return None;
        }
        if !self.is_star() && self.routes.knows(&below.name, child) {
            return None;
        }
        let (name, attempt, life) = (name.clone(), joining.attempt, joining.life);
        let reason = format!("no machine joins through node {}", below.name);
        let to = Recipients::Joiner { name, attempt, life };
        Some(Order { to, order: ToAgent::Refused { reason } })
    }

    // ------------------------------------------------------------------ which are taken

    /// This node has joined: those that have waited for it can be given a place.
    pub(super) fn find_places(&mut self) {
        let waits = |(&child, below): (&Child, &Below)| {
            matches!(below.stage, Stage::Waiting(_)).then_some(child)
        };
        for child in self.branch.children.iter().filter_map(waits).collect::<Vec<_>>() {
            self.find_place(child);
        }
    }

    fn find_place(&mut self, child: Child) {
        if self.routes.own().is_none() {
            if self.above.up.is_none() {
                self.refuse(child, "its parent has no controller yet".into());
            }
            return;
        }
        let elsewhere = self.elsewhere(child);
        let above = self.above_children();
        let Some(below) = self.branch.children.get_mut(&child) else { return };
        match elsewhere {
            Some((contact, by)) => {
                below.leave(&ToBranch::Elsewhere(contact));
                let name = below.name.clone();
                self.branch.sent_on.insert(name, by);
            }
            None => {
                self.branch.sent_on.remove(&below.name);
                below.stage = Stage::Taken;
                below.until_ns = None;
                below.neighbour.send(&ToBranch::Taken { above });
                self.number_client(child);
            }
        }
    }

    /// Which child is to take this one instead.
    fn elsewhere(&self, child: Child) -> Option<(Contact, Child)> {
        let newcomer = self.branch.children.get(&child)?;
        let Stage::Waiting(unreachable) = &newcomer.stage else { return None };
        if newcomer.is_client() {
            return None;
        }
        let listens = |below: &Below| !below.address.is_empty();
        let alike = |below: &&Below| {
            below.is_taken() && !below.is_client() && listens(below) == listens(newcomer)
        };
        if self.branch.children.values().filter(alike).count() < self.fan_out() {
            return None;
        }
        let mut counts = self.routes.counts();
        for by in self.branch.sent_on.values() {
            *counts.entry(*by).or_default() += 1;
        }
        let able = |(_, below): &(&Child, &Below)| {
            below.is_taken() && listens(below) && !unreachable.contains(&below.address)
        };
        let count = |(child, _): &(&Child, &Below)| (counts.get(*child).copied(), **child);
        let (by, below) = self.branch.children.iter().filter(able).min_by_key(count)?;
        let contact = Contact { name: below.name.clone(), address: below.address.clone() };
        Some((contact, *by))
    }

    /// The agent that was sent on to a child has arrived below.
    fn note_arrival(&mut self, report: &Report) {
        if let FromAgent::Join(join) = &report.report {
            self.branch.sent_on.remove(&join.spec.name);
        }
    }

    /// When [`Self::look_down`] has something to do.
    pub(super) fn down_due_ns(&self) -> Option<u64> {
        self.branch.children.values().filter_map(Below::due_ns).min()
    }

    /// Lets go of those that take too long.
    pub(super) fn look_down(&mut self, now_ns: u64) {
        let late = |(&child, below): (&Child, &mut Below)| {
            below.is_late(now_ns).then_some((child, below.is_taken()))
        };
        for (child, was_taken) in
            self.branch.children.iter_mut().filter_map(late).collect::<Vec<_>>()
        {
            if was_taken {
                warn!(code = %Code::OutOfReach, "a branch has said nothing for too long");
            }
            self.lose_child(child, &LinkError::Closed);
        }
    }

    /// How many children there may be. Root on a node with children could give orders to
    /// those below: where the head does not trust them so far, all are its own children.
    fn fan_out(&self) -> usize {
        if self.is_star() { usize::MAX } else { self.branch.fan_out }
    }

    fn is_star(&self) -> bool {
        self.options.is_root() && !self.options.membership.as_ref().is_some_and(|m| m.trusts_root)
    }

    pub(super) fn refuse(&mut self, child: Child, reason: String) {
        if let Some(below) = self.branch.children.get_mut(&child) {
            below.leave(&ToBranch::Refused { reason });
        }
    }

    /// Those that wait for this node to join look elsewhere: it has lost its own parent.
    pub(super) fn turn_away_waiting(&mut self) {
        self.routes.leave();
        self.find_places();
    }

    /// All that is below looks for another parent.
    pub(crate) fn release_children(&mut self) {
        for below in self.branch.children.values_mut() {
            below.leave(&ToBranch::Leaving);
        }
    }

    // ------------------------------------------------------------------ the time

    /// Tells those that have asked what time it is, once that is known here.
    pub(super) fn tell_time(&mut self) {
        if self.above.awaits_time || self.branch.asking.is_empty() {
            return;
        }
        let now_ns = monotonic_ns();
        let Some(error) = self.time_error(now_ns) else { return };
        let (went, lease) = (self.time.clock.at(now_ns), self.vouches_until(now_ns));
        let (system, era) = (self.system_time(), self.era());
        let (children, clock) = (&mut self.branch.children, &self.time.clock);
        self.branch.asking.retain(|child| {
            let Some(below) = children.get_mut(child) else { return false };
            // A peer that reads no answers gets no more of them: they would gather here.
            if below.neighbour.link.is_behind() {
                return true;
            }
            if let Some((asked_ns, came_ns)) = below.asked_ns.take() {
                let came = clock.at(came_ns).min(went);
                let reply = ClockReply { asked_ns, came, went, error, era, lease, system };
                below.neighbour.send(&ToBranch::Clock(reply));
            }
            false
        });
    }

    // ------------------------------------------------------------------ losing them

    /// Whether root of a child's branch is root in the cluster. The head says so; of a client
    /// machine it never is.
    fn trusts(&self, child: Child) -> bool {
        let trusts_root = self.options.membership.as_ref().is_some_and(|it| it.trusts_root);
        match self.branch.children.get(&child).map(|below| below.role) {
            Some(Role::Admin) => true,
            Some(Role::Node) => trusts_root,
            Some(Role::Client) | None => false,
        }
    }

    /// Whether the word of a node is that of a root that is root in the cluster.
    pub(super) fn trusts_node(&self, node: NodeId) -> bool {
        match self.routes.way(Place::Node(node)) {
            Way::Here => true,
            Way::Down(child) => self.trusts(child),
            Way::Up => false,
        }
    }

    pub(super) fn lose_child(&mut self, child: Child, error: &LinkError) {
        let Some(below) = self.branch.children.remove(&child) else { return };
        self.branch.orders.remove(&child);
        if self.lose_branch(child) {
            warn!(code = %Code::OutOfReach, "lost the branch of {}: {}", below.name, error.whole());
        }
    }

    /// Whether anybody was there.
    fn lose_branch(&mut self, child: Child) -> bool {
        self.branch.asking.remove(&child);
        self.branch.gathering.lose(child);
        self.branch.sent_on.retain(|_, by| *by != child);
        let nodes = self.routes.lose(child);
        let any = !nodes.is_empty();
        self.lose_nodes(child, nodes);
        any
    }

    /// An order for a child's branch. If it says that its own node may not join, the child is none
    /// any more.
    pub(super) fn order_child(&mut self, child: Child, order: Order) {
        let refused = match (&order.to, &order.order) {
            (Recipients::Joiner { name, .. }, ToAgent::Refused { reason }) => Some((name, reason)),
            _ => None,
        };
        let is_own =
            |name: &str| self.branch.children.get(&child).is_some_and(|it| it.is_named(name));
        let reason = refused.filter(|(name, _)| is_own(name)).map(|(_, reason)| reason.clone());
        self.branch.orders.entry(child).or_default().push(order);
        if let Some(reason) = reason {
            self.let_go(child, reason);
        }
    }

    /// A node was removed from the cluster: its parent lets go of it.
    pub(super) fn on_removed(&mut self, node: NodeId) {
        let Way::Down(child) = self.routes.way(Place::Node(node)) else { return };
        let Some(below) = self.branch.children.get_mut(&child) else { return };
        if self.routes.node_of(&below.name) == Some(node) {
            self.let_go(child, "its node was removed from the cluster".into());
        } else {
            below.neighbour.send(&ToBranch::Removed { node });
        }
    }

    /// A child is none any more, and has a moment to go. It is sent what it was to be sent, and
    /// what it says counts no more; those that have joined below it look for another parent.
    fn let_go(&mut self, child: Child, reason: String) {
        let orders = self.branch.orders.remove(&child).unwrap_or_default();
        let Some(below) = self.branch.children.get_mut(&child) else { return };
        for batch in batches(orders) {
            below.neighbour.send(&ToBranch::Orders(batch));
        }
        below.leave(&ToBranch::Refused { reason });
        self.lose_branch(child);
    }

    fn lose_nodes(&mut self, child: Child, nodes: Vec<NodeId>) {
        if nodes.is_empty() {
            return;
        }
        self.branch.passing.on_gone(&nodes);
        self.end_streams_of(&nodes, Some(child));
        self.branch.upward.gone(nodes);
    }

    /// Streams with nodes that are out of reach end, here and at the children but the one that says
    /// so.
    pub(super) fn end_streams_of(&mut self, nodes: &[NodeId], but: Option<Child>) {
        let is_lost = |node: NodeId| nodes.contains(&node);
        self.ways.tunnels.lose(|to, tunnel| {
            is_lost(tunnel.opener) || matches!(to, Place::Node(node) if is_lost(node))
        });
        for (child, below) in &mut self.branch.children {
            if below.is_taken() && Some(*child) != but {
                below.neighbour.send(&ToBranch::Gone(nodes.to_vec()));
            }
        }
    }

    /// Whether more of streams that way would only wait.
    pub(super) fn is_busy(&self, place: Place) -> bool {
        match self.routes.way(place) {
            Way::Here => false,
            Way::Up => self.is_up_busy(),
            Way::Down(child) => {
                self.branch.children.get(&child).is_some_and(|below| below.neighbour.is_busy())
            }
        }
    }
}
