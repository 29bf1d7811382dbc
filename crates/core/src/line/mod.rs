//! The order of the line: which job is next.
//!
//! With `order=arrival`, the job that was accepted first. With `order=users`:
//!
//! 1. the job with the class of the higher priority;
//! 2. then users in turn: the job of the user with the least decayed use divided by weight
//!    ([`uses`]);
//! 3. then the job that was accepted first.
//!
//! Each priority is a level, with a lane for each user that waits there: the user's jobs by
//! arrival.
//! Lanes stand in the order of their turns. An event that charges a user moves that user's lanes
//! only. A search for a job that fits skips blocks of lanes, lanes, and blocks of jobs by the least
//! that jobs there ask for.
//!
//! Users alternate in the line as they do when jobs start: in a walk through the line, each job
//! counts one quantum once it is passed ([`Line::in_order`]).
//!
//! An administrator may give a job another place ([`moves`]).
//!
//! An entry ([`Waiting`]) stands for one job; it is a type of its own, so that one may stand for
//! several.

mod moves;
mod uses;

pub use moves::Overridden;
pub(crate) use moves::{FRONT, Stand};

use crate::apply::Core;
use crate::queue::{Least, Waiting};
use crate::state::ordered::{Entry, Ordered};
use crate::state::record::Record;
use crate::state::table::Table;
use crate::weight::UserWeights;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cell::Cell;
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};
use tutti_types::account::BankAccount;
use tutti_types::ids::{JobId, UserId};
use tutti_types::params::LineOrder;
use tutti_types::time::{ClusterTime, Nanos};
use uses::{Score, Uses};

/// A lane among those of its level: by use, then by the place of its first job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Turn {
    score: Score,
    first: JobId,
    user: UserId,
    /// The least that its jobs ask for.
    least: Least,
}

impl Entry for Turn {
    type Summary = Least;
    fn enter(self, least: &mut Least) {
        least.add(self.least);
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Line {
    /// The order that all this was made for.
    pub(crate) order: LineOrder,
    /// The jobs in line by what they stand by; none with `order=arrival`.
    places: Table<Listed>,
    levels: BTreeMap<Reverse<u64>, Level>,
    uses: Uses,
    /// The waiting jobs that an administrator has moved.
    moved: BTreeMap<JobId, Stand>,
    /// The waiting jobs that were promised something which a move has broken.
    overridden: BTreeMap<JobId, Overridden>,
}

/// What a job stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// The priority of its class.
    pub(crate) priority: u64,
    pub(crate) user: UserId,
    pub(crate) entry: Waiting,
}

/// The jobs of one priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Level {
    lanes: BTreeMap<UserId, Lane>,
    turns: Ordered<Turn>,
}

/// The jobs of one user and one priority, by arrival: never none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Lane {
    /// Where it stands, once it does.
    turn: Option<Turn>,
    jobs: Ordered<Waiting>,
    /// The least that these ask for.
    least: Least,
}

impl Lane {
    fn insert(&mut self, entry: Waiting) {
        self.jobs.insert(entry);
        entry.enter(&mut self.least);
    }

    fn remove(&mut self, entry: Waiting) {
        self.jobs.remove(entry);
        if self.least.may_be_of(entry) {
            self.least = Least::default();
            self.jobs.blocks().iter().for_each(|block| self.least.add(block.summary));
        }
    }
}

/// How far a search for jobs that fit has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    level: Option<Reverse<u64>>,
    from: Option<Turn>,
    /// The entry behind the latest that was found, by user.
    behind: BTreeMap<UserId, Waiting>,
}

impl Line {
    /// The user's place among users: the less, the sooner; the same for all with `order=arrival`.
    pub(crate) fn score(&self, user: UserId) -> Score {
        if self.has_lanes() { self.uses.score(user) } else { 0 }
    }

    /// Whether jobs stand in lanes.
    pub(crate) fn has_lanes(&self) -> bool {
        self.order == LineOrder::Users
    }

    /// A job comes into line, of a user with this weight, unless it stands in another user's lane.
    pub(crate) fn add(&mut self, listed: Listed, weight: Option<u32>) {
        let Listed { priority, user, entry } = listed;
        self.remove(entry.job);
        self.places.insert(entry.job, listed);
        if let Some(weight) = weight {
            self.uses.weigh(user, weight);
        }
        let level = self.levels.entry(Reverse(priority)).or_default();
        level.lanes.entry(user).or_default().insert(entry);
        self.rank(user);
    }

    /// A job leaves the line, if it was in it.
    pub(crate) fn remove(&mut self, job: JobId) {
        let Some(Listed { priority, user, entry }) = self.places.remove(&job) else { return };
        let Some(level) = self.levels.get_mut(&Reverse(priority)) else { return };
        if let Some(lane) = level.lanes.get_mut(&user) {
            lane.remove(entry);
            level.rank(user, self.uses.score(user));
        }
        if level.lanes.is_empty() {
            self.levels.remove(&Reverse(priority));
        }
    }

    /// Leaves nothing of the line, for another order or other entries.
    pub(crate) fn clear(&mut self) {
        self.places = Table::default();
        self.levels.clear();
    }

    /// The first job of all.
    pub(crate) fn first(&self) -> Option<JobId> {
        let (_, level) = self.levels.first_key_value()?;
        let turn = level.turns.first()?;
        level.lanes.get(&turn.user)?.jobs.first().map(|entry| entry.job)
    }

    /// Puts the user's lanes where they belong now.
    fn rank(&mut self, user: UserId) {
        let score = self.uses.score(user);
        for level in self.levels.values_mut() {
            level.rank(user, score);
        }
    }

    fn rank_all(&mut self) {
        let Self { levels, uses, .. } = self;
        for level in levels.values_mut() {
            for user in level.lanes.keys().copied().collect::<Vec<UserId>>() {
                level.rank(user, uses.score(user));
            }
        }
    }

    /// The next entry, in the order of the line, that is `wanted`, looking only where `may` says
    /// that one may be. What was found before is passed over.
    pub(crate) fn find(
        &self,
        search: &mut Search,
        may: impl Fn(&Least) -> bool,
        wanted: impl Fn(Waiting) -> bool,
    ) -> Option<Waiting> {
        let first = search.level.unwrap_or(Reverse(u64::MAX));
        for (&priority, level) in self.levels.range(first..) {
            if search.level != Some(priority) {
                *search = Search { level: Some(priority), ..Search::default() };
            }
            let found = Cell::new(None);
            let has_one = |turn: Turn| {
                let lane = level.lanes.get(&turn.user).filter(|_| may(&turn.least));
                let behind = search.behind.get(&turn.user).copied();
                found.set(lane.and_then(|lane| lane.jobs.find(behind, &may, &wanted)));
                found.get().is_some()
            };
            let turn = level.turns.find(search.from, &may, has_one);
            if let (Some(turn), Some(found)) = (turn, found.get()) {
                search.from = Some(turn);
                search.behind.insert(turn.user, found.next());
                return Some(found);
            }
        }
        None
    }

    /// The jobs in the order of the line, as if each counted one quantum once it is taken.
    pub(crate) fn in_order(
        &self,
        quantum: Nanos,
        now: ClusterTime,
    ) -> impl Iterator<Item = (JobId, Listed)> + '_ {
        self.levels.iter().flat_map(move |(&Reverse(priority), level)| {
            let mut lanes: Vec<(UserId, Box<dyn Iterator<Item = Waiting> + '_>)> = Vec::new();
            let mut next = BinaryHeap::new();
            for Turn { score, user, .. } in level.turns.iter() {
                let Some(lane) = level.lanes.get(&user) else { continue };
                let mut jobs = lane.jobs.iter();
                if let Some(entry) = jobs.next() {
                    next.push(Reverse((score, entry.anchor, lanes.len(), entry)));
                    lanes.push((user, Box::new(jobs)));
                }
            }
            core::iter::from_fn(move || {
                let Reverse((score, _, lane, entry)) = next.pop()?;
                let (user, jobs) = &mut lanes[lane];
                let user = *user;
                if let Some(following) = jobs.next() {
                    let more = self.uses.score_of_start(user, entry.processors, quantum, now);
                    let score = score.saturating_add(more);
                    next.push(Reverse((score, following.anchor, lane, following)));
                }
                Some((entry.job, Listed { priority, user, entry }))
            })
        })
    }

    /// What is wrong, if anything is: each job of `waiting` stands in one lane, by its class and
    /// user, and each lane where it belongs.
    pub(crate) fn fault(&self, waiting: &BTreeSet<JobId>) -> Option<&'static str> {
        if !self.has_lanes() {
            return (!self.levels.is_empty() || !self.places.is_empty()).then_some("lanes");
        }
        if !self.places.keys().eq(waiting.iter().copied()) {
            return Some("other jobs than those that wait");
        }
        let mut listed = 0;
        for (&Reverse(priority), level) in &self.levels {
            let mut turns: Vec<Turn> = level.lanes.values().filter_map(|lane| lane.turn).collect();
            turns.sort_unstable();
            if turns.is_empty() || !level.turns.iter().eq(turns) {
                return Some("other lanes than turns");
            }
            for (&user, lane) in &level.lanes {
                let mut least = Least::default();
                lane.jobs.iter().for_each(|entry| entry.enter(&mut least));
                let score = self.uses.score(user);
                let first = lane.jobs.first().map(|entry| entry.anchor);
                let turn = first.map(|first| Turn { score, first, user, least });
                if turn.is_none() || turn != lane.turn {
                    return Some("a lane in the wrong place");
                }
                for entry in lane.jobs.iter() {
                    listed += 1;
                    if self.places.get(&entry.job) != Some(&Listed { priority, user, entry }) {
                        return Some("a job in the wrong lane");
                    }
                }
            }
        }
        (listed != waiting.len()).then_some("a job twice")
    }

    /// The jobs with counted use.
    pub(crate) fn counted(&self) -> impl Iterator<Item = JobId> + '_ {
        self.uses.counted()
    }

    /// The job just before one in the lane of its user, if any.
    pub(crate) fn before_in_lane(&self, job: JobId) -> Option<JobId> {
        let Listed { priority, user, entry } = self.places.get(&job)?;
        let lane = self.levels.get(&Reverse(*priority))?.lanes.get(user)?;
        lane.jobs.before(*entry).map(|before| before.job)
    }

    /// What a job in line stands by.
    pub(crate) fn listed(&self, job: JobId) -> Option<&Listed> {
        self.places.get(&job)
    }
}

impl Level {
    /// Puts the user's lane where it belongs; away, if it is empty.
    fn rank(&mut self, user: UserId, score: Score) {
        let Some(lane) = self.lanes.get_mut(&user) else { return };
        let (first, least) = (lane.jobs.first().map(|first| first.anchor), lane.least);
        let turn = first.map(|first| Turn { score, first, user, least });
        if turn.is_some() && turn == lane.turn {
            return;
        }
        if let Some(before) = core::mem::replace(&mut lane.turn, turn) {
            self.turns.remove(before);
        }
        match turn {
            Some(turn) => self.turns.insert(turn),
            None => drop(self.lanes.remove(&user)),
        }
    }
}

/// Where a job stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InLine {
    /// Its place, counted from 1.
    pub position: u64,
    /// The job before it.
    pub before: Option<JobId>,
    /// Whether a job of another user that came later is before it, since its user has used more.
    pub yields: bool,
}

impl Core {
    /// The order of the line that holds: by arrival where there is no line.
    pub(crate) fn line_order(&self) -> LineOrder {
        match self.policy().sets_aside() {
            false => self.params.order(),
            true => LineOrder::Arrival,
        }
    }

    /// A job comes into line.
    pub(crate) fn line_up(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        let spec = &record.spec;
        self.queue.add(job, spec, self.matrix.widths());
        if self.queue.line.has_lanes() {
            let own = self.queue.line.stand(job).is_none();
            let weight = own.then(|| self.weights.of(spec.owner, spec.group));
            self.queue.line.add(self.listed(job, spec), weight);
        }
    }

    /// Lines up all jobs in line anew, by the order that holds now.
    pub(crate) fn line_up_all(&mut self) {
        let order = self.line_order();
        self.queue.backlog = Ordered::default();
        self.queue.line.clear();
        if order != self.queue.line.order {
            self.queue.line.order = order;
            self.begin_to_count();
        }
        if self.queue.line.has_lanes() || self.queue.discipline.lets_by() {
            for job in self.queue.waiting.clone() {
                self.line_up(job);
            }
        }
    }

    /// From now on, use of resident jobs counts, or none does.
    fn begin_to_count(&mut self) {
        self.queue.line.uses.stop();
        if !self.queue.line.has_lanes() {
            return;
        }
        let (now, half_life) = (self.now, self.params.half_life());
        self.queue.line.uses.advance(now, half_life);
        let resident = self.jobs.iter().filter(|(_, record)| record.residence().is_some());
        let charged = |(job, record): (JobId, &Record)| {
            (job, record.spec.owner, self.charged_processors(job))
        };
        let charged: Vec<(JobId, UserId, u64)> = resident.map(charged).collect();
        for (job, user, processors) in charged {
            let service = self.ledger.service(job, now);
            self.queue.line.uses.begin_with(job, (user, processors), service, now);
        }
    }

    /// Charges users for what their jobs had, if it is time for that.
    pub(crate) fn count_uses(&mut self) {
        let line = &mut self.queue.line;
        if !line.has_lanes() || self.queue.waiting.is_empty() || !line.uses.is_due(self.now) {
            return;
        }
        let now = self.now;
        if line.uses.advance(now, self.params.half_life()) {
            self.forget_users();
        }
        let ledger = &self.ledger;
        let line = &mut self.queue.line;
        let mut charged = line.uses.pass(now, ledger.services(now));
        charged.sort_unstable();
        charged.dedup();
        for user in charged {
            line.rank(user);
        }
    }

    /// Scores are others than they were: lanes stand anew, and users without use are forgotten.
    fn forget_users(&mut self) {
        let Line { uses, levels, .. } = &mut self.queue.line;
        uses.forget(|user| levels.values().any(|level| level.lanes.contains_key(&user)));
        self.queue.line.rank_all();
    }

    /// A job starts: its user is charged a quantum at once.
    pub(crate) fn count_start(&mut self, job: JobId, user: UserId, processors: u64) {
        if !self.queue.line.has_lanes() {
            return;
        }
        let (now, quantum) = (self.now, self.params.quantum());
        let moved = self.queue.line.uses.advance(now, self.params.half_life());
        self.queue.line.uses.start(job, (user, processors), quantum, now);
        if moved || self.queue.line.uses.is_full() {
            self.forget_users();
        }
        self.queue.line.rank(user);
    }

    /// A job has ended, having had so much: its user is charged what was not charged yet.
    pub(crate) fn count_end(&mut self, job: JobId, service: Nanos) {
        if !self.queue.line.has_lanes() {
            return;
        }
        let now = self.now;
        if self.queue.line.uses.advance(now, self.params.half_life()) {
            self.forget_users();
        }
        if let Some(user) = self.queue.line.uses.end(job, service, now) {
            self.queue.line.rank(user);
        }
    }

    /// A job has another number of processors: what it had before is charged.
    pub(crate) fn count_anew(&mut self, job: JobId, user: UserId, processors: u64) {
        if self.queue.line.has_lanes() {
            let service = self.ledger.service(job, self.now);
            self.count_end(job, service);
            self.queue.line.uses.begin_with(job, (user, processors), service, self.now);
        }
    }

    /// The weight of a user or a group is another.
    pub(crate) fn weigh_anew(&mut self, account: BankAccount) {
        let Self { weights, queue, jobs, .. } = self;
        let weights: &UserWeights = weights;
        let line = &mut queue.line;
        let last_of = |user: UserId| {
            let lanes = line.levels.values().filter_map(|level| level.lanes.get(&user));
            // Jobs of others may have been moved there.
            let own = |job: &JobId| jobs.get(job).is_some_and(|it| it.spec.owner == user);
            let entries = lanes.flat_map(|lane| lane.jobs.iter()).map(|entry| entry.job);
            let last = entries.filter(own).max();
            last.and_then(|job| jobs.get(&job)).map(|record| record.spec.group)
        };
        let waiting: BTreeSet<UserId> =
            line.levels.values().flat_map(|level| level.lanes.keys().copied()).collect();
        let meant = |user: &UserId| match account {
            BankAccount::User(of) => of == *user,
            BankAccount::Group(_) => true,
        };
        let new: Vec<(UserId, u32)> = waiting
            .into_iter()
            .filter(meant)
            .filter_map(|user| Some((user, weights.of(user, last_of(user)?))))
            .collect();
        for (user, weight) in new {
            line.uses.weigh(user, weight);
            line.rank(user);
        }
    }
}
