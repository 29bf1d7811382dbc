//! Packing: which row a job joins (Feitelson: "Packing schemes for gang scheduling", 1996).
//!
//! - `first-fit`: the oldest in which it fits;
//! - `best-fit`: the one that it leaves with the fewest processors free, so that the others stay as
//!   empty as they are for jobs that need much;
//! - `buddy`: the one with the free block that suits it best ([`super::buddy`]); jobs to which the
//!   buddy system does not apply are packed by best fit.
//!
//! Among equals, the oldest. With a single row all but `buddy` are the same.

use super::{Machine, buddy};
use alloc::vec::Vec;
use tutti_types::ids::RowId;
use tutti_types::job::JobSpec;
use tutti_types::placing::Packing;

impl Machine<'_> {
    /// The rows that there may be, in the order in which a job is to be tried in them.
    pub(crate) fn rows_for(self, spec: &JobSpec) -> impl Iterator<Item = RowId> {
        let rows = self.matrix.ordinary().take(self.rows as usize);
        let mut sorted: Vec<RowId> = Vec::new();
        let mut in_turn = 0;
        match self.params.packing() {
            Packing::FirstFit => in_turn = self.rows as usize,
            Packing::Buddy if buddy::applies(self, spec) => {
                let suits = |(row, _)| Some((buddy::find(self, spec, Some(row))?.room, row));
                let mut suiting: Vec<(u64, RowId)> = rows.filter_map(suits).collect();
                suiting.sort_unstable();
                sorted.extend(suiting.into_iter().map(|(_, row)| row));
            }
            Packing::BestFit | Packing::Buddy => {
                let mut free: Vec<(u64, RowId)> =
                    rows.map(|(id, row)| (row.index.free(), id)).collect();
                free.sort_unstable();
                sorted.extend(free.into_iter().map(|(_, row)| row));
            }
        }
        self.matrix.ordinary().take(in_turn).map(|(row, _)| row).chain(sorted)
    }
}
