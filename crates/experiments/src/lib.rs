//! What would be, without running it: the verbs `sim` (a workload under a scheduler) and `replay`
//! (what a controller recorded, under the same settings or others).
//!
//! They stand beside the executable, since they need the simulator and no daemon. A change in
//! another verb does not build them again.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate tutti_node;

mod replay;
mod setting_word;
mod sim;
mod timed;
mod turns;

pub use replay::{ReplayArgs, execute as execute_replay};
pub use sim::{SimArgs, execute as execute_sim};
