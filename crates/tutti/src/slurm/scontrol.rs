//! `scontrol`: shows jobs, nodes, partitions and the configuration, and changes what Tutti can
//! change.

use super::accounts::{ACCOUNT, QOS};
use super::cluster::{Partition, nodes, partitions};
use super::format::{duration, moment, plain};
use super::hosts::{folded, unfolded};
use super::jobs::{self, Job, MIN_JOB_AGE_S, Named, State};
use super::options::{Known, Line, Order, flag, read, value};
use super::steps::{NamedStep, Step, running, with_steps};
use super::{or_null, print_version, sinfo, wrong};
use crate::cmd::job_range::{find_elements, parted, say_left_out};
use std::ffi::OsString;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::print;
use tutti_node::codes::code_of;
use tutti_types::{ClassName, Indices, JobId, Nanos};
use tutti_wire::code::Code;
use tutti_wire::history::JobPart;
use tutti_wire::host_list::format_host_list;
use tutti_wire::local::{ArrayOrder, LimitChange, NodeChange, Reply, Request};
use tutti_wire::report::{NodeReport, Target};
use tutti_wire::script::slurm_limit;
use tutti_wire::units::UnitError;

const NAME: &str = "scontrol";

const OPTIONS: &[Known] = &[
    flag("all", Some('a')),
    value("cluster", None),
    value("clusters", Some('M')),
    flag("details", Some('d')),
    flag("federation", Some('F')),
    flag("future", None),
    flag("help", Some('h')),
    flag("hide", None),
    flag("json", None),
    flag("local", None),
    flag("oneliner", Some('o')),
    flag("quiet", Some('Q')),
    flag("sibling", None),
    value("uid", Some('u')),
    flag("usage", None),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
    flag("yaml", None),
];

const HELP: &str = "\
scontrol: show and change jobs, nodes and partitions in the words of Slurm's
scontrol; `tutti show`, `tutti nodes` and `tutti params` show more.

  scontrol show job 7                a job; -o: in one line
  scontrol show step 7.0             a step that runs; 7: all of job 7
  scontrol show node a1              a node; also partition, config, reservation
  scontrol show hostnames 'a[1-3]'   a list of nodes, unfolded; hostlist folds
  scontrol hold 7                    also release, suspend, resume
  scontrol requeue 7                 queue a job that runs again; requeuehold holds it
  scontrol update JobId=7 Partition=standby
  scontrol update JobId=7 TimeLimit=+30
  scontrol update NodeName=a1 State=DRAIN Reason='new memory'
  scontrol ping
";

pub(super) fn execute(words: &[OsString]) -> anyhow::Result<u8> {
    let mut line = read(OPTIONS, Order::Mixed, words);
    if line.has("help") || line.has("usage") {
        print(HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    line.check_clusters();
    if line.has("json") || line.has("yaml") {
        line.problems.push("--json is not available; `tutti show --json` has all fields".into());
    }
    if !line.problems.is_empty() {
        return Ok(wrong(NAME, &line.problems));
    }
    let rest: Vec<String> =
        line.rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match rest[..] {
        [] => failed("name a command, such as show job 7; `scontrol --help` lists them"),
        ["version"] => print_version(),
        ["ping"] => ping(),
        [verb, ref words @ ..] if is_short(verb, "show", 2) => show(words, &line),
        [verb, ref words @ ..] => change(verb, words, &line),
    }
}

/// Says why something failed; the exit code.
fn failed(why: &str) -> anyhow::Result<u8> {
    say!("{NAME}: error: {why}");
    Ok(1)
}

/// Whether a word is cut short from another, and has so many letters at least.
fn is_short(word: &str, whole: &str, least: usize) -> bool {
    let word = word.to_ascii_lowercase();
    word.len() >= least && whole.starts_with(&word)
}

fn ping() -> anyhow::Result<u8> {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let is_up = ask(&Request::Status).is_ok();
    let word = if is_up { "UP" } else { "DOWN" };
    print(&format!("Slurmctld(primary) at {} is {word}\n", host.to_string_lossy()))?;
    Ok(u8::from(!is_up))
}

fn show(words: &[&str], line: &Line) -> anyhow::Result<u8> {
    let [what, ref named @ ..] = *words else {
        return failed("show what? job, node, partition, config");
    };
    // As `show job=7`.
    let (what, inner) = what.split_once('=').map_or((what, None), |(what, id)| (what, Some(id)));
    let named: Vec<&str> = inner.into_iter().chain(named.iter().copied()).collect();
    match what.to_ascii_lowercase().as_str() {
        "hostnames" | "hostname" => hostnames(named.first().copied()),
        "hostlist" | "hostlistsorted" => hostlist(&named),
        "config" | "configuration" | "conf" => config(),
        "job" | "jobs" | "jobid" => show_jobs(&named, line),
        "step" | "steps" | "stepid" => show_steps(&named, line),
        "node" | "nodes" | "nodename" => show_nodes(&named, line),
        "partition" | "partitions" | "part" | "partitionname" => show_partitions(&named, line),
        "reservation" | "reservations" | "res" => match named.first() {
            None => {
                print("No reservations in the system\n")?;
                Ok(0)
            }
            Some(name) => {
                print(&format!("Reservation {} not found\n", plain(name)))?;
                Ok(1)
            }
        },
        "licenses" | "license" | "lic" => show_licences(line),
        other => failed(&format!("show {other}: there is nothing of that kind here")),
    }
}

fn hostnames(list: Option<&str>) -> anyhow::Result<u8> {
    let set = std::env::var("SLURM_JOB_NODELIST").or_else(|_| std::env::var("SLURM_NODELIST"));
    let Some(list) = list.map(str::to_owned).or(set.ok()) else {
        return failed("name a list of nodes: SLURM_JOB_NODELIST is not set here");
    };
    match unfolded(&list) {
        Ok(names) => {
            print(&names.iter().map(|name| format!("{}\n", plain(name))).collect::<String>())?;
            Ok(0)
        }
        Err(why) => failed(&why),
    }
}

fn hostlist(named: &[&str]) -> anyhow::Result<u8> {
    let text = match named.first() {
        Some(path) if path.starts_with('/') => std::fs::read_to_string(path)?,
        Some(_) => named.join(" "),
        None => return failed("name nodes, such as a1,a2,a3"),
    };
    match folded(&text) {
        Ok(list) => {
            print(&format!("{}\n", plain(&list)))?;
            Ok(0)
        }
        Err(why) => failed(&why),
    }
}

fn config() -> anyhow::Result<u8> {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    let directory = tutti_node::instance::Instance::locate().directory().display().to_string();
    let all: [(&str, String); 19] = [
        ("AccountingStorageType", "accounting_storage/tutti".into()),
        ("ClusterName", tutti_client::slurm::cluster_name()),
        ("DefMemPerNode", "UNLIMITED".into()),
        ("GresTypes", gres_types()),
        ("JobAcctGatherType", "jobacct_gather/cgroup".into()),
        ("KillWait", "5 sec".into()),
        ("MaxArraySize", (tutti_types::limits::ARRAY_ELEMENTS_MAX + 1).to_string()),
        ("MaxJobCount", tutti_types::limits::JOBS_MAX.to_string()),
        ("MinJobAge", format!("{MIN_JOB_AGE_S} sec")),
        ("MpiDefault", "none".into()),
        ("PreemptMode", "GANG,SUSPEND".into()),
        ("ProctrackType", "proctrack/cgroup".into()),
        ("SchedulerType", "sched/tutti".into()),
        ("SelectType", "select/cons_tres".into()),
        ("SelectTypeParameters", "CR_CPU_MEMORY".into()),
        ("SLURM_VERSION", super::VERSION.into()),
        ("SlurmctldHost[0]", host.into_owned()),
        ("StateSaveLocation", directory),
        ("TaskPlugin", "task/affinity,task/cgroup".into()),
    ];
    let mut text =
        format!("Configuration data as of {}\n", moment(tutti_node::platform::time::wall_ms()));
    for (name, value) in all {
        text.push_str(&format!("{name:<23} = {}\n", plain(&value)));
    }
    print(&text)?;
    Ok(0)
}

fn gres_types() -> String {
    match crate::cmd::ask_of_the_past(&Request::Resources) {
        Ok(Reply::Resources(all)) => {
            or_null(all.into_iter().map(|it| it.resource).collect::<Vec<String>>().join(","))
        }
        _ => "(null)".into(),
    }
}

/// Prints blocks: lines of fields, or each block in one line.
fn print_blocks(blocks: &[Vec<Vec<(&str, String)>>], line: &Line) -> anyhow::Result<()> {
    let mut text = String::new();
    for block in blocks {
        let lines = block.iter().map(|fields| {
            let shown = |(name, value): &(&str, String)| format!("{name}={}", plain(value));
            fields.iter().map(shown).collect::<Vec<String>>().join(" ")
        });
        let lines: Vec<String> = lines.collect();
        text.push_str(&match line.has("oneliner") {
            true => lines.join(" ") + "\n",
            false => lines.join("\n   ") + "\n\n",
        });
    }
    print(&text)
}

fn show_jobs(named: &[&str], line: &Line) -> anyhow::Result<u8> {
    let mut found = Vec::new();
    for word in named.iter().flat_map(|word| parted(word, &[','])) {
        let Some(named) = Named::of(word) else {
            return failed(&format!("Invalid job id {word}"));
        };
        let jobs = named.all()?;
        if jobs.is_empty() {
            say!("slurm_load_jobs error: Invalid job id specified");
            return Ok(1);
        }
        found.extend(jobs);
    }
    if named.is_empty() {
        found = jobs::several(jobs::listed(None, None, JobPart::Table)?.iter().map(Job::id))?;
        if found.is_empty() {
            print("No jobs in the system\n")?;
            return Ok(0);
        }
    }
    print_blocks(&found.iter().map(job_block).collect::<Vec<_>>(), line)?;
    Ok(0)
}

fn job_block(job: &Job) -> Block {
    let mut block = job_itself(job);
    block.extend(job_place(job));
    block
}

/// Lines of fields with their values.
type Block = Vec<Vec<(&'static str, String)>>;

/// The numbers and the name of a job.
fn first_line(job: &Job) -> Vec<(&'static str, String)> {
    let mut line = vec![("JobId", job.id().to_string())];
    if let Some((array, task)) = job.array() {
        line.extend([("ArrayJobId", array.to_string()), ("ArrayTaskId", task)]);
    }
    line.push(("JobName", job.report.name.clone()));
    line
}

/// What a job is, its state and its times.
fn job_itself(job: &Job) -> Block {
    let report = &job.report;
    let uid = job.uid.map_or_else(|| "?".into(), |uid| uid.to_string());
    let at = |ms: Option<u64>| ms.map_or_else(|| "Unknown".into(), moment);
    let limit = report.time_limit_ms.map_or("UNLIMITED".into(), |ms| duration(ms / 1000));
    let details = job.details.as_deref();
    let asked = details.map(|details| &details.asked);
    let requeue = asked.is_some_and(|it| !it.no_requeue) && job.report.submitted;
    vec![
        first_line(job),
        vec![
            ("UserId", format!("{}({uid})", report.user)),
            (
                "GroupId",
                job.group().map_or("(null)".into(), |(name, gid)| format!("{name}({gid})")),
            ),
            ("MCS_label", "N/A".into()),
        ],
        vec![
            ("Priority", "1".into()),
            ("Nice", details.map_or(0, |it| it.nice).to_string()),
            ("Account", ACCOUNT.into()),
            ("QOS", QOS.into()),
        ],
        vec![
            ("JobState", job.state.words().0.into()),
            ("Reason", job.reason().into()),
            ("Dependency", or_null(job.dependency())),
        ],
        vec![
            ("Requeue", u8::from(requeue).to_string()),
            ("Restarts", details.map_or(0, |it| it.requeues).to_string()),
            ("BatchFlag", u8::from(job.is_batch()).to_string()),
            ("Reboot", "0".into()),
            ("ExitCode", job.exit_code()),
        ],
        vec![
            ("RunTime", duration(job.elapsed_s())),
            ("TimeLimit", limit),
            ("TimeMin", "N/A".into()),
        ],
        vec![("SubmitTime", moment(job.submitted_ms)), ("EligibleTime", moment(job.submitted_ms))],
        vec![("AccrueTime", moment(job.submitted_ms))],
        vec![
            ("StartTime", at(job.started_ms)),
            ("EndTime", at(job.ended_ms.or_else(|| job.expected_end_ms()))),
            ("Deadline", "N/A".into()),
        ],
        vec![
            ("SuspendTime", "None".into()),
            ("SecsPreSuspend", "0".into()),
            ("LastSchedEval", at(Some(job.started_ms.unwrap_or(job.submitted_ms)))),
            ("Scheduler", "Main".into()),
        ],
    ]
}

/// Where a job is, what it asked for and what it runs.
fn job_place(job: &Job) -> Block {
    let report = &job.report;
    let details = job.details.as_deref();
    let asked = details.map(|details| &details.asked);
    let each = asked.and_then(|asked| asked.processors_per_task).unwrap_or(1);
    let memory = asked.and_then(|asked| asked.memory_per_task_bytes);
    let directory = details.map(|it| String::from_utf8_lossy(&it.directory).into_owned());
    let file =
        |is_output| details.map_or("(null)".into(), |it| super::files(report, it, is_output));
    let nodes = job.nodes();
    let count = job.node_count();
    let tres = format!("cpu={},node={count},billing={}", report.processors, report.processors);
    let mut block = vec![
        vec![("Partition", job.partition().into()), ("AllocNode:Sid", "N/A".into())],
        vec![
            ("ReqNodeList", or_null(asked.and_then(|it| it.only.clone()).unwrap_or_default())),
            ("ExcNodeList", or_null(asked.and_then(|it| it.exclude.clone()).unwrap_or_default())),
        ],
        vec![("NodeList", or_null(format_host_list(nodes.iter().copied())))],
        vec![("BatchHost", or_null(nodes.first().map_or(String::new(), |it| (*it).to_owned())))],
        vec![
            ("NumNodes", job.node_count().to_string()),
            ("NumCPUs", report.processors.to_string()),
            ("NumTasks", report.slots.unwrap_or(report.tasks).to_string()),
            ("CPUs/Task", each.to_string()),
            ("ReqB:S:C:T", "0:0:*:*".into()),
        ],
        vec![("ReqTRES", tres.clone())],
        vec![("AllocTRES", if job.state == State::Pending { "(null)".into() } else { tres })],
        vec![
            ("Socks/Node", "*".into()),
            ("NtasksPerN:B:S:C", "0:0:*:*".into()),
            ("CoreSpec", "*".into()),
        ],
        vec![
            ("MinCPUsNode", each.to_string()),
            match memory {
                Some(bytes) => ("MinMemoryCPU", format!("{}M", bytes >> 20)),
                None => ("MinMemoryNode", "0".into()),
            },
            ("MinTmpDiskNode", "0".into()),
        ],
        vec![("Features", "(null)".into()), ("DelayBoot", "00:00:00".into())],
        vec![
            ("OverSubscribe", "YES".into()),
            ("Contiguous", "0".into()),
            ("Licenses", or_null(report.resources.join(","))),
            ("Network", "(null)".into()),
        ],
    ];
    block.push(vec![("Command", or_null(job.command()))]);
    block.push(vec![("WorkDir", or_null(directory.unwrap_or_default()))]);
    block.push(vec![("StdErr", file(false))]);
    block.push(vec![("StdIn", "/dev/null".into())]);
    block.push(vec![("StdOut", file(true))]);
    block
}

fn show_steps(named: &[&str], line: &Line) -> anyhow::Result<u8> {
    let mut wanted = Vec::new();
    for word in named.iter().flat_map(|word| parted(word, &[','])) {
        let Some(step) = NamedStep::of(word) else {
            return failed(&format!("Invalid job step id {}", plain(word)));
        };
        wanted.push(step);
    }
    let mut found = Vec::new();
    for step in &wanted {
        for job in step.jobs()? {
            found.extend(jobs::one(job)?);
        }
    }
    if named.is_empty() {
        found = with_steps(jobs::listed(None, None, JobPart::Table)?)?;
    }
    let steps: Vec<Step<'_>> = found.iter().flat_map(running).collect();
    let is_wanted = |step: &Step<'_>| wanted.is_empty() || wanted.iter().any(|it| it.has(step));
    if wanted.iter().any(|it| !steps.iter().any(|step| it.has(step))) {
        say!("slurm_get_job_steps error: Invalid job id specified");
        return Ok(1);
    }
    let blocks: Vec<Block> = steps.iter().filter(|step| is_wanted(step)).map(step_block).collect();
    if blocks.is_empty() {
        print("No job steps in the system\n")?;
        return Ok(0);
    }
    print_blocks(&blocks, line)?;
    Ok(0)
}

fn step_block(step: &Step<'_>) -> Block {
    let nodes = step.nodes();
    let count = nodes.len().to_string();
    let cpus = step.processors().to_string();
    vec![
        vec![
            ("StepId", step.shown_id()),
            ("UserId", step.job.uid.unwrap_or_default().to_string()),
            ("StartTime", step.started_ms().map_or_else(|| "Unknown".into(), moment)),
            ("TimeLimit", "UNLIMITED".into()),
        ],
        vec![
            ("State", step.state().words().0.into()),
            ("Partition", step.job.partition().into()),
            ("NodeList", or_null(format_host_list(nodes))),
        ],
        vec![
            ("Nodes", count.clone()),
            ("CPUs", cpus.clone()),
            ("Tasks", step.tasks().to_string()),
            ("Name", step.title().into()),
            ("Network", "(null)".into()),
        ],
        vec![("TRES", format!("cpu={cpus},node={count}"))],
    ]
}

fn show_nodes(named: &[&str], line: &Line) -> anyhow::Result<u8> {
    let mut wanted = Vec::new();
    for list in named {
        match unfolded(list) {
            Ok(names) => wanted.extend(names),
            Err(why) => return failed(&why),
        }
    }
    let nodes = nodes();
    if let Some(missing) = wanted.iter().find(|name| !nodes.iter().any(|it| it.name == **name)) {
        print(&format!("Node {} not found\n", plain(missing)))?;
        return Ok(1);
    }
    let partitions: Vec<String> = partitions().into_iter().map(|it| it.name).collect();
    let partitions = partitions.join(",");
    let shown = nodes.iter().filter(|node| wanted.is_empty() || wanted.contains(&node.name));
    print_blocks(&shown.map(|node| node_block(node, &partitions)).collect::<Vec<_>>(), line)?;
    Ok(0)
}

fn node_block(node: &NodeReport, partitions: &str) -> Vec<Vec<(&'static str, String)>> {
    let state = match (sinfo::state(node).0, node.drained.is_some()) {
        ("draining", _) => "MIXED+DRAIN".into(),
        ("drained", _) => "IDLE+DRAIN".into(),
        (state, true) => format!("{}+DRAIN", state.to_ascii_uppercase()),
        (state, false) => state.to_ascii_uppercase(),
    };
    let load = node
        .load_averages_milli
        .map_or("N/A".into(), |[one, ..]| format!("{}.{:02}", one / 1000, one % 1000 / 10));
    let mib = |bytes: u64| (bytes >> 20).to_string();
    let sets = or_null(super::features(node));
    let mut block = vec![
        vec![
            ("NodeName", node.name.clone()),
            ("Arch", std::env::consts::ARCH.into()),
            ("CoresPerSocket", "1".into()),
        ],
        vec![
            ("CPUAlloc", node.processors_used.to_string()),
            ("CPUEfctv", node.processors.to_string()),
            ("CPUTot", node.processors.to_string()),
            ("CPULoad", load),
        ],
        vec![("AvailableFeatures", sets.clone())],
        vec![("ActiveFeatures", sets)],
        vec![("Gres", sinfo::gres(node, |_| true))],
        vec![
            ("NodeAddr", node.name.clone()),
            ("NodeHostName", node.name.clone()),
            ("Version", super::VERSION.into()),
        ],
        vec![
            ("RealMemory", mib(node.memory_bytes)),
            ("AllocMem", mib(node.memory_allocated_bytes)),
            ("FreeMem", node.memory_free_bytes.map_or("N/A".into(), mib)),
            ("Sockets", node.processors.to_string()),
            ("Boards", "1".into()),
        ],
        vec![
            ("State", state),
            ("ThreadsPerCore", "1".into()),
            ("TmpDisk", "0".into()),
            ("Weight", "1".into()),
            ("Owner", "N/A".into()),
            ("MCS_label", "N/A".into()),
        ],
        vec![("Partitions", partitions.to_owned())],
        vec![(
            "CfgTRES",
            format!(
                "cpu={},mem={}M,billing={}",
                node.processors,
                node.memory_bytes >> 20,
                node.processors
            ),
        )],
        vec![(
            "AllocTRES",
            match node.processors_used {
                0 => String::new(),
                used => format!("cpu={used}"),
            },
        )],
    ];
    if let Some(reason) = node.drained.as_ref().filter(|reason| !reason.is_empty()) {
        block.push(vec![("Reason", reason.clone())]);
    }
    block
}

fn show_partitions(named: &[&str], line: &Line) -> anyhow::Result<u8> {
    let all = partitions();
    if let Some(missing) = named.iter().find(|name| !all.iter().any(|it| it.name == **name)) {
        print(&format!("Partition {} not found\n", plain(missing)))?;
        return Ok(1);
    }
    let nodes = nodes();
    let shown = all.iter().filter(|it| named.is_empty() || named.contains(&it.name.as_str()));
    let blocks: Vec<_> = shown.map(|partition| partition_block(partition, &nodes)).collect();
    print_blocks(&blocks, line)?;
    Ok(0)
}

fn partition_block(
    partition: &Partition,
    nodes: &[NodeReport],
) -> Vec<Vec<(&'static str, String)>> {
    let processors: u64 = nodes.iter().map(|node| u64::from(node.processors)).sum();
    let memory = nodes.iter().map(|node| node.memory_bytes >> 20).sum::<u64>();
    let limit = partition.most_s.map_or("UNLIMITED".into(), duration);
    let default = if partition.is_default { "YES" } else { "NO" };
    vec![
        vec![("PartitionName", partition.name.clone())],
        vec![
            ("AllowGroups", "ALL".into()),
            ("AllowAccounts", "ALL".into()),
            ("AllowQos", "ALL".into()),
        ],
        vec![("AllocNodes", "ALL".into()), ("Default", default.into()), ("QoS", "N/A".into())],
        vec![
            ("DefaultTime", "NONE".into()),
            ("DisableRootJobs", "NO".into()),
            ("ExclusiveUser", "NO".into()),
            ("ExclusiveTopo", "NO".into()),
            ("GraceTime", "0".into()),
            ("Hidden", "NO".into()),
        ],
        vec![
            ("MaxNodes", "UNLIMITED".into()),
            ("MaxTime", limit),
            ("MinNodes", "0".into()),
            ("LLN", "NO".into()),
            ("MaxCPUsPerNode", "UNLIMITED".into()),
            ("MaxCPUsPerSocket", "UNLIMITED".into()),
        ],
        vec![("Nodes", or_null(format_host_list(nodes.iter().map(|node| node.name.as_str()))))],
        vec![
            ("PriorityJobFactor", "1".into()),
            ("PriorityTier", "1".into()),
            ("RootOnly", "NO".into()),
            ("ReqResv", "NO".into()),
            ("OverSubscribe", "FORCE".into()),
        ],
        vec![("OverTimeLimit", "NONE".into()), ("PreemptMode", "GANG,SUSPEND".into())],
        vec![
            ("State", "UP".into()),
            ("TotalCPUs", processors.to_string()),
            ("TotalNodes", nodes.len().to_string()),
            ("SelectTypeParameters", "NONE".into()),
        ],
        vec![("JobDefaults", "(null)".into())],
        vec![("DefMemPerNode", "UNLIMITED".into()), ("MaxMemPerNode", "UNLIMITED".into())],
        vec![(
            "TRES",
            format!("cpu={processors},mem={memory}M,node={},billing={processors}", nodes.len()),
        )],
    ]
}

fn show_licences(line: &Line) -> anyhow::Result<u8> {
    let Ok(Reply::Resources(all)) = crate::cmd::ask_of_the_past(&Request::Resources) else {
        print("No licenses configured in Slurm.\n")?;
        return Ok(0);
    };
    let blocks: Vec<_> = all
        .iter()
        .map(|it| {
            let free = it.count.saturating_sub(it.in_use);
            vec![
                vec![("LicenseName", it.resource.clone())],
                vec![
                    ("Total", it.count.to_string()),
                    ("Used", it.in_use.to_string()),
                    ("Free", free.to_string()),
                    ("Reserved", "0".into()),
                    ("Remote", "no".into()),
                ],
            ]
        })
        .collect();
    match blocks.is_empty() {
        true => print("No licenses configured in Slurm.\n")?,
        false => print_blocks(&blocks, line)?,
    }
    Ok(0)
}

/// Changes jobs or nodes.
fn change(verb: &str, words: &[&str], line: &Line) -> anyhow::Result<u8> {
    let lower = verb.to_ascii_lowercase();
    let request: fn(Target) -> Request = match lower.as_str() {
        "hold" | "uhold" | "holdu" => |target| Request::Hold { job: target.job },
        "release" => |target| Request::Release { job: target.job },
        "suspend" => |target| Request::Suspend { target },
        "resume" => |target| Request::Resume { target },
        "update" => return update(words),
        "requeue" => |target| Request::Requeue { job: target.job, hold: false, anew: false },
        "requeuehold" => |target| Request::Requeue { job: target.job, hold: true, anew: false },
        "reconfigure" => {
            return failed(
                "there is no configuration file; `tutti params` changes settings at once",
            );
        }
        "shutdown" => return failed("`tutti down` ends the instance"),
        other => {
            return failed(&format!(
                "invalid keyword: {other}; `scontrol --help` lists the commands"
            ));
        }
    };
    if words.is_empty() {
        return failed(&format!("{verb} which job? write {verb} 7"));
    }
    let mut exit = 0;
    let all = words.iter().flat_map(|word| parted(word, &[',']));
    for word in all.filter(|word| !word.is_empty()) {
        let word = word.split_once('=').map_or(word, |(_, id)| id);
        if let Some(Named { job, indices: Some(indices) }) = Named::of(word) {
            let orders = match lower.as_str() {
                "release" => vec![of_elements(job, indices, ArrayOrder::Release)],
                "suspend" | "resume" | "requeue" | "requeuehold" => {
                    let found = find_elements(job, Some(indices))?;
                    say_left_out(job, found.waiting);
                    found.jobs.into_iter().map(|(_, job)| request(job.into())).collect()
                }
                _ => vec![of_elements(job, indices, ArrayOrder::Hold)],
            };
            for it in &orders {
                exit = exit.max(order(it, line)?);
            }
            continue;
        }
        let targets = targets(word)?;
        if targets.is_empty() {
            say!("Job {} not found; slurm_{lower} error: Invalid job id specified", plain(word));
            exit = 1;
        }
        for target in targets {
            exit = exit.max(order(&request(target), line)?);
        }
    }
    Ok(exit)
}

const fn of_elements(array: JobId, indices: Indices, order: ArrayOrder) -> Request {
    Request::Elements { array, indices: Some(indices), order }
}

/// The jobs that a number or a name names.
fn targets(word: &str) -> anyhow::Result<Vec<Target>> {
    if let Some(job) = jobs::number(word) {
        return Ok(vec![job.into()]);
    }
    let own = super::squeue::own_name();
    let jobs = jobs::listed(None, Some(&own), JobPart::Table)?;
    Ok(jobs.iter().filter(|job| job.report.name == word).map(|job| job.id().into()).collect())
}

/// Sends an order; the exit code.
fn order(request: &Request, line: &Line) -> anyhow::Result<u8> {
    match ask(request) {
        Ok(Reply::Done | Reply::Nodes { .. } | Reply::Moved { .. }) => Ok(0),
        Ok(_) => unexpected(),
        Err(error) => {
            if !line.has("quiet") {
                say_why(request, &error);
            }
            Ok(1)
        }
    }
}

/// Says why an order failed. What clients look for is in Slurm's words.
fn say_why(request: &Request, error: &anyhow::Error) {
    let (job, is_hold) = match request {
        Request::Hold { job } | Request::Release { job } => (*job, true),
        Request::Requeue { job, .. }
        | Request::SetTimeLimit { job, .. }
        | Request::SetJobClass { job, .. } => (*job, false),
        Request::Suspend { target } | Request::Resume { target } => (target.job, false),
        Request::ChangeNodes { .. } if code_of(error) == Code::NoSuchNodes => {
            say!("slurm_update error: Invalid node name specified");
            return;
        }
        _ => {
            say!("{NAME}: error: {error:#}");
            return;
        }
    };
    let has_ended = || matches!(jobs::one(job), Ok(Some(job)) if job.state.has_ended());
    let why = match code_of(error) {
        Code::NoJob if has_ended() => "Job has already finished",
        Code::NoJob => "Invalid job id specified",
        _ if has_ended() => "Job has already finished",
        Code::Improper if matches!(request, Request::Requeue { .. }) => {
            "Requested operation is presently disabled"
        }
        _ => {
            say!("{NAME}: error: {error:#}");
            return;
        }
    };
    say!("{why} for job {job}");
    if is_hold {
        say!("slurm_suspend error: {why}");
    }
}

fn update(words: &[&str]) -> anyhow::Result<u8> {
    let mut settings: Vec<(String, &str)> = Vec::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            return failed(&format!("update: write NAME=VALUE, not {word}"));
        };
        settings.push((name.to_ascii_lowercase(), value));
    }
    let value = |name: &str| settings.iter().find(|(it, _)| it == name).map(|(_, value)| *value);
    if let Some(list) = value("nodename") {
        return update_nodes(list, &settings);
    }
    if value("partitionname").is_some() {
        return failed(
            "update: a partition is a queue or a class here: `tutti queue` and `tutti params` \
             change them",
        );
    }
    let reserved = ["reservationname", "stepid", "frontendname"];
    if let Some((name, _)) = settings.iter().find(|(name, _)| reserved.contains(&name.as_str())) {
        return failed(&format!("update: there is no {name} here that could be changed"));
    }
    let Some(list) = value("jobid").or_else(|| value("job")) else {
        return failed("update: name JobId= or NodeName=");
    };
    let known = ["jobid", "job", "partition", "timelimit"];
    if let Some((name, _)) = settings.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return failed(&format!(
            "update: a job's {name} can't be changed here; its TimeLimit can, and its Partition, to \
             another class"
        ));
    }
    let (class, limit) = (value("partition"), value("timelimit"));
    if class.is_none() && limit.is_none() {
        return failed("update: nothing to change");
    }
    let is_class = |class: &str| partitions().iter().any(|it| it.name == class && !it.is_queue);
    if let Some(class) = class.filter(|class| !is_class(class)) {
        return failed(&format!("update: {class} is no class; a job keeps its queue"));
    }
    let limit = match limit.map(limit_change).transpose() {
        Ok(limit) => limit,
        Err(error) => return failed(&format!("update: TimeLimit: {error}")),
    };
    let mut exit = 0;
    for word in list.split(',') {
        let Some(job) = jobs::number(word) else {
            return failed(&format!("Invalid job id {word}"));
        };
        let class = class.map(|class| Request::SetJobClass { job, class: ClassName::new(class) });
        let limit = limit.map(|limit| Request::SetTimeLimit { job, limit });
        for request in [class, limit].into_iter().flatten() {
            exit = exit.max(order(&request, &Line::default())?);
        }
    }
    Ok(exit)
}

/// A limit as `scontrol update` reads it: as sbatch does, behind `+` or `-` so much more or less.
fn limit_change(text: &str) -> Result<LimitChange, UnitError> {
    let nanos = |text| Ok(slurm_limit(text)?.map(Nanos::from_secs));
    let by = |text| Ok::<Nanos, UnitError>(nanos(text)?.unwrap_or(Nanos::ZERO));
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => Ok(LimitChange::Longer(by(more)?)),
        (_, Some(less)) => Ok(LimitChange::Shorter(by(less)?)),
        _ => Ok(LimitChange::To(nanos(text)?)),
    }
}

fn update_nodes(list: &str, settings: &[(String, &str)]) -> anyhow::Result<u8> {
    let known = ["nodename", "state", "reason"];
    if let Some((name, _)) = settings.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return failed(&format!("update: a node's {name} can't be changed here; its State can"));
    }
    let value = |name: &str| settings.iter().find(|(it, _)| it == name).map(|(_, value)| *value);
    let state = value("state").unwrap_or_default().to_ascii_lowercase();
    let reason = value("reason").unwrap_or_default().trim_matches('"').to_owned();
    if state == "drain" && reason.is_empty() {
        say!("You must specify a reason when DOWNING or DRAINING a node. Request denied");
        return Ok(1);
    }
    let change = match state.as_str() {
        "drain" => NodeChange::Drain { reason },
        "resume" | "undrain" | "idle" => NodeChange::Resume,
        _ => return failed("update: a node's State can be DRAIN or RESUME"),
    };
    order(&Request::ChangeNodes { nodes: list.to_owned(), change }, &Line::default())
}
