//! `tutti-bench order`: what the order of the line does to means, tails and fairness, on traces and
//! on the model of Lublin and Feitelson.
//!
//! Each workload is simulated under each line of [`SCHEDULERS`]: first come first served and EASY
//! in the order of arrival, a scheduler *like* Slurm's with fair share ([`run_multifactor`]), and
//! the orders of the product. Traces pass the filter of [`CleanJob`] first. The model has no users:
//! each of its jobs gets one of [`MODEL_USERS`], the n-th of them with a chance in proportion to
//! 1/n.
//!
//! With `--page FILE` the table between two marks of a page of documentation is replaced, and the
//! figures are written beside it as JSON.

use super::{Bench, progress};
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_sim::{
    Estimates, Fairness, Job, Machine, Multifactor, Results, Settings, SimError, Summary, Workload,
    run, run_multifactor, set_policy,
};
use tutti_trace::model::{Estimates as ModelEstimates, Lublin, LublinModel};
use tutti_trace::{
    CleanJob, Header, Job as Record, ReadOptions, Stretch, Stretched, Tolerance, open,
};
use tutti_types::{Params, default_classes};

/// Options of `tutti-bench order`.
#[derive(Args, Debug, Default)]
pub(super) struct OrderArgs {
    /// Traces in the Standard Workload Format, plain or gzip; a model's workload comes after them
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Only the first jobs of each workload [default: all of a trace, 10,000 of the model]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Page whose table is replaced; the same as JSON is written beside it
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

const MODEL_PROCESSORS: u32 = 256;
const MODEL_JOBS: usize = 10_000;
const MODEL_LOAD: f64 = 0.8;
const MODEL_USERS: u32 = 64;
const QUICK_JOBS: usize = 1_000;

/// The marks between which a page has its table.
const MARKS: [&str; 2] =
    ["<!-- made by tutti-bench order: begin -->\n", "<!-- made by tutti-bench order: end -->\n"];

/// A scheduler and an order of the line.
struct Scheduler {
    name: &'static str,
    /// Policy and order of the product; `None`: the one that is like Slurm's.
    core: Option<(&'static str, &'static str)>,
}

const SCHEDULERS: [Scheduler; 7] = [
    Scheduler { name: "FCFS", core: Some(("space:fcfs", "arrival")) },
    Scheduler { name: "EASY", core: Some(("space:easy", "arrival")) },
    Scheduler { name: "like Slurm's fair share", core: None },
    Scheduler { name: "EASY, users in turn", core: Some(("space:easy", "users")) },
    Scheduler { name: "turns, by arrival", core: Some(("gang", "arrival")) },
    Scheduler { name: "turns, users in turn (default)", core: Some(("gang", "users")) },
    Scheduler { name: "turns, EASY, users in turn", core: Some(("gang:easy", "users")) },
];

/// All that came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    workloads: Vec<Of>,
}

/// One workload under all schedulers.
#[derive(Debug, Serialize)]
struct Of {
    workload: String,
    jobs: usize,
    processors: u32,
    /// Of the jobs' work over what the machine can do from first to last submission.
    offered_load: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    scheduler: &'static str,
    /// Policy and order; nothing for the one that is like Slurm's.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    utilisation: f64,
    #[serde(flatten)]
    results: Results,
    /// By the users' mean bounded slowdowns.
    fairness: Option<Fairness>,
}

/// Jobs in memory, and the machine that they are for.
struct Loaded {
    name: String,
    machine: Machine,
    jobs: Vec<Job>,
}

/// Simulates all.
///
/// # Errors
/// If a trace can't be read or simulated, or the page can't be written.
pub(super) fn measure(bench: &Bench, args: &OrderArgs) -> anyhow::Result<Report> {
    let most = args.jobs.unwrap_or(if bench.quick { QUICK_JOBS } else { usize::MAX });
    // A page that has no place for the table is known before minutes are spent.
    let page = args.page.as_deref().map(|path| Page::read(path, MARKS)).transpose()?;
    let mut workloads = Vec::new();
    for path in &args.traces {
        workloads.push(compared(&of_trace(path, most)?)?);
    }
    workloads.push(compared(&of_model(most.min(MODEL_JOBS))?)?);
    let report = Report { workloads };
    if let Some(page) = page {
        page.write(&report.markdown(), &report)?;
    }
    Ok(report)
}

fn of_trace(path: &Path, most: usize) -> anyhow::Result<Loaded> {
    // As `tutti sim --clean --lenient` reads it.
    let reader =
        open(path, ReadOptions { tolerance: Tolerance::Lenient, ..ReadOptions::default() })?;
    let header = reader.header().clone();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short = name.strip_suffix(".gz").unwrap_or(&name);
    let short = short.strip_suffix(".swf").unwrap_or(short).to_owned();
    let Some(machine) = Machine::of_header(&header).transpose()? else {
        bail!(
            "{name} does not say how large its machine is (MaxProcs); simulate it with tutti sim"
        );
    };
    let mut jobs = Vec::new();
    for record in reader {
        if jobs.len() == most {
            break;
        }
        // What the filter leaves out can't be compared.
        if let Ok(job) = CleanJob::of(record?, machine.processors()) {
            jobs.push(job.record().clone());
        }
    }
    ensure!(!jobs.is_empty(), "{name} has no job that can be simulated");
    Ok(Loaded { name: short, machine, jobs: made(&header, &jobs)? })
}

fn made(header: &Header, records: &[Record]) -> anyhow::Result<Vec<Job>> {
    let classes: Vec<_> = default_classes().into_keys().collect();
    let workload = Workload::new(header, Estimates::Trace, &classes);
    let jobs = records.iter().map(|record| Ok(workload.job(record, 0)?));
    jobs.collect()
}

/// The model's jobs, with users.
fn of_model(most: usize) -> anyhow::Result<Loaded> {
    let mut model = LublinModel::both(MODEL_PROCESSORS);
    // Users ask for up to three times as much as their jobs need.
    model.estimates = ModelEstimates::UpTo(3.0);
    let lublin = Lublin::new(&model, 1)?;
    let header = lublin.header();
    let records: Vec<Record> = lublin.take(most).collect();
    let mut summary = tutti_trace::Summary::default();
    for record in &records {
        if let Ok(job) = CleanJob::of(record.clone(), MODEL_PROCESSORS) {
            summary.add(&job);
        }
    }
    let offered = summary.offered_load(MODEL_PROCESSORS).context("the model made one job")?;
    let stretched = Stretched::new(records.into_iter(), Stretch::to_load(offered, MODEL_LOAD)?);
    let mut users = Users::new();
    let records: Vec<Record> =
        stretched.map(|record| Record { user: Some(u64::from(users.next())), ..record }).collect();
    let machine = Machine::of_processors(MODEL_PROCESSORS)?;
    Ok(Loaded { name: "Lublin's model".into(), machine, jobs: made(&header, &records)? })
}

/// Users of the model's jobs: the n-th with a chance in proportion to 1/n.
struct Users {
    random: u64,
    /// The sums of 1/n.
    sums: Vec<f64>,
}

impl Users {
    fn new() -> Self {
        let mut sum = 0.0;
        let sums = (1..=MODEL_USERS).map(|user| {
            sum += 1.0 / f64::from(user);
            sum
        });
        Self { random: 0x9e37_79b9_7f4a_7c15, sums: sums.collect() }
    }

    fn next(&mut self) -> u32 {
        // xorshift, so that every run is the same.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let all = self.sums.last().copied().unwrap_or(1.0);
        let at = (self.random >> 11) as f64 / (1u64 << 53) as f64 * all;
        let user = self.sums.partition_point(|&sum| sum <= at);
        u32::try_from(user + 1).unwrap_or(MODEL_USERS).min(MODEL_USERS)
    }
}

/// One workload under all schedulers.
fn compared(loaded: &Loaded) -> anyhow::Result<Of> {
    let Loaded { name, machine, jobs } = loaded;
    let mut rows = Vec::new();
    for scheduler in &SCHEDULERS {
        progress(&format!("order: {name}, {}", scheduler.name));
        let mut summary = Summary::new(machine.processors(), None);
        let workload = jobs.iter().map(|&job| Ok::<Job, Infallible>(job));
        let ran = match scheduler.core {
            Some(core) => run(&settings(*machine, core)?, workload, &mut summary),
            None => {
                let priority = Multifactor::default();
                run_multifactor(machine.processors(), priority, workload, &mut summary)
            }
        };
        ran.map_err(|error| match error {
            SimError::Workload(never) => match never {},
            error => anyhow::anyhow!("{name}, {}: {error}", scheduler.name),
        })?;
        rows.push(Row {
            scheduler: scheduler.name,
            policy: scheduler.core.map(|(policy, order)| format!("{policy},order={order}")),
            utilisation: summary.utilisation(),
            results: summary.results(),
            fairness: summary.fairness(),
        });
    }
    Ok(Of {
        workload: name.clone(),
        jobs: jobs.len(),
        processors: machine.processors(),
        offered_load: offered_load(jobs, machine.processors()),
        rows,
    })
}

fn offered_load(jobs: &[Job], processors: u32) -> f64 {
    let work: f64 = jobs.iter().map(|job| job.need().0 as f64 * f64::from(job.processors)).sum();
    let first = jobs.first().map_or(0, |job| job.submit.0);
    let last = jobs.last().map_or(0, |job| job.submit.0);
    work / ((last.saturating_sub(first)).max(1) as f64 * f64::from(processors))
}

pub(super) fn settings(
    machine: Machine,
    (policy, order): (&str, &str),
) -> anyhow::Result<Settings> {
    let mut params = Params::default();
    params.choose("migration", "off")?;
    set_policy(&mut params, policy)?;
    params.choose("order", order)?;
    Ok(Settings::new(machine, params))
}

/// A title, and the figure below it.
type Column = (&'static str, fn(&Row) -> f64);

/// The titles of the figures, and what they are.
const FIGURES: [Column; 9] = [
    ("mean wait, s", |row| row.results.wait_s.mean),
    ("95 %", |row| row.results.wait_s.p95),
    ("mean response, s", |row| row.results.response_s.mean),
    ("95 %", |row| row.results.response_s.p95),
    ("mean slowdown", |row| row.results.slowdown.mean),
    ("95 %", |row| row.results.slowdown.p95),
    ("user in the middle", |row| row.fairness.map_or(f64::NAN, |it| it.median_slowdown)),
    ("worst user", |row| row.fairness.map_or(f64::NAN, |it| it.worst_slowdown)),
    ("Jain", |row| row.fairness.map_or(f64::NAN, |it| it.jain)),
];

/// As many digits as help to compare.
pub(super) fn shown(value: f64) -> String {
    match value {
        value if value.is_nan() => "-".into(),
        // Counts are whole.
        value if value >= 10.0 && value.fract() == 0.0 && value < 1000.0 => format!("{value:.0}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place).is_multiple_of(3) {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
    }
}

impl Of {
    fn title(&self) -> String {
        let users = self.rows.iter().find_map(|row| row.fairness).map_or(0, |it| it.users);
        format!(
            "{}: {} jobs of {users} users, {} processors, load {:.2}",
            self.workload,
            shown(self.jobs as f64),
            shown(f64::from(self.processors)),
            self.offered_load
        )
    }
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        for of in &self.workloads {
            let mut columns = vec![("SCHEDULER", Align::Left)];
            columns.extend(FIGURES.map(|(title, _)| (title, Align::Right)));
            let mut table = Table::new(&columns);
            for row in &of.rows {
                let cells = FIGURES.iter().map(|(_, figure)| shown(figure(row)));
                table.row([row.scheduler.to_owned()].into_iter().chain(cells));
            }
            print(&format!("{}\n\n{}\n", of.title(), table.render()))?;
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        for of in &self.workloads {
            let titles: Vec<&str> = FIGURES.iter().map(|(title, _)| *title).collect();
            // Writing to a string can't fail.
            let _ = write!(text, "\n{}:\n\n| | {} |\n", of.title(), titles.join(" | "));
            let _ = writeln!(text, "|---|{}", "---|".repeat(FIGURES.len()));
            for row in &of.rows {
                let cells: Vec<String> =
                    FIGURES.iter().map(|(_, figure)| shown(figure(row))).collect();
                let _ = writeln!(text, "| {} | {} |", row.scheduler, cells.join(" | "));
            }
        }
        text.push('\n');
        text
    }
}

/// A page with marks for what is made.
pub(super) struct Page<'a> {
    path: &'a Path,
    /// Up to the first mark, with it.
    before: String,
    /// From the second mark on.
    after: String,
}

impl<'a> Page<'a> {
    pub(super) fn read(path: &'a Path, [begin, end]: [&str; 2]) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let parts = text.split_once(begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(end)?;
            Some((format!("{before}{begin}"), format!("{end}{after}")))
        });
        let Some((before, after)) = parts else {
            bail!(
                "{name} has no place for the table; write these two lines into it:\n{begin}{end}"
            );
        };
        Ok(Self { path, before, after })
    }

    /// Replaces what is between the marks, and writes the report beside the page as JSON.
    pub(super) fn write(&self, text: &str, report: &impl Serialize) -> anyhow::Result<()> {
        let Self { path, before, after } = self;
        let text = format!("{before}{text}{after}");
        let json = serde_json::to_string_pretty(report)? + "\n";
        for (path, text) in [(path.to_path_buf(), text), (path.with_extension("json"), json)] {
            let name = path.display();
            std::fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_all_but_its_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.md");
        std::fs::write(&path, format!("# Title\n\n{}old\n{}\nEnd.\n", MARKS[0], MARKS[1])).unwrap();
        let args = OrderArgs { jobs: Some(60), page: Some(path.clone()), traces: Vec::new() };
        let report = measure(&Bench { quick: true }, &args).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# Title\n\n") && text.ends_with("\nEnd.\n"), "{text}");
        assert!(text.contains("Lublin's model: 60 jobs") && !text.contains("old"), "{text}");
        assert!(text.contains("| turns, users in turn (default) |"), "{text}");
        let json = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["workloads"][0]["rows"].as_array().unwrap().len(), SCHEDULERS.len());
        for row in &report.workloads[0].rows {
            let jain = row.fairness.unwrap().jain;
            assert!(jain > 0.0 && jain <= 1.0 + 1e-9, "{jain}");
            assert_eq!(row.results.jobs, 60);
        }
        std::fs::write(&path, "no marks").unwrap();
        assert!(measure(&Bench { quick: true }, &args).unwrap_err().to_string().contains("begin"));
    }

    #[test]
    fn some_users_of_the_model_have_more_jobs() {
        let mut users = Users::new();
        let mut jobs = [0u32; MODEL_USERS as usize + 1];
        for _ in 0..10_000 {
            jobs[users.next() as usize] += 1;
        }
        assert!(jobs[0] == 0 && jobs[1] > 1_500 && jobs[64] > 0, "{jobs:?}");
        assert!(jobs[1] > jobs[8] && jobs[8] > jobs[64], "{jobs:?}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [1.234, 12.34, 123.4, 1_234_567.0].map(shown),
            ["1.23", "12.3", "123", "1,234,567"]
        );
        assert_eq!(shown(f64::NAN), "-");
    }
}
