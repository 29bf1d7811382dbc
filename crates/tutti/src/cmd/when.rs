//! When jobs start: `run --when`, `submit --when`, `ps --start`.

use super::job_range::{Several, check_found};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::time::Duration;
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_node::calendar::local_time;
use tutti_node::exit::Exit;
use tutti_node::platform::time::wall_ms;
use tutti_types::JobId;
use tutti_wire::local::{JobRequest, Reply, Request};
use tutti_wire::report::{ForecastReport, StartReport};
use tutti_wire::units::format_seconds;

/// Prints when a job would start and end, if it were submitted now.
pub(super) fn of_job(request: JobRequest, json: bool) -> anyhow::Result<Exit> {
    match ask(&Request::When(request))? {
        Reply::Starts { report, .. } => {
            if json {
                print_json(&report)?;
                return Ok(Exit::OK);
            }
            let Some(start) = report.jobs.first() else { return unexpected() };
            print(&format!("{}\n", sentence(start, wall_ms())))?;
            say_terms(&report);
            Ok(Exit::OK)
        }
        Reply::Declined { reason, code } => {
            say!("tutti: declined: {}", code.mark(&reason));
            Ok(Exit::DECLINED)
        }
        _ => unexpected(),
    }
}

/// Prints when the jobs that wait are expected to start and to end.
pub(super) fn of_line(wanted: &[Several], user: Option<&str>, json: bool) -> anyhow::Result<Exit> {
    let mut report = all_starts()?;
    report.jobs.retain(|start| user.is_none_or(|user| *user == start.user));
    if !wanted.is_empty() {
        check_found(wanted, report.jobs.iter().filter_map(|start| start.job), " that waits")?;
        report
            .jobs
            .retain(|start| start.job.is_some_and(|job| wanted.iter().any(|it| it.has(job))));
    }
    if json {
        print_json(&report)?;
        return Ok(Exit::OK);
    }
    print_table(&table(&report, wall_ms()))?;
    if !report.jobs.is_empty() {
        say_terms(&report);
    }
    Ok(Exit::OK)
}

/// What `tutti ps --start --json` prints.
#[cfg(feature = "web")]
pub(super) fn json_of_line() -> anyhow::Result<String> {
    Ok(serde_json::to_string(&all_starts()?)?)
}

fn all_starts() -> anyhow::Result<ForecastReport> {
    starts_from(JobId(0))
}

/// All pages of one forecast, or of as few as may be, from this job on.
fn starts_from(first: JobId) -> anyhow::Result<ForecastReport> {
    let mut all: Option<ForecastReport> = None;
    let (mut from, mut number) = (first, 0);
    loop {
        let Reply::Starts { report, next, forecast } =
            ask(&Request::Starts { from, forecast: number })?
        else {
            return unexpected();
        };
        match &mut all {
            Some(all) => all.jobs.extend(report.jobs),
            None => all = Some(report),
        }
        number = forecast;
        // A page that begins no later would be asked for again and again.
        match (next.filter(|next| *next > from), &mut all) {
            (Some(next), _) => from = next,
            (None, all) => return all.take().map_or_else(unexpected, Ok),
        }
    }
}

/// How long [`starts_of`] waits: a forecast of a long line takes longer.
const FORESEEN_WITHIN: Duration = Duration::from_secs(2);

/// When these jobs, which wait, are expected to start; those of which that is soon known.
pub(super) fn starts_of(jobs: &BTreeSet<JobId>) -> BTreeMap<JobId, StartReport> {
    let Some(&first) = jobs.first() else { return BTreeMap::new() };
    let (sender, receiver) = channel();
    // It is left behind if it takes too long: its connection closes at the end of the process, and
    // the forecast with it.
    std::thread::spawn(move || sender.send(starts_from(first)));
    let Ok(Ok(report)) = receiver.recv_timeout(FORESEEN_WITHIN) else { return BTreeMap::new() };
    let starts = report.jobs.into_iter().filter_map(|start| Some((start.job?, start)));
    starts.filter(|(job, _)| jobs.contains(job)).collect()
}

/// What is expected of a job, and what that rests on.
pub(super) fn expected(start: &StartReport) -> String {
    sentence(start, wall_ms())
}

/// Under which terms the times hold.
fn say_terms(report: &ForecastReport) {
    let ForecastReport { policy, discipline, cut_short, .. } = report;
    say!(
        "tutti: if each job runs to its time limit and nothing else changes (policy={policy}, discipline={discipline})"
    );
    if !cut_short.is_empty() {
        say!("tutti: {cut_short}; what starts later is unknown");
    }
}

fn table(report: &ForecastReport, now_ms: u64) -> Table {
    let mut table = Table::new(&[
        ("JOB", Align::Right),
        ("NAME", Align::Left),
        ("USER", Align::Left),
        ("CLASS", Align::Left),
        ("TASKS", Align::Right),
        ("START", Align::Left),
        ("END", Align::Left),
        ("RESTS ON", Align::Left),
    ])
    .can_spare(&["CLASS", "TASKS", "USER"]);
    for start in &report.jobs {
        table.row(vec![
            start.job.map_or("-".into(), |job| job.to_string()),
            start.name.clone(),
            start.user.clone(),
            start.class.clone(),
            start.tasks.to_string(),
            cell(start.starts_ms, start.starts_in_ms, now_ms),
            cell(start.ends_ms, start.ends_in_ms, now_ms),
            basis(start, now_ms),
        ]);
    }
    table
}

/// A moment here, with how far ahead it is.
fn cell(at_ms: Option<u64>, in_ms: Option<u64>, now_ms: u64) -> String {
    match (at_ms, in_ms) {
        (Some(_), Some(0)) => "at once".into(),
        (Some(at), Some(within)) => {
            format!("{} (in {})", clock(at, now_ms), format_seconds(within.div_ceil(1000)))
        }
        (Some(at), None) => clock(at, now_ms),
        (None, _) => "unknown".into(),
    }
}

/// A moment here, to the nearest second: the time alone if it is today.
fn clock(at_ms: u64, now_ms: u64) -> String {
    let (at, today) = (local_time(at_ms.saturating_add(500)), local_time(now_ms));
    match (at.split_once(' '), today.split_once(' ')) {
        (Some((day, time)), Some((now, _))) if day == now => time.into(),
        _ => at,
    }
}

/// What a start rests on, or why it is unknown.
fn basis(start: &StartReport, now_ms: u64) -> String {
    let mut parts = Vec::new();
    if start.rests_on_count > 0 {
        parts.push(limits(start));
    }
    if let Some(at) = start.promised_ms {
        parts.push(format!("a promise: by {}", clock(at, now_ms)));
    }
    if !start.unknown.is_empty() {
        parts.push(format!("unknown: {}", start.unknown));
    }
    if parts.is_empty() && start.starts_in_ms.is_some_and(|within| within > 0) {
        parts.push(start.waits.clone());
    }
    parts.retain(|part| !part.is_empty());
    match parts.is_empty() {
        true => "-".into(),
        false => parts.join("; "),
    }
}

fn limits(start: &StartReport) -> String {
    let named: Vec<String> = start.rests_on.iter().map(ToString::to_string).collect();
    let more = start.rests_on_count.saturating_sub(u32::try_from(named.len()).unwrap_or(u32::MAX));
    match (&named[..], more) {
        ([only], 0) => format!("the limit of job {only}"),
        ([first @ .., last], 0) if !first.is_empty() => {
            format!("the limits of jobs {} and {last}", first.join(", "))
        }
        (_, more) => format!("the limits of jobs {} and {more} more", named.join(", ")),
    }
}

/// All that is foreseen of one job, in a line.
fn sentence(start: &StartReport, now_ms: u64) -> String {
    let begins = match (start.starts_ms, start.starts_in_ms) {
        (Some(_), Some(0)) => "starts at once".into(),
        (Some(_), _) => {
            format!("starts about {}", cell(start.starts_ms, start.starts_in_ms, now_ms))
        }
        (None, _) => return format!("start unknown: {}", start.unknown),
    };
    let mut text = begins;
    match start.ends_ms {
        Some(_) => {
            let ends = cell(start.ends_ms, start.ends_in_ms, now_ms);
            text.push_str(&format!(", ends by {ends}"));
        }
        None => text.push_str(&format!("; end unknown: {}", start.unknown)),
    }
    if start.rests_on_count > 0 {
        text.push_str(&format!("; rests on {}", limits(start)));
    }
    if let Some(at) = start.promised_ms {
        text.push_str(&format!("; promised by {}", clock(at, now_ms)));
    }
    let rests_on_jobs = start.rests_on_count > 0 || start.promised_ms.is_some();
    if !rests_on_jobs && start.starts_in_ms != Some(0) && !start.waits.is_empty() {
        text.push_str(&format!("; {}", start.waits));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(starts_in_ms: Option<u64>, ends_in_ms: Option<u64>) -> StartReport {
        let at = |within: Option<u64>| within.map(|within| 1_000_000_000_000 + within);
        StartReport {
            job: Some(JobId(7)),
            name: "a".into(),
            user: "ada".into(),
            class: "production".into(),
            tasks: 1,
            starts_ms: at(starts_in_ms),
            starts_in_ms,
            ends_ms: at(ends_in_ms),
            ends_in_ms,
            promised_ms: None,
            rests_on: Vec::new(),
            rests_on_count: 0,
            unknown: String::new(),
            waits: String::new(),
        }
    }

    #[test]
    fn sentence_says_what_is_known_and_what_it_rests_on() {
        let now_ms = 1_000_000_000_000;
        let at = |within: u64| clock(now_ms + within, now_ms);
        let text = |start: &StartReport| sentence(start, now_ms);
        let mut later = start(Some(720_000), Some(4_320_000));
        later.rests_on = vec![JobId(3), JobId(9)];
        later.rests_on_count = 2;
        let (begins, ends) = (at(720_000), at(4_320_000));
        assert_eq!(
            text(&later),
            format!(
                "starts about {begins} (in 12m00s), ends by {ends} (in 1h12m); rests on the limits of jobs 3 and 9"
            )
        );
        later.rests_on_count = 5;
        assert!(text(&later).ends_with("the limits of jobs 3, 9 and 3 more"));
        (later.rests_on, later.rests_on_count) = (vec![JobId(3)], 1);
        later.promised_ms = later.starts_ms;
        let promised = format!("the limit of job 3; promised by {begins}");
        assert!(text(&later).ends_with(&promised), "{}", text(&later));
        let unknown = "it has no time limit".into();
        let endless = StartReport { unknown, ..start(Some(0), None) };
        assert_eq!(text(&endless), "starts at once; end unknown: it has no time limit");
        let unknown = "job 7 has no time limit".into();
        let never = StartReport { unknown, ..start(None, None) };
        assert_eq!(text(&never), "start unknown: job 7 has no time limit");
        assert_eq!(basis(&never, now_ms), "unknown: job 7 has no time limit");
        let waits = "a limit of its queue is used up".to_owned();
        let limited = StartReport { waits: waits.clone(), ..start(Some(720_000), Some(800_000)) };
        assert!(text(&limited).ends_with(&format!("; {waits}")), "{}", text(&limited));
        assert_eq!(basis(&limited, now_ms), waits);
        assert_eq!(clock(now_ms + 720_000 - 2, now_ms), clock(now_ms + 720_000, now_ms));
    }

    #[test]
    fn moment_of_another_day_has_its_date() {
        let (now, day) = (1_000_000_000_000, 24 * 3_600_000);
        assert!(!clock(now, now).contains('-'));
        assert!(clock(now + day, now).contains('-'));
    }
}
