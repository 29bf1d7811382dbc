//! Preemption: a resident job gives up its processors, and gets some again later.
//!
//! ```text
//! Home --move_out--> Leaving --MovedOut--> Aside --move_in--> Coming --MovedIn--> Home
//! ```
//!
//! A preempted job has no place in the matrix, so it is a candidate in no timetable, and
//! its nodes hold it suspended. It stays resident in all else: its tasks are where they are, its
//! memory stays admitted there (they are suspended in place, and the kernel may swap them), its
//! limits and graces go on, and it can be signalled, killed, suspended, resumed and lose a node as
//! before.
//!
//! Leaving and coming may take time: the driver is asked ([`Action::MoveOut`], [`Action::MoveIn`])
//! and says when it is done. Until then the job keeps its processors and runs on none of them, so
//! that no other job gets them before they are really free. A driver that suspends jobs in place
//! answers at once.
//!
//! A policy decides which job is preempted and when it comes back. Under one that preempts none,
//! only jobs beyond their limits are ([`crate::overrun`]), and a job that an earlier one preempted
//! comes back at once, to where its tasks are: in the first row where these processors are free, or
//! in a new one, if need be beyond the limit; such rows vanish as their jobs end.

use crate::action::Action;
use crate::apply::Core;
use crate::matrix::Owner;
use crate::state::record::{Course, Part, Place, Record, Residence};
use crate::termination::memory_of;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, RowId};

#[cfg(test)]
mod tests;

impl Record {
    /// Whether it is to run in its turns, once its memory is here.
    pub(crate) fn may_take_turns(&self) -> bool {
        !self.suspended && self.residence().is_some_and(|it| it.place == Place::Home)
    }
}

impl Residence {
    /// Whether there is anything left that could run.
    pub(crate) fn may_come_back(&self) -> bool {
        self.present() && !matches!(self.course, Course::Killed { .. })
    }

    /// Whether it can go on elsewhere: nothing of it has ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.ended.is_empty() && self.parts.iter().all(|part| !part.cleared && !part.lost)
    }
}

impl Core {
    /// Takes a job out of its turns; its processors are free when the driver says so.
    pub(crate) fn move_out(&mut self, job: JobId) {
        let now = self.now;
        let Some(residence) = self.residence_mut(job).filter(|it| it.place == Place::Home) else {
            return;
        };
        residence.place = Place::Leaving;
        residence.moved = now;
        self.matrix.deactivate(job);
        self.ledger.hold(job);
        self.outbox.moves.push(job);
        self.disturb();
    }

    /// Gives a preempted job a home again, in a row (`None`: a new one), where its tasks
    /// are.
    pub(crate) fn move_in(&mut self, job: JobId, row: Option<RowId>) {
        if self.house_again(job, row, Place::Coming) {
            self.outbox.moves.push(job);
            self.disturb();
        }
    }

    pub(crate) fn house_again(&mut self, job: JobId, row: Option<RowId>, place: Place) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let class = self.seat_class(job, &record.spec.class);
        let Some(record) = self.jobs.get_mut(&job) else { return false };
        let owner = Owner::of(&record.spec);
        let Some(residence) = record.residence_mut().filter(|it| it.place == Place::Aside) else {
            return false;
        };
        residence.place = place;
        let parts = residence.places().into();
        self.aside.remove(&job);
        self.outside.preempted.remove(&job);
        let home = self.matrix.house(job, (&class, owner), row, parts);
        let processors = self.matrix.seat(job).map_or(0, |seat| seat.processors);
        self.ledger.come_back(job, home, processors);
        true
    }

    /// The same on other processors; only for a job that is [movable](Core::is_movable).
    pub(crate) fn move_to(&mut self, job: JobId, row: Option<RowId>, parts: Vec<Part>) {
        if self.is_movable(job) {
            self.go_on_at(job, row, parts);
        }
    }

    /// The same for a job that has set out ([`crate::migrate`]); nothing of one that can't go on.
    pub(crate) fn go_on_at(&mut self, job: JobId, row: Option<RowId>, parts: Vec<Part>) {
        if !self.jobs.get(&job).is_some_and(|record| self.may_go_on(record)) {
            return;
        }
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let spec = record.spec.clone();
        let Some(residence) = record.residence_mut() else { return };
        let before = core::mem::replace(&mut residence.parts, parts);
        for part in &before {
            self.nodes.release(part.node, self.swaps.counted_bytes(job, part, &spec));
        }
        self.swaps.end(job);
        for part in &residence.parts {
            self.nodes.admit(part.node, memory_of(part, &spec));
        }
        self.release_devices((job, &spec), &before);
        self.assign_devices(job);
        self.move_in(job, row);
    }

    /// Whether a preempted job may come back on other processors.
    pub(crate) fn is_movable(&self, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        record.spec.movable && self.may_go_on(record)
    }

    /// Whether a preempted job can go on on other processors. One that is asked to end, or killed,
    /// is so where it is.
    fn may_go_on(&self, record: &Record) -> bool {
        let aside = record.residence().filter(|it| it.place == Place::Aside);
        aside.is_some_and(|it| it.is_whole() && !it.ending())
    }

    /// Preempts a job in one step: it is suspended in place, so there is nothing to wait for.
    pub(crate) fn put_aside(&mut self, job: JobId) {
        let Some(residence) = self.residence_mut(job).filter(|it| it.place == Place::Home) else {
            return;
        };
        residence.place = Place::Aside;
        self.ledger.hold(job);
        self.matrix.remove(job);
        self.ledger.leave(job);
        self.aside.insert(job);
    }

    /// Gives a preempted job its home and its turns again in one step, where its tasks are.
    pub(crate) fn put_back(&mut self, job: JobId, row: RowId) {
        self.house_again(job, Some(row), Place::Home);
        self.give_turns(job);
    }

    /// A driver begins: what an earlier one was asked for may not be done.
    pub(crate) fn ask_again_to_move(&mut self) {
        let is_moving = |record: &Record| {
            let place = record.residence().map(|residence| residence.place);
            matches!(place, Some(Place::Leaving | Place::Coming))
        };
        let moving = self.jobs.iter().filter(|(_, record)| is_moving(record));
        self.outbox.moves.extend(moving.map(|(job, _)| job));
    }

    /// Asks the driver for what a job has just begun.
    pub(crate) fn ask_to_move(&self, job: JobId, actions: &mut Vec<Action>) {
        match self.residence(job).map(|residence| residence.place) {
            Some(Place::Leaving) => actions.push(Action::MoveOut { job }),
            Some(Place::Coming) => actions.push(Action::MoveIn { job }),
            Some(Place::Home | Place::Aside) | None => {}
        }
    }

    /// The processors of a job that was leaving are free.
    pub(crate) fn on_moved_out(&mut self, job: JobId) {
        let Some(residence) = self.residence_mut(job).filter(|it| it.place == Place::Leaving)
        else {
            return;
        };
        residence.place = Place::Aside;
        self.matrix.remove(job);
        self.ledger.leave(job);
        self.aside.insert(job);
        self.go_on_elsewhere(job);
        if self.aside.contains(&job) {
            self.give_back_lent(job);
            self.swap_out(job);
        }
        self.disturb();
    }

    /// A job is back and can run.
    pub(crate) fn on_moved_in(&mut self, job: JobId) {
        let now = self.now;
        let Some(residence) = self.residence_mut(job).filter(|it| it.place == Place::Coming) else {
            return;
        };
        residence.place = Place::Home;
        residence.moved = now;
        self.migration.rows = true;
        self.give_turns(job);
        self.disturb();
    }

    /// Gives a job its turns, if nothing speaks against it.
    pub(crate) fn give_turns(&mut self, job: JobId) {
        if self.activate(job) {
            self.swaps.turns.is_back(job, self.now);
            let begins = self.activation(self.now);
            self.ledger.resume(job, begins);
        }
    }

    /// Gives all preempted jobs a home again that may have one. Whether any got it.
    pub(crate) fn bring_back(&mut self) -> bool {
        if self.aside.is_empty() {
            return false;
        }
        let before = self.aside.len();
        self.grant_again();
        for job in self.aside.clone() {
            let may_come = |record: &Record| {
                let here = record.residence().is_some_and(Residence::may_come_back);
                here && !self.awaits_resource(record)
            };
            if self.jobs.get(&job).is_some_and(may_come)
                && !self.yields_to_line(job)
                && !self.is_kept_preempted(job)
                && self.may_swap_in(job)
                && self.kept_out_until(job) <= self.now
                && !self.awaits_turn_of_another(job)
            {
                self.move_in(job, self.row_with_its_processors(job));
            }
        }
        self.aside.len() < before
    }

    /// The first row where the processors that a job's tasks are bound to are free.
    pub(crate) fn row_with_its_processors(&self, job: JobId) -> Option<RowId> {
        let parts = &self.residence(job)?.parts;
        let free = |row| {
            if self.matrix.is_barred(job, row) {
                return false;
            }
            let mut parts = parts.iter().filter(|part| !part.lost);
            parts.all(|part| part.processors.is_subset(&self.matrix.free_on(Some(row), part.node)))
        };
        self.matrix.ordinary().map(|(row, _)| row).find(|&row| free(row))
    }

    /// Preempted jobs with tasks on a node.
    pub(crate) fn aside_on(&self, node: NodeId) -> impl Iterator<Item = JobId> + '_ {
        let here = move |job: &JobId| {
            let part = self.residence(*job).and_then(|residence| residence.part(node));
            part.is_some_and(|part| !part.lost)
        };
        self.aside.iter().copied().filter(here)
    }

    /// Processors came free or went otherwise than by limits: what was promised may not hold.
    fn disturb(&mut self) {
        self.queue.reconsider();
        self.queue.disturbed = true;
    }
}
