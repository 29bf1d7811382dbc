//! Pieces of the output files of jobs, for readers that have another file system.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, Rank};

/// An output file of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// The job, which may have ended.
    pub job: JobId,
    /// A rank that writes to it.
    pub rank: Rank,
    /// Whether it is that of standard error.
    pub error: bool,
}

/// Where a piece of a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputFrom {
    /// Behind so many bytes; at the beginning, if the file is shorter.
    At(u64),
    /// At the last lines that are there, at most this number.
    LastLines(u64),
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPiece {
    /// How many bytes are before it.
    pub at: u64,
    /// The length of the file, in bytes.
    pub length: u64,
    /// The bytes, at most [`OUTPUT_PIECE_BYTES`](crate::limits::OUTPUT_PIECE_BYTES).
    pub data: ByteBuf,
}
