//! `tutti-bench t3d`: the LLNL paper's second experiment, live and in small.
//!
//! The fixed set of jobs ([`t3d_benchmark`]: sixteen batch jobs at once, and four people that run
//! eight interactive jobs each, one after the other) under three schedulers of an instance of its
//! own:
//!
//! - *queue limits*, as the batch system had them: jobs run to their end, at most eight batch jobs
//! - *swapping*, a stand-in for DJM, whose algorithm is not published: batch jobs are preempted for
//!   interactive ones only
//! - *classes*: the paper's parameters; batch jobs that have waited long preempt others too
//!
//! The machine is scaled to the processors of this one, and time so that the batch jobs are work
//! for some seconds. A job has at least one processor, and as much work as its share of the machine
//! there. Tasks only nap, some milliseconds at a time: a task that is suspended does not get on,
//! and other load of the machine matters little. Jobs come back on their own processors: only the
//! simulator moves them.

use super::{Bench, options, processors, progress};
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_trace::Job;
use tutti_trace::model::{T3D_BENCHMARK_BATCH, t3d_benchmark};
use tutti_types::ClassName;
use tutti_wire::local::Request;

/// The processors of the paper's machine.
const T3D_PROCESSORS: f64 = 256.0;
/// How long a task naps at a time.
const NAP: Duration = Duration::from_millis(10);
/// A job of one processor here is not disturbed for as long as one of so many there.
const PROCESSORS_OF_ONE: f64 = 64.0;

/// The schedulers, with what sets their classes: times of the paper in seconds.
const SCHEDULERS: [Scheduler; 3] = [
    Scheduler { name: "queue limits", preempts: false, batch_preempts: false, jobs: "8" },
    Scheduler { name: "swapping", preempts: true, batch_preempts: false, jobs: "20" },
    Scheduler { name: "classes", preempts: true, batch_preempts: true, jobs: "20" },
];
/// What the paper's schedulers took in seconds, in the same order: batch alone, batch with
/// interactive jobs, interactive jobs.
const PAPER: [[u32; 3]; 3] = [[3397, 3347, 3553], [2848, 3248, 2339], [2950, 3565, 2797]];

struct Scheduler {
    name: &'static str,
    /// Whether interactive jobs preempt others.
    preempts: bool,
    /// Whether batch jobs do after half an hour.
    batch_preempts: bool,
    /// How many batch jobs may have processors at a time.
    jobs: &'static str,
}

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    processors: u32,
    /// How long the batch jobs would take on a machine that is always full.
    work_s: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    scheduler: &'static str,
    /// Until the last batch job is done, where there are only those.
    batch_alone_s: f64,
    /// The same with interactive jobs.
    batch_s: f64,
    /// Until the last interactive job is done.
    interactive_s: f64,
    /// From the submission of an interactive job to its end.
    interactive_response_s: f64,
    /// The first three in the paper.
    paper_s: [u32; 3],
}

/// The scaled set.
struct Small {
    processors: u32,
    /// Seconds here for a second there.
    scale: f64,
    jobs: Vec<Job>,
}

/// Measures.
///
/// # Errors
/// If a job can't be run.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let work_s = if bench.quick { 5.0 } else { 30.0 };
    let small = Small::new(work_s);
    let mut rows = Vec::new();
    for (scheduler, paper_s) in SCHEDULERS.iter().zip(PAPER) {
        let own = ScratchInstance::start("t3d")?;
        own.set("policy", "classes")?;
        // What else the machine does makes it slower, but keeps no job waiting for ever.
        own.set("foreign", "0%")?;
        scheduler.set(&own, small.scale)?;
        progress(&format!("t3d: {}, batch alone", scheduler.name));
        let alone = small.run(&own, false)?;
        progress(&format!("t3d: {}, with interactive jobs", scheduler.name));
        let together = small.run(&own, true)?;
        own.end()?;
        rows.push(Row {
            scheduler: scheduler.name,
            batch_alone_s: alone.batch.as_secs_f64(),
            batch_s: together.batch.as_secs_f64(),
            interactive_s: together.interactive.as_secs_f64(),
            interactive_response_s: together.mean_response_s,
            paper_s,
        });
    }
    Ok(Report { processors: small.processors, work_s, rows })
}

impl Scheduler {
    fn set(&self, own: &ScratchInstance, scale: f64) -> anyhow::Result<()> {
        let time = |seconds: f64| format!("{}ms", (seconds * scale * 1e3).ceil());
        let undisturbed = match self.preempts {
            true => time(10.0 * PROCESSORS_OF_ONE),
            false => "never".into(),
        };
        let wait = |may: bool, seconds: f64| if may { time(seconds) } else { "never".into() };
        let class = |name: &str, settings: &[(&str, String)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).into(), value.clone()));
            let (class, settings) = (ClassName::new(name), settings.collect());
            own.ask(&Request::SetClass { class, settings }).map(drop)
        };
        // Without preemption jobs are served in their order.
        let priority = if self.preempts { "4" } else { "2" };
        class(
            "interactive",
            &[
                ("priority", priority.into()),
                ("wait", wait(self.preempts, 0.0)),
                ("do_not_disturb", undisturbed.clone()),
            ],
        )?;
        class(
            "production",
            &[
                ("wait", wait(self.batch_preempts, 1800.0)),
                ("do_not_disturb", undisturbed),
                ("jobs", self.jobs.into()),
            ],
        )
    }
}

/// What a run of the set took.
struct Took {
    batch: Duration,
    interactive: Duration,
    mean_response_s: f64,
}

impl Small {
    fn new(work_s: f64) -> Self {
        let jobs = t3d_benchmark();
        let batch = &jobs[..T3D_BENCHMARK_BATCH];
        let there: f64 = batch.iter().map(machine_s).sum();
        Self { processors: processors(), scale: work_s / there, jobs }
    }

    /// The processors of a job here, and how long it runs on them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are small")]
    fn sized(&self, job: &Job) -> (u32, Duration) {
        let all = f64::from(self.processors);
        let share = all * f64::from(job.allocated_processors.unwrap_or(1)) / T3D_PROCESSORS;
        let tasks = share.round().clamp(1.0, all);
        let run_s = machine_s(job) * all / tasks * self.scale;
        (tasks as u32, Duration::from_secs_f64(run_s))
    }

    /// Submits a job and waits for its end.
    fn one(&self, own: &ScratchInstance, job: &Job, class: &str) -> anyhow::Result<()> {
        let (tasks, length) = self.sized(job);
        let naps = (length.as_nanos() / NAP.as_nanos()).max(1);
        let mut wanted = options(tasks, Some(1))?;
        wanted.class = Some(class.into());
        let argv: Vec<OsString> = vec![
            std::env::current_exe()?.into_os_string(),
            "work".into(),
            "0".into(),
            "--again".into(),
            naps.to_string().into(),
            "--wait-ms".into(),
            NAP.as_millis().to_string().into(),
        ];
        let job = own.submit(&wanted, &argv)?;
        own.wait(job).map(drop)
    }

    /// Runs the set: each batch job, and each person, by a thread.
    fn run(&self, own: &ScratchInstance, with_interactive: bool) -> anyhow::Result<Took> {
        let (batch, interactive) = self.jobs.split_at(T3D_BENCHMARK_BATCH);
        let people = interactive.chunk_by(|before, job| before.user == job.user);
        let people: Vec<&[Job]> = people.filter(|_| with_interactive).collect();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let batch: Vec<_> = batch
                .iter()
                .map(|job| {
                    scope.spawn(move || {
                        self.one(own, job, "production")?;
                        Ok::<Duration, anyhow::Error>(begin.elapsed())
                    })
                })
                .collect();
            let people: Vec<_> = people
                .iter()
                .map(|jobs| {
                    scope.spawn(move || {
                        let mut responses = Vec::new();
                        for job in *jobs {
                            let submitted = Instant::now();
                            self.one(own, job, "interactive")?;
                            responses.push(submitted.elapsed().as_secs_f64());
                        }
                        Ok::<_, anyhow::Error>((begin.elapsed(), responses))
                    })
                })
                .collect();
            let died = || anyhow!("a thread that waits for jobs has panicked");
            let mut took =
                Took { batch: Duration::ZERO, interactive: Duration::ZERO, mean_response_s: 0.0 };
            let mut responses = Vec::new();
            for thread in people {
                let (done, more) = thread.join().map_err(|_| died())??;
                took.interactive = took.interactive.max(done);
                responses.extend(more);
            }
            for thread in batch {
                let done = thread.join().map_err(|_| died())?.context("a batch job")?;
                took.batch = took.batch.max(done);
            }
            took.mean_response_s = responses.iter().sum::<f64>() / responses.len().max(1) as f64;
            Ok(took)
        })
    }
}

/// How long a job would take if it had the paper's whole machine, in seconds there.
fn machine_s(job: &Job) -> f64 {
    let processors = f64::from(job.allocated_processors.unwrap_or(1));
    job.run_ns.unwrap_or(0) as f64 / 1e9 * processors / T3D_PROCESSORS
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut table = Table::new(&[
            ("SCHEDULER", Align::Left),
            ("BATCH ALONE", Align::Right),
            ("BATCH", Align::Right),
            ("INTERACTIVE", Align::Right),
            ("ITS RESPONSE", Align::Right),
            ("PAPER, BATCH ALONE", Align::Right),
            ("BATCH", Align::Right),
            ("INTERACTIVE", Align::Right),
        ]);
        let first = self.rows.first();
        for row in &self.rows {
            let of = |value: f64, first: Option<f64>| {
                let change = first.filter(|&first| first > 0.0 && first != value);
                let change =
                    change.map(|first| format!(" ({:+.0} %)", (value / first - 1.0) * 100.0));
                format!("{value:.1} s{}", change.unwrap_or_default())
            };
            let paper = |index: usize| {
                let first = f64::from(PAPER[0][index]);
                of(f64::from(row.paper_s[index]), Some(first))
            };
            table.row([
                row.scheduler.to_owned(),
                of(row.batch_alone_s, first.map(|it| it.batch_alone_s)),
                of(row.batch_s, first.map(|it| it.batch_s)),
                of(row.interactive_s, first.map(|it| it.interactive_s)),
                format!("{:.2} s", row.interactive_response_s),
                paper(0),
                paper(1),
                paper(2),
            ]);
        }
        print(&format!(
            "The paper's fixed set on {} processors, batch jobs scaled to {:.0} s of work; until the \
             last job of a kind is done. Swapping is a stand-in for DJM.\n\n{}",
            self.processors,
            self.work_s,
            table.render()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Small, T3D_BENCHMARK_BATCH, t3d_benchmark};

    #[test]
    fn work_is_scaled_with_the_machine() {
        for processors in [1, 2, 16] {
            let small = Small { processors, ..Small::new(30.0) };
            let work = |job: &tutti_trace::Job| {
                let (tasks, length) = small.sized(job);
                assert!((1..=processors).contains(&tasks));
                f64::from(tasks) * length.as_secs_f64() / f64::from(processors)
            };
            let all: f64 = t3d_benchmark()[..T3D_BENCHMARK_BATCH].iter().map(work).sum();
            assert!((all - 30.0).abs() < 1e-6, "{all} on {processors}");
        }
    }
}
