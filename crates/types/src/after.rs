//! Jobs that start after others: what must have become of these first.

use crate::ids::JobId;
use crate::time::Nanos;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

const NANOS_OF_SECOND: u64 = 1_000_000_000;

/// What must have become of a job before another one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AfterWhat {
    /// It has ended, and well: all its tasks exited with 0.
    Ok,
    /// It has ended in another way.
    NotOk,
    /// It has ended.
    Any,
    /// It has started, or has ended without that.
    Start,
    /// Of two arrays: the element of the same index has ended well, for each element by itself.
    Each,
    /// It has started so long ago, or has ended so long ago without that.
    StartPlus(Nanos),
}

impl AfterWhat {
    /// Those that one word names, with it.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("ok", Self::Ok),
        ("notok", Self::NotOk),
        ("any", Self::Any),
        ("start", Self::Start),
        ("each", Self::Each),
    ];

    /// Whether it is so of a job that has ended, and well or not.
    #[must_use]
    pub const fn is_met_by_end(self, ok: bool) -> bool {
        match self {
            Self::Ok | Self::Each => ok,
            Self::NotOk => !ok,
            Self::Any | Self::Start | Self::StartPlus(_) => true,
        }
    }

    /// What it says of a job, as the end of a sentence that begins with its number.
    #[must_use]
    pub const fn said(self) -> &'static str {
        match self {
            Self::Ok => "has ended well",
            Self::NotOk => "has failed",
            Self::Any => "has ended",
            Self::Start => "has started",
            Self::StartPlus(_) => "has started long enough ago",
            Self::Each => "has ended well, element by element",
        }
    }
}

impl FromStr for AfterWhat {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let found = Self::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|&(_, what)| what).ok_or(())
    }
}

impl fmt::Display for AfterWhat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::StartPlus(delay) = self {
            return write!(f, "start+{}s", delay.0 / NANOS_OF_SECOND);
        }
        let found = Self::WORDS.iter().find(|(_, what)| what == self);
        f.write_str(found.map_or("", |(word, _)| word))
    }
}

/// A job, and what must have become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct After {
    /// Which job.
    pub job: JobId,
    /// What.
    pub what: AfterWhat,
}

/// What must be so before a job comes into line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AfterJobs {
    /// The jobs; at most [`crate::limits::AFTER_MAX`].
    pub jobs: Vec<After>,
    /// Whether one of them is enough; else all of them are needed.
    pub one: bool,
    /// Whether the job stays when that can't be met any more; else it ends then.
    pub stays: bool,
}
