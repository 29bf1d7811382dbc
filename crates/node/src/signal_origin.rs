//! The sender of a signal to a daemon.

use nix::unistd::Pid;

/// Whether it is a process that may take the daemon out of service: its supervisor, the system's
/// first process, or one that can't be seen from here. A daemon that anybody else tells to end is
/// started again, like one that was killed.
pub fn answers_for(sender: u32, supervisor: Pid) -> bool {
    sender <= 1 || sender == supervisor.as_raw().cast_unsigned()
}
