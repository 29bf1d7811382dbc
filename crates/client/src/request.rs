//! Makes a request for a job from what the user typed and where they stand.

use super::nodes::NodeOptions;
use super::weights::weights;
use anyhow::Context;
use clap::Args;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use tutti_node::codes::coded;
use tutti_types::limits::CHECKPOINT_EVERY_MIN;
use tutti_types::{
    Checkpoint, ClassName, FirstStep, JobId, Nanos, OnBadExit, OnNodeLoss, QueueName,
    ResourceError, ResourceWish, Warning, Weights,
};
use tutti_wire::code::Code;
use tutti_wire::launch::{LaunchSpec, Stdio, cut};
use tutti_wire::limits::{JOB_REQUEST_BYTES_MAX, NAME_BYTES_MAX};
use tutti_wire::local::JobRequest;
use tutti_wire::units::{parse_bytes, parse_count, parse_duration};

/// Help of `--on-node-loss`.
const ON_NODE_LOSS: &str = "When a node is lost: kill (end the job), requeue (queue it again, up to \
    three times; submit only), notify (other tasks go on; notify=USR1 sends them a signal) or \
    respawn[=TIME][,SIGNAL][:kill|:requeue|:notify] (start lost ranks elsewhere; if there are no \
    processors within TIME [10m], the last word holds [kill]; submit only)";

/// Headings of groups of options, as `--help` shows them.
pub(super) const NODES: &str = "Nodes";
/// The heading of options about when a job runs.
pub const SCHEDULING: &str = "Scheduling";
/// The heading of options about failures.
pub const FAILURES: &str = "Failures and limits";
const CHECKPOINTS: &str = "Checkpoints";
/// The heading of options for standard input and output.
pub const STDIO: &str = "Input and output";

// What `run` and `submit` have in common. No doc comment: clap would show it as the verb's own text.
#[allow(missing_docs, reason = "clap would show it")]
#[derive(Args, Clone, Debug)]
pub struct JobOptions {
    /// Number of tasks [default: 1, or one for each node of -N]
    #[arg(short = 'n', long = "tasks", value_name = "N", value_parser = count)]
    pub tasks: Option<u32>,

    /// Admit the job with room for N tasks: beyond -n, for those that its tasks spawn
    /// (`MPI_Comm_spawn`)
    #[arg(long, value_name = "N", value_parser = count, help_heading = SCHEDULING)]
    pub max_tasks: Option<u32>,

    /// Processors for each task alone [default: one each, shared where the machine has fewer]
    #[arg(short = 'c', long = "processors", value_name = "C", value_parser = count)]
    pub processors: Option<u32>,

    #[command(flatten)]
    pub nodes: NodeOptions,

    /// Maximum memory of each task, such as 512M or 4G
    #[arg(short = 'm', long = "memory", value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u64>,

    /// Maximum run time, the sum of the job's turns, such as 90s, 10m or 1:30:00
    #[arg(short = 't', long = "time", value_name = "TIME", value_parser = duration)]
    pub time: Option<Nanos>,

    /// Reject the job unless it is guaranteed to finish within this time, such as 2h; needs
    /// policy=deadline and -t
    #[arg(short = 'd', long, value_name = "TIME", requires = "time", value_parser = duration)]
    #[arg(help_heading = SCHEDULING)]
    pub deadline: Option<Nanos>,

    /// Begin no earlier than then: 16:00, tomorrow, 2026-12-24T20:00, +30m or now+1hour
    #[arg(long, value_name = "WHEN", value_parser = tutti_node::begin_time::begin_ms)]
    #[arg(conflicts_with = "deadline", help_heading = SCHEDULING)]
    pub begin: Option<u64>,

    /// Class of the job; `tutti params` lists them [default: that of the queue, or interactive for
    /// run, production for submit]
    #[arg(long, value_name = "NAME", help_heading = SCHEDULING)]
    pub class: Option<String>,

    /// Class benchmark: as a job that is debugged, it keeps its processors
    #[arg(long, conflicts_with = "class", help_heading = SCHEDULING)]
    pub debug: bool,

    /// Queue of the job, or none; `tutti queue` lists them [default: TUTTI_QUEUE, or the queue that
    /// the site has as default, if any]
    #[arg(short = 'q', long, alias = "partition", value_name = "NAME", help_heading = SCHEDULING)]
    pub queue: Option<String>,

    /// Counted resource that the job needs: NAME, NAME:COUNT or NAME@NUMBER, of nodes' own also
    /// NAME:COUNT/node or /task; may be repeated; `tutti resource` and `tutti nodes resource` list
    /// them
    #[arg(long, value_name = "NAME[:COUNT]", help_heading = SCHEDULING)]
    pub resource: Vec<ResourceWish>,

    /// GPUs for the whole job, or for each node or task: 2, 2/node or 1/task
    #[arg(long, value_name = "N[/node|/task]", value_parser = gpus, help_heading = NODES)]
    pub gpus: Option<ResourceWish>,

    /// Other devices of nodes: NAME, NAME:COUNT, NAME:COUNT/node or NAME:COUNT/task; may be
    /// repeated; `tutti nodes device` lists them
    #[arg(long, value_name = "NAME[:COUNT]", value_parser = ResourceWish::parse_devices)]
    #[arg(help_heading = NODES)]
    pub device: Vec<ResourceWish>,

    /// Choose nodes by performance in int, float, double, memory, network and latency, such as
    /// double=3,network=2 [default: the parameters weight_...]
    #[arg(long, value_name = "FIGURE=N,...", value_parser = weights, help_heading = NODES)]
    pub weights: Option<Weights>,

    /// Name of the job [default: the program's name]
    #[arg(short = 'J', long, value_name = "NAME", value_parser = job_name)]
    pub name: Option<String>,

    /// Time between SIGTERM and SIGKILL when the job has to end
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    #[arg(help_heading = FAILURES)]
    pub grace: Nanos,

    /// End the job when any task fails [default: only when a signal kills a task]
    #[arg(long, conflicts_with = "keep_going", help_heading = FAILURES)]
    pub kill_on_bad_exit: bool,

    /// Go on with the other tasks when a task fails
    #[arg(long, help_heading = FAILURES)]
    pub keep_going: bool,

    /// What the failure of a task means for the others.
    ///
    /// kill ends them, as --kill-on-bad-exit. continue goes on, as --keep-going. notify goes on and
    /// tells the others which rank failed: MPI libraries that tolerate faults by PMIx, and all
    /// programs by a signal where one is named, such as notify=USR1
    #[arg(long, value_name = "HOW", value_parser = super::nodes::on_rank_failure)]
    #[arg(conflicts_with_all = ["kill_on_bad_exit", "keep_going"], help_heading = FAILURES)]
    pub on_rank_failure: Option<OnBadExit>,

    /// What happens when a node is lost.
    #[arg(long, value_name = "HOW", default_value = "kill", value_parser = super::nodes::on_node_loss)]
    #[arg(help_heading = FAILURES, help = ON_NODE_LOSS)]
    pub on_node_loss: OnNodeLoss,

    /// Send SIG this long before the time limit [default: 60s], such as USR2@90 or B:USR1@5m; with
    /// B: only to a batch script's shell, else to its steps
    #[arg(long, value_name = "[B:]SIG[@TIME]", value_parser = super::nodes::parse_warning)]
    #[arg(help_heading = FAILURES)]
    pub signal: Option<Warning>,

    /// Have the job's processes saved to an image by CRIU when `tutti checkpoint` asks for it, and
    /// restored from that; for jobs of one task
    #[arg(long, help_heading = CHECKPOINTS)]
    #[arg(conflicts_with_all = ["checkpoint_signal", "checkpoint_exit"])]
    #[arg(conflicts_with_all = ["resume_command", "vacate"])]
    pub checkpoint: bool,

    /// Signal that asks the job to save its state and end, such as USR1; with B: only a batch
    /// script's shell, else its steps
    #[arg(long, value_name = "[B:]SIG", value_parser = super::nodes::parse_checkpoint_signal)]
    #[arg(help_heading = CHECKPOINTS)]
    pub checkpoint_signal: Option<(u8, bool)>,

    /// Time that the tasks have to save their state and end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    #[arg(help_heading = CHECKPOINTS)]
    pub checkpoint_grace: Nanos,

    /// Exit code of a run that has saved its state and is not done [default: any, while the job is
    /// asked to end]
    #[arg(long, value_name = "CODE", help_heading = CHECKPOINTS)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    pub checkpoint_exit: Option<u8>,

    /// Ask the job this often to save its state and go on, such as 30m
    #[arg(long, value_name = "TIME", value_parser = every)]
    #[arg(help_heading = CHECKPOINTS)]
    pub checkpoint_every: Option<Nanos>,

    /// Command that a shell runs instead of the job's, where an earlier run saved its state
    #[arg(long, value_name = "COMMAND")]
    #[arg(help_heading = CHECKPOINTS)]
    pub resume_command: Option<OsString>,
    /// Ask programs that register for it to release what they hold, such as a device, this long
    /// before each turn of the job ends, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = vacate, help_heading = SCHEDULING)]
    pub vacate: Option<Nanos>,

    /// Let the memory of the job be swapped out while it is suspended or preempted, so that other
    /// jobs can have it
    #[arg(long, help_heading = SCHEDULING)]
    pub swap: bool,

    /// A parameter for the site's policy program, such as urgency=7; repeat it for each
    #[arg(long = "policy-arg", value_name = "NAME=VALUE", value_parser = policy_arg)]
    #[arg(help_heading = SCHEDULING)]
    pub policy_args: Vec<(String, String)>,

    /// Maximum number of processes of each task; further forks fail, and a message at the end of
    /// the job reports them
    #[arg(long, value_name = "N", value_parser = processes, help_heading = FAILURES)]
    pub max_processes: Option<u64>,

    #[command(flatten)]
    pub notify: super::notify::NotifyOptions,

    /// Give the tasks Slurm's variables, and its commands first in PATH; see `tutti slurm`
    #[arg(long, help_heading = "Environment")]
    pub slurm: bool,

    /// Working directory of the tasks [default: this one]
    #[arg(short = 'D', long, value_name = "DIR")]
    pub directory: Option<OsString>,
}

/// GPUs, as `--gpus` has them.
fn gpus(text: &str) -> Result<ResourceWish, ResourceError> {
    ResourceWish::parse_devices(&format!("gpu:{text}"))
}

/// All counted resources and devices.
fn resources(options: &JobOptions) -> Vec<ResourceWish> {
    let devices = options.gpus.iter().chain(&options.device);
    options.resource.iter().chain(devices).copied().collect()
}

/// What becomes of the other tasks when one fails.
fn on_bad_exit(options: &JobOptions) -> OnBadExit {
    match (options.kill_on_bad_exit, options.keep_going) {
        (true, _) => OnBadExit::Kill,
        (false, true) => OnBadExit::Continue,
        (false, false) => options.on_rank_failure.unwrap_or_default(),
    }
}

/// Accepts a parameter for the policy program.
fn policy_arg(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as urgency=7")?;
    let arg = (name.to_owned(), value.to_owned());
    match tutti_types::check_policy_args(std::slice::from_ref(&arg)) {
        Ok(()) => Ok(arg),
        Err(error) => Err(error.to_string()),
    }
}

/// Accepts a pattern for the names of files if it can be filled in.
pub fn pattern_parser() -> impl clap::builder::TypedValueParser<Value = OsString> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    OsStringValueParser::new()
        .try_map(|text| tutti_wire::pattern::check(text.as_bytes()).map(|()| text))
}

/// What the letters in the names of files stand for, as `--help` shows it.
pub const FILE_LETTERS: &str = "\
In names of files:
  %j  job        %x  name of the job    %N  node
  %r  rank       %u  user               %%  a percent sign
  %A  array      %a  index in the array %s  step
  %4r is the rank with at least four digits, such as 0007; so is %4j";

/// What no program can do with less: a slip such as `-m 5`, which means five bytes.
const MEMORY_MIN_BYTES: u64 = 1 << 20;

/// Accepts the memory of a task, in bytes.
///
/// # Errors
/// If it is none, or too little for any program.
pub fn memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if bytes >= MEMORY_MIN_BYTES {
        return Ok(bytes);
    }
    let mut error = format!("{text} is {bytes} bytes; the least is 1M");
    if (1..1024).contains(&bytes) {
        error.push_str(&format!("; perhaps {bytes}M or {bytes}G is meant"));
    }
    Err(error)
}

/// One that is seen in tables.
pub fn job_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => {
            Err("the name is empty; leave -J out, and the job is called after its program".into())
        }
        _ => Ok(text.into()),
    }
}

/// Accepts how many there are to be, at least one.
///
/// # Errors
/// If it is no such number.
pub fn count(text: &str) -> Result<u32, String> {
    match parse_count(text) {
        Ok(0) => Err("the least is 1".into()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

/// No kernel has more processes, and none takes a larger limit (`PID_MAX_LIMIT`).
const PROCESSES_MAX: u32 = 4 << 20;

fn processes(text: &str) -> Result<u64, String> {
    match count(text)? {
        count if count <= PROCESSES_MAX => Ok(count.into()),
        _ => Err(format!("{} is too much; the most is {PROCESSES_MAX}", text.trim())),
    }
}

/// The longest time before the end of a turn at which a job may be asked to vacate.
const VACATE_MAX: Nanos = Nanos::from_secs(3600);

/// Accepts how long before the end of a turn a job is asked to vacate.
fn vacate(text: &str) -> Result<Nanos, String> {
    match duration(text)? {
        Nanos(0) => Err("the least is 1ns; leave --vacate out, and no program is asked".into()),
        time if time > VACATE_MAX => Err(format!("{} is too long; the most is 1h", text.trim())),
        time => Ok(time),
    }
}

/// A length of time, as an argument.
pub fn duration(text: &str) -> Result<Nanos, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// A time between two requests to save the state.
fn every(text: &str) -> Result<Nanos, String> {
    let every = duration(text)?;
    if every >= CHECKPOINT_EVERY_MIN { Ok(every) } else { Err("the least is 1s".into()) }
}

/// How the job saves its state, if it does. Each option may stand on a line of its own in a script,
/// so that only the whole tells what is missing.
fn checkpoint(options: &JobOptions) -> anyhow::Result<Option<Checkpoint>> {
    let grace = options.checkpoint_grace;
    if options.checkpoint {
        let signal = Checkpoint::IMAGE;
        let (only_shell, exit_code, every) = (false, None, options.checkpoint_every);
        return Ok(Some(Checkpoint { signal, only_shell, grace, exit_code, every }));
    }
    let Some((signal, only_shell)) = options.checkpoint_signal else {
        let others = [
            ("--checkpoint-exit", options.checkpoint_exit.is_some()),
            ("--checkpoint-every", options.checkpoint_every.is_some()),
            ("--resume-command", options.resume_command.is_some()),
        ];
        return match others.iter().find(|(_, is_asked)| *is_asked) {
            None => Ok(None),
            Some((option, _)) => {
                let or_image = match *option {
                    "--checkpoint-every" => ", or --checkpoint",
                    _ => "",
                };
                let reason =
                    format!("{option} needs --checkpoint-signal, such as USR1 or B:USR1{or_image}");
                Err(coded(Code::BadValue, reason))
            }
        };
    };
    Ok(Some(Checkpoint {
        signal,
        only_shell,
        grace,
        exit_code: options.checkpoint_exit,
        every: options.checkpoint_every,
    }))
}

/// Makes the request. Relative paths hold from here; the environment is this one.
///
/// # Errors
/// If this directory has no name any more, or there is too much of it all.
pub fn job_request(
    options: &JobOptions,
    class: &str,
    argv: &[OsString],
    script: Option<Vec<u8>>,
    stdio: Stdio,
) -> anyhow::Result<JobRequest> {
    let here = std::env::current_dir().context(
        "this directory is gone or may not be read; change to another, or name one with -D",
    );
    let directory = match &options.directory {
        Some(directory) if std::path::Path::new(directory).is_absolute() => directory.into(),
        Some(directory) => here?.join(directory),
        None => here?,
    };
    let name = options.name.clone().unwrap_or_else(|| {
        let program = argv.first().map(std::path::Path::new);
        let name = program.and_then(|p| p.file_name()).unwrap_or_default();
        cut(name.to_string_lossy().into_owned(), NAME_BYTES_MAX)
    });
    let (slots, first) = slots(options)?;
    let within = outer_job().filter(|_| matches!(stdio, Stdio::FrontEnd { .. }));
    let is_inner = within.is_some();
    let mut request = JobRequest {
        class: ClassName::new(named_class(options).unwrap_or(class)),
        tasks: slots,
        processors_per_task: options.processors,
        memory_per_task_bytes: options.memory,
        time_limit: options.time,
        deadline: options.deadline,
        grace: options.grace,
        weights: options.weights,
        nodes: options.nodes_request()?,
        on_node_loss: options.on_node_loss,
        no_requeue: false,
        on_bad_exit: on_bad_exit(options),
        hold: false,
        first,
        after: None,
        singleton: false,
        begin_ms: options.begin,
        warning: options.signal,
        array: None,
        notify: options.notify.request()?,
        resources: resources(options),
        policy_args: options.policy_args.clone(),
        swap: options.swap,
        checkpoint: checkpoint(options)?,
        within,
        launch: LaunchSpec {
            name,
            argv: argv.iter().map(|arg| ByteBuf::from(arg.as_bytes())).collect(),
            script: script.map(ByteBuf::from),
            environment: environment(options.slurm, is_inner),
            directory: ByteBuf::from(directory.into_os_string().into_vec()),
            umask: current_umask(),
            rlimits: rlimits(),
            stdio,
            processes_max: options.max_processes,
            adopt: Vec::new(),
            nice: tutti_linux::rt::nice(),
            slurm: options.slurm,
            resume: options.resume_command.as_ref().map(|it| ByteBuf::from(it.as_bytes())),
            vacate: options.vacate,
        },
        queue: options.queue.clone().or_else(queue_of_environment).map(|it| QueueName::new(&it)),
        names_class: named_class(options).is_some(),
    };
    if options.slurm && !is_inner {
        let queue = request.queue.as_ref().map(ToString::to_string);
        let partition = queue.unwrap_or_else(|| request.class.to_string());
        let partition = format!("SLURM_JOB_PARTITION={partition}");
        request.launch.environment.push(ByteBuf::from(partition));
    }
    check_size(&request.launch)?;
    Ok(request)
}

fn check_size(launch: &LaunchSpec) -> anyhow::Result<()> {
    let bytes = launch.bytes();
    anyhow::ensure!(
        bytes <= JOB_REQUEST_BYTES_MAX - (64 << 10),
        "arguments, environment and script take {bytes} bytes, too much for a job; put what is long \
         into files"
    );
    Ok(())
}

/// How many slots a job is to have, and the tasks that it starts with.
fn slots(options: &JobOptions) -> anyhow::Result<(u32, FirstStep)> {
    let tasks = options.tasks()?;
    match options.max_tasks {
        None => Ok((tasks, FirstStep::EachSlot)),
        Some(most) if most < tasks => {
            let reason = format!(
                "--max-tasks {most} is less than the {tasks} tasks that the job starts with"
            );
            Err(coded(Code::BadValue, reason))
        }
        Some(most) if most == tasks => Ok((tasks, FirstStep::EachSlot)),
        Some(most) => Ok((most, FirstStep::Tasks(tasks))),
    }
}

/// The class of jobs that are debugged: they are not preempted.
const DEBUG_CLASS: &str = "benchmark";

fn named_class(options: &JobOptions) -> Option<&str> {
    options.class.as_deref().or(options.debug.then_some(DEBUG_CLASS))
}

/// The queue of jobs that name none.
fn queue_of_environment() -> Option<String> {
    std::env::var("TUTTI_QUEUE").ok().filter(|queue| !queue.is_empty())
}

/// The job whose task this process is of, if any.
pub fn outer_job() -> Option<JobId> {
    std::env::var("TUTTI_JOB").ok()?.parse().ok().map(JobId)
}

fn environment(slurm: bool, is_inner: bool) -> Vec<ByteBuf> {
    let all = super::slurm::environment(slurm, is_inner);
    all.into_iter().map(|variable| ByteBuf::from(super::slurm::pair(variable))).collect()
}

fn current_umask() -> u32 {
    // The kernel returns the mask only when it is set.
    let mask = umask(Mode::from_bits_truncate(0o022));
    umask(mask);
    mask.bits()
}

fn rlimits() -> Vec<(u32, u64, u64)> {
    const RESOURCES: [Resource; 10] = [
        Resource::RLIMIT_AS,
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_CPU,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_NOFILE,
        Resource::RLIMIT_NPROC,
        Resource::RLIMIT_RSS,
        Resource::RLIMIT_STACK,
    ];
    RESOURCES
        .iter()
        .filter_map(|&resource| {
            let (soft, hard) = getrlimit(resource).ok()?;
            Some((resource as u32, soft, hard))
        })
        .collect()
}
