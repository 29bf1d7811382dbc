//! The network of a simulated world: what one machine sends another arrives later, in order on each
//! connection, unless a partition holds it up; what is held up for too long breaks the connection
//! at both ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Write};
use tutti_node::link::{Interest, Poller, Ready};
use tutti_node::simulated::machine::{Dialled, machine};
use tutti_node::simulated::random::Random;
use tutti_node::simulated::stream::{Stream, give_back, pair};

/// A neighbour that acknowledges nothing for so long is out of reach, as for the kernel
/// (`agent/src/transport.rs`).
pub(super) const SILENCE_NS: u64 = 5_000_000_000;

/// So much is sent at once.
const READ_BYTES: usize = 64 << 10;

/// The number of a connection between machines.
pub(super) type WayId = u64;

/// Which end of a connection: 0 began it.
pub(super) type End = usize;

/// Something that the network does later.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    /// A connection that was begun reaches the other machine.
    Open(WayId),
    /// Bytes for this end arrive; none: the other end has closed.
    Bytes(WayId, End),
    /// If nothing has come through since then, the connection breaks.
    GiveUp(WayId, u64),
}

struct Way {
    /// The machines at the two ends.
    at: [usize; 2],
    /// The network's side of each end: nothing if that is not open, or closed.
    ends: [Option<Stream>; 2],
    /// When the last bytes arrive at each end.
    last_ns: [u64; 2],
    /// What is under way to each end, in order.
    under_way: [VecDeque<Vec<u8>>; 2],
    /// What can't get through to each end, or the machine there does not take yet.
    held: [VecDeque<Vec<u8>>; 2],
    /// Whether the other machine knows of the connection.
    is_open: bool,
    /// Since when not everything comes through.
    silent_ns: Option<u64>,
}

/// See the head of the file.
pub(super) struct Network {
    ways: BTreeMap<WayId, Way>,
    next: WayId,
    /// The network's ends at each machine.
    pollers: Vec<Poller>,
    /// From which machine nothing reaches which.
    cut: BTreeSet<(usize, usize)>,
    /// Connections of which an end has not taken all.
    stuck: BTreeSet<(WayId, End)>,
    /// How long anything is under way at least, and how much longer it may be.
    pub(super) latency_ns: (u64, u64),
    ready: Vec<Ready>,
}

/// What is to be delivered when.
pub(super) type Due = (u64, Delivery);

impl Network {
    pub(super) fn new(machines: usize, latency_ns: (u64, u64)) -> Self {
        Self {
            ways: BTreeMap::new(),
            next: 0,
            pollers: (0..machines).map(|_| Poller::new().expect("a descriptor")).collect(),
            cut: BTreeSet::new(),
            stuck: BTreeSet::new(),
            latency_ns,
            ready: Vec::new(),
        }
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from, to))
    }

    /// Whether anything a machine sends can be answered by the other.
    pub(super) fn are_apart(&self, one: usize, other: usize) -> bool {
        self.is_cut(one, other) || self.is_cut(other, one)
    }

    fn latency(&self, random: &mut Random) -> u64 {
        self.latency_ns.0 + random.below(self.latency_ns.1.max(1))
    }

    fn token(way: WayId, end: End) -> u64 {
        way * 2 + end as u64
    }

    /// A daemon has begun a connection.
    pub(super) fn begin(&mut self, dialled: Dialled, now_ns: u64, random: &mut Random) -> Vec<Due> {
        let Dialled { from, to, stream } = dialled;
        let id = self.next;
        self.next += 1;
        let watched = self.pollers[from].add(&stream, Self::token(id, 0), Interest::READ);
        watched.expect("a connection can be watched");
        let way = Way {
            at: [from, to],
            ends: [Some(stream), None],
            last_ns: [now_ns; 2],
            under_way: Default::default(),
            held: Default::default(),
            is_open: false,
            silent_ns: None,
        };
        self.ways.insert(id, way);
        if self.are_apart(from, to) || machine(to, |machine| machine.is_off) {
            return self.doubt(|_, of| of == id, now_ns);
        }
        vec![(now_ns + self.latency(random), Delivery::Open(id))]
    }

    /// The machine that a connection leads to.
    pub(super) fn way_to(&self, id: WayId) -> Option<usize> {
        self.ways.get(&id).map(|way| way.at[1])
    }

    /// A connection reaches its other machine: the end that the agent there is to be given, if it
    /// takes any, and its sender.
    pub(super) fn open(&mut self, id: WayId, takes: bool) -> Option<(usize, usize, Stream)> {
        let way = self.ways.get_mut(&id)?;
        let [from, to] = way.at;
        if way.is_open || self.cut.contains(&(from, to)) || self.cut.contains(&(to, from)) {
            return None;
        }
        if !takes {
            // Refused.
            self.ways.remove(&id);
            return None;
        }
        let (ours, theirs) = pair().expect("a descriptor");
        self.pollers[to].add(&ours, Self::token(id, 1), Interest::READ).expect("it can be watched");
        way.ends[1] = Some(ours);
        way.is_open = true;
        self.flush(id, 1);
        Some((from, to, theirs))
    }

    /// Readable when daemons of a machine have sent something.
    pub(super) fn poller(&self, at: usize) -> &Poller {
        &self.pollers[at]
    }

    /// Takes in what the daemons of a machine have sent.
    pub(super) fn collect(
        &mut self,
        at: usize,
        now_ns: u64,
        random: &mut Random,
        due: &mut Vec<Due>,
    ) {
        let mut ready = std::mem::take(&mut self.ready);
        if self.pollers[at].look(&mut ready).is_ok() {
            for event in &ready {
                let (id, end) = (event.token / 2, usize::from(event.token % 2 == 1));
                self.read(id, end, now_ns, random, due);
            }
        }
        self.ready = ready;
    }

    fn read(&mut self, id: WayId, end: End, now_ns: u64, random: &mut Random, due: &mut Vec<Due>) {
        let latency_ns = self.latency(random);
        let Some(way) = self.ways.get_mut(&id) else { return };
        let Some(stream) = &mut way.ends[end] else { return };
        let bytes = match stream.read_at_most(READ_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // What it had not read is lost, and the other end hears that it is gone.
            Err(_) => Vec::new(),
        };
        if bytes.is_empty() {
            way.ends[end] = None;
        }
        let to = 1 - end;
        let at_ns = way.last_ns[to].max(now_ns + latency_ns);
        way.last_ns[to] = at_ns;
        way.under_way[to].push_back(bytes);
        due.push((at_ns, Delivery::Bytes(id, to)));
    }

    /// The first bytes that are under way to an end have arrived.
    pub(super) fn deliver(&mut self, id: WayId, to: End) {
        if let Some(way) = self.ways.get_mut(&id) {
            way.held[to].extend(way.under_way[to].pop_front());
            self.flush(id, to);
        }
    }

    fn flush(&mut self, id: WayId, to: End) {
        let Some(way) = self.ways.get_mut(&id) else { return };
        let (from_machine, to_machine) = (way.at[1 - to], way.at[to]);
        if self.cut.contains(&(from_machine, to_machine)) || (to == 1 && !way.is_open) {
            return;
        }
        while let Some(bytes) = way.held[to].pop_front() {
            if bytes.is_empty() {
                // All of it has arrived, and so does the end.
                self.ways.remove(&id);
                return;
            }
            let Some(stream) = &mut way.ends[to] else { continue };
            match stream.write(&bytes) {
                Ok(count) if count == bytes.len() => give_back(bytes),
                Ok(count) => {
                    way.held[to].push_front(bytes[count..].to_vec());
                    self.stuck.insert((id, to));
                    return;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    way.held[to].push_front(bytes);
                    self.stuck.insert((id, to));
                    return;
                }
                // It has closed its end: that is told when it is seen.
                Err(_) => {}
            }
        }
    }

    /// What a machine has not taken yet: it may now.
    pub(super) fn push_on(&mut self, at: usize) {
        if self.stuck.is_empty() {
            return;
        }
        let ways = &self.ways;
        let is_here = |(id, end): &&(WayId, End)| ways.get(id).is_none_or(|way| way.at[*end] == at);
        let here: Vec<_> = self.stuck.iter().filter(is_here).copied().collect();
        for stuck in here {
            self.stuck.remove(&stuck);
            self.flush(stuck.0, stuck.1);
        }
    }

    /// A connection over which nothing has come through since then breaks.
    pub(super) fn give_up(&mut self, id: WayId, since_ns: u64) {
        if self.ways.get(&id).is_some_and(|way| way.silent_ns == Some(since_ns)) {
            self.ways.remove(&id);
        }
    }

    /// From now on nothing of one machine reaches the other.
    pub(super) fn cut(&mut self, from: usize, to: usize, now_ns: u64) -> Vec<Due> {
        self.cut.insert((from, to));
        self.doubt(|at, _| at == [from, to] || at == [to, from], now_ns)
    }

    fn doubt(&mut self, is_hit: impl Fn([usize; 2], WayId) -> bool, now_ns: u64) -> Vec<Due> {
        let hit = self.ways.iter_mut().filter(|(id, way)| is_hit(way.at, **id));
        let doubted = hit.map(|(&id, way)| {
            let since_ns = *way.silent_ns.get_or_insert(now_ns);
            (since_ns + SILENCE_NS, Delivery::GiveUp(id, since_ns))
        });
        doubted.collect()
    }

    /// Everything reaches all again.
    pub(super) fn mend(&mut self, now_ns: u64) -> Vec<Due> {
        self.cut.clear();
        for way in self.ways.values_mut() {
            if !way.at.iter().any(|&at| machine(at, |machine| machine.is_off)) {
                way.silent_ns = None;
            }
        }
        for id in self.ways.keys().copied().collect::<Vec<_>>() {
            for end in 0..2 {
                self.flush(id, end);
            }
        }
        let closed = self.ways.iter().filter(|(_, way)| !way.is_open);
        closed.map(|(&id, _)| (now_ns + self.latency_ns.0, Delivery::Open(id))).collect()
    }

    /// A machine has lost its power: its ends are gone, without a notice.
    pub(super) fn lose(&mut self, at: usize, now_ns: u64) -> Vec<Due> {
        for way in self.ways.values_mut() {
            for end in 0..2 {
                if way.at[end] == at {
                    way.ends[end] = None;
                    way.held[end].clear();
                }
            }
        }
        self.doubt(|ends, _| ends.contains(&at), now_ns)
    }

    /// It is there again, and knows of no connection.
    pub(super) fn reset(&mut self, at: usize) {
        self.ways.retain(|_, way| !way.at.contains(&at));
    }
}
