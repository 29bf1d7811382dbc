//! What must hold of promises after every event; called by [`crate::check`].

use super::row_shares::sharers;
use super::update::{keeps_promise, wants_promise};
use crate::apply::Core;
use crate::check::{Report, Rule};
use crate::state::record::Place;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use tutti_types::ids::JobId;

pub(crate) fn check(core: &Core, report: &mut Report<'_>) {
    check_noted(core, report);
    if core.policy().plans() {
        check_time(core, report);
        check_idle(core, report);
    }
}

/// Every job with a deadline has a promise, or is known to be at risk.
fn check_noted(core: &Core, report: &mut Report<'_>) {
    let promised = core.plans.rows.values().flat_map(|plan| plan.promises.iter());
    let promised: Vec<JobId> = promised.map(|(job, _)| job).collect();
    let once: BTreeSet<JobId> = promised.iter().copied().collect();
    if once.len() != promised.len()
        || promised.iter().any(|job| core.plans.at_risk.contains_key(job))
    {
        report(Rule::Promises, format!("{promised:?} are promised something twice or at risk"));
    }
    for (job, record) in core.jobs.iter() {
        let known = once.contains(&job) || core.plans.at_risk.contains_key(&job);
        if wants_promise(record) && !known {
            report(Rule::Promises, format!("the deadline of job {job} is not kept"));
        }
        if once.contains(&job) && (!keeps_promise(record) || core.is_kept_back(record)) {
            report(Rule::Promises, format!("job {job} is promised something for nothing"));
        }
    }
}

/// What is promised is enough, in time, and to no other job.
fn check_time(core: &Core, report: &mut Report<'_>) {
    let ahead = core.ahead(core.now);
    for plan in core.plans.rows.values() {
        let clock = ahead.clock(Some(plan.row));
        for (job, promise) in plan.promises.iter() {
            let holds = core.jobs.get(&job).and_then(|record| ahead.holds(record));
            let (time, last) = (&promise.time, promise.last);
            let early = time.first().is_some_and(|first| first.from < clock);
            let late = time.last().is_some_and(|end| end.to > last);
            if Some(time.length()) != holds || early || late {
                let what = format!("job {job} at {clock} needs {holds:?} until {last}: {time:?}");
                report(Rule::Promises, what);
            }
            for other in plan.promises.rivals(job, &promise.parts) {
                let both = plan.promises.time_of(&[job, other]).length();
                if both != time.length() + plan.promises.time_of(&[other]).length() {
                    report(Rule::Promises, format!("jobs {job} and {other} at the same time"));
                }
            }
        }
    }
}

/// A job that is to run does, and none waits that could.
fn check_idle(core: &Core, report: &mut Report<'_>) {
    let on_the_way = core.jobs.values().any(|record| {
        record.residence().is_some_and(|it| matches!(it.place, Place::Leaving | Place::Coming))
    });
    if on_the_way {
        return;
    }
    for (sharers, jobs) in core.who_runs(core.now) {
        let row = core.plans.rows.get(&sharers).map(|plan| plan.row);
        for job in jobs {
            let seat = core.matrix.seat(job).map(|seat| seat.row);
            if row.is_none() || seat != row {
                report(Rule::Promises, format!("job {job} is to run in {row:?}, not {seat:?}"));
            }
        }
    }
    let machine = core.matrix.blank().free();
    for &job in &core.queue.waiting {
        let Some(record) = core.jobs.get(&job) else { continue };
        let sharers = sharers(&core.classes, &record.spec.class);
        let row = core.plans.rows.get(&sharers).map(|plan| plan.row);
        let free = row.and_then(|row| core.matrix.row(row)).map(|row| row.index.free());
        let enough = core.machine().least_processors(&record.spec) <= free.unwrap_or(machine);
        let lay = core.policy().placement;
        if core.plans.promise(job).is_none()
            && enough
            && core.lacks_resource(&record.spec).is_none()
            && lay(core.machine(), &record.spec, row).is_ok()
        {
            report(Rule::Promises, format!("job {job} could start in {row:?}"));
        }
    }
}
