//! The Ousterhout matrix: processors x rows, who runs where and when.
//!
//! Each resident job has one *home*: a row, and in it processors of one or more nodes that no other
//! home of the row has. Where a row leaves processors idle, jobs of other rows run too, as *guests*:
//! a guest has all its processors idle in that row, on all its nodes, and shared with no other
//! guest of the row. That is what makes a gang of several nodes run whole or not at all: homes and
//! guests of a row are all disjoint, so whether one runs depends on nothing but its own presence,
//! and no node needs to ask another.
//!
//! A job that a user suspended keeps its home, so that it can go on, but runs nowhere; its
//! processors count as idle for guests.
//!
//! Two things are kept true after each change:
//!
//! - No home could move to an earlier row (unification: same processors, no migration). So the
//!   rows are as few as that allows.
//! - No job could be a guest anywhere that it isn't. So no processor idles in a slot that some job
//!   could use.
//!
//! Both look only at nodes where something was freed; what was not freed was tried before. Work
//! per change grows with the jobs on the nodes that it touches, not with the machine, except for a
//! new row (every node gets a new slot then anyhow).

mod index;
mod row;
#[cfg(test)]
mod tests;

pub use index::Index;
pub use row::{Cells, Row};

use crate::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A job's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// Its home row.
    pub row: RowId,
    /// Its class.
    pub class: ClassName,
    /// Its processors, by node.
    pub parts: Vec<(NodeId, ProcessorSet)>,
    /// Whether it takes its turns; not while a user has it suspended.
    pub active: bool,
    /// The rows where it is a guest.
    pub guest_in: BTreeSet<RowId>,
}

impl Seat {
    /// Its processors on a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&ProcessorSet> {
        let found = self.parts.binary_search_by_key(&node, |&(node, _)| node);
        found.ok().map(|index| &self.parts[index].1)
    }
}

/// A node over all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its processors.
    pub processors: ProcessorSet,
    /// Their number.
    pub width: u32,
    /// In how many rows each processor is taken, by its number.
    loads: Vec<u32>,
    /// The sum of them.
    pub load: u32,
    /// The jobs with a home here.
    pub residents: BTreeSet<JobId>,
}

impl Column {
    fn new(processors: ProcessorSet) -> Self {
        let width = processors.count();
        let length = processors.iter().last().map_or(0, |last| last as usize + 1);
        Self {
            processors,
            width,
            loads: alloc::vec![0; length],
            load: 0,
            residents: BTreeSet::new(),
        }
    }

    /// In how many rows the processor is taken.
    #[must_use]
    pub fn load_of(&self, processor: u32) -> u32 {
        self.loads.get(processor as usize).copied().unwrap_or(0)
    }
}

/// What became different.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Nodes where somebody runs in other slots than before.
    pub nodes: BTreeSet<NodeId>,
    /// Who does.
    pub jobs: BTreeSet<JobId>,
}

/// The matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Matrix {
    rows_made: u64,
    rows: BTreeMap<RowId, Row>,
    columns: BTreeMap<NodeId, Column>,
    seats: BTreeMap<JobId, Seat>,
    /// What a row would have free in which nobody is at home.
    blank: Index,
    changes: Changes,
    /// Nodes where homes ended since unification was last tried.
    vacated: BTreeSet<NodeId>,
    /// Nodes where a job may have become able to be a guest.
    loosened: BTreeSet<NodeId>,
    /// Rows that got their first active home: everybody may become able to be a guest there.
    woken: BTreeSet<RowId>,
}

impl Matrix {
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
        self.seats.iter().map(|(&id, seat)| (id, seat))
    }

    /// A node that is up.
    #[must_use]
    pub fn column(&self, node: NodeId) -> Option<&Column> {
        self.columns.get(&node)
    }

    /// All nodes that are up.
    pub fn columns(&self) -> impl Iterator<Item = (NodeId, &Column)> {
        self.columns.iter().map(|(&id, column)| (id, column))
    }

    /// What a row in which nobody is at home has free.
    #[must_use]
    pub const fn blank(&self) -> &Index {
        &self.blank
    }

    /// The processors of a node that are free for a home in a row; `None` stands for a new row.
    #[must_use]
    pub fn free_on(&self, row: Option<RowId>, node: NodeId) -> ProcessorSet {
        let Some(column) = self.columns.get(&node) else { return ProcessorSet::new() };
        match row.and_then(|row| self.rows.get(&row)).and_then(|row| row.cells(node)) {
            Some(cells) => column.processors.without(&cells.taken),
            None => column.processors.clone(),
        }
    }

    /// Adds a node on which nothing runs.
    pub fn add_node(&mut self, node: NodeId, processors: &ProcessorSet) {
        self.remove_node(node);
        let column = Column::new(processors.clone());
        self.blank.insert(column.width, 0, node);
        for row in self.rows.values_mut() {
            row.index.insert(column.width, 0, node);
        }
        self.columns.insert(node, column);
        self.changes.nodes.insert(node);
    }

    /// Removes a node with the parts of jobs on it; the jobs keep their other parts.
    pub fn remove_node(&mut self, node: NodeId) {
        let Some(column) = self.columns.get(&node) else { return };
        for job in column.residents.clone() {
            self.evict_everywhere(job);
            let row = self.seats[&job].row;
            let set = self.seats[&job].on(node).cloned().unwrap_or_default();
            self.release(row, node, &set);
            self.load(node, &set, Change::Less);
            if let Some(seat) = self.seats.get_mut(&job) {
                seat.parts.retain(|&(other, _)| other != node);
                // What is left of it fits more easily than the whole did.
                let seat = seat.clone();
                self.vacated.extend(seat.parts.iter().map(|&(node, _)| node));
                self.note(job, &seat);
            }
        }
        if let Some(column) = self.columns.remove(&node) {
            self.blank.remove(column.width, 0, node);
            for row in self.rows.values_mut() {
                row.index.remove(column.width, 0, node);
            }
        }
        self.changes.nodes.remove(&node);
    }

    /// Gives a job a home; with no row named, a new row. The processors must be free there.
    pub fn place(
        &mut self,
        job: JobId,
        class: &ClassName,
        row: Option<RowId>,
        mut parts: Vec<(NodeId, ProcessorSet)>,
    ) -> RowId {
        let row = row.filter(|row| self.rows.contains_key(row)).unwrap_or_else(|| {
            let row = self.make_row_id();
            self.rows.insert(row, Row::new(self.blank.clone()));
            row
        });
        parts.sort();
        for (node, set) in &parts {
            self.load(*node, set, Change::More);
            self.occupy(row, *node, set);
            if let Some(column) = self.columns.get_mut(node) {
                column.residents.insert(job);
            }
        }
        let class = class.clone();
        let seat = Seat { row, class, parts, active: false, guest_in: BTreeSet::new() };
        self.seats.insert(job, seat);
        self.row_mut(row).homes.insert(job);
        self.activate(job);
        row
    }

    /// Takes a job out.
    pub fn remove(&mut self, job: JobId) {
        if !self.seats.contains_key(&job) {
            return;
        }
        self.deactivate(job);
        let Some(seat) = self.seats.remove(&job) else { return };
        for (node, set) in &seat.parts {
            self.release(seat.row, *node, set);
            self.load(*node, set, Change::Less);
            if let Some(column) = self.columns.get_mut(node) {
                column.residents.remove(&job);
            }
        }
        self.leave(job, seat.row);
    }

    /// Gives a job its turns.
    pub fn activate(&mut self, job: JobId) {
        let Some(seat) = self.seats.get_mut(&job).filter(|seat| !seat.active) else { return };
        seat.active = true;
        let seat = seat.clone();
        for (node, set) in &seat.parts {
            self.evict_overlapping(seat.row, *node, set);
            let row = self.row_mut(seat.row);
            row.cells_mut(*node).active.union_with(set);
        }
        let row = self.row_mut(seat.row);
        if row.classes.is_empty() {
            self.woken.insert(seat.row);
        }
        *self.row_mut(seat.row).classes.entry(seat.class.clone()).or_default() += 1;
        self.note(job, &seat);
    }

    /// Takes its turns from a job; it keeps its home.
    pub fn deactivate(&mut self, job: JobId) {
        self.evict_everywhere(job);
        let Some(seat) = self.seats.get_mut(&job).filter(|seat| seat.active) else { return };
        seat.active = false;
        let seat = seat.clone();
        let row = self.row_mut(seat.row);
        for (node, set) in &seat.parts {
            row.cells_mut(*node).active.subtract(set);
        }
        if let Some(count) = row.classes.get_mut(&seat.class) {
            *count -= 1;
            if *count == 0 {
                row.classes.remove(&seat.class);
            }
        }
        if row.classes.is_empty() {
            // A row without active homes has no slot, so nobody can be a guest there.
            self.woken.remove(&seat.row);
            for guest in self.row_mut(seat.row).guests.clone() {
                self.evict(guest, seat.row);
            }
        }
        self.note(job, &seat);
    }

    /// Moves homes to earlier rows where their own processors are free, as far as that goes; rows
    /// that lose their last home vanish.
    pub fn unify(&mut self) {
        let mut nodes = core::mem::take(&mut self.vacated);
        let rows: Vec<RowId> = self.rows.keys().copied().collect();
        for row in rows {
            for job in self.residents(&nodes) {
                if self.rows.contains_key(&row) && self.fits_home(job, row) {
                    nodes.extend(self.seats[&job].parts.iter().map(|&(node, _)| node));
                    self.move_home(job, row);
                }
            }
        }
        // What the moves vacated was looked at in the same sweep: only later rows lost anything.
        self.vacated.clear();
    }

    /// Makes guests of all who fit, and says what became different since this was last called.
    pub fn settle(&mut self) -> Changes {
        let nodes = core::mem::take(&mut self.loosened);
        let woken = core::mem::take(&mut self.woken);
        let here = self.residents(&nodes);
        let rows: Vec<RowId> = self.rows.keys().copied().collect();
        for row in rows {
            let mut jobs = match woken.contains(&row) {
                true => self.seats.keys().copied().collect(),
                false => here.clone(),
            };
            // The rows after this one come first, in cyclic order.
            jobs.sort_by_key(|job| (self.seats[job].row < row, self.seats[job].row, *job));
            for job in jobs {
                if self.fits_guest(job, row) {
                    self.invite(job, row);
                }
            }
        }
        core::mem::take(&mut self.changes)
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
            && !seat.guest_in.contains(&row)
            && !seat.parts.is_empty()
            && seat.parts.iter().all(|(node, set)| {
                target
                    .cells(*node)
                    .is_none_or(|cells| !cells.active.overlaps(set) && !cells.guest.overlaps(set))
            })
    }

    /// Whether a job's home could be in this row, which must be earlier than its own.
    #[must_use]
    pub fn fits_home(&self, job: JobId, row: RowId) -> bool {
        let (Some(seat), Some(target)) = (self.seats.get(&job), self.rows.get(&row)) else {
            return false;
        };
        seat.row > row
            && !seat.parts.is_empty()
            && seat.parts.iter().all(|(node, set)| {
                target.cells(*node).is_none_or(|cells| !cells.taken.overlaps(set))
            })
    }

    /// The jobs with a home on any of these nodes, by home row, then by number.
    fn residents(&self, nodes: &BTreeSet<NodeId>) -> Vec<JobId> {
        let columns = nodes.iter().filter_map(|node| self.columns.get(node));
        let jobs: BTreeSet<JobId> = columns.flat_map(|column| &column.residents).copied().collect();
        let mut jobs: Vec<JobId> = jobs.into_iter().collect();
        jobs.sort_by_key(|job| (self.seats[job].row, *job));
        jobs
    }

    fn move_home(&mut self, job: JobId, to: RowId) {
        let active = self.seats[&job].active;
        self.deactivate(job);
        let (from, parts) = (self.seats[&job].row, self.seats[&job].parts.clone());
        for (node, set) in &parts {
            self.release(from, *node, set);
            self.occupy(to, *node, set);
        }
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.row = to;
        }
        self.leave(job, from);
        self.row_mut(to).homes.insert(job);
        if active {
            self.activate(job);
        }
    }

    /// Takes a job off the list of a row's homes; the row goes with its last one.
    fn leave(&mut self, job: JobId, row: RowId) {
        self.row_mut(row).homes.remove(&job);
        if self.row_mut(row).homes.is_empty() {
            self.rows.remove(&row);
            self.woken.remove(&row);
        }
    }

    fn invite(&mut self, job: JobId, row: RowId) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        seat.guest_in.insert(row);
        let seat = seat.clone();
        let target = self.row_mut(row);
        target.guests.insert(job);
        for (node, set) in &seat.parts {
            target.cells_mut(*node).guest.union_with(set);
        }
        self.changes.nodes.extend(seat.parts.iter().map(|&(node, _)| node));
        self.changes.jobs.insert(job);
    }

    fn evict(&mut self, job: JobId, row: RowId) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        seat.guest_in.remove(&row);
        let seat = seat.clone();
        let target = self.row_mut(row);
        target.guests.remove(&job);
        for (node, set) in &seat.parts {
            target.cells_mut(*node).guest.subtract(set);
            target.prune(*node);
        }
        self.note(job, &seat);
    }

    fn evict_everywhere(&mut self, job: JobId) {
        let guest_in = self.seats.get(&job).map(|seat| seat.guest_in.clone()).unwrap_or_default();
        for row in guest_in {
            self.evict(job, row);
        }
    }

    fn evict_overlapping(&mut self, row: RowId, node: NodeId, set: &ProcessorSet) {
        if self.row_mut(row).cells(node).is_none_or(|cells| !cells.guest.overlaps(set)) {
            return;
        }
        let residents = self.columns.get(&node).map(|column| column.residents.clone());
        for guest in residents.unwrap_or_default() {
            let seat = &self.seats[&guest];
            if seat.guest_in.contains(&row) && seat.on(node).is_some_and(|own| own.overlaps(set)) {
                self.evict(guest, row);
            }
        }
    }

    /// Notes that a job runs in other slots than before, and that room may have come free.
    fn note(&mut self, job: JobId, seat: &Seat) {
        self.changes.jobs.insert(job);
        for &(node, _) in &seat.parts {
            self.changes.nodes.insert(node);
            self.loosened.insert(node);
        }
    }

    fn occupy(&mut self, row: RowId, node: NodeId, set: &ProcessorSet) {
        let Some(column) = self.columns.get(&node) else { return };
        let (width, load) = (column.width, column.load);
        let row = self.rows.get_mut(&row).expect("homes are only placed in rows that exist");
        row.index.remove(row.free_on(node, width), load, node);
        row.cells_mut(node).taken.union_with(set);
        row.index.insert(row.free_on(node, width), load, node);
    }

    fn release(&mut self, row: RowId, node: NodeId, set: &ProcessorSet) {
        let Some(column) = self.columns.get(&node) else { return };
        let (width, load) = (column.width, column.load);
        let row = self.rows.get_mut(&row).expect("a row lives as long as its homes");
        row.index.remove(row.free_on(node, width), load, node);
        row.cells_mut(node).taken.subtract(set);
        row.cells_mut(node).active.subtract(set);
        row.index.insert(row.free_on(node, width), load, node);
        row.prune(node);
        self.vacated.insert(node);
    }

    /// Counts processors as taken once more or once less, in the order of every row's nodes too.
    fn load(&mut self, node: NodeId, set: &ProcessorSet, change: Change) {
        let Some(column) = self.columns.get_mut(&node) else { return };
        let before = column.load;
        for processor in set.iter() {
            if let Some(load) = column.loads.get_mut(processor as usize) {
                *load = change.apply(*load, 1);
                column.load = change.apply(column.load, 1);
            }
        }
        let (width, after) = (column.width, column.load);
        self.blank.remove(width, before, node);
        self.blank.insert(width, after, node);
        for row in self.rows.values_mut() {
            let free = row.free_on(node, width);
            row.index.remove(free, before, node);
            row.index.insert(free, after, node);
        }
    }

    fn row_mut(&mut self, row: RowId) -> &mut Row {
        self.rows.get_mut(&row).expect("a row lives as long as its homes")
    }
}

/// Which way a count goes.
#[derive(Clone, Copy)]
enum Change {
    More,
    Less,
}

impl Change {
    const fn apply(self, count: u32, by: u32) -> u32 {
        match self {
            Self::More => count.saturating_add(by),
            Self::Less => count.saturating_sub(by),
        }
    }
}
