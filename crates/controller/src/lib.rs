//! The controller: the live driver of the core.
//!
//! It turns messages into [`tutti_core::Event`]s, hands them to the core with the time, and carries
//! out the actions that come back. It decides nothing itself. What the core need not know stays
//! here: programs and environments of jobs ([`jobs`], [`kept`]), who waits for an answer, how things are
//! called. [`driver`] is the loop; [`history`] tells of jobs that have ended; [`clients`] speaks with users' verbs, [`agents`] with agents;
//! [`report`] makes what tables and `--json` show; [`offline`] answers while no controller runs.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod adopt;
mod agents;
mod ahead;
mod bank;
mod clients;
mod driver;
mod exchange;
mod failures;
mod forecasts;
mod forgetting;
mod history;
mod jobs;
mod kept;
mod leases;
mod memory;
mod nested;
mod nodes;
mod offline;
mod orders;
mod problem;
mod questions;
mod removal;
mod report;
mod resources;
mod settings;
mod show;
mod site;
#[cfg(feature = "simulation")]
mod stepped;
mod submitted;
mod upgrade;
mod vouched;
mod waits;
mod weight;

pub use ahead::Former;
pub use driver::{ControllerOptions, main};
pub use offline::answer as answer_offline;
#[cfg(feature = "simulation")]
pub use stepped::Stepped;
