//! What people see of simulations.

use super::options::By;
use super::run::{Deadlines, Report};
use tutti_client::output::{Align, Table, counted};
use tutti_sim::{Fairness, Measure};
use tutti_types::Nanos;
use tutti_wire::units::format_duration_short;

/// What was simulated, in a line.
pub(super) fn title(report: &Report) -> String {
    let Report { workload, policy, nodes, processors_per_node, processors, .. } = report;
    let machine = counted(*processors, "processor");
    let are_equal = u64::from(*nodes) * u64::from(*processors_per_node) == u64::from(*processors);
    let machine = match processors_per_node {
        1 => machine,
        width if are_equal => format!("{machine} ({} of {width})", counted(*nodes, "node")),
        _ => format!("{machine} ({})", counted(*nodes, "node")),
    };
    format!("{workload} on {machine}, {policy}")
}

/// One simulation, with all its figures.
pub(super) fn one(report: &Report) -> String {
    let mut text = format!("{}\n\n", title(report));
    let mut measures = Table::new(&[
        ("", Align::Left),
        ("MEAN", Align::Right),
        ("MEDIAN", Align::Right),
        ("P95", Align::Right),
        ("MAX", Align::Right),
    ]);
    let mut row = |name: &str, measure: &Measure| {
        let Measure { mean, median, p95, max } = *measure;
        measures.row([name.to_owned(), number(mean), number(median), number(p95), number(max)]);
    };
    row("wait, s", &report.wait_s);
    row("response, s", &report.response_s);
    row("bounded slowdown", &report.slowdown);
    text.push_str(&measures.render());
    text.push('\n');
    let mut others = Table::new(&[("", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: String| others.row([name.to_owned(), value]);
    row("jobs", jobs(report));
    if report.not_run > 0 {
        row("not run", report.not_run.to_string());
    }
    if report.left > 0 {
        row("left at the horizon", report.left.to_string());
    }
    row("utilisation", percent(report.utilisation));
    row("loss of capacity", percent(report.loss_of_capacity));
    if let Some(Fairness { users, jain, worst_slowdown, .. }) = report.fairness {
        row("users", users.to_string());
        row("fairness of their slowdowns", format!("{jain:.3}"));
        row("the slowdown of the worst", number(worst_slowdown));
    }
    row("makespan", length(report.makespan_s));
    row("switches", report.switches.to_string());
    row("preemptions", report.preemptions.to_string());
    if report.switching > 0.0 {
        row("lost to switches", percent(report.switching));
    }
    if report.at_limit > 0 {
        row("ended at their limit", report.at_limit.to_string());
    }
    if let Some(Deadlines { declined, in_time, late }) = report.deadlines {
        row("declined", declined.to_string());
        row("done in time", in_time.to_string());
        row("done late", late.to_string());
    }
    // Its heading is empty.
    text.push_str(others.render().trim_start_matches('\n'));
    text
}

/// Several simulations, a line each.
pub(super) fn several(reports: &[Report]) -> Table {
    let same_workload = reports.iter().all(|report| report.workload == reports[0].workload);
    let same_policy = reports.iter().all(|report| report.policy == reports[0].policy);
    let mut columns = Vec::new();
    if !same_workload {
        columns.push(("WORKLOAD", Align::Left));
    }
    if !same_policy || same_workload {
        columns.push(("POLICY", Align::Left));
    }
    let figures = [
        "JOBS",
        "WAIT",
        "P95",
        "RESPONSE",
        "P95",
        "SLOWDOWN",
        "P95",
        "UTILISED",
        "LOST",
        "MAKESPAN",
        "PREEMPTIONS",
    ];
    columns.extend(figures.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    for report in reports {
        let mut cells = Vec::new();
        if !same_workload {
            cells.push(report.workload.clone());
        }
        if !same_policy || same_workload {
            cells.push(report.policy.clone());
        }
        cells.extend([
            jobs(report),
            number(report.wait_s.mean),
            number(report.wait_s.p95),
            number(report.response_s.mean),
            number(report.response_s.p95),
            number(report.slowdown.mean),
            number(report.slowdown.p95),
            percent(report.utilisation),
            percent(report.loss_of_capacity),
            length(report.makespan_s),
            report.preemptions.to_string(),
        ]);
        table.row(cells);
    }
    table
}

/// The groups of a simulation, a line each.
pub(super) fn groups(report: &Report, by: Option<By>) -> Table {
    let mut columns = vec![(by.map_or("GROUP", By::title), Align::Left)];
    let figures = [
        "JOBS", "WORK", "WAIT", "MEDIAN", "P95", "MAX", "RESPONSE", "MEDIAN", "P95", "MAX",
        "SLOWDOWN", "MEDIAN", "P95", "MAX",
    ];
    columns.extend(figures.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    for group in &report.groups {
        let mut cells = vec![group.group.clone().unwrap_or_default(), group.jobs.to_string()];
        cells.push(percent(group.work_share));
        for measure in [&group.wait_s, &group.response_s, &group.slowdown] {
            let Measure { mean, median, p95, max } = *measure;
            cells.extend([mean, median, p95, max].map(number));
        }
        table.row(cells);
    }
    table
}

fn jobs(report: &Report) -> String {
    report.jobs.to_string()
}

/// Seconds or slowdowns: enough digits to compare, and no more.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..100.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
#[expect(clippy::cast_sign_loss, reason = "a makespan is not negative")]
fn length(seconds: f64) -> String {
    format_duration_short(Nanos((seconds * 1e9) as u64))
}
