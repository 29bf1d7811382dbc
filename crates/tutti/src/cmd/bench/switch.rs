//! `tutti bench switch`: how long a switch takes, by number of processes and method.
//!
//! Two jobs want all processors, each a task that is a binary tree of busy processes. What is shown
//! comes from the switch thread's own records.

use super::figures::Figure;
use super::scratch::Scratch;
use super::{Bench, options, processors, progress};
use crate::cmd::own::{OwnInstance, percentile};
use crate::output::{Align, Table, print, print_json};
use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tutti_core::{ClassName, JobId, Nanos};
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

    /// How long a turn is [default: 50ms; by signals longer, so that a switch fits into it]
    #[arg(long, value_name = "TIME")]
    quantum: Option<String>,
}

const SIZES: [u32; 5] = [3, 7, 15, 100, 1000];
const QUANTUM: Nanos = Nanos::from_millis(50);

/// What a turn has at least for each process that is switched by signals.
const QUANTUM_PER_SIGNALLED: Nanos = Nanos::from_millis(3);

/// How many switches are wanted of each kind.
struct Wanted {
    switches: u64,
    /// The longest that they are waited for, as long as there are enough of them.
    length_max: Nanos,
    switches_least: u64,
    /// How many times the expected time they may take before what came is all.
    patience: u32,
}

const THOROUGH: Wanted =
    Wanted { switches: 100, length_max: Nanos::from_secs(60), switches_least: 20, patience: 20 };
const QUICK: Wanted =
    Wanted { switches: 25, length_max: Nanos::from_secs(5), switches_least: 3, patience: 3 };

impl Default for SwitchArgs {
    fn default() -> Self {
        Self { processes: SIZES.to_vec(), method: Methods::Both, quantum: None }
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
    /// Switches that went on without a process that had not stopped in time.
    stragglers: usize,
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

/// How long two trees may take to be complete, for each of their processes, and at least.
const READY_PER_PROCESS: Duration = Duration::from_millis(100);
const READY_LEAST: Duration = Duration::from_secs(20);

pub(super) fn measure(bench: &Bench, args: &SwitchArgs) -> anyhow::Result<Report> {
    let own = OwnInstance::start("bench")?;
    let scratch = Scratch::new("switch")?;
    let quantum = match &args.quantum {
        Some(text) => Some(parse_duration(text).map_err(|error| anyhow::anyhow!("{error}"))?),
        None => None,
    };
    own.set("freeze_deadline", DEADLINE)?;
    let Reply::Status(status) = own.ask(&Request::Status)? else {
        return crate::cmd::unexpected();
    };
    let Some(agent) = status.agents.first() else { bail!("the instance has no node") };
    let mut report =
        Report { realtime: agent.realtime.clone(), freezer: agent.freezer, rows: Vec::new() };
    let methods: &[&str] = match args.method {
        Methods::Freeze => &["freeze"],
        Methods::Signal => &["signal"],
        Methods::Both => &["freeze", "signal"],
    };
    let wanted = if bench.quick { QUICK } else { THOROUGH };
    for &method in methods {
        for &processes in &args.processes {
            progress(&format!("switch: {method}, {processes} processes a job"));
            let trees = Trees { own: &own, scratch: &scratch, method, processes };
            let quantum = quantum.unwrap_or_else(|| default_quantum(method, processes));
            own.set("quantum", &format!("{}ns", quantum.0))?;
            report.rows.push(trees.measure(&wanted, quantum)?);
        }
    }
    own.end()?;
    Ok(report)
}

/// A switch that takes longer than a turn begins late, and the lateness is all that would be seen.
fn default_quantum(method: &str, processes: u32) -> Nanos {
    match method {
        "signal" => QUANTUM.max(Nanos(QUANTUM_PER_SIGNALLED.0 * u64::from(processes))),
        _ => QUANTUM,
    }
}

/// Two jobs of busy trees.
struct Trees<'a> {
    own: &'a OwnInstance,
    scratch: &'a Scratch,
    method: &'static str,
    processes: u32,
}

impl Trees<'_> {
    fn measure(&self, wanted: &Wanted, quantum: Nanos) -> anyhow::Result<Row> {
        let class = ClassName::new(&format!("bench-{}", self.method));
        let settings = vec![("control".into(), self.method.into())];
        self.own.ask(&Request::SetClass { class: class.clone(), settings })?;
        let (first, first_ready) = self.start(&class, "first")?;
        let (second, second_ready) = self.start(&class, "second")?;
        self.wait_for(&[first_ready, second_ready])?;
        let records = self.records(wanted, quantum)?;
        for job in [first, second] {
            self.end(job)?;
        }
        Ok(self.row(&records))
    }

    fn start(&self, class: &ClassName, name: &str) -> anyhow::Result<(JobId, PathBuf)> {
        let mut job = options(1, Some(processors()))?;
        job.class = Some(class.to_string());
        job.name = Some(name.into());
        let ready = self.scratch.path(format!("{}-{}-{name}", self.method, self.processes));
        let argv = [
            std::env::current_exe()?.into_os_string(),
            "bench".into(),
            "processes".into(),
            self.processes.to_string().into(),
            "busy".into(),
            "--ready".into(),
            ready.clone().into_os_string(),
        ];
        Ok((self.own.submit(&job, &argv)?, ready))
    }

    fn wait_for(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        let patience = Instant::now() + READY_LEAST.max(READY_PER_PROCESS * self.processes);
        while !files.iter().all(|file| file.exists()) {
            ensure!(
                self.own.jobs()?.len() >= files.len(),
                "a tree of {} processes could not be started",
                self.processes
            );
            ensure!(
                Instant::now() < patience,
                "two trees of {} processes were not complete in time",
                self.processes
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sleeps while the switches happen: asking would disturb them.
    fn records(&self, wanted: &Wanted, quantum: Nanos) -> anyhow::Result<Vec<SwitchRecord>> {
        let since = tutti_linux::clock::monotonic_ns();
        let most = (wanted.length_max.0 / quantum.0.max(1)).max(wanted.switches_least);
        let count = wanted.switches.min(most);
        let expected = Duration::from_nanos(quantum.0) * u32::try_from(count)?;
        let patience = Instant::now() + expected * wanted.patience + Duration::from_secs(5);
        loop {
            std::thread::sleep(expected + Duration::from_millis(100));
            let mut records = self.own.switches(u32::MAX)?;
            records.retain(|r| r.due_ns >= since && !r.left.is_empty() && !r.came.is_empty());
            if records.len() as u64 >= count || Instant::now() > patience {
                return Ok(records);
            }
        }
    }

    fn end(&self, job: JobId) -> anyhow::Result<()> {
        self.own.ask(&Request::Cancel { target: job.into(), at_once: true })?;
        // It was killed: its exit code is no news.
        self.own.ask(&Request::Wait { job })?;
        Ok(())
    }

    fn row(&self, records: &[SwitchRecord]) -> Row {
        Row {
            method: self.method,
            processes: self.processes,
            switches: records.len(),
            woke: Spread::of(records, |r| r.began_ns.saturating_sub(r.due_ns)),
            stopped: Spread::of(records, |r| r.stopped_ns.saturating_sub(r.began_ns)),
            resumed: Spread::of(records, |r| r.resumed_ns.saturating_sub(r.stopped_ns)),
            whole: Spread::of(records, |r| r.resumed_ns.saturating_sub(r.due_ns)),
            stragglers: records.iter().filter(|r| r.stragglers > 0).count(),
        }
    }
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut table = Table::new(&[
            ("METHOD", Align::Left),
            ("PROCESSES", Align::Right),
            ("SWITCHES", Align::Right),
            ("WOKE", Align::Right),
            ("STOPPED", Align::Right),
            ("RESUMED", Align::Right),
            ("WHOLE", Align::Right),
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
                row.stragglers.to_string(),
            ]);
        }
        let freezer = if self.freezer { "" } else { "\nNo freezer: all of it by signals." };
        print(&format!(
            "Two jobs of N busy processes each; median / 99 % in microseconds\nReal-time priority of \
             the switch thread: {}{freezer}\n\n{}",
            self.realtime,
            table.render()
        ))
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        self.rows.iter().map(|row| self.figure(row)).collect()
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
