//! Workloads from models: endless streams of jobs, each from a seed.
//!
//! The same seed gives the same jobs on every machine: random numbers come from a generator with a
//! published algorithm, logarithms and the like from `libm`, which is the same code everywhere, and
//! everything else is arithmetic that IEEE 754 fixes. What arrives when, what size it has and how
//! long it runs come from random streams of their own, so a change to one leaves the others alone.
//!
//! - [`Lublin`]: the model of Lublin and Feitelson, fitted to logs of batch machines
//! - [`Poisson`]: textbook queues, whose waiting times are known exactly
//! - [`T3dMix`]: a stand-in for the weeks of the Cray T3D at LLNL in 1996, with its job classes
//! - [`T3dUsers`]: its people, waiting for a result before they submit more
//! - [`t3d_benchmark()`]: a fixed set of jobs of theirs, as they timed schedulers with
//!
//! A model ends only when its times no longer fit into 64 bits of nanoseconds: use `take`.

mod cycle;
mod gamma;
mod lublin;
mod poisson;
mod random;
mod t3d;
mod t3d_benchmark;
mod t3d_users;

pub use lublin::{Gamma, HyperGamma, Lublin, LublinModel, LublinStream, TwoStageUniform};
pub use poisson::{Poisson, PoissonModel, Service, Sizes};
pub use t3d::{T3dClass, T3dMix};
pub use t3d_benchmark::{T3D_BENCHMARK_BATCH, t3d_benchmark};
pub use t3d_users::{Staff, T3dUsers};

use random::Random;

/// Why a model can't be run as described.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A number lies outside of what makes sense.
    #[error("{what} is {value}; it must be from {least} to {most}")]
    OutOfRange {
        /// What it is the number of.
        what: &'static str,
        /// The number.
        value: f64,
        /// The least that is possible.
        least: f64,
        /// The most.
        most: f64,
    },
    /// There is nothing to choose from.
    #[error("{what}: there is none; give at least one")]
    Nothing {
        /// What is missing.
        what: &'static str,
    },
}

/// What a model's users say their jobs will take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Estimates {
    /// Nothing.
    #[default]
    None,
    /// The run time, exactly.
    Exact,
    /// The run time times a factor between 1 and this one, each as likely.
    UpTo(f64),
}

impl Estimates {
    fn check(self) -> Result<(), ModelError> {
        match self {
            Estimates::None | Estimates::Exact => Ok(()),
            Estimates::UpTo(factor) => check("the factor of estimates", factor, 1.0, 1e6),
        }
    }

    fn of(self, run_ns: u64, random: &mut Random) -> Option<u64> {
        match self {
            Estimates::None => None,
            Estimates::Exact => Some(run_ns),
            Estimates::UpTo(factor) => {
                let run_s = run_ns as f64 / 1e9;
                Some(ns_of_seconds(run_s * random.between(1.0, factor)).max(run_ns))
            }
        }
    }
}

/// Fails unless the number is one, and from `least` to `most`.
fn check(what: &'static str, value: f64, least: f64, most: f64) -> Result<(), ModelError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(ModelError::OutOfRange { what, value, least, most })
}

/// Seconds as nanoseconds, cut off; what is negative becomes 0, what is too much the most.
#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
#[expect(clippy::cast_sign_loss, reason = "the conversion saturates")]
fn ns_of_seconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The whole part of a number of processors.
#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
#[expect(clippy::cast_sign_loss, reason = "the conversion saturates")]
fn whole_processors(count: f64) -> u32 {
    count as u32
}
