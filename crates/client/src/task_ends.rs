//! Says how each task ends: to the process that has started a front end, or as `srun` does.
//!
//! The resource manager of `tutti pvm` starts the front ends of its steps with a socket as standard
//! input. Each task that ends is a line there: its rank, and its status as `wait` gives it. The end
//! of the front end is the end of the stream.

use super::ask::ask;
use anyhow::Context;
use nix::libc;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use tutti_node::link::Link;
use tutti_types::{EndReason, JobId, NodeId, Outcome, Rank, StepId, TaskStatus};
use tutti_wire::Role;
use tutti_wire::local::{Reply, Request, StepRequest};
use tutti_wire::spawn::{SpawnAnswer, Spawned, SpawnedProgram};

/// Has a step take free slots of its job at once, or be refused, as one that a program has spawned.
/// One that shares processors takes none.
pub(super) fn take_slots(step: &mut StepRequest, by: StepId) {
    if !step.spec.overlap {
        step.spec.spawned_by = Some(by);
        step.spec.lender = None;
        let argv = step.launch.argv.clone();
        let program = SpawnedProgram { tasks: step.spec.tasks, argv, directory: None, path: None };
        step.spawned = Some(Spawned { programs: vec![program], ..Spawned::default() });
    }
}

/// Tells at the socket that is standard input which step was accepted, or why none is.
///
/// # Errors
/// If there is no such socket.
pub(super) fn tell_start() -> anyhow::Result<impl FnOnce(Result<StepId, String>)> {
    let mut link = Link::new(own_socket()?)?;
    Ok(move |answer| {
        link.greet(Role::FrontEnd);
        link.send(&match answer {
            Ok(step) => SpawnAnswer::Started { step },
            Err(reason) => SpawnAnswer::Refused { reason },
        });
        // A reader that is gone has ended the job, too, or does not want to know.
        let _ = link.flush();
    })
}

/// The socket that is standard input.
fn own_socket() -> anyhow::Result<UnixStream> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    Ok(UnixStream::from(socket.context("cannot report the ends of tasks")?))
}

/// Whether and where it is said how each task ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TellEnds {
    /// The verb says how the job has ended.
    #[default]
    No,
    /// At the socket that is standard input.
    Socket,
    /// On standard error, in the words of `srun`: each task that failed.
    AsSlurm,
    /// As [`No`](Self::No), for `salloc`.
    AsSalloc,
}

/// A name of Slurm's by which a front end was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    Srun,
    Salloc,
}

impl fmt::Display for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Srun => "srun",
            Self::Salloc => "salloc",
        })
    }
}

impl TellEnds {
    /// The name of Slurm's that the front end was started by, if any.
    pub(super) const fn face(self) -> Option<Face> {
        match self {
            Self::No | Self::Socket => None,
            Self::AsSlurm => Some(Face::Srun),
            Self::AsSalloc => Some(Face::Salloc),
        }
    }

    /// The number of a step in the names of files.
    pub(super) fn number_of(self, step: StepId) -> u32 {
        match self.face() {
            Some(_) => super::slurm::number_of_step(step),
            None => step.0,
        }
    }
}

impl Face {
    /// A refusal in Slurm's words, with its reason; `None`: the reply is none. `within`: the job
    /// that a step was asked of.
    pub(super) fn refusal(self, reply: &Reply, within: Option<JobId>) -> Option<String> {
        let (Reply::Declined { reason, .. } | Reply::Failed { reason, .. }) = reply else {
            return None;
        };
        Some(match (self, within) {
            (_, Some(job)) => format!("Unable to create step for job {job}: {reason}"),
            (Self::Srun, None) => format!("Unable to allocate resources: {reason}"),
            (Self::Salloc, None) => format!("Job submit/allocate failed: {reason}"),
        })
    }
}

/// The most tasks that are named which failed.
const FAILED_MAX: usize = 10_000;

/// Where ends are reported.
#[derive(Debug)]
pub(super) enum TaskEnds {
    Socket(UnixStream),
    /// Those that failed, with the nodes that they were on, if these are others than this one.
    AsSlurm(Vec<(Option<NodeId>, TaskStatus, Rank)>),
}

/// Maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 512;

/// Tells at the socket that is standard input why no task starts.
///
/// # Errors
/// If the socket can't be duplicated.
pub(super) fn tell_declined(reason: &str) -> anyhow::Result<()> {
    let line = tutti_wire::launch::cut(reason.replace('\n', " "), REASON_BYTES_MAX);
    // A reader that is gone has ended the job, too.
    let _ = own_socket()?.write_all(format!("declined {line}\n").as_bytes());
    Ok(())
}

impl TaskEnds {
    /// Where they are to be reported.
    ///
    /// # Errors
    /// If the socket can't be duplicated.
    pub(super) fn of(tell: TellEnds) -> anyhow::Result<Option<Self>> {
        match tell {
            TellEnds::No | TellEnds::AsSalloc => Ok(None),
            TellEnds::AsSlurm => Ok(Some(Self::AsSlurm(Vec::new()))),
            TellEnds::Socket => Ok(Some(Self::Socket(own_socket()?))),
        }
    }

    /// Tells of one. A reader that is gone has ended the job, too.
    pub(super) fn tell(&mut self, rank: Rank, status: TaskStatus, far: Option<NodeId>) {
        match self {
            Self::Socket(socket) => {
                let line = format!("{} {}\n", rank.0, wait_status(status));
                let _ = socket.write_all(line.as_bytes());
            }
            Self::AsSlurm(failed) => {
                if status != TaskStatus::Exited(0) && failed.len() < FAILED_MAX {
                    failed.push((far, status, rank));
                }
            }
        }
    }

    /// The exit code of `srun` where a program could not be started: the error of the kernel,
    /// such as 2 for a program that is not there. `None`: a task has run.
    pub(super) fn code_of_not_begun(&self, outcome: Outcome) -> Option<u8> {
        let Self::AsSlurm(failed) = self else { return None };
        let code = |status| match status {
            TaskStatus::NotFound => u8::try_from(libc::ENOENT).ok(),
            TaskStatus::NotExecutable => u8::try_from(libc::EACCES).ok(),
            _ => None,
        };
        let codes: Option<Vec<u8>> = failed.iter().map(|it| code(it.1)).collect();
        codes.filter(|_| outcome.reason == EndReason::TaskFailed)?.into_iter().max()
    }

    /// Says which tasks have failed, if that is how it ended. Whether it did.
    pub(super) fn say(&self, outcome: Outcome) -> bool {
        let Self::AsSlurm(failed) = self else { return false };
        let is_plain = matches!(outcome.reason, EndReason::Completed | EndReason::TaskFailed);
        // Why one could not begin is known better.
        let has_run = |status| !matches!(status, TaskStatus::NotFound | TaskStatus::NotExecutable);
        if !is_plain || failed.is_empty() || !failed.iter().all(|it| has_run(it.1)) {
            return false;
        }
        let mut groups: BTreeMap<(Option<NodeId>, String), Vec<u32>> = BTreeMap::new();
        for &(far, status, rank) in failed {
            groups.entry((far, in_words(status))).or_default().push(rank.0);
        }
        for ((far, how), mut ranks) in groups {
            ranks.sort_unstable();
            say!("srun: error: {}: {}: {how}", name_of(far), tasks(&ranks));
        }
        true
    }
}

/// The name of a node: this one, or another.
fn name_of(far: Option<NodeId>) -> String {
    let found = match far {
        None => None,
        Some(from) => ask(&Request::Nodes { from }).ok(),
    };
    let name = match found {
        Some(Reply::Nodes { nodes, .. }) => nodes.into_iter().next().map(|node| node.name),
        _ => None,
    };
    let here = || nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    name.unwrap_or_else(here)
}

/// `task 3`, `tasks 0-2,5`.
fn tasks(ranks: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let shown = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let list = ranges.iter().map(shown).collect::<Vec<String>>().join(",");
    format!("{} {list}", if ranks.len() == 1 { "task" } else { "tasks" })
}

/// How a task ended, as `srun` says it.
fn in_words(status: TaskStatus) -> String {
    let TaskStatus::Signaled(signal) = status else {
        return format!("Exited with exit code {}", status.exit_code());
    };
    match Signal::try_from(i32::from(signal)) {
        Ok(Signal::SIGHUP) => "Hangup".into(),
        Ok(Signal::SIGINT) => "Interrupt".into(),
        Ok(Signal::SIGILL) => "Illegal instruction".into(),
        Ok(Signal::SIGABRT) => "Aborted".into(),
        Ok(Signal::SIGBUS) => "Bus error".into(),
        Ok(Signal::SIGFPE) => "Floating point exception".into(),
        Ok(Signal::SIGKILL) => "Killed".into(),
        Ok(Signal::SIGUSR1) => "User defined signal 1".into(),
        Ok(Signal::SIGSEGV) => "Segmentation fault".into(),
        Ok(Signal::SIGUSR2) => "User defined signal 2".into(),
        Ok(Signal::SIGPIPE) => "Broken pipe".into(),
        Ok(Signal::SIGTERM) => "Terminated".into(),
        _ => format!("Terminated by signal {signal}"),
    }
}

/// The status as `wait` gives it: a signal, or an exit code in the next byte.
const fn wait_status(status: TaskStatus) -> i32 {
    match status {
        TaskStatus::Signaled(signal) => signal as i32,
        other => (other.exit_code() as i32) << 8,
    }
}

#[cfg(test)]
mod tests {
    use super::{in_words, tasks, wait_status};
    use tutti_types::TaskStatus;

    #[test]
    fn failures_are_said_as_srun_says_them() {
        assert_eq!(tasks(&[3]), "task 3");
        assert_eq!(tasks(&[0, 1, 2, 5]), "tasks 0-2,5");
        assert_eq!(in_words(TaskStatus::Exited(4)), "Exited with exit code 4");
        assert_eq!(in_words(TaskStatus::Signaled(9)), "Killed");
    }

    #[test]
    fn statuses_are_those_of_wait() {
        assert_eq!(wait_status(TaskStatus::Exited(3)), 3 << 8);
        assert_eq!(wait_status(TaskStatus::Signaled(9)), 9);
        assert_eq!(wait_status(TaskStatus::NotFound), 127 << 8);
    }
}
