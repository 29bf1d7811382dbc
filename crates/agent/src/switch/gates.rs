//! Gates before devices that jobs have in turns: open while the job runs, closed otherwise.
//!
//! At a switch all gates of what leaves are closed when it has stopped, then those of what comes
//! are opened, before any of it runs. Each is a store to memory, or by v1 a write for each device.
//! Without such jobs nothing is done.

use super::State;
use std::collections::BTreeMap;
use tutti_linux::device_control::Gate;
use tutti_node::platform::time::monotonic_ns;
use tutti_types::JobId;

/// The gates of the jobs that are here.
#[derive(Debug, Default)]
pub(super) struct Gates {
    gates: BTreeMap<JobId, Gate>,
}

impl Gates {
    /// A job has its devices behind a gate.
    pub(super) fn add(&mut self, job: JobId, gate: Gate) {
        self.gates.insert(job, gate);
    }

    /// A job is gone.
    pub(super) fn remove(&mut self, job: JobId) {
        self.gates.remove(&job);
    }

    /// A job is in this state.
    pub(super) fn set(&self, job: JobId, state: State) {
        if let Some(gate) = self.gates.get(&job) {
            gate.set(state == State::Runs);
        }
    }

    /// Some jobs leave and some come. Gives how long it took, in nanoseconds; 0: none of them has a
    /// gate.
    pub(super) fn hand_over(&self, leave: &[(JobId, State)], come: &[(JobId, State)]) -> u64 {
        let has_gate = |(job, _): &(JobId, State)| self.gates.contains_key(job);
        if self.gates.is_empty() || !leave.iter().chain(come).any(has_gate) {
            return 0;
        }
        let began_ns = monotonic_ns();
        for &(job, state) in leave.iter().chain(come) {
            self.set(job, state);
        }
        monotonic_ns().saturating_sub(began_ns).max(1)
    }
}
