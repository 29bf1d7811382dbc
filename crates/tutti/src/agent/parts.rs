//! Suspends, resumes and signals parts of a job: a task, or a process with all below it.
//!
//! Whole jobs are switched by the timetable alone; this is for a user who wants to stop one task or
//! one subtree while the rest goes on. Both can hold at once: a task that its user suspended stays
//! suspended when its job's turn comes.

use super::switch::walk;
use std::sync::Arc;
use std::time::Duration;
use tutti_linux::cgroup::Cgroup;
use tutti_linux::proc;
use tutti_linux::signal::{self, Root, resume_tree, signal_tree, suspend_tree};
use tutti_wire::report::Target;
use tutti_wire::tree::Settings;

/// A task of a job on this node.
pub(super) struct Part {
    /// The task's own cgroup, where there is one.
    pub(super) group: Option<Arc<Cgroup>>,
    /// The task's root, or its minder where it has no cgroup.
    pub(super) root: i32,
    /// The process that is meant; the root if none was named.
    pub(super) pid: Option<i32>,
}

/// Why an order about a part can't be carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    /// The process is not one of the task's.
    #[error("process {pid} does not belong to {target}")]
    NotInTask { pid: i32, target: Target },
    /// The cgroup could not be frozen in time.
    #[error(transparent)]
    Freeze(#[from] tutti_linux::cgroup::FreezeError),
    /// A cgroup file could not be written.
    #[error(transparent)]
    Cgroup(#[from] tutti_linux::Error),
    /// The processes could not all be stopped or resumed in time.
    #[error(transparent)]
    Walk(#[from] signal::WalkError),
}

impl Part {
    fn pids(&self) -> Vec<i32> {
        match &self.group {
            Some(group) => group.processes().unwrap_or_default(),
            None => proc::descendants(self.root).unwrap_or_default(),
        }
    }

    fn checked_pid(&self, pid: i32, target: Target) -> Result<i32, PartError> {
        if self.pids().contains(&pid) { Ok(pid) } else { Err(PartError::NotInTask { pid, target }) }
    }

    pub(super) fn suspend(&self, target: Target, settings: Settings) -> Result<(), PartError> {
        match (self.pid, &self.group) {
            (Some(pid), _) => {
                suspend_tree(self.checked_pid(pid, target)?, &walk(settings))?;
            }
            (None, Some(group)) => {
                group.freeze(Duration::from_nanos(settings.freeze_deadline.0))?;
            }
            (None, None) => {
                // The minder itself must go on.
                suspend_tree(Root::below(self.root), &walk(settings))?;
            }
        }
        Ok(())
    }

    pub(super) fn resume(&self, target: Target, settings: Settings) -> Result<(), PartError> {
        match (self.pid, &self.group) {
            (Some(pid), _) => {
                resume_tree(self.checked_pid(pid, target)?, &walk(settings))?;
            }
            (None, Some(group)) => group.request_thaw()?,
            (None, None) => {
                resume_tree(Root::below(self.root), &walk(settings))?;
            }
        }
        Ok(())
    }

    pub(super) fn signal(&self, target: Target, signal: u8) -> Result<(), PartError> {
        let _ = match self.pid {
            Some(pid) => signal_tree(self.checked_pid(pid, target)?, i32::from(signal))?,
            None => signal::signal_forest(&self.pids(), i32::from(signal))?,
        };
        Ok(())
    }
}
