//! Two MPI jobs with a rank on each node, in turns, against one after the other.
//!
//! Nodes that are more than this machine has processors share these, and a job alone is
//! overcommitted already: ranks that poll wait for each other's processors then, so that a program
//! that does little else takes now longer, now shorter. So the same is also measured with one that
//! mostly computes, and with as many nodes as there are processors. What computes on more memory
//! than the processors' caches hold twice must fetch it again in each turn, whichever switches:
//! that is measured, too, and is no goal.
//!
//! Each node has one of these, in turn: nodes that had them all would all bind their rank to the
//! first.

use super::{ALLTOALL, Bench, Figure, MpiProgram, SOLVER, median};
use std::thread::available_parallelism;
use std::time::Instant;

const ONE_AFTER_THE_OTHER: &str = "tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null; tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null";
const IN_TURNS: &str = "tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null & one=$!; tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null; \
                        wait $one";

/// A slice, and how many percent more time may be taken by turns of it; nothing where that is only
/// shown.
type Slice = (&'static str, Option<f64>);

const SLICES: [Slice; 3] = [("1s", Some(1.0)), ("100ms", Some(2.0)), ("10ms", Some(5.0))];

/// Where each rank has a processor.
const SLICES_OF_FEW: [Slice; 4] = [SLICES[0], SLICES[1], SLICES[2], ("2ms", Some(5.0))];

/// Where it is the caches that are measured.
const SLICES_SHOWN: [Slice; 3] = [("1s", None), ("100ms", None), ("10ms", None)];

/// What the jobs do.
struct Work {
    name: &'static str,
    program: MpiProgram,
    /// Its arguments, for so many repeats.
    arguments: fn(&str) -> [String; 2],
}

/// The ranks send each other numbers, and do nothing else.
const EXCHANGE: Work = Work {
    name: "all-to-all",
    program: ALLTOALL,
    arguments: |repeats| ["1000".into(), repeats.into()],
};

/// Much computing between two global sums, on 32 MB.
const COMPUTE: Work = Work {
    name: "solver",
    program: SOLVER,
    arguments: |repeats| [repeats.into(), "800000".into()],
};

/// The same on 320 MB.
const COMPUTE_LARGE: Work = Work {
    name: "solver on 320 MB",
    program: SOLVER,
    arguments: |repeats| [repeats.into(), "8000000".into()],
};

/// How many repeats there are for a first look at how long they take.
const REPEATS_FIRST: u32 = 25;
/// The most: some minutes' worth on any machine.
const REPEATS_MAX: u32 = 50_000_000;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let all = bench.of_one_processor(bench.nodes())?;
    let mut figures = over_all_nodes(&all, &COMPUTE, &SLICES)?;
    figures.extend(over_all_nodes(&all, &EXCHANGE, &SLICES)?);
    figures.extend(over_all_nodes(&all, &COMPUTE_LARGE, &SLICES_SHOWN)?);
    drop(all);
    if let Some(few) = bench.one_for_each_processor()? {
        figures.extend(over_all_nodes(&few, &COMPUTE, &SLICES_OF_FEW)?);
        figures.extend(over_all_nodes(&few, &EXCHANGE, &SLICES_OF_FEW)?);
    }
    Ok(figures)
}

fn over_all_nodes(bench: &Bench, work: &Work, slices: &[Slice]) -> anyhow::Result<Vec<Figure>> {
    let Some(program) = bench.mpi_program(&work.program)? else {
        return Ok(vec![Figure::shown("MPI jobs in turns", "no MPICH here".into())]);
    };
    let nodes = bench.nodes().to_string();
    let seconds = |text: &str, repeats: u32| {
        let [one, other] = (work.arguments)(&repeats.to_string());
        seconds(bench, text, &[nodes.as_str(), &program, &one, &other])
    };
    let repeats = enough(bench.quick, |repeats| seconds(ONE_AFTER_THE_OTHER, repeats))?;
    let seconds = |text: &str| seconds(text, repeats);
    let mut losses = vec![Vec::new(); slices.len()];
    let mut plain = Vec::new();
    let mut before = seconds(ONE_AFTER_THE_OTHER)?;
    for _ in 0..bench.rounds(5, 1) {
        for ((slice, _), losses) in slices.iter().zip(&mut losses) {
            bench.script("tutti params $1", &[&format!("quantum={slice}")])?;
            // Between two of the other kind, so that what changes slowly counts for both.
            let turns = seconds(IN_TURNS)?;
            let after = seconds(ONE_AFTER_THE_OTHER)?;
            losses.push((turns / f64::midpoint(before, after) - 1.0) * 100.0);
            plain.push(100.0 * (after - before).abs() / f64::midpoint(before, after));
            before = after;
        }
    }
    let (noise, name) = (median(plain), work.name);
    let share =
        if bench.nodes() > available_parallelism()?.get() { "" } else { ", a processor each," };
    let figure = |((slice, most), losses): (&Slice, Vec<f64>)| {
        let loss = median(losses);
        let what = format!(
            "two MPI jobs ({name}) of {nodes} ranks over {nodes} nodes{share} in turns of {slice}"
        );
        let measured = format!("{loss:+.1} % (noise {noise:.1} %)");
        match most {
            Some(most) => Figure::goal(&what, measured, &format!("{most} %"), loss <= *most),
            None => Figure::shown(&what, measured),
        }
    };
    Ok(slices.iter().zip(losses).map(figure).collect())
}

fn seconds(bench: &Bench, text: &str, words: &[&str]) -> anyhow::Result<f64> {
    let begin = Instant::now();
    bench.script(text, words)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// How many repeats two jobs take some seconds for; `took` says how long so many do.
fn enough(is_quick: bool, took: impl Fn(u32) -> anyhow::Result<f64>) -> anyhow::Result<u32> {
    let wanted = if is_quick { 4.0 } else { 10.0 };
    let mut repeats = REPEATS_FIRST;
    loop {
        let took = took(repeats)?;
        // Starting counts less, the longer they last.
        if took >= wanted * 0.8 || repeats >= REPEATS_MAX {
            return Ok(repeats);
        }
        let factor = if took < wanted / 4.0 { 4 } else { 2 };
        repeats = repeats.saturating_mul(factor).min(REPEATS_MAX);
    }
}
