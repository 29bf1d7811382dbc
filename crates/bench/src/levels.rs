//! Jobs at once: the time of `k` jobs over `k` times the time of one, for programs that want all
//! processors, as in table 1 of the process-tracking paper.

use super::contend::{NOT_INSTALLED, median, median_f64, micros, ms};
use super::figures::Figure;
use super::programs::{self, Work};
use super::progress;
use super::scratch::Scratch;
use serde::Serialize;
use std::time::Duration;
use tutti_client::output::{Align, Table};
use tutti_client::scratch::ScratchInstance;

/// A line of the table.
#[derive(Debug, Serialize)]
pub(super) struct Level {
    program: String,
    /// How many jobs at once.
    level: u32,
    /// The median time until the last of them had ended; nothing without MPICH.
    median_us: Option<u64>,
    /// The median of that over `level` times the time at level 1, just before and after it.
    ratio: Option<f64>,
}

/// What is to be measured of each program.
pub(super) struct Wanted<'a> {
    /// How many jobs at once.
    pub(super) levels: &'a [u32],
    /// How often each level.
    pub(super) repetitions: usize,
}

/// In turns of this length they may take so much longer than one after the other.
const TURNS_OF_GOAL: &str = "1s";
const RATIO_MAX: f64 = 1.01;

/// The MPI programs, or the one that is named.
pub(super) fn of_mpi(
    own: &ScratchInstance,
    scratch: &Scratch,
    only: Option<&str>,
    (tasks, length): (u32, Duration),
    wanted: &Wanted<'_>,
) -> anyhow::Result<Vec<Level>> {
    let mut table = Vec::new();
    for name in programs::mpi_names().filter(|&name| only.is_none_or(|only| only == name)) {
        match Work::mpi(own, scratch, name, tasks, length)? {
            Some(work) => table.extend(of(own, &work, wanted)?),
            None => {
                table.push(Level { program: name.into(), level: 1, median_us: None, ratio: None })
            }
        }
    }
    Ok(table)
}

/// Level 1 comes between all others, so that a machine that slowly gets faster or slower does not
/// count.
pub(super) fn of(
    own: &ScratchInstance,
    work: &Work,
    wanted: &Wanted<'_>,
) -> anyhow::Result<Vec<Level>> {
    progress(&format!("overhead: levels, {}", work.name));
    let mut several: Vec<u32> = wanted.levels.iter().copied().filter(|&level| level > 1).collect();
    several.sort_unstable();
    several.dedup();
    let mut alone = vec![work.together(own, 1)?];
    let mut times = vec![Vec::new(); several.len()];
    let mut ratios = vec![Vec::new(); several.len()];
    for _ in 0..wanted.repetitions {
        for (place, &level) in several.iter().enumerate() {
            let before = alone.last().copied().unwrap_or_default();
            let together = work.together(own, level)?;
            let after = work.together(own, 1)?;
            alone.push(after);
            times[place].push(micros(together));
            let one_by_one = (before + after) / 2 * level;
            ratios[place].push(together.as_secs_f64() / one_by_one.as_secs_f64());
        }
    }
    let mut alone: Vec<u64> = alone.into_iter().map(micros).collect();
    let line = |level, times: &mut [u64], ratio| Level {
        program: work.name.clone(),
        level,
        median_us: Some(median(times)),
        ratio: Some(ratio),
    };
    let mut lines = vec![line(1, &mut alone, 1.0)];
    for ((level, times), ratios) in several.into_iter().zip(&mut times).zip(&ratios) {
        lines.push(line(level, times, rounded(median_f64(ratios))));
    }
    Ok(lines)
}

/// To thousandths.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

/// For people.
pub(super) fn text(levels: &[Level], tasks: u32, turns: &str) -> String {
    let mut table = Table::new(&[
        ("PROGRAM", Align::Left),
        ("JOBS AT ONCE", Align::Right),
        ("TIME", Align::Right),
        ("OVER K x ONE", Align::Right),
    ]);
    for line in levels {
        match (line.median_us, line.ratio) {
            (Some(time), Some(ratio)) => table.row([
                line.program.clone(),
                line.level.to_string(),
                ms(time),
                format!("{ratio:.3}"),
            ]),
            _ => table.row([line.program.clone(), String::new(), NOT_INSTALLED.into()]),
        }
    }
    format!("K jobs of {tasks} tasks in turns of {turns}, over K times one\n\n{}", table.render())
}

/// One line a program for the table of figures.
pub(super) fn figures(levels: &[Level], turns: &str) -> Vec<Figure> {
    let mut figures = Vec::new();
    let has_goal = turns == TURNS_OF_GOAL;
    let goal = format!("at most {RATIO_MAX:.2}");
    for name in programs::mpi_names() {
        let what = format!("MPI {name}, k at once in turns of {turns}, over k x one");
        let mut ratios = Vec::new();
        let mut worst = 0.0_f64;
        for line in levels.iter().filter(|line| line.program == name && line.level > 1) {
            if let Some(ratio) = line.ratio {
                ratios.push(format!("{}: {ratio:.3}", line.level));
                worst = worst.max(ratio);
            }
        }
        figures.push(match ratios.is_empty() {
            true => Figure::missing(&what, "MPICH is not installed, or no level above 1", ""),
            false if has_goal => Figure::goal(&what, ratios.join(", "), &goal, worst <= RATIO_MAX),
            false => Figure::shown(&what, ratios.join(", ")),
        });
    }
    figures
}
