//! Messages between a front end and the keeper that holds its job's tasks.
//!
//! The keeper stops reading from tasks while its front end does not read, so a stalled reader holds
//! up its own job and no other.

use alloc::string::String;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_core::{JobId, Rank, TaskStatus};

/// What a front end tells a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromFrontEnd {
    /// The first message: which job's output is wanted. Only its owner may have it.
    Attach {
        /// Which job.
        job: JobId,
    },
    /// Input for one rank, or for all that get input.
    Input {
        /// For whom; `None`: all.
        rank: Option<Rank>,
        /// The bytes; empty: the end of input.
        data: ByteBuf,
    },
}

/// One of a task's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// What a keeper tells a front end.
pub type ToFrontEnd = ToFrontEndWith<ByteBuf>;

/// What a keeper tells a front end, with output of type `D`: owned, or borrowed (`&Bytes`) by a reader
/// that takes in bulk and need not keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToFrontEndWith<D> {
    /// Output follows.
    Attached,
    /// No output for you, and why.
    Refused {
        /// Why.
        reason: String,
    },
    /// A piece of a task's output.
    Output {
        /// Whose.
        rank: Rank,
        /// Which stream.
        stream: Stream,
        /// The bytes; empty: the end of the stream.
        data: D,
    },
    /// A task has ended; all of its output was sent before.
    TaskEnded {
        /// Which one.
        rank: Rank,
        /// How.
        status: TaskStatus,
        /// What a reader should know beyond the status.
        detail: String,
    },
    /// Every task of this node has ended and all output was sent.
    Finished,
}
