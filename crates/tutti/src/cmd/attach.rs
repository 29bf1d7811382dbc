//! `tutti attach`: the output of a running job, from now on, and input for it.

use super::job_range::{Several, check_no_array, targets_of, whole_jobs};
use super::logs::{self, LogsArgs};
use super::show::ask_to_show;
use clap::Args;
use tutti_client::ask::{ask_until_answered, unexpected};
use tutti_client::attach::{AttachOptions, Seen, attach};
use tutti_client::{Label, OutputOptions};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::Code;
use tutti_wire::launch::{InputTo, Stdio};
use tutti_wire::local::{Reply, Request};

const EXAMPLES: &str = "\
Examples:
  tutti attach 7              see what job 7 writes from now on
  tutti attach -l last        your latest job, each line with its rank
  tutti attach --rank 3 7     rank 3 alone
  tutti attach -i all solver  what you type goes to all ranks that get input
  tutti attach --panes 7      a pane for each rank

Ctrl-\\ (or Ctrl-C) detaches; the job goes on. Several can be attached at once, beside \
the job's own front end. A submitted job writes to files, which are followed as by \
`tutti logs -f`. The exit code is that of the job, and 0 after Ctrl-\\.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttachArgs {
    /// Show ranks: line (each line begins with its rank, the default), block (a line with the rank,
    /// then its lines) or json (an object for each line)
    #[arg(short, long, value_name = "HOW", value_parser = Label::parse, num_args = 0..=1)]
    #[arg(require_equals = true, default_missing_value = "line")]
    label: Option<Label>,

    /// See one rank alone
    #[arg(short, long, value_name = "RANK")]
    rank: Option<u32>,

    /// A pane for each rank, on a terminal; the focused one gets what you type; ^T ? lists keys
    #[arg(long, conflicts_with_all = ["label", "rank"])]
    panes: bool,

    /// Pass on what you type to ranks that get input: all, tagged (each line begins with its
    /// rank), or a rank
    #[arg(short, long, value_name = "RANKS", value_parser = tutti_client::parse_input)]
    input: Option<InputTo>,

    /// A job, the name of one of your jobs, or `last`
    #[arg(value_name = "JOB", value_parser = whole_jobs)]
    job: Several,
}

pub(crate) fn execute(args: AttachArgs) -> anyhow::Result<Exit> {
    let targets = targets_of(std::slice::from_ref(&args.job), false)?;
    let [target] = targets[..] else {
        let reason = "attach shows one job at a time; name it by its number, such as 7";
        return Err(coded(Code::CannotUnderstand, reason));
    };
    let job = target.job;
    let report = ask_to_show(job, false)?;
    check_no_array(&report.job)?;
    let Some(details) = &report.details else {
        let reason = format!(
            "job {job} belongs to {}; only its owner, or root, may see its output",
            report.job.user
        );
        return Err(coded(Code::NotAllowed, reason));
    };
    let is_to_front_end = matches!(details.stdio, Stdio::FrontEnd { .. });
    if report.ended_ms.is_some() {
        let reason = match is_to_front_end {
            true => format!("job {job} has ended, and its output went to its front end"),
            false => {
                format!("job {job} has ended; `tutti logs {job}` prints what it wrote to files")
            }
        };
        return Err(coded(Code::JobEnded, reason));
    }
    if !is_to_front_end && args.panes {
        let reason = format!(
            "job {job} writes to files, and --panes shows jobs of `tutti run`; `tutti logs -f {job}` \
             follows them"
        );
        return Err(coded(Code::Improper, reason));
    }
    if !is_to_front_end {
        if args.input.is_some() {
            let reason =
                format!("job {job} was submitted, and its tasks read no input from a terminal");
            return Err(coded(Code::Improper, reason));
        }
        let is_json = args.label == Some(Label::Json);
        if args.label.is_some() && !is_json {
            say!("tutti: job {job} writes to files; -l labels no lines of them");
        }
        return logs::execute(&LogsArgs::from_now_on(args.job, args.rank, is_json));
    }
    if let Some(rank) = args.rank.filter(|rank| *rank >= report.job.tasks) {
        let last = report.job.tasks.saturating_sub(1);
        let reason = format!("job {job} has no rank {rank}; its ranks are 0 to {last}");
        return Err(coded(Code::NoPart, reason));
    }
    if report.started_ms.is_none() {
        say!("tutti: job {job} is {}; waiting for its start", report.job.state);
        match ask_until_answered(&Request::WaitBegun { job })? {
            Reply::Done | Reply::Ended { .. } => {}
            _ => return unexpected(),
        }
    }
    let output =
        OutputOptions { label: args.label.unwrap_or_default(), ..OutputOptions::default() };
    let readers = match details.stdio {
        // Of those that are chosen here, none.
        Stdio::FrontEnd { .. } if args.input == Some(InputTo::Nobody) => InputTo::Nobody,
        Stdio::FrontEnd { input } => input,
        Stdio::Files { .. } | Stdio::Kept => InputTo::Nobody,
    };
    let input = match (args.input, readers) {
        (Some(input), _) => input,
        (None, InputTo::Rank(rank)) if args.panes => InputTo::Rank(rank),
        (None, _) => InputTo::Nobody,
    };
    let seen = Seen { job, name: report.job.name.clone(), tasks: report.job.tasks };
    attach(seen, AttachOptions { output, input, rank: args.rank, panes: args.panes, readers })
}
