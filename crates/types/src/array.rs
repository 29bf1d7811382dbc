//! Job arrays: one submission of many jobs that differ in an index.
//!
//! The elements of an array are counted from 0 by their *positions*, which leave no gaps; their
//! indices are what users write.

use crate::limits::{ARRAY_ELEMENTS_MAX, ARRAY_INDEX_MAX, ARRAY_RANGES_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// Indices at equal distances, the last included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexRange {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
    /// The distance; at least 1.
    pub step: u32,
}

impl IndexRange {
    const fn is_valid(self) -> bool {
        self.step > 0
            && self.first <= self.last
            && self.last <= ARRAY_INDEX_MAX
            && (self.last - self.first).is_multiple_of(self.step)
    }

    const fn len(self) -> u32 {
        (self.last - self.first) / self.step + 1
    }

    /// From one of its indices up to the one behind the last, as ranges that users would write.
    fn part(self, from: u32, behind: u32) -> Vec<Self> {
        let at = |place| self.first + place * self.step;
        let (first, last) = (at(from), at(behind - 1));
        match behind - from {
            1 => alloc::vec![Self { first, last, step: 1 }],
            2 if self.step > 1 => {
                [first, last].map(|it| Self { first: it, last: it, step: 1 }).into()
            }
            _ => alloc::vec![Self { first, last, step: self.step }],
        }
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(self.step as usize)
    }
}

impl fmt::Display for IndexRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.last - self.first, self.step) {
            (0, _) => write!(f, "{}", self.first),
            (_, 1) => write!(f, "{}-{}", self.first, self.last),
            (_, step) => write!(f, "{}-{}:{step}", self.first, self.last),
        }
    }
}

/// The indices of an array: some, each once, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<IndexRange>", into = "Vec<IndexRange>")]
pub struct Indices(Vec<IndexRange>);

/// Why a text, or a list of ranges, gives no indices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndicesError {
    /// There are none.
    #[error("an array needs at least one index, such as --array 0-99")]
    None,
    /// A part of the text is no index and no range.
    #[error("invalid index {0:?}; write numbers and ranges such as 7, 0-99 or 0-98:2")]
    NoRange(String),
    /// A range goes down.
    #[error("the range {0:?} goes down; write the lower index first")]
    Down(String),
    /// A step is zero.
    #[error("the step of {0:?} must be at least 1")]
    NoStep(String),
    /// An index is too high.
    #[error("index {0} is too high; the highest is {ARRAY_INDEX_MAX}")]
    TooHigh(u64),
    /// There are too many.
    #[error("an array has at most {ARRAY_ELEMENTS_MAX} elements; submit several arrays")]
    TooMany,
    /// They are in too many pieces.
    #[error(
        "the indices are {0} separate ranges, and an array has at most {ARRAY_RANGES_MAX}; submit \
         several arrays, or number the elements without gaps"
    )]
    TooManyRanges(usize),
    /// An index is there twice.
    #[error("index {0} is named twice; name each once")]
    Twice(u32),
}

impl Indices {
    /// The indices of a list, in any order.
    ///
    /// # Errors
    /// If there is none, or one twice, or too many, or one is too high.
    pub fn of(mut all: Vec<u32>) -> Result<Self, IndicesError> {
        if all.len() > ARRAY_ELEMENTS_MAX as usize {
            return Err(IndicesError::TooMany);
        }
        all.sort_unstable();
        if let Some(pair) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(IndicesError::Twice(pair[0]));
        }
        match all.last() {
            None => return Err(IndicesError::None),
            Some(&last) if last > ARRAY_INDEX_MAX => {
                return Err(IndicesError::TooHigh(last.into()));
            }
            Some(_) => {}
        }
        Self::of_ranges(compressed(&all))
    }

    fn of_ranges(ranges: Vec<IndexRange>) -> Result<Self, IndicesError> {
        match ranges.len() > ARRAY_RANGES_MAX {
            true => Err(IndicesError::TooManyRanges(ranges.len())),
            false => Ok(Self(ranges)),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|range| range.len()).sum()
    }

    /// The index at a position.
    #[must_use]
    pub fn at(&self, mut position: u32) -> Option<u32> {
        for range in &self.0 {
            if position < range.len() {
                return Some(range.first + position * range.step);
            }
            position -= range.len();
        }
        None
    }

    /// The positions of those of other indices that are among these.
    #[must_use]
    pub fn positions(&self, others: &Self) -> Positions {
        let mut others = others.iter().peekable();
        let mut found = Vec::new();
        for (position, index) in (0..).zip(self.iter()) {
            while others.next_if(|&other| other < index).is_some() {}
            if others.next_if_eq(&index).is_some() {
                found.push(position);
            }
        }
        Positions::of(found)
    }

    /// The indices at positions, each behind its position.
    pub fn named(&self, positions: &Positions) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(self.iter()).filter(|&(position, _)| positions.contains(position))
    }

    /// The position of an index.
    #[must_use]
    pub fn position(&self, index: u32) -> Option<u32> {
        let mut before = 0;
        for range in &self.0 {
            if index < range.first {
                return None;
            }
            if index <= range.last {
                let distance = index - range.first;
                let is_there = distance.is_multiple_of(range.step);
                return is_there.then(|| before + distance / range.step);
            }
            before += range.len();
        }
        None
    }

    /// The lowest.
    #[must_use]
    pub fn min(&self) -> u32 {
        self.0.first().map_or(0, |range| range.first)
    }

    /// The highest.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.0.last().map_or(0, |range| range.last)
    }

    /// The distance between them if it is always the same; else 1.
    #[must_use]
    pub fn step(&self) -> u32 {
        match self.0[..] {
            [range] => range.step,
            _ => 1,
        }
    }

    /// All of them, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|range| range.iter())
    }

    /// The indices at positions, as users write them: at most so many ranges, the lowest first.
    /// `None`: there are none.
    #[must_use]
    pub fn shown(&self, positions: &Positions, most: usize) -> Option<String> {
        let mut ranges = Vec::new();
        let mut before = 0;
        for range in &self.0 {
            let end = before + range.len();
            let from = positions.0.partition_point(|&(_, behind)| behind <= before);
            for &(first, behind) in &positions.0[from..] {
                if first >= end || ranges.len() >= most {
                    break;
                }
                ranges.extend(range.part(first.max(before) - before, behind.min(end) - before));
            }
            before = end;
        }
        ranges.truncate(most);
        (!ranges.is_empty()).then(|| alloc::format!("{}", Self(ranges)))
    }
}

/// Ascending indices as ranges. Two indices make a range only if they are neighbours.
fn compressed(all: &[u32]) -> Vec<IndexRange> {
    let mut ranges = Vec::new();
    let mut rest = all;
    while let Some((&first, behind)) = rest.split_first() {
        let step = behind.first().map_or(1, |&next| next - first);
        let steps = core::iter::once(&first).chain(behind).zip(behind);
        let more = steps.take_while(|&(&one, &next)| next - one == step).count();
        let (more, step) = if more == 1 && step > 1 { (0, 1) } else { (more, step) };
        let last = rest[more];
        ranges.push(IndexRange { first, last, step: if more == 0 { 1 } else { step } });
        rest = &rest[more + 1..];
    }
    ranges
}

impl TryFrom<Vec<IndexRange>> for Indices {
    type Error = IndicesError;

    fn try_from(ranges: Vec<IndexRange>) -> Result<Self, IndicesError> {
        let (mut count, mut before) = (0u32, None);
        for range in &ranges {
            if !range.is_valid() {
                return Err(IndicesError::NoRange(alloc::format!("{range:?}")));
            }
            if before.is_some_and(|before| range.first <= before) {
                return Err(IndicesError::Twice(range.first));
            }
            before = Some(range.last);
            count = count.saturating_add(range.len());
        }
        match count {
            0 => Err(IndicesError::None),
            count if count > ARRAY_ELEMENTS_MAX => Err(IndicesError::TooMany),
            _ => Self::of_ranges(ranges),
        }
    }
}

impl From<Indices> for Vec<IndexRange> {
    fn from(indices: Indices) -> Self {
        indices.0
    }
}

impl FromStr for Indices {
    type Err = IndicesError;

    /// As users write them: `7`, `0-99`, `0-98:2`, `1,3,5-9`.
    fn from_str(text: &str) -> Result<Self, IndicesError> {
        if text.is_empty() {
            return Err(IndicesError::None);
        }
        let mut all = Vec::new();
        for word in text.split(',') {
            let range = range_of(word)?;
            if range.len() as usize + all.len() > ARRAY_ELEMENTS_MAX as usize {
                return Err(IndicesError::TooMany);
            }
            all.extend(range.iter());
        }
        Self::of(all)
    }
}

fn range_of(word: &str) -> Result<IndexRange, IndicesError> {
    let none = || IndicesError::NoRange(word.into());
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX)).ok_or_else(none)
    };
    let index = |text: &str| {
        let number = number(text)?;
        let index = u32::try_from(number).ok().filter(|&index| index <= ARRAY_INDEX_MAX);
        index.ok_or(IndicesError::TooHigh(number))
    };
    let (bounds, step) = match word.split_once(':') {
        Some((bounds, step)) if bounds.contains('-') => (bounds, number(step)?),
        Some(_) => return Err(none()),
        None => (word, 1),
    };
    if step == 0 {
        return Err(IndicesError::NoStep(word.into()));
    }
    let (first, last) = match bounds.split_once('-') {
        Some((first, last)) => (index(first)?, index(last)?),
        None => (index(bounds)?, index(bounds)?),
    };
    if first > last {
        return Err(IndicesError::Down(word.into()));
    }
    let step = u32::try_from(step).unwrap_or(u32::MAX).min((last - first).max(1));
    Ok(IndexRange { first, last: last - (last - first) % step, step })
}

impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// What is asked of an array beside what is asked of each element.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArraySpec {
    /// The indices of the elements.
    pub indices: Indices,
    /// How many elements may be in line or run at once; `None`: any number.
    pub limit: Option<u32>,
}

impl FromStr for ArraySpec {
    type Err = String;

    /// As users write it: indices, and perhaps `%` and the limit.
    fn from_str(text: &str) -> Result<Self, String> {
        let (indices, limit) = match text.split_once('%') {
            Some((indices, limit)) => {
                let is_number = limit.bytes().all(|byte| byte.is_ascii_digit());
                let number = limit.parse::<u32>().ok().filter(|&it| is_number && it > 0);
                let number = number.ok_or_else(|| {
                    alloc::format!(
                        "invalid limit {limit:?}; write how many elements may run at once, such as \
                         0-99%10"
                    )
                })?;
                (indices, Some(number))
            }
            None => (text, None),
        };
        let indices = indices.parse().map_err(|error| alloc::format!("{error}"))?;
        Ok(Self { indices, limit })
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.indices.fmt(f)?;
        self.limit.map_or(Ok(()), |limit| write!(f, "%{limit}"))
    }
}

/// A set of positions, as ranges that neither overlap nor touch: first, and behind the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Positions(Vec<(u32, u32)>);

impl Positions {
    /// The first so many positions.
    #[must_use]
    pub fn first(count: u32) -> Self {
        Self(if count == 0 { Vec::new() } else { alloc::vec![(0, count)] })
    }

    /// Those of a list, in any order.
    #[must_use]
    pub fn of(mut all: Vec<u32>) -> Self {
        all.sort_unstable();
        all.dedup();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for position in all {
            match ranges.last_mut() {
                Some((_, end)) if *end == position => *end += 1,
                _ => ranges.push((position, position.saturating_add(1))),
            }
        }
        Self(ranges)
    }

    /// Runs of consecutive positions: the first of each, and how many.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|&(first, end)| (first, end.saturating_sub(first)))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|&(first, end)| end.saturating_sub(first)).sum()
    }

    /// Whether a position is among them.
    #[must_use]
    pub fn contains(&self, position: u32) -> bool {
        let behind = self.0.partition_point(|&(first, _)| first <= position);
        behind > 0 && position < self.0[behind - 1].1
    }

    /// All of them, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(first, end)| first..end)
    }

    /// Takes the lowest out.
    pub fn pop_first(&mut self) -> Option<u32> {
        let (first, end) = self.0.first_mut()?;
        let position = *first;
        *first += 1;
        if first == end {
            self.0.remove(0);
        }
        Some(position)
    }

    /// Adds one.
    pub fn insert(&mut self, position: u32) {
        let at = self.0.partition_point(|&(_, end)| end < position);
        match self.0.get_mut(at) {
            Some((first, end)) if *first <= position => *end = (*end).max(position + 1),
            Some((first, _)) if *first == position + 1 => return *first = position,
            _ => return self.0.insert(at, (position, position + 1)),
        }
        // What is behind may be next to it now.
        if let Some(&(first, end)) = self.0.get(at + 1)
            && first <= self.0[at].1
        {
            self.0[at].1 = end.max(self.0[at].1);
            self.0.remove(at + 1);
        }
    }

    /// Adds those of another set.
    pub fn add(&mut self, others: &Self) {
        if others.is_empty() {
            return;
        }
        let mut all: Vec<(u32, u32)> = core::mem::take(&mut self.0);
        all.extend(&others.0);
        all.sort_unstable();
        for (first, end) in all {
            match self.0.last_mut() {
                Some((_, before)) if first <= *before => *before = end.max(*before),
                _ => self.0.push((first, end)),
            }
        }
    }

    /// Takes those out that another set has too; gives them.
    pub fn take(&mut self, others: &Self) -> Self {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        let mut behind = 0;
        for &(first, end) in &self.0 {
            let mut from = first;
            while others.0.get(behind).is_some_and(|&(_, end)| end <= first) {
                behind += 1;
            }
            for &(other, other_end) in &others.0[behind..] {
                if other >= end {
                    break;
                }
                let (one, last) = (other.max(first), other_end.min(end));
                if from < one {
                    left.push((from, one));
                }
                taken.push((one, last));
                from = last;
            }
            if from < end {
                left.push((from, end));
            }
        }
        self.0 = left;
        Self(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn indices_are_read_as_they_are_written() {
        for (text, shown, count, step) in [
            ("7", "7", 1, 1),
            ("0-99", "0-99", 100, 1),
            ("0-99:2", "0-98:2", 50, 2),
            ("9,1,5", "1-9:4", 3, 4),
            ("1,3,5-9", "1-5:2,6-9", 7, 1),
            ("1,5", "1,5", 2, 1),
            ("5-5:9", "5", 1, 1),
            ("0-5:4294967295", "0,5", 2, 1),
        ] {
            let indices: Indices = text.parse().unwrap();
            assert_eq!(indices.to_string(), shown);
            assert_eq!((indices.count(), indices.step()), (count, step), "{text}");
        }
        let array: ArraySpec = "0-99:2%10".parse().unwrap();
        assert_eq!((array.indices.count(), array.limit), (50, Some(10)));
        assert_eq!(array.to_string(), "0-98:2%10");
    }

    #[test]
    fn wrong_indices_say_what_is_wrong() {
        for (text, what) in [
            ("5-1", "goes down"),
            ("a", "invalid index"),
            ("", "at least one index"),
            ("1,", "invalid index"),
            ("-3", "invalid index"),
            ("+3", "invalid index"),
            ("1-", "invalid index"),
            ("1:2", "invalid index"),
            ("0-9:0", "at least 1"),
            ("0-100000", "at most 100000 elements"),
            ("99999999", "too high"),
            ("99999999999999999999999", "too high"),
            ("1-5,3", "index 3 is named twice"),
            ("1-5%0", "invalid limit"),
            ("1-5%", "invalid limit"),
            ("1-5%+2", "invalid limit"),
        ] {
            let error = text.parse::<ArraySpec>().unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
        // Gaps of 1 and 2 in turn make no range.
        let scattered = |count: u32| (0..count).map(|it| it * 3 + it % 2).collect::<Vec<u32>>();
        assert!(Indices::of(scattered(2000)).is_ok());
        let error = Indices::of(scattered(2001)).unwrap_err();
        assert_eq!(error, IndicesError::TooManyRanges(2001));
        let single = |first| IndexRange { first, last: first, step: 1 };
        let ranges: Vec<IndexRange> = (0..2001).map(|it| single(it * 2)).collect();
        assert_eq!(Indices::try_from(ranges), Err(error));
        let bad = IndexRange { first: 3, last: 1, step: 1 };
        assert!(Indices::try_from(alloc::vec![bad]).is_err());
        let high = IndexRange { first: 0, last: u32::MAX, step: 1 };
        assert!(Indices::try_from(alloc::vec![high]).is_err());
        let one = IndexRange { first: 0, last: 4, step: 1 };
        assert!(Indices::try_from(alloc::vec![one, one]).is_err());
    }

    proptest! {
        #[test]
        fn indices_are_a_set(all in prop::collection::btree_set(0u32..200, 1..60)) {
            let list: Vec<u32> = all.iter().copied().collect();
            let indices = Indices::of(list.clone()).unwrap();
            prop_assert!(indices.iter().eq(list.iter().copied()));
            prop_assert_eq!(indices.count() as usize, list.len());
            for (position, &index) in (0..).zip(&list) {
                prop_assert_eq!(indices.at(position), Some(index));
            }
            for index in 0..200 {
                let position = list.binary_search(&index).ok().map(|it| u32::try_from(it).unwrap());
                prop_assert_eq!(indices.position(index), position);
            }
            let odd: Vec<u32> = list.iter().copied().filter(|it| it % 2 == 1).collect();
            if let Ok(others) = Indices::of(odd.iter().flat_map(|&it| [it, it + 300]).collect()) {
                let positions = indices.positions(&others);
                prop_assert_eq!(positions.count() as usize, odd.len());
                let named: Vec<u32> = indices.named(&positions).map(|(_, index)| index).collect();
                prop_assert_eq!(named, odd);
            }
            let some: Vec<u32> = (0..indices.count()).filter(|it| it % 5 != 2).collect();
            let some = Positions::of(some);
            let shown: Indices = indices.shown(&some, 300).unwrap().parse().unwrap();
            prop_assert!(shown.iter().eq(indices.named(&some).map(|(_, index)| index)));
            prop_assert!(indices.shown(&some, 2).unwrap().split(',').count() <= 2);
            prop_assert_eq!(&indices.to_string().parse::<Indices>().unwrap(), &indices);
            let ranges: Vec<IndexRange> = indices.clone().into();
            prop_assert_eq!(Indices::try_from(ranges).unwrap(), indices);
        }

        #[test]
        fn positions_are_a_set(
            steps in prop::collection::vec(
                (0u8..4, prop::collection::btree_set(0u32..60, 0..20)), 1..12,
            ),
        ) {
            let mut positions = Positions::first(40);
            let mut plain: BTreeSet<u32> = (0..40).collect();
            for (what, others) in steps {
                let set = Positions::of(others.iter().copied().collect());
                match what {
                    0 => {
                        positions.add(&set);
                        plain.extend(&others);
                    }
                    1 => {
                        let taken = positions.take(&set);
                        let both: Vec<u32> = plain.intersection(&others).copied().collect();
                        prop_assert_eq!(taken.iter().collect::<Vec<_>>(), both);
                        plain.retain(|it| !others.contains(it));
                    }
                    2 => {
                        others.iter().for_each(|&it| positions.insert(it));
                        plain.extend(&others);
                        let whole = Positions::of(plain.iter().copied().collect());
                        prop_assert_eq!(&positions, &whole, "ranges that touch are one");
                    }
                    _ => prop_assert_eq!(positions.pop_first(), plain.pop_first()),
                }
                prop_assert!(positions.iter().eq(plain.iter().copied()));
                prop_assert_eq!(positions.count() as usize, plain.len());
                prop_assert!((0..61).all(|it| positions.contains(it) == plain.contains(&it)));
            }
        }
    }
}
