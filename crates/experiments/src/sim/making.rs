//! From the lines of a workload to the jobs that are simulated: filtered, stretched, cut off after
//! so many. All of that is done ahead, on a thread of its own ([`Ahead`]).
//!
//! What is passed over on the way is told with the next job, so a thread that takes jobs knows at
//! any time what was passed over before the last one that it took, however far ahead the thread is.

use super::ahead::Ahead;
use super::options::Options;
use super::passed_over::PassedOver;
use super::progress::Progress;
use super::source::{Line, Lines, Source, Told, told};
use anyhow::{anyhow, bail};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use tutti_sim::{Job, Machine, Missing, Workload};
use tutti_trace::{CleanJob, Job as Record, Stretch, Stretched};

/// Shared by the threads that take jobs and those that tell of them.
pub(super) type Shared<T> = Rc<RefCell<T>>;

/// How a source becomes jobs.
pub(super) struct Wanted {
    pub(super) machine: Machine,
    pub(super) stretch: Option<Stretch>,
    pub(super) jobs: Option<u64>,
    pub(super) records: Option<Shared<VecDeque<Record>>>,
}

/// What one simulation takes its jobs from.
pub(super) struct Jobs {
    made: Ahead<Maker>,
    passed_over: Shared<PassedOver>,
    /// The records of the jobs, if they are wanted.
    records: Option<Shared<VecDeque<Record>>>,
}

/// A job as it comes from the thread that makes it.
struct Made {
    /// Nothing: they were all.
    job: Option<anyhow::Result<Job>>,
    /// Its record, if it is wanted.
    record: Option<Box<Record>>,
    /// All that was passed over so far, if that is more than before.
    passed_over: Option<Box<PassedOver>>,
}

/// Makes jobs of lines.
struct Maker {
    lines: std::iter::Take<Stretched<Usable>>,
    workload: Workload,
    name: String,
    processors: u32,
    lenient: bool,
    keeps_records: bool,
    progress: Progress,
    passed_over: Told,
    /// What was told of it.
    told: PassedOver,
    is_over: bool,
}

impl Source {
    /// The jobs to be simulated.
    ///
    /// # Errors
    /// If the options make no sense.
    pub(super) fn jobs(
        self,
        options: &Options,
        wanted: Wanted,
        workload: Workload,
        progress: &Progress,
    ) -> anyhow::Result<Jobs> {
        let processors = wanted.machine.processors();
        let usable = Usable {
            lines: self.lines,
            clean: options.clean.then_some(processors),
            passed_over: Arc::clone(&self.passed_over),
        };
        let stretch = match wanted.stretch {
            Some(stretch) => stretch,
            None => Stretch::by(1.0)?,
        };
        let count = wanted.jobs.and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(usize::MAX);
        let maker = Maker {
            lines: Stretched::new(usable, stretch).take(count),
            workload,
            name: self.name,
            processors,
            lenient: options.lenient,
            keeps_records: wanted.records.is_some(),
            progress: progress.clone(),
            passed_over: self.passed_over,
            told: PassedOver::default(),
            is_over: false,
        };
        let passed_over = Shared::default();
        Ok(Jobs { made: Ahead::new(maker), passed_over, records: wanted.records })
    }
}

impl Jobs {
    /// What was passed over before the last job that was taken, or the end.
    pub(super) fn passed_over(&self) -> Shared<PassedOver> {
        Rc::clone(&self.passed_over)
    }
}

impl Iterator for Jobs {
    type Item = anyhow::Result<Job>;

    fn next(&mut self) -> Option<Self::Item> {
        let Made { job, record, passed_over } = self.made.next()?;
        if let Some(all) = passed_over {
            *self.passed_over.borrow_mut() = *all;
        }
        if let Some((records, record)) = self.records.as_ref().zip(record) {
            records.borrow_mut().push_back(*record);
        }
        job
    }
}

impl Iterator for Maker {
    type Item = Made;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let (job, record) = self.next_job().unzip();
        self.is_over = job.is_none();
        let all = told(&self.passed_over);
        let passed_over = (*all != self.told).then(|| Box::new(all.clone()));
        if let Some(all) = &passed_over {
            self.told.clone_from(all);
        }
        Some(Made { job, record: record.flatten(), passed_over })
    }
}

impl Maker {
    fn next_job(&mut self) -> Option<(anyhow::Result<Job>, Option<Box<Record>>)> {
        loop {
            let Line { record, line } = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some((Err(error), None)),
            };
            self.progress.job();
            match self.job(&record, line) {
                Ok(job) => return Some((Ok(job), self.keeps_records.then(|| Box::new(record)))),
                Err(_) if self.lenient => {}
                Err(error) => return Some((Err(error), None)),
            }
        }
    }

    fn job(&self, record: &Record, line: u64) -> anyhow::Result<Job> {
        let job = self.workload.job(record, line).map_err(|missing: Missing| {
            told(&self.passed_over).missing += 1;
            anyhow!(
                "{}, line {line}: job {} can't be simulated, {missing}; leave such jobs out with \
                 --clean or --lenient",
                self.name,
                record.number
            )
        })?;
        if job.processors > self.processors {
            told(&self.passed_over).too_wide += 1;
            bail!(
                "{}, line {line}: job {} asks for {} processors, and the machine has {}; make it \
                 larger with --nodes, or leave such jobs out with --clean or --lenient",
                self.name,
                job.number,
                job.processors,
                self.processors
            );
        }
        Ok(job)
    }
}

/// Lines that pass the filter, if there is one.
struct Usable {
    lines: Lines,
    /// The processors of the machine that the filter is for.
    clean: Option<u32>,
    passed_over: Told,
}

impl Iterator for Usable {
    type Item = anyhow::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(processors) = self.clean else { return self.lines.next() };
        loop {
            let Line { record, line } = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            let ran_ns = record.run_ns;
            let mut passed_over = told(&self.passed_over);
            match CleanJob::of(record, processors) {
                Ok(job) => {
                    passed_over.cut_down += u64::from(Some(job.run_ns()) != ran_ns);
                    return Some(Ok(Line { record: job.record().clone(), line }));
                }
                Err(reason) => passed_over.left_out.add(reason),
            }
        }
    }
}
