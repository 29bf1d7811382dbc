//! From a command line on the first node to the end of what ran on all of them.

use super::{Bench, Figure, INIT, NS_PER_MS, median};

/// Ranks on each node where a large MPI job starts.
const RANKS_PER_NODE: usize = 8;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let nodes = bench.nodes().to_string();
    let whole = ["tutti", "run", "-N", &nodes, "-n", &nodes, "hostname"];
    // The first ones find nothing in memory.
    bench.time(3, &whole)?;
    let one = median(bench.time(bench.rounds(50, 10), &["tutti", "run", "-w", "n1", "hostname"])?);
    let all = median(bench.time(bench.rounds(50, 10), &whole)?) / NS_PER_MS;
    let mut figures = vec![
        Figure::shown("run -w n1 hostname", format!("{:.2} ms", one / NS_PER_MS)),
        Figure::goal(
            &format!("run -N {nodes} -n {nodes} hostname"),
            format!("{all:.2} ms"),
            "25 ms",
            all < 25.0,
        ),
    ];
    if let Some(program) = bench.mpi_program(&INIT)? {
        let each = RANKS_PER_NODE.to_string();
        let line = ["tutti", "run", "-N", &nodes, "--tasks-per-node", &each, &program];
        let took = median(bench.time(bench.rounds(5, 1), &line)?) / NS_PER_MS;
        let ranks = RANKS_PER_NODE * bench.nodes();
        let what = format!("MPI_Init and MPI_Finalize, {ranks} ranks on {nodes} nodes");
        figures.push(Figure::shown(&what, format!("{took:.0} ms")));
    }
    Ok(figures)
}
