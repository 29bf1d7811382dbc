//! The switch thread: at the end of each slot, suspends what leaves and then resumes what comes.
//!
//! What happens at a switch, in order:
//! 1. `due`: the slot ends, by the node's clock. The thread sleeps until exactly then.
//! 2. `began`: it is awake. The timetable says by arithmetic which slot this is, and its candidates
//!    say which jobs run (see [`tutti_types::timetable`]).
//! 3. Every job that leaves is asked to stop: one write to the freezer of its cgroup each, all
//!    writes before the first check; one that is switched by signals gets SIGSTOP from the top
//!    down, in the order of the parameter `traversal`. Its own processes that have stopped already
//!    get none, and stay stopped when it comes again.
//! 4. `stopped`: all of them have stopped, as the kernel confirms it; until then the thread gives
//!    way to them ([`tutti_linux::rt::give_way`]), then naps. Where others' processes have their
//!    processors, they are hurried ([`tutti_linux::cgroup::Haste`]). All that leave share one
//!    deadline. A straggler then is mostly a process that sleeps in the kernel and uses no
//!    processor: it stays asked to stop, its job is named in the record and asked again from time
//!    to time ([`Late`]), and the switch goes on. A job that is switched by priority is not stopped
//!    but makes way, with one write, as long as it has turns at all; without any, it is frozen.
//!    Then the devices that jobs have in turns are closed to those that have left, and opened to
//!    those that come ([`gates`]).
//! 5. Every job that comes is resumed.
//! 6. `resumed`: done; the record is written, and the thread sleeps until the next slot ends.
//!
//! The thread has the highest real-time priority that it is permitted, and tasks are limited to
//! less ([`rt::task_priority_max`]). Without it a machine full of busy tasks delays a switch of
//! fifteen processes from 0.2 to some 20 ms.

use super::clock::ClusterClock;
use super::lease::Lease;
use super::subtree_control::Name;
use super::suspend::{Grip, Late, Learns, Member, State, walk};
use super::vacate::{Herald, Heralds, Turn};
use super::waker::Bell;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use tutti_linux::device_control::Gate;
use tutti_linux::rt;
use tutti_linux::signal::{Root, Walk};
use tutti_node::platform::groups::{Cgroup, Haste, freeze_all};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{ClusterTime, JobId, LaunchId, Timetable};
use tutti_wire::report::{CandidateState, SwitchRecord, TimetableReport};
use tutti_wire::tree::Settings;

mod account;
mod gates;
mod moments;
mod service;
#[cfg(feature = "simulation")]
mod stepped;
#[cfg(test)]
mod tests;
mod timetables;

use account::Account;
pub(crate) use account::Report;
use moments::Moments;
use timetables::Timetables;

/// What the main thread tells the switch thread.
enum Order {
    /// A job is here from now on: without a process yet, or with processes of an earlier agent's
    /// time. Answered when its processes, present and future, are as its turn demands.
    Add {
        launch: LaunchId,
        grip: Grip,
        begun: Begun,
        switches: Arc<AtomicU64>,
        done: SyncSender<()>,
    },
    /// A task of a job without a cgroup has started.
    Root { job: JobId, root: Root },
    /// These processes of a job, named by number and start time, stay stopped in every turn: a user
    /// has suspended them. In place of those named before; answered when the others go on, if it is
    /// the job's turn.
    Spare { job: JobId, stopped: BTreeSet<Name>, learns: Learns, done: SyncSender<()> },
    /// A user sends these processes of a job that is switched by signals one that stops them.
    Halt { job: JobId, names: BTreeSet<Name>, signal: i32 },
    /// These processes of a job that is switched by signals were to be stopped as a part of it, and
    /// are not.
    Undo { job: JobId, names: BTreeSet<Name> },
    /// These processes of a job that is switched by signals go on when it is its turn, or all: also
    /// those that it has stopped itself.
    GoOn { job: JobId, names: Option<BTreeSet<Name>> },
    /// A job that is about to be added has its devices behind a gate.
    Gate { job: JobId, gate: Gate },
    /// A job is gone.
    Remove { job: JobId },
    /// A job runs from now on, whatever the timetable says.
    Release { job: JobId },
    /// From now on the thread says when a job runs and when it leaves, or no more.
    Watch { job: JobId, herald: Option<Herald> },
    /// The node's part of the matrix.
    Timetable(Timetable),
    /// Another process may have suspended jobs: all are, from now on, until it is their turn.
    Lapse { done: SyncSender<()> },
    /// Timetables come from another controller, which counts their versions from the beginning.
    Joined,
    /// How to switch.
    Settings(Settings),
    /// Which timetable is in force.
    TellTimetable { answer: SyncSender<TimetableReport> },
    /// What happened so far.
    Report { count: usize, answer: SyncSender<Report> },
    /// Thaw everything and end: the jobs are being killed.
    Stop,
}

/// Whether a job that is added has processes.
enum Begun {
    /// It has none yet.
    Not,
    /// Under an earlier agent; of these, users have suspended some.
    Before { stopped: BTreeSet<Name> },
}

/// The main thread's end.
#[derive(Debug)]
pub(crate) struct Switch {
    orders: Sender<Order>,
    bell: Bell,
    /// Whether the thread may sleep over an order.
    unheard: bool,
    #[cfg(feature = "simulation")]
    stepped: Option<stepped::Stepped>,
}

impl Switch {
    /// Starts the switch thread.
    pub(super) fn start(
        settings: Settings,
        clock: ClusterClock,
        lease: Lease,
    ) -> std::io::Result<Self> {
        let bell = Bell::new()?;
        let (orders, inbox) = channel();
        let thread_bell = bell.clone();
        std::thread::Builder::new().name("switch".into()).stack_size(256 << 10).spawn(
            move || {
                let realtime = match rt::become_highest() {
                    Ok(()) => "yes".to_owned(),
                    Err(error) => format!("no: {error}"),
                };
                // Best effort: without the privilege a page fault may delay a switch, nothing more.
                let _ = rt::lock_memory();
                let thread = Thread::new(inbox, thread_bell, settings, (clock, lease), realtime);
                thread.run();
            },
        )?;
        Ok(Self {
            orders,
            bell,
            unheard: false,
            #[cfg(feature = "simulation")]
            stepped: None,
        })
    }

    fn order(&self, order: Order) {
        // The thread ends only after `Stop`; what is said to it then is of no interest.
        let _ = self.orders.send(order);
        self.ring();
    }

    fn ring(&self) {
        #[cfg(feature = "simulation")]
        if let Some(stepped) = &self.stepped {
            return stepped.ring();
        }
        self.bell.ring();
    }

    /// Waits until the thread has done what it was told.
    fn await_thread(&self, done: &Receiver<()>) {
        #[cfg(feature = "simulation")]
        if let Some(stepped) = &self.stepped {
            stepped.hear();
        }
        // The thread ends only after `Stop`.
        let _ = done.recv();
    }

    /// Adds a job that has no process yet. One that is held goes on when it is its turn, and no
    /// thread need wait for the thread before processes are born into it. Processes that are born
    /// running are waited for: others may have to stop first.
    pub(crate) fn add(&self, launch: LaunchId, grip: Grip, is_held: bool) -> Arc<AtomicU64> {
        let (switches, added) = self.add_either(launch, grip, Begun::Not);
        if !is_held {
            self.await_thread(&added);
        }
        switches
    }

    /// Adds a job with processes, started under an earlier agent, of which users have suspended
    /// some.
    pub(super) fn adopt(
        &self,
        launch: LaunchId,
        grip: Grip,
        stopped: BTreeSet<Name>,
    ) -> Arc<AtomicU64> {
        let (switches, added) = self.add_either(launch, grip, Begun::Before { stopped });
        self.await_thread(&added);
        switches
    }

    /// Gives the count of the job's switches, which the thread goes on counting, and the thread's
    /// word that it is done.
    fn add_either(
        &self,
        launch: LaunchId,
        grip: Grip,
        begun: Begun,
    ) -> (Arc<AtomicU64>, Receiver<()>) {
        let (done, added) = sync_channel(1);
        let switches = Arc::new(AtomicU64::new(0));
        self.order(Order::Add { launch, grip, begun, switches: Arc::clone(&switches), done });
        (switches, added)
    }

    /// Hands over the gate of a job that is added next, if it has one. The thread hears of both
    /// together.
    pub(super) fn gate(&self, job: JobId, gate: Option<Gate>) {
        // As for other orders.
        gate.map(|gate| self.orders.send(Order::Gate { job, gate }));
    }

    /// Tells of the root of a task of a job without a cgroup.
    pub(crate) fn root(&self, job: JobId, root: Root) {
        self.order(Order::Root { job, root });
    }

    /// Says which processes of a job are to stay stopped, and returns when the others go on, if it
    /// is the job's turn. Matters for jobs that are switched by signals only.
    ///
    /// Where it `learns`, what has stopped of those that are new was stopped by the job itself.
    pub(super) fn spare(&self, job: JobId, stopped: BTreeSet<Name>, learns: Learns) {
        let (done, wait) = sync_channel(1);
        self.order(Order::Spare { job, stopped, learns, done });
        self.await_thread(&wait);
    }

    /// Stops these processes of a job that is switched by signals, at once or when it is its turn,
    /// until a user continues them.
    pub(super) fn halt(&self, job: JobId, names: BTreeSet<Name>, signal: i32) {
        self.order(Order::Halt { job, names, signal });
    }

    /// Continues processes that could not all be stopped as a part of a job that is switched by
    /// signals, if it is its turn.
    pub(super) fn undo(&self, job: JobId, names: BTreeSet<Name>) {
        self.order(Order::Undo { job, names });
    }

    /// Continues these processes of a job that is switched by signals, or all, as soon as it is its
    /// turn.
    pub(super) fn go_on(&self, job: JobId, names: Option<BTreeSet<Name>>) {
        self.order(Order::GoOn { job, names });
    }

    /// Removes a job that is gone; its processors go to the next candidates at once.
    pub(crate) fn remove(&self, job: JobId) {
        self.order(Order::Remove { job });
    }

    /// Has a job run, and lets go of it: no timetable names it any more.
    pub(super) fn release(&self, job: JobId) {
        self.order(Order::Release { job });
    }

    /// For another thread of the agent.
    pub(super) fn watcher(&self) -> Watcher {
        Watcher { orders: self.orders.clone(), bell: self.bell.clone() }
    }

    /// Hands over a timetable. The thread hears of it with the next order, or when it is woken:
    /// mostly there is a job to be added right behind.
    pub(crate) fn timetable(&mut self, timetable: Timetable) {
        // As above.
        let _ = self.orders.send(Order::Timetable(timetable));
        self.unheard = true;
    }

    /// Wakes the thread if it has not heard all yet.
    pub(crate) fn wake(&mut self) {
        if std::mem::take(&mut self.unheard) {
            self.ring();
        }
    }

    /// Tells that the next timetable comes from a controller that may be another than before. Jobs
    /// go on by the old one until it comes, unless the lease is over: then none does.
    pub(crate) fn joined(&self) {
        self.order(Order::Joined);
    }

    /// Tells that jobs which run by the timetable may have been suspended all the same. Returns
    /// when they are; a job with turns goes on at once.
    pub(crate) fn lapse(&self) {
        let (done, wait) = sync_channel(1);
        self.order(Order::Lapse { done });
        self.await_thread(&wait);
    }

    /// Has the thread look at the clock again.
    pub(crate) fn look_again(&self) {
        self.ring();
    }

    /// Changes the settings.
    pub(crate) fn settings(&self, settings: Settings) {
        self.order(Order::Settings(settings));
    }

    /// Gives the thread an order that it answers; `None`: it does not within this time.
    fn ask<T>(&self, order: impl FnOnce(SyncSender<T>) -> Order, patience: Duration) -> Option<T> {
        let (answer, wait) = sync_channel(1);
        self.order(order(answer));
        #[cfg(feature = "simulation")]
        if let Some(stepped) = &self.stepped {
            stepped.hear();
        }
        wait.recv_timeout(patience).ok()
    }

    /// Asks for the record.
    pub(crate) fn report(&self, count: usize) -> Report {
        self.ask(|answer| Order::Report { count, answer }, PATIENCE).unwrap_or_default()
    }

    /// How long the thread takes to answer; `None`: it does not within a quarter of a second, which
    /// is less than others wait for the agent.
    pub(crate) fn answers_after_ns(&self) -> Option<u64> {
        let asked_ns = monotonic_ns();
        self.ask(|answer| Order::Report { count: 0, answer }, SIGN_OF_LIFE)?;
        Some(monotonic_ns().saturating_sub(asked_ns))
    }

    /// Asks for the timetable in force, without the node's name.
    pub(crate) fn timetable_report(&self) -> TimetableReport {
        self.ask(|answer| Order::TellTimetable { answer }, PATIENCE).unwrap_or_default()
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.order(Order::Stop);
    }
}

/// For another thread, which learns when jobs run and when they leave.
#[derive(Debug)]
pub(super) struct Watcher {
    orders: Sender<Order>,
    bell: Bell,
}

impl Watcher {
    /// Watches a job, or no more.
    pub(super) fn watch(&self, job: JobId, herald: Option<Herald>) {
        // As for other orders.
        let _ = self.orders.send(Order::Watch { job, herald });
        self.bell.ring();
    }
}

struct Thread {
    inbox: Receiver<Order>,
    bell: Bell,
    moments: Moments,
    /// Until when jobs may run.
    lease: Lease,
    settings: Settings,
    timetables: Timetables,
    members: BTreeMap<JobId, Member>,
    haste: Haste,
    gates: gates::Gates,
    /// The jobs whose processes get notice.
    heralds: Heralds,
    account: Account,
    stopping: bool,
}

/// What a switch is about to do: which jobs are to run less than before, and which more.
#[derive(Default)]
struct Change {
    leave: Vec<(JobId, State)>,
    come: Vec<(JobId, State)>,
}

impl Thread {
    fn new(
        inbox: Receiver<Order>,
        bell: Bell,
        settings: Settings,
        (clock, lease): (ClusterClock, Lease),
        realtime: String,
    ) -> Self {
        Self {
            inbox,
            bell,
            moments: Moments::new(clock),
            lease,
            settings,
            timetables: Timetables::default(),
            members: BTreeMap::new(),
            haste: Haste::default(),
            gates: gates::Gates::default(),
            heralds: Heralds::default(),
            account: Account::new(realtime),
            stopping: false,
        }
    }

    fn run(mut self) {
        while !self.stopping {
            let until_ns = self.look();
            self.bell.wait_until(until_ns);
            self.hear();
        }
    }

    /// Makes the node as it is to be now; gives until when nothing need be done, by the monotonic
    /// clock.
    fn look(&mut self) -> u64 {
        let next = self.switch();
        self.moments.look_at(next);
        self.foretell();
        self.ask_again(self.moments.next_ns().min(self.lease.look_again_ns()))
    }

    /// Asks jobs once more to stop that had not when they left, if it is time; gives when something
    /// is to be done next, which else would be `until_ns`.
    fn ask_again(&mut self, until_ns: u64) -> u64 {
        let mut next_ns = until_ns;
        for member in self.members.values_mut() {
            let Some(late) = member.late else { continue };
            let now_ns = monotonic_ns();
            if late.at_ns > now_ns {
                next_ns = next_ns.min(late.at_ns);
                continue;
            }
            // The next switch must not be late by it.
            let part = Duration::from_nanos(until_ns.saturating_sub(now_ns) / 4);
            let walk = Walk { deadline: part.min(ASK_AGAIN), ..walk(self.settings) };
            let has_stopped = member.suspend(&walk, Learns::No);
            member.late = (!has_stopped).then(|| Late::after(Some(late), monotonic_ns()));
            next_ns = member.late.map_or(next_ns, |late| next_ns.min(late.at_ns));
        }
        next_ns
    }

    /// Does what it was told meanwhile.
    fn hear(&mut self) {
        self.moments.wake();
        while let Ok(order) = self.inbox.try_recv() {
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Add { launch, grip, begun, switches, done } => {
                self.add(launch, grip, begun, switches);
                // No thread may wait.
                let _ = done.send(());
            }
            Order::Root { job, root } => {
                if let Some(member) = self.members.get_mut(&job) {
                    if let Grip::SignalTrees(roots) = &mut member.grip {
                        roots.push(root);
                    }
                    // Without a group a task is born running, in every turn.
                    if member.state != State::Runs && member.grip.is_by_signals() {
                        halt(member, self.settings);
                    }
                }
            }
            Order::Spare { job, stopped, learns, done } => {
                if let Some(member) = self.members.get_mut(&job) {
                    member.spare(stopped, learns);
                }
                let _ = done.send(());
            }
            Order::Halt { job, names, signal } => {
                if let Some(member) = self.members.get_mut(&job) {
                    member.halt(names, signal);
                }
            }
            Order::Undo { job, names } => {
                if let Some(member) = self.members.get(&job) {
                    member.let_go_on(&names);
                }
            }
            Order::GoOn { job, names } => {
                if let Some(member) = self.members.get_mut(&job) {
                    member.go_on(names.as_ref(), self.settings);
                }
            }
            Order::Gate { job, gate } => self.gates.add(job, gate),
            Order::Release { job } => {
                let settings = self.settings;
                if let Some(mut member) = self.members.remove(&job) {
                    member.state = State::Runs;
                    self.gates.set(job, State::Runs);
                    member.go_on(None, settings);
                    member.resume(settings);
                }
                self.gates.remove(job);
            }
            Order::Remove { job } => {
                self.members.remove(&job);
                self.gates.remove(job);
            }
            Order::Watch { job, herald } => self.heralds.watch(job, herald),
            Order::Timetable(timetable) => self.take_timetable(timetable),
            Order::Joined => self.timetables.begin_anew(self.lease.holds()),
            Order::Lapse { done } => {
                self.suspend_every_job();
                let _ = done.send(());
            }
            Order::Settings(settings) => self.settings = settings,
            Order::TellTimetable { answer } => {
                let _ = answer.send(self.tell_timetable());
            }
            Order::Report { count, answer } => {
                let _ = answer.send(self.account.report(count));
            }
            Order::Stop => self.stopping = true,
        }
    }

    /// A job without processes yet is put into its state with one write and no record: nothing is
    /// switched. One with processes (of an earlier agent) is switched like any other.
    fn add(&mut self, launch: LaunchId, grip: Grip, begun: Begun, switches: Arc<AtomicU64>) {
        let fresh = matches!(begun, Begun::Not);
        let state = if fresh { State::Runs } else { grip.state() };
        let LaunchId { job, number, .. } = launch;
        let mut member = Member::new(number, grip, state, switches);
        if let Begun::Before { stopped } = begun {
            member.stopped = stopped;
            if member.grip.is_by_signals() {
                // Whether they are stopped, and by which process, the kernel does not say. So all
                // are, and go on in their turn.
                halt(&mut member, self.settings);
                member.state = State::Stands;
            }
        }
        self.members.insert(job, member);
        if fresh {
            let now = self.moments.now();
            self.timetables.activate(now);
            let running = self.running_at(now);
            let wanted = self.members.get(&job).map(|member| self.wanted(job, member, &running));
            if let (Some(wanted), Some(member)) = (wanted, self.members.get_mut(&job)) {
                member.state = wanted;
            }
        }
        // A job that makes way for it stops first.
        self.switch();
        if let Some(member) = self.members.get(&job) {
            self.gates.set(job, member.state);
        }
        if let Some(member) = self.members.get_mut(&job).filter(|_| fresh) {
            member.be_born(self.settings);
        }
    }

    fn take_timetable(&mut self, timetable: Timetable) {
        if self.timetables.take(timetable, self.moments.by_clock()) {
            self.account.note_late();
        }
    }

    /// The timetable in force, as far as it fits into a report.
    fn tell_timetable(&mut self) -> TimetableReport {
        let now = self.moments.now();
        self.timetables.activate(now);
        let (members, lease_holds) = (&self.members, self.lease.holds());
        self.timetables.report(now, lease_holds, |launch| candidate_state(members, launch))
    }

    /// Makes the node as the timetable wants it now, and says when it must be looked at again.
    fn switch(&mut self) -> ClusterTime {
        let now = self.moments.now();
        self.timetables.activate(now);
        let running = self.running_at(now);
        let next = self.timetables.next_change(now);
        let change = self.change(&running);
        if !change.leave.is_empty() || !change.come.is_empty() {
            self.carry_out(change, self.moments.due(now), now);
        }
        self.timetables.note_running(now, &running);
        next
    }

    /// Says what has changed for watched jobs, when nothing else is left to do.
    fn foretell(&mut self) {
        if self.heralds.is_empty() {
            return;
        }
        let (next, members) = (self.moments.next(), &self.members);
        let then = self.timetables.foresee(next, |launch| is_present(members, launch));
        let latest = self.moments.latest();
        let since = self.timetables.position(latest).map_or(latest, |it| it.begins);
        self.heralds.tell(|job| {
            let member = members.get(&job)?;
            if member.state != State::Runs {
                return Some((member.number, Turn::Stands));
            }
            let leaves = next != ClusterTime::NEVER && !then.iter().any(|it| it.job == job);
            Some((member.number, Turn::Runs { since, leaves: leaves.then_some(next) }))
        });
    }

    fn running_at(&self, now: ClusterTime) -> Vec<JobId> {
        if !self.lease.holds() {
            return Vec::new();
        }
        self.timetables.running(now, |launch| is_present(&self.members, launch))
    }

    /// Running jobs stop; the next look at the timetable says which go on.
    fn suspend_every_job(&mut self) {
        let change = self.change(&[]);
        if !change.leave.is_empty() {
            let now = self.moments.now();
            self.carry_out(change, now, now);
        }
    }

    /// A job that has turns, but not this one, need not be stopped if it makes way; unless it may
    /// run elsewhere by now.
    fn wanted(&self, job: JobId, member: &Member, running: &[JobId]) -> State {
        if running.contains(&job) {
            return State::Runs;
        }
        let launch = LaunchId { number: member.number, ..LaunchId::first(job) };
        match member.grip {
            Grip::Weigh(_) if self.lease.holds() && self.timetables.names(launch) => State::Yields,
            _ => State::Stands,
        }
    }

    fn change(&self, running: &[JobId]) -> Change {
        let mut change = Change::default();
        for (&job, member) in &self.members {
            let wanted = self.wanted(job, member, running);
            match wanted.cmp(&member.state) {
                Less => change.leave.push((job, wanted)),
                Greater => change.come.push((job, wanted)),
                Equal => {}
            }
        }
        change
    }

    fn carry_out(&mut self, change: Change, due: ClusterTime, began: ClusterTime) {
        let running = self.suspend_all(&change.leave);
        let stopped = self.moments.by_clock().0;
        let devices_ns = self.gates.hand_over(&change.leave, &change.come);
        for &(job, state) in &change.come {
            if let Some(member) = self.members.get_mut(&job) {
                member.state = state;
                member.resume(self.settings);
                member.switches.fetch_add(1, Ordering::Relaxed);
            }
        }
        let resumed = self.moments.by_clock().0;
        let yields = |(job, state): &(JobId, State)| (*state == State::Yields).then_some(*job);
        let ids = |jobs: &[(JobId, State)]| jobs.iter().map(|&(job, _)| job).collect();
        self.account.note_switch(SwitchRecord {
            due_ns: due.0,
            began_ns: began.0,
            stopped_ns: stopped,
            resumed_ns: resumed,
            devices_ns,
            left: ids(&change.leave),
            yields: change.leave.iter().filter_map(yields).collect(),
            came: ids(&change.come),
            stragglers: u32::try_from(running.len()).unwrap_or(u32::MAX),
            running,
        });
    }

    /// Suspends jobs and waits until they have stopped, or for the time that one may take; gives
    /// those that had not stopped then.
    fn suspend_all(&mut self, leave: &[(JobId, State)]) -> Vec<JobId> {
        let deadline = Instant::now() + Duration::from_nanos(self.settings.freeze_deadline.0);
        let mut groups = Vec::new();
        let mut by_signals = Vec::new();
        for (job, state) in leave {
            let Some(member) = self.members.get_mut(job) else { continue };
            member.state = *state;
            member.switches.fetch_add(1, Ordering::Relaxed);
            match &member.grip {
                Grip::Weigh(group) if *state == State::Yields => {
                    // What can't be written to has ended; the keeper will say so.
                    let _ = group.set_yielding(true);
                }
                Grip::Freeze(group) | Grip::Weigh(group) => groups.push((*job, Arc::clone(group))),
                Grip::SignalGroup(_) | Grip::SignalTrees(_) => by_signals.push(*job),
            }
        }
        let mut running = Vec::new();
        if !by_signals.is_empty() {
            // These stop meanwhile.
            groups.iter().for_each(|(_, group)| drop(group.request_freeze()));
            running = self.signal_all(&by_signals, deadline);
        }
        if !groups.is_empty() {
            let asked: Vec<&Cgroup> = groups.iter().map(|(_, group)| group.as_ref()).collect();
            let late = freeze_all(&asked, &mut self.haste, deadline);
            running.extend(late.into_iter().map(|index| groups[index].0));
        }
        let now_ns = monotonic_ns();
        for job in &running {
            if let Some(member) = self.members.get_mut(job) {
                member.late = Some(Late::after(None, now_ns));
            }
        }
        running
    }

    /// Suspends jobs by signals, one after the other. Each has an equal part of the time that is
    /// left, so that one that does not stop leaves time for those after it.
    fn signal_all(&mut self, jobs: &[JobId], deadline: Instant) -> Vec<JobId> {
        let mut running = Vec::new();
        for (index, job) in jobs.iter().enumerate() {
            let Some(member) = self.members.get_mut(job) else { continue };
            let left = deadline.saturating_duration_since(Instant::now());
            let parts = u32::try_from(jobs.len() - index).unwrap_or(u32::MAX);
            let walk = Walk { deadline: left / parts, ..walk(self.settings) };
            if !member.suspend(&walk, Learns::Yes) {
                running.push(*job);
            }
        }
        running
    }
}

/// Whether this launch of a job has processes here.
fn is_present(members: &BTreeMap<JobId, Member>, launch: LaunchId) -> bool {
    members.get(&launch.job).is_some_and(|member| member.number == launch.number)
}

fn candidate_state(members: &BTreeMap<JobId, Member>, launch: LaunchId) -> CandidateState {
    match members.get(&launch.job).filter(|member| member.number == launch.number) {
        None => CandidateState::Absent,
        Some(Member { state: State::Stands, .. }) => CandidateState::Stopped,
        Some(Member { state: State::Yields, .. }) => CandidateState::Background,
        Some(Member { state: State::Runs, .. }) => CandidateState::Running,
    }
}

/// Stops processes that may have been stopped before; those that do not stop in time are asked
/// again.
fn halt(member: &mut Member, settings: Settings) {
    let has_stopped = member.suspend(&walk(settings), Learns::No);
    member.late = (!has_stopped).then(|| Late::after(None, monotonic_ns()));
}

/// How long the thread may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_millis(250);

/// How long one further attempt to stop a job may take.
const ASK_AGAIN: Duration = Duration::from_millis(2);
