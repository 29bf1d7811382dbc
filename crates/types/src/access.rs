//! Which users may submit jobs, and from which machines.

use crate::ids::{GroupId, UserId};
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The receiver of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Grantee {
    /// All users.
    Everybody,
    /// One.
    User(UserId),
    /// All users that are in a group.
    Group(GroupId),
}

/// From where.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// From every machine.
    Anywhere,
    /// From the machines of a list of nodes and sets, as a user writes it.
    Machines(String),
}

/// All that is granted.
pub type Access = BTreeMap<Grantee, Origin>;
