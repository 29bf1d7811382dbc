//! One simulation: what was asked becomes settings, and what came out becomes a report.

use super::files::Files;
use super::making::{Shared, Wanted};
use super::mapping;
use super::nodes::Nodes;
use super::options::{Options, Order, Outputs};
use super::pictures::{Plots, Seen};
use super::program::{SimulatedPolicy, is_program, part_of};
use super::progress::Progress;
use super::settings::Scheduler;
use super::source::Origin;
use crate::timed::changes;
use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use std::collections::VecDeque;
use tutti_sim::{
    Checks, Fairness, Feedback, Host, Machine, MapRule, MapTo, Measure, MoveCost, Observer,
    Outside, Results, Settings, SimError, Summary, SwapSpace, Workload, parse_hosts, run_with,
};
use tutti_trace::Stretch;
use tutti_types::{ClassName, ClusterTime, QueueName, QueueSpec};

/// A simulation that can be run.
pub(super) struct Setup<'a> {
    origin: &'a Origin,
    policy: String,
    machine: Machine,
    stretch: Option<Stretch>,
    settings: Settings,
}

/// What came out of a simulation: what `--json` shows of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The trace or model.
    pub(super) workload: String,
    /// The policy, with its own settings.
    pub(super) policy: String,
    pub(super) nodes: u32,
    /// Of the widest node.
    pub(super) processors_per_node: u32,
    /// Of all nodes.
    pub(super) processors: u32,
    /// Jobs that were handed in.
    pub(super) submitted: u64,
    /// Those of them that had not ended at the horizon.
    pub(super) left: u64,
    /// Those of them that a limit kept out for good.
    pub(super) not_run: u64,
    /// Those that ended, and all that follows is about them.
    pub(super) jobs: u64,
    pub(super) wait_s: Measure,
    pub(super) response_s: Measure,
    pub(super) slowdown: Measure,
    /// From 0 to 1.
    pub(super) utilisation: f64,
    /// The same week by week; the last one may be cut short.
    pub(super) utilisation_by_week: Vec<f64>,
    /// From 0 to 1.
    pub(super) loss_of_capacity: f64,
    /// From 0 to 1: what switches cost of the machine's time.
    pub(super) switching: f64,
    pub(super) makespan_s: f64,
    /// How often the machine went from one slot to the next.
    pub(super) switches: u64,
    /// How often a job's turn was over before it was done.
    pub(super) preemptions: u64,
    /// Jobs that were ended at their time limit.
    pub(super) at_limit: u64,
    /// How alike users fare; nothing if no job tells its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fairness: Option<Fairness>,
    /// What became of jobs with a deadline; nothing if they had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadlines: Option<Deadlines>,
    pub(super) groups: Vec<Results>,
    /// What was not simulated, and why.
    pub(super) passed_over: Vec<String>,
}

/// What became of jobs with a deadline.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Deadlines {
    /// Declined, since it was not certain that they would be done in time.
    pub(super) declined: u64,
    /// Done by then.
    pub(super) in_time: u64,
    /// Done later.
    pub(super) late: u64,
}

impl<'a> Setup<'a> {
    /// What is to be simulated, of which the workload may have to be read once to know its load.
    ///
    /// # Errors
    /// If a policy or parameter is wrong, or the machine's size not known.
    pub(super) fn new(origin: &'a Origin, policy: &str, options: &Options) -> anyhow::Result<Self> {
        let hosts = hosts(options)?;
        let machine = match hosts.is_empty() {
            true => origin.machine(options)?,
            false => Machine::of_hosts(&hosts)?,
        };
        let nodes = Nodes::of(machine, &hosts);
        let check = |list: &str| nodes.named(list).map(drop);
        let scheduler = Scheduler::of(policy, options, &check)?;
        let needs_calendar = scheduler.has_hours() || options.feedback_hours.is_some();
        let calendar = match needs_calendar {
            false => Vec::new(),
            true => origin.calendar(options)?,
        };
        let site = site(&scheduler, &nodes)?;
        let bank = scheduler.site.allowances().collect();
        let named = |list: &str| nodes.named(list);
        let timed =
            changes(&options.at, (&scheduler.site.settings, &named), || origin.beginning(options))?;
        let tutti_types::Settings { params, classes: class_rules, periods } =
            scheduler.site.settings;
        let settings = Settings {
            machine,
            hosts,
            weights: options.weights,
            bags: options.bag,
            params,
            classes: class_rules.keys().cloned().collect(),
            class_rules,
            periods,
            calendar,
            timed,
            bank,
            site,
            order: match options.order {
                Order::SubmitFirst => tutti_sim::Order::SubmitFirst,
                Order::EndFirst => tutti_sim::Order::EndFirst,
                Order::OneByOne => tutti_sim::Order::OneByOne,
            },
            switch_cost: options.switch_cost,
            move_cost: MoveCost {
                per_job: options.move_cost,
                per_processor: options.move_cost_each,
            },
            swap: swap(options),
            movable: options.movable,
            progress: match options.exact_slices {
                true => tutti_sim::Progress::BySlot,
                false => tutti_sim::Progress::ByEvent,
            },
            feedback: options.feedback.then_some(Feedback {
                hours: options.feedback_hours,
                lets_alone: options.lenient || options.clean,
            }),
            horizon: None,
            skips_declined: options.lenient,
            checks: match options.check {
                true => Checks::EachEvent,
                false => Checks::Never,
            },
        };
        if settings.switch_cost >= settings.params.quantum() {
            bail!(
                "a switch that costs {} leaves nothing of a quantum of {}; set a longer one with \
                 --set quantum=TIME",
                settings.switch_cost,
                settings.params.quantum()
            );
        }
        let stretch = origin.stretch(options, machine)?;
        Ok(Self { origin, policy: policy.to_owned(), machine, stretch, settings })
    }
}

impl Setup<'_> {
    /// How many processors there are.
    pub(super) const fn processors(&self) -> u32 {
        self.machine.processors()
    }

    /// The index of a class of that name.
    pub(super) fn class(&self, name: &str) -> Option<usize> {
        self.settings.classes.iter().position(|class| *class.0 == *name)
    }
}

/// Swap space of each node.
fn swap(options: &Options) -> Option<SwapSpace> {
    let bytes_per_second = options.swap_rate;
    options.swap_space.map(|bytes| SwapSpace { bytes, bytes_per_second })
}

/// What a site sets besides parameters and classes, by the indices of its classes.
fn site(scheduler: &Scheduler, nodes: &Nodes) -> anyhow::Result<tutti_sim::Site> {
    let Scheduler { site, weights, resources, uses, .. } = scheduler;
    let index = |name: &ClassName| {
        let place = site.settings.classes.keys().position(|class| class == name);
        place.and_then(|place| u16::try_from(place).ok())
    };
    let queue = |(name, spec): (&QueueName, &QueueSpec)| {
        let nodes = spec.nodes.as_ref().map(|list| nodes.named(list));
        let nodes = nodes.transpose().map_err(|reason| anyhow!("queue {name}: {reason}"))?;
        Ok(tutti_sim::SiteQueue { name: name.clone(), spec: spec.clone(), nodes })
    };
    let class_users = site.class_users.iter();
    let class_users = class_users.filter_map(|(class, all)| Some((index(class)?, all.clone())));
    let uses = uses.iter().map(|(class, wish)| match class {
        None => Ok((None, *wish)),
        Some(class) => match index(class) {
            Some(index) => Ok((Some(index), *wish)),
            None => Err(anyhow!("there is no class {class} (--job-resource)")),
        },
    });
    Ok(tutti_sim::Site {
        queues: site.queues.iter().map(queue).collect::<anyhow::Result<_>>()?,
        class_users: class_users.collect(),
        class_after: site.class_after.clone().into_iter().collect(),
        weights: weights.clone(),
        resources: resources.clone(),
        uses: uses.collect::<anyhow::Result<_>>()?,
    })
}

/// The nodes, if a file describes them.
fn hosts(options: &Options) -> anyhow::Result<Vec<Host>> {
    let Some(path) = &options.hosts else { return Ok(Vec::new()) };
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parse_hosts(&text).with_context(|| format!("{name} does not describe a machine"))
}

/// Has classes count as others, as in `standby=production`.
fn counting(
    workload: Workload,
    settings: &[String],
    classes: &[ClassName],
) -> anyhow::Result<Workload> {
    let index = |name: &str| {
        let index = classes.iter().position(|class| *class.0 == *name);
        index
            .and_then(|it| u16::try_from(it).ok())
            .ok_or_else(|| anyhow!("there is no class {name}"))
    };
    settings.iter().try_fold(workload, |workload, setting| {
        let Some((class, other)) = setting.split_once('=') else {
            bail!(
                "{setting:?} has to name two classes; write CLASS=CLASS, such as standby=production"
            );
        };
        Ok(workload.counting(index(class)?, index(other)?))
    })
}

/// Runs a simulation; `also` looks on.
///
/// # Errors
/// If the workload is wrong, or a file can't be written.
pub(super) fn simulate(
    setup: Setup<'_>,
    options: &Options,
    (outputs, plots): (&Outputs, &Plots),
    also: &mut impl Observer,
) -> anyhow::Result<(Report, Seen)> {
    let Setup { origin, policy, machine, stretch, mut settings } = setup;
    let count = origin.jobs(options);
    let progress = Progress::of(origin, count, &policy);
    let source = origin.open(options, &progress, machine.processors())?;
    let workload = Workload::new(&source.header, options.estimates, &settings.classes)
        .with_deadlines(options.deadlines.unwrap_or_default());
    let queues: Vec<QueueName> = settings.site.queues.iter().map(|it| it.name.clone()).collect();
    let rules = mapping::rules(&options.maps, &source.header, &settings.classes, &queues)?;
    let (words, mut rules): (Vec<usize>, Vec<MapRule>) = rules.into_iter().unzip();
    // A job that names no queue is in the default one.
    let default = (0..).zip(&settings.site.queues).find(|(_, queue)| queue.spec.default);
    rules.extend(default.map(|(index, _)| MapRule { from: None, to: MapTo::Queue(index) }));
    let specs = settings.site.queues.iter().map(|queue| &queue.spec);
    let workload = workload.mapped(rules, specs, &settings.classes);
    let fitted = workload.fitted();
    let workload = counting(workload, &options.as_class, &settings.classes)?;
    let records = outputs.swf.is_some().then(Shared::<VecDeque<_>>::default);
    let mut files = Files::create(outputs, &source.header, &policy, records.clone())?;
    let wanted = Wanted { machine, stretch, jobs: count, records };
    let jobs = source.jobs(options, wanted, workload, &progress)?;
    let passed_over = jobs.passed_over();
    let mut jobs = jobs.peekable();
    if let Some(horizon) = options.horizon {
        let first = match jobs.peek() {
            Some(Ok(job)) => job.submit,
            Some(Err(_)) | None => ClusterTime::default(),
        };
        settings.horizon = Some(first + horizon);
    }
    let mut summary = Summary::new(machine.processors(), options.by.map(|by| by.group_by()));
    let mut seen = plots.watch(machine);
    let mut observer = ((&mut summary, also), (files.observer(), seen.observer()));
    let name = policy.split(',').next().unwrap_or_default();
    let part = policy.split(',').find_map(part_of);
    let mut program = is_program(name).then(|| SimulatedPolicy::new(name, part)).transpose()?;
    let outside = program.as_mut().map(|program| program as &mut dyn Outside);
    let outcome = run_with(&settings, jobs, &mut observer, outside);
    drop(observer);
    progress.finish();
    outcome.map_err(|error| told(error, origin))?;
    files.finish(&settings.hosts)?;
    let mut passed_over = passed_over.borrow().lines();
    let unfitted = mapping::unfitted(&options.maps, &words, &fitted);
    passed_over.extend(unfitted.iter().map(|word| format!("--map {word}: no job fits it")));
    seen.finish(&summary);
    let mut report = report((origin.name(), policy), &settings, &summary, passed_over);
    report.deadlines = options.deadlines.map(|_| {
        let (in_time, late) = summary.in_time_and_late();
        Deadlines { declined: summary.declined(), in_time, late }
    });
    Ok((report, seen))
}

/// What went wrong, with the name of the workload where the simulator does not know it.
fn told(error: SimError<anyhow::Error>, origin: &Origin) -> anyhow::Error {
    match error {
        SimError::Workload(error) => error,
        SimError::Output(error) => anyhow::Error::new(error).context("cannot write the results"),
        error @ SimError::Preceding { .. } => anyhow!(
            "{}: {error}, or have such jobs come at their own submit times with --lenient",
            origin.name()
        ),
        error => anyhow!("{}: {error}", origin.name()),
    }
}

fn report(
    (workload, policy): (String, String),
    settings: &Settings,
    summary: &Summary,
    mut passed_over: Vec<String>,
) -> Report {
    let classes: Vec<String> =
        settings.classes.iter().map(|ClassName(name)| name.to_string()).collect();
    let Results { jobs, wait_s, response_s, slowdown, preemptions, at_limit, .. } =
        summary.results();
    if summary.declined() > 0 {
        passed_over.push(format!("{} skipped: declined", summary.declined()));
    }
    for (why, count) in summary.not_run() {
        passed_over.push(format!("{count} not run: {why}"));
    }
    let not_run = summary.not_run().values().sum();
    if summary.let_alone() > 0 {
        let alone = summary.let_alone();
        passed_over.push(format!("{alone} not held back: the job before them is not simulated"));
    }
    Report {
        workload,
        policy,
        nodes: settings.machine.nodes(),
        processors_per_node: settings.machine.processors_per_node(),
        processors: settings.machine.processors(),
        submitted: summary.submitted(),
        left: summary.left() - not_run,
        not_run,
        jobs,
        wait_s,
        response_s,
        slowdown,
        utilisation: summary.utilisation(),
        utilisation_by_week: summary.utilisation_by_week(),
        loss_of_capacity: summary.loss_of_capacity(),
        switching: summary.switching(),
        makespan_s: summary.makespan_s(),
        switches: summary.switches(),
        preemptions,
        at_limit,
        fairness: summary.fairness(),
        deadlines: None,
        groups: summary.groups(&classes),
        passed_over,
    }
}
