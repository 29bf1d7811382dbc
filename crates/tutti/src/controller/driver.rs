//! The loop around the core.

use super::agents::{Branch, NodeEntry};
use super::ahead::{self, Former, ReachFile};
use super::clients::Client;
use super::exchange::send_parts;
use super::jobs::{Ended, EndedJobs, Entry, TASKS_KEPT_MAX};
use super::kept::{Kept, Shelf};
use super::memory::Memory;
use super::problem::Problem;
use super::report;
use crate::exit::Exit;
use crate::instance::{Instance, may_run_instance, supervisor};
use crate::link::{Interest, Link, LinkError, Poller, Ready};
use crate::membership::{Members, Place};
use crate::outside::time as clock;
use crate::outside::time::wall_ms;
use crate::outside::ways::Stream;
use crate::trusted;
use nix::unistd::{Pid, geteuid, getppid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use tutti_core::{
    Action, ClusterTime, Core, EndReason, Event, JobId, JobState, Nanos, NodeId, Outcome, Params,
    RequestId, default_classes,
};
use tutti_journal::{History, Journal};
use tutti_linux::{heap, peer, proc};
use tutti_wire::Role;
use tutti_wire::branch::Vouch;
use tutti_wire::code::Code;
use tutti_wire::launch::{JobNode, Launch, Share};
use tutti_wire::limits::{FRAME_BYTES_MAX, JOB_REQUEST_BYTES_MAX};
use tutti_wire::local::Reply;
use tutti_wire::tree::ToAgent;

/// What a controller is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct ControllerOptions {
    /// Where it lives.
    pub(crate) instance: Instance,
}

/// Connections at once; one more is closed. Far above what a machine's users open, far below what
/// a process may.
const CONNECTIONS_MAX: usize = 4096;

/// Connections of one user at once, so that nobody can keep the others out.
const CONNECTIONS_PER_USER_MAX: usize = CONNECTIONS_MAX / 4;

/// Descriptors that are not for connections.
const DESCRIPTORS_KEPT: u64 = 64;

/// How old the last entry of the journal may be while there are jobs.
const TIME_ENTERED_EVERY: Nanos = Nanos::from_secs(10);

/// How long nobody is let in when there is no descriptor for another connection.
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(500);

/// Halves of messages from one user, in all, beyond the first [`PENDING_FREE_BYTES`] of each
/// connection.
const PENDING_PER_USER_BYTES_MAX: usize = 64 << 20;
const PENDING_FREE_BYTES: usize = 64 << 10;

/// What may be queued for a client that does not read before it is cut off.
const CLIENT_UNSENT_MAX: usize = 64 << 20;

/// What may be queued for all connections of a user together before no more of that user's requests are taken, and those that
/// do not read are cut off.
const USER_UNSENT_MAX: usize = 32 << 20;

/// How long a connection may take nothing of what is queued for it while its user has too much queued.
const STALLED: Nanos = Nanos::from_secs(5);

/// Questions to agents that may be open for one user: the answers wait here for each other.
const QUESTIONS_PER_USER_MAX: usize = 16;

/// When so much was let go of, what is free goes back to the system: the allocator keeps it otherwise.
const GIVEN_UP_BYTES: usize = 16 << 20;

const LISTENER: u64 = 0;
const DISK: u64 = 1;

/// How long an ending instance waits for its jobs to be cleared away.
const STOP_PATIENCE_NS: u64 = 15_000_000_000;

/// One connection.
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) uid: u32,
    pub(super) pid: i32,
    /// Who speaks, if an agent of the cluster vouched for somebody on another node.
    pub(super) vouch: Option<Vouch>,
    pub(super) kind: Kind,
    /// How much its peer had taken when it was last seen to take something, and when that was.
    progress: (u64, ClusterTime),
}

impl Connection {
    /// Sends what is queued as far as the peer takes it: to an agent, after that, what MPI programs exchange.
    fn settle(&mut self, poller: &Poller, token: u64) -> Result<(), LinkError> {
        loop {
            self.link.settle(poller, token)?;
            match &mut self.kind {
                Kind::Branch(branch) if !branch.sending.is_empty() && self.link.unsent() == 0 => {
                    send_parts(&mut branch.sending, &mut self.link);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Whose connection it is.
pub(super) enum Kind {
    /// Not greeted yet.
    Unknown,
    /// An agent that will say for whom it speaks.
    Proxy,
    /// A user's verb.
    Client(Client),
    /// An agent with its branch of the control tree.
    Branch(Branch),
}

/// The controller.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) memory: Memory,
    /// How far cluster time is ahead of this machine's clock.
    pub(super) clock_ahead: Nanos,
    /// Whether the next controller hears of that, and of gaps in the journal, by a file of the instance.
    pub(super) has_clock_file: bool,
    pub(super) instance: Instance,
    /// Who may join, if there is a cluster.
    pub(super) members: Option<Members>,
    pub(super) poller: Poller,
    pub(super) connections: BTreeMap<u64, Connection>,
    connections_max: usize,
    /// When connections are accepted again; never: they are.
    accept_again: ClusterTime,
    /// Those who have come, and may have said something already.
    newcomers: Vec<u64>,
    /// Clients with a message that waits for its turn.
    unread: BTreeSet<u64>,
    /// What is queued for the clients of each user, in bytes.
    unsent: BTreeMap<u32, usize>,
    /// When the next connection that takes nothing may have to go.
    stalled_due: ClusterTime,
    next_token: u64,
    pub(super) nodes: BTreeMap<NodeId, NodeEntry>,
    /// The number of the next node that is new: none is given twice.
    pub(super) next_node: u32,
    pub(super) jobs: BTreeMap<JobId, Box<Entry>>,
    pub(super) ended: EndedJobs,
    /// By what the latest jobs would be asked for again.
    pub(super) submitted: super::submitted::Submitted,
    /// What the jobs of each user keep here.
    pub(super) shelves: BTreeMap<u32, Shelf>,
    /// What has been let go of since memory was last given back, in bytes.
    given_up_bytes: usize,
    /// The hard limits on resources that this process has.
    pub(super) hard_limits: Vec<u64>,
    pub(super) user_names: BTreeMap<u32, String>,
    /// Those for whom other machines vouched.
    pub(super) accounts: super::vouched::Accounts,
    /// Who asked for the job that a `Submit` in progress is about.
    pub(super) submitting: Option<super::clients::Submission>,
    /// Requests for jobs that came before the first node.
    pub(super) early: Vec<super::clients::Early>,
    /// Whether they wait: until a node has joined since this controller began; others it may remember.
    pub(super) waits_for_nodes: bool,
    next_request: u64,
    pub(super) questions: super::questions::Questions,
    /// Who waits for nodes to be taken out.
    pub(super) removals: super::removal::Removals,
    pub(super) wake_at: ClusterTime,
    /// When people's clocks are looked at.
    pub(super) calendar_due: ClusterTime,
    /// When the earliest of the jobs that have ended may be too old.
    pub(super) history_due: ClusterTime,
    /// Jobs that have ended, of which nodes still know.
    pub(super) forgetting: super::forgetting::Forgetting,
    /// What agents were told of parameters.
    pub(super) told_settings: Option<tutti_wire::tree::Settings>,
    pub(super) started: ClusterTime,
    /// Who started it: the supervisor.
    parent: Pid,
    active: ClusterTime,
    /// Set when the instance is to end: who asked, and when patience is over.
    stopping: Option<(Vec<u64>, ClusterTime)>,
    stop_sent: bool,
    actions: Vec<Action>,
    /// What the actions in progress made happen at once.
    pub(super) follow_ups: VecDeque<Event>,
}

/// Runs a controller until its instance ends.
///
/// # Errors
/// If it can't begin: the socket can't be made.
pub(crate) fn main(options: ControllerOptions) -> anyhow::Result<()> {
    let path = options.instance.controller_socket();
    // Who can connect is heard: not before it is known what there is.
    let private = options.instance.private;
    let mut driver = Driver::new(options.instance)?;
    let listener = trusted::listen(&path, !private)?;
    driver.poller.add(&listener, LISTENER, Interest::READ)?;
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
        let former = ahead::of_former(&instance);
        let reach = ahead::reach_of_former(&instance);
        let opened = match (former, reach) {
            (None, None) => Journal::open(&path, blank_core)?,
            (_, reach) => Journal::open_after(reach.unwrap_or_default().known, &path, blank_core)?,
        };
        let place = Place::of(&instance);
        let members = place.membership()?.map(|_| Members::of(place));
        let jobs_known = reach.map_or(0, |reach| reach.jobs);
        let mut driver = Self::over(instance, members, opened, former, jobs_known)?;
        driver.has_clock_file = true;
        ahead::keep(&driver.instance, driver.as_former());
        driver.memory.reach = ReachFile::open(&driver.instance);
        driver.say_reach();
        Ok(driver)
    }

    /// What the next one is to know of this one.
    pub(super) const fn as_former(&self) -> Former {
        Former { ahead: self.clock_ahead, has_gap: self.memory.has_gap }
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
        let clock_ahead = ahead::clock_ahead(ahead, history.until);
        let now = ClusterTime(clock::monotonic_ns()) + clock_ahead;
        let poller = Poller::new()?;
        poller.add(journal.wake(), DISK, Interest::READ)?;
        let mut driver = Self {
            core: blank_core(),
            members,
            memory: Memory::new(journal, former.is_some_and(|former| former.has_gap)),
            clock_ahead,
            has_clock_file: false,
            instance,
            poller,
            connections: BTreeMap::new(),
            connections_max: connections_max(),
            accept_again: ClusterTime::NEVER,
            newcomers: Vec::new(),
            unread: BTreeSet::new(),
            unsent: BTreeMap::new(),
            stalled_due: ClusterTime::NEVER,
            next_token: DISK + 1,
            nodes: BTreeMap::new(),
            next_node: 0,
            jobs: BTreeMap::new(),
            ended: EndedJobs::default(),
            submitted: super::submitted::Submitted::default(),
            shelves: BTreeMap::new(),
            given_up_bytes: 0,
            hard_limits: own_hard_limits(),
            user_names: BTreeMap::new(),
            accounts: super::vouched::Accounts::default(),
            submitting: None,
            early: Vec::new(),
            waits_for_nodes: true,
            next_request: 0,
            questions: super::questions::Questions::default(),
            removals: super::removal::Removals::default(),
            wake_at: ClusterTime::NEVER,
            calendar_due: ClusterTime::NEVER,
            history_due: ClusterTime::NEVER,
            forgetting: super::forgetting::Forgetting::default(),
            told_settings: None,
            started: now,
            parent: supervisor(),
            active: now,
            stopping: None,
            stop_sent: false,
            actions: Vec::new(),
            follow_ups: VecDeque::new(),
        };
        driver.remember(history, former.is_none(), jobs_known);
        Ok(driver)
    }

    fn run(&mut self, listener: &UnixListener) -> anyhow::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.finished() {
            let deadline = self.deadline();
            let own_ns = deadline.0.saturating_sub(self.clock_ahead.0);
            self.poller.wait((deadline != ClusterTime::NEVER).then_some(own_ns), &mut ready)?;
            if ready.iter().any(|event| event.token == LISTENER) {
                self.accept(listener);
            }
            self.round(&ready);
            if self.accept_again <= self.now() {
                self.accept_again = ClusterTime::NEVER;
                self.poller.modify(listener, LISTENER, Interest::READ)?;
            }
        }
        Ok(())
    }

    /// Takes in what has happened, does what is due, and ends with everything stored and sent. What agents tell comes
    /// first, however it came: who asks for something is answered by how things are now.
    pub(super) fn round(&mut self, ready: &[Ready]) {
        let mut spoken = std::mem::take(&mut self.newcomers);
        for event in ready {
            match event.token {
                LISTENER => {}
                DISK => self.on_disk(),
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
        // Where a user's connections wait for those that do not read, verbs that have just been called come first.
        for token in std::mem::take(&mut self.unread).into_iter().rev() {
            self.take_messages(token, Ok(()));
        }
        self.on_time();
        self.settle();
    }

    /// The moment of an event: the controller's clock is what cluster time is.
    pub(super) fn now(&self) -> ClusterTime {
        ClusterTime(clock::monotonic_ns()) + self.clock_ahead
    }

    /// Whether the supervisor, who would start again what fails, has ended itself.
    pub(super) fn is_abandoned(&self) -> bool {
        getppid() != self.parent
    }

    pub(super) fn deadline(&self) -> ClusterTime {
        if !self.unread.is_empty() {
            return ClusterTime(0);
        }
        let mut deadline = self.wake_at.min(self.accept_again).min(self.calendar_due);
        deadline = deadline.min(self.stalled_due);
        deadline = deadline.min(self.misses_due()).min(self.removals.due());
        deadline = deadline.min(self.history_due).min(self.time_due());
        deadline = deadline.min(self.forgetting.due()).min(self.questions.due());
        if self.waits_for_nodes && !self.early.is_empty() {
            deadline = deadline.min(self.nodes_due());
        }
        for abandoned in self.memory.abandoned.values() {
            deadline = deadline.min(abandoned.until);
        }
        if let Some((_, patience)) = &self.stopping {
            deadline = deadline.min(*patience);
        } else if let Some(idle) = self.idle_end() {
            deadline = deadline.min(idle);
        }
        deadline
    }

    /// When the journal is to have another entry, whatever happens: if the machine's clock begins anew, cluster
    /// time goes on after the last one, and jobs keep what they have waited until then.
    fn time_due(&self) -> ClusterTime {
        match self.jobs.is_empty() || self.stopping.is_some() {
            true => ClusterTime::NEVER,
            false => self.core.now() + TIME_ENTERED_EVERY,
        }
    }

    /// When a private instance that nobody uses ends by itself. In a cluster others may be about to.
    fn idle_end(&self) -> Option<ClusterTime> {
        let limit = self.core.params().idle_exit()?;
        let used = !self.jobs.is_empty()
            || self.connections.values().any(|c| matches!(c.kind, Kind::Client(_)));
        let is_alone = self.instance.private && self.members.is_none();
        (is_alone && !used).then(|| self.active + limit)
    }

    fn on_time(&mut self) {
        let now = self.now();
        if now >= self.wake_at.min(self.time_due()) {
            self.wake_at = ClusterTime::NEVER;
            self.apply(&Event::Tick);
        }
        if now >= self.calendar_due {
            self.watch_calendar();
        }
        self.look_after_missed(now);
        self.cut_off(now);
        if now >= self.questions.due() {
            self.close_overdue(now);
        }
        if now >= self.history_due {
            self.forget_history();
        }
        if self.waits_for_nodes && now >= self.nodes_due() {
            self.stop_waiting_for_nodes();
        }
        self.give_up_fronts(now);
        if self.stopping.is_none() && self.idle_end().is_some_and(|idle| idle <= now) {
            say!("tutti controller: idle for long enough; ending");
            self.stop(None);
        }
    }

    // ------------------------------------------------------------------ the core

    /// The one place where something is decided: an event in, actions out, carried out in order.
    pub(super) fn apply(&mut self, event: &Event) {
        self.decide(event);
        while let Some(event) = self.follow_ups.pop_front() {
            self.decide(&event);
        }
    }

    fn decide(&mut self, event: &Event) {
        let mut actions = std::mem::take(&mut self.actions);
        let now = self.now();
        self.active = now;
        self.core.apply(now, event, &mut actions);
        self.memory.journal.note(now, event, &actions, &self.core);
        self.ask_disk_for(event);
        for action in actions.drain(..) {
            self.carry_out(action);
        }
        self.actions = actions;
        self.tell_settings();
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Accept { job, .. } => self.on_accept(job),
            Action::Decline { refusal, .. } => self.on_decline(&refusal),
            Action::Timetable { node, .. } => self.send_timetable(node),
            Action::Timetables { .. } => {
                for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                    self.send_timetable(node);
                }
            }
            Action::Launch { job, control } => {
                let now = self.now();
                let view = self.core.job(job, now);
                if let Some(entry) = self.jobs.get_mut(&job) {
                    entry.started.get_or_insert(now);
                    view.iter().for_each(|view| entry.note_processors(&view.placements));
                    self.memory.journal.note_launch(job, entry.started);
                }
                // So that it is begun once more only if the power goes at once.
                self.ask_disk_soon();
                let Some((launch, shares)) = self.make_launch(job, control) else { return };
                let nodes: Vec<NodeId> = shares.iter().map(|(node, _)| *node).collect();
                if self.launch_on_nodes(launch, shares) {
                    self.tell_front_of_start(job, nodes);
                }
            }
            Action::Signal { job, node, ranks, signal } => {
                let launch = self.latest(job);
                self.tell_node(node, ToAgent::Signal { launch, ranks, signal });
            }
            Action::Terminate { job, node } => {
                let launch = self.latest(job);
                self.tell_node(node, ToAgent::Terminate { launch });
            }
            // Jobs are suspended in place: whoever is in no timetable leaves his processors free.
            Action::MoveOut { job } => self.follow_ups.push_back(Event::MovedOut { job }),
            Action::MoveIn { job } => self.follow_ups.push_back(Event::MovedIn { job }),
            Action::Kill { job, node } => {
                let launch = self.latest(job);
                self.tell_node(node, ToAgent::Kill { launch });
            }
            Action::Requeued { job } => self.on_requeued(job),
            Action::Ended { job, outcome } => self.on_ended(job, outcome),
            Action::WakeAt { at } => self.wake_at = at,
        }
    }

    /// Tells a node its part of the matrix, if it is up, and keeps it for an agent that comes back.
    fn send_timetable(&mut self, node: NodeId) {
        let Some(timetable) = self.core.timetable(node) else { return };
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.timetable = Some(timetable.clone());
        }
        self.tell_node(node, ToAgent::Timetable(timetable));
    }

    /// What all nodes of a job are told, and the share of each.
    pub(super) fn make_launch(
        &self,
        job: JobId,
        control: tutti_core::ControlMethod,
    ) -> Option<(Launch, Vec<(NodeId, Share)>)> {
        let entry = self.jobs.get(&job)?;
        let view = self.core.job(job, self.now())?;
        let parts = self.core.parts(job);
        let launch = Launch {
            job,
            number: entry.requeues,
            control,
            own_ipc: self.core.own_ipc(job),
            credentials: entry.credentials.clone(),
            size: view.spec.tasks,
            share: Share::default(),
            nodes: parts.iter().map(|part| self.job_node(part)).collect(),
            class: view.spec.class.to_string(),
            quantum: self.core.params().quantum(),
            processors_per_task: view.spec.processors_per_task.unwrap_or(1),
            memory_per_task_bytes: view.spec.memory_per_task_bytes,
            spec: entry.launch.whole()?,
        };
        let share = |(node_rank, part): (u32, &tutti_core::Part)| {
            (part.node, Share { tasks: part.placements(), node_rank })
        };
        let mut shares: Vec<_> = (0..).zip(parts).map(share).collect();
        shares.sort_by_key(|(node, _)| *node);
        Some((launch, shares))
    }

    fn job_node(&self, part: &tutti_core::Part) -> JobNode {
        JobNode {
            node: part.node,
            name: self.node_name(part.node),
            address: self.nodes.get(&part.node).map_or_else(String::new, |n| n.address.clone()),
            tasks: u32::try_from(part.placements().len()).unwrap_or(u32::MAX),
        }
    }

    /// A job is in line again, after a node was lost.
    fn on_requeued(&mut self, job: JobId) {
        self.forget_on_nodes(job);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.begin_anew();
            self.memory.journal.note_launch(job, None);
        }
        self.ask_disk_soon();
    }

    fn on_ended(&mut self, job: JobId, mut outcome: Outcome) {
        let Some(mut entry) = self.jobs.remove(&job) else { return };
        // As `tutti run` says it.
        if outcome.exit_code == 0 && !entry.output_lost.is_empty() {
            outcome.exit_code = Exit::OUTPUT_LOST.code();
        }
        entry.note_silent_nodes();
        let exchanges = std::mem::take(&mut entry.exchanges);
        self.note_given_up(exchanges.bytes());
        drop(exchanges);
        let detail = entry.detail_of_end(outcome);
        let reason = match outcome.reason {
            EndReason::NodeLost(node) => self.how_it_went(node),
            reason => reason.to_string(),
        };
        let report = report::ended_job(job, &entry, outcome, reason, self.now());
        let mut tasks = entry.tasks_ended;
        tasks.sort_by_key(|task| task.rank);
        if entry.tasks as usize > TASKS_KEPT_MAX {
            tasks.clear();
        }
        let ended = Ended {
            report: report.clone(),
            accepted: entry.accepted,
            at: self.now(),
            accepted_ms: entry.accepted_ms,
            ended_ms: wall_ms(),
            uid: entry.credentials.uid,
            gid: entry.credentials.gid,
            key: entry.key,
            time_limit: entry.time_limit,
            outcome,
            tasks,
        };
        self.let_go(ended.uid, entry.launch);
        self.note_end(&ended);
        self.forget_later(job);
        self.ended.push(ended);
        self.watch_history();
        for token in entry.front.into_iter().chain(entry.waiting).chain(entry.waiting_begun) {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.connections.get_mut(&token)
            {
                client.forget(job);
            }
            let (detail, report) = (detail.clone(), Box::new(report.clone()));
            self.reply(token, &Reply::Ended { job, outcome, detail, report });
        }
    }

    /// What a job was to run need not be known any more.
    pub(super) fn let_go(&mut self, uid: u32, launch: Kept) {
        let Some(shelf) = self.shelves.get_mut(&uid) else { return };
        let before = shelf.bytes();
        shelf.let_go(launch, &mut self.memory.journal);
        let given_up = before - shelf.bytes();
        if shelf.bytes() == 0 {
            self.shelves.remove(&uid);
        }
        self.note_given_up(given_up);
    }

    /// So much memory is free, about.
    pub(super) const fn note_given_up(&mut self, bytes: usize) {
        self.given_up_bytes = self.given_up_bytes.saturating_add(bytes);
    }

    // ------------------------------------------------------------------ connections

    fn accept(&mut self, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.take_in(stream) {
                        say!([System] "tutti controller: cannot take a connection: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // It still waits: without a pause we would do nothing else.
                    say!([System] "tutti controller: cannot take a connection: {error}");
                    self.accept_again = self.now() + ACCEPT_PAUSE;
                    let _ = self.poller.modify(listener, LISTENER, Interest::NONE);
                    return;
                }
            }
        }
    }

    pub(super) fn take_in(&mut self, stream: impl Into<Stream>) -> std::io::Result<()> {
        let stream = stream.into();
        let who = peer::peer_credentials(&stream)?;
        let mut link = Link::new(stream)?;
        link.limit(JOB_REQUEST_BYTES_MAX);
        link.one_at_a_time();
        link.greet(Role::Server);
        if let Some(reason) = self.has_no_room_for(who.uid) {
            say_provoked!([TooMuchAsked] "tutti controller: turned away process {}: {reason}", who.pid);
            link.send(&Problem::new(Code::TooMuchAsked, reason).failed());
            let _ = link.flush();
            return Ok(());
        }
        let token = self.next_token;
        self.next_token += 1;
        self.poller.add(&link, token, Interest::READ)?;
        let kind = Kind::Unknown;
        let progress = (0, self.now());
        let connection =
            Connection { link, uid: who.uid, pid: who.pid, vouch: None, kind, progress };
        self.connections.insert(token, connection);
        self.newcomers.push(token);
        Ok(())
    }

    /// Why one more connection of a user is not taken. Those who answer for the instance always get
    /// in: its agents are theirs, and who would end what is wrong.
    fn has_no_room_for(&mut self, uid: u32) -> Option<String> {
        if self.admin(uid).is_ok() {
            return None;
        }
        if self.connections.len() >= self.connections_max {
            return Some(format!("{} connections are open, which is all", self.connections_max));
        }
        let of_user = self.connections.values().filter(|c| c.uid == uid).count();
        let most = CONNECTIONS_PER_USER_MAX.min(self.connections_max / 4);
        (of_user >= most).then(|| {
            let user = self.user_name(uid);
            format!("user {user} has {of_user} connections open, the most that one user may have")
        })
    }

    /// Reads what has come.
    fn receive(&mut self, token: u64) -> Result<(), LinkError> {
        match self.connections.get_mut(&token) {
            Some(connection) if !connection.link.is_held() => connection.link.receive(),
            _ => Ok(()),
        }
    }

    fn is_agent(&self, token: u64) -> bool {
        self.connections.get(&token).is_some_and(|it| matches!(it.kind, Kind::Branch(_)))
    }

    fn take_messages(&mut self, token: u64, received: Result<(), LinkError>) {
        if let Err(error) = self.read_messages(token).and(received) {
            self.close(token, &error);
        } else if self.keeps_too_much(token) {
            self.close(token, &LinkError::Closed);
        }
    }

    /// Whether the user of this connection makes us keep too many halves of messages.
    fn keeps_too_much(&self, token: u64) -> bool {
        let kept = |c: &Connection| c.link.pending().saturating_sub(PENDING_FREE_BYTES);
        self.connections.get(&token).is_some_and(|connection| {
            kept(connection) > 0
                && matches!(connection.kind, Kind::Client(_))
                && self
                    .connections
                    .values()
                    .filter(|other| other.uid == connection.uid)
                    .map(kept)
                    .sum::<usize>()
                    > PENDING_PER_USER_BYTES_MAX
        })
    }

    /// Whether a client's next request may be taken: one at a time, so that whoever sends many
    /// waits for himself, not everybody for him.
    fn may_ask(&self, token: u64) -> bool {
        !self.questions.is_open_for(token)
            && !self.removals.is_open_for(token)
            && !self.memory.has_promised_enough(token)
            && !self.early.iter().any(|early| early.token == token)
            && self.connections.get(&token).is_some_and(|connection| {
                !connection.link.is_behind() && self.has_room_for_answers(connection.uid)
            })
    }

    /// Whether a user's connections leave room for another answer. Others' requests do not wait for that.
    fn has_room_for_answers(&self, uid: u32) -> bool {
        let is_theirs = |token| self.connections.get(&token).is_some_and(|it| it.uid == uid);
        self.unsent.get(&uid).is_none_or(|bytes| *bytes <= USER_UNSENT_MAX)
            && self.questions.open_for(is_theirs) < QUESTIONS_PER_USER_MAX
    }

    fn read_messages(&mut self, token: u64) -> Result<(), LinkError> {
        loop {
            let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
            match &connection.kind {
                Kind::Unknown => {
                    if !self.take_greeting(token)? {
                        return Ok(());
                    }
                }
                Kind::Client(_) => {
                    if self.may_ask(token)
                        && let Some(connection) = self.connections.get_mut(&token)
                        && let Some(request) = connection.link.next()?
                    {
                        self.on_request(token, request);
                    }
                    return Ok(());
                }
                Kind::Proxy => {
                    let Some(vouch) = connection.link.next()? else { return Ok(()) };
                    self.on_vouch(token, vouch)?;
                }
                Kind::Branch(_) => match connection.link.next()? {
                    Some(message) => self.on_branch(token, message),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Whether somebody who had not greeted has.
    fn take_greeting(&mut self, token: u64) -> Result<bool, LinkError> {
        match self.connections.get_mut(&token) {
            Some(Connection { link, kind: Kind::Unknown, .. }) => match link.next_greeting()? {
                Some(role) => self.on_greeting(token, role).map(|()| true),
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    fn on_greeting(&mut self, token: u64, role: Role) -> Result<(), LinkError> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let trusted = may_run_instance(connection.uid, geteuid().as_raw());
        connection.kind = match role {
            Role::Client => Kind::Client(Client::default()),
            Role::Agent if trusted => {
                connection.link.limit(FRAME_BYTES_MAX);
                Kind::Branch(Branch::default())
            }
            Role::Proxy if trusted && connection.vouch.is_none() => Kind::Proxy,
            Role::Agent
            | Role::Proxy
            | Role::FrontEnd
            | Role::Server
            | Role::Gate
            | Role::Newcomer
            | Role::Supervisor => {
                return Err(tutti_wire::DecodeError::NotTutti.into());
            }
        };
        Ok(())
    }

    /// From now on the connection is that of somebody on another node.
    fn on_vouch(&mut self, token: u64, vouch: Vouch) -> Result<(), LinkError> {
        let refused = self.has_no_room_for(vouch.uid);
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        connection.kind = Kind::Unknown;
        connection.uid = vouch.uid;
        connection.pid = vouch.pid;
        connection.vouch = Some(vouch);
        connection.link.expect_greeting();
        if let Some(reason) = refused {
            connection.link.send(&Problem::new(Code::TooMuchAsked, reason).failed());
            connection.link.flush()?;
            return Err(LinkError::Closed);
        }
        Ok(())
    }

    fn close(&mut self, token: u64, error: &LinkError) {
        let Some(connection) = self.connections.remove(&token) else { return };
        self.poller.remove(&connection.link);
        if let Some(unsent) = self.unsent.get_mut(&connection.uid) {
            *unsent = unsent.saturating_sub(connection.link.unsent());
        }
        if !is_end(error) {
            say_provoked!(
                [NotUnderstood] "tutti controller: closing a connection of process {} of user {}: {:#}",
                connection.pid,
                connection.uid,
                anyhow::Error::msg(chain(error))
            );
        }
        match connection.kind {
            Kind::Unknown | Kind::Proxy => {}
            Kind::Client(client) => {
                let from = connection.vouch.map(|vouch| vouch.node);
                self.on_client_gone(client, from);
            }
            Kind::Branch(_) => self.on_branch_gone(token),
        }
        self.active = self.now();
    }

    /// Answers a client, in the order of what he asked.
    pub(super) fn reply(&mut self, token: u64, reply: &Reply) {
        if !self.memory.defer(token, reply) {
            self.send_reply(token, reply);
        }
    }

    pub(super) fn send_reply(&mut self, token: u64, reply: &Reply) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let before = connection.link.unsent();
        if before == 0 {
            connection.progress = (connection.link.written(), now);
        }
        if connection.link.try_send(reply).is_err() {
            let reason = "the answer is too long to be sent; ask for less";
            connection.link.send(&Problem::new(Code::TooMuchAsked, reason).failed());
        }
        *self.unsent.entry(connection.uid).or_default() += connection.link.unsent() - before;
    }

    /// Counts what is queued for each user's clients, and lists connections of those with too much that have taken nothing
    /// for a while.
    fn count_unsent(&mut self) -> Vec<u64> {
        let now = self.now();
        self.unsent.clear();
        self.stalled_due = ClusterTime::NEVER;
        for connection in self.connections.values_mut() {
            let (unsent, written) = (connection.link.unsent(), connection.link.written());
            if unsent == 0 || !matches!(connection.kind, Kind::Client(_)) {
                continue;
            }
            if connection.progress.0 != written {
                connection.progress = (written, now);
            }
            *self.unsent.entry(connection.uid).or_default() += unsent;
        }
        self.unsent.retain(|_, bytes| *bytes > USER_UNSENT_MAX / 2);
        let mut stalled = Vec::new();
        for (&token, connection) in &self.connections {
            let has_too_much =
                self.unsent.get(&connection.uid).is_some_and(|it| *it > USER_UNSENT_MAX);
            if has_too_much && connection.link.unsent() > 0 {
                let until = connection.progress.1 + STALLED;
                if until <= now {
                    stalled.push(token);
                } else {
                    self.stalled_due = self.stalled_due.min(until);
                }
            }
        }
        stalled
    }

    /// Ends a round: what happened is stored, and only then sent.
    fn settle(&mut self) {
        self.store();
        self.ask_disk(self.now());
        self.send_orders();
        let mut broken = Vec::new();
        let waits = |(token, connection): (&u64, &Connection)| {
            (matches!(connection.kind, Kind::Client(_)) && connection.link.has_message())
                .then_some(*token)
        };
        let waiting: Vec<u64> = self.connections.iter().filter_map(waits).collect();
        for (&token, connection) in &mut self.connections {
            if let Err(error) = connection.settle(&self.poller, token) {
                broken.push((token, error));
            } else if matches!(connection.kind, Kind::Client(_))
                && connection.link.unsent() > CLIENT_UNSENT_MAX
            {
                broken.push((token, LinkError::Closed));
            }
        }
        broken.extend(self.count_unsent().into_iter().map(|token| (token, LinkError::Closed)));
        for (token, error) in broken {
            self.close(token, &error);
        }
        self.unread = waiting.into_iter().filter(|&token| self.may_ask(token)).collect();
        if self.given_up_bytes > GIVEN_UP_BYTES {
            self.given_up_bytes = 0;
            heap::give_back();
        }
    }

    // ------------------------------------------------------------------ the end

    /// Begins to end the instance; `asker` is told when it has ended.
    pub(super) fn stop(&mut self, asker: Option<u64>) {
        let patience = self.now() + tutti_core::Nanos(STOP_PATIENCE_NS);
        match &mut self.stopping {
            Some((askers, _)) => askers.extend(asker),
            None => {
                self.stopping = Some((asker.into_iter().collect(), patience));
                // The journal of a user's own goes with it.
                let event = if self.instance.private { Event::ShutDown } else { Event::GoDown };
                self.apply(&event);
            }
        }
    }

    /// Whether all is done: no job is left, and the agents have gone after they were told to.
    pub(super) fn finished(&mut self) -> bool {
        let Some((askers, patience)) = &self.stopping else { return false };
        let askers = askers.clone();
        let impatient = self.now() >= *patience;
        let now = self.now();
        let is_over = self.core.jobs(now).all(|view| matches!(view.state, JobState::Queued { .. }));
        if !self.stop_sent && (is_over || impatient) {
            self.stop_sent = true;
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.tell_node(node, ToAgent::Stop);
            }
            self.settle();
        }
        let agents = self.connections.values().any(|c| matches!(c.kind, Kind::Branch(_)));
        if self.stop_sent && (!agents || impatient) {
            for asker in askers {
                self.reply(asker, &Reply::Done);
            }
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

/// As many connections as there can be descriptors.
fn connections_max() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let room = descriptors.saturating_sub(DESCRIPTORS_KEPT);
    usize::try_from(room).map_or(CONNECTIONS_MAX, |room| room.min(CONNECTIONS_MAX))
}

/// Whether the peer merely ended, whatever it had not read by then.
fn is_end(error: &LinkError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error {
        LinkError::Closed => true,
        LinkError::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionReset),
        LinkError::Decode(_) | LinkError::TooLong(_) => false,
    }
}

/// An error with all its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
