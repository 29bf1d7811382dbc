//! The names of policies, as parameters of the core.

use tutti_types::{ParamError, Params};

/// Policies that can be simulated, by name. A policy with turns may have another discipline than
/// first come first served, too: `gang:easy`.
pub const POLICIES: &[&str] = &[
    "gang",
    "space:fcfs",
    "space:easy",
    "space:sjbf",
    "space:conservative",
    "classes",
    "deadline",
    "dhc",
];

/// Sets the parameters that a policy stands for.
///
/// # Errors
/// If there is no policy of that name.
pub fn set_policy(params: &mut Params, name: &str) -> Result<(), ParamError> {
    params.choose("policy", name)
}
