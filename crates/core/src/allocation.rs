//! Jobs that are more than a task in each slot.
//!
//! A job is an allocation: slots on nodes, which take turns, are suspended and end together. Most
//! jobs start with a task in each slot, and end node by node as their tasks do. Of such a job
//! nothing is kept here.
//!
//! A batch job starts with one task on its first node, and has no task elsewhere until that starts
//! some. Its parts are held ([`Binding::Held`](crate::state::record::Binding::Held)): each has its
//! turns until it is released, whether or not it has a task. The job is released when the last of
//! the tasks that it started with has ended: its nodes end what is left of it, and the
//! job ends when all have said that nothing is.
//!
//! A job whose tasks may spawn others (`MPI_Comm_spawn`) has more slots than tasks at first. Its
//! parts are held as those of a batch job. It is released when its tasks, and the steps that they
//! have spawned, have ended.
//!
//! What is started in a job's slots later is a further step: see [`steps`](crate::steps).

use crate::action::Action;
use crate::apply::Core;
use crate::state::record::{Deaths, Residence};
use crate::steps::{Done, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, StepId};
use tutti_types::job::{EndReason, FirstStep};
use tutti_types::time::ClusterTime;

/// What is kept of a job beside its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Allocation {
    /// What it starts with.
    pub first: FirstStep,
    /// Its further steps that have not ended, by number.
    pub steps: BTreeMap<StepId, Step>,
    /// The highest number that a step of it has had.
    pub made: u32,
    /// So many processors at least must be given up before the first step that waits may start;
    /// none if it was not looked at yet.
    pub short: u64,
    /// The steps that ended last, at most
    /// [`STEPS_REMEMBERED`](crate::steps::STEPS_REMEMBERED): a front end may not have heard of it.
    pub done: Vec<Done>,
}

impl Core {
    /// Notes what a job starts with, if that is not a task in each slot.
    pub(crate) fn note_first_step(&mut self, job: JobId, first: FirstStep) {
        if first != FirstStep::EachSlot {
            self.allocations.insert(job, Allocation { first, ..Allocation::default() });
        }
    }

    /// What a job starts with.
    #[must_use]
    pub fn first_step(&self, job: JobId) -> FirstStep {
        self.allocations.get(&job).map_or(FirstStep::EachSlot, |allocation| allocation.first)
    }

    /// Whether a step that the job's first tasks have spawned has not ended.
    fn has_spawned(&self, job: JobId) -> bool {
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| it.steps.values());
        steps.into_iter().any(|step| step.spec.spawned_by == Some(StepId::FIRST))
    }

    /// Ends what is left of a job whose tasks have all ended, if it would be held for good.
    pub(crate) fn release_if_spent(
        &mut self,
        now: ClusterTime,
        job: JobId,
        actions: &mut Vec<Action>,
    ) {
        let is_spent = || self.residence(job).is_some_and(Residence::is_spent);
        let is_held = self.first_step(job) != FirstStep::EachSlot;
        if is_held && is_spent() && !self.has_spawned(job) {
            let order = (EndReason::Completed, Deaths::Collateral);
            self.kill_resident(now, job, order, actions);
        }
    }
}
