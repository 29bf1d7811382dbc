//! What one node is told of the matrix: which jobs run when, and what to do when one is absent.
//!
//! A node follows its timetable by its own clock, with no message at a switch (SP-2 paper, local
//! scheduler). The slot at a moment is found by arithmetic alone, so an agent that starts late, or
//! sleeps through a slot, is right again at once. What runs in a slot is found by going down its
//! candidates in order: each one that is present and whose processors none before it took, runs.
//! That one rule gives both of the paper's kinds of empty cycles: an absent candidate that says
//! [`IfAbsent::Hold`] still takes its processors, one that says [`IfAbsent::Down`] leaves them to
//! those below it, and the jobs of other rows stand at the end of the list as alternates.

use crate::ids::{ClassName, JobId, LaunchId, ProcessorSet, RowId};
use crate::time::{ClusterTime, Nanos};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A node's part of the matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timetable {
    /// Grows with every change; an older one that arrives late is ignored.
    pub version: u64,
    /// When it replaces the one before. In the past: at once.
    pub activates: ClusterTime,
    /// A moment, not after `activates`, at which the first slot began.
    pub epoch: ClusterTime,
    /// The frame: one cycle of all slots. Empty: nothing runs. One: there is no switch.
    pub slots: Vec<Slot>,
    /// The classes with jobs here, where the node chooses which alternates come first; else empty.
    pub classes: Vec<ClassPart>,
}

/// A class with jobs on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClassPart {
    /// Its name; `None`: all classes without a share, which count as one.
    pub class: Option<ClassName>,
    /// Its part of the time against the others' (SP-2 paper, table 1: fraction), in units of
    /// [`crate::limits::SHARE_WHOLE`]; 0: it has only what no other wants.
    pub part: u32,
    /// Its jobs here.
    pub jobs: Vec<JobId>,
}

/// One slot of the frame on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The row of the matrix that it comes from.
    pub row: RowId,
    /// How long it lasts.
    pub length: Nanos,
    /// The candidates, first come first: the jobs of the row, then alternates.
    pub candidates: Vec<Candidate>,
    /// How many of the last candidates are alternates that run on this node alone. The node chooses
    /// which of them comes first.
    pub local: u32,
}

/// A job that may run in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Candidate {
    /// Which job, and which launch of it: a timetable that is still in force when the job is
    /// launched again does not mean that.
    pub launch: LaunchId,
    /// The processors of this node that it runs on.
    pub processors: ProcessorSet,
    /// What becomes of these processors when the job is absent.
    pub if_absent: IfAbsent,
}

/// What to do with the processors of a candidate that is absent or has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IfAbsent {
    /// Leave them idle.
    Hold,
    /// Offer them to the candidates below.
    #[default]
    Down,
}

/// Where in the frame a moment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The index of the slot.
    pub slot: usize,
    /// When this turn of the slot began.
    pub begins: ClusterTime,
    /// When it ends; [`ClusterTime::NEVER`] if there is no other slot to switch to.
    pub ends: ClusterTime,
}

impl Timetable {
    /// The length of the frame.
    #[must_use]
    pub fn frame(&self) -> Nanos {
        self.slots.iter().fold(Nanos::ZERO, |sum, slot| sum + slot.length)
    }

    /// Which slot the moment `t` lies in; `None` if there is none.
    #[must_use]
    pub fn position(&self, t: ClusterTime) -> Option<Position> {
        let frame = self.frame();
        if self.slots.is_empty() {
            return None;
        }
        if self.slots.len() == 1 || frame.0 == 0 {
            return Some(Position { slot: 0, begins: self.epoch, ends: ClusterTime::NEVER });
        }
        let since = t.since(self.epoch).0;
        let mut begins = self.epoch + Nanos(since - since % frame.0);
        for (slot, length) in self.slots.iter().map(|slot| slot.length).enumerate() {
            let ends = begins + length;
            if t < ends {
                return Some(Position { slot, begins, ends });
            }
            begins = ends;
        }
        // Only a moment so late that the sums saturate gets here.
        Some(Position { slot: 0, begins: t, ends: ClusterTime::NEVER })
    }

    /// Puts the local alternates of a slot in the order of this key, then by number.
    ///
    /// # Panics
    /// If there is no slot of that index.
    pub fn sort_local<K: Ord>(&mut self, slot: usize, key: impl Fn(JobId) -> K) {
        let Slot { candidates, local, .. } = &mut self.slots[slot];
        let from = candidates.len().saturating_sub(*local as usize);
        candidates[from..].sort_by_cached_key(|it| (key(it.launch.job), it.launch.job));
    }

    /// Appends to `running` the jobs that run in a slot, given those that are present on this node.
    ///
    /// # Panics
    /// If there is no slot of that index.
    pub fn running(
        &self,
        slot: usize,
        mut present: impl FnMut(LaunchId) -> bool,
        running: &mut Vec<LaunchId>,
    ) {
        let mut taken = ProcessorSet::new();
        for candidate in &self.slots[slot].candidates {
            if candidate.processors.overlaps(&taken) {
                continue;
            }
            let runs = present(candidate.launch);
            if runs {
                running.push(candidate.launch);
            }
            if runs || candidate.if_absent == IfAbsent::Hold {
                taken.union_with(&candidate.processors);
            }
        }
    }
}
