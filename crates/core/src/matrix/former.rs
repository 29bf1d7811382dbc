//! The matrix as form 4 of the journal has it: without the owners of jobs.

use super::*;

/// A matrix of form 4; all that [`Matrix`] had then, in its order.
#[derive(Debug, Deserialize)]
pub(crate) struct FormerMatrix {
    rows_made: u64,
    rows: BTreeMap<RowId, FormerRow>,
    kept: BTreeSet<RowId>,
    columns: Vec<Option<Column>>,
    seats: Table<FormerSeat>,
    blank: Index,
    closed: NodeSet,
    closed_width: u64,
    loads: Loads,
    changes: Changes,
    _reshaped: bool,
    vacated: bool,
    movers: BTreeSet<JobId>,
    seekers: BTreeSet<JobId>,
    woken: BTreeSet<RowId>,
}

/// A row of form 4.
#[derive(Debug, Deserialize)]
struct FormerRow {
    homes: u64,
    guests: BTreeSet<JobId>,
    classes: BTreeMap<ClassName, u32>,
    index: Index,
    closed_free: u64,
    busy: u64,
    vacated: NodeSet,
    loosened: NodeSet,
}

/// A job's place of form 4.
#[derive(Clone, Debug, Deserialize)]
struct FormerSeat {
    row: RowId,
    class: ClassName,
    parts: Parts,
    processors: u64,
    active: bool,
    guest_in: Vec<RowId>,
}

impl FormerMatrix {
    /// The same with the owners of all jobs.
    pub(crate) fn upgrade(self, owner: impl Fn(JobId) -> Owner) -> Matrix {
        let mut owners: BTreeMap<RowId, BTreeMap<(ClassName, Owner), u32>> = BTreeMap::new();
        let mut seats = Table::default();
        for (job, seat) in self.seats.iter() {
            let owner = owner(job);
            if seat.active {
                let row = owners.entry(seat.row).or_default();
                *row.entry((seat.class.clone(), owner)).or_default() += 1;
            }
            seats.insert(job, seat.clone().upgrade(owner));
        }
        let row = |(id, row): (RowId, FormerRow)| {
            (id, row.upgrade(owners.remove(&id).unwrap_or_default()))
        };
        Matrix {
            rows_made: self.rows_made,
            rows: self.rows.into_iter().map(row).collect(),
            kept: self.kept,
            columns: self.columns,
            seats,
            blank: self.blank,
            closed: self.closed,
            closed_width: self.closed_width,
            loads: self.loads,
            changes: self.changes,
            // Slots are divided by owner from now on.
            reshaped: true,
            vacated: self.vacated,
            movers: self.movers,
            seekers: self.seekers,
            woken: self.woken,
            touched: Vec::new(),
            apart: BTreeMap::new(),
            levels: Levels::default(),
        }
    }
}

impl FormerRow {
    fn upgrade(self, owners: BTreeMap<(ClassName, Owner), u32>) -> Row {
        Row {
            homes: self.homes,
            guests: self.guests,
            classes: self.classes,
            index: self.index,
            closed_free: self.closed_free,
            busy: self.busy,
            vacated: self.vacated,
            loosened: self.loosened,
            owners,
            kept_by: None,
        }
    }
}

impl FormerSeat {
    fn upgrade(self, owner: Owner) -> Seat {
        let Self { row, class, parts, processors, active, guest_in } = self;
        let lent = Parts::default();
        Seat { row, class, parts, processors, active, guest_in, owner, lent }
    }
}
