//! Names of things: small typed numbers, so that a job can't be mistaken for a node.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
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
    /// A step's number in its job; 0: what the job starts with.
    StepId(u32)
);

impl StepId {
    /// What a job starts with.
    pub const FIRST: Self = Self(0);
}

/// A step, named for good.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct StepKey {
    /// Its job.
    pub job: JobId,
    /// Its number there.
    pub step: StepId,
}

impl StepKey {
    /// What a job starts with.
    #[must_use]
    pub const fn first(job: JobId) -> Self {
        Self { job, step: StepId::FIRST }
    }
}

/// As its job, with the number of a step that is not the first: `7 step 2`.
impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            StepId::FIRST => self.job.fmt(f),
            step => write!(f, "{} step {step}", self.job),
        }
    }
}

/// One start of a step's tasks: a job that was in line again is launched once more, and what is
/// said of the launch before is not said of this one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LaunchId {
    /// Which job.
    pub job: JobId,
    /// How often it was in line again before.
    pub number: u32,
    /// Which step of the job.
    pub step: StepId,
}

impl LaunchId {
    /// The first launch of what a job starts with.
    #[must_use]
    pub const fn first(job: JobId) -> Self {
        Self { job, number: 0, step: StepId::FIRST }
    }

    /// The step, whichever launch it is.
    #[must_use]
    pub const fn key(&self) -> StepKey {
        StepKey { job: self.job, step: self.step }
    }

    /// Whether it is not what its job starts with.
    #[must_use]
    pub const fn is_further(&self) -> bool {
        self.step.0 != StepId::FIRST.0
    }
}

/// As its job; the number only where it was launched before.
impl fmt::Display for LaunchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => self.key().fmt(f),
            number => write!(f, "{} (launch {})", self.key(), number.saturating_add(1)),
        }
    }
}

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

id!(
    /// A group's number, as the kernel gives it (gid).
    GroupId(u32)
);

/// A name that users give.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// Makes a name from text; whether there is anything of that name is the core's to say.
            #[must_use]
            pub fn new(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name.into())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                Self::from(&*name.0)
            }
        }
    };
}

name!(
    /// The name of a class of jobs, such as `interactive`.
    ClassName
);

name!(
    /// The name of a set of nodes, such as `gpu`.
    NodeSetName
);

name!(
    /// The name of something that a node has, such as `avx2`.
    FeatureName
);

name!(
    /// The name of a queue, such as `short`.
    QueueName
);

/// A set of processors of one node, by the kernel's processor numbers.
///
/// A bit per processor, 64 to a word. The first word is kept apart, so that the sets of most nodes
/// take no allocation and two words in all; trailing empty words are never kept, so equal sets are
/// equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub struct ProcessorSet {
    low: u64,
    /// Nothing rather than no words.
    high: Option<Box<High>>,
}

/// The words from the second on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct High(Vec<u64>);

impl ProcessorSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { low: 0, high: None }
    }

    /// The processors 0 to `count - 1`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        (0..count).collect()
    }

    /// The lowest of them, so many.
    #[must_use]
    pub fn lowest(&self, count: u32) -> Self {
        if self.high.is_some() {
            return self.iter().take(count as usize).collect();
        }
        // What is left once the lowest bit has been taken away so many times.
        let others = (0..count.min(64)).fold(self.low, |rest, _| rest & rest.wrapping_sub(1));
        Self { low: self.low & !others, high: None }
    }

    fn of_words(low: u64, mut high: Vec<u64>) -> Self {
        while high.last() == Some(&0) {
            high.pop();
        }
        Self { low, high: (!high.is_empty()).then(|| Box::new(High(high))) }
    }

    fn high(&self) -> &[u64] {
        self.high.as_ref().map_or(&[], |high| &high.0)
    }

    /// The words from the second on, at least so many; none of the last of them may stay empty.
    fn high_mut(&mut self, least: usize) -> &mut [u64] {
        let High(words) = &mut **self.high.get_or_insert_with(|| Box::new(High(Vec::new())));
        if words.len() < least {
            words.resize(least, 0);
        }
        words
    }

    /// Adds a processor; numbers of [`crate::limits::PROCESSORS_PER_NODE_MAX`] and more are
    /// ignored.
    pub fn insert(&mut self, processor: u32) {
        if processor >= crate::limits::PROCESSORS_PER_NODE_MAX {
            return;
        }
        let bit = 1 << (processor % 64);
        match (processor as usize / 64).checked_sub(1) {
            None => self.low |= bit,
            Some(word) => self.high_mut(word + 1)[word] |= bit,
        }
    }

    /// Whether the processor is in the set.
    #[must_use]
    pub fn contains(&self, processor: u32) -> bool {
        let word = match (processor as usize / 64).checked_sub(1) {
            None => self.low,
            Some(word) => self.high().get(word).copied().unwrap_or(0),
        };
        word >> (processor % 64) & 1 == 1
    }

    /// How many processors are in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        let low = self.low.count_ones();
        let Some(high) = &self.high else { return low };
        low + high.0.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_none()
    }

    /// Whether the sets share a processor.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let high = || self.high().iter().zip(other.high());
        self.low & other.low != 0 || high().any(|(a, b)| a & b != 0)
    }

    /// Whether every processor of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        let high = || self.high().iter().enumerate();
        self.low & !other.low == 0
            && high().all(|(i, word)| word & !other.high().get(i).copied().unwrap_or(0) == 0)
    }

    /// Adds every processor of `other`.
    pub fn union_with(&mut self, other: &Self) {
        self.low |= other.low;
        if let Some(high) = &other.high {
            for (a, b) in self.high_mut(high.0.len()).iter_mut().zip(&high.0) {
                *a |= b;
            }
        }
    }

    /// Removes every processor of `other`.
    #[inline]
    pub fn subtract(&mut self, other: &Self) {
        self.low &= !other.low;
        if self.high.is_some() {
            self.subtract_high(other);
        }
    }

    fn subtract_high(&mut self, other: &Self) {
        if let Some(mut high) = self.high.take() {
            for (a, b) in high.0.iter_mut().zip(other.high()) {
                *a &= !b;
            }
            *self = Self::of_words(self.low, high.0);
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
        let words = core::iter::once(self.low).chain(self.high().iter().copied());
        (0..).step_by(64).zip(words).flat_map(|(base, mut word)| {
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(base + bit)
            })
        })
    }
}

/// Whatever was sent becomes a set: words beyond the last possible processor are dropped.
impl From<Vec<u64>> for ProcessorSet {
    fn from(mut words: Vec<u64>) -> Self {
        words.truncate(crate::limits::PROCESSORS_PER_NODE_MAX as usize / 64);
        let low = if words.is_empty() { 0 } else { words.remove(0) };
        Self::of_words(low, words)
    }
}

impl From<ProcessorSet> for Vec<u64> {
    fn from(set: ProcessorSet) -> Self {
        if set.is_empty() {
            return Self::new();
        }
        let mut words = set.high.map_or_else(Self::new, |high| high.0);
        words.insert(0, set.low);
        words
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
        for set in [ProcessorSet::new(), ProcessorSet::first(65), [64].into_iter().collect()] {
            assert_eq!(ProcessorSet::from(Vec::from(set.clone())), set);
        }
    }

    #[test]
    fn the_lowest_are_taken_one_by_one() {
        let low: ProcessorSet = [0, 1, 9, 63].into_iter().collect();
        let wide: ProcessorSet = [0, 1, 9, 63, 64, 200].into_iter().collect();
        for (set, most) in [(&low, 4), (&wide, 6)] {
            for count in [0, 1, 3, 4, 5, 6, 64, 65, u32::MAX] {
                let plain: ProcessorSet = set.iter().take(count as usize).collect();
                assert_eq!(set.lowest(count), plain, "{count} of {set}");
                assert_eq!(plain.count(), count.min(most));
            }
        }
    }

    #[test]
    fn subset_and_overlap_look_at_every_word() {
        let small: ProcessorSet = [70].into_iter().collect();
        let large = ProcessorSet::first(128);
        assert!(small.is_subset(&large) && !large.is_subset(&small));
        assert!(small.overlaps(&large) && !small.overlaps(&ProcessorSet::first(64)));
    }
}
