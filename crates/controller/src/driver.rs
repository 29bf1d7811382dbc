//! The loop around the core. Its connections: `driver/connections.rs`.

mod connections;

pub(super) use connections::{Connection, Kind};

use super::agents::NodeEntry;
use super::durability::Memory;
use super::error::Problem;
use super::jobs::{EndedJobs, Entry};
use super::launch_store::{Kept, Shelf};
use super::policy::POLICY;
use super::report;
use super::requests::Submission;
use super::show::details_to_store;
use super::steps::with_slurm_step;
use super::time_base::{self, Former, ReachFile};
use nix::unistd::{Pid, geteuid, getppid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::unix::net::UnixListener;
use tracing::info;
use tutti_core::{Action, Core, Event, JobState};
use tutti_journal::{History, Journal};
use tutti_linux::{heap, proc};
use tutti_node::exit::Exit;
use tutti_node::instance::{Instance, supervisor};
use tutti_node::link::{Interest, Poller, Ready};
use tutti_node::membership::{Members, Place};
use tutti_node::platform::time as clock;
use tutti_node::state_dir;
use tutti_types::{
    ClusterTime, EndReason, FirstStep, JobId, Nanos, NodeId, Outcome, Params, Refusal, RequestId,
    StepId, StepKey, Timetable, default_classes,
};
use tutti_wire::code::Code;
use tutti_wire::event::What;
use tutti_wire::launch::{JobNode, Launch, Share};
use tutti_wire::local::Reply;
use tutti_wire::tree::{ToAgent, timetable_orders};

/// What a controller is told at its start.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Where it lives.
    pub instance: Instance,
    /// Whether it goes on with what one of the same supervisor was about that has failed.
    pub is_successor: bool,
}

/// How old the last entry of the journal may be while there are jobs.
const TIME_ENTERED_EVERY: Nanos = Nanos::from_secs(10);

/// When so much was let go of, what is free goes back to the system: the allocator keeps it otherwise.
const GIVEN_UP_BYTES: usize = 16 << 20;

const LISTENER: u64 = 0;
const DISK: u64 = 1;

/// How long an ending instance waits for its jobs to be cleared away.
const STOP_PATIENCE_NS: u64 = 15_000_000_000;

/// Cluster time against this machine's clock, and moments of this controller.
pub(super) struct Clock {
    /// How far cluster time is ahead of this machine's clock.
    pub(super) clock_ahead: Nanos,
    /// Whether the next controller hears of that, and of gaps in the journal, by a file of the instance.
    pub(super) has_clock_file: bool,
    pub(super) started: ClusterTime,
    pub(super) active: ClusterTime,
}

/// Nodes, members of the cluster, and what agents were told.
pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<NodeId, NodeEntry>,
    /// The machines that may join, if there is a cluster.
    pub(super) members: Option<Members>,
    /// The number of the next node that is new: none is given twice.
    pub(super) next_node: u32,
    /// The clients that wait for nodes to be taken out.
    pub(super) removals: super::removal::Removals,
    /// What agents were told of parameters.
    pub(super) told_settings: Option<tutti_wire::tree::Settings>,
    /// Host names and netgroups of the machines that requests come from.
    pub(super) host_names: super::host_names::HostNames,
    /// The client machines that are connected.
    pub(super) clients: super::clients::Clients,
    /// When idle nodes were measured.
    pub(super) measuring: super::measuring::Measuring,
}

/// The poller, connections, and the bounds on them.
pub(super) struct Intake {
    pub(super) poller: Poller,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) connections_max: usize,
    /// When connections are accepted again; never: they are.
    pub(super) accept_again: ClusterTime,
    /// The connections that have come, and may have said something already.
    pub(super) newcomers: Vec<u64>,
    /// Clients with a message that waits for its turn.
    pub(super) unread: BTreeSet<u64>,
    /// How long each user's requests were answered in this round.
    pub(super) answered: BTreeMap<u32, Nanos>,
    /// What is queued for the clients of each user, in bytes.
    pub(super) unsent: BTreeMap<u32, usize>,
    /// When the next connection that takes nothing may have to go.
    pub(super) stalled_due: ClusterTime,
    pub(super) next_token: u64,
}

/// Jobs that have ended, and which nodes still know of them.
pub(super) struct Ends {
    pub(super) ended: EndedJobs,
    /// Jobs that have ended, of which nodes still know.
    pub(super) forgetting: super::end_acks::Forgetting,
}

/// What is kept for each user, and what is known of users.
pub(super) struct Users {
    /// By what the latest jobs would be asked for again.
    pub(super) submitted: super::idempotency::Submitted,
    /// What the jobs of each user keep here.
    pub(super) shelves: BTreeMap<u32, Shelf>,
    /// What has been let go of since memory was last given back, in bytes.
    pub(super) given_up_bytes: usize,
    /// The hard limits on resources that this process has.
    pub(super) hard_limits: Vec<u64>,
    pub(super) user_names: BTreeMap<u32, String>,
    /// What the further steps of each user's jobs are to run, in bytes.
    pub(super) step_bytes: BTreeMap<u32, usize>,
    /// The users for which other machines vouched.
    pub(super) accounts: super::remote_identity::Accounts,
}

impl Users {
    fn new() -> Self {
        Self {
            submitted: super::idempotency::Submitted::default(),
            shelves: BTreeMap::new(),
            given_up_bytes: 0,
            hard_limits: own_hard_limits(),
            user_names: BTreeMap::new(),
            step_bytes: BTreeMap::new(),
            accounts: super::remote_identity::Accounts::default(),
        }
    }
}

/// Requests without an answer yet.
pub(super) struct Pending {
    /// Requests for jobs that came before the first node.
    pub(super) early: Vec<super::requests::Deferred>,
    /// Whether they wait: until a node has joined since this controller began; others it may remember.
    pub(super) waits_for_nodes: bool,
    pub(super) questions: super::node_queries::Questions,
    /// The request for a step while the core decides on it.
    pub(super) stepping: Option<super::steps::Stepping>,
    /// Steps whose front ends are away, and until when they may be.
    pub(super) steps_abandoned: BTreeMap<StepKey, super::durability::Abandoned>,
    /// Forecasts that clients wait for.
    pub(super) forecasts: super::forecasts::Forecasts,
}

/// What monitoring reads: events, metrics, the use of processors.
#[derive(Default)]
pub(super) struct Monitoring {
    /// The stream of events.
    pub(super) events: super::events::Events,
    /// Counts and figures.
    pub(super) metrics: super::metrics::Metrics,
    /// The use of processors by interval.
    pub(super) usage: super::usage::Gathering,
}

/// The decision in progress: the core's actions, and events that follow.
pub(super) struct Decision {
    pub(super) next_request: u64,
    /// The places of all jobs in line since the latest event: one pass for all answers until the next.
    pub(super) line: std::cell::OnceCell<BTreeMap<JobId, tutti_core::InLine>>,
    pub(super) actions: Vec<Action>,
    /// What the actions in progress made happen at once.
    pub(super) follow_ups: VecDeque<Event>,
    /// The promises that the move in progress has broken: the job, and when it was to start.
    pub(super) broken: Vec<(JobId, ClusterTime)>,
}

/// When something is due: a wish of the core, the calendar, the end.
pub(super) struct Due {
    pub(super) wake_at: ClusterTime,
    /// When people's clocks are looked at.
    pub(super) calendar_due: ClusterTime,
    /// When the earliest of the jobs that have ended may be too old.
    pub(super) history_due: ClusterTime,
    /// When it is looked once more at barriers that may wait in vain.
    pub(super) barriers_due: ClusterTime,
    /// The parent process: the supervisor.
    pub(super) parent: Pid,
    /// Set when the instance is to end: the asker, and when patience is over.
    pub(super) stopping: Option<(Vec<u64>, ClusterTime)>,
    pub(super) stop_sent: bool,
}

/// The controller.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) memory: Memory,
    /// Cluster time against this machine's clock, and moments of this controller.
    pub(super) clock: Clock,
    pub(super) instance: Instance,
    /// Nodes, members of the cluster, and what agents were told.
    pub(super) cluster: Cluster,
    /// The poller, connections, and the bounds on them.
    pub(super) intake: Intake,
    pub(super) jobs: BTreeMap<JobId, Box<Entry>>,
    /// Job arrays, as far as the core need not know them.
    pub(super) arrays: BTreeMap<JobId, Box<Entry>>,
    /// Jobs that have ended, and which nodes still know of them.
    pub(super) ends: Ends,
    /// What is kept for each user, and what is known of users.
    pub(super) users: Users,
    /// Requests without an answer yet.
    pub(super) pending: Pending,
    /// The decision in progress: the core's actions, and events that follow.
    pub(super) decision: Decision,
    /// The program of the site's own policy.
    pub(super) outsider: super::policy::Outsider,
    pub(super) monitoring: Monitoring,
    /// When something is due: a wish of the core, the calendar, the end.
    pub(super) due: Due,
}

/// Runs a controller until its instance ends.
///
/// # Errors
/// If it can't begin: the socket can't be made.
pub fn main(options: ControllerOptions) -> anyhow::Result<()> {
    let path = options.instance.controller_socket();
    // Connections are heard: not before it is known what there is.
    let private = options.instance.private;
    let mut driver = Driver::new(options.instance)?;
    driver.want_notifier_again();
    driver.follow_roll_out(options.is_successor);
    let listener = state_dir::listen(&path, !private)?;
    driver.intake.poller.add(&listener, LISTENER, Interest::READ)?;
    driver.run(&listener)?;
    driver.memory.journal.close(&driver.core);
    if driver.instance.private {
        driver.leave_count();
        let instance = driver.instance.clone();
        drop(driver);
        if !instance.keeps_journal() {
            instance.remove_journal();
        }
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}

impl Driver {
    fn new(instance: Instance) -> anyhow::Result<Self> {
        let path = instance.make_journal_place()?;
        let former = time_base::of_former(&instance);
        let reach = time_base::reach_of_former(&instance);
        let opened = match (former, reach) {
            (None, None) => Journal::open(&path, blank_core)?,
            (_, reach) => Journal::open_after(reach.unwrap_or_default().known, &path, blank_core)?,
        };
        let place = Place::of(&instance);
        let members = place.membership()?.map(|_| Members::of(place));
        let jobs_known = reach.map_or(0, |reach| reach.jobs);
        let mut driver = Self::over(instance, members, opened, former, jobs_known)?;
        driver.clock.has_clock_file = true;
        time_base::keep(&driver.instance, driver.as_former());
        driver.memory.reach = ReachFile::open(&driver.instance);
        driver.say_reach();
        Ok(driver)
    }

    /// What the next one is to know of this one.
    pub(super) const fn as_former(&self) -> Former {
        Former { ahead: self.clock.clock_ahead, has_gap: self.memory.has_gap }
    }

    /// One that takes over what a journal has, and is at least as far ahead of the machine's clock as the one
    /// before it since the machine was started, if there was one. So many jobs are known to have been made since then.
    pub(super) fn over(
        instance: Instance,
        members: Option<Members>,
        (journal, history): (Journal, History),
        former: Option<Former>,
        jobs_known: u64,
    ) -> anyhow::Result<Self> {
        let ahead = former.map(|former| former.ahead).unwrap_or_default();
        let clock_ahead = time_base::clock_ahead(ahead, history.until);
        let now = ClusterTime(clock::monotonic_ns()) + clock_ahead;
        let poller = Poller::new()?;
        poller.add(journal.wake(), DISK, Interest::READ)?;
        let mut driver = Self {
            core: blank_core(),
            cluster: Cluster {
                nodes: BTreeMap::new(),
                members,
                next_node: 0,
                removals: super::removal::Removals::default(),
                told_settings: None,
                host_names: super::host_names::HostNames::default(),
                clients: super::clients::Clients::default(),
                measuring: super::measuring::Measuring::default(),
            },
            memory: Memory::new(journal, former, &instance),
            clock: Clock { clock_ahead, has_clock_file: false, started: now, active: now },
            instance,
            intake: Intake {
                poller,
                connections: BTreeMap::new(),
                connections_max: connections::connections_max(),
                accept_again: ClusterTime::NEVER,
                newcomers: Vec::new(),
                unread: BTreeSet::new(),
                answered: BTreeMap::new(),
                unsent: BTreeMap::new(),
                stalled_due: ClusterTime::NEVER,
                next_token: POLICY + 1,
            },
            jobs: BTreeMap::new(),
            arrays: BTreeMap::new(),
            ends: Ends {
                ended: EndedJobs::default(),
                forgetting: super::end_acks::Forgetting::default(),
            },
            users: Users::new(),
            pending: Pending {
                early: Vec::new(),
                waits_for_nodes: true,
                questions: super::node_queries::Questions::default(),
                stepping: None,
                steps_abandoned: BTreeMap::new(),
                forecasts: super::forecasts::Forecasts::default(),
            },
            decision: Decision {
                next_request: 0,
                line: std::cell::OnceCell::new(),
                actions: Vec::new(),
                follow_ups: VecDeque::new(),
                broken: Vec::new(),
            },
            outsider: super::policy::Outsider::new(),
            monitoring: Monitoring::default(),
            due: Due {
                wake_at: ClusterTime::NEVER,
                calendar_due: ClusterTime::NEVER,
                history_due: ClusterTime::NEVER,
                barriers_due: ClusterTime::NEVER,
                parent: supervisor(),
                stopping: None,
                stop_sent: false,
            },
        };
        driver.remember(history, former.is_none(), jobs_known);
        Ok(driver)
    }

    fn run(&mut self, listener: &UnixListener) -> anyhow::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.finished() {
            let deadline = self.deadline();
            let own_ns = deadline.0.saturating_sub(self.clock.clock_ahead.0);
            self.intake
                .poller
                .wait((deadline != ClusterTime::NEVER).then_some(own_ns), &mut ready)?;
            if ready.iter().any(|event| event.token == LISTENER) {
                self.accept(listener);
            }
            self.round(&ready);
            if self.intake.accept_again <= self.now() {
                self.intake.accept_again = ClusterTime::NEVER;
                self.intake.poller.modify(listener, LISTENER, Interest::READ)?;
            }
        }
        Ok(())
    }

    /// Takes in what has happened, does what is due, and ends with everything stored and sent. What agents tell comes
    /// first, however it came: a request is answered by how things are now.
    pub(super) fn round(&mut self, ready: &[Ready]) {
        let mut spoken = std::mem::take(&mut self.intake.newcomers);
        for event in ready {
            match event.token {
                LISTENER => {}
                DISK => self.on_disk(),
                // Its replies are looked for in each round.
                POLICY => {}
                token => spoken.push(token),
            }
        }
        let mut heard = Vec::new();
        for token in spoken {
            let received = self.receive(token);
            match self.take_greeting(token) {
                Ok(_) => heard.push((token, received)),
                Err(error) => self.close(token, &error),
            }
        }
        heard.sort_by_key(|(token, _)| !self.is_agent(*token));
        for (token, received) in heard {
            self.take_messages(token, received);
        }
        for token in self.take_unread() {
            self.take_messages(token, Ok(()));
        }
        self.on_time();
        self.settle();
    }

    /// The moment of an event: the controller's clock is what cluster time is.
    pub(super) fn now(&self) -> ClusterTime {
        ClusterTime(clock::monotonic_ns()) + self.clock.clock_ahead
    }

    /// Whether the supervisor, which would start again what fails, has ended itself.
    pub(super) fn is_abandoned(&self) -> bool {
        getppid() != self.due.parent
    }

    pub(super) fn deadline(&self) -> ClusterTime {
        if !self.intake.unread.is_empty() || self.is_foretelling() {
            return ClusterTime(0);
        }
        let mut deadline =
            self.due.wake_at.min(self.intake.accept_again).min(self.due.calendar_due);
        deadline = deadline.min(self.intake.stalled_due);
        deadline = deadline.min(self.misses_due()).min(self.cluster.removals.due());
        deadline = deadline.min(self.due.history_due).min(self.time_due());
        deadline = deadline.min(self.due.barriers_due);
        deadline = deadline.min(self.ends.forgetting.due()).min(self.pending.questions.due());
        deadline = deadline.min(self.forecasts_due()).min(self.events_due());
        deadline = deadline.min(self.policy_due()).min(self.usage_due());
        deadline = deadline.min(self.measuring_due());
        if self.pending.waits_for_nodes && !self.pending.early.is_empty() {
            deadline = deadline.min(self.nodes_due());
        }
        let of_steps = self.pending.steps_abandoned.values();
        for abandoned in self.memory.abandoned.values().chain(of_steps) {
            deadline = deadline.min(abandoned.until);
        }
        if let Some((_, patience)) = &self.due.stopping {
            deadline = deadline.min(*patience);
        } else if let Some(idle) = self.idle_end() {
            deadline = deadline.min(idle);
        }
        deadline
    }

    /// When the journal is to have another entry, whatever happens: if the machine's clock begins anew, cluster
    /// time goes on after the last one, and jobs keep what they have waited until then.
    fn time_due(&self) -> ClusterTime {
        let has_none = self.jobs.is_empty() && self.arrays.is_empty();
        match has_none || self.due.stopping.is_some() {
            true => ClusterTime::NEVER,
            false => self.core.now() + TIME_ENTERED_EVERY,
        }
    }

    /// When a private instance that is not used ends by itself. In a cluster others may be about
    /// to.
    fn idle_end(&self) -> Option<ClusterTime> {
        let limit = self.core.params().idle_exit()?;
        let used = !self.jobs.is_empty()
            || !self.arrays.is_empty()
            || self.intake.connections.iter().any(|(token, c)| {
                matches!(c.kind, Kind::Client(_)) && !self.monitoring.events.is_own(*token)
            });
        let is_alone = self.instance.private && self.cluster.members.is_none();
        (is_alone && !used).then(|| self.clock.active + limit)
    }

    fn on_time(&mut self) {
        let now = self.now();
        if now >= self.due.wake_at.min(self.time_due()) {
            self.due.wake_at = ClusterTime::NEVER;
            self.apply(&Event::Tick);
        }
        if now >= self.due.calendar_due {
            self.watch_calendar();
        }
        self.look_after_missed(now);
        self.cut_off(now);
        if now >= self.pending.questions.due() {
            self.close_overdue(now);
        }
        if now >= self.due.history_due {
            self.forget_history();
        }
        if now >= self.due.barriers_due {
            self.look_at_barriers();
        }
        if now >= self.usage_due() {
            self.store_usage();
        }
        if now >= self.measuring_due() {
            self.look_for_idle_nodes();
        }
        if self.pending.waits_for_nodes && now >= self.nodes_due() {
            self.stop_waiting_for_nodes();
        }
        self.give_up_fronts(now);
        self.follow_policy();
        self.foretell();
        self.answer_readers();
        if self.due.stopping.is_none() && self.idle_end().is_some_and(|idle| idle <= now) {
            info!("idle for long enough; ending");
            self.stop(None);
        }
    }

    // ------------------------------------------------------------------ the core

    /// The one place where something is decided: an event in, actions out, carried out in order.
    pub(super) fn apply(&mut self, event: &Event) {
        self.decide(event, None);
        self.follow_up();
    }

    /// Puts a job to the core; gives its decision. What follows from it is left to
    /// [`Self::follow_up`], so that the client is answered first.
    pub(super) fn submit(
        &mut self,
        event: &Event,
        submission: Submission,
    ) -> Option<Result<JobId, Refusal>> {
        self.decide(event, Some(submission))
    }

    /// Applies the events that carrying out earlier ones has caused.
    pub(super) fn follow_up(&mut self) {
        while let Some(event) = self.decision.follow_ups.pop_front() {
            self.decide(&event, None);
        }
    }

    /// Applies one event and carries out what follows; gives the decision on a submission.
    fn decide(
        &mut self,
        event: &Event,
        mut submission: Option<Submission>,
    ) -> Option<Result<JobId, Refusal>> {
        let mut answer = None;
        let mut actions = std::mem::take(&mut self.decision.actions);
        let now = self.now();
        self.clock.active = now;
        self.decision.line.take();
        self.events_of(event);
        self.core.apply(now, event, &mut actions);
        self.outsider.note(&self.core, event);
        self.memory.journal.note(now, event, &actions, &self.core);
        self.ask_disk_for(event);
        for action in actions.drain(..) {
            match action {
                Action::Accept { job, .. } => {
                    if let Some(submission) = submission.take() {
                        self.note_accepted(job, submission);
                        answer = Some(Ok(job));
                    }
                }
                Action::Decline { refusal, .. } => answer = Some(Err(refusal)),
                action => self.carry_out(action),
            }
        }
        self.decision.actions = actions;
        if let Event::Suspend { job } | Event::Resume { job } = event {
            self.note_state(*job);
        }
        self.tell_settings();
        answer
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.decision.next_request += 1;
        RequestId(self.decision.next_request)
    }

    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            // The caller answers these.
            Action::Accept { .. } | Action::Decline { .. } => {}
            Action::Timetable { node, .. } => self.send_timetable(node),
            Action::Timetables { .. } => {
                for node in self.cluster.nodes.keys().copied().collect::<Vec<_>>() {
                    self.send_timetable(node);
                }
            }
            Action::Launch { job, control } => self.on_launch(job, control),
            Action::Signal { job, node, ranks, signal } => {
                let launch = self.core.launch_on(job, node);
                self.tell_node(node, ToAgent::Signal { launch, ranks, signal });
            }
            Action::SignalRoots { job, node, signal } => {
                let launch = self.core.launch_on(job, node);
                self.tell_node(node, ToAgent::SignalRoots { launch, signal });
            }
            Action::Terminate { job, node } => {
                self.note_ending(job);
                let launch = self.core.launch_on(job, node);
                self.tell_node(node, ToAgent::Terminate { launch });
            }
            // Jobs are suspended in place: a job in no timetable leaves its processors free.
            Action::MoveOut { job } => {
                self.note_state(job);
                self.decision.follow_ups.push_back(Event::MovedOut { job });
            }
            Action::MoveIn { job } => {
                self.note_state(job);
                self.decision.follow_ups.push_back(Event::MovedIn { job });
            }
            Action::Swap { job, node, order, out } => {
                self.note_state(job);
                let launch = self.core.launch_on(job, node);
                self.tell_node(node, ToAgent::Swap { launch, order, out });
            }
            Action::Kill { job, node } => {
                self.note_ending(job);
                let launch = self.core.launch_on(job, node);
                self.tell_node(node, ToAgent::Kill { launch });
            }
            Action::Step(action) => self.carry_out_of_step(action),
            Action::ElementMade { array, job, .. } => self.on_element_made(array, job),
            Action::ArrayEnded { array, outcome, ends, numbers, well } => {
                self.on_array_ended(array, outcome, ends, (&numbers, &well));
            }
            Action::Checkpoint { job, news } => self.on_checkpoint_news(job, news),
            Action::Requeued { job } => self.on_requeued(job),
            Action::RanksLost { job, node, ranks, until } => {
                self.on_ranks_lost(job, node, ranks, until);
            }
            Action::Respawn { job, node, from, ranks } => {
                self.on_respawn(job, (node, from), ranks);
            }
            Action::RanksGivenUp { job, node, ranks } => {
                self.on_ranks_given_up(job, node, ranks);
            }
            Action::Reclassed { job, class } => {
                let class = class.to_string();
                if let Some(entry) = self.jobs.get_mut(&job) {
                    entry.terms.class.clone_from(&class);
                }
                self.job_event(job, What::JobClassChanged { class });
            }
            Action::JobDeclined { job, reason } => self.note_declined(job, reason),
            Action::PromiseBroken { job, at, by } => self.on_promise_broken(job, at, by),
            Action::Ended { job, outcome } => self.on_ended(job, outcome),
            Action::WakeAt { at } => self.due.wake_at = at,
        }
    }

    /// A job is to begin.
    fn on_launch(&mut self, job: JobId, control: tutti_types::ControlMethod) {
        let now = self.now();
        let view = self.core.job(job, now);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.times.started.get_or_insert(now);
            view.iter().for_each(|view| entry.terms.note_processors(&view.placements));
            self.memory.journal.note_launch(job, entry.times.started);
        }
        self.note_checkpoint(job);
        self.note_launched(job);
        // So that it is begun once more only if the power goes at once.
        self.ask_disk_soon();
        let Some((launch, shares)) = self.make_launch(job, control) else { return };
        let nodes: Vec<NodeId> = shares.iter().map(|(node, _)| *node).collect();
        if self.launch_on_nodes(launch, shares) {
            self.tell_front_of_start(job, nodes);
        }
    }

    /// The site's policy declines a job, which ends with the next action.
    fn note_declined(&mut self, job: JobId, reason: String) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.declined = Some(reason);
        }
    }

    /// Tells a node its part of the matrix, if it is up, and keeps it for an agent that comes back.
    fn send_timetable(&mut self, node: NodeId) {
        let Some(timetable) = self.core.timetable(node) else { return };
        if let Some(entry) = self.cluster.nodes.get_mut(&node) {
            entry.timetable = Some(timetable.clone());
        }
        self.tell_timetable(node, timetable);
    }

    /// Tells a node its part of the matrix, in as many messages as it takes.
    pub(super) fn tell_timetable(&mut self, node: NodeId, timetable: Timetable) {
        for order in timetable_orders(timetable) {
            self.tell_node(node, order);
        }
    }

    /// What all nodes of a job are told, and the share of each.
    pub(super) fn make_launch(
        &self,
        job: JobId,
        control: tutti_types::ControlMethod,
    ) -> Option<(Launch, Vec<(NodeId, Share)>)> {
        let entry = self.jobs.get(&job)?;
        let view = self.core.job(job, self.now())?;
        let parts = self.core.parts(job);
        let number = view.first.number_after_script(StepId::FIRST);
        let (spec, resumes) = (entry.terms.whole_launch()?, self.resumes(job));
        let launch = Launch {
            job,
            number: self.core.launch_of(job).number,
            step: StepId::FIRST,
            began: entry.times.started.unwrap_or_default(),
            control,
            own_ipc: self.core.own_ipc(job),
            credentials: entry.owner.credentials.clone(),
            size: view.first.tasks(view.spec.tasks),
            share: Share::default(),
            nodes: parts.iter().map(|part| self.job_node(part)).collect(),
            class: view.spec.class.to_string(),
            resources: view.resources.to_vec(),
            quantum: self.core.params().quantum(),
            processors_per_task: view.spec.processors_per_task.unwrap_or(1),
            memory_per_task_bytes: memory_of_a_task(&view, parts),
            spec: with_slurm_step(if resumes > 0 { spec.resumed() } else { spec }, number),
            beside: None,
            spawned: None,
            joins: false,
            resumes,
            saves_image: self.core.checkpoint(job).is_some_and(|it| it.spec.saves_image()),
            shared_image: self.core.shared_image(job),
            serves: false,
            hub: self.hub_of(job),
        };
        let share = |(node_rank, part): (u32, &tutti_core::Part)| {
            let held = part.is_held().then(|| part.processors.clone());
            let devices = self.devices_of(job, part.node);
            let closed = self.files_closed_to(job, part.node);
            let tasks = part.placements();
            let in_turns = self.core.devices().are_in_turns(job);
            let share = Share { tasks, node_rank, held, devices, in_turns, ..Share::default() };
            (part.node, Share { closed, ..share })
        };
        let mut shares: Vec<_> = (0..).zip(parts).map(share).collect();
        shares.sort_by_key(|(node, _)| *node);
        Some((launch, shares))
    }

    fn job_node(&self, part: &tutti_core::Part) -> JobNode {
        JobNode {
            node: part.node,
            name: self.node_name(part.node),
            address: self
                .cluster
                .nodes
                .get(&part.node)
                .map_or_else(String::new, |n| n.address.clone()),
            tasks: part.launched(),
            slots: part.tasks,
        }
    }

    /// A job is in line again, after a node was lost.
    fn on_requeued(&mut self, job: JobId) {
        self.forget_on_nodes(job);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.begin_anew();
            let requeues = entry.requeues;
            self.memory.journal.note_launch(job, None);
            self.job_event(job, What::JobRequeued { requeues });
        }
        self.answer_checkpoint(job);
        self.ask_disk_soon();
    }

    fn on_ended(&mut self, job: JobId, mut outcome: Outcome) {
        let Some(mut entry) = self.jobs.remove(&job) else { return };
        // As `tutti run` says it.
        if outcome.exit_code == 0 && !entry.output_lost.is_empty() {
            outcome.exit_code = Exit::OUTPUT_LOST.code();
        }
        entry.note_silent_nodes();
        let exchanges = std::mem::take(&mut entry.run.exchanges);
        self.note_given_up(exchanges.bytes());
        drop(exchanges);
        let details = details_to_store(&mut entry);
        let detail = entry.detail_of_end(outcome);
        let reason = match outcome.reason {
            EndReason::NodeLost(node) => self.how_it_went(node),
            EndReason::Declined => match entry.declined.take() {
                Some(why) if !why.is_empty() => format!("{}: {why}", outcome.reason),
                Some(_) | None => outcome.reason.to_string(),
            },
            reason => reason.to_string(),
        };
        let report = report::ended_job(job, &entry, outcome, reason, self.now());
        let tasks = entry.run.take_tasks(entry.terms.tasks);
        let ended = entry.ended(report.clone(), self.now(), outcome, tasks);
        self.let_go(ended.uid, entry.terms.launch);
        self.note_end(&ended, details.as_ref());
        self.job_ended(&ended, entry.notify.as_deref());
        let nodes: BTreeSet<NodeId> =
            entry.saving.nodes_with_images(entry.run.started_on()).collect();
        nodes.into_iter().for_each(|node| self.tell_images(node));
        self.forget_later(job);
        self.ends.ended.push(ended);
        self.watch_history();
        for token in entry.clients.into_all() {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.intake.connections.get_mut(&token)
            {
                client.forget(job);
            }
            let (detail, report) = (detail.clone(), Box::new(report.clone()));
            self.reply(token, &Reply::Ended { job, outcome, detail, report });
        }
    }

    /// What a job was to run need not be known any more.
    pub(super) fn let_go(&mut self, uid: u32, launch: Kept) {
        let Some(shelf) = self.users.shelves.get_mut(&uid) else { return };
        let before = shelf.bytes();
        shelf.let_go(launch, &mut self.memory.journal);
        let given_up = before - shelf.bytes();
        if shelf.bytes() == 0 {
            self.users.shelves.remove(&uid);
        }
        self.note_given_up(given_up);
    }

    /// So much memory is free, about.
    pub(super) const fn note_given_up(&mut self, bytes: usize) {
        self.users.given_up_bytes = self.users.given_up_bytes.saturating_add(bytes);
    }

    /// Ends a round: what happened is stored, and only then sent.
    fn settle(&mut self) {
        self.store();
        self.ask_disk(self.now());
        self.send_orders();
        self.settle_connections();
        if self.users.given_up_bytes > GIVEN_UP_BYTES {
            self.users.given_up_bytes = 0;
            heap::give_back();
        }
    }

    // ------------------------------------------------------------------ the end

    /// An administrator ends the instance: at once, or when jobs are rolled out.
    pub(super) fn on_down(&mut self, token: u64, uid: u32, roll_out: Option<Nanos>) {
        if let Err(error) = self.admin(uid) {
            return self.fail(token, error);
        }
        if roll_out.is_some() && !self.instance.keeps_journal() {
            let reason = "this instance keeps no journal when it ends, so no job could be rolled \
                          in; `tutti checkpoint` has jobs save their state";
            return self.fail(token, Problem::new(Code::Improper, reason));
        }
        match roll_out {
            Some(patience) => self.roll_out(Some(token), patience),
            None => self.stop(Some(token)),
        }
    }

    /// Begins to end the instance; `asker` is told when it has ended.
    pub(super) fn stop(&mut self, asker: Option<u64>) {
        let patience = self.now() + Nanos(STOP_PATIENCE_NS);
        // The journal of a user's own goes with it.
        let event = if self.instance.private { Event::ShutDown } else { Event::GoDown };
        match &mut self.due.stopping {
            Some((askers, until)) => {
                askers.extend(asker);
                if self.core.is_rolling_out() && !self.core.is_stopping() {
                    *until = patience;
                    self.apply(&event);
                }
            }
            None => {
                self.due.stopping = Some((asker.into_iter().collect(), patience));
                self.apply(&event);
            }
        }
    }

    /// Goes on with a roll-out that an earlier controller was about; or has its jobs come back, if
    /// the instance begins anew.
    pub(super) fn follow_roll_out(&mut self, is_successor: bool) {
        match self.core.is_rolling_out() {
            true if is_successor => self.roll_out(None, Nanos::ZERO),
            true => self.apply(&Event::RollIn),
            false => {}
        }
    }

    /// Begins to roll all jobs out, and to end the instance then. One that is about it goes on.
    pub(super) fn roll_out(&mut self, asker: Option<u64>, patience: Nanos) {
        match &mut self.due.stopping {
            Some((askers, _)) => askers.extend(asker),
            None => {
                if !self.core.is_rolling_out() {
                    self.apply(&Event::RollOut { patience });
                }
                let until = self.core.roll_out_until() + Nanos(STOP_PATIENCE_NS);
                self.due.stopping = Some((asker.into_iter().collect(), until));
            }
        }
    }

    /// Whether all is done: no job is left, and the agents have gone after they were told to.
    pub(super) fn finished(&mut self) -> bool {
        let Some((askers, patience)) = &self.due.stopping else { return false };
        let askers = askers.clone();
        let impatient = self.now() >= *patience;
        let now = self.now();
        let is_over = self.core.jobs(now).all(|view| matches!(view.state, JobState::Queued { .. }));
        if !self.due.stop_sent && (is_over || impatient) {
            self.due.stop_sent = true;
            if self.core.is_rolling_out() && !self.core.is_stopping() {
                self.apply(&Event::GoDown);
            }
            for node in self.cluster.nodes.keys().copied().collect::<Vec<_>>() {
                self.tell_node(node, ToAgent::Stop);
            }
            self.settle();
        }
        let agents = self.intake.connections.values().any(|c| matches!(c.kind, Kind::Branch(_)));
        if self.due.stop_sent && (!agents || impatient) {
            for asker in askers {
                self.reply(asker, &Reply::Done);
            }
            self.store();
            self.answer_readers();
            self.settle();
            return true;
        }
        false
    }
}

/// The state before anything has happened.
pub(super) fn blank_core() -> Core {
    Core::new(Params::default(), default_classes())
}

fn own_hard_limits() -> Vec<u64> {
    let (pid, uid) = (std::process::id().cast_signed(), geteuid().as_raw());
    proc::hard_limits(pid, uid).unwrap_or_default()
}

/// The memory that each of the first tasks of a job may use: that of all slots of its node, if it
/// starts others.
fn memory_of_a_task(view: &tutti_core::JobView<'_>, parts: &[tutti_core::Part]) -> Option<u64> {
    let slots = match view.first {
        FirstStep::EachSlot | FirstStep::Tasks(_) => 1,
        FirstStep::Once => parts.first().map_or(1, |part| part.tasks),
    };
    view.spec.memory_per_task_bytes.map(|each| each.saturating_mul(u64::from(slots)))
}
