//! `tutti demo`: two jobs that both want all processors take turns, before your eyes.

use super::own::{OwnInstance, percentile};
use super::work::rounds_for;
use crate::exit::Exit;
use crate::front::JobOptions;
use crate::output::{Align, Table, print};
use clap::{Args, Parser};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use tutti_core::{JobId, Nanos, Outcome};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::SwitchRecord;
use tutti_wire::units::parse_duration;

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How long a turn is
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    quantum: String,

    /// How long each job would run alone
    #[arg(long, value_name = "TIME", default_value = "3s")]
    length: String,
}

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    job: JobOptions,
}

/// Columns of the timeline that is drawn while the jobs run.
const COLUMNS: usize = 64;

pub(crate) fn execute(args: &DemoArgs) -> anyhow::Result<Exit> {
    let length = parse_duration(&args.length).map_err(|error| anyhow::anyhow!("{error}"))?;
    anyhow::ensure!(length.0 > 0 && length <= Nanos::from_secs(600), "--length is 1ms to 10m");
    let processors = tutti_linux::proc::online_processors().len();
    let own = OwnInstance::start("demo")?;
    own.set("quantum", &args.quantum)?;
    let demo = Demo::new(&own, processors, length)?;
    print(&format!(
        "Two jobs of {processors} tasks each; both want all {processors} processors of this \
         machine.\n\nFirst one after the other, as without Tutti ...\n"
    ))?;
    let alone = demo.back_to_back()?;
    print(&format!(
        "{:.2} s.\n\nNow both at once, in turns of {}:\n\n",
        seconds(alone),
        args.quantum
    ))?;
    let (together, outcomes, records) = demo.together()?;
    print(&format!("\n{:.2} s.\n\n", seconds(together)))?;
    print(&summary(&outcomes, together))?;
    print(&figures(&records, alone, together))?;
    own.end()?;
    print(&format!(
        "\nThe instance has ended and left nothing behind. Next: tutti run -n {processors} COMMAND\n"
    ))?;
    Ok(Exit::OK)
}

fn seconds(length: Duration) -> f64 {
    length.as_secs_f64()
}

struct Demo<'a> {
    own: &'a OwnInstance,
    options: JobOptions,
    argv: Vec<OsString>,
}

impl<'a> Demo<'a> {
    fn new(own: &'a OwnInstance, processors: usize, length: Nanos) -> anyhow::Result<Self> {
        let mut options = Defaults::try_parse_from(["demo"])?.job;
        options.tasks = u32::try_from(processors)?;
        options.processors = Some(1);
        let rounds = rounds_for(Duration::from_nanos(length.0)).to_string();
        let argv = vec![std::env::current_exe()?.into_os_string(), "work".into(), rounds.into()];
        Ok(Self { own, options, argv })
    }

    fn start(&self, name: &str) -> anyhow::Result<JobId> {
        let options = JobOptions { name: Some(name.into()), ..self.options.clone() };
        self.own.submit(&options, &self.argv)
    }

    fn back_to_back(&self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        for name in ["first", "second"] {
            let job = self.start(name)?;
            self.own.wait(job)?;
        }
        Ok(begin.elapsed())
    }

    fn together(&self) -> anyhow::Result<(Duration, BTreeMap<JobId, Outcome>, Vec<SwitchRecord>)> {
        let begin_ns = tutti_linux::clock::monotonic_ns();
        let begin = Instant::now();
        let jobs = [self.start("first")?, self.start("second")?];
        let mut waiting = jobs
            .iter()
            .map(|&job| {
                let mut link = self.own.connect()?;
                link.send(&Request::Wait { job });
                link.flush()?;
                Ok((job, link))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut outcomes = BTreeMap::new();
        let mut view = View::new(jobs, begin_ns);
        while !waiting.is_empty() {
            view.draw(&self.own.switches(u32::MAX)?)?;
            std::thread::sleep(Duration::from_millis(100));
            let mut still = Vec::new();
            for (job, mut link) in waiting {
                link.receive()?;
                match link.next::<Reply>()? {
                    Some(Reply::Ended { outcome, .. }) => drop(outcomes.insert(job, outcome)),
                    Some(_) | None => still.push((job, link)),
                }
            }
            waiting = still;
        }
        let records = self.own.switches(u32::MAX)?;
        let last = records.last().map_or(begin_ns, |record| record.resumed_ns);
        let together = begin.elapsed();
        view.finish(&records, last)?;
        let records = records.into_iter().filter(|record| record.due_ns >= begin_ns).collect();
        Ok((together, outcomes, records))
    }
}

/// The live timeline: one line a job, a block where it ran.
struct View {
    jobs: [JobId; 2],
    begin_ns: u64,
    terminal: bool,
    drawn: bool,
}

impl View {
    fn new(jobs: [JobId; 2], begin_ns: u64) -> Self {
        Self { jobs, begin_ns, terminal: std::io::stdout().is_terminal(), drawn: false }
    }

    /// On a terminal, draws over what was drawn before; elsewhere only the end is shown.
    fn draw(&mut self, records: &[SwitchRecord]) -> anyhow::Result<()> {
        if !self.terminal {
            return Ok(());
        }
        let now = tutti_linux::clock::monotonic_ns();
        self.show(records, now)
    }

    fn finish(&mut self, records: &[SwitchRecord], end_ns: u64) -> anyhow::Result<()> {
        self.show(records, end_ns)
    }

    fn show(&mut self, records: &[SwitchRecord], now_ns: u64) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.drawn {
            write!(out, "\x1b[{}A", self.jobs.len())?;
        }
        self.drawn = true;
        // The newest part of the time that fits: a column is 25 ms.
        let column_ns = 25_000_000;
        let width = column_ns * COLUMNS as u64;
        let from = now_ns.saturating_sub(width).max(self.begin_ns);
        for (job, name) in self.jobs.iter().zip(["first ", "second"]) {
            let cells = timeline(*job, records, from, column_ns);
            let end = if self.terminal { "\x1b[K" } else { "" };
            writeln!(out, "  {name} |{cells}|{end}")?;
        }
        out.flush()?;
        Ok(())
    }
}

/// A block for each column in whose middle the job was running.
fn timeline(job: JobId, records: &[SwitchRecord], from_ns: u64, column_ns: u64) -> String {
    (0..COLUMNS as u64)
        .map(|column| {
            let at = from_ns + column * column_ns + column_ns / 2;
            let last = records
                .iter()
                .rev()
                .find(|r| r.resumed_ns <= at && (r.came.contains(&job) || r.left.contains(&job)));
            let next = records
                .iter()
                .find(|r| r.resumed_ns > at && (r.came.contains(&job) || r.left.contains(&job)));
            let running = match (last, next) {
                (Some(last), Some(_)) => last.came.contains(&job),
                (None, Some(next)) => next.left.contains(&job),
                _ => false,
            };
            if running { '█' } else { '·' }
        })
        .collect()
}

fn summary(outcomes: &BTreeMap<JobId, Outcome>, together: Duration) -> String {
    let mut table = Table::new(&[
        ("JOB", Align::Left),
        ("ITS TURNS", Align::Right),
        ("SHARE OF THE TIME", Align::Right),
    ]);
    for (outcome, name) in outcomes.values().zip(["first", "second"]) {
        let turns = Duration::from_nanos(outcome.service.0);
        table.row([
            name.into(),
            format!("{:.2} s", seconds(turns)),
            format!("{:.1} %", 100.0 * seconds(turns) / seconds(together)),
        ]);
    }
    table.render()
}

fn figures(records: &[SwitchRecord], alone: Duration, together: Duration) -> String {
    let mut latencies: Vec<u64> = records
        .iter()
        .filter(|record| !record.left.is_empty() && !record.came.is_empty())
        .map(|record| record.resumed_ns.saturating_sub(record.due_ns) / 1000)
        .collect();
    latencies.sort_unstable();
    let overhead = 100.0 * (seconds(together) / seconds(alone) - 1.0);
    format!(
        "\nSwitches: {}. From the end of a slot until the next job runs: median {} us, 99 % within \
         {} us.\nBoth in turns against one after the other: {overhead:+.2} %.\n",
        latencies.len(),
        percentile(&latencies, 50),
        percentile(&latencies, 99),
    )
}
