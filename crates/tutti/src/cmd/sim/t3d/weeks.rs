//! Twelve weeks of people that wait for their results: the paper's table of utilisation by week.

use super::super::model::Model;
use super::super::options::Options;
use super::super::run::Report;
use super::{Run, Side, shown};
use tutti_client::output::{Align, Table};
use tutti_sim::Results;
use tutti_trace::model::T3dUsers;
use tutti_types::Nanos;

/// As long as the paper's table.
const WEEKS: Nanos = Nanos::from_secs(12 * 7 * 24 * 3600);

/// Before and after.
pub(super) fn simulated(model: &Model, options: &Options) -> anyhow::Result<[Run; 2]> {
    let mut options = options.clone();
    options.horizon.get_or_insert(WEEKS);
    options.feedback_hours = Some(T3dUsers::HOURS.parse()?);
    Ok([Side::Before.simulate(model, &options)?, Side::After.simulate(model, &options)?])
}

pub(super) fn table([before, after]: &[Run; 2]) -> Table {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("QUEUE LIMITS", Align::Right),
        ("CLASSES", Align::Right),
        ("PAPER, BEFORE", Align::Right),
        ("PAPER, AFTER", Align::Right),
    ]);
    let mut row = |title: &str, cells: [String; 2], paper: [&str; 2]| {
        let [before, after] = cells;
        table.row([title.to_owned(), before, after, paper[0].to_owned(), paper[1].to_owned()]);
    };
    let weeks = before.report.utilisation_by_week.iter().zip(&after.report.utilisation_by_week);
    for (week, (&before, &after)) in (1..).zip(weeks) {
        row(&format!("utilisation, week {week}"), [before, after].map(percent), ["", ""]);
    }
    let both = |of: fn(&Run) -> f64| [before, after].map(|run| percent(of(run)));
    row("utilisation", both(|run| run.report.utilisation), ["28.6 %", "45.3 %"]);
    row("  working hours", both(|run| run.seen.working_hours), ["", "above 90 %"]);
    row("  weekday nights", both(|run| run.seen.nights), ["", ""]);
    row("  weekends", both(|run| run.seen.weekends), ["about 10 %", "about 10 %"]);
    for (kind, is_batch) in [("interactive", false), ("batch", true)] {
        let [first, second] = [before, after].map(|run| means(&run.report, is_batch));
        let jobs = [first.jobs, second.jobs].map(|it| it.to_string());
        row(&format!("{kind}: jobs done"), jobs, ["", ""]);
        let waits = [first.wait_s, second.wait_s].map(shown);
        row(&format!("{kind}: mean wait"), waits, ["", ""]);
        let responses = [first.response_s, second.response_s].map(shown);
        row(&format!("{kind}: mean response"), responses, ["", ""]);
    }
    table
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Of interactive jobs, or of all others.
struct Means {
    jobs: u64,
    wait_s: f64,
    response_s: f64,
}

fn means(report: &Report, is_batch: bool) -> Means {
    let is_wanted = |it: &&Results| (it.group.as_deref() != Some("interactive")) == is_batch;
    let wanted = || report.groups.iter().filter(is_wanted);
    let jobs: u64 = wanted().map(|it| it.jobs).sum();
    let mean = |of: fn(&Results) -> f64| {
        wanted().map(|it| of(it) * it.jobs as f64).sum::<f64>() / jobs.max(1) as f64
    };
    Means { jobs, wait_s: mean(|it| it.wait_s.mean), response_s: mean(|it| it.response_s.mean) }
}
