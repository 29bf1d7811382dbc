//! Decisions of the resource manager of a virtual machine: which host gets which task, and what is
//! answered. It does no I/O: messages and ends of processes come in, orders come out.
//!
//! A spawn takes this way. The manager chooses hosts with free slots and asks their daemons to make
//! the tasks. A daemon asks its tasker, which is the manager again, to start their processes. The
//! tasks that a spawn has on one host start together, as one step of the job.

use super::hosts::{self, Host, Hosts, is_daemon_of, is_name_of};
use super::notices::Notices;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use tutti_wire::limits::SPAWN_BYTES_MAX;
use tutti_wire::pvm::{
    DAEMON, Exec, HOST_BITS, Heard, LOCAL_BITS, Message, Notify, Pack, Spawn, Start, TASK_PROTOCOL,
    error, tag,
};

/// Maximum number of tasks of one spawn.
pub(super) const SPAWN_TASKS_MAX: i32 = 4096;

/// Maximum number of tasks, and of processes, at once.
const TASKS_MAX: usize = 16 << 10;

/// Maximum number of spawns whose tasks the daemons have not made yet.
const SPAWNS_MAX: usize = 1024;

/// Maximum length of an argument or a variable of a task. The kernel takes no longer one.
pub(super) const WORD_BYTES_MAX: usize = (128 << 10) - 1;

/// Maximum length of the arguments of a spawn, with [`WORD_BYTES`] for each. Its step adds words of
/// its own.
pub(super) const ARGUMENTS_BYTES_MAX: usize = SPAWN_BYTES_MAX - (16 << 10);

/// What an argument or a variable takes beside its bytes, at most.
const WORD_BYTES: usize = 32;

/// The length of the variable of its own that each task has, at most.
const OWN_BYTES: usize = 20;

/// Bits of a spawn's flags: the host is named, the architecture is, and any but those.
const TASK_HOST: i32 = 1;
const TASK_ARCH: i32 = 2;
const HOST_COMPLEMENT: i32 = 32;

/// The bit that asks for a debugger, which would have no terminal.
const TASK_DEBUG: i32 = 4;

/// The server of PVM's groups, which the library spawns when the first task joins a group. It waits
/// for messages, so it has no slot of its own.
const GROUP_SERVER: &[u8] = b"pvmgs";

/// The variable that names the directory of spawned tasks.
const DIRECTORY: &[u8] = b"PVMSPAWNWD=";

/// Processes of one host that are to start together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// The host.
    pub(super) host: u32,
    /// The program's path, and arguments.
    pub(super) argv: Vec<ByteBuf>,
    /// `NAME=value`, for all.
    pub(super) environment: Vec<ByteBuf>,
    /// Where they start; `None`: where the virtual machine was started.
    pub(super) directory: Option<ByteBuf>,
    /// Where their output goes: a task, a context and a tag; `None`: to the terminal.
    pub(super) output: Option<[u32; 3]>,
    /// Whether they only serve other tasks: they take no slots, and end with the virtual machine.
    pub(super) is_server: bool,
    /// The tasks. Each has a variable of its own, by which the daemon recognizes it.
    pub(super) tasks: Vec<(u32, ByteBuf)>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Send a message.
    Send(Message),
    /// Send a message as the tasker of a host.
    Report {
        /// The host.
        host: u32,
        /// The message.
        message: Message,
    },
    /// Start processes.
    Start(Batch),
    /// Start a daemon.
    StartHost {
        /// The number of its host.
        host: u32,
        /// The name of its node.
        node: String,
        /// Its arguments.
        command: Vec<String>,
    },
    /// End what runs on a host that is gone.
    EndHost(u32),
    /// Tell the user why a spawn was refused.
    Complain(String),
}

/// A task that daemons know.
#[derive(Debug)]
struct Task {
    parent: u32,
    flags: i32,
    file: ByteBuf,
}

/// What a task hears that collects the output of others (`pvm_catchout`): a line; `None`: that all
/// has come.
///
/// The daemon says that the output has ended when a task leaves PVM, which may be too early. The
/// library counts it as ended once it has also heard that the task was spawned. A daemon with a
/// tasker never says that. So it is said when all has come.
pub(super) fn output([to, context, tag]: [u32; 3], task: u32, line: Option<&[u8]>) -> Message {
    const SPAWNED: i32 = -1;
    let pack = Pack::default().number(task);
    let pack = match line {
        Some(line) => pack.bytes(line),
        None => pack.int(SPAWNED).number(to),
    };
    Message { context, ..Message::new(to, tag, pack) }
}

/// A process that was asked for and has not ended.
#[derive(Debug)]
struct Process {
    has_slot: bool,
    /// Whether it has left PVM (`pvm_exit`). Others hear of its end when its slot is free.
    has_left: bool,
}

impl Process {
    const fn new(has_slot: bool) -> Self {
        Self { has_slot, has_left: false }
    }
}

/// A spawn that daemons have not answered whole.
#[derive(Debug)]
struct Pending {
    request: Message,
    spawn: Spawn,
    made: Vec<i32>,
    parts: usize,
}

/// What one daemon was asked for.
#[derive(Debug)]
struct Part {
    spawn: u32,
    host: u32,
    /// Places in the answer to the spawn.
    places: Vec<usize>,
    has_slots: bool,
}

/// Tasks that were made, and wait until their tasker was asked to start each of them.
#[derive(Debug)]
struct Made {
    batch: Batch,
    missing: usize,
}

/// The resource manager.
#[derive(Debug)]
pub(super) struct Manager {
    hosts: Hosts,
    /// The host of the program.
    home: u32,
    taskers: BTreeSet<u32>,
    tasks: BTreeMap<u32, Task>,
    processes: BTreeMap<u32, Process>,
    spawns: BTreeMap<u32, Pending>,
    parts: BTreeMap<u32, Part>,
    starts: BTreeMap<u32, Start>,
    made: Vec<Made>,
    notices: Notices,
    next: u32,
    /// Maximum length of arguments and variables of a task together.
    room: usize,
}

impl Manager {
    /// Of these hosts, the first of which has its own daemon. Arguments and variables of a task may
    /// have `room` bytes together.
    pub(super) const fn new(hosts: Hosts, room: usize) -> Self {
        let processes = BTreeMap::new();
        Self {
            hosts,
            home: 0,
            taskers: BTreeSet::new(),
            tasks: BTreeMap::new(),
            processes,
            spawns: BTreeMap::new(),
            parts: BTreeMap::new(),
            starts: BTreeMap::new(),
            made: Vec::new(),
            notices: Notices::new(),
            next: 1,
            room,
        }
    }

    /// Has all nodes of the job become hosts.
    pub(super) fn begin(&mut self) -> Vec<Order> {
        let (names, wait) = (self.hosts.others(), self.number());
        self.hosts.add(None, &names, wait)
    }

    /// Whether no node is becoming a host.
    pub(super) const fn is_settled(&self) -> bool {
        !self.hosts.are_joining()
    }

    /// The nodes of the job that are no hosts.
    pub(super) fn nodes_without(&self) -> Vec<String> {
        let names = self.hosts.others().into_iter();
        names.map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
    }

    /// Whether a host is the one with the manager's daemon.
    pub(super) fn is_first(&self, host: u32) -> bool {
        self.hosts.first().is_some_and(|first| first.tid == host)
    }

    /// The host on which the user's program is to start, by the name of its node. It has a slot.
    pub(super) fn start_program(&mut self, name: &str) -> Option<u32> {
        let host = self.hosts.iter().find(|host| is_name_of(host, name.as_bytes()))?;
        self.home = host.tid;
        self.processes.insert(host.tid, Process::new(true));
        Some(host.tid)
    }

    /// What a message to the tasker of another host calls for.
    pub(super) fn on_message_of(&mut self, host: u32, message: &Message) -> Vec<Order> {
        match Heard::read(message) {
            Ok(Heard::Start(start)) if is_daemon_of(message.peer, host) => self.on_start(start),
            Ok(Heard::Connect) => vec![Order::Report { host, message: no_connection(message) }],
            _ => Vec::new(),
        }
    }

    /// The daemon of a host has said how others reach it; `None`: it could not be started.
    pub(super) fn on_line(&mut self, host: u32, line: Option<Vec<u8>>) -> Vec<Order> {
        self.hosts.on_line(host, line)
    }

    /// The tasker of a host serves. It is no task that others see.
    pub(super) fn on_ready(&mut self, tasker: u32) -> Vec<Order> {
        self.tasks.remove(&tasker);
        self.taskers.insert(tasker);
        self.hosts.on_ready(tasker & HOST_BITS)
    }

    /// What serves a host has ended. Daemons would take minutes to find that out.
    pub(super) fn on_end_of_host(&mut self, host: u32) -> Vec<Order> {
        let name = self.hosts.iter().find(|it| it.tid == host).map(|it| it.name.clone());
        let mut orders = self.on_host_lost(host);
        let names = name.map(|name| ByteBuf::from(name.into_bytes()));
        orders.extend(names.map(|name| Order::Send(hosts::remove(&[name], 0))));
        orders
    }

    /// What a message calls for. One that can't be read is answered where an answer is waited for.
    pub(super) fn on_message(&mut self, message: Message) -> Vec<Order> {
        let Ok(heard) = Heard::read(&message) else {
            let is_asked = [tag::SM_SPAWN, tag::SM_TASK, tag::SM_ADDHOST, tag::SM_DELHOST];
            let refusal = || message.answer(Pack::default().int(error::BAD_MSG));
            return is_asked
                .contains(&message.tag)
                .then(refusal)
                .map(Order::Send)
                .into_iter()
                .collect();
        };
        let answer = |body: Pack| vec![Order::Send(message.answer(body))];
        match heard {
            Heard::Spawn(spawn) => self.on_spawn(message, spawn),
            Heard::Made(made) => self.on_made(&message, &made),
            Heard::List(place) => answer(self.list(place)),
            Heard::Hosts => answer(self.hosts.list()),
            Heard::Add(names) => {
                let wait = self.number();
                self.hosts.add(Some(message), &names, wait)
            }
            Heard::Remove(names) => {
                let wait = self.number();
                self.hosts.ask_to_remove(message, &names, wait).into_iter().collect()
            }
            _ if message.peer & DAEMON != 0 => self.on_message_of_daemon(message, heard),
            Heard::Notify(wish) => self.on_notify(&message, &wish),
            Heard::Successor => answer(Pack::default().int(error::ALREADY)),
            Heard::Connect => vec![Order::Send(no_connection(&message))],
            _ => Vec::new(),
        }
    }

    /// What only daemons say.
    fn on_message_of_daemon(&mut self, message: Message, heard: Heard) -> Vec<Order> {
        match heard {
            Heard::Ended { task, .. } => self.on_end_of_task(task),
            Heard::Start(start) => self.on_start(start),
            Heard::StartHosts(wanted) => self.hosts.start(message, wanted),
            Heard::Added(added) => self.hosts.on_added(&message, added, &mut self.notices),
            Heard::Removed(codes) => self.hosts.on_removed(&message, &codes).into_iter().collect(),
            Heard::HostLost(host) => self.on_host_lost(host & HOST_BITS),
            _ => Vec::new(),
        }
    }

    /// A host is gone, and all of its tasks.
    fn on_host_lost(&mut self, host: u32) -> Vec<Order> {
        if self.hosts.first().is_some_and(|first| first.tid == host) {
            return Vec::new();
        }
        let (was_there, mut orders) = self.hosts.remove(host);
        if !was_there {
            return orders;
        }
        let is_there = |task: u32| task & HOST_BITS == host && task & LOCAL_BITS != 0;
        let parts: Vec<u32> = self
            .parts
            .iter()
            .filter(|(_, part)| part.host == host)
            .map(|(&wait, _)| wait)
            .collect();
        for wait in parts {
            let Some(part) = self.parts.remove(&wait) else { continue };
            if let Some(spawn) = self.spawns.get_mut(&part.spawn) {
                for place in part.places {
                    spawn.made[place] = error::HOST_FAIL;
                }
                spawn.parts -= 1;
                orders.extend(self.answer_if_whole(part.spawn));
            }
        }
        orders.push(Order::EndHost(host));
        let known = self.tasks.keys().chain(self.processes.keys()).copied();
        let ended: BTreeSet<u32> = known.filter(|&task| is_there(task)).collect();
        self.processes.retain(|&task, _| !is_there(task));
        for task in ended {
            orders.extend(self.on_end_of_task(task));
        }
        self.taskers.retain(|&task| !is_there(task));
        orders.extend(self.notices.on_end(host).into_iter().map(Order::Send));
        orders
    }

    /// A process has ended, with a status as `wait` gives it.
    pub(super) fn on_end_of_process(&mut self, task: u32, status: i32) -> Vec<Order> {
        let has_left = self.processes.remove(&task).is_some_and(|it| it.has_left);
        let told = if has_left { self.notices.on_end(task) } else { Vec::new() };
        let mut orders: Vec<Order> = told.into_iter().map(Order::Send).collect();
        let daemon = DAEMON | (task & HOST_BITS);
        let body = Pack::default().number(task).int(status).int(0).int(0).int(0).int(0);
        let message = Message::new(daemon, tag::SM_TASKX, body);
        orders.push(Order::Report { host: task & HOST_BITS, message });
        orders
    }

    /// The user's program has ended: its slot is free.
    pub(super) fn on_end_of_program(&mut self) {
        self.processes.remove(&self.home);
    }

    fn on_spawn(&mut self, request: Message, mut spawn: Spawn) -> Vec<Order> {
        let is_full =
            self.spawns.len() >= SPAWNS_MAX || self.processes.len() + self.tasks.len() >= TASKS_MAX;
        let refused = match spawn.count {
            ..1 => Some(error::BAD_PARAM),
            count if is_full || count > SPAWN_TASKS_MAX => Some(error::OUT_OF_RES),
            _ => None,
        };
        if let Some(code) = refused {
            return vec![Order::Send(request.answer(Pack::default().int(code)))];
        }
        if let Some(reason) = self.too_long(&spawn) {
            // No daemon would say so: to them, a task has started once they know it.
            let answer = request.answer(Pack::default().int(error::BAD_PARAM));
            return vec![Order::Complain(reason), Order::Send(answer)];
        }
        spawn.flags &= !TASK_DEBUG;
        let has_slots = name_of(&spawn.file) != GROUP_SERVER;
        let (made, places) = self.place(&spawn, request.peer, has_slots);
        let number = self.number();
        let mut orders = Vec::new();
        let mut parts = 0;
        for (host, places) in places {
            let wait = self.number();
            let first = places.first().copied().unwrap_or_default();
            let exec = Exec { parent: request.peer, spawn: &spawn, count: places.len(), first };
            let message = Message::new(DAEMON | host, tag::SM_EXEC, exec.pack());
            orders.push(Order::Send(Message { wait, ..message }));
            self.parts.insert(wait, Part { spawn: number, host, places, has_slots });
            parts += 1;
        }
        self.spawns.insert(number, Pending { request, spawn, made, parts });
        orders.extend(self.answer_if_whole(number));
        orders
    }

    /// What of a spawn is longer than a task may have it.
    fn too_long(&self, spawn: &Spawn) -> Option<String> {
        let arguments = || std::iter::once(&spawn.file).chain(&spawn.arguments);
        let longest = arguments().chain(&spawn.environment).map(|word| word.len()).max();
        if let Some(bytes) = longest.filter(|bytes| *bytes > WORD_BYTES_MAX) {
            return Some(format!(
                "an argument or variable has {bytes} bytes; {WORD_BYTES_MAX} is the most"
            ));
        }
        let arguments: usize = arguments().map(|word| word.len() + WORD_BYTES).sum();
        if arguments > ARGUMENTS_BYTES_MAX {
            return Some(format!(
                "the arguments take {arguments} bytes; {ARGUMENTS_BYTES_MAX} is the most, and each \
                 takes {WORD_BYTES} beside its own"
            ));
        }
        let variables: usize = spawn.environment.iter().map(|it| it.len() + WORD_BYTES).sum();
        let own = OWN_BYTES * usize::try_from(spawn.count).unwrap_or_default();
        let all = arguments + variables + own;
        (all > self.room).then(|| {
            format!("arguments and variables take {all} bytes; {} is the most here", self.room)
        })
    }

    /// The host of each task, and an error for each that has none.
    fn place(
        &self,
        spawn: &Spawn,
        parent: u32,
        has_slots: bool,
    ) -> (Vec<i32>, BTreeMap<u32, Vec<usize>>) {
        let mut free: Vec<(u32, i64)> = self
            .hosts
            .iter()
            .filter(|host| host.is_ready && is_wanted(host, spawn, parent))
            .map(|host| (host.tid, self.free_slots(host)))
            .collect();
        let code = if free.is_empty() { error::NO_HOST } else { error::OUT_OF_RES };
        let mut made = vec![code; usize::try_from(spawn.count).unwrap_or_default()];
        let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, made) in made.iter_mut().enumerate() {
            // The first of those with the most.
            let best = free.iter_mut().rev().max_by_key(|(_, free)| *free);
            let Some((host, free)) = best else { break };
            if *free < 1 && has_slots {
                break;
            }
            *free -= 1;
            *made = 0;
            places.entry(*host).or_default().push(place);
        }
        (made, places)
    }

    fn free_slots(&self, host: &Host) -> i64 {
        let is_there = |task: &u32| task & HOST_BITS == host.tid;
        let run = self.processes.iter().filter(|(task, it)| it.has_slot && is_there(task)).count();
        let parts = self.parts.values().filter(|part| part.has_slots && part.host == host.tid);
        let asked: usize = parts.map(|part| part.places.len()).sum();
        let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        of(host.slots) - of(run + asked)
    }

    fn on_made(&mut self, message: &Message, made: &[i32]) -> Vec<Order> {
        let is_of_daemon = message.peer & DAEMON != 0;
        let part = is_of_daemon.then(|| self.parts.remove(&message.wait)).flatten();
        let Some(part) = part else {
            // A task has connected that was not spawned.
            for &task in made.iter().filter(|&&task| task > 0 && is_of_daemon).take(1) {
                self.note(task.cast_unsigned(), Task::of_itself());
            }
            return Vec::new();
        };
        let Some(spawn) = self.spawns.get_mut(&part.spawn) else { return Vec::new() };
        let mut tasks = Vec::new();
        for (&place, &task) in part.places.iter().zip(made) {
            if let Some(slot) = spawn.made.get_mut(place) {
                *slot = task;
            }
            let number = task.cast_unsigned();
            if task > 0 && number & HOST_BITS == part.host {
                tasks.push(number);
            }
        }
        spawn.parts -= 1;
        let (parent, flags) = (spawn.request.peer, spawn.spawn.flags);
        let file = spawn.spawn.file.clone();
        let [to, context, tag, ..] = spawn.spawn.sinks;
        let is_task = to & LOCAL_BITS != 0 && to & DAEMON == 0;
        let output = (is_task && part.has_slots).then_some([to, context, tag]);
        for &task in &tasks {
            self.processes.insert(task, Process::new(part.has_slots));
            self.note(task, Task { parent, flags, file: file.clone() });
        }
        let mut orders: Vec<Order> = self.answer_if_whole(part.spawn).into_iter().collect();
        if !tasks.is_empty() {
            let is_server = !part.has_slots;
            let batch = Batch { host: part.host, is_server, output, ..Batch::default() };
            let tasks = tasks.into_iter().map(|task| (task, ByteBuf::new())).collect::<Vec<_>>();
            let missing = tasks.len();
            self.made.push(Made { batch: Batch { tasks, ..batch }, missing });
            orders.extend(self.start_made());
        }
        orders
    }

    fn note(&mut self, number: u32, task: Task) {
        let is_hidden = self.taskers.contains(&number) || self.tasks.len() >= TASKS_MAX;
        if !is_hidden && number & LOCAL_BITS != 0 && number & DAEMON == 0 {
            self.tasks.insert(number, task);
        }
    }

    fn answer_if_whole(&mut self, number: u32) -> Option<Order> {
        let spawn = self.spawns.get(&number).filter(|spawn| spawn.parts == 0)?;
        let pack = Pack::default().count(spawn.made.len());
        let pack = spawn.made.iter().fold(pack, |pack, &made| pack.int(made));
        let answer = spawn.request.answer(pack);
        self.spawns.remove(&number);
        Some(Order::Send(answer))
    }

    fn on_start(&mut self, start: Start) -> Vec<Order> {
        if self.starts.len() >= TASKS_MAX || start.argv.is_empty() {
            return Vec::new();
        }
        self.starts.insert(start.task, start);
        self.start_made().into_iter().collect()
    }

    /// The batches of which all tasks are to start.
    fn start_made(&mut self) -> Option<Order> {
        let starts = &mut self.starts;
        for made in &mut self.made {
            for (task, cookie) in made.batch.tasks.iter_mut().filter(|(_, it)| it.is_empty()) {
                let Some(start) = starts.remove(task) else { continue };
                made.missing -= 1;
                let is_cookie = |variable: &ByteBuf| variable.starts_with(b"PVMEPID=");
                let (own, all) = start.environment.into_iter().partition(is_cookie);
                let own: Vec<ByteBuf> = own;
                let own = own.into_iter().find(|it| it[8..].iter().all(u8::is_ascii_digit));
                *cookie = own.unwrap_or_else(|| ByteBuf::from(*b"PVMEPID=0"));
                if made.batch.argv.is_empty() {
                    made.batch.directory = directory(&all);
                    made.batch.environment = all;
                    made.batch.argv = start.argv;
                }
            }
        }
        let at = self.made.iter().position(|made| made.missing == 0)?;
        Some(Order::Start(self.made.swap_remove(at).batch))
    }

    fn on_end_of_task(&mut self, task: u32) -> Vec<Order> {
        self.tasks.remove(&task);
        self.starts.remove(&task);
        self.notices.forget(task);
        // It may be one that was not started yet: the others of its spawn are.
        for made in &mut self.made {
            let is_it = |(other, cookie): &(u32, ByteBuf)| *other == task && cookie.is_empty();
            if let Some(at) = made.batch.tasks.iter().position(is_it) {
                made.batch.tasks.remove(at);
                made.missing -= 1;
                self.processes.remove(&task);
            }
        }
        self.made.retain(|made| !made.batch.tasks.is_empty());
        let mut orders = Vec::new();
        match self.processes.get_mut(&task) {
            Some(process) => process.has_left = true,
            None => orders.extend(self.notices.on_end(task).into_iter().map(Order::Send)),
        }
        orders.extend(self.start_made());
        orders
    }

    /// A number that answers have.
    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1).max(1);
        self.next
    }

    fn on_notify(&mut self, message: &Message, wish: &Notify) -> Vec<Order> {
        let (tasks, processes, hosts) = (&self.tasks, &self.processes, &self.hosts);
        let is_there = |number: u32| match number & LOCAL_BITS {
            0 => hosts.has(number & HOST_BITS),
            _ => tasks.contains_key(&number) || processes.contains_key(&number),
        };
        let sent = self.notices.on_wish(message, wish, is_there);
        sent.into_iter().map(Order::Send).collect()
    }

    fn list(&self, place: u32) -> Pack {
        if place != 0 && !self.hosts.has(place & HOST_BITS) {
            return Pack::default().int(error::NO_HOST);
        }
        let is_asked = |task: u32| match (place, place & LOCAL_BITS) {
            (0, _) => true,
            (_, 0) => task & HOST_BITS == place & HOST_BITS,
            _ => task == place,
        };
        let asked = self.tasks.iter().filter(|(task, _)| is_asked(**task));
        asked.fold(Pack::default().int(0), |pack, (&number, task)| {
            let pack = pack.number(number).number(task.parent).number(number & HOST_BITS);
            // The daemon knows the number of the process.
            pack.int(task.flags).text(&task.file).int(0)
        })
    }
}

impl Task {
    /// One that was not spawned.
    fn of_itself() -> Self {
        Self { parent: 0, flags: 0, file: ByteBuf::new() }
    }
}

/// The answer to a task that would connect without the daemons between: there is one connection.
fn no_connection(message: &Message) -> Message {
    let denied = Pack::default().int(TASK_PROTOCOL).int(1).text(b"");
    Message { tag: tag::TC_CONACK, ..message.answer(denied) }
}

/// Whether a spawn may have tasks on a host.
fn is_wanted(host: &Host, spawn: &Spawn, parent: u32) -> bool {
    let place: &[u8] = &spawn.place;
    let is_named = match spawn.flags & (TASK_HOST | TASK_ARCH) {
        0 => return true,
        TASK_ARCH => host.arch.as_slice() == place,
        _ if place == b"." => host.tid == parent & HOST_BITS,
        _ => is_name_of(host, place),
    };
    is_named != (spawn.flags & HOST_COMPLEMENT != 0)
}

/// The directory that variables of a spawn name.
fn directory(environment: &[ByteBuf]) -> Option<ByteBuf> {
    let named = environment.iter().find_map(|variable| variable.strip_prefix(DIRECTORY));
    named.map(ByteBuf::from)
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
