//! Which candidates of a slot come first on one node, as the part of the policy there has ordered.

use super::orders::OrderRefusal;
use crate::apply::Core;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, RowId};
use tutti_types::limits::POLICY_CANDIDATES_MAX;
use tutti_types::timetable::{Candidate, IfAbsent};

impl Core {
    /// Puts a slot's candidates in the order of the policy's part on the node. Gangs stay before
    /// all others, so that each runs on all its nodes or on none.
    pub(crate) fn put_in_order(&self, row: RowId, node: NodeId, candidates: &mut [Candidate]) {
        let arranged = self.outside.arranged.get(&node).and_then(|rows| rows.get(&row));
        let Some(first) = arranged.filter(|first| !first.is_empty()) else { return };
        self.sort_by(first, candidates);
    }

    fn sort_by(&self, first: &[(JobId, IfAbsent)], candidates: &mut [Candidate]) {
        let place = |job: JobId| first.iter().position(|&(it, _)| it == job);
        for candidate in &mut *candidates {
            if let Some(place) = place(candidate.launch.job) {
                candidate.if_absent = first[place].1;
            }
        }
        let is_gang = |job| self.matrix.seat(job).is_some_and(|seat| seat.parts.len() > 1);
        candidates.sort_by_cached_key(|it| {
            let job = it.launch.job;
            (!is_gang(job), place(job).unwrap_or(usize::MAX))
        });
    }

    /// Whether a node's candidates can have another order.
    pub(super) fn consider_arrangement(
        &self,
        node: NodeId,
        row: Option<RowId>,
        first: &[(JobId, IfAbsent)],
    ) -> Result<(), OrderRefusal> {
        if first.len() > POLICY_CANDIDATES_MAX {
            return Err(OrderRefusal::TooManyCandidates);
        }
        if self.matrix.column(node).is_none() {
            return Err(OrderRefusal::NoNode(node));
        }
        let Some(row) = row else {
            let is_so = !self.outside.arranged.contains_key(&node);
            return if is_so { Err(OrderRefusal::NoChange) } else { Ok(()) };
        };
        self.without_promises()?;
        let own = self.own_order(row, node).ok_or(OrderRefusal::NoRow(row))?;
        for (index, &(job, _)) in first.iter().enumerate() {
            if !own.iter().any(|it| it.launch.job == job) {
                return Err(OrderRefusal::NoCandidate(job, node, row));
            }
            if first[..index].iter().any(|&(before, _)| before == job) {
                return Err(OrderRefusal::Twice(job));
            }
        }
        let (mut before, mut after) = (own.clone(), own);
        self.put_in_order(row, node, &mut before);
        self.sort_by(first, &mut after);
        if before == after { Err(OrderRefusal::NoChange) } else { Ok(()) }
    }

    /// Gives a node's candidates another order, as was found possible.
    pub(super) fn arrange(
        &mut self,
        node: NodeId,
        row: Option<RowId>,
        first: &[(JobId, IfAbsent)],
    ) {
        let is_live = |row: &RowId| self.matrix.row(*row).is_some();
        let rows = self.outside.arranged.entry(node).or_default();
        match row {
            None => rows.clear(),
            Some(row) => drop(rows.insert(row, Vec::from(first))),
        }
        rows.retain(|row, first| !first.is_empty() && is_live(row));
        if rows.is_empty() {
            self.outside.arranged.remove(&node);
        }
        self.plan_anew(node);
    }

    /// The node gets a timetable, and its jobs' turns are reckoned by that.
    pub(super) fn plan_anew(&mut self, node: NodeId) {
        self.outbox.nodes.push(node);
        self.outbox.quieter.insert(node);
    }
}
