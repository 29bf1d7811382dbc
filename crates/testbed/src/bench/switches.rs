//! Gangs over all nodes: how far apart the first and the last node begin with a job.
//!
//! From the records of the nodes' switch threads, which are in cluster time: so what a node takes
//! for the time counts as right. Beside it is shown how far off that is in truth, which a test bed
//! knows, since all its clocks are one below, and how far off it may be by the nodes' own word.

use super::{ALLTOALL, Bench, Figure, NS_PER_MS, quantile};
use anyhow::Context;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Switches of every node that are asked for: all of the time that is looked at.
const RECORDS: &str = "3000";

/// A switch that comes so long after it was due counts as late, in milliseconds.
const LATE_MS: f64 = 5.0;

/// What never waits.
const COMPUTES: &str = "while :; do :; done";

/// When each switch was due, and when the new job ran on each node that made it, by cluster time.
type Switches = BTreeMap<u64, Vec<u64>>;

/// Two jobs that took turns for some time.
struct Turns {
    /// What the nodes made of the switches of that time.
    made: Switches,
    /// How many were due.
    due: usize,
    nodes: usize,
}

impl Turns {
    /// Those that follow a switch, in so long a time. How many are due in it follows from the
    /// length of a turn alone: what no node has made is in no record.
    fn after(all: Switches, begin_ns: u64, turn: Duration, time: Duration, nodes: usize) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = begin_ns.saturating_add(ns(time)).saturating_add(ns(turn) / 2);
        let made = all.into_iter().filter(|(due, _)| *due > begin_ns && *due < end_ns).collect();
        let due = usize::try_from(ns(time) / ns(turn).max(1)).unwrap_or(usize::MAX);
        Self { made, due, nodes }
    }

    /// What all nodes made.
    fn together(&self) -> impl Iterator<Item = &Vec<u64>> {
        self.made.values().filter(|at| at.len() >= self.nodes)
    }

    /// How many some nodes made, and others did not.
    fn in_part(&self) -> usize {
        self.made.len() - self.together().count()
    }

    /// How many no node made.
    fn by_nobody(&self) -> usize {
        self.due.saturating_sub(self.made.len())
    }

    /// The same for a reader.
    fn missed(&self) -> String {
        let (due, in_part, by_nobody) = (self.due, self.in_part(), self.by_nobody());
        format!("of {due} switches {in_part} not on all nodes, {by_nobody} on none")
    }
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut figures = vec![skew(bench, "tasks that sleep", "sleep 1000")?];
    figures.push(crowded(skew(bench, "tasks that compute on all nodes", COMPUTES)?));
    figures.push(alone(bench)?);
    let all = bench.of_one_processor(bench.nodes())?;
    let of_mpi = |bench: &Bench| {
        let Some(program) = bench.mpi_program(&ALLTOALL)? else {
            return Ok(Figure::shown("MPI jobs that switch", "no MPICH here".into()));
        };
        let nodes = bench.nodes();
        let who = format!("MPI jobs (all-to-all) over {nodes} nodes of a processor each");
        skew(bench, &who, &format!("exec {program} 1000 2000000000"))
    };
    figures.push(crowded(of_mpi(&all)?));
    drop(all);
    if let Some(few) = bench.one_for_each_processor()? {
        figures.push(of_mpi(&few)?);
    }
    Ok(figures)
}

/// Only reported: tasks of several nodes wait for one processor there.
fn crowded(figure: Figure) -> Figure {
    Figure { must_reach: String::new(), reached: None, ..figure }
}

/// How far off the nodes' time is.
struct Clocks {
    /// In truth, at most, in milliseconds, if all nodes say what they go by.
    off: Option<f64>,
    /// By what they say themselves.
    said: f64,
}

impl Clocks {
    fn read(bench: &Bench) -> anyhow::Result<Self> {
        let told: Value = serde_json::from_str(&bench.script("tutti nodes --json", &[])?)?;
        let nodes = told.as_array().context("no list of nodes")?;
        let said = nodes.iter().filter_map(|node| node["clock_error_ns"].as_f64());
        let most = |off: Vec<i64>| off.into_iter().map(i64::unsigned_abs).max().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let off = bench.bed.clocks_off_ns(&told).map(|off| most(off) as f64 / NS_PER_MS);
        Ok(Self { off, said: said.fold(0.0, f64::max) / NS_PER_MS })
    }

    /// For a reader.
    fn shown(&self) -> String {
        let off = self.off.map_or("unknown".into(), |off| format!("{off:.3} ms"));
        format!("clocks off by {off} in truth, {:.2} ms at most by their word", self.said)
    }
}

/// Lets two jobs over all nodes take turns while `meanwhile` lasts, and how far off the nodes' time
/// is then.
fn turns(
    bench: &Bench,
    turn_ms: u64,
    line: &str,
    lasts: Duration,
    meanwhile: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(Turns, Clocks)> {
    let nodes = bench.nodes().to_string();
    bench.script("tutti params $1", &[&format!("quantum={turn_ms}ms")])?;
    let submit = "for i in 1 2; do tutti submit -N $1 -n $1 --exclusive -o /dev/null -- sh -c \"$2\"; done; \
                  until [ \"$(tutti ps --json | grep -c '\"state\": *\"running\"')\" = 2 ]; do sleep 0.1; done; sleep 1";
    bench.script(submit, &[&nodes, line])?;
    let begin = latest(&read(bench)?).context("no switch was made")?;
    meanwhile()?;
    let (all, clocks) = (read(bench)?, Clocks::read(bench)?);
    bench.script("tutti ps --json | grep -o '\"job\": *[0-9]*' | grep -o '[0-9]*' | xargs tutti cancel --now", &[])?;
    let turn = Duration::from_millis(turn_ms);
    Ok((Turns::after(all, begin, turn, lasts, bench.nodes()), clocks))
}

/// The last moment for which a switch of every node is known; or of most of them, if all have never
/// made one.
fn latest(switches: &Switches) -> Option<u64> {
    let most = switches.values().map(Vec::len).max()?;
    switches.iter().rev().find(|(_, nodes)| nodes.len() == most).map(|(due, _)| *due)
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

fn skew(bench: &Bench, who: &str, line: &str) -> anyhow::Result<Figure> {
    let lasts = Duration::from_secs(if bench.quick { 3 } else { 15 });
    let (turns, clocks) = turns(bench, 10, line, lasts, || bench.ends.sleep(lasts))?;
    let apart = |nodes: &Vec<u64>| Some(nodes.iter().max()? - nodes.iter().min()?);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let mut skews: Vec<f64> =
        turns.together().filter_map(apart).map(|ns| ns as f64 / NS_PER_MS).collect();
    let (middle, most) = (quantile(&mut skews, 0.5), quantile(&mut skews, 0.99));
    Ok(Figure::goal(
        &format!("first to last node's start of a job, turns of 10 ms, {who}"),
        format!("median {middle:.2}, 99 % {most:.2} ms ({}; {})", turns.missed(), clocks.shown()),
        "median 0.3, 99 % 1.5 ms",
        middle < 0.3 && most < 1.5,
    ))
}

/// The controller stands still meanwhile.
fn alone(bench: &Bench) -> anyhow::Result<Figure> {
    let lasts = Duration::from_secs(if bench.quick { 5 } else { 60 });
    let head = bench.bed.head();
    let (turns, _) = turns(bench, 100, "sleep 1000", lasts, || {
        head.signal("controller", Signal::SIGSTOP)?;
        let slept = bench.ends.sleep(lasts);
        head.signal("controller", Signal::SIGCONT).and(slept)
    })?;
    let late = turns
        .made
        .iter()
        .flat_map(|(due, nodes)| nodes.iter().map(move |at| at.saturating_sub(*due)));
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let mut late: Vec<f64> = late.map(|ns| ns as f64 / NS_PER_MS).collect();
    let (middle, last) = (quantile(&mut late, 0.5), quantile(&mut late, 1.0));
    Ok(Figure::goal(
        &format!("controller stopped for {} s, turns of 100 ms", lasts.as_secs()),
        format!("{}; {middle:.2} ms after they were due, {last:.2} at most", turns.missed()),
        &format!("none missed, none {LATE_MS} ms late"),
        turns.in_part() + turns.by_nobody() == 0 && last < LATE_MS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_nanos(100);

    /// Switches that are due at these moments, and were made by so many nodes.
    fn made(switches: &[(u64, usize)]) -> Switches {
        switches.iter().map(|&(due, nodes)| (due, vec![due + 1; nodes])).collect()
    }

    fn turns(switches: &[(u64, usize)]) -> Turns {
        Turns::after(made(switches), 1000, TURN, 5 * TURN, 2)
    }

    #[test]
    fn a_switch_that_no_node_made_is_missed_as_one_that_some_did_not_is() {
        // What was before is not asked for, and what comes later.
        let whole = [(900, 1), (1000, 2), (1100, 2), (1200, 2), (1300, 2), (1400, 2), (1500, 2)];
        let counts = |turns: &Turns| (turns.together().count(), turns.in_part(), turns.by_nobody());
        assert_eq!(counts(&turns(&[&whole[..], &[(1600, 1)]].concat())), (5, 0, 0));
        assert_eq!(counts(&turns(&[(1100, 2), (1200, 1), (1500, 2)])), (2, 1, 2));
        // All stood still, and some went on later.
        let still = turns(&[(1000, 2), (1700, 1)]);
        assert_eq!(counts(&still), (0, 0, 5));
        assert_eq!(still.missed(), "of 5 switches 0 not on all nodes, 5 on none");
    }

    #[test]
    fn turns_are_counted_from_the_last_switch_that_all_nodes_made() {
        assert_eq!(latest(&made(&[(100, 2), (200, 2), (300, 1)])), Some(200));
        assert_eq!(latest(&made(&[])), None);
    }
}
