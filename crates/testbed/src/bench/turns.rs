//! Two MPI jobs with a rank on each node, in turns, against one after the other.

use super::{ALLTOALL, Bench, Figure, median};
use std::time::Instant;

const ONE_AFTER_THE_OTHER: &str = "tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null; tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null";
const IN_TURNS: &str = "tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null & one=$!; tutti run -N $1 -n $1 --exclusive \"${@:2}\" > /dev/null; \
                        wait $one";

/// Slices, and how many percent more time they may take.
const SLICES: [(&str, f64); 3] = [("1s", 1.0), ("100ms", 2.0), ("10ms", 5.0)];

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let Some(program) = bench.mpi_program(&ALLTOALL)? else {
        return Ok(vec![Figure::shown("MPI jobs in turns", "no MPICH here".into())]);
    };
    let nodes = bench.nodes().to_string();
    // Some seconds for each job.
    let rounds = if bench.quick { "60" } else { "150" };
    let words = [nodes.as_str(), &program, "1000", rounds];
    let seconds = |text: &str| -> anyhow::Result<f64> {
        let begin = Instant::now();
        bench.script(text, &words)?;
        Ok(begin.elapsed().as_secs_f64())
    };
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
    let figure = |((slice, most), losses): (&(&str, f64), Vec<f64>)| {
        let loss = median(losses);
        Figure::goal(
            &format!("two MPI jobs of {nodes} ranks over {nodes} nodes in turns of {slice}"),
            format!("{loss:+.1} % (noise {noise:.1} %)"),
            &format!("{most} %"),
            loss <= *most,
        )
    };
    Ok(SLICES.iter().zip(losses).map(figure).collect())
}
