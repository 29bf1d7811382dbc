//! `tutti-bench sim`: how fast the scheduler simulates, how much memory that takes, and how long
//! one decision takes on a large machine.
//!
//! Each run is a whole `tutti sim`, with reading and writing, as a process of its own: so its
//! memory is its own too.

mod apply;
mod growth;
mod process;

use super::figures::Figure;
use super::{Bench, progress};
use anyhow::Context;
use clap::Args;
use process::simulate;
use std::fs;
use std::path::{Path, PathBuf};

/// What `tutti-bench sim` can be told.
#[derive(Args, Debug, Default)]
pub(super) struct SimArgs {
    /// A directory with workload traces: .swf or .swf.gz
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,

    /// Draw how the time of a job grows with nodes and with jobs, as .svg or .png, and measure
    /// nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "traces")]
    growth: Option<PathBuf>,

    /// Measure only how long one decision takes on a large machine
    #[arg(long, conflicts_with_all = ["traces", "growth"])]
    decisions: bool,
}

/// One simulation, and what it must reach.
struct Run {
    what: String,
    args: Vec<String>,
    goal: Option<Goal>,
}

/// Less than so much.
#[derive(Clone, Copy)]
struct Goal {
    seconds: f64,
    memory_mb: f64,
}

const GANG: &str = "gang,rows=5,quantum=200s";

/// What is known of some traces of the archive.
const GOALS: &[(&str, &str, Goal)] = &[
    ("KTH-SP2-1996-2", "space:easy", Goal { seconds: 0.1, memory_mb: 500.0 }),
    ("RICC-2010-2", "space:fcfs", Goal { seconds: 1.0, memory_mb: 500.0 }),
    ("RICC-2010-2", "space:easy", Goal { seconds: 5.0, memory_mb: 500.0 }),
    ("RICC-2010-2", GANG, Goal { seconds: 15.0, memory_mb: 500.0 }),
];

/// Measures, or draws.
///
/// # Errors
/// If a simulation fails, or there is no trace.
pub(super) fn measure(bench: &Bench, args: &SimArgs) -> anyhow::Result<Vec<Figure>> {
    if let Some(file) = &args.growth {
        return growth::draw(bench, file);
    }
    if args.decisions {
        return apply::measure(bench);
    }
    let runs = match &args.traces {
        Some(directory) => traces(directory)?,
        None => generated(bench),
    };
    let mut figures = Vec::new();
    for run in runs {
        progress(&run.what);
        figures.push(run.measure()?);
    }
    if args.traces.is_none() {
        figures.extend(apply::measure(bench)?);
    }
    Ok(figures)
}

impl Run {
    fn measure(&self) -> anyhow::Result<Figure> {
        let run = simulate(&self.args)?;
        let memory_mb = run.memory_peak_bytes as f64 / 1e6;
        let measured = format!("{:.2} s, {memory_mb:.0} MB", run.seconds);
        Ok(match self.goal {
            None => Figure::shown(&self.what, measured),
            Some(goal) => {
                let must_reach = format!("{} s, {} MB", goal.seconds, goal.memory_mb);
                let reached = run.seconds < goal.seconds && memory_mb < goal.memory_mb;
                Figure::goal(&self.what, measured, &must_reach, reached)
            }
        })
    }
}

/// Jobs of a model, so that all measure the same.
fn generated(bench: &Bench) -> Vec<Run> {
    let small = |policy: &str| {
        let jobs = if bench.quick { "10000" } else { "100000" };
        let args = ["--generate", "lublin", "--load", "0.8", "--jobs", jobs, "--policy", policy];
        run(format!("{jobs} jobs on 128 processors, {policy}"), &args, None)
    };
    // Jobs of up to 40,000 processors come and go for ten days, of 100,000 nodes' time.
    let large = |load: &str| {
        let (jobs, goal) = match bench.quick {
            true => ("20000", None),
            false => ("1000000", Some(Goal { seconds: 60.0, memory_mb: 2000.0 })),
        };
        let mut args = vec!["--generate", "lublin:processors=40000,estimates=3", "--load", load];
        args.extend(["--nodes", "100000", "--processors-per-node", "64", "--jobs", jobs]);
        args.extend(["--policy", "gang:easy"]);
        run(format!("{jobs} jobs on 100,000 nodes of 64, load {load}, gang:easy"), &args, goal)
    };
    let wide = || {
        let jobs = if bench.quick { "1000" } else { "10000" };
        let mut args = vec!["--generate", "lublin", "--load", "0.7", "--jobs", jobs];
        args.extend(["--nodes", "100000", "--processors-per-node", "64", "--policy", "gang:easy"]);
        run(format!("{jobs} jobs as wide as 100,000 nodes of 64 allow, gang:easy"), &args, None)
    };
    let mut runs: Vec<Run> = ["space:easy", "gang:easy", GANG].map(small).into();
    runs.extend(["0.70", "0.98"].map(large));
    runs.push(wide());
    runs
}

fn run(what: String, args: &[&str], goal: Option<Goal>) -> Run {
    Run { what, args: args.iter().map(|&arg| arg.to_owned()).collect(), goal }
}

/// Every trace under three policies.
fn traces(directory: &Path) -> anyhow::Result<Vec<Run>> {
    let shown = directory.display();
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {shown}"))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    let mut runs = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".swf") else {
            continue;
        };
        for policy in ["space:fcfs", "space:easy", GANG] {
            let goal = GOALS.iter().find(|goal| (goal.0, goal.1) == (name, policy));
            let path = file.display().to_string();
            let args = [path.as_str(), "--clean", "--lenient", "--policy", policy];
            runs.push(run(format!("{name}, {policy}"), &args, goal.map(|goal| goal.2)));
        }
    }
    anyhow::ensure!(!runs.is_empty(), "there is no .swf or .swf.gz in {shown}");
    Ok(runs)
}
