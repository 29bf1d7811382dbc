//! `tutti history`: jobs that have ended, and what they used.

use super::{ask, unexpected};
use crate::exit::Exit;
use crate::output::{Align, Table, account, print, print_json, print_table};
use clap::Args;
use tutti_core::JobId;
use tutti_wire::local::{Reply, Request};
use tutti_wire::report::{HistoryReport, JobReport};
use tutti_wire::units::format_seconds;

#[derive(Args, Debug)]
#[command(after_help = account::COLUMNS_HELP)]
pub(crate) struct HistoryArgs {
    /// As JSON
    #[arg(long)]
    json: bool,

    /// One job, with each of its tasks
    #[arg(value_name = "JOB", value_parser = super::jobs::job_number)]
    job: Option<u64>,
}

pub(crate) fn execute(args: &HistoryArgs) -> anyhow::Result<Exit> {
    let Some(job) = args.job else { return all(args.json) };
    let Reply::History(history) = ask(&Request::History { job: JobId(job) })? else {
        return unexpected();
    };
    if args.json {
        print_json(&history)?;
        return Ok(Exit::OK);
    }
    print(&describe(&history))?;
    print_table(&jobs_table(std::slice::from_ref(&history.job)))?;
    if !history.tasks.is_empty() {
        print("\n")?;
        print_table(&tasks_table(&history))?;
    }
    Ok(Exit::OK)
}

fn all(json: bool) -> anyhow::Result<Exit> {
    let Reply::Jobs(mut jobs) = ask(&Request::Jobs { ended: true })? else { return unexpected() };
    jobs.retain(|job| job.exit_code.is_some());
    if json {
        print_json(&jobs)?;
    } else {
        print_table(&jobs_table(&jobs))?;
    }
    Ok(Exit::OK)
}

fn describe(history: &HistoryReport) -> String {
    let job = &history.job;
    let mut text = format!(
        "job {} ({}) of {}, {}: exit {}, {}; it ended {} ago\n",
        job.job,
        job.name,
        job.user,
        job.class,
        job.exit_code.unwrap_or(0),
        job.reason,
        format_seconds(history.ended_s)
    );
    for line in job.detail.lines() {
        text.push_str(&format!("{line}\n"));
    }
    // Names are anything that a user can type.
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

/// The table of `tutti ps -l` and of `tutti history`.
pub(super) fn jobs_table(jobs: &[JobReport]) -> Table {
    let mut columns = vec![
        ("JOB", Align::Right),
        ("NAME", Align::Left),
        ("OWNER", Align::Left),
        ("STATE", Align::Left),
        ("WAITED", Align::Right),
        ("RAN", Align::Right),
        ("SUSPENDED", Align::Right),
    ];
    columns.extend(account::COLUMNS.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns).can_spare(&[
        "PEAK",
        "READ",
        "WRITTEN",
        "OWNER",
        "SWITCHES",
        "WAITED",
        "SUSPENDED",
        "SYSTEM",
    ]);
    for job in jobs {
        let state = match job.exit_code {
            Some(code) => format!("exit {code}"),
            None => job.state.clone(),
        };
        let mut row = vec![job.job.to_string(), job.name.clone(), job.user.clone(), state];
        row.extend(account::times(job));
        row.extend(account::cells(job.usage.as_ref()));
        table.row(row);
    }
    table
}

fn tasks_table(history: &HistoryReport) -> Table {
    let mut columns = vec![("RANK", Align::Right), ("EXIT", Align::Right)];
    columns.extend(account::COLUMNS.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns).can_spare(&["PEAK", "READ", "WRITTEN", "SWITCHES"]);
    for task in &history.tasks {
        let mut row = vec![task.rank.to_string(), task.exit_code.to_string()];
        row.extend(account::cells(Some(&task.usage)));
        table.row(row);
    }
    table
}
