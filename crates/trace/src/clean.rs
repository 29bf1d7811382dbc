//! The filter that logs go through before runs are compared: it leaves out what no scheduler could
//! have run, and gives every job that stays a size, a run time and an estimate.
//!
//! - processors: those asked for if above 0, else those it had
//! - left out: no processors, more than the machine has, no run time or 0, no submit time
//! - estimate: the requested time if above 0, else the run time
//! - a run time above the estimate is cut down to it: the machine would have ended the job there
//!
//! It is the filter behind published tables; changing it makes results incomparable.

use crate::job::Job;
use crate::tally::Tally;
use std::fmt;

/// Jobs of a trace that a scheduler of a machine of this size could run, in their order.
pub struct Clean<I> {
    jobs: I,
    machine_processors: u32,
    left_out: Tally<LeftOut>,
    cut_down: u64,
}

/// A job that passed the filter. Whatever a scheduler needs is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanJob {
    record: Job,
    submit_ns: u64,
    run_ns: u64,
    estimate_ns: u64,
    processors: u32,
}

/// Why a job did not pass the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeftOut {
    /// Neither asked for nor had any processors.
    NoProcessors,
    /// More processors than the machine has.
    TooManyProcessors,
    /// Its run time is 0 or not known: cancelled before its start, mostly.
    NoRunTime,
    /// Its submit time is not known.
    NoSubmitTime,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftOut::NoProcessors => "no processors",
            LeftOut::TooManyProcessors => "more processors than the machine has",
            LeftOut::NoRunTime => "no run time",
            LeftOut::NoSubmitTime => "no submit time",
        })
    }
}

impl<I> Clean<I> {
    /// Filters `jobs` for a machine with this number of processors.
    pub fn new(jobs: I, machine_processors: u32) -> Self {
        Clean { jobs, machine_processors, left_out: Tally::default(), cut_down: 0 }
    }

    /// What was left out so far, and why.
    #[must_use]
    pub fn left_out(&self) -> &Tally<LeftOut> {
        &self.left_out
    }

    /// How many jobs so far had run past their estimate, and had their run time cut down to it.
    #[must_use]
    pub fn cut_down(&self) -> u64 {
        self.cut_down
    }

    /// What is filtered, with its own counts.
    pub fn inner(&self) -> &I {
        &self.jobs
    }

    fn filter(&mut self, job: Job) -> Option<CleanJob> {
        let ran_ns = job.run_ns;
        match CleanJob::of(job, self.machine_processors) {
            Ok(job) => {
                self.cut_down += u64::from(Some(job.run_ns) != ran_ns);
                Some(job)
            }
            Err(reason) => {
                self.left_out.add(reason);
                None
            }
        }
    }
}

impl<I, E> Iterator for Clean<I>
where
    I: Iterator<Item = Result<Job, E>>,
{
    type Item = Result<CleanJob, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.jobs.next()? {
                Err(error) => return Some(Err(error)),
                Ok(job) => {
                    if let Some(job) = self.filter(job) {
                        return Some(Ok(job));
                    }
                }
            }
        }
    }
}

impl CleanJob {
    /// Filters one job for a machine with this number of processors.
    ///
    /// # Errors
    /// Why it does not pass.
    pub fn of(mut record: Job, machine_processors: u32) -> Result<CleanJob, LeftOut> {
        let above_0 = |count: &u32| *count > 0;
        let requested = record.requested_processors.filter(above_0);
        let processors = requested.or(record.allocated_processors.filter(above_0));
        let processors = processors.ok_or(LeftOut::NoProcessors)?;
        if processors > machine_processors {
            return Err(LeftOut::TooManyProcessors);
        }
        let ran_ns = record.run_ns.filter(|&ns| ns > 0).ok_or(LeftOut::NoRunTime)?;
        let submit_ns = record.submit_ns.ok_or(LeftOut::NoSubmitTime)?;
        let estimate_ns = record.requested_ns.filter(|&ns| ns > 0).unwrap_or(ran_ns);
        let run_ns = ran_ns.min(estimate_ns);
        record.run_ns = Some(run_ns);
        Ok(CleanJob { record, submit_ns, run_ns, estimate_ns, processors })
    }

    /// When it is submitted, in ns after the log's beginning.
    #[must_use]
    pub fn submit_ns(&self) -> u64 {
        self.submit_ns
    }

    /// How long it runs on processors of its own, in ns; above 0, and not above the estimate.
    #[must_use]
    pub fn run_ns(&self) -> u64 {
        self.run_ns
    }

    /// How long its user says that it runs, in ns.
    #[must_use]
    pub fn estimate_ns(&self) -> u64 {
        self.estimate_ns
    }

    /// How many processors it needs; above 0, and not above the machine's.
    #[must_use]
    pub fn processors(&self) -> u32 {
        self.processors
    }

    /// Its line, with the run time cut down to the estimate: what a filtered log has.
    #[must_use]
    pub fn record(&self) -> &Job {
        &self.record
    }

    pub(crate) fn set_submit_ns(&mut self, submit_ns: u64) {
        self.submit_ns = submit_ns;
        self.record.submit_ns = Some(submit_ns);
    }
}
