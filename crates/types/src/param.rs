//! What a parameter is: a name, what its number means, a range, a default, a sentence of help.
//!
//! The parameters of the whole ([`crate::params`]) and the rules of a class ([`crate::class`]) are
//! tables of these; parsing, listing, checking and what is said of errors are made from them.
//!
//! Every value is a `u64`: nanoseconds for a duration, a number for a count. How a duration is
//! written by people (`100ms`) is not the core's business.

use crate::limits::SHARE_WHOLE;
use crate::time::Nanos;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What the number of a parameter means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Nanoseconds.
    Duration,
    /// Nanoseconds, or this word for [`UNBOUNDED`].
    DurationOr(&'static str),
    /// A number of things.
    Count,
    /// A number of things, or this word for [`UNBOUNDED`].
    CountOr(&'static str),
    /// Bytes, or this word for [`UNBOUNDED`].
    BytesOr(&'static str),
    /// A part of a whole, in ten-thousandths.
    Share,
    /// Bytes, or a part of what a node has ([`NodePart`]).
    NodePart,
    /// One of these words, by its place.
    Choice(&'static [&'static str]),
}

/// The value beyond all others, for parameters that have a word for it.
pub const UNBOUNDED: u64 = u64::MAX;

/// The value, unless it is [`UNBOUNDED`].
pub fn bounded(value: u64) -> Option<u64> {
    Some(value).filter(|&value| value != UNBOUNDED)
}

impl ParamKind {
    /// The words of a choice; none for other kinds.
    #[must_use]
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Duration
            | Self::DurationOr(_)
            | Self::Count
            | Self::CountOr(_)
            | Self::BytesOr(_)
            | Self::NodePart
            | Self::Share => &[],
            Self::Choice(words) => words,
        }
    }

    /// What stands for [`UNBOUNDED`].
    const fn unbounded(self) -> Option<&'static str> {
        match self {
            Self::DurationOr(word) | Self::CountOr(word) | Self::BytesOr(word) => Some(word),
            Self::Duration | Self::Count | Self::Share | Self::NodePart | Self::Choice(_) => None,
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
    /// The greatest value, but for [`UNBOUNDED`] where there is a word for it.
    pub max: u64,
    /// The value when none is set.
    pub default: u64,
    /// What it does, in one sentence.
    pub help: &'static str,
    /// When a change takes effect.
    pub takes: Takes,
}

/// Why a parameter can't be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No parameter has that name.
    #[error("there is no parameter {name}; {}", Known(nearest, table))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The parameter with the most similar name, if one is similar.
        nearest: Option<&'static str>,
        /// All there are.
        table: &'static [Param],
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

impl Param {
    /// The value that a word stands for.
    ///
    /// # Errors
    /// If it stands for none.
    pub fn value_of(&'static self, word: &str) -> Result<u64, ParamError> {
        let choices = (0..).zip(self.kind.words()).map(|(value, &known)| (value, known));
        let unbounded = self.kind.unbounded().map(|known| (UNBOUNDED, known));
        let found = choices.chain(unbounded).find(|&(_, known)| known == word);
        let value = found.map(|(value, _)| value);
        value.ok_or_else(|| ParamError::NoChoice { param: self, word: word.into() })
    }

    /// Whether a value is within the range.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&'static self, value: u64) -> Result<(), ParamError> {
        let unbounded = value == UNBOUNDED && self.kind.unbounded().is_some();
        if unbounded || (value >= self.min && value <= self.max) {
            return Ok(());
        }
        Err(ParamError::OutOfRange { param: self, value })
    }
}

/// Where the parameter of that name stands.
///
/// # Errors
/// If there is none.
pub fn find(table: &'static [Param], name: &str) -> Result<usize, ParamError> {
    let place = table.iter().position(|param| param.name == name);
    place.ok_or_else(|| ParamError::Unknown {
        name: name.into(),
        nearest: nearest(table, name),
        table,
    })
}

/// What a parameter may be: `2ms to 1d`, `gang or space`.
#[derive(Clone, Copy, Debug)]
pub struct Range(pub &'static Param);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.kind == ParamKind::NodePart {
            return f.write_str("bytes such as 4G, or 0% to 100%");
        }
        let ParamKind::Choice(words) = self.0.kind else {
            write!(f, "{} to {}", Shown(self.0, self.0.min), Shown(self.0, self.0.max))?;
            return self.0.kind.unbounded().map_or(Ok(()), |word| write!(f, ", or {word}"));
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
        match (self.0.kind, self.1) {
            (
                ParamKind::DurationOr(word) | ParamKind::CountOr(word) | ParamKind::BytesOr(word),
                UNBOUNDED,
            ) => f.write_str(word),
            (ParamKind::Duration | ParamKind::DurationOr(_), ns) => Nanos(ns).fmt(f),
            (ParamKind::Count | ParamKind::CountOr(_), count) => count.fmt(f),
            (ParamKind::BytesOr(_), bytes) => Bytes(bytes).fmt(f),
            (ParamKind::Share, share) => Percent(share).fmt(f),
            (ParamKind::NodePart, value) => NodePart::of(value).fmt(f),
            (ParamKind::Choice(words), value) => {
                match usize::try_from(value).ok().and_then(|index| words.get(index)) {
                    Some(word) => f.write_str(word),
                    None => value.fmt(f),
                }
            }
        }
    }
}

/// An amount of something that nodes have: so many bytes of each, or a part of what each has.
///
/// As the value of a parameter, parts are the numbers from 2^63 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePart {
    /// So many bytes.
    Bytes(u64),
    /// So many ten-thousandths of what the node has; the whole at most.
    Part(u64),
}

impl NodePart {
    /// The value of no part at all; that of ten-thousandths is so much more.
    const PARTS_FROM: u64 = 1 << 63;

    /// The greatest value: all that a node has.
    pub const MAX: u64 = Self::PARTS_FROM + SHARE_WHOLE as u64;

    /// The amount that a value stands for.
    #[must_use]
    pub const fn of(value: u64) -> Self {
        match value.checked_sub(Self::PARTS_FROM) {
            None => Self::Bytes(value),
            Some(part) => Self::Part(part),
        }
    }

    /// The value that stands for it.
    #[must_use]
    pub const fn value(self) -> u64 {
        match self {
            Self::Bytes(bytes) if bytes < Self::PARTS_FROM => bytes,
            Self::Bytes(_) => Self::PARTS_FROM - 1,
            Self::Part(part) => Self::PARTS_FROM.saturating_add(part),
        }
    }

    /// How many bytes it is of a node that has so many: all of them at most.
    #[must_use]
    pub fn bytes(self, has: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.min(has),
            Self::Part(part) => {
                let part = u128::from(has) * u128::from(part) / u128::from(SHARE_WHOLE);
                u64::try_from(part).unwrap_or(u64::MAX).min(has)
            }
        }
    }
}

impl fmt::Display for NodePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => Bytes(bytes).fmt(f),
            Self::Part(part) => Percent(part).fmt(f),
        }
    }
}

/// Bytes in the largest unit that gives a whole number: `4G`, `1536M`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let whole = |shift: u32| self.0 > 0 && self.0.is_multiple_of(1 << shift);
        match units.into_iter().find(|&(shift, _)| whole(shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// Ten-thousandths, as people write them: `25%`, `12.5%`.
pub struct Percent(pub u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = u64::from(SHARE_WHOLE / 100);
        match (self.0 / unit, self.0 % unit) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

/// What to offer for a wrong name.
struct Known<'a>(&'a Option<&'static str>, &'a &'static [Param]);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nearest) = self.0 {
            return write!(f, "did you mean {nearest}?");
        }
        f.write_str("there are")?;
        for (i, param) in self.1.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, param.name)?;
        }
        Ok(())
    }
}

/// The known name that takes the fewest edits to reach, if those are few.
fn nearest(table: &'static [Param], name: &str) -> Option<&'static str> {
    const LENGTH_MAX: usize = 64;
    if name.len() > LENGTH_MAX {
        return None;
    }
    table
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
