//! Messages between a front end and the keeper that holds its job's tasks.
//!
//! The keeper stops reading from tasks while its front end does not read, so a stalled reader holds
//! up its own job and no other.
//!
//! The way to a front end on another node may break, and be there again a little later. So a keeper
//! keeps what it has sent there last, and such a front end what it has sent to the keeper: when it
//! attaches again, each says how far it has got, and goes on from there.
//!
//! Output in bulk need not pass the keeper: a front end on the same node may ask for the pipe that
//! a task writes to, and read it itself from then on.

use alloc::string::String;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, Rank, StepKey, TaskStatus};

/// What a front end tells a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromFrontEnd {
    /// The first message: which step's output is wanted. Only its owner may have it.
    Attach {
        /// Which step.
        key: StepKey,
        /// On another node: how many bytes of frames behind [`ToFrontEndWith::Attached`] it has
        /// taken in already, over all its connections; none at first. `None`: it is on the same
        /// node, where no way breaks.
        received: Option<u64>,
        /// The size of the terminal that rank 0 is to have, if it is to have one.
        terminal: Option<TerminalSize>,
    },
    /// Input for one rank, or for all that get input.
    Input {
        /// The rank that gets it; `None`: all.
        rank: Option<Rank>,
        /// The bytes; empty: the end of input.
        data: ByteBuf,
    },
    /// The front end would rather read this stream itself. Answered with [`ToFrontEndWith::Pipe`],
    /// or not at all if that can't be.
    WantPipe {
        /// Whose.
        rank: Rank,
        /// Which stream.
        stream: Stream,
    },
    /// The pipe has come: what is in it, and will be, is the front end's.
    PipeTaken {
        /// Whose.
        rank: Rank,
        /// Which stream.
        stream: Stream,
    },
    /// The pipe has not come, for want of a descriptor: the keeper must go on reading it.
    PipeLost {
        /// Whose.
        rank: Rank,
        /// Which stream.
        stream: Stream,
    },
    /// From another node: [`ToFrontEndWith::Finished`] has come, so nothing need be kept any more.
    Done,
    /// From a writer, instead of `Attach` or after it: the files can't be written, or not any more.
    /// Tasks that have not begun don't begin; those that run find their output closed.
    GiveUp {
        /// Which job.
        job: JobId,
        /// Why.
        reason: String,
    },
    /// From a writer whose job was killed: it has written something since the last such message.
    Progress,
    /// From a writer: some output of other nodes did not arrive, and is not in the files.
    OutputLost {
        /// What, and why.
        what: String,
    },
    /// From a viewer, instead of `Attach`: it wants to see the job's output from now on, beside the
    /// front end. It may send `Input`. Like `Attach`, it may come before the launch of the job.
    Watch {
        /// Which job.
        job: JobId,
    },
    /// The terminal of rank 0 has another size from now on.
    Resize {
        /// Its size.
        size: TerminalSize,
    },
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Its lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
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

/// What a keeper tells a front end, with output of type `D`: owned, or borrowed (`&Bytes`) by a
/// reader that takes in bulk and need not keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToFrontEndWith<D> {
    /// Output follows.
    Attached {
        /// How many messages of this front end behind its first the keeper has taken in, over all
        /// its connections.
        heard: u64,
    },
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
    /// A task has ended; all of its output was sent before, or is in its pipe.
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
    /// The pipe that a task writes to; its descriptor comes with the first byte of the frame. It is
    /// never waited for. The rest of the stream is read from there; once the task has ended, what
    /// is in it is the last of it, though another process may hold it open.
    Pipe {
        /// Whose.
        rank: Rank,
        /// Which stream.
        stream: Stream,
    },
    /// To a writer: the job was killed. Keepers that are out of reach need not be looked for much
    /// longer.
    Killed,
    /// The keeper wants to read this stream again, since the job has a viewer. Answered with
    /// [`FromFrontEnd::PipeLost`].
    ReturnPipe {
        /// Whose.
        rank: Rank,
        /// Which stream.
        stream: Stream,
    },
    /// To a viewer: it was too slow, and so many bytes are left out here.
    Skipped {
        /// How many.
        bytes: u64,
    },
}

/// The place of `Output` among the variants of [`ToFrontEndWith`].
const VARIANT_OUTPUT: u32 = 2;

/// The bytes of a frame with [`ToFrontEndWith::Output`] that come before its data, so that a front
/// end that has the data elsewhere need not bring it together with them.
///
/// Their number is known before that of the data: the length of the data is always written in three
/// bytes of seven bits, which the format allows (the higher ones may be zero).
#[derive(Debug)]
pub struct OutputHeader {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl OutputHeader {
    /// Frame length, variant, rank, stream, data length.
    pub const BYTES_MAX: usize = 4 + 1 + 5 + 1 + 3;

    /// The most bytes of data behind it.
    pub const DATA_BYTES_MAX: usize = (1 << 21) - 1;

    /// The header of a piece of this stream; [`Self::finish`] completes it.
    #[must_use]
    pub fn new(rank: Rank, stream: Stream) -> Self {
        let mut header = Self { bytes: [0; Self::BYTES_MAX], len: 4 };
        header.push(VARIANT_OUTPUT.to_le_bytes()[0]);
        let mut rest = rank.0;
        while rest >= 0x80 {
            header.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        header.push(rest.to_le_bytes()[0]);
        header.push(match stream {
            Stream::Output => 0,
            Stream::Error => 1,
        });
        header.len += 3;
        header
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// How many bytes it is.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no header is empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The finished header, for so many bytes of data ([`Self::DATA_BYTES_MAX`] at most).
    pub fn finish(&mut self, count: usize) -> &[u8] {
        debug_assert!(count <= Self::DATA_BYTES_MAX, "{count} bytes in one piece");
        let len = self.len;
        let seven_bits = |from: u32| (count >> from).to_le_bytes()[0] & 0x7f;
        self.bytes[len - 3] = seven_bits(0) | 0x80;
        self.bytes[len - 2] = seven_bits(7) | 0x80;
        self.bytes[len - 1] = seven_bits(14);
        let frame = u32::try_from(len - 4 + count).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&frame.to_le_bytes());
        &self.bytes[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::encode;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn the_header_is_that_of_a_real_message() {
        for (rank, stream, count) in [
            (0, Stream::Output, 1 << 14),
            (127, Stream::Error, 1 << 17),
            (128, Stream::Output, 20_000),
            (u32::MAX, Stream::Error, 16_384),
        ] {
            let mut real = Vec::new();
            let data = ByteBuf::from(vec![b'x'; count]);
            encode(&ToFrontEnd::Output { rank: Rank(rank), stream, data }, &mut real).unwrap();
            let mut header = OutputHeader::new(Rank(rank), stream);
            // From 2^14 bytes on, three bytes is what the encoder writes too.
            assert_eq!(header.finish(count), &real[..real.len() - count]);
        }
    }
}
