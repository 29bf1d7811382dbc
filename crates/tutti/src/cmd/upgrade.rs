//! `tutti upgrade`, and what a supervisor that was upgraded to another executable goes on with.

mod all;

use crate::supervise::{self, Resumed};
use clap::Args;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tutti_client::output::print;
use tutti_node::codes::coded;
use tutti_node::executable::own_path;
use tutti_node::exit::Exit;
use tutti_node::instance::Instance;
use tutti_node::order;
use tutti_node::presence;
use tutti_node::state_dir::NotOurs;
use tutti_wire::code::Code;

const EXAMPLES: &str = "\
Examples:
  ./tutti upgrade                      to the executable that is run here
  tutti upgrade /opt/tutti/bin/tutti
  tutti upgrade --all                  at the head: all machines of the cluster";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    /// The new executable [default: the one that is run here]
    #[arg(value_name = "EXECUTABLE")]
    program: Option<PathBuf>,

    /// All machines of the cluster, one by one, until the first failure; at the head only, and with
    /// the executable at the same path on each machine
    #[arg(long)]
    all: bool,
}

pub(crate) fn execute(args: &UpgradeArgs) -> anyhow::Result<Exit> {
    let instance = Instance::locate();
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => own_path()?,
    };
    if args.all {
        return all::execute(&instance, &program);
    }
    let said = upgrade(&instance, &program)?;
    let directory = instance.directory().display();
    print(&format!("the instance in {directory} is upgraded to {} ({said})\n", program.display()))?;
    Ok(Exit::OK)
}

/// Has the instance of this machine upgrade; what its supervisor says.
pub(super) fn upgrade(instance: &Instance, program: &Path) -> anyhow::Result<String> {
    let directory = instance.directory().display();
    order::order(instance, program).map_err(|error| {
        match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            _ if error.is::<NotOurs>() => error,
            Some(ErrorKind::PermissionDenied) => coded(
                Code::NotAllowed,
                "only root and the owner of the instance may upgrade it",
            ),
            Some(ErrorKind::NotFound) if !presence::is_supervised(instance) => {
                coded(Code::NoInstance, format!("no instance runs in {directory}"))
            }
            Some(ErrorKind::NotFound) => coded(
                Code::NotUpgraded,
                format!(
                    "the instance in {directory} is of a release that can't; `tutti down` with that \
                     release and `tutti up` with this one change it, and end its jobs"
                ),
            ),
            _ => coded(Code::NotUpgraded, format!("{error:#}")),
        }
    })
}

#[derive(Args, Debug)]
pub(crate) struct SuperviseArgs {
    #[arg(long)]
    directory: PathBuf,
    #[arg(long)]
    lock: i32,
    #[arg(long)]
    log: Option<i32>,
    #[arg(long)]
    asker: i32,
    #[arg(long)]
    jobs: u32,
    #[arg(long, value_delimiter = ',', value_parser = daemon)]
    daemons: Vec<(String, i32)>,
}

fn daemon(text: &str) -> Result<(String, i32), String> {
    let (role, pid) = text.split_once('=').ok_or("a role and the number of its process")?;
    Ok((role.to_owned(), pid.parse().map_err(|_| "no number of a process")?))
}

pub(crate) fn supervise(args: SuperviseArgs) -> anyhow::Result<Exit> {
    let SuperviseArgs { directory, lock, log, asker, jobs, daemons } = args;
    supervise::resume(&Instance::at(directory), &Resumed { daemons, lock, log, asker, jobs })
}
