//! Who has which row, and how long its slots are.
//!
//! A class with a share has a row of its own. All classes without one have a row together, with what
//! the shares leave: so where no class has a share, all jobs are in one row, and there is no switch but
//! from job to job.
//!
//! A row's slot is as long as its part of the longest cycle, in which all rows are there; who is absent
//! drops out. So what a class does not use goes to the others in the same ratios as their own parts
//! (Gustafson, section 2.2.1), and each row has its [`Pace`] whatever the others do.

use super::pace::Pace;
use crate::class::Classes;
use crate::frame::Lengths;
use crate::ids::ClassName;
use crate::limits::{QUANTUM_MIN, SHARE_WHOLE};
use crate::share::Present;
use crate::time::Nanos;
use alloc::collections::BTreeMap;

/// Who has a row: a class with a share, or all that have none.
pub(crate) type Sharers = Option<ClassName>;

/// Who has the row of a class.
pub(crate) fn sharers(classes: &Classes, class: &ClassName) -> Sharers {
    let share = classes.get(class).map_or(0, |spec| spec.share());
    (share > 0).then(|| class.clone())
}

/// The slots of all rows that there may be; who gets no time has none.
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
    let least = parts.values().min().copied().unwrap_or(1);
    let even = quantum.0.saturating_mul(parts.len() as u64).div_ceil(whole.max(1));
    let unit = even.max(QUANTUM_MIN.0.div_ceil(least));
    let pace = |part: u64| Pace { slot: part * unit, cycle: whole * unit };
    parts.into_iter().map(|(sharers, part)| (sharers, pace(part))).collect()
}

/// How long the slot of each row is.
pub(crate) fn lengths(present: &Present, classes: &Classes, quantum: Nanos) -> Lengths {
    let paces = paces(classes, quantum);
    let slot = |names: &alloc::collections::BTreeSet<ClassName>| {
        let mut paces = names.iter().filter_map(|name| paces.get(&sharers(classes, name)));
        paces.next().map_or(0, |pace| pace.slot)
    };
    let rows = present.iter().map(|(&row, names)| (row, Nanos(slot(names))));
    let lengths: Lengths = rows.filter(|(_, length)| *length > Nanos::ZERO).collect();
    if lengths.is_empty() {
        // Those who get no time have all of it while nobody else is there.
        return present.keys().map(|&row| (row, quantum)).collect();
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::{lengths, paces};
    use crate::class::{ClassSpec, Classes};
    use crate::ids::{ClassName, RowId};
    use crate::limits::QUANTUM_MIN;
    use crate::share::Present;
    use crate::time::Nanos;

    fn classes(shares: &[(&str, u32)]) -> Classes {
        let spec = |share| ClassSpec::default().with("share", u64::from(share)).unwrap();
        shares.iter().map(|&(name, share)| (ClassName::new(name), spec(share))).collect()
    }

    fn check(shares: &[(&str, u32)], rows: &[&str], expected_ms: &[u64]) {
        let names = |row: &&str| row.split('+').map(ClassName::new).collect();
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
        // Where nobody could have the rest, it is divided too.
        check(&[("a", 6000), ("b", 2000)], &["a", "b"], &[150, 50]);
    }

    #[test]
    fn who_gets_no_time_has_it_while_nobody_else_is_there() {
        check(&[("a", 10_000), ("b", 0)], &["a", "b"], &[100]);
        check(&[("a", 10_000), ("b", 0)], &["b"], &[100]);
    }

    #[test]
    fn no_slot_is_too_short() {
        let paces = paces(&classes(&[("a", 9_999), ("b", 1)]), Nanos::from_millis(2));
        assert_eq!(paces[&Some(ClassName::new("b"))].slot, QUANTUM_MIN.0);
        assert_eq!(paces[&Some(ClassName::new("a"))].cycle, 10_000 * QUANTUM_MIN.0);
    }
}
