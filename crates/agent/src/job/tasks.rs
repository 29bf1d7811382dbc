//! The tasks of a launch on this node: which there are, how they began and ended, what they used.
//! Those of a job and those of its further steps are the same in that.

use std::collections::{BTreeMap, BTreeSet};
use tutti_types::{LaunchId, Rank, TaskStatus};
use tutti_wire::keeper::HeldJob;
use tutti_wire::launch::{Share, Usage};
use tutti_wire::tree::FromAgent;

/// How a task has ended, why, and what it used.
pub(crate) type End = (TaskStatus, String, Usage);

/// See the head of the file.
pub(crate) struct Tasks {
    ranks: BTreeSet<Rank>,
    /// Those that have begun, with the number of the first process of each.
    roots: BTreeMap<Rank, i32>,
    ended: BTreeMap<Rank, End>,
    /// What those that have ended used, as far as the agent counts it.
    counted: Usage,
    /// What all of them used, once nothing of them is left.
    cleared: Option<Usage>,
}

impl Tasks {
    /// Those of a launch, of which none has begun.
    pub(crate) fn of(share: &Share) -> Self {
        Self {
            ranks: share.tasks.iter().map(|task| task.rank).collect(),
            roots: BTreeMap::new(),
            ended: BTreeMap::new(),
            counted: Usage::default(),
            cleared: None,
        }
    }

    /// Those that the keeper holds from before this agent, with how some have ended.
    pub(crate) fn held(held: &mut HeldJob) -> Self {
        let ended = std::mem::take(&mut held.ended).into_iter();
        Self {
            ranks: held.roots.iter().map(|(rank, _)| *rank).collect(),
            roots: held.roots.iter().copied().collect(),
            ended: ended
                .map(|(rank, status, detail, usage)| (rank, (status, detail, usage)))
                .collect(),
            // Earlier use was not counted.
            counted: Usage::unknown(),
            cleared: held.cleared,
        }
    }

    pub(crate) const fn ranks(&self) -> &BTreeSet<Rank> {
        &self.ranks
    }

    /// Those that have begun, with the number of the first process of each.
    pub(crate) const fn roots(&self) -> &BTreeMap<Rank, i32> {
        &self.roots
    }

    /// Those that have begun and not ended.
    pub(crate) fn living(&self) -> impl Iterator<Item = Rank> {
        self.roots.keys().copied().filter(|rank| !self.ended.contains_key(rank))
    }

    /// Whether a task is known to have begun here, if any does.
    pub(crate) fn have_begun(&self) -> bool {
        self.ranks.is_empty() || !self.roots.is_empty() || !self.ended.is_empty()
    }

    /// Whether all have ended; something may be left of them.
    pub(crate) fn have_ended(&self) -> bool {
        self.ended.len() >= self.ranks.len()
    }

    /// What those that have ended used, as far as the agent counts it.
    pub(crate) const fn counted(&self) -> &Usage {
        &self.counted
    }

    /// What all of them used, if nothing of them is left.
    pub(crate) const fn cleared(&self) -> Option<Usage> {
        self.cleared
    }

    /// Whether nothing of them is left.
    pub(crate) const fn are_cleared(&self) -> bool {
        self.cleared.is_some()
    }

    pub(crate) fn begin(&mut self, rank: Rank, root: i32) {
        self.roots.insert(rank, root);
    }

    pub(crate) fn end(&mut self, rank: Rank, end: End) {
        self.counted.add(&end.2);
        self.ended.insert(rank, end);
    }

    /// Nothing of them is left. Puts into the usage how many processes there were, which only the
    /// agent counts.
    pub(crate) const fn clear(&mut self, usage: &mut Usage) {
        usage.processes = self.counted.processes;
        usage.processes_peak = self.counted.processes_peak;
        usage.processes_whole = self.counted.processes_whole;
        self.cleared = Some(*usage);
    }

    /// They went with their keeper. What has ended before has ended as it was reported.
    pub(crate) fn lose(&mut self) {
        for &rank in &self.ranks {
            self.ended.entry(rank).or_insert_with(|| {
                let detail = "the keeper of its node ended".into();
                (TaskStatus::Lost, detail, Usage::unknown())
            });
        }
        self.cleared = Some(self.cleared.unwrap_or_else(Usage::unknown));
    }

    /// For a controller that may not know: which have begun.
    pub(crate) fn report_begins(&self, launch: LaunchId) -> impl Iterator<Item = FromAgent> {
        self.roots.iter().map(move |(&rank, &root)| FromAgent::TaskStarted { launch, rank, root })
    }

    /// For a controller that may not know: how some have ended.
    pub(crate) fn report_ends(&self, launch: LaunchId) -> impl Iterator<Item = FromAgent> {
        self.ended.iter().map(move |(&rank, (status, detail, usage))| {
            let (status, detail, usage) = (*status, detail.clone(), *usage);
            FromAgent::TaskEnded { launch, rank, status, detail, usage }
        })
    }

    /// For a controller that may not know: whether nothing is left of them.
    pub(crate) fn report_cleared(&self, launch: LaunchId) -> Option<FromAgent> {
        self.cleared.map(|usage| FromAgent::Cleared { launch, usage })
    }
}
