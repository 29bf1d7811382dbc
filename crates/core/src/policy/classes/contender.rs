//! Jobs that wait for processors, and in what order they are tried.

use crate::apply::Core;
use crate::policy::processors;
use crate::state::record::Place;
use crate::state::record::{Course, Part, Phase, Residence};
use alloc::vec::Vec;
use core::cmp::Reverse;
use tutti_types::ids::JobId;
use tutti_types::time::ClusterTime;

/// A job that waits, in the queue or preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) job: JobId,
    pub(crate) priority: u64,
    /// Since when it waits.
    pub(crate) since: ClusterTime,
    /// How many processors it needs.
    pub(crate) processors: u64,
    /// It was asked to end, and needs processors to do so.
    pub(crate) ending: bool,
}

impl Contender {
    fn rank(&self, core: &Core) -> impl Ord + use<> {
        let Self { job, priority, since, processors, ending } = *self;
        (Reverse(ending), core.contends_by(job, (priority, since, processors)))
    }

    /// The same with as many processors as it would get: a job that wants nodes to itself gets more
    /// than it needs.
    pub(super) fn with(self, parts: &[Part]) -> Self {
        let processors = parts.iter().filter(|part| !part.lost);
        let processors = processors.map(|part| u64::from(part.processors.count())).sum();
        Self { processors, ..self }
    }

    /// From when on others may be preempted for it; `None`: never.
    pub(crate) fn candidate_from(&self, core: &Core) -> Option<ClusterTime> {
        let record = core.jobs.get(&self.job)?;
        let limit = core.params.job_limit();
        if self.ending || limit.is_some_and(|limit| self.processors > limit) {
            return None;
        }
        let wait = core.classes.get(&record.spec.class)?.wait()?;
        Some((self.since + wait).max(core.kept_out_until(self.job)))
    }

    pub(crate) fn is_candidate(&self, core: &Core, now: ClusterTime) -> bool {
        self.candidate_from(core).is_some_and(|from| from <= now)
    }
}

impl Core {
    /// All jobs that wait, in the order in which they are tried.
    pub(crate) fn contenders(&self) -> Vec<Contender> {
        let jobs = self.aside.iter().chain(&self.queue.waiting);
        let mut contenders: Vec<Contender> = jobs.filter_map(|&job| self.contender(job)).collect();
        contenders.sort_by_cached_key(|contender| contender.rank(self));
        contenders
    }

    /// A job, if it waits for processors.
    pub(crate) fn contender(&self, job: JobId) -> Option<Contender> {
        let record = self.jobs.get(&job)?;
        let priority = self.classes.get(&record.spec.class).map_or(0, |class| class.priority());
        let of = |since, processors, ending| Contender { job, priority, since, processors, ending };
        match &record.phase {
            _ if record.suspended => None,
            Phase::Queued { since } => {
                let needs = processors(&record.spec, self.matrix.widths());
                self.queue.waiting.contains(&job).then(|| of(*since, needs, false))
            }
            Phase::Resident(it) if it.place == Place::Aside && it.may_come_back() => {
                let ending = matches!(it.course, Course::Terminating { .. });
                Some(of(it.moved, needs(it), ending))
            }
            Phase::Resident(_) => None,
        }
    }
}

/// The processors of a job that was placed.
fn needs(residence: &Residence) -> u64 {
    let parts = residence.parts.iter().filter(|part| !part.lost);
    parts.map(|part| u64::from(part.processors.count())).sum()
}
