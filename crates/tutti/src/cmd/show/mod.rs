//! `tutti show`: one job by its number, with all that is known of it.

mod json;

use super::ask_of_the_past;
use super::job_range::{Several, live_jobs, targets_of, whole_jobs};
use super::list::{class, turn, whereabouts};
use super::when;
use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::colours::{Mark, of_state, on_stdout, painted};
use tutti_client::output::{account, counted, plain, print, print_json};
use tutti_node::calendar::{local_clock, local_time};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::output_files::file_name;
use tutti_node::say::is_order;
use tutti_types::{JobId, Nanos, NoRespawn, OnBadExit, OnNodeLoss};
use tutti_wire::code::Code;
use tutti_wire::history::Ending;
use tutti_wire::launch::{Stdio, Usage};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, StartReport};
use tutti_wire::show::{Asked, CheckpointReport, JobDetails, ShowReport};
use tutti_wire::units::{format_bytes, format_duration_short, format_seconds};

const EXAMPLES: &str = "\
Examples:
  tutti show 7                 job 7: its command, nodes, limits, files, states
  tutti show last              your latest job
  tutti show solver --env      your job of this name, with its environment
  tutti show --user ada        each job of ada that has not ended
  tutti show 7 --json          for programs";

/// What there is to say of a start that is still computed.
const NOT_FORESEEN_YET: &str = "not known within two seconds; `tutti ps --start` waits for it";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Also the environment with which the job was submitted; only of your own jobs that have not
    /// ended
    #[arg(long)]
    env: bool,

    /// As JSON; docs/reference/json.md has the fields
    #[arg(long)]
    json: bool,

    /// All jobs of yours that have not ended; for root, the jobs of all users
    #[arg(short, long, conflicts_with = "jobs")]
    all: bool,

    /// All jobs of this user that have not ended, by name or number
    #[arg(short, long, conflicts_with_all = ["jobs", "all"])]
    user: Option<String>,

    /// Jobs, ranges of jobs, names of your jobs, or `last`: 7, 3-9, solver
    #[arg(value_name = "JOB", required_unless_present_any = ["all", "user"], value_parser = whole_jobs)]
    jobs: Vec<Several>,
}

pub(crate) fn execute(args: &ShowArgs) -> anyhow::Result<Exit> {
    let targets = match args.jobs.is_empty() {
        true => live_jobs(args.user.as_deref())?,
        false => targets_of(&args.jobs, true)?,
    };
    let mut reports = Vec::new();
    for target in targets {
        reports.push(ask_for_all(target.job, args.env)?);
    }
    let in_line = reports.iter().filter(|(report, _)| is_in_line(report));
    let starts = when::starts_of(&in_line.map(|(report, _)| report.job.job).collect());
    if args.json {
        let shown = reports
            .iter()
            .map(|(report, used)| json::Shown::of(report, used, starts.get(&report.job.job)));
        print_json(&shown.collect::<Vec<_>>())?;
        return Ok(Exit::OK);
    }
    if reports.is_empty() {
        say!("tutti: there is no job that has not ended; `tutti history` lists those that have");
    }
    for (number, (report, used)) in reports.iter().enumerate() {
        let gap = if number == 0 { "" } else { "\n" };
        let lines = text_to_show(report, used);
        let lines = lines.lines().map(|line| match on_stdout() {
            true => painted(line, &marks_of(line)) + "\n",
            false => format!("{line}\n"),
        });
        print(&format!("{gap}{}", lines.collect::<String>()))?;
        if is_in_line(report) {
            print(&expected_line(starts.get(&report.job.job)))?;
        }
    }
    if args.env && reports.iter().any(|(report, _)| report.environment.is_none()) {
        let reason = "the environment of a job is kept until it ends, and is not known any more";
        return Err(coded(Code::JobEnded, reason));
    }
    Ok(Exit::OK)
}

/// Whether it has a place in line, so that its start can be foreseen.
const fn is_in_line(report: &ShowReport) -> bool {
    report.job.position.is_some()
}

/// When it is expected to start and to end.
fn expected_line(start: Option<&StartReport>) -> String {
    let mut line = Lines(String::new());
    line.add("expected", start.map_or(NOT_FORESEEN_YET.into(), when::expected));
    line.0
}

/// What a live job has used on each node.
pub(super) type ByNode = Vec<(String, Usage)>;

/// One job, with what it has used so far, also on each node.
fn ask_for_all(job: JobId, environment: bool) -> anyhow::Result<(ShowReport, ByNode)> {
    let mut report = ask_to_show(job, environment)?;
    let mut used = ByNode::new();
    if report.ended_ms.is_none() {
        report.job.usage = usage_so_far(job);
        if report.started_ms.is_some()
            && let Ok(Reply::UsageByNode { nodes }) = ask(&Request::UsageByNode { job })
        {
            used = nodes;
        }
    }
    Ok((report, used))
}

/// One job, as an element of what `tutti show --json` prints.
#[cfg(feature = "web")]
pub(super) fn json_of(job: JobId) -> anyhow::Result<String> {
    let (report, used) = ask_for_all(job, false)?;
    Ok(serde_json::to_string(&json::Shown::of(&report, &used, None))?)
}

/// What `tutti show` prints of a job.
pub(super) fn text_to_show(report: &ShowReport, used: &[(String, Usage)]) -> String {
    without_orders(&text_of(report, used))
}

/// The colour of the state in its line of [`text_to_show`].
pub(super) fn marks_of(line: &str) -> Vec<Mark> {
    let Some(state) = line.strip_prefix("  state      ") else { return Vec::new() };
    let count = state.chars().take_while(|c| !matches!(c, ',' | ':' | ' ')).count();
    let mark = |paint| Mark { from: line.len() - state.len(), count, paint };
    of_state(state).map(mark).into_iter().collect()
}

/// One job, from the controller or from the journal of an instance that is gone.
pub(super) fn ask_to_show(job: JobId, environment: bool) -> anyhow::Result<ShowReport> {
    match ask_of_the_past(&Request::Show { job, environment })? {
        Reply::Show(report) => Ok(*report),
        _ => unexpected(),
    }
}

/// What a live job has used; `None` if its nodes do not answer.
fn usage_so_far(job: JobId) -> Option<Usage> {
    let Ok(Reply::Jobs { jobs, .. }) = ask(&Request::JobsWithUsage { from: job }) else {
        return None;
    };
    jobs.into_iter().find(|report| report.job == job)?.usage
}

/// Names are anything that a user can type.
fn without_orders(text: &str) -> String {
    text.chars().map(|c| if is_order(c) && c != '\n' { '?' } else { c }).collect()
}

/// Lines of a key and a value.
struct Lines(String);

impl Lines {
    fn add(&mut self, key: &str, value: impl AsRef<str>) {
        for (number, line) in value.as_ref().lines().enumerate() {
            let key = if number == 0 { key } else { "" };
            self.0.push_str(&format!("  {key:<10} {line}\n"));
        }
    }
}

fn text_of(report: &ShowReport, used: &[(String, Usage)]) -> String {
    let job = &report.job;
    // A name with a line end must not pass for other lines.
    let name = plain(&job.name);
    let element = match &job.array {
        Some(array) if array.index.is_some() => format!(", element {}", job.shown_id()),
        Some(_) | None => String::new(),
    };
    let title =
        format!("job {} ({name}{element}) of {}, class {}\n", job.job, job.user, class(job));
    let mut lines = Lines(title);
    lines.add("state", state(report));
    lines.add("", &job.detail);
    if let Some(details) = &report.details {
        add_what_runs(&mut lines, job, details);
        lines.add("asked", asked(job, &details.asked));
        if let Some(it) = &details.checkpoint {
            lines.add("checkpoint", checkpoint(it));
        }
    } else {
        lines.add("asked", slots(job));
    }
    lines.add("queue", job.queue.as_deref().unwrap_or_default());
    lines.add("resources", job.resources.join(", "));
    lines.add("shared", shared_devices(&report.shares_devices_with));
    lines.add("front end", report.front_end.as_deref().unwrap_or_default());
    lines.add("nodes", nodes(report));
    lines.add("in use", in_use(report));
    lines.add("limit", limit(job));
    lines.add("deadline", deadline(job));
    lines.add("time", time(job));
    lines.add("used", used_in_all(job));
    lines.add("", used_by_node(used));
    let moments = [
        ("submitted", Some(report.accepted_ms)),
        ("started", report.started_ms),
        ("ended", report.ended_ms),
    ];
    for (key, moment) in moments {
        lines.add(key, moment.map(moment_text).unwrap_or_default());
    }
    if let Some(details) = &report.details {
        lines.add("states", states(details));
    }
    lines.add("steps", steps(report));
    for text in report.environment.iter().flatten() {
        lines.add("env", String::from_utf8_lossy(text));
    }
    lines.0
}

fn add_what_runs(lines: &mut Lines, job: &JobReport, details: &JobDetails) {
    let mut command = details.command.join(" ");
    if details.command_left_out > 0 {
        command.push_str(&format!(" ... and {} more arguments", details.command_left_out));
    }
    if let Some(bytes) = details.script_bytes {
        command.push_str(&format!(" (a script of {bytes} bytes)"));
    }
    lines.add("command", command);
    lines.add("directory", String::from_utf8_lossy(&details.directory));
    match &details.stdio {
        Stdio::FrontEnd { .. } => lines.add("output", "to the `tutti run` that started it"),
        Stdio::Kept => lines.add("output", "where its processes had it when they were adopted"),
        Stdio::Files { input, output, error, .. } => {
            lines.add("output", file_name(output, job, details));
            if let Some(error) = error.as_ref().filter(|error| *error != output) {
                lines.add("error", file_name(error, job, details));
            }
            if let Some(input) = input {
                lines.add("input", file_name(input, job, details));
            }
        }
    }
}

/// The state, with what it is due to.
fn state(report: &ShowReport) -> String {
    let job = &report.job;
    if let (Some(ending), Some(code)) = (report.ending, job.exit_code) {
        let mut text = format!("{}, exit {code}", ending.word());
        // Which node it was, which job, or what the site's policy said.
        if matches!(ending, Ending::Lost | Ending::NeverStarted) && !job.reason.is_empty() {
            text.push_str(&format!(": {}", job.reason));
        }
        return job.code.map_or(text.clone(), |code| code.mark(&text));
    }
    if job.is_whole_array() {
        return format!("{}: {}", job.state, whereabouts(job));
    }
    let mut text = job.state.clone();
    if job.row.is_some() {
        text.push_str(&format!(", turn: {}", turn(job)));
    }
    if !job.reason.is_empty() {
        text.push_str(&format!(": {}", job.reason));
    }
    if !job.suspended.is_empty() {
        text.push_str(&format!(" ({} suspended)", job.suspended.join(", ")));
    }
    if let Some(ends_s) = job.ends_s {
        text.push_str(&format!("; expected to end in {}", format_seconds(ends_s)));
    }
    text
}

fn asked(job: &JobReport, asked: &Asked) -> String {
    let mut words = vec![slots(job)];
    if let Some(count) = asked.processors_per_task {
        words.push(format!("{} each", counted(count, "processor")));
    }
    if let Some(bytes) = asked.memory_per_task_bytes {
        words.push(format!("{} of memory each", format_bytes(bytes)));
    }
    if let Some(count) = asked.nodes {
        words.push(format!("on {}", counted(count, "node")));
    }
    words.extend(asked.only.as_ref().map(|list| format!("only on {list}")));
    words.extend(asked.exclude.as_ref().map(|list| format!("not on {list}")));
    words.extend(asked.spread.then(|| "spread over nodes".into()));
    words.extend(asked.exclusive.then(|| "nodes without other jobs in its row".into()));
    let grace = format_duration_short(Nanos::from_millis(asked.grace_ms));
    words.push(format!("{grace} to end after SIGTERM"));
    let bad_exit = match asked.on_bad_exit {
        OnBadExit::KillOnSignal => None,
        OnBadExit::Kill => Some("a task that fails ends the job"),
        OnBadExit::Continue => Some("a task that fails leaves the others running"),
        OnBadExit::Notify { .. } => Some("a task that fails is named to the others, which go on"),
    };
    words.extend(bad_exit.map(str::to_owned));
    words.push(format!("on the loss of a node: {}", on_node_loss(asked.on_node_loss)));
    words.extend(asked.no_requeue.then(|| "never queued again".into()));
    words.join(", ")
}

/// How it saves its state, how often it resumed from that, and what became of the latest request.
fn checkpoint(checkpoint: &CheckpointReport) -> String {
    let signal = signal_name(checkpoint.signal);
    let to = if checkpoint.only_shell { " to the script's shell" } else { "" };
    let grace = format_duration_short(Nanos::from_millis(checkpoint.grace_ms));
    let mut words = vec![match checkpoint.signal {
        0 => "its processes, to an image".to_owned(),
        _ => format!("{signal}{to}, then {grace} to end"),
    }];
    words.extend(checkpoint.exit_code.map(|code| format!("with exit code {code}")));
    words.extend(
        checkpoint.every_ms.map(|every| {
            format!("asked every {}", format_duration_short(Nanos::from_millis(every)))
        }),
    );
    words.extend(match checkpoint.resumes {
        0 => None,
        1 => Some("resumes from one earlier run".to_owned()),
        more => Some(format!("resumes from {more} earlier runs")),
    });
    let last = match checkpoint.last.as_deref() {
        Some("asked") => Some("asked now"),
        Some("saved") => Some("saved when last asked"),
        Some("died") => Some("a task died of the signal when last asked: its state was lost"),
        Some("not-saved") => Some("could not be saved when last asked, and went on"),
        Some("not-restored") => Some("could not be restored, and is held"),
        Some("damaged") => {
            Some("could not be saved when last asked, and was ended to go on from its image")
        }
        Some("unanswered") => Some("did not end in time when last asked, and went on"),
        Some("forced") => Some("did not end in time when last asked, and was ended"),
        Some(_) | None => None,
    };
    words.extend(last.map(str::to_owned));
    words.extend(match (last, &checkpoint.why) {
        (Some("could not be restored, and is held"), Some(why)) => {
            Some(Code::NotRestored.mark(why))
        }
        (_, why) => why.clone(),
    });
    words.join("; ")
}

/// The name of a signal, or its number where it has none.
fn signal_name(number: u8) -> String {
    let signal = nix::sys::signal::Signal::try_from(i32::from(number));
    signal.map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// A line for each further step.
fn steps(report: &ShowReport) -> String {
    let line = |it: &tutti_wire::show::StepReport| {
        let exit = it.exit_code.map_or_else(String::new, |code| format!(", exit {code}"));
        let reason = match it.reason.as_str() {
            "" | "completed" => String::new(),
            reason => format!(": {reason}"),
        };
        let place = match it.placement.is_empty() {
            true => String::new(),
            false => format!(" on {}", it.placement.join(", ")),
        };
        let tasks = counted(it.tasks, "task");
        format!("{}: {}, {tasks}, {}{exit}{reason}{place}", it.step, it.name, it.state)
    };
    let lines: Vec<String> = report.steps.iter().map(line).collect();
    lines.join("\n")
}

/// What it starts with.
fn slots(job: &JobReport) -> String {
    match (job.first.as_deref(), job.slots) {
        (Some("batch"), Some(slots)) => {
            format!("a batch script with room for {}", counted(slots, "task"))
        }
        _ => counted(job.tasks, "task"),
    }
}

/// The rule in the words of `--on-node-loss`.
fn on_bad_exit(rule: OnBadExit) -> String {
    match rule {
        OnBadExit::KillOnSignal => "kill-on-signal".into(),
        OnBadExit::Kill => "kill".into(),
        OnBadExit::Continue => "continue".into(),
        OnBadExit::Notify { signal: None } => "notify".into(),
        OnBadExit::Notify { signal: Some(signal) } => format!("notify={signal}"),
    }
}

fn on_node_loss(rule: OnNodeLoss) -> String {
    match rule {
        OnNodeLoss::Kill => "kill".into(),
        OnNodeLoss::Requeue => "requeue".into(),
        OnNodeLoss::Notify { signal: None } => "notify".into(),
        OnNodeLoss::Notify { signal: Some(signal) } => format!("notify={signal}"),
        OnNodeLoss::Respawn { wait, signal, otherwise } => {
            let signal = signal.map_or_else(String::new, |signal| format!(",{signal}"));
            let otherwise = match otherwise {
                NoRespawn::Kill => "kill",
                NoRespawn::Requeue => "requeue",
                NoRespawn::Notify => "notify",
            };
            format!("respawn={}{signal}:{otherwise}", format_duration_short(wait))
        }
    }
}

/// One line for each node; what `ps` shows where that is all that may be seen.
fn nodes(report: &ShowReport) -> String {
    let Some(details) = &report.details else { return report.job.placement.join("\n") };
    let share = |it: &tutti_wire::show::NodeShare| {
        let devices: String = it.devices.iter().map(|device| format!(", {device}")).collect();
        let tasks = counted(it.tasks, "task");
        format!("{}: processors {}, {tasks}{devices}", it.node, it.processors)
    };
    let mut lines: Vec<String> = details.nodes.iter().map(share).collect();
    if details.nodes_left_out > 0 {
        lines.push(format!("and {} more", counted(details.nodes_left_out, "node")));
    }
    lines.join("\n")
}

fn limit(job: &JobReport) -> String {
    let Some(limit) = job.time_limit_ms else { return String::new() };
    let [limit, left] = [limit, job.time_left_ms.unwrap_or(0)]
        .map(|ms| format_duration_short(Nanos::from_millis(ms)));
    format!("{limit}, {left} left")
}

fn deadline(job: &JobReport) -> String {
    let Some(seconds) = job.deadline_s else { return String::new() };
    let length = format_seconds(seconds.unsigned_abs());
    let at_risk = job.at_risk_s.map(|since_s| format!(", at risk for {}", format_seconds(since_s)));
    match seconds < 0 {
        true => format!("passed {length} ago"),
        false => format!("in {length}{}", at_risk.unwrap_or_default()),
    }
}

fn time(job: &JobReport) -> String {
    let [waited, ran, suspended] = account::times(job);
    format!("waited {waited}, its turns gave it {ran}, suspended {suspended}")
}

/// With which jobs it has devices in turns.
fn shared_devices(jobs: &[JobId]) -> String {
    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    match names.len() {
        0 => String::new(),
        1 => format!("devices in turns with job {}", names[0]),
        _ => format!("devices in turns with jobs {}", names.join(", ")),
    }
}

/// How many of its processors it has at present, of a job that runs.
fn in_use(report: &ShowReport) -> String {
    match report.started_ms.is_some() && report.ended_ms.is_none() {
        true => counted(report.processors_in_use, "processor"),
        false => String::new(),
    }
}

/// A line for each node, where there are several.
fn used_by_node(used: &[(String, Usage)]) -> String {
    if used.len() < 2 {
        return String::new();
    }
    let line = |(node, usage): &(String, Usage)| {
        let [cpu, ..] = account::cells(Some(usage));
        format!("{node}: {cpu} of processor time")
    };
    used.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn used_in_all(job: &JobReport) -> String {
    let Some(usage) = &job.usage else { return String::new() };
    let [cpu, system, memory, read, written, ..] = account::cells(Some(usage));
    format!(
        "{cpu} of processor time ({system} in the kernel), {memory} of memory in one task, {read} read, {written} written"
    )
}

fn moment_text(ms: u64) -> String {
    let (date, clock) = (local_time(ms), local_clock(ms));
    format!("{} {clock}", date.split(' ').next().unwrap_or_default())
}

fn states(details: &JobDetails) -> String {
    let mut lines = Vec::new();
    if details.states_left_out > 0 {
        lines.push(format!("{} earlier are left out", details.states_left_out));
    }
    let line = |change: &tutti_wire::show::StateChange| {
        format!("{} {}", moment_text(change.at_ms), change.state)
    };
    lines.extend(details.states.iter().map(line));
    lines.join("\n")
}
