//! A submit: whether the core accepts a job, and the record that it gets.

use super::Core;
use crate::action::Action;
use crate::devices::note_vacating;
use crate::event::SubmitOptions;
use crate::state::record::{Phase, Record};
use alloc::vec::Vec;
use tutti_types::ids::{JobId, RequestId};
use tutti_types::job::{FirstStep, JobSpec};
use tutti_types::limits::JOBS_MAX;
use tutti_types::refusal::Refusal;
use tutti_types::time::ClusterTime;

impl Core {
    pub(super) fn on_submit(
        &mut self,
        now: ClusterTime,
        request: RequestId,
        (spec, options): (&JobSpec, &SubmitOptions),
        actions: &mut Vec<Action>,
    ) {
        let refusal = self
            .admit(spec, options, 1)
            .and_then(|()| self.admit_pair(options.after.as_ref(), None));
        actions.push(match refusal.and_then(|()| self.take_on(now, spec, options)) {
            Ok(job) => Action::Accept { request, job },
            Err(refusal) => Action::Decline { request, refusal },
        });
    }

    /// Whether so many jobs like this one, submitted together, can be accepted.
    pub(crate) fn admit(
        &self,
        spec: &JobSpec,
        options: &SubmitOptions,
        count: u32,
    ) -> Result<(), Refusal> {
        if self.is_closed() {
            Err(Refusal::ShuttingDown)
        } else if self.jobs.len() + self.arrays.len() >= JOBS_MAX {
            Err(Refusal::TooManyJobs { limit: JOBS_MAX as u64 })
        } else if options.hold.is_some() && spec.deadline.is_some() {
            Err(Refusal::HeldWithDeadline)
        } else if (options.after.is_some() || options.never.is_some()) && spec.deadline.is_some() {
            Err(Refusal::DeadlineAfterJobs)
        } else if options.begin.is_some() && spec.deadline.is_some() {
            Err(Refusal::DeadlineWithBegin)
        } else {
            (self.policy().admission)(self.machine(), spec)
                .and_then(|()| self.resources.admit(&spec.resources))
                .and_then(|()| {
                    let queue = options.queue.as_ref();
                    queue.map_or(Ok(()), |queue| self.queues.admit(queue, spec, count))
                })
                .and_then(|()| self.admit_after(options.after.as_ref()))
        }
    }

    /// Takes a job on, if what it asks to be promised can be.
    pub(crate) fn take_on(
        &mut self,
        now: ClusterTime,
        spec: &JobSpec,
        options: &SubmitOptions,
    ) -> Result<JobId, Refusal> {
        let id = JobId(self.jobs_made + 1);
        let (phase, deadline) = (Phase::Queued { since: now }, spec.deadline.map(|it| now + it));
        let (mut spec, former) = (spec.clone(), None);
        // Steps have their processors from its parts.
        spec.movable &= options.first == FirstStep::EachSlot;
        note_vacating(&mut spec, options.vacate.is_some());
        let (suspended, requeues, asked_to_end) = (false, 0, false);
        let mut record =
            Record { id, spec, former, deadline, suspended, requeues, asked_to_end, phase };
        self.bank.reclassify(&mut record);
        self.update_promises(now);
        let promise = self.promise_for(now, &record)?;
        self.jobs_made = id.0;
        if let Some(queue) = &options.queue {
            self.join_queue(id, queue, &record.spec);
        }
        self.jobs.insert(id, record);
        self.note_first_step(id, options.first);
        if !options.args.is_empty() {
            self.outside.args.insert(id, options.args.clone());
        }
        if let Some(warning) = options.warning {
            self.warnings.note(id, warning);
        }
        if let Some(checkpoint) = options.checkpoint {
            self.checkpoints.note(id, checkpoint);
        }
        if let Some(lead) = options.vacate {
            self.vacates.note(id, lead);
        }
        if options.swap {
            self.swaps.note(id);
        }
        if options.no_requeue {
            self.reruns.once.insert(id);
        }
        let mut waits = options.after.as_ref().is_some_and(|after| self.start_after(id, after));
        waits |= options.never.as_ref().is_some_and(|never| self.wait_in_vain(id, never.job));
        waits |= options.begin.is_some_and(|begin| self.begin_at(now, id, begin));
        if let Some(by) = options.hold {
            self.holds.insert(id, by);
        } else if !waits && self.enter_line(id) {
            self.queue.newcomer = Some(id);
        }
        match promise {
            Some((sharers, promise)) => self.enter_promise(&sharers, id, promise),
            None if deadline.is_some() => drop(self.plans.at_risk.insert(id, now)),
            None => {}
        }
        Ok(id)
    }
}
