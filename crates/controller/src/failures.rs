//! Which task decided how a job ended, in words.

use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use tutti_node::exit::Exit;
use tutti_types::{EndReason, Outcome, Rank, TaskStatus};

/// Of the tasks that ended badly, the first with each exit code. Those that were ended because of
/// it come later, so the one that decided the exit code of the job is among them.
#[derive(Debug, Default)]
pub(super) struct Failures {
    first: BTreeMap<u8, (Rank, TaskStatus)>,
    /// The first task that ended before `MPI_Finalize`, with its exit status.
    unfinalized: Option<(Rank, u8)>,
}

impl Failures {
    /// Takes note of how a task ended.
    pub(super) fn note(&mut self, rank: Rank, status: TaskStatus) {
        if let TaskStatus::Unfinalized(code) = status {
            self.unfinalized.get_or_insert((rank, code));
        }
        if status.exit_code() != 0 {
            self.first.entry(status.exit_code()).or_insert((rank, status));
        }
    }

    /// These tasks were lost, and begin again.
    pub(super) fn take_back(&mut self, ranks: &[Rank]) {
        let is_back = |(rank, status): &(Rank, TaskStatus)| {
            *status == TaskStatus::Lost && ranks.contains(rank)
        };
        self.first.retain(|_, first| !is_back(first));
    }

    /// The task that ended so, and how, unless the keeper has said more about it than there is to
    /// say here.
    pub(super) fn words(&self, outcome: Outcome) -> Option<String> {
        let first = self.first.get(&outcome.exit_code);
        let by_itself =
            |status| matches!(status, TaskStatus::Exited(_) | TaskStatus::Unfinalized(_));
        if outcome.reason == EndReason::TaskFailed
            && first.is_none_or(|&(_, status)| by_itself(status))
            && let Some((rank, code)) = self.unfinalized
        {
            let what = format!("rank {rank} ended with exit status {code} before MPI_Finalize");
            return Some(format!("{what}, and other ranks did not end"));
        }
        let (rank, status) = first?;
        Some(match *status {
            TaskStatus::Exited(code) | TaskStatus::Unfinalized(code) => {
                let own = Exit::OF_TUTTI.contains(&code);
                let whose = if own { ", given by its program and not by Tutti" } else { "" };
                format!("rank {rank} ended with exit status {code}{whose}")
            }
            TaskStatus::Signaled(number) => {
                let name = Signal::try_from(i32::from(number))
                    .map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().into());
                format!("rank {rank} was ended by {name}")
            }
            TaskStatus::Aborted(code) => format!("rank {rank} aborted the job with status {code}"),
            TaskStatus::Lost => format!("rank {rank} was lost"),
            TaskStatus::NotFound
            | TaskStatus::NotExecutable
            | TaskStatus::OutOfMemory
            | TaskStatus::Unknown
            | TaskStatus::Saved
            | TaskStatus::NotRestored
            | TaskStatus::Damaged => {
                return None;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::Nanos;

    fn outcome(reason: EndReason, exit_code: u8) -> Outcome {
        Outcome { reason, exit_code, service: Nanos::ZERO }
    }

    #[test]
    fn the_first_with_the_exit_code_of_the_job_is_named() {
        let mut failures = Failures::default();
        for (rank, status) in [
            (4, TaskStatus::Exited(0)),
            (3, TaskStatus::Exited(9)),
            (6, TaskStatus::Exited(124)),
            (2, TaskStatus::Signaled(11)),
            (1, TaskStatus::Signaled(11)),
            (0, TaskStatus::NotFound),
        ] {
            failures.note(Rank(rank), status);
        }
        for (exit_code, words) in [
            (139, Some("rank 2 was ended by SIGSEGV")),
            (9, Some("rank 3 ended with exit status 9")),
            (124, Some("rank 6 ended with exit status 124, given by its program and not by Tutti")),
            (127, None),
            (0, None),
        ] {
            assert_eq!(failures.words(outcome(EndReason::Completed, exit_code)).as_deref(), words);
        }
    }

    #[test]
    fn a_task_that_ended_before_mpi_finalize_is_named_if_others_waited_for_it() {
        let mut failures = Failures::default();
        let words =
            "rank 3 ended with exit status 0 before MPI_Finalize, and other ranks did not end";
        for (rank, status) in [
            (3, TaskStatus::Unfinalized(0)),
            (4, TaskStatus::Exited(1)),
            (5, TaskStatus::Unfinalized(2)),
        ] {
            failures.note(Rank(rank), status);
            let said = failures.words(outcome(EndReason::TaskFailed, 1));
            assert_eq!(said.as_deref(), Some(words));
        }
        let said = failures.words(outcome(EndReason::Completed, 2));
        assert_eq!(said.as_deref(), Some("rank 5 ended with exit status 2"));
        failures.note(Rank(6), TaskStatus::Signaled(11));
        let said = failures.words(outcome(EndReason::TaskFailed, 139));
        assert_eq!(said.as_deref(), Some("rank 6 was ended by SIGSEGV"));
    }
}
