//! Cluster time at an agent: what its own clock says, corrected by what its parent answered.
//!
//! An agent asks its parent what time it is, and learns how much its own monotonic clock is off: the
//! answer was given somewhere between question and arrival, so half of the time that both took is how
//! wrong the middle can be at most. The quickest of the latest exchanges says most. How fast the two
//! clocks drift apart is the slope between quick exchanges that are far enough from each other.
//!
//! The switch thread reads the correction without a lock ([`ClusterClock`]); all else is here, and
//! knows no clock itself ([`Estimator`]), so that tests can turn time as they like.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tutti_core::{ClusterTime, Nanos};
use tutti_linux::clock;
use tutti_wire::branch::ClockReply;

/// Exchanges that are kept: the quickest of a quarter of a minute is quick, also on a busy network.
const SAMPLES_MAX: usize = 16;

/// How far crystals drift apart at most, in parts per thousand million: they are made for 50, and two
/// may go opposite ways.
const DRIFT_PPB_MAX: i64 = 200_000;

/// How well the drift is known once it was measured; it changes with the temperature.
const DRIFT_PPB_KNOWN: i64 = 5_000;

/// Exchanges must be so far apart for the drift to be more than their noise.
const BASELINE_NS: u64 = 4_000_000_000;

/// Corrections smaller than this are not worth waking anybody for.
const STEP_NS: u64 = 10_000;

/// When to ask: often at first, so that the first timetable finds a good estimate.
const ASK_FIRST_NS: u64 = 2_000_000;
const ASK_FIRST_COUNT: u32 = 8;
const ASK_EVERY_NS: u64 = 1_000_000_000;

/// A correction: cluster time is the own clock, plus `offset_ns`, plus what the drift has added
/// since `base_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Correction {
    /// When it was exact, by the own clock.
    base_ns: u64,
    /// What to add then.
    offset_ns: i64,
    /// What to add more for each thousand million nanoseconds since.
    drift_ppb: i64,
}

impl Correction {
    /// That of a clock which goes as cluster time does, and is behind it by so much.
    pub(super) fn ahead(ahead_ns: u64) -> Self {
        let offset_ns = i64::try_from(ahead_ns).unwrap_or(i64::MAX);
        Self { base_ns: 0, offset_ns, drift_ppb: 0 }
    }

    fn at(&self, own_ns: u64) -> ClusterTime {
        let since = i128::from(own_ns) - i128::from(self.base_ns);
        let drifted = since * i128::from(self.drift_ppb) / 1_000_000_000;
        let time = i128::from(own_ns) + i128::from(self.offset_ns) + drifted;
        ClusterTime(u64::try_from(time.max(0)).unwrap_or(u64::MAX))
    }

    /// The own clock at that cluster time.
    fn own_ns(&self, time: ClusterTime) -> u64 {
        if time == ClusterTime::NEVER {
            return u64::MAX;
        }
        let since = i128::from(time.0) - i128::from(self.offset_ns) - i128::from(self.base_ns);
        let own = since * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift_ppb));
        u64::try_from((i128::from(self.base_ns) + own).max(0)).unwrap_or(u64::MAX)
    }
}

/// Cluster time, for every thread of an agent. On the controller's machine it is the monotonic clock.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterClock(Arc<Shared>);

/// The correction behind a counter that is odd while it changes. Only the main thread writes.
#[derive(Debug, Default)]
struct Shared {
    changes: AtomicU64,
    base_ns: AtomicU64,
    offset_ns: AtomicI64,
    drift_ppb: AtomicI64,
}

impl ClusterClock {
    /// What time it is.
    pub(super) fn now(&self) -> ClusterTime {
        self.correction().at(clock::monotonic_ns())
    }

    /// The cluster time at this moment of the monotonic clock.
    pub(super) fn at(&self, own_ns: u64) -> ClusterTime {
        self.correction().at(own_ns)
    }

    /// The monotonic clock at that cluster time.
    pub(super) fn own_ns(&self, time: ClusterTime) -> u64 {
        self.correction().own_ns(time)
    }

    fn correction(&self) -> Correction {
        loop {
            let before = self.0.changes.load(Ordering::Acquire);
            let correction = Correction {
                base_ns: self.0.base_ns.load(Ordering::Acquire),
                offset_ns: self.0.offset_ns.load(Ordering::Acquire),
                drift_ppb: self.0.drift_ppb.load(Ordering::Acquire),
            };
            if before.is_multiple_of(2) && self.0.changes.load(Ordering::Acquire) == before {
                return correction;
            }
            // The writer has three words to write; at real-time priority we must let it.
            std::thread::yield_now();
        }
    }

    /// From now on this is the correction; whether that makes it another time, by more than a wake-up
    /// is late anyway.
    pub(super) fn correct(&self, correction: Correction) -> bool {
        let now = clock::monotonic_ns();
        let before = self.at(now);
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.0.base_ns.store(correction.base_ns, Ordering::Release);
        self.0.offset_ns.store(correction.offset_ns, Ordering::Release);
        self.0.drift_ppb.store(correction.drift_ppb, Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.at(now).0.abs_diff(before.0) > STEP_NS
    }
}

/// One exchange.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The middle of it, by the own clock.
    at_ns: u64,
    /// What to add to the own clock for cluster time.
    offset_ns: i64,
    /// How wrong that can be.
    error_ns: u64,
}

impl Sample {
    fn error_at(&self, own_ns: u64, drift_ppb: i64) -> u64 {
        let age = own_ns.saturating_sub(self.at_ns);
        self.error_ns.saturating_add(share(age, drift_ppb))
    }
}

fn share(ns: u64, ppb: i64) -> u64 {
    let part = u128::from(ns) * u128::from(ppb.unsigned_abs()) / 1_000_000_000;
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Works out corrections from exchanges.
#[derive(Debug, Default)]
pub(super) struct Estimator {
    samples: VecDeque<Sample>,
    /// A quick exchange of long ago, for the drift.
    anchor: Option<Sample>,
    drift_ppb: Option<i64>,
    asked: u32,
    ask_at_ns: u64,
}

impl Estimator {
    /// When the parent is to be asked.
    pub(super) const fn due_ns(&self) -> u64 {
        self.ask_at_ns
    }

    /// The parent is being asked now.
    pub(super) const fn asked(&mut self, own_ns: u64) {
        self.asked = self.asked.saturating_add(1);
        let wait = if self.asked < ASK_FIRST_COUNT { ASK_FIRST_NS } else { ASK_EVERY_NS };
        self.ask_at_ns = own_ns + wait;
    }

    /// Another parent will be asked: what the one before said counts no more, how fast the own clock
    /// is does.
    pub(super) fn another_parent(&mut self) {
        self.samples.clear();
        self.anchor = None;
        self.asked = 0;
        self.ask_at_ns = 0;
    }

    /// The parent's answer came at that moment. Gives the correction from now on, unless the answer
    /// makes no sense.
    pub(super) fn answered(&mut self, reply: &ClockReply, own_ns: u64) -> Option<Correction> {
        let took = own_ns.checked_sub(reply.asked_ns)?;
        let inside = reply.went.0.checked_sub(reply.came.0)?;
        let way = took.checked_sub(inside)?;
        let at_ns = reply.asked_ns + took / 2;
        let theirs = reply.came.0 + inside / 2;
        let offset_ns = i64::try_from(i128::from(theirs) - i128::from(at_ns)).ok()?;
        let error_ns = (way / 2 + 1).saturating_add(reply.error.0);
        let sample = Sample { at_ns, offset_ns, error_ns };
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.measure_drift(own_ns);
        let best = self.best(own_ns)?;
        let (base_ns, offset_ns) = (best.at_ns, best.offset_ns);
        Some(Correction { base_ns, offset_ns, drift_ppb: self.drift_ppb.unwrap_or(0) })
    }

    fn uncertainty_ppb(&self) -> i64 {
        if self.drift_ppb.is_some() { DRIFT_PPB_KNOWN } else { DRIFT_PPB_MAX }
    }

    fn best(&self, own_ns: u64) -> Option<Sample> {
        let drift = self.uncertainty_ppb();
        self.samples.iter().copied().min_by_key(|sample| sample.error_at(own_ns, drift))
    }

    /// The slope from the anchor to the best exchange of late. It is taken only where their errors
    /// leave it better known than it was.
    fn measure_drift(&mut self, own_ns: u64) {
        let Some(best) = self.best(own_ns) else { return };
        let Some(anchor) = self.anchor else {
            self.anchor = Some(best);
            return;
        };
        let apart = best.at_ns.saturating_sub(anchor.at_ns);
        if apart < BASELINE_NS {
            // A quicker one near the beginning is the better anchor.
            if best.error_ns < anchor.error_ns {
                self.anchor = Some(best);
            }
            return;
        }
        let slope =
            i128::from(best.offset_ns - anchor.offset_ns) * 1_000_000_000 / i128::from(apart);
        let doubt = u128::from(best.error_ns + anchor.error_ns) * 1_000_000_000 / u128::from(apart);
        if doubt <= u128::from(DRIFT_PPB_KNOWN.unsigned_abs()) {
            let slope = i64::try_from(slope).unwrap_or(0);
            self.drift_ppb = Some(slope.clamp(-DRIFT_PPB_MAX, DRIFT_PPB_MAX));
            // Temperatures change: the slope is that of the last minutes, not of the whole time.
            if apart > 64 * BASELINE_NS {
                self.anchor = Some(best);
            }
        }
    }

    /// How far off cluster time may be here; `None` before the first answer.
    pub(super) fn error(&self, own_ns: u64) -> Option<Nanos> {
        let drift = self.uncertainty_ppb();
        self.best(own_ns).map(|best| Nanos(best.error_at(own_ns, drift)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A parent whose clock is this far ahead and so much faster; and a way there and back.
    fn exchange(own_ns: u64, ahead_ns: u64, ppb: i64, ways: (u64, u64)) -> (ClockReply, u64) {
        let cluster = |own: u64| {
            let faster = i128::from(own) * i128::from(ppb) / 1_000_000_000;
            ClusterTime(u64::try_from(i128::from(own) + i128::from(ahead_ns) + faster).unwrap())
        };
        let came = cluster(own_ns + ways.0);
        let reply = ClockReply { asked_ns: own_ns, came, went: came, error: Nanos::ZERO };
        (reply, own_ns + ways.0 + ways.1)
    }

    fn true_time(own_ns: u64, ahead_ns: u64, ppb: i64) -> u64 {
        exchange(own_ns, ahead_ns, ppb, (0, 0)).0.came.0
    }

    proptest! {
        #[test]
        fn cluster_time_is_never_further_off_than_said(
            start in 0_u64..1 << 45,
            ahead in 0_u64..1 << 45,
            ppb in -100_000_i64..100_000,
            ways in prop::collection::vec((10_000_u64..2_000_000, 10_000_u64..2_000_000), 60),
        ) {
            let mut estimator = Estimator::default();
            let clock = ClusterClock::default();
            let mut own = start + (1 << 40);
            for way in ways {
                estimator.asked(own);
                let (reply, came) = exchange(own, ahead, ppb, way);
                let _ = clock.correct(estimator.answered(&reply, came).unwrap());
                own = estimator.due_ns().max(came);
                for later in [came, own] {
                    let said = clock.at(later).0;
                    let off = said.abs_diff(true_time(later, ahead, ppb));
                    let bound = estimator.error(later).unwrap().0;
                    prop_assert!(off <= bound + 2, "{off} ns off, {bound} said");
                }
            }
        }

        #[test]
        fn there_and_back(base in 0_u64..1 << 60, offset in -(1_i64 << 59)..1 << 59,
            drift in -DRIFT_PPB_MAX..DRIFT_PPB_MAX, later in 0_u64..1 << 50) {
            let correction = Correction { base_ns: base, offset_ns: offset, drift_ppb: drift };
            let own = base + later;
            let time = correction.at(own);
            prop_assume!(time.0 > 0);
            prop_assert!(correction.own_ns(time).abs_diff(own) <= 2);
        }
    }

    #[test]
    fn drift_is_found_and_then_foretold() {
        let mut estimator = Estimator::default();
        let (ahead, ppb) = (3_600_000_000_000, 80_000);
        let mut own = 1 << 40;
        let mut correction = Correction::default();
        for _ in 0..60 {
            estimator.asked(own);
            let (reply, came) = exchange(own, ahead, ppb, (30_000, 34_000));
            correction = estimator.answered(&reply, came).unwrap();
            own = estimator.due_ns().max(came);
        }
        let later = own + 10_000_000_000;
        let off = correction.at(later).0.abs_diff(true_time(later, ahead, ppb));
        assert!(off < 60_000, "{off} ns off ten seconds later");
    }

    #[test]
    fn an_answer_from_the_future_changes_nothing() {
        let mut estimator = Estimator::default();
        let (reply, came) = exchange(1 << 40, 5, 0, (1000, 1000));
        assert_eq!(estimator.answered(&reply, came - 3000), None);
        assert_eq!(estimator.error(came), None);
    }

    #[test]
    fn on_the_controllers_machine_it_is_the_monotonic_clock() {
        let clock = ClusterClock::default();
        assert_eq!(clock.at(17), ClusterTime(17));
        assert_eq!(clock.own_ns(ClusterTime(17)), 17);
        assert_eq!(clock.own_ns(ClusterTime::NEVER), u64::MAX);
    }
}
