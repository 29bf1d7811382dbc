//! Lent processors: a home keeps them, and guests of its row have them in its turns.

use super::{Matrix, Parts};
use tutti_types::ids::{JobId, NodeId, ProcessorSet};

impl Matrix {
    /// A job lends these of its processors from now on, and no others. One that takes no turns
    /// lends nothing: guests may have all that it has.
    pub(crate) fn lend(&mut self, job: JobId, lent: &[(NodeId, ProcessorSet)]) {
        let Some(seat) = self.seats.get(&job).filter(|seat| seat.active) else { return };
        if *seat.lent == *lent {
            return;
        }
        let (row, before, parts) = (seat.row, seat.lent.clone(), seat.parts.clone());
        for (node, set) in before.iter() {
            let still = lent.binary_search_by_key(node, |&(on, _)| on);
            let back = still.map_or_else(|_| set.clone(), |at| set.without(&lent[at].1));
            self.evict_overlapping(row, *node, &back);
        }
        self.hide(job, false);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.lent = lent.into();
        }
        self.hide(job, true);
        if self.rows.len() > 1 {
            self.row_mut(row).loosen(&lent.into());
        }
        self.changes.note(job, &parts);
    }

    /// A job lends nothing any more.
    pub(super) fn take_back(&mut self, job: JobId) {
        self.lend(job, &[]);
    }

    /// What an active job lends counts as idle, or does no more.
    pub(super) fn hide(&mut self, job: JobId, idle: bool) {
        let Some(seat) = self.seats.get(&job) else { return };
        let (row, lent): (_, Parts) = (seat.row, seat.lent.clone());
        let mut count = 0;
        for (node, set) in lent.iter() {
            let Some(column) = self.column_mut(*node) else { continue };
            count += u64::from(set.count());
            let cells = column.cells_mut(row);
            match idle {
                true => cells.suspended.union_with(set),
                false => cells.suspended.subtract(set),
            }
        }
        let home = self.row_mut(row);
        home.busy = if idle { home.busy - count } else { home.busy + count };
    }
}
