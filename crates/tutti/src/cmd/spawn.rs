//! `tutti spawn`: a program starts further tasks in its job, and goes on.
//!
//! The front end of the step is a process of its own (`tutti run`), which stays behind, and says
//! here which step was accepted. A program reads that from standard output, to its end. So what the
//! tasks print goes to standard error, or to a file. The front end is a process of the task that
//! spawns, and ends with it.

use anyhow::Context;
use clap::Args;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use tutti_client::{count, memory, pattern_parser};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::link::Link;
use tutti_wire::code::Code;
use tutti_wire::spawn::SpawnAnswer;

const EXAMPLES: &str = "\
Examples:
  tutti spawn -n 4 ./worker    in a job: four tasks in its free slots; prints 1
  tutti signal USR1 --step 1   send them a signal
  tutti cancel --step 1        end them
  tutti wait --step 1          wait for them; exit with their highest code

Where too few slots are free, nothing starts, and the exit code is 120. `tutti run \
--max-tasks` and `tutti batch -n` have slots beyond the tasks that they begin with. What is \
spawned may fail: the job goes on. It ends with the step that has spawned it: wait for it. \
What it prints goes to standard error, or to the file of -o.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SpawnArgs {
    /// Number of tasks
    #[arg(short = 'n', long = "tasks", value_name = "N", default_value = "1", value_parser = count)]
    tasks: u32,

    /// Maximum memory of each task, such as 512M or 4G
    #[arg(short = 'm', long = "memory", value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,

    /// Name of the step [default: the program's name]
    #[arg(short = 'J', long, value_name = "NAME")]
    name: Option<OsString>,

    /// Working directory of the tasks [default: this one]
    #[arg(short = 'D', long, value_name = "DIR")]
    directory: Option<OsString>,

    /// File for standard output, and for standard error without --error
    /// [default: standard error]
    #[arg(short = 'o', long, value_name = "PATTERN", value_parser = pattern_parser())]
    output: Option<OsString>,

    /// File for standard error
    #[arg(short = 'e', long, value_name = "PATTERN", value_parser = pattern_parser())]
    error: Option<OsString>,

    /// Share processors with other tasks of the job: take no free slots
    #[arg(long)]
    overlap: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl SpawnArgs {
    /// The `tutti run` that is the step's front end.
    fn front(&self) -> anyhow::Result<Command> {
        let mut front = Command::new(std::env::current_exe()?);
        front.args(["run", "--only-step", "--spawned", "--keep-going"]);
        front.arg("-n").arg(self.tasks.to_string());
        let memory = self.memory.map(|bytes| OsString::from(bytes.to_string()));
        let options = [("-m", memory), ("-J", self.name.clone()), ("-D", self.directory.clone())];
        let files = [("-o", self.output.clone()), ("-e", self.error.clone())];
        for (option, value) in options.into_iter().chain(files) {
            if let Some(value) = value {
                front.arg(option).arg(value);
            }
        }
        front.args(self.overlap.then_some("--overlap")).arg("--").args(&self.command);
        Ok(front)
    }
}

pub(crate) fn execute(args: &SpawnArgs) -> anyhow::Result<Exit> {
    if std::env::var_os("TUTTI_JOB").is_none() {
        let reason = "spawn starts tasks in the job that it runs in, and this is no job: \
                      start one with `tutti run` or `tutti batch`";
        return Err(coded(Code::CannotUnderstand, reason));
    }
    let (ours, theirs) = UnixStream::pair()?;
    let mut front = args.front()?;
    // What is sent to the process group of the program is not meant for it.
    front.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    let mut said = None;
    match args.output.is_some() {
        // A program may wait for the end of all that is written here. So what the front end says is
        // read until it has told of the step.
        true => {
            let (ours, theirs) = std::io::pipe()?;
            said = Some(ours);
            front.stdout(Stdio::null()).stderr(theirs);
        }
        false => drop(front.stdout(std::io::stderr().as_fd().try_clone_to_owned()?)),
    }
    let mut child = front.spawn().context("cannot start the front end of the step")?;
    drop(front);
    let mut link = Link::new(ours)?;
    if let Ok(SpawnAnswer::Started { step }) = link.call() {
        tutti_client::output::print(&format!("{step}\n"))?;
        return Ok(Exit::OK);
    }
    if let Some(mut said) = said {
        std::io::copy(&mut said, &mut std::io::stderr())?;
    }
    let ended = child.wait()?;
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    Ok(code.map_or(Exit::TUTTI_FAILED, Exit::of_job))
}
