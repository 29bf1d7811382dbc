//! Memory that a class keeps: the rule `memory`, so much of each node.
//!
//! Jobs of other classes that ask for memory get none of it, so that a quick test finds memory
//! whatever is queued and running. A class's own jobs use what it keeps first: what they have on a
//! node already is taken off. Kept memory is never more than free: a rule that is set or raised
//! takes nothing from jobs that have it.
//!
//! A job that was admitted before the rule may be too large for what is left now. It comes back
//! from swap space all the same, since it would else stay out for good; in line it waits, and the
//! reason says for what.

use crate::apply::Core;
use crate::matrix::Matrix;
use crate::policy::{Lack, Machine, WaitReason};
use crate::state::record::Record;
use crate::state::table::Table;
use crate::swap::Swaps;
use crate::termination::memory_of;
use alloc::collections::BTreeSet;
use tutti_types::class::Classes;
use tutti_types::ids::{ClassName, JobId, NodeId};
use tutti_types::job::JobSpec;
use tutti_types::param::NodePart;

/// What jobs have of memory: what a class keeps is looked at against that.
#[derive(Clone, Copy, Debug)]
pub struct Admitted<'a> {
    pub(crate) jobs: &'a Table<Record>,
    /// Resident jobs that are not in the matrix.
    pub(crate) aside: &'a BTreeSet<JobId>,
    pub(crate) swaps: &'a Swaps,
}

impl Admitted<'_> {
    /// Memory of a node, in bytes, that jobs of a class have.
    fn of_class(self, matrix: &Matrix, node: NodeId, class: &ClassName) -> u64 {
        let homes = matrix.column(node).into_iter().flat_map(|column| &column.residents);
        let jobs = homes.map(|&(_, job)| job).chain(self.aside.iter().copied());
        let has = |job| {
            let record = self.jobs.get(&job).filter(|record| record.spec.class == *class)?;
            let part = record.residence()?.part(node).filter(|part| !part.lost)?;
            Some(self.swaps.counted_bytes(job, part, &record.spec))
        };
        jobs.filter_map(has).fold(0, u64::saturating_add)
    }
}

/// The classes other than this one that keep memory, and how much.
fn keepers<'a>(
    classes: &'a Classes,
    class: &'a ClassName,
) -> impl Iterator<Item = (&'a ClassName, NodePart)> {
    let others = classes.iter().filter(move |(other, _)| *other != class);
    others.map(|(other, spec)| (other, spec.memory())).filter(|(_, kept)| kept.value() > 0)
}

impl Machine<'_> {
    /// The same where no class keeps memory.
    pub(crate) const fn with_kept_memory(self) -> Self {
        Self { admitted: None, ..self }
    }

    /// Memory of a node, in bytes, that may be allocated to a job of a class.
    pub(crate) fn free_bytes(self, node: NodeId, class: &ClassName) -> u64 {
        let free = self.nodes.free_bytes(node);
        let Some(admitted) = self.admitted.filter(|_| free > 0) else { return free };
        let has = self.nodes.get(node).map_or(0, |node| node.spec.memory_bytes);
        let kept = keepers(self.classes, class).map(|(other, kept)| {
            kept.bytes(has).saturating_sub(admitted.of_class(self.matrix, node, other))
        });
        free.saturating_sub(kept.fold(0, u64::saturating_add))
    }

    /// The same with nothing else on the node.
    pub(crate) fn bytes_if_alone(self, node: NodeId, class: &ClassName) -> u64 {
        let has = self.nodes.get(node).map_or(0, |node| node.spec.memory_bytes);
        let Some(_) = self.admitted else { return has };
        let kept = keepers(self.classes, class).map(|(_, kept)| kept.bytes(has));
        has.saturating_sub(kept.fold(0, u64::saturating_add))
    }
}

impl Core {
    /// Memory of a node, in bytes, that a job may have back which was swapped out.
    pub(crate) fn bytes_to_come_back(&self, job: JobId, node: NodeId) -> u64 {
        self.bytes_of(self.machine(), job, node)
    }

    /// The same on a machine that may be.
    pub(crate) fn bytes_of(&self, machine: Machine<'_>, job: JobId, node: NodeId) -> u64 {
        let free = machine.nodes.free_bytes(node);
        let Some(record) = self.jobs.get(&job) else { return free };
        let part = record.residence().and_then(|it| it.part(node));
        let needs = part.map_or(0, |part| memory_of(part, &record.spec));
        let class = &record.spec.class;
        match needs > machine.bytes_if_alone(node, class) {
            true => free,
            false => machine.free_bytes(node, class),
        }
    }

    /// A reason to wait; where only memory that other classes keep is lacking, that.
    pub(crate) fn or_kept_memory(&self, job: JobId, why: WaitReason) -> WaitReason {
        if !matches!(why, WaitReason::Memory | WaitReason::Nodes) {
            return why;
        }
        let Some(record) = self.jobs.get(&job) else { return why };
        let asks = record.spec.memory_per_task_bytes.unwrap_or(0) > 0;
        if !asks || keepers(&self.classes, &record.spec.class).next().is_none() {
            return why;
        }
        let machine = self.machine();
        let lay = |machine| (self.policy().placement)(machine, &record.spec, None);
        let lacks =
            lay(machine).is_err_and(|lack| lack == Lack::Memory || why == WaitReason::Nodes);
        match lacks && lay(machine.with_kept_memory()).is_ok() {
            true => WaitReason::KeptMemory,
            false => why,
        }
    }

    /// The classes that keep memory from a job, and how much of each node.
    pub fn keep_memory_from<'a>(
        &'a self,
        spec: &'a JobSpec,
    ) -> impl Iterator<Item = (&'a ClassName, NodePart)> {
        keepers(&self.classes, &spec.class)
    }
}
