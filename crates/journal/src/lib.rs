//! What a controller must not forget: every event before anything is done about it, what belongs to
//! each job that has not ended, and how those ended that have.
//!
//! The scheduling core is pure, so its events are all that is needed to have its state again: a
//! controller that starts takes the latest [`Snapshot`] of the core and applies to it the events
//! that came after. Beside each event stands a digest of the actions that it led to, and here and
//! there one of the whole state, so that a replay can be compared with what happened, bit for bit.
//!
//! - [`Entry`]: what is appended; [`Job`] and [`Keeper`]: what is kept beside the core of jobs that
//!   have not ended, and of nodes; [`EndedJob`]: what is kept of a job that has ended.
//! - [`Published`]: what readers of events are shown of an entry.
//! - [`cut`], [`Segment`]: what a job is to run, in chunks that jobs of one user share.
//! - [`Journal`]: appends in batches, takes snapshots, and knows how much has reached the disk.
//! - [`ReadOnly`]: what a verb reads while no controller runs.
//! - [`replay()`]: plays it again, and says whether the core does what it did.
//! - [`Store`]: where it all lies. [`SqliteStore`] is the one of a controller that is alone: a
//!   file.
//!
//! Appended is not yet on disk: a process that is killed loses nothing of it, a machine that loses
//! power may. A caller that must know asks for [`Journal::noted`] and waits until
//! [`Journal::on_disk`] has come so far; a thread of its own brings it there, for as many at once
//! as have gathered meanwhile.

#![forbid(unsafe_code)]

mod chunks;
mod disk;
mod entry;
mod error;
mod journal;
mod listed;
mod read_only;
mod replay;
mod rows;
mod seal;
mod sqlite;
mod store;
mod wal;

pub use chunks::{ChunkId, Piece, Segment, cut, join};
pub use entry::{Details, EndedJob, Entry, Job, Keeper};
pub use error::JournalError;
pub use journal::{History, Journal, Known, PUBLISHED_BYTES_MAX};
pub use listed::ListedJob;
pub use read_only::ReadOnly;
pub use replay::{Difference, Past, Replay, replay};
pub use sqlite::{SqliteStore, in_use};
pub use store::{
    Append, EndedSize, EndedSpan, Loaded, Number, Published, Row, Snapshot, Store, Sync, Used,
};

/// The form of what is stored. Another one is brought to this when it is opened, or refused.
pub const SCHEMA_VERSION: u32 = 5;

/// Whether a journal of this form can be gone on with.
#[must_use]
pub const fn reads(form: u32) -> bool {
    form >= sqlite::SCHEMA_WITHOUT_SINCE && form <= SCHEMA_VERSION
}
