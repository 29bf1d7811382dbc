//! What can be wrong with a journal.

use std::path::PathBuf;

/// Why a journal can't be used. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It can't be opened, read or written.
    #[error("the journal {path} can't be {what}: {why}; make room or correct the permissions")]
    Storage {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the library says.
        why: String,
    },
    /// Another controller has it.
    #[error(
        "the journal {path} is in use by another controller{by}: end its instance first, with `tutti down` where \
         that runs, or give this one a place of its own (TUTTI_CLUSTER, or TUTTI_DIR)"
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// Which, as far as it is known.
        by: String,
    },
    /// What it holds is not what was written.
    #[error(
        "the journal {path} is damaged: {what}; `tutti replay {path}` shows how far it is good. To go on \
         without it, end the instance's jobs if any run, and move the file away, with those beside it (-wal and \
         -shm): what was queued, set and recorded is then forgotten"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// What was named as one is none.
    #[error("{path} is no journal of Tutti's: {why}")]
    NotOne {
        /// The file.
        path: PathBuf,
        /// What speaks against it.
        why: String,
    },
    /// It is of another Tutti.
    #[error(
        "the journal {path} has form {found}, and this Tutti knows form {known}: start the Tutti that wrote \
         it"
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its form.
        found: u32,
        /// The one that is known.
        known: u32,
    },
}
