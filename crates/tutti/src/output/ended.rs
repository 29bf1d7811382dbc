//! What is said of a job that has ended, beside its exit code.

use tutti_core::{EndReason, Outcome};
use tutti_wire::report::JobReport;

/// Says what is known of its tasks, and why it ended unless they say it.
pub(crate) fn say_how(report: &JobReport, outcome: Outcome) {
    for line in report.detail.lines() {
        say!("tutti: {line}");
    }
    match outcome.reason {
        EndReason::Completed | EndReason::TaskFailed => {}
        EndReason::Cancelled
        | EndReason::TimedOut
        | EndReason::OutOfMemory
        | EndReason::FrontEndLost
        | EndReason::NodeLost(_)
        | EndReason::ShutDown => say!("tutti: job {} ended: {}", report.job, report.reason),
    }
}
