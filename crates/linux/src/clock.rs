//! The monotonic clock: reading it, and sleeping until a point of it; and the one that counts sleep
//! too.
//!
//! `CLOCK_MONOTONIC`, in nanoseconds since some point before this boot's first process. All
//! processes of one machine see the same values, so that one may hand a time to another.

use std::time::Duration;

/// The monotonic clock, nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// The clock that goes on while the machine sleeps (`CLOCK_BOOTTIME`), nanoseconds: between two
/// moments of it at least as much time has passed as between those of the monotonic clock.
#[must_use]
pub fn boottime_ns() -> u64 {
    read_ns(libc::CLOCK_BOOTTIME)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; the call keeps no pointer.
    let result = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(result, 0, "every Linux has these clocks");
    // Both parts are never negative on these clocks.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The length of the kernel's clock tick, nanoseconds: how fine its coarse clock is.
#[must_use]
pub fn tick_ns() -> u64 {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `tick` is a valid timespec to write to; the call keeps no pointer.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    assert_eq!(result, 0, "every Linux has CLOCK_MONOTONIC_COARSE");
    tick.tv_sec.unsigned_abs() * 1_000_000_000 + tick.tv_nsec.unsigned_abs()
}

/// Sleeps until the monotonic clock shows `at_ns`; returns at once if it has passed.
///
/// A signal handler that runs in between does not end the sleep. How late it wakes is up to the
/// scheduler and the timer slack (see [`crate::rt`]).
pub fn sleep_until(at_ns: u64) {
    let at = timespec(at_ns);
    loop {
        // SAFETY: `at` outlives the call; no remainder is asked for.
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const at,
                std::ptr::null_mut(),
            )
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// A short pause between two looks at something that the kernel is about to change.
pub(crate) fn nap(length: Duration) {
    sleep_until(monotonic_ns() + u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 4));
}

/// The pauses while waiting for the kernel: short at first, since most waits end within 0.2 ms,
/// longer later, so that what hangs does not cost a processor. Not shorter than what a process
/// needs to get into the freezer: a sleeper of real-time priority that wakes before takes its
/// processor away, and with pauses of 5 us nothing froze for a quarter of a millisecond.
#[derive(Default)]
pub(crate) struct Naps {
    slept: Duration,
}

impl Naps {
    /// Takes the next pause, but does not sleep past `left`.
    pub(crate) fn nap(&mut self, left: Duration) {
        let length = match self.slept.as_micros() {
            0..200 => Duration::from_micros(30),
            200..10_000 => Duration::from_micros(50),
            10_000..100_000 => Duration::from_micros(250),
            _ => Duration::from_millis(2),
        };
        let length = length.min(left);
        self.slept += length;
        nap(length);
    }
}

fn timespec(at_ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(at_ns / 1_000_000_000).expect("a u64 / 10^9 fits an i64"),
        tv_nsec: i64::try_from(at_ns % 1_000_000_000).expect("less than 10^9"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_until_the_time_and_not_before() {
        let until = monotonic_ns() + 2_000_000;
        sleep_until(until);
        assert!(monotonic_ns() >= until);
    }

    #[test]
    fn the_clock_that_counts_sleep_is_never_behind() {
        let (boot, monotonic) = (boottime_ns(), monotonic_ns());
        sleep_until(monotonic + 3_000_000);
        assert!(boottime_ns() - boot >= 3_000_000);
    }

    #[test]
    fn a_tick_is_one_that_kernels_are_built_with() {
        assert!((1_000_000..=10_000_000).contains(&tick_ns()), "{} ns", tick_ns());
    }

    #[test]
    fn a_time_that_has_passed_is_no_sleep() {
        let before = monotonic_ns();
        sleep_until(before.saturating_sub(1));
        sleep_until(0);
        assert!(monotonic_ns() >= before);
    }
}
