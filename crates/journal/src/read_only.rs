//! The journal of a controller that does not run, for a verb that only reads it.

use crate::entry::{Details, EndedJob};
use crate::journal::{
    bad_job, check, decode_state, details_of, ended_of, listed_within, used_within,
};
use crate::listed::ListedJob;
use crate::replay::play;
use crate::store::{EndedSpan, Store};
use crate::{JournalError, SqliteStore};
use std::path::{Path, PathBuf};
use tutti_core::Core;
use tutti_types::JobId;
use tutti_wire::usage::UsageSample;

/// A journal that stays as it is.
pub struct ReadOnly {
    path: PathBuf,
    store: SqliteStore,
}

impl ReadOnly {
    /// Opens the journal at this path.
    ///
    /// # Errors
    /// If there is none, or it can't be read.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Ok(Self { path: path.into(), store: SqliteStore::open_to_read(path)? })
    }

    /// The state after the last entry; `blank` is the one before the first.
    ///
    /// # Errors
    /// If it can't be read, or is damaged before its tail.
    pub fn core(&mut self, blank: impl FnOnce() -> Core) -> Result<Core, JournalError> {
        let loaded = self.store.load()?;
        if let Some(what) = bad_job(&loaded) {
            return Err(JournalError::Damaged { path: self.path.clone(), what });
        }
        let good = check(&self.path, &loaded)?;
        let mut core = match &loaded.snapshot {
            Some(state) => decode_state(&self.path, state.number, &state.body)?,
            None => blank(),
        };
        let mut actions = Vec::new();
        for entry in &good.entries {
            play(&mut core, entry, &mut actions);
        }
        Ok(core)
    }

    /// Jobs that ended within these bounds, latest first, at most so many.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn ended(
        &mut self,
        within: &EndedSpan,
        most: usize,
    ) -> Result<Vec<EndedJob>, JournalError> {
        let found = self.ended_list(within, most, false)?;
        Ok(found.into_iter().map(|listed| listed.job).collect())
    }

    /// The same as lists have them; see [`crate::Journal::ended_list`].
    ///
    /// # Errors
    /// If they can't be read.
    pub fn ended_list(
        &mut self,
        within: &EndedSpan,
        most: usize,
        in_full: bool,
    ) -> Result<Vec<ListedJob>, JournalError> {
        listed_within(&mut self.store, &self.path, within, most, in_full)
    }

    /// A job that ended.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn ended_job(&mut self, job: JobId) -> Result<Option<EndedJob>, JournalError> {
        ended_of(&mut self.store, &self.path, job)
    }

    /// What the processors of nodes were used for; see [`crate::Journal::used`].
    ///
    /// # Errors
    /// If it can't be read.
    pub fn used(
        &mut self,
        since_ms: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Vec<UsageSample>, JournalError> {
        used_within(&mut self.store, &self.path, (since_ms, until_ms), bytes_max)
    }

    /// A job that ended, with what it was; see [`crate::Journal::ended_details`].
    ///
    /// # Errors
    /// If it can't be read.
    pub fn ended_details(
        &mut self,
        job: JobId,
    ) -> Result<Option<(EndedJob, Option<Details>)>, JournalError> {
        details_of(&mut self.store, &self.path, job)
    }
}
