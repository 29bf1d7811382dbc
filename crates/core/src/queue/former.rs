//! The queue as form 4 of the journal has it.

use super::{Promise, Queue, Reservation, Waiting};
use crate::line::Line;
use crate::policy::WaitReason;
use crate::state::ordered::Ordered;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::Deserialize;
use tutti_types::ids::JobId;
use tutti_types::params::Discipline;

/// All that [`Queue`] had then, in its order.
#[derive(Debug, Deserialize)]
pub(crate) struct FormerQueue {
    waiting: BTreeSet<JobId>,
    parked: BTreeSet<JobId>,
    suspended: BTreeSet<JobId>,
    blocked: Option<WaitReason>,
    backlog: Vec<FormerWaiting>,
    promise: Option<Promise>,
    reservations: BTreeMap<JobId, Reservation>,
    discipline: Discipline,
    newcomer: Option<JobId>,
    stale: bool,
    disturbed: bool,
}

/// A job in line.
#[derive(Debug, Deserialize)]
struct FormerWaiting {
    key: u64,
    job: JobId,
    processors: u64,
    holds: u64,
}

impl From<FormerQueue> for Queue {
    fn from(former: FormerQueue) -> Self {
        let mut backlog = Ordered::default();
        for FormerWaiting { key, job, processors, holds } in former.backlog {
            let (anchor, index) = (job, u32::MAX);
            backlog.insert(Waiting { key, anchor, index, job, processors, holds });
        }
        Self {
            tried: former.waiting.first().copied(),
            line: Line::default(),
            waiting: former.waiting,
            parked: former.parked,
            suspended: former.suspended,
            blocked: former.blocked,
            backlog,
            promise: former.promise,
            reservations: former.reservations,
            discipline: former.discipline,
            newcomer: former.newcomer,
            stale: former.stale,
            disturbed: former.disturbed,
            touched: Vec::new(),
        }
    }
}
