//! A site's own policy: a program outside decides, and its answers are events.
//!
//! Under `policy=external` a program of the site decides which waiting jobs start where. It is no
//! part of the core: a driver asks it, and puts each answer to the core as an [`Order`], which the
//! core checks (`Core::consider`) and does. So a replay needs no program.
//!
//! While the program is *in charge* ([`Event::PolicyInCharge`](crate::Event::PolicyInCharge)), the
//! core starts no job by itself, with two exceptions: a job with a promise that the built-in policy
//! made before, and jobs that are [left](Order::Leave) to it. While the program is not in charge,
//! `external` is what `gang` is, with the rows and the discipline of the parameters.
//!
//! Parts of the program on the nodes order what is a matter of one node only: which of a slot's
//! candidates comes first there ([`Order::Arrange`]). Gangs come before all others in any case.
//!
//! What was promised before the program took charge is kept: an order that could delay a promised
//! start is refused, by the same reckoning by which jobs pass the first in line.

mod arrange;
mod orders;
mod seat;

pub use orders::{Order, OrderRefusal, RowChoice};

use crate::action::Action;
use crate::apply::Core;
use crate::policy::EXTERNAL;
use crate::state::record::{Part, Phase, Residence};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::{EndReason, JobSpec};
use tutti_types::policy::{PolicyArgs, PolicyProgram};
use tutti_types::time::ClusterTime;
use tutti_types::timetable::IfAbsent;

/// What is kept of the site's own policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Outside {
    /// The program that an administrator named.
    pub(crate) program: Option<PolicyProgram>,
    /// Whether it answers, as the driver says.
    pub(crate) in_charge: bool,
    /// The jobs in line that the built-in policy starts.
    pub(crate) left: BTreeSet<JobId>,
    /// The jobs that it preempted.
    pub(crate) preempted: BTreeSet<JobId>,
    /// The jobs' own parameters for it.
    pub(crate) args: BTreeMap<JobId, PolicyArgs>,
    /// By node and row: which candidates come first, and what becomes of their empty time.
    pub(crate) arranged: BTreeMap<NodeId, BTreeMap<RowId, Vec<(JobId, IfAbsent)>>>,
}

impl Outside {
    /// A job has ended.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.left.remove(&job);
        self.preempted.remove(&job);
        self.args.remove(&job);
        for rows in self.arranged.values_mut() {
            rows.values_mut().for_each(|first| first.retain(|(it, _)| *it != job));
        }
    }
}

/// A job in line, as a policy outside gets to know it.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Its number.
    pub job: JobId,
    /// What was asked.
    pub spec: &'a JobSpec,
    /// How many processors it needs at least.
    pub processors: u64,
    /// Since when it waits.
    pub since: ClusterTime,
    /// By when it is to be done.
    pub deadline: Option<ClusterTime>,
    /// Its parameters for the policy.
    pub args: &'a [(alloc::string::String, alloc::string::String)],
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home<'a> {
    /// Its row; `None`: it is preempted, or about to be, and has no turns.
    pub row: Option<RowId>,
    /// What it has.
    pub parts: &'a [Part],
}

impl Core {
    /// Whether a program outside decides now.
    #[must_use]
    pub fn outside_decides(&self) -> bool {
        self.outside.in_charge && self.is_external()
    }

    /// Whether the driver said last that the program decides, whatever policy is in force.
    #[must_use]
    pub const fn has_outside_in_charge(&self) -> bool {
        self.outside.in_charge
    }

    /// Whether the policy in force is that of a program outside, in charge or not.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.policy().name == EXTERNAL.name
    }

    /// The program of the site's own policy, if an administrator named one.
    #[must_use]
    pub const fn policy_program(&self) -> Option<&PolicyProgram> {
        self.outside.program.as_ref()
    }

    /// A job's own parameters for the policy program.
    #[must_use]
    pub fn policy_args(&self, job: JobId) -> &[(alloc::string::String, alloc::string::String)] {
        self.outside.args.get(&job).map_or(&[], |args| &args[..])
    }

    /// The jobs that came into line or left it in the latest event; some of them twice.
    #[must_use]
    pub fn line_touched(&self) -> &[JobId] {
        &self.queue.touched
    }

    /// The jobs that got processors, lost them, or have them in another row since before the latest
    /// event; some of them twice.
    #[must_use]
    pub fn homes_touched(&self) -> &[JobId] {
        self.matrix.touched()
    }

    /// A job in line that a policy outside may start; `None`: it is not in line.
    #[must_use]
    pub fn request(&self, job: JobId) -> Option<Request<'_>> {
        if !self.queue.waiting.contains(&job) || self.outside.left.contains(&job) {
            return None;
        }
        let record = self.jobs.get(&job)?;
        let since = match record.phase {
            Phase::Queued { since } => since,
            Phase::Resident(_) => return None,
        };
        Some(Request {
            job,
            spec: &record.spec,
            processors: crate::policy::processors(&record.spec, self.matrix.widths()),
            since,
            deadline: record.deadline,
            args: self.policy_args(job),
        })
    }

    /// The jobs in line that a policy outside may start, by number.
    pub fn requests(&self) -> impl Iterator<Item = JobId> + '_ {
        self.queue.waiting.iter().copied().filter(|job| !self.outside.left.contains(job))
    }

    /// Where a job is that has been placed.
    #[must_use]
    pub fn home(&self, job: JobId) -> Option<Home<'_>> {
        let residence = self.residence(job)?;
        let row = self.matrix.seat(job).filter(|_| residence.place.is_home());
        Some(Home { row: row.map(|seat| seat.row), parts: &residence.parts })
    }

    /// The jobs that have been placed, by number.
    pub fn placed(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().filter(|(_, record)| record.residence().is_some()).map(|(job, _)| job)
    }

    /// The rows that take jobs of any class, oldest first, and how many processors are free in each
    /// for new jobs.
    pub fn free_in_rows(&self) -> impl Iterator<Item = (RowId, u64)> + '_ {
        let rows = self.matrix.ordinary().take(self.rows_max() as usize);
        rows.map(|(id, row)| (id, row.index.free()))
    }

    /// How many processors are free for new jobs in the row that has most, or in a new one, if there
    /// may be one.
    #[must_use]
    pub fn most_free(&self) -> u64 {
        let (mut rows, mut most) = (0, 0);
        for (_, free) in self.free_in_rows() {
            rows += 1;
            most = most.max(free);
        }
        if rows < self.rows_max() { most.max(self.free_in_new_row()) } else { most }
    }

    /// How many rows there may be.
    #[must_use]
    pub fn rows_max(&self) -> u32 {
        self.machine().rows
    }

    /// How many processors a new row would have free.
    #[must_use]
    pub fn free_in_new_row(&self) -> u64 {
        self.matrix.blank().free()
    }

    /// The processors of a node that new jobs may get in a row (`None`: in a new one): none on a
    /// node that takes no jobs.
    #[must_use]
    pub fn free_for_new(&self, row: Option<RowId>, node: NodeId) -> ProcessorSet {
        match self.matrix.is_closed(node) {
            true => ProcessorSet::new(),
            false => self.matrix.free_on(row, node),
        }
    }

    /// The driver says whether the program answers.
    pub(crate) fn on_policy_in_charge(&mut self, on: bool) {
        self.outside.in_charge = on;
        self.queue.reconsider();
        if !on {
            self.outside.left.clear();
            self.outside.preempted.clear();
            let nodes = core::mem::take(&mut self.outside.arranged);
            nodes.into_keys().for_each(|node| self.plan_anew(node));
        }
    }

    /// An administrator names the program, or wants none any more.
    pub(crate) fn on_set_policy_program(&mut self, program: Option<&PolicyProgram>) {
        self.outside.program = program.cloned();
    }

    /// Whether the program keeps a job preempted.
    pub(crate) fn is_kept_preempted(&self, job: JobId) -> bool {
        self.outside_decides() && self.outside.preempted.contains(&job)
    }

    /// Does what a program outside ordered, if it may.
    pub(crate) fn on_order(&mut self, order: &Order, actions: &mut Vec<Action>) {
        let Ok(checked) = self.consider(order) else { return };
        let now = self.now;
        match order {
            Order::Start { job, .. } => {
                if let Some(start) = checked {
                    self.start_as_ordered(now, *job, start);
                }
            }
            Order::Decline { job, reason } => {
                actions.push(Action::JobDeclined { job: *job, reason: reason.clone() });
                let code = EndReason::Declined.exit_code_or(0);
                self.end_queued(*job, EndReason::Declined, code, actions);
            }
            Order::Move { job, before } => self.on_move_job(*job, *before),
            Order::Preempt { job } => {
                self.outside.preempted.insert(*job);
                self.move_out(*job);
            }
            Order::Restore { job } => {
                self.outside.preempted.remove(job);
                // Ranks that were lost meanwhile look for processors now.
                if !self.residence(*job).is_some_and(|it| self.has_lost_all(*job, it)) {
                    let row = self.row_with_its_processors(*job);
                    self.move_in(*job, row);
                }
            }
            Order::SetClass { job, class } => self.on_set_job_class(*job, class),
            Order::Leave { job } => drop(self.outside.left.insert(*job)),
            Order::Arrange { node, row, candidates } => self.arrange(*node, *row, candidates),
        }
    }
}

impl Residence {
    /// Whether it could be preempted: it is in the matrix, and not on its way out.
    pub(crate) fn is_preemptible(&self) -> bool {
        self.place.is_home() && !self.ending() && self.present()
    }
}
