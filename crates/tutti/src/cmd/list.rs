//! The verb `ps`.

use super::each_page_of_jobs;
use super::job_range::{Several, by_number, check_found, targets_of};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, JsonList, Table, account, print_json, print_table};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_types::{EndReason, JobId, Nanos};
use tutti_wire::code::Code;
use tutti_wire::host_list::format_host_list;
use tutti_wire::local::Request;
use tutti_wire::report::JobReport;
use tutti_wire::units::{format_duration_short, format_seconds};

/// What the columns of a job mean.
const JOB_COLUMNS: &str = "\
Columns:
  TURN     row of the matrix, and its part of the time;
           always: no other job wants these processors
  AGE      time since the submission
  SERVICE  time that the job's turns gave it
  LIMIT    time limit, LEFT: what is left of it; if any job has one
  WHERE    node:processors, or why the job waits, or how it ended";

const EXAMPLES: &str = "\
Examples:
  tutti ps                     jobs that run or wait
  tutti ps -al                 also ended jobs, with what they used
  tutti ps 7                   job 7, or the array 7 with its elements
  tutti ps --tree 7            the processes of job 7
  tutti ps --start             when waiting jobs will start
  tutti ps --json              for programs";

fn job_columns() -> String {
    format!("{EXAMPLES}\n\n{JOB_COLUMNS}\n\nColumns of --long:\n{}", account::COLUMNS_HELP)
}

#[derive(Args, Debug)]
#[command(after_help = job_columns())]
pub(crate) struct PsArgs {
    /// Also jobs that have ended
    #[arg(short, long)]
    all: bool,

    /// Times and resources that the jobs have used
    #[arg(short, long, conflicts_with = "tree")]
    long: bool,

    /// Only jobs of this user
    #[arg(short, long)]
    user: Option<String>,

    /// When jobs that wait are expected to start and to end
    #[arg(long, conflicts_with_all = ["all", "long", "tree"])]
    start: bool,

    /// As JSON; docs/reference/json.md has the fields
    #[arg(long)]
    json: bool,

    /// The processes of jobs, each below its parent, or its nearest living ancestor
    #[arg(long, conflicts_with_all = ["all", "user"])]
    tree: bool,

    /// Jobs, ranges of jobs, names of your jobs, or `last`; with --tree also ranks, or processes: 7,
    /// 3-9, solver, 7.0, 7.0/1234
    #[arg(value_name = "JOB")]
    jobs: Vec<Several>,
}

pub(crate) fn ps(args: &PsArgs) -> anyhow::Result<Exit> {
    if args.tree {
        if args.jobs.is_empty() {
            let reason = "ps --tree shows the processes of jobs, and none is named; `tutti ps` lists the jobs, \
                          `tutti ps --tree 1-99` shows those of a range";
            return Err(coded(Code::CannotUnderstand, reason));
        }
        return super::tree::show(&targets_of(&args.jobs, false)?, args.json);
    }
    let part = |it: &Several| match it {
        Several::One(target) if target.rank.is_some() => Some(*target),
        Several::One(_)
        | Several::Range(_)
        | Several::Elements { .. }
        | Several::Named(_)
        | Several::Last => None,
    };
    if let Some(part) = args.jobs.iter().find_map(part) {
        let reason =
            format!("ps lists jobs, and {part} is a part of one; add --tree to see its processes");
        return Err(coded(Code::CannotUnderstand, reason));
    }
    if args.start {
        return super::when::of_line(&args.jobs, args.user.as_deref(), args.json);
    }
    let ended = args.all || !args.jobs.is_empty();
    let wanted = match args.jobs.is_empty() {
        true => Vec::new(),
        false => by_number(&args.jobs, true)?,
    };
    let is_shown = |job: &JobReport| {
        (ended || job.exit_code.is_none())
            && args.user.as_ref().is_none_or(|user| *user == job.user)
            && (wanted.is_empty() || wanted.iter().any(|wanted| wanted.has_report(job)))
    };
    let request = |from| match args.long {
        true => Request::JobsWithUsage { from },
        false => Request::Jobs { ended, from },
    };
    if args.json && wanted.is_empty() {
        return stream(ended, request, is_shown);
    }
    let mut jobs = Vec::new();
    each_page_of_jobs(ended, request, |page| {
        jobs.extend(page.into_iter().filter(&is_shown));
        Ok(())
    })?;
    let is_missing = |it: &&Several| !jobs.iter().any(|job| it.has_report(job));
    if let Some(missing) = wanted.iter().find(is_missing) {
        check_found(std::slice::from_ref(missing), std::iter::empty(), "")?;
    }
    if args.json {
        print_json(&jobs)?;
        return Ok(Exit::OK);
    }
    if args.jobs.is_empty() {
        fold_elements(&mut jobs);
    }
    match args.long {
        true => print_table(&super::history::jobs_table(&jobs))?,
        false => print_table(&jobs_table(&jobs))?,
    }
    if let Some(hidden) = Instance::locate().hidden() {
        say!("tutti: {}", hidden.hidden_note());
    }
    Ok(Exit::OK)
}

/// Prints jobs as JSON, page by page: a hundred thousand of them take no more memory than a page.
fn stream(
    ended: bool,
    request: impl Fn(JobId) -> Request,
    is_shown: impl Fn(&JobReport) -> bool,
) -> anyhow::Result<Exit> {
    let mut list = JsonList::default();
    each_page_of_jobs(ended, request, |mut page| {
        page.retain(&is_shown);
        list.items(&page)
    })?;
    list.end()?;
    Ok(Exit::OK)
}

/// Leaves out the elements of arrays that have a line themselves.
fn fold_elements(jobs: &mut Vec<JobReport>) {
    let arrays: BTreeSet<JobId> =
        jobs.iter().filter(|job| job.is_whole_array()).map(|job| job.job).collect();
    let is_folded =
        |job: &JobReport| job.array.as_ref().is_some_and(|array| arrays.contains(&array.job));
    jobs.retain(|job| job.is_whole_array() || !is_folded(job));
}

fn jobs_table(jobs: &[JobReport]) -> Table {
    // What most instances never use takes no room there.
    let foretold = jobs.iter().any(|job| job.deadline_s.is_some() || job.ends_s.is_some());
    let is_limited = has_limits(jobs);
    let in_queues = jobs.iter().any(|job| job.queue.is_some());
    let mut columns = vec![
        ("JOB", Align::Right),
        ("NAME", Align::Left),
        ("USER", Align::Left),
        ("CLASS", Align::Left),
        ("TASKS", Align::Right),
        ("STATE", Align::Left),
        ("TURN", Align::Left),
        ("AGE", Align::Right),
        ("SERVICE", Align::Right),
    ];
    if is_limited {
        columns.extend(LIMIT_COLUMNS);
    }
    if foretold {
        columns.extend([("DUE", Align::Left), ("ENDS", Align::Left)]);
    }
    if in_queues {
        columns.push(("QUEUE", Align::Left));
    }
    columns.push(("WHERE", Align::Left));
    let mut table = Table::new(&columns)
        .can_spare(&["CLASS", "QUEUE", "SERVICE", "TASKS", "USER", "AGE", "LIMIT", "ENDS"])
        .painted(&[("STATE", of_state), ("WHERE", of_state)]);
    for job in jobs {
        let mut row = vec![
            job.shown_id(),
            job.name.clone(),
            job.user.clone(),
            class(job),
            tasks(job),
            job.state.clone(),
            turn(job),
            format_seconds(job.age_s),
            format_duration_short(Nanos::from_millis(job.service_ms)),
        ];
        if is_limited {
            row.extend(limit_cells(job));
        }
        if foretold {
            row.extend([due(job), job.ends_s.map_or("-".into(), within)]);
        }
        if in_queues {
            row.push(job.queue.clone().unwrap_or_else(|| "-".into()));
        }
        row.push(whereabouts(job));
        table.row(row);
    }
    table
}

/// How many tasks it starts with; of a batch job, for how many it has room.
fn tasks(job: &JobReport) -> String {
    match (job.first.as_deref(), job.slots) {
        (Some("batch"), Some(slots)) => format!("batch:{slots}"),
        _ => job.tasks.to_string(),
    }
}

/// The columns of [`limit_cells`].
pub(super) const LIMIT_COLUMNS: [(&str, Align); 2] =
    [("LIMIT", Align::Right), ("LEFT", Align::Right)];

/// Whether any of these jobs has a time limit: without one, tables have no columns for it.
pub(super) fn has_limits<'a>(jobs: impl IntoIterator<Item = &'a JobReport>) -> bool {
    jobs.into_iter().any(|job| job.time_limit_ms.is_some())
}

/// A job's time limit, and what is left of it.
pub(super) fn limit_cells(job: &JobReport) -> [String; 2] {
    [job.time_limit_ms, job.time_left_ms].map(|length_ms| {
        length_ms.map_or("-".into(), |ms| format_duration_short(Nanos::from_millis(ms)))
    })
}

/// The class, with what it was while its owner had something left to spend.
pub(super) fn class(job: &JobReport) -> String {
    let former = job.former_class.as_ref();
    former.map_or_else(|| job.class.clone(), |former| format!("{}, was {former}", job.class))
}

fn within(seconds: u64) -> String {
    format!("in {}", format_seconds(seconds))
}

/// By when the job must be done, and whether that is in doubt.
fn due(job: &JobReport) -> String {
    let Some(seconds) = job.deadline_s else { return "-".into() };
    match (u64::try_from(seconds), job.at_risk_s) {
        (Ok(left), None) => within(left),
        (Ok(left), Some(since)) => {
            format!("{}, at risk for {}", within(left), format_seconds(since))
        }
        (Err(_), _) => format!("late by {}", format_seconds(seconds.unsigned_abs())),
    }
}

/// How the job shares the time: alone, or in which row and with what part.
pub(super) fn turn(job: &JobReport) -> String {
    match (job.row, job.share_percent) {
        (Some(_), Some(_)) if job.rows == 1 => "always".into(),
        (Some(row), Some(share)) => format!("row {row}/{}, {share} %", job.rows),
        (Some(row), None) => format!("row {row}/{}", job.rows),
        (None, _) => "-".into(),
    }
}

/// How many elements of an array that has not ended are in which state.
fn elements(job: &JobReport) -> Option<String> {
    let elements = job.array.as_ref()?.elements.as_ref().filter(|_| job.exit_code.is_none())?;
    let counts = [
        (elements.running, "run"),
        (elements.queued, "in line"),
        (elements.unmade - elements.held.min(elements.unmade), "wait"),
        (elements.held, "held"),
        (elements.ok, "ended well"),
        (elements.failed, "failed"),
        (elements.cancelled, "cancelled"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    Some(some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", "))
}

/// Where it is, or why it is not, or how it ended.
pub(super) fn whereabouts(job: &JobReport) -> String {
    if let Some(elements) = elements(job) {
        return match job.reason.as_str() {
            "" => elements,
            reason => format!("{elements}: {reason}"),
        };
    }
    let mut text = match job.exit_code {
        // All its tasks have ended by themselves; whether well, they alone know.
        Some(code) if code != 0 && job.reason == EndReason::Completed.to_string() => {
            format!("exit {code}")
        }
        Some(code) => format!("exit {code}: {}", job.reason),
        None if !job.placement.is_empty() => places(&job.placement),
        None => job.reason.clone(),
    };
    if job.exit_code.is_none() && !job.placement.is_empty() && !job.reason.is_empty() {
        text.push_str(&format!(": {}", job.reason));
    }
    if !job.resources.is_empty() {
        text.push_str(&format!(" [{}]", job.resources.join(" ")));
    }
    if !job.suspended.is_empty() {
        text.push_str(&format!(" ({} suspended)", job.suspended.join(", ")));
    }
    if let Some(first) = job.detail.lines().next() {
        text.push_str(&format!(": {first}"));
    }
    text
}

/// Up to so many nodes of a job are listed one by one.
const NODES_ONE_BY_ONE: usize = 4;

/// `node:processors` of a job. Where it has many nodes, those with the same processors are one
/// word: `n[1-64]:0-7`.
fn places(placement: &[String]) -> String {
    if placement.len() <= NODES_ONE_BY_ONE {
        return placement.join(" ");
    }
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for place in placement {
        let (node, processors) = place.split_once(':').unwrap_or((place, ""));
        nodes.entry(processors).or_default().push(node);
    }
    let words = nodes.into_iter().map(|(processors, nodes)| {
        let nodes = format_host_list(nodes);
        if processors.is_empty() { nodes } else { format!("{nodes}:{processors}") }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn many_nodes_with_the_same_processors_are_one_word() {
        let all = |count: u32| (1..=count).map(|it| format!("n{it}:0-7")).collect::<Vec<_>>();
        assert_eq!(places(&all(3)), "n1:0-7 n2:0-7 n3:0-7");
        let mut most = all(64);
        most[9] = "n10:0-3".into();
        assert_eq!(places(&most), "n10:0-3 n[1-9,11-64]:0-7");
        let names = ["a", "b", "c", "d", "e"].map(String::from);
        assert_eq!(places(&names), "a,b,c,d,e");
    }
}
