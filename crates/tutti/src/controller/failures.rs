//! Which task decided how a job ended, in words.

use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use tutti_core::{Rank, TaskStatus};

/// Of the tasks that ended badly, the first with each exit code. Those that were ended because of it
/// come later, so the one that decided the exit code of the job is among them.
#[derive(Debug, Default)]
pub(super) struct Failures {
    first: BTreeMap<u8, (Rank, TaskStatus)>,
}

impl Failures {
    /// Takes note of how a task ended.
    pub(super) fn note(&mut self, rank: Rank, status: TaskStatus) {
        if status.exit_code() != 0 {
            self.first.entry(status.exit_code()).or_insert((rank, status));
        }
    }

    /// Who ended so, and how, unless the keeper has said more about it than there is to say here.
    pub(super) fn words(&self, exit_code: u8) -> Option<String> {
        let (rank, status) = self.first.get(&exit_code)?;
        Some(match *status {
            TaskStatus::Exited(code) => format!("rank {rank} ended with exit status {code}"),
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
            | TaskStatus::Unknown => {
                return None;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_with_the_exit_code_of_the_job_is_named() {
        let mut failures = Failures::default();
        for (rank, status) in [
            (4, TaskStatus::Exited(0)),
            (3, TaskStatus::Exited(9)),
            (2, TaskStatus::Signaled(11)),
            (1, TaskStatus::Signaled(11)),
            (0, TaskStatus::NotFound),
        ] {
            failures.note(Rank(rank), status);
        }
        for (exit_code, words) in [
            (139, Some("rank 2 was ended by SIGSEGV")),
            (9, Some("rank 3 ended with exit status 9")),
            (127, None),
            (0, None),
        ] {
            assert_eq!(failures.words(exit_code).as_deref(), words);
        }
    }
}
