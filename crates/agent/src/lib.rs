//! The agent: carries out one node's timetable.
//!
//! Two threads. The main one talks with its neighbours in the control tree ([`tree`]) and with the
//! keeper ([`keeper`]), owns the jobs' cgroups ([`driver`]), answers what is asked
//! ([`node_queries`]) and follows which process descends from which ([`track`]); the other switches
//! and does nothing else ([`switch`]). A third one asks processes to vacate, if a job is submitted
//! so ([`vacate`]). What takes long is done by threads beside the loop ([`beside`], [`swap`]). They
//! meet over one channel: the switch thread shares no lock, so a descheduled main thread can't
//! delay a switch.
//!
//! The agent keeps nothing on disk. What runs, it learns from the keeper; what should run, from the
//! controller; what is suspended, from the cgroups themselves. So an agent that is killed and
//! started again goes on where it was.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod affinity;
mod beside;
mod client;
mod clock;
mod devices;
mod driver;
mod external_load;
mod hollow;
mod ipc;
mod job;
mod keeper;
mod lease;
mod load;
mod measuring;
mod node_queries;
mod orders;
mod output;
mod peer;
mod policy;
mod process_report;
mod processor_time;
mod released;
mod routes;
#[cfg(feature = "simulation")]
mod stepped;
mod steps;
mod subtree_control;
mod suspend;
mod swap;
mod switch;
mod system_clock;
mod track;
mod transport;
mod tree;
mod tunnels;
mod upgrade;
mod usage;
mod vacate;
mod waker;

pub use driver::{AgentOptions, main};
pub use hollow::ranks::{BARRIERS, Met, Passages, RANKS_PER_NODE};
pub use hollow::{Hollow, HollowAgents, HollowNode};
#[cfg(feature = "simulation")]
pub use stepped::Stepped;
