//! Unification: homes move to rows that they should rather be in, so that rows become fewer.

use super::{Matrix, Seat};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RowId};
use tutti_types::placing::Packing;

impl Matrix {
    /// Moves homes to rows that they should rather be in, where their own processors are free, as far
    /// as that goes; rows that lose their last home vanish. Says which job went where.
    pub fn unify(&mut self, packing: Packing) -> Vec<(JobId, RowId)> {
        if !self.vacated && self.movers.is_empty() {
            return Vec::new();
        }
        let mut movers = core::mem::take(&mut self.movers);
        let moved = if self.rows.len() <= 1 {
            Vec::new()
        } else if self.levels.is_current() {
            // A row that is of another level since a job ended suits other homes.
            movers.extend(self.seats.keys());
            let mut moved = Vec::new();
            // A row that a home leaves may be of a lower level for it, so that the homes left there
            // suit rows before those that were looked at.
            loop {
                let more = self.move_to_earlier(&movers);
                if more.is_empty() {
                    break moved;
                }
                moved.extend(more);
            }
        } else {
            match packing {
                Packing::FirstFit => self.move_to_earlier(&movers),
                Packing::BestFit | Packing::Buddy => self.move_to_fuller(packing),
            }
        };
        self.rows.values_mut().for_each(|row| row.vacated.clear());
        self.vacated = false;
        moved
    }

    fn move_to_earlier(&mut self, movers: &BTreeSet<JobId>) -> Vec<(JobId, RowId)> {
        let mut moved = Vec::new();
        // Rows that a class keeps come last, so that they become free.
        let mut rows: Vec<RowId> = self.rows.keys().copied().collect();
        rows.sort_by_key(|row| self.rows[row].kept_by.is_some());
        for row in rows {
            let Some(target) = self.rows.get(&row) else { continue };
            let later = |home: RowId| {
                let is_kept = self.rows.get(&home).is_some_and(|home| home.kept_by.is_some());
                (is_kept, home) > (target.kept_by.is_some(), row)
            };
            for (_, job) in self.candidates(&target.vacated, movers, later) {
                // Only later rows lose anything, so the same sweep sees what that makes room for.
                if self.wants_home(job, row, Packing::FirstFit) {
                    self.move_home(job, row);
                    moved.push((job, row));
                }
            }
        }
        moved
    }

    /// How full rows are changes with every move, so all jobs are looked at until none moves.
    fn move_to_fuller(&mut self, packing: Packing) -> Vec<(JobId, RowId)> {
        let mut moved = Vec::new();
        let jobs: Vec<JobId> = self.seats.keys().collect();
        let mut settled = 0;
        for &job in jobs.iter().cycle() {
            let wanted = self.rows.keys().filter(|&&row| self.wants_home(job, row, packing));
            match wanted.min_by_key(|&&row| (self.width() - self.used(row), row)).copied() {
                Some(row) => {
                    self.move_home(job, row);
                    moved.push((job, row));
                    settled = 0;
                }
                None => settled += 1,
            }
            if settled >= jobs.len() {
                break;
            }
        }
        moved
    }

    /// All homes are to be tried in all rows: rows are in another order.
    pub fn consider_all_homes(&mut self) {
        self.movers.extend(self.seats.keys());
    }

    /// Whether a job's home could be in this row, and should rather be there than in its own.
    #[must_use]
    pub fn wants_home(&self, job: JobId, row: RowId, packing: Packing) -> bool {
        let (Some(seat), Some(target)) = (self.seats.get(&job), self.rows.get(&row)) else {
            return false;
        };
        let kept = self.rows.get(&seat.row).and_then(|home| home.kept_by.as_ref());
        let before = match (kept, &target.kept_by) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(class)) if *class != seat.class => false,
            (None, None) | (Some(_), Some(_)) => self.is_before(seat, row, packing),
        };
        before
            && row != seat.row
            && (!self.levels.is_current() || self.levels.are_alike(row, seat.row))
            && !seat.parts.is_empty()
            && !self.is_barred(job, row)
            && seat.processors <= target.all_free()
            && seat.parts.iter().all(|(node, set)| {
                let cells = self.column(*node).and_then(|column| column.cells(row));
                cells.is_none_or(|cells| !cells.taken.overlaps(set))
            })
    }

    /// Whether homes should rather be in this row by the order of packing.
    fn is_before(&self, seat: &Seat, row: RowId, packing: Packing) -> bool {
        match packing {
            _ if self.levels.is_current() => row < seat.row,
            Packing::FirstFit => row < seat.row,
            Packing::BestFit | Packing::Buddy => {
                row != seat.row && self.used(row) + seat.processors > self.used(seat.row)
            }
        }
    }

    /// How many processors have a home in a row.
    pub(crate) fn used(&self, row: RowId) -> u64 {
        self.rows.get(&row).map_or(0, |row| self.width() - row.all_free())
    }

    fn move_home(&mut self, job: JobId, to: RowId) {
        let (active, from) = (self.seats[&job].active, self.seats[&job].row);
        let parts = self.seats[&job].parts.clone();
        if active {
            self.end_turns(job);
        }
        self.release((from, job), &parts);
        self.occupy((to, job), &parts);
        self.row_mut(to).homes += 1;
        self.leave(from);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.row = to;
            self.touch(job);
        }
        if active {
            self.begin_turns(job);
        } else {
            self.suspend(to, &parts);
            self.changes.jobs.push(job);
        }
    }
}
