//! Models of workloads, as they are described on the command line: `poisson:load=0.8,mean=1h`.

use anyhow::{bail, ensure};
use std::str::FromStr;
use tutti_trace::model::{
    Estimates, Lublin, LublinModel, Poisson, PoissonModel, Service, Sizes, Staff, T3dMix, T3dUsers,
    t3d_benchmark,
};
use tutti_trace::{Header, Job};
use tutti_types::Nanos;
use tutti_wire::units::{parse_count, parse_duration};

/// A model with its parameters, before it is known for which machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Model {
    /// `processors`: those of the machine that the jobs are made for, if it is another one than is
    /// simulated.
    Lublin {
        types: Types,
        estimates: Estimates,
        processors: Option<u32>,
    },
    Poisson {
        arrivals: Arrivals,
        service: Service,
        sizes: Option<Sizes>,
        estimates: Estimates,
    },
    T3d,
    T3dUsers(Staff),
    T3dBenchmark,
}

/// Which streams of jobs the model of Lublin and Feitelson has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Types {
    Both,
    None,
    Batch,
    Interactive,
}

/// How often jobs arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    /// So that they offer this load.
    Load(f64),
    /// With this mean time between them, in seconds.
    Mean(f64),
}

/// Jobs of a model.
pub(super) type Jobs = Box<dyn Iterator<Item = Job> + Send>;

impl Model {
    /// The processors of the machine that it is for, unless told otherwise.
    pub(super) const fn processors(&self) -> u32 {
        match self {
            Self::Lublin { processors, .. } => match processors {
                Some(processors) => *processors,
                None => 128,
            },
            Self::Poisson { .. } => 128,
            Self::T3d | Self::T3dUsers(_) | Self::T3dBenchmark => T3dMix::PROCESSORS,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Lublin { .. } => "lublin",
            Self::Poisson { .. } => "poisson",
            Self::T3d => "t3d",
            Self::T3dUsers(_) => "t3d-users",
            Self::T3dBenchmark => "t3d-benchmark",
        }
    }

    /// Its jobs: without end, but for the benchmark.
    ///
    /// # Errors
    /// If its parameters make no sense on such a machine.
    pub(super) fn jobs(&self, processors: u32, seed: u64) -> anyhow::Result<(Header, Jobs)> {
        Ok(match self {
            Self::Lublin { types, estimates, processors: made_for } => {
                let processors = made_for.unwrap_or(processors);
                let mut model = match types {
                    Types::None => LublinModel::typeless(processors),
                    Types::Both | Types::Batch | Types::Interactive => {
                        LublinModel::both(processors)
                    }
                };
                match types {
                    Types::Batch => model.interactive = None,
                    Types::Interactive => model.batch = None,
                    Types::Both | Types::None => {}
                }
                model.estimates = *estimates;
                let jobs = Lublin::new(&model, seed)?;
                (jobs.header(), Box::new(jobs))
            }
            Self::Poisson { arrivals, service, sizes, estimates } => {
                let model = PoissonModel {
                    machine_processors: processors,
                    arrival_mean_s: 1.0,
                    service: *service,
                    sizes: sizes.clone().unwrap_or(Sizes::PowersOfTwo { most: processors }),
                    estimates: *estimates,
                };
                let model = match *arrivals {
                    Arrivals::Load(load) => model.with_load(load),
                    Arrivals::Mean(arrival_mean_s) => PoissonModel { arrival_mean_s, ..model },
                };
                let jobs = Poisson::new(model, seed)?;
                (jobs.header(), Box::new(jobs))
            }
            Self::T3d => {
                let jobs = T3dMix::new(seed);
                (of_t3d(processors, jobs.header())?, Box::new(jobs))
            }
            Self::T3dUsers(staff) => {
                let jobs = T3dUsers::new(*staff, seed);
                (of_t3d(processors, jobs.header())?, Box::new(jobs))
            }
            Self::T3dBenchmark => {
                let header = T3dMix::new(seed).header();
                (of_t3d(processors, header)?, Box::new(t3d_benchmark().into_iter()))
            }
        })
    }
}

/// Fails if the machine is smaller than theirs.
fn of_t3d(processors: u32, header: Header) -> anyhow::Result<Header> {
    ensure!(
        processors >= T3dMix::PROCESSORS,
        "the T3D's jobs have up to {} processors, and the machine has {processors}; leave out --nodes \
         and --processors-per-node",
        T3dMix::PROCESSORS
    );
    Ok(header)
}

impl FromStr for Model {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut settings = Vec::new();
        for setting in rest.split(',').filter(|setting| !setting.is_empty()) {
            let Some(pair) = setting.split_once('=') else {
                bail!("{setting:?} of --generate sets nothing; write NAME=VALUE");
            };
            settings.push(pair);
        }
        match name {
            "lublin" => lublin(&settings),
            "poisson" => poisson(&settings),
            "t3d" if settings.is_empty() => Ok(Self::T3d),
            "t3d-benchmark" if settings.is_empty() => Ok(Self::T3dBenchmark),
            "t3d" | "t3d-benchmark" => bail!("{name} has no parameters"),
            "t3d-users" => t3d_users(&settings),
            _ => bail!(
                "there is no model {name:?}; there are lublin, poisson, t3d, t3d-users, t3d-benchmark"
            ),
        }
    }
}

fn lublin(settings: &[(&str, &str)]) -> anyhow::Result<Model> {
    let (mut types, mut estimates, mut processors) = (Types::Both, Estimates::None, None);
    for &(name, value) in settings {
        match name {
            "types" => {
                types = match value {
                    "both" => Types::Both,
                    "none" => Types::None,
                    "batch" => Types::Batch,
                    "interactive" => Types::Interactive,
                    _ => bail!("types is {value:?}; it may be both, none, batch, interactive"),
                }
            }
            "estimates" => estimates = parse_estimates(value)?,
            "processors" => processors = Some(parse_count(value)?),
            _ => bail!("lublin has no parameter {name:?}; it has types, estimates, processors"),
        }
    }
    Ok(Model::Lublin { types, estimates, processors })
}

fn poisson(settings: &[(&str, &str)]) -> anyhow::Result<Model> {
    let mut arrivals = Arrivals::Load(0.7);
    let (mut service, mut mean_s, mut scv) = ("exponential", 600.0, 4.0);
    let (mut sizes, mut estimates) = (None, Estimates::Exact);
    for &(name, value) in settings {
        match name {
            "load" => arrivals = Arrivals::Load(number(name, value)?),
            "arrival" => arrivals = Arrivals::Mean(seconds(value)?),
            "service" => service = value,
            "mean" => mean_s = seconds(value)?,
            "scv" => scv = number(name, value)?,
            "size" => sizes = parse_sizes(value)?,
            "estimates" => estimates = parse_estimates(value)?,
            _ => bail!(
                "poisson has no parameter {name:?}; it has load, arrival, service, mean, scv, size, \
                 estimates"
            ),
        }
    }
    let service = match service {
        "constant" => Service::Constant { run_s: mean_s },
        "exponential" => Service::Exponential { mean_s },
        "hyper" => Service::HyperExponential { mean_s, scv },
        _ => bail!("service is {service:?}; it may be constant, exponential, hyper"),
    };
    Ok(Model::Poisson { arrivals, service, sizes, estimates })
}

fn t3d_users(settings: &[(&str, &str)]) -> anyhow::Result<Model> {
    let mut staff = Staff::default();
    for &(name, value) in settings {
        match name {
            "interactive" => staff.interactive = people(name, value)?,
            "production" => staff.production = people(name, value)?,
            "benchmark" => staff.benchmark = people(name, value)?,
            "standby" => staff.standby = people(name, value)?,
            "think" => {
                let Nanos(ns) = parse_duration(value)?;
                staff.think_s = u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX);
            }
            _ => bail!(
                "t3d-users has no parameter {name:?}; it has interactive, production, benchmark, \
                 standby, think"
            ),
        }
    }
    Ok(Model::T3dUsers(staff))
}

fn people(name: &str, value: &str) -> anyhow::Result<u32> {
    match value.parse() {
        Ok(count) if count <= Staff::MOST => Ok(count),
        _ => bail!("{name} is {value:?}; it must be a number of people, at most {}", Staff::MOST),
    }
}

fn parse_estimates(value: &str) -> anyhow::Result<Estimates> {
    Ok(match value {
        "none" => Estimates::None,
        "exact" => Estimates::Exact,
        _ => Estimates::UpTo(number("estimates", value)?),
    })
}

/// `powers`, one number, or a range. `None`: powers of two, up to the machine.
fn parse_sizes(value: &str) -> anyhow::Result<Option<Sizes>> {
    if value == "powers" {
        return Ok(None);
    }
    Ok(Some(match value.split_once('-') {
        None => Sizes::Fixed(parse_count(value)?),
        Some((least, most)) => {
            Sizes::Uniform { least: parse_count(least)?, most: parse_count(most)? }
        }
    }))
}

fn number(name: &str, value: &str) -> anyhow::Result<f64> {
    match value.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => bail!("{name} is {value:?}; it must be a number above 0"),
    }
}

fn seconds(value: &str) -> anyhow::Result<f64> {
    let Nanos(ns) = parse_duration(value)?;
    Ok(ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Estimates, Model, Service, Sizes, Staff, Types};

    fn parsed(text: &str) -> Result<Model, String> {
        text.parse::<Model>().map_err(|error| error.to_string())
    }

    #[test]
    fn models_have_defaults_and_parameters() {
        let estimates = Estimates::None;
        let processors = None;
        assert_eq!(
            parsed("lublin"),
            Ok(Model::Lublin { types: Types::Both, estimates, processors })
        );
        let estimates = Estimates::UpTo(3.0);
        assert_eq!(
            parsed("lublin:types=batch,estimates=3,processors=256"),
            Ok(Model::Lublin { types: Types::Batch, estimates, processors: Some(256) })
        );
        assert_eq!(parsed("t3d"), Ok(Model::T3d));
        let staff = Staff { standby: 0, ..Staff::default() };
        assert_eq!(parsed("t3d-users:standby=0"), Ok(Model::T3dUsers(staff)));
        assert_eq!(
            parsed("poisson:arrival=2m,service=hyper,mean=1h,scv=9,size=2-8,estimates=none"),
            Ok(Model::Poisson {
                arrivals: Arrivals::Mean(120.0),
                service: Service::HyperExponential { mean_s: 3600.0, scv: 9.0 },
                sizes: Some(Sizes::Uniform { least: 2, most: 8 }),
                estimates: Estimates::None,
            })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            (
                "lublim",
                "there is no model \"lublim\"; there are lublin, poisson, t3d, t3d-users, t3d-benchmark",
            ),
            ("t3d:x=1", "t3d has no parameters"),
            (
                "t3d-users:standby=x",
                "standby is \"x\"; it must be a number of people, at most 10000",
            ),
            ("lublin:types", "\"types\" of --generate sets nothing; write NAME=VALUE"),
            (
                "lublin:size=3",
                "lublin has no parameter \"size\"; it has types, estimates, processors",
            ),
            ("poisson:load=-1", "load is \"-1\"; it must be a number above 0"),
        ] {
            assert_eq!(parsed(text), Err(said.to_owned()));
        }
        assert!(parsed("poisson:size=8-2").is_ok_and(|model| model.jobs(8, 1).is_err()));
        assert!(parsed("t3d").is_ok_and(|model| model.jobs(128, 1).is_err()));
    }
}
