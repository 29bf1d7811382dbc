//! Output of a rank on each node, all of it to one front end, and what it leaves of the way to
//! others.

use super::{Bench, Figure, NS_PER_MS, median, quantile};
use std::time::Instant;

/// What each rank writes.
const BYTES_EACH: usize = 50_000_000;

const SCRIPT: &str = "tutti run -N $1 -n $1 -- sh -c 'yes 0123456789012345678901234567890123456789012345678901234567890 | \
                      head -c '$2 | wc -c";

/// What is asked of all nodes, whose answers come over the connections that output comes over.
const QUESTION: [&str; 2] = ["tutti", "nodes"];

/// A rank on each node writes from now on.
const WRITE: &str = "{ tutti run -N $1 -n $1 -- yes 0123456789012345678901234567890123456789012345678901234567890 | wc -c; } \
                     > /dev/null 2>&1 & until tutti ps --json | grep -q '\"state\": *\"running\"'; do sleep 0.1; done; sleep 1";

const WRITE_NO_MORE: &str =
    "tutti ps --json | grep -o '\"job\": *[0-9]*' | grep -o '[0-9]*' | xargs tutti cancel --now";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    Ok(vec![rate(bench)?, answers(bench)?])
}

/// How long the nodes' answers take, alone and while all ranks write.
fn answers(bench: &Bench) -> anyhow::Result<Figure> {
    let (nodes, rounds) = (bench.nodes().to_string(), bench.rounds(60, 15));
    let alone = bench.time(rounds, &QUESTION)?;
    bench.script(WRITE, &[&nodes])?;
    let beside = bench.time(rounds, &QUESTION)?;
    bench.script(WRITE_NO_MORE, &[])?;
    let said = |mut ns: Vec<f64>| {
        let (middle, most) = (quantile(&mut ns, 0.5), quantile(&mut ns, 1.0));
        format!("median {:.1}, at most {:.1} ms", middle / NS_PER_MS, most / NS_PER_MS)
    };
    Ok(Figure::shown(
        &format!("`tutti nodes`, which asks {nodes} nodes, while a rank on each writes"),
        format!("{}; alone {}", said(beside), said(alone)),
    ))
}

fn rate(bench: &Bench) -> anyhow::Result<Figure> {
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
    Ok(Figure::goal(&what, format!("{rate:.0} MB/s"), "300 MB/s", rate >= 300.0))
}
