//! `tutti bench switch`: how long a switch takes, by number of processes and method.
//!
//! Two jobs want all processors, each a task that is a binary tree of busy processes. What is shown
//! comes from the switch thread's own records; beside it stands what the same cgroup writes cost a small
//! C program in the same run, and what the jobs themselves see of a switch. With `--curves`, switches by
//! signals against the retry interval, beside the process-tracking paper's model.

mod bare;
mod curves;
mod gaps;
mod model;
mod trees;

pub(super) use gaps::write as write_stretches;

use super::contend::ratio;
use super::figures::Figure;
use super::scratch::Scratch;
use super::{Bench, progress};
use crate::cmd::own::{OwnInstance, percentile};
use crate::output::{Align, Table, print, print_json};
use anyhow::bail;
use bare::Bare;
use clap::{Args, ValueEnum};
use curves::Curves;
use gaps::Gaps;
use serde::Serialize;
use std::path::PathBuf;
use trees::{Trees, Wanted};
use tutti_core::Nanos;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::SwitchRecord;
use tutti_wire::units::parse_duration;

#[derive(Args, Debug)]
pub(super) struct SwitchArgs {
    /// How many busy processes each job has
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = SIZES)]
    processes: Vec<u32>,

    /// How jobs are suspended
    #[arg(long, value_enum, default_value_t = Methods::Both)]
    method: Methods,

    /// How long a turn is [default: 50ms; where switches take long, longer, so that one fits into it]
    #[arg(long, value_name = "TIME")]
    quantum: Option<String>,

    /// Instead: every order of signals against retry intervals, on one processor and on all, beside the
    /// model of the process-tracking paper
    #[arg(long)]
    curves: bool,

    /// Draws the curves, as the paper's figures 3 to 5, into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR", requires = "curves")]
    figures: Option<PathBuf>,
}

const SIZES: [u32; 5] = [3, 7, 15, 100, 1000];
const QUANTUM: Nanos = Nanos::from_millis(50);

/// A way to switch.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// What the jobs' class says.
    control: &'static str,
    /// The parameter.
    traversal: &'static str,
    /// What a turn has at least for each process.
    quantum_each: Nanos,
    /// With more processes it is not measured unless somebody asks: a switch would take seconds.
    processes_max: u32,
}

const FREEZE: Way = Way {
    name: "freeze",
    control: "freeze",
    traversal: "breadth-first",
    quantum_each: Nanos(50_000),
    processes_max: u32::MAX,
};
/// Busy processes wait for a processor before they stop, level after level.
const SIGNAL: Way = Way {
    name: "signal",
    control: "signal",
    traversal: "breadth-first",
    quantum_each: Nanos::from_millis(10),
    processes_max: 100,
};
const SIGNAL_AT_ONCE: Way = Way {
    name: "signal-at-once",
    traversal: "all-at-once",
    quantum_each: Nanos::from_millis(1),
    processes_max: u32::MAX,
    ..SIGNAL
};

const THOROUGH: Wanted =
    Wanted { switches: 100, length_max: Nanos::from_secs(60), switches_least: 20, patience: 20 };
const QUICK: Wanted =
    Wanted { switches: 25, length_max: Nanos::from_secs(5), switches_least: 3, patience: 3 };

impl Default for SwitchArgs {
    fn default() -> Self {
        Self {
            processes: SIZES.to_vec(),
            method: Methods::Both,
            quantum: None,
            curves: false,
            figures: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Methods {
    Freeze,
    Signal,
    Both,
}

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether the switch thread had real-time priority, or why not.
    realtime: String,
    /// Whether jobs could be frozen; if not, all was done by signals.
    freezer: bool,
    rows: Vec<Row>,
    /// What could not be measured.
    missing: Vec<Missing>,
    gaps: Option<Gaps>,
    curves: Option<Curves>,
}

#[derive(Debug, Serialize)]
struct Row {
    method: &'static str,
    /// Of each of the two jobs.
    processes: u32,
    switches: usize,
    /// From the end of the slot until the switch thread was awake.
    woke: Spread,
    /// From then until the last process of the old job had stopped.
    stopped: Spread,
    /// From then until all of the new job were running.
    resumed: Spread,
    /// From the end of the slot until all of the new job were running.
    whole: Spread,
    /// Without the waking.
    made: Spread,
    /// What that takes a C program that does nothing else: the median, where it could be measured.
    bare_us: Option<u64>,
    /// Switches that went on without a process that had not stopped in time.
    stragglers: usize,
}

#[derive(Debug, Serialize)]
struct Missing {
    method: &'static str,
    processes: u32,
    why: String,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Spread {
    median_us: u64,
    p99_us: u64,
}

impl Spread {
    fn of(records: &[SwitchRecord], length_ns: impl Fn(&SwitchRecord) -> u64) -> Self {
        let mut lengths: Vec<u64> = records.iter().map(|r| length_ns(r) / 1000).collect();
        lengths.sort_unstable();
        Self { median_us: percentile(&lengths, 50), p99_us: percentile(&lengths, 99) }
    }

    fn shown(self) -> String {
        format!("{} / {}", self.median_us, self.p99_us)
    }
}

/// How long a switch may wait for processes to stop here: the true time is wanted, not the limit.
const DEADLINE: &str = "10s";

pub(super) fn measure(bench: &Bench, args: &SwitchArgs) -> anyhow::Result<Report> {
    let scratch = Scratch::new("switch")?;
    if args.curves {
        let curves = curves::measure(bench, &scratch, args.figures.as_deref())?;
        return Ok(Report { curves: Some(curves), ..Report::of(&start()?)? });
    }
    let own = start()?;
    let quantum = match &args.quantum {
        Some(text) => Some(parse_duration(text).map_err(|error| anyhow::anyhow!("{error}"))?),
        None => None,
    };
    let mut report = Report::of(&own)?;
    let ways: &[Way] = match args.method {
        Methods::Freeze => &[FREEZE],
        Methods::Signal => &[SIGNAL, SIGNAL_AT_ONCE],
        Methods::Both => &[FREEZE, SIGNAL, SIGNAL_AT_ONCE],
    };
    let bare = if args.method == Methods::Signal { None } else { Bare::new(&scratch)? };
    let wanted = if bench.quick { QUICK } else { THOROUGH };
    let asked = args.processes != SIZES;
    for way in ways {
        own.set("traversal", way.traversal)?;
        for &processes in &args.processes {
            if processes > way.processes_max && !asked {
                continue;
            }
            progress(&format!("switch: {}, {processes} processes a job", way.name));
            let quantum = quantum.unwrap_or_else(|| way.quantum(processes));
            own.set("quantum", &format!("{}ns", quantum.0))?;
            match way.switches(&own, &scratch, processes, (quantum, wanted)) {
                Ok(records) => {
                    let bare = bare.as_ref().filter(|_| way.control == "freeze");
                    let bare_us =
                        bare.map(|bare| bare.median_us(processes, wanted.switches)).transpose()?;
                    report.rows.push(Row::of(way.name, processes, &records, bare_us));
                }
                // What was measured before stays to be shown.
                Err(error) => report.missing.push(Missing {
                    method: way.name,
                    processes,
                    why: format!("{error:#}"),
                }),
            }
        }
    }
    if report.freezer && args.method != Methods::Signal {
        progress("switch: what the jobs see of it");
        report.gaps = Some(gaps::measure(&own, &scratch, if bench.quick { 3 } else { 10 })?);
    }
    own.end()?;
    Ok(report)
}

fn start() -> anyhow::Result<OwnInstance> {
    let own = OwnInstance::start("bench")?;
    own.set("freeze_deadline", DEADLINE)?;
    Ok(own)
}

impl Way {
    /// A switch that takes longer than a turn begins late, and the lateness is all that would be seen.
    fn quantum(&self, processes: u32) -> Nanos {
        QUANTUM.max(Nanos(self.quantum_each.0 * u64::from(processes)))
    }

    fn switches(
        &self,
        own: &OwnInstance,
        scratch: &Scratch,
        processes: u32,
        (quantum, wanted): (Nanos, Wanted),
    ) -> anyhow::Result<Vec<SwitchRecord>> {
        let trees = Trees::start(own, scratch, self.control, processes, &[])?;
        let records = trees.records(wanted, quantum)?;
        trees.end()?;
        Ok(records)
    }
}

impl Row {
    fn of(
        method: &'static str,
        processes: u32,
        records: &[SwitchRecord],
        bare_us: Option<u64>,
    ) -> Self {
        Self {
            method,
            processes,
            switches: records.len(),
            woke: Spread::of(records, |r| r.began_ns.saturating_sub(r.due_ns)),
            stopped: Spread::of(records, |r| r.stopped_ns.saturating_sub(r.began_ns)),
            resumed: Spread::of(records, |r| r.resumed_ns.saturating_sub(r.stopped_ns)),
            whole: Spread::of(records, |r| r.resumed_ns.saturating_sub(r.due_ns)),
            made: Spread::of(records, made_ns),
            bare_us,
            stragglers: records.iter().filter(|r| r.stragglers > 0).count(),
        }
    }

    /// How many times the bare cost it is.
    fn over_bare(&self) -> Option<f64> {
        self.bare_us.map(|bare| ratio(self.made.median_us, bare))
    }
}

/// How long a switch took, once the thread was awake.
fn made_ns(record: &SwitchRecord) -> u64 {
    record.resumed_ns.saturating_sub(record.began_ns)
}

impl Missing {
    fn shown(&self) -> String {
        format!("{} of {} processes, since {}", self.method, self.processes, self.why)
    }
}

impl Report {
    fn of(own: &OwnInstance) -> anyhow::Result<Self> {
        let Reply::Status(status) = own.ask(&Request::Status)? else {
            return crate::cmd::unexpected();
        };
        let Some(agent) = status.agents.first() else { bail!("the instance has no node") };
        Ok(Self {
            realtime: agent.realtime.clone(),
            freezer: agent.freezer,
            rows: Vec::new(),
            missing: Vec::new(),
            gaps: None,
            curves: None,
        })
    }

    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        if let Some(curves) = &self.curves {
            return print(&curves.text());
        }
        let mut table = Table::new(&[
            ("METHOD", Align::Left),
            ("PROCESSES", Align::Right),
            ("SWITCHES", Align::Right),
            ("WOKE", Align::Right),
            ("STOPPED", Align::Right),
            ("RESUMED", Align::Right),
            ("WHOLE", Align::Right),
            ("BARE", Align::Right),
            ("STRAGGLERS", Align::Right),
        ]);
        for row in &self.rows {
            table.row([
                row.method.into(),
                row.processes.to_string(),
                row.switches.to_string(),
                row.woke.shown(),
                row.stopped.shown(),
                row.resumed.shown(),
                row.whole.shown(),
                match (row.bare_us, row.over_bare()) {
                    (Some(bare), Some(ratio)) => format!("{bare} ({ratio:.2})"),
                    _ => "-".into(),
                },
                row.stragglers.to_string(),
            ]);
        }
        let missing: String =
            self.missing.iter().map(|it| format!("Not measured: {}.\n", it.shown())).collect();
        let freezer = if self.freezer { "" } else { "\nNo freezer: all of it by signals." };
        print(&format!(
            "Two jobs of N busy processes each; median / 99 % in microseconds\nReal-time priority of \
             the switch thread: {}{freezer}\nBARE: the same writes by a C program, median, and how many \
             times that STOPPED and RESUMED are\n\n{}{missing}{}",
            self.realtime,
            table.render(),
            self.gaps.as_ref().map_or_else(String::new, Gaps::text)
        ))
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = self.rows.iter().map(|row| self.figure(row)).collect();
        figures.extend(self.missing.iter().map(|it| {
            let what = format!("switch, {} busy processes a job, {}", it.processes, it.method);
            Figure::missing(&what, &it.why, "")
        }));
        figures.extend(self.rows.iter().filter_map(|row| {
            let over = row.over_bare()?;
            let what = format!("that of {} processes over the bare writes", row.processes);
            Some(Figure::goal(&what, format!("{over:.2} times"), "2 times", over <= 2.0))
        }));
        figures.extend(self.gaps.as_ref().map(|gaps| {
            let what = "what a job of 15 processes sees of a switch";
            Figure::goal(what, gaps.measured(), "median under 1.00 ms", gaps.median_us < 1000)
        }));
        figures
    }

    fn figure(&self, row: &Row) -> Figure {
        let what = format!("switch, {} busy processes a job, {}", row.processes, row.method);
        let measured = format!(
            "{} (99 %: {})",
            super::contend::ms(row.whole.median_us),
            super::contend::ms(row.whole.p99_us)
        );
        let most = match (row.method, row.processes) {
            ("freeze", 15) => 400,
            ("freeze", 100) => 1000,
            ("freeze", 1000) => 10_000,
            _ => return Figure::shown(&what, measured),
        };
        let goal = format!("median under {}", super::contend::ms(most));
        if !self.freezer || self.realtime != "yes" {
            let why = format!("{measured}; without freezer or real-time priority");
            return Figure::missing(&what, &why, &goal);
        }
        Figure::goal(&what, measured, &goal, row.whole.median_us < most)
    }
}
