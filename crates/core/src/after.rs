//! Jobs that start after others.
//!
//! A job may name jobs that must have become something first ([`AfterWhat`]): ended well, failed,
//! ended, started. Until all of these are so, or one of them if that is enough, it is in no place
//! of the line, as a held job is; then it comes in, and has its place by arrival. If what it asks
//! can't be met any more, it ends ([`EndReason::NeverAfter`]), unless it is to stay: then it waits
//! until it is cancelled.
//!
//! The jobs that are named are older, and so there are no circles. Those that have ended before
//! are the driver's to look up: the core knows jobs that live. A requeued job has started, and has
//! not ended.
//!
//! A job may ask that another one has started so long ago. Once that has started, the job waits for
//! a moment of cluster time, whatever becomes of the other one.

use crate::action::Action;
use crate::apply::Core;
use crate::arrays::ElementOrder;
use crate::policy::WaitReason;
use crate::state::record::Phase;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::after::{After, AfterJobs, AfterWhat};
use tutti_types::ids::JobId;
use tutti_types::job::{EndReason, Outcome};
use tutti_types::limits::AFTER_MAX;
use tutti_types::refusal::Refusal;
use tutti_types::time::{ClusterTime, Nanos};

/// What a job ends with that can never start.
const NEVER_STARTED: u8 = EndReason::NeverAfter(JobId(0)).exit_code_or(0);

/// The waiting jobs that start after others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct JobsAfter {
    waiting: BTreeMap<JobId, Waits>,
    /// The jobs that start after one, for each that has such.
    before: BTreeMap<JobId, BTreeSet<JobId>>,
    /// What has become of jobs, and was not looked at yet.
    news: VecDeque<(JobId, News)>,
    /// The moments that jobs wait for, by time: see [`Waits::moments`].
    moments: BTreeSet<(ClusterTime, JobId)>,
}

/// What one job waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Waits {
    /// What is not so yet.
    jobs: Vec<After>,
    /// What is so at a moment that is known: another job has started so long ago.
    moments: Vec<(ClusterTime, After)>,
    one: bool,
    stays: bool,
    /// The job by which it can't be met any more.
    never: Option<JobId>,
}

/// What has become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum News {
    Started,
    Ended { ok: bool },
}

/// What news make of what a job waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    Met,
    Never,
}

impl News {
    /// What it makes of one wish; `None`: it is still open.
    const fn meets(self, what: AfterWhat) -> Option<bool> {
        match (self, what) {
            (Self::Started, AfterWhat::Start | AfterWhat::StartPlus(_)) => Some(true),
            (
                Self::Started,
                AfterWhat::Ok | AfterWhat::NotOk | AfterWhat::Any | AfterWhat::Each,
            ) => None,
            (Self::Ended { ok }, what) => Some(what.is_met_by_end(ok)),
        }
    }
}

impl Waits {
    /// Those of a job that can never start after another one, and stays.
    fn in_vain(before: JobId) -> Self {
        let (jobs, moments) = (Vec::new(), Vec::new());
        Self { jobs, moments, one: false, stays: true, never: Some(before) }
    }

    /// What news of a job at a time make of it.
    fn hear(&mut self, now: ClusterTime, job: JobId, news: News) -> Verdict {
        let (mut met, mut unmet) = (false, false);
        let moments = &mut self.moments;
        self.jobs.retain(|after| {
            if after.job != job {
                return true;
            }
            if let AfterWhat::StartPlus(delay) = after.what
                && delay > Nanos::ZERO
            {
                moments.push((now + delay, *after));
                return false;
            }
            let meets = news.meets(after.what);
            met |= meets == Some(true);
            unmet |= meets == Some(false);
            meets.is_none()
        });
        self.verdict(met, unmet)
    }

    /// A moment has come.
    fn pass(&mut self, now: ClusterTime) -> Verdict {
        let before = self.moments.len();
        self.moments.retain(|&(at, _)| at > now);
        self.verdict(self.moments.len() < before, false)
    }

    /// What it comes to when something of it is so now, or never can be.
    const fn verdict(&self, met: bool, unmet: bool) -> Verdict {
        let none = self.jobs.is_empty() && self.moments.is_empty();
        match (self.one, met, unmet) {
            (true, true, _) => Verdict::Met,
            (false, _, true) => Verdict::Never,
            (true, false, true) if none => Verdict::Never,
            (false, true, false) if none => Verdict::Met,
            (true | false, ..) => Verdict::Open,
        }
    }
}

impl JobsAfter {
    /// Whether a job waits for others.
    pub(crate) fn waits(&self, job: JobId) -> bool {
        self.waiting.contains_key(&job)
    }

    /// A job has started.
    pub(crate) fn note_start(&mut self, job: JobId) {
        if self.before.contains_key(&job) {
            self.news.push_back((job, News::Started));
        }
    }

    /// A job has ended.
    pub(crate) fn note_end(&mut self, job: JobId, outcome: Outcome) {
        if self.before.contains_key(&job) {
            let ok = outcome.ended_well();
            self.news.push_back((job, News::Ended { ok }));
        }
    }

    fn note(&mut self, job: JobId, waits: Waits) {
        for after in &waits.jobs {
            self.before.entry(after.job).or_default().insert(job);
        }
        self.moments.extend(waits.moments.iter().map(|&(at, _)| (at, job)));
        self.waiting.insert(job, waits);
    }

    /// When the next moment comes that a job waits for; never, if none does.
    pub(crate) fn next(&self) -> ClusterTime {
        self.moments.first().map_or(ClusterTime::NEVER, |&(at, _)| at)
    }

    /// A job waits for none any more.
    pub(crate) fn forget(&mut self, job: JobId) {
        let Some(waits) = self.waiting.remove(&job) else { return };
        for (at, _) in waits.moments {
            self.moments.remove(&(at, job));
        }
        for after in waits.jobs {
            self.unlink(after.job, job);
        }
    }

    fn unlink(&mut self, before: JobId, job: JobId) {
        if let Some(jobs) = self.before.get_mut(&before) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.before.remove(&before);
            }
        }
    }

    /// What becomes of the jobs that start after one of which there are news.
    fn take_in(&mut self, now: ClusterTime, job: JobId, news: News) -> Vec<(JobId, Verdict)> {
        let mut verdicts = Vec::new();
        let Some(jobs) = self.before.get(&job) else { return verdicts };
        for after in jobs.clone() {
            let Some(waits) = self.waiting.get_mut(&after) else { continue };
            verdicts.push((after, waits.hear(now, job, news)));
            self.moments.extend(waits.moments.iter().map(|&(at, _)| (at, after)));
            if !waits.jobs.iter().any(|it| it.job == job) {
                self.unlink(job, after);
            }
        }
        verdicts
    }
}

impl Core {
    /// Whether a job can start after these.
    pub(crate) fn admit_after(&self, after: Option<&AfterJobs>) -> Result<(), Refusal> {
        let Some(after) = after else { return Ok(()) };
        if after.jobs.len() > AFTER_MAX {
            let limit = u32::try_from(AFTER_MAX).unwrap_or(u32::MAX);
            return Err(Refusal::AfterTooMany { limit });
        }
        let is_there = |job| self.jobs.get(&job).is_some() || self.arrays.contains(job);
        match after.jobs.iter().find(|it| !is_there(it.job)) {
            Some(none) => Err(Refusal::AfterNone { job: none.job }),
            None => Ok(()),
        }
    }

    /// A job is to start after others; whether it waits for any of them.
    pub(crate) fn start_after(&mut self, job: JobId, after: &AfterJobs) -> bool {
        let AfterJobs { jobs, one, stays } = after;
        let (one, stays, moments, never) = (*one, *stays, Vec::new(), None);
        let mut waits = Waits { jobs: jobs.clone(), moments, one, stays, never };
        waits.jobs.sort_unstable();
        waits.jobs.dedup();
        let count = waits.jobs.len();
        // Of an array it is not known since when.
        let started = |job| {
            let since = self.jobs.get(&job).and_then(|it| it.residence()).map(|it| it.since);
            since.or_else(|| self.arrays.has_started(job).then_some(self.now))
        };
        let (now, moments) = (self.now, &mut waits.moments);
        waits.jobs.retain(|it| match (it.what, started(it.job)) {
            (AfterWhat::Start, Some(_)) => false,
            (AfterWhat::StartPlus(delay), Some(since)) => {
                moments.extend((since + delay > now).then_some((since + delay, *it)));
                false
            }
            _ => true,
        });
        let open = waits.jobs.len() + waits.moments.len();
        let is_met = open == 0 || (one && open < count);
        if !is_met {
            self.after.note(job, waits);
        }
        !is_met
    }

    /// A job can never start after one that has ended, and stays: it waits.
    pub(crate) fn wait_in_vain(&mut self, job: JobId, before: JobId) -> bool {
        self.after.note(job, Waits::in_vain(before));
        true
    }

    /// Lets jobs into line that started after others long enough, and ends those that never can.
    /// Whether there were any.
    pub(crate) fn follow_after(&mut self, actions: &mut Vec<Action>) -> bool {
        let mut any = self.follow_pairs(actions);
        while let Some((job, news)) = self.after.news.pop_front() {
            for (after, verdict) in self.after.take_in(self.now, job, news) {
                match verdict {
                    Verdict::Open => continue,
                    Verdict::Met => self.wait_no_more(after),
                    Verdict::Never => self.never_start(after, job, actions),
                }
                any = true;
            }
            self.follow_pairs(actions);
        }
        any
    }

    /// Lets jobs into line whose moment has come, if they wait for nothing else.
    pub(crate) fn follow_moments_after(&mut self, now: ClusterTime) {
        while let Some(&(at, job)) = self.after.moments.first()
            && at <= now
        {
            self.after.moments.remove(&(at, job));
            let Some(waits) = self.after.waiting.get_mut(&job) else { continue };
            if waits.pass(now) == Verdict::Met {
                self.wait_no_more(job);
            }
        }
    }

    fn wait_no_more(&mut self, job: JobId) {
        self.after.forget(job);
        self.arrays.look_at(job);
        self.enter_line_late(job);
    }

    /// What kept a job out of the line does so no more: it comes in, unless something else does.
    pub(crate) fn enter_line_late(&mut self, job: JobId) {
        if self.jobs.get(&job).is_some_and(|record| !self.is_kept_back(record)) {
            self.enter_line(job);
            self.queue.reconsider();
            // It has its place by arrival, before jobs that were promised something since.
            self.queue.disturbed = true;
        }
    }

    fn never_start(&mut self, job: JobId, before: JobId, actions: &mut Vec<Action>) {
        match self.after.waiting.get(&job).map(|waits| waits.stays) {
            Some(true) => {
                self.after.forget(job);
                self.after.note(job, Waits::in_vain(before));
            }
            Some(false) if self.arrays.contains(job) => {
                let reason = EndReason::NeverAfter(before);
                let order = ElementOrder::Cancel { reason, at_once: true };
                self.on_elements(self.now, (job, None), order, actions);
            }
            Some(false) => {
                self.end_queued(job, EndReason::NeverAfter(before), NEVER_STARTED, actions);
            }
            None => {}
        }
    }

    /// The jobs that a job waits for.
    pub(crate) fn why_after(&self, job: JobId) -> Option<WaitReason> {
        let waits = self.after.waiting.get(&job)?;
        if let Some(job) = waits.never {
            return Some(WaitReason::NeverAfter { job });
        }
        let mut all = waits.jobs.iter().chain(waits.moments.iter().map(|(_, after)| after));
        let after = *all.next()?;
        Some(WaitReason::After { after, more: all.count() as u64, one: waits.one })
    }

    /// What a job waits for of others, and whether one of that is enough.
    #[must_use]
    pub fn waits_after(&self, job: JobId) -> Option<(Vec<After>, bool)> {
        let waits = self.after.waiting.get(&job)?;
        let moments = waits.moments.iter().map(|&(_, after)| after);
        Some((waits.jobs.iter().copied().chain(moments).collect(), waits.one))
    }

    /// What is wrong with the jobs that start after others, if anything is.
    pub(crate) fn wrong_after(&self) -> Option<String> {
        if !self.after.news.is_empty() {
            return Some(format!("{:?} was not looked at", self.after.news));
        }
        let mut before: BTreeMap<JobId, BTreeSet<JobId>> = BTreeMap::new();
        for (&job, waits) in &self.after.waiting {
            let queued =
                self.jobs.get(&job).is_some_and(|it| matches!(it.phase, Phase::Queued { .. }))
                    || self.arrays.contains(job);
            let is_empty = waits.jobs.is_empty() && waits.moments.is_empty();
            let is_open = waits.never.is_some() == is_empty;
            let is_noted = |&(at, _): &(ClusterTime, After)| {
                at > self.now && self.after.moments.contains(&(at, job))
            };
            let is_open = is_open && waits.moments.iter().all(is_noted);
            let is_there = |job| self.jobs.get(&job).is_some() || self.arrays.contains(job);
            let alive = waits.jobs.iter().all(|it| is_there(it.job));
            if !queued || !is_open || !alive {
                return Some(format!("job {job} waits for {waits:?}"));
            }
            for after in &waits.jobs {
                before.entry(after.job).or_default().insert(job);
            }
        }
        (before != self.after.before).then(|| format!("{:?}, not {before:?}", self.after.before))
    }
}
