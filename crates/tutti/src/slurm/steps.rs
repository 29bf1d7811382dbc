//! Steps of jobs as Slurm numbers them.
//!
//! A batch script is the step `batch`, and the first `srun` in it is step 0. In a job without a
//! script, its first tasks are step 0. Tutti counts the script, too
//! ([`FirstStep::number_after_script`](tutti_types::FirstStep::number_after_script)).

use super::jobs::{self, Job, Named, State};
use crate::cmd::job_range::find_elements;
use std::fmt;
use tutti_types::{EndReason, FirstStep, JobId, StepId};
use tutti_wire::show::StepReport;

/// A step in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StepName {
    Batch,
    Number(u32),
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => "batch".fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl StepName {
    fn of(text: &str) -> Option<Self> {
        match text {
            "batch" => Some(Self::Batch),
            number => number.parse().ok().map(Self::Number),
        }
    }

    fn of_id(job: &Job, id: u32) -> Self {
        first_of(job).number_after_script(StepId(id)).map_or(Self::Batch, Self::Number)
    }

    /// Tutti's number of the step; `None` if its job has no such step.
    pub(super) fn id(self, job: &Job) -> Option<StepId> {
        match (self, job.is_batch()) {
            (Self::Batch, true) => Some(StepId::FIRST),
            (Self::Batch, false) => None,
            (Self::Number(number), true) => number.checked_add(1).map(StepId),
            (Self::Number(number), false) => Some(StepId(number)),
        }
    }
}

/// What a job starts with, as far as the numbers of its steps depend on it.
fn first_of(job: &Job) -> FirstStep {
    if job.is_batch() { FirstStep::Once } else { FirstStep::EachSlot }
}

/// A job or one of its steps, as an argument names it: `7`, `7.0`, `7_3.batch`.
#[derive(Clone, Debug)]
pub(super) struct NamedStep {
    pub(super) jobs: Named,
    /// `None`: all.
    pub(super) step: Option<StepName>,
}

impl NamedStep {
    pub(super) fn of(text: &str) -> Option<Self> {
        let (jobs, step) = match text.split_once('.') {
            Some((jobs, step)) => (jobs, Some(StepName::of(step)?)),
            None => (text, None),
        };
        Some(Self { jobs: Named::of(jobs)?, step })
    }

    /// The numbers of the jobs that have it.
    ///
    /// # Errors
    /// If there is no such array.
    pub(super) fn jobs(&self) -> anyhow::Result<Vec<JobId>> {
        match &self.jobs.indices {
            None => Ok(vec![self.jobs.job]),
            Some(indices) => {
                let found = find_elements(self.jobs.job, Some(indices.clone()))?;
                Ok(found.jobs.into_iter().map(|(_, job)| job).collect())
            }
        }
    }

    pub(super) fn has(&self, step: &Step<'_>) -> bool {
        self.jobs.has(step.job) && self.step.is_none_or(|name| name == step.name)
    }
}

/// A step that runs, or has ended.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) job: &'a Job,
    pub(super) name: StepName,
    pub(super) further: Option<&'a StepReport>,
}

impl<'a> Step<'a> {
    /// A further step of a job.
    pub(super) fn further(job: &'a Job, step: &'a StepReport) -> Self {
        Self { job, name: StepName::of_id(job, step.step), further: Some(step) }
    }

    /// What a job began with.
    pub(super) fn first(job: &'a Job) -> Self {
        Self { job, name: StepName::of_id(job, StepId::FIRST.0), further: None }
    }

    /// As Slurm shows it: `7.0`, `7_3.batch`.
    pub(super) fn shown_id(&self) -> String {
        format!("{}.{}", self.job.shown_id(), self.name)
    }

    /// What it is called.
    pub(super) fn title(&self) -> &'a str {
        match self.further {
            Some(step) => &step.name,
            None if self.name == StepName::Batch => "batch",
            None => &self.job.report.name,
        }
    }

    pub(super) fn state(&self) -> State {
        match self.further {
            Some(step) if step.state == "ended" => state_of_ended(step),
            Some(step) if step.state == "ending" => State::Completing,
            _ => self.job.state,
        }
    }

    pub(super) fn tasks(&self) -> u32 {
        self.further.map_or(self.job.report.tasks, |step| step.tasks)
    }

    /// The names of its nodes.
    pub(super) fn nodes(&self) -> Vec<&'a str> {
        let Some(step) = self.further else {
            let all = self.job.nodes();
            return match self.name {
                StepName::Batch => all.into_iter().take(1).collect(),
                StepName::Number(_) => all,
            };
        };
        step.placement.iter().map(|it| it.split(':').next().unwrap_or(it)).collect()
    }

    /// How many processors it has.
    pub(super) fn processors(&self) -> u32 {
        let Some(step) = self.further else { return self.processors_of_first() };
        let numbers = |it: &String| {
            let list = it.split(':').nth(1)?.parse::<tutti_types::Indices>().ok()?;
            Some(list.count())
        };
        step.placement.iter().filter_map(numbers).fold(0, u32::saturating_add)
    }

    /// Those of what its job began with: a script has those of its node.
    fn processors_of_first(&self) -> u32 {
        let all = self.job.report.processors;
        if self.name != StepName::Batch {
            return all;
        }
        let place = self.job.report.placement.first().and_then(|it| it.split(':').nth(1));
        let share = self.job.details.as_ref().and_then(|details| details.nodes.first());
        let list = place.or_else(|| share.map(|share| share.processors.as_str()));
        let list = list.and_then(|list| list.parse::<tutti_types::Indices>().ok());
        list.map_or(all, |list| list.count().min(all))
    }

    /// How long ago it began, in milliseconds; for what its job began with, the time of its turns.
    pub(super) fn elapsed_ms(&self) -> u64 {
        match self.further {
            Some(step) => step.elapsed_ms.unwrap_or(0),
            None => self.job.report.service_ms,
        }
    }

    /// When it began, in milliseconds since 1970.
    pub(super) fn started_ms(&self) -> Option<u64> {
        match self.further {
            Some(step) => {
                step.elapsed_ms.map(|ms| tutti_node::platform::time::wall_ms().saturating_sub(ms))
            }
            None => self.job.started_ms,
        }
    }
}

/// How a further step ended.
fn state_of_ended(step: &StepReport) -> State {
    let is = |reason: EndReason| step.reason == reason.to_string();
    match step.exit_code {
        _ if is(EndReason::Cancelled) || is(EndReason::Requeued { hold: false }) => {
            State::Cancelled
        }
        _ if is(EndReason::TimedOut) => State::Timeout,
        _ if is(EndReason::OutOfMemory) => State::OutOfMemory,
        Some(0) => State::Completed,
        Some(121) => State::NodeFail,
        _ => State::Failed,
    }
}

/// Exit status and signal of a further step: `2:0`, `0:15`.
pub(super) fn exit_code(step: &StepReport) -> String {
    let state = state_of_ended(step);
    match step.exit_code {
        Some(_) if state == State::OutOfMemory => jobs::OUT_OF_MEMORY.into(),
        Some(code) if code <= 128 && matches!(state, State::Timeout | State::Cancelled) => {
            "0:15".into()
        }
        Some(code) if code > 128 => format!("0:{}", code - 128),
        code => format!("{}:0", code.unwrap_or(0)),
    }
}

/// The further steps of a job that have begun, in the order of their numbers.
pub(super) fn begun(job: &Job) -> impl Iterator<Item = &StepReport> {
    let mut all: Vec<&StepReport> =
        job.steps.iter().filter(|step| step.state != "waiting").collect();
    all.sort_by_key(|step| step.step);
    all.into_iter()
}

/// The steps of a job that run, the first one first.
pub(super) fn running(job: &Job) -> Vec<Step<'_>> {
    if job.state.has_ended() || job.started_ms.is_none() || job.state == State::Pending {
        return Vec::new();
    }
    let runs = |it: &&StepReport| ["running", "ending"].contains(&it.state.as_str());
    let further = job.steps.iter().filter(runs).map(|it| Step::further(job, it));
    std::iter::once(Step::first(job)).chain(further).collect()
}

/// The jobs that may have steps, with these.
///
/// # Errors
/// If the instance does not answer.
pub(super) fn with_steps(mut jobs: Vec<Job>) -> anyhow::Result<Vec<Job>> {
    jobs.retain(|job| !job.state.has_ended() && job.state != State::Pending);
    jobs::several(jobs.iter().map(Job::id))
}

#[cfg(test)]
mod tests {
    use super::{NamedStep, StepName, exit_code};
    use tutti_types::EndReason;
    use tutti_wire::show::StepReport;

    #[test]
    fn a_step_that_a_limit_ended_has_the_exit_code_that_slurm_gives_it() {
        let code = |reason: EndReason, code: u8| {
            exit_code(&StepReport {
                step: 1,
                name: "a".into(),
                tasks: 1,
                state: "ended".into(),
                reason: reason.to_string(),
                exit_code: Some(code),
                placement: Vec::new(),
                cpu_ms: 0,
                elapsed_ms: None,
            })
        };
        assert_eq!(code(EndReason::OutOfMemory, 123), "0:125");
        assert_eq!(code(EndReason::TimedOut, 122), "0:15");
        assert_eq!(code(EndReason::Completed, 3), "3:0");
        assert_eq!(code(EndReason::TaskFailed, 137), "0:9");
    }

    #[test]
    fn a_step_is_named_by_job_and_number() {
        let step = |text: &str| NamedStep::of(text).map(|it| (it.jobs.job.0, it.step));
        assert_eq!(step("7"), Some((7, None)));
        assert_eq!(step("7.batch"), Some((7, Some(StepName::Batch))));
        assert_eq!(step("7.0"), Some((7, Some(StepName::Number(0)))));
        assert_eq!(step("7_3.12"), Some((7, Some(StepName::Number(12)))));
        for text in ["7.", "7.x", "7.-1", ".0", "0.0", "7.1.2"] {
            assert_eq!(step(text), None, "{text}");
        }
    }
}
