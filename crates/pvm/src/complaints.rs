//! Tasks that do not start, said once for many: a program may spawn thousands that can't.

use std::time::{Duration, Instant};

/// After this, a further one is said again.
const PAUSE: Duration = Duration::from_secs(10);

/// What was said, and how many were not.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: Option<Instant>,
    more: u64,
}

impl Complaints {
    /// The line for a step that does not start, unless one was said a short time ago.
    pub(super) fn line(&mut self, now: Instant, reason: &str) -> Option<String> {
        if self.said.is_some_and(|said| now.saturating_duration_since(said) < PAUSE) {
            self.more += 1;
            return None;
        }
        self.said = Some(now);
        let before = self.rest().map_or_else(String::new, |rest| format!(" ({rest})"));
        Some(format!("tutti: tasks of PVM do not start: {reason}{before}"))
    }

    /// What was not said.
    pub(super) fn rest(&mut self) -> Option<String> {
        let more = std::mem::take(&mut self.more);
        let are = if more == 1 { "spawn was" } else { "spawns were" };
        (more > 0).then(|| format!("{more} further {are} declined"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Complaints, PAUSE};
    use std::time::Instant;

    #[test]
    fn the_first_is_said_and_the_others_are_counted() {
        let (mut complaints, begun) = (Complaints::default(), Instant::now());
        let first = complaints.line(begun, "no room");
        assert_eq!(first.as_deref(), Some("tutti: tasks of PVM do not start: no room"));
        assert!((0..50).all(|_| complaints.line(begun, "no room").is_none()));
        let later = complaints.line(begun + PAUSE, "no room").unwrap();
        assert!(later.ends_with("no room (50 further spawns were declined)"), "{later}");
        assert_eq!(complaints.rest(), None);
        assert!(complaints.line(begun + PAUSE, "no room").is_none());
        assert_eq!(complaints.rest().as_deref(), Some("1 further spawn was declined"));
    }
}
