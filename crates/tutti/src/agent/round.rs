//! The switch thread's way round the processors.
//!
//! What runs where the thread runs stands still longest at a switch: its processor has the thread's work
//! to do besides. A job is as slow as its slowest task, so that burden is not always the same task's.

use tutti_linux::affinity;

/// Switches between two steps: a step takes as long as a part of one.
const SWITCHES_PER_STEP: u32 = 16;

/// Where the calling thread is on its way.
pub(super) struct Round {
    processors: Vec<u32>,
    at: usize,
    switches: u32,
}

impl Round {
    pub(super) fn new() -> Self {
        Self { processors: affinity::own(), at: 0, switches: 0 }
    }

    /// A switch has been made.
    pub(super) fn count(&mut self) {
        self.switches += 1;
        if self.switches < SWITCHES_PER_STEP || self.processors.len() < 2 {
            return;
        }
        (self.switches, self.at) = (0, (self.at + 1) % self.processors.len());
        // One that has gone, or that was taken from us, is passed over.
        let _ = affinity::go_to(self.processors[self.at], &self.processors);
    }
}
