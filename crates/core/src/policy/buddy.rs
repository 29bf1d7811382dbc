//! Packing "buddy": blocks of powers of two.
//!
//! The processors of all nodes stand in one line, in the order of the nodes and of their own
//! numbers. A block is `2^k` of them that begin at a multiple of `2^k`; at the end of the line it
//! may be cut short. A job gets the first processors of a block of the smallest power of two that
//! holds it, all of which is free in its row. Of such blocks, over all rows, it gets the one in the
//! smallest free block, so that large ones are not split while a small one does: that is the buddy
//! system's rule. Among equals the oldest row counts, then the block that the other rows use least
//! (Feitelson, Rudolph: "Distributed hierarchical control for parallel processing", 1990), then the
//! first.
//!
//! What a job leaves of its block is free for smaller blocks, and for guests.
//!
//! It applies to jobs whose tasks take one processor each and no memory, and do not outnumber the
//! processors, while `placement` is `packed`. Others are packed by best fit. Nodes need not be of
//! equal width; where they are not powers of two wide, blocks lie across their bounds.

use super::placement::is_plain;
use super::{Lack, Machine};
use crate::state::record::{Binding, Part};
use alloc::vec::Vec;
use tutti_types::ids::{NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::placing::{Packing, Placement};

/// A block that is free in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The size of the largest free block that it lies in.
    pub(super) room: u64,
    /// Its first place in the line of processors.
    first: usize,
}

/// Whether a job gets a block.
pub(super) fn applies(machine: Machine<'_>, spec: &JobSpec) -> bool {
    machine.params.packing() == Packing::Buddy
        && machine.params.placement() == Placement::Packed
        && is_plain(spec)
        && u64::from(spec.tasks) <= machine.matrix.width()
}

impl Machine<'_> {
    /// The size of the block that a job gets, if it gets one.
    pub(crate) fn block(self, spec: &JobSpec) -> Option<u32> {
        applies(self, spec).then(|| size(spec))
    }
}

/// The size of the block that a job gets.
pub(super) const fn size(spec: &JobSpec) -> u32 {
    // Tasks are limited to far fewer than would have no power of two above them.
    spec.tasks.next_power_of_two()
}

/// The block for a job in a row, or in a new row if `None`.
pub(super) fn find(machine: Machine<'_>, spec: &JobSpec, row: Option<RowId>) -> Option<Block> {
    let line = Line::of(machine, row);
    let (tasks, size) = (spec.tasks as usize, size(spec) as usize);
    let blocks = (0..line.len()).step_by(size);
    let blocks = blocks.filter(|&first| line.len() - first >= tasks && line.is_free(first, size));
    let keys = blocks.map(|first| (line.room(first, size), line.load(first, size), first));
    keys.min().map(|(room, _, first)| Block { room: room as u64, first })
}

/// See the module.
pub(super) fn lay(
    machine: Machine<'_>,
    spec: &JobSpec,
    row: Option<RowId>,
) -> Result<Vec<Part>, Lack> {
    let block = find(machine, spec, row).ok_or(Lack::Nodes)?;
    let mut begin = 0;
    let mut rank = 0;
    let mut parts = Vec::new();
    for (node, column) in machine.matrix.open_columns() {
        let (from, end) = (block.first.max(begin), begin + column.width as usize);
        let wanted = (block.first + spec.tasks as usize).min(end).saturating_sub(from);
        if wanted > 0 {
            let processors: ProcessorSet =
                column.processors.iter().skip(from - begin).take(wanted).collect();
            parts.push(part(node, processors, rank));
            rank += u32::try_from(wanted).unwrap_or(u32::MAX);
        }
        begin = end;
    }
    Ok(parts)
}

fn part(node: NodeId, processors: ProcessorSet, first: u32) -> Part {
    let tasks = processors.count();
    Part { binding: Binding::Own(1), ..Part::new(node, processors, first, tasks) }
}

/// The line of processors: sums from its begin up to each place.
struct Line {
    /// How many are taken in the row.
    taken: Vec<usize>,
    /// In how many rows they are taken, added up; external load counts as one row.
    loads: Vec<usize>,
}

impl Line {
    fn of(machine: Machine<'_>, row: Option<RowId>) -> Self {
        let (mut taken, mut loads) = (alloc::vec![0], alloc::vec![0]);
        let (mut taken_sum, mut load_sum) = (0, 0);
        for (node, column) in machine.matrix.open_columns() {
            let here = row.and_then(|row| column.cells(row)).map(|cells| &cells.taken);
            for processor in column.processors.iter() {
                taken_sum += usize::from(here.is_some_and(|taken| taken.contains(processor)));
                load_sum += machine.load_of(node, column, processor);
                taken.push(taken_sum);
                loads.push(load_sum);
            }
        }
        Self { taken, loads }
    }

    fn len(&self) -> usize {
        self.taken.len() - 1
    }

    /// How much the sums grow over a block.
    fn over(&self, sums: &[usize], first: usize, size: usize) -> usize {
        let end = first.saturating_add(size).min(self.len());
        sums[end] - sums[first]
    }

    fn is_free(&self, first: usize, size: usize) -> bool {
        self.over(&self.taken, first, size) == 0
    }

    fn load(&self, first: usize, size: usize) -> usize {
        self.over(&self.loads, first, size)
    }

    /// The size of the largest free block around a free one.
    fn room(&self, first: usize, mut size: usize) -> usize {
        while size < self.len() && self.is_free(first / (2 * size) * (2 * size), 2 * size) {
            size *= 2;
        }
        size
    }
}
