//! `tutti history`: jobs that have ended, and what they used.

mod swf;
mod usage;

#[cfg(feature = "web")]
pub(super) use usage::usage_json_of;

use super::ask_of_the_past;
use super::job_range::{Several, by_number, check_found};
use super::list::{LIMIT_COLUMNS, has_limits, limit_cells};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tutti_client::ask::{ask, pages_of_nodes, unexpected};
use tutti_client::output::colours::{of_exit_code, of_state};
use tutti_client::output::{Align, Table, account, counted, plain, print, print_json, print_table};
use tutti_node::calendar::{local_time, moment_ms};
use tutti_node::codes::code_of;
use tutti_node::exit::Exit;
use tutti_node::say::is_order;
use tutti_wire::code::Code;
use tutti_wire::history::{EndedQuery, EndedReport, Ending};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{HistoryReport, JobReport, NodeReport};
use tutti_wire::units::format_seconds;

const TIMES_HELP: &str = "\
Examples:
  tutti history --since 2d     jobs that ended in the last two days
  tutti history 7              job 7, with each of its tasks
  tutti history -u ada -s failed --since yesterday
  tutti history --swf a.swf    a trace for `tutti sim`
  tutti history --usage        what nodes' processors were used for, by hour
  tutti history --usage --by node --since 7d

TIME:
  90m, 2d                      that long ago
  14:30                        today at that time
  2026-03-28, yesterday        the begin of that day
  2026-03-28T14:30             that day at that time

Columns:";

/// The heading of options that choose jobs.
const WHICH: &str = "Which jobs";
const USAGE: &str = "Use of processors";

fn help() -> String {
    format!("{TIMES_HELP}\n{}", account::COLUMNS_HELP)
}

#[derive(Args, Debug)]
#[command(after_help = help())]
pub(crate) struct HistoryArgs {
    /// Only jobs of this user, by name or number
    #[arg(short, long, help_heading = WHICH)]
    user: Option<String>,

    /// Only jobs that ended at this time or later
    #[arg(long, value_name = "TIME", value_parser = moment_ms, help_heading = WHICH)]
    since: Option<u64>,

    /// Only jobs that ended before this time
    #[arg(long, value_name = "TIME", value_parser = moment_ms, help_heading = WHICH)]
    until: Option<u64>,

    /// Only jobs that ended as: completed, failed, cancelled, timed-out, out-of-memory, abandoned
    /// (`tutti run` was killed), lost (with a node), shut-down,
    /// never-started (see `submit --after`)
    #[arg(short, long = "state", value_name = "STATE", value_delimiter = ',', help_heading = WHICH)]
    states: Vec<Ending>,

    /// Only the latest, at most this number
    #[arg(short = 'n', long = "last", value_name = "COUNT", help_heading = WHICH)]
    last: Option<usize>,

    /// As JSON
    #[arg(long)]
    json: bool,

    /// Write a trace in the Standard Workload Format, for `tutti sim`
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    swf: Option<PathBuf>,

    /// What processors of nodes were used for, since --since [default: a day ago], until --until
    #[arg(long, help_heading = USAGE, conflicts_with_all = ["user", "states", "last", "swf", "jobs"])]
    usage: bool,

    /// What a row stands for
    #[arg(
        long, value_enum, value_name = "WHAT", default_value_t, requires = "usage",
        help_heading = USAGE
    )]
    by: usage::By,

    /// Only this node
    #[arg(long, value_name = "NODE", requires = "usage", help_heading = USAGE)]
    node: Option<String>,

    /// Jobs, ranges of jobs, names of your jobs, or `last`: 7, 3-9, solver; a single job is shown
    /// with each of its tasks
    #[arg(
        value_name = "JOB", value_parser = super::job_range::whole_jobs,
        conflicts_with_all = ["user", "since", "until", "states", "last"]
    )]
    jobs: Vec<Several>,
}

pub(crate) fn execute(args: &HistoryArgs) -> anyhow::Result<Exit> {
    if args.usage {
        return usage::execute(args);
    }
    let wanted = by_number(&args.jobs, true)?;
    let [Several::One(target)] = wanted[..] else { return all(args, &wanted) };
    if args.swf.is_some() {
        return all(args, &wanted);
    }
    let Reply::History(history) = ask_of_the_past(&Request::History { job: target.job })? else {
        return unexpected();
    };
    if args.json {
        print_json(&history)?;
        return Ok(Exit::OK);
    }
    print(&describe(&history))?;
    let is_limited = has_limits([&history.job]);
    let mut table = usage_table(JOB_COLUMNS.to_vec(), is_limited);
    table.row(job_row(&history.job, how_it_ended(history.ending, &history.job), is_limited));
    print_table(&table)?;
    if !history.tasks.is_empty() {
        print("\n")?;
        print_table(&tasks_table(&history))?;
    }
    Ok(Exit::OK)
}

/// As JSON: what `ps` has of a job, and what only those have that have ended.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    job: &'a JobReport,
    ending: Ending,
    accepted_ms: u64,
    ended_ms: u64,
}

fn all(args: &HistoryArgs, wanted: &[Several]) -> anyhow::Result<Exit> {
    let mut jobs = matching(args)?;
    let is_missing = |it: &&Several| !jobs.iter().any(|job| it.has_report(&job.job));
    if let Some(missing) = wanted.iter().find(is_missing) {
        check_found(std::slice::from_ref(missing), std::iter::empty(), " that has ended")?;
    }
    jobs.retain(|it| wanted.is_empty() || wanted.iter().any(|one| one.has_report(&it.job)));
    if let Some(path) = &args.swf {
        let nodes = nodes()?;
        swf::write(path, &jobs, &nodes)?;
        say!("tutti: wrote {} to {}", counted(jobs.len() as u64, "job"), path.display());
    } else if args.json {
        print_json(&shown(&jobs))?;
    } else {
        print_table(&ended_table(&jobs))?;
    }
    Ok(Exit::OK)
}

fn shown(jobs: &[EndedReport]) -> Vec<Shown<'_>> {
    let shown = jobs.iter().map(|it| {
        let (ending, accepted_ms, ended_ms) = (it.ending, it.accepted_ms, it.ended_ms);
        Shown { job: &it.job, ending, accepted_ms, ended_ms }
    });
    shown.collect()
}

/// What `tutti history --json` prints.
#[cfg(feature = "web")]
pub(super) fn json_of(query: EndedQuery, most: usize) -> anyhow::Result<String> {
    Ok(serde_json::to_string(&shown(&latest(query, most)?))?)
}

/// The nodes; none where no instance runs.
fn nodes() -> anyhow::Result<Vec<NodeReport>> {
    match pages_of_nodes(|from| ask(&Request::Nodes { from })) {
        Ok(nodes) => Ok(nodes),
        Err(error) if code_of(&error) == Code::NoInstance => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The jobs that are asked for, the earliest end first.
fn matching(args: &HistoryArgs) -> anyhow::Result<Vec<EndedReport>> {
    let query = EndedQuery {
        user: args.user.clone(),
        since_ms: args.since,
        until_ms: args.until,
        endings: args.states.clone(),
        ..EndedQuery::default()
    };
    latest(query, args.last.unwrap_or(usize::MAX))
}

/// The latest jobs of a query, at most this number, the earliest end first.
fn latest(mut query: EndedQuery, most: usize) -> anyhow::Result<Vec<EndedReport>> {
    let mut all = Vec::new();
    while all.len() < most {
        let Reply::Past { jobs, next } = ask_of_the_past(&Request::Past(query.clone()))? else {
            return unexpected();
        };
        all.extend(jobs);
        query.after = next;
        if next.is_none() {
            break;
        }
    }
    all.truncate(most);
    all.reverse();
    Ok(all)
}

/// The table of `tutti history`.
fn ended_table(jobs: &[EndedReport]) -> Table {
    let mut columns = JOB_COLUMNS.to_vec();
    columns.insert(ENDED_AT, ("ENDED", Align::Left));
    let is_limited = has_limits(jobs.iter().map(|ended| &ended.job));
    let mut table = usage_table(columns, is_limited);
    for ended in jobs {
        let mut row = job_row(&ended.job, how_it_ended(ended.ending, &ended.job), is_limited);
        row.insert(ENDED_AT, local_time(ended.ended_ms));
        table.row(row);
    }
    table
}

fn describe(history: &HistoryReport) -> String {
    let job = &history.job;
    let queue = job.queue.as_ref().map_or(String::new(), |queue| format!(", queue {queue}"));
    let mut text = format!(
        "job {} ({}) of {}, {}{queue}: exit {}, {}; it ended {} ago\n",
        job.job,
        // A name with a line end must not pass for other lines.
        plain(&job.name),
        job.user,
        job.class,
        job.exit_code.unwrap_or(0),
        job.reason,
        format_seconds(history.ended_s)
    );
    for line in job.detail.lines() {
        text.push_str(&format!("{line}\n"));
    }
    // Names are anything that a user can type.
    text.chars().map(|c| if is_order(c) && c != '\n' { '?' } else { c }).collect()
}

const JOB_COLUMNS: [(&str, Align); 7] = [
    ("JOB", Align::Right),
    ("NAME", Align::Left),
    ("USER", Align::Left),
    ("STATE", Align::Left),
    ("WAITED", Align::Right),
    ("RAN", Align::Right),
    ("SUSPENDED", Align::Right),
];

/// Where the column of when jobs ended stands among these.
const ENDED_AT: usize = 4;

/// The table of `tutti ps -l`.
pub(super) fn jobs_table(jobs: &[JobReport]) -> Table {
    let is_limited = has_limits(jobs);
    let mut table = usage_table(JOB_COLUMNS.to_vec(), is_limited);
    for job in jobs {
        let state = job.exit_code.map_or_else(|| job.state.clone(), |code| format!("exit {code}"));
        table.row(job_row(job, state, is_limited));
    }
    table
}

/// The word of how a job ended, with the exit code where the word does not say it.
fn how_it_ended(ending: Ending, job: &JobReport) -> String {
    match (ending, job.exit_code) {
        (Ending::Failed, Some(code)) => format!("{}, exit {code}", ending.word()),
        (Ending::NeverStarted, _) if !job.reason.is_empty() => {
            format!("{}: {}", ending.word(), job.reason)
        }
        _ => ending.word().into(),
    }
}

fn usage_table(mut columns: Vec<(&'static str, Align)>, is_limited: bool) -> Table {
    if is_limited {
        columns.extend(LIMIT_COLUMNS);
    }
    columns.extend(account::COLUMNS.map(|name| (name, Align::Right)));
    let table = Table::new(&columns).painted(&[("STATE", of_state)]);
    table.can_spare(&[
        "PEAK",
        "READ",
        "WRITTEN",
        "USER",
        "SWITCHES",
        "WAITED",
        "SUSPENDED",
        "SYS",
        "LIMIT",
        "ENDED",
    ])
}

fn job_row(job: &JobReport, state: String, is_limited: bool) -> Vec<String> {
    let mut row = vec![job.shown_id(), job.name.clone(), job.user.clone(), state];
    row.extend(account::times(job));
    if is_limited {
        row.extend(limit_cells(job));
    }
    row.extend(account::cells(job.usage.as_ref()));
    row
}

fn tasks_table(history: &HistoryReport) -> Table {
    let mut columns = vec![("RANK", Align::Right), ("EXIT", Align::Right)];
    columns.extend(account::COLUMNS.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns).can_spare(&["PEAK", "READ", "WRITTEN", "SWITCHES"]);
    table = table.painted(&[("EXIT", of_exit_code)]);
    for task in &history.tasks {
        let mut row = vec![task.rank.to_string(), task.exit_code.to_string()];
        row.extend(account::cells(Some(&task.usage)));
        table.row(row);
    }
    table
}
