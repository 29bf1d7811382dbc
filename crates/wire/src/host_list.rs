//! Lists of nodes as people write them: `a[1-8],b,set:gpu`.
//!
//! Items stand between commas; an item is a node's name or, behind `set:`, that of a set of nodes.
//! In a name, brackets stand for numbers, single ones and ranges: `a[1-3,7]` is a1, a2, a3 and a7.
//! Zeros before the first number of a range are kept: `n[08-10]` is n08, n09 and n10. A name may
//! have several pairs of brackets. Whether there are such nodes is for others to say.

use crate::limits::{HOST_LIST_BYTES_MAX, HOST_LIST_NAMES_MAX, HOST_NAME_BYTES_MAX};
use crate::units::shown;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// What an item of a list stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostItem {
    /// Nodes by name, in the order of the numbers.
    Names(Vec<String>),
    /// The nodes of a set.
    Set(String),
}

/// Why a list can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// Nothing between two commas, or at all.
    #[error(
        "an item of the list is empty; write names with a comma between, such as a[1-8],b,set:gpu"
    )]
    Empty,
    /// A bracket without its counterpart, or one in another.
    #[error("{item}: brackets must be closed, and not within each other")]
    Bracket {
        /// The item.
        item: String,
    },
    /// Something in brackets that is no number and no range.
    #[error("{item}: '{part}' is no number and no range of numbers such as 1-8")]
    Range {
        /// The item.
        item: String,
        /// What is wrong in it.
        part: String,
    },
    /// A range that ends before it begins.
    #[error("{item}: the range {part} ends before it begins")]
    Backwards {
        /// The item.
        item: String,
        /// The range.
        part: String,
    },
    /// `set:` without a name, or with brackets.
    #[error("{item}: write the name of one set behind 'set:'")]
    Set {
        /// The item.
        item: String,
    },
    /// Too long, or too many names.
    #[error("the list is too long: at most {bytes} bytes and {names} names are taken")]
    TooLong {
        /// The most bytes.
        bytes: usize,
        /// The most names.
        names: usize,
    },
}

const TOO_LONG: HostListError =
    HostListError::TooLong { bytes: HOST_LIST_BYTES_MAX, names: HOST_LIST_NAMES_MAX };

/// Reads a list.
///
/// # Errors
/// If it is not as the module says; the item that is wrong is named.
pub fn parse_host_list(text: &str) -> Result<Vec<HostItem>, HostListError> {
    if text.len() > HOST_LIST_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let mut left = HOST_LIST_NAMES_MAX;
    items(text)?.into_iter().map(|item| read_item(item, &mut left)).collect()
}

/// The items: what stands between commas outside of brackets.
fn items(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut items = Vec::new();
    let (mut begin, mut inside) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' | ']' if inside == (c == '[') => {
                return Err(HostListError::Bracket { item: shown(&text[begin..]) });
            }
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                items.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(HostListError::Bracket { item: shown(&text[begin..]) });
    }
    items.push(&text[begin..]);
    Ok(items)
}

fn read_item(item: &str, left: &mut usize) -> Result<HostItem, HostListError> {
    let item = item.trim();
    if item.is_empty() {
        return Err(HostListError::Empty);
    }
    if let Some(set) = item.strip_prefix("set:") {
        if set.is_empty() || set.contains('[') {
            return Err(HostListError::Set { item: shown(item) });
        }
        return Ok(HostItem::Set(set.into()));
    }
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        // The brackets were paired when the items were found.
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(item, inside, *left)?;
        let too_long = names.iter().any(|name| name.len() + before.len() > HOST_NAME_BYTES_MAX);
        if too_long || names.len().saturating_mul(numbers.len()) > *left {
            return Err(TOO_LONG);
        }
        let with = |name: &String| {
            numbers.iter().map(|number| format!("{name}{before}{number}")).collect::<Vec<_>>()
        };
        names = names.iter().flat_map(with).collect();
        rest = after;
    }
    if rest.len() > HOST_NAME_BYTES_MAX {
        return Err(TOO_LONG);
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    *left = left.checked_sub(names.len()).ok_or(TOO_LONG)?;
    Ok(HostItem::Names(names))
}

/// The numbers that brackets stand for, as they are written in names.
fn numbers(item: &str, inside: &str, most: usize) -> Result<Vec<String>, HostListError> {
    let mut all = Vec::new();
    for part in inside.split(',') {
        let wrong = || HostListError::Range { item: shown(item), part: shown(part) };
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(wrong)
        };
        let (first, last) = (number(from)?, number(to)?);
        if last < first {
            return Err(HostListError::Backwards { item: shown(item), part: shown(part) });
        }
        if last - first >= (most - all.len().min(most)) as u64 {
            return Err(TOO_LONG);
        }
        let width = if from.starts_with('0') { from.len() } else { 0 };
        all.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(all)
}

/// Names as short as they can be written: those that differ only in the number at their end, or
/// before the first dot, share brackets. Reading it gives the same names, in the order of the
/// alphabet and of the numbers.
#[must_use]
pub fn format_host_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut numbered: Vec<(&str, usize, u64, &str)> = Vec::new();
    for name in names {
        let end = name.find('.').unwrap_or(name.len());
        let (head, tail) = name.split_at(end);
        let stem = head.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &head[stem.len()..];
        match digits.parse() {
            // Those with zeros in front are distinguished by their length.
            Ok(number) => {
                let width = if digits.starts_with('0') { digits.len() } else { 0 };
                numbered.push((stem, width, number, tail));
            }
            Err(_) => numbered.push((name, usize::MAX, 0, "")),
        }
    }
    // A number with as many digits as one with zeros in front is of the same range.
    let padded: BTreeSet<(&str, &str, usize)> = numbered
        .iter()
        .filter(|it| it.1 > 0 && it.1 != usize::MAX)
        .map(|it| (it.0, it.3, it.1))
        .collect();
    for it in numbered.iter_mut().filter(|it| it.1 == 0) {
        let digits = it.2.checked_ilog10().map_or(1, |log| log as usize + 1);
        if padded.contains(&(it.0, it.3, digits)) {
            it.1 = digits;
        }
    }
    numbered.sort_by(|a, b| (a.0, a.3, a.1, a.2).cmp(&(b.0, b.3, b.1, b.2)));
    numbered.dedup();
    let mut items: Vec<String> = Vec::new();
    for group in numbered.chunk_by(|a, b| (a.0, a.1, a.3) == (b.0, b.1, b.3)) {
        let (stem, width, number, tail) = group[0];
        items.push(match group {
            [_] if width == usize::MAX => stem.into(),
            [_] => format!("{stem}{number:0width$}{tail}"),
            _ => format!("{stem}[{}]{tail}", ranges(group.iter().map(|it| it.2), width)),
        });
    }
    items.join(",")
}

fn ranges(numbers: impl Iterator<Item = u64>, width: usize) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let show = |(first, last): (u64, u64)| match first == last {
        true => format!("{first:0width$}"),
        false => format!("{first:0width$}-{last:0width$}"),
    };
    ranges.into_iter().map(show).collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{HostItem, format_host_list, parse_host_list};
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match parse_host_list(text) {
            Err(error) => error.to_string(),
            Ok(items) => items
                .into_iter()
                .map(|item| match item {
                    HostItem::Names(names) => names.join(" "),
                    HostItem::Set(name) => format!("<{name}>"),
                })
                .collect::<Vec<_>>()
                .join(" | "),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_list_is_names_ranges_and_sets() {
        check("a", "a");
        check("a[1-3],b,set:gpu", "a1 a2 a3 | b | <gpu>");
        check("a[1-2,7]-x[0,5]", "a1-x0 a1-x5 a2-x0 a2-x5 a7-x0 a7-x5");
        check("n[08-11].lan, b", "n08.lan n09.lan n10.lan n11.lan | b");
        check("n[8-11]", "n8 n9 n10 n11");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let empty = "an item of the list is empty; write names with a comma between, such as \
                     a[1-8],b,set:gpu";
        check("", empty);
        check("a,,b", empty);
        check("a[1-3,b", "a[1-3,b: brackets must be closed, and not within each other");
        check("a1-3]", "a1-3]: brackets must be closed, and not within each other");
        check("a[1[2]]", "a[1[2]]: brackets must be closed, and not within each other");
        check("a[1-x]", "a[1-x]: '1-x' is no number and no range of numbers such as 1-8");
        check("a[]", "a[]: '' is no number and no range of numbers such as 1-8");
        check("a[5-3]", "a[5-3]: the range 5-3 ends before it begins");
        check("set:", "set:: write the name of one set behind 'set:'");
        let long = "the list is too long: at most 65536 bytes and 65536 names are taken";
        check("a[0-99999]", long);
        check("a[0-999]b[0-999]", long);
        check("a[0-18446744073709551615]", long);
    }

    #[test]
    fn names_are_written_short() {
        let short = |names: &[&str]| format_host_list(names.iter().copied());
        assert_eq!(short(&["a3", "b", "a1", "a2", "a7"]), "a[1-3,7],b");
        assert_eq!(short(&["n08.lan", "n09.lan", "n10.lan"]), "n[08-10].lan");
        assert_eq!(short(&["b", "b"]), "b");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ab0-9,\\[\\]\\-:. ]{0,40}") {
            let _ = parse_host_list(&text);
        }

        #[test]
        fn what_is_written_short_is_read_again(names in prop::collection::btree_set("[ab]{1,2}[0-9]{0,3}(\\.x)?", 1..20)) {
            let text = format_host_list(names.iter().map(String::as_str));
            let mut read = std::collections::BTreeSet::new();
            for item in parse_host_list(&text).unwrap() {
                let HostItem::Names(found) = item else { panic!("{text}") };
                read.extend(found);
            }
            prop_assert_eq!(read, names, "{}", text);
        }
    }
}
