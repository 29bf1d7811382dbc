//! Levels: what controllers of blocks know, and the order of rounds.

use super::{Report, Rule};
use crate::apply::Core;
use alloc::format;
use alloc::vec::Vec;

pub(super) fn check(core: &Core, report: &mut Report<'_>) {
    if !core.policy().has_levels {
        if core.matrix.levels().is_some() {
            report(Rule::Levels, "there are controllers under another policy".into());
        }
        return;
    }
    let Some(levels) = core.matrix.levels() else {
        return report(Rule::Levels, "controllers do not know all nodes".into());
    };
    let anew = core.matrix.new_levels(&core.foreign);
    if !levels.is_like(&anew) {
        report(Rule::Levels, format!("{levels:?}, not {anew:?}"));
    }
    for (job, seat) in core.matrix.seats().filter(|(_, seat)| !seat.parts.is_empty()) {
        let block = levels.block_of(job);
        if block.map(|block| block.level) > levels.level_of(seat.row) {
            report(Rule::Levels, format!("job {job} of {block:?} is in row {}", seat.row));
        }
    }
    let slots = &core.frame.slots;
    let turns = slots.iter().zip(slots.iter().skip(1));
    if turns.filter(|(slot, next)| slot.place >= next.place).count() > 1 {
        report(Rule::Levels, format!("{slots:?} is no round"));
    }
    let level = |row| levels.level_of(row);
    let mut round: Vec<_> = slots.iter().map(|slot| (slot.place, level(slot.row))).collect();
    round.sort_unstable();
    if !round.is_sorted_by(|(_, level), (_, next)| level >= next) {
        report(Rule::Levels, format!("{round:?} does not go from the top down"));
    }
}
