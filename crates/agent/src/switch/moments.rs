//! Cluster time as the switch thread goes through it: now, the wake-up, and the next look.

use crate::clock::{ClusterClock, STEP_BACK_NS};
use tutti_types::ClusterTime;

/// See the head of the file.
pub(super) struct Moments {
    clock: ClusterClock,
    /// The latest time that was looked at: a corrected clock may fall back behind a switch.
    latest: ClusterTime,
    /// When the thread woke up.
    woken: ClusterTime,
    /// When it must look again if nothing wakes it.
    next: ClusterTime,
}

impl Moments {
    pub(super) const fn new(clock: ClusterClock) -> Self {
        Self { clock, latest: ClusterTime(0), woken: ClusterTime(0), next: ClusterTime::NEVER }
    }

    /// Cluster time as the clock has it, which may fall back.
    pub(super) fn by_clock(&self) -> ClusterTime {
        self.clock.now()
    }

    /// Cluster time. It does not go back behind a switch when the clock is corrected a little;
    /// where it is another time altogether, it is.
    pub(super) fn now(&mut self) -> ClusterTime {
        let now = self.clock.now();
        if now > self.latest || now.0 + STEP_BACK_NS < self.latest.0 {
            self.latest = now;
        }
        self.latest
    }

    /// The time that was looked at last.
    pub(super) const fn latest(&self) -> ClusterTime {
        self.latest
    }

    /// The thread is awake.
    pub(super) fn wake(&mut self) {
        self.woken = self.clock.now();
    }

    /// The thread must look again then, if nothing wakes it.
    pub(super) const fn look_at(&mut self, next: ClusterTime) {
        self.next = next;
    }

    /// When the thread must look again.
    pub(super) const fn next(&self) -> ClusterTime {
        self.next
    }

    /// The same by the monotonic clock, in nanoseconds.
    pub(super) fn next_ns(&self) -> u64 {
        self.clock.own_ns(self.next)
    }

    /// When a switch that happens now was due. What changes before a slot ends is due when the
    /// thread heard of it; the rest when the slot ended, also where it was still busy with what it
    /// heard.
    pub(super) fn due(&self, now: ClusterTime) -> ClusterTime {
        let due = if now < self.next { self.woken } else { self.next };
        due.min(now)
    }
}
