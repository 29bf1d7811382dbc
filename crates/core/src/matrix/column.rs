//! One node of the matrix, over all rows.

use super::Cells;
use super::index::Shift;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, ProcessorSet, RowId};

/// A node over all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    /// Its processors.
    pub processors: ProcessorSet,
    /// Their number.
    pub width: u32,
    /// In how many rows its processors are taken, added up.
    pub load: u32,
    /// The jobs with a home here, by home row, then by number.
    pub residents: Vec<(RowId, JobId)>,
    /// The rows that use any of it, oldest first.
    cells: Vec<(RowId, Cells)>,
}

impl Column {
    pub(super) fn new(processors: ProcessorSet) -> Self {
        let width = processors.count();
        Self { processors, width, ..Self::default() }
    }

    /// In how many rows the processor is taken.
    #[must_use]
    pub fn load_of(&self, processor: u32) -> usize {
        self.cells.iter().filter(|(_, cells)| cells.taken.contains(processor)).count()
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
        let index = self.place_of(row);
        &mut self.cells[index].1
    }

    /// Where the cells of a row stand, which are made if there are none.
    fn place_of(&mut self, row: RowId) -> usize {
        match self.cells.binary_search_by_key(&row, |&(id, _)| id) {
            Ok(index) => index,
            Err(index) => {
                self.cells.insert(index, (row, Cells::default()));
                index
            }
        }
    }

    /// Forgets a row that uses nothing any more.
    pub(super) fn prune(&mut self, row: RowId) {
        self.cells.retain(|(id, cells)| *id != row || !cells.unused());
    }

    /// Processors go to a job at home in a row.
    pub(super) fn take(&mut self, home: (RowId, JobId), set: &ProcessorSet) -> Shift {
        let after = self.residents.partition_point(|&other| other < home);
        self.residents.insert(after, home);
        let (count, load, width) = (set.count(), self.load, self.width);
        self.load += count;
        let cells = self.cells_mut(home.0);
        cells.taken.union_with(set);
        let free = width - cells.taken.count();
        Shift { free: (free + count, free), load: (load, load + count) }
    }

    /// Processors come back from a job at home in a row.
    pub(super) fn give_back(&mut self, home: (RowId, JobId), set: &ProcessorSet) -> Shift {
        if let Ok(at) = self.residents.binary_search(&home) {
            self.residents.remove(at);
        }
        let (count, load, width) = (set.count(), self.load, self.width);
        self.load -= count;
        let index = self.place_of(home.0);
        let cells = &mut self.cells[index].1;
        cells.taken.subtract(set);
        cells.suspended.subtract(set);
        let free = width - cells.taken.count();
        if cells.unused() {
            self.cells.remove(index);
        }
        Shift { free: (free - count, free), load: (load, load - count) }
    }
}
