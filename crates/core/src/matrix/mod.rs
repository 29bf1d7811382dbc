//! The Ousterhout matrix: processors x rows, which job runs where and when.
//!
//! Each resident job has one *home*: a row, and in it processors of one or more nodes that no other
//! home of the row has. Where a row leaves processors idle, jobs of other rows run too, as *guests*:
//! a guest has all its processors idle in that row, on all its nodes, and shared with no other
//! guest of the row. That is what makes a gang of several nodes run whole or not at all: homes and
//! guests of a row are all disjoint, so whether one runs depends on nothing but its own presence,
//! and no node needs to ask another.
//!
//! A job that a user suspended keeps its home, so that it can go on, but runs nowhere; its
//! processors count as idle for guests. So do those that a job has lent.
//!
//! Two things are kept true after each change:
//!
//! - No home could move to a row that it should rather be in (unification: same processors, no
//!   migration). So the rows are as few as that allows. By `packing=first-fit` that is an earlier row;
//!   by others one that is fuller, not counting the job: each such move makes rows more unequal, so
//!   there is an end to them.
//! - No job could be a guest anywhere that it isn't. So no processor idles in a slot that some job
//!   could use.
//!
//! Both look only where something was freed, and at jobs that are new somewhere; what was not freed
//! was tried before. Work per change grows with the jobs on the nodes that it touches, not with the
//! machine, except for a new row (every node gets a new slot then anyhow).

use serde::{Deserialize, Serialize};

mod apart;
mod closed;
mod column;
mod former;
mod guests;
mod homes;
mod index;
mod kept;
mod lend;
mod levels;
mod node_set;
mod row;
#[cfg(test)]
mod tests;
mod unify;

pub(crate) use closed::Widths;
pub use column::Column;
pub(crate) use former::FormerMatrix;
pub use index::{Index, Loads};
pub use node_set::NodeSet;
pub use row::{Cells, Row};

use crate::levels::Levels;
use crate::state::table::Table;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use tutti_types::ids::{ClassName, GroupId, JobId, NodeId, ProcessorSet, RowId, UserId};
use tutti_types::job::JobSpec;
use tutti_types::limits::NODES_MAX;

/// Processors of several nodes, by node.
pub type Parts = Arc<[(NodeId, ProcessorSet)]>;

/// The user and the group that a job belongs to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Owner {
    /// The user.
    pub user: UserId,
    /// The group.
    pub group: GroupId,
}

impl Owner {
    /// The owner of a job.
    #[must_use]
    pub const fn of(spec: &JobSpec) -> Self {
        Self { user: spec.owner, group: spec.group }
    }
}

/// A job's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// Its home row.
    pub row: RowId,
    /// Its class.
    pub class: ClassName,
    /// Its processors, by node.
    pub parts: Parts,
    /// How many they are.
    pub processors: u64,
    /// Whether it takes its turns; not while a user has it suspended.
    pub active: bool,
    /// The rows where it is a guest, oldest first.
    pub guest_in: Vec<RowId>,
    /// Its owner.
    pub owner: Owner,
    /// What it has and guests of its row may use in its turns, by node: none of its tasks runs
    /// there. Nothing unless it is active.
    pub lent: Parts,
}

impl Seat {
    /// Its processors on a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&ProcessorSet> {
        let found = self.parts.binary_search_by_key(&node, |&(node, _)| node);
        found.ok().map(|index| &self.parts[index].1)
    }

    /// What of its processors on a node is lent.
    #[must_use]
    pub fn lent_on(&self, node: NodeId) -> Option<&ProcessorSet> {
        let found = self.lent.binary_search_by_key(&node, |&(node, _)| node);
        found.ok().map(|index| &self.lent[index].1)
    }

    /// The processors of a node that its own tasks run on.
    #[must_use]
    pub fn used_on(&self, node: NodeId) -> Option<ProcessorSet> {
        let own = self.on(node)?;
        Some(self.lent_on(node).map_or_else(|| own.clone(), |lent| own.without(lent)))
    }
}

/// What became different. Nodes may stand in it twice, and in any order, but mostly in long runs
/// by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Changes {
    /// Nodes where a job runs in other slots than before.
    pub nodes: Vec<NodeId>,
    /// The jobs that do, by number.
    pub jobs: Vec<JobId>,
}

impl Changes {
    /// Notes that a job runs in other slots than before.
    fn note(&mut self, job: JobId, parts: &Parts) {
        self.jobs.push(job);
        self.nodes.extend(parts.iter().map(|&(node, _)| node));
    }
}

/// The matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Matrix {
    rows_made: u64,
    rows: BTreeMap<RowId, Row>,
    /// Rows that stay when no job is at home there.
    kept: BTreeSet<RowId>,
    /// By node number; nothing for nodes that are not up.
    columns: Vec<Option<Column>>,
    seats: Table<Seat>,
    /// What a row without homes would have free, but for closed nodes.
    blank: Index,
    /// Nodes that take no new homes from outside, and how many processors they have in all.
    closed: NodeSet,
    closed_width: u64,
    loads: Loads,
    changes: Changes,
    /// Rows came or went, or classes in a row: slots may be others.
    reshaped: bool,
    /// Homes have ended where they may have made room for those of other rows.
    vacated: bool,
    /// Jobs that may fit as homes in any earlier row, wherever anything ended.
    movers: BTreeSet<JobId>,
    /// Jobs that may be able to be guests in any row.
    seekers: BTreeSet<JobId>,
    /// Rows that got their first active home: all jobs may become able to be a guest there.
    woken: BTreeSet<RowId>,
    /// The jobs whose homes are others since [`Matrix::forget_touched`].
    touched: Vec<JobId>,
    /// The jobs with which each is never in one slot, if there are any.
    apart: BTreeMap<JobId, BTreeSet<JobId>>,
    /// The controllers of blocks of processors, under a policy that has them. Made anew from the
    /// rest where it is missing.
    #[serde(skip)]
    levels: Levels,
}

impl Matrix {
    /// The jobs that got a home, lost it, or have it elsewhere since [`Matrix::forget_touched`].
    /// One may stand here twice.
    #[must_use]
    pub fn touched(&self) -> &[JobId] {
        &self.touched
    }

    /// What is touched is noted anew.
    pub fn forget_touched(&mut self) {
        self.touched.clear();
    }

    /// A job's home is another than before.
    fn touch(&mut self, job: JobId) {
        self.touched.push(job);
        self.follow_home(job);
    }

    /// A number for a new row.
    pub fn make_row_id(&mut self) -> RowId {
        self.rows_made += 1;
        RowId(self.rows_made)
    }

    /// The rows, oldest first.
    pub fn rows(&self) -> impl Iterator<Item = (RowId, &Row)> {
        self.rows.iter().map(|(&id, row)| (id, row))
    }

    /// How many rows there are.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// A row.
    #[must_use]
    pub fn row(&self, row: RowId) -> Option<&Row> {
        self.rows.get(&row)
    }

    /// A job's place.
    #[must_use]
    pub fn seat(&self, job: JobId) -> Option<&Seat> {
        self.seats.get(&job)
    }

    /// All jobs that have a place.
    pub fn seats(&self) -> impl Iterator<Item = (JobId, &Seat)> {
        self.seats.iter()
    }

    /// A node that is up.
    #[must_use]
    pub fn column(&self, node: NodeId) -> Option<&Column> {
        self.columns.get(node.0 as usize)?.as_ref()
    }

    /// All nodes that are up, by number.
    pub fn columns(&self) -> impl Iterator<Item = (NodeId, &Column)> {
        let nodes = (0..).map(NodeId).zip(&self.columns);
        nodes.filter_map(|(node, column)| Some((node, column.as_ref()?)))
    }

    /// What a row without homes has free for jobs that come.
    #[must_use]
    pub const fn blank(&self) -> &Index {
        &self.blank
    }

    /// All nodes by load.
    #[must_use]
    pub const fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The processors of a node that are free for a home in a row; `None` stands for a new row.
    #[must_use]
    pub fn free_on(&self, row: Option<RowId>, node: NodeId) -> ProcessorSet {
        let Some(column) = self.column(node) else { return ProcessorSet::new() };
        match row.and_then(|row| column.cells(row)) {
            Some(cells) => column.processors.without(&cells.taken),
            None => column.processors.clone(),
        }
    }

    /// Makes a row that stays, whichever jobs come and go, until it is [let go](Self::let_go).
    pub fn keep_row(&mut self) -> RowId {
        let row = self.make_row();
        self.kept.insert(row);
        row
    }

    /// A row need not stay any more: it goes with its last home.
    pub fn let_go(&mut self, row: RowId) {
        self.kept.remove(&row);
        self.drop_if_empty(row);
    }

    /// Whether a row stays when no job is at home there.
    #[must_use]
    pub fn keeps(&self, row: RowId) -> bool {
        self.kept.contains(&row)
    }

    fn make_row(&mut self) -> RowId {
        let row = self.make_row_id();
        self.rows.insert(row, Row::new(self.blank.clone(), self.closed_width));
        row
    }

    /// Adds a node on which nothing runs. Numbers of [`NODES_MAX`] and more are ignored.
    pub fn add_node(&mut self, node: NodeId, processors: &ProcessorSet) {
        self.remove_node(node);
        if node.0 >= NODES_MAX {
            return;
        }
        let column = Column::new(processors.clone());
        self.blank.insert(column.width, node);
        self.loads.insert(0, node);
        for row in self.rows.values_mut() {
            row.index.insert(column.width, node);
        }
        let index = node.0 as usize;
        if self.columns.len() <= index {
            self.columns.resize(index + 1, None);
        }
        self.columns[index] = Some(column);
        self.nodes_changed();
        self.changes.nodes.push(node);
    }

    /// Removes a node with the parts of jobs on it; the jobs keep their other parts.
    pub fn remove_node(&mut self, node: NodeId) {
        if self.column(node).is_none() {
            return;
        }
        self.open(node);
        self.nodes_changed();
        let Some(column) = self.column(node) else { return };
        for (row, job) in column.residents.clone() {
            self.take_back(job);
            self.evict_everywhere(job);
            let seat = &self.seats[&job];
            let active = seat.active;
            let set = seat.on(node).cloned().unwrap_or_default();
            self.release((row, job), &[(node, set.clone())]);
            if active {
                self.row_mut(row).busy -= u64::from(set.count());
            }
            self.touch(job);
            if let Some(seat) = self.seats.get_mut(&job) {
                seat.parts = seat.parts.iter().filter(|(on, _)| *on != node).cloned().collect();
                seat.processors -= u64::from(set.count());
                // What is left of it fits more easily than the whole did.
                let parts = seat.parts.clone();
                self.movers.insert(job);
                self.seekers.insert(job);
                self.changes.note(job, &parts);
            }
        }
        let Some(column) = self.columns.get_mut(node.0 as usize).and_then(Option::take) else {
            return;
        };
        self.blank.remove(column.width, node);
        self.loads.remove(column.load, node);
        for row in self.rows.values_mut() {
            row.index.remove(column.width, node);
        }
        self.changes.nodes.retain(|&other| other != node);
    }

    /// Whether slots may be others since this was last asked.
    pub fn take_reshaped(&mut self) -> bool {
        core::mem::take(&mut self.reshaped)
    }

    /// The jobs with homes on these nodes, and those that may fit anywhere, by home row, then by
    /// number; only those whose home row is `wanted`.
    fn candidates(
        &self,
        nodes: &NodeSet,
        anywhere: &BTreeSet<JobId>,
        wanted: impl Fn(RowId) -> bool,
    ) -> Vec<(RowId, JobId)> {
        let mut jobs: Vec<(RowId, JobId)> = Vec::new();
        let mut before: &[(RowId, JobId)] = &[];
        for column in nodes.iter().filter_map(|node| self.column(node)) {
            // Where wide jobs are, many nodes in a row have the same ones.
            if column.residents != before {
                jobs.extend(column.residents.iter().filter(|&&(home, _)| wanted(home)));
                before = &column.residents;
            }
        }
        let home = |&job: &JobId| self.seats.get(&job).map(|seat| (seat.row, job));
        jobs.extend(anywhere.iter().filter_map(home).filter(|&(home, _)| wanted(home)));
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    fn column_mut(&mut self, node: NodeId) -> Option<&mut Column> {
        self.columns.get_mut(node.0 as usize)?.as_mut()
    }

    fn row_mut(&mut self, row: RowId) -> &mut Row {
        self.rows.get_mut(&row).expect("a row lives as long as its homes")
    }
}
