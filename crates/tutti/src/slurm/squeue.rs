//! `squeue`.

use super::accounts::{ACCOUNT, QOS};
use super::format::{self, Piece, duration_short, moment};
use super::jobs::{self, Job, MIN_JOB_AGE_S, Named, State};
use super::json;
use super::options::{Known, Line, Order, flag, perhaps, read, value};
use super::steps::{self, NamedStep, Step};
use super::{print_version, wrong};
use std::borrow::Cow;
use std::ffi::OsString;
use tutti_client::output::{print, print_json};
use tutti_node::platform::time::wall_ms;
use tutti_wire::history::JobPart;
use tutti_wire::host_list::format_host_list;
use tutti_wire::show::JobDetails;
use tutti_wire::units::shown;

const NAME: &str = "squeue";

const OPTIONS: &[Known] = &[
    flag("all", Some('a')),
    value("account", Some('A')),
    value("clusters", Some('M')),
    flag("array", Some('r')),
    flag("array-unique", None),
    flag("federation", None),
    value("format", Some('o')),
    value("Format", Some('O')),
    flag("help", None),
    flag("hide", None),
    value("iterate", Some('i')),
    value("jobs", Some('j')),
    flag("json", None),
    value("licenses", Some('L')),
    flag("local", None),
    flag("long", Some('l')),
    flag("me", None),
    value("name", Some('n')),
    flag("noconvert", None),
    flag("noheader", Some('h')),
    value("nodelist", Some('w')),
    flag("notme", None),
    flag("only-job-state", None),
    value("partition", Some('p')),
    flag("priority", Some('P')),
    value("qos", Some('q')),
    value("reservation", Some('R')),
    flag("sibling", None),
    value("sort", Some('S')),
    flag("start", None),
    value("states", Some('t')),
    perhaps("steps", Some('s')),
    flag("usage", None),
    value("user", Some('u')),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
    flag("yaml", None),
];

const HELP: &str = "\
squeue: list jobs in the columns of Slurm's squeue; `tutti ps` shows more.

  squeue                          jobs that have not ended
  squeue --me -t all              yours, with those that ended lately
  squeue -j 7,8 -h -o '%i %T %R'  two jobs, in columns of your own
  squeue -O JobID,State:12        columns by name
  squeue -s -j 7                  the steps of job 7 that run; -s 7.0: one step
  squeue -r -i 10                 a line for each element of arrays, every 10 s
  squeue --json                   as Slurm's JSON, with the fields programs read

Which jobs: -j/--jobs, -u/--user, --me, -n/--name, -p/--partition, -t/--states,
-w/--nodelist, -A/--account, -q/--qos, -R/--reservation (there are none).
How: -h/--noheader, -l/--long, -o/--format, -O/--Format, -S/--sort, --start,
-r/--array, -i/--iterate. Ended jobs are listed for 300 seconds, with -t.
SQUEUE_FORMAT, SQUEUE_FORMAT2, SQUEUE_STATES, SQUEUE_USERS, SQUEUE_ACCOUNT,
SQUEUE_QOS and SLURM_TIME_FORMAT count.
";

const DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";

/// A column: its letter, its names for `-O` and its heading.
type Column = &'static (Option<char>, &'static [&'static str], &'static str);

/// All columns; the first name is what [`cell`] knows.
const COLUMNS: &[(Option<char>, &[&str], &str)] = &[
    (Some('i'), &["jobid", "jobarrayid"], "JOBID"),
    (Some('A'), &["jobidraw"], "JOBID"),
    (Some('F'), &["arrayjobid"], "ARRAY_JOB_ID"),
    (Some('K'), &["arraytaskid"], "ARRAY_TASK_ID"),
    (Some('P'), &["partition"], "PARTITION"),
    (Some('j'), &["name"], "NAME"),
    (Some('u'), &["username"], "USER"),
    (Some('U'), &["userid"], "UID"),
    (Some('g'), &["groupname"], "GROUP"),
    (Some('G'), &["groupid"], "GROUP"),
    (Some('t'), &["statecompact"], "ST"),
    (Some('T'), &["state"], "STATE"),
    (Some('M'), &["timeused"], "TIME"),
    (Some('l'), &["timelimit"], "TIME_LIMIT"),
    (Some('L'), &["timeleft"], "TIME_LEFT"),
    (Some('D'), &["numnodes"], "NODES"),
    (Some('C'), &["numcpus"], "CPUS"),
    (None, &["numtasks"], "TASKS"),
    (Some('R'), &["reasonlist"], "NODELIST(REASON)"),
    (Some('N'), &["nodelist"], "NODELIST"),
    (Some('r'), &["reason"], "REASON"),
    (Some('B'), &["batchhost"], "EXEC_HOST"),
    (Some('S'), &["starttime"], "START_TIME"),
    (Some('e'), &["endtime"], "END_TIME"),
    (Some('V'), &["submittime"], "SUBMIT_TIME"),
    (Some('a'), &["account"], "ACCOUNT"),
    (Some('q'), &["qos"], "QOS"),
    (Some('Q'), &["priority", "prioritylong"], "PRIORITY"),
    (Some('p'), &["prioritynormal"], "PRIORITY"),
    (Some('m'), &["minmemory"], "MIN_MEMORY"),
    (Some('c'), &["mincpus"], "MIN_CPUS"),
    (Some('d'), &["mintmpdisk"], "MIN_TMP_DISK"),
    (Some('o'), &["command"], "COMMAND"),
    (Some('Z'), &["workdir"], "WORK_DIR"),
    (Some('k'), &["comment"], "COMMENT"),
    (Some('E'), &["dependency"], "DEPENDENCY"),
    (Some('f'), &["feature"], "FEATURES"),
    (Some('n'), &["reqnodes"], "REQ_NODES"),
    (Some('x'), &["excnodes"], "EXC_NODES"),
    (Some('v'), &["reservation"], "RESERVATION"),
    (Some('w'), &["wckey"], "WCKEY"),
    (Some('y'), &["nice"], "NICE"),
    (Some('h'), &["oversubscribe"], "OVER_SUBSCRIBE"),
    (Some('H'), &["sockets"], "SOCKETS"),
    (Some('I'), &["cores"], "CORES"),
    (Some('J'), &["threads"], "THREADS"),
    (Some('O'), &["contiguous"], "CONTIGUOUS"),
    (Some('s'), &["selectjobinfo"], "SELECT_JOBINFO"),
    (Some('X'), &["corespec"], "CORE_SPEC"),
    (Some('Y'), &["schednodes"], "SCHEDNODES"),
    (Some('z'), &["sct"], "S:C:T"),
    (Some('b'), &["tres-per-node", "gres"], "TRES_PER_NODE"),
    (Some('W'), &["licenses"], "LICENSES"),
    (None, &["stdout"], "STDOUT"),
    (None, &["stderr"], "STDERR"),
    (None, &["exit_code"], "EXIT_CODE"),
    (None, &["restartcnt"], "RESTARTCNT"),
    (None, &["cluster"], "CLUSTER"),
    (None, &["tres-alloc"], "TRES_ALLOC"),
];

/// Columns whose cells need more than a list of jobs has.
const DETAILED: [&str; 11] = [
    "dependency",
    "restartcnt",
    "minmemory",
    "mincpus",
    "command",
    "workdir",
    "reqnodes",
    "excnodes",
    "nice",
    "stdout",
    "stderr",
];

/// Columns whose cells need the nodes of a job.
const PLACED: [&str; 5] = ["nodelist", "batchhost", "reasonlist", "numnodes", "tres-alloc"];

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
    let of_steps = line.has("steps");
    let steps = steps_of(&mut line);
    if let Some(word) = line.rest.first() {
        line.problems.push(format!("Unrecognized option: {}", word.to_string_lossy()));
    }
    if line.has("yaml") {
        line.problems.push("--yaml is not available; --json has the same fields".into());
    }
    let every = line.last("iterate").map(seconds_of).transpose();
    let every = every.unwrap_or_else(|problem| {
        line.problems.push(problem);
        None
    });
    if of_steps && line.has("json") {
        line.problems.push("--json is not available with -s; `sacct --json` lists steps".into());
    }
    if of_steps {
        return repeated(every, || list_steps(&steps, line.clone()));
    }
    let columns = format_of(&line).map_err(|problem| line.problems.push(problem));
    let which = Which::of(&line).map_err(|problem| line.problems.push(problem));
    let (Ok(columns), Ok(which), true) = (columns, which, line.problems.is_empty()) else {
        return Ok(wrong(NAME, &line.problems));
    };
    repeated(every, || list_jobs(&which, &columns, &line))
}

/// The value of `--iterate`.
fn seconds_of(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| format!("--iterate={}: write seconds, 1 to 86400", shown(text)))
}

/// What stands above a list.
fn above(line: &Line) -> String {
    let is_dated = ["iterate", "long", "verbose"].iter().any(|name| line.has(name));
    let date = if is_dated && !line.has("noheader") { format::date_line() } else { String::new() };
    date + &line.cluster_heading()
}

/// Does it once; or time and again until it fails.
fn repeated(every: Option<u64>, once: impl Fn() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    let Some(seconds) = every else { return once() };
    loop {
        let exit = once()?;
        if exit != 0 {
            return Ok(exit);
        }
        print("\n")?;
        std::thread::sleep(std::time::Duration::from_secs(seconds));
    }
}

/// Prints the jobs that are asked for.
fn list_jobs(which: &Which, columns: &[Piece<Column>], line: &Line) -> anyhow::Result<u8> {
    let by_node = if line.has("nodelist") { JobPart::Places } else { JobPart::Table };
    let part = part_of(columns, line.has("json")).max(by_node);
    let Some(mut jobs) = found(which, part)? else {
        say!("slurm_load_jobs error: Invalid job id specified");
        return Ok(1);
    };
    sort(&mut jobs, line.last("sort").or(line.has("start").then_some("S")));
    if line.has("array") {
        jobs = jobs.into_iter().flat_map(Job::unfolded).collect();
    }
    let needs_more = |job: &&mut Job| part == JobPart::All || job.state.has_ended();
    jobs::add_details(jobs.iter_mut().filter(needs_more), part)?;
    if line.has("json") {
        print_json(&json::of_squeue(&jobs))?;
    } else {
        let table = table(&jobs, columns, !line.has("noheader"));
        print(&(above(line) + &table))?;
    }
    if !line.has("iterate") {
        // This process ends; see `sacct`.
        std::mem::forget(jobs);
    }
    Ok(0)
}

/// The steps that are named: behind `-s`, as its value or as further words.
fn steps_of(line: &mut Line) -> Vec<NamedStep> {
    let mut words = line.items("steps");
    if line.has("steps") && words.is_empty() {
        let rest = std::mem::take(&mut line.rest);
        let all = rest.iter().map(|word| word.to_string_lossy().into_owned());
        words = all.flat_map(|it| it.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    }
    let mut steps = Vec::new();
    for word in words {
        match NamedStep::of(&word) {
            Some(step) => steps.push(step),
            None => line.problems.push(format!("Invalid job step id: {word}")),
        }
    }
    steps
}

const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";

/// The columns of steps, as [`COLUMNS`].
const STEP_COLUMNS: &[(Option<char>, &[&str], &str)] = &[
    (Some('i'), &["stepid"], "STEPID"),
    (Some('j'), &["stepname", "name"], "NAME"),
    (Some('P'), &["partition"], "PARTITION"),
    (Some('u'), &["username"], "USER"),
    (Some('U'), &["userid"], "UID"),
    (Some('M'), &["timeused"], "TIME"),
    (Some('l'), &["timelimit"], "TIME_LIMIT"),
    (Some('N'), &["nodelist", "nodes"], "NODELIST"),
    (Some('S'), &["starttime"], "START_TIME"),
    (Some('A'), &["numtasks"], "TASKS"),
    (Some('C'), &["numcpus"], "CPUS"),
    (Some('b'), &["tres-per-node"], "TRES_PER_NODE"),
    (Some('F'), &["arrayjobid"], "ARRAY_JOB_ID"),
    (Some('K'), &["arraytaskid"], "ARRAY_TASK_ID"),
    (None, &["jobid"], "JOBID"),
    (None, &["stepstate"], "STATE"),
];

/// `squeue -s`: steps that run.
fn list_steps(named: &[NamedStep], mut line: Line) -> anyhow::Result<u8> {
    let columns = step_format_of(&line).map_err(|problem| line.problems.push(problem));
    let which = Which::of(&line).map_err(|problem| line.problems.push(problem));
    let (Ok(columns), Ok(which), true) = (columns, which, line.problems.is_empty()) else {
        return Ok(wrong(NAME, &line.problems));
    };
    let mut jobs = jobs::listed(None, None, JobPart::Table)?;
    let is_named = |job: &Job| named.is_empty() || named.iter().any(|it| it.jobs.has(job));
    jobs.retain(|job| !job.report.is_whole_array() && which.has(job) && is_named(job));
    jobs.sort_by_key(Job::id);
    let jobs = steps::with_steps(jobs)?;
    let mut text = above(&line);
    if !line.has("noheader") {
        format::fill(&mut text, &columns, |column| column.2);
        text.push('\n');
    }
    let all = jobs.iter().flat_map(steps::running);
    for step in all.filter(|step| named.is_empty() || named.iter().any(|it| it.has(step))) {
        format::fill(&mut text, &columns, |column| step_cell(&step, column.1[0]));
        text.push('\n');
    }
    print(&text)?;
    Ok(0)
}

fn step_format_of(line: &Line) -> Result<Vec<Piece<Column>>, String> {
    let letter = |c| STEP_COLUMNS.iter().find(|(letter, ..)| *letter == Some(c));
    let name = |name: &str| {
        let name = name.to_ascii_lowercase();
        STEP_COLUMNS.iter().find(|(_, names, _)| names.contains(&&*name))
    };
    let last = line.given.iter().rev().find(|it| ["format", "Format"].contains(&it.name));
    match last.map(|it| (it.name, it.value.as_deref().unwrap_or_default())) {
        Some(("Format", names)) => format::names(names, name),
        Some((_, letters)) => format::letters(letters, letter),
        None => format::letters(STEPS, letter),
    }
}

fn step_cell(step: &Step<'_>, column: &str) -> String {
    match column {
        "stepid" => step.shown_id(),
        "stepname" => step.title().to_owned(),
        "timeused" => duration_short(step.elapsed_ms() / 1000),
        "timelimit" => "UNLIMITED".into(),
        "nodelist" => format_host_list(step.nodes()),
        "starttime" => step.started_ms().map_or_else(|| "N/A".into(), moment),
        "numtasks" => step.tasks().to_string(),
        "numcpus" => step.processors().to_string(),
        "stepstate" => step.state().words().0.into(),
        of_job => cell(step.job, of_job).into_owned(),
    }
}

fn format_of(line: &Line) -> Result<Vec<Piece<Column>>, String> {
    let letter = |c| COLUMNS.iter().find(|(letter, ..)| *letter == Some(c));
    let name = |name: &str| {
        let name = name.to_ascii_lowercase();
        COLUMNS.iter().find(|(_, names, _)| names.contains(&&*name))
    };
    let last = line.given.iter().rev().find(|it| ["format", "Format"].contains(&it.name));
    if let Some((option, Some(format))) = last.map(|it| (it.name, it.value.as_ref())) {
        return match option {
            "format" => format::letters(format, letter),
            _ => format::names(format, name),
        };
    }
    let set = |name: &str| std::env::var(name).ok().filter(|format| !format.is_empty());
    match (line.has("long"), line.has("start")) {
        (true, _) => format::letters(LONG, letter),
        (_, true) => format::letters(START, letter),
        _ => match (set("SQUEUE_FORMAT"), set("SQUEUE_FORMAT2")) {
            (Some(format), _) => format::letters(&format, letter),
            (None, Some(format)) => format::names(&format, name),
            (None, None) => format::letters(DEFAULT, letter),
        },
    }
}

/// Which jobs are listed.
#[derive(Debug, Default)]
struct Which {
    jobs: Vec<Named>,
    /// `None`: those that have not ended.
    states: Option<Vec<State>>,
    all_states: bool,
    users: Vec<String>,
    not_user: Option<String>,
    names: Vec<String>,
    partitions: Vec<String>,
    nodes: Vec<String>,
    /// Whether accounts, QOS or reservations are asked for that no job has.
    none: bool,
}

impl Which {
    fn of(line: &Line) -> Result<Self, String> {
        let mut which = Self::default();
        for item in line.items("jobs") {
            which.jobs.push(Named::of(&item).ok_or(format!("Invalid job id: {item}"))?);
        }
        let set = |name: &str| std::env::var(name).unwrap_or_default();
        let or_set = |option: &str, variable: &str| match line.items(option) {
            items if items.is_empty() => {
                set(variable).split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect()
            }
            items => items,
        };
        let mut states = or_set("states", "SQUEUE_STATES");
        if line.has("start") {
            states = vec!["PENDING".into()];
        }
        if !states.is_empty() {
            which.states = jobs::states(&states)?;
            which.all_states = which.states.is_none();
        }
        which.users = or_set("user", "SQUEUE_USERS").iter().map(|user| name_of(user)).collect();
        for user in &which.users {
            if user.parse::<u32>().is_err() && !is_user(user) {
                say!("{NAME}: error: Invalid user: {}", format::plain(user));
            }
        }
        if line.has("me") {
            which.users = vec![own_name()];
        }
        which.not_user = line.has("notme").then(own_name);
        which.names = line.items("name");
        which.partitions = or_set("partition", "SQUEUE_PARTITION");
        let lacks = |list: Vec<String>, only: &str| {
            !list.is_empty() && !list.iter().any(|it| it.eq_ignore_ascii_case(only))
        };
        // All jobs have the one account and the one QOS, and none is in a reservation.
        which.none = lacks(or_set("account", "SQUEUE_ACCOUNT"), ACCOUNT)
            || lacks(or_set("qos", "SQUEUE_QOS"), QOS)
            || line.has("reservation");
        if let Some(list) = line.last("nodelist") {
            which.nodes = super::hosts::unfolded(list)?;
        }
        Ok(which)
    }

    fn has(&self, job: &Job) -> bool {
        let listed =
            |list: &[String], name: &str| list.is_empty() || list.iter().any(|it| it == name);
        let state = match &self.states {
            Some(states) => states.contains(&job.state),
            // A job that is named is shown in any state: it is there.
            None => self.all_states || !job.state.has_ended(),
        };
        state
            && !self.none
            && (self.jobs.is_empty() || self.jobs.iter().any(|it| it.has(job)))
            && listed(&self.users, &job.report.user)
            && self.not_user.as_ref().is_none_or(|user| *user != job.report.user)
            && listed(&self.names, &job.report.name)
            && listed(&self.partitions, job.partition())
            && (self.nodes.is_empty()
                || job.nodes().iter().any(|node| self.nodes.iter().any(|it| it == node)))
    }
}

fn is_user(name: &str) -> bool {
    nix::unistd::User::from_name(name).is_ok_and(|user| user.is_some())
}

/// The user's name, of a name or number.
pub(super) fn name_of(user: &str) -> String {
    let number = user.parse().ok().map(nix::unistd::Uid::from_raw);
    let found = number.and_then(|uid| nix::unistd::User::from_uid(uid).ok().flatten());
    found.map_or_else(|| user.to_owned(), |user| user.name)
}

/// The name of the user that asks.
pub(super) fn own_name() -> String {
    name_of(&nix::unistd::geteuid().to_string())
}

/// The jobs; `None` if one alone is asked for by its number, and there is none.
fn found(which: &Which, part: JobPart) -> anyhow::Result<Option<Vec<Job>>> {
    let wants_ended = which.all_states
        || which.states.as_ref().is_some_and(|states| states.iter().any(|it| it.has_ended()))
        || !which.jobs.is_empty();
    let since = wants_ended.then(|| wall_ms().saturating_sub(MIN_JOB_AGE_S * 1000));
    let names_few = (1..=jobs::FEW).contains(&which.jobs.len());
    let mut jobs = jobs::listed(since, None, if names_few { JobPart::Table } else { part })?;
    jobs.retain(|job| !job.is_shown_by_elements());
    if let [only] = &which.jobs[..]
        && !jobs.iter().any(|job| only.has(job))
    {
        return Ok(None);
    }
    jobs.retain(|job| which.has(job));
    Ok(Some(jobs))
}

/// Sorts by letters such as `-t,i`; as squeue does by itself without any.
fn sort(jobs: &mut [Job], by: Option<&str>) {
    let Some(by) = by else {
        let key = |job: &Job| (std::cmp::Reverse(job.state), job.id());
        jobs.sort_by(|a, b| (a.partition(), key(a)).cmp(&(b.partition(), key(b))));
        return;
    };
    let letters = by.split(',').flat_map(|item| {
        let down = item.starts_with('-');
        item.trim_start_matches(['-', '+']).chars().map(move |letter| (letter, down))
    });
    for (letter, down) in letters.collect::<Vec<_>>().into_iter().rev() {
        let key = |job: &Job| -> (u64, String) {
            match letter {
                'i' | 'A' | 'F' => (job.id().0, String::new()),
                'M' => (job.elapsed_s(), String::new()),
                'S' => (job.started_ms.unwrap_or(u64::MAX), String::new()),
                'V' => (job.submitted_ms, String::new()),
                'D' => (job.node_count() as u64, String::new()),
                'C' => (job.report.processors.into(), String::new()),
                _ => {
                    let column = COLUMNS.iter().find(|(it, ..)| *it == Some(letter));
                    (
                        0,
                        column.map_or(String::new(), |(_, names, _)| {
                            cell(job, names[0]).into_owned()
                        }),
                    )
                }
            }
        };
        jobs.sort_by_cached_key(key);
        if down {
            jobs.reverse();
        }
    }
}

/// How much of jobs the output needs, of those that have ended: a list has the places of others.
fn part_of(columns: &[Piece<Column>], json: bool) -> JobPart {
    let has = |names: &[&str]| {
        let named = |piece: &Piece<Column>| match piece {
            Piece::Field { field, .. } => names.contains(&field.1[0]),
            Piece::Text(_) => false,
        };
        columns.iter().any(named)
    };
    match json || has(&DETAILED) {
        true => JobPart::All,
        false if has(&PLACED) => JobPart::Places,
        false => JobPart::Table,
    }
}

fn table(jobs: &[Job], columns: &[Piece<Column>], header: bool) -> String {
    let mut text = String::new();
    if header {
        format::fill(&mut text, columns, |column| column.2);
        text.push('\n');
    }
    for job in jobs {
        format::fill(&mut text, columns, |column| cell(job, column.1[0]));
        text.push('\n');
    }
    text
}

fn cell<'a>(job: &'a Job, column: &str) -> Cow<'a, str> {
    let report = &job.report;
    let nodes = || format_host_list(job.nodes());
    let at = |ms: Option<u64>| ms.map_or_else(|| "N/A".to_owned(), moment);
    match column {
        "jobid" => job.shown_id().into(),
        "jobidraw" => job.id().to_string().into(),
        "arrayjobid" => job.array().map_or_else(|| job.id(), |(array, _)| array).to_string().into(),
        "arraytaskid" | "mintmpdisk" | "priority" => match column {
            "arraytaskid" => job.array().map_or_else(|| "N/A".into(), |(_, task)| task.into()),
            "priority" => "1".into(),
            _ => "0".into(),
        },
        "prioritynormal" => "0.00000000023283".into(),
        "partition" => job.partition().into(),
        "name" => report.name.as_str().into(),
        "username" => report.user.as_str().into(),
        "userid" => {
            job.uid.map_or_else(|| report.user.as_str().into(), |uid| uid.to_string().into())
        }
        "groupname" | "groupid" => group(job, column == "groupname").into(),
        "statecompact" => job.state.words().1.into(),
        "state" => job.state.words().0.into(),
        "timeused" => duration_short(job.elapsed_s()).into(),
        "timelimit" => {
            report.time_limit_ms.map_or("UNLIMITED".into(), |ms| duration_short(ms / 1000).into())
        }
        "timeleft" => {
            report.time_left_ms.map_or("UNLIMITED".into(), |ms| duration_short(ms / 1000).into())
        }
        "numnodes" => job.node_count().to_string().into(),
        "numcpus" => report.processors.to_string().into(),
        "numtasks" => report.slots.unwrap_or(report.tasks).to_string().into(),
        "reasonlist" => match nodes() {
            nodes if nodes.is_empty() || job.is_listed_by_reason() => {
                format!("({})", job.reason()).into()
            }
            nodes => nodes.into(),
        },
        "nodelist" => nodes().into(),
        "reason" => job.reason().into(),
        "batchhost" => job.nodes().first().map_or("n/a".into(), |node| (*node).to_owned().into()),
        "starttime" => at(job.started_ms).into(),
        "endtime" => at(job.ended_ms.or_else(|| job.expected_end_ms())).into(),
        "submittime" => moment(job.submitted_ms).into(),
        "account" => ACCOUNT.into(),
        "qos" => QOS.into(),
        "oversubscribe" => "FORCE".into(),
        "contiguous" => "0".into(),
        "sockets" | "cores" | "threads" => "*".into(),
        "sct" => "*:*:*".into(),
        "exit_code" => report.exit_code.unwrap_or(0).to_string().into(),
        "cluster" => tutti_client::slurm::cluster_name().into(),
        "corespec" | "tres-per-node" => "N/A".into(),
        "licenses" => super::or_null(report.resources.join(",")).into(),
        "tres-alloc" => format!("cpu={},node={}", report.processors, job.node_count()).into(),
        _ => match &job.details {
            Some(details) => detail(job, details, column).into(),
            None => "(null)".into(),
        },
    }
}

fn group(job: &Job, by_name: bool) -> String {
    let shown = |(name, gid): (String, u32)| if by_name { name } else { gid.to_string() };
    job.group().map_or_else(|| "(null)".into(), shown)
}

fn detail(job: &Job, details: &JobDetails, column: &str) -> String {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    match column {
        "minmemory" => match details.asked.memory_per_task_bytes {
            Some(bytes) => format!("{}M", bytes >> 20),
            None => "0".into(),
        },
        "mincpus" => details.asked.processors_per_task.unwrap_or(1).to_string(),
        "command" => job.command(),
        "dependency" => super::or_null(job.dependency()),
        "workdir" => String::from_utf8_lossy(&details.directory).into_owned(),
        "reqnodes" => text(&details.asked.only),
        "excnodes" => text(&details.asked.exclude),
        "restartcnt" => details.requeues.to_string(),
        "nice" => details.nice.to_string(),
        "stdout" | "stderr" => super::files(&job.report, details, column == "stdout"),
        _ => "(null)".into(),
    }
}
