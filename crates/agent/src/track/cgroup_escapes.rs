//! Processes that have left the group of their task.
//!
//! Where groups are root's, no ordinary process can leave by itself, but root may move it, and so
//! may a daemon: a login manager puts what `su` and `sudo` start into a session of its own. In a
//! subtree of a user's own, where tasks are the same user, a process may write itself into another
//! group of that subtree. Where the kernel reports births, the descendants of a task are known all
//! the same: those outside of its group are looked for once a second and brought back, and what is
//! still outside when its task ends is ended then. Processes of another instance's job belong to
//! that job, where only root can have put them there.

use super::{Place, TaskId, Tracker};
use crate::subtree_control::{Name, name};
use nix::unistd::geteuid;
use std::collections::BTreeSet;
use std::path::Path;
use tracing::{info, warn};
use tutti_linux::cgroup::{Cgroup, processes_of};
use tutti_linux::pidfd::Held;
use tutti_linux::track::{self, Member};
use tutti_node::instance::is_in_a_job;
use tutti_node::log::PROVOKED;
use tutti_node::platform::time as clock;
use tutti_wire::code::Code;

/// How often they are looked for. Longer where that takes long, so that it costs a hundredth of a
/// processor.
const LOOK_NS: u64 = 1_000_000_000;

/// When to look next; never where no task has a group.
#[derive(Default)]
pub(super) struct Watch {
    due_ns: Option<u64>,
}

impl Watch {
    /// A task begins there.
    pub(super) fn over(&mut self, place: &Place) {
        if matches!(place, Place::Group(_)) && self.due_ns.is_none() {
            self.due_ns = Some(clock::monotonic_ns() + LOOK_NS);
        }
    }

    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

impl Tracker {
    /// Brings back processes that have left since the last look, if it is time to.
    pub(super) fn watch_runaways(&mut self, now_ns: u64) {
        if self.watch.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let in_groups = self.places.iter().filter(|(_, place)| matches!(place, Place::Group(_)));
        let tasks: Vec<TaskId> = in_groups.map(|(&task, _)| task).collect();
        self.take_in_all();
        for &task in &tasks {
            self.bring_back(task);
        }
        let took_ns = clock::monotonic_ns().saturating_sub(now_ns);
        let again_ns = now_ns + LOOK_NS.max(took_ns.saturating_mul(100));
        self.watch.due_ns = (!tasks.is_empty()).then_some(again_ns);
    }

    /// Puts processes of a task that have left its group back into it, as far as they are known.
    pub(super) fn bring_back(&self, task: TaskId) {
        let Some(Place::Group(path)) = self.places.get(&task) else { return };
        let outside = self.outside(task, path);
        if outside.is_empty() {
            return;
        }
        // A group that is gone has no task.
        let Ok(group) = Cgroup::open(path) else { return };
        for member in outside {
            // One that has ended meanwhile needs nothing, and its number may be another's.
            if let Ok(process) = Held::whoever_is(member.pid)
                && is_there(&member)
            {
                report(task, &member, group.take_in(&process));
            }
        }
    }

    /// Processes that live, descend from a task and are not in its group.
    pub(crate) fn runaways(&mut self, task: TaskId) -> Vec<Name> {
        if self.watch.due_ns.is_none() {
            return Vec::new();
        }
        self.take_in_all();
        match self.places.get(&task) {
            Some(Place::Group(group)) => {
                self.outside(task, group).iter().filter_map(name).collect()
            }
            _ => Vec::new(),
        }
    }

    fn outside(&self, task: TaskId, group: &Path) -> Vec<Member> {
        if self.watch.due_ns.is_none() {
            return Vec::new();
        }
        // Known before the group is looked at: what is born meanwhile is none.
        let mut known = self.forest.members(task);
        let inside: BTreeSet<i32> = processes_of(group).unwrap_or_default().into_iter().collect();
        let is_elsewhere = |pid| geteuid().is_root() && is_in_a_job(pid);
        known.retain(|it| !inside.contains(&it.pid) && is_there(it) && !is_elsewhere(it.pid));
        known
    }
}

/// Whether a process still lives.
fn is_there(member: &Member) -> bool {
    track::seen(&[member.pid]).first().is_some_and(|seen| member.is(seen))
}

fn report((job, rank): TaskId, member: &Member, taken_in: tutti_linux::Result<bool>) {
    let pid = member.pid;
    match taken_in {
        Ok(true) => {
            info!("process {pid} of task {job}.{rank} was outside of its cgroup; moved back");
        }
        Ok(false) => {}
        Err(error) => {
            warn!(target: PROVOKED, code = %Code::ProcessStuck, "process {pid} of task {job}.{rank} is outside of its cgroup and can't be moved \
                 back: {error}; it is killed when the task ends"
            )
        }
    }
}
