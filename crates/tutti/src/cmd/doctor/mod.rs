//! `tutti doctor`: what works for the jobs of this user, what does not, and what can be done about
//! it.
//!
//! Where an instance runs, its agents say what they can do. Where none runs, it is what an instance
//! started here and now would have.

mod cluster;
mod finding;
mod instance;
mod node;
mod render;
mod site;

use clap::Args;
use finding::{Diagnosis, Verdict};
use instance::Asked;
use node::Node;
use std::time::Duration;
use tutti_client::output::colours::on_stdout;
use tutti_client::output::{print, print_json, terminal_width};
use tutti_client::patience::give_up_after;
use tutti_node::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tutti doctor                 what does not work here, and how to fix it
  tutti doctor -v              all findings
  tutti doctor --cluster       whether every daemon of every node is alive
  tutti doctor --leftovers     what dead instances have left on this machine";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// Show all findings, and how each was found
    #[arg(short, long, conflicts_with_all = ["json", "leftovers"])]
    verbose: bool,

    /// Ask every daemon of every node for a sign of life
    #[arg(long, conflicts_with_all = ["verbose", "leftovers"])]
    cluster: bool,

    /// Show what dead instances have left: cgroups, directories, processes; also unused shared
    /// memory, message queues and semaphores
    #[arg(long)]
    leftovers: bool,

    /// Remove the leftovers that are certainly of dead instances
    #[arg(long, requires = "leftovers")]
    remove: bool,
}

/// How long the instance may take for an answer: one that hangs is named, not waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

pub(crate) fn execute(args: &DoctorArgs) -> anyhow::Result<Exit> {
    if args.leftovers {
        return super::leftovers::execute(args.remove, args.json);
    }
    give_up_after(ANSWERS_WITHIN);
    if args.cluster {
        return cluster::execute(args.json);
    }
    let diagnosis = diagnose();
    if args.json {
        print_json(&diagnosis)?;
    } else {
        let width = terminal_width();
        print(&render::render(&diagnosis, args.verbose, width, on_stdout()))?;
    }
    Ok(if diagnosis.verdict == Verdict::Bad { Exit::FAILED } else { Exit::OK })
}

fn diagnose() -> Diagnosis {
    let Asked { status, mut findings, is_running } = instance::ask_it();
    match &status {
        Some(status) => {
            let several = status.agents.len() > 1;
            for agent in &status.agents {
                findings
                    .extend(Node { status: agent, private: status.private, several }.findings());
            }
        }
        // What another machine's instance has is not ours to know.
        None if is_running => {}
        None => {
            let status = site::what_an_instance_here_would_get();
            let private = status.uid != 0;
            findings.extend(Node { status: &status, private, several: false }.findings());
        }
    }
    findings.extend(site::on_request());
    findings.extend(site::mpi());
    findings.push(site::pvm());
    findings.push(site::criu());
    Diagnosis::of(findings, is_running)
}
