//! Jobs on their way out of the matrix and back: how long it takes, and which arrives next.
//!
//! What a job has in memory is written out when it is preempted, and read when it comes back. That
//! takes so long for any job, and so much more for each of its processors; jobs that are on their
//! way at the same time do not slow each other down.

use std::collections::BTreeMap;
use tutti_core::Event;
use tutti_types::{ClusterTime, JobId, Nanos, NodeId};

/// How long it takes a job to leave its processors, and as long again to come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCost {
    /// For any job.
    pub per_job: Nanos,
    /// For each of its processors.
    pub per_processor: Nanos,
}

impl MoveCost {
    fn of(self, processors: u32) -> Nanos {
        self.per_job + Nanos(self.per_processor.0.saturating_mul(u64::from(processors)))
    }
}

/// Swap space of each node, and how fast memory moves there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSpace {
    /// In bytes.
    pub bytes: u64,
    /// How many bytes move in a second, out or back.
    pub bytes_per_second: u64,
}

/// An order to move the memory of a job on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapOrder {
    pub(crate) job: JobId,
    pub(crate) node: NodeId,
    pub(crate) order: u64,
    pub(crate) out: bool,
    /// What is allocated to the job there, in bytes.
    pub(crate) allocated: u64,
}

/// Those on their way, by when they arrive; at one moment, in the order in which they set out.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    cost: MoveCost,
    begun: u64,
    under_way: BTreeMap<(ClusterTime, u64), Event>,
    /// `None`: all memory moves at once, and there is room for it.
    swap: Option<SwapSpace>,
    /// What of jobs is in swap space of nodes, in bytes.
    left: BTreeMap<(NodeId, JobId), u64>,
}

impl Moves {
    pub(crate) fn new(cost: MoveCost, swap: Option<SwapSpace>) -> Self {
        Self { cost, swap, ..Self::default() }
    }

    /// A node moves memory of a job.
    pub(crate) fn swap(&mut self, now: ClusterTime, order: SwapOrder) {
        let SwapOrder { job, node, order, out, allocated } = order;
        let Some(swap) = self.swap else {
            return self.answer_at(now, Event::swapped_at_once(job, node, order));
        };
        let before = self.left.remove(&(node, job)).unwrap_or(0);
        let of_node = self.left.range((node, JobId(0))..=(node, JobId(u64::MAX)));
        let space = swap.bytes.saturating_sub(of_node.map(|(_, bytes)| bytes).sum());
        let left_bytes = if out { allocated.min(space) } else { 0 };
        if out {
            self.left.insert((node, job), left_bytes);
        }
        let ns = u128::from(left_bytes.abs_diff(before)) * 1_000_000_000;
        let ns = ns / u128::from(swap.bytes_per_second.max(1));
        let took = Nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let resident_bytes = allocated - left_bytes;
        let space_bytes = space - left_bytes;
        let answer =
            Event::Swapped { job, node, order, resident_bytes, left_bytes, took, space_bytes };
        self.answer_at(now + took, answer);
    }

    /// A job has ended.
    pub(crate) fn forget(&mut self, job: JobId) {
        if self.swap.is_some() {
            self.left.retain(|&(_, other), _| other != job);
        }
    }

    pub(crate) fn out(&mut self, now: ClusterTime, job: JobId, processors: u32) {
        self.begin(now, processors, Event::MovedOut { job });
    }

    pub(crate) fn back(&mut self, now: ClusterTime, job: JobId, processors: u32) {
        self.begin(now, processors, Event::MovedIn { job });
    }

    /// An answer that comes then.
    fn answer_at(&mut self, at: ClusterTime, answer: Event) {
        self.begun += 1;
        self.under_way.insert((at, self.begun), answer);
    }

    fn begin(&mut self, now: ClusterTime, processors: u32, arrival: Event) {
        self.begun += 1;
        self.under_way.insert((now + self.cost.of(processors), self.begun), arrival);
    }

    /// When the next one arrives.
    pub(crate) fn next(&self) -> ClusterTime {
        self.under_way.keys().next().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    /// The next one that has arrived by now.
    pub(crate) fn arrived(&mut self, now: ClusterTime) -> Option<Event> {
        let first = self.under_way.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}
