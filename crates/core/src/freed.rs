//! Processors that ranks leave when they end before the others of their job.
//!
//! A processor is *freed* when all tasks that run on it have ended while another task of the job
//! goes on. It is used at once, in one of two ways:
//!
//! - *Given up*: it is the job's no more. A job in line starts there, in the same row, and jobs of
//!   other rows are at home or guests there. So it is where the job starts no further tasks.
//! - *Lent*: it stays the job's, and jobs of other rows run there as guests in the slots of the
//!   row. The job gets it back with the next timetable ([`crate::matrix::Matrix::take_back`]). So
//!   it is under the policy `deadline`, which promises processors by name, and where rows are
//!   packed by how full they are (`best-fit`, `buddy`), since each change of that has all jobs
//!   looked at.
//!
//! Which tasks run on which processors is what [`Part::placements`] says. Tasks that move over all
//! processors of their part free none before the last of them has ended. A job that wants its nodes
//! to itself frees a node's processors when all of its tasks there have ended. So do all jobs under
//! `placement=low-load`, which never has two jobs run on a node. Memory stays promised until the
//! job ends: shared memory may outlast the rank that made it.
//!
//! *No promise gets worse.* Fewer processors of a row are taken, and none is taken for longer: what
//! is foretold of the row comes sooner or at the same time.
//!
//! *Cost.* An event that frees nothing costs one look at the tasks that share the processor. One
//! that frees some changes one node of the matrix, and that node gets a timetable. If jobs wait, the first in line is tried again, as after the end of a job.

use crate::controller::Core;
use crate::state::record::{Binding, Course, Part, Record, Residence};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, Rank};
use tutti_types::job::TaskStatus;
use tutti_types::placing::{Packing, Placement};

impl Part {
    /// The processors that none of its tasks runs on any more, now that this one has ended too.
    /// `all`: those that the part had at first.
    pub(crate) fn freed_by(
        &self,
        rank: Rank,
        all: &ProcessorSet,
        ended: &BTreeMap<Rank, TaskStatus>,
    ) -> ProcessorSet {
        let index = rank.0.saturating_sub(self.first);
        match self.binding {
            Binding::Own(each) => {
                let before = u64::from(index) * u64::from(each);
                let before = usize::try_from(before).unwrap_or(usize::MAX);
                all.iter().skip(before).take(each as usize).collect()
            }
            // Its processors are kept for what is started there later.
            Binding::Held(_) => ProcessorSet::new(),
            Binding::Shared => {
                let count = all.count();
                if count == 0 || !self.tasks.is_multiple_of(count) {
                    return ProcessorSet::new();
                }
                let place = index % count;
                let mut sharers = (place..self.tasks).step_by(count as usize);
                let is_over = sharers.all(|index| ended.contains_key(&Rank(self.first + index)));
                all.iter().skip(place as usize).take(usize::from(is_over)).collect()
            }
        }
    }
}

impl Residence {
    /// The part that a rank belongs to.
    fn part_of(&self, rank: Rank) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.first <= rank.0);
        self.parts.get(after.checked_sub(1)?).filter(|part| part.has(rank))
    }

    /// Whether what its ended ranks leave may be used by others: not if all of it will soon be
    /// free.
    fn frees(&self) -> bool {
        self.present() && !matches!(self.course, Course::Killed { .. })
    }
}

impl Core {
    /// Frees what these ranks have left, which may be of several nodes.
    pub(crate) fn free_after(&mut self, job: JobId, ranks: &[Rank]) {
        let Some(residence) = self.residence(job).filter(|it| it.frees()) else { return };
        let keeps = self.keeps_nodes_whole(job);
        let mut freed: BTreeMap<NodeId, ProcessorSet> = BTreeMap::new();
        for &rank in ranks {
            let Some(part) = residence.part_of(rank).filter(|part| !part.lost) else { continue };
            if part.left > 0 && !keeps {
                let set = part.freed_by(rank, &self.first_processors(job, part), &residence.ended);
                freed.entry(part.node).or_default().union_with(&set);
            }
        }
        for (node, set) in freed {
            self.free(job, node, &set);
        }
    }

    /// Frees all that a job has on a node where all of its tasks have ended.
    pub(crate) fn free_part(&mut self, job: JobId, node: NodeId) {
        let Some(residence) = self.residence(job).filter(|it| it.frees()) else { return };
        let part = residence.part(node).filter(|part| !part.is_present() && !part.lost);
        if let Some(set) = part.map(|part| part.processors.clone()) {
            self.free(job, node, &set);
        }
    }

    /// A job has a home again: what its ended ranks left of it is still free for others.
    pub(crate) fn lend_again(&mut self, job: JobId) {
        let Some(residence) = self.residence(job).filter(|it| !it.ended.is_empty()) else { return };
        let parts = residence.parts.iter();
        let parts = parts.filter(|part| part.left < part.tasks && !part.lost && !part.is_held());
        let idle: Vec<_> = parts.map(|part| (part.node, self.idle_of(job, part))).collect();
        for (node, set) in idle {
            self.matrix.lend(job, node, &set);
        }
    }

    /// Settings are others: frees what ended ranks have left and could not be used by the former
    /// ones.
    pub(crate) fn free_anew(&mut self) {
        let idle = |(job, record): (JobId, &Record)| {
            let parts = record.residence().filter(|it| !it.ended.is_empty());
            let parts = parts.into_iter().flat_map(|it| &it.parts);
            let parts = parts.filter(|part| !part.lost && !part.is_held());
            parts.map(|part| (job, part.node, self.idle_of(job, part))).collect::<Vec<_>>()
        };
        let idle: Vec<_> = self.jobs.iter().flat_map(idle).collect();
        for (job, node, set) in idle {
            self.free(job, node, &set);
        }
    }

    /// The processors of a part that none of its tasks runs on any more.
    pub(crate) fn idle_of(&self, job: JobId, part: &Part) -> ProcessorSet {
        let Some(residence) = self.residence(job).filter(|it| it.frees()) else {
            return ProcessorSet::new();
        };
        if part.left == 0 && !part.is_held() {
            return part.processors.clone();
        }
        if part.is_held() || self.keeps_nodes_whole(job) {
            return ProcessorSet::new();
        }
        let all = self.first_processors(job, part);
        let ranks = Rank(part.first)..Rank(part.first.saturating_add(part.tasks));
        let mut idle = ProcessorSet::new();
        for (&rank, _) in residence.ended.range(ranks) {
            idle.union_with(&part.freed_by(rank, &all, &residence.ended));
        }
        let given = all.without(&part.processors);
        idle.without(&given)
    }

    /// The processors that a part had before it gave any up.
    fn first_processors(&self, job: JobId, part: &Part) -> ProcessorSet {
        let mut all = part.processors.clone();
        if let Some(given) = self.given_up.get(&(job, part.node)) {
            all.union_with(given);
        }
        all
    }

    /// Whether a job frees all that it has on a node or nothing.
    fn keeps_nodes_whole(&self, job: JobId) -> bool {
        self.params.placement() == Placement::LowLoad
            || self.jobs.get(&job).is_some_and(|record| record.spec.nodes.exclusive)
    }

    /// Whether jobs keep what their ended ranks leave, and lend it.
    fn lends(&self) -> bool {
        let several = self.matrix.row_count() > 1;
        self.policy().plans() || (several && self.params.packing() != Packing::FirstFit)
    }

    fn free(&mut self, job: JobId, node: NodeId, set: &ProcessorSet) {
        if set.is_empty() {
            return;
        }
        if self.lends() {
            return self.matrix.lend(job, node, set);
        }
        let service = self.ledger.service(job, self.now);
        let Some(residence) = self.residence_mut(job) else { return };
        let Some(part) = residence.part_mut(node) else { return };
        part.processors.subtract(set);
        self.given_up.entry((job, node)).or_default().union_with(set);
        if let Some(left) = self.matrix.give_up(job, node, set) {
            self.ledger.keep_only(job, left);
        }
        self.count_given_up(job, u64::from(set.count()), service);
        if !self.queue.waiting.is_empty() {
            self.queue.reconsider();
            self.quick.look_again();
        }
    }

    /// How many processors a job has given up.
    pub(crate) fn count_of_given_up(&self, job: JobId) -> u64 {
        let of_job = (job, NodeId(0))..=(job, NodeId(u32::MAX));
        self.given_up.range(of_job).map(|(_, set)| u64::from(set.count())).sum()
    }

    /// Nothing is left of a job that has ended.
    pub(crate) fn forget_given_up(&mut self, job: JobId, residence: &Residence) {
        // Most jobs have none.
        if !self.given_up.is_empty() {
            for part in &residence.parts {
                self.given_up.remove(&(job, part.node));
            }
        }
    }
}
