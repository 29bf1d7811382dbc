//! `srun` and `salloc`: `tutti run` with Slurm's options.

use super::asked::{Asked, Source, exported, gpus_of_step, names_something, understand};
use super::cluster::Cluster;
use super::multi_prog;
use super::options::{Given, Known, Line, Order, flag, of_sbatch, perhaps, read, value};
use super::step_size::{self, JobSize, StepSize, step_size};
use super::{print_version, wrong};
use crate::cmd::alloc;
use crate::cmd::exec::{self, ExecArgs};
use crate::cmd::run::{self, RunArgs};
use anyhow::Context;
use clap::{Args, FromArgMatches};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use tutti_client::JobOptions;
use tutti_client::output::print;
use tutti_types::JobId;
use tutti_wire::pattern;
use tutti_wire::units::shown;

const NAME: &str = "srun";

const HELP: &str = "\
srun: run tasks with Slurm's options, and show their output; `tutti run` is the
same verb.

  srun -n 4 ./solver in.dat       four tasks
  srun -N 2 --ntasks-per-node 4 -l ./solver
  srun -n 1 -c 8 -t 1:00:00 ./threads
  srun --pty bash                 a shell with a terminal
  srun --jobid 7 --pty bash       the same beside the tasks of job 7
  srun -n 4 --multi-prog file     lines such as: 0-2 ./solver %t

The job is interactive (`-p CLASS` names another). It ends with the highest exit
code of its tasks. Inside a job it is a step of that job: it takes processors of
it that no other step has, or waits for them. Without -n it has the job's tasks.
";

/// Options of `srun` that `sbatch` does not have, or has with another value.
const OPTIONS: &[Known] = &[
    perhaps("accel-bind", None),
    value("bcast", None),
    value("compress", None),
    value("cpu-bind", None),
    flag("disable-status", Some('X')),
    value("epilog", None),
    flag("exact", None),
    perhaps("het-group", None),
    perhaps("immediate", Some('I')),
    flag("interactive", None),
    value("jobid", None),
    perhaps("kill-on-bad-exit", Some('K')),
    flag("label", Some('l')),
    value("mpi", None),
    flag("multi-prog", None),
    flag("no-allocate", Some('Z')),
    flag("overlap", None),
    flag("preserve-env", Some('E')),
    value("prolog", None),
    perhaps("pty", None),
    flag("quit-on-interrupt", None),
    value("relative", Some('r')),
    value("slurmd-debug", None),
    value("task-epilog", None),
    value("task-prolog", None),
    value("threads", Some('T')),
    flag("unbuffered", Some('u')),
    value("wait", Some('W')),
    value("het-step", None),
];

/// Of these, those that can't change what runs here.
const QUIET: [&str; 17] = [
    "accel-bind",
    "compress",
    "cpu-bind",
    "disable-status",
    "exact",
    "interactive",
    "immediate",
    "mpi",
    "no-allocate",
    "overlap",
    "preserve-env",
    "quit-on-interrupt",
    "slurmd-debug",
    "threads",
    "kill-on-bad-exit",
    "label",
    "unbuffered",
];

/// Options about the command itself, and those that are translated here.
const OF_SRUN: [&str; 16] = [
    "multi-prog",
    "help",
    "usage",
    "version",
    "quiet",
    "verbose",
    "input",
    "output",
    "error",
    "parsable",
    "wait",
    "test-only",
    "jobid",
    "pty",
    "het-group",
    "het-step",
];

/// Options that a job has which is submitted, and none that is run.
const OF_SUBMITTED: [&str; 4] = ["hold", "open-mode", "requeue", "no-requeue"];

/// Options that a step has from its job.
const OF_ITS_JOB: [&str; 29] = [
    "account",
    "begin",
    "comment",
    "constraint",
    "deadline",
    "dependency",
    "exclusive",
    "gpu-bind",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
    "licenses",
    "mail-type",
    "mail-user",
    "nice",
    "no-kill",
    "oversubscribe",
    "partition",
    "priority",
    "qos",
    "reservation",
    "share",
    "signal",
    "spread-job",
    "time",
    "time-min",
    "tres-per-task",
    "wckey",
];

/// Options of `srun` that are always refused.
const REFUSED: [&str; 5] = ["bcast", "prolog", "epilog", "task-prolog", "task-epilog"];

/// Options that a command in a job has which is started from outside, and those that only say of
/// which kind its job is.
const BESIDE: [&str; 14] = [
    "jobid",
    "pty",
    "chdir",
    "input",
    "quiet",
    "verbose",
    "parsable",
    "wait",
    "account",
    "comment",
    "partition",
    "qos",
    "reservation",
    "wckey",
];

/// Values that such a command has anyway.
const IDLE_BESIDE: [(&str, &str); 6] = [
    ("nodes", "1"),
    ("ntasks-per-node", "1"),
    ("mem", "0"),
    ("output", "all"),
    ("error", "all"),
    ("export", "ALL"),
];

/// Variables with options, in Slurm's words. Those of an outer job's size are not among them: they
/// are about that job.
const VARIABLES: [(&str, &str); 8] = [
    ("SRUN_CPUS_PER_TASK", "cpus-per-task"),
    ("SLURM_PARTITION", "partition"),
    ("SLURM_ACCOUNT", "account"),
    ("SLURM_QOS", "qos"),
    ("SLURM_TIMELIMIT", "time"),
    ("SLURM_EXCLUSIVE", "exclusive"),
    ("SLURM_GRES", "gres"),
    ("SLURM_MEM_PER_CPU", "mem-per-cpu"),
];

/// What is said of a job of several parts.
pub(super) const NO_PARTS: &str = "heterogeneous jobs (':') are not available: a job has tasks of one \
    size; ask for the largest, and start each program by an srun of its own inside the job";

/// Whether a way for MPI programs to find each other is served, or has no effect. A version of PMIx
/// may be named.
fn is_mpi(name: &str) -> bool {
    ["none", "pmi2", "pmix"].contains(&name)
        || name.strip_prefix("pmix_v").is_some_and(|version| version.parse::<u8>().is_ok())
}

fn known() -> Vec<Known> {
    let mut known = OPTIONS.to_vec();
    let is_own = |it: &Known| OPTIONS.iter().any(|own| own.long == it.long);
    let of_scripts = ["wrap", "ignore-pbs", "batch", "export-file", "array"];
    known
        .extend(of_sbatch().into_iter().filter(|it| !is_own(it) && !of_scripts.contains(&it.long)));
    known
}

pub(super) fn srun(words: &[OsString]) -> anyhow::Result<u8> {
    let mut line = read(&known(), Order::Strict, words);
    if line.has("help") || line.has("usage") {
        print(HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    if line.last("mpi") == Some("list") {
        print("MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n")?;
        return Ok(0);
    }
    if let Some(mpi) = line.last("mpi").filter(|mpi| !is_mpi(mpi)) {
        let problem = format!("Invalid MPI type '{}', --mpi=list for acceptable types", shown(mpi));
        line.problems.push(problem);
    }
    line.problems.extend(refusals(&line));
    if line.rest.is_empty() && !line.has("test-only") && line.problems.is_empty() {
        say!("{NAME}: fatal: No command given to execute.");
        return Ok(1);
    }
    if line.rest.iter().any(|word| word == ":") {
        line.problems.push(NO_PARTS.into());
    }
    if !line.problems.is_empty() {
        return Ok(wrong(NAME, &line.problems));
    }
    if let Some(job) = other_job(&line) {
        return run_beside(job, &line);
    }
    let size = match is_step().then(|| size_of_step(&line)).transpose() {
        Ok(size) => size,
        Err(problem) => return Ok(wrong(NAME, &[problem])),
    };
    if line.has("multi-prog")
        && let Err(problem) = take_programs(&mut line, size.as_ref().and_then(|it| it.tasks))
    {
        return Ok(wrong(NAME, &[problem]));
    }
    let sources = sources(&line, size.as_ref());
    let cluster = match sources.iter().any(|source| names_something(source.name)) {
        true => Cluster::now(),
        false => Cluster::default(),
    };
    let asked = understand(sources, &cluster);
    say_notes(&asked, size.as_ref(), &line);
    let found = all_problems(&asked);
    if !found.is_empty() {
        return Ok(wrong(NAME, &found));
    }
    let words = words_of(&asked, &line)?;
    let command = RunArgs::augment_args(clap::Command::new("run").no_binary_name(true))
        .args_override_self(true);
    let args = command.try_get_matches_from(words).and_then(|it| RunArgs::from_arg_matches(&it));
    match args.and_then(|args| args.check().map(|()| args)) {
        Ok(args) => {
            if line.has("test-only") {
                return super::sbatch::test_only(NAME, run::asked_by(&args)?);
            }
            if let Some(file) = line.last("input").filter(|file| !is_tasks(file)) {
                read_from(file)?;
            }
            let environment = |all| exported(all, &asked.export);
            run::execute_with(args, environment).map(tutti_node::exit::Exit::code)
        }
        Err(error) => Ok(wrong(NAME, &[crate::cmd::usage::what_is_wrong(&error, NAME)])),
    }
}

/// Says what has no effect.
fn say_notes(asked: &Asked, size: Option<&StepSize>, line: &Line) {
    let of_size = size.into_iter().flat_map(|it| &it.notes);
    let notes = asked.notes.iter().chain(of_size).filter(|_| !line.has("quiet"));
    notes.for_each(|note| say!("{NAME}: {note}"));
    if line.has("verbose") {
        asked.quiet.iter().for_each(|note| say!("{NAME}: {note} has no effect"));
    }
}

/// `salloc`: a job that holds processors, and a command or shell beside them.
pub(super) fn salloc(words: &[OsString]) -> anyhow::Result<u8> {
    const NAME: &str = "salloc";
    let mut line = read(&known(), Order::Strict, words);
    if line.has("help") || line.has("usage") {
        print(HELP_OF_SALLOC)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    line.problems.extend(refusals(&line));
    if line.rest.iter().any(|word| word == ":") {
        line.problems.push(NO_PARTS.into());
    }
    let of_srun = ["pty", "multi-prog"].into_iter().filter(|name| line.has(name));
    let of_srun: Vec<String> =
        of_srun.map(|name| format!("--{name} is an option of srun")).collect();
    line.problems.extend(of_srun);
    if !line.problems.is_empty() {
        return Ok(wrong(NAME, &line.problems));
    }
    let sources: Vec<Source> = line
        .given
        .iter()
        .filter(|it| !QUIET.contains(&it.name) && !OF_SRUN.contains(&it.name))
        .filter(|it| !OF_SUBMITTED.contains(&it.name))
        .map(|it| Source { origin: String::new(), name: it.name, value: it.value.clone() })
        .collect();
    let cluster = match sources.iter().any(|source| names_something(source.name)) {
        true => Cluster::now(),
        false => Cluster::default(),
    };
    let asked = understand(sources, &cluster);
    let notes = asked.notes.iter().filter(|_| !line.has("quiet"));
    notes.for_each(|note| say!("{NAME}: {note}"));
    let found = all_problems(&asked);
    if !found.is_empty() {
        return Ok(wrong(NAME, &found));
    }
    let words = asked.script.directives.iter().flat_map(|it| &it.words).map(OsString::from);
    let words: Vec<OsString> = std::iter::once("--slurm".into()).chain(words).collect();
    let command = JobOptions::augment_args(clap::Command::new("alloc").no_binary_name(true))
        .args_override_self(true);
    let job = command.try_get_matches_from(&words).and_then(|it| JobOptions::from_arg_matches(&it));
    match job {
        Ok(job) => {
            let said = if line.has("quiet") { alloc::Words::None } else { alloc::Words::Slurm };
            let name = ("interactive", said);
            alloc::alloc(&words, &job, name, &line.rest).map(tutti_node::exit::Exit::code)
        }
        Err(error) => Ok(wrong(NAME, &[crate::cmd::usage::what_is_wrong(&error, NAME)])),
    }
}

const HELP_OF_SALLOC: &str = "\
salloc: hold processors for a command or shell; `tutti alloc` does the same.

  salloc -n 4                a shell; srun in it starts steps
  salloc -n 4 -t 60 ./steps  a command

Options are those of sbatch about a job's size and time.
";

/// Has each task run the program that the file names which is the one argument of `--multi-prog`.
/// `of_step`: how many tasks a step has, if it is one.
fn take_programs(line: &mut Line, of_step: Option<u32>) -> Result<(), String> {
    use std::io::Read;
    let [file] = &line.rest[..] else {
        return Err("--multi-prog: name one file, with a line for each program".into());
    };
    let shown = file.to_string_lossy().into_owned();
    let failed = |why: String| format!("--multi-prog {}: {why}", tutti_wire::units::shown(&shown));
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| failed(error.to_string()))?;
    let read = opened.take(multi_prog::BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    if bytes as u64 > multi_prog::BYTES_MAX {
        return Err(failed(format!("it is longer than {} KiB", multi_prog::BYTES_MAX >> 10)));
    }
    let tasks = of_step.or_else(|| line.last("ntasks").and_then(|tasks| tasks.parse().ok()));
    let script = multi_prog::script_of(&text, tasks).map_err(failed)?;
    let name = std::path::Path::new(&shown).file_name().map(|it| it.to_string_lossy().into_owned());
    if let Some(name) = name.filter(|_| !line.has("job-name")) {
        line.given.push(Given { name: "job-name", value: Some(name) });
    }
    line.rest = ["/bin/sh", "-c", &script, "srun"].map(OsString::from).to_vec();
    Ok(())
}

/// What `srun` has and `tutti run` has not.
fn refusals(line: &Line) -> Vec<String> {
    let mut problems = Vec::new();
    for name in REFUSED {
        if line.has(name) {
            problems.push(format!("--{name} is not available"));
        }
    }
    if line.has("dependency") {
        let reason =
            "--dependency is not available for a job that starts now; submit it with sbatch";
        problems.push(reason.into());
    }
    if let Some(job) = other_job(line) {
        problems.extend(problems_beside(line, job));
    } else if line.has("relative") && !is_step() {
        problems.push("--relative is an option of steps, inside of a job".into());
    }
    problems
}

/// The job that is named, unless this process is inside it.
fn other_job(line: &Line) -> Option<&str> {
    let inside = std::env::var("SLURM_JOB_ID").ok();
    line.last("jobid").filter(|job| inside.as_deref() != Some(*job))
}

/// What a command that is started in a job from outside can't have: it is one task beside rank 0.
fn problems_beside(line: &Line, job: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if job.parse::<u64>().is_err() {
        problems.push(format!("--jobid={job}: write the number of a job, such as 7"));
    }
    if let Some(tasks) = line.last("ntasks").filter(|tasks| *tasks != "1") {
        problems.push(format!(
            "--ntasks={tasks}: from outside of job {job}, srun starts one task in it; leave it out"
        ));
    }
    if let Some(nodes) = line.last("nodelist") {
        problems.push(format!(
            "--nodelist={nodes}: the task is on the node of rank 0 of job {job}; `tutti exec \
             {job}.RANK` names another rank"
        ));
    }
    for given in &line.given {
        let (name, value) = (given.name, given.value.as_deref());
        let is_quiet = QUIET.contains(&name) || BESIDE.contains(&name);
        // Such a value changes nothing.
        let is_idle = IDLE_BESIDE.iter().any(|&(idle, of)| idle == name && value == Some(of));
        let is_known = ["ntasks", "nodelist"].contains(&name);
        if !is_quiet && !is_idle && !is_known && !REFUSED.contains(&name) {
            let value = value.map_or_else(String::new, |value| format!("={value}"));
            problems.push(format!(
                "--{name}{value}: not available for a command that is started in job {job} from \
                 outside; leave it out"
            ));
        }
    }
    if let Some(rank) = line.last("input").and_then(|it| it.parse::<u32>().ok())
        && rank != 0
    {
        problems.push(format!("--input={rank}: the command is one task, 0"));
    }
    problems
}

/// `srun --jobid` from outside of the job.
fn run_beside(job: &str, line: &Line) -> anyhow::Result<u8> {
    let target = job.parse().map_err(anyhow::Error::msg)?;
    // As Slurm has it: with a terminal, what is said of streams does not count.
    let input = line.last("input").filter(|_| !line.has("pty"));
    if let Some(file) = input.filter(|file| !is_tasks(file)) {
        read_from(file)?;
    }
    let args = ExecArgs::beside(target, line.rest.clone())
        .with_terminal(line.has("pty"))
        .without_input(input == Some("none"))
        .in_directory(line.last("chdir").map(OsString::from));
    exec::execute(args).map(tutti_node::exit::Exit::code)
}

/// Standard input is this file from now on.
fn read_from(file: &str) -> anyhow::Result<()> {
    let opened = std::fs::File::open(file);
    let opened = opened.with_context(|| format!("cannot read the input file {file}"))?;
    nix::unistd::dup2_stdin(opened)?;
    Ok(())
}

/// What a step asks of its job.
fn size_of_step(line: &Line) -> Result<StepSize, String> {
    const OF_GPUS: [&str; 4] = ["gres", "gpus", "gpus-per-node", "gpus-per-task"];
    let job = JobSize::of_environment();
    let mut size = step_size(line, &job)?;
    let of_gpus = OF_GPUS.into_iter().filter_map(|name| Some((name, line.last(name)?)));
    let of_gpus: Vec<(&str, &str)> = of_gpus.collect();
    size.notes.extend(gpus_of_step(&of_gpus, (job.gpus_here, job.nodes()))?);
    Ok(size)
}

/// Whether it starts a step of the job that it runs in.
fn is_step() -> bool {
    tutti_client::outer_job().is_some()
}

/// `size`: that of a step, if it is one.
fn sources(line: &Line, size: Option<&StepSize>) -> Vec<Source> {
    let is_inner = is_step() || tutti_client::slurm::is_inside();
    let set = VARIABLES.iter().filter(|_| !is_inner).filter_map(|(variable, name)| {
        let value = Some(std::env::var(variable).ok()?).filter(|value| !value.is_empty());
        Some(Source { origin: format!("{variable}: "), name, value })
    });
    let given = line.given.iter().filter(|it| {
        let is_quiet = QUIET.contains(&it.name);
        let is_own = OF_SRUN.contains(&it.name) || OF_SUBMITTED.contains(&it.name);
        let is_jobs = size.is_some()
            && (OF_ITS_JOB.contains(&it.name) || step_size::OPTIONS.contains(&it.name));
        // All of the job's memory: none of its own.
        let is_all = size.is_some() && it.name == "mem" && it.value.as_deref() == Some("0");
        !is_quiet && !is_own && !is_jobs && !is_all
    });
    let given =
        given.map(|it| Source { origin: String::new(), name: it.name, value: it.value.clone() });
    set.chain(size.into_iter().flat_map(StepSize::sources)).chain(given).collect()
}

/// What is wrong, each problem with its place.
fn all_problems(asked: &Asked) -> Vec<String> {
    let mut all = asked.problems.clone();
    let found = asked.script.problems.iter();
    all.extend(found.map(|it| format!("{}{}", asked.origin(it.line), it.problem)));
    all
}

/// Whether the value of `--input` names tasks, not a file.
fn is_tasks(value: &str) -> bool {
    ["all", "none"].contains(&value) || value.parse::<u32>().is_ok()
}

/// The name of a file in which the number is that of the job that this one runs in, if any.
fn of_outer_job(name: &str) -> String {
    match std::env::var("SLURM_JOB_ID") {
        Ok(job) if tutti_client::slurm::is_inside() && job.parse::<u64>().is_ok() => {
            let parts: Vec<String> =
                name.split("%%").map(|part| part.replace("%j", &job)).collect();
            parts.join("%%")
        }
        _ => name.to_owned(),
    }
}

/// The name of a file in which `%J` is the job and its step.
fn with_step(name: &str) -> String {
    let parts: Vec<String> = name.split("%%").map(|part| part.replace("%J", "%j.%s")).collect();
    parts.join("%%")
}

/// The name of a file in which the array and the index are those of the element that this runs in,
/// if any.
fn of_element(name: String) -> Vec<u8> {
    let number = |name: &str| std::env::var(name).ok().filter(|_| is_step());
    let array = number("SLURM_ARRAY_JOB_ID").and_then(|it| it.parse().ok()).map(JobId);
    let index = number("SLURM_ARRAY_TASK_ID").and_then(|it| it.parse().ok());
    match (array, index) {
        (Some(array), Some(index)) => pattern::fill_in_element(name.as_bytes(), array, index),
        _ => name.into_bytes(),
    }
}

/// The words of `tutti run`.
fn words_of(asked: &Asked, line: &Line) -> anyhow::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec!["--slurm".into(), "--slurm-ends".into()];
    if is_step() {
        // Options of jobs were left out: it is no job.
        words.push("--only-step".into());
        words.extend(line.has("overlap").then(|| "--overlap".into()));
    }
    for word in asked.script.directives.iter().flat_map(|it| &it.words) {
        words.push(word.into());
    }
    if line.has("pty") {
        // As Slurm has it: what is said of other streams does not count.
        words.push("--pty".into());
    } else if line.has("label") {
        words.push("--label".into());
    } else if line.has("unbuffered") {
        words.push("--raw".into());
    }
    if line.has("kill-on-bad-exit") && line.last("kill-on-bad-exit") != Some("0") {
        words.push("--kill-on-bad-exit".into());
    }
    let default = if line.has("pty") { "0" } else { "all" };
    let given = line.last("input").filter(|value| is_tasks(value) && !line.has("pty"));
    words.push(format!("--input={}", given.unwrap_or(default)).into());
    let names: &[&str] = if line.has("pty") { &[] } else { &["output", "error"] };
    for &name in names {
        match line.last(name) {
            None | Some("all") => {}
            Some("none") => words.push(format!("--{name}=/dev/null").into()),
            Some(file) => {
                let file = of_element(of_outer_job(&with_step(file)));
                pattern::check(&file).map_err(|problem| anyhow::anyhow!("--{name}: {problem}"))?;
                let mut word = OsString::from(format!("--{name}="));
                word.push(OsString::from_vec(file));
                words.push(word);
            }
        }
    }
    words.push("--".into());
    words.extend(match line.rest.is_empty() {
        true => vec![OsString::from("true")],
        false => line.rest.clone(),
    });
    Ok(words)
}
