//! External load: what the node's processors are used for besides the cluster's jobs.
//!
//! - [`total`]: how many processors it takes, as a share of the node;
//! - [`per_cpu`]: which processors it takes, by number.

pub(super) mod per_cpu;
pub(super) mod total;
