//! Processors of ended tasks: other jobs get them while the job goes on.
//!
//! Tasks of a job may end at different times. The processors of the ended ones leave the job's home
//! in the matrix for good: jobs in line may start there, homes of other rows may move there, and
//! guests may run there. What its other tasks have stays as it was.
//!
//! - *Delay.* Tasks of a job mostly end together. So their processors are given away
//!   [`FREED_AFTER`] after the first of them has ended, all at once: a job that ends as a whole
//!   changes no timetable.
//! - *Steps.* A job with further steps keeps what it has until they have ended. Later steps have
//!   what is left.
//! - *Kept whole.* A job that is held until it is released, has nodes to itself, starts lost tasks
//!   again, or has tasks that share processors. Of the last, a node is given away when all tasks
//!   there have ended.
//! - *Policies that plan* (`deadline`) count on what jobs have. Under these, jobs keep it.
//! - *Allocations* may get a step at any time, so what they leave idle is [lent](crate::lending).
//!
//! The memory stays admitted until the job has ended: its limit is one for all tasks of a node.

use crate::apply::Core;
use crate::due::Dues;
use crate::lending::Lending;
use crate::state::record::{Binding, Course, Part, Place, Record, Residence};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::constraints::OnNodeLoss;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, Rank};
use tutti_types::job::FirstStep;
use tutti_types::time::{ClusterTime, Nanos};

/// How long after the end of a task its processors are given away.
pub(crate) const FREED_AFTER: Nanos = Nanos::from_millis(100);

/// What was given away, and what is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Freed {
    /// The ended tasks of resident jobs whose processors others have.
    ranks: BTreeMap<JobId, BTreeSet<Rank>>,
    /// When processors of a job are given away.
    due: Dues,
    /// What allocations have lent.
    pub(crate) lending: Lending,
}

impl Freed {
    /// The tasks of a job whose processors others have.
    pub(crate) fn of(&self, job: JobId) -> Option<&BTreeSet<Rank>> {
        self.ranks.get(&job)
    }

    /// When something is to be given away next.
    pub(crate) fn next(&self) -> ClusterTime {
        self.due.next().min(self.lending.next())
    }

    /// A job has ended, or begins anew.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.ranks.remove(&job);
        self.due.forget(job);
        self.lending.forget(job);
    }
}

impl Core {
    /// Tasks of a job have ended: notes that others are to get their processors.
    pub(crate) fn note_freed(&mut self, job: JobId) {
        if self.may_give_away(job) {
            self.freed.due.note(job, self.now + FREED_AFTER);
        }
    }

    /// Gives away what is due.
    pub(crate) fn give_away_due(&mut self, now: ClusterTime) {
        while let Some(job) = self.freed.due.pop(now) {
            if !self.may_give_away(job) {
                continue;
            }
            match self.residence(job).map(|residence| residence.place) {
                Some(Place::Home | Place::Aside) => self.give_away(job),
                // It has none of its places for good just now.
                Some(Place::Leaving | Place::Coming) => self.freed.due.note(job, now + FREED_AFTER),
                None => {}
            }
        }
    }

    /// Whether others may get what ended tasks of a job leave.
    fn may_give_away(&self, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let steps = self.allocations.get(&job).is_some_and(|it| !it.steps.is_empty());
        let plans = self.policy().plans() || record.deadline.is_some();
        let goes_on = |residence: &Residence| {
            residence.present() && !matches!(residence.course, Course::Killed { .. })
        };
        // Lost tasks would start again where they were.
        let respawns = matches!(record.spec.on_node_loss, OnNodeLoss::Respawn { .. });
        !steps
            && !plans
            && !respawns
            && !record.spec.nodes.exclusive
            && self.first_step(job) == FirstStep::EachSlot
            && record.residence().is_some_and(goes_on)
    }

    fn give_away(&mut self, job: JobId) {
        let given = self.freed.ranks.remove(&job).unwrap_or_default();
        let freed = self.jobs.get(&job).and_then(Record::residence).map(|residence| {
            let parts = residence.parts.iter();
            parts.filter_map(|part| freed_of(residence, part, &given)).collect::<Vec<_>>()
        });
        let mut given = given;
        let mut places = Vec::new();
        for (node, processors, ranks) in freed.unwrap_or_default() {
            given.extend(ranks);
            places.push((node, processors));
        }
        if !given.is_empty() {
            self.freed.ranks.insert(job, given);
        }
        if !places.is_empty() {
            self.shrink(job, &places);
        }
    }

    /// A job has less from now on.
    fn shrink(&mut self, job: JobId, places: &[(NodeId, ProcessorSet)]) {
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let user = record.spec.owner;
        let Some(residence) = record.residence_mut() else { return };
        for (node, processors) in places {
            if let Some(part) = residence.part_mut(*node) {
                part.processors.subtract(processors);
            }
        }
        let here = residence.parts.iter().filter(|part| !part.lost);
        let left: u64 = here.map(|it| u64::from(it.processors.count())).sum();
        self.matrix.shrink(job, places);
        self.recount_freed(job);
        self.count_anew(job, user, left);
        self.migration.rows = true;
        self.migration.turns = true;
        self.note_came_free(places.iter().map(|&(node, _)| node));
        self.queue.reconsider();
        self.queue.disturbed = true;
    }
}

/// What ended tasks of a part leave to others, and which tasks: but for those `given` before.
fn freed_of(
    residence: &Residence,
    part: &Part,
    given: &BTreeSet<Rank>,
) -> Option<(NodeId, ProcessorSet, Vec<Rank>)> {
    if part.is_held() {
        return None;
    }
    if part.lost || part.processors.is_empty() {
        return None;
    }
    let has_ended = |rank: &Rank| residence.ended.contains_key(rank);
    let is_over = part.cleared || part.left == 0;
    if !is_over && part.binding == Binding::Shared {
        return None;
    }
    let (mut processors, mut ranks) = (ProcessorSet::new(), Vec::new());
    for task in part.placements_without(given) {
        if is_over || has_ended(&task.rank) {
            processors.union_with(&task.processors);
            ranks.push(task.rank);
        }
    }
    let processors = if is_over { part.processors.clone() } else { processors };
    (!ranks.is_empty()).then_some((part.node, processors, ranks))
}
