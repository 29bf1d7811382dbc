//! What the core knows of one job, and the states it goes through.
//!
//! ```text
//! Queued --start--> Running ----------------------------> all parts cleared: Completed
//!    |                 |  \--front end lost--> Orphaned -\        |
//!    |                 |--asked to end------> Terminating +--> Killed
//!    |                 \--a task failed, a node was lost-/        |
//!    \--asked to end--> (gone)                          all parts cleared: the reason
//! ```
//!
//! All transitions are methods of [`Residence`]; none of them goes back. A job that is to be in line again
//! after a node was lost comes to its end as any other that is killed, and is then queued anew.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::constraints::OnNodeLoss;
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, Rank};
use tutti_types::job::{EndReason, FirstStep, JobSpec, OnBadExit, Outcome, TaskStatus};
use tutti_types::refusal::TaskPlacement;
use tutti_types::resource::Grant;
use tutti_types::time::{ClusterTime, Nanos};

/// Where a resident job is on its way out of the matrix and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// In the matrix, with its turns unless a user suspended it.
    #[default]
    Home,
    /// It runs no more; its processors are not free yet.
    Leaving,
    /// It has no processors.
    Aside,
    /// It has processors again, and does not run yet.
    Coming,
}

impl Place {
    /// Whether it is in the matrix to stay.
    #[must_use]
    pub const fn is_home(self) -> bool {
        matches!(self, Self::Home)
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub id: JobId,
    /// What was asked; its class is standby while the owner's allowance is spent.
    pub spec: JobSpec,
    /// The class that it had before.
    pub former: Option<ClassName>,
    /// When it must be done, if it named that.
    pub deadline: Option<ClusterTime>,
    /// Whether a user has it suspended.
    pub suspended: bool,
    /// How often it was in line again: since a node was lost, or by request.
    pub requeues: u32,
    /// Whether a user asked that it end for good: then it is not in line again.
    pub asked_to_end: bool,
    /// Where it stands.
    pub phase: Phase,
}

impl Record {
    /// Whether it is in line and no front end waits for it: then it may begin at any time.
    #[must_use]
    pub const fn may_wait_long(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. }) && !self.spec.attached
    }

    /// What is known of it once it is in the matrix.
    #[must_use]
    pub fn residence(&self) -> Option<&Residence> {
        match &self.phase {
            Phase::Queued { .. } => None,
            Phase::Resident(residence) => Some(residence),
        }
    }

    /// The same, to change it.
    pub fn residence_mut(&mut self) -> Option<&mut Residence> {
        match &mut self.phase {
            Phase::Queued { .. } => None,
            Phase::Resident(residence) => Some(residence),
        }
    }
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// It waits to be placed.
    Queued {
        /// Since when.
        since: ClusterTime,
    },
    /// It has been placed: it is in the matrix, or preempted.
    Resident(Box<Residence>),
}

/// How the tasks of a part share its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Binding {
    /// Each task has this many of its own, in order.
    Own(u32),
    /// All share all (see [`Part::placements`]).
    Shared,
    /// The part is held until it is released, whatever its tasks do. So many tasks begin in it, and
    /// all processors are theirs; there may be none.
    Held(u32),
    /// As [`Self::Held`], but each task has the processors of its slot. Those of the other slots
    /// are free for tasks that these start.
    HeldSlots(u32),
}

/// The slots of a job on one node, and the tasks that begin there: ranks without a gap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// The node.
    pub node: NodeId,
    /// The processors.
    pub processors: ProcessorSet,
    /// The lowest slot, which is the lowest rank where each slot has a task.
    pub first: u32,
    /// How many slots.
    pub tasks: u32,
    /// Which job has which processors.
    pub binding: Binding,
    /// Tasks that haven't ended.
    pub left: u32,
    /// Nothing of it is on the node any more.
    pub cleared: bool,
    /// The node was lost since, and what it had promised with it.
    pub lost: bool,
}

impl Part {
    /// A part whose tasks have not been started.
    #[must_use]
    pub const fn new(node: NodeId, processors: ProcessorSet, first: u32, tasks: u32) -> Self {
        let binding = Binding::Shared;
        Self { node, processors, first, tasks, binding, left: tasks, cleared: false, lost: false }
    }

    /// Has the part be held until it is released, with the tasks that begin in it.
    pub fn hold(&mut self, first: FirstStep) {
        let binding = match first {
            FirstStep::EachSlot => return,
            FirstStep::Once => Binding::Held(u32::from(self.first == 0)),
            FirstStep::Tasks(tasks) => {
                Binding::HeldSlots(tasks.saturating_sub(self.first).min(self.tasks))
            }
        };
        self.binding = binding;
        self.left = self.launched();
    }

    /// Whether it is held until it is released.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        match self.binding {
            Binding::Held(_) | Binding::HeldSlots(_) => true,
            Binding::Own(_) | Binding::Shared => false,
        }
    }

    /// The processors of each slot alone; none if slots share them.
    #[must_use]
    pub fn processors_per_slot(&self) -> u32 {
        match self.binding {
            // Others may have what ended tasks left.
            Binding::Own(each) => each,
            Binding::Shared | Binding::Held(_) | Binding::HeldSlots(_) => {
                self.processors.count().checked_div(self.tasks).unwrap_or(0)
            }
        }
    }

    /// Whether it has a place in the matrix while its job has one.
    #[must_use]
    pub fn has_processors(&self) -> bool {
        !self.lost && !self.processors.is_empty()
    }

    /// How many tasks begin in it.
    #[must_use]
    pub const fn launched(&self) -> u32 {
        match self.binding {
            Binding::Held(launched) | Binding::HeldSlots(launched) => launched,
            Binding::Own(_) | Binding::Shared => self.tasks,
        }
    }

    /// Whether it is to have its turns: something runs there, or may be started there any moment.
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.left > 0 || (self.is_held() && !self.cleared)
    }

    /// The ranks of its tasks.
    fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (self.first..self.first.saturating_add(self.launched())).map(Rank)
    }

    /// Every task with its processors, by rank. Tasks that share them are dealt out in turn if that gives
    /// each processor as many: bound to one, they stay with their caches, and a task that yields
    /// while it waits for another yields to that other. Else all of them move over all processors,
    /// and have the same of them.
    #[must_use]
    pub fn placements(&self) -> Vec<TaskPlacement> {
        self.placements_without(&BTreeSet::new())
    }

    /// The same, but for tasks that have ended and whose processors others have.
    #[must_use]
    pub fn placements_without(&self, given: &BTreeSet<Rank>) -> Vec<TaskPlacement> {
        let count = self.processors.count();
        let is_even = count > 0 && self.tasks.is_multiple_of(count);
        let mut own = self.processors.iter();
        let mut dealt = core::iter::repeat_with(|| self.processors.iter()).flatten();
        let each = self.processors_per_slot() as usize;
        let mut next = || match self.binding {
            Binding::Own(count) => own.by_ref().take(count as usize).collect(),
            Binding::HeldSlots(_) if each > 0 => own.by_ref().take(each).collect(),
            Binding::Shared | Binding::HeldSlots(_) if is_even => dealt.by_ref().take(1).collect(),
            Binding::Shared | Binding::Held(_) | Binding::HeldSlots(_) => self.processors.clone(),
        };
        let ranks = self.ranks().filter(|rank| !given.contains(rank));
        ranks.map(|rank| TaskPlacement { rank, processors: next() }).collect()
    }

    /// Whether the rank is one of its tasks.
    #[must_use]
    pub const fn has(&self, rank: Rank) -> bool {
        rank.0 >= self.first && rank.0 - self.first < self.launched()
    }
}

/// What is to become of a resident job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Course {
    /// It runs until its tasks end.
    Running,
    /// Its front end is lost: it is killed at `kill_at` if it isn't done by then.
    Orphaned {
        /// When.
        kill_at: ClusterTime,
    },
    /// Its tasks were asked to end; it is killed at `kill_at` if they haven't by then.
    Terminating {
        /// Why.
        reason: EndReason,
        /// Since when.
        since: ClusterTime,
        /// When.
        kill_at: ClusterTime,
    },
    /// It was killed and is waited for to be gone.
    Killed {
        /// Why.
        reason: EndReason,
        /// Since when.
        since: ClusterTime,
        /// How its tasks die of it.
        deaths: Deaths,
    },
    /// A task ended without a word to the others, which may wait for it: the job is killed when they have
    /// run for its grace. The ledger counts that, as it counts time limits.
    Failing {
        /// When it is killed if its front end is lost, too.
        kill_at: ClusterTime,
    },
}

/// Whether tasks that die of a kill speak for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Deaths {
    /// The kill is what was asked for: they do.
    Meant,
    /// They die because of another task, whose status is the job's: they don't.
    Collateral,
}

/// What the end of a task means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// If it ended badly.
    pub on_bad_exit: OnBadExit,
    /// If it was lost.
    pub on_node_loss: OnNodeLoss,
}

impl Rules {
    /// Those of a job.
    #[must_use]
    pub const fn of(spec: &JobSpec) -> Self {
        Self { on_bad_exit: spec.on_bad_exit, on_node_loss: spec.on_node_loss }
    }

    /// Whether lost tasks may be started again.
    const fn respawns(self) -> bool {
        matches!(self.on_node_loss, OnNodeLoss::Respawn { .. })
    }
}

/// What a task's end means for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// There is no such task, or it had ended before.
    Unknown,
    /// The others go on.
    Noted,
    /// The others may wait for it: they go on for the job's grace.
    Failing,
    /// The job is now to be killed for this reason.
    Fatal(EndReason),
}

/// A job that has been placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Residence {
    /// Since when.
    pub since: ClusterTime,
    /// Its tasks by node, lowest ranks first; lowest node numbers, too, until lost tasks are started
    /// again elsewhere.
    pub parts: Vec<Part>,
    /// Whether it is in the matrix or preempted.
    pub place: Place,
    /// Since when it has had its processors; once it is leaving, since when it has not.
    pub moved: ClusterTime,
    /// What it has of the resources that it asked for. Journals of form 4 have an empty `Option`
    /// here, which is stored as an empty list is.
    pub resources: Vec<Grant>,
    /// What is to become of it.
    pub course: Course,
    /// What of its service the bank has charged for.
    pub charged: Nanos,
    /// The tasks that have ended.
    pub ended: BTreeMap<Rank, TaskStatus>,
    /// The highest exit code among the tasks that speak for the job.
    pub exit_code: u8,
    /// The moment in the core's list of moments.
    pub deadline: ClusterTime,
}

impl Residence {
    /// A job that starts now.
    #[must_use]
    pub const fn new(since: ClusterTime, parts: Vec<Part>) -> Self {
        Self {
            since,
            parts,
            place: Place::Home,
            moved: since,
            resources: Vec::new(),
            charged: Nanos::ZERO,
            course: Course::Running,
            ended: BTreeMap::new(),
            exit_code: 0,
            deadline: ClusterTime::NEVER,
        }
    }

    /// Its part on a node.
    #[must_use]
    pub fn part(&self, node: NodeId) -> Option<&Part> {
        self.place_of(node).map(|index| &self.parts[index])
    }

    pub(crate) fn part_mut(&mut self, node: NodeId) -> Option<&mut Part> {
        self.place_of(node).map(|index| &mut self.parts[index])
    }

    fn place_of(&self, node: NodeId) -> Option<usize> {
        let found = self.parts.binary_search_by_key(&node, |part| part.node);
        // Tasks that were started again elsewhere are out of order.
        found.ok().or_else(|| self.parts.iter().position(|part| part.node == node))
    }

    /// Its processors by node, but for those of lost nodes.
    #[must_use]
    pub fn places(&self) -> Vec<(NodeId, ProcessorSet)> {
        let here = self.parts.iter().filter(|part| part.has_processors());
        let mut places: Vec<_> = here.map(|part| (part.node, part.processors.clone())).collect();
        places.sort_unstable_by_key(|(node, _)| *node);
        places
    }

    /// Whether it is to have its turns on that node ([`Part::is_present`]).
    #[must_use]
    pub fn present_on(&self, node: NodeId) -> bool {
        self.part(node).is_some_and(Part::is_present)
    }

    /// Whether it is to have its turns on any node.
    #[must_use]
    pub fn present(&self) -> bool {
        self.parts.iter().any(Part::is_present)
    }

    /// Whether parts of it are held, though none of the tasks that it began with is left.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        let held = self.parts.iter().any(|part| part.is_held() && !part.cleared);
        held && self.parts.iter().all(|part| part.left == 0)
    }

    /// Whether nothing of it is on any node.
    #[must_use]
    pub fn cleared(&self) -> bool {
        self.parts.iter().all(|part| part.cleared)
    }

    /// The nodes where something of it may be left.
    pub fn nodes_left(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.parts.iter().filter(|part| !part.cleared).map(|part| part.node)
    }

    /// Whether it was asked to end, or killed.
    #[must_use]
    pub const fn ending(&self) -> bool {
        matches!(self.course, Course::Terminating { .. } | Course::Killed { .. })
    }

    /// Its tasks are asked to end. Nothing new if it is ending already.
    pub fn terminate(&mut self, reason: EndReason, now: ClusterTime, kill_at: ClusterTime) -> bool {
        match self.course {
            Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => {
                self.course = Course::Terminating { reason, since: now, kill_at };
                true
            }
            Course::Terminating { .. } | Course::Killed { .. } => false,
        }
    }

    /// Why it is to end, if it is.
    #[must_use]
    pub const fn reason(&self) -> Option<EndReason> {
        match self.course {
            Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => None,
            Course::Terminating { reason, .. } | Course::Killed { reason, .. } => Some(reason),
        }
    }

    /// What was to be in line again ends for good.
    pub(crate) const fn forget_requeue(&mut self, instead: EndReason) {
        match &mut self.course {
            Course::Terminating { reason, .. } | Course::Killed { reason, .. } => {
                if matches!(reason, EndReason::Requeued { .. }) {
                    *reason = instead;
                }
            }
            Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => {}
        }
    }

    /// Its front end is lost: it may live until `kill_at`.
    pub fn orphan(&mut self, at: ClusterTime) {
        match &mut self.course {
            Course::Running => self.course = Course::Orphaned { kill_at: at },
            Course::Terminating { kill_at, .. } | Course::Failing { kill_at } => {
                *kill_at = at.min(*kill_at);
            }
            Course::Orphaned { .. } | Course::Killed { .. } => {}
        }
    }

    /// A task ended, and the others may wait for it. Nothing new if the job is ending or failing already.
    pub const fn fail(&mut self) -> bool {
        let kill_at = match self.course {
            Course::Running => ClusterTime::NEVER,
            Course::Orphaned { kill_at } => kill_at,
            Course::Failing { .. } | Course::Terminating { .. } | Course::Killed { .. } => {
                return false;
            }
        };
        self.course = Course::Failing { kill_at };
        true
    }

    /// It is killed; a reason that it was ending for already stands. Nothing new if it was killed
    /// before.
    pub fn kill(&mut self, reason: EndReason, now: ClusterTime, deaths: Deaths) -> bool {
        let is_cut_short = matches!(self.course, Course::Terminating { .. })
            && matches!(reason, EndReason::NodeLost(_));
        if is_cut_short && self.left().next().is_some() {
            // Their deaths will say nothing, and the reason that stands leaves it to them.
            self.hear(TaskStatus::Lost);
        }
        let (reason, since) = match self.course {
            Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => (reason, now),
            Course::Terminating { reason, since, .. } => (reason, since),
            Course::Killed { .. } => return false,
        };
        self.course = Course::Killed { reason, since, deaths };
        true
    }

    /// The tasks that have not ended, by rank.
    pub fn left(&self) -> impl Iterator<Item = Rank> + '_ {
        let parts = self.parts.iter().filter(|part| part.left > 0 && !part.cleared);
        let ranks = parts.flat_map(Part::ranks);
        ranks.filter(|rank| !self.ended.contains_key(rank))
    }

    /// Whether tasks on a node have not ended, or were reported as lost, or what was held there was
    /// never released.
    #[must_use]
    pub fn has_lost_on(&self, node: NodeId) -> bool {
        let Some(part) = self.part(node) else { return false };
        let ranks = Rank(part.first)..Rank(part.first.saturating_add(part.launched()));
        let released = matches!(self.course, Course::Killed { .. });
        part.left > 0
            || (part.is_held() && !part.cleared && !released)
            || self.ended.range(ranks).any(|(_, &status)| status == TaskStatus::Lost)
    }

    /// What was on a node is lost: the tasks there that had not ended count as such.
    pub fn lose_tasks(&mut self, node: NodeId) {
        if self.miss_tasks(node) {
            self.hear(TaskStatus::Lost);
        }
    }

    /// The same for tasks that may be started again: so far the loss does not speak for the job.
    /// Whether there were any.
    pub(crate) fn miss_tasks(&mut self, node: NodeId) -> bool {
        let Some(part) = self.part(node).filter(|part| !part.cleared && part.left > 0) else {
            return false;
        };
        let lost: Vec<Rank> = part.ranks().filter(|rank| !self.ended.contains_key(rank)).collect();
        let any = !lost.is_empty();
        self.ended.extend(lost.into_iter().map(|rank| (rank, TaskStatus::Lost)));
        if let Some(part) = self.part_mut(node) {
            part.left = 0;
        }
        any
    }

    /// The tasks of a part that were lost.
    pub(crate) fn lost_of(&self, node: NodeId) -> Vec<Rank> {
        let ranks = self.part(node).into_iter().flat_map(Part::ranks);
        ranks.filter(|rank| self.ended.get(rank) == Some(&TaskStatus::Lost)).collect()
    }

    /// It is unknown how the tasks on a node ended that had not yet.
    pub fn hear_of_loss(&mut self, node: NodeId) {
        if self.part(node).is_some_and(|part| !part.cleared && part.left > 0) {
            self.hear(TaskStatus::Lost);
        }
    }

    /// A task has ended. Names its node if it was the last one there.
    pub fn task_ended(
        &mut self,
        rank: Rank,
        status: TaskStatus,
        rules: Rules,
    ) -> (TaskEnd, Option<NodeId>) {
        let after = self.parts.partition_point(|part| part.first <= rank.0);
        let part = after.checked_sub(1).and_then(|index| self.parts.get_mut(index));
        let Some(part) = part.filter(|part| part.has(rank)) else {
            return (TaskEnd::Unknown, None);
        };
        if part.cleared || part.left == 0 || self.ended.contains_key(&rank) {
            return (TaskEnd::Unknown, None);
        }
        part.left -= 1;
        let node = part.node;
        let emptied = (!part.is_present()).then_some(node);
        self.ended.insert(rank, status);
        let may_return = status == TaskStatus::Lost && rules.respawns() && !self.ending();
        if !may_return {
            self.hear(status);
        }
        match fatal(status, rules, node) {
            Some(reason) if !self.ending() => (TaskEnd::Fatal(reason), emptied),
            None if leaves_others_waiting(status, rules) => (TaskEnd::Failing, emptied),
            _ => (TaskEnd::Noted, emptied),
        }
    }

    /// All tasks that are left have ended like this, and nothing of the job is on any node.
    pub fn end(&mut self, status: TaskStatus, rules: Rules, now: ClusterTime) {
        let first = self.parts.iter().find(|part| part.left > 0).map(|part| part.node);
        if let Some(node) = first {
            self.hear(status);
            if let Some(reason) = fatal(status, rules, node).filter(|_| !self.ending()) {
                self.kill(reason, now, Deaths::Collateral);
            }
        }
        for part in &mut self.parts {
            part.left = 0;
            part.cleared = true;
        }
    }

    /// What a task's status says for the whole job.
    pub(crate) fn hear(&mut self, status: TaskStatus) {
        let silent = Deaths::Collateral;
        if !matches!(self.course, Course::Killed { deaths, .. } if deaths == silent) {
            self.exit_code = self.exit_code.max(status.exit_code());
        }
    }

    /// A node is lost. Says whether something of the job was still on it.
    pub fn lose(&mut self, node: NodeId) -> bool {
        let was_there = self.clear(node).is_some();
        if let Some(part) = self.part_mut(node) {
            part.lost = true;
        }
        was_there
    }

    /// Nothing of the job is left on a node. Says whether tasks were unaccounted for there;
    /// `None` if it was cleared before or never had a part there.
    pub fn clear(&mut self, node: NodeId) -> Option<u32> {
        let part = self.part_mut(node).filter(|part| !part.cleared)?;
        part.cleared = true;
        Some(core::mem::take(&mut part.left))
    }

    /// How it ended, once it is cleared.
    #[must_use]
    pub const fn outcome(&self, service: Nanos) -> Outcome {
        let reason = match self.course {
            Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => {
                EndReason::Completed
            }
            Course::Terminating { reason, .. } | Course::Killed { reason, .. } => reason,
        };
        let statuses = match (reason, self.exit_code) {
            // The task that it waited for in vain had returned 0.
            (EndReason::TaskFailed, 0) => 1,
            (_, exit_code) => exit_code,
        };
        Outcome { reason, exit_code: reason.exit_code_or(statuses), service }
    }
}

/// Whether a task's end takes the job with it, and for which reason.
fn fatal(status: TaskStatus, rules: Rules, node: NodeId) -> Option<EndReason> {
    let rule = rules.on_bad_exit;
    let failed = match rule {
        OnBadExit::Continue | OnBadExit::Notify { .. } => None,
        OnBadExit::Kill | OnBadExit::KillOnSignal => Some(EndReason::TaskFailed),
    };
    match status {
        TaskStatus::Aborted(_) if matches!(rule, OnBadExit::Notify { .. }) => {
            Some(EndReason::TaskFailed)
        }
        TaskStatus::Exited(0) => None,
        TaskStatus::Exited(_) if rule == OnBadExit::Kill => failed,
        TaskStatus::Unfinalized(1..) if rule == OnBadExit::Kill => failed,
        TaskStatus::Exited(_)
        | TaskStatus::Unfinalized(_)
        | TaskStatus::Unknown
        | TaskStatus::Saved
        | TaskStatus::NotRestored
        | TaskStatus::Damaged => None,
        // A task that never came to be leaves the others waiting for it just as a dead one does.
        TaskStatus::Signaled(_)
        | TaskStatus::Aborted(_)
        | TaskStatus::NotFound
        | TaskStatus::NotExecutable => failed,
        TaskStatus::OutOfMemory => failed.map(|_| EndReason::OutOfMemory),
        TaskStatus::Lost => match rules.on_node_loss {
            OnNodeLoss::Notify { .. } | OnNodeLoss::Respawn { .. } => None,
            // It is unknown what the tasks there do, so no other rule can apply to them.
            OnNodeLoss::Kill | OnNodeLoss::Requeue => Some(EndReason::NodeLost(node)),
        },
    }
}

/// Whether the others are given the job's grace after this end, and no more.
fn leaves_others_waiting(status: TaskStatus, rules: Rules) -> bool {
    matches!(status, TaskStatus::Unfinalized(_)) && !rules.on_bad_exit.goes_on()
}

#[cfg(test)]
mod tests {
    use super::{Binding, Course, Deaths, Part, Residence, Rules, TaskEnd};
    use tutti_types::ids::{NodeId, ProcessorSet, Rank};
    use tutti_types::job::{EndReason, OnBadExit, TaskStatus};
    use tutti_types::time::{ClusterTime, Nanos};

    fn rules(on_bad_exit: OnBadExit) -> Rules {
        Rules { on_bad_exit, ..Rules::default() }
    }

    fn residence(tasks: &[u32]) -> Residence {
        let mut first = 0;
        let part = |(node, &tasks): (u32, &u32)| {
            let part = Part::new(NodeId(node), ProcessorSet::first(tasks), first, tasks);
            first += tasks;
            Part { binding: Binding::Own(1), ..part }
        };
        Residence::new(ClusterTime(0), (0..).zip(tasks).map(part).collect())
    }

    #[test]
    fn ranks_get_their_own_processors_or_share_all() {
        let mut part = Part::new(NodeId(0), ProcessorSet::first(4), 6, 2);
        let shown = |part: &Part| -> Vec<String> {
            let placements = part.placements();
            placements.iter().map(|task| format!("{}:{}", task.rank, task.processors)).collect()
        };
        assert_eq!(shown(&part), ["6:0-3", "7:0-3"]);
        part.binding = Binding::Own(2);
        assert_eq!(shown(&part), ["6:0-1", "7:2-3"]);
        assert!(part.has(Rank(7)) && !part.has(Rank(8)) && !part.has(Rank(5)));
    }

    #[test]
    fn the_exit_code_is_that_of_the_task_that_failed_not_of_its_victims() {
        let mut job = residence(&[2, 1]);
        let end = job.task_ended(Rank(2), TaskStatus::Exited(3), rules(OnBadExit::Kill));
        assert_eq!(end, (TaskEnd::Fatal(EndReason::TaskFailed), Some(NodeId(1))));
        job.kill(EndReason::TaskFailed, ClusterTime(1), Deaths::Collateral);
        for rank in [0, 1] {
            job.task_ended(Rank(rank), TaskStatus::Signaled(9), rules(OnBadExit::Kill));
        }
        assert_eq!(job.outcome(Nanos(0)).exit_code, 3);
    }

    #[test]
    fn tasks_that_die_of_what_the_user_asked_for_speak_for_the_job() {
        let mut job = residence(&[2]);
        job.terminate(EndReason::Cancelled, ClusterTime(1), ClusterTime(9));
        let end = job.task_ended(Rank(0), TaskStatus::Signaled(15), rules(OnBadExit::Kill));
        assert_eq!(end, (TaskEnd::Noted, None));
        job.kill(EndReason::Cancelled, ClusterTime(9), Deaths::Meant);
        job.task_ended(Rank(1), TaskStatus::Signaled(9), rules(OnBadExit::Kill));
        assert_eq!(job.outcome(Nanos(0)).exit_code, 143, "the highest");
        assert_eq!(job.outcome(Nanos(0)).reason, EndReason::Cancelled);
    }

    #[test]
    fn who_was_to_end_and_is_lost_has_not_ended_well() {
        let mut job = residence(&[2, 1]);
        job.terminate(EndReason::Cancelled, ClusterTime(1), ClusterTime(9));
        job.hear_of_loss(NodeId(1));
        job.kill(EndReason::NodeLost(NodeId(1)), ClusterTime(2), Deaths::Collateral);
        let outcome = job.outcome(Nanos(0));
        assert_eq!(outcome.reason, EndReason::Cancelled);
        assert_eq!(outcome.exit_code, TaskStatus::Lost.exit_code());
        // Tasks elsewhere are killed with it.
        let mut job = residence(&[1, 1]);
        job.task_ended(Rank(1), TaskStatus::Exited(0), rules(OnBadExit::Kill));
        job.terminate(EndReason::Cancelled, ClusterTime(1), ClusterTime(9));
        job.hear_of_loss(NodeId(1));
        job.kill(EndReason::NodeLost(NodeId(1)), ClusterTime(2), Deaths::Collateral);
        job.task_ended(Rank(0), TaskStatus::Signaled(9), rules(OnBadExit::Kill));
        assert_eq!(job.outcome(Nanos(0)).exit_code, TaskStatus::Lost.exit_code());
        // Where all had ended nothing was lost.
        let mut job = residence(&[1, 1]);
        job.task_ended(Rank(1), TaskStatus::Exited(0), rules(OnBadExit::Kill));
        job.hear_of_loss(NodeId(1));
        assert_eq!(job.exit_code, 0);
    }

    #[test]
    fn the_rule_for_bad_exits_decides() {
        use OnBadExit::{Continue, Kill, KillOnSignal};
        let failed = TaskEnd::Fatal(EndReason::TaskFailed);
        for (rule, status, expected) in [
            (Kill, TaskStatus::Exited(0), TaskEnd::Noted),
            (Kill, TaskStatus::Exited(1), failed),
            (KillOnSignal, TaskStatus::Exited(1), TaskEnd::Noted),
            (KillOnSignal, TaskStatus::Signaled(11), failed),
            (KillOnSignal, TaskStatus::Aborted(1), failed),
            (KillOnSignal, TaskStatus::NotFound, failed),
            (KillOnSignal, TaskStatus::OutOfMemory, TaskEnd::Fatal(EndReason::OutOfMemory)),
            (Continue, TaskStatus::Signaled(9), TaskEnd::Noted),
            (Continue, TaskStatus::OutOfMemory, TaskEnd::Noted),
            (Kill, TaskStatus::Unknown, TaskEnd::Noted),
            (Continue, TaskStatus::Lost, TaskEnd::Fatal(EndReason::NodeLost(NodeId(0)))),
        ] {
            let (end, _) = residence(&[2]).task_ended(Rank(1), status, rules(rule));
            assert_eq!(end, expected, "{status:?}");
        }
    }

    #[test]
    fn unknown_and_repeated_reports_change_nothing() {
        let mut job = residence(&[1, 1]);
        let before = job.clone();
        let end = job.task_ended(Rank(2), TaskStatus::Exited(1), rules(OnBadExit::Kill));
        assert_eq!(end, (TaskEnd::Unknown, None));
        assert_eq!(job.clear(NodeId(5)), None);
        assert_eq!(job, before);
        assert_eq!(job.clear(NodeId(0)), Some(1));
        assert_eq!(job.clear(NodeId(0)), None);
        let late = job.task_ended(Rank(0), TaskStatus::Exited(9), rules(OnBadExit::Kill));
        assert_eq!((late, job.exit_code), ((TaskEnd::Unknown, None), 0));
    }

    #[test]
    fn courses_only_go_forward_and_the_first_reason_stands() {
        let mut job = residence(&[1]);
        job.orphan(ClusterTime(20));
        assert_eq!(job.course, Course::Orphaned { kill_at: ClusterTime(20) });
        assert!(job.terminate(EndReason::TimedOut, ClusterTime(2), ClusterTime(50)));
        assert!(!job.terminate(EndReason::Cancelled, ClusterTime(3), ClusterTime(50)));
        job.orphan(ClusterTime(20));
        assert!(job.kill(EndReason::Cancelled, ClusterTime(4), Deaths::Meant));
        assert!(!job.kill(EndReason::ShutDown, ClusterTime(5), Deaths::Collateral));
        assert_eq!(job.outcome(Nanos(0)).reason, EndReason::TimedOut);
    }

    #[test]
    fn tasks_that_share_processors_are_dealt_out_where_that_is_even() {
        let of = |tasks| {
            let part = Part::new(NodeId(0), [3, 5].into_iter().collect(), 4, tasks);
            let placements = part.placements().into_iter();
            placements.map(|it| (it.rank.0, it.processors.iter().collect())).collect::<Vec<_>>()
        };
        let two = |rank| (rank, vec![3, 5]);
        assert_eq!(of(1), [two(4)]);
        assert_eq!(of(3), [two(4), two(5), two(6)]);
        assert_eq!(of(4), [(4, vec![3]), (5, vec![5]), (6, vec![3]), (7, vec![5])]);
    }
}
