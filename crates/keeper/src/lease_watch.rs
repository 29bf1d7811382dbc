//! Until when tasks may run, for the case that the agent can't see to it: it is stopped, or gone.
//!
//! An agent of a cluster says again and again until when its node's jobs may run (see the head of
//! `agent/src/lease.rs`), and suspends them itself when that is over. A little later the keeper
//! does, unless it was told a later moment. It never has them go on: that is for the switch thread
//! of an agent, which alone knows the turns, and is told.

use super::context::{Context, chain};
use super::job::{Job, Phase};
use std::time::Duration;
use tracing::warn;
use tutti_linux::signal::{Root, Traversal, Walk, suspend_forest};
use tutti_node::platform::time::{boottime_ns, monotonic_ns};
use tutti_types::StepId;
use tutti_wire::code::Code;
use tutti_wire::keeper::FromKeeper;

/// The agent has so long to do it itself.
const AGENT_FIRST_NS: u64 = 300_000_000;

/// How a job without a cgroup is suspended.
pub(super) const WALK: Walk = Walk {
    traversal: Traversal::BreadthFirst,
    retry_interval: Duration::from_millis(1),
    deadline: Duration::from_millis(500),
};

/// What the agent has told.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Until when tasks may run, by the clock that counts sleep; `None`: it is not limited, or it
    /// is over.
    until_ns: Option<u64>,
}

impl Lease {
    /// What was told last.
    pub(super) const fn until_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Tasks may run until then; `None`: the agent looks after it.
    pub(super) const fn renew(&mut self, until_ns: Option<u64>) {
        self.until_ns = until_ns;
    }

    /// When to look at it again, by the monotonic clock.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let left_ns = self.until_ns?.saturating_add(AGENT_FIRST_NS).saturating_sub(boottime_ns());
        Some(monotonic_ns() + left_ns)
    }

    /// Whether it is over, which is said once.
    fn has_lapsed(&mut self) -> bool {
        let is_over = |until_ns: &mut u64| until_ns.saturating_add(AGENT_FIRST_NS) <= boottime_ns();
        self.until_ns.take_if(is_over).is_some()
    }

    /// Suspends what must not run any more.
    pub(super) fn look<'a>(&mut self, jobs: impl Iterator<Item = &'a Job>, context: &mut Context) {
        if !self.has_lapsed() {
            return;
        }
        let mut suspended = 0;
        // A further step is suspended with its job, where that has a group.
        let is_within = |job: &&Job| job.launch.step != StepId::FIRST && job.cgroup.get().is_some();
        let released = context.released;
        let is_ours = |job: &&Job| !job.life.is_cleared() && !job.is_released(released);
        for job in jobs.filter(|job| is_ours(job) && !is_within(job)) {
            job.suspend();
            suspended += 1;
        }
        if suspended > 0 {
            warn!(code = %Code::LeaseOver, "the agent has not said that tasks may go on; they are suspended");
            context.reports.push(FromKeeper::Lapsed);
        }
    }
}

impl Job {
    /// Stops all that runs of it.
    fn suspend(&self) {
        if let Some(group) = self.cgroup.get() {
            if let Err(error) = group.request_freeze() {
                warn!(code = %Code::ProcessStuck, "cannot suspend job {}: {}", self.launch.job, chain(&error));
            }
            return;
        }
        let mut trees = Vec::new();
        for task in &self.tasks {
            match &task.phase {
                Phase::Running(process) => trees.push(Root::below(process.pid)),
                Phase::Adopted(adopted) => {
                    trees.extend(adopted.pids().into_iter().map(Root::whole));
                }
                Phase::Waiting | Phase::Ending { .. } | Phase::Ended { .. } => {}
            }
        }
        if let Err(error) = suspend_forest(&trees, &WALK) {
            warn!(code = %Code::ProcessStuck, "cannot suspend job {}: {}", self.launch.job, chain(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_said_once_and_may_begin_anew() {
        let mut lease = Lease::default();
        assert!(!lease.has_lapsed(), "nobody limits it");
        assert_eq!(lease.due_ns(), None);
        lease.renew(Some(boottime_ns() + 1_000_000_000_000));
        assert!(!lease.has_lapsed());
        assert!(lease.due_ns().is_some_and(|due_ns| due_ns > monotonic_ns() + 900_000_000_000));
        lease.renew(Some(boottime_ns() - AGENT_FIRST_NS - 1));
        assert!(lease.due_ns().is_some_and(|due_ns| due_ns <= monotonic_ns()));
        assert!(lease.has_lapsed() && !lease.has_lapsed());
        lease.renew(Some(boottime_ns() + 1_000_000_000_000));
        assert!(!lease.has_lapsed());
    }
}
