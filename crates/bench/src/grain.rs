//! `tutti-bench grain`: two jobs of ranks that need each other every 0.1 ms, more ranks than
//! processors.
//!
//! In turns of 100 ms, against the same two started by hydra at once and left to the kernel, which
//! knows nothing of jobs. What counts is what two take over twice what one takes, each by its own
//! starter.

use super::contend::{
    Contender, Expects, NOT_INSTALLED, find_program, median, micros, ms, over_twice,
};
use super::figures::Figure;
use super::mpi::{self, HYDRA};
use super::programs::Work;
use super::scratch::Scratch;
use super::{Bench, processors, progress};
use serde::Serialize;
use std::time::Duration;
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;

const QUANTUM: &str = "100ms";

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Ranks of each job, one for each processor.
    ranks: u32,
    /// How long one job takes alone.
    alone_us: u64,
    /// How long two take in turns, and that over twice one alone.
    turns_us: u64,
    in_turns: f64,
    /// The same of hydra and the kernel.
    hydra_alone_us: u64,
    left_us: u64,
    left_alone: f64,
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Option<Report>> {
    if find_program(HYDRA).is_none() {
        return Ok(None);
    }
    let own = ScratchInstance::start("bench")?;
    let scratch = Scratch::new("grain")?;
    own.set("quantum", QUANTUM)?;
    let ranks = processors();
    let length = Duration::from_millis(if bench.quick { 500 } else { 2000 });
    let work = Work::of_mpi(&own, &scratch, (mpi::GRAIN, &[]), ranks, length)?;
    let Some(work) = work else { return Ok(None) };
    let words: Vec<String> =
        work.argv().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = format!("{HYDRA} -n {ranks} '{}'", words.join("' '"));
    let shell =
        |line: &str, jobs| Contender::command(HYDRA, ["sh", "-c", line], Expects::Lines(jobs));
    let one = shell(&command, 1);
    let two = shell(&format!("{command} & {command} & wait"), 2);
    let mut samples = [const { Vec::new() }; 4];
    let rounds = if bench.quick { 1 } else { 7 };
    for round in 0..rounds {
        progress(&format!("grain: {} of {rounds}", round + 1));
        let times = [work.together(&own, 1)?, work.together(&own, 2)?, one.run()?, two.run()?];
        for (samples, time) in samples.iter_mut().zip(times) {
            samples.push(micros(time));
        }
    }
    own.end()?;
    let [alone, turns, hydra_alone, left] = &samples;
    let (in_turns, left_alone) = (over_twice(turns, alone), over_twice(left, hydra_alone));
    let [alone_us, turns_us, hydra_alone_us, left_us] =
        samples.each_mut().map(|samples| median(samples));
    Ok(Some(Report { ranks, alone_us, turns_us, in_turns, hydra_alone_us, left_us, left_alone }))
}

/// For people, or for programs.
///
/// # Errors
/// If standard output can't be written.
pub(super) fn show(report: Option<&Report>, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&report);
    }
    let Some(report) = report else { return print(&format!("MPICH is {NOT_INSTALLED}\n")) };
    let mut table = Table::new(&[
        ("STARTED BY", Align::Left),
        ("ONE", Align::Right),
        ("TWO", Align::Right),
        ("TWO OVER TWICE ONE", Align::Right),
    ]);
    let row =
        |name: &str, one, two, ratio| [name.to_owned(), ms(one), ms(two), format!("{ratio:.3}")];
    let turns = format!("tutti, turns of {QUANTUM}");
    table.row(row(&turns, report.alone_us, report.turns_us, report.in_turns));
    let left = "hydra, left to the kernel";
    table.row(row(left, report.hydra_alone_us, report.left_us, report.left_alone));
    print(&format!(
        "Two MPI jobs of {} ranks each on {} processors; a rank needs the others every 0.1 ms\n\n{}",
        report.ranks,
        report.ranks,
        table.render()
    ))
}

/// The lines of the table of figures.
pub(super) fn figures(report: Option<&Report>) -> Vec<Figure> {
    let what = "two jobs that talk every 0.1 ms (over twice one): in turns; left to the kernel";
    let aim = "turns at least as fast";
    vec![match report {
        Some(it) => {
            let shown = |us, ratio: f64| format!("{} ({ratio:.3})", ms(us));
            let turns = shown(it.turns_us, it.in_turns);
            let measured = format!("{turns}; {}", shown(it.left_us, it.left_alone));
            Figure::goal(what, measured, aim, it.turns_us <= it.left_us)
        }
        None => Figure::missing(what, NOT_INSTALLED, aim),
    }]
}
