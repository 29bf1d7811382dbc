//! Whether a deadline can be promised, on which processors, and if not, which could.

use super::cpu_groups::{Lots, Offer};
use super::plans::Ahead;
use super::promise::{Promise, Promises};
use super::row_shares::{Sharers, sharers};
use super::select::{Choice, Need, earliest, least_loaded};
use crate::apply::Core;
use crate::matrix::Column;
use crate::state::record::{Binding, Part, Record};
use alloc::vec::Vec;
use tutti_types::ids::{JobId, NodeId, ProcessorSet};
use tutti_types::job::JobSpec;
use tutti_types::refusal::Refusal;
use tutti_types::time::ClusterTime;

/// A job that has to be done in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) job: JobId,
    pub(crate) spec: &'a JobSpec,
    pub(crate) deadline: ClusterTime,
    /// How long it may still have its processors, in nanoseconds.
    pub(crate) holds: u64,
}

impl Core {
    /// The promise that a new job gets.
    ///
    /// # Errors
    /// If it gets none, with the earliest deadline that it would get one for at this moment.
    pub(crate) fn promise_for(
        &self,
        now: ClusterTime,
        record: &Record,
    ) -> Result<Option<(Sharers, Promise)>, Refusal> {
        let (job, spec) = (record.id, &record.spec);
        let Some(deadline) = spec.deadline else { return Ok(None) };
        let Some(limit) = spec.time_limit else { return Err(Refusal::DeadlineWithoutLimit) };
        if self.is_external() {
            // The program of the site may see to it; nothing is promised.
            return Ok(None);
        }
        if !self.policy().plans() {
            return Err(Refusal::NoDeadlines);
        }
        if !spec.resources.is_empty() {
            return Err(Refusal::DeadlineWithResources);
        }
        let holds = limit.0.saturating_add(spec.grace.0);
        let wish = Wish { job, spec, deadline: now + deadline, holds };
        let sharers = sharers(&self.classes, &spec.class);
        let ahead = self.ahead(now);
        if self.plans.pace(&sharers).slot == 0 {
            return Err(Refusal::NoTimeForClass { class: spec.class.clone() });
        }
        match self.find_promise(&ahead, &sharers, wish) {
            Ok(promise) => Ok(Some((sharers, promise))),
            Err(None) => Err(Refusal::NoMemoryByDeadline),
            Err(Some(done)) => {
                let takes = self.plans.pace(&sharers).takes(done);
                let earliest =
                    takes.map(|takes| ahead.at.since(now) + takes + self.plans.basis.slack);
                Err(Refusal::Deadline { asked: deadline, earliest })
            }
        }
    }

    /// Time for a job on any processors.
    ///
    /// # Errors
    /// If there is not enough by then: by when it would be done, in time of the row's clock from
    /// now on; `None`: it is unknown.
    pub(crate) fn find_promise(
        &self,
        ahead: &Ahead<'_>,
        sharers: &Sharers,
        wish: Wish<'_>,
    ) -> Result<Promise, Option<u64>> {
        if self.shares_processors(wish.spec) || !wish.spec.nodes.names_only() {
            let parts = (self.policy().placement)(self.machine(), wish.spec, None);
            return self.promise_on(ahead, sharers, wish, parts.map_err(|_| None)?);
        }
        let plan = self.plans.rows.get(sharers);
        let none = Promises::default();
        let promises = plan.map_or(&none, |plan| &plan.promises);
        let each = wish.spec.processors_per_task.unwrap_or(1).max(1);
        let lots = Lots::new(promises, self.offers(sharers, wish.spec), each);
        let clock = ahead.clock(plan.map(|plan| plan.row));
        let (due, last) = self.due(ahead, sharers, clock, wish);
        let need = Need { seats: u64::from(wish.spec.tasks), from: clock, time: wish.holds };
        let best = earliest(&lots.lots, need).ok_or(None)?;
        if best.done > due {
            return Err(Some((best.done - clock).saturating_sub(wish.spec.grace.0)));
        }
        let in_time = |choice: &Choice| choice.done <= due;
        let apart = || least_loaded(&lots.lots[..lots.apart], need, due, |_| true);
        let shared = || least_loaded(&lots.lots, need, due, |_| true);
        let choice = apart().filter(in_time).or_else(|| shared().filter(in_time)).unwrap_or(best);
        let time = choice.busy.latest(clock, due, wish.holds).unwrap_or_default();
        let parts = parts_of(lots.take(&choice.seats), each);
        Ok(Promise { deadline: wish.deadline, due, last, parts, time })
    }

    /// Time for a job on the processors that it has.
    ///
    /// # Errors
    /// As [`Core::find_promise`].
    pub(crate) fn promise_on(
        &self,
        ahead: &Ahead<'_>,
        sharers: &Sharers,
        wish: Wish<'_>,
        parts: Vec<Part>,
    ) -> Result<Promise, Option<u64>> {
        let plan = self.plans.rows.get(sharers);
        let clock = ahead.clock(plan.map(|plan| plan.row));
        let (due, last) = self.due(ahead, sharers, clock, wish);
        let taken = plan.map(|plan| plan.promises.taken(wish.job, &parts)).unwrap_or_default();
        match taken.latest(clock, due, wish.holds) {
            Some(time) => Ok(Promise { deadline: wish.deadline, due, last, parts, time }),
            None => {
                let done = taken.completes(clock, wish.holds) - clock;
                Err(Some(done.saturating_sub(wish.spec.grace.0)))
            }
        }
    }

    /// What a row's clock shows at the least some slack before a deadline, and at it; and after
    /// that at the most as long as the job takes to end.
    fn due(&self, ahead: &Ahead<'_>, sharers: &Sharers, clock: u64, wish: Wish<'_>) -> (u64, u64) {
        let pace = self.plans.pace(sharers);
        let done = |moment: ClusterTime| clock.saturating_add(pace.sure(moment.since(ahead.at)));
        let gone = |moment: ClusterTime| done(moment).saturating_add(wish.spec.grace.0);
        (gone(wish.deadline - self.plans.basis.slack), gone(wish.deadline))
    }

    /// Whether a job has more tasks than there are processors for it, so that some share one; also
    /// if all nodes took jobs.
    fn shares_processors(&self, spec: &JobSpec) -> bool {
        let nodes = self.matrix.columns().filter(|&(node, _)| spec.nodes.allows(node));
        let there = || nodes.map(|(_, column)| u64::from(column.width)).sum::<u64>();
        spec.processors_per_task.is_none() && u64::from(spec.tasks) > there()
    }

    fn offers<'a>(
        &'a self,
        sharers: &'a Sharers,
        spec: &'a JobSpec,
    ) -> impl Iterator<Item = Offer> + 'a {
        let nodes = self.matrix.open_columns().filter(|(_, column)| column.width > 0);
        let nodes = nodes.filter(|&(node, _)| spec.nodes.allows(node));
        nodes.map(move |(node, column)| Offer {
            node,
            processors: column.processors.clone(),
            apart: column.processors.without(&self.used_by_others(sharers, node, column)),
            tasks: self.machine().room_beside(node, spec, None),
        })
    }

    /// The processors of a node that other rows use, or promised.
    fn used_by_others(&self, sharers: &Sharers, node: NodeId, column: &Column) -> ProcessorSet {
        let own = self.plans.rows.get(sharers).map(|plan| plan.row);
        let mut used = ProcessorSet::new();
        for (_, cells) in column.all_cells().filter(|(row, _)| Some(*row) != own) {
            used.union_with(&cells.taken);
        }
        for (_, plan) in self.plans.rows.iter().filter(|(other, _)| *other != sharers) {
            for (_, set) in plan.promises.on(node) {
                used.union_with(set);
            }
        }
        used
    }
}

/// The tasks of a job on these processors, `each` of them for a task, ranks in the order of the
/// nodes.
fn parts_of(taken: impl IntoIterator<Item = (NodeId, ProcessorSet)>, each: u32) -> Vec<Part> {
    let mut first = 0;
    let part = |(node, processors): (NodeId, ProcessorSet)| {
        let tasks = processors.count() / each;
        let part = Part::new(node, processors, first, tasks);
        first += tasks;
        Part { binding: Binding::Own(each), ..part }
    };
    taken.into_iter().map(part).collect()
}
