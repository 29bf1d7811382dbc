//! Levels: the controllers of distributed hierarchical control, as one state machine.
//!
//! The processors of all nodes stand in one line. Each node has as many places in it as a power of
//! two that holds the widest node; places without a processor stay empty. A *block* of level `k` is
//! `2^k` places that begin at a multiple of `2^k`. So blocks form a binary tree, and those up to a
//! node's size lie within a node. Each block has a *controller* (Feitelson, Rudolph: "Distributed
//! hierarchical control for parallel processing", 1990). It knows
//!
//! - how many jobs are mapped to it,
//! - how many processors jobs in lower blocks of its tree ask for, added up, and
//! - for each level below, the least load of a block there, as its two children report it.
//!
//! What controllers above add to the load is the same for all that a controller compares, so none
//! needs to know it. A controller and its parent speak by messages, and by nothing else:
//!
//! - *Mapping.* The question where a job goes begins at the root and goes down. Each controller
//!   passes it to the child with the less loaded block of the job's level ([`Levels::map`]).
//! - *Loads.* When a job comes or goes, its controller reports to its parent, which reports to its
//!   own, up to the root.
//!
//! So a decision costs at most two messages for each level above the job's, and an end costs one.
//!
//! The load of a block is first how many jobs take turns there at its own level. Among equals it is
//! how many processors jobs above and below in the tree ask for. Only *whole* blocks count, which
//! have as many processors as any of their level. Where the machine's edge or a drained node cuts a
//! block short, jobs of lower levels run.
//!
//! A processor with external load counts as if one job more asked for it.
//!
//! All of it is *soft state*: a function of the nodes and of which job is where. It is made anew
//! when nodes change, and after a restart. It is no part of the journal, and two cores that differ
//! only in it are equal.

#[cfg(test)]
mod tests;
mod tree;

pub use tree::Block;
use tree::{Controller, Load, Room};

use crate::matrix::{Column, Parts};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};

/// Where a job is mapped to, and what finding it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The block.
    pub block: Block,
    /// How many messages went from controller to controller.
    pub messages: u32,
}

/// How many messages controllers have sent since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// For reports of loads.
    pub reports: u64,
    /// The most for the reports of one change.
    pub most: u32,
}

/// All controllers.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    is_on: bool,
    /// Nodes are others than when this was made.
    is_stale: bool,
    room: Room,
    /// The controllers with jobs in their blocks.
    controllers: BTreeMap<Block, Controller>,
    /// The block and the row of each job.
    jobs: BTreeMap<JobId, (Block, RowId)>,
    /// How many jobs of each level are in a row.
    rows: BTreeMap<RowId, BTreeMap<u32, u32>>,
    /// The places of processors with external load: each counts as one job more there.
    external: BTreeSet<u64>,
    messages: Messages,
}

/// Soft state makes no difference.
impl PartialEq for Levels {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Levels {}

impl Hash for Levels {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Levels {
    /// Controllers of a machine: its nodes by number, each with whether it takes jobs.
    pub fn new<'a>(columns: impl Iterator<Item = (NodeId, &'a Column, bool)>) -> Self {
        Self { is_on: true, room: Room::new(columns), ..Self::default() }
    }

    /// Whether there are controllers, and they know all nodes.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.is_on && !self.is_stale
    }

    /// Notes that nodes are others than before.
    pub(crate) const fn nodes_changed(&mut self) {
        self.is_stale = true;
    }

    /// The level of the root.
    #[must_use]
    pub const fn top(&self) -> u32 {
        self.room.top()
    }

    /// How many messages controllers have sent.
    #[must_use]
    pub const fn messages(&self) -> Messages {
        self.messages
    }

    /// The lowest level with a block of so many processors.
    #[must_use]
    pub fn level_for(&self, processors: u64) -> Option<u32> {
        (0..=self.top()).find(|&level| self.room.most(level) >= processors)
    }

    /// The least loaded block for a job of so many processors; among equals the first. `None`: the
    /// machine has too few.
    #[must_use]
    pub fn map(&self, processors: u64) -> Option<Mapped> {
        let level = self.level_for(processors)?;
        let mut block = self.room.root();
        let mut messages = 0;
        while block.level > level {
            let children = block.children().into_iter();
            let loads = children.filter_map(|child| Some((self.least(child, level)?, child)));
            block = loads.min()?.1;
            messages += 1;
        }
        Some(Mapped { block, messages })
    }

    /// All blocks of a level that have as many processors as any, the least loaded first.
    pub(crate) fn by_load(&self, level: u32) -> Vec<Block> {
        let count = 1 << (self.top() - level.min(self.top()));
        let blocks = (0..count).map(|index| Block { level, index });
        let mut found: Vec<(Load, Block)> =
            blocks.filter_map(|block| Some((self.least(block, level)?, block))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, block)| block).collect()
    }

    /// The nodes with places in a block, by number. With each, how many of its places come before
    /// the block, and how many are in it.
    pub(crate) fn nodes_of(&self, block: Block) -> impl Iterator<Item = (NodeId, u32, u32)> {
        self.room.nodes_of(block)
    }

    /// How many jobs are mapped to a block itself.
    #[must_use]
    pub fn jobs_at(&self, block: Block) -> u32 {
        self.controllers.get(&block).map_or(0, |controller| controller.jobs)
    }

    /// The block of a job.
    #[must_use]
    pub fn block_of(&self, job: JobId) -> Option<Block> {
        self.jobs.get(&job).map(|&(block, _)| block)
    }

    /// The level of a row: the highest of its jobs.
    #[must_use]
    pub fn level_of(&self, row: RowId) -> Option<u32> {
        self.rows.get(&row)?.last_key_value().map(|(&level, _)| level)
    }

    /// Whether homes may go from one of these rows to the other: they are of one level.
    #[must_use]
    pub fn are_alike(&self, row: RowId, other: RowId) -> bool {
        self.level_of(row) == self.level_of(other)
    }

    /// The least block that holds these processors.
    pub(crate) fn around<'a, 'b>(
        &self,
        mut parts: impl Iterator<Item = (NodeId, &'a ProcessorSet)>,
        column: impl Fn(NodeId) -> Option<&'b Column>,
    ) -> Option<Block> {
        let place = |node: NodeId, processor: u32| {
            let known = &column(node)?.processors;
            let rank = known.iter().take_while(|&other| other < processor).count() as u64;
            Some(self.room.first_of(node) + rank)
        };
        let (node, set) = parts.next()?;
        let (last_node, last) = parts.last().unwrap_or((node, set));
        let first = place(node, set.iter().next()?)?;
        Some(Block::around(first, place(last_node, last.iter().last()?)?))
    }

    /// A job has these processors in this row from now on, or (`None`) none any more.
    pub(crate) fn follow<'a>(
        &mut self,
        job: JobId,
        seat: Option<(RowId, &Parts)>,
        column: impl Fn(NodeId) -> Option<&'a Column>,
    ) {
        if !self.is_current() {
            return;
        }
        let block = seat.and_then(|(row, parts)| {
            let parts = parts.iter().map(|(node, set)| (*node, set));
            let block = self.around(parts, &column)?;
            Some((block, row))
        });
        let before = match block {
            Some(place) => self.jobs.insert(job, place),
            None => self.jobs.remove(&job),
        };
        if before == block {
            return;
        }
        if let Some((block, row)) = before {
            self.count(block, row, -1);
        }
        if let Some((block, row)) = block {
            self.count(block, row, 1);
        }
        let changed = [before, block].into_iter().flatten().map(|(block, _)| block);
        if before.map(|(block, _)| block) != block.map(|(block, _)| block) {
            changed.for_each(|block| self.report(block));
        }
    }

    /// These processors of a node have external load, and no others of it.
    pub(crate) fn set_external(&mut self, node: NodeId, column: &Column, external: &ProcessorSet) {
        if !self.is_current() {
            return;
        }
        let first = self.room.first_of(node);
        let end = first + self.room.places_of_a_node();
        let loaded = (first..).zip(column.processors.iter());
        let loaded = loaded.filter(|&(_, processor)| external.contains(processor));
        let now: BTreeSet<u64> = loaded.map(|(place, _)| place).collect();
        let before: BTreeSet<u64> = self.external.range(first..end).copied().collect();
        for &index in now.symmetric_difference(&before) {
            if !self.external.remove(&index) {
                self.external.insert(index);
            }
            self.report(Block { level: 0, index });
        }
    }

    fn count(&mut self, block: Block, row: RowId, by: i32) {
        let controller = self.controllers.entry(block).or_default();
        controller.jobs = controller.jobs.saturating_add_signed(by);
        let levels = self.rows.entry(row).or_default();
        let count = levels.entry(block.level).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            levels.remove(&block.level);
        }
        if levels.is_empty() {
            self.rows.remove(&row);
        }
    }

    /// The least load of a block of a level in this one, as far as its own tree knows.
    fn least(&self, block: Block, level: u32) -> Option<Load> {
        match self.controllers.get(&block) {
            Some(controller) => controller.least.get(level as usize).copied().flatten(),
            None => self.room.has_whole(block, level).then(Load::default),
        }
    }

    /// A controller has other jobs than before: it and those above make their reports anew.
    fn report(&mut self, block: Block) {
        let mut at = block;
        self.make_report(at);
        let mut messages = 0;
        while at.level < self.top() {
            at = at.parent();
            messages += 1;
            self.make_report(at);
        }
        self.messages.reports += u64::from(messages);
        self.messages.most = self.messages.most.max(messages);
    }

    fn make_report(&mut self, block: Block) {
        let jobs = self.jobs_at(block);
        let children = if block.level > 0 { block.children().to_vec() } else { Vec::new() };
        let demand = |child: &Block| {
            let controller = self.controllers.get(child);
            controller.map_or(0, |it| it.below + u64::from(it.jobs) * child.size())
        };
        let external = block.level == 0 && self.external.contains(&block.index);
        let below = children.iter().map(demand).sum::<u64>() + u64::from(external);
        if jobs == 0 && below == 0 {
            self.controllers.remove(&block);
            return;
        }
        let own = u64::from(jobs);
        let mut least: Vec<Option<Load>> = (0..block.level)
            .map(|level| {
                let loads = children.iter().filter_map(|&child| self.least(child, level)).min()?;
                Some(Load { demand: loads.demand + (own << level), ..loads })
            })
            .collect();
        let whole = self.room.has_whole(block, block.level);
        least.push(whole.then_some(Load { jobs, demand: below + own * block.size() }));
        self.controllers.insert(block, Controller { jobs, below, least });
    }

    /// Whether these are the same controllers with the same loads.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.is_current() == other.is_current()
            && self.room == other.room
            && self.jobs == other.jobs
            && self.rows == other.rows
            && self.controllers == other.controllers
    }
}
