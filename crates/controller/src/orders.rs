//! Orders of owners and administrators about jobs: hold, release, another class.

use super::driver::Driver;
use super::error::Problem;
use super::requests::Forbidden;
use tutti_core::{Event, HeldBy, JobState};
use tutti_types::{ClassName, JobId, Refusal};
use tutti_wire::local::Reply;

impl Driver {
    /// The part in which a user acts on a job: its owner as that, others as administrators.
    fn acts_as(&self, uid: u32, job: JobId) -> HeldBy {
        match self.jobs.get(&job) {
            Some(entry) if entry.credentials.uid != uid => HeldBy::Administrator,
            _ => HeldBy::Owner,
        }
    }

    pub(super) fn on_hold(&mut self, token: u64, uid: u32, job: JobId) {
        let state = self.core.job(job, self.now()).map(|view| view.state);
        let waits = matches!(state, Some(JobState::Queued { .. }));
        let allowed =
            self.owned(uid, job).and_then(|()| waits.then_some(()).ok_or(Forbidden::HasBegun(job)));
        match allowed {
            Ok(()) => {
                let by = self.acts_as(uid, job);
                self.apply(&Event::Hold { job, by });
                self.reply(token, &Reply::Done);
            }
            Err(error) => self.fail(token, error),
        }
    }

    pub(super) fn on_release(&mut self, token: u64, uid: u32, job: JobId) {
        let by = self.acts_as(uid, job);
        // The owner of the instance may do with own jobs what an administrator may.
        let by = if self.admin(uid).is_ok() { HeldBy::Administrator } else { by };
        let allowed = self.owned(uid, job).and_then(|()| match self.core.held_by(job) {
            None => Err(Forbidden::NotHeld(job)),
            Some(held) if held > by => Err(Forbidden::HeldByAdministrator(job)),
            Some(_) => Ok(()),
        });
        match allowed {
            Ok(()) => {
                self.apply(&Event::Release { job, by });
                self.reply(token, &Reply::Done);
            }
            Err(error) => self.fail(token, error),
        }
    }

    pub(super) fn on_set_job_class(&mut self, token: u64, uid: u32, job: JobId, class: ClassName) {
        if let Err(error) = self.owned(uid, job) {
            return self.fail(token, error);
        }
        let classes = self.core.classes();
        if !classes.contains_key(&class) {
            let known = classes.keys().cloned().collect();
            let refusal = Refusal::UnknownClass { class, known };
            let code = tutti_node::codes::code_of_refusal(&refusal);
            return self.fail(token, Problem::new(code, refusal));
        }
        if self.admin(uid).is_err()
            && let Some(entry) = self.jobs.get(&job)
            && let Err(problem) = self.may_use_class(&class, &entry.credentials)
        {
            return self.fail(token, problem);
        }
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.class = class.to_string();
        }
        self.apply(&Event::SetJobClass { job, class });
        self.reply(token, &Reply::Done);
    }
}
