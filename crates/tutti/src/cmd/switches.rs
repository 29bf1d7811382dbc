//! The verb `switches`: what the nodes' switch threads recorded, and how far apart nodes were.

use clap::Args;
use std::collections::BTreeMap;
use tutti_client::ask::{all_pages, ask, unexpected};
use tutti_client::output::{Align, Table, fold, print, print_json, print_table, terminal_width};
use tutti_client::switches::Together;
use tutti_node::exit::Exit;
use tutti_types::{JobId, NodeId};
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{JobReport, SwitchRecord, SwitchReport};

/// What the columns of a switch mean.
const COLUMNS: &str = "\
DUE is cluster time in seconds; the others are counted from it: when the switch BEGAN, when the \
last process of the jobs that LEFT had STOPPED, and when the jobs that CAME were RESUMED. A job that \
LEFT and `runs on` had not stopped within freeze_deadline; STOPPED is then when the wait was given up.";

/// What the column means that clusters have alone.
const SPREAD: &str = "\
SPREAD, in a cluster, is from the first to the last node on which the jobs that CAME were RESUMED, by the nodes' own \
estimates of cluster time (`tutti nodes` shows under CLOCK how far off these may be); - where they are on one \
node alone, or the list does not show all of them switch at that moment.";

const EXAMPLES: &str = "\
Examples:
  tutti switches               the latest 20 of each node
  tutti switches -n 1000 --json";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{COLUMNS}\n\n{SPREAD}")
}

#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct SwitchesArgs {
    /// Number of switches of each node, the latest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    count: u32,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Rows and processors of jobs that have some.
pub(super) fn rows_of(jobs: &[JobReport]) -> BTreeMap<JobId, (u32, u32)> {
    jobs.iter().filter_map(|job| Some((job.job, (job.row?, job.processors)))).collect()
}

/// The row whose turn began with a switch. Jobs of other rows come, too, where it leaves processors
/// idle: it is the row with most processors among those that came.
pub(super) fn row_of(record: &SwitchRecord, jobs: &BTreeMap<JobId, (u32, u32)>) -> Option<u32> {
    let mut rows = BTreeMap::<u32, u64>::new();
    for (row, processors) in record.came.iter().filter_map(|job| jobs.get(job)) {
        *rows.entry(*row).or_default() += u64::from(*processors);
    }
    rows.into_iter().max_by_key(|&(_, processors)| processors).map(|(row, _)| row)
}

pub(crate) fn execute(args: &SwitchesArgs) -> anyhow::Result<Exit> {
    let nodes = reports(all_pages(NodeId(0), |from| {
        match ask(&Request::Switches { count: args.count, from })? {
            Reply::Switches { nodes, next } => Ok((nodes, next)),
            _ => unexpected(),
        }
    })?);
    if args.json {
        print_json(&nodes)?;
        return Ok(Exit::OK);
    }
    print_table(&table(&nodes))?;
    if let Some(width) = terminal_width() {
        // For people only: what programs cut is a table.
        let cluster = (nodes.len() > 1).then_some(SPREAD);
        for text in [Some(COLUMNS), cluster].into_iter().flatten() {
            print(&format!("\n{}\n", fold(text, width).join("\n")))?;
        }
    }
    Ok(Exit::OK)
}

fn reports(nodes: Vec<(String, Vec<SwitchRecord>)>) -> Vec<(String, Vec<SwitchReport>)> {
    let together = Together::of(&nodes);
    let report = |record: SwitchRecord| {
        let spread_ns = together.spread_ns(&record);
        SwitchReport { record, spread_ns }
    };
    nodes
        .into_iter()
        .map(|(node, records)| (node, records.into_iter().map(report).collect()))
        .collect()
}

fn table(nodes: &[(String, Vec<SwitchReport>)]) -> Table {
    let cluster = nodes.len() > 1;
    let mut columns = vec![
        ("NODE", Align::Left),
        ("DUE", Align::Right),
        ("BEGAN", Align::Right),
        ("STOPPED", Align::Right),
        ("RESUMED", Align::Right),
    ];
    columns.extend(cluster.then_some(("SPREAD", Align::Right)));
    columns.extend([("LEFT", Align::Left), ("CAME", Align::Left)]);
    let spare: &[&str] = if cluster { &["BEGAN", "STOPPED"] } else { &["BEGAN", "NODE"] };
    let mut table = Table::new(&columns).can_spare(spare);
    for (node, records) in nodes {
        for report in records {
            table.row(row(node, report, cluster));
        }
    }
    table
}

/// `DUE` is in seconds, the other times in microseconds.
fn row(node: &str, report: &SwitchReport, cluster: bool) -> Vec<String> {
    let record = &report.record;
    let after = |ns: u64| format!("+{} us", ns.saturating_sub(record.due_ns) / 1000);
    let names = |jobs: &[JobId], name: &dyn Fn(&JobId) -> String| match jobs {
        [] => "-".to_owned(),
        jobs => jobs.iter().map(name).collect::<Vec<_>>().join(","),
    };
    let left = |job: &JobId| match job {
        job if record.yields.contains(job) => format!("{job} (yields)"),
        job if record.running.contains(job) => format!("{job} (runs on)"),
        job => job.to_string(),
    };
    let stopped = match record.running.len() {
        0 => after(record.stopped_ns),
        _ => format!(">{}", after(record.stopped_ns)),
    };
    let mut row = vec![
        node.to_owned(),
        format!("{}.{:06}", record.due_ns / 1_000_000_000, record.due_ns / 1000 % 1_000_000),
        after(record.began_ns),
        stopped,
        after(record.resumed_ns),
    ];
    let spread = || report.spread_ns.map_or("-".into(), |ns| format!("{} us", ns / 1000));
    row.extend(cluster.then(spread));
    row.extend([names(&record.left, &left), names(&record.came, &JobId::to_string)]);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A switch that was due then, to these jobs, which ran so much later.
    fn switch(due_ns: u64, after_ns: u64, came: &[u64]) -> SwitchRecord {
        let resumed_ns = due_ns + after_ns;
        SwitchRecord {
            due_ns,
            began_ns: due_ns,
            stopped_ns: resumed_ns,
            devices_ns: 0,
            resumed_ns,
            left: Vec::new(),
            yields: Vec::new(),
            came: came.iter().map(|&job| JobId(job)).collect(),
            running: Vec::new(),
            stragglers: 0,
        }
    }

    #[test]
    fn a_job_that_did_not_stop_in_time_is_not_shown_as_stopped() {
        let stopped = SwitchRecord { left: vec![JobId(3), JobId(4)], ..switch(0, 5_000, &[7]) };
        let late = SwitchRecord { running: vec![JobId(3)], stragglers: 1, ..stopped.clone() };
        let cells = |record| row("n1", &SwitchReport { record, spread_ns: None }, false);
        assert_eq!(cells(stopped)[3..], ["+5 us", "+5 us", "3,4", "7"]);
        assert_eq!(cells(late)[3..], [">+5 us", "+5 us", "3 (runs on),4", "7"]);
    }

    #[test]
    fn the_spread_is_from_the_first_to_the_last_node_of_those_that_all_switched() {
        let nodes = [
            // Of the others the first is not in the list any more, and job 9 began there at another
            // time.
            ("n1", vec![switch(100, 7, &[1]), switch(200, 5, &[2, 9]), switch(300, 4, &[1])]),
            ("n2", vec![switch(200, 9, &[2]), switch(300, 2, &[1]), switch(450, 1, &[9])]),
            ("n3", vec![switch(200, 6, &[2]), switch(301, 2, &[1])]),
        ];
        let nodes = nodes.map(|(node, records)| (node.to_owned(), records));
        let spreads = |which: usize| {
            let all = reports(nodes.to_vec());
            all[which].1.iter().map(|report| report.spread_ns).collect::<Vec<_>>()
        };
        // One node of job 1 has its own time for when the third was due.
        assert_eq!(spreads(0), [None, None, None]);
        assert_eq!(spreads(1), [Some(4), None, None]);
        assert_eq!(spreads(2), [Some(4), None]);
        let two = reports(nodes[1..].to_vec());
        assert_eq!(two[0].1[0].spread_ns, Some(3));
        assert_eq!(table(&two).render().lines().next().unwrap().matches("SPREAD").count(), 1);
        let one = reports(nodes[..1].to_vec());
        assert!(one[0].1.iter().all(|report| report.spread_ns.is_none()));
        assert!(!table(&one).render().contains("SPREAD"));
    }
}
