//! The queue: who waits, and who is seated next.

use crate::controller::Core;
use crate::ending::memory_of;
use crate::ids::{JobId, RowId};
use crate::policy::{Decision, WaitReason};
use crate::record::{Part, Phase, Residence};
use crate::time::ClusterTime;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The jobs that wait, each in one of three places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    /// First come, first served.
    pub(crate) waiting: BTreeSet<JobId>,
    /// Too large for the nodes that are up; back in line when a node joins.
    pub(crate) parked: BTreeSet<JobId>,
    /// Suspended by a user; back in line when resumed.
    pub(crate) suspended: BTreeSet<JobId>,
    /// Why the first one waits; `None` means that it should be tried.
    pub(crate) blocked: Option<WaitReason>,
}

impl Queue {
    pub(crate) fn remove(&mut self, job: JobId) {
        self.waiting.remove(&job);
        self.parked.remove(&job);
        self.suspended.remove(&job);
        self.blocked = None;
    }
}

impl Core {
    /// Starts jobs from the queue, first come first served, as far as the policy has room.
    pub(crate) fn seat_queued(&mut self, now: ClusterTime) {
        while self.queue.blocked.is_none()
            && let Some(&job) = self.queue.waiting.first()
            && let Some(record) = self.jobs.get(&job)
        {
            let policy = self.policy;
            match (policy.preemption)(self.machine(), &record.spec, policy.placement) {
                Decision::Start { row, parts } => self.start(now, job, row, parts),
                // It must not block those who do fit until, perhaps, a node comes back.
                Decision::Wait(WaitReason::Nodes) => {
                    self.queue.remove(job);
                    self.queue.parked.insert(job);
                }
                Decision::Wait(reason) => self.queue.blocked = Some(reason),
            }
        }
    }

    fn start(&mut self, now: ClusterTime, job: JobId, row: Option<RowId>, parts: Vec<Part>) {
        self.queue.remove(job);
        let Some(record) = self.jobs.get_mut(&job) else { return };
        for part in &parts {
            self.nodes.admit(part.node, memory_of(part, &record.spec));
        }
        let places = parts.iter().map(|part| (part.node, part.processors.clone())).collect();
        self.matrix.place(job, &record.spec.class, row, places);
        self.ledger.open(job);
        if record.spec.time_limit.is_some() {
            self.limited.insert(job);
        }
        record.phase = Phase::Resident(Box::new(Residence::new(now, parts)));
        self.outbox.launches.push(job);
    }
}
