//! `tutti logs`: the output of a submitted job, from its files, on whichever node they are.

mod lines;
mod shown;

pub(super) use shown::Shown;

use super::ask_journal;
use super::job_range::{Several, check_no_array, targets_of, whole_jobs};
use super::show::ask_to_show;
use clap::Args;
use shown::End;
use std::sync::mpsc::{Receiver, channel};
use tutti_client::ask::{ask_until_answered, unexpected};
use tutti_client::output::ended;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::output_files::{LogFile, Owner, Stream, files_of};
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::show::ShowReport;

/// Files of one job that are shown together.
const FILES_MAX: usize = 256;

const EXAMPLES: &str = "\
Examples:
  tutti logs 7                 what job 7 has written so far
  tutti logs -f last           follow your latest job until it ends
  tutti logs -n 20 --rank 3 7  the last 20 lines of rank 3
  tutti logs --err solver      standard error of your job of this name
  tutti logs --json 7          each line with the ranks that may have written it

With -f, the exit code is that of the job, as with `tutti wait`. Ctrl-C ends
`tutti logs` alone.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Follow: print what is written until the job has ended
    #[arg(short, long)]
    follow: bool,

    /// Only the file of this rank
    #[arg(short, long, value_name = "RANK")]
    rank: Option<u32>,

    /// Standard error instead of standard output
    #[arg(short, long)]
    err: bool,

    /// Begin with the last lines, at most this number
    #[arg(short = 'n', long, value_name = "LINES")]
    lines: Option<u64>,

    /// As JSON, an object in a line for each line of output
    #[arg(long)]
    json: bool,

    /// A job, the name of one of your jobs, or `last`
    #[arg(value_name = "JOB", value_parser = whole_jobs)]
    job: Several,
}

impl LogsArgs {
    /// Whether the exit code is that of a job.
    pub(crate) const fn follows(&self) -> bool {
        self.follow
    }

    /// Those that print what a job writes from now on.
    pub(super) const fn from_now_on(job: Several, rank: Option<u32>, json: bool) -> Self {
        Self { follow: true, rank, err: false, lines: Some(0), json, job }
    }
}

pub(crate) fn execute(args: &LogsArgs) -> anyhow::Result<Exit> {
    let targets = targets_of(std::slice::from_ref(&args.job), true)?;
    let [target] = targets[..] else {
        let reason = "logs shows one job at a time; name it by its number, such as 7";
        return Err(coded(Code::CannotUnderstand, reason));
    };
    let mut report = ask_to_show(target.job, false)?;
    check_no_array(&report.job)?;
    if args.follow && report.ended_ms.is_none() && report.started_ms.is_none() {
        wait_for_begin(&report)?;
        report = ask_to_show(target.job, false)?;
    }
    let stream = if args.err { Stream::Error } else { Stream::Output };
    let mut shown = open_all(&report, stream, args.rank, args.lines)?;
    if args.json {
        shown = shown.into_json();
    }
    if !args.follow {
        shown.print_all()?;
        return shown.exit();
    }
    let end = end_of(target.job);
    let (report, outcome) = shown.follow(&end)?;
    ended::say_how(&report, outcome);
    Ok(Exit::of_job(outcome.exit_code))
}

/// Waits until a task of the job has begun, or the job has ended without.
fn wait_for_begin(report: &ShowReport) -> anyhow::Result<()> {
    let job = report.job.job;
    let why = match report.job.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    say!("tutti: job {job} is {}{why}; waiting for its output", report.job.state);
    match ask_until_answered(&Request::WaitBegun { job })? {
        Reply::Done | Reply::Ended { .. } => Ok(()),
        _ => unexpected(),
    }
}

/// Waits for the end of the job in a thread.
fn end_of(job: JobId) -> Receiver<End> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let request = Request::Wait { job };
        let answer = ask_until_answered(&request).or_else(|error| ask_journal(&request, error));
        let end = answer.and_then(|reply| match reply {
            Reply::Ended { outcome, report, .. } => Ok((*report, outcome)),
            _ => unexpected(),
        });
        let _ = sender.send(end);
    });
    receiver
}

/// Finds the files of the job: of one rank, if that is given, from the last lines on.
pub(super) fn open_all(
    report: &ShowReport,
    stream: Stream,
    rank: Option<u32>,
    lines: Option<u64>,
) -> anyhow::Result<Shown> {
    let job = &report.job;
    let Some(details) = &report.details else {
        let reason = format!(
            "job {} belongs to {}, or an earlier release ran it; only its owner, or root, may see its output",
            job.job, job.user
        );
        return Err(coded(Code::NotAllowed, reason));
    };
    if report.ended_ms.is_none() && report.started_ms.is_none() {
        let reason = format!(
            "job {} is {}, and has no output yet; `tutti logs -f {0}` waits for it",
            job.job, job.state
        );
        return Err(coded(Code::NoOutput, reason));
    }
    let files = files_of(job, details, stream, rank)?;
    if files.len() > FILES_MAX {
        let reason = format!(
            "job {} has {} files; at most {FILES_MAX} are shown at once: choose one with --rank",
            job.job,
            files.len()
        );
        return Err(coded(Code::TooMuchAsked, reason));
    }
    if let (Some(rank), [LogFile { writers: (_, 2..), path, .. }]) = (rank, &files[..]) {
        say!(
            "tutti: rank {rank} has no file of its own: {} has lines of other ranks, too; submit with a name such as \
             -o %j-%r",
            path.display()
        );
    }
    Ok(Shown::new(job.job, stream, files, (lines, Owner::named(&job.user))))
}
