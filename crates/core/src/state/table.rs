//! A map from job numbers: as a `BTreeMap`, but found in fewer steps.
//!
//! Job numbers are given one after the other, so the jobs that are known lie close together, but
//! for some that last long. A page tells of a few hundred numbers in a row where their records are;
//! pages come and go with their jobs. As long as none behind it is missing, a page stands as far
//! from the last as its number says; otherwise it is searched for. The records themselves lie side
//! by side, and the place of one that is gone is used again.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::Index;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tutti_types::ids::JobId;

const PAGE: usize = 512;
/// Words of a bit for each number of a page.
const WORDS: usize = PAGE / u64::BITS as usize;

/// The place of a record; used again once the record is gone.
type Place = u32;

/// In a page: there is no record of the job.
const NOWHERE: Place = Place::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub struct Table<T> {
    /// By their numbers, which stand beside them.
    pages: Vec<(u64, Box<Page>)>,
    records: Vec<Option<T>>,
    vacant: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Page {
    slots: [Place; PAGE],
    /// A bit for each slot with a record: pages of few records are walked quickly.
    taken: [u64; WORDS],
}

impl Page {
    const EMPTY: Self = Self { slots: [NOWHERE; PAGE], taken: [0; WORDS] };

    fn put(&mut self, slot: usize, index: Place) {
        self.slots[slot] = index;
        self.taken[slot / 64] |= 1 << (slot % 64);
    }

    fn take(&mut self, slot: usize) -> Place {
        self.taken[slot / 64] &= !(1 << (slot % 64));
        core::mem::replace(&mut self.slots[slot], NOWHERE)
    }

    fn is_empty(&self) -> bool {
        self.taken == [0; WORDS]
    }

    /// The jobs of the page of this number and where their records lie, by number.
    fn places(&self, page: u64) -> impl Iterator<Item = (JobId, usize)> + '_ {
        let slots = (0usize..).zip(&self.taken).flat_map(|(word, &bits)| {
            let mut left = bits;
            core::iter::from_fn(move || {
                let slot = word * 64 + left.trailing_zeros() as usize;
                let found = left != 0;
                left &= left.wrapping_sub(1);
                found.then_some(slot)
            })
        });
        slots.map(move |slot| (JobId(page * PAGE as u64 + slot as u64), self.slots[slot] as usize))
    }
}

/// The page of a number, and its place there.
fn place(job: JobId) -> (u64, usize) {
    let page = PAGE as u64;
    let slot = usize::try_from(job.0 % page).expect("a page is far smaller than any address space");
    (job.0 / page, slot)
}

impl<T> Table<T> {
    /// Where a page stands, or would if there were one.
    fn find(&self, page: u64) -> Result<usize, usize> {
        let Some(&(last, _)) = self.pages.last() else { return Err(0) };
        let after = usize::try_from(last.wrapping_sub(page)).unwrap_or(usize::MAX);
        let at = (self.pages.len() - 1).wrapping_sub(after);
        match self.pages.get(at) {
            Some(&(number, _)) if number == page => Ok(at),
            Some(_) | None => self.pages.binary_search_by_key(&page, |&(number, _)| number),
        }
    }

    fn index(&self, job: JobId) -> Option<usize> {
        let (page, slot) = place(job);
        let index = self.pages[self.find(page).ok()?].1.slots[slot];
        (index != NOWHERE).then_some(index as usize)
    }

    /// The record of a job.
    #[must_use]
    pub fn get(&self, job: &JobId) -> Option<&T> {
        self.records[self.index(*job)?].as_ref()
    }

    /// The record of a job, to change it.
    pub fn get_mut(&mut self, job: &JobId) -> Option<&mut T> {
        let index = self.index(*job)?;
        self.records[index].as_mut()
    }

    /// Whether there is a record of the job.
    #[must_use]
    pub fn contains_key(&self, job: &JobId) -> bool {
        self.index(*job).is_some()
    }

    /// Enters a record, in place of the one before if there was one.
    pub fn insert(&mut self, job: JobId, record: T) {
        if let Some(index) = self.index(job) {
            self.records[index] = Some(record);
            return;
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.records.push(None);
            Place::try_from(self.records.len() - 1).expect("a core knows far fewer jobs")
        });
        self.records[index as usize] = Some(record);
        let (number, slot) = place(job);
        let at = self.find(number).unwrap_or_else(|at| {
            self.pages.insert(at, (number, Box::new(Page::EMPTY)));
            at
        });
        self.pages[at].1.put(slot, index);
    }

    /// Takes a record out.
    pub fn remove(&mut self, job: &JobId) -> Option<T> {
        let (number, slot) = place(*job);
        let at = self.find(number).ok()?;
        let page = &mut self.pages[at].1;
        let index = page.take(slot);
        let record = self.records.get_mut(index as usize)?.take();
        self.vacant.push(index);
        if page.is_empty() {
            self.pages.remove(at);
        }
        record
    }

    /// How many records there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len() - self.vacant.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All records, by number.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &T)> {
        let places = self.pages.iter().flat_map(|(page, found)| found.places(*page));
        places.filter_map(|(job, at)| Some((job, self.records.get(at)?.as_ref()?)))
    }

    /// Changes all records, by number.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(JobId, &mut T)) {
        for (page, found) in &self.pages {
            for (job, at) in found.places(*page) {
                if let Some(Some(record)) = self.records.get_mut(at) {
                    change(job, record);
                }
            }
        }
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
        Self { pages: Vec::new(), records: Vec::new(), vacant: Vec::new() }
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
        self.len().hash(state);
        for entry in self.iter() {
            entry.hash(state);
        }
    }
}

/// As a list of the records with their numbers: where they lie does not matter.
impl<T: Serialize> Serialize for Table<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().collect::<Vec<_>>())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = Self::default();
        for (job, record) in Vec::<(JobId, T)>::deserialize(deserializer)? {
            table.insert(job, record);
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tutti_types::ids::JobId;

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
