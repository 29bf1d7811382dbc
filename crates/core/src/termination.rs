//! How jobs end: asked, killed, out of time; and what is due when.
//!
//! A job has ended when every node where it was has reported that nothing of it is left. Until then
//! it keeps its place and its memory, since its processes may still use both.

use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::orders::HeldBy;
use crate::state::record::{Course, Deaths, Part, Phase, Residence};
use alloc::vec::Vec;
use tutti_types::ids::JobId;
use tutti_types::job::{EndReason, JobSpec, Outcome};
use tutti_types::time::{ClusterTime, Nanos};

/// The exit code of a job that was asked to end before it had begun.
pub(crate) const ENDED_BY_TERM: u8 = 128 + 15;
/// The exit code of a job that was killed before it had begun.
pub(crate) const ENDED_BY_KILL: u8 = 128 + 9;

impl Core {
    /// Asks a job to end, and sees to it that it is killed if it hasn't when its grace is over.
    pub(crate) fn end_job(
        &mut self,
        now: ClusterTime,
        job: JobId,
        reason: EndReason,
        actions: &mut Vec<Action>,
    ) {
        let once = self.runs_once(job);
        let Some(record) = self.jobs.get_mut(&job) else { return };
        if !record.note_order(reason, once) {
            return;
        }
        let kill_at = now + record.spec.grace;
        let suspended = record.suspended;
        match &mut record.phase {
            Phase::Queued { .. } => self.end_queued(job, reason, ENDED_BY_TERM, actions),
            Phase::Resident(residence) => {
                if !residence.terminate(reason, now, kill_at) {
                    return;
                }
                for node in residence.nodes_left() {
                    actions.push(Action::Terminate { job, node });
                }
                // It can't heed the request while it is suspended.
                record.suspended = false;
                self.activate(job);
                // What is planned counts its grace, but not that it has turns again.
                self.queue.disturbed |= suspended;
                self.end_waiting_steps(job, reason, actions);
                self.expect_end(job);
                if self.give_ranks_up(job, actions) {
                    self.finish_if_cleared(job, actions);
                }
            }
        }
    }

    /// Kills a job on request.
    pub(crate) fn kill_job(
        &mut self,
        now: ClusterTime,
        job: JobId,
        reason: EndReason,
        actions: &mut Vec<Action>,
    ) {
        let once = self.runs_once(job);
        if self.jobs.get_mut(&job).is_some_and(|record| !record.note_order(reason, once)) {
            return;
        }
        match self.jobs.get(&job).map(|record| &record.phase) {
            Some(Phase::Queued { .. }) => self.end_queued(job, reason, ENDED_BY_KILL, actions),
            Some(Phase::Resident(_)) => {
                self.kill_resident(now, job, (reason, Deaths::Meant), actions);
            }
            None => {}
        }
    }

    /// A task has ended, and the others may wait for it for ever: they have the job's grace to end, counted in
    /// their own turns, since they can't end while others have the processors.
    pub(crate) fn fail_after_grace(&mut self, job: JobId) {
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let grace = record.spec.grace;
        let Phase::Resident(residence) = &mut record.phase else { return };
        if residence.present() && residence.fail() {
            self.ledger.limit_further(job, grace);
            self.queue.stale = true;
            self.queue.disturbed = true;
        }
    }

    /// A job has run as long as it may: by its own limit, or after a task left the others waiting.
    fn on_limit(&mut self, now: ClusterTime, job: JobId, actions: &mut Vec<Action>) {
        let limit = self.jobs.get(&job).and_then(|record| record.spec.time_limit);
        let is_own = limit.is_some_and(|limit| self.ledger.service(job, now) >= limit);
        let is_own = is_own && !self.is_overrun(job);
        if is_own && self.let_overrun(job, actions) {
            return;
        }
        if is_own && self.force_end(now, job, actions) {
            return;
        }
        let course = self.residence(job).map(|residence| residence.course);
        match course {
            Some(Course::Failing { .. }) if !is_own => {
                let order = (EndReason::TaskFailed, Deaths::Collateral);
                self.kill_resident(now, job, order, actions);
            }
            _ => self.end_job(now, job, EndReason::TimedOut, actions),
        }
        self.end_account(job);
    }

    pub(crate) fn kill_resident(
        &mut self,
        now: ClusterTime,
        job: JobId,
        (reason, deaths): (EndReason, Deaths),
        actions: &mut Vec<Action>,
    ) {
        let Some(residence) = self.residence_mut(job) else { return };
        if residence.kill(reason, now, deaths) {
            let nodes = residence.nodes_left();
            actions.extend(nodes.map(|node| Action::Kill { job, node }));
            self.end_waiting_steps(job, reason, actions);
            self.queue.disturbed = true;
            self.expect_end(job);
            if self.give_ranks_up(job, actions) {
                self.finish_if_cleared(job, actions);
            }
        }
    }

    /// A job is ending: its limit is of no interest any more, but when its grace is over is. Once it is
    /// killed it may be gone any moment.
    pub(crate) fn expect_end(&mut self, job: JobId) {
        if self.residence(job).is_some_and(|residence| residence.ending()) {
            self.warnings.close(job);
            self.checkpoints.close(job);
            self.vacates.close(job);
        }
        self.end_account(job);
        self.queue.stale = true;
        self.set_deadline(job);
    }

    fn end_account(&mut self, job: JobId) {
        match self.residence(job).map(|residence| residence.course) {
            Some(Course::Terminating { kill_at, .. }) => self.ledger.end(job, kill_at),
            Some(Course::Killed { .. }) => self.ledger.kill(job),
            Some(Course::Running | Course::Orphaned { .. } | Course::Failing { .. }) | None => {}
        }
    }

    /// Ends a job that had not begun.
    pub(crate) fn end_queued(
        &mut self,
        job: JobId,
        reason: EndReason,
        exit_code: u8,
        actions: &mut Vec<Action>,
    ) {
        self.drop_promise(job);
        if let Some(record) = self.jobs.remove(&job) {
            self.queue.remove(job, &record.spec, self.matrix.widths());
            self.queues.forget(job, &record.spec);
            self.holds.remove(&job);
            self.after.forget(job);
            self.begins.forget(job);
            self.warnings.forget(job);
            self.checkpoints.forget(job);
            self.vacates.forget(job);
            self.swaps.forget(job);
            self.reruns.forget(job);
            self.roll_out.forget(job);
            self.queue.line.forget_move(job);
            self.allocations.remove(&job);
            self.outside.forget(job);
            self.respawns.forget(job);
        }
        let exit_code = reason.exit_code_or(exit_code);
        let outcome = Outcome { reason, exit_code, service: Nanos::ZERO };
        self.after.note_end(job, outcome);
        actions.push(Action::Ended { job, outcome });
        self.note_element_end(job, outcome, actions);
    }

    /// A job has ended when nothing of it is left on any node, and only then is its place free.
    pub(crate) fn finish_if_cleared(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let is_over = |residence: &&Residence| residence.cleared() && !self.awaits_ranks(job);
        let Some(residence) = self.residence(job).filter(is_over) else { return };
        self.deadlines.remove(&(residence.deadline, job));
        self.matrix.remove(job);
        self.aside.remove(&job);
        let own = self.overrun.remove(&job);
        self.drop_hold(job);
        self.freed.forget(job);
        self.migration.rows = true;
        self.migration.turns = true;
        let service = self.ledger.close(job);
        self.count_end(job, service);
        let Some(mut record) = self.jobs.remove(&job) else { return };
        let Phase::Resident(residence) = &record.phase else { return };
        self.note_came_free(residence.parts.iter().map(|part| part.node));
        self.give_back_resources(residence);
        self.release_devices((job, &record.spec), &residence.parts);
        let memory = record.spec.memory_per_task_bytes.is_some();
        for part in residence.parts.iter().filter(|part| !part.lost) {
            if memory {
                self.nodes.release(part.node, self.swaps.counted_bytes(job, part, &record.spec));
            }
            if self.absent.remove(&(part.node, job)) {
                self.outbox.quieter.insert(part.node);
            }
        }
        self.swaps.end(job);
        self.queue.reconsider();
        self.warnings.close(job);
        self.vacates.close(job);
        self.end_steps(job, residence.outcome(service).reason, actions);
        self.outside.preempted.remove(&job);
        let answer = self.checkpoints.answer(job, residence, service);
        let saved = answer.and_then(|it| it.requeue).filter(|_| !record.asked_to_end);
        let is_lost = matches!(residence.reason(), Some(EndReason::NodeLost(_)));
        let is_out = is_lost && self.roll_out.has_taken(job) && !record.asked_to_end;
        let once = self.runs_once(job);
        if saved.is_some()
            || is_out
            || record.goes_on_in_line(residence, once, self.reruns.losses_of(job))
        {
            self.reruns.note(job, is_lost && !is_out && saved.is_none());
            self.roll_out.note_out(job, residence.parts.iter().map(|part| part.node));
            let hold = residence.reason() == Some(EndReason::Requeued { hold: true });
            // What was asked holds for a run that was lost meanwhile, too.
            let hold = hold || saved == Some(true) || answer.is_some_and(|it| it.holds);
            self.drop_promise(job);
            self.note_answer(&mut record, answer, actions);
            if let Some(own) = own {
                self.begin_anew(&mut record, own, actions);
            }
            self.wait_again(&record);
            self.queue_again(record, actions);
            return if hold {
                self.on_hold(job, HeldBy::Owner)
            };
        }
        self.queues.forget(job, &record.spec);
        self.allocations.remove(&job);
        self.outside.forget(job);
        self.warnings.forget(job);
        self.vacates.forget(job);
        self.swaps.forget(job);
        self.reruns.forget(job);
        self.respawns.forget(job);
        self.checkpoints.forget(job);
        self.roll_out.forget(job);
        let outcome = residence.outcome(service);
        self.after.note_end(job, outcome);
        actions.push(Action::Ended { job, outcome });
        self.note_element_end(job, outcome, actions);
    }

    /// Carries out what is due by now. Each step leaves the job with a later deadline or none, or
    /// brings it one state further, so this ends.
    ///
    /// Limits that are reached just now wait for the `Tick`: a job that ends at that very moment has
    /// kept its limit, and a driver that comes by its events in an order of its own can say so first.
    pub(crate) fn carry_out_due(
        &mut self,
        now: ClusterTime,
        event: &Event,
        actions: &mut Vec<Action>,
    ) {
        while let Some(&(at, job)) = self.deadlines.first()
            && at <= now
        {
            match self.residence(job).map(|residence| residence.course) {
                Some(Course::Orphaned { kill_at } | Course::Failing { kill_at })
                    if kill_at <= now =>
                {
                    let order = (EndReason::FrontEndLost, Deaths::Meant);
                    self.kill_resident(now, job, order, actions);
                }
                Some(Course::Terminating { reason, kill_at, .. }) if kill_at <= now => {
                    self.kill_resident(now, job, (reason, Deaths::Meant), actions);
                }
                Some(_) => self.set_deadline(job),
                None => {
                    self.deadlines.remove(&(at, job));
                }
            }
        }
        self.checkpoints_due(now, actions);
        self.end_due_steps(now, actions);
        let ticks = *event == Event::Tick;
        while let Some((at, job)) = self.ledger.next_due()
            && (at < now || (at == now && ticks))
        {
            self.on_limit(now, job, actions);
        }
    }

    /// Notes when the grace of a job is over.
    pub(crate) fn set_deadline(&mut self, job: JobId) {
        let kills = self.kills;
        let Some(residence) = self.residence_mut(job) else { return };
        let deadline = match residence.course {
            Course::Running | Course::Killed { .. } => ClusterTime::NEVER,
            Course::Terminating { .. } if !kills => ClusterTime::NEVER,
            Course::Orphaned { kill_at }
            | Course::Failing { kill_at }
            | Course::Terminating { kill_at, .. } => kill_at,
        };
        let before = core::mem::replace(&mut residence.deadline, deadline);
        self.deadlines.remove(&(before, job));
        if deadline < ClusterTime::NEVER {
            self.deadlines.insert((deadline, job));
        }
    }

    /// Keeps the driver's wish to wake the core up to date.
    pub(crate) fn ask_to_wake(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        self.ledger.advance(now);
        let mut at = self.deadlines.first().map_or(ClusterTime::NEVER, |&(at, _)| at);
        at = at.min(self.step_deadlines.first().map_or(ClusterTime::NEVER, |&(at, _)| at));
        at = at
            .min(self.settings_until)
            .min(self.begins.next())
            .min(self.after.next())
            .min(self.freed.next())
            .min(self.next_move_within_node());
        at = at.min(self.next_warning()).min(self.next_respawn()).min(self.checkpoints.next());
        at = at.min(self.next_of_roll_out()).min(self.next_back()).min(self.next_leaving());
        at = at.min(self.next_end_of_turn());
        at = at.min(self.by_class.wake).min(self.next_spent(now)).min(self.next_by_use());
        at = at.min(self.ledger.next_due().map_or(ClusterTime::NEVER, |(at, _)| at));
        if self.policy().plans() {
            at = at.min(self.next_turn(now));
        }
        at = at.min(self.next_reserved(now));
        if self.ledger.any_limited() {
            // When a timetable activates, ends of time must be foretold anew.
            at = at.min(self.ledger.next_stage());
        }
        if at != self.wake {
            self.wake = at;
            actions.push(Action::WakeAt { at });
        }
    }
}

/// The memory allocated to a part of a job, in bytes.
pub(crate) fn memory_of(part: &Part, spec: &JobSpec) -> u64 {
    spec.memory_per_task_bytes.unwrap_or(0).saturating_mul(u64::from(part.tasks))
}
