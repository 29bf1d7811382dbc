//! Lost ranks that are started again: jobs whose rule is [`OnNodeLoss::Respawn`].
//!
//! Of such a job a node's loss ends nothing. Its lost ranks wait for as many processors as they had,
//! on one node, and start there with the same numbers. Processors are looked for in this order:
//!
//! 1. where the ranks were, if the node is up and only its keeper lost them;
//! 2. free ones in the job's row, on a node where it has none;
//! 3. in another row, or a new one, where the processors of the other ranks are free too. Not
//!    under policies that preempt.
//!
//! The policy `deadline` promises all processors by time; under it nothing is looked for but the
//! place where the ranks were. A job whose turns a user or the scheduler took does not wait: its
//! time begins anew with its turns.
//!
//! Each start has a launch number of its own, higher than all before of the job, so that no report
//! of an earlier one counts. The node has it only for the ranks that it got; the other nodes keep
//! theirs.
//!
//! When the time is over, or after [`RESPAWNS_MAX`] starts, what the job named for that case
//! holds. A job that is asked to end does not wait for its ranks.

use crate::action::Action;
use crate::apply::Core;
use crate::devices::Asker;
use crate::event::Event;
use crate::policy;
use crate::state::record::{Deaths, Part, Place, Residence};
use crate::termination::memory_of;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::constraints::{NoRespawn, OnNodeLoss};
use tutti_types::ids::{JobId, LaunchId, NodeId, ProcessorSet, Rank, RowId};
use tutti_types::job::{EndReason, FirstStep, JobSpec, TaskStatus};
use tutti_types::limits::RESPAWNS_MAX;
use tutti_types::time::{ClusterTime, Nanos};

/// The ranks that wait, and the launches by which others were started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Respawns {
    /// Jobs with lost ranks that wait.
    waiting: BTreeMap<JobId, Waiting>,
    /// Jobs that had ranks started again.
    launches: BTreeMap<JobId, Launches>,
    /// What is to be started again once the timetables are out: the node, where it was, the ranks.
    ready: Vec<(JobId, NodeId, NodeId, Vec<Rank>)>,
    /// Something happened after which there may be room.
    look: bool,
}

/// The lost ranks of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Waiting {
    /// How long those of a node wait.
    until: BTreeMap<NodeId, ClusterTime>,
    /// The nodes of which nothing was said yet.
    fresh: Vec<NodeId>,
    /// Whether the job does not take its turns, so that no time runs.
    stands: bool,
}

/// The launches of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Launches {
    /// How often ranks of it were started again.
    made: u32,
    /// The number of the launch of the whole job.
    base: u32,
    /// Those of the nodes where ranks were started again.
    numbers: BTreeMap<NodeId, u32>,
}

/// Lost ranks of a job that wait for processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRanks {
    /// The node where they were.
    pub node: NodeId,
    /// Which.
    pub ranks: Vec<Rank>,
    /// How long they wait; `None`: the job does not take its turns, and no time runs.
    pub until: Option<ClusterTime>,
}

/// Where lost ranks can start.
struct Room {
    spot: Spot,
    node: NodeId,
    processors: ProcessorSet,
}

/// How a job gets the processors.
enum Spot {
    /// It has them.
    InPlace,
    /// In its row.
    OwnRow,
    /// In another row; `None`: a new one.
    Row(Option<RowId>),
}

impl Respawns {
    /// The ranks of a job on a node wait.
    pub(crate) fn await_ranks(&mut self, job: JobId, node: NodeId, until: ClusterTime) {
        let waiting = self.waiting.entry(job).or_default();
        if waiting.until.insert(node, until).is_none() {
            waiting.fresh.push(node);
        }
        self.look = true;
    }

    /// A job is launched as a whole the next time; it was in line again so often.
    pub(crate) fn begin_anew(&mut self, job: JobId, requeues: u32) {
        self.waiting.remove(&job);
        self.ready.retain(|(other, ..)| *other != job);
        if let Some(launches) = self.launches.get_mut(&job) {
            launches.base = requeues.saturating_add(launches.made);
            launches.numbers.clear();
        }
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.waiting.remove(&job);
        self.ready.retain(|(other, ..)| *other != job);
        self.launches.remove(&job);
    }

    /// When the first of those that wait has waited long enough.
    pub(crate) fn next(&self) -> ClusterTime {
        let running = self.waiting.values().filter(|waiting| !waiting.stands);
        let moments = running.flat_map(|waiting| waiting.until.values().copied());
        moments.min().unwrap_or(ClusterTime::NEVER)
    }
}

impl Core {
    /// The launch of a job that is on a node, or will be the next.
    #[must_use]
    pub fn launch_on(&self, job: JobId, node: NodeId) -> LaunchId {
        let launches = self.respawns.launches.get(&job);
        let own = launches.and_then(|it| it.numbers.get(&node).copied());
        let number = own.unwrap_or_else(|| self.launch_of(job).number);
        LaunchId { number, ..LaunchId::first(job) }
    }

    /// The launch of a job as a whole that is there, or will be the next.
    #[must_use]
    pub fn launch_of(&self, job: JobId) -> LaunchId {
        let requeues = || self.jobs.get(&job).map_or(0, |record| record.requeues);
        let number = self.respawns.launches.get(&job).map_or_else(requeues, |it| it.base);
        LaunchId { number, ..LaunchId::first(job) }
    }

    /// Whether ranks of a job were started again since it was launched as a whole.
    #[must_use]
    pub fn has_respawned(&self, job: JobId) -> bool {
        self.respawns.launches.get(&job).is_some_and(|it| !it.numbers.is_empty())
    }

    /// How often ranks of a job were started again.
    #[must_use]
    pub fn respawns(&self, job: JobId) -> u32 {
        self.respawns.launches.get(&job).map_or(0, |it| it.made)
    }

    /// The lost ranks of a job that wait for processors.
    #[must_use]
    pub fn waiting_ranks(&self, job: JobId) -> Vec<WaitingRanks> {
        let (Some(waiting), Some(residence)) =
            (self.respawns.waiting.get(&job), self.residence(job))
        else {
            return Vec::new();
        };
        let of_node = |(&node, &until): (&NodeId, &ClusterTime)| WaitingRanks {
            node,
            ranks: residence.lost_of(node),
            until: (!waiting.stands).then_some(until),
        };
        waiting.until.iter().map(of_node).collect()
    }

    /// Whether a job goes on as long as lost ranks of it wait.
    pub(crate) fn awaits_ranks(&self, job: JobId) -> bool {
        self.respawns.waiting.contains_key(&job)
    }

    /// Whether all ranks of a job are lost, and wait for processors.
    pub(crate) fn has_lost_all(&self, job: JobId, residence: &Residence) -> bool {
        self.awaits_ranks(job) && !residence.present()
    }

    /// Whether lost ranks of a job may be started again now.
    pub(crate) fn may_respawn(&self, job: JobId) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        matches!(record.spec.on_node_loss, OnNodeLoss::Respawn { .. })
            && !record.spec.attached
            && self.first_step(job) == FirstStep::EachSlot
            && self.respawns(job) < RESPAWNS_MAX
    }

    /// A job is ending: its lost ranks stay lost. Whether there were any.
    pub(crate) fn give_ranks_up(&mut self, job: JobId, actions: &mut Vec<Action>) -> bool {
        let Some(waiting) = self.respawns.waiting.remove(&job) else { return false };
        for node in waiting.until.into_keys() {
            let Some(residence) = self.residence_mut(job) else { continue };
            let ranks = residence.lost_of(node);
            residence.hear(TaskStatus::Lost);
            actions.push(Action::RanksGivenUp { job, node, ranks });
        }
        true
    }

    /// Starts lost ranks again where there is room, and stops waiting for it in time.
    pub(crate) fn follow_respawns(
        &mut self,
        now: ClusterTime,
        event: &Event,
        actions: &mut Vec<Action>,
    ) {
        if self.respawns.waiting.is_empty() {
            return;
        }
        let looks = core::mem::take(&mut self.respawns.look) || event.may_break_promises();
        for job in self.respawns.waiting.keys().copied().collect::<Vec<JobId>>() {
            let mut tells = self.say_fresh(job, actions);
            let mut fresh = Vec::new();
            let resumed = self.note_turns(now, job);
            if looks || resumed {
                fresh = self.respawn_where_possible(now, job, actions);
            }
            tells |= !fresh.is_empty();
            let is_late = |waiting: &Waiting| {
                !waiting.stands && waiting.until.values().any(|&until| until <= now)
            };
            if self.respawns.waiting.get(&job).is_some_and(is_late) {
                tells |= self.stop_waiting(now, job, actions);
            }
            if tells {
                self.tell_survivors(job, &fresh, actions);
            }
        }
    }

    /// Says which ranks of a job are newly lost. Whether any are.
    fn say_fresh(&mut self, job: JobId, actions: &mut Vec<Action>) -> bool {
        let Some(waiting) = self.respawns.waiting.get_mut(&job) else { return false };
        let fresh = core::mem::take(&mut waiting.fresh);
        let until = waiting.until.clone();
        for &node in &fresh {
            let ranks = self.residence(job).map(|it| it.lost_of(node)).unwrap_or_default();
            let until = until.get(&node).copied().unwrap_or(ClusterTime::NEVER);
            actions.push(Action::RanksLost { job, node, ranks, until });
        }
        !fresh.is_empty()
    }

    /// Whether lost ranks of a job wait for the turns of their job, not for processors; `None`:
    /// there is no such job. One of which all is lost takes its turns again where a line lets it.
    fn stands(&self, job: JobId) -> Option<bool> {
        let record = self.jobs.get(&job)?;
        let residence = record.residence()?;
        let lets_pass = self.yields_to_line(job) || self.awaits_resource(record);
        let is_nowhere = residence.place == Place::Aside
            && !residence.present()
            && !self.is_kept_preempted(job)
            && (self.policy().sets_aside() || !lets_pass);
        Some(record.suspended || !(residence.place == Place::Home || is_nowhere))
    }

    /// When something is to be done about lost ranks.
    pub(crate) fn next_respawn(&self) -> ClusterTime {
        let resumes =
            |(&job, waiting): (&JobId, &Waiting)| waiting.stands && self.stands(job) == Some(false);
        match self.respawns.waiting.iter().any(resumes) {
            true => self.now,
            false => self.respawns.next(),
        }
    }

    /// Notes whether a job takes its turns. Whether it does again.
    fn note_turns(&mut self, now: ClusterTime, job: JobId) -> bool {
        let Some(stands) = self.stands(job) else { return false };
        let Some(record) = self.jobs.get(&job) else { return false };
        let wait = wait_of(&record.spec);
        let Some(waiting) = self.respawns.waiting.get_mut(&job) else { return false };
        let resumed = core::mem::replace(&mut waiting.stands, stands) && !stands;
        if resumed {
            waiting.until.values_mut().for_each(|until| *until = now + wait);
        }
        resumed
    }

    /// The nodes where ranks of a job start again.
    fn respawn_where_possible(
        &mut self,
        now: ClusterTime,
        job: JobId,
        actions: &mut Vec<Action>,
    ) -> Vec<NodeId> {
        let mut begun = Vec::new();
        let Some(waiting) = self.respawns.waiting.get(&job).filter(|it| !it.stands) else {
            return begun;
        };
        for node in waiting.until.keys().copied().collect::<Vec<NodeId>>() {
            if self.respawns(job) >= RESPAWNS_MAX {
                break;
            }
            let Some(room) = self.room_for_ranks(job, node) else { continue };
            begun.push(room.node);
            self.respawn(now, (job, node), room);
            self.go_on_with_steps(now, job, actions);
        }
        let is_done = |waiting: &Waiting| waiting.until.is_empty();
        if self.respawns.waiting.get(&job).is_some_and(is_done) {
            self.respawns.waiting.remove(&job);
        } else if self.residence(job).is_some_and(|it| it.place == Place::Home)
            && self.matrix.seat(job).is_some_and(|seat| seat.parts.is_empty())
        {
            // It has no processors, and needs no place in the turns of others.
            self.put_aside(job);
        }
        begun
    }

    /// The processors where lost ranks of a job can start now.
    fn room_for_ranks(&self, job: JobId, from: NodeId) -> Option<Room> {
        let record = self.jobs.get(&job)?;
        let residence = record.residence()?;
        let part = residence.part(from)?;
        if !part.lost {
            let node = self.nodes.get(from).filter(|it| it.up && !it.away);
            let is_in_reach = node.is_some() && !self.nodes.is_in_doubt();
            let processors = part.processors.clone();
            return is_in_reach.then_some(Room { spot: Spot::InPlace, node: from, processors });
        }
        if self.policy().plans() {
            return None;
        }
        if let Some(seat) = self.matrix.seat(job).filter(|seat| !seat.parts.is_empty())
            && let Some((node, processors)) =
                self.free_in(&record.spec, residence, part, Some(seat.row))
        {
            return Some(Room { spot: Spot::OwnRow, node, processors });
        }
        if self.policy().sets_aside() {
            return None;
        }
        let ordinary = self.matrix.ordinary().map(|(row, _)| Some(row));
        let may_open = self.matrix.ordinary().count() < self.machine().rows as usize;
        let rows = ordinary.chain(may_open.then_some(None));
        let others = residence.places();
        let own = self.matrix.seat(job).map(|seat| seat.row);
        let suits = |row: &Option<RowId>| {
            let is_free = |(node, set): &(NodeId, ProcessorSet)| {
                set.is_subset(&self.matrix.free_on(*row, *node))
            };
            (row.is_none() || *row != own)
                && others.iter().all(is_free)
                && row.is_none_or(|row| !self.matrix.is_barred(job, row))
        };
        rows.filter(suits).find_map(|row| {
            let (node, processors) = self.free_in(&record.spec, residence, part, row)?;
            Some(Room { spot: Spot::Row(row), node, processors })
        })
    }

    /// Processors of one node that are free in a row, for lost ranks of a job: the node with the
    /// fewest free that suffice.
    fn free_in(
        &self,
        spec: &JobSpec,
        residence: &Residence,
        part: &Part,
        row: Option<RowId>,
    ) -> Option<(NodeId, ProcessorSet)> {
        let count = part.processors.count();
        let memory = memory_of(part, spec);
        let is_other = |node: NodeId| node == part.node || residence.part(node).is_none();
        let free_on = |node: NodeId| {
            let free = self.matrix.free_on(row, node);
            match self.foreign_on(node).filter(|_| self.avoids_external_load()) {
                Some(external) => free.without(external),
                None => free,
            }
        };
        let fits = |(node, column): (NodeId, &crate::matrix::Column)| {
            let free = free_on(node);
            let suits = !spec.nodes.exclusive || free == column.processors;
            let room = self.machine().free_bytes(node, &spec.class) >= memory
                && self.devices.tasks(node, spec, Asker::alone(None)) >= part.tasks;
            let fits = suits && free.count() >= count && room;
            (fits && spec.nodes.allows(node) && is_other(node)).then(|| (free.count(), node))
        };
        let (_, node) = self.matrix.open_columns().filter_map(fits).min()?;
        let free = free_on(node);
        let processors = if spec.nodes.exclusive {
            free
        } else if self.avoids_external_load() {
            free.lowest(count)
        } else {
            policy::choose(self.machine(), &spec.class, row, node, count)
        };
        Some((node, processors))
    }

    /// Gives lost ranks their processors.
    fn respawn(&mut self, now: ClusterTime, (job, from): (JobId, NodeId), room: Room) {
        let Room { spot, node, processors } = room;
        let requeues = self.jobs.get(&job).map_or(0, |record| record.requeues);
        if let Some(waiting) = self.respawns.waiting.get_mut(&job) {
            waiting.until.remove(&from);
        }
        let launches = self.respawns.launches.entry(job).or_insert(Launches {
            made: 0,
            base: requeues,
            numbers: BTreeMap::new(),
        });
        launches.made += 1;
        launches.numbers.remove(&from);
        launches.numbers.insert(node, requeues.saturating_add(launches.made));
        let more = [(node, processors.clone())];
        match spot {
            Spot::InPlace => self.matrix.deactivate(job),
            Spot::OwnRow => self.matrix.extend(job, &more),
            Spot::Row(_) => self.put_aside(job),
        }
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let spec = record.spec.clone();
        let Some(residence) = record.residence_mut() else { return };
        let ranks = residence.lost_of(from);
        residence.ended.retain(|rank, _| !ranks.contains(rank));
        let Some(part) = residence.part_mut(from) else { return };
        part.node = node;
        part.processors = processors;
        part.left = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        part.cleared = false;
        if core::mem::take(&mut part.lost) {
            let memory = memory_of(part, &spec);
            self.nodes.admit(node, memory);
            self.assign_devices_on(job, node);
        }
        if let Spot::Row(row) = spot {
            self.house_again(job, row, Place::Home);
        }
        let begins = self.activation(now);
        self.ledger.restart(job, begins);
        self.recount_freed(job);
        self.give_turns(job);
        // While it had no task, nothing was promised to it.
        self.want_promise(now, job);
        self.absent.remove(&(node, job));
        self.outbox.quieter.insert(node);
        self.outbox.nodes.push(node);
        self.respawns.ready.push((job, node, from, ranks));
        self.queue.reconsider();
        self.queue.disturbed = true;
        self.queue.stale = true;
    }

    /// Lost ranks of a job have waited for too long. Whether the job goes on without them.
    fn stop_waiting(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let OnNodeLoss::Respawn { otherwise, .. } = record.spec.on_node_loss else { return false };
        let Some(waiting) = self.respawns.waiting.get_mut(&job) else { return false };
        let late = waiting.until.iter().filter(|(_, until)| **until <= now);
        let late: Vec<NodeId> = late.map(|(&node, _)| node).collect();
        let Some(&first) = late.first() else { return false };
        match otherwise {
            NoRespawn::Kill | NoRespawn::Requeue => {
                let order = (EndReason::NodeLost(first), Deaths::Collateral);
                self.kill_resident(now, job, order, actions);
                false
            }
            NoRespawn::Notify => {
                waiting.until.retain(|node, _| !late.contains(node));
                if waiting.until.is_empty() {
                    self.respawns.waiting.remove(&job);
                }
                for node in late {
                    let Some(residence) = self.residence_mut(job) else { continue };
                    residence.hear(TaskStatus::Lost);
                    let ranks = residence.lost_of(node);
                    actions.push(Action::RanksGivenUp { job, node, ranks });
                }
                self.finish_if_cleared(job, actions);
                true
            }
        }
    }

    /// The other ranks of a job get its signal, if it named one: those that were just started again
    /// know.
    fn tell_survivors(&self, job: JobId, fresh: &[NodeId], actions: &mut Vec<Action>) {
        let Some(record) = self.jobs.get(&job) else { return };
        let OnNodeLoss::Respawn { signal: Some(signal), .. } = record.spec.on_node_loss else {
            return;
        };
        let Some(residence) = record.residence().filter(|it| !it.ending()) else { return };
        let here = residence.parts.iter().filter(|part| !part.cleared && part.left > 0);
        for part in here.filter(|part| !fresh.contains(&part.node)) {
            actions.push(Action::Signal { job, node: part.node, ranks: Vec::new(), signal });
        }
    }

    /// Has lost ranks started again, once the timetables are out that name them.
    pub(crate) fn launch_again(&mut self, actions: &mut Vec<Action>) {
        for (job, node, from, ranks) in core::mem::take(&mut self.respawns.ready) {
            actions.push(Action::Respawn { job, node, from, ranks });
        }
    }
}

/// How long lost ranks of a job wait.
const fn wait_of(spec: &JobSpec) -> Nanos {
    match spec.on_node_loss {
        OnNodeLoss::Respawn { wait, .. } => wait,
        OnNodeLoss::Kill | OnNodeLoss::Requeue | OnNodeLoss::Notify { .. } => Nanos::ZERO,
    }
}
