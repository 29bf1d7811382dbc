//! Playing a journal again, and comparing what the core does with what it did.

use crate::entry::Entry;
use crate::journal::{check, decode};
use crate::store::{Number, Store};
use crate::{JournalError, SqliteStore};
use std::path::Path;
use tutti_core::{Action, ClusterTime, Core};

/// What a replay came to.
#[derive(Debug)]
pub struct Replay {
    /// The first entry that was played; nothing if there was none.
    pub first: Option<Number>,
    /// How many were played.
    pub entries: u64,
    /// Whether the first of them began from a state that was stored, rather than from nothing.
    pub from_stored: bool,
    /// How many states were compared.
    pub states: u64,
    /// The first entry with which it is otherwise than it was, and what is.
    pub difference: Option<(Number, Difference)>,
    /// The first entry of a tail that is not whole, if there is one.
    pub torn: Option<Number>,
    /// The state after the last of them.
    pub core: Core,
}

/// What is otherwise than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The actions.
    Actions,
    /// The state.
    State,
}

/// Plays the entries of a journal up to this number, all if there is none. The journal stays as it is, and a
/// controller may write it meanwhile. `each` is shown what is played, with the actions of now.
///
/// # Errors
/// If it can't be read, or is damaged before its tail.
pub fn replay(
    path: &Path,
    until: Option<Number>,
    blank: impl FnOnce() -> Core,
    mut each: impl FnMut(Number, &Entry, &[Action]),
) -> Result<Replay, JournalError> {
    let loaded = SqliteStore::open_to_read(path)?.load_all()?;
    let good = check(path, &loaded)?;
    let core = match &loaded.snapshot {
        Some(snapshot) => decode(path, "the state at entry", snapshot.number, &snapshot.body)?,
        None => blank(),
    };
    let mut replay = Replay {
        first: None,
        entries: 0,
        from_stored: loaded.snapshot.is_some(),
        states: 0,
        difference: None,
        torn: good.bad,
        core,
    };
    let mut actions = Vec::new();
    for (row, entry) in loaded.rows.iter().zip(&good.entries) {
        if until.is_some_and(|until| row.number > until) {
            break;
        }
        actions.clear();
        replay.core.apply(entry.at, &entry.event, &mut actions);
        replay.first.get_or_insert(row.number);
        replay.entries += 1;
        each(row.number, entry, &actions);
        let same_actions = Entry::digest_of(&actions) == entry.actions;
        let same_state = entry.state.is_none_or(|state| state == replay.core.digest());
        replay.states += u64::from(entry.state.is_some());
        if replay.difference.is_none() && !(same_actions && same_state) {
            let what = if same_actions { Difference::State } else { Difference::Actions };
            replay.difference = Some((row.number, what));
        }
    }
    Ok(replay)
}

impl Replay {
    /// The moment of the last entry that was played.
    #[must_use]
    pub const fn until(&self) -> ClusterTime {
        self.core.now()
    }
}
