//! The clocks of a simulated machine: none goes exactly as the world's time does.

/// See the head of the file. Times of the world and of the machine, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base_ns: u64,
    base_own_ns: u64,
    /// How much faster than the world's time it goes, in thousand-millionths.
    pub(super) ppb: i64,
    /// How long the machine has slept.
    pub(super) slept_ns: u64,
    /// What people's clock is ahead of the time since the beginning of the world, in milliseconds.
    pub(super) wall_ahead_ms: i64,
}

/// When worlds begin, in milliseconds since 1970.
const BEGINNING_MS: i64 = 1_790_000_000_000;

impl Clock {
    /// One that shows this at that moment.
    pub(super) const fn new(now_ns: u64, own_ns: u64, ppb: i64) -> Self {
        Self { base_ns: now_ns, base_own_ns: own_ns, ppb, slept_ns: 0, wall_ahead_ms: 0 }
    }

    /// What it shows.
    pub(super) fn own_ns(&self, now_ns: u64) -> u64 {
        let since = i128::from(now_ns.saturating_sub(self.base_ns));
        let own = since + since * i128::from(self.ppb) / 1_000_000_000;
        self.base_own_ns + u64::try_from(own).unwrap_or(0)
    }

    /// When in the world it will show this, or a moment after.
    pub(super) fn world_ns(&self, own_ns: u64) -> u64 {
        if own_ns == u64::MAX {
            return u64::MAX;
        }
        let since = i128::from(own_ns.saturating_sub(self.base_own_ns));
        let world = since * 1_000_000_000 / (1_000_000_000 + i128::from(self.ppb));
        let world = self.base_ns.saturating_add(u64::try_from(world).unwrap_or(u64::MAX));
        // Rounding must not make anybody wake up before his time, over and over.
        if self.own_ns(world) < own_ns { world.saturating_add(1) } else { world }
    }

    /// From now on it goes at another rate.
    pub(super) fn drift(&mut self, now_ns: u64, ppb: i64) {
        (self.base_own_ns, self.base_ns) = (self.own_ns(now_ns), now_ns);
        self.ppb = ppb;
    }

    /// What people's clocks show.
    pub(super) fn wall_ms(&self, now_ns: u64) -> u64 {
        let since = i64::try_from(now_ns / 1_000_000).unwrap_or(i64::MAX);
        (BEGINNING_MS + since + self.wall_ahead_ms).max(0).unsigned_abs()
    }
}
