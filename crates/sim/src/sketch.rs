//! Percentiles in bounded memory.
//!
//! A number is counted by its octave and one of 2,048 equal parts of it: what is read back is within
//! 0.025 % of what was put in. Small numbers, and 0 above all, are exact. Only octaves that occur
//! take memory, 8 KB each, so however long a trace is, a sketch has at most some 400 KB. All in
//! integers: the same everywhere.

/// So many parts has an octave, as a power of two.
const PART_BITS: u32 = 11;
const PARTS: usize = 1 << PART_BITS;

/// Counts of numbers, by size.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    octaves: Vec<Option<Box<[u32; PARTS]>>>,
    count: u64,
}

impl Sketch {
    /// Takes in a number.
    pub fn add(&mut self, number: u64) {
        let (octave, part) = place(number);
        if self.octaves.len() <= octave {
            self.octaves.resize(octave + 1, None);
        }
        let parts = self.octaves[octave].get_or_insert_with(|| Box::new([0; PARTS]));
        parts[part] = parts[part].saturating_add(1);
        self.count += 1;
    }

    /// How many numbers were put in.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The number that `part` of `whole` are not above, such as 95 of 100; the lower one of two. 0
    /// if there is none.
    #[must_use]
    pub fn quantile(&self, part: u64, whole: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
        let rank = rank.max(1);
        let mut below = 0u128;
        for (number, count) in self.iter() {
            below += u128::from(count);
            if below >= rank {
                return number;
            }
        }
        0
    }

    /// The numbers that occur, lowest first, as far as they are told apart, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let octaves = self.octaves.iter().enumerate();
        let octaves = octaves.filter_map(|(octave, parts)| Some((octave, parts.as_ref()?)));
        octaves.flat_map(|(octave, parts)| {
            let parts = parts.iter().enumerate().filter(|&(_, &count)| count > 0);
            parts.map(move |(part, &count)| (middle(octave, part), count))
        })
    }
}

/// The octave of a number, and its part of that. Octave 0 is for what is below 2,048.
fn place(number: u64) -> (usize, usize) {
    let bits = u64::BITS - number.leading_zeros();
    let octave = bits.saturating_sub(PART_BITS);
    // Beyond the first octave, the highest bit is the same in all parts.
    let part = number >> octave.saturating_sub(1) & (PARTS as u64 - 1);
    (octave as usize, usize::try_from(part).expect("below 2,048"))
}

/// The middle of the numbers of a part.
fn middle(octave: usize, part: usize) -> u64 {
    if octave == 0 {
        return part as u64;
    }
    let width = 1u64 << (octave - 1);
    let lowest = ((PARTS + part) as u64) << (octave - 1);
    lowest + (width - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::{Sketch, middle, place};
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_small_numbers_are_exact() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.quantile(1, 2), 0);
        for number in (1..=100).rev() {
            sketch.add(number);
        }
        assert_eq!(sketch.quantile(1, 2), 50);
        assert_eq!(sketch.quantile(95, 100), 95);
        assert_eq!((sketch.quantile(0, 1), sketch.quantile(1, 1)), (1, 100));
        assert_eq!(sketch.count(), 100);
    }

    proptest! {
        #[test]
        fn what_is_read_back_is_near(bits in 0u32..64, number in any::<u64>()) {
            let number = number >> bits;
            let (octave, part) = place(number);
            let back = middle(octave, part);
            prop_assert!(u128::from(number.abs_diff(back)) * 4_000 <= u128::from(number));
        }

        #[test]
        fn order_is_kept(a in any::<u64>(), b in any::<u64>()) {
            prop_assert!(place(a.min(b)) <= place(a.max(b)));
        }
    }
}
