//! What the nodes of a job have reported of its latest launch.

use crate::exchange::Exchanges;
use crate::failures::Failures;
use std::collections::{BTreeMap, BTreeSet};
use tutti_types::{NodeId, Outcome, Rank, TaskStatus};
use tutti_wire::launch::Usage;
use tutti_wire::report::{Target, TaskHistory};

/// Tasks of a job of which it is remembered what each used.
const TASKS_KEPT_MAX: usize = 1 << 10;

/// Different texts about the tasks of a job; a reader learns nothing from more.
const DETAILS_MAX: usize = 64;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Run {
    /// The nodes that it was started on.
    started_on: Vec<NodeId>,
    /// Whether a task of it has begun.
    has_begun: bool,
    /// The nodes that have reported all that it used there.
    cleared: BTreeSet<NodeId>,
    /// How tasks ended.
    statuses: BTreeMap<Rank, TaskStatus>,
    /// Which of them ended badly.
    failures: Failures,
    /// What its tasks used that have ended; of the first [`TASKS_KEPT_MAX`] of them.
    tasks_ended: Vec<TaskHistory>,
    /// What a reader should know beyond the outcome, and of which ranks.
    details: BTreeMap<String, Vec<Rank>>,
    /// Parts of it that are suspended by themselves.
    suspended: BTreeSet<Target>,
    /// What its nodes have stored before barriers.
    pub(crate) exchanges: Exchanges,
}

impl Run {
    /// It is started on these nodes.
    pub(crate) fn start_on(&mut self, nodes: Vec<NodeId>) {
        self.started_on = nodes;
    }

    /// Lost tasks of it start again on a node, which reports once more what it used there.
    pub(crate) fn start_again_on(&mut self, node: NodeId) {
        self.cleared.remove(&node);
        if !self.started_on.contains(&node) {
            self.started_on.push(node);
        }
    }

    /// The nodes that it was started on.
    pub(crate) fn started_on(&self) -> &[NodeId] {
        &self.started_on
    }

    /// A task of it has begun. Whether it is the first.
    pub(crate) const fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Whether a task of it has begun, as far as its nodes have reported.
    pub(crate) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// A task has ended. Whether that is new: an agent that joins again says it again.
    pub(crate) fn end_task(&mut self, rank: Rank, status: TaskStatus, usage: Usage) -> bool {
        if !self.note_status(rank, status) {
            return false;
        }
        if self.tasks_ended.len() < TASKS_KEPT_MAX {
            let exit_code = status.exit_code();
            self.tasks_ended.push(TaskHistory { rank, exit_code, usage });
        }
        self.suspended.retain(|part| part.rank != Some(rank));
        true
    }

    /// A task went with its node, which is not known to have ended before.
    pub(crate) fn lose_task(&mut self, rank: Rank, why: &str) {
        if self.note_status(rank, TaskStatus::Lost) {
            self.note_detail(rank, why.to_owned());
        }
    }

    /// A task that was lost, however it had ended before, does not begin again.
    pub(crate) fn give_up_task(&mut self, rank: Rank, why: &str) {
        self.statuses.insert(rank, TaskStatus::Lost);
        self.failures.note(rank, TaskStatus::Lost);
        self.note_detail(rank, why.to_owned());
    }

    /// How these tasks ended does not count: they were lost, and begin again.
    pub(crate) fn take_back(&mut self, ranks: &[Rank]) {
        for rank in ranks {
            self.statuses.remove(rank);
        }
        self.failures.take_back(ranks);
        self.tasks_ended.retain(|task| !ranks.contains(&task.rank));
        for of_detail in self.details.values_mut() {
            of_detail.retain(|rank| !ranks.contains(rank));
        }
        self.details.retain(|_, of_detail| !of_detail.is_empty());
    }

    /// Whether that is new.
    fn note_status(&mut self, rank: Rank, status: TaskStatus) -> bool {
        let is_new = self.statuses.insert(rank, status).is_none();
        if is_new {
            self.failures.note(rank, status);
        }
        is_new
    }

    /// A node has reported all that it used there. Whether that is new.
    pub(crate) fn clear(&mut self, node: NodeId) -> bool {
        self.cleared.insert(node)
    }

    /// Whether a node that it was started on has not reported what it used there.
    pub(crate) fn has_silent_nodes(&self) -> bool {
        self.started_on.iter().any(|node| !self.cleared.contains(node))
    }

    /// How tasks ended.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = &TaskStatus> {
        self.statuses.values()
    }

    /// Whether a task has ended.
    pub(crate) fn has_ended(&self, rank: Rank) -> bool {
        self.statuses.contains_key(&rank)
    }

    /// What its tasks used, by rank; nothing if there were more than are kept. They are not kept
    /// any longer.
    pub(crate) fn take_tasks(&mut self, tasks: u32) -> Vec<TaskHistory> {
        let mut ended = std::mem::take(&mut self.tasks_ended);
        ended.sort_by_key(|task| task.rank);
        if tasks as usize > TASKS_KEPT_MAX {
            ended.clear();
        }
        ended
    }

    /// Keeps what a reader should know of a task.
    pub(crate) fn note_detail(&mut self, rank: Rank, detail: String) {
        let known = self.details.contains_key(&detail);
        if !detail.is_empty() && (known || self.details.len() < DETAILS_MAX) {
            self.details.entry(detail).or_default().push(rank);
        }
    }

    /// What a reader should know: each different text once, with the ranks it holds for, of so many
    /// tasks.
    pub(crate) fn details(&self, tasks: u32) -> impl Iterator<Item = String> {
        self.details.iter().filter_map(move |(text, ranks)| match ranks.as_slice() {
            _ if tasks as usize == ranks.len() => Some(text.clone()),
            [rank] => Some(format!("rank {rank}: {text}")),
            [first, second] => Some(format!("ranks {first} and {second}: {text}")),
            [first, ..] => Some(format!("rank {first} and {} others: {text}", ranks.len() - 1)),
            [] => None,
        })
    }

    /// Which task decided how it ended, in words, if that is to be said.
    pub(crate) fn words_of_failure(&self, outcome: Outcome) -> Option<String> {
        self.failures.words(outcome)
    }

    /// A part of it is suspended by itself.
    pub(crate) fn suspend(&mut self, part: Target) {
        self.suspended.insert(part);
    }

    /// A part of it goes on, or has ended.
    pub(crate) fn resume(&mut self, part: &Target) {
        self.suspended.remove(part);
    }

    /// Parts of it that are suspended by themselves.
    pub(crate) const fn suspended(&self) -> &BTreeSet<Target> {
        &self.suspended
    }
}
