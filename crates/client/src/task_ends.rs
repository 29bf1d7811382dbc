//! Tells the process that has started a front end how each task ends.
//!
//! The resource manager of `tutti pvm` starts the front ends of its steps with a socket as standard
//! input. Each task that ends is a line there: its rank, and its status as `wait` gives it. The end
//! of the front end is the end of the stream.

use anyhow::Context;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use tutti_types::{Rank, StepId, TaskStatus};
use tutti_wire::local::StepRequest;
use tutti_wire::spawn::{Spawned, SpawnedProgram};

/// Has a step take free slots of its job at once, or be refused, as one that a program has spawned.
/// One that shares processors takes none.
pub(super) fn take_slots(step: &mut StepRequest) {
    if !step.spec.overlap {
        step.spec.spawned_by = Some(StepId::FIRST);
        let argv = step.launch.argv.clone();
        let program = SpawnedProgram { tasks: step.spec.tasks, argv, directory: None, path: None };
        step.spawned = Some(Spawned { programs: vec![program], ..Spawned::default() });
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct TaskEnds(UnixStream);

impl TaskEnds {
    /// The socket that is this process' standard input.
    ///
    /// # Errors
    /// If it can't be duplicated.
    pub(super) fn of_stdin() -> anyhow::Result<Self> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned();
        Ok(Self(UnixStream::from(socket.context("cannot report the ends of tasks")?)))
    }

    /// Tells of one. A reader that is gone has ended the job, too.
    pub(super) fn tell(&mut self, rank: Rank, status: TaskStatus) {
        let _ = self.0.write_all(format!("{} {}\n", rank.0, wait_status(status)).as_bytes());
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
    use super::wait_status;
    use tutti_types::TaskStatus;

    #[test]
    fn statuses_are_those_of_wait() {
        assert_eq!(wait_status(TaskStatus::Exited(3)), 3 << 8);
        assert_eq!(wait_status(TaskStatus::Signaled(9)), 9);
        assert_eq!(wait_status(TaskStatus::NotFound), 127 << 8);
    }
}
