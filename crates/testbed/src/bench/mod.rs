//! `testbed bench`: what a cluster costs, measured on one that stands on this machine.
//!
//! All nodes share this machine's processors, so the figures say what Tutti does rather than what a
//! network of real machines would take. Nothing in here decides whether a test passes.
//! `docs/benchmarks/README.md` says what each figure means.

mod launch;
mod logs;
mod output;
mod switches;
mod turns;

use crate::shell::Ends;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread::available_parallelism;
use tutti_testbed::{Options, Testbed};

/// What `testbed bench` can be told.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Measure only this
    what: Option<What>,

    /// How many nodes
    #[arg(long, default_value_t = 8)]
    nodes: usize,

    /// The tutti program; the one beside this unless given
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,

    /// The compiler of another MPICH than the system's for the MPI programs, which find MPICH's
    /// settings in their environment
    #[arg(long, value_name = "PROGRAM")]
    mpicc: Option<PathBuf>,

    /// Fewer repetitions: the figures are rough
    #[arg(long)]
    quick: bool,

    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Starting a rank on each node, and MPI with eight on each
    Launch,
    /// How far apart the nodes switch, and whether they need the controller for it
    Switches,
    /// Two MPI jobs over all nodes in turns, against one after the other
    Turns,
    /// Output of a rank on each node to one front end, and how long nodes take to answer meanwhile
    Output,
    /// `tutti logs` of files on another node
    Logs,
}

/// What was measured, and what it is to reach.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    what: String,
    measured: String,
    /// Empty where a figure is only reported.
    must_reach: String,
    /// Nothing where it is only reported.
    reached: Option<bool>,
}

impl Figure {
    fn goal(what: &str, measured: String, must_reach: &str, reached: bool) -> Self {
        let must_reach = must_reach.into();
        Self { what: what.into(), measured, must_reach, reached: Some(reached) }
    }

    fn shown(what: &str, measured: String) -> Self {
        Self { what: what.into(), measured, must_reach: String::new(), reached: None }
    }
}

/// A standing cluster, and how thoroughly it is measured.
struct Bench {
    bed: Testbed,
    options: Options,
    /// Where `tutti` is.
    path: String,
    mpicc: Option<PathBuf>,
    quick: bool,
    ends: Rc<Ends>,
}

impl Bench {
    fn up(
        options: Options,
        path: String,
        (mpicc, quick): (Option<PathBuf>, bool),
        ends: Rc<Ends>,
    ) -> anyhow::Result<Self> {
        let bed = Testbed::new(&options)?;
        bed.up_while(|| ends.next().is_none())?;
        Ok(Self { bed, options, path, mpicc, quick, ends })
    }

    /// Another cluster beside this one, with so many nodes of one processor each: as many nodes as
    /// this machine has processors have one to themselves, and more share them evenly.
    fn of_one_processor(&self, nodes: usize) -> anyhow::Result<Self> {
        let name = format!("{}-{nodes}", self.options.name);
        let processors = Some(NonZero::<usize>::MIN);
        let options = Options { name, nodes, processors, ..self.options.clone() };
        Self::up(
            options,
            self.path.clone(),
            (self.mpicc.clone(), self.quick),
            Rc::clone(&self.ends),
        )
    }

    /// The same with as many nodes as this machine has processors, each with one to itself; nothing
    /// if that is no other cluster than this, or a single node.
    fn one_for_each_processor(&self) -> anyhow::Result<Option<Self>> {
        let processors = available_parallelism()?.get();
        let is_other = (2..self.nodes()).contains(&processors);
        is_other.then(|| self.of_one_processor(processors)).transpose()
    }

    /// How often something is measured.
    const fn rounds(&self, usual: usize, quick: usize) -> usize {
        if self.quick { quick } else { usual }
    }

    fn nodes(&self) -> usize {
        self.bed.nodes().len()
    }

    /// What a shell script on the first node writes; `$1` and so on are `args`. To get onto the
    /// node takes longer than much of what is measured, so that is done by the script.
    ///
    /// # Errors
    /// With what the script says, if it fails.
    fn script(&self, text: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.bed.head().command("bash");
        command.args(["-ec", text, "bash"]).args(args).env("PATH", &self.path);
        Ok(String::from_utf8(self.ends.expect(command)?.stdout)?)
    }

    /// How many nanoseconds each of `rounds` runs of `command` takes, with the start of one `date`.
    fn time(&self, rounds: usize, command: &[&str]) -> anyhow::Result<Vec<f64>> {
        let text = "n=$1; shift; for ((i = 0; i < n; i++)); do a=$(date +%s%N); \"$@\" > /dev/null; \
                    b=$(date +%s%N); echo $((b - a)); done";
        let rounds = rounds.to_string();
        let told = self.script(text, &[&[rounds.as_str()], command].concat())?;
        told.lines().map(|line| line.parse().context("no time was measured")).collect()
    }

    /// A program of `tests/mpi`, compiled; nothing without the compiler.
    fn mpi_program(&self, program: &MpiProgram) -> anyhow::Result<Option<String>> {
        let built = self.bed.directory().join(program.name);
        let source = built.with_extension("c");
        std::fs::write(&source, program.source)
            .with_context(|| format!("cannot write {}", source.display()))?;
        let compiler = self.mpicc.as_deref().unwrap_or(Path::new("mpicc.mpich"));
        let mut command = Command::new(compiler);
        command.args(["-O2", "-o"]).args([&built, &source]).arg("-lm").stdin(Stdio::null());
        match command.output() {
            Ok(done) if done.status.success() => Ok(Some(built.display().to_string())),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                bail!("{}: {}", compiler.display(), said.trim())
            }
            Err(_) if self.mpicc.is_none() => Ok(None),
            Err(why) => Err(why).with_context(|| format!("cannot start {}", compiler.display())),
        }
    }
}

/// A program in C that is part of this one: the sources need not be where it runs.
struct MpiProgram {
    name: &'static str,
    source: &'static str,
}

const ALLTOALL: MpiProgram =
    MpiProgram { name: "alltoall", source: include_str!("../../../../tests/mpi/alltoall.c") };

const SOLVER: MpiProgram =
    MpiProgram { name: "solver", source: include_str!("../../../../tests/mpi/solver.c") };

const INIT: MpiProgram =
    MpiProgram { name: "init", source: include_str!("../../../../tests/mpi/init.c") };

/// Measures, and prints a table.
///
/// # Errors
/// If there can be no test bed here, or something on it fails.
pub(crate) fn run(args: &BenchArgs, program: &Path, path: String) -> anyhow::Result<()> {
    let options = Options {
        name: std::process::id().to_string(),
        program: program.to_owned(),
        directory: std::env::temp_dir(),
        nodes: args.nodes,
        clocks_ahead_s: Vec::new(),
        slow: None,
        params: Vec::new(),
        processors: None,
    };
    let ends = Rc::new(Ends::hold()?);
    let bench = Bench::up(options, path, (args.mpicc.clone(), args.quick), ends)?;
    let mut figures = Vec::new();
    for (what, measure) in [
        (What::Launch, launch::measure as fn(&Bench) -> anyhow::Result<Vec<Figure>>),
        (What::Switches, switches::measure),
        (What::Turns, turns::measure),
        (What::Output, output::measure),
        (What::Logs, logs::measure),
    ] {
        if args.what.is_none_or(|only| only == what) {
            figures.extend(measure(&bench)?);
        }
    }
    show(&figures, args.json)
}

fn show(figures: &[Figure], json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, figures)?;
        return Ok(writeln!(out)?);
    }
    let width = |of: fn(&Figure) -> &str| {
        figures.iter().map(|figure| of(figure).chars().count()).max().unwrap_or(0).max(10)
    };
    let (what, measured) = (width(|figure| &figure.what), width(|figure| &figure.measured));
    writeln!(out, "{:what$}  {:measured$}  MUST REACH", "WHAT", "MEASURED")?;
    for figure in figures {
        let verdict = match figure.reached {
            Some(true) => ": yes",
            Some(false) => ": NO",
            None => "",
        };
        let line = format!(
            "{:what$}  {:measured$}  {}{verdict}",
            figure.what, figure.measured, figure.must_reach
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The value that so much (0 to 1) of all values are at most; the values come into order.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place among some thousands"
    )]
    let place = (last as f64 * part).round() as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}

fn median(mut values: Vec<f64>) -> f64 {
    quantile(&mut values, 0.5)
}

const NS_PER_MS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((quantile(&mut [4.0, 1.0, 2.0, 3.0, 5.0], 1.0) - 5.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }
}
