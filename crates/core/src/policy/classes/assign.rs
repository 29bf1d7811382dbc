//! Assignments: which processors a job could have, and what each choice costs.
//!
//! A position is a processor; the assignment from a position on takes the first processors from
//! there, in the order of nodes and numbers, that are eligible and enough. With `packing=buddy`,
//! positions are those at which an aligned block begins that is eligible as a whole. A job that was
//! preempted and is not movable has just one assignment: its own processors.
//!
//! For a bumper, processors are eligible that are free, or have a job of the same priority or a
//! lower one whose class can be disturbed at all, and that no others than our jobs use. What an
//! assignment costs is the sum over the jobs that have any of its processors:
//!
//! ```text
//! processors of the job x (1 + its priority) x (one minute + what is left of its do-not-disturb
//! time)
//! ```
//!
//! so with all else equal it is cheaper to move few processors, low priorities, and jobs that have
//! had their time. The paper names these three and not how they are weighed. A job that is leaving
//! already costs nothing. Of several that cost the same, the one closest to node 0 counts.

use super::Contender;
use crate::apply::Core;
use crate::devices::Asker;
use crate::policy::{lay_on, shared, tasks_by_memory};
use crate::state::record::Place;
use crate::state::record::{Binding, Part, Residence};
use crate::termination::memory_of;
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet};
use tutti_types::job::JobSpec;
use tutti_types::limits::{BUMP_COST, POSITIONS_MAX};
use tutti_types::time::ClusterTime;

/// Processors by node, lowest first.
type Floor = Vec<(NodeId, ProcessorSet)>;

impl Core {
    /// What a job can have now: closest to node 0.
    pub(super) fn closest(&self, contender: &Contender) -> Option<Vec<Part>> {
        let row = self.first_row();
        let job = contender.job;
        if row
            .and_then(|row| self.matrix.row(row))
            .is_some_and(|it| it.all_free() < contender.processors)
            || !self.may_swap_in_of(job, |node| self.unreserved_bytes(job, node))
        {
            return None;
        }
        let free = self.floor(contender.job, |node| {
            let reserved = self.reserved(contender.job, node);
            self.matrix.free_on(row, node).without(&reserved)
        });
        let mut positions = self.positions(contender.job, &free);
        if !self.gets_block(contender.job) {
            // If the first is not followed by enough, none is.
            positions.truncate(1);
        }
        let none = |_| 0;
        positions.into_iter().find_map(|from| self.assignment(contender.job, (&free, &none), from))
    }

    /// The cheapest assignment for a bumper, if there is a possible one.
    pub(super) fn cheapest(&self, contender: &Contender) -> Option<Vec<Part>> {
        if self.first_row().is_some_and(|row| self.matrix.is_barred(contender.job, row)) {
            return None;
        }
        let floor = self.floor(contender.job, |node| self.eligible(node, contender.priority));
        let positions = self.positions(contender.job, &floor);
        let leaves = |node| self.may_leave(node, contender.priority);
        let assignments = positions
            .into_iter()
            .filter_map(|from| self.assignment(contender.job, (&floor, &leaves), from));
        let costs = assignments.filter_map(|parts| Some((self.cost(contender, &parts)?, parts)));
        costs.min_by_key(|&(cost, _)| cost).map(|(_, parts)| parts)
    }

    /// What an assignment costs; `None` if it is not possible.
    pub(super) fn cost(&self, contender: &Contender, parts: &[Part]) -> Option<u128> {
        for part in parts {
            let eligible = self.eligible(part.node, contender.priority);
            if !part.processors.is_subset(&eligible) || !self.may_be_on(contender.job, part.node) {
                return None;
            }
        }
        let holders = self.holders(parts);
        if self.lacks_without(&contender.with(parts), &holders).is_some()
            || !self.has_memory_without(contender.job, parts, &holders)
        {
            return None;
        }
        Some(holders.into_iter().map(|job| self.cost_of(job)).sum())
    }

    fn cost_of(&self, job: JobId) -> u128 {
        let place = self.residence(job).map(|residence| residence.place);
        if place == Some(Place::Leaving) {
            return 0;
        }
        let processors = self.matrix.seat(job).map_or(0, |seat| seat.processors);
        // A job that is only coming has all of its time before it.
        let left = match self.gone_by(job) {
            ClusterTime::NEVER => self.whole_time(job).0,
            until => until.since(self.now).0,
        };
        let weight = 1 + u128::from(self.priority_of(job));
        u128::from(processors) * weight * u128::from(BUMP_COST.0.saturating_add(left))
    }

    fn whole_time(&self, job: JobId) -> tutti_types::time::Nanos {
        let processors = self.matrix.seat(job).map_or(0, |seat| seat.processors);
        let class = self.jobs.get(&job).and_then(|it| self.classes.get(&it.spec.class));
        class.and_then(|class| class.do_not_disturb(processors)).unwrap_or_default()
    }

    fn priority_of(&self, job: JobId) -> u64 {
        let class = self.jobs.get(&job).and_then(|it| self.classes.get(&it.spec.class));
        class.map_or(0, |class| class.priority())
    }

    /// The processors of a node that a job of such a priority may have reserved.
    fn eligible(&self, node: NodeId, priority: u64) -> ProcessorSet {
        let row = self.first_row();
        let mut eligible = self.matrix.free_on(row, node);
        for &(home, job) in self.matrix.column(node).into_iter().flat_map(|it| &it.residents) {
            if Some(home) == row
                && self.may_bump(job, priority)
                && let Some(set) = self.matrix.seat(job).and_then(|seat| seat.on(node))
            {
                eligible.union_with(set);
            }
        }
        match self.foreign.get(&node) {
            Some(foreign) => eligible.without(foreign),
            None => eligible,
        }
    }

    fn may_bump(&self, job: JobId, priority: u64) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let leaves = record.residence().is_some_and(|it| it.place == Place::Leaving || it.ending());
        let class = self.classes.get(&record.spec.class).copied().unwrap_or_default();
        leaves || (class.priority() <= priority && class.do_not_disturb(1).is_some())
    }

    /// Processors that are kept for another job, or that others use.
    fn reserved(&self, job: JobId, node: NodeId) -> ProcessorSet {
        let mut reserved = self.foreign.get(&node).cloned().unwrap_or_default();
        let bumper = self.by_class.bumper.as_ref().filter(|bumper| bumper.job != job);
        for part in bumper.into_iter().flat_map(|bumper| &bumper.parts) {
            if part.node == node {
                reserved.union_with(&part.processors);
            }
        }
        reserved
    }

    fn floor(&self, job: JobId, processors: impl Fn(NodeId) -> ProcessorSet) -> Floor {
        let nodes = self.matrix.columns().filter(|&(node, _)| self.may_be_on(job, node));
        let nodes = nodes.map(|(node, _)| (node, processors(node)));
        nodes.filter(|(_, set)| !set.is_empty()).collect()
    }

    /// Whether a job may get processors of a node: a job that was there before comes back, though
    /// the node takes no new one.
    fn may_be_on(&self, job: JobId, node: NodeId) -> bool {
        let comes_back = || self.residence(job).is_some() && !self.is_movable(job);
        let leaves = || {
            let record = self.jobs.get(&job).filter(|record| record.residence().is_none());
            record.is_some_and(|it| self.leaving().before_end(node, &it.spec).is_some())
        };
        comes_back() || !self.matrix.is_closed(node) && !leaves()
    }

    /// The jobs that hold any of these processors.
    pub(super) fn holders(&self, parts: &[Part]) -> Vec<JobId> {
        let row = self.first_row();
        let mut holders = Vec::new();
        for part in parts {
            let column = self.matrix.column(part.node);
            let homes = column.into_iter().flat_map(|it| &it.residents);
            holders.extend(
                homes.filter(|(home, _)| Some(*home) == row).map(|&(_, job)| job).filter(|&job| {
                    let set = self.matrix.seat(job).and_then(|seat| seat.on(part.node));
                    set.is_some_and(|set| set.overlaps(&part.processors))
                }),
            );
        }
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Where an assignment for a job may begin; nowhere in particular if there is only one.
    fn positions(&self, job: JobId, floor: &Floor) -> Vec<Option<(NodeId, u32)>> {
        if self.residence(job).is_some() && !self.is_movable(job) {
            return [None].into();
        }
        if let Some(size) = self.jobs.get(&job).and_then(|it| self.machine().block(&it.spec)) {
            return self.blocks(floor, size as usize);
        }
        if self.jobs.get(&job).is_some_and(|it| !it.spec.nodes.is_none()) {
            // It has the best of all nodes that follow.
            return floor.iter().map(|&(node, _)| Some((node, 0))).take(POSITIONS_MAX).collect();
        }
        let all = floor.iter().flat_map(|(node, set)| set.iter().map(|it| Some((*node, it))));
        all.take(POSITIONS_MAX).collect()
    }

    fn gets_block(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|it| self.machine().block(&it.spec).is_some())
    }

    /// Where the aligned blocks of a size begin that are there as a whole.
    fn blocks(&self, floor: &Floor, size: usize) -> Vec<Option<(NodeId, u32)>> {
        let there = |node, processor| {
            let set = floor.iter().find(|&&(other, _)| other == node).map(|(_, set)| set);
            set.is_some_and(|set| set.contains(processor))
        };
        let line = self.matrix.open_columns().flat_map(|(node, column)| {
            column.processors.iter().map(move |processor| (node, processor))
        });
        let line: Vec<(NodeId, u32)> = line.collect();
        let whole = line.chunks(size).filter(|block| block.iter().all(|&(n, p)| there(n, p)));
        whole.map(|block| block.first().copied()).take(POSITIONS_MAX).collect()
    }

    /// The processors that a job would get of these, from a position on.
    fn assignment(
        &self,
        job: JobId,
        (floor, leaves): (&Floor, &dyn Fn(NodeId) -> u64),
        from: Option<(NodeId, u32)>,
    ) -> Option<Vec<Part>> {
        let record = self.jobs.get(&job)?;
        let own = record.residence();
        let on = |node| floor.iter().find(|&&(other, _)| other == node).map(|(_, set)| set);
        let all_there =
            |part: &Part| on(part.node).is_some_and(|set| part.processors.is_subset(set));
        if let Some(residence) = own.filter(|_| !self.is_movable(job)) {
            // Where others have its memory, it would wait for them in the place of one of them.
            let has_room = residence.parts.iter().all(all_there) && self.may_swap_in(job);
            return has_room.then(|| residence.parts.clone());
        }
        let spec = &record.spec;
        let room = |node| self.room_for((job, own), node, leaves(node));
        if !spec.nodes.is_none() {
            let from = from.unwrap_or_default().0;
            let begin = floor.partition_point(|&(node, _)| node < from);
            return lay_on(self.machine(), spec, &floor[begin..], room);
        }
        let machine = self.matrix.width();
        if spec.processors_per_task.is_none() && u64::from(spec.tasks) > machine {
            let free = |node| self.machine().room_beside(node, spec, self.first_row());
            let parts = shared(self.machine(), spec, &free).ok()?;
            return parts.iter().all(all_there).then_some(parts);
        }
        first_enough(spec, floor, from.unwrap_or_default(), room)
    }

    /// For how many tasks of a job a node has memory and devices: with what it has there already,
    /// and so many bytes that jobs may leave which are preempted for it.
    fn room_for(&self, (job, own): (JobId, Option<&Residence>), node: NodeId, leaves: u64) -> u32 {
        let Some(spec) = self.jobs.get(&job).map(|record| &record.spec) else { return 0 };
        let has = own
            .and_then(|it| it.part(node))
            .map_or(0, |part| self.swaps.counted_bytes(job, part, spec));
        let memory = self.unreserved_bytes(job, node).saturating_add(has).saturating_add(leaves);
        tasks_by_memory(memory, spec).min(self.devices.tasks(node, spec, Asker::alone(Some(job))))
    }
}

impl Core {
    /// Memory of a node that is allocated to no job, and not reserved for another job.
    fn unreserved_bytes(&self, job: JobId, node: NodeId) -> u64 {
        let class = self.jobs.get(&job).map(|record| &record.spec.class);
        let free = class.map_or(0, |class| self.machine().free_bytes(node, class));
        let Some(bumper) = self.by_class.bumper.as_ref().filter(|it| it.job != job) else {
            return free;
        };
        let spec = self.jobs.get(&bumper.job).map(|record| &record.spec);
        let here = bumper.parts.iter().filter(|part| part.node == node);
        let needs: u64 = spec.map_or(0, |spec| here.map(|part| memory_of(part, spec)).sum());
        let own = self.residence(bumper.job).and_then(|it| it.part(node)).zip(spec);
        let has = own.map_or(0, |(part, spec)| self.swaps.counted_bytes(bumper.job, part, spec));
        free.saturating_sub(needs.saturating_sub(has))
    }

    /// Memory of a node that may become free if jobs are preempted for one of this priority.
    fn may_leave(&self, node: NodeId, priority: u64) -> u64 {
        let row = self.first_row();
        let homes = self.matrix.column(node).into_iter().flat_map(|it| &it.residents);
        let homes = homes.filter(|(home, job)| Some(*home) == row && self.may_bump(*job, priority));
        self.leaves_with(node, homes.map(|&(_, job)| job))
    }

    /// Whether a job has the memory for these parts once others are gone.
    fn has_memory_without(&self, job: JobId, parts: &[Part], gone: &[JobId]) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let own = record.residence();
        parts.iter().filter(|part| !part.lost).all(|part| {
            let has = own.and_then(|it| it.part(part.node));
            let has = has.map_or(0, |part| self.swaps.counted_bytes(job, part, &record.spec));
            let needs = memory_of(part, &record.spec).saturating_sub(has);
            let free = self.machine().free_bytes(part.node, &record.spec.class);
            needs <= free.saturating_add(self.leaves_with(part.node, gone.iter().copied()))
        })
    }
}

/// The first processors from a position on that are enough for all tasks.
fn first_enough(
    spec: &JobSpec,
    floor: &Floor,
    from: (NodeId, u32),
    room: impl Fn(NodeId) -> u32,
) -> Option<Vec<Part>> {
    let each = spec.processors_per_task.unwrap_or(1).max(1);
    let mut parts = Vec::new();
    let mut first = 0;
    for (node, set) in floor.iter().filter(|(node, _)| *node >= from.0) {
        let beyond = |it: &u32| *node > from.0 || *it >= from.1;
        let count = u32::try_from(set.iter().filter(beyond).count()).unwrap_or(u32::MAX);
        let tasks = (count / each).min(room(*node)).min(spec.tasks - first);
        if tasks > 0 {
            let processors = set.iter().filter(beyond).take((tasks * each) as usize).collect();
            let part = Part::new(*node, processors, first, tasks);
            parts.push(Part { binding: Binding::Own(each), ..part });
            first += tasks;
        }
        if first == spec.tasks {
            return Some(parts);
        }
    }
    None
}
