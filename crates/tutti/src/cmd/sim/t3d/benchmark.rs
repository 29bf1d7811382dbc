//! A fixed set of jobs, and how long it takes: the paper's tables of benchmarks.
//!
//! There batch jobs may use the whole machine under either scheduler: had they been limited as by
//! day, they would have taken a multiple of what they took under the others. So the set is handed in at
//! midnight, and done before the hours change.

use super::super::model::Model;
use super::super::options::Options;
use super::{Run, Side};
use tutti_client::output::{Align, Table};
use tutti_trace::model::T3D_BENCHMARK_BATCH;

/// Before and after: the batch jobs alone, then with the others.
pub(super) fn simulated(options: &Options) -> anyhow::Result<[[Run; 2]; 2]> {
    let mut options = options.clone();
    options.horizon = None;
    let both = |jobs: Option<usize>| -> anyhow::Result<[Run; 2]> {
        let options = Options { jobs: jobs.map(|it| it as u64), ..options.clone() };
        let run = |side: Side| side.simulate(&Model::T3dBenchmark, &options);
        Ok([run(Side::Before)?, run(Side::After)?])
    };
    Ok([both(Some(T3D_BENCHMARK_BATCH))?, both(None)?])
}

pub(super) fn table([alone, together]: &[[Run; 2]; 2]) -> Table {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("QUEUE LIMITS", Align::Right),
        ("CLASSES", Align::Right),
        ("CHANGE", Align::Right),
        ("PAPER, BEFORE", Align::Right),
        ("PAPER, AFTER", Align::Right),
        ("CHANGE", Align::Right),
    ]);
    let mut row =
        |title: &str, [before, after]: &[Run; 2], of: fn(&Run) -> f64, paper: [f64; 2]| {
            let [first, second] = paper;
            let change =
                |before: f64, after: f64| format!("{:+.1} %", (after / before - 1.0) * 100.0);
            let seconds = |it: f64| format!("{it:.0}");
            table.row([
                title.to_owned(),
                seconds(of(before)),
                seconds(of(after)),
                change(of(before), of(after)),
                seconds(first),
                seconds(second),
                change(first, second),
            ]);
        };
    row("batch alone", alone, |run| run.seen.batch_done_s, [3397.0, 2950.0]);
    row("with interactive: batch", together, |run| run.seen.batch_done_s, [3347.0, 3565.0]);
    let interactive = |run: &Run| run.seen.interactive_done_s;
    row("with interactive: interactive", together, interactive, [3553.0, 2797.0]);
    table
}
