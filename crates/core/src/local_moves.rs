//! Moves within a node: a job of one task that takes turns with others on its processor goes on on
//! another one of its node that no row uses (parameter `migration`).
//!
//! It gives up turns on a processor that others want, and is a guest on the new one in all other
//! rows, so that it runs all the time. It keeps its row: what rows have and what was promised stays
//! as it was.
//!
//! - *When.* Where processors came free, or a node takes jobs again, the node is looked at
//!   [`LOOK_AFTER`] later: others may end, or start there, by then. A job moves once it has had its
//!   processor for [`SETTLED_AFTER`].
//! - *Which.* Of the processor with the most jobs, the one that came last; one at least stays.
//! - *Idle* is a processor that no row uses by the timetable in effect, and that has no external
//!   load. So no other job runs there while the task is bound to it, before or after that timetable
//!   ends.
//! - *Never* what could not go on as before: a job with devices, steps, a deadline, a node for
//!   itself, or more than one processor, since its threads may be bound to one of them each.
//!
//! The way is that of all jobs that go on elsewhere ([`crate::migrate`]).

use crate::apply::Core;
use crate::due::Dues;
use crate::migrate::Move;
use crate::state::record::{Binding, Part, Residence};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use tutti_types::constraints::OnNodeLoss;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::FirstStep;
use tutti_types::limits::JOB_NUMBER_MAX;
use tutti_types::params::Migration;
use tutti_types::placing::{Packing, Placement};
use tutti_types::time::{ClusterTime, Nanos};

/// How long after processors of a node came free it is looked at.
const LOOK_AFTER: Nanos = Nanos::from_millis(100);

/// How long a job has its processor before it moves: its tasks have begun by then.
const SETTLED_AFTER: Nanos = Nanos::from_secs(1);

/// The nodes that are to be looked at.
pub(crate) type NodesToLookAt = Dues<NodeId>;

/// A job that shares its processor with others in time.
struct Sharer {
    job: JobId,
    row: RowId,
    processor: u32,
    /// How many jobs have the processor.
    load: usize,
}

impl Core {
    /// Processors of nodes came free: another job may go there.
    pub(crate) fn note_came_free(&mut self, nodes: impl Iterator<Item = NodeId>) {
        if self.matrix.row_count() > 1 && self.moves_within_nodes() {
            let at = self.now + LOOK_AFTER;
            nodes.for_each(|node| self.to_look_at.note(node, at));
        }
    }

    /// When a node is to be looked at.
    pub(crate) fn next_move_within_node(&self) -> ClusterTime {
        let at = self.to_look_at.next();
        let are_looked_at =
            self.matrix.row_count() > 1 && !self.queue.promised() && self.moves_within_nodes();
        if at == ClusterTime::NEVER || !are_looked_at {
            return ClusterTime::NEVER;
        }
        at.max(self.activated)
    }

    /// Lets jobs set out on nodes that are to be looked at. Whether any did.
    pub(crate) fn move_within_nodes(&mut self) -> bool {
        if self.to_look_at.next() == ClusterTime::NEVER {
            return false;
        }
        if !self.moves_within_nodes() || self.matrix.row_count() < 2 {
            self.to_look_at = NodesToLookAt::default();
            return false;
        }
        if self.to_look_at.next() > self.now || self.activated > self.now {
            return false;
        }
        let mut any = false;
        while let Some(node) = self.to_look_at.pop(self.now) {
            let (moves, again) = self.moves_within(node);
            any |= !moves.is_empty();
            for Move { job, row, parts } in moves {
                self.set_out(job, row, parts);
            }
            if let Some(at) = again {
                self.to_look_at.note(node, at);
            }
        }
        any
    }

    fn moves_within_nodes(&self) -> bool {
        let any_will_do = match self.params.placement() {
            Placement::Packed | Placement::RoundRobin | Placement::SpareCycles => true,
            Placement::LowLoad | Placement::HighLoad => false,
        };
        self.params.migration() != Migration::Off
            && any_will_do
            && self.params.packing() != Packing::Buddy
            && !self.policy().sets_aside()
            && !self.policy().has_levels
            && !self.outside_decides()
            // Numbers of holds must not be those of jobs.
            && self.jobs_made <= JOB_NUMBER_MAX
    }

    /// The jobs of a node that go to idle processors there, and when to look again.
    fn moves_within(&self, node: NodeId) -> (Vec<Move>, Option<ClusterTime>) {
        let (mut moves, mut again) = (Vec::new(), None);
        let mut idle = self.idle_in_all_rows(node);
        if idle.is_empty() {
            return (moves, again);
        }
        let mut sharers = self.sharers_on(node);
        sharers.sort_unstable_by_key(|it| (Reverse(it.load), Reverse(it.job)));
        let mut loads: BTreeMap<u32, usize> =
            sharers.iter().map(|it| (it.processor, it.load)).collect();
        for Sharer { job, row, processor, .. } in sharers {
            let Some(load) = loads.get_mut(&processor).filter(|load| **load > 1) else { continue };
            let settled = self.residence(job).map(|it| it.since.max(it.moved) + SETTLED_AFTER);
            if let Some(at) = settled.filter(|&at| at > self.now) {
                again = Some(again.map_or(at, |before: ClusterTime| before.min(at)));
                continue;
            }
            let to = idle.lowest(1);
            if to.is_empty() {
                break;
            }
            idle.subtract(&to);
            *load -= 1;
            let parts = self.parts(job).iter();
            let parts = parts.map(|part| Part { processors: to.clone(), ..part.clone() }).collect();
            moves.push(Move { job, row, parts });
        }
        (moves, again)
    }

    /// The processors of a node that no row uses, and no external load.
    fn idle_in_all_rows(&self, node: NodeId) -> ProcessorSet {
        let column = self.matrix.column(node).filter(|_| !self.matrix.is_closed(node));
        let Some(column) = column else { return ProcessorSet::new() };
        let mut idle = column.processors.clone();
        for (_, cells) in column.all_cells() {
            idle.subtract(&cells.taken);
            idle.subtract(&cells.guest);
        }
        if let Some(external) = self.foreign.get(&node) {
            idle.subtract(external);
        }
        idle
    }

    /// The jobs of a node that could go on on another processor of it, and share theirs.
    fn sharers_on(&self, node: NodeId) -> Vec<Sharer> {
        let Some(column) = self.matrix.column(node) else { return Vec::new() };
        let live = self.matrix.rows().filter(|(_, row)| !row.classes.is_empty()).count();
        let sharer = |&(row, job): &(RowId, JobId)| {
            let seat = self.matrix.seat(job).filter(|seat| seat.active && seat.processors == 1)?;
            let processor = seat.on(node)?.iter().next()?;
            let load = column.load_of(processor);
            let shares = load > 1 && seat.guest_in.len() + 1 < live && seat.lent.is_empty();
            (shares && self.may_move_within(job)).then_some(Sharer { job, row, processor, load })
        };
        column.residents.iter().filter_map(sharer).collect()
    }

    fn may_move_within(&self, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job).filter(|record| record.may_take_turns()) else {
            return false;
        };
        let is_one = |it: &Residence| it.parts.iter().all(|part| part.binding == Binding::Own(1));
        let goes_on = |it: &Residence| !it.ending() && it.is_whole() && is_one(it);
        let has_steps = self.allocations.get(&job).is_some_and(|it| !it.steps.is_empty());
        record.spec.tasks == 1
            && !record.spec.nodes.exclusive
            && record.spec.devices().next().is_none()
            && record.deadline.is_none()
            && !matches!(record.spec.on_node_loss, OnNodeLoss::Respawn { .. })
            && record.residence().is_some_and(goes_on)
            && self.first_step(job) == FirstStep::EachSlot
            && !has_steps
            && !self.is_overrun(job)
            && self.checkpoints.until(job).is_none()
    }
}
