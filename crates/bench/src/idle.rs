//! `tutti-bench idle`: what an instance costs that has nothing to do.

use super::figures::Figure;
use super::{Bench, options, progress};
use anyhow::{Context, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_wire::local::{Reply, Request};

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// How long was looked.
    seconds: u64,
    daemons: Vec<Daemon>,
}

#[derive(Debug, Serialize)]
struct Daemon {
    name: &'static str,
    pid: i32,
    /// Memory that is there, shared with others or not.
    rss_kb: u64,
    /// The same, each shared page divided by the number of processes that share it.
    pss_kb: u64,
    threads: usize,
    /// Times in a second that its threads went to sleep by themselves: wake-ups.
    wakeups_per_s: f64,
}

/// Jobs that ran before: a daemon that did nothing yet would flatter.
const JOBS_BEFORE: usize = 100;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let own = ScratchInstance::start("bench")?;
    progress("idle: some jobs first");
    let job = options(1, None)?;
    for _ in 0..JOBS_BEFORE {
        let id = own.submit(&job, &["/bin/true".into()])?;
        own.wait(id)?;
    }
    let pids = daemons(&own)?;
    std::thread::sleep(Duration::from_secs(1));
    progress("idle: watching");
    let seconds = if bench.quick { 3 } else { 10 };
    let before: Vec<_> = pids.iter().map(|&(_, pid)| sleeps(pid)).collect::<Result<_, _>>()?;
    std::thread::sleep(Duration::from_secs(seconds));
    let mut report = Report { seconds, daemons: Vec::new() };
    for (&(name, pid), before) in pids.iter().zip(before) {
        let after = sleeps(pid)?;
        let times: u64 = after
            .iter()
            .map(|(thread, count)| count.saturating_sub(before.get(thread).copied().unwrap_or(0)))
            .sum();
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        report.daemons.push(Daemon {
            name,
            pid,
            rss_kb: kilobytes(pid, "Rss:")?,
            pss_kb: kilobytes(pid, "Pss:")?,
            threads: after.len(),
            wakeups_per_s: f64::from(times) / f64::from(u32::try_from(seconds)?),
        });
    }
    own.end()?;
    Ok(report)
}

fn daemons(own: &ScratchInstance) -> anyhow::Result<Vec<(&'static str, i32)>> {
    let Reply::Status(status) = own.ask(&Request::Status)? else {
        return tutti_client::ask::unexpected();
    };
    let Some(agent) = status.agents.first() else { bail!("the instance has no node") };
    let supervisor = status_line(&format!("/proc/{}/status", status.pid), "PPid:")?;
    Ok(vec![
        ("supervisor", i32::try_from(supervisor)?),
        ("controller", status.pid),
        ("agent", agent.pid),
        ("keeper", agent.keeper_pid),
    ])
}

/// For each thread of a process, how often it went to sleep by itself.
fn sleeps(pid: i32) -> anyhow::Result<BTreeMap<i32, u64>> {
    let mut sleeps = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).context("a daemon is gone")? {
        let thread = thread?.file_name();
        let Some(thread) = thread.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let path = format!("/proc/{pid}/task/{thread}/status");
        sleeps.insert(thread, status_line(&path, "voluntary_ctxt_switches:")?);
    }
    Ok(sleeps)
}

pub(super) fn kilobytes(pid: i32, name: &str) -> anyhow::Result<u64> {
    status_line(&format!("/proc/{pid}/smaps_rollup"), name)
}

/// The number in the line of a file of `/proc` that begins with this name.
///
/// # Errors
/// If there is no such file or line.
pub(super) fn status_line(path: &str, name: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("{path} has no number for {name}"))
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut table = Table::new(&[
            ("DAEMON", Align::Left),
            ("RSS", Align::Right),
            ("PSS", Align::Right),
            ("THREADS", Align::Right),
            ("WAKE-UPS/S", Align::Right),
        ]);
        let row = |table: &mut Table, name: &str, rss: u64, pss: u64, threads, rate: f64| {
            let rate = format!("{rate:.1}");
            table.row([name.to_owned(), megabytes(rss), megabytes(pss), threads, rate]);
        };
        for one in &self.daemons {
            let threads = one.threads.to_string();
            row(&mut table, one.name, one.rss_kb, one.pss_kb, threads, one.wakeups_per_s);
        }
        let sum = |of: fn(&Daemon) -> u64| self.daemons.iter().map(of).sum();
        let rate = self.daemons.iter().map(|one| one.wakeups_per_s).sum();
        row(&mut table, "all", sum(|d| d.rss_kb), sum(|d| d.pss_kb), String::new(), rate);
        print(&format!(
            "After {JOBS_BEFORE} jobs, over {} s without any\n\n{}",
            self.seconds,
            table.render()
        ))
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let sum = |of: fn(&Daemon) -> u64| self.daemons.iter().map(of).sum::<u64>();
        let (rss, pss) = (sum(|d| d.rss_kb), sum(|d| d.pss_kb));
        let most = self.daemons.iter().map(|d| d.wakeups_per_s).fold(0.0, f64::max);
        vec![
            Figure::goal(
                "idle: memory of all daemons together",
                format!("{} resident (PSS {})", megabytes(rss), megabytes(pss)),
                "under 60 MB",
                rss < 60_000,
            ),
            Figure::goal(
                "idle: wake-ups of a daemon",
                format!("{most:.1} a second at most"),
                "less than 1 a second",
                most < 1.0,
            ),
        ]
    }
}

/// Millions of bytes, with a digit behind the point.
pub(super) fn megabytes(kb: u64) -> String {
    format!("{}.{} MB", kb / 1000, kb % 1000 / 100)
}
