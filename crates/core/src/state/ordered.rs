//! A sorted list with a summary over each stretch of it, so that a search skips what can't hold
//! what it looks for.
//!
//! The entries stand in blocks of at most [`BLOCK_MAX`], each with a summary (a sum, or minima).
//! With n entries a search looks at n / 100 summaries or so and at the entries of few blocks, all
//! of them side by side in memory: for the lengths that queues have, that beats a tree.

use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const BLOCK_MAX: usize = 128;

/// What can stand in the list: its order is its place, and no two are equal.
pub(crate) trait Entry: Copy + Ord + core::fmt::Debug {
    /// What is known of a block of entries.
    type Summary: Copy + Default + core::fmt::Debug;
    /// Enters this one into the summary of its block.
    fn enter(self, summary: &mut Self::Summary);
    /// Takes this one out of the summary of its block, if that can be said without the others.
    fn leave(self, _summary: &mut Self::Summary) -> bool {
        false
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<T: Entry> {
    blocks: Vec<Block<T>>,
}

/// Entries, never none, with their summary.
#[derive(Clone, Debug)]
pub(crate) struct Block<T: Entry> {
    /// The first of them, beside those of the other blocks: most of a search looks at nothing else.
    first: T,
    pub(crate) entries: Vec<T>,
    pub(crate) summary: T::Summary,
}

impl<T: Entry> Default for Ordered<T> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<T: Entry> Ordered<T> {
    pub(crate) fn insert(&mut self, entry: T) {
        let after = self.blocks.partition_point(|block| block.first <= entry);
        let index = after.saturating_sub(1);
        let Some(block) = self.blocks.get_mut(index) else {
            self.blocks.push(Block::new([entry].into()));
            return;
        };
        let place = block.entries.partition_point(|other| *other < entry);
        if block.entries.get(place) == Some(&entry) {
            return;
        }
        block.entries.insert(place, entry);
        block.first = block.entries[0];
        entry.enter(&mut block.summary);
        if block.entries.len() > BLOCK_MAX {
            // A list that only grows at its end keeps its blocks full.
            let at = if place + 1 == block.entries.len() { BLOCK_MAX } else { BLOCK_MAX / 2 };
            let rest = block.entries.split_off(at);
            *block = Block::new(core::mem::take(&mut block.entries));
            self.blocks.insert(index + 1, Block::new(rest));
        }
    }

    /// Takes an entry out, if it is there.
    pub(crate) fn remove(&mut self, entry: T) {
        let after = self.blocks.partition_point(|block| block.first <= entry);
        let Some(index) = after.checked_sub(1) else { return };
        let block = &mut self.blocks[index];
        let Ok(place) = block.entries.binary_search(&entry) else { return };
        block.entries.remove(place);
        let Some(&first) = block.entries.first() else {
            self.blocks.remove(index);
            return;
        };
        block.first = first;
        if !entry.leave(&mut block.summary) {
            block.summarise();
        }
    }

    pub(crate) fn first(&self) -> Option<T> {
        self.blocks.first().map(|block| block.first)
    }

    /// The entry just before another one, which may be in the list.
    pub(crate) fn before(&self, entry: T) -> Option<T> {
        let after = self.blocks.partition_point(|block| block.first < entry);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        let place = block.entries.partition_point(|other| *other < entry);
        block.entries.get(place.checked_sub(1)?).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.blocks.iter().flat_map(|block| &block.entries).copied()
    }

    /// The blocks in order, for a caller that wants to skip some.
    pub(crate) fn blocks(&self) -> &[Block<T>] {
        &self.blocks
    }

    /// The first entry not before `from` that is `wanted`, looking only into blocks whose summary
    /// `may` hold one.
    pub(crate) fn find(
        &self,
        from: Option<T>,
        may: impl Fn(&T::Summary) -> bool,
        wanted: impl Fn(T) -> bool,
    ) -> Option<T> {
        let after = from.map_or(0, |from| {
            self.blocks.partition_point(|block| block.entries.last() < Some(&from))
        });
        let blocks = self.blocks[after..].iter().filter(|block| may(&block.summary));
        let entries = blocks.flat_map(|block| &block.entries).copied();
        entries.filter(|entry| from.is_none_or(|from| *entry >= from)).find(|entry| wanted(*entry))
    }
}

impl<T: Entry> Block<T> {
    fn new(entries: Vec<T>) -> Self {
        let mut block = Self { first: entries[0], entries, summary: T::Summary::default() };
        block.summarise();
        block
    }

    fn summarise(&mut self) {
        self.summary = T::Summary::default();
        for entry in &self.entries {
            entry.enter(&mut self.summary);
        }
    }
}

/// Lists are the same if they hold the same, however it came to stand in blocks.
impl<T: Entry> PartialEq for Ordered<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Entry> Eq for Ordered<T> {}

impl<T: Entry + core::hash::Hash> core::hash::Hash for Ordered<T> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        for entry in self.iter() {
            entry.hash(state);
        }
    }
}

/// As a list of the entries: how they stand in blocks does not matter.
impl<T: Entry + Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().collect::<Vec<_>>())
    }
}

impl<'de, T: Entry + Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut list = Self::default();
        for entry in Vec::<T>::deserialize(deserializer)? {
            list.insert(entry);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Ordered};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Entry for (u32, u32) {
        type Summary = u64;
        fn enter(self, sum: &mut u64) {
            *sum += u64::from(self.1);
        }
        fn leave(self, sum: &mut u64) -> bool {
            *sum -= u64::from(self.1);
            self.0.is_multiple_of(2) || {
                *sum += u64::from(self.1);
                false
            }
        }
    }

    proptest! {
        /// It holds what a set holds, and every block's sum is right.
        #[test]
        fn it_is_a_sorted_list(
            steps in prop::collection::vec((any::<bool>(), 0u32..900, 0u32..4), 1..2000),
            from in 0u32..900,
        ) {
            let mut list = Ordered::default();
            let mut plain = BTreeSet::new();
            for (number, (add, key, weight)) in (0u32..).zip(steps) {
                // Half of all go to the end, so that blocks fill.
                let key = if key % 2 == 0 { key } else { number };
                if add || weight == 0 {
                    list.insert((key, weight));
                    plain.insert((key, weight));
                } else {
                    list.remove((key, weight));
                    plain.remove(&(key, weight));
                }
            }
            prop_assert!(list.iter().eq(plain.iter().copied()));
            prop_assert_eq!(list.first(), plain.first().copied());
            for block in list.blocks() {
                prop_assert_eq!(Some(&block.first), block.entries.first());
                let sum: u64 = block.entries.iter().map(|entry| u64::from(entry.1)).sum();
                prop_assert_eq!(block.summary, sum);
            }
            let from = (from, 0);
            prop_assert_eq!(list.before(from), plain.range(..from).next_back().copied());
            let found = list.find(Some(from), |&sum| sum >= 3, |entry| entry.1 == 3);
            let expected = plain.range(from..).find(|entry| entry.1 == 3).copied();
            prop_assert_eq!(found, expected);
        }
    }
}
