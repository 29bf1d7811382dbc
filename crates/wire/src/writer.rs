//! What a keeper tells the writer that it starts.
//!
//! A writer is a process of the job's user. It writes the files that several tasks of a job share:
//! it attaches to the keepers of the job as a front end does ([`crate::attach`]), and writes whole
//! lines. Its first descriptor above the standard streams is a connection with its keeper. On it
//! comes one [`WriterOrder`], without a greeting: both ends are of one build. Then the connection
//! is that of a front end.

use crate::launch::Credentials;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, NodeId};

/// The number of the descriptor at which a writer finds its keeper.
pub const WRITER_FD: i32 = 3;

/// What to write for which task. Paths are from the root, with all letters filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterOrder {
    /// Which job.
    pub job: JobId,
    /// How many tasks it has.
    pub size: u32,
    /// The file for standard output; `None`: the tasks write theirs themselves.
    pub output: Option<ByteBuf>,
    /// The file for standard error, likewise; also `None` if it goes with standard output.
    pub error: Option<ByteBuf>,
    /// Which user the process is to become; `None`: it is the job's already.
    pub identity: Option<Credentials>,
    /// Whether files that exist are emptied.
    pub truncates: bool,
    /// Device files of the node that the job can't open: nor can its writer, which is not in the
    /// job's group.
    pub closed: Vec<String>,
    /// The other nodes whose output belongs into these files.
    pub nodes: Vec<NodeId>,
    /// Why nothing is written any more, since the writer before this one was killed: this one only
    /// tells those nodes. `None`: it writes.
    pub gives_up: Option<String>,
}
