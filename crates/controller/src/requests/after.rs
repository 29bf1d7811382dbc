//! The jobs that a job starts after: those that have ended are looked up here, since the core knows
//! only jobs that live.

use crate::driver::Driver;
use crate::error::Problem;
use crate::jobs::Entry;
use tutti_types::limits::AFTER_MAX;
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::{After, AfterJobs, AfterWhat, EndReason, JobId, Outcome};
use tutti_wire::code::Code;

/// What is left for a job to wait for of others, and the moment before which it does not begin.
pub(super) type Waits = (Option<AfterJobs>, Option<ClusterTime>);

impl Driver {
    /// What is left for a job to wait for, of what it asks; nothing if all is so already. And the
    /// moment at which jobs that have ended will have started long enough ago.
    ///
    /// # Errors
    /// If it can never be so.
    pub(super) fn jobs_before(
        &mut self,
        uid: u32,
        name: &str,
        asked: Option<AfterJobs>,
        singleton: bool,
    ) -> Result<Waits, Problem> {
        let mut after = asked.unwrap_or_default();
        if after.jobs.len() > AFTER_MAX {
            return Err(too_many());
        }
        let asks = !after.jobs.is_empty();
        let (mut met, mut unmet) = (false, None);
        let (mut open, mut moment) = (Vec::new(), None);
        for it in std::mem::take(&mut after.jobs) {
            if self.entry(it.job).is_some() {
                open.push(it);
                continue;
            }
            let (outcome, started) = self.outcome_of(it.job)?;
            if let AfterWhat::StartPlus(delay) = it.what
                && started + delay > self.now()
            {
                if after.one {
                    return Err(late_or_other(it.job));
                }
                moment = moment.max(Some(started + delay));
            }
            match it.what.is_met_by_end(outcome.ended_well()) {
                true => met = true,
                false => unmet = unmet.or(Some((it, outcome))),
            }
        }
        match unmet {
            Some((it, outcome)) if !after.one || (open.is_empty() && !met) => {
                return Err(never(it, outcome));
            }
            _ => {}
        }
        if !after.one || !met {
            after.jobs = open;
        }
        let is_met = asks && after.jobs.is_empty();
        if singleton {
            after.one &= !is_met && asks;
            self.add_namesakes(&mut after, uid, name)?;
        }
        Ok(((!after.jobs.is_empty()).then_some(after), moment))
    }

    /// A job that is the only one of its user and name starts after those that live.
    fn add_namesakes(&self, after: &mut AfterJobs, uid: u32, name: &str) -> Result<(), Problem> {
        // Elements end before their array does.
        let is_one = |entry: &Entry| {
            let theirs = entry.owner.uid() == uid && entry.terms.name() == name;
            theirs && entry.terms.element().is_none()
        };
        let namesakes = self
            .jobs
            .iter()
            .chain(&self.arrays)
            .filter(|(_, entry)| is_one(entry))
            .map(|(&job, _)| job);
        let namesakes: Vec<JobId> = namesakes.take(AFTER_MAX + 1).collect();
        if after.one && !namesakes.is_empty() {
            let reason =
                "--singleton can't be combined with jobs of which one is enough (`|` in --after)";
            return Err(Problem::new(Code::BadValue, reason));
        }
        after.jobs.extend(namesakes.into_iter().map(|job| After { job, what: AfterWhat::Any }));
        if after.jobs.len() > AFTER_MAX { Err(too_many()) } else { Ok(()) }
    }

    /// How a job has ended, and when it had started, or ended without that.
    fn outcome_of(&mut self, job: JobId) -> Result<(Outcome, ClusterTime), Problem> {
        let of = |outcome, accepted: ClusterTime, waited_ms, at: ClusterTime| {
            (outcome, at.min(accepted + Nanos::from_millis(waited_ms)))
        };
        if let Some(ended) = self.ends.ended.get(job) {
            return Ok(of(ended.outcome, ended.accepted, ended.report.waited_ms, ended.at));
        }
        // Its end may not be stored yet.
        self.store();
        let found = self.memory.journal.ended_job(job);
        self.say_left_out();
        let found = found?;
        let found = found.map(|it| of(it.outcome, it.accepted, it.report.waited_ms, it.at));
        found.ok_or_else(|| {
            let reason = format!(
                "no job {job} is known to start after (--after); `tutti ps` and `tutti history` list jobs"
            );
            Problem::new(Code::NoJob, reason)
        })
    }
}

fn late_or_other(job: JobId) -> Problem {
    let reason = format!(
        "job {job} has ended, but has not started long enough ago yet: with `|` in --after leave it \
         out, and name a moment by --begin"
    );
    Problem::new(Code::BadValue, reason)
}

fn too_many() -> Problem {
    let reason = format!("a job can start after at most {AFTER_MAX} others (--after)");
    Problem::new(Code::BadValue, reason)
}

fn never(After { job, what }: After, outcome: Outcome) -> Problem {
    let how = match outcome.reason {
        EndReason::Completed => format!("exit code {}", outcome.exit_code),
        reason => reason.to_string(),
    };
    if what == AfterWhat::Each {
        let reason = format!(
            "array {job} has ended, and not all of its elements well ({how}): name the indices of those \
             that did by --array, and leave out --after"
        );
        return Problem::new(Code::NeverStarted, reason);
    }
    let reason = format!(
        "job {job} has ended ({how}), so a job that starts when it {} never could; --after {job}:any does not \
         ask how it ended",
        what.said()
    );
    Problem::new(Code::NeverStarted, reason)
}
