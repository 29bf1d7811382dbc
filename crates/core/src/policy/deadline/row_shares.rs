//! The owners of rows, and how long their slots are.
//!
//! A class with a share has a row of its own. All classes without one have a row together, with
//! what the shares leave: so where no class has a share, all jobs are in one row, and there is no
//! switch but from job to job.
//!
//! A row's slots together are as long as its part of the longest cycle, in which all rows are
//! there; an absent one drops out. So what a class does not use goes to the others in the same
//! ratios as their own parts (Gustafson, section 2.2.1), and each row has its [`Pace`] whatever the
//! others do.

use super::rate::Pace;
use crate::frame::{FrameSlot, Layout, Lengths};
use crate::share::{Present, Users};
pub(crate) use crate::share::{Sharers, sharers};
use crate::slices::{Cut, spread};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::class::Classes;
use tutti_types::ids::{ClassName, RowId};
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::time::Nanos;

/// The slots of all rows that there may be; an owner without time has none.
pub(crate) fn paces(classes: &Classes, quantum: Nanos) -> BTreeMap<Sharers, Pace> {
    let mut parts: BTreeMap<Sharers, u64> = BTreeMap::new();
    let mut rest = u64::from(SHARE_WHOLE);
    let mut others = false;
    for (name, spec) in classes {
        rest = rest.saturating_sub(u64::from(spec.share()));
        others |= spec.share() == 0;
        if spec.share() > 0 {
            parts.insert(Some(name.clone()), u64::from(spec.share()));
        }
    }
    if others && rest > 0 {
        parts.insert(None, rest);
    }
    let whole: u64 = parts.values().sum();
    let even = quantum.0.saturating_mul(parts.len() as u64).div_ceil(whole.max(1));
    let cuts = cuts(classes);
    let least = |(sharers, part): (&Sharers, &u64)| {
        cuts.get(sharers).map_or(0, |cut| cut.least_of_all().div_ceil(*part))
    };
    let unit = parts.iter().map(least).max().unwrap_or(0).max(even);
    let pace = |part: u64| Pace { slot: part * unit, cycle: whole * unit };
    parts.into_iter().map(|(sharers, part)| (sharers, pace(part))).collect()
}

/// The shortest slot that there may be, and a class that has it.
pub(crate) fn shortest(classes: &Classes, quantum: Nanos) -> Option<(Nanos, ClassName)> {
    let cuts = cuts(classes);
    let slot = |(row, pace): (Sharers, Pace)| {
        let length = cuts.get(&row)?.slot_of(Nanos(pace.slot));
        let without = || classes.iter().find(|(_, spec)| spec.share() == 0);
        Some((length, row.or_else(|| without().map(|(name, _)| name.clone()))?))
    };
    paces(classes, quantum).into_iter().filter_map(slot).min()
}

/// Which slots there are, each in its place of the longest cycle.
pub(crate) fn layout(present: &Present, classes: &Classes, quantum: Nanos) -> Layout {
    let lengths = lengths(present, classes, quantum);
    let paces = paces(classes, quantum);
    let cuts = cuts(classes);
    let turns = paces.iter().filter_map(|(sharers, pace)| {
        Some((sharers, cuts.get(sharers)?.of_length(Nanos(pace.slot))))
    });
    // Rows of classes without any time come last, in the order of their age.
    let cycle = spread(&turns.collect::<Vec<_>>());
    let theirs = |row: &RowId| {
        let (name, _) = present.get(row)?.first_key_value()?;
        Some(sharers(classes, name)).filter(|sharers| paces.contains_key(sharers))
    };
    let alone = lengths.len() == 1;
    let mut slots = Vec::new();
    for (place, (sharers, length)) in (0..).zip(cycle) {
        for (&row, &all) in &lengths {
            let first = slots.iter().all(|slot: &FrameSlot| slot.row != row);
            if theirs(&row).as_ref() == Some(sharers) && (first || !alone) {
                slots.push(FrameSlot { row, length: if alone { all } else { length }, place });
            }
        }
    }
    let others = lengths.iter().filter(|(row, _)| theirs(row).is_none());
    for (place, (&row, &length)) in (u32::MAX / 2..).zip(others) {
        slots.push(FrameSlot { row, length, place });
    }
    Layout::Places(slots)
}

/// How the slots of all rows that there may be are cut.
pub(crate) fn cuts(classes: &Classes) -> BTreeMap<Sharers, Cut> {
    let mut names: BTreeMap<Sharers, Vec<&ClassName>> = BTreeMap::new();
    for name in classes.keys() {
        names.entry(sharers(classes, name)).or_default().push(name);
    }
    names.into_iter().map(|(row, names)| (row, Cut::of(names.into_iter(), classes))).collect()
}

/// How long the slots of each row are together.
fn lengths(present: &Present, classes: &Classes, quantum: Nanos) -> Lengths {
    let paces = paces(classes, quantum);
    let slot = |names: &BTreeMap<ClassName, Users>| {
        let mut paces = names.keys().filter_map(|name| paces.get(&sharers(classes, name)));
        paces.next().map_or(0, |pace| pace.slot)
    };
    let rows = present.iter().map(|(&row, names)| (row, Nanos(slot(names))));
    let lengths: Lengths = rows.filter(|(_, length)| *length > Nanos::ZERO).collect();
    if lengths.is_empty() {
        // Owners without time have all of it while no other is there.
        return present.keys().map(|&row| (row, quantum)).collect();
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::{layout, lengths, paces, shortest};
    use crate::frame::Layout;
    use crate::share::{Present, Users};
    use tutti_types::class::{ClassSpec, Classes};
    use tutti_types::ids::{ClassName, RowId};
    use tutti_types::limits::QUANTUM_MIN;
    use tutti_types::time::Nanos;

    fn classes(shares: &[(&str, u32)]) -> Classes {
        let spec = |share| ClassSpec::default().with("share", u64::from(share)).unwrap();
        shares.iter().map(|&(name, share)| (ClassName::new(name), spec(share))).collect()
    }

    fn check(shares: &[(&str, u32)], rows: &[&str], expected_ms: &[u64]) {
        let names =
            |row: &&str| row.split('+').map(|name| (ClassName::new(name), Users::new())).collect();
        let present: Present = (1..).map(RowId).zip(rows.iter().map(names)).collect();
        let got = lengths(&present, &classes(shares), Nanos::from_millis(100));
        let got: Vec<u64> = got.values().map(|length| length.0 / 1_000_000).collect();
        assert_eq!(got, expected_ms, "{shares:?} {rows:?}");
    }

    #[test]
    fn what_a_class_does_not_use_is_divided_in_the_same_ratios() {
        let shares = [("a", 6000), ("b", 3000), ("c", 0), ("d", 0)];
        check(&shares, &["a", "b", "c+d"], &[180, 90, 30]);
        check(&shares, &["a", "b"], &[180, 90]);
        check(&shares, &["b", "d"], &[90, 30]);
        check(&shares, &["c"], &[30]);
        // Where none could have the rest, it is divided too.
        check(&[("a", 6000), ("b", 2000)], &["a", "b"], &[150, 50]);
    }

    #[test]
    fn who_gets_no_time_has_it_while_nobody_else_is_there() {
        check(&[("a", 10_000), ("b", 0)], &["a", "b"], &[100]);
        check(&[("a", 10_000), ("b", 0)], &["b"], &[100]);
    }

    #[test]
    fn the_shortest_slot_is_that_of_the_smallest_part() {
        let check = |shares: &[(&str, u32)], class: &str, ms: u64| {
            let (classes, quantum) = (classes(shares), Nanos::from_millis(100));
            let expected = Nanos::from_millis(ms);
            assert_eq!(shortest(&classes, quantum), Some((expected, ClassName::new(class))));
            let rows = (1..)
                .map(RowId)
                .zip(shares.iter().map(|&(name, _)| [(ClassName::new(name), Users::new())].into()));
            let Layout::Places(slots) = layout(&rows.collect(), &classes, quantum) else {
                panic!()
            };
            assert_eq!(slots.iter().map(|slot| slot.length).min(), Some(expected), "{shares:?}");
        };
        check(&[("a", 6000), ("b", 3000), ("c", 0)], "c", 30);
        check(&[("a", 9000), ("b", 500), ("c", 0)], "b", 15);
        check(&[("a", 6000), ("b", 2000)], "b", 50);
        check(&[("a", 0), ("b", 0)], "a", 100);
    }

    #[test]
    fn no_slot_is_too_short() {
        let paces = paces(&classes(&[("a", 9_999), ("b", 1)]), Nanos::from_millis(2));
        assert_eq!(paces[&Some(ClassName::new("b"))].slot, QUANTUM_MIN.0);
        assert_eq!(paces[&Some(ClassName::new("a"))].cycle, 10_000 * QUANTUM_MIN.0);
    }
}
