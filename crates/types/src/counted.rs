//! Numbers of things in messages.

use core::fmt;

/// A number of things: `1 job`, `2 jobs`.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a>(pub u64, pub &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        match (count, what.strip_suffix("ry")) {
            (1, _) => write!(f, "1 {what}"),
            (_, Some(stem)) => write!(f, "{count} {stem}ries"),
            _ if what.ends_with('s') => write!(f, "{count} {what}es"),
            _ => write!(f, "{count} {what}s"),
        }
    }
}

/// `1 task was`, `2 tasks were`.
pub struct Asked(pub u64, pub &'static str);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0 == 1 { "was" } else { "were" };
        write!(f, "{} {verb}", Counted(self.0, self.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn one_of_a_thing_is_not_many() {
        let of = |what| [0, 1, 2].map(|count| Counted(count, what).to_string());
        assert_eq!(of("job"), ["0 jobs", "1 job", "2 jobs"]);
        assert_eq!(of("class"), ["0 classes", "1 class", "2 classes"]);
        assert_eq!(of("entry"), ["0 entries", "1 entry", "2 entries"]);
        assert_eq!(of("day"), ["0 days", "1 day", "2 days"]);
    }
}
