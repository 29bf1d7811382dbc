//! Traces in: a stream of jobs from a plain or packed text, one line in memory at a time.
//!
//! In two steps: a line becomes a job (`parsed`), then rolled jobs are described one way and the
//! order is checked (`unrolled`). A line that a lenient reader can't correct never leaves the first
//! step.

use crate::error::{LineProblem, Tolerated, TraceError};
use crate::fields::{is_blank, job_of_line};
use crate::header::Header;
use crate::job::Job;
use crate::limits::HEADER_BYTES_MAX;
use crate::number::NS_PER_SECOND;
use crate::source::Lines;
use crate::tally::Tally;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::vec;

/// How a trace is read. The default is strict, rolled jobs as one, in the file's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// What to do about lines that are wrong.
    pub tolerance: Tolerance,
    /// How to tell jobs that were rolled out and in.
    pub rolled: RolledJobs,
    /// In which order jobs come.
    pub order: Order,
}

/// What to do about lines that are wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tolerance {
    /// The first one is an error, and ends the trace.
    #[default]
    Strict,
    /// They are corrected or skipped, and counted: see [`Reader::tolerated`].
    Lenient,
}

/// How to tell a job that was rolled out and in: it has a line that sums it up, and below it a
/// line for each burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolledJobs {
    /// As one job: bursts are left out.
    #[default]
    Summary,
    /// As its bursts: the line that sums it up is left out. The first burst has the job's submit
    /// time, the others have none, and wait from the end of the one before.
    Bursts,
}

/// In which order jobs come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As in the file, which must be in the order of submit times. A lenient reader counts the jobs
    /// that are not, and gives them where they stand.
    #[default]
    AsFiled,
    /// By submit time; jobs of the same time, and bursts of one job, as in the file. This takes
    /// the whole file into memory before the first job comes.
    Sorted,
}

/// Jobs of a trace. After an error nothing follows.
pub struct Reader<R: BufRead> {
    lines: Lines<R>,
    header: Header,
    options: ReadOptions,
    tolerated: Tally<Tolerated>,
    bursts_left_out: u64,
    /// The job after the current one, where it had to be looked at.
    ahead: Option<Placed>,
    /// The number of the last job that is no burst.
    last_number: Option<u64>,
    last_submit_ns: u64,
    /// Where the job that was given last stands.
    line: u64,
    sorted: Option<vec::IntoIter<Job>>,
    is_ended: bool,
}

/// A job, and the line that tells it.
struct Placed {
    line: u64,
    job: Job,
}

/// Opens a trace, plain or packed with gzip.
///
/// # Errors
/// If the file can't be opened, or its head can't be read.
pub fn open(path: &Path, options: ReadOptions) -> Result<Reader<BufReader<File>>, TraceError> {
    let name = path.display().to_string();
    let file =
        File::open(path).map_err(|source| TraceError::Open { file: name.clone(), source })?;
    Reader::new(&name, BufReader::with_capacity(64 << 10, file), options)
}

impl<R: BufRead> Reader<R> {
    /// Reads the header of a trace, plain or packed with gzip. `file` is the name for messages.
    ///
    /// # Errors
    /// If the input can't be read up to its first job, or its header is too long.
    pub fn new(file: &str, input: R, options: ReadOptions) -> Result<Self, TraceError> {
        let mut lines = Lines::new(file, input)?;
        let header = read_header(&mut lines)?;
        Ok(Reader {
            lines,
            header,
            options,
            tolerated: Tally::default(),
            bursts_left_out: 0,
            ahead: None,
            last_number: None,
            last_submit_ns: 0,
            line: 0,
            sorted: None,
            is_ended: false,
        })
    }

    /// What the comments before the first job say. Comments further down are passed over.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The line of the job that was given last, counted from 1; 0 before the first, and of a trace
    /// that is read sorted.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// What a lenient reader corrected or skipped so far.
    #[must_use]
    pub fn tolerated(&self) -> &Tally<Tolerated> {
        &self.tolerated
    }

    /// How many bursts were left out so far, because the line that sums them up was taken.
    #[must_use]
    pub fn bursts_left_out(&self) -> u64 {
        self.bursts_left_out
    }

    fn read_next(&mut self) -> Result<Option<Job>, TraceError> {
        match self.options.order {
            Order::AsFiled => {
                let Some(placed) = self.unrolled()? else { return Ok(None) };
                self.check_order(&placed)?;
                self.line = placed.line;
                Ok(Some(placed.job))
            }
            Order::Sorted => {
                if self.sorted.is_none() {
                    self.sorted = Some(self.read_sorted()?);
                }
                Ok(self.sorted.as_mut().and_then(Iterator::next))
            }
        }
    }

    fn read_sorted(&mut self) -> Result<vec::IntoIter<Job>, TraceError> {
        let mut jobs = Vec::new();
        let mut submit_ns = 0;
        while let Some(Placed { job, .. }) = self.unrolled()? {
            // A job without a submit time stays behind the one above: it may be a burst of it.
            submit_ns = job.submit_ns.unwrap_or(submit_ns);
            jobs.push((submit_ns, job));
        }
        jobs.sort_by_key(|&(submit_ns, _)| submit_ns);
        let jobs: Vec<Job> = jobs.into_iter().map(|(_, job)| job).collect();
        Ok(jobs.into_iter())
    }

    fn check_order(&mut self, placed: &Placed) -> Result<(), TraceError> {
        let Some(submit_ns) = placed.job.submit_ns else { return Ok(()) };
        if submit_ns >= self.last_submit_ns {
            self.last_submit_ns = submit_ns;
            return Ok(());
        }
        match self.options.tolerance {
            Tolerance::Strict => Err(TraceError::OutOfOrder {
                file: self.lines.file().to_owned(),
                line: placed.line,
                submit_s: submit_ns / NS_PER_SECOND,
                before_s: self.last_submit_ns / NS_PER_SECOND,
            }),
            Tolerance::Lenient => {
                self.tolerated.add(Tolerated::OutOfOrder);
                Ok(())
            }
        }
    }

    /// The next job, with rolled jobs told as the options want it.
    fn unrolled(&mut self) -> Result<Option<Placed>, TraceError> {
        match self.options.rolled {
            RolledJobs::Summary => self.next_summary(),
            RolledJobs::Bursts => self.next_burst(),
        }
    }

    fn next_summary(&mut self) -> Result<Option<Placed>, TraceError> {
        while let Some(placed) = self.parsed()? {
            let number = placed.job.number;
            if !placed.job.is_burst() {
                return Ok(Some(placed));
            }
            if self.last_number == Some(number) {
                self.bursts_left_out += 1;
            } else {
                self.skip(LineProblem::BurstAlone { number })?;
            }
        }
        Ok(None)
    }

    fn next_burst(&mut self) -> Result<Option<Placed>, TraceError> {
        let current = match self.ahead.take() {
            Some(placed) => Some(placed),
            None => self.parsed()?,
        };
        let Some(current) = current else { return Ok(None) };
        if current.job.is_burst() {
            return Ok(Some(current));
        }
        match self.parsed()? {
            Some(mut next) if next.job.is_burst() && next.job.number == current.job.number => {
                next.job.submit_ns = next.job.submit_ns.or(current.job.submit_ns);
                Ok(Some(next))
            }
            next => {
                self.ahead = next;
                Ok(Some(current))
            }
        }
    }

    /// The next line that tells a job.
    fn parsed(&mut self) -> Result<Option<Placed>, TraceError> {
        while self.lines.advance()? {
            let line = self.lines.line();
            if self.lines.is_too_long() {
                self.skip(LineProblem::TooLong)?;
                continue;
            }
            if !is_job(line) {
                continue;
            }
            match job_of_line(line, self.options.tolerance, &mut self.tolerated) {
                Err(problem) => self.skip(problem)?,
                Ok(job) => {
                    if !job.is_burst() && self.last_number.replace(job.number) == Some(job.number) {
                        self.skip(LineProblem::Repeated { number: job.number })?;
                    }
                    return Ok(Some(Placed { line: self.lines.number(), job }));
                }
            }
        }
        Ok(None)
    }

    /// Counts what a lenient reader passes over; for a strict one it is an error.
    fn skip(&mut self, problem: LineProblem) -> Result<(), TraceError> {
        match self.options.tolerance {
            Tolerance::Strict => Err(TraceError::Line {
                file: self.lines.file().to_owned(),
                line: self.lines.number(),
                problem,
            }),
            Tolerance::Lenient => {
                self.tolerated.add(problem.tolerated());
                Ok(())
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Job, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        let next = self.read_next().transpose();
        self.is_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads all before the first line that tells a job.
fn read_header<R: BufRead>(lines: &mut Lines<R>) -> Result<Header, TraceError> {
    let mut header = Header::default();
    let mut bytes = 0;
    while lines.advance()? {
        let line = lines.line();
        if is_job(line) {
            lines.hold();
            break;
        }
        bytes += line.len() + 1;
        if bytes > HEADER_BYTES_MAX || lines.is_too_long() {
            return Err(TraceError::HeaderTooLong { file: lines.file().to_owned() });
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            header.add_line(line);
        }
    }
    Ok(header)
}

/// Whether a line is neither empty nor a comment.
fn is_job(line: &[u8]) -> bool {
    line.iter().find(|&&byte| !is_blank(byte)).is_some_and(|&first| first != b';')
}
