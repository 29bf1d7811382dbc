//! Jobs that go on beyond their time limits, in what is otherwise idle.
//!
//! A class says what becomes of its jobs at their limit (`overrun`): they end, or go on as standby.
//! A job that goes on is of class `standby` from then on, and keeps no class that a user gives it
//! later.
//!
//! - Where jobs take turns, its row has no slot for it: it runs on processors that are idle in the
//!   slots of others, or in its own turns while no other job is there.
//! - Where there is a line, it is preempted as soon as the first in line could start without it,
//!   and comes back when no job waits and its processors are free.
//! - Under the policy `classes`, it is preempted as jobs of class `standby` are.
//!
//! Its memory and its resources stay its own. Under the policy `deadline` jobs end at their limits,
//! and so does a job that was accepted with a deadline: the plan of others rests on that. A
//! requeued job has its limit and its class anew.

use crate::action::Action;
use crate::apply::Core;
use crate::by_use::own_class;
use crate::policy::{Decision, Machine, WaitReason};
use crate::share;
use crate::state::record::{Course, Place, Record};
use alloc::vec::Vec;
use tutti_types::class::Overrun;
use tutti_types::ids::{ClassName, JobId};
use tutti_types::job::JobSpec;

/// The class that such jobs get.
const STANDBY: &str = "standby";

impl Core {
    /// Gives a job that is to be in line again the class that it had before its limit.
    pub(crate) fn begin_anew(
        &self,
        record: &mut Record,
        own: ClassName,
        actions: &mut Vec<Action>,
    ) {
        if self.classes.contains_key(&own) {
            (record.spec.class, record.former) = (own, None);
            self.bank.reclassify(record);
            let (job, class) = (record.id, record.spec.class.clone());
            actions.push(Action::Reclassed { job, class });
        }
    }

    /// Whether a job goes on beyond its time limit.
    #[must_use]
    pub fn is_overrun(&self, job: JobId) -> bool {
        self.overrun.contains_key(&job)
    }

    /// What a job counts as where time is divided: as its class, unless it has what is idle only.
    pub(crate) fn seat_class(&self, job: JobId, class: &ClassName) -> ClassName {
        if self.is_overrun(job) { share::idle_only() } else { class.clone() }
    }

    /// Has a job go on that has reached its time limit, if its class says so. Whether it does.
    pub(crate) fn let_overrun(&mut self, job: JobId, actions: &mut Vec<Action>) -> bool {
        let Some(record) = self.jobs.get(&job) else { return false };
        let own = own_class(record).clone();
        let rule = self.classes.get(&own).map(|class| class.overrun());
        let course = record.residence().map(|residence| residence.course);
        let goes_on = matches!(course, Some(Course::Running | Course::Orphaned { .. }));
        let standby = ClassName::new(STANDBY);
        let allowed = rule == Some(Overrun::Standby) && self.classes.contains_key(&standby);
        let is_planned = record.deadline.is_some() || self.policy().plans();
        if !goes_on || !allowed || is_planned || self.is_overrun(job) {
            return false;
        }
        self.ledger.set_limit(job, None);
        self.on_set_job_class(job, &standby);
        self.overrun.insert(job, own);
        self.after_reclass(job);
        actions.push(Action::Reclassed { job, class: standby });
        true
    }

    /// Preempts jobs that go on beyond their limits, the latest first and no more than needed, if
    /// the first in line could start without them. They are suspended in place, as all that is
    /// preempted.
    pub(crate) fn preempt_overrun(&mut self) {
        if self.overrun.is_empty() || self.queue.waiting.is_empty() || self.policy().sets_aside() {
            return;
        }
        let Some(first) = self.queue.first().and_then(|job| self.jobs.get(&job)) else { return };
        let preempted = self.overrun_before(&first.spec);
        let blocked = self.queue.blocked;
        for &job in &preempted {
            self.move_out(job);
        }
        if !preempted.is_empty() {
            // Until they are gone, the first in line waits as before.
            self.queue.blocked = blocked;
        }
    }

    /// The jobs beyond their limits without which a job could start; none if it could not, or if
    /// some are already leaving.
    fn overrun_before(&self, spec: &JobSpec) -> Vec<JobId> {
        let mut at_home = Vec::new();
        for &job in self.overrun.keys().rev() {
            let Some(residence) = self.residence(job).filter(|it| !it.ending()) else { continue };
            match residence.place {
                Place::Home => at_home.push(job),
                Place::Leaving => return Vec::new(),
                Place::Aside | Place::Coming => {}
            }
        }
        let seats = at_home.iter().filter_map(|job| self.matrix.seat(*job));
        let theirs: u64 = seats.map(|seat| seat.processors).sum();
        let free = self.matrix.rows().map(|(_, row)| row.index.free()).max().unwrap_or(0);
        // The matrix is copied only where that may be of use.
        if at_home.is_empty()
            || self.overrun.keys().any(|&job| self.swaps.leaves(job))
            || free + theirs < self.machine().least_processors(spec)
            || self.lacks_resource(spec).is_some()
        {
            return Vec::new();
        }
        let mut matrix = self.matrix.clone();
        let mut nodes = spec.memory_per_task_bytes.map(|_| self.nodes.clone());
        for count in 1..=at_home.len() {
            matrix.remove(at_home[count - 1]);
            if let Some(nodes) = &mut nodes {
                self.without_memory_of(at_home[count - 1], nodes);
            }
            let nodes = nodes.as_ref().unwrap_or(&self.nodes);
            let machine = Machine { matrix: &matrix, nodes, ..self.machine() };
            if matches!(self.policy().decide(machine, spec), Some(Decision::Start { .. })) {
                at_home.truncate(count);
                return at_home;
            }
        }
        Vec::new()
    }

    /// Whether a preempted job stays so: others wait in line, or have its processors.
    pub(crate) fn yields_to_line(&self, job: JobId) -> bool {
        self.is_overrun(job) && (!self.queue.waiting.is_empty() || !self.has_room_again(job))
    }

    /// Whether no home is where the processors of a preempted job are.
    fn has_room_again(&self, job: JobId) -> bool {
        let mut rows = self.matrix.ordinary();
        rows.next().is_none() || self.row_with_its_processors(job).is_some()
    }

    /// Why such a job has no processors under a policy with a line.
    pub(crate) fn why_yielding(&self, job: JobId) -> Option<WaitReason> {
        let waits = !self.policy().sets_aside() && self.yields_to_line(job);
        waits.then_some(WaitReason::Overrun)
    }
}
