//! What bounds a program: how often it may order something, how many timers it has, and how much
//! it hears at once of tasks that have ended.

use std::collections::BTreeMap;
use tutti_types::{ClusterTime, JobId, Nanos, Rank};

/// Timers that a program may have.
pub(crate) const TIMERS_MAX: usize = 1000;

/// Ranks that are named of those that have ended.
const RANKS_MAX: usize = 64;

/// The shortest time until a timer, and between two rounds for timers alone.
const TIMER_MIN: Nanos = Nanos::from_millis(1);

/// How many of something may come at once, and how many in each second.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    burst: u64,
    per_second: u64,
    left: u64,
    since: ClusterTime,
}

impl Rate {
    pub(crate) fn new(burst: u64, per_second: u64) -> Self {
        Self { burst, per_second, left: burst, since: ClusterTime::default() }
    }

    /// Takes one, if there is any.
    pub(crate) fn take(&mut self, now: ClusterTime) -> bool {
        let each = 1_000_000_000 / self.per_second;
        let more = now.since(self.since).0 / each;
        self.since = self.since + Nanos(more * each);
        self.left = self.left.saturating_add(more).min(self.burst);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// When a timer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time.
    At(ClusterTime),
    /// So long from now.
    After(Nanos),
}

/// The timers of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    timers: BTreeMap<(ClusterTime, u64), String>,
    made: u64,
}

impl Timers {
    /// Sets one more.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn set(&mut self, now: ClusterTime, when: When, tag: String) -> Result<(), String> {
        if self.timers.len() >= TIMERS_MAX {
            return Err(format!("a program has at most {TIMERS_MAX} timers"));
        }
        let at = match when {
            When::At(at) => at,
            When::After(after) => now + after,
        };
        self.made += 1;
        self.timers.insert((at.max(now + TIMER_MIN), self.made), tag);
        Ok(())
    }

    /// When the first comes.
    pub(crate) fn due(&self) -> ClusterTime {
        self.timers.keys().next().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    /// The word of one that has come.
    pub(crate) fn take(&mut self, now: ClusterTime) -> Option<String> {
        self.timers.first_entry().filter(|timer| timer.key().0 <= now).map(|timer| timer.remove())
    }

    pub(crate) fn clear(&mut self) {
        self.timers.clear();
    }
}

/// Tasks that have ended, of which a program has yet to hear.
#[derive(Clone, Debug)]
pub(crate) struct TaskEnds {
    /// How many of each job, and the ranks of the first.
    jobs: BTreeMap<JobId, (u64, Vec<Rank>)>,
    jobs_max: usize,
}

impl TaskEnds {
    /// None, and later those of at most so many jobs.
    pub(crate) const fn of_at_most(jobs_max: usize) -> Self {
        Self { jobs: BTreeMap::new(), jobs_max }
    }

    pub(crate) fn note(&mut self, job: JobId, ranks: impl IntoIterator<Item = Rank>) {
        if self.jobs.len() >= self.jobs_max && !self.jobs.contains_key(&job) {
            return;
        }
        let (count, named) = self.jobs.entry(job).or_default();
        for rank in ranks {
            *count += 1;
            if named.len() < RANKS_MAX {
                named.push(rank);
            }
        }
    }

    /// Those of the first job: its number, how many, and their ranks.
    pub(crate) fn take(&mut self) -> Option<(u64, u64, Vec<u32>)> {
        let (job, (count, ranks)) = self.jobs.pop_first()?;
        Some((job.0, count, ranks.into_iter().map(|rank| rank.0).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
    }
}
