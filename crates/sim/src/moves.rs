//! Jobs on their way out of the matrix and back: how long it takes, and which arrives next.
//!
//! What a job has in memory is written out when it is preempted, and read when it comes back. That
//! takes so long for any job, and so much more for each of its processors; jobs that are on their
//! way at the same time do not slow each other down.

use std::collections::BTreeMap;
use tutti_core::Event;
use tutti_types::{ClusterTime, JobId, Nanos};

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

/// Those on their way, by when they arrive; at one moment, in the order in which they set out.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    cost: MoveCost,
    begun: u64,
    under_way: BTreeMap<(ClusterTime, u64), Event>,
}

impl Moves {
    pub(crate) fn new(cost: MoveCost) -> Self {
        Self { cost, ..Self::default() }
    }

    pub(crate) fn out(&mut self, now: ClusterTime, job: JobId, processors: u32) {
        self.begin(now, processors, Event::MovedOut { job });
    }

    pub(crate) fn back(&mut self, now: ClusterTime, job: JobId, processors: u32) {
        self.begin(now, processors, Event::MovedIn { job });
    }

    /// An answer that comes at once.
    pub(crate) fn at_once(&mut self, now: ClusterTime, answer: Event) {
        self.begun += 1;
        self.under_way.insert((now, self.begun), answer);
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
