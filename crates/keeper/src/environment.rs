//! What a task finds in its environment: the user's own variables, less those that an outer job or
//! another launcher left behind, and the task's place in its job in the words of each MPI starter.

use super::devices;
use super::pmix;
use super::starters;
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::ffi::CString;
use std::path::Path;
use tutti_node::layout;
use tutti_types::Rank;
use tutti_wire::host_list::format_host_list;
use tutti_wire::launch::{JobNode, Launch};

/// The descriptor at which a task finds its PMI server.
pub(super) const PMI_FD: i32 = 3;

/// Names that are never taken over: they describe a task of another job or another launcher.
const DROPPED_PREFIXES: [&str; 6] =
    ["TUTTI_", "PMI_", "PMIX_", "HYDI_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_"];

/// Exceptions: which instance a nested `tutti` talks to.
const KEPT: [&str; 2] = ["TUTTI_DIR", "TUTTI_CLUSTER"];

/// Which variables the user could have set and did not, with the values that they have instead: a job that a
/// task starts does not take them for its user's.
const DEFAULTS: &str = "TUTTI_DEFAULTS";

/// For `mpirun` of Open MPI 4 and 5, which would start no more processes than it sees processors.
/// That of MPICH starts as many as it is asked for.
const STARTERS: [(&str, &str); 2] = [
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

/// Where processes of the task register for notice before their slots end.
const VACATE: &str = "TUTTI_VACATE";

/// Whether a task's processes find a PMIx server for the steps that they start: its user has asked
/// for that, and the task itself needs none.
const SERVED: &str = "TUTTI_PMIX";

/// Names that every task gets and that therefore aren't taken over.
const REPLACED: [&str; 7] = [
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
];

/// What each task finds, with what it means; docs/reference/environment.md is made of it.
pub const VARIABLES: [(&str, &str); 47] = [
    ("TUTTI_JOB", "Number of the job"),
    ("TUTTI_STEP", "Number of the step in the job; 0: what the job started with"),
    ("TUTTI_RANK", "Rank of the task in its step, from 0"),
    ("TUTTI_SIZE", "Number of tasks of the step"),
    ("TUTTI_LOCAL_RANK", "Number of the task among those of its node, from 0"),
    ("TUTTI_LOCAL_SIZE", "Number of tasks on this node"),
    ("TUTTI_NODES", "Number of nodes of the job"),
    ("TUTTI_NODELIST", "Names of these nodes, separated by commas"),
    ("TUTTI_NODE_ADDRESSES", "Where these nodes reach each other; not set without a cluster"),
    ("TUTTI_SLOTS", "Number of slots of the job (`-n`): each has room for one task"),
    ("TUTTI_NODE_SLOTS", "Number of slots on each of these nodes, such as 2,2"),
    ("TUTTI_RESTARTS", "0 at the first launch; more at each one after a requeue or a respawn"),
    (
        "TUTTI_RESUMES",
        "Number of earlier runs that were asked to save their state; not set before there is one",
    ),
    ("TUTTI_SCRIPT", "Path of a batch script, of which a copy runs"),
    ("TUTTI_ARRAY_JOB", "Number of the array that the job is an element of"),
    ("TUTTI_ARRAY_INDEX", "Index of the element"),
    ("TUTTI_ARRAY_COUNT", "Number of elements of the array"),
    (
        "TUTTI_ARRAY_MIN, TUTTI_ARRAY_MAX, TUTTI_ARRAY_STEP",
        "Lowest and highest index, and distance",
    ),
    ("TUTTI_LINE", "Line of the element (`--each-line`)"),
    ("TUTTI_NODE_RANK", "Number of this node among them, from 0"),
    ("TUTTI_PROCESSORS", "Processors that the task is bound to, such as 0-1"),
    ("TUTTI_PROCESSORS_PER_TASK", "Processors for each task (`-c`)"),
    ("TUTTI_CLASS", "Class of the job"),
    (
        "TUTTI_RESOURCE_...",
        "Numbers of a counted resource that the job has, or of its devices on this node, such as 0,3",
    ),
    ("TUTTI_DEVICES", "Files of the job's devices on this node, separated by commas"),
    (
        "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK",
        "GPUs of the job on this node, for NVIDIA, AMD and Intel",
    ),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID: GPUs are numbered by their addresses"),
    ("TUTTI_QUANTUM", "Length of a turn at the launch, such as 100ms"),
    ("TUTTI_VACATE", "Socket at which programs register for notice (`--vacate`)"),
    ("TUTTI_DEFAULTS", "Variables that Tutti set because the submitter did not"),
    ("TMPDIR", "Directory for temporary files of the job on this node, which ends with the job"),
    ("OMP_NUM_THREADS", "`-c`, where the job has several tasks"),
    ("PYTHONUNBUFFERED", "1: Python's output is not held back"),
    ("RANK", "As `TUTTI_RANK`, for torch"),
    ("WORLD_SIZE", "As `TUTTI_SIZE`, for torch"),
    ("LOCAL_RANK", "As `TUTTI_LOCAL_RANK`, for torch"),
    ("LOCAL_WORLD_SIZE", "As `TUTTI_LOCAL_SIZE`, for torch"),
    ("GROUP_RANK", "As `TUTTI_NODE_RANK`, for torch"),
    ("MASTER_ADDR", "Where rank 0 is reached, for torch"),
    ("MASTER_PORT", "A port for the job's tasks to meet at, for torch"),
    ("PMI_RANK, PMI_SIZE", "Rank and number of tasks, for MPICH"),
    ("PMI_FD", "Descriptor of the task's PMI server, for MPICH"),
    ("PMI_SPAWNED", "1: other tasks have spawned the step (`MPI_Comm_spawn`), for MPICH"),
    (
        "OMPI_MCA_rmaps_base_oversubscribe, PRTE_MCA_rmaps_default_mapping_policy",
        "`mpirun` of Open MPI may start more processes than the job has slots",
    ),
    (
        "OMPI_MCA_..., HYDRA_...",
        "How `mpirun` reaches the other nodes of the job, on its first node",
    ),
    ("MPI_LOCALRANKID", "As `TUTTI_LOCAL_RANK`, for MPICH"),
    ("MPI_LOCALNRANKS", "As `TUTTI_LOCAL_SIZE`, for MPICH"),
];

/// What each task of a job finds that was submitted by a name of Slurm's, or with `--slurm`, with
/// what it means; docs/reference/environment.md is made of it.
pub const SLURM_VARIABLES: [(&str, &str); 30] = [
    ("TUTTI_SLURM", "1: the task finds these variables"),
    (
        "SLURM_JOB_ID, SLURM_JOBID",
        "Number of the job; of the outer one where `srun` runs inside a job",
    ),
    ("SLURM_JOB_NAME", "Name of the job"),
    ("SLURM_JOB_PARTITION", "Queue of the job, or its class"),
    ("SLURM_JOB_UID", "Number of the user"),
    ("SLURM_JOB_USER, SLURM_JOB_GID", "Name of the user, and number of the group"),
    ("SLURM_JOB_ACCOUNT, SLURM_JOB_QOS", "tutti, normal: there is one account and one QOS"),
    ("SLURM_JOB_NUM_NODES, SLURM_NNODES", "Number of nodes of the job"),
    ("SLURM_JOB_NODELIST, SLURM_NODELIST", "Names of these nodes, such as a[1-4]"),
    ("SLURM_NTASKS, SLURM_NPROCS", "Number of slots of the job (`-n`); in a step, of its tasks"),
    ("SLURM_NTASKS_PER_NODE", "As many on each node, where all have as many"),
    ("SLURM_TASKS_PER_NODE", "As many on each node, such as 2(x3),1"),
    (
        "SLURM_STEP_ID, SLURM_STEPID",
        "Number of the step in the job, from 0; not in a batch script, which is no numbered step",
    ),
    ("SLURM_STEP_NUM_TASKS", "Number of tasks of the step"),
    ("SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST", "Number of nodes of the step, and their names"),
    ("SLURM_STEP_TASKS_PER_NODE", "Tasks of the step on each of them, such as 2(x3),1"),
    ("SLURM_CPUS_PER_TASK", "Processors for each task (`-c`)"),
    ("SLURM_JOB_CPUS_PER_NODE", "Processors of the job on each node, such as 8(x3),4"),
    ("SLURM_CPUS_ON_NODE", "Processors of the job on this node"),
    ("SLURM_JOB_GPUS, SLURM_STEP_GPUS", "Numbers of the job's GPUs on this node"),
    ("SLURM_GPUS_ON_NODE", "How many these are"),
    ("SLURM_NODEID", "Number of this node among the job's, from 0"),
    ("SLURMD_NODENAME", "Name of this node"),
    ("SLURM_PROCID", "Rank of the task, from 0"),
    ("SLURM_LOCALID", "Number of the task among those of its node, from 0"),
    ("SLURM_RESTART_COUNT", "As `TUTTI_RESTARTS`; not at the first launch"),
    ("SLURM_CLUSTER_NAME", "Name of the cluster"),
    ("SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID", "Number of the array, and index of the element"),
    (
        "SLURM_ARRAY_TASK_COUNT, SLURM_ARRAY_TASK_MIN, SLURM_ARRAY_TASK_MAX, SLURM_ARRAY_TASK_STEP",
        "Number of elements, lowest and highest index, and distance",
    ),
    ("SLURM_SUBMIT_DIR, SLURM_SUBMIT_HOST", "Where the job was submitted"),
];

/// Those that the submitter sets. What runs inside a job leaves them as they are.
const SUBMITTERS: [&str; 18] = [
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_GID",
    "SLURM_JOB_QOS",
    "SLURM_JOB_USER",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_PARTITION",
    "SLURM_CLUSTER_NAME",
    "SLURM_SUBMIT_DIR",
    "SLURM_SUBMIT_HOST",
    // These the controller sets.
    "SLURM_STEP_ID",
    "SLURM_STEPID",
];

/// Those about the whole job, which a step inherits: it knows its own nodes only.
const OF_WHOLE_JOB: [&str; 4] =
    ["SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_CPUS_PER_NODE"];

/// The lowest port for torch's rendezvous, and how many there are to spread jobs over.
const MASTER_PORTS: (u64, u64) = (29_500, 1_000);

/// The part that is the same for all tasks of a job.
///
/// A variable without a name or with a zero byte in it can't exist and is left out. `spool`: where
/// the files for `mpirun` are.
pub(super) fn of_job(
    launch: &Launch,
    scratch: Option<&Path>,
    spool: Option<&Path>,
) -> Vec<CString> {
    let users = &launch.spec.environment;
    let outer = value_of(launch, DEFAULTS).unwrap_or_default();
    let outer: HashSet<&[u8]> = outer.split(|&byte| byte == b' ').collect();
    let is_users = |variable: &[u8]| !outer.contains(variable);
    let mut environment = taken_over(launch, scratch, &is_users);
    if let Some(path) = scratch.and_then(Path::to_str) {
        push(&mut environment, "TMPDIR", path);
    }
    let defaults = defaults(launch, spool, |name| {
        let is_it = |v: &&ByteBuf| name_of(v) == Some(name.as_bytes()) && is_users(v);
        users.iter().any(|variable| is_it(&variable))
    });
    let mut set = |name: &str, value: &str| push(&mut environment, name, value);
    set("TUTTI_JOB", &launch.job.to_string());
    set("TUTTI_STEP", &launch.step.to_string());
    set("TUTTI_RESTARTS", &launch.number.to_string());
    if launch.resumes > 0 {
        set("TUTTI_RESUMES", &launch.resumes.to_string());
    }
    set("TUTTI_SIZE", &launch.size.to_string());
    set("TUTTI_LOCAL_SIZE", &launch.share.tasks.len().to_string());
    set("TUTTI_NODE_RANK", &launch.share.node_rank.to_string());
    set("TUTTI_NODES", &launch.nodes.len().to_string());
    let names: Vec<&str> = launch.nodes.iter().map(|node| node.name.as_str()).collect();
    set("TUTTI_NODELIST", &names.join(","));
    if launch.nodes.iter().any(|node| !node.address.is_empty()) {
        let addresses: Vec<&str> = launch.nodes.iter().map(|it| it.address.as_str()).collect();
        set("TUTTI_NODE_ADDRESSES", &addresses.join(","));
    }
    let slots: Vec<u32> = launch.nodes.iter().map(|node| node.slots).collect();
    set("TUTTI_SLOTS", &slots.iter().fold(0, |sum: u32, it| sum.saturating_add(*it)).to_string());
    let slots: Vec<String> = slots.iter().map(ToString::to_string).collect();
    set("TUTTI_NODE_SLOTS", &slots.join(","));
    if let Some(path) = script_path(launch) {
        environment.extend(CString::new([b"TUTTI_SCRIPT=", path].concat()));
    }
    let mut set = |name: &str, value: &str| push(&mut environment, name, value);
    set("TUTTI_CLASS", &launch.class);
    for grant in &launch.resources {
        let numbers: Vec<String> = grant.numbers.iter().map(ToString::to_string).collect();
        set(&grant.name.variable(), &numbers.join(","));
    }
    for (name, value) in devices::of_job(launch) {
        set(&name, &value);
    }
    set("TUTTI_QUANTUM", &launch.quantum.to_string());
    set("WORLD_SIZE", &launch.size.to_string());
    set("LOCAL_WORLD_SIZE", &launch.share.tasks.len().to_string());
    set("GROUP_RANK", &launch.share.node_rank.to_string());
    set("PMI_SIZE", &launch.size.to_string());
    set("PMI_SPAWNED", if launch.spawned.is_some() { "1" } else { "0" });
    set("MPI_LOCALNRANKS", &launch.share.tasks.len().to_string());
    set("TUTTI_PROCESSORS_PER_TASK", &launch.processors_per_task.max(1).to_string());
    for (name, value) in slurm_of_job(launch).into_iter().chain(vacate_socket(launch, spool)) {
        set(name, &value);
    }
    set(DEFAULTS, &defaults.join(" "));
    environment.extend(defaults.into_iter().filter_map(|variable| CString::new(variable).ok()));
    environment
}

/// Where the tasks register for notice, if the job may. A step has that of its job.
fn vacate_socket(launch: &Launch, spool: Option<&Path>) -> Option<(&'static str, String)> {
    let of_step = || launch.id().is_further() && value_of(launch, VACATE).is_some();
    if launch.spec.vacate.is_none() && !of_step() {
        return None;
    }
    let socket = layout::vacate_socket(spool?.parent()?);
    Some((VACATE, socket.to_str()?.to_owned()))
}

/// The variables of the submitter that the tasks have, too.
fn taken_over(
    launch: &Launch,
    scratch: Option<&Path>,
    is_users: &dyn Fn(&[u8]) -> bool,
) -> Vec<CString> {
    let users = launch.spec.environment.iter();
    users
        .filter(|variable| {
            let is_kept = |name: &[u8]| {
                is_taken_over(name) || (launch.size == 1 && name == SERVED.as_bytes())
            };
            name_of(variable).is_some_and(is_kept) && is_users(variable)
        })
        .filter(|variable| !name_of(variable).is_some_and(|name| devices::replaces(launch, name)))
        .filter(|variable| scratch.is_none() || name_of(variable) != Some(b"TMPDIR"))
        .filter(|variable| {
            let is_kept = |name: &[u8]| {
                is_submitters(name)
                    || launch.id().is_further()
                        && OF_WHOLE_JOB.iter().any(|it| it.as_bytes() == name)
            };
            !launch.spec.slurm || name_of(variable).is_some_and(is_kept)
        })
        .filter_map(|variable| CString::new(variable.to_vec()).ok())
        .collect()
}

/// Whether the controller has set a variable for an element of an array. It drops those that a
/// submitter inherited, and steps have those of their job.
fn is_elements(name: &[u8]) -> bool {
    name == b"TUTTI_LINE" || name.starts_with(b"TUTTI_ARRAY_")
}

/// Whether a variable of the submitter's stays where the task gets Slurm's.
fn is_submitters(name: &[u8]) -> bool {
    let is = |all: &str| all.split(", ").any(|one| one.as_bytes() == name);
    SUBMITTERS.iter().any(|one| is(one)) || !SLURM_VARIABLES.iter().any(|(names, _)| is(names))
}

/// The place of a job in Slurm's words, if it is to find them.
fn slurm_of_job(launch: &Launch) -> Vec<(&'static str, String)> {
    if !launch.spec.slurm {
        return Vec::new();
    }
    let is_step = launch.id().is_further();
    let count_of = |node: &JobNode| if is_step { node.tasks } else { node.slots };
    let slots: Vec<u32> = launch.nodes.iter().map(count_of).collect();
    let each = launch.processors_per_task.max(1);
    let processors: Vec<u32> = slots.iter().map(|it| it.saturating_mul(each)).collect();
    let here = usize::try_from(launch.share.node_rank).unwrap_or(usize::MAX);
    let names = format_host_list(launch.nodes.iter().map(|node| node.name.as_str()));
    let count = launch.nodes.len().to_string();
    let tasks = slots.iter().fold(0, |sum: u32, it| sum.saturating_add(*it)).to_string();
    let mut all = vec![
        ("TUTTI_SLURM", "1".to_owned()),
        ("SLURM_JOB_UID", launch.credentials.uid.to_string()),
        ("SLURM_NNODES", count.clone()),
        ("SLURM_NODELIST", names.clone()),
        ("SLURM_NTASKS", tasks.clone()),
        ("SLURM_NPROCS", tasks),
        ("SLURM_TASKS_PER_NODE", repeated(&slots)),
        ("SLURM_CPUS_PER_TASK", each.to_string()),
        ("SLURM_NODEID", launch.share.node_rank.to_string()),
    ];
    if let Some(first) = slots.first().filter(|first| slots.iter().all(|it| it == *first)) {
        all.push(("SLURM_NTASKS_PER_NODE", first.to_string()));
    }
    if let Some((node, count)) = launch.nodes.get(here).zip(processors.get(here)) {
        all.push(("SLURMD_NODENAME", node.name.clone()));
        all.push(("SLURM_CPUS_ON_NODE", count.to_string()));
    }
    all.extend(devices::slurm(launch));
    let own = || launch.job.to_string();
    let of_job = [
        ("SLURM_JOB_ID", own()),
        ("SLURM_JOBID", own()),
        ("SLURM_JOB_NAME", launch.spec.name.clone()),
        ("SLURM_JOB_NODELIST", names),
        ("SLURM_JOB_NUM_NODES", count),
        ("SLURM_JOB_CPUS_PER_NODE", repeated(&processors)),
    ];
    let is_inherited =
        |name: &str| (is_step || !OF_WHOLE_JOB.contains(&name)) && value_of(launch, name).is_some();
    all.extend(of_job.into_iter().filter(|(name, _)| !is_inherited(name)));
    if launch.number > 0 {
        all.push(("SLURM_RESTART_COUNT", launch.number.to_string()));
    }
    all.extend(slurm_of_step(launch));
    all
}

/// The place of a step in Slurm's words; nothing in a batch script.
fn slurm_of_step(launch: &Launch) -> Vec<(&'static str, String)> {
    if value_of(launch, "SLURM_STEP_ID").is_none() {
        return Vec::new();
    }
    let tasks: Vec<u32> = launch.nodes.iter().map(|node| node.tasks).collect();
    let names = format_host_list(launch.nodes.iter().map(|node| node.name.as_str()));
    vec![
        ("SLURM_STEP_NUM_TASKS", launch.size.to_string()),
        ("SLURM_STEP_NUM_NODES", launch.nodes.len().to_string()),
        ("SLURM_STEP_NODELIST", names),
        ("SLURM_STEP_TASKS_PER_NODE", repeated(&tasks)),
    ]
}

/// Counts in Slurm's words: 2, 2, 2 and 1 are `2(x3),1`.
fn repeated(counts: &[u32]) -> String {
    let runs = counts.chunk_by(|a, b| a == b).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}(x{})", run[0], run.len()),
    });
    runs.collect::<Vec<String>>().join(",")
}

/// Where a script lay when it was submitted, if that is known: what runs is a copy.
fn script_path(launch: &Launch) -> Option<&[u8]> {
    launch.spec.script.as_ref()?;
    launch.spec.argv.first().map(|path| &path[..]).filter(|path| path.starts_with(b"/"))
}

/// Variables that a user may set otherwise; `has` says which are.
///
/// A single task may start processes and threads of its own, so it finds no number of threads: OpenMP
/// uses the processors that the task may use, and what starts processes divides them. Several tasks share a
/// machine that each would take for its own.
fn defaults(launch: &Launch, spool: Option<&Path>, has: impl Fn(&str) -> bool) -> Vec<String> {
    let number = launch.job.0.wrapping_add(u64::from(launch.step.0));
    let port = MASTER_PORTS.0 + number % MASTER_PORTS.1;
    let mut all = vec![
        ("MASTER_ADDR", master(&launch.nodes).to_owned()),
        ("MASTER_PORT", port.to_string()),
        // Otherwise Python keeps what it prints until there are some kilobytes of it.
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ];
    if launch.size > 1 {
        all.push(("OMP_NUM_THREADS", launch.processors_per_task.max(1).to_string()));
    }
    all.extend(STARTERS.map(|(name, value)| (name, value.to_owned())));
    all.extend(starters::variables(launch, spool));
    if pmix::is_wanted(launch) {
        all.extend(pmix::DEFAULTS.map(|(name, value)| (name, value.to_owned())));
    }
    all.retain(|(name, _)| !has(name));
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// What the task at this place among the job's tasks of this node has beside what the job has.
///
/// `pmi_fd`: where it finds its PMI server, if it has one.
pub(super) fn of_task(launch: &Launch, local_rank: usize, pmi_fd: Option<i32>) -> Vec<CString> {
    let mut environment = Vec::with_capacity(8);
    let mut set = |name: &str, value: &str| push(&mut environment, name, value);
    let local = local_rank.to_string();
    set("TUTTI_LOCAL_RANK", &local);
    set("LOCAL_RANK", &local);
    set("MPI_LOCALRANKID", &local);
    if let Some(task) = launch.share.tasks.get(local_rank) {
        let rank = task.rank.to_string();
        set("TUTTI_RANK", &rank);
        set("RANK", &rank);
        set("PMI_RANK", &rank);
        set("TUTTI_PROCESSORS", &task.processors.to_string());
        if launch.spec.slurm {
            set("SLURM_PROCID", &rank);
            set("SLURM_LOCALID", &local);
        }
    }
    if let Some(fd) = pmi_fd {
        set("PMI_FD", &fd.to_string());
    }
    if launch.beside.is_some() {
        // All else is that of the task beside it.
        environment.retain(|variable| is_steps_own(variable.to_bytes()));
    }
    environment
}

/// The part that is the same for all tasks of a step beside a task of its job: what that task finds
/// there, with the number of the step. `first`: the launch of the job on this node.
///
/// The PMI server is the step's own, so an MPI program that is started there is alone.
pub(super) fn of_beside(
    step: &Launch,
    (first, rank): (&Launch, Rank),
    [scratch, spool]: [Option<&Path>; 2],
) -> Vec<CString> {
    let mut place = first.clone();
    place.spec.environment.clone_from(&step.spec.environment);
    let local_rank = first.share.tasks.iter().position(|task| task.rank == rank);
    let mut environment = of_job(&place, scratch, spool);
    environment.extend(local_rank.into_iter().flat_map(|it| of_task(&place, it, None)));
    environment.retain(|variable| !is_steps_own(variable.to_bytes()));
    let of_step = of_job(step, None, None).into_iter();
    environment.extend(of_step.filter(|it| is_steps_own(it.to_bytes())));
    environment
}

/// Whether a variable of a step beside a task is about the step, and not about the task.
fn is_steps_own(variable: &[u8]) -> bool {
    let starts = |prefix: &[u8]| variable.starts_with(prefix);
    starts(b"TUTTI_STEP=") || starts(b"SLURM_STEP") || starts(b"PMI_") || starts(b"MPI_LOCAL")
}

/// The value of a variable of the user's, if it is set.
pub(super) fn value_of<'a>(launch: &'a Launch, name: &str) -> Option<&'a [u8]> {
    let variables = launch.spec.environment.iter();
    variables
        .filter(|variable| name_of(variable) == Some(name.as_bytes()))
        .map(|variable| &variable[name.len() + 1..])
        .next()
}

/// Where the first node is reached; loopback where there is no other, since a machine need not be
/// able to resolve its own name.
fn master(nodes: &[JobNode]) -> &str {
    match nodes {
        [first, _, ..] if first.address.is_empty() => &first.name,
        [first, _, ..] => &first.address,
        _ => "127.0.0.1",
    }
}

fn name_of(variable: &[u8]) -> Option<&[u8]> {
    let end = variable.iter().position(|&byte| byte == b'=')?;
    (end > 0).then(|| &variable[..end])
}

fn is_taken_over(name: &[u8]) -> bool {
    if KEPT.iter().any(|kept| name == kept.as_bytes()) || is_elements(name) {
        return true;
    }
    !DROPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
        && !REPLACED.iter().any(|replaced| name == replaced.as_bytes())
}

fn push(environment: &mut Vec<CString>, name: &str, value: &str) {
    // A name of ours has no zero byte; a class or a node that has one is left out.
    environment.extend(CString::new(format!("{name}={value}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{launch, node};
    use serde_bytes::ByteBuf;

    fn environment(users: &[&str], local_rank: usize) -> Vec<String> {
        let mut launch = launch(7, 2, &["true"]);
        launch.spec.environment =
            users.iter().map(|v| ByteBuf::from(v.as_bytes().to_vec())).collect();
        let job = of_job(&launch, None, None);
        let task = of_task(&launch, local_rank, Some(PMI_FD));
        job.into_iter().chain(task).map(|v| v.into_string().unwrap()).collect()
    }

    #[test]
    fn a_task_finds_its_place() {
        let mut found = environment(&["HOME=/root", "OMP_NUM_THREADS=9"], 1);
        found.sort();
        let expected = "\
GROUP_RANK=0
HOME=/root
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=127.0.0.1
MASTER_PORT=29507
MPI_LOCALNRANKS=2
MPI_LOCALRANKID=1
OMPI_MCA_rmaps_base_oversubscribe=1
OMP_NUM_THREADS=9
PMI_FD=3
PMI_RANK=1
PMI_SIZE=2
PMI_SPAWNED=0
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
PYTHONUNBUFFERED=1
RANK=1
TUTTI_CLASS=interactive
TUTTI_DEFAULTS=MASTER_ADDR=127.0.0.1 MASTER_PORT=29507 PYTHONUNBUFFERED=1 \
OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
TUTTI_JOB=7
TUTTI_LOCAL_RANK=1
TUTTI_LOCAL_SIZE=2
TUTTI_NODELIST=here
TUTTI_NODES=1
TUTTI_NODE_RANK=0
TUTTI_NODE_SLOTS=2
TUTTI_PROCESSORS=0
TUTTI_PROCESSORS_PER_TASK=1
TUTTI_QUANTUM=100ms
TUTTI_RANK=1
TUTTI_RESTARTS=0
TUTTI_SIZE=2
TUTTI_SLOTS=2
TUTTI_STEP=0
WORLD_SIZE=2";
        assert_eq!(found.join("\n"), expected);

        let mut known: Vec<&str> =
            VARIABLES.iter().flat_map(|(names, _)| names.split(", ")).collect();
        // This job has no counted resource and no device, is no batch script, of no array, was
        // never asked to save its state, wants no notice, and has one node.
        let others = [
            "TMPDIR",
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "ZE_AFFINITY_MASK",
            "CUDA_DEVICE_ORDER",
            "TUTTI_DEVICES",
            "TUTTI_RESUMES",
            "TUTTI_VACATE",
            "TUTTI_RESOURCE_...",
            "TUTTI_SCRIPT",
            "TUTTI_LINE",
            "TUTTI_NODE_ADDRESSES",
            "OMPI_MCA_...",
            "HYDRA_...",
        ];
        known.retain(|name| !others.contains(name) && !name.starts_with("TUTTI_ARRAY_"));
        known.sort_unstable();
        let found = found.iter().filter_map(|it| it.split('=').next());
        let found: Vec<&str> = found.filter(|name| *name != "HOME").collect();
        assert_eq!(known, found, "the reference lists what tasks find");
    }

    #[test]
    fn a_task_finds_its_place_in_words_of_slurm_only_if_its_submitter_wants_that() {
        let mut launch = launch(7, 2, &["true"]);
        launch.processors_per_task = 3;
        let users = ["SLURM_PROCID=9", "SLURM_NTASKS=9", "SLURM_SUBMIT_DIR=/d", "SLURM_CONF=/c"];
        launch.spec.environment = users.iter().map(|v| ByteBuf::from(v.as_bytes())).collect();
        let found = |launch: &Launch| {
            let all = of_job(launch, None, None).into_iter().chain(of_task(launch, 1, None));
            let mut all: Vec<String> = all.map(|v| v.into_string().unwrap()).collect();
            all.retain(|v| v.contains("SLURM"));
            all.sort();
            all.join("\n")
        };
        assert_eq!(found(&launch).lines().count(), users.len(), "as the user has set them");
        launch.spec.slurm = true;
        launch.nodes = vec![node("n1", 1), node("n2", 1)];
        let here = launch.nodes[0].slots;
        assert_eq!(here, 1);
        let expected = format!(
            "SLURMD_NODENAME=n1\nSLURM_CONF=/c\nSLURM_CPUS_ON_NODE=3\nSLURM_CPUS_PER_TASK=3\n\
             SLURM_JOBID=7\nSLURM_JOB_CPUS_PER_NODE=3(x2)\nSLURM_JOB_ID=7\nSLURM_JOB_NAME={}\n\
             SLURM_JOB_NODELIST=n[1-2]\nSLURM_JOB_NUM_NODES=2\nSLURM_JOB_UID={}\nSLURM_LOCALID=1\n\
             SLURM_NNODES=2\nSLURM_NODEID=0\nSLURM_NODELIST=n[1-2]\nSLURM_NPROCS=2\nSLURM_NTASKS=2\n\
             SLURM_NTASKS_PER_NODE=1\nSLURM_PROCID=1\nSLURM_SUBMIT_DIR=/d\n\
             SLURM_TASKS_PER_NODE=1(x2)\nTUTTI_SLURM=1",
            launch.spec.name, launch.credentials.uid
        );
        assert_eq!(found(&launch), expected);
        // Only what was launched before counts its launches.
        launch.number = 2;
        let again = expected.replace("SLURM_PROCID=1", "SLURM_PROCID=1\nSLURM_RESTART_COUNT=2");
        assert_eq!(found(&launch), again);
        launch.number = 0;
        // Inside a job, the tasks belong to that job.
        launch.spec.environment = vec![ByteBuf::from(&b"SLURM_JOB_ID=4"[..])];
        assert!(found(&launch).contains("SLURM_JOB_ID=4"));
        assert_eq!(repeated(&[2, 2, 2, 1]), "2(x3),1");
        // A step has its own size, and what its job has stays that of the job.
        launch.step = tutti_types::StepId(2);
        (launch.size, launch.nodes[0].slots, launch.nodes[1].slots) = (2, 4, 4);
        let of_job = ["SLURM_STEP_ID=1", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_JOB_NAME=outer"];
        launch.spec.environment = of_job.iter().map(|v| ByteBuf::from(v.as_bytes())).collect();
        let step = found(&launch);
        let all = [
            "SLURM_JOB_NAME=outer",
            "SLURM_JOB_NODELIST=n[1-3]",
            "SLURM_NTASKS=2",
            "SLURM_STEP_ID=1",
            "SLURM_STEP_NODELIST=n[1-2]",
            "SLURM_STEP_NUM_NODES=2",
            "SLURM_STEP_NUM_TASKS=2",
            "SLURM_STEP_TASKS_PER_NODE=1(x2)",
            "SLURM_TASKS_PER_NODE=1(x2)",
        ];
        for line in all {
            assert_eq!(step.lines().filter(|it| *it == line).count(), 1, "{line} in {step}");
        }
    }

    #[test]
    fn a_step_beside_a_task_finds_the_place_of_that_task_and_a_pmi_server_of_its_own() {
        let mut first = launch(7, 2, &["true"]);
        first.spec.environment = vec![ByteBuf::from(&b"HOME=/h"[..])];
        let mut step = launch(7, 1, &["sh"]);
        (step.step, step.beside) = (tutti_types::StepId(3), Some(Rank(1)));
        step.spec.environment = ["HOME=/h", "TERM=x"].map(|v| ByteBuf::from(v.as_bytes())).to_vec();
        let of = |all: Vec<CString>| -> Vec<String> {
            all.into_iter().map(|variable| variable.into_string().unwrap()).collect()
        };
        let mut expected = of(of_job(&first, None, None));
        expected.extend(of(of_task(&first, 1, Some(PMI_FD))));
        expected.push("TERM=x".into());
        for (of_task, of_step) in [
            ("TUTTI_STEP=0", "TUTTI_STEP=3"),
            ("PMI_SIZE=2", "PMI_SIZE=1"),
            ("PMI_RANK=1", "PMI_RANK=0"),
            ("MPI_LOCALNRANKS=2", "MPI_LOCALNRANKS=1"),
            ("MPI_LOCALRANKID=1", "MPI_LOCALRANKID=0"),
        ] {
            let at = expected.iter().position(|it| it == of_task).unwrap();
            expected[at] = of_step.into();
        }
        expected.sort();
        let mut found = of(of_beside(&step, (&first, Rank(1)), [None; 2]));
        found.extend(of(of_task(&step, 0, Some(PMI_FD))));
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_outer_job_leaves_nothing_behind() {
        let users = [
            "TUTTI_JOB=1",
            "TUTTI_PANE=x",
            "TUTTI_DIR=/tmp/t",
            "PMI_FD=9",
            "PMI_PORT=x",
            "PMIX_RANK=3",
            "HYDI_CONTROL_FD=4",
            "MPI_LOCALNRANKS=4",
            "OMPI_COMM_WORLD_RANK=1",
            "RANK=5",
            "MASTER_PORT=1234",
            "SLURM_JOB_ID=1",
            "=oddity",
            "nonsense",
        ];
        let found = environment(&users, 0);
        let kept = |text: &str| found.iter().filter(|v| *v == text).count();
        assert_eq!(kept("TUTTI_JOB=7"), 1);
        assert_eq!(kept("TUTTI_DIR=/tmp/t"), 1);
        assert_eq!(kept("MASTER_PORT=1234"), 1);
        assert_eq!(kept("SLURM_JOB_ID=1"), 1);
        let names: Vec<&str> = found.iter().filter_map(|v| v.split('=').next()).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len(), "a variable is set twice: {found:?}");
        for gone in ["TUTTI_PANE", "PMI_PORT", "PMIX_RANK", "HYDI_CONTROL_FD", "nonsense", ""] {
            assert!(!names.contains(&gone), "{gone} is still there");
        }
    }

    #[test]
    fn only_tasks_beside_others_are_told_how_many_threads_to_have() {
        let threads = |tasks: u32, users: &[&str]| {
            let mut launch = launch(7, tasks, &["true"]);
            launch.processors_per_task = 4;
            launch.spec.environment = users.iter().map(|v| ByteBuf::from(v.as_bytes())).collect();
            let found = of_job(&launch, None, None).into_iter().map(|v| v.into_string().unwrap());
            let found: Vec<String> =
                found.filter(|v| v.starts_with("OMP_") || v.contains("PER_TASK")).collect();
            found.join(" ")
        };
        let told = "TUTTI_PROCESSORS_PER_TASK=4";
        assert_eq!(threads(1, &[]), told);
        assert_eq!(threads(2, &[]), format!("{told} OMP_NUM_THREADS=4"));
        assert_eq!(threads(1, &["OMP_NUM_THREADS=3"]), format!("OMP_NUM_THREADS=3 {told}"));
    }

    #[test]
    fn what_a_user_has_set_is_kept_and_what_an_outer_job_has_set_is_not() {
        let outer = "TUTTI_DEFAULTS=MASTER_ADDR=10.0.0.9 MASTER_PORT=29501 OMP_NUM_THREADS=1";
        let users = [outer, "MASTER_ADDR=10.0.0.9", "MASTER_PORT=29501", "OMP_NUM_THREADS=8"];
        let found = environment(&users, 0);
        let has = |text: &str| found.iter().any(|it| it == text);
        assert!(has("MASTER_ADDR=127.0.0.1") && has("MASTER_PORT=29507"), "{found:?}");
        assert!(has("OMP_NUM_THREADS=8"), "changed in the outer job: {found:?}");
        let found = environment(&["MASTER_ADDR=10.0.0.9", "PYTHONUNBUFFERED="], 0);
        for kept in ["MASTER_ADDR=10.0.0.9", "PYTHONUNBUFFERED="] {
            assert!(found.iter().any(|it| it == kept), "{found:?}");
        }
    }

    #[test]
    fn what_is_set_for_open_mpi_is_no_users_in_a_step_inside_the_job() {
        let served = |users: &[&str]| {
            let all = [users, &["TUTTI_PMIX=1"]].concat();
            environment(&all, 0)
        };
        let outer = served(&[]);
        assert!(outer.iter().any(|it| it == "OMPI_MCA_schizo=^orte,slurm"), "{outer:?}");
        assert!(!outer.iter().any(|it| it.starts_with("TUTTI_PMIX=")), "{outer:?}");
        let inner: Vec<&str> = outer.iter().map(String::as_str).collect();
        let inner = environment(&inner, 0);
        assert!(!inner.iter().any(|it| it.starts_with("OMPI_MCA_schizo=")), "{inner:?}");
        let kept = served(&["OMPI_MCA_schizo=slurm"]);
        assert!(kept.iter().any(|it| it == "OMPI_MCA_schizo=slurm"), "{kept:?}");
        // A script that runs once starts steps, and its user wants these served.
        let mut script = launch(7, 1, &["true"]);
        script.spec.environment = vec![ByteBuf::from(&b"TUTTI_PMIX=1"[..])];
        let found = of_job(&script, None, None);
        assert!(found.contains(&CString::new("TUTTI_PMIX=1").unwrap()));
    }

    #[test]
    fn several_nodes_meet_at_the_first() {
        let mut launch = launch(7, 2, &["true"]);
        launch.nodes = vec![node("a", 1), node("b", 1)];
        let job = of_job(&launch, None, None);
        assert!(job.contains(&CString::new("MASTER_ADDR=a").unwrap()));
        assert!(job.contains(&CString::new("TUTTI_NODELIST=a,b").unwrap()));
    }
}
