//! The Slurm face: `sbatch`, `squeue` and others as names of the one executable.
//!
//! Each name reads its options as Slurm documents them ([`options`]), does what Tutti's verb does
//! ([`crate::cmd`]), and prints in Slurm's formats (`format`). Nothing here is a second way to do
//! something: a job of `sbatch` is a job of `tutti batch`. The texts are our own; options, formats,
//! states and exit codes follow Slurm's documentation.

mod accounts;
mod asked;
mod cluster;
mod format;
mod hosts;
mod jobs;
mod json;
mod links;
mod mpiexec;
mod multi_prog;
mod options;
mod sacct;
mod sbatch;
mod scancel;
mod scontrol;
mod sinfo;
mod squeue;
mod srun;
mod step_size;
mod steps;

pub(crate) use links::{check, ensure, link};

use std::ffi::OsString;
use tutti_client::output::print;
use tutti_node::codes::code_of;
use tutti_node::instance::Instance;
use tutti_node::presence::is_alive;
use tutti_wire::code::Code;

/// What `--version` says: the release of Slurm whose documentation the face follows.
pub(super) const VERSION: &str = "24.11.5";

/// A command of the face, by its name.
type Command = fn(&[OsString]) -> anyhow::Result<u8>;

const COMMANDS: [(&str, Command); 13] = [
    ("sbatch", sbatch::execute),
    ("srun", srun::srun),
    ("salloc", srun::salloc),
    ("squeue", squeue::execute),
    ("sacct", sacct::execute),
    ("scancel", scancel::execute),
    ("scontrol", scontrol::execute),
    ("sinfo", sinfo::execute),
    ("sacctmgr", accounts::sacctmgr),
    ("sshare", accounts::sshare),
    ("sstat", accounts::sstat),
    ("mpiexec", mpiexec::mpiexec),
    ("mpirun", mpiexec::mpirun),
];

/// The command whose name the executable was started by, and its arguments.
pub(crate) fn called() -> Option<(&'static str, Command, Vec<OsString>)> {
    let mut words = std::env::args_os();
    let first = words.next()?;
    let name = std::path::Path::new(&first).file_name()?.to_str()?;
    let (name, command) = COMMANDS.iter().find(|(known, _)| *known == name)?;
    Some((name, *command, words.collect()))
}

/// Does what a command says, and gives its exit code.
pub(crate) fn execute(name: &str, command: Command, words: &[OsString]) -> u8 {
    let result = tutti_node::instance::said_cluster().and_then(|_| command(words));
    result.unwrap_or_else(|error| {
        if crate::broken_pipe(&error) {
            return tutti_node::exit::Exit::READER_GONE.code();
        }
        say!("{name}: error: {error:#}");
        if is_out_of_reach(&error) {
            // Clients look for these words, and ask again later.
            say!("{name}: error: Unable to contact slurm controller (connect failure)");
        }
        1
    })
}

/// Says what is wrong with a command line; the exit code.
fn wrong(name: &str, problems: &[String]) -> u8 {
    // What no option is called is said as getopt_long says it.
    let is_of_getopt = |problem: &&String| options::GETOPT.iter().any(|it| problem.starts_with(it));
    for problem in problems {
        match is_of_getopt(&problem) {
            true => say!("{name}: {problem}"),
            false => say!("{name}: error: {problem}"),
        }
    }
    if problems.iter().any(|problem| is_of_getopt(&problem)) {
        if name != "sacct" {
            say!("Try \"{name} --help\" for more information");
        }
        let starts_jobs = ["sbatch", "srun", "salloc"].contains(&name);
        return if starts_jobs { 255 } else { 1 };
    }
    1
}

/// Prints the version.
fn print_version() -> anyhow::Result<u8> {
    print(&format!("slurm {VERSION}\n"))?;
    Ok(0)
}

/// Whether no instance runs: then there are no jobs. Where a part of one is alive and its
/// controller is not, jobs may run, and clients must not take them for ended.
fn has_no_instance(error: &anyhow::Error) -> bool {
    code_of(error) == Code::NoInstance && !Instance::of_this_user().iter().any(is_alive)
}

/// Whether a controller is out of reach.
fn is_out_of_reach(error: &anyhow::Error) -> bool {
    matches!(code_of(error), Code::NoInstance | Code::ControllerAway)
}

/// What a node has by its features: those that it was found to have, and its sets.
fn features(node: &tutti_wire::report::NodeReport) -> String {
    node.sets.iter().chain(&node.features).map(String::as_str).collect::<Vec<_>>().join(",")
}

/// A text, or Slurm's word for none.
fn or_null(text: String) -> String {
    if text.is_empty() { "(null)".into() } else { text }
}

/// The file of a job's output or errors: filled in, unless each task or node has its own.
fn files(
    report: &tutti_wire::report::JobReport,
    details: &tutti_wire::show::JobDetails,
    is_output: bool,
) -> String {
    use tutti_wire::launch::Stdio;
    let name = match &details.stdio {
        Stdio::Files { output, .. } if is_output => output,
        Stdio::Files { output, error, .. } => error.as_ref().unwrap_or(output),
        Stdio::FrontEnd { .. } | Stdio::Kept => return "(null)".into(),
    };
    tutti_node::output_files::file_name(name, report, details)
}
