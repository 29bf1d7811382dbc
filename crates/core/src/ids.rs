//! Names of things: small typed numbers, so that a job can't be mistaken for a node.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A job, numbered from 1 in the order of acceptance; never used twice by one controller.
    JobId(u64)
);
id!(
    /// A node, numbered by the controller in the order of joining.
    NodeId(u32)
);
id!(
    /// A task's number in its job, from 0.
    Rank(u32)
);
id!(
    /// A row of the matrix; stays the same while the row lives, whatever other rows come and go.
    RowId(u64)
);
id!(
    /// Ties the answer of the core to the request that a driver handed in.
    RequestId(u64)
);
id!(
    /// A user's number, as the kernel gives it (uid).
    UserId(u32)
);

/// The name of a class of jobs, such as `interactive`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassName(pub String);

impl ClassName {
    /// Makes a class name from text; whether such a class exists is the core's to say.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of processors of one node, by the kernel's processor numbers.
///
/// A bit per processor, 64 to a word; trailing empty words are never kept, so equal sets are equal
/// values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub struct ProcessorSet {
    words: Vec<u64>,
}

impl ProcessorSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// The processors 0 to `count - 1`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        (0..count).collect()
    }

    /// Adds a processor; numbers of [`crate::limits::PROCESSORS_PER_NODE_MAX`] and more are ignored.
    pub fn insert(&mut self, processor: u32) {
        if processor >= crate::limits::PROCESSORS_PER_NODE_MAX {
            return;
        }
        let word = (processor / 64) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (processor % 64);
    }

    /// Whether the processor is in the set.
    #[must_use]
    pub fn contains(&self, processor: u32) -> bool {
        self.words
            .get((processor / 64) as usize)
            .is_some_and(|word| word >> (processor % 64) & 1 == 1)
    }

    /// How many processors are in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether the sets share a processor.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every processor of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, word)| word & !other.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// Adds every processor of `other`.
    pub fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    /// Removes every processor of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a &= !b;
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// The processors of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// The processors, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let base = u32::try_from(i).unwrap_or(u32::MAX).saturating_mul(64);
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
        })
    }
}

/// Whatever was sent becomes a set: words beyond the last possible processor are dropped.
impl From<Vec<u64>> for ProcessorSet {
    fn from(mut words: Vec<u64>) -> Self {
        words.truncate(crate::limits::PROCESSORS_PER_NODE_MAX as usize / 64);
        let mut set = Self { words };
        set.subtract(&Self::new());
        set
    }
}

impl From<ProcessorSet> for Vec<u64> {
    fn from(set: ProcessorSet) -> Self {
        set.words
    }
}

impl FromIterator<u32> for ProcessorSet {
    fn from_iter<I: IntoIterator<Item = u32>>(processors: I) -> Self {
        let mut set = Self::new();
        for processor in processors {
            set.insert(processor);
        }
        set
    }
}

/// Ranges, as `taskset -c` and `/proc` write them: `0-3,8`.
impl fmt::Display for ProcessorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut processors = self.iter().peekable();
        let mut separator = "";
        while let Some(begin) = processors.next() {
            let mut end = begin;
            while processors.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            if begin == end {
                write!(f, "{separator}{begin}")?;
            } else {
                write!(f, "{separator}{begin}-{end}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessorSet;

    #[test]
    fn a_set_prints_as_ranges() {
        let set: ProcessorSet = [0, 1, 2, 8, 64, 65].into_iter().collect();
        assert_eq!(set.to_string(), "0-2,8,64-65");
        assert_eq!(ProcessorSet::new().to_string(), "");
    }

    #[test]
    fn equal_sets_are_equal_values_after_removal() {
        let mut set: ProcessorSet = [1, 200].into_iter().collect();
        set.subtract(&[200].into_iter().collect());
        assert_eq!(set, [1].into_iter().collect());
        set.subtract(&[1].into_iter().collect());
        assert!(set.is_empty());
    }

    #[test]
    fn a_set_from_outside_is_made_regular() {
        assert_eq!(ProcessorSet::from(vec![3, 0, 0]), ProcessorSet::first(2));
        assert_eq!(ProcessorSet::from(vec![u64::MAX; 1000]), ProcessorSet::first(8192));
        assert_eq!(ProcessorSet::from(vec![0; 1000]), ProcessorSet::new());
    }

    #[test]
    fn subset_and_overlap_look_at_every_word() {
        let small: ProcessorSet = [70].into_iter().collect();
        let large = ProcessorSet::first(128);
        assert!(small.is_subset(&large) && !large.is_subset(&small));
        assert!(small.overlaps(&large) && !small.overlaps(&ProcessorSet::first(64)));
    }
}
