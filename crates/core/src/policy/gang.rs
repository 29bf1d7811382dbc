//! The default policy: space first, then time.
//!
//! A job starts beside others while processors are free: in the first row, in row order, in which
//! it fits. Otherwise it gets a new row, so that it and the others take turns, up to the
//! multiprogramming limit. Otherwise it waits, first come first served. Nobody is moved aside for
//! good: whoever is not in his turn is frozen in place.

use super::{Decision, Lack, Lay, Machine, Policy, WaitReason, admission, placement};
use crate::job::JobSpec;
use crate::share;

/// The policy `gang`.
pub const GANG: Policy = Policy {
    name: "gang",
    admission: admission::if_it_can_ever_fit,
    placement: placement::packed,
    shares: share::lengths,
    preemption: space_then_time,
};

fn space_then_time(machine: Machine<'_>, spec: &JobSpec, lay: Lay) -> Decision {
    for (row, _) in machine.matrix.rows() {
        if let Ok(parts) = lay(machine, spec, Some(row)) {
            return Decision::Start { row: Some(row), parts };
        }
    }
    match lay(machine, spec, None) {
        Ok(parts) => {
            let limit = machine.params.rows();
            if machine.matrix.row_count() < limit as usize {
                return Decision::Start { row: None, parts };
            }
            Decision::Wait(WaitReason::Rows { limit })
        }
        Err(Lack::Memory) => Decision::Wait(WaitReason::Memory),
        Err(Lack::Nodes) => Decision::Wait(WaitReason::Nodes),
    }
}
