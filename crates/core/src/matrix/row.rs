//! One row of the matrix, and its part of one node.

use super::{Index, NodeSet, Owner, Parts};
use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize};
use tutti_types::ids::{ClassName, JobId, ProcessorSet};

/// A row: the jobs at home in it, and the guests on what they leave idle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Row {
    /// How many jobs are at home.
    pub homes: u64,
    /// The guests.
    pub guests: BTreeSet<JobId>,
    /// How many active homes there are of each class. Empty: the row has no slot.
    pub classes: BTreeMap<ClassName, u32>,
    /// Nodes by free processors, but for closed ones.
    pub index: Index,
    /// Free processors of closed nodes.
    pub(super) closed_free: u64,
    /// The processors of active homes and of guests.
    pub(super) busy: u64,
    /// Where homes ended since unification was last tried.
    pub(super) vacated: NodeSet,
    /// Where a job may have become able to be a guest.
    pub(super) loosened: NodeSet,
    /// How many active homes there are of each owner in each class.
    pub owners: BTreeMap<(ClassName, Owner), u32>,
    /// The class that keeps the row: no job of another one begins there.
    pub kept_by: Option<ClassName>,
}

/// A row's processors on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cells {
    /// Those of all homes.
    pub taken: ProcessorSet,
    /// Those of homes that don't take their turns.
    pub suspended: ProcessorSet,
    /// Those of guests.
    pub guest: ProcessorSet,
}

impl Row {
    pub(super) fn new(index: Index, closed_free: u64) -> Self {
        Self { index, closed_free, ..Self::default() }
    }

    /// Free processors of all nodes.
    pub(crate) const fn all_free(&self) -> u64 {
        self.index.free() + self.closed_free
    }

    /// Notes that room for guests may have come free, which is of interest while there are other
    /// rows for guests to come from.
    pub(super) fn loosen(&mut self, parts: &Parts) {
        for (node, _) in parts.iter() {
            self.loosened.insert(*node);
        }
    }
}

impl Cells {
    /// Whether a job runs on one of these processors: an active home, or a guest.
    #[must_use]
    pub fn run(&self, set: &ProcessorSet) -> bool {
        let homes = match self.suspended.is_empty() {
            true => self.taken.overlaps(set),
            false => self.active().overlaps(set),
        };
        homes || self.guest.overlaps(set)
    }

    /// The processors of homes that take their turns.
    #[must_use]
    pub fn active(&self) -> ProcessorSet {
        self.taken.without(&self.suspended)
    }

    pub(super) fn unused(&self) -> bool {
        self.taken.is_empty() && self.guest.is_empty()
    }
}
