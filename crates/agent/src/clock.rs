//! Cluster time at an agent: what its own clock says, corrected by what its parent answered.
//!
//! An agent asks its parent what time it is, and learns how much its own monotonic clock is off:
//! the answer was given somewhere between question and arrival, so half of the time that both took
//! is how wrong the middle can be at most. The quickest of the latest exchanges says most. How fast
//! the two clocks drift apart is the slope between quick exchanges that are far enough from each
//! other.
//!
//! The parent has learnt the time in the same way, and says how far off it may be itself: that is
//! added. So the bound of each level holds for cluster time, and grows from level to level. An
//! exchange with an earlier parent counts as well as one with the present one, unless they say that
//! they are of another cluster time, that of a controller on a machine that was started anew. It
//! may be so near the former that nothing else shows it, and the clock of that machine may go
//! otherwise since. (What excludes each other is not of the same time either, whatever they say.)
//!
//! The switch thread reads the correction without a lock ([`ClusterClock`]); all else is here, and
//! knows no clock itself ([`Estimator`]), so that tests can turn time as they like.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tutti_node::platform::time as clock;
use tutti_types::{ClusterTime, Nanos};
use tutti_wire::branch::ClockReply;

/// Exchanges that are kept: the quickest of a quarter of a minute, or of a whole one, is quick,
/// also on a busy network.
const SAMPLES_MAX: usize = 16;

/// How far crystals drift apart at most, in parts per thousand million: they are made for 50, and
/// two may go opposite ways.
pub(super) const DRIFT_PPB_MAX: i64 = 200_000;

/// How well the drift is known once it was measured; it changes with the temperature.
const DRIFT_PPB_KNOWN: i64 = 5_000;

/// Exchanges must be so far apart for the drift to be more than their noise.
const BASELINE_NS: u64 = 4_000_000_000;

/// Corrections smaller than this are not worth waking anybody for.
const STEP_NS: u64 = 10_000;

/// Cluster time that falls back by less stands still at the switch thread until it has come so far
/// again.
pub(super) const STEP_BACK_NS: u64 = 2_000_000;

/// When to ask: often at first, so that the first timetable finds a good estimate.
const ASK_FIRST_NS: u64 = 2_000_000;
const ASK_FIRST_COUNT: u32 = 8;
/// A parent that does not answer is asked less and less often; so many times the wait is doubled.
const ASK_DOUBLED_MAX: u32 = 9;
const ASK_EVERY_NS: u64 = 1_000_000_000;

/// The same once the drift is known, at most: not much less often than a neighbour is to be heard.
const ASK_CALM_NS: u64 = 4_000_000_000;

/// By which part of a lease to ask where no job depends on it: it must not be over when a job
/// comes.
const ASK_IDLE_PART: u64 = 4;

/// The same where jobs depend on it: what is passed on grows older from level to level.
const ASK_BUSY_PART: u64 = 8;

/// What depends on the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing here, nor below.
    Idle,
    /// Nodes below.
    Below,
    /// Jobs, here or below.
    Jobs,
}

/// How often to ask, while leases are so long, and the error of the time doubles only in so long:
/// where anything depends on the time, it is to be about as good as it can be.
pub(super) fn ask_every_ns(need: Need, lease: Nanos, doubles_ns: u64) -> u64 {
    let busy_ns = (lease.0 / ASK_BUSY_PART).min(doubles_ns.clamp(ASK_EVERY_NS, ASK_CALM_NS));
    match need {
        Need::Idle => (lease.0 / ASK_IDLE_PART).clamp(ASK_EVERY_NS, ASK_CALM_NS),
        Need::Jobs if lease > Nanos::ZERO => busy_ns,
        Need::Jobs | Need::Below => busy_ns.max(ASK_EVERY_NS),
    }
}

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

    /// That of a clock which is behind cluster time by so many nanoseconds, or ahead of it.
    pub(super) fn by(offset_ns: i128) -> Self {
        let most = i128::from(i64::MAX);
        let offset_ns = i64::try_from(offset_ns.clamp(-most, most)).unwrap_or(0);
        Self { base_ns: 0, offset_ns, drift_ppb: 0 }
    }

    pub(super) fn at(&self, own_ns: u64) -> ClusterTime {
        let since = i128::from(own_ns) - i128::from(self.base_ns);
        let wide = || since * i128::from(self.drift_ppb) / 1_000_000_000;
        // As in `share`: for hours it fits.
        let product = i64::try_from(since).ok().and_then(|since| since.checked_mul(self.drift_ppb));
        let drifted = product.map_or_else(wide, |product| i128::from(product / 1_000_000_000));
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

/// Cluster time, for every thread of an agent. On the controller's machine it is the monotonic
/// clock.
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

    /// By how much it is ahead of the monotonic clock.
    pub(super) fn ahead_ns(&self) -> i64 {
        let own_ns = clock::monotonic_ns();
        let ahead = i128::from(self.at(own_ns).0) - i128::from(own_ns);
        i64::try_from(ahead).unwrap_or(i64::MAX)
    }

    pub(super) fn correction(&self) -> Correction {
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

    /// From now on this is the correction; whether that makes it another time, by more than a
    /// wake-up is late anyway. If it is a little earlier than was thought, it is the same until it
    /// has come so far again: a thread that waits for a moment finds that out when it wakes up.
    pub(super) fn correct(&self, correction: Correction) -> bool {
        let now = clock::monotonic_ns();
        let before = self.at(now);
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.0.base_ns.store(correction.base_ns, Ordering::Release);
        self.0.offset_ns.store(correction.offset_ns, Ordering::Release);
        self.0.drift_ppb.store(correction.drift_ppb, Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        let after = self.at(now);
        after.0 > before.0.saturating_add(STEP_NS)
            || after.0.saturating_add(STEP_BACK_NS) < before.0
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
    let ppb = ppb.unsigned_abs();
    // For hours that fits; and to divide what is wider takes ten times as long.
    let wide = || u128::from(ns) * u128::from(ppb) / 1_000_000_000;
    match ns.checked_mul(ppb) {
        Some(product) => product / 1_000_000_000,
        None => u64::try_from(wide()).unwrap_or(u64::MAX),
    }
}

/// Works out corrections from exchanges.
#[derive(Debug, Default)]
pub(super) struct Estimator {
    samples: VecDeque<Sample>,
    /// Which cluster time they are of.
    era: u64,
    /// The one of them with the least error, now and until there is another: all errors grow alike.
    best: Option<Sample>,
    /// A quick exchange of long ago, for the drift.
    anchor: Option<Sample>,
    drift_ppb: Option<i64>,
    /// Answers of the present parent.
    answers: u32,
    /// Questions since its last answer, and when the first of them was asked.
    unanswered: u32,
    unanswered_since_ns: Option<u64>,
    asked_ns: u64,
    ask_at_ns: u64,
}

impl Estimator {
    /// Which cluster time it knows.
    pub(super) const fn era(&self) -> u64 {
        self.era
    }

    /// When the parent is to be asked.
    pub(super) const fn due_ns(&self) -> u64 {
        self.ask_at_ns
    }

    /// Since when the parent has left questions unanswered, if it has.
    pub(super) const fn unanswered_since_ns(&self) -> Option<u64> {
        self.unanswered_since_ns
    }

    /// The parent is being asked now, and is to be so often, once enough is known.
    pub(super) fn asked(&mut self, own_ns: u64, every_ns: u64) {
        let is_known = self.unanswered == 0 && self.drift_ppb.is_some();
        let wait = match self.answers < ASK_FIRST_COUNT {
            true => (ASK_FIRST_NS << self.unanswered.min(ASK_DOUBLED_MAX)).min(ASK_EVERY_NS),
            false if is_known => every_ns,
            false => every_ns.min(ASK_EVERY_NS),
        };
        self.asked_ns = own_ns;
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered_since_ns.get_or_insert(own_ns);
        self.ask_at_ns = own_ns + wait;
    }

    /// How long it takes until what is not known of the drift doubles the error that the best
    /// exchange has.
    pub(super) fn doubles_ns(&self) -> u64 {
        let error_ns = self.samples.iter().map(|sample| sample.error_ns).min().unwrap_or(0);
        error_ns.saturating_mul(1_000_000_000 / DRIFT_PPB_KNOWN.unsigned_abs())
    }

    /// From now on it is to be asked so often at least.
    pub(super) fn hurry(&mut self, every_ns: u64) {
        self.ask_at_ns = self.ask_at_ns.min(self.asked_ns.saturating_add(every_ns));
    }

    /// Another parent will be asked, or the parent has another place in the tree.
    pub(super) const fn another_parent(&mut self) {
        self.answers = 0;
        self.unanswered = 0;
        self.unanswered_since_ns = None;
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
        // The clocks also drift apart between the middle and the moment of the answer, which no
        // later correction knows.
        let drifted = share(took / 2, DRIFT_PPB_MAX).saturating_add(1);
        let error_ns = (way / 2 + 1).saturating_add(drifted).saturating_add(reply.error.0);
        let sample = Sample { at_ns, offset_ns, error_ns };
        self.answers = self.answers.saturating_add(1);
        self.unanswered = 0;
        self.unanswered_since_ns = None;
        if reply.era != self.era || self.is_excluded(&sample) {
            self.forget();
            self.era = reply.era;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.find_best(own_ns);
        self.measure_drift(own_ns);
        let best = self.best?;
        let (base_ns, offset_ns) = (best.at_ns, best.offset_ns);
        Some(Correction { base_ns, offset_ns, drift_ppb: self.drift_ppb.unwrap_or(0) })
    }

    /// There is another cluster time, and how fast the clock goes that it is now by is not known.
    fn forget(&mut self) {
        self.samples.clear();
        (self.best, self.anchor, self.drift_ppb) = (None, None, None);
    }

    fn uncertainty_ppb(&self) -> i64 {
        if self.drift_ppb.is_some() { DRIFT_PPB_KNOWN } else { DRIFT_PPB_MAX }
    }

    fn find_best(&mut self, own_ns: u64) {
        let drift = self.uncertainty_ppb();
        self.best =
            self.samples.iter().copied().min_by_key(|sample| sample.error_at(own_ns, drift));
    }

    /// Whether this can't be the same time as that of the exchanges before.
    fn is_excluded(&self, sample: &Sample) -> bool {
        let drift = self.uncertainty_ppb();
        self.best.is_some_and(|best| {
            let before = Correction {
                base_ns: best.at_ns,
                offset_ns: best.offset_ns,
                drift_ppb: self.drift_ppb.unwrap_or(0),
            };
            let now =
                Correction { base_ns: sample.at_ns, offset_ns: sample.offset_ns, drift_ppb: 0 };
            let apart = before.at(sample.at_ns).0.abs_diff(now.at(sample.at_ns).0);
            apart > best.error_at(sample.at_ns, drift).saturating_add(sample.error_ns)
        })
    }

    /// The slope from the anchor to the best exchange of late. It is taken only where their errors
    /// leave it better known than it was.
    fn measure_drift(&mut self, own_ns: u64) {
        let Some(best) = self.best else { return };
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
            let was_known = self.drift_ppb.is_some();
            self.drift_ppb = Some(slope.clamp(-DRIFT_PPB_MAX, DRIFT_PPB_MAX));
            if !was_known {
                // Errors grow more slowly from now on.
                self.find_best(own_ns);
            }
            // Temperatures change: the slope is that of the last minutes, not of the whole time.
            if apart > 64 * BASELINE_NS {
                self.anchor = Some(best);
            }
        }
    }

    /// How far off cluster time may be here; `None` before the first answer.
    pub(super) fn error(&self, own_ns: u64) -> Option<Nanos> {
        let drift = self.uncertainty_ppb();
        self.best.map(|best| Nanos(best.error_at(own_ns, drift)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A parent with a clock this far ahead and so much faster; and a way there and back.
    fn exchange(own_ns: u64, ahead_ns: u64, ppb: i64, ways: (u64, u64)) -> (ClockReply, u64) {
        let cluster = |own: u64| {
            let faster = i128::from(own) * i128::from(ppb) / 1_000_000_000;
            ClusterTime(u64::try_from(i128::from(own) + i128::from(ahead_ns) + faster).unwrap())
        };
        let came = cluster(own_ns + ways.0);
        let (error, era, lease) = (Nanos::ZERO, 0, ClusterTime(0));
        let reply =
            ClockReply { asked_ns: own_ns, came, went: came, error, era, lease, system: None };
        (reply, own_ns + ways.0 + ways.1)
    }

    /// Mostly quick; some questions, and some answers, are long under way where nothing else is.
    fn ways() -> impl Strategy<Value = (u64, u64)> {
        prop_oneof![
            6 => (10_000_u64..2_000_000, 10_000_u64..2_000_000),
            1 => (0_u64..20_000, 0_u64..5_000_000_000),
            1 => (0_u64..5_000_000_000, 0_u64..20_000),
        ]
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
            ways in prop::collection::vec(ways(), 60),
        ) {
            let mut estimator = Estimator::default();
            let clock = ClusterClock::default();
            let mut own = start + (1 << 40);
            for way in ways {
                estimator.asked(own, ASK_EVERY_NS);
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

        /// A chain of agents, each of which knows the time from the one before and has a clock of
        /// its own.
        #[test]
        fn at_every_level_cluster_time_is_no_further_off_than_said(
            aheads in prop::collection::vec(0_u64..1 << 45, 4),
            ppbs in prop::collection::vec(-50_000_i64..50_000, 4),
            ways in prop::collection::vec((10_000_u64..2_000_000, 10_000_u64..2_000_000), 60),
        ) {
            // What the clock of a level shows at a moment of cluster time.
            let own = |level: usize, time: u64| {
                let faster = i128::from(time) * i128::from(ppbs[level]) / 1_000_000_000;
                u64::try_from(i128::from(time) + i128::from(aheads[level]) + faster).unwrap()
            };
            let mut levels: Vec<_> =
                (0..4).map(|_| (Estimator::default(), ClusterClock::default())).collect();
            let mut time = 1_u64 << 40;
            for (number, way) in ways.into_iter().enumerate() {
                for level in 0..4 {
                    let asked_ns = own(level, time);
                    let came = time + way.0;
                    let (came, error) = match level.checked_sub(1) {
                        None => (ClusterTime(came), Nanos::ZERO),
                        Some(above) => {
                            let (estimator, clock) = &levels[above];
                            let own = own(above, came);
                            (clock.at(own), estimator.error(own).unwrap())
                        }
                    };
                    let back = own(level, time + way.0 + way.1);
                    let (era, lease) = (0, ClusterTime(0));
                    let reply =
                        ClockReply { asked_ns, came, went: came, error, era, lease, system: None };
                    let (estimator, clock) = &mut levels[level];
                    estimator.asked(asked_ns, ASK_EVERY_NS);
                    let _ = clock.correct(estimator.answered(&reply, back).unwrap());
                    time += way.0 + way.1 + 1_000;
                }
                for (level, (estimator, clock)) in levels.iter().enumerate() {
                    let own = own(level, time);
                    let (off, bound) =
                        (clock.at(own).0.abs_diff(time), estimator.error(own).unwrap().0);
                    prop_assert!(off <= bound + 2, "level {level}: {off} ns off, {bound} said");
                }
                time += if number < 8 { 2_000_000 } else { 1_000_000_000 };
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
            estimator.asked(own, ASK_EVERY_NS);
            let (reply, came) = exchange(own, ahead, ppb, (30_000, 34_000));
            correction = estimator.answered(&reply, came).unwrap();
            own = estimator.due_ns().max(came);
        }
        let later = own + 10_000_000_000;
        let off = correction.at(later).0.abs_diff(true_time(later, ahead, ppb));
        assert!(off < 60_000, "{off} ns off ten seconds later");
    }

    #[test]
    fn another_parent_of_the_same_time_takes_nothing_away_and_one_of_another_all() {
        let mut estimator = Estimator::default();
        let (reply, came) = exchange(1 << 40, 5_000_000, 0, (10_000, 10_000));
        estimator.answered(&reply, came).unwrap();
        let error = estimator.error(came);
        estimator.another_parent();
        assert_eq!(estimator.due_ns(), 0, "it is asked at once");
        // Slow, but it agrees.
        let (reply, later) = exchange(came, 5_000_000, 0, (900_000, 1_000_000));
        let correction = estimator.answered(&reply, later).unwrap();
        assert_eq!(correction.at(later).0, true_time(later, 5_000_000, 0));
        assert!(estimator.error(came) <= error);
        let (reply, later) = exchange(later, 7_000_000_000, 0, (900_000, 1_000_000));
        let correction = estimator.answered(&reply, later).unwrap();
        assert!(correction.at(later).0.abs_diff(true_time(later, 7_000_000_000, 0)) <= 50_001);
    }

    /// After half a minute without a word, a second clock differs from the first by less than drift
    /// explains.
    #[test]
    fn a_time_that_is_another_and_near_is_known_for_as_well_as_it_was_measured() {
        let mut estimator = Estimator::default();
        let clock = ClusterClock::default();
        let mut own = 1 << 40;
        for (era, ahead) in [(1, 5_000_000), (2, 14_000_000)] {
            for _ in 0..3 {
                estimator.asked(own, ASK_EVERY_NS);
                let (reply, came) = exchange(own, ahead, 0, (200_000, 10_000));
                let _ =
                    clock.correct(estimator.answered(&ClockReply { era, ..reply }, came).unwrap());
                own = came + 10_000_000;
                let off = clock.at(own).0.abs_diff(true_time(own, ahead, 0));
                let bound = estimator.error(own).unwrap().0;
                assert!(off <= bound, "{off} ns off, {bound} said");
            }
            assert_eq!(estimator.era(), era);
            own += 60_000_000_000;
        }
        let bound = estimator.error(own).unwrap().0;
        assert!(bound > 12_000_000, "how fast the new one goes is not known: {bound} ns said");
    }

    #[test]
    fn who_does_not_answer_is_asked_less_and_less_often() {
        let mut estimator = Estimator::default();
        let mut own = 1 << 40;
        for _ in 0..20 {
            estimator.asked(own, ASK_EVERY_NS);
            own = estimator.due_ns();
        }
        // Nine waits that double, from two milliseconds, and then seconds.
        assert_eq!(estimator.due_ns() - (1 << 40), 511 * ASK_FIRST_NS + 11 * ASK_EVERY_NS);
        assert_eq!(estimator.unanswered_since_ns(), Some(1 << 40));
        let (reply, came) = exchange(own, 5, 0, (1000, 1000));
        estimator.answered(&reply, came).unwrap();
        assert_eq!(estimator.unanswered_since_ns(), None);
    }

    #[test]
    fn where_nothing_depends_on_it_the_parent_is_asked_less_often_once_the_drift_is_known() {
        let mut estimator = Estimator::default();
        let (mut own, lease) = (1 << 40, Nanos::from_secs(12));
        let idle = ask_every_ns(Need::Idle, lease, 0);
        let exchanged = |estimator: &mut Estimator, own: u64| {
            estimator.asked(own, idle);
            let (reply, came) = exchange(own, 5, 30_000, (1000, 1000));
            estimator.answered(&reply, came).unwrap();
            estimator.due_ns() - own
        };
        for _ in 0..ASK_FIRST_COUNT {
            assert!(exchanged(&mut estimator, own) < ASK_EVERY_NS);
            own = estimator.due_ns();
        }
        while estimator.drift_ppb.is_none() {
            assert_eq!(exchanged(&mut estimator, own), ASK_EVERY_NS);
            own = estimator.due_ns();
        }
        assert_eq!(exchanged(&mut estimator, own), 3 * ASK_EVERY_NS, "a quarter of the lease");
        assert_eq!(
            estimator.doubles_ns(),
            1002 * 200_000,
            "what is known to a microsecond is known for a moment"
        );
        estimator.hurry(ask_every_ns(Need::Jobs, lease, estimator.doubles_ns()));
        assert_eq!(estimator.due_ns(), own + ASK_EVERY_NS, "a job has come");
        // A parent that does not answer is asked again soon.
        for after in [0, 3, 4, 5] {
            estimator.asked(own + after * ASK_EVERY_NS, idle);
        }
        assert_eq!(estimator.due_ns(), own + 6 * ASK_EVERY_NS);
    }

    #[test]
    fn the_parent_is_asked_as_often_as_leases_and_the_error_of_the_time_want_it() {
        let every =
            |need, seconds, doubles_ns| ask_every_ns(need, Nanos::from_secs(seconds), doubles_ns);
        let ns = [0, 3 * ASK_EVERY_NS, 9 * ASK_EVERY_NS];
        assert_eq!([1, 60].map(|lease| every(Need::Idle, lease, 0)), [ASK_EVERY_NS, ASK_CALM_NS]);
        let part_ns = ASK_EVERY_NS / 4;
        assert_eq!(
            ns.map(|ns| every(Need::Jobs, 2, ns)),
            [part_ns; 3],
            "leases don't end on their way"
        );
        assert_eq!(ns.map(|ns| every(Need::Below, 2, ns)), [ASK_EVERY_NS; 3]);
        let calm = [ASK_EVERY_NS, 3 * ASK_EVERY_NS, ASK_CALM_NS];
        assert_eq!(ns.map(|ns| every(Need::Jobs, 60, ns)), calm, "so good is the time");
        assert_eq!(ns.map(|ns| every(Need::Below, 60, ns)), calm);
        assert_eq!(every(Need::Jobs, 16, ns[2]), 2 * ASK_EVERY_NS, "an eighth of the lease");
        assert_eq!(
            every(Need::Jobs, 0, ns[2]),
            ASK_EVERY_NS,
            "nobody has said how long leases are"
        );
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
