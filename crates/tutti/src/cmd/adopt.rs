//! `tutti adopt`: processes that run already become a job.

use anyhow::Context;
use clap::Args;
use serde_bytes::ByteBuf;
use tutti_client::ask::{ask_until_answered, unexpected};
use tutti_client::output::{plain, print};
use tutti_client::{duration, job_name, submit};
use tutti_linux::proc::{ProcessStat, ancestors, command_line};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::instance::is_of_the_system;
use tutti_types::{ClassName, FirstStep, JobId, Nanos, OnBadExit, QueueName};
use tutti_wire::code::Code;
use tutti_wire::launch::{AdoptedProcess, LaunchSpec, Stdio, cut};
use tutti_wire::limits::NAME_BYTES_MAX;
use tutti_wire::local::{JobRequest, NodesRequest, Reply, Request};

const EXAMPLES: &str = "\
Examples:
  tutti adopt 4711                   process 4711 and its descendants take turns
  tutti adopt -c 2 -J long 4711      they get two processors and a name";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdoptArgs {
    /// Processors for the job [default: 1]
    #[arg(short = 'c', long = "processors", value_name = "C")]
    processors: Option<u32>,

    /// Maximum run time, the sum of the job's turns, such as 90s, 10m or 1:30:00
    #[arg(short = 't', long = "time", value_name = "TIME", value_parser = duration)]
    time: Option<Nanos>,

    /// Class of the job; `tutti params` lists them
    #[arg(long, value_name = "NAME", default_value = "production")]
    class: String,

    /// Name of the job [default: the first process's name]
    #[arg(short = 'J', long, value_name = "NAME", value_parser = job_name)]
    name: Option<String>,

    /// Time between SIGTERM and SIGKILL when the job has to end
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    grace: Nanos,

    /// Print only the number of the job, for scripts
    #[arg(long)]
    parsable: bool,

    /// Running processes of yours; their descendants are adopted with them
    #[arg(required = true, value_name = "PID", value_parser = pid)]
    pids: Vec<i32>,
}

fn pid(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().filter(|&pid: &i32| pid > 0);
    number.ok_or_else(|| format!("{text:?} is no process; write its number, such as 4711"))
}

pub(crate) fn execute(args: &AdoptArgs) -> anyhow::Result<Exit> {
    let mut adopt: Vec<AdoptedProcess> = Vec::new();
    let mut first = None;
    for &pid in &args.pids {
        let found = ProcessStat::read(pid).ok().filter(|stat| !stat.has_ended());
        let Some(stat) = found else {
            return Err(coded(Code::CannotAdopt, format!("there is no process {pid}")));
        };
        // The ancestors of the asking process can be checked on this machine only.
        if !is_of_the_system(pid) && ancestors(std::process::id().cast_signed()).contains(&pid) {
            let reason = format!(
                "process {pid} is an ancestor of this tutti, which would be suspended with it; name a process \
                 that the shell has started"
            );
            return Err(coded(Code::CannotAdopt, reason));
        }
        if !adopt.iter().any(|process| process.pid == pid) {
            adopt.push(AdoptedProcess { pid, start_time: stat.start_time });
        }
        first.get_or_insert(stat);
    }
    let first = first.context("no process is named")?;
    let command = command_line(&first);
    let name = args.name.clone().unwrap_or_else(|| cut(first.comm.clone(), NAME_BYTES_MAX));
    let request = request(args, name, &command, adopt);
    let command = plain(&command);
    match submit(request)? {
        Reply::Accepted { job, waits } if waits.is_empty() => {
            let end = begun(job)?;
            match args.parsable {
                true => print(&format!("{job}\n"))?,
                false => print(&format!(
                    "job {job} has adopted process {} ({command}){end}\n",
                    first.pid
                ))?,
            }
        }
        Reply::Accepted { job, .. } if args.parsable => print(&format!("{job}\n"))?,
        Reply::Accepted { job, waits } => print(&format!(
            "job {job} is queued: {waits}\nit adopts process {} ({command}) when it starts; until then \
             that goes on as before\n",
            first.pid
        ))?,
        Reply::Declined { reason, code } => {
            say!("tutti: declined: {}", code.mark(&reason));
            return Ok(Exit::DECLINED);
        }
        Reply::Failed { reason, code } => return Err(coded(code, reason)),
        _ => return unexpected(),
    }
    Ok(Exit::OK)
}

/// Waits until the keeper has taken the processes in, and gives what to say if the job has ended since.
fn begun(job: JobId) -> anyhow::Result<&'static str> {
    let request = Request::WaitBegun { job };
    match ask_until_answered(&request)? {
        Reply::Done => Ok(""),
        Reply::Ended { report, .. } => match report.code {
            None => Ok(", which has ended"),
            Some(code) => {
                let what = [&report.detail, &report.reason].into_iter().find(|it| !it.is_empty());
                let what = what.map_or("", |text| text.lines().next().unwrap_or_default());
                let code = if code == Code::NotExecutable { Code::CannotAdopt } else { code };
                Err(coded(code, format!("job {job} has ended: {what}")))
            }
        },
        _ => unexpected(),
    }
}

fn request(
    args: &AdoptArgs,
    name: String,
    command: &str,
    adopt: Vec<AdoptedProcess>,
) -> JobRequest {
    JobRequest {
        // What runs already waits for no limit.
        queue: Some(QueueName::new("none")),
        names_class: true,
        class: ClassName::new(&args.class),
        tasks: 1,
        processors_per_task: args.processors,
        memory_per_task_bytes: None,
        time_limit: args.time,
        deadline: None,
        grace: args.grace,
        weights: None,
        nodes: NodesRequest::default(),
        on_bad_exit: OnBadExit::default(),
        on_node_loss: tutti_types::OnNodeLoss::default(),
        no_requeue: false,
        within: None,
        hold: false,
        after: None,
        singleton: false,
        begin_ms: None,
        warning: None,
        checkpoint: None,
        policy_args: Vec::new(),
        swap: false,
        array: None,
        notify: None,
        first: FirstStep::EachSlot,
        resources: Vec::new(),
        launch: LaunchSpec {
            name,
            argv: vec![ByteBuf::from(command.as_bytes())],
            script: None,
            environment: Vec::new(),
            directory: ByteBuf::from(&b"/"[..]),
            umask: 0o022,
            nice: 0,
            slurm: false,
            resume: None,
            vacate: None,
            rlimits: Vec::new(),
            stdio: Stdio::Kept,
            processes_max: None,
            adopt,
        },
    }
}
