//! The loop: what happens next, tell the core, do what it says.
//!
//! Five things can happen: a job is submitted, a job is done, a preempted one has left or is back,
//! and the time comes at which the core wanted to be woken, or something changes. At one moment,
//! first of all those jobs are gone that have reached their limits, all in one event: that they
//! would be was known, and all that was promised counts on it. Next arrive those that leave their
//! processors or come back ([`MoveCost`]). Then come the jobs that are submitted, in the order of
//! the workload, then those that are done earlier than they had to be, in the order in which they
//! started (or otherwise: [`Order`]); each is an event by itself, on which the core decides before
//! the next.

use crate::error::SimError;
use crate::feedback::{Arrival, Feedback, Waiting};
use crate::grouped::Grouped;
use crate::hosts::{self, Host};
use crate::jobs::{Course, Finished, Index, Job, Jobs, Live, Rest};
use crate::machine::Machine;
use crate::moves::{MoveCost, Moves, SwapOrder, SwapSpace};
use crate::observer::{Observer, Passed, Start};
use crate::outside::Outside;
use crate::pace::Pace;
use crate::site::Site;
use crate::slots::SlotBySlot;
use crate::timed::{ChangeAtTimes, TimedChanges, timed_events};
use crate::uneven::Uneven;
use tutti_core::{Action, Core, Event, JobState, SubmitOptions, WaitReason, check};
use tutti_types::{
    BankAccount, ClassName, Classes, ClusterTime, EndReason, GroupId, JobId, JobSpec, Nanos,
    NodeId, NodeWish, OnBadExit, OnNodeLoss, Overrides, Params, Period, ProcessorTime, Refusal,
    RequestId, TaskStatus, UserId, Weights, default_classes,
};

/// How a workload is simulated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine.
    pub machine: Machine,
    /// Its nodes, if they differ; none: they are equal, without external load.
    pub hosts: Vec<Host>,
    /// What jobs compute with, as the core gets it; `None`: what the parameters say.
    pub weights: Option<Weights>,
    /// Whether the tasks of a job go on and end each by itself; otherwise a job waits for its
    /// slowest.
    pub bags: bool,
    /// The core's parameters; see [`set_policy`](crate::set_policy).
    pub params: Params,
    /// The core's classes.
    pub class_rules: Classes,
    /// What is otherwise in some hours of the week.
    pub periods: Vec<(Period, Overrides)>,
    /// What people's clocks say, and when they are put forward or back: moments in their order,
    /// each with how much of the week has passed then. Empty: unknown, and no period holds.
    pub calendar: Vec<(ClusterTime, Nanos)>,
    /// What changes at times.
    pub timed: Vec<ChangeAtTimes>,
    /// The users' allowances of processor time.
    pub bank: Vec<(BankAccount, ProcessorTime)>,
    /// Queues, weights, counted resources.
    pub site: Site,
    /// The classes of the workload's jobs, by their index.
    pub classes: Vec<ClassName>,
    /// What comes first of what happens at one moment.
    pub order: Order,
    /// What a job loses of its turn where it ran not just before, if others run too.
    pub switch_cost: Nanos,
    /// How long it takes to set a job aside, and to bring it back.
    pub move_cost: MoveCost,
    /// Swap space of each node; `None`: memory moves at once, where a policy preempts.
    pub swap: Option<SwapSpace>,
    /// Whether preempted jobs may come back on other processors.
    pub movable: bool,
    /// How progress is worked out.
    pub progress: Progress,
    /// Whether jobs wait for those before them; otherwise all come at their submit times.
    pub feedback: Option<Feedback>,
    /// When to stop, jobs or no jobs.
    pub horizon: Option<ClusterTime>,
    /// Whether jobs that the core declines are passed over; otherwise they are an error.
    pub skips_declined: bool,
    /// Whether the core's invariants are checked.
    pub checks: Checks,
}

/// Whether the core's invariants are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// They are relied on.
    #[default]
    Never,
    /// After each event, which takes far longer than the event.
    EachEvent,
}

/// What comes first of what happens at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Jobs that are submitted: those that end at that moment, before their limits, are still in
    /// their way.
    #[default]
    SubmitFirst,
    /// Jobs that are done: what they leave is free for those submitted.
    EndFirst,
    /// Jobs that are submitted; then jobs that are done, also those that have reached their limits,
    /// each by itself.
    OneByOne,
}

/// How it is worked out how far jobs have got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// By arithmetic, from event to event.
    #[default]
    ByEvent,
    /// Slot by slot: the same result, slowly. For checking the other.
    BySlot,
}

/// What came of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) useful_ns: u128,
    pub(crate) held_ns: u128,
    pub(crate) switches: u64,
}

/// How far jobs have got, and which is done next.
pub(crate) trait Progression {
    /// Moves on to a moment that is not after [`Progression::next`].
    fn advance(&mut self, to: ClusterTime, jobs: &mut Jobs) -> Share;
    /// Takes in what the core decided at its latest event.
    fn refresh(&mut self, core: &Core, jobs: &mut Jobs);
    /// When something is due next.
    fn next(&self, jobs: &Jobs) -> ClusterTime;
    /// The first job that is done by now.
    fn done(&self, jobs: &Jobs) -> Option<JobId>;
    /// A job that is done goes on with what is left of it.
    fn go_on(&mut self, index: Index, with: Rest, jobs: &mut Jobs);
    /// Forgets a job.
    fn remove(&mut self, index: Index, jobs: &mut Jobs);
}

/// Simulates a workload, to its end or to the horizon. Jobs must come in the order in which they
/// are submitted; one that comes late is submitted when it comes.
///
/// # Errors
/// If the workload has an error, the core declines a job, or the observer can't write.
pub fn run<E>(
    settings: &Settings,
    workload: impl Iterator<Item = Result<Job, E>>,
    observer: &mut impl Observer,
) -> Result<(), SimError<E>> {
    run_with(settings, workload, observer, None)
}

/// The same, where a policy outside decides under `policy=external`.
///
/// # Errors
/// As [`run`], and if that policy gives no answer.
pub fn run_with<'a, E>(
    settings: &'a Settings,
    workload: impl Iterator<Item = Result<Job, E>>,
    observer: &'a mut impl Observer,
    outside: Option<&'a mut dyn Outside>,
) -> Result<(), SimError<E>> {
    let cost = settings.switch_cost;
    match settings.progress {
        Progress::ByEvent => {
            Simulation::new(settings, Grouped::new(cost), observer, outside).run(workload)
        }
        Progress::BySlot => {
            Simulation::new(settings, SlotBySlot::new(cost), observer, outside).run(workload)
        }
    }
}

/// Two weeks: if by then no hour of any day has let a job begin, none will.
const STUCK_AFTER: Nanos = Nanos::from_secs(14 * 24 * 3600);

impl Settings {
    /// A machine of equal nodes under these parameters, with the classes of a new instance, and
    /// nothing else that a site may set.
    #[must_use]
    pub fn new(machine: Machine, params: Params) -> Self {
        let class_rules = default_classes();
        Self {
            machine,
            params,
            classes: class_rules.keys().cloned().collect(),
            class_rules,
            hosts: Vec::new(),
            weights: None,
            bags: false,
            periods: Vec::new(),
            calendar: Vec::new(),
            timed: Vec::new(),
            bank: Vec::new(),
            site: Site::default(),
            order: Order::default(),
            switch_cost: Nanos::ZERO,
            move_cost: MoveCost::default(),
            swap: None,
            movable: false,
            progress: Progress::default(),
            feedback: None,
            horizon: None,
            skips_declined: false,
            checks: Checks::default(),
        }
    }

    /// What tells a core of the machine and of the hours of the week.
    fn first_events(&self) -> impl Iterator<Item = Event> + '_ {
        let equal = self.hosts.is_empty().then(|| self.machine.events());
        let event = |&(period, ref overrides): &(Period, Overrides)| Event::SetPeriod {
            period,
            overrides: overrides.clone(),
        };
        let allowance = |&(account, allowance): &(BankAccount, ProcessorTime)| Event::SetBank {
            account,
            allowance: Some(allowance),
        };
        equal
            .into_iter()
            .flatten()
            .chain(hosts::events(&self.hosts))
            .chain(self.swap_events())
            .chain(self.periods.iter().map(event))
            .chain(self.bank.iter().map(allowance))
            .chain(self.site.events())
            .chain(timed_events(&self.timed, 0))
    }
}

impl Settings {
    /// What tells a core of swap space.
    fn swap_events(&self) -> impl Iterator<Item = Event> + '_ {
        let nodes = (0..).map(NodeId).take(self.hosts.len());
        self.swap.into_iter().flat_map(move |swap| {
            nodes.clone().map(move |node| Event::NodeSwap { node, space_bytes: swap.bytes })
        })
    }
}

struct Simulation<'a, P, O> {
    settings: &'a Settings,
    core: Core,
    progress: P,
    observer: &'a mut O,
    outside: Option<&'a mut dyn Outside>,
    jobs: Jobs,
    /// Jobs that are not submitted yet, though their place in the workload has come.
    waiting: Waiting<'a>,
    moves: Moves,
    uneven: Option<Uneven>,
    /// How many jobs have processors.
    seated: usize,
    now: ClusterTime,
    wake: ClusterTime,
    /// How many moments of the calendar were told.
    told: usize,
    timed: TimedChanges,
    /// When anything but the time changed.
    busy: ClusterTime,
    submitted: u64,
    started: u64,
    /// Each used again for every event.
    actions: Vec<Action>,
    submit: Event,
    ended: Event,
}

impl<'a, P: Progression, O: Observer> Simulation<'a, P, O> {
    fn new(
        settings: &'a Settings,
        progress: P,
        observer: &'a mut O,
        outside: Option<&'a mut dyn Outside>,
    ) -> Self {
        let core = Core::new(settings.params.clone(), settings.class_rules.clone());
        Self {
            settings,
            core: core.without_timetables().without_kills(),
            progress,
            observer,
            outside,
            jobs: Jobs::default(),
            waiting: Waiting::new(settings.feedback, &settings.calendar),
            moves: Moves::new(settings.move_cost, settings.swap),
            uneven: (!settings.hosts.is_empty()).then(|| {
                let weights = settings.weights.unwrap_or(settings.params.weights());
                Uneven::new(Pace::new(&settings.hosts, weights), settings.bags)
            }),
            seated: 0,
            now: ClusterTime::default(),
            wake: ClusterTime::NEVER,
            told: 0,
            timed: TimedChanges::default(),
            busy: ClusterTime::default(),
            submitted: 0,
            started: 0,
            actions: Vec::new(),
            submit: Event::Tick,
            ended: Event::JobsEnded { jobs: Vec::new(), status: TaskStatus::Exited(0) },
        }
    }

    fn run<E>(
        mut self,
        mut workload: impl Iterator<Item = Result<Job, E>>,
    ) -> Result<(), SimError<E>> {
        for event in self.settings.first_events() {
            self.core.apply(self.now, &event, &mut self.actions);
        }
        self.settle()?;
        let mut coming = next_of(&mut workload)?;
        loop {
            let arrives =
                coming.as_ref().map_or(ClusterTime::NEVER, |job| job.submit.max(self.now));
            let submit = arrives.min(self.waiting.next());
            let done = self.progress.next(&self.jobs);
            let tells = self.settings.calendar.get(self.told).map_or(ClusterTime::NEVER, |it| it.0);
            let asks = self.outside.as_ref().map_or(ClusterTime::NEVER, |it| it.due(self.now));
            let changes = self.timed.next(&self.settings.timed);
            let wake = self.wake.min(self.core.next_change()).min(tells).min(asks).min(changes);
            let due = submit.min(done).min(wake).min(self.moves.next());
            let horizon = self.settings.horizon.unwrap_or(ClusterTime::NEVER);
            let is_over = submit == ClusterTime::NEVER && self.jobs.len() == 0;
            let is_stuck = submit == ClusterTime::NEVER
                && due.since(self.busy) > STUCK_AFTER
                && self.seated == 0;
            if is_stuck && self.settings.horizon.is_none() && self.leave_out_those_kept_out()? {
                continue;
            }
            if due >= horizon || is_over || is_stuck {
                break;
            }
            // What happens at one moment comes in one round.
            let is_busy =
                submit.min(done).min(self.moves.next()).min(tells).min(changes) <= self.now;
            if asks <= self.now && !is_busy {
                self.consult()?;
                continue;
            }
            self.pass(due);
            let limits_first = self.settings.order != Order::OneByOne;
            if limits_first && done == due && self.end_those_at_their_limits()? {
                continue;
            }
            // Jobs that come now find what has changed.
            let changed = self.timed.due(&self.settings.timed, self.now);
            if let Some(event) = changed.or_else(|| self.moves.arrived(self.now)) {
                self.put(&event);
                self.settle()?;
                continue;
            }
            let submits_first = self.settings.order != Order::EndFirst || done > due;
            if submit == due && submits_first {
                // A job that waited stands above in the workload.
                if let Some(job) = self.waiting.take(self.now) {
                    self.hand_in(job)?;
                } else {
                    if let Some(job) = coming.take() {
                        self.arrive(job)?;
                    }
                    coming = next_of(&mut workload)?;
                }
            } else if done == due {
                if let Some(id) = self.progress.done(&self.jobs) {
                    self.end_or_go_on(id)?;
                }
            } else {
                self.wake_core()?;
            }
        }
        match self.settings.horizon {
            Some(horizon) => self.pass(horizon),
            None if self.jobs.len() > 0 => return Err(SimError::Stuck { left: self.jobs.len() }),
            None => {}
        }
        Ok(())
    }

    /// The core wanted to be woken, or people's clocks are put forward or back.
    fn wake_core<E>(&mut self) -> Result<(), SimError<E>> {
        // The wish is spent, whether or not it is made again.
        self.wake = ClusterTime::NEVER;
        let mut event = Event::Tick;
        if let Some(&(at, week)) = self.settings.calendar.get(self.told)
            && at <= self.now
        {
            self.told += 1;
            event = Event::Calendar { week };
        }
        self.put(&event);
        self.settle()
    }

    /// Reports the jobs that are left as not run, if limits keep all of them out; says whether that
    /// is so.
    fn leave_out_those_kept_out<E>(&mut self) -> Result<bool, SimError<E>> {
        let why = |id: JobId| match self.core.job(id, self.now).map(|view| view.state) {
            Some(JobState::Queued { why, .. }) if is_limit(&why) => Some((id, why)),
            _ => None,
        };
        let Some(kept_out) = self.jobs.ids().map(why).collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        for (id, why) in &kept_out {
            let Some(live) = self.jobs.remove(*id) else { continue };
            self.observer.not_run(&live.job, why);
            self.waiting.ended(live.job.number, self.now);
            let cancel = Event::Cancel { job: *id, reason: EndReason::Cancelled, at_once: true };
            self.put(&cancel);
            self.settle()?;
        }
        Ok(!kept_out.is_empty())
    }

    /// Nothing happens until `to`.
    fn pass(&mut self, to: ClusterTime) {
        if to <= self.now {
            return;
        }
        let share = self.progress.advance(to, &mut self.jobs);
        let waiting = self.jobs.len() - self.seated;
        let Share { useful_ns, held_ns, switches } = share;
        let from = self.now;
        self.observer.passed(&Passed { from, to, useful_ns, held_ns, switches, waiting });
        self.now = to;
    }

    /// Whether a job that is declined for this is passed over: to be declined is what a deadline
    /// may come to.
    const fn passes_over(&self, refusal: &Refusal) -> bool {
        self.settings.skips_declined || matches!(refusal, Refusal::Deadline { .. })
    }

    /// A job is submitted, or waits for the one before it.
    fn arrive<E>(&mut self, job: Job) -> Result<(), SimError<E>> {
        match self.waiting.arrive(&job, self.now) {
            Arrival::Now => self.hand_in(job),
            Arrival::Later => Ok(()),
            Arrival::Unknown(preceding) if !self.waiting.lets_alone() => {
                let Job { number, line, .. } = job;
                Err(SimError::Preceding { number, line, preceding })
            }
            Arrival::Unknown(_) => {
                self.observer.let_alone(&job);
                self.hand_in(job)
            }
        }
    }

    fn hand_in<E>(&mut self, mut job: Job) -> Result<(), SimError<E>> {
        job.submit = job.submit.max(self.now);
        if let Err(why) = self.settings.site.check(&job) {
            let Job { number, line, .. } = job;
            if !self.settings.skips_declined {
                return Err(SimError::NotAllowed { number, line, why });
            }
            self.observer.declined(&job);
            self.waiting.ended(job.number, self.now);
            return Ok(());
        }
        self.ask_for(&job);
        match (self.settings.site.queue(&job), &self.submit) {
            (Some(queue), Event::Submit { request, spec }) => {
                let queue = Some(queue.name.clone());
                let options = SubmitOptions { queue, ..SubmitOptions::default() };
                let event = Event::SubmitWith { request: *request, spec: spec.clone(), options };
                self.put(&event);
            }
            _ => {
                let submit = std::mem::replace(&mut self.submit, Event::Tick);
                self.put(&submit);
                self.submit = submit;
            }
        }
        let answer = self.actions.iter().find_map(|action| match action {
            Action::Accept { job, .. } => Some(Ok(*job)),
            Action::Decline { refusal, .. } => Some(Err(refusal.clone())),
            _ => None,
        });
        match answer {
            Some(Ok(id)) => {
                let sequence = self.submitted;
                self.submitted += 1;
                self.observer.submitted(sequence, &job)?;
                let course = Course { left: job.need().0, ..Course::default() };
                self.jobs.insert(Live {
                    id,
                    job,
                    sequence,
                    start: None,
                    started: 0,
                    is_early: self.settings.order != Order::OneByOne && !job.reaches_limit(),
                    is_seated: false,
                    width: job.processors,
                    runs: (job.run, job.run),
                    course,
                });
            }
            Some(Err(refusal)) if !self.passes_over(&refusal) => {
                let Job { number, line, .. } = job;
                return Err(SimError::Declined { number, line, refusal });
            }
            Some(Err(_)) | None => {
                self.observer.declined(&job);
                self.waiting.ended(job.number, self.now);
            }
        }
        self.settle()
    }

    /// Makes the request for a job, in place: it is the same but for a few numbers.
    fn ask_for(&mut self, job: &Job) {
        let Event::Submit { spec, .. } = &mut self.submit else {
            let spec = JobSpec {
                owner: UserId(0),
                group: GroupId(0),
                class: ClassName::new(""),
                tasks: 0,
                // Where nodes differ, a placement may have tasks share a processor.
                processors_per_task: self.uneven.is_none().then_some(1),
                memory_per_task_bytes: None,
                time_limit: None,
                // The driver itself ends jobs at their limit: by what they computed, not by what
                // their turns gave them, which a switch has its part of.
                grace: Nanos::ZERO,
                attached: false,
                movable: self.settings.movable && !self.settings.bags,
                deadline: None,
                weights: self.settings.weights,
                resources: Vec::new(),
                nodes: NodeWish::default(),
                on_node_loss: OnNodeLoss::default(),
                on_bad_exit: OnBadExit::Continue,
            };
            self.submit = Event::Submit { request: RequestId(0), spec };
            return self.ask_for(job);
        };
        let class = &self.settings.classes[usize::from(job.class)];
        if spec.class != *class {
            spec.class.clone_from(class);
        }
        spec.owner = UserId(job.user);
        spec.group = GroupId(job.group);
        spec.tasks = job.processors;
        spec.memory_per_task_bytes = job.memory;
        let site = &self.settings.site;
        if !site.uses.is_empty() {
            spec.resources = site.uses(job.class).collect();
        }
        if !site.queues.is_empty() {
            spec.nodes = site.nodes(job);
        }
        spec.deadline = job.deadline;
        spec.time_limit = Some(job.estimate.max(tutti_types::limits::TIME_LIMIT_MIN));
    }

    /// Ends the jobs that have reached their limits; says whether there are any.
    fn end_those_at_their_limits<E>(&mut self) -> Result<bool, SimError<E>> {
        self.begin_ends();
        let mut any = false;
        while self.progress.next(&self.jobs) <= self.now
            && let Some(id) = self.progress.done(&self.jobs)
            && self.jobs.find(id).is_some_and(|index| self.jobs.get(index).job.reaches_limit())
            && !self.uneven.as_ref().is_some_and(|uneven| uneven.has_more(id))
        {
            self.end(id);
            any = true;
        }
        if any {
            self.report_ends()?;
        }
        Ok(any)
    }

    /// A job has run as long as was said: it ends, or some of its tasks do.
    fn end_or_go_on<E>(&mut self, id: JobId) -> Result<(), SimError<E>> {
        let index = self.jobs.find(id);
        if let Some(index) = index
            && let Some(uneven) = &mut self.uneven
            && let Some((ranks, rest)) = uneven.some_done(self.jobs.get(index))
        {
            self.progress.go_on(index, rest, &mut self.jobs);
            let event = Event::TasksEnded { job: id, ranks, status: TaskStatus::Exited(0) };
            self.put(&event);
            return self.settle();
        }
        self.begin_ends();
        self.end(id);
        self.report_ends()
    }

    fn begin_ends(&mut self) {
        if let Event::JobsEnded { jobs, .. } = &mut self.ended {
            jobs.clear();
        }
    }

    /// A job's processes are done.
    fn end(&mut self, id: JobId) {
        if let Some(index) = self.jobs.find(id) {
            self.progress.remove(index, &mut self.jobs);
        }
        if let Event::JobsEnded { jobs, .. } = &mut self.ended {
            jobs.push(id);
        }
    }

    fn report_ends<E>(&mut self) -> Result<(), SimError<E>> {
        let ended = std::mem::replace(&mut self.ended, Event::Tick);
        self.put(&ended);
        self.ended = ended;
        self.settle()
    }

    /// The core takes in an event.
    fn put(&mut self, event: &Event) {
        self.core.apply(self.now, event, &mut self.actions);
        if let Some(outside) = &mut self.outside {
            outside.note(&self.core, event);
        }
    }

    /// Asks the policy outside, and does what it orders.
    fn consult<E>(&mut self) -> Result<(), SimError<E>> {
        let Some(outside) = &mut self.outside else { return Ok(()) };
        outside.ask(&self.core, self.now).map_err(SimError::Outside)?;
        while let Some(event) =
            self.outside.as_mut().and_then(|outside| outside.next(&self.core, self.now))
        {
            self.put(&event);
            self.settle()?;
        }
        Ok(())
    }

    /// The policy outside declines a job: it is reported as not run.
    fn leave_out(&mut self, id: JobId) {
        if let Some(live) = self.jobs.remove(id) {
            self.observer.not_run(&live.job, &WaitReason::Outside);
            self.waiting.ended(live.job.number, self.now);
        }
    }

    /// Does what the core says.
    fn settle<E>(&mut self) -> Result<(), SimError<E>> {
        let mut actions = std::mem::take(&mut self.actions);
        let is_quiet = |action: &Action| matches!(action, Action::WakeAt { .. });
        if !actions.iter().all(is_quiet) {
            self.busy = self.now;
        }
        for action in actions.drain(..) {
            match action {
                Action::Launch { job, .. } => self.start(job)?,
                Action::Ended { job, .. } => self.finish(job)?,
                Action::MoveOut { job } => self.move_out(job),
                Action::MoveIn { job } => self.move_in(job),
                Action::Swap { job, node, order, out } => {
                    let allocated = self.allocated_bytes(job, node);
                    let order = SwapOrder { job, node, order, out, allocated };
                    self.moves.swap(self.now, order);
                }
                Action::JobDeclined { job, .. } => self.leave_out(job),
                Action::WakeAt { at } => self.wake = at,
                // What is signalled or killed is at its time limit, where it is ended anyhow.
                Action::Timetable { .. }
                | Action::Timetables { .. }
                | Action::Signal { .. }
                | Action::SignalRoots { .. }
                | Action::Terminate { .. }
                | Action::Kill { .. }
                | Action::Step(_)
                | Action::Requeued { .. }
                | Action::RanksLost { .. }
                | Action::Respawn { .. }
                | Action::RanksGivenUp { .. }
                | Action::Checkpoint { .. }
                | Action::PromiseBroken { .. }
                | Action::Reclassed { .. }
                | Action::ElementMade { .. }
                | Action::ArrayEnded { .. }
                | Action::Accept { .. }
                | Action::Decline { .. } => {}
            }
        }
        self.actions = actions;
        if self.settings.checks == Checks::EachEvent {
            self.check()?;
        }
        self.progress.refresh(&self.core, &mut self.jobs);
        self.observer.decided(self.now, &self.core);
        Ok(())
    }

    fn check<E>(&self) -> Result<(), SimError<E>> {
        match check::check(&self.core).into_iter().next() {
            Some(violation) => Err(SimError::Broken { at: self.now, violation }),
            None => Ok(()),
        }
    }

    /// A job gets processors.
    fn start<E>(&mut self, id: JobId) -> Result<(), SimError<E>> {
        let Some(index) = self.jobs.find(id) else { return Ok(()) };
        self.seated += 1;
        self.started += 1;
        let live = self.jobs.get_mut(index);
        live.is_seated = true;
        (live.start, live.started) = (Some(self.now), self.started);
        if let Some(uneven) = &mut self.uneven {
            uneven.set_out(live, self.core.parts(id));
        }
        let (at, job, core) = (self.now, &self.jobs.get(index).job, &self.core);
        self.observer.started(Start { at, job, id, core })?;
        Ok(())
    }

    /// A job gives its processors up.
    fn move_out(&mut self, id: JobId) {
        let Some(index) = self.jobs.find(id) else { return };
        self.seated -= 1;
        let live = self.jobs.get_mut(index);
        live.is_seated = false;
        live.course.preemptions += 1;
        self.moves.out(self.now, id, live.job.processors);
    }

    /// A job gets processors again.
    fn move_in(&mut self, id: JobId) {
        let Some(index) = self.jobs.find(id) else { return };
        self.seated += 1;
        let live = self.jobs.get_mut(index);
        live.is_seated = true;
        if let Some(uneven) = &self.uneven {
            uneven.go_elsewhere(live, self.core.parts(id));
        }
        self.moves.back(self.now, id, live.job.processors);
    }

    /// The memory that is allocated to a job on a node.
    fn allocated_bytes(&self, id: JobId, node: NodeId) -> u64 {
        let Some(index) = self.jobs.find(id) else { return 0 };
        let each = self.jobs.get(index).job.memory.unwrap_or(0);
        let parts = self.core.parts(id).iter().filter(|part| part.node == node);
        parts.map(|part| each.saturating_mul(u64::from(part.tasks))).sum()
    }

    fn finish<E>(&mut self, id: JobId) -> Result<(), SimError<E>> {
        let Some(live) = self.jobs.remove(id) else { return Ok(()) };
        if let Some(uneven) = &mut self.uneven {
            uneven.forget(id);
        }
        self.moves.forget(id);
        self.seated -= usize::from(live.is_seated);
        let finished = Finished {
            job: live.job,
            sequence: live.sequence,
            start: live.start.unwrap_or(self.now),
            end: self.now,
            preemptions: live.course.preemptions,
        };
        self.waiting.ended(live.job.number, self.now);
        self.observer.ended(id, &finished)?;
        Ok(())
    }
}

/// Whether it is a limit that keeps a job out, and not another job.
const fn is_limit(why: &WaitReason) -> bool {
    matches!(
        why,
        WaitReason::JobLimit { .. }
            | WaitReason::LargeLimit { .. }
            | WaitReason::ClassLimit { .. }
            | WaitReason::ClassJobs { .. }
            | WaitReason::UserJobs { .. }
            | WaitReason::Queue { .. }
    )
}

fn next_of<E>(
    workload: &mut impl Iterator<Item = Result<Job, E>>,
) -> Result<Option<Job>, SimError<E>> {
    workload.next().transpose().map_err(SimError::Workload)
}
