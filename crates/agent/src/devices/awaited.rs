//! Devices without a file when a job began, so that it was not known what to close to it. They are
//! closed to it when their files come: before another job begins, and within
//! [`INTERVAL_NS`] in any case. The files are written down on the job's group, so an agent that
//! takes the job over goes on with that.

use super::{look_up, never_seen, numbers};
use crate::driver::Agent;
use std::collections::BTreeSet;
use tracing::warn;
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::JobId;
use tutti_wire::code::Code;

/// How often it is looked whether files have come, while any are awaited.
const INTERVAL_NS: u64 = 100_000_000;

/// The jobs to which devices are still to be closed.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    jobs: BTreeSet<JobId>,
    /// When to look again; `None`: nothing is awaited.
    due_ns: Option<u64>,
}

impl Awaited {
    /// When to look whether files have come.
    pub(crate) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// A job begins, to which the devices of these files are closed as far as they are there.
    pub(crate) fn begin(&mut self, job: JobId, group: Option<&Cgroup>, closed: &[String]) {
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
        if self.groups.awaited.due_ns.is_some_and(|due| due <= now_ns) {
            self.close_devices_that_came();
        }
    }

    /// Closes devices that have come to the jobs that must not open them.
    pub(crate) fn close_devices_that_came(&mut self) {
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
