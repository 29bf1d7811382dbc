//! Output of a rank on each node, all of it to one front end.

use super::{Bench, Figure, median};
use std::time::Instant;

/// What each rank writes.
const BYTES_EACH: usize = 50_000_000;

const SCRIPT: &str = "tutti run -N $1 -n $1 -- sh -c 'yes 0123456789012345678901234567890123456789012345678901234567890 | \
                      head -c '$2 | wc -c";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let (nodes, each) = (bench.nodes().to_string(), BYTES_EACH.to_string());
    let mut rates = Vec::new();
    for _ in 0..bench.rounds(7, 2) {
        let begin = Instant::now();
        let told = bench.script(SCRIPT, &[&nodes, &each])?;
        let seconds = begin.elapsed().as_secs_f64();
        let came: u32 = told.trim().parse()?;
        anyhow::ensure!(
            u64::from(came) >= (BYTES_EACH * bench.nodes()) as u64,
            "{came} bytes came"
        );
        rates.push(f64::from(came) / 1e6 / seconds);
    }
    let rate = median(rates);
    let what = format!("output of {nodes} ranks on {nodes} nodes to one front end");
    Ok(vec![Figure::goal(&what, format!("{rate:.0} MB/s"), "300 MB/s", rate >= 300.0)])
}
