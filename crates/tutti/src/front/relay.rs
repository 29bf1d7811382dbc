//! Output in bulk, passed on without being read: the kernel moves its pages from the keeper's
//! connection into the pipe that our own output is.
//!
//! Only whole lines may go there ([`super::output`]), so the last end of a line among what has arrived
//! is looked for, from behind; what comes after it is read and kept, as everything is that can't be
//! moved. So the way of a byte in bulk has two copies on a node: into the task's pipe, and out of ours.

use super::output::{Output, OutputError, after_write_error};
use crate::link::{Link, LinkError};
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};
use nix::sys::stat::{SFlag, fstat};
use std::os::fd::{AsFd, BorrowedFd};
use tutti_linux::peek::{arrived_bytes, peek_ahead};
use tutti_wire::attach::{OutputHeader, OutputPiece, Stream};

/// Pieces below this are read: to move them costs as much.
const PIECE_BYTES_LEAST: usize = 32 << 10;

/// How far back the end of a line is looked for.
const LOOK_BYTES: usize = 4 << 10;

/// As large a pipe as every user may have.
const PIPE_BYTES: i32 = 1 << 20;

/// What is being passed on from one connection.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Pieces come in bulk: what comes next is looked at before it is read.
    looks: bool,
    /// The piece whose data is being moved, and how much of that is left.
    piece: Option<(OutputPiece, usize)>,
    pipes: Pipes,
}

/// Which of our own streams are pipes; looked up when it first matters.
#[derive(Debug, Default)]
struct Pipes {
    output: Option<bool>,
    error: Option<bool>,
}

impl Pipes {
    fn is_pipe(&mut self, stream: Stream) -> bool {
        let known = match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        };
        *known.get_or_insert_with(|| {
            with_own(stream, |own| {
                let pipe = fstat(own).is_ok_and(|stat| {
                    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO
                });
                if pipe {
                    // Refused above the user's share of memory for pipes; then it stays small.
                    let _ = fcntl(own, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
                }
                pipe
            })
        })
    }
}

/// What a relay did.
pub(super) enum Relayed {
    /// Nothing: what comes next is to be read.
    Nothing,
    /// Some; there may be more.
    Some,
    /// All that has arrived; the rest of the piece is on its way.
    Waits,
}

/// Why a relay can't go on.
pub(super) enum RelayError {
    /// For a reason of the keeper's connection.
    Link(LinkError),
    /// For one of our own output's.
    Output(OutputError),
}

impl From<LinkError> for RelayError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<OutputError> for RelayError {
    fn from(error: OutputError) -> Self {
        Self::Output(error)
    }
}

impl From<tutti_linux::Error> for RelayError {
    fn from(error: tutti_linux::Error) -> Self {
        Self::Link(LinkError::Io(error.into()))
    }
}

impl Relay {
    /// Learns from a piece that was read.
    pub(super) fn learn(&mut self, output: &Output, stream: Stream, bytes: usize) {
        self.looks = self.looks
            || bytes >= PIECE_BYTES_LEAST
                && output.takes_pages(stream)
                && self.pipes.is_pipe(stream);
    }

    /// Whether what comes next is to be read no further than one frame.
    pub(super) const fn looks(&self) -> bool {
        self.looks
    }

    /// Passes on what can be passed on.
    ///
    /// # Errors
    /// If the connection or our own output fails; what was not passed on is lost then.
    pub(super) fn pass(
        &mut self,
        link: &mut Link,
        output: &mut Output,
    ) -> Result<Relayed, RelayError> {
        if self.piece.is_none() {
            self.begin(link, output)?;
        }
        let Some((piece, left)) = self.piece.take() else { return Ok(Relayed::Nothing) };
        let passed = match arrived_bytes(link.as_fd())?.min(left) {
            0 => read_some(link, output, piece, left)?,
            arrived => {
                pass_arrived(link, output, piece, arrived)?;
                arrived
            }
        };
        if passed < left {
            self.piece = Some((piece, left - passed));
        }
        Ok(if passed > 0 { Relayed::Some } else { Relayed::Waits })
    }

    /// Takes the header of the next frame, if that is a piece worth it.
    fn begin(&mut self, link: &mut Link, output: &Output) -> Result<(), RelayError> {
        if !self.looks || !link.is_between_frames() {
            return Ok(());
        }
        let mut head = [0; OutputHeader::BYTES_MAX];
        let seen = peek_ahead(link.as_fd(), 0, &mut head)?;
        let Some(piece) = OutputPiece::parse(&head[..seen]) else { return Ok(()) };
        if piece.data_bytes < PIECE_BYTES_LEAST {
            // Little pieces are better read many at once.
            self.looks = false;
            return Ok(());
        }
        if output.takes_pages(piece.stream) && self.pipes.is_pipe(piece.stream) {
            link.take(&mut head[..piece.header_bytes])?;
            self.piece = Some((piece, piece.data_bytes));
        }
        Ok(())
    }
}

/// Tells a connection that was closed from one where nothing has arrived, which only a read can.
fn read_some(
    link: &mut Link,
    output: &mut Output,
    piece: OutputPiece,
    left: usize,
) -> Result<usize, RelayError> {
    let mut room = [0; LOOK_BYTES];
    let most = left.min(LOOK_BYTES);
    let count = link.take_some(&mut room[..most])?;
    if count > 0 {
        output.take(piece.rank, piece.stream, &room[..count])?;
    }
    Ok(count)
}

/// Passes on so many bytes, which have arrived.
fn pass_arrived(
    link: &mut Link,
    output: &mut Output,
    piece: OutputPiece,
    arrived: usize,
) -> Result<(), RelayError> {
    let whole = whole_lines(link, output, piece, arrived)?;
    if whole > 0 {
        output.write_partial(piece.rank, piece.stream)?;
        move_pages(link, piece.stream, whole)?;
    }
    let mut rest = vec![0; arrived - whole];
    if !rest.is_empty() {
        link.take(&mut rest)?;
        output.take(piece.rank, piece.stream, &rest)?;
    }
    Ok(())
}

/// How many of the arrived bytes can be moved.
fn whole_lines(
    link: &Link,
    output: &Output,
    piece: OutputPiece,
    arrived: usize,
) -> Result<usize, RelayError> {
    if !output.needs_whole_lines(piece.stream) {
        return Ok(arrived);
    }
    let mut room = [0; LOOK_BYTES];
    let look = arrived.min(LOOK_BYTES);
    let begin = arrived - look;
    let seen = peek_ahead(link.as_fd(), begin, &mut room[..look])?;
    Ok(memchr::memrchr(b'\n', &room[..seen]).map_or(0, |newline| begin + newline + 1))
}

fn move_pages(link: &Link, stream: Stream, mut count: usize) -> Result<(), RelayError> {
    with_own(stream, |own| {
        while count > 0 {
            match splice(link, None, own, None, count, SpliceFFlags::SPLICE_F_MOVE) {
                Ok(0) => return Err(LinkError::Closed.into()),
                Ok(moved) => count -= moved,
                Err(error) => after_write_error(stream, own, error)?,
            }
        }
        Ok(())
    })
}

fn with_own<T>(stream: Stream, act: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    match stream {
        Stream::Output => act(std::io::stdout().as_fd()),
        Stream::Error => act(std::io::stderr().as_fd()),
    }
}
