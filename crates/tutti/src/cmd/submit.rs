//! `tutti submit`.

use super::after::AfterOptions;
use super::batch::{batch_request, wrapped};
use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, FromArgMatches};
use serde_bytes::ByteBuf;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{counted, plain, print};
use tutti_client::{
    Asked, FAILURES, FILE_LETTERS, JobOptions, SCHEDULING, STDIO, check_launch, job_request,
    output_file, pattern_parser, serve_open_mpi, submit, words_of_command,
};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::limits::ARRAY_ELEMENTS_MAX;
use tutti_types::{ArraySpec, Indices, JobId, NoRespawn, OnNodeLoss};
use tutti_wire::code::Code;
use tutti_wire::launch::{LaunchSpec, OpenMode, Stdio};
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::pattern::{fill_in_element, names_element};
use tutti_wire::script::{self, NoteAbout};

// Options of `submit` that may stand in a script's `#TUTTI` lines as well. No doc comment: clap would
// show it as the verb's own text.
#[derive(Args, Clone, Debug)]
pub(crate) struct SubmitOptions {
    #[command(flatten)]
    pub(crate) job: JobOptions,

    /// Submit an array: a job for each index, such as 0-99, 1,5,9 or 0-98:2; with %10, at most ten
    /// at once. TUTTI_ARRAY_INDEX has the index
    #[arg(short = 'a', long, value_name = "INDICES", conflicts_with = "deadline", help_heading = SCHEDULING)]
    array: Option<ArraySpec>,

    /// Submit an array: a job for each line of a file, which is in TUTTI_LINE. Indices count from 1
    #[arg(long, value_name = "FILE", conflicts_with_all = ["array", "deadline"], help_heading = SCHEDULING)]
    each_line: Option<PathBuf>,

    /// Let at most so many elements of the array be in line or run at once, as %10 in --array
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = SCHEDULING)]
    at_once: Option<u32>,

    /// Hold the job until `tutti release`
    #[arg(long, conflicts_with = "deadline", help_heading = SCHEDULING)]
    hold: bool,

    /// Never queue the job again once it has run: by no `requeue`, and on no loss of a node
    #[arg(long, help_heading = FAILURES)]
    no_requeue: bool,

    #[command(flatten)]
    after: AfterOptions,

    /// File for standard output; patterns are below
    #[arg(help_heading = STDIO)]
    #[arg(short = 'o', long, value_name = "PATTERN", value_parser = pattern_parser(), default_value = "tutti-%j.out")]
    output: OsString,

    /// File for standard error [default: the same as standard output]
    #[arg(short = 'e', long, value_name = "PATTERN", value_parser = pattern_parser())]
    #[arg(help_heading = STDIO)]
    error: Option<OsString>,

    /// File for standard input [default: empty]
    #[arg(short = 'i', long, value_name = "FILE", value_parser = pattern_parser())]
    #[arg(help_heading = STDIO)]
    input: Option<OsString>,

    /// Existing files: truncate (at each launch of the job) or append [default: truncate at the
    /// first launch, append after a requeue]
    #[arg(long, value_name = "MODE", value_parser = open_mode, help_heading = STDIO)]
    open_mode: Option<OpenMode>,

    /// The same as --open-mode append
    #[arg(long, conflicts_with = "open_mode", help_heading = STDIO)]
    append: bool,
}

/// Whether a job is queued again when a node is lost.
const fn queues_again(rule: OnNodeLoss) -> bool {
    matches!(rule, OnNodeLoss::Requeue | OnNodeLoss::Respawn { otherwise: NoRespawn::Requeue, .. })
}

impl SubmitOptions {
    /// The files that the options name.
    pub(super) fn stdio(&self) -> Stdio {
        let bytes = |text: &OsString| ByteBuf::from(text.clone().into_vec());
        Stdio::Files {
            input: self.input.as_ref().map(bytes),
            output: match self.is_array().then(|| default_of_elements(&self.output)).flatten() {
                Some(output) => output.as_bytes().to_vec().into(),
                None => bytes(&self.output),
            },
            error: self.error.as_ref().map(bytes),
            mode: match self.append {
                true => OpenMode::Append,
                false => self.open_mode.unwrap_or_default(),
            },
        }
    }

    /// Fills in what is asked of the job's place in line.
    ///
    /// # Errors
    /// If a job that it is to start after is not there.
    pub(super) fn fill(&self, request: &mut JobRequest) -> anyhow::Result<()> {
        request.hold = self.hold;
        request.no_requeue = self.no_requeue;
        if self.no_requeue && queues_again(request.on_node_loss) {
            let reason = "--no-requeue excludes --on-node-loss requeue; keep one of them";
            return Err(coded(Code::BadValue, reason));
        }
        request.array.clone_from(&self.array);
        if let Some(file) = &self.each_line {
            let (array, lines) = lines_of(file)?;
            request.array = Some(array);
            request.launch.environment.push(lines.into());
        }
        match (&mut request.array, self.at_once) {
            (_, None) => {}
            (Some(array), Some(_)) if array.limit.is_some() => {
                let reason = "--array names a limit behind %, and --at-once another; give one";
                return Err(coded(Code::BadValue, reason));
            }
            (Some(array), limit) => array.limit = limit,
            (None, Some(_)) => {
                let reason = "--at-once is for job arrays; add --array or --each-line";
                return Err(coded(Code::BadValue, reason));
            }
        }
        self.after.fill(request)
    }

    const fn is_array(&self) -> bool {
        self.array.is_some() || self.each_line.is_some()
    }
}

/// The name of output files of elements, in place of the one of jobs that name none.
fn default_of_elements(output: &OsString) -> Option<&'static str> {
    [("tutti-%j.out", "tutti-%A_%a.out"), ("slurm-%j.out", "slurm-%A_%a.out")]
        .iter()
        .find(|(of_jobs, _)| output == of_jobs)
        .map(|(_, of_elements)| *of_elements)
}

/// The longest line of a file for `--each-line`: a variable has room for no more.
const LINE_BYTES_MAX: usize = 100 << 10;

/// The largest such file.
const LINES_BYTES_MAX: usize = 4 << 20;

/// The array of a job for each line of a file, and the variable with all lines.
///
/// # Errors
/// If the file can't be read, or has no line, too many, or one that is no value of a variable.
fn lines_of(file: &Path) -> anyhow::Result<(ArraySpec, Vec<u8>)> {
    let shown = file.display();
    let failed = |why: String| coded(Code::BadValue, format!("--each-line {shown}: {why}"));
    let opened = std::fs::File::open(file).map_err(|error| failed(error.to_string()))?;
    let mut text = Vec::new();
    let most = LINES_BYTES_MAX as u64 + 1;
    opened.take(most).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() > LINES_BYTES_MAX {
        return Err(failed(format!("it is longer than {} MiB", LINES_BYTES_MAX >> 20)));
    }
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    if text.is_empty() {
        return Err(failed("it has no line".into()));
    }
    let lines: Vec<&[u8]> =
        text.split(|&byte| byte == b'\n').map(|it| it.strip_suffix(b"\r").unwrap_or(it)).collect();
    for (line, number) in lines.iter().zip(1..) {
        if line.len() > LINE_BYTES_MAX {
            let most = LINE_BYTES_MAX >> 10;
            return Err(failed(format!("line {number} is longer than {most} KiB")));
        }
        if line.contains(&0) {
            return Err(failed(format!("line {number} has a zero byte in it")));
        }
    }
    let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    if count > ARRAY_ELEMENTS_MAX {
        let why =
            format!("it has {count} lines; an array has at most {ARRAY_ELEMENTS_MAX} elements");
        return Err(failed(why));
    }
    let indices = Indices::of((1..=count).collect()).map_err(|error| failed(error.to_string()))?;
    let lines = [b"TUTTI_LINES=", &lines.join(&b'\n')[..]].concat();
    Ok((ArraySpec { indices, limit: None }, lines))
}

fn open_mode(text: &str) -> Result<OpenMode, String> {
    match text {
        "append" | "a" => Ok(OpenMode::Append),
        "truncate" | "t" => Ok(OpenMode::Truncate),
        other => Err(format!("{other:?} is none of: append, truncate")),
    }
}

/// The heading of options about the lines of a script.
const SCRIPTS: &str = "Scripts";

/// What verbs that submit say.
#[derive(Args, Debug)]
pub(super) struct SaidOptions {
    /// Print only the number of the job, for scripts
    #[arg(long, help_heading = STDIO)]
    pub(super) parsable: bool,

    /// Wait for the end of the job, of all elements of an array; exit with its exit code
    #[arg(long)]
    pub(super) wait: bool,

    /// Leave out options in the script's lines that are wrong or unknown, and say which
    #[arg(long, help_heading = SCRIPTS)]
    pub(super) lenient: bool,

    /// Print when such a job would start and end, and submit nothing
    #[arg(long, conflicts_with_all = ["parsable", "wait"], help_heading = SCHEDULING)]
    pub(super) when: bool,

    /// With --when: as JSON
    #[arg(long, requires = "when", help_heading = SCHEDULING)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    options: SubmitOptions,

    #[command(flatten)]
    said: SaidOptions,

    /// Run this line of a shell once, as `tutti batch` and sbatch do
    #[arg(long, value_name = "CMD", conflicts_with = "command")]
    wrap: Option<OsString>,

    /// Program or script, and its arguments; #TUTTI lines of a script may have options, and one
    /// with #SBATCH lines runs once, as by sbatch
    #[arg(trailing_var_arg = true, required_unless_present = "wrap", value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tutti submit -n 4 -t 2h ./solver          four tasks, at most two hours
  tutti submit job.sh                       its #TUTTI lines have options
  tutti submit --wrap './prepare && ./solve'    a line of a shell, once
  tutti submit -n 4 -o out/%j-%r ./solver   a file for each job and rank
  job=$(tutti submit --parsable job.sh)     in a script: the number of the job
  tutti submit --after $job ./report        starts when that job has ended well
  tutti submit --wait ./solver              exits as the job does, at its end
  tutti submit --begin 20:00 job.sh         no earlier than eight in the evening
  tutti submit --array 0-99%10 job.sh       100 jobs, ten at once
  tutti submit --each-line in.txt job.sh    a job for each line of a file
  tutti submit --notify end job.sh          mail at its end
  tutti submit --when -t 2h job.sh          when it would start and end";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{FILE_LETTERS}")
}

pub(crate) fn execute(args: SubmitArgs) -> anyhow::Result<Exit> {
    if let Some(line) = &args.wrap {
        let request = batch_request(&args.options, wrapped(line)?, Vec::new())?;
        return say_or_send(request, &args.said);
    }
    let (options, script) = match read_script(&args.command[0])? {
        Some(text) => {
            let typed = typed_options::<SubmitArgs>("submit", "command");
            let name = args.command[0].to_string_lossy();
            let options = with_script_options((&name, &text), ("submit", &args.said), typed)?;
            (options, Some(text))
        }
        None => (args.options.clone(), None),
    };
    if let Some(text) = script.as_ref().filter(|text| is_for_slurm(text)) {
        let request = batch_request(&options, text.clone(), args.command)?;
        return say_or_send(request, &args.said);
    }
    let tasks = options.job.tasks()?;
    if let Some((line, starter)) =
        script.as_deref().filter(|_| tasks > 1 && !args.said.parsable).and_then(starter_in)
    {
        say!(
            "tutti: line {line} of {} runs {starter}, once for each of {tasks} tasks: leave {starter} out, or submit \
             the script with `tutti batch`, which runs it once",
            args.command[0].display()
        );
    }
    let mut request =
        job_request(&options.job, "production", &args.command, script, options.stdio())?;
    options.fill(&mut request)?;
    if !args.said.when {
        // What shows only at run time is for the user to see in the output.
        serve_open_mpi(&mut request)?;
    }
    say_or_send(request, &args.said)
}

/// Submits a job, or says when it would start if that is all that was asked.
///
/// # Errors
/// If it can't be launched or submitted.
pub(super) fn say_or_send(request: JobRequest, said: &SaidOptions) -> anyhow::Result<Exit> {
    check_launch(&request.launch)?;
    if said.when {
        return super::when::of_job(request, said.json);
    }
    if request.launch.slurm {
        crate::slurm::ensure();
    }
    let job = send(request, said.parsable)?;
    match (job, said.wait) {
        (Some(job), true) => super::jobs::end_of(job).map(Exit::of_job),
        (Some(_), false) => Ok(Exit::OK),
        (None, _) => Ok(Exit::DECLINED),
    }
}

/// Whether a script has `#SBATCH` lines: what sbatch would do with it is meant, so it runs once and
/// finds Slurm's variables and commands.
pub(super) fn is_for_slurm(script: &[u8]) -> bool {
    script::option_lines(script).is_ok_and(|found| found.lines.iter().any(|line| line.is_sbatch))
}

/// Submits a job, and says its number; `None`: it was declined.
///
/// # Errors
/// If it can't be submitted.
fn send(request: JobRequest, parsable: bool) -> anyhow::Result<Option<JobId>> {
    let asked = Asked::of(&request);
    match submit(request.clone())? {
        Reply::Accepted { job, waits } => {
            match parsable {
                true => print(&format!("{job}\n"))?,
                false => print(&accepted(&request, job, &waits))?,
            }
            asked.say_unheld(None);
            Ok(Some(job))
        }
        Reply::Declined { reason, code } => {
            say!("tutti: declined: {}", code.mark(&reason));
            Ok(None)
        }
        Reply::Failed { reason, code } => Err(coded(code, reason)),
        _ => unexpected(),
    }
}

/// A line about the files of an array's elements: that of the first, or that they share one.
fn where_elements_write(launch: &LaunchSpec, array: JobId, first: u32) -> String {
    let mut launch = launch.clone();
    let Stdio::Files { output, .. } = &mut launch.stdio else { return String::new() };
    let is_own = names_element(output);
    *output = fill_in_element(output, array, first).into();
    // The number of the element as a job is not known yet.
    let (is_known, is_null) = (!names_element(output), output.as_slice() == b"/dev/null");
    match output_file(&launch, array).filter(|_| is_known && !is_null) {
        Some(file) if is_own => {
            format!("the output of element {first} goes to {}\n", plain(&file))
        }
        Some(file) => format!(
            "all elements write to {}; with %a in the name, each has a file of its own\n",
            plain(&file)
        ),
        None => String::new(),
    }
}

fn accepted(request: &JobRequest, job: JobId, waits: &str) -> String {
    if let Some(array) = &request.array {
        let count = counted(array.indices.count(), "element");
        let limit =
            array.limit.map_or_else(String::new, |limit| format!(", at most {limit} at once"));
        return format!(
            "array {job} is submitted: {count}{limit}\n{}",
            where_elements_write(&request.launch, job, array.indices.min())
        );
    }
    let mut text = format!("job {job} is submitted");
    if !waits.is_empty() {
        text.push_str(&format!(", and queued: {waits}"));
    }
    if let Some(file) = output_file(&request.launch, job) {
        text.push_str(&format!("\nits output goes to {}", plain(&file)));
    }
    text.push('\n');
    text
}

/// The text of a script, if that is what the command names by a path.
///
/// # Errors
/// If the file can't be read, is too long, or has options that would be ignored.
fn read_script(program: &OsString) -> anyhow::Result<Option<Vec<u8>>> {
    let path = Path::new(program);
    // Before it is opened: a pipe would have us wait for its other end.
    if !path.is_file() {
        return Ok(None);
    }
    let Ok(file) = std::fs::File::open(path) else { return Ok(None) };
    // Without a slash it is a command of the PATH, unless it is a script that lies here.
    script_in(file, &path.display().to_string())
}

/// The text of a script; `None` if it is none.
///
/// # Errors
/// If it can't be read, is too long, or has options that would be ignored.
pub(crate) fn script_in(mut file: impl Read, shown: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let unreadable = || format!("cannot read the script {shown}");
    let mut text = Vec::new();
    file.by_ref().take(START_BYTES).read_to_end(&mut text).with_context(unreadable)?;
    script::check_start(&text)
        .map_err(|error| coded(Code::BadScript, format!("{shown}: {error}")))?;
    if !script::is_script(&text) {
        return Ok(None);
    }
    let limit = tutti_wire::limits::SCRIPT_BYTES_MAX;
    file.take(limit as u64 + 1).read_to_end(&mut text).with_context(unreadable)?;
    if text.len() > limit {
        let reason = format!("the script {shown} is longer than {} MiB", limit >> 20);
        return Err(coded(Code::BadScript, reason));
    }
    Ok(Some(text))
}

/// How much of a file is read to see whether it is a script.
const START_BYTES: u64 = 16 << 10;

/// What starts a program once for each task elsewhere.
const STARTERS: [&str; 5] = ["srun", "mpirun", "mpiexec", "mpiexec.hydra", "prun"];

/// The first line of a script that begins with one of these, counted from 1.
pub(super) fn starter_in(script: &[u8]) -> Option<(usize, &'static str)> {
    let text = String::from_utf8_lossy(script);
    text.lines().zip(1..).find_map(|(line, number)| {
        let words = words_of_command(line);
        let name = words.first()?.rsplit('/').next()?;
        STARTERS.iter().find(|starter| **starter == name).map(|starter| (number, *starter))
    })
}

/// The options of a script, given its name and text, overridden by those that were typed. The verb,
/// and whether it says no more than a number.
///
/// # Errors
/// All that is wrong with the script's option lines.
pub(super) fn with_script_options(
    (name, text): (&str, &[u8]),
    (verb, said): (&'static str, &SaidOptions),
    typed: Vec<OsString>,
) -> anyhow::Result<SubmitOptions> {
    let failed = |what: &str| coded(Code::BadScript, format!("{name}: {what}"));
    let parsable = said.parsable;
    let mut script = script::parse(text).map_err(|error| failed(&error.to_string()))?;
    let command = options_command(verb);
    let problems = problems_of((verb, &command), &script);
    if !problems.is_empty() {
        let shown = |(line, what): &(u32, String)| format!("line {line}: {what}");
        let all = all_of(&problems.iter().map(shown).collect::<Vec<String>>());
        if !said.lenient {
            return Err(failed(&all));
        }
        say!("tutti: {name}: left out (--lenient): {all}");
        leave_out_wrong(&command, &mut script);
    }
    // A script for Slurm runs where no administrator has made a queue, too.
    let is_partition = |word: &&String| word.starts_with(PARTITION);
    let partition = script.directives.iter().flat_map(|d| &d.words).find(is_partition);
    let ignored = partition.filter(|_| !has_queues());
    if let Some(ignored) = ignored.filter(|_| !parsable) {
        say!("tutti: {name}: no effect here, since there is no queue: {ignored}");
    }
    let words = script.directives.iter().flat_map(|d| &d.words);
    let words = words.filter(|word| ignored.is_none() || !is_partition(word)).map(OsString::from);
    // What is typed may say besides what is to be printed, and whether to wait.
    let matches = SaidOptions::augment_args(command)
        .try_get_matches_from(words.chain(typed))
        .map_err(|error| failed(&super::usage::what_is_wrong(&error, verb)))?;
    if !parsable && let Some(noted) = noted(&script.notes) {
        say!("tutti: {name}: {noted}");
    }
    let mut options = SubmitOptions::from_arg_matches(&matches)?;
    options.job.slurm |= is_for_slurm(text);
    Ok(options)
}

/// How the queue of a `#SBATCH` line is written.
const PARTITION: &str = "--partition=";

fn has_queues() -> bool {
    let queues = super::ask_of_the_past(&Request::Queues);
    matches!(queues, Ok(Reply::Queues(queues)) if !queues.is_empty())
}

/// The parser of the options that may stand in scripts; of two of one name, the later one holds.
fn options_command(verb: &'static str) -> clap::Command {
    SubmitOptions::augment_args(clap::Command::new(verb).no_binary_name(true))
        .args_override_self(true)
        .disable_help_flag(true)
}

/// The options that were read from elsewhere than a command line, or all problems with their lines.
pub(crate) fn options_read(
    verb: &'static str,
    script: &script::Script,
) -> Result<SubmitOptions, Vec<(u32, String)>> {
    let command = options_command(verb);
    let problems = problems_of((verb, &command), script);
    if !problems.is_empty() {
        return Err(problems);
    }
    let words = script.directives.iter().flat_map(|directive| &directive.words);
    let found = command
        .try_get_matches_from(words)
        .and_then(|matches| SubmitOptions::from_arg_matches(&matches));
    found.map_err(|error| vec![(0, super::usage::what_is_wrong(&error, verb))])
}

/// Leaves out the options that the verb's own parser rejects. What the reader of the script has
/// rejected is not among them.
fn leave_out_wrong(command: &clap::Command, script: &mut script::Script) {
    for directive in &mut script.directives {
        let mut options = options_of(command, &directive.words);
        options.retain(|option| {
            let found = command.clone().try_get_matches_from(*option);
            found.err().is_none_or(|error| error.kind() == ErrorKind::MissingRequiredArgument)
        });
        directive.words = options.concat();
    }
}

/// What is wrong with a script, by its lines: what its reader has found, and what the verb's own parser
/// finds in each option by itself.
fn problems_of(
    (verb, command): (&'static str, &clap::Command),
    script: &script::Script,
) -> Vec<(u32, String)> {
    let mut problems: Vec<(u32, String)> =
        script.problems.iter().map(|problem| (problem.line, problem.problem.to_string())).collect();
    for directive in &script.directives {
        for option in options_of(command, &directive.words) {
            if let Err(error) = command.clone().try_get_matches_from(option)
                // Another line, or the command line, may have what an option goes with.
                && error.kind() != ErrorKind::MissingRequiredArgument
            {
                let what = super::usage::what_is_wrong(&error, verb);
                problems.push((directive.line, what));
            }
        }
        if problems.len() >= script::PROBLEMS_MAX {
            break;
        }
    }
    problems.sort_by_key(|(line, _)| *line);
    problems
}

/// The words of a line, option by option, each with its value.
fn options_of<'a>(command: &clap::Command, mut words: &'a [String]) -> Vec<&'a [String]> {
    let mut options = Vec::new();
    while let Some(word) = words.first() {
        let count = if takes_next(command, word) { 2 } else { 1 };
        let (option, rest) = words.split_at(count.min(words.len()));
        options.push(option);
        words = rest;
    }
    options
}

/// Whether an option's value is the word behind it.
fn takes_next(command: &clap::Command, word: &str) -> bool {
    let mut options = command.get_arguments();
    let option = if let Some(long) = word.strip_prefix("--") {
        options.find(|option| option.get_long() == Some(long))
    } else {
        let mut chars = word.strip_prefix('-').unwrap_or_default().chars();
        match (chars.next(), chars.next()) {
            (Some(letter), None) => options.find(|option| option.get_short() == Some(letter)),
            _ => None,
        }
    };
    option.is_some_and(|option| option.get_action().takes_values())
}

/// One problem in the first line of a message; several in lines of their own.
fn all_of(problems: &[String]) -> String {
    match problems {
        [only] => only.clone(),
        _ => format!("{} problems\n  {}", problems.len(), problems.join("\n  ")),
    }
}

/// What of a script has no effect, in one line for each kind.
fn noted(notes: &[script::Note]) -> Option<String> {
    let mut options: Vec<String> = Vec::new();
    let mut others = Vec::new();
    for note in notes {
        match &note.about {
            NoteAbout::Option { option } => options.push(format!("{option} (line {})", note.line)),
            about => others.push(format!("line {}: {about}, and has no effect", note.line)),
        }
    }
    if !options.is_empty() {
        others.insert(0, format!("no effect here, ignored: {}", options.join(", ")));
    }
    (!others.is_empty()).then(|| others.join("; "))
}

/// The options that were typed before the last argument of a verb, the command, as they were typed.
pub(super) fn typed_options<Verb: Args>(verb: &'static str, last: &str) -> Vec<OsString> {
    let all: Vec<OsString> = std::env::args_os().skip(2).collect();
    let command = Verb::augment_args(clap::Command::new(verb).no_binary_name(true));
    let matches = command.try_get_matches_from(&all);
    let count =
        matches.ok().and_then(|matches| matches.get_raw(last).map(Iterator::count)).unwrap_or(0);
    let mut typed: Vec<OsString> = all[..all.len().saturating_sub(count)].to_vec();
    typed.pop_if(|word| word == "--");
    typed
}

/// Sends a request that has no other answer than that it was done.
pub(crate) fn order(request: &Request) -> anyhow::Result<()> {
    match ask(request)? {
        Reply::Done => Ok(()),
        _ => unexpected(),
    }
}

#[cfg(test)]
mod tests {
    use super::starter_in;

    #[test]
    fn what_starts_tasks_itself_is_found_where_a_command_stands() {
        let found = |line: &str| starter_in(format!("#!/bin/sh\n{line}\n").as_bytes());
        assert_eq!(found("srun ./solver"), Some((2, "srun")));
        assert_eq!(found("  OMP_NUM_THREADS=2 exec /usr/bin/mpirun -np 4 x"), Some((2, "mpirun")));
        for line in ["# srun ./solver", "#SBATCH -n 4", "echo srun", "./mpirun.sh", ""] {
            assert_eq!(found(line), None, "{line}");
        }
    }
}
