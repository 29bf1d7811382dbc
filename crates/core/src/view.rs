//! What a driver may see of the core, to show it.

use crate::class::Classes;
use crate::controller::Core;
use crate::frame::Frame;
use crate::ids::{JobId, NodeId, ProcessorSet, Rank, RowId};
use crate::job::{EndReason, JobSpec, NodeSpec, TaskStatus};
use crate::params::Params;
use crate::policy::WaitReason;
use crate::record::{Course, Part, Phase, Record};
use crate::time::{ClusterTime, Nanos};
use alloc::vec::Vec;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView<'a> {
    /// Its number.
    pub id: JobId,
    /// What was asked, with its class.
    pub spec: &'a JobSpec,
    /// Where it stands.
    pub state: JobState,
    /// Whether a user has it suspended.
    pub suspended: bool,
    /// Its home row, once it has one.
    pub row: Option<RowId>,
    /// Its processors and tasks by node, lowest ranks first.
    pub placements: Vec<PlacementView>,
    /// Time that its turns gave it.
    pub service: Nanos,
    /// The tasks that have ended.
    pub ended: Vec<(Rank, TaskStatus)>,
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
    /// It is in the matrix.
    Running {
        /// Since when.
        since: ClusterTime,
    },
    /// It was asked to end, or killed, and is waited for.
    Ending {
        /// Since when it has been in the matrix.
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
    /// How many tasks, with ranks from the lowest on.
    pub tasks: u32,
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
    /// The processors that any resident job has, over all rows.
    pub used: ProcessorSet,
    /// Memory promised to resident jobs, in bytes.
    pub admitted_bytes: u64,
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
    /// Who has which processors, homes first.
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

impl Core {
    /// All jobs that have not ended, by number, as of `now`.
    pub fn jobs(&self, now: ClusterTime) -> impl Iterator<Item = JobView<'_>> {
        self.jobs.values().map(move |record| self.view(record, now))
    }

    /// One job, as of `now`; `None` once it has ended.
    #[must_use]
    pub fn job(&self, job: JobId, now: ClusterTime) -> Option<JobView<'_>> {
        self.jobs.get(&job).map(|record| self.view(record, now))
    }

    /// How many jobs have not ended.
    #[must_use]
    pub fn job_count(&self) -> usize {
        self.jobs.len()
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
                used: node.spec.processors.iter().filter(taken).collect(),
                admitted_bytes: node.admitted_bytes,
                jobs: column.map_or(Vec::new(), |c| c.residents.iter().copied().collect()),
            }
        })
    }

    /// The rows of the matrix, oldest first; slots held for absent classes come last.
    pub fn rows(&self) -> impl Iterator<Item = RowView> + '_ {
        let rows = self.matrix.rows().map(|(id, row)| {
            let homes = row.homes.iter().flat_map(|&job| self.cells(job, false));
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

    /// The frame that was last decided on: the slots in order, and since when they count.
    #[must_use]
    pub const fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// The classes.
    #[must_use]
    pub const fn classes(&self) -> &Classes {
        &self.classes
    }

    fn cells(&self, job: JobId, guest: bool) -> impl Iterator<Item = CellView> + '_ {
        let parts = self.matrix.seat(job).into_iter().flat_map(|seat| &seat.parts);
        parts.map(move |(node, processors)| CellView {
            node: *node,
            job,
            processors: processors.clone(),
            guest,
        })
    }

    fn view<'a>(&'a self, record: &'a Record, now: ClusterTime) -> JobView<'a> {
        let mut view = JobView {
            id: record.id,
            spec: &record.spec,
            state: JobState::Queued { since: now, why: WaitReason::Suspended },
            suspended: record.suspended,
            row: self.matrix.seat(record.id).map(|seat| seat.row),
            placements: Vec::new(),
            service: self.ledger.service(record.id, now),
            ended: Vec::new(),
        };
        match &record.phase {
            Phase::Queued { since } => {
                view.state = JobState::Queued { since: *since, why: self.why_queued(record.id) };
            }
            Phase::Resident(residence) => {
                view.state = state(residence.since, residence.course);
                view.placements = residence.parts.iter().map(placement).collect();
                view.ended = residence.ended.iter().map(|(&rank, &s)| (rank, s)).collect();
            }
        }
        view
    }

    fn why_queued(&self, job: JobId) -> WaitReason {
        if self.queue.suspended.contains(&job) {
            return WaitReason::Suspended;
        }
        if self.queue.parked.contains(&job) {
            return WaitReason::Nodes;
        }
        match (self.queue.waiting.range(..job).next_back(), self.queue.blocked) {
            (Some(&before), _) => WaitReason::Behind(before),
            (None, Some(reason)) => reason,
            // The first in line is always tried before `apply` returns.
            (None, None) => WaitReason::Nodes,
        }
    }
}

const fn state(since: ClusterTime, course: Course) -> JobState {
    match course {
        Course::Running | Course::Orphaned { .. } => JobState::Running { since },
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
        tasks: part.tasks,
        tasks_left: part.left,
        cleared: part.cleared,
    }
}
