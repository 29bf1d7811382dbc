//! `sbatch`: `tutti batch` with Slurm's options.

use super::asked::{Asked, Source, exported, names_something, understand};
use super::cluster::Cluster;
use super::options::{Given, Line, Order, of_sbatch, read};
use super::srun::NO_PARTS;
use super::{format, print_version, wrong};
use crate::cmd::batch::{batch_request, text_of, wrapped};
use crate::cmd::submit::{SubmitOptions, options_read};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use tutti_client::ask::{ask, ask_until_answered, unexpected};
use tutti_client::output::print;
use tutti_client::{check_launch, connect_or_start, submit};
use tutti_types::JobId;
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::script::{Directive, OptionLines, option_lines};

const NAME: &str = "sbatch";

const HELP: &str = "\
sbatch: submit a batch script with Slurm's options; `tutti batch` is the same verb.

  sbatch -n 4 -t 2:00:00 job.sh    the script runs once, with room for four tasks
  sbatch --wrap './solve in.dat'   a line of a shell instead of a script
  sbatch < job.sh                  the script comes from standard input
  sbatch --test-only job.sh        when it would start; nothing is submitted
  tutti slurm check job.sh         which option lines would have no effect

Options stand in #SBATCH lines above the first command, in variables such as
SBATCH_PARTITION, and on the command line, which counts most. Partitions are
queues and classes (`sinfo`). --gres and --gpus ask for devices of nodes (`tutti
nodes device`), they and --licenses for counted resources (`tutti resource`).
-a/--array submits a job array: 0-99:2%10.
";

/// Variables with options, in Slurm's words.
const VARIABLES: [(&str, &str); 31] = [
    ("SBATCH_ACCOUNT", "account"),
    ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SBATCH_CONSTRAINT", "constraint"),
    ("SBATCH_DEBUG", "verbose"),
    ("SBATCH_DELAY_BOOT", "delay-boot"),
    ("SBATCH_DISTRIBUTION", "distribution"),
    ("SBATCH_EXCLUSIVE", "exclusive"),
    ("SBATCH_EXPORT", "export"),
    ("SBATCH_GPUS", "gpus"),
    ("SBATCH_GPUS_PER_NODE", "gpus-per-node"),
    ("SBATCH_GPUS_PER_TASK", "gpus-per-task"),
    ("SBATCH_GRES", "gres"),
    ("SBATCH_HINT", "hint"),
    ("SBATCH_IGNORE_PBS", "ignore-pbs"),
    ("SBATCH_JOB_NAME", "job-name"),
    ("SBATCH_MEM_PER_CPU", "mem-per-cpu"),
    ("SBATCH_MEM_PER_GPU", "mem-per-gpu"),
    ("SBATCH_MEM_PER_NODE", "mem"),
    ("SBATCH_NO_KILL", "no-kill"),
    ("SBATCH_NO_REQUEUE", "no-requeue"),
    ("SBATCH_OPEN_MODE", "open-mode"),
    ("SBATCH_PARTITION", "partition"),
    ("SBATCH_QOS", "qos"),
    ("SBATCH_REQUEUE", "requeue"),
    ("SBATCH_RESERVATION", "reservation"),
    ("SBATCH_SIGNAL", "signal"),
    ("SBATCH_TIMELIMIT", "time"),
    ("SBATCH_WAIT", "wait"),
    ("SBATCH_WCKEY", "wckey"),
];

/// Variables that count if they are set, whatever their value.
const FLAGS: [&str; 5] = ["verbose", "ignore-pbs", "no-requeue", "requeue", "wait"];

/// Options about the submission itself.
const OF_SBATCH: [&str; 9] =
    ["parsable", "test-only", "wait", "wrap", "help", "usage", "version", "quiet", "verbose"];

/// Marks the number of a `#TUTTI` line among those of sources.
const OF_TUTTI: u32 = 1 << 31;

/// The name of output files that are not named.
const OUTPUT: &str = "--output=slurm-%j.out";

pub(super) fn execute(words: &[OsString]) -> anyhow::Result<u8> {
    let line = read(&of_sbatch(), Order::Strict, words);
    if line.has("help") || line.has("usage") {
        print(HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    if !line.problems.is_empty() {
        return Ok(wrong(NAME, &line.problems));
    }
    if line.rest.first().is_some_and(|word| word == ":") {
        return Ok(wrong(NAME, &[NO_PARTS.into()]));
    }
    let (text, argv) = script_of(&line)?;
    check_text(&text)?;
    let lines = option_lines(&text).map_err(|error| anyhow::anyhow!("{error}"))?;
    // Without an instance nothing can be named: one is started, as the job needs it anyway.
    connect_or_start()?;
    let read = Reading::of(&lines, &line, Cluster::now);
    for note in read.notes(&line) {
        say!("{NAME}: {note}");
    }
    if !read.problems.is_empty() {
        for problem in &read.problems {
            say!("{NAME}: error: {problem}");
        }
        return Ok(1);
    }
    let Some(options) = read.options.clone() else { return Ok(1) };
    let request = request_of(options, &read.asked, (text, argv), &line)?;
    if read.has("test-only", &line) {
        // Directories and files may be made before the job is submitted.
        return test_only(NAME, request);
    }
    check_launch(&request.launch)?;
    send(request, &read, &line)
}

/// Rejects a script that is no text: shells stop at a zero byte, or leave it out.
///
/// # Errors
/// If it has a zero byte.
pub(super) fn check_text(script: &[u8]) -> anyhow::Result<()> {
    match script.split(|byte| *byte == b'\n').position(|line| line.contains(&0)) {
        None => Ok(()),
        Some(at) => {
            anyhow::bail!("Batch script contains NUL characters: line {} has a zero byte", at + 1)
        }
    }
}

/// The text of the script, and its path and arguments.
fn script_of(line: &Line) -> anyhow::Result<(Vec<u8>, Vec<OsString>)> {
    if let Some(wrap) = line.last("wrap") {
        anyhow::ensure!(line.rest.is_empty(), "Script arguments not permitted with --wrap option");
        return Ok((wrapped(&OsString::from(wrap))?, Vec::new()));
    }
    match line.rest.first() {
        Some(script) => Ok((text_of(script)?, line.rest.clone())),
        None => Ok((text_of(&OsString::from("-"))?, Vec::new())),
    }
}

/// All options of a submission, read.
pub(super) struct Reading {
    pub(super) asked: Asked,
    options: Option<SubmitOptions>,
    /// Those about the submission itself that script and variables gave.
    of_sbatch: Vec<&'static str>,
    /// The first option line that counts for nothing since it is below a command.
    below: Option<u32>,
    pub(super) problems: Vec<String>,
}

impl Reading {
    /// Options of a script, then of variables, then of the command line.
    pub(super) fn of(lines: &OptionLines, line: &Line, cluster: impl FnOnce() -> Cluster) -> Self {
        let mut problems: Vec<String> = lines.problems.iter().map(ToString::to_string).collect();
        let mut sources = Vec::new();
        let mut ours = Vec::new();
        let known = of_sbatch();
        for it in &lines.lines {
            if !it.is_sbatch {
                ours.push(Directive { line: OF_TUTTI | it.line, words: it.words.clone() });
                continue;
            }
            let words: Vec<OsString> = it.words.iter().map(OsString::from).collect();
            let found = read(&known, Order::Mixed, &words);
            let origin = format!("line {}: ", it.line);
            problems.extend(found.problems.iter().map(|problem| format!("{origin}{problem}")));
            problems.extend(found.rest.iter().map(|word| match word.to_str() {
                Some("hetjob" | "packjob" | ":") => format!("{origin}{NO_PARTS}"),
                _ => format!(
                    "{origin}{} is no option",
                    tutti_wire::units::shown(&word.to_string_lossy())
                ),
            }));
            sources.extend(found.given.into_iter().map(|given| source(&origin, given)));
        }
        sources.extend(variables());
        sources.extend(line.given.iter().cloned().map(|given| source("", given)));
        let is_of_sbatch = |source: &Source| OF_SBATCH.contains(&source.name);
        let (of_sbatch, sources): (Vec<Source>, Vec<Source>) =
            sources.into_iter().partition(is_of_sbatch);
        let is_named = sources.iter().any(|source| names_something(source.name));
        let cluster = if is_named { cluster() } else { Cluster::default() };
        let mut asked = understand(sources, &cluster);
        problems.append(&mut asked.problems);
        let mut script = asked.script.clone();
        ours.insert(0, Directive { line: 0, words: vec![OUTPUT.into(), "--slurm".into()] });
        script.directives.splice(0..0, ours);
        let options = options_read("batch", &script).map_err(|found| {
            let shown = |(line, what): (u32, String)| match line & OF_TUTTI {
                0 => format!("{}{what}", asked.origin(line)),
                _ => format!("line {}: {what}", line & !OF_TUTTI),
            };
            problems.extend(found.into_iter().map(shown));
        });
        let of_sbatch = of_sbatch.into_iter().map(|source| source.name).collect();
        Self { asked, options: options.ok(), of_sbatch, below: lines.below, problems }
    }

    fn has(&self, name: &str, line: &Line) -> bool {
        line.has(name) || self.of_sbatch.contains(&name)
    }

    /// What has no effect, as far as the caller wants to read that.
    fn notes(&self, line: &Line) -> Vec<String> {
        if self.has("quiet", line) {
            return Vec::new();
        }
        let mut notes = self.asked.notes.clone();
        if self.has("verbose", line) {
            notes.extend(self.quiet_notes());
        }
        notes
    }

    /// What has no effect and can't change what runs.
    pub(super) fn quiet_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.asked.quiet.iter().map(|it| format!("{it} has no effect")).collect();
        if let Some(below) = self.below {
            notes
                .push(format!("line {below}: option lines below the first command have no effect"));
        }
        notes
    }
}

fn source(origin: &str, given: Given) -> Source {
    Source { origin: origin.to_owned(), name: given.name, value: given.value }
}

/// Options that variables set.
fn variables() -> Vec<Source> {
    let set = VARIABLES.iter().filter_map(|(variable, name)| {
        let value = std::env::var(variable).ok()?;
        let value =
            (!(FLAGS.contains(name) || *name == "exclusive" && value.is_empty())).then_some(value);
        Some(Source { origin: format!("{variable}: "), name, value })
    });
    set.collect()
}

fn request_of(
    mut options: SubmitOptions,
    asked: &Asked,
    (text, argv): (Vec<u8>, Vec<OsString>),
    line: &Line,
) -> anyhow::Result<JobRequest> {
    if options.job.name.is_none() && argv.is_empty() {
        let name = if line.has("wrap") { "wrap" } else { NAME };
        options.job.name = Some(name.to_owned());
    }
    let mut request = batch_request(&options, text, argv)?;
    let environment = std::mem::take(&mut request.launch.environment);
    let environment = environment.into_iter().map(ByteBuf::into_vec).collect();
    let exported = exported(environment, &asked.export);
    request.launch.environment = exported.into_iter().map(ByteBuf::from).collect();
    Ok(request)
}

/// Says when such a job would start, and submits nothing.
///
/// # Errors
/// If the instance does not answer.
pub(super) fn test_only(name: &str, request: JobRequest) -> anyhow::Result<u8> {
    let partition = partition_of(&request);
    let each = request.processors_per_task.unwrap_or(1);
    let processors = request.tasks.saturating_mul(each);
    match ask(&Request::When(request))? {
        Reply::Starts { report, .. } => {
            let start = report.jobs.first();
            let at = start.and_then(|start| start.starts_ms);
            let at = at.map_or_else(|| "an unknown time".into(), format::moment);
            let number = start.and_then(|start| start.job).map_or(0, |job| job.0);
            say!(
                "{name}: Job {number} to start at {at} using {processors} processors in partition \
                 {partition}"
            );
            Ok(0)
        }
        Reply::Declined { reason, .. } => {
            say!("allocation failure: {reason}");
            Ok(1)
        }
        _ => unexpected(),
    }
}

fn partition_of(request: &JobRequest) -> String {
    let queue = request.queue.as_ref().map(ToString::to_string);
    queue.unwrap_or_else(|| request.class.to_string())
}

fn send(request: JobRequest, read: &Reading, line: &Line) -> anyhow::Result<u8> {
    let refused = |reason: &str| {
        say!("{NAME}: error: Batch job submission failed: {reason}");
        Ok(1)
    };
    let job = match submit(request)? {
        Reply::Accepted { job, .. } => job,
        Reply::Declined { reason, .. } | Reply::Failed { reason, .. } => return refused(&reason),
        _ => return unexpected(),
    };
    let quiet = read.has("quiet", line);
    match (read.has("parsable", line), &read.asked.cluster) {
        (true, Some(cluster)) => print(&format!("{job};{cluster}\n"))?,
        (true, None) => print(&format!("{job}\n"))?,
        (false, _) if quiet => {}
        (false, Some(cluster)) => {
            print(&format!("Submitted batch job {job} on cluster {cluster}\n"))?;
        }
        (false, None) => print(&format!("Submitted batch job {job}\n"))?,
    }
    match read.has("wait", line) {
        true => end_of(job),
        false => Ok(0),
    }
}

/// Waits for the end of a job; its exit code.
fn end_of(job: JobId) -> anyhow::Result<u8> {
    match ask_until_answered(&Request::Wait { job })? {
        Reply::Ended { outcome, .. } => Ok(outcome.exit_code),
        _ => unexpected(),
    }
}

#[cfg(test)]
mod tests {
    use super::Reading;
    use crate::cmd::batch::batch_request;
    use crate::slurm::cluster::{Cluster, Partition};
    use crate::slurm::options::{Line, Order, of_sbatch, read};
    use std::ffi::OsString;
    use tutti_types::resource::Amount;
    use tutti_wire::local::JobRequest;
    use tutti_wire::script::option_lines;

    fn cluster() -> Cluster {
        let partition = |name: &str, is_queue| Partition {
            name: name.into(),
            is_queue,
            is_default: name == "production",
            most_s: None,
        };
        let classes = ["interactive", "production", "standby", "benchmark"];
        let mut partitions = vec![partition("short", true), partition("gpu", true)];
        partitions.extend(classes.map(|class| partition(class, false)));
        let resources = ["gpu", "a100", "matlab"].map(str::to_owned).to_vec();
        let features = ["haswell", "skylake"].map(str::to_owned).to_vec();
        Cluster { partitions, resources, features, ..Cluster::default() }
    }

    fn script(head: &str) -> Vec<u8> {
        let lines =
            head.split("; ").map(|line| format!("#SBATCH {}\n", line.trim_end_matches(';')));
        format!("#!/bin/sh\n{}srun true\n", lines.collect::<String>()).into_bytes()
    }

    fn reading(text: &[u8], words: &[&str]) -> Reading {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let line: Line = read(&of_sbatch(), Order::Strict, &words);
        Reading::of(&option_lines(text).unwrap(), &line, cluster)
    }

    fn request(reading: &Reading) -> anyhow::Result<JobRequest> {
        let options = reading.options.clone().ok_or_else(|| anyhow::anyhow!("refused"))?;
        batch_request(&options, b"#!/bin/sh\n".to_vec(), vec!["/bin/job.sh".into()])
    }

    /// What a job asks for, as the list of heads has it.
    fn shown(request: &JobRequest) -> String {
        let mut all = vec![format!("n={}", request.tasks)];
        all.extend(request.nodes.count.map(|nodes| format!("N={nodes}")));
        all.extend(request.processors_per_task.map(|each| format!("c={each}")));
        all.extend(request.memory_per_task_bytes.map(|bytes| format!("m={}", bytes >> 20)));
        all.extend(request.time_limit.map(|limit| format!("t={}", limit.0 / 1_000_000_000)));
        all.extend(request.resources.iter().map(|wish| match wish.amount {
            Amount::Count(count) => format!("r={}:{count}", wish.name),
            Amount::One | Amount::Number(_) => format!("r={}:1", wish.name),
            Amount::OnNodes { .. } => format!("g={wish}"),
        }));
        all.extend(request.queue.as_ref().map(|queue| format!("q={queue}")));
        all.extend(request.names_class.then(|| format!("k={}", request.class)));
        all.extend(request.nodes.only.as_ref().map(|list| format!("w={list}")));
        all.extend(request.nodes.exclude.as_ref().map(|list| format!("x={list}")));
        all.extend(request.nodes.constraint.as_ref().map(|features| format!("C={features}")));
        all.extend(request.nodes.exclusive.then(|| "E".to_owned()));
        all.extend(request.hold.then(|| "H".to_owned()));
        all.extend(request.warning.map(|warning| {
            let shell = if warning.only_shell { "B:" } else { "" };
            format!("s={shell}{}@{}", warning.signal, warning.before.0 / 1_000_000_000)
        }));
        all.extend(request.begin_ms.map(|_| "B".to_owned()));
        all.extend(request.array.as_ref().map(|array| format!("a={array}")));
        all.join(" ")
    }

    #[test]
    fn options_about_gpus_ask_for_devices_where_nodes_have_them() {
        let cluster = || Cluster { devices: vec!["gpu".into(), "a100".into()], ..cluster() };
        for (head, asked) in [
            ("-n 1; --gres=gpu:2", "n=1 g=gpu:2/node"),
            ("-n 4; -N 2; --gpus=4", "n=4 N=2 g=gpu:4"),
            ("-n 4; --gpus-per-task=1", "n=4 g=gpu:1/task"),
            ("-n 2; --gpus-per-node=a100:2", "n=2 g=a100:2/node"),
            ("-n 2; --gpus=2; --gpus-per-node=2", "n=2 g=gpu:2/node"),
            ("-n 1; --gres=gpu:h100:1", "n=1 g=gpu:1/node"),
        ] {
            let text = script(head);
            let line: Line = read(&of_sbatch(), Order::Strict, &[]);
            let reading = Reading::of(&option_lines(&text).unwrap(), &line, cluster);
            assert_eq!(shown(&request(&reading).unwrap()), asked, "{head}");
        }
    }

    /// Options that are not available, though Slurm has them.
    const MISSING: [&str; 0] = [];

    #[test]
    fn heads_of_scripts_are_accepted_with_what_they_ask_for() {
        let (mut wrong, mut accepted, mut missing) = (Vec::new(), 0, 0);
        for line in include_str!("heads.txt").lines().filter(|line| line.contains(" => ")) {
            let (head, expected) = line.rsplit_once(" => ").unwrap();
            let reading = reading(&script(head), &[]);
            let found = match (reading.problems.is_empty(), request(&reading)) {
                (true, Ok(request)) => {
                    accepted += 1;
                    assert!(request.launch.slurm && request.launch.argv.len() == 1);
                    shown(&request)
                }
                (false, _) => "refused".into(),
                (true, Err(error)) => format!("{error:#}"),
            };
            missing += u32::from(MISSING.iter().any(|option| head.contains(option)));
            if found != expected {
                wrong.push(format!("{head}\n  is {found}, {:?}", reading.problems));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // Slurm takes those, too, that have what is missing here.
        assert!(accepted >= 130 && accepted * 100 >= (accepted + missing) * 95, "{accepted}");
    }

    #[test]
    fn a_command_line_counts_more_than_a_script_and_all_problems_are_named() {
        let text = script("-n 4; -p short; --mem=4G; -J of-script");
        let reading = reading(&text, &["--mem-per-cpu=1G", "-p", "standby", "--ntasks=2"]);
        assert_eq!(shown(&request(&reading).unwrap()), "n=2 m=1024 k=standby");
        assert_eq!(request(&reading).unwrap().launch.name, "of-script");

        let text = script("--array=4-1; -n 0; --nosuch; -t soon");
        let problems = super::tests::reading(&text, &["--licenses=nosuch"]).problems.join("\n");
        for says in ["line 2: ", "line 3: ", "line 4: ", "line 5: ", "--licenses=nosuch"] {
            assert!(problems.contains(says), "no {says} in: {problems}");
        }
    }

    #[test]
    fn unknown_names_are_rejected_where_the_site_says_so() {
        let line = read(&of_sbatch(), Order::Strict, &[]);
        let of = |head: &str| {
            let cluster = || Cluster { is_strict: true, ..cluster() };
            Reading::of(&option_lines(&script(head)).unwrap(), &line, cluster).problems
        };
        assert!(of("-A tutti; -q normal; -p short").is_empty());
        let expected = [
            "line 2: invalid account, the only one is tutti: proj",
            "line 3: invalid QOS, the only one is normal: high",
            "line 4: invalid partition specified: nowhere",
        ];
        assert_eq!(of("-A proj; -q high; -p nowhere"), expected);
    }

    #[test]
    fn what_may_matter_is_noted_and_what_can_not_is_noted_for_those_that_ask() {
        let text = script("-A proj; --wckey=END; -p nowhere; --gres=tape:2; --reservation=x");
        let reading = reading(&text, &[]);
        assert!(reading.problems.is_empty());
        let notes = reading.notes(&Line::default()).join("\n");
        for says in [
            "line 2: --account=proj has no effect",
            "line 4: --partition=nowhere has no effect",
            "line 5: tape:2 has no effect",
            "line 6: --reservation=x has no effect",
        ] {
            assert!(notes.contains(says), "no {says} in: {notes}");
        }
        assert!(!notes.contains("wckey"));
        assert!(reading.quiet_notes().join("\n").contains("line 3: --wckey has no effect"));
    }

    #[test]
    fn file_names_have_the_letters_of_slurm() {
        let text = script("-n 1; -o %x-%A_%a-%J-%4j.out");
        let request = request(&reading(&text, &[])).unwrap();
        let tutti_wire::launch::Stdio::Files { output, .. } = request.launch.stdio else {
            panic!()
        };
        assert_eq!(output, b"%x-%A_%a-%j-%4j.out"[..]);
    }
}
