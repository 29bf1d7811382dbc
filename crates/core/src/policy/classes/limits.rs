//! Limits: on processors, of one job, of all large jobs, of all jobs of a class; and on how many
//! jobs of a class, or of a user in it, have processors at all.
//!
//! A job counts with its processors from when it gets them until they are free. A limit that is
//! lowered takes nothing from jobs that have processors.

use super::Contender;
use crate::apply::Core;
use crate::policy::WaitReason;
use tutti_types::ids::{ClassName, JobId, UserId};

impl Core {
    /// The limit, or the resource, that keeps a job from being loaded.
    pub(crate) fn lacks(&self, contender: &Contender) -> Option<WaitReason> {
        self.lacks_without(contender, &[])
    }

    /// The same once some jobs are gone.
    pub(crate) fn lacks_without(
        &self,
        contender: &Contender,
        gone: &[JobId],
    ) -> Option<WaitReason> {
        let record = self.jobs.get(&contender.job)?;
        let more = contender.processors;
        if let Some(limit) = self.params.job_limit()
            && more > limit
        {
            return Some(WaitReason::JobLimit { limit });
        }
        let is_large =
            |processors| self.params.large_job().is_some_and(|least| processors >= least);
        if let Some(limit) = self.params.large_limit()
            && is_large(more)
            && self.in_use(gone, |_, processors| is_large(processors)) + more > limit
        {
            return Some(WaitReason::LargeLimit { limit });
        }
        let class = &record.spec.class;
        if let Some(limit) = self.classes.get(class).and_then(|rules| rules.processors())
            && self.in_use(gone, |job, _| self.is_of(job, class)) + more > limit
        {
            return Some(WaitReason::ClassLimit { limit });
        }
        if let Some(limit) = self.classes.get(class).and_then(|rules| rules.jobs())
            && self.count(gone, |job| self.is_of(job, class)) >= limit
        {
            return Some(WaitReason::ClassJobs { limit });
        }
        let owner = record.spec.owner;
        if let Some(limit) = self.classes.get(class).and_then(|rules| rules.jobs_per_user())
            && self.count(gone, |job| self.is_of(job, class) && self.is_owned(job, owner)) >= limit
        {
            return Some(WaitReason::UserJobs { limit });
        }
        let has = record.residence().map_or(&[][..], |residence| &residence.resources);
        let lack = self.lacks_resource_without(&record.spec, has, gone);
        lack.map(|name| WaitReason::Resource { name })
    }

    fn is_of(&self, job: JobId, class: &ClassName) -> bool {
        self.jobs.get(&job).is_some_and(|record| record.spec.class == *class)
    }

    fn is_owned(&self, job: JobId, owner: UserId) -> bool {
        self.jobs.get(&job).is_some_and(|record| record.spec.owner == owner)
    }

    /// Jobs of some kind that have processors.
    fn count(&self, gone: &[JobId], counts: impl Fn(JobId) -> bool) -> u64 {
        let jobs = self.matrix.seats().map(|(job, _)| job).filter(|job| !gone.contains(job));
        jobs.filter(|&job| counts(job)).count() as u64
    }

    /// Processors that jobs of some kind have.
    fn in_use(&self, gone: &[JobId], counts: impl Fn(JobId, u64) -> bool) -> u64 {
        let seats = self.matrix.seats().filter(|(job, _)| !gone.contains(job));
        let processors = seats.map(|(job, seat)| (job, seat.processors));
        processors.filter(|&(job, count)| counts(job, count)).map(|(_, count)| count).sum()
    }
}
