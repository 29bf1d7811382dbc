//! The keeper: owns the tasks of its node. It starts them, holds their standard streams, serves
//! PMI to them, and reaps them; and it outlives the agent that told it to.
//!
//! One thread around one poller. Everything that can take long is left to the kernel or to the
//! tasks themselves: files are opened by the new processes, output waits in pipes while its front
//! end does not read, and nothing waits for a program to be executed, since it may be born frozen.
//! Whatever goes wrong concerns one job or one connection, is logged in a line, and leaves the
//! others alone.
//!
//! - [`driver`]: the loop; connections, orders of the agent, processes to be reaped
//! - [`job`]: a job and the life of its tasks; [`start`]: from a launch to processes
//! - [`front`]: output to, and input from, a job's front end; [`outlet`]: what waits to be written
//!   to it; [`stdio`]: the pipes
//! - [`helper`]: a process beside the tasks; [`writer`]: the one that writes files which several
//!   tasks share; [`pmix`]: the one that serves Open MPI
//! - [`environment`], [`script`], [`scratch`], [`pmi`], [`starters`]: what tasks find; [`adopt`]:
//!   tasks that ran before
//! - [`saver`]: tasks whose processes can be saved to an image
//! - [`lease_watch`]: until when tasks may run at all
//! - [`removal`]: of directories, by threads; [`leftovers`]: what a killed keeper has left
//! - [`watch`]: what a descriptor stands for; [`context`]: what jobs share; [`disk`]: the one thing
//!   that is asked of file systems
//!
//! Invariants (numbers of DESIGN section 3): a task is reported as ended only when nothing of it is
//! left (4); its pipes are read to their end before its front end hears of it (6); a front end that
//! stalls stops the reading of its own job's pipes and of no other's (6); what was reported is kept
//! until it is told to forget (5).
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is built with private items"
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod adopt;
mod context;
mod devices;
mod disk;
mod driver;
mod emptied;
mod environment;
#[cfg(test)]
mod fixture;
mod front;
mod helper;
mod job;
mod lease_watch;
mod leftovers;
mod outlet;
mod pmi;
mod pmix;
mod program;
mod removal;
mod saver;
mod scratch;
mod script;
mod spawner;
mod start;
mod starters;
mod stdio;
#[cfg(feature = "simulation")]
mod stepped;
mod terminal;
#[cfg(test)]
mod tests;
mod viewers;
mod watch;
mod writer;

pub use driver::{check, main, successor};
pub use environment::{SLURM_VARIABLES, VARIABLES};
pub use saver::{criu, serve as save};
use std::path::{Path, PathBuf};
#[cfg(feature = "simulation")]
pub use stepped::Stepped;
use tutti_node::shared_images::SharedImages;

/// What a keeper is told at its start.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// Where agents and front ends reach it.
    pub socket: PathBuf,
    /// Whose instance it is; root's serves every user.
    pub instance_uid: u32,
    /// Where scripts of jobs are put.
    pub spool: PathBuf,
    /// Where the images of jobs' processes are; it is made when there is one.
    pub images: PathBuf,
    /// The directory of images that other nodes share, if there is one.
    pub shared_images: Option<SharedImages>,
    /// How the names of directories for temporary files begin.
    pub scratch: PathBuf,
    /// The cgroup subtree of the instance, if it has one: groups of jobs that an earlier keeper
    /// left there are ended.
    pub cgroup_root: Option<PathBuf>,
    /// The file that says which jobs are released: see [`tutti_node::released`].
    pub released: PathBuf,
}

impl KeeperOptions {
    /// The state directory: that of the socket.
    fn directory(&self) -> &Path {
        self.socket.parent().unwrap_or_else(|| Path::new("/"))
    }
}
