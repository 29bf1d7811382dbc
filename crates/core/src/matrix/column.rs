//! One node of the matrix, over all rows.

use super::Cells;
use crate::ids::{JobId, ProcessorSet, RowId};
use alloc::vec::Vec;

/// A node over all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its processors.
    pub processors: ProcessorSet,
    /// Their number.
    pub width: u32,
    /// In how many rows each processor is taken, by its number.
    loads: Vec<u32>,
    /// The sum of them.
    pub load: u32,
    /// The jobs with a home here, by home row, then by number.
    pub residents: Vec<(RowId, JobId)>,
    /// The rows that use any of it, oldest first.
    cells: Vec<(RowId, Cells)>,
}

impl Column {
    pub(super) fn new(processors: ProcessorSet) -> Self {
        let width = processors.count();
        let length = processors.iter().last().map_or(0, |last| last as usize + 1);
        Self { processors, width, loads: alloc::vec![0; length], ..Self::default() }
    }

    /// In how many rows the processor is taken.
    #[must_use]
    pub fn load_of(&self, processor: u32) -> u32 {
        self.loads.get(processor as usize).copied().unwrap_or(0)
    }

    /// A row's processors here; `None` if none is used.
    #[must_use]
    pub fn cells(&self, row: RowId) -> Option<&Cells> {
        self.cells.iter().find(|&&(id, _)| id == row).map(|(_, cells)| cells)
    }

    /// All rows that use a processor here, oldest first.
    pub fn all_cells(&self) -> impl Iterator<Item = (RowId, &Cells)> {
        self.cells.iter().map(|(row, cells)| (*row, cells))
    }

    /// How many processors are free for homes in a row.
    #[must_use]
    pub fn free(&self, row: RowId) -> u32 {
        self.width - self.cells(row).map_or(0, |cells| cells.taken.count())
    }

    pub(super) fn cells_mut(&mut self, row: RowId) -> &mut Cells {
        let index = match self.cells.binary_search_by_key(&row, |&(id, _)| id) {
            Ok(index) => index,
            Err(index) => {
                self.cells.insert(index, (row, Cells::default()));
                index
            }
        };
        &mut self.cells[index].1
    }

    /// Forgets a row that uses nothing any more.
    pub(super) fn prune(&mut self, row: RowId) {
        self.cells.retain(|(id, cells)| *id != row || !cells.unused());
    }

    /// Processors go to a job at home in a row.
    pub(super) fn take(&mut self, home: (RowId, JobId), set: &ProcessorSet) {
        let after = self.residents.partition_point(|&other| other < home);
        self.residents.insert(after, home);
        let row = home.0;
        self.cells_mut(row).taken.union_with(set);
        for processor in set.iter() {
            if let Some(load) = self.loads.get_mut(processor as usize) {
                *load += 1;
                self.load += 1;
            }
        }
    }

    /// Processors come back from a job at home in a row.
    pub(super) fn give_back(&mut self, home: (RowId, JobId), set: &ProcessorSet) {
        self.residents.retain(|&other| other != home);
        let row = home.0;
        let cells = self.cells_mut(row);
        cells.taken.subtract(set);
        cells.active.subtract(set);
        self.prune(row);
        for processor in set.iter() {
            if let Some(load) = self.loads.get_mut(processor as usize) {
                *load -= 1;
                self.load -= 1;
            }
        }
    }
}
