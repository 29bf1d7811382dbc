//! A stand-in for the workload of the Cray T3D at LLNL in spring 1996 (Jette, Storch, Yim: "The
//! gang scheduler", CUG 1996), for comparing schedulers on a mix like the one theirs was built for.
//!
//! From the paper: 256 processors in powers of two; the four classes, and that benchmarks get at
//! most 64 processors by day; the batch queues' limits, which are the requested times here (4 h; 15
//! min for short jobs of 128 and 256 processors; 16 h for long ones of 64); working hours with more
//! than 90 % of the machine used, weekends with about 10 %, and 45 % over the weeks under their
//! gang scheduler, which the loads below add up to.
//!
//! Not in the paper, and chosen by us: how often each size comes, run times (log-uniform up to the
//! limit, so that many jobs end early), the classes' shares of the load, Poisson arrivals at the
//! three rates of working hours, weekday nights and weekends. No figure of the paper can be
//! reproduced with this; it has its shape.

use super::cycle::Cycle;
use super::ns_of_seconds;
use super::random::Random;
use crate::header::Header;
use crate::job::{Job, Status};
use crate::number::NS_PER_SECOND;

/// The classes of the paper. Each is a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum T3dClass {
    /// A user waits for it.
    Interactive,
    /// Long runs, by batch.
    Production,
    /// Must not be interrupted.
    Benchmark,
    /// Fills what no other job wants.
    Standby,
}

impl T3dClass {
    /// All of them, in the order of their queues.
    pub const ALL: [T3dClass; 4] =
        [T3dClass::Interactive, T3dClass::Production, T3dClass::Benchmark, T3dClass::Standby];

    /// The number of its queue in the trace.
    #[must_use]
    pub fn queue(self) -> u64 {
        self as u64
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            T3dClass::Interactive => "interactive",
            T3dClass::Production => "production",
            T3dClass::Benchmark => "benchmark",
            T3dClass::Standby => "standby",
        }
    }

    /// The jobs of the class at that time of the week.
    pub(super) fn kinds(self, period: Period) -> &'static [Kind] {
        match (self, period) {
            (T3dClass::Interactive, _) => &INTERACTIVE,
            (T3dClass::Production, _) => &PRODUCTION,
            (T3dClass::Benchmark, Period::WorkingHours) => &BENCHMARK_BY_DAY,
            (T3dClass::Benchmark, Period::Night | Period::Weekend) => &BENCHMARK,
            (T3dClass::Standby, _) => &STANDBY,
        }
    }

    /// What the class asks for, as a share of the machine.
    fn load(self, period: Period) -> f64 {
        let [working_hours, night, weekend] = match self {
            T3dClass::Interactive => [0.15, 0.02, 0.010],
            T3dClass::Production => [0.60, 0.20, 0.060],
            T3dClass::Benchmark => [0.05, 0.03, 0.005],
            T3dClass::Standby => [0.15, 0.10, 0.025],
        };
        match period {
            Period::WorkingHours => working_hours,
            Period::Night => night,
            Period::Weekend => weekend,
        }
    }

    fn arrivals_per_hour(self, period: Period) -> f64 {
        let machine_s = f64::from(T3dMix::PROCESSORS) * HOUR_S;
        self.load(period) * machine_s / work_mean_s(self.kinds(period))
    }
}

/// A kind of job: how likely beside the others of its class, and what it is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) weight: u32,
    pub(super) processors: u32,
    /// Bounds of the run time, which is log-uniform. The upper one is the requested time.
    pub(super) shortest_s: f64,
    pub(super) limit_s: f64,
}

const fn kind(weight: u32, processors: u32, shortest_s: f64, limit_s: f64) -> Kind {
    Kind { weight, processors, shortest_s, limit_s }
}

pub(super) const HOUR_S: f64 = 3_600.0;
const SHORT_S: f64 = 900.0;
const LONG_S: f64 = 4.0 * HOUR_S;
const LONGEST_S: f64 = 16.0 * HOUR_S;

const INTERACTIVE: [Kind; 7] = [
    kind(10, 2, 10.0, HOUR_S),
    kind(10, 4, 10.0, HOUR_S),
    kind(25, 8, 10.0, HOUR_S),
    kind(15, 16, 10.0, HOUR_S),
    kind(25, 32, 10.0, HOUR_S),
    kind(13, 64, 10.0, HOUR_S),
    kind(2, 128, 10.0, HOUR_S),
];
const PRODUCTION: [Kind; 9] = [
    kind(22, 8, 60.0, LONG_S),
    kind(10, 16, 60.0, LONG_S),
    kind(28, 32, 60.0, LONG_S),
    kind(20, 64, 60.0, LONG_S),
    kind(6, 64, LONG_S, LONGEST_S),
    kind(5, 128, 30.0, SHORT_S),
    kind(6, 128, SHORT_S, LONG_S),
    kind(2, 256, 30.0, SHORT_S),
    kind(1, 256, SHORT_S, LONG_S),
];
const BENCHMARK_BY_DAY: [Kind; 3] =
    [kind(30, 16, 60.0, HOUR_S), kind(40, 32, 60.0, HOUR_S), kind(30, 64, 60.0, HOUR_S)];
const BENCHMARK: [Kind; 5] = [
    kind(20, 16, 60.0, HOUR_S),
    kind(25, 32, 60.0, HOUR_S),
    kind(25, 64, 60.0, HOUR_S),
    kind(20, 128, 60.0, HOUR_S),
    kind(10, 256, 60.0, HOUR_S),
];
const STANDBY: [Kind; 4] = [
    kind(20, 32, 1_800.0, LONG_S),
    kind(40, 64, 1_800.0, LONG_S),
    kind(30, 128, 1_800.0, LONG_S),
    kind(10, 256, 1_800.0, LONG_S),
];

/// The mean of run time x processors.
fn work_mean_s(kinds: &[Kind]) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for kind in kinds {
        let run_mean_s =
            (kind.limit_s - kind.shortest_s) / libm::log(kind.limit_s / kind.shortest_s);
        sum += f64::from(kind.weight) * f64::from(kind.processors) * run_mean_s;
        weights += f64::from(kind.weight);
    }
    sum / weights
}

/// Times of the week that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    /// Monday to Friday, 8 to 18.
    WorkingHours,
    /// Monday to Friday, else.
    Night,
    /// Saturday and Sunday.
    Weekend,
}

const HOURS_OF_WEEK: u64 = 168;

impl Period {
    /// `hour` counts from Monday, midnight.
    pub(super) fn of_hour(hour: u64) -> Period {
        let (day, hour) = (hour % HOURS_OF_WEEK / 24, hour % 24);
        match (day, hour) {
            (5.., _) => Period::Weekend,
            (_, 8..18) => Period::WorkingHours,
            _ => Period::Night,
        }
    }
}

/// Jobs of the mix, in the order of their submit times, from Monday, midnight.
#[derive(Clone, Debug)]
pub struct T3dMix {
    streams: [Stream; 4],
    jobs: u64,
    seed: u64,
}

/// One class under way.
#[derive(Clone, Debug)]
struct Stream {
    class: T3dClass,
    week: Cycle,
    next_ns: u64,
    arrivals: Random,
    /// Which kind of job, and how long it runs.
    kinds: Random,
}

impl T3dMix {
    /// The machine's processors.
    pub const PROCESSORS: u32 = 256;
    pub(super) const STREAMS: usize = 8;

    /// Same seed, same jobs.
    #[must_use]
    pub fn new(seed: u64) -> T3dMix {
        let mut randoms = Random::streams::<{ T3dMix::STREAMS }>(seed).into_iter();
        let mut next = || randoms.next().expect("two for each of four classes");
        let streams = T3dClass::ALL.map(|class| Stream::new(class, next(), next()));
        T3dMix { streams, jobs: 0, seed }
    }

    /// What the jobs ask for over whole weeks, as a share of the machine.
    #[must_use]
    pub fn offered_load() -> f64 {
        let of_hour = |hour| {
            let period = Period::of_hour(hour);
            T3dClass::ALL.map(|class| class.load(period)).iter().sum::<f64>()
        };
        (0..HOURS_OF_WEEK).map(of_hour).sum::<f64>() / HOURS_OF_WEEK as f64
    }

    /// The head of a trace of these jobs.
    #[must_use]
    pub fn header(&self) -> Header {
        let machine = T3dMix::PROCESSORS.to_string();
        let mut header = Header::of(&[
            ("Version", "2.2"),
            ("Computer", "stand-in for the Cray T3D at LLNL, 1996; no log"),
            ("MaxNodes", &machine),
            ("MaxProcs", &machine),
            ("Note", &format!("seed {}; begins on a Monday at midnight", self.seed)),
        ]);
        for class in T3dClass::ALL {
            header.add("Queue", &format!("{} {}", class.queue(), class.name()));
        }
        header
    }
}

impl Iterator for T3dMix {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let stream = self.streams.iter_mut().min_by_key(|stream| (stream.next_ns, stream.class))?;
        self.jobs += 1;
        stream.next_job(self.jobs)
    }
}

impl Stream {
    fn new(class: T3dClass, arrivals: Random, kinds: Random) -> Stream {
        let rate = |hour| class.arrivals_per_hour(Period::of_hour(hour));
        let week = Cycle::new((0..HOURS_OF_WEEK).map(rate).collect(), HOUR_S);
        let mut stream = Stream { class, week, next_ns: 0, arrivals, kinds };
        stream.next_ns = stream.gap_ns();
        stream
    }

    fn gap_ns(&mut self) -> u64 {
        ns_of_seconds(self.week.advance(self.arrivals.exponential(1.0)))
    }

    fn next_job(&mut self, number: u64) -> Option<Job> {
        let submit_ns = self.next_ns;
        self.next_ns = submit_ns.checked_add(self.gap_ns())?;
        let kinds = self.class.kinds(Period::of_hour(submit_ns / NS_PER_SECOND / 3_600));
        let kind = self.kinds.choose(kinds.iter().map(|&kind| (kind, kind.weight)))?;
        let run_s = self.kinds.log_uniform(kind.shortest_s, kind.limit_s);
        Some(Job {
            number,
            submit_ns: Some(submit_ns),
            run_ns: Some(ns_of_seconds(run_s)),
            allocated_processors: Some(kind.processors),
            requested_processors: Some(kind.processors),
            requested_ns: Some(ns_of_seconds(kind.limit_s)),
            status: Some(Status::Completed),
            queue: Some(self.class.queue()),
            ..Job::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEKS: u64 = 300;

    fn hour(job: &Job) -> u64 {
        job.submit_ns.unwrap() / NS_PER_SECOND / 3_600
    }

    fn jobs() -> Vec<Job> {
        let jobs = T3dMix::new(3);
        jobs.take_while(|job| hour(job) < WEEKS * HOURS_OF_WEEK).collect()
    }

    /// What the jobs of some hours of the week ask for, as a share of the machine in them.
    fn load(jobs: &[Job], is_in: impl Fn(u64) -> bool) -> f64 {
        let hours = (0..HOURS_OF_WEEK).filter(|&hour| is_in(hour)).count() as f64 * WEEKS as f64;
        let work = |job: &Job| {
            job.run_ns.unwrap() as f64 / 1e9 * f64::from(job.allocated_processors.unwrap())
        };
        let jobs = jobs.iter().filter(|job| is_in(hour(job) % HOURS_OF_WEEK));
        jobs.map(work).sum::<f64>() / (hours * HOUR_S * f64::from(T3dMix::PROCESSORS))
    }

    /// 300 weeks leave some 3 % to chance, by the few jobs that carry most of the work.
    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.10, "{found}, expected {expected}");
    }

    #[test]
    fn the_load_follows_the_week() {
        let jobs = jobs();
        assert_near(load(&jobs, |hour| Period::of_hour(hour) == Period::WorkingHours), 0.95);
        assert_near(load(&jobs, |hour| Period::of_hour(hour) == Period::Night), 0.35);
        assert_near(load(&jobs, |hour| Period::of_hour(hour) == Period::Weekend), 0.10);
        assert_near(load(&jobs, |_| true), T3dMix::offered_load());
        assert!((T3dMix::offered_load() - 0.457).abs() < 0.001);
    }

    #[test]
    fn each_class_has_its_share_and_its_limits() {
        let jobs = jobs();
        for class in T3dClass::ALL {
            let of_class: Vec<Job> =
                jobs.iter().filter(|job| job.queue == Some(class.queue())).cloned().collect();
            let is_day = |hour| Period::of_hour(hour) == Period::WorkingHours;
            let found = load(&of_class, is_day);
            let expected = class.load(Period::WorkingHours);
            assert_near(found, expected);
        }
        for job in &jobs {
            let processors = job.allocated_processors.unwrap();
            assert!(processors.is_power_of_two() && (2..=256).contains(&processors));
            assert!(job.run_ns <= job.requested_ns);
            let limit_s = job.requested_ns.unwrap() / NS_PER_SECOND;
            assert!(limit_s <= 4 * 3_600 || processors == 64, "only 64 may run longer");
            let is_day = Period::of_hour(hour(job)) == Period::WorkingHours;
            let is_benchmark = job.queue == Some(T3dClass::Benchmark.queue());
            assert!(!is_day || !is_benchmark || processors <= 64);
        }
    }

    #[test]
    fn weeks_begin_on_monday() {
        let periods: Vec<Period> =
            [0, 8, 17, 18, 4 * 24 + 17, 5 * 24, 6 * 24 + 12, 168 + 8].map(Period::of_hour).to_vec();
        let expected = [
            Period::Night,
            Period::WorkingHours,
            Period::WorkingHours,
            Period::Night,
            Period::WorkingHours,
            Period::Weekend,
            Period::Weekend,
            Period::WorkingHours,
        ];
        assert_eq!(periods, expected);
    }
}
