//! Numbers of things in messages.

use core::fmt;

/// `1 job`, `2 jobs`.
pub(crate) struct Counted(pub(crate) u64, pub(crate) &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        match (count, what.ends_with('s')) {
            (1, _) => write!(f, "1 {what}"),
            (_, true) => write!(f, "{count} {what}es"),
            (_, false) => write!(f, "{count} {what}s"),
        }
    }
}

/// `1 task was`, `2 tasks were`.
pub(crate) struct Asked(pub(crate) u64, pub(crate) &'static str);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0 == 1 { "was" } else { "were" };
        write!(f, "{} {verb}", Counted(self.0, self.1))
    }
}
