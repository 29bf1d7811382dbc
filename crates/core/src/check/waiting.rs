//! Waiting: the queue, reservations, preemption, allowances, graces.

use super::{Report, Rule};
use crate::apply::Core;
use crate::line::{FRONT, InLine};
use crate::policy::classes::ByClass;
use crate::policy::{Decision, Preemption};
use crate::state::record::Phase;
use crate::state::record::Place;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use tutti_types::account::BankAccount;
use tutti_types::ids::JobId;
use tutti_types::params::Discipline;
use tutti_types::resource::{Amount, Grant, ResourceName};
use tutti_types::time::ClusterTime;

pub(super) fn check(core: &Core, report: &mut Report<'_>) {
    check_queue(core, report);
    check_kept_rows(core, report);
    if let Some(what) = core.wrong_queues() {
        report(Rule::Limits, what);
    }
    check_line(core, report);
    check_reservations(core, report);
    check_by_class(core, report);
    check_bank(core, report);
    if let Some(job) = core.wrong_class_by_use() {
        report(Rule::Bank, format!("job {job} has used more than its class allows by its rule"));
    }
    check_deadlines(core, report);
    check_resources(core, report);
    let kept_preempted = core.jobs.iter().filter(|(job, _)| core.is_kept_preempted(*job));
    for (job, _) in kept_preempted.filter(|(_, record)| record.may_take_turns()) {
        report(Rule::Queue, format!("job {job} has turns, and is kept preempted"));
    }
    if let Some(key) = core.startable_step() {
        report(Rule::Queue, format!("step {key} could start"));
    }
    if let Some(fault) = core.wrong_warnings(core.now()) {
        report(Rule::Limits, fault);
    }
    if let Some(fault) = core.wrong_checkpoints(core.now()) {
        report(Rule::Limits, fault);
    }
    if let Some(fault) = core.wrong_after().or_else(|| core.wrong_begins(core.now())) {
        report(Rule::Queue, fault);
    }
    if let Some(fault) = core.wrong_timed() {
        report(Rule::Queue, fault);
    }
    if let Some(fault) = core.wrong_arrays() {
        report(Rule::Queue, fault);
    }
}

/// What is noted as in use is what jobs have: what they asked for, and no more than there is.
fn check_resources(core: &Core, report: &mut Report<'_>) {
    let mut names: BTreeSet<ResourceName> = core.resources().map(|it| it.name).collect();
    for record in core.jobs.values() {
        let Some(residence) = record.residence() else { continue };
        names.extend(residence.resources.iter().map(|grant| grant.name));
        let wish = |grant: &Grant| record.spec.resources.iter().find(|it| it.name == grant.name);
        let asked = |grant: &Grant| {
            wish(grant).is_some_and(|wish| match wish.amount {
                Amount::Number(number) => grant.numbers == [number],
                Amount::One | Amount::Count(_) => {
                    grant.numbers.len() == wish.amount.count() as usize
                }
                Amount::OnNodes { .. } => false,
            })
        };
        let lacks = residence.place == Place::Home && core.awaits_resource(record);
        if lacks || !residence.resources.iter().all(asked) {
            let what = format!("job {} has {:?}", record.id, residence.resources);
            report(Rule::Resources, what);
        }
    }
    if let Some(fault) = core.wrong_devices() {
        report(Rule::Resources, fault);
    }
    if let Some(fault) = core.wrong_turns() {
        report(Rule::Devices, fault);
    }
    for name in names {
        let (counted, noted) = core.recount(name);
        if counted != noted {
            report(Rule::Resources, format!("{name}: {noted:?} are noted, not {counted:?}"));
        }
    }
    for name in core.exceeded_resources() {
        report(Rule::Resources, format!("jobs have more of {name} than there is"));
    }
}

fn check_queue(core: &Core, report: &mut Report<'_>) {
    let queue = &core.queue;
    for (job, record) in core.jobs.iter() {
        let places = [&queue.waiting, &queue.parked, &queue.suspended];
        let beside = usize::from(core.queues.is_beside(job, &record.spec));
        let count = places.iter().filter(|place| place.contains(&job)).count() + beside;
        let queued = matches!(record.phase, Phase::Queued { .. });
        let held = core.is_out_of_line(job);
        if count != usize::from(queued && (!held || record.suspended))
            || queue.suspended.contains(&job) != (queued && record.suspended)
            || (held && !queued)
        {
            report(
                Rule::Queue,
                format!("job {job} is in {count} places of the queue, held: {held}"),
            );
        }
    }
    let sum = queue.waiting.len() + queue.parked.len() + queue.suspended.len();
    if sum > core.jobs.len() {
        report(Rule::Queue, "an unknown job waits".into());
    }
    let is_unknown = |job: &&JobId| core.jobs.get(job).is_none();
    if let Some(job) = core.holds.keys().chain(core.allocations.keys()).find(is_unknown) {
        report(Rule::Queue, format!("something is kept of job {job}, which is unknown"));
    }
    if let Some(job) = core.overrun.keys().find(|job| core.residence(**job).is_none()) {
        report(Rule::Queue, format!("job {job} is over its limit and has not begun"));
    }
    if queue.waiting.is_empty() == queue.blocked.is_some() {
        report(Rule::Queue, format!("{:?} is the reason of {:?}", queue.blocked, queue.waiting));
    }
    if !core.outside_decides()
        && queue.discipline != Discipline::Conservative
        && let Some(first) = queue.first().and_then(|job| core.jobs.get(&job))
        && let Some(Decision::Start { row, .. }) = core.decide(&first.spec)
    {
        report(Rule::Queue, format!("job {} could start in row {row:?}", first.id));
    }
}

/// The first job in line of each class that keeps rows has no room in them. Rows are kept for jobs
/// of the class, or of one that it left as an allowance was spent.
fn check_kept_rows(core: &Core, report: &mut Report<'_>) {
    for (id, row) in core.matrix.rows() {
        let Some(class) = &row.kept_by else { continue };
        if !core.may_keep_rows() {
            report(Rule::Queue, format!("class {class} keeps row {id} where there are no turns"));
        }
        for (job, seat) in core.matrix.seats().filter(|(_, seat)| seat.row == id) {
            let came = core.jobs.get(&job).is_some_and(|record| record.former.is_some());
            let may_change = core.bank().next().is_some() || !core.rules_by_use().is_empty();
            if seat.class != *class && !came && !may_change && !core.is_overrun(job) {
                let what = format!("job {job} of {} is in a row of {class}", seat.class);
                report(Rule::KeptRows, what);
            }
        }
    }
    if !core.may_keep_rows() || core.outside_decides() {
        return;
    }
    for (class, _) in core.classes.iter().filter(|(_, spec)| spec.rows() > 0) {
        let of_class = |job: &JobId| {
            let spec = &core.jobs.get(job).filter(|it| it.spec.class == *class)?.spec;
            Some((core.queue.line.rank_of(*job, spec.owner), *job))
        };
        if let Some((_, job)) = core.queue.waiting.iter().filter_map(of_class).min()
            && let Ok((row, _)) = core.fits_kept(class, job)
        {
            report(Rule::Queue, format!("job {job} could start in row {row:?} that {class} keeps"));
        }
    }
}

/// Each job in line stands in one place of it, by what it is now.
fn check_line(core: &Core, report: &mut Report<'_>) {
    let queue = &core.queue;
    if let Some(fault) = queue.line.fault(&queue.waiting) {
        report(Rule::Line, fault.into());
    }
    if queue.line.order != core.line_order() {
        report(Rule::Line, format!("it is in order of {:?}", queue.line.order));
    }
    let waits = |job| core.jobs.get(&job).is_some_and(|record| record.residence().is_none());
    if let Some(fault) = queue.line.wrong_moves(waits) {
        report(Rule::Line, fault.into());
    }
    let (first, listed) = (queue.first_by_arrival(), queue.by_arrival().next());
    if first != listed {
        report(Rule::Line, format!("{first:?} is first by arrival, and {listed:?} in the list"));
    }
    check_moves(core, report);
    for &job in &queue.waiting {
        let (Some(listed), Some(record)) = (queue.line.listed(job), core.jobs.get(&job)) else {
            continue;
        };
        if *listed != core.listed(job, &record.spec) {
            report(Rule::Line, format!("job {job} stands as {listed:?}"));
        }
    }
    let line: Vec<(JobId, InLine)> = core.line().collect();
    let jobs: BTreeSet<JobId> = line.iter().map(|&(job, _)| job).collect();
    let has_line = !core.policy().sets_aside();
    if has_line && (jobs != queue.waiting || line.len() != jobs.len()) {
        report(Rule::Line, format!("{line:?} is not the line of {:?}", queue.waiting));
    }
    if has_line && line.first().map(|&(job, _)| job) != queue.first() {
        report(Rule::Line, format!("{:?} is the first of {line:?}", queue.first()));
    }
    let resident = |job: &JobId| core.residence(*job).is_some();
    if !queue.line.counted().all(|job| resident(&job))
        || (queue.line.has_lanes()
            && queue.line.counted().count() != core.jobs.keys().filter(resident).count())
    {
        report(Rule::Line, "use of other jobs than those that are placed is counted".into());
    }
}

/// Each moved job is before the one that it was moved before, and those at the front are before all
/// that were not moved.
fn check_moves(core: &Core, report: &mut Report<'_>) {
    if core.policy().sets_aside() || core.moved_jobs() == 0 {
        return;
    }
    let promised = core.queue.promise.map(|promise| promise.job);
    let line: Vec<JobId> =
        core.queue.in_order(core.params.quantum(), core.now).map(|it| it.0).collect();
    let place = |job: JobId| line.iter().position(|&it| it == job);
    for job in core.queue.line.moved() {
        let Some((stand, at)) = core.queue.line.stand(job).zip(place(job)) else { continue };
        let same_class = |other: JobId| {
            let priority = |class| core.classes.get(class).map_or(0, |class| class.priority());
            let record = core.jobs.get(&other)?;
            (priority(&record.spec.class) == stand.priority).then_some(())
        };
        let late = match stand.anchor {
            FRONT => line[..at].iter().any(|&it| !core.is_moved(it) && Some(it) != promised),
            anchor => {
                let stays = !core.is_moved(anchor) && Some(anchor) != promised;
                stays && same_class(anchor).is_some() && place(anchor).is_some_and(|it| it < at)
            }
        };
        if late {
            report(
                Rule::Line,
                format!("job {job} was moved to {stand:?}, and is late in {line:?}"),
            );
        }
    }
}

/// What was promised is kept: no job that was let by moves it back.
fn check_reservations(core: &Core, report: &mut Report<'_>) {
    let queue = &core.queue;
    if let Some(promise) = queue.promise {
        if queue.first() != Some(promise.job) || !queue.discipline.lets_by() {
            report(Rule::Reservations, format!("{promise:?} is not for the first in line"));
        }
        if promise.at > promise.first {
            report(Rule::Reservations, format!("{promise:?} is later than was promised"));
        }
        let anew = core.promise(core.now, promise.job);
        let settled = core.ledger.next_stage() == ClusterTime::NEVER;
        if settled && promise.row.is_some() && anew.at > promise.at {
            report(Rule::Reservations, format!("{promise:?} can't be kept: {anew:?}"));
        }
    }
    for (job, place) in &queue.reservations {
        if !queue.waiting.contains(job) || queue.discipline != Discipline::Conservative {
            report(Rule::Reservations, format!("job {job} has {place:?} and is not in line"));
        }
        if place.start > place.first {
            report(Rule::Reservations, format!("job {job}: {place:?} is later than promised"));
        }
    }
    let settled = core.ledger.next_stage() == ClusterTime::NEVER;
    if settled && core.enter_all(&mut core.profiles(core.now)).is_err() {
        report(Rule::Reservations, format!("not all can be kept: {:?}", queue.reservations));
    }
}

fn check_by_class(core: &Core, report: &mut Report<'_>) {
    if !matches!(core.policy().preemption, Preemption::ByClass) {
        if core.by_class != ByClass::default() {
            report(Rule::ByClass, format!("{:?} under another policy", core.by_class));
        }
        return;
    }
    for contender in core.contenders() {
        if core.loadable(&contender).is_some() {
            report(Rule::ByClass, format!("{contender:?} could be loaded"));
        }
    }
    for (job, record) in core.jobs.iter() {
        if record.suspended && record.residence().is_some_and(|it| it.place == Place::Home) {
            report(Rule::ByClass, format!("job {job} is suspended and keeps its processors"));
        }
    }
    let Some(bumper) = &core.by_class.bumper else { return };
    let contender = core.contender(bumper.job);
    if !contender.is_some_and(|it| it.is_candidate(core, core.now)) {
        report(Rule::ByClass, format!("{bumper:?} is for no job"));
    }
    for job in core.in_the_way() {
        if core.let_alone_until(job) <= core.now {
            report(Rule::ByClass, format!("job {job} is still in the way of {bumper:?}"));
        }
    }
    for part in &bumper.parts {
        if core.foreign.get(&part.node).is_some_and(|it| it.overlaps(&part.processors)) {
            report(Rule::ByClass, format!("{bumper:?} is to get what others use"));
        }
    }
}

fn check_bank(core: &Core, report: &mut Report<'_>) {
    let spent: BTreeSet<BankAccount> =
        core.bank().filter(|(_, balance)| balance.is_spent()).map(|(account, _)| account).collect();
    for (job, record) in core.jobs.iter() {
        let spec = &record.spec;
        let accounts = [BankAccount::User(spec.owner), BankAccount::Group(spec.group)];
        let is_spent = accounts.iter().any(|account| spent.contains(account));
        let counts = &*spec.class.0 == "standby";
        if (is_spent && !counts) || (!is_spent && record.former.is_some()) {
            let what =
                format!("job {job} is {}, was {:?}; spent: {spent:?}", spec.class, record.former);
            report(Rule::Bank, what);
        }
    }
    let is_hold = |job| core.migration.holder(job).is_some();
    for (job, seat) in core.matrix.seats().filter(|&(job, _)| !is_hold(job)) {
        let class = core.jobs.get(&job).map(|it| core.seat_class(job, &it.spec.class));
        if class.as_ref() != Some(&seat.class) {
            report(Rule::Bank, format!("job {job} is {class:?}, and its seat {}", seat.class));
        }
    }
}

fn check_deadlines(core: &Core, report: &mut Report<'_>) {
    let noted: BTreeSet<(ClusterTime, JobId)> = core
        .jobs
        .keys()
        .filter_map(|job| core.residence(job).map(|residence| (residence.deadline, job)))
        .filter(|&(at, _)| at < ClusterTime::NEVER)
        .collect();
    if noted != core.deadlines {
        report(Rule::Deadlines, format!("{:?}, not {noted:?}", core.deadlines));
    }
    let next = core.ledger.clone().next_due().map_or(ClusterTime::NEVER, |(at, _)| at);
    for (job, record) in core.jobs.iter() {
        let (Some(limit), Some(residence)) = (record.spec.time_limit, core.residence(job)) else {
            continue;
        };
        let reached = core.ledger.reaches(job, limit);
        if !residence.ending() && !core.is_overrun(job) && core.takes_turns(job) && next > reached {
            let what = format!("job {job} reaches its limit at {reached:?}, not {next:?}");
            report(Rule::Deadlines, what);
        }
    }
}
