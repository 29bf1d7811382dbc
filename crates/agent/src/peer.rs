//! A connection of the control tree: orders and reports first, then what there is of streams and of
//! what MPI programs exchange.

use super::transport::Carrier;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use tutti_node::link::{Link, LinkError, Poller};
use tutti_wire::branch::{FromBranch, Passed, ToBranch, Tunnelled};

/// What of streams may wait for the kernel ahead of an order that may come next: a millisecond's
/// worth on a gigabit network. What the kernel takes beside what it can send is as little.
const BULK_AHEAD_BYTES: usize = 128 << 10;

/// What is sent over the connection: another type in each direction.
pub(super) trait Message: Serialize {
    /// A part of a stream as such a message.
    fn tunnel(part: Tunnelled) -> Self;

    /// A part of what was stored before a barrier as such a message.
    fn exchange(part: Passed) -> Self;
}

impl Message for ToBranch {
    fn tunnel(part: Tunnelled) -> Self {
        Self::Tunnel(part)
    }

    fn exchange(part: Passed) -> Self {
        Self::Exchanged(part)
    }
}

impl Message for FromBranch {
    fn tunnel(part: Tunnelled) -> Self {
        Self::Tunnel(part)
    }

    fn exchange(part: Passed) -> Self {
        Self::Exchange(part)
    }
}

/// The connection with a neighbour.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) link: Link<Carrier>,
    token: u64,
    bulk: VecDeque<Tunnelled>,
    /// Parts of what was stored before barriers. The values of one for several neighbours are in
    /// memory once.
    exchanges: VecDeque<Passed>,
}

impl Neighbour {
    /// Takes over a connection that is watched under this number.
    pub(super) const fn new(link: Link<Carrier>, token: u64) -> Self {
        Self { link, token, bulk: VecDeque::new(), exchanges: VecDeque::new() }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, message: &impl Message) {
        self.link.send(message);
    }

    /// Queues a part of a stream; it goes when nothing else waits.
    pub(super) fn send_bulk(&mut self, part: Tunnelled) {
        self.bulk.push_back(part);
    }

    /// Queues a part of what was stored before a barrier; it goes when nothing else waits, in turn
    /// with parts of streams.
    pub(super) fn exchange(&mut self, part: Passed) {
        self.exchanges.push_back(part);
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
        loop {
            self.link.settle(poller, self.token)?;
            let is_empty = self.bulk.is_empty() && self.exchanges.is_empty();
            if is_empty || self.link.waits_for_room() {
                return Ok(());
            }
            while self.link.unsent() < BULK_AHEAD_BYTES {
                let (part, exchange) = (self.bulk.pop_front(), self.exchanges.pop_front());
                if part.is_none() && exchange.is_none() {
                    break;
                }
                part.into_iter().for_each(|part| self.link.send(&M::tunnel(part)));
                exchange.into_iter().for_each(|part| self.link.send(&M::exchange(part)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use tutti_node::link::Interest;
    use tutti_node::platform::time::monotonic_ns;
    use tutti_node::platform::ways::Stream;
    use tutti_secure::{Authority, Clock, Credentials, Endpoint, Key, Name};
    use tutti_types::NodeId;
    use tutti_wire::Role;
    use tutti_wire::branch::{Part, Place, TunnelId};
    use tutti_wire::limits::{TRANSPORT_VERSION, TUNNEL_CHUNK_BYTES};

    const TOKEN: u64 = 7;

    /// Parts of a stream: far more than the kernel takes of a connection if its other end does not
    /// read.
    const PARTS: u64 = 128;

    fn link(end: UnixStream) -> Link<Carrier> {
        end.set_nonblocking(true).expect("a socket");
        Link::over(Carrier::Local(Stream::from(end)))
    }

    /// A neighbour that this goes over, and the watcher of it.
    fn neighbour_over(mut own: Link<Carrier>) -> (Neighbour, Poller) {
        let poller = Poller::new().expect("a descriptor");
        own.greet(Role::Agent);
        poller.add(&own, TOKEN, Interest::READ).expect("it can be watched");
        (Neighbour::new(own, TOKEN), poller)
    }

    /// A neighbour, its own end, and the watcher of ours.
    fn neighbour() -> (Neighbour, Link<Carrier>, Poller) {
        let (own, theirs) = UnixStream::pair().expect("two ends");
        let (own, poller) = neighbour_over(link(own));
        (own, link(theirs), poller)
    }

    fn endpoint() -> Endpoint {
        let now = Clock::system().now();
        let name = Name::new("n1").expect("a name");
        let authority = Authority::create(&name, now).expect("an authority");
        let key = Key::generate().expect("a key");
        let request = key.request().expect("a request");
        let certificate = authority.sign(&request, tutti_secure::Role::Node, &name, now);
        let certificate = certificate.expect("a certificate");
        let credentials = Credentials::new(key, &certificate, authority.certificate());
        let credentials = credentials.expect("credentials");
        Endpoint::new(&credentials, TRANSPORT_VERSION, Clock::system()).expect("an endpoint")
    }

    /// The two ends of a connection between machines: of the side that asked for it, and of the
    /// other.
    fn far_ends() -> [Carrier; 2] {
        let endpoint = endpoint();
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = port.local_addr().expect("an address").to_string();
        let asking = Carrier::to(&address, Some(&endpoint)).expect("it is there");
        let (socket, _) = port.accept().expect("somebody comes");
        [asking, Carrier::from(socket, &endpoint).expect("a connection")]
    }

    /// Sends until the kernel has had no room for a while.
    fn fill(neighbour: &mut Neighbour, poller: &mut Poller) {
        let mut ready = Vec::new();
        loop {
            neighbour.settle::<ToBranch>(poller).expect("they are there");
            poller.wait(Some(monotonic_ns() + 300_000_000), &mut ready).expect("it can wait");
            if ready.is_empty() {
                return;
            }
        }
    }

    /// How many bytes of streams come before an order, where more of them wait than anything has
    /// room for.
    fn bytes_before_an_order(own: Carrier, theirs: Carrier) -> usize {
        let (mut neighbour, mut poller) = neighbour_over(Link::over(own));
        let mut theirs = Link::over(theirs);
        theirs.greet(Role::Server);
        while neighbour.link.next_greeting().expect("a greeting").is_none() {
            neighbour.settle::<ToBranch>(&poller).expect("they are there");
            theirs.flush().expect("we are there");
            theirs.receive().expect("we are there");
            neighbour.link.receive().expect("they are there");
        }
        (0..2 * PARTS).for_each(|number| neighbour.send_bulk(part(number)));
        fill(&mut neighbour, &mut poller);
        neighbour.send(&ToBranch::Leaving);
        let mut before = 0;
        loop {
            neighbour.settle::<ToBranch>(&poller).expect("they are there");
            theirs.receive().expect("we are there");
            while let Some(message) = theirs.next::<ToBranch>().expect("a message") {
                match message {
                    ToBranch::Leaving => return before,
                    _ => before += TUNNEL_CHUNK_BYTES,
                }
            }
        }
    }

    fn part(number: u64) -> Tunnelled {
        let part = Part::Bytes(vec![0; TUNNEL_CHUNK_BYTES].into());
        let (from, to) = (Place::Node(NodeId(1)), Place::Controller);
        Tunnelled { from, to, tunnel: TunnelId { opener: NodeId(1), number }, part }
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

    #[test]
    fn an_order_does_not_wait_for_megabytes_that_the_kernel_has_on_a_slow_way() {
        for is_asked in [false, true] {
            let mut ends = far_ends();
            if is_asked {
                ends.reverse();
            }
            let [own, theirs] = ends;
            let before = bytes_before_an_order(own, theirs);
            assert!(before < 1 << 20, "{before} bytes come before it");
        }
    }
}
