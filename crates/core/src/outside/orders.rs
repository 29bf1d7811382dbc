//! What a policy outside may order, and why an order is refused.

use super::seat::Start;
use crate::apply::Core;
use crate::policy::{self, Lack};
use crate::state::record::{Binding, Part, Place, Residence};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::limits::{
    MOVED_MAX, POLICY_CANDIDATES_MAX, POLICY_PLACES_MAX, POLICY_REASON_BYTES_MAX,
};
use tutti_types::resource::ResourceName;
use tutti_types::timetable::IfAbsent;

/// In which row a job is to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RowChoice {
    /// The first in which it fits, in the order of the parameter `packing`; or a new one.
    #[default]
    Any,
    /// A new one.
    New,
    /// This one.
    In(RowId),
}

/// One thing that a policy outside orders.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// A job in line starts.
    Start {
        /// Which job.
        job: JobId,
        /// In which row.
        row: RowChoice,
        /// On these processors of these nodes, lowest ranks first; none: those that the parameter
        /// `placement` gives.
        places: Vec<(NodeId, ProcessorSet)>,
    },
    /// A job in line is declined: it ends without a start.
    Decline {
        /// Which job.
        job: JobId,
        /// Why, for its user.
        reason: String,
    },
    /// A job in line stands elsewhere in it.
    Move {
        /// Which job.
        job: JobId,
        /// The job in line just before which it stands; `None`: it stands before all.
        before: Option<JobId>,
    },
    /// A job gives up its processors, suspended where it is.
    Preempt {
        /// Which job.
        job: JobId,
    },
    /// A job that was preempted gets its processors again.
    Restore {
        /// Which job.
        job: JobId,
    },
    /// A job gets another class, and with it another share of the time.
    SetClass {
        /// Which job.
        job: JobId,
        /// The class, which exists.
        class: ClassName,
    },
    /// The built-in policy starts a job in line.
    Leave {
        /// Which job.
        job: JobId,
    },
    /// The candidates of a node in a row's slot have another order, or say otherwise what becomes
    /// of empty time.
    Arrange {
        /// Which node.
        node: NodeId,
        /// Which row; `None`: in all rows the built-in order holds again.
        row: Option<RowId>,
        /// Those that come first, in this order; none: the built-in order holds again.
        candidates: Vec<(JobId, IfAbsent)>,
    },
}

impl Order {
    /// The job that it is about, if it is about one.
    #[must_use]
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::Arrange { .. } => None,
            Self::Start { job, .. }
            | Self::Decline { job, .. }
            | Self::Move { job, .. }
            | Self::Preempt { job }
            | Self::Restore { job }
            | Self::SetClass { job, .. }
            | Self::Leave { job } => Some(*job),
        }
    }

    /// Whether it ends the job's time in line, so that it can be ordered once only.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::Decline { .. } | Self::Leave { .. })
    }
}

/// Why an order of a policy outside is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefusal {
    /// Another policy is in force, or the built-in one goes on.
    #[error("the program is not in charge")]
    NotInCharge,
    /// No such job is in line.
    #[error("job {0} is not in line")]
    NotInLine(JobId),
    /// No such job has processors.
    #[error("job {0} does not run")]
    NotRunning(JobId),
    /// The job is not preempted by the program.
    #[error("job {0} is not preempted by an order")]
    NotPreempted(JobId),
    /// There is no such row.
    #[error("there is no row {0}")]
    NoRow(RowId),
    /// There are as many rows as may be.
    #[error("all {0} rows are in use")]
    Rows(u32),
    /// Too few processors are free, or memory.
    #[error("job {0} does not fit: too few processors are free")]
    NoRoom(JobId),
    /// The memory is allocated to other jobs.
    #[error("job {0} does not fit: too little memory is free")]
    NoMemory(JobId),
    /// Others have what it needs of a counted resource.
    #[error("other jobs have what job {0} asks for of resource {1}")]
    Resource(JobId, ResourceName),
    /// There is no such node, or it takes no jobs.
    #[error("node {0} takes no jobs")]
    NoNode(NodeId),
    /// Some processors are not free.
    #[error("processors {1} of node {0} are not all free in that row")]
    Taken(NodeId, ProcessorSet),
    /// The processors are no whole number of tasks, or of another number than the job has.
    #[error("the places hold {1} tasks, and job {0} has {2}")]
    WrongCount(JobId, u64, u32),
    /// A node stands twice, or there are too many.
    #[error("a job's places are at most {POLICY_PLACES_MAX} nodes, each once")]
    BadPlaces,
    /// The job asked for certain nodes, or shares processors: the core lays it out.
    #[error("job {0} asks for certain nodes, or shares processors; order its start without places")]
    LaidOutByCore(JobId),
    /// It could delay a job that was promised its start.
    #[error("job {0} could delay job {1}, which was promised a start")]
    Delays(JobId, JobId),
    /// Promises of the built-in policy stand.
    #[error("jobs that the built-in policy promised a start come first; order it when they run")]
    Promised,
    /// The reason is too long.
    #[error("a reason is one line of at most {POLICY_REASON_BYTES_MAX} bytes")]
    LongReason,
    /// A job can't stand before itself, or too many were moved.
    #[error("job {0} can't have that place in line")]
    BadMove(JobId),
    /// There is no such class.
    #[error("there is no class {0}")]
    NoClass(ClassName),
    /// The job has no turns in that row on that node.
    #[error("job {0} is no candidate of row {2} on node {1}")]
    NoCandidate(JobId, NodeId, RowId),
    /// The list is too long.
    #[error("at most {POLICY_CANDIDATES_MAX} candidates have an order")]
    TooManyCandidates,
    /// A job stands twice among the candidates.
    #[error("job {0} stands twice")]
    Twice(JobId),
    /// Nothing would change.
    #[error("that is so already")]
    NoChange,
}

impl Core {
    /// Whether an order of a policy outside can be done now; for a start, how.
    ///
    /// # Errors
    /// If it can't, or would change nothing.
    pub(crate) fn consider(&self, order: &Order) -> Result<Option<Start>, OrderRefusal> {
        if !self.outside_decides() {
            return Err(OrderRefusal::NotInCharge);
        }
        match order {
            Order::Start { job, row, places } => self.consider_start(*job, *row, places).map(Some),
            Order::Decline { job, reason } => {
                if reason.len() > POLICY_REASON_BYTES_MAX || reason.contains(char::is_control) {
                    return Err(OrderRefusal::LongReason);
                }
                self.asked(*job).map(|_| None)
            }
            Order::Leave { job } => self.asked(*job).map(|_| None),
            Order::Move { job, before } => self.consider_move(*job, *before).map(|()| None),
            Order::Preempt { job } => {
                self.without_promises()?;
                let may = self.residence(*job).is_some_and(Residence::is_preemptible);
                if may { Ok(None) } else { Err(OrderRefusal::NotRunning(*job)) }
            }
            Order::Restore { job } => self.consider_restore(*job).map(|()| None),
            Order::SetClass { job, class } => self.consider_class(*job, class).map(|()| None),
            Order::Arrange { node, row, candidates } => {
                self.consider_arrangement(*node, *row, candidates).map(|()| None)
            }
        }
    }

    /// Whether an order of a policy outside can be done now. A driver asks before it makes an event
    /// of it, so that the journal has only what changes something.
    ///
    /// # Errors
    /// If it can't, or would change nothing.
    pub fn check_order(&self, order: &Order) -> Result<(), OrderRefusal> {
        self.consider(order).map(drop)
    }

    fn asked(&self, job: JobId) -> Result<&JobSpec, OrderRefusal> {
        let is_asked = self.queue.waiting.contains(&job) && !self.outside.left.contains(&job);
        let record = self.jobs.get(&job).filter(|_| is_asked);
        record.map(|record| &record.spec).ok_or(OrderRefusal::NotInLine(job))
    }

    pub(super) fn without_promises(&self) -> Result<(), OrderRefusal> {
        if self.queue.promised() { Err(OrderRefusal::Promised) } else { Ok(()) }
    }

    fn consider_move(&self, job: JobId, before: Option<JobId>) -> Result<(), OrderRefusal> {
        self.asked(job)?;
        before.map_or(Ok(()), |before| self.asked(before).map(drop))?;
        self.without_promises()?;
        let full = self.moved_jobs() >= MOVED_MAX && !self.is_moved(job);
        if before == Some(job) || full {
            return Err(OrderRefusal::BadMove(job));
        }
        let mut line = self.queue.in_order(self.params.quantum(), self.now).map(|it| it.0);
        let is_so = match before {
            None => line.next() == Some(job),
            Some(before) => {
                line.find(|&it| it == job || it == before) == Some(job)
                    && line.next() == Some(before)
            }
        };
        if is_so { Err(OrderRefusal::NoChange) } else { Ok(()) }
    }

    fn consider_restore(&self, job: JobId) -> Result<(), OrderRefusal> {
        if !self.outside.preempted.contains(&job) {
            return Err(OrderRefusal::NotPreempted(job));
        }
        self.without_promises()?;
        let record = self.jobs.get(&job).ok_or(OrderRefusal::NotRunning(job))?;
        let is_aside = |it: &&Residence| it.place == Place::Aside;
        let residence = record.residence().filter(is_aside).ok_or(OrderRefusal::NotRunning(job))?;
        if self.has_lost_all(job, residence) {
            return Ok(());
        }
        if !residence.may_come_back() {
            return Err(OrderRefusal::NotRunning(job));
        }
        if let Some(wish) = record.spec.counted().next().filter(|_| self.awaits_resource(record)) {
            return Err(OrderRefusal::Resource(job, wish.name));
        }
        let limit = self.rows_max();
        let has_room = self.row_with_its_processors(job).is_some()
            || self.matrix.ordinary().count() < limit as usize;
        if has_room { Ok(()) } else { Err(OrderRefusal::Rows(limit)) }
    }

    fn consider_class(&self, job: JobId, class: &ClassName) -> Result<(), OrderRefusal> {
        self.without_promises()?;
        if !self.classes.contains_key(class) {
            return Err(OrderRefusal::NoClass(class.clone()));
        }
        let record = self.jobs.get(&job).filter(|_| !self.is_overrun(job));
        let record = record.ok_or(OrderRefusal::NotRunning(job))?;
        let own = record.former.as_ref().unwrap_or(&record.spec.class);
        if own == class { Err(OrderRefusal::NoChange) } else { Ok(()) }
    }

    fn consider_start(
        &self,
        job: JobId,
        row: RowChoice,
        places: &[(NodeId, ProcessorSet)],
    ) -> Result<Start, OrderRefusal> {
        let spec = self.asked(job)?;
        if let Some(name) = self.lacks_resource(spec) {
            return Err(OrderRefusal::Resource(job, name));
        }
        let machine = self.machine();
        let limit = machine.rows;
        let is_full = self.matrix.ordinary().count() >= limit as usize;
        if let RowChoice::In(row) = row
            && !self.free_in_rows().any(|(id, _)| id == row)
        {
            return Err(OrderRefusal::NoRow(row));
        }
        let lay = |row: Option<RowId>| match places {
            [] => (self.policy().placement)(machine, spec, row).map_err(|lack| match lack {
                Lack::Nodes => OrderRefusal::NoRoom(job),
                Lack::Memory => OrderRefusal::NoMemory(job),
            }),
            places => self.lay_as_ordered((job, spec), row, places),
        };
        let try_in = |row: Option<RowId>| {
            if row.is_none() && is_full {
                return Err(OrderRefusal::Rows(limit));
            }
            let parts = lay(row)?;
            let promise = self.keeps_promises((job, spec), row, &parts)?;
            Ok(Start { row, parts, promise })
        };
        match row {
            RowChoice::In(row) => try_in(Some(row)),
            RowChoice::New => try_in(None),
            RowChoice::Any => {
                let mut refusal = None;
                for row in machine.rows_for(spec).map(Some).chain([None]) {
                    match try_in(row) {
                        Ok(start) => return Ok(start),
                        Err(why) => refusal = refusal.or(Some(why)),
                    }
                }
                Err(refusal.unwrap_or(OrderRefusal::NoRoom(job)))
            }
        }
    }

    /// The parts of a job on the processors that were ordered, in the order of the nodes' numbers.
    fn lay_as_ordered(
        &self,
        (job, spec): (JobId, &JobSpec),
        row: Option<RowId>,
        places: &[(NodeId, ProcessorSet)],
    ) -> Result<Vec<Part>, OrderRefusal> {
        let each = spec.processors_per_task.unwrap_or(1).max(1);
        if !spec.nodes.is_none() || policy::shares_processors(self.machine(), spec) {
            return Err(OrderRefusal::LaidOutByCore(job));
        }
        let mut sorted: Vec<&(NodeId, ProcessorSet)> = places.iter().collect();
        sorted.sort_unstable_by_key(|(node, _)| *node);
        let is_twice = sorted.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if is_twice || places.len() > POLICY_PLACES_MAX {
            return Err(OrderRefusal::BadPlaces);
        }
        let (mut first, mut held) = (0_u32, 0_u64);
        let mut parts = Vec::with_capacity(sorted.len());
        for (node, set) in sorted {
            if self.matrix.column(*node).is_none() || self.matrix.is_closed(*node) {
                return Err(OrderRefusal::NoNode(*node));
            }
            if !set.is_subset(&self.matrix.free_on(row, *node)) {
                return Err(OrderRefusal::Taken(*node, set.clone()));
            }
            let tasks = set.count() / each;
            if tasks == 0 || set.count() % each != 0 {
                return Err(OrderRefusal::WrongCount(job, held, spec.tasks));
            }
            held += u64::from(tasks);
            if self.machine().room_beside(*node, spec, row) < tasks {
                return Err(OrderRefusal::NoMemory(job));
            }
            let part = Part::new(*node, set.clone(), first, tasks);
            parts.push(Part { binding: Binding::Own(each), ..part });
            first = first.saturating_add(tasks);
        }
        match held == u64::from(spec.tasks) {
            true => Ok(parts),
            false => Err(OrderRefusal::WrongCount(job, held, spec.tasks)),
        }
    }
}
