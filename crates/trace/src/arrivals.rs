//! Load, changed by the only knob that leaves the jobs alone: the time between their arrivals.
//!
//! The first job stays where it is, and each other one comes at a fixed multiple of its distance
//! from the first. In whole numbers, so that nothing drifts over a long log. Think times stay.

use crate::clean::CleanJob;
use crate::job::Job;

/// By how much the times between arrivals are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    numerator: u64,
    denominator: u64,
}

/// A stretch that is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no factor for times between arrivals; it must be above 0 and at most {MOST}")]
pub struct StretchError(f64);

const PER_UNIT: f64 = 1e9;
const MOST: u32 = 1_000_000;

impl Stretch {
    /// All times between arrivals times `factor`, which is kept to nine digits behind the point.
    ///
    /// # Errors
    /// If the factor is not above 0, or above a million.
    pub fn by(factor: f64) -> Result<Stretch, StretchError> {
        let billionths = factor * PER_UNIT;
        if !(billionths >= 1.0 && factor <= f64::from(MOST)) {
            return Err(StretchError(factor));
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 1e15, and cut off on purpose")]
        #[expect(clippy::cast_sign_loss, reason = "at least 1")]
        let numerator = billionths as u64;
        Ok(Stretch { numerator, denominator: 1_000_000_000 })
    }

    /// What makes a load of `wanted` out of one of `offered`. (Right as far as the load comes from
    /// the jobs: the last one's run time counts, however far away it is moved.)
    ///
    /// # Errors
    /// If one of them is not above 0, or they are too far apart.
    pub fn to_load(offered: f64, wanted: f64) -> Result<Stretch, StretchError> {
        Stretch::by(offered / wanted)
    }

    fn of(self, first_ns: u64, submit_ns: u64) -> u64 {
        let stretched = |distance_ns: u64| {
            let product = u128::from(distance_ns) * u128::from(self.numerator);
            u64::try_from(product / u128::from(self.denominator)).unwrap_or(u64::MAX)
        };
        if submit_ns >= first_ns {
            first_ns.saturating_add(stretched(submit_ns - first_ns))
        } else {
            first_ns.saturating_sub(stretched(first_ns - submit_ns))
        }
    }
}

/// What has a submit time.
pub trait Arrival {
    /// When it is submitted, in ns.
    fn submit_ns(&self) -> Option<u64>;
    /// Moves it there. Only called for what has a submit time.
    fn move_to(&mut self, submit_ns: u64);
}

impl Arrival for Job {
    fn submit_ns(&self) -> Option<u64> {
        self.submit_ns
    }

    fn move_to(&mut self, submit_ns: u64) {
        self.submit_ns = Some(submit_ns);
    }
}

impl Arrival for CleanJob {
    fn submit_ns(&self) -> Option<u64> {
        Some(CleanJob::submit_ns(self))
    }

    fn move_to(&mut self, submit_ns: u64) {
        self.set_submit_ns(submit_ns);
    }
}

impl<A: Arrival, E> Arrival for Result<A, E> {
    fn submit_ns(&self) -> Option<u64> {
        self.as_ref().ok().and_then(Arrival::submit_ns)
    }

    fn move_to(&mut self, submit_ns: u64) {
        if let Ok(arrival) = self {
            arrival.move_to(submit_ns);
        }
    }
}

/// Jobs whose times between arrivals are stretched.
pub struct Stretched<I> {
    jobs: I,
    stretch: Stretch,
    first_ns: Option<u64>,
}

impl<I> Stretched<I> {
    /// Stretches the arrivals of `jobs`: of a reader, of the filter, or of a model.
    pub fn new(jobs: I, stretch: Stretch) -> Self {
        Stretched { jobs, stretch, first_ns: None }
    }
}

impl<I: Iterator<Item: Arrival>> Iterator for Stretched<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<Self::Item> {
        let mut job = self.jobs.next()?;
        if let Some(submit_ns) = job.submit_ns() {
            let first_ns = *self.first_ns.get_or_insert(submit_ns);
            job.move_to(self.stretch.of(first_ns, submit_ns));
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submits(stretch: Stretch, submits_s: &[u64]) -> Vec<u64> {
        let job = |&submit_s| Job { submit_ns: Some(submit_s), ..Job::default() };
        let jobs = Stretched::new(submits_s.iter().map(job), stretch);
        jobs.filter_map(|job| job.submit_ns).collect()
    }

    #[test]
    fn distances_from_the_first_job_are_multiplied() {
        let half = Stretch::by(0.5).unwrap();
        assert_eq!(submits(half, &[100, 101, 110, 100, 90]), [100, 100, 105, 100, 95]);
        let threefold = Stretch::to_load(0.9, 0.3).unwrap();
        assert_eq!(submits(threefold, &[7, 8, 1_000_007]), [7, 10, 3_000_007]);
        let most = Stretch::by(1e6).unwrap();
        assert_eq!(submits(most, &[1, u64::MAX, 0]), [1, u64::MAX, 0]);
    }

    #[test]
    fn factors_that_make_no_sense_are_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-10, 1e7] {
            assert!(Stretch::by(factor).is_err(), "{factor}");
        }
        assert_eq!(
            Stretch::by(0.0).unwrap_err().to_string(),
            "0 is no factor for times between arrivals; it must be above 0 and at most 1000000"
        );
    }
}
