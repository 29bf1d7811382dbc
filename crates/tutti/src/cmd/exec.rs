//! `tutti exec`: a command beside a task of a running job.

use super::job_range::{Several, targets_of};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use tutti_client::{ExecOptions, exec};
use tutti_node::codes::coded;
use tutti_node::exit::{self, Exit};
use tutti_types::Rank;
use tutti_wire::code::Code;

const EXAMPLES: &str = "\
Examples:
  tutti exec --pty 7 bash              a shell beside rank 0 of job 7
  tutti exec 7 nvidia-smi              beside rank 0 of job 7
  tutti exec 7.3 cat /proc/loadavg     on the node of rank 3
  tutti exec last env                  the environment of your latest job
  tutti exec 7 sh -c 'cat > in' < in   with input

The command is a step of the job: it has the node, processors, limits and turns of that \
rank, and ends with the job. It finds the environment and directory of the rank. Only the \
owner of the job, and root, may do this; the command runs as the job's user.";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{}", exit::TABLE)
}

#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct ExecArgs {
    /// Give the command a terminal of its own, for shells and editors; `~.` at the beginning of a
    /// line ends it
    #[arg(long)]
    pty: bool,

    /// Set a variable of the command; NAME alone takes the value that it has here
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,

    /// Working directory of the command [default: that of the job]
    #[arg(short = 'D', long, value_name = "DIR")]
    directory: Option<OsString>,

    /// Leave standard input alone: the command finds its own empty
    #[arg(long, conflicts_with = "pty")]
    no_input: bool,

    /// A running job, or a rank of it: 7, 7.3, the name of one of your jobs, or `last`
    #[arg(value_name = "JOB[.RANK]")]
    target: Several,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl ExecArgs {
    /// A command beside rank 0 of a job, or the rank that is named.
    pub(crate) const fn beside(target: Several, command: Vec<OsString>) -> Self {
        let (pty, no_input) = (false, false);
        Self { pty, env: Vec::new(), directory: None, no_input, target, command }
    }

    /// With a terminal of its own.
    pub(crate) fn with_terminal(self, pty: bool) -> Self {
        Self { pty, ..self }
    }

    /// In this directory, if one is named.
    pub(crate) fn in_directory(self, directory: Option<OsString>) -> Self {
        Self { directory, ..self }
    }

    /// Without our input.
    pub(crate) fn without_input(self, no_input: bool) -> Self {
        Self { no_input, ..self }
    }
}

/// `NAME=value` of what `--env` says; nothing for a variable that is not set here.
fn variable(word: OsString) -> anyhow::Result<Option<OsString>> {
    let bytes = word.as_bytes();
    if bytes.is_empty() || bytes.starts_with(b"=") {
        let reason = "--env takes NAME or NAME=VALUE, such as --env EDITOR=vi";
        return Err(coded(Code::BadValue, reason));
    }
    if bytes.contains(&b'=') {
        return Ok(Some(word));
    }
    let value = std::env::var_os(&word);
    Ok(value.map(|value| OsString::from_vec([bytes, b"=", value.as_bytes()].concat())))
}

pub(crate) fn execute(args: ExecArgs) -> anyhow::Result<Exit> {
    let targets = targets_of(std::slice::from_ref(&args.target), false)?;
    let [target] = targets[..] else {
        let reason = "exec runs a command in one job; name it by its number, such as 7 or 7.3";
        return Err(coded(Code::CannotUnderstand, reason));
    };
    if target.pid.is_some() {
        let reason = format!("{target} is a process; name a job or a rank, such as {}", target.job);
        return Err(coded(Code::CannotUnderstand, reason));
    }
    let mut variables = args.env.into_iter().map(variable).collect::<anyhow::Result<Vec<_>>>()?;
    if args.pty && !variables.iter().flatten().any(|it| it.as_bytes().starts_with(b"TERM=")) {
        // That of the terminal in front of the user.
        variables.push(variable("TERM".into())?);
    }
    let directory = args.directory.map(std::path::absolute).transpose()?;
    exec(&ExecOptions {
        job: target.job,
        rank: target.rank.unwrap_or(Rank(0)),
        argv: args.command,
        variables: variables.into_iter().flatten().collect(),
        directory: directory.map(std::path::PathBuf::into_os_string),
        has_input: !args.no_input,
        terminal: args.pty,
    })
}
