//! Verbs that change jobs in line: `class`, `limit`, `hold`, `release`, `move`.

use super::job_range::{Several, targets_of, whole_jobs};
use super::jobs::{each, order_elements, split_elements};
use super::submit::order;
use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::say;
use tutti_types::ClassName;
use tutti_wire::code::Code;
use tutti_wire::local::{ArrayOrder, BrokenPromise, LimitChange, Reply, Request};
use tutti_wire::units::{format_seconds, parse_duration};

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

const LIMIT_EXAMPLES: &str = "\
Examples:
  tutti limit 7 2h             job 7 may run for two hours in all
  tutti limit 7 +30m           half an hour more than before
  tutti limit 3-9 -10m         jobs 3 to 9: ten minutes less each
  tutti limit last none        my last job may run as long as it likes

The time is that of the job's own turns, what it has run included. Shorter limits \
are for owners, too, longer ones for administrators. Promised starts that a longer \
limit breaks are listed here, and shown to the owners of the jobs.";

#[derive(Args, Debug)]
#[command(after_help = LIMIT_EXAMPLES)]
pub(crate) struct LimitArgs {
    /// Jobs or ranges of jobs: 7, 3-9
    // A time behind them may begin with a minus.
    #[arg(required = true, value_name = "JOB", value_parser = whole_jobs, allow_hyphen_values = true)]
    jobs: Vec<Several>,

    /// The limit that they get: 2h, +30m, -10m or none
    #[arg(value_name = "TIME", value_parser = limit_change, allow_hyphen_values = true)]
    limit: LimitChange,
}

fn limit_change(text: &str) -> Result<LimitChange, String> {
    let of = |rest: &str| parse_duration(rest).map_err(|error| error.to_string());
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => Ok(LimitChange::Longer(of(more)?)),
        (_, Some(less)) => Ok(LimitChange::Shorter(of(less)?)),
        _ if text == "none" => Ok(LimitChange::To(None)),
        _ => Ok(LimitChange::To(Some(of(text)?))),
    }
}

pub(crate) fn limit(args: &LimitArgs) -> anyhow::Result<Exit> {
    each(&targets_of(&args.jobs, false)?, |target| {
        let request = Request::SetTimeLimit { job: target.job, limit: args.limit };
        let Reply::Moved { broken } = ask(&request)? else { return unexpected() };
        list_broken(broken, "the new limit has broken", "is");
        Ok(())
    })
}

/// Lists promises that an order breaks.
fn list_broken(broken: Vec<BrokenPromise>, breaks: &str, is: &str) {
    for BrokenPromise { job, user, promised_s, now_s } in broken {
        let promised = format_seconds(promised_s);
        let now = now_s
            .map_or("no start".to_owned(), |it| format!("a start within {}", format_seconds(it)));
        say!(
            "tutti: job {job} of {user} was promised a start within {promised}; {breaks} that, and \
             {now} {is} promised instead"
        );
    }
}

/// What `hold --help` ends with.
pub(super) const HOLD_EXAMPLES: &str = "\
Examples:
  tutti hold 7                 job 7 does not begin until it is released
  tutti hold 3-9               those of jobs 3 to 9 that wait
  tutti hold 7 '8_[10-20]'     an array, or elements of one: those that wait";

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
    let (elements, others) = split_elements(&args.jobs);
    let done = order_elements(&elements, ArrayOrder::Hold)?;
    let exit =
        each(&targets_of(&others, false)?, |target| order(&Request::Hold { job: target.job }))?;
    Ok(if exit == Exit::OK { done } else { exit })
}

pub(crate) fn release(args: &JobsArgs) -> anyhow::Result<Exit> {
    let (elements, others) = split_elements(&args.jobs);
    let done = order_elements(&elements, ArrayOrder::Release)?;
    let exit =
        each(&targets_of(&others, false)?, |target| order(&Request::Release { job: target.job }))?;
    Ok(if exit == Exit::OK { done } else { exit })
}

const REQUEUE_EXAMPLES: &str = "\
Examples:
  tutti requeue 7              job 7 is ended, and waits in line from the start
  tutti requeue --hold 7       and is held there until `tutti release 7`
  tutti requeue $TUTTI_JOB     in a script: once more, from what it saved
  tutti requeue --from-start 7    job 7 has an image, and is to start anew

Its tasks get SIGTERM, and SIGKILL after the grace. In its next run, TUTTI_RESTARTS \
is one more, and output is appended to its files.";

#[derive(Args, Debug)]
#[command(after_help = REQUEUE_EXAMPLES)]
pub(crate) struct RequeueArgs {
    /// Jobs that run, or ranges of jobs: 7, 3-9
    #[arg(required = true, value_name = "JOB", value_parser = whole_jobs)]
    jobs: Vec<Several>,

    /// Hold the jobs until they are released
    #[arg(long)]
    hold: bool,

    /// Drop the image of a job of --checkpoint, and start it anew, also one that is held in line
    #[arg(long)]
    from_start: bool,
}

pub(crate) fn requeue(args: &RequeueArgs) -> anyhow::Result<Exit> {
    each(&targets_of(&args.jobs, false)?, |target| {
        let (hold, anew) = (args.hold, args.from_start);
        order(&Request::Requeue { job: target.job, hold, anew })
    })
}

const MOVE_EXAMPLES: &str = "\
Examples:
  tutti move 7 --first            job 7 is the first in line
  tutti move 7 --before 3         job 7 comes just before job 3
  tutti move 7 --first --dry-run  only list the promises that this would break

The place stays until job 7 starts, also when job 3 has left the line, and over restarts. \
Promised starts that this breaks are listed here, and shown to the owners of the jobs. Deadlines \
that were accepted are kept.";

#[derive(Args, Debug)]
#[command(after_help = MOVE_EXAMPLES)]
#[command(group = clap::ArgGroup::new("place").required(true))]
pub(crate) struct MoveArgs {
    /// The job that is moved: 7, a name, or last
    #[arg(value_name = "JOB", value_parser = whole_jobs)]
    job: Several,

    /// Before all jobs in line
    #[arg(long, group = "place")]
    first: bool,

    /// Just before this job
    #[arg(long, value_name = "JOB", group = "place", value_parser = whole_jobs)]
    before: Option<Several>,

    /// Change nothing, and list the promises that the move would break
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn move_job(args: &MoveArgs) -> anyhow::Result<Exit> {
    let one = |several: &Several| match targets_of(std::slice::from_ref(several), false)?[..] {
        [target] => Ok(target.job),
        _ => Err(coded(Code::Improper, "several jobs are meant; move one at a time")),
    };
    let (job, dry_run) = (one(&args.job)?, args.dry_run);
    let before = args.before.as_ref().map(one).transpose()?;
    let Reply::Moved { broken } = ask(&Request::Move { job, before, dry_run })? else {
        return unexpected();
    };
    match dry_run {
        true => list_broken(broken, "the move would break", "would be"),
        false => list_broken(broken, "the move has broken", "is"),
    }
    Ok(Exit::OK)
}
