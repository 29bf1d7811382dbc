//! Two MPI jobs with a rank on each node, in turns, against one after the other.
//!
//! Nodes that are more than this machine has processors share these, and a job alone is overcommitted already: ranks
//! that poll wait for each other's processors then. So the same is also measured with as many nodes as there are processors.
//!
//! Each node has one of these, in turn: nodes that had them all would all bind their rank to the first.

use super::{ALLTOALL, Bench, Figure, median};
use std::thread::available_parallelism;
use std::time::Instant;

const ONE_AFTER_THE_OTHER: &str = "tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null; tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null";
const IN_TURNS: &str = "tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null & one=$!; tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null; \
                        wait $one";

/// Slices, and how many percent more time they may take.
const SLICES: [(&str, f64); 3] = [("1s", 1.0), ("100ms", 2.0), ("10ms", 5.0)];

/// Numbers that a rank sends each other at a time.
const NUMBERS: &str = "1000";
/// How often they do, for a first look at how long that takes.
const REPEATS_FIRST: u32 = 25;
/// The most: some minutes' worth on any machine.
const REPEATS_MAX: u32 = 50_000_000;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut figures = over_all_nodes(&bench.of_one_processor(bench.nodes())?)?;
    let processors = available_parallelism()?.get();
    if (2..bench.nodes()).contains(&processors) {
        figures.extend(over_all_nodes(&bench.of_one_processor(processors)?)?);
    }
    Ok(figures)
}

fn over_all_nodes(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let Some(program) = bench.mpi_program(&ALLTOALL)? else {
        return Ok(vec![Figure::shown("MPI jobs in turns", "no MPICH here".into())]);
    };
    let nodes = bench.nodes().to_string();
    let repeats = enough(bench, &nodes, &program)?;
    let words = [nodes.as_str(), &program, NUMBERS, &repeats];
    let seconds = |text: &str| seconds(bench, text, &words);
    let mut losses = vec![Vec::new(); SLICES.len()];
    let mut plain = Vec::new();
    for _ in 0..bench.rounds(5, 1) {
        for ((slice, _), losses) in SLICES.iter().zip(&mut losses) {
            bench.script("tutti params $1", &[&format!("quantum={slice}")])?;
            // Between two of the other kind, so that what changes slowly counts for both.
            let before = seconds(ONE_AFTER_THE_OTHER)?;
            let turns = seconds(IN_TURNS)?;
            let after = seconds(ONE_AFTER_THE_OTHER)?;
            losses.push((turns / f64::midpoint(before, after) - 1.0) * 100.0);
            plain.push(100.0 * (after - before).abs() / f64::midpoint(before, after));
        }
    }
    let noise = median(plain);
    let share =
        if bench.nodes() > available_parallelism()?.get() { "" } else { ", a processor each," };
    let figure = |((slice, most), losses): (&(&str, f64), Vec<f64>)| {
        let loss = median(losses);
        Figure::goal(
            &format!("two MPI jobs of {nodes} ranks over {nodes} nodes{share} in turns of {slice}"),
            format!("{loss:+.1} % (noise {noise:.1} %)"),
            &format!("{most} %"),
            loss <= *most,
        )
    };
    Ok(SLICES.iter().zip(losses).map(figure).collect())
}

fn seconds(bench: &Bench, text: &str, words: &[&str]) -> anyhow::Result<f64> {
    let begin = Instant::now();
    bench.script(text, words)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// How often the ranks must exchange their numbers for two jobs to take some seconds.
fn enough(bench: &Bench, nodes: &str, program: &str) -> anyhow::Result<String> {
    let wanted = if bench.quick { 4.0 } else { 10.0 };
    let mut repeats = REPEATS_FIRST;
    loop {
        let words = [nodes, program, NUMBERS, &repeats.to_string()];
        let took = seconds(bench, ONE_AFTER_THE_OTHER, &words)?;
        // Starting counts less, the longer they last.
        if took >= wanted * 0.8 || repeats >= REPEATS_MAX {
            return Ok(repeats.to_string());
        }
        let factor = if took < wanted / 4.0 { 4 } else { 2 };
        repeats = repeats.saturating_mul(factor).min(REPEATS_MAX);
    }
}
