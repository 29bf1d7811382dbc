//! Jobs of one task move to other processors of their node where they get more turns.
//!
//! Such a job can go anywhere on its node: no other task waits for it, and its memory stays where
//! it is. It moves within its row, to processors that are free there, if it could run in all slots
//! in which it runs now, and in those of another row besides. No job loses anything by it: the
//! processors were idle in all these slots, and the row has as many free as before. Where the job
//! now fits the processors of another row, unification may move its home there
//! ([`crate::matrix`]).
//!
//! It need not be movable ([`JobSpec::movable`](tutti_types::JobSpec)), and is not suspended for
//! it: the agent takes its processes along when the timetable comes, and in every slot until then
//! the new processors are idle. Jobs that want nodes to themselves stay, and so do all where
//! processors are given by blocks (`packing=buddy`), one node each (`placement=low-load`), or by a
//! policy that preempts. No job moves to a processor with external load.
//!
//! *Cost.* Only nodes are looked at on which jobs run in other slots than before the event, and
//! there only jobs of one node that do not run in every slot: a few set operations for each row.

use crate::controller::Core;
use crate::matrix::{Column, Seat};
use crate::policy::Preemption;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::placing::{Packing, Placement};

impl Core {
    /// Moves jobs of one task to where they get more turns, on all nodes or on those that have
    /// changed. Whether any moved.
    pub(crate) fn spread(&mut self, all: bool) -> bool {
        if !self.may_spread() {
            return false;
        }
        // What jobs get where they are comes first.
        self.matrix.seat_guests();
        let nodes: Vec<NodeId> = match all {
            true => self.matrix.columns().map(|(node, _)| node).collect(),
            false => self.matrix.changed_nodes(),
        };
        let mut any = false;
        for node in nodes {
            let here = self.matrix.column(node).map(|column| column.residents.clone());
            for (_, job) in here.into_iter().flatten() {
                if let Some(set) = self.better_place(job, node) {
                    self.shift(job, node, set);
                    any = true;
                }
            }
        }
        any
    }

    fn may_spread(&self) -> bool {
        let shares_nodes = self.params.placement() != Placement::LowLoad;
        self.matrix.row_count() > 1
            && shares_nodes
            && self.params.packing() != Packing::Buddy
            && matches!(self.policy().preemption, Preemption::Nobodys(_))
    }

    /// The processors of its node on which a job of one task would get more turns.
    pub(crate) fn better_place(&self, job: JobId, node: NodeId) -> Option<ProcessorSet> {
        let seat = self.matrix.seat(job).filter(|seat| seat.active && seat.parts.len() == 1)?;
        let live = || self.matrix.rows().filter(|(_, row)| !row.classes.is_empty());
        if !self.may_spread() || seat.guest_in.len() + 1 >= live().count() {
            return None;
        }
        let spec = &self.jobs.get(&job)?.spec;
        if spec.tasks != 1 || spec.nodes.exclusive || !seat.lent.is_empty() {
            return None;
        }
        let (column, own) = (self.matrix.column(node)?, seat.on(node)?);
        let runs = |row: &RowId| *row == seat.row || seat.guest_in.contains(row);
        let mut place = free_at_home(column, seat, own);
        if let Some(external) = self.foreign.get(&node) {
            place.subtract(external);
        }
        for row in seat.guest_in.iter().chain([&seat.row]) {
            place = common(&place, &idle_in(column, *row, Some(own)));
        }
        let count = own.count();
        let mut gains = false;
        for (row, _) in live().filter(|(row, _)| !runs(row)) {
            let more = common(&place, &idle_in(column, row, None));
            if more.count() >= count {
                place = more;
                gains = true;
            }
        }
        gains.then(|| place.lowest(count))
    }

    fn shift(&mut self, job: JobId, node: NodeId, set: ProcessorSet) {
        let Some(residence) = self.residence_mut(job) else { return };
        let Some(part) = residence.part_mut(node) else { return };
        part.processors.clone_from(&set);
        self.matrix.shift(job, node, set);
    }
}

/// The processors of a node that a job could have in its row.
fn free_at_home(column: &Column, seat: &Seat, own: &ProcessorSet) -> ProcessorSet {
    let mut free = column.processors.clone();
    if let Some(cells) = column.cells(seat.row) {
        free.subtract(&cells.taken);
    }
    free.union_with(own);
    free
}

/// The processors of a node on which no job runs in the slots of a row, but one with its own.
fn idle_in(column: &Column, row: RowId, own: Option<&ProcessorSet>) -> ProcessorSet {
    let mut idle = column.processors.clone();
    if let Some(cells) = column.cells(row) {
        idle.subtract(&cells.active());
        idle.subtract(&cells.guest);
    }
    if let Some(own) = own {
        idle.union_with(own);
    }
    idle
}

fn common(one: &ProcessorSet, other: &ProcessorSet) -> ProcessorSet {
    one.without(&one.without(other))
}
