//! The ledger: how long each job has run, in exact nanoseconds of its turns, and when each will have
//! run as long as it may.
//!
//! Nothing steps through quanta. Each row has a clock that counts how long its slot has lasted in
//! all; between two events, every clock is moved on by arithmetic. A job's account notes in which
//! rows' slots it runs (its own, and those where it is a guest) and what their clocks showed, added
//! up, when that began. So an event costs as many steps as there are rows, however many jobs there
//! are.
//!
//! Jobs that run in exactly the same rows keep *pace*: their service grows alike, so the order in
//! which they reach their limits never changes, whatever becomes of the frame. Each pace lists its
//! jobs in that order, by what its clocks will show then; only the first can be the next.
//!
//! A timetable may activate later than it is made. What becomes of the accounts then is kept as a
//! stage, and entered when its time has come.

mod account;
mod former;
mod paces;
mod rows;

pub(crate) use former::FormerLedger;
pub use paces::Release;
pub use rows::Rows;

use crate::frame::Frame;
use crate::state::table::Table;
use account::{Account, Standing};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use paces::{Clocks, Paces, Releases, clock_of};
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, RowId};
use tutti_types::time::{ClusterTime, Nanos};

/// What a new account is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The row where the job is at home.
    pub home: RowId,
    /// How many processors it has.
    pub processors: u64,
    /// How long it may run; `None`: for ever.
    pub limit: Option<Nanos>,
    /// How long it may keep its processors after it was asked to end at its limit.
    pub grace: Nanos,
    /// When the timetable activates that gives the job its turns.
    pub begins: ClusterTime,
}

/// In whose slots a job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Runs {
    /// The row where it is at home.
    pub home: RowId,
    /// The rows in whose slots it runs, in any order but always the same.
    pub rows: Rows,
}

/// What changes when a timetable activates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stage {
    /// When.
    pub at: ClusterTime,
    /// The new frame, if it is a new one, with all rows that the matrix then has.
    pub frame: Option<(Frame, BTreeSet<RowId>)>,
    /// Where these jobs run from then on; the last word on a job counts.
    pub runs: Vec<(JobId, Runs)>,
}

/// The accounts of all resident jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ledger {
    /// Up to when the clocks are right.
    now: ClusterTime,
    /// The frame in effect.
    frame: Frame,
    clocks: Clocks,
    accounts: Table<Account>,
    /// Accounts with a limit.
    limited: usize,
    paces: Paces,
    stages: VecDeque<Stage>,
    moved: Moved,
    /// The jobs that lend all that they have.
    lent: BTreeSet<JobId>,
}

/// Whose service grows otherwise than before, so that a moment foretold for it is stale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// The frame in effect is another one: that of all.
    pub frame: bool,
    /// These jobs run in the slots of other rows than before, or not at all. One may stand here
    /// twice, or have ended since.
    pub jobs: Vec<JobId>,
}

impl Ledger {
    /// Moves all clocks on to `now`, entering the stages whose time comes on the way.
    pub fn advance(&mut self, now: ClusterTime) {
        while self.next_stage() <= now
            && let Some(stage) = self.stages.pop_front()
        {
            self.run_clocks(stage.at);
            self.enter(stage);
        }
        self.run_clocks(now);
    }

    /// Notes what changes with a timetable. Stages must be passed in the order of their times.
    pub fn stage(&mut self, stage: Stage) {
        if stage.frame.is_none() && stage.runs.is_empty() {
            return;
        }
        if stage.at <= self.now && self.stages.is_empty() {
            self.enter(stage);
        } else {
            self.stages.push_back(stage);
            self.advance(self.now);
        }
    }

    /// When the next stage begins that hasn't yet.
    #[must_use]
    pub fn next_stage(&self) -> ClusterTime {
        self.stages.front().map_or(ClusterTime::NEVER, |stage| stage.at)
    }

    /// When the last stage begins that hasn't yet.
    pub(crate) fn last_stage(&self) -> Option<ClusterTime> {
        self.stages.back().map(|stage| stage.at)
    }

    /// Opens a job's account.
    pub fn open(&mut self, job: JobId, opening: Opening) {
        // A job that gets its turns at once will most likely run at home and nowhere else, and
        // stands there from the beginning.
        let home = Some(opening.home).filter(|row| {
            let at_once = opening.begins <= self.now && self.stages.is_empty();
            at_once && self.clocks.contains_key(row)
        });
        let rows: Rows = home.into_iter().collect();
        let began = clock_of(&self.clocks, &rows);
        let account = Account {
            settled: 0,
            runs: Runs { home: opening.home, rows },
            began,
            begins: opening.begins,
            processors: opening.processors,
            limit: opening.limit.map(|limit| limit.0),
            grace: opening.grace.0,
            standing: Standing::New,
            lent: 0,
        };
        self.limited += usize::from(account.limit.is_some());
        self.paces.enter(job, &account);
        self.accounts.insert(job, account);
    }

    /// The job was asked to end, and is killed at `killed_at`: its limit is of no interest any more.
    pub fn end(&mut self, job: JobId, killed_at: ClusterTime) {
        self.end_loan(job);
        self.change(job, |account, _| match account.standing {
            Standing::New
            | Standing::Open
            | Standing::Held
            | Standing::Lent
            | Standing::Ending(_) => {
                account.standing = Standing::Ending(killed_at);
            }
            Standing::Killed | Standing::Halted => {}
        });
    }

    /// The job lends all that it has, and runs in no slot from `at` on. Its limit goes on by the
    /// clock from then on.
    pub(crate) fn lend(&mut self, job: JobId, at: ClusterTime) {
        self.change(job, |account, _| match account.standing {
            Standing::New | Standing::Open => {
                account.standing = Standing::Lent;
                account.begins = at;
            }
            Standing::Held
            | Standing::Ending(_)
            | Standing::Killed
            | Standing::Halted
            | Standing::Lent => {}
        });
        if self.accounts.get(&job).is_some_and(|it| it.standing == Standing::Lent) {
            self.lent.insert(job);
        }
    }

    /// The job takes back all that it lent, and has its turns when a timetable activates at
    /// `begins`.
    pub(crate) fn take_back(&mut self, job: JobId, begins: ClusterTime) {
        if self.end_loan(job) {
            self.change(job, |account, _| account.begins = begins);
        }
    }

    /// Ends a loan of all that the job has; whether there was one.
    fn end_loan(&mut self, job: JobId) -> bool {
        let is_lent = self.lent.remove(&job);
        if is_lent {
            let now = self.now;
            self.change(job, |account, _| account.end_loan(now));
        }
        is_lent
    }

    /// The job was killed: it may be gone any moment.
    pub fn kill(&mut self, job: JobId) {
        self.end_loan(job);
        self.change(job, |account, _| {
            if account.standing != Standing::Halted {
                account.standing = Standing::Killed;
            }
        });
    }

    /// The job may run so much longer from now on, if its limit leaves it so much.
    pub fn limit_further(&mut self, job: JobId, more: Nanos) {
        let (mut is_new, now) = (false, self.now);
        self.change(job, |account, clock| {
            let had = account.settled + (clock - account.began) + account.loan(now);
            let limit = had.saturating_add(more.0);
            is_new = account.limit.is_none();
            account.limit = Some(account.limit.map_or(limit, |before| before.min(limit)));
        });
        self.limited += usize::from(is_new);
    }

    /// The job has another limit, or none.
    pub(crate) fn set_limit(&mut self, job: JobId, limit: Option<Nanos>) {
        let mut had_one = false;
        let mut is_there = false;
        self.change(job, |account, _| {
            is_there = true;
            had_one = account.limit.is_some();
            account.limit = limit.map(|limit| limit.0);
        });
        self.limited += usize::from(is_there && limit.is_some());
        self.limited -= usize::from(had_one);
    }

    /// A user suspends the job. It goes on running until a timetable without it activates.
    pub fn hold(&mut self, job: JobId) {
        self.end_loan(job);
        self.change(job, |account, _| match account.standing {
            Standing::New | Standing::Open => account.standing = Standing::Held,
            Standing::Held
            | Standing::Lent
            | Standing::Ending(_)
            | Standing::Killed
            | Standing::Halted => {}
        });
    }

    /// The job is to have its turns back when a timetable activates at `begins`.
    pub fn resume(&mut self, job: JobId, begins: ClusterTime) {
        self.change(job, |account, _| match account.standing {
            Standing::Held => {
                account.standing = Standing::New;
                account.begins = begins;
            }
            Standing::New
            | Standing::Open
            | Standing::Lent
            | Standing::Ending(_)
            | Standing::Killed
            | Standing::Halted => {}
        });
    }

    /// The job has no processors any more. It must be held, or ending.
    pub fn leave(&mut self, job: JobId) {
        self.change(job, |account, _| account.processors = 0);
    }

    /// The job has processors again, in this row.
    pub fn come_back(&mut self, job: JobId, home: RowId, processors: u64) {
        self.change(job, |account, _| {
            account.runs.home = home;
            account.processors = processors;
        });
    }

    /// How many processors come free when the job ends.
    #[must_use]
    pub fn processors(&self, job: JobId) -> u64 {
        self.accounts.get(&job).map_or(0, |account| account.processors)
    }

    /// The job is at home in another row from now on.
    pub fn rehome(&mut self, job: JobId, home: RowId) {
        self.change(job, |account, _| account.runs.home = home);
    }

    /// Nothing of the job runs any more.
    pub fn halt(&mut self, job: JobId) {
        self.end_loan(job);
        self.change(job, |account, clock| {
            account.settle(clock);
            account.runs.rows = Rows::default();
            account.began = 0;
            account.standing = Standing::Halted;
        });
        self.moved.jobs.push(job);
    }

    /// Something of a job that was halted runs again when a timetable activates at `begins`.
    pub(crate) fn restart(&mut self, job: JobId, begins: ClusterTime) {
        self.change(job, |account, _| {
            if account.standing == Standing::Halted {
                account.standing = Standing::New;
                account.begins = begins;
            }
        });
    }

    /// Closes a job's account and says what it got.
    pub fn close(&mut self, job: JobId) -> Nanos {
        self.end_loan(job);
        let Some(mut account) = self.accounts.remove(&job) else { return Nanos::ZERO };
        self.paces.remove(job, &account);
        // A job that is in line again and begins anew before a stage is entered has nothing of it.
        for stage in &mut self.stages {
            stage.runs.retain(|(other, _)| *other != job);
        }
        self.limited -= usize::from(account.limit.is_some());
        account.settle(clock_of(&self.clocks, &account.runs.rows));
        Nanos(account.settled)
    }

    /// What the job got up to `now`, or up to the next stage if that comes first.
    #[must_use]
    pub fn service(&self, job: JobId, now: ClusterTime) -> Nanos {
        let Some(account) = self.accounts.get(&job) else { return Nanos::ZERO };
        let until = now.min(self.next_stage()).max(self.now);
        let clock = self.clock_at(&account.runs.rows, until);
        Nanos(account.settled + (clock - account.began) + account.loan(until))
    }

    /// The same for many jobs: what is common to the jobs of a row is looked up once.
    pub(crate) fn services(&self, now: ClusterTime) -> impl FnMut(JobId) -> Nanos + '_ {
        let until = now.min(self.next_stage()).max(self.now);
        let mut clocks: Vec<(RowId, u64)> = Vec::new();
        move |job| {
            let Some(account) = self.accounts.get(&job) else { return Nanos::ZERO };
            let clock = match *account.runs.rows {
                [row] => match clocks.iter().find(|known| known.0 == row) {
                    Some(known) => known.1,
                    None => {
                        let clock = self.clock_at(&[row], until);
                        clocks.push((row, clock));
                        clock
                    }
                },
                ref rows => self.clock_at(rows, until),
            };
            Nanos(account.settled + (clock - account.began) + account.loan(until))
        }
    }

    /// What the clocks of these rows show together at a moment before the next stage.
    fn clock_at(&self, rows: &[RowId], at: ClusterTime) -> u64 {
        clock_of(&self.clocks, rows) + self.frame.served_to(rows, self.now, at).0
    }

    /// The same without the time in which the job lent all that it has.
    #[must_use]
    pub fn turns(&self, job: JobId, now: ClusterTime) -> Nanos {
        let until = now.min(self.next_stage()).max(self.now);
        let lent = self.accounts.get(&job).map_or(0, |it| it.lent + it.loan(until));
        Nanos(self.service(job, now).0.saturating_sub(lent))
    }

    /// When the job will have got as much as `limit`, if nothing changes.
    #[must_use]
    pub fn reaches(&self, job: JobId, limit: Nanos) -> ClusterTime {
        let need = Nanos(limit.0.saturating_sub(self.service(job, self.now).0));
        match (need, self.runs(job)) {
            (Nanos::ZERO, _) => self.now,
            (need, []) if self.lent.contains(&job) => self.begins(job).max(self.now) + need,
            (_, []) => ClusterTime::NEVER,
            (need, rows) => self.frame.reaches(rows, self.now, need),
        }
    }

    /// When the job will have had so much without the time of loans, if nothing changes.
    pub(crate) fn reaches_in_turns(&self, job: JobId, need: Nanos) -> ClusterTime {
        let need = need.0.saturating_sub(self.turns(job, self.now).0);
        match need {
            0 => self.now,
            _ if self.lent.contains(&job) => ClusterTime::NEVER,
            _ => self.reaches(job, Nanos(self.service(job, self.now).0 + need)),
        }
    }

    fn begins(&self, job: JobId) -> ClusterTime {
        self.accounts.get(&job).map_or(ClusterTime::NEVER, |account| account.begins)
    }

    /// When jobs that lend all that they have reach their limits.
    fn limits_of_loans(&self) -> impl Iterator<Item = (ClusterTime, JobId)> + '_ {
        let limit = |&job: &JobId| Some((self.accounts.get(&job)?.limit_of_loan()?, job));
        self.lent.iter().filter_map(limit)
    }

    /// The job that reaches its limit next, and when, if nothing changes.
    pub fn next_due(&mut self) -> Option<(ClusterTime, JobId)> {
        let of_loan = self.limits_of_loans().min().map(|(at, job)| (at.max(self.now), job));
        let due = self.paces.next_due(&self.clocks, &self.frame, self.now);
        due.into_iter().chain(of_loan).min()
    }

    /// The jobs that have had all of their time, by number, as of [`Ledger::advance`].
    #[must_use]
    pub fn at_limit(&self) -> Vec<JobId> {
        let mut jobs = self.paces.at_limit(&self.clocks);
        if !self.lent.is_empty() {
            let due = self.limits_of_loans().filter(|&(at, _)| at <= self.now);
            jobs.extend(due.map(|(_, job)| job));
            jobs.sort_unstable();
            jobs.dedup();
        }
        jobs
    }

    /// Whether any job has a limit.
    #[must_use]
    pub const fn any_limited(&self) -> bool {
        self.limited > 0
    }

    /// Whether any job may be gone any moment, so that the time is unknown.
    #[must_use]
    pub fn anybody_leaves(&self) -> bool {
        self.paces.anybody_leaves()
    }

    /// When so many more processors of a row will have come free, by what the jobs at home there may
    /// still run, and the grace of each after that: the least part of the row's slot that must pass
    /// for it, and how many have come free then. What the jobs get as guests elsewhere is not
    /// counted on, since it may end any moment.
    /// `None`: never, since jobs without a limit hold them.
    #[must_use]
    pub fn release(&self, row: RowId, processors: u64) -> Option<Release> {
        let mut freed = self.paces.leaving(row);
        let mut releases = Releases::new(&self.paces, &self.clocks, self.now, row);
        let mut need = 0;
        while freed < processors {
            (need, freed) = releases.next(freed, processors - freed)?;
        }
        freed += releases.until(need);
        Some(Release { need: Nanos(need), processors: freed })
    }

    /// When the processors of a row come free, soonest first, each at the latest then.
    #[must_use]
    pub fn releases(&self, row: RowId) -> Vec<Release> {
        let leaving = self.paces.leaving(row);
        let mut all = alloc::vec![Release { need: Nanos::ZERO, processors: leaving }];
        let mut releases = Releases::new(&self.paces, &self.clocks, self.now, row);
        while let Some((need, freed)) = releases.next(0, 1) {
            all.push(Release { need: Nanos(need), processors: freed });
        }
        all
    }

    /// The rows in whose slots the job runs.
    #[must_use]
    pub fn runs(&self, job: JobId) -> &[RowId] {
        self.accounts.get(&job).map_or(&[], |account| &account.runs.rows)
    }

    /// How long the slots of these rows have lasted in all, added up over the rows.
    #[must_use]
    pub fn clock(&self, rows: &[RowId]) -> Nanos {
        Nanos(clock_of(&self.clocks, rows))
    }

    /// When a job that runs in these rows will have got so much more, if nothing changes.
    #[must_use]
    pub fn reaches_in(&self, rows: &[RowId], need: Nanos) -> ClusterTime {
        self.frame.reaches(rows, self.now, need)
    }

    /// The frame in effect.
    #[must_use]
    pub const fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Whether the job has an account.
    #[must_use]
    pub fn has(&self, job: JobId) -> bool {
        self.accounts.contains_key(&job)
    }

    /// How many jobs have an account.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether no job has an account.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Whether every row that an account counts by has a clock, and every account stands in the list
    /// of its pace.
    #[must_use]
    pub fn complete(&self) -> bool {
        let mut paces = Paces::default();
        let mut clocks = true;
        for (job, account) in self.accounts.iter() {
            clocks &= account.runs.rows.iter().all(|row| self.clocks.contains_key(row));
            clocks &= clock_of(&self.clocks, &account.runs.rows) >= account.began;
            paces.enter(job, account);
        }
        clocks && paces.same_jobs(&self.paces)
    }

    /// Whose service grows otherwise than before [`Ledger::forget_moved`].
    #[must_use]
    pub const fn moved(&self) -> &Moved {
        &self.moved
    }

    /// Begins the list of moved jobs anew.
    pub fn forget_moved(&mut self) {
        self.moved.frame = false;
        self.moved.jobs.clear();
    }

    fn run_clocks(&mut self, to: ClusterTime) {
        if to <= self.now {
            return;
        }
        for (index, slot) in self.frame.slots.iter().enumerate() {
            let served = self.frame.served(index, self.now, to);
            *self.clocks.entry(slot.row).or_default() += served.0;
        }
        self.now = to;
    }

    fn enter(&mut self, stage: Stage) {
        for (job, runs) in stage.runs {
            for &row in runs.rows.iter() {
                self.clocks.entry(row).or_default();
            }
            let began = clock_of(&self.clocks, &runs.rows);
            self.moved.jobs.push(job);
            if self.begin_where_listed(job, &runs, began) {
                continue;
            }
            self.change(job, |account, clock| {
                if account.standing == Standing::Halted {
                    account.runs.home = runs.home;
                    return;
                }
                account.settle(clock);
                account.runs = runs;
                account.began = began;
                if account.standing == Standing::New {
                    account.standing = Standing::Open;
                }
            });
        }
        if let Some((frame, rows)) = stage.frame {
            // Every account that counted by a row that is gone was settled just now, since its job
            // was moved or ended when the row went.
            self.clocks.retain(|row, _| rows.contains(row) || frame.length_of(*row).is_some());
            self.frame = frame;
            self.moved.frame = true;
            self.paces.foretell_anew();
        }
    }

    /// A new job begins; says whether it runs where it stands already. A job that runs nowhere does
    /// not: it stood there by when it was to begin.
    fn begin_where_listed(&mut self, job: JobId, runs: &Runs, clock: u64) -> bool {
        if runs.rows.is_empty() {
            return false;
        }
        let account = self.accounts.get_mut(&job).filter(|account| {
            account.standing == Standing::New && account.runs == *runs && account.began == clock
        });
        let is_new = account.is_some();
        if let Some(account) = account {
            account.standing = Standing::Open;
        }
        is_new
    }

    /// Changes an account, given what the clocks of its rows show, and lists it anew.
    fn change(&mut self, job: JobId, change: impl FnOnce(&mut Account, u64)) {
        let Some(account) = self.accounts.get_mut(&job) else { return };
        self.paces.remove(job, account);
        change(account, clock_of(&self.clocks, &account.runs.rows));
        self.paces.enter(job, account);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Opening, Release, Rows, Runs, Stage};
    use crate::frame::{Frame, FrameSlot};
    use tutti_types::ids::{JobId, RowId};
    use tutti_types::time::{ClusterTime, Nanos};

    fn stage(at: u64, slots: &[(u64, u64)], runs: &[(u64, &[u64])]) -> Stage {
        let slots: Vec<FrameSlot> = slots
            .iter()
            .map(|&(row, length)| FrameSlot { row: RowId(row), length: Nanos(length), place: 0 })
            .collect();
        let rows = slots.iter().map(|slot| slot.row).collect();
        let frame = Frame { activates: ClusterTime(at), epoch: ClusterTime(at), slots };
        let runs = runs.iter().map(|&(job, rows)| {
            let rows: Rows = rows.iter().copied().map(RowId).collect();
            (JobId(job), Runs { home: rows.first().copied().unwrap_or_default(), rows })
        });
        let runs = runs.collect();
        Stage { at: ClusterTime(at), frame: Some((frame, rows)), runs }
    }

    fn open(ledger: &mut Ledger, job: u64, processors: u64, limit: u64) {
        let limit = (limit > 0).then_some(Nanos(limit));
        let begins = ClusterTime(0);
        let (home, grace) = (RowId(1), Nanos::ZERO);
        ledger.open(JobId(job), Opening { home, processors, limit, grace, begins });
    }

    #[test]
    fn a_job_gets_the_turns_of_all_rows_it_runs_in() {
        let mut ledger = Ledger::default();
        open(&mut ledger, 1, 1, 0);
        open(&mut ledger, 2, 1, 0);
        ledger.stage(stage(0, &[(1, 10), (2, 30)], &[(1, &[1]), (2, &[1, 2])]));
        assert_eq!(ledger.service(JobId(1), ClusterTime(100)), Nanos(30));
        assert_eq!(ledger.service(JobId(2), ClusterTime(100)), Nanos(100));
        assert_eq!(ledger.reaches(JobId(1), Nanos(25)), ClusterTime(85));
        ledger.advance(ClusterTime(100));
        assert_eq!(ledger.service(JobId(1), ClusterTime(100)), Nanos(30));
        assert_eq!(ledger.close(JobId(2)), Nanos(100));
        assert!(!ledger.has(JobId(2)));
    }

    #[test]
    fn a_later_timetable_counts_from_its_activation() {
        let mut ledger = Ledger::default();
        open(&mut ledger, 1, 1, 0);
        open(&mut ledger, 2, 1, 0);
        ledger.stage(stage(0, &[(1, 10)], &[(1, &[1])]));
        ledger.stage(stage(50, &[(2, 10)], &[(1, &[]), (2, &[2])]));
        assert_eq!(ledger.next_stage(), ClusterTime(50));
        ledger.advance(ClusterTime(80));
        assert_eq!(ledger.service(JobId(1), ClusterTime(80)), Nanos(50));
        assert_eq!(ledger.service(JobId(2), ClusterTime(90)), Nanos(40));
        assert!(ledger.complete());
    }

    #[test]
    fn a_halted_job_stays_halted() {
        let mut ledger = Ledger::default();
        open(&mut ledger, 1, 1, 0);
        ledger.stage(stage(0, &[(1, 10)], &[(1, &[1])]));
        ledger.advance(ClusterTime(30));
        ledger.halt(JobId(1));
        ledger.stage(stage(30, &[(1, 20)], &[(1, &[1])]));
        ledger.advance(ClusterTime(60));
        assert_eq!(ledger.close(JobId(1)), Nanos(30));
    }

    #[test]
    fn who_begins_anew_has_nothing_of_what_was_to_come_before() {
        let mut ledger = Ledger::default();
        open(&mut ledger, 1, 1, 0);
        ledger.stage(stage(50, &[(1, 10)], &[(1, &[1])]));
        assert_eq!(ledger.close(JobId(1)), Nanos::ZERO);
        open(&mut ledger, 1, 1, 0);
        ledger.stage(stage(90, &[(2, 10)], &[]));
        ledger.stage(stage(95, &[(2, 10)], &[(1, &[2])]));
        ledger.advance(ClusterTime(100));
        assert!(ledger.complete());
        assert_eq!(ledger.close(JobId(1)), Nanos(5));
    }

    #[test]
    fn who_was_to_begin_and_does_not_is_foretold_nothing() {
        let mut ledger = Ledger::default();
        ledger.stage(stage(0, &[(1, 10)], &[]));
        let (home, limit) = (RowId(1), Some(Nanos(100)));
        let begins = ClusterTime(50);
        let grace = Nanos::ZERO;
        ledger.open(JobId(1), Opening { home, processors: 1, limit, grace, begins });
        let nowhere = Runs { home, rows: Rows::default() };
        ledger.stage(Stage { at: begins, frame: None, runs: [(JobId(1), nowhere)].into() });
        ledger.advance(begins);
        assert!(ledger.complete());
        ledger.close(JobId(1));
        assert!(ledger.complete());
        assert_eq!(ledger.next_due(), None);
    }

    #[test]
    fn whoever_reaches_its_limit_next_is_known_whatever_the_frame() {
        let mut ledger = Ledger::default();
        open(&mut ledger, 1, 1, 100);
        open(&mut ledger, 2, 1, 90);
        open(&mut ledger, 3, 1, 80);
        assert_eq!(ledger.next_due(), None, "nobody has begun");
        ledger.stage(stage(0, &[(1, 10), (2, 10)], &[(1, &[1, 2]), (2, &[1]), (3, &[1])]));
        assert_eq!(ledger.next_due(), Some((ClusterTime(100), JobId(1))));
        ledger.stage(stage(50, &[(1, 10), (2, 90)], &[]));
        ledger.advance(ClusterTime(50));
        assert_eq!(ledger.next_due(), Some((ClusterTime(100), JobId(1))));
        ledger.kill(JobId(1));
        // The third got 30 by 50, and gets 10 in each 100 from then on.
        assert_eq!(ledger.next_due(), Some((ClusterTime(460), JobId(3))));
        assert!(ledger.complete());
    }

    #[test]
    fn processors_come_free_by_what_is_left_of_limits() {
        let mut ledger = Ledger::default();
        for (job, processors, limit) in [(1, 4, 50), (2, 2, 30), (3, 8, 0), (4, 1, 50), (5, 1, 70)]
        {
            open(&mut ledger, job, processors, limit);
        }
        let release = |need, processors| Some(Release { need: Nanos(need), processors });
        let row = RowId(1);
        assert_eq!(ledger.release(row, 1), release(30, 2), "as if they began now");
        ledger.stage(stage(0, &[(1, 10)], &[(1, &[1]), (2, &[1]), (3, &[1]), (4, &[1])]));
        ledger.advance(ClusterTime(20));
        assert_eq!(ledger.release(row, 0), release(0, 0));
        assert_eq!(ledger.release(row, 2), release(10, 2));
        assert_eq!(ledger.release(row, 3), release(30, 7), "all of those at the same moment");
        assert_eq!(ledger.release(row, 8), release(50, 8), "the last has yet to be told of");
        assert_eq!(ledger.release(row, 9), None, "the third has no limit");
        ledger.kill(JobId(3));
        assert_eq!(ledger.release(row, 9), release(10, 10));
        ledger.halt(JobId(1));
        assert_eq!(ledger.release(row, 1), release(0, 12));
        assert!(ledger.complete());
    }

    #[test]
    fn processors_come_free_when_the_grace_after_a_limit_is_over() {
        let mut ledger = Ledger::default();
        let begins = ClusterTime(0);
        for (job, processors, limit, grace) in [(1, 1, 50, 30), (2, 2, 60, 0), (3, 4, 90, 10)] {
            let (limit, grace) = (Some(Nanos(limit)), Nanos(grace));
            ledger.open(JobId(job), Opening { home: RowId(1), processors, limit, grace, begins });
        }
        ledger.stage(stage(0, &[(1, 10), (2, 10)], &[(1, &[1]), (2, &[1]), (3, &[1])]));
        ledger.advance(ClusterTime(100));
        let release = |need, processors| Some(Release { need: Nanos(need), processors });
        let row = RowId(1);
        assert_eq!(ledger.next_due(), Some((ClusterTime(100), JobId(1))), "limits are as before");
        assert_eq!(ledger.release(row, 1), release(10, 2), "the second, which has no grace");
        assert_eq!(ledger.release(row, 3), release(30, 3), "the first, after its grace");
        assert_eq!(ledger.release(row, 4), release(50, 7));
        ledger.end(JobId(1), ClusterTime(130));
        assert_eq!(ledger.next_due(), Some((ClusterTime(110), JobId(2))));
        ledger.advance(ClusterTime(105));
        assert!(!ledger.anybody_leaves() && ledger.complete());
        assert_eq!(ledger.release(row, 3), release(25, 3), "its grace is time of the cluster");
        ledger.kill(JobId(1));
        assert_eq!(ledger.release(row, 1), release(0, 1));
        assert!(ledger.anybody_leaves() && ledger.complete());
    }
}
