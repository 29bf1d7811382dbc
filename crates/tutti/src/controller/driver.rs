//! The loop around the core.

use super::agents::NodeEntry;
use super::clients::Client;
use super::jobs::{Ended, EndedJobs, Entry};
use super::report;
use crate::instance::Instance;
use crate::link::{Interest, Link, LinkError, Poller, Ready};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use tutti_core::{
    Action, ClusterTime, Core, Event, JobId, NodeId, Outcome, Params, RequestId, default_classes,
};
use tutti_linux::{clock, peer};
use tutti_wire::Role;
use tutti_wire::launch::Launch;
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

/// What may be queued for a client that does not read before it is cut off.
const CLIENT_UNSENT_MAX: usize = 64 << 20;

const LISTENER: u64 = 0;

/// How long an ending instance waits for its jobs to be cleared away.
const STOP_PATIENCE_NS: u64 = 15_000_000_000;

/// One connection.
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) uid: u32,
    pub(super) pid: i32,
    pub(super) kind: Kind,
}

/// Whose connection it is.
pub(super) enum Kind {
    /// Not greeted yet.
    Unknown,
    /// A user's verb.
    Client(Client),
    /// An agent, of this node once it joined.
    Agent(Option<NodeId>),
}

/// The controller.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) instance: Instance,
    pub(super) poller: Poller,
    pub(super) connections: BTreeMap<u64, Connection>,
    next_token: u64,
    pub(super) nodes: BTreeMap<NodeId, NodeEntry>,
    pub(super) jobs: BTreeMap<JobId, Entry>,
    pub(super) ended: EndedJobs,
    pub(super) user_names: BTreeMap<u32, String>,
    /// Who asked for the job that a `Submit` in progress is about.
    pub(super) submitting: Option<super::clients::Submission>,
    /// Requests for jobs that came before the first node.
    pub(super) early: Vec<super::clients::Early>,
    next_request: u64,
    pub(super) questions: super::agents::Questions,
    wake_at: ClusterTime,
    pub(super) started: ClusterTime,
    active: ClusterTime,
    /// Set when the instance is to end: who asked, and when patience is over.
    stopping: Option<(Vec<u64>, ClusterTime)>,
    stop_sent: bool,
    actions: Vec<Action>,
}

/// Runs a controller until its instance ends.
///
/// # Errors
/// If it can't begin: the socket can't be made.
pub(crate) fn main(options: ControllerOptions) -> anyhow::Result<()> {
    let path = options.instance.controller_socket();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path)
        .with_context(|| format!("cannot listen on {}", path.display()))?;
    listener.set_nonblocking(true)?;
    let mode = if options.instance.private { 0o600 } else { 0o666 };
    std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
    let mut driver = Driver::new(options.instance)?;
    driver.poller.add(&listener, LISTENER, Interest::READ)?;
    driver.run(&listener)?;
    let _ = std::fs::remove_file(&path);
    Ok(())
}

impl Driver {
    fn new(instance: Instance) -> anyhow::Result<Self> {
        let now = ClusterTime(clock::monotonic_ns());
        Ok(Self {
            core: Core::new(Params::default(), default_classes()),
            instance,
            poller: Poller::new()?,
            connections: BTreeMap::new(),
            next_token: LISTENER + 1,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            ended: EndedJobs::default(),
            user_names: BTreeMap::new(),
            submitting: None,
            early: Vec::new(),
            next_request: 0,
            questions: super::agents::Questions::default(),
            wake_at: ClusterTime::NEVER,
            started: now,
            active: now,
            stopping: None,
            stop_sent: false,
            actions: Vec::new(),
        })
    }

    fn run(&mut self, listener: &UnixListener) -> anyhow::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.finished() {
            let deadline = self.deadline();
            self.poller.wait((deadline != ClusterTime::NEVER).then_some(deadline.0), &mut ready)?;
            for event in &ready {
                if event.token == LISTENER {
                    self.accept(listener);
                } else {
                    self.on_ready(event.token);
                }
            }
            self.on_time();
            self.settle();
        }
        Ok(())
    }

    /// The moment of an event: the controller's clock is what cluster time is.
    pub(super) fn now(&self) -> ClusterTime {
        ClusterTime(clock::monotonic_ns())
    }

    fn deadline(&self) -> ClusterTime {
        let mut deadline = self.wake_at;
        for node in self.nodes.values() {
            deadline = deadline.min(node.lost_at);
        }
        if !self.early.is_empty() {
            deadline = deadline.min(self.nodes_due());
        }
        if let Some((_, patience)) = &self.stopping {
            deadline = deadline.min(*patience);
        } else if let Some(idle) = self.idle_end() {
            deadline = deadline.min(idle);
        }
        deadline
    }

    /// When a private instance that nobody uses ends by itself.
    fn idle_end(&self) -> Option<ClusterTime> {
        let limit = self.core.params().idle_exit()?;
        let used = !self.jobs.is_empty()
            || self.connections.values().any(|c| matches!(c.kind, Kind::Client(_)));
        (self.instance.private && !used).then(|| self.active + limit)
    }

    fn on_time(&mut self) {
        let now = self.now();
        if now >= self.wake_at {
            self.wake_at = ClusterTime::NEVER;
            self.apply(&Event::Tick);
        }
        let lost: Vec<NodeId> =
            self.nodes.iter().filter(|(_, n)| n.lost_at <= now).map(|(&id, _)| id).collect();
        for node in lost {
            self.on_node_lost(node);
        }
        if now >= self.nodes_due() {
            self.take_early();
        }
        if self.stopping.is_none() && self.idle_end().is_some_and(|idle| idle <= now) {
            say!("tutti controller: idle for long enough; ending");
            self.stop(None);
        }
    }

    // ------------------------------------------------------------------ the core

    /// The one place where something is decided: an event in, actions out, carried out in order.
    pub(super) fn apply(&mut self, event: &Event) {
        let mut actions = std::mem::take(&mut self.actions);
        let now = self.now();
        self.active = now;
        self.core.apply(now, event, &mut actions);
        for action in actions.drain(..) {
            self.carry_out(action);
        }
        self.actions = actions;
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Accept { job, .. } => self.on_accept(job),
            Action::Decline { refusal, .. } => self.on_decline(&refusal),
            Action::Timetable { node, timetable } => {
                if let Some(entry) = self.nodes.get_mut(&node) {
                    entry.timetable = Some(timetable.clone());
                }
                self.tell_node(node, &ToAgent::Timetable(timetable));
            }
            Action::Launch { job, node, control, tasks } => {
                let Some(launch) = self.make_launch(job, node, control, tasks) else { return };
                self.tell_node(node, &ToAgent::Launch(launch));
                self.tell_front_of_start(job, node);
            }
            Action::Signal { job, node, ranks, signal } => {
                self.tell_node(node, &ToAgent::Signal { job, ranks, signal });
            }
            Action::Kill { job, node } => self.tell_node(node, &ToAgent::Kill { job }),
            Action::Ended { job, outcome } => self.on_ended(job, outcome),
            Action::WakeAt { at } => self.wake_at = at,
        }
    }

    fn make_launch(
        &self,
        job: JobId,
        node: NodeId,
        control: tutti_core::ControlMethod,
        tasks: Vec<tutti_core::TaskPlacement>,
    ) -> Option<Launch> {
        let entry = self.jobs.get(&job)?;
        let view = self.core.job(job, self.now())?;
        let nodes: Vec<NodeId> = view.placements.iter().map(|placed| placed.node).collect();
        let place = nodes.iter().position(|&other| other == node)?;
        Some(Launch {
            job,
            control,
            credentials: entry.credentials.clone(),
            size: view.spec.tasks,
            tasks,
            nodes: nodes.iter().map(|node| self.node_name(*node)).collect(),
            node_rank: u32::try_from(place).unwrap_or(u32::MAX),
            class: view.spec.class.to_string(),
            quantum: self.core.params().quantum(),
            processors_per_task: view.spec.processors_per_task.unwrap_or(1),
            memory_per_task_bytes: view.spec.memory_per_task_bytes,
            spec: entry.launch.clone(),
        })
    }

    fn on_ended(&mut self, job: JobId, outcome: Outcome) {
        let Some(entry) = self.jobs.remove(&job) else { return };
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes.get_mut(&node).is_some_and(|node| node.forget(job)) {
                self.tell_node(node, &ToAgent::Forget { job });
            }
        }
        let detail = entry.detail();
        let ended = Ended {
            report: report::ended_job(job, &entry, outcome),
            accepted: entry.accepted,
            at: self.now(),
            uid: entry.credentials.uid,
            outcome,
        };
        self.ended.push(ended);
        for token in entry.front.into_iter().chain(entry.waiting) {
            if let Some(Connection { kind: Kind::Client(client), .. }) =
                self.connections.get_mut(&token)
            {
                client.forget(job);
            }
            self.reply(token, &Reply::Ended { job, outcome, detail: detail.clone() });
        }
    }

    // ------------------------------------------------------------------ connections

    fn accept(&mut self, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            if self.connections.len() >= CONNECTIONS_MAX {
                say!("tutti controller: {CONNECTIONS_MAX} connections; closing one more");
                continue;
            }
            if let Err(error) = self.take_in(stream) {
                say!("tutti controller: cannot take a connection: {error}");
            }
        }
    }

    fn take_in(&mut self, stream: std::os::unix::net::UnixStream) -> std::io::Result<()> {
        let who = peer::peer_credentials(&stream)?;
        let mut link = Link::new(stream)?;
        link.greet(Role::Server);
        let token = self.next_token;
        self.next_token += 1;
        self.poller.add(&link, token, Interest::READ)?;
        let kind = Kind::Unknown;
        self.connections.insert(token, Connection { link, uid: who.uid, pid: who.pid, kind });
        self.on_ready(token);
        Ok(())
    }

    fn on_ready(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let received = connection.link.receive();
        if let Err(error) = self.read_messages(token).and(received) {
            self.close(token, &error);
        }
    }

    fn read_messages(&mut self, token: u64) -> Result<(), LinkError> {
        loop {
            let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
            match &connection.kind {
                Kind::Unknown => {
                    let Some(role) = connection.link.next_greeting()? else { return Ok(()) };
                    self.on_greeting(token, role)?;
                }
                Kind::Client(_) => match connection.link.next()? {
                    Some(request) => self.on_request(token, request),
                    None => return Ok(()),
                },
                Kind::Agent(_) => match connection.link.next()? {
                    Some(message) => self.on_agent(token, message),
                    None => return Ok(()),
                },
            }
        }
    }

    fn on_greeting(&mut self, token: u64, role: Role) -> Result<(), LinkError> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let trusted = connection.uid == 0 || connection.uid == nix::unistd::geteuid().as_raw();
        connection.kind = match role {
            Role::Client => Kind::Client(Client::default()),
            Role::Agent if trusted => Kind::Agent(None),
            Role::Agent | Role::FrontEnd | Role::Server => {
                return Err(tutti_wire::DecodeError::NotTutti.into());
            }
        };
        Ok(())
    }

    fn close(&mut self, token: u64, error: &LinkError) {
        let Some(connection) = self.connections.remove(&token) else { return };
        self.poller.remove(&connection.link);
        if !is_end(error) {
            say!(
                "tutti controller: closing a connection of process {} of user {}: {:#}",
                connection.pid,
                connection.uid,
                anyhow::Error::msg(chain(error))
            );
        }
        match connection.kind {
            Kind::Unknown => {}
            Kind::Client(client) => self.on_client_gone(client),
            Kind::Agent(node) => self.on_agent_gone(token, node),
        }
        self.active = self.now();
    }

    pub(super) fn reply(&mut self, token: u64, reply: &Reply) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.link.send(reply);
        }
    }

    fn settle(&mut self) {
        let mut broken = Vec::new();
        for (&token, connection) in &mut self.connections {
            if let Err(error) = connection.link.settle(&self.poller, token) {
                broken.push((token, error));
            } else if matches!(connection.kind, Kind::Client(_))
                && connection.link.unsent() > CLIENT_UNSENT_MAX
            {
                broken.push((token, LinkError::Closed));
            }
        }
        for (token, error) in broken {
            self.close(token, &error);
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
                self.apply(&Event::ShutDown);
            }
        }
    }

    /// Whether all is done: no job is left, and the agents have gone after they were told to.
    fn finished(&mut self) -> bool {
        let Some((askers, patience)) = &self.stopping else { return false };
        let askers = askers.clone();
        let impatient = self.now() >= *patience;
        if !self.stop_sent && (self.jobs.is_empty() || impatient) {
            self.stop_sent = true;
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.tell_node(node, &ToAgent::Stop);
            }
            self.settle();
        }
        let agents = self.connections.values().any(|c| matches!(c.kind, Kind::Agent(_)));
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

/// Whether the peer merely ended, whatever it had not read by then.
fn is_end(error: &LinkError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error {
        LinkError::Closed => true,
        LinkError::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionReset),
        LinkError::Decode(_) => false,
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
