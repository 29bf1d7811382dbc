//! Finding nodes with free processors without looking at all of them.

use crate::ids::NodeId;
use alloc::collections::{BTreeMap, BTreeSet};

/// The nodes of one row, by how many processors are free there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Index {
    /// For each number of free processors, the nodes with that many: the least loaded over all
    /// rows first, then by number.
    levels: BTreeMap<u32, BTreeSet<(u32, NodeId)>>,
    free: u64,
}

impl Index {
    pub(super) fn insert(&mut self, free: u32, load: u32, node: NodeId) {
        self.levels.entry(free).or_default().insert((load, node));
        self.free += u64::from(free);
    }

    pub(super) fn remove(&mut self, free: u32, load: u32, node: NodeId) {
        if let Some(level) = self.levels.get_mut(&free)
            && level.remove(&(load, node))
        {
            self.free -= u64::from(free);
            if level.is_empty() {
                self.levels.remove(&free);
            }
        }
    }

    /// All free processors of the row.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.free
    }

    /// How many nodes have how many free processors.
    pub fn levels(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.levels.iter().map(|(&free, nodes)| (free, nodes.len() as u64))
    }

    /// The nodes with the most free processors first; among equals the least loaded, then by
    /// number.
    pub fn widest(&self) -> impl Iterator<Item = (u32, NodeId)> + '_ {
        let levels = self.levels.iter().rev();
        levels.flat_map(|(&free, nodes)| nodes.iter().map(move |&(_, node)| (free, node)))
    }

    /// The least loaded node with at least `free` processors free that is `good`.
    pub fn least_loaded(&self, free: u32, mut good: impl FnMut(NodeId) -> bool) -> Option<NodeId> {
        let levels = self.levels.range(free..);
        levels
            .filter_map(|(_, nodes)| nodes.iter().find(|&&(_, node)| good(node)))
            .min()
            .map(|&(_, node)| node)
    }
}
