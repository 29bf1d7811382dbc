//! Which way anything goes in the control tree: up to the parent, down to a child, or no further.

use std::collections::BTreeMap;
use tutti_types::NodeId;
use tutti_wire::branch::{Order, Origin, Place, Recipients, Report, is_client};
use tutti_wire::tree::{FromAgent, ToAgent};

/// The number of a child's connection.
pub(super) type Child = u64;

/// A way from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// This node.
    Here,
    /// To a child.
    Down(Child),
    /// To the parent.
    Up,
}

/// An agent below that has asked to join, and has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Joiner {
    attempt: u64,
    life: u64,
    child: Child,
}

/// An agent below that has joined.
#[derive(Clone, Copy, Debug)]
struct Joined {
    node: NodeId,
    life: u64,
}

/// What an agent knows of the tree below it, learnt from what passes: a node's request to join says
/// where its name is, the answer to it which number it got.
///
/// A node that has moved asks to join from its new place while its old parent may not even have
/// missed it. So where both ways meet it is taken to be gone before its request is passed on, and
/// what the old parent says of it later counts no more.
#[derive(Debug, Default)]
pub(super) struct Routes {
    own: Option<NodeId>,
    own_name: String,
    own_attempt: u64,
    /// Whether the controller is on this machine.
    is_root: bool,
    joiners: BTreeMap<String, Joiner>,
    nodes: BTreeMap<NodeId, Child>,
    names: BTreeMap<String, Joined>,
}

/// What becomes of an order that has come from above.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// Where it goes on, each way its part alone.
    pub(super) orders: Vec<(Way, Order)>,
    /// Nodes of which those above must learn that they are out of reach.
    pub(super) gone: Vec<NodeId>,
}

impl Routes {
    /// Those of an agent that has just started.
    pub(super) fn new(own_name: String, is_root: bool) -> Self {
        Self { own_name, is_root, ..Self::default() }
    }

    /// This node's own number, once it has joined.
    pub(super) const fn own(&self) -> Option<NodeId> {
        self.own
    }

    /// Where to send what is for this place.
    pub(super) fn way(&self, place: Place) -> Way {
        match place {
            Place::Controller if self.is_root => Way::Here,
            Place::Controller => Way::Up,
            Place::Node(node) if self.own == Some(node) => Way::Here,
            Place::Node(node) => self.nodes.get(&node).map_or(Way::Up, |&child| Way::Down(child)),
        }
    }

    /// Whether a node is in the branch of a child.
    pub(super) fn is_below(&self, node: NodeId, child: Child) -> bool {
        self.nodes.get(&node) == Some(&child)
    }

    /// The child with a node of this name in its branch.
    pub(super) fn child_of(&self, name: &str) -> Option<Child> {
        self.nodes.get(&self.names.get(name)?.node).copied()
    }

    /// The node of this name, if it has joined below.
    pub(super) fn node_of(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).map(|joined| joined.node)
    }

    /// Whether a node of this name has joined, or asked to, in a child's branch.
    pub(super) fn knows(&self, name: &str, child: Child) -> bool {
        self.joiners.get(name).is_some_and(|joiner| joiner.child == child)
            || self.child_of(name) == Some(child)
    }

    /// How many nodes are in each child's branch, or are about to be.
    pub(super) fn counts(&self) -> BTreeMap<Child, usize> {
        let mut counts = BTreeMap::new();
        let joiners = self.joiners.values().map(|joiner| joiner.child);
        let nodes = self.nodes.iter().filter(|(node, _)| !is_client(**node));
        for child in nodes.map(|(_, &child)| child).chain(joiners) {
            *counts.entry(child).or_default() += 1;
        }
        counts
    }

    /// A child is a client machine, and has this number from now on.
    pub(super) fn add_client(&mut self, name: String, node: NodeId, child: Child) {
        self.nodes.retain(|node, of| !(is_client(*node) && *of == child));
        self.nodes.insert(node, child);
        self.names.insert(name, Joined { node, life: 0 });
    }

    /// This machine is a client machine, and has this number from now on.
    pub(super) const fn be_client(&mut self, node: NodeId) {
        self.own = Some(node);
    }

    /// This node itself asks to join.
    pub(super) const fn note_own(&mut self, attempt: u64) {
        self.own_attempt = attempt;
    }

    /// Takes note of a report of a child's branch, and leaves of it what may be so; whether
    /// anything is.
    pub(super) fn note_report(&mut self, child: Child, report: &mut Report) -> bool {
        match (&mut report.from, &report.report) {
            (Origin::Joiner(joining), FromAgent::Join(join)) => {
                let joiner = Joiner { attempt: joining.attempt, life: joining.life, child };
                self.joiners.insert(join.spec.name.clone(), joiner);
                true
            }
            (Origin::Joiner(_), _) | (_, FromAgent::Join(_)) => false,
            (Origin::Nodes(nodes), _) => {
                nodes.retain(|node| self.is_below(*node, child));
                !nodes.is_empty()
            }
        }
    }

    /// Whether an agent that asks to join so has left a place below, which is this node of this
    /// child's branch.
    pub(super) fn has_left(&self, report: &Report) -> Option<(Child, NodeId)> {
        let (Origin::Joiner(joining), FromAgent::Join(join)) = (&report.from, &report.report)
        else {
            return None;
        };
        let joined = self.names.get(&join.spec.name).filter(|it| it.life == joining.life)?;
        Some((*self.nodes.get(&joined.node)?, joined.node))
    }

    /// Splits an order into those for each way. Nodes that are not in the branch (any more) get
    /// nothing: the node that lost them has been told.
    pub(super) fn split(&mut self, order: Order) -> Split {
        let Order { to, order } = order;
        match to {
            Recipients::Joiner { name, attempt, life } => {
                self.split_joiner(name, (attempt, life), order)
            }
            Recipients::Nodes(nodes) => {
                let orders = self.split_nodes(nodes, order);
                Split { orders, gone: Vec::new() }
            }
        }
    }

    /// Where something from above goes that is for these nodes, each way with its nodes.
    pub(super) fn ways(&self, nodes: Vec<NodeId>) -> BTreeMap<Way, Vec<NodeId>> {
        let mut ways: BTreeMap<Way, Vec<NodeId>> = BTreeMap::new();
        for node in nodes {
            match self.way(Place::Node(node)) {
                // It comes from above: a node that is not below is nowhere.
                Way::Up => {}
                way => ways.entry(way).or_default().push(node),
            }
        }
        ways
    }

    fn split_nodes(&self, nodes: Vec<NodeId>, order: ToAgent) -> Vec<(Way, Order)> {
        let ways = self.ways(nodes);
        let mut rest = ways.len();
        let mut order = Some(order);
        let mut take = || {
            rest -= 1;
            if rest == 0 { order.take() } else { order.clone() }
        };
        ways.into_iter()
            .filter_map(|(way, nodes)| {
                let order = narrowed(take()?, &nodes);
                Some((way, Order { to: Recipients::Nodes(nodes), order }))
            })
            .collect()
    }

    fn split_joiner(&mut self, name: String, (attempt, life): (u64, u64), order: ToAgent) -> Split {
        let number = match &order {
            ToAgent::Welcome { node, .. } => Some(*node),
            _ => None,
        };
        let to = |name| Recipients::Joiner { name, attempt, life };
        if name == self.own_name {
            if attempt != self.own_attempt {
                return Split::default();
            }
            self.own = number.or(self.own);
            let orders = vec![(Way::Here, Order { to: to(name), order })];
            return Split { orders, gone: Vec::new() };
        }
        let joiner = self.joiners.get(&name).copied().filter(|joiner| joiner.life == life);
        let Some(joiner) = joiner else {
            // The agent that asked has gone since then, and the controller takes it to be here: it
            // would not let in another agent of its node, which may have asked meanwhile.
            return Split { orders: Vec::new(), gone: number.into_iter().collect() };
        };
        if joiner.attempt != attempt {
            // It has asked again, and will be answered again.
            return Split::default();
        }
        self.joiners.remove(&name);
        if let Some(node) = number {
            self.nodes.insert(node, joiner.child);
            self.names.insert(name.clone(), Joined { node, life: joiner.life });
        }
        let orders = vec![(Way::Down(joiner.child), Order { to: to(name), order })];
        Split { orders, gone: Vec::new() }
    }

    /// These nodes of a child's branch are out of reach; gives those that were in reach through it.
    pub(super) fn gone(&mut self, child: Child, nodes: Vec<NodeId>) -> Vec<NodeId> {
        let mut nodes = nodes;
        nodes.retain(|node| self.is_below(*node, child));
        self.forget(&nodes);
        nodes
    }

    /// A child's connection broke; gives the nodes of its branch.
    pub(super) fn lose(&mut self, child: Child) -> Vec<NodeId> {
        self.joiners.retain(|_, joiner| joiner.child != child);
        let of_child = |(&node, of): (&NodeId, &Child)| (*of == child).then_some(node);
        let nodes: Vec<NodeId> = self.nodes.iter().filter_map(of_child).collect();
        self.forget(&nodes);
        nodes
    }

    fn forget(&mut self, nodes: &[NodeId]) {
        if nodes.is_empty() {
            return;
        }
        for node in nodes {
            self.nodes.remove(node);
        }
        self.names.retain(|_, joined| self.nodes.contains_key(&joined.node));
    }

    /// There is no parent, and no number without one.
    pub(super) const fn leave(&mut self) {
        self.own = None;
    }

    /// The parent is gone, and with it what it knew of this branch: all must join again.
    pub(super) fn forget_all(&mut self) {
        self.own = None;
        self.joiners.clear();
        self.nodes.clear();
        self.names.clear();
    }
}

/// The order without what is not for these nodes (which are sorted).
fn narrowed(order: ToAgent, nodes: &[NodeId]) -> ToAgent {
    match order {
        ToAgent::Launch { launch, mut shares } => {
            shares.retain(|(node, _)| nodes.binary_search(node).is_ok());
            ToAgent::Launch { launch, shares }
        }
        order => order,
    }
}

#[cfg(test)]
mod tests;
