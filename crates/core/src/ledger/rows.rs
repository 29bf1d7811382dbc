//! The rows in which a job runs: mostly one, which needs no memory of its own.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use serde::{Deserialize, Serialize};
use tutti_types::ids::RowId;

/// See the module. It is used as the slice that it stands for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rows(Kind);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
enum Kind {
    #[default]
    None,
    One(RowId),
    Several(Vec<RowId>),
}

impl Deref for Rows {
    type Target = [RowId];
    fn deref(&self) -> &[RowId] {
        match &self.0 {
            Kind::None => &[],
            Kind::One(row) => core::slice::from_ref(row),
            Kind::Several(rows) => rows,
        }
    }
}

impl Rows {
    /// Adds a row behind the others.
    pub fn push(&mut self, row: RowId) {
        match &mut self.0 {
            Kind::None => self.0 = Kind::One(row),
            Kind::One(first) => self.0 = Kind::Several([*first, row].into()),
            Kind::Several(rows) => rows.push(row),
        }
    }

    /// Puts them in their order.
    pub fn sort(&mut self) {
        match &mut self.0 {
            Kind::None | Kind::One(_) => {}
            Kind::Several(rows) => rows.sort_unstable(),
        }
    }
}

impl FromIterator<RowId> for Rows {
    fn from_iter<I: IntoIterator<Item = RowId>>(rows: I) -> Self {
        let mut all = Self::default();
        rows.into_iter().for_each(|row| all.push(row));
        all
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Rows {}

impl PartialOrd for Rows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rows {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Rows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
