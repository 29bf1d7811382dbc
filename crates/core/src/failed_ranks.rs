//! Failed ranks of a step that goes on without them, and learns which they are
//! ([`OnBadExit::Notify`]): as MPI's fault tolerance needs it, which wakes calls that wait for such
//! a rank.
//!
//! Nodes are named all failed ranks again when their agent comes back ([`Core::failed_ranks`]), so
//! that no word is lost with an agent. A keeper passes each on once.

use crate::action::{Action, StepAction};
use crate::apply::Core;
use crate::state::record::{Residence, Rules};
use alloc::vec::Vec;
use tutti_types::{NodeId, OnBadExit, Rank, StepId, StepKey, TaskStatus};

impl Core {
    /// The failed ranks of a step that is to learn of them; none if it is not.
    #[must_use]
    pub fn failed_ranks(&self, key: StepKey) -> Vec<Rank> {
        let Some((run, OnBadExit::Notify { .. })) = self.run_of(key) else { return Vec::new() };
        run.failed().collect()
    }

    /// Of these ranks of a step, which have just ended, names those that have failed to the others.
    /// Lost ranks come with the answer to the loss, when nothing of them is left.
    pub(crate) fn name_ended(&self, key: StepKey, ranks: &[Rank], actions: &mut Vec<Action>) {
        let Some((run, OnBadExit::Notify { .. })) = self.run_of(key) else { return };
        let is_meant = |status: &TaskStatus| status.is_failure() && *status != TaskStatus::Lost;
        let has_failed = |rank: &&Rank| run.ended.get(rank).is_some_and(is_meant);
        let failed: Vec<Rank> = ranks.iter().filter(has_failed).copied().collect();
        self.name_failed(key, failed, actions);
    }

    /// Names failed ranks of a step to the others, if it goes on.
    pub(crate) fn name_failed(&self, key: StepKey, ranks: Vec<Rank>, actions: &mut Vec<Action>) {
        let Some((run, OnBadExit::Notify { signal })) = self.run_of(key) else { return };
        if run.ending() {
            return;
        }
        let left = run.parts.iter().filter(|part| !part.cleared && part.left > 0);
        let nodes: Vec<NodeId> = left.map(|part| part.node).collect();
        if ranks.is_empty() || nodes.is_empty() {
            return;
        }
        if let Some(signal) = signal {
            let each = nodes.iter().map(|&node| match key.step {
                StepId::FIRST => Action::Signal { job: key.job, node, ranks: Vec::new(), signal },
                _ => StepAction::Signal { key, node, signal }.into(),
            });
            actions.extend(each);
        }
        actions.push(StepAction::RanksFailed { key, nodes, ranks }.into());
    }

    /// What runs of a step, and what becomes of it when a rank fails.
    fn run_of(&self, key: StepKey) -> Option<(&Residence, OnBadExit)> {
        if key.step == StepId::FIRST {
            let record = self.jobs.get(&key.job)?;
            return Some((self.residence(key.job)?, Rules::of(&record.spec).on_bad_exit));
        }
        let step = self.step(key)?;
        Some((step.run.as_deref()?, step.spec.on_bad_exit))
    }
}

impl Residence {
    /// The ranks that have failed.
    fn failed(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ended.iter().filter(|(_, status)| status.is_failure()).map(|(&rank, _)| rank)
    }
}
