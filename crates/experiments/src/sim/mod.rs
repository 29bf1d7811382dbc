//! `tutti sim`: what the scheduler would do with a workload, without running it.
//!
//! [`options`] is what can be asked, [`source`] where jobs come from, [`model`] how models are
//! described, [`making`] what becomes of jobs before they are simulated, [`run`] one simulation;
//! [`table`], [`files`] and [`pictures`] show what came of it. [`fuzz`] tries the scheduler itself.

mod ahead;
mod files;
mod fuzz;
mod making;
mod mapping;
mod model;
pub(crate) mod nodes;
mod options;
mod parts;
mod passed_over;
mod pictures;
mod program;
mod progress;
mod run;
mod settings;
mod source;
mod t3d;
mod table;

use anyhow::bail;
use clap::{Args, Subcommand};
use options::{Options, Outputs};
use pictures::Plots;
use run::{Report, Setup, simulate};
use source::Origin;
use std::path::PathBuf;
use tutti_client::output::{print, print_json, print_table};
use tutti_node::exit::Exit;

/// What `tutti sim` can be told.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = options::help())]
pub struct SimArgs {
    #[command(subcommand)]
    what: Option<What>,

    /// Traces in the Standard Workload Format, plain or gzip; each is simulated by itself
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Policy and its settings: gang, or gang,rows=5,quantum=200s
    #[arg(long, value_name = "POLICY", default_value = "gang")]
    policy: String,

    #[command(flatten)]
    outputs: Outputs,

    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Compare several policies on the same workload
    Compare(Box<CompareArgs>),
    /// Check the scheduler with random events, from seeds
    Fuzz(fuzz::FuzzArgs),
    /// Replay a script that fuzz wrote, step by step
    Replay(fuzz::ReplayArgs),
    /// Compare queue limits, swapping and the policy classes, as in the LLNL paper
    T3d(Box<t3d::T3dArgs>),
}

#[derive(Args, Debug)]
#[command(after_help = options::help_of_compare())]
struct CompareArgs {
    /// Trace in the Standard Workload Format, plain or gzip
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,

    /// Policy and its settings: gang, or gang,rows=5,quantum=200s; repeat it for each policy
    #[arg(long = "policy", value_name = "POLICY", required = true)]
    policies: Vec<String>,

    #[command(flatten)]
    options: Options,
}

/// Simulates.
///
/// # Errors
/// If the workload, an option or an output file is wrong.
pub fn execute(args: SimArgs) -> anyhow::Result<Exit> {
    match args.what {
        Some(What::Compare(args)) => compare(*args),
        Some(What::Fuzz(args)) => fuzz::fuzz(&args),
        Some(What::Replay(args)) => fuzz::replay(&args),
        Some(What::T3d(args)) => t3d::execute(*args),
        None => each(args),
    }
}

/// One policy, each trace by itself.
fn each(args: SimArgs) -> anyhow::Result<Exit> {
    let SimArgs { what: _, traces, policy, outputs, options } = args;
    let origins = origins(&options, &traces)?;
    if origins.len() > 1 && outputs.writes_files() {
        bail!("--jobs-csv, --swf and --timeline write one run; give one trace");
    }
    let runs: Vec<Run<'_>> = origins.iter().map(|origin| (origin, policy.as_str())).collect();
    all(&runs, &options, &outputs)
}

/// One trace, each policy by itself.
fn compare(args: CompareArgs) -> anyhow::Result<Exit> {
    let CompareArgs { trace, policies, options } = args;
    let origins = origins(&options, trace.as_slice())?;
    let runs: Vec<Run<'_>> = policies.iter().map(|policy| (&origins[0], policy.as_str())).collect();
    all(&runs, &options, &Outputs::default())
}

/// What is simulated, and under which policy.
type Run<'a> = (&'a Origin, &'a str);

/// Simulates one after the other, and shows them together.
fn all(runs: &[Run<'_>], options: &Options, outputs: &Outputs) -> anyhow::Result<Exit> {
    let plots = Plots::parse(&options.plots, runs.len())?;
    let mut reports = Vec::new();
    let mut seen = Vec::new();
    for (origin, policy) in runs {
        let setup = Setup::new(origin, policy, options)?;
        let (report, picture) = simulate(setup, options, (outputs, &plots), &mut ())?;
        reports.push(report);
        seen.push(picture);
    }
    plots.draw(&reports, seen)?;
    show(&reports, options)
}

/// Where jobs come from: the traces, or one model.
fn origins(options: &Options, traces: &[PathBuf]) -> anyhow::Result<Vec<Origin>> {
    match (&options.generate, traces) {
        (None, []) => bail!(
            "nothing to simulate; name a trace, or make jobs with --generate lublin (also poisson, \
             t3d)"
        ),
        (None, traces) => Ok(traces.iter().cloned().map(Origin::File).collect()),
        (Some(model), []) => Ok([Origin::Model(model.parse()?)].into()),
        (Some(_), [trace, ..]) => {
            bail!("--generate makes jobs, and {} has some; choose one of them", trace.display())
        }
    }
}

fn show(reports: &[Report], options: &Options) -> anyhow::Result<Exit> {
    for (index, report) in reports.iter().enumerate() {
        // Under each policy it is the same.
        let alike = |before: &Report| {
            (&before.workload, &before.passed_over) == (&report.workload, &report.passed_over)
        };
        let said = reports[..index].iter().any(alike);
        for line in report.passed_over.iter().filter(|_| !said) {
            say!("tutti: {}: {line}", report.workload);
        }
    }
    if options.json {
        print_json(reports)?;
        return Ok(Exit::OK);
    }
    if let [report] = reports {
        print(&table::one(report))?;
    } else {
        print_table(&table::several(reports))?;
    }
    for report in reports.iter().filter(|report| !report.groups.is_empty()) {
        print(&format!("\n{}\n", table::title(report)))?;
        print_table(&table::groups(report, options.by))?;
    }
    Ok(Exit::OK)
}
