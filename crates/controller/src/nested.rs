//! Jobs that a task of another job waits for: declined if they can't start before that one ends.

use super::driver::Driver;
use super::error::Problem;
use std::collections::BTreeSet;
use tutti_types::{JobId, JobSpec};
use tutti_wire::code::Code;

impl Driver {
    /// Why a job for which job `within` waits would never start, if so.
    pub(super) fn why_stuck_within(
        &self,
        within: Option<JobId>,
        spec: &JobSpec,
    ) -> Option<Problem> {
        let within = within?;
        let outer = self.outer_jobs(within);
        if self.core.can_start_beside(self.now(), spec, &outer) {
            return None;
        }
        let reason = format!(
            "this `tutti run` is inside job {within}, which holds what it asks for until it ends, so both \
             would wait for ever; ask for less with -n, start the program without tutti, or submit the \
             outer job with more processors"
        );
        Some(Problem::new(Code::Nested, reason))
    }

    /// This job, the job that waits for it, and so on.
    fn outer_jobs(&self, within: JobId) -> BTreeSet<JobId> {
        let mut outer = BTreeSet::new();
        let mut next = Some(within);
        while let Some(job) = next
            && outer.insert(job)
        {
            next = self.jobs.get(&job).and_then(|entry| entry.within);
        }
        outer
    }
}
