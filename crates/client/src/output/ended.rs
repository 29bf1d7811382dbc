//! What is said of a job that has ended, beside its exit code.

use tutti_node::say::failure;
use tutti_types::{EndReason, Outcome, StepId, StepKey};
use tutti_wire::report::JobReport;

/// Says what is known of its tasks, and why it ended unless they say it.
pub fn say_how(report: &JobReport, outcome: Outcome) {
    say_how_step(StepId::FIRST, report, outcome);
}

/// As [`say_how`], of a step: the report is its own.
pub fn say_how_step(step: StepId, report: &JobReport, outcome: Outcome) {
    let marked = |text: &str| report.code.map_or(text.to_owned(), |code| code.mark(text));
    say(("tutti", &marked), step, report, outcome);
}

/// As [`say_how_step`], in the name of `srun`.
pub fn say_how_as_srun(step: StepId, report: &JobReport, outcome: Outcome) {
    say(("srun: error", &str::to_owned), step, report, outcome);
}

/// `by`: how a line begins, and what is made of its text.
fn say(
    (name, marked): (&str, &dyn Fn(&str) -> String),
    step: StepId,
    report: &JobReport,
    outcome: Outcome,
) {
    let says_why = match outcome.reason {
        EndReason::Completed | EndReason::TaskFailed => false,
        EndReason::Cancelled
        | EndReason::TimedOut
        | EndReason::OutOfMemory
        | EndReason::FrontEndLost
        | EndReason::NodeLost(_)
        | EndReason::ShutDown
        | EndReason::Declined
        | EndReason::Requeued { .. }
        | EndReason::NeverAfter(_) => true,
    };
    for line in report.detail.lines() {
        match says_why {
            true => say!("{name}: {line}"),
            false => failure(format_args!("{name}: {}", marked(line))),
        }
    }
    if says_why {
        let key = StepKey { job: report.job, step };
        let text = marked(&format!("job {key} ended: {}", report.reason));
        failure(format_args!("{name}: {text}"));
    }
}
