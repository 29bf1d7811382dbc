//! Where a journal lies: as little as is needed, so that it can be elsewhere than in a file.

use crate::JournalError;
use crate::chunks::ChunkId;
use std::collections::BTreeMap;
use tutti_types::{JobId, NodeId};

/// The place of an entry in the journal, from 1, without gaps.
pub type Number = u64;

/// One entry, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place.
    pub number: Number,
    /// The entry.
    pub body: Vec<u8>,
    /// The checksum of this and of all before.
    pub seal: u32,
}

/// The state after an entry, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The entry.
    pub number: Number,
    /// The checksum of that entry: the next one is sealed with it.
    pub seal: u32,
    /// The state.
    pub body: Vec<u8>,
}

/// What is stored together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// New entries.
    pub rows: Vec<Row>,
    /// New chunks of launches: before the jobs that have them.
    pub chunks: Vec<(ChunkId, Vec<u8>)>,
    /// Jobs that were accepted, with what is kept of each.
    pub accepted: Vec<(JobId, Vec<u8>)>,
    /// Jobs that were launched, and when, as cluster time; `None`: they are in line again.
    pub launched: Vec<(JobId, Option<u64>)>,
    /// What is kept of nodes' keepers.
    pub keepers: Vec<(NodeId, Vec<u8>)>,
    /// Jobs that ended, with what is kept of each from now on: the time of its end, in milliseconds
    /// since 1970, its owner, and the rest.
    pub ended: Vec<(JobId, u64, u32, Vec<u8>)>,
    /// Jobs of which nothing is kept any more.
    pub dropped_jobs: Vec<JobId>,
    /// Chunks that no job has any more.
    pub dropped_chunks: Vec<ChunkId>,
    /// The state after all that.
    pub snapshot: Option<Snapshot>,
    /// What readers of events are shown, by number.
    pub published: Vec<Published>,
    /// How many of the earliest of those are not kept any more.
    pub published_gone: u64,
    /// What the processors of nodes were used for, by the end of the interval, in milliseconds
    /// since 1970.
    pub used: Vec<Used>,
}

/// What readers of events are shown of an entry: one of the events that it led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its place among them, from 1. After a loss of power, numbers are left out.
    pub number: Number,
    /// The entry.
    pub entry: Number,
    /// The event.
    pub body: Vec<u8>,
}

impl Append {
    /// How many bytes the new events for readers have.
    #[must_use]
    pub fn published_bytes(&self) -> u64 {
        self.published.iter().map(|event| event.body.len() as u64).sum()
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { rows, chunks, accepted, launched, keepers, ended, .. } = self;
        let Self { dropped_jobs, dropped_chunks, snapshot, published, used, .. } = self;
        let new = accepted.is_empty() && launched.is_empty() && chunks.is_empty();
        let gone = ended.is_empty() && dropped_jobs.is_empty() && dropped_chunks.is_empty();
        let other = keepers.is_empty() && snapshot.is_none() && published.is_empty();
        rows.is_empty() && new && gone && other && used.is_empty()
    }
}

/// What is found when a store is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The latest state that is stored.
    pub snapshot: Option<Snapshot>,
    /// All entries after it.
    pub rows: Vec<Row>,
    /// The chunks of their launches, by number; those that are not what was written are left out.
    pub chunks: BTreeMap<ChunkId, Vec<u8>>,
    /// What is kept of jobs that have not ended, and when each was launched, if it was.
    pub jobs: Vec<(Vec<u8>, Option<u64>)>,
    /// The latest keeper of each node.
    pub keepers: Vec<Vec<u8>>,
    /// The first of the jobs that is not what was written, if one is not.
    pub bad_job: Option<JobId>,
    /// Nodes of which the keeper is not, and is left out.
    pub bad_keepers: Vec<NodeId>,
}

/// Which jobs that ended are wanted. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedSpan {
    /// Those of this user.
    pub uid: Option<u32>,
    /// Those that ended then or later.
    pub since_ms: Option<u64>,
    /// Those that ended before.
    pub until_ms: Option<u64>,
    /// Those that come behind the job that ended then.
    pub after: Option<(u64, JobId)>,
}

/// What the processors of nodes were used for in an interval: when it ended, in milliseconds since
/// 1970, and the rest.
pub type Used = (u64, Vec<u8>);

/// How much is kept of jobs that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedSize {
    /// How many they are.
    pub jobs: u64,
    /// How many bytes are kept of them.
    pub bytes: u64,
}

/// Brings to disk what was appended; used by a thread of its own.
pub trait Sync: Send {
    /// Returns when all that was appended before the call would survive a loss of power.
    ///
    /// # Errors
    /// If the disk says that it can't.
    fn sync(&mut self) -> std::io::Result<()>;
}

/// A place for a journal.
pub trait Store: Send {
    /// What was found when it was opened and is to be reported, if anything was.
    fn remark(&self) -> Option<String> {
        None
    }

    /// The latest snapshot and what follows it.
    ///
    /// # Errors
    /// If it can't be read.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// The first snapshot that is still there and what follows it; for a replay from the beginning.
    ///
    /// # Errors
    /// If it can't be read.
    fn load_all(&mut self) -> Result<Loaded, JournalError>;

    /// Stores it all, or nothing. A process that is killed afterwards does not lose it.
    ///
    /// # Errors
    /// If it can't be written; nothing was.
    fn append(&mut self, append: &Append) -> Result<(), JournalError>;

    /// Takes out all entries from this one on: they are not whole.
    ///
    /// # Errors
    /// If it can't be written.
    fn cut_back(&mut self, from: Number) -> Result<(), JournalError>;

    /// Takes out at most so many jobs that ended before, in milliseconds since 1970, the earliest
    /// first; says what is gone.
    ///
    /// # Errors
    /// If it can't be written.
    fn forget_ended(&mut self, before_ms: u64, most: u64) -> Result<EndedSize, JournalError>;

    /// How much is kept of jobs that have ended.
    ///
    /// # Errors
    /// If it can't be read.
    fn ended_size(&mut self) -> Result<EndedSize, JournalError>;

    /// Jobs that ended within these bounds, latest first, at most so many. What is not what was
    /// written is left out.
    ///
    /// # Errors
    /// If it can't be read.
    fn ended(&mut self, within: &EndedSpan, most: usize) -> Result<Vec<Vec<u8>>, JournalError>;

    /// What is kept of one job that ended, if it is what was written.
    ///
    /// # Errors
    /// If it can't be read.
    fn ended_job(&mut self, job: JobId) -> Result<Option<Vec<u8>>, JournalError>;

    /// The last number of published events, how many are kept, and how many bytes they have.
    ///
    /// # Errors
    /// If that can't be read.
    fn published_size(&mut self) -> Result<(Number, u64, u64), JournalError>;

    /// How many bytes the earliest published events have, at most so many of them.
    ///
    /// # Errors
    /// If that can't be read.
    fn published_lengths(&mut self, most: u64) -> Result<Vec<u64>, JournalError>;

    /// The number of the earliest published event that is kept; `None`: none is.
    ///
    /// # Errors
    /// If that can't be read.
    fn published_first(&mut self) -> Result<Option<Number>, JournalError>;

    /// Published events behind a number, in their order, at most so many.
    ///
    /// # Errors
    /// If they can't be read, or one is not what was written.
    fn published(&mut self, after: Number, most: usize) -> Result<Vec<Published>, JournalError>;

    /// What the processors of nodes were used for in intervals that ended then or later, and
    /// before; times are milliseconds since 1970. The earliest first, until they have so many
    /// bytes, or more with the last of them. What is not what was written is left out.
    ///
    /// # Errors
    /// If it can't be read.
    fn used(
        &mut self,
        since_ms: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Vec<Used>, JournalError>;

    /// Takes out intervals that ended before, and the earliest ones while they have more bytes than
    /// these; some at a time.
    ///
    /// # Errors
    /// If it can't be written.
    fn forget_used(&mut self, before_ms: u64, bytes_max: u64) -> Result<(), JournalError>;

    /// Jobs that were left out, and were not told before.
    fn left_out(&mut self) -> Vec<JobId> {
        Vec::new()
    }

    /// What brings it to disk.
    ///
    /// # Errors
    /// If that can't be had.
    fn syncer(&mut self) -> Result<Box<dyn Sync>, JournalError>;
}
