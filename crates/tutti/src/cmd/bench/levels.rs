//! Jobs at once: the time of `k` jobs over `k` times the time of one, for MPI programs that want all
//! processors.

use super::contend::{NOT_INSTALLED, median, micros, ms};
use super::figures::Figure;
use super::progress;
use super::scratch::Scratch;
use super::work::{self, Work};
use crate::cmd::own::OwnInstance;
use crate::output::{Align, Table};
use serde::Serialize;
use std::time::Duration;

/// A line of the table.
#[derive(Debug, Serialize)]
pub(super) struct Level {
    program: String,
    /// How many jobs at once.
    level: u32,
    /// The median time until the last of them had ended; nothing without MPICH.
    median_us: Option<u64>,
    /// That over `level` times the time at level 1.
    ratio: Option<f64>,
}

/// Turns while jobs of one kind take them; the default of an instance.
const QUANTUM: &str = "100ms";

pub(super) fn measure(
    own: &OwnInstance,
    scratch: &Scratch,
    levels: &[u32],
    length: Duration,
    repetitions: usize,
) -> anyhow::Result<Vec<Level>> {
    own.set("quantum", QUANTUM)?;
    let mut table = Vec::new();
    for name in work::mpi_names() {
        progress(&format!("overhead: levels, {name}"));
        match Work::mpi(own, scratch, name, length)? {
            Some(work) => table.extend(program(own, &work, levels, repetitions)?),
            None => {
                table.push(Level { program: name.into(), level: 1, median_us: None, ratio: None })
            }
        }
    }
    Ok(table)
}

/// The levels alternate, so that each is measured at all times. Level 1 is always among them.
fn program(
    own: &OwnInstance,
    work: &Work,
    levels: &[u32],
    repetitions: usize,
) -> anyhow::Result<Vec<Level>> {
    let mut levels = levels.to_vec();
    levels.push(1);
    levels.sort_unstable();
    levels.dedup();
    let mut samples = vec![Vec::new(); levels.len()];
    for _ in 0..repetitions {
        for (&level, samples) in levels.iter().zip(&mut samples) {
            samples.push(micros(work.together(own, level)?));
        }
    }
    let alone = median(&mut samples[0]);
    let lines = levels.iter().zip(&mut samples).map(|(&level, samples)| {
        let median_us = median(samples);
        Level {
            program: work.name.clone(),
            level,
            median_us: Some(median_us),
            ratio: Some(super::contend::ratio(median_us, alone * u64::from(level))),
        }
    });
    Ok(lines.collect())
}

/// For people.
pub(super) fn text(levels: &[Level]) -> String {
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
    format!("MPI programs on all processors, in turns of {QUANTUM}\n\n{}", table.render())
}

/// One line a program for the table of figures.
pub(super) fn figures(levels: &[Level]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in work::mpi_names() {
        let what = format!("MPI {name}, k at once over k x one");
        let mut ratios = Vec::new();
        for line in levels.iter().filter(|line| line.program == name && line.level > 1) {
            if let Some(ratio) = line.ratio {
                ratios.push(format!("{}: {ratio:.3}", line.level));
            }
        }
        figures.push(match ratios.is_empty() {
            true => Figure::missing(&what, "MPICH is not installed, or no level above 1", ""),
            false => Figure::shown(&what, ratios.join(", ")),
        });
    }
    figures
}
