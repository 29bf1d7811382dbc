//! Counts by reason, for what was left out or corrected on the way.

use std::collections::BTreeMap;

/// How often each reason applied. Iterates in the order of the reasons, without those that never
/// did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<R> {
    counts: BTreeMap<R, u64>,
}

impl<R: Ord + Copy> Tally<R> {
    /// Counts one more.
    pub fn add(&mut self, reason: R) {
        *self.counts.entry(reason).or_insert(0) += 1;
    }

    /// How often this reason applied.
    #[must_use]
    pub fn count(&self, reason: R) -> u64 {
        self.counts.get(&reason).copied().unwrap_or(0)
    }

    /// How often any reason applied.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Reasons that applied, each with how often.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        self.counts.iter().map(|(&reason, &count)| (reason, count))
    }
}

impl<R> Default for Tally<R> {
    fn default() -> Self {
        Tally { counts: BTreeMap::new() }
    }
}
