//! `sacct`.

use super::accounts::ACCOUNT;
use super::format::{duration, moment, plain, push_fitted};
use super::jobs::{self, Job, State};
use super::json;
use super::options::{Known, Line, Order, flag, perhaps, read, value};
use super::squeue::{name_of, own_name};
use super::steps::{self, NamedStep, Step};
use super::{print_version, wrong};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use tutti_client::output::{print, print_json};
use tutti_node::calendar::moment_ms;
use tutti_node::platform::time::wall_ms;
use tutti_types::JobId;
use tutti_wire::history::JobPart;
use tutti_wire::host_list::format_host_list;
use tutti_wire::show::StepReport;

const NAME: &str = "sacct";

const OPTIONS: &[Known] = &[
    flag("allusers", Some('a')),
    value("accounts", Some('A')),
    flag("allclusters", Some('L')),
    flag("allocations", Some('X')),
    flag("array", None),
    flag("batch-script", Some('B')),
    flag("brief", Some('b')),
    value("cluster", None),
    value("clusters", Some('M')),
    flag("completion", Some('c')),
    value("constraints", Some('C')),
    value("delimiter", None),
    flag("duplicates", Some('D')),
    value("endtime", Some('E')),
    flag("env-vars", None),
    flag("federation", None),
    value("file", Some('f')),
    value("flags", Some('F')),
    value("format", Some('o')),
    value("gid", None),
    value("group", Some('g')),
    flag("help", Some('h')),
    flag("helpformat", Some('e')),
    value("jobs", Some('j')),
    flag("json", None),
    flag("local", None),
    flag("long", Some('l')),
    value("name", None),
    value("ncpus", Some('I')),
    value("nnodes", Some('i')),
    flag("noconvert", None),
    value("nodelist", Some('N')),
    flag("noheader", Some('n')),
    flag("parsable", Some('p')),
    flag("parsable2", Some('P')),
    value("partition", Some('r')),
    value("qos", Some('q')),
    value("reason", Some('R')),
    value("starttime", Some('S')),
    value("state", Some('s')),
    value("timelimit-max", Some('K')),
    value("timelimit-min", Some('k')),
    flag("truncate", Some('T')),
    value("uid", None),
    value("units", None),
    flag("usage", None),
    value("user", Some('u')),
    flag("use-local-uid", None),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
    value("wckeys", Some('W')),
    flag("whole-hetjob", None),
    perhaps("yaml", None),
];

const HELP: &str = "\
sacct: list jobs with what they used in the columns of Slurm's sacct; `tutti
history` and `tutti report` show more.

  sacct                          your jobs of today
  sacct -j 7 -X -n -o State      the state of one job
  sacct -P -S 2026-03-01 -u ada  since a day, fields between bars
  sacct --helpformat             the names of all fields
  sacct -j 7 --json              as Slurm's JSON, with the fields that programs read

Which jobs: -j/--jobs, -S/--starttime, -E/--endtime, -s/--state, -u/--user,
-a/--allusers, --name, -r/--partition, -N/--nodelist, -X/--allocations (no steps).
How: -o/--format FIELD%WIDTH, -n/--noheader, -p, -P, --delimiter, --units.
";

/// A field: its name, the width of its column, and whether its value stands to the right.
type Field = &'static (&'static str, usize, bool);

const FIELDS: &[(&str, usize, bool)] = &[
    ("Account", 10, true),
    ("AdminComment", 19, true),
    ("AllocCPUS", 10, true),
    ("AllocNodes", 10, true),
    ("AllocTRES", 10, true),
    ("AssocID", 7, true),
    ("AveCPU", 10, true),
    ("AveRSS", 10, true),
    ("AveVMSize", 10, true),
    ("Cluster", 10, true),
    ("Comment", 14, true),
    ("Constraints", 19, true),
    ("ConsumedEnergy", 14, true),
    ("CPUTime", 10, true),
    ("CPUTimeRAW", 10, true),
    ("DerivedExitCode", 15, true),
    ("Elapsed", 10, true),
    ("ElapsedRaw", 10, true),
    ("Eligible", 19, true),
    ("End", 19, true),
    ("ExitCode", 8, true),
    ("FailedNode", 19, true),
    ("Flags", 15, true),
    ("GID", 6, true),
    ("Group", 9, true),
    ("JobID", 12, false),
    ("JobIDRaw", 12, false),
    ("JobName", 10, true),
    ("Layout", 9, true),
    ("MaxDiskRead", 12, true),
    ("MaxDiskWrite", 12, true),
    ("MaxRSS", 10, true),
    ("MaxVMSize", 10, true),
    ("NCPUS", 10, true),
    ("NNodes", 8, true),
    ("NodeList", 15, true),
    ("NTasks", 8, true),
    ("Partition", 10, true),
    ("Planned", 10, true),
    ("Priority", 10, true),
    ("QOS", 10, true),
    ("Reason", 22, true),
    ("ReqCPUS", 8, true),
    ("ReqMem", 10, true),
    ("ReqNodes", 8, true),
    ("ReqTRES", 10, true),
    ("Reserved", 10, true),
    ("Restarts", 8, true),
    ("Start", 19, true),
    ("State", 10, true),
    ("StdErr", 20, true),
    ("StdOut", 20, true),
    ("Submit", 19, true),
    ("SubmitLine", 20, true),
    ("Suspended", 10, true),
    ("SystemCPU", 10, true),
    ("Timelimit", 10, true),
    ("TimelimitRaw", 12, true),
    ("TotalCPU", 10, true),
    ("TRESUsageInMax", 14, true),
    ("TRESUsageInTot", 14, true),
    ("UID", 6, true),
    ("User", 9, true),
    ("UserCPU", 10, true),
    ("WCKey", 10, true),
    ("WorkDir", 20, true),
];

const DEFAULT: &str = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode";
const BRIEF: &str = "JobID,State,ExitCode";
const LONG: &str = "JobID,JobIDRaw,JobName,Partition,MaxVMSize,AveVMSize,MaxRSS,AveRSS,NTasks,\
                    AllocCPUS,Elapsed,State,ExitCode,MaxDiskRead,MaxDiskWrite,AllocTRES";

/// Fields that need what a job was to run.
const DETAILED: [&str; 6] = ["Restarts", "ReqMem", "WorkDir", "StdOut", "StdErr", "SubmitLine"];

/// Fields that need the nodes or the steps of a job.
const PLACED: [&str; 7] =
    ["NodeList", "NNodes", "AllocNodes", "ReqNodes", "AllocTRES", "ReqTRES", STEPPED[0]];

/// Those that need its steps.
const STEPPED: [&str; 1] = ["DerivedExitCode"];

/// How values stand in a line.
enum Style {
    Columns,
    /// Between separators, with one at the end or not.
    Separated {
        separator: String,
        at_end: bool,
    },
}

pub(super) fn execute(words: &[OsString]) -> anyhow::Result<u8> {
    let mut line = read(OPTIONS, Order::Mixed, words);
    if line.has("help") || line.has("usage") {
        print(HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    if line.has("helpformat") {
        let names: Vec<&str> = FIELDS.iter().map(|(name, ..)| *name).collect();
        print(&format!("{}\n", names.join("\n")))?;
        return Ok(0);
    }
    line.check_clusters();
    if line.has("yaml") {
        line.problems.push("--yaml is not available; --json has the same fields".into());
    }
    let fields = fields_of(&line).map_err(|problem| line.problems.push(problem));
    let which = Which::of(&line).map_err(|problem| line.problems.push(problem));
    let (Ok(fields), Ok(which), true) = (fields, which, line.problems.is_empty()) else {
        return Ok(wrong(NAME, &line.problems));
    };
    let needs_steps = !line.has("allocations");
    let has = |names: &[&str]| fields.iter().any(|(field, _)| names.contains(&field.0));
    let part = match line.has("json") || has(&DETAILED) {
        true => JobPart::All,
        false if needs_steps || has(&PLACED) || line.has("nodelist") => JobPart::Places,
        false => JobPart::Table,
    };
    let mut jobs = found(&which, part)?;
    let needs_steps = needs_steps || has(&STEPPED);
    // A list has the places of jobs that have not ended.
    let needs_more = |job: &&mut Job| {
        part == JobPart::All || job.state.has_ended() || needs_steps && job.started_ms.is_some()
    };
    jobs::add_details(jobs.iter_mut().filter(needs_more), part)?;
    if line.has("json") {
        print_json(&json::of_sacct(&jobs, !line.has("allocations")))?;
    } else {
        print(&table(&jobs, &fields, &which, &line))?;
    }
    // The process ends here; to free each part of ten thousand jobs takes milliseconds.
    std::mem::forget(jobs);
    Ok(0)
}

/// The fields, each with the width that the user gave it: to the right, if it is positive.
fn fields_of(line: &Line) -> Result<Vec<(Field, Option<isize>)>, String> {
    let set = std::env::var("SACCT_FORMAT").ok().filter(|format| !format.is_empty());
    let mut given: Vec<String> = line.items("format");
    if given.is_empty() {
        let format = match (line.has("brief"), line.has("long")) {
            (true, _) => BRIEF.to_owned(),
            (_, true) => LONG.to_owned(),
            _ => set.unwrap_or_else(|| DEFAULT.to_owned()),
        };
        given = format.split(',').map(str::to_owned).collect();
    }
    let mut fields = Vec::new();
    for item in given {
        let (name, width) = item.split_once('%').unwrap_or((&item, ""));
        let is_it = |field: &&(&str, usize, bool)| field.0.eq_ignore_ascii_case(name);
        if name.eq_ignore_ascii_case("all") {
            fields.extend(FIELDS.iter().map(|field| (field, None)));
            continue;
        }
        let field = FIELDS.iter().find(is_it);
        let field = field.ok_or_else(|| format!("Invalid field requested: \"{name}\""))?;
        fields.push((field, width.parse().ok().filter(|width| *width != 0)));
    }
    Ok(fields)
}

/// Which jobs are listed.
#[derive(Debug, Default)]
struct Which {
    jobs: Vec<NamedStep>,
    names_jobs: bool,
    since_ms: u64,
    until_ms: Option<u64>,
    states: Option<Vec<State>>,
    /// `None`: all users.
    users: Option<Vec<String>>,
    names: Vec<String>,
    partitions: Vec<String>,
    nodes: Vec<String>,
}

impl Which {
    fn of(line: &Line) -> Result<Self, String> {
        let mut which = Self { names_jobs: line.has("jobs"), ..Self::default() };
        for item in line.items("jobs") {
            let job = item.split('+').next().unwrap_or_default();
            which.jobs.push(NamedStep::of(job).ok_or(format!("Invalid job id: {item}"))?);
        }
        let at = |option: &str| line.last(option).map(slurm_moment).transpose();
        which.since_ms = match at("starttime")? {
            Some(since) => since,
            None if which.names_jobs => 0,
            None => moment_ms("today")?,
        };
        which.until_ms = at("endtime")?;
        let states = line.items("state");
        if !states.is_empty() {
            which.states = jobs::states(&states)?;
        }
        let users: Vec<String> = line.items("user").iter().map(|user| name_of(user)).collect();
        let is_all = line.has("allusers") || which.names_jobs || nix::unistd::geteuid().is_root();
        which.users = match users.is_empty() {
            false => Some(users),
            true => (!is_all).then(|| vec![own_name()]),
        };
        which.names = line.items("name");
        which.partitions = line.items("partition");
        if let Some(list) = line.last("nodelist") {
            which.nodes = super::hosts::unfolded(list)?;
        }
        Ok(which)
    }

    fn has(&self, job: &Job) -> bool {
        let listed =
            |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
        self.users.as_ref().is_none_or(|users| users.contains(&job.report.user))
            && listed(&self.names, &job.report.name)
            && listed(&self.partitions, job.partition())
            && self.states.as_ref().is_none_or(|states| states.contains(&job.state))
            && self.until_ms.is_none_or(|until| job.submitted_ms <= until)
            && (self.nodes.is_empty()
                || job.nodes().iter().any(|node| self.nodes.iter().any(|it| it == node)))
    }
}

impl Which {
    /// Whether a row of a job is listed: where steps are named, only these.
    fn has_row(&self, job: &Job, row: Row<'_>) -> bool {
        if self.jobs.is_empty() {
            return true;
        }
        let step = match row {
            Row::Job => None,
            Row::First => Some(Step::first(job)),
            Row::Further(step) => Some(Step::further(job, step)),
        };
        let has = |named: &NamedStep| match &step {
            None => named.step.is_none() && named.jobs.has(job),
            Some(step) => named.has(step),
        };
        self.jobs.iter().any(has)
    }
}

/// A date as Slurm writes it without dashes: `11/29`, `11/29/26`, `11.29`, `1129`, `112926`, each
/// with `-14:30` or not, as ISO 8601 has it. Without a year it is the latest such month. `None`:
/// the text has another form. `today`: this day's date by ISO 8601.
fn iso_date(text: &str, today: &str) -> Option<String> {
    let (date, time) = text.split_once('-').map_or((text, None), |(date, time)| (date, Some(time)));
    if time.is_some_and(|time| time.contains('-')) {
        return None;
    }
    let two_digits = |text: &str| {
        let is_one = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_one)
    };
    let at = if date.contains('.') { '.' } else { '/' };
    let parts: Vec<&str> = match date.len() {
        4 | 6 if date.bytes().all(|byte| byte.is_ascii_digit()) => {
            [date.get(..2), date.get(2..4), date.get(4..6)].into_iter().flatten().collect()
        }
        _ => date.split(at).collect(),
    };
    let (month, day, year) = match parts[..] {
        [month, day] => (month, day, None),
        [month, day, year] => (month, day, Some(year)),
        _ => return None,
    };
    let (month, day) = (two_digits(month)?, two_digits(day)?);
    let (this_year, rest) = today.split_once('-')?;
    let this_year: u32 = this_year.parse().ok()?;
    let this_month: u32 = rest.get(..2)?.parse().ok()?;
    let year = match year {
        Some(year) if year.len() == 4 => year.parse().ok()?,
        Some(year) => 2000 + two_digits(year)?,
        None => this_year - u32::from(month > this_month),
    };
    let time = time.map_or_else(String::new, |time| format!("T{time}"));
    Some(format!("{year:04}-{month:02}-{day:02}{time}"))
}

/// A time as `sacct` takes it: `2026-03-28`, `2026-03-28T14:30`, `03/28`, `14:30`, `now-2hours`,
/// `today`.
fn slurm_moment(text: &str) -> Result<u64, String> {
    let wrong = || format!("Invalid time specification (pos=0): {text}");
    if let Some(ago) = text.strip_prefix("now") {
        let now = wall_ms();
        if ago.is_empty() {
            return Ok(now);
        }
        let (is_before, length) = match (ago.strip_prefix('-'), ago.strip_prefix('+')) {
            (Some(length), _) => (true, length),
            (_, Some(length)) => (false, length),
            _ => return Err(wrong()),
        };
        let digits = length.len() - length.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let count: u64 = length[..digits].parse().map_err(|_| wrong())?;
        let unit_s = match &length[digits..] {
            "" => 1,
            unit if unit.starts_with('s') => 1,
            unit if unit.starts_with('m') => 60,
            unit if unit.starts_with('h') => 3_600,
            unit if unit.starts_with('d') => 86_400,
            unit if unit.starts_with('w') => 7 * 86_400,
            _ => return Err(wrong()),
        };
        let ms = count.saturating_mul(unit_s).saturating_mul(1000);
        return Ok(if is_before { now.saturating_sub(ms) } else { now.saturating_add(ms) });
    }
    match text {
        "midnight" => moment_ms("today"),
        "noon" => moment_ms("12:00"),
        "fika" => moment_ms("15:00"),
        "teatime" => moment_ms("16:00"),
        "epoch" => Ok(0),
        text => match iso_date(text, &moment(wall_ms())) {
            Some(date) => moment_ms(&date),
            None => moment_ms(text),
        },
    }
    .map_err(|_| wrong())
}

fn found(which: &Which, part: JobPart) -> anyhow::Result<Vec<Job>> {
    let mut all = if which.names_jobs {
        named(&which.jobs)?
    } else {
        let user = match which.users.as_deref() {
            Some([user]) => Some(user.as_str()),
            _ => None,
        };
        jobs::listed(Some(which.since_ms), user, part)?
    };
    all.retain(|job| which.has(job) && !job.is_shown_by_elements());
    Ok(all)
}

/// The jobs of this list, by number.
fn named(list: &[NamedStep]) -> anyhow::Result<Vec<Job>> {
    let is_single = |it: &&NamedStep| it.jobs.indices.is_none();
    let single = jobs::several(list.iter().filter(is_single).map(|it| it.jobs.job))?;
    let (arrays, single): (Vec<Job>, Vec<Job>) =
        single.into_iter().partition(|job| job.report.is_whole_array());
    let mut all: BTreeMap<JobId, Job> = single.into_iter().map(|job| (job.id(), job)).collect();
    for it in list {
        if it.jobs.indices.is_some() || arrays.iter().any(|array| array.id() == it.jobs.job) {
            all.extend(it.jobs.all()?.into_iter().map(|job| (job.id(), job)));
        }
    }
    Ok(all.into_values().collect())
}

/// A job, the step that it began with, or a further one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row<'a> {
    Job,
    First,
    Further(&'a StepReport),
}

/// What the rows of a job take in most tables.
const ROW_BYTES: usize = 192;

fn table(jobs: &[Job], fields: &[(Field, Option<isize>)], which: &Which, line: &Line) -> String {
    let separator = line.last("delimiter").unwrap_or("|").to_owned();
    let style = match (line.has("parsable2"), line.has("parsable")) {
        (true, _) => Style::Separated { separator, at_end: false },
        (_, true) => Style::Separated { separator, at_end: true },
        _ => Style::Columns,
    };
    let mut text = String::with_capacity(jobs.len() * ROW_BYTES);
    if !line.has("noheader") {
        push_row(&mut text, fields, &style, |field| field.0);
        if matches!(style, Style::Columns) {
            push_row(&mut text, fields, &style, |_| "-".repeat(WIDEST));
        }
    }
    for job in jobs {
        let mut rows = vec![Row::Job];
        if !line.has("allocations") && job.started_ms.is_some() {
            rows.push(Row::First);
            rows.extend(steps::begun(job).map(Row::Further));
        }
        for it in rows.into_iter().filter(|it| which.has_row(job, *it)) {
            push_row(&mut text, fields, &style, |field| cell(job, it, field.0));
        }
    }
    text
}

/// The widest column.
const WIDEST: usize = 4096;

/// Adds a line.
fn push_row<'a, T: Into<Cow<'a, str>>>(
    line: &mut String,
    fields: &[(Field, Option<isize>)],
    style: &Style,
    value: impl Fn(Field) -> T,
) {
    for (number, (field, width)) in fields.iter().enumerate() {
        let text = value(field).into();
        match style {
            Style::Separated { separator, .. } => {
                if number > 0 {
                    line.push_str(separator);
                }
                if text.len() < WIDEST {
                    line.push_str(&plain(&text));
                }
            }
            Style::Columns => {
                let to_the_right = width.map_or(field.2, |width| width > 0);
                let width = width.map_or(field.1, isize::unsigned_abs).min(WIDEST);
                let text = plain(&text);
                push_fitted(line, &text, width, to_the_right);
                // What was cut is marked.
                let is_cut = text.len() > width && text.chars().nth(width).is_some();
                if is_cut && !text.starts_with("--") && width > 1 {
                    line.pop();
                    line.push('+');
                }
                line.push(' ');
            }
        }
    }
    if let Style::Separated { separator, at_end: true } = style {
        line.push_str(separator);
    }
    line.push('\n');
}

/// A cell of a further step; `None`: as that of its job.
fn cell_of_step(job: &Job, step: &StepReport, field: &str) -> Option<String> {
    let shown = Step::further(job, step);
    let elapsed_s = shown.elapsed_ms() / 1000;
    // Not kept of a step that has ended.
    let is_placed = !step.placement.is_empty();
    let if_placed = |text: String| if is_placed { text } else { String::new() };
    let (nodes, processors) = (shown.nodes(), shown.processors());
    let cpu_time_s = elapsed_s.saturating_mul(processors.into());
    Some(match field {
        "JobID" => shown.shown_id(),
        "JobIDRaw" => format!("{}.{}", job.id(), shown.name),
        "JobName" => step.name.clone(),
        "NTasks" => step.tasks.to_string(),
        "AllocCPUS" | "NCPUS" | "ReqCPUS" => if_placed(processors.to_string()),
        "NNodes" | "AllocNodes" | "ReqNodes" => if_placed(nodes.len().to_string()),
        "NodeList" => if_placed(format_host_list(nodes)),
        "AllocTRES" => if_placed(format!("cpu={processors},node={}", nodes.len())),
        "State" => state(shown.state(), None),
        "ExitCode" => steps::exit_code(step),
        "Submit" | "Eligible" | "Start" if is_placed => {
            shown.started_ms().map_or_else(|| "Unknown".into(), moment)
        }
        "Submit" | "Eligible" | "Start" | "End" => "Unknown".into(),
        "Elapsed" => duration(elapsed_s),
        "ElapsedRaw" => elapsed_s.to_string(),
        "CPUTime" => if_placed(duration(cpu_time_s)),
        "CPUTimeRAW" => if_placed(cpu_time_s.to_string()),
        "TotalCPU" => cpu_time(step.cpu_ms.saturating_mul(1000)),
        "AveCPU" => duration(step.cpu_ms / 1000 / u64::from(step.tasks.max(1))),
        "UserCPU" | "SystemCPU" | "Suspended" => String::new(),
        _ => return None,
    })
}

fn cell<'a>(job: &'a Job, row: Row<'_>, field: &str) -> Cow<'a, str> {
    if let Row::Further(step) = row
        && let Some(text) = cell_of_step(job, step, field)
    {
        return text.into();
    }
    let report = &job.report;
    let is_job = row == Row::Job;
    match field {
        "JobID" | "JobIDRaw" => {
            let id = if field == "JobID" { job.shown_id() } else { job.id().to_string() };
            match (is_job, job.is_batch()) {
                (true, _) => id.into(),
                (false, true) => format!("{id}.batch").into(),
                (false, false) => format!("{id}.0").into(),
            }
        }
        "JobName" if !is_job && job.is_batch() => "batch".into(),
        "JobName" => report.name.as_str().into(),
        // These are a job's own.
        "Partition" | "User" | "UID" | "Timelimit" | "TimelimitRaw" | "QOS" | "Reason"
        | "WorkDir" | "ReqMem" | "Priority" | "StdOut" | "StdErr" | "SubmitLine"
        | "DerivedExitCode" | "ReqTRES" | "Group" | "GID" | "Planned" | "Reserved" | "Restarts"
            if !is_job =>
        {
            Cow::Borrowed("")
        }
        "Partition" => job.partition().into(),
        "Cluster" => tutti_client::slurm::cluster_name().into(),
        // A script runs on the first node of its job.
        "NodeList" if !is_job && job.is_batch() => {
            format_host_list(Step::first(job).nodes()).into()
        }
        "NNodes" | "AllocNodes" | "ReqNodes" if !is_job && job.is_batch() => "1".into(),
        "AllocCPUS" | "NCPUS" | "ReqCPUS" if !is_job && job.is_batch() => {
            Step::first(job).processors().to_string().into()
        }
        "AllocCPUS" if job.state == State::Pending => "0".into(),
        "AllocCPUS" | "NCPUS" | "ReqCPUS" => report.processors.to_string().into(),
        "NNodes" | "AllocNodes" | "ReqNodes" => job.node_count().to_string().into(),
        "NTasks" => {
            if is_job {
                Cow::Borrowed("")
            } else {
                report.tasks.to_string().into()
            }
        }
        "NodeList" => match format_host_list(job.nodes()) {
            nodes if nodes.is_empty() => "None assigned".into(),
            nodes => nodes.into(),
        },
        "AllocTRES" | "ReqTRES" => {
            format!("cpu={},node={}", report.processors, job.node_count()).into()
        }
        "State" => state(job.state, job.uid.filter(|_| is_job)).into(),
        "ExitCode" if is_job && job.state == State::Cancelled => "0:0".into(),
        "ExitCode" => job.exit_code().into(),
        "Account" => ACCOUNT.into(),
        _ => of_job(job, field)
            .or_else(|| time(job, field))
            .or_else(|| used(job, row, field))
            .or_else(|| detail(job, field))
            .map_or(Cow::Borrowed(""), Into::into),
    }
}

/// Moments and lengths of time.
fn time(job: &Job, field: &str) -> Option<String> {
    let at = |ms: Option<u64>| ms.map_or_else(|| "Unknown".to_owned(), moment);
    let report = &job.report;
    let cpu_time_s = job.elapsed_s().saturating_mul(report.processors.into());
    let limit = |shown: fn(u64) -> String| {
        report.time_limit_ms.map_or_else(|| "UNLIMITED".to_owned(), |ms| shown(ms / 1000))
    };
    Some(match field {
        "Submit" | "Eligible" => moment(job.submitted_ms),
        "Start" => at(job.started_ms),
        "End" => at(job.ended_ms),
        "Elapsed" => duration(job.elapsed_s()),
        "ElapsedRaw" => job.elapsed_s().to_string(),
        "Suspended" => duration(report.suspended_ms / 1000),
        "CPUTime" => duration(cpu_time_s),
        "CPUTimeRAW" => cpu_time_s.to_string(),
        "Timelimit" => limit(duration),
        "TimelimitRaw" => limit(|seconds| (seconds / 60).to_string()),
        _ => return None,
    })
}

/// What only a job has, and no step.
fn of_job(job: &Job, field: &str) -> Option<String> {
    Some(match field {
        "Restarts" => job.details.as_ref().map_or(0, |details| details.requeues).to_string(),
        "Reason" => match job.state {
            State::Pending => job.reason().into(),
            _ => "None".into(),
        },
        "Group" => job.group().map_or_else(String::new, |(name, _)| name),
        "GID" => job.group().map_or_else(String::new, |(_, gid)| gid.to_string()),
        "DerivedExitCode" => derived_exit_code(job),
        "Planned" | "Reserved" => duration(job.report.waited_ms / 1000),
        "User" => job.report.user.clone(),
        "UID" => job.uid.map_or_else(String::new, |uid| uid.to_string()),
        "QOS" => "normal".into(),
        "Priority" => "1".into(),
        _ => return None,
    })
}

/// The highest exit code of the steps that a job's script started.
fn derived_exit_code(job: &Job) -> String {
    let ended = job.steps.iter().filter(|step| step.exit_code.is_some());
    ended.max_by_key(|step| step.exit_code).map_or_else(|| "0:0".into(), steps::exit_code)
}

/// The state, with the user that cancelled where that is known.
fn state(state: State, uid: Option<u32>) -> String {
    match (state, uid) {
        (State::Cancelled, Some(uid)) => format!("CANCELLED by {uid}"),
        (state, _) => state.words().0.into(),
    }
}

/// Processor time in microseconds: `MM:SS.mmm`, or hours and more in whole seconds.
fn cpu_time(us: u64) -> String {
    match us / 1_000_000 {
        seconds if seconds >= 3_600 => duration(seconds),
        seconds => format!("{:02}:{:02}.{:03}", seconds / 60, seconds % 60, us / 1000 % 1000),
    }
}

/// What a job used. As Slurm has it, memory and I/O stand in the row of the step: of its first one
/// alone, since they are counted for the whole job.
fn used(job: &Job, row: Row<'_>, field: &str) -> Option<String> {
    let usage = job.report.usage.as_ref()?;
    let kib = |bytes: u64| format!("{}K", bytes >> 10);
    let is_step = row == Row::First;
    Some(match field {
        "TotalCPU" => cpu_time(usage.user_us.saturating_add(usage.system_us)),
        "UserCPU" => cpu_time(usage.user_us),
        "SystemCPU" => cpu_time(usage.system_us),
        "AveCPU" if is_step => {
            let all = usage.user_us.saturating_add(usage.system_us);
            duration(all / 1_000_000 / u64::from(job.report.tasks.max(1)))
        }
        "MaxRSS" | "AveRSS" | "MaxVMSize" | "AveVMSize" if is_step => kib(usage.memory_peak_bytes),
        "MaxDiskRead" if is_step => kib(usage.read_bytes),
        "MaxDiskWrite" if is_step => kib(usage.written_bytes),
        _ => return None,
    })
}

fn detail(job: &Job, field: &str) -> Option<String> {
    let details = job.details.as_ref()?;
    Some(match field {
        "WorkDir" => String::from_utf8_lossy(&details.directory).into_owned(),
        "StdOut" | "StdErr" => super::files(&job.report, details, field == "StdOut"),
        "SubmitLine" => details.command.join(" "),
        "ReqMem" => match details.asked.memory_per_task_bytes {
            Some(bytes) => format!("{}M", bytes >> 20),
            None => "0".into(),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{fields_of, iso_date, slurm_moment};
    use crate::slurm::options::{Order, read};
    use std::ffi::OsString;
    use tutti_node::platform::time::wall_ms;

    #[test]
    fn dates_are_taken_as_slurm_writes_them() {
        let date = |text: &str| iso_date(text, "2026-03-28T14:30:00");
        for (text, iso) in [
            ("03/28", "2026-03-28"),
            ("3/5", "2026-03-05"),
            ("11/29", "2025-11-29"),
            ("11/29/24", "2024-11-29"),
            ("11/29/2024", "2024-11-29"),
            ("11.29.24", "2024-11-29"),
            ("1129", "2025-11-29"),
            ("112924", "2024-11-29"),
            ("11/29/24-14:30", "2024-11-29T14:30"),
            ("0328-08:00:30", "2026-03-28T08:00:30"),
        ] {
            assert_eq!(date(text).as_deref(), Some(iso), "{text}");
        }
        for text in ["2026-03-28", "2026-03-28T14:30", "14:30", "today", "11/29/", "1/2/3/4", ""] {
            assert_eq!(date(text), None, "{text}");
        }
        assert!(slurm_moment("13/45").is_err() && slurm_moment("11/29").is_ok());
        assert!(slurm_moment("2026-03-28").is_ok() && slurm_moment("teatime").is_ok());
    }

    fn fields(words: &[&str]) -> Result<Vec<(&'static str, Option<isize>)>, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let line = read(super::OPTIONS, Order::Mixed, &words);
        let fields = fields_of(&line)?;
        Ok(fields.into_iter().map(|(field, width)| (field.0, width)).collect())
    }

    #[test]
    fn fields_have_any_case_and_a_width_on_either_side() {
        let wanted = [("JobIDRaw", None), ("State", Some(20)), ("NodeList", Some(-256))];
        assert_eq!(fields(&["--format=jobidraw,state%20", "-o", "nodelist%-256"]).unwrap(), wanted);
        assert!(fields(&["-o", "nosuch"]).is_err());
        assert_eq!(fields(&[]).unwrap().len(), 7);
    }

    #[test]
    fn times_are_read_as_sacct_reads_them() {
        let now = wall_ms();
        let near = |text: &str, ago_s: u64| {
            let at = slurm_moment(text).unwrap();
            at.abs_diff(now - ago_s * 1000) < 60_000
        };
        assert!(near("now", 0) && near("now-2hours", 7_200) && near("now-1days", 86_400));
        assert!(near("now-90", 90));
        for text in ["2026-03-28", "2026-03-28T14:30", "2026-03-28T14:30:05", "today", "14:30"] {
            assert!(slurm_moment(text).is_ok(), "{text}");
        }
        for text in ["now-x", "now*", "never", ""] {
            assert!(slurm_moment(text).is_err(), "{text}");
        }
    }
}
