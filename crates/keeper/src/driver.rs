//! The keeper's loop: connections, orders of the agent, and processes to be reaped.

mod door;
mod handover;

pub use handover::{check, successor};

use super::KeeperOptions;
use super::context::Context;
use super::helper::Kind;
use super::job::Job;
use super::lease_watch::Lease;
use super::leftovers;
use super::outlet::Outlet;
use super::saver;
use super::watch::{Event, Token, Watch};
use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use tracing::{info, warn};
use tutti_linux::own_processes::hide_memory;
use tutti_linux::reap::{End, ended_child, reap};
use tutti_linux::{heap, peer, subreaper};
use tutti_node::instance::{may_run_instance, supervisor};
use tutti_node::link::{Interest, Link, LinkError};
use tutti_node::platform::time::{monotonic_ns, process_id};
use tutti_node::released;
use tutti_node::signal_origin::answers_for;
use tutti_node::state_dir;
use tutti_types::{JobId, LaunchId, StepId, StepKey, TaskStatus};
use tutti_wire::Role;
use tutti_wire::attach::TerminalSize;
use tutti_wire::code::Code;
use tutti_wire::frame::pack;
use tutti_wire::keeper::{FromKeeper, HeldJob, ToKeeper};
use tutti_wire::launch::Usage;
use tutti_wire::limits::{
    BATCH_BYTES_MAX, BATCH_MAX, FRAME_BYTES_MAX, HELD_DETAILS_BYTES_MAX, HELD_JOBS_MAX,
};
use tutti_wire::pmi::Exchange;

/// How long a front end waits for the launch of its job: both are on their way at the same time.
/// And how long a connection may take to say what it is for.
const ATTACH_WAIT_NS: u64 = 10_000_000_000;

/// How long a stopping keeper waits for what it killed, and for output to be read.
const STOP_WAIT_NS: u64 = 5_000_000_000;

/// What an agent may leave unread beside what the keeper held when they met. Beyond it, the agent
/// is cut off; it hears all of it again when it comes back.
const AGENT_UNSENT_BYTES_MAX: usize = 32 << 20;

/// What of barriers' values may wait for the agent: what is said after it waits for no more than
/// that.
const EXCHANGE_AHEAD_BYTES: usize = 256 << 10;

/// How many parts of barriers' values are made in one round: others wait no longer for what they
/// asked.
const EXCHANGE_PARTS_PER_ROUND: usize = 4;

/// How long no connection is accepted when there is no descriptor for another connection.
const ACCEPT_PAUSE_NS: u64 = 500_000_000;

/// How long the end of a task waits for those of its job's others, so that agent and controller
/// hear of them together.
const ENDS_WAIT_NS: u64 = 5_000_000;

/// Children that are reaped at once; more wait until others had their turn.
const REAPED_MAX: usize = 256;

/// How long after the start of a task its program mostly runs, and the longest pause between two
/// looks whether it does: it does not while its job is suspended.
const EXPOSED_FIRST_NS: u64 = 10_000_000;
const EXPOSED_LONGEST_NS: u64 = 1_000_000_000;

/// A connection that has not said yet what it is for, or waits for the launch of its job.
struct Newcomer {
    link: Link,
    token: Token,
    uid: u32,
    outlet: Option<Outlet>,
    waits: Option<StepKey>,
    /// Whether it waits to be a viewer of the job, and not its front end.
    views: bool,
    /// How much of its output it has got already, if it may break off.
    received: Option<u64>,
    /// The size of the terminal that rank 0 is to have.
    terminal: Option<TerminalSize>,
    /// When it is turned away.
    until_ns: u64,
}

/// The socket, and connections whose purpose is not known yet.
struct Door {
    listener: UnixListener,
    listener_token: Token,
    accept_again_ns: Option<u64>,
    newcomers: BTreeMap<u64, Newcomer>,
    newcomers_so_far: u64,
}

/// How and when this keeper ends, or becomes another executable.
struct Shutdown {
    stop_at_ns: Option<u64>,
    /// The parent process: the supervisor.
    parent: Pid,
    /// The other process that told it to end.
    sent_away: Option<u32>,
    /// What to upgrade to at the end of this round.
    successor: Option<handover::Successor>,
}

pub(super) struct Keeper {
    options: KeeperOptions,
    incarnation: u64,
    /// An agent that does not read so much is cut off.
    agent_unsent_max: usize,
    pub(super) context: Context,
    /// The socket, and connections whose purpose is not known yet.
    door: Door,
    signals: SignalFd,
    agent: Option<(Link, Token, Interest)>,
    /// When reports go out that have waited for others.
    reports_due_ns: Option<u64>,
    pub(super) jobs: BTreeMap<StepKey, Job>,
    lease: Lease,
    /// How and when this keeper ends, or becomes another executable.
    end: Shutdown,
    /// Whether more children have ended than were reaped.
    reaps_on: bool,
    /// When to look whether this process can have its own OOM score again, and the pause after
    /// that.
    exposed: Option<(u64, u64)>,
}

/// Runs a keeper until it has to stop. Called by the first thread of a process: that is the one to
/// which the kernel gives orphans, and each thread reaps its own children alone.
///
/// # Errors
/// If it can't begin: another keeper answers at the socket, or the kernel refuses something.
pub fn main(options: KeeperOptions) -> anyhow::Result<()> {
    close_memory(&options)?;
    let mut keeper = Keeper::new(options)?;
    keeper.remove_leftovers();
    keeper.run()
}

/// Closes the keeper's memory to users: their processes have it until they execute their programs.
fn close_memory(options: &KeeperOptions) -> anyhow::Result<()> {
    match options.instance_uid {
        0 => hide_memory().context("cannot close the keeper's memory to users"),
        _ => Ok(()),
    }
}

impl Keeper {
    fn new(options: KeeperOptions) -> anyhow::Result<Self> {
        subreaper::become_subreaper()?;
        let listener = listen(&options.socket, options.instance_uid == 0)?;
        let context = Context::new(&options)?;
        Self::over(options, listener, context)
    }

    /// One that holds nothing yet.
    fn over(
        options: KeeperOptions,
        listener: UnixListener,
        context: Context,
    ) -> anyhow::Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Self::hearing(options, listener, context, signals)
    }

    /// The same, which hears of signals there.
    pub(super) fn hearing(
        options: KeeperOptions,
        listener: UnixListener,
        mut context: Context,
        signals: SignalFd,
    ) -> anyhow::Result<Self> {
        let listener_token = context.watches.add(&listener, Watch::Listener, Interest::READ)?;
        context.watches.add(&signals, Watch::Signals, Interest::READ)?;
        Ok(Self {
            incarnation: monotonic_ns() ^ u64::from(process_id()),
            agent_unsent_max: AGENT_UNSENT_BYTES_MAX,
            options,
            context,
            door: Door {
                listener,
                listener_token,
                accept_again_ns: None,
                newcomers: BTreeMap::new(),
                newcomers_so_far: 0,
            },
            signals,
            agent: None,
            reports_due_ns: None,
            jobs: BTreeMap::new(),
            lease: Lease::default(),
            end: Shutdown {
                stop_at_ns: None,
                parent: supervisor(),
                sent_away: None,
                successor: None,
            },
            reaps_on: false,
            exposed: None,
        })
    }

    /// Ends and removes what an earlier keeper has left.
    pub(super) fn remove_leftovers(&self) {
        leftovers::remove(&self.options);
        saver::remove_gone(&self.context.launching.images);
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let mut events = Vec::new();
        while !self.may_exit() {
            let deadline = self.deadline_ns();
            self.context.watches.wait(deadline, &mut events).context("cannot wait")?;
            self.round(&events, deadline.is_some());
            self.upgrade();
        }
        self.context.emptied.remove_all();
        saver::end_removals();
        // The next keeper binds anew; a client must not find a socket that is not served.
        let _ = fs::remove_file(&self.options.socket);
        if let Some(sender) = self.end.sent_away {
            bail!("got SIGTERM of process {sender}; another keeper is started");
        }
        Ok(())
    }

    /// Takes in what has happened, does what may be due, and writes all that follows.
    pub(super) fn round(&mut self, events: &[Event], may_be_due: bool) {
        for &event in events {
            self.on_event(event);
        }
        if may_be_due {
            self.on_time(monotonic_ns());
        }
        self.serve_requests();
        self.settle();
        while self.has_requests() {
            // Of steps that were let go.
            self.serve_requests();
            self.settle();
        }
        if self.exposed.is_none() && self.context.launching.nursery.is_exposed() {
            self.exposed = Some((monotonic_ns() + EXPOSED_FIRST_NS, EXPOSED_FIRST_NS));
        }
        // After everything that others wait for.
        if events.is_empty() {
            self.context.emptied.remove_all();
        }
        if std::mem::take(&mut self.context.launching.namespace_wanted) {
            self.context.launching.namespaces.make_ahead();
        }
        if std::mem::take(&mut self.context.is_heap_loose) {
            heap::give_back();
        }
    }

    fn on_event(&mut self, event: Event) {
        match self.context.watches.what(event) {
            None => {}
            Some(Watch::Listener) => self.on_listener(),
            Some(Watch::Signals) => self.on_signals(),
            Some(Watch::Newcomer(number)) => self.on_newcomer(number),
            Some(Watch::Agent) => self.on_agent(event),
            Some(Watch::Front(job)) => self.with(job, |job, c| job.on_front(event, c)),
            Some(Watch::Viewer(job, number)) => {
                self.with(job, |job, c| job.on_viewer(number, event, c));
            }
            Some(Watch::Output(job, index, stream)) => {
                self.with(job, |job, c| job.on_output(index, stream, c));
            }
            Some(Watch::Input(job, index)) => self.with(job, |job, c| job.on_input(index, c)),
            Some(Watch::Pmi(job, index)) => {
                self.with(job, |job, c| job.on_pmi(index, event.read, c))
            }
            Some(Watch::Writer(job)) => self.with(job, Job::on_writer),
            Some(Watch::Adopted(job, index)) => self.with(job, |job, c| job.on_adopted(index, c)),
            Some(Watch::Minder(job, index)) => self.with(job, |job, c| job.on_minder(index, c)),
            Some(Watch::Pmix(job)) => self.with(job, Job::on_pmix),
            Some(Watch::Spawner(job, number)) => {
                self.with(job, |job, c| job.on_spawner(number, c));
            }
        }
    }

    pub(super) fn with(&mut self, job: StepKey, act: impl FnOnce(&mut Job, &mut Context)) {
        if let Some(job) = self.jobs.get_mut(&job) {
            act(job, &mut self.context);
        }
    }

    /// Whether this launch of a job, and no other of it, is here.
    fn is_launched(&self, launch: LaunchId) -> bool {
        self.jobs.get(&launch.key()).is_some_and(|job| job.launch.id() == launch)
    }

    /// What is said of a launch is nothing to another of the same job.
    fn with_launch(&mut self, launch: LaunchId, act: impl FnOnce(&mut Job, &mut Context)) {
        if self.is_launched(launch) {
            self.with(launch.key(), act);
        }
    }

    // ------------------------------------------------------------------ time

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let endings = self.context.endings.values().copied();
        let waiting = self.door.newcomers.values().map(|newcomer| newcomer.until_ns);
        let lease = self.lease.due_ns().filter(|_| !self.jobs.is_empty());
        let fronts = self.jobs.values().filter_map(Job::front_due_ns);
        let writers = self.jobs.values().filter_map(|job| job.output_files.stuck_at_ns());
        let beside = self.context.beside.values().copied();
        let has_more = self.reaps_on || !self.context.mpi.unheard.is_empty();
        let at_once = (has_more || !self.context.emptied.is_empty()).then_some(0);
        let exposed = self.exposed.map(|(at, _)| at);
        let own = [
            self.end.stop_at_ns,
            self.door.accept_again_ns,
            self.reports_due_ns,
            self.context.mpi.hub.due_ns(),
            self.context.mpi.far.due_ns(),
            lease,
            at_once,
            exposed,
        ];
        let pmix = self.jobs.values().filter_map(Job::pmix_due_ns);
        let spawners = self.jobs.values().filter_map(|job| job.spawners.due_ns());
        let jobs = endings.chain(beside).chain(fronts).chain(writers).chain(pmix).chain(spawners);
        jobs.chain(waiting).chain(own.into_iter().flatten()).min()
    }

    fn on_time(&mut self, now_ns: u64) {
        if self.door.accept_again_ns.is_some_and(|at| at <= now_ns) {
            self.door.accept_again_ns = None;
            self.accept(Interest::READ);
        }
        if self.reaps_on {
            self.reap();
        }
        for (job, task) in std::mem::take(&mut self.context.mpi.unheard) {
            match task {
                Some(index) => self.with(job, |job, c| job.on_pmi(index, false, c)),
                None => self.with(job, Job::on_pmix),
            }
        }
        if let Some((_, pause)) = self.exposed.filter(|&(at, _)| at <= now_ns) {
            let pause = (2 * pause).min(EXPOSED_LONGEST_NS);
            let is_exposed = !self.context.launching.nursery.protect();
            self.exposed = is_exposed.then_some((now_ns + pause, pause));
        }
        let beside = self.context.beside.iter().filter(|&(_, &at)| at <= now_ns);
        for job in beside.map(|(&job, _)| job).collect::<Vec<_>>() {
            self.context.beside.remove(&job);
            self.with(job, Job::look_beside);
        }
        let endings = self.context.endings.iter();
        let due: Vec<_> = endings.filter(|&(_, &at)| at <= now_ns).map(|(&task, _)| task).collect();
        for (job, index) in due {
            self.context.endings.remove(&(job, index));
            self.with(job, |job, c| job.look_again(index, c));
        }
        let late = |n: &&u64| self.door.newcomers[n].until_ns <= now_ns;
        let late: Vec<u64> = self.door.newcomers.keys().filter(late).copied().collect();
        for number in late {
            self.refuse(number, "no such job is here");
        }
        for job in self.jobs.values_mut() {
            job.give_up_front(now_ns, &mut self.context);
            job.look_at_writer(now_ns, &mut self.context);
            job.look_at_pmix(now_ns, &mut self.context);
            job.spawners.look(now_ns);
        }
        let mpi = &mut self.context.mpi;
        mpi.hub.look(now_ns, &mut mpi.to_pmix);
        mpi.far.look(now_ns);
        self.lease.look(self.jobs.values(), &mut self.context);
    }

    /// The end of a round: everything that was caused in it is written, front ends first, so that
    /// output is on its way before anybody hears that the job has ended.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.context.touched) {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.settle_front(&mut self.context);
            job.settle_viewers(&mut self.context);
            if job.is_over() {
                self.let_go(id);
            }
        }
        let reports = self.take_reports();
        let Some((link, token, interest)) = &mut self.agent else {
            // They are sent again.
            while self.context.mpi.far.next(monotonic_ns()).is_some() {}
            return;
        };
        for report in &reports {
            link.send(report);
        }
        let mut sent = link.flush();
        for _ in 0..EXCHANGE_PARTS_PER_ROUND {
            if sent.is_err() || link.unsent() >= EXCHANGE_AHEAD_BYTES {
                break;
            }
            let Some(part) = next_exchange(&mut self.jobs, &mut self.context) else { break };
            link.send(&FromKeeper::Exchange(part));
            sent = link.flush();
        }
        while sent.is_ok()
            && link.unsent() < EXCHANGE_AHEAD_BYTES
            && let Some((peer, piece)) = self.context.mpi.far.next(monotonic_ns())
        {
            link.send(&FromKeeper::Piece { peer, piece });
            sent = link.flush();
        }
        // With more to send, the next round begins as soon as the agent takes it.
        let has_more = !self.context.mpi.exchanging.is_empty() || self.context.mpi.far.is_busy();
        let wanted = Interest { read: true, write: link.unsent() > 0 || has_more };
        if wanted != *interest {
            *interest = wanted;
            self.context.watches.modify(&*link, *token, wanted);
        }
        if sent.is_err() || link.unsent() > self.agent_unsent_max {
            self.drop_agent();
        }
    }

    /// What the agent is to hear now, in the order in which it happened. Where nothing is to be
    /// done about it, it may be later.
    fn take_reports(&mut self) -> Vec<FromKeeper> {
        let reports = &self.context.reports;
        if self.agent.is_some() && !reports.is_empty() && reports.iter().all(|it| self.may_wait(it))
        {
            let now_ns = monotonic_ns();
            if now_ns < *self.reports_due_ns.get_or_insert(now_ns + ENDS_WAIT_NS) {
                return Vec::new();
            }
        }
        self.reports_due_ns = None;
        std::mem::take(&mut self.context.reports)
    }

    /// Whether this report may be late: a task is through, and others of its job run on.
    fn may_wait(&self, report: &FromKeeper) -> bool {
        let FromKeeper::TaskEnded { launch, status: TaskStatus::Exited(0), detail, .. } = report
        else {
            return false;
        };
        // The next keeper knows only what was sent.
        let is_ending = self.end.stop_at_ns.is_some() || self.end.successor.is_some();
        let runs_on = self.jobs.get(&launch.key()).is_some_and(|job| !job.life.is_cleared());
        detail.is_empty() && runs_on && !is_ending
    }

    pub(super) fn may_exit(&self) -> bool {
        let Some(at) = self.end.stop_at_ns else { return false };
        let is_away =
            |job: &Job| job.readers.front.as_ref().is_some_and(|it| it.away_until_ns().is_some());
        let released = self.context.released;
        let done = |job: &Job| {
            let is_read = job.readers.are_served() || is_away(job);
            job.is_released(released) || job.life.is_cleared() && is_read
        };
        let told = self.agent.as_ref().is_none_or(|(link, ..)| link.unsent() == 0);
        (told && self.jobs.values().all(done)) || monotonic_ns() >= at
    }

    fn stop(&mut self) {
        if self.end.stop_at_ns.is_none() {
            self.end.stop_at_ns = Some(monotonic_ns() + STOP_WAIT_NS);
        }
        let released = self.context.released;
        let is_ours = |job: &&mut Job| !job.life.is_cleared() && !job.is_released(released);
        for job in self.jobs.values_mut().filter(is_ours) {
            job.kill(&mut self.context);
        }
    }

    // ------------------------------------------------------------------ processes

    fn on_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            match Signal::try_from(info.ssi_signo.cast_signed()) {
                Ok(Signal::SIGCHLD) => self.reap(),
                Ok(signal) => {
                    warn!(code = %Code::PartEnded, "got {signal}; ending all jobs");
                    if !answers_for(info.ssi_pid, self.end.parent) {
                        self.end.sent_away = Some(info.ssi_pid);
                    }
                    self.stop();
                }
                Err(_) => {}
            }
        }
    }

    /// The one place where tasks' roots are reaped, helpers, and orphans that fell to us. A program
    /// that a thread beside this one runs is reaped there.
    fn reap(&mut self) {
        self.reaps_on = false;
        for _ in 0..REAPED_MAX {
            let Some(pid) = ended_child() else { return };
            if let Some(&(job, index)) = self.context.children.roots.get(&pid) {
                self.with(job, |job, c| job.hear_last_words(index, c));
            }
            let Some((end, usage)) = reap_one(pid) else { return };
            self.on_reaped(pid, end, &usage);
        }
        self.reaps_on = true;
    }

    pub(super) fn on_reaped(&mut self, pid: i32, end: End, usage: &Usage) {
        if let Some((kind, job)) = self.context.children.helpers.remove(&pid) {
            return self.with(job, |job, c| match kind {
                Kind::Writer => job.on_writer_reaped(pid, end, c),
                Kind::Pmix => job.on_pmix_reaped(pid, end, usage, c),
                Kind::Spawner(_) => job.on_spawner_reaped(pid, (end, usage), c),
            });
        }
        if let Some((job, index)) = self.context.children.roots.remove(&pid) {
            self.with(job, |job, c| job.on_reaped(index, end, usage, c));
        }
    }

    // ------------------------------------------------------------------ the agent

    fn on_new_agent(&mut self, number: u64) {
        let Some(newcomer) = self.door.newcomers.get(&number) else { return };
        if !may_run_instance(newcomer.uid, self.options.instance_uid) {
            let why = format!("user {} may not be its agent", newcomer.uid);
            return self.drop_newcomer(number, &why);
        }
        // What the one before has ordered still counts.
        let _ = self.hear_agent();
        self.drop_agent();
        let Some(Newcomer { mut link, token, .. }) = self.door.newcomers.remove(&number) else {
            return;
        };
        link.limit(FRAME_BYTES_MAX);
        self.context.watches.rename(token, Watch::Agent);
        link.greet(Role::Server);
        let held = self.jobs.values().filter(|job| !job.life.is_forgotten()).take(HELD_JOBS_MAX);
        let mut held: Vec<HeldJob> = held.map(|job| job.held(&self.context)).collect();
        limit_details(&mut held);
        let parts = held.into_iter().flat_map(HeldJob::into_parts).collect();
        for parts in pack(parts, BATCH_BYTES_MAX, BATCH_MAX) {
            link.send(&FromKeeper::Held(parts));
        }
        let (incarnation, tasks_max) = (self.incarnation, self.context.launching.room.tasks_max());
        link.send(&FromKeeper::Welcome { incarnation, tasks_max });
        let has_lost = |job: &&Job| !job.output_files.lost().is_empty();
        for job in self.jobs.values().filter(has_lost).filter(|job| !job.life.is_forgotten()) {
            let (launch, what) = (job.launch.id(), job.output_files.lost().to_owned());
            link.send(&FromKeeper::OutputLost { launch, what });
        }
        // However long that is, it is no reason to cut the agent off: it would be the same the next
        // time.
        self.agent_unsent_max = link.unsent() + AGENT_UNSENT_BYTES_MAX;
        // The agent asks for what was stored before barriers, once it is known what the controller
        // has.
        self.context.mpi.exchanging.clear();
        self.jobs.values_mut().for_each(Job::hold_exchanges);
        // All of it is in the welcome, and in what follows it.
        self.context.reports.clear();
        self.context.agent_connected = true;
        self.agent = Some((link, token, Interest::READ));
        self.take_orders();
    }

    fn drop_agent(&mut self) {
        if let Some((link, token, _)) = self.agent.take() {
            self.context.watches.remove(&link, token);
            self.context.agent_connected = false;
        }
    }

    fn on_agent(&mut self, event: Event) {
        if event.read && self.hear_agent().is_err() {
            self.drop_agent();
        }
    }

    fn hear_agent(&mut self) -> Result<(), LinkError> {
        let Some((link, ..)) = &mut self.agent else { return Ok(()) };
        let received = link.receive();
        self.take_orders();
        received
    }

    fn take_orders(&mut self) {
        while let Some((link, ..)) = &mut self.agent {
            match link.next::<ToKeeper>() {
                Ok(Some(order)) => self.on_order(order),
                Ok(None) => return,
                Err(error) => {
                    warn!(code = %Code::NotUnderstood, "dropped the agent: {error}");
                    self.drop_agent();
                }
            }
        }
    }

    /// Keeps the images of these jobs and of those that are here, and removes all others.
    fn keep_images(&self, jobs: Vec<JobId>, shared: Vec<(JobId, u64)>) {
        let mut kept: BTreeSet<JobId> = jobs.into_iter().collect();
        let here = self.jobs.iter().filter(|(_, job)| !job.life.is_cleared());
        kept.extend(here.map(|(key, _)| key.job));
        let shared = shared.into_iter().collect();
        saver::keep_images(&self.context.launching.images, &kept, &shared);
    }

    fn on_order(&mut self, order: ToKeeper) {
        match order {
            ToKeeper::Launch { launch, cgroup } => {
                let id = launch.id().key();
                self.remove_if_over(launch.id());
                self.context.emptied.remove_all();
                if let Some(known) = self.jobs.get(&id) {
                    let (launch, known) = (launch.id(), known.launch.id());
                    info!("job {launch} is not launched: {known} is known");
                    if launch != known {
                        let usage = Usage::unknown();
                        self.context.reports.push(FromKeeper::Cleared { launch, usage });
                    }
                    return;
                }
                if self.end.stop_at_ns.is_some() {
                    info!("job {id} is not launched: we stop");
                    return;
                }
                let job = match self.jobs.get(&StepKey::first(id.job)) {
                    Some(first) if id.step != StepId::FIRST => {
                        Job::further(launch, cgroup, first, &mut self.context)
                    }
                    _ => Job::new(launch, cgroup, &mut self.context),
                };
                self.jobs.insert(id, job);
                self.on_launched(id);
            }
            ToKeeper::Kill { launch } if self.is_launched(launch) => {
                self.with(launch.key(), Job::kill);
                self.kill_steps(launch);
            }
            // The asker waits for an answer.
            ToKeeper::Kill { launch } => {
                self.context.reports.push(FromKeeper::Cleared { launch, usage: Usage::default() });
            }
            ToKeeper::Signal { launch, ranks, signal } => {
                self.with_launch(launch, |job, c| job.signal(ranks, signal, c));
            }
            ToKeeper::SignalRoots { launch, signal } => {
                self.with_launch(launch, |job, _| job.signal_roots(signal));
            }
            ToKeeper::RanksFailed { launch, ranks } => {
                self.with_launch(launch, |job, c| job.name_failed(&ranks, c));
            }
            ToKeeper::Piece { peer, piece } => self.on_piece(peer, piece.as_ref()),
            ToKeeper::KeepImages { jobs, shared } => self.keep_images(jobs, shared),
            ToKeeper::Stopped { launch, parts } => {
                self.with_launch(launch, |job, _| job.stopped = parts);
            }
            ToKeeper::Exchanged(exchange) => {
                self.with_launch(exchange.launch, |job, c| job.on_exchanged(&exchange, c));
            }
            ToKeeper::SendExchanges { launch } => self.with_launch(launch, Job::send_exchanges),
            ToKeeper::Forget { launch } => self.with_launch(launch, |job, c| {
                job.life.forget();
                c.touched.insert(job.key());
                match job.life.is_cleared() {
                    // Its output may wait for a front end, but other nodes need nothing of it any
                    // more.
                    true => job.drop_pmi(c),
                    false => job.kill(c),
                }
            }),
            ToKeeper::Lease { until_ns } => self.lease.renew(until_ns),
            ToKeeper::SignOfLife => self.context.reports.push(FromKeeper::Alive),
            ToKeeper::AskCarried => {
                let carried = FromKeeper::Carried(self.context.carried);
                self.context.reports.push(carried);
            }
            ToKeeper::Stop => self.stop(),
            ToKeeper::Release { until } => self.release(until),
        }
    }

    /// Jobs up to this number are released, for the next keeper too.
    fn release(&mut self, until: JobId) {
        if until <= self.context.released {
            return;
        }
        self.context.released = until;
        let file = &self.options.released;
        if let Err(error) = released::write(file, until) {
            warn!(code = %Code::System, "cannot write {}: {error}", file.display());
        }
    }

    /// What a job starts with is killed, and its further steps with it.
    fn kill_steps(&mut self, first: LaunchId) {
        if first.is_further() {
            return;
        }
        let is_its = |job: &&mut Job| job.launch.job == first.job && job.launch.id().is_further();
        for step in self.jobs.values_mut().filter(is_its).filter(|step| !step.life.is_cleared()) {
            step.kill(&mut self.context);
        }
    }

    /// A job that is queued again may be launched in the same breath in which it was forgotten.
    /// Then no writer is left that could take the rest of the output of the launch before.
    fn remove_if_over(&mut self, launch: LaunchId) {
        let (id, number) = (launch.key(), launch.number);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !job.is_over() && !job.is_superseded_by(number) {
            return;
        }
        job.settle_front(&mut self.context);
        self.let_go(id);
    }

    /// Nothing is to be known of a job any more. If it is launched once more, it has other tasks:
    /// none of them is to be looked at because one of these was killed.
    fn let_go(&mut self, id: StepKey) {
        if let Some(mut job) = self.jobs.remove(&id) {
            job.drop_viewers(&mut self.context);
            job.detach(&mut self.context);
            job.drop_pmi(&mut self.context);
            job.end_pmix_server(&mut self.context);
            job.spawners.drop_all(&mut self.context);
        }
        self.context.endings.retain(|&(job, _), _| job != id);
        self.context.beside.remove(&id);
    }

    fn on_launched(&mut self, id: StepKey) {
        self.with(id, |job, c| {
            job.start_pmix(c);
            if !job.has_front_end() || job.tasks.is_empty() {
                job.start(c);
            } else {
                job.await_writer();
                job.start_writer(c);
            }
        });
        let waits = |n: &&u64| self.door.newcomers[n].waits == Some(id);
        let waiting: Vec<u64> = self.door.newcomers.keys().filter(waits).copied().collect();
        for number in waiting {
            match self.door.newcomers.get(&number).is_some_and(|it| it.views) {
                true => self.view(number, id),
                false => self.attach(number, id),
            }
        }
    }
}

/// The next part of what is to be sent of barriers, of each job in turn.
fn next_exchange(jobs: &mut BTreeMap<StepKey, Job>, context: &mut Context) -> Option<Exchange> {
    while let Some(id) = context.mpi.exchanging.pop_front() {
        if let Some(part) = jobs.get_mut(&id).and_then(Job::next_exchange) {
            context.mpi.exchanging.push_back(id);
            return Some(part);
        }
    }
    None
}

/// Leaves out texts that a frame has no room for.
fn limit_details(held: &mut [HeldJob]) {
    let mut bytes = 0;
    for (_, _, detail, _) in held.iter_mut().flat_map(|job| &mut job.ended) {
        bytes += detail.len();
        if bytes > HELD_DETAILS_BYTES_MAX {
            detail.clear();
        }
    }
}

/// Reaps a child that has ended, with what it and those that it waited for have used.
fn reap_one(pid: i32) -> Option<(End, Usage)> {
    let reaped = reap(pid).ok()??;
    let end = End::of(reaped.status)?;
    let usage = Usage {
        user_us: reaped.user_us,
        system_us: reaped.system_us,
        memory_peak_bytes: of_its_own(reaped.memory_peak_bytes),
        read_bytes: reaped.read_bytes,
        written_bytes: reaped.written_bytes,
        ..Usage::unknown()
    };
    Some((end, usage))
}

/// A process begins with the memory of its maker, and the kernel counts that for it too: nothing is
/// known of one that never had more.
fn of_its_own(memory_peak_bytes: u64) -> u64 {
    let ours = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
    match memory_peak_bytes > ours.unsigned_abs() << 10 {
        true => memory_peak_bytes,
        false => 0,
    }
}

/// Binds the socket; one that is left over from a keeper that died is replaced. It may still be
/// open in children of that one which are frozen and have not come to their programs.
fn listen(path: &Path, for_all: bool) -> anyhow::Result<UnixListener> {
    if UnixStream::connect(path).is_ok_and(|stream| peer::peer_lives(&stream)) {
        bail!("another keeper answers at {}", path.display());
    }
    state_dir::listen(path, for_all)
}
