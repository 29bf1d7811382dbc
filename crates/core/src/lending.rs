//! Lending: idle slots of allocations serve other jobs until a step wants them.
//!
//! A slot of an allocation ([`allocation`](crate::allocation)) may get a step at any time, so its
//! processors stay in the job's home. While no task has them, they are lent: guests run there in
//! the turns of the job's row. A job that lends all that it has takes no turns. Its row then has
//! no slot on its account, and the time goes to the others by their shares.
//!
//! - *Delay.* Slots are lent [`FREED_AFTER`] after a step of the job has begun or ended. Steps that
//!   follow each other closely change no timetable.
//! - *Contention.* Nothing is lent unless another row has turns. With one row, a step starts at
//!   once, as before.
//! - *Return.* A step that needs lent processors has the job take back all that it lends, in the
//!   same event. The step starts when the timetable without the guests is in force: at once where
//!   the parameter `lead` is zero. Its job's turn comes in that frame. So it waits at most for the
//!   lead and one frame.
//! - *Tasks.* A batch script may run on all processors of its node, so these are not lent while it
//!   runs. The task of `tutti alloc` only waits, and says so ([`Event::Lend`](crate::Event::Lend)).
//! - *Charges.* Guests are charged for what they run, as everywhere. What is lent is charged to no
//!   account. The time limit of a job that lends everything goes on by the clock: it keeps its
//!   memory and its place in a row, and could have its turns at any moment.
//! - *Kept.* A job with nodes to itself lends all that it has or nothing. Under policies that plan
//!   (`deadline`), jobs keep what they have.

use crate::action::Action;
use crate::apply::Core;
use crate::due::Dues;
use crate::freed::FREED_AFTER;
use crate::state::record::{Binding, Course, Part, Place, Record};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::FirstStep;
use tutti_types::time::ClusterTime;

/// Processors by node.
type Loan = Vec<(NodeId, ProcessorSet)>;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Lending {
    /// Jobs with a first task that only waits: nothing runs in their slots but steps.
    waiters: BTreeSet<JobId>,
    /// When idle slots of jobs may be lent.
    due: Dues,
    /// Jobs that may lend their idle slots by now.
    idle: BTreeSet<JobId>,
    /// Jobs that lend.
    lenders: BTreeSet<JobId>,
    /// Those of them that lend all that they have, and take no turns.
    whole: BTreeSet<JobId>,
    /// Jobs that took back what they lent, and when their steps may start; `None`: when the
    /// timetable is in force that is published with this event.
    claims: BTreeMap<JobId, Option<ClusterTime>>,
    /// Jobs with slots that are to be looked at, since something began or ended there.
    touched: BTreeSet<JobId>,
}

impl Lending {
    /// Whether a job lends all that it has.
    pub(crate) fn is_whole(&self, job: JobId) -> bool {
        self.whole.contains(&job)
    }

    /// Whether a job has taken back what it lent, and its steps wait for that to be in force.
    pub(crate) fn is_claimed(&self, job: JobId) -> bool {
        self.claims.contains_key(&job)
    }

    /// When something is to be lent, or a step may start.
    pub(crate) fn next(&self) -> ClusterTime {
        let claims = self.claims.values().flatten().min();
        self.due.next().min(claims.copied().unwrap_or(ClusterTime::NEVER))
    }

    /// A job has ended, or begins anew.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.due.forget(job);
        for jobs in [&mut self.waiters, &mut self.idle, &mut self.lenders, &mut self.whole] {
            jobs.remove(&job);
        }
        self.touched.remove(&job);
        self.claims.remove(&job);
    }
}

impl Core {
    /// The owner of a job, or a program in charge of it, says whether the job's first task only
    /// waits.
    pub(crate) fn on_lend(&mut self, job: JobId, lends: bool) {
        let is_script = self.first_step(job) == FirstStep::Once;
        if !is_script || self.residence(job).is_none() {
            return;
        }
        match lends {
            true => self.freed.lending.waiters.insert(job),
            false => self.freed.lending.waiters.remove(&job),
        };
        self.note_idle(job);
    }

    /// Slots of a job may be idle from now on: they are lent after a while.
    pub(crate) fn note_idle(&mut self, job: JobId) {
        if self.first_step(job) == FirstStep::EachSlot {
            return;
        }
        self.freed.lending.touched.insert(job);
        self.freed.lending.idle.remove(&job);
        if !self.idle_slots(job).is_empty() {
            self.freed.lending.due.note(job, self.now + FREED_AFTER);
        }
    }

    /// A step of a job has begun: others may follow, so what is idle stays with it for a while.
    pub(crate) fn note_step_begun(&mut self, job: JobId) {
        self.freed.lending.due.forget(job);
        self.note_idle(job);
    }

    /// A job has its turns again, whatever it lent.
    pub(crate) fn end_whole_loan(&mut self, job: JobId) {
        if self.freed.lending.whole.remove(&job) {
            self.freed.lending.lenders.remove(&job);
            self.freed.lending.touched.insert(job);
            let begins = self.activation(self.now);
            self.ledger.take_back(job, begins);
            self.charge_processors(job);
        }
    }

    /// A step needs processors that its job lends.
    pub(crate) fn claim_loan(&mut self, job: JobId) {
        self.freed.lending.claims.insert(job, None);
        self.freed.lending.touched.insert(job);
    }

    /// What a job lends on a node.
    pub(crate) fn lent_on(&self, job: JobId, node: NodeId) -> Option<&ProcessorSet> {
        let seat = self.matrix.seat(job)?;
        if self.freed.lending.is_whole(job) { seat.on(node) } else { seat.lent_on(node) }
    }

    /// How many of its processors a job lends.
    pub(crate) fn lent_processors(&self, job: JobId) -> u64 {
        match self.matrix.seat(job) {
            Some(seat) if self.freed.lending.is_whole(job) => seat.processors,
            Some(seat) => seat.lent.iter().map(|(_, set)| u64::from(set.count())).sum(),
            None => 0,
        }
    }

    /// How many processors a job is charged for: what it lends is not its own use.
    pub(crate) fn charged_processors(&self, job: JobId) -> u64 {
        let Some(residence) = self.residence(job) else { return 0 };
        let all = residence.parts.iter().map(|it| u64::from(it.processors.count()));
        all.sum::<u64>().saturating_sub(self.lent_processors(job))
    }

    fn charge_processors(&mut self, job: JobId) {
        let processors = self.charged_processors(job);
        if let Some(user) = self.jobs.get(&job).map(|record| record.spec.owner) {
            self.count_anew(job, user, processors);
        }
    }

    /// Has every job lend what is idle now, and nothing else. Whether that is a change.
    pub(crate) fn follow_lending(&mut self, now: ClusterTime) -> bool {
        while let Some(job) = self.freed.lending.due.pop(now) {
            self.freed.lending.idle.insert(job);
            self.freed.lending.touched.insert(job);
        }
        // What one lends or takes back may be the last row that others want. That comes to an end:
        // a job takes back all that it has only where no row has turns, and then none follows it.
        let mut has_changed = false;
        loop {
            let lending = &self.freed.lending;
            let jobs = lending.lenders.union(&lending.idle).copied();
            let jobs: Vec<JobId> = jobs.filter(|&job| self.is_to_lend_anew(job)).collect();
            self.freed.lending.touched.clear();
            if jobs.is_empty() {
                return has_changed;
            }
            for job in jobs {
                has_changed |= self.lend_anew(job);
            }
        }
    }

    /// Whether what a job lends, or may lend, may be other than it does. Homes that moved from row
    /// to row have nothing lent.
    fn is_to_lend_anew(&self, job: JobId) -> bool {
        let lends = self.freed.lending.lenders.contains(&job);
        let is_touched = self.freed.lending.touched.contains(&job);
        is_touched || lends != self.may_lend(job) || (lends && self.has_moved(job))
    }

    /// Whether a job that lends some of what it has got another place since.
    fn has_moved(&self, job: JobId) -> bool {
        let lends = self.matrix.seat(job).is_some_and(|seat| !seat.lent.is_empty());
        !lends && !self.freed.lending.is_whole(job)
    }

    /// Whether a job may lend anything now: it has its place, and others want the time.
    fn may_lend(&self, job: JobId) -> bool {
        let goes_on = |record: &Record| {
            let residence = record.residence().filter(|it| it.place == Place::Home && it.present());
            let runs = |course| matches!(course, Course::Running);
            !record.suspended
                && record.deadline.is_none()
                && residence.is_some_and(|it| runs(it.course))
        };
        self.jobs.get(&job).is_some_and(goes_on)
            && !self.policy().plans()
            && !self.swaps.has(job)
            && !self.freed.lending.is_claimed(job)
            && self.matrix.seat(job).is_some_and(|seat| self.is_contended(seat.row))
    }

    /// Whether another row has turns.
    fn is_contended(&self, row: RowId) -> bool {
        self.matrix.rows().any(|(id, other)| id != row && !other.classes.is_empty())
    }

    /// Whether the job lends something else than before.
    fn lend_anew(&mut self, job: JobId) -> bool {
        let loan = self.loan(job);
        let was_whole = self.freed.lending.is_whole(job);
        let seat = self.matrix.seat(job);
        let is_whole = !loan.is_empty() && seat.is_some_and(|seat| *seat.parts == *loan);
        let before = seat.map(|seat| seat.lent.clone()).unwrap_or_default();
        let lends = !loan.is_empty();
        if is_whole == was_whole && (is_whole || *before == *loan) {
            self.note_lender(job, lends);
            return false;
        }
        if is_whole {
            self.matrix.deactivate(job);
            let at = self.activation(self.now);
            self.ledger.lend(job, at);
            self.freed.lending.whole.insert(job);
        } else {
            if was_whole && self.may_take_turns(job) {
                // It is noted there that it lends no more.
                self.activate(job);
            }
            self.end_whole_loan(job);
            self.matrix.lend(job, &loan);
        }
        self.note_lender(job, lends);
        self.charge_processors(job);
        // What is planned counts neither on what is lent, nor on its return.
        self.queue.stale = true;
        self.queue.disturbed |= was_whole || !before.is_empty();
        true
    }

    fn note_lender(&mut self, job: JobId, lends: bool) {
        match lends {
            true => self.freed.lending.lenders.insert(job),
            false => self.freed.lending.lenders.remove(&job),
        };
    }

    /// What a job is to lend now.
    fn loan(&mut self, job: JobId) -> Loan {
        if !self.may_lend(job) {
            return Loan::new();
        }
        let mut loan = self.idle_slots(job);
        if !self.freed.lending.idle.contains(&job) {
            // What came free just now is lent later.
            for (node, set) in &mut loan {
                let before = self.lent_on(job, *node).cloned().unwrap_or_default();
                *set = set.without(&set.without(&before));
            }
            loan.retain(|(_, set)| !set.is_empty());
        }
        let seat = self.matrix.seat(job);
        let is_all = seat.is_some_and(|seat| *seat.parts == *loan);
        let is_exclusive = self.jobs.get(&job).is_some_and(|record| record.spec.nodes.exclusive);
        let waits = self.freed.lending.waiters.contains(&job);
        // What runs in it would never have a turn, or not have its nodes to itself.
        if (is_all && !waits) || (is_exclusive && !is_all) {
            loan.clear();
        }
        if loan.is_empty() {
            self.freed.lending.idle.remove(&job);
        }
        loan
    }

    /// The processors of a job that none of its tasks has, by node.
    pub(crate) fn idle_slots(&self, job: JobId) -> Loan {
        let Some(residence) = self.residence(job) else { return Loan::new() };
        let waits = self.freed.lending.waiters.contains(&job);
        let here = residence.parts.iter().filter(|part| part.has_processors() && !part.cleared);
        let idle = |part: &Part| {
            let mut free = match part.binding {
                Binding::Held(_) if part.left == 0 || waits => part.processors.clone(),
                Binding::HeldSlots(_) if part.processors_per_slot() > 0 => part.processors.clone(),
                Binding::Own(_) | Binding::Shared | Binding::Held(_) | Binding::HeldSlots(_) => {
                    return None;
                }
            };
            if let Binding::HeldSlots(_) = part.binding {
                let tasks = part.placements().into_iter();
                let running = tasks.filter(|task| !residence.ended.contains_key(&task.rank));
                running.for_each(|task| free.subtract(&task.processors));
            }
            self.subtract_steps(job, part, &mut free);
            (!free.is_empty()).then_some((part.node, free))
        };
        let mut loan: Loan = here.filter_map(idle).collect();
        loan.sort_unstable_by_key(|&(node, _)| node);
        loan
    }

    /// Takes away what tasks of steps have of a part, those too that share it.
    fn subtract_steps(&self, job: JobId, part: &Part, free: &mut ProcessorSet) {
        let steps = self.allocations.get(&job).into_iter().flat_map(|it| it.steps.values());
        for run in steps.filter_map(|step| step.run.as_ref()) {
            let Some(taken) = run.part(part.node).filter(|it| !it.cleared) else { continue };
            let tasks = taken.placements().into_iter();
            let running = tasks.filter(|task| !run.ended.contains_key(&task.rank));
            running.for_each(|task| free.subtract(&task.processors));
        }
    }

    /// What is wrong with what jobs lend; for the invariants.
    pub(crate) fn wrong_loan(&self) -> Option<String> {
        let lends = |&job: &JobId| self.lent_processors(job) > 0;
        let jobs = self.matrix.seats().map(|(job, _)| job);
        let lenders: BTreeSet<JobId> = jobs.filter(lends).collect();
        if lenders != self.freed.lending.lenders || !self.freed.lending.whole.is_subset(&lenders) {
            return Some(format!(
                "{lenders:?} lend, and noted are {:?}",
                self.freed.lending.lenders
            ));
        }
        if let Some(job) = lenders.iter().find(|&&job| !self.may_lend(job)) {
            return Some(format!("job {job} lends, and may not"));
        }
        for &job in &lenders {
            let idle = self.idle_slots(job);
            for part in self.parts(job) {
                let Some(lent) = self.lent_on(job, part.node) else { continue };
                let is_idle = |(node, set): &(NodeId, ProcessorSet)| {
                    *node == part.node && lent.is_subset(set)
                };
                if !idle.iter().any(is_idle) {
                    return Some(format!("job {job} lends {lent} of {idle:?}"));
                }
            }
        }
        // A step waits for what was lent at most until the latest timetables are in force.
        let late =
            |at: &Option<ClusterTime>| at.is_none_or(|at| at > self.activated || at < self.wake);
        let claim = self.freed.lending.claims.iter().find(|(_, at)| late(at));
        claim.map(|(job, at)| format!("steps of job {job} wait until {at:?}"))
    }

    /// Timetables without guests were published: the steps that they make room for start when
    /// these are in force.
    pub(crate) fn start_claimed(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        if self.freed.lending.claims.is_empty() {
            return;
        }
        let in_force = self.activated;
        self.freed.lending.claims.values_mut().for_each(|at| {
            at.get_or_insert(in_force);
        });
        let due = self.freed.lending.claims.iter().filter(|(_, at)| at.is_none_or(|at| at <= now));
        for job in due.map(|(&job, _)| job).collect::<Vec<_>>() {
            self.freed.lending.claims.remove(&job);
            self.start_steps(now, job, actions);
            self.note_step_begun(job);
        }
    }
}
