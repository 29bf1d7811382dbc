//! Guests: jobs that run besides, on processors that the homes of a row leave idle.

use super::{Changes, Matrix};
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};

impl Matrix {
    /// Makes guests of all jobs that fit, and says what became different since this was last
    /// called, in place of what `changes` said before.
    pub fn settle(&mut self, changes: &mut Changes) {
        if self.rows.len() > 1 {
            self.invite_all();
        }
        if !self.seekers.is_empty() {
            self.seekers.clear();
        }
        if !self.woken.is_empty() {
            self.woken.clear();
        }
        changes.nodes.clear();
        changes.jobs.clear();
        core::mem::swap(&mut self.changes, changes);
        changes.jobs.sort_unstable();
        changes.jobs.dedup();
    }

    fn invite_all(&mut self) {
        let rows: Vec<RowId> = self.rows.keys().copied().collect();
        for row in rows {
            let mut jobs = match self.woken.contains(&row) {
                true => self.everybody(row),
                false => {
                    let loosened = &self.rows[&row].loosened;
                    self.candidates(loosened, &self.seekers, |home| home != row)
                }
            };
            self.row_mut(row).loosened.clear();
            // The rows after this one come first, in cyclic order.
            let earlier = jobs.partition_point(|&(home, _)| home < row);
            jobs.rotate_left(earlier);
            for (_, job) in jobs {
                if self.fits_guest(job, row) {
                    self.invite(job, row);
                }
            }
        }
    }

    /// Whether a job could be a guest in a row where it isn't one.
    #[must_use]
    pub fn fits_guest(&self, job: JobId, row: RowId) -> bool {
        let (Some(seat), Some(target)) = (self.seats.get(&job), self.rows.get(&row)) else {
            return false;
        };
        seat.active
            && seat.row != row
            && !target.classes.is_empty()
            && !seat.parts.is_empty()
            && target.busy + seat.processors <= self.width()
            && !seat.guest_in.contains(&row)
            && !self.meets(job, row)
            && seat.parts.iter().all(|(node, set)| {
                let cells = self.column(*node).and_then(|column| column.cells(row));
                cells.is_none_or(|cells| !cells.run(set))
            })
    }

    /// All jobs at home in other rows, by home row, then by number.
    fn everybody(&self, row: RowId) -> Vec<(RowId, JobId)> {
        let others = self.seats.iter().filter(|(_, seat)| seat.row != row);
        let mut jobs: Vec<(RowId, JobId)> = others.map(|(job, seat)| (seat.row, job)).collect();
        jobs.sort_unstable();
        jobs
    }

    fn invite(&mut self, job: JobId, row: RowId) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        let after = seat.guest_in.partition_point(|&other| other < row);
        seat.guest_in.insert(after, row);
        let (parts, processors) = (seat.parts.clone(), seat.processors);
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).guest.union_with(set);
            }
        }
        let target = self.row_mut(row);
        target.guests.insert(job);
        target.busy += processors;
        self.changes.note(job, &parts);
    }

    pub(super) fn evict(&mut self, job: JobId, row: RowId) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        seat.guest_in.retain(|&other| other != row);
        let (parts, processors) = (seat.parts.clone(), seat.processors);
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).guest.subtract(set);
                column.prune(row);
            }
        }
        let several = self.rows.len() > 1;
        let target = self.row_mut(row);
        if several {
            target.loosen(&parts);
        }
        target.guests.remove(&job);
        target.busy -= processors;
        self.seek_for_others(job);
        self.changes.note(job, &parts);
    }

    pub(super) fn evict_everywhere(&mut self, job: JobId) {
        let guest_in = self.seats.get(&job).map(|seat| seat.guest_in.clone()).unwrap_or_default();
        for row in guest_in {
            self.evict(job, row);
        }
    }

    pub(super) fn evict_overlapping(&mut self, row: RowId, node: NodeId, set: &ProcessorSet) {
        let Some(column) = self.column(node) else { return };
        if column.cells(row).is_none_or(|cells| !cells.guest.overlaps(set)) {
            return;
        }
        for (_, guest) in column.residents.clone() {
            let seat = &self.seats[&guest];
            if seat.guest_in.contains(&row) && seat.on(node).is_some_and(|own| own.overlaps(set)) {
                self.evict(guest, row);
            }
        }
    }
}
