//! Verbs that change jobs in line: `class`, `hold`, `release`.

use super::job_range::{Several, targets_of, whole_jobs};
use super::jobs::each;
use super::submit::order;
use clap::Args;
use tutti_node::exit::Exit;
use tutti_types::ClassName;
use tutti_wire::local::Request;

const CLASS_EXAMPLES: &str = "\
Examples:
  tutti class 7 standby        job 7 is of class standby from now on
  tutti class 3-9 interactive  jobs 3 to 9; `tutti params` lists the classes";

#[derive(Args, Debug)]
#[command(after_help = CLASS_EXAMPLES)]
pub(crate) struct ClassArgs {
    /// Jobs or ranges of jobs: 7, 3-9
    #[arg(required = true, value_name = "JOB", value_parser = whole_jobs)]
    jobs: Vec<Several>,

    /// The class that they get
    #[arg(value_name = "CLASS")]
    class: String,
}

pub(crate) fn class(args: &ClassArgs) -> anyhow::Result<Exit> {
    let class = ClassName::new(&args.class);
    each(&targets_of(&args.jobs, false)?, |target| {
        order(&Request::SetJobClass { job: target.job, class: class.clone() })
    })
}

/// What `hold --help` ends with.
pub(super) const HOLD_EXAMPLES: &str = "\
Examples:
  tutti hold 7                 job 7 does not begin until it is released
  tutti hold 3-9               those of jobs 3 to 9 that wait";

/// What `release --help` ends with.
pub(super) const RELEASE_EXAMPLES: &str = "\
Examples:
  tutti release 7              job 7 has its place in line again
  tutti release 3-9            jobs 3 to 9";

#[derive(Args, Debug)]
pub(crate) struct JobsArgs {
    /// Jobs or ranges of jobs: 7, 3-9
    #[arg(required = true, value_name = "JOB", value_parser = whole_jobs)]
    jobs: Vec<Several>,
}

pub(crate) fn hold(args: &JobsArgs) -> anyhow::Result<Exit> {
    each(&targets_of(&args.jobs, false)?, |target| order(&Request::Hold { job: target.job }))
}

pub(crate) fn release(args: &JobsArgs) -> anyhow::Result<Exit> {
    each(&targets_of(&args.jobs, false)?, |target| order(&Request::Release { job: target.job }))
}
