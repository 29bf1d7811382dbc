//! The people at the Cray T3D at LLNL in spring 1996, as a loop: each submits a job, waits for it
//! to end, thinks, and submits the next. So what they get done depends on the scheduler, as it did
//! ("The best measure of success is probably actual throughput achieved"), which no fixed list of
//! jobs can show. [`super::T3dMix`] is that list, for the same machine.
//!
//! Jobs name the one before them and the think time (fields 17 and 18). Their submit times are the
//! earliest possible: as if no user ever waited. A simulation must hold them back, and in
//! [`T3dUsers::HOURS`] only, for a user that waited past 18 h has gone home.
//!
//! From the paper: working hours; 256 processors in powers of two; the classes, and that benchmarks
//! get at most 64 processors by day; the batch queues' limits, which are the requested times; and
//! weekends with about 10 % of the machine used.
//!
//! Chosen by us, since the paper does not tell: the kinds of jobs, which are those of the mix; how
//! long people think; how many they are ([`Staff`]); that each has one job in the system at a time.
//! The number of production users is the one figure that was fitted: to the 28.6 % that the machine
//! was used *before* it had a gang scheduler, under the batch system's limits of that time. Nothing
//! was fitted to what came after. Weekend jobs are every second one of the mix's
//! weekends, so that there were about 10 % before, with what is left from Friday; their user waits
//! for none.

use super::ns_of_seconds;
use super::random::Random;
use super::t3d::{Kind, Period, T3dClass, T3dMix};
use crate::header::Header;
use crate::job::{Job, Status};
use crate::number::NS_PER_SECOND;
use std::iter::Peekable;

/// How many people work with jobs of each class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staff {
    /// Developers, with their debugging.
    pub interactive: u32,
    /// Users that run what was developed.
    pub production: u32,
    /// Users that measure.
    pub benchmark: u32,
    /// The users with a spent allowance.
    pub standby: u32,
    /// How long all but the interactive ones think from a job's end to the next submission, on
    /// average, in seconds: they look at results, and prepare the next run.
    pub think_s: u32,
}

impl Default for Staff {
    fn default() -> Staff {
        Staff { interactive: 8, production: 6, benchmark: 2, standby: 2, think_s: 3_600 }
    }
}

impl Staff {
    /// The most of each class.
    pub const MOST: u32 = 10_000;

    const fn of(self, class: T3dClass) -> u32 {
        match class {
            T3dClass::Interactive => self.interactive,
            T3dClass::Production => self.production,
            T3dClass::Benchmark => self.benchmark,
            T3dClass::Standby => self.standby,
        }
    }

    fn think_mean_s(self, class: T3dClass) -> f64 {
        match class {
            // To look at what went wrong, edit and compile.
            T3dClass::Interactive => 1_800.0,
            T3dClass::Production | T3dClass::Benchmark | T3dClass::Standby => {
                f64::from(self.think_s)
            }
        }
    }
}

/// Jobs of these people, in the order of their earliest submit times, from Monday, midnight.
#[derive(Clone, Debug)]
pub struct T3dUsers {
    people: Vec<Person>,
    weekends: Peekable<Weekends>,
    jobs: u64,
    seed: u64,
}

/// One user, between two jobs.
#[derive(Clone, Debug)]
struct Person {
    class: T3dClass,
    user: u64,
    /// The think time; exponential.
    think_mean_s: f64,
    next_ns: u64,
    /// The job before, and the time since then.
    before: Option<(u64, u64)>,
    random: Random,
}

/// Every second job of the mix that comes at a weekend: those that are left over from Friday make
/// up the rest of the 10 %.
#[derive(Clone, Debug)]
struct Weekends(T3dMix);

impl T3dUsers {
    /// When users that had to wait submit jobs.
    pub const HOURS: &str = "mon-fri 08:00-18:00";

    /// Same seed, same people: same jobs, each with the same think time before it. There are at
    /// most [`Staff::MOST`] of each class.
    #[must_use]
    pub fn new(staff: Staff, seed: u64) -> T3dUsers {
        let classes = T3dClass::ALL
            .into_iter()
            .flat_map(|class| (0..staff.of(class).min(Staff::MOST)).map(move |_| class));
        // The first streams are those of the mix.
        let people = classes.zip(1..).zip(Random::endless(seed).skip(T3dMix::STREAMS));
        let people = people.map(|((class, user), random)| {
            Person::new(class, user, staff.think_mean_s(class), random)
        });
        let weekends = Weekends(T3dMix::new(seed)).peekable();
        T3dUsers { people: people.collect(), weekends, jobs: 0, seed }
    }

    /// The head of a trace of these jobs.
    #[must_use]
    pub fn header(&self) -> Header {
        let mut header = T3dMix::new(self.seed).header();
        header
            .add("Note", "submit times are the earliest possible; jobs wait for those in field 17");
        header
    }
}

impl Iterator for T3dUsers {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let next = self.people.iter_mut().min_by_key(|person| (person.next_ns, person.user));
        let next_ns = next.as_ref().map_or(u64::MAX, |person| person.next_ns);
        let is_weekend = |job: &Job| job.submit_ns.is_some_and(|submit_ns| submit_ns <= next_ns);
        let job = match self.weekends.next_if(is_weekend) {
            Some(job) => job,
            None => next?.next_job(self.jobs + 1)?,
        };
        self.jobs += 1;
        Some(Job { number: self.jobs, ..job })
    }
}

impl Iterator for Weekends {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let is_weekend = |job: &Job| job.submit_ns.is_some_and(|it| period(it) == Period::Weekend);
        self.0.by_ref().filter(is_weekend).nth(1)
    }
}

impl Person {
    fn new(class: T3dClass, user: u64, think_mean_s: f64, random: Random) -> Person {
        let mut person = Person { class, user, think_mean_s, next_ns: 0, before: None, random };
        let first = in_hours(0).and_then(|begin| in_hours(begin + person.think_ns()));
        person.next_ns = first.unwrap_or(u64::MAX);
        person
    }

    fn think_ns(&mut self) -> u64 {
        ns_of_seconds(self.random.exponential(self.think_mean_s))
    }

    fn next_job(&mut self, number: u64) -> Option<Job> {
        let kinds = self.class.kinds(Period::WorkingHours);
        let kind: Kind = self.random.choose(kinds.iter().map(|&kind| (kind, kind.weight)))?;
        let run_ns = ns_of_seconds(self.random.log_uniform(kind.shortest_s, kind.limit_s));
        let (submit_ns, think_ns) = (self.next_ns, self.think_ns());
        let before = self.before.replace((number, think_ns));
        self.next_ns = in_hours(submit_ns.checked_add(run_ns)?.checked_add(think_ns)?)?;
        Some(Job {
            submit_ns: Some(submit_ns),
            run_ns: Some(run_ns),
            allocated_processors: Some(kind.processors),
            requested_processors: Some(kind.processors),
            requested_ns: Some(ns_of_seconds(kind.limit_s)),
            status: Some(Status::Completed),
            user: Some(self.user),
            queue: Some(self.class.queue()),
            preceding_job: before.map(|(job, _)| job),
            think_ns: before.map(|(_, think_ns)| think_ns),
            ..Job::default()
        })
    }
}

fn period(ns: u64) -> Period {
    Period::of_hour(ns / NS_PER_SECOND / 3_600)
}

/// The first moment from this one on that is in working hours, if it is known.
fn in_hours(mut ns: u64) -> Option<u64> {
    const HOUR_NS: u64 = 3_600 * NS_PER_SECOND;
    while period(ns) != Period::WorkingHours {
        ns = (ns / HOUR_NS + 1).checked_mul(HOUR_NS)?;
    }
    Some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const DAY_NS: u64 = 24 * 3_600 * NS_PER_SECOND;

    #[test]
    fn each_user_hands_in_when_the_job_before_could_have_ended() {
        let mut last: BTreeMap<u64, Job> = BTreeMap::new();
        let mut submit_ns = 0;
        for (number, job) in (1..).zip(T3dUsers::new(Staff::default(), 7).take(20_000)) {
            assert_eq!(job.number, number);
            assert!(job.submit_ns.unwrap() >= submit_ns);
            submit_ns = job.submit_ns.unwrap();
            let Some(user) = job.user else {
                assert_eq!((period(submit_ns), job.preceding_job), (Period::Weekend, None));
                continue;
            };
            assert_eq!(period(submit_ns), Period::WorkingHours);
            match last.insert(user, job.clone()) {
                None => assert_eq!((job.preceding_job, job.think_ns), (None, None)),
                Some(before) => {
                    assert_eq!(job.preceding_job, Some(before.number));
                    let end_ns = before.submit_ns.unwrap() + before.run_ns.unwrap();
                    assert_eq!(in_hours(end_ns + job.think_ns.unwrap()), Some(submit_ns));
                    assert_eq!(job.queue, before.queue);
                }
            }
        }
        assert_eq!(last.len(), 18);
    }

    #[test]
    fn people_think_as_long_as_is_said() {
        for class in T3dClass::ALL {
            let queue = Some(class.queue());
            let jobs = T3dUsers::new(Staff::default(), 3).take(60_000);
            let thought = jobs.filter(|job| job.queue == queue).filter_map(|job| job.think_ns);
            let thought: Vec<f64> = thought.map(|ns| ns as f64 / 1e9).collect();
            let mean_s = Staff::default().think_mean_s(class);
            super::super::random::assert_mean(&thought, mean_s, mean_s * mean_s);
        }
    }

    #[test]
    fn nobody_hands_in_at_night() {
        let noon_on_saturday = 5 * DAY_NS + DAY_NS / 2;
        assert_eq!(in_hours(0), Some(DAY_NS / 3));
        assert_eq!(in_hours(DAY_NS / 2), Some(DAY_NS / 2));
        assert_eq!(in_hours(DAY_NS / 4 * 3), Some(DAY_NS + DAY_NS / 3));
        assert_eq!(in_hours(u64::MAX), None);
        assert_eq!(in_hours(noon_on_saturday), Some(7 * DAY_NS + DAY_NS / 3));
        let none = Staff { interactive: 0, production: 0, benchmark: 0, standby: 0, think_s: 0 };
        let mut alone = T3dUsers::new(none, 1).take(100);
        assert!(alone.all(|job| job.user.is_none()), "the weekends are left");
    }
}
