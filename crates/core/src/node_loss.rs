//! What becomes of a job when one of its nodes is lost, or the keeper that held its tasks there: as
//! the job asked ([`OnNodeLoss`]).
//!
//! By default a gang without one of its nodes can't run: it ends whole, with the reason. A job that
//! is to be in line again ends in the same way first, and is queued anew only when every other node
//! has said that nothing of it is left: so it never runs twice at a time. It keeps its number, and
//! with it its place in line, and begins from the start, with all of its time limit before it. A
//! user that asks meanwhile that it end has it end. The owner of a job may queue it again, too
//! ([`EndReason::Requeued`]), as often as it takes. Lost ranks may be started again
//! ([`crate::respawn`]). A job that wants a notice goes on without the
//! tasks that were there. Its other tasks get the signal once for each node, when nothing of the
//! job is left there: whether the loss of the node itself was seen, or its agent reported the tasks
//! as lost before.

use crate::action::Action;
use crate::apply::Core;
use crate::state::record::{Course, Deaths, Phase, Record, Residence};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::constraints::{NoRespawn, OnNodeLoss};
use tutti_types::ids::{JobId, NodeId, StepKey};
use tutti_types::job::{EndReason, JobSpec};
use tutti_types::limits::REQUEUES_MAX;
use tutti_types::time::ClusterTime;

/// What a loss asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing: the job had nothing there to lose.
    Nothing,
    /// That the job end.
    End,
    /// That its other tasks be told, by this signal if by any.
    Tell(Option<u8>),
}

/// How often jobs may be in line again, and were for a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reruns {
    /// The jobs that are never queued again once they have run.
    pub(crate) once: BTreeSet<JobId>,
    losses: BTreeMap<JobId, u32>,
}

impl Reruns {
    /// How often a job was in line again since a node was lost.
    pub(crate) fn losses_of(&self, job: JobId) -> u32 {
        self.losses.get(&job).copied().unwrap_or(0)
    }

    /// A job is in line again.
    pub(crate) fn note(&mut self, job: JobId, is_loss: bool) {
        if is_loss {
            *self.losses.entry(job).or_default() += 1;
        }
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.once.remove(&job);
        self.losses.remove(&job);
    }
}

/// How often a job may be in line again for losses.
const fn requeues_max(spec: &JobSpec, once: bool) -> u32 {
    match spec.on_node_loss {
        _ if spec.attached || once => 0,
        OnNodeLoss::Requeue | OnNodeLoss::Respawn { otherwise: NoRespawn::Requeue, .. } => {
            REQUEUES_MAX
        }
        OnNodeLoss::Kill | OnNodeLoss::Notify { .. } | OnNodeLoss::Respawn { .. } => 0,
    }
}

impl Record {
    /// Whether a job that has come to this end is to be in line again. If it runs `once`, a lost
    /// node is no reason; nor is one after so many `losses` that had it in line again.
    pub(crate) const fn goes_on_in_line(
        &self,
        residence: &Residence,
        once: bool,
        losses: u32,
    ) -> bool {
        let is_asked = matches!(residence.reason(), Some(EndReason::Requeued { .. }));
        let lost =
            matches!(residence.course, Course::Killed { reason: EndReason::NodeLost(_), .. });
        let is_lost = lost && losses < requeues_max(&self.spec, once);
        (is_asked || is_lost) && !self.asked_to_end
    }

    /// Notes that a job is to end for this reason. `false`: nothing is to be done, since only a job
    /// that runs, without a front end that waits for its end, can be in line again, unless it asked
    /// not to be.
    pub(crate) fn note_order(&mut self, reason: EndReason, once: bool) -> bool {
        let is_requeue = matches!(reason, EndReason::Requeued { .. });
        match &mut self.phase {
            _ if is_requeue && (self.spec.attached || once) => return false,
            Phase::Queued { .. } if is_requeue => return false,
            Phase::Resident(residence) if !is_requeue => residence.forget_requeue(reason),
            Phase::Queued { .. } | Phase::Resident(_) => {}
        }
        self.asked_to_end |= !is_requeue;
        true
    }
}

impl Core {
    /// Whether a job, or an array, is never queued again once it has run.
    #[must_use]
    pub fn runs_once(&self, job: JobId) -> bool {
        self.reruns.once.contains(&job) || self.arrays.run_once(job)
    }

    /// A job has lost what it had on a node. To be called before nothing of it is there.
    pub(crate) fn loss_on(&mut self, job: JobId, node: NodeId) -> Loss {
        let (now, respawns) = (self.now, self.may_respawn(job));
        let Some(record) = self.jobs.get_mut(&job) else { return Loss::Nothing };
        let rule = record.spec.on_node_loss;
        let Phase::Resident(residence) = &mut record.phase else { return Loss::Nothing };
        if residence.part(node).is_none_or(|part| part.cleared) {
            return Loss::Nothing;
        }
        match rule {
            OnNodeLoss::Notify { .. } if !residence.has_lost_on(node) => Loss::Nothing,
            OnNodeLoss::Notify { signal } => {
                residence.lose_tasks(node);
                Loss::Tell(signal)
            }
            OnNodeLoss::Respawn { .. } if !residence.has_lost_on(node) => Loss::Nothing,
            OnNodeLoss::Respawn { .. } if residence.ending() => {
                residence.lose_tasks(node);
                Loss::Tell(None)
            }
            OnNodeLoss::Respawn { wait, .. } if respawns => {
                residence.miss_tasks(node);
                self.respawns.await_ranks(job, node, now + wait);
                Loss::Nothing
            }
            OnNodeLoss::Kill | OnNodeLoss::Requeue | OnNodeLoss::Respawn { .. } => {
                // One that was ending for another reason ends for that, but not as if all were
                // well.
                residence.hear_of_loss(node);
                Loss::End
            }
        }
    }

    /// Does what a loss asks for, once nothing of the job is on that node.
    pub(crate) fn answer_loss(
        &mut self,
        now: ClusterTime,
        (job, node, loss): (JobId, NodeId, Loss),
        actions: &mut Vec<Action>,
    ) {
        match loss {
            Loss::End => {
                let order = (EndReason::NodeLost(node), Deaths::Collateral);
                self.kill_resident(now, job, order, actions);
            }
            Loss::Tell(signal) => {
                if let Some(signal) = signal
                    && self.residence(job).is_some_and(|it| !it.ending())
                {
                    self.on_signal(job, &[], signal, actions);
                }
                let lost = self.residence(job).map(|it| it.lost_of(node)).unwrap_or_default();
                self.name_failed(StepKey::first(job), lost, actions);
            }
            Loss::Nothing => {}
        }
    }

    /// Puts a job in line again of which nothing is left anywhere.
    pub(crate) fn queue_again(&mut self, mut record: Record, actions: &mut Vec<Action>) {
        let (job, now) = (record.id, self.now);
        record.requeues += 1;
        self.respawns.begin_anew(job, record.requeues);
        record.phase = Phase::Queued { since: now };
        if record.deadline.is_some() {
            self.plans.at_risk.entry(job).or_insert(now);
        }
        let suspended = record.suspended;
        self.jobs.insert(job, record);
        if suspended {
            self.queue.suspended.insert(job);
        } else {
            self.enter_line(job);
            self.quick.look_again();
        }
        // It may come before others that were promised something.
        self.queue.disturbed = true;
        self.queue.reconsider();
        self.note_element_requeue(job);
        actions.push(Action::Requeued { job });
    }
}
