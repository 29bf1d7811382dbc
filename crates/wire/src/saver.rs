//! What a keeper tells a saver, and what that says.
//!
//! A saver is the first process of a task whose processes can be saved to an image: it starts the
//! task's program, or restores its processes, in a PID namespace of its own. It gets its
//! [`SaverOrder`] from a file. On its connection with the keeper it says numbers, as a minder does:
//! the PID of the task's root, then its wait status, or one of those below. Each byte that it gets
//! asks it to save the processes: [`SAVE_AND_END`] or [`SAVE_AND_GO_ON`].

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::ids::JobId;

/// The number of the descriptor at which a saver finds its keeper.
pub const SAVER_FD: i32 = 3;

/// The number of the descriptor where it reports that the program can't be started.
pub const SAVER_REPORT_FD: i32 = 4;

/// The processes are saved and are ended. No PID and no wait status is as large.
pub const SAVED: i32 = 1 << 24;

/// The processes could not be restored. The file of [`WHY`] says why.
pub const NOT_RESTORED: i32 = SAVED + 1;

/// Asked to save the processes and end them, the saver could not: they go on. More follows.
pub const NOT_SAVED: i32 = SAVED + 2;

/// The processes are saved, and go on. More follows.
pub const SAVED_GOES_ON: i32 = SAVED + 3;

/// Asked to save the processes and let them go on, the saver could not: they go on. More follows.
pub const NOT_KEPT: i32 = SAVED + 4;

/// The program was not started. The file of [`WHY`] says why.
pub const NOT_STARTED: i32 = SAVED + 5;

/// The processes could not be saved and may be damaged by that, and there is an earlier image. They
/// are ended. The file of [`WHY`] says why.
pub const DAMAGED: i32 = SAVED + 6;

/// Asks a saver to save the processes and end them.
pub const SAVE_AND_END: u8 = 0;

/// Asks a saver to save the processes and let them go on.
pub const SAVE_AND_GO_ON: u8 = 1;

/// Below the directory of an order: the image.
pub const IMAGE: &str = "image";

/// Below the directory of an order: there if there is an image in a shared directory whose
/// processes went on.
pub const WENT_ON: &str = "went-on";

/// Below the directory of an order: the order.
pub const ORDER: &str = "order";

/// Below the directory of an order: why something has failed, in a line.
pub const WHY: &str = "why";

/// Where a standard stream goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaverStream {
    /// `/dev/null`.
    Null,
    /// The same open file as standard output.
    Output,
    /// A file.
    File {
        /// Its name.
        path: ByteBuf,
        /// As for `open(2)`.
        flags: i32,
    },
}

/// What to run, and as what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaverOrder {
    /// Which job.
    pub job: JobId,
    /// The arguments, the name of the program first.
    pub argv: Vec<ByteBuf>,
    /// `NAME=value`.
    pub environment: Vec<ByteBuf>,
    /// The files to execute, tried in order.
    pub candidates: Vec<ByteBuf>,
    /// The directory to start in.
    pub directory: ByteBuf,
    /// The file mode creation mask.
    pub umask: u32,
    /// The nice value.
    pub nice: i32,
    /// The kernel's number of the resource, soft, hard.
    pub rlimits: Vec<(i32, u64, u64)>,
    /// User, group, supplementary groups.
    pub identity: (u32, u32, Vec<u32>),
    /// The processors to run on; empty: those of the saver.
    pub processors: Vec<u32>,
    /// Standard input, output and error.
    pub streams: [SaverStream; 3],
    /// What is said on standard error if the program can't be executed.
    pub complaint: Option<ByteBuf>,
    /// The command that saves and restores.
    pub criu: ByteBuf,
    /// The directory of the job's images, if in one that nodes share; otherwise they are beside the
    /// order.
    pub shared: Option<ByteBuf>,
    /// The argument that is the file of the job's script, if it has one. No other node has that
    /// file, so it is copied where images are shared.
    pub script: Option<ByteBuf>,
    /// Whether processes are restored from the image instead.
    pub restores: bool,
}
