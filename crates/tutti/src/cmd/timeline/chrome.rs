//! A timeline as a trace in the JSON that Perfetto and Chrome read.

use super::Timeline;
use serde_json::json;
use std::collections::BTreeSet;

/// The thread of a node that has its switches; processors follow it.
const SWITCHES: u32 = 0;

/// The trace; times are in microseconds since the begin of the timeline.
pub(super) fn trace(timeline: &Timeline) -> String {
    let mut lines = Vec::new();
    let mut lanes = BTreeSet::new();
    for slice in &timeline.slices {
        lanes.insert((slice.node, slice.processor + 1));
        lanes.insert((slice.node, SWITCHES));
        let begin = slice.begin_ns.max(timeline.begin_ns);
        lines.push(json!({
            "ph": "X", "pid": slice.node + 1, "tid": slice.processor + 1,
            "ts": micros(begin - timeline.begin_ns), "dur": micros(slice.end_ns - begin),
            "name": timeline.label(slice.job), "cat": "job",
            "args": {"job": slice.job.0, "end": slice.end.word()},
        }));
    }
    for (node, record) in &timeline.switches {
        let Some(began) = record.began_ns.checked_sub(timeline.begin_ns) else { continue };
        let numbers =
            |jobs: &[tutti_types::JobId]| jobs.iter().map(|job| job.0).collect::<Vec<_>>();
        lines.push(json!({
            "ph": "X", "pid": node + 1, "tid": SWITCHES,
            "ts": micros(began), "dur": micros(record.resumed_ns.saturating_sub(record.began_ns)),
            "name": "switch", "cat": "switch",
            "args": {
                "late_us": micros(record.began_ns.saturating_sub(record.due_ns)),
                "stop_us": micros(record.stopped_ns.saturating_sub(record.began_ns)),
                "left": numbers(&record.left), "came": numbers(&record.came),
                "ran_on": numbers(&record.running),
            },
        }));
    }
    let name = |what: &str, pid: usize, tid: u32, name: &str| json!({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}});
    let mut names = Vec::new();
    let mut former = None;
    for (node, tid) in lanes {
        if former.replace(node) != Some(node) {
            names.push(name("process_name", node + 1, tid, &timeline.nodes[node]));
        }
        let of_thread = match tid {
            SWITCHES => "switches".to_owned(),
            tid => format!("processor {}", tid - 1),
        };
        names.push(name("thread_name", node + 1, tid, &of_thread));
    }
    let lines: Vec<String> = names.iter().chain(&lines).map(ToString::to_string).collect();
    let span_ms = (timeline.end_ns - timeline.begin_ns) / 1_000_000;
    let about = json!({"begin_ms": timeline.end_ms.saturating_sub(span_ms)});
    format!(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[\n{}\n]}}\n",
        lines.join(",\n")
    )
}

/// Microseconds with their fraction.
fn micros(ns: u64) -> serde_json::Number {
    let text = format!("{}.{:03}", ns / 1000, ns % 1000);
    serde_json::from_str(&text).unwrap_or_else(|_| 0.into())
}
