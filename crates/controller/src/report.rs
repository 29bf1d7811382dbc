//! What tables and `--json` show, made from the core's views and what the controller keeps beside.

use super::agents::Gone;
use super::arrays::{Element, shortened};
use super::driver::Driver;
use super::jobs::{Ended, Entry};
use super::waits::Waits;
use std::collections::BTreeMap;
use tutti_core::{
    Core, InLine, JobState, JobView, NodeView, Overridden, Place, RowView, SwapCourse, SwapView,
};
use tutti_node::codes::code_of_end;
use tutti_types::class::RULES;
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::param::{Range, Shown};
use tutti_types::params::TABLE;
use tutti_types::{
    ClassName, ClassSpec, Classes, ClusterTime, FirstStep, JobId, Nanos, NetworkFigures, NodeId,
    Outcome, Overrides, Param, Params, Period, ResourceWish, default_classes,
};
use tutti_wire::branch::Joining;
use tutti_wire::launch::Usage;
use tutti_wire::local::Reply;
use tutti_wire::report::{
    AgentStatus, ClassReport, DeviceReport, JobReport, LinkReport, NetworkReport, NodeReport,
    ParamReport, PeriodReport, StatusReport,
};
use tutti_wire::tree::Fares;
use tutti_wire::units::format_bytes;
use tutti_wire::units::format_seconds;

/// The name of a user, or the number where there is no name.
pub(super) fn user_name(uid: u32) -> String {
    match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// How much a page of a list has at most, and how many bytes, about: one more item may be on it.
pub(super) const PAGE_ITEMS: usize = 1000;
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// A page of jobs by number, from this one on: those that have not ended and, if wanted, those that ended lately.
/// `usages`: what jobs that run have used, as far as that is known.
pub(super) fn jobs(
    driver: &Driver,
    ended: bool,
    from: JobId,
    usages: &BTreeMap<JobId, Usage>,
) -> Reply {
    let now = driver.now();
    let shown = live_jobs(driver, usages);
    let mut past: Vec<&Ended> = driver.ends.ended.iter().filter(|_| ended).collect();
    past.retain(|ended| ended.report.job >= from);
    past.sort_by_key(|ended| ended.report.job);
    let past = past.into_iter().map(|ended| {
        let age_s = now.since(ended.accepted).0 / SECOND;
        let mut report = JobReport { age_s, ..ended.report.clone() };
        // They say where elements are found, which tables don't show.
        if let Some(elements) = report.array.as_mut().and_then(|it| it.elements.as_mut()) {
            elements.numbers = Vec::new();
            elements.spec = shortened(std::mem::take(&mut elements.spec));
        }
        (ended.report.job, Some(report))
    });
    let live = driver.jobs.range(from..).map(|(&job, _)| (job, None));
    let lines = driver.arrays.range(from..).map(|(&array, _)| (array, None));
    let all = by_number(past, by_number(live, lines));
    page(all.filter_map(|(job, report)| {
        report.or_else(|| shown(job)).or_else(|| driver.array_report(job, &shown))
    }))
}

/// Reports on jobs that have not ended.
fn live_jobs<'a>(
    driver: &'a Driver,
    usages: &'a BTreeMap<JobId, Usage>,
) -> impl Fn(JobId) -> Option<JobReport> + 'a {
    let now = driver.now();
    let rows: Vec<RowView> = driver.core.rows().filter(|row| row.length.is_some()).collect();
    let expected = driver.core.expected(now);
    let waits = Waits::new(driver);
    move |job| {
        let (entry, view) = (driver.jobs.get(&job)?, driver.core.job(job, now)?);
        let ends = expected.get(&job).and_then(|expected| expected.ends);
        let ends_s = ends.map(|ends| ends.since(now).0.div_ceil(SECOND));
        let usage = usages.get(&job).copied();
        Some(JobReport { ends_s, usage, ..live_job((driver, &waits), &rows, &view, entry) })
    }
}

/// What no job has used.
static NO_USAGES: BTreeMap<JobId, Usage> = BTreeMap::new();

/// A job that has not ended.
pub(super) fn live(driver: &Driver, job: JobId) -> Option<JobReport> {
    let shown = live_jobs(driver, &NO_USAGES);
    shown(job).or_else(|| driver.array_report(job, &shown))
}

/// Jobs and arrays that have not ended, by number, from this one on.
pub(super) fn live_from(driver: &Driver, from: JobId) -> impl Iterator<Item = JobReport> + '_ {
    let shown = live_jobs(driver, &NO_USAGES);
    let live = driver.jobs.range(from..).map(|(&job, _)| (job, ()));
    let lines = driver.arrays.range(from..).map(|(&array, _)| (array, ()));
    by_number(live, lines)
        .filter_map(move |(job, ())| shown(job).or_else(|| driver.array_report(job, &shown)))
}

/// As many as are on one page, of jobs by number.
pub(super) fn page(reports: impl Iterator<Item = JobReport>) -> Reply {
    let (jobs, left_out) = first_page(reports, bytes_of);
    Reply::Jobs { jobs, next: left_out.map(|report| report.job) }
}

/// The items on the first page of a list, and the first that is not on it. An item that is longer
/// than a page has one to itself.
pub(super) fn first_page<T>(
    items: impl Iterator<Item = T>,
    bytes_of: impl Fn(&T) -> usize,
) -> (Vec<T>, Option<T>) {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += bytes_of(&item);
        if page.len() >= PAGE_ITEMS || (bytes > PAGE_BYTES && !page.is_empty()) {
            return (page, Some(item));
        }
        page.push(item);
    }
    (page, None)
}

/// What it takes to send it, about.
fn bytes_of(report: &JobReport) -> usize {
    let lists = report.placement.iter().chain(&report.suspended).chain(&report.resources);
    let texts = [&report.name, &report.user, &report.reason, &report.detail];
    let elements = report.array.as_ref().and_then(|array| array.elements.as_ref());
    let indices =
        elements.map_or(0, |it| it.spec.len() + it.waiting.as_ref().map_or(0, String::len));
    size_of::<JobReport>() + indices + lists.chain(texts).map(|text| text.len() + 1).sum::<usize>()
}

/// What both have, by number.
fn by_number<T>(
    one: impl Iterator<Item = (JobId, T)>,
    other: impl Iterator<Item = (JobId, T)>,
) -> impl Iterator<Item = (JobId, T)> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some((first, _)), Some((second, _))) if second < first => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

fn live_job(
    (driver, waits): (&Driver, &Waits<'_>),
    rows: &[RowView],
    view: &JobView,
    entry: &Entry,
) -> JobReport {
    let length = |row: &RowView| u128::from(row.length.unwrap_or(Nanos::ZERO).0);
    let row = view.row.and_then(|id| rows.iter().position(|row| row.id == id));
    let frame: u128 = rows.iter().map(length).sum();
    let running = matches!(view.state, JobState::Running { .. })
        && !view.suspended
        && !driver.core.lends_all(view.id)
        && view.place == Place::Home;
    let share_percent = row.filter(|_| running && frame > 0).map(|row| {
        let share = length(&rows[row]) * 100 / frame;
        u32::try_from(share).unwrap_or(100)
    });
    let queued = matches!(view.state, JobState::Queued { .. });
    let place = waits.place(view.id).filter(|_| queued);
    let reason = reason_of(driver, waits, view, place);
    let now = driver.now();
    JobReport {
        job: view.id,
        name: entry.terms.name().to_owned(),
        user: entry.owner.user.clone(),
        class: view.spec.class.to_string(),
        former_class: view.former_class.map(ToString::to_string),
        state: state_word(view).into(),
        reason,
        code: None,
        detail: driver.detail_with_waiting_ranks(view.id, entry),
        suspended: entry.run.suspended().iter().map(ToString::to_string).collect(),
        tasks: entry.terms.tasks,
        processors: entry.terms.processors(),
        placement: view
            .placements
            .iter()
            // Others may have what ended tasks left.
            .filter(|placed| !placed.processors.is_empty())
            .map(|placed| format!("{}:{}", driver.node_name(placed.node), placed.processors))
            .collect(),
        row: row.and_then(|row| u32::try_from(row + 1).ok()),
        rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        share_percent,
        age_s: entry.times.age(now).0 / SECOND,
        service_ms: view.service.0 / MS,
        waited_ms: entry.times.waited(now).0 / MS,
        suspended_ms: suspended(entry, view.service, now).0 / MS,
        usage: None,
        deadline_s: view.deadline.map(|deadline| seconds_until(deadline, now)),
        at_risk_s: view.at_risk.map(|since| now.since(since).0 / SECOND),
        ends_s: None,
        cpu_ms: None,
        exit_code: None,
        submitted: entry.terms.is_submitted(),
        time_limit_ms: entry.terms.time_limit.map(|limit| limit.0 / MS),
        time_left_ms: left_ms(entry, view.service),
        queue: view.queue.map(ToString::to_string),
        resources: resources(driver, view),
        position: place.map(|place| place.position),
        behind: place.and_then(|place| place.before),
        first: Some(first_word(entry.terms.first).into()),
        slots: Some(entry.terms.slots),
        nodes_asked: view.spec.nodes.count,
        wait: match &view.state {
            JobState::Queued { why, .. } => Some(why.word().into()),
            JobState::Running { .. } | JobState::Ending { .. } => None,
        },
        swapped_bytes: view.swap.map(|swap| swap.left_bytes),
        lent_processors: Some(view.lent).filter(|&lent| lent > 0),
        array: entry.terms.element().map(Element::report),
    }
}

/// Why a job waits, or does not run though it has begun.
fn reason_of(driver: &Driver, waits: &Waits<'_>, view: &JobView, place: Option<InLine>) -> String {
    match view.state {
        JobState::Queued { ref why, .. } => {
            let why = waits.say_in_line((view.id, view.spec, view.queue), why, place);
            with_broken_promise(driver, view, why)
        }
        JobState::Running { .. } => {
            let why = view.why_aside.map(|why| why.to_string());
            let why = why.or_else(|| lacks_share(&driver.core, view).then(|| NO_SHARE.into()));
            let swap = view.swap.as_ref().map(swap_words);
            let lent = (view.lent > 0).then(|| lent_words(view.lent));
            why.into_iter().chain(swap).chain(lent).collect::<Vec<_>>().join("; ")
        }
        JobState::Ending { .. } => String::new(),
    }
}

pub(super) const NO_SHARE: &str = "its class has no share, and classes that have one together have all of the time (`tutti params`)";

/// Whether a job is at home in a row that has no slot, since classes with shares have all of the
/// time and its own has none.
pub(super) fn lacks_share(core: &Core, view: &JobView) -> bool {
    let classes = core.classes();
    let waits = view.place == Place::Home && !view.suspended && view.lent == 0;
    let has_slot = view.row.is_none_or(|row| core.frame().length_of(row).is_some());
    let share = |class| classes.get(class).map_or(0, ClassSpec::share);
    waits
        && !has_slot
        && share(&view.spec.class) == 0
        && classes.values().map(ClassSpec::share).sum::<u32>() >= SHARE_WHOLE
}

/// What a job has of its resources, or asks for.
fn resources(driver: &Driver, view: &JobView) -> Vec<String> {
    let shown = |wish: &ResourceWish| {
        let has: Vec<String> = match wish.devices() {
            Some(_) => {
                let nodes: Vec<NodeId> = view.placements.iter().map(|it| it.node).collect();
                driver.devices_shown(view.id, &nodes, wish.name)
            }
            None => {
                let grants = view.resources.iter().filter(|grant| grant.name == wish.name);
                grants.map(ToString::to_string).collect()
            }
        };
        if has.is_empty() { vec![wish.to_string()] } else { has }
    };
    view.spec.resources.iter().flat_map(shown).collect()
}

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// How long a job that was given so much time was resident without having it.
fn suspended(entry: &Entry, service: Nanos, now: ClusterTime) -> Nanos {
    Nanos(entry.times.resident(now).0.saturating_sub(service.0))
}

/// What a job that was given so much time has left of its time limit, in milliseconds.
fn left_ms(entry: &Entry, service: Nanos) -> Option<u64> {
    entry.terms.time_limit.map(|limit| limit.0.saturating_sub(service.0) / MS)
}

/// Whole seconds until a moment, negative when it has passed.
fn seconds_until(moment: ClusterTime, now: ClusterTime) -> i64 {
    let ahead = moment.since(now).0 / SECOND;
    let ago = now.since(moment).0.div_ceil(SECOND);
    i64::try_from(ahead).unwrap_or(i64::MAX) - i64::try_from(ago).unwrap_or(i64::MAX)
}

/// The state of a job that has not ended.
pub(super) const fn state_word(view: &JobView<'_>) -> &'static str {
    match view.state {
        JobState::Queued { .. } if view.is_saved => "checkpointed",
        JobState::Queued { .. } => "queued",
        JobState::Running { .. } if view.is_saving => "checkpointing",
        JobState::Running { .. } if is_swapped(view) => "swapped",
        JobState::Running { .. } if comes_back(view) => "resuming",
        JobState::Running { .. } if view.suspended => "suspended",
        JobState::Running { .. } => place_word(view.place),
        JobState::Ending { .. } => "ending",
    }
}

/// Whether all has left of a job's memory that is to leave, and some has.
const fn is_swapped(view: &JobView<'_>) -> bool {
    match view.swap {
        Some(swap) => {
            matches!(swap.course, SwapCourse::Out) && !swap.is_under_way && swap.left_bytes > 0
        }
        None => false,
    }
}

/// Whether a job is to run again once its memory is back.
pub(super) const fn comes_back(view: &JobView<'_>) -> bool {
    match view.swap {
        Some(swap) => !matches!(swap.course, SwapCourse::Out),
        None => false,
    }
}

/// What a job lends of its processors.
fn lent_words(processors: u64) -> String {
    let its = if processors == 1 { "processor" } else { "processors" };
    format!("lends {processors} idle {its} to other jobs until a step starts")
}

/// Where the memory of a job is that has left, or comes back.
fn swap_words(swap: &SwapView) -> String {
    match swap.course {
        SwapCourse::Wanted => {
            "its memory was swapped out, and too little is free for it now".into()
        }
        SwapCourse::In => "its memory is being swapped in".into(),
        SwapCourse::Out if swap.is_under_way => "its memory is being swapped out".into(),
        SwapCourse::Out if swap.left_bytes > 0 => {
            format!("{} of its memory are swapped out", format_bytes(swap.left_bytes))
        }
        SwapCourse::Out => "none of its memory could be swapped out".into(),
    }
}

const fn place_word(place: Place) -> &'static str {
    match place {
        Place::Home => "running",
        Place::Leaving => "preempting",
        Place::Aside => "preempted",
        Place::Coming => "resuming",
    }
}

/// A job that has just ended; how old it is depends on when it is shown.
pub(super) fn ended_job(
    job: JobId,
    entry: &Entry,
    outcome: Outcome,
    reason: String,
    now: ClusterTime,
) -> JobReport {
    JobReport {
        job,
        name: entry.terms.name().to_owned(),
        user: entry.owner.user.clone(),
        class: entry.terms.class.clone(),
        former_class: None,
        state: "ended".into(),
        reason,
        code: code_of_end(outcome, entry.run.statuses()),
        detail: entry.detail_of_end(outcome),
        suspended: Vec::new(),
        tasks: entry.terms.tasks,
        processors: entry.terms.processors(),
        placement: Vec::new(),
        row: None,
        rows: 0,
        share_percent: None,
        age_s: 0,
        service_ms: outcome.service.0 / MS,
        waited_ms: entry.times.waited(now).0 / MS,
        suspended_ms: suspended(entry, outcome.service, now).0 / MS,
        usage: Some(entry.usage),
        deadline_s: None,
        at_risk_s: None,
        ends_s: None,
        cpu_ms: Some((entry.usage.user_us + entry.usage.system_us) / 1000),
        exit_code: Some(outcome.exit_code),
        submitted: entry.terms.is_submitted(),
        time_limit_ms: entry.terms.time_limit.map(|limit| limit.0 / MS),
        time_left_ms: left_ms(entry, outcome.service),
        queue: entry.terms.queue.clone(),
        resources: Vec::new(),
        position: None,
        behind: None,
        swapped_bytes: None,
        lent_processors: None,
        first: Some(first_word(entry.terms.first).into()),
        slots: Some(entry.terms.slots),
        nodes_asked: entry.shown.asked_nodes(),
        wait: None,
        array: entry.terms.element().map(Element::report),
    }
}

/// What a job starts with, in a word.
pub(super) const fn first_word(first: FirstStep) -> &'static str {
    match first {
        FirstStep::EachSlot | FirstStep::Tasks(_) => "tasks",
        FirstStep::Once => "batch",
    }
}

/// Why an accepted job is not being started; empty if it is.
pub(super) fn why_it_waits(driver: &Driver, job: JobId) -> String {
    let Some(view) = driver.core.job(job, driver.now()) else { return String::new() };
    match view.state {
        JobState::Queued { ref why, .. } => {
            let why = Waits::new(driver).say((job, view.spec, view.queue), why);
            with_broken_promise(driver, &view, why)
        }
        JobState::Running { .. } | JobState::Ending { .. } => String::new(),
    }
}

/// Why a job waits, and whether an administrator broke what it was promised.
fn with_broken_promise(driver: &Driver, view: &JobView<'_>, why: String) -> String {
    let Some(Overridden { at, by }) = view.overridden else { return why };
    let promised = match at.since(driver.now()).0.div_ceil(SECOND) {
        0 => "by now".to_owned(),
        seconds => format!("within {}", format_seconds(seconds)),
    };
    format!(
        "{why}; its promised start ({promised}) fell to job {by}, which an administrator moved or let run \
         longer"
    )
}

fn sets_of(driver: &Driver, node: NodeId) -> Vec<String> {
    let sets = driver.core.node_sets().iter().filter(|(_, nodes)| nodes.contains(&node));
    sets.map(|(name, _)| name.to_string()).collect()
}

/// Whether a node was taken down. A controller that takes over does not know it of those that were before.
fn is_down(driver: &Driver, node: NodeId) -> bool {
    driver.cluster.nodes.get(&node).is_some_and(|entry| entry.absence.gone == Gone::Down)
}

/// Where in the control tree a node is, while its agent is there.
fn place_of(driver: &Driver, node: NodeId) -> Option<&Joining> {
    let entry = driver.cluster.nodes.get(&node).filter(|entry| entry.agent.is_some())?;
    Some(&entry.place)
}

/// A page of the nodes, which begins with `from`.
pub(super) fn nodes(driver: &Driver, fares: &BTreeMap<NodeId, Fares>, from: NodeId) -> Reply {
    let nodes = driver.core.nodes().filter(|view| view.id >= from);
    let reports = nodes.map(|view| (view.id, node(driver, fares, &view)));
    let (page, left_out) = first_page(reports, |(_, report)| {
        let files = report.devices.iter().flat_map(|it| it.files.iter().chain([&it.device]));
        let texts = report.sets.iter().chain([&report.name]).chain(files);
        size_of::<DeviceReport>() * report.devices.len()
            + size_of::<NodeReport>()
            + texts.map(|text| text.len() + 1).sum::<usize>()
    });
    let nodes = page.into_iter().map(|(_, report)| report).collect();
    Reply::Nodes { nodes, next: left_out.map(|(node, _)| node) }
}

fn node(driver: &Driver, fares: &BTreeMap<NodeId, Fares>, view: &NodeView<'_>) -> NodeReport {
    NodeReport {
        name: view.spec.name.clone(),
        state: match (view.up, view.drained) {
            (true, _) if view.away => "unreachable",
            (true, None) => "up",
            (true, Some(_)) => "drained",
            (false, _) if is_down(driver, view.id) => "down",
            (false, _) => "lost",
        }
        .into(),
        drained: view.drained.map(Into::into),
        sets: sets_of(driver, view.id),
        features: driver.core.node_features(view.id).map(ToString::to_string).collect(),
        parent: place_of(driver, view.id).map(|place| place.parent.clone()),
        depth: place_of(driver, view.id).map(|place| place.depth),
        clock_error_ns: place_of(driver, view.id).map(|place| place.time_error.0),
        clock_ahead_ns: fares.get(&view.id).map(|fares| fares.clock_ahead_ns),
        late_timetables: fares.get(&view.id).map(|fares| fares.late_timetables),
        processors: view.spec.processors.count(),
        processors_used: view.used.count(),
        memory_bytes: view.spec.memory_bytes,
        memory_allocated_bytes: view.admitted_bytes,
        jobs: u32::try_from(view.jobs.len()).unwrap_or(u32::MAX),
        figures: view.figures,
        network: network_of(driver, view.id),
        load_averages_milli: fares.get(&view.id).and_then(|fares| fares.load_averages_milli),
        memory_free_bytes: fares.get(&view.id).and_then(|fares| fares.memory_free_bytes),
        processes: fares.get(&view.id).map(|fares| fares.processes),
        external_load: driver
            .core
            .foreign_on(view.id)
            .map_or_else(Vec::new, |foreign| foreign.iter().collect()),
        external_load_milli: fares.get(&view.id).and_then(|fares| fares.foreign_milli),
        branch_nodes: fares.get(&view.id).map(|fares| fares.branch_nodes),
        branch_jobs: fares.get(&view.id).map(|fares| fares.branch_jobs),
        devices: driver.device_reports(view.id),
        swap: fares.get(&view.id).map(|fares| fares.swap),
    }
}

/// What the network of a node was measured to do.
fn network_of(driver: &Driver, node: NodeId) -> Option<NetworkReport> {
    let network = driver.core.network();
    let NetworkFigures { bandwidth_mb_s, latency_us } = network.of(node)?;
    let link = network.link_of(node).map(|(to, figures)| LinkReport {
        to: driver.node_name(to),
        bandwidth_mb_s: figures.bandwidth_mb_s,
        latency_us: figures.latency_us,
    });
    Some(NetworkReport { bandwidth_mb_s, latency_us, link })
}

/// The parameters and the classes, as they are now.
pub(super) fn params(driver: &Driver) -> Reply {
    let core = &driver.core;
    let in_force = (core.params(), core.classes(), &core.settings().periods[..]);
    let state = (&*driver.outsider.words(), driver.outsider.on_nodes.count());
    params_of(in_force, core.week(driver.now()), core, state)
}

/// The same of an instance that does not run: as they are set, and no period holds.
pub(super) fn settings(core: &Core) -> Reply {
    let settings = core.settings();
    let set = (&settings.params, &settings.classes, &settings.periods[..]);
    params_of(set, None, core, ("does not run", 0))
}

fn params_of(
    (params, classes, periods): (&Params, &Classes, &[(Period, Overrides)]),
    week: Option<Nanos>,
    core: &Core,
    (state, parts): (&str, usize),
) -> Reply {
    let params = params.iter();
    let params = params.map(|(param, value)| param_report(param, value, param.default));
    let params = params.chain(program_reports(core, state, parts)).collect();
    let known = default_classes();
    let class = |(name, spec): (&ClassName, &ClassSpec)| {
        let usual = known.get(name).copied().unwrap_or_default();
        let rules = spec.iter().zip(usual.iter());
        let rules = rules.map(|((rule, value), (_, usual))| param_report(rule, value, usual));
        let users = ParamReport {
            name: "users".into(),
            value: super::site::allowed_text(core.class_users(name)),
            default: "all".into(),
            range: "users and groups, such as ada,@staff, or all".into(),
            help: "The users and groups that may use the class.".into(),
        };
        let after = ParamReport {
            name: "after".into(),
            value: super::site::after_text(core.rules_by_use().get(name)),
            default: "none".into(),
            range: "processor time and a class, such as 10m:production, or none".into(),
            help: "The class that a job gets once it has used so much processor time.".into(),
        };
        ClassReport { name: name.to_string(), rules: rules.chain([users, after]).collect() }
    };
    let classes = classes.iter().map(class).collect();
    let period = |&(period, ref overrides): &(Period, Overrides)| PeriodReport {
        period: period.to_string(),
        now: week.is_some_and(|week| period.holds(week)),
        settings: otherwise(overrides),
    };
    let periods = periods.iter().map(period).collect();
    Reply::Params { params, classes, periods }
}

/// The program of the site's own policy, as parameters.
fn program_reports(core: &Core, state: &str, parts: usize) -> [ParamReport; 3] {
    let program = core.policy_program();
    let user = program.and_then(|program| program.user.clone());
    let node = program.and_then(|program| program.node.clone());
    [
        ParamReport {
            name: "policy_program".into(),
            value: program.map_or_else(|| "none".into(), |program| program.path.clone()),
            default: "none".into(),
            range: "an absolute path, or none".into(),
            help: format!("The program that decides under policy=external; now it {state}."),
        },
        ParamReport {
            name: "policy_user".into(),
            value: user.unwrap_or_else(|| "default".into()),
            default: "default".into(),
            range: "a user, or default".into(),
            help: "The user that the policy program runs as: by default one without \
                   privileges for root's controller, else the owner of the instance."
                .into(),
        },
        ParamReport {
            name: "policy_node".into(),
            value: node.unwrap_or_else(|| "none".into()),
            default: "none".into(),
            range: "an absolute path, or none".into(),
            help: format!("The part of the policy program on each node; now {parts} answer."),
        },
    ]
}

/// What is otherwise in a period, as it is set.
fn otherwise(overrides: &Overrides) -> Vec<String> {
    let set = |table: &'static [Param], values: &BTreeMap<String, u64>| -> Vec<String> {
        let shown = |param: &'static Param| {
            let value = *values.get(param.name)?;
            Some(format!("{}={}", param.name, Shown(param, value)))
        };
        table.iter().filter_map(shown).collect()
    };
    let mut all = set(TABLE, &overrides.params);
    for (class, rules) in &overrides.classes {
        all.extend(set(RULES, rules).into_iter().map(|rule| format!("{class} {rule}")));
    }
    all
}

fn param_report(param: &'static Param, value: u64, default: u64) -> ParamReport {
    ParamReport {
        name: param.name.into(),
        value: Shown(param, value).to_string(),
        default: Shown(param, default).to_string(),
        range: Range(param).to_string(),
        help: param.help.into(),
    }
}

/// How the instance fares.
pub(super) fn status(driver: &Driver, agents: Vec<AgentStatus>) -> StatusReport {
    let mut status = StatusReport {
        version: env!("CARGO_PKG_VERSION").into(),
        directory: driver.instance.directory().display().to_string(),
        pid: std::process::id().cast_signed(),
        private: driver.instance.private,
        uptime_s: driver.now().since(driver.clock.started).0 / 1_000_000_000,
        rows: u32::try_from(driver.core.rows().count()).unwrap_or(u32::MAX),
        agents,
        clocks: driver.clocks(),
        ..StatusReport::default()
    };
    for view in driver.core.jobs(driver.now()) {
        match view.state {
            JobState::Queued { .. } => status.queued += 1,
            JobState::Running { .. } | JobState::Ending { .. } => status.resident += 1,
        }
    }
    for view in driver.core.arrays() {
        status.queued = status.queued.saturating_add(view.unmade());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_before_what_would_make_it_too_long_unless_that_is_longer_alone() {
        let sizes = [PAGE_BYTES / 2, PAGE_BYTES / 2, 1, 3 * PAGE_BYTES, 1];
        let page = |from: usize| first_page(sizes[from..].iter().copied(), |size| *size);
        assert_eq!(page(0), (sizes[..2].to_vec(), Some(1)));
        assert_eq!(page(2), (vec![1], Some(3 * PAGE_BYTES)));
        assert_eq!(page(3), (vec![3 * PAGE_BYTES], Some(1)));
        let many = first_page(0..2 * PAGE_ITEMS, |_| 1);
        assert_eq!((many.0.len(), many.1), (PAGE_ITEMS, Some(PAGE_ITEMS)));
    }
}
