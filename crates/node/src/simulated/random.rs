//! Random numbers from a seed, the same on every machine.

/// See the head of the file. (SplitMix64.)
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    knows_long_ones: bool,
}

/// Worlds of smaller seeds are as they were when these were found: there, most is short.
const FIRST_WITH_LONG_ONES: u64 = 1_000_000;

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, knows_long_ones: seed >= FIRST_WITH_LONG_ONES }
    }

    /// Whether jobs and outages are long now and then, so that nodes are lost while jobs run there.
    pub const fn knows_long_ones(&self) -> bool {
        self.knows_long_ones
    }

    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than that, which is not zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From the first to the last.
    pub const fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of them.
    pub fn any<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        &all[index]
    }

    /// Short mostly, and long now and then: anything up to so much, each order of magnitude as
    /// likely.
    pub const fn any_length(&mut self, most: u64) -> u64 {
        let bits = self.below(64 - most.leading_zeros() as u64) + 1;
        let most_now = if bits >= 64 { most } else { 1 << bits };
        1 + self.below(if most_now < most { most_now } else { most })
    }
}
