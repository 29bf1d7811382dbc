//! Percentiles in bounded memory.
//!
//! Up to 65,536 numbers are kept as they are. Beyond, a number is counted by its octave and one of
//! 2,048 equal parts of it: what is read back is within 0.025 % of what was put in. Only octaves
//! that occur take memory, 8 KB each, so however long a trace is, a sketch has at most some 500 KB.
//! All in integers: the same everywhere.

/// So many numbers are kept as they are.
const KEPT: usize = 1 << 16;
/// So many parts has an octave, as a power of two.
const PART_BITS: u32 = 11;
const PARTS: usize = 1 << PART_BITS;

/// Numbers, as far as they are distinguished.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    kept: Vec<u64>,
    octaves: Vec<Option<Box<[u32; PARTS]>>>,
    count: u64,
}

impl Sketch {
    /// Takes in a number.
    pub fn add(&mut self, number: u64) {
        self.count += 1;
        if self.octaves.is_empty() {
            if self.kept.len() < KEPT {
                self.kept.push(number);
                return;
            }
            std::mem::take(&mut self.kept).into_iter().for_each(|kept| self.enter(kept));
        }
        self.enter(number);
    }

    fn enter(&mut self, number: u64) {
        let (octave, part) = place(number);
        if self.octaves.len() <= octave {
            self.octaves.resize(octave + 1, None);
        }
        let parts = self.octaves[octave].get_or_insert_with(|| Box::new([0; PARTS]));
        parts[part] = parts[part].saturating_add(1);
    }

    /// How many numbers were put in.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The numbers that such parts of all are below, such as 95 of 100; where that falls between
    /// two, in proportion. 0 if there is none.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, parts: [(u64, u64); N]) -> [u64; N] {
        let counts = self.counts();
        parts.map(|(part, whole)| self.quantile(&counts, part, whole))
    }

    fn quantile(&self, counts: &[(u64, u32)], part: u64, whole: u64) -> u64 {
        let whole = u128::from(whole.max(1));
        let rank = u128::from(self.count.saturating_sub(1)) * u128::from(part).min(whole);
        let (index, rest) = (rank / whole, rank % whole);
        let mut below = 0u128;
        let mut lower = None;
        for &(number, count) in counts {
            below += u128::from(count);
            if lower.is_none() && below > index {
                lower = Some(number);
            }
            if let Some(lower) = lower
                && (rest == 0 || below > index + 1)
            {
                let more = u128::from(number - lower) * rest / whole;
                return lower + u64::try_from(more).unwrap_or(0);
            }
        }
        0
    }

    /// The numbers, lowest first, as far as they are distinguished, each with its count.
    #[must_use]
    pub fn counts(&self) -> Vec<(u64, u32)> {
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        let mut counts: Vec<(u64, u32)> = Vec::new();
        for number in kept {
            match counts.last_mut() {
                Some((last, count)) if *last == number => *count += 1,
                _ => counts.push((number, 1)),
            }
        }
        let octaves = self.octaves.iter().enumerate();
        let octaves = octaves.filter_map(|(octave, parts)| Some((octave, parts.as_ref()?)));
        counts.extend(octaves.flat_map(|(octave, parts)| {
            let parts = parts.iter().enumerate().filter(|&(_, &count)| count > 0);
            parts.map(move |(part, &count)| (middle(octave, part), count))
        }));
        counts
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

    fn sketch(numbers: impl Iterator<Item = u64>) -> Sketch {
        let mut sketch = Sketch::default();
        numbers.for_each(|number| sketch.add(number));
        sketch
    }

    fn quantile(sketch: &Sketch, part: u64, whole: u64) -> u64 {
        let [number] = sketch.quantiles([(part, whole)]);
        number
    }

    #[test]
    fn quantiles_of_few_numbers_are_exact() {
        assert_eq!(quantile(&sketch(0..0), 1, 2), 0);
        let hundred = sketch((0..=100).rev().map(|number| number * 1_000_003));
        let [none, half, most, all] = hundred.quantiles([(0, 1), (1, 2), (95, 100), (1, 1)]);
        assert_eq!([none, half, most, all], [0, 50, 95, 100].map(|number| number * 1_000_003));
        assert_eq!(quantile(&sketch([10, 20].into_iter()), 1, 2), 15, "in between");
        assert_eq!(sketch([10, 20, 20].into_iter()).counts(), [(10, 1), (20, 2)]);
    }

    #[test]
    fn quantiles_of_many_numbers_are_near() {
        let many = sketch((0..=200_000).rev().map(|number| number * 1_000_003));
        assert_eq!((many.count(), quantile(&many, 0, 1)), (200_001, 0));
        for percent in [1, 50, 95, 100] {
            let exact = percent * 2_000 * 1_000_003;
            assert!(quantile(&many, percent, 100).abs_diff(exact) * 4_000 <= exact, "{percent}");
        }
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
