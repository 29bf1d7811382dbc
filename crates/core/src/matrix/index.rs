//! Finding nodes with free processors without looking at all of them.
//!
//! Each row keeps its nodes by how many processors are free there; the matrix keeps all nodes once
//! by how loaded they are over all rows. Nodes with so many free and so loaded are in both sets.

use super::NodeSet;
use crate::ids::NodeId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The nodes of one row, by how many processors are free there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Index {
    /// Under each number of free processors, the nodes with that many.
    levels: Vec<NodeSet>,
    free: u64,
}

/// All nodes, by in how many rows their processors are taken, added up over the processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loads {
    levels: BTreeMap<u32, NodeSet>,
}

/// Sets without a node are kept while there are no more, so that they need not be made anew.
const LOAD_LEVELS_KEPT: usize = 1024;

impl Index {
    pub(super) fn insert(&mut self, free: u32, node: NodeId) {
        let level = free as usize;
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, NodeSet::default);
        }
        self.levels[level].insert(node);
        self.free += u64::from(free);
    }

    pub(super) fn remove(&mut self, free: u32, node: NodeId) {
        if let Some(level) = self.levels.get_mut(free as usize) {
            level.remove(node);
            self.free -= u64::from(free);
        }
    }

    /// Another number of its processors is free than before.
    pub(super) fn shift(&mut self, node: NodeId, before: u32, after: u32) {
        self.remove(before, node);
        self.insert(after, node);
    }

    /// All free processors of the row.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.free
    }

    /// How many nodes have how many free processors, fewest first.
    pub fn levels(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let levels = (0..).zip(&self.levels).filter(|(_, nodes)| !nodes.is_empty());
        levels.map(|(free, nodes)| (free, u64::from(nodes.len())))
    }

    /// The nodes with the most free processors first; among equals the least loaded, then by
    /// number.
    pub fn widest<'a>(&'a self, loads: &'a Loads) -> impl Iterator<Item = (u32, NodeId)> + 'a {
        let levels = (0..).zip(&self.levels).collect::<Vec<(u32, &NodeSet)>>().into_iter().rev();
        levels.flat_map(|(free, nodes)| loads.in_order(nodes).map(move |node| (free, node)))
    }

    /// The least loaded node with at least `free` processors free that is `good`.
    pub fn least_loaded(
        &self,
        loads: &Loads,
        free: u32,
        mut good: impl FnMut(NodeId) -> bool,
    ) -> Option<NodeId> {
        let levels = self.levels.get(free as usize..)?;
        let found = |loaded: &NodeSet, good: &mut dyn FnMut(NodeId) -> bool| {
            let levels = levels.iter().filter(|nodes| !nodes.is_empty());
            levels.filter_map(|nodes| nodes.common(loaded).find(|&node| good(node))).min()
        };
        loads.levels.values().filter(|set| !set.is_empty()).find_map(|set| found(set, &mut good))
    }
}

impl Loads {
    pub(super) fn insert(&mut self, load: u32, node: NodeId) {
        self.levels.entry(load).or_default().insert(node);
    }

    pub(super) fn remove(&mut self, load: u32, node: NodeId) {
        if let Some(level) = self.levels.get_mut(&load) {
            level.remove(node);
            if level.is_empty() && self.levels.len() > LOAD_LEVELS_KEPT {
                self.levels.remove(&load);
            }
        }
    }

    /// It is otherwise loaded than before.
    pub(super) fn shift(&mut self, node: NodeId, before: u32, after: u32) {
        self.remove(before, node);
        self.insert(after, node);
    }

    /// How loaded a node is, for those who check.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<u32> {
        self.levels.iter().find(|(_, nodes)| nodes.contains(node)).map(|(&load, _)| load)
    }

    /// The nodes of a set, the least loaded first, then by number.
    fn in_order<'a>(&'a self, nodes: &'a NodeSet) -> impl Iterator<Item = NodeId> + 'a {
        let levels = if nodes.is_empty() { None } else { Some(&self.levels) };
        let levels = levels.into_iter().flat_map(BTreeMap::values).filter(|set| !set.is_empty());
        levels.flat_map(|loaded| nodes.common(loaded))
    }
}
