//! Verbs that act on jobs: `wait`, `cancel`, `signal`, `suspend`, `resume`.

use super::ask_journal;
use super::job_range::{
    Found, Several, all_of_names, by_number, find_elements, jobs, jobs_to_wait_for, live_jobs,
    live_reports, targets_of,
};
use super::steps::{self, StepOption};
use super::submit::order;
use clap::{Args, ValueEnum};
use tutti_client::ask::{ask_until_answered, unexpected};
use tutti_client::output::{counted, ended};
use tutti_client::parse_signal;
use tutti_node::codes::{code_of, coded};
use tutti_node::exit::Exit;
use tutti_types::{Indices, JobId};
use tutti_wire::code::Code;
use tutti_wire::local::{ArrayOrder, Reply, Request};
use tutti_wire::report::JobReport;

const WAIT_EXAMPLES: &str = "\
Examples:
  tutti wait 7                 exit with the exit code of job 7
  tutti wait 3-9 12            several jobs: the highest of their exit codes
  tutti wait 7_3               an element of array 7; `7` waits for all of them
  tutti wait --step 2 7        step 2 of job 7
  tutti wait --all             all jobs of yours";

#[derive(Args, Debug)]
#[command(after_help = WAIT_EXAMPLES)]
pub(crate) struct WaitArgs {
    /// Your jobs that have not ended, and those submitted in this session that have; for root, the
    /// jobs of all users
    #[arg(short, long, conflicts_with = "jobs")]
    all: bool,

    /// All jobs of this user, by name or number
    #[arg(short, long, conflicts_with_all = ["jobs", "all"])]
    user: Option<String>,

    #[command(flatten)]
    step: StepOption,

    /// Jobs, ranges of jobs, names of your jobs, or `last`: 7, 3-9, solver
    #[arg(
        required_unless_present_any = ["all", "user", "step"], value_name = "JOB",
        value_parser = super::job_range::whole_jobs
    )]
    jobs: Vec<Several>,
}

pub(crate) fn wait(args: &WaitArgs) -> anyhow::Result<Exit> {
    if let Some(key) = args.step.key(&args.jobs)? {
        return steps::end_of(key);
    }
    let (elements, others) = split_elements(&args.jobs);
    let targets = match args.jobs.is_empty() {
        true => jobs_to_wait_for(args.user.as_deref())?,
        false => targets_of(&others, true)?,
    };
    if targets.is_empty() && elements.is_empty() {
        let reason = "no job to wait for: none is live, and none that was submitted in this session has ended";
        return Err(coded(Code::NothingToWaitFor, reason));
    }
    let mut highest = 0;
    for target in targets {
        highest = highest.max(end_of(target.job)?);
    }
    for (array, indices) in elements {
        highest = highest.max(end_of_elements(array, indices)?);
    }
    Ok(Exit::of_job(highest))
}

/// How often it is looked whether elements that are waited for have come into line.
const ELEMENTS_LOOK: std::time::Duration = std::time::Duration::from_millis(300);

/// Waits for the end of elements of an array; the highest of their exit codes. Those that ended
/// before they were jobs have one, too.
fn end_of_elements(array: JobId, indices: &Indices) -> anyhow::Result<u8> {
    let (mut known, mut highest) = (std::collections::BTreeSet::new(), 0);
    loop {
        let Found { jobs, waiting, never } = find_elements(array, Some(indices.clone()))?;
        highest = highest.max(never.unwrap_or(0));
        for (_, job) in jobs {
            if known.insert(job) {
                highest = highest.max(end_of(job)?);
            }
        }
        if waiting == 0 {
            return Ok(highest);
        }
        std::thread::sleep(ELEMENTS_LOOK);
    }
}

/// Elements of arrays, which are no jobs before they come into line, and all else.
pub(super) fn split_elements(several: &[Several]) -> (Vec<(JobId, &Indices)>, Vec<Several>) {
    let (mut elements, mut others) = (Vec::new(), Vec::new());
    for it in several {
        match it {
            Several::Elements { array, indices } => elements.push((*array, indices)),
            Several::One(_) | Several::Range(_) | Several::Named(_) | Several::Last => {
                others.push(it.clone());
            }
        }
    }
    (elements, others)
}

/// Gives an order about elements of arrays.
pub(super) fn order_elements(
    elements: &[(JobId, &Indices)],
    what: ArrayOrder,
) -> anyhow::Result<Exit> {
    each(elements, |&(array, indices)| {
        order(&Request::Elements { array, indices: Some(indices.clone()), order: what })
    })
}

/// Waits for the end of a job, says how it was, and gives its exit code.
pub(super) fn end_of(job: JobId) -> anyhow::Result<u8> {
    let request = Request::Wait { job };
    match ask_until_answered(&request).or_else(|error| ask_journal(&request, error))? {
        Reply::Ended { outcome, report, .. } => {
            ended::say_how(&report, outcome);
            Ok(outcome.exit_code)
        }
        _ => unexpected(),
    }
}

const CANCEL_EXAMPLES: &str = "\
Examples:
  tutti cancel 7               end job 7
  tutti cancel 3-9 12.0        jobs 3 to 9, and rank 0 of job 12
  tutti cancel 7_3 '8_[10-20]' elements of the arrays 7 and 8
  tutti cancel --step 2 7      step 2 of job 7; the job goes on
  tutti cancel solver          all of your jobs with this name
  tutti cancel --me --state queued    your jobs that have not begun
  tutti cancel --now --all     kill all jobs of yours at once";

#[derive(Args, Debug)]
#[command(after_help = CANCEL_EXAMPLES)]
pub(crate) struct CancelArgs {
    /// Kill at once, without SIGTERM and grace
    #[arg(long)]
    now: bool,

    /// All jobs of yours; for root, the jobs of all users
    #[arg(short, long, conflicts_with = "targets")]
    all: bool,

    /// All jobs of this user, by name or number
    #[arg(short, long, conflicts_with_all = ["targets", "all"])]
    user: Option<String>,

    /// All jobs of yours, also for root
    #[arg(long, conflicts_with_all = ["targets", "all", "user"])]
    me: bool,

    /// Only jobs that have not begun (queued, or pending), those of them that are held, or only
    /// those that have begun (running)
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<StateAsked>,

    #[command(flatten)]
    step: StepOption,

    /// Jobs, ranges of jobs, names (all of your jobs that have one), `last`, ranks, or processes
    /// with their descendants: 7, 3-9, solver, 7.0, 7.0/1234
    #[arg(required_unless_present_any = ["all", "user", "me", "step"], value_name = "TARGET")]
    targets: Vec<Several>,
}

/// Which jobs `cancel --state` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StateAsked {
    /// Those that wait in line, are held, or are elements of arrays that are not in line yet.
    #[value(alias = "pending")]
    Queued,
    /// Those of them that are held, by their owner or an administrator.
    Held,
    /// Those that have begun and not ended.
    Running,
}

pub(crate) fn cancel(args: &CancelArgs) -> anyhow::Result<Exit> {
    if let Some(key) = args.step.key(&args.targets)? {
        return steps::cancel(key, args.now);
    }
    let is_typed = !args.targets.is_empty();
    let own = args.me.then(|| super::job_range::user_name(nix::unistd::geteuid()));
    let user = own.as_deref().or(args.user.as_deref());
    if let Some(state) = args.state {
        return cancel_by_state(args, user, state);
    }
    let targets = all_of_names(&args.targets)?;
    let (elements, others) = split_elements(&targets);
    let done = order_elements(&elements, ArrayOrder::Cancel { at_once: args.now })?;
    let targets = match is_typed {
        true => targets_of(&others, false)?,
        false => live_jobs(user)?,
    };
    let mut accepted = 0u64;
    let exit = each(&targets, |&target| {
        order(&Request::Cancel { target, at_once: args.now })?;
        accepted += 1;
        Ok(())
    })?;
    if !is_typed {
        say!("tutti: {} to end", counted(accepted, "job"));
    }
    Ok(if exit == Exit::OK { done } else { exit })
}

/// `cancel --state`. An array is not one job with one state: each element is looked at for itself.
fn cancel_by_state(
    args: &CancelArgs,
    user: Option<&str>,
    state: StateAsked,
) -> anyhow::Result<Exit> {
    let wanted = by_number(&all_of_names(&args.targets)?, false)?;
    let is_part = |it: &Several| matches!(it, Several::One(target) if *target != target.job.into());
    if wanted.iter().any(is_part) {
        let reason = "--state is about whole jobs; leave it out to end ranks or processes";
        return Err(coded(Code::BadValue, reason));
    }
    let live = || match wanted.is_empty() {
        true => live_reports(user),
        false => {
            let is_wanted = |job: &JobReport| {
                wanted.iter().any(|it| match it {
                    Several::Elements { array, .. } if job.is_whole_array() => *array == job.job,
                    it => it.has_report(job),
                })
            };
            Ok(jobs(false)?.into_iter().filter(is_wanted).collect())
        }
    };
    let mut found: Vec<JobReport> = live()?;
    found.retain(|job| job.is_whole_array() && state != StateAsked::Running);
    let arrays: Vec<JobId> = found.iter().map(|job| job.job).collect();
    let order_waiting = |&array: &JobId| {
        let indices = wanted.iter().find_map(|it| match it {
            Several::Elements { array: of, indices } if *of == array => Some(indices.clone()),
            _ => None,
        });
        let cancel = match state {
            StateAsked::Held => ArrayOrder::CancelHeld,
            StateAsked::Queued | StateAsked::Running => ArrayOrder::CancelWaiting,
        };
        order(&Request::Elements { array, indices, order: cancel })
    };
    let exit = each(&arrays, order_waiting)?;
    let mut accepted = 0u64;
    // Looked for again: some elements may have come into line in between.
    let mut meant = live()?;
    meant.retain(|job| !job.is_whole_array());
    meant.retain(|job| match state {
        StateAsked::Queued => job.is_in_line(),
        StateAsked::Held => job.is_in_line() && is_held(job),
        StateAsked::Running => !job.is_in_line(),
    });
    let done = each(&meant, |job| {
        order(&Request::Cancel { target: job.job.into(), at_once: args.now })?;
        accepted += 1;
        Ok(())
    })?;
    let of_arrays = match arrays.len() {
        0 => String::new(),
        count => {
            let waits = if state == StateAsked::Held { "is held" } else { "waits" };
            format!(", and what {waits} of {}", counted(count as u64, "array"))
        }
    };
    say!("tutti: {}{of_arrays} to end", counted(accepted, "job"));
    Ok(if exit == Exit::OK { done } else { exit })
}

/// Whether a job waits since it is held.
fn is_held(job: &JobReport) -> bool {
    job.wait.as_deref().is_some_and(|word| word == "held" || word == "held-by-administrator")
}

const SIGNAL_EXAMPLES: &str = "\
Examples:
  tutti signal USR1 7          all tasks of job 7
  tutti signal USR1 --step 2 7 those of its step 2
  tutti signal INT 7.0/1234    a process of rank 0, and its descendants";

#[derive(Args, Debug)]
#[command(after_help = SIGNAL_EXAMPLES)]
pub(crate) struct SignalArgs {
    /// Send it to every process, not only to the tasks' own process groups
    #[arg(long, conflicts_with = "step")]
    all: bool,

    #[command(flatten)]
    step: StepOption,

    /// Name or number of the signal, such as TERM or 15
    #[arg(value_parser = parse_signal)]
    signal: u8,

    /// Jobs, ranges of jobs, names of your jobs, `last`, ranks, or processes with their
    /// descendants: 7, 3-9, solver, 7.0, 7.0/1234
    #[arg(required_unless_present = "step", value_name = "TARGET")]
    targets: Vec<Several>,
}

pub(crate) fn signal(args: &SignalArgs) -> anyhow::Result<Exit> {
    if let Some(key) = args.step.key(&args.targets)? {
        return steps::signal(key, args.signal);
    }
    let (signal, every_process) = (args.signal, args.all);
    let targets = targets_of(&args.targets, false)?;
    each(&targets, |&target| order(&Request::Signal { target, signal, every_process }))
}

/// What `suspend --help` ends with.
pub(super) const SUSPEND_EXAMPLES: &str = "\
Examples:
  tutti suspend 7              job 7 gets no turns
  tutti suspend 7.0/1234       a process of rank 0, and its descendants";

/// What `resume --help` ends with.
pub(super) const RESUME_EXAMPLES: &str = "\
Examples:
  tutti resume 7               job 7 gets turns again
  tutti resume 3-9             jobs 3 to 9";

#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// Jobs, ranges of jobs, names of your jobs, `last`, ranks, or processes with their
    /// descendants: 7, 3-9, solver, 7.0, 7.0/1234
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Several>,
}

pub(crate) fn suspend(args: &TargetArgs) -> anyhow::Result<Exit> {
    each(&targets_of(&args.targets, false)?, |&target| order(&Request::Suspend { target }))
}

pub(crate) fn resume(args: &TargetArgs) -> anyhow::Result<Exit> {
    each(&targets_of(&args.targets, false)?, |&target| order(&Request::Resume { target }))
}

/// Does it for each, and goes on when one fails: the others are meant as well.
pub(super) fn each<T>(
    all: &[T],
    mut act: impl FnMut(&T) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let mut exit = Exit::OK;
    for one in all {
        if let Err(error) = act(one) {
            say!("tutti: {}", code_of(&error).mark(&format!("{error:#}")));
            exit = Exit::FAILED;
        }
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::parse_signal;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        assert_eq!(parse_signal("TERM").unwrap(), 15);
        assert_eq!(parse_signal("sigusr1").unwrap(), 10);
        assert_eq!(parse_signal("9").unwrap(), 9);
        assert!(parse_signal("0").is_err() && parse_signal("NOPE").is_err());
    }
}
