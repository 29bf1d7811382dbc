//! Whether a job can start while others stay resident.
//!
//! A task that runs another job and waits for it holds its own processors meanwhile. If the inner
//! job needs those, both wait for ever. The answer is a trial on a copy of the core: all other jobs
//! end, one after another, and the copy decides as the core would. Nothing of the core itself
//! changes.

use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::policy::Decision;
use crate::state::record::Course;
use crate::state::record::Place;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RequestId};
use tutti_types::job::{JobSpec, NodeSpec, TaskStatus};
use tutti_types::limits::{TRIAL_JOBS_MAX, TRIAL_ROUNDS_MAX};
use tutti_types::time::ClusterTime;

impl Core {
    /// Whether a job that is submitted now can start before any of the jobs `stay` ends: at once,
    /// in turns with them, or when other jobs have ended. Nodes that take no jobs now count as if
    /// they did, and external load as if there were none.
    ///
    /// `true` also if none of `stay` runs, if the job would be declined, and if the answer takes
    /// more than [`TRIAL_JOBS_MAX`] jobs or [`TRIAL_ROUNDS_MAX`] rounds.
    #[must_use]
    pub fn can_start_beside(
        &self,
        now: ClusterTime,
        spec: &JobSpec,
        stay: &BTreeSet<JobId>,
    ) -> bool {
        let stay: BTreeSet<JobId> = stay.iter().copied().filter(|&job| self.stays(job)).collect();
        if stay.is_empty() || self.jobs.len() > TRIAL_JOBS_MAX || self.starts_at_once(spec) {
            return true;
        }
        Trial::new(self, now).starts(spec, &stay)
    }

    /// Whether a job is resident and was not asked to end.
    fn stays(&self, job: JobId) -> bool {
        self.residence(job).is_some_and(|residence| residence.course == Course::Running)
    }

    /// Whether a job that is submitted now needs no trial.
    fn starts_at_once(&self, spec: &JobSpec) -> bool {
        let decision = self.decide(spec);
        self.queue.waiting.is_empty() && matches!(decision, Some(Decision::Start { .. }))
    }
}

/// A copy of the core, and what it ordered last.
struct Trial {
    core: Core,
    now: ClusterTime,
    actions: Vec<Action>,
}

impl Trial {
    /// A copy in which every node takes jobs.
    fn new(core: &Core, now: ClusterTime) -> Self {
        let mut trial = Self { core: core.clone().without_timetables(), now, actions: Vec::new() };
        for (job, record) in core.jobs.iter() {
            match record.residence().map(|residence| residence.place) {
                Some(Place::Leaving) => trial.actions.push(Action::MoveOut { job }),
                Some(Place::Coming) => trial.actions.push(Action::MoveIn { job }),
                Some(Place::Home | Place::Aside) | None => {}
            }
        }
        let closed = core.nodes().filter(|node| !node.up || node.away || node.drained.is_some());
        let closed: Vec<(NodeId, NodeSpec)> =
            closed.map(|node| (node.id, node.spec.clone())).collect();
        for (node, spec) in closed {
            trial.apply(&Event::SetDrained { node, reason: None });
            trial.apply(&Event::NodeJoined { node, spec });
        }
        for &node in core.foreign.keys() {
            trial.apply(&Event::Foreign { node, processors: ProcessorSet::default() });
        }
        trial
    }

    fn apply(&mut self, event: &Event) {
        self.core.apply(self.now, event, &mut self.actions);
    }

    /// Whether the job starts while all of `stay` run.
    fn starts(mut self, spec: &JobSpec, stay: &BTreeSet<JobId>) -> bool {
        let request = RequestId(0);
        self.apply(&Event::Submit { request, spec: spec.clone() });
        let accepted = self.actions.iter().find_map(|action| {
            let Action::Accept { job, .. } = action else { return None };
            Some(*job)
        });
        let Some(job) = accepted else { return true };
        for _ in 0..TRIAL_ROUNDS_MAX {
            if self.core.residence(job).is_some() {
                return true;
            }
            if !stay.iter().all(|&job| self.core.stays(job)) || !self.go_on(stay) {
                return false;
            }
        }
        true
    }

    /// Has the next thing happen that gives others room; `false` if there is none.
    fn go_on(&mut self, stay: &BTreeSet<JobId>) -> bool {
        if self.answer_moves() {
            return true;
        }
        let others = self
            .core
            .jobs
            .iter()
            .filter(|(job, record)| !stay.contains(job) && record.residence().is_some());
        let jobs: Vec<JobId> = others.map(|(job, _)| job).collect();
        if !jobs.is_empty() {
            self.apply(&Event::JobsEnded { jobs, status: TaskStatus::Exited(0) });
            return true;
        }
        let due = self.core.wake_at();
        if due == ClusterTime::NEVER {
            return false;
        }
        self.now = self.now.max(due);
        self.apply(&Event::Tick);
        true
    }

    /// Reports that jobs have moved, as a driver does; whether any was to.
    fn answer_moves(&mut self) -> bool {
        let actions = core::mem::take(&mut self.actions);
        let mut moved = false;
        for action in actions {
            if let Action::MoveOut { job } = action {
                self.apply(&Event::MovedOut { job });
                moved = true;
            } else if let Action::MoveIn { job } = action {
                self.apply(&Event::MovedIn { job });
                moved = true;
            }
        }
        moved
    }
}
