//! The policies `gang` and `space`: space first, then time.
//!
//! A job starts beside others while processors are free: in the first row in which it fits, in the
//! order of the parameter `packing`. Otherwise it gets a new row, so that it and the others take
//! turns, up to the multiprogramming limit. Otherwise it waits. No job is preempted for good: a job
//! that is not in its turn is frozen in place.
//!
//! A class may keep rows beyond that limit ([`crate::reserved_rows`]); they don't count here.
//!
//! `space` is the same with a single row: jobs run to their ends, and there is no turn to take.
//!
//! Where the limit was lowered, rows beyond it take no job in and vanish as their jobs end.

use super::{
    Decision, Lack, Lay, Machine, Policy, Preemption, Shares, WaitReason, admission, placement,
};
use crate::share;
use tutti_types::job::JobSpec;
use tutti_types::params::Params;

/// The policy `gang`.
pub const GANG: Policy = Policy {
    name: "gang",
    admission: admission::if_it_can_ever_fit,
    placement: placement::lay,
    shares: Shares { rows: Params::rows, layout: share::layout, shortest: share::shortest },
    preemption: Preemption::Nobodys(space_then_time),
    has_levels: false,
};

/// The policy `space`.
pub const SPACE: Policy =
    Policy { name: "space", shares: Shares { rows: |_| 1, ..GANG.shares }, ..GANG };

/// The policy `external`: `gang` while the site's program does not answer ([`crate::outside`]).
pub const EXTERNAL: Policy = Policy { name: "external", ..GANG };

fn space_then_time(machine: Machine<'_>, spec: &JobSpec, lay: Lay) -> Decision {
    for row in machine.rows_for(spec) {
        if let Ok(parts) = lay(machine, spec, Some(row)) {
            return Decision::Start { row: Some(row), parts };
        }
    }
    let limit = machine.rows;
    let full = machine.matrix.ordinary().count() >= limit as usize;
    if full && machine.counts_suffice(spec) && placement::fits_blank(machine, spec) {
        return Decision::Wait(machine.lack_of_room(spec));
    }
    // Whether it would fit a new row tells what it waits for.
    match lay(machine, spec, None) {
        Ok(parts) => {
            if !full {
                return Decision::Start { row: None, parts };
            }
            Decision::Wait(machine.lack_of_room(spec))
        }
        Err(Lack::Memory) => Decision::Wait(machine.lack_beside(spec)),
        Err(Lack::Nodes) => Decision::Wait(WaitReason::Nodes),
    }
}
