//! `tutti-bench dhc`: distributed hierarchical control against a plain matrix and batch, on
//! synthetic loads.
//!
//! Sizes are uniform, harmonic, or powers of two. Harmonic means `n` processors with a chance in
//! proportion to `1/n`. Arrivals are Poisson, and run times exponential. Each load is simulated
//! with several seeds under each of [`SCHEDULERS`], all with the same jobs. Means have intervals
//! that hold the true mean with 95 % confidence.
//!
//! *Utilisation* is measured where there is more to do than the machine can: at [`OVERLOAD`], up
//! to the last submission. *Slowdown* is measured at loads that can be served.
//!
//! With `--count`, messages of admissions are counted instead ([`count`]).
//!
//! With `--page FILE` the tables between two marks of a page are replaced. The figures are written
//! beside it as JSON. With `--picture FILE` a picture is drawn.

mod count;

use self::count::Count;
use super::order::{Page, settings, shown};
use super::{Bench, progress};
use anyhow::Context;
use clap::Args;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::path::PathBuf;
use tutti_client::output::{print, print_json};
use tutti_sim::picture::{Mark, Panel2d, Plot, PlotCurve, Scale, check, save};
use tutti_sim::{Estimates, Job, Machine, SimError, Summary, Workload, run};
use tutti_trace::model::{Estimates as ModelEstimates, Poisson, PoissonModel, Service, Sizes};
use tutti_types::{ClusterTime, Nanos, default_classes};

/// Options of `tutti-bench dhc`.
#[derive(Args, Debug, Default)]
pub(super) struct DhcArgs {
    /// Jobs of each simulation [default: 400]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// How many seeds each load is simulated with [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=30))]
    seeds: Option<u64>,

    /// Instead, count the messages of an admission, on hollow nodes
    #[arg(long, conflicts_with_all = ["jobs", "seeds", "page", "picture"])]
    count: bool,

    /// With --count: on how many nodes, the head among them [default: 8,64,512,4096]
    #[arg(long, requires = "count", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(2..=4096))]
    nodes: Vec<u16>,

    /// Page whose tables are replaced; the same as JSON is written beside it
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Picture of the slowdowns, as SVG or PNG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

const PROCESSORS: u32 = 128;
const MEAN_RUN_S: f64 = 100.0;
const JOBS: usize = 400;
const QUICK_JOBS: usize = 100;
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 2;
/// The load that is offered where utilisation is measured.
const OVERLOAD: f64 = 1.5;
/// The loads where slowdowns are measured.
const LOADS: [f64; 5] = [0.3, 0.45, 0.6, 0.75, 0.9];

/// The two-sided 95 % quantile of Student's t, by degrees of freedom from 1 on.
const T_95: [f64; 29] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
];

/// The marks between which a page has its tables.
const MARKS: [&str; 2] =
    ["<!-- made by tutti-bench dhc: begin -->\n", "<!-- made by tutti-bench dhc: end -->\n"];

/// A scheduler: its name, policy and parameters. Under `dhc`, each level has as many rows as `rows`
/// says.
struct Scheduler {
    name: &'static str,
    policy: &'static str,
    rows: u64,
    packing: &'static str,
}

const SCHEDULERS: [Scheduler; 5] = [
    Scheduler { name: "dhc", policy: "dhc", rows: 32, packing: "first-fit" },
    Scheduler { name: "matrix", policy: "gang", rows: 32, packing: "first-fit" },
    Scheduler { name: "matrix, buddy", policy: "gang", rows: 32, packing: "buddy" },
    Scheduler { name: "batch, FCFS", policy: "space:fcfs", rows: 1, packing: "first-fit" },
    Scheduler { name: "batch, EASY", policy: "space:easy", rows: 1, packing: "first-fit" },
];

/// A mean over seeds, and how far the true one may be from it, with 95 % confidence.
#[derive(Clone, Copy, Debug, Serialize)]
struct Mean {
    mean: f64,
    within: f64,
}

impl Mean {
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let t = T_95.get(values.len().saturating_sub(2)).copied().unwrap_or(1.96);
        Self { mean, within: t * (squares / (count - 1.0) / count).sqrt() }
    }

    fn shown(self, scale: f64) -> String {
        format!("{} ± {}", shown(self.mean * scale), shown(self.within * scale))
    }
}

/// All that came out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    jobs: usize,
    seeds: u64,
    sizes: Vec<Of>,
    /// Of clusters of several sizes, if that was counted instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Count>,
}

/// One distribution of sizes.
#[derive(Debug, Serialize)]
struct Of {
    sizes: &'static str,
    rows: Vec<Row>,
}

/// One scheduler.
#[derive(Debug, Serialize)]
struct Row {
    scheduler: &'static str,
    utilisation: Mean,
    /// By load.
    slowdown: Vec<(f64, Mean)>,
    response_s: Vec<(f64, Mean)>,
}

fn distributions() -> [(&'static str, Sizes); 3] {
    let harmonic = (1..=PROCESSORS).map(|size| (size, 1_000_000 / size));
    [
        ("uniform", Sizes::Uniform { least: 1, most: PROCESSORS }),
        ("harmonic", Sizes::Weighted(harmonic.collect())),
        ("powers of two", Sizes::PowersOfTwo { most: PROCESSORS }),
    ]
}

/// Simulates all.
///
/// # Errors
/// If something can't be simulated, or a file can't be written.
pub(super) fn measure(bench: &Bench, args: &DhcArgs) -> anyhow::Result<Report> {
    if args.count {
        return Ok(Report { messages: count::measure(bench, &args.nodes)?, ..Report::default() });
    }
    let page = args.page.as_deref().map(|path| Page::read(path, MARKS)).transpose()?;
    args.picture.as_deref().map(check).transpose()?;
    let jobs = args.jobs.unwrap_or(if bench.quick { QUICK_JOBS } else { JOBS });
    let seeds = args.seeds.unwrap_or(if bench.quick { QUICK_SEEDS } else { SEEDS });
    let mut sizes = Vec::new();
    for (name, distribution) in distributions() {
        let mut rows = Vec::new();
        for scheduler in &SCHEDULERS {
            progress(&format!("dhc: {name}, {}", scheduler.name));
            rows.push(measured(&distribution, scheduler, (jobs, seeds))?);
        }
        sizes.push(Of { sizes: name, rows });
    }
    let report = Report { jobs, seeds, sizes, messages: Vec::new() };
    if let Some(page) = page {
        page.write(&report.markdown(), &report)?;
    }
    if let Some(path) = &args.picture {
        save(&report.picture(), path)?;
    }
    Ok(report)
}

fn measured(
    sizes: &Sizes,
    scheduler: &Scheduler,
    (jobs, seeds): (usize, u64),
) -> anyhow::Result<Row> {
    let mut utilisations = Vec::new();
    for seed in 1..=seeds {
        utilisations.push(busy(&loaded(sizes, OVERLOAD, (jobs, seed))?, scheduler)?);
    }
    let (mut slowdown, mut response_s) = (Vec::new(), Vec::new());
    for load in LOADS {
        let (mut slowdowns, mut responses) = (Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let results =
                simulated(&loaded(sizes, load, (jobs, seed))?, scheduler, None)?.results();
            slowdowns.push(results.slowdown.mean);
            responses.push(results.response_s.mean);
        }
        slowdown.push((load, Mean::of(&slowdowns)));
        response_s.push((load, Mean::of(&responses)));
    }
    let utilisation = Mean::of(&utilisations);
    Ok(Row { scheduler: scheduler.name, utilisation, slowdown, response_s })
}

/// The part of the machine's time that jobs used until the last one came.
fn busy(jobs: &[Job], scheduler: &Scheduler) -> anyhow::Result<f64> {
    let last = jobs.last().context("there are jobs")?.submit;
    let summary = simulated(jobs, scheduler, Some(last))?;
    Ok(summary.utilisation())
}

fn simulated(
    jobs: &[Job],
    scheduler: &Scheduler,
    horizon: Option<ClusterTime>,
) -> anyhow::Result<Summary> {
    let machine = Machine::of_processors(PROCESSORS)?;
    let mut settings = settings(machine, (scheduler.policy, "arrival"))?;
    settings.params.set("rows", scheduler.rows)?;
    settings.params.choose("packing", scheduler.packing)?;
    settings.params.set("quantum", Nanos::from_secs(1).0)?;
    settings.horizon = horizon;
    let mut summary = Summary::new(PROCESSORS, None);
    let workload = jobs.iter().map(|&job| Ok::<Job, Infallible>(job));
    run(&settings, workload, &mut summary).map_err(|error| match error {
        SimError::Workload(never) => match never {},
        error => anyhow::anyhow!("{}: {error}", scheduler.name),
    })?;
    Ok(summary)
}

/// The jobs of a load and a seed. Users know how long they run, for the schedulers that ask.
fn loaded(sizes: &Sizes, load: f64, (jobs, seed): (usize, u64)) -> anyhow::Result<Vec<Job>> {
    let model = PoissonModel {
        machine_processors: PROCESSORS,
        arrival_mean_s: MEAN_RUN_S,
        service: Service::Exponential { mean_s: MEAN_RUN_S },
        sizes: sizes.clone(),
        estimates: ModelEstimates::Exact,
    };
    let poisson = Poisson::new(model.with_load(load), seed)?;
    let classes: Vec<_> = default_classes().into_keys().collect();
    let workload = Workload::new(&poisson.header(), Estimates::Trace, &classes);
    poisson.take(jobs).map(|record| Ok(workload.job(&record, 0)?)).collect()
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        print(&self.markdown())?;
        Ok(())
    }

    fn markdown(&self) -> String {
        if !self.messages.is_empty() {
            return count::markdown(&self.messages);
        }
        // Writing to a string can't fail.
        let mut text = format!(
            "\nMeans of {} seeds of {} jobs, with 95 % confidence:\n",
            self.seeds,
            shown(self.jobs as f64)
        );
        for of in &self.sizes {
            let loads: Vec<String> = LOADS.map(|load| format!("at load {load}")).to_vec();
            let _ = write!(
                text,
                "\nSizes {}:\n\n| | utilisation, % | slowdown {} |\n",
                of.sizes,
                loads.join(" | ")
            );
            let _ = writeln!(text, "|---|---|{}", "---|".repeat(LOADS.len()));
            for row in &of.rows {
                let cells: Vec<String> =
                    row.slowdown.iter().map(|(_, mean)| mean.shown(1.0)).collect();
                let utilisation = row.utilisation.shown(100.0);
                let _ =
                    writeln!(text, "| {} | {utilisation} | {} |", row.scheduler, cells.join(" | "));
            }
        }
        text.push('\n');
        text
    }

    /// Slowdown by load, for the sizes that differ most from powers of two.
    fn picture(&self) -> Plot {
        let rows = self.sizes.iter().take(1).flat_map(|of| &of.rows).enumerate();
        let curves = rows.map(|(colour, row)| PlotCurve {
            name: row.scheduler.into(),
            points: row.slowdown.iter().map(|(load, mean)| (*load, mean.mean)).collect(),
            mark: Mark::Both,
            colour,
        });
        Plot {
            title: "Mean bounded slowdown, uniform sizes".into(),
            curves: curves.collect(),
            panels: vec![Panel2d { x: "load".into(), y: "slowdown".into(), scale: Scale::Log }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_student() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]);
        // The standard deviation is 1, and t with two degrees of freedom 4.303.
        assert_eq!(mean.mean, 2.0);
        assert!((mean.within - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn all_is_written_between_the_marks() {
        let directory = tempfile::tempdir().unwrap();
        let (page, picture) = (directory.path().join("page.md"), directory.path().join("it.svg"));
        std::fs::write(&page, format!("# Title\n\n{}{}", MARKS[0], MARKS[1])).unwrap();
        let args = DhcArgs {
            jobs: Some(20),
            seeds: Some(2),
            count: false,
            nodes: Vec::new(),
            page: Some(page.clone()),
            picture: Some(picture.clone()),
        };
        let report = measure(&Bench { quick: true }, &args).unwrap();
        for row in report.sizes.iter().flat_map(|of| &of.rows) {
            assert!(row.utilisation.mean > 0.0 && row.utilisation.mean <= 1.0, "{row:?}");
        }
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("| batch, EASY |") && text.ends_with(MARKS[1]), "{text}");
        assert!(std::fs::read_to_string(&picture).unwrap().contains("uniform sizes"));
    }
}
