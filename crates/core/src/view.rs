//! What a driver may see of the core, to show it, and to know when what it simulates will end.
//!
//! A driver that simulates tasks need not step through turns. A job that is to end after so much
//! service ends when [`Core::clock`] of the rows that it [`Core::runs_in`] shows so much more than
//! now: that mark stays right, whatever becomes of the frame, until [`Core::moved`] names the job. So
//! jobs that run in the same rows can wait in one list by their marks, of which only the first is ever
//! asked about: [`Core::reaches`] says when. It is to be asked again after each event.

use crate::apply::Core;
use crate::frame::Frame;
use crate::ledger::Moved;
use crate::levels::Levels;
use crate::line::{InLine, Listed, Overridden};
use crate::matrix::{Column, Seat};
use crate::policy::{Lack, WaitReason};
use crate::state::record::Place;
use crate::state::record::{Course, Part, Phase, Record};
use crate::swap::SwapView;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use tutti_types::class::Classes;
use tutti_types::ids::{
    ClassName, FeatureName, JobId, NodeId, NodeSetName, ProcessorSet, QueueName, Rank, RowId,
    UserId,
};
use tutti_types::job::{EndReason, FirstStep, JobSpec, NodeSpec, TaskStatus};
use tutti_types::node_performance::Figures;
use tutti_types::params::Params;
use tutti_types::resource::Grant;
use tutti_types::settings::Settings;
use tutti_types::time::{ClusterTime, Nanos};

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView<'a> {
    /// Its number.
    pub id: JobId,
    /// What was asked, with its class.
    pub spec: &'a JobSpec,
    /// The class that it had before its owner's allowance was spent.
    pub former_class: Option<&'a ClassName>,
    /// The queue that it is in, if any.
    pub queue: Option<&'a QueueName>,
    /// The promise to it that an administrator's move has broken, while it waits.
    pub overridden: Option<Overridden>,
    /// Where it stands.
    pub state: JobState,
    /// By when it must be done, if it named that.
    pub deadline: Option<ClusterTime>,
    /// Since when its deadline may be missed; `None` while it is kept, or there is none.
    pub at_risk: Option<ClusterTime>,
    /// Whether a user has it suspended.
    pub suspended: bool,
    /// How often it was in line again since a node was lost.
    pub requeues: u32,
    /// Whether it is asked to save its state and end.
    pub is_saving: bool,
    /// Whether its latest run ended with its state saved, which the next one resumes.
    pub is_saved: bool,
    /// Whether it is in the matrix, or set aside; counts once it has been placed.
    pub place: Place,
    /// What it has of the resources that it asked for.
    pub resources: &'a [Grant],
    /// Why it is set aside, while it is.
    pub why_aside: Option<WaitReason>,
    /// Its home row, while it has one.
    pub row: Option<RowId>,
    /// Its processors and tasks by node, lowest ranks first.
    pub placements: Vec<PlacementView>,
    /// Time that its turns gave it.
    pub service: Nanos,
    /// The tasks that have ended.
    pub ended: Vec<(Rank, TaskStatus)>,
    /// What it starts with.
    pub first: FirstStep,
    /// How far its memory has left, or come back, if not all of it is here.
    pub swap: Option<SwapView>,
    /// How many of its processors it lends; all of them: it takes no turns until a step wants some.
    pub lent: u64,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits.
    Queued {
        /// Since when.
        since: ClusterTime,
        /// Why.
        why: WaitReason,
    },
    /// It has been placed: it is in the matrix, or set aside.
    Running {
        /// Since when.
        since: ClusterTime,
    },
    /// It was asked to end, or killed, and is waited for.
    Ending {
        /// Since when it has been placed.
        since: ClusterTime,
        /// Why it ends.
        reason: EndReason,
        /// When it will be killed; `None`: it has been.
        kill_at: Option<ClusterTime>,
    },
}

/// A job's part on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementView {
    /// The node.
    pub node: NodeId,
    /// The processors.
    pub processors: ProcessorSet,
    /// The lowest rank there.
    pub first_rank: Rank,
    /// How many tasks begin there, with ranks from the lowest on.
    pub tasks: u32,
    /// How many slots there are.
    pub slots: u32,
    /// Tasks that haven't ended.
    pub tasks_left: u32,
    /// Whether nothing of the job is left there.
    pub cleared: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    /// Its number.
    pub id: NodeId,
    /// What it has.
    pub spec: &'a NodeSpec,
    /// Whether its agent is there.
    pub up: bool,
    /// Whether it is out of reach just now.
    pub away: bool,
    /// The processors that any resident job has, over all rows.
    pub used: ProcessorSet,
    /// Memory allocated to resident jobs, in bytes.
    pub admitted_bytes: u64,
    /// What it can do, once it was measured.
    pub figures: Option<Figures>,
    /// Why it takes no new jobs, if it takes none; may be no words.
    pub drained: Option<&'a str>,
    /// The resident jobs with tasks there.
    pub jobs: Vec<JobId>,
}

/// A row of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowView {
    /// Its number.
    pub id: RowId,
    /// The length of its slot; `None`: it has none now.
    pub length: Option<Nanos>,
    /// Which job has which processors, homes first.
    pub cells: Vec<CellView>,
}

/// Processors of one node in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellView {
    /// The node.
    pub node: NodeId,
    /// Whose they are.
    pub job: JobId,
    /// Which.
    pub processors: ProcessorSet,
    /// Whether the job is a guest here, at home in another row.
    pub guest: bool,
}

/// Of the jobs of one priority that are before another in line: the one that came last, and the last
/// of any other user.
#[derive(Default)]
struct Latest {
    priority: Option<u64>,
    last: Option<(JobId, UserId)>,
    of_others: Option<JobId>,
}

impl Latest {
    /// The next in line: whether a job of another user that came later is before it.
    fn pass(&mut self, job: JobId, listed: &Listed) -> bool {
        if self.priority != Some(listed.priority) {
            *self = Self { priority: Some(listed.priority), ..Self::default() };
        }
        let user = listed.user;
        let other = match self.last {
            Some((last, of)) if of != user => Some(last),
            Some(_) | None => self.of_others,
        };
        match self.last {
            Some((last, of)) if of != user && last < job => {
                self.of_others = Some(last);
                self.last = Some((job, user));
            }
            Some((last, of)) if of == user => self.last = Some((last.max(job), user)),
            Some(_) => self.of_others = self.of_others.max(Some(job)),
            None => self.last = Some((job, user)),
        }
        other.is_some_and(|other| other > job)
    }
}

impl Core {
    /// When all that was decided so far is counted for jobs: not at once where changes of the
    /// timetable are put off.
    #[must_use]
    pub fn counts_from(&self) -> ClusterTime {
        self.ledger.last_stage().map_or(self.now, |at| at.max(self.now))
    }

    /// All jobs that have not ended, by number, as of `now`.
    pub fn jobs(&self, now: ClusterTime) -> impl Iterator<Item = JobView<'_>> {
        self.jobs.values().map(move |record| self.view(record, now))
    }

    /// One job, as of `now`; `None` once it has ended.
    #[must_use]
    pub fn job(&self, job: JobId, now: ClusterTime) -> Option<JobView<'_>> {
        self.jobs.get(&job).map(|record| self.view(record, now))
    }

    /// The jobs in line, first to last, with their places; none where there is no line. It takes as many
    /// steps as there are jobs in line.
    pub fn line(&self) -> impl Iterator<Item = (JobId, InLine)> + '_ {
        let has_line = !self.policy().sets_aside();
        let jobs = self.queue.in_order(self.params.quantum(), self.now).filter(move |_| has_line);
        let mut before = None;
        let mut latest = Latest::default();
        (1..).zip(jobs).map(move |(position, (job, listed))| {
            let listed = listed.filter(|_| !self.is_moved(job));
            let yields = listed.is_some_and(|listed| latest.pass(job, &listed));
            (job, InLine { position, before: before.replace(job), yields })
        })
    }

    /// A job's tasks by node, lowest ranks first; none before it is launched.
    #[must_use]
    pub fn parts(&self, job: JobId) -> &[Part] {
        self.residence(job).map_or(&[], |residence| &residence.parts)
    }

    /// How long a job has run in its turns, as of the latest event; no time once it has ended.
    #[must_use]
    pub fn service(&self, job: JobId) -> Nanos {
        self.ledger.service(job, self.now)
    }

    /// Whether a job lends all that it has, so that it takes no turns until a step wants some.
    #[must_use]
    pub fn lends_all(&self, job: JobId) -> bool {
        self.freed.lending.is_whole(job)
    }

    /// The rows in whose slots a job runs now, always in the same order: its own, and those where it
    /// runs in place of others. None while it runs nowhere.
    #[must_use]
    pub fn runs_in(&self, job: JobId) -> &[RowId] {
        self.ledger.runs(job)
    }

    /// Whose service grows otherwise than before the latest event.
    #[must_use]
    pub const fn moved(&self) -> &Moved {
        self.ledger.moved()
    }

    /// How long the slots of these rows have lasted, added up over the rows, as of the latest event.
    /// What a job gets while it runs in exactly these rows is how much this grows.
    ///
    /// A row that is gone counts nothing; no job runs in its slot.
    #[must_use]
    pub fn clock(&self, rows: &[RowId]) -> Nanos {
        self.ledger.clock(rows)
    }

    /// When the jobs in exactly these rows will have got so much more than at the latest event, if
    /// nothing changes; [`ClusterTime::NEVER`]: never.
    #[must_use]
    pub fn reaches(&self, rows: &[RowId], need: Nanos) -> ClusterTime {
        self.ledger.reaches_in(rows, need)
    }

    /// The frame in effect at the latest event, which [`Core::runs_in`] goes by: not yet the one that
    /// was last decided on, if that activates later.
    #[must_use]
    pub const fn frame_in_effect(&self) -> &Frame {
        self.ledger.frame()
    }

    /// When a change that was decided on takes effect, with a `lead`: which jobs run in which rows
    /// is otherwise from then on, but is only told with the first event that follows.
    /// [`ClusterTime::NEVER`]: all that was decided on is in effect.
    #[must_use]
    pub fn next_change(&self) -> ClusterTime {
        self.ledger.next_stage()
    }

    /// Since when a job's deadline may be missed; `None` while it is kept, or there is none.
    #[must_use]
    pub fn at_risk(&self, job: JobId) -> Option<ClusterTime> {
        self.plans.at_risk.get(&job).copied()
    }

    /// How many jobs have not ended.
    #[must_use]
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// What a node has that ever joined.
    #[must_use]
    pub fn node_spec(&self, node: NodeId) -> Option<&NodeSpec> {
        self.nodes.get(node).map(|node| &node.spec)
    }

    /// What a node has; `None`: it is not up.
    #[must_use]
    pub fn up_node(&self, node: NodeId) -> Option<&NodeSpec> {
        self.nodes.get(node).filter(|node| node.up).map(|node| &node.spec)
    }

    /// The numbers of all nodes that ever joined.
    pub fn node_numbers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().map(|(node, _)| node)
    }

    /// All nodes that ever joined, by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.nodes.iter().map(|(id, node)| {
            let column = self.matrix.column(id);
            let taken = |p: &u32| column.is_some_and(|column| column.load_of(*p) > 0);
            NodeView {
                id,
                spec: &node.spec,
                up: node.up,
                away: node.away,
                used: node.spec.processors.iter().filter(taken).collect(),
                admitted_bytes: node.admitted_bytes,
                figures: node.figures,
                drained: node.drained.as_deref(),
                jobs: column.map_or(Vec::new(), |column| self.jobs_on(id, column)),
            }
        })
    }

    /// Nodes whose agent is not there.
    pub fn lost_nodes(&self) -> impl Iterator<Item = &NodeSpec> {
        self.nodes.iter().filter(|(_, node)| !node.up).map(|(_, node)| &node.spec)
    }

    /// How many nodes are up and not out of reach just now.
    #[must_use]
    pub fn reached_nodes(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.up && !node.away).count()
    }

    /// What programs may need of a node's processors, as its agent found it.
    pub fn node_features(&self, node: NodeId) -> impl Iterator<Item = &FeatureName> {
        self.features.get(&node).into_iter().flatten()
    }

    /// The sets of nodes that have a name.
    #[must_use]
    pub const fn node_sets(&self) -> &BTreeMap<NodeSetName, BTreeSet<NodeId>> {
        self.nodes.sets()
    }

    /// The rows of the matrix, oldest first; slots held for absent classes come last.
    pub fn rows(&self) -> impl Iterator<Item = RowView> + '_ {
        let rows = self.matrix.rows().map(move |(id, row)| {
            let here =
                move |job: &JobId, seat: &Seat| seat.row == id && self.jobs.contains_key(job);
            let homes = self.matrix.seats().filter(move |(job, seat)| here(job, seat));
            let homes = homes.flat_map(|(job, _)| self.cells(job, false));
            let guests = row.guests.iter().flat_map(|&job| self.cells(job, true));
            RowView { id, length: self.frame.length_of(id), cells: homes.chain(guests).collect() }
        });
        let held = self.held.values().map(|&id| RowView {
            id,
            length: self.frame.length_of(id),
            cells: Vec::new(),
        });
        rows.chain(held)
    }

    /// The controllers of levels, under a policy that has them.
    #[must_use]
    pub fn levels(&self) -> Option<&Levels> {
        self.matrix.levels()
    }

    /// The frame that was last decided on: the slots in order, and since when they count.
    #[must_use]
    pub const fn frame(&self) -> &Frame {
        &self.frame
    }

    /// All that an administrator has set, for whatever hour.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How much of the week has passed, as far as the core was told; see
    /// [`Event::Calendar`](crate::Event::Calendar).
    #[must_use]
    pub fn week(&self, at: ClusterTime) -> Option<Nanos> {
        self.calendar.map(|calendar| calendar.week(at))
    }

    /// The parameters, as they are now.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// The classes, as they are now.
    #[must_use]
    pub const fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The jobs with tasks on a node that is up, by number.
    fn jobs_on(&self, node: NodeId, column: &Column) -> Vec<JobId> {
        let homes = column.residents.iter().map(|&(_, job)| job);
        let homes = homes.filter(|job| self.jobs.contains_key(job));
        let mut jobs: Vec<JobId> = homes.chain(self.aside_on(node)).collect();
        jobs.sort_unstable();
        jobs
    }

    fn cells(&self, job: JobId, guest: bool) -> impl Iterator<Item = CellView> + '_ {
        let seat = self.matrix.seat(job);
        let parts = seat.into_iter().flat_map(|seat| seat.parts.iter());
        // What a home lends has a cell of its own while a guest is there.
        let used = move |node| seat.and_then(|seat| seat.used_on(node)).unwrap_or_default();
        parts.map(move |&(node, _)| CellView { node, job, processors: used(node), guest })
    }

    fn view<'a>(&'a self, record: &'a Record, now: ClusterTime) -> JobView<'a> {
        let mut view = JobView {
            id: record.id,
            spec: &record.spec,
            former_class: record.former.as_ref(),
            state: JobState::Queued { since: now, why: WaitReason::Suspended },
            deadline: record.deadline,
            at_risk: self.at_risk(record.id),
            queue: self.queue_of(record.id),
            overridden: self.overridden(record.id),
            suspended: record.suspended,
            requeues: record.requeues,
            is_saving: self.checkpoints.until(record.id).is_some(),
            is_saved: self.checkpoints.is_saved(record.id),
            place: record.residence().map(|residence| residence.place).unwrap_or_default(),
            resources: record.residence().map_or(&[], |residence| &residence.resources),
            why_aside: None,
            row: self.matrix.seat(record.id).map(|seat| seat.row),
            placements: Vec::new(),
            service: self.ledger.service(record.id, now),
            ended: Vec::new(),
            first: self.first_step(record.id),
            swap: self.swap_view(record.id),
            lent: self.lent_processors(record.id),
        };
        match &record.phase {
            Phase::Queued { since } => {
                view.state =
                    JobState::Queued { since: *since, why: self.why_waits(record.id, now) };
            }
            Phase::Resident(residence) => {
                view.state = state(residence.since, residence.course);
                let aside = self.aside.contains(&record.id) && !record.suspended;
                view.why_aside =
                    aside.then(|| self.or_memory(record.id, self.why_aside(record.id, now)));
                view.placements = residence.parts.iter().map(placement).collect();
                view.ended = residence.ended.iter().map(|(&rank, &s)| (rank, s)).collect();
            }
        }
        view
    }

    /// Why a job has no processors under a policy that sets jobs aside.
    fn why_aside(&self, job: JobId, now: ClusterTime) -> WaitReason {
        if let Some(why) = self.why_yielding(job).or_else(|| self.why_kept_out(job)) {
            return why;
        }
        if self.policy().plans() { self.why_planned(job, now) } else { self.why_by_class(job, now) }
    }

    /// What keeps a job in the queue out even of a row without any other job: nodes that take no jobs now, or
    /// memory that resident jobs have, whether they run or were set aside.
    pub(crate) fn lack_if_alone(&self, job: JobId) -> Option<WaitReason> {
        let record = self.jobs.get(&job).filter(|record| record.residence().is_none())?;
        match (self.policy().placement)(self.machine(), &record.spec, None) {
            Ok(_) => None,
            Err(Lack::Memory) => Some(self.machine().lack_beside(&record.spec)),
            Err(Lack::Nodes) => Some(WaitReason::Nodes),
        }
    }

    fn why_waits(&self, job: JobId, now: ClusterTime) -> WaitReason {
        self.or_memory(job, self.or_leaving(job, self.why_queued(job, now)))
    }

    /// A reason to wait; for memory, which lack it is.
    fn or_memory(&self, job: JobId, why: WaitReason) -> WaitReason {
        self.or_memory_leaves(self.or_kept_memory(job, why))
    }

    fn why_queued(&self, job: JobId, now: ClusterTime) -> WaitReason {
        if let Some(by) = self.held_by(job) {
            return WaitReason::Held { by };
        }
        if self.queue.suspended.contains(&job) {
            return WaitReason::Suspended;
        }
        if let Some(reason) = self.why_begin(job).or_else(|| self.why_after(job)) {
            return reason;
        }
        if let Some(reason) = self.why_beside(job) {
            return reason;
        }
        if self.queue.parked.contains(&job) {
            return WaitReason::Nodes;
        }
        if self.policy().sets_aside() {
            return self.why_aside(job, now);
        }
        if self.outside_decides() && !self.queue.promised() && !self.outside.left.contains(&job) {
            return WaitReason::Outside;
        }
        let lack = self.jobs.get(&job).and_then(|record| self.lacks_resource(&record.spec));
        if let Some(name) = lack {
            return WaitReason::Resource { name };
        }
        if let Some(place) = self.queue.reservations.get(&job) {
            return WaitReason::Reserved { within: place.start.since(now) };
        }
        if let Some(why) = self.why_not_kept(job) {
            return why;
        }
        let blocked = self.queue.blocked;
        let promise = self
            .queue
            .promise
            .filter(|promise| promise.row.is_some() && promise.at < ClusterTime::NEVER);
        if let Some(promise) = promise {
            let within = promise.at.since(now);
            let limited =
                self.jobs.get(&job).is_some_and(|record| record.spec.time_limit.is_some());
            return match promise.job == job {
                true => WaitReason::Reserved { within },
                false => WaitReason::Delays { job: promise.job, within, limited },
            };
        }
        let before = match self.queue.line.has_lanes() {
            true => {
                let first = self.queue.first().filter(|&first| first != job);
                first.map(|first| self.queue.line.before_in_lane(job).unwrap_or(first))
            }
            false => self.queue.before_by_arrival(job),
        };
        match (before, blocked) {
            (Some(before), _) => WaitReason::Behind(before),
            (None, Some(reason)) => reason,
            // The first in line is always tried before `apply` returns.
            (None, None) => WaitReason::Nodes,
        }
    }
}

const fn state(since: ClusterTime, course: Course) -> JobState {
    match course {
        Course::Running | Course::Orphaned { .. } | Course::Failing { .. } => {
            JobState::Running { since }
        }
        Course::Terminating { reason, kill_at, .. } => {
            JobState::Ending { since, reason, kill_at: Some(kill_at) }
        }
        Course::Killed { reason, .. } => JobState::Ending { since, reason, kill_at: None },
    }
}

fn placement(part: &Part) -> PlacementView {
    PlacementView {
        node: part.node,
        processors: part.processors.clone(),
        first_rank: Rank(part.first),
        tasks: part.launched(),
        slots: part.tasks,
        tasks_left: part.left,
        cleared: part.cleared,
    }
}
