//! What of this machine concerns jobs, whichever instance runs them.

use super::finding::{Finding, Fix};
use std::path::PathBuf;
use tutti_linux::rt;
use tutti_linux::track::{IoReports, ProcessEvents};
use tutti_node::capability;
use tutti_node::platform::groups::Hierarchy;
use tutti_node::service::place_of_unit;
use tutti_wire::report::AgentStatus;

/// How many bytes of process events a trial asks for.
const EVENTS_BYTES: i32 = 64 << 10;

/// What an agent of an instance that this user starts here would report. Where a service manager
/// makes a unit for it, nothing is tried: what the manager can hand down says it.
pub(super) fn what_an_instance_here_would_get() -> AgentStatus {
    let status = place_of_unit().and_then(|place| capability::of_unit_below(&place));
    let mut status = status.unwrap_or_else(|| {
        let name = format!("tutti-doctor-{}", std::process::id());
        match Hierarchy::find(&name) {
            Ok(hierarchy) => {
                let status = capability::of_this_process(Some(&hierarchy));
                let _ = hierarchy.remove();
                status
            }
            Err(reason) => {
                AgentStatus { cgroup: reason.to_string(), ..capability::of_this_process(None) }
            }
        }
    });
    status.realtime = realtime();
    status.process_events = match ProcessEvents::subscribe(EVENTS_BYTES) {
        Ok(_) => {
            status.io_counted |= IoReports::subscribe(EVENTS_BYTES).is_ok();
            "yes".into()
        }
        Err(error) => {
            let cause = std::error::Error::source(&error);
            format!("no: {}", cause.map_or_else(|| error.to_string(), ToString::to_string))
        }
    };
    status
}

/// Whether a thread may have real-time priority. Tried in a thread of its own, so that the verb
/// itself stays as it is.
fn realtime() -> String {
    match std::thread::spawn(|| rt::become_realtime(1)).join() {
        Ok(Ok(())) => "yes".into(),
        Ok(Err(error)) => format!("no: {error}"),
        Err(_) => "no: it could not be tried".into(),
    }
}

/// What ordinary users may have others start for them, with where that is refused.
const REQUESTED_BY: [(&str, &str); 3] =
    [("at", "/etc/at.deny"), ("crontab", "/etc/cron.deny"), ("systemd-run", "a polkit rule")];

/// Daemons that start processes on request: those are no descendants of the job that asks. It is so
/// on each machine that has them, and no loss.
pub(super) fn on_request() -> Option<Finding> {
    let found: Vec<_> =
        REQUESTED_BY.iter().filter(|(program, _)| in_path(program).is_some()).collect();
    let names = |part: fn(&(&'static str, &'static str)) -> &'static str| {
        found.iter().map(|entry| part(entry)).collect::<Vec<_>>().join(", ")
    };
    (!found.is_empty()).then(|| {
        let text = format!(
            "what a task has started by {} belongs to the daemon that starts it, not to the task",
            names(|entry| entry.0)
        );
        let detail = format!(
            "it is not suspended, counted or ended with the task; refused to users by {}",
            names(|entry| entry.1)
        );
        Finding::good("requests", text).detail(detail).implied(true)
    })
}

/// Where Intel's packages have their MPI, if the environment does not say.
const INTEL_MPI: &str = "/opt/intel/oneapi/mpi/latest";

pub(super) fn mpi() -> Vec<Finding> {
    let mut findings = Vec::new();
    let program = |names: &[&str]| names.iter().find_map(|name| in_path(name));
    if let Some(path) = program(&["mpiexec.hydra", "mpichversion"]) {
        let text = "MPICH programs start under `tutti run -n N` alone";
        findings.push(Finding::good("MPICH", text).detail(path.display().to_string()));
    }
    let intel = std::env::var_os("I_MPI_ROOT").map_or_else(|| INTEL_MPI.into(), PathBuf::from);
    if intel.is_dir() {
        let text = "Intel MPI programs start under `tutti run -n N` alone";
        findings.push(Finding::good("Intel MPI", text).detail(intel.display().to_string()));
    }
    if let Some(path) = program(&["ompi_info", "prte"]) {
        let detail = path.display().to_string();
        findings.push(match pmix_version() {
            Ok(version) => {
                let text =
                    format!("Open MPI programs start under `tutti run -n N` alone: {version}");
                Finding::good("Open MPI", text).detail(detail)
            }
            Err(reason) => {
                let text = format!("Open MPI programs can't be served: {reason}");
                let fix = Fix::you("install a PMIx library", "apt-get install libpmix2");
                Finding::minor("Open MPI", text).detail(detail).fix([fix])
            }
        });
    }
    findings
}

/// Whether programs of PVM can be run.
pub(super) fn pvm() -> Finding {
    match tutti_pvm::find_daemon() {
        Some(path) => {
            let text = "PVM programs start under `tutti pvm`, on one node";
            Finding::good("PVM", text).detail(path.display().to_string())
        }
        None => {
            let text = "PVM is not installed, so `tutti pvm` can't start its programs";
            let detail = "Debian 12 has it: apt-get install pvm";
            Finding::good("PVM", text).detail(detail).implied(true)
        }
    }
}

/// Whether processes of jobs can be saved to images.
pub(super) fn criu() -> Finding {
    match criu_version() {
        Ok(version) => {
            let text = "processes of jobs can be saved to images (--checkpoint)";
            let shared = tutti_node::shared_images::SharedImages::of_environment();
            let place = match shared {
                Ok(None) => String::new(),
                Ok(Some(it)) => format!("; nodes share {}", it.directory.display()),
                Err(error) => {
                    let text = "`tutti up` refuses the directory of images";
                    return Finding::bad("images", text).detail(format!("{error:#}"));
                }
            };
            Finding::good("images", text).detail(version + &place)
        }
        Err(why) => {
            let text = "no images of processes (--checkpoint); --checkpoint-signal needs none";
            Finding::good("images", text).detail(why).implied(true)
        }
    }
}

/// Which CRIU works here, or why none does.
fn criu_version() -> Result<String, String> {
    let command = tutti_keeper::criu();
    if !nix::unistd::geteuid().is_root() {
        return Err("it takes an instance of root, and CRIU".into());
    }
    let shown = command.display();
    let run = |word: &str| match std::process::Command::new(&command).arg(word).output() {
        Ok(done) if done.status.success() => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let line = said.lines().find(|line| line.contains("Error")).or(said.lines().last());
            Err(format!("{shown} {word} fails: {}", line.unwrap_or("without a reason").trim()))
        }
        Err(error) => Err(format!("cannot run {shown} (CRIU; TUTTI_CRIU names another): {error}")),
    };
    let version = run("--version")?;
    run("check")?;
    let version = version.lines().next().unwrap_or_default().trim_start_matches("Version: ");
    Ok(format!("CRIU {version}, {shown}"))
}

/// Which PMIx library serves Open MPI. Another process loads it: it may crash.
fn pmix_version() -> Result<String, String> {
    let library = tutti_client::pmix_library()?;
    let ours = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = std::process::Command::new(ours);
    let asked = command.args(["pmix-server", "--version-of"]).arg(&library).output();
    let asked = asked.map_err(|error| error.to_string())?;
    match asked.status.success() {
        true => {
            let version = String::from_utf8_lossy(&asked.stdout);
            Ok(format!("libpmix {}, {}", version.trim(), library.display()))
        }
        false => {
            let said = String::from_utf8_lossy(&asked.stderr);
            let why = said.lines().last().unwrap_or("it can't be loaded").trim();
            Err(format!("{}: {}", library.display(), why.trim_start_matches("tutti: ")))
        }
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
