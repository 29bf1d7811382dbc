//! Finding nodes with free processors without looking at all of them.
//!
//! Each row keeps its nodes by how many processors are free there; the matrix keeps all nodes once
//! by how loaded they are over all rows. Nodes with so many free and so loaded are in both sets.

use super::NodeSet;
use super::node_set::Neighbours;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::NodeId;

/// The nodes of one row, by how many processors are free there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Index {
    /// Under each number of free processors, the nodes with that many.
    levels: Vec<NodeSet>,
    free: u64,
}

/// All nodes, by in how many rows their processors are taken, added up over the processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loads {
    /// Under each load, the nodes with that much.
    levels: Vec<NodeSet>,
    /// The loads that any node has, as numbers.
    present: NodeSet,
}

/// Where a node stands before and after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shift {
    /// So many processors are free in the row.
    pub(super) free: (u32, u32),
    /// How loaded it is.
    pub(super) load: (u32, u32),
}

/// Gathers nodes of one row that shift. Of a wide job many shift alike and stand side by side: they
/// are entered together.
pub(super) struct Shifts<'a> {
    index: &'a mut Index,
    loads: &'a mut Loads,
    shift: Shift,
    /// The job that does.
    nodes: Neighbours,
}

/// Sets of nodes this much loaded, or less, keep their storage when they have no node, so that it
/// need not be made anew.
const LOAD_LEVELS_KEPT: u32 = 1024;

impl Index {
    pub(super) fn insert(&mut self, free: u32, node: NodeId) {
        self.insert_all(free, Neighbours::of(node));
    }

    pub(super) fn remove(&mut self, free: u32, node: NodeId) {
        self.remove_all(free, Neighbours::of(node));
    }

    fn insert_all(&mut self, free: u32, nodes: Neighbours) {
        let level = free as usize;
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, NodeSet::default);
        }
        self.levels[level].insert_all(nodes);
        self.free += u64::from(free * nodes.count);
    }

    fn remove_all(&mut self, free: u32, nodes: Neighbours) {
        if let Some(level) = self.levels.get_mut(free as usize) {
            level.remove_all(nodes);
            self.free -= u64::from(free * nodes.count);
        }
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
        let levels = (0..u32::try_from(self.levels.len()).unwrap_or(u32::MAX)).zip(&self.levels);
        levels.rev().flat_map(|(free, nodes)| loads.in_order(nodes).map(move |node| (free, node)))
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
        loads.by_load().find_map(|loaded| found(loaded, &mut good))
    }

    /// That node, and at most so many others that are as loaded and `good`, too: the first ones.
    pub fn some_least_loaded(
        &self,
        loads: &Loads,
        free: u32,
        most: usize,
        good: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let levels = self.levels.get(free as usize..).unwrap_or_default();
        for loaded in loads.by_load() {
            let levels = levels.iter().filter(|nodes| !nodes.is_empty());
            let first = |nodes: &NodeSet| -> Vec<NodeId> {
                nodes.common(loaded).filter(|&node| good(node)).take(most).collect()
            };
            let mut found: Vec<NodeId> = levels.flat_map(first).collect();
            if !found.is_empty() {
                found.sort_unstable();
                found.truncate(most);
                return found;
            }
        }
        Vec::new()
    }
}

impl Loads {
    pub(super) fn insert(&mut self, load: u32, node: NodeId) {
        self.insert_all(load, Neighbours::of(node));
    }

    pub(super) fn remove(&mut self, load: u32, node: NodeId) {
        self.remove_all(load, Neighbours::of(node));
    }

    fn insert_all(&mut self, load: u32, nodes: Neighbours) {
        let level = load as usize;
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, NodeSet::default);
        }
        if self.levels[level].is_empty() {
            self.present.insert(NodeId(load));
        }
        self.levels[level].insert_all(nodes);
    }

    fn remove_all(&mut self, load: u32, nodes: Neighbours) {
        let Some(level) = self.levels.get_mut(load as usize) else { return };
        level.remove_all(nodes);
        if level.is_empty() {
            self.present.remove(NodeId(load));
            if load > LOAD_LEVELS_KEPT {
                *level = NodeSet::default();
            }
        }
    }

    /// How loaded a node is, for checks.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<u32> {
        let mut levels = (0..).zip(&self.levels);
        levels.find(|(_, nodes)| nodes.contains(node)).map(|(load, _)| load)
    }

    /// The nodes of a set, the least loaded first, then by number.
    fn in_order<'a>(&'a self, nodes: &'a NodeSet) -> impl Iterator<Item = NodeId> + 'a {
        let common = self.by_load().flat_map(|loaded| nodes.common(loaded));
        // Each has one load, so what is left need not be looked at.
        common.take(nodes.len() as usize)
    }

    /// The nodes of each load, least first.
    fn by_load(&self) -> impl Iterator<Item = &NodeSet> {
        self.present.iter().map(|load| &self.levels[load.0 as usize])
    }
}

impl<'a> Shifts<'a> {
    pub(super) fn new(index: &'a mut Index, loads: &'a mut Loads) -> Self {
        Self { index, loads, shift: Shift::default(), nodes: Neighbours::default() }
    }

    pub(super) fn add(&mut self, node: NodeId, shift: Shift) {
        let Neighbours { word, bits, count } = Neighbours::of(node);
        if (word, shift) != (self.nodes.word, self.shift) {
            self.enter();
            (self.nodes.word, self.shift) = (word, shift);
        }
        self.nodes.bits |= bits;
        self.nodes.count += count;
    }

    /// A node that takes no jobs from outside is in no index; its free processors are counted
    /// apart.
    pub(super) fn add_closed(&mut self, node: NodeId, shift: Shift, closed_free: &mut u64) {
        *closed_free = *closed_free + u64::from(shift.free.1) - u64::from(shift.free.0);
        self.loads.remove(shift.load.0, node);
        self.loads.insert(shift.load.1, node);
    }

    /// Enters the jobs that were gathered.
    pub(super) fn enter(&mut self) {
        let nodes = core::mem::take(&mut self.nodes);
        if nodes.count == 0 {
            return;
        }
        let Shift { free, load } = self.shift;
        self.index.remove_all(free.0, nodes);
        self.index.insert_all(free.1, nodes);
        self.loads.remove_all(load.0, nodes);
        self.loads.insert_all(load.1, nodes);
    }
}
