//! Further steps of a job: tasks that are started in its slots while it runs.
//!
//! A step takes processors of its job that no other task has. If there are not enough, it waits in
//! the job, behind the steps that came before. If the job has too few altogether, it is declined at
//! once. A step that overlaps takes processors that others have, too. The tasks of a batch job's
//! script count as having none: the script waits for its steps. So does the task of another job
//! that starts a step and waits for it (the lender). A step of one task can also run beside a task
//! of the job (`tutti exec`): on its node and processors, and without a wait.
//!
//! A step that tasks of the job have spawned (`MPI_Comm_spawn`) takes free slots at once, or is
//! refused: the tasks wait for the answer. A slot is free while no task has it. Where slots share
//! processors, so do their tasks. The failure of such a step ends the step that has spawned it.
//!
//! Steps change nothing of the matrix: they have their job's turns, and end with it. The tasks of a
//! step end by the same rules as those of a job ([`Residence`]).

use crate::action::{Action, StepAction};
use crate::allocation::Allocation;
use crate::apply::Core;
use crate::state::record::{Binding, Course, Deaths, Part, Place, Residence, Rules, TaskEnd};
use crate::termination::ENDED_BY_TERM;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::constraints::OnNodeLoss;
use tutti_types::ids::{JobId, NodeId, ProcessorSet, Rank, RequestId, StepId, StepKey};
use tutti_types::job::{EndReason, JobSpec, Outcome, StepRefusal, StepSpec, TaskStatus};
use tutti_types::limits::STEPS_PER_JOB_MAX;
use tutti_types::refusal::TaskPlacement;
use tutti_types::time::{ClusterTime, Nanos};

/// A further step of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// By what its front end would ask for it again.
    pub key: [u8; 16],
    /// What was asked.
    pub spec: StepSpec,
    /// Since when it waits, or runs.
    pub since: ClusterTime,
    /// What is known of it once it has been started.
    pub run: Option<Box<Residence>>,
}

/// Steps of a job of which it is remembered how they ended.
pub const STEPS_REMEMBERED: usize = STEPS_PER_JOB_MAX as usize;

/// A further step that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Done {
    /// Its number.
    pub step: StepId,
    /// By what its front end would ask for it again.
    pub key: [u8; 16],
    /// How it ended.
    pub outcome: Outcome,
}

/// Where a step stands, for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepView<'a> {
    /// The step.
    pub key: StepKey,
    /// What was asked.
    pub spec: &'a StepSpec,
    /// Since when it waits, or runs.
    pub since: ClusterTime,
    /// Its parts by node; none while it waits.
    pub parts: &'a [Part],
    /// Whether it was asked to end, or killed.
    pub is_ending: bool,
}

/// What a part of a job has for steps.
struct Room {
    node: NodeId,
    /// The processors that may be taken.
    free: ProcessorSet,
}

impl Step {
    fn is_ending(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.ending())
    }

    fn rules(&self) -> Rules {
        // What becomes of the job when a node is lost, the job says.
        Rules { on_bad_exit: self.spec.on_bad_exit, on_node_loss: OnNodeLoss::Kill }
    }
}

impl Core {
    /// The further steps of a job that have not ended.
    pub fn steps(&self, job: JobId) -> impl Iterator<Item = StepView<'_>> {
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| &it.steps);
        steps.map(move |(&step, it)| StepView {
            key: StepKey { job, step },
            spec: &it.spec,
            since: it.since,
            parts: it.run.as_ref().map_or(&[], |run| &run.parts),
            is_ending: it.run.as_ref().is_some_and(|run| run.ending()),
        })
    }

    /// The step that was asked for with this key, if it has not ended, or has of late.
    #[must_use]
    pub fn step_by_key(&self, job: JobId, key: &[u8; 16]) -> Option<StepKey> {
        let Allocation { steps, done, .. } = self.allocations.get(&job)?;
        let live = steps.iter().find(|(_, step)| step.key == *key).map(|(&step, _)| step);
        let ended = || done.iter().find(|done| done.key == *key).map(|done| done.step);
        live.or_else(ended).map(|step| StepKey { job, step })
    }

    /// Where a step's tasks run, by node.
    #[must_use]
    pub fn step_parts(&self, key: StepKey) -> &[Part] {
        self.step(key).and_then(|step| step.run.as_ref()).map_or(&[], |run| &run.parts)
    }

    /// The task of its job beside which a step runs, if it was asked to.
    #[must_use]
    pub fn step_beside(&self, key: StepKey) -> Option<Rank> {
        self.step(key).and_then(|step| step.spec.beside)
    }

    /// Whether a step is to be killed, or was.
    #[must_use]
    pub fn is_step_killed(&self, key: StepKey) -> bool {
        let run = self.step(key).and_then(|step| step.run.as_ref());
        run.is_some_and(|run| matches!(run.course, Course::Killed { .. }))
    }

    pub(crate) fn step(&self, key: StepKey) -> Option<&Step> {
        self.allocations.get(&key.job)?.steps.get(&key.step)
    }

    fn step_mut(&mut self, key: StepKey) -> Option<&mut Step> {
        self.allocations.get_mut(&key.job)?.steps.get_mut(&key.step)
    }

    pub(crate) fn on_submit_step(
        &mut self,
        now: ClusterTime,
        (request, job): (RequestId, JobId),
        (key, spec): (&[u8; 16], &StepSpec),
        actions: &mut Vec<Action>,
    ) {
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| &it.steps);
        if let Some((&step, _)) = steps.clone().find(|(_, step)| step.key == *key) {
            return actions.push(StepAction::Accept { request, key: StepKey { job, step } }.into());
        }
        let count = steps.count();
        let done = self.allocations.get(&job).into_iter().flat_map(|it| &it.done);
        if let Some(done) = done.clone().find(|done| done.key == *key) {
            let key = StepKey { job, step: done.step };
            actions.push(StepAction::Accept { request, key }.into());
            return actions.push(StepAction::Ended { key, outcome: done.outcome }.into());
        }
        let spawned = self.admit_step(job, spec, count).and_then(|()| {
            spec.spawned_by.map(|by| self.lay_out_spawned_last((job, by), spec)).transpose()
        });
        let spawned = match spawned {
            Ok(Some(parts)) if self.are_lent(job, &parts) => None,
            Ok(parts) => parts,
            Err(refusal) => {
                return actions.push(StepAction::Decline { request, refusal }.into());
            }
        };
        let spec = self.with_rules_of_job(job, *spec);
        let allocation = self.allocations.entry(job).or_default();
        allocation.made += 1;
        let step = StepId(allocation.made);
        let run = spawned.map(|parts| Box::new(Residence::new(now, parts)));
        let is_begun = run.is_some();
        allocation.steps.insert(step, Step { key: *key, spec, since: now, run });
        let key = StepKey { job, step };
        actions.push(StepAction::Accept { request, key }.into());
        match is_begun {
            true => actions.push(StepAction::Launch { key }.into()),
            false => self.start_steps(now, job, actions),
        }
        self.note_step_begun(job);
    }

    /// Whether a job lends any of these processors, or has just taken them back.
    fn are_lent(&self, job: JobId, parts: &[Part]) -> bool {
        let is_lent = |part: &Part| {
            let lent = self.lent_on(job, part.node);
            lent.is_some_and(|lent| lent.overlaps(&part.processors))
        };
        self.freed.lending.is_claimed(job) || parts.iter().any(is_lent)
    }

    /// What was spawned ends as its job would, unless it is to go on in any case.
    fn with_rules_of_job(&self, job: JobId, spec: StepSpec) -> StepSpec {
        match self.jobs.get(&job).filter(|_| spec.spawned_by.is_some()) {
            Some(record) => {
                let (of_job, grace) = (record.spec.on_bad_exit, record.spec.grace);
                let goes_on = spec.on_bad_exit.goes_on();
                let on_bad_exit = if goes_on { spec.on_bad_exit } else { of_job };
                StepSpec { on_bad_exit, grace, ..spec }
            }
            None => spec,
        }
    }

    /// The parts of a step that is spawned, in slots of its job that are free beside all that was
    /// spawned and waits for slots that its job lends.
    fn lay_out_spawned_last(
        &self,
        (job, by): (JobId, StepId),
        spec: &StepSpec,
    ) -> Result<Vec<Part>, StepRefusal> {
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| it.steps.values());
        let waiting = steps.filter(|step| step.run.is_none());
        let mut before = Vec::new();
        for (by, spec) in waiting.filter_map(|it| Some((it.spec.spawned_by?, &it.spec))) {
            before.extend(self.lay_out_spawned((job, by), spec, &before).unwrap_or_default());
        }
        self.lay_out_spawned((job, by), spec, &before)
    }

    /// The parts of a step that is spawned, in free slots of its job but for those of others.
    fn lay_out_spawned(
        &self,
        (job, by): (JobId, StepId),
        spec: &StepSpec,
        others: &[Part],
    ) -> Result<Vec<Part>, StepRefusal> {
        let residence = self.residence(job).ok_or(StepRefusal::NoJob)?;
        let is_ending = |key| self.step(key).is_none_or(Step::is_ending);
        if by != StepId::FIRST && is_ending(StepKey { job, step: by }) {
            return Err(StepRefusal::Ending);
        }
        let (mut parts, mut left, mut slots, mut first) = (Vec::new(), spec.tasks, 0, 0);
        for part in parts_for(residence, spec) {
            let (free, processors) = self.free_slots(job, part, others);
            slots += free;
            let taken = free.min(left);
            if taken == 0 {
                continue;
            }
            let each = part.processors_per_slot();
            let (processors, binding) = match each {
                0 => (processors, Binding::Shared),
                _ => (processors.lowest(taken * each), Binding::Own(each)),
            };
            let of_step = Part::new(part.node, processors, first, taken);
            parts.push(Part { binding, ..of_step });
            (first, left) = (first + taken, left - taken);
        }
        if left > 0 { Err(StepRefusal::NotFree { slots }) } else { Ok(parts) }
    }

    /// How many slots of a part have no task, and the processors for tasks in them.
    fn free_slots(&self, job: JobId, part: &Part, others: &[Part]) -> (u32, ProcessorSet) {
        let each = part.processors_per_slot();
        let mut free = self.room_in(job, part, None).free;
        let node = part.node;
        let others = || others.iter().filter(move |other| other.node == node);
        if each > 0 {
            others().for_each(|other| free.subtract(&other.processors));
        }
        if let Some(slots) = free.count().checked_div(each) {
            return (slots, free);
        }
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| it.steps.values());
        let steps = steps.filter(|step| !step.spec.shares()).filter_map(|it| it.run.as_ref());
        let of_steps = steps.filter_map(|run| run.part(part.node).filter(|it| !it.cleared));
        let taken = of_steps.chain(others()).fold(0, |sum: u32, it| sum.saturating_add(it.left));
        let first = if matches!(part.binding, Binding::Held(_)) { 0 } else { part.left };
        let free = part.tasks.saturating_sub(taken.saturating_add(first));
        (free, part.processors.clone())
    }

    /// Starts the steps that wait for nothing but processors that their job lends: those that run
    /// beside a task, and those that were spawned.
    fn start_urgent(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        let Some(allocation) = self.allocations.get(&job) else { return };
        let is_urgent = |step: &Step| step.spec.beside.is_some() || step.spec.spawned_by.is_some();
        let waits = |(_, step): &(&StepId, &Step)| step.run.is_none() && is_urgent(step);
        let waiting: Vec<_> =
            allocation.steps.iter().filter(waits).map(|(&step, it)| (step, it.spec)).collect();
        for (step, spec) in waiting {
            let parts = match (spec.beside, spec.spawned_by) {
                (Some(rank), _) => self.part_beside(job, rank).map(|part| alloc::vec![part]),
                (None, Some(by)) => self.lay_out_spawned((job, by), &spec, &[]).ok(),
                (None, None) => None,
            };
            let Some(parts) = parts else {
                self.end_waiting_step(StepKey { job, step }, EndReason::Cancelled, actions);
                continue;
            };
            if self.are_lent(job, &parts) {
                return self.claim_loan(job);
            }
            self.start_step((StepKey { job, step }, now), parts, actions);
        }
    }

    fn start_step(
        &mut self,
        (key, now): (StepKey, ClusterTime),
        parts: Vec<Part>,
        actions: &mut Vec<Action>,
    ) {
        if let Some(step) = self.step_mut(key) {
            step.since = now;
            step.run = Some(Box::new(Residence::new(now, parts)));
        }
        actions.push(StepAction::Launch { key }.into());
    }

    /// The part of a step that runs beside a task: its node and processors, while its job is there.
    /// Where others have those of a task that has ended: all that its job has on the node.
    fn part_beside(&self, job: JobId, rank: Rank) -> Option<Part> {
        let part = parts_left(self.residence(job)?).find(|part| part.has(rank))?;
        let task = self.placements_left(job, part).into_iter().find(|task| task.rank == rank);
        let processors = task.map_or_else(|| part.processors.clone(), |task| task.processors);
        let count = processors.count();
        let step = Part::new(part.node, processors, 0, 1);
        Some(Part { binding: Binding::Own(count), ..step })
    }

    /// The tasks of a part of a job whose processors are still its own.
    fn placements_left(&self, job: JobId, part: &Part) -> Vec<TaskPlacement> {
        match self.freed.of(job) {
            None => part.placements(),
            Some(given) => part.placements_without(given),
        }
    }

    /// Whether a job can ever have a step.
    fn admit_step(&self, job: JobId, spec: &StepSpec, count: usize) -> Result<(), StepRefusal> {
        let residence = self.residence(job).ok_or(StepRefusal::NoJob)?;
        if residence.ending() {
            return Err(StepRefusal::Ending);
        }
        let is_none = spec.tasks == 0 || (spec.beside.is_some() && spec.tasks != 1);
        if is_none || spec.processors_per_task == Some(0) || spec.nodes == Some(0) {
            return Err(StepRefusal::Nothing);
        }
        if count >= STEPS_PER_JOB_MAX as usize {
            return Err(StepRefusal::TooMany { limit: STEPS_PER_JOB_MAX });
        }
        if let Some(rank) = spec.beside {
            if residence.place != Place::Home || self.jobs.get(&job).is_some_and(|it| it.suspended)
            {
                return Err(StepRefusal::Suspended);
            }
            let found = self.part_beside(job, rank);
            return found.map(|_| ()).ok_or(StepRefusal::NoRank { rank });
        }
        if spec.spawned_by.is_some() {
            // By the slots that are free now.
            return Ok(());
        }
        let all = parts_for(residence, spec).map(|part| Room::of(part, part.processors.clone()));
        let all: Vec<Room> = all.collect();
        let each = self.processors_each(job, spec);
        if lay_out(&all, spec, each).is_some() {
            return Ok(());
        }
        Err(StepRefusal::TooLarge {
            tasks: all.iter().map(|room| room.free.count() / each).sum(),
            processors: all.iter().map(|room| room.free.count()).sum(),
            nodes: u32::try_from(all.len()).unwrap_or(u32::MAX),
        })
    }

    /// The processors of each of a step's tasks.
    fn processors_each(&self, job: JobId, spec: &StepSpec) -> u32 {
        let of_job = |spec: &JobSpec| spec.processors_per_task.unwrap_or(1);
        let of_job = self.jobs.get(&job).map_or(1, |record| of_job(&record.spec));
        spec.processors_per_task.unwrap_or(of_job).max(1)
    }

    /// Starts the steps of a job that wait, in their order, while there are processors for them.
    /// Where these are lent, the job takes them back first.
    pub(crate) fn start_steps(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        loop {
            if self.freed.lending.is_claimed(job) {
                return;
            }
            self.start_urgent(now, job, actions);
            if self.freed.lending.is_claimed(job) {
                return;
            }
            let Some((key, asked, each)) = self.first_waiting(job) else { return };
            let Some(room) = self.room_for_step(key) else { return };
            let Some(spec) = self.step(key).map(|step| step.spec) else { return };
            let own = room.iter().map(|room| self.without_lent(job, room)).collect::<Vec<_>>();
            if let Some(parts) = lay_out(&own, &spec, each) {
                self.start_step((key, now), parts, actions);
                continue;
            }
            if lay_out(&room, &spec, each).is_some() {
                return self.claim_loan(job);
            }
            let free: u64 = room.iter().map(|room| u64::from(room.free.count())).sum();
            if let Some(allocation) = self.allocations.get_mut(&job) {
                allocation.short = asked.saturating_sub(free).max(1);
            }
            return;
        }
    }

    /// The first step of a job that waits, how many processors it needs, and each of its tasks.
    fn first_waiting(&self, job: JobId) -> Option<(StepKey, u64, u32)> {
        let allocation = self.allocations.get(&job).filter(|it| it.short == 0)?;
        let (&step, first) = allocation.steps.iter().find(|(_, step)| step.run.is_none())?;
        let each = self.processors_each(job, &first.spec);
        Some((StepKey { job, step }, u64::from(first.spec.tasks) * u64::from(each), each))
    }

    /// What a step may take of its job, with what that lends.
    fn room_for_step(&self, key: StepKey) -> Option<Vec<Room>> {
        let spec = &self.step(key)?.spec;
        let residence = self.residence(key.job).filter(|it| !it.ending())?;
        let parts = parts_for(residence, spec);
        Some(parts.map(|part| self.room_in(key.job, part, Some(spec))).collect())
    }

    /// The same without what the job lends.
    fn without_lent(&self, job: JobId, room: &Room) -> Room {
        let mut free = room.free.clone();
        if let Some(lent) = self.lent_on(job, room.node) {
            free.subtract(lent);
        }
        Room { node: room.node, free }
    }

    /// A step that waits though there are processors for it; for the invariants.
    pub(crate) fn startable_step(&self) -> Option<StepKey> {
        let jobs = self.allocations.keys().filter(|&&job| !self.freed.lending.is_claimed(job));
        jobs.copied().find_map(|job| {
            let steps = &self.allocations.get(&job)?.steps;
            let (&step, first) = steps.iter().find(|(_, step)| step.run.is_none())?;
            let key = StepKey { job, step };
            let each = self.processors_each(job, &first.spec);
            lay_out(&self.room_for_step(key)?, &first.spec, each).map(|_| key)
        })
    }

    /// So many processors of a job are free: a step that waits may start.
    pub(crate) fn give_to_steps(
        &mut self,
        now: ClusterTime,
        (job, processors): (JobId, u64),
        actions: &mut Vec<Action>,
    ) {
        if let Some(allocation) = self.allocations.get_mut(&job) {
            allocation.short = allocation.short.saturating_sub(processors);
            self.start_steps(now, job, actions);
        }
    }

    /// What a step may take of a part of its job; `None`: one that shares and borrows nothing.
    fn room_in(&self, job: JobId, part: &Part, spec: Option<&StepSpec>) -> Room {
        let mut free = part.processors.clone();
        if spec.is_some_and(StepSpec::shares) {
            return Room::of(part, free);
        }
        let lender = spec.and_then(|spec| spec.lender);
        let is_script = matches!(part.binding, Binding::Held(_));
        if let (Some(residence), false) = (self.residence(job), is_script) {
            let runs = |rank: Rank| !residence.ended.contains_key(&rank) && lender != Some(rank);
            let tasks = self.placements_left(job, part);
            let running = tasks.iter().filter(|task| runs(task.rank));
            running.for_each(|task| free.subtract(&task.processors));
        }
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| it.steps.values());
        for step in steps.filter(|step| !step.spec.shares()) {
            let Some(run) = &step.run else { continue };
            let Some(taken) = run.part(part.node).filter(|it| !it.cleared) else { continue };
            let tasks = taken.placements();
            let running = tasks.iter().filter(|task| !run.ended.contains_key(&task.rank));
            running.for_each(|task| free.subtract(&task.processors));
        }
        Room::of(part, free)
    }

    pub(crate) fn on_step_tasks_ended(
        &mut self,
        now: ClusterTime,
        (key, ranks): (StepKey, &[Rank]),
        status: TaskStatus,
        actions: &mut Vec<Action>,
    ) {
        self.checkpoints.note_status(key.job, status);
        let Some(rules) = self.step(key).map(Step::rules) else { return };
        let rules = self.rules_at_present(key.job, rules);
        let is_asked = self.checkpoints.is_asked_to_end(key.job);
        let Some(step) = self.step_mut(key) else { return };
        let grace = step.spec.grace;
        let spec = step.spec;
        let Some(run) = &mut step.run else { return };
        let all: Vec<Rank> = if ranks.is_empty() { run.left().collect() } else { Vec::new() };
        let ended = (all.len() + ranks.len()) as u64;
        let (mut fatal, mut failing, mut has_emptied) = (None, false, false);
        for &rank in all.iter().chain(ranks) {
            let (end, emptied) = run.task_ended(rank, status, rules);
            has_emptied |= emptied.is_some();
            match end {
                TaskEnd::Unknown | TaskEnd::Noted => {}
                TaskEnd::Failing => failing = true,
                TaskEnd::Fatal(reason) => fatal = fatal.or(Some(reason)),
            }
        }
        if let Some(reason) = fatal {
            self.kill_step(now, key, (reason, Deaths::Collateral), actions);
            self.fail_spawner(now, (key.job, &spec), (reason, status), actions);
        } else if failing && run.present() && !is_asked {
            // The others may wait for it for ever.
            let at = now + grace;
            run.terminate(EndReason::TaskFailed, now, at);
            self.set_step_deadline(key, at);
        }
        self.name_ended(key, if ranks.is_empty() { &all } else { ranks }, actions);
        self.note_idle(key.job);
        // Tasks that share processors leave all of them when the last of the part has ended.
        let processors = match has_emptied {
            true => u64::MAX,
            false => ended * u64::from(self.processors_each(key.job, &spec)),
        };
        self.give_to_steps(now, (key.job, processors), actions);
    }

    /// What has spawned a step that failed waits for it: that ends, too.
    fn fail_spawner(
        &mut self,
        now: ClusterTime,
        (job, spec): (JobId, &StepSpec),
        (reason, status): (EndReason, TaskStatus),
        actions: &mut Vec<Action>,
    ) {
        let order = (reason, Deaths::Collateral);
        match spec.spawned_by {
            None => {}
            Some(StepId::FIRST) => {
                if let Some(residence) = self.residence_mut(job).filter(|it| !it.ending()) {
                    residence.hear(status);
                    self.kill_resident(now, job, order, actions);
                }
            }
            Some(step) => {
                let key = StepKey { job, step };
                let run = self.step_mut(key).and_then(|step| step.run.as_mut());
                let Some(run) = run.filter(|it| !it.ending()) else { return };
                run.hear(status);
                self.kill_step(now, key, order, actions);
                if let Some(of) = self.step(key).map(|step| step.spec) {
                    self.fail_spawner(now, (job, &of), (reason, status), actions);
                }
            }
        }
    }

    pub(crate) fn on_step_cleared(
        &mut self,
        now: ClusterTime,
        (key, nodes): (StepKey, &[NodeId]),
        actions: &mut Vec<Action>,
    ) {
        let Some(run) = self.step(key).and_then(|step| step.run.as_ref()) else { return };
        let all: Vec<NodeId> =
            if nodes.is_empty() { run.nodes_left().collect() } else { Vec::new() };
        for &node in all.iter().chain(nodes) {
            self.clear_step(now, (key, node), actions);
        }
        self.finish_step(key, actions);
        self.give_to_steps(now, (key.job, u64::MAX), actions);
    }

    /// Nothing of a step is left on a node. An end that was not reported is no success.
    fn clear_step(
        &mut self,
        now: ClusterTime,
        (key, node): (StepKey, NodeId),
        actions: &mut Vec<Action>,
    ) {
        let Some(run) = self.step_mut(key).and_then(|step| step.run.as_mut()) else { return };
        let has_lost = run.has_lost_on(node);
        run.hear_of_loss(node);
        if run.clear(node).is_some() && has_lost {
            let order = (EndReason::NodeLost(node), Deaths::Collateral);
            self.kill_step(now, key, order, actions);
        }
    }

    /// A step has ended when nothing of it is left on any node.
    fn finish_step(&mut self, key: StepKey, actions: &mut Vec<Action>) {
        let Some(run) = self.step(key).and_then(|step| step.run.as_ref()) else { return };
        if run.cleared() {
            let outcome = run.outcome(Nanos::ZERO);
            let spec = self.step(key).map(|step| step.spec);
            self.forget_step(key, outcome);
            actions.push(StepAction::Ended { key, outcome }.into());
            let has_failed =
                matches!(outcome.reason, EndReason::TaskFailed | EndReason::OutOfMemory);
            if let Some(spec) = spec.filter(|_| has_failed) {
                let status = TaskStatus::Exited(outcome.exit_code);
                let how = (outcome.reason, status);
                self.fail_spawner(self.now, (key.job, &spec), how, actions);
            }
            // It may be what the job was held for.
            self.release_if_spent(self.now, key.job, actions);
            self.note_freed(key.job);
            self.note_idle(key.job);
        }
    }

    fn forget_step(&mut self, key: StepKey, outcome: Outcome) {
        self.step_deadlines.retain(|(_, other)| *other != key);
        let Some(allocation) = self.allocations.get_mut(&key.job) else { return };
        if let Some(step) = allocation.steps.remove(&key.step) {
            // Another one may be the first that waits.
            allocation.short = 0;
            if allocation.done.len() >= STEPS_REMEMBERED {
                allocation.done.remove(0);
            }
            allocation.done.push(Done { step: key.step, key: step.key, outcome });
        }
    }

    /// Ends a step that has not begun.
    fn end_waiting_step(&mut self, key: StepKey, reason: EndReason, actions: &mut Vec<Action>) {
        // The job may have completed; what never began has not.
        let reason = if reason == EndReason::Completed { EndReason::Cancelled } else { reason };
        let exit_code = reason.exit_code_or(ENDED_BY_TERM);
        let outcome = Outcome { reason, exit_code, service: Nanos::ZERO };
        self.forget_step(key, outcome);
        actions.push(StepAction::Ended { key, outcome }.into());
    }

    pub(crate) fn on_cancel_step(
        &mut self,
        now: ClusterTime,
        (key, reason, at_once): (StepKey, EndReason, bool),
        actions: &mut Vec<Action>,
    ) {
        let Some(step) = self.step_mut(key) else { return };
        let at = now + step.spec.grace;
        match &mut step.run {
            None => {
                self.end_waiting_step(key, reason, actions);
                self.start_steps(now, key.job, actions);
            }
            Some(_) if at_once => self.kill_step(now, key, (reason, Deaths::Meant), actions),
            Some(run) => {
                let failing =
                    matches!(run.course, Course::Terminating { reason: EndReason::TaskFailed, .. });
                let is_new = run.terminate(reason, now, at);
                // Where a task failed, the others were not asked to end.
                if is_new || failing {
                    let nodes = run.nodes_left();
                    actions.extend(nodes.map(|node| StepAction::Terminate { key, node }.into()));
                }
                if is_new {
                    self.set_step_deadline(key, at);
                }
            }
        }
    }

    pub(crate) fn on_step_front_end_lost(
        &mut self,
        now: ClusterTime,
        key: StepKey,
        actions: &mut Vec<Action>,
    ) {
        let at = now + self.params.front_end_grace();
        let Some(step) = self.step_mut(key) else { return };
        match &mut step.run {
            None => {
                self.end_waiting_step(key, EndReason::FrontEndLost, actions);
                self.start_steps(now, key.job, actions);
            }
            Some(run) => {
                run.orphan(at);
                self.set_step_deadline(key, at);
            }
        }
    }

    fn kill_step(
        &mut self,
        now: ClusterTime,
        key: StepKey,
        (reason, deaths): (EndReason, Deaths),
        actions: &mut Vec<Action>,
    ) {
        let Some(run) = self.step_mut(key).and_then(|step| step.run.as_mut()) else { return };
        if run.kill(reason, now, deaths) {
            let nodes = run.nodes_left();
            actions.extend(nodes.map(|node| StepAction::Kill { key, node }.into()));
        }
    }

    /// A step is killed at this time, if it is not done by then.
    fn set_step_deadline(&mut self, key: StepKey, at: ClusterTime) {
        if self.kills {
            self.step_deadlines.insert((at, key));
        }
    }

    /// Kills steps whose grace is over.
    pub(crate) fn end_due_steps(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        while let Some(&(at, key)) = self.step_deadlines.first()
            && at <= now
        {
            self.step_deadlines.pop_first();
            let course = self.step(key).and_then(|it| it.run.as_ref()).map(|run| run.course);
            match course {
                Some(Course::Orphaned { kill_at }) if kill_at <= now => {
                    let order = (EndReason::FrontEndLost, Deaths::Meant);
                    self.kill_step(now, key, order, actions);
                }
                Some(Course::Terminating { reason, kill_at, .. }) if kill_at <= now => {
                    // The failure is that of the task that the others waited for, as in a job.
                    let is_failure = reason == EndReason::TaskFailed;
                    let deaths = if is_failure { Deaths::Collateral } else { Deaths::Meant };
                    self.kill_step(now, key, (reason, deaths), actions);
                }
                Some(
                    Course::Orphaned { .. }
                    | Course::Terminating { .. }
                    | Course::Running
                    | Course::Failing { .. }
                    | Course::Killed { .. },
                )
                | None => {}
            }
        }
    }

    /// What a job has on a node is gone, and with it what its steps had there.
    pub(crate) fn lose_steps_on(
        &mut self,
        now: ClusterTime,
        (job, node): (JobId, NodeId),
        actions: &mut Vec<Action>,
    ) {
        let Some(allocation) = self.allocations.get(&job) else { return };
        for step in allocation.steps.keys().copied().collect::<Vec<_>>() {
            let key = StepKey { job, step };
            self.clear_step(now, (key, node), actions);
            self.finish_step(key, actions);
        }
        self.go_on_with_steps(now, job, actions);
    }

    /// Parts or tasks of a job have ended. A step that waits may be more than the job has left, or
    /// may start.
    pub(crate) fn go_on_with_steps(
        &mut self,
        now: ClusterTime,
        job: JobId,
        actions: &mut Vec<Action>,
    ) {
        self.end_impossible_steps(job, actions);
        self.give_to_steps(now, (job, u64::MAX), actions);
    }

    fn end_impossible_steps(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let Some(allocation) = self.allocations.get(&job) else { return };
        let impossible = |(&step, it): (&StepId, &Step)| {
            let waits = it.run.is_none();
            let refused = || self.admit_step(job, &it.spec, 0).is_err();
            (waits && refused()).then_some(StepKey { job, step })
        };
        for key in allocation.steps.iter().filter_map(impossible).collect::<Vec<_>>() {
            self.end_waiting_step(key, EndReason::Cancelled, actions);
        }
    }

    /// A job is asked to end: steps that wait never begin. Its nodes tell those that run.
    pub(crate) fn end_waiting_steps(
        &mut self,
        job: JobId,
        reason: EndReason,
        actions: &mut Vec<Action>,
    ) {
        let Some(allocation) = self.allocations.get(&job) else { return };
        let waiting = allocation.steps.iter().filter(|(_, step)| step.run.is_none());
        let waiting: Vec<StepId> = waiting.map(|(&step, _)| step).collect();
        for step in waiting {
            self.end_waiting_step(StepKey { job, step }, reason, actions);
        }
    }

    /// A job has ended, or is in line again: nothing is left of its steps either.
    pub(crate) fn end_steps(&mut self, job: JobId, reason: EndReason, actions: &mut Vec<Action>) {
        self.end_waiting_steps(job, reason, actions);
        let Some(allocation) = self.allocations.get_mut(&job) else { return };
        for (step, it) in core::mem::take(&mut allocation.steps) {
            let key = StepKey { job, step };
            let Some(mut run) = it.run else { continue };
            run.kill(reason, self.now, Deaths::Collateral);
            actions.push(StepAction::Ended { key, outcome: run.outcome(Nanos::ZERO) }.into());
        }
        self.step_deadlines.retain(|(_, key)| key.job != job);
    }
}

/// The parts of a job where steps can be. One that is not held ends with its last task.
fn parts_left(residence: &Residence) -> impl Iterator<Item = &Part> {
    let stays = |part: &&Part| part.is_held() || part.left > 0;
    residence.parts.iter().filter(|part| !part.cleared && !part.lost).filter(stays)
}

/// Those of them that a step may have tasks on.
fn parts_for<'a>(
    residence: &'a Residence,
    spec: &StepSpec,
) -> impl Iterator<Item = &'a Part> + use<'a> {
    let only = spec.on_node;
    parts_left(residence).filter(move |part| only.is_none_or(|node| part.node == node))
}

impl Room {
    const fn of(part: &Part, free: ProcessorSet) -> Self {
        Self { node: part.node, free }
    }
}

/// The parts of a step that has this room; `None` if it is not enough.
fn lay_out(room: &[Room], spec: &StepSpec, each: u32) -> Option<Vec<Part>> {
    let fits = |room: &&Room| room.free.count() >= each;
    let mut places: Vec<(&Room, u32)> = room.iter().filter(fits).map(|room| (room, 0)).collect();
    let mut left = spec.tasks;
    if let Some(nodes) = spec.nodes {
        // Those with the most room, and a task on each at least.
        places.sort_by_key(|(room, _)| core::cmp::Reverse(room.free.count()));
        places.truncate(nodes as usize);
        if places.len() < nodes as usize || left < nodes {
            return None;
        }
        places.iter_mut().for_each(|(_, tasks)| *tasks = 1);
        left -= nodes;
    }
    for (room, tasks) in &mut places {
        let more = (room.free.count() / each - *tasks).min(left);
        *tasks += more;
        left -= more;
    }
    if left > 0 {
        return None;
    }
    places.retain(|(_, tasks)| *tasks > 0);
    places.sort_by_key(|(room, _)| room.node);
    let mut first = 0;
    let part = |(room, tasks): (&Room, u32)| {
        let processors = room.free.lowest(tasks * each);
        let part = Part::new(room.node, processors, first, tasks);
        first += tasks;
        Part { binding: Binding::Own(each), ..part }
    };
    Some(places.into_iter().map(part).collect())
}
