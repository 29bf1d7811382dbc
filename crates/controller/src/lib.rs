//! The controller: the live driver of the core.
//!
//! It turns messages into [`tutti_core::Event`]s, hands them to the core with the time, and carries
//! out the actions that come back. It decides nothing itself. What the core need not know stays
//! here: programs and environments of jobs ([`jobs`], [`launch_store`]), which client waits for an
//! answer, how things are called. [`driver`] is the loop; [`history`] tells of jobs that have
//! ended; [`requests`] speaks with users' verbs, [`agents`] with agents; [`report`] makes what
//! tables and `--json` show; [`offline`] answers while no controller runs.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod adopt;
mod agents;
mod arrays;
mod bank;
mod checkpoint;
mod clients;
mod devices;
mod driver;
mod durability;
mod end_acks;
mod error;
mod events;
mod exchange;
mod failures;
mod forecasts;
mod history;
mod host_names;
mod idempotency;
mod jobs;
mod launch_store;
mod leases;
mod measuring;
mod metrics;
mod nested;
mod node_queries;
mod nodes;
mod notify;
mod offline;
mod orders;
mod policy;
mod policy_parts;
mod remote_identity;
mod removal;
mod report;
mod requests;
mod resources;
mod respawn;
mod settings;
mod show;
mod site;
#[cfg(feature = "simulation")]
mod stepped;
mod steps;
mod time_base;
mod timed;
mod upgrade;
mod usage;
mod waits;
mod weight;

pub use driver::{ControllerOptions, main};
pub use offline::{answer as answer_offline, jobs_made};
pub use site::{OtherSetting, Site};
#[cfg(feature = "simulation")]
pub use stepped::Stepped;
pub use time_base::Former;
