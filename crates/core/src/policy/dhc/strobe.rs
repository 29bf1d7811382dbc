//! Strobes: the order of slots in a round of the policy `dhc`.
//!
//! A round goes from the top level down. Within a level, each row has a place that it keeps while
//! it has slots, and a new one gets the lowest that is free. A level has at most as many rows as
//! the parameter `rows` says. The turn only ever goes on from place to place
//! ([`Layout::Places`]). So between two turns of a row is no more than one of each other place,
//! whichever jobs come and go. Time that is held for classes without jobs comes last.

use crate::apply::Core;
use crate::frame::{FrameSlot, Layout};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tutti_types::ids::RowId;

/// Where the number of the level in [`FrameSlot::place`] begins, above that of the row.
const LEVEL_SHIFT: u32 = 16;
/// Levels count down from this one; none is higher.
const HIGHEST: u32 = 64;
/// What is no level: held time, and rows of which no processor is left.
const BELOW_ALL: u32 = HIGHEST + 2;

impl Core {
    /// One slot for each row, in the order of a round.
    pub(crate) fn in_strobes(&self, layout: Layout) -> Layout {
        let Layout::Turns(turns) = layout else { return layout };
        let had = |row: RowId| self.frame.slots.iter().find(|slot| slot.row == row);
        let mut taken = BTreeSet::new();
        let (mut slots, mut new) = (Vec::new(), Vec::new());
        for (&row, turns) in &turns {
            let (floor, length) = (self.depth_of(row) << LEVEL_SHIFT, turns.length);
            let kept = had(row).map(|slot| slot.place);
            match kept.filter(|place| place >> LEVEL_SHIFT == floor >> LEVEL_SHIFT) {
                Some(place) if taken.insert(place) => slots.push(FrameSlot { row, length, place }),
                Some(_) | None => new.push((row, length, floor)),
            }
        }
        for (row, length, floor) in new {
            let mut place = floor;
            while !taken.insert(place) {
                place += 1;
            }
            slots.push(FrameSlot { row, length, place });
        }
        slots.sort_unstable_by_key(|slot| slot.place);
        Layout::Places(slots)
    }

    /// How far below the highest level a row is.
    fn depth_of(&self, row: RowId) -> u32 {
        let level = self.matrix.levels().and_then(|levels| levels.level_of(row));
        level.map_or(BELOW_ALL, |level| HIGHEST + 1 - level.min(HIGHEST))
    }
}
