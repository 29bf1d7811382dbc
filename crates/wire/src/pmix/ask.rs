//! What tasks ask of PMIx beyond their own step: names, connections, data of other steps, spawns.
//!
//! The PMIx server of a step passes each request on to the keeper, which answers it by its number.

use crate::limits::SPAWN_BYTES_MAX;
use crate::spawn::Spawned;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Maximum number of requests of a step that wait for answers on a node.
pub const ASKS_MAX: usize = 1024;

/// Maximum length of a name, as PMIx has it.
pub(super) const NAME_BYTES_MAX: usize = 511;

/// Maximum length of the value of a name, and of what a step says in a fence with others.
pub(super) const VALUE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of names in one request.
pub(super) const NAMES_PER_ASK_MAX: usize = 64;

/// Maximum number of ranks that one request names.
pub(super) const MEMBERS_MAX: usize = 32 << 10;

/// Maximum length of the data of a rank for another step.
pub const MODEX_BYTES_MAX: usize = 128 << 10;

/// All ranks of a name space.
pub const ALL_RANKS: u32 = u32::MAX - 1;

/// A value as PMIx has it: the library's number of its type, and its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// The type.
    pub kind: u16,
    /// The value.
    pub bytes: ByteBuf,
}

/// Ranks of one step, by its name space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Members {
    /// The name space.
    pub space: String,
    /// The ranks, or [`ALL_RANKS`].
    pub ranks: Vec<u32>,
}

/// What all members of a set of ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meeting {
    /// They connect.
    Connect,
    /// They disconnect.
    Disconnect,
    /// They wait for each other.
    Fence,
    /// They found a group, of which this is a digest of the name.
    Group(u64),
}

/// A request of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Publish values under names, for the other steps of the job.
    Publish {
        /// The names and their values.
        names: Vec<(ByteBuf, Value)>,
        /// Whether the first that reads a name takes it.
        once: bool,
    },
    /// Look names up.
    Lookup {
        /// The names.
        names: Vec<ByteBuf>,
        /// How long to wait until all are published, in seconds; `None`: not at all.
        wait_s: Option<u32>,
    },
    /// Take names back that the step has published.
    Unpublish {
        /// The names; all of the task if there are none.
        names: Vec<ByteBuf>,
    },
    /// All tasks of this node that are among the members have come to a meeting.
    Meet {
        /// Which kind.
        meeting: Meeting,
        /// The ranks that take part.
        members: Vec<Members>,
        /// What the step says, in a fence or of a group.
        data: ByteBuf,
    },
    /// Get what a rank of another step has said of itself.
    Modex {
        /// The name space of the other step.
        space: String,
        /// The rank.
        rank: u32,
    },
    /// Start further tasks.
    Spawn {
        /// What they run.
        spawned: Spawned,
        /// `NAME=value`: variables that they find beside those of the task that asks.
        environment: Vec<ByteBuf>,
        /// Whether they are MPI programs: those meet the task that asks.
        is_mpi: bool,
    },
}

impl Ask {
    /// Whether it is within the limits that hold for all requests.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        let is_name = |name: &ByteBuf| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        match self {
            Self::Publish { names, .. } => {
                let is_value = |value: &Value| value.bytes.len() <= VALUE_BYTES_MAX;
                let is_fit = |(name, value): &(ByteBuf, Value)| is_name(name) && is_value(value);
                names.len() <= NAMES_PER_ASK_MAX && names.iter().all(is_fit)
            }
            Self::Lookup { names, .. } => {
                !names.is_empty() && names.len() <= NAMES_PER_ASK_MAX && names.iter().all(is_name)
            }
            Self::Unpublish { names } => {
                names.len() <= NAMES_PER_ASK_MAX && names.iter().all(is_name)
            }
            Self::Meet { members, data, .. } => {
                let ranks: usize = members.iter().map(|it| it.ranks.len()).sum();
                !members.is_empty()
                    && members.iter().all(|it| it.space.len() <= NAME_BYTES_MAX)
                    && members.len() + ranks <= MEMBERS_MAX
                    && data.len() <= VALUE_BYTES_MAX
            }
            Self::Modex { space, .. } => space.len() <= NAME_BYTES_MAX,
            Self::Spawn { spawned, environment, .. } => {
                let bytes: usize = environment.iter().map(|it| it.len()).sum();
                spawned.is_within_limits() && spawned.bytes() + bytes <= SPAWN_BYTES_MAX
            }
        }
    }

    /// What it takes while it waits, about, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Lookup { names, .. } => names.iter().map(|name| name.len() + EACH).sum(),
            Self::Meet { members, data, .. } => members_bytes(members) + data.len(),
            _ => EACH,
        }
    }
}

/// What a text or a list takes beside its content, about.
pub(super) const EACH: usize = 64;

pub(super) fn members_bytes(members: &[Members]) -> usize {
    members.iter().map(|it| it.space.len() + 4 * it.ranks.len() + EACH).sum()
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// There is no such name or step.
    NotFound,
    /// The name is published already.
    Taken,
    /// There is no room: too many names, bytes or requests, or no free slot for a spawn.
    NoRoom,
    /// It can't be done where steps are on several nodes.
    NotSupported,
    /// A step that takes part has ended.
    Ended,
    /// The time is over.
    Late,
    /// It names something that can't be.
    Invalid,
}

/// A published value that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The name.
    pub name: ByteBuf,
    /// Its value.
    pub value: Value,
    /// The name space of the step that has published it.
    pub space: String,
    /// The rank that has.
    pub rank: u32,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// It is not.
    Refused(Refused),
    /// What was looked up.
    Found(Vec<Found>),
    /// The name space of the tasks that were started.
    Started(String),
    /// What a rank has said of itself, or all steps in a fence.
    Data(ByteBuf),
    /// A group.
    Group {
        /// Its number, which no other group of its job has.
        number: u32,
        /// What all nodes of its members have said.
        data: ByteBuf,
    },
}
