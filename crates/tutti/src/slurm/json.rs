//! `squeue --json` and `sacct --json`: jobs in the fields of Slurm's `data_parser/v0.0.42`.
//!
//! Fields that mean nothing here are absent, as in other releases of Slurm.

use super::accounts::{ACCOUNT, QOS};
use super::jobs::{Job, State};
use super::steps::{self, Step};
use super::{VERSION, files, or_null};
use serde_json::{Map, Value, json};
use tutti_client::slurm::cluster_name;
use tutti_node::platform::time::wall_ms;
use tutti_wire::host_list::format_host_list;
use tutti_wire::report::JobReport;
use tutti_wire::show::JobDetails;

/// All that `squeue --json` prints.
pub(super) fn of_squeue(jobs: &[Job]) -> Value {
    let jobs: Vec<Value> = jobs.iter().map(queued).collect();
    let now = number(Some(wall_ms() / 1000));
    whole("squeue", json!({ "jobs": jobs, "last_backfill": number(None), "last_update": now }))
}

/// All that `sacct --json` prints; steps unless `-X` was given.
pub(super) fn of_sacct(jobs: &[Job], has_steps: bool) -> Value {
    let jobs: Vec<Value> = jobs.iter().map(|job| accounted(job, has_steps)).collect();
    whole("sacct", json!({ "jobs": jobs }))
}

fn whole(command: &str, found: Value) -> Value {
    let mut parts = VERSION.split('.');
    let mut part = || parts.next().unwrap_or("0");
    let version = json!({ "major": part(), "minor": part(), "micro": part() });
    let meta = json!({
        "plugin": { "data_parser": "data_parser/v0.0.42" },
        "command": [command],
        "slurm": { "version": version, "release": VERSION, "cluster": cluster_name() },
    });
    joined([found, json!({ "meta": meta, "errors": [], "warnings": [] })])
}

/// One object with the fields of several.
fn joined<const N: usize>(objects: [Value; N]) -> Value {
    let mut all = Map::new();
    for object in objects {
        if let Value::Object(fields) = object {
            all.extend(fields);
        }
    }
    Value::Object(all)
}

/// A number that may be missing, as Slurm writes one.
fn number(value: Option<u64>) -> Value {
    json!({ "set": value.is_some(), "infinite": false, "number": value.unwrap_or(0) })
}

/// A limit in minutes, rounded up; without one it is infinite.
fn limit(ms: Option<u64>) -> Value {
    match ms {
        Some(ms) => number(Some(ms.div_ceil(60_000))),
        None => json!({ "set": false, "infinite": true, "number": 0 }),
    }
}

/// A moment in seconds since 1970.
fn moment(ms: Option<u64>) -> Value {
    number(ms.map(|ms| ms / 1000).or(Some(0)))
}

/// Exit status and signal, of `2:0` or `0:15`.
fn exit_code(state: State, text: &str) -> Value {
    let parsed = |text: &str| text.parse::<u64>().unwrap_or(0);
    let (status, signal) = text.split_once(':').map_or((0, 0), |(a, b)| (parsed(a), parsed(b)));
    let word = match (state.has_ended(), status, signal) {
        (false, ..) => "PENDING",
        (true, 0, 0) => "SUCCESS",
        (true, _, 0) => "ERROR",
        (true, ..) => "SIGNALED",
    };
    json!({
        "status": [word],
        "return_code": number(Some(status)),
        "signal": { "id": number(Some(signal).filter(|it| *it > 0)), "name": "" },
    })
}

fn group_of(job: &Job) -> (u32, String) {
    use nix::unistd::{Group, Uid, User};
    let user = job.uid.and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok().flatten());
    let Some(user) = user else { return (0, String::new()) };
    let name = Group::from_gid(user.gid).ok().flatten().map(|group| group.name);
    (user.gid.as_raw(), name.unwrap_or_default())
}

/// A job of `squeue`.
fn queued(job: &Job) -> Value {
    let report = &job.report;
    let (group, group_name) = group_of(job);
    let wait = report.wait.as_deref();
    let end = job.ended_ms.or_else(|| {
        let left = report.time_left_ms.filter(|_| job.state == State::Running)?;
        Some(wall_ms().saturating_add(left))
    });
    let of_job = json!({
        "account": ACCOUNT,
        "batch_flag": job.is_batch(),
        "batch_host": job.nodes().first().copied().unwrap_or_default(),
        "cluster": cluster_name(),
        "cpus": number(Some(report.processors.into())),
        "end_time": moment(end),
        "exit_code": exit_code(job.state, &job.exit_code()),
        "group_id": group,
        "group_name": group_name,
        "hold": wait.is_some_and(|wait| wait.starts_with("held")),
        "job_id": job.id().0,
        "job_state": [job.state.words().0],
        "licenses": report.resources.join(","),
        "name": report.name,
        "node_count": number(Some(job.node_count() as u64)),
        "nodes": format_host_list(job.nodes()),
        "partition": job.partition(),
        "priority": number(Some(1)),
        "qos": QOS,
        "start_time": moment(job.started_ms),
        "state_description": report.reason,
        "state_reason": job.reason(),
        "submit_time": moment(Some(job.submitted_ms)),
        "tasks": number(Some(report.slots.unwrap_or(report.tasks).into())),
        "time_limit": limit(report.time_limit_ms),
        "tres_alloc_str": tres(report.processors.into(), job.node_count()),
        "user_id": job.uid.unwrap_or(0),
        "user_name": report.user,
    });
    let details = job.details.as_deref().map_or_else(|| json!({}), |it| detailed(report, it));
    joined([of_job, array(job), details])
}

/// What only the owner of a job and root see.
fn detailed(report: &JobReport, details: &JobDetails) -> Value {
    let asked = &details.asked;
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    json!({
        "command": details.command.join(" "),
        "cpus_per_task": number(asked.processors_per_task.map(u64::from)),
        "current_working_directory": String::from_utf8_lossy(&details.directory),
        "excluded_nodes": text(&asked.exclude),
        "nice": details.nice,
        "required_nodes": text(&asked.only),
        "requeue": !asked.no_requeue && report.submitted,
        "restart_cnt": details.requeues,
        "standard_error": files(report, details, false),
        "standard_output": files(report, details, true),
    })
}

fn array(job: &Job) -> Value {
    let array = job.report.array.as_ref();
    let index = array.and_then(|it| it.index);
    let waiting = array.and_then(|it| it.elements.as_ref()?.waiting.clone());
    let most = array.and_then(|it| it.elements.as_ref()?.limit);
    json!({
        "array_job_id": number(Some(array.map_or(0, |it| it.job.0))),
        "array_task_id": number(index.map(u64::from)),
        "array_task_string": waiting.unwrap_or_default(),
        "array_max_tasks": number(Some(most.unwrap_or(0).into())),
    })
}

fn tres(processors: u64, nodes: usize) -> String {
    format!("cpu={processors},node={nodes}")
}

/// A job of `sacct`.
fn accounted(job: &Job, has_steps: bool) -> Value {
    let report = &job.report;
    let (_, group_name) = group_of(job);
    let details = job.details.as_deref();
    let steps: Vec<Value> = match has_steps && job.started_ms.is_some() {
        true => all_steps(job).iter().map(step).collect(),
        false => Vec::new(),
    };
    let array = report.array.as_ref();
    let association = json!({
        "account": ACCOUNT, "cluster": cluster_name(), "partition": "", "user": report.user,
    });
    json!({
        "account": ACCOUNT,
        "allocation_nodes": job.nodes().len(),
        "array": {
            "job_id": array.map_or(0, |it| it.job.0),
            "task_id": number(array.and_then(|it| it.index).map(u64::from)),
        },
        "association": association,
        "cluster": cluster_name(),
        "exit_code": exit_code(job.state, &job.exit_code()),
        "group": group_name,
        "job_id": job.id().0,
        "name": report.name,
        "nodes": match job.nodes() {
            nodes if nodes.is_empty() => "None assigned".to_owned(),
            nodes => format_host_list(nodes),
        },
        "partition": job.partition(),
        "priority": number(Some(1)),
        "qos": QOS,
        "required": { "CPUs": report.processors },
        "restart_cnt": details.map_or(0, |it| it.requeues),
        "state": { "current": [job.state.words().0], "reason": job.reason() },
        "stdout": details.map_or_else(String::new, |it| files(report, it, true)),
        "stderr": details.map_or_else(String::new, |it| files(report, it, false)),
        "steps": steps,
        "submit_line": or_null(details.map_or_else(String::new, |it| it.command.join(" "))),
        "time": times(job),
        "tres": {
            "allocated": [
                { "type": "cpu", "name": "", "id": 1, "count": report.processors },
                { "type": "node", "name": "", "id": 4, "count": job.node_count() },
            ],
        },
        "user": report.user,
        "working_directory": details
            .map_or_else(String::new, |it| String::from_utf8_lossy(&it.directory).into_owned()),
    })
}

/// Times of a job in seconds, its moments since 1970.
fn times(job: &Job) -> Value {
    let report = &job.report;
    let cpu = |us: u64| json!({ "seconds": us / 1_000_000, "microseconds": us % 1_000_000 });
    let usage = report.usage.as_ref();
    let (user, system) = usage.map_or((0, 0), |it| (it.user_us, it.system_us));
    json!({
        "elapsed": job.elapsed_s(),
        "eligible": job.submitted_ms / 1000,
        "end": job.ended_ms.unwrap_or(0) / 1000,
        "limit": limit(report.time_limit_ms),
        "start": job.started_ms.unwrap_or(0) / 1000,
        "submission": job.submitted_ms / 1000,
        "suspended": report.suspended_ms / 1000,
        "system": cpu(system),
        "total": cpu(user.saturating_add(system)),
        "user": cpu(user),
    })
}

/// The steps of a job that began, the first one first.
fn all_steps(job: &Job) -> Vec<Step<'_>> {
    let further = steps::begun(job).map(|step| Step::further(job, step));
    std::iter::once(Step::first(job)).chain(further).collect()
}

fn step(step: &Step<'_>) -> Value {
    let exit = step.further.map_or_else(|| step.job.exit_code(), steps::exit_code);
    let cpu_us = match step.further {
        Some(further) => further.cpu_ms.saturating_mul(1000),
        None => {
            let usage = step.job.report.usage.as_ref();
            usage.map_or(0, |it| it.user_us.saturating_add(it.system_us))
        }
    };
    let nodes = step.nodes();
    json!({
        "step": { "id": step.shown_id(), "name": step.title() },
        "state": [step.state().words().0],
        "exit_code": exit_code(step.state(), &exit),
        "nodes": { "count": nodes.len(), "range": format_host_list(nodes) },
        "tasks": { "count": step.tasks() },
        "time": {
            "elapsed": step.elapsed_ms() / 1000,
            "total": { "seconds": cpu_us / 1_000_000, "microseconds": cpu_us % 1_000_000 },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{State, exit_code, limit, number};

    #[test]
    fn numbers_say_whether_they_are_set() {
        assert_eq!(number(Some(3))["number"], 3);
        assert_eq!(number(None)["set"], false);
        assert_eq!(limit(Some(60_001))["number"], 2, "minutes, rounded up");
        assert_eq!(limit(None)["infinite"], true);
    }

    #[test]
    fn an_exit_code_has_a_word_a_status_and_a_signal() {
        let shown = |state, text: &str| {
            let it = exit_code(state, text);
            let part = |it: &serde_json::Value| it["number"].as_u64().unwrap();
            let word = it["status"][0].as_str().unwrap().to_owned();
            (word, part(&it["return_code"]), part(&it["signal"]["id"]))
        };
        assert_eq!(shown(State::Running, "0:0"), ("PENDING".into(), 0, 0));
        assert_eq!(shown(State::Completed, "0:0"), ("SUCCESS".into(), 0, 0));
        assert_eq!(shown(State::Failed, "3:0"), ("ERROR".into(), 3, 0));
        assert_eq!(shown(State::Cancelled, "0:15"), ("SIGNALED".into(), 0, 15));
    }
}
