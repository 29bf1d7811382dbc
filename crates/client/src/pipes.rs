//! Output in bulk: pipes of tasks that we read instead of the keeper, which has handed them to us.
//!
//! A rank whose output comes in large pieces is worth a pipe: keeper and front end need not wake
//! each other then. What comes seldom, or from too many ranks, goes on coming from the keeper.

use super::sink::{Output, OutputError};
use super::splice::{Passed, Relay};
use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use tutti_linux::fionread::arrived_bytes;
use tutti_types::Rank;
use tutti_wire::attach::{FromFrontEnd, Stream};

/// A sender of such a piece has more to say.
const PIECE_BYTES_LEAST: usize = 32 << 10;

/// Pipes that one keeper is asked for. Far below the usual limit on descriptors, of which files of
/// output need some too.
const PIPES_MAX: usize = 256;

/// Descriptors that no pipe may use: an interrupt of the job needs a connection.
const DESCRIPTORS_KEPT: u64 = 16;

/// The pipes that came from one keeper.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    asked: BTreeSet<(Rank, Stream)>,
    open: Vec<Pipe>,
    relay: Relay,
    /// The keeper is on another node: no pipe can come from there.
    is_far: bool,
}

#[derive(Debug)]
struct Pipe {
    of: (Rank, Stream),
    file: File,
    /// Whether there is something to be read, or the end.
    ready: bool,
}

impl Pipes {
    /// Those of a keeper on another node: none.
    pub(super) fn far() -> Self {
        Self { is_far: true, ..Self::default() }
    }

    /// What to say to the keeper when a piece of so many bytes has come from it.
    pub(super) fn ask(&mut self, rank: Rank, stream: Stream, bytes: usize) -> Option<FromFrontEnd> {
        let enough = bytes >= PIECE_BYTES_LEAST;
        let worth_it = enough && !self.is_far && self.asked.len() < PIPES_MAX;
        (worth_it && self.asked.insert((rank, stream)))
            .then_some(FromFrontEnd::WantPipe { rank, stream })
    }

    /// Takes a pipe in, if it has come with the message that says so; the answer to the keeper.
    pub(super) fn take(
        &mut self,
        rank: Rank,
        stream: Stream,
        pipe: Option<OwnedFd>,
    ) -> FromFrontEnd {
        let Some(pipe) = pipe.filter(leaves_room) else {
            return FromFrontEnd::PipeLost { rank, stream };
        };
        self.open.push(Pipe { of: (rank, stream), file: pipe.into(), ready: true });
        FromFrontEnd::PipeTaken { rank, stream }
    }

    /// Leaves a pipe to the keeper again; whether it was ours. It is not asked for again.
    pub(super) fn give_back(&mut self, rank: Rank, stream: Stream) -> bool {
        let before = self.open.len();
        self.open.retain(|pipe| pipe.of != (rank, stream));
        self.open.len() < before
    }

    /// Whether there are any.
    pub(super) const fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What to wait for, a descriptor for each pipe.
    pub(super) fn poll(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.open.iter().map(|pipe| PollFd::new(pipe.file.as_fd(), PollFlags::POLLIN))
    }

    /// Takes note of what [`Self::poll`] brought, in the same order.
    pub(super) fn note(&mut self, ready: &mut impl Iterator<Item = bool>) {
        for (pipe, ready) in self.open.iter_mut().zip(ready) {
            pipe.ready = ready;
        }
    }

    /// Passes on some of each pipe that has something.
    ///
    /// # Errors
    /// If our own output fails.
    pub(super) fn pass(&mut self, output: &mut Output) -> Result<(), OutputError> {
        for pipe in self.open.iter_mut().filter(|pipe| pipe.ready) {
            if self.relay.pass(&pipe.file, pipe.of, output)? == Passed::End {
                output.take(pipe.of.0, pipe.of.1, b"")?;
            } else {
                pipe.ready = false;
            }
        }
        // Those that are still ready have ended.
        self.open.retain(|pipe| !pipe.ready);
        Ok(())
    }

    /// Passes on all that is in the pipes of a task that has ended, or of all.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub(super) fn end(
        &mut self,
        rank: Option<Rank>,
        output: &mut Output,
    ) -> Result<(), OutputError> {
        let ends = |pipe: &mut Pipe| rank.is_none_or(|rank| rank == pipe.of.0);
        for pipe in self.open.extract_if(.., ends) {
            // No more than this: a process outside the task may be writing on.
            let mut left = arrived_bytes(pipe.file.as_fd()).unwrap_or(0);
            while left > 0
                && let Passed::Bytes(count) = self.relay.pass(&pipe.file, pipe.of, output)?
            {
                left = left.saturating_sub(count);
            }
            output.take(pipe.of.0, pipe.of.1, b"")?;
        }
        Ok(())
    }

    /// Lets go of all of them.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}

/// The kernel gives the lowest free number, so all below it are in use.
fn leaves_room(pipe: &OwnedFd) -> bool {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    u64::try_from(pipe.as_raw_fd()).is_ok_and(|number| number + DESCRIPTORS_KEPT < limit)
}
