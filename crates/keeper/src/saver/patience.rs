//! How long CRIU may take without progress that can be seen.
//!
//! Only time counts in which the saver runs, too: both are suspended together while it is not their
//! job's turn.

use std::time::{Duration, Instant};

/// What CRIU may take at least, and how much more for each MiB of an image or of memory.
const LEAST: Duration = Duration::from_secs(120);
const EACH_MIB: Duration = Duration::from_millis(100);

/// Maximum time between two looks that counts. More has passed while nothing ran here.
const BETWEEN_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    limit: Duration,
    spent: Duration,
    looked: Instant,
    /// What was written then, in bytes.
    written: u64,
}

impl Patience {
    /// With an image, or memory, of so many bytes.
    pub(super) fn with(bytes: u64, now: Instant) -> Self {
        let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        let limit = LEAST.saturating_add(EACH_MIB.saturating_mul(mib));
        Self { limit, spent: Duration::ZERO, looked: now, written: 0 }
    }

    /// It ends after so much time from now on, if nothing is written.
    pub(super) fn shorten(&mut self, left: Duration) {
        self.limit = self.limit.min(self.spent + left);
    }

    /// Looks again; `written`: what CRIU has written by now, in bytes. Whether that took too long.
    pub(super) fn is_over(&mut self, now: Instant, written: u64) -> bool {
        let passed = now.saturating_duration_since(self.looked).min(BETWEEN_MAX);
        self.looked = now;
        if written != self.written {
            self.written = written;
            self.spent = Duration::ZERO;
        }
        self.spent += passed;
        self.spent > self.limit
    }

    /// The limit, in seconds.
    pub(super) const fn seconds(&self) -> u64 {
        self.limit.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many looks, each after so long, it is over.
    fn looks(patience: &mut Patience, each: Duration, written: impl Fn(u64) -> u64) -> u64 {
        let begin = patience.looked;
        let is_over = |&look: &u64| {
            patience.is_over(begin + each * u32::try_from(look).unwrap(), written(look))
        };
        (1..100_000).find(is_over).unwrap()
    }

    #[test]
    fn patience_grows_with_the_bytes_and_begins_anew_with_each_that_is_written() {
        let second = Duration::from_secs(1);
        let with = |bytes| Patience::with(bytes, Instant::now());
        assert_eq!(looks(&mut with(0), second, |_| 0), 121);
        assert_eq!(looks(&mut with(1 << 30), second, |_| 0), 223);
        assert_eq!(looks(&mut with(0), second / 2, |_| 0), 241);
        // Until look 50 something is written.
        assert_eq!(looks(&mut with(0), second, |look| look.min(50)), 170);
        // It was suspended between the looks.
        assert_eq!(looks(&mut with(0), 600 * second, |_| 0), 121);
        let mut short = with(0);
        short.shorten(5 * second);
        assert_eq!((looks(&mut short, second, |_| 0), short.seconds()), (6, 5));
        assert!(with(u64::MAX).seconds() > 1 << 28);
    }
}
