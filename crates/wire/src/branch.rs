//! Messages between neighbours in the control tree.
//!
//! The agents of a cluster form a tree; at its root is the agent of the machine that the controller
//! runs on. Each has one connection to its parent, and over it travels everything: orders to the
//! nodes of its branch, their reports, streams between users and what is far from them, and the
//! time. What is meant for several nodes goes over each connection once.

use crate::code::Code;
use crate::frame::{TooLong, encoded_len, pack, pack_by};
use crate::launch::{Launch, Share};
use crate::limits::{BATCH_BYTES_MAX, BATCH_MAX, ITEM_BYTES_MAX, TUNNEL_CHUNK_BYTES};
use crate::pmi::Exchange;
use crate::tree::{FromAgent, ToAgent};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{ClusterTime, Nanos, NodeId};

/// The target of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipients {
    /// These nodes, in ascending order.
    Nodes(Vec<NodeId>),
    /// A node that has asked to join: the answer, before it has a number.
    Joiner {
        /// Its name.
        name: String,
        /// Which of its requests is answered.
        attempt: u64,
        /// The life of its agent that it was made in.
        life: u64,
    },
}

/// An order on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its target.
    pub to: Recipients,
    /// What to do.
    pub order: ToAgent,
}

/// Orders in messages of moderate length: many small ones in one, a long one by itself.
#[must_use]
pub fn batches(orders: Vec<Order>) -> Vec<Vec<Order>> {
    pack(orders, BATCH_BYTES_MAX, BATCH_MAX)
}

/// Puts the shares of a job's nodes into as few launches as hold them: each has the whole of
/// `launch` besides.
///
/// # Errors
/// If no order holds the launch with the share of one of the nodes.
pub fn split_shares(
    launch: &Launch,
    shares: Vec<(NodeId, Share)>,
) -> Result<Vec<Vec<(NodeId, Share)>>, TooLong> {
    // Numbers of variants, and the lengths of the lists of shares and of recipients.
    const HEADS_BYTES: usize = 64;
    let len = |share: &(NodeId, Share)| encoded_len(share) + encoded_len(&share.0);
    let whole = encoded_len(launch).saturating_add(HEADS_BYTES);
    let longest = shares.iter().map(len).max().unwrap_or_default();
    match ITEM_BYTES_MAX.checked_sub(whole) {
        Some(room) if longest <= room => Ok(pack_by(shares, len, room, usize::MAX)),
        _ => Err(TooLong { bytes: whole.saturating_add(longest) }),
    }
}

/// The node of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// These nodes': each of them says the same.
    Nodes(Vec<NodeId>),
    /// Of a node that has no number yet: its request to join.
    Joiner(Joining),
}

/// Where in the tree, and how, a node joins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// Which of the agent's requests it is: the answer bears the same number.
    pub attempt: u64,
    /// The agent's life: a number that no other agent of the node has had. An agent that joins
    /// twice in one life has moved.
    pub life: u64,
    /// The name of the node that its parent is on; empty at the root.
    pub parent: String,
    /// How many connections are between it and the root.
    pub depth: u16,
    /// How far off cluster time may be there.
    pub time_error: Nanos,
    /// The fingerprint of the key that it has shown to its parent. The parent says so: whatever
    /// else stands here counts for nothing.
    pub key: [u8; 32],
    /// The address from which it has connected, likewise; empty at the root.
    pub address: String,
}

/// A report on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its node.
    pub from: Origin,
    /// What it has to say.
    pub report: FromAgent,
}

/// A part of what nodes have stored before a barrier of a job. It goes when nothing else waits, as
/// parts of streams do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// On the way up: its node; of several nodes, it is a part of all that they have stored
    /// together. On the way down: the nodes it is for. In ascending order.
    pub nodes: Vec<NodeId>,
    /// The part.
    pub exchange: Exchange,
}

/// An agent that others may connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// The name of its node; empty where it is not known.
    pub name: String,
    /// Where it listens.
    pub address: String,
}

/// What a parent, or the controller, tells the agent at the head of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBranch {
    /// Orders, in their order.
    Orders(Vec<Order>),
    /// What all nodes of a job have stored before a barrier.
    Exchanged(Passed),
    /// Part of a stream.
    Tunnel(Tunnelled),
    /// The answer to `Clock`.
    Clock(ClockReply),
    /// The answer to `Here`: the branch is part of the tree.
    Taken {
        /// The agents above, from the root down to the sender of this.
        above: Vec<Contact>,
    },
    /// The answer to `Here`: this one is to be asked instead.
    Elsewhere(Contact),
    /// The parent has lost its own parent, and has another: every node of the branch asks again to
    /// join.
    JoinAgain {
        /// The agents above, as in `Taken`.
        above: Vec<Contact>,
    },
    /// The parent goes out of service, or finds no way to the controller: another is to be looked
    /// for.
    Leaving,
    /// These nodes are out of reach, or have gone to another place in the tree: streams to them
    /// end.
    Gone(Vec<NodeId>),
    /// This node was removed from the cluster: its parent lets go of it.
    Removed {
        /// The node.
        node: NodeId,
    },
    /// The answer to `Renew`, for a node of the branch.
    Renewed {
        /// The node's name.
        name: String,
        /// Its new certificate.
        certificate: ByteBuf,
    },
    /// The branch may not join, and why.
    Refused {
        /// Why.
        reason: String,
    },
    /// The answer to the last `Probe` of a round.
    Probed {
        /// The round.
        number: u32,
    },
    /// The agent is that of a client machine, and its streams begin at this number until another
    /// one comes.
    Client {
        /// The number; see [`is_client`].
        node: NodeId,
    },
}

/// What the agent at the head of a branch tells its parent, or the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromBranch {
    /// The first message.
    Here {
        /// The name of the agent's node.
        name: String,
        /// Where children would find it, or empty.
        address: String,
        /// Where it has looked in vain of late, at most [`crate::limits::UNREACHABLE_MAX`]: it need
        /// not be sent there.
        unreachable: Vec<String>,
    },
    /// Reports of the nodes of the branch, in the order of each node.
    Reports(Vec<Report>),
    /// What nodes of the branch have stored before a barrier.
    Exchange(Passed),
    /// These nodes are out of reach: their connection to the branch broke.
    Gone(Vec<NodeId>),
    /// How far off cluster time may be at these nodes, where that has changed.
    Times(Vec<(NodeId, Nanos)>),
    /// Part of a stream.
    Tunnel(Tunnelled),
    /// A node of the branch, most likely the first, wants a new certificate in place of its own.
    Renew {
        /// The node's name.
        name: String,
        /// The request for it.
        request: ByteBuf,
        /// The fingerprint of the key that it has shown to its parent; see [`Joining::key`].
        shown: [u8; 32],
        /// That of the key that it has now, which may be a later one.
        current: [u8; 32],
    },
    /// A client machine is connected. Only the agent of the head says so, to the controller.
    Client(ClientMachine),
    /// What time is it?
    Clock {
        /// When it was asked, by the clock of the asking agent, in nanoseconds.
        asked_ns: u64,
    },
    /// Data that says nothing: how long it takes is measured.
    Probe {
        /// The round that it is of.
        number: u32,
        /// Whether it is the last message of the round, which is answered by `Probed`.
        is_last: bool,
        /// At most [`TUNNEL_CHUNK_BYTES`].
        data: ByteBuf,
    },
}

/// The first number of a client machine. Nodes have the numbers below.
const CLIENTS_FROM: u32 = 1 << 31;

/// The number of a client machine: the head's agent counts those that connect. It is good until the
/// connection breaks, and no other part of the cluster keeps it.
#[must_use]
pub const fn client_number(count: u32) -> NodeId {
    NodeId(CLIENTS_FROM | count)
}

/// Whether this is the number of a client machine, which is no node.
#[must_use]
pub const fn is_client(node: NodeId) -> bool {
    node.0 >= CLIENTS_FROM
}

/// A client machine that is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMachine {
    /// Its number.
    pub node: NodeId,
    /// Its name, by its certificate.
    pub name: String,
    /// The address from which it has connected.
    pub address: String,
}

/// What time it was, asked from one's parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReply {
    /// As in the question.
    pub asked_ns: u64,
    /// The parent's cluster time when the question came.
    pub came: ClusterTime,
    /// The parent's cluster time when the answer went.
    pub went: ClusterTime,
    /// How far off the parent's own cluster time may be.
    pub error: Nanos,
    /// Which cluster time that is: another one once the controller's machine was started anew,
    /// whose clock may be any other. What was measured of one says nothing of another, however near
    /// they are.
    pub era: u64,
    /// Until when (cluster time) no node that has joined through the parent is taken for lost: so
    /// long may its jobs run if nothing more is heard. Zero where the parent does not know.
    pub lease: ClusterTime,
    /// What is known by the system's clocks, where these are gone by: as the controller's machine
    /// says.
    pub system: Option<SystemTime>,
}

/// Cluster time by the system's clock of the controller's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemTime {
    /// How far cluster time is ahead of it, in nanoseconds.
    pub ahead_ns: i64,
    /// How far off it may be, as the kernel there says.
    pub error: Nanos,
}

/// A stream's name: unique in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TunnelId {
    /// The node of the agent that opened it.
    pub opener: NodeId,
    /// A number that this node's agent has drawn, and that can't be guessed.
    pub number: u64,
}

/// Where an end of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// On the controller's machine, with the controller.
    Controller,
    /// On this node.
    Node(NodeId),
}

/// Part of a stream, on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnelled {
    /// The end that it comes from. Each agent that it comes to sees whether that is where it came
    /// from.
    pub from: Place,
    /// The end that it goes to.
    pub to: Place,
    /// Of which stream.
    pub tunnel: TunnelId,
    /// What it is.
    pub part: Part,
}

impl Tunnelled {
    /// What the end that it comes from gets where it can't go on.
    #[must_use]
    pub const fn refused(&self, refusal: Refusal) -> Self {
        Self { from: self.to, to: self.from, tunnel: self.tunnel, part: Part::End(Some(refusal)) }
    }
}

/// Why a stream is over before it did what it was opened for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For the agent that opened it.
    pub reason: String,
    /// What kind of thing that is.
    pub code: Code,
}

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// A client wants to speak with the daemon there: the controller, or the node's keeper.
    Open(Vouch),
    /// Bytes, at most [`TUNNEL_CHUNK_BYTES`] of them, and no more on their way than
    /// [`crate::limits::TUNNEL_WINDOW_BYTES`].
    Bytes(ByteBuf),
    /// So many bytes were passed on: so many more may be sent.
    Taken(u32),
    /// Nothing more will come from this end; with a reason if it is not what the daemon or its
    /// client wanted.
    End(Option<Refusal>),
}

impl Part {
    /// Whether it may be sent.
    #[must_use]
    pub fn is_proper(&self) -> bool {
        match self {
            Self::Bytes(data) => data.len() <= TUNNEL_CHUNK_BYTES,
            Self::Open(_) | Self::Taken(_) | Self::End(_) => true,
        }
    }
}

/// The identity of a user, as the kernel of the user's node said to the agent there. Taken only
/// from daemons of the cluster; after it, the connection is the user's, beginning with the user's
/// greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vouch {
    /// The user's node.
    pub node: NodeId,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Process, on the user's node.
    pub pid: i32,
    /// Hard limits of the process, by the kernel's number of the resource.
    pub hard_limits: Vec<u64>,
    /// Whether root of that node is trusted. Only the agent of the head says so, to the controller:
    /// whatever else stands here counts for nothing.
    pub is_trusted: bool,
}

/// What a client tells the agent of its node: the first message to [`crate::Role::Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Through {
    /// The node of the keeper that the client wants. What follows are the client's bytes.
    pub node: NodeId,
}
