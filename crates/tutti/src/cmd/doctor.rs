//! `tutti doctor`: what of this machine works for Tutti, and how to mend what does not.

use super::{ask, unexpected};
use crate::agent::limit_name;
use crate::codes::code_of;
use crate::exit::Exit;
use crate::instance::Instance;
use crate::output::{counted, fold, print, print_json, terminal_width};
use crate::supervise::{has_keeper, is_supervised};
use clap::Args;
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tutti_core::Nanos;
use tutti_linux::cgroup::{Cgroup, Hierarchy, NoCgroup, is_systemd_here};
use tutti_linux::track::ProcessEvents;
use tutti_linux::{proc, rt};
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{AgentStatus, ClocksReport, SlotReport, StatusReport};
use tutti_wire::units::{format_bytes, format_duration_short, format_seconds};

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// Show what instances that are gone have left: cgroups, directories, processes, and what nobody uses
    /// any more: shared memory, message queues, semaphores
    #[arg(long)]
    leftovers: bool,

    /// Remove of it what is certainly theirs
    #[arg(long, requires = "leftovers")]
    remove: bool,
}

/// How a finding is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As good as it can be.
    Good,
    /// Works, with a loss that the text names.
    Fair,
    /// Does not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    verdict: Verdict,
    topic: &'static str,
    text: String,
    /// What to do about it; empty if nothing.
    mend: String,
}

impl Finding {
    fn good(topic: &'static str, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, topic, text: text.into(), mend: String::new() }
    }

    fn fair(topic: &'static str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fair, topic, text: text.into(), mend: mend.into() }
    }

    fn bad(topic: &'static str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, topic, text: text.into(), mend: mend.into() }
    }
}

pub(crate) fn execute(args: &DoctorArgs) -> anyhow::Result<Exit> {
    if args.leftovers {
        return super::leftovers::execute(args.remove, args.json);
    }
    let mut findings = vec![machine()];
    match others_instance() {
        Some(status) => findings.extend(what_they_have(&status)),
        None => findings.extend(what_we_may()),
    }
    findings.extend(on_request());
    findings.extend(mpi());
    findings.extend(instance());
    if args.json {
        print_json(&findings)?;
    } else {
        print(&render(&findings, terminal_width().unwrap_or(usize::MAX)))?;
    }
    let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { Exit::FAILED } else { Exit::OK })
}

/// What an instance of whoever asks would have to do with.
fn what_we_may() -> Vec<Finding> {
    let mut findings = cgroups();
    findings.extend([genealogy(), ipc(), priority()]);
    findings
}

/// The instance that has this user's jobs, if somebody else started it: what it may do is not what this user may.
fn others_instance() -> Option<StatusReport> {
    let instance = Instance::locate();
    let owner = std::fs::metadata(instance.directory()).ok()?.uid();
    let is_ours = owner == nix::unistd::geteuid().as_raw();
    if is_ours || !instance.answers() { None } else { status().ok() }
}

/// What its agents say of themselves; of several, what is not as good as it can be.
fn what_they_have(status: &StatusReport) -> Vec<Finding> {
    let several = status.agents.len() > 1;
    let mut findings: Vec<Finding> = status
        .agents
        .iter()
        .flat_map(|agent| what_it_has(agent, several, status.private))
        .collect();
    if several {
        findings.retain(|finding| finding.verdict != Verdict::Good);
    }
    findings
}

fn what_it_has(agent: &AgentStatus, several: bool, private: bool) -> Vec<Finding> {
    let on = if several { format!(" on {}", agent.node) } else { String::new() };
    let mend = "whoever started the instance sees more: sudo tutti doctor";
    let finding = |topic, is_good: bool, text: String| match is_good {
        true => Finding::good(topic, text),
        false => Finding::fair(topic, text, mend),
    };
    let why = |reason: &str| reason.trim_start_matches("no: ").to_owned();
    // Those of a user's own instance are that user's to write to.
    let tight = if private { "" } else { ": no process can leave them" };
    let tracking = match agent.freezer {
        true => format!("tasks{on} have cgroups in {}{tight}", agent.cgroup),
        false => format!("tasks{on} are stopped by signals: {}", agent.cgroup),
    };
    let births = match agent.process_events.as_str() {
        "yes" => format!("the kernel tells of each process that begins or ends{on}"),
        reason => format!("the kernel does not tell of processes{on} ({}): {SCANS}", why(reason)),
    };
    let priority = match agent.realtime.as_str() {
        "yes" => format!("the switch thread{on} has real-time priority"),
        reason => format!("the switch thread{on} has no real-time priority: {}", why(reason)),
    };
    let held = |topic, option, by: &str| match by {
        "none" => finding(topic, false, format!("nothing holds a task{on} to its {option}")),
        by => finding(topic, true, format!("{option} is held by the kernel{on} (cgroup {by})")),
    };
    vec![
        finding("tracking", agent.freezer, tracking),
        held("memory", "--memory", &agent.memory_limit),
        held("processes", "--max-processes", &agent.process_limit),
        held_to_processors(agent.processors.as_str(), &on),
        finding("births", agent.process_events == "yes", births),
        finding("switch", agent.realtime == "yes", priority),
    ]
}

/// What stands before the text of a finding.
const MARGIN: usize = 17;

fn render(findings: &[Finding], width: usize) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok",
            Verdict::Fair => "fair",
            Verdict::Bad => "BAD",
        };
        let mut margin = format!("{mark:<4}  {:<9}  ", finding.topic);
        let mend = finding.mend.lines().map(|line| format!("-> {line}"));
        for line in finding.text.lines().map(str::to_owned).chain(mend) {
            for part in fold(&line, width.saturating_sub(MARGIN)) {
                text.push_str(&format!("{margin}{part}\n"));
                margin = " ".repeat(MARGIN);
            }
        }
    }
    text
}

fn machine() -> Finding {
    let system = nix::sys::utsname::uname().map_or_else(
        |_| "an unknown kernel".into(),
        |u| u.release().to_string_lossy().into_owned(),
    );
    let processors = proc::online_processors().len();
    let memory = format_bytes(proc::memory_total_bytes().unwrap_or(0));
    let processors = counted(processors as u64, "processor");
    Finding::good("machine", format!("Linux {system}, {processors}, {memory} of memory"))
}

fn cgroups() -> Vec<Finding> {
    let name = format!("tutti-doctor-{}", std::process::id());
    let hierarchy = match Hierarchy::find(&name) {
        Ok(hierarchy) => hierarchy,
        Err(reason) => return without_cgroups(&reason),
    };
    let mut findings = vec![tracking(&hierarchy)];
    findings.push(match freeze_cost(&hierarchy) {
        Ok(cost) => Finding::good(
            "freezer",
            format!("a task stops and goes on within {} us", cost.as_micros()),
        ),
        Err(error) => {
            Finding::bad("freezer", error.to_string(), "a kernel of 5.2 or later is needed")
        }
    });
    let limits = hierarchy.limits();
    for (topic, by, option) in [
        ("memory", limit_name(limits.memory), "--memory"),
        ("processes", limit_name(limits.processes), "--max-processes"),
        ("cpu", limit_name(limits.weight), "control=priority"),
    ] {
        findings.push(if by == "none" {
            not_held(topic, &format!("have the cgroup controller for {topic} mounted or delegated"))
        } else {
            Finding::good(topic, format!("{option} is held by the kernel (cgroup {by})"))
        });
    }
    findings.extend(accounts(&hierarchy));
    findings.push(held_to_processors(limit_name(limits.processors), ""));
    let _ = hierarchy.remove();
    findings
}

/// How much of what jobs use the kernel counts: asked of a group without limits.
fn accounts(hierarchy: &Hierarchy) -> Option<Finding> {
    let group = hierarchy.create("accounts").ok()?;
    let is_whole = [group.memory_peak().is_some(), group.io_bytes().is_some()];
    let _ = group.remove();
    let kinds = ["the memory of jobs without --memory", "what jobs read and write"];
    let unknown: Vec<&str> = kinds
        .into_iter()
        .zip(is_whole)
        .filter_map(|(kind, whole)| (!whole).then_some(kind))
        .collect();
    if unknown.is_empty() {
        return Some(Finding::good("accounts", "the kernel counts all that jobs use"));
    }
    let text = format!(
        "the kernel counts processor time in full, but not {}: tutti history shows what is known of single \
         processes, with >= or ?",
        unknown.join(" and ")
    );
    let mend =
        "boot with the controllers memory and io in cgroup v2 (systemd.unified_cgroup_hierarchy=1)";
    Some(Finding::fair("accounts", text, mend))
}

/// Whether jobs stay on their processors, by what holds them there.
fn held_to_processors(by: &str, on: &str) -> Finding {
    const TOPIC: &str = "affinity";
    if by != "none" {
        let text = format!("jobs{on} are held to their processors by the kernel (cgroup {by})");
        return Finding::good(TOPIC, text);
    }
    Finding::fair(
        TOPIC,
        format!(
            "nothing holds jobs{on} to their processors: one that binds itself to others (taskset, mpirun) is brought \
             back within a second"
        ),
        "have the cgroup controller cpuset mounted or delegated (systemd: Delegate=cpu cpuset io memory pids)",
    )
}

/// A user's own subtree is also that of the user's tasks.
fn tracking(hierarchy: &Hierarchy) -> Finding {
    let place = format!("cgroup v2 in {}", parent_of(hierarchy));
    if nix::unistd::geteuid().is_root() {
        return Finding::good("tracking", format!("{place}: no process can leave its task"));
    }
    let text = match ProcessEvents::subscribe(EVENTS_BYTES) {
        Ok(_) => {
            "which is yours, as the tasks are: one that writes to its files on purpose may leave its task; it is \
             brought back within a second, and ended with the task at the latest"
        }
        Err(_) => {
            "which is yours, as the tasks are: one that writes to its files on purpose may leave its task, and \
             nobody knows (see births)"
        }
    };
    Finding::fair("tracking", format!("{place}, {text}"), "have root start it: sudo tutti up")
}

/// What an ordinary user without a subtree of their own has to do with.
fn without_cgroups(reason: &NoCgroup) -> Vec<Finding> {
    let mut mend = String::from("have root start it (`tutti up`, for all users)");
    mend.push_str(&subtree(reason).map_or(String::new(), |how| format!(", or {how}")));
    let text = "no cgroup can be written: a task's processes are found by their parents, and stopped \
                by signals; one that kills the minder of its own task, or becomes another user, gets away";
    vec![
        Finding::fair("tracking", format!("{text}\n{reason}"), mend),
        not_held("memory", "as for tracking"),
        not_held("processes", "as for tracking"),
        held_to_processors("none", ""),
    ]
}

/// How an ordinary user gets a subtree of cgroups; nothing where there is no place for one.
fn subtree(reason: &NoCgroup) -> Option<String> {
    let top = reason.tried.first()?.candidate.display();
    if is_systemd_here() {
        let command = "systemd-run --user --scope -p Delegate=yes tutti up";
        return Some(format!("give yourself a subtree:\n{command}"));
    }
    let (uid, shell) = (nix::unistd::geteuid(), std::os::unix::process::parent_id());
    let group = format!("{top}/of-{uid}");
    Some(format!(
        "have root give this shell a subtree that is yours, and start it from there (tutti up):\n\
         mkdir -p {group} && chown -R {uid} {group} && echo {shell} >{group}/cgroup.procs"
    ))
}

fn not_held(topic: &'static str, mend: &str) -> Finding {
    let text = match topic {
        "memory" => {
            "nothing holds a task to its --memory; it only counts for which jobs fit together"
        }
        "cpu" => "no job can make way by its priority: those with control=priority are frozen",
        _ => "nothing holds a task to its --max-processes",
    };
    Finding::fair(topic, text, mend)
}

/// What ordinary users may have others start for them, with where that is refused.
const REQUESTED_BY: [(&str, &str); 3] =
    [("at", "/etc/at.deny"), ("crontab", "/etc/cron.deny"), ("systemd-run", "a polkit rule")];

/// Daemons that start processes on request: those are no descendants of whoever asked.
fn on_request() -> Option<Finding> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|place| place.join(program).is_file());
    let found: Vec<_> = REQUESTED_BY.iter().filter(|(program, _)| is_there(program)).collect();
    let names = |part: fn(&(&'static str, &'static str)) -> &'static str| {
        found.iter().map(|entry| part(entry)).collect::<Vec<_>>().join(", ")
    };
    (!found.is_empty()).then(|| {
        let programs = names(|entry| entry.0);
        let text = format!(
            "what a task has started by {programs} is a process of the daemon that starts it, not of the \
             task: it is not suspended, counted or ended with it"
        );
        let mend = format!("refuse that to users of jobs: {}", names(|entry| entry.1));
        Finding::fair("requests", text, mend)
    })
}

/// Whether queues and semaphores of jobs can be told from others'.
fn ipc() -> Finding {
    match tutti_linux::ipc_namespace::Maker::new().take() {
        Ok(_) => Finding::good(
            "ipc",
            "each job has message queues, semaphores and System V shared memory of its own, which end \
             with it (ipc=job)",
        ),
        Err(error) => Finding::fair(
            "ipc",
            format!("message queues and semaphores that jobs leave stay: no namespaces ({error})"),
            "tutti doctor --leftovers lists them; or have root start the instance (sudo tutti up)",
        ),
    }
}

fn parent_of(hierarchy: &Hierarchy) -> String {
    hierarchy.path().parent().unwrap_or(hierarchy.path()).display().to_string()
}

/// The median time to stop and resume a group with one sleeping process.
fn freeze_cost(hierarchy: &Hierarchy) -> anyhow::Result<Duration> {
    let group = hierarchy.create("probe")?;
    let mut sleeper = Command::new("sleep").arg("60").spawn()?;
    let result = freeze_times(&group, sleeper.id());
    let _ = sleeper.kill();
    let _ = group.request_thaw();
    let _ = sleeper.wait();
    let _ = group.remove();
    result
}

fn freeze_times(group: &Cgroup, pid: u32) -> anyhow::Result<Duration> {
    std::fs::write(group.path().join("cgroup.procs"), pid.to_string())?;
    let mut times = Vec::new();
    for _ in 0..21 {
        let begin = Instant::now();
        group.freeze(Duration::from_secs(1))?;
        group.request_thaw()?;
        times.push(begin.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn genealogy() -> Finding {
    match ProcessEvents::subscribe(EVENTS_BYTES) {
        Ok(_) => Finding::good("births", "the kernel tells of each process that begins or ends"),
        Err(error) => Finding::fair(
            "births",
            format!(
                "the kernel does not tell of processes that begin and end ({}): {SCANS}",
                std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
            ),
            "a kernel from 6.6 on tells everybody, an older one root; neither within containers",
        ),
    }
}

/// What is lost without process events.
const SCANS: &str = "who descends from whom is read from /proc once a second, and an orphan whose \
                     parent lived for less may be shown below the root of its task";

const EVENTS_BYTES: i32 = 64 << 10;

fn priority() -> Finding {
    // In a thread of its own, so that the verb itself stays as it is.
    let result = std::thread::spawn(|| rt::become_realtime(1)).join();
    match result {
        Ok(Ok(())) => Finding::good("switch", "the switch thread gets real-time priority"),
        Ok(Err(error)) => Finding::fair(
            "switch",
            format!("no real-time priority ({error}): a switch of busy tasks takes milliseconds"),
            "run as root, or have it allowed: ulimit -r 99, or CAP_SYS_NICE",
        ),
        Err(_) => Finding::fair("switch", "real-time priority could not be tried", ""),
    }
}

fn mpi() -> Vec<Finding> {
    let mut findings = Vec::new();
    let program = |names: &[&str]| names.iter().find_map(|name| in_path(name));
    if let Some(path) = program(&["mpiexec.hydra", "mpichversion"]) {
        findings.push(Finding::good(
            "MPI",
            format!(
                "MPICH is installed ({}): its programs start under tutti run alone",
                path.display()
            ),
        ));
    }
    if let Some(path) = program(&["ompi_info", "prte"]) {
        findings.push(Finding::fair(
            "MPI",
            format!("Open MPI is installed ({}), which needs PMIx", path.display()),
            "not served yet: start its programs as tutti run -n 1 -c N mpirun ...",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good(
            "MPI",
            "no MPI library found; programs without MPI run all the same",
        ));
    }
    findings
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn instance() -> Vec<Finding> {
    let instance = Instance::locate();
    let directory = instance.directory().display();
    let answers = instance.answers();
    // Others may ask a controller of root's.
    let checked = if answers { instance.open().map(drop) } else { instance.check_owner() };
    if let Err(error) = checked {
        return vec![Finding::bad("instance", format!("{error:#}"), "")];
    }
    if !answers {
        let without = || {
            let text = format!("the one in {directory} has no controller; its jobs run");
            vec![Finding::bad("instance", text, "tutti up goes on with them, tutti down ends them")]
        };
        let none = || match Instance::with_jobs_left() {
            Some((place, jobs)) => {
                let (place, up) = (place.directory().display(), place.up_command());
                let text = format!("none runs; one in {place} has left {}", counted(jobs, "job"));
                let mend = format!("{up} runs what waited and tells how the rest ended");
                vec![Finding::fair("instance", text, mend)]
            }
            None => {
                let text = format!("none runs; tutti run starts one in {directory}");
                vec![Finding::good("instance", text)]
            }
        };
        return if has_keeper(&instance) { without() } else { none() };
    }
    let mut findings = match status() {
        Ok(status) => describe(&status),
        // It is there, and well.
        Err(error) if code_of(&error) == Code::NotAllowed => {
            vec![Finding::fair("instance", format!("{error:#}"), "tutti doctor, as another user")]
        }
        Err(error) => vec![Finding::bad("instance", format!("{error:#}"), "tutti down; tutti up")],
    };
    let owner = std::fs::metadata(instance.directory()).map(|it| it.uid());
    // Others can't see who holds the lock.
    if owner.is_ok_and(|uid| uid == nix::unistd::geteuid().as_raw()) && !is_supervised(&instance) {
        let text = format!("nobody starts daemons of the one in {directory} again if they end");
        findings.push(Finding::fair("instance", text, "tutti up"));
    }
    if let Some(other) = instance.beside() {
        let kind = if other.private { "private" } else { "system" };
        let directory = other.directory().display();
        findings.push(Finding::fair(
            "instance",
            format!(
                "a {kind} instance runs too, in {directory}: neither knows of the other, and jobs of \
                 both get in each other's way"
            ),
            format!("TUTTI_DIR={directory} tutti down"),
        ));
    }
    findings
}

fn status() -> anyhow::Result<StatusReport> {
    match ask(&Request::Status)? {
        Reply::Status(status) => Ok(status),
        _ => unexpected(),
    }
}

fn describe(status: &StatusReport) -> Vec<Finding> {
    let kind = if status.private { "private" } else { "system" };
    let turns = match status.rows {
        0 | 1 => String::new(),
        rows => format!(" taking turns in {rows} rows"),
    };
    let mut findings = vec![Finding::good(
        "instance",
        format!(
            "a {kind} instance runs in {}, for {} now: {}{turns}, {} queued",
            status.directory,
            format_seconds(status.uptime_s),
            counted(status.resident, "job"),
            status.queued
        ),
    )];
    let several = status.agents.len() > 1;
    findings.extend(status.agents.iter().map(|agent| describe_agent(agent, several)));
    findings.extend(status.clocks.as_ref().map(describe_clocks));
    findings
}

/// Whether nodes know the time well enough to switch together.
fn describe_clocks(clocks: &ClocksReport) -> Finding {
    let shown = |ns| format_duration_short(Nanos(ns));
    let ClocksReport { ref node, error_ns, least_ns, too_far, ref shortest } = *clocks;
    let worst = format!("the clock of {node} may be off by {}", shown(error_ns));
    let Some(SlotReport { length_ns, class, quantum_ns }) = shortest else {
        return Finding::good("clocks", format!("{worst}, no other by more; nobody takes turns"));
    };
    let (length, least, quantum) = (shown(*length_ns), shown(least_ns), shown(*quantum_ns));
    if too_far == 0 {
        let text =
            format!("{worst}, no other by more; slots of {length}, the shortest, are long enough");
        return Finding::good("clocks", text);
    }
    let others = match too_far - 1 {
        0 => String::new(),
        others => format!(" (and that of {} by too much, too)", counted(others, "other node")),
    };
    let (slots, mend) = match length_ns == quantum_ns {
        true => (
            format!("the quantum, {quantum}"),
            format!("tutti params quantum={least}, or more, at all hours"),
        ),
        false => (
            format!("{length}, those of class {class} with a quantum of {quantum}"),
            format!("tutti params --class {class} slot_min={least}, or a longer quantum"),
        ),
    };
    let text = format!(
        "{worst}{others}, and slots may be as short as {slots}: these do not begin together on all nodes"
    );
    let system = "or, where chrony or PTP keep the machines' clocks: tutti params clock=system";
    Finding::fair("clocks", text, format!("{mend}\n{system}"))
}

fn describe_agent(agent: &AgentStatus, several: bool) -> Finding {
    let on = if several { format!(" on {}", agent.node) } else { String::new() };
    let mut text = format!("switches so far{on}: {}", agent.switches);
    if agent.stragglers > 0 {
        text.push_str(&format!(
            "; at {} of them a process had not stopped in time",
            agent.stragglers
        ));
    }
    if agent.late_timetables > 0 {
        text.push_str(&format!("; {} came late", counted(agent.late_timetables, "timetable")));
    }
    match (agent.stragglers, agent.late_timetables) {
        (0, 0) => Finding::good("switch", format!("{text}, all in time")),
        (_, 0) => Finding::fair("switch", text, "tutti switches shows when each was due and done"),
        _ => Finding::fair(
            "switch",
            text,
            "tutti params lead=20ms has changes told so much ahead; jobs begin that much later",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, describe_clocks};
    use tutti_wire::report::{ClocksReport, SlotReport};

    #[test]
    fn a_clock_that_is_too_bad_for_the_shortest_slot_is_told_with_what_to_do() {
        let clocks = |too_far, slot: Option<(u64, u64)>| ClocksReport {
            node: "n3".into(),
            error_ns: 22_000_000,
            least_ns: 88_000_000,
            too_far,
            shortest: slot.map(|(length_ms, quantum_ms)| SlotReport {
                length_ns: length_ms * 1_000_000,
                class: "standby".into(),
                quantum_ns: quantum_ms * 1_000_000,
            }),
        };
        let told = |too_far, slot, texts: &[&str], mend: &str| {
            let finding = describe_clocks(&clocks(too_far, slot));
            let verdict = if too_far == 0 { Verdict::Good } else { Verdict::Fair };
            assert_eq!((finding.verdict, finding.topic), (verdict, "clocks"));
            for said in [&["the clock of n3 may be off by 22ms"], texts].concat() {
                assert!(finding.text.contains(said), "{said}: {}", finding.text);
            }
            assert_eq!(finding.mend.lines().next().unwrap_or_default(), mend);
        };
        told(0, None, &["nobody takes turns"], "");
        told(0, Some((100, 100)), &["slots of 100ms, the shortest, are long enough"], "");
        let mend = "tutti params quantum=88ms, or more, at all hours";
        told(1, Some((40, 40)), &["as short as the quantum, 40ms"], mend);
        let texts = ["of 2 other nodes by too much", "as short as 4.0ms, those of class standby"];
        let mend = "tutti params --class standby slot_min=88ms, or a longer quantum";
        told(3, Some((4, 200)), &texts, mend);
    }
}
