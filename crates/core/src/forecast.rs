//! A forecast: when jobs start and end, played forward on a copy of the core.
//!
//! The copy decides as the core would, whatever the policy, since it is one. What is assumed:
//!
//! - each job with a time limit runs until it reaches it, and no longer;
//! - a job that was asked to end takes all of its grace;
//! - a job without a limit never ends;
//! - no job is submitted or changed, and nodes and parameters stay as they are.
//!
//! The driver plays in slices: each [`Forecast::step`] is one moment, at the cost of the events
//! that the core itself would take in then. A forecast ends when all is known that was asked for,
//! when nothing is to come any more, or at one of the limits in [`CutShort`].

use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::policy::WaitReason;
use crate::state::record::Place;
use crate::state::record::{Course, Phase};
use crate::view::JobState;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cell::OnceCell;
use tutti_types::ids::{JobId, NodeId};
use tutti_types::job::TaskStatus;
use tutti_types::limits::{FORECAST_AHEAD_MAX, FORECAST_EVENTS_MAX, FORECAST_NAMED_MAX};
use tutti_types::refusal::Refusal;
use tutti_types::time::ClusterTime;

/// A copy of the core that is played forward, and what is known so far.
#[derive(Clone, Debug)]
pub struct Forecast {
    core: Box<Core>,
    asked: ClusterTime,
    now: ClusterTime,
    events: u64,
    cut: Option<CutShort>,
    /// The jobs that are asked about.
    jobs: BTreeMap<JobId, Foreseen>,
    /// How many of them may still become known.
    open: usize,
    /// The job that had each processor last, among those that have ended since.
    former: BTreeMap<NodeId, Vec<Option<JobId>>>,
    /// The jobs that end at this moment.
    ending: Vec<JobId>,
    actions: Vec<Action>,
    declined: Option<Refusal>,
    /// Why the job waits at first that was submitted for the forecast.
    waits: Option<WaitReason>,
    /// The first jobs that never give their processors back; found when first needed.
    endless: OnceCell<Vec<(JobId, Unknown)>>,
}

/// What is foreseen of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// When it starts; `None`: unknown.
    pub starts: Option<ClusterTime>,
    /// When it reaches its limit, or is gone in another way; `None`: unknown.
    pub ends: Option<ClusterTime>,
    /// When it starts at the latest, by the promise that it has now.
    pub promised: Option<ClusterTime>,
    /// The jobs that its start rests on, by their limits, by number: at most
    /// [`FORECAST_NAMED_MAX`].
    pub rests_on: Vec<JobId>,
    /// How many there are in all.
    pub rests_on_count: usize,
    /// Whether nothing more can become known of it.
    is_closed: bool,
}

/// Why a start or an end is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The job itself has no time limit, so its end is unknown.
    OwnLimit,
    /// This job has no time limit, and never ends as far as is known.
    NoLimit(JobId),
    /// The job itself is held, and waits for its release.
    Held,
    /// This job is suspended by a user.
    Suspended(JobId),
    /// What the job waits for does not come by itself.
    Waits(WaitReason),
    /// The job starts after others, and not as these end here, where all end well.
    Never,
    /// The forecast ended before.
    CutShort(CutShort),
}

/// Why a forecast ended before all was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShort {
    /// It had come to [`FORECAST_EVENTS_MAX`] events.
    Events,
    /// It had come to [`FORECAST_AHEAD_MAX`] after now.
    Ahead,
    /// The driver gave it no more time.
    Work,
}

impl Forecast {
    /// A forecast for all jobs that wait now.
    #[must_use]
    pub fn of_line(core: &Core, now: ClusterTime) -> Self {
        let mut forecast = Self::new(core, now);
        let waits = core.jobs.iter().filter(|(_, record)| record.residence().is_none());
        let promised = |job| core.promised_start(job);
        let foreseen = waits
            .map(|(job, _)| (job, Foreseen { promised: promised(job), ..Foreseen::default() }));
        forecast.jobs = foreseen.collect();
        forecast.open = forecast.jobs.len();
        forecast.take_in_what_is_under_way();
        forecast
    }

    /// A forecast for a job as if it were submitted now, by this event, and its number.
    ///
    /// # Errors
    /// If the job would be declined.
    pub fn of_job(core: &Core, now: ClusterTime, submit: Event) -> Result<(JobId, Self), Refusal> {
        let mut forecast = Self::new(core, now);
        let job = JobId(core.jobs_made + 1);
        forecast.jobs.insert(job, Foreseen::default());
        forecast.open += 1;
        forecast.take_in_what_is_under_way();
        forecast.apply(submit);
        if let Some(refusal) = forecast.declined.take() {
            return Err(refusal);
        }
        let promised = forecast.core.promised_start(job);
        if let Some(foreseen) = forecast.jobs.get_mut(&job) {
            foreseen.promised = promised;
        }
        forecast.waits = match forecast.core.job(job, forecast.now).map(|view| view.state) {
            Some(JobState::Queued { why, .. }) => Some(why),
            Some(JobState::Running { .. } | JobState::Ending { .. }) | None => None,
        };
        Ok((job, forecast))
    }

    fn new(core: &Core, now: ClusterTime) -> Self {
        let now = now.max(core.now);
        let mut quiet = core.clone().without_timetables();
        quiet.checkpoints.ask_no_more();
        Self {
            core: Box::new(quiet),
            asked: now,
            now,
            events: 0,
            cut: None,
            jobs: BTreeMap::new(),
            open: 0,
            former: BTreeMap::new(),
            ending: Vec::new(),
            actions: Vec::new(),
            declined: None,
            waits: None,
            endless: OnceCell::new(),
        }
    }

    /// What the core waits for at present comes at once: moves, and the ends of killed jobs.
    fn take_in_what_is_under_way(&mut self) {
        let mut events = Vec::new();
        let mut killed = Vec::new();
        for (job, record) in self.core.jobs.iter() {
            let Some(residence) = record.residence() else { continue };
            match residence.place {
                Place::Leaving => events.push(Event::MovedOut { job }),
                Place::Coming => events.push(Event::MovedIn { job }),
                Place::Home | Place::Aside => {}
            }
            if matches!(residence.course, Course::Killed { .. }) {
                killed.push(job);
            }
        }
        for event in events {
            self.apply(event);
        }
        if !killed.is_empty() {
            self.end(killed);
        }
    }

    /// Goes on to the next moment at which something happens; `false`: the forecast has ended.
    pub fn step(&mut self) -> bool {
        if self.cut.is_some() || self.open == 0 {
            return false;
        }
        let due = self.core.wake_at().min(self.core.next_change());
        if due == ClusterTime::NEVER {
            return false;
        }
        if due.since(self.asked) > FORECAST_AHEAD_MAX {
            self.cut = Some(CutShort::Ahead);
            return false;
        }
        self.now = self.now.max(due);
        self.core.ledger.advance(self.now);
        let jobs = self.core.ledger.at_limit();
        match jobs.is_empty() {
            true => self.apply(Event::Tick),
            false => self.end(jobs),
        }
        self.cut.is_none() && self.open > 0
    }

    /// Ends the forecast here: the driver has no more time for it.
    pub const fn cut_short(&mut self) {
        self.cut = Some(CutShort::Work);
    }

    /// Why the forecast ended before all was known, if it did.
    #[must_use]
    pub const fn cut(&self) -> Option<CutShort> {
        self.cut
    }

    /// The moment that it was made for.
    #[must_use]
    pub const fn asked(&self) -> ClusterTime {
        self.asked
    }

    /// The copy, as far as it was played.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Why the job waits at first that was submitted for the forecast; `None`: it does not.
    #[must_use]
    pub const fn waits(&self) -> Option<&WaitReason> {
        self.waits.as_ref()
    }

    /// How many events it has taken in.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// What is foreseen of the jobs from this one on, by number.
    pub fn jobs(&self, from: JobId) -> impl Iterator<Item = (JobId, &Foreseen)> {
        self.jobs.range(from..).map(|(&job, foreseen)| (job, foreseen))
    }

    /// The jobs that end now, all in one event: each by its limit, or since it was killed.
    fn end(&mut self, jobs: Vec<JobId>) {
        for &job in &jobs {
            self.note_former(job);
        }
        self.ending.clone_from(&jobs);
        self.apply(Event::JobsEnded { jobs, status: TaskStatus::Exited(0) });
        self.ending.clear();
    }

    fn note_former(&mut self, job: JobId) {
        for part in self.core.parts(job) {
            let former = self.former.entry(part.node).or_default();
            for processor in part.processors.iter() {
                let index = processor as usize;
                if former.len() <= index {
                    former.resize(index + 1, None);
                }
                former[index] = Some(job);
            }
        }
    }

    /// The copy takes in an event, and what its driver would answer at once.
    fn apply(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            if self.events >= FORECAST_EVENTS_MAX {
                self.cut = Some(CutShort::Events);
                return;
            }
            self.events += 1;
            self.core.apply(self.now, &event, &mut self.actions);
            let mut gone = BTreeSet::new();
            for action in core::mem::take(&mut self.actions) {
                match action {
                    Action::Launch { job, .. } => self.note_start(job),
                    Action::Ended { job, .. } => self.note_end(job),
                    Action::MoveOut { job } => events.push_back(Event::MovedOut { job }),
                    Action::MoveIn { job } => events.push_back(Event::MovedIn { job }),
                    Action::Swap { job, node, order, .. } => {
                        events.push_back(Event::swapped_at_once(job, node, order));
                    }
                    Action::Terminate { job, .. } | Action::Kill { job, .. } => {
                        gone.insert(job);
                    }
                    Action::Decline { refusal, .. } => self.declined = Some(refusal),
                    Action::Accept { .. }
                    | Action::Timetable { .. }
                    | Action::Timetables { .. }
                    | Action::Signal { .. }
                    | Action::SignalRoots { .. }
                    | Action::Step(_)
                    | Action::Requeued { .. }
                    | Action::RanksLost { .. }
                    | Action::Respawn { .. }
                    | Action::RanksGivenUp { .. }
                    | Action::PromiseBroken { .. }
                    | Action::Reclassed { .. }
                    | Action::ElementMade { .. }
                    | Action::ArrayEnded { .. }
                    | Action::JobDeclined { .. }
                    | Action::Checkpoint { .. }
                    | Action::WakeAt { .. } => {}
                }
            }
            if !gone.is_empty() {
                let jobs: Vec<JobId> = gone.into_iter().collect();
                jobs.iter().for_each(|&job| self.note_former(job));
                self.ending.extend(&jobs);
                events.push_back(Event::JobsEnded { jobs, status: TaskStatus::Exited(0) });
            }
        }
    }

    fn note_start(&mut self, job: JobId) {
        if self.jobs.get(&job).is_none_or(|foreseen| foreseen.starts.is_some()) {
            return;
        }
        let mut rests_on: BTreeSet<JobId> = self.ending.iter().copied().collect();
        for part in self.core.parts(job) {
            let Some(former) = self.former.get(&part.node) else { continue };
            let of = |processor: u32| former.get(processor as usize).copied().flatten();
            rests_on.extend(part.processors.iter().filter_map(of));
        }
        let has_limit = self.core.jobs.get(&job).is_some_and(|it| it.spec.time_limit.is_some());
        let Some(foreseen) = self.jobs.get_mut(&job) else { return };
        foreseen.starts = Some(self.now);
        foreseen.rests_on_count = rests_on.len();
        foreseen.rests_on = rests_on.into_iter().take(FORECAST_NAMED_MAX).collect();
        if !has_limit {
            self.close(job);
        }
    }

    fn note_end(&mut self, job: JobId) {
        let now = self.now;
        if let Some(foreseen) = self.jobs.get_mut(&job) {
            foreseen.ends.get_or_insert(now);
            self.close(job);
        }
    }

    fn close(&mut self, job: JobId) {
        if let Some(foreseen) = self.jobs.get_mut(&job).filter(|foreseen| !foreseen.is_closed) {
            foreseen.is_closed = true;
            self.open -= 1;
        }
    }

    /// Why the start or the end of a job is unknown; `None` if both are known.
    #[must_use]
    pub fn unknown(&self, job: JobId) -> Option<Unknown> {
        let foreseen = self.jobs.get(&job)?;
        if foreseen.starts.is_some() && foreseen.ends.is_some() {
            return None;
        }
        let Some(record) = self.core.jobs.get(&job) else {
            return foreseen.starts.is_none().then_some(Unknown::Never);
        };
        if foreseen.starts.is_some() && record.spec.time_limit.is_none() {
            return Some(Unknown::OwnLimit);
        }
        if self.core.held_by(job).is_some() {
            return Some(Unknown::Held);
        }
        if record.suspended {
            return Some(Unknown::Suspended(job));
        }
        if self.core.queue.parked.contains(&job) {
            return Some(Unknown::Waits(WaitReason::Nodes));
        }
        // With endless jobs in the way, how far the forecast looks makes no difference.
        if self.cut.is_none_or(|cut| cut == CutShort::Ahead)
            && let Some(endless) = self.endless(job)
        {
            return Some(endless);
        }
        if let Some(cut) = self.cut {
            return Some(Unknown::CutShort(cut));
        }
        match self.core.job(job, self.now)?.state {
            JobState::Queued { why, .. } => Some(Unknown::Waits(why)),
            JobState::Running { .. } | JobState::Ending { .. } => {
                Some(Unknown::Waits(WaitReason::Rows { limit: self.core.machine().rows }))
            }
        }
    }

    /// A job beside this one that has processors and never gives them back; one without a limit, if
    /// any.
    fn endless(&self, beside: JobId) -> Option<Unknown> {
        let endless = self.endless.get_or_init(|| self.endless_jobs());
        let mut others = endless.iter().filter(|(job, _)| *job != beside);
        others.next().map(|(_, unknown)| unknown.clone())
    }

    /// Two of them, if there are two: one may be the job that is asked about.
    fn endless_jobs(&self) -> Vec<(JobId, Unknown)> {
        let (mut unlimited, mut suspended) = (Vec::new(), Vec::new());
        for (job, record) in self.core.jobs.iter() {
            if record.residence().is_none_or(|residence| residence.ending()) {
                continue;
            }
            if record.spec.time_limit.is_none() {
                unlimited.push((job, Unknown::NoLimit(job)));
            } else if record.suspended {
                suspended.push((job, Unknown::Suspended(job)));
            }
            if unlimited.len() == 2 {
                break;
            }
        }
        unlimited.extend(suspended);
        unlimited.truncate(2);
        unlimited
    }
}

impl Core {
    /// When a waiting job starts at the latest, by what it is promised now; `None`: nothing is.
    #[must_use]
    pub fn promised_start(&self, job: JobId) -> Option<ClusterTime> {
        let record = self.jobs.get(&job)?;
        if !matches!(record.phase, Phase::Queued { .. }) {
            return None;
        }
        if self.policy().plans() {
            return self.begins_by(job);
        }
        let reserved = self.queue.reservations.get(&job).map(|place| place.start);
        let promise = self.queue.promise.filter(|it| it.job == job && it.row.is_some());
        let at = reserved.or(promise.map(|promise| promise.at));
        at.filter(|&at| at < ClusterTime::NEVER)
    }
}
