//! Which launches of jobs there were in a simulated world, as far as keepers have held them: there
//! is another one of a job only when something of the one before may have been lost.

use std::collections::{BTreeMap, BTreeSet};
use tutti_types::{JobId, LaunchId};

/// A launch is held by the first keeper no later than this after it was decided on: what was lost
/// meanwhile counts.
const UNDER_WAY_NS: u64 = 60_000_000_000;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// The latest of each job, and when a keeper first held it.
    latest: BTreeMap<JobId, (u32, u64)>,
    /// When something was lost last: a node, what a keeper held, what was not on disk.
    lost_ns: Option<u64>,
    /// Nodes that are lost.
    down: BTreeSet<usize>,
}

impl Launches {
    /// When something was lost last.
    pub(super) const fn lost_ns(&self) -> Option<u64> {
        self.lost_ns
    }

    /// A keeper holds this; whether there is no reason for it. `lost_ns` is when the controller has
    /// heard of what was lost last.
    pub(super) fn is_unfounded(
        &mut self,
        launch: LaunchId,
        now_ns: u64,
        lost_ns: Option<u64>,
    ) -> bool {
        let (number, since_ns) = *self.latest.entry(launch.job).or_insert((launch.number, now_ns));
        if number >= launch.number {
            return false;
        }
        self.latest.insert(launch.job, (launch.number, now_ns));
        lost_ns.is_none_or(|lost_ns| lost_ns + UNDER_WAY_NS < since_ns)
    }

    /// Whether no keeper has held a later one of its job.
    pub(super) fn is_latest(&self, launch: LaunchId) -> bool {
        self.latest.get(&launch.job).is_some_and(|(number, _)| *number == launch.number)
    }

    /// Something was lost.
    pub(super) fn lose(&mut self, now_ns: u64) {
        self.lost_ns = Some(now_ns);
    }

    /// The nodes that count as lost now.
    pub(super) fn note_down(&mut self, down: BTreeSet<usize>, now_ns: u64) {
        if !down.is_subset(&self.down) {
            self.lose(now_ns);
        }
        self.down = down;
    }
}
