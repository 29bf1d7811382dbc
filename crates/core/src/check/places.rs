//! Places: homes, holds, rows, processors, memory.

use super::{Report, Rule};
use crate::apply::Core;
use crate::matrix::Seat;
use crate::state::record::Place;
use crate::state::record::{Part, Phase, Residence};
use crate::termination::memory_of;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};

pub(super) fn check(core: &Core, report: &mut Report<'_>) {
    check_homes(core, report);
    check_aside(core, report);
    check_holds(core, report);
    check_rows(core, report);
    check_wishes(core, report);
    check_drained(core, report);
    check_free_processors(core, report);
    check_compact(core, report);
    check_memory(core, report);
    if let Some(fault) = core.wrong_loan() {
        report(Rule::OneJobPerProcessor, fault);
    }
}

fn check_homes(core: &Core, report: &mut Report<'_>) {
    let placed = |&job: &JobId| core.residence(job).is_some_and(|it| it.place != Place::Aside);
    let residents: BTreeSet<JobId> = core.jobs.keys().filter(placed).collect();
    let is_hold = |job| core.migration.holder(job).is_some();
    let seats = || core.matrix.seats().filter(|&(job, _)| !is_hold(job));
    let seated: BTreeSet<JobId> = seats().map(|(job, _)| job).collect();
    if residents != seated {
        report(Rule::OneHome, format!("resident {residents:?}, seated {seated:?}"));
    }
    for (job, seat) in seats() {
        for (row, record) in core.matrix.rows() {
            if record.guests.contains(&job) != seat.guest_in.contains(&row) {
                report(Rule::OneHome, format!("job {job} is a guest of row {row} by halves"));
            }
        }
        let runs = core.takes_turns(job);
        if seat.active != runs {
            report(Rule::OneHome, format!("job {job} takes turns: {runs}, and its seat does not"));
        }
        let placed = core.residence(job).map(Residence::places).unwrap_or_default();
        if placed != *seat.parts {
            report(Rule::OneHome, format!("job {job} is at {:?}, not {placed:?}", seat.parts));
        }
        for (node, set) in seat.parts.iter() {
            let known = core.matrix.column(*node);
            if !known.is_some_and(|column| set.is_subset(&column.processors)) || set.is_empty() {
                report(Rule::OneHome, format!("job {job} has {set} of node {node}"));
            }
        }
    }
}

fn check_aside(core: &Core, report: &mut Report<'_>) {
    let aside = |&job: &JobId| core.residence(job).is_some_and(|it| it.place == Place::Aside);
    let found: BTreeSet<JobId> = core.jobs.keys().filter(aside).collect();
    if found != core.aside {
        report(Rule::Aside, format!("{found:?} are preempted, not {:?}", core.aside));
    }
    let waits = |&job: &JobId| {
        let resource = core.jobs.get(&job).is_some_and(|record| core.awaits_resource(record));
        !resource
            && !core.yields_to_line(job)
            && !core.is_kept_preempted(job)
            // Its memory would come back too soon, or others have it.
            && core.kept_out_until(job) <= core.now
            && core.may_swap_in(job)
            && !core.awaits_turn_of_another(job)
            && core.residence(job).is_some_and(Residence::may_come_back)
    };
    if !core.policy().sets_aside() && found.iter().any(waits) {
        report(Rule::Aside, format!("nothing brings {found:?} back"));
    }
}

/// A job that leaves for other processors has a hold on them, and no other has one.
fn check_holds(core: &Core, report: &mut Report<'_>) {
    for &job in core.migration.leaving.keys() {
        if core.residence(job).is_none_or(|it| it.place != Place::Leaving) {
            report(Rule::Migration, format!("job {job} goes elsewhere and does not leave"));
        }
    }
    let holds = core.matrix.seats().filter(|(job, _)| core.migration.holder(*job).is_some());
    let count = holds.filter(|(_, seat)| !seat.active).count();
    if count != core.migration.leaving.len() {
        report(Rule::Migration, format!("{count} holds of {:?}", core.migration.leaving));
    }
}

/// Adds up processors and reports whatever is added twice.
fn add(
    sum: &mut BTreeMap<NodeId, ProcessorSet>,
    (job, seat): (JobId, &Seat),
    row: RowId,
    report: &mut Report<'_>,
) {
    for (node, set) in seat.parts.iter() {
        add_on(sum, (job, *node, set), row, report);
    }
}

/// The same without what a job lends.
fn add_used(
    sum: &mut BTreeMap<NodeId, ProcessorSet>,
    (job, seat): (JobId, &Seat),
    row: RowId,
    report: &mut Report<'_>,
) {
    for (node, set) in seat.parts.iter() {
        let used = seat.used_on(*node).unwrap_or_default();
        if !used.is_subset(set) {
            report(Rule::OneJobPerProcessor, format!("job {job} lends more than {set} of {node}"));
        }
        add_on(sum, (job, *node, &used), row, report);
    }
}

fn add_on(
    sum: &mut BTreeMap<NodeId, ProcessorSet>,
    (job, node, set): (JobId, NodeId, &ProcessorSet),
    row: RowId,
    report: &mut Report<'_>,
) {
    let taken = sum.entry(node).or_default();
    if taken.overlaps(set) {
        report(Rule::OneJobPerProcessor, format!("row {row}, node {node}: {set} of job {job}"));
    }
    taken.union_with(set);
}

fn check_rows(core: &Core, report: &mut Report<'_>) {
    for (id, row) in core.matrix.rows() {
        let (mut taken, mut running) = (BTreeMap::new(), BTreeMap::new());
        let mut classes = BTreeMap::new();
        let mut homes = 0;
        for (job, seat) in core.matrix.seats() {
            if seat.row == id {
                add(&mut taken, (job, seat), id, report);
                homes += 1;
            }
            if seat.row == id && seat.active {
                *classes.entry(seat.class.clone()).or_default() += 1;
            }
            if seat.row == id && seat.active {
                add_used(&mut running, (job, seat), id, report);
            } else if seat.guest_in.contains(&id) {
                add(&mut running, (job, seat), id, report);
            }
        }
        if row.classes != classes || row.homes != homes || (homes == 0 && !core.matrix.keeps(id)) {
            let (count, counts) = (row.homes, &row.classes);
            let what = format!("row {id} counts {count} {counts:?}, not {homes} {classes:?}");
            report(Rule::OneHome, what);
        }
        let none = ProcessorSet::new();
        let cells_on = |node| core.matrix.column(node).and_then(|column| column.cells(id));
        let nodes = core.matrix.columns().filter_map(|(node, _)| Some((node, cells_on(node)?)));
        for (node, cells) in nodes {
            let mut both = cells.active();
            both.union_with(&cells.guest);
            if cells.taken != *taken.get(&node).unwrap_or(&none)
                || both != *running.get(&node).unwrap_or(&none)
                || cells.active().overlaps(&cells.guest)
                || !cells.suspended.is_subset(&cells.taken)
            {
                report(Rule::OneJobPerProcessor, format!("row {id}, node {node}: {cells:?}"));
            }
        }
        if taken.keys().chain(running.keys()).any(|&node| cells_on(node).is_none()) {
            report(Rule::OneJobPerProcessor, format!("row {id} lacks a node"));
        }
    }
}

fn check_wishes(core: &Core, report: &mut Report<'_>) {
    for (job, record) in core.jobs.iter() {
        let (wish, Some(residence)) = (&record.spec.nodes, record.residence()) else { continue };
        let parts = &residence.parts;
        let counts = || parts.iter().map(|part| part.tasks);
        let uneven = counts().max().unwrap_or(0) - counts().min().unwrap_or(0) > 1;
        let all = |part: &Part| {
            let column = core.matrix.column(part.node);
            part.lost || column.is_some_and(|column| part.processors == column.processors)
        };
        let amiss = match wish.count {
            _ if parts.iter().any(|part| !wish.allows(part.node)) => "where it may not be",
            Some(count) if parts.len() != count as usize => "on another number of nodes",
            Some(_) if uneven => "unevenly on its nodes",
            Some(_) | None if wish.exclusive && !parts.iter().all(all) => "not alone on its nodes",
            Some(_) | None => continue,
        };
        report(Rule::Wish, format!("job {job} wants {wish:?} and is {amiss}: {parts:?}"));
    }
}

fn check_drained(core: &Core, report: &mut Report<'_>) {
    if !core.nodes.notes_away() {
        report(Rule::Drained, "other nodes are noted as out of reach than are".into());
    }
    let (mut width, mut drained) = (0, BTreeSet::new());
    for (node, column) in core.matrix.columns() {
        width += u64::from(column.width);
        let is_drained = !core.takes_jobs(node);
        if is_drained != core.matrix.is_closed(node) {
            report(Rule::Drained, format!("node {node} takes no jobs: {is_drained}"));
        }
        drained.extend(is_drained.then_some(node));
    }
    if core.matrix.width() != width {
        report(Rule::FreeProcessors, format!("{width} processors, not {}", core.matrix.width()));
    }
    for (id, row) in core.matrix.rows() {
        let free = core.matrix.columns().map(|(_, column)| u64::from(column.free(id))).sum::<u64>();
        if row.all_free() != free {
            report(Rule::FreeProcessors, format!("row {id} has {free}, not {}", row.all_free()));
        }
    }
    let promises = core.plans.rows.values().flat_map(|plan| plan.promises.iter());
    for (job, promise) in promises {
        let is_queued = core.jobs.get(&job).is_some_and(|it| it.residence().is_none());
        if is_queued && promise.parts.iter().any(|part| drained.contains(&part.node)) {
            report(Rule::Drained, format!("job {job} is to begin on one of {drained:?}"));
        }
    }
}

fn check_free_processors(core: &Core, report: &mut Report<'_>) {
    for (id, row) in core.matrix.rows() {
        let found: BTreeMap<NodeId, u32> =
            row.index.widest(core.matrix.loads()).map(|(free, node)| (node, free)).collect();
        let counted: BTreeMap<NodeId, u32> = core
            .matrix
            .open_columns()
            .map(|(node, _)| (node, core.matrix.free_on(Some(id), node).count()))
            .collect();
        let sum: u64 = counted.values().map(|&free| u64::from(free)).sum();
        if found != counted || row.index.free() != sum {
            report(Rule::FreeProcessors, format!("row {id}: {found:?}, not {counted:?}"));
        }
    }
    for (node, column) in core.matrix.columns() {
        let taken = core.matrix.rows().filter_map(|(row, _)| column.cells(row));
        let sum: u32 = taken.map(|cells| cells.taken.count()).sum();
        let found = core.matrix.loads().of(node);
        if column.load != sum || found != Some(sum) {
            let what = format!("node {node}: load {}, found as {found:?}, not {sum}", column.load);
            report(Rule::FreeProcessors, what);
        }
    }
}

fn check_compact(core: &Core, report: &mut Report<'_>) {
    for (job, _) in core.matrix.seats() {
        for (row, _) in core.matrix.rows() {
            let unites = !core.queue.promised() && !core.policy().plans();
            if unites && core.matrix.wants_home(job, row, core.params.packing()) {
                report(Rule::Compact, format!("job {job} could move to row {row}"));
            }
            if core.matrix.fits_guest(job, row) {
                report(Rule::Compact, format!("job {job} could be a guest of row {row}"));
            }
        }
    }
}

fn check_memory(core: &Core, report: &mut Report<'_>) {
    let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
    for record in core.jobs.values() {
        let Phase::Resident(residence) = &record.phase else { continue };
        for part in residence.parts.iter().filter(|part| !part.lost) {
            let counted = core.swaps.counted_bytes(record.id, part, &record.spec);
            *sums.entry(part.node).or_default() += counted;
        }
    }
    for (job, promise) in core.plans.rows.values().flat_map(|plan| plan.promises.iter()) {
        let Some(record) = core.jobs.get(&job) else { continue };
        if let Phase::Queued { .. } = record.phase {
            for part in &promise.parts {
                *sums.entry(part.node).or_default() += memory_of(part, &record.spec);
            }
        }
    }
    for (id, node) in core.nodes.iter() {
        let sum = sums.get(&id).copied().unwrap_or(0);
        if node.admitted_bytes != sum || sum > node.spec.memory_bytes {
            let (admitted, has) = (node.admitted_bytes, node.spec.memory_bytes);
            report(Rule::Memory, format!("node {id}: {admitted} of {has}, jobs have {sum}"));
        }
    }
}
