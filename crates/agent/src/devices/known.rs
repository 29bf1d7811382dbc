//! Numbers that device files had when they were seen last. A file that vanishes may come back, for
//! example with its driver. It must then be closed to the jobs that have begun meanwhile.

use std::collections::BTreeMap;
use tutti_types::limits::{DEVICE_FILES_MAX, DEVICES_PER_NODE_MAX};

/// Maximum number of files that are remembered: those that a node can have, and as many that it had
/// before.
const FILES_MAX: usize = 2 * DEVICES_PER_NODE_MAX * DEVICE_FILES_MAX;

/// See the head of the file. Each call names files that devices of the node have; the files that
/// were named longest ago are forgotten first.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) files: BTreeMap<String, Seen>,
    /// Calls of [`Known::numbers`].
    pub(super) calls: u64,
    /// Files that were found with other numbers than before, which was not told yet.
    pub(super) changed: BTreeMap<String, (u32, u32)>,
}

#[derive(Debug)]
pub(super) struct Seen {
    numbers: (u32, u32),
    /// In which call it was named last.
    named: u64,
}

impl Known {
    /// The numbers of these files, as `look` gives them, or gave them before.
    pub(super) fn numbers<'a>(
        &mut self,
        files: impl Iterator<Item = &'a str>,
        look: impl Fn(&str) -> Option<(u32, u32)>,
    ) -> Vec<(u32, u32)> {
        self.calls += 1;
        let found = files.filter_map(|file| self.number_of(file, look(file))).collect();
        self.forget();
        found
    }

    /// The files that have other numbers than before, with these; each once.
    pub(super) fn renumbered(
        &mut self,
        look: impl Fn(&str) -> Option<(u32, u32)>,
    ) -> BTreeMap<String, (u32, u32)> {
        for (file, seen) in &mut self.files {
            if let Some(numbers) = look(file).filter(|numbers| *numbers != seen.numbers) {
                seen.numbers = numbers;
                self.changed.insert(file.clone(), numbers);
            }
        }
        std::mem::take(&mut self.changed)
    }

    fn number_of(&mut self, file: &str, found: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let named = self.calls;
        if let Some(seen) = self.files.get_mut(file) {
            let numbers = found.unwrap_or(seen.numbers);
            if numbers != seen.numbers {
                self.changed.insert(file.to_owned(), numbers);
            }
            *seen = Seen { numbers, named };
            return Some(numbers);
        }
        let numbers = found?;
        self.files.insert(file.to_owned(), Seen { numbers, named });
        Some(numbers)
    }

    /// Keeps [`FILES_MAX`], and in any case what this call named.
    fn forget(&mut self) {
        let surplus = self.files.len().saturating_sub(FILES_MAX);
        if surplus == 0 {
            return;
        }
        let mut calls: Vec<u64> = self.files.values().map(|seen| seen.named).collect();
        calls.sort_unstable();
        // What was named in one call is forgotten together.
        let last = calls[surplus - 1];
        self.files.retain(|_, seen| seen.named > last || seen.named == self.calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Known {
        Known { files: BTreeMap::new(), calls: 0, changed: BTreeMap::new() }
    }

    fn there(file: &str) -> Option<(u32, u32)> {
        Some((7, file[1..].parse().ok()?))
    }

    fn names(letter: char, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{letter}{number}")).collect()
    }

    #[test]
    fn a_file_that_vanished_has_the_numbers_that_it_had() {
        let mut known = new();
        assert_eq!(known.numbers(["a1", "a2"].into_iter(), |_| None), []);
        assert_eq!(known.numbers(["a1", "a2"].into_iter(), there), [(7, 1), (7, 2)]);
        let only_the_second = |file: &str| (file == "a2").then_some((8, 2));
        assert_eq!(known.numbers(["a1", "a2"].into_iter(), only_the_second), [(7, 1), (8, 2)]);
    }

    #[test]
    fn a_file_with_other_numbers_is_told_once_however_it_was_noticed() {
        let mut known = new();
        known.numbers(["a1", "a2"].into_iter(), there);
        assert!(known.renumbered(there).is_empty());
        let moved = |file: &str| Some((8, file[1..].parse().ok()?));
        known.numbers(["a1"].into_iter(), moved);
        let told = [("a1".to_owned(), (8, 1)), ("a2".to_owned(), (8, 2))];
        assert_eq!(known.renumbered(moved), BTreeMap::from(told));
        assert!(known.renumbered(moved).is_empty());
        assert!(known.renumbered(|_| None).is_empty(), "a file that vanished has no others");
    }

    #[test]
    fn no_file_of_a_device_is_forgotten_however_many_others_were_named() {
        let mut known = new();
        let own = names('a', DEVICES_PER_NODE_MAX * DEVICE_FILES_MAX);
        let own = || own.iter().map(String::as_str);
        assert_eq!(known.numbers(own(), there).len(), own().count());
        for round in 0..FILES_MAX {
            let other = format!("b{round}");
            // Its file is not there, as those of all its devices.
            assert_eq!(known.numbers(own(), |_| None).len(), own().count(), "round {round}");
            known.numbers([other.as_str()].into_iter(), there);
            assert!(known.files.len() <= FILES_MAX);
        }
        assert!(!known.files.contains_key("b0"), "it is bounded");
    }

    #[test]
    fn one_call_may_name_more_than_are_remembered() {
        let mut known = new();
        let many = names('a', FILES_MAX + 10);
        assert_eq!(known.numbers(many.iter().map(String::as_str), there).len(), many.len());
        assert_eq!(known.files.len(), many.len());
        known.numbers(["b1"].into_iter(), there);
        assert_eq!(known.files.len(), 1);
    }
}
