//! What every process of an instance shares, whatever its role: daemons, supervisor and verbs.
//!
//! - [`platform`]: the kernel as the daemons use it. With the feature `simulation` a thread may be
//!   at a simulated machine instead ([`simulated`]): time, groups, processes and connections are
//!   that machine's then.
//! - [`link`]: the poller, and connections that carry frames
//! - [`instance`]: the state directory and its sockets; [`pidlock`], [`presence`]: which daemons
//!   run there; [`state_dir`]: files and sockets there that another user may have put; [`order`]:
//!   an order to the supervisor
//! - [`membership`]: the cluster that this machine belongs to; [`shared_images`]: a directory of
//!   images that its nodes share
//! - [`service`]: the unit of systemd; [`capability`]: what this process can do for jobs
//! - [`log`]: of daemons; [`mod@say`]: messages of verbs; [`codes`], [`exit`]: the codes of errors,
//!   exit codes
//! - [`layout`]: the names of cgroups; [`limits`]: what a daemon may use; [`workers`]: threads for
//!   slow work; [`executable`], [`calendar`], [`begin_time`], [`signal_origin`]
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
// A closed standard error must not end a process: `say!` does not panic.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
pub mod say;

pub mod begin_time;
pub mod calendar;
pub mod capability;
pub mod codes;
pub mod executable;
pub mod exit;
pub mod helper_user;
pub mod instance;
pub mod layout;
pub mod limits;
pub mod link;
pub mod log;
pub mod membership;
pub mod order;
pub mod output_files;
pub mod pidlock;
pub mod platform;
pub mod presence;
pub mod released;
pub mod service;
pub mod shared_images;
pub mod signal_origin;
#[cfg(feature = "simulation")]
pub mod simulated;
pub mod state_dir;
pub mod timed;
pub mod workers;
