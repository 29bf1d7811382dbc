//! Which job of a row runs now, and what comes of it.
//!
//! In this order, each if its processors are not taken by one before it:
//!
//! 1. jobs in their promised time (never two on one processor), which includes their grace;
//! 2. other jobs that are ending, so that they can;
//! 3. those with a promise, the first to be due first: what they run before their time is not
//!    needed later, and is given back;
//! 4. those with a promise that could not be kept, the first to be due first;
//! 5. all others, in the order of acceptance; last of all those of which nothing is left but to
//!    clear away.

use super::promise::Promise;
use super::timeline::Busy;
use crate::state::record::Part;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet};
use tutti_types::limits::FORECAST_STEPS_MAX;

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

/// The jobs of them that run, and which processors they take; `meets`: whether a job may not run
/// beside these, whichever processors it has.
pub(crate) fn decide(
    contenders: &mut [Contender<'_>],
    meets: impl Fn(JobId, &[JobId]) -> bool,
) -> (Vec<JobId>, Taken) {
    contenders.sort_unstable_by_key(|contender| (contender.claim, contender.job));
    let (mut run, mut taken) = (Vec::new(), Taken::new());
    for contender in contenders.iter() {
        let parts = || contender.parts.iter().filter(|part| !part.lost);
        let is_free = |part: &Part| {
            taken.get(&part.node).is_none_or(|taken| !taken.overlaps(&part.processors))
        };
        if !parts().all(is_free) || meets(contender.job, &run) {
            continue;
        }
        for part in parts() {
            taken.entry(part.node).or_default().union_with(&part.processors);
        }
        run.push(contender.job);
    }
    (run, taken)
}

/// A job, for a caller that wants to know what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct Prospect<'a> {
    pub(crate) contender: Contender<'a>,
    /// Its promised time.
    pub(crate) time: Busy,
    /// How long it may still run; `None`: unknown.
    pub(crate) left: Option<u64>,
    /// How much more of its promised time it does not need unless it has to be killed.
    pub(crate) grace: u64,
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

/// What becomes of the jobs of a row if no other comes and each runs as long as it may. What lies
/// too far ahead is left open.
///
/// Asked since the latest event, some may have had less of their promised time than has passed:
/// they are taken to have the rest right after it.
pub(crate) fn foresee(mut jobs: Vec<Prospect<'_>>, mut clock: u64) -> BTreeMap<JobId, Forecast> {
    let mut forecasts: BTreeMap<JobId, Forecast> = BTreeMap::new();
    for prospect in &mut jobs {
        prospect.time.forget_before(clock);
        prospect.time.prolong(prospect.left.unwrap_or(0).saturating_add(prospect.grace));
    }
    for _ in 0..FORECAST_STEPS_MAX {
        // What one could not have of its time, since it was also another's, comes after that.
        jobs.iter_mut().for_each(|prospect| prospect.time.forget_before(clock));
        let mut contenders: Vec<Contender<'_>> = jobs.iter().map(|it| it.as_of(clock)).collect();
        let (run, _) = decide(&mut contenders, |_, _| false);
        let runs = |prospect: &Prospect<'_>| run.contains(&prospect.contender.job);
        let ends = jobs.iter().filter(|it| runs(it)).filter_map(|it| it.left);
        let begins = jobs.iter().filter(|it| !runs(it)).filter_map(|it| it.time.first());
        let begins = begins.filter(|first| first.from > clock).map(|first| first.from - clock);
        // A job that has had a stretch of its time goes back among those that are due.
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
                prospect.time.shorten(left.saturating_add(prospect.grace));
            }
            if left == Some(0) {
                forecasts.entry(prospect.contender.job).or_default().ends = Some(clock);
            }
        }
        jobs.retain(|prospect| prospect.left != Some(0));
    }
    forecasts
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Stretch;
    use super::*;

    const STRETCH: u64 = 600;

    /// Of a job that is due at the end of its promised time.
    fn prospect(parts: &[Part], job: u64, from: u64, to: u64, left: u64) -> Prospect<'_> {
        let contender = Contender { claim: Claim::Due(to), job: JobId(job), parts };
        Prospect { contender, time: Busy::of(&[Stretch { from, to }]), left: Some(left), grace: 0 }
    }

    fn ends(forecasts: &BTreeMap<JobId, Forecast>) -> Vec<Option<u64>> {
        forecasts.values().map(|forecast| forecast.ends).collect()
    }

    /// All want the same.
    fn parts() -> Vec<Part> {
        vec![Part::new(NodeId(0), ProcessorSet::first(1), 0, 1)]
    }

    #[test]
    fn who_has_begun_late_has_the_rest_after_his_time() {
        let parts = parts();
        for late in [0, 1, 50] {
            // One after the other, without a gap; none has run since the first could.
            let jobs = vec![
                prospect(&parts, 1, 0, STRETCH, STRETCH),
                prospect(&parts, 2, STRETCH, 2 * STRETCH, STRETCH),
            ];
            let expected = [STRETCH + late, 2 * STRETCH + late].map(Some);
            assert_eq!(ends(&foresee(jobs, late)), expected, "late by {late}");
        }
    }

    #[test]
    fn who_could_not_have_his_time_comes_after_the_other() {
        let parts = parts();
        // The second is to begin while the first, which is late, has not ended; and was to end
        // before it.
        let jobs = vec![
            prospect(&parts, 1, 0, STRETCH, STRETCH),
            prospect(&parts, 2, STRETCH, STRETCH + 10, 10),
        ];
        assert_eq!(ends(&foresee(jobs, 50)), [Some(STRETCH + 50), Some(STRETCH + 60)]);
        // Long after both.
        let jobs = vec![prospect(&parts, 1, 0, STRETCH, 100), prospect(&parts, 2, 0, STRETCH, 100)];
        assert_eq!(ends(&foresee(jobs, 1000)), [Some(1100), Some(1200)]);
    }
}
