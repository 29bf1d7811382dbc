//! `tutti doctor`: what of this machine works for Tutti, and how to mend what does not.

use super::{ask, unexpected};
use crate::agent::limit_name;
use crate::exit::Exit;
use crate::instance::Instance;
use crate::output::{print, print_json};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tutti_linux::cgroup::{Cgroup, Hierarchy};
use tutti_linux::{proc, rt};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::StatusReport;
use tutti_wire::units::format_bytes;

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
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
    let mut findings = vec![machine()];
    findings.extend(cgroups());
    findings.push(priority());
    findings.extend(mpi());
    findings.extend(instance());
    if args.json {
        print_json(&findings)?;
    } else {
        print(&render(&findings))?;
    }
    let bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { Exit::FAILED } else { Exit::OK })
}

fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok  ",
            Verdict::Fair => "fair",
            Verdict::Bad => "BAD ",
        };
        let mut lines = finding.text.lines();
        text.push_str(&format!("{mark}  {:<11} {}\n", finding.topic, lines.next().unwrap_or("")));
        for line in lines {
            text.push_str(&format!("{:18}{line}\n", ""));
        }
        for line in finding.mend.lines() {
            text.push_str(&format!("{:18}-> {line}\n", ""));
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
    Finding::good("machine", format!("Linux {system}, {processors} processors, {memory} of memory"))
}

fn cgroups() -> Vec<Finding> {
    let name = format!("tutti-doctor-{}", std::process::id());
    let hierarchy = match Hierarchy::find(&name) {
        Ok(hierarchy) => hierarchy,
        Err(reason) => {
            return vec![Finding::fair(
                "tracking",
                format!(
                    "no cgroup can be written, so jobs are tracked by descent and stopped by \
                     signals:\n{reason}"
                ),
                "run as root, or give yourself a delegated subtree, such as\n\
                 systemd-run --user --scope -p Delegate=yes tutti up",
            )];
        }
    };
    let mut findings = vec![Finding::good(
        "tracking",
        format!("cgroup v2 in {}: no process can leave its task", parent_of(&hierarchy)),
    )];
    findings.push(match freeze_cost(&hierarchy) {
        Ok(cost) => Finding::good(
            "freezer",
            format!("an idle task stops and resumes in {} us", cost.as_micros()),
        ),
        Err(error) => {
            Finding::bad("freezer", error.to_string(), "a kernel of 5.2 or later is needed")
        }
    });
    let limits = hierarchy.limits();
    for (topic, by, option) in [
        ("memory", limit_name(limits.memory), "-m"),
        ("processes", limit_name(limits.processes), "--max-processes"),
    ] {
        findings.push(if by == "none" {
            Finding::fair(
                topic,
                format!("a limit ({option}) is counted in admission, but the kernel does not enforce it here"),
                format!("mount the {} controller, or have it delegated", if topic == "memory" { "memory" } else { "pids" }),
            )
        } else {
            Finding::good(topic, format!("a limit ({option}) is enforced by cgroup {by}"))
        });
    }
    let _ = hierarchy.remove();
    findings
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

fn priority() -> Finding {
    // In a thread of its own, so that the verb itself stays as it is.
    let result = std::thread::spawn(|| rt::become_realtime(1)).join();
    match result {
        Ok(Ok(())) => Finding::good("switch", "the switch thread gets real-time priority"),
        Ok(Err(error)) => Finding::fair(
            "switch",
            format!("no real-time priority ({error}): a switch of busy tasks takes milliseconds"),
            "run as root, or allow it: ulimit -r 50, or CAP_SYS_NICE",
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
    if !instance.answers() {
        return vec![Finding::good(
            "instance",
            format!("none runs; tutti run starts one in {}", instance.directory().display()),
        )];
    }
    match status() {
        Ok(status) => describe(&status),
        Err(error) => vec![Finding::bad("instance", format!("{error:#}"), "tutti down; tutti up")],
    }
}

fn status() -> anyhow::Result<StatusReport> {
    match ask(&Request::Status)? {
        Reply::Status(status) => Ok(status),
        _ => unexpected(),
    }
}

fn describe(status: &StatusReport) -> Vec<Finding> {
    let kind = if status.private { "private" } else { "system" };
    let mut findings = vec![Finding::good(
        "instance",
        format!(
            "a {kind} instance runs in {} for {} s: {} jobs in {} rows, {} queued",
            status.directory, status.uptime_s, status.resident, status.rows, status.queued
        ),
    )];
    for agent in &status.agents {
        let text = format!(
            "{} switches, {} with a straggler, {} late timetables; real-time: {}",
            agent.switches, agent.stragglers, agent.late_timetables, agent.realtime
        );
        findings.push(if agent.stragglers == 0 && agent.late_timetables == 0 {
            Finding::good("agent", text)
        } else {
            Finding::fair("agent", text, "tutti switches shows when each was due and done")
        });
    }
    findings
}
