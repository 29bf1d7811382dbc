//! `tutti report`: what users, groups, classes or queues got, from the jobs that have ended.

use super::ask_of_the_past;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use tutti_client::ask::{ask, pages_of_nodes, unexpected};
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_node::calendar::{local_time, moment_ms};
use tutti_node::codes::{code_of, coded};
use tutti_node::exit::Exit;
use tutti_node::platform::time::wall_ms;
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::history::{EndedQuery, EndedReport, Ending};
use tutti_wire::local::{Reply, Request};
use tutti_wire::units::format_duration_short;

const HELP: &str = "\
Examples:
  tutti report                          by user, all that the history has
  tutti report --by class --since 7d    the last week, by class
  tutti report --by queue               by queue; - is for jobs in none
  tutti report --by group --since 2026-03-01 --until 2026-04-01 --csv

Columns:
  JOBS       jobs that ended in that time
  FAILED     of these: failed, timed out, out of memory, or lost with a node
  CANCELLED  of these: ended by a user, or with the front end or the instance
  GRANTED    processors times the time of the turns
  CPU        processor time that the processes used
  WAIT       mean time between acceptance and start; LONGEST: the longest
  USE        part of all nodes' processors that was granted in that time";

/// What the rows of a report stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// Owners of jobs.
    User,
    /// The groups that jobs were submitted with.
    Group,
    /// Classes.
    Class,
    /// Queues; `-` is for jobs in none.
    Queue,
}

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ReportArgs {
    /// What the rows stand for
    #[arg(long, value_enum, default_value = "user", value_name = "WHAT")]
    by: By,

    /// Only jobs that ended at this time or later, such as 2d, 14:30 or 2026-03-28
    #[arg(long, value_name = "TIME", value_parser = moment_ms)]
    since: Option<u64>,

    /// Only jobs that ended before this time
    #[arg(long, value_name = "TIME", value_parser = moment_ms)]
    until: Option<u64>,

    /// As JSON; docs/reference/json.md has the fields
    #[arg(long)]
    json: bool,

    /// As comma-separated values, one line for each row
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// A row of a report. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Row {
    name: String,
    jobs: u64,
    failed: u64,
    cancelled: u64,
    /// Processors times the time of turns.
    granted_ms: u64,
    cpu_ms: u64,
    wait_mean_ms: u64,
    wait_longest_ms: u64,
    /// Of the processors of all nodes; `null` where these are unknown.
    use_percent: Option<f64>,
}

/// A report, as JSON shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    by: By,
    since_ms: u64,
    until_ms: u64,
    /// Processors of all nodes now; 0 where no instance runs.
    processors: u64,
    rows: Vec<Row>,
    total: Row,
}

/// What is added up of a row.
#[derive(Clone, Debug, Default)]
struct Sum {
    jobs: u64,
    failed: u64,
    cancelled: u64,
    granted_ms: u64,
    /// What of that lies within the time of the report.
    within_ms: u64,
    cpu_ms: u64,
    waited_ms: u64,
    wait_longest_ms: u64,
}

pub(crate) fn execute(args: &ReportArgs) -> anyhow::Result<Exit> {
    let report = make(args.by, args.since, args.until)?;
    let (since_ms, until_ms) = (report.since_ms, report.until_ms);
    if args.json {
        print_json(&report)?;
    } else if args.csv {
        print(&csv(&report))?;
    } else {
        print_table(&table(&report))?;
        say!("tutti: jobs that ended from {} to {}", local_time(since_ms), local_time(until_ms));
    }
    Ok(Exit::OK)
}

fn make(by: By, since: Option<u64>, until: Option<u64>) -> anyhow::Result<Report> {
    let until_ms = until.unwrap_or_else(wall_ms);
    if since.is_some_and(|since| since >= until_ms) {
        let reason = "--since is not before --until; give an earlier --since";
        return Err(coded(Code::BadValue, reason));
    }
    let jobs = jobs(since, until)?;
    let begin = jobs.iter().map(began_ms).min().unwrap_or(until_ms);
    Ok(report(&jobs, by, (since.unwrap_or(begin), until_ms), processors()?))
}

/// A report as JSON: by this word, of this time.
#[cfg(feature = "web")]
pub(super) fn json_of(by: &str, since: Option<u64>, until: Option<u64>) -> anyhow::Result<String> {
    let by = By::from_str(by, false).map_err(|_| {
        coded(Code::BadValue, format!("by is {by:?}, and must be user, group, class or queue"))
    })?;
    Ok(serde_json::to_string(&make(by, since, until)?)?)
}

/// What a report needs of a job that has ended.
#[derive(Clone, Debug)]
struct Job {
    user: String,
    gid: u32,
    class: String,
    queue: String,
    ending: Ending,
    processors: u64,
    ended_ms: u64,
    /// From its start to its end.
    resident_ms: u64,
    service_ms: u64,
    waited_ms: u64,
    cpu_ms: u64,
}

impl From<EndedReport> for Job {
    fn from(ended: EndedReport) -> Self {
        let EndedReport { job, gid, ending, ended_ms, .. } = ended;
        Self {
            user: job.user,
            gid,
            // The class of the submission, also where an allowance was spent since.
            class: job.former_class.unwrap_or(job.class),
            queue: job.queue.unwrap_or_else(|| "-".into()),
            ending,
            processors: job.processors.into(),
            ended_ms,
            resident_ms: job.service_ms.saturating_add(job.suspended_ms),
            service_ms: job.service_ms,
            waited_ms: job.waited_ms,
            cpu_ms: job.cpu_ms.unwrap_or(0),
        }
    }
}

const fn began_ms(job: &Job) -> u64 {
    job.ended_ms.saturating_sub(job.resident_ms)
}

fn jobs(since: Option<u64>, until: Option<u64>) -> anyhow::Result<Vec<Job>> {
    let mut query = EndedQuery { since_ms: since, until_ms: until, ..EndedQuery::default() };
    let mut all = Vec::new();
    loop {
        let Reply::Past { jobs, next } = ask_of_the_past(&Request::Past(query.clone()))? else {
            return unexpected();
        };
        all.extend(jobs.into_iter().map(Job::from));
        if next.is_none() {
            return Ok(all);
        }
        query.after = next;
    }
}

/// Processors of all nodes; none where no instance runs.
fn processors() -> anyhow::Result<u64> {
    match pages_of_nodes(|from| ask(&Request::Nodes { from })) {
        Ok(nodes) => Ok(nodes.iter().map(|node| u64::from(node.processors)).sum()),
        Err(error) if code_of(&error) == Code::NoInstance => Ok(0),
        Err(error) => Err(error),
    }
}

fn report(jobs: &[Job], by: By, span: (u64, u64), processors: u64) -> Report {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut groups: BTreeMap<u32, String> = BTreeMap::new();
    let mut total = Sum::default();
    for job in jobs {
        let name = match by {
            By::User => job.user.clone(),
            By::Class => job.class.clone(),
            By::Queue => job.queue.clone(),
            By::Group => groups.entry(job.gid).or_insert_with(|| group_name(job.gid)).clone(),
        };
        sums.entry(name).or_default().add(job, span);
        total.add(job, span);
    }
    let whole_ms = processors.saturating_mul(span.1.saturating_sub(span.0));
    let mut rows: Vec<Row> = sums.into_iter().map(|(name, sum)| sum.row(name, whole_ms)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.granted_ms));
    let total = total.row("total".into(), whole_ms);
    Report { by, since_ms: span.0, until_ms: span.1, processors, rows, total }
}

fn group_name(gid: u32) -> String {
    let found = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(gid));
    found.ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
}

impl Sum {
    fn add(&mut self, job: &Job, (since_ms, until_ms): (u64, u64)) {
        self.jobs += 1;
        match job.ending {
            Ending::Completed => {}
            Ending::Failed | Ending::TimedOut | Ending::OutOfMemory | Ending::Lost => {
                self.failed += 1;
            }
            Ending::Cancelled | Ending::Abandoned | Ending::ShutDown | Ending::NeverStarted => {
                self.cancelled += 1;
            }
        }
        let granted_ms = job.service_ms.saturating_mul(job.processors);
        self.granted_ms = self.granted_ms.saturating_add(granted_ms);
        // As if its turns were spread evenly.
        let within = job.ended_ms.min(until_ms).saturating_sub(began_ms(job).max(since_ms));
        let part = u128::from(granted_ms) * u128::from(within.min(job.resident_ms))
            / u128::from(job.resident_ms.max(1));
        self.within_ms = self.within_ms.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        self.cpu_ms = self.cpu_ms.saturating_add(job.cpu_ms);
        self.waited_ms = self.waited_ms.saturating_add(job.waited_ms);
        self.wait_longest_ms = self.wait_longest_ms.max(job.waited_ms);
    }

    fn row(self, name: String, whole_ms: u64) -> Row {
        // In tenths of a percent, which is as exact as anyone reads.
        let tenths = u128::from(self.within_ms) * 1000 / u128::from(whole_ms.max(1));
        let tenths = u32::try_from(tenths).unwrap_or(u32::MAX);
        Row {
            name,
            jobs: self.jobs,
            failed: self.failed,
            cancelled: self.cancelled,
            granted_ms: self.granted_ms,
            cpu_ms: self.cpu_ms,
            wait_mean_ms: self.waited_ms / self.jobs.max(1),
            wait_longest_ms: self.wait_longest_ms,
            use_percent: (whole_ms > 0).then(|| f64::from(tenths) / 10.0),
        }
    }
}

fn table(report: &Report) -> Table {
    let name = match report.by {
        By::User => "USER",
        By::Group => "GROUP",
        By::Class => "CLASS",
        By::Queue => "QUEUE",
    };
    let mut table = Table::new(&[
        (name, Align::Left),
        ("JOBS", Align::Right),
        ("FAILED", Align::Right),
        ("CANCELLED", Align::Right),
        ("GRANTED", Align::Right),
        ("CPU", Align::Right),
        ("WAIT", Align::Right),
        ("LONGEST", Align::Right),
        ("USE", Align::Right),
    ])
    .can_spare(&["CANCELLED", "CPU", "LONGEST"]);
    let length = |ms: u64| format_duration_short(Nanos::from_millis(ms));
    for row in report.rows.iter().chain([&report.total]) {
        table.row(vec![
            row.name.clone(),
            row.jobs.to_string(),
            row.failed.to_string(),
            row.cancelled.to_string(),
            length(row.granted_ms),
            length(row.cpu_ms),
            length(row.wait_mean_ms),
            length(row.wait_longest_ms),
            row.use_percent.map_or("-".into(), |part| format!("{part:.1} %")),
        ]);
    }
    table
}

/// The rows, without the total, which is their sum.
fn csv(report: &Report) -> String {
    let mut text = String::from(
        "name,jobs,failed,cancelled,granted_ms,cpu_ms,wait_mean_ms,wait_longest_ms,use_percent\n",
    );
    for row in &report.rows {
        let part = row.use_percent.map_or_else(String::new, |part| format!("{part:.1}"));
        text.push_str(&format!(
            "{},{},{},{},{},{},{},{},{part}\n",
            quoted(&row.name),
            row.jobs,
            row.failed,
            row.cancelled,
            row.granted_ms,
            row.cpu_ms,
            row.wait_mean_ms,
            row.wait_longest_ms
        ));
    }
    text
}

/// A value of a line, in quotes where it has something that separates.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(user: &str, ending: Ending, processors: u64, times: [u64; 3]) -> Job {
        let [ended_ms, service_ms, waited_ms] = times;
        Job {
            user: user.into(),
            gid: 0,
            class: "production".into(),
            queue: "-".into(),
            ending,
            processors,
            ended_ms,
            resident_ms: service_ms,
            service_ms,
            waited_ms,
            cpu_ms: service_ms / 2,
        }
    }

    #[test]
    fn rows_add_up_jobs_and_total_adds_up_rows() {
        let jobs = [
            job("ada", Ending::Completed, 2, [1000, 400, 100]),
            job("ada", Ending::TimedOut, 1, [2000, 1000, 300]),
            job("b,o\"b", Ending::Cancelled, 4, [2000, 100, 0]),
        ];
        let found = report(&jobs, By::User, (0, 2000), 4);
        let [ada, bob] = &found.rows[..] else { panic!("{found:?}") };
        assert_eq!((ada.jobs, ada.failed, ada.cancelled), (2, 1, 0));
        assert_eq!((ada.granted_ms, ada.cpu_ms), (1800, 700));
        assert_eq!((ada.wait_mean_ms, ada.wait_longest_ms), (200, 300));
        assert_eq!((ada.use_percent, bob.use_percent), (Some(22.5), Some(5.0)));
        assert_eq!((bob.failed, bob.cancelled, bob.granted_ms), (0, 1, 400));
        let total = &found.total;
        assert_eq!((total.jobs, total.granted_ms, total.wait_mean_ms), (3, 2200, 133));
        assert_eq!(total.use_percent, Some(27.5));
        let text = csv(&found);
        let mut lines = text.lines().skip(1);
        assert_eq!(lines.next(), Some("ada,2,1,0,1800,700,200,300,22.5"));
        assert_eq!(lines.next(), Some("\"b,o\"\"b\",1,0,1,400,50,0,0,5.0"));
        // What a job got before the time of the report is no use of the machine in that time.
        let half = report(&jobs, By::Class, (1500, 2000), 4);
        assert_eq!((half.rows.len(), half.total.use_percent), (1, Some(45.0)));
        assert_eq!(report(&[], By::Group, (0, 0), 0).total.use_percent, None);
    }
}
