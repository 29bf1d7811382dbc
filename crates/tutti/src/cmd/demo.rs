//! `tutti demo`: two jobs that both want all processors take turns, before your eyes.

use clap::{Args, Parser};
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tutti_client::JobOptions;
use tutti_client::output::{Align, Table, counted, print, terminal_width};
use tutti_client::scratch::{ScratchInstance, percentile};
use tutti_client::work::rounds_for;
use tutti_node::exit::Exit;
use tutti_types::{JobId, Nanos, Outcome};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::SwitchRecord;
use tutti_wire::units::parse_duration;

const EXAMPLES: &str = "\
Examples:
  tutti demo
  tutti demo --quantum 20ms --length 10s";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Length of a turn
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    quantum: String,

    /// Run time of each job on an idle machine
    #[arg(long, value_name = "TIME", default_value = "3s")]
    length: String,
}

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    job: JobOptions,
}

/// Columns of the timeline where it goes to no terminal, and the fewest and the most on one.
const COLUMNS: usize = 64;
const COLUMNS_MIN: usize = 8;
const COLUMNS_MAX: usize = 120;

/// What stands beside the columns in a line.
const BESIDE_COLUMNS: usize = "  second ||".len() + 1;

/// A turn is drawn so many columns wide.
const COLUMNS_PER_TURN: u64 = 4;

/// Time between two looks at the jobs.
const LOOK_MS: u16 = 100;

pub(crate) fn execute(args: &DemoArgs) -> anyhow::Result<Exit> {
    let parse = |text| parse_duration(text).map_err(|error| anyhow::anyhow!("{error}"));
    let (length, quantum) = (parse(&args.length)?, parse(&args.quantum)?);
    anyhow::ensure!(length.0 > 0 && length <= Nanos::from_secs(600), "--length is 1ms to 10m");
    let processors = tutti_linux::allowance::Allowance::read().processors().len();
    let own = ScratchInstance::start("demo")?;
    own.set("quantum", &args.quantum)?;
    print(&format!(
        "Two jobs of {} each; both want all {} of this machine.\n\n",
        counted(processors as u64, "task"),
        counted(processors as u64, "processor")
    ))?;
    tutti_client::noise::warn("demo");
    let demo = Demo::new(&own, processors, length, quantum)?;
    print("First one after the other, as without Tutti ...\n")?;
    let alone = demo.back_to_back()?;
    print(&format!(
        "{:.2} s.\n\nNow both at once, in turns of {}:\n\n",
        seconds(alone),
        args.quantum
    ))?;
    let (together, outcomes, records) = demo.together()?;
    print(&format!("\n{:.2} s.\n\n", seconds(together)))?;
    print(&summary(&outcomes, together))?;
    print(&figures(&records))?;
    print(&cost(alone, together))?;
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
    own: &'a ScratchInstance,
    column_ns: u64,
    options: JobOptions,
    argv: Vec<OsString>,
}

impl<'a> Demo<'a> {
    fn new(
        own: &'a ScratchInstance,
        processors: usize,
        length: Nanos,
        quantum: Nanos,
    ) -> anyhow::Result<Self> {
        let mut options = Defaults::try_parse_from(["demo"])?.job;
        options.tasks = Some(u32::try_from(processors)?);
        options.processors = Some(1);
        let rounds = rounds_for(Duration::from_nanos(length.0)).to_string();
        let argv = vec![std::env::current_exe()?.into_os_string(), "work".into(), rounds.into()];
        let column_ns = (quantum.0 / COLUMNS_PER_TURN).max(1);
        Ok(Self { own, column_ns, options, argv })
    }

    fn start(&self, name: &str) -> anyhow::Result<JobId> {
        let options = JobOptions { name: Some(name.into()), ..self.options.clone() };
        self.own.submit(&options, &self.argv)
    }

    fn back_to_back(&self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let terminal = terminal_width().is_some();
        for name in ["first", "second"] {
            let job = self.start(name)?;
            self.wait_for(&[job], || match terminal {
                true => print(&format!("\r  {name} {:.1} s\x1b[K", seconds(begin.elapsed()))),
                false => Ok(()),
            })?;
        }
        if terminal {
            print("\r\x1b[K")?;
        }
        Ok(begin.elapsed())
    }

    fn together(&self) -> anyhow::Result<(Duration, BTreeMap<JobId, Outcome>, Vec<SwitchRecord>)> {
        let begin_ns = tutti_linux::clock::monotonic_ns();
        let begin = Instant::now();
        let jobs = [self.start("first")?, self.start("second")?];
        let mut view = View { jobs, begin_ns, column_ns: self.column_ns, drawn: false };
        let outcomes = self.wait_for(&jobs, || view.draw(&self.own.switches(u32::MAX)?))?;
        let records = self.own.switches(u32::MAX)?;
        let together = begin.elapsed();
        let last = records.last().map_or(begin_ns, |record| record.resumed_ns);
        view.show(&records, last)?;
        let records = records.into_iter().filter(|record| record.due_ns >= begin_ns).collect();
        Ok((together, outcomes, records))
    }

    /// Waits for jobs to end, and does something meanwhile, again and again.
    fn wait_for(
        &self,
        jobs: &[JobId],
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<BTreeMap<JobId, Outcome>> {
        let mut waiting = Vec::new();
        for &job in jobs {
            let mut link = self.own.connect()?;
            link.send(&Request::Wait { job });
            link.flush()?;
            waiting.push((job, link));
        }
        let mut outcomes = BTreeMap::new();
        while !waiting.is_empty() {
            meanwhile()?;
            // Not a sleep: what is measured ends when a job does.
            let mut ends: Vec<PollFd> = waiting
                .iter()
                .map(|(_, link)| PollFd::new(link.as_fd(), PollFlags::POLLIN))
                .collect();
            match poll(&mut ends, LOOK_MS) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
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
        Ok(outcomes)
    }
}

/// The live timeline: one line a job, a block where it ran.
struct View {
    jobs: [JobId; 2],
    begin_ns: u64,
    column_ns: u64,
    drawn: bool,
}

impl View {
    /// On a terminal, draws over what was drawn before; elsewhere only the end is shown.
    fn draw(&mut self, records: &[SwitchRecord]) -> anyhow::Result<()> {
        match terminal_width() {
            Some(_) => self.show(records, tutti_linux::clock::monotonic_ns()),
            None => Ok(()),
        }
    }

    fn show(&mut self, records: &[SwitchRecord], now_ns: u64) -> anyhow::Result<()> {
        let room = terminal_width();
        let columns = room.map_or(COLUMNS, |width| {
            width.saturating_sub(BESIDE_COLUMNS).clamp(COLUMNS_MIN, COLUMNS_MAX)
        });
        let (up, end) = match (room, self.drawn) {
            (Some(_), true) => (format!("\x1b[{}A", self.jobs.len()), "\x1b[K"),
            (Some(_), false) => (String::new(), "\x1b[K"),
            (None, _) => (String::new(), ""),
        };
        self.drawn = true;
        // The newest part of the time that fits.
        let from = now_ns.saturating_sub(self.column_ns * columns as u64).max(self.begin_ns);
        let mut text = up;
        for (job, name) in self.jobs.iter().zip(["first ", "second"]) {
            let cells = timeline(*job, records, from, self.column_ns, columns);
            text.push_str(&format!("  {name} |{cells}|{end}\n"));
        }
        print(&text)
    }
}

/// A block for each column in whose middle the job was running.
fn timeline(
    job: JobId,
    records: &[SwitchRecord],
    from_ns: u64,
    column_ns: u64,
    columns: usize,
) -> String {
    (0..columns as u64)
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

fn figures(records: &[SwitchRecord]) -> String {
    let mut latencies: Vec<u64> = records
        .iter()
        .filter(|record| !record.left.is_empty() && !record.came.is_empty())
        .map(|record| record.resumed_ns.saturating_sub(record.due_ns) / 1000)
        .collect();
    latencies.sort_unstable();
    format!(
        "\nThey were switched {} times. From the end of a turn until the other job ran:\n\
         median {} us, 99 % within {} us.\n",
        latencies.len(),
        percentile(&latencies, 50),
        percentile(&latencies, 99),
    )
}

/// What taking turns cost. Where it seems to have cost less than nothing, others were at work.
fn cost(alone: Duration, together: Duration) -> String {
    let percent = 100.0 * (seconds(together) / seconds(alone) - 1.0);
    if percent >= 0.0 {
        format!("Both in turns took {percent:.1} % longer than one after the other.\n")
    } else {
        format!(
            "Both in turns took no longer than one after the other ({:.1} % less: chance, or \
             others at work).\n",
            -percent
        )
    }
}
