//! Which way anything goes in the control tree: up to the parent, down to a child, or no further.

use std::collections::BTreeMap;
use tutti_core::NodeId;
use tutti_wire::branch::{Order, Place, Recipients, Report};
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

/// What an agent knows of the tree below it, learnt from what passes: a node's request to join says
/// where its name is, the answer to it which number it got.
#[derive(Debug, Default)]
pub(super) struct Routes {
    own: Option<NodeId>,
    own_name: String,
    /// Whether the controller is on this machine.
    is_root: bool,
    joiners: BTreeMap<String, Child>,
    nodes: BTreeMap<NodeId, Child>,
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

    /// Takes note of a report of a child's branch; whether it may be what it says.
    pub(super) fn note_report(&mut self, child: Child, report: &Report) -> bool {
        match (report.from, &report.report) {
            (None, FromAgent::Join(join)) => {
                self.joiners.insert(join.spec.name.clone(), child);
                true
            }
            (None, _) => false,
            (Some(node), _) => self.is_below(node, child),
        }
    }

    /// Splits an order into those for each way; each way gets its part alone. Nodes that are not in
    /// the branch (any more) get nothing: who lost them has been told.
    pub(super) fn split(&mut self, order: Order) -> Vec<(Way, Order)> {
        let Order { to, order } = order;
        match to {
            Recipients::Joiner(name) => self.split_joiner(name, order),
            Recipients::Nodes(nodes) => {
                let mut ways: BTreeMap<Way, Vec<NodeId>> = BTreeMap::new();
                for node in nodes {
                    match self.way(Place::Node(node)) {
                        // An order comes from above: who is not below is nowhere.
                        Way::Up => {}
                        way => ways.entry(way).or_default().push(node),
                    }
                }
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
        }
    }

    fn split_joiner(&mut self, name: String, order: ToAgent) -> Vec<(Way, Order)> {
        let number = match &order {
            ToAgent::Welcome { node, .. } => Some(*node),
            _ => None,
        };
        if name == self.own_name {
            self.own = number.or(self.own);
            return vec![(Way::Here, Order { to: Recipients::Joiner(name), order })];
        }
        let Some(child) = self.joiners.remove(&name) else { return Vec::new() };
        if let Some(node) = number {
            self.nodes.insert(node, child);
        }
        vec![(Way::Down(child), Order { to: Recipients::Joiner(name), order })]
    }

    /// These nodes of a child's branch are out of reach; gives those that were in reach through it.
    pub(super) fn gone(&mut self, child: Child, nodes: Vec<NodeId>) -> Vec<NodeId> {
        let mut nodes = nodes;
        nodes.retain(|node| self.is_below(*node, child));
        for node in &nodes {
            self.nodes.remove(node);
        }
        nodes
    }

    /// A child's connection broke; gives the nodes of its branch.
    pub(super) fn lose(&mut self, child: Child) -> Vec<NodeId> {
        self.joiners.retain(|_, of| *of != child);
        let of_child = |(&node, of): (&NodeId, &Child)| (*of == child).then_some(node);
        let nodes: Vec<NodeId> = self.nodes.iter().filter_map(of_child).collect();
        self.nodes.retain(|_, of| *of != child);
        nodes
    }

    /// The parent is gone, and with it what it knew of this branch: all must join again.
    pub(super) fn forget_all(&mut self) {
        self.own = None;
        self.joiners.clear();
        self.nodes.clear();
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
