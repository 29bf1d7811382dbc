//! The nodes: what each has and can do, whether it is up, and how much of its memory is admitted.
//!
//! Memory is admitted over all resident rows, not per row: a suspended job keeps its pages, so
//! jobs that take turns must fit together (the processors of a node, in contrast, are the matrix's
//! business, since there each row has them all).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{NodeId, NodeSetName};
use tutti_types::job::NodeSpec;
use tutti_types::limits::NODE_SETS_MAX;
use tutti_types::node_performance::{Figures, LoadAverages};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// What it has.
    pub spec: NodeSpec,
    /// Whether its agent is there.
    pub up: bool,
    /// Whether it is out of reach: its jobs go on, nothing new is placed there, and it will be back
    /// or lost.
    pub away: bool,
    /// Memory allocated to resident jobs, in bytes.
    pub admitted_bytes: u64,
    /// What it can do, once it was measured.
    pub figures: Option<Figures>,
    /// How busy it is, once it was told.
    pub averages: Option<LoadAverages>,
    /// Why it takes no new jobs, if it takes none: what an administrator said, which may be
    /// nothing.
    pub drained: Option<Arc<str>>,
}

/// All nodes that ever joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nodes {
    nodes: BTreeMap<NodeId, Node>,
    /// The node that has its turn where nodes take turns, or that of the next one.
    in_turn: NodeId,
    sets: BTreeMap<NodeSetName, BTreeSet<NodeId>>,
    /// Whether nodes that are out of reach may run unknown jobs: until they are back or lost, none
    /// takes new jobs.
    in_doubt: bool,
    /// Those that are up and out of reach: mostly none, and each job that is submitted asks for
    /// them.
    away: BTreeSet<NodeId>,
}

impl Nodes {
    /// A node joins with nothing on it. One of the same name as before is as fast as before, and
    /// drained if it was.
    pub fn join(&mut self, node: NodeId, spec: NodeSpec) {
        let before = self.nodes.get(&node).filter(|before| before.spec.name == spec.name);
        let figures = before.and_then(|before| before.figures);
        let drained = before.and_then(|before| before.drained.clone());
        let (up, away, admitted_bytes, averages) = (true, false, 0, None);
        let record = Node { spec, up, away, admitted_bytes, figures, averages, drained };
        self.nodes.insert(node, record);
        self.away.remove(&node);
    }

    /// A node was measured.
    pub fn measure(&mut self, node: NodeId, figures: Figures) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.figures = Some(figures);
        }
    }

    /// A node is so busy now.
    pub fn load(&mut self, node: NodeId, averages: LoadAverages) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.averages = Some(averages);
        }
    }

    /// A node takes no new jobs, for this reason; `None`: it does again. Nothing of a node that
    /// never joined.
    pub fn set_drained(&mut self, node: NodeId, reason: Option<Arc<str>>) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.drained = reason;
        }
    }

    /// A node that is up is out of reach, or is no more; whether that is new.
    pub fn set_away(&mut self, node: NodeId, away: bool) -> bool {
        let record = self.nodes.get_mut(&node).filter(|record| record.up && record.away != away);
        let Some(record) = record else { return false };
        record.away = away;
        if away { self.away.insert(node) } else { self.away.remove(&node) }
    }

    /// Whether new jobs may be placed on a node.
    #[must_use]
    pub fn takes_jobs(&self, node: NodeId) -> bool {
        let record = self.nodes.get(&node);
        let is_there =
            record.is_some_and(|record| record.up && !record.away && record.drained.is_none());
        is_there && !self.in_doubt
    }

    /// Whether the nodes that are noted as out of reach are those that are.
    #[must_use]
    pub fn notes_away(&self) -> bool {
        let away = self.up().filter(|(_, node)| node.away).map(|(id, _)| id);
        away.eq(self.away.iter().copied())
    }

    /// Nodes that are out of reach may run unknown jobs.
    pub fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Whether they still may.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Whether none of them is left of which that was so.
    pub fn clear_doubt(&mut self) -> bool {
        let is_over = self.in_doubt && self.away.is_empty();
        self.in_doubt &= !is_over;
        is_over
    }

    /// A node is none any more, and in no set.
    pub fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.away.remove(&node);
        self.sets.retain(|_, set| {
            set.remove(&node);
            !set.is_empty()
        });
    }

    /// Gives a set of nodes a name; without any node, there is no such set any more. Nothing new if
    /// there are as many sets as may be.
    pub fn set_named(&mut self, name: &NodeSetName, nodes: &BTreeSet<NodeId>) {
        let known: BTreeSet<NodeId> =
            nodes.iter().copied().filter(|node| self.nodes.contains_key(node)).collect();
        if known.is_empty() {
            self.sets.remove(name);
        } else if self.sets.contains_key(name) || self.sets.len() < NODE_SETS_MAX {
            self.sets.insert(name.clone(), known);
        }
    }

    /// The sets with a name.
    #[must_use]
    pub const fn sets(&self) -> &BTreeMap<NodeSetName, BTreeSet<NodeId>> {
        &self.sets
    }

    /// The node that has its turn where nodes take turns; if it is not up, the next one's.
    #[must_use]
    pub const fn in_turn(&self) -> NodeId {
        self.in_turn
    }

    /// The node that is next.
    pub const fn pass_turn(&mut self, to: NodeId) {
        self.in_turn = to;
    }

    /// A node that is up turns out to have another amount of memory than was thought. What is
    /// promised stays promised.
    pub fn set_memory(&mut self, node: NodeId, bytes: u64) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.spec.memory_bytes = bytes.max(record.admitted_bytes);
        }
    }

    /// A node is lost, with all that was on it.
    pub fn lose(&mut self, node: NodeId) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.up = false;
            record.away = false;
            record.admitted_bytes = 0;
        }
        self.away.remove(&node);
    }

    /// The node, if it ever joined.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    /// Whether the node is up.
    #[must_use]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|record| record.up)
    }

    /// All nodes, by number.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(&id, node)| (id, node))
    }

    /// The nodes that are up, by number.
    pub fn up(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.iter().filter(|(_, node)| node.up)
    }

    /// Memory of the node that is allocated to no job, in bytes; none on a node that is not up.
    #[must_use]
    pub fn free_bytes(&self, node: NodeId) -> u64 {
        self.nodes
            .get(&node)
            .filter(|record| record.up)
            .map_or(0, |record| record.spec.memory_bytes.saturating_sub(record.admitted_bytes))
    }

    /// Allocates memory to a job that was placed.
    pub fn admit(&mut self, node: NodeId, bytes: u64) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.admitted_bytes = record.admitted_bytes.saturating_add(bytes);
        }
    }

    /// Takes back what was allocated to a job that has ended.
    pub fn release(&mut self, node: NodeId, bytes: u64) {
        if let Some(record) = self.nodes.get_mut(&node) {
            record.admitted_bytes = record.admitted_bytes.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Nodes;
    use tutti_types::ids::{NodeId, ProcessorSet};
    use tutti_types::job::NodeSpec;

    #[test]
    fn a_node_that_joins_again_has_all_its_memory_free() {
        let spec =
            NodeSpec { name: "a".into(), processors: ProcessorSet::first(2), memory_bytes: 100 };
        let mut nodes = Nodes::default();
        nodes.join(NodeId(1), spec.clone());
        nodes.admit(NodeId(1), 60);
        assert_eq!(nodes.free_bytes(NodeId(1)), 40);
        nodes.lose(NodeId(1));
        assert_eq!(nodes.free_bytes(NodeId(1)), 0);
        nodes.join(NodeId(1), spec);
        assert_eq!(nodes.free_bytes(NodeId(1)), 100);
        nodes.release(NodeId(7), 1);
    }
}
