//! `tutti-bench overhead`: what taking turns costs.
//!
//! Two questions. By length of the slices: two jobs in turns, against the same two one after the
//! other. By number of jobs: `k` of a kind at once, against `k` times one alone, as in table 1 of
//! the process-tracking paper.

use super::contend::{NOT_INSTALLED, median_f64, micros, ms};
use super::figures::Figure;
use super::levels::{self, Level, Wanted};
use super::programs::{self, Work};
use super::scratch::Scratch;
use super::{Bench, processors, progress};
use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::time::Duration;
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;

#[derive(Args, Debug)]
pub(super) struct OverheadArgs {
    /// What is measured: ring, alltoall, solver, or a command in quotes with its arguments, of
    /// which no run may end with another exit code than 0 [default: spin in slices, the three at
    /// levels]
    #[arg(long, value_name = "PROGRAM", default_value = programs::SPIN, hide_default_value = true)]
    program: String,

    /// Tasks of each job, no fewer than there are processors [default: one for each]
    #[arg(long, value_name = "N")]
    tasks: Option<u32>,

    /// How many jobs at once
    #[arg(long, value_name = "K,...", value_delimiter = ',', default_values_t = LEVELS)]
    levels: Vec<u32>,

    /// Lengths of a turn
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_values = SLICES)]
    slices: Vec<String>,

    /// Which of the two tables
    #[arg(long, value_enum, default_value_t = Part::Both)]
    part: Part,

    /// How long turns are where several jobs take them
    #[arg(long, value_name = "TIME", default_value = TURNS)]
    turns: String,

    /// How often slices are repeated; levels half as often [default: 7; quick: 1]
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
}

const LEVELS: [u32; 4] = [1, 2, 3, 4];
const TURNS: &str = "1s";
const SLICES: [&str; 4] = ["1s", "100ms", "10ms", "2ms"];

impl Default for OverheadArgs {
    fn default() -> Self {
        Self {
            program: programs::SPIN.into(),
            tasks: None,
            levels: LEVELS.to_vec(),
            slices: SLICES.map(Into::into).to_vec(),
            part: Part::Both,
            turns: TURNS.into(),
            repetitions: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Slices,
    Levels,
    Both,
}

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    program: String,
    /// Tasks of each job.
    tasks: u32,
    /// One job alone, about.
    alone_us: u64,
    repetitions: usize,
    /// How far two runs of the same, one job after the other, lay apart: half of the pairs differed
    /// by less.
    noise_percent: f64,
    slices: Vec<Slice>,
    /// How long the turns of those were.
    turns: String,
    levels: Vec<Level>,
}

#[derive(Debug, Serialize)]
struct Slice {
    slice: String,
    /// The median of what a repetition took longer than its neighbours one after the other.
    overhead_percent: f64,
    least_percent: f64,
    most_percent: f64,
}

pub(super) fn measure(bench: &Bench, args: &OverheadArgs) -> anyhow::Result<Report> {
    let most = args.levels.iter().copied().max().unwrap_or(1);
    ensure!(args.levels.iter().all(|&level| level > 0), "a level is 1 or more");
    let tasks = args.tasks.unwrap_or_else(processors);
    ensure!(
        tasks >= processors(),
        "--tasks: {} or more; jobs that leave processors free would run beside each other",
        processors()
    );
    let is_mpi = programs::mpi_names().any(|name| name == args.program);
    let command = match is_mpi || args.program == programs::SPIN {
        true => None,
        false => Some(Work::command(&args.program, tasks)?),
    };
    let own = ScratchInstance::start("bench")?;
    let scratch = Scratch::new("overhead")?;
    let repetitions = args.repetitions.unwrap_or(if bench.quick { 1 } else { 7 }).max(1);
    let mut report = Report {
        program: args.program.clone(),
        tasks,
        alone_us: 0,
        repetitions,
        noise_percent: 0.0,
        slices: Vec::new(),
        turns: args.turns.clone(),
        levels: Vec::new(),
    };
    if args.part != Part::Levels {
        let length = Duration::from_millis(if bench.quick { 1000 } else { 2500 });
        let work = match &command {
            Some(work) => work.clone(),
            None if is_mpi => Work::mpi(&own, &scratch, &args.program, tasks, length)?
                .with_context(|| {
                    format!("{} needs MPICH, which is {NOT_INSTALLED}", args.program)
                })?,
            None => Work::spin(tasks, length)?,
        };
        slices(&own, &work, &args.slices, &mut report)?;
    }
    if args.part != Part::Slices {
        own.set("rows", &most.max(2).to_string())?;
        own.set("quantum", &args.turns)?;
        let length = Duration::from_millis(if bench.quick { 1000 } else { 2000 });
        let wanted = Wanted { levels: &args.levels, repetitions: repetitions.div_ceil(2) };
        report.levels = match &command {
            Some(work) => levels::of(&own, work, &wanted)?,
            None => {
                let only = is_mpi.then_some(&args.program[..]);
                levels::of_mpi(&own, &scratch, only, (tasks, length), &wanted)?
            }
        };
    }
    own.end()?;
    Ok(report)
}

/// Each run in turns stands between two runs of the same jobs one after the other and is compared
/// with the mean of both, so that a machine that slowly gets faster or slower does not count.
fn slices(
    own: &ScratchInstance,
    work: &Work,
    slices: &[String],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut overheads = vec![Vec::new(); slices.len()];
    let mut plain = vec![one_after_the_other(own, work)?];
    for repetition in 1..=report.repetitions {
        progress(&format!("overhead: slices, {repetition} of {}", report.repetitions));
        for (slice, overheads) in slices.iter().zip(&mut overheads) {
            let before = plain.last().copied().unwrap_or_default();
            let turns = in_turns(own, work, slice)?;
            let after = one_after_the_other(own, work)?;
            plain.push(after);
            overheads.push(over(turns, (before + after) / 2));
        }
    }
    let noise: Vec<f64> = plain.windows(2).map(|pair| over(pair[0], pair[1]).abs()).collect();
    report.noise_percent = rounded(median_f64(&noise));
    report.alone_us = micros(plain.iter().min().copied().unwrap_or_default()) / 2;
    report.slices = slices
        .iter()
        .zip(&overheads)
        .map(|(slice, overheads)| Slice {
            slice: slice.clone(),
            overhead_percent: rounded(median_f64(overheads)),
            least_percent: rounded(overheads.iter().copied().fold(f64::INFINITY, f64::min)),
            most_percent: rounded(overheads.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        })
        .collect();
    Ok(())
}

/// With a single row the second job waits for the end of the first: the same requests, the same
/// launches, no turns.
fn one_after_the_other(own: &ScratchInstance, work: &Work) -> anyhow::Result<Duration> {
    own.set("rows", "1")?;
    work.together(own, 2)
}

fn in_turns(own: &ScratchInstance, work: &Work, slice: &str) -> anyhow::Result<Duration> {
    own.set("rows", "2")?;
    own.set("quantum", slice)?;
    work.together(own, 2)
}

/// By how many percent one is more than the other.
fn over(one: Duration, other: Duration) -> f64 {
    100.0 * (one.as_secs_f64() / other.as_secs_f64() - 1.0)
}

/// To hundredths.
fn rounded(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        if !self.slices.is_empty() {
            print(&self.slices_text())?;
        }
        if !self.levels.is_empty() {
            print(if self.slices.is_empty() { "" } else { "\n" })?;
            print(&levels::text(&self.levels, self.tasks, &self.turns))?;
        }
        Ok(())
    }

    fn slices_text(&self) -> String {
        let mut table = Table::new(&[
            ("SLICE", Align::Right),
            ("OVERHEAD", Align::Right),
            ("FROM", Align::Right),
            ("TO", Align::Right),
        ]);
        for slice in &self.slices {
            let percent = |value: f64| format!("{value:+.2} %");
            table.row([
                slice.slice.clone(),
                percent(slice.overhead_percent),
                percent(slice.least_percent),
                percent(slice.most_percent),
            ]);
        }
        format!(
            "Two jobs ({}, {} each) in turns against one after the other; median of {} \
             repetitions\nTwo runs of the same differ by {:.2} %\n\n{}",
            self.program,
            ms(self.alone_us),
            self.repetitions,
            self.noise_percent,
            table.render()
        )
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = self.slices.iter().map(|one| self.figure(one)).collect();
        figures.extend(levels::figures(&self.levels, &self.turns));
        figures
    }

    fn figure(&self, slice: &Slice) -> Figure {
        let what = format!("two jobs in slices of {}, against back to back", slice.slice);
        let measured =
            format!("{:+.2} % (noise {:.2} %)", slice.overhead_percent, self.noise_percent);
        let most = match slice.slice.as_str() {
            "1s" => 0.5,
            "100ms" => 1.0,
            "10ms" => 2.0,
            "2ms" => 5.0,
            _ => return Figure::shown(&what, measured),
        };
        let goal = format!("at most {most} %");
        // Beyond the goal by less than the noise: it can't be told.
        match slice.overhead_percent {
            over if over <= most => Figure::goal(&what, measured, &goal, true),
            over if over - self.noise_percent > most => Figure::goal(&what, measured, &goal, false),
            _ => Figure::missing(&what, &measured, &goal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_what_it_takes_longer() {
        let over = over(Duration::from_millis(1020), Duration::from_secs(1));
        assert!((rounded(over) - 2.0).abs() < 1e-9);
    }
}
