//! The system's clock (`CLOCK_REALTIME`), where a daemon such as chrony keeps it, and how far off
//! that and the kernel take it to be at most (`adjtimex`).

use crate::clock::monotonic_ns;
use std::time::{SystemTime, UNIX_EPOCH};

/// What it shows at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemClock {
    /// The moment, by the monotonic clock.
    pub monotonic_ns: u64,
    /// What it shows then, in nanoseconds since 1970.
    pub real_ns: u64,
    /// How far off it may be, and with it this reading.
    pub error_ns: u64,
}

/// No program keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no program keeps the system's clock: start chrony, ntpd or ptp4l, and see what \
     `chronyc tracking` says"
)]
pub struct NotSynchronised;

/// The kernel's word for it (`STA_UNSYNC` of `<sys/timex.h>`).
const UNSYNCHRONISED: libc::c_int = 0x40;

/// Readings between which another process may have run are taken again, so often.
const ATTEMPTS: u32 = 5;

/// Such readings: far longer than reading a clock takes.
const SLOW_NS: u64 = 20_000;

/// Reads the system's clock.
///
/// # Errors
/// If no program keeps it, as far as the kernel knows.
pub fn system_clock() -> Result<SystemClock, NotSynchronised> {
    let error_us = max_error_us()?;
    let mut best = reading();
    for _ in 1..ATTEMPTS {
        if best.error_ns <= SLOW_NS {
            break;
        }
        let other = reading();
        if other.error_ns < best.error_ns {
            best = other;
        }
    }
    best.error_ns = best.error_ns.saturating_add(error_us.saturating_mul(1000));
    Ok(best)
}

/// The clock between two looks at the other.
fn reading() -> SystemClock {
    let before = monotonic_ns();
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let half = monotonic_ns().saturating_sub(before) / 2;
    SystemClock {
        monotonic_ns: before + half,
        real_ns: u64::try_from(real.as_nanos()).unwrap_or(u64::MAX),
        error_ns: half + 1,
    }
}

/// The kernel's bound, which grows while no program corrects the clock.
fn max_error_us() -> Result<u64, NotSynchronised> {
    // SAFETY: a timex of zeros is a proper one, which asks for nothing to be changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is valid to read and write; the call keeps no pointer.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    if result < 0 || result == libc::TIME_ERROR || state.status & UNSYNCHRONISED != 0 {
        return Err(NotSynchronised);
    }
    u64::try_from(state.maxerror).map_err(|_| NotSynchronised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_as_the_monotonic_clock_does() {
        let one = reading();
        crate::clock::sleep_until(one.monotonic_ns + 5_000_000);
        let other = reading();
        let (real, own) = (other.real_ns - one.real_ns, other.monotonic_ns - one.monotonic_ns);
        // Apart by what the readings say at most, and by what the system's may be slewed in that
        // time.
        assert!(real.abs_diff(own) <= one.error_ns + other.error_ns + own / 100, "{real} {own}");
    }
}
