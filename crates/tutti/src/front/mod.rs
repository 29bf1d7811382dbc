//! The front end: the process in front of the user that stands for the job.
//!
//! It asks the controller for the job, attaches to the keepers that hold its tasks, prints what they
//! print ([`output`]), hands on what the user types ([`input`]), and passes on signals ([`signals`]).
//! It finds keepers on other nodes again when the way there was broken ([`keeper`]). What tasks print
//! in bulk it reads from their pipes itself ([`pipes`], [`relay`]).
//! The writer of a submitted job ([`writer`]) takes output in the same way ([`intake`]), without a user.
//! A front end ends when the controller says that nothing of the job is left and all output has been printed.

mod foresight;
mod input;
mod intake;
mod keeper;
mod nodes;
mod open_mpi;
mod output;
mod pipes;
mod relay;
mod request;
mod run;
mod signals;
mod start;
mod submission;
mod unheld;
mod weights;
mod writer;

pub(crate) use foresight::{check_launch, output_file};
pub(crate) use input::parse_input;
pub(crate) use nodes::{list as node_list, parse_signal};
pub(crate) use open_mpi::Suspect;
pub(crate) use output::OutputOptions;
pub(crate) use request::{
    FILE_LETTERS, JobOptions, duration, job_name, job_request, pattern_parser,
};
pub(crate) use run::{RunOptions, run};
pub(crate) use start::{READY, RUNNING, Started, connect, connect_or_start, dial, start_daemon};
pub(crate) use submission::{new_key, submit};
pub(crate) use unheld::Asked;
pub(crate) use weights::weights;
pub(crate) use writer::write;
