//! One simulation: what was asked becomes settings, and what came out becomes a report.

use super::files::Files;
use super::options::{Options, Order, Outputs};
use super::pictures::{Plots, Seen};
use super::progress::Progress;
use super::source::{Origin, Wanted};
use crate::parameter::{set_param, set_rule};
use anyhow::{anyhow, bail};
use serde::Serialize;
use std::collections::VecDeque;
use tutti_core::{ClassName, Classes, ClusterTime, Params, default_classes};
use tutti_sim::{Machine, Measure, MoveCost, Results, Settings, SimError, Summary, Workload, run};
use tutti_trace::Stretch;

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
    pub(super) processors_per_node: u32,
    /// Jobs that were handed in.
    pub(super) submitted: u64,
    /// Those of them that had not ended at the horizon.
    pub(super) left: u64,
    /// Those that ended, and all that follows is about them.
    pub(super) jobs: u64,
    pub(super) wait_s: Measure,
    pub(super) response_s: Measure,
    pub(super) slowdown: Measure,
    /// From 0 to 1.
    pub(super) utilisation: f64,
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
    pub(super) groups: Vec<Results>,
    /// What was not simulated, and why.
    pub(super) passed_over: Vec<String>,
}

impl<'a> Setup<'a> {
    /// What is to be simulated, of which the workload may have to be read once to know its load.
    ///
    /// # Errors
    /// If a policy or parameter is wrong, or the machine's size not known.
    pub(super) fn new(origin: &'a Origin, policy: &str, options: &Options) -> anyhow::Result<Self> {
        let machine = origin.machine(options)?;
        let class_rules = class_rules(&options.classes)?;
        let settings = Settings {
            machine,
            params: params(policy, options)?,
            classes: class_rules.keys().cloned().collect(),
            class_rules,
            order: match options.order {
                Order::SubmitFirst => tutti_sim::Order::SubmitFirst,
                Order::EndFirst => tutti_sim::Order::EndFirst,
            },
            switch_cost: options.switch_cost,
            move_cost: MoveCost {
                per_job: options.move_cost,
                per_processor: options.move_cost_each,
            },
            movable: options.movable,
            progress: match options.exact_slices {
                true => tutti_sim::Progress::BySlot,
                false => tutti_sim::Progress::ByEvent,
            },
            horizon: None,
            skips_declined: options.lenient,
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

/// The core's parameters under a policy such as `gang,rows=5`. What is set for all policies comes
/// first, so that a policy's own settings count.
fn params(policy: &str, options: &Options) -> anyhow::Result<Params> {
    let mut params = Params::default();
    let mut words = policy.split(',');
    let name = words.next().unwrap_or_default();
    for setting in &options.settings {
        set(&mut params, setting)?;
    }
    tutti_sim::set_policy(&mut params, name)?;
    words.try_for_each(|setting| set(&mut params, setting))?;
    Ok(params)
}

/// The classes with what is set of their rules: `interactive:wait=1m,processors=64`.
fn class_rules(settings: &[String]) -> anyhow::Result<Classes> {
    let mut classes = default_classes();
    for setting in settings {
        let Some((name, rules)) = setting.split_once(':').filter(|(name, _)| !name.is_empty())
        else {
            bail!("{setting:?} sets no rule; write CLASS:RULE=VALUE, such as interactive:wait=1m");
        };
        let name = ClassName::new(name);
        let mut spec = classes.get(&name).copied().unwrap_or_default();
        for rule in rules.split(',') {
            let Some((rule, value)) = rule.split_once('=') else {
                bail!("{rule:?} sets nothing; write RULE=VALUE, such as wait=1m");
            };
            set_rule(&mut spec, rule.trim(), value.trim()).map_err(|error| anyhow!("{error}"))?;
        }
        spec.check(&name, &classes)?;
        classes.insert(name, spec);
    }
    Ok(classes)
}

fn set(params: &mut Params, setting: &str) -> anyhow::Result<()> {
    let Some((name, value)) = setting.split_once('=') else {
        bail!("{setting:?} sets nothing; write NAME=VALUE, such as quantum=200s");
    };
    set_param(params, name.trim(), value.trim()).map_err(|error| anyhow!("{error}"))
}

/// Runs a simulation.
///
/// # Errors
/// If the workload is wrong, or a file can't be written.
pub(super) fn simulate(
    setup: Setup<'_>,
    options: &Options,
    outputs: &Outputs,
    plots: &Plots,
) -> anyhow::Result<(Report, Seen)> {
    let Setup { origin, policy, machine, stretch, mut settings } = setup;
    let count = origin.jobs(options);
    let progress = Progress::of(origin, count, &policy);
    let source = origin.open(options, &progress, machine.processors())?;
    let workload = Workload::new(&source.header, options.estimates, &settings.classes);
    let records = outputs.swf.is_some().then(super::source::Shared::<VecDeque<_>>::default);
    let mut files = Files::create(outputs, &source.header, &policy, records.clone())?;
    let passed_over = source.passed_over();
    let wanted = Wanted { machine, stretch, jobs: count, records };
    let mut jobs = source.jobs(options, wanted, workload, &progress)?.peekable();
    if let Some(horizon) = options.horizon {
        let first = match jobs.peek() {
            Some(Ok(job)) => job.submit,
            Some(Err(_)) | None => ClusterTime::default(),
        };
        settings.horizon = Some(first + horizon);
    }
    let mut summary = Summary::new(machine.processors(), options.by.map(|by| by.group_by()));
    let mut seen = plots.watch(machine);
    let mut observer = (&mut summary, (files.observer(), seen.observer()));
    let outcome = run(&settings, jobs, &mut observer);
    drop(observer);
    progress.finish();
    outcome.map_err(|error| told(error, origin))?;
    files.finish()?;
    let passed_over = passed_over.borrow().lines();
    seen.finish(&summary);
    Ok((report((origin.name(), policy), &settings, &summary, passed_over), seen))
}

/// What went wrong, with the name of the workload where the simulator does not know it.
fn told(error: SimError<anyhow::Error>, origin: &Origin) -> anyhow::Error {
    match error {
        SimError::Workload(error) => error,
        SimError::Output(error) => anyhow::Error::new(error).context("cannot write the results"),
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
    Report {
        workload,
        policy,
        nodes: settings.machine.nodes(),
        processors_per_node: settings.machine.processors_per_node(),
        submitted: summary.submitted(),
        left: summary.left(),
        jobs,
        wait_s,
        response_s,
        slowdown,
        utilisation: summary.utilisation(),
        loss_of_capacity: summary.loss_of_capacity(),
        switching: summary.switching(),
        makespan_s: summary.makespan_s(),
        switches: summary.switches(),
        preemptions,
        at_limit,
        groups: summary.groups(&classes),
        passed_over,
    }
}

#[cfg(test)]
mod tests {
    use super::class_rules;
    use tutti_core::{ClassName, Nanos};

    fn rules(settings: &[&str]) -> anyhow::Result<tutti_core::Classes> {
        class_rules(&settings.iter().map(|&setting| setting.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn rules_of_classes_are_set_one_after_the_other() {
        let set =
            rules(&["interactive:wait=1m,share=60%", "mine:share=40%", "interactive:priority=7"]);
        let classes = set.unwrap();
        let interactive = classes[&ClassName::new("interactive")];
        assert_eq!(interactive.wait(), Some(Nanos::from_secs(60)));
        assert_eq!((interactive.share(), interactive.priority()), (6000, 7));
        assert_eq!(classes[&ClassName::new("mine")].share(), 4000);
        assert_eq!(classes.len(), 5);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let says = |settings| rules(settings).unwrap_err().to_string();
        assert!(says(&["interactive"]).contains("CLASS:RULE=VALUE"));
        assert!(says(&[":wait=1m"]).contains("CLASS:RULE=VALUE"));
        assert!(says(&["interactive:wait"]).contains("RULE=VALUE"));
        assert!(says(&["interactive:colour=red"]).contains("no parameter colour"));
        assert!(says(&["a:share=60%", "b:share=60%"]).contains("at most 40%"));
    }
}
