//! `tutti-bench launch`: how long it takes to start something and to see its end.

use super::contend::{
    Contender, Expects, NOT_INSTALLED, Ratio, Timing, alternate, find_program, ms,
};
use super::figures::Figure;
use super::mpi::{self, HYDRA};
use super::scratch::Scratch;
use super::{Bench, options, progress};
use anyhow::{Context, bail};
use serde::Serialize;
use std::time::{Duration, Instant};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_wire::launch::{OpenMode, Stdio};
use tutti_wire::local::{Reply, Request};

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// One `hostname`: plain, by `run`, by hydra.
    one: Vec<Timing>,
    /// Eight of them.
    eight: Vec<Timing>,
    /// Four ranks that start and end MPI; empty where there is no MPICH.
    init: Vec<Timing>,
    /// `tutti run true`, one after the other, a second.
    run_per_s: f64,
    /// `true`, submitted over one connection, to the end of the last, a second.
    submit_per_s: f64,
}

/// Requests that are sent before the first of them is answered.
const IN_FLIGHT: usize = 32;

/// The names of the contenders, by which the figures find them.
const PLAIN: &str = "plain fork, exec, wait";
const TUTTI: &str = "tutti run";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let own = ScratchInstance::start("bench")?;
    let rounds = if bench.quick { 5 } else { 25 };
    progress("launch: one hostname");
    let one = alternate(&hostnames(&own, 1)?, rounds)?;
    progress("launch: eight hostnames");
    let eight = alternate(&hostnames(&own, 8)?, rounds)?;
    progress("launch: MPI_Init and MPI_Finalize");
    let init = match inits(&own)? {
        // Ranks that look for each other differ by a fifth from one time to the next.
        Some((_scratch, contenders)) => alternate(&contenders, 3 * rounds)?,
        None => Vec::new(),
    };
    progress("launch: one run after the other");
    let run_per_s = sequential(&own, if bench.quick { 50 } else { 200 })?;
    progress("launch: jobs submitted over one connection");
    let submit_per_s = submitted(&own, if bench.quick { 200 } else { 1000 })?;
    own.end()?;
    Ok(Report { one, eight, init, run_per_s, submit_per_s })
}

fn hostnames(own: &ScratchInstance, tasks: usize) -> anyhow::Result<Vec<Contender>> {
    let count = tasks.to_string();
    let expects = Expects::Lines(tasks);
    let run = ["run", "-n", &count, "hostname"];
    let mut contenders = vec![
        Contender::command(PLAIN, ["hostname"], Expects::Lines(1)),
        Contender::verb(TUTTI, own.directory(), run, expects)?,
    ];
    if find_program(HYDRA).is_some() {
        contenders.push(Contender::command(HYDRA, [HYDRA, "-n", &count, "hostname"], expects));
    }
    Ok(contenders)
}

fn inits(own: &ScratchInstance) -> anyhow::Result<Option<(Scratch, Vec<Contender>)>> {
    let scratch = Scratch::new("launch")?;
    let Some(program) = mpi::INIT.compile(&scratch)? else { return Ok(None) };
    let program = program.to_str().context("the directory for temporary files is no text")?;
    let expects = Expects::Bytes(0);
    let mut contenders =
        vec![Contender::verb(TUTTI, own.directory(), ["run", "-n", "4", program], expects)?];
    if find_program(HYDRA).is_some() {
        contenders.push(Contender::command(HYDRA, [HYDRA, "-n", "4", program], expects));
    }
    Ok(Some((scratch, contenders)))
}

fn sequential(own: &ScratchInstance, count: u32) -> anyhow::Result<f64> {
    let run = Contender::verb(TUTTI, own.directory(), ["run", "/bin/true"], Expects::Lines(0))?;
    run.run()?;
    let begin = Instant::now();
    for _ in 0..count {
        run.run()?;
    }
    Ok(per_second(count, begin.elapsed()))
}

/// One client, one connection: each job is handed in when the one before was accepted.
fn submitted(own: &ScratchInstance, count: u32) -> anyhow::Result<f64> {
    let null = || serde_bytes::ByteBuf::from(&b"/dev/null"[..]);
    let stdio = Stdio::Files { input: None, output: null(), error: None, mode: OpenMode::Append };
    let argv = ["/bin/true".into()];
    let request = tutti_client::job_request(&options(1, None)?, "production", &argv, None, stdio)?;
    let mut link = own.connect()?;
    let begin = Instant::now();
    let mut jobs = Vec::new();
    let mut sent = 0;
    while jobs.len() < count as usize {
        // Each is answered when it is on disk; a client with many does not wait for each.
        while sent < count && (sent as usize) < jobs.len() + IN_FLIGHT {
            link.send(&Request::Submit(request.clone(), tutti_client::new_key()?));
            sent += 1;
        }
        match link.call()? {
            Reply::Accepted { job, .. } => jobs.push(job),
            Reply::Failed { reason, .. } | Reply::Declined { reason, .. } => bail!("{reason}"),
            _ => return tutti_client::ask::unexpected(),
        }
    }
    for job in jobs {
        link.send(&Request::Wait { job });
        match link.call()? {
            Reply::Ended { outcome, .. } if outcome.exit_code == 0 => {}
            Reply::Ended { outcome, detail, .. } => {
                bail!("job {job} ended with exit code {}: {detail}", outcome.exit_code)
            }
            Reply::Failed { reason, .. } => bail!("{reason}"),
            _ => return tutti_client::ask::unexpected(),
        }
    }
    Ok(per_second(count, begin.elapsed()))
}

fn per_second(count: u32, took: Duration) -> f64 {
    (f64::from(count) / took.as_secs_f64()).round()
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut table = Table::new(&[
            ("WHAT", Align::Left),
            ("BY", Align::Left),
            ("MEDIAN", Align::Right),
            ("LEAST", Align::Right),
            ("RATIO TO THE FIRST", Align::Right),
            ("TO HYDRA", Align::Right),
        ]);
        let groups = [
            ("-n 1 hostname", &self.one),
            ("-n 8 hostname", &self.eight),
            ("-n 4 MPI_Init, MPI_Finalize", &self.init),
        ];
        for (what, timings) in groups {
            let hydra = find(timings, HYDRA);
            for timing in timings {
                let to_hydra = hydra.map(|hydra| format!("{:.2}", timing.over(hydra).median));
                table.row([
                    what.into(),
                    timing.what.clone(),
                    ms(timing.median_us),
                    ms(timing.least_us),
                    format!("{:.2}", timing.ratio),
                    to_hydra.unwrap_or_default(),
                ]);
            }
            if hydra.is_none() {
                table.row([what.into(), HYDRA.into(), NOT_INSTALLED.into()]);
            }
        }
        print(&table.render())?;
        print(&format!(
            "\n`run /bin/true`, one after the other: {:.0} jobs/s\n`/bin/true` submitted over one \
             connection, to the end of the last: {:.0} jobs/s\n",
            self.run_per_s, self.submit_per_s
        ))
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let what = "tutti run -n 1 hostname";
        let goal = "at most hydra's (aim: 2 x plain)";
        figures.push(against_hydra(what, &self.one, goal, 1.0));
        let what = "tutti run -n 8 hostname";
        figures.push(against_hydra(what, &self.eight, "at most 0.7 x hydra", 0.7));
        let what = "MPI_Init and MPI_Finalize, 4 ranks";
        figures.push(against_hydra(what, &self.init, "at most hydra's", 1.0));
        figures.push(rate("run /bin/true, one after the other", self.run_per_s, 200.0));
        figures.push(rate("submit of /bin/true, one connection", self.submit_per_s, 1000.0));
        figures
    }
}

fn rate(what: &str, per_s: f64, aim: f64) -> Figure {
    let measured = format!("{per_s:.0} jobs/s");
    Figure::goal(what, measured, &format!("aim: {aim:.0} jobs/s"), per_s >= aim)
}

fn find<'a>(timings: &'a [Timing], name: &str) -> Option<&'a Timing> {
    timings.iter().find(|timing| timing.what == name)
}

fn against_hydra(what: &str, timings: &[Timing], goal: &str, most: f64) -> Figure {
    let (Some(tutti), Some(hydra)) = (find(timings, TUTTI), find(timings, HYDRA)) else {
        return Figure::missing(what, &format!("{HYDRA} is {NOT_INSTALLED}"), goal);
    };
    let Ratio { median: ratio, half: [low, high] } = tutti.over(hydra);
    let plain = find(timings, PLAIN)
        .map(|_| format!(", {:.2} x plain (hydra {:.2} x)", tutti.ratio, hydra.ratio))
        .unwrap_or_default();
    let measured = format!(
        "{}: {ratio:.2} x hydra ({low:.2} to {high:.2} in half of the rounds){plain}",
        ms(tutti.median_us)
    );
    Figure::goal(what, measured, goal, ratio <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contend::timings;

    #[test]
    fn goals_against_hydra_are_ratios_of_the_same_round() {
        let (ours, theirs) = (vec![8000, 2000, 4000], vec![2000, 4000, 8000]);
        let rounds = [(PLAIN, vec![1000; 3]), (TUTTI, ours), (HYDRA, theirs)];
        let timings = timings(rounds.iter().map(|(what, rounds)| (*what, rounds)));
        let figure = against_hydra("it", &timings, "at most 0.7 x hydra", 0.7);
        assert_eq!(figure.reached, Some(true), "{figure:?}");
        let measured = "4.00 ms: 0.50 x hydra (0.50 to 4.00 in half of the rounds), 4.00 x plain \
                        (hydra 4.00 x)";
        assert_eq!(figure.measured, measured);
    }
}
