//! `tutti-bench restart`: what running jobs notice of a controller that is killed, again and again.

use super::contend::median_f64;
use super::figures::Figure;
use super::scratch::Scratch;
use super::{Bench, options, processors, progress};
use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tutti_client::scratch::ScratchInstance;
use tutti_node::executable::own_program;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::SwitchRecord;

/// Turns are this long.
const QUANTUM: Duration = Duration::from_millis(20);

/// So often in a row its supervisor starts another at once; after that it waits for seconds, in
/// which many switches are due.
const AT_ONCE: usize = 3;

/// Front ends that are attached each time.
const FRONT_ENDS: usize = 4;

/// A switch that is so late counts as late, in milliseconds.
const LATE_MS: f64 = 5.0;

/// How long the next controller may take.
const PATIENCE: Duration = Duration::from_secs(20);

const NS_PER_MS: f64 = 1e6;

/// What came of each kill.
#[derive(Default)]
struct Seen {
    /// How long there was none that answered, in milliseconds.
    away: Vec<f64>,
    /// How long each front end took from then on to hear of its job's end, in milliseconds.
    back: Vec<f64>,
    /// How late the switches were while there was none, in milliseconds.
    late: Vec<f64>,
    missed: usize,
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    progress("restart: a controller that is killed while jobs take turns");
    let own = ScratchInstance::start("bench")?;
    own.set("quantum", &format!("{}ms", QUANTUM.as_millis()))?;
    own.set("rows", "8")?;
    for _ in 0..2 {
        own.submit(&options(processors(), None)?, &["sleep".into(), "1000".into()])?;
    }
    let scratch = Scratch::new("bench-restart")?;
    let stop = scratch.path("stop");
    let line = format!(
        "i=0; while [ ! -e '{}' ]; do echo $i; i=$((i+1)); done; echo end $i",
        stop.display()
    );
    let mut counting = front_end(&own, &line)?;
    let output = counting.stdout.take().context("no output")?;
    let count = std::thread::spawn(move || whole_lines(BufReader::new(output)));
    let mut seen = Seen::default();
    for _ in 0..if bench.quick { AT_ONCE + 1 } else { AT_ONCE + 7 } {
        once(&own, &mut seen)?;
    }
    std::fs::write(&stop, "")?;
    let lines = count.join().ok().context("the output was not read")??;
    ensure!(counting.wait()?.success(), "the job that counts failed");
    own.end()?;
    Ok(seen.figures(lines))
}

/// `tutti run` of a shell's line, with pipes.
fn front_end(own: &ScratchInstance, line: &str) -> anyhow::Result<Child> {
    let mut command = Command::new(own_program()?);
    command.args(["run", "sh", "-c", line]).env("TUTTI_DIR", own.directory());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().context("cannot start tutti run")
}

/// How many lines came, if each did, and once.
fn whole_lines(output: impl BufRead) -> anyhow::Result<u64> {
    let mut count = 0;
    for line in output.lines() {
        let line = line?;
        if let Some(said) = line.strip_prefix("end ") {
            ensure!(said.parse() == Ok(count), "output is lost: {count} lines of {said}");
            return Ok(count);
        }
        ensure!(line.parse() == Ok(count), "line {count} is lost or doubled: {line}");
        count += 1;
    }
    anyhow::bail!("output is lost: {count} lines, and no end")
}

fn once(own: &ScratchInstance, seen: &mut Seen) -> anyhow::Result<()> {
    let mut front_ends = Vec::new();
    for _ in 0..FRONT_ENDS {
        let mut front_end = front_end(own, "echo up; read line")?;
        let mut output = BufReader::new(front_end.stdout.take().context("no output")?);
        let mut said = String::new();
        output.read_line(&mut said)?;
        ensure!(said == "up\n", "a job did not begin");
        front_ends.push((front_end, output));
    }
    // The frame has what came to it by now.
    std::thread::sleep(QUANTUM * 10);
    let controller = controller(own)?;
    let last = own.switches(1)?.last().context("nothing takes turns")?.due_ns;
    let killed = Instant::now();
    kill(Pid::from_raw(controller), Signal::SIGKILL)?;
    while !matches!(self::controller(own), Ok(pid) if pid != controller) {
        ensure!(killed.elapsed() < PATIENCE, "there is no other controller");
        std::thread::sleep(Duration::from_millis(1));
    }
    let away = killed.elapsed();
    seen.away.push(millis(away));
    let returned = Instant::now();
    for (front_end, _) in &mut front_ends {
        front_end.stdin.take().context("no input")?.write_all(b"\n")?;
    }
    for (mut front_end, _output) in front_ends {
        ensure!(front_end.wait()?.success(), "a job failed");
        seen.back.push(millis(returned.elapsed()));
    }
    let until = last + u64::try_from(away.as_nanos())?;
    seen.take_switches(&own.switches(1_000)?, last..=until);
    Ok(())
}

/// The controller's process, once it has its node.
fn controller(own: &ScratchInstance) -> anyhow::Result<i32> {
    match own.ask(&Request::Status)? {
        Reply::Status(status) if !status.agents.is_empty() => Ok(status.pid),
        _ => anyhow::bail!("there is no node yet"),
    }
}

fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

impl Seen {
    /// Those that were due within this time, in nanoseconds of the cluster's.
    fn take_switches(&mut self, all: &[SwitchRecord], within: std::ops::RangeInclusive<u64>) {
        let due: Vec<&SwitchRecord> =
            all.iter().filter(|record| within.contains(&record.due_ns)).collect();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let late = |record: &&SwitchRecord| {
            record.resumed_ns.saturating_sub(record.due_ns) as f64 / NS_PER_MS
        };
        // The first was before it.
        self.late.extend(due.iter().skip(1).map(late));
        let gap = u64::try_from(QUANTUM.as_nanos()).unwrap_or(u64::MAX) * 3 / 2;
        let far = |pair: &&[&SwitchRecord]| pair[1].due_ns - pair[0].due_ns > gap;
        self.missed += due.windows(2).filter(far).count();
    }

    fn figures(&self, lines: u64) -> Vec<Figure> {
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let kills = self.away.len();
        let (late, back) = (most(&self.late), most(&self.back));
        vec![
            Figure::shown(
                &format!("controller killed {kills} times: until the next one answers"),
                format!(
                    "{:.0} ms; {:.1} s at most, as its supervisor waits after three in a row",
                    median_f64(self.away.get(..AT_ONCE).unwrap_or_default()),
                    most(&self.away) / 1e3
                ),
            ),
            Figure::goal(
                "switches meanwhile, turns of 20 ms",
                format!(
                    "{} of {} missed; {:.2} ms after they were due, {late:.2} at most",
                    self.missed,
                    self.late.len(),
                    median_f64(&self.late)
                ),
                &format!("none missed, none {LATE_MS} ms late"),
                self.missed == 0 && late < LATE_MS && !self.late.is_empty(),
            ),
            Figure::goal(
                "front ends hear of their jobs' ends, from its return",
                format!("{:.1} ms, {back:.1} at most", median_f64(&self.back)),
                "1 s",
                back < 1000.0,
            ),
            // Another number of them is an error.
            Figure::shown("lines of output, none lost or doubled", lines.to_string()),
        ]
    }
}
