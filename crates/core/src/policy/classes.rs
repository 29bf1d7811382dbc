//! The policy `classes`: the gang scheduler of LLNL's Cray T3D.
//!
//! Jobs share the machine in space; a job that waits too long preempts others ([`crate::aside`]) by
//! the rules of the classes ([`tutti_types::class::RULES`]). How it decides is in `by_class`.

use super::{GANG, Policy, Preemption, SPACE};

/// The policy `classes`.
pub const CLASSES: Policy = Policy {
    name: "classes",
    admission: GANG.admission,
    placement: GANG.placement,
    shares: SPACE.shares,
    preemption: Preemption::ByClass,
};
