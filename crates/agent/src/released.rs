//! Released jobs on this node, as external load: see [`tutti_node::released`].
//!
//! The agent goes on with one as with a job that no controller knows, but neither ends nor suspends
//! it: the switch thread has it run and lets go of it, and no timetable names it. What it has used
//! is taken off what the instance has used, its processors count as held, and its memory is taken
//! off that of the node.

use super::driver::{Agent, Groups};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tracing::info;
use tutti_linux::proc;
use tutti_node::platform::groups::{Cgroup, Hierarchy};
use tutti_node::platform::hardware;
use tutti_node::platform::time::monotonic_ns;
use tutti_node::released;
use tutti_types::{JobId, Timetable};
use tutti_wire::keeper::ToKeeper;
use tutti_wire::tree::FromAgent;

/// How often it is looked at the memory of released jobs.
const INTERVAL_NS: u64 = 5_000_000_000;

/// The controller hears of changes of more than such a part of the node's memory: each may become
/// an entry of the journal.
const TOLD_PART: u64 = 64;

/// How many processes of a group without a set of processors are looked at.
const PROCESSES_MAX: usize = 64;

/// Which jobs are released, and what they have used.
#[derive(Debug, Default)]
pub(super) struct Released {
    until: JobId,
    /// By the name of the group, in microseconds: also of groups that were removed, which the
    /// kernel counts on for the instance.
    used_us: RefCell<BTreeMap<String, u64>>,
    /// When to look again how much memory they have, and whether anything is left of them.
    due_ns: Option<u64>,
    /// Their memory, as the controller knows it, in bytes.
    memory_bytes: u64,
}

impl Released {
    /// Jobs up to this number are.
    pub(super) fn new(until: JobId) -> Self {
        Self { until, ..Self::default() }
    }

    /// When to look at them again.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Something may have changed.
    pub(super) const fn look_soon(&mut self, now_ns: u64) {
        if self.until.0 > 0 {
            self.due_ns = Some(now_ns);
        }
    }

    /// The last released job.
    pub(super) const fn until(&self) -> JobId {
        self.until
    }
}

/// The groups of the instance, and which of them are of released jobs.
#[derive(Clone, Copy)]
pub(super) struct Own<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) released: &'a Released,
}

impl<'a> Own<'a> {
    /// `None` where there are no groups.
    pub(super) fn of(hierarchy: Option<&'a Hierarchy>, released: &'a Released) -> Option<Self> {
        hierarchy.map(|hierarchy| Self { hierarchy, released })
    }

    /// What jobs have used that are not released, in microseconds; `None` where the kernel does not
    /// count. Groups of released jobs in which nothing runs any more are removed.
    pub(super) fn used_us(self) -> Option<u64> {
        let all = self.hierarchy.cpu_usage().ok()?;
        let mut used_us = self.released.used_us.borrow_mut();
        for (name, group) in released::groups(self.hierarchy, self.released.until) {
            if let Ok(used) = group.cpu_usage() {
                used_us.insert(name, used.user_us + used.system_us);
            }
            if matches!(group.is_populated(), Ok(false)) {
                let _ = group.remove();
            }
        }
        Some((all.user_us + all.system_us).saturating_sub(used_us.values().sum()))
    }

    /// The memory of released jobs, in bytes, and whether anything is left of them.
    fn memory_bytes(self) -> (u64, bool) {
        let groups = released::groups(self.hierarchy, self.released.until);
        let resident = groups.iter().map(|(_, group)| group.resident_bytes().unwrap_or(0));
        (resident.fold(0, u64::saturating_add), !groups.is_empty())
    }

    /// The processors that released jobs hold.
    pub(super) fn held(self) -> Vec<u32> {
        let groups = released::groups(self.hierarchy, self.released.until);
        let runs = |group: &Cgroup| matches!(group.is_populated(), Ok(true));
        let held = groups.into_iter().map(|(_, group)| group).filter(runs);
        held.flat_map(|group| group.processors().unwrap_or_else(|| by_masks(&group))).collect()
    }
}

/// Where the processes of a group may run, which no set holds.
fn by_masks(group: &Cgroup) -> Vec<u32> {
    let processes = group.processes().unwrap_or_default();
    let masks = processes.into_iter().take(PROCESSES_MAX).filter_map(proc::processors_of);
    masks.flatten().collect()
}

impl Groups {
    /// Those of the instance, where there are such.
    pub(super) fn own(&self) -> Option<Own<'_>> {
        Own::of(self.hierarchy.as_ref(), &self.released)
    }
}

impl Agent {
    /// Jobs up to this number are released, by the word of the controller.
    pub(super) fn learn_released(&mut self, until: JobId) {
        if until > self.groups.released.until {
            self.groups.released.until = until;
            // The next keeper must know it as well.
            self.tell_keeper(&ToKeeper::Release { until });
        }
    }

    /// A job of a former state goes on as external load.
    pub(super) fn release(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.tasks.are_cleared() {
            return self.end_strange(id);
        }
        let now_ns = monotonic_ns();
        if !std::mem::replace(&mut job.strange, true) {
            info!("job {id} is released: it goes on as external load");
            // A timetable of a former controller gives it processors.
            self.external.taken.timetable(&Timetable::default(), now_ns);
        }
        self.end_swap(id);
        self.end_notices(id);
        self.switch.release(id);
        self.external.taken.on_changes(now_ns);
        self.groups.released.look_soon(now_ns);
    }

    /// What jobs may have of the node's memory, in bytes: released jobs have the rest.
    pub(super) fn memory_for_jobs(&mut self) -> u64 {
        let released = self.groups.own().map_or(0, |own| own.memory_bytes().0);
        self.groups.released.memory_bytes = released;
        hardware::usable_memory_bytes().unwrap_or(0).saturating_sub(released)
    }

    /// Looks how much memory released jobs have, if it is time to, until nothing is left of them.
    pub(super) fn look_at_released(&mut self, now_ns: u64) {
        if self.groups.released.due_ns.is_none_or(|due| due > now_ns) {
            return;
        }
        let Some(own) = self.groups.own() else { return self.groups.released.due_ns = None };
        released::remove_empty(own.hierarchy, own.released.until);
        let (bytes, is_left) = own.memory_bytes();
        self.groups.released.due_ns = is_left.then_some(now_ns + INTERVAL_NS);
        let all = hardware::usable_memory_bytes().unwrap_or(0);
        let told = self.groups.released.memory_bytes;
        let is_news = bytes.abs_diff(told) > all / TOLD_PART || (bytes == 0) != (told == 0);
        if is_news && self.has_joined() {
            self.groups.released.memory_bytes = bytes;
            self.tell_controller(FromAgent::Memory(all.saturating_sub(bytes)));
        }
    }
}
