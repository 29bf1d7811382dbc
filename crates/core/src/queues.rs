//! Queues: which jobs are in which, how much of each limit is used, and which jobs wait for one.
//!
//! A job that a running limit keeps out waits *beside* the line: it is not first in line, and jobs
//! behind it start. A job in line counts as if it ran, so its part of each limit is kept for it:
//! what it was promised holds, and no later job of the queue takes it.
//!
//! Jobs beside the line come in when something is free, in the order of acceptance. A job that
//! lacks a limit of its user holds up later jobs of that user, one that lacks a limit of the queue
//! holds up all later ones of the queue: else small jobs could keep a large one out for ever. A job
//! that exceeds a limit even if it is the only one waits for other hours, and holds up none.
//!
//! Jobs of a user and a group are a *lane*: they count in the same sums, so only the first of each
//! lane is looked at. A start or an end changes four sums; an end looks at each lane of its queue
//! that has jobs beside the line, until one lacks a limit of the queue.

use crate::apply::Core;
use crate::policy::WaitReason;
use crate::state::record::{Phase, Record};
use crate::state::table::Table;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{ClassName, GroupId, JobId, QueueName, UserId};
use tutti_types::job::JobSpec;
use tutti_types::limits::QUEUES_MAX;
use tutti_types::queue::{
    Allowed, QueueLimit, QueueLimits, QueueRefusal, QueueScope, QueueSpec, Tally,
};
use tutti_types::refusal::Refusal;
use tutti_types::time::Nanos;

/// Jobs that count in the same sums.
type Lane = (UserId, GroupId);

/// All queues and the jobs in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Queues {
    specs: BTreeMap<QueueName, QueueSpec>,
    /// The limits that hold at this hour.
    now: BTreeMap<QueueName, QueueLimits>,
    members: BTreeMap<JobId, Member>,
    tallies: BTreeMap<QueueName, BTreeMap<QueueScope, Tally>>,
    /// Jobs that wait for a limit.
    beside: BTreeMap<QueueName, Beside>,
    /// Queues where a job beside the line may come in.
    freed: BTreeSet<QueueName>,
    /// The users that may use a class, where not all may.
    class_users: BTreeMap<ClassName, Allowed>,
}

/// A job of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Member {
    queue: QueueName,
    /// Whether it counts as if it ran: it is in line, or has been placed.
    counted: bool,
    /// Whether it counts as one that waits.
    waits: bool,
}

/// The jobs of a queue that wait for a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Beside {
    lanes: BTreeMap<Lane, BTreeSet<JobId>>,
    /// Those that exceed a limit of this hour by themselves.
    too_large: BTreeSet<JobId>,
}

impl Beside {
    fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.too_large.is_empty()
    }

    fn insert(&mut self, lane: Lane, job: JobId) {
        self.lanes.entry(lane).or_default().insert(job);
    }

    fn remove(&mut self, lane: Lane, job: JobId) {
        self.too_large.remove(&job);
        if let Some(jobs) = self.lanes.get_mut(&lane) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    fn contains(&self, lane: Lane, job: JobId) -> bool {
        let in_lane = self.lanes.get(&lane).is_some_and(|jobs| jobs.contains(&job));
        in_lane || self.too_large.contains(&job)
    }
}

const fn lane(spec: &JobSpec) -> Lane {
    (spec.owner, spec.group)
}

impl Queues {
    fn limits(&self, queue: &QueueName) -> QueueLimits {
        self.now.get(queue).copied().unwrap_or_default()
    }

    fn tally(&self, queue: &QueueName, scope: QueueScope) -> Tally {
        let tallies = self.tallies.get(queue);
        tallies.and_then(|tallies| tallies.get(&scope)).copied().unwrap_or_default()
    }

    fn change(&mut self, queue: &QueueName, spec: &JobSpec, change: impl Fn(&mut Tally)) {
        let tallies = self.tallies.entry(queue.clone()).or_default();
        for scope in QueueScope::of(spec) {
            let tally = tallies.entry(scope).or_default();
            change(tally);
            if tally.is_empty() {
                tallies.remove(&scope);
            }
        }
        if tallies.is_empty() {
            self.tallies.remove(queue);
        }
    }

    /// The limit that keeps one more job out, and in which scope.
    fn lacks(&self, queue: &QueueName, spec: &JobSpec) -> Option<(QueueLimit, u64, QueueScope)> {
        let (limits, job) = (self.limits(queue), Tally::of(spec));
        QueueScope::of(spec).into_iter().find_map(|scope| {
            let (limit, most) = limits.exceeded(scope, self.tally(queue, scope), job)?;
            Some((limit, most, scope))
        })
    }

    /// Whether a job may come into line before those that wait beside it.
    fn has_room(&self, queue: &QueueName, spec: &JobSpec) -> bool {
        let limits = self.limits(queue);
        let none_beside = self.beside.get(queue).is_none_or(|beside| beside.lanes.is_empty());
        none_beside && limits.exceeded_alone(spec).is_none() && self.lacks(queue, spec).is_none()
    }

    /// The jobs that may come into line now; they count from then on.
    fn choose(&mut self, queue: &QueueName, jobs: &Table<Record>) -> Vec<JobId> {
        let mut chosen = Vec::new();
        let Some(mut beside) = self.beside.remove(queue) else { return chosen };
        let limits = self.limits(queue);
        let first = |(&lane, jobs): (&Lane, &BTreeSet<JobId>)| Some((*jobs.first()?, lane));
        let mut heads: BTreeSet<(JobId, Lane)> = beside.lanes.iter().filter_map(first).collect();
        let mut lacking: BTreeSet<QueueScope> = BTreeSet::new();
        while let Some((job, lane)) = heads.pop_first()
            && !lacking.contains(&QueueScope::All)
        {
            let Some(record) = jobs.get(&job) else { continue };
            if QueueScope::of(&record.spec).iter().any(|scope| lacking.contains(scope)) {
                continue;
            }
            if limits.exceeded_alone(&record.spec).is_some() {
                beside.remove(lane, job);
                beside.too_large.insert(job);
            } else if let Some((_, _, scope)) = self.lacks(queue, &record.spec) {
                lacking.insert(scope);
                continue;
            } else {
                beside.remove(lane, job);
                self.count(job, &record.spec);
                chosen.push(job);
            }
            let next = beside.lanes.get(&lane).and_then(|jobs| jobs.first());
            heads.extend(next.map(|&next| (next, lane)));
        }
        if !beside.is_empty() {
            self.beside.insert(queue.clone(), beside);
        }
        chosen
    }

    /// A job counts as if it ran.
    fn count(&mut self, job: JobId, spec: &JobSpec) {
        let Some(member) = self.members.get_mut(&job).filter(|member| !member.counted) else {
            return;
        };
        member.counted = true;
        let queue = member.queue.clone();
        self.change(&queue, spec, |tally| tally.add(Tally::of(spec)));
    }

    /// A job comes into line, or waits beside it; whether it is in line.
    fn enter(&mut self, job: JobId, spec: &JobSpec) -> bool {
        let Some(member) = self.members.get(&job) else { return true };
        let queue = member.queue.clone();
        if spec.deadline.is_some() || self.has_room(&queue, spec) {
            self.count(job, spec);
            return true;
        }
        self.beside.entry(queue.clone()).or_default().insert(lane(spec), job);
        self.freed.insert(queue);
        false
    }

    /// A job takes nothing of any limit, and waits for none.
    fn release(&mut self, job: JobId, spec: &JobSpec) {
        let Some(member) = self.members.get_mut(&job) else { return };
        let queue = member.queue.clone();
        let counted = core::mem::replace(&mut member.counted, false);
        if let Some(beside) = self.beside.get_mut(&queue) {
            beside.remove(lane(spec), job);
            if beside.is_empty() {
                self.beside.remove(&queue);
            }
        }
        if counted {
            self.change(&queue, spec, |tally| tally.subtract(Tally::of(spec)));
        }
        self.freed.insert(queue);
    }

    /// A job that may count has another time limit than this one.
    pub(crate) fn recount(&mut self, job: JobId, before: Option<Nanos>, spec: &JobSpec) {
        let Some(member) = self.members.get(&job).filter(|member| member.counted) else { return };
        let queue = member.queue.clone();
        let former = Tally::of(&JobSpec { time_limit: before, ..spec.clone() });
        self.change(&queue, spec, |tally| {
            tally.add(Tally::of(spec));
            tally.subtract(former);
        });
        self.freed.insert(queue);
    }

    /// A job waits, or does not any more.
    fn set_waiting(&mut self, job: JobId, spec: &JobSpec, waits: bool) {
        let Some(member) = self.members.get_mut(&job).filter(|member| member.waits != waits) else {
            return;
        };
        member.waits = waits;
        let queue = member.queue.clone();
        self.change(&queue, spec, |tally| match waits {
            true => tally.add(Tally::waiting()),
            false => tally.subtract(Tally::waiting()),
        });
    }

    /// Of an array, other elements than before are no jobs yet. They count as jobs that wait.
    pub(crate) fn count_elements(
        &mut self,
        queue: &QueueName,
        spec: &JobSpec,
        (before, after): (u32, u32),
    ) {
        self.change(queue, spec, |tally| {
            tally.add(Tally::waiting_jobs(after.saturating_sub(before)));
            tally.subtract(Tally::waiting_jobs(before.saturating_sub(after)));
        });
    }

    /// A job has its processors.
    pub(crate) fn started(&mut self, job: JobId, spec: &JobSpec) {
        if self.members.contains_key(&job) {
            self.count(job, spec);
            self.set_waiting(job, spec, false);
        }
    }

    /// A job has ended.
    pub(crate) fn forget(&mut self, job: JobId, spec: &JobSpec) {
        if self.members.contains_key(&job) {
            self.release(job, spec);
            self.set_waiting(job, spec, false);
            self.members.remove(&job);
        }
    }

    /// Whether a job waits beside the line.
    pub(crate) fn is_beside(&self, job: JobId, spec: &JobSpec) -> bool {
        let beside = self.members.get(&job).and_then(|member| self.beside.get(&member.queue));
        beside.is_some_and(|beside| beside.contains(lane(spec), job))
    }

    /// What so many jobs that ask for a queue together are declined for.
    pub(crate) fn admit(
        &self,
        queue: &QueueName,
        spec: &JobSpec,
        count: u32,
    ) -> Result<(), Refusal> {
        let name = || queue.clone();
        let refuse = |refusal| Err(Refusal::Queue(refusal));
        let Some(settings) = self.specs.get(queue) else {
            let known = self.specs.keys().cloned().collect();
            return refuse(QueueRefusal::Unknown { queue: name(), known });
        };
        if let Some(limit) = self.limits(queue).unnamed(spec) {
            return refuse(QueueRefusal::Unnamed { queue: name(), limit });
        }
        if let Some((limit, most)) = settings.never_fits(spec) {
            return refuse(QueueRefusal::TooMuch { queue: name(), limit, most });
        }
        for scope in QueueScope::of(spec) {
            let tally = self.tally(queue, scope);
            let more = Tally::waiting_jobs(count);
            if let Some((limit, most)) = self.limits(queue).exceeded(scope, tally, more) {
                return refuse(QueueRefusal::Full { queue: name(), limit, most });
            }
        }
        if spec.deadline.is_some() && !self.has_room(queue, spec) {
            return refuse(QueueRefusal::Deadline { queue: name() });
        }
        Ok(())
    }

    /// How long it takes until other limits may hold.
    pub(crate) fn changes_in(&self, week: Nanos) -> Option<Nanos> {
        self.specs.values().filter_map(|spec| spec.changes_in(week)).min()
    }

    /// The jobs of a queue that are in line and may leave it.
    fn in_line(&self, queue: &QueueName, jobs: &Table<Record>) -> Vec<JobId> {
        let members = self.members.iter().filter(|(_, it)| it.queue == *queue && it.counted);
        let movable = members.filter(|(job, _)| {
            let record = jobs.get(job).filter(|record| record.spec.deadline.is_none());
            record.is_some_and(|record| matches!(record.phase, Phase::Queued { .. }))
        });
        movable.map(|(&job, _)| job).collect()
    }

    /// Drops what is kept of a class.
    pub(crate) fn forget_class(&mut self, class: &ClassName) {
        self.class_users.remove(class);
    }
}

impl Core {
    /// A job of a queue is accepted.
    pub(crate) fn join_queue(&mut self, job: JobId, queue: &QueueName, spec: &JobSpec) {
        let member = Member { queue: queue.clone(), counted: false, waits: false };
        self.queues.members.insert(job, member);
        self.queues.set_waiting(job, spec, true);
    }

    /// A job that waits comes into line, or beside it while it lacks a limit of its queue; whether
    /// it is in line.
    pub(crate) fn enter_line(&mut self, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let in_line = self.queues.enter(job, &record.spec);
        if in_line {
            self.quick.come(job, &record.spec, &self.classes);
            self.line_up(job);
        }
        in_line
    }

    /// A job that waits leaves its place until it is resumed.
    pub(crate) fn leave_line(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        self.queue.remove(job, &record.spec, self.matrix.widths());
        if record.spec.deadline.is_none() {
            self.queues.release(job, &record.spec);
        }
    }

    /// Nothing of a job is left on any node, and it is to be in line again.
    pub(crate) fn wait_again(&mut self, record: &Record) {
        self.queues.release(record.id, &record.spec);
        self.queues.set_waiting(record.id, &record.spec, true);
    }

    /// Jobs beside the line come in where something is free.
    pub(crate) fn let_in(&mut self) {
        while let Some(queue) = self.queues.freed.pop_first() {
            for job in self.queues.choose(&queue, &self.jobs) {
                let Some(record) = self.jobs.get(&job) else { continue };
                self.quick.come(job, &record.spec, &self.classes);
                self.line_up(job);
                // It may come before others that were promised something.
                self.queue.disturbed = true;
                self.queue.reconsider();
            }
        }
    }

    /// An administrator makes a queue, changes it, or removes it.
    pub(crate) fn on_set_queue(&mut self, name: &QueueName, spec: Option<&QueueSpec>) {
        match spec {
            Some(spec) => {
                let known = self.queues.specs.contains_key(name);
                if spec.check().is_err() || (!known && self.queues.specs.len() >= QUEUES_MAX) {
                    return;
                }
                self.queues.specs.insert(name.clone(), spec.clone());
            }
            None if self.queue_jobs(name) > 0 => return,
            None => {
                self.queues.specs.remove(name);
                self.queues.now.remove(name);
            }
        }
        self.take_settings(self.now);
    }

    /// Makes the limits of this hour hold. A job in line that exceeds them waits beside it; one
    /// that runs goes on.
    pub(crate) fn take_queue_limits(&mut self, week: Option<Nanos>) {
        let at = |spec: &QueueSpec| spec.at(week).unwrap_or_default();
        let changed = |(name, spec): (&QueueName, &QueueSpec)| {
            let limits = at(spec);
            (self.queues.now.get(name) != Some(&limits)).then(|| (name.clone(), limits))
        };
        let changed: Vec<(QueueName, QueueLimits)> =
            self.queues.specs.iter().filter_map(changed).collect();
        for (queue, limits) in changed {
            for job in self.queues.in_line(&queue, &self.jobs) {
                self.leave_line(job);
                if let Some(record) = self.jobs.get(&job) {
                    let beside = self.queues.beside.entry(queue.clone()).or_default();
                    beside.insert(lane(&record.spec), job);
                }
            }
            self.queues.now.insert(queue.clone(), limits);
            if let Some(beside) = self.queues.beside.get_mut(&queue) {
                for job in core::mem::take(&mut beside.too_large) {
                    if let Some(record) = self.jobs.get(&job) {
                        beside.insert(lane(&record.spec), job);
                    }
                }
            }
            self.queues.freed.insert(queue);
            self.queue.disturbed = true;
            self.queue.reconsider();
        }
    }

    /// The limit that a job beside the line waits for.
    pub(crate) fn why_beside(&self, job: JobId) -> Option<WaitReason> {
        let spec = &self.jobs.get(&job)?.spec;
        if !self.queues.is_beside(job, spec) {
            return None;
        }
        let queue = &self.queues.members.get(&job)?.queue;
        let own = self.queues.limits(queue).exceeded_alone(spec);
        let own = own.or_else(|| {
            let (limit, most, _) = self.queues.lacks(queue, spec)?;
            Some((limit, most))
        });
        // An earlier job of the queue holds it up.
        let earlier = || {
            let lanes = self.queues.beside.get(queue)?.lanes.values();
            let first = lanes.filter_map(|jobs| jobs.first()).min()?;
            let (limit, most, _) = self.queues.lacks(queue, &self.jobs.get(first)?.spec)?;
            Some((limit, most))
        };
        let (limit, most) = own.or_else(earlier)?;
        Some(WaitReason::Queue { limit, most })
    }

    /// An administrator sets the users that may use a class.
    pub(crate) fn on_set_class_users(&mut self, class: &ClassName, allowed: &Allowed) {
        if !self.settings.classes.contains_key(class) {
            return;
        }
        match allowed.is_all() {
            true => self.queues.class_users.remove(class),
            false => self.queues.class_users.insert(class.clone(), allowed.clone()),
        };
    }

    /// All queues, by name.
    #[must_use]
    pub const fn queues(&self) -> &BTreeMap<QueueName, QueueSpec> {
        &self.queues.specs
    }

    /// The limits of a queue that hold at this hour.
    #[must_use]
    pub fn queue_limits(&self, queue: &QueueName) -> QueueLimits {
        self.queues.limits(queue)
    }

    /// What the jobs of a queue have, in a scope.
    #[must_use]
    pub fn queue_tally(&self, queue: &QueueName, scope: QueueScope) -> Tally {
        self.queues.tally(queue, scope)
    }

    /// How many jobs are in a queue.
    #[must_use]
    pub fn queue_jobs(&self, queue: &QueueName) -> usize {
        let arrays = self.arrays.in_queues().filter(|(of, ..)| *of == queue).count();
        arrays + self.queues.members.values().filter(|member| member.queue == *queue).count()
    }

    /// How many jobs are in each queue that has some: one pass for all of them.
    #[must_use]
    pub fn jobs_of_queues(&self) -> BTreeMap<&QueueName, usize> {
        let mut jobs = BTreeMap::new();
        for member in self.queues.members.values() {
            *jobs.entry(&member.queue).or_default() += 1;
        }
        jobs
    }

    /// The queue of a job, if it is in one.
    #[must_use]
    pub fn queue_of(&self, job: JobId) -> Option<&QueueName> {
        self.queues.members.get(&job).map(|member| &member.queue)
    }

    /// The users that may use a class; `None`: all.
    #[must_use]
    pub fn class_users(&self, class: &ClassName) -> Option<&Allowed> {
        self.queues.class_users.get(class)
    }

    /// What does not hold of the queues, in words.
    pub(crate) fn wrong_queues(&self) -> Option<alloc::string::String> {
        let mut anew = Queues { freed: BTreeSet::new(), ..self.queues.clone() };
        anew.tallies.clear();
        for (&job, member) in &self.queues.members {
            let Some(record) = self.jobs.get(&job) else {
                return Some(alloc::format!("job {job} is unknown, and in {}", member.queue));
            };
            let (spec, queued) = (&record.spec, matches!(record.phase, Phase::Queued { .. }));
            if member.waits {
                anew.change(&member.queue, spec, |tally| tally.add(Tally::waiting()));
            }
            if member.counted {
                anew.change(&member.queue, spec, |tally| tally.add(Tally::of(spec)));
            }
            let beside = self.queues.is_beside(job, spec);
            let placed = queued && !self.is_kept_back(record) && spec.deadline.is_none();
            if member.waits != queued
                || (!queued && !member.counted)
                || (placed && beside == member.counted)
                || (beside && (!queued || self.is_kept_back(record)))
            {
                return Some(alloc::format!("job {job}: {member:?}, {:?}", record.phase));
            }
        }
        for (queue, spec, unmade) in self.arrays.in_queues() {
            anew.count_elements(queue, spec, (0, unmade));
        }
        if anew.tallies != self.queues.tallies {
            return Some(alloc::format!("{:?}, not {:?}", self.queues.tallies, anew.tallies));
        }
        let queues: Vec<QueueName> = self.queues.specs.keys().cloned().collect();
        queues.iter().find_map(|queue| self.wrong_limits(queue, &mut anew))
    }

    /// Whether a job in line exceeds a limit, or one beside it could come in.
    fn wrong_limits(&self, queue: &QueueName, anew: &mut Queues) -> Option<alloc::string::String> {
        let limits = self.queues.limits(queue);
        for job in self.queues.in_line(queue, &self.jobs) {
            let spec = &self.jobs.get(&job)?.spec;
            let own = Tally::of(spec);
            for scope in QueueScope::of(spec) {
                let mut others = self.queues.tally(queue, scope);
                others.subtract(own);
                if let Some((limit, most)) = limits.exceeded(scope, others, own) {
                    return Some(alloc::format!("job {job} in line exceeds {limit}={most}"));
                }
            }
        }
        let could = anew.choose(queue, &self.jobs);
        let first = could.first()?;
        Some(alloc::format!("job {first} waits for no limit of {queue}"))
    }
}
