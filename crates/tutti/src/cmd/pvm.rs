//! `tutti pvm`, and the processes that it starts.

use clap::Args;
use std::ffi::OsString;
use std::path::Path;
use tutti_client::JobOptions;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PvmArgs {
    #[command(flatten)]
    job: JobOptions,

    /// The program and its arguments: it has one slot, and spawns tasks in the others
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tutti pvm -n 9 ./master           a program that spawns eight tasks
  tutti pvm -n 4 -t 1h ./spmd       with a time limit
  tutti pvm -n 4 pvm                PVM's console";

/// Arguments of the resource manager.
#[derive(Args, Debug)]
pub(crate) struct ManagerArgs {
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// Arguments of the process that becomes PVM's daemon.
#[derive(Args, Debug)]
pub(crate) struct DaemonArgs {
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Arguments of the process that has PVM's daemon on another node.
#[derive(Args, Debug)]
pub(crate) struct NodeArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs the resource manager beside a job of the options.
pub(crate) fn execute(args: PvmArgs) -> anyhow::Result<Exit> {
    if tutti_pvm::find_daemon().is_none() {
        return Err(coded(Code::BadValue, tutti_pvm::NOT_INSTALLED));
    }
    let given: Vec<OsString> = std::env::args_os().skip(2).collect();
    let count = given.len().saturating_sub(args.command.len());
    let mut options = given[..count].to_vec();
    options.retain(|word| word != "--");
    // Tasks of a virtual machine end one by one: none takes the others with it.
    let says = args.job.on_rank_failure.is_some();
    if !args.job.kill_on_bad_exit && !args.job.keep_going && !says {
        options.push("--keep-going".into());
    }
    let program = args.command.first().map(Path::new).and_then(Path::file_name);
    let name = program.unwrap_or_default().to_string_lossy().into_owned();
    let ours = std::env::current_exe()?.into_os_string();
    let mut command = vec![ours, "pvm-manager".into(), "--".into()];
    command.extend(args.command);
    super::alloc::alloc(&options, &args.job, (&name, super::alloc::Words::Tutti), &command)
}

/// The process that serves a virtual machine, beside its job.
pub(crate) fn manage(args: &ManagerArgs) -> anyhow::Result<Exit> {
    tutti_pvm::manage(&args.command)
}

/// The process that becomes PVM's daemon.
pub(crate) fn daemon(args: &DaemonArgs) -> anyhow::Result<Exit> {
    tutti_pvm::execute_daemon(&args.command)?;
    Ok(Exit::OK)
}

/// The process that has PVM's daemon on another node of a job.
pub(crate) fn serve_node(args: &NodeArgs) -> anyhow::Result<Exit> {
    tutti_pvm::serve_node(&args.words)?;
    Ok(Exit::OK)
}
