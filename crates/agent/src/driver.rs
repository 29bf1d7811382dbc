//! The agent's main thread: between the controller, the keeper and the switch thread.

use super::affinity::{Affinity, Confinement, processors_of};
use super::beside::Beside;
use super::clock::ClusterClock;
use super::devices::Awaited;
use super::external_load::per_cpu::Taken;
use super::external_load::total::Foreign;
use super::ipc::IpcBefore;
use super::job::tasks::Tasks;
use super::job::{Findings, Job, grip};
use super::lease::{Former, Lease, Told};
use super::load::LoadReports;
use super::measuring::{MEASURED, Measuring};
use super::orders::Order;
use super::output::OutputReaders;
use super::policy::{POLICY, Part};
use super::released::{Own, Released};
use super::steps::Step;
use super::subtree_control::{Ending, Suspended};
use super::swap::Swaps;
use super::switch::Switch;
use super::track::Tracker;
use super::tree::{Heard, Tree, TreeOptions};
use super::upgrade::{SUPERVISOR, UnderWay};
use super::usage::UsageReports;
use super::vacate::Vacate;
use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getppid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{info, warn};
use tutti_linux::peer::{peer_lives, peer_process};
use tutti_linux::signal::Root;
use tutti_node::layout::{self, FIRST_STEP};
use tutti_node::link::{Interest, Link, Poller, Ready};
use tutti_node::membership::{Membership, Place};
use tutti_node::platform::groups::{Cgroup, Hierarchy};
use tutti_node::platform::{hardware, time as clock, ways};
use tutti_node::released;
use tutti_node::signal_origin::answers_for;
use tutti_types::{
    ClockSource, ClusterTime, Device, JobId, LaunchId, Nanos, NodeId, NodeSpec, Orphans, StepKey,
    Traversal,
};
use tutti_wire::Role;
use tutti_wire::code::Code;
use tutti_wire::keeper::{FromKeeper, HeldJob, ToKeeper};
use tutti_wire::launch::{Launch, Usage};
use tutti_wire::pmi::Exchange;
use tutti_wire::tree::{FromAgent, Join, Settings, TimetableParts, ToAgent};

/// What an agent is told at its start.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Where the controller is reached.
    pub controller: PathBuf,
    /// Where this node's keeper is reached.
    pub keeper: PathBuf,
    /// Where clients here find the way to other nodes.
    pub gate: PathBuf,
    /// Where processes of jobs register for notice before their slots end.
    pub vacate: PathBuf,
    /// Where the supervisor is told to upgrade to another executable.
    pub supervisor: PathBuf,
    /// Whether the instance is one user's own.
    pub private: bool,
    /// What the machine is in its cluster, if it is in one.
    pub membership: Option<Membership>,
    /// The directory of that.
    pub place: Place,
    /// The name of the cgroup subtree.
    pub cgroup_name: String,
    /// The name that the node joins under.
    pub node: String,
    /// The executable that measures what the node can do; `None`: it is never measured.
    pub program: Option<PathBuf>,
    /// The last released job that an earlier agent knew of: see [`tutti_node::released`].
    pub released: JobId,
    /// The directory of images that other nodes share, if there is one.
    pub images: Option<u64>,
}

/// SIGTERM, to be read when it comes.
fn signals() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

impl AgentOptions {
    /// Where tasks of other nodes reach those of this one: the address without the agent's port.
    fn address(&self) -> String {
        let address = self.membership.as_ref().and_then(|membership| membership.address.as_ref());
        let host = address.and_then(|address| Some(address.rsplit_once(':')?.0));
        host.unwrap_or_default().trim_matches(['[', ']']).to_owned()
    }
}

/// How long to wait before another attempt to reach the controller or the keeper: soon at first,
/// since at the start of an instance they are only milliseconds behind, then twice as long each time.
pub(super) const RETRY_MIN_NS: u64 = 2_000_000;
pub(super) const RETRY_MAX_NS: u64 = 1_000_000_000;

/// The longest that a node which goes out of service waits for the controller to know.
const LEAVE_NS: u64 = 2_000_000_000;

const KEEPER: u64 = 1;
pub(super) const EVENTS: u64 = 5;
const SIGNALS: u64 = 6;
const KEEPER_END: u64 = 7;
/// Groups of other instances appear or vanish.
const OTHERS: u64 = 9;
/// Threads have done something.
const DONE: u64 = 10;

/// The cgroups of jobs, or why there are none.
pub(super) struct Groups {
    pub(super) hierarchy: Option<Hierarchy>,
    pub(super) no_cgroup: String,
    pub(super) released: Released,
    pub(super) awaited: Awaited,
    /// Of jobs that have ended, to be removed at the end of the round.
    pub(super) emptied: Vec<Arc<Cgroup>>,
}

impl Groups {
    fn new(hierarchy: Option<Hierarchy>, no_cgroup: String, released: Released) -> Self {
        let awaited = Awaited::default();
        Self { hierarchy, no_cgroup, released, awaited, emptied: Vec::new() }
    }
}

/// The lease of this node, and what others know of it.
pub(super) struct Leases {
    pub(super) lease: Lease,
    /// Whether it held when that was last looked at.
    pub(super) lease_held: bool,
    /// What the keeper knows of it.
    pub(super) told: Told,
    /// When leases were made shorter, to be confirmed as soon as no longer one counts here.
    pub(super) shortened: Option<ClusterTime>,
    /// The thread that looks after what an earlier agent has left.
    pub(super) former: Former,
}

/// Load reports, external load, and what processors were used for.
pub(super) struct External {
    pub(super) load: LoadReports,
    pub(super) taken: Taken,
    pub(super) foreign: Foreign,
    pub(super) used: UsageReports,
}

/// Genealogy, affinity, and work beside the loop.
pub(super) struct Processes {
    pub(super) tracker: Tracker,
    pub(super) affinity: Affinity,
    pub(super) endings: Vec<Ending>,
    pub(super) beside: Beside,
    pub(super) readers: OutputReaders,
    /// By job; the first of each is under way.
    pub(super) orders: BTreeMap<JobId, VecDeque<Order>>,
    /// Once a job is here that may be asked to vacate.
    pub(super) vacate: Option<Vacate>,
    /// What measures the node just now.
    pub(super) measuring: Option<Measuring>,
    /// Memory of jobs that is moved out or back.
    pub(super) swaps: Swaps,
    /// The part of the site's policy on this node.
    pub(super) policy: Option<Box<Part>>,
}

/// The connection to the keeper, and what the keeper has reported.
pub(super) struct Keeping {
    /// What the keeper has reported of launches of which a task's leftovers are being killed.
    pub(super) held_back: BTreeMap<LaunchId, Vec<FromKeeper>>,
    pub(super) keeper: Option<Link>,
    /// Launches that were known when it was connected with: its welcome says which of them it holds. What was sent
    /// there since then it has not looked at before it wrote that.
    pub(super) unsure: BTreeSet<LaunchId>,
    /// Readable when the keeper has ended.
    pub(super) keeper_process: Option<OwnedFd>,
    pub(super) keeper_incarnation: Option<u64>,
    /// What the keeper has said so far that it holds.
    pub(super) held: Vec<HeldJob>,
    pub(super) keeper_pid: i32,
    /// Questions of the controller for a sign of life of the keeper, and when each came.
    pub(super) asked_for_life: VecDeque<(u64, u64)>,
    pub(super) tasks_max: u32,
    pub(super) retry_at_ns: Option<u64>,
    pub(super) retry_ns: u64,
}

/// How far the agent is in service: joined, stopping, upgrading.
pub(super) struct Service {
    pub(super) welcomed: bool,
    /// The number of the node, once it has joined.
    pub(super) node: NodeId,
    /// The launches that were here when it last asked to join.
    joined_with: Vec<LaunchId>,
    /// Why the parent was lost, when that was last said.
    pub(super) loss: String,
    pub(super) stopping: bool,
    /// Until when it waits to be told that the controller knows of its leaving.
    pub(super) leaves_by_ns: Option<u64>,
    /// The parent process: the supervisor.
    pub(super) parent: Pid,
    /// The other process that told it to end.
    pub(super) sent_away: Option<u32>,
    /// The order to upgrade to another executable that the supervisor has not answered.
    pub(super) upgrade: Option<UnderWay>,
    /// The devices that were found when it began.
    devices: Vec<Device>,
}

pub(super) struct Agent {
    pub(super) options: AgentOptions,
    pub(super) poller: Poller,
    signals: SignalFd,
    /// The cgroups of jobs, or why there are none.
    pub(super) groups: Groups,
    pub(super) switch: Switch,
    timetable_parts: TimetableParts,
    /// The lease of this node, and what others know of it.
    pub(super) leases: Leases,
    pub(super) settings: Settings,
    /// Load reports and external load.
    pub(super) external: External,
    /// Genealogy, affinity, and work beside the loop.
    pub(super) processes: Processes,
    /// The connection to the keeper, and what the keeper has reported.
    pub(super) keeping: Keeping,
    pub(super) tree: Tree,
    /// How far the agent is in service: joined, stopping, upgrading.
    pub(super) service: Service,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Further steps of them.
    pub(super) steps: BTreeMap<StepKey, Step>,
}

/// How to switch, until the controller says.
pub(super) fn first_settings() -> Settings {
    Settings {
        freeze_deadline: Nanos::from_millis(100),
        retry_interval: Nanos::from_millis(1),
        traversal: Traversal::default(),
        load_interval: Nanos::ZERO,
        usage_interval: Nanos::ZERO,
        foreign_milli: 0,
        held_count: false,
        orphans: Orphans::default(),
        clock: ClockSource::default(),
        fan_out: u32::MAX,
        lease: Nanos::ZERO,
        lease_since: ClusterTime(0),
        released: JobId(0),
    }
}

/// Runs an agent until it is told to stop.
///
/// # Errors
/// If it can't even begin: no descriptor, no thread.
pub fn main(options: AgentOptions) -> anyhow::Result<()> {
    if TreeOptions::of(&options).is_client() {
        return super::client::run(&options, signals()?);
    }
    let groups = match Hierarchy::find(&options.cgroup_name) {
        Ok(hierarchy) => (Some(hierarchy), String::new()),
        Err(reason) => (None, reason.to_string()),
    };
    let clock = ClusterClock::default();
    let lease = Lease::new(TreeOptions::of(&options).is_root());
    let switch = Switch::start(first_settings(), clock.clone(), lease.clone());
    let switch = switch.context("cannot start the switch thread")?;
    let mut agent = Agent::new(options, groups, (switch, clock, lease), signals()?)?;
    agent.run()
}

impl Agent {
    /// An agent without connections.
    pub(super) fn new(
        options: AgentOptions,
        (hierarchy, no_cgroup): (Option<Hierarchy>, String),
        (switch, clock, lease): (Switch, ClusterClock, Lease),
        signals: SignalFd,
    ) -> anyhow::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&signals, SIGNALS, Interest::READ)?;
        let beside = Beside::new(&poller, DONE)?;
        let released = Released::new(options.released);
        let taken = Taken::beside(Own::of(hierarchy.as_ref(), &released));
        if let Some(changes) = taken.changes() {
            poller.add(changes, OTHERS, Interest::READ)?;
        }
        Ok(Self {
            switch,
            timetable_parts: TimetableParts::default(),
            leases: Leases {
                former: Former::new(&lease),
                lease,
                lease_held: false,
                told: Told::default(),
                shortened: None,
            },
            tree: Tree::new(TreeOptions::of(&options), clock, &poller),
            poller,
            signals,
            processes: Processes {
                affinity: Affinity::new(hierarchy.as_ref()),
                tracker: Tracker::new(),
                endings: Vec::new(),
                beside,
                readers: OutputReaders::default(),
                orders: BTreeMap::new(),
                vacate: None,
                measuring: None,
                swaps: Swaps::new(hierarchy.as_ref()),
                policy: None,
            },
            groups: Groups::new(hierarchy, no_cgroup, released),
            settings: first_settings(),
            external: External {
                load: LoadReports::default(),
                taken,
                foreign: Foreign::default(),
                used: UsageReports::default(),
            },
            keeping: Keeping {
                held_back: BTreeMap::new(),
                keeper: None,
                unsure: BTreeSet::new(),
                keeper_process: None,
                keeper_incarnation: None,
                held: Vec::new(),
                keeper_pid: 0,
                asked_for_life: VecDeque::new(),
                tasks_max: 0,
                retry_at_ns: None,
                retry_ns: RETRY_MIN_NS,
            },
            service: Service {
                node: NodeId(0),
                joined_with: Vec::new(),
                welcomed: false,
                loss: String::new(),
                stopping: false,
                leaves_by_ns: None,
                parent: getppid(),
                sent_away: None,
                upgrade: None,
                devices: super::devices::find(),
            },
            jobs: BTreeMap::new(),
            steps: BTreeMap::new(),
            options,
        })
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        self.connect();
        while !self.has_ended() {
            self.poller.wait(self.due_ns(), &mut ready)?;
            self.round(&ready)?;
        }
        self.switch.stop();
        self.tree.close();
        if let Some(vacate) = &self.processes.vacate {
            vacate.close();
        }
        if let Some(hierarchy) = &self.groups.hierarchy {
            released::remove_others(hierarchy, self.groups.released.until());
        }
        Ok(())
    }

    /// Whether it was told to end, and the keeper has.
    pub(super) const fn has_ended(&self) -> bool {
        self.service.stopping && self.keeping.keeper.is_none()
    }

    /// Does what is due, and what has happened asks for.
    ///
    /// # Errors
    /// If it was told to end by a process that has no say in it.
    pub(super) fn round(&mut self, ready: &[Ready]) -> anyhow::Result<()> {
        let began_ns = clock::monotonic_ns();
        if self.keeping.retry_at_ns.is_some_and(|at| at <= began_ns) {
            self.connect();
        }
        if let Some(averages) = self.external.load.news(began_ns) {
            self.tell_controller(FromAgent::Load(averages));
        }
        let groups = self.groups.own();
        if self.external.used.news(began_ns, self.tree.clock(), groups) {
            match &self.keeping.keeper {
                Some(_) => self.tell_keeper(&ToKeeper::AskCarried),
                None => {
                    if let Some(used) = self.external.used.measured() {
                        self.tell_controller(FromAgent::Used(used));
                    }
                }
            }
        }
        if let Some(taken) = self.external.taken.news(began_ns, self.groups.own()) {
            self.tell_controller(FromAgent::Foreign(taken));
        }
        self.look_at_released(began_ns);
        self.look_for_devices(began_ns);
        self.external.foreign.now_and_then(began_ns, self.groups.own());
        let heard = self.tree.on_time(clock::monotonic_ns());
        self.on_heard(heard);
        for event in ready {
            match event.token {
                KEEPER => self.on_keeper(),
                KEEPER_END => self.on_keeper_end(),
                SUPERVISOR => self.on_supervisor(),
                SIGNALS => self.on_signals(),
                DONE => self.on_done_beside(),
                MEASURED => self.on_measured(),
                // What it has for us is taken below.
                POLICY => {}
                OTHERS => self.external.taken.on_changes(began_ns),
                EVENTS => self.processes.tracker.on_ready(&self.poller, EVENTS),
                token => {
                    let heard = self.tree.on_ready(token, &self.poller);
                    self.on_heard(heard);
                }
            }
        }
        let now_ns = clock::monotonic_ns();
        if self.processes.tracker.on_time(now_ns, &self.poller, EVENTS) {
            for ((key, _), name) in self.processes.tracker.new_strays() {
                self.switch.root(key.job, Root::from(name));
            }
        }
        self.watch_affinity(now_ns);
        self.end_due(now_ns);
        self.watch_lease();
        self.confirm_lease();
        self.watch_former();
        self.follow_policy_part();
        if self.service.leaves_by_ns.is_some_and(|by| by <= now_ns) {
            self.close_down();
        }
        self.flush();
        self.remove_emptied();
        if let Some(sender) = self.service.sent_away {
            anyhow::bail!(
                "got SIGTERM of process {sender}; jobs go on, and another agent is started"
            );
        }
        Ok(())
    }

    /// When something is to be done though nothing happens.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let due = [
            self.keeping.retry_at_ns,
            self.service.leaves_by_ns,
            self.lease_due_ns(),
            self.leases.former.due_ns(),
            self.external.load.due_ns(),
            self.external.used.due_ns(),
            self.external.taken.due_ns(),
            self.groups.released.due_ns(),
            self.groups.awaited.due_ns(),
            self.processes.tracker.due_ns(),
            self.processes.affinity.due_ns(),
            self.policy_due_ns(),
            self.tree.due_ns(),
            self.processes.endings.iter().map(|ending| ending.due_ns).min(),
        ];
        due.into_iter().flatten().min()
    }

    /// Connects to every daemon that is not connected. The keeper comes first: what it holds is
    /// what the controller is told at joining.
    pub(super) fn connect(&mut self) {
        self.keeping.retry_at_ns = None;
        if self.keeping.keeper.is_none() {
            self.keeping.keeper = self.dial(&self.options.keeper.clone(), KEEPER);
            self.leases.told = Told::default();
            self.keeping.unsure = self.all_launches().into_iter().collect();
            if let Some(keeper) = &self.keeping.keeper {
                self.keeping.keeper_process = self.watch_end(keeper);
                self.keeping.keeper_pid = tutti_linux::peer::peer_credentials(keeper.stream())
                    .map_or(0, |credentials| credentials.pid);
            }
        }
        if self.keeping.keeper.is_none() && getppid() != self.service.parent {
            // The controller ends the rest when it misses us, so that another instance can be started.
            warn!(code = %Code::PartEnded, "the keeper is gone, and the supervisor that would start another; ending"
            );
            self.service.stopping = true;
            return;
        }
        if !self.tree.has_parent() && self.keeping.keeper_incarnation.is_some() {
            self.service.welcomed = false;
            self.tree.connect(&self.poller);
        }
        if self.keeping.keeper.is_none() || !self.tree.has_parent() {
            self.retry_later();
        }
    }

    fn retry_later(&mut self) {
        self.keeping.retry_at_ns = Some(clock::monotonic_ns() + self.keeping.retry_ns);
        self.keeping.retry_ns = (self.keeping.retry_ns * 2).min(RETRY_MAX_NS);
    }

    fn dial(&self, path: &Path, token: u64) -> Option<Link> {
        let stream = ways::connect(path).ok()?;
        if !peer_lives(&stream) {
            return None;
        }
        let mut link = Link::new(stream).ok()?;
        link.greet(Role::Agent);
        self.poller.add(&link, token, Interest::READ).ok()?;
        Some(link)
    }

    /// The connection may outlive the keeper: its children have it, too, until their programs run, and those that
    /// were born frozen may wait long for that.
    fn watch_end(&self, keeper: &Link) -> Option<OwnedFd> {
        let process = peer_process(keeper.stream()).ok()?;
        self.poller.add(&process, KEEPER_END, Interest::READ).ok()?;
        Some(process)
    }

    fn join(&mut self) {
        let processors = hardware::usable_processors().into_iter().collect();
        self.groups.released.look_soon(clock::monotonic_ns());
        let held = self.all_launches();
        self.service.joined_with.clone_from(&held);
        let join = FromAgent::Join(Join {
            spec: NodeSpec {
                name: self.options.node.clone(),
                processors,
                memory_bytes: self.memory_for_jobs(),
            },
            held,
            attach: bytes_of(&self.options.keeper),
            address: self.options.address(),
            tasks_max: self.keeping.tasks_max,
            keeper: self.keeping.keeper_incarnation.unwrap_or_default(),
            features: hardware::features(),
            devices: self.service.devices.clone(),
            swap: self.swap(),
            images: self.options.images,
        });
        self.tree.join(join);
    }

    fn flush(&mut self) {
        loop {
            let heard = self.tree.settle(&self.poller);
            if heard.is_empty() {
                self.tree.give_back(heard);
                break;
            }
            // What it says to that is to be sent, too.
            self.on_heard(heard);
        }
        if let Some(link) = &mut self.keeping.keeper
            && link.settle(&self.poller, KEEPER).is_err()
        {
            self.lose_keeper();
        }
    }

    pub(super) fn tell_controller(&mut self, message: FromAgent) {
        if self.service.welcomed {
            self.tree.report(message.bounded());
        }
    }

    /// Sends the controller a part of what was stored here before a barrier.
    pub(super) fn exchange(&mut self, exchange: Exchange) {
        if self.service.welcomed {
            self.tree.exchange(exchange);
        }
    }

    /// Whether a controller has said what it knows of this node.
    pub(super) const fn has_joined(&self) -> bool {
        self.service.welcomed
    }

    pub(super) fn tell_keeper(&mut self, message: &ToKeeper) {
        if let Some(link) = &mut self.keeping.keeper {
            link.send(message);
        }
    }

    // ------------------------------------------------------------------ the controller

    fn on_heard(&mut self, mut all: Vec<Heard>) {
        for heard in all.drain(..) {
            match heard {
                Heard::Order(order) => self.on_order(order),
                Heard::Exchanged(exchange) => self.tell_keeper(&ToKeeper::Exchanged(exchange)),
                Heard::Taken => self.join(),
                Heard::JoinAgain => self.service.welcomed = false,
                Heard::AskAnother => self.keeping.retry_at_ns = Some(clock::monotonic_ns()),
                Heard::ParentLost(reason) => self.on_parent_lost(&reason),
                Heard::ClockStepped => self.switch.look_again(),
                Heard::Lease { until_ns } => self.on_lease(until_ns),
            }
        }
        self.tree.give_back(all);
        self.switch.wake();
    }

    fn on_parent_lost(&mut self, reason: &str) {
        if !self.service.stopping && self.service.loss != reason {
            warn!(code = %Code::OutOfReach, "lost the controller: {reason}; jobs go on taking turns");
            reason.clone_into(&mut self.service.loss);
        }
        if self.service.leaves_by_ns.is_some() {
            self.close_down();
        }
        let was_welcomed = std::mem::take(&mut self.service.welcomed);
        if self.tree.has_another_way() {
            self.keeping.retry_at_ns = Some(clock::monotonic_ns());
        } else if was_welcomed {
            self.retry_soon();
        } else {
            self.retry_later();
        }
    }

    fn on_order(&mut self, order: ToAgent) {
        match order {
            ToAgent::Welcome { node, clock_ahead_ns, settings, known } => {
                self.service.node = node;
                // The controller says again which is to run.
                self.end_policy_part();
                self.tree.learn_time(clock_ahead_ns);
                self.on_welcome(settings, &known);
            }
            ToAgent::Refused { reason } => self.tree.lose_parent(&reason),
            ToAgent::Settings(settings) => self.take_settings(settings),
            ToAgent::TimetablePart { version, slots } => self.timetable_parts.add(version, slots),
            ToAgent::Timetable(timetable) => {
                let timetable = self.timetable_parts.complete(timetable);
                self.external.taken.timetable(&timetable, clock::monotonic_ns());
                self.follow(&timetable);
                self.tell_policy_of_timetable(&timetable);
                self.switch.timetable(timetable);
            }
            ToAgent::Launch { mut launch, shares } => {
                // The tree has left no share but ours.
                if let Some((_, share)) = shares.into_iter().next() {
                    launch.share = share;
                    self.on_launch(launch);
                }
            }
            ToAgent::Signal { launch, ranks, signal } => self.on_signal(launch, ranks, signal),
            ToAgent::SignalRoots { launch, signal } => {
                self.tell_keeper(&ToKeeper::SignalRoots { launch, signal });
            }
            ToAgent::RanksFailed { launch, ranks } => {
                self.tell_keeper(&ToKeeper::RanksFailed { launch, ranks });
            }
            ToAgent::Piece { peer, piece } => self.tell_keeper(&ToKeeper::Piece { peer, piece }),
            ToAgent::Terminate { launch } => self.on_terminate(launch),
            ToAgent::Kill { launch } => self.on_kill(launch),
            ToAgent::Forget { launch } => self.on_forget(launch),
            ToAgent::Ask { query, question } => {
                if let Some(answer) = self.answer(query, &question) {
                    self.tell_controller(FromAgent::Answer { query, answer });
                }
            }
            ToAgent::Stop => self.close_down(),
            ToAgent::Leave => self.leave(),
            ToAgent::Measure => self.measure(),
            ToAgent::MeasureNetwork { after } => self.measure_network(after),
            ToAgent::Swap { launch, order, out } => self.on_swap(launch, order, out),
            ToAgent::KeepImages { jobs, shared } => {
                self.tell_keeper(&ToKeeper::KeepImages { jobs, shared });
            }
            ToAgent::PolicyPart(part) => self.on_policy_part(part),
            ToAgent::PolicyNews(news) => self.on_policy_news(news),
        }
    }

    /// By the word of its supervisor.
    fn on_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if !answers_for(signal.ssi_pid, self.service.parent) {
                self.service.sent_away = Some(signal.ssi_pid);
                continue;
            }
            self.leave();
        }
    }

    /// The node goes out of service. The controller takes note before anything is ended here: no task is
    /// said to have failed by it, and a request after the end is told that the node is gone.
    fn leave(&mut self) {
        if self.service.stopping || self.service.leaves_by_ns.is_some() {
            return;
        }
        self.tree.release_children();
        if self.service.welcomed {
            // From then on jobs that were here may run elsewhere.
            self.leases.lease.end();
            self.switch.lapse();
            self.tell_controller(FromAgent::Leaving);
            self.service.leaves_by_ns = Some(clock::monotonic_ns() + LEAVE_NS);
        } else {
            self.close_down();
        }
    }

    fn close_down(&mut self) {
        self.service.stopping = true;
        if self.service.leaves_by_ns.take().is_some() {
            // What ends here from now on concerns no other process.
            self.service.welcomed = false;
        }
        self.tell_keeper(&ToKeeper::Stop);
    }

    fn take_settings(&mut self, settings: Settings) {
        if settings.lease_since != self.settings.lease_since {
            self.leases.shortened = Some(settings.lease_since);
        }
        self.learn_released(settings.released);
        self.settings = settings;
        self.tree.take_settings(&settings);
        self.switch.settings(settings);
        let now_ns = clock::monotonic_ns();
        self.external.load.every(settings.load_interval, now_ns);
        self.external.used.every(settings.usage_interval, now_ns);
        self.external.taken.settings(settings.foreign_milli, settings.held_count, now_ns);
        self.processes.tracker.set_orphans(settings.orphans);
    }

    /// Tells a controller all that it may have missed, and ends what it does not know.
    fn on_welcome(&mut self, settings: Settings, known: &[LaunchId]) {
        self.service.welcomed = true;
        self.end_swaps();
        // The rest of them went with the connection before.
        self.timetable_parts = TimetableParts::default();
        self.service.loss.clear();
        self.keeping.retry_ns = RETRY_MIN_NS;
        // What was confirmed may be lost.
        self.settings.lease_since = ClusterTime(0);
        self.switch.joined();
        self.external.load = LoadReports::default();
        self.external.taken.forget_told(clock::monotonic_ns());
        self.take_settings(settings);
        let held = self.all_launches();
        for &launch in &held {
            if launch.is_further() {
                self.meet_step(launch, known.contains(&launch));
            } else if known.contains(&launch) {
                self.report_again(launch.job);
            } else if launch.job <= self.groups.released.until() {
                self.release(launch.job);
            } else {
                info!("the controller has done with job {launch}; ending it here");
                self.end_strange(launch.job);
            }
        }
        // What ended between two joins is not reported on the later one, which still names it: a
        // node that was lost would be waited for. One that was just reported is not reported twice:
        // the second time would be taken for a launch of the same number that came meanwhile.
        let joined_with = std::mem::take(&mut self.service.joined_with);
        for &launch in &joined_with {
            if !known.contains(&launch) && !held.contains(&launch) {
                self.tell_controller(FromAgent::Cleared { launch, usage: Usage::unknown() });
            }
        }
        // Another welcome to the same join may know less.
        self.service.joined_with = joined_with;
    }

    pub(super) fn end_strange(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.strange = true;
        let launch = job.launch;
        if let Some(usage) = job.tasks.cleared() {
            // A node that was lost may join only when this is known.
            self.tell_controller(FromAgent::Cleared { launch, usage });
            self.on_forget(launch);
        } else {
            self.tell_keeper(&ToKeeper::Kill { launch });
        }
    }

    pub(super) fn report_again(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (launch, messages) = (job.launch, job.report_again());
        for message in messages {
            self.tell_controller(message);
        }
        // Of what was stored before barriers the keeper knows all, also that which other nodes may still lack.
        self.tell_keeper(&ToKeeper::SendExchanges { launch });
    }

    /// The order matters: the group exists and is frozen before the first process can be born into it. The keeper,
    /// which has the most to do, hears of it before it is seen whether it is the job's turn.
    fn on_launch(&mut self, mut launch: Launch) {
        if launch.id().is_further() {
            return self.on_launch_step(launch);
        }
        self.end_measuring();
        let id = launch.job;
        if !self.makes_way(launch.id()) {
            return;
        }
        self.remove_emptied();
        let group =
            match self.groups.hierarchy.as_ref().map(|h| h.create(&layout::group_of_job(id))) {
                Some(Ok(group)) => Some(Arc::new(group)),
                Some(Err(error)) => {
                    warn!(code = %Code::GoesWithout, "job {id} goes without a cgroup: {error}");
                    None
                }
                None => None,
            };
        self.close_devices_that_came();
        let (is_closed, gate) = super::devices::close(id, group.as_deref(), &launch.share);
        self.groups.awaited.begin(id, group.as_deref(), &launch.share);
        launch.share.is_closed = is_closed;
        let processors = processors_of(&launch);
        let is_held = self.processes.affinity.hold(id, group.as_deref(), &processors);
        launch.share.is_bound = is_held;
        let mut job = Job {
            launch: launch.id(),
            control: launch.control,
            owner: Some(launch.credentials.uid),
            ipc_before: IpcBefore::look(&launch),
            step: group.as_ref().map(|it| it.path().join(FIRST_STEP)).unwrap_or_default(),
            group,
            confinement: Confinement::new(processors, is_held),
            tasks: Tasks::of(&launch.share),
            minders: BTreeMap::new(),
            adopted: launch.spec.adopt.iter().map(|it| (it.pid, it.start_time)).collect(),
            suspended: Suspended::default(),
            switches: Arc::default(),
            clearing: None,
            findings: Findings::default(),
            strange: false,
        };
        job.check_control(id);
        let shares_devices =
            launch.share.in_turns && launch.share.devices.iter().any(|it| !it.is_counted());
        self.allow_notices(&job, (launch.spec.vacate, shares_devices));
        let ranks = job.tasks.ranks().iter().copied();
        self.processes.tracker.begin(StepKey::first(id), ranks, &self.poller, EVENTS);
        let cgroup = job.group.as_ref().map(|group| bytes_of(group.path()));
        self.tell_lease();
        let (number, grip) = (job.launch, grip(&job));
        let order = ToKeeper::Launch { launch, cgroup };
        self.switch.gate(id, gate);
        if grip.hold() {
            // It begins while the thread looks whether it is the job's turn.
            self.tell_keeper_at_once(&order);
            job.switches = self.switch.add(number, grip, true);
        } else {
            job.switches = self.switch.add(number, grip, false);
            self.tell_keeper_at_once(&order);
        }
        self.jobs.insert(id, job);
        if self.keeping.keeper.is_none() {
            self.lose_job(id);
        }
    }

    pub(super) fn tell_keeper_at_once(&mut self, order: &ToKeeper) {
        self.tell_keeper(order);
        // If it is gone, that is found out when all is flushed.
        let _ = self.keeping.keeper.as_mut().map(Link::flush);
    }

    /// Whether a launch may begin. One that is known has; and while something is left of an earlier
    /// launch of the same job, nothing of this one may run: it counts as lost at once.
    fn makes_way(&mut self, launch: LaunchId) -> bool {
        let Some(former) = self.jobs.get(&launch.job) else { return true };
        if former.launch == launch {
            return false;
        }
        if former.tasks.are_cleared() {
            self.on_forget(former.launch);
            return true;
        }
        let left = former.launch;
        warn!(code = %Code::ProcessStuck, "job {launch} cannot begin here: something is left of job {left}");
        self.end_strange(launch.job);
        self.tell_controller(FromAgent::Cleared { launch, usage: Usage::unknown() });
        false
    }

    /// The job, if this launch of it is the one that is here.
    pub(super) fn launched(&mut self, launch: LaunchId) -> Option<&mut Job> {
        self.jobs.get_mut(&launch.job).filter(|job| job.launch == launch)
    }

    fn on_kill(&mut self, launch: LaunchId) {
        if launch.is_further() {
            return self.on_kill_step(launch);
        }
        if self.launched(launch).is_some() {
            self.end_swap(launch.job);
            self.tell_keeper(&ToKeeper::Kill { launch });
        } else {
            // Never started here, or long gone: what the controller waits for is already so.
            self.tell_controller(FromAgent::Cleared { launch, usage: Usage::default() });
        }
    }

    /// How it ended is not needed any more. What has not is ended first.
    pub(super) fn on_forget(&mut self, launch: LaunchId) {
        if launch.is_further() {
            return self.on_forget_step(launch);
        }
        if self.launched(launch).is_some_and(|job| !job.tasks.are_cleared()) {
            return self.end_strange(launch.job);
        }
        if self.launched(launch).is_some() {
            self.end_swap(launch.job);
            self.jobs.remove(&launch.job);
        }
        self.tell_keeper(&ToKeeper::Forget { launch });
    }

    pub(super) fn retry_soon(&mut self) {
        self.keeping.retry_ns = RETRY_MIN_NS;
        self.keeping.retry_at_ns = Some(clock::monotonic_ns() + RETRY_MIN_NS);
    }
}

pub(super) fn bytes_of(path: &Path) -> serde_bytes::ByteBuf {
    serde_bytes::ByteBuf::from(path.as_os_str().as_bytes())
}
