//! Processes that have left the group of their task.
//!
//! Where groups are root's, nobody can. In a subtree of a user's own, whose tasks are the same user, a process
//! may write itself into another group of that subtree. Who descends from a task is known all the same where
//! the kernel tells of births: so those who have left are looked for once a second and brought back, and what
//! is still outside when its task ends is ended then.

use super::{Place, TaskId, Tracker};
use crate::outside::time as clock;
use nix::unistd::geteuid;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tutti_linux::cgroup::processes_of;
use tutti_linux::track;

/// How often they are looked for.
const LOOK_NS: u64 = 1_000_000_000;

/// When to look next; never where nobody can have left.
#[derive(Default)]
pub(super) struct Watch {
    due_ns: Option<u64>,
}

impl Watch {
    /// A task begins there.
    pub(super) fn over(&mut self, place: &Place) {
        if matches!(place, Place::Group(_)) && !geteuid().is_root() && self.due_ns.is_none() {
            self.due_ns = Some(clock::monotonic_ns() + LOOK_NS);
        }
    }

    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

impl Tracker {
    /// Brings back who has left since the last look, if it is time to.
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
        self.watch.due_ns = (!tasks.is_empty()).then_some(now_ns + LOOK_NS);
    }

    /// Puts those of a task who have left its group back into it, as far as they are known.
    pub(super) fn bring_back(&self, task: TaskId) {
        if let Some(Place::Group(group)) = self.places.get(&task) {
            for pid in self.outside(task, group) {
                // One that has ended meanwhile needs nothing.
                let _ = fs::write(group.join("cgroup.procs"), pid.to_string());
            }
        }
    }

    /// Those who live, descend from a task and are not in its group.
    pub(in crate::agent) fn runaways(&mut self, task: TaskId) -> Vec<i32> {
        if self.watch.due_ns.is_none() {
            return Vec::new();
        }
        self.take_in_all();
        match self.places.get(&task) {
            Some(Place::Group(group)) => self.outside(task, group),
            _ => Vec::new(),
        }
    }

    fn outside(&self, task: TaskId, group: &Path) -> Vec<i32> {
        if self.watch.due_ns.is_none() {
            return Vec::new();
        }
        // Known before the group is looked at: who is born meanwhile is none.
        let known = self.forest.members(task);
        let inside: BTreeSet<i32> = processes_of(group).unwrap_or_default().into_iter().collect();
        let is_out = |member: &&track::Member| {
            let is_still_it = |seen| member.is(seen);
            !inside.contains(&member.pid)
                && track::seen(&[member.pid]).first().is_some_and(is_still_it)
        };
        known.iter().filter(is_out).map(|member| member.pid).collect()
    }
}
