//! The invariants: what must hold of the core after every event, as functions over its state.
//!
//! The numbers in the names of the rules are those of the design's list of what must always hold.
//! Tests and the simulator call [`check`] after each event; nothing in the core relies on it.

use crate::aside::Place;
use crate::bank::BankAccount;
use crate::by_class::ByClass;
use crate::controller::Core;
use crate::deadline;
use crate::ending::memory_of;
use crate::ids::{JobId, NodeId, ProcessorSet, RowId};
use crate::limits::{QUANTUM_MIN, SHARE_WHOLE};
use crate::matrix::Seat;
use crate::params::Discipline;
use crate::plan::{NodePlan, node_plan};
use crate::policy::{Decision, Preemption};
use crate::record::{Part, Phase, Record, Residence};
use crate::time::{ClusterTime, Nanos};
use crate::timetable::{IfAbsent, Slot, Timetable};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Something that must hold and doesn't: a bug of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule is broken.
    pub rule: Rule,
    /// Where and how.
    pub what: String,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// 2: in a row, a processor is one job's.
    OneJobPerProcessor,
    /// Every resident job that is not set aside has one home row, and its processors exist.
    OneHome,
    /// Who is set aside is noted as such; nobody is under a policy that sets nobody aside.
    Aside,
    /// Who has a wish about its nodes has them as wished.
    Wish,
    /// Whatever node is drained takes nobody new, and none else.
    Drained,
    /// The counts by which processors are found agree with who has them.
    FreeProcessors,
    /// No home could move to another row where it should be, and no job could be a guest where it isn't.
    Compact,
    /// 3: who runs in a slot is the same for all nodes of a gang.
    GangWhole,
    /// Every node has the same frame, and no suspended job is in it.
    SameFrame,
    /// 7: each class gets its share of the frame, and no slot is too short.
    Shares,
    /// Memory promised on a node is that of the jobs on it, and no more than it has.
    Memory,
    /// Every resident job has an account that counts the slots it runs in.
    Accounts,
    /// 5: every job is either resident or in exactly one place of the queue, and nobody waits for
    /// nothing.
    Queue,
    /// 7: who has a reservation is not moved back by later jobs, while jobs end by their limits.
    Reservations,
    /// A place is kept for whoever goes on on other processors.
    Migration,
    /// Under the policy `classes`: nobody waits who could have processors, who is to be set aside is, and
    /// what is reserved may be.
    ByClass,
    /// Whose allowance is spent, his jobs count as standby, and nobody else's for that reason.
    Bank,
    /// Whatever is due for a job is noted.
    Deadlines,
    /// 7: who was promised to be done by a deadline has time enough until then, which is nobody
    /// else's; and no processor idles that somebody could use.
    Promises,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// All that is violated. Legal between two calls of [`Core::apply`].
#[must_use]
pub fn check(core: &Core) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |rule, what| violations.push(Violation { rule, what });
    check_homes(core, &mut report);
    check_aside(core, &mut report);
    check_holds(core, &mut report);
    check_rows(core, &mut report);
    check_wishes(core, &mut report);
    check_drained(core, &mut report);
    check_free_processors(core, &mut report);
    check_compact(core, &mut report);
    check_timetables(core, &mut report);
    check_gangs(core, &mut report);
    check_shares(core, &mut report);
    check_memory(core, &mut report);
    check_accounts(core, &mut report);
    check_queue(core, &mut report);
    check_reservations(core, &mut report);
    check_by_class(core, &mut report);
    check_bank(core, &mut report);
    check_deadlines(core, &mut report);
    deadline::check(core, &mut report);
    violations
}

pub(crate) type Report<'a> = dyn FnMut(Rule, String) + 'a;

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
        let runs = core.jobs.get(&job).is_some_and(Record::takes_turns);
        if seat.active != runs {
            report(Rule::OneHome, format!("job {job} takes turns: {runs}, and its seat does not"));
        }
        let parts = core.residence(job).map(|residence| &residence.parts);
        let placed = parts.into_iter().flatten().filter(|part| !part.lost);
        let placed: Vec<_> = placed.map(|part| (part.node, part.processors.clone())).collect();
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
        report(Rule::Aside, format!("{found:?} are set aside, not {:?}", core.aside));
    }
    let waits = |&job: &JobId| core.residence(job).is_some_and(Residence::may_come_back);
    if !core.policy().sets_aside() && found.iter().any(waits) {
        report(Rule::Aside, format!("nobody brings {found:?} back"));
    }
}

/// Whoever leaves for other processors has a hold on them, and nobody else has one.
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
        let taken = sum.entry(*node).or_default();
        if taken.overlaps(set) {
            report(Rule::OneJobPerProcessor, format!("row {row}, node {node}: {set} of job {job}"));
        }
        taken.union_with(set);
    }
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
            if seat.row == id && seat.active || seat.guest_in.contains(&id) {
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
    let (mut width, mut drained) = (0, BTreeSet::new());
    for (node, column) in core.matrix.columns() {
        width += u64::from(column.width);
        let is_drained = core.nodes.get(node).is_some_and(|record| record.drained.is_some());
        if is_drained != core.matrix.is_closed(node) {
            report(Rule::Drained, format!("node {node} is drained: {is_drained}"));
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

/// Every node's candidates.
fn plans(core: &Core) -> BTreeMap<NodeId, NodePlan> {
    let nodes = core.matrix.columns();
    nodes.map(|(node, _)| (node, node_plan(&core.matrix, &core.classes, node))).collect()
}

fn check_timetables(core: &Core, report: &mut Report<'_>) {
    if core.frame.epoch > core.frame.activates {
        report(Rule::SameFrame, format!("{:?} begins after it activates", core.frame));
    }
    let rows: BTreeSet<RowId> = core.frame.slots.iter().map(|slot| slot.row).collect();
    let several = core.classes.values().any(|class| class.slots() > 1);
    if rows.len() != core.frame.slots.len() && !several {
        report(Rule::SameFrame, format!("{:?} has a row twice", core.frame));
    }
    for (node, plan) in plans(core) {
        let Some(timetable) = core.timetable(node) else {
            report(Rule::SameFrame, format!("node {node} was never sent a timetable"));
            continue;
        };
        let slots = timetable.slots.iter().map(|slot| (slot.row, slot.length));
        let frame = core.frame.slots.iter().map(|slot| (slot.row, slot.length));
        if !slots.eq(frame) || timetable.epoch != core.frame.epoch {
            report(Rule::SameFrame, format!("node {node} has another frame: {timetable:?}"));
        }
        for candidate in plan.values().flatten() {
            let seat = core.matrix.seat(candidate.job).filter(|seat| seat.active);
            if seat.and_then(|seat| seat.on(node)) != Some(&candidate.processors) {
                report(Rule::SameFrame, format!("node {node} has {candidate:?}"));
            }
        }
    }
}

/// A gang's candidate is listed on all its nodes or on none, and no candidate above it, present or
/// held, can take its processors: so it runs wherever it is present, whatever else is.
fn check_gangs(core: &Core, report: &mut Report<'_>) {
    let plans = plans(core);
    let mut listed: BTreeMap<(RowId, JobId), BTreeSet<NodeId>> = BTreeMap::new();
    for (&node, plan) in &plans {
        for (&row, candidates) in plan {
            let mut above = ProcessorSet::new();
            for candidate in candidates {
                let gang = core.matrix.seat(candidate.job).is_some_and(|s| s.parts.len() > 1);
                if gang && candidate.processors.overlaps(&above) {
                    report(Rule::GangWhole, format!("row {row}, node {node}: {candidate:?}"));
                }
                if !listed.entry((row, candidate.job)).or_default().insert(node) {
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

fn check_memory(core: &Core, report: &mut Report<'_>) {
    let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
    for record in core.jobs.values() {
        let Phase::Resident(residence) = &record.phase else { continue };
        for part in residence.parts.iter().filter(|part| !part.lost) {
            *sums.entry(part.node).or_default() += memory_of(part, &record.spec);
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

fn check_accounts(core: &Core, report: &mut Report<'_>) {
    let holds = core.migration.leaving.len();
    let residents = core.matrix.seats().count() + core.aside.len();
    if core.ledger.len() + holds != residents || !core.ledger.complete() {
        report(Rule::Accounts, "accounts or clocks don't fit the resident jobs".into());
    }
    // What runs now can only be compared while no change is under way.
    if core.ledger.next_stage() < ClusterTime::NEVER {
        return;
    }
    let plans = plans(core);
    for (job, seat) in core.matrix.seats() {
        let Some(residence) = core.residence(job) else { continue };
        let mut expected = BTreeSet::new();
        for (node, _) in seat.parts.iter() {
            for (&row, candidates) in &plans[node] {
                let (length, candidates) = (Nanos::ZERO, candidates.clone());
                let slots = [Slot { row, length, candidates }].into();
                let mut running = Vec::new();
                let present =
                    |job| core.residence(job).is_some_and(|other| other.present_on(*node));
                Timetable { slots, ..Timetable::default() }.running(0, present, &mut running);
                expected.extend(running.contains(&job).then_some(row));
            }
        }
        let runs: BTreeSet<RowId> = core.ledger.runs(job).iter().copied().collect();
        if runs != expected || (!runs.is_empty() && !residence.present()) {
            report(Rule::Accounts, format!("job {job} runs in {runs:?}, not {expected:?}"));
        }
    }
}

fn check_queue(core: &Core, report: &mut Report<'_>) {
    let queue = &core.queue;
    for (job, record) in core.jobs.iter() {
        let places = [&queue.waiting, &queue.parked, &queue.suspended];
        let count = places.iter().filter(|place| place.contains(&job)).count();
        let queued = matches!(record.phase, Phase::Queued { .. });
        if count != usize::from(queued)
            || queue.suspended.contains(&job) != (queued && record.suspended)
        {
            report(Rule::Queue, format!("job {job} is in {count} places of the queue"));
        }
    }
    let sum = queue.waiting.len() + queue.parked.len() + queue.suspended.len();
    if sum > core.jobs.len() {
        report(Rule::Queue, "somebody waits who is unknown".into());
    }
    if queue.waiting.is_empty() == queue.blocked.is_some() {
        report(Rule::Queue, format!("{:?} is the reason of {:?}", queue.blocked, queue.waiting));
    }
    if queue.discipline != Discipline::Conservative
        && let Some(first) = queue.waiting.first().and_then(|job| core.jobs.get(job))
        && let Some(Decision::Start { row, .. }) = core.policy().decide(core.machine(), &first.spec)
    {
        report(Rule::Queue, format!("job {} could start in row {row:?}", first.id));
    }
}

/// What was promised is kept: nobody who was let by moves it back.
fn check_reservations(core: &Core, report: &mut Report<'_>) {
    let queue = &core.queue;
    if let Some(promise) = queue.promise {
        if queue.waiting.first() != Some(&promise.job) || !queue.discipline.lets_by() {
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
        report(Rule::ByClass, format!("{bumper:?} is for nobody"));
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
        let class = core.jobs.get(&job).map(|record| &record.spec.class);
        if class != Some(&seat.class) {
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
        if core.ledger.runs(job).is_empty() {
            continue;
        }
        let reached = core.ledger.reaches(job, limit);
        if !residence.ending() && record.takes_turns() && next > reached {
            let what = format!("job {job} reaches its limit at {reached:?}, not {next:?}");
            report(Rule::Deadlines, what);
        }
    }
}
