//! Jobs that have ended, as they are asked for and told, page by page.

use crate::report::JobReport;
use crate::show::{JobDetails, StepReport};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use tutti_types::{EndReason, JobId, Nanos, Outcome};

/// How a job ended, in a word that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// By itself, with exit code 0.
    Completed,
    /// With another exit code.
    Failed,
    /// A user ended it.
    Cancelled,
    /// Its time limit was reached.
    TimedOut,
    /// A task used more memory than it may.
    OutOfMemory,
    /// Its front end went away.
    Abandoned,
    /// A node was lost, or what held the tasks there.
    Lost,
    /// The instance shut down.
    ShutDown,
    /// It was to start after a job that did not end as was asked.
    NeverStarted,
}

impl Ending {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::OutOfMemory,
        Self::Abandoned,
        Self::Lost,
        Self::ShutDown,
        Self::NeverStarted,
    ];

    /// That of a job that ended so.
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        match outcome.reason {
            EndReason::Completed if outcome.ended_well() => Self::Completed,
            EndReason::Completed | EndReason::TaskFailed => Self::Failed,
            EndReason::Cancelled | EndReason::Requeued { .. } => Self::Cancelled,
            EndReason::TimedOut => Self::TimedOut,
            EndReason::OutOfMemory => Self::OutOfMemory,
            EndReason::FrontEndLost => Self::Abandoned,
            EndReason::NodeLost(_) => Self::Lost,
            EndReason::ShutDown => Self::ShutDown,
            EndReason::NeverAfter(_) | EndReason::Declined => Self::NeverStarted,
        }
    }

    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed-out",
            Self::OutOfMemory => "out-of-memory",
            Self::Abandoned => "abandoned",
            Self::Lost => "lost",
            Self::ShutDown => "shut-down",
            Self::NeverStarted => "never-started",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that is no [`Ending`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jobs do not end as {word:?}; they end as {}", Ending::ALL.map(Ending::word).join(", "))]
pub struct EndingError {
    /// What was given.
    pub word: String,
}

impl FromStr for Ending {
    type Err = EndingError;

    fn from_str(word: &str) -> Result<Self, EndingError> {
        let found = Self::ALL.into_iter().find(|ending| ending.word() == word);
        found.ok_or_else(|| EndingError { word: word.to_string() })
    }
}

/// Where a page ends: the end of its last job in milliseconds since 1970, and the job.
pub type PageEnd = (u64, JobId);

/// Which jobs that have ended are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedQuery {
    /// Those of this user, by name or number.
    pub user: Option<String>,
    /// Those that ended then or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Those that ended before.
    pub until_ms: Option<u64>,
    /// Those that ended in one of these ways; any, if there is none.
    pub endings: Vec<Ending>,
    /// Those behind the page that ended here.
    pub after: Option<PageEnd>,
    /// How much of each job is wanted.
    pub part: JobPart,
}

/// How much of a job is asked for. What tables do not show of it only its owner and root may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobPart {
    /// What tables show.
    #[default]
    Table,
    /// Also its nodes and its further steps.
    Places,
    /// Also what it was to run.
    All,
}

/// A job that has ended, with all that is kept of it but its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedReport {
    /// What tables show.
    pub job: JobReport,
    /// Its owner.
    pub uid: u32,
    /// With which group.
    pub gid: u32,
    /// How it ended.
    pub ending: Ending,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// When it had ended, likewise.
    pub ended_ms: u64,
    /// How long it might have run.
    pub time_limit: Option<Nanos>,
    /// What it was to run; `None` if that was not asked for, or is not the asker's to see.
    pub details: Option<Box<JobDetails>>,
    /// Its further steps, likewise. Its nodes are its [`JobReport::placement`] then.
    pub steps: Vec<StepReport>,
}
