//! The nodes in `tutti top`: which there are, what they do, and which row has its turn there.

use super::feed::Sample;
use super::screen::{Line, Style};
use super::view::{LOW, head};
use crate::cmd::nodes::external;
use crate::cmd::switches::{row_of, rows_of};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tutti_client::keys::Press;
use tutti_client::output::colours::of_state;
use tutti_client::output::{Align, Table};
use tutti_wire::report::NodeReport;
use tutti_wire::units::format_bytes;

/// The last line.
const KEYS: &str = "up, down choose  o order  O reverse  n, escape back to jobs  ? help  q end";

/// By what nodes are sorted. The first of each order is what needs a look first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    /// As the controller lists them.
    #[default]
    Number,
    /// By name.
    Name,
    /// Those that are not up first.
    State,
    /// Those with most processors in use first.
    Processors,
    /// Those with the highest load first.
    Load,
    /// Those with least free memory first.
    Memory,
    /// Those with most jobs first.
    Jobs,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Number => Self::Name,
            Self::Name => Self::State,
            Self::State => Self::Processors,
            Self::Processors => Self::Load,
            Self::Load => Self::Memory,
            Self::Memory => Self::Jobs,
            Self::Jobs => Self::Number,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Name => "name",
            Self::State => "state",
            Self::Processors => "processors in use",
            Self::Load => "load",
            Self::Memory => "free memory",
            Self::Jobs => "jobs",
        }
    }

    fn sort(self, nodes: &mut [&NodeReport]) {
        match self {
            Self::Number => {}
            Self::Name => nodes.sort_by_key(|node| &node.name),
            Self::State => nodes.sort_by_key(|node| (node.state == "up", &node.state)),
            Self::Processors => nodes.sort_by_key(|node| Reverse(node.processors_used)),
            Self::Load => nodes.sort_by_key(|node| Reverse(load_milli(node))),
            Self::Memory => {
                nodes.sort_by_key(|node| node.memory_free_bytes.unwrap_or(u64::MAX));
            }
            Self::Jobs => nodes.sort_by_key(|node| Reverse(node.jobs)),
        }
    }
}

/// The load of the last minute, in thousandths.
fn load_milli(node: &NodeReport) -> Option<u32> {
    node.load_averages_milli.map(|[minute, ..]| minute)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    order: Order,
    reverse: bool,
    /// The chosen line, from 0.
    chosen: usize,
    /// How many nodes are above the first that is shown.
    above: usize,
    /// How many are shown, and how many there are.
    shown: usize,
    all: usize,
}

impl Nodes {
    /// The last line, unless there is other news.
    pub(super) const fn bar() -> &'static str {
        KEYS
    }

    /// What a key does; whether it was one of this view.
    pub(super) fn press(&mut self, press: Press) -> bool {
        let page = self.shown.max(1);
        let last = self.all.saturating_sub(1);
        match press {
            Press::Up | Press::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            Press::Down | Press::Char('j') => self.chosen += 1,
            Press::PageUp => self.chosen = self.chosen.saturating_sub(page),
            Press::PageDown => self.chosen += page,
            Press::Home => self.chosen = 0,
            Press::End => self.chosen = last,
            Press::Char('o') => self.order = self.order.next(),
            Press::Char('O') => self.reverse = !self.reverse,
            _ => return false,
        }
        self.chosen = self.chosen.min(last);
        true
    }

    /// The picture of a look, in so many columns and lines.
    pub(super) fn lines(&mut self, sample: &Sample, (width, height): (usize, usize)) -> Vec<Line> {
        let mut nodes: Vec<&NodeReport> = sample.nodes.iter().collect();
        self.order.sort(&mut nodes);
        if self.reverse {
            nodes.reverse();
        }
        let mut lines: Vec<Line> = head(sample).into_iter().map(Line::from).collect();
        if height >= LOW {
            lines.push(Line::default());
        }
        // The line that says which nodes these are, and the names of columns.
        self.shown = height.saturating_sub(lines.len() + 2).max(1);
        self.all = nodes.len();
        self.chosen = self.chosen.min(self.all.saturating_sub(1));
        self.above = self.above.clamp((self.chosen + 1).saturating_sub(self.shown), self.chosen);
        self.above = self.above.min(self.all.saturating_sub(self.shown));
        let end = (self.above + self.shown).min(self.all);
        let reverse = if self.reverse { ", reversed" } else { "" };
        let (first, by) = (self.above + 1, self.order.name());
        lines.push(format!("nodes {first} to {end} of {}, by {by}{reverse}", self.all).into());
        let table = table(&nodes[self.above..end], sample).in_single_lines();
        let chosen = self.chosen - self.above + 1;
        for (number, line) in table.lines_within(Some(width)).into_iter().enumerate() {
            let style = match number {
                0 => Style::Title,
                _ if number == chosen => Style::Inverse,
                _ => Style::Plain,
            };
            lines.push(Line::new(line.text, style).with(line.marks));
        }
        lines
    }
}

fn table(nodes: &[&NodeReport], sample: &Sample) -> Table {
    let turns = turns(sample);
    let most_rows = sample.jobs.iter().map(|job| job.rows).max().unwrap_or(0);
    let has_reasons = nodes.iter().any(|node| node.drained.is_some());
    let mut columns = vec![
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("PROCESSORS", Align::Right),
        ("LOAD", Align::Right),
        ("EXTERNAL", Align::Right),
        ("MEMORY", Align::Right),
        ("ALLOCATED", Align::Right),
        ("FREE", Align::Right),
        ("JOBS", Align::Right),
        ("TURN", Align::Left),
    ];
    columns.extend(has_reasons.then_some(("REASON", Align::Left)));
    let mut table = Table::new(&columns)
        .can_spare(&["ALLOCATED", "EXTERNAL", "FREE", "MEMORY", "LOAD", "TURN"])
        .painted(&[("STATE", of_state)]);
    for node in nodes {
        let turn = match turns.get(node.name.as_str()) {
            _ if node.jobs == 0 => "-".into(),
            _ if most_rows == 1 => "always".into(),
            Some(row) => format!("row {row}/{most_rows}"),
            None => "-".into(),
        };
        let load = load_milli(node).map(|milli| {
            let hundredths = milli.saturating_add(5) / 10;
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        });
        let unknown = || "-".to_owned();
        let mut row = vec![
            node.name.clone(),
            node.state.clone(),
            format!("{}/{}", node.processors_used, node.processors),
            load.unwrap_or_else(unknown),
            Some(external(node)).filter(|text| !text.is_empty()).unwrap_or_else(unknown),
            format_bytes(node.memory_bytes),
            format_bytes(node.memory_allocated_bytes),
            node.memory_free_bytes.map_or_else(unknown, format_bytes),
            node.jobs.to_string(),
            turn,
        ];
        row.extend(has_reasons.then(|| node.drained.clone().unwrap_or_default()));
        table.row(row);
    }
    table
}

/// The row that had its turn on each node at its latest switch.
fn turns(sample: &Sample) -> BTreeMap<&str, u32> {
    let rows = rows_of(&sample.jobs);
    let nodes = sample.switches.iter();
    nodes.filter_map(|(node, found)| Some((node.as_str(), row_of(found.last()?, &rows)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{job, node, sample_of};
    use super::*;
    use tutti_types::JobId;
    use tutti_wire::report::SwitchRecord;

    fn cluster(count: u32) -> Sample {
        let mut sample = sample_of(vec![job(1, 1, 2, &["n1:0"]), job(2, 2, 2, &["n1:0"])]);
        sample.nodes = (0..count)
            .map(|number| NodeReport {
                processors_used: number % 7,
                jobs: number % 5,
                load_averages_milli: Some([number * 10, 0, 0]),
                ..node(&format!("n{number}"), 8, if number == 77 { "lost" } else { "up" })
            })
            .collect();
        let record = SwitchRecord {
            due_ns: 0,
            began_ns: 0,
            stopped_ns: 0,
            devices_ns: 0,
            resumed_ns: 0,
            left: vec![JobId(1)],
            yields: Vec::new(),
            came: vec![JobId(2)],
            running: Vec::new(),
            stragglers: 0,
        };
        sample.switches = vec![("n1".into(), vec![record])];
        sample
    }

    fn texts(nodes: &mut Nodes, sample: &Sample) -> Vec<String> {
        let lines = nodes.lines(sample, (100, 24));
        assert!(lines.len() <= 24, "{lines:#?}");
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn hundreds_of_nodes_are_shown_by_pages() {
        let (mut nodes, sample) = (Nodes::default(), cluster(300));
        let first = texts(&mut nodes, &sample);
        assert_eq!(first[3], "nodes 1 to 19 of 300, by number");
        assert!(first[4].starts_with("NODE  STATE  PROCESSORS"), "{first:#?}");
        assert!(first[6].starts_with("n1    up            1/8  0.01"), "{first:#?}");
        assert!(first[6].ends_with("row 2/2") && first[5].ends_with('-'), "{first:#?}");
        for (press, shown) in [
            (Press::PageDown, "nodes 2 to 20 of 300"),
            (Press::PageDown, "nodes 21 to 39 of 300"),
            (Press::End, "nodes 282 to 300 of 300"),
            (Press::Down, "nodes 282 to 300 of 300"),
            (Press::PageUp, "nodes 281 to 299 of 300"),
            (Press::Home, "nodes 1 to 19 of 300"),
        ] {
            assert!(nodes.press(press));
            assert!(texts(&mut nodes, &sample)[3].starts_with(shown), "{press:?}");
        }
        assert!(!nodes.press(Press::Char('c')), "no order about a job that is not shown");
    }

    #[test]
    fn what_needs_a_look_comes_first_in_each_order() {
        let (mut nodes, sample) = (Nodes::default(), cluster(300));
        let mut first = |key| {
            nodes.press(Press::Char(key));
            let texts = texts(&mut nodes, &sample);
            let by = texts[3].rsplit_once("by ").unwrap().1.to_owned();
            (by, texts[5].split(' ').next().unwrap().to_owned())
        };
        let is = |by: &str, node: &str| (by.to_owned(), node.to_owned());
        assert_eq!(first('o'), is("name", "n0"));
        assert_eq!(first('o'), is("state", "n77"));
        assert_eq!(first('o'), is("processors in use", "n6"));
        assert_eq!(first('o'), is("load", "n299"));
        assert_eq!(first('O'), is("load, reversed", "n0"));
        // A cluster that shrinks leaves the choice on a node that there is.
        nodes.press(Press::End);
        assert_eq!(texts(&mut nodes, &cluster(2))[3], "nodes 1 to 2 of 2, by load, reversed");
        assert!(texts(&mut nodes, &cluster(0))[3].starts_with("nodes 1 to 0 of 0"));
    }
}
