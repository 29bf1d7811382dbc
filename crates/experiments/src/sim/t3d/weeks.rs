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

/// Each scheduler.
pub(super) fn simulated(model: &Model, options: &Options) -> anyhow::Result<[Run; 3]> {
    let mut options = options.clone();
    options.horizon.get_or_insert(WEEKS);
    options.feedback_hours = Some(T3dUsers::HOURS.parse()?);
    let [before, swap, after] = Side::ALL.map(|side| side.simulate(model, &options));
    Ok([before?, swap?, after?])
}

pub(super) fn table(runs: &[Run; 3]) -> Table {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("QUEUE LIMITS", Align::Right),
        ("SWAPPING", Align::Right),
        ("CLASSES", Align::Right),
        ("PAPER, UNICOS MAX", Align::Right),
        ("PAPER, DJM", Align::Right),
        ("PAPER, GANG", Align::Right),
    ]);
    let mut row = |title: &str, cells: [String; 3], paper: [&str; 3]| {
        let paper = paper.map(str::to_owned);
        table.row([title.to_owned()].into_iter().chain(cells).chain(paper));
    };
    let [before, swap, after] = [&runs[0], &runs[1], &runs[2]];
    let weeks = |run: &Run| run.report.utilisation_by_week.clone();
    let weeks = weeks(before).into_iter().zip(weeks(swap)).zip(weeks(after));
    for (week, ((before, swap), after)) in (1..).zip(weeks) {
        let cells = [before, swap, after].map(percent);
        row(&format!("utilisation, week {week}"), cells, ["", "", ""]);
    }
    let all = |of: fn(&Run) -> f64| [before, swap, after].map(|run| percent(of(run)));
    row("utilisation", all(|run| run.report.utilisation), ["28.6 %", "38.2 %", "45.3 %"]);
    // Of both preemptive schedulers together.
    row("  working hours", all(|run| run.seen.working_hours), ["", "above 90 %", "above 90 %"]);
    row("  weekday nights", all(|run| run.seen.nights), ["", "", ""]);
    row("  weekends", all(|run| run.seen.weekends), ["about 10 %"; 3]);
    for (kind, is_batch) in [("interactive", false), ("batch", true)] {
        let means = [before, swap, after].map(|run| means(&run.report, is_batch));
        let cells = |of: fn(&Means) -> String| [of(&means[0]), of(&means[1]), of(&means[2])];
        row(&format!("{kind}: jobs done"), cells(|it| it.jobs.to_string()), ["", "", ""]);
        row(&format!("{kind}: mean wait"), cells(|it| shown(it.wait_s)), ["", "", ""]);
        row(&format!("{kind}: mean response"), cells(|it| shown(it.response_s)), ["", "", ""]);
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
