//! `tutti batch`.

use super::submit::{
    SaidOptions, SubmitOptions, say_or_send, script_in, starter_in, typed_options,
    with_script_options,
};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tutti_client::{FILE_LETTERS, job_request, outer_job};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::{FirstStep, JobId};
use tutti_wire::code::Code;
use tutti_wire::local::JobRequest;

#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    options: SubmitOptions,

    /// Run this line of a shell instead of a script
    #[arg(long, value_name = "CMD", conflicts_with = "script")]
    wrap: Option<OsString>,

    #[command(flatten)]
    said: SaidOptions,

    /// Script, or - for standard input, and its arguments; its #TUTTI and #SBATCH lines may have
    /// options
    #[arg(trailing_var_arg = true, required_unless_present = "wrap", value_name = "SCRIPT")]
    script: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tutti batch -n 4 -t 2h job.sh          once, with room for four tasks
  tutti batch -n 8 -N 2 job.sh in.dat    two nodes: the script runs on the first
  tutti batch --array 0-99%10 job.sh     100 times, ten at once
  tutti batch -n 4 --wrap './prepare && ./solve'
  tutti batch -t 1h --signal B:USR1@5m job.sh   the shell can trap the end
  tutti batch --lenient job.sh           lines that are wrong are left out
  tutti batch --parsable - < job.sh      the script comes from standard input";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{FILE_LETTERS}")
}

/// What a script is called that has no file.
const WITHOUT_FILE: &str = "batch";

pub(crate) fn execute(args: BatchArgs) -> anyhow::Result<Exit> {
    let (options, text) = match &args.wrap {
        Some(line) => (args.options.clone(), wrapped(line)?),
        None => {
            let name = args.script[0].to_string_lossy();
            let text = text_of(&args.script[0])?;
            let typed = typed_options::<BatchArgs>("batch", "script");
            (with_script_options((&name, &text), ("batch", &args.said), typed)?, text)
        }
    };
    let noted = !args.said.parsable && !options.job.slurm;
    if let Some((line, "srun")) = starter_in(&text).filter(|_| noted) {
        say!(
            "tutti: line {line} of the script runs srun, which knows nothing of this job: add --slurm, \
             or write `tutti run` there"
        );
    }
    let request = batch_request(&options, text, args.script.clone())?;
    say_or_send(request, &args.said)
}

/// The request for a batch job, given its script's text, name and arguments.
///
/// # Errors
/// If the job can't be as its options have it.
pub(crate) fn batch_request(
    options: &SubmitOptions,
    text: Vec<u8>,
    mut argv: Vec<OsString>,
) -> anyhow::Result<JobRequest> {
    match argv.first_mut() {
        Some(first)
            if !is_descriptor(Path::new(&*first))
                && !is_stdin(Path::new(&*first))
                && first != "-" =>
        {
            *first = std::path::absolute(original(Path::new(&*first)))?.into_os_string();
        }
        Some(first) => *first = WITHOUT_FILE.into(),
        None => argv.push(WITHOUT_FILE.into()),
    }
    let mut request = job_request(&options.job, "production", &argv, Some(text), options.stdio())?;
    options.fill(&mut request)?;
    if options.job.max_tasks.is_some() {
        let reason = "--max-tasks is for run and submit: a batch job starts its script once, and what \
                      the script runs may fill and spawn in all slots of the job (-n)";
        return Err(coded(Code::BadValue, reason));
    }
    request.first = FirstStep::Once;
    Ok(request)
}

/// The file that a script is a copy of, where a job submits its own script by `$0`; of any other
/// script, its own path.
fn original(script: &Path) -> PathBuf {
    let is_copy =
        |job: JobId| script.is_absolute() && script.ends_with(format!("jobs/job-{job}/script"));
    let copied = std::env::var_os("TUTTI_SCRIPT").filter(|_| outer_job().is_some_and(is_copy));
    copied.map_or_else(|| script.to_owned(), PathBuf::from)
}

/// A script of one line.
pub(crate) fn wrapped(line: &OsString) -> anyhow::Result<Vec<u8>> {
    let line = line.clone().into_vec();
    if line.trim_ascii().is_empty() {
        return Err(coded(Code::BadScript, "--wrap needs a command, such as --wrap './solver'"));
    }
    Ok([b"#!/bin/sh\n", &line[..], b"\n"].concat())
}

/// The text of a script.
///
/// # Errors
/// If it is none, or can't be read.
pub(crate) fn text_of(script: &OsString) -> anyhow::Result<Vec<u8>> {
    let (found, shown) = match script == "-" {
        true => (script_in(std::io::stdin().lock(), "standard input")?, "standard input".into()),
        false => {
            let path = PathBuf::from(script);
            let shown = path.display().to_string();
            let file = open(&path, &shown)?;
            (script_in(file, &shown)?, shown)
        }
    };
    found.ok_or_else(|| {
        let reason = format!(
            "{shown} is no script: its first line must name an interpreter, such as #!/bin/sh; `tutti submit` \
             takes any program, and --wrap 'CMD' a line of a shell"
        );
        coded(Code::BadScript, reason)
    })
}

fn open(path: &Path, shown: &str) -> anyhow::Result<std::fs::File> {
    let failed =
        |why: String| coded(Code::BadScript, format!("cannot read the script {shown}: {why}"));
    let found = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    // A named pipe has no other end before it is opened, and may never have one. One that this
    // process has open, as of `sbatch <(command)`, has its other end.
    let is_open_pipe = || found.file_type().is_fifo() && is_descriptor(path);
    if !found.is_file() && !is_stdin(path) && !is_open_pipe() {
        return Err(failed("it is no file".into()));
    }
    std::fs::File::open(path).map_err(|error| failed(error.to_string()))
}

/// Whether the path names a descriptor of this process.
fn is_descriptor(path: &Path) -> bool {
    let is_number =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|it| it.parse::<u32>().is_ok());
    let directories = ["/dev/fd", "/proc/self/fd"];
    let is_there = |parent: &Path| directories.iter().any(|it| parent == Path::new(it));
    path.parent().is_some_and(is_there) && path.file_name().is_some_and(is_number)
}

/// Whether the path names standard input, which may be a pipe.
fn is_stdin(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|it| path == Path::new(it))
}
