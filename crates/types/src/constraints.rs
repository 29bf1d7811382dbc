//! What a job may say of the nodes that it runs on, besides how much it needs of them.

use crate::counted::{Asked, Counted};
use crate::ids::NodeId;
use crate::time::Nanos;
use alloc::collections::BTreeSet;
use core::fmt;
use serde::{Deserialize, Serialize};

/// On which nodes a job wants to be, and how its tasks are to lie there. By default it has no wish.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeWish {
    /// Exactly so many nodes, none with more than one task more than another; `None`: any number.
    pub count: Option<u32>,
    /// None but these; `None`: any.
    pub among: Option<BTreeSet<NodeId>>,
    /// None of these.
    pub except: BTreeSet<NodeId>,
    /// As few tasks on each node as can be.
    pub spread: bool,
    /// No other job at home on its nodes in its row: it has all their processors there.
    pub exclusive: bool,
}

impl NodeWish {
    /// Whether any nodes will do, and any number of tasks on each.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let Self { count, among, except, spread, exclusive } = self;
        count.is_none() && among.is_none() && except.is_empty() && !spread && !exclusive
    }

    /// Whether it wants nothing but to be kept to certain nodes.
    #[must_use]
    pub const fn names_only(&self) -> bool {
        self.count.is_none() && !self.spread && !self.exclusive
    }

    /// Whether there are nodes that it may not be on, up or not.
    #[must_use]
    pub fn is_choosy(&self) -> bool {
        self.among.is_some() || !self.except.is_empty()
    }

    /// Whether it may be on a node.
    #[must_use]
    pub fn allows(&self, node: NodeId) -> bool {
        let named = self.among.as_ref().is_none_or(|among| among.contains(&node));
        named && !self.except.contains(&node)
    }
}

/// What becomes of a job when a node that runs some of it is lost, or what held its tasks there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnNodeLoss {
    /// It ends whole.
    #[default]
    Kill,
    /// It ends on its other nodes, and when nothing of it is left there it is in line again, in its
    /// old place; at most [`REQUEUES_MAX`](crate::limits::REQUEUES_MAX) times, and only if no front
    /// end waits for it.
    Requeue,
    /// The tasks there count as lost; the others go on, and get this signal, if one is named.
    Notify {
        /// The signal's number.
        signal: Option<u8>,
    },
    /// The tasks there are started again on other processors, with the same ranks. The others go
    /// on, and get this signal at each loss and each return, if one is named. Only for jobs that
    /// start with a task in each slot, and for which no front end waits; others end whole.
    Respawn {
        /// How long the tasks wait for processors.
        wait: Nanos,
        /// The signal's number.
        signal: Option<u8>,
        /// What becomes of the job if there are none in time.
        otherwise: NoRespawn,
    },
}

/// What becomes of a job whose lost tasks could not be started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NoRespawn {
    /// As [`OnNodeLoss::Kill`].
    #[default]
    Kill,
    /// As [`OnNodeLoss::Requeue`].
    Requeue,
    /// As [`OnNodeLoss::Notify`].
    Notify,
}

/// Why what a job wishes of its nodes can't be had, with the nearest wish that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WishRefusal {
    /// More nodes than tasks.
    MoreNodesThanTasks {
        /// Nodes asked for.
        nodes: u32,
        /// Tasks asked for.
        tasks: u32,
    },
    /// There are fewer nodes than were asked for, or fewer of them can take their share of the
    /// tasks.
    NotSoManyNodes {
        /// Asked for.
        asked: u32,
        /// As many take jobs, of those that were allowed.
        there: u32,
        /// Whether only some nodes were allowed.
        among: bool,
        /// The nearest number of nodes that would be accepted; `None`: none was found.
        nearest: Option<u32>,
    },
    /// The nodes that were allowed have too little room for the tasks.
    NoRoomAmong {
        /// Tasks asked for.
        tasks: u32,
        /// As many as there is room for.
        room: u64,
    },
    /// None of the nodes that were allowed is up and takes jobs.
    NoneAmong,
}

fn write_nodes(
    f: &mut fmt::Formatter<'_>,
    asked: u32,
    there: u32,
    among: bool,
    nearest: Option<u32>,
) -> fmt::Result {
    let of = if among { "of the nodes that the job may be on, " } else { "" };
    match (asked, there) {
        (1, _) => write!(f, "one node was asked for, and {of}none has room for all tasks; ")?,
        (_, 0..=1) if asked > there => {
            write!(f, "{asked} nodes were asked for, and {of}there is only one that takes jobs; ")?;
        }
        _ if asked > there => write!(
            f,
            "{asked} nodes were asked for, and {of}there are only {there} that take jobs; "
        )?,
        _ => write!(
            f,
            "{asked} nodes were asked for, and {of}fewer can take their share of the tasks; "
        )?,
    }
    match nearest {
        Some(nearest) => write!(f, "ask for -N {nearest}"),
        None => f.write_str("ask for fewer tasks (-n) or processors (-c)"),
    }
}

impl fmt::Display for WishRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MoreNodesThanTasks { nodes, tasks } => write!(
                f,
                "{nodes} nodes were asked for and {}; ask for at most -N {tasks}, or for at least \
                 -n {nodes}",
                Counted(u64::from(*tasks), "task")
            ),
            Self::NotSoManyNodes { asked, there, among, nearest } => {
                write_nodes(f, *asked, *there, *among, *nearest)
            }
            Self::NoRoomAmong { tasks, room } => write!(
                f,
                "{} asked for, and the nodes that the job may be on have room for {room}; ask for at \
                 most -n {room}, or allow more nodes",
                Asked(u64::from(*tasks), "task")
            ),
            Self::NoneAmong => f.write_str(
                "none of the nodes that the job may be on is up and takes jobs (tutti nodes); allow \
                 others, or try again later",
            ),
        }
    }
}
