//! Devices that have files, or other numbers, only after a job has begun.
//!
//! - *Without a file* when it began: it was not known what to close to it. They are closed to it
//!   when their files come: before another job begins, and within [`INTERVAL_NS`] in any case. The
//!   files are written down on the job's group, so an agent that takes the job over goes on with
//!   that.
//! - *With other numbers*, as after a change of their driver: these are closed to all jobs but
//!   those that have the device alone, before another job begins, and within [`LOOK_NS`]. To a job
//!   that has it in turns, or was taken over, they are closed, too: it can't open them out of its
//!   turn.

use super::{look_up, never_seen, numbers, renumbered};
use crate::driver::Agent;
use std::collections::{BTreeMap, BTreeSet};
use tracing::warn;
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::JobId;
use tutti_wire::code::Code;
use tutti_wire::launch::Share;

/// How often it is looked whether known files have other numbers, while jobs are here.
const LOOK_NS: u64 = 1_000_000_000;

/// How often it is looked whether files have come, while any are awaited.
const INTERVAL_NS: u64 = 100_000_000;

/// The jobs to which devices are still to be closed.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    jobs: BTreeSet<JobId>,
    /// When to look again; `None`: nothing is awaited.
    due_ns: Option<u64>,
    /// The device files that jobs have alone.
    own: BTreeMap<JobId, Vec<String>>,
    /// When to look for other numbers; `None`: no job was told of devices.
    looks_ns: Option<u64>,
}

impl Awaited {
    /// When to look whether files have come.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns.into_iter().chain(self.looks_ns).min()
    }

    /// A job begins, to which the devices of others are closed as far as their files are there.
    pub(crate) fn begin(&mut self, job: JobId, group: Option<&Cgroup>, share: &Share) {
        let closed = &share.closed;
        let own: Vec<String> = share.devices.iter().flat_map(|it| &it.files).cloned().collect();
        if !closed.is_empty() || !own.is_empty() {
            self.looks_ns.get_or_insert(monotonic_ns() + LOOK_NS);
        }
        if !share.in_turns && !own.is_empty() {
            self.own.insert(job, own);
        }
        let Some(group) = group.filter(|_| !closed.is_empty()) else { return };
        let missing = never_seen(closed);
        if missing.is_empty() {
            return;
        }
        if !group.note_missing_devices(&missing) {
            let files = missing.join(", ");
            let what = "will be open to it if they come: they can't be noted";
            warn!(code = %Code::GoesWithout, "job {job}: {files} {what}");
        }
        self.adopt(job, Some(group));
    }

    /// Goes on with a job of an earlier agent.
    pub(crate) fn adopt(&mut self, job: JobId, group: Option<&Cgroup>) {
        if group.is_some_and(|group| !group.missing_devices().is_empty()) {
            self.jobs.insert(job);
            self.due_ns.get_or_insert(monotonic_ns() + INTERVAL_NS);
        }
    }
}

impl Agent {
    /// Looks whether awaited files have come, if it is time for that.
    pub(crate) fn look_for_devices(&mut self, now_ns: u64) {
        if self.groups.awaited.due_ns().is_some_and(|due| due <= now_ns) {
            self.close_devices_that_came();
        }
    }

    /// Closes devices that have other numbers by now.
    fn close_those_with_other_numbers(&mut self) {
        let awaited = &mut self.groups.awaited;
        if awaited.looks_ns.is_none() {
            return;
        }
        let jobs = &self.jobs;
        awaited.own.retain(|id, _| jobs.contains_key(id));
        awaited.looks_ns = (!jobs.is_empty()).then(|| monotonic_ns() + LOOK_NS);
        let changed = renumbered();
        if changed.is_empty() {
            return;
        }
        for (id, job) in jobs {
            let own = awaited.own.get(id);
            let is_own = |file: &String| own.is_some_and(|own| own.contains(file));
            let others = changed.iter().filter(|(file, _)| !is_own(file));
            let closed: Vec<(u32, u32)> = others.map(|(_, &numbers)| numbers).collect();
            let group = job.group.as_ref().filter(|_| !job.tasks.are_cleared());
            if let Some(group) = group.filter(|_| !closed.is_empty())
                && let Err(error) = group.close_devices(&closed)
            {
                let what = "can open devices that have other numbers by now";
                warn!(code = %Code::GoesWithout, "job {id} {what}: {error}");
            }
        }
    }

    /// Closes devices that have come to the jobs that must not open them.
    pub(crate) fn close_devices_that_came(&mut self) {
        self.close_those_with_other_numbers();
        let jobs = &self.jobs;
        self.groups.awaited.jobs.retain(|id| {
            let job = jobs.get(id).filter(|job| !job.tasks.are_cleared());
            let Some(group) = job.and_then(|job| job.group.as_ref()) else { return false };
            close_those_that_came(*id, group)
        });
        let awaited = &mut self.groups.awaited;
        awaited.due_ns = (!awaited.jobs.is_empty()).then(|| monotonic_ns() + INTERVAL_NS);
    }
}

/// Whether there are some that have not come.
fn close_those_that_came(job: JobId, group: &Cgroup) -> bool {
    let missing = group.missing_devices();
    let (came, missing): (Vec<String>, Vec<String>) =
        missing.into_iter().partition(|file| look_up(file).is_some());
    if came.is_empty() {
        return !missing.is_empty();
    }
    if let Err(error) = group.close_devices(&numbers(came.iter().map(String::as_str))) {
        let files = came.join(", ");
        warn!(code = %Code::GoesWithout, "job {job} can open {files}, which came after it: {error}");
    }
    let _ = group.note_missing_devices(&missing);
    !missing.is_empty()
}
