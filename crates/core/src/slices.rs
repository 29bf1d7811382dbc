//! How the time of a row is cut into slots, and how these are spread over a frame.
//!
//! A class says how many slots its row has in each frame (frequency), how long each is at least
//! (length), and whether they are spread evenly (regularity; Gustafson, section 2.2.1): so
//! interactive jobs have many short slots where production jobs have few long ones. What the slots
//! of a row are together is its share's business and does not change by that.
//!
//! The slots of a frame stand in places, as many as there are slots. Rows that are to be spread
//! evenly take theirs first, and among them those with the most slots: each at equal distances, as
//! far as these are free; the others take what is left, each from the first place on.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::class::{ClassSpec, Classes};
use tutti_types::ids::ClassName;
use tutti_types::limits::QUANTUM_MIN;
use tutti_types::time::Nanos;

/// What a row has of each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turns {
    /// All its slots together.
    pub length: Nanos,
    /// How many they are; at least one.
    pub slots: u32,
    /// Whether they are spread evenly.
    pub even: bool,
    /// Whether the first turn of a new row comes before that of rows that wait.
    pub soon: bool,
}

impl Turns {
    /// All in one slot.
    #[must_use]
    pub const fn once(length: Nanos) -> Self {
        Self { length, slots: 1, even: true, soon: false }
    }
}

/// How the time of a row is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) slots: u32,
    /// How long each is at least.
    pub(crate) least: Nanos,
    pub(crate) even: bool,
}

impl Cut {
    /// For a row with jobs of these classes: as the one says that asks for the most.
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a ClassName>, classes: &Classes) -> Self {
        let rules = names.filter_map(|name| classes.get(name));
        let none = Self { slots: 1, least: QUANTUM_MIN, even: false };
        rules.fold(none, |cut, class: &ClassSpec| Self {
            slots: cut.slots.max(class.slots()),
            least: cut.least.max(class.slot_min()),
            even: cut.even || class.even(),
        })
    }

    /// How long all slots together are at least, in nanoseconds.
    pub(crate) const fn least_of_all(self) -> u64 {
        self.least.0.saturating_mul(self.slots as u64)
    }

    /// How long each slot is where all together are to be so long.
    pub(crate) fn slot_of(self, all: Nanos) -> Nanos {
        Nanos(all.0 / u64::from(self.slots)).max(self.least)
    }

    pub(crate) const fn of_length(self, length: Nanos) -> Turns {
        Turns { length, slots: self.slots, even: self.even, soon: false }
    }

    /// The same in slots of about `about` each, if they are to be spread evenly: none is shorter
    /// than two thirds of that for it, nor than it may be.
    pub(crate) fn in_slots_of(self, length: Nanos, about: Nanos) -> Turns {
        let most = length.0 / self.least.0.max(1);
        let slots = (length.0 + about.0 / 2) / about.0.max(1);
        let slots = if self.even { slots.min(most) } else { 1 };
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).max(self.slots);
        Self { slots, ..self }.of_length(length)
    }
}

/// The slots of a frame in order, each with its row. A row that is alone has one.
#[must_use]
pub fn spread<T: Copy>(rows: &[(T, Turns)]) -> Vec<(T, Nanos)> {
    if let [(row, turns)] = rows {
        return [(*row, turns.length)].into();
    }
    let count: u32 = rows.iter().map(|(_, turns)| turns.slots).sum();
    let mut places: Vec<Option<(T, Nanos)>> = alloc::vec![None; count as usize];
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| {
        let turns = rows[index].1;
        if turns.even { (0, u32::MAX - turns.slots) } else { (1, 0) }
    });
    for index in order {
        let (row, turns) = rows[index];
        let slots = u64::from(turns.slots.max(1));
        for slot in 0..slots {
            let ideal = if turns.even { slot * u64::from(count) / slots } else { 0 };
            let odd = u64::from(slot < turns.length.0 % slots);
            let length = Nanos(turns.length.0 / slots + odd);
            let ideal = usize::try_from(ideal).unwrap_or(0);
            let (before, after) = places.split_at_mut(ideal);
            let mut free = after.iter_mut().chain(before).filter(|place| place.is_none());
            if let Some(place) = free.next() {
                *place = Some((row, length));
            }
        }
    }
    places.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{Turns, spread};
    use proptest::prelude::*;
    use tutti_types::time::Nanos;

    fn check(rows: &[(char, u64, u32, bool)], expected: &str) {
        let rows = rows.iter().map(|&(row, length, slots, even)| {
            (row, Turns { length: Nanos(length), slots, even, soon: false })
        });
        let rows: Vec<(char, Turns)> = rows.collect();
        let slots = spread(&rows);
        let slots: Vec<String> = slots.iter().map(|(row, n)| format!("{row}{}", n.0)).collect();
        assert_eq!(slots.join(" "), expected);
    }

    #[test]
    fn frequent_rows_come_between_the_others() {
        check(
            &[('i', 40, 4, true), ('a', 30, 1, true), ('b', 30, 1, true)],
            "i10 i10 a30 i10 i10 b30",
        );
        check(
            &[('a', 20, 1, false), ('i', 41, 4, true), ('b', 20, 1, false), ('c', 20, 2, false)],
            "i11 a20 i10 b20 i10 c10 i10 c10",
        );
        check(&[('a', 20, 1, true), ('b', 30, 1, true)], "a20 b30");
        check(&[('a', 40, 2, true), ('b', 30, 2, true)], "a20 b15 a20 b15");
        check(&[('a', 40, 4, true)], "a40");
    }

    proptest! {
        /// Every row has all its slots, and all its time.
        #[test]
        fn nothing_is_lost(
            rows in prop::collection::vec((1u64..1000, 1u32..17, any::<bool>()), 2..8),
        ) {
            let rows: Vec<(usize, Turns)> = rows.iter().enumerate().map(|(row, &(l, slots, even))| {
                (row, Turns { length: Nanos(l), slots, even, soon: false })
            }).collect();
            let slots = spread(&rows);
            for &(row, turns) in &rows {
                let theirs = slots.iter().filter(|(other, _)| *other == row);
                let lengths: Vec<u64> = theirs.map(|(_, length)| length.0).collect();
                prop_assert_eq!(lengths.len(), turns.slots as usize);
                prop_assert_eq!(lengths.iter().sum::<u64>(), turns.length.0);
            }
        }
    }
}
