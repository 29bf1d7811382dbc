//! Jobs that are never in one slot: they have a device in turns.
//!
//! Homes of such jobs are in different rows, and none is a guest of a row where another runs. So
//! which of them runs in a slot does not depend on which processors they have.

use super::Matrix;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RowId};

impl Matrix {
    /// The jobs that are never in one slot with this one.
    pub fn kept_apart(&self, job: JobId) -> impl Iterator<Item = JobId> + '_ {
        self.apart.get(&job).into_iter().flatten().copied()
    }

    /// All jobs that may not run with others, and these.
    pub(crate) const fn all_kept_apart(&self) -> &BTreeMap<JobId, BTreeSet<JobId>> {
        &self.apart
    }

    /// From now on these jobs are never in one slot with this one, and all others may be. Their
    /// homes are in other rows.
    pub(crate) fn keep_apart(&mut self, job: JobId, others: &BTreeSet<JobId>) {
        let before = match others.is_empty() {
            true => self.apart.remove(&job).unwrap_or_default(),
            false => self.apart.insert(job, others.clone()).unwrap_or_default(),
        };
        for &other in before.difference(others) {
            if let Some(set) = self.apart.get_mut(&other) {
                set.remove(&job);
                if set.is_empty() {
                    self.apart.remove(&other);
                }
            }
            // They may be where they could not be.
            self.seekers.extend([job, other]);
            self.movers.extend([job, other]);
        }
        for &other in others.difference(&before) {
            self.apart.entry(other).or_default().insert(job);
            self.part(job, other);
        }
    }

    /// Two jobs are guests no more where both run.
    fn part(&mut self, job: JobId, other: JobId) {
        let guest_in = |job| self.seats.get(&job).map(|seat| seat.guest_in.clone());
        let (own, theirs) = (guest_in(job), guest_in(other));
        for row in
            own.into_iter().flatten().filter(|&row| self.runs_in(other, row)).collect::<Vec<_>>()
        {
            self.evict(job, row);
        }
        for row in
            theirs.into_iter().flatten().filter(|&row| self.runs_in(job, row)).collect::<Vec<_>>()
        {
            self.evict(other, row);
        }
    }

    /// Whether a job runs in the slots of a row.
    fn runs_in(&self, job: JobId, row: RowId) -> bool {
        let seat = self.seats.get(&job).filter(|seat| seat.active);
        seat.is_some_and(|seat| seat.row == row || seat.guest_in.contains(&row))
    }

    /// Whether a job would run in the slots of a row together with one that it may not.
    pub(super) fn meets(&self, job: JobId, row: RowId) -> bool {
        self.kept_apart(job).any(|other| self.runs_in(other, row))
    }

    /// Whether a job can't be at home in a row, since one is with which it is never in one slot.
    #[must_use]
    pub fn is_barred(&self, job: JobId, row: RowId) -> bool {
        let is_home = |other| self.seats.get(&other).is_some_and(|seat| seat.row == row);
        self.kept_apart(job).any(is_home)
    }

    /// A home takes its turns from now on: guests of the row go with which it may not run.
    pub(super) fn evict_apart(&mut self, job: JobId, row: RowId) {
        let is_guest =
            |other: &JobId| self.seats.get(other).is_some_and(|it| it.guest_in.contains(&row));
        for other in self.kept_apart(job).filter(is_guest).collect::<Vec<_>>() {
            self.evict(other, row);
        }
    }

    /// A job does not run in some row any more: those that may not run with it could be guests
    /// there.
    pub(super) fn seek_for_others(&mut self, job: JobId) {
        if let Some(others) = self.apart.get(&job) {
            self.seekers.extend(others);
        }
    }

    /// A job left a row, or a part of it: those that may not run with it could be at home there.
    pub(super) fn move_others(&mut self, job: JobId) {
        if let Some(others) = self.apart.get(&job) {
            self.movers.extend(others);
        }
    }
}
