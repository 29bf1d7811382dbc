//! From the pipe that a task writes to into our own output.
//!
//! Where that is a pipe too, the kernel moves whole pages from one into the other and no process
//! reads them. Only whole lines may go there ([`super::output`]), so the last end of a line must be
//! known before anything goes: what has arrived is moved into a pipe of our own except for its last
//! bytes, which are read. If a line ends among them, the rest can follow; if not, all of it is
//! read. So a byte in bulk has two copies on its way: into the task's pipe, and out of ours.

use super::sink::{Output, OutputError, after_write_error, last_newline};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::pipe2;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tutti_linux::fionread::arrived_bytes;
use tutti_types::Rank;
use tutti_wire::attach::Stream;

/// Less than this is read: to move it costs as much.
const MOVED_BYTES_LEAST: usize = 32 << 10;

/// The most that is moved at once, and the size of our pipes: the largest that every user may have.
const MOVED_BYTES_MOST: usize = 1 << 20;
const PIPE_BYTES: i32 = 1 << 20;

/// How far back the end of a line is looked for.
const LOOK_BYTES: usize = 4 << 10;

/// The most that one read takes.
const READ_BYTES: usize = 256 << 10;

const _: () = assert!(LOOK_BYTES < MOVED_BYTES_LEAST);

/// What one attempt to pass something on came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// So many bytes went on.
    Bytes(usize),
    /// Nothing is there, for now.
    Nothing,
    /// The stream has ended.
    End,
}

/// Passes output on.
#[derive(Debug, Default)]
pub(super) struct Relay {
    held: Option<Held>,
    own: OwnPipes,
    room: Vec<u8>,
}

/// Pages that were taken from a task and have not gone on yet.
#[derive(Debug)]
struct Held {
    read: File,
    write: OwnedFd,
}

/// Which of our own streams are pipes; looked up when it first matters.
#[derive(Debug, Default)]
struct OwnPipes {
    output: Option<bool>,
    error: Option<bool>,
}

impl Relay {
    /// Passes on some of what a task has written, or is known to be the end of it.
    ///
    /// # Errors
    /// If our own output fails; what was not passed on is lost then.
    pub(super) fn pass(
        &mut self,
        source: &File,
        (rank, stream): (Rank, Stream),
        output: &mut Output,
    ) -> Result<Passed, OutputError> {
        let arrived = arrived_bytes(source.as_fd()).unwrap_or(0).min(MOVED_BYTES_MOST);
        if arrived >= MOVED_BYTES_LEAST && output.takes_pages(stream) && self.own.is_pipe(stream) {
            let look = if output.needs_whole_lines(stream) { LOOK_BYTES } else { 0 };
            let held = self.hold(source, arrived - look);
            if held > 0 {
                return self.pass_held(held, source, (rank, stream), output);
            }
        }
        self.room.resize(READ_BYTES, 0);
        match read_some(source, &mut self.room) {
            Passed::Bytes(count) => {
                output.take(rank, stream, &self.room[..count])?;
                Ok(Passed::Bytes(count))
            }
            other => Ok(other),
        }
    }

    /// Moves so many bytes into our pipe, as far as it has room; none where that can't be done.
    fn hold(&mut self, source: &File, count: usize) -> usize {
        if self.held.is_none() {
            self.held = Held::new().ok();
        }
        let Some(held) = &self.held else { return 0 };
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
        splice(source, None, &held.write, None, count, flags).unwrap_or(0)
    }

    /// Passes on what is held and what comes right behind it, in which the end of a line is looked
    /// for.
    fn pass_held(
        &mut self,
        count: usize,
        source: &File,
        (rank, stream): (Rank, Stream),
        output: &mut Output,
    ) -> Result<Passed, OutputError> {
        let Some(held) = &mut self.held else { return Ok(Passed::Nothing) };
        let mut tail = [0; LOOK_BYTES];
        let whole_lines = output.needs_whole_lines(stream);
        let tail = match whole_lines {
            true => match read_some(source, &mut tail) {
                Passed::Bytes(count) => &tail[..count],
                _ => &[],
            },
            false => &[],
        };
        if whole_lines && last_newline(tail).is_none() {
            self.room.resize(count, 0);
            let read = held.read.read_exact(&mut self.room);
            read.map_err(|error| OutputError::Failed(error.into()))?;
            self.room.extend_from_slice(tail);
            output.take(rank, stream, &self.room)?;
        } else {
            output.write_partial(rank, stream)?;
            held.let_go(count, stream)?;
            if !tail.is_empty() {
                output.take(rank, stream, tail)?;
            }
        }
        Ok(Passed::Bytes(count + tail.len()))
    }
}

fn read_some(mut source: &File, room: &mut [u8]) -> Passed {
    loop {
        return match source.read(room) {
            Ok(0) => Passed::End,
            Ok(count) => Passed::Bytes(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Passed::Nothing,
            // Reading a pipe does not fail otherwise; if it does, there is nothing more to get.
            Err(_) => Passed::End,
        };
    }
}

impl Held {
    fn new() -> nix::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        // Refused above the user's share of memory for pipes; then less is moved at once.
        let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        Ok(Self { read: read.into(), write })
    }

    fn let_go(&self, mut count: usize, stream: Stream) -> Result<(), OutputError> {
        with_own(stream, |own| {
            while count > 0 {
                match splice(&self.read, None, own, None, count, SpliceFFlags::SPLICE_F_MOVE) {
                    Ok(moved) => count -= moved,
                    Err(error) => after_write_error(stream, own, error)?,
                }
            }
            Ok(())
        })
    }
}

impl OwnPipes {
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
                    // As above.
                    let _ = fcntl(own, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
                }
                pipe
            })
        })
    }
}

fn with_own<T>(stream: Stream, act: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    match stream {
        Stream::Output => act(std::io::stdout().as_fd()),
        Stream::Error => act(std::io::stderr().as_fd()),
    }
}
