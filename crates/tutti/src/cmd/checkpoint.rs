//! `tutti checkpoint`: jobs save their state, and wait in line to resume.

use super::job_range::{Several, targets_of, whole_jobs};
use super::jobs::each;
use clap::Args;
use tutti_client::ask::{ask, unexpected};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::say;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::local::{CheckpointEnd, CheckpointWish, Reply, Request};

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  tutti checkpoint 7           job 7 saves its state, ends and waits in line
  tutti checkpoint --force 7   end it after its grace, whether or not it has
  tutti checkpoint --hold 7    it waits until `tutti release 7`
  tutti checkpoint --keep-running 7    it saves its state and goes on

The job names its way at its submission. With --checkpoint, CRIU saves its processes to an image, \
and its next run is restored from that. With --checkpoint-signal, its tasks get the signal, and \
have --checkpoint-grace to end; then the job is queued again, and its next run finds \
TUTTI_RESUMES. A job that is not saved goes on as it was: the exit code is 1.";

#[derive(Args, Debug)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct CheckpointArgs {
    /// Jobs that run, or ranges of jobs: 7, 3-9
    #[arg(required = true, value_name = "JOB", value_parser = whole_jobs)]
    jobs: Vec<Several>,

    /// End jobs that have not ended when their grace is over, and queue them again
    #[arg(long)]
    force: bool,

    /// Hold the jobs until they are released
    #[arg(long)]
    hold: bool,

    /// Have the jobs save their state and go on; nothing is waited for
    #[arg(long, conflicts_with_all = ["force", "hold"])]
    keep_running: bool,

    /// Return at once, as soon as the jobs are asked
    #[arg(long)]
    no_wait: bool,
}

pub(crate) fn execute(args: &CheckpointArgs) -> anyhow::Result<Exit> {
    let order = match args.keep_running {
        true => CheckpointWish::GoOn,
        false => CheckpointWish::End { force: args.force, hold: args.hold },
    };
    let mut asked = Vec::new();
    let exit = each(&targets_of(&args.jobs, false)?, |target| {
        match ask(&Request::Checkpoint { job: target.job, order })? {
            Reply::Asked { jobs } => asked.extend(jobs),
            _ => return unexpected(),
        }
        Ok(())
    })?;
    if args.keep_running || args.no_wait {
        return Ok(exit);
    }
    // All are asked by now: their graces pass at the same time.
    let done = each(&asked, |&job| await_end(job))?;
    Ok(if exit == Exit::OK { done } else { exit })
}

/// Waits until it is known what became of a job that was asked to save its state and end.
fn await_end(job: JobId) -> anyhow::Result<()> {
    let (end, why) = match ask(&Request::AwaitCheckpoint { job })? {
        Reply::Checkpointed { end, why, .. } => (end, why),
        Reply::Ended { .. } => {
            say!("tutti: job {job} has ended meanwhile; `tutti history {job}` shows how");
            return Ok(());
        }
        _ => return unexpected(),
    };
    match end {
        CheckpointEnd::Saved => say!("tutti: job {job} has saved its state, and is queued again"),
        CheckpointEnd::Forced => {
            say!("tutti: job {job} did not end within its grace: it was ended, and is queued again")
        }
        CheckpointEnd::Unanswered => {
            let reason = format!(
                "job {job} did not end within its grace, and goes on as it was; --force ends it"
            );
            return Err(coded(Code::NotInThatState, reason));
        }
        CheckpointEnd::Died => {
            let reason = format!(
                "a task of job {job} died of the signal, so nothing was saved; the job is queued \
                 again"
            );
            return Err(coded(Code::NotInThatState, reason));
        }
        CheckpointEnd::NotSaved => {
            let reason = format!("job {job} could not be saved, and goes on: {why}");
            return Err(coded(Code::NotSaved, reason));
        }
        CheckpointEnd::NotRestored => {
            let reason = format!(
                "job {job} could not be restored, and is held: {why}; `tutti release {job}` tries \
                 again, `tutti requeue --from-start {job}` starts anew"
            );
            return Err(coded(Code::NotRestored, reason));
        }
        CheckpointEnd::Damaged => {
            let reason = format!(
                "job {job} could not be saved: {why}; its processes may be damaged by that and were \
                 ended, and it is queued again to go on from its earlier image"
            );
            return Err(coded(Code::NotSaved, reason));
        }
        CheckpointEnd::Unknown => {
            let reason = format!(
                "it is not known whether job {job} has saved its state, since its run has ended \
                 otherwise; `tutti show {job}` shows how it goes on"
            );
            return Err(coded(Code::NotInThatState, reason));
        }
    }
    Ok(())
}
