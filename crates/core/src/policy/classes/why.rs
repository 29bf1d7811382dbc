//! What a job waits for under the policy `classes`, as its owner sees it.

use crate::apply::Core;
use crate::policy::WaitReason;
use tutti_types::ids::JobId;
use tutti_types::time::ClusterTime;

impl Core {
    /// What keeps a job from its processors.
    pub(crate) fn why_by_class(&self, job: JobId, now: ClusterTime) -> WaitReason {
        let Some(contender) = self.contender(job) else { return WaitReason::Suspended };
        if self.lack_if_alone(job) == Some(WaitReason::Nodes) {
            return WaitReason::Nodes;
        }
        let there = self.foreign.iter().filter(|(node, _)| self.matrix.column(**node).is_some());
        let foreign = there.map(|(_, it)| u64::from(it.count())).sum();
        if contender.processors > self.matrix.width().saturating_sub(foreign) {
            return WaitReason::Foreign { processors: foreign };
        }
        if let Some(lack) = self.lacks(&contender) {
            return lack;
        }
        let bumper = self.by_class.bumper.as_ref();
        if bumper.is_some_and(|bumper| bumper.job == job) {
            let in_the_way = self.in_the_way();
            if in_the_way.is_empty()
                && let Some(job) = self.swaps.leaving()
            {
                return WaitReason::MemoryLeaves { job };
            }
            let until = in_the_way.into_iter().map(|it| self.gone_by(it));
            // A job that is leaving is gone when the driver says so.
            let until = until.filter(|&at| at < ClusterTime::NEVER).max();
            return WaitReason::Reserved { within: until.unwrap_or(now).since(now) };
        }
        if let Some(lack) = self.lack_if_alone(job) {
            return lack;
        }
        match contender.candidate_from(self) {
            // What was preempted can't ask for less any more.
            None if self.residence(job).is_some() => WaitReason::Rows { limit: 1 },
            None => WaitReason::NeverPreempts,
            Some(from) if from > now => WaitReason::Patience { left: from.since(now) },
            Some(_) => match bumper {
                Some(bumper) => WaitReason::Bumper { job: bumper.job },
                None => WaitReason::Undisturbed,
            },
        }
    }
}
