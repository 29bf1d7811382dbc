//! Verbs that act on jobs: `wait`, `cancel`, `signal`, `suspend`, `resume`.

use super::submit::order;
use super::{ask_until_answered, unexpected};
use crate::codes::code_of;
use crate::exit::Exit;
use crate::front::parse_signal;
use crate::output::ended;
use clap::Args;
use tutti_core::JobId;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::Target;

#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// The job's number
    #[arg(value_parser = job_number)]
    job: u64,
}

/// A job's number, as an argument.
///
/// # Errors
/// If it is none.
pub(super) fn job_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no job's number, such as 7"))
}

pub(crate) fn wait(args: &WaitArgs) -> anyhow::Result<Exit> {
    match ask_until_answered(&Request::Wait { job: JobId(args.job) })? {
        Reply::Ended { outcome, report, .. } => {
            ended::say_how(&report, outcome);
            Ok(Exit::of_job(outcome.exit_code))
        }
        _ => unexpected(),
    }
}

#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Kill at once, without SIGTERM and grace
    #[arg(long)]
    now: bool,

    /// Jobs, ranks of them, or processes with all below them: 7, 7.0, 7.0/1234
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
}

pub(crate) fn cancel(args: &CancelArgs) -> anyhow::Result<Exit> {
    each(&args.targets, |&target| order(&Request::Cancel { target, at_once: args.now }))
}

#[derive(Args, Debug)]
pub(crate) struct SignalArgs {
    /// Send it to every process, not only to the process groups that the tasks began with
    #[arg(long)]
    all: bool,

    /// The signal's name or number, such as TERM or 15
    signal: String,

    /// A job, a rank of it, or a process with all below it: 7, 7.0, 7.0/1234
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
}

pub(crate) fn signal(args: &SignalArgs) -> anyhow::Result<Exit> {
    let signal = parse_signal(&args.signal).map_err(anyhow::Error::msg)?;
    let every_process = args.all;
    each(&args.targets, |&target| order(&Request::Signal { target, signal, every_process }))
}

#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// A job, a rank of it, or a process with all below it: 7, 7.0, 7.0/1234
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
}

pub(crate) fn suspend(args: &TargetArgs) -> anyhow::Result<Exit> {
    each(&args.targets, |&target| order(&Request::Suspend { target }))
}

pub(crate) fn resume(args: &TargetArgs) -> anyhow::Result<Exit> {
    each(&args.targets, |&target| order(&Request::Resume { target }))
}

/// Does it for each, and goes on when one fails: the others are meant as well.
fn each<T>(all: &[T], mut act: impl FnMut(&T) -> anyhow::Result<()>) -> anyhow::Result<Exit> {
    let mut exit = Exit::OK;
    for one in all {
        if let Err(error) = act(one) {
            say!("tutti: {}", code_of(&error).mark(&format!("{error:#}")));
            exit = Exit::FAILED;
        }
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::parse_signal;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        assert_eq!(parse_signal("TERM").unwrap(), 15);
        assert_eq!(parse_signal("sigusr1").unwrap(), 10);
        assert_eq!(parse_signal("9").unwrap(), 9);
        assert!(parse_signal("0").is_err() && parse_signal("NOPE").is_err());
    }
}
