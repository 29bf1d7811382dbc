//! Turns: timetables, gangs, shares of the frame, accounts.

use super::{Report, Rule};
use crate::apply::Core;
use crate::memory_turns::Absent;
use crate::publish::NodePlan;
use crate::share;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use tutti_types::class::ClassSpec;
use tutti_types::ids::{ClassName, JobId, LaunchId, NodeId, ProcessorSet, RowId, UserId};
use tutti_types::limits::{QUANTUM_MIN, SHARE_WHOLE};
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::timetable::{IfAbsent, Slot, Timetable};

pub(super) fn check(core: &Core, report: &mut Report<'_>) {
    let plans = plans(core);
    check_timetables(core, &plans, report);
    check_gangs(core, &plans, report);
    check_devices(core, &plans, report);
    check_shares(core, report);
    check_users(core, report);
    check_accounts(core, plans, report);
}

/// Every node's candidates.
fn plans(core: &Core) -> BTreeMap<NodeId, NodePlan> {
    let nodes = core.matrix.columns();
    nodes.map(|(node, _)| (node, core.node_plan(node))).collect()
}

fn check_timetables(core: &Core, plans: &BTreeMap<NodeId, NodePlan>, report: &mut Report<'_>) {
    if core.frame.epoch > core.frame.activates {
        report(Rule::SameFrame, format!("{:?} begins after it activates", core.frame));
    }
    let rows: BTreeSet<RowId> = core.frame.slots.iter().map(|slot| slot.row).collect();
    let several = core.classes.values().any(|class| class.slots() > 1);
    let half = Nanos(core.params.quantum().0 / 2);
    let is_short = |row: &RowId| {
        let mut slots = core.frame.slots.iter().filter(|slot| slot.row == *row);
        slots.clone().count() > 1 && slots.any(|slot| slot.length < half)
    };
    if rows.len() != core.frame.slots.len() && !several && rows.iter().any(is_short) {
        report(Rule::SameFrame, format!("{:?} has a row twice", core.frame));
    }
    for (&node, plan) in plans {
        let Some(timetable) = core.timetable_by(node, plan) else {
            report(Rule::SameFrame, format!("node {node} was never sent a timetable"));
            continue;
        };
        let slots = timetable.slots.iter().map(|slot| (slot.row, slot.length));
        let frame = core.frame.slots.iter().map(|slot| (slot.row, slot.length));
        if !slots.eq(frame) || timetable.epoch != core.frame.epoch {
            report(Rule::SameFrame, format!("node {node} has another frame: {timetable:?}"));
        }
        for candidate in plan.values().flatten() {
            let seat = core.matrix.seat(candidate.launch.job).filter(|seat| seat.active);
            let used = seat.and_then(|seat| seat.used_on(node));
            if used.as_ref() != Some(&candidate.processors) {
                report(Rule::SameFrame, format!("node {node} has {candidate:?}"));
            }
        }
    }
}

/// A gang's candidate is listed on all its nodes or on none, and no candidate above it, present or
/// held, can take its processors: so it runs wherever it is present, whatever else is.
fn check_gangs(core: &Core, plans: &BTreeMap<NodeId, NodePlan>, report: &mut Report<'_>) {
    let mut listed: BTreeMap<(RowId, JobId), BTreeSet<NodeId>> = BTreeMap::new();
    for (&node, plan) in plans {
        for (&row, candidates) in plan {
            let mut above = ProcessorSet::new();
            for candidate in candidates {
                let gang =
                    core.matrix.seat(candidate.launch.job).is_some_and(|s| s.parts.len() > 1);
                if gang && candidate.processors.overlaps(&above) {
                    report(Rule::GangWhole, format!("row {row}, node {node}: {candidate:?}"));
                }
                if !listed.entry((row, candidate.launch.job)).or_default().insert(node) {
                    report(Rule::GangWhole, format!("row {row} names {candidate:?} twice"));
                }
                above.union_with(&candidate.processors);
            }
        }
    }
    for ((row, job), nodes) in &listed {
        let parts = core.matrix.seat(*job).map(|seat| seat.parts.len()).unwrap_or(0);
        if nodes.len() != parts {
            report(Rule::GangWhole, format!("row {row}: job {job} on {nodes:?} of {parts} nodes"));
        }
    }
    for (job, seat) in core.matrix.seats().filter(|(_, seat)| seat.active) {
        if !seat.parts.is_empty() && !listed.contains_key(&(seat.row, job)) {
            report(Rule::GangWhole, format!("job {job} is not in the slot of its own row"));
        }
    }
}

/// Of the jobs that have a device, no slot has two: not even one in place of the other.
fn check_devices(core: &Core, plans: &BTreeMap<NodeId, NodePlan>, report: &mut Report<'_>) {
    for (&node, plan) in plans {
        for device in core.devices().on(node).filter(|it| it.users.len() > 1) {
            for (row, candidates) in plan {
                let jobs = candidates.iter().map(|candidate| candidate.launch.job);
                let jobs: Vec<JobId> = jobs.filter(|job| device.users.contains(job)).collect();
                if jobs.len() > 1 {
                    let id = device.device.id;
                    report(Rule::Devices, format!("row {row}, node {node}: {id} of {jobs:?}"));
                }
            }
        }
    }
}

fn check_shares(core: &Core, report: &mut Report<'_>) {
    let frame: u128 = core.frame.slots.iter().map(|slot| u128::from(slot.length.0)).sum();
    if core.frame.slots.iter().any(|slot| slot.length < QUANTUM_MIN) {
        report(Rule::Shares, format!("{:?} has a slot that is too short", core.frame));
    }
    let live = || core.matrix.rows().filter(|(_, row)| !row.classes.is_empty());
    if frame == 0 && live().next().is_some() {
        report(Rule::Shares, "there are rows and no slots".into());
    }
    // The time of jobs that are out for others' turns in memory is a matter of users.
    let absent = absent(core);
    for (name, class) in core.classes.iter().filter(|(name, _)| !absent.contains_key(*name)) {
        let rows = live().filter(|(_, row)| row.classes.contains_key(name));
        let mut rows: Vec<RowId> = rows.map(|(id, _)| id).collect();
        let holds = class.empty() == IfAbsent::Hold && class.share() > 0;
        if rows.is_empty() && holds && frame > 0 {
            rows.extend(core.held.get(name));
            if rows.is_empty() {
                report(Rule::Shares, format!("the time of class {name} is not held"));
            }
        }
        let theirs = rows.iter().filter_map(|&row| core.frame.length_of(row));
        let theirs: u128 = theirs.map(|length| u128::from(length.0)).sum();
        if !rows.is_empty() && theirs * u128::from(SHARE_WHOLE) < frame * u128::from(class.share())
        {
            report(Rule::Shares, format!("class {name} gets {theirs} of {frame} ns"));
        }
    }
}

/// Each user of a class has what it weighs in the class's part, and so has each of the user's rows.
/// Rows are compared with the sum of all parts, as far as odd nanoseconds permit.
fn check_users(core: &Core, report: &mut Report<'_>) {
    let live = || core.matrix.rows().filter(|(_, row)| !row.classes.is_empty());
    if core.policy().plans() || live().nth(1).is_none() {
        return;
    }
    let shares: u64 = core.classes.values().map(|class| u64::from(class.share())).sum();
    let rest = u64::from(SHARE_WHOLE).saturating_sub(shares);
    let part = |class: &ClassName| match core.classes.get(class).map_or(0, ClassSpec::share) {
        0 if *class == share::idle_only() => (Some(class.clone()), 0),
        0 => (None, rest),
        share => (Some(class.clone()), u64::from(share)),
    };
    let mut parts: BTreeMap<Option<ClassName>, u64> = core.held.keys().map(part).collect();
    let mut rows: BTreeMap<(Option<ClassName>, UserId), (u32, BTreeSet<RowId>)> = BTreeMap::new();
    let absent: Vec<Absent> = absent(core).into_values().flatten().collect();
    let here =
        live().flat_map(|(id, row)| row.owners.keys().map(move |(of, owner)| (id, of, owner)));
    for (id, class, owner) in here.chain(absent.iter().map(|it| (it.row, &it.class, &it.owner))) {
        let (sharers, part) = part(class);
        parts.insert(sharers.clone(), part);
        let (weight, theirs) = rows.entry((sharers, owner.user)).or_default();
        *weight = core.weight(*owner).max(*weight);
        theirs.insert(id);
    }
    // Those that have only what is idle have no part beside others.
    let idle = Some(share::idle_only());
    if parts.len() > 1 {
        parts.remove(&idle);
    }
    let mut idle_rows: BTreeSet<RowId> = BTreeSet::new();
    rows.retain(|(sharers, _), (_, theirs)| {
        let has_part = parts.contains_key(sharers);
        if !has_part {
            idle_rows.append(theirs);
        }
        has_part
    });
    if parts.len() == 1 {
        parts.values_mut().for_each(|part| *part = 1);
    }
    let whole: u128 = parts.values().map(|&part| u128::from(part)).sum();
    let frame: u128 = core.frame.slots.iter().map(|slot| u128::from(slot.length.0)).sum();
    let mut weights: BTreeMap<&Option<ClassName>, u128> = BTreeMap::new();
    for ((sharers, _), (weight, _)) in &rows {
        *weights.entry(sharers).or_default() += u128::from(*weight);
    }
    let mut expected: BTreeMap<RowId, (u128, u128)> =
        idle_rows.into_iter().map(|row| (row, (0, 0))).collect();
    for ((sharers, _), (weight, theirs)) in &rows {
        let all = frame * u128::from(parts[sharers]) / whole.max(1);
        let each = all * u128::from(*weight) / weights[sharers] / theirs.len() as u128;
        for &row in theirs {
            let (sum, count) = expected.entry(row).or_default();
            *sum += each;
            *count += 1;
        }
    }
    for Absent { row, stands_in, .. } in absent {
        let (theirs, more) = expected.remove(&row).unwrap_or_default();
        let (sum, count) = expected.entry(stands_in).or_default();
        *sum += theirs;
        *count += more;
    }
    check_lengths(core, (frame, expected), report);
}

/// Each row is so long, as far as the odd nanoseconds of so many parts permit.
fn check_lengths(
    core: &Core,
    (frame, expected): (u128, BTreeMap<RowId, (u128, u128)>),
    report: &mut Report<'_>,
) {
    for (row, (sum, count)) in expected {
        let length = core.frame.length_of(row).map_or(0, |length| u128::from(length.0));
        if length.abs_diff(sum) > 3 * count {
            report(Rule::Shares, format!("row {row} has {length} of {frame} ns, not {sum}"));
        }
    }
}

/// The jobs that are out for others' turns in memory and count in the frame, by class. Beside the
/// only row they have no part.
fn absent(core: &Core) -> BTreeMap<ClassName, Vec<Absent>> {
    let live = || core.matrix.rows().filter(|(_, row)| !row.classes.is_empty());
    let mut found: BTreeMap<ClassName, Vec<Absent>> = BTreeMap::new();
    if live().nth(1).is_some() {
        for job in core.absent(|row| live().any(|(id, _)| id == row)) {
            found.entry(job.class.clone()).or_default().push(job);
        }
    }
    found
}

fn check_accounts(core: &Core, plans: BTreeMap<NodeId, NodePlan>, report: &mut Report<'_>) {
    let holds = core.migration.leaving.len();
    let residents = core.matrix.seats().count() + core.aside.len();
    if core.ledger.len() + holds != residents || !core.ledger.complete() {
        report(Rule::Accounts, "accounts or clocks don't fit the resident jobs".into());
    }
    for (job, seat) in core.matrix.seats().filter(|&(job, _)| core.residence(job).is_some()) {
        let counted = core.ledger.processors(job);
        if counted != seat.processors {
            let what = format!("{counted} of {} of job {job} come free", seat.processors);
            report(Rule::Accounts, what);
        }
    }
    // What runs now can only be compared while no change is under way.
    if core.ledger.next_stage() < ClusterTime::NEVER {
        return;
    }
    let running: BTreeMap<NodeId, _> =
        plans.into_iter().map(|(node, plan)| (node, running(core, node, plan))).collect();
    for (job, seat) in core.matrix.seats() {
        let Some(residence) = core.residence(job) else { continue };
        let mut expected = BTreeSet::new();
        for (node, _) in seat.parts.iter() {
            let launch = core.launch_on(job, *node);
            let theirs = running[node].iter().filter(|(_, launches)| launches.contains(&launch));
            expected
                .extend(theirs.map(|(row, _)| *row).filter(|&row| !core.is_nodes_choice(job, row)));
        }
        let runs: BTreeSet<RowId> = core.ledger.runs(job).iter().copied().collect();
        if runs != expected || (!runs.is_empty() && !residence.present()) {
            report(Rule::Accounts, format!("job {job} runs in {runs:?}, not {expected:?}"));
        }
    }
}

/// The jobs that run on a node in each row's slot.
fn running(core: &Core, node: NodeId, plan: NodePlan) -> Vec<(RowId, Vec<LaunchId>)> {
    let present =
        |launch: LaunchId| core.residence(launch.job).is_some_and(|it| it.present_on(node));
    let in_slot = |(row, candidates): (RowId, Vec<_>)| {
        let slots = [Slot { row, length: Nanos::ZERO, candidates, local: 0 }].into();
        let mut running = Vec::new();
        Timetable { slots, ..Timetable::default() }.running(0, present, &mut running);
        (row, running)
    };
    plan.into_iter().map(in_slot).collect()
}
