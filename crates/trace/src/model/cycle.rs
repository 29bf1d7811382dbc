//! Arrivals that come more often at some hours than at others.
//!
//! A cycle (a day, a week) is cut into buckets of equal length, and each second of a bucket is
//! worth some points. A user that waits for a number of points waits long at night and short at
//! noon.

/// A place in a cycle that goes round for ever.
#[derive(Clone, Debug)]
pub(crate) struct Cycle {
    /// Points of each whole bucket.
    weights: Vec<f64>,
    bucket_s: f64,
    bucket: usize,
    /// What is left of the current bucket.
    left_s: f64,
}

impl Cycle {
    /// Begins at the first bucket. No weight is negative, and one at least is above 0.
    pub(crate) fn new(weights: Vec<f64>, bucket_s: f64) -> Cycle {
        let is_fit =
            weights.iter().all(|&weight| weight >= 0.0) && weights.iter().sum::<f64>() > 0.0;
        assert!(is_fit, "a cycle without points never ends");
        Cycle { weights, bucket_s, bucket: 0, left_s: bucket_s }
    }

    /// Goes on until so many points have passed; how many seconds that took.
    pub(crate) fn advance(&mut self, mut points: f64) -> f64 {
        let mut elapsed_s = 0.0;
        loop {
            let weight = self.weights[self.bucket];
            let available = weight * self.left_s / self.bucket_s;
            if points < available {
                let rest_s = points / weight * self.bucket_s;
                self.left_s -= rest_s;
                return elapsed_s + rest_s;
            }
            points -= available;
            elapsed_s += self.left_s;
            self.bucket = (self.bucket + 1) % self.weights.len();
            self.left_s = self.bucket_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_pass_as_fast_as_the_bucket_says() {
        let mut cycle = Cycle::new(vec![1.0, 0.0, 4.0], 10.0);
        assert_eq!(cycle.advance(0.5), 5.0);
        assert_eq!(cycle.advance(1.5), 5.0 + 10.0 + 2.5);
        assert_eq!(cycle.advance(3.0 + 5.0 + 0.5), 7.5 + 30.0 + 5.0);
    }
}
