//! Rows that classes keep for their jobs, and the ordinary ones.

use super::{Matrix, Row};
use tutti_types::ids::{ClassName, RowId};

impl Matrix {
    /// The rows that no class keeps, oldest first.
    pub fn ordinary(&self) -> impl Iterator<Item = (RowId, &Row)> {
        self.rows().filter(|(_, row)| row.kept_by.is_none())
    }

    /// The rows that a class keeps, oldest first.
    pub fn kept_by<'a>(&'a self, class: &'a ClassName) -> impl Iterator<Item = RowId> + 'a {
        let kept = self.rows().filter(move |(_, row)| row.kept_by.as_ref() == Some(class));
        kept.map(|(id, _)| id)
    }

    /// Whether any row is kept by a class.
    #[must_use]
    pub fn has_kept(&self) -> bool {
        self.rows.values().any(|row| row.kept_by.is_some())
    }

    /// A row is for jobs of one class from now on.
    pub fn keep_for(&mut self, row: RowId, class: &ClassName) {
        if let Some(row) = self.rows.get_mut(&row) {
            row.kept_by = Some(class.clone());
        }
    }

    /// Homes in rows that classes keep are to be tried in all others: there is a new one.
    pub(super) fn consider_kept(&mut self) {
        let is_kept = |row| self.rows.get(row).is_some_and(|row: &Row| row.kept_by.is_some());
        let homes = self.seats.iter().filter(|(_, seat)| is_kept(&seat.row));
        self.movers.extend(homes.map(|(job, _)| job));
    }

    /// The oldest row that a class keeps becomes an ordinary one. Whether there was one.
    pub fn make_ordinary(&mut self) -> bool {
        let Some(row) = self.rows.values_mut().find(|row| row.kept_by.is_some()) else {
            return false;
        };
        row.kept_by = None;
        // Homes of other rows may rather be there now.
        self.consider_all_homes();
        true
    }
}
