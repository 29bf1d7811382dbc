//! What comes from the keepers of a job, on its way to where it is written.

use super::keeper::{self, Keeper};
use super::sink::{Output, OutputError};
use nix::poll::{PollFd, PollFlags};
use serde_bytes::Bytes;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tutti_node::link::LinkError;
use tutti_types::{NodeId, Rank, StepKey, TaskStatus};
use tutti_wire::attach::{FromFrontEnd, ToFrontEndWith};

/// What went wrong on the way.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Our own output can't be written.
    Output(OutputError),
    /// Some of what was sent to the tasks is lost.
    InputLost,
    /// A node has not been found again.
    NodeLost(NodeId),
    /// A keeper on this node sent what can't be understood.
    KeeperLost(LinkError),
    /// A keeper does not give out the job's output; whether it did before.
    Refused {
        /// Why.
        reason: String,
        /// Whether it had taken us in.
        was_attached: bool,
    },
    /// The job was killed.
    Killed,
    /// A task has ended, in this way, on this node if that is another one.
    TaskEnded(Rank, TaskStatus, Option<NodeId>),
}

/// The keepers of a job and the output that comes from them.
pub(super) struct Intake {
    pub(super) key: StepKey,
    pub(super) keepers: Vec<Keeper>,
    pub(super) output: Output,
    /// After a failure what still comes is thrown away.
    pub(super) discards: bool,
    /// Whether a keeper that refuses us before it has taken us in is asked again: it may not have
    /// the job yet.
    pub(super) asks_again: bool,
}

impl Intake {
    pub(super) const fn new(key: StepKey, output: Output) -> Self {
        Self { key, keepers: Vec::new(), output, discards: false, asks_again: false }
    }

    /// Writes all that waits to be sent, as far as it is taken.
    pub(super) fn send_all(&mut self) {
        for keeper in &mut self.keepers {
            let link = keeper.link.as_mut().filter(|_| !keeper.finished);
            if link.is_some_and(|link| link.flush().is_err()) {
                // Its end is noticed where it is read from.
            }
        }
    }

    /// What to wait for: the connections, then the pipes.
    pub(super) fn poll(&self) -> (Vec<PollFd<'_>>, Vec<PollFd<'_>>) {
        let mut links = Vec::with_capacity(self.keepers.len());
        for keeper in self.keepers.iter().filter(|keeper| !keeper.finished) {
            let Some(link) = &keeper.link else { continue };
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, link.unsent() > 0);
            links.push(PollFd::new(link.as_fd(), flags));
        }
        (links, self.keepers.iter().flat_map(|keeper| keeper.pipes.poll()).collect())
    }

    /// Takes note of which pipes have something, in the order of [`Self::poll`].
    pub(super) fn note(&mut self, mut ready: impl Iterator<Item = bool>) {
        for keeper in &mut self.keepers {
            keeper.pipes.note(&mut ready);
        }
    }

    /// How long at most to wait, for what no descriptor tells of. `ended`: whether the job has.
    pub(super) fn wait_at_most(&self, ended: bool) -> Option<Duration> {
        let is_missed = |keeper: &Keeper| keeper.is_away() || (ended && !keeper.attached);
        let misses = self.keepers.iter().any(|keeper| is_missed(keeper) && !keeper.finished);
        misses.then_some(keeper::RETRY)
    }

    /// Takes in what has come from everywhere. `ended`: when the job did.
    pub(super) fn take_in(&mut self, ended: Option<Instant>, troubles: &mut Vec<Trouble>) {
        for index in 0..self.keepers.len() {
            if let Err(error) = self.keepers[index].pipes.pass(&mut self.output) {
                troubles.push(Trouble::Output(error));
            }
            self.on_keeper(index, ended, troubles);
        }
    }

    fn on_keeper(&mut self, index: usize, ended: Option<Instant>, troubles: &mut Vec<Trouble>) {
        let keeper = &mut self.keepers[index];
        if keeper.finished {
            return;
        }
        if !keeper.look_for(self.key, ended) {
            return self.give_up(index, LinkError::Closed, troubles);
        }
        let Some(link) = &mut keeper.link else { return };
        let received = link.receive();
        if let Err(error) = self.read_keeper(index, troubles).and(received) {
            let keeper = &mut self.keepers[index];
            if !keeper.finished && !keeper.lose(&error) {
                self.give_up(index, error, troubles);
            }
        }
    }

    /// A keeper is not to be found any more.
    fn give_up(&mut self, index: usize, error: LinkError, troubles: &mut Vec<Trouble>) {
        let keeper = &mut self.keepers[index];
        match (error, keeper.far) {
            (_, Some(node)) if keeper.attached => troubles.push(Trouble::NodeLost(node)),
            (LinkError::Closed, _) => {}
            (error, _) => troubles.push(Trouble::KeeperLost(error)),
        }
        keeper.finished = true;
        self.end_pipes(index, None, troubles);
    }

    /// Nothing more is written to the pipes of a rank, or to any.
    fn end_pipes(&mut self, index: usize, rank: Option<Rank>, troubles: &mut Vec<Trouble>) {
        if let Err(error) = self.keepers[index].pipes.end(rank, &mut self.output) {
            troubles.push(Trouble::Output(error));
        }
    }

    fn read_keeper(&mut self, index: usize, troubles: &mut Vec<Trouble>) -> Result<(), LinkError> {
        loop {
            let keeper = &mut self.keepers[index];
            let Some(link) = &mut keeper.link else { return Ok(()) };
            let Some(message) = link.next::<ToFrontEndWith<&Bytes>>()? else {
                return Ok(());
            };
            match message {
                ToFrontEndWith::Attached { heard } => {
                    if !keeper.on_attached(heard) {
                        troubles.push(Trouble::InputLost);
                    }
                }
                ToFrontEndWith::Output { rank, stream, data } => {
                    let bytes = data.len();
                    if self.discards {
                        continue;
                    }
                    let written = self.output.take(rank, stream, data);
                    if let Some(request) = keeper.pipes.ask(rank, stream, bytes) {
                        keeper.send(&request);
                    }
                    if let Err(error) = written {
                        self.discards = true;
                        troubles.push(Trouble::Output(error));
                    }
                }
                ToFrontEndWith::Pipe { rank, stream } => {
                    let pipe = link.next_descriptor().filter(|_| !self.discards);
                    let answer = keeper.pipes.take(rank, stream, pipe);
                    keeper.send(&answer);
                }
                // How it ended, the controller says.
                ToFrontEndWith::TaskEnded { rank, status, .. } => {
                    let far = keeper.far;
                    self.end_pipes(index, Some(rank), troubles);
                    troubles.push(Trouble::TaskEnded(rank, status, far));
                }
                ToFrontEndWith::Finished => {
                    if keeper.far.is_some()
                        && let Some(link) = &mut keeper.link
                    {
                        link.send(&FromFrontEnd::Done);
                        let _ = link.flush();
                    }
                    keeper.finished = true;
                }
                ToFrontEndWith::Refused { .. } if self.asks_again && !keeper.attached => {
                    return Err(LinkError::Closed);
                }
                ToFrontEndWith::Refused { reason } => {
                    let was_attached = keeper.attached;
                    keeper.finished = true;
                    troubles.push(Trouble::Refused { reason, was_attached });
                }
                ToFrontEndWith::Killed => troubles.push(Trouble::Killed),
                ToFrontEndWith::ReturnPipe { rank, stream } => {
                    if keeper.pipes.give_back(rank, stream) {
                        keeper.send(&FromFrontEnd::PipeLost { rank, stream });
                    }
                }
                // For viewers.
                ToFrontEndWith::Skipped { .. } => {}
            }
        }
    }

    /// Our own output has failed: what comes is thrown away from now on.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        for keeper in self.keepers.iter_mut().filter(|keeper| !keeper.pipes.is_empty()) {
            keeper.pipes.clear();
            // It discards unread input then, so that no task waits for us.
            if let Some(link) = &keeper.link {
                let _ = link.stream().shutdown(Shutdown::Both);
            }
        }
    }
}
