//! What can be asked of a simulation, as it was typed.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tutti_sim::{Deadlines, Estimates, GroupBy};
use tutti_types::{Nanos, Period, Weights};
use tutti_wire::units::parse_duration;

/// What `sim --help` ends with.
pub(super) fn help() -> String {
    format!("{EXAMPLES}\n\n{HELP}")
}

/// What `sim compare --help` ends with.
pub(super) fn help_of_compare() -> String {
    format!("{COMPARE_EXAMPLES}\n\n{HELP}")
}

const EXAMPLES: &str = "\
Examples:
  tutti sim trace.swf.gz                      one policy, on a trace
  tutti sim --generate lublin --nodes 64 --policy gang,rows=5
  tutti sim trace.swf --by class --plot waits=waits.svg
  tutti sim trace.swf --site site.toml --map queue:3=queue:short";

const COMPARE_EXAMPLES: &str = "\
Examples:
  tutti sim compare --policy gang --policy space:easy trace.swf
  tutti sim compare --policy gang --policy space:easy --generate t3d
  tutti sim compare --policy gang --policy gang,order=arrival trace.swf";

/// The policies and models, for `--help`.
const HELP: &str = "\
Policies:
  gang                 jobs take turns
  space:fcfs           each job runs to its end, first come first served
  space:easy           a job may pass the first in line if it can't delay it
  space:sjbf           the same, but the shortest job first
  space:conservative   a job may pass if it delays no other
  classes              jobs that wait too long preempt others (--class)
  deadline             jobs that can't end in time are rejected (--deadlines)
  dhc                  jobs take turns in blocks of powers of two
  ./PROGRAM            a program of your own decides
A policy with turns may have a discipline too: gang:easy.

Models, with their settings and defaults:
  lublin:types=both|none|batch|interactive,estimates=none,processors=N
  poisson:load=0.7|arrival=TIME,service=exponential|constant|hyper,mean=10m,
          scv=4,size=powers|N|N-M,estimates=exact
  t3d     256 processors with the classes of the Cray T3D at LLNL
  t3d-users:interactive=8,production=6,benchmark=2,standby=2,think=1h
          its users, with think times after results (--feedback)
  t3d-benchmark
          a fixed set of its jobs (--feedback)
estimates is none, exact, or a factor of the run time.

What the figures mean: docs/guide/simulation.md.";

/// What all simulations can be told.
#[derive(Args, Clone, Debug)]
pub(super) struct Options {
    /// Generate jobs by a model: lublin, poisson or t3d, with settings behind a colon
    #[arg(long, value_name = "MODEL", help_heading = "Workload")]
    pub(super) generate: Option<String>,

    /// Seed of a model: same seed, same jobs
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub(super) seed: u64,

    /// Maximum number of jobs [default: all of a trace, 10,000 of a model]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub(super) jobs: Option<u64>,

    /// Leave out jobs that could never run, and cut run times down to the requested time
    #[arg(long, help_heading = "Workload")]
    pub(super) clean: bool,

    /// Skip and count errors of a trace
    #[arg(long, help_heading = "Workload")]
    pub(super) lenient: bool,

    /// Sort a trace by submit time first, in memory
    #[arg(long, help_heading = "Workload")]
    pub(super) sort: bool,

    /// Stretch the times between arrivals so that the jobs offer this load, such as 0.8
    #[arg(long, value_name = "F", conflicts_with = "stretch", help_heading = "Workload")]
    pub(super) load: Option<f64>,

    /// Submit a job that names a preceding job (field 17) when that one has ended in the simulation
    /// and the think time (field 18) has passed
    #[arg(long, help_heading = "Workload")]
    pub(super) feedback: bool,

    /// Hours in which users submit jobs after a result, such as "mon-fri 08:00-18:00"
    #[arg(long, value_name = "HOURS", requires = "feedback", help_heading = "Workload")]
    pub(super) feedback_hours: Option<Period>,

    /// Multiply the times between arrivals
    #[arg(long, value_name = "F", help_heading = "Workload")]
    pub(super) stretch: Option<f64>,

    /// Run times that the scheduler expects: trace (the requested time), exact (the real run time),
    /// or factor:F (F times the requested time)
    #[arg(
        long, value_name = "WHAT", default_value = "trace", value_parser = estimates,
        help_heading = "Workload"
    )]
    pub(super) estimates: Estimates,

    /// Move the jobs of a class to another, such as standby=production
    #[arg(long, value_name = "CLASS=CLASS", help_heading = "Workload")]
    pub(super) as_class: Vec<String>,

    /// Submit jobs of a trace to a class or queue by field 15 (queue) or 16 (partition), such as
    /// queue:3=queue:short, partition:1=class:standby, all=queue:batch, or queue=queue for those of
    /// the same name
    #[arg(long = "map", value_name = "FROM=TO", help_heading = "Workload")]
    pub(super) maps: Vec<String>,

    /// Have each job, or each of a class, use a counted resource while it runs, such as licence:2
    /// or production=licence
    #[arg(long = "job-resource", value_name = "[CLASS=]NAME[:COUNT]", help_heading = "Workload")]
    pub(super) job_resources: Vec<String>,

    /// Deadlines of jobs, for policy deadline, as factor:F (F times the expected run time after the
    /// submission); traces have none
    #[arg(long, value_name = "RULE", value_parser = deadlines, help_heading = "Workload")]
    pub(super) deadlines: Option<Deadlines>,

    /// Number of nodes [default: the trace's]
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(super) nodes: Option<u32>,

    /// Processors of each node
    #[arg(long, value_name = "P", help_heading = "Machine")]
    pub(super) processors_per_node: Option<u32>,

    /// File with a line for each node: name, processors, memory in MB, performance with integers,
    /// floats and doubles, memory bandwidth, external load
    #[arg(
        long, value_name = "FILE", conflicts_with_all = ["nodes", "processors_per_node"],
        help_heading = "Machine"
    )]
    pub(super) hosts: Option<PathBuf>,

    /// Choose nodes by performance, such as int=1,network=3; with --hosts
    #[arg(
        long, value_name = "FIGURE=N,...", value_parser = tutti_client::weights, requires = "hosts",
        help_heading = "Workload"
    )]
    pub(super) weights: Option<Weights>,

    /// Each task of a job ends by itself, without waiting for the slowest; with --hosts
    #[arg(long, requires = "hosts", help_heading = "Workload")]
    pub(super) bag: bool,

    /// Set what `tutti params --file` and `tutti queue --file` set: parameters, classes, queues and
    /// hours, from a TOML file; users in it are numbers of the trace
    #[arg(long, value_name = "FILE", help_heading = "Scheduler")]
    pub(super) site: Vec<String>,

    /// Set a parameter of the scheduler, such as rows=5 or quantum=200s (`tutti params` lists them),
    /// or for some hours only, such as "mon-fri 08:00-18:00/rows=2"; also class.NAME.RULE,
    /// queue.NAME.LIMIT, weight.USER, bank.USER and resource.NAME
    #[arg(long = "set", value_name = "[HOURS/]NAME=VALUE", help_heading = "Scheduler")]
    pub(super) settings: Vec<String>,

    /// Set rules of a class, or define one, such as interactive:wait=1m,processors=64 (`tutti params
    /// --class NAME` lists them), or for some hours only
    #[arg(long = "class", value_name = "[HOURS/]CLASS:RULE=VALUE,...", help_heading = "Scheduler")]
    pub(super) classes: Vec<String>,

    /// Set limits of a queue, or make one, such as short:user_jobs=2,job_time=1h (`tutti queue
    /// --help` lists them), or for some hours only; jobs come to it by --map
    #[arg(
        long = "queue",
        value_name = "[HOURS/]QUEUE:LIMIT=VALUE,...",
        help_heading = "Scheduler"
    )]
    pub(super) queues: Vec<String>,

    /// Change parameters, or take nodes out of service and in, at times, as `tutti at` does, such
    /// as "fri 18:00 nodes node[0-3] out" or "mon-fri 08:00 params rows=2"
    #[arg(long = "at", value_name = "TIME CHANGE", help_heading = "Scheduler")]
    pub(super) at: Vec<String>,

    /// Time of the week at which the workload begins, such as "mon 08:00" [default: the trace's
    /// UnixStartTime and TimeZoneString]
    #[arg(long, value_name = "DAY HH:MM", help_heading = "Scheduler")]
    pub(super) begins: Option<String>,
    /// Allowance of processor time of a user, or of a group as @N, such as 7=100h; once it is spent,
    /// the jobs count as standby
    #[arg(long = "bank", value_name = "ACCOUNT=TIME", help_heading = "Scheduler")]
    pub(super) bank: Vec<String>,

    /// Part of each turn that a switch costs, such as 20ms
    #[arg(
        long, value_name = "TIME", default_value = "0s", value_parser = duration,
        help_heading = "Scheduler"
    )]
    pub(super) switch_cost: Nanos,

    /// Time to preempt a job, and again to resume it
    #[arg(
        long, value_name = "TIME", default_value = "0s", value_parser = duration,
        help_heading = "Scheduler"
    )]
    pub(super) move_cost: Nanos,

    /// Further time for each processor of the job
    #[arg(
        long, value_name = "TIME", default_value = "0s", value_parser = duration,
        help_heading = "Scheduler"
    )]
    pub(super) move_cost_each: Nanos,

    /// Swap space of each node: jobs that do not fit into memory beside others take turns in it,
    /// with --set swap=all; with --hosts
    #[arg(
        long, value_name = "SIZE", value_parser = tutti_client::memory, requires = "hosts",
        help_heading = "Machine"
    )]
    pub(super) swap_space: Option<u64>,

    /// How much memory moves to swap space or back in a second
    #[arg(
        long, value_name = "SIZE", default_value = "100M", value_parser = tutti_client::memory,
        help_heading = "Machine"
    )]
    pub(super) swap_rate: u64,

    /// Preempted jobs may come back on other processors, and migrate if migration=on
    #[arg(long, help_heading = "Scheduler")]
    pub(super) movable: bool,

    /// Order of events at the same time
    #[arg(long, value_enum, default_value_t, value_name = "WHICH", help_heading = "Scheduler")]
    pub(super) order: Order,

    /// Stop this time after the first submission
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Scheduler")]
    pub(super) horizon: Option<Nanos>,

    /// Step from slot to slot instead of from event to event: same result, slower
    #[arg(long, help_heading = "Scheduler")]
    pub(super) exact_slices: bool,

    /// Check the scheduler's rules after each event; slow
    #[arg(long, help_heading = "Scheduler")]
    pub(super) check: bool,

    /// Also show each group of jobs
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Results")]
    pub(super) by: Option<By>,

    /// As JSON
    #[arg(long, help_heading = "Results")]
    pub(super) json: bool,

    /// Draw a picture, .svg or .png: utilisation=FILE, waits=FILE, gantt=FILE (jobs by time and
    /// processor, of one run), compare=FILE (runs side by side)
    #[arg(long = "plot", value_name = "WHAT=FILE", help_heading = "Results")]
    pub(super) plots: Vec<String>,
}

/// Files with every job of one run.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Outputs {
    /// Write every job: number, submit, start and end in seconds, processors
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) jobs_csv: Option<PathBuf>,

    /// Write a trace of what happened
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) swf: Option<PathBuf>,

    /// Write which job ran when on which processor, as a trace for Perfetto (.json)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) timeline: Option<PathBuf>,
}

impl Outputs {
    pub(super) const fn writes_files(&self) -> bool {
        self.jobs_csv.is_some() || self.swf.is_some() || self.timeline.is_some()
    }
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// Jobs that end at their limits, all at once; then jobs that are submitted; then other ends
    #[default]
    SubmitFirst,
    /// Jobs that end; then jobs that are submitted
    EndFirst,
    /// Jobs that are handed in; then jobs that end, also at their limits; each by itself
    OneByOne,
}

/// Groups of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// By class
    Class,
    /// By number of processors, in powers of two
    Size,
    /// By user
    User,
}

impl By {
    pub(super) const fn group_by(self) -> GroupBy {
        match self {
            Self::Class => GroupBy::Class,
            Self::Size => GroupBy::Size,
            Self::User => GroupBy::User,
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Class => "CLASS",
            Self::Size => "PROCESSORS",
            Self::User => "USER",
        }
    }
}

fn duration(text: &str) -> Result<Nanos, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn deadlines(text: &str) -> Result<Deadlines, String> {
    match text.split_once(':') {
        Some(("factor", number)) => Ok(Deadlines::Factor(factor(number)?)),
        _ => Err("write factor:2 for twice what jobs are said to take".to_owned()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1e6 => Ok(factor),
        _ => Err(format!("{text:?} is no factor; write a number such as factor:2")),
    }
}

fn estimates(text: &str) -> Result<Estimates, String> {
    match text.split_once(':') {
        None if text == "trace" => Ok(Estimates::Trace),
        None if text == "exact" => Ok(Estimates::Exact),
        Some(("factor", number)) => Ok(Estimates::Factor(factor(number)?)),
        _ => Err("write trace, exact, or factor:2".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadlines, Estimates, HELP, deadlines, estimates};
    use tutti_sim::POLICIES;

    #[test]
    fn estimates_are_named_or_a_factor() {
        assert_eq!(estimates("trace"), Ok(Estimates::Trace));
        assert_eq!(estimates("exact"), Ok(Estimates::Exact));
        assert_eq!(estimates("factor:1.5"), Ok(Estimates::Factor(1.5)));
        for wrong in ["", "factor", "factor:0", "factor:-1", "factor:NaN", "2"] {
            assert!(estimates(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn deadlines_are_a_factor() {
        assert_eq!(deadlines("factor:2"), Ok(Deadlines::Factor(2.0)));
        for wrong in ["", "factor", "factor:0", "factor:x", "2", "none"] {
            assert!(deadlines(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_names_every_policy() {
        for policy in POLICIES {
            assert!(HELP.contains(policy), "{policy}");
        }
    }
}
