//! Messages between a machine that wants to join a cluster and the one that has its authority: over
//! a connection on which the newcomer knows its peer, by its token, and the peer does not know the
//! newcomer.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// What a newcomer says, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redeem {
    /// The secret of its token.
    pub secret: ByteBuf,
    /// The name that it wants to have.
    pub name: String,
    /// The request for its certificate.
    pub request: ByteBuf,
    /// Whether it takes itself for a client machine. A token of the other kind is refused, and
    /// stays good.
    pub is_client: bool,
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redeemed {
    /// It is a member now.
    Taken {
        /// The cluster's name.
        cluster: String,
        /// Its certificate.
        certificate: ByteBuf,
        /// That of the authority.
        authority: ByteBuf,
        /// Where the machine that answers is reached.
        addresses: Vec<String>,
    },
    /// It is not, and why.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}
