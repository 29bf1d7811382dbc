//! One job at a time, with the machine to itself.

use super::{Decision, GANG, Lay, Machine, Policy, Preemption, SPACE, WaitReason};
use tutti_types::job::JobSpec;

/// The policy `alone`.
pub const ALONE: Policy = Policy {
    name: "alone",
    admission: GANG.admission,
    placement: GANG.placement,
    shares: SPACE.shares,
    preemption: Preemption::Nobodys(if_empty),
    has_levels: false,
};

/// Starts the job that is next in line where `lay` puts it, once no other job has processors.
fn if_empty(machine: Machine<'_>, spec: &JobSpec, lay: Lay) -> Decision {
    match lay(machine, spec, None) {
        Ok(parts) if machine.matrix.row_count() == 0 => Decision::Start { row: None, parts },
        _ => Decision::Wait(WaitReason::Rows { limit: 1 }),
    }
}
