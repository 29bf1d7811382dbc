//! A fixed set of jobs, and how long it takes: the paper's tables of benchmarks.
//!
//! There batch jobs may use the whole machine under either scheduler: had they been limited as by
//! day, they would have taken a multiple of what they took under the others. So the set is handed
//! in at midnight, and done before the hours change.

use super::super::model::Model;
use super::super::options::Options;
use super::{Run, Side};
use tutti_client::output::{Align, Table};
use tutti_trace::model::T3D_BENCHMARK_BATCH;

/// Each scheduler: the batch jobs alone, then with the others.
pub(super) fn simulated(options: &Options) -> anyhow::Result<[[Run; 3]; 2]> {
    let mut options = options.clone();
    options.horizon = None;
    let each = |jobs: Option<usize>| -> anyhow::Result<[Run; 3]> {
        let options = Options { jobs: jobs.map(|it| it as u64), ..options.clone() };
        let run = |side: Side| side.simulate(&Model::T3dBenchmark, &options);
        let [before, swap, after] = Side::ALL.map(run);
        Ok([before?, swap?, after?])
    };
    Ok([each(Some(T3D_BENCHMARK_BATCH))?, each(None)?])
}

pub(super) fn table([alone, together]: &[[Run; 3]; 2]) -> Table {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("QUEUE LIMITS", Align::Right),
        ("SWAPPING", Align::Right),
        ("CLASSES", Align::Right),
        ("PAPER, UNICOS MAX", Align::Right),
        ("PAPER, DJM", Align::Right),
        ("PAPER, GANG", Align::Right),
    ]);
    let mut row = |title: &str, runs: &[Run; 3], of: fn(&Run) -> f64, paper: [f64; 3]| {
        // Each against the first of its three.
        let shown = |times: [f64; 3]| {
            let [first, others @ ..] = times;
            let change = |it: f64| format!("{it:.0} ({:+.1} %)", (it / first - 1.0) * 100.0);
            [format!("{first:.0}"), change(others[0]), change(others[1])]
        };
        let here = [&runs[0], &runs[1], &runs[2]].map(of);
        let cells = [title.to_owned()].into_iter().chain(shown(here)).chain(shown(paper));
        table.row(cells);
    };
    row("batch alone", alone, |run| run.seen.batch_done_s, [3397.0, 2848.0, 2950.0]);
    row("with interactive: batch", together, |run| run.seen.batch_done_s, [3347.0, 3248.0, 3565.0]);
    let interactive = |run: &Run| run.seen.interactive_done_s;
    row("with interactive: interactive", together, interactive, [3553.0, 2339.0, 2797.0]);
    table
}
