//! The queue: which jobs wait, which is seated next, and what each was promised.
//!
//! Which job is the first in line is the order of the line ([`crate::line`]); it starts as soon as it
//! fits. What becomes of those behind it is the queue's discipline:
//!
//! - `fcfs`: they wait;
//! - `easy`: the first in line has a reservation, and a job that cannot delay it is let by, in the
//!   order of the line;
//! - `sjbf`: the same, but those with the shortest limits are tried first;
//! - `conservative`: each job has a reservation ([`crate::reserve`]), and starts when it comes up.
//!
//! A job is taken to last as long as its time limit and its grace after that, or for ever if it has no limit.
//!
//! The reservation (Lifka's EASY, for one row or several): in each row, processors come free as the
//! grace of the jobs at home there is over after their limits, in no more than the slots of the row (a turn as a guest
//! elsewhere may be taken away any moment, so it is not counted on). The row where the first in line
//! fits soonest is the one where it is promised to start, at that moment, which is kept as `at`; the
//! processors that will be free there beyond what it needs are `extra`. A job behind it may start
//! at once
//!
//! - in another row, if it fits there;
//! - in that row, if it fits and either is gone by `at`, whatever it does, or takes no more than `extra`.
//!
//! It never opens a row, and it never joins one if its class would change how long the slots are:
//! either could delay the rows it is not in.
//!
//! Counting processors is exact for a job whose tasks take one processor each and no memory, unless
//! it wants a block of them (`packing=buddy`), or certain nodes, and while no job is on a drained
//! node. For other jobs it says too much: processors may be free
//! on many nodes, a few on each, and memory and counted resources are allocated
//! over all rows. Then `at` is merely a moment before which the first in line can't start,
//! and only a job that is gone by then may pass, in any row: so it is never delayed, but nothing
//! is said to the user of when it starts.
//!
//! A job that was promised a start stays the first in line until it starts, ends or is suspended,
//! whatever its user uses meanwhile. With `conservative`, jobs get reservations in the order of the
//! line, and a job that comes later never moves one back.
//!
//! What was promised holds as long as jobs end by their limits, nodes stay, and no administrator
//! changes parameters, classes or what is suspended. Where jobs take turns, it rests on the slots as
//! they are. They change when a user comes or leaves ([`crate::share`]) and when a job starts in a row
//! that its class keeps ([`crate::reserved_rows`]). While either may happen, a start is what is
//! expected, and no promise. With one row there are no turns, so promises are kept.

mod former;

pub(crate) use former::FormerQueue;

use crate::apply::Core;
use crate::ledger::Opening;
use crate::line::{Line, Listed, Search};
use crate::matrix::{Owner, Widths};
use crate::policy::classes::ByClass;
use crate::policy::{Decision, Preemption, WaitReason, after, processors};
use crate::reserve::Reservation;
use crate::state::ordered::{Entry, Ordered};
use crate::state::record::{Part, Phase, Record, Residence};
use crate::termination::memory_of;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, RowId};
use tutti_types::job::JobSpec;
use tutti_types::limits::BACKFILL_TRIES_MAX;
use tutti_types::params::Discipline;
use tutti_types::placing::Placement;
use tutti_types::time::{ClusterTime, Nanos};

/// The jobs that wait, each in one of three places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// In line, in the order of acceptance.
    pub(crate) waiting: BTreeSet<JobId>,
    /// Too large for the nodes that are up; back in line when a node joins.
    pub(crate) parked: BTreeSet<JobId>,
    /// Suspended by a user; back in line when resumed.
    pub(crate) suspended: BTreeSet<JobId>,
    /// Why the first one waits; `None` means that it should be tried.
    pub(crate) blocked: Option<WaitReason>,
    /// Those in line in the order in which they are tried behind the first, while the discipline
    /// lets any by.
    pub(crate) backlog: Ordered<Waiting>,
    /// What the first in line is promised.
    pub(crate) promise: Option<Promise>,
    /// What each job is promised, while the discipline is `conservative`.
    pub(crate) reservations: BTreeMap<JobId, Reservation>,
    /// The discipline that all this was made for.
    pub(crate) discipline: Discipline,
    /// In line since this event.
    pub(crate) newcomer: Option<JobId>,
    /// Something that promises rest on may be otherwise than when they were made.
    pub(crate) stale: bool,
    /// Something happened that may break promises, and that no later job is to blame for.
    pub(crate) disturbed: bool,
    /// The order of the jobs in line.
    pub(crate) line: Line,
    /// The job that `blocked` is about.
    pub(crate) tried: Option<JobId>,
    /// The jobs that came into line or left it in the latest event.
    pub(crate) touched: Vec<JobId>,
}

/// A job in line, for a search for one that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// What it is tried by, before the order of acceptance.
    key: u64,
    /// The job in whose place it stands: itself, unless it was moved.
    pub(crate) anchor: JobId,
    /// Its place before that job; the job itself is the last.
    pub(crate) index: u32,
    pub(crate) job: JobId,
    pub(crate) processors: u64,
    /// How long it may have its processors, in nanoseconds.
    pub(crate) holds: u64,
}

impl Waiting {
    /// A job's entry in an order by arrival.
    pub(crate) fn of(job: JobId, spec: &JobSpec, machine: Widths) -> Self {
        let (key, anchor, index) = (0, job, u32::MAX);
        Self { key, anchor, index, job, processors: processors(spec, machine), holds: holds(spec) }
    }

    /// What stands behind it at the earliest.
    pub(crate) fn next(self) -> Self {
        Self { job: JobId(self.job.0 + 1), processors: 0, ..self }
    }
}

/// The least that jobs in line ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Least {
    processors: u64,
    holds: u64,
}

impl Least {
    /// What further jobs ask for at least counts, too.
    pub(crate) fn add(&mut self, other: Self) {
        self.processors = self.processors.min(other.processors);
        self.holds = self.holds.min(other.holds);
    }

    /// Whether it may be another without this job.
    pub(crate) const fn may_be_of(&self, entry: Waiting) -> bool {
        entry.processors <= self.processors || entry.holds <= self.holds
    }
}

impl Default for Least {
    fn default() -> Self {
        Self { processors: u64::MAX, holds: u64::MAX }
    }
}

impl Entry for Waiting {
    type Summary = Least;
    fn enter(self, least: &mut Least) {
        least.add(Least { processors: self.processors, holds: self.holds });
    }
}

/// What the first in line is promised; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Promise {
    pub(crate) job: JobId,
    /// Where; `None`: in whatever row, so that all are kept clear.
    pub(crate) row: Option<RowId>,
    /// When at the latest, or, if no row is named, when at the earliest.
    pub(crate) at: ClusterTime,
    /// What will be free besides then, in that row.
    pub(crate) extra: u64,
    /// The earliest that was ever said; never, if nothing was that could be kept to.
    pub(crate) first: ClusterTime,
}

impl Promise {
    /// Whether its job's user is told when it starts.
    pub(crate) fn is_said(&self) -> bool {
        self.row.is_some() && self.at < ClusterTime::NEVER
    }
}

/// Where there is room for a job that can't delay the first in line.
struct Room {
    /// Processors free in the rows where a job may stay as long as it likes: the most in any.
    beside: u64,
    /// Processors free where it must be gone by the promise: the most in any.
    before: u64,
    /// How long it may run there.
    window: u64,
    /// Processors that it may keep there.
    extra: u64,
}

impl Room {
    fn fits(&self, processors: u64, holds: u64) -> bool {
        processors <= self.beside
            || processors <= self.before.min(self.extra)
            || (processors <= self.before && holds <= self.window)
    }
}

impl Queue {
    /// A job comes into line, by arrival; [`Core::line_up`] gives it its place among users.
    pub(crate) fn add(&mut self, job: JobId, spec: &JobSpec, machine: Widths) {
        self.waiting.insert(job);
        self.touched.push(job);
        if self.has_backlog() {
            self.backlog.insert(self.entry(job, spec, machine));
        }
    }

    /// The first in line. A job that was promised a start stays first, whatever its user uses.
    pub(crate) fn first(&self) -> Option<JobId> {
        if !self.line.has_lanes() {
            return self.first_by_arrival();
        }
        let promised = self.promise.filter(Promise::is_said).map(|promise| promise.job);
        promised.or_else(|| self.line.first())
    }

    /// Whether jobs that may pass are looked for in `backlog`, not in the lanes of users.
    pub(crate) fn has_backlog(&self) -> bool {
        match self.discipline {
            Discipline::Fcfs | Discipline::Conservative => false,
            Discipline::Easy => !self.line.has_lanes(),
            Discipline::Sjbf => true,
        }
    }

    /// The jobs in line, first to last. `quantum` counts for a job that comes before others.
    pub(crate) fn in_order(
        &self,
        quantum: Nanos,
        now: ClusterTime,
    ) -> impl Iterator<Item = (JobId, Option<Listed>)> + '_ {
        let lanes = self.line.has_lanes();
        let promised = self.promise.filter(|promise| lanes && promise.is_said());
        let promised = promised.map(|promise| promise.job);
        let by_arrival = (!lanes).then(|| self.by_arrival().map(|job| (job, None)));
        let by_users = lanes.then(|| {
            let others = self.line.in_order(quantum, now);
            let others = others.filter(move |(job, _)| Some(*job) != promised);
            others.map(|(job, listed)| (job, Some(listed)))
        });
        let first = promised.map(|job| (job, self.line.listed(job).copied()));
        first
            .into_iter()
            .chain(by_arrival.into_iter().flatten())
            .chain(by_users.into_iter().flatten())
    }

    /// A job leaves the queue, from whatever place.
    pub(crate) fn remove(&mut self, job: JobId, spec: &JobSpec, machine: Widths) {
        let promised = self.promise.is_some_and(|promise| promise.job == job);
        if promised || self.first() == Some(job) {
            self.blocked = None;
            self.promise = None;
        }
        let was_in_line = self.waiting.remove(&job);
        if was_in_line {
            self.touched.push(job);
        }
        if was_in_line && self.has_backlog() {
            self.backlog.remove(self.entry(job, spec, machine));
        }
        self.line.remove(job);
        self.parked.remove(&job);
        self.suspended.remove(&job);
        self.reservations.remove(&job);
    }

    /// Jobs that were too large for the nodes may fit.
    pub(crate) fn unpark(&mut self) {
        self.touched.extend(&self.parked);
        self.waiting.append(&mut self.parked);
    }

    /// What there is to try: everything, now that something is otherwise than it was.
    pub(crate) fn reconsider(&mut self) {
        self.blocked = None;
        self.stale = true;
    }

    /// Whether anybody holds a promise that a change of rows could break.
    pub(crate) fn promised(&self) -> bool {
        self.promise.is_some() || !self.reservations.is_empty()
    }

    /// Jobs in line have their grace counted, which form 4 of the journal did not.
    pub(crate) fn upgrade(
        &mut self,
        jobs: &crate::state::table::Table<crate::state::record::Record>,
    ) {
        let former: Vec<Waiting> = self.backlog.iter().collect();
        for waiting in former {
            if let Some(record) = jobs.get(&waiting.job) {
                self.backlog.remove(waiting);
                self.backlog.insert(Waiting { holds: holds(&record.spec), ..waiting });
            }
        }
    }

    fn entry(&self, job: JobId, spec: &JobSpec, machine: Widths) -> Waiting {
        let stand = self.line.stand(job);
        let key = match self.discipline {
            Discipline::Sjbf => stand.map_or_else(|| estimate(spec), |stand| stand.estimate),
            Discipline::Fcfs | Discipline::Easy | Discipline::Conservative => 0,
        };
        Waiting { key, ..Waiting::of(job, spec, machine).moved_to(stand) }
    }
}

/// How long a job is taken to run, in nanoseconds: the most there is for one without a limit.
pub(crate) fn estimate(spec: &JobSpec) -> u64 {
    spec.time_limit.map_or(u64::MAX, |limit| limit.0.min(u64::MAX - 1))
}

/// How long a job may have its processors, in nanoseconds of its turns: until its limit, and for its grace
/// after that. The most there is for one without a limit.
pub(crate) fn holds(spec: &JobSpec) -> u64 {
    match spec.time_limit {
        Some(_) => estimate(spec).saturating_add(spec.grace.0).min(u64::MAX - 1),
        None => u64::MAX,
    }
}

impl Core {
    /// Starts jobs from the queue as far as the policy has room and the discipline allows.
    pub(crate) fn seat_queued(&mut self, now: ClusterTime) {
        self.follow_settings();
        let newcomer = self.queue.newcomer.take();
        if matches!(self.policy().preemption, Preemption::ByClass) {
            self.seat_by_class(now);
            return;
        }
        if self.by_class != ByClass::default() {
            self.by_class = ByClass::default();
        }
        let tries = self.queue.blocked.is_none() || self.queue.stale || newcomer.is_some();
        // Any event may change the order of users.
        let tries = tries || self.queue.line.has_lanes();
        loop {
            match self.queue.discipline {
                Discipline::Fcfs => self.seat_in_turn(now),
                Discipline::Easy | Discipline::Sjbf => self.seat_around_promise(now, newcomer),
                Discipline::Conservative => self.seat_reserved(now, newcomer),
            }
            if !tries || !self.seat_in_kept_rows(now) {
                break;
            }
        }
        self.queue.stale = false;
        self.queue.disturbed = false;
    }

    /// Makes the line what it is by the discipline and the order in effect.
    pub(crate) fn follow_settings(&mut self) {
        if self.queue.discipline != self.discipline() {
            self.forget_promises();
        } else if self.queue.line.order != self.line_order() {
            self.line_up_all();
            self.queue.reconsider();
        }
    }

    /// The discipline in effect: without a line, no job is promised anything.
    pub(crate) fn discipline(&self) -> Discipline {
        match self.policy().preemption {
            Preemption::Nobodys(_) if self.policy().has_levels => Discipline::Fcfs,
            Preemption::Nobodys(_) => self.params.discipline(),
            Preemption::ByClass | Preemption::ByDeadline => Discipline::Fcfs,
        }
    }

    /// Nothing that was promised, or listed, holds for another discipline or machine.
    pub(crate) fn forget_promises(&mut self) {
        self.queue.discipline = self.discipline();
        self.queue.promise = None;
        self.queue.reservations.clear();
        self.queue.reconsider();
        self.line_up_all();
    }

    /// One after the other, in the order of the line.
    fn seat_in_turn(&mut self, now: ClusterTime) {
        if self.queue.tried != self.queue.first() {
            self.queue.blocked = None;
        }
        while self.queue.blocked.is_none()
            && let Some(job) = self.queue.first()
            && let Some(record) = self.jobs.get(&job)
        {
            let Some(decision) = self.decide_where_it_was(record) else { return };
            match decision {
                Decision::Start { row, parts } => self.start(now, job, row, parts),
                // It must not block those that do fit until, perhaps, a node comes back.
                Decision::Wait(WaitReason::Nodes) => self.park(job),
                Decision::Wait(reason) => {
                    self.queue.blocked = Some(reason);
                    self.queue.tried = Some(job);
                    self.queue.stale = true;
                }
            }
        }
    }

    pub(crate) fn park(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        self.queue.remove(job, &record.spec, self.matrix.widths());
        self.queue.parked.insert(job);
    }

    /// One after the other, and others by the first in line if they can't delay it.
    fn seat_around_promise(&mut self, now: ClusterTime, mut newcomer: Option<JobId>) {
        loop {
            self.seat_in_turn(now);
            let Some(first) = self.queue.first() else {
                self.queue.promise = None;
                return;
            };
            self.pass_first(now, first, newcomer.take());
            // A user whose job passes has used more: another job may be the first now, or have been
            // for a while, and have started then.
            if self.queue.first() == Some(first) && self.queue.blocked.is_some() {
                return;
            }
        }
    }

    /// Lets jobs by the first in line.
    fn pass_first(&mut self, now: ClusterTime, first: JobId, newcomer: Option<JobId>) {
        let late =
            self.queue.promise.is_none_or(|promise| promise.job != first || promise.at < now);
        if !self.queue.stale && !late {
            let entry = newcomer.and_then(|job| {
                let spec = &self.jobs.get(&job)?.spec;
                Some(self.queue.entry(job, spec, self.matrix.widths()))
            });
            if let Some((entry, mut promise)) = entry.zip(self.queue.promise)
                && entry.job != first
                && self.room(now, &promise).fits(entry.processors, entry.holds)
            {
                self.start_beside(now, entry, &mut promise);
                self.queue.promise = Some(promise);
            }
            return;
        }
        // Promises rest on the slots as they are now.
        self.outbox.reframed |= self.reframe(now);
        let mut promise = self.promise(now, first);
        let before = self.queue.promise.filter(|before| before.job == first);
        let is_void = self.queue.disturbed || self.slots_may_change();
        if let Some(before) = before.filter(|_| !is_void) {
            promise.first = before.first;
        }
        if self.can_keep_to(first, promise.at) {
            promise.first = promise.first.min(promise.at);
        }
        self.let_by(now, &mut promise);
        self.queue.promise = Some(promise);
    }

    /// Starts all jobs that can't delay the first in line.
    fn let_by(&mut self, now: ClusterTime, promise: &mut Promise) {
        let mut from = None;
        let mut search = Search::default();
        let mut failures = 0;
        while failures < BACKFILL_TRIES_MAX {
            let room = self.room(now, promise);
            if room.beside == 0 && room.before == 0 {
                return;
            }
            let may = |least: &Least| room.fits(least.processors, least.holds);
            let wanted = |entry: Waiting| {
                room.fits(entry.processors, entry.holds) && entry.job != promise.job
            };
            let found = match self.queue.has_backlog() {
                true => self.queue.backlog.find(from, may, wanted),
                false => self.queue.line.find(&mut search, may, wanted),
            };
            let Some(found) = found else { return };
            from = Some(found.next());
            failures += usize::from(!self.start_beside(now, found, promise));
        }
    }

    /// Starts a job in the first row, in the order of `packing`, where it fits and can't delay the
    /// first in line, and takes what it keeps off the promise's extra processors. Whether there was
    /// such a row.
    fn start_beside(&mut self, now: ClusterTime, entry: Waiting, promise: &mut Promise) -> bool {
        let Some(record) = self.jobs.get(&entry.job) else { return false };
        let rivals = |first: &Record| Self::share_a_resource(&first.spec, &record.spec);
        if self.lacks_resource(&record.spec).is_some()
            || self.jobs.get(&promise.job).is_some_and(rivals)
        {
            return false;
        }
        let (machine, lay) = (self.machine(), self.policy().placement);
        let fits = |row| {
            if !machine.keeps_slots(row, &record.spec, &self.frame) {
                return None;
            }
            let open = promise.row.is_some_and(|promised| promised != row);
            let gone = entry.holds <= self.window(now, row, promise);
            let spare = promise.row.is_some() && entry.processors <= promise.extra;
            if !open && !gone && !spare {
                return None;
            }
            let parts = lay(machine, &record.spec, Some(row)).ok()?;
            // A job that wants nodes to itself takes more than it needs.
            let taken = parts.iter().map(|part| u64::from(part.processors.count())).sum();
            let keeps = !open && !gone;
            (!keeps || taken <= promise.extra).then_some((row, parts, keeps.then_some(taken)))
        };
        let Some((row, parts, keeps)) = machine.rows_for(&record.spec).find_map(fits) else {
            return false;
        };
        promise.extra -= keeps.unwrap_or(0);
        self.start(now, entry.job, Some(row), parts);
        true
    }

    /// How much of a row's slot passes until what was promised comes up, for a job that starts now.
    pub(crate) fn window(&self, now: ClusterTime, row: RowId, promise: &Promise) -> u64 {
        let from = self.activation(now).max(self.frame.activates);
        match promise.at {
            ClusterTime::NEVER => u64::MAX - 1,
            at if at <= from => 0,
            at => self.frame.served_to(&[row], from, at).0,
        }
    }

    fn room(&self, now: ClusterTime, promise: &Promise) -> Room {
        let mut room = Room { beside: 0, before: 0, window: 0, extra: promise.extra };
        for (id, row) in self.matrix.ordinary().take(self.machine().rows as usize) {
            if promise.row.is_some_and(|promised| promised != id) {
                room.beside = room.beside.max(row.index.free());
            } else {
                room.before = room.before.max(row.index.free());
                room.window = room.window.max(self.window(now, id, promise));
            }
        }
        room
    }

    /// When and where the first in line can start, by the limits of the running jobs.
    pub(crate) fn promise(&self, now: ClusterTime, job: JobId) -> Promise {
        let mut best =
            Promise { job, row: None, at: ClusterTime::NEVER, extra: 0, first: ClusterTime::NEVER };
        let Some(record) = self.jobs.get(&job) else { return best };
        let needs = self.machine().least_processors(&record.spec);
        let counts = self.counts_tell(&record.spec);
        let stays = |at| self.stays_until_gone(&record.spec, at);
        let scarce = matches!(
            self.queue.blocked,
            Some(WaitReason::Memory | WaitReason::Resource { .. } | WaitReason::Device { .. })
        );
        // Memory and resources come free in whatever row.
        let rows = if scarce { usize::MAX } else { self.machine().rows as usize };
        let rows = self.matrix.rows().filter(|(_, row)| scarce || row.kept_by.is_none()).take(rows);
        for (id, row) in rows {
            let free = row.index.free();
            let lacks = if scarce { 1 } else { needs.saturating_sub(free).max(1) };
            let Some(release) = self.ledger.release(id, lacks) else { continue };
            let at = self.when_served(now, id, release.need);
            if at < best.at {
                // A start after which a node goes out of service too soon is not said.
                let counts = counts && stays(at);
                let extra =
                    if counts { (free + release.processors).saturating_sub(needs) } else { 0 };
                best = Promise { row: counts.then_some(id), at, extra, ..best };
            }
        }
        best
    }

    /// Whether what is said of a job's start can be kept to if jobs end by their limits: not while
    /// a job is just leaving, or a change of the timetable is still to come, nor if a node goes out
    /// of service before the job would be gone.
    pub(crate) fn can_keep_to(&self, job: JobId, at: ClusterTime) -> bool {
        let counts = self.jobs.get(&job).is_some_and(|record| {
            self.counts_tell(&record.spec) && self.stays_until_gone(&record.spec, at)
        });
        let stays = counts && !self.slots_may_change() && !self.ledger.anybody_leaves();
        stays && self.ledger.next_stage() == ClusterTime::NEVER
    }

    /// Whether counting processors tells when a job fits: not while anybody is on a node that takes
    /// no new jobs, which leaves its processors to none, nor for a job that needs counted resources.
    fn counts_tell(&self, spec: &JobSpec) -> bool {
        let plain = spec.resources.is_empty() && self.machine().counts_suffice(spec);
        plain && !self.matrix.closed_in_use()
    }

    /// When so much more of a row's slot will have passed.
    pub(crate) fn when_served(&self, now: ClusterTime, row: RowId, need: Nanos) -> ClusterTime {
        match need {
            Nanos::ZERO => now,
            need => self.frame.reaches(&[row], now.max(self.frame.activates), need),
        }
    }

    pub(crate) fn start(
        &mut self,
        now: ClusterTime,
        job: JobId,
        row: Option<RowId>,
        parts: Vec<Part>,
    ) {
        self.admit_memory(job, &parts);
        self.settle_in(now, job, row, parts);
    }

    /// Allocates the memory that a job asks for.
    pub(crate) fn admit_memory(&mut self, job: JobId, parts: &[Part]) {
        let Some(record) = self.jobs.get(&job) else { return };
        if record.spec.memory_per_task_bytes.is_some() {
            for part in parts {
                self.nodes.admit(part.node, memory_of(part, &record.spec));
            }
        }
    }

    /// Starts a job that has its memory allocated.
    pub(crate) fn settle_in(
        &mut self,
        now: ClusterTime,
        job: JobId,
        row: Option<RowId>,
        parts: Vec<Part>,
    ) {
        let machine = self.matrix.widths();
        let begins = self.activation(now);
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let owner = Owner::of(&record.spec);
        self.queue.remove(job, &record.spec, machine);
        self.queue.line.forget_move(job);
        self.queues.started(job, &record.spec);
        if self.params.placement() == Placement::RoundRobin
            && let Some(next) = after(&parts, self.nodes.in_turn())
        {
            self.nodes.pass_turn(next);
        }
        let places = parts.iter().map(|part| (part.node, part.processors.clone())).collect();
        let home = self.matrix.place(job, (&record.spec.class, owner), row, places);
        let processors = self.matrix.seat(job).map_or(0, |seat| seat.processors);
        let (limit, grace) = (record.spec.time_limit, record.spec.grace);
        self.ledger.open(job, Opening { home, processors, limit, grace, begins });
        let first = parts.first().map(|part| part.node);
        let mut residence = Residence::new(now, parts);
        if let Some(allocation) = self.allocations.get(&job) {
            residence.parts.iter_mut().for_each(|part| part.hold(allocation.first));
        }
        record.phase = Phase::Resident(Box::new(residence));
        self.grant(job);
        self.assign_devices(job);
        self.outbox.launches.push(job);
        self.after.note_start(job);
        self.warnings.note_start(job);
        self.checkpoints.note_start(now, job, first);
        self.roll_out.forget(job);
        self.note_element_start(job);
        self.note_idle(job);
        self.count_start(job, owner.user, processors);
    }
}
