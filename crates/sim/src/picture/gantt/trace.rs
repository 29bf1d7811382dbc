//! Turns of jobs as a trace in the JSON that Perfetto and Chrome read.

use super::{Gantt, PictureError, STOPPED, Spell};
use serde_json::{Number, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Turns on processors that a trace has at most: more take hundreds of megabytes.
const SLICES_MAX: usize = 1_000_000;

/// Names for a trace.
pub trait TraceNames {
    /// The name of a node, by its number.
    fn node(&self, node: u32) -> String;

    /// The name of a job, by its number for people.
    fn job(&self, number: u64) -> String {
        number.to_string()
    }
}

/// A turn of a job.
#[derive(Clone, Copy, Debug)]
struct Turn<'a> {
    spell: &'a Spell,
    begin_ns: u64,
    end_ns: u64,
    /// What ended it.
    end: &'static str,
}

impl Gantt {
    /// Writes a trace: a process for each node, a thread for each processor, a slice for each turn.
    /// Times are in microseconds since the first submission, or the first start.
    ///
    /// # Errors
    /// If there was too much, or it can't be written.
    pub fn trace(
        mut self,
        names: &impl TraceNames,
        out: &mut impl Write,
    ) -> Result<(), TraceError> {
        self.finish()?;
        let turns = self.turns_of_all()?;
        let begin_ns = self.begin.unwrap_or_default().0;
        writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut separator = "";
        let mut line = |value: &Value| {
            let written = write!(out, "{separator}{value}");
            separator = ",\n";
            written
        };
        for value in threads(&turns, names) {
            line(&value)?;
        }
        for turn in &turns {
            for band in turn.spell.bands.iter() {
                for processor in band.first..band.first + band.count {
                    line(&json!({
                        "ph": "X", "pid": band.node + 1, "tid": processor + 1,
                        "ts": micros(turn.begin_ns.saturating_sub(begin_ns)),
                        "dur": micros(turn.end_ns - turn.begin_ns),
                        "name": names.job(turn.spell.number), "cat": "job",
                        "args": {"job": turn.spell.number, "end": turn.end},
                    }))?;
                }
            }
        }
        writeln!(out, "\n]}}")?;
        Ok(())
    }

    /// The turns, each whole: what comes between two of its stretches changed nothing for it.
    fn turns_of_all(&self) -> Result<Vec<Turn<'_>>, PictureError> {
        let mut turns: Vec<Turn<'_>> = Vec::new();
        let mut latest: BTreeMap<usize, usize> = BTreeMap::new();
        let mut slices = 0_usize;
        for spell in &self.spells {
            let width: usize = spell.bands.iter().map(|band| band.count as usize).sum();
            for (begin_ns, end_ns) in spell.turns().filter(|(begin, end)| begin < end) {
                let end = if end_ns == spell.to.0 { spell.end } else { STOPPED };
                let former = latest.get(&spell.sequence).and_then(|&index| turns.get_mut(index));
                if let Some(former) = former
                    && former.end_ns == begin_ns
                    && former.spell.bands == spell.bands
                {
                    (former.end_ns, former.end) = (end_ns, end);
                    continue;
                }
                slices = slices.saturating_add(width);
                if slices > SLICES_MAX {
                    let what = format!("more than {SLICES_MAX} turns on processors");
                    return Err(PictureError::TooMuch { what });
                }
                latest.insert(spell.sequence, turns.len());
                turns.push(Turn { spell, begin_ns, end_ns, end });
            }
        }
        turns.sort_by_key(|turn| turn.begin_ns);
        Ok(turns)
    }
}

/// The names of processes and threads.
fn threads(turns: &[Turn<'_>], names: &impl TraceNames) -> Vec<Value> {
    let bands = turns.iter().flat_map(|turn| turn.spell.bands.iter());
    let processors =
        bands.flat_map(|band| (band.first..band.first + band.count).map(|it| (band.node, it)));
    let processors: BTreeSet<(u32, u32)> = processors.collect();
    let mut former = None;
    let mut values = Vec::new();
    for (node, processor) in processors {
        let mut name = |what: &str, name: String| {
            let args = json!({"name": name});
            values.push(json!({
                "ph": "M", "pid": node + 1, "tid": processor + 1, "name": what, "args": args,
            }));
        };
        if former.replace(node) != Some(node) {
            name("process_name", names.node(node));
        }
        name("thread_name", format!("processor {processor}"));
    }
    values
}

/// Microseconds with their fraction.
fn micros(ns: u64) -> Number {
    let text = format!("{}.{:03}", ns / 1000, ns % 1000);
    serde_json::from_str(&text).unwrap_or_else(|_| 0.into())
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is too much of it.
    #[error(transparent)]
    TooMuch(#[from] PictureError),
    /// It can't be written.
    #[error("it can't be written")]
    Write(#[from] io::Error),
}
