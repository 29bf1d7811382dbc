//! Who of a row runs now, and what comes of it.
//!
//! In this order, each if its processors are not taken by one before it:
//!
//! 1. those whose promised time it is (never two on one processor);
//! 2. those that are ending, so that they can;
//! 3. those with a promise, the first to be due first: what they run before their time is not needed
//!    later, and is given back;
//! 4. those whose promise could not be kept, the first to be due first;
//! 5. all others, in the order of acceptance; last of all those of whom nothing is left but to clear
//!    away.

use super::busy::Busy;
use super::promise::Promise;
use crate::ids::{JobId, NodeId, ProcessorSet};
use crate::limits::FORECAST_STEPS_MAX;
use crate::record::Part;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What a job has to say for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// It is its promised time.
    Now,
    /// It is ending.
    Ending,
    /// It is due then, by the row's clock.
    Due(u64),
    /// Its deadline, in nanoseconds of cluster time, could not be kept.
    Late(u64),
    /// Nothing.
    None,
    /// Nothing of it is left that could run.
    Gone,
}

impl Claim {
    /// What is left of it when its promised time is over for a while.
    pub(crate) fn besides(self, promise: Option<&Promise>) -> Self {
        match promise {
            Some(promise) if self == Self::Now => Self::Due(promise.due),
            _ => self,
        }
    }
}

/// A job that could run in the row.
#[derive(Clone, Debug)]
pub(crate) struct Contender<'a> {
    pub(crate) claim: Claim,
    pub(crate) job: JobId,
    pub(crate) parts: &'a [Part],
}

/// Processors by node.
pub(crate) type Taken = BTreeMap<NodeId, ProcessorSet>;

/// Who of them runs, and which processors they take.
pub(crate) fn decide(contenders: &mut [Contender<'_>]) -> (Vec<JobId>, Taken) {
    contenders.sort_unstable_by_key(|contender| (contender.claim, contender.job));
    let (mut run, mut taken) = (Vec::new(), Taken::new());
    for contender in contenders.iter() {
        let parts = || contender.parts.iter().filter(|part| !part.lost);
        let is_free = |part: &Part| {
            taken.get(&part.node).is_none_or(|taken| !taken.overlaps(&part.processors))
        };
        if !parts().all(is_free) {
            continue;
        }
        for part in parts() {
            taken.entry(part.node).or_default().union_with(&part.processors);
        }
        run.push(contender.job);
    }
    (run, taken)
}

/// A job, for who wants to know what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct Prospect<'a> {
    pub(crate) contender: Contender<'a>,
    /// Its promised time.
    pub(crate) time: Busy,
    /// How long it may still run; `None`: nobody knows.
    pub(crate) left: Option<u64>,
}

impl<'a> Prospect<'a> {
    fn as_of(&self, clock: u64) -> Contender<'a> {
        let mut contender = self.contender.clone();
        if self.time.first().is_some_and(|first| first.from <= clock) {
            contender.claim = Claim::Now;
        }
        contender
    }
}

/// When a job begins and ends, by the row's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forecast {
    pub(crate) begins: Option<u64>,
    pub(crate) ends: Option<u64>,
}

/// What becomes of the jobs of a row if no other comes and each runs as long as it may. What lies too
/// far ahead is left open.
pub(crate) fn foresee(mut jobs: Vec<Prospect<'_>>, mut clock: u64) -> BTreeMap<JobId, Forecast> {
    let mut forecasts: BTreeMap<JobId, Forecast> = BTreeMap::new();
    for _ in 0..FORECAST_STEPS_MAX {
        let mut contenders: Vec<Contender<'_>> = jobs.iter().map(|it| it.as_of(clock)).collect();
        let (run, _) = decide(&mut contenders);
        let runs = |prospect: &Prospect<'_>| run.contains(&prospect.contender.job);
        let ends = jobs.iter().filter(|it| runs(it)).filter_map(|it| it.left);
        let begins = jobs.iter().filter(|it| !runs(it)).filter_map(|it| it.time.first());
        let begins = begins.filter(|first| first.from > clock).map(|first| first.from - clock);
        // Who has had a stretch of his time goes back among those who are due.
        let pauses = jobs.iter().filter(|it| runs(it)).filter_map(|it| it.time.first());
        let pauses = pauses.filter(|first| first.from <= clock).map(|first| first.to - clock);
        for job in &run {
            forecasts.entry(*job).or_default().begins.get_or_insert(clock);
        }
        let Some(step) = ends.chain(begins).chain(pauses).min() else { break };
        clock = clock.saturating_add(step);
        for prospect in jobs.iter_mut().filter(|it| run.contains(&it.contender.job)) {
            let left = prospect.left.map(|left| left - step);
            prospect.left = left;
            if let Some(left) = left {
                prospect.time.shorten(left);
            }
            if left == Some(0) {
                forecasts.entry(prospect.contender.job).or_default().ends = Some(clock);
            }
        }
        jobs.retain(|prospect| prospect.left != Some(0));
    }
    forecasts
}
