//! `tutti run`.

use clap::Args;
use std::ffi::OsString;
use tutti_client::{
    self, FILE_LETTERS, JobOptions, OutputOptions, RunOptions, job_request, parse_input,
    pattern_parser,
};
use tutti_node::codes::coded;
use tutti_node::exit::{self, Exit};
use tutti_wire::code::Code;
use tutti_wire::launch::{InputTo, Stdio};
use tutti_wire::script::{self, LineProblem};

#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobOptions,

    /// Begin each line of output with its rank
    #[arg(short = 'l', long)]
    label: bool,

    /// Pass output on as it comes, even if lines of ranks get mixed
    #[arg(long, conflicts_with = "label")]
    raw: bool,

    /// Write output to a file (see below); errors go with it unless --error says where
    #[arg(short = 'o', long, value_name = "PATTERN", value_parser = pattern_parser())]
    output: Option<OsString>,

    /// Write standard error to a file
    #[arg(short = 'e', long, value_name = "PATTERN", value_parser = pattern_parser())]
    error: Option<OsString>,

    /// Which tasks get standard input: none, a rank, all (the slowest reader sets the pace), or tagged (each
    /// line begins with RANK:)
    #[arg(short = 'i', long, value_name = "TASKS", default_value = "0", value_parser = parse_input)]
    input: InputTo,

    /// Say in the end what the job used, in a line on standard error
    #[arg(long)]
    summary: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn after_help() -> String {
    format!("{FILE_LETTERS}\n\n{}", exit::TABLE)
}

impl RunArgs {
    /// What no option alone can know.
    ///
    /// # Errors
    /// If input is for a rank that the job has not.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        let Ok(tasks) = self.job.tasks() else { return Ok(()) };
        match self.input {
            InputTo::Rank(rank) if rank >= tasks => Err(clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                match tasks {
                    1 => format!("--input {rank}: a job of one task has rank 0 only"),
                    n => format!("--input {rank}: {n} tasks have the ranks 0 to {}", n - 1),
                },
            )),
            _ => Ok(()),
        }
    }
}

/// The program's name if it is a script, named by its path, that was written for `submit`.
///
/// # Errors
/// If the kernel can't find the script's interpreter because of the way its first line ends.
fn script_with_options(program: &OsString) -> anyhow::Result<Option<String>> {
    let Some((name, head)) = script_head(program) else { return Ok(None) };
    let first = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if first.ends_with(b"\r") {
        let reason = format!("{name}: line 1: {}", LineProblem::CarriageReturn);
        return Err(coded(Code::BadScript, reason));
    }
    let has_options = script::parse(&head)
        .is_ok_and(|script| !script.directives.is_empty() || !script.problems.is_empty());
    Ok(has_options.then(|| name.to_owned()))
}

/// The name and the first bytes of a script that is named by its path.
fn script_head(program: &OsString) -> Option<(&str, Vec<u8>)> {
    use std::io::Read;
    // Every launch pays for this look.
    let name = program.to_str().filter(|name| name.contains('/'))?;
    if !std::fs::metadata(name).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut head = [0; 4096];
    let count = std::fs::File::open(name).and_then(|mut file| file.read(&mut head)).ok()?;
    script::is_script(&head).then(|| (name, head[..count].to_vec()))
}

pub(crate) fn execute(args: RunArgs) -> anyhow::Result<Exit> {
    if let Some(script) = script_with_options(&args.command[0])? {
        say!("tutti: run does not heed the #TUTTI and #SBATCH lines of {script}; submit does");
    }
    let stdio = Stdio::FrontEnd { input: args.input };
    let request = job_request(&args.job, "interactive", &args.command, None, stdio)?;
    let output =
        OutputOptions { label: args.label, raw: args.raw, output: args.output, error: args.error };
    tutti_client::run(request, RunOptions { output, input: args.input, summary: args.summary })
}
