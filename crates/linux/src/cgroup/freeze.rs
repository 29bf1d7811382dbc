//! Freezing with a deadline.
//!
//! A freeze that is given up must be undone: it would complete later, behind the caller's back.

use super::Cgroup;
use super::priority_boost::{Haste, is_slow};
use crate::Error;
use crate::clock::Naps;
use crate::proc::{Sleepers, StuckProcess};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many stuck processes an error names; a group may hold thousands.
const STUCK_NAMED_MAX: usize = 16;

/// How often processors are given up before it is slept: a few processes have stopped by then, and
/// for many the sleep does no harm.
const YIELDS: u32 = 8;

/// Why a group did not freeze.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Some process did not stop in time. The freeze has been undone.
    #[error("{} did not freeze within {waited:?}{}", path.display(), named(stuck))]
    Timeout {
        /// The group.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
        /// The processes that still ran when the time was over, and where each hangs; the first 16.
        /// Empty if they stopped just then.
        stuck: Vec<StuckProcess>,
    },
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] Error),
}

fn named(stuck: &[StuckProcess]) -> String {
    if stuck.is_empty() {
        return String::new();
    }
    let names: Vec<String> = stuck.iter().map(ToString::to_string).collect();
    format!(": {} still running", names.join(", "))
}

impl Cgroup {
    /// Freezes all processes here and below and waits until they stand still; returns how long
    /// that took.
    ///
    /// # Errors
    /// [`FreezeError::Timeout`] after `deadline`, with the freeze undone and the culprits named.
    pub fn freeze(&self, deadline: Duration) -> Result<Duration, FreezeError> {
        let start = Instant::now();
        self.request_freeze()?;
        let mut naps = Naps::default();
        loop {
            if self.is_frozen()? {
                return Ok(start.elapsed());
            }
            let left = deadline.saturating_sub(start.elapsed());
            if left.is_zero() {
                let waited = start.elapsed();
                // Before the undoing, after which no process is stuck.
                let stuck = self.not_frozen();
                self.request_thaw()?;
                return Err(FreezeError::Timeout { path: self.path.clone(), waited, stuck });
            }
            naps.nap(left);
        }
    }

    /// The processes that keep this group from being frozen, at most 16; none if it is frozen.
    #[must_use]
    pub fn not_frozen(&self) -> Vec<StuckProcess> {
        // One that has just entered the freezer is not yet seen there.
        if self.is_frozen().unwrap_or(false) {
            return Vec::new();
        }
        let processes = self.processes().unwrap_or_default();
        let find = |sleepers| -> Vec<StuckProcess> {
            let stuck = |&pid: &i32| StuckProcess::if_not_frozen(pid, sleepers);
            processes.iter().filter_map(stuck).take(STUCK_NAMED_MAX).collect()
        };
        // Doubtful ones only where there is no other to name.
        let certain = find(Sleepers::AreFrozen);
        if certain.is_empty() { find(Sleepers::AreStuck) } else { certain }
    }
}

/// Freezes several groups at once: asks all first, then waits for all until `deadline`. Returns
/// the indices of those that are not frozen then, in ascending order. The freeze stays requested
/// there: the caller decides whether to undo it. A group that is gone counts as frozen, one that
/// cannot be asked does not.
///
/// `haste` is that of the stops before this one, of whichever groups: where others' processes keep
/// those that are to stop from their processors, they are hurried.
#[must_use]
pub fn freeze_all(groups: &[&Cgroup], haste: &mut Haste, deadline: Instant) -> Vec<usize> {
    let began = Instant::now();
    let asked: Vec<_> = groups.iter().map(|group| group.request_freeze()).collect();
    let mut refused = Vec::new();
    let mut pending = Vec::new();
    for (index, result) in asked.into_iter().enumerate() {
        match result {
            Ok(()) => pending.push(index),
            Err(error) if error.is_gone() => {}
            Err(_) => refused.push(index),
        }
    }
    let willing: Vec<&Cgroup> = pending.iter().map(|&index| groups[index]).collect();
    let mut look = || {
        pending.retain(|&index| match groups[index].is_frozen() {
            Ok(frozen) => !frozen,
            Err(error) => !error.is_gone(),
        });
        pending.is_empty()
    };
    let mut hurried = haste.begin(&willing);
    hurried.give_way(YIELDS, || look() || is_slow(began.elapsed()));
    let mut naps = Naps::default();
    loop {
        let all_frozen = look();
        let left = deadline.saturating_duration_since(Instant::now());
        if all_frozen || left.is_zero() {
            haste.end(&hurried, began.elapsed());
            pending.extend(refused);
            pending.sort_unstable();
            return pending;
        }
        if haste.go_on(&willing, &mut hurried, began.elapsed()) {
            hurried.give_way(YIELDS, &mut look);
        } else {
            naps.nap(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_who_is_stuck() {
        let stuck = vec![
            StuckProcess { pid: 7, comm: "cp".into(), wchan: Some("nfs_wait".into()) },
            StuckProcess { pid: 8, comm: "dd".into(), wchan: None },
        ];
        let path = PathBuf::from("/g");
        let error = FreezeError::Timeout { path, waited: Duration::from_millis(5), stuck };
        let expected = "/g did not freeze within 5ms: 7 (cp) in nfs_wait, 8 (dd) still running";
        assert_eq!(error.to_string(), expected);
    }
}
