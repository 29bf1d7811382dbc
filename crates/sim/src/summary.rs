//! The figures of a whole run: means, percentiles, utilisation.
//!
//! - wait: from submission to getting processors; response: from submission to the end
//! - bounded slowdown: response over run time, where run times below [`TAU_S`] count as that long,
//!   and never below 1
//! - fairness: Jain's index of the users' mean bounded slowdowns, `(sum x)^2 / (n sum x^2)`: 1
//!   where all users are slowed down alike, 1/n where one user bears it all (Jain, Chiu, Hawe: "A
//!   quantitative measure of fairness and discrimination", 1984). Jobs without a user do not count.
//! - makespan: from the first submission to the last end (or the horizon)
//! - utilisation: processor time in which jobs got on, over all of the makespan
//! - loss of capacity: idle processor time while jobs waited, over all of the makespan (Zhang,
//!   Franke, Moreira, Sivasubramaniam: "An analysis of space- and time-sharing techniques for
//!   parallel job scheduling", 2001). With time slicing, the slots in which a processor has no job
//!   to run count as idle.
//!
//! Sums are exact, in integers, but for slowdowns; percentiles are those of a [`Sketch`].

use crate::jobs::{Finished, Job};
use crate::observer::{Observer, Passed};
use crate::sketch::Sketch;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use tutti_core::WaitReason;
use tutti_types::{ClusterTime, JobId};

/// Maximum number of different reasons why jobs did not run that are kept; others are one more.
pub const REASONS_MAX: usize = 32;

const OTHERS: &str = "other limits";

/// Run times below this count as this long in the bounded slowdown, in seconds.
pub const TAU_S: u64 = 10;

const NS_PER_S: u64 = 1_000_000_000;
/// Slowdowns are kept in millionths for percentiles.
const SLOWDOWN_UNIT: f64 = 1e6;

/// What distinguishes jobs in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Their class.
    Class,
    /// Their number of processors, in powers of two.
    Size,
    /// Their user.
    User,
}

/// The key of a group: what it sorts by.
type Key = u64;

/// Figures of all jobs, or of a group of them, as they come in.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    jobs: u64,
    at_limit: u64,
    preemptions: u64,
    work_ns: u128,
    wait: Lengths,
    response: Lengths,
    slowdown: Slowdowns,
}

#[derive(Clone, Debug, Default)]
struct Lengths {
    sum_ns: u128,
    max_ns: u64,
    sketch: Sketch,
}

#[derive(Clone, Debug, Default)]
struct Slowdowns {
    sum: f64,
    max: f64,
    sketch: Sketch,
}

const WEEK_NS: u64 = 7 * 24 * 3600 * NS_PER_S;

/// Looks on and counts.
#[derive(Clone, Debug)]
pub struct Summary {
    processors: u32,
    group_by: Option<GroupBy>,
    all: Figures,
    groups: BTreeMap<Key, Figures>,
    submitted: u64,
    declined: u64,
    let_alone: u64,
    /// Jobs that never ran, by the reason.
    not_run: BTreeMap<String, u64>,
    in_time: u64,
    late: u64,
    first_submit: Option<ClusterTime>,
    last: ClusterTime,
    useful_ns: u128,
    idle_ns: u128,
    lost_to_switches_ns: u128,
    switches: u64,
    /// Processor time in which jobs got on, by weeks from the first submission.
    by_week_ns: Vec<u128>,
    /// How many jobs of each user ended, and the sum of their slowdowns.
    users: BTreeMap<u32, (u64, f64)>,
}

/// How alike users fare, by the mean bounded slowdown of each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// Users with jobs that ended.
    pub users: usize,
    /// Jain's index, from 1/users to 1.
    pub jain: f64,
    /// The user in the middle.
    pub median_slowdown: f64,
    /// Of 95 % of the users it is not above this.
    pub p95_slowdown: f64,
    /// The user that fares worst.
    pub worst_slowdown: f64,
}

/// Mean, median, 95th percentile and maximum of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measure {
    /// The mean.
    pub mean: f64,
    /// Half are not above it.
    pub median: f64,
    /// 95 % are not above it.
    pub p95: f64,
    /// The greatest.
    pub max: f64,
}

/// The figures of jobs that ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Which jobs: a class, a range of sizes, a user; nothing for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many ended.
    pub jobs: u64,
    /// Their part of all work, from 0 to 1; work is processors x time in which they got on.
    pub work_share: f64,
    /// From submission to getting processors, in seconds.
    pub wait_s: Measure,
    /// From submission to end, in seconds.
    pub response_s: Measure,
    /// Bounded slowdown.
    pub slowdown: Measure,
    /// How many were ended at their time limit.
    pub at_limit: u64,
    /// How often a job's turn was over before it was done.
    pub preemptions: u64,
}

impl Summary {
    /// For a machine with so many processors; with figures of groups, if told by what.
    #[must_use]
    pub fn new(processors: u32, group_by: Option<GroupBy>) -> Self {
        Self {
            processors,
            group_by,
            all: Figures::default(),
            groups: BTreeMap::new(),
            submitted: 0,
            declined: 0,
            let_alone: 0,
            not_run: BTreeMap::new(),
            in_time: 0,
            late: 0,
            first_submit: None,
            last: ClusterTime::default(),
            useful_ns: 0,
            idle_ns: 0,
            lost_to_switches_ns: 0,
            switches: 0,
            by_week_ns: Vec::new(),
            users: BTreeMap::new(),
        }
    }

    /// The figures of all jobs.
    #[must_use]
    pub fn results(&self) -> Results {
        self.all.results(None, self.all.work_ns)
    }

    /// How alike users fare; `None` if no job that ended has a user.
    #[must_use]
    pub fn fairness(&self) -> Option<Fairness> {
        let mut means: Vec<f64> =
            self.users.values().map(|&(jobs, sum)| sum / jobs.max(1) as f64).collect();
        means.sort_unstable_by(f64::total_cmp);
        let (sum, squares) =
            means.iter().fold((0.0, 0.0), |(sum, squares), it| (sum + it, squares + it * it));
        let users = means.len();
        let below = |part: usize| means.get((users * part).div_ceil(100).saturating_sub(1));
        Some(Fairness {
            users,
            jain: sum * sum / (users as f64 * squares),
            median_slowdown: *below(50)?,
            p95_slowdown: *below(95)?,
            worst_slowdown: *means.last()?,
        })
    }

    /// The figures of each group, in their order; `classes` are the names of classes, by index.
    #[must_use]
    pub fn groups(&self, classes: &[String]) -> Vec<Results> {
        let name = |key: Key| match self.group_by {
            Some(GroupBy::Class) => {
                let index = usize::try_from(key).unwrap_or(usize::MAX);
                classes.get(index).cloned().unwrap_or_default()
            }
            Some(GroupBy::Size) => match key {
                0 => "1".to_owned(),
                // A group ends at a power of two, so that those have neighbours below them.
                _ => match ((1u64 << (key - 1)) + 1, 1u64 << key) {
                    (least, most) if least == most => most.to_string(),
                    (least, most) => format!("{least}-{most}"),
                },
            },
            Some(GroupBy::User) if key == 0 => "unknown".to_owned(),
            Some(GroupBy::User) | None => key.to_string(),
        };
        let whole = self.all.work_ns;
        self.groups.iter().map(|(&key, figures)| figures.results(Some(name(key)), whole)).collect()
    }

    /// How many jobs were submitted.
    #[must_use]
    pub const fn submitted(&self) -> u64 {
        self.submitted
    }

    /// How many were declined and passed over.
    #[must_use]
    pub const fn declined(&self) -> u64 {
        self.declined
    }

    /// How many never ran, by what kept them out; no more reasons than [`REASONS_MAX`].
    #[must_use]
    pub const fn not_run(&self) -> &BTreeMap<String, u64> {
        &self.not_run
    }

    /// How many did not wait, since the job before them was not simulated.
    #[must_use]
    pub const fn let_alone(&self) -> u64 {
        self.let_alone
    }

    /// How many of those with a deadline were done by then, and how many later.
    #[must_use]
    pub const fn in_time_and_late(&self) -> (u64, u64) {
        (self.in_time, self.late)
    }

    /// How many of them had not ended at the horizon.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.submitted - self.all.jobs
    }

    /// From the first submission to the end, in seconds.
    #[must_use]
    pub fn makespan_s(&self) -> f64 {
        self.makespan_ns() as f64 / NS_PER_S as f64
    }

    /// Processor time in which jobs got on, from 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.share(self.useful_ns)
    }

    /// The same for each week from the first submission; the last one may be cut short.
    #[must_use]
    pub fn utilisation_by_week(&self) -> Vec<f64> {
        let whole_ns = u128::from(WEEK_NS) * u128::from(self.processors);
        self.by_week_ns.iter().map(|&ns| ns as f64 / whole_ns as f64).collect()
    }

    /// Spreads what was got done over the weeks in which it was, evenly.
    fn enter_weeks(&mut self, first: ClusterTime, from: ClusterTime, passed: &Passed) {
        let length = u128::from(passed.to.since(from).0.max(1));
        let (mut begin, end) = (from.since(first).0, passed.to.since(first).0);
        while begin < end && passed.useful_ns > 0 {
            let week = begin / WEEK_NS;
            let until = end.min((week + 1) * WEEK_NS);
            let index = usize::try_from(week).unwrap_or(usize::MAX);
            if self.by_week_ns.len() <= index {
                self.by_week_ns.resize(index + 1, 0);
            }
            self.by_week_ns[index] += passed.useful_ns * u128::from(until - begin) / length;
            begin = until;
        }
    }

    /// Idle processor time while jobs waited, from 0 to 1.
    #[must_use]
    pub fn loss_of_capacity(&self) -> f64 {
        self.share(self.idle_ns)
    }

    /// Processor time that switches cost, from 0 to 1.
    #[must_use]
    pub fn switching(&self) -> f64 {
        self.share(self.lost_to_switches_ns)
    }

    /// How often the machine switched from one slot to another.
    #[must_use]
    pub const fn switches(&self) -> u64 {
        self.switches
    }

    /// How waits are distributed, in ns.
    #[must_use]
    pub const fn waits(&self) -> &Sketch {
        &self.all.wait.sketch
    }

    fn makespan_ns(&self) -> u64 {
        self.first_submit.map_or(0, |first| self.last.since(first).0)
    }

    fn share(&self, part_ns: u128) -> f64 {
        let whole_ns = u128::from(self.makespan_ns()) * u128::from(self.processors);
        if whole_ns == 0 { 0.0 } else { part_ns as f64 / whole_ns as f64 }
    }

    fn key(&self, job: &Job) -> Option<Key> {
        Some(match self.group_by? {
            GroupBy::Class => u64::from(job.class),
            GroupBy::Size => u64::from(job.processors.max(1).next_power_of_two().ilog2()),
            GroupBy::User => u64::from(job.user),
        })
    }
}

impl Observer for Summary {
    fn submitted(&mut self, _: u64, job: &Job) -> io::Result<()> {
        self.submitted += 1;
        self.first_submit.get_or_insert(job.submit);
        self.last = self.last.max(job.submit);
        Ok(())
    }

    fn declined(&mut self, _: &Job) {
        self.declined += 1;
    }

    fn not_run(&mut self, _: &Job, why: &WaitReason) {
        let why = why.to_string();
        let is_known = self.not_run.contains_key(&why);
        let why = if is_known || self.not_run.len() < REASONS_MAX { why } else { OTHERS.into() };
        *self.not_run.entry(why).or_default() += 1;
    }

    fn let_alone(&mut self, _: &Job) {
        self.let_alone += 1;
    }

    fn passed(&mut self, passed: &Passed) {
        let Some(first) = self.first_submit else { return };
        let from = passed.from.max(first);
        if passed.useful_ns > 0 {
            self.last = passed.to;
        }
        self.useful_ns += passed.useful_ns;
        self.enter_weeks(first, from, passed);
        self.lost_to_switches_ns += passed.held_ns - passed.useful_ns;
        self.switches += passed.switches;
        if passed.waiting > 0 {
            let all_ns = u128::from(passed.to.since(from).0) * u128::from(self.processors);
            self.idle_ns += all_ns.saturating_sub(passed.held_ns);
        }
    }

    fn ended(&mut self, _: JobId, job: &Finished) -> io::Result<()> {
        self.last = self.last.max(job.end);
        match job.in_time() {
            Some(true) => self.in_time += 1,
            Some(false) => self.late += 1,
            None => {}
        }
        self.all.add(job);
        if job.job.user > 0 {
            let (jobs, sum) = self.users.entry(job.job.user).or_default();
            *jobs += 1;
            *sum += slowdown(job);
        }
        if let Some(key) = self.key(&job.job) {
            self.groups.entry(key).or_default().add(job);
        }
        Ok(())
    }
}

impl Figures {
    fn add(&mut self, job: &Finished) {
        self.jobs += 1;
        self.at_limit += u64::from(job.job.run > job.job.estimate);
        self.preemptions += job.preemptions;
        self.work_ns += u128::from(job.job.need().0) * u128::from(job.job.processors);
        self.wait.add(job.wait().0);
        self.response.add(job.response().0);
        self.slowdown.add(slowdown(job));
    }

    fn results(&self, group: Option<String>, whole_ns: u128) -> Results {
        let share = self.work_ns as f64 / whole_ns.max(1) as f64;
        Results {
            group,
            jobs: self.jobs,
            work_share: share,
            wait_s: self.wait.measure(self.jobs),
            response_s: self.response.measure(self.jobs),
            slowdown: self.slowdown.measure(self.jobs),
            at_limit: self.at_limit,
            preemptions: self.preemptions,
        }
    }
}

/// Response over run time, bounded.
fn slowdown(job: &Finished) -> f64 {
    let run_ns = job.job.need().0.max(TAU_S * NS_PER_S);
    (job.response().0 as f64 / run_ns as f64).max(1.0)
}

const MEDIAN: (u64, u64) = (1, 2);
const P95: (u64, u64) = (95, 100);

impl Lengths {
    fn add(&mut self, length_ns: u64) {
        self.sum_ns += u128::from(length_ns);
        self.max_ns = self.max_ns.max(length_ns);
        self.sketch.add(length_ns);
    }

    fn measure(&self, jobs: u64) -> Measure {
        let seconds = |ns: u64| ns.min(self.max_ns) as f64 / NS_PER_S as f64;
        let [median, p95] = self.sketch.quantiles([MEDIAN, P95]).map(seconds);
        Measure {
            mean: self.sum_ns as f64 / NS_PER_S as f64 / jobs.max(1) as f64,
            median,
            p95,
            max: seconds(self.max_ns),
        }
    }
}

impl Slowdowns {
    #[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a slowdown is at least 1")]
    fn add(&mut self, slowdown: f64) {
        self.sum += slowdown;
        self.max = self.max.max(slowdown);
        self.sketch.add((slowdown * SLOWDOWN_UNIT) as u64);
    }

    fn measure(&self, jobs: u64) -> Measure {
        if jobs == 0 {
            return Measure::default();
        }
        // What is put in is cut off to the unit, and what is read back may be above it.
        let read = |number: u64| (number as f64 / SLOWDOWN_UNIT).clamp(1.0, self.max);
        let [median, p95] = self.sketch.quantiles([MEDIAN, P95]).map(read);
        Measure { mean: self.sum / jobs as f64, median, p95, max: self.max }
    }
}
