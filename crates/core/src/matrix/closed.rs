//! Closed nodes: their jobs stay, take their turns and move from row to row as before; but no
//! job comes from outside, so their processors are in no index by which such jobs find theirs.

use super::{Column, Matrix};
use tutti_types::ids::NodeId;

/// Numbers of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    /// Of all nodes that are up.
    pub(crate) all: u64,
    /// Of those that take jobs from outside.
    pub(crate) open: u64,
}

impl Matrix {
    /// Closes a node that is up.
    pub fn close(&mut self, node: NodeId) {
        let Some(column) = self.columns.get(node.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        if self.closed.contains(node) {
            return;
        }
        self.closed.insert(node);
        self.closed_width += u64::from(column.width);
        self.blank.remove(column.width, node);
        for (&id, row) in &mut self.rows {
            let free = column.free(id);
            row.index.remove(free, node);
            row.closed_free += u64::from(free);
        }
        self.nodes_changed();
    }

    /// Opens it again.
    pub fn open(&mut self, node: NodeId) {
        let Some(column) = self.columns.get(node.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        if !self.closed.contains(node) {
            return;
        }
        self.closed.remove(node);
        self.closed_width -= u64::from(column.width);
        self.blank.insert(column.width, node);
        for (&id, row) in &mut self.rows {
            let free = column.free(id);
            row.index.insert(free, node);
            row.closed_free -= u64::from(free);
        }
        self.nodes_changed();
    }

    /// Whether a node takes no jobs from outside.
    #[must_use]
    pub fn is_closed(&self, node: NodeId) -> bool {
        self.closed.contains(node)
    }

    /// Whether anybody is at home on a node that takes no jobs from outside.
    #[must_use]
    pub fn closed_in_use(&self) -> bool {
        let mut closed = self.closed.iter().filter_map(|node| self.column(node));
        closed.any(|column| !column.residents.is_empty())
    }

    /// All nodes that are up and take jobs, by number.
    pub fn open_columns(&self) -> impl Iterator<Item = (NodeId, &Column)> {
        self.columns().filter(|&(node, _)| !self.is_closed(node))
    }

    /// Whether any node takes no jobs from outside.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// The nodes that take no jobs from outside, by number.
    pub fn closed_columns(&self) -> impl Iterator<Item = (NodeId, &Column)> {
        self.closed.iter().filter_map(|node| Some((node, self.column(node)?)))
    }

    /// How many processors there are.
    pub(crate) const fn widths(&self) -> Widths {
        Widths { all: self.width(), open: self.blank.free() }
    }

    /// How many processors all nodes have, closed ones too.
    pub(crate) const fn width(&self) -> u64 {
        self.blank.free() + self.closed_width
    }
}
