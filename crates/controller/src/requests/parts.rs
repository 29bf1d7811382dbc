//! Signals and orders to jobs, ranks and processes.
//!
//! The core ends, suspends and resumes whole jobs. For parts of them, the agents of their nodes are
//! asked.

use super::Forbidden;
use crate::agents::ranks_of;
use crate::driver::Driver;
use crate::error::Problem;
use crate::node_queries::Page;
use tutti_core::Event;
use tutti_types::{EndReason, Nanos};
use tutti_wire::code::Code;
use tutti_wire::limits::SUSPENDED_PARTS_MAX;
use tutti_wire::report::Target;
use tutti_wire::tree::Question;

impl Driver {
    /// Whole jobs are ended by the core; parts of them by the agents of their nodes.
    pub(super) fn on_cancel(&mut self, token: u64, uid: u32, target: Target, at_once: bool) {
        let job = target.job;
        if target.rank.is_none() {
            return self.for_owner(token, uid, job, |driver| {
                let reason = EndReason::Cancelled;
                driver.apply(&Event::Cancel { job, reason, at_once });
            });
        }
        let grace = self.core.job(job, self.now()).map_or(Nanos::ZERO, |view| view.spec.grace);
        let grace = if at_once { Nanos::ZERO } else { grace };
        self.on_part(token, uid, target, Question::EndPart { target, grace });
    }

    pub(super) fn on_signal(
        &mut self,
        token: u64,
        uid: u32,
        target: Target,
        signal: u8,
        every: bool,
    ) {
        if !(1..=64).contains(&signal) {
            return self.fail(token, format!("{signal} is no signal; signals are 1 to 64"));
        }
        if every || target.pid.is_some() {
            return self.on_part(token, uid, target, Question::SignalPart { target, signal });
        }
        if let Err(error) = self.owned_part(uid, target) {
            return self.fail(token, error);
        }
        let job = target.job;
        if let Some(rank) = target.rank
            && self.core.array(job).is_some()
        {
            let reason = format!(
                "job {job} is an array, and each element has its own ranks; name one of an element, \
                 by its number in `tutti ps`, such as {}.{rank}",
                job.0 + 1
            );
            return self.fail(token, Problem::new(Code::Improper, reason));
        }
        let ranks = target.rank.into_iter().collect();
        if let Some(elements) = self.live_elements(job) {
            return self.for_owner(token, uid, job, |driver| {
                for job in elements {
                    driver.apply(&Event::Signal { job, ranks: Vec::new(), signal });
                }
            });
        }
        self.for_owner(token, uid, job, |driver| {
            driver.apply(&Event::Signal { job, ranks, signal });
        });
    }

    /// Whole jobs are suspended in the matrix; parts of them by the agents of their nodes.
    pub(super) fn on_part(&mut self, token: u64, uid: u32, target: Target, question: Question) {
        self.on_page_of_part(token, uid, target, (question, Page::default()));
    }

    pub(super) fn on_page_of_part(
        &mut self,
        token: u64,
        uid: u32,
        target: Target,
        (question, page): (Question, Page),
    ) {
        let job = target.job;
        let allowed = self.owned_part(uid, target).and_then(|()| self.room_for_part(&question));
        if let Err(error) = allowed {
            return self.fail(token, error);
        }
        if target.rank.is_none() {
            match question {
                Question::SuspendPart(_) => {
                    let jobs = self.live_elements(job).unwrap_or_else(|| vec![job]);
                    return self.for_owner(token, uid, job, |driver| {
                        jobs.into_iter().for_each(|job| driver.apply(&Event::Suspend { job }));
                    });
                }
                Question::ResumePart(_) => {
                    let jobs = self.live_elements(job).unwrap_or_else(|| vec![job]);
                    return self.for_owner(token, uid, job, |driver| {
                        jobs.into_iter().for_each(|job| driver.apply(&Event::Resume { job }));
                    });
                }
                Question::Switches { .. }
                | Question::Status
                | Question::Timetable
                | Question::SignOfLife { .. }
                | Question::Usages
                | Question::Fares
                | Question::Processes(_)
                | Question::EndPart { .. }
                | Question::SignalPart { .. }
                | Question::Upgrade { .. }
                | Question::Devices { .. }
                | Question::Output { .. }
                | Question::Runs { .. } => {}
            }
        }
        let nodes: Vec<_> = self
            .core
            .job(job, self.now())
            .into_iter()
            .flat_map(|view| view.placements)
            .filter(|placed| {
                target.rank.is_none_or(|rank| ranks_of(placed).any(|other| other == rank))
            })
            .map(|placed| placed.node)
            .collect();
        if nodes.is_empty() {
            let reason = format!("{target} is not running; see `tutti ps`");
            return self.fail(token, Problem::new(Code::NoPart, reason));
        }
        self.ask_for_page(token, &nodes, &question, page);
    }

    /// Whether another subtree may be suspended, if that is asked. Of whole tasks there are no more
    /// than the job has.
    fn room_for_part(&self, question: &Question) -> Result<(), Forbidden> {
        let Question::SuspendPart(target) = question else { return Ok(()) };
        let Some(entry) = self.jobs.get(&target.job).filter(|_| target.pid.is_some()) else {
            return Ok(());
        };
        let suspended = entry.run.suspended();
        let subtrees = suspended.iter().filter(|part| part.pid.is_some()).count();
        match subtrees >= SUSPENDED_PARTS_MAX && !suspended.contains(target) {
            true => Err(Forbidden::TooManyParts(target.job)),
            false => Ok(()),
        }
    }

    /// Remembers what `ps` shows of parts; called when their nodes have answered.
    pub(crate) fn note_part(&mut self, question: &Question, done: bool) {
        let (Question::SuspendPart(target)
        | Question::ResumePart(target)
        | Question::EndPart { target, .. }) = question
        else {
            return;
        };
        let Some(entry) = self.jobs.get_mut(&target.job) else { return };
        match question {
            Question::SuspendPart(_) if done => entry.run.suspend(*target),
            // A process that can't be resumed has gone.
            Question::ResumePart(_) | Question::EndPart { .. } if done || target.pid.is_some() => {
                entry.run.resume(target);
            }
            _ => {}
        }
    }
}
