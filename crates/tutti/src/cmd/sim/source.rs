//! Where jobs come from, and what becomes of them before they are simulated: filtered, stretched,
//! cut off after so many. All of it is a stream.

use super::ahead::{Ahead, End};
use super::model::Model;
use super::options::Options;
use super::progress::{Counted, Progress};
use crate::calendar;
use anyhow::{Context, anyhow, bail};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::rc::Rc;
use tutti_core::{ClusterTime, Nanos};
use tutti_sim::{Job, Machine, Missing, Workload};
use tutti_trace::{
    Arrival, CleanJob, FIELDS, Header, Job as Record, LeftOut, Order, ReadOptions, Reader, Stretch,
    Stretched, Summary, Tally, Tolerance, Tolerated, TraceError,
};

/// What is simulated.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A trace.
    File(PathBuf),
    /// Jobs of a model.
    Model(Model),
}

/// A line of a trace, or a job of a model as if it had one.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) record: Record,
    /// 0: it is not known.
    pub(super) line: u64,
}

/// What was not simulated, for one line each.
#[derive(Debug, Default)]
pub(super) struct PassedOver {
    left_out: Tally<LeftOut>,
    cut_down: u64,
    missing: u64,
    too_wide: u64,
    tolerated: Tally<Tolerated>,
    /// The last line of a file that ends too early.
    cut_off: Option<u64>,
}

/// Shared by those who read and those who tell.
pub(super) type Shared<T> = Rc<RefCell<T>>;

type Lines = Box<dyn Iterator<Item = anyhow::Result<Line>>>;

/// A workload that was opened.
pub(super) struct Source {
    pub(super) header: Header,
    lines: Lines,
    name: String,
    passed_over: Shared<PassedOver>,
}

/// So many jobs does a model make if nobody says how many.
const MODEL_JOBS: u64 = 10_000;

impl Origin {
    /// Its name for messages and tables.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File(path) => {
                path.file_name().map_or_else(String::new, |it| it.to_string_lossy().into_owned())
            }
            Self::Model(model) => model.name().to_owned(),
        }
    }

    /// How many jobs are simulated, if that is known beforehand.
    pub(super) fn jobs(&self, options: &Options) -> Option<u64> {
        match self {
            Self::Model(_) if options.horizon.is_none() => Some(options.jobs.unwrap_or(MODEL_JOBS)),
            Self::Model(_) | Self::File(_) => options.jobs,
        }
    }

    /// The machine that the workload is for, unless the options say otherwise.
    ///
    /// # Errors
    /// If nothing tells how large it is.
    pub(super) fn machine(&self, options: &Options) -> anyhow::Result<Machine> {
        let told = match self {
            Self::File(_) => {
                let mut source = self.open(options, &Progress::none(), 0)?;
                let told = Machine::of_header(&source.header).transpose()?;
                if told.is_none() {
                    // Perhaps it is no trace at all.
                    source.lines.next().transpose()?;
                }
                told
            }
            Self::Model(model) => Some(Machine::of_processors(model.processors())?),
        };
        let per_node = options.processors_per_node;
        Ok(match (options.nodes, per_node, told) {
            (Some(nodes), per_node, told) => {
                let told = told.map(Machine::processors_per_node);
                Machine::new(nodes, per_node.or(told).unwrap_or(1))?
            }
            (None, Some(per_node), Some(told)) => {
                let even = per_node > 0 && told.processors().is_multiple_of(per_node);
                if !even {
                    bail!(
                        "{} processors don't go into nodes of {per_node}; say --nodes too",
                        told.processors()
                    );
                }
                Machine::new(told.processors() / per_node, per_node)?
            }
            (None, None, Some(told)) => told,
            (None, _, None) => bail!(
                "{} does not say how large its machine is; say --nodes and --processors-per-node",
                self.name()
            ),
        })
    }

    /// What people's clocks said while the workload came: moments, each with how much of the week
    /// had passed.
    ///
    /// # Errors
    /// If nothing tells.
    pub(super) fn calendar(&self, options: &Options) -> anyhow::Result<Vec<(ClusterTime, Nanos)>> {
        if let Some(text) = &options.begins {
            return Ok([(ClusterTime(0), calendar::parse_week(text)?)].into());
        }
        if let Self::Model(_) = self {
            // Models begin at midnight; which day it is, they don't say.
            return Ok([(ClusterTime(0), Nanos::ZERO)].into());
        }
        let source = self.open(options, &Progress::none(), 0)?;
        match source.header.unix_start_time_s().zip(source.header.time_zone()) {
            Some((start_s, zone)) => calendar::of_zone(start_s, &zone),
            None => bail!(
                "{} does not say when it began (UnixStartTime and TimeZoneString), so hours have no \
                 meaning; say --begins, such as --begins \"mon 00:00\"",
                self.name()
            ),
        }
    }

    /// Opens it. `processors` is the machine's size, which models are made for.
    ///
    /// # Errors
    /// If it can't be read, or the model can't be made.
    pub(super) fn open(
        &self,
        options: &Options,
        progress: &Progress,
        processors: u32,
    ) -> anyhow::Result<Source> {
        let passed_over = Shared::default();
        let (header, lines): (Header, Lines) = match self {
            Self::File(path) => {
                let read = ReadOptions {
                    tolerance: if options.lenient { Tolerance::Lenient } else { Tolerance::Strict },
                    order: if options.sort { Order::Sorted } else { Order::AsFiled },
                    ..ReadOptions::default()
                };
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
                let file = BufReader::with_capacity(64 << 10, Counted::new(file, progress));
                let reader = Reader::new(&name, file, read)?;
                let header = reader.header().clone();
                (
                    header,
                    Box::new(FileLines {
                        ahead: Ahead::new(reader),
                        name,
                        is_empty: true,
                        lenient: options.lenient,
                        told: Rc::clone(&passed_over),
                    }),
                )
            }
            Self::Model(model) => {
                let (header, jobs) = model.jobs(processors.max(1), options.seed)?;
                (header, Box::new(jobs.map(|record| Ok(Line { record, line: 0 }))))
            }
        };
        let name = match self {
            Self::File(path) => path.display().to_string(),
            Self::Model(model) => model.name().to_owned(),
        };
        Ok(Source { header, lines, name, passed_over })
    }

    /// What makes the load that is asked for, if one is: by a pass over the whole workload.
    ///
    /// # Errors
    /// If the workload can't be read, or has no load.
    pub(super) fn stretch(
        &self,
        options: &Options,
        machine: Machine,
    ) -> anyhow::Result<Option<Stretch>> {
        if let Some(factor) = options.stretch {
            return Ok(Some(Stretch::by(factor)?));
        }
        let Some(wanted) = options.load else { return Ok(None) };
        let progress = Progress::of(self, options.jobs, "reading");
        let source = self.open(options, &progress, machine.processors())?;
        let mut summary = Summary::default();
        let default = matches!(self, Self::Model(_)).then_some(MODEL_JOBS);
        let mut left = options.jobs.or(default).unwrap_or(u64::MAX);
        for line in source.lines {
            if left == 0 {
                break;
            }
            if let Ok(job) = CleanJob::of(line?.record, machine.processors()) {
                summary.add(&job);
                left -= 1;
            }
        }
        let Some(offered) = summary.offered_load(machine.processors()).filter(|&it| it > 0.0)
        else {
            bail!("{} offers no load that could be scaled", self.name());
        };
        Ok(Some(Stretch::to_load(offered, wanted).with_context(|| {
            format!("{} offers a load of {offered:.3}; {wanted} can't be made of it", self.name())
        })?))
    }
}

/// What one simulation takes its jobs from.
pub(super) struct Jobs {
    lines: std::iter::Take<Stretched<Usable>>,
    workload: Workload,
    name: String,
    /// The records of the jobs, if somebody wants them.
    records: Option<Shared<VecDeque<Record>>>,
    processors: u32,
    lenient: bool,
    passed_over: Shared<PassedOver>,
    progress: Progress,
}

/// How a source becomes jobs.
pub(super) struct Wanted {
    pub(super) machine: Machine,
    pub(super) stretch: Option<Stretch>,
    pub(super) jobs: Option<u64>,
    pub(super) records: Option<Shared<VecDeque<Record>>>,
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
            passed_over: Rc::clone(&self.passed_over),
        };
        let stretch = match wanted.stretch {
            Some(stretch) => stretch,
            None => Stretch::by(1.0)?,
        };
        let count = wanted.jobs.and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(usize::MAX);
        Ok(Jobs {
            lines: Stretched::new(usable, stretch).take(count),
            workload,
            name: self.name,
            records: wanted.records,
            processors,
            lenient: options.lenient,
            passed_over: self.passed_over,
            progress: progress.clone(),
        })
    }

    /// What will not have been simulated.
    pub(super) fn passed_over(&self) -> Shared<PassedOver> {
        Rc::clone(&self.passed_over)
    }
}

impl Iterator for Jobs {
    type Item = anyhow::Result<Job>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Line { record, line } = match self.lines.next()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            self.progress.job();
            match self.job(&record, line) {
                Ok(job) => {
                    if let Some(records) = &self.records {
                        records.borrow_mut().push_back(record);
                    }
                    return Some(Ok(job));
                }
                Err(_) if self.lenient => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Jobs {
    fn job(&self, record: &Record, line: u64) -> anyhow::Result<Job> {
        let job = self.workload.job(record, line).map_err(|missing: Missing| {
            self.passed_over.borrow_mut().missing += 1;
            anyhow!(
                "{}, line {line}: job {} can't be simulated, {missing}; leave such jobs out with \
                 --clean or --lenient",
                self.name,
                record.number
            )
        })?;
        if job.processors > self.processors {
            self.passed_over.borrow_mut().too_wide += 1;
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
    passed_over: Shared<PassedOver>,
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
            let mut passed_over = self.passed_over.borrow_mut();
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

/// The lines of a file.
struct FileLines<R: BufRead> {
    ahead: Ahead<R>,
    name: String,
    /// No line has told of a job.
    is_empty: bool,
    lenient: bool,
    told: Shared<PassedOver>,
}

impl<R: BufRead + Send + 'static> Iterator for FileLines<R> {
    type Item = anyhow::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        let End { error, tolerated } = match self.ahead.next()? {
            Ok(line) => {
                self.is_empty = false;
                return Some(Ok(line));
            }
            Err(end) => end,
        };
        let mut told = self.told.borrow_mut();
        told.tolerated = tolerated;
        match error {
            Some(TraceError::CutOff { line, .. }) if self.lenient => told.cut_off = Some(line),
            Some(error @ TraceError::OutOfOrder { .. }) => {
                return Some(Err(anyhow!("{error} (--sort)")));
            }
            Some(error @ TraceError::Line { .. }) => {
                return Some(Err(anyhow!("{error} (--lenient)")));
            }
            Some(error) => return Some(Err(error.into())),
            None => {}
        }
        self.is_empty.then(|| {
            Err(anyhow!(
                "no line of {} tells of a job; name a trace in the Standard Workload Format, which \
                 has a line of {FIELDS} numbers for each",
                self.name
            ))
        })
    }
}

impl Arrival for Line {
    fn submit_ns(&self) -> Option<u64> {
        self.record.submit_ns
    }

    fn move_to(&mut self, submit_ns: u64) {
        self.record.move_to(submit_ns);
    }
}

impl PassedOver {
    /// What was passed over, a line for each reason.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (reason, count) in self.left_out.iter() {
            lines.push(format!("{count} left out by the filter: {reason}"));
        }
        if self.cut_down > 0 {
            lines.push(format!("{} cut down to their requested time", self.cut_down));
        }
        for (reason, count) in self.tolerated.iter() {
            lines.push(format!("{count} tolerated: {reason}"));
        }
        if let Some(line) = self.cut_off {
            lines.push(format!("1 tolerated: the file is cut off after line {line}"));
        }
        if self.missing > 0 {
            lines.push(format!("{} skipped: no submit time, run time or processors", self.missing));
        }
        if self.too_wide > 0 {
            lines.push(format!("{} skipped: wider than the machine", self.too_wide));
        }
        lines
    }
}
