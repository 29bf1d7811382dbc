//! How readily the kernel ends a process when memory runs out (`oom_score_adj`).
//!
//! The score of a process is part of what its children inherit, and any process may raise its own.
//! To lower it below what it was given takes `CAP_SYS_RESOURCE`.

use crate::{Error, Result};
use std::fs;
use std::path::PathBuf;

/// The score of daemons, where they may have it: the same as in the unit of systemd.
const DAEMON: i32 = -900;

/// How much higher the score of tasks is than that of daemons, at least: a tenth of the machine's
/// memory.
const TASKS_ABOVE: i32 = 100;

/// The highest score there is.
const HIGHEST: i32 = 1000;

/// The score of a process.
///
/// # Errors
/// If it has ended, or the kernel says no number.
pub fn of(pid: u32) -> Result<i32> {
    let path = PathBuf::from(format!("/proc/{pid}/oom_score_adj"));
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    text.trim().parse().map_err(|_| Error::Malformed { path, wanted: "a number" })
}

/// Lowers the score of this process to that of a daemon, where that is permitted.
pub fn protect_daemon() {
    if of(std::process::id()).is_ok_and(|score| score > DAEMON) {
        let _ = set(DAEMON);
    }
}

/// Raises the score of this process, which a daemon has started, to that of tasks: it does what a
/// user wants. Its children inherit it.
///
/// # Errors
/// If the score can't be read or written.
pub fn expose_to_user() -> Result<()> {
    let own = of(std::process::id())?;
    match Scores::new(own, own).tasks {
        tasks if tasks > own => set(tasks),
        _ => Ok(()),
    }
}

/// Sets the score of this process, and of all that share its memory.
fn set(score: i32) -> Result<()> {
    let path = PathBuf::from("/proc/self/oom_score_adj");
    fs::write(&path, score.to_string()).map_err(Error::file("write", &path))
}

/// The scores of a daemon that starts tasks, and of its tasks.
///
/// A child that shares the memory of its parent can't have a score of its own. So the daemon has
/// the score of tasks while such a child is there: from before it is made until its program runs.
#[derive(Debug)]
pub(crate) struct Scores {
    daemon: i32,
    tasks: i32,
    is_exposed: bool,
}

impl Scores {
    /// For this process, whose score is no higher than that of its parent: an earlier program of
    /// this process may have left it raised.
    pub(crate) fn of_this_process() -> Option<Self> {
        let own = of(std::process::id()).ok()?;
        let parent = of(std::os::unix::process::parent_id()).unwrap_or(own);
        let mut scores = Self::new(own.min(parent), own);
        scores.restore();
        Some(scores)
    }

    fn new(daemon: i32, own: i32) -> Self {
        let tasks = (daemon + TASKS_ABOVE).clamp(0, HIGHEST);
        Self { daemon, tasks, is_exposed: own != daemon }
    }

    /// A child is made next: whether it begins with the score of tasks.
    pub(crate) fn expose(&mut self) -> bool {
        self.is_exposed = self.is_exposed || set(self.tasks).is_ok();
        self.is_exposed
    }

    /// No child shares the memory.
    pub(crate) fn restore(&mut self) {
        if self.is_exposed {
            self.is_exposed = set(self.daemon).is_err();
        }
    }

    pub(crate) const fn is_exposed(&self) -> bool {
        self.is_exposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_end_before_daemons_and_no_sooner_than_other_processes_where_that_will_do() {
        let tasks = |daemon| Scores::new(daemon, daemon).tasks;
        assert_eq!([-1000, -900, -50, 0, 200, 950].map(tasks), [0, 0, 50, 100, 300, 1000]);
    }
}
