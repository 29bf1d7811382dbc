//! When `tutti top` looks again.
//!
//! Each update asks whether anything has happened. If so, jobs and nodes are asked for. If not,
//! what still changes is processor time and age, and these are asked for no more often than costs
//! the hundredth part of a processor.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The pause after a look, in times of its cost. A little more than a hundred: other work of the
/// process has to fit into the hundredth part, too.
const PAUSE: u32 = 150;

/// See the module.
pub(super) struct Pace {
    delay: Duration,
    /// When the next question is due.
    pub(super) due: Instant,
    /// When the next whole look is due.
    whole: Instant,
    /// Processor time of this process when the last question was sent.
    asked: Option<Duration>,
    /// Whether the last picture is that of a new look.
    is_new: bool,
}

impl Pace {
    /// The first look has been taken.
    pub(super) fn new(delay: Duration) -> Self {
        let due = Instant::now() + delay;
        Self { delay, due, whole: due, asked: None, is_new: false }
    }

    /// Whether a question is due.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Whether the next look is for all, whatever has happened.
    pub(super) fn is_whole(&self) -> bool {
        Instant::now() >= self.whole
    }

    /// A whole look is due at once.
    pub(super) fn hurry(&mut self) {
        (self.due, self.whole) = (Instant::now(), Instant::now());
    }

    /// A question is under way.
    pub(super) fn on_asked(&mut self) {
        self.asked.get_or_insert_with(used);
    }

    /// A new look has come.
    pub(super) fn on_look(&mut self) {
        (self.due, self.is_new) = (Instant::now() + self.delay, true);
    }

    /// Nothing has happened, or there was no answer.
    pub(super) fn on_nothing(&mut self) {
        (self.due, self.asked) = (Instant::now() + self.delay, None);
    }

    /// A picture was drawn.
    pub(super) fn on_drawn(&mut self) {
        if let Some(asked) = self.asked.take_if(|_| self.is_new) {
            self.whole = Instant::now() + pause(self.delay, used().saturating_sub(asked));
            self.is_new = false;
        }
    }
}

/// The pause after a look that has cost so much processor time.
fn pause(delay: Duration, cost: Duration) -> Duration {
    delay.max(cost * PAUSE)
}

/// Processor time of this process so far.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_costs_much_is_followed_by_a_long_pause() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1000), ms(1)), ms(1000));
        assert_eq!(pause(ms(1000), ms(40)), ms(6000));
    }

    #[test]
    fn what_has_happened_is_shown_after_the_delay_whatever_a_look_costs() {
        let mut pace = Pace::new(Duration::ZERO);
        assert!(pace.is_due() && pace.is_whole());
        pace.on_asked();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {}
        pace.on_look();
        pace.on_drawn();
        assert!(pace.is_due() && !pace.is_whole());
        pace.hurry();
        assert!(pace.is_whole());
    }
}
