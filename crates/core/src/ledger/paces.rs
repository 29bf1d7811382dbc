//! The paces: which job reaches its limit next, and which processors come free when.

use super::account::Account;
use super::{Rows, Runs};
use crate::frame::Frame;
use crate::state::ordered::{Entry, Ordered};
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, RowId};
use tutti_types::time::{ClusterTime, Nanos};

/// For each row how long its slot has lasted in all, in nanoseconds.
pub(super) type Clocks = BTreeMap<RowId, u64>;

/// What the clocks of rows show, added up.
pub(super) fn clock_of(clocks: &Clocks, rows: &[RowId]) -> u64 {
    rows.iter().map(|row| clocks.get(row).copied().unwrap_or(0)).sum()
}

/// A job in the order in which the jobs of a pace reach their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Due {
    /// What the clocks of the pace's rows will show, added up.
    pub(super) mark: u64,
    pub(super) job: JobId,
    pub(super) processors: u64,
}

impl Entry for Due {
    type Summary = u64;
    // A cluster has far less than would overflow; what is read from somewhere may claim anything.
    fn enter(self, processors: &mut u64) {
        *processors = processors.wrapping_add(self.processors);
    }
    fn leave(self, processors: &mut u64) -> bool {
        *processors = processors.wrapping_sub(self.processors);
        true
    }
}

/// Which jobs stand in one list: those of a pace that have the same grace, so that the order of
/// their limits is the order in which their processors come free.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct List {
    pub(super) runs: Runs,
    /// In nanoseconds.
    pub(super) grace: u64,
}

/// Jobs that run in exactly the same rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Pace {
    jobs: Ordered<Due>,
    /// When the first reaches its limit; nothing if that must be found anew.
    next: Option<ClusterTime>,
}

/// All jobs by what is to be expected of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Paces {
    /// The jobs with a limit, by where they run. Under no rows stand those that go by the time of
    /// the cluster: new ones whose turns begin later, by when they would reach their limits if they
    /// ran all the time, and those that are ending, by when they are killed.
    by_runs: BTreeMap<List, Pace>,
    /// The processors of jobs that may be gone any moment, by home row.
    leaving: BTreeMap<RowId, u64>,
    /// Jobs that may reach their limits with the last of their turns: what the clocks of these rows
    /// will show then, added up. Few at any time, and none for long.
    last: BTreeMap<JobId, (Rows, u64)>,
}

/// When processors of a row come free by what their jobs may still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// So much more of the row's slot has to pass, at most.
    pub need: Nanos,
    /// So many processors have come free then.
    pub processors: u64,
}

impl Paces {
    pub(super) fn enter(&mut self, job: JobId, account: &Account) {
        if let Some(mark) = account.last_mark() {
            self.last.insert(job, (account.runs.rows.clone(), mark));
        }
        if account.leaves() {
            if account.processors == 0 {
                return;
            }
            *self.leaving.entry(account.runs.home).or_default() += account.processors;
        } else if let Some(due) = account.due(job) {
            let pace = self.by_runs.entry(account.list()).or_default();
            if pace.jobs.first().is_none_or(|first| due < first) {
                pace.next = None;
            }
            pace.jobs.insert(due);
        }
    }

    pub(super) fn remove(&mut self, job: JobId, account: &Account) {
        self.last.remove(&job);
        if account.leaves() {
            let home = account.runs.home;
            if let Some(leaving) = self.leaving.get_mut(&home) {
                *leaving -= account.processors;
                if *leaving == 0 {
                    self.leaving.remove(&home);
                }
            }
        } else if let Some(due) = account.due(job)
            && let list = account.list()
            && let Some(pace) = self.by_runs.get_mut(&list)
        {
            if pace.jobs.first() == Some(due) {
                pace.next = None;
            }
            pace.jobs.remove(due);
            if pace.jobs.is_empty() {
                self.by_runs.remove(&list);
            }
        }
    }

    /// Slots are others than they were.
    pub(super) fn foretell_anew(&mut self) {
        self.by_runs.values_mut().for_each(|pace| pace.next = None);
    }

    /// The job that reaches its limit next, and when, if nothing changes after `now`.
    pub(super) fn next_due(
        &mut self,
        clocks: &Clocks,
        frame: &Frame,
        now: ClusterTime,
    ) -> Option<(ClusterTime, JobId)> {
        let last = self.last.iter().map(|(&job, (rows, mark))| {
            let need = Nanos(mark.saturating_sub(clock_of(clocks, rows)));
            (if need == Nanos::ZERO { now } else { frame.reaches(rows, now, need) }, job)
        });
        let last: Option<(ClusterTime, JobId)> = last.min();
        let paces = self.by_runs.iter_mut().filter(|(list, _)| !list.runs.rows.is_empty());
        let due = |(List { runs, .. }, pace): (&List, &mut Pace)| {
            let first = pace.jobs.first()?;
            let at = *pace.next.get_or_insert_with(|| {
                let need = Nanos(first.mark.saturating_sub(clock_of(clocks, &runs.rows)));
                frame.reaches(&runs.rows, now, need)
            });
            Some((at.max(now), first.job))
        };
        paces.filter_map(due).chain(last).min().filter(|&(at, _)| at < ClusterTime::NEVER)
    }

    /// The jobs that have had all of their time, by number.
    pub(super) fn at_limit(&self, clocks: &Clocks) -> Vec<JobId> {
        let last = self.last.iter().filter(|(_, (rows, mark))| *mark <= clock_of(clocks, rows));
        let mut jobs: Vec<JobId> = last.map(|(&job, _)| job).collect();
        for (list, pace) in self.by_runs.iter().filter(|(list, _)| !list.runs.rows.is_empty()) {
            let clock = clock_of(clocks, &list.runs.rows);
            let due = pace.jobs.blocks().iter().flat_map(|block| &block.entries);
            jobs.extend(due.take_while(|due| due.mark <= clock).map(|due| due.job));
        }
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    pub(super) fn anybody_leaves(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The processors of a row that may be free any moment.
    pub(super) fn leaving(&self, row: RowId) -> u64 {
        self.leaving.get(&row).copied().unwrap_or(0)
    }

    /// Whether the same jobs stand in the same lists.
    pub(super) fn same_jobs(&self, other: &Self) -> bool {
        let lists = |paces: &Self| -> Vec<(List, Ordered<Due>)> {
            paces.by_runs.iter().map(|(list, pace)| (list.clone(), pace.jobs.clone())).collect()
        };
        let same = self.leaving == other.leaving && self.last == other.last;
        same && lists(self) == lists(other)
    }
}

/// Goes through the jobs at home in a row as their processors come free: when their grace after
/// their limits is over.
pub(super) struct Releases<'a> {
    /// Each with what its clock shows, and the grace of its jobs.
    lists: Vec<(u64, u64, &'a Ordered<Due>)>,
    /// Where in its list (block, entry) each stands, by what the next one there still needs.
    next: BinaryHeap<Reverse<(u64, usize, usize, usize)>>,
}

impl<'a> Releases<'a> {
    pub(super) fn new(paces: &'a Paces, clocks: &Clocks, now: ClusterTime, row: RowId) -> Self {
        let first = List { runs: Runs { home: row, ..Runs::default() }, grace: 0 };
        let lists = paces.by_runs.range(first..).take_while(|(list, _)| list.runs.home == row);
        let clock = |runs: &Runs| match runs.rows.is_empty() {
            true => now.0,
            false => clock_of(clocks, &runs.rows),
        };
        let lists = lists.map(|(list, pace)| (clock(&list.runs), list.grace, &pace.jobs));
        let mut releases = Self { lists: lists.collect(), next: BinaryHeap::new() };
        for list in 0..releases.lists.len() {
            releases.stand(list, 0, 0);
        }
        releases
    }

    fn stand(&mut self, list: usize, block: usize, entry: usize) {
        let (clock, grace, jobs) = self.lists[list];
        let blocks = jobs.blocks();
        let past = blocks.get(block).is_some_and(|block| block.entries.len() <= entry);
        let (block, entry) = if past { (block + 1, 0) } else { (block, entry) };
        if let Some(next) = blocks.get(block) {
            let mark = next.entries[entry].mark;
            let need = mark.saturating_add(grace).saturating_sub(clock);
            self.next.push(Reverse((need, list, block, entry)));
        }
    }

    /// Goes on to the next job, or past a block of jobs that together have fewer than `wanted`
    /// processors: what it needs, and how many processors have come free when `freed` had.
    pub(super) fn next(&mut self, freed: u64, wanted: u64) -> Option<(u64, u64)> {
        let Reverse((need, list, block, entry)) = self.next.pop()?;
        let found = &self.lists[list].2.blocks()[block];
        if self.next.is_empty() && entry == 0 && found.summary < wanted {
            self.stand(list, block + 1, 0);
            return Some((need, freed + found.summary));
        }
        self.stand(list, block, entry + 1);
        Some((need, freed + found.entries[entry].processors))
    }

    /// Goes on past all jobs that need no more than `need`, and says how many processors they have.
    pub(super) fn until(&mut self, need: u64) -> u64 {
        let mut freed = 0;
        while let Some(Reverse((next, ..))) = self.next.peek()
            && *next <= need
        {
            freed = self.next(freed, 1).map_or(freed, |(_, freed)| freed);
        }
        freed
    }
}
