//! Cluster time by the system's clock, for `clock=system`: where chrony or PTP keep the clocks of
//! all machines, their bounds are better than what can be measured over the network.
//!
//! The agent on the controller's machine says how far cluster time is ahead of its system clock,
//! and how far off that may be; this goes down the tree unchanged. Each agent adds it to what its
//! own system clock shows. Questions and answers go on, for the lease, and because the kernel's
//! word is checked by them: a system clock that can't be right, by what was measured, is not
//! trusted.

use super::clock::Correction;
use tutti_linux::system_clock::{NotSynchronised, SystemClock};
use tutti_node::platform::time::system_clock;
use tutti_types::Nanos;
use tutti_wire::branch::SystemTime;

/// Why the system's clock can't be gone by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Untrusted {
    #[error("clock=system, but {0}")]
    Unkept(#[from] NotSynchronised),
    #[error(
        "clock=system, but the system's clock is off by {} us from that of the controller's machine, and \
         {} us are the most that both kernels and the network can explain; see `chronyc tracking` on both",
        off_ns / 1000,
        explained_ns / 1000
    )]
    Contradicted { off_ns: u64, explained_ns: u64 },
}

/// What is known by the system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BySystem {
    pub(super) correction: Correction,
    /// How far off that is at most, at this moment of the own clock.
    pub(super) error: Nanos,
    pub(super) at_ns: u64,
}

impl BySystem {
    /// From what the controller's machine says, what this one's clock shows, and what was measured:
    /// the correction and how far off it may be.
    pub(super) fn of(
        theirs: &SystemTime,
        own: &SystemClock,
        measured: (Correction, Nanos),
    ) -> Result<Self, Untrusted> {
        let ahead =
            i128::from(own.real_ns) + i128::from(theirs.ahead_ns) - i128::from(own.monotonic_ns);
        let correction = Correction::by(ahead);
        let error = Nanos(theirs.error.0.saturating_add(own.error_ns));
        let time = correction.at(own.monotonic_ns);
        let off_ns = time.0.abs_diff(measured.0.at(own.monotonic_ns).0);
        let explained_ns = error.0.saturating_add(measured.1.0);
        if off_ns > explained_ns {
            return Err(Untrusted::Contradicted { off_ns, explained_ns });
        }
        Ok(Self { correction, error, at_ns: own.monotonic_ns })
    }
}

/// By how much cluster time is ahead of this machine's system clock, and how far off that may be:
/// on the controller's machine, where `correction` is exact.
pub(super) fn here(correction: Correction) -> Result<SystemTime, Untrusted> {
    let own = system_clock()?;
    let time = i128::from(correction.at(own.monotonic_ns).0);
    let ahead_ns = i64::try_from(time - i128::from(own.real_ns)).map_err(|_| NotSynchronised)?;
    Ok(SystemTime { ahead_ns, error: Nanos(own.error_ns) })
}

/// What this machine's system clock makes of it, where `measured` is what questions and answers
/// have shown.
pub(super) fn there(
    theirs: &SystemTime,
    measured: (Correction, Nanos),
) -> Result<BySystem, Untrusted> {
    BySystem::of(theirs, &system_clock()?, measured)
}

/// How far off it is by now: the clocks may drift apart until they are read again.
pub(super) fn error_now(known: &BySystem, own_ns: u64, drift_ppb: u64) -> Nanos {
    let age = own_ns.saturating_sub(known.at_ns);
    let drifted = u128::from(age) * u128::from(drift_ppb) / 1_000_000_000;
    Nanos(known.error.0.saturating_add(u64::try_from(drifted).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that has this on its monotonic clock when its system's clock shows 2026.
    fn own(monotonic_ns: u64, wrong_ns: i64, error_ns: u64) -> SystemClock {
        let real_ns = NOW_NS.saturating_add_signed(wrong_ns);
        SystemClock { monotonic_ns, real_ns, error_ns }
    }

    const NOW_NS: u64 = 1_795_000_000_000_000_000;

    /// Cluster time is 5,000 s then.
    const CLUSTER_NS: u64 = 5_000_000_000_000;

    fn theirs(error: u64) -> SystemTime {
        let ahead_ns = CLUSTER_NS.cast_signed() - NOW_NS.cast_signed();
        SystemTime { ahead_ns, error: Nanos(error) }
    }

    fn measured(monotonic_ns: u64, error: u64) -> (Correction, Nanos) {
        let ahead = i128::from(CLUSTER_NS) - i128::from(monotonic_ns);
        (Correction::by(ahead), Nanos(error))
    }

    #[test]
    fn cluster_time_is_what_both_clocks_say_and_as_far_off_as_both_may_be() {
        for monotonic_ns in [1_000, CLUSTER_NS, 9_000_000_000_000] {
            let known = BySystem::of(
                &theirs(700),
                &own(monotonic_ns, 300, 300),
                measured(monotonic_ns, 50_000),
            );
            let known = known.unwrap();
            assert_eq!(known.correction.at(monotonic_ns).0, CLUSTER_NS + 300);
            assert_eq!(known.error, Nanos(1000));
        }
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_not_gone_by() {
        let wrong = own(1_000, 60_000, 300);
        assert_eq!(
            BySystem::of(&theirs(700), &wrong, measured(1_000, 50_000)),
            Err(Untrusted::Contradicted { off_ns: 60_000, explained_ns: 51_000 })
        );
        assert!(BySystem::of(&theirs(700), &wrong, measured(1_000, 59_000)).is_ok());
    }
}
