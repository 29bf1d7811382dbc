//! Orders of owners and administrators about jobs: hold, release, another class, time limit or
//! place in line.

use super::driver::Driver;
use super::error::Problem;
use super::requests::Forbidden;
use tutti_core::{Action, CheckpointOrder, Core, Event, HeldBy, JobState, LimitStays};
use tutti_types::limits::{MOVED_MAX, TIME_LIMIT_MIN};
use tutti_types::{ClassName, ClusterTime, EndReason, JobId, Nanos, Refusal};
use tutti_wire::code::Code;
use tutti_wire::event::What;
use tutti_wire::local::{BrokenPromise, LimitChange, Reply};
use tutti_wire::units::format_duration_short;

impl Driver {
    /// The part in which a user acts on a job: its owner as that, others as administrators.
    pub(super) fn acts_as(&self, uid: u32, job: JobId) -> HeldBy {
        match self.entry(job) {
            Some(entry) if entry.owner.uid() != uid => HeldBy::Administrator,
            _ => HeldBy::Owner,
        }
    }

    pub(super) fn on_hold(&mut self, token: u64, uid: u32, job: JobId) {
        let state = self.core.job(job, self.now()).map(|view| view.state);
        let waits =
            matches!(state, Some(JobState::Queued { .. })) || self.arrays.contains_key(&job);
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

    /// Has a job that runs wait in line again.
    pub(super) fn on_requeue(
        &mut self,
        token: u64,
        uid: u32,
        job: JobId,
        (hold, anew): (bool, bool),
    ) {
        if let Err(error) = self.owned(uid, job) {
            return self.fail(token, error);
        }
        let elements = self.live_elements(job);
        if anew && elements.is_none() && self.drop_image(job) {
            return match self.core.held_by(job) {
                Some(_) if !hold => self.on_release(token, uid, job),
                _ => self.reply(token, &Reply::Done),
            };
        }
        let jobs = match elements {
            None => self.check_requeue(job).map(|()| vec![job]),
            Some(elements) => self.requeued_elements(uid, (job, elements), (hold, anew)),
        };
        match jobs {
            Ok(jobs) => {
                let reason = EndReason::Requeued { hold };
                for job in jobs {
                    self.apply(&Event::Cancel { job, reason, at_once: false });
                }
                self.reply(token, &Reply::Done);
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// The elements of an array that can be queued again. Those that wait with an image start anew,
    /// if so asked.
    fn requeued_elements(
        &mut self,
        uid: u32,
        (array, mut elements): (JobId, Vec<JobId>),
        (hold, anew): (bool, bool),
    ) -> Result<Vec<JobId>, Problem> {
        let all = elements.len();
        if anew {
            elements.retain(|&job| {
                let waits = self.drop_image(job);
                if waits
                    && !hold
                    && let Ok(by) = self.may_release(uid, job)
                {
                    self.apply(&Event::Release { job, by });
                }
                !waits
            });
        }
        let waited = all - elements.len();
        elements.retain(|&job| self.check_requeue(job).is_ok());
        if elements.is_empty() && waited == 0 {
            let why = format!("no element of array {array} runs, so none is queued again");
            return Err(Problem::new(Code::NotInThatState, why));
        }
        Ok(elements)
    }

    /// Has a job start anew when it runs next. Whether it waits in line for that already.
    fn drop_image(&mut self, job: JobId) -> bool {
        let order = CheckpointOrder::Anew;
        if self.core.why_no_checkpoint(job, order).is_some() {
            return false;
        }
        self.apply(&Event::Checkpoint { job, order });
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.saving.note_failure(String::new());
        }
        self.note_checkpoint(job);
        let state = self.core.job(job, self.now()).map(|view| view.state);
        matches!(state, Some(JobState::Queued { .. }))
    }

    /// Whether a job can be queued again.
    fn check_requeue(&self, job: JobId) -> Result<(), Problem> {
        let view = self.core.job(job, self.now());
        let wrong = |code, why: String| Err(Problem::new(code, why));
        let Some(view) = view else {
            let why = format!("job {job} is not running; `tutti ps` lists the jobs that are");
            return wrong(Code::NotInThatState, why);
        };
        let adopted = self.jobs.get(&job).and_then(|entry| entry.terms.whole_launch());
        if view.spec.attached || adopted.is_some_and(|launch| !launch.adopt.is_empty()) {
            let why = format!(
                "job {job} can't be queued again: its front end waits for its end, or it was \
                 adopted; jobs of `tutti submit`, `batch` and `sbatch` can"
            );
            return wrong(Code::Improper, why);
        }
        if self.core.runs_once(job) {
            let why = format!(
                "job {job} can't be queued again: it was submitted with --no-requeue; submit it \
                 again"
            );
            return wrong(Code::Improper, why);
        }
        match view.state {
            JobState::Queued { .. } => {
                wrong(Code::NotInThatState, format!("job {job} waits in line already"))
            }
            JobState::Ending { .. } => {
                wrong(Code::NotInThatState, format!("job {job} is ending; submit it again"))
            }
            _ => Ok(()),
        }
    }

    /// As what a user may release a job.
    fn may_release(&self, uid: u32, job: JobId) -> Result<HeldBy, Forbidden> {
        let by = self.acts_as(uid, job);
        // The owner of the instance may do with own jobs what an administrator may.
        let by = if self.admin(uid).is_ok() { HeldBy::Administrator } else { by };
        self.owned(uid, job).and_then(|()| match self.core.held_by(job) {
            None if self.arrays.contains_key(&job) => Ok(by),
            None => Err(Forbidden::NotHeld(job)),
            Some(held) if held > by => Err(Forbidden::HeldByAdministrator(job)),
            Some(_) => Ok(by),
        })
    }

    pub(super) fn on_release(&mut self, token: u64, uid: u32, job: JobId) {
        match self.may_release(uid, job) {
            Ok(by) => {
                self.apply(&Event::Release { job, by });
                self.reply(token, &Reply::Done);
            }
            Err(error) => self.fail(token, error),
        }
    }

    /// Gives a waiting job another place in line, or only says which promises that would break.
    pub(super) fn on_move(
        &mut self,
        token: u64,
        uid: u32,
        (job, before): (JobId, Option<JobId>),
        dry_run: bool,
    ) {
        let allowed = self.admin(uid).and_then(|()| self.may_move(uid, job, before));
        if let Err(error) = allowed {
            return self.fail(token, error);
        }
        let event = Event::MoveJob { job, before };
        let now = self.now();
        if dry_run {
            let (mut copy, mut actions) = (self.core.clone(), Vec::new());
            copy.apply(now, &event, &mut actions);
            let broken = actions.into_iter().filter_map(|action| match action {
                Action::PromiseBroken { job, at, .. } => Some((job, at)),
                _ => None,
            });
            let broken = self.broken_promises(&copy, broken);
            return self.reply(token, &Reply::Moved { broken });
        }
        self.decision.broken.clear();
        self.apply(&event);
        let broken = std::mem::take(&mut self.decision.broken);
        let broken = self.broken_promises(&self.core, broken);
        self.reply(token, &Reply::Moved { broken });
    }

    fn may_move(&self, uid: u32, job: JobId, before: Option<JobId>) -> Result<(), Forbidden> {
        let now = self.now();
        for job in [Some(job), before].into_iter().flatten() {
            self.owned(uid, job)?;
            if self.arrays.contains_key(&job) {
                return Err(Forbidden::IsArray(job));
            }
            let state = self.core.job(job, now).map(|view| view.state);
            if !matches!(state, Some(JobState::Queued { .. })) {
                return Err(Forbidden::NoPlace(job));
            }
        }
        if before == Some(job) {
            return Err(Forbidden::BeforeItself(job));
        }
        let full = self.core.moved_jobs() >= MOVED_MAX && !self.core.is_moved(job);
        if full { Err(Forbidden::TooManyMoved) } else { Ok(()) }
    }

    /// Promises that an order has broken, from each job and when it was to start at the latest.
    fn broken_promises(
        &self,
        core: &Core,
        broken: impl IntoIterator<Item = (JobId, ClusterTime)>,
    ) -> Vec<BrokenPromise> {
        let now = core.now();
        let seconds = |at: ClusterTime| at.since(now).0.div_ceil(1_000_000_000);
        let report = |(job, at)| BrokenPromise {
            job,
            user: self.jobs.get(&job).map(|entry| entry.owner.user.clone()).unwrap_or_default(),
            promised_s: seconds(at),
            now_s: core.promised_start(job).map(seconds),
        };
        broken.into_iter().map(report).collect()
    }

    /// Tells the owner of a job that an order has broken what it was promised: by an event, and its
    /// front end, if it has one. `tutti ps` and `tutti show` say it while the job waits.
    pub(super) fn on_promise_broken(&mut self, job: JobId, at: ClusterTime, by: JobId) {
        self.decision.broken.push((job, at));
        if let Some(start_ms) = self.jobs.get(&job).map(|entry| entry.times.moment_ms(at)) {
            self.job_event(job, What::JobPromiseBroken { by, start_ms });
        }
        if let Some(front) = self.jobs.get(&job).and_then(|entry| entry.clients.front()) {
            let text = super::report::why_it_waits(self, job);
            self.reply(front, &Reply::Notice { text: format!("job {job}: {text}") });
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
            && let Some(entry) = self.entry(job)
            && let Err(problem) = self.may_use_class(&class, &entry.owner.credentials)
        {
            return self.fail(token, problem);
        }
        if self.core.is_overrun(job) {
            return self.fail(token, Forbidden::Overrun(job));
        }
        let elements = self.live_elements(job).unwrap_or_default();
        for job in elements.into_iter().chain([job]) {
            if let Some(entry) = self.entry_mut(job) {
                entry.terms.class = class.to_string();
            }
        }
        self.apply(&Event::SetJobClass { job, class });
        self.reply(token, &Reply::Done);
    }

    pub(super) fn on_set_time_limit(
        &mut self,
        token: u64,
        uid: u32,
        job: JobId,
        change: LimitChange,
    ) {
        match self.limit_of(uid, job, change) {
            Ok(limit) => {
                let elements = self.live_elements(job).unwrap_or_default();
                for job in elements.into_iter().chain([job]) {
                    if let Some(entry) = self.entry_mut(job) {
                        entry.terms.time_limit = limit;
                    }
                }
                self.decision.broken.clear();
                self.apply(&Event::SetTimeLimit { job, limit });
                let broken = std::mem::take(&mut self.decision.broken);
                let broken = self.broken_promises(&self.core, broken);
                self.reply(token, &Reply::Moved { broken });
            }
            Err(problem) => self.fail(token, problem),
        }
    }

    /// The limit that a job gets; its owner may have it end earlier, administrators also later.
    fn limit_of(
        &self,
        uid: u32,
        job: JobId,
        change: LimitChange,
    ) -> Result<Option<Nanos>, Problem> {
        self.owned(uid, job)?;
        self.core.may_change_limit(job).map_err(|why| match why {
            LimitStays::Planned => Forbidden::LimitPlanned(job),
            LimitStays::Overrun => Forbidden::Overrun(job),
            LimitStays::Ending => Forbidden::LimitEnds(job),
        })?;
        let before = self.entry(job).and_then(|entry| entry.terms.time_limit);
        let by = |change: fn(u64, u64) -> u64, by: Nanos| {
            before.map(|before| Some(Nanos(change(before.0, by.0)))).ok_or(Forbidden::NoLimit(job))
        };
        let limit = match change {
            LimitChange::To(limit) => limit,
            LimitChange::Longer(more) => by(u64::saturating_add, more)?,
            LimitChange::Shorter(less) => by(u64::saturating_sub, less)?,
        };
        let length = |limit: Option<Nanos>| limit.map_or(u64::MAX, |limit| limit.0);
        if length(limit) > length(before) && self.admin(uid).is_err() {
            let most = before.map(format_duration_short).unwrap_or_default();
            return Err(Forbidden::LongerLimit(job, most).into());
        }
        let service = self.core.job(job, self.now()).map_or(Nanos::ZERO, |view| view.service);
        if limit.is_some_and(|limit| limit <= service) {
            let ran = format_duration_short(service);
            return Err(Forbidden::LimitPassed(job, ran).into());
        }
        match limit {
            Some(limit) if limit < TIME_LIMIT_MIN => {
                let refusal = Refusal::NoTime { shortest: TIME_LIMIT_MIN };
                Err(Problem::new(tutti_node::codes::code_of_refusal(&refusal), refusal))
            }
            limit => Ok(limit),
        }
    }
}
