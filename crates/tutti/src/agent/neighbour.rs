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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Interest;
    use crate::outside::ways::Stream;
    use std::os::unix::net::UnixStream;
    use tutti_core::NodeId;
    use tutti_wire::Role;
    use tutti_wire::branch::{Part, Place, TunnelId};
    use tutti_wire::limits::TUNNEL_CHUNK_BYTES;

    const TOKEN: u64 = 7;

    /// Parts of a stream: far more than the kernel takes of a connection whose other end does not read.
    const PARTS: u64 = 128;

    fn link(end: UnixStream) -> Link<Carrier> {
        end.set_nonblocking(true).expect("a socket");
        Link::over(Carrier::Local(Stream::from(end)))
    }

    /// A neighbour, its own end, and who watches ours.
    fn neighbour() -> (Neighbour, Link<Carrier>, Poller) {
        let (own, theirs) = UnixStream::pair().expect("two ends");
        let (mut own, poller) = (link(own), Poller::new().expect("a descriptor"));
        own.greet(Role::Agent);
        poller.add(&own, TOKEN, Interest::READ).expect("it can be watched");
        (Neighbour::new(own, TOKEN), link(theirs), poller)
    }

    fn part(number: u64) -> Tunnelled {
        let part = Part::Bytes(vec![0; TUNNEL_CHUNK_BYTES].into());
        Tunnelled { to: Place::Controller, tunnel: TunnelId { opener: NodeId(1), number }, part }
    }

    #[test]
    fn an_order_goes_before_what_is_queued_of_streams() {
        let (mut neighbour, mut theirs, poller) = neighbour();
        (0..PARTS).for_each(|number| neighbour.send_bulk(part(number)));
        neighbour.settle::<ToBranch>(&poller).expect("they are there");
        assert!(neighbour.is_busy());
        // Beside what the kernel has, little is ahead of whatever is said now.
        let (waiting, ahead) = (neighbour.bulk.len(), neighbour.link.unsent());
        assert!(ahead < BULK_AHEAD_BYTES + 2 * TUNNEL_CHUNK_BYTES, "{ahead}");
        assert!(waiting > 0, "the kernel has taken everything");
        neighbour.send(&ToBranch::Leaving);
        let mut came = Vec::<ToBranch>::new();
        while came.len() as u64 <= PARTS {
            neighbour.settle::<ToBranch>(&poller).expect("they are there");
            theirs.receive().expect("we are there");
            while let Some(message) = theirs.next().expect("a message") {
                came.push(message);
            }
        }
        let order = came.iter().position(|message| *message == ToBranch::Leaving);
        let order = order.expect("it has come");
        assert_eq!(came.len() - order - 1, waiting, "it waited for what is queued");
        came.remove(order);
        let parts: Vec<ToBranch> =
            (0..PARTS).map(|number| ToBranch::tunnel(part(number))).collect();
        assert!(came == parts, "parts are lost, or others");
        assert!(!neighbour.is_busy());
    }
}
