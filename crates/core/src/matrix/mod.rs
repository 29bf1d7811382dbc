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

mod column;
mod index;
mod node_set;
mod row;
#[cfg(test)]
mod tests;

pub use column::Column;
pub use index::{Index, Loads};
pub use node_set::NodeSet;
pub use row::{Cells, Row};

use crate::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use crate::limits::NODES_MAX;
use crate::policy::Packing;
use crate::table::Table;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Processors of several nodes, by node.
pub type Parts = Arc<[(NodeId, ProcessorSet)]>;

/// A job's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
}

impl Seat {
    /// Its processors on a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&ProcessorSet> {
        let found = self.parts.binary_search_by_key(&node, |&(node, _)| node);
        found.ok().map(|index| &self.parts[index].1)
    }
}

/// What became different.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Nodes where somebody runs in other slots than before, by number.
    pub nodes: Vec<NodeId>,
    /// Who does, by number.
    pub jobs: Vec<JobId>,
}

/// The matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Matrix {
    rows_made: u64,
    rows: BTreeMap<RowId, Row>,
    /// By node number; nothing for nodes that are not up.
    columns: Vec<Option<Column>>,
    seats: Table<Seat>,
    /// What a row would have free in which nobody is at home.
    blank: Index,
    loads: Loads,
    changes: Changes,
    /// Rows came or went, or classes in a row: slots may be others.
    reshaped: bool,
    /// Where homes ended since unification was last tried.
    vacated: BTreeSet<(RowId, NodeId)>,
    /// Jobs that may fit as homes in any earlier row, wherever anything ended.
    movers: BTreeSet<JobId>,
    /// Where a job may have become able to be a guest.
    loosened: Vec<(RowId, NodeId)>,
    /// Jobs that may be able to be guests in any row.
    seekers: BTreeSet<JobId>,
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

    /// What a row in which nobody is at home has free.
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
        self.changes.nodes.push(node);
    }

    /// Removes a node with the parts of jobs on it; the jobs keep their other parts.
    pub fn remove_node(&mut self, node: NodeId) {
        let Some(column) = self.column(node) else { return };
        for (row, job) in column.residents.clone() {
            self.evict_everywhere(job);
            let seat = &self.seats[&job];
            let active = seat.active;
            let set = seat.on(node).cloned().unwrap_or_default();
            self.release((row, job), node, &set);
            if active {
                self.row_mut(row).busy -= u64::from(set.count());
            }
            if let Some(seat) = self.seats.get_mut(&job) {
                seat.parts = seat.parts.iter().filter(|(on, _)| *on != node).cloned().collect();
                seat.processors -= u64::from(set.count());
                // What is left of it fits more easily than the whole did.
                let parts = seat.parts.clone();
                self.movers.insert(job);
                self.seekers.insert(job);
                self.note(job, &parts);
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

    /// Gives a job a home and its turns; with no row named, a new row. The processors must be free
    /// there.
    pub fn place(
        &mut self,
        job: JobId,
        class: &ClassName,
        row: Option<RowId>,
        parts: Parts,
    ) -> RowId {
        let row = self.house(job, class, row, parts);
        self.activate(job);
        row
    }

    /// Gives a job a home, and no turns yet.
    pub fn house(
        &mut self,
        job: JobId,
        class: &ClassName,
        row: Option<RowId>,
        parts: Parts,
    ) -> RowId {
        let row = row.filter(|row| self.rows.contains_key(row)).unwrap_or_else(|| {
            let row = self.make_row_id();
            self.rows.insert(row, Row::new(self.blank.clone()));
            row
        });
        for (node, set) in parts.iter() {
            self.occupy((row, job), *node, set);
        }
        let processors = parts.iter().map(|(_, set)| u64::from(set.count())).sum();
        let (class, guest_in) = (class.clone(), Vec::new());
        let seat = Seat { row, class, parts, processors, active: false, guest_in };
        self.seats.insert(job, seat);
        self.row_mut(row).homes += 1;
        if self.rows.len() > 1 {
            // It need not have been put where it would fit first.
            self.movers.insert(job);
        }
        row
    }

    /// Takes a job out.
    pub fn remove(&mut self, job: JobId) {
        if !self.seats.contains_key(&job) {
            return;
        }
        self.deactivate(job);
        let Some(seat) = self.seats.remove(&job) else { return };
        for (node, set) in seat.parts.iter() {
            self.release((seat.row, job), *node, set);
        }
        self.leave(seat.row);
    }

    /// Gives a job its turns.
    pub fn activate(&mut self, job: JobId) {
        let Some(seat) = self.seats.get_mut(&job).filter(|seat| !seat.active) else { return };
        seat.active = true;
        let (row, parts, processors) = (seat.row, seat.parts.clone(), seat.processors);
        let class = seat.class.clone();
        for (node, set) in parts.iter() {
            self.evict_overlapping(row, *node, set);
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).active.union_with(set);
            }
        }
        if self.rows.len() > 1 {
            self.seekers.insert(job);
        }
        let home = self.row_mut(row);
        home.busy += processors;
        let woken = home.classes.is_empty();
        let present = home.classes.entry(class).or_default();
        *present += 1;
        let reshaped = *present == 1;
        self.reshaped |= reshaped;
        if woken {
            self.woken.insert(row);
        }
        self.note(job, &parts);
    }

    /// Takes its turns from a job; it keeps its home.
    pub fn deactivate(&mut self, job: JobId) {
        self.evict_everywhere(job);
        let Some(seat) = self.seats.get_mut(&job).filter(|seat| seat.active) else { return };
        seat.active = false;
        let (row, parts, processors) = (seat.row, seat.parts.clone(), seat.processors);
        let class = seat.class.clone();
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).active.subtract(set);
            }
            self.loosen(row, *node);
        }
        let home = self.row_mut(row);
        home.busy -= processors;
        if let Some(count) = home.classes.get_mut(&class) {
            *count -= 1;
            if *count == 0 {
                home.classes.remove(&class);
                self.reshaped = true;
            }
        }
        if self.row_mut(row).classes.is_empty() {
            // A row without active homes has no slot, so nobody can be a guest there.
            self.woken.remove(&row);
            for guest in self.row_mut(row).guests.clone() {
                self.evict(guest, row);
            }
        }
        self.note(job, &parts);
    }

    /// Moves homes to rows that they should rather be in, where their own processors are free, as far
    /// as that goes; rows that lose their last home vanish. Says who went where.
    pub fn unify(&mut self, packing: Packing) -> Vec<(JobId, RowId)> {
        let vacated = core::mem::take(&mut self.vacated);
        let movers = core::mem::take(&mut self.movers);
        if self.rows.len() <= 1 || (vacated.is_empty() && movers.is_empty()) {
            return Vec::new();
        }
        let moved = match packing {
            Packing::FirstFit => self.move_to_earlier(vacated, &movers),
            Packing::BestFit | Packing::Buddy => self.move_to_fuller(packing),
        };
        self.vacated.clear();
        self.movers.clear();
        moved
    }

    fn move_to_earlier(
        &mut self,
        mut vacated: BTreeSet<(RowId, NodeId)>,
        movers: &BTreeSet<JobId>,
    ) -> Vec<(JobId, RowId)> {
        let mut moved = Vec::new();
        let rows: Vec<RowId> = self.rows.keys().copied().collect();
        for row in rows {
            let places = vacated.range((row, NodeId(0))..=(row, NodeId(u32::MAX)));
            for (_, job) in self.candidates(places, movers, |home| home > row) {
                if self.wants_home(job, row, Packing::FirstFit) {
                    let seat = &self.seats[&job];
                    // Only later rows lose anything, so the same sweep sees what that makes room for.
                    vacated.extend(seat.parts.iter().map(|&(node, _)| (seat.row, node)));
                    self.move_home(job, row);
                    moved.push((job, row));
                }
            }
        }
        moved
    }

    /// How full rows are changes with every move, so all jobs are looked at until none moves.
    fn move_to_fuller(&mut self, packing: Packing) -> Vec<(JobId, RowId)> {
        let mut moved = Vec::new();
        let jobs: Vec<JobId> = self.seats.keys().collect();
        let mut settled = 0;
        for &job in jobs.iter().cycle() {
            let wanted = self.rows.keys().filter(|&&row| self.wants_home(job, row, packing));
            match wanted.min_by_key(|&&row| (self.blank.free() - self.used(row), row)).copied() {
                Some(row) => {
                    self.move_home(job, row);
                    moved.push((job, row));
                    settled = 0;
                }
                None => settled += 1,
            }
            if settled >= jobs.len() {
                break;
            }
        }
        moved
    }

    /// All homes are to be tried in all rows: rows are in another order.
    pub fn consider_all_homes(&mut self) {
        self.movers.extend(self.seats.keys());
    }

    /// Whether slots may be others since this was last asked.
    pub fn take_reshaped(&mut self) -> bool {
        core::mem::take(&mut self.reshaped)
    }

    /// Makes guests of all who fit, and says what became different since this was last called.
    pub fn settle(&mut self) -> Changes {
        let mut loosened = core::mem::take(&mut self.loosened);
        loosened.sort_unstable();
        loosened.dedup();
        let seekers = core::mem::take(&mut self.seekers);
        let woken = core::mem::take(&mut self.woken);
        if self.rows.len() > 1 {
            let rows: Vec<RowId> = self.rows.keys().copied().collect();
            for row in rows {
                let mut jobs = match woken.contains(&row) {
                    true => self.everybody(row),
                    false => {
                        let begin = loosened.partition_point(|&(other, _)| other < row);
                        let end = loosened.partition_point(|&(other, _)| other <= row);
                        self.candidates(&loosened[begin..end], &seekers, |home| home != row)
                    }
                };
                // The rows after this one come first, in cyclic order.
                let earlier = jobs.partition_point(|&(home, _)| home < row);
                jobs.rotate_left(earlier);
                for (_, job) in jobs {
                    if self.fits_guest(job, row) {
                        self.invite(job, row);
                    }
                }
            }
        }
        let mut changes = core::mem::take(&mut self.changes);
        changes.nodes.sort_unstable();
        changes.nodes.dedup();
        changes.jobs.sort_unstable();
        changes.jobs.dedup();
        changes
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
            && !seat.parts.is_empty()
            && target.busy + seat.processors <= self.blank.free()
            && !seat.guest_in.contains(&row)
            && seat.parts.iter().all(|(node, set)| {
                self.column(*node)
                    .and_then(|column| column.cells(row))
                    .is_none_or(|cells| !cells.active.overlaps(set) && !cells.guest.overlaps(set))
            })
    }

    /// Whether a job's home could be in this row, and should rather be there than in its own.
    #[must_use]
    pub fn wants_home(&self, job: JobId, row: RowId, packing: Packing) -> bool {
        let (Some(seat), Some(target)) = (self.seats.get(&job), self.rows.get(&row)) else {
            return false;
        };
        let before = match packing {
            Packing::FirstFit => row < seat.row,
            Packing::BestFit | Packing::Buddy => {
                row != seat.row && self.used(row) + seat.processors > self.used(seat.row)
            }
        };
        before
            && !seat.parts.is_empty()
            && seat.processors <= target.index.free()
            && seat.parts.iter().all(|(node, set)| {
                let cells = self.column(*node).and_then(|column| column.cells(row));
                cells.is_none_or(|cells| !cells.taken.overlaps(set))
            })
    }

    /// How many processors have a home in a row.
    fn used(&self, row: RowId) -> u64 {
        self.rows.get(&row).map_or(0, |row| self.blank.free() - row.index.free())
    }

    /// The jobs with homes on the nodes of these places, and those who may fit anywhere, by home row,
    /// then by number; only those whose home row is `wanted`.
    fn candidates<'a>(
        &self,
        places: impl IntoIterator<Item = &'a (RowId, NodeId)>,
        anywhere: &BTreeSet<JobId>,
        wanted: impl Fn(RowId) -> bool,
    ) -> Vec<(RowId, JobId)> {
        let columns = places.into_iter().filter_map(|&(_, node)| self.column(node));
        let here = columns.flat_map(|column| &column.residents).copied();
        let mut jobs: Vec<(RowId, JobId)> = here.filter(|&(home, _)| wanted(home)).collect();
        let home = |&job: &JobId| self.seats.get(&job).map(|seat| (seat.row, job));
        jobs.extend(anywhere.iter().filter_map(home).filter(|&(home, _)| wanted(home)));
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// All jobs at home in other rows, by home row, then by number.
    fn everybody(&self, row: RowId) -> Vec<(RowId, JobId)> {
        let others = self.seats.iter().filter(|(_, seat)| seat.row != row);
        let mut jobs: Vec<(RowId, JobId)> = others.map(|(job, seat)| (seat.row, job)).collect();
        jobs.sort_unstable();
        jobs
    }

    fn move_home(&mut self, job: JobId, to: RowId) {
        let active = self.seats[&job].active;
        self.deactivate(job);
        let (from, parts) = (self.seats[&job].row, self.seats[&job].parts.clone());
        for (node, set) in parts.iter() {
            self.release((from, job), *node, set);
            self.occupy((to, job), *node, set);
        }
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.row = to;
        }
        self.row_mut(to).homes += 1;
        self.leave(from);
        if active {
            self.activate(job);
        } else {
            self.changes.jobs.push(job);
        }
    }

    /// Counts a home of a row less; the row goes with its last one.
    fn leave(&mut self, row: RowId) {
        self.row_mut(row).homes -= 1;
        if self.row_mut(row).homes == 0 {
            self.rows.remove(&row);
            self.woken.remove(&row);
            self.reshaped = true;
        }
    }

    fn invite(&mut self, job: JobId, row: RowId) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        let after = seat.guest_in.partition_point(|&other| other < row);
        seat.guest_in.insert(after, row);
        let (parts, processors) = (seat.parts.clone(), seat.processors);
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).guest.union_with(set);
            }
        }
        let target = self.row_mut(row);
        target.guests.insert(job);
        target.busy += processors;
        self.note(job, &parts);
    }

    fn evict(&mut self, job: JobId, row: RowId) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        seat.guest_in.retain(|&other| other != row);
        let (parts, processors) = (seat.parts.clone(), seat.processors);
        for (node, set) in parts.iter() {
            if let Some(column) = self.column_mut(*node) {
                column.cells_mut(row).guest.subtract(set);
                column.prune(row);
            }
            self.loosen(row, *node);
        }
        let target = self.row_mut(row);
        target.guests.remove(&job);
        target.busy -= processors;
        self.note(job, &parts);
    }

    fn evict_everywhere(&mut self, job: JobId) {
        let guest_in = self.seats.get(&job).map(|seat| seat.guest_in.clone()).unwrap_or_default();
        for row in guest_in {
            self.evict(job, row);
        }
    }

    fn evict_overlapping(&mut self, row: RowId, node: NodeId, set: &ProcessorSet) {
        let Some(column) = self.column(node) else { return };
        if column.cells(row).is_none_or(|cells| !cells.guest.overlaps(set)) {
            return;
        }
        for (_, guest) in column.residents.clone() {
            let seat = &self.seats[&guest];
            if seat.guest_in.contains(&row) && seat.on(node).is_some_and(|own| own.overlaps(set)) {
                self.evict(guest, row);
            }
        }
    }

    /// Notes that a job runs in other slots than before.
    fn note(&mut self, job: JobId, parts: &Parts) {
        self.changes.jobs.push(job);
        self.changes.nodes.extend(parts.iter().map(|&(node, _)| node));
    }

    /// Notes that room for guests may have come free.
    fn loosen(&mut self, row: RowId, node: NodeId) {
        // In a single row there are no guests.
        if self.rows.len() > 1 {
            self.loosened.push((row, node));
        }
    }

    fn occupy(&mut self, home: (RowId, JobId), node: NodeId, set: &ProcessorSet) {
        let Some(column) = self.columns.get_mut(node.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let row_id = home.0;
        let row = self.rows.get_mut(&row_id).expect("homes are only placed in rows that exist");
        row.index.remove(column.free(row_id), node);
        self.loads.remove(column.load, node);
        column.take(home, set);
        row.index.insert(column.free(row_id), node);
        self.loads.insert(column.load, node);
    }

    fn release(&mut self, home: (RowId, JobId), node: NodeId, set: &ProcessorSet) {
        let Some(column) = self.columns.get_mut(node.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let row_id = home.0;
        let row = self.rows.get_mut(&row_id).expect("a row lives as long as its homes");
        row.index.remove(column.free(row_id), node);
        self.loads.remove(column.load, node);
        column.give_back(home, set);
        row.index.insert(column.free(row_id), node);
        self.loads.insert(column.load, node);
        if self.rows.len() > 1 {
            self.vacated.insert((row_id, node));
            self.loosened.push((row_id, node));
        }
    }

    fn column_mut(&mut self, node: NodeId) -> Option<&mut Column> {
        self.columns.get_mut(node.0 as usize)?.as_mut()
    }

    fn row_mut(&mut self, row: RowId) -> &mut Row {
        self.rows.get_mut(&row).expect("a row lives as long as its homes")
    }
}
