//! Shares: how long the slots of each row are together; mostly it has one.
//!
//! Let `f_c` be the share of each class `c` that has jobs to run, or whose empty time is held. A
//! row's weight is
//!
//! ```text
//! W_r = sum over the classes c present in r of f_c / (rows where c is present)
//!     + (1 - sum of all f_c) / (number of rows)
//! ```
//!
//! The weights add up to one. *Every present class gets at least its share of each frame*: the
//! rows where `c` is present together have at least the first term of `c` in each of them, which
//! adds up to `f_c`, and no term is negative since the shares of all classes never exceed the
//! whole. A class that is absent and pushes its time down (SP-2 paper, table 1) simply drops out:
//! its share becomes part of the rest that all rows divide evenly. One that holds its time keeps
//! a slot of its own in which nothing runs.
//!
//! To make that exact in whole nanoseconds, the length of the frame is a multiple of
//! [`SHARE_WHOLE`], so that each class's part is a whole number; parts are then divided among rows
//! evenly, odd nanoseconds going to the lowest rows (largest remainder: all remainders are equal,
//! ties go by id).
//!
//! What a row gets may be cut into several slots ([`crate::slices`]); the frame is then as long as it
//! takes for each to be long enough.
//!
//! A row that has neither a share nor a rest to divide gets no slot: its jobs run on what the
//! other rows leave idle, as an administrator that gives away the whole has asked.

use crate::frame::{Layout, Lengths};
use crate::slices::Cut;
use alloc::collections::{BTreeMap, BTreeSet};
use tutti_types::class::{ClassSpec, Classes};
use tutti_types::ids::{ClassName, RowId};
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::time::Nanos;

/// The classes that have jobs to run, by row. A held slot is a row with just its class.
pub type Present = BTreeMap<RowId, BTreeSet<ClassName>>;

/// Which slots each row has: as long together as its weight says, and as many as its classes ask for.
#[must_use]
pub fn layout(present: &Present, classes: &Classes, quantum: Nanos) -> Layout {
    let cut = |row: &RowId| Cut::of(present.get(row).into_iter().flatten(), classes);
    let lengths = lengths(present, classes, quantum);
    let turns = lengths.into_iter().map(|(row, length)| (row, cut(&row).of_length(length)));
    Layout::Turns(turns.collect())
}

/// The shortest slot that there may be, and the class whose it is.
///
/// A row has the less, the fewer classes are in it, and the more rows these are in too. So the least has a row with one
/// class that is also in all others: its share of a quantum, and what all shares leave of one.
#[must_use]
pub fn shortest(classes: &Classes, quantum: Nanos) -> Option<(Nanos, ClassName)> {
    let shares = || classes.values().map(ClassSpec::share).filter(|&share| share > 0);
    let rest = SHARE_WHOLE.saturating_sub(shares().sum());
    // A class without a share where they leave nothing has what one of them leaves that is absent.
    let without = if rest > 0 { rest } else { shares().min().unwrap_or(rest) };
    let slot = |(name, spec): (&ClassName, &ClassSpec)| {
        let part = if spec.share() > 0 { spec.share() + rest } else { without };
        let all = u128::from(quantum.0) * u128::from(part) / u128::from(SHARE_WHOLE);
        let all = Nanos(u64::try_from(all).unwrap_or(u64::MAX));
        (Cut::of([name].into_iter(), classes).slot_of(all), name.clone())
    };
    classes.iter().map(slot).min()
}

/// How long the slots of each row are together.
#[must_use]
pub fn lengths(present: &Present, classes: &Classes, quantum: Nanos) -> Lengths {
    let rows = present.len() as u64;
    let parts = class_parts(present, classes);
    let needs =
        |row: &RowId| Cut::of(present.get(row).into_iter().flatten(), classes).least_of_all();
    if parts.is_empty() {
        let longest = present.keys().map(needs).max().unwrap_or(0).max(quantum.0);
        return present.keys().map(|&row| (row, Nanos(longest))).collect();
    }
    let mut units = quantum.0.saturating_mul(rows).div_ceil(u64::from(SHARE_WHOLE));
    loop {
        let mut lengths = divide(present, &parts, units);
        lengths.retain(|_, length| *length > Nanos::ZERO);
        // Stretch the frame so that all become long enough. Odd nanoseconds may fall otherwise in the
        // longer frame, hence the loop; it grows each time.
        let stretched = lengths.iter().map(|(row, length)| {
            (u128::from(units) * u128::from(needs(row))).div_ceil(u128::from(length.0))
        });
        let stretched = stretched.max().unwrap_or(0);
        if stretched <= u128::from(units) {
            return lengths;
        }
        units = u64::try_from(stretched).unwrap_or(u64::MAX);
    }
}

/// A class with a share, and the rows where it is present.
struct Part<'a> {
    share: u32,
    rows: BTreeSet<&'a RowId>,
}

/// The classes with a share that are present anywhere.
fn class_parts<'a>(present: &'a Present, classes: &Classes) -> BTreeMap<&'a ClassName, Part<'a>> {
    let mut parts = BTreeMap::new();
    for (row, names) in present {
        for name in names {
            let share = classes.get(name).map_or(0, ClassSpec::share);
            if share > 0 {
                let part = parts.entry(name).or_insert(Part { share, rows: BTreeSet::new() });
                part.rows.insert(row);
            }
        }
    }
    parts
}

/// Divides a frame of `units` times [`SHARE_WHOLE`] nanoseconds by the rule above.
fn divide(present: &Present, parts: &BTreeMap<&ClassName, Part<'_>>, units: u64) -> Lengths {
    let mut lengths: Lengths = present.keys().map(|&row| (row, Nanos::ZERO)).collect();
    let mut rest = u64::from(SHARE_WHOLE);
    for part in parts.values() {
        rest = rest.saturating_sub(u64::from(part.share));
        spread(
            units.saturating_mul(u64::from(part.share)),
            part.rows.iter().copied(),
            &mut lengths,
        );
    }
    spread(units.saturating_mul(rest), present.keys(), &mut lengths);
    lengths
}

/// Divides an amount evenly among rows, odd nanoseconds to the lowest ids.
fn spread<'a>(amount: u64, rows: impl ExactSizeIterator<Item = &'a RowId>, lengths: &mut Lengths) {
    let count = (rows.len() as u64).max(1);
    for (i, row) in (0..).zip(rows) {
        let odd = u64::from(i < amount % count);
        *lengths.entry(*row).or_default() += Nanos(amount / count + odd);
    }
}

#[cfg(test)]
mod tests {
    use super::{Present, layout, lengths, shortest};
    use crate::frame::Layout;
    use proptest::prelude::*;
    use tutti_types::class::{ClassSpec, Classes};
    use tutti_types::ids::{ClassName, RowId};
    use tutti_types::limits::{QUANTUM_MIN, SHARE_WHOLE};
    use tutti_types::time::Nanos;

    fn classes(shares: &[(&str, u32)]) -> Classes {
        let spec = |share| ClassSpec::default().with("share", u64::from(share)).unwrap();
        shares.iter().map(|&(name, share)| (ClassName::new(name), spec(share))).collect()
    }

    fn present(rows: &[&[&str]]) -> Present {
        let names = |row: &&[&str]| row.iter().map(|name| ClassName::new(name)).collect();
        (1..).map(RowId).zip(rows.iter().map(names)).collect()
    }

    fn check(shares: &[(&str, u32)], rows: &[&[&str]], expected_ms: &[u64]) {
        let got = lengths(&present(rows), &classes(shares), Nanos::from_millis(100));
        let got: Vec<u64> = got.values().map(|length| length.0 / 1_000_000).collect();
        assert_eq!(got, expected_ms, "{shares:?} {rows:?}");
    }

    #[test]
    fn without_shares_all_slots_are_one_quantum() {
        check(&[("a", 0)], &[&["a"], &["a"], &["a"]], &[100, 100, 100]);
    }

    #[test]
    fn a_share_is_the_least_and_the_rest_is_divided() {
        check(&[("a", 5000), ("b", 0)], &[&["a"], &["b"]], &[150, 50]);
        check(&[("a", 5000), ("b", 5000)], &[&["a"], &["b"]], &[100, 100]);
        check(&[("a", 5000), ("b", 2500)], &[&["a"], &["b"], &["b"]], &[175, 62, 62]);
        check(&[("a", 5000), ("b", 2500)], &[&["b"], &["b"]], &[100, 100]);
    }

    #[test]
    fn a_row_without_a_share_or_a_rest_has_no_slot() {
        check(&[("a", 10_000), ("b", 0)], &[&["a"], &["b"]], &[200]);
        check(&[("a", 10_000), ("b", 0)], &[&["a", "b"], &["b"]], &[200]);
        check(&[("a", 10_000), ("b", 0)], &[&["b"]], &[100]);
    }

    #[test]
    fn the_frame_is_stretched_so_that_no_slot_is_too_short() {
        let got = lengths(
            &present(&[&["a"], &["b"]]),
            &classes(&[("a", 9_999), ("b", 1)]),
            Nanos::from_millis(2),
        );
        assert_eq!(got[&RowId(2)], QUANTUM_MIN);
        assert_eq!(got[&RowId(1)].0, 9_999 * QUANTUM_MIN.0);
    }

    /// Classes with a share, a number of slots and the least length of one in milliseconds.
    fn cut(rules: &[(&str, u32, u64, u64)]) -> Classes {
        let spec = |(share, slots, least): (u32, u64, u64)| {
            let spec = ClassSpec::default().with("share", u64::from(share)).unwrap();
            spec.with("slots", slots).unwrap().with("slot_min", least * 1_000_000).unwrap()
        };
        rules.iter().map(|&(name, a, b, c)| (ClassName::new(name), spec((a, b, c)))).collect()
    }

    /// The slots of each row, each as short as the shortest of them.
    fn slots(classes: &Classes, rows: &[&[&str]], quantum: Nanos) -> Vec<Nanos> {
        let Layout::Turns(turns) = layout(&present(rows), classes, quantum) else { panic!() };
        turns.values().map(|turns| Nanos(turns.length.0 / u64::from(turns.slots))).collect()
    }

    #[test]
    fn a_slot_is_as_short_as_shares_and_slots_can_make_it() {
        let check = |rules: &[(&str, u32, u64, u64)], rows: &[&[&str]], class: &str, ms: u64| {
            let (classes, quantum) = (cut(rules), Nanos::from_millis(200));
            let expected = Nanos::from_millis(ms);
            assert_eq!(shortest(&classes, quantum), Some((expected, ClassName::new(class))));
            let slots = slots(&classes, rows, quantum);
            assert_eq!(slots.iter().min(), Some(&expected), "{rules:?} {rows:?}");
        };
        check(&[("a", 0, 1, 2), ("b", 0, 1, 2)], &[&["a"], &["b"]], "a", 200);
        check(&[("a", 0, 1, 2), ("b", 0, 4, 2)], &[&["a"], &["b"]], "b", 50);
        check(&[("a", 0, 4, 300)], &[&["a"], &["a"]], "a", 300);
        let rows: [&[&str]; 2] = [&["a"], &["a", "b"]];
        check(&[("a", 200, 1, 2), ("b", 9800, 1, 2)], &rows, "a", 4);
        check(&[("a", 200, 1, 9), ("b", 9800, 1, 2)], &rows, "a", 9);
        // One has no share, and the shares are the whole.
        let rows: [&[&str]; 2] = [&["b"], &["c"]];
        check(&[("a", 1000, 1, 2), ("b", 9000, 1, 2), ("c", 0, 2, 2)], &rows, "c", 10);
        assert_eq!(shortest(&Classes::new(), Nanos::from_millis(200)), None);
    }

    proptest! {
        #[test]
        fn no_slot_is_shorter_than_the_shortest(
            rules in prop::collection::vec((0u32..4000, 1u64..17, 2u64..50), 4),
            rows in prop::collection::vec(prop::collection::btree_set(0usize..4, 1..4), 1..9),
            quantum in 2_000_000u64..10_000_000_000,
        ) {
            let names = ["a", "b", "c", "d"];
            let mut left = SHARE_WHOLE;
            let rules: Vec<_> = names.iter().zip(rules).map(|(&name, (share, slots, least))| {
                let share = if share < 1000 { 0 } else { share.min(left) };
                left -= share;
                (name, share, slots, least)
            }).collect();
            let rows: Vec<Vec<&str>> =
                rows.iter().map(|row| row.iter().map(|&c| names[c]).collect()).collect();
            let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
            let (classes, quantum) = (cut(&rules), Nanos(quantum));
            let (shortest, _) = shortest(&classes, quantum).unwrap();
            for slot in slots(&classes, &rows, quantum) {
                // A nanosecond is lost where a share is divided among rows, the rest is, and a row into slots.
                prop_assert!(slot.0 + 3 >= shortest.0, "{slot:?} is shorter than {shortest:?}");
            }
        }

        /// Each present class gets at least its share of the frame, exactly; no slot is too short.
        #[test]
        fn every_class_gets_its_share(
            shares in prop::collection::vec(0u32..3000, 4),
            rows in prop::collection::vec(prop::collection::btree_set(0usize..4, 1..3), 1..9),
            quantum in 2_000_000u64..10_000_000_000,
        ) {
            let names = ["a", "b", "c", "d"];
            let mut left = SHARE_WHOLE;
            let shares: Vec<(&str, u32)> = names.iter().zip(shares).map(|(&name, share)| {
                let share = share.min(left);
                left -= share;
                (name, share)
            }).collect();
            let rows: Vec<Vec<&str>> =
                rows.iter().map(|row| row.iter().map(|&c| names[c]).collect()).collect();
            let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
            let present = present(&rows);
            let got = lengths(&present, &classes(&shares), Nanos(quantum));
            let frame: u128 = got.values().map(|length| u128::from(length.0)).sum();
            prop_assert!(got.values().all(|&length| length >= QUANTUM_MIN));
            for &(name, share) in &shares {
                let class = ClassName::new(name);
                let theirs: u128 = present.iter()
                    .filter(|(_, names)| names.contains(&class))
                    .map(|(row, _)| u128::from(got.get(row).map_or(0, |length| length.0)))
                    .sum();
                let here = present.values().any(|names| names.contains(&class));
                prop_assert!(!here || theirs * u128::from(SHARE_WHOLE) >= frame * u128::from(share));
            }
        }
    }
}
