//! Random numbers and the distributions that the models draw from.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    generator: Xoshiro256PlusPlus,
}

/// 2 to the power of -53: the distance of neighbouring numbers just below 1.
const UNIT: f64 = 1.0 / (1u64 << 53) as f64;

impl Random {
    /// Streams that do not overlap.
    pub(crate) fn streams<const COUNT: usize>(seed: u64) -> [Random; COUNT] {
        let mut streams = Self::endless(seed);
        std::array::from_fn(|_| streams.next().expect("it never ends"))
    }

    /// As many streams that do not overlap as are wanted.
    pub(crate) fn endless(seed: u64) -> impl Iterator<Item = Random> {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        std::iter::repeat_with(move || {
            let stream = Random { generator: generator.clone() };
            generator.jump();
            stream
        })
    }

    /// From 0 to 1, without 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.generator.next_u64() >> 11) as f64 * UNIT
    }

    /// From `least` to `most`, each as likely.
    pub(crate) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.uniform()
    }

    /// Below `count`, each whole number as likely (to one part in 2^32).
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        let product = (self.generator.next_u64() >> 32) * u64::from(count);
        u32::try_from(product >> 32).unwrap_or(0)
    }

    /// Exponential with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - u is never 0, whose logarithm is none.
        -mean * libm::log(1.0 - self.uniform())
    }

    /// From `least` to `most`, both above 0, its logarithm uniform. Mean
    /// (most - least) / ln(most / least).
    pub(crate) fn log_uniform(&mut self, least: f64, most: f64) -> f64 {
        libm::exp(self.between(libm::log(least), libm::log(most)))
    }

    /// Normal with mean 0 and variance 1, by the polar method of Marsaglia. The second number that
    /// it could give is dropped: what a draw takes must not depend on the draws before.
    fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (self.between(-1.0, 1.0), self.between(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }

    /// Gamma with mean `shape * scale` and variance `shape * scale * scale`, by the method of
    /// Marsaglia and Tsang (2000).
    pub(crate) fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        if shape < 1.0 {
            let power = libm::pow(1.0 - self.uniform(), 1.0 / shape);
            return power * self.gamma(shape + 1.0, scale);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            let u = 1.0 - self.uniform();
            if libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v * scale;
            }
        }
    }

    /// One of these, each as likely as its weight says. None if there is no weight.
    pub(crate) fn choose<T: Copy>(
        &mut self,
        choices: impl Iterator<Item = (T, u32)> + Clone,
    ) -> Option<T> {
        let total: u32 = choices.clone().map(|(_, weight)| weight).sum();
        let mut left = self.below(total);
        for (choice, weight) in choices {
            if left < weight {
                return Some(choice);
            }
            left -= weight;
        }
        None
    }
}

/// Fails unless the mean of the numbers is within four standard errors of `mean`, which one seed in
/// 16,000 would miss by chance.
#[cfg(test)]
pub(crate) fn assert_mean(numbers: &[f64], mean: f64, variance: f64) {
    let count = numbers.len() as f64;
    let found = numbers.iter().sum::<f64>() / count;
    let margin = 4.0 * (variance / count).sqrt();
    assert!((found - mean).abs() <= margin, "mean {found}, expected {mean} +- {margin}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 100_000;

    fn draw(mut of: impl FnMut(&mut Random) -> f64) -> Vec<f64> {
        let [mut random] = Random::streams(1);
        (0..COUNT).map(|_| of(&mut random)).collect()
    }

    /// Checks mean and variance; the latter by the mean of the squared distances, whose own
    /// variance follows from the fourth moment about the mean.
    fn check(numbers: &[f64], mean: f64, variance: f64, fourth_moment: f64) {
        assert_mean(numbers, mean, variance);
        let squares: Vec<f64> = numbers.iter().map(|it| (it - mean).powi(2)).collect();
        assert_mean(&squares, variance, fourth_moment - variance * variance);
    }

    #[test]
    fn moments_of_the_uniform() {
        let numbers = draw(|random| random.between(3.0, 5.0));
        check(&numbers, 4.0, 4.0 / 12.0, 16.0 / 80.0);
        assert!(numbers.iter().all(|number| (3.0..5.0).contains(number)));
    }

    #[test]
    fn moments_of_the_exponential() {
        check(&draw(|random| random.exponential(7.0)), 7.0, 49.0, 9.0 * 2401.0);
    }

    #[test]
    fn moments_of_the_normal() {
        check(&draw(Random::normal), 0.0, 1.0, 3.0);
    }

    #[test]
    fn moments_of_the_gamma() {
        for (shape, scale) in [(0.3, 2.0), (1.0, 5.0), (4.2, 0.94), (639.1, 0.0156)] {
            let variance = shape * scale * scale;
            let fourth = 3.0 * variance * variance * (1.0 + 2.0 / shape);
            check(&draw(|random| random.gamma(shape, scale)), shape * scale, variance, fourth);
        }
    }

    #[test]
    fn moments_of_the_log_uniform() {
        let (least, most): (f64, f64) = (10.0, 3600.0);
        let width = (most / least).ln();
        let mean = (most - least) / width;
        let square = (most * most - least * least) / (2.0 * width);
        let numbers = draw(|random| random.log_uniform(least, most));
        assert_mean(&numbers, mean, square - mean * mean);
    }

    #[test]
    fn choices_come_as_often_as_their_weights_say() {
        let weights = [("a", 1), ("b", 0), ("c", 3)];
        let [mut random] = Random::streams(5);
        let mut count = |wanted| {
            let chosen = (0..COUNT).filter_map(|_| random.choose(weights.into_iter()));
            chosen.map(|it| f64::from(u8::from(it == wanted))).collect::<Vec<f64>>()
        };
        assert_mean(&count("a"), 0.25, 0.25 * 0.75);
        assert_mean(&count("b"), 0.0, 0.0);
        assert_mean(&count("c"), 0.75, 0.25 * 0.75);
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let [mut first, mut second] = Random::streams(1);
        let [mut again] = Random::streams(1);
        let number = first.uniform();
        assert!(number != second.uniform());
        assert_eq!(number.to_bits(), again.uniform().to_bits());
        // Of the reference implementation, its state filled by SplitMix64 from 1.
        assert_eq!(Random::streams::<1>(1)[0].generator.next_u64(), 0xcfc5_d07f_6f03_c29b);
    }
}
