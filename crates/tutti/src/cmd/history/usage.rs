//! `tutti history --usage`: what the processors of nodes were used for.

use super::{Align, HistoryArgs, Table, plain, print_json, print_table};
use crate::cmd::ask_of_the_past;
use clap::ValueEnum;
use serde::Serialize;
use std::collections::BTreeMap;
use tutti_client::ask::unexpected;
use tutti_node::calendar::{hour_began_ms, local_time, period_began_ms};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_node::platform::time::wall_ms;
use tutti_types::BankPeriod;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};
use tutti_wire::units::format_bytes;
use tutti_wire::usage::{NodeUsage, UsageQuery, UsageSample};

const DAY_MS: u64 = 86_400_000;

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// Each interval that was measured.
    Interval,
    /// Each hour.
    #[default]
    Hour,
    /// Each day.
    Day,
    /// Each node.
    Node,
}

impl By {
    /// What a row is found by: its beginning, or its node.
    fn key(self, sample: &UsageSample, node: &NodeUsage) -> (u64, String) {
        let began_ms = sample.until_ms.saturating_sub(sample.interval_ms);
        match self {
            Self::Interval => (began_ms, String::new()),
            Self::Hour => (hour_began_ms(began_ms), String::new()),
            Self::Day => (period_began_ms(BankPeriod::Day, began_ms), String::new()),
            Self::Node => (0, node.node.clone()),
        }
    }
}

/// A row, as JSON shows it. Times are in milliseconds; those of processors are sums over
/// processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// The node, if each has a row.
    node: Option<String>,
    /// When the first interval began, in milliseconds since 1970.
    since_ms: u64,
    /// When the last one ended, in milliseconds since 1970.
    until_ms: u64,
    /// The most nodes that were measured in one interval.
    nodes: u64,
    /// The most processors that these had.
    processors: u64,
    /// The time that processors were there.
    processor_ms: u64,
    /// Of that, what all processes had.
    busy_ms: u64,
    /// Of that, what the cluster's jobs had; `null` where a node can't tell.
    jobs_ms: Option<u64>,
    /// Standard input that passed the nodes' keepers.
    input_bytes: u64,
    /// Standard output that passed them.
    output_bytes: u64,
}

impl Row {
    fn new(by: By, sample: &UsageSample, node: &NodeUsage) -> Self {
        Self {
            node: (by == By::Node).then(|| node.node.clone()),
            since_ms: sample.until_ms.saturating_sub(sample.interval_ms),
            jobs_ms: Some(0),
            ..Self::default()
        }
    }

    fn add(&mut self, sample: &UsageSample, node: &NodeUsage) {
        let length = |milli: u32| u64::from(milli).saturating_mul(sample.interval_ms) / 1000;
        let whole_ms = u64::from(node.processors).saturating_mul(sample.interval_ms);
        self.until_ms = self.until_ms.max(sample.until_ms);
        self.processor_ms = self.processor_ms.saturating_add(whole_ms);
        self.busy_ms = self.busy_ms.saturating_add(length(node.busy_milli));
        let carried = node.carried.unwrap_or_default();
        self.input_bytes = self.input_bytes.saturating_add(carried.input);
        self.output_bytes = self.output_bytes.saturating_add(carried.output);
        let jobs_ms = self.jobs_ms.zip(node.jobs_milli);
        self.jobs_ms = jobs_ms.map(|(sum, milli)| sum.saturating_add(length(milli)));
    }

    fn percent(&self, part_ms: u64) -> String {
        // In tenths of a percent, which is as exact as anyone reads.
        let tenths = u128::from(part_ms) * 1000 / u128::from(self.processor_ms.max(1));
        format!("{}.{} %", tenths / 10, tenths % 10)
    }

    fn cells(&self) -> Vec<String> {
        let unknown = || "?".to_owned();
        let others_ms = self.jobs_ms.map(|jobs_ms| self.busy_ms.saturating_sub(jobs_ms));
        let idle_ms = self.processor_ms.saturating_sub(self.busy_ms);
        let mut cells = match &self.node {
            Some(node) => vec![node.clone(), local_time(self.since_ms)],
            None => vec![local_time(self.since_ms), self.nodes.to_string()],
        };
        cells.push(self.processors.to_string());
        cells.push(self.jobs_ms.map_or_else(unknown, |it| self.percent(it)));
        cells.push(others_ms.map_or_else(unknown, |it| self.percent(it)));
        cells.push(self.percent(idle_ms));
        cells.extend([self.input_bytes, self.output_bytes].map(format_bytes));
        cells
    }
}

pub(super) fn execute(args: &HistoryArgs) -> anyhow::Result<Exit> {
    let rows = rows(args.by, args.since, args.until, args.node.clone())?;
    if args.json {
        print_json(&rows)?;
        return Ok(Exit::OK);
    }
    if rows.is_empty() {
        let node = args.node.as_ref().map_or_else(String::new, |node| format!(" of node {node}"));
        say!(
            "tutti: nothing was measured{} in that time; what is measured is known after each \
             interval (`tutti params usage_interval`)",
            plain(&node)
        );
        return Ok(Exit::OK);
    }
    print_table(&table(args.by, &rows))?;
    Ok(Exit::OK)
}

/// What `tutti history --usage --json` prints.
#[cfg(feature = "web")]
pub(in crate::cmd) fn usage_json_of(
    by: &str,
    since: Option<u64>,
    until: Option<u64>,
    node: Option<String>,
) -> anyhow::Result<String> {
    let by = By::from_str(by, false).map_err(|_| {
        coded(Code::BadValue, format!("by is {by:?}, and must be interval, hour, day or node"))
    })?;
    Ok(serde_json::to_string(&rows(by, since, until, node)?)?)
}

fn rows(
    by: By,
    since: Option<u64>,
    until: Option<u64>,
    node: Option<String>,
) -> anyhow::Result<Vec<Row>> {
    let until_ms = until.unwrap_or(u64::MAX);
    let since_ms = since.unwrap_or_else(|| until_ms.min(wall_ms()).saturating_sub(DAY_MS));
    if since_ms >= until_ms {
        let reason = "--since is not before --until; give an earlier --since";
        return Err(coded(Code::BadValue, reason));
    }
    let mut query = UsageQuery {
        since_ms: Some(since_ms),
        until_ms: until,
        node: node.filter(|it| !it.is_empty()),
    };
    let mut sums = Sums::default();
    loop {
        let Reply::Usage(samples) = ask_of_the_past(&Request::Usage(query.clone()))? else {
            return unexpected();
        };
        samples.iter().for_each(|sample| sums.add(by, sample));
        let Some(last) = samples.last() else { return Ok(sums.0.into_values().collect()) };
        query.since_ms = Some(last.until_ms + 1);
    }
}

/// Rows by their keys.
#[derive(Default)]
struct Sums(BTreeMap<(u64, String), Row>);

impl Sums {
    fn add(&mut self, by: By, sample: &UsageSample) {
        let mut there: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
        for node in &sample.nodes {
            let key = by.key(sample, node);
            let row = self.0.entry(key.clone()).or_insert_with(|| Row::new(by, sample, node));
            row.add(sample, node);
            let (nodes, processors) = there.entry(key).or_default();
            *nodes += 1;
            *processors += u64::from(node.processors);
        }
        for (key, (nodes, processors)) in there {
            if let Some(row) = self.0.get_mut(&key) {
                row.nodes = row.nodes.max(nodes);
                row.processors = row.processors.max(processors);
            }
        }
    }
}

fn table(by: By, rows: &[Row]) -> Table {
    let first = match by {
        By::Node => [("NODE", Align::Left), ("SINCE", Align::Left)],
        By::Interval | By::Hour | By::Day => [("SINCE", Align::Left), ("NODES", Align::Right)],
    };
    let rest = ["PROCESSORS", "JOBS", "OTHERS", "IDLE", "INPUT", "OUTPUT"]
        .map(|name| (name, Align::Right));
    let mut table = Table::new(&[&first[..], &rest[..]].concat());
    for row in rows {
        table.row(row.cells());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{By, Sums};
    use tutti_wire::usage::{CarriedBytes, NodeUsage, UsageSample};

    fn sample(until_s: u64, nodes: &[(&str, u32, Option<u32>)]) -> UsageSample {
        let nodes = nodes.iter().map(|&(node, busy_milli, jobs_milli)| NodeUsage {
            node: node.into(),
            processors: 2,
            busy_milli,
            jobs_milli,
            carried: Some(CarriedBytes { input: 1, output: 1024 }),
        });
        UsageSample { until_ms: until_s * 1000, interval_ms: 300_000, nodes: nodes.collect() }
    }

    #[test]
    fn intervals_are_added_up_by_hour_and_by_node() {
        let samples = [
            sample(3_900, &[("a", 1000, Some(500)), ("b", 2000, Some(2000))]),
            sample(4_200, &[("a", 0, Some(0))]),
            sample(7_500, &[("a", 2000, None)]),
        ];
        let cells = |by: By| {
            let mut sums = Sums::default();
            samples.iter().for_each(|sample| sums.add(by, sample));
            let rows = sums.0.into_values().map(|row| row.cells()[2..].join(" "));
            rows.collect::<Vec<_>>()
        };
        assert_eq!(cells(By::Hour), ["4 41.6 % 8.3 % 50.0 % 3 3.0K", "2 ? ? 0.0 % 1 1.0K"]);
        assert_eq!(cells(By::Interval).len(), 3);
        assert_eq!(cells(By::Node), ["2 ? ? 50.0 % 3 3.0K", "2 100.0 % 0.0 % 0.0 % 1 1.0K"]);
    }
}
