//! The frame: the cycle of all slots, and how one frame follows another.
//!
//! A change loses no slot. When a frame is replaced, the row that has its turn goes on with its
//! turn where it was (no longer than its new length). The next turn is that of the row that has
//! waited longest. A row that is gone makes way for it at once. Rows that are new go to the end.
//!
//! *Rows with one slot each*: rows stand in the order in which they had their last turn. So a row
//! only ever waits for rows that stood before it, each for at most its own length: a stream of
//! short jobs starves none.
//!
//! *Rows with several slots* come between the others. While the frame stays, each row has its slots
//! once in a cycle. When it changes, the row that has waited longest comes next. So of any cycle's
//! length, either all of it passes without a change, or a row that has waited longest has a turn in
//! it. A row waits for at most as many cycles as there are rows.
//!
//! *Rows with a first turn soon* ([`Turns::soon`]) are inserted before rows that wait. While
//! one that was inserted has not had its first turn, no other is; and if it has its first turn now,
//! the row that has waited longest comes before the next one that is inserted. So between two such
//! turns is one of a row that waits: however many come, none waits for more than twice as many
//! turns.
//!
//! Where places are fixed ([`Layout::Places`]) the turn only ever goes on from place to place,
//! whichever rows comes and goes, so none comes up twice before each other one that is there has: a
//! row is sure of its part of any time, however many slots it has.
//!
//! The slots of a frame are listed from the one that had its turn when the frame was made.

use crate::slices::{Turns, spread};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::RowId;
use tutti_types::time::{ClusterTime, Nanos};

/// How long all slots of each row shall be together; rows without one are left out.
pub type Lengths = BTreeMap<RowId, Nanos>;

/// What slots there shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each row as often and as long as this; rows without a slot are left out.
    Turns(BTreeMap<RowId, Turns>),
    /// These, in the order of their places in a cycle that has room for others. A row that leaves
    /// and comes back has the places that it had.
    Places(Vec<FrameSlot>),
}

impl Layout {
    /// One slot for each row.
    #[must_use]
    pub fn once(lengths: &Lengths) -> Self {
        Self::Turns(lengths.iter().map(|(&row, &length)| (row, Turns::once(length))).collect())
    }
}

/// One slot of the frame: the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameSlot {
    /// The slot that has its turn.
    pub row: RowId,
    /// How long.
    pub length: Nanos,
    /// Its place in the cycle, where places are fixed. Where rows take turns: how many rows wait
    /// for theirs longer than this one did when the frame was made, and [`INSERTED`].
    pub place: u32,
}

/// A mark in [`FrameSlot::place`]: the row was new, and its first turn came before that of rows
/// that waited.
pub const INSERTED: u32 = 1 << 31;

/// The cycle of all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

    /// Whether the frame has these slots.
    #[must_use]
    pub fn has(&self, layout: &Layout) -> bool {
        match layout {
            Layout::Turns(turns) => {
                let mut has: BTreeMap<RowId, (u32, Nanos)> = BTreeMap::new();
                for slot in &self.slots {
                    let (count, length) = has.entry(slot.row).or_default();
                    *count += 1;
                    *length += slot.length;
                }
                let alone = turns.len() == 1;
                let wants = turns.iter().map(|(&row, turns)| {
                    (row, (if alone { 1 } else { turns.slots }, turns.length))
                });
                has.into_iter().eq(wants)
            }
            Layout::Places(slots) => {
                let first = self.slots.first().map(|slot| slot.place);
                let begin = slots.iter().position(|slot| Some(slot.place) == first).unwrap_or(0);
                let from_first = slots[begin..].iter().chain(&slots[..begin]);
                self.slots.iter().eq(from_first)
            }
        }
    }

    /// How long all slots of a row are together, if it has any.
    #[must_use]
    pub fn length_of(&self, row: RowId) -> Option<Nanos> {
        let theirs = self.slots.iter().filter(|slot| slot.row == row);
        theirs.map(|slot| slot.length).reduce(|sum, length| sum + length)
    }

    /// The slot that has its turn at `at`, as an index, and since when.
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

    /// The frame that follows this one at `at`, with these slots.
    #[must_use]
    pub fn followed_by(&self, layout: &Layout, at: ClusterTime) -> Self {
        let (turn, begins) = self.turn(at).unwrap_or((0, at));
        let before = self.slots.get(turn).copied();
        let slots = match layout {
            Layout::Turns(turns) => self.in_turns(turns, turn, at),
            Layout::Places(slots) => {
                let next = before.map_or(0, |before| before.place);
                let begin = slots.iter().position(|slot| slot.place >= next).unwrap_or(0);
                let mut slots = slots.clone();
                slots.rotate_left(begin);
                slots
            }
        };
        let fixed = matches!(layout, Layout::Places(_));
        let goes_on = |first: &&FrameSlot| {
            before.is_some_and(|before| {
                before.row == first.row && (!fixed || before.place == first.place)
            })
        };
        let elapsed = slots
            .first()
            .filter(goes_on)
            .map_or(Nanos::ZERO, |first| at.since(begins).min(first.length));
        Self { activates: at, epoch: at - elapsed, slots }
    }

    /// The slots of rows that take turns, from the slot on that has its turn.
    ///
    /// `turn`: the slot that has its turn at `at`.
    fn in_turns(
        &self,
        turns: &BTreeMap<RowId, Turns>,
        turn: usize,
        at: ClusterTime,
    ) -> Vec<FrameSlot> {
        let (order, inserted) = self.in_order(turns, turn, at);
        // The row that has waited longest is next, and one that is inserted comes before or after.
        let last = inserted.and_then(|row| order.iter().position(|&(other, _)| other == row));
        let next = order.len().min(last.map_or(2, |last| (last + 1).clamp(2, 3)));
        let first: Vec<RowId> = order[..next].iter().map(|&(row, _)| row).collect();
        let flag = |row| if inserted == Some(row) { INSERTED } else { 0 };
        let ranks: BTreeMap<RowId, u32> =
            (0..).zip(&order).map(|(rank, &(row, _))| (row, flag(row) | rank)).collect();
        let slots = begin_with(spread(&order), &first);
        let slot = |(row, length)| FrameSlot { row, length, place: ranks[&row] };
        slots.into_iter().map(slot).collect()
    }

    /// What rows shall have: the one that has its turn, then those that wait, the longest first,
    /// then those that are new. And which of them was inserted and has not had its first turn.
    fn in_order(
        &self,
        turns: &BTreeMap<RowId, Turns>,
        turn: usize,
        at: ClusterTime,
    ) -> (Vec<(RowId, Turns)>, Option<RowId>) {
        let again = at.since(self.epoch).0 >= self.cycle();
        let (had, waits) = self.slots.split_at(turn.min(self.slots.len()));
        let (now, waits) = waits.split_at(waits.len().min(1));
        let is_first_turn = |slot: &&FrameSlot| !again && slot.place & INSERTED != 0;
        let in_turn = now.first().filter(is_first_turn);
        let waiting = waits.iter().find(is_first_turn);
        let waiting = waiting.filter(|slot| turns.contains_key(&slot.row)).map(|slot| slot.row);
        // Turns that were, the latest first: those since this frame began, or all.
        let again_waits = waits.iter().rev().filter(|_| again);
        let mut seen = BTreeSet::new();
        let turns_had = now.iter().chain(had.iter().rev()).chain(again_waits);
        let latest: Vec<RowId> =
            turns_had.map(|slot| slot.row).filter(|&row| seen.insert(row)).collect();
        // Rows without one waited in this order when the frame was made.
        let mut waits: Vec<&FrameSlot> = waits.iter().collect();
        waits.sort_by_key(|slot| slot.place & !INSERTED);
        let waits = waits.into_iter().map(|slot| slot.row).filter(|&row| seen.insert(row));
        let mut rows: Vec<RowId> = latest.first().copied().into_iter().take(now.len()).collect();
        rows.extend(waits);
        rows.extend(latest.iter().skip(now.len()).rev());
        rows.retain(|row| turns.contains_key(row));
        let mut inserted = in_turn.map(|slot| slot.row).or(waiting);
        let new = turns.iter().filter(|(row, _)| !seen.contains(row));
        let (soon, new): (Vec<_>, Vec<_>) = new.partition(|(_, turns)| turns.soon);
        let mut soon = soon.into_iter().map(|(&row, _)| row);
        if waiting.is_none()
            && let Some(row) = soon.next()
        {
            // Between two that are inserted, the one that has waited longest has its turn.
            let stays = now.first().is_some_and(|slot| turns.contains_key(&slot.row));
            let after = usize::from(stays) + usize::from(in_turn.is_some());
            rows.insert(after.min(rows.len()), row);
            inserted = Some(row);
        }
        rows.extend(soon);
        rows.extend(new.into_iter().map(|(&row, _)| row));
        (rows.into_iter().map(|row| (row, turns[&row])).collect(), inserted)
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

    /// When a job that runs in the slots of `rows` has run for `need` more, counted from `from`.
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

/// The same cycle of slots from another slot on, so that these rows come first, in this order. As
/// far as no place of the cycle has them in this order, slots are moved.
fn begin_with(mut slots: Vec<(RowId, Nanos)>, first: &[RowId]) -> Vec<(RowId, Nanos)> {
    let count = slots.len();
    let alike = |begin: usize| {
        let pairs = first.iter().zip(slots[begin..].iter().chain(&slots[..begin]));
        pairs.take_while(|(row, slot)| **row == slot.0).count()
    };
    let best = (0..count).max_by_key(|&begin| (alike(begin), count - begin)).unwrap_or(0);
    slots.rotate_left(best);
    for (index, row) in first.iter().enumerate() {
        if let Some(found) = (index..count).find(|&at| slots[at].0 == *row) {
            slots[index..=found].rotate_right(1);
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::{Frame, FrameSlot, Layout, Lengths};
    use crate::slices::Turns;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tutti_types::ids::RowId;
    use tutti_types::time::{ClusterTime, Nanos};

    fn frame(epoch: u64, slots: &[(u64, u64)]) -> Frame {
        let slots = slots.iter().map(|&(row, length)| FrameSlot {
            row: RowId(row),
            length: Nanos(length),
            place: 0,
        });
        Frame { activates: ClusterTime(epoch), epoch: ClusterTime(epoch), slots: slots.collect() }
    }

    fn lengths(slots: &[(u64, u64)]) -> Layout {
        Layout::once(&row_lengths(slots))
    }

    fn row_lengths(slots: &[(u64, u64)]) -> Lengths {
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

        /// In fixed places, a row that stays gets its part of any time, but for what a cycle can
        /// hold back, whichever rows come and go.
        #[test]
        fn a_row_in_fixed_places_is_sure_of_its_part(
            places in prop::collection::vec((0u64..4, 1u64..9), 4..12),
            changes in prop::collection::vec((0u64..30, 0u8..16), 1..60),
        ) {
            let cycle: u64 = places.iter().map(|place| place.1).sum();
            let own: u64 = places.iter().filter(|place| place.0 == 0).map(|place| place.1).sum();
            let mut f = Frame::default();
            let mut now = 0;
            let mut got = vec![0];
            for (pause, mask) in changes {
                // Row 0 stays.
                let is_there = |row: u64| row == 0 || mask >> row & 1 == 1;
                let slots = (0..).zip(&places).filter(|(_, place)| is_there(place.0));
                let slots = slots.map(|(place, &(row, length))| {
                    FrameSlot { row: RowId(row), length: Nanos(length), place }
                });
                let layout = Layout::Places(slots.collect());
                f = f.followed_by(&layout, ClusterTime(now));
                prop_assert!(f.has(&layout) && f.epoch <= f.activates);
                for _ in 0..pause {
                    let turn = f.turn(ClusterTime(now)).map(|(turn, _)| f.slots[turn].row);
                    let runs = u64::from(turn == Some(RowId(0)));
                    got.push(got.last().unwrap() + runs);
                    now += 1;
                }
            }
            for (from, before) in got.iter().enumerate() {
                for (to, after) in got.iter().enumerate().skip(from) {
                    let (time, got) = ((to - from) as u64, after - before);
                    let sure = time / cycle * own + (time % cycle).saturating_sub(cycle - own);
                    prop_assert!(own == 0 || got >= sure, "{got} of {sure} from {from} to {to}");
                }
            }
        }

        /// However the frame changes, no row that stays waits for its turn longer than the others'
        /// slots take: once, or twice if rows come that are to have a turn soon.
        #[test]
        fn no_row_starves(
            changes in prop::collection::vec((0u64..25, 0u8..64), 1..60), soon in any::<bool>(),
        ) {
            const LENGTH: u64 = 10;
            let limit = 6u64;
            let longest = if soon { 2 * limit - 1 } else { limit - 1 };
            starve(&changes, longest * LENGTH, |rows| {
                let turns = |&row: &u64| (RowId(row), Turns { soon, ..Turns::once(Nanos(LENGTH)) });
                rows.iter().map(turns).collect()
            })?;
        }

        /// The same where rows have several slots: at most as many cycles as there are rows.
        #[test]
        fn no_row_starves_beside_rows_with_several_slots(
            changes in prop::collection::vec((0u64..25, 0u8..64), 1..60),
            slots in prop::collection::vec(1u32..6, 6), soon in any::<bool>(),
        ) {
            const LENGTH: u64 = 10;
            let cycle = u64::from(slots.iter().sum::<u32>()) * LENGTH;
            starve(&changes, 6 * cycle, |rows| {
                let turns = |&row: &u64| {
                    let slots = slots[usize::try_from(row).unwrap()];
                    let length = Nanos(u64::from(slots) * LENGTH);
                    (RowId(row), Turns { length, slots, even: true, soon })
                };
                rows.iter().map(turns).collect()
            })?;
        }
    }

    /// Changes the frame at these pauses to these sets of rows, and checks that none waits longer.
    fn starve(
        changes: &[(u64, u8)],
        longest: u64,
        turns: impl Fn(&[u64]) -> BTreeMap<RowId, Turns>,
    ) -> Result<(), TestCaseError> {
        let mut f = Frame::default();
        let mut now = 0;
        let mut waiting: BTreeMap<RowId, u64> = BTreeMap::new();
        // After the last change, long enough for all.
        let changes = changes.iter().copied().chain([(2 * longest, 0)]);
        for (pause, mask) in changes {
            let until = now + pause;
            while now < until {
                if let Some((turn, _)) = f.turn(ClusterTime(now)) {
                    for (&row, since) in &mut waiting {
                        if f.slots[turn].row == row {
                            *since = now + 1;
                        }
                        prop_assert!(
                            now - (*since).min(now) <= longest,
                            "{row:?} at {now} in {f:?}"
                        );
                    }
                }
                now += 1;
            }
            let rows: Vec<u64> = (0..6).filter(|row| mask >> row & 1 == 1).collect();
            let wanted = Layout::Turns(turns(&rows));
            waiting.retain(|row, _| rows.contains(&row.0));
            for row in rows {
                waiting.entry(RowId(row)).or_insert(now);
            }
            f = f.followed_by(&wanted, ClusterTime(now));
            prop_assert!(f.has(&wanted) && f.epoch <= f.activates);
        }
        Ok(())
    }

    #[test]
    fn a_row_whose_first_turn_is_soon_is_next_and_a_second_one_after_the_next() {
        let follow = |old: &Frame, rows: &[(u64, bool)], at: u64| {
            let turns = |&(row, soon)| (RowId(row), Turns { soon, ..Turns::once(Nanos(10)) });
            let layout = Layout::Turns(rows.iter().map(turns).collect());
            let next = old.followed_by(&layout, ClusterTime(at));
            (next.slots.iter().map(|slot| slot.row.0).collect::<Vec<_>>(), next)
        };
        let old = frame(0, &[(1, 10), (2, 10), (3, 10)]);
        let (rows, f) = follow(&old, &[(1, false), (2, false), (3, false), (4, true)], 3);
        assert_eq!(rows, [1, 4, 2, 3]);
        // While it waits, another one goes to the end.
        let all = [(1, false), (2, false), (3, false), (4, true), (5, true)];
        assert_eq!(follow(&f, &all, 5).0, [1, 4, 2, 3, 5]);
        // In its first turn, another comes after the row that has waited longest.
        assert_eq!(follow(&f, &all, 13).0, [4, 2, 5, 3, 1]);
        // After that, it comes next.
        assert_eq!(follow(&f, &all, 23).0, [2, 5, 3, 1, 4]);
        // If the first is gone before its turn is over, too, a row that waits is next.
        let without = [(1, false), (2, false), (3, false), (5, true)];
        assert_eq!(follow(&f, &without, 13).0, [2, 5, 3, 1]);
    }

    #[test]
    fn the_row_that_has_waited_longest_is_next_beside_a_row_with_several_slots() {
        let turns = |rows: &[(u64, u32)]| {
            let turns = |&(row, slots): &(u64, u32)| {
                let length = Nanos(u64::from(slots) * 10);
                (RowId(row), Turns { length, slots, even: true, soon: false })
            };
            Layout::Turns(rows.iter().map(turns).collect())
        };
        let mut f = Frame::default().followed_by(&turns(&[(1, 4), (2, 1), (3, 1)]), ClusterTime(0));
        let mut had = Vec::new();
        // A change in each slot.
        for step in 0..6 {
            let at = ClusterTime(step * 10 + 5);
            had.push(f.slots[f.turn(at).unwrap().0].row.0);
            let slots = if step % 2 == 0 { 5 } else { 4 };
            f = f.followed_by(&turns(&[(1, slots), (2, 1), (3, 1)]), at);
        }
        assert_eq!(had, [1, 2, 3, 1, 2, 3]);
    }
}
