//! What happens next in a simulated world: the queue of events, and which daemons each wakes.

use super::checks::Running;
use super::data_loss::Lapses;
use super::disk::SimulatedDisk;
use super::launches::Launches;
use super::network::{Delivery, Due, Network};
use super::readiness::Ears;
use super::script::Script;
use super::seat::{Any, Seat};
use super::users::Users;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::PathBuf;
use tutti_agent as agent;
use tutti_agent::AgentOptions;
use tutti_controller as controller;
use tutti_core::Core;
use tutti_keeper as keeper;
use tutti_keeper::KeeperOptions;
use tutti_node::instance::Instance;
use tutti_node::membership::{Membership, Place};
use tutti_node::simulated::clock::Clock;
use tutti_node::simulated::machine::Ear;
use tutti_node::simulated::machine::{
    self, Daemon, Machine, Machines, at, cut, machine, name_of, set_cut, set_now,
};
use tutti_node::simulated::random::Random;
use tutti_node::simulated::stream::stir;
use tutti_types::{ClusterTime, LaunchId};

/// The machine with the controller.
pub(super) const HEAD: usize = 0;

/// Something that is about to happen.
#[derive(Clone, Debug)]
pub(super) enum What {
    Wake(usize, Daemon),
    Switch(usize),
    Processes(usize),
    Deliver(Delivery),
    Disk,
    /// Its supervisor starts a daemon, if that was the life after which it does.
    Start(usize, Daemon, u64),
    PowerOn(usize),
    /// The step of the script.
    Act(usize),
    Users,
}

struct Event {
    at_ns: u64,
    number: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
impl Event {
    const fn key(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

/// The daemons of a machine.
#[derive(Default)]
pub(super) struct Site {
    pub(super) seats: [Seat; 3],
    /// What the keeper held when that was last looked at.
    pub(super) held: Vec<LaunchId>,
    /// What it held when its node was lost.
    pub(super) given_up: BTreeSet<LaunchId>,
    /// What a controller keeps for the next, where it is gone with the power.
    former: Option<controller::Former>,
    switch_ns: Option<u64>,
    /// When its switch thread is to wake up, by its machine's clock, if that was planned.
    switch_own_ns: Option<u64>,
    processes_ns: Option<u64>,
    /// How much later than others it does everything.
    pub(super) slow_ns: u64,
}

/// What happens within so long is kept apart from what happens later: mostly it was planned a
/// moment before, and there is not much of it.
const SOON_NS: u64 = 20_000_000;

/// What is about to happen, in its order.
#[derive(Default)]
struct Queue {
    soon: BinaryHeap<Reverse<Event>>,
    later: BinaryHeap<Reverse<Event>>,
    numbers: u64,
}

impl Queue {
    fn push(&mut self, now_ns: u64, at_ns: u64, what: What) {
        self.numbers += 1;
        let is_soon = at_ns < now_ns.saturating_add(SOON_NS);
        let heap = if is_soon { &mut self.soon } else { &mut self.later };
        heap.push(Reverse(Event { at_ns, number: self.numbers, what }));
    }

    /// What happens next, if it does so no later than then.
    fn pop(&mut self, until_ns: u64) -> Option<Event> {
        let first = |heap: &BinaryHeap<Reverse<Event>>| heap.peek().map(|next| next.0.key());
        let (soon, later) = (first(&self.soon), first(&self.later));
        let is_soon = later.is_none_or(|later| soon.is_some_and(|soon| soon < later));
        let (next, heap) =
            if is_soon { (soon?, &mut self.soon) } else { (later?, &mut self.later) };
        if next.0 > until_ns { None } else { heap.pop().map(|next| next.0) }
    }
}

/// See the head of the file.
pub(super) struct World {
    pub(super) now_ns: u64,
    queue: Queue,
    /// What the network does next, while it is taken in.
    due: Vec<Due>,
    pub(super) random: Random,
    pub(super) network: Network,
    ears: Ears,
    heard: Vec<(usize, Ear)>,
    pub(super) sites: Vec<Site>,
    pub(super) disk: SimulatedDisk,
    disk_ns: Option<u64>,
    pub(super) lapses: Lapses,
    pub(super) running: Running,
    pub(super) launches: Launches,
    pub(super) users: Users,
    users_ns: Option<u64>,
    pub(super) script: Script,
    /// When the machine with the controller was switched on.
    pub(super) time_since_ns: u64,
    /// The state that the controller had when it was last looked at.
    core: Option<u64>,
    /// When the latest event was applied to the state that was checked last, by its own time.
    pub(super) checked: Option<ClusterTime>,
    /// What happened, in short.
    pub(super) digest: u64,
    pub(super) rounds: u64,
    pub(super) wrong: Vec<String>,
    pub(super) is_loud: bool,
}

impl World {
    /// The world of a script, at its beginning.
    pub(super) fn new(script: Script, is_loud: bool) -> Self {
        let mut random = Random::new(script.seed ^ 0x5eed);
        let mut machines = Machines::default();
        for index in 0..script.machines {
            let drift = i64::try_from(random.below(80_000)).unwrap_or(0) - 40_000;
            let own_ns = 1_000_000_000 * random.within(10, 1_000_000);
            let clock = Clock::new(0, own_ns, drift);
            let drawn = Random::new(script.seed ^ (index as u64 + 1) << 32);
            machines.all.push(Machine::new(index, script.processors, clock, drawn));
        }
        let count = machines.all.len();
        machine::all(|all| *all = machines);
        let mut world = Self {
            now_ns: 0,
            queue: Queue::default(),
            due: Vec::new(),
            network: Network::new(count, script.latency_ns),
            ears: Ears::new(),
            heard: Vec::new(),
            random,
            sites: (0..count).map(|_| Site::default()).collect(),
            disk: SimulatedDisk::default(),
            disk_ns: None,
            lapses: Lapses::default(),
            running: Running::default(),
            launches: Launches::default(),
            users: Users::new(),
            users_ns: None,
            time_since_ns: 0,
            core: None,
            checked: None,
            digest: 0,
            rounds: 0,
            wrong: Vec::new(),
            script,
            is_loud,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for site in 0..self.sites.len() {
            self.ears.add(site, Ear::Network, self.network.poller(site));
            let late_ns = self.random.below(50_000_000);
            self.plan(late_ns, What::PowerOn(site));
        }
        for act in 0..self.script.acts.len() {
            self.plan(self.script.acts[act].at_ns, What::Act(act));
        }
    }

    pub(super) fn plan(&mut self, at_ns: u64, what: What) {
        self.queue.push(self.now_ns, at_ns, what);
    }

    fn plan_all(&mut self, due: Vec<Due>) {
        for (at_ns, delivery) in due {
            self.plan(at_ns, What::Deliver(delivery));
        }
    }

    /// Lets happen what happens up to then, or until something is wrong.
    pub(super) fn run_until(&mut self, until_ns: u64) {
        while self.wrong.is_empty()
            && let Some(event) = self.queue.pop(until_ns)
        {
            self.now_ns = self.now_ns.max(event.at_ns);
            set_now(self.now_ns);
            self.happen(event.what);
        }
        self.now_ns = self.now_ns.max(until_ns);
        set_now(self.now_ns);
    }

    fn happen(&mut self, what: What) {
        let now_ns = self.now_ns;
        match what {
            What::Wake(site, daemon) => match self.seat(site, daemon).on_queue(now_ns) {
                Ok(()) => self.on_wake(site, daemon),
                Err(again_ns) => {
                    let again = again_ns.map(|at_ns| (at_ns, What::Wake(site, daemon)));
                    return again.map_or((), |(at_ns, what)| self.plan(at_ns, what));
                }
            },
            What::Switch(site) => {
                if self.sites[site].switch_ns != Some(now_ns) {
                    return;
                }
                self.on_switch(site);
            }
            What::Processes(site) => {
                if self.sites[site].processes_ns.take_if(|at| *at <= now_ns).is_none() {
                    return;
                }
                machine(site, |machine| machine.settle(now_ns));
                self.look_after(site);
            }
            What::Deliver(delivery) => self.on_delivery(delivery),
            What::Disk => self.on_disk(),
            What::Start(site, daemon, life) => {
                let is_it = self.seat(site, daemon).life == life;
                if is_it && self.seat(site, daemon).daemon.is_none() {
                    self.start(site, daemon);
                }
            }
            What::PowerOn(site) => self.power_on(site),
            What::Act(number) => self.act(number),
            What::Users => {
                self.users_ns = None;
                self.on_users();
            }
        }
        self.hear();
    }

    /// A daemon that has been sent something wakes up before long.
    fn hear(&mut self) {
        let mut heard = std::mem::take(&mut self.heard);
        self.ears.heard(&mut heard);
        for &(site, ear) in &heard {
            match ear {
                Ear::Daemon(daemon) => self.wake_soon(site, daemon),
                Ear::Network => self.collect(site),
            }
        }
        self.heard = heard;
    }

    /// What daemons of a machine have sent to others is on its way.
    fn collect(&mut self, site: usize) {
        let mut due = std::mem::take(&mut self.due);
        self.network.collect(site, self.now_ns, &mut self.random, &mut due);
        for (at_ns, delivery) in due.drain(..) {
            self.plan(at_ns, What::Deliver(delivery));
        }
        self.due = due;
    }

    pub(super) fn seat(&mut self, site: usize, daemon: Daemon) -> &mut Seat {
        &mut self.sites[site].seats[daemon as usize]
    }

    fn daemon(&self, site: usize, daemon: Daemon) -> Option<&Any> {
        self.sites[site].seats[daemon as usize].daemon.as_ref()
    }

    /// The controller, if it is there.
    pub(super) fn controller(&self) -> Option<&controller::Stepped> {
        match self.daemon(HEAD, Daemon::Controller)? {
            Any::Controller(controller) => Some(controller),
            _ => None,
        }
    }

    /// The agent of a machine, if it is there.
    pub(super) fn agent(&self, site: usize) -> Option<&agent::Stepped> {
        match self.daemon(site, Daemon::Agent)? {
            Any::Agent(agent) => Some(agent),
            _ => None,
        }
    }

    /// The keeper of a machine, if it is there.
    pub(super) fn keeper(&self, site: usize) -> Option<&keeper::Stepped> {
        match self.daemon(site, Daemon::Keeper)? {
            Any::Keeper(keeper) => Some(keeper),
            _ => None,
        }
    }

    // ------------------------------------------------------------------ waking up

    /// A daemon is to wake up then, if not before; one that is stopped when it goes on.
    pub(super) fn wake(&mut self, site: usize, daemon: Daemon, at_ns: u64) {
        let seat = self.seat(site, daemon);
        let at_ns = at_ns.max(seat.stopped_until_ns);
        if seat.wakes_at(at_ns) {
            self.plan(at_ns, What::Wake(site, daemon));
        }
    }

    /// A moment later than now: none is woken at once.
    fn soon(&mut self, site: usize) -> u64 {
        let slow_ns = self.sites[site].slow_ns;
        self.now_ns + 5_000 + self.random.below(100_000 + slow_ns)
    }

    pub(super) fn wake_soon(&mut self, site: usize, daemon: Daemon) {
        let at_ns = self.soon(site);
        self.wake(site, daemon, at_ns);
    }

    fn on_wake(&mut self, site: usize, daemon: Daemon) {
        let now_ns = self.now_ns;
        let seat = self.seat(site, daemon);
        seat.wake_ns = None;
        if seat.stopped_until_ns > now_ns {
            let until_ns = seat.stopped_until_ns;
            return self.wake(site, daemon, until_ns);
        }
        let Some(mut sitting) = seat.daemon.take() else { return };
        let is_due = seat.due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        set_cut(seat.cut.map(|(left, _)| left));
        let has_heard = at(site, || {
            let mut has_heard = sitting.take_in(site);
            has_heard |= sitting.look();
            if let Any::Keeper(keeper) = &mut sitting {
                for (pid, status) in machine(site, |it| std::mem::take(&mut it.ended)) {
                    has_heard = true;
                    keeper.reap(pid, status);
                }
            }
            has_heard
        });
        if !has_heard && !is_due {
            set_cut(None);
            let due_ns = seat.due_ns;
            seat.daemon = Some(sitting);
            return due_ns.map_or((), |due_ns| self.wake(site, daemon, due_ns));
        }
        let (goes_on, due_ns) = at(site, || (sitting.round(), sitting.due_ns()));
        self.rounds += 1;
        self.note(now_ns, site as u64, daemon as u64, u64::from(has_heard));
        let due_ns = due_ns.map(|own_ns| machine(site, |it| it.clock.world_ns(own_ns)));
        let left = cut();
        set_cut(None);
        let seat = self.seat(site, daemon);
        if let Some((_, back_ns)) = seat.cut.take_if(|_| left == Some(0)) {
            seat.daemon = Some(sitting);
            return self.cut_short(site, daemon, back_ns);
        }
        seat.cut = seat.cut.and_then(|(_, back_ns)| Some((left?, back_ns)));
        seat.due_ns = due_ns;
        seat.daemon = goes_on.then_some(sitting);
        if let Some(due_ns) = due_ns {
            // A daemon that has something to do at once may do it a moment later.
            self.wake(site, daemon, due_ns.max(now_ns + 1_000));
        }
        self.after(site, daemon);
        if !goes_on {
            self.crash(site, daemon, 50_000_000);
        }
    }

    /// A daemon was killed in the middle of what it did.
    fn cut_short(&mut self, site: usize, daemon: Daemon, back_ns: u64) {
        self.say(format_args!("{daemon:?} of {site} is cut short"));
        if daemon == Daemon::Controller {
            // Others may have heard which nodes it took for lost.
            self.note_given_up();
        }
        self.crash(site, daemon, back_ns);
        if daemon == Daemon::Controller {
            // What it knew is not what it has stored.
            self.core = None;
        }
        if daemon == Daemon::Agent {
            self.network.push_on(site);
            self.dial();
        }
        self.hear_knocks(site);
    }

    /// What a daemon has done reaches the others.
    fn after(&mut self, site: usize, daemon: Daemon) {
        if daemon == Daemon::Controller {
            let former = self.controller().map(controller::Stepped::as_former);
            self.sites[site].former = former.or(self.sites[site].former);
            self.plan_disk();
            self.check_core();
            self.note_given_up();
            self.wake_users();
        }
        if daemon == Daemon::Keeper {
            self.check_forgotten(site);
        }
        self.hear_knocks(site);
        if daemon == Daemon::Agent {
            self.network.push_on(site);
            self.dial();
            self.plan_switch(site);
            self.check_time(site);
        }
        self.look_after(site);
    }

    /// Connections that agents have begun.
    fn dial(&mut self) {
        if machine::all(|machines| machines.dialled.is_empty()) {
            return;
        }
        for dialled in machine::all(|machines| std::mem::take(&mut machines.dialled)) {
            let due = self.network.begin(dialled, self.now_ns, &mut self.random);
            self.plan_all(due);
        }
    }

    /// A connection that has come is taken in when the daemon wakes up.
    fn hear_knocks(&mut self, site: usize) {
        if machine(site, |machine| machine.knocks.is_empty()) {
            return;
        }
        let whose: Vec<Daemon> =
            machine(site, |machine| machine.knocks.iter().map(|knock| knock.0).collect());
        for daemon in whose {
            self.wake_soon(site, daemon);
        }
    }

    /// Processes may have begun, gone on, stopped or ended.
    pub(super) fn look_after(&mut self, site: usize) {
        let now_ns = self.now_ns;
        let (due_ns, has_ended, changed) = machine(site, |machine| {
            self.wrong.append(&mut machine.wrong);
            let changed = std::mem::take(&mut machine.changed);
            (machine.due_ns(), !machine.ended.is_empty(), changed)
        });
        let planned_ns = &mut self.sites[site].processes_ns;
        if let Some(due_ns) = due_ns.map(|due_ns| due_ns.max(now_ns + 1))
            && planned_ns.is_none_or(|planned_ns| due_ns < planned_ns)
        {
            *planned_ns = Some(due_ns);
            self.plan(due_ns, What::Processes(site));
        }
        if has_ended {
            self.wake_soon(site, Daemon::Keeper);
        }
        if changed {
            self.check_running(site);
        }
    }

    fn plan_switch(&mut self, site: usize) {
        let Some(agent) = self.agent(site) else { return };
        let own_ns = agent.switch_due_ns();
        let site_now = &self.sites[site];
        let is_planned = site_now.switch_ns.is_some() && site_now.switch_own_ns == Some(own_ns);
        if own_ns == u64::MAX || is_planned {
            return;
        }
        self.sites[site].switch_own_ns = Some(own_ns);
        let due_ns = machine(site, |it| it.clock.world_ns(own_ns));
        let late_ns = 2_000 + self.random.below(20_000);
        let at_ns = due_ns.max(self.now_ns) + late_ns;
        if self.sites[site].switch_ns.is_none_or(|planned_ns| at_ns < planned_ns) {
            self.sites[site].switch_ns = Some(at_ns);
            self.plan(at_ns, What::Switch(site));
        }
    }

    fn on_switch(&mut self, site: usize) {
        let now_ns = self.now_ns;
        self.sites[site].switch_ns = None;
        let seat = self.seat(site, Daemon::Agent);
        if seat.stopped_until_ns > now_ns {
            let until_ns = seat.stopped_until_ns;
            self.sites[site].switch_ns = Some(until_ns);
            return self.plan(until_ns, What::Switch(site));
        }
        if let Some(Any::Agent(agent)) = seat.daemon.as_mut() {
            at(site, || agent.switch());
            self.note(now_ns, site as u64, 7, 0);
            self.check_turn(site);
            self.plan_switch(site);
            self.look_after(site);
        }
    }

    fn on_delivery(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Open(id) => {
                let Some(to) = self.network.way_to(id) else { return };
                let takes = self.agent(to).is_some();
                let opened = self.network.open(id, takes);
                if let Some((from, to, stream)) = opened {
                    machine(to, |machine| machine.callers.push((from, stream)));
                    self.wake_soon(to, Daemon::Agent);
                }
            }
            Delivery::Bytes(id, to) => self.network.deliver(id, to),
            Delivery::GiveUp(id, since_ns) => self.network.give_up(id, since_ns),
        }
    }

    // ------------------------------------------------------------------ the disk and the users

    fn plan_disk(&mut self) {
        if self.disk_ns.is_none() {
            let at_ns = self.now_ns + self.random.within(100_000, 4_000_000);
            self.disk_ns = Some(at_ns);
            self.plan(at_ns, What::Disk);
        }
    }

    fn on_disk(&mut self) {
        self.disk_ns = None;
        let seat = self.seat(HEAD, Daemon::Controller);
        if let Some(Any::Controller(controller)) = seat.daemon.as_mut() {
            // Everything that waited for it hears of it.
            if controller.bring_to_disk() {
                stir();
            }
        }
    }

    pub(super) fn wake_users(&mut self) {
        if self.users_ns.is_none() {
            let at_ns = self.soon(HEAD);
            self.users_ns = Some(at_ns);
            self.plan(at_ns, What::Users);
        }
    }

    fn on_users(&mut self) {
        let mut users = std::mem::replace(&mut self.users, Users::new());
        let again_ns = at(HEAD, || users.step(self.now_ns));
        self.wrong.append(&mut users.wrong);
        self.users = users;
        self.hear_knocks(HEAD);
        if let Some(at_ns) = again_ns
            && self.users_ns.is_none()
        {
            self.users_ns = Some(at_ns);
            self.plan(at_ns, What::Users);
        }
    }

    // ------------------------------------------------------------------ beginning and ending

    fn power_on(&mut self, site: usize) {
        let now_ns = self.now_ns;
        machine(site, |machine| machine.is_off = false);
        self.network.reset(site);
        if site == HEAD {
            self.time_since_ns = now_ns;
            self.start(site, Daemon::Controller);
        }
        self.start(site, Daemon::Keeper);
        self.start(site, Daemon::Agent);
        self.say(format_args!("n{site} is on at {now_ns}"));
    }

    pub(super) fn start(&mut self, site: usize, daemon: Daemon) {
        if machine(site, |machine| machine.is_off) {
            return;
        }
        let before = self.core.take_if(|_| daemon == Daemon::Controller);
        let (disk, former) = (self.disk.clone(), self.sites[site].former);
        let started = at(site, || match daemon {
            Daemon::Controller => {
                let started = controller::Stepped::start(Box::new(disk), former);
                started.map(|it| Any::Controller(Box::new(it)))
            }
            Daemon::Agent => {
                agent::Stepped::start(agent_options(site)).map(|it| Any::Agent(Box::new(it)))
            }
            Daemon::Keeper => {
                keeper::Stepped::start(keeper_options()).map(|it| Any::Keeper(Box::new(it)))
            }
        });
        match started {
            Ok(started) => {
                if let (Any::Controller(controller), Some(before)) = (&started, before)
                    && controller.taken_over() != Some(before)
                {
                    self.wrong.push("the journal gives another state than there was".into());
                }
                self.ears.add(site, Ear::Daemon(daemon), started.poller());
                let now_ns = self.now_ns;
                self.seat(site, daemon).begin(started, now_ns);
                if daemon == Daemon::Controller {
                    self.lapses.note_begin(now_ns);
                }
                machine(site, |machine| machine.up.insert(daemon, true));
                self.wake_soon(site, daemon);
                self.after(site, daemon);
            }
            Err(error) => self.wrong.push(format!("{daemon:?} of n{site} can't start: {error:#}")),
        }
    }

    /// A daemon is gone from one moment to the next; its supervisor starts another one.
    pub(super) fn crash(&mut self, site: usize, daemon: Daemon, back_after_ns: u64) {
        self.note_core(daemon);
        if daemon == Daemon::Controller {
            self.note_launches();
        }
        let seat = self.seat(site, daemon);
        let life = seat.life;
        let was_there = seat.daemon.take();
        at(site, || drop(was_there));
        seat.wake_ns = None;
        if daemon == Daemon::Agent {
            self.sites[site].switch_ns = None;
            self.collect(site);
        }
        if daemon == Daemon::Keeper {
            self.sites[site].held.clear();
            self.launches.lose(self.now_ns);
        }
        machine(site, |machine| {
            machine.up.insert(daemon, false);
            machine.knocks.retain(|(whose, _)| *whose != daemon);
            if daemon == Daemon::Agent {
                machine.callers.clear();
            }
            if daemon == Daemon::Keeper {
                // Another process reaps them.
                machine.ended.clear();
            }
        });
        self.look_after(site);
        self.wake_users();
        self.plan(self.now_ns + back_after_ns, What::Start(site, daemon, life));
    }

    /// A machine loses its power, and has it again later.
    pub(super) fn lose_power(&mut self, site: usize, back_after_ns: u64) {
        if machine(site, |machine| machine.is_off) {
            return;
        }
        if site == HEAD {
            self.note_launches();
        }
        for daemon in [Daemon::Controller, Daemon::Agent, Daemon::Keeper] {
            let seat = self.seat(site, daemon);
            let was_there = seat.daemon.take();
            seat.wake_ns = None;
            seat.life += 1;
            at(site, || drop(was_there));
        }
        self.core = self.core.filter(|_| site != HEAD);
        self.lapses.lose_power(self.now_ns);
        let due = self.network.lose(site, self.now_ns);
        self.plan_all(due);
        // Not in whole seconds: by when it began a daemon tells itself from one before the loss of
        // power.
        let (drift, own_ns) =
            (machine(site, |it| it.clock.ppb), self.random.within(3_000_000_000, 30_000_000_000));
        machine(site, |machine| {
            machine.is_off = true;
            machine.lose_power();
            // Its clock begins anew with it; meanwhile nothing looks at it.
            machine.clock = Clock::new(self.now_ns + back_after_ns, own_ns, drift);
        });
        self.sites[site].former = None;
        self.sites[site].switch_ns = None;
        self.sites[site].held.clear();
        self.launches.lose(self.now_ns);
        self.look_after(site);
        if site == HEAD {
            self.users.vanish();
            let random = &mut self.random;
            let is_torn = self.script.tears && random.one_in(2);
            let kept = |count| usize::try_from(random.below(count as u64 + 1)).unwrap_or(0);
            self.disk.lose_power(kept, is_torn);
            self.wake_users();
        }
        self.plan(self.now_ns + back_after_ns, What::PowerOn(site));
    }

    // ------------------------------------------------------------------ what is remembered

    fn note_core(&mut self, daemon: Daemon) {
        if daemon == Daemon::Controller {
            let controller = self.controller().filter(|controller| controller.has_stored_all());
            self.core = controller.map(|controller| Core::digest(controller.core()));
        }
    }

    pub(super) fn note(&mut self, at_ns: u64, one: u64, two: u64, three: u64) {
        for word in [at_ns, one, two, three] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    pub(super) fn say(&self, text: std::fmt::Arguments<'_>) {
        if self.is_loud {
            tutti_node::simulated::say(self.now_ns, text);
        }
    }
}

fn instance() -> Instance {
    Instance::at(PathBuf::from("/run/tutti-world"))
}

fn agent_options(site: usize) -> AgentOptions {
    let address = machine(site, |machine| machine.address.clone());
    let head = machine(HEAD, |machine| machine.address.clone());
    AgentOptions {
        controller: "/world/controller".into(),
        keeper: "/world/keeper".into(),
        gate: "/world/gate".into(),
        vacate: "/world/vacate".into(),
        supervisor: "/world/supervisor".into(),
        private: false,
        membership: Some(Membership {
            cluster: "world".into(),
            name: name_of(site),
            listen: None,
            address: Some(address),
            head: if site == HEAD { Vec::new() } else { vec![head] },
            trusts_root: true,
            is_client: false,
            certificates_s: None,
        }),
        place: Place::of(&instance()),
        cgroup_name: "world".into(),
        node: name_of(site),
        program: None,
        released: tutti_types::JobId(0),
        images: None,
    }
}

fn keeper_options() -> KeeperOptions {
    KeeperOptions {
        socket: "/world/keeper".into(),
        instance_uid: nix::unistd::geteuid().as_raw(),
        spool: "/world/spool".into(),
        images: "/world/images".into(),
        shared_images: None,
        scratch: "/world/scratch".into(),
        cgroup_root: Some(machine::root_group()),
        released: "/world/released".into(),
    }
}
