//! Parameters: one table from which parsing, listing, checking and the manual are made.
//!
//! Every value is a `u64`: nanoseconds for a duration, a number for a count. How a duration is
//! written by people (`100ms`) is not the core's business.

use crate::limits::{QUANTUM_MAX, QUANTUM_MIN, ROWS_MAX};
use crate::time::Nanos;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What the number of a parameter means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Nanoseconds.
    Duration,
    /// A number of things.
    Count,
    /// One of these words, by its place.
    Choice(&'static [&'static str]),
}

/// What becomes of the jobs behind the first in line, while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// They wait too.
    #[default]
    Fcfs,
    /// Who can't delay it starts, in the order of acceptance.
    Easy,
    /// Who can't delay it starts, the shortest first.
    Sjbf,
    /// Everybody has a reservation, and starts when it comes up.
    Conservative,
}

impl Discipline {
    const ALL: [Self; 4] = [Self::Fcfs, Self::Easy, Self::Sjbf, Self::Conservative];

    /// Whether jobs are looked for that may pass the first in line.
    #[must_use]
    pub const fn lets_by(self) -> bool {
        matches!(self, Self::Easy | Self::Sjbf)
    }
}

impl ParamKind {
    /// The words of a choice; none for other kinds.
    #[must_use]
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Duration | Self::Count => &[],
            Self::Choice(words) => words,
        }
    }
}

/// When a changed parameter takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// At once, also for what runs already.
    Live,
    /// For what happens from then on: what was promised before keeps the old value.
    FromThenOn,
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What its number means.
    pub kind: ParamKind,
    /// The least value.
    pub min: u64,
    /// The greatest value.
    pub max: u64,
    /// The value when nobody set one.
    pub default: u64,
    /// What it does, in one sentence.
    pub help: &'static str,
    /// When a change takes effect.
    pub takes: Takes,
}

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;
const DAY: u64 = 24 * 3600 * SEC;

/// Where each parameter stands in [`TABLE`].
mod at {
    pub(super) const QUANTUM: usize = 0;
    pub(super) const ROWS: usize = 1;
    pub(super) const LEAD: usize = 2;
    pub(super) const FRONT_END_GRACE: usize = 3;
    pub(super) const FREEZE_DEADLINE: usize = 4;
    pub(super) const RETRY_INTERVAL: usize = 5;
    pub(super) const IDLE_EXIT: usize = 6;
    pub(super) const POLICY: usize = 7;
    pub(super) const QUEUE: usize = 8;
    pub(super) const COUNT: usize = 9;
}

/// All parameters there are.
pub const TABLE: &[Param; at::COUNT] = &[
    Param {
        name: "quantum",
        kind: ParamKind::Duration,
        min: QUANTUM_MIN.0,
        max: QUANTUM_MAX.0,
        default: 100 * MS,
        help: "The length of a slot while no class has a share; the mean length otherwise.",
        takes: Takes::Live,
    },
    Param {
        name: "rows",
        kind: ParamKind::Count,
        min: 1,
        max: ROWS_MAX as u64,
        default: 4,
        help: "The multiprogramming limit: how many rows of jobs take turns; further jobs queue. Suspended jobs keep their places and count.",
        takes: Takes::Live,
    },
    Param {
        name: "lead",
        kind: ParamKind::Duration,
        min: 0,
        max: 10 * SEC,
        default: 0,
        help: "How far ahead a change of the timetable activates, so that it reaches all nodes.",
        takes: Takes::Live,
    },
    Param {
        name: "front_end_grace",
        kind: ParamKind::Duration,
        min: 0,
        max: DAY,
        default: 2 * SEC,
        help: "How long a job outlives its vanished front end.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "freeze_deadline",
        kind: ParamKind::Duration,
        min: MS,
        max: 60 * SEC,
        default: 100 * MS,
        help: "How long a switch waits for a process that will not stop before it goes on.",
        takes: Takes::Live,
    },
    Param {
        name: "retry_interval",
        kind: ParamKind::Duration,
        min: 50_000,
        max: SEC,
        default: MS,
        help: "How long the signal method waits before it looks again whether all have stopped.",
        takes: Takes::Live,
    },
    Param {
        name: "idle_exit",
        kind: ParamKind::Duration,
        min: 0,
        max: 365 * DAY,
        default: 600 * SEC,
        help: "How long a private instance stays without a job before it ends; 0 means for ever.",
        takes: Takes::Live,
    },
    Param {
        name: "policy",
        kind: ParamKind::Choice(&["gang", "space"]),
        min: 0,
        max: 1,
        default: 0,
        help: "How jobs share processors: in turns, or each to its end. space:easy also sets the queue.",
        takes: Takes::Live,
    },
    Param {
        name: "queue",
        kind: ParamKind::Choice(&["fcfs", "easy", "sjbf", "conservative"]),
        min: 0,
        max: 3,
        default: 0,
        help: "Who may pass the first in line: nobody, who can't delay it, so but shortest first, who \
               delays nobody.",
        takes: Takes::Live,
    },
];

/// The value of every parameter. A value of this type is always within the ranges of [`TABLE`].
///
/// It travels as a map from names to numbers, so that a journal written before a parameter existed
/// still reads: what is missing has its default.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "BTreeMap<String, u64>", try_from = "BTreeMap<String, u64>")]
pub struct Params {
    values: [u64; at::COUNT],
}

/// Why a parameter can't be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No parameter has that name.
    #[error("there is no parameter {name}; {}", Known(nearest))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The parameter with the most similar name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The value is outside of the parameter's range.
    #[error(
        "{} can't be {}; it may be {}",
        param.name, Shown(param, *value), Range(param)
    )]
    OutOfRange {
        /// Which one.
        param: &'static Param,
        /// The value that was given.
        value: u64,
    },
    /// The word is none of those that the parameter may be.
    #[error("{} can't be {word:?}; it may be {}", param.name, Range(param))]
    NoChoice {
        /// Which one.
        param: &'static Param,
        /// The word that was given.
        word: String,
    },
}

/// What a parameter may be: `2ms to 24h`, `gang or space`.
#[derive(Clone, Copy, Debug)]
pub struct Range(pub &'static Param);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParamKind::Choice(words) = self.0.kind else {
            return write!(f, "{} to {}", Shown(self.0, self.0.min), Shown(self.0, self.0.max));
        };
        for (i, word) in words.iter().enumerate() {
            let between = if i == 0 {
                ""
            } else if i + 1 == words.len() {
                " or "
            } else {
                ", "
            };
            write!(f, "{between}{word}")?;
        }
        Ok(())
    }
}

/// A value as people read it: with the unit of its parameter, or as a word.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub &'static Param, pub u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            ParamKind::Duration => Nanos(self.1).fmt(f),
            ParamKind::Count => self.1.fmt(f),
            ParamKind::Choice(words) => {
                match usize::try_from(self.1).ok().and_then(|index| words.get(index)) {
                    Some(word) => f.write_str(word),
                    None => self.1.fmt(f),
                }
            }
        }
    }
}

/// What to offer to somebody who gave a wrong name.
struct Known<'a>(&'a Option<&'static str>);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nearest) = self.0 {
            return write!(f, "did you mean {nearest}?");
        }
        f.write_str("there are")?;
        for (i, param) in TABLE.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, param.name)?;
        }
        Ok(())
    }
}

impl Default for Params {
    fn default() -> Self {
        let mut values = [0; at::COUNT];
        for (value, param) in values.iter_mut().zip(TABLE) {
            *value = param.default;
        }
        Self { values }
    }
}

impl Params {
    /// The value of the parameter of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        find(name).map(|index| self.values[index])
    }

    /// Sets one parameter.
    ///
    /// # Errors
    /// If there is none of that name, or the value is out of its range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ParamError> {
        let Some(index) = find(name) else {
            return Err(ParamError::Unknown { name: name.into(), nearest: nearest(name) });
        };
        check_range(&TABLE[index], value)?;
        self.values[index] = value;
        Ok(())
    }

    /// Sets a parameter that is a choice by its word; `policy` also takes `space:easy`, which sets
    /// `queue` too.
    ///
    /// # Errors
    /// If there is none of that name, or the word is none of its; nothing is changed then.
    pub fn choose(&mut self, name: &str, word: &str) -> Result<(), ParamError> {
        let Some(index) = find(name) else {
            return Err(ParamError::Unknown { name: name.into(), nearest: nearest(name) });
        };
        if index == at::POLICY
            && let Some((policy, queue)) = word.split_once(':')
        {
            let mut both = self.clone();
            both.choose(name, policy)?;
            both.choose(TABLE[at::QUEUE].name, queue)?;
            *self = both;
            return Ok(());
        }
        let param = &TABLE[index];
        let ParamKind::Choice(words) = param.kind else {
            return Err(ParamError::NoChoice { param, word: word.into() });
        };
        let place = (0..).zip(words).find(|(_, known)| **known == word).map(|(place, _)| place);
        let place = place.ok_or_else(|| ParamError::NoChoice { param, word: word.into() })?;
        self.set(name, place)
    }

    /// Whether all values are within their ranges. They always are, unless this very type is
    /// broken; a driver that got the value from far away may still want to ask.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn check(&self) -> Result<(), ParamError> {
        self.iter().try_for_each(|(param, value)| check_range(param, value))
    }

    /// All parameters with their values, in the order of [`TABLE`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, u64)> + '_ {
        TABLE.iter().zip(self.values)
    }

    /// The length of a slot.
    #[must_use]
    pub const fn quantum(&self) -> Nanos {
        Nanos(self.values[at::QUANTUM])
    }

    /// The multiprogramming limit.
    #[must_use]
    pub fn rows(&self) -> u32 {
        u32::try_from(self.values[at::ROWS]).unwrap_or(ROWS_MAX)
    }

    /// How far ahead a change of the timetable activates.
    #[must_use]
    pub const fn lead(&self) -> Nanos {
        Nanos(self.values[at::LEAD])
    }

    /// How long a job outlives its vanished front end.
    #[must_use]
    pub const fn front_end_grace(&self) -> Nanos {
        Nanos(self.values[at::FRONT_END_GRACE])
    }

    /// How long a switch waits for a straggler.
    #[must_use]
    pub const fn freeze_deadline(&self) -> Nanos {
        Nanos(self.values[at::FREEZE_DEADLINE])
    }

    /// How long the signal method waits between two looks.
    #[must_use]
    pub const fn retry_interval(&self) -> Nanos {
        Nanos(self.values[at::RETRY_INTERVAL])
    }

    /// The policy, as its place among all.
    #[must_use]
    pub fn policy(&self) -> usize {
        usize::try_from(self.values[at::POLICY]).unwrap_or(0)
    }

    /// Who may pass the first in line.
    #[must_use]
    pub fn queue(&self) -> Discipline {
        let place = usize::try_from(self.values[at::QUEUE]).unwrap_or(0);
        Discipline::ALL.get(place).copied().unwrap_or_default()
    }

    /// How long a private instance stays without a job; `None`: for ever.
    #[must_use]
    pub const fn idle_exit(&self) -> Option<Nanos> {
        match self.values[at::IDLE_EXIT] {
            0 => None,
            value => Some(Nanos(value)),
        }
    }
}

impl From<Params> for BTreeMap<String, u64> {
    fn from(params: Params) -> Self {
        params.iter().map(|(param, value)| (param.name.into(), value)).collect()
    }
}

impl TryFrom<BTreeMap<String, u64>> for Params {
    type Error = ParamError;
    fn try_from(values: BTreeMap<String, u64>) -> Result<Self, ParamError> {
        let mut params = Self::default();
        for (name, value) in values {
            params.set(&name, value)?;
        }
        Ok(params)
    }
}

fn find(name: &str) -> Option<usize> {
    TABLE.iter().position(|param| param.name == name)
}

fn check_range(param: &'static Param, value: u64) -> Result<(), ParamError> {
    if value < param.min || value > param.max {
        return Err(ParamError::OutOfRange { param, value });
    }
    Ok(())
}

/// The known name that takes the fewest edits to reach, if those are few.
fn nearest(name: &str) -> Option<&'static str> {
    const LENGTH_MAX: usize = 64;
    if name.len() > LENGTH_MAX {
        return None;
    }
    TABLE
        .iter()
        .map(|param| (edits(name, param.name), param.name))
        .min()
        .filter(|&(edits, known)| edits <= 1 + known.len() / 4)
        .map(|(_, known)| known)
}

/// The Levenshtein distance of two names, in bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.bytes().enumerate() {
        let mut diagonal = above[0];
        above[0] = i + 1;
        for (j, right) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = above[j + 1];
            above[j + 1] = replaced.min(diagonal + 1).min(above[j] + 1);
        }
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{Discipline, ParamError, ParamKind, Params, TABLE};
    use crate::policy::POLICIES;
    use crate::time::Nanos;
    use std::collections::BTreeMap;

    #[test]
    fn defaults_are_within_their_ranges_and_the_accessors_agree_with_the_table() {
        let params = Params::default();
        assert_eq!(params.check(), Ok(()));
        assert_eq!(params.get("quantum"), Some(params.quantum().0));
        assert_eq!(params.get("rows"), Some(u64::from(params.rows())));
        assert_eq!(params.get("lead"), Some(params.lead().0));
        assert_eq!(params.get("front_end_grace"), Some(params.front_end_grace().0));
        assert_eq!(params.get("freeze_deadline"), Some(params.freeze_deadline().0));
        assert_eq!(params.get("retry_interval"), Some(params.retry_interval().0));
        assert_eq!(params.get("idle_exit"), params.idle_exit().map(|idle| idle.0));
        assert_eq!(params.iter().count(), TABLE.len());
    }

    #[test]
    fn a_value_out_of_range_names_the_range_and_changes_nothing() {
        let mut params = Params::default();
        let error = params.set("quantum", 1_000_000).unwrap_err();
        assert_eq!(error.to_string(), "quantum can't be 1ms; it may be 2ms to 24h");
        let error = params.set("rows", 0).unwrap_err();
        assert_eq!(error.to_string(), "rows can't be 0; it may be 1 to 1024");
        assert_eq!(params, Params::default());
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_or_all() {
        let mut params = Params::default();
        let error = params.set("quantm", 1).unwrap_err();
        assert_eq!(error.to_string(), "there is no parameter quantm; did you mean quantum?");
        let error = params.set("colour", 1).unwrap_err();
        assert!(matches!(error, ParamError::Unknown { nearest: None, .. }));
        assert!(error.to_string().contains("quantum, rows, lead"));
        assert!(params.set(&"q".repeat(100_000), 1).is_err());
    }

    #[test]
    fn choices_are_words_and_a_policy_may_name_its_queue() {
        let mut params = Params::default();
        assert_eq!((params.policy(), params.queue()), (0, Discipline::Fcfs));
        params.choose("policy", "space:sjbf").unwrap();
        assert_eq!(POLICIES[params.policy()].name, "space");
        assert_eq!(params.queue(), Discipline::Sjbf);
        params.choose("policy", "gang").unwrap();
        assert_eq!((params.policy(), params.queue()), (0, Discipline::Sjbf));
        let before = params.clone();
        let says = |name, word| params.clone().choose(name, word).unwrap_err().to_string();
        assert_eq!(says("policy", "spice"), "policy can't be \"spice\"; it may be gang or space");
        assert_eq!(
            says("policy", "space:best"),
            "queue can't be \"best\"; it may be fcfs, easy, sjbf or conservative"
        );
        assert_eq!(says("polcy", "gang"), "there is no parameter polcy; did you mean policy?");
        assert_eq!(params, before);
        assert_eq!(
            params.set("queue", 4).unwrap_err().to_string(),
            "queue can't be 4; it may be fcfs, easy, sjbf or conservative"
        );
        for param in TABLE {
            if let ParamKind::Choice(words) = param.kind {
                assert_eq!((param.min, param.max), (0, words.len() as u64 - 1));
            }
        }
        let names: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
        assert_eq!(TABLE.iter().find(|p| p.name == "policy").unwrap().kind.words(), names);
    }

    #[test]
    fn a_map_lacking_a_name_gets_its_default() {
        let map = |name: &str, value: u64| BTreeMap::from([(name.to_owned(), value)]);
        let params = Params::try_from(map("quantum", 5_000_000)).unwrap();
        assert_eq!(params.quantum(), Nanos::from_millis(5));
        assert_eq!(params.rows(), 4);
        assert!(Params::try_from(map("rows", 0)).is_err());
    }

    #[test]
    fn idle_exit_zero_means_never() {
        let mut params = Params::default();
        params.set("idle_exit", 0).unwrap();
        assert_eq!(params.idle_exit(), None);
    }
}
