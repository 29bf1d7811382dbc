//! Processors of a home that the job does not use: lent to other jobs, or given up for good.
//!
//! A *lent* processor stays the job's. In the job's row it counts as idle, so that guests run
//! there; [`Matrix::take_back`] evicts them. A processor that is *given up* is free for new homes,
//! too.
//!
//! Work is that of the jobs on one node and of the rows where the job runs: the other nodes of the
//! job are not touched, and no timetable of theirs changes.

use super::{Matrix, Parts, Seat};
use alloc::sync::Arc;
use tutti_types::ids::{JobId, NodeId, ProcessorSet};

impl Seat {
    /// The processors of a node on which it runs: its own, without those that it lends.
    #[must_use]
    pub fn runs_on(&self, node: NodeId) -> Option<ProcessorSet> {
        let own = self.on(node)?;
        Some(self.lent.get(&node).map_or_else(|| own.clone(), |lent| own.without(lent)))
    }

    /// All processors on which it runs, by node.
    #[must_use]
    pub fn running(&self) -> Parts {
        if self.lent.is_empty() {
            return self.parts.clone();
        }
        let runs = |(node, own): &(NodeId, ProcessorSet)| match self.lent.get(node) {
            Some(lent) => (*node, own.without(lent)),
            None => (*node, own.clone()),
        };
        self.parts.iter().map(runs).collect()
    }

    /// How many processors it runs on.
    #[must_use]
    pub fn running_count(&self) -> u64 {
        let lent = self.lent.values().map(|set| u64::from(set.count()));
        self.processors - lent.sum::<u64>()
    }
}

impl Matrix {
    /// A job does not use some of its processors until it [takes them back](Self::take_back):
    /// others run there meanwhile.
    pub fn lend(&mut self, job: JobId, node: NodeId, set: &ProcessorSet) {
        let Some(set) = self.seats.get(&job).and_then(|seat| common(&seat.runs_on(node)?, set))
        else {
            return;
        };
        self.leave_idle(job, node, &set);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.lent.entry(node).or_default().union_with(&set);
        }
    }

    /// A job uses processors again that it lent: guests that ran there go.
    pub fn take_back(&mut self, job: JobId, node: NodeId, set: &ProcessorSet) {
        let Some(seat) = self.seats.get_mut(&job) else { return };
        let Some(set) = seat.lent.get(&node).and_then(|lent| common(lent, set)) else { return };
        if !seat.active {
            return seat.keep(node, &set);
        }
        let row = seat.row;
        // It must fit as a guest anew.
        self.evict_everywhere(job);
        self.evict_overlapping(row, node, &set);
        if let Some(seat) = self.seats.get_mut(&job) {
            seat.keep(node, &set);
        }
        if let Some(column) = self.column_mut(node) {
            column.cells_mut(row).suspended.subtract(&set);
        }
        self.row_mut(row).busy += u64::from(set.count());
        self.seekers.insert(job);
        self.changes.nodes.push(node);
    }

    /// A job needs some of its processors no more: they are free for others. Returns how many it
    /// has left, if these were its own.
    pub fn give_up(&mut self, job: JobId, node: NodeId, set: &ProcessorSet) -> Option<u64> {
        let set = common(self.seats.get(&job)?.on(node)?, set)?;
        if let Some(used) = self.seats.get(&job)?.runs_on(node).and_then(|runs| common(&runs, &set))
        {
            self.leave_idle(job, node, &used);
        }
        let seat = self.seats.get_mut(&job)?;
        seat.keep(node, &set);
        let at = seat.parts.binary_search_by_key(&node, |&(node, _)| node).ok()?;
        Arc::make_mut(&mut seat.parts)[at].1.subtract(&set);
        seat.processors -= u64::from(set.count());
        let (row, left) = (seat.row, seat.processors);
        self.shrink(row, node, &set);
        if self.rows.len() > 1 {
            self.movers.insert(job);
        }
        Some(left)
    }

    /// Some of the processors on which a job ran are idle from now on.
    fn leave_idle(&mut self, job: JobId, node: NodeId, set: &ProcessorSet) {
        let Some(seat) = self.seats.get(&job).filter(|seat| seat.active) else { return };
        let (home, guest_in) = (seat.row, seat.guest_in.clone());
        let several = self.rows.len() > 1;
        let count = u64::from(set.count());
        let Some(Some(column)) = self.columns.get_mut(node.0 as usize) else { return };
        column.cells_mut(home).suspended.union_with(set);
        for &row in &guest_in {
            column.cells_mut(row).guest.subtract(set);
            column.prune(row);
        }
        self.changes.nodes.push(node);
        for row in guest_in.into_iter().chain([home]) {
            let row = self.row_mut(row);
            row.busy -= count;
            if several {
                row.loosened.insert(node);
            }
        }
        if several {
            // What is left of it fits more easily than the whole did.
            self.seekers.insert(job);
        }
    }
}

/// What two sets have in common, if anything.
fn common(one: &ProcessorSet, other: &ProcessorSet) -> Option<ProcessorSet> {
    let common = one.without(&one.without(other));
    (!common.is_empty()).then_some(common)
}
