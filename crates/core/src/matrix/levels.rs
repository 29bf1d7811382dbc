//! The matrix and the controllers of its blocks ([`crate::levels`]).

use super::Matrix;
use crate::levels::{Block, Levels};
use alloc::collections::BTreeMap;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};

impl Matrix {
    /// The controllers, if there are any now.
    #[must_use]
    pub fn levels(&self) -> Option<&Levels> {
        self.levels.is_current().then_some(&self.levels)
    }

    /// Controllers that know all nodes and homes, made anew.
    #[must_use]
    pub fn new_levels(&self, external: &BTreeMap<NodeId, ProcessorSet>) -> Levels {
        let columns = self.columns();
        let mut levels =
            Levels::new(columns.map(|(node, column)| (node, column, !self.is_closed(node))));
        for (job, seat) in self.seats.iter() {
            levels.follow(job, Some((seat.row, &seat.parts)), |node| self.column(node));
        }
        for (&node, processors) in external {
            if let Some(column) = self.column(node) {
                levels.set_external(node, column, processors);
            }
        }
        levels
    }

    /// There are controllers from now on, or none.
    pub(crate) fn follow_levels(
        &mut self,
        is_wanted: bool,
        external: &BTreeMap<NodeId, ProcessorSet>,
    ) {
        match (is_wanted, self.levels.is_current()) {
            (true, false) => self.levels = self.new_levels(external),
            (false, true) => self.levels = Levels::default(),
            (true, true) | (false, false) => {}
        }
    }

    /// These processors of a node have external load.
    pub(crate) fn follow_external(&mut self, node: NodeId, processors: &ProcessorSet) {
        let Self { levels, columns, .. } = self;
        if let Some(Some(column)) = columns.get(node.0 as usize) {
            levels.set_external(node, column, processors);
        }
    }

    /// Nodes are others than before. Rows may be of other levels for it, so that other homes suit
    /// them.
    pub(super) fn nodes_changed(&mut self) {
        self.levels.nodes_changed();
        self.vacated |= self.rows.len() > 1;
    }

    /// The controllers know of a job's home what the matrix does.
    pub(super) fn follow_home(&mut self, job: JobId) {
        let Self { levels, seats, columns, .. } = self;
        let seat = seats.get(&job).map(|seat| (seat.row, &seat.parts));
        levels.follow(job, seat, |node: NodeId| columns.get(node.0 as usize)?.as_ref());
    }

    /// The least block that holds these processors.
    pub(crate) fn block_around<'a>(
        &self,
        levels: &Levels,
        parts: impl Iterator<Item = (NodeId, &'a ProcessorSet)>,
    ) -> Option<Block> {
        levels.around(parts, |node| self.column(node))
    }

    /// The rows of a level that no class keeps, oldest first.
    pub(crate) fn rows_of<'a>(
        &'a self,
        levels: &'a Levels,
        level: u32,
    ) -> impl Iterator<Item = RowId> + 'a {
        let rows = self.ordinary().map(|(row, _)| row);
        rows.filter(move |&row| levels.level_of(row) == Some(level))
    }
}
