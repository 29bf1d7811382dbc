//! `tutti-bench`: measures this machine, as ratios between things that run in turns.
//!
//! Every benchmark but `order`, `dhc` and `sim` starts an instance of its own, which ends with it.
//! Nothing in here decides whether a test passes: on a busy machine times are what they are.
//! `docs/benchmarks/README.md` says what each figure means.
#![deny(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
extern crate tutti_node;

mod contend;
mod dhc;
mod faces;
mod figures;
mod fill;
mod grain;
mod hollow;
mod idle;
mod journal;
mod launch;
mod levels;
mod mpi;
mod order;
mod overhead;
mod processes;
mod programs;
mod restart;
mod scratch;
mod sim;
mod stdio;
mod switch;
mod t3d;
mod track;
mod tree;

use clap::{Parser, Subcommand};
use figures::Figure;
use std::process::ExitCode;
use tutti_client::JobOptions;
use tutti_node::codes::code_of;
use tutti_node::executable::use_tutti_beside;
use tutti_node::exit::Exit;

/// Measures this machine: launch, switch, overhead, output, the control tree, simulations. Without
/// a benchmark's name, all of them, with the table of figures.
#[derive(Parser, Debug)]
#[command(name = "tutti-bench", version, max_term_width = 100)]
struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,

    /// Fewer repetitions: minutes become seconds, and the figures rough
    #[arg(long, global = true)]
    quick: bool,

    /// As JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Starting programs, against plain fork and exec and against MPICH's hydra
    Launch,
    /// Switching between two jobs, by number of processes and method
    Switch(switch::SwitchArgs),
    /// What taking turns costs, against one job after the other
    Overhead(overhead::OverheadArgs),
    /// Two jobs whose ranks need each other often: in turns, against left to the kernel
    Grain,
    /// Jobs that often wait, by how they are suspended
    Fill,
    /// Output of eight ranks through a pipe, against MPICH's hydra
    Stdio,
    /// Memory and wake-ups of an instance that has nothing to do
    Idle,
    /// Submits that are on disk, a controller's return, replay
    Journal,
    /// What running jobs notice of a controller that is killed
    Restart,
    /// Knowing of every process that begins and ends
    Track,
    /// Simulations: time and memory, and how long one decision takes on a large machine
    Sim(sim::SimArgs),
    /// What the order of the line does to means, tails and fairness, on traces and on a model
    Order(order::OrderArgs),
    /// Distributed hierarchical control against a matrix and batch, on synthetic loads
    Dhc(dhc::DhcArgs),
    /// The fixed set of jobs of the LLNL paper under three schedulers, live and in small
    T3d,
    /// What people look at: the page, its events, `top`, and `logs -f`
    Faces(faces::FacesArgs),
    /// The control tree: joining, and a message to all nodes, by nodes and fan-out
    Tree(tree::TreeArgs),
    /// No benchmark: a cluster of nodes that start nothing, while a command runs
    Hollow(hollow::HollowArgs),
    #[command(hide = true)]
    Processes(processes::ProcessesArgs),
    #[command(hide = true)]
    Work(tutti_client::work::WorkArgs),
}

/// What all benchmarks share.
#[derive(Clone, Copy, Debug)]
struct Bench {
    quick: bool,
}

fn main() -> ExitCode {
    let exit = execute(BenchArgs::parse()).unwrap_or_else(|error| {
        say!("tutti-bench: {}", code_of(&error).mark(&format!("{error:#}")));
        Exit::FAILED
    });
    exit.code().into()
}

/// Runs one benchmark, or all of them for the table of figures.
///
/// # Errors
/// If something could not be measured.
fn execute(args: BenchArgs) -> anyhow::Result<Exit> {
    let bench = Bench { quick: args.quick };
    if !matches!(args.what, Some(What::Processes(_) | What::Work(_))) {
        use_tutti_beside()?;
        tutti_client::noise::warn("tutti-bench");
    }
    match args.what {
        Some(What::Launch) => launch::measure(&bench)?.show(args.json)?,
        Some(What::Switch(what)) => switch::measure(&bench, &what)?.show(args.json)?,
        Some(What::Overhead(what)) => overhead::measure(&bench, &what)?.show(args.json)?,
        Some(What::Grain) => grain::show(grain::measure(&bench)?.as_ref(), args.json)?,
        Some(What::Fill) => fill::measure(&bench)?.show(args.json)?,
        Some(What::Stdio) => stdio::measure(&bench)?.show(args.json)?,
        Some(What::Idle) => idle::measure(&bench)?.show(args.json)?,
        Some(What::Journal) => figures::show(&journal::measure(&bench)?, args.json)?,
        Some(What::Restart) => figures::show(&restart::measure(&bench)?, args.json)?,
        Some(What::Track) => track::measure(&bench)?.show(args.json)?,
        Some(What::Sim(what)) => figures::show(&sim::measure(&bench, &what)?, args.json)?,
        Some(What::Order(what)) => order::measure(&bench, &what)?.show(args.json)?,
        Some(What::Dhc(what)) => dhc::measure(&bench, &what)?.show(args.json)?,
        Some(What::T3d) => t3d::measure(&bench)?.show(args.json)?,
        Some(What::Faces(what)) => figures::show(&faces::measure(&bench, &what)?, args.json)?,
        Some(What::Tree(what)) => tree::measure(&bench, &what)?.show(args.json)?,
        Some(What::Hollow(what)) => return Ok(Exit::of_job(hollow::execute(&what)?)),
        Some(What::Processes(what)) => return processes::execute(&what),
        Some(What::Work(what)) => return tutti_client::work::execute(&what),
        None => return all(&bench, args.json),
    }
    Ok(Exit::OK)
}

/// One that fails does not keep the others from being shown.
fn all(bench: &Bench, json: bool) -> anyhow::Result<Exit> {
    let mut failed = false;
    let mut figures = Vec::new();
    let mut take = |name: &str, result: anyhow::Result<Vec<Figure>>| match result {
        Ok(more) => figures.extend(more),
        Err(error) => {
            failed = true;
            figures.push(Figure::missing(name, &format!("failed: {error:#}"), ""));
        }
    };
    take("launch", launch::measure(bench).map(|report| report.figures()));
    take("stdio", stdio::measure(bench).map(|report| report.figures()));
    let what = switch::SwitchArgs::default();
    take("switch", switch::measure(bench, &what).map(|report| report.figures()));
    let what = overhead::OverheadArgs::default();
    take("overhead", overhead::measure(bench, &what).map(|report| report.figures()));
    take("grain", grain::measure(bench).map(|report| grain::figures(report.as_ref())));
    take("fill", fill::measure(bench).map(|report| report.figures()));
    take("idle", idle::measure(bench).map(|report| report.figures()));
    take("track", track::measure(bench).map(|report| report.figures()));
    take("journal", journal::measure(bench));
    take("restart", restart::measure(bench));
    take("sim", sim::measure(bench, &sim::SimArgs::default()));
    figures::show(&figures, json)?;
    Ok(if failed { Exit::FAILED } else { Exit::OK })
}

/// Says on standard error what is being measured: all of it takes minutes.
fn progress(what: &str) {
    say!("tutti-bench: {what} ...");
}

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    job: JobOptions,
}

/// A job as `run` and `submit` make it without options, but for its size.
fn options(tasks: u32, processors: Option<u32>) -> anyhow::Result<JobOptions> {
    let job = Defaults::try_parse_from(["bench"])?.job;
    Ok(JobOptions { tasks: Some(tasks), processors, ..job })
}

/// How many processors this machine has for tasks.
fn processors() -> u32 {
    u32::try_from(tutti_linux::allowance::Allowance::read().processors().len())
        .unwrap_or(u32::MAX)
        .max(1)
}
