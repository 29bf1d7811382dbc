//! The frame: the cycle of all slots, and how one frame follows another.
//!
//! A change loses no slot. When a frame is replaced, the row whose turn it is goes on with its turn
//! where it was (no longer than its new length); if that row is gone, the next surviving one
//! begins. Rows that are new go to the end of the cycle as seen from there. So whatever comes and
//! goes, a row only ever waits for rows that stood before it, each for at most its own length: a
//! stream of short jobs starves nobody.
//!
//! The slots of a frame are listed from the row whose turn it was when the frame was made.

use crate::ids::RowId;
use crate::time::{ClusterTime, Nanos};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How long each row's slot shall be; rows without a slot are left out.
pub type Lengths = BTreeMap<RowId, Nanos>;

/// One slot of the frame: the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameSlot {
    /// Whose turn it is.
    pub row: RowId,
    /// How long.
    pub length: Nanos,
}

/// The cycle of all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// When it replaces the one before.
    pub activates: ClusterTime,
    /// When its first slot began; not after `activates`.
    pub epoch: ClusterTime,
    /// The slots in order.
    pub slots: Vec<FrameSlot>,
}

impl Frame {
    /// The length of one cycle, in nanoseconds.
    fn cycle(&self) -> u64 {
        self.slots.iter().map(|slot| slot.length.0).sum()
    }

    /// Whether the frame has these rows, each with this length.
    #[must_use]
    pub fn has(&self, lengths: &Lengths) -> bool {
        self.slots.len() == lengths.len()
            && self.slots.iter().all(|slot| lengths.get(&slot.row) == Some(&slot.length))
    }

    /// How long a row's slot is, if it has one.
    #[must_use]
    pub fn length_of(&self, row: RowId) -> Option<Nanos> {
        self.slots.iter().find(|slot| slot.row == row).map(|slot| slot.length)
    }

    /// Whose turn it is at `at`, as an index, and since when.
    #[must_use]
    pub fn turn(&self, at: ClusterTime) -> Option<(usize, ClusterTime)> {
        let cycle = self.cycle();
        if self.slots.is_empty() {
            return None;
        }
        if self.slots.len() == 1 || cycle == 0 {
            return Some((0, self.epoch));
        }
        let mut begins = at - Nanos(at.since(self.epoch).0 % cycle);
        for (index, slot) in self.slots.iter().enumerate() {
            if at < begins + slot.length {
                return Some((index, begins));
            }
            begins = begins + slot.length;
        }
        // Only a moment so late that the sums saturate gets here.
        Some((0, at))
    }

    /// The frame that follows this one at `at`, with slots of these lengths.
    #[must_use]
    pub fn followed_by(&self, lengths: &Lengths, at: ClusterTime) -> Self {
        let (turn, begins) = self.turn(at).unwrap_or((0, at));
        let from_turn = self.slots[turn..].iter().chain(&self.slots[..turn]);
        let mut slots: Vec<FrameSlot> = from_turn
            .filter_map(|slot| {
                let length = *lengths.get(&slot.row)?;
                Some(FrameSlot { row: slot.row, length })
            })
            .collect();
        let goes_on = |first: &&FrameSlot| Some(first.row) == self.slots.get(turn).map(|s| s.row);
        let elapsed = slots
            .first()
            .filter(goes_on)
            .map_or(Nanos::ZERO, |first| at.since(begins).min(first.length));
        for (&row, &length) in lengths {
            if self.length_of(row).is_none() {
                slots.push(FrameSlot { row, length });
            }
        }
        Self { activates: at, epoch: at - elapsed, slots }
    }

    /// How much of the time from `from` to `to` belongs to the slot of that index.
    /// `from` must not lie before the epoch.
    #[must_use]
    pub fn served(&self, index: usize, from: ClusterTime, to: ClusterTime) -> Nanos {
        let cycle = self.cycle();
        if self.slots.len() == 1 || cycle == 0 {
            return to.since(from);
        }
        let offset: u64 = self.slots[..index].iter().map(|slot| slot.length.0).sum();
        let length = self.slots[index].length.0;
        let until = |t: ClusterTime| {
            let since = t.since(self.epoch).0;
            since / cycle * length + (since % cycle).saturating_sub(offset).min(length)
        };
        Nanos(until(to).saturating_sub(until(from)))
    }

    /// How much of the time from `from` to `to` belongs to the slots of these rows.
    /// `from` must not lie before the epoch.
    #[must_use]
    pub fn served_to(&self, rows: &[RowId], from: ClusterTime, to: ClusterTime) -> Nanos {
        if from >= to {
            return Nanos::ZERO;
        }
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| rows.contains(&slot.row));
        slots.fold(Nanos::ZERO, |sum, (index, _)| sum + self.served(index, from, to))
    }

    /// When somebody who runs in the slots of `rows` has run for `need` more, counted from `from`.
    #[must_use]
    pub fn reaches(&self, rows: &[RowId], from: ClusterTime, need: Nanos) -> ClusterTime {
        let runs = |slot: &FrameSlot| rows.contains(&slot.row);
        let per_cycle: u64 = self.slots.iter().filter(|s| runs(s)).map(|s| s.length.0).sum();
        let Some((turn, begins)) = self.turn(from) else { return ClusterTime::NEVER };
        if need == Nanos::ZERO {
            return from;
        }
        if per_cycle == 0 {
            return ClusterTime::NEVER;
        }
        if self.slots.len() == 1 {
            return from + need;
        }
        // Whole cycles first, but so that at least a nanosecond is left: the moment lies at the end
        // of a piece of a slot, never at the beginning of the next.
        let cycles = (need.0 - 1) / per_cycle;
        let mut left = need.0 - cycles * per_cycle;
        let mut at = u128::from(from.0) + u128::from(cycles) * u128::from(self.cycle());
        let mut gone = from.since(begins).0;
        for slot in self.slots.iter().cycle().skip(turn).take(self.slots.len() + 1) {
            let piece = slot.length.0 - gone;
            gone = 0;
            if runs(slot) && left <= piece {
                at += u128::from(left);
                break;
            }
            left -= if runs(slot) { piece } else { 0 };
            at += u128::from(piece);
        }
        ClusterTime(u64::try_from(at).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, FrameSlot, Lengths};
    use crate::ids::RowId;
    use crate::time::{ClusterTime, Nanos};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn frame(epoch: u64, slots: &[(u64, u64)]) -> Frame {
        let slots =
            slots.iter().map(|&(row, length)| FrameSlot { row: RowId(row), length: Nanos(length) });
        Frame { activates: ClusterTime(epoch), epoch: ClusterTime(epoch), slots: slots.collect() }
    }

    fn lengths(slots: &[(u64, u64)]) -> Lengths {
        slots.iter().map(|&(row, length)| (RowId(row), Nanos(length))).collect()
    }

    fn follow(old: &Frame, new: &[(u64, u64)], at: u64) -> (u64, Vec<u64>) {
        let next = old.followed_by(&lengths(new), ClusterTime(at));
        assert!(next.epoch <= next.activates);
        (next.epoch.0, next.slots.iter().map(|slot| slot.row.0).collect())
    }

    #[test]
    fn the_row_in_its_turn_goes_on_where_it_was() {
        let old = frame(100, &[(1, 10), (2, 10), (3, 10)]);
        // At 117, row 2 has had 7 of its turn, which began at 110.
        assert_eq!(
            follow(&old, &[(1, 10), (2, 10), (3, 10), (4, 10)], 117),
            (110, vec![2, 3, 1, 4])
        );
        assert_eq!(follow(&old, &[(1, 5), (2, 5), (3, 5)], 117), (112, vec![2, 3, 1]));
        assert_eq!(follow(&old, &[(1, 10), (3, 10)], 117), (117, vec![3, 1]));
        assert_eq!(follow(&old, &[(9, 10)], 117), (117, vec![9]));
        assert_eq!(follow(&old, &[], 117), (117, vec![]));
    }

    #[test]
    fn a_row_that_was_alone_gives_way_at_once_after_its_length() {
        let old = frame(0, &[(1, 10)]);
        assert_eq!(follow(&old, &[(1, 10), (2, 10)], 500), (490, vec![1, 2]));
        assert_eq!(follow(&old, &[(1, 10), (2, 10)], 4), (0, vec![1, 2]));
    }

    #[test]
    fn service_is_reached_at_the_end_of_a_piece() {
        let two = frame(0, &[(1, 10), (2, 30)]);
        let at = |from, need| two.reaches(&[RowId(1)], ClusterTime(from), Nanos(need)).0;
        assert_eq!(at(0, 10), 10);
        assert_eq!(at(0, 11), 41);
        assert_eq!(at(0, 20), 50);
        assert_eq!(at(5, 5), 10);
        assert_eq!(at(5, 6), 41);
        assert_eq!(at(20, 15), 85);
        assert_eq!(two.reaches(&[RowId(7)], ClusterTime(0), Nanos(1)), ClusterTime::NEVER);
        assert_eq!(two.reaches(&[RowId(1)], ClusterTime(3), Nanos(u64::MAX)), ClusterTime::NEVER);
    }

    proptest! {
        /// `served` and `reaches` are inverse, and `served` agrees with stepping.
        #[test]
        fn arithmetic_agrees_with_stepping(
            raw in prop::collection::vec(1u64..20, 1..5),
            from in 0u64..200, need in 1u64..300, mask in 1u8..16,
        ) {
            let slots: Vec<(u64, u64)> = (1..).zip(raw.iter().copied()).collect();
            let f = frame(0, &slots);
            let rows: Vec<RowId> = slots.iter().map(|s| RowId(s.0))
                .filter(|row| mask >> (row.0 - 1) & 1 == 1).collect();
            let got = f.reaches(&rows, ClusterTime(from), Nanos(need));
            let mut t = from;
            let mut sum = 0;
            let any = f.slots.iter().any(|slot| rows.contains(&slot.row));
            while any && sum < need {
                let (turn, _) = f.turn(ClusterTime(t)).unwrap();
                sum += u64::from(rows.contains(&f.slots[turn].row));
                t += 1;
            }
            prop_assert_eq!(got, if any { ClusterTime(t) } else { ClusterTime::NEVER });
            if any {
                let served: u64 = (0..f.slots.len())
                    .filter(|&i| rows.contains(&f.slots[i].row))
                    .map(|i| f.served(i, ClusterTime(from), got).0)
                    .sum();
                prop_assert_eq!(served, need);
            }
        }

        /// However the frame changes, no row that stays waits for its turn longer than the others'
        /// slots take.
        #[test]
        fn no_row_starves(changes in prop::collection::vec((0u64..25, 0u8..64), 1..60)) {
            const LENGTH: u64 = 10;
            let limit = 6u64;
            let mut f = Frame::default();
            let mut now = 0;
            let mut waiting: BTreeMap<RowId, u64> = BTreeMap::new();
            for (pause, mask) in changes {
                let until = now + pause;
                while now < until {
                    if let Some((turn, _)) = f.turn(ClusterTime(now)) {
                        for (&row, since) in &mut waiting {
                            if f.slots[turn].row == row {
                                *since = now + 1;
                            }
                            prop_assert!(now - (*since).min(now) <= (limit - 1) * LENGTH);
                        }
                    }
                    now += 1;
                }
                let wanted: Vec<(u64, u64)> =
                    (0..limit).filter(|row| mask >> row & 1 == 1).map(|row| (row, LENGTH)).collect();
                let wanted = lengths(&wanted);
                waiting.retain(|row, _| wanted.contains_key(row));
                for &row in wanted.keys() {
                    waiting.entry(row).or_insert(now);
                }
                f = f.followed_by(&wanted, ClusterTime(now));
                prop_assert!(f.has(&wanted) && f.epoch <= f.activates);
            }
        }
    }
}
