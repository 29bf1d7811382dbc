//! Jobs on nodes that differ: how long each runs where it is put, and when parts of it are done.

use crate::jobs::{Live, Rest};
use crate::pace::{Batch, Pace};
use std::collections::{BTreeMap, VecDeque};
use tutti_core::Part;
use tutti_types::{JobId, Nanos, Rank};

/// See the module.
#[derive(Debug)]
pub(crate) struct Uneven {
    pace: Pace,
    /// Whether a job's tasks end by themselves.
    is_bags: bool,
    /// The tasks of bags that run, those that are done first first.
    bags: BTreeMap<JobId, VecDeque<Batch>>,
}

impl Uneven {
    pub(crate) const fn new(pace: Pace, is_bags: bool) -> Self {
        Self { pace, is_bags, bags: BTreeMap::new() }
    }

    /// A job was put on its processors.
    pub(crate) fn set_out(&mut self, live: &mut Live, parts: &[Part]) {
        let nominal = live.job.run;
        let batches = self.pace.batches(parts, nominal);
        let run = batches.last().map_or(nominal, |batch| batch.run);
        live.job.run = run;
        live.runs = (nominal, run);
        live.width = batches.iter().map(|batch| batch.processors).sum();
        live.course.left = live.job.need().0;
        if let Some(first) = batches.first().filter(|_| self.is_bags) {
            live.course.left = first.run.min(live.job.need()).0;
            self.bags.insert(live.id, batches.into());
        }
    }

    /// A job was put on other processors, all of it, with some of its run behind it.
    pub(crate) fn go_elsewhere(&self, live: &mut Live, parts: &[Part]) {
        let (nominal, before) = live.runs;
        let batches = self.pace.batches(parts, nominal);
        let now = batches.last().map_or(nominal, |batch| batch.run);
        let got = live.job.need().0.saturating_sub(live.course.left);
        let left = live.job.run.0.saturating_sub(got);
        let left = u128::from(left) * u128::from(now.0) / u128::from(before.0.max(1));
        live.job.run = Nanos(got.saturating_add(u64::try_from(left).unwrap_or(u64::MAX)));
        live.runs.1 = now;
        live.width = batches.iter().map(|batch| batch.processors).sum();
        live.course.left = live.job.need().0.saturating_sub(got);
    }

    /// A job has run as long as was said: which of its tasks are done, and what is left. `None`:
    /// all that it may have.
    pub(crate) fn some_done(&mut self, live: &Live) -> Option<(Vec<Rank>, Rest)> {
        let bag = self.bags.get_mut(&live.id)?;
        let got = bag.front()?.run;
        let mut ranks = Vec::new();
        let mut width = live.width;
        while let Some(batch) = bag.front().copied().filter(|batch| batch.run == got) {
            bag.pop_front();
            ranks.extend((batch.first..batch.first + batch.tasks).map(Rank));
            width -= batch.processors;
        }
        let next = bag.front()?.run.min(live.job.need());
        let left = next.0.checked_sub(got.0).filter(|&left| left > 0)?;
        Some((ranks, Rest { left, width }))
    }

    /// Whether a job that has run as long as was said may go on.
    pub(crate) fn has_more(&self, job: JobId) -> bool {
        self.bags.contains_key(&job)
    }

    pub(crate) fn forget(&mut self, job: JobId) {
        self.bags.remove(&job);
    }
}
