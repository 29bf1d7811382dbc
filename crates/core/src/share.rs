//! Shares: how long the slots of each row are together; mostly it has one.
//!
//! A frame is divided three times:
//!
//! 1. *Among classes.* Each class with a share that has jobs to run, or whose empty time is held,
//!    gets a part as large as its share. All classes without a share count as one class; its part
//!    is what the shares of all classes leave of the whole. A class that is absent drops out, so
//!    what it does not use goes to the others in the ratios of their own parts (SP-2 paper, table
//!    1; Gustafson, section 2.2.1).
//! 2. *Among the users of a class*, by their weights.
//! 3. *Among the rows of a user in a class*, evenly. A row where several of the user's jobs run
//!    side by side counts once.
//!
//! A row is as long as all that (class, user) at home in it bring along. So with `p_c` the part of
//! class `c`, `P` the sum over the classes present, `w_u` a user's weight, `W_c` the sum over the
//! users of `c`, and `n_cu` the rows of that user in that class:
//!
//! ```text
//! length of r / length of the frame = sum over (c, u) at home in r of  p_c/P * w_u/W_c / n_cu
//! ```
//!
//! Summed over all rows, each `(c, u)` occurs `n_cu` times, and so the sum is one: nothing is lost.
//! *Every present class gets at least its share of each frame*: the rows where `c` is present
//! together have at least `p_c/P`, and that is no less than its share, since the parts of all
//! classes never exceed the whole.
//!
//! To make that exact in whole nanoseconds, the frame is a multiple of `P`, so each class's part is
//! a whole number. It is a multiple of `P` times the `n_cu * W_c / gcd(n_cu * W_c, w_u)` as well,
//! if the least such multiple is below [`EXACT_MAX`]; then users and rows get whole numbers, too.
//! Otherwise the largest remainders of a class's users get the odd nanoseconds, and so do a user's
//! lowest rows. Either way what is divided is all given away, and users are off by less than a
//! nanosecond.
//!
//! A class without a share where the shares leave nothing gets no part while a class with one is
//! present: its jobs run on what other rows leave idle, as an administrator that gives away the
//! whole has asked. Alone, it gets all.
//!
//! *The shortest slot.* The frame is as long as it takes for each row to have half a quantum of its
//! class's part, and each slot the least length that its class names. A row with more than a
//! quantum and a half is cut into slots of about a quantum each ([`crate::slices`]), so that others
//! wait no longer for their turn; there are no more than some [`CUTS_MAX`] of these in a frame.

use crate::frame::{Layout, Lengths};
use crate::slices::{Cut, Turns};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::class::{ClassSpec, Classes};
use tutti_types::ids::{ClassName, RowId, UserId};
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::time::Nanos;

/// The users at home in a row, with their weights.
pub type Users = BTreeMap<UserId, u32>;

/// The classes that have jobs to run, by row, and the owners of these jobs. A held slot is a row
/// with just its class and no user.
pub type Present = BTreeMap<RowId, BTreeMap<ClassName, Users>>;

/// Those that share a part of the time: a class with a share, or all that have none.
pub(crate) type Sharers = Option<ClassName>;

/// Frames are rounded up to a multiple of no more than so many nanoseconds.
pub const EXACT_MAX: u64 = 1 << 20;

/// How many slots all rows together are cut into, about, beyond one for each.
pub const CUTS_MAX: u64 = 256;

/// What those count as that have only what is otherwise idle: no class can have this name.
pub(crate) fn idle_only() -> ClassName {
    ClassName::new("+idle")
}

/// The sharers that a class belongs to.
pub(crate) fn sharers(classes: &Classes, class: &ClassName) -> Sharers {
    let share = classes.get(class).map_or(0, ClassSpec::share);
    (share > 0).then(|| class.clone())
}

/// Which slots each row has: as long together as its part says, and as many as its classes ask for.
#[must_use]
pub fn layout(present: &Present, classes: &Classes, quantum: Nanos) -> Layout {
    let lengths = lengths(present, classes, quantum);
    let frame = lengths.values().fold(0u64, |sum, length| sum.saturating_add(length.0));
    let about = Nanos(quantum.0.max(frame / CUTS_MAX));
    let turns = |(row, length): (RowId, Nanos)| -> (RowId, Turns) {
        let cut = Cut::of(present.get(&row).into_iter().flat_map(BTreeMap::keys), classes);
        (row, cut.in_slots_of(length, about))
    };
    Layout::Turns(lengths.into_iter().map(turns).collect())
}

/// The shortest slot that there may be, and the class that has it.
///
/// Rows are at least as long as `Needs` says, and are cut into at most as many slots as a class
/// asks for, or into slots of two thirds of a quantum.
#[must_use]
pub fn shortest(classes: &Classes, quantum: Nanos) -> Option<(Nanos, ClassName)> {
    let needs = Needs { rest: rest(classes), classes, quantum };
    let slot = |name: &ClassName| {
        let cut = Cut::of([name].into_iter(), classes);
        (cut.slot_of(Nanos(needs.half(name))), name.clone())
    };
    classes.keys().map(slot).min()
}

/// What the shares of all classes leave of the whole.
pub(crate) fn rest(classes: &Classes) -> u64 {
    let shares = classes.values().map(|class| u64::from(class.share()));
    u64::from(SHARE_WHOLE).saturating_sub(shares.sum())
}

/// How long rows must be.
struct Needs<'a> {
    rest: u64,
    classes: &'a Classes,
    quantum: Nanos,
}

impl Needs<'_> {
    /// Half of what the part of a class is of a quantum, in nanoseconds.
    fn half(&self, class: &ClassName) -> u64 {
        let share = self.classes.get(class).map_or(0, |class| u64::from(class.share()));
        let part = match (share, self.rest) {
            // It has a part only while all others are absent.
            (0, 0) => u64::from(SHARE_WHOLE),
            (0, rest) => rest,
            (share, _) => share,
        };
        let half = u128::from(self.quantum.0) * u128::from(part) / u128::from(2 * SHARE_WHOLE);
        u64::try_from(half).unwrap_or(u64::MAX)
    }

    /// How long a row with these classes is at least.
    fn of(&self, names: &BTreeMap<ClassName, Users>) -> u64 {
        let least = Cut::of(names.keys(), self.classes).least_of_all();
        names.keys().map(|name| self.half(name)).max().unwrap_or(0).max(least)
    }
}

/// How long the slots of each row are together.
#[must_use]
pub fn lengths(present: &Present, classes: &Classes, quantum: Nanos) -> Lengths {
    let needs = Needs { rest: rest(classes), classes, quantum };
    if let (1, Some((&row, names))) = (present.len(), present.first_key_value()) {
        return [(row, quantum.max(Nanos(needs.of(names))))].into();
    }
    let groups = groups(present, classes, needs.rest);
    let whole: u64 = groups.iter().map(|group| group.part).sum();
    let exact = exact(&groups, whole).unwrap_or(1);
    let unit = whole.saturating_mul(exact).max(1);
    let rows = present.len() as u64;
    let mut units = quantum.0.saturating_mul(rows).div_ceil(unit);
    let least: BTreeMap<RowId, u64> =
        present.iter().map(|(&row, names)| (row, needs.of(names))).collect();
    loop {
        let mut lengths = Lengths::new();
        for group in &groups {
            let amount = units.saturating_mul(exact).saturating_mul(group.part);
            group.divide(amount, &mut lengths);
        }
        lengths.retain(|_, length| *length > Nanos::ZERO);
        // Stretch the frame so that all become long enough. Odd nanoseconds may fall otherwise in
        // the longer frame, hence the loop; it grows each time, and ends where no clock can count
        // it.
        let stretched = lengths.iter().map(|(row, length)| {
            (u128::from(units) * u128::from(least[row])).div_ceil(u128::from(length.0))
        });
        let stretched = stretched.max().unwrap_or(0).min(u128::from(FRAME_MAX / unit));
        if stretched <= u128::from(units) {
            return lengths;
        }
        units = u64::try_from(stretched).unwrap_or(u64::MAX);
    }
}

/// A frame is stretched to no more than this, in nanoseconds: some 146 years.
const FRAME_MAX: u64 = u64::MAX / 4;

/// Those that share a part.
struct Group<'a> {
    part: u64,
    /// Each with its weight and the rows where it is at home. A slot that is held has no user.
    users: BTreeMap<Option<UserId>, (u64, Vec<&'a RowId>)>,
}

impl Group<'_> {
    fn weight(&self) -> u64 {
        self.users.values().map(|(weight, _)| weight).sum()
    }

    /// Divides an amount among the users by weight, and each one's among its rows.
    fn divide(&self, amount: u64, lengths: &mut Lengths) {
        let whole = u128::from(self.weight().max(1));
        let share = |weight: u64| u128::from(amount) * u128::from(weight);
        let floor = |weight| u64::try_from(share(weight) / whole).unwrap_or(u64::MAX);
        let odd = amount - self.users.values().map(|&(weight, _)| floor(weight)).sum::<u64>();
        let mut remainders: Vec<(u128, usize)> = self
            .users
            .values()
            .enumerate()
            .map(|(index, &(weight, _))| (whole - share(weight) % whole, index))
            .collect();
        // There are fewer odd nanoseconds than users.
        if odd > 0 {
            remainders.sort_unstable();
        }
        let mut gets: Vec<u64> = self.users.values().map(|&(weight, _)| floor(weight)).collect();
        for &(_, index) in remainders.iter().take(usize::try_from(odd).unwrap_or(usize::MAX)) {
            gets[index] += 1;
        }
        for ((_, rows), amount) in self.users.values().zip(gets) {
            spread(amount, rows, lengths);
        }
    }
}

/// The sharers that have a part and are present.
fn groups<'a>(present: &'a Present, classes: &Classes, rest: u64) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<Option<&ClassName>, Group<'a>> = BTreeMap::new();
    let idle = idle_only();
    for (row, names) in present {
        for (name, users) in names {
            let share = classes.get(name).map_or(0, |class| u64::from(class.share()));
            let (key, part) = match share {
                0 if *name == idle => (Some(name), 0),
                0 => (None, rest),
                share => (Some(name), share),
            };
            let group = groups.entry(key).or_insert(Group { part, users: BTreeMap::new() });
            let mut add = |user, weight: u32| {
                let (most, rows) = group.users.entry(user).or_default();
                *most = u64::from(weight.max(1)).max(*most);
                // The user may be here in two classes that share a part.
                if rows.last() != Some(&row) {
                    rows.push(row);
                }
            };
            users.iter().for_each(|(&user, &weight)| add(Some(user), weight));
            if users.is_empty() {
                add(None, 1);
            }
        }
    }
    if groups.len() > 1 {
        groups.retain(|key, _| *key != Some(&idle));
    }
    let mut groups: Vec<Group<'a>> = groups.into_values().collect();
    if let [group] = &mut groups[..] {
        group.part = 1;
    }
    groups.retain(|group| group.part > 0);
    let common = groups.iter().fold(0, |common, group| gcd(common, group.part)).max(1);
    groups.iter_mut().for_each(|group| group.part /= common);
    groups
}

/// By what a multiple of `whole` must be multiplied so that all divisions are exact, if that is not
/// too much.
fn exact(groups: &[Group<'_>], whole: u64) -> Option<u64> {
    let most = EXACT_MAX / whole.max(1);
    let mut exact = 1;
    for group in groups {
        let all = group.weight();
        for (weight, rows) in group.users.values() {
            let into = all.checked_mul(rows.len() as u64)?;
            let into = into / gcd(into, *weight).max(1);
            exact = (exact / gcd(exact, into).max(1)).checked_mul(into)?;
            if exact > most {
                return None;
            }
        }
    }
    Some(exact)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Divides an amount evenly among rows, odd nanoseconds to the lowest ids.
fn spread(amount: u64, rows: &[&RowId], lengths: &mut Lengths) {
    let count = (rows.len() as u64).max(1);
    for (i, row) in (0..).zip(rows) {
        let odd = u64::from(i < amount % count);
        *lengths.entry(**row).or_default() += Nanos(amount / count + odd);
    }
}

#[cfg(test)]
mod tests {
    use super::{Present, Users, layout, lengths, shortest};
    use crate::frame::Layout;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use tutti_types::class::{ClassSpec, Classes};
    use tutti_types::ids::{ClassName, RowId, UserId};
    use tutti_types::limits::{QUANTUM_MIN, SHARE_WHOLE};
    use tutti_types::time::Nanos;

    fn classes(shares: &[(&str, u32)]) -> Classes {
        let spec = |share| ClassSpec::default().with("share", u64::from(share)).unwrap();
        shares.iter().map(|&(name, share)| (ClassName::new(name), spec(share))).collect()
    }

    /// Rows of one user with jobs of these classes.
    fn present(rows: &[&[&str]]) -> Present {
        let user = || Users::from([(UserId(1), 1)]);
        let names = |row: &&[&str]| row.iter().map(|name| (ClassName::new(name), user())).collect();
        (1..).map(RowId).zip(rows.iter().map(names)).collect()
    }

    /// Rows with jobs of users, each as (class, user, weight).
    fn of_users(rows: &[&[(&str, u32, u32)]]) -> Present {
        let users = |row: &&[(&str, u32, u32)]| {
            let mut names: BTreeMap<ClassName, Users> = BTreeMap::new();
            for &(name, user, weight) in *row {
                names.entry(ClassName::new(name)).or_default().insert(UserId(user), weight);
            }
            names
        };
        (1..).map(RowId).zip(rows.iter().map(users)).collect()
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
        check(&[("a", 7500), ("b", 0)], &[&["a"], &["b"]], &[150, 50]);
        check(&[("a", 5000), ("b", 5000)], &[&["a"], &["b"]], &[100, 100]);
        check(&[("a", 5000), ("b", 2500)], &[&["a"], &["b"], &["b"]], &[200, 50, 50]);
        check(&[("a", 5000), ("b", 2500)], &[&["b"], &["b"]], &[100, 100]);
    }

    #[test]
    fn what_an_absent_class_has_is_divided_in_the_ratios_of_the_others() {
        let shares = [("a", 6000), ("b", 3000), ("c", 1000)];
        check(&shares, &[&["a"], &["b"], &["c"]], &[180, 90, 30]);
        check(&shares, &[&["b"], &["c"]], &[150, 50]);
        check(&shares, &[&["b"], &["b"], &["c"]], &[112, 112, 75]);
        // Classes without a share have what the shares of all leave, also of those that are absent.
        check(
            &[("a", 4000), ("b", 2000), ("c", 0), ("d", 0)],
            &[&["a"], &["c"], &["d"]],
            &[150, 75, 75],
        );
    }

    #[test]
    fn users_of_a_class_have_equal_parts_whatever_they_have_in_it() {
        let check = |shares: &[(&str, u32)], rows: &[&[(&str, u32, u32)]], expected_ms: &[u64]| {
            let got = lengths(&of_users(rows), &classes(shares), Nanos::from_millis(120));
            let got: Vec<u64> = got.values().map(|length| length.0 / 1_000_000).collect();
            assert_eq!(got, expected_ms, "{shares:?} {rows:?}");
        };
        let (a, b) = (("a", 1, 1), ("a", 2, 1));
        check(&[("a", 0)], &[&[a], &[a], &[a], &[b]], &[80, 80, 80, 240]);
        // Side by side in a row, jobs of two users bring along a part each.
        check(&[("a", 0)], &[&[a], &[a, b]], &[60, 180]);
        // By weight; and a user's classes that share a part count once.
        check(&[("a", 0)], &[&[("a", 1, 3)], &[b]], &[180, 60]);
        check(&[("a", 0), ("b", 0)], &[&[a], &[("b", 1, 1)], &[b]], &[90, 90, 180]);
        // Within each class.
        check(&[("a", 5000), ("b", 0)], &[&[a], &[b], &[("b", 1, 1)]], &[90, 90, 180]);
    }

    #[test]
    fn long_rows_are_cut_into_slots_of_about_a_quantum() {
        let quantum = Nanos::from_millis(100);
        let slots = |rules: &[(&str, u32, u64, u64)], rows: &[&[(&str, u32, u32)]]| {
            let Layout::Turns(turns) = layout(&of_users(rows), &cut(rules), quantum) else {
                panic!()
            };
            turns.values().map(|turns| turns.slots).collect::<Vec<_>>()
        };
        let (a, b) = (("a", 1, 1), ("a", 2, 1));
        let rows: [&[(&str, u32, u32)]; 5] = [&[a], &[a], &[a], &[a], &[b]];
        // 62.5 ms for each of the first, 250 ms for the last.
        assert_eq!(slots(&[("a", 0, 1, 2)], &rows), [1, 1, 1, 1, 3]);
        assert_eq!(slots(&[("a", 0, 1, 200)], &rows), [1, 1, 1, 1, 4], "800 ms, each at least 200");
        assert_eq!(slots(&[("a", 9_900, 1, 2), ("b", 100, 1, 2)], &[&[a], &[("b", 1, 1)]]), [2, 1]);
        let many = [("a", 1, 1000)];
        assert!(slots(&[("a", 0, 1, 2)], &[&many, &[b]])[0] <= 300, "their number is bounded");
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
    fn slots(classes: &Classes, present: &Present, quantum: Nanos) -> Vec<Nanos> {
        let Layout::Turns(turns) = layout(present, classes, quantum) else { panic!() };
        turns.values().map(|turns| Nanos(turns.length.0 / u64::from(turns.slots))).collect()
    }

    #[test]
    fn a_slot_is_as_short_as_shares_and_slots_can_make_it() {
        let check = |rules: &[(&str, u32, u64, u64)],
                     rows: &[&[(&str, u32, u32)]],
                     class: &str,
                     ms: u64| {
            let (classes, quantum) = (cut(rules), Nanos::from_millis(200));
            let expected = Nanos::from_millis(ms);
            assert_eq!(shortest(&classes, quantum), Some((expected, ClassName::new(class))));
            let slots = slots(&classes, &of_users(rows), quantum);
            assert!(slots.iter().min() >= Some(&expected), "{rules:?} {rows:?}");
        };
        // Another user's long row leaves each of many rows half a quantum.
        let (a, b) = (("a", 1, 1), ("a", 2, 30));
        let rows: [&[(&str, u32, u32)]; 4] = [&[a], &[a], &[a], &[b]];
        check(&[("a", 0, 1, 2), ("b", 0, 1, 2)], &rows, "a", 100);
        check(&[("a", 0, 4, 2), ("b", 0, 1, 2)], &rows, "a", 25);
        check(&[("a", 0, 4, 300)], &rows, "a", 300);
        let rows: [&[(&str, u32, u32)]; 3] = [&[a], &[a], &[("b", 1, 1)]];
        check(&[("a", 400, 1, 2), ("b", 9600, 1, 2)], &rows, "a", 4);
        check(&[("a", 200, 1, 9), ("b", 9800, 1, 2)], &rows, "a", 9);
        assert_eq!(shortest(&Classes::new(), Nanos::from_millis(200)), None);
    }

    /// Classes with shares of no more than the whole, and rows with jobs of users in them.
    fn arbitrary() -> impl Strategy<Value = (Classes, Present)> {
        let rules = prop::collection::vec((0u32..4000, 1u64..17, 2u64..50), 4);
        let home = (0usize..4, 0u32..5, 1u32..37);
        let rows = prop::collection::vec(prop::collection::vec(home, 1..5), 1..9);
        (rules, rows).prop_map(|(rules, rows)| {
            let names = ["a", "b", "c", "d"];
            let mut left = SHARE_WHOLE;
            let rules: Vec<_> = names
                .iter()
                .zip(rules)
                .map(|(&name, (share, slots, least))| {
                    let share = if share < 1000 { 0 } else { share.min(left) };
                    left -= share;
                    (name, share, slots, least)
                })
                .collect();
            let row = |row: Vec<(usize, u32, u32)>| {
                let mut of: BTreeMap<ClassName, Users> = BTreeMap::new();
                for (class, user, _) in row {
                    // A user has the same weight everywhere.
                    let users = of.entry(ClassName::new(names[class])).or_default();
                    users.insert(UserId(user), 1 + user * 7 % 36);
                }
                of
            };
            (cut(&rules), (1..).map(RowId).zip(rows.into_iter().map(row)).collect())
        })
    }

    /// The parts of those that share, of the whole that is divided.
    fn parts(classes: &Classes, present: &Present) -> (BTreeMap<Option<ClassName>, u64>, u64) {
        let rest =
            u64::from(SHARE_WHOLE) - classes.values().map(|it| u64::from(it.share())).sum::<u64>();
        let names: BTreeSet<&ClassName> = present.values().flat_map(BTreeMap::keys).collect();
        let parts: BTreeMap<_, _> = names
            .into_iter()
            .map(|name| match classes[name].share() {
                0 => (None, rest),
                share => (Some(name.clone()), u64::from(share)),
            })
            .collect();
        let whole = parts.values().sum();
        (parts, whole)
    }

    proptest! {
        #[test]
        fn no_slot_is_shorter_than_the_shortest(
            (classes, present) in arbitrary(),
            quantum in 2_000_000u64..10_000_000_000,
        ) {
            let quantum = Nanos(quantum);
            let (shortest, _) = shortest(&classes, quantum).unwrap();
            for slot in slots(&classes, &present, quantum) {
                prop_assert!(slot >= shortest, "{slot:?} is shorter than {shortest:?}");
                prop_assert!(slot >= QUANTUM_MIN);
            }
        }

        /// Each present class gets at least its share of the frame, exactly; its users get what
        /// they weigh in it; and nothing is lost.
        #[test]
        fn all_time_is_divided_by_class_then_user_then_row(
            (classes, present) in arbitrary(),
            quantum in 2_000_000u64..10_000_000_000,
        ) {
            let got = lengths(&present, &classes, Nanos(quantum));
            let length = |row: &RowId| u128::from(got.get(row).map_or(0, |length| length.0));
            let frame: u128 = got.values().map(|length| u128::from(length.0)).sum();
            let (parts, whole) = parts(&classes, &present);
            let mut expected: BTreeMap<RowId, u128> = BTreeMap::new();
            for (sharers, &part) in &parts {
                let is_theirs = |name: &ClassName| match sharers {
                    Some(class) => name == class,
                    None => classes[name].share() == 0,
                };
                let mut users: BTreeMap<UserId, (u128, BTreeSet<RowId>)> = BTreeMap::new();
                for (&row, names) in &present {
                    for users_here in names.iter().filter(|(name, _)| is_theirs(name)).map(|it| it.1) {
                        for (&user, &weight) in users_here {
                            let entry = users.entry(user).or_default();
                            entry.0 = u128::from(weight);
                            entry.1.insert(row);
                        }
                    }
                }
                let theirs: BTreeSet<RowId> = users.values().flat_map(|it| it.1.clone()).collect();
                let theirs: u128 = theirs.iter().map(length).sum();
                let share = classes.get(&sharers.clone().unwrap_or(ClassName::new("?"))).map_or(0, |it| it.share());
                prop_assert!(theirs * u128::from(SHARE_WHOLE) >= frame * u128::from(share));
                let part = if parts.len() == 1 { 1 } else { u128::from(part) };
                let whole = if parts.len() == 1 { 1 } else { u128::from(whole) };
                prop_assert!(theirs * whole >= frame * part);
                let weights: u128 = users.values().map(|it| it.0).sum();
                for (weight, rows) in users.values() {
                    for &row in rows {
                        // In thousandths of a nanosecond, so that what is cut off does not add up.
                        let all = frame * part * 1000 / whole;
                        *expected.entry(row).or_default() += all * weight / weights / rows.len() as u128;
                    }
                }
            }
            for (row, expected) in expected {
                let off = (length(&row) * 1000).abs_diff(expected);
                prop_assert!(present.len() == 1 || off <= 20_000, "row {row:?} is {off} off {got:?}");
            }
        }
    }
}
