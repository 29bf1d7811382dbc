//! Where jobs come from: lines of a trace, or what a model makes. All of it is a stream.

use super::ahead::Ahead;
use super::model::Model;
use super::options::Options;
use super::passed_over::PassedOver;
use super::progress::{Counted, Progress};
use crate::timed::Beginning;
use anyhow::{Context, anyhow, bail};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tutti_node::calendar;
use tutti_sim::Machine;
use tutti_trace::{
    Arrival, CleanJob, FIELDS, Header, Job as Record, Order, ReadOptions, Reader, Stretch, Summary,
    Tolerance, TraceError,
};
use tutti_types::{ClusterTime, Nanos};

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

/// Shared by the threads that pass lines over.
pub(super) type Told = Arc<Mutex<PassedOver>>;

pub(super) type Lines = Box<dyn Iterator<Item = anyhow::Result<Line>> + Send>;

/// A workload that was opened.
pub(super) struct Source {
    pub(super) header: Header,
    pub(super) lines: Lines,
    pub(super) name: String,
    pub(super) passed_over: Told,
}

/// What was passed over so far. It is right at any time, so a thread that panicked with it does not
/// matter.
pub(super) fn told(passed_over: &Told) -> MutexGuard<'_, PassedOver> {
    passed_over.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many jobs does a model make by default.
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

    /// When the workload began, by people's clocks.
    ///
    /// # Errors
    /// If nothing tells.
    pub(super) fn beginning(&self, options: &Options) -> anyhow::Result<Beginning> {
        if options.begins.is_none()
            && let Self::File(_) = self
        {
            let source = self.open(options, &Progress::none(), 0)?;
            let known = source.header.unix_start_time_s().zip(source.header.time_zone());
            if let Some((unix_s, zone)) = known {
                return Ok(Beginning { unix_s, zone, has_date: true });
            }
        }
        let week = self.calendar(options)?.first().map_or(Nanos::ZERO, |&(_, week)| week);
        Ok(Beginning::in_week(week))
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
        let passed_over = Told::default();
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
                        reader,
                        name,
                        is_empty: true,
                        lenient: options.lenient,
                        told: Arc::clone(&passed_over),
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
        for line in Ahead::new(source.lines) {
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

/// The lines of a file.
struct FileLines<R: BufRead> {
    reader: Reader<R>,
    name: String,
    /// No line has told of a job.
    is_empty: bool,
    lenient: bool,
    told: Told,
}

impl<R: BufRead> Iterator for FileLines<R> {
    type Item = anyhow::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        let error = match self.reader.next() {
            Some(Ok(record)) => {
                self.is_empty = false;
                return Some(Ok(Line { record, line: self.reader.line() }));
            }
            last => last.and_then(Result::err),
        };
        let mut told = told(&self.told);
        told.tolerated = self.reader.tolerated().clone();
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
        core::mem::take(&mut self.is_empty).then(|| {
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
