//! Expected load: how long processors will be used by the jobs that have them.
//!
//! Placement takes the least loaded processors, by how many rows use each. Among equals it prefers
//!
//! 1. those that fewest jobs of other classes have, so that classes share in time only where space
//!    does not suffice for them;
//! 2. then those with jobs that have the least time left: the sum of what is left of time limits
//!    ([`UNLIMITED`] for a job without one), in turns of the job, so its share of the time is in
//!    it.
//!
//! With `order=arrival`, and where no other row has anything, the first ones are taken, as before
//! there was an order of users.

use crate::matrix::Column;
use crate::policy::Machine;
use alloc::vec;
use alloc::vec::Vec;
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use tutti_types::params::LineOrder;
use tutti_types::time::Nanos;

/// How long a job without a time limit is taken to last.
const UNLIMITED: Nanos = Nanos::from_secs(24 * 3600);

/// The most nodes that are compared.
pub(super) const NODES_MAX: usize = 4;

/// What is expected of processors: the jobs of other classes, and the time that jobs have left.
pub(super) type Expected = (u64, u64);

impl Machine<'_> {
    /// Whether expected load decides among equals, for a row (`None`: a new one): others load it.
    pub(super) fn weighs_expected_load(self, row: Option<RowId>) -> bool {
        let others = self.matrix.row_count() > usize::from(row.is_some());
        others && self.params.order() == LineOrder::Users
    }

    /// Sorts processors of a node, of which so many are to be taken, by load, expected load and
    /// number; they are sorted by load and number.
    pub(super) fn sort_by_expected_load(
        self,
        (node, column): (NodeId, &Column),
        class: &ClassName,
        count: usize,
        processors: &mut [(usize, u32)],
    ) {
        let last = count.checked_sub(1).and_then(|last| processors.get(last));
        let (Some(&(load, _)), Some(&next)) = (last, processors.get(count)) else { return };
        if load == 0 || next.0 != load {
            return;
        }
        let begin = processors.partition_point(|it| it.0 < load);
        let end = processors.partition_point(|it| it.0 <= load);
        let equal = &mut processors[begin..end];
        let set: ProcessorSet = equal.iter().map(|&(_, processor)| processor).collect();
        let expected = self.expected_loads((node, column), class, &set);
        equal.sort_by_key(|&(_, processor)| expected.get(processor as usize).copied());
    }

    /// What is expected of all of these processors together.
    pub(super) fn expected_load(
        self,
        node: NodeId,
        class: &ClassName,
        set: &ProcessorSet,
    ) -> Expected {
        let Some(column) = self.matrix.column(node) else { return (0, 0) };
        let all = self.expected_loads((node, column), class, set);
        all.into_iter().fold((0, 0), |sum: Expected, it| {
            (sum.0.saturating_add(it.0), sum.1.saturating_add(it.1))
        })
    }

    /// What is expected of each of these processors, by number.
    fn expected_loads(
        self,
        (node, column): (NodeId, &Column),
        class: &ClassName,
        set: &ProcessorSet,
    ) -> Vec<Expected> {
        let size = set.iter().last().map_or(0, |it| it as usize + 1);
        let mut expected = vec![(0, 0); size];
        let mut service = self.ledger.services(self.now);
        for &(_, job) in &column.residents {
            let Some(seat) = self.matrix.seat(job) else { continue };
            let Some(own) = seat.on(node).filter(|own| own.overlaps(set)) else { continue };
            let (others, left) =
                (u64::from(seat.class != *class), self.time_left(job, &mut service).0);
            for processor in own.iter().filter(|&it| set.contains(it)) {
                let sum: &mut Expected = &mut expected[processor as usize];
                *sum = (sum.0 + others, sum.1.saturating_add(left));
            }
        }
        expected
    }

    /// How long a job will have its processors in its turns, as far as is known.
    fn time_left(self, job: JobId, mut service: impl FnMut(JobId) -> Nanos) -> Nanos {
        let limit = self.jobs.get(&job).and_then(|record| record.spec.time_limit);
        limit.map_or(UNLIMITED, |limit| Nanos(limit.0.saturating_sub(service(job).0)))
    }
}
