//! Figures of an instance as OpenMetrics text.

use crate::ask::{all_pages, ask, unexpected};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tutti_types::NodeId;
use tutti_wire::local::{Reply, Request};
use tutti_wire::metrics::{
    Histogram, LAUNCH_BOUNDS_MS, MetricsReport, SWITCH_BOUNDS_NS, VACATE_BOUNDS_NS, WAIT_BOUNDS_MS,
};
use tutti_wire::report::{AgentStatus, NodeReport, StatusReport};

/// What the figures are made of.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What the controller counts.
    pub metrics: MetricsReport,
    /// How the instance fares.
    pub status: StatusReport,
    /// Its nodes.
    pub nodes: Vec<NodeReport>,
    /// How far apart nodes made the latest switches, in nanoseconds, in order.
    pub spreads_ns: Vec<u64>,
}

/// The latest switches of each node that are compared with those of others.
const SWITCHES: u32 = 32;

impl Figures {
    /// Asks the instance for them.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask() -> anyhow::Result<Self> {
        let Reply::Metrics(metrics) = ask(&Request::Metrics)? else { return unexpected() };
        let Reply::Status(status) = ask(&Request::Status)? else { return unexpected() };
        let nodes = all_pages(NodeId(0), |from| match ask(&Request::Nodes { from })? {
            Reply::Nodes { nodes, next } => Ok((nodes, next)),
            _ => unexpected(),
        })?;
        let mut spreads_ns = Vec::new();
        if nodes.len() > 1 {
            let request = |from| Request::Switches { count: SWITCHES, from };
            let records = all_pages(NodeId(0), |from| match ask(&request(from))? {
                Reply::Switches { nodes, next } => Ok((nodes, next)),
                _ => unexpected(),
            })?;
            spreads_ns = crate::switches::spreads_ns(&records);
        }
        Ok(Self { metrics: *metrics, status, nodes, spreads_ns })
    }
}

/// Text in the making: one family after the other.
struct Text(String);

impl Text {
    /// Begins a family of series.
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        (histogram, bounds, digits): (&Histogram, &[u64; 12], u32),
    ) {
        let mut count = 0;
        for (at, more) in histogram.counts.iter().enumerate() {
            count += more;
            let bound = bounds.get(at).map_or("+Inf".into(), |bound| decimal(*bound, digits));
            let labels = [labels, &[("le", &bound)]].concat();
            self.series(&format!("{name}_bucket"), &labels, &count.to_string());
        }
        self.series(&format!("{name}_count"), labels, &count.to_string());
        self.series(&format!("{name}_sum"), labels, &decimal(histogram.sum, digits));
    }
}

/// A label's value as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number with so many digits behind the point, without needless zeros.
fn decimal(value: u64, digits: u32) -> String {
    let one = 10_u64.pow(digits);
    let text = format!("{}.{:0width$}", value / one, value % one, width = digits as usize);
    let text = text.trim_end_matches('0');
    match text.strip_suffix('.') {
        Some(whole) => format!("{whole}.0"),
        None => text.to_owned(),
    }
}

/// The figures as OpenMetrics text; docs/reference/metrics.md describes them.
#[must_use]
pub fn open_metrics(figures: &Figures) -> String {
    let mut text = Text(String::new());
    add_jobs(&mut text, &figures.metrics);
    add_times(&mut text, &figures.metrics);
    add_nodes(&mut text, &figures.nodes);
    add_agents(&mut text, &figures.status.agents);
    add_spreads(&mut text, &figures.spreads_ns);
    add_pressure(&mut text, &figures.status.agents);
    add_instance(&mut text, figures);
    text.0.push_str("# EOF\n");
    text.0
}

fn add_jobs(text: &mut Text, metrics: &MetricsReport) {
    text.family("tutti_jobs", "gauge", "", "Jobs that have not ended, by class and state.");
    for jobs in &metrics.jobs {
        let labels = [("class", &*jobs.class), ("state", &*jobs.state)];
        text.series("tutti_jobs", &labels, &jobs.count.to_string());
    }
    text.family("tutti_jobs_submitted", "counter", "", "Jobs accepted.");
    text.series("tutti_jobs_submitted_total", &[], &metrics.submitted.to_string());
    text.family("tutti_jobs_started", "counter", "", "Launches of jobs.");
    text.series("tutti_jobs_started_total", &[], &metrics.started.to_string());
    text.family("tutti_jobs_ended", "counter", "", "Jobs ended, by how they ended.");
    for (ending, count) in &metrics.ended {
        let labels = [("ending", ending.word())];
        text.series("tutti_jobs_ended_total", &labels, &count.to_string());
    }
}

fn add_times(text: &mut Text, metrics: &MetricsReport) {
    let name = "tutti_queue_wait_seconds";
    text.family(name, "histogram", "seconds", "Time between acceptance and first start of jobs.");
    text.histogram(name, &[], (&metrics.queue_wait, &WAIT_BOUNDS_MS, 3));
    let name = "tutti_launch_seconds";
    let help = "Time between the decision to start a job and the start of its first task.";
    text.family(name, "histogram", "seconds", help);
    text.histogram(name, &[], (&metrics.launch, &LAUNCH_BOUNDS_MS, 3));
    let name = "tutti_job_service_seconds";
    text.family(name, "counter", "seconds", "Time of turns that jobs which ended had, by class.");
    for (class, service_ms) in &metrics.service_ms {
        let labels = [("class", &**class)];
        text.series("tutti_job_service_seconds_total", &labels, &decimal(*service_ms, 3));
    }
}

fn add_nodes(text: &mut Text, nodes: &[NodeReport]) {
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    for node in nodes {
        *states.entry(&node.state).or_default() += 1;
    }
    text.family("tutti_agents", "gauge", "", "Nodes, by state.");
    for (state, count) in states {
        text.series("tutti_agents", &[("state", state)], &count.to_string());
    }
    type Of = fn(&NodeReport) -> u64;
    let gauges: [(&str, &str, &str, Of); 5] = [
        ("tutti_node_processors", "", "Processors for jobs.", |it| it.processors.into()),
        ("tutti_node_processors_free", "", "Processors that no job has in any row.", |it| {
            it.processors.saturating_sub(it.processors_used).into()
        }),
        ("tutti_node_memory_bytes", "bytes", "Memory for jobs.", |it| it.memory_bytes),
        ("tutti_node_memory_allocated_bytes", "bytes", "Memory allocated to jobs.", |it| {
            it.memory_allocated_bytes
        }),
        ("tutti_node_jobs", "", "Jobs with tasks on the node.", |it| it.jobs.into()),
    ];
    for (name, unit, help, value) in gauges {
        text.family(name, "gauge", unit, help);
        for node in nodes {
            text.series(name, &[("node", &node.name)], &value(node).to_string());
        }
    }
}

fn add_agents(text: &mut Text, agents: &[AgentStatus]) {
    type Of = fn(&AgentStatus) -> u64;
    let counters: [(&str, &str, Of); 5] = [
        ("tutti_switches", "Switches of the node.", |it| it.switches),
        (
            "tutti_switch_stragglers",
            "Switches that went on before all processes had stopped.",
            |it| it.stragglers,
        ),
        ("tutti_timetables_late", "Timetables that arrived too late.", |it| it.late_timetables),
        ("tutti_vacate_notices", "Notices to jobs before their turns ended.", |it| {
            it.notices.given
        }),
        ("tutti_vacate_missed", "Notices after which processes were not ready in time.", |it| {
            it.notices.missed
        }),
    ];
    for (name, help, value) in counters {
        text.family(name, "counter", "", help);
        for agent in agents {
            let labels = [("node", &*agent.node)];
            text.series(&format!("{name}_total"), &labels, &value(agent).to_string());
        }
    }
    type Times = fn(&AgentStatus) -> &Histogram;
    let histograms: [(&str, &str, &[u64; 12], Times); 3] = [
        (
            "tutti_switch_seconds",
            "Time from the begin of a switch to its end.",
            &SWITCH_BOUNDS_NS,
            |it| &it.switch_times,
        ),
        (
            "tutti_switch_late_seconds",
            "Time by which switches began too late.",
            &SWITCH_BOUNDS_NS,
            |it| &it.switch_delays,
        ),
        (
            "tutti_vacate_seconds",
            "Time from a notice until all processes of the job were ready.",
            &VACATE_BOUNDS_NS,
            |it| &it.notices.times,
        ),
    ];
    for (name, help, bounds, of) in histograms {
        text.family(name, "histogram", "seconds", help);
        for agent in agents {
            let labels = [("node", &*agent.node)];
            text.histogram(name, &labels, (of(agent), bounds, 9));
        }
    }
}

/// Nothing where no switch of several nodes is known.
fn add_spreads(text: &mut Text, spreads_ns: &[u64]) {
    let name = "tutti_switch_overlap_seconds";
    let help = "How far apart nodes made the same switch, of the latest ones.";
    text.family(name, "gauge", "seconds", help);
    let Some(last) = spreads_ns.len().checked_sub(1) else { return };
    for (stat, percent) in [("median", 50), ("p99", 99), ("max", 100)] {
        let spread = spreads_ns[(last * percent).div_ceil(100)];
        text.series(name, &[("stat", stat)], &decimal(spread, 9));
    }
}

/// Time in which tasks waited for processors, of nodes with a kernel that counts it.
fn add_pressure(text: &mut Text, agents: &[AgentStatus]) {
    let name = "tutti_node_cpu_pressure_seconds";
    let help = "Time in which some task of the node waited for a processor.";
    text.family(name, "counter", "seconds", help);
    for agent in agents {
        let Some(pressure_us) = agent.cpu_pressure_us else { continue };
        let labels = [("node", &*agent.node)];
        text.series(&format!("{name}_total"), &labels, &decimal(pressure_us, 6));
    }
}

fn add_instance(text: &mut Text, figures: &Figures) {
    let Figures { metrics, status, .. } = figures;
    text.family(
        "tutti_slot_used_ratio",
        "gauge",
        "ratio",
        "Part of the processors that jobs have, by row.",
    );
    for (row, used) in (1_u64..).zip(&metrics.rows_used_milli) {
        let row = row.to_string();
        text.series("tutti_slot_used_ratio", &[("row", &row)], &decimal((*used).into(), 3));
    }
    text.family("tutti_events", "counter", "", "Number of the latest event.");
    text.series("tutti_events_total", &[], &metrics.events.to_string());
    let help = "Standard input and output carried between tasks and front ends.";
    text.family("tutti_stdio_bytes", "counter", "bytes", help);
    for (stream, bytes) in [("input", metrics.carried.input), ("output", metrics.carried.output)] {
        text.series("tutti_stdio_bytes_total", &[("stream", stream)], &bytes.to_string());
    }
    text.family("tutti_journal_bytes", "gauge", "bytes", "Size of the journal on disk.");
    text.series("tutti_journal_bytes", &[], &metrics.journal_bytes.to_string());
    let name = "tutti_controller_start_time_seconds";
    text.family(name, "gauge", "seconds", "When the controller began, since 1970.");
    text.series(name, &[], &decimal(metrics.began_ms, 3));
    // A type that the older text format has, too: node_exporter reads the file as that.
    text.family("tutti_build_info", "gauge", "", "1, with the release as a label.");
    text.series("tutti_build_info", &[("version", &status.version)], "1");
}

#[cfg(test)]
mod tests {
    use super::{Text, add_pressure, add_spreads, decimal};
    use tutti_wire::metrics::{Histogram, LAUNCH_BOUNDS_MS};
    use tutti_wire::report::AgentStatus;

    #[test]
    fn node_without_a_pressure_has_no_series_of_it() {
        let agent = |node: &str, cpu_pressure_us| AgentStatus {
            node: node.into(),
            cpu_pressure_us,
            ..AgentStatus::default()
        };
        let mut text = Text(String::new());
        add_pressure(&mut text, &[agent("old", None), agent("new", Some(2_500_000))]);
        let series = text.0.lines().filter(|line| !line.starts_with('#'));
        let wanted = [r#"tutti_node_cpu_pressure_seconds_total{node="new"} 2.5"#];
        assert_eq!(series.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn spreads_of_switches_have_median_and_maximum() {
        let series = |spreads: &[u64]| {
            let mut text = Text(String::new());
            add_spreads(&mut text, spreads);
            let lines = text.0.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.rsplit_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(series(&[]), Vec::<String>::new());
        assert_eq!(series(&[1_000]), ["0.000001", "0.000001", "0.000001"]);
        assert_eq!(series(&[1_000, 2_000, 50_000_000]), ["0.000002", "0.05", "0.05"]);
    }

    #[test]
    fn numbers_have_a_point_and_no_needless_zeros() {
        let texts = [(0, "0.0"), (5, "0.005"), (1500, "1.5"), (60_000, "60.0")];
        for (value, text) in texts {
            assert_eq!(decimal(value, 3), text);
        }
        assert_eq!(decimal(50_000, 9), "0.00005");
    }

    #[test]
    fn a_histogram_counts_upwards_and_labels_are_escaped() {
        let mut histogram = Histogram::default();
        [1, 2, 99_999].iter().for_each(|value| histogram.add(*value, &LAUNCH_BOUNDS_MS));
        let mut text = Text(String::new());
        text.histogram("x", &[("node", "a\"b\n")], (&histogram, &LAUNCH_BOUNDS_MS, 3));
        let lines: Vec<&str> = text.0.lines().collect();
        assert_eq!(lines[0], r#"x_bucket{node="a\"b\n",le="0.001"} 1"#);
        assert_eq!(lines[1], r#"x_bucket{node="a\"b\n",le="0.002"} 2"#);
        assert_eq!(lines[12], r#"x_bucket{node="a\"b\n",le="+Inf"} 3"#);
        assert_eq!(lines[14], r#"x_sum{node="a\"b\n"} 100.002"#);
    }
}
