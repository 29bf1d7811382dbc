//! `scancel`.

use super::accounts::{ACCOUNT, QOS};
use super::jobs::{self, Job, Named, State};
use super::options::{Known, Line, Order, flag, read, value};
use super::squeue::{name_of, own_name};
use super::steps::{NamedStep, StepName};
use super::{print_version, wrong};
use crate::cmd::job_range::{element_word, find_elements, parted, say_left_out};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::print;
use tutti_client::parse_signal;
use tutti_node::codes::code_of;
use tutti_types::{Indices, JobId, Rank, StepId, StepKey};
use tutti_wire::code::Code;
use tutti_wire::history::JobPart;
use tutti_wire::local::{ArrayOrder, Reply, Request};
use tutti_wire::report::Target;

const NAME: &str = "scancel";

const OPTIONS: &[Known] = &[
    value("account", Some('A')),
    flag("batch", Some('b')),
    flag("ctld", None),
    value("clusters", Some('M')),
    flag("cron", Some('c')),
    flag("full", Some('f')),
    flag("help", None),
    flag("hurry", Some('H')),
    flag("interactive", Some('i')),
    flag("me", None),
    value("name", Some('n')),
    value("jobname", None),
    value("nodelist", Some('w')),
    value("partition", Some('p')),
    value("qos", Some('q')),
    flag("quiet", Some('Q')),
    value("reservation", Some('R')),
    value("sibling", None),
    value("signal", Some('s')),
    value("state", Some('t')),
    flag("usage", None),
    value("user", Some('u')),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
    value("wckey", None),
];

const HELP: &str = "\
scancel: end jobs, or send them a signal; `tutti cancel` and `tutti signal` do the same.

  scancel 7 8                end two jobs: SIGTERM, then SIGKILL after their grace
  scancel --me -t PENDING    all of yours that wait
  scancel 7_3 '8_[10-20]'    elements of job arrays
  scancel 7.0 8.batch        a step of job 7 alone; the batch script of job 8
  scancel -n solver          your jobs of that name
  scancel -s USR1 7          send a signal to the steps of job 7, not to its script
  scancel -s USR1 -b 7       to the shell of its script alone; -f: to all processes

Which jobs: numbers, -u/--user, --me, -n/--name, -p/--partition, -t/--state,
-w/--nodelist, -A/--account and -q/--qos (there is one of each). How: -s/--signal, -b/--batch, -f/--full, -Q/--quiet, -v/--verbose.
";

pub(super) fn execute(words: &[OsString]) -> anyhow::Result<u8> {
    let mut line = read(OPTIONS, Order::Mixed, words);
    if line.has("help") || line.has("usage") {
        print(HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    line.check_clusters();
    if line.has("interactive") {
        line.problems.push("--interactive is not available; name the jobs".into());
    }
    let what = What::of(&line).map_err(|problem| line.problems.push(problem));
    let states = jobs::states(&line.items("state")).map_err(|problem| line.problems.push(problem));
    let (mut targets, mut steps, mut elements) = (Vec::new(), Vec::new(), Vec::new());
    for word in line.rest.iter().map(|word| word.to_string_lossy()) {
        for item in parted(&word, &[',', ' ']).filter(|item| !item.is_empty()) {
            match NamedStep::of(item) {
                Some(named) if named.step.is_some() => steps.push((item.to_owned(), named)),
                Some(NamedStep { jobs: Named { job, indices: Some(indices) }, .. }) => {
                    elements.push((job, indices));
                }
                Some(named) => targets.push(Target::from(named.jobs.job)),
                None => line.problems.push(format!("Invalid job id {item}")),
            }
        }
    }
    let (Ok(what), Ok(states), true) = (what, states, line.problems.is_empty()) else {
        return Ok(wrong(NAME, &line.problems));
    };
    let has_filter = FILTERS.iter().any(|name| line.has(name));
    let mut exit = 0;
    for (word, named) in &steps {
        exit = exit.max(of_steps((word, named), &what, &line)?);
    }
    if has_filter {
        let named: Vec<Named> =
            targets.iter().map(|it| Named { job: it.job, indices: None }).collect();
        let elements = elements.into_iter();
        let elements = elements.map(|(job, indices)| Named { job, indices: Some(indices) });
        let named: Vec<Named> = named.into_iter().chain(elements).collect();
        if !steps.is_empty() && named.is_empty() {
            return Ok(exit);
        }
        // Without one, jobs of all states are meant.
        let states = states.filter(|_| line.has("state"));
        return Ok(exit.max(of_matching(&line, states.as_deref(), &named, &what)?));
    }
    for (array, indices) in &elements {
        exit = exit.max(of_elements(*array, indices, &what, &line)?);
    }
    if !(steps.is_empty() && elements.is_empty()) && targets.is_empty() {
        return Ok(exit);
    }
    if targets.is_empty() {
        say!("{NAME}: error: No job identification provided");
        return Ok(1);
    }
    for target in targets {
        exit = exit.max(one(target, &what, &line)?);
    }
    Ok(exit)
}

const FILTERS: [&str; 11] = [
    "user",
    "me",
    "name",
    "jobname",
    "partition",
    "state",
    "nodelist",
    "account",
    "qos",
    "reservation",
    "wckey",
];

/// What is done with a job.
#[derive(Clone, Copy, Debug)]
enum What {
    Cancel {
        at_once: bool,
    },
    Signal {
        signal: u8,
        to: To,
    },
    /// End the batch script: what it has started ends with it.
    CancelScript {
        at_once: bool,
    },
}

/// What of a job gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// Its steps, but no batch script.
    Steps,
    /// The shell of its batch script.
    Script,
    /// All of its processes.
    All,
}

impl What {
    fn of(line: &Line) -> Result<Self, String> {
        let signal = line.last("signal").map(parse_signal).transpose()?;
        let to = match (line.has("batch"), line.has("full")) {
            (_, true) => To::All,
            (true, false) => To::Script,
            (false, false) => To::Steps,
        };
        Ok(match signal {
            Some(signal) if signal != 9 => Self::Signal { signal, to },
            _ if to == To::Script => Self::CancelScript { at_once: signal.is_some() },
            _ => Self::Cancel { at_once: signal.is_some() },
        })
    }
}

/// Ends elements of an array, or sends them a signal; the exit code.
fn of_elements(array: JobId, indices: &Indices, what: &What, line: &Line) -> anyhow::Result<u8> {
    let failed = |error: anyhow::Error| {
        if !line.has("quiet") {
            let word = element_word(array, indices);
            say!("{NAME}: error: Kill job error on job id {word}: {error:#}");
        }
        1
    };
    if let What::Cancel { at_once } = *what {
        let order = ArrayOrder::Cancel { at_once };
        let request = Request::Elements { array, indices: Some(indices.clone()), order };
        return Ok(ask(&request).map_or_else(failed, |_| 0));
    }
    let jobs = match find_elements(array, Some(indices.clone())) {
        Ok(found) => {
            say_left_out(array, found.waiting);
            found.jobs
        }
        Err(error) => return Ok(failed(error)),
    };
    let mut exit = 0;
    for (_, job) in jobs {
        exit = exit.max(one(job.into(), what, line)?);
    }
    Ok(exit)
}

/// Ends steps that an argument names, or sends them a signal; the exit code.
fn of_steps((word, named): (&str, &NamedStep), what: &What, line: &Line) -> anyhow::Result<u8> {
    let failed = |why: &dyn fmt::Display| {
        if !line.has("quiet") {
            say!("{NAME}: error: Kill job error on job step id {word}: {why}");
        }
        1
    };
    let jobs = match named.jobs() {
        Ok(jobs) => jobs,
        Err(error) => return Ok(failed(&format!("{error:#}"))),
    };
    let mut exit = 0;
    for job in jobs {
        let Some(job) = jobs::one(job)? else {
            exit = failed(&"Invalid job id specified");
            continue;
        };
        if job.state.has_ended() {
            // To end what has ended is no error of the caller's.
            if line.has("verbose") {
                say!("{NAME}: Job {} has ended already", job.shown_id());
            }
            continue;
        }
        match named.step.map_or(Ok(StepId::FIRST), |step| known_step(&job, step)) {
            Ok(step) => exit = exit.max(of_step((&job, step), what, line, &failed)?),
            Err(why) => exit = failed(&why),
        }
    }
    Ok(exit)
}

/// Tutti's number of a step that a job has, or had.
fn known_step(job: &Job, name: StepName) -> Result<StepId, String> {
    let last = job.steps.iter().map(|it| it.step).max().unwrap_or(0);
    // Other users see no steps; the instance says that they may not end them.
    let may_be = |id: &StepId| id.0 <= last || job.details.is_none();
    let unknown = || format!("job {} has no step {name}; `squeue -s` lists them", job.shown_id());
    name.id(job).filter(may_be).ok_or_else(unknown)
}

/// Ends a step, or sends it a signal; the exit code.
fn of_step(
    (job, step): (&Job, StepId),
    what: &What,
    line: &Line,
    failed: &dyn Fn(&dyn fmt::Display) -> u8,
) -> anyhow::Result<u8> {
    let key = StepKey { job: job.id(), step };
    let script = Target { job: key.job, rank: Some(Rank(0)), pid: None };
    let request = match (*what, step) {
        (_, StepId::FIRST) if !job.is_batch() => return one(key.job.into(), what, line),
        (What::Cancel { at_once } | What::CancelScript { at_once }, StepId::FIRST) => {
            Request::Cancel { target: script, at_once }
        }
        (What::Signal { signal, to: To::Script }, StepId::FIRST) => {
            Request::SignalSteps { job: key.job, signal, only_script: true }
        }
        (What::Signal { signal, to }, StepId::FIRST) => {
            Request::Signal { target: script, signal, every_process: to == To::All }
        }
        (What::Cancel { at_once } | What::CancelScript { at_once }, _) => {
            Request::CancelStep { key, at_once }
        }
        (What::Signal { signal, .. }, _) => Request::SignalStep { key, signal },
    };
    Ok(ask(&request).map_or_else(|error| failed(&format!("{error:#}")), |_| 0))
}

/// Does it with the jobs that options name, of these if some are named; the exit code.
///
/// An array is not one job with one state: with states or nodes, or indices, each element is looked
/// at for itself. Those that are no jobs yet wait, and all else about them is as of the array.
fn of_matching(
    line: &Line,
    states: Option<&[State]>,
    named: &[Named],
    what: &What,
) -> anyhow::Result<u8> {
    let by_element = states.is_some() || line.has("nodelist");
    let (mut exit, mut wholes) = (0, BTreeSet::new());
    for array in matching(line, states, named)?.iter().filter(|job| job.report.is_whole_array()) {
        let of = || named.iter().filter(|it| it.job == array.id());
        if !by_element && (named.is_empty() || of().any(|it| it.indices.is_none())) {
            wholes.insert(array.id());
            exit = exit.max(one(array.id().into(), what, line)?);
            continue;
        }
        // No signal gets to what has not begun.
        let What::Cancel { .. } = what else { continue };
        let mut orders: Vec<Option<Indices>> = of().map(|it| it.indices.clone()).collect();
        if named.is_empty() {
            orders.push(None);
        }
        for indices in orders {
            let order = ArrayOrder::CancelWaiting;
            let request = Request::Elements { array: array.id(), indices, order };
            if let Err(error) = ask(&request) {
                say!("{NAME}: error: Kill job error on job id {}: {error:#}", array.id());
                exit = 1;
            }
        }
    }
    // Looked for again: some may have come into line in between.
    for job in matching(line, states, named)?.iter().filter(|job| !job.report.is_whole_array()) {
        let array = job.report.array.as_ref().map(|array| array.job);
        if array.is_none_or(|array| !wholes.contains(&array)) {
            exit = exit.max(one(job.id().into(), what, line)?);
        }
    }
    Ok(exit)
}

/// The jobs and the arrays that options name, of these if some are named.
fn matching(line: &Line, states: Option<&[State]>, named: &[Named]) -> anyhow::Result<Vec<Job>> {
    // All jobs have the one account and the one QOS, and none a reservation or a key.
    let lacks = |option: &str, only: &str| {
        let asked = line.items(option);
        !asked.is_empty() && !asked.iter().any(|it| it == only)
    };
    if lacks("account", ACCOUNT)
        || lacks("qos", QOS)
        || line.has("reservation")
        || line.has("wckey")
    {
        return Ok(Vec::new());
    }
    let users: Vec<String> = match line.items("user") {
        users if line.has("me") || users.is_empty() && !nix::unistd::geteuid().is_root() => {
            vec![own_name()]
        }
        users => users.iter().map(|user| name_of(user)).collect(),
    };
    let mut names = line.items("name");
    names.extend(line.items("jobname"));
    let partitions = line.items("partition");
    let nodes = line.last("nodelist").map(super::hosts::unfolded);
    let nodes = nodes.transpose().map_err(anyhow::Error::msg)?.unwrap_or_default();
    let listed = |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
    let is_named = |job: &Job, named: &Named| match job.report.is_whole_array() {
        true => named.job == job.id(),
        false => named.has(job),
    };
    let is_meant = |job: &Job| {
        !job.state.has_ended()
            && listed(&users, &job.report.user)
            && listed(&names, &job.report.name)
            && listed(&partitions, job.partition())
            && states.is_none_or(|states| states.contains(&job.state))
            && (nodes.is_empty()
                || job.nodes().iter().any(|node| nodes.iter().any(|it| it == node)))
            && (named.is_empty() || named.iter().any(|named| is_named(job, named)))
    };
    Ok(jobs::listed(None, None, JobPart::Table)?.into_iter().filter(is_meant).collect())
}

/// Ends a job, or sends it a signal; the exit code.
fn one(target: Target, what: &What, line: &Line) -> anyhow::Result<u8> {
    if line.has("verbose") {
        match what {
            What::Cancel { .. } | What::CancelScript { .. } => {
                say!("{NAME}: Terminating job {target}");
            }
            What::Signal { signal, .. } => say!("{NAME}: Signal {signal} to job {target}"),
        }
    }
    let request = match *what {
        What::Cancel { at_once } => Request::Cancel { target, at_once },
        What::CancelScript { at_once } => {
            let has_script = |job: &Job| job.is_batch() && job.started_ms.is_some();
            let rank = jobs::one(target.job)?.filter(has_script).map(|_| Rank(0));
            Request::Cancel { target: Target { rank, ..target }, at_once }
        }
        What::Signal { signal, to: To::All } => {
            Request::Signal { target, signal, every_process: true }
        }
        What::Signal { signal, to } => {
            let only_script = to == To::Script;
            Request::SignalSteps { job: target.job, signal, only_script }
        }
    };
    let mut requests = vec![request];
    // All processes of a batch script are not those of the steps that it started.
    if let What::Signal { signal, to: To::All } = *what
        && jobs::one(target.job)?.is_some_and(|job| job.is_batch())
    {
        requests.push(Request::SignalSteps { job: target.job, signal, only_script: false });
    }
    let mut done = Ok(Reply::Done);
    for request in &requests {
        done = done.and_then(|_| ask(request));
    }
    let error = match done {
        Ok(Reply::Done) => return Ok(0),
        Ok(_) => return unexpected(),
        Err(error) => error,
    };
    let job = jobs::one(target.job)?;
    if job.is_some_and(|job| job.state.has_ended()) {
        // To end what has ended is no error of the caller's.
        if line.has("verbose") {
            say!("{NAME}: Job {target} has ended already");
        }
        return Ok(0);
    }
    let is_unknown = code_of(&error) == Code::NoJob || super::has_no_instance(&error);
    if !line.has("quiet") || !is_unknown {
        let why = if is_unknown { "Invalid job id specified".into() } else { format!("{error:#}") };
        say!("{NAME}: error: Kill job error on job id {target}: {why}");
    }
    Ok(u8::from(!(is_unknown && line.has("quiet"))))
}
