//! Queues: named sets of limits and defaults that jobs are submitted to, under every policy.
//!
//! The limits are a table, as parameters are: for all jobs of a queue, for those of each user, for
//! those of each group, and for a single job. A limit may have another value in some hours of the
//! week. A job counts with what it asks for: a processor for each task unless it says otherwise,
//! its memory, and its processors times its time limit.

use crate::ids::{ClassName, GroupId, UserId};
use crate::job::JobSpec;
use crate::limits::{ALLOWED_MAX, JOBS_MAX, PERIODS_MAX, PROCESSORS_MAX, RULE_TIME_MAX};
use crate::param::{self, Param, ParamError, ParamKind, Shown, Takes, UNBOUNDED, bounded};
use crate::period::Period;
use crate::refusal::Wanted;
use crate::time::Nanos;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What is counted, in the order of the table within each of its scopes.
const KINDS: usize = 5;
/// Jobs that run.
const JOBS: usize = 0;
/// Jobs that wait.
const WAITING: usize = 1;
/// Processors of jobs that run.
const PROCESSORS: usize = 2;
/// Their processors times their time limits.
const TIME: usize = 3;
/// Their memory.
const MEMORY: usize = 4;
const JOB_PROCESSORS: usize = 3 * KINDS;
const JOB_TIME: usize = 3 * KINDS + 1;
const COUNT: usize = 3 * KINDS + 2;

const fn limit(name: &'static str, kind: ParamKind, most: u64, help: &'static str) -> Param {
    let (default, takes) = (UNBOUNDED, Takes::Live);
    Param { name, kind, min: 0, max: most, default, help, takes }
}

const fn count(name: &'static str, most: u64, help: &'static str) -> Param {
    limit(name, ParamKind::CountOr("none"), most, help)
}

const fn time(name: &'static str, help: &'static str) -> Param {
    limit(name, ParamKind::DurationOr("none"), u64::MAX - 1, help)
}

const fn memory(name: &'static str, help: &'static str) -> Param {
    limit(name, ParamKind::BytesOr("none"), u64::MAX - 1, help)
}

const JOBS_MOST: u64 = JOBS_MAX as u64;

/// All limits that a queue has.
pub const LIMITS: &[Param; COUNT] = &[
    count("jobs", JOBS_MOST, "How many jobs of the queue may run at a time."),
    count("waiting", JOBS_MOST, "How many jobs of the queue may wait; further ones are rejected."),
    count("processors", PROCESSORS_MAX, "How many processors its running jobs may have together."),
    time("processor_time", "Processors times time limit of its running jobs, together."),
    memory("memory", "How much memory its running jobs may ask for together."),
    count("user_jobs", JOBS_MOST, "How many jobs of one user may run at a time."),
    count("user_waiting", JOBS_MOST, "How many jobs of one user may wait."),
    count("user_processors", PROCESSORS_MAX, "How many processors one user's jobs may have."),
    time("user_processor_time", "Processors times time limit of one user's running jobs."),
    memory("user_memory", "How much memory one user's running jobs may ask for."),
    count("group_jobs", JOBS_MOST, "How many jobs of one group may run at a time."),
    count("group_waiting", JOBS_MOST, "How many jobs of one group may wait."),
    count("group_processors", PROCESSORS_MAX, "How many processors one group's jobs may have."),
    time("group_processor_time", "Processors times time limit of one group's running jobs."),
    memory("group_memory", "How much memory one group's running jobs may ask for."),
    count("job_processors", PROCESSORS_MAX, "How many processors a single job may have."),
    limit(
        "job_time",
        ParamKind::DurationOr("none"),
        RULE_TIME_MAX.0,
        "The longest time limit of a job.",
    ),
];

/// One limit of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueLimit(u8);

/// To which jobs a limit applies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QueueScope {
    /// All of the queue.
    All,
    /// Those of a user.
    User(UserId),
    /// Those of a group.
    Group(GroupId),
}

impl QueueScope {
    /// The scopes that a job counts in, the narrowest first.
    #[must_use]
    pub const fn of(spec: &JobSpec) -> [Self; 3] {
        [Self::User(spec.owner), Self::Group(spec.group), Self::All]
    }

    const fn first(self) -> usize {
        match self {
            Self::All => 0,
            Self::User(_) => KINDS,
            Self::Group(_) => 2 * KINDS,
        }
    }
}

impl QueueLimit {
    #[allow(clippy::cast_possible_truncation, reason = "the table is short")]
    const fn at(index: usize) -> Self {
        Self(index as u8)
    }

    fn index(self) -> usize {
        usize::from(self.0).min(COUNT - 1)
    }

    /// Its line of the table.
    #[must_use]
    pub fn param(self) -> &'static Param {
        &LIMITS[self.index()]
    }
}

/// What jobs have, or wait for, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tally {
    /// In the order of the table within a scope.
    values: [u128; KINDS],
}

impl Tally {
    /// What one job that runs, or comes next in line, has.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        let mut values = [0; KINDS];
        values[JOBS] = 1;
        values[PROCESSORS] = u128::from(processors_of(spec));
        let time = spec.time_limit.map_or(0, |limit| limit.0);
        values[TIME] = values[PROCESSORS] * u128::from(time);
        let memory = spec.memory_per_task_bytes.unwrap_or(0);
        values[MEMORY] = u128::from(memory) * u128::from(spec.tasks);
        Self { values }
    }

    /// One job that waits.
    #[must_use]
    pub const fn waiting() -> Self {
        Self::waiting_jobs(1)
    }

    /// So many jobs that wait.
    #[must_use]
    pub const fn waiting_jobs(count: u32) -> Self {
        let mut values = [0; KINDS];
        values[WAITING] = count as u128;
        Self { values }
    }

    /// Adds another.
    pub fn add(&mut self, other: Self) {
        for (value, more) in self.values.iter_mut().zip(other.values) {
            *value = value.saturating_add(more);
        }
    }

    /// Takes off what was added before.
    pub fn subtract(&mut self, other: Self) {
        for (value, less) in self.values.iter_mut().zip(other.values) {
            *value = value.saturating_sub(less);
        }
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(|&value| value == 0)
    }

    /// How many jobs run, or come next in line.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        u64::try_from(self.values[JOBS]).unwrap_or(u64::MAX)
    }

    /// How many jobs wait.
    #[must_use]
    pub fn jobs_waiting(&self) -> u64 {
        u64::try_from(self.values[WAITING]).unwrap_or(u64::MAX)
    }

    /// How many processors they have.
    #[must_use]
    pub fn processors(&self) -> u64 {
        u64::try_from(self.values[PROCESSORS]).unwrap_or(u64::MAX)
    }
}

/// How many processors a job counts with.
fn processors_of(spec: &JobSpec) -> u64 {
    u64::from(spec.tasks) * u64::from(spec.processors_per_task.unwrap_or(1).max(1))
}

/// The values of all limits. A value of this type is always within the ranges of [`LIMITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "BTreeMap<String, u64>", try_from = "BTreeMap<String, u64>")]
pub struct QueueLimits {
    values: [u64; COUNT],
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { values: [UNBOUNDED; COUNT] }
    }
}

impl QueueLimits {
    /// The limit of that name, if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let index = param::find(LIMITS, name).ok()?;
        bounded(self.values[index])
    }

    /// Sets one limit.
    ///
    /// # Errors
    /// If there is none of that name, or the value is out of its range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ParamError> {
        let index = param::find(LIMITS, name)?;
        LIMITS[index].check(value)?;
        self.values[index] = value;
        Ok(())
    }

    /// Those that are set, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, u64)> + '_ {
        LIMITS.iter().zip(self.values).filter(|&(_, value)| value != UNBOUNDED)
    }

    /// The limit of a scope that another job would exceed beside what is there, and how much it is.
    #[must_use]
    pub fn exceeded(
        &self,
        scope: QueueScope,
        tally: Tally,
        job: Tally,
    ) -> Option<(QueueLimit, u64)> {
        (0..KINDS).find_map(|kind| {
            let index = scope.first() + kind;
            let most = bounded(self.values[index])?;
            let sum = tally.values[kind].saturating_add(job.values[kind]);
            let exceeds = job.values[kind] > 0 && sum > u128::from(most);
            exceeds.then_some((QueueLimit::at(index), most))
        })
    }

    /// The limit that a job exceeds even if it is the only one.
    #[must_use]
    pub fn exceeded_alone(&self, spec: &JobSpec) -> Option<(QueueLimit, u64)> {
        let own = |index: usize, asked: u64| {
            let most = bounded(self.values[index])?;
            (asked > most).then_some((QueueLimit::at(index), most))
        };
        own(JOB_PROCESSORS, processors_of(spec))
            .or_else(|| own(JOB_TIME, spec.time_limit.map_or(u64::MAX - 1, |limit| limit.0)))
            .or_else(|| {
                let exceeded = |scope| self.exceeded(scope, Tally::default(), Tally::of(spec));
                QueueScope::of(spec).into_iter().find_map(exceeded)
            })
    }

    /// The limit that counts something which a job must name, and does not.
    #[must_use]
    pub fn unnamed(&self, spec: &JobSpec) -> Option<QueueLimit> {
        let set = |kinds: &[usize]| {
            let mut limits = kinds.iter().copied();
            limits.find(|&index| self.values[index] != UNBOUNDED).map(QueueLimit::at)
        };
        let time = [JOB_TIME, TIME, KINDS + TIME, 2 * KINDS + TIME];
        let memory = [MEMORY, KINDS + MEMORY, 2 * KINDS + MEMORY];
        let time = set(&time).filter(|_| spec.time_limit.is_none());
        time.or_else(|| set(&memory).filter(|_| spec.memory_per_task_bytes.is_none()))
    }

    /// The limit because of which no job at all could run.
    fn shuts_out(&self) -> Option<QueueLimit> {
        let all = (0..COUNT).map(QueueLimit::at);
        all.into_iter().find(|limit| self.values[limit.index()] == 0)
    }

    fn with(mut self, others: &BTreeMap<String, u64>) -> Result<Self, ParamError> {
        for (name, &value) in others {
            self.set(name, value)?;
        }
        Ok(self)
    }
}

impl From<QueueLimits> for BTreeMap<String, u64> {
    fn from(limits: QueueLimits) -> Self {
        limits.iter().map(|(limit, value)| (limit.name.into(), value)).collect()
    }
}

impl TryFrom<BTreeMap<String, u64>> for QueueLimits {
    type Error = ParamError;
    fn try_from(values: BTreeMap<String, u64>) -> Result<Self, ParamError> {
        Self::default().with(&values)
    }
}

/// The users and groups that may use something; neither: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Allowed {
    /// Users.
    pub users: BTreeSet<UserId>,
    /// All users of these groups.
    pub groups: BTreeSet<GroupId>,
}

impl Allowed {
    /// Whether all users are allowed.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Whether a user that is in these groups is allowed. Root always is.
    pub fn allows(&self, user: UserId, mut groups: impl Iterator<Item = GroupId>) -> bool {
        self.is_all()
            || user.0 == 0
            || self.users.contains(&user)
            || groups.any(|group| self.groups.contains(&group))
    }
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueSpec {
    /// The limits that hold when no period says otherwise.
    pub limits: QueueLimits,
    /// Limits with other values in some hours; of two that overlap, the later one wins.
    pub periods: Vec<(Period, BTreeMap<String, u64>)>,
    /// The class of jobs that name none.
    pub class: Option<ClassName>,
    /// The time limit of jobs that name none.
    pub time: Option<Nanos>,
    /// The memory of each task of jobs that name none, in bytes.
    pub memory: Option<u64>,
    /// The users and groups that may submit jobs to it.
    pub allowed: Allowed,
    /// The nodes on which its jobs run, as a user writes them; `None`: any.
    pub nodes: Option<String>,
    /// Whether jobs that name no queue are submitted to it, if their users may use it.
    pub default: bool,
}

/// Why a queue can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// A limit can't have its value in a period.
    #[error("{0}: {1}")]
    Period(Period, ParamError),
    /// As many periods as there may be.
    #[error("at most {PERIODS_MAX} periods are possible; remove one with during.HOURS.LIMIT=same")]
    TooManyPeriods,
    /// More users and groups than may be listed.
    #[error("at most {ALLOWED_MAX} users and groups can be listed; list groups")]
    TooManyAllowed,
    /// No job could ever run.
    #[error(
        "no job could ever run: {} is 0 at all hours; set it to more than 0, or to none",
        .0.param().name
    )]
    ShutsOut(QueueLimit),
    /// No job could ever be submitted.
    #[error("no job could be accepted: {} is 0; set it to 1 or more, or to none", .0.param().name)]
    NoneWaits(QueueLimit),
    /// The default time limit is longer than the longest.
    #[error(
        "the default_time={} exceeds job_time={}; lower default_time, or raise job_time",
        time,
        most
    )]
    TimeExceeds {
        /// The default.
        time: Nanos,
        /// The longest.
        most: Nanos,
    },
}

impl QueueSpec {
    /// The limits that hold at that time of the week; the standing ones if it is unknown.
    ///
    /// # Errors
    /// If a period has a limit that can't be. Never, for a queue that passed [`QueueSpec::check`].
    pub fn at(&self, week: Option<Nanos>) -> Result<QueueLimits, QueueError> {
        let mut limits = self.limits;
        for (period, others) in &self.periods {
            if week.is_some_and(|week| period.holds(week)) {
                limits = limits.with(others).map_err(|error| QueueError::Period(*period, error))?;
            }
        }
        Ok(limits)
    }

    /// How long it takes from that time of the week until other limits may hold; `None`: never.
    #[must_use]
    pub fn changes_in(&self, week: Nanos) -> Option<Nanos> {
        self.periods.iter().filter_map(|(period, _)| period.changes_in(week)).min()
    }

    /// All limits that ever hold together, each once for every change in a week.
    fn all_limits(&self) -> impl Iterator<Item = Result<QueueLimits, QueueError>> + '_ {
        let next = |week: &Nanos| {
            let next = *week + self.changes_in(*week)?;
            (next.0 < crate::period::WEEK).then_some(next)
        };
        let weeks = core::iter::successors(Some(Nanos::ZERO), next);
        weeks.map(|week| self.at(Some(week)))
    }

    /// Whether a queue can be like this.
    ///
    /// # Errors
    /// What is wrong, and what would be accepted.
    pub fn check(&self) -> Result<(), QueueError> {
        if self.periods.len() > PERIODS_MAX {
            return Err(QueueError::TooManyPeriods);
        }
        if self.allowed.users.len() + self.allowed.groups.len() > ALLOWED_MAX {
            return Err(QueueError::TooManyAllowed);
        }
        let mut shuts_out = None;
        let (mut opens, mut longest) = (false, 0);
        for limits in self.all_limits() {
            let limits = limits?;
            for scope in [0, KINDS, 2 * KINDS] {
                if limits.values[scope + WAITING] == 0 {
                    return Err(QueueError::NoneWaits(QueueLimit::at(scope + WAITING)));
                }
            }
            shuts_out = shuts_out.or(limits.shuts_out());
            opens |= limits.shuts_out().is_none();
            longest = longest.max(limits.values[JOB_TIME]);
        }
        if let Some(limit) = shuts_out.filter(|_| !opens) {
            return Err(QueueError::ShutsOut(limit));
        }
        match self.time {
            Some(time) if time.0 > longest => {
                Err(QueueError::TimeExceeds { time, most: Nanos(longest) })
            }
            _ => Ok(()),
        }
    }

    /// The limit that a job exceeds at every hour; with how much it is where it is highest.
    #[must_use]
    pub fn never_fits(&self, spec: &JobSpec) -> Option<(QueueLimit, u64)> {
        let mut nearest: Option<(QueueLimit, u64)> = None;
        for limits in self.all_limits().flatten() {
            let (limit, most) = limits.exceeded_alone(spec)?;
            let higher = nearest.is_none_or(|(other, before)| other == limit && most > before);
            if higher {
                nearest = Some((limit, most));
            }
        }
        nearest
    }
}

/// Why a queue does not take a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueRefusal {
    /// There is no such queue.
    Unknown {
        /// The name that was given.
        queue: crate::ids::QueueName,
        /// Those that exist.
        known: Vec<crate::ids::QueueName>,
    },
    /// It exceeds a limit at every hour.
    TooMuch {
        /// The queue.
        queue: crate::ids::QueueName,
        /// Which limit.
        limit: QueueLimit,
        /// The most.
        most: u64,
    },
    /// A limit counts what the job does not name.
    Unnamed {
        /// The queue.
        queue: crate::ids::QueueName,
        /// Which limit.
        limit: QueueLimit,
    },
    /// As many jobs wait as may.
    Full {
        /// The queue.
        queue: crate::ids::QueueName,
        /// Which limit.
        limit: QueueLimit,
        /// The most.
        most: u64,
    },
    /// It would wait for a limit, so that no deadline can be promised.
    Deadline {
        /// The queue.
        queue: crate::ids::QueueName,
    },
}

impl fmt::Display for QueueRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { queue, known } if known.is_empty() => write!(
                f,
                "there is no queue {0}, and no other; leave out -q, or have an administrator make \
                 it (tutti queue {0} LIMIT=VALUE)",
                Wanted(&queue.0)
            ),
            Self::Unknown { queue, known } => {
                write!(f, "there is no queue {}; the queues are", Wanted(&queue.0))?;
                for (i, name) in known.iter().enumerate() {
                    write!(f, "{} {name}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::TooMuch { queue, limit, most } => {
                let param = limit.param();
                write!(
                    f,
                    "queue {queue} never takes so much for a job: {}={}; ask for at most {}, or \
                     for another queue (tutti queue)",
                    param.name,
                    Shown(param, *most),
                    Ask(*limit, *most)
                )
            }
            Self::Unnamed { queue, limit } => {
                let option = if limit.counts_memory() { "memory (-m)" } else { "time limit (-t)" };
                let name = limit.param().name;
                write!(f, "queue {queue} has the limit {name}, so its jobs need a {option}")
            }
            Self::Full { queue, limit, most } => {
                let name = limit.param().name;
                write!(
                    f,
                    "as many jobs wait in queue {queue} as may ({name}={most}); try again when one \
                     has started"
                )
            }
            Self::Deadline { queue } => write!(
                f,
                "the job would wait for a limit of queue {queue}, so no deadline can be promised; \
                 leave out --deadline"
            ),
        }
    }
}

impl QueueLimit {
    fn kind(self) -> Option<usize> {
        let index = self.index();
        (index < 3 * KINDS).then_some(index % KINDS)
    }

    fn counts_memory(self) -> bool {
        self.kind() == Some(MEMORY)
    }
}

/// What a job may ask for at most under a limit.
struct Ask(QueueLimit, u64);

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = Shown(self.0.param(), self.1);
        match self.0.kind() {
            Some(MEMORY) => write!(f, "{shown} of memory over all tasks"),
            Some(TIME) => write!(f, "{shown} as processors times time limit"),
            Some(JOBS | WAITING) => write!(f, "{shown} jobs"),
            None if self.0.index() == JOB_TIME => write!(f, "-t {shown}"),
            Some(_) | None => write!(f, "{shown} processors"),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.param().name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowed, LIMITS, QueueError, QueueLimits, QueueRefusal, QueueSpec};
    use crate::ids::{GroupId, QueueName, UserId};
    use crate::time::Nanos;
    use std::collections::BTreeMap;

    fn spec(limits: &[(&str, u64)]) -> QueueSpec {
        let mut spec = QueueSpec::default();
        for &(name, value) in limits {
            spec.limits.set(name, value).unwrap();
        }
        spec
    }

    #[test]
    fn a_queue_that_no_job_can_pass_is_rejected_unless_some_hours_open_it() {
        let mut closed = spec(&[("jobs", 0)]);
        let error = closed.check().unwrap_err();
        assert!(error.to_string().contains("jobs is 0 at all hours"), "{error}");
        let night = "18:00-08:00".parse().unwrap();
        closed.periods.push((night, BTreeMap::from([("jobs".to_owned(), 4)])));
        assert_eq!(closed.check(), Ok(()));
        assert!(matches!(spec(&[("waiting", 0)]).check(), Err(QueueError::NoneWaits(_))));
    }

    #[test]
    fn a_default_time_beyond_the_longest_is_rejected() {
        let mut spec = spec(&[("job_time", 60_000_000_000)]);
        spec.time = Some(Nanos::from_secs(61));
        assert!(matches!(spec.check(), Err(QueueError::TimeExceeds { .. })));
        spec.time = Some(Nanos::from_secs(60));
        assert_eq!(spec.check(), Ok(()));
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        let limits = spec(&[("user_jobs", 2), ("memory", 1 << 30)]).limits;
        let map = BTreeMap::from(limits);
        assert_eq!(map.len(), 2);
        assert_eq!(QueueLimits::try_from(map), Ok(limits));
        assert_eq!(LIMITS.iter().filter(|limit| limit.name.starts_with("user_")).count(), 5);
    }

    #[test]
    fn a_queue_that_could_be_none_is_quoted_and_cut() {
        let refusal = |name: &str| {
            let queue = QueueName::new(name);
            QueueRefusal::Unknown { queue, known: [QueueName::new("short")].into() }.to_string()
        };
        assert_eq!(refusal("day.2_x"), "there is no queue day.2_x; the queues are short");
        let odd = "there is no queue \"a\\n[T001]\"; the queues are short";
        assert_eq!(
            (refusal("a\n[T001]").as_str(), refusal("").as_str()),
            (odd, "there is no queue \"\"; the queues are short")
        );
        assert!(refusal(&"q".repeat(9000)).len() < 120);
    }

    #[test]
    fn an_empty_list_allows_all_and_root_is_always_allowed() {
        let mut allowed = Allowed::default();
        assert!(allowed.allows(UserId(7), [].into_iter()));
        allowed.groups.insert(GroupId(5));
        assert!(!allowed.allows(UserId(7), [GroupId(7)].into_iter()));
        assert!(allowed.allows(UserId(7), [GroupId(5)].into_iter()));
        assert!(allowed.allows(UserId(0), [].into_iter()));
    }
}
