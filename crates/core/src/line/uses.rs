//! How much of the machine each user had lately.
//!
//! A user's use is processors times the time of turns, and halves with each half-life. Decay scales
//! all users alike, so their order changes only when one of them is charged. Hence a use is kept as
//! it was at an *epoch*: a charge at `t` counts 2 ^ ((t - epoch) / half-life) times. From time to
//! time the epoch moves on by whole half-lives, and all uses are shifted.
//!
//! A job is charged one quantum when it starts, so that users with equal use alternate. Further
//! time is charged once it is beyond that: when the job ends, and in between for all jobs in one pass. A
//! pass costs as many steps as there are resident jobs, so it comes once in so many events
//! ([`PASS_SHARE`]), or after a part of the half-life ([`PASS_PARTS`]).

use crate::state::table::Table;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, UserId};
use tutti_types::limits::USERS_REMEMBERED_MAX;
use tutti_types::time::{ClusterTime, Nanos};

/// Resident jobs that an event pays the charge of, on average.
const PASS_SHARE: usize = 8;
/// A pass comes at least so often in a half-life.
const PASS_PARTS: u64 = 256;
/// How often a pass comes at least while nothing decays.
const PASS_INTERVAL: Nanos = Nanos::from_secs(300);
/// The epoch moves on after so many half-lives.
const EPOCH_HALVINGS: u64 = 16;
/// Bits of a use behind the point.
const FRACTION: u32 = 16;
/// A unit of use is so many nanoseconds of a processor, as a power of two.
const UNIT: u32 = 10;
/// Use below this, about a millisecond of a processor, is none.
const NIL: u128 = (1_000_000 >> UNIT) << FRACTION;
/// A use of this weight counts as it is.
const WEIGHT_SCALE: u128 = 1024;
/// Use that began earlier than so many half-lives ago counts no more.
const HALVINGS_MAX: u64 = 8;
/// A stretch of time is charged in pieces of such a part of a half-life.
const PIECES: u64 = 8;

/// 2 ^ (1/2), 2 ^ (1/4), ..., in units of 2 ^ -32.
const ROOTS: [u64; 16] = [
    6_074_001_000,
    5_107_605_667,
    4_683_695_048,
    4_485_121_744,
    4_389_014_833,
    4_341_736_423,
    4_318_288_544,
    4_306_612_134,
    4_300_785_774,
    4_297_875_550,
    4_296_421_177,
    4_295_694_175,
    4_295_330_720,
    4_295_149_004,
    4_295_058_149,
    4_295_012_722,
];

/// Use divided by weight: what users are ordered by.
pub(crate) type Score = u128;

/// One user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct User {
    /// Decayed use, as of the epoch.
    used: u128,
    /// The weight of the user, by the latest job that came into line.
    weight: u32,
}

/// What of a resident job was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Mark {
    user: UserId,
    processors: u64,
    /// So much of its service; more than it had while the first quantum lasts.
    paid: Nanos,
    /// When that was.
    at: ClusterTime,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Uses {
    half_life: Option<Nanos>,
    epoch: ClusterTime,
    users: BTreeMap<UserId, User>,
    marks: Table<Mark>,
    /// When the latest pass was, and how many events there were since.
    passed: ClusterTime,
    events: usize,
    /// Once more users are remembered, some are forgotten.
    full_at: usize,
}

/// What use at some moment is multiplied by to count at the epoch.
#[derive(Clone, Copy)]
struct Factor {
    /// For the part of a half-life, in units of 2 ^ -16; none where nothing decays.
    part: Option<u128>,
    /// Then so often doubled, or so often halved.
    halvings: Result<u64, u64>,
}

impl Factor {
    fn of(self, amount: u128) -> u128 {
        let amount = amount.saturating_mul(1 << FRACTION);
        let Some(part) = self.part else { return amount };
        let scaled = amount.saturating_mul(part) >> 16;
        match self.halvings {
            Ok(forward) => {
                let by = u32::try_from(forward.min(EPOCH_HALVINGS)).unwrap_or(0);
                scaled.saturating_mul(1 << by)
            }
            Err(back) => {
                let by = u32::try_from(back).unwrap_or(u32::MAX);
                scaled.checked_shr(by).unwrap_or(0)
            }
        }
    }
}

/// The latest factor that was asked for. Most jobs of a pass were charged at the same moment
/// before.
#[derive(Default)]
struct LatestFactor(Option<(ClusterTime, Factor)>);

impl LatestFactor {
    fn at(&mut self, uses: &Uses, at: ClusterTime) -> Factor {
        match self.0 {
            Some((latest, factor)) if latest == at => factor,
            Some(_) | None => self.0.insert((at, uses.factor(at))).1,
        }
    }
}

/// What users owe, with the jobs in a row of one user as one sum.
#[derive(Default)]
struct Charges(Vec<(UserId, u128)>);

impl Charges {
    fn add(&mut self, user: UserId, owed: u128) {
        match self.0.last_mut() {
            Some((latest, sum)) if *latest == user => *sum = sum.saturating_add(owed),
            Some(_) | None => self.0.push((user, owed)),
        }
    }
}

impl Uses {
    /// The user's place among users: the less, the sooner.
    pub(super) fn score(&self, user: UserId) -> Score {
        let Some(user) = self.users.get(&user) else { return 0 };
        scored(user.used, user.weight)
    }

    /// What a job that starts adds to its user's score.
    pub(super) fn score_of_start(
        &self,
        user: UserId,
        processors: u64,
        quantum: Nanos,
        now: ClusterTime,
    ) -> Score {
        let weight = self.users.get(&user).map_or(1, |user| user.weight);
        scored(self.at_epoch(amount(processors, quantum.0), now), weight)
    }

    /// The weight of a user that comes into line.
    pub(super) fn weigh(&mut self, user: UserId, weight: u32) {
        self.of(user).weight = weight;
    }

    /// Whether so many users are remembered that some are to be forgotten.
    pub(super) fn is_full(&self) -> bool {
        self.users.len() > self.full_at.max(USERS_REMEMBERED_MAX)
    }

    fn of(&mut self, user: UserId) -> &mut User {
        self.users.entry(user).or_insert(User { used: 0, weight: 1 })
    }

    /// Moves on to `now`, and to another half-life if that was set. Whether all scores are others.
    pub(super) fn advance(&mut self, now: ClusterTime, half_life: Option<Nanos>) -> bool {
        if self.half_life != half_life {
            let before = self.half_life.map_or(0, |length| now.since(self.epoch).0 / length.0);
            self.shift(before);
            (self.half_life, self.epoch) = (half_life, now);
            return true;
        }
        let Some(length) = half_life else { return false };
        let halvings = now.since(self.epoch).0 / length.0;
        if halvings < EPOCH_HALVINGS {
            return false;
        }
        self.shift(halvings);
        self.epoch = self.epoch + Nanos(halvings * length.0);
        true
    }

    fn shift(&mut self, halvings: u64) {
        let by = u32::try_from(halvings).unwrap_or(u32::MAX);
        for user in self.users.values_mut() {
            user.used = user.used.checked_shr(by).unwrap_or(0);
        }
    }

    /// Forgets users without use; then, if there are still too many, the half with the least.
    pub(super) fn forget(&mut self, stays: impl Fn(UserId) -> bool) {
        self.users.retain(|&id, user| user.used >= NIL || stays(id));
        if self.users.len() <= USERS_REMEMBERED_MAX {
            self.full_at = 0;
            return;
        }
        let mut by_use: Vec<(u128, UserId)> =
            self.users.iter().map(|(&id, user)| (user.used, id)).collect();
        by_use.sort_unstable();
        by_use.truncate(by_use.len() / 2);
        for (_, id) in by_use {
            if !stays(id) {
                self.users.remove(&id);
            }
        }
        // If those that stay are too many, this is not tried again at each event.
        self.full_at = self.users.len() * 2;
    }

    /// Use at some moment, as it counts at the epoch.
    fn at_epoch(&self, amount: u128, at: ClusterTime) -> u128 {
        self.factor(at).of(amount)
    }

    /// How much use at some moment counts at the epoch.
    fn factor(&self, at: ClusterTime) -> Factor {
        let Some(length) = self.half_life else { return Factor { part: None, halvings: Ok(0) } };
        let (halvings, part) = match at >= self.epoch {
            true => {
                let since = at.since(self.epoch).0;
                (Ok(since / length.0), since % length.0)
            }
            false => {
                let until = self.epoch.since(at).0;
                let back = until.div_ceil(length.0);
                (Err(back), back.saturating_mul(length.0).saturating_sub(until))
            }
        };
        let bits = (u128::from(part) << ROOTS.len()) / u128::from(length.0.max(1));
        let mut factor = 1u128 << 32;
        for (bit, &root) in ROOTS.iter().enumerate() {
            if (bits >> (ROOTS.len() - 1 - bit)) & 1 == 1 {
                factor = (factor * u128::from(root)) >> 32;
            }
        }
        Factor { part: Some(factor >> 16), halvings }
    }

    /// What use over a stretch of time, which may be long ago in part, counts at the epoch.
    fn over(
        &self,
        amount: u128,
        (from, to): (ClusterTime, ClusterTime),
        latest: &mut LatestFactor,
    ) -> u128 {
        let lasted = to.since(from).0;
        match self.half_life {
            Some(length) if lasted > length.0 / PIECES => {
                let counts = lasted.min(length.0.saturating_mul(HALVINGS_MAX));
                let amount = amount.saturating_mul(u128::from(counts)) / u128::from(lasted);
                let piece = (length.0 / PIECES).max(1);
                let pieces = counts.div_ceil(piece);
                let middle = |number: u64| Nanos(piece * number + piece / 2);
                let begins = ClusterTime(to.0.saturating_sub(counts));
                let each = amount / u128::from(pieces);
                (0..pieces).fold(0u128, |sum, number| {
                    sum.saturating_add(self.at_epoch(each, to.min(begins + middle(number))))
                })
            }
            Some(_) | None => latest.at(self, ClusterTime(from.0 + lasted / 2)).of(amount),
        }
    }

    fn owe(&mut self, user: UserId, use_at_epoch: u128) {
        let user = self.of(user);
        user.used = user.used.saturating_add(use_at_epoch);
    }

    /// A job starts: it is charged one quantum at once.
    pub(super) fn start(
        &mut self,
        job: JobId,
        (user, processors): (UserId, u64),
        quantum: Nanos,
        now: ClusterTime,
    ) {
        self.owe(user, self.at_epoch(amount(processors, quantum.0), now));
        self.marks.insert(job, Mark { user, processors, paid: quantum, at: now });
    }

    /// A job that began before uses were counted: what it had so far counts for none.
    pub(super) fn begin_with(
        &mut self,
        job: JobId,
        (user, processors): (UserId, u64),
        service: Nanos,
        now: ClusterTime,
    ) {
        self.marks.insert(job, Mark { user, processors, paid: service, at: now });
    }

    /// A job ends, having had so much. Returns the user, if the score changes by it.
    pub(super) fn end(&mut self, job: JobId, service: Nanos, now: ClusterTime) -> Option<UserId> {
        let mark = self.marks.remove(&job)?;
        if service <= mark.paid {
            return None;
        }
        let owed = self.owed(mark, service, now, &mut LatestFactor::default());
        self.owe(mark.user, owed);
        Some(mark.user)
    }

    /// What of a job's service was not paid, as it counts at the epoch.
    fn owed(
        &self,
        mark: Mark,
        service: Nanos,
        now: ClusterTime,
        latest: &mut LatestFactor,
    ) -> u128 {
        let owed = service.0.saturating_sub(mark.paid.0);
        self.over(amount(mark.processors, owed), (mark.at, now), latest)
    }

    /// Whether a pass over all jobs is due at an event.
    pub(super) fn is_due(&mut self, now: ClusterTime) -> bool {
        self.events = self.events.saturating_add(1);
        let interval = self.half_life.map_or(PASS_INTERVAL, |length| Nanos(length.0 / PASS_PARTS));
        self.events.saturating_mul(PASS_SHARE) >= self.marks.len()
            || now.since(self.passed) >= interval
    }

    /// Charges all resident jobs. Returns the users with changed scores, some several times.
    pub(super) fn pass(
        &mut self,
        now: ClusterTime,
        mut service: impl FnMut(JobId) -> Nanos,
    ) -> Vec<UserId> {
        (self.passed, self.events) = (now, 0);
        let (mut charged, mut latest) = (Charges::default(), LatestFactor::default());
        let mut marks = core::mem::take(&mut self.marks);
        marks.for_each_mut(|job, mark| {
            let service = service(job);
            if service > mark.paid {
                charged.add(mark.user, self.owed(*mark, service, now, &mut latest));
                (mark.paid, mark.at) = (service, now);
            }
        });
        self.marks = marks;
        for &(user, owed) in &charged.0 {
            self.owe(user, owed);
        }
        charged.0.into_iter().map(|(user, _)| user).collect()
    }

    /// No job is counted any more.
    pub(super) fn stop(&mut self) {
        self.marks = Table::default();
    }

    /// The jobs that are counted.
    pub(super) fn counted(&self) -> impl Iterator<Item = JobId> + '_ {
        self.marks.keys()
    }
}

fn amount(processors: u64, time: u64) -> u128 {
    (u128::from(processors) * u128::from(time)) >> UNIT
}

fn scored(used: u128, weight: u32) -> Score {
    used.saturating_mul(WEIGHT_SCALE) / u128::from(weight.max(1))
}

#[cfg(test)]
mod tests {
    use super::{FRACTION, UNIT, Uses};
    use proptest::prelude::*;
    use tutti_types::ids::{JobId, UserId};
    use tutti_types::time::{ClusterTime, Nanos};

    const DAY: u64 = 86_400_000_000_000;
    const ADA: UserId = UserId(1);
    const BOB: UserId = UserId(2);

    /// Seconds of a processor that are left of a use.
    #[expect(clippy::float_arithmetic, reason = "a test's figure, compared with a tolerance")]
    fn used_s(uses: &Uses, user: UserId, now: ClusterTime) -> f64 {
        let used = uses.users.get(&user).map_or(0, |user| user.used);
        let ns = used as f64 / f64::from(1u32 << FRACTION) * f64::from(1u32 << UNIT);
        let halvings =
            uses.half_life.map_or(0.0, |length| now.since(uses.epoch).0 as f64 / length.0 as f64);
        ns / 1e9 / halvings.exp2()
    }

    fn ran(uses: &mut Uses, user: UserId, from: u64, to: u64) {
        uses.advance(ClusterTime(to), uses.half_life);
        uses.begin_with(JobId(1), (user, 1), Nanos::ZERO, ClusterTime(from));
        uses.end(JobId(1), Nanos(to - from), ClusterTime(to));
    }

    #[test]
    fn use_halves_with_each_half_life() {
        let mut uses = Uses::default();
        uses.advance(ClusterTime(0), Some(Nanos(DAY)));
        ran(&mut uses, ADA, 0, 1_000_000_000_000);
        for days in 1..60 {
            let now = ClusterTime(days * DAY + 500_000_000_000);
            uses.advance(now, Some(Nanos(DAY)));
            let expected = 1000.0 / (days as f64).exp2();
            let used = used_s(&uses, ADA, now);
            assert!((used / expected - 1.0).abs() < 0.002 || used < 0.001, "{used} {expected}");
        }
        uses.forget(|_| false);
        assert!(uses.users.is_empty(), "what is nil is forgotten");
    }

    #[test]
    fn a_long_stretch_decays_while_it_lasts() {
        let mut uses = Uses::default();
        uses.advance(ClusterTime(0), Some(Nanos(DAY)));
        ran(&mut uses, ADA, 0, 30 * DAY);
        // The integral of 2 ^ -(t / day) is day / ln 2.
        let expected = 86_400.0 / core::f64::consts::LN_2;
        let used = used_s(&uses, ADA, ClusterTime(30 * DAY));
        assert!((used / expected - 1.0).abs() < 0.01, "{used} {expected}");
    }

    #[test]
    fn the_latest_of_equal_uses_counts_most_and_weights_divide() {
        let mut uses = Uses::default();
        uses.advance(ClusterTime(0), Some(Nanos(DAY)));
        ran(&mut uses, ADA, 0, DAY / 24);
        ran(&mut uses, BOB, DAY, DAY + DAY / 24);
        assert!(uses.score(ADA) < uses.score(BOB));
        uses.weigh(BOB, 3);
        assert!(uses.score(ADA) > uses.score(BOB));
    }

    proptest! {
        /// No charge at any time, however long, panics, and decay turns no order of users.
        #[test]
        fn decay_keeps_the_order(
            half_life in prop::option::of(1_000_000_000u64..u64::MAX / 4),
            steps in prop::collection::vec(
                (0u64..DAY * 40, 1u64..1 << 33, 0u64..u64::MAX / 8),
                1..20,
            ),
            later in 0u64..DAY * 4000,
        ) {
            let half_life = half_life.map(Nanos);
            let mut uses = Uses::default();
            let mut now = ClusterTime(0);
            uses.advance(now, half_life);
            for (number, (passes, processors, service)) in (0u32..).zip(steps) {
                let from = now;
                now = now + Nanos(passes);
                uses.advance(now, half_life);
                let user = UserId(number % 3);
                uses.begin_with(JobId(1), (user, processors), Nanos::ZERO, from);
                uses.end(JobId(1), Nanos(service.min(passes)), now);
            }
            let before: Vec<u128> = (0..3).map(|user| uses.score(UserId(user))).collect();
            uses.advance(now + Nanos(later), half_life);
            let after: Vec<u128> = (0..3).map(|user| uses.score(UserId(user))).collect();
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                prop_assert!(before[a] > before[b] || after[a] <= after[b]);
                prop_assert!(before[b] > before[a] || after[b] <= after[a]);
            }
        }
    }
}
