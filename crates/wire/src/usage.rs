//! What the processors of nodes were used for, interval by interval: `tutti history --usage`.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ClusterTime;

/// Bytes of standard input and output that passed the keeper. What tasks read from files or write
/// to them by themselves, and what a front end reads from a task by itself, is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedBytes {
    /// To tasks.
    pub input: u64,
    /// From tasks.
    pub output: u64,
}

impl CarriedBytes {
    /// Adds these.
    pub const fn add(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
    }

    /// What was carried since the earlier of two answers: all of it, by a keeper that began since.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        if self.input < before.input || self.output < before.output {
            return self;
        }
        Self { input: self.input - before.input, output: self.output - before.output }
    }
}

/// What an agent tells of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedProcessors {
    /// When the interval ended.
    pub until: ClusterTime,
    /// Thousandths of a processor that all processes had on average.
    pub busy_milli: u32,
    /// Thousandths of a processor that the cluster's jobs had of that; unknown without cgroups.
    pub jobs_milli: Option<u32>,
    /// Standard input and output that the keeper carried; unknown if it has not said it.
    pub carried: Option<CarriedBytes>,
}

/// What the processors of a node were used for in an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsage {
    /// The node.
    pub node: String,
    /// How many processors it had for tasks.
    pub processors: u32,
    /// Thousandths of a processor that all processes had on average.
    pub busy_milli: u32,
    /// Thousandths of a processor that the cluster's jobs had of that; unknown without cgroups.
    pub jobs_milli: Option<u32>,
    /// Standard input and output that the keeper carried; unknown if it has not said it.
    pub carried: Option<CarriedBytes>,
}

/// What the nodes were used for in one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSample {
    /// When the interval ended, in milliseconds since 1970.
    pub until_ms: u64,
    /// How long it was, in milliseconds.
    pub interval_ms: u64,
    /// The nodes that were up, by name.
    pub nodes: Vec<NodeUsage>,
}

/// Which intervals are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageQuery {
    /// Those that ended then or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Those that ended before, in milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// This node alone.
    pub node: Option<String>,
}
