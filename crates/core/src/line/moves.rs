//! Jobs that an administrator has moved in line.
//!
//! A moved job stands first of all, or just before another job. That place is fixed: it is the
//! place of that job when the move was made, and stays when that job has left the line. With users
//! in turn, the moved job stands in the lane of that job's user, and the lane moves with the use of
//! that user. The use of the moved job is charged to its own user.
//!
//! The places before one job are numbered, and so are those at the front ([`FRONT`]). A place is
//! kept while the job waits, also while it is held, suspended or without nodes. A job that has
//! started has none: if it is requeued, it stands by arrival.
//!
//! A move may break what jobs were promised, and so may a longer time limit. Each of these is noted
//! until it starts ([`Overridden`]), and named to the driver.

use super::{Line, Listed};
use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::queue::{Promise, Queue, Waiting, estimate};
use crate::state::record::Phase;
use alloc::vec::Vec;
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, UserId};
use tutti_types::job::JobSpec;
use tutti_types::limits::MOVED_MAX;
use tutti_types::time::ClusterTime;

/// The job before which those stand that come before all.
pub(crate) const FRONT: JobId = JobId(0);

/// The user of the lane in which they stand: none can have this number.
const FRONT_USER: UserId = UserId(u32::MAX);

/// The place that an administrator gave a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Stand {
    /// The job before which it stands, or [`FRONT`].
    pub(crate) anchor: JobId,
    /// The place among those that stand before that job.
    pub(crate) index: u32,
    /// The user of its lane, and the priority of the lane.
    pub(crate) user: UserId,
    pub(crate) priority: u64,
    /// By which that job stands where jobs with short limits are tried first.
    pub(crate) estimate: u64,
    /// By which that job stands under the policy `classes`: since when it waits, and for how many
    /// processors.
    pub(crate) since: ClusterTime,
    pub(crate) processors: u64,
}

/// A promise that an administrator has broken, by a move or a longer time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Overridden {
    /// When the job was to start at the latest.
    pub at: ClusterTime,
    /// The job that was moved before it, or may run longer.
    pub by: JobId,
}

/// Where a job stands in line; the less, the sooner.
pub(crate) type Place = (JobId, u32, JobId);

impl Line {
    /// The place that an administrator gave a job, if any.
    pub(crate) fn stand(&self, job: JobId) -> Option<&Stand> {
        self.moved.get(&job)
    }

    /// Where a job stands among those that stand by arrival.
    pub(crate) fn place(&self, job: JobId) -> Place {
        self.moved.get(&job).map_or((job, u32::MAX, job), |it| (it.anchor, it.index, job))
    }

    /// Where a job in line stands in the order that holds.
    pub(crate) fn rank_of(&self, job: JobId, user: UserId) -> impl Ord + use<> {
        let stand = self.moved.get(&job);
        let user = stand.map_or(user, |stand| stand.user);
        let front = stand.is_some_and(|stand| stand.anchor == FRONT);
        (!front, self.score(user), self.place(job))
    }

    /// The moved jobs.
    pub(crate) fn moved(&self) -> impl Iterator<Item = JobId> + '_ {
        self.moved.keys().copied()
    }

    /// A job's place is by its arrival, and nothing that it was promised counts any more.
    pub(crate) fn forget_move(&mut self, job: JobId) {
        self.moved.remove(&job);
        self.overridden.remove(&job);
    }

    /// Gives a job the place just before another moved one, or the last or first one there.
    fn put(&mut self, job: JobId, stand: Stand, before: Option<JobId>) {
        self.moved.remove(&job);
        let here = self.moved.iter().filter(|(_, it)| it.anchor == stand.anchor);
        let mut jobs: Vec<(u32, JobId)> = here.map(|(&job, it)| (it.index, job)).collect();
        jobs.sort_unstable();
        let mut order: Vec<JobId> = jobs.into_iter().map(|(_, job)| job).collect();
        let place = match before {
            Some(before) => order.iter().position(|&it| it == before),
            None if stand.anchor == FRONT => Some(0),
            None => None,
        };
        order.insert(place.unwrap_or(order.len()), job);
        self.moved.insert(job, stand);
        for (index, job) in (0..).zip(order) {
            if let Some(stand) = self.moved.get_mut(&job) {
                stand.index = index;
            }
        }
    }

    /// What is wrong with the places of moved jobs, if anything is.
    pub(crate) fn wrong_moves(&self, waits: impl Fn(JobId) -> bool) -> Option<&'static str> {
        if self.moved.len() > MOVED_MAX || !self.moved.keys().all(|&job| waits(job)) {
            return Some("a job was moved that does not wait");
        }
        if !self.overridden.keys().all(|&job| waits(job)) {
            return Some("a promise was broken to a job that does not wait");
        }
        let mut places: Vec<(JobId, u32)> =
            self.moved.values().map(|stand| (stand.anchor, stand.index)).collect();
        places.sort_unstable();
        let twice = places.windows(2).any(|pair| pair[0] == pair[1]);
        twice.then_some("two jobs were moved to one place")
    }
}

impl Queue {
    /// The jobs in line as if users did not count: by arrival, but for those that were moved.
    pub(crate) fn by_arrival(&self) -> impl Iterator<Item = JobId> + '_ {
        let there = self.line.moved.iter().filter(|(job, _)| self.waiting.contains(job));
        let mut moved: Vec<Place> =
            there.map(|(&job, stand)| (stand.anchor, stand.index, job)).collect();
        moved.sort_unstable();
        let mut moved = moved.into_iter().peekable();
        let others = self.waiting.iter().copied();
        let mut others = others.filter(|job| !self.line.moved.contains_key(job)).peekable();
        core::iter::from_fn(move || match (moved.peek(), others.peek()) {
            (Some((anchor, ..)), Some(other)) if anchor > other => others.next(),
            (Some(_), _) => moved.next().map(|(.., job)| job),
            (None, _) => others.next(),
        })
    }

    /// The first in that order; no list is made of the others.
    pub(crate) fn first_by_arrival(&self) -> Option<JobId> {
        let moved = self.line.moved().filter(|job| self.waiting.contains(job));
        let moved = moved.map(|job| self.line.place(job)).min();
        let other = self.waiting.iter().copied().find(|job| self.line.stand(*job).is_none());
        let other = other.map(|job| self.line.place(job));
        moved.into_iter().chain(other).min().map(|(.., job)| job)
    }

    /// The job just before one in that order.
    pub(crate) fn before_by_arrival(&self, job: JobId) -> Option<JobId> {
        let own = self.line.place(job);
        let moved = self.line.moved().filter(|job| self.waiting.contains(job));
        let moved = moved.map(|job| self.line.place(job)).filter(|place| *place < own).max();
        let others = self.waiting.range(..own.0).rev();
        let other = others.copied().find(|job| self.line.stand(*job).is_none());
        let other = other.map(|job| self.line.place(job));
        moved.max(other).map(|(.., job)| job)
    }
}

impl Waiting {
    /// The same in the place that an administrator gave the job.
    pub(crate) fn moved_to(mut self, stand: Option<&Stand>) -> Self {
        if let Some(stand) = stand {
            (self.anchor, self.index) = (stand.anchor, stand.index);
        }
        self
    }
}

impl Core {
    /// A job's entry in the lane of a user, and its place.
    pub(crate) fn listed(&self, job: JobId, spec: &JobSpec) -> Listed {
        let stand = self.queue.line.stand(job);
        let entry = Waiting::of(job, spec, self.matrix.widths()).moved_to(stand);
        let priority = self.classes.get(&spec.class).map_or(0, |class| class.priority());
        let (priority, user) =
            stand.map_or((priority, spec.owner), |stand| (stand.priority, stand.user));
        Listed { priority, user, entry }
    }

    /// Gives a waiting job another place in line: just before a job that waits, or before all. If
    /// either does not wait, or too many were moved, nothing happens.
    pub(crate) fn on_move_job(&mut self, job: JobId, before: Option<JobId>) {
        let waits = |job| self.jobs.get(&job).filter(|record| record.residence().is_none());
        let full = self.queue.line.moved.len() >= MOVED_MAX;
        if waits(job).is_none() || before == Some(job) || (full && !self.is_moved(job)) {
            return;
        }
        let stand = match before {
            None => Stand {
                anchor: FRONT,
                index: 0,
                user: FRONT_USER,
                priority: u64::MAX,
                estimate: 0,
                since: ClusterTime::default(),
                processors: u64::MAX,
            },
            Some(before) => {
                let Some(record) = waits(before) else { return };
                let found = self.queue.line.stand(before).copied();
                found.unwrap_or_else(|| self.stand_before(before, &record.spec, &record.phase))
            }
        };
        let before = before.filter(|&before| self.is_moved(before));
        self.queue.line.put(job, stand, before);
        self.forget_promises();
        self.quick.look_again();
    }

    /// The place just before a job that was not moved.
    fn stand_before(&self, job: JobId, spec: &JobSpec, phase: &Phase) -> Stand {
        let Listed { priority, user, entry } = self.listed(job, spec);
        let since = match phase {
            Phase::Queued { since } => *since,
            Phase::Resident(_) => self.now,
        };
        Stand {
            anchor: job,
            index: 0,
            user,
            priority,
            estimate: estimate(spec),
            since,
            processors: entry.processors,
        }
    }

    /// Whether an administrator gave a waiting job its place.
    #[must_use]
    pub fn is_moved(&self, job: JobId) -> bool {
        self.queue.line.stand(job).is_some()
    }

    /// How many jobs administrators have moved that still wait.
    #[must_use]
    pub fn moved_jobs(&self) -> usize {
        self.queue.line.moved.len()
    }

    /// The promise to a waiting job that an administrator has broken, if one has.
    #[must_use]
    pub fn overridden(&self, job: JobId) -> Option<Overridden> {
        self.queue.line.overridden.get(&job).copied()
    }

    /// The waiting jobs that were promised something which an administrator has broken.
    pub fn overridden_jobs(&self) -> impl Iterator<Item = (JobId, Overridden)> + '_ {
        self.queue.line.overridden.iter().map(|(&job, &broken)| (job, broken))
    }

    /// What is promised before an administrator moves a job or lets it run longer.
    pub(crate) fn promises_at_stake(&self, event: &Event) -> Vec<(JobId, ClusterTime)> {
        let is_asked = if let Event::SetTimeLimit { job, limit } = event {
            self.is_longer(*job, *limit)
        } else {
            matches!(event, Event::MoveJob { .. })
        };
        // What is expected in turns is no promise.
        if !is_asked || self.policy().plans() || self.slots_may_change() {
            return Vec::new();
        }
        let said = self.queue.promise.filter(Promise::is_said);
        let said = said.map(|promise| (promise.job, promise.at));
        let reserved = self.queue.reservations.iter().map(|(&job, place)| (job, place.start));
        said.into_iter().chain(reserved).filter(|(_, at)| *at < ClusterTime::NEVER).collect()
    }

    /// Notes and names the promises at stake that were broken: what is promised now is later, or
    /// nothing is.
    pub(crate) fn note_overridden(
        &mut self,
        event: &Event,
        before: &[(JobId, ClusterTime)],
        actions: &mut Vec<Action>,
    ) {
        let (Event::MoveJob { job: by, .. } | Event::SetTimeLimit { job: by, .. }) = *event else {
            return;
        };
        for &(job, at) in before {
            let waits = self.jobs.get(&job).is_some_and(|record| record.residence().is_none());
            let kept = self.promised_start(job).is_some_and(|now| now <= at);
            if waits && !kept && job != by {
                let earliest = self.overridden(job).map_or(at, |before| before.at.min(at));
                self.queue.line.overridden.insert(job, Overridden { at: earliest, by });
                actions.push(Action::PromiseBroken { job, at, by });
            }
        }
    }

    /// By what a waiting job is tried under the policy `classes`.
    pub(crate) fn contends_by(
        &self,
        job: JobId,
        (priority, since, processors): (u64, ClusterTime, u64),
    ) -> impl Ord + use<> {
        let line = &self.queue.line;
        let (priority, since, processors) = line
            .stand(job)
            .map_or((priority, since, processors), |it| (it.priority, it.since, it.processors));
        (Reverse(priority), since, Reverse(processors), line.place(job))
    }
}
