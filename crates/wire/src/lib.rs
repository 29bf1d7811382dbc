//! Bytes to values and back, and nothing else: every message between Tutti's own parts, and every
//! text format that comes from outside. Nothing in here does I/O, and every decoder is total: any
//! input gives a value or an error, within the limits of [`limits`].
//!
//! - [`frame`]: length-prefixed frames, and the greeting that opens every connection
//! - [`local`]: client and controller; [`tree`]: controller and agent, on the way of [`branch`];
//!   [`keeper`]: agent and keeper; [`attach`]: front end and keeper; [`join`]: how a machine gets into
//!   a cluster
//! - [`launch`]: what the tasks of a job are, as it travels from the front end to the keeper
//! - [`vacate`]: notices before the end of a slot, in text, for programs of users
//! - [`writer`]: what a keeper tells the process that writes files for several tasks
//! - [`pmix`]: what a keeper and a job's PMIx server tell each other
//! - [`pvm`]: what PVM's daemons and the resource manager of `tutti pvm` tell each other
//! - [`handover`]: what a keeper leaves to the program that takes its place
//! - [`history`]: jobs that have ended, page by page
//! - [`show`]: one job by its number
//! - [`code`]: the codes that errors carry
//! - [`report`]: the structs behind every table and every `--json`: what users rely on
//! - [`units`], [`parameter`], [`script`], [`pattern`], [`constraint`], [`pmi`]: lengths and sizes,
//!   job scripts, names of output files, features of nodes, the process management interface of MPI
//!   libraries
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod attach;
pub mod branch;
pub mod code;
pub mod constraint;
pub mod elf;
pub mod event;
pub mod frame;
pub mod handover;
pub mod history;
pub mod host_list;
pub mod join;
pub mod keeper;
pub mod launch;
pub mod limits;
pub mod local;
pub mod metrics;
pub mod notify;
pub mod origins;
pub mod output;
pub mod parameter;
pub mod pattern;
pub mod pmi;
pub mod pmix;
pub mod pvm;
pub mod report;
pub mod saver;
pub mod script;
pub mod show;
pub mod spawn;
pub mod tree;
pub mod units;
pub mod usage;
pub mod vacate;
pub mod writer;

pub use frame::{DecodeError, FrameBuffer, Hello, Role, TooLong};
