//! What is in a journal.

use crate::chunks::Segment;
use crate::rows::EndedRow;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::hash::Hasher;
use tutti_core::{Action, Event};
use tutti_types::digest::Digest;
use tutti_types::{ClusterTime, JobId, Nanos, NodeId, Outcome};
use tutti_wire::launch::Credentials;
use tutti_wire::local::SubmitKey;
use tutti_wire::notify::Notify;
use tutti_wire::report::{JobReport, TaskHistory};
use tutti_wire::show::{JobDetails, StepReport};

/// One event, and what it led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was applied.
    pub at: ClusterTime,
    /// What happened.
    pub event: Event,
    /// A digest of the actions that followed ([`Entry::digest_of`]).
    pub actions: u64,
    /// The digest of the core's state after it, where it was taken.
    pub state: Option<u64>,
}

/// What the controller keeps beside the core of a job that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Which.
    pub job: JobId,
    /// The user and groups that it runs as.
    pub credentials: Credentials,
    /// By what its owner would ask for it again.
    pub key: Option<SubmitKey>,
    /// The owner's name.
    pub user: String,
    /// What `tutti ps` calls it.
    pub name: String,
    /// What to run: see [`crate::join`].
    pub launch: Vec<Segment>,
    /// When it was accepted.
    pub accepted: ClusterTime,
    /// When people's clocks said that, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// When and how its user is notified, if it is.
    pub notify: Option<Notify>,
}

/// How a node's keeper can be reached, and whether it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    /// Of which node.
    pub node: NodeId,
    /// What tells it from an earlier one.
    pub incarnation: u64,
    /// Where front ends on its node reach it.
    pub attach: ByteBuf,
    /// Where other nodes reach its node.
    pub address: String,
    /// Whether the node is the controller's machine.
    pub is_here: bool,
    /// When it was first heard of: what was launched there before may have been begun by an earlier
    /// one.
    pub since: ClusterTime,
}

/// What a job that has ended was, stored behind its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// What it was to run, where it was, and its states.
    pub job: JobDetails,
    /// The latest of its further steps, lowest numbers first; none of a job that an earlier release
    /// stored.
    pub steps: Vec<StepReport>,
}

/// What is kept of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EndedRow", into = "EndedRow")]
pub struct EndedJob {
    /// What tables show of it.
    pub report: JobReport,
    /// Its owner.
    pub uid: u32,
    /// With which group.
    pub gid: u32,
    /// By what its owner would ask for it again.
    pub key: Option<SubmitKey>,
    /// How long it might have run.
    pub time_limit: Option<Nanos>,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was accepted.
    pub accepted: ClusterTime,
    /// When it had ended.
    pub at: ClusterTime,
    /// When people's clocks said so, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// The same of its end.
    pub ended_ms: u64,
    /// Its tasks by rank; none where there were too many to be remembered.
    pub tasks: Vec<TaskHistory>,
}

impl Entry {
    /// A digest of actions, in their order: FNV-1a, 64 bits, of how they are written.
    #[must_use]
    pub fn digest_of(actions: &[Action]) -> u64 {
        let mut digest = Digest::new();
        for action in actions {
            // Nothing of an action can't be written, and a digest has no end that could be reached.
            digest = postcard::serialize_with_flavor(action, Sum(digest)).unwrap_or(digest);
        }
        digest.finish()
    }
}

/// Writes nowhere, and knows what was written by its digest.
struct Sum(Digest);

impl Flavor for Sum {
    type Output = Digest;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.write(&[byte]);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Digest> {
        Ok(self.0)
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("what we keep has no parts that can't be written")
}
