//! The model of Lublin and Feitelson (JPDC 63(11), 2003), with the parameters of their program.
//!
//! Two streams of jobs, batch and interactive, merged by time; or one without types. In a stream:
//!
//! - size: one processor, or else 2 to the power of a two-stage uniform variable, which for most
//!   jobs is rounded to a whole power
//! - run time: e to the power of a hyper-gamma variable, whose first gamma is the less likely the
//!   larger the job; beyond e^12 seconds (45 hours) it is drawn again
//! - arrivals: e to the power of a gamma variable is what a job costs; the half hours of the day
//!   pay for it, each at the rate that its share of a daily gamma curve gives
//!
//! Where paper and program differ, the program holds: logs and figures around come from it. So the
//! share of powers of two is one of *all* jobs, other jobs that happen to be powers of two come on
//! top, and the day begins with the half hour that ends at 5:30.
//!
//! Departures: submit times are rounded when they are given, not when they are added up; gamma
//! variables are drawn by another method; jobs never exceed the machine, whose size need not be a
//! power of two. Fitting to a machine moves the two upper bounds of sizes by log2(machine) - 7.

use super::cycle::Cycle;
use super::gamma::gamma_cdf;
use super::random::Random;
use super::{Estimates, ModelError, check, ns_of_seconds, whole_processors};
use crate::header::Header;
use crate::job::{Job, Status};
use crate::number::NS_PER_SECOND;

/// What to make jobs like.
#[derive(Clone, Debug, PartialEq)]
pub struct LublinModel {
    /// Processors of the machine: no job has more.
    pub machine_processors: u32,
    /// Batch jobs: queue 1.
    pub batch: Option<LublinStream>,
    /// Interactive jobs, or jobs without a type: queue 0.
    pub interactive: Option<LublinStream>,
    /// What users say their jobs will take. The model has none; backfilling needs some.
    pub estimates: Estimates,
}

/// One kind of jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LublinStream {
    /// Share of jobs with one processor, 0 to 1.
    pub serial_share: f64,
    /// Share of jobs that are rounded to a power of two, 0 to 1, of all jobs.
    pub power_of_two_share: f64,
    /// Base 2 logarithm of the size of parallel jobs.
    pub size_log2: TwoStageUniform,
    /// Natural logarithm of the run time in seconds.
    pub run_log: HyperGamma,
    /// Natural logarithm of the time between arrivals in the rush hours, in seconds.
    pub arrival_log: Gamma,
    /// What the shape of `arrival_log` is multiplied by for all hours instead of the rush hours.
    pub rush_to_all: f64,
    /// When in the day jobs arrive, in half hours after midnight; may reach into the next day.
    pub daily: Gamma,
}

/// A gamma distribution: mean shape x scale, variance shape x scale^2.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "told above")]
pub struct Gamma {
    pub shape: f64,
    pub scale: f64,
}

/// One of two gammas, the first with probability `slope * processors + at_0`, cut to 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "told above")]
pub struct HyperGamma {
    pub first: Gamma,
    pub second: Gamma,
    pub slope: f64,
    pub at_0: f64,
}

/// Uniform from `low` to `middle` with probability `lower_share`, else from `middle` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "told above")]
pub struct TwoStageUniform {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
    pub lower_share: f64,
}

impl LublinStream {
    /// Batch jobs, on 128 processors.
    pub const BATCH: LublinStream = LublinStream {
        serial_share: 0.2927,
        power_of_two_share: 0.6686,
        size_log2: TwoStageUniform { low: 1.2, middle: 5.0, high: 7.0, lower_share: 0.875 },
        run_log: HyperGamma {
            first: Gamma { shape: 6.57, scale: 0.823 },
            second: Gamma { shape: 639.1, scale: 0.0156 },
            slope: -0.003,
            at_0: 0.6986,
        },
        arrival_log: Gamma { shape: 6.0415, scale: 0.8531 },
        rush_to_all: 1.0519,
        daily: Gamma { shape: 6.1271, scale: 5.2740 },
    };

    /// Interactive jobs, on 128 processors.
    pub const INTERACTIVE: LublinStream = LublinStream {
        serial_share: 0.1541,
        power_of_two_share: 0.625,
        size_log2: TwoStageUniform { low: 1.0, middle: 3.0, high: 5.5, lower_share: 0.705 },
        run_log: HyperGamma {
            first: Gamma { shape: 3.8351, scale: 0.6605 },
            second: Gamma { shape: 7.073, scale: 0.6856 },
            slope: -0.0118,
            at_0: 0.9156,
        },
        arrival_log: Gamma { shape: 6.5510, scale: 0.6621 },
        rush_to_all: 0.9797,
        daily: Gamma { shape: 8.9186, scale: 3.6680 },
    };

    /// Jobs without a type, on 128 processors.
    pub const TYPELESS: LublinStream = LublinStream {
        serial_share: 0.244,
        power_of_two_share: 0.576,
        size_log2: TwoStageUniform { low: 0.8, middle: 4.5, high: 7.0, lower_share: 0.86 },
        run_log: HyperGamma {
            first: Gamma { shape: 4.2, scale: 0.94 },
            second: Gamma { shape: 312.0, scale: 0.03 },
            slope: -0.0054,
            at_0: 0.78,
        },
        arrival_log: Gamma { shape: 10.2303, scale: 0.4871 },
        rush_to_all: 1.0225,
        daily: Gamma { shape: 8.1737, scale: 3.9631 },
    };

    /// The same jobs on a machine of another size than 128 processors.
    #[must_use]
    pub fn fitted_to(mut self, machine_processors: u32) -> LublinStream {
        let sizes = &mut self.size_log2;
        let moved = libm::log2(f64::from(machine_processors.max(1))) - FITTED_LOG2;
        sizes.middle = (sizes.middle + moved).max(sizes.low);
        sizes.high = (sizes.high + moved).max(sizes.middle);
        self
    }

    fn check(&self) -> Result<(), ModelError> {
        let LublinStream { size_log2, run_log, .. } = self;
        check("the share of serial jobs", self.serial_share, 0.0, 1.0)?;
        check("the share of powers of two", self.power_of_two_share, 0.0, 1.0)?;
        check("the lower bound of sizes (log2)", size_log2.low, 0.0, 32.0)?;
        check("the middle bound of sizes (log2)", size_log2.middle, size_log2.low, 32.0)?;
        check("the upper bound of sizes (log2)", size_log2.high, size_log2.middle, 32.0)?;
        check("the share of lower sizes", size_log2.lower_share, 0.0, 1.0)?;
        check("the slope of the run times' mix", run_log.slope, -1e6, 1e6)?;
        check("the run times' mix at size 0", run_log.at_0, -1e6, 1e6)?;
        check("the ratio of rush hours to all", self.rush_to_all, 1e-3, 1e3)?;
        for gamma in [run_log.first, run_log.second, self.arrival_log, self.daily] {
            check("the shape of a gamma", gamma.shape, 1e-3, 1e6)?;
            check("the scale of a gamma", gamma.scale, 1e-6, 1e6)?;
        }
        Ok(())
    }
}

impl LublinModel {
    /// Batch and interactive jobs together, fitted to a machine of this size.
    #[must_use]
    pub fn both(machine_processors: u32) -> LublinModel {
        LublinModel {
            machine_processors,
            batch: Some(LublinStream::BATCH.fitted_to(machine_processors)),
            interactive: Some(LublinStream::INTERACTIVE.fitted_to(machine_processors)),
            estimates: Estimates::None,
        }
    }

    /// Jobs without a type, fitted to a machine of this size.
    #[must_use]
    pub fn typeless(machine_processors: u32) -> LublinModel {
        let stream = LublinStream::TYPELESS.fitted_to(machine_processors);
        LublinModel { batch: None, interactive: Some(stream), ..Self::both(machine_processors) }
    }
}

/// Jobs of the model, in the order of their submit times, from midnight of the first day.
#[derive(Clone, Debug)]
pub struct Lublin {
    machine_processors: u32,
    estimates: Estimates,
    batch: Option<Stream>,
    interactive: Option<Stream>,
    jobs: u64,
    seed: u64,
}

/// log2 of the machine that the parameters stand for.
const FITTED_LOG2: f64 = 7.0;
const RUN_LOG_MAX: f64 = 12.0;
const ARRIVAL_LOG_MAX: f64 = 13.0;
/// So often a number that is too large is drawn again. With parameters of one's own it might
/// always be.
const DRAWS_MAX: u32 = 1_000;
const BUCKETS: usize = 48;
const BUCKET_S: f64 = 1_800.0;
/// The half hour that the model's day begins with.
const FIRST_BUCKET: usize = 11;

impl Lublin {
    /// Jobs like this; same seed, same jobs.
    ///
    /// # Errors
    /// If a parameter makes no sense, or there is no stream.
    pub fn new(model: &LublinModel, seed: u64) -> Result<Lublin, ModelError> {
        check("the machine's size", model.machine_processors.into(), 1.0, u32::MAX.into())?;
        model.estimates.check()?;
        if model.batch.is_none() && model.interactive.is_none() {
            return Err(ModelError::Nothing { what: "streams of jobs" });
        }
        let [a, b, c, d, e, f, g, h] = Random::streams(seed);
        let batch = model.batch.map(|it| Stream::new(it, 1, [a, b, c, d])).transpose()?;
        let interactive =
            model.interactive.map(|it| Stream::new(it, 0, [e, f, g, h])).transpose()?;
        Ok(Lublin {
            machine_processors: model.machine_processors,
            estimates: model.estimates,
            batch,
            interactive,
            jobs: 0,
            seed,
        })
    }

    /// The head of a trace of these jobs.
    #[must_use]
    pub fn header(&self) -> Header {
        let machine = self.machine_processors.to_string();
        let seed = format!("seed {}", self.seed);
        Header::of(&[
            ("Version", "2.2"),
            ("Computer", "workload model of Lublin and Feitelson"),
            ("MaxNodes", &machine),
            ("MaxProcs", &machine),
            ("Queue", "0 interactive"),
            ("Queue", "1 batch"),
            ("Note", &seed),
        ])
    }
}

impl Iterator for Lublin {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        // The interactive job goes first if both come at once, as in the program.
        let stream = match (&mut self.batch, &mut self.interactive) {
            (Some(batch), Some(interactive)) if batch.next_ns < interactive.next_ns => batch,
            (_, Some(interactive)) => interactive,
            (Some(batch), None) => batch,
            (None, None) => return None,
        };
        self.jobs += 1;
        stream.next_job(self.jobs, self.machine_processors, self.estimates)
    }
}

/// One stream under way.
#[derive(Clone, Debug)]
struct Stream {
    parameters: LublinStream,
    queue: u64,
    day: Cycle,
    /// When the next job comes.
    next_ns: u64,
    arrivals: Random,
    sizes: Random,
    runs: Random,
    estimates: Random,
}

impl Stream {
    fn new(
        parameters: LublinStream,
        queue: u64,
        [arrivals, sizes, runs, estimates]: [Random; 4],
    ) -> Result<Stream, ModelError> {
        parameters.check()?;
        let day = Cycle::new(daily_weights(parameters.daily)?, BUCKET_S);
        let mut stream =
            Stream { parameters, queue, day, next_ns: 0, arrivals, sizes, runs, estimates };
        stream.next_ns = stream.arrival_ns();
        Ok(stream)
    }

    fn next_job(&mut self, number: u64, machine: u32, estimates: Estimates) -> Option<Job> {
        let submit_ns = self.next_ns;
        self.next_ns = submit_ns.checked_add(self.arrival_ns())?;
        let processors = self.processors(machine);
        let run_ns = self.run_ns(processors);
        Some(Job {
            number,
            submit_ns: Some(submit_ns - submit_ns % NS_PER_SECOND),
            run_ns: Some(run_ns),
            allocated_processors: Some(processors),
            requested_ns: estimates.of(run_ns, &mut self.estimates).map(up_to_second),
            status: Some(Status::Completed),
            queue: Some(self.queue),
            ..Job::default()
        })
    }

    /// From one arrival to the next.
    fn arrival_ns(&mut self) -> u64 {
        let Gamma { shape, scale } = self.parameters.arrival_log;
        let random = &mut self.arrivals;
        let shape = shape * self.parameters.rush_to_all;
        let log = draw_up_to(ARRIVAL_LOG_MAX, || random.gamma(shape, scale));
        ns_of_seconds(self.day.advance(libm::exp(log) / BUCKET_S))
    }

    fn processors(&mut self, machine: u32) -> u32 {
        let LublinStream { serial_share, power_of_two_share, size_log2, .. } = self.parameters;
        let kind = self.sizes.uniform();
        if kind <= serial_share {
            return 1;
        }
        let TwoStageUniform { low, middle, high, lower_share } = size_log2;
        let is_lower = self.sizes.uniform() <= lower_share;
        let (least, most) = if is_lower { (low, middle) } else { (middle, high) };
        let log2 = self.sizes.between(least, most);
        if kind <= serial_share + power_of_two_share {
            let largest = f64::from(machine.ilog2());
            return whole_processors(libm::exp2(libm::floor(log2 + 0.5).min(largest)));
        }
        whole_processors(libm::exp2(log2) + 0.5).clamp(1, machine)
    }

    fn run_ns(&mut self, processors: u32) -> u64 {
        let HyperGamma { first, second, slope, at_0 } = self.parameters.run_log;
        let first_share = (slope * f64::from(processors) + at_0).clamp(0.0, 1.0);
        let random = &mut self.runs;
        let log = draw_up_to(RUN_LOG_MAX, || {
            let Gamma { shape, scale } =
                if random.uniform() <= first_share { first } else { second };
            random.gamma(shape, scale)
        });
        ns_of_seconds(libm::floor(libm::exp(log)))
    }
}

/// The first number that is not above `most`.
fn draw_up_to(most: f64, mut draw: impl FnMut() -> f64) -> f64 {
    (0..DRAWS_MAX).map(|_| draw()).find(|&number| number <= most).unwrap_or(most)
}

/// What each half hour from midnight pays, on average 1.
fn daily_weights(daily: Gamma) -> Result<Vec<f64>, ModelError> {
    let cdf = |half_hour: f64| gamma_cdf(half_hour, daily.shape, daily.scale);
    let mut weights = vec![0.0; BUCKETS];
    let mut half_hour = FIRST_BUCKET as f64;
    for bucket in FIRST_BUCKET - 1..FIRST_BUCKET - 1 + BUCKETS {
        weights[bucket % BUCKETS] = cdf(half_hour + 0.5) - cdf(half_hour - 0.5);
        half_hour += 1.0;
    }
    let mean = weights.iter().sum::<f64>() / BUCKETS as f64;
    // Far below this it would be rounding errors that say when jobs arrive.
    check("the share of the daily curve that falls into one day", mean, 1e-6, 1.0)?;
    Ok(weights.into_iter().map(|weight| weight / mean).collect())
}

/// Rounded up to a whole second, as the model's other times are whole.
fn up_to_second(ns: u64) -> u64 {
    ns.div_ceil(NS_PER_SECOND).saturating_mul(NS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::random::assert_mean;

    const COUNT: usize = 60_000;

    fn jobs(model: &LublinModel, seed: u64) -> Vec<Job> {
        Lublin::new(model, seed).unwrap().take(COUNT).collect()
    }

    fn sizes(jobs: &[Job]) -> Vec<f64> {
        jobs.iter().map(|job| f64::from(job.allocated_processors.unwrap())).collect()
    }

    fn share(jobs: &[Job], is: impl Fn(&Job) -> bool) -> f64 {
        jobs.iter().filter(|job| is(job)).count() as f64 / jobs.len() as f64
    }

    fn assert_from(found: f64, least: f64, most: f64) {
        assert!((least..=most).contains(&found), "{found}, expected {least} to {most}");
    }

    /// Bounds from the original program: three seeds of 200,000 jobs each, widened by what 60,000
    /// jobs may differ.
    #[test]
    fn both_streams_are_like_those_of_the_original_program() {
        let jobs = jobs(&LublinModel::both(128), 1);
        assert_from(sizes(&jobs).iter().sum::<f64>() / COUNT as f64, 8.7, 9.1);
        let processors = |job: &Job| job.allocated_processors.unwrap();
        assert_from(share(&jobs, |job| processors(job) == 1), 0.169, 0.181);
        let is_power = |job: &Job| processors(job) > 1 && processors(job).is_power_of_two();
        assert_from(share(&jobs, is_power), 0.680, 0.697);
        assert_from(share(&jobs, |job| job.queue == Some(0)), 0.84, 0.86);
        assert_eq!(jobs.iter().map(processors).max(), Some(128));

        let mut runs: Vec<u64> =
            jobs.iter().map(|job| job.run_ns.unwrap() / NS_PER_SECOND).collect();
        let mean = runs.iter().sum::<u64>() as f64 / COUNT as f64;
        assert_from(mean, 1_400.0, 1_850.0);
        runs.sort_unstable();
        assert_from(runs[COUNT / 2] as f64, 17.0, 18.0);
        assert!(runs[0] >= 1 && runs[COUNT - 1] <= 162_754);

        let last_s = jobs[COUNT - 1].submit_ns.unwrap() / NS_PER_SECOND;
        assert_from(last_s as f64 / COUNT as f64, 495.0, 560.0);
    }

    #[test]
    fn sizes_follow_their_closed_form() {
        // Without rounding to powers of two the mean of 2^x has one, but for the rounding to whole
        // processors, whose mean is near 0.
        let mut model = LublinModel::typeless(1024);
        let stream = model.interactive.as_mut().unwrap();
        (stream.serial_share, stream.power_of_two_share) = (0.25, 0.0);
        stream.size_log2 = TwoStageUniform { low: 4.0, middle: 6.0, high: 9.0, lower_share: 0.75 };
        let ln2 = std::f64::consts::LN_2;
        let moment = |power: f64, low: f64, high: f64| {
            ((power * high).exp2() - (power * low).exp2()) / (power * (high - low) * ln2)
        };
        let both = |power| 0.75 * moment(power, 4.0, 6.0) + 0.25 * moment(power, 6.0, 9.0);
        let mean = 0.25 + 0.75 * both(1.0);
        let square = 0.25 + 0.75 * both(2.0);
        assert_mean(&sizes(&jobs(&model, 3)), mean, square - mean * mean);
    }

    #[test]
    fn run_times_are_short_for_small_jobs_only() {
        let mut model = LublinModel::typeless(128);
        let stream = model.interactive.as_mut().unwrap();
        // The second gamma is nearly constant: e^3 = 20 s; the first e^7 = 1,096 s.
        stream.run_log = HyperGamma {
            first: Gamma { shape: 9e4, scale: 3.0 / 9e4 },
            second: Gamma { shape: 9e4, scale: 7.0 / 9e4 },
            slope: -1.0 / 128.0,
            at_0: 1.0,
        };
        let jobs = jobs(&model, 5);
        for (least, most) in [(1, 1), (8, 8), (32, 32), (128, 128)] {
            let wanted = least..=most;
            let is_sized = |job: &&Job| wanted.contains(&job.allocated_processors.unwrap());
            let is_short =
                |job: &Job| f64::from(u8::from(job.run_ns.unwrap() < 100 * NS_PER_SECOND));
            let short: Vec<f64> = jobs.iter().filter(is_sized).map(is_short).collect();
            let expected = 1.0 - f64::from(least) / 128.0;
            assert_mean(&short, expected, expected * (1.0 - expected));
        }
    }

    /// A job costs the same each time here (300 s at the mean rate), so that the share of each hour
    /// is that of the curve, and not of the model's bursts.
    #[test]
    fn hours_of_the_day_get_their_share() {
        for daily in [LublinStream::BATCH.daily, LublinStream::INTERACTIVE.daily] {
            let mut model = LublinModel::typeless(128);
            let stream = model.interactive.as_mut().unwrap();
            stream.daily = daily;
            stream.arrival_log = Gamma { shape: 1e6, scale: 300f64.ln() / 1e6 };
            stream.rush_to_all = 1.0;
            let jobs = jobs(&model, 2);
            let weights = daily_weights(daily).unwrap();
            assert_mean(&weights, 1.0, 1e-20);
            for hour in 0..24u64 {
                let bucket = usize::try_from(hour).unwrap() * 2;
                let expected = (weights[bucket] + weights[bucket + 1]) / 48.0;
                let is_then =
                    |job: &Job| job.submit_ns.unwrap() / NS_PER_SECOND / 3_600 % 24 == hour;
                assert_from(share(&jobs, is_then), expected - 0.001, expected + 0.001);
            }
        }
    }

    #[test]
    fn jobs_fit_the_machine() {
        for machine in [1, 2, 3, 100, 1_000] {
            for model in [LublinModel::both(machine), LublinModel::typeless(machine)] {
                let jobs = Lublin::new(&model, 4).unwrap().take(5_000);
                let mut sizes = jobs.map(|job| job.allocated_processors.unwrap());
                assert!(sizes.all(|processors| (1..=machine).contains(&processors)), "{machine}");
            }
        }
    }

    #[test]
    fn estimates_leave_the_jobs_alone() {
        let plain = LublinModel::both(64);
        let mut guessed = LublinModel::both(64);
        guessed.estimates = Estimates::UpTo(3.0);
        for (plain, mut guessed) in jobs(&plain, 1).into_iter().zip(jobs(&guessed, 1)) {
            let (run_ns, requested_ns) = (guessed.run_ns.unwrap(), guessed.requested_ns.unwrap());
            guessed.requested_ns = None;
            assert_eq!(plain, guessed);
            assert!((run_ns..=3 * run_ns + NS_PER_SECOND).contains(&requested_ns));
        }
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let refused = |change: fn(&mut LublinModel)| {
            let mut model = LublinModel::typeless(128);
            change(&mut model);
            Lublin::new(&model, 1).unwrap_err().to_string()
        };
        let shape = refused(|it| it.interactive.as_mut().unwrap().run_log.first.shape = f64::NAN);
        assert_eq!(shape, "the shape of a gamma is NaN; it must be from 0.001 to 1000000");
        let none = refused(|it| it.interactive = None);
        assert_eq!(none, "streams of jobs: there is none; give at least one");
        let zero = refused(|it| it.machine_processors = 0);
        assert_eq!(zero, "the machine's size is 0; it must be from 1 to 4294967295");
        let day = refused(|it| it.interactive.as_mut().unwrap().daily.scale = 1e4);
        assert!(day.contains("daily curve"), "{day}");
    }
}
