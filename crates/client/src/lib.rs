//! The front end: the process in front of the user that stands for the job.
//!
//! It asks the controller for the job, attaches to the keepers that hold its tasks, prints what
//! they print ([`sink`]), hands on what the user types ([`input`]), and passes on signals
//! ([`signals`]). It finds keepers on other nodes again when the way there was broken ([`keeper`]).
//! What tasks print in bulk it reads from their pipes itself ([`pipes`], [`splice`]). A viewer
//! ([`attach`]) sees the output of a job beside its front end. The writer of a submitted job
//! ([`writer`]) takes output in the same way ([`intake`]), without a user. A front end ends when
//! the controller says that nothing of the job is left and all output has been printed.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate tutti_node;

pub mod ask;
pub mod attach;
mod connect;
pub mod events;
mod exec;
mod input;
mod intake;
mod keeper;
pub mod keys;
pub mod metrics;
mod nodes;
pub mod noise;
mod notify;
mod open_mpi;
pub mod output;
mod panes;
pub mod patience;
mod pipes;
mod preflight;
mod request;
mod run;
pub mod scratch;
mod signals;
mod sink;
pub mod site_file;
pub mod slurm;
mod spawner;
mod splice;
mod submission;
pub mod switches;
mod task_ends;
mod terminal;
mod unenforced_limits;
mod void_options;
mod weights;
pub mod work;
mod writer;

pub use connect::{READY, RUNNING, Started, connect, connect_or_start, dial, start, start_daemon};
pub use exec::{ExecOptions, exec};
pub use input::parse_input;
pub use nodes::{list as node_list, parse_signal};
pub use open_mpi::{Suspect, pmix_library, serve as serve_open_mpi, words_of_command};
pub use preflight::{check_launch, output_file};
pub use request::{
    FAILURES, FILE_LETTERS, JobOptions, SCHEDULING, STDIO, count, duration, job_name, job_request,
    memory, outer_job, pattern_parser,
};
pub use run::{Inside, RunOptions, run};
pub use sink::{Label, OutputOptions};
pub use spawner::spawn;
pub use submission::{new_key, submit};
pub use task_ends::TellEnds;
pub use terminal::await_foreground;
pub use unenforced_limits::Asked;
pub use weights::weights;
pub use writer::write;
