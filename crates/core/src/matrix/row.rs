//! One row of the matrix.

use super::Index;
use crate::ids::{ClassName, JobId, NodeId, ProcessorSet};
use alloc::collections::{BTreeMap, BTreeSet};

/// A row: the jobs at home in it, and the guests on what they leave idle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    /// The jobs at home.
    pub homes: BTreeSet<JobId>,
    /// The guests.
    pub guests: BTreeSet<JobId>,
    /// How many active homes there are of each class. Empty: the row has no slot.
    pub classes: BTreeMap<ClassName, u32>,
    /// Nodes by free processors.
    pub index: Index,
    cells: BTreeMap<NodeId, Cells>,
}

/// A row's processors on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cells {
    /// Those of all homes.
    pub taken: ProcessorSet,
    /// Those of active homes.
    pub active: ProcessorSet,
    /// Those of guests.
    pub guest: ProcessorSet,
}

impl Row {
    pub(super) fn new(index: Index) -> Self {
        Self { index, ..Self::default() }
    }

    /// The row's processors on a node; `None` if none is used.
    #[must_use]
    pub fn cells(&self, node: NodeId) -> Option<&Cells> {
        self.cells.get(&node)
    }

    /// All nodes where a processor is used.
    pub fn all_cells(&self) -> impl Iterator<Item = (NodeId, &Cells)> {
        self.cells.iter().map(|(&node, cells)| (node, cells))
    }

    /// How many processors of a node of this width are free for homes.
    #[must_use]
    pub fn free_on(&self, node: NodeId, width: u32) -> u32 {
        width - self.cells.get(&node).map_or(0, |cells| cells.taken.count())
    }

    pub(super) fn cells_mut(&mut self, node: NodeId) -> &mut Cells {
        self.cells.entry(node).or_default()
    }

    /// Forgets a node where nothing is used any more.
    pub(super) fn prune(&mut self, node: NodeId) {
        if self.cells.get(&node).is_some_and(|c| c.taken.is_empty() && c.guest.is_empty()) {
            self.cells.remove(&node);
        }
    }
}
