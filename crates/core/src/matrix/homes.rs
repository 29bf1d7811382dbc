//! Homes: where they begin and end, and whether they take their turns.

use super::index::Shifts;
use super::{Matrix, Owner, Parts, Row, Seat};
use alloc::vec::Vec;
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};

impl Matrix {
    /// Gives a job a home and its turns; with no row named, a new row. The processors must be free
    /// there.
    pub fn place(
        &mut self,
        job: JobId,
        (class, owner): (&ClassName, Owner),
        row: Option<RowId>,
        parts: Parts,
    ) -> RowId {
        let row = self.move_in(job, (class, owner), row, parts);
        self.begin_turns(job);
        row
    }

    /// Gives a job a home, and no turns yet.
    pub fn house(
        &mut self,
        job: JobId,
        (class, owner): (&ClassName, Owner),
        row: Option<RowId>,
        parts: Parts,
    ) -> RowId {
        let row = self.move_in(job, (class, owner), row, parts.clone());
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.active = false;
        }
        self.suspend(row, &parts);
        row
    }

    fn move_in(
        &mut self,
        job: JobId,
        (class, owner): (&ClassName, Owner),
        row: Option<RowId>,
        parts: Parts,
    ) -> RowId {
        let known = row.filter(|&row| self.rows.contains_key(&row) && !self.is_barred(job, row));
        let row = known.unwrap_or_else(|| self.make_row());
        if known.is_none() && self.has_kept() {
            self.consider_kept();
        }
        self.occupy((row, job), &parts);
        let processors = parts.iter().map(|(_, set)| u64::from(set.count())).sum();
        let (class, guest_in) = (class.clone(), Vec::new());
        let lent = Parts::default();
        let seat = Seat { row, class, parts, processors, active: true, guest_in, owner, lent };
        self.seats.insert(job, seat);
        self.touch(job);
        self.row_mut(row).homes += 1;
        if self.rows.len() > 1 {
            // It need not have been put where it would fit first.
            self.movers.insert(job);
        }
        row
    }

    /// Gives a home more processors in its row, on other nodes. They must be free there.
    pub(crate) fn extend(&mut self, job: JobId, more: &[(NodeId, ProcessorSet)]) {
        let Some(active) = self.seats.get(&job).map(|seat| seat.active) else { return };
        self.deactivate(job);
        let Some(row) = self.seats.get(&job).map(|seat| seat.row) else { return };
        self.occupy((row, job), more);
        if let Some(seat) = self.seats.get_mut(&job) {
            let mut parts: Vec<_> = seat.parts.iter().chain(more).cloned().collect();
            parts.sort_unstable_by_key(|(node, _)| *node);
            seat.processors = parts.iter().map(|(_, set)| u64::from(set.count())).sum();
            seat.parts = parts.into();
        }
        self.follow_home(job);
        if self.rows.len() > 1 {
            self.movers.insert(job);
        }
        self.suspend(row, &more.into());
        if active {
            self.activate(job);
        }
    }

    /// Takes a job out.
    pub fn remove(&mut self, job: JobId) {
        let Some(seat) = self.seats.get(&job) else { return };
        if seat.active {
            self.end_turns(job);
        }
        let Some(seat) = self.seats.remove(&job) else { return };
        self.touch(job);
        self.movers.remove(&job);
        self.seekers.remove(&job);
        self.release((seat.row, job), &seat.parts);
        self.leave(seat.row);
    }

    /// A job gives up these processors of its home, by node; it keeps others.
    pub fn shrink(&mut self, job: JobId, lost: &[(NodeId, ProcessorSet)]) {
        self.take_back(job);
        self.evict_everywhere(job);
        let Some(seat) = self.seats.get(&job) else { return };
        let (row, active) = (seat.row, seat.active);
        let left = |(node, set): &(NodeId, ProcessorSet)| {
            let found = lost.binary_search_by_key(node, |&(on, _)| on);
            let left = found.map_or_else(|_| set.clone(), |at| set.without(&lost[at].1));
            (!left.is_empty()).then_some((*node, left))
        };
        let parts: Parts = seat.parts.iter().filter_map(left).collect();
        self.release((row, job), lost);
        // It is still a resident where it keeps some.
        let stays = |(node, _): &&(NodeId, ProcessorSet)| {
            parts.binary_search_by_key(node, |&(on, _)| on).is_ok()
        };
        let nothing = lost.iter().filter(stays).map(|(node, _)| (*node, ProcessorSet::new()));
        self.occupy((row, job), &nothing.collect::<Vec<_>>());
        let count: u64 = lost.iter().map(|(_, set)| u64::from(set.count())).sum();
        let (lost, several): (Parts, bool) = (lost.into(), self.rows.len() > 1);
        let home = self.row_mut(row);
        home.busy -= if active { count } else { 0 };
        if several {
            home.loosen(&lost);
        }
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.processors -= count;
            seat.parts = parts.clone();
        }
        self.touch(job);
        if several {
            // What is left of it fits more easily than the whole did.
            self.movers.insert(job);
            self.seekers.insert(job);
        }
        self.changes.note(job, &lost);
        if parts.len() == 1 {
            // It may run in place of others now.
            self.changes.note(job, &parts);
        }
    }

    /// A job is of another class from now on.
    pub fn reclass(&mut self, job: JobId, class: &ClassName) {
        let Some(active) = self.seats.get(&job).map(|seat| seat.active) else { return };
        self.deactivate(job);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.class = class.clone();
        }
        if active {
            self.activate(job);
        }
    }

    /// Gives a job its turns.
    pub fn activate(&mut self, job: JobId) {
        let Some(seat) = self.seats.get_mut(&job).filter(|seat| !seat.active) else { return };
        seat.active = true;
        let (row, parts) = (seat.row, seat.parts.clone());
        self.touched.push(job);
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).suspended.subtract(set);
            }
        }
        self.begin_turns(job);
    }

    /// Takes its turns from a job; it keeps its home.
    pub fn deactivate(&mut self, job: JobId) {
        let Some(seat) = self.seats.get_mut(&job).filter(|seat| seat.active) else { return };
        let (row, parts) = (seat.row, seat.parts.clone());
        self.touched.push(job);
        self.end_turns(job);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.active = false;
        }
        self.suspend(row, &parts);
    }

    /// A home that is active counts as such.
    pub(super) fn begin_turns(&mut self, job: JobId) {
        let Some(seat) = self.seats.get(&job) else { return };
        let (row, parts) = (seat.row, &seat.parts);
        if !self.rows[&row].guests.is_empty() {
            for (node, set) in parts.clone().iter() {
                self.evict_overlapping(row, *node, set);
            }
            self.evict_apart(job, row);
        }
        let (Some(seat), Some(home)) = (self.seats.get(&job), self.rows.get_mut(&row)) else {
            return;
        };
        home.busy += seat.processors;
        let woken = home.classes.is_empty();
        let (class, owner) = home.enter(&seat.class, seat.owner);
        // With one row, all its owners have the same turns.
        self.reshaped |= class || (owner && self.rows.len() > 1);
        if woken {
            self.woken.insert(row);
        }
        if self.rows.len() > 1 {
            self.seekers.insert(job);
        }
        self.changes.note(job, &seat.parts);
    }

    /// A home that was active counts as such no more. It lends nothing from now on.
    pub(super) fn end_turns(&mut self, job: JobId) {
        self.hide(job, false);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.lent = Parts::default();
        }
        self.evict_everywhere(job);
        self.seek_for_others(job);
        let several = self.rows.len() > 1;
        let Some(seat) = self.seats.get(&job) else { return };
        let Some(home) = self.rows.get_mut(&seat.row) else { return };
        self.changes.note(job, &seat.parts);
        if several {
            home.loosen(&seat.parts);
        }
        home.busy -= seat.processors;
        let (class, owner) = home.exit(&seat.class, seat.owner);
        self.reshaped |= class || (owner && several);
        if home.classes.is_empty() {
            // A row without active homes has no slot, so no job can be a guest there.
            let row = seat.row;
            self.woken.remove(&row);
            for guest in self.row_mut(row).guests.clone() {
                self.evict(guest, row);
            }
        }
    }

    /// Notes that the home on these processors does not take its turns.
    pub(super) fn suspend(&mut self, row: RowId, parts: &Parts) {
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).suspended.union_with(set);
            }
        }
    }

    /// Counts a home of a row less; the row goes with its last one.
    pub(super) fn leave(&mut self, row: RowId) {
        self.row_mut(row).homes -= 1;
        self.drop_if_empty(row);
    }

    /// A row goes with its last home, unless it is kept.
    pub(super) fn drop_if_empty(&mut self, row: RowId) {
        let is_empty = self.rows.get(&row).is_some_and(|row| row.homes == 0);
        if is_empty && !self.kept.contains(&row) {
            self.rows.remove(&row);
            self.woken.remove(&row);
            self.reshaped = true;
        }
    }

    /// A home begins on these processors of a row.
    pub(super) fn occupy(&mut self, home: (RowId, JobId), parts: &[(NodeId, ProcessorSet)]) {
        let row = self.rows.get_mut(&home.0).expect("homes are only placed in rows that exist");
        let mut shifts = Shifts::new(&mut row.index, &mut self.loads);
        for (node, set) in parts {
            if let Some(Some(column)) = self.columns.get_mut(node.0 as usize) {
                let shift = column.take(home, set);
                match self.closed.contains(*node) {
                    true => shifts.add_closed(*node, shift, &mut row.closed_free),
                    false => shifts.add(*node, shift),
                }
            }
        }
        shifts.enter();
    }

    /// A home on these processors of a row has ended.
    pub(super) fn release(&mut self, home: (RowId, JobId), parts: &[(NodeId, ProcessorSet)]) {
        let may_unify = self.rows.len() > 1;
        self.vacated |= may_unify;
        self.move_others(home.1);
        let row = self.rows.get_mut(&home.0).expect("a row lives as long as its homes");
        let mut shifts = Shifts::new(&mut row.index, &mut self.loads);
        for (node, set) in parts {
            if let Some(Some(column)) = self.columns.get_mut(node.0 as usize) {
                let shift = column.give_back(home, set);
                match self.closed.contains(*node) {
                    true => shifts.add_closed(*node, shift, &mut row.closed_free),
                    false => shifts.add(*node, shift),
                }
                if may_unify {
                    row.vacated.insert(*node);
                }
            }
        }
        shifts.enter();
    }
}

impl Row {
    /// Counts an active home. Whether it is the first of its class, and of its owner in the class.
    fn enter(&mut self, class: &ClassName, owner: Owner) -> (bool, bool) {
        let count = self.owners.entry((class.clone(), owner)).or_default();
        *count += 1;
        let first = *count == 1;
        match self.classes.get_mut(class) {
            Some(count) => {
                *count += 1;
                (false, first)
            }
            None => {
                self.classes.insert(class.clone(), 1);
                (true, first)
            }
        }
    }

    /// Counts an active home less. Whether it was the last of its class, and of its owner there.
    fn exit(&mut self, class: &ClassName, owner: Owner) -> (bool, bool) {
        let key = (class.clone(), owner);
        let left = self.owners.get_mut(&key).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            self.owners.remove(&key);
        }
        let of_class = self.classes.get_mut(class).map(|count| {
            *count -= 1;
            *count
        });
        if of_class == Some(0) {
            self.classes.remove(class);
        }
        (of_class == Some(0), left == Some(0))
    }
}
