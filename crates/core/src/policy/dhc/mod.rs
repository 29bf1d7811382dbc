//! The policy `dhc`: distributed hierarchical control (Feitelson, Rudolph: "Distributed
//! hierarchical control for parallel processing", 1990), with guaranteed service (SP-2 paper).
//!
//! - *Mapping.* A job belongs to the level of its size: the lowest with blocks that hold it. Of
//!   that level's blocks it goes to the least loaded, as controllers know it ([`crate::levels`]),
//!   and gets the first processors there.
//! - *Rows.* Each row is of one level. In it, each block of the level has one job at most, so a
//!   block's jobs take turns. A level has at most as many rows as the parameter `rows` says: the
//!   jobs of a block that has so many wait.
//! - *Strobes.* A round goes through the levels from the top down, and through the rows of each.
//!   Each row has one slot in it ([`strobe`]). So all controllers of a level have their turn at the
//!   same moment, by the clock, and no message is sent.
//! - *Alternates.* What a job leaves of its block, and blocks without a job in a row, run others:
//!   the guests of the matrix. So a level's time is pushed down where a block has no use for
//!   it. A class that holds its empty time has it held, as under every policy.
//! - *Guarantees.* How long slots are is decided as under `gang` ([`crate::share`]). Each class has
//!   its share of each round, its users divide that, and their rows divide theirs. So each job has
//!   the slot of its row in each round, whatever else comes, and turns as an alternate besides.
//! - *Ends.* When a job ends, jobs of later rows of its level move up, on the same processors. Jobs
//!   that permit it go to a block with fewer jobs (parameter `migration`, [`balance`]).
//!
//! *Other requests.* A job may want certain nodes, memory, or several processors for a task. It is
//! placed as under `gang`, in the first row, from the top level down, whose level has a block
//! around its processors. Otherwise it opens a row of its block's level.
//!
//! The line is by arrival or users; no job passes another, since mostly none waits. No class keeps
//! rows for itself, and each row has one slot in a round, whatever `slots` and `regularity` say.

mod balance;
mod strobe;

use super::gang::GANG;
use super::{Decision, Lack, Lay, Machine, Policy, Preemption, Shares, WaitReason, is_plain};
use crate::frame::Layout;
use crate::levels::{Block, Levels};
use crate::share::{self, Present};
use crate::state::record::{Binding, Part};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use tutti_types::class::Classes;
use tutti_types::ids::{NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::params::Params;
use tutti_types::time::Nanos;

/// The policy `dhc`.
pub const DHC: Policy = Policy {
    name: "dhc",
    shares: Shares { rows: Params::rows, layout: one_slot_each, shortest: share::shortest },
    preemption: Preemption::Nobodys(by_level),
    has_levels: true,
    ..GANG
};

fn one_slot_each(present: &Present, classes: &Classes, quantum: Nanos) -> Layout {
    Layout::once(&share::lengths(present, classes, quantum))
}

impl<'a> Machine<'a> {
    /// The controllers; between a start of the program and its first event there are none yet.
    fn controllers(self) -> Cow<'a, Levels> {
        let made = || Cow::Owned(self.matrix.new_levels(self.external));
        self.matrix.levels().map_or_else(made, Cow::Borrowed)
    }
}

fn by_level(machine: Machine<'_>, spec: &JobSpec, lay: Lay) -> Decision {
    let levels = machine.controllers();
    let tasks = u64::from(spec.tasks);
    // What goes out of service too soon for a job is known where nodes are chosen.
    let is_mapped = is_plain(spec) && tasks > 0 && !machine.leaving.concern(spec);
    match levels.map(tasks).filter(|_| is_mapped) {
        Some(mapped) => in_block(machine, &levels, (spec, mapped.block)),
        None => anywhere(machine, &levels, (spec, lay)),
    }
}

/// A job gets the first processors of its block, in the first row of the level where they are free.
fn in_block(machine: Machine<'_>, levels: &Levels, (spec, block): (&JobSpec, Block)) -> Decision {
    let rows: Vec<RowId> = machine.matrix.rows_of(levels, block.level).collect();
    if let Some((row, parts)) = place(machine, levels, (spec.tasks, block), &rows) {
        return Decision::Start { row: Some(row), parts };
    }
    let limit = machine.rows;
    if rows.len() < limit as usize {
        let parts = first_of(machine, levels, (spec.tasks, block));
        return Decision::Start { row: None, parts };
    }
    if levels.jobs_at(block) < limit {
        // Jobs of other levels have processors of it in rows of this one; not in all blocks.
        for other in levels.by_load(block.level) {
            if let Some((row, parts)) = place(machine, levels, (spec.tasks, other), &rows) {
                return Decision::Start { row: Some(row), parts };
            }
        }
    }
    Decision::Wait(WaitReason::Level { size: block.size(), limit })
}

/// The first of these rows where the first processors of a block are free, and these.
pub(super) fn place(
    machine: Machine<'_>,
    levels: &Levels,
    job: (u32, Block),
    rows: &[RowId],
) -> Option<(RowId, Vec<Part>)> {
    let parts = first_of(machine, levels, job);
    let is_free = |row: &&RowId| {
        let free = |part: &Part| {
            let cells = machine.matrix.column(part.node).and_then(|column| column.cells(**row));
            cells.is_none_or(|cells| !cells.taken.overlaps(&part.processors))
        };
        parts.iter().all(free)
    };
    let row = rows.iter().find(is_free).copied()?;
    Some((row, parts))
}

/// The first processors of a block, for so many tasks.
fn first_of(machine: Machine<'_>, levels: &Levels, (tasks, block): (u32, Block)) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rank = 0;
    for (node, skip, count) in levels.nodes_of(block) {
        let column = machine.matrix.column(node).filter(|_| !machine.matrix.is_closed(node));
        let Some(column) = column.filter(|_| rank < tasks) else { continue };
        let wanted = (tasks - rank).min(count);
        let processors: ProcessorSet = match (skip, column.width <= wanted) {
            (0, true) => column.processors.clone(),
            _ => column.processors.iter().skip(skip as usize).take(wanted as usize).collect(),
        };
        if !processors.is_empty() {
            parts.push(part(node, processors, rank));
            rank += parts.last().map_or(0, |part| part.processors.count());
        }
    }
    parts
}

fn part(node: NodeId, processors: ProcessorSet, first: u32) -> Part {
    let tasks = processors.count();
    Part { binding: Binding::Own(1), ..Part::new(node, processors, first, tasks) }
}

/// A job whose processors are chosen otherwise: in a row whose level they do not exceed.
fn anywhere(machine: Machine<'_>, levels: &Levels, (spec, lay): (&JobSpec, Lay)) -> Decision {
    let level = |parts: &[Part]| {
        let parts = parts.iter().map(|part| (part.node, &part.processors));
        machine.matrix.block_around(levels, parts).map(|block| block.level)
    };
    let rows = machine.matrix.ordinary().map(|(row, _)| (levels.level_of(row), row));
    let mut rows: Vec<(Option<u32>, RowId)> = rows.collect();
    rows.sort_by_key(|&(level, row)| (core::cmp::Reverse(level), row));
    for (highest, row) in rows {
        if let Ok(parts) = lay(machine, spec, Some(row))
            && level(&parts) <= highest
        {
            return Decision::Start { row: Some(row), parts };
        }
    }
    match lay(machine, spec, None) {
        Ok(parts) => {
            let own = level(&parts).unwrap_or_else(|| levels.top());
            if machine.matrix.rows_of(levels, own).count() < machine.rows as usize {
                return Decision::Start { row: None, parts };
            }
            Decision::Wait(machine.lack_of_room(spec))
        }
        Err(Lack::Memory) => Decision::Wait(WaitReason::Memory),
        Err(Lack::Nodes) => Decision::Wait(WaitReason::Nodes),
    }
}
