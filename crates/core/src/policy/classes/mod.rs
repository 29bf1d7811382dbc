//! The policy `classes`, step by step: which jobs get processors, and which give theirs up.
//!
//! After each event, and when a moment comes that is named below, in this order (LLNL paper, job
//! scheduling algorithm; what it leaves open is marked *ours*):
//!
//! 1. *Suspended.* A job that its user suspended is preempted; its do-not-disturb time protects it
//!    from others, not from its owner. *(Ours: the paper's users suspend by rolling out.)*
//! 2. *Candidates.* A job that has waited for processors longer than its class's `wait` is a
//!    candidate. They are tried by priority, then by how long they wait, then the larger first,
//!    then by number. One that exceeds `job_limit` is none.
//! 3. *Loading a candidate.* One that fits on processors that are unassigned and not reserved gets
//!    these. The one with a reservation, the *bumper*, may also take what is reserved for it. It
//!    need not get what was reserved: whatever is free first, and the reservation is released.
//! 4. *Reservation.* For the first candidate for which there is a possible assignment of
//!    processors, the cheapest one is reserved ([`assign`]). While there is a bumper, only a
//!    candidate of a higher priority can take its place; its reservation is then released.
//! 5. *Preemption.* Jobs with any of the reserved processors are preempted when their
//!    do-not-disturb time is over: `do_not_disturb` of the class, for each of their processors,
//!    since they got them. What they leave stays empty until the bumper has all it needs. No
//!    other is preempted: after its do-not-disturb time a job may lose its processors to any other
//!    of the same priority or a higher.
//! 6. *All others* that wait are tried in the order of 2; each that fits gets processors that are
//!    unassigned and not reserved: the position closest to node 0.
//!
//! No job gets processors beyond the limits ([`limits`]: job, large jobs, class) or without its
//! counted resources ([`resources`](crate::resources)). *(Ours: an assignment for a bumper counts
//! as possible only if it is within the limits once those in its way are gone; else it would hold processors empty for
//! nothing.)*
//!
//! A preempted job waits since it began to leave. It comes back to its processors, or to
//! others if it is movable. One that is asked to end while it is aside comes before all others and
//! needs only the processors, so that it can heed; its grace goes on meanwhile.
//!
//! Since leaving takes time, everything is decided anew when processors are really free.
//!
//! The machine is the first row of the matrix. Rows that are left from a policy with more take
//! no new job in, and vanish as their jobs end.

mod assign;
mod contender;
mod limits;
mod why;

use contender::Contender;
use serde::{Deserialize, Serialize};

use super::{GANG, Policy, Preemption, SPACE, WaitReason};
use crate::apply::Core;
use crate::state::record::Place;
use crate::state::record::{Course, Part};
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::time::ClusterTime;

/// The policy `classes`: the gang scheduler of LLNL's Cray T3D.
///
/// Jobs share the machine in space. A job that waits too long preempts others
/// (`preempt.rs`) by the rules of the classes ([`tutti_types::class::RULES`]).
pub const CLASSES: Policy = Policy {
    name: "classes",
    admission: GANG.admission,
    placement: GANG.placement,
    shares: SPACE.shares,
    preemption: Preemption::ByClass,
    has_levels: false,
};

/// What the policy keeps in mind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ByClass {
    pub(crate) bumper: Option<Bumper>,
    /// When something must be decided anew though nothing happens.
    pub(crate) wake: ClusterTime,
}

impl Default for ByClass {
    fn default() -> Self {
        Self { bumper: None, wake: ClusterTime::NEVER }
    }
}

/// The job that has processors reserved, and which.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Bumper {
    pub(crate) job: JobId,
    pub(crate) priority: u64,
    pub(crate) parts: Vec<Part>,
}

impl Core {
    /// All steps; see the module.
    pub(crate) fn seat_by_class(&mut self, now: ClusterTime) {
        self.set_suspended_aside();
        self.drop_vain_reservation(now);
        self.load_candidates(now);
        self.preempt(now);
        self.load_others(now);
        let waits = !self.queue.waiting.is_empty();
        let nominal = WaitReason::Rows { limit: 1 };
        self.queue.blocked = waits.then_some(nominal);
        self.queue.stale = false;
        self.queue.disturbed = false;
        self.by_class.wake = self.next_decision(now);
    }

    fn set_suspended_aside(&mut self) {
        let suspended = |&job: &JobId| {
            self.jobs.get(&job).is_some_and(|record| {
                let residence = record.residence();
                record.suspended && residence.is_some_and(|it| it.place == Place::Home)
            })
        };
        let jobs: Vec<JobId> = self.matrix.seats().map(|(job, _)| job).filter(suspended).collect();
        for job in jobs {
            self.move_out(job);
        }
    }

    /// Takes a reservation back whose job waits no more, or that may not be kept any more.
    fn drop_vain_reservation(&mut self, now: ClusterTime) {
        let Some(bumper) = self.by_class.bumper.take() else { return };
        let Some(contender) = self.contender(bumper.job) else { return };
        let keeps =
            contender.is_candidate(self, now) && self.cost(&contender, &bumper.parts).is_some();
        self.by_class.bumper = keeps.then_some(Bumper { priority: contender.priority, ..bumper });
    }

    /// Loads candidates and chooses the bumper. Each turn loads a job or raises the bumper's
    /// priority.
    fn load_candidates(&mut self, now: ClusterTime) {
        'again: loop {
            for contender in self.contenders() {
                if !contender.is_candidate(self, now) {
                    continue;
                }
                if self.load(now, &contender) {
                    continue 'again;
                }
                let bumper = self.by_class.bumper.as_ref();
                if bumper.is_some_and(|bumper| bumper.priority >= contender.priority) {
                    continue;
                }
                if let Some(parts) = self.cheapest(&contender) {
                    let Contender { job, priority, .. } = contender;
                    self.by_class.bumper = Some(Bumper { job, priority, parts });
                    continue 'again;
                }
            }
            return;
        }
    }

    /// Preempts the jobs that are in the bumper's way, as far as their time is over.
    fn preempt(&mut self, now: ClusterTime) {
        for job in self.in_the_way() {
            if self.let_alone_until(job) <= now && !self.saves_before_preemption(job) {
                self.move_out(job);
            }
        }
    }

    fn load_others(&mut self, now: ClusterTime) {
        for contender in self.contenders() {
            self.load(now, &contender);
        }
    }

    /// Gives a job processors that are free for it, if there are any and nothing else speaks
    /// against it.
    fn load(&mut self, now: ClusterTime, contender: &Contender) -> bool {
        let Some(parts) = self.loadable(contender) else { return false };
        let job = contender.job;
        let row = self.first_row();
        match self.residence(job) {
            None => self.start(now, job, row, parts),
            Some(residence) if residence.parts == parts => self.move_in(job, row),
            Some(_) => self.move_to(job, row, parts),
        }
        self.grant(job);
        if self.by_class.bumper.as_ref().is_some_and(|bumper| bumper.job == job) {
            self.by_class.bumper = None;
        }
        true
    }

    /// Processors that a job can have now, within all limits.
    pub(crate) fn loadable(&self, contender: &Contender) -> Option<Vec<Part>> {
        let job = contender.job;
        let stays_out = || self.kept_out_until(job) > self.now;
        if !contender.ending && (self.lacks(contender).is_some() || stays_out()) {
            return None;
        }
        if self.first_row().is_some_and(|row| self.matrix.is_barred(contender.job, row)) {
            return None;
        }
        let parts = self.closest(contender)?;
        let lacks = !contender.ending && self.lacks(&contender.with(&parts)).is_some();
        (!lacks).then_some(parts)
    }

    /// Until when a job may not be preempted.
    pub(crate) fn let_alone_until(&self, job: JobId) -> ClusterTime {
        let (Some(record), Some(seat)) = (self.jobs.get(&job), self.matrix.seat(job)) else {
            return ClusterTime::NEVER;
        };
        let Some(residence) = record.residence().filter(|it| it.place == Place::Home) else {
            return ClusterTime::NEVER;
        };
        if matches!(residence.course, Course::Terminating { .. } | Course::Killed { .. }) {
            // It is going anyhow, and needs its processors for that.
            return ClusterTime::NEVER;
        }
        if let Some(until) = self.checkpoints.until(job) {
            return until;
        }
        let rules = self.classes.get(&record.spec.class).copied().unwrap_or_default();
        match rules.do_not_disturb(seat.processors) {
            Some(time) => residence.moved + time,
            None => ClusterTime::NEVER,
        }
    }

    /// When a job has left its processors to the bumper at the latest: its do-not-disturb time is
    /// over, or its grace. Never: unknown.
    pub(crate) fn gone_by(&self, job: JobId) -> ClusterTime {
        match self.residence(job).map(|residence| residence.course) {
            Some(Course::Terminating { kill_at, .. }) => kill_at,
            _ => self.let_alone_until(job),
        }
    }

    /// The jobs that hold any of the reserved processors.
    pub(crate) fn in_the_way(&self) -> Vec<JobId> {
        let Some(bumper) = &self.by_class.bumper else { return Vec::new() };
        self.holders(&bumper.parts)
    }

    /// The next moment at which a wait or a do-not-disturb time is over that matters.
    fn next_decision(&self, now: ClusterTime) -> ClusterTime {
        let waits = self.contenders().into_iter().filter_map(|it| it.candidate_from(self));
        let kept = self.in_the_way().into_iter().map(|job| self.let_alone_until(job));
        waits.chain(kept).filter(|&at| at > now).min().unwrap_or(ClusterTime::NEVER)
    }

    /// The row that is the machine.
    pub(crate) fn first_row(&self) -> Option<RowId> {
        self.matrix.rows().map(|(row, _)| row).next()
    }

    /// Whether processors with external load get no job at all, rather than a job only after all
    /// others.
    #[must_use]
    pub fn avoids_external_load(&self) -> bool {
        matches!(self.policy().preemption, Preemption::ByClass)
    }

    /// The processors of a node with external load.
    #[must_use]
    pub fn foreign_on(&self, node: NodeId) -> Option<&ProcessorSet> {
        self.foreign.get(&node)
    }

    pub(crate) fn on_foreign(&mut self, node: NodeId, processors: &ProcessorSet) {
        if processors.is_empty() {
            self.foreign.remove(&node);
        } else {
            self.foreign.insert(node, processors.clone());
        }
        self.matrix.follow_external(node, processors);
        if self.policy().has_levels {
            // Of which level a job's processors are depends on which of them it gets last.
            self.queue.reconsider();
        }
    }
}
