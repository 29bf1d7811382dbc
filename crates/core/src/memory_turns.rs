//! Turns in memory: jobs that do not fit into memory beside each other have it one after the other.
//!
//! Jobs that take turns have their memory in place all the time, so a job that does not fit beside
//! them waits. Where it and others may be swapped out ([`crate::swap`]), they take turns
//! in memory instead, much longer ones than those of the timetable:
//!
//! - A job that waits for memory, in line or preempted, gets a turn when jobs that may leave have
//!   been in memory for a *slice*. These are preempted, the longest stay first and no more than
//!   needed; swap space must suffice. The longest wait comes first, and before all a job that is
//!   at home already and lacks memory. One that would lack memory without all of them holds up no
//!   other.
//! - One exchange goes on at a time. Until the job that has the turn has begun, others that are out
//!   do not come back, for a slice at most.
//! - A slice is so long that moving memory out and back takes at most the part `swap_cost` of it:
//!   the job's bytes over the bandwidth that its nodes had when memory left them last. The same
//!   holds for a frame: a job that is back may wait so long for its turn.
//! - Shares stay what they are. A job that is out for another's turn counts in the frame as if it
//!   were there, and what it would have goes to a row with such a job on its nodes, which stands in
//!   for it. So of two jobs that take turns in memory beside a third, each has a third of the time:
//!   two thirds of each frame while it is in.
//!
//! There are no such turns where rows are not shared ([`space`](crate::policy)), or by levels, or
//! where a policy preempts by its own rules.

use crate::apply::Core;
use crate::frame::Layout;
use crate::matrix::Owner;
use crate::policy::{Decision, Machine, WaitReason};
use crate::share::Present;
use crate::state::record::{Course, Phase, Place, Residence};
use crate::termination::memory_of;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{ClassName, JobId, NodeId, RowId};
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::time::{ClusterTime, Nanos};

/// The bandwidth of a node that has moved no memory yet, in bytes a second: that of a slow disk.
const RATE_UNKNOWN: u64 = 100 << 20;

/// The jobs that are out for others' turns, and how fast memory leaves nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct MemoryTurns {
    /// The jobs that left for the turn of another, and since when.
    out: BTreeMap<JobId, ClusterTime>,
    /// The job that the last of them left for, and when.
    turn_of: Option<(JobId, ClusterTime)>,
    /// Since when the memory of jobs is back that were out.
    back: BTreeMap<JobId, ClusterTime>,
    /// Those that are out as they count in the frame.
    absent: Vec<Absent>,
    /// How many bytes a second left each node the last time.
    rates: BTreeMap<NodeId, u64>,
}

impl MemoryTurns {
    /// So many bytes have left a node in so long.
    pub(crate) fn note_rate(&mut self, node: NodeId, bytes: u64, took: Nanos) {
        if bytes == 0 || took == Nanos::ZERO {
            return;
        }
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(took.0);
        self.rates.insert(node, u64::try_from(rate).unwrap_or(u64::MAX).max(1));
    }

    /// A job has ended, or starts anew.
    pub(crate) fn end(&mut self, job: JobId) {
        self.out.remove(&job);
        self.back.remove(&job);
    }

    /// A job has its memory and runs.
    pub(crate) fn is_back(&mut self, job: JobId, now: ClusterTime) {
        if self.out.remove(&job).is_some() {
            self.back.insert(job, now);
        }
    }

    /// A node is one no longer.
    pub(crate) fn remove_node(&mut self, node: NodeId) {
        self.rates.remove(&node);
    }

    fn time_to_move(&self, node: NodeId, bytes: u64) -> u128 {
        let rate = self.rates.get(&node).copied().unwrap_or(RATE_UNKNOWN);
        u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))
    }
}

/// A job that is out for the turn of another, as it counts in the frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Absent {
    /// A row that does not exist, for it alone.
    pub(crate) row: RowId,
    pub(crate) class: ClassName,
    pub(crate) owner: Owner,
    /// The row that has its time.
    pub(crate) stands_in: RowId,
}

impl Core {
    /// Gives a job that waits for memory its turn, if it is time for that.
    pub(crate) fn take_turns_in_memory(&mut self) {
        if !self.have_turns_in_memory() {
            return;
        }
        // A turn may have begun just now: those that fit beside it come back.
        if !self.swaps.turns.out.is_empty() {
            self.bring_back();
        }
        let Some((next, leaving)) = self.next_turn_in_memory() else { return };
        let (now, blocked) = (self.now, self.queue.blocked);
        for &job in &leaving {
            self.swaps.turns.out.insert(job, now);
            self.move_out(job);
        }
        self.swaps.turns.turn_of = Some((next, now));
        // Until they are gone, the first in line waits as before.
        self.queue.blocked = blocked;
    }

    /// Whether a job is out for the turn of another that has not begun it. That one has a slice to
    /// begin. Also while memory moves: of two that come back at once, one may wait for the memory
    /// of the other.
    pub(crate) fn awaits_turn_of_another(&self, job: JobId) -> bool {
        let ends = self.residence(job).is_some_and(Residence::ending);
        let is_out = self.swaps.turns.out.contains_key(&job) && !ends;
        is_out && (self.is_memory_moving() || self.waits_for_turn_until(job) > self.now)
    }

    fn waits_for_turn_until(&self, job: JobId) -> ClusterTime {
        let Some((next, given)) = self.swaps.turns.turn_of else { return ClusterTime(0) };
        let has_begun = match self.residence(next) {
            Some(residence) => residence.place == Place::Home && !self.swaps.has(next),
            None => !self.queue.waiting.contains(&next),
        };
        let ends = self.residence(job).is_some_and(Residence::ending);
        match next == job || has_begun || ends {
            true => ClusterTime(0),
            false => given + self.slice_in_memory(job, next),
        }
    }

    /// When a turn in memory may be over; never, if no job waits for one.
    pub(crate) fn next_end_of_turn(&self) -> ClusterTime {
        let out = self.swaps.turns.out.keys().map(|&job| self.waits_for_turn_until(job));
        let waiting = self.waiting_for_memory();
        let staying = match waiting.is_empty() {
            true => Vec::new(),
            false => self.may_leave_memory(),
        };
        let stays = waiting.iter().flat_map(|&next| {
            staying.iter().map(move |&(since, job)| since + self.slice_in_memory(job, next))
        });
        out.chain(stays).filter(|&at| at > self.now).min().unwrap_or(ClusterTime::NEVER)
    }

    fn have_turns_in_memory(&self) -> bool {
        if !self.swaps.any_may_leave(&self.params) {
            return false;
        }
        let policy = self.policy();
        let shares_rows = (policy.shares.rows)(&self.params) > 1 && !policy.has_levels;
        shares_rows && !policy.sets_aside()
    }

    /// The job that has the next turn, and those that leave for it.
    fn next_turn_in_memory(&self) -> Option<(JobId, Vec<JobId>)> {
        let waiting = self.waiting_for_memory();
        if waiting.is_empty() || self.is_memory_moving() {
            return None;
        }
        let mut staying = self.may_leave_memory();
        staying.sort_unstable();
        let mut waiting = waiting.into_iter().peekable();
        while let Some(next) = waiting.next() {
            let is_over = |&&(since, job): &&(ClusterTime, JobId)| {
                since + self.slice_in_memory(job, next) <= self.now
            };
            let over = staying.iter().filter(is_over).map(|&(_, job)| job).collect();
            if let Some(leaving) = self.leave_for(next, over) {
                return Some((next, leaving));
            }
            // It waits for the end of a slice, and no other passes it.
            let all = || staying.iter().map(|&(_, job)| job).collect();
            if waiting.peek().is_some() && self.leave_for(next, all()).is_some() {
                return None;
            }
        }
        None
    }

    /// Whether the memory of any job is on its way, or a job that was out is.
    fn is_memory_moving(&self) -> bool {
        let moves = |job: &JobId| {
            let place = self.residence(*job).map(|residence| residence.place);
            matches!(place, Some(Place::Leaving | Place::Coming))
        };
        self.swaps.is_moving() || self.swaps.turns.out.keys().any(moves)
    }

    /// The jobs that wait for memory: those at home, then those that are out and the first in line,
    /// the longest wait first.
    fn waiting_for_memory(&self) -> Vec<JobId> {
        if !self.have_turns_in_memory() {
            return Vec::new();
        }
        let waits = |job: JobId| {
            let record = self.jobs.get(&job)?;
            let may = self.aside.contains(&job)
                && record.residence()?.may_come_back()
                && !record.suspended
                && !self.awaits_resource(record)
                && self.kept_out_until(job) <= self.now
                && !self.may_swap_in(job);
            may.then_some(())
        };
        let out = self.swaps.turns.out.iter().filter(|&(&job, _)| waits(job).is_some());
        let out = out.map(|(&job, &since)| (since, job));
        let mut after: Vec<(ClusterTime, JobId)> = out.chain(self.first_for_memory()).collect();
        after.sort_unstable();
        self.swaps.lacking().chain(after.into_iter().map(|(_, job)| job)).collect()
    }

    /// The first in line, if all that it waits for is memory, and since when it waits. Not with as
    /// many jobs out as there may be rows.
    fn first_for_memory(&self) -> Option<(ClusterTime, JobId)> {
        let for_memory = matches!(
            self.queue.blocked,
            Some(WaitReason::Memory | WaitReason::MemoryLeaves { .. })
        );
        let job = self.queue.first().filter(|_| for_memory)?;
        let record = self.jobs.get(&job)?;
        let rows = (self.policy().shares.rows)(&self.params) as usize;
        let may = !record.spec.movable
            && self.swaps.may_leave_by(&self.params, job)
            && self.swaps.turns.out.len() < rows
            && self.lacks_resource(&record.spec).is_none();
        match record.phase {
            Phase::Queued { since } if may => Some((since, job)),
            Phase::Queued { .. } | Phase::Resident(_) => None,
        }
    }

    /// The jobs in memory that may leave, each with since when it has been there.
    fn may_leave_memory(&self) -> Vec<(ClusterTime, JobId)> {
        let stays = |job: JobId| {
            let record = self.jobs.get(&job)?;
            let residence = record.residence().filter(|it| it.place == Place::Home)?;
            let runs = residence.course == Course::Running && self.takes_turns(job);
            let may = runs && record.deadline.is_none() && self.swappable_on(job).is_some();
            let since = self.swaps.turns.back.get(&job).copied().unwrap_or(residence.moved);
            may.then_some((since, job))
        };
        let asked = self.swaps.asked_of(&self.params);
        match asked {
            Some(asked) => asked.iter().copied().filter_map(stays).collect(),
            None => self.jobs.keys().filter_map(stays).collect(),
        }
    }

    /// How long a job stays in memory at least before it leaves for another: both move once in that
    /// time, out or back. A job that is back may wait a frame for its turn: that counts likewise.
    fn slice_in_memory(&self, job: JobId, next: JobId) -> Nanos {
        let longest = self.time_to_move(job).max(self.time_to_move(next));
        let slots = self.frame.slots.iter().map(|slot| u128::from(slot.length.0));
        let frame = slots.sum::<u128>().max(u128::from(self.params.quantum().0));
        let costs = longest.saturating_mul(2).max(frame);
        let least = costs.saturating_mul(u128::from(SHARE_WHOLE))
            / u128::from(self.params.swap_cost().max(1));
        Nanos(u64::try_from(least).unwrap_or(u64::MAX))
    }

    /// How long the memory of a job takes to leave its nodes, which move it at the same time.
    fn time_to_move(&self, job: JobId) -> u128 {
        let Some(record) = self.jobs.get(&job) else { return 0 };
        let turns = &self.swaps.turns;
        match record.residence() {
            Some(residence) => {
                let parts = residence.parts.iter();
                let each = parts.map(|it| turns.time_to_move(it.node, memory_of(it, &record.spec)));
                each.max().unwrap_or(0)
            }
            // On how many nodes it will be is not known: at worst on the slowest alone.
            None => {
                let each = record.spec.memory_per_task_bytes.unwrap_or(0);
                let bytes = each.saturating_mul(u64::from(record.spec.tasks));
                let nodes = turns.rates.keys().map(|&node| turns.time_to_move(node, bytes));
                nodes.max().unwrap_or_else(|| turns.time_to_move(NodeId(0), bytes))
            }
        }
    }

    /// Those of the jobs without which another would have its memory, in this order.
    fn leave_for(&self, next: JobId, jobs: Vec<JobId>) -> Option<Vec<JobId>> {
        if jobs.is_empty() {
            return None;
        }
        let spec = &self.jobs.get(&next)?.spec;
        let on = self.residence(next).map(|residence| &residence.parts);
        let is_beside = |job: JobId| {
            let there = self.residence(job);
            on.is_none_or(|parts| {
                parts.iter().any(|part| there.is_some_and(|it| it.part(part.node).is_some()))
            })
        };
        let (mut matrix, mut nodes) = (self.matrix.clone(), self.nodes.clone());
        let mut leaving = Vec::new();
        for job in jobs.into_iter().filter(|&job| is_beside(job)) {
            matrix.remove(job);
            self.without_memory_of(job, &mut nodes);
            leaving.push(job);
            let machine = Machine { matrix: &matrix, nodes: &nodes, ..self.machine() };
            let has_memory = match on {
                Some(_) => self.may_swap_in_of(next, |node| self.bytes_of(machine, next, node)),
                None => matches!(self.policy().decide(machine, spec), Some(Decision::Start { .. })),
            };
            if has_memory {
                return Some(leaving);
            }
        }
        None
    }

    /// Notes which jobs that are out count in the frame; whether they are others than before, or
    /// other rows stand in for them.
    pub(crate) fn note_absent(&mut self) -> bool {
        if self.swaps.turns.out.is_empty() && self.swaps.turns.absent.is_empty() {
            return false;
        }
        let is_live =
            |id: RowId| self.matrix.rows().any(|(row, view)| row == id && !view.classes.is_empty());
        let absent = self.absent(is_live);
        let before = core::mem::replace(&mut self.swaps.turns.absent, absent);
        before != self.swaps.turns.absent
    }

    /// Adds the jobs that are out for others' turns, each in a row of its own that does not exist.
    /// Gives the row that stands in for each of them.
    pub(crate) fn add_absent(&self, present: &mut Present) -> BTreeMap<RowId, RowId> {
        let absent = self.absent(|row| present.contains_key(&row));
        let standing_in = absent.iter().map(|it| (it.row, it.stands_in)).collect();
        for Absent { row, class, owner, .. } in absent {
            let users = [(owner.user, self.weight(owner))].into();
            present.insert(row, [(class, users)].into());
        }
        standing_in
    }

    /// The jobs that are out for others' turns and for which one of these rows stands in.
    pub(crate) fn absent(&self, is_row: impl Fn(RowId) -> bool) -> Vec<Absent> {
        if self.swaps.turns.out.is_empty() || !self.have_turns_in_memory() {
            return Vec::new();
        }
        let out = self.swaps.turns.out.keys().filter(|job| self.aside.contains(job));
        let absent = out.zip(0..).filter_map(|(&job, index)| {
            let spec = &self.jobs.get(&job).filter(|record| !record.suspended)?.spec;
            let stands_in = self.stands_in(job).filter(|&row| is_row(row))?;
            let class = self.seat_class(job, &spec.class);
            let row = RowId(u64::MAX - index);
            Some(Absent { row, class, owner: Owner::of(spec), stands_in })
        });
        absent.collect()
    }

    /// The first row with a job that takes turns in memory with one that is out.
    fn stands_in(&self, job: JobId) -> Option<RowId> {
        let nodes = self.residence(job)?.parts.iter().filter(|part| !part.lost);
        let columns = nodes.filter_map(|part| self.matrix.column(part.node));
        let homes = columns.flat_map(|column| &column.residents);
        let may = |other: JobId| self.takes_turns(other) && self.swappable_on(other).is_some();
        homes.filter(|&&(_, other)| may(other)).map(|&(row, _)| row).min()
    }
}

/// Gives the time of absent jobs to the rows that stand in for them.
pub(crate) fn give_to(standing_in: &BTreeMap<RowId, RowId>, layout: &mut Layout) {
    let Layout::Turns(turns) = layout else { return };
    for (absent, &row) in standing_in {
        let Some(absent) = turns.remove(absent) else { continue };
        match turns.get_mut(&row) {
            Some(turns) => turns.length += absent.length,
            None => {
                turns.insert(row, absent);
            }
        }
    }
}
