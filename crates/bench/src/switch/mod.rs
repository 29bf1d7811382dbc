//! `tutti-bench switch`: how long a switch takes, by number of processes and method.
//!
//! Two jobs want all processors, each a task that is a binary tree of processes, busy or idle. What
//! is shown comes from the switch thread's own records; beside it stands what the same cgroup
//! writes cost a small C program in the same run, and what the jobs themselves see of a switch.
//! With `--curves`, switches by signals against the retry interval, beside the process-tracking
//! paper's model. With `--all`, all of it and what else is promised of switching and of following
//! processes, with the table of figures.

mod bare;
mod curves;
mod gaps;
mod model;
mod report;
mod rows;
mod trees;

pub(super) use gaps::write as write_stretches;

use super::processes::Kind;
use super::scratch::Scratch;
use super::{Bench, grain, progress, track};
use anyhow::Context;
use bare::Bare;
use clap::{Args, ValueEnum};
use report::Report;
use rows::{Missing, Row};
use std::path::PathBuf;
use trees::{Shape, Trees, Wanted};
use tutti_client::scratch::ScratchInstance;
use tutti_types::Nanos;
use tutti_wire::units::parse_duration;

#[derive(Args, Debug)]
pub(super) struct SwitchArgs {
    /// How many processes each job has
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = SIZES)]
    processes: Vec<u32>,

    /// What they do; of trees too large to be busy on this machine, only idle ones are measured
    #[arg(long, value_enum, default_value_t = Kinds::Both)]
    kind: Kinds,

    /// How jobs are suspended
    #[arg(long, value_enum, default_value_t = Methods::Both)]
    method: Methods,

    /// How long a turn is [default: 50ms; where switches take long, longer, so that one fits into
    /// it]
    #[arg(long, value_name = "TIME")]
    quantum: Option<String>,

    /// Instead: every order of signals against retry intervals, on one processor and on all, beside
    /// the model of the process-tracking paper
    #[arg(long)]
    curves: bool,

    /// The curves, drawn as the paper's figures 3 to 5 into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,

    /// Also the curves, `bench track` and `bench grain`, and the table of figures: all that is
    /// promised of switching and of following processes
    #[arg(long, conflicts_with = "curves")]
    all: bool,
}

const SIZES: [u32; 6] = [3, 7, 15, 100, 1000, 5000];
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
    /// With more processes it is not measured unless it is asked for: a switch would take seconds.
    processes_max: u32,
}

static FREEZE: Way = Way {
    name: "freeze",
    control: "freeze",
    traversal: "breadth-first",
    quantum_each: Nanos(50_000),
    processes_max: u32::MAX,
};
/// Busy processes wait for a processor before they stop, level after level.
static SIGNAL: Way = Way {
    name: "signal",
    control: "signal",
    traversal: "breadth-first",
    quantum_each: Nanos::from_millis(10),
    processes_max: 100,
};
static SIGNAL_AT_ONCE: Way = Way {
    name: "signal-at-once",
    control: "signal",
    traversal: "all-at-once",
    quantum_each: Nanos::from_millis(1),
    processes_max: u32::MAX,
};

const THOROUGH: Wanted =
    Wanted { switches: 100, length_max: Nanos::from_secs(60), switches_least: 20, patience: 20 };
const QUICK: Wanted =
    Wanted { switches: 25, length_max: Nanos::from_secs(5), switches_least: 3, patience: 3 };

impl Default for SwitchArgs {
    fn default() -> Self {
        Self {
            processes: SIZES.to_vec(),
            kind: Kinds::Both,
            method: Methods::Both,
            quantum: None,
            curves: false,
            figures: None,
            all: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kinds {
    Busy,
    Idle,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Methods {
    Freeze,
    Signal,
    Both,
}

/// How long a switch may wait for processes to stop here: the true time is wanted, not the limit.
const DEADLINE: &str = "10s";

pub(super) fn measure(bench: &Bench, args: &SwitchArgs) -> anyhow::Result<Report> {
    let shapes = args.shapes()?;
    let scratch = Scratch::new("switch")?;
    let own = start()?;
    let mut report = Report::of(&own)?;
    if args.wants_rows() {
        let bare = match args.method {
            Methods::Signal => None,
            _ => report.note_missing(Bare::new(&scratch)),
        };
        for (way, shape) in shapes {
            match measure_row(bench, args, (&own, &scratch), (way, shape), bare.as_ref()) {
                Ok(row) => report.rows.push(row),
                // What was measured before stays to be shown.
                Err(error) => report.missing.push(Missing::of(way.name, shape, &error)),
            }
        }
        if report.freezer && args.method != Methods::Signal && args.kind != Kinds::Idle {
            progress("switch: what the jobs see of it");
            report.gaps = Some(gaps::measure(&own, &scratch, if bench.quick { 3 } else { 10 })?);
        }
    }
    own.end()?;
    if args.wants_curves() {
        report.curves = Some(curves::measure(bench, &scratch, args.figures.as_deref())?);
    }
    if args.all {
        report.track = Some(track::measure(bench)?);
        report.grain = Some(grain::measure(bench)?);
        report.add_figures();
    }
    Ok(report)
}

fn measure_row(
    bench: &Bench,
    args: &SwitchArgs,
    (own, scratch): (&ScratchInstance, &Scratch),
    (way, shape): (&'static Way, Shape),
    bare: Option<&Bare>,
) -> anyhow::Result<Row> {
    let wanted = if bench.quick { QUICK } else { THOROUGH };
    let Shape { processes, kind } = shape;
    progress(&format!("switch: {}, {processes} {} processes a job", way.name, kind.word()));
    let quantum = match &args.quantum {
        Some(text) => parse_duration(text).map_err(|error| anyhow::anyhow!("{error}"))?,
        None => way.quantum(processes),
    };
    own.set("traversal", way.traversal)?;
    own.set("quantum", &format!("{}ns", quantum.0))?;
    let trees = Trees::start(own, scratch, way.control, shape, &[])?;
    let records = trees.records(wanted, quantum)?;
    trees.end()?;
    let bare = bare.filter(|_| way.control == "freeze");
    let bare_us = bare.map(|bare| bare.median_us(shape, wanted.switches)).transpose()?;
    Ok(Row::of(way.name, shape, &records, bare_us))
}

fn start() -> anyhow::Result<ScratchInstance> {
    let own = ScratchInstance::start("bench")?;
    own.set("freeze_deadline", DEADLINE)?;
    Ok(own)
}

impl Way {
    /// A switch that takes longer than a turn begins late, and the lateness is all that would be
    /// seen.
    fn quantum(&self, processes: u32) -> Nanos {
        QUANTUM.max(Nanos(self.quantum_each.0 * u64::from(processes)))
    }
}

impl SwitchArgs {
    const fn wants_curves(&self) -> bool {
        self.curves || self.figures.is_some() || self.all
    }

    const fn wants_rows(&self) -> bool {
        self.all || !self.wants_curves()
    }

    /// What is measured. What was not asked for by name and would take too long is left out.
    fn shapes(&self) -> anyhow::Result<Vec<(&'static Way, Shape)>> {
        let ways: &[&Way] = match self.method {
            Methods::Freeze => &[&FREEZE],
            Methods::Signal => &[&SIGNAL, &SIGNAL_AT_ONCE],
            Methods::Both => &[&FREEZE, &SIGNAL, &SIGNAL_AT_ONCE],
        };
        let kinds: &[Kind] = match self.kind {
            Kinds::Busy => &[Kind::Busy],
            Kinds::Idle => &[Kind::Idle],
            Kinds::Both => &[Kind::Busy, Kind::Idle],
        };
        let are_asked = self.processes != SIZES;
        let mut shapes = Vec::new();
        for &way in ways {
            for &kind in kinds {
                for &processes in &self.processes {
                    let is_too_many = processes > kind.most();
                    let is_slow = processes > way.processes_max && !are_asked
                        || way.control == "signal"
                            && kind == Kind::Idle
                            && self.kind == Kinds::Both;
                    if is_slow || is_too_many && kind == Kind::Busy && self.kind == Kinds::Both {
                        continue;
                    }
                    kind.allows(processes).context("--processes")?;
                    shapes.push((way, Shape { processes, kind }));
                }
            }
        }
        Ok(shapes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(args: &SwitchArgs) -> Vec<(&'static str, u32, Kind)> {
        let shapes = args.shapes().unwrap().into_iter();
        shapes.map(|(way, it)| (way.name, it.processes, it.kind)).collect()
    }

    #[test]
    fn so_many_processes_as_are_never_busy_are_measured_idle() {
        let most = Kind::Busy.most();
        let args = SwitchArgs { processes: vec![3, most + 1], ..SwitchArgs::default() };
        let expected = [
            ("freeze", 3, Kind::Busy),
            ("freeze", 3, Kind::Idle),
            ("freeze", most + 1, Kind::Idle),
            ("signal", 3, Kind::Busy),
            ("signal-at-once", 3, Kind::Busy),
        ];
        assert_eq!(shapes(&args), expected);
        let busy = SwitchArgs { kind: Kinds::Busy, ..args };
        assert!(busy.shapes().is_err());
        let none = SwitchArgs { processes: vec![0], ..SwitchArgs::default() };
        assert!(none.shapes().is_err());
    }

    #[test]
    fn thousands_are_switched_by_signals_only_if_somebody_asks() {
        let idle =
            SwitchArgs { kind: Kinds::Idle, method: Methods::Signal, ..SwitchArgs::default() };
        let most = |shape: &(&str, u32, Kind)| if shape.0 == "signal" { 100 } else { u32::MAX };
        assert!(shapes(&idle).iter().all(|shape| shape.1 <= most(shape)));
        let asked = SwitchArgs { processes: vec![2000], ..idle };
        assert_eq!(shapes(&asked)[0], ("signal", 2000, Kind::Idle));
    }
}
