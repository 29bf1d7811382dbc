//! Bandwidth and latency of the network at nodes: a figure by which nodes are chosen, as those of
//! their processors and memory.
//!
//! A node measures the link to another, its parent in the control tree. A link is at most as good
//! as each of its two ends. So a node's figures are the best of its links: what was slow about the
//! others is not the node.

use crate::apply::Core;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::NodeId;
use tutti_types::node_performance::NetworkFigures;

/// What is known of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    /// The latest measurement of each node: to which other one, and what it found. The other one is
    /// the node itself where the figures are of no particular link.
    links: BTreeMap<NodeId, (NodeId, NetworkFigures)>,
    /// The best of each node.
    nodes: BTreeMap<NodeId, NetworkFigures>,
}

impl Network {
    /// The figures of a node, if any of its links was measured.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<NetworkFigures> {
        self.nodes.get(&node).copied()
    }

    /// The node to which a node measured, and what it found.
    #[must_use]
    pub fn link_of(&self, node: NodeId) -> Option<(NodeId, NetworkFigures)> {
        self.links.get(&node).copied()
    }

    /// Notes a measurement in place of the node's former one.
    fn measure(&mut self, node: NodeId, peer: NodeId, figures: NetworkFigures) {
        match self.links.insert(node, (peer, figures)) {
            // So that many nodes that join cost no more than each of them.
            None => self.count([node, peer], figures),
            Some(former) if former == (peer, figures) => {}
            Some(_) => self.sum_up(),
        }
    }

    /// Forgets a node and all links to it.
    fn remove(&mut self, node: NodeId) {
        self.links.retain(|&from, &mut (to, _)| from != node && to != node);
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.nodes.clear();
        let links: Vec<_> = self.links.iter().map(|(&from, &(to, it))| ([from, to], it)).collect();
        links.into_iter().for_each(|(ends, figures)| self.count(ends, figures));
    }

    /// Counts a link in the figures of its ends.
    fn count(&mut self, ends: [NodeId; 2], figures: NetworkFigures) {
        for node in ends {
            let best = self.nodes.entry(node).or_insert(figures);
            best.bandwidth_mb_s = best.bandwidth_mb_s.max(figures.bandwidth_mb_s);
            best.latency_us = best.latency_us.min(figures.latency_us);
        }
    }
}

impl Core {
    /// The link of a node to a peer was measured. Nothing of nodes that never joined.
    pub(crate) fn on_network_measured(
        &mut self,
        node: NodeId,
        peer: NodeId,
        figures: NetworkFigures,
    ) {
        if [node, peer].into_iter().all(|it| self.nodes.get(it).is_some()) {
            self.network.measure(node, peer, figures);
        }
    }

    /// Nothing of a node that was removed is left.
    pub(crate) fn forget_network(&mut self, node: NodeId) {
        self.network.remove(node);
    }

    /// What is known of the network.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }
}

#[cfg(test)]
mod tests {
    use super::{Network, NetworkFigures, NodeId};

    const fn figures(bandwidth_mb_s: u32, latency_us: u32) -> NetworkFigures {
        NetworkFigures { bandwidth_mb_s, latency_us }
    }

    #[test]
    fn a_node_is_as_good_as_its_best_link() {
        let (head, fast, slow) = (NodeId(0), NodeId(1), NodeId(2));
        let mut network = Network::default();
        network.measure(fast, head, figures(1000, 90));
        network.measure(slow, head, figures(10, 40));
        assert_eq!(network.of(head), Some(figures(1000, 40)));
        assert_eq!(network.of(slow), Some(figures(10, 40)));
        network.measure(fast, head, figures(500, 90));
        assert_eq!(network.of(fast), Some(figures(500, 90)), "the latest counts");
        assert_eq!(network.link_of(fast), Some((head, figures(500, 90))));
        network.remove(fast);
        assert_eq!((network.of(fast), network.of(head)), (None, Some(figures(10, 40))));
        network.remove(head);
        assert_eq!(network, Network::default(), "a link has two ends");
    }
}
