//! The two kinds of time in a decision: a moment and a length, both in nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use serde::{Deserialize, Serialize};

/// A moment of the clock that all nodes agree on: nanoseconds since the controller's epoch.
///
/// Only a driver reads a clock; the core is told. A node's own monotonic clock is a different thing
/// and never has this type.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClusterTime(pub u64);

/// A length of time in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl ClusterTime {
    /// Later than any moment that can happen.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time since `earlier`; zero if that lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
}

impl Add<Nanos> for ClusterTime {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Sub<Nanos> for ClusterTime {
    type Output = Self;
    fn sub(self, length: Nanos) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// As it can be read again, without loss: `30d`, `1h30m`, `2s`, `100ms`, `1500us`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000_000;
        const LONG: [(u64, &str); 4] =
            [(86_400 * SECOND, "d"), (3_600 * SECOND, "h"), (60 * SECOND, "m"), (SECOND, "s")];
        const SHORT: [(u64, &str); 2] = [(1_000_000, "ms"), (1_000, "us")];
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0.is_multiple_of(SECOND) {
            let mut left = self.0;
            return LONG.into_iter().try_for_each(|(unit, name)| {
                let count = left / unit;
                left %= unit;
                if count == 0 { Ok(()) } else { write!(f, "{count}{name}") }
            });
        }
        for (unit, name) in SHORT {
            if self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}ns", self.0)
    }
}
