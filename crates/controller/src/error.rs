//! Why a request is not done, with the code that its message carries.

use super::adopt::CannotAdopt;
use super::nodes::NodesError;
use super::requests::{Forbidden, Improper};
use std::fmt::Display;
use tutti_journal::JournalError;
use tutti_node::codes::code_of_journal;
use tutti_wire::code::Code;
use tutti_wire::local::Reply;

/// See the module.
#[derive(Debug)]
pub(super) struct Problem {
    code: Code,
    reason: String,
}

impl Problem {
    pub(super) fn new(code: Code, reason: impl Display) -> Self {
        Self { code, reason: reason.to_string() }
    }

    /// The answer to a request that could not be done.
    pub(super) fn failed(self) -> Reply {
        let Self { code, reason } = self;
        Reply::Failed { reason, code }
    }

    /// The answer to a request for a job that can't be accepted.
    pub(super) fn declined(self) -> Reply {
        let Self { code, reason } = self;
        Reply::Declined { reason, code }
    }
}

/// A text alone is about a value that a user gave.
impl From<String> for Problem {
    fn from(reason: String) -> Self {
        Self::new(Code::BadValue, reason)
    }
}

impl From<Forbidden> for Problem {
    fn from(error: Forbidden) -> Self {
        let code = match error {
            Forbidden::NoJob(_) | Forbidden::Released(_) => Code::NoJob,
            Forbidden::Ended { .. } => Code::JobEnded,
            Forbidden::NoRank { .. } | Forbidden::RankEnded { .. } | Forbidden::NotBegun(_) => {
                Code::NoPart
            }
            Forbidden::TooManyParts(_) | Forbidden::TooManyMoved => Code::TooMuchAsked,
            Forbidden::NotEnded(_) => Code::JobNotEnded,
            Forbidden::NotYours(..)
            | Forbidden::NotAdmin
            | Forbidden::HeldByAdministrator(_)
            | Forbidden::LongerLimit(..) => Code::NotAllowed,
            Forbidden::HasBegun(_)
            | Forbidden::NotHeld(_)
            | Forbidden::NoPlace(_)
            | Forbidden::Overrun(_)
            | Forbidden::LimitEnds(_)
            | Forbidden::LimitPlanned(_)
            | Forbidden::NoLimit(_)
            | Forbidden::LimitPassed(..) => Code::NotInThatState,
            Forbidden::BeforeItself(_) | Forbidden::IsArray(_) => Code::Improper,
        };
        Self::new(code, error)
    }
}

impl From<Improper> for Problem {
    fn from(error: Improper) -> Self {
        let code = match &error {
            Improper::Stdio
            | Improper::RequeueWithFront
            | Improper::RespawnOfOther
            | Improper::RespawnWithPlans
            | Improper::SecondFront
            | Improper::PolicyArgs(_)
            | Improper::NoSignal
            | Improper::Checkpoint
            | Improper::ImageWithFront
            | Improper::ImageOfSeveral
            | Improper::ImageWithOthers
            | Improper::ImageWithoutRoot => Code::Improper,

            Improper::Adopt(CannotAdopt::NotYours { .. }) | Improper::Limit { .. } => {
                Code::NotAllowed
            }
            Improper::Adopt(_) => Code::CannotAdopt,
            Improper::LongName { .. } | Improper::LongPath { .. } | Improper::TooMuch { .. } => {
                Code::TooMuchAsked
            }
        };
        Self::new(code, error)
    }
}

impl From<NodesError> for Problem {
    fn from(error: NodesError) -> Self {
        let code = match &error {
            NodesError::List(_) | NodesError::Constraint(_) | NodesError::BadSetName { .. } => {
                Code::BadValue
            }
            NodesError::NoNode { .. }
            | NodesError::NoSet { .. }
            | NodesError::NoFeature { .. }
            | NodesError::NoneHas { .. }
            | NodesError::NoneOfThem { .. } => Code::NoSuchNodes,
            NodesError::TooManySets { .. }
            | NodesError::HasJobs { .. }
            | NodesError::OfInstance { .. } => Code::CannotChangeNode,
        };
        Self::new(code, error)
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        Self::new(code_of_journal(&error), error)
    }
}
