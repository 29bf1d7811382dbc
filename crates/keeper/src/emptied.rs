//! Groups that the last process has left: they are removed when there is nothing else to do.
//!
//! To remove a group takes the kernel longer than most of what the keeper does when a task ends,
//! and nothing waits for it. When a job has ended here, its agent removes the job's group with all
//! that is left below.

use super::context::chain;
use super::job::limits;
use tracing::warn;
use tutti_node::platform::groups::Cgroup;
use tutti_wire::launch::Launch;

/// So many may wait.
const WAITING_MAX: usize = 256;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Emptied(Vec<Group>);

#[derive(Debug)]
struct Group {
    group: Cgroup,
    is_limited: bool,
}

impl Emptied {
    /// Takes the group of a task of this launch: there is no process in it, and none will come.
    pub(super) fn push(&mut self, launch: &Launch, group: Cgroup) {
        if self.0.len() >= WAITING_MAX {
            self.remove_all();
        }
        self.0.push(Group { group, is_limited: limits::is_limited(launch) });
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Also before a launch: its groups may have the same names, its tasks need descriptors.
    pub(super) fn remove_all(&mut self) {
        for Group { group, is_limited } in self.0.drain(..) {
            if let Err(error) = remove(&group, is_limited) {
                // It goes with the instance's subtree.
                warn!("{}", chain(&error));
            }
        }
    }
}

/// Removes the group of a task. `false` if a process is left in it.
pub(super) fn remove(group: &Cgroup, is_limited: bool) -> tutti_linux::Result<bool> {
    if is_limited { group.remove() } else { group.remove_unlimited() }
}
