//! A connection of the control tree: orders and reports first, then what there is of streams.

use super::carrier::Carrier;
use crate::link::{Link, LinkError, Poller};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use tutti_wire::branch::{FromBranch, ToBranch, Tunnelled};

/// What of streams is handed to the kernel ahead of an order that may come next: a millisecond's
/// worth on a gigabit network.
const BULK_AHEAD_BYTES: usize = 128 << 10;

/// What is sent over the connection: another type in each direction.
pub(super) trait Message: Serialize {
    /// A part of a stream as such a message.
    fn tunnel(part: Tunnelled) -> Self;
}

impl Message for ToBranch {
    fn tunnel(part: Tunnelled) -> Self {
        Self::Tunnel(part)
    }
}

impl Message for FromBranch {
    fn tunnel(part: Tunnelled) -> Self {
        Self::Tunnel(part)
    }
}

/// The connection with a neighbour.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) link: Link<Carrier>,
    token: u64,
    bulk: VecDeque<Tunnelled>,
}

impl Neighbour {
    /// Takes over a connection that is watched under this number.
    pub(super) const fn new(link: Link<Carrier>, token: u64) -> Self {
        Self { link, token, bulk: VecDeque::new() }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: &impl Message) {
        self.link.send(message);
    }

    /// Queues a part of a stream; it goes when nothing else waits.
    pub(super) fn send_bulk(&mut self, part: Tunnelled) {
        self.bulk.push_back(part);
    }

    /// Whether more parts of streams would only wait here.
    pub(super) fn is_busy(&self) -> bool {
        !self.bulk.is_empty() || self.link.unsent() > BULK_AHEAD_BYTES
    }

    /// The next message that has arrived.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, LinkError> {
        self.link.next()
    }

    /// Sends as far as the neighbour takes it.
    #[inline]
    pub(super) fn settle<M: Message>(&mut self, poller: &Poller) -> Result<(), LinkError> {
        if self.bulk.is_empty() {
            return self.link.settle(poller, self.token);
        }
        loop {
            while self.link.unsent() < BULK_AHEAD_BYTES
                && let Some(part) = self.bulk.pop_front()
            {
                self.link.send(&M::tunnel(part));
            }
            self.link.settle(poller, self.token)?;
            if self.bulk.is_empty() || self.link.unsent() > 0 {
                return Ok(());
            }
        }
    }
}
