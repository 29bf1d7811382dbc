//! The clocks of a simulated machine: none goes exactly as the world's time does.

/// See the head of the file. Times of the world and of the machine, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base_ns: u64,
    base_own_ns: u64,
    /// How much faster than the world's time it goes, in thousand-millionths.
    pub ppb: i64,
    /// How long the machine has slept.
    pub slept_ns: u64,
    /// What people's clock is ahead of the time since the beginning of the world, in milliseconds.
    pub wall_ahead_ms: i64,
}

const GIGA: u64 = 1_000_000_000;

/// When worlds begin, in milliseconds since 1970.
const BEGINNING_MS: i64 = 1_790_000_000_000;

impl Clock {
    /// One that shows this at that moment.
    pub const fn new(now_ns: u64, own_ns: u64, ppb: i64) -> Self {
        Self { base_ns: now_ns, base_own_ns: own_ns, ppb, slept_ns: 0, wall_ahead_ms: 0 }
    }

    /// What it shows.
    pub fn own_ns(&self, now_ns: u64) -> u64 {
        let since = i64::try_from(now_ns.saturating_sub(self.base_ns)).unwrap_or(i64::MAX);
        let own = since.saturating_add(self.drifted(since));
        self.base_own_ns + u64::try_from(own).unwrap_or(0)
    }

    /// How much more it shows after so long.
    fn drifted(&self, since: i64) -> i64 {
        match since.checked_mul(self.ppb) {
            Some(product) => product / GIGA.cast_signed(),
            // After more than a day.
            None => {
                let product = i128::from(since) * i128::from(self.ppb);
                i64::try_from(product / i128::from(GIGA)).unwrap_or(i64::MAX)
            }
        }
    }

    /// When in the world it will show this, or a moment after.
    pub fn world_ns(&self, own_ns: u64) -> u64 {
        if own_ns == u64::MAX {
            return u64::MAX;
        }
        let since = own_ns.saturating_sub(self.base_own_ns);
        // Of each thousand million nanoseconds of the world it shows so many: first the whole ones,
        // then the rest.
        let shown = GIGA.saturating_add_signed(self.ppb).max(1);
        let world =
            (since / shown).saturating_mul(GIGA).saturating_add(since % shown * GIGA / shown);
        let world = self.base_ns.saturating_add(world);
        // Rounding must not make any daemon wake up before its time, over and over.
        if self.own_ns(world) < own_ns { world.saturating_add(1) } else { world }
    }

    /// From now on it goes at another rate.
    pub fn drift(&mut self, now_ns: u64, ppb: i64) {
        (self.base_own_ns, self.base_ns) = (self.own_ns(now_ns), now_ns);
        self.ppb = ppb;
    }

    /// What people's clocks show.
    pub fn wall_ms(&self, now_ns: u64) -> u64 {
        let since = i64::try_from(now_ns / 1_000_000).unwrap_or(i64::MAX);
        (BEGINNING_MS + since + self.wall_ahead_ms).max(0).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_shows_what_wider_numbers_give(
            base in 0_u64..1 << 50, own in 0_u64..1 << 60, ppb in -100_000_i64..100_000, later in 0_u64..1 << 62,
        ) {
            let clock = Clock::new(base, own, ppb);
            let wide = i128::from(later) + i128::from(later) * i128::from(ppb) / 1_000_000_000;
            prop_assert_eq!(i128::from(clock.own_ns(base + later)), i128::from(own) + wide);
            let wide = i128::from(later) * 1_000_000_000 / (1_000_000_000 + i128::from(ppb));
            let world = clock.world_ns(own + later);
            prop_assert!(i128::from(world) - i128::from(base) - wide <= 1);
            prop_assert!(clock.own_ns(world) >= own + later);
        }
    }
}
