//! The ledger: how long each job has run, in exact nanoseconds of its turns.
//!
//! Nothing steps through quanta. Each row has a clock that counts how long its slot has lasted in
//! all; between two events, every clock is moved on by arithmetic. A job's account notes in which
//! rows' slots it runs (its own, and those where it is an alternate) and what their clocks showed
//! when that began. So an event costs as many steps as there are rows, however many jobs there are.
//!
//! A timetable may activate later than it is made. What becomes of the accounts then is kept as a
//! stage, and entered when its time has come.

use crate::frame::Frame;
use crate::ids::{JobId, RowId};
use crate::time::{ClusterTime, Nanos};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// One job's account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Account {
    /// Of slots that it runs in no more.
    settled: u64,
    /// The rows in whose slots it runs, with their clocks when it began to.
    runs: Vec<(RowId, u64)>,
    /// Whether its tasks have all ended: then it runs in no slot whatever a timetable says.
    halted: bool,
}

/// What changes when a timetable activates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stage {
    /// When.
    pub at: ClusterTime,
    /// The new frame, if it is a new one, with all rows that the matrix then has.
    pub frame: Option<(Frame, BTreeSet<RowId>)>,
    /// The rows in whose slots these jobs run from then on.
    pub runs: BTreeMap<JobId, Vec<RowId>>,
}

/// The accounts of all resident jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// Up to when the clocks are right.
    now: ClusterTime,
    /// The frame in effect.
    frame: Frame,
    clocks: BTreeMap<RowId, u64>,
    accounts: BTreeMap<JobId, Account>,
    stages: VecDeque<Stage>,
    moved: Moved,
}

/// Whose service grows otherwise than before, so that a moment foretold for it is stale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moved {
    /// The frame is another one: everybody's.
    pub all: bool,
    /// These jobs'.
    pub jobs: BTreeSet<JobId>,
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

    /// Notes what changes with a timetable. Stages must be handed in in the order of their times.
    pub fn stage(&mut self, stage: Stage) {
        if stage.frame.is_some() || !stage.runs.is_empty() {
            self.stages.push_back(stage);
            self.advance(self.now);
        }
    }

    /// When the next stage begins that hasn't yet.
    #[must_use]
    pub fn next_stage(&self) -> ClusterTime {
        self.stages.front().map_or(ClusterTime::NEVER, |stage| stage.at)
    }

    /// Opens a job's account.
    pub fn open(&mut self, job: JobId) {
        self.accounts.insert(job, Account::default());
    }

    /// Nothing of the job runs any more.
    pub fn halt(&mut self, job: JobId) {
        if let Some(account) = self.accounts.get_mut(&job) {
            account.settle(&self.clocks);
            account.runs.clear();
            account.halted = true;
            self.moved.jobs.insert(job);
        }
    }

    /// Closes a job's account and says what it got.
    pub fn close(&mut self, job: JobId) -> Nanos {
        let Some(mut account) = self.accounts.remove(&job) else { return Nanos::ZERO };
        account.settle(&self.clocks);
        Nanos(account.settled)
    }

    /// What the job got up to `now`, or up to the next stage if that comes first.
    #[must_use]
    pub fn service(&self, job: JobId, now: ClusterTime) -> Nanos {
        let Some(account) = self.accounts.get(&job) else { return Nanos::ZERO };
        let until = now.min(self.next_stage()).max(self.now);
        let running = account.runs.iter().map(|&(row, began)| {
            let slot = self.frame.slots.iter().position(|slot| slot.row == row);
            let since = slot.map_or(0, |slot| self.frame.served(slot, self.now, until).0);
            self.clocks.get(&row).map_or(0, |clock| clock - began) + since
        });
        Nanos(account.settled + running.sum::<u64>())
    }

    /// When the job will have got as much as `limit`, if nothing changes.
    #[must_use]
    pub fn reaches(&self, job: JobId, limit: Nanos) -> ClusterTime {
        let Some(account) = self.accounts.get(&job) else { return ClusterTime::NEVER };
        let need = Nanos(limit.0.saturating_sub(self.service(job, self.now).0));
        let rows: Vec<RowId> = account.runs.iter().map(|&(row, _)| row).collect();
        if need == Nanos::ZERO { self.now } else { self.frame.reaches(&rows, self.now, need) }
    }

    /// The rows in whose slots the job runs, for those who check.
    pub fn runs(&self, job: JobId) -> impl Iterator<Item = RowId> + '_ {
        self.accounts.get(&job).into_iter().flat_map(|account| &account.runs).map(|&(row, _)| row)
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

    /// Whether every row that an account counts by has a clock.
    #[must_use]
    pub fn clocks_complete(&self) -> bool {
        let mut rows = self.accounts.values().flat_map(|account| &account.runs);
        rows.all(|(row, began)| self.clocks.get(row).is_some_and(|clock| clock >= began))
    }

    /// Whose service grows otherwise than when this was last asked.
    pub fn take_moved(&mut self) -> Moved {
        core::mem::take(&mut self.moved)
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
        for (job, rows) in stage.runs {
            let Some(account) = self.accounts.get_mut(&job).filter(|account| !account.halted)
            else {
                continue;
            };
            account.settle(&self.clocks);
            account.runs.clear();
            for row in rows {
                account.runs.push((row, *self.clocks.entry(row).or_default()));
            }
            self.moved.jobs.insert(job);
        }
        if let Some((frame, rows)) = stage.frame {
            // Every account that counted by a row that is gone was settled just now, since its job
            // was moved or ended when the row went.
            self.clocks.retain(|row, _| rows.contains(row) || frame.length_of(*row).is_some());
            self.frame = frame;
            self.moved.all = true;
        }
    }
}

impl Account {
    /// Enters what the running rows gave, and begins anew from their clocks.
    fn settle(&mut self, clocks: &BTreeMap<RowId, u64>) {
        for (row, began) in &mut self.runs {
            if let Some(&clock) = clocks.get(row) {
                self.settled += clock - *began;
                *began = clock;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Stage};
    use crate::frame::{Frame, FrameSlot};
    use crate::ids::{JobId, RowId};
    use crate::time::{ClusterTime, Nanos};
    use std::collections::BTreeMap;

    fn stage(at: u64, slots: &[(u64, u64)], runs: &[(u64, &[u64])]) -> Stage {
        let slots: Vec<FrameSlot> = slots
            .iter()
            .map(|&(row, length)| FrameSlot { row: RowId(row), length: Nanos(length) })
            .collect();
        let rows = slots.iter().map(|slot| slot.row).collect();
        let frame = Frame { activates: ClusterTime(at), epoch: ClusterTime(at), slots };
        let runs: BTreeMap<_, _> = runs
            .iter()
            .map(|&(job, rows)| (JobId(job), rows.iter().copied().map(RowId).collect()))
            .collect();
        Stage { at: ClusterTime(at), frame: Some((frame, rows)), runs }
    }

    #[test]
    fn a_job_gets_the_turns_of_all_rows_it_runs_in() {
        let mut ledger = Ledger::default();
        ledger.open(JobId(1));
        ledger.open(JobId(2));
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
        ledger.open(JobId(1));
        ledger.open(JobId(2));
        ledger.stage(stage(0, &[(1, 10)], &[(1, &[1])]));
        ledger.stage(stage(50, &[(2, 10)], &[(1, &[]), (2, &[2])]));
        assert_eq!(ledger.next_stage(), ClusterTime(50));
        ledger.advance(ClusterTime(80));
        assert_eq!(ledger.service(JobId(1), ClusterTime(80)), Nanos(50));
        assert_eq!(ledger.service(JobId(2), ClusterTime(90)), Nanos(40));
        assert!(ledger.clocks_complete());
    }

    #[test]
    fn a_halted_job_stays_halted() {
        let mut ledger = Ledger::default();
        ledger.open(JobId(1));
        ledger.stage(stage(0, &[(1, 10)], &[(1, &[1])]));
        ledger.advance(ClusterTime(30));
        ledger.halt(JobId(1));
        ledger.stage(stage(30, &[(1, 20)], &[(1, &[1])]));
        ledger.advance(ClusterTime(60));
        assert_eq!(ledger.close(JobId(1)), Nanos(30));
    }
}
