//! The jobs that a job starts after: those that have ended are looked up here, since the core knows
//! only jobs that live.

use crate::driver::Driver;
use crate::error::Problem;
use crate::jobs::Entry;
use tutti_core::event::NeverAfter;
use tutti_node::codes::code_of_refusal;
use tutti_types::limits::AFTER_MAX;
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::{
    After, AfterJobs, AfterWhat, ArraySpec, EndReason, Indices, JobId, Outcome, Positions, Refusal,
};
use tutti_wire::code::Code;
use tutti_wire::report::{ElementsReport, JobReport};

/// What is left for a job to wait for of others.
#[derive(Default)]
pub(super) struct Waits {
    /// The jobs that live.
    pub(super) after: Option<AfterJobs>,
    /// The moment before which it does not begin.
    pub(super) moment: Option<ClusterTime>,
    /// The job that has ended after which it can never start, or elements of it can't.
    pub(super) never: Option<NeverAfter>,
}

/// What is known of a new job.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    /// The indices of an array.
    pub(super) array: Option<&'a Indices>,
    /// Whether it is to be the only one of its user and name.
    pub(super) singleton: bool,
}

/// What jobs that have ended make of what a job waits for.
#[derive(Default)]
struct Past {
    met: bool,
    /// The first that is not so, and never will be.
    unmet: Option<(After, Outcome)>,
    moment: Option<ClusterTime>,
    never: Option<NeverAfter>,
}

impl Driver {
    /// What is left for a job to wait for, of what it asks; nothing if all is so already. It is
    /// judged as if the jobs that have ended had ended after its submission.
    ///
    /// # Errors
    /// If it can never be so, and the job is not to stay.
    pub(super) fn jobs_before(
        &mut self,
        uid: u32,
        asked: &Asked<'_>,
        after: Option<AfterJobs>,
    ) -> Result<Waits, Problem> {
        let mut after = after.unwrap_or_default();
        if after.jobs.len() > AFTER_MAX {
            return Err(too_many());
        }
        check_each(&after, asked.array)?;
        let asks = !after.jobs.is_empty();
        let (mut open, mut past) = (Vec::new(), Past::default());
        for it in std::mem::take(&mut after.jobs) {
            match self.entry(it.job) {
                Some(_) => open.push(it),
                None => self.look_back(it, &after, asked.array, &mut past)?,
            }
        }
        let Past { met, unmet, moment, mut never } = past;
        match unmet {
            Some((it, _)) if after.stays && (!after.one || (open.is_empty() && !met)) => {
                never = Some(NeverAfter { job: it.job, elements: None, stays: true });
                open.clear();
            }
            Some((it, outcome)) if !after.one || (open.is_empty() && !met) => {
                return Err(never_starts(it, outcome));
            }
            _ => {}
        }
        if !after.one || !met {
            after.jobs = open;
        }
        let is_met = asks && after.jobs.is_empty();
        if asked.singleton && never.as_ref().is_none_or(|never| never.elements.is_some()) {
            after.one &= !is_met && asks;
            self.add_namesakes(&mut after, uid, asked.name)?;
        }
        Ok(Waits { after: (!after.jobs.is_empty()).then_some(after), moment, never })
    }

    /// What a job that has ended makes of what a new one waits for.
    fn look_back(
        &mut self,
        it: After,
        after: &AfterJobs,
        array: Option<&Indices>,
        past: &mut Past,
    ) -> Result<(), Problem> {
        let (outcome, started, elements) = self.outcome_of(it.job)?;
        if let AfterWhat::StartPlus(delay) = it.what
            && started + delay > self.now()
        {
            if after.one {
                return Err(late_or_other(it.job));
            }
            past.moment = past.moment.max(Some(started + delay));
        }
        if let (AfterWhat::Each, Some(array)) = (it.what, array) {
            let elements = elements.ok_or_else(|| no_each(it.job))?;
            return look_back_at_each((it, outcome), after.stays, (array, &elements), past);
        }
        match it.what.is_met_by_end(outcome.ended_well()) {
            true => past.met = true,
            false => past.unmet = past.unmet.or(Some((it, outcome))),
        }
        Ok(())
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

    /// How a job has ended, and when it had started, or ended without that; and the elements of an
    /// array.
    fn outcome_of(&mut self, job: JobId) -> Result<Found, Problem> {
        let of = |outcome, accepted: ClusterTime, report: &JobReport, at: ClusterTime| {
            let started = at.min(accepted + Nanos::from_millis(report.waited_ms));
            let elements = report.array.as_ref().and_then(|it| it.elements.clone());
            (outcome, started, elements)
        };
        if let Some(ended) = self.ends.ended.get(job) {
            return Ok(of(ended.outcome, ended.accepted, &ended.report, ended.at));
        }
        // Its end may not be stored yet.
        self.store();
        let found = self.memory.journal.ended_job(job);
        self.say_left_out();
        let found = found?;
        let found = found.map(|it| of(it.outcome, it.accepted, &it.report, it.at));
        found.ok_or_else(|| {
            let reason = format!(
                "no job {job} is known to start after (--after); `tutti ps` and `tutti history` list jobs"
            );
            Problem::new(Code::NoJob, reason)
        })
    }
}

/// How a job has ended, when it had started, and the elements of an array.
type Found = (Outcome, ClusterTime, Option<ElementsReport>);

/// Whether elements may start after those of another array, as far as that is not the core's to
/// see.
fn check_each(after: &AfterJobs, array: Option<&Indices>) -> Result<(), Problem> {
    let mut each = after.jobs.iter().filter(|it| it.what == AfterWhat::Each);
    match each.next() {
        Some(it) if after.one || array.is_none() || each.next().is_some() => Err(no_each(it.job)),
        _ => Ok(()),
    }
}

/// What an array that has ended makes of the elements of a new one.
fn look_back_at_each(
    (it, outcome): (After, Outcome),
    stays: bool,
    (array, elements): (&Indices, &ElementsReport),
    past: &mut Past,
) -> Result<(), Problem> {
    let of: ArraySpec = elements.spec.parse().map_err(|_| no_each(it.job))?;
    if array.positions(&of.indices).count() != array.count() {
        return Err(no_each(it.job));
    }
    let mut failed = Positions::first(array.count());
    match &elements.well {
        Some(well) => {
            let places = well.iter().flat_map(|&(first, count)| first..first.saturating_add(count));
            let indices = places.filter_map(|place| of.indices.at(place));
            let well = indices.filter_map(|index| array.position(index)).collect();
            failed.take(&Positions::of(well));
        }
        // Which ones is not known any more.
        None if outcome.ended_well() => failed = Positions::default(),
        None => {
            past.unmet = past.unmet.or(Some((it, outcome)));
            return Ok(());
        }
    }
    if failed.count() == array.count() && !stays {
        past.unmet = past.unmet.or(Some((it, outcome)));
        return Ok(());
    }
    past.met = true;
    if !failed.is_empty() {
        past.never = Some(NeverAfter { job: it.job, elements: Some(failed), stays });
    }
    Ok(())
}

fn no_each(job: JobId) -> Problem {
    let refusal = Refusal::AfterEach { job };
    Problem::new(code_of_refusal(&refusal), &refusal)
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

fn never_starts(After { job, what }: After, outcome: Outcome) -> Problem {
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
