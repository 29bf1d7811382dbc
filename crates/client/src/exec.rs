//! `tutti exec`: a command beside a task of a running job, as a further step of that job.

use super::run::{Inside, RunOptions, run_step};
use super::sink::OutputOptions;
use super::submission::new_key;
use super::task_ends::TellEnds;
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tutti_node::exit::Exit;
use tutti_types::{JobId, Nanos, OnBadExit, Rank, StepSpec};
use tutti_wire::launch::{InputTo, LaunchSpec, Stdio, cut};
use tutti_wire::limits::NAME_BYTES_MAX;
use tutti_wire::local::StepRequest;

/// How long a command that was asked to end may take.
const GRACE: Nanos = Nanos::from_secs(5);

/// A command that is to run beside a task.
#[derive(Clone, Debug)]
pub struct ExecOptions {
    /// The job.
    pub job: JobId,
    /// The task whose node and environment it has.
    pub rank: Rank,
    /// The command and its arguments.
    pub argv: Vec<OsString>,
    /// `NAME=value`, in place of what the task found.
    pub variables: Vec<OsString>,
    /// Where it starts; `None`: where the task did.
    pub directory: Option<OsString>,
    /// Whether it reads what this process does.
    pub has_input: bool,
    /// Whether it has a terminal of its own.
    pub terminal: bool,
}

/// Runs a command beside a task, and gives its exit code.
///
/// # Errors
/// If the job does not run, or is another user's.
pub fn exec(options: &ExecOptions) -> anyhow::Result<Exit> {
    let input = if options.has_input { InputTo::Rank(0) } else { InputTo::Nobody };
    let bytes = |text: &OsString| ByteBuf::from(text.as_bytes());
    let program = options.argv.first().map(Path::new).and_then(Path::file_name);
    let step = StepRequest {
        job: options.job,
        key: new_key()?,
        again: false,
        spec: StepSpec {
            tasks: 1,
            processors_per_task: None,
            overlap: true,
            nodes: None,
            grace: GRACE,
            on_bad_exit: OnBadExit::default(),
            lender: None,
            beside: Some(options.rank),
            spawned_by: None,
            on_node: None,
        },
        memory_per_task_bytes: None,
        spawned: None,
        node: None,
        serves: false,
        launch: LaunchSpec {
            name: cut(program.unwrap_or_default().to_string_lossy().into_owned(), NAME_BYTES_MAX),
            argv: options.argv.iter().map(bytes).collect(),
            script: None,
            environment: options.variables.iter().map(bytes).collect(),
            directory: options.directory.as_ref().map(bytes).unwrap_or_default(),
            // What is left out here, the controller takes from the job.
            umask: 0,
            rlimits: Vec::new(),
            stdio: Stdio::FrontEnd { input },
            processes_max: None,
            adopt: Vec::new(),
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
        },
    };
    let (terminal, inside) = (options.terminal, Inside::default());
    let output = OutputOptions { terminal, ..OutputOptions::default() };
    let (summary, panes, tells_ends) = (false, false, TellEnds::No);
    run_step(step, RunOptions { output, input, summary, inside, terminal, panes, tells_ends })
}
