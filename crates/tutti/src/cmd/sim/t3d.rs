//! `tutti sim t3d`: the comparison of the LLNL paper, on a stand-in for its workload.
//!
//! Before: jobs share the machine in space, each runs to its end, and the batch system keeps
//! processors free for interactive jobs by limits that change with the hour ("T3D configuration,
//! results"; limits by user and by queue are left out, since the stand-in knows neither). After:
//! the policy `classes` with the daytime parameters, jobs that may come back elsewhere, and moves
//! that take as long as theirs did: the whole machine out and in again in eight minutes.

use super::options::{Options, Outputs};
use super::pictures::Plots;
use super::run::{Report, Setup, simulate};
use super::source::Origin;
use crate::exit::Exit;
use crate::output::{Align, Table, print, print_json, print_table};
use anyhow::bail;
use clap::Args;
use tutti_core::Nanos;
use tutti_sim::Results;
use tutti_wire::units::format_seconds;

#[derive(Args, Debug)]
pub(super) struct T3dArgs {
    #[command(flatten)]
    options: Options,
}

/// As long as the paper's table.
const WEEKS: Nanos = Nanos::from_secs(12 * 7 * 24 * 3600);

/// What the batch system allowed, by the hour: all batch jobs are of one class.
const QUEUE_LIMITS: [&str; 4] = [
    "interactive:wait=never,do_not_disturb=never",
    "production:wait=never,do_not_disturb=never,processors=192,jobs=8",
    "04:00-18:00/production:processors=96",
    "00:00-04:00/production:processors=256",
];

/// What of the daytime parameters is not the default, since it is meant for this machine.
const DAYTIME: [&str; 1] = ["mon-fri 08:00-18:00/benchmark:processors=64"];

/// Half of eight minutes, for each of 256 processors.
const MOVE_COST_EACH: Nanos = Nanos::from_millis(940);

pub(super) fn execute(args: T3dArgs) -> anyhow::Result<Exit> {
    let mut options = args.options;
    if options.generate.is_some() || options.by.is_some() || !options.plots.is_empty() {
        bail!("this simulates a model of its own, by class; leave out --generate, --by and --plot");
    }
    options.generate = Some("t3d".to_owned());
    options.by = Some(super::options::By::Class);
    options.horizon.get_or_insert(WEEKS);
    let (mut before, mut after) = (options.clone(), options.clone());
    before.classes.extend(QUEUE_LIMITS.map(str::to_owned));
    before.as_class.extend(["benchmark=production", "standby=production"].map(str::to_owned));
    after.classes.extend(DAYTIME.map(str::to_owned));
    after.movable = true;
    after.move_cost_each = MOVE_COST_EACH;
    let reports = [simulated(&before)?, simulated(&after)?];
    if options.json {
        print_json(&reports)?;
        return Ok(Exit::OK);
    }
    let [before, after] = &reports;
    print(&format!(
        "{} jobs of a mix like that of LLNL's Cray T3D, on {} processors\n\n",
        before.submitted,
        before.nodes * before.processors_per_node
    ))?;
    print_table(&table(before, after))?;
    Ok(Exit::OK)
}

fn simulated(options: &Options) -> anyhow::Result<Report> {
    let origin = Origin::Model("t3d".parse()?);
    let setup = Setup::new(&origin, "classes", options)?;
    let plots = Plots::parse(&[], 1)?;
    Ok(simulate(setup, options, &Outputs::default(), &plots)?.0)
}

fn table(before: &Report, after: &Report) -> Table {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("QUEUE LIMITS", Align::Right),
        ("CLASSES", Align::Right),
        ("PAPER, BEFORE", Align::Right),
        ("PAPER, AFTER", Align::Right),
    ]);
    let percent = |part: &f64| format!("{:.1} %", part * 100.0);
    let mut row = |cells: [String; 5]| table.row(cells);
    let weeks = before.utilisation_by_week.iter().zip(&after.utilisation_by_week);
    for (week, (before, after)) in (1..).zip(weeks) {
        let title = format!("utilisation, week {week}");
        row([title, percent(before), percent(after), String::new(), String::new()]);
    }
    let [first, second] = [before, after].map(|report| percent(&report.utilisation));
    row(["utilisation".into(), first, second, "28.6 %".into(), "45.3 %".into()]);
    for (title, is_batch) in [("interactive", false), ("batch", true)] {
        let [first, second] = [before, after].map(|report| means(report, is_batch));
        for (what, first, second) in [("wait", first.0, second.0), ("response", first.1, second.1)]
        {
            let [first, second] = [first, second].map(shown);
            row([format!("{title}: mean {what}"), first, second, String::new(), String::new()]);
        }
    }
    table
}

/// The mean wait and response of interactive jobs, or of all others, in seconds.
fn means(report: &Report, is_batch: bool) -> (f64, f64) {
    let is_wanted = |it: &&Results| (it.group.as_deref() != Some("interactive")) == is_batch;
    let mean = |of: fn(&Results) -> f64| {
        let wanted = || report.groups.iter().filter(is_wanted);
        let jobs: u64 = wanted().map(|it| it.jobs).sum();
        wanted().map(|it| of(it) * it.jobs as f64).sum::<f64>() / jobs.max(1) as f64
    };
    (mean(|it| it.wait_s.mean), mean(|it| it.response_s.mean))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn shown(seconds: f64) -> String {
    format_seconds(seconds.round() as u64)
}
