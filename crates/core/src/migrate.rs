//! Migration: jobs that permit it ([`JobSpec::movable`](tutti_types::JobSpec)) go on on other
//! processors, so that others get more turns (parameter `migration`). Moves of other jobs within
//! their nodes ([`crate::local_moves`]) go the same way.
//!
//! When a job has ended, and none is on its way any more:
//!
//! - *Fewer rows.* If all homes of a row can move and find processors in other rows, they do, and
//!   the row goes. Rows are tried from the one that unification would empty first, and homes go
//!   only to rows where unification would leave them ([`crate::matrix`]).
//! - *Turns as a guest.* Otherwise the first job that is nowhere a guest, and for which other
//!   processors of its own row are idle in another row too, moves there, within its row; only
//!   processors that no job runs on in either row.
//!
//! No promise gets worse: nothing moves while a job in line was promised a start, no job loses
//! processors or turns for it, and there are never more rows than before. For that, the place that
//! a job goes to is kept for it from the decision on, as a home without turns (a *hold*) under a
//! number that no job has; it becomes the job's when its old processors are free. If nodes or tasks
//! that it needs are gone by then, it goes back to where it was.
//!
//! Jobs with memory admitted don't migrate: it would have to be admitted twice. Nor do they under a
//! policy that itself sets jobs aside.

use crate::apply::Core;
use crate::matrix::{Owner, Parts};
use crate::policy::{Machine, is_plain};
use crate::state::record::{Binding, Part, Record};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::limits::JOB_NUMBER_MAX;
use tutti_types::params::Migration as MigrationMode;
use tutti_types::placing::{Packing, Placement};

/// The jobs that are on their way, and what there is to try.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Migration {
    /// The jobs that leave, each with where it goes.
    pub(crate) leaving: BTreeMap<JobId, Vec<Part>>,
    /// A row may be empty with fewer moves than before.
    pub(crate) rows: bool,
    /// Processors may have become idle.
    pub(crate) turns: bool,
}

/// Which job goes where.
pub(crate) struct Move {
    pub(crate) job: JobId,
    pub(crate) row: RowId,
    pub(crate) parts: Vec<Part>,
}

impl Migration {
    /// The job whose hold goes by this number.
    pub(crate) fn holder(&self, hold: JobId) -> Option<JobId> {
        let job = JobId(hold.0.checked_sub(JOB_NUMBER_MAX + 1)?);
        self.leaving.contains_key(&job).then_some(job)
    }
}

/// The number of a job's hold.
const fn hold_of(job: JobId) -> JobId {
    JobId(job.0 + JOB_NUMBER_MAX + 1)
}

fn places(parts: &[Part]) -> Parts {
    parts.iter().map(|part| (part.node, part.processors.clone())).collect()
}

impl Record {
    /// Whether it may go on elsewhere now.
    pub(crate) fn may_migrate(&self) -> bool {
        self.spec.movable
            && self.spec.memory_per_task_bytes.unwrap_or(0) == 0
            && self.spec.devices().next().is_none()
            && self.may_take_turns()
            && self.residence().is_some_and(|it| !it.ending() && it.is_whole())
    }
}

impl Core {
    /// Lets jobs set out, if that is of use. Whether any did.
    pub(crate) fn migrate(&mut self) -> bool {
        if !self.migration.rows || !self.migration.leaving.is_empty() {
            return false;
        }
        self.migration.rows = false;
        let turns = core::mem::take(&mut self.migration.turns);
        let is_on =
            self.params.migration() == MigrationMode::Anywhere && !self.policy().sets_aside();
        // Numbers of holds must not be those of jobs.
        if !is_on || self.matrix.row_count() < 2 || self.jobs_made > JOB_NUMBER_MAX {
            return false;
        }
        let gain = || turns.then(|| self.turns_to_gain()).flatten();
        let moves = match self.policy().has_levels {
            true => self.move_to_lighter().map(|it| [it].into()),
            false => self.row_to_empty().or_else(|| Some([gain()?].into())),
        };
        for Move { job, row, parts } in moves.into_iter().flatten() {
            self.set_out(job, row, parts);
        }
        !self.migration.leaving.is_empty()
    }

    pub(crate) fn set_out(&mut self, job: JobId, row: RowId, parts: Vec<Part>) {
        let Some(record) = self.jobs.get(&job) else { return };
        let (class, owner) = (record.spec.class.clone(), Owner::of(&record.spec));
        self.matrix.house(hold_of(job), (&class, owner), Some(row), places(&parts));
        self.migration.leaving.insert(job, parts);
        self.move_out(job);
    }

    /// A job's old processors are free: the new ones are its own.
    pub(crate) fn go_on_elsewhere(&mut self, job: JobId) {
        let Some(parts) = self.migration.leaving.remove(&job) else { return };
        let hold = self.matrix.seat(hold_of(job));
        let hold = hold.map(|seat| (seat.row, seat.parts == places(&parts)));
        self.matrix.remove(hold_of(job));
        if let Some((row, true)) = hold {
            self.go_on_at(job, Some(row), parts);
        }
    }

    /// A job is gone, and needs no place to go to.
    pub(crate) fn drop_hold(&mut self, job: JobId) {
        if self.migration.leaving.remove(&job).is_some() {
            self.matrix.remove(hold_of(job));
        }
    }

    /// How the homes of some row would all move to other rows.
    fn row_to_empty(&self) -> Option<Vec<Move>> {
        let mut rows: Vec<RowId> = self.matrix.rows().map(|(row, _)| row).collect();
        rows.reverse();
        if self.params.packing() != Packing::FirstFit {
            rows.sort_by_key(|&row| self.matrix.used(row));
        }
        rows.into_iter().find_map(|row| self.emptied(row))
    }

    fn emptied(&self, row: RowId) -> Option<Vec<Move>> {
        let homes = self.matrix.seats().filter(|(_, seat)| seat.row == row);
        let may = |job| self.jobs.get(&job).is_some_and(Record::may_migrate);
        let homes = homes.map(|(job, seat)| may(job).then_some((seat.processors, job)));
        let mut homes = homes.collect::<Option<Vec<(u64, JobId)>>>()?;
        homes.sort_unstable_by_key(|&(processors, job)| (u64::MAX - processors, job));
        let mut matrix = self.matrix.clone();
        let mut moves = Vec::new();
        for (_, job) in homes {
            let spec = &self.jobs.get(&job)?.spec;
            let machine = Machine { matrix: &matrix, ..self.machine() };
            let is_better = |other: &RowId| match self.params.packing() {
                Packing::FirstFit => *other < row,
                Packing::BestFit | Packing::Buddy => {
                    *other != row && matrix.used(*other) >= matrix.used(row)
                }
            };
            let lay =
                |other| Some((other, (self.policy().placement)(machine, spec, Some(other)).ok()?));
            let (to, parts) = machine.rows_for(spec).filter(is_better).find_map(lay)?;
            let sharer = (&spec.class, Owner::of(spec));
            matrix.house(hold_of(job), sharer, Some(to), places(&parts));
            moves.push(Move { job, row: to, parts });
        }
        Some(moves)
    }

    /// A job that would be a guest on other processors of its row, and on which.
    fn turns_to_gain(&self) -> Option<Move> {
        let anywhere =
            self.params.placement() == Placement::Packed && self.params.packing() != Packing::Buddy;
        let jobs = self.jobs.iter().filter(|(_, record)| anywhere && record.may_migrate());
        jobs.filter(|(_, record)| is_plain(&record.spec)).find_map(|(job, record)| {
            let seat = self.matrix.seat(job).filter(|seat| seat.guest_in.is_empty())?;
            let others = self.matrix.rows().filter(|(_, other)| !other.classes.is_empty());
            let others = others.map(|(other, _)| other).filter(|&other| other != seat.row);
            let parts = others.map(|other| self.idle_in(seat.row, other, record.spec.tasks));
            Some(Move { job, row: seat.row, parts: parts.flatten().next()? })
        })
    }

    /// So many processors that are free in a row, and idle there and in another row.
    fn idle_in(&self, row: RowId, other: RowId, tasks: u32) -> Option<Vec<Part>> {
        let idle = |node| {
            let column = self.matrix.column(node)?;
            let mut idle = column.processors.clone();
            for cells in [column.cells(row), column.cells(other)].into_iter().flatten() {
                idle.subtract(&cells.active());
                idle.subtract(&cells.guest);
            }
            idle.subtract(&column.cells(row).map_or(ProcessorSet::new(), |it| it.taken.clone()));
            (!idle.is_empty()).then_some((idle.count(), node, idle))
        };
        let mut nodes: Vec<(u32, NodeId, ProcessorSet)> =
            self.matrix.open_columns().filter_map(|(node, _)| idle(node)).collect();
        nodes.sort_unstable_by_key(|&(count, node, _)| (u32::MAX - count, node));
        let mut left = tasks;
        let mut chosen = Vec::new();
        for (count, node, idle) in nodes {
            let taken = count.min(left);
            chosen.push((node, idle.lowest(taken)));
            left -= taken;
            if left == 0 {
                break;
            }
        }
        chosen.sort_unstable();
        let mut first = 0;
        let part = |(node, processors): (NodeId, ProcessorSet)| {
            let tasks = processors.count();
            let part = Part::new(node, processors, first, tasks);
            first += tasks;
            Part { binding: Binding::Own(1), ..part }
        };
        (left == 0).then(|| chosen.into_iter().map(part).collect())
    }
}
