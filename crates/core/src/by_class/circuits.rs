//! Circuits: things of which there are several alike, and of which a job needs one besides its
//! processors (LLNL paper: barrier wire circuits).
//!
//! A job that asks for one in particular gets that one or waits. Otherwise they are given round
//! robin: the next one after the last that was given, if there is room on it.

use crate::controller::Core;
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{CircuitName, JobId};
use tutti_types::job::{CircuitSpec, CircuitWish};
use tutti_types::limits::CIRCUITS_MAX;
use tutti_types::refusal::Refusal;

/// All kinds of circuits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Circuits {
    kinds: BTreeMap<CircuitName, Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Kind {
    spec: CircuitSpec,
    /// Where the search for one begins.
    next: u32,
}

impl Circuits {
    /// How many there are from now on. A job with one that is no more keeps it.
    pub(crate) fn set(&mut self, name: &CircuitName, spec: CircuitSpec) {
        if spec.count == 0 {
            self.kinds.remove(name);
        } else if spec.count <= CIRCUITS_MAX {
            self.kinds.insert(name.clone(), Kind { spec, next: 0 });
        }
    }

    /// Whether a wish can ever be fulfilled.
    pub(crate) fn admit(&self, wish: Option<&CircuitWish>) -> Result<(), Refusal> {
        let Some(CircuitWish { name, number }) = wish else { return Ok(()) };
        let count = self.kinds.get(name).map_or(0, |kind| kind.spec.count);
        if count == 0 || number.is_some_and(|number| number >= count) {
            return Err(Refusal::NoCircuit { name: name.clone(), count });
        }
        Ok(())
    }
}

impl Core {
    /// The circuit that a job gets now, if there is one; the next job gets the one after it.
    pub(super) fn choose_circuit(&mut self, wish: &CircuitWish) -> Option<u32> {
        let chosen = self.choose_circuit_without(wish, &[])?;
        if wish.number.is_none()
            && let Some(kind) = self.circuits.kinds.get_mut(&wish.name)
        {
            kind.next = chosen + 1;
        }
        Some(chosen)
    }

    /// The circuit that a job would get if some jobs were gone.
    pub(super) fn choose_circuit_without(&self, wish: &CircuitWish, gone: &[JobId]) -> Option<u32> {
        let Kind { spec, next } = *self.circuits.kinds.get(&wish.name)?;
        let has_room =
            |number: &u32| self.users_of(&wish.name, *number, gone) < u64::from(spec.jobs_each);
        match wish.number {
            Some(number) => Some(number).filter(|&number| number < spec.count).filter(has_room),
            None => {
                (next.min(spec.count)..spec.count).chain(0..next.min(spec.count)).find(has_room)
            }
        }
    }

    fn users_of(&self, name: &CircuitName, number: u32, gone: &[JobId]) -> u64 {
        let has = |job: &JobId| {
            let Some(record) = self.jobs.get(job) else { return false };
            let asked = record.spec.circuit.as_ref().is_some_and(|wish| wish.name == *name);
            asked && record.residence().is_some_and(|residence| residence.circuit == Some(number))
        };
        let jobs = self.matrix.seats().map(|(job, _)| job).filter(|job| !gone.contains(job));
        jobs.filter(has).count() as u64
    }
}
