//! Swap: the memory of suspended and preempted jobs leaves, and counts as free once it has left.
//!
//! ```text
//! (here) --suspended, preempted--> Out --to run again--> Wanted --memory admitted--> In --> (here)
//!                                   ^                       |                         |
//!                                   \------- suspended, preempted again --------------/
//! ```
//!
//! The state of a preempted job is moved to disk (LLNL paper); here the nodes swap it out. The core
//! orders it ([`Action::Swap`]) and each node answers with [`Event::Swapped`]: how much of the job
//! is still resident there. Of the memory that the job was promised, what is not resident is free
//! for other jobs from then on. A node that can't swap, or fails, answers with what is resident;
//! nothing is free then, and the job is where it was.
//!
//! A job whose memory has left does not run. Before it does, the whole of its memory is admitted
//! again. It takes what is free at once and the rest as it comes, before all jobs in line: a job
//! that waits for memory is not passed by later ones for ever. Jobs that wait for memory of one
//! node take it in the order in which they began to wait, so that none holds what another waits
//! for. Then the nodes bring the memory back, and with the last answer the job runs.
//!
//! Jobs with promised times (`policy=deadline`) are not swapped: their promises count on no such
//! delay.

use crate::action::Action;
use crate::controller::Core;
use crate::event::Event;
use crate::policy::WaitReason;
use crate::state::record::{Course, Part, Residence};
use crate::termination::memory_of;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId};
use tutti_types::job::JobSpec;
use tutti_types::params::SwapJobs;
use tutti_types::time::{ClusterTime, Nanos};

/// The jobs whose memory may leave, and those whose memory has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Swaps {
    /// The jobs that were submitted with `--swap`.
    asked: BTreeSet<JobId>,
    jobs: BTreeMap<JobId, Swap>,
    /// The jobs that are [`SwapCourse::Wanted`] or [`SwapCourse::In`], the longest wait first.
    wanted: Vec<JobId>,
    /// The jobs whose nodes get an order.
    unsent: Vec<JobId>,
    /// How many orders there were.
    orders: u64,
}

/// A job whose memory leaves, has left, or comes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Swap {
    course: SwapCourse,
    /// The number of its latest order: an answer to an earlier one says nothing.
    order: u64,
    /// When it last was to leave.
    since: ClusterTime,
    parts: BTreeMap<NodeId, SwapPart>,
}

/// Where the memory of a job is on its way out and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SwapCourse {
    /// It leaves, or has left.
    Out,
    /// The job is to run again and waits for free memory.
    Wanted,
    /// It comes back; all of it is admitted.
    In,
}

/// The memory of a job on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct SwapPart {
    /// Whether the node has answered the latest order.
    answered: bool,
    /// What has left, in bytes.
    left_bytes: u64,
    /// What of the promised memory is free for others, in bytes.
    freed_bytes: u64,
    /// How long it took to leave.
    took: Nanos,
}

/// What is shown of a job whose memory leaves, has left, or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapView {
    /// On its way out or back.
    pub course: SwapCourse,
    /// Whether nodes have yet to answer.
    pub is_under_way: bool,
    /// What has left, on all nodes, in bytes.
    pub left_bytes: u64,
    /// What of the job's promised memory other jobs may have meanwhile, on all nodes, in bytes.
    pub freed_bytes: u64,
}

impl Swaps {
    pub(crate) fn note(&mut self, job: JobId) {
        self.asked.insert(job);
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.asked.remove(&job);
    }

    /// Whether the memory of a job is not all here.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// What of the promised memory of a job on a node is free for others, in bytes.
    pub(crate) fn freed_bytes(&self, job: JobId, node: NodeId) -> u64 {
        let part = self.jobs.get(&job).and_then(|swap| swap.parts.get(&node));
        part.map_or(0, |part| part.freed_bytes)
    }

    /// The memory that counts for a part of a job, in bytes.
    pub(crate) fn counted_bytes(&self, job: JobId, part: &Part, spec: &JobSpec) -> u64 {
        memory_of(part, spec).saturating_sub(self.freed_bytes(job, part.node))
    }

    /// A job has left its nodes, or starts anew.
    pub(crate) fn end(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.wanted.retain(|&other| other != job);
    }

    /// What was on a node is gone.
    pub(crate) fn lose_node(&mut self, node: NodeId) {
        for swap in self.jobs.values_mut() {
            swap.parts.remove(&node);
        }
    }

    fn order(&mut self, job: JobId, course: SwapCourse) {
        let Some(swap) = self.jobs.get_mut(&job) else { return };
        self.orders += 1;
        swap.course = course;
        swap.order = self.orders;
        swap.parts.values_mut().for_each(|part| part.answered = false);
        self.unsent.push(job);
    }

    /// A job that leaves just now.
    pub(crate) fn leaving(&self) -> Option<JobId> {
        let leaves = |swap: &Swap| {
            swap.course == SwapCourse::Out && swap.parts.values().any(|part| !part.answered)
        };
        self.jobs.iter().find(|(_, swap)| leaves(swap)).map(|(&job, _)| job)
    }
}

impl Core {
    /// Has the memory of a job leave that does not run for long, if it may.
    pub(crate) fn swap_out(&mut self, job: JobId) {
        let Some(nodes) = self.swappable_on(job) else { return };
        let now = self.now;
        let fresh = || {
            let parts = nodes.iter().map(|&node| (node, SwapPart::default())).collect();
            Swap { course: SwapCourse::Out, order: 0, since: now, parts }
        };
        let swap = self.swaps.jobs.entry(job).or_insert_with(fresh);
        if swap.course == SwapCourse::Out && swap.order > 0 {
            return;
        }
        swap.since = now;
        self.swaps.wanted.retain(|&other| other != job);
        self.swaps.order(job, SwapCourse::Out);
    }

    /// The nodes where memory of a job may be swapped out; `None`: it may not.
    fn swappable_on(&self, job: JobId) -> Option<Vec<NodeId>> {
        let record = self.jobs.get(&job)?;
        let may = match self.params.swap() {
            SwapJobs::Asked => self.swaps.asked.contains(&job),
            SwapJobs::All => true,
            SwapJobs::Never => false,
        };
        let residence = record.residence().filter(|it| it.may_come_back() && !it.ending())?;
        if !may || record.spec.movable || self.policy().plans() {
            return None;
        }
        let here = residence.parts.iter().filter(|part| !part.cleared && !part.lost);
        let nodes: Vec<NodeId> = here.map(|part| part.node).collect();
        (!nodes.is_empty()).then_some(nodes)
    }

    /// Whether a job runs in its turns: it is neither suspended nor preempted, and its memory is
    /// here.
    pub(crate) fn takes_turns(&self, job: JobId) -> bool {
        self.may_take_turns(job) && !self.swaps.has(job)
    }

    fn may_take_turns(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|record| record.may_take_turns())
    }

    /// Has a job run in its turns, if nothing speaks against it; whether it does. One whose memory
    /// has left is brought back first.
    pub(crate) fn activate(&mut self, job: JobId) -> bool {
        if !self.may_take_turns(job) {
            return false;
        }
        if let Some(swap) = self.swaps.jobs.get_mut(&job) {
            if swap.course == SwapCourse::Out {
                swap.course = SwapCourse::Wanted;
            }
            if !self.swaps.wanted.contains(&job) {
                self.swaps.wanted.push(job);
            }
            return false;
        }
        self.matrix.activate(job);
        true
    }

    /// Whether the memory that a job lacks is free on all its nodes.
    pub(crate) fn may_swap_in(&self, job: JobId) -> bool {
        let parts = self.swaps.jobs.get(&job).into_iter().flat_map(|swap| &swap.parts);
        parts.into_iter().all(|(&node, part)| part.freed_bytes <= self.nodes.free_bytes(node))
    }

    /// Admits the memory of jobs that are to run again, as far as it is free, and lets those run
    /// whose memory is back.
    pub(crate) fn follow_swaps(&mut self) {
        if self.swaps.wanted.is_empty() {
            return;
        }
        let mut claimed = BTreeSet::new();
        for job in self.swaps.wanted.clone() {
            // Lost tasks may start again on other nodes.
            let is_killed = |it: &Residence| matches!(it.course, Course::Killed { .. });
            if self.residence(job).is_none_or(is_killed) {
                self.swaps.wanted.retain(|&other| other != job);
                continue;
            }
            match self.swaps.jobs.get(&job).map(|swap| swap.course) {
                Some(SwapCourse::Wanted) => self.admit_again(job, &mut claimed),
                Some(SwapCourse::In) => self.run_if_back(job),
                Some(SwapCourse::Out) | None => {}
            }
        }
    }

    /// Admits what is free now of the memory that a job lacks.
    fn admit_again(&mut self, job: JobId, claimed: &mut BTreeSet<NodeId>) {
        let Some(swap) = self.swaps.jobs.get_mut(&job) else { return };
        if swap.parts.keys().any(|node| claimed.contains(node)) {
            claimed.extend(swap.parts.keys());
            return;
        }
        let mut lacks = false;
        for (&node, part) in &mut swap.parts {
            let bytes = part.freed_bytes.min(self.nodes.free_bytes(node));
            self.nodes.admit(node, bytes);
            part.freed_bytes -= bytes;
            if part.freed_bytes > 0 {
                lacks = true;
                claimed.insert(node);
            }
        }
        if !lacks {
            self.swaps.order(job, SwapCourse::In);
        }
    }

    /// Lets a job run when the last of its nodes has its memory back.
    fn run_if_back(&mut self, job: JobId) {
        let Some(swap) = self.swaps.jobs.get(&job) else { return };
        let residence = self.residence(job);
        let is_gone = |node| residence.and_then(|it| it.part(node)).is_none_or(|it| it.cleared);
        if swap.parts.iter().all(|(&node, part)| part.answered || is_gone(node)) {
            self.swaps.end(job);
            self.begin_grace(job);
            self.give_turns(job);
            self.queue.disturbed = true;
        }
    }

    /// A node has moved memory of a job out or in.
    pub(crate) fn on_swapped(&mut self, event: &Event) {
        let Event::Swapped { job, node, order, resident_bytes, left_bytes, took } = *event else {
            return;
        };
        let promised = self.promised_bytes(job, node);
        let Some(swap) = self.swaps.jobs.get_mut(&job).filter(|swap| swap.order == order) else {
            return;
        };
        let Some(part) = swap.parts.get_mut(&node) else { return };
        part.answered = true;
        if swap.course == SwapCourse::In {
            return;
        }
        (part.left_bytes, part.took) = (left_bytes, took);
        if swap.course == SwapCourse::Wanted {
            return;
        }
        let (free, before) = (promised.saturating_sub(resident_bytes), part.freed_bytes);
        if free >= before {
            self.nodes.release(node, free - before);
            part.freed_bytes = free;
        } else {
            // More is here than the node had said. What others were promised stays theirs.
            let bytes = (before - free).min(self.nodes.free_bytes(node));
            self.nodes.admit(node, bytes);
            part.freed_bytes = before - bytes;
        }
        self.queue.reconsider();
    }

    fn promised_bytes(&self, job: JobId, node: NodeId) -> u64 {
        let Some(record) = self.jobs.get(&job) else { return 0 };
        let part = record.residence().and_then(|it| it.part(node));
        part.map_or(0, |part| memory_of(part, &record.spec))
    }

    /// Tells nodes which memory they are to move.
    pub(crate) fn send_swaps(&mut self, actions: &mut Vec<Action>) {
        for job in core::mem::take(&mut self.swaps.unsent) {
            let Some(swap) = self.swaps.jobs.get(&job) else { continue };
            actions.extend(swap.parts.keys().filter_map(|&node| self.order_to((job, swap), node)));
        }
    }

    fn order_to(&self, (job, swap): (JobId, &Swap), node: NodeId) -> Option<Action> {
        let out = swap.course == SwapCourse::Out;
        let part = self.residence(job).and_then(|it| it.part(node));
        // One that waits for memory stays where it is.
        let is_here = swap.course != SwapCourse::Wanted && part.is_some_and(|it| !it.cleared);
        is_here.then_some(Action::Swap { job, node, order: swap.order, out })
    }

    /// The orders that a node has not answered: an agent that comes back may have missed them.
    pub fn swap_orders(&self, node: NodeId) -> impl Iterator<Item = Action> {
        let is_open = move |swap: &Swap| swap.parts.get(&node).is_some_and(|part| !part.answered);
        let open = self.swaps.jobs.iter().filter(move |(_, swap)| is_open(swap));
        open.filter_map(move |(&job, swap)| self.order_to((job, swap), node))
    }

    /// A reason to wait; for memory, whether some is leaving.
    pub(crate) fn or_memory_leaves(&self, why: WaitReason) -> WaitReason {
        match self.swaps.leaving().filter(|_| why == WaitReason::Memory) {
            Some(job) => WaitReason::MemoryLeaves { job },
            None => why,
        }
    }

    /// What is shown of a job whose memory is not all here.
    pub(crate) fn swap_view(&self, job: JobId) -> Option<SwapView> {
        let swap = self.swaps.jobs.get(&job)?;
        let sum = |of: fn(&SwapPart) -> u64| swap.parts.values().map(of).sum();
        Some(SwapView {
            course: swap.course,
            is_under_way: swap.parts.values().any(|part| !part.answered),
            left_bytes: sum(|part| part.left_bytes),
            freed_bytes: sum(|part| part.freed_bytes),
        })
    }
}
