//! How much memory, and how many processes, a program may have with all that it has started.
//!
//! The processes are looked at a few times in a second, and counted together. So no cgroup is
//! needed. Between two looks, the kernel itself limits the data of each process.

use crate::program::Failure;
use std::time::{Duration, Instant};
use tutti_linux::proc::{ProcessStat, descendants_at_most};

/// How often the processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a program may have, with all that it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory, bytes; `None`: any amount.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: u64,
}

/// Looks at the processes of a program from time to time.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: Option<Limits>,
    looked: Instant,
}

impl Watch {
    /// One that keeps a program to these limits; `None`: to none.
    pub(crate) fn new(limits: Option<Limits>) -> Self {
        Self { limits, looked: Instant::now() }
    }

    /// How long a wait may be, of this time, before it is to be looked again.
    pub(crate) fn wait(&self, left: Duration) -> Duration {
        match self.limits {
            Some(_) => left.min(LOOK_EVERY),
            None => left,
        }
    }

    /// Looks at the tree of processes below `root`, if it is time.
    ///
    /// # Errors
    /// If they have more than they may.
    pub(crate) fn look(&mut self, root: i32) -> Result<(), Failure> {
        match self.limits {
            Some(limits) if self.looked.elapsed() >= LOOK_EVERY => {
                self.looked = Instant::now();
                check(root, limits)
            }
            _ => Ok(()),
        }
    }
}

fn check(root: i32, limits: Limits) -> Result<(), Failure> {
    let most = usize::try_from(limits.processes).unwrap_or(usize::MAX);
    let below = descendants_at_most(root, most).unwrap_or_default();
    let (mut processes, mut bytes) = (0_u64, 0_u64);
    for pid in below.into_iter().chain([root]) {
        // It may be gone.
        let Ok(stat) = ProcessStat::read(pid) else { continue };
        processes += u64::from(stat.threads.max(1));
        bytes = bytes.saturating_add(stat.resident_bytes());
    }
    match limits.memory_bytes {
        Some(most) if bytes > most => Err(Failure::TooMuchMemory(most)),
        _ if processes > limits.processes => Err(Failure::TooManyProcesses(limits.processes)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Limits, check};
    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// A shell with so many children, in a group of their own.
    fn family(children: usize) -> Child {
        let script = format!("for i in $(seq {children}); do sleep 60 & done; echo; wait");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    fn all_processes_below_a_program_count_with_their_memory() {
        let mut child = family(4);
        let pid = child.id().cast_signed();
        let check = |memory_bytes, processes| check(pid, Limits { memory_bytes, processes });
        assert!(check(Some(1 << 30), 5).is_ok());
        assert!(matches!(check(None, 4), Err(Failure::TooManyProcesses(4))));
        assert!(matches!(check(Some(4096), 5), Err(Failure::TooMuchMemory(4096))));
        killpg(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(check(Some(4096), 0).is_ok(), "it is gone");
    }
}
