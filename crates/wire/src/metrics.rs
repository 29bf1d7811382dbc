//! Figures for monitoring: what `tutti metrics` prints.

use crate::history::Ending;
use crate::usage::CarriedBytes;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Upper bounds of the times that jobs wait, in milliseconds.
pub const WAIT_BOUNDS_MS: [u64; 12] = [
    10,
    100,
    1_000,
    10_000,
    60_000,
    300_000,
    1_800_000,
    3_600_000,
    14_400_000,
    43_200_000,
    86_400_000,
    604_800_000,
];

/// Upper bounds of the times that launches take, in milliseconds.
pub const LAUNCH_BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000];

/// Upper bounds of the times that switches take, in nanoseconds.
pub const SWITCH_BOUNDS_NS: [u64; 12] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
];

/// Upper bounds of the times that jobs take to vacate, in nanoseconds.
pub const VACATE_BOUNDS_NS: [u64; 12] = [
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    20_000_000,
    100_000_000,
    500_000_000,
    2_000_000_000,
    10_000_000_000,
];

/// Counts of values up to each of twelve bounds, and above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How many values are above the bound before and not above this one; last, those above all.
    pub counts: [u64; 13],
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64, bounds: &[u64; 12]) {
        let at = bounds.partition_point(|bound| *bound < value);
        self.counts[at] = self.counts[at].saturating_add(1);
        self.sum = self.sum.saturating_add(value);
    }
}

/// How many jobs are of a class and in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsCount {
    /// The class.
    pub class: String,
    /// The state, as `tutti ps` has it.
    pub state: String,
    /// How many.
    pub count: u64,
}

/// What the controller counts. Totals are since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsReport {
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// Jobs that have not ended.
    pub jobs: Vec<JobsCount>,
    /// Jobs that were accepted.
    pub submitted: u64,
    /// Jobs that were launched; again after a node was lost.
    pub started: u64,
    /// Jobs that ended, by how.
    pub ended: Vec<(Ending, u64)>,
    /// How long they waited between acceptance and first start, in milliseconds.
    pub queue_wait: Histogram,
    /// How long it took from the decision to start a job until its first task had begun, in
    /// milliseconds.
    pub launch: Histogram,
    /// The time that turns gave jobs that have ended, by class, in milliseconds.
    pub service_ms: Vec<(String, u64)>,
    /// The part of the processors that jobs have in each row, in thousandths.
    pub rows_used_milli: Vec<u32>,
    /// The number of the latest event of the stream.
    pub events: u64,
    /// Standard input and output that nodes' keepers have carried, as told at the end of each
    /// interval of [`crate::usage`].
    pub carried: CarriedBytes,
    /// How much the journal takes on disk.
    pub journal_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::{Histogram, LAUNCH_BOUNDS_MS, SWITCH_BOUNDS_NS, VACATE_BOUNDS_NS, WAIT_BOUNDS_MS};

    #[test]
    fn a_value_counts_up_to_the_first_bound_that_is_not_below_it() {
        for bounds in [LAUNCH_BOUNDS_MS, SWITCH_BOUNDS_NS, VACATE_BOUNDS_NS, WAIT_BOUNDS_MS] {
            assert!(bounds.is_sorted());
        }
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 30_000, 30_001] {
            histogram.add(value, &LAUNCH_BOUNDS_MS);
        }
        assert_eq!(histogram.counts, [2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(histogram.sum, 60_007);
    }
}
