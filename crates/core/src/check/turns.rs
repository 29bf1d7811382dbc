//! Turns: timetables, gangs, shares of the frame, accounts.

use super::{Report, Rule};
use crate::controller::Core;
use crate::plan::NodePlan;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, LaunchId, NodeId, ProcessorSet, RowId};
use tutti_types::limits::{QUANTUM_MIN, SHARE_WHOLE};
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::timetable::{IfAbsent, Slot, Timetable};

pub(super) fn check(core: &Core, report: &mut Report<'_>) {
    let plans = plans(core);
    check_timetables(core, &plans, report);
    check_gangs(core, &plans, report);
    check_shares(core, report);
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
    if rows.len() != core.frame.slots.len() && !several {
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
            if seat.and_then(|seat| seat.on(node)) != Some(&candidate.processors) {
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

fn check_shares(core: &Core, report: &mut Report<'_>) {
    let frame: u128 = core.frame.slots.iter().map(|slot| u128::from(slot.length.0)).sum();
    if core.frame.slots.iter().any(|slot| slot.length < QUANTUM_MIN) {
        report(Rule::Shares, format!("{:?} has a slot that is too short", core.frame));
    }
    let live = || core.matrix.rows().filter(|(_, row)| !row.classes.is_empty());
    if frame == 0 && live().next().is_some() {
        report(Rule::Shares, "there are rows and no slots".into());
    }
    for (name, class) in &core.classes {
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

fn check_accounts(core: &Core, plans: BTreeMap<NodeId, NodePlan>, report: &mut Report<'_>) {
    let holds = core.migration.leaving.len();
    let residents = core.matrix.seats().count() + core.aside.len();
    if core.ledger.len() + holds != residents || !core.ledger.complete() {
        report(Rule::Accounts, "accounts or clocks don't fit the resident jobs".into());
    }
    // What runs now can only be compared while no change is under way.
    if core.ledger.next_stage() < ClusterTime::NEVER {
        return;
    }
    let running: BTreeMap<NodeId, _> =
        plans.into_iter().map(|(node, plan)| (node, running(core, node, plan))).collect();
    for (job, seat) in core.matrix.seats() {
        let Some(residence) = core.residence(job) else { continue };
        let launch = core.launch_of(job);
        let mut expected = BTreeSet::new();
        for (node, _) in seat.parts.iter() {
            let theirs = running[node].iter().filter(|(_, launches)| launches.contains(&launch));
            expected.extend(theirs.map(|(row, _)| *row));
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
        let slots = [Slot { row, length: Nanos::ZERO, candidates }].into();
        let mut running = Vec::new();
        Timetable { slots, ..Timetable::default() }.running(0, present, &mut running);
        (row, running)
    };
    plan.into_iter().map(in_slot).collect()
}
