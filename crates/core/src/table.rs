//! A map from job numbers: as a `BTreeMap`, but found in fewer steps.
//!
//! Job numbers are given one after the other, so the jobs that are known lie close together, but for
//! some that last long. A page holds the jobs of a few dozen numbers in a row; pages come and go with
//! their jobs, and are found by their place, whatever gaps there are.

use crate::ids::JobId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::Index;

const PAGE: u64 = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Table<T> {
    pages: BTreeMap<u64, Page<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Page<T> {
    slots: Vec<Option<Box<T>>>,
    used: usize,
}

/// The page of a number, and its place there.
fn place(job: JobId) -> (u64, usize) {
    let slot = usize::try_from(job.0 % PAGE).expect("a page is far smaller than any address space");
    (job.0 / PAGE, slot)
}

impl<T> Table<T> {
    /// The record of a job.
    #[must_use]
    pub fn get(&self, job: &JobId) -> Option<&T> {
        let (page, slot) = place(*job);
        self.pages.get(&page)?.slots[slot].as_deref()
    }

    /// The record of a job, to change it.
    pub fn get_mut(&mut self, job: &JobId) -> Option<&mut T> {
        let (page, slot) = place(*job);
        self.pages.get_mut(&page)?.slots[slot].as_deref_mut()
    }

    /// Whether there is a record of the job.
    #[must_use]
    pub fn contains_key(&self, job: &JobId) -> bool {
        self.get(job).is_some()
    }

    /// Enters a record, in place of the one before if there was one.
    pub fn insert(&mut self, job: JobId, record: T) {
        let (page, slot) = place(job);
        let page = self
            .pages
            .entry(page)
            .or_insert_with(|| Page { slots: (0..PAGE).map(|_| None).collect(), used: 0 });
        if page.slots[slot].replace(Box::new(record)).is_none() {
            page.used += 1;
            self.len += 1;
        }
    }

    /// Takes a record out.
    pub fn remove(&mut self, job: &JobId) -> Option<T> {
        let (number, slot) = place(*job);
        let page = self.pages.get_mut(&number)?;
        let record = page.slots[slot].take()?;
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            self.pages.remove(&number);
        }
        Some(*record)
    }

    /// How many records there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All records, by number.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &T)> {
        self.pages.iter().flat_map(|(page, Page { slots, .. })| {
            let numbers = (0..PAGE).map(move |slot| JobId(page * PAGE + slot));
            numbers.zip(slots).filter_map(|(job, slot)| Some((job, slot.as_deref()?)))
        })
    }

    /// The numbers of all records, lowest first.
    pub fn keys(&self) -> impl Iterator<Item = JobId> + '_ {
        self.iter().map(|(job, _)| job)
    }

    /// All records, by number, without it.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, record)| record)
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T> Index<&JobId> for Table<T> {
    type Output = T;
    fn index(&self, job: &JobId) -> &T {
        self.get(job).expect("indexed only by jobs that are in it")
    }
}

impl<T: PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for Table<T> {}

impl<T: Hash> Hash for Table<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        for entry in self.iter() {
            entry.hash(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::ids::JobId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0u8..3, 0u64..5000, any::<bool>()), 1..300),
        ) {
            let mut table = Table::default();
            let mut plain = BTreeMap::new();
            for (step, (what, number, far)) in (0u32..).zip(steps) {
                let job = JobId(if far { u64::MAX - number } else { number });
                if what == 0 {
                    prop_assert_eq!(table.remove(&job), plain.remove(&job));
                } else {
                    table.insert(job, step);
                    plain.insert(job, step);
                }
                prop_assert_eq!(table.get(&job), plain.get(&job));
            }
            prop_assert_eq!(table.len(), plain.len());
            prop_assert!(table.iter().map(|(job, &step)| (job, step)).eq(plain.clone()));
            for job in plain.keys() {
                table.remove(job);
            }
            prop_assert!(table.is_empty() && table.pages.is_empty());
        }
    }
}
