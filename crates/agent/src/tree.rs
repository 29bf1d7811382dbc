//! This agent's place in the control tree: its parent, its children, and what passes between them.
//!
//! What comes from above is for this node, for children's branches, or for several of them; what
//! comes from below goes up, all that has gathered in a round of the loop together. Nothing here
//! decides anything about jobs: [`super::routes`] knows the ways, and what passes can be looked at
//! in [`subtree_jobs`].
//!
//! The tree makes itself. An agent without a parent asks the root, is taken or sent on
//! ([`children`]), and knows from then on which agents are above it. When its parent is gone it
//! asks the one above that ([`candidates`]), and what is below it stays with it: all of it joins
//! again, and the controller and the agents tell each other what may have been lost on the way.

mod candidates;
mod children;
mod clients;
mod gathering;
mod lease_from_head;
mod parent;
mod probe;
mod renewal;
mod streams;
mod subtree_jobs;
mod time;
mod unauthenticated;
mod uplink;

use self::candidates::Candidates;
use self::children::Below;
use self::gathering::Gathering;
use self::lease_from_head::Vouched;
pub(super) use self::parent::Passage;
use self::parent::Up;
use self::probe::Probe;
use self::renewal::Renewal;
use self::subtree_jobs::Passing;
use self::uplink::Upward;
use super::clock::{ClusterClock, Correction, Estimator};
use super::driver::AgentOptions;
use super::peer::Neighbour;
use super::routes::{Child, Routes, Way};
use super::system_clock::{BySystem, Untrusted};
use super::transport::Carrier;
use super::tunnels::Tunnels;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tracing::warn;
use tutti_node::link::{Interest, Link, LinkError, Poller};
use tutti_node::membership::{self, Members, Membership};
use tutti_node::platform::time::{boot, monotonic_ns, process_id};
use tutti_node::platform::ways::Stream;
use tutti_node::state_dir;
use tutti_secure::Endpoint;
use tutti_types::{ClockSource, Nanos};
use tutti_wire::branch::{FromBranch, Order, SystemTime, ToBranch, Tunnelled, batches};
use tutti_wire::code::Code;
use tutti_wire::pmi::Exchange;
use tutti_wire::tree::{Settings, ToAgent};

/// The parent's connection.
pub(super) const UP: u64 = 0;
/// Users that want to be connected with a daemon of another node.
const GATE: u64 = 2;
/// Users that want the controller, where it is on another machine.
const DOOR: u64 = 3;
/// Agents of other machines.
const PORT: u64 = 4;
/// The first number of a connection that is not there from the beginning.
const FIRST_TOKEN: u64 = 16;

/// Where an agent is.
#[derive(Clone, Debug)]
pub(super) struct TreeOptions {
    /// The node's name.
    pub(super) name: String,
    /// Where the controller listens; on a member, where its clients knock.
    pub(super) controller: PathBuf,
    /// Where the node's keeper listens.
    pub(super) keeper: PathBuf,
    /// Where users find the agent.
    pub(super) gate: PathBuf,
    /// Whether the instance is one user's own.
    pub(super) private: bool,
    /// What the machine is in its cluster, if it is in one.
    pub(super) membership: Option<Membership>,
    /// Where that is kept.
    pub(super) place: membership::Place,
}

impl TreeOptions {
    /// The part of an agent's options that concerns the tree.
    pub(super) fn of(options: &AgentOptions) -> Self {
        Self {
            name: options.node.clone(),
            controller: options.controller.clone(),
            keeper: options.keeper.clone(),
            gate: options.gate.clone(),
            private: options.private,
            membership: options.membership.clone(),
            place: options.place.clone(),
        }
    }

    /// Whether the controller is on this machine.
    pub(super) fn is_root(&self) -> bool {
        self.membership.as_ref().is_none_or(|membership| membership.head.is_empty())
    }

    /// Whether this is a client machine.
    pub(super) fn is_client(&self) -> bool {
        self.membership.as_ref().is_some_and(|membership| membership.is_client)
    }
}

/// What the tree has for the agent itself.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a few at a time, used at once")]
pub(super) enum Heard {
    /// Something to do.
    Order(ToAgent),
    /// A part of what all nodes of a job have stored before a barrier.
    Exchanged(Exchange),
    /// There is a parent, and the time is known: to be answered with [`Tree::join`].
    Taken,
    /// The parent has another place in the tree: this node has not joined until it does so again.
    JoinAgain,
    /// The agent that was asked names another one.
    AskAnother,
    /// The parent is gone, or the agent that was asked is of no use.
    ParentLost(String),
    /// It is another time than was thought: what waits for a moment must look again.
    ClockStepped,
    /// Jobs here may run until that moment of this machine's monotonic clock.
    Lease { until_ns: u64 },
}

/// A connection from another machine that has not said yet what it wants.
struct Stranger {
    link: Link<Carrier>,
    until_ns: u64,
}

/// A client at the gate that has not said yet where it wants to.
struct Guest {
    link: Link,
    uid: u32,
    until_ns: u64,
}

/// A client that can't be passed on and has been told so. It may still be saying what it wants, and
/// would not read the answer if no one listened.
struct Refused {
    stream: Stream,
    uid: u32,
    until_ns: u64,
}

/// The way to the parent: the parent, and the search for one.
struct Above {
    up: Option<Up>,
    candidates: Candidates,
    /// The name of the node that is being asked; empty where it is not known.
    expected: String,
    /// Since when there has been no parent, while those below have not been told.
    without_parent_ns: Option<u64>,
    /// Why the latest parent that was asked did not take this node, if it said so.
    refused: Option<String>,
    /// Whether the time is to be known before this node joins: an agent that joins gets a
    /// timetable.
    awaits_time: bool,
    life: u64,
    attempt: u64,
    /// What of exchanges went up, and down.
    passages: [Passage; 2],
    /// Messages from the parent with orders, beyond questions.
    ordered: u64,
}

/// What is below this agent, and what it sends to the parent for it.
struct Branch {
    children: BTreeMap<Child, Below>,
    fan_out: usize,
    /// The agents that were sent on to which child, and has not joined there yet.
    sent_on: BTreeMap<String, Child>,
    upward: Upward,
    orders: BTreeMap<Child, Vec<Order>>,
    /// Children that have asked what time it is, and have no answer.
    asking: BTreeSet<Child>,
    passing: Passing,
    /// What nodes of the branch have stored before barriers.
    gathering: Gathering,
    /// How many client machines were given a number here.
    clients: u32,
}

/// Streams to other nodes, and the sockets at which users ask for them.
struct Ways {
    tunnels: Tunnels,
    tunnelled: Vec<Tunnelled>,
    gate: Option<UnixListener>,
    door: Option<UnixListener>,
}

/// The port for other machines, and connections that have not joined.
struct Entrance {
    port: Option<TcpListener>,
    endpoint: Option<Endpoint>,
    renewal: Renewal,
    /// The agents that may come, at the root.
    members: Members,
    strangers: BTreeMap<u64, Stranger>,
    guests: BTreeMap<u64, Guest>,
    refused: BTreeMap<u64, Refused>,
    /// Whether a new connection at the port has to wait until others have said what they want.
    is_crowded: bool,
    /// When connections are taken again, if there was no descriptor for one.
    accept_again_ns: Option<u64>,
    next_token: u64,
}

/// Cluster time: the estimate, and its source on the controller's machine.
struct TimeSource {
    clock: ClusterClock,
    estimator: Estimator,
    /// On the controller's machine: which cluster time it has.
    era: u64,
    /// Whether the controller's machine is to say what is known by its system's clock.
    source: ClockSource,
    /// What it has said, and what this machine's makes of it.
    system: Option<(SystemTime, Option<BySystem>)>,
    /// Why the system's clock is not gone by, when that was last said.
    untrusted: Option<Untrusted>,
    /// How far off the time may be, as the controller was told.
    told_error: Nanos,
}

/// See the head of the file.
pub(super) struct Tree {
    options: TreeOptions,
    /// Where others reach this agent; empty if they don't.
    address: String,
    routes: Routes,
    /// The way to the parent: the parent, and the search for one.
    above: Above,
    /// What is below this agent, and what it sends to the parent for it.
    branch: Branch,
    lease: Vouched,
    /// Streams to other nodes, and the sockets at which users ask for them.
    ways: Ways,
    /// The port for other machines, and connections that have not joined.
    entrance: Entrance,
    /// Cluster time: the estimate, and its source on the controller's machine.
    time: TimeSource,
    /// A measurement of the connection to the parent.
    probe: Option<Probe>,
    heard: Vec<Heard>,
}

impl Above {
    /// No parent yet, and these to begin with.
    fn new(heads: Vec<String>) -> Self {
        Self {
            up: None,
            candidates: Candidates::new(heads),
            expected: String::new(),
            without_parent_ns: None,
            refused: None,
            awaits_time: false,
            life: u64::from(process_id()) ^ (monotonic_ns() << 16),
            attempt: 0,
            passages: Default::default(),
            ordered: 0,
        }
    }
}

impl Tree {
    /// An agent without connections.
    pub(super) fn new(options: TreeOptions, clock: ClusterClock, poller: &Poller) -> Self {
        let heads = options.membership.as_ref().map(|membership| membership.head.clone());
        let mut tree = Self {
            routes: Routes::new(options.name.clone(), options.is_root()),
            entrance: Entrance {
                members: Members::of(options.place.clone()),
                port: None,
                endpoint: None,
                renewal: Renewal::default(),
                strangers: BTreeMap::new(),
                guests: BTreeMap::new(),
                refused: BTreeMap::new(),
                is_crowded: false,
                accept_again_ns: None,
                next_token: FIRST_TOKEN,
            },
            options,
            address: String::new(),
            above: Above::new(heads.unwrap_or_default()),
            branch: Branch {
                children: BTreeMap::new(),
                fan_out: usize::MAX,
                sent_on: BTreeMap::new(),
                upward: Upward::default(),
                orders: BTreeMap::new(),
                asking: BTreeSet::new(),
                passing: Passing::default(),
                gathering: Gathering::default(),
                clients: 0,
            },
            lease: Vouched::default(),
            ways: Ways {
                tunnels: Tunnels::default(),
                tunnelled: Vec::new(),
                gate: None,
                door: None,
            },
            time: TimeSource {
                clock,
                source: ClockSource::default(),
                system: None,
                untrusted: None,
                estimator: Estimator::default(),
                era: 0,
                told_error: Nanos::ZERO,
            },
            probe: None,
            heard: Vec::new(),
        };
        #[cfg(feature = "simulation")]
        if let Some(address) = tutti_node::platform::ways::own_address() {
            // Connections come from the caller.
            tree.address = address;
            return tree;
        }
        if let Err(error) = tree.open_doors(poller) {
            warn!(code = %Code::OutOfReach, "no node can be reached from here: {error:#}");
        }
        if let Err(error) = tree.open_port(poller) {
            warn!(code = %Code::OutOfReach, "no other machine can reach this one: {error:#}");
        }
        tree
    }

    fn open_doors(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let Some(membership) = &self.options.membership else { return Ok(()) };
        let for_all = !self.options.private;
        self.ways.gate = Some(listen(&self.options.gate, for_all, GATE, poller)?);
        if !membership.head.is_empty() {
            self.ways.door = Some(listen(&self.options.controller, for_all, DOOR, poller)?);
        }
        Ok(())
    }

    /// Leaves nothing behind.
    pub(super) fn close(&mut self) {
        if self.ways.gate.take().is_some() {
            let _ = std::fs::remove_file(&self.options.gate);
        }
        if self.ways.door.take().is_some() {
            let _ = std::fs::remove_file(&self.options.controller);
        }
    }

    /// What the controller says: how many children there may be, from now on, while those that are
    /// there stay; and how long a lease is.
    pub(super) fn take_settings(&mut self, settings: &Settings) {
        self.branch.fan_out = usize::try_from(settings.fan_out).unwrap_or(usize::MAX).max(1);
        self.lease.lasts(settings.lease);
        self.time.source = settings.clock;
        self.time.estimator.hurry(self.ask_every_ns());
        self.pass_lease_on();
    }

    /// How many nodes are below this one, and how many jobs have parts here or there.
    pub(super) fn branch(&self) -> (usize, usize) {
        (self.routes.counts().values().sum(), self.branch.passing.jobs())
    }

    /// Cluster time.
    pub(super) const fn clock(&self) -> &ClusterClock {
        &self.time.clock
    }

    /// On the controller's machine: cluster time is so far ahead of the clock that both have.
    pub(super) fn learn_time(&mut self, ahead_ns: u64) {
        self.time.era = boot() ^ ahead_ns;
        if self.options.is_root() && self.time.clock.correct(Correction::ahead(ahead_ns)) {
            self.heard.push(Heard::ClockStepped);
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let due = [
            self.up_due_ns(),
            self.probe_due_ns(),
            self.down_due_ns(),
            self.branch.gathering.due_ns(),
            self.entrance.renewal.due_ns(),
            self.entrance.accept_again_ns,
            self.room_at_ns().filter(|_| self.entrance.is_crowded),
            self.entrance.strangers.values().map(|stranger| stranger.until_ns).min(),
            self.entrance.guests.values().map(|guest| guest.until_ns).min(),
            self.entrance.refused.values().map(|refused| refused.until_ns).min(),
        ];
        due.into_iter().flatten().min()
    }

    /// Room for what is heard next, as [`Self::on_time`] and the others gave it.
    pub(super) fn give_back(&mut self, mut heard: Vec<Heard>) {
        if self.heard.capacity() == 0 {
            heard.clear();
            self.heard = heard;
        }
    }

    /// Does what is due, and gives what concerns the agent itself.
    pub(super) fn on_time(&mut self, now_ns: u64) -> Vec<Heard> {
        self.entrance.strangers.retain(|_, stranger| stranger.until_ns > now_ns);
        self.entrance.guests.retain(|_, guest| guest.until_ns > now_ns);
        self.entrance.refused.retain(|_, refused| refused.until_ns > now_ns);
        self.look_up(now_ns);
        self.look_at_probe(now_ns);
        self.look_down(now_ns);
        self.look_at_gathered(now_ns);
        self.look_at_certificate(now_ns);
        std::mem::take(&mut self.heard)
    }

    /// Something happened on the connection of this number. Gives what concerns the agent itself.
    pub(super) fn on_ready(&mut self, token: u64, poller: &Poller) -> Vec<Heard> {
        match token {
            UP => self.on_up(),
            GATE => self.on_gate(poller),
            DOOR => self.on_door(poller),
            PORT => self.on_port(poller),
            token if self.entrance.strangers.contains_key(&token) => self.on_stranger(token),
            token if self.ways.tunnels.is_end(token) => {
                self.ways.tunnels.on_ready(token, &mut self.ways.tunnelled);
            }
            token if self.entrance.guests.contains_key(&token) => self.on_guest(token, poller),
            token if self.entrance.refused.contains_key(&token) => self.on_refused(token, poller),
            token => self.on_child(token),
        }
        self.pass_on(poller);
        std::mem::take(&mut self.heard)
    }

    // ------------------------------------------------------------------ the end of a round

    /// Sends all that has gathered. Gives what concerns the agent itself.
    pub(super) fn settle(&mut self, poller: &Poller) -> Vec<Heard> {
        self.accept_again(poller);
        self.send_gathered();
        self.settle_neighbours(poller);
        self.let_more_in(poller);
        // Only now is known where there is room for more of streams: a peer that is told here that
        // there is none hears from the poller when there is.
        if self.settle_tunnels(poller) {
            self.pass_on(poller);
            self.settle_neighbours(poller);
        }
        std::mem::take(&mut self.heard)
    }

    /// Whether there are parts of streams to be passed on.
    fn settle_tunnels(&mut self, poller: &Poller) -> bool {
        if self.ways.tunnels.is_empty() {
            return false;
        }
        let mut tunnels = std::mem::take(&mut self.ways.tunnels);
        let mut parts = Vec::new();
        tunnels.settle(poller, |place| self.is_busy(place), &mut parts);
        self.ways.tunnels = tunnels;
        let any = !parts.is_empty();
        self.ways.tunnelled.extend(parts);
        any
    }

    fn send_gathered(&mut self) {
        while let Some((child, orders)) = self.branch.orders.pop_first() {
            if let Some(below) = self.branch.children.get_mut(&child) {
                for batch in batches(orders) {
                    below.neighbour.send(&ToBranch::Orders(batch));
                }
            }
        }
        self.send_up();
    }

    fn settle_neighbours(&mut self, poller: &Poller) {
        if let Some(up) = &mut self.above.up
            && let Err(error) = up.neighbour.settle::<FromBranch>(poller)
        {
            self.lose_parent(&error.whole());
        }
        self.entrance
            .strangers
            .retain(|&token, stranger| stranger.link.settle(poller, token).is_ok());
        let broken: Vec<(Child, LinkError)> = self
            .branch
            .children
            .iter_mut()
            .filter_map(|(&child, below)| {
                Some((child, below.neighbour.settle::<ToBranch>(poller).err()?))
            })
            .collect();
        for (child, error) in broken {
            self.lose_child(child, &error);
        }
    }
}

fn listen(path: &Path, for_all: bool, token: u64, poller: &Poller) -> anyhow::Result<UnixListener> {
    let listener = state_dir::listen(path, for_all)?;
    poller.add(&listener, token, Interest::READ)?;
    Ok(listener)
}
