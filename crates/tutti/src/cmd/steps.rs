//! Orders about a step of a job: `--step` of `cancel`, `signal` and `wait`.

use super::job_range::{Several, targets_of};
use super::show::ask_to_show;
use super::submit::order;
use clap::Args;
use std::time::Duration;
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::say;
use tutti_types::{JobId, StepId, StepKey};
use tutti_wire::code::Code;
use tutti_wire::local::Request;

/// How often it is looked whether a step has ended that is waited for.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub(crate) struct StepOption {
    /// Only step N of the job, as `tutti show` and `tutti spawn` number them [default job inside a
    /// job: that one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    step: Option<u32>,
}

impl StepOption {
    /// The step that is meant, if one is.
    ///
    /// # Errors
    /// If not one whole job is named, and this is no job.
    pub(super) fn key(&self, targets: &[Several]) -> anyhow::Result<Option<StepKey>> {
        let Some(step) = self.step else { return Ok(None) };
        let job = match targets {
            [] => std::env::var("TUTTI_JOB").ok().and_then(|job| job.parse().ok()).map(JobId),
            _ => match targets_of(targets, false)?[..] {
                [target] if target == target.job.into() => Some(target.job),
                _ => None,
            },
        };
        let Some(job) = job else {
            let reason = "--step is about a step of one job; name the job, such as 7";
            return Err(coded(Code::CannotUnderstand, reason));
        };
        Ok(Some(StepKey { job, step: StepId(step) }))
    }
}

/// Ends a step.
pub(super) fn cancel(key: StepKey, at_once: bool) -> anyhow::Result<Exit> {
    order(&Request::CancelStep { key, at_once })?;
    Ok(Exit::OK)
}

/// Sends a signal to the process groups that the tasks of a step began with.
pub(super) fn signal(key: StepKey, signal: u8) -> anyhow::Result<Exit> {
    order(&Request::SignalStep { key, signal })?;
    Ok(Exit::OK)
}

/// Waits for the end of a step; its exit code.
pub(super) fn end_of(key: StepKey) -> anyhow::Result<Exit> {
    loop {
        let shown = ask_to_show(key.job, false)?;
        if shown.details.is_none() {
            let reason = format!("only its owner sees the steps of job {}", key.job);
            return Err(coded(Code::NotAllowed, reason));
        }
        let Some(step) = shown.steps.iter().find(|it| it.step == key.step.0) else {
            let reason = format!(
                "job {} has no step {}, or it ended long ago; `tutti show {0}` lists them",
                key.job, key.step
            );
            return Err(coded(Code::NoJob, reason));
        };
        if let Some(code) = step.exit_code {
            if code != 0 {
                say!("tutti: job {key} ended: {}", step.reason);
            }
            return Ok(Exit::of_job(code));
        }
        std::thread::sleep(LOOK);
    }
}
