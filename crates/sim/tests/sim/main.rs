//! Whole simulations, checked against what is known by other means.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod agree;
mod bounds;
mod closed_forms;
mod deadlines;
mod easy;
mod feedback;
mod figures;
mod fuzz;
mod hosts;
mod migration;
mod periods;
mod reference;
mod scenario;
mod site;
mod trace;
