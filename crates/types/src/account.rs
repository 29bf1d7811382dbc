//! Accounts of processor time.

use crate::ids::{GroupId, UserId};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// The account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BankAccount {
    /// A user's.
    User(UserId),
    /// A group's: of all jobs that were submitted with it.
    Group(GroupId),
}

/// Processor time: nanoseconds, added up over processors.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ProcessorTime(pub u128);

impl ProcessorTime {
    /// So much time of one processor.
    #[must_use]
    pub const fn of_one(time: Nanos) -> Self {
        Self(time.0 as u128)
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub fn seconds(self) -> u64 {
        u64::try_from(self.0 / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

/// After which time an allowance counts from nothing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BankPeriod {
    /// At midnight.
    Day,
    /// On Monday at midnight.
    Week,
    /// On the first of the month at midnight.
    Month,
}

impl BankPeriod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

/// When an allowance counts from nothing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Renewal {
    /// How often.
    pub period: BankPeriod,
    /// When the period began that its use counts in, in milliseconds since 1970.
    pub began_ms: u64,
}

/// What an account has and had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Balance {
    /// What may be used in all.
    pub allowance: ProcessorTime,
    /// What was used.
    pub used: ProcessorTime,
}

impl Balance {
    /// What is left.
    #[must_use]
    pub const fn left(self) -> ProcessorTime {
        ProcessorTime(self.allowance.0.saturating_sub(self.used.0))
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_spent(self) -> bool {
        self.left().0 == 0
    }
}
