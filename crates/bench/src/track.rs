//! `tutti-bench track`: what it costs to know of every process that begins and ends.

use super::figures::Figure;
use super::{Bench, options, processors, progress};
use anyhow::{Context, bail};
use serde::Serialize;
use std::time::Instant;
use tutti_client::ask::unexpected;
use tutti_client::output::{print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_linux::proc::ProcessStat;
use tutti_wire::local::{Reply, Request};

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Processes that the job made.
    made: u64,
    /// Those that were counted; nothing where the kernel does not tell of each.
    counted: Option<u64>,
    /// How many were made in a second.
    per_s: f64,
    /// The agent's processor time, as a part of one processor.
    processor_share: f64,
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let own = ScratchInstance::start("bench")?;
    let Reply::Status(status) = own.ask(&Request::Status)? else { return unexpected() };
    let Some(agent) = status.agents.first() else { bail!("the instance has no node") };
    let agent = agent.pid;
    progress("track: processes that do nothing but begin and end");
    let each: u64 = if bench.quick { 5_000 } else { 50_000 };
    let line = format!("i=0; while [ $i -lt {each} ]; do (:); i=$((i+1)); done");
    let tasks = processors();
    let before = ProcessStat::read(agent)?.cpu_time();
    let began = Instant::now();
    let job = own.submit(&options(tasks, None)?, &["sh".into(), "-c".into(), line.into()])?;
    own.wait(job)?;
    let took = began.elapsed().as_secs_f64();
    let used = ProcessStat::read(agent)?.cpu_time().saturating_sub(before).as_secs_f64();
    let Reply::History(history) = own.ask(&Request::History { job })? else { return unexpected() };
    let usage = history.job.usage.context("a job that has ended has no account")?;
    own.end()?;
    let made = (each + 1) * u64::from(tasks);
    let in_all = f64::from(u32::try_from(made).unwrap_or(u32::MAX));
    let counted = usage.processes;
    Ok(Report { made, counted, per_s: in_all / took, processor_share: used / took })
}

impl Report {
    fn words(&self) -> String {
        let missed = match self.counted {
            Some(counted) if counted == self.made => "none missed".to_owned(),
            Some(counted) => format!("{counted} of {} counted", self.made),
            None => "the kernel does not tell of them".to_owned(),
        };
        let (rate, share) = (self.per_s, self.processor_share * 100.0);
        format!("{rate:.0} births and ends a second at {share:.1} % of a processor, {missed}")
    }

    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json { print_json(self) } else { print(&format!("{}\n", self.words())) }
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let share_per_5000 = self.processor_share * 5_000.0 / self.per_s;
        let reached = share_per_5000 < 0.1 && self.counted == Some(self.made);
        let aim = "5,000 a second: under 10 % of a processor, none missed";
        vec![Figure::goal("track: following processes", self.words(), aim, reached)]
    }
}
