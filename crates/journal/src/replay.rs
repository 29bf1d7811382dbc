//! Playing a journal again, and comparing what the core does with what it did.

use crate::entry::Entry;
use crate::journal::{bad_job, check, decode_state};
use crate::store::{Number, Store};
use crate::{JournalError, SqliteStore};
use std::path::Path;
use tutti_core::{Action, Core};
use tutti_types::ClusterTime;

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
    /// What else is wrong, so that something is not there that was written.
    pub damage: Option<String>,
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

/// What happened, as a journal has it.
#[derive(Debug)]
pub struct Past {
    /// The state before the first entry.
    pub core: Core,
    /// Whether that was stored, rather than nothing: earlier entries are not kept.
    pub from_stored: bool,
    /// The entries with their places.
    pub entries: Vec<(Number, Entry)>,
    /// The first entry of a tail that is not whole, if there is one.
    pub torn: Option<Number>,
    /// What else is wrong, so that something is not there that was written.
    pub damage: Option<String>,
}

impl Past {
    /// Reads a journal, which stays as it is; a controller may write it meanwhile.
    ///
    /// # Errors
    /// If it can't be read, or is damaged before its tail.
    pub fn read(path: &Path, blank: impl FnOnce() -> Core) -> Result<Self, JournalError> {
        let mut store = SqliteStore::open_to_read(path)?;
        let loaded = store.load_all()?;
        let good = check(path, &loaded)?;
        let core = match &loaded.snapshot {
            Some(snapshot) => decode_state(path, snapshot.number, &snapshot.body)?,
            None => blank(),
        };
        let numbers = loaded.rows.iter().map(|row| row.number);
        let entries = numbers.zip(good.entries).collect();
        let (from_stored, torn) = (loaded.snapshot.is_some(), good.bad);
        let damage = store.remark().or_else(|| bad_job(&loaded));
        Ok(Self { core, from_stored, entries, torn, damage })
    }
}

/// Plays the entries of a journal up to this number, all if there is none. The journal stays as it
/// is, and a controller may write it meanwhile. `each` is shown what is played, with the actions of
/// now.
///
/// # Errors
/// If it can't be read, or is damaged before its tail.
pub fn replay(
    path: &Path,
    until: Option<Number>,
    blank: impl FnOnce() -> Core,
    mut each: impl FnMut(Number, &Entry, &[Action]),
) -> Result<Replay, JournalError> {
    let Past { core, from_stored, entries, torn, damage } = Past::read(path, blank)?;
    let (first, difference) = (None, None);
    let mut replay =
        Replay { first, entries: 0, from_stored, states: 0, difference, torn, damage, core };
    let mut actions = Vec::new();
    for (number, entry) in &entries {
        if until.is_some_and(|until| *number > until) {
            break;
        }
        let differs = play(&mut replay.core, entry, &mut actions);
        replay.first.get_or_insert(*number);
        replay.entries += 1;
        each(*number, entry, &actions);
        replay.states += u64::from(entry.state.is_some());
        replay.difference = replay.difference.or(differs.map(|what| (*number, what)));
    }
    Ok(replay)
}

/// Applies an entry: what of it is otherwise than it was, if anything is. Leaves the actions of
/// now.
pub(crate) fn play(
    core: &mut Core,
    entry: &Entry,
    actions: &mut Vec<Action>,
) -> Option<Difference> {
    actions.clear();
    core.apply(entry.at, &entry.event, actions);
    if Entry::digest_of(actions) != entry.actions {
        return Some(Difference::Actions);
    }
    let is_as_it_was = entry.state.is_none_or(|state| state == core.digest());
    (!is_as_it_was).then_some(Difference::State)
}

impl Replay {
    /// The moment of the last entry that was played.
    #[must_use]
    pub const fn until(&self) -> ClusterTime {
        self.core.now()
    }
}
