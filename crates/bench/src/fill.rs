//! `tutti-bench fill`: jobs that often wait, suspended by the freezer or made to make way.
//!
//! Two jobs on all processors in turns, whose tasks compute for some milliseconds and then wait as
//! long. By the freezer no job uses the processors while the job that has its turn waits; by
//! priority the other does.

use super::contend::{median, micros, ms, over_twice};
use super::figures::Figure;
use super::{Bench, options, processors, progress};
use serde::Serialize;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_client::work::rounds_for;
use tutti_types::ClassName;
use tutti_wire::local::Request;

const METHODS: [&str; 2] = ["freeze", "priority"];
const QUANTUM: &str = "100ms";
/// How long a task computes, and then waits.
const STRETCH: Duration = Duration::from_millis(5);

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    method: &'static str,
    /// One job alone.
    alone_us: u64,
    /// Both at once.
    both_us: u64,
    /// That over twice one alone.
    ratio: f64,
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let own = ScratchInstance::start("bench")?;
    own.set("quantum", QUANTUM)?;
    let stretches = if bench.quick { 100 } else { 300 };
    let argv: Vec<OsString> = vec![
        std::env::current_exe()?.into_os_string(),
        "work".into(),
        rounds_for(STRETCH).to_string().into(),
        "--again".into(),
        stretches.to_string().into(),
        "--wait-ms".into(),
        STRETCH.as_millis().to_string().into(),
    ];
    let mut samples = [const { [const { Vec::new() }; 2] }; 2];
    let rounds = if bench.quick { 1 } else { 5 };
    for round in 0..rounds {
        progress(&format!("fill: {} of {rounds}", round + 1));
        for (method, samples) in METHODS.into_iter().zip(&mut samples) {
            for (count, samples) in (1..).zip(samples) {
                samples.push(micros(together(&own, method, &argv, count)?));
            }
        }
    }
    own.end()?;
    let rows = METHODS.into_iter().zip(&mut samples).map(|(method, [alone, both])| {
        let ratio = over_twice(both, alone);
        Row { method, alone_us: median(alone), both_us: median(both), ratio }
    });
    Ok(Report { rows: rows.collect() })
}

/// How long so many of them take that begin at once.
fn together(
    own: &ScratchInstance,
    method: &str,
    argv: &[OsString],
    count: usize,
) -> anyhow::Result<Duration> {
    let class = ClassName::new(&format!("bench-{method}"));
    let settings = vec![("control".into(), method.into())];
    own.ask(&Request::SetClass { class: class.clone(), settings })?;
    let mut job = options(processors(), Some(1))?;
    job.class = Some(class.to_string());
    let begin = Instant::now();
    let jobs = (0..count).map(|_| own.submit(&job, argv)).collect::<anyhow::Result<Vec<_>>>()?;
    for job in jobs {
        own.wait(job)?;
    }
    Ok(begin.elapsed())
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut table = Table::new(&[
            ("CONTROL", Align::Left),
            ("ONE", Align::Right),
            ("TWO", Align::Right),
            ("TWO OVER TWICE ONE", Align::Right),
        ]);
        for row in &self.rows {
            table.row([
                row.method.into(),
                ms(row.alone_us),
                ms(row.both_us),
                format!("{:.3}", row.ratio),
            ]);
        }
        print(&format!(
            "Two jobs in turns of {QUANTUM} whose tasks compute {} ms and then wait as long\n\n{}",
            STRETCH.as_millis(),
            table.render()
        ))
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let shown = |row: &Row| {
            let what =
                format!("two jobs that wait half of the time, over twice one, {}", row.method);
            Figure::shown(&what, format!("{:.3}", row.ratio))
        };
        self.rows.iter().map(shown).collect()
    }
}
