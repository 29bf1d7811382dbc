//! A simulated machine: its clock, its groups of processes, the processes in them, and connections
//! that begin. What the kernel would do for the daemons, and nothing of what they do themselves.

use super::clock::Clock;
use super::process::{End, Process};
use super::random::Random;
use super::stream::{Stream, pair};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tracing::debug;
use tutti_linux::spawn::{Child, Spawn};
use tutti_secure::{Member, Name, Role};
use tutti_types::{JobId, Rank};

/// Numbers of simulated processes begin here: the kernel gives none so high.
const FIRST_PID: i32 = 1 << 23;

/// A daemon of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    Controller,
    Agent,
    Keeper,
}

/// Whose connections have something to be read, or room to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ear {
    Daemon(Daemon),
    /// What daemons of the machine have sent to other machines.
    Network,
}

/// A group of processes.
#[derive(Debug, Default)]
pub struct Group {
    /// Whether it is asked to be frozen.
    pub is_frozen: Cell<bool>,
    /// Whether its processes run where no other would.
    pub yields: Cell<bool>,
    /// Its own set of processors, if it has one.
    pub processors: Cell<Set>,
}

/// Processors of a machine, a bit for each. None: no set, as an empty `cpuset.cpus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u64);

impl Set {
    /// All of those in both; of those here, where no other are held.
    pub const fn within(self, outer: Self) -> Self {
        match (self.0 & outer.0, outer.0) {
            (0, 0) => self,
            (0, _) => outer,
            (common, _) => Self(common),
        }
    }

    /// Whether a process that is held to those can be bound to these.
    pub const fn can_bind(self, held: Self) -> bool {
        self.0 == 0 || held.0 == 0 || self.0 & held.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |bit| self.0 & (1 << bit) != 0)
    }
}

impl FromIterator<u32> for Set {
    fn from_iter<T: IntoIterator<Item = u32>>(processors: T) -> Self {
        let bits = processors.into_iter().map(|it| 1_u64.checked_shl(it).unwrap_or(0));
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

/// What processes may use in the innermost of these groups, each of which is in the next: as the
/// kernel has it, one without a set, or with none of those around it, has those.
pub fn held_to(within: &[Rc<Group>]) -> Set {
    let outermost_first = within.iter().rev();
    outermost_first.fold(Set::default(), |outer, group| group.processors.get().within(outer))
}

/// A task has run to its end by itself.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// In which launch of its job, if that is known.
    pub launch: Option<u32>,
    pub began_ns: u64,
    pub ended_ns: u64,
}

/// See the head of the file.
pub struct Machine {
    pub clock: Clock,
    /// Of the numbers that its daemons draw.
    pub random: Random,
    /// Where others reach its agent.
    pub address: String,
    /// Whether it has no power.
    pub is_off: bool,
    /// How often it has lost it.
    pub boots: u64,
    /// How many processors it has.
    pub processors: u32,
    /// Groups by their paths.
    pub groups: BTreeMap<PathBuf, Rc<Group>>,
    pub processes: BTreeMap<i32, Process>,
    /// Children of the keeper that have ended, and how.
    pub ended: Vec<(i32, tutti_linux::reap::End)>,
    next_pid: i32,
    /// Which daemons take connections.
    pub up: BTreeMap<Daemon, bool>,
    /// Connections that wait to be taken.
    pub knocks: Vec<(Daemon, Stream)>,
    /// Agents of other machines that wait to be let in.
    pub callers: Vec<(usize, Stream)>,
    /// Whether a group was frozen or thawed since the last look at what may run.
    pub is_refrozen: bool,
    /// When a process will do something next.
    due_ns: Option<u64>,
    /// Whether what runs may have changed since that was last looked at.
    pub changed: bool,
    /// What must never be, and was.
    pub wrong: Vec<String>,
    /// Tasks that have run to their end by themselves.
    pub finished: BTreeMap<(JobId, Rank), Vec<Ran>>,
}

/// A daemon begins a connection with another machine.
pub struct Dialled {
    pub from: usize,
    pub to: usize,
    /// The network's end of it.
    pub stream: Stream,
}

/// All machines of the world that this thread is in.
#[derive(Default)]
pub struct Machines {
    pub all: Vec<Machine>,
    pub dialled: Vec<Dialled>,
}

thread_local! {
    static MACHINES: RefCell<Machines> = RefCell::new(Machines::default());
    /// The machine whose daemon is at it.
    static HERE: Cell<Option<usize>> = const { Cell::new(None) };
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    /// How many things the daemon that is at it does before it is killed, if it is.
    static CUT: Cell<Option<u32>> = const { Cell::new(None) };
    /// What the clock of that machine shows now, once it was asked; 0 before.
    static OWN_NS: Cell<u64> = const { Cell::new(0) };
}

/// From now on so many things that a daemon does reach the outside, and nothing after them; none:
/// all do.
pub fn set_cut(left: Option<u32>) {
    CUT.set(left);
}

/// How many are left.
pub fn cut() -> Option<u32> {
    CUT.get()
}

/// A daemon does something that others notice: whether it does not get to that, since it is killed
/// before.
pub fn is_cut_off() -> bool {
    match CUT.get() {
        None => false,
        Some(0) => true,
        Some(left) => {
            CUT.set(Some(left - 1));
            false
        }
    }
}

/// At which machine the thread is, if it is in a simulated world.
pub fn here() -> Option<usize> {
    HERE.get()
}

/// Does something as a daemon of this machine would.
pub fn at<T>(machine: usize, act: impl FnOnce() -> T) -> T {
    let before = (HERE.replace(Some(machine)), OWN_NS.replace(0));
    let result = act();
    HERE.set(before.0);
    OWN_NS.set(before.1);
    result
}

/// The time in the world.
pub fn now() -> u64 {
    NOW_NS.get()
}

/// The thread is in no world any more.
pub fn leave() {
    HERE.set(None);
    CUT.set(None);
}

/// It is later.
pub fn set_now(now_ns: u64) {
    NOW_NS.set(now_ns);
    OWN_NS.set(0);
}

/// What the clock of the machine shows that the thread is at, if it is at one.
pub fn own_ns() -> Option<u64> {
    let here = HERE.get()?;
    if OWN_NS.get() == 0 {
        OWN_NS.set(machine(here, |machine| machine.clock.own_ns(NOW_NS.get())));
    }
    Some(OWN_NS.get())
}

/// What a machine has, for the simulation.
pub fn machine<T>(index: usize, act: impl FnOnce(&mut Machine) -> T) -> T {
    MACHINES.with_borrow_mut(|machines| act(&mut machines.all[index]))
}

/// All of them, for the simulation.
pub fn all<T>(act: impl FnOnce(&mut Machines) -> T) -> T {
    MACHINES.with_borrow_mut(act)
}

/// What is asked of the machine that the thread is at, if it is at one; with the time in the world.
pub fn with_here<T>(act: impl FnOnce(&mut Machine, u64) -> T) -> Option<T> {
    let here = HERE.get()?;
    Some(machine(here, |machine| act(machine, NOW_NS.get())))
}

/// What is asked of the network of the world, if the thread is in one.
pub fn with_machines<T>(act: impl FnOnce(&mut Machines, usize) -> T) -> Option<T> {
    let here = HERE.get()?;
    Some(all(|machines| act(machines, here)))
}

/// What a machine is called.
pub fn name_of(machine: usize) -> String {
    format!("n{machine}")
}

/// The node that a machine is, by its certificate.
pub fn member_of(machine: usize) -> Member {
    let name = |text: &str| Name::new(text).expect("a proper name");
    Member { cluster: name("world"), role: Role::Node, name: name(&name_of(machine)) }
}

impl Machines {
    /// Begins a connection; it is not known yet whether there is a peer.
    pub fn dial(&mut self, from: usize, address: &str) -> (io::Result<Stream>, Member) {
        let found = self.all.iter().position(|machine| machine.address == address);
        let to = found.expect("addresses of the world only");
        let stream = pair().map(|(ours, theirs)| {
            self.dialled.push(Dialled { from, to, stream: theirs });
            ours
        });
        (stream, member_of(to))
    }
}

impl Machine {
    pub fn new(index: usize, processors: u32, clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            is_off: true,
            boots: 0,
            processors,
            address: format!("{}:7716", name_of(index)),
            groups: BTreeMap::from([(root_group(), Rc::default())]),
            processes: BTreeMap::new(),
            ended: Vec::new(),
            next_pid: FIRST_PID,
            up: BTreeMap::new(),
            knocks: Vec::new(),
            callers: Vec::new(),
            is_refrozen: false,
            due_ns: None,
            changed: false,
            wrong: Vec::new(),
            finished: BTreeMap::new(),
        }
    }

    /// The power is gone: nothing is left but what is on disk, and no clock goes on.
    pub fn lose_power(&mut self) {
        self.boots += 1;
        self.groups = BTreeMap::from([(root_group(), Rc::default())]);
        self.processes.clear();
        self.due_ns = None;
        self.ended.clear();
        self.up.clear();
        self.knocks.clear();
        self.callers.clear();
        self.changed = true;
    }

    /// A daemon of this machine begins a connection with another one.
    pub fn connect(&mut self, path: &Path) -> io::Result<Stream> {
        let daemon = match path.file_name().and_then(|name| name.to_str()) {
            Some("controller") => Daemon::Controller,
            Some("keeper") => Daemon::Keeper,
            Some("gate") => Daemon::Agent,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        if !self.up.get(&daemon).copied().unwrap_or(false) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = pair()?;
        self.knocks.push((daemon, theirs));
        Ok(ours)
    }

    // ------------------------------------------------------------------ processes

    pub fn spawn(&mut self, spawn: &Spawn, now_ns: u64) -> io::Result<Child> {
        let pid = self.next_pid;
        self.next_pid += 1;
        let (mut process, child) = Process::make(pid, spawn, now_ns)?;
        process.stir();
        if !self.groups.contains_key(&process.group) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // None of them goes while there is a process in it.
        process.within = self.around(&process.group);
        if !spawn.held_by_group && !process.bound.can_bind(held_to(&process.within)) {
            return Err(io::Error::from_raw_os_error(nix::libc::EINVAL));
        }
        debug!("rank {} of job {} begins", process.rank, process.job);
        self.processes.insert(pid, process);
        self.settle(now_ns);
        Ok(child)
    }

    /// A group, and those above it.
    pub fn around(&self, group: &Path) -> Vec<Rc<Group>> {
        group.ancestors().filter_map(|path| self.groups.get(path)).cloned().collect()
    }

    /// Sends a signal; whether there is such a process.
    pub fn signal(&mut self, pid: i32, signal: i32, now_ns: u64) -> bool {
        if self.ended.iter().any(|(ended, _)| *ended == pid) {
            return true;
        }
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        process.signalled = process.signalled.or(Some(signal));
        self.settle(now_ns);
        true
    }

    /// Ends all processes of a group and of those below.
    pub fn kill_group(&mut self, path: &Path, now_ns: u64) {
        for process in self.processes.values_mut().filter(|it| it.group.starts_with(path)) {
            process.killed = true;
        }
        self.settle(now_ns);
    }

    /// All that has happened to processes up to now; from now on those run that may.
    pub fn settle(&mut self, now_ns: u64) {
        let mut processes = std::mem::take(&mut self.processes);
        let is_refrozen = std::mem::take(&mut self.is_refrozen);
        processes.retain(|&pid, process| {
            if is_refrozen || process.may_run.is_none() {
                process.may_run = Some(!process.is_frozen());
            }
            let may_run = process.may_run == Some(true);
            self.changed |= may_run != process.runs();
            let end = process.go_on(may_run, now_ns);
            let found = process.meeting.as_mut().and_then(|it| it.wrong.take());
            self.wrong.extend(found);
            match end {
                None => true,
                Some(end) => {
                    if matches!(end, End::Exit(_)) {
                        let task = (process.job, process.rank);
                        let Process { launch, began_ns, .. } = *process;
                        let ran = Ran { launch, began_ns, ended_ns: now_ns };
                        self.finished.entry(task).or_default().push(ran);
                    }
                    let (rank, job) = (process.rank, process.job);
                    super::remark(format_args!("rank {rank} of job {job} ends: {end:?}"));
                    self.ended.push((pid, end.of_kernel()));
                    self.changed = true;
                    false
                }
            }
        });
        self.due_ns = processes.values().filter_map(Process::due_ns).min();
        self.processes = processes;
        if self.changed {
            self.check_processors(now_ns);
        }
    }

    /// Processes that run, and not only where no other would.
    pub fn taking_turns(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|it| it.runs() && !it.makes_way())
    }

    /// No processor runs tasks of two jobs, at any moment.
    fn check_processors(&mut self, now_ns: u64) {
        let mut users: BTreeMap<u32, JobId> = BTreeMap::new();
        let mut wrong = Vec::new();
        for process in self.taking_turns() {
            for processor in process.processors().iter() {
                let other = *users.entry(processor).or_insert(process.job);
                if other != process.job {
                    let (address, job) = (&self.address, process.job);
                    wrong.push(format!(
                        "processor {processor} of {address} runs jobs {other} and {job} at {now_ns}"
                    ));
                }
            }
        }
        self.wrong.append(&mut wrong);
    }

    /// When a process will do something next.
    pub const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

/// The subtree of the instance.
pub fn root_group() -> PathBuf {
    PathBuf::from("/world/groups")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(processors: &[u32]) -> Set {
        processors.iter().copied().collect()
    }

    fn group(processors: &[u32]) -> Rc<Group> {
        let group = Group::default();
        group.processors.set(set(processors));
        Rc::new(group)
    }

    #[test]
    fn a_process_runs_on_its_own_processors_as_far_as_its_groups_leave_any() {
        let runs_on = |bound: &[u32], within: &[Rc<Group>]| set(bound).within(held_to(within));
        assert_eq!(runs_on(&[1], &[]), set(&[1]));
        assert_eq!(runs_on(&[1], &[group(&[]), group(&[0, 1])]), set(&[1]));
        // Its job was moved.
        assert_eq!(runs_on(&[1], &[group(&[]), group(&[2, 3])]), set(&[2, 3]));
        // A task whose own set is not the job's any more has the job's.
        assert_eq!(runs_on(&[1], &[group(&[1]), group(&[2])]), set(&[2]));
        assert_eq!(runs_on(&[0, 1], &[group(&[1, 2]), group(&[0, 1, 2])]), set(&[1]));
        assert!(!set(&[1]).can_bind(set(&[2])) && set(&[1]).can_bind(set(&[1, 2])));
        assert!(set(&[1]).can_bind(Set::default()), "no set holds it");
    }
}
