//! When jobs are expected to begin and to be done.

use super::dispatch::{Claim, Contender, Prospect, foresee};
use super::plans::Ahead;
use super::row_shares::{Sharers, sharers};
use crate::apply::Core;
use crate::policy::WaitReason;
use crate::state::record::Residence;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RowId};
use tutti_types::time::ClusterTime;

/// When a job is expected to begin and to be done, if no other comes and each runs as long as it
/// may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// When it begins, or goes on; `None`: unknown.
    pub begins: Option<ClusterTime>,
    /// When it is done; `None`: unknown.
    pub ends: Option<ClusterTime>,
}

impl Core {
    /// What is expected of the jobs that have processors, or were promised some. Others get what is
    /// left, and nothing is said of them. Nothing at all is under other policies than `deadline`.
    ///
    /// Time that a job gets in other classes' slots while these have nothing to run isn't counted
    /// on.
    #[must_use]
    pub fn expected(&self, now: ClusterTime) -> BTreeMap<JobId, Expected> {
        let mut expected = BTreeMap::new();
        if !self.policy().plans() {
            return expected;
        }
        let ahead = self.ahead(now);
        for (sharers, plan) in &self.plans.rows {
            let prospects = self.prospects(&ahead, sharers, plan.row);
            let clock = ahead.clock(Some(plan.row));
            let when = |clock: Option<u64>| {
                let at = ahead.when(plan.row, clock?);
                (at < ClusterTime::NEVER).then_some(at)
            };
            for (job, forecast) in foresee(prospects, clock) {
                let (begins, ends) = (when(forecast.begins), when(forecast.ends));
                expected.insert(job, Expected { begins, ends });
            }
        }
        expected
    }

    fn prospects(&self, ahead: &Ahead<'_>, of: &Sharers, row: RowId) -> Vec<Prospect<'_>> {
        let clock = ahead.clock(Some(row));
        let theirs = |class| sharers(&self.classes, class) == *of;
        let jobs = self.jobs.iter().filter(|(_, record)| theirs(&record.spec.class));
        let prospects = jobs.filter_map(|(job, record)| {
            let parts = self.parts_to_run_on(job, record)?;
            // What it can claim besides its promised time, which is looked at as it passes.
            let promise = self.plans.promise(job);
            let time = promise.map(|promise| promise.time.clone()).unwrap_or_default();
            let ending = record.residence().is_some_and(Residence::ending);
            let claim = self.claim(job, record, clock);
            let claim =
                if ending && claim == Claim::Now { Claim::Ending } else { claim.besides(promise) };
            let grace = if ending { 0 } else { record.spec.grace.0 };
            let left = ahead.holds(record).map(|holds| holds.saturating_sub(grace));
            Some(Prospect { contender: Contender { claim, job, parts }, time, left, grace })
        });
        prospects.filter(|prospect| prospect.left != Some(0)).collect()
    }

    /// Why a job has no processors.
    pub(crate) fn why_planned(&self, job: JobId, now: ClusterTime) -> WaitReason {
        match self.begins_by(job) {
            Some(begins) => WaitReason::Reserved { within: begins.since(now) },
            None => self.why_unpromised(job),
        }
    }

    fn why_unpromised(&self, job: JobId) -> WaitReason {
        let record = self.jobs.get(&job);
        let lack = record.and_then(|record| match record.residence() {
            Some(it) => self.lacks_resource_without(&record.spec, &it.resources, &[]),
            None => self.lacks_resource(&record.spec),
        });
        let resource = lack.map(|name| WaitReason::Resource { name });
        resource.or_else(|| self.lack_if_alone(job)).unwrap_or(WaitReason::Rows { limit: 1 })
    }

    /// When a job begins, or goes on, at the latest; `None` if it was promised nothing.
    pub(crate) fn begins_by(&self, job: JobId) -> Option<ClusterTime> {
        let record = self.jobs.get(&job)?;
        let plan = self.plans.rows.get(&sharers(&self.classes, &record.spec.class))?;
        let first = plan.promises.get(job)?.time.first()?;
        Some(self.ahead(self.now).when(plan.row, first.from))
    }
}
