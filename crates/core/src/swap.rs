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
//! is still resident there. Of the memory allocated to the job, what is not resident is free
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
use crate::apply::Core;
use crate::event::Event;
use crate::memory_turns::MemoryTurns;
use crate::policy::WaitReason;
use crate::state::nodes::Nodes;
use crate::state::record::{Course, Part, Residence};
use crate::termination::memory_of;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId};
use tutti_types::job::JobSpec;
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::params::{Params, SwapJobs};
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
    /// Free swap space of nodes, as far as they have said, in bytes.
    space: BTreeMap<NodeId, u64>,
    /// What of jobs stayed in memory the last time though there was swap space, in bytes.
    stays: BTreeMap<(JobId, NodeId), u64>,
    /// Jobs that take turns in memory.
    pub(crate) turns: MemoryTurns,
}

/// A job whose memory leaves, has left, or comes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Swap {
    course: SwapCourse,
    /// The number of its latest order: an answer to an earlier one says nothing.
    order: u64,
    /// When it last was to leave.
    since: ClusterTime,
    /// Its user has resumed it since, so it comes back at any time.
    resumed: bool,
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
    /// What was expected to leave when that was ordered, in bytes.
    due_bytes: u64,
    /// What has left, in bytes.
    left_bytes: u64,
    /// What of the allocated memory is free for others, in bytes.
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
    /// What of the job's allocated memory other jobs may have meanwhile, on all nodes, in bytes.
    pub freed_bytes: u64,
}

impl Swaps {
    pub(crate) fn note(&mut self, job: JobId) {
        self.asked.insert(job);
    }

    /// Its user resumes a job.
    pub(crate) fn resume(&mut self, job: JobId) {
        if let Some(swap) = self.jobs.get_mut(&job) {
            swap.resumed = true;
        }
    }

    /// The jobs that may be swapped out by request; `None`: all may.
    pub(crate) fn asked_of(&self, params: &Params) -> Option<&BTreeSet<JobId>> {
        (params.swap() != SwapJobs::All).then_some(&self.asked)
    }

    /// Whether a job may be swapped out by the parameter `swap`.
    pub(crate) fn may_leave_by(&self, params: &Params, job: JobId) -> bool {
        match params.swap() {
            SwapJobs::Asked => self.asked.contains(&job),
            SwapJobs::All => true,
            SwapJobs::Never => false,
        }
    }

    /// Whether there is any job that may be.
    pub(crate) fn any_may_leave(&self, params: &Params) -> bool {
        match params.swap() {
            SwapJobs::Asked => !self.asked.is_empty(),
            SwapJobs::All => true,
            SwapJobs::Never => false,
        }
    }

    /// Whether memory of any job is on its way.
    pub(crate) fn is_moving(&self) -> bool {
        let course = |job| self.jobs.get(job).map(|swap| swap.course);
        let comes = self.wanted.iter().any(|job| course(job) == Some(SwapCourse::In));
        comes || self.leaving().is_some()
    }

    /// The jobs that are to run again and lack memory, the longest wait first.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = JobId> {
        let lacks =
            |job: &JobId| self.jobs.get(job).is_some_and(|it| it.course == SwapCourse::Wanted);
        self.wanted.iter().copied().filter(lacks)
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.asked.remove(&job);
    }

    /// Whether the memory of a job is not all here.
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// What of the allocated memory of a job on a node is free for others, in bytes.
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
        let parts = self.jobs.get(&job).into_iter().flat_map(|swap| &swap.parts);
        for (node, part) in parts {
            if let Some(space) = self.space.get_mut(node) {
                *space = space.saturating_add(part.left_bytes);
            }
        }
        self.is_back(job);
        self.turns.end(job);
        self.stays.retain(|&(other, _), _| other != job);
    }

    /// All memory of a job is here.
    fn is_back(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.wanted.retain(|&other| other != job);
    }

    /// What of so much memory of a job may leave a node, by what left the last time, in bytes.
    fn may_leave(&self, job: JobId, node: NodeId, bytes: u64) -> u64 {
        bytes.saturating_sub(self.stays.get(&(job, node)).copied().unwrap_or(0))
    }

    /// What was on a node is gone.
    pub(crate) fn lose_node(&mut self, node: NodeId) {
        self.stays.retain(|&(_, other), _| other != node);
        for swap in self.jobs.values_mut() {
            swap.parts.remove(&node);
        }
    }

    /// A node is one no longer.
    pub(crate) fn remove_node(&mut self, node: NodeId) {
        self.space.remove(&node);
        self.turns.remove_node(node);
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
        self.jobs.keys().copied().find(|&job| self.leaves(job))
    }

    /// Whether memory of a job leaves just now.
    pub(crate) fn leaves(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|swap| {
            swap.course == SwapCourse::Out && swap.parts.values().any(|part| !part.answered)
        })
    }

    /// What is expected to leave a node by orders that it has not answered, in bytes.
    fn due_bytes(&self, node: NodeId) -> u64 {
        let out = self.jobs.values().filter(|swap| swap.course == SwapCourse::Out);
        let open = out.filter_map(|swap| swap.parts.get(&node)).filter(|part| !part.answered);
        open.map(|part| part.due_bytes).fold(0, u64::saturating_add)
    }

    /// Swap space of a node for what has no order yet, in bytes.
    fn open_space(&self, node: NodeId) -> u64 {
        self.space.get(&node).copied().unwrap_or(0).saturating_sub(self.due_bytes(node))
    }
}

impl Core {
    /// Has the memory of a job leave that does not run for long, if it may.
    pub(crate) fn swap_out(&mut self, job: JobId) {
        let Some(nodes) = self.swappable_on(job) else { return };
        let now = self.now;
        let due = nodes.iter().map(|&node| (node, self.would_leave(job, node)));
        let due: BTreeMap<NodeId, u64> = due.collect();
        let fresh = || {
            let parts = nodes.iter().map(|&node| (node, SwapPart::default())).collect();
            Swap { course: SwapCourse::Out, order: 0, since: now, resumed: false, parts }
        };
        let swap = self.swaps.jobs.entry(job).or_insert_with(fresh);
        swap.resumed = false;
        if swap.course == SwapCourse::Out && swap.order > 0 {
            return;
        }
        for (node, part) in &mut swap.parts {
            part.due_bytes = due.get(node).copied().unwrap_or(0);
        }
        swap.since = now;
        self.swaps.wanted.retain(|&other| other != job);
        self.swaps.order(job, SwapCourse::Out);
    }

    /// The nodes where memory of a job may be swapped out; `None`: it may not.
    pub(crate) fn swappable_on(&self, job: JobId) -> Option<Vec<NodeId>> {
        let record = self.jobs.get(&job)?;
        let may = self.swaps.may_leave_by(&self.params, job);
        let residence = record.residence().filter(|it| it.may_come_back() && !it.ending())?;
        if !may || record.spec.movable || self.policy().plans() {
            return None;
        }
        let here = residence.parts.iter().filter(|part| !part.cleared && !part.lost);
        let nodes: Vec<NodeId> = here.map(|part| part.node).collect();
        (!nodes.is_empty()).then_some(nodes)
    }

    /// Whether a job runs in its turns: it is neither suspended nor preempted, its memory is here,
    /// and it does not lend all that it has.
    pub(crate) fn takes_turns(&self, job: JobId) -> bool {
        self.may_take_turns(job) && !self.swaps.has(job) && !self.freed.lending.is_whole(job)
    }

    pub(crate) fn may_take_turns(&self, job: JobId) -> bool {
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
        self.end_whole_loan(job);
        self.matrix.activate(job);
        true
    }

    /// Until when a job stays out whose memory has left: moving it out and back takes at most the
    /// part `swap_cost` of the time that it is out. In the past: it may come back. One that its
    /// user resumes comes back at any time, and so does one that is asked to end, to heed that.
    pub(crate) fn kept_out_until(&self, job: JobId) -> ClusterTime {
        let Some(swap) = self.swaps.jobs.get(&job) else { return ClusterTime(0) };
        if self.residence(job).is_some_and(Residence::ending) {
            return ClusterTime(0);
        }
        let is_out = |part: &&SwapPart| part.answered && part.left_bytes > 0;
        let longest = swap.parts.values().filter(is_out).map(|part| part.took).max();
        let is_kept = swap.course == SwapCourse::Out && !swap.resumed;
        let Some(took) = longest.filter(|_| is_kept) else {
            return ClusterTime(0);
        };
        let both = u128::from(took.0) * 2 * u128::from(SHARE_WHOLE);
        let least = both / u128::from(self.params.swap_cost().max(1));
        swap.since + Nanos(u64::try_from(least).unwrap_or(u64::MAX))
    }

    /// When the next preempted job may come back whose memory has left.
    pub(crate) fn next_back(&self) -> ClusterTime {
        let aside = self.swaps.jobs.keys().filter(|job| self.aside.contains(job));
        let at = aside.map(|&job| self.kept_out_until(job)).filter(|&at| at > self.now);
        at.min().unwrap_or(ClusterTime::NEVER)
    }

    /// Why a preempted job stays out though it could come back.
    pub(crate) fn why_kept_out(&self, job: JobId) -> Option<WaitReason> {
        let until = self.kept_out_until(job);
        (until > self.now).then(|| WaitReason::SwappedOut { left: until.since(self.now) })
    }

    /// Memory of a node, in bytes, that becomes free when these jobs are preempted, as far as there
    /// is swap space for it, and that is leaving already: what has left took the space for that.
    pub(crate) fn leaves_with(&self, node: NodeId, jobs: impl Iterator<Item = JobId>) -> u64 {
        let counted = |job: JobId| {
            let record = self.jobs.get(&job)?;
            let part = record.residence()?.part(node)?;
            let counted = self.swaps.counted_bytes(job, part, &record.spec);
            Some(self.swaps.may_leave(job, node, counted))
        };
        let may = jobs.filter(|&job| !self.swaps.has(job) && self.swappable_on(job).is_some());
        let bytes = may.filter_map(counted).fold(0_u64, u64::saturating_add);
        bytes.min(self.swaps.open_space(node)).saturating_add(self.swaps.due_bytes(node))
    }

    /// Memory of a job, in bytes, that is expected to leave a node once that is ordered.
    fn would_leave(&self, job: JobId, node: NodeId) -> u64 {
        let here =
            self.allocated_bytes(job, node).saturating_sub(self.swaps.freed_bytes(job, node));
        self.swaps.may_leave(job, node, here).min(self.swaps.open_space(node))
    }

    /// Takes the memory of a job from nodes that would leave if it were preempted.
    pub(crate) fn without_memory_of(&self, job: JobId, nodes: &mut Nodes) {
        let Some(on) = self.swappable_on(job).filter(|_| !self.swaps.has(job)) else { return };
        for node in on {
            let space = self.swaps.space.get(&node).copied().unwrap_or(0);
            let leaves = self.swaps.may_leave(job, node, self.allocated_bytes(job, node));
            nodes.release(node, leaves.min(space));
        }
    }

    /// Free swap space of a node, in bytes, as far as it is known.
    #[must_use]
    pub fn swap_space(&self, node: NodeId) -> Option<u64> {
        self.swaps.space.get(&node).copied()
    }

    /// Whether the memory that a job lacks is free on all its nodes.
    pub(crate) fn may_swap_in(&self, job: JobId) -> bool {
        self.may_swap_in_of(job, |node| self.bytes_to_come_back(job, node))
    }

    /// Whether the memory that a job lacks is there of so many bytes on all its nodes.
    pub(crate) fn may_swap_in_of(&self, job: JobId, free: impl Fn(NodeId) -> u64) -> bool {
        let mut parts = self.swaps.jobs.get(&job).into_iter().flat_map(|swap| &swap.parts);
        parts.all(|(&node, part)| part.freed_bytes <= free(node))
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
        let Some(swap) = self.swaps.jobs.get(&job) else { return };
        let free = |&node: &NodeId| (node, self.bytes_to_come_back(job, node));
        let free: BTreeMap<NodeId, u64> = swap.parts.keys().map(free).collect();
        let Some(swap) = self.swaps.jobs.get_mut(&job) else { return };
        if swap.parts.keys().any(|node| claimed.contains(node)) {
            claimed.extend(swap.parts.keys());
            return;
        }
        let mut lacks = false;
        for (&node, part) in &mut swap.parts {
            let bytes = part.freed_bytes.min(free.get(&node).copied().unwrap_or(0));
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
            self.swaps.is_back(job);
            self.begin_grace(job);
            self.give_turns(job);
            self.queue.disturbed = true;
        }
    }

    pub(crate) fn on_swap_event(&mut self, event: &Event) {
        if let Event::NodeSwap { node, space_bytes } = *event {
            self.note_space(node, space_bytes);
        } else {
            self.on_swapped(event);
        }
    }

    fn note_space(&mut self, node: NodeId, bytes: u64) {
        if self.swaps.space.insert(node, bytes) != Some(bytes) {
            self.queue.reconsider();
        }
    }

    /// A node has moved memory of a job out or in.
    fn on_swapped(&mut self, event: &Event) {
        let Event::Swapped { job, node, order, resident_bytes, left_bytes, took, space_bytes } =
            *event
        else {
            return;
        };
        let allocated = self.allocated_bytes(job, node);
        let is_latest = |swap: &&Swap| swap.order == order && swap.parts.contains_key(&node);
        if self.swaps.jobs.get(&job).filter(is_latest).is_none() {
            return;
        }
        self.note_space(node, space_bytes);
        let Some(swap) = self.swaps.jobs.get_mut(&job) else { return };
        let Some(part) = swap.parts.get_mut(&node) else { return };
        part.answered = true;
        part.left_bytes = left_bytes;
        if swap.course == SwapCourse::In {
            return;
        }
        part.took = took;
        self.swaps.turns.note_rate(node, left_bytes, took);
        if space_bytes > 0 {
            self.swaps.stays.insert((job, node), resident_bytes.min(allocated));
        }
        if swap.course == SwapCourse::Wanted {
            return;
        }
        let (free, before) = (allocated.saturating_sub(resident_bytes), part.freed_bytes);
        if free >= before {
            self.nodes.release(node, free - before);
            part.freed_bytes = free;
        } else {
            // More is here than the node had said. What is allocated to others stays theirs.
            let bytes = (before - free).min(self.nodes.free_bytes(node));
            self.nodes.admit(node, bytes);
            part.freed_bytes = before - bytes;
        }
        self.queue.reconsider();
    }

    fn allocated_bytes(&self, job: JobId, node: NodeId) -> u64 {
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
