//! `tutti sim t3d`: the comparisons of the LLNL paper, on stand-ins for its workloads.
//!
//! Before: what UNICOS MAX and the batch system did. Jobs share the machine in space, get the first
//! block that is free in the order in which they came, and keep it to their end. To leave
//! processors to interactive jobs, the batch system limits what batch jobs may have: by the hour,
//! by their number, and by user ("T3D configuration, results"). Limits of single queues are left
//! out, which allow more than these nearly always.
//!
//! Swapping: a stand-in for the Distributed Job Manager (DJM), whose algorithm is not published. Of
//! it the paper says: it "is a preemptive scheduler", its "code to accomplish job swapping is new",
//! and its "additional interactivity" comes "at the cost of processors idled for job swapping". To
//! *relocate* jobs is named as what the Gang Scheduler adds. So here: jobs are preempted for
//! interactive ones, in the same time and after the same time without disturbance as after; they
//! come back on their own processors only; batch jobs preempt none; and the batch system limits
//! jobs as after.
//!
//! After: the policy `classes` with the daytime parameters and the limits on jobs that the batch
//! system had then; jobs that may come back elsewhere; and moves that take as long as theirs did:
//! the whole machine out and in again in eight minutes.
//!
//! Either way a job gets an aligned block, of a power of two. Barrier circuits are left out: the
//! job that waited for one is not told.
//!
//! [`weeks`] is the first comparison, [`benchmark`] the second; [`watch`] counts what they need.

mod benchmark;
mod watch;
mod weeks;

use super::model::Model;
use super::options::{By, Options, Outputs};
use super::pictures::Plots;
use super::run::{Report, Setup, simulate};
use super::source::Origin;
use anyhow::bail;
use clap::Args;
use serde::Serialize;
use tutti_client::output::{print, print_json, print_table};
use tutti_node::exit::Exit;
use tutti_trace::model::Staff;
use tutti_types::Nanos;
use tutti_wire::units::format_seconds;
use watch::{Seen, Watch};

const EXAMPLES: &str = "\
Examples:
  tutti sim t3d --json
  tutti sim t3d --generate t3d-benchmark       the paper's second comparison";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct T3dArgs {
    #[command(flatten)]
    options: Options,
}

/// How jobs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    Swap,
    After,
}

/// A simulation of a side.
#[derive(Debug, Serialize)]
struct Run {
    scheduler: &'static str,
    #[serde(flatten)]
    seen: Seen,
    #[serde(flatten)]
    report: Report,
}

/// What the batch system allowed, by the hour: all batch jobs are of one class. Interactive jobs
/// have no precedence: the first to ask is served first.
const BATCH_LIMITS: [&str; 4] = [
    "interactive:priority=2,wait=never,do_not_disturb=never",
    "production:priority=2,wait=never,do_not_disturb=never,processors=192,jobs=8,jobs_per_user=2",
    "04:00-18:00/production:processors=96",
    "00:00-04:00/production:processors=256",
];
const BATCH: [&str; 2] = ["benchmark=production", "standby=production"];

/// What of the daytime parameters, and of the batch system's limits after, is not the default.
const DAYTIME: [&str; 2] =
    ["production:jobs=20,jobs_per_user=8", "mon-fri 08:00-18:00/benchmark:processors=64"];

/// What the swapping stand-in has besides: jobs of a batch class never preempt others.
const SWAP: [&str; 3] = ["production:wait=never", "benchmark:wait=never", "standby:wait=never"];

/// Half of eight minutes, for each of 256 processors.
const MOVE_COST_EACH: Nanos = Nanos::from_millis(940);

pub(super) fn execute(args: T3dArgs) -> anyhow::Result<Exit> {
    let mut options = args.options;
    let model = model(options.generate.as_deref())?;
    refuse(&options)?;
    options.by = Some(By::Class);
    options.feedback = true;
    options.settings.push("packing=buddy".to_owned());
    let (weeks, benchmark) = (weeks::simulated(&model, &options)?, benchmark::simulated(&options)?);
    if options.json {
        print_json(&weeks.iter().chain(benchmark.iter().flatten()).collect::<Vec<_>>())?;
        return Ok(Exit::OK);
    }
    print(&format!(
        "Users like those at LLNL's Cray T3D, waiting for their results, on {} processors\n\n",
        weeks[0].report.processors
    ))?;
    print_table(&weeks::table(&weeks))?;
    print("\nA fixed set of jobs: seconds until the last one is done\n\n")?;
    print_table(&benchmark::table(&benchmark))?;
    print("\nSWAPPING is a stand-in for DJM, whose algorithm is not published.\n")?;
    Ok(Exit::OK)
}

fn model(generate: Option<&str>) -> anyhow::Result<Model> {
    match generate.map(str::parse).transpose()? {
        None => Ok(Model::T3dUsers(Staff::default())),
        Some(model @ Model::T3dUsers(_)) => Ok(model),
        Some(_) => bail!(
            "this simulates users that wait for their results; leave out --generate, or say how many \
             they are, such as --generate t3d-users:production=20"
        ),
    }
}

/// What would make these comparisons others.
fn refuse(options: &Options) -> anyhow::Result<()> {
    if options.by.is_some() || !options.plots.is_empty() {
        bail!("this has tables of its own, by class; leave out --by and --plot");
    }
    if options.begins.is_some() || options.feedback_hours.is_some() {
        bail!(
            "these people begin on a Monday at midnight and keep hours of their own; leave out --begins \
             and --feedback-hours"
        );
    }
    if options.load.is_some() || options.stretch.is_some() {
        bail!(
            "users that wait for their results have no arrivals to stretch; say how many they are, \
             such as --generate t3d-users:production=20"
        );
    }
    Ok(())
}

impl Side {
    const ALL: [Self; 3] = [Self::Before, Self::Swap, Self::After];

    fn simulate(self, model: &Model, options: &Options) -> anyhow::Result<Run> {
        let mut options = options.clone();
        match self {
            Self::Before => {
                options.classes.extend(BATCH_LIMITS.map(str::to_owned));
                options.as_class.extend(BATCH.map(str::to_owned));
            }
            Self::Swap => {
                options.classes.extend(DAYTIME.iter().chain(&SWAP).map(|&it| it.to_owned()));
                options.move_cost_each = MOVE_COST_EACH;
            }
            Self::After => {
                options.classes.extend(DAYTIME.map(str::to_owned));
                options.movable = true;
                options.move_cost_each = MOVE_COST_EACH;
            }
        }
        let origin = Origin::Model(model.clone());
        let setup = Setup::new(&origin, "classes", &options)?;
        let mut watch = Watch::new(&setup);
        let outputs = (&Outputs::default(), &Plots::parse(&[], 1)?);
        let (report, _) = simulate(setup, &options, outputs, &mut watch)?;
        let scheduler = match self {
            Self::Before => "queue limits",
            Self::Swap => "swapping (stand-in for DJM)",
            Self::After => "classes",
        };
        Ok(Run { scheduler, seen: watch.seen(), report })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn shown(seconds: f64) -> String {
    format_seconds(seconds.round() as u64)
}
