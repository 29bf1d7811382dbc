//! `tutti show --json`.

use super::{on_bad_exit, on_node_loss};
use serde::Serialize;
use tutti_node::output_files::file_name;
use tutti_types::JobId;
use tutti_wire::history::Ending;
use tutti_wire::launch::{Stdio, Usage};
use tutti_wire::report::{JobReport, StartReport};
use tutti_wire::show::{
    CheckpointReport, JobDetails, NodeShare, ShowReport, StateChange, StepReport,
};

/// What `ps` has of a job, and what only `show` has.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    #[serde(flatten)]
    job: &'a JobReport,
    ending: Option<Ending>,
    accepted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    details: Option<Details<'a>>,
    environment: Option<Vec<String>>,
    steps: &'a [StepReport],
    front_end: Option<&'a str>,
    processors_in_use: u32,
    shares_devices_with: &'a [JobId],
    used_on: Vec<UsedOn<'a>>,
    expected: Option<&'a StartReport>,
}

/// What a live job has used on a node.
#[derive(Serialize)]
struct UsedOn<'a> {
    node: &'a str,
    cpu_ms: u64,
}

#[derive(Serialize)]
struct Details<'a> {
    command: &'a [String],
    command_left_out: u32,
    script_bytes: Option<u64>,
    directory: String,
    output_to: &'static str,
    output: Option<String>,
    error: Option<String>,
    input: Option<String>,
    processors_per_task: Option<u32>,
    memory_per_task_bytes: Option<u64>,
    deadline_ms: Option<u64>,
    grace_ms: u64,
    node_count: Option<u32>,
    only_nodes: Option<&'a str>,
    exclude_nodes: Option<&'a str>,
    spread: bool,
    exclusive: bool,
    on_bad_exit: String,
    on_node_loss: String,
    no_requeue: bool,
    nice: i32,
    processes_max: Option<u64>,
    nodes: &'a [NodeShare],
    nodes_left_out: u32,
    requeues: u32,
    after: &'a [String],
    after_one: bool,
    states: &'a [StateChange],
    states_left_out: u32,
    checkpoint: Option<&'a CheckpointReport>,
}

impl<'a> Shown<'a> {
    pub(super) fn of(
        report: &'a ShowReport,
        used: &'a [(String, Usage)],
        expected: Option<&'a StartReport>,
    ) -> Self {
        let text = |bytes: &serde_bytes::ByteBuf| String::from_utf8_lossy(bytes).into_owned();
        Self {
            job: &report.job,
            ending: report.ending,
            accepted_ms: report.accepted_ms,
            started_ms: report.started_ms,
            ended_ms: report.ended_ms,
            details: report.details.as_ref().map(|details| Details::of(&report.job, details)),
            environment: report.environment.as_ref().map(|all| all.iter().map(text).collect()),
            steps: &report.steps,
            front_end: report.front_end.as_deref(),
            processors_in_use: report.processors_in_use,
            shares_devices_with: &report.shares_devices_with,
            used_on: used.iter().map(UsedOn::of).collect(),
            expected,
        }
    }
}

impl<'a> UsedOn<'a> {
    fn of((node, usage): &'a (String, Usage)) -> Self {
        Self { node, cpu_ms: usage.user_us.saturating_add(usage.system_us) / 1000 }
    }
}

impl<'a> Details<'a> {
    fn of(job: &JobReport, details: &'a JobDetails) -> Self {
        let name = |pattern: &serde_bytes::ByteBuf| file_name(pattern, job, details);
        let (output_to, [input, output, error]) = match &details.stdio {
            Stdio::FrontEnd { .. } => ("front-end", [const { None }; 3]),
            Stdio::Kept => ("kept", [const { None }; 3]),
            Stdio::Files { input, output, error, .. } => {
                let error = error.as_ref().unwrap_or(output);
                ("files", [input.as_ref().map(name), Some(name(output)), Some(name(error))])
            }
        };
        let asked = &details.asked;
        Self {
            command: &details.command,
            command_left_out: details.command_left_out,
            script_bytes: details.script_bytes,
            directory: String::from_utf8_lossy(&details.directory).into_owned(),
            output_to,
            output,
            error,
            input,
            processors_per_task: asked.processors_per_task,
            memory_per_task_bytes: asked.memory_per_task_bytes,
            deadline_ms: asked.deadline_ms,
            grace_ms: asked.grace_ms,
            node_count: asked.nodes,
            only_nodes: asked.only.as_deref(),
            exclude_nodes: asked.exclude.as_deref(),
            spread: asked.spread,
            exclusive: asked.exclusive,
            on_bad_exit: on_bad_exit(asked.on_bad_exit),
            on_node_loss: on_node_loss(asked.on_node_loss),
            no_requeue: asked.no_requeue,
            nice: details.nice,
            processes_max: details.processes_max,
            nodes: &details.nodes,
            nodes_left_out: details.nodes_left_out,
            requeues: details.requeues,
            after: &details.after,
            after_one: details.after_one,
            states: &details.states,
            states_left_out: details.states_left_out,
            checkpoint: details.checkpoint.as_ref(),
        }
    }
}
