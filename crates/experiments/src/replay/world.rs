//! What would have been: the journal's outside events through a core with other parameters.
//!
//! From outside come requests, nodes, and what administrators say, all when they came. How jobs
//! fared follows from that: a job's tasks end once its turns have given them as much time as they
//! had when they ended in the journal, in the same order and alike. A job that a user ended there
//! is ended at the same moment, and one that was declined is left out. One that was lost with its
//! node needs as much as it had by then.

use super::turns::Turns;
use std::collections::{BTreeMap, VecDeque};
use tutti_controller::Site;
use tutti_core::{Action, Core, Event, JobState};
use tutti_journal::Entry;
use tutti_sim::{ChangeAtTimes, TimedChanges, timed_events};
use tutti_types::{ClusterTime, EndReason, JobId, Nanos, Rank, TaskStatus};
use tutti_wire::local::Setting;

/// How a job fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) submitted: ClusterTime,
    pub(super) started: Option<ClusterTime>,
    pub(super) ended: Option<ClusterTime>,
    /// What its turns gave it.
    pub(super) service: Nanos,
}

impl Fate {
    /// To its start; of one that ended in the queue, to that end.
    pub(super) fn wait(&self) -> Option<Nanos> {
        self.started.or(self.ended).map(|until| until.since(self.submitted))
    }

    pub(super) fn response(&self) -> Option<Nanos> {
        self.ended.map(|ended| ended.since(self.submitted))
    }

    /// How long it was out of its turns.
    pub(super) fn suspended(&self) -> Option<Nanos> {
        let resident = self.ended?.since(self.started?);
        Some(Nanos(resident.0.saturating_sub(self.service.0)))
    }
}

/// What a job's tasks need.
#[derive(Clone, Debug, Default)]
struct Need {
    /// After how much service which tasks end, and how.
    ends: Vec<(Nanos, Vec<Rank>, TaskStatus)>,
    /// How long after the last of them nothing of it was left.
    clearing: Nanos,
    last_end: ClusterTime,
    /// Whether these are all.
    known: bool,
}

/// A job that was accepted in the journal.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) class: String,
    pub(super) tasks: u32,
    pub(super) owner: u32,
    pub(super) was: Fate,
    need: Need,
}

/// The journal as it was.
#[derive(Debug, Default)]
pub(super) struct Was {
    pub(super) jobs: BTreeMap<JobId, Known>,
    /// Which job each request to submit became, in their order.
    submits: Vec<Option<JobId>>,
}

impl Was {
    /// Plays the entries, and notes what became of the jobs.
    pub(super) fn of(start: &Core, entries: &[Entry]) -> Self {
        let (mut core, mut actions, mut was) = (start.clone(), Vec::new(), Self::default());
        for view in start.jobs(start.now()) {
            was.begin(view.id, &core, start.now());
        }
        for Entry { at, event, .. } in entries {
            was.note_end(&core, *at, event);
            actions.clear();
            core.apply(*at, event, &mut actions);
            was.note_actions(&core, *at, event, &actions);
        }
        was
    }

    fn begin(&mut self, job: JobId, core: &Core, submitted: ClusterTime) {
        let Some(view) = core.job(job, submitted) else { return };
        let was = Fate {
            submitted,
            started: match view.state {
                JobState::Queued { .. } => None,
                JobState::Running { since } | JobState::Ending { since, .. } => Some(since),
            },
            ..Fate::default()
        };
        let known = Known {
            class: view.spec.class.to_string(),
            tasks: view.spec.tasks,
            owner: view.spec.owner.0,
            was,
            need: Need::default(),
        };
        self.jobs.insert(job, known);
    }

    /// Before it is applied: tasks that ended by themselves, and after how much service.
    fn note_end(&mut self, core: &Core, at: ClusterTime, event: &Event) {
        let (jobs, ranks, status) = match event {
            Event::TasksEnded { job, ranks, status } => (vec![*job], ranks.clone(), *status),
            Event::JobsEnded { jobs, status } => (jobs.clone(), Vec::new(), *status),
            _ => return,
        };
        for job in jobs {
            let Some(view) = core.job(job, at) else { continue };
            let Some(known) = self.jobs.get_mut(&job) else { continue };
            if matches!(view.state, JobState::Running { .. }) {
                known.need.ends.push((view.service, ranks.clone(), status));
                known.need.last_end = at;
                known.need.known = true;
            }
        }
    }

    fn note_actions(&mut self, core: &Core, at: ClusterTime, event: &Event, actions: &[Action]) {
        let mut accepted = None;
        for action in actions {
            match action {
                Action::Accept { job, .. } => {
                    accepted = Some(*job);
                    self.begin(*job, core, at);
                }
                Action::Launch { job, .. } => {
                    if let Some(known) = self.jobs.get_mut(job) {
                        known.was.started = Some(at);
                    }
                }
                Action::Requeued { job } => {
                    if let Some(known) = self.jobs.get_mut(job) {
                        known.need = Need::default();
                    }
                }
                Action::Ended { job, outcome } => {
                    let Some(known) = self.jobs.get_mut(job) else { continue };
                    (known.was.ended, known.was.service) = (Some(at), outcome.service);
                    if known.need.known {
                        known.need.clearing = at.since(known.need.last_end);
                    } else if matches!(outcome.reason, EndReason::NodeLost(_)) {
                        // As far as is known it needed what it had.
                        let status = TaskStatus::Exited(outcome.exit_code);
                        known.need.ends.push((outcome.service, Vec::new(), status));
                    }
                }
                _ => {}
            }
        }
        if is_submit(event) {
            self.submits.push(accepted);
        }
    }
}

/// What is set otherwise.
#[derive(Debug, Default)]
pub(super) struct Otherwise {
    /// Of parameters, classes, queues and allowances.
    pub(super) settings: Vec<Setting>,
    /// Weights and counted resources.
    pub(super) events: Vec<Event>,
    /// What changes at times.
    pub(super) timed: Vec<ChangeAtTimes>,
}

impl Otherwise {
    /// Sets it. The first reason why something of it can't be, if there is one.
    fn set(&self, site: &mut Site) -> Result<(), String> {
        // Lists of nodes were resolved by the controller that wrote the journal.
        let set = |setting: &Setting| site.set(setting, &|_| Ok(()));
        self.settings.iter().try_for_each(set)?;
        site.check(&[])
    }

    /// Whether an event of the journal sets what is set otherwise here.
    fn replaces(&self, event: &Event) -> bool {
        self.events.iter().any(|other| match (other, event) {
            (Event::SetWeight { account: a, .. }, Event::SetWeight { account: b, .. }) => a == b,
            (Event::SetResource { name: a, .. }, Event::SetResource { name: b, .. }) => a == b,
            _ => false,
        })
    }
}

/// The other world.
pub(super) struct World<'a> {
    core: Core,
    actions: Vec<Action>,
    was: &'a Was,
    otherwise: &'a Otherwise,
    /// Why something could not be set at some time: the journal's own settings held then.
    pub(super) refused: Option<(ClusterTime, String)>,
    /// Of jobs of the journal the numbers here, and the other way round.
    here: BTreeMap<JobId, JobId>,
    there: BTreeMap<JobId, JobId>,
    /// Which of its ends each job waits for next.
    next_end: BTreeMap<JobId, usize>,
    /// When nothing will be left of jobs whose tasks have ended.
    clearing: BTreeMap<JobId, ClusterTime>,
    submits: usize,
    /// Which changes at times have happened.
    timed: TimedChanges,
    pub(super) fates: BTreeMap<JobId, Fate>,
    /// Which job runs when on which processor, if that is to be recorded.
    pub(super) turns: Option<Turns>,
}

/// The journal's own changes at times have lower numbers.
const NUMBERED_BEHIND: u32 = 1 << 24;

/// Steps after the last entry before it is said that no end is near, for jobs that no user ends.
const STEPS_AFTER: usize = 1_000_000;

/// The same while no job that has begun will end: what still waits is behind others that never do,
/// unless one of so many steps changes what may run.
const STEPS_IN_VAIN: usize = 20_000;

impl<'a> World<'a> {
    pub(super) fn new(start: &Core, was: &'a Was, otherwise: &'a Otherwise) -> Self {
        let same: BTreeMap<JobId, JobId> =
            start.jobs(start.now()).map(|view| (view.id, view.id)).collect();
        let fates = same.keys().filter_map(|job| Some((*job, was.jobs.get(job)?.was)));
        let fates =
            fates.map(|(job, was)| (job, Fate { ended: None, service: Nanos::ZERO, ..was }));
        Self {
            core: start.clone(),
            actions: Vec::new(),
            was,
            otherwise,
            refused: None,
            next_end: same.keys().map(|job| (*job, 0)).collect(),
            fates: fates.collect(),
            here: same.clone(),
            there: same,
            clearing: BTreeMap::new(),
            submits: 0,
            timed: TimedChanges::numbered_behind(NUMBERED_BEHIND),
            turns: None,
        }
    }

    /// Lives through all of it, and on until every job has ended that will.
    pub(super) fn live(&mut self, entries: &[Entry]) {
        let begin = entries.first().map_or_else(|| self.core.now(), |entry| entry.at);
        for event in self.set_otherwise(begin, None) {
            self.apply(begin, &event);
        }
        for event in &self.otherwise.events {
            self.apply(begin, event);
        }
        for event in timed_events(&self.otherwise.timed, NUMBERED_BEHIND) {
            self.apply(begin, &event);
        }
        for Entry { at, event, .. } in entries {
            if is_submit(event) && self.was_declined() {
                // It ran nowhere, so it is not known what it needs.
                self.submits += 1;
                continue;
            }
            let Some(event) = self.as_here(event) else { continue };
            while self.step(*at) {}
            let submits = is_submit(&event);
            for event in self.set_otherwise(*at, Some(&event)) {
                self.apply(*at, &event);
            }
            self.submits += usize::from(submits);
        }
        let mut in_vain = 0;
        for _ in 0..STEPS_AFTER {
            in_vain = if self.is_end_foreseen() { 0 } else { in_vain + 1 };
            let goes_on = self.waits_for_some() && in_vain < STEPS_IN_VAIN;
            if !(goes_on && self.step(ClusterTime::NEVER)) {
                break;
            }
        }
    }

    /// Does what comes next, if it does until then. Whether anything was done.
    fn step(&mut self, until: ClusterTime) -> bool {
        let inside = self.next_inside().unwrap_or(ClusterTime::NEVER);
        let timed = self.timed.next(&self.otherwise.timed);
        let next = inside.min(timed);
        if next > until || next == ClusterTime::NEVER {
            return false;
        }
        match self.timed.due(&self.otherwise.timed, inside.min(next)) {
            Some(event) => self.apply(next.max(self.core.now()), &event),
            None => self.inside(next),
        }
        true
    }

    /// What sets what an event of the journal sets, but for what is otherwise here; other events
    /// are left as they are.
    fn set_otherwise(&mut self, at: ClusterTime, event: Option<&Event>) -> Vec<Event> {
        let before = Site::of(&self.core);
        let mut site = before.clone();
        let sets = event.is_none_or(|event| site.note(event));
        let journal = || event.cloned().into_iter().collect();
        if !sets || self.otherwise.settings.is_empty() {
            return journal();
        }
        match self.otherwise.set(&mut site) {
            Ok(()) => site.events(&before),
            Err(reason) => {
                self.refused.get_or_insert((at, reason));
                journal()
            }
        }
    }

    fn was_declined(&self) -> bool {
        self.was.submits.get(self.submits).copied().flatten().is_none()
    }

    /// Whether a job that will end has not.
    fn waits_for_some(&self) -> bool {
        let ends = |job| self.was.jobs.get(job).is_some_and(|known| known.was.ended.is_some());
        self.fates.iter().any(|(job, fate)| fate.ended.is_none() && ends(job))
    }

    /// Whether any job that runs will end by itself.
    fn is_end_foreseen(&self) -> bool {
        !self.clearing.is_empty() || self.next_end.keys().any(|job| self.reaches(*job).is_some())
    }

    /// An event of the journal as it is here; nothing if it follows from others.
    fn as_here(&self, event: &Event) -> Option<Event> {
        let here = |job: &JobId| self.here.get(job).copied();
        Some(match event.clone() {
            Event::TasksEnded { .. }
            | Event::JobCleared { .. }
            | Event::JobsEnded { .. }
            | Event::MovedOut { .. }
            | Event::MovedIn { .. }
            | Event::Swapped { .. }
            | Event::NodeSwap { .. }
            // Its orders were for what there was then.
            | Event::PolicyInCharge { .. }
            | Event::PolicyOrder { .. }
            | Event::Tick => return None,
            Event::Cancel { job, reason, at_once } => {
                Event::Cancel { job: here(&job)?, reason, at_once }
            }
            Event::Signal { job, ranks, signal } => {
                Event::Signal { job: here(&job)?, ranks, signal }
            }
            Event::Suspend { job } => Event::Suspend { job: here(&job)? },
            Event::Resume { job } => Event::Resume { job: here(&job)? },
            Event::Hold { job, by } => Event::Hold { job: here(&job)?, by },
            Event::Release { job, by } => Event::Release { job: here(&job)?, by },
            Event::SetJobClass { job, class } => Event::SetJobClass { job: here(&job)?, class },
            Event::Lend { job, lends } => Event::Lend { job: here(&job)?, lends },
            Event::SetTimeLimit { job, limit } => Event::SetTimeLimit { job: here(&job)?, limit },
            Event::MoveJob { job, before: None } => {
                Event::MoveJob { job: here(&job)?, before: None }
            }
            Event::MoveJob { job, before: Some(before) } => {
                Event::MoveJob { job: here(&job)?, before: Some(here(&before)?) }
            }
            Event::FrontEndLost { job } => Event::FrontEndLost { job: here(&job)? },
            event if self.otherwise.replaces(&event) => return None,
            event => event,
        })
    }

    // ------------------------------------------------------------------ what follows

    /// When something happens next that does not come from outside.
    fn next_inside(&self) -> Option<ClusterTime> {
        let ends = self.next_end.keys().filter_map(|job| self.reaches(*job));
        let next = ends.chain(self.clearing.values().copied()).chain([self.core.wake_at()]).min();
        next.filter(|next| *next != ClusterTime::NEVER).map(|next| next.max(self.core.now()))
    }

    /// The next end of tasks of a job, and after how much service it comes.
    fn due(&self, job: JobId) -> Option<&'a (Nanos, Vec<Rank>, TaskStatus)> {
        let known = self.was.jobs.get(self.there.get(&job)?)?;
        known.need.ends.get(*self.next_end.get(&job)?)
    }

    fn reaches(&self, job: JobId) -> Option<ClusterTime> {
        let (need, ..) = self.due(job)?;
        let rows = self.core.runs_in(job);
        if rows.is_empty() || self.clearing.contains_key(&job) {
            return None;
        }
        let left = Nanos(need.0.saturating_sub(self.core.service(job).0));
        Some(if left == Nanos::ZERO { self.core.now() } else { self.core.reaches(rows, left) })
    }

    /// All that is due by then.
    fn inside(&mut self, at: ClusterTime) {
        let jobs: Vec<JobId> = self.next_end.keys().copied().collect();
        let ending = jobs.into_iter().find(|job| self.reaches(*job).is_some_and(|due| due <= at));
        let cleared = self.clearing.iter().find(|(_, due)| **due <= at).map(|(job, _)| *job);
        match (ending, cleared) {
            (Some(job), _) => self.end_tasks(job, at),
            (None, Some(job)) => {
                self.clearing.remove(&job);
                self.apply(at, &Event::JobCleared { job, nodes: Vec::new() });
            }
            (None, None) => self.apply(at, &Event::Tick),
        }
    }

    fn end_tasks(&mut self, job: JobId, at: ClusterTime) {
        let Some((_, ranks, status)) = self.due(job) else { return };
        if let Some(next) = self.next_end.get_mut(&job) {
            *next += 1;
        }
        if self.due(job).is_none() {
            let known = self.there.get(&job).and_then(|there| self.was.jobs.get(there));
            let clearing = known.map_or(Nanos::ZERO, |known| known.need.clearing);
            self.clearing.insert(job, at + clearing);
        }
        self.apply(at, &Event::TasksEnded { job, ranks: ranks.clone(), status: *status });
    }

    /// Applies an event, and does what nodes do at once.
    fn apply(&mut self, at: ClusterTime, event: &Event) {
        let mut events = VecDeque::from([event.clone()]);
        while let Some(event) = events.pop_front() {
            let mut actions = std::mem::take(&mut self.actions);
            self.core.apply(at, &event, &mut actions);
            let done = self.turns.is_some().then(|| actions.clone());
            for action in actions.drain(..) {
                self.carry_out(at, action, &mut events);
            }
            if let (Some(turns), Some(done)) = (&mut self.turns, done) {
                let number = |job| self.there.get(&job).copied().unwrap_or(job);
                turns.note(&self.core, (at, &event), &done, number);
            }
            self.actions = actions;
        }
    }

    fn carry_out(&mut self, at: ClusterTime, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Accept { job, .. } => self.on_accept(job, at),
            Action::Launch { job, .. } => {
                if let Some(fate) = self.fate(job) {
                    fate.started = Some(at);
                }
            }
            Action::MoveOut { job } => events.push_back(Event::MovedOut { job }),
            Action::MoveIn { job } => events.push_back(Event::MovedIn { job }),
            Action::Swap { job, node, order, .. } => {
                events.push_back(Event::swapped_at_once(job, node, order));
            }
            Action::Kill { job, .. } => self.killed(job, 9, at, events),
            Action::Terminate { job, .. } => self.killed(job, 15, at, events),
            Action::Requeued { job } => {
                self.next_end.insert(job, 0);
                self.clearing.remove(&job);
            }
            Action::Ended { job, outcome } => {
                if let Some(fate) = self.fate(job) {
                    (fate.ended, fate.service) = (Some(at), outcome.service);
                }
                self.next_end.remove(&job);
                self.clearing.remove(&job);
            }
            Action::Signal { .. }
            | Action::Checkpoint { .. }
            | Action::RanksLost { .. }
            | Action::Respawn { .. }
            | Action::RanksGivenUp { .. }
            | Action::SignalRoots { .. }
            | Action::PromiseBroken { .. }
            | Action::JobDeclined { .. }
            | Action::Reclassed { .. }
            | Action::ElementMade { .. }
            | Action::ArrayEnded { .. }
            | Action::Step(_)
            | Action::Decline { .. }
            | Action::Timetable { .. }
            | Action::Timetables { .. }
            | Action::WakeAt { .. } => {}
        }
    }

    fn on_accept(&mut self, job: JobId, at: ClusterTime) {
        let Some(&Some(there)) = self.was.submits.get(self.submits) else { return };
        self.here.insert(there, job);
        self.there.insert(job, there);
        self.next_end.insert(job, 0);
        self.fates.insert(there, Fate { submitted: at, ..Fate::default() });
    }

    /// Processes that are told to end do.
    fn killed(&mut self, job: JobId, signal: u8, at: ClusterTime, events: &mut VecDeque<Event>) {
        if self.clearing.insert(job, at).is_none() {
            let status = TaskStatus::Signaled(signal);
            events.push_back(Event::TasksEnded { job, ranks: Vec::new(), status });
        }
    }

    fn fate(&mut self, job: JobId) -> Option<&mut Fate> {
        self.fates.get_mut(self.there.get(&job)?)
    }
}

/// Whether a job is asked for.
const fn is_submit(event: &Event) -> bool {
    matches!(event, Event::Submit { .. } | Event::SubmitWith { .. })
}
