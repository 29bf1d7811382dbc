//! Textbook queues: Poisson arrivals, and a run time that depends on nothing. What a scheduler must
//! reach under them is known exactly.

use super::random::Random;
use super::{Estimates, ModelError, check, ns_of_seconds};
use crate::header::Header;
use crate::job::{Job, Status};

/// What to make jobs like.
#[derive(Clone, Debug, PartialEq)]
pub struct PoissonModel {
    /// Processors of the machine: no job has more.
    pub machine_processors: u32,
    /// Mean time between arrivals, in seconds.
    pub arrival_mean_s: f64,
    /// How long jobs run.
    pub service: Service,
    /// How many processors they need.
    pub sizes: Sizes,
    /// What users say they will take.
    pub estimates: Estimates,
}

/// How long jobs run. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// All as long.
    Constant {
        /// Its length.
        run_s: f64,
    },
    /// Exponential.
    Exponential {
        /// Its mean.
        mean_s: f64,
    },
    /// One of two exponentials that each carry half of the work: many short jobs, few long ones.
    HyperExponential {
        /// Its mean.
        mean_s: f64,
        /// Its squared coefficient of variation (variance / mean^2), at least 1.
        scv: f64,
    },
}

/// How many processors jobs need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All as many.
    Fixed(u32),
    /// Each number in a range as likely.
    Uniform {
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// 1, 2, 4, ... each as likely.
    PowersOfTwo {
        /// No job has more.
        most: u32,
    },
    /// A number of processors, and how likely it is beside the others.
    Weighted(Vec<(u32, u32)>),
}

const SECONDS_MIN: f64 = 1e-6;
const SECONDS_MAX: f64 = 1e9;
/// What the weights of sizes may add up to.
const WEIGHTS_MAX: u64 = 1 << 31;

impl Service {
    /// The mean run time, in seconds.
    #[must_use]
    pub fn mean_s(self) -> f64 {
        match self {
            Service::Constant { run_s } => run_s,
            Service::Exponential { mean_s } | Service::HyperExponential { mean_s, .. } => mean_s,
        }
    }

    fn check(self) -> Result<(), ModelError> {
        check("the mean run time in seconds", self.mean_s(), SECONDS_MIN, SECONDS_MAX)?;
        match self {
            Service::Constant { .. } | Service::Exponential { .. } => Ok(()),
            Service::HyperExponential { scv, .. } => {
                check("the squared coefficient of variation", scv, 1.0, 1e6)
            }
        }
    }

    fn draw_s(self, random: &mut Random) -> f64 {
        match self {
            Service::Constant { run_s } => run_s,
            Service::Exponential { mean_s } => random.exponential(mean_s),
            Service::HyperExponential { mean_s, scv } => {
                let short_share = (1.0 + libm::sqrt((scv - 1.0) / (scv + 1.0))) / 2.0;
                let is_short = random.uniform() < short_share;
                let share = if is_short { short_share } else { 1.0 - short_share };
                random.exponential(mean_s / (2.0 * share))
            }
        }
    }
}

impl Sizes {
    /// The mean number of processors.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(processors) => f64::from(*processors),
            Sizes::Uniform { least, most } => (f64::from(*least) + f64::from(*most)) / 2.0,
            Sizes::PowersOfTwo { most } => {
                let count = f64::from(most.max(&1).ilog2() + 1);
                (libm::exp2(count) - 1.0) / count
            }
            Sizes::Weighted(sizes) => {
                let (mut sum, mut weights) = (0.0, 0.0);
                for &(processors, weight) in sizes {
                    sum += f64::from(processors) * f64::from(weight);
                    weights += f64::from(weight);
                }
                sum / weights
            }
        }
    }

    fn check(&self, machine: u32) -> Result<(), ModelError> {
        let machine = f64::from(machine);
        let size = |processors: u32| check("the size of a job", processors.into(), 1.0, machine);
        match self {
            Sizes::Fixed(processors) => size(*processors),
            Sizes::PowersOfTwo { most } => size(*most),
            Sizes::Uniform { least, most } => {
                size(*least)?;
                check("the largest size of a job", (*most).into(), (*least).into(), machine)
            }
            Sizes::Weighted(sizes) => {
                let weights: u64 = sizes.iter().map(|&(_, weight)| u64::from(weight)).sum();
                if weights == 0 {
                    return Err(ModelError::Nothing { what: "sizes with a weight above 0" });
                }
                check("the sum of the sizes' weights", weights as f64, 1.0, WEIGHTS_MAX as f64)?;
                sizes.iter().try_for_each(|&(processors, _)| size(processors))
            }
        }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Sizes::Fixed(processors) => *processors,
            Sizes::Uniform { least, most } => {
                least + random.below((most - least).saturating_add(1))
            }
            Sizes::PowersOfTwo { most } => 1 << random.below(most.ilog2() + 1),
            Sizes::Weighted(sizes) => {
                random.choose(sizes.iter().copied()).expect("their sum was checked to be above 0")
            }
        }
    }
}

impl PoissonModel {
    /// What the jobs ask for as a share of the machine; a queue is stable below 1 only.
    #[must_use]
    pub fn offered_load(&self) -> f64 {
        let asked = self.service.mean_s() * self.sizes.mean();
        asked / (self.arrival_mean_s * f64::from(self.machine_processors))
    }

    /// The same jobs, arriving so often that they offer this load.
    #[must_use]
    pub fn with_load(mut self, load: f64) -> PoissonModel {
        self.arrival_mean_s *= self.offered_load() / load;
        self
    }
}

/// Jobs of the model, in the order of their submit times.
#[derive(Clone, Debug)]
pub struct Poisson {
    model: PoissonModel,
    seed: u64,
    jobs: u64,
    submit_ns: u64,
    arrivals: Random,
    sizes: Random,
    runs: Random,
    estimates: Random,
}

impl Poisson {
    /// Jobs like this; same seed, same jobs.
    ///
    /// # Errors
    /// If a parameter makes no sense, or a size exceeds the machine.
    pub fn new(model: PoissonModel, seed: u64) -> Result<Poisson, ModelError> {
        check("the machine's size", model.machine_processors.into(), 1.0, u32::MAX.into())?;
        let arrival_mean_s = model.arrival_mean_s;
        check(
            "the mean time between arrivals in seconds",
            arrival_mean_s,
            SECONDS_MIN,
            SECONDS_MAX,
        )?;
        model.service.check()?;
        model.sizes.check(model.machine_processors)?;
        model.estimates.check()?;
        let [arrivals, sizes, runs, estimates] = Random::streams(seed);
        Ok(Poisson { model, seed, jobs: 0, submit_ns: 0, arrivals, sizes, runs, estimates })
    }

    /// The head of a trace of these jobs.
    #[must_use]
    pub fn header(&self) -> Header {
        let machine = self.model.machine_processors.to_string();
        let note = format!("load {:.3}, seed {}", self.model.offered_load(), self.seed);
        Header::of(&[
            ("Version", "2.2"),
            ("Computer", "workload model with Poisson arrivals"),
            ("MaxNodes", &machine),
            ("MaxProcs", &machine),
            ("Note", &note),
        ])
    }
}

impl Iterator for Poisson {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let gap_ns = ns_of_seconds(self.arrivals.exponential(self.model.arrival_mean_s));
        self.submit_ns = self.submit_ns.checked_add(gap_ns)?;
        self.jobs += 1;
        let processors = self.model.sizes.draw(&mut self.sizes);
        let run_ns = ns_of_seconds(self.model.service.draw_s(&mut self.runs)).max(1);
        Some(Job {
            number: self.jobs,
            submit_ns: Some(self.submit_ns),
            run_ns: Some(run_ns),
            allocated_processors: Some(processors),
            requested_ns: self.model.estimates.of(run_ns, &mut self.estimates),
            status: Some(Status::Completed),
            ..Job::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::random::assert_mean;

    const COUNT: usize = 100_000;

    fn model(service: Service, sizes: Sizes) -> PoissonModel {
        PoissonModel {
            machine_processors: 64,
            arrival_mean_s: 10.0,
            service,
            sizes,
            estimates: Estimates::None,
        }
    }

    fn jobs(model: PoissonModel) -> Vec<Job> {
        Poisson::new(model, 7).unwrap().take(COUNT).collect()
    }

    fn runs_s(service: Service) -> Vec<f64> {
        let jobs = jobs(model(service, Sizes::Fixed(1)));
        jobs.iter().map(|job| job.run_ns.unwrap() as f64 / 1e9).collect()
    }

    fn sizes(sizes: Sizes) -> Vec<f64> {
        let jobs = jobs(model(Service::Constant { run_s: 1.0 }, sizes));
        jobs.iter().map(|job| f64::from(job.allocated_processors.unwrap())).collect()
    }

    #[test]
    fn arrivals_have_exponential_gaps() {
        let jobs = jobs(model(Service::Constant { run_s: 1.0 }, Sizes::Fixed(1)));
        let submits: Vec<f64> =
            jobs.iter().map(|job| job.submit_ns.unwrap() as f64 / 1e9).collect();
        let gaps: Vec<f64> = submits.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_mean(&gaps, 10.0, 100.0);
        let squares: Vec<f64> = gaps.iter().map(|gap| gap * gap).collect();
        assert_mean(&squares, 200.0, 24.0 * 1e4 - 200.0 * 200.0);
        // Of an exponential, 1/e is above the mean.
        let above: Vec<f64> = gaps.iter().map(|&gap| f64::from(u8::from(gap > 10.0))).collect();
        let share = (-1.0f64).exp();
        assert_mean(&above, share, share * (1.0 - share));
    }

    #[test]
    fn moments_of_the_run_times() {
        assert_mean(&runs_s(Service::Constant { run_s: 2.5 }), 2.5, 0.0);
        assert_mean(&runs_s(Service::Exponential { mean_s: 50.0 }), 50.0, 2_500.0);
        for scv in [1.0, 4.0, 20.0] {
            let runs = runs_s(Service::HyperExponential { mean_s: 50.0, scv });
            assert_mean(&runs, 50.0, scv * 2_500.0);
            let squares: Vec<f64> = runs.iter().map(|run| run * run).collect();
            let square = (scv + 1.0) * 2_500.0;
            // E[x^4] = 24 sum(p r^4), with r = 1/(2p) of the mean for either part.
            let p = (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt()) / 2.0;
            let fourth = 1.5 * 50f64.powi(4) * (p.powi(-3) + (1.0 - p).powi(-3));
            assert_mean(&squares, square, fourth - square * square);
        }
    }

    #[test]
    fn moments_of_the_sizes() {
        assert_mean(&sizes(Sizes::Fixed(64)), 64.0, 0.0);
        let uniform = Sizes::Uniform { least: 5, most: 12 };
        assert_eq!(uniform.mean(), 8.5);
        assert_mean(&sizes(uniform), 8.5, 63.0 / 12.0);
        let powers = Sizes::PowersOfTwo { most: 20 };
        assert_eq!(powers.mean(), 31.0 / 5.0);
        assert_mean(&sizes(powers), 6.2, 341.0 / 5.0 - 6.2 * 6.2);
        let weighted = Sizes::Weighted(vec![(1, 3), (33, 1)]);
        assert_eq!(weighted.mean(), 9.0);
        assert_mean(&sizes(weighted), 9.0, 0.75 * 64.0 + 0.25 * 576.0);
    }

    #[test]
    fn the_load_is_what_was_asked_for() {
        let service = Service::Exponential { mean_s: 100.0 };
        let model = model(service, Sizes::PowersOfTwo { most: 64 }).with_load(0.7);
        assert!((model.offered_load() - 0.7).abs() < 1e-12);
        let jobs = jobs(model);
        let work =
            |job: &Job| job.run_ns.unwrap() as f64 * f64::from(job.allocated_processors.unwrap());
        let sum: f64 = jobs.iter().map(work).sum();
        let found = sum / (64.0 * jobs[COUNT - 1].submit_ns.unwrap() as f64);
        assert!((found - 0.7).abs() < 0.02, "{found}");
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let constant = Service::Constant { run_s: 1.0 };
        let refused =
            |service, sizes| Poisson::new(model(service, sizes), 1).unwrap_err().to_string();
        assert_eq!(
            refused(constant, Sizes::Fixed(65)),
            "the size of a job is 65; it must be from 1 to 64"
        );
        assert_eq!(
            refused(Service::HyperExponential { mean_s: 1.0, scv: 0.5 }, Sizes::Fixed(1)),
            "the squared coefficient of variation is 0.5; it must be from 1 to 1000000"
        );
        assert!(
            refused(Service::Exponential { mean_s: 0.0 }, Sizes::Fixed(1)).contains("run time")
        );
        assert!(refused(constant, Sizes::Weighted(vec![(1, 0)])).contains("weight"));
        assert!(refused(constant, Sizes::Uniform { least: 9, most: 8 }).contains("largest"));
        assert!(refused(constant, Sizes::PowersOfTwo { most: 0 }).contains("size"));
    }
}
