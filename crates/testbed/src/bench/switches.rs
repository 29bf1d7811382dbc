//! Gangs over all nodes: how far apart the first and the last node begin with a job.
//!
//! From the records of the nodes' switch threads, which are in cluster time: so what a node takes for
//! the time counts as right, and how wrong that may be is shown beside it.

use super::{Bench, Figure, NS_PER_MS, quantile};
use anyhow::Context;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Switches of every node that are asked for: all of the time that is looked at.
const RECORDS: &str = "3000";

/// A switch that comes so long after it was due counts as late, in milliseconds.
const LATE_MS: f64 = 5.0;

/// When each node should have switched, and when the new job ran there, by cluster time.
type Switches = BTreeMap<u64, Vec<u64>>;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut figures = vec![skew(bench, "tasks that sleep", "sleep 1000")?];
    let busy = skew(bench, "tasks that compute on all nodes", "while :; do :; done")?;
    figures.push(Figure { must_reach: String::new(), reached: None, ..busy });
    figures.push(alone(bench)?);
    Ok(figures)
}

/// Lets two jobs over all nodes take turns while `meanwhile` lasts; the switches that all nodes made in that time.
fn switches(
    bench: &Bench,
    quantum: &str,
    line: &str,
    meanwhile: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(Switches, f64)> {
    let nodes = bench.nodes().to_string();
    bench.script("tutti params $1", &[&format!("quantum={quantum}")])?;
    let submit = "for i in 1 2; do tutti submit -N $1 -n $1 --exclusive -o /dev/null -- sh -c \"$2\"; done; \
                  until [ \"$(tutti ps --json | grep -c '\"state\": *\"running\"')\" = 2 ]; do sleep 0.1; done; sleep 1";
    bench.script(submit, &[&nodes, line])?;
    let begin = latest(&read(bench)?);
    meanwhile()?;
    let (all, error) = (read(bench)?, clock_error(bench)?);
    bench.script("tutti ps --json | grep -o '\"job\": *[0-9]*' | grep -o '[0-9]*' | xargs tutti cancel --now", &[])?;
    let end = latest(&all);
    let within = |due: &u64| *due > begin && *due < end;
    Ok((all.into_iter().filter(|(due, _)| within(due)).collect(), error))
}

/// The last moment for which a switch of every node is known.
fn latest(switches: &Switches) -> u64 {
    let most = switches.values().map(Vec::len).max().unwrap_or(0);
    switches.iter().rev().find(|(_, nodes)| nodes.len() == most).map_or(0, |(due, _)| *due)
}

fn read(bench: &Bench) -> anyhow::Result<Switches> {
    let told = bench.script("tutti switches -n $1 --json", &[RECORDS])?;
    let nodes: Vec<(String, Vec<Value>)> = serde_json::from_str(&told)?;
    let mut switches = Switches::new();
    for record in nodes.iter().flat_map(|(_, records)| records) {
        let has = |who: &str| record[who].as_array().is_some_and(|jobs| !jobs.is_empty());
        if has("left") && has("came") {
            let time = |of: &str| record[of].as_u64().context("a record without times");
            switches.entry(time("due_ns")?).or_default().push(time("resumed_ns")?);
        }
    }
    Ok(switches)
}

/// How far off the time of a node may be, at most, in milliseconds.
fn clock_error(bench: &Bench) -> anyhow::Result<f64> {
    let nodes: Vec<Value> = serde_json::from_str(&bench.script("tutti nodes --json", &[])?)?;
    let errors = nodes.iter().filter_map(|node| node["clock_error_ns"].as_f64());
    Ok(errors.fold(0.0, f64::max) / NS_PER_MS)
}

fn skew(bench: &Bench, who: &str, line: &str) -> anyhow::Result<Figure> {
    let seconds = if bench.quick { 3 } else { 15 };
    let (switches, error) =
        switches(bench, "10ms", line, || bench.ends.sleep(Duration::from_secs(seconds)))?;
    let together = switches.values().filter(|nodes| nodes.len() == bench.nodes());
    let apart = |nodes: &Vec<u64>| Some(nodes.iter().max()? - nodes.iter().min()?);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let mut skews: Vec<f64> = together.filter_map(apart).map(|ns| ns as f64 / NS_PER_MS).collect();
    let (middle, most) = (quantile(&mut skews, 0.5), quantile(&mut skews, 0.99));
    Ok(Figure::goal(
        &format!("first to last node's start of a job, turns of 10 ms, {who}"),
        format!(
            "median {middle:.2}, 99 % {most:.2} ms ({} switches; clocks +-{error:.2} ms)",
            skews.len()
        ),
        "median 0.3, 99 % 1.5 ms",
        middle < 0.3 && most < 1.5,
    ))
}

/// The controller stands still meanwhile.
fn alone(bench: &Bench) -> anyhow::Result<Figure> {
    let seconds = if bench.quick { 5 } else { 60 };
    let head = bench.bed.head();
    let (switches, _) = switches(bench, "100ms", "sleep 1000", || {
        head.signal("controller", Signal::SIGSTOP)?;
        let slept = bench.ends.sleep(Duration::from_secs(seconds));
        head.signal("controller", Signal::SIGCONT).and(slept)
    })?;
    let missed = switches.values().filter(|nodes| nodes.len() < bench.nodes()).count();
    let late = switches
        .iter()
        .flat_map(|(due, nodes)| nodes.iter().map(move |at| at.saturating_sub(*due)));
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let mut late: Vec<f64> = late.map(|ns| ns as f64 / NS_PER_MS).collect();
    let (middle, last) = (quantile(&mut late, 0.5), quantile(&mut late, 1.0));
    Ok(Figure::goal(
        &format!("controller stopped for {seconds} s, turns of 100 ms"),
        format!(
            "{missed} of {} switches not on all nodes; {middle:.2} ms after they were due, {last:.2} at most",
            switches.len()
        ),
        &format!("none missed, none {LATE_MS} ms late"),
        missed == 0 && last < LATE_MS,
    ))
}
