//! Decisions of the resource manager of a virtual machine: which host gets which task, and what is
//! answered. It does no I/O: messages and ends of processes come in, orders come out.
//!
//! A spawn takes this way. The manager chooses hosts with free slots and asks their daemons to make
//! the tasks. A daemon asks its tasker, which is the manager again, to start their processes. The
//! tasks that a spawn has on one host start together, as one step of the job.

use super::notices::Notices;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
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

/// A host of the virtual machine.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// Its number.
    pub(super) tid: u32,
    /// The name of its node.
    pub(super) name: String,
    /// Its architecture, in PVM's words.
    pub(super) arch: ByteBuf,
    /// Its speed, as the daemon says.
    pub(super) speed: i32,
    /// How it stores numbers, as the daemon says.
    pub(super) signature: i32,
    /// Slots that the job has there.
    pub(super) slots: usize,
}

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
    /// Start processes.
    Start(Batch),
}

/// A task that daemons know.
#[derive(Debug)]
struct Task {
    parent: u32,
    flags: i32,
    file: ByteBuf,
}

/// A process that was asked for and has not ended.
#[derive(Debug)]
struct Process {
    has_slot: bool,
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
    hosts: Vec<Host>,
    tasks: BTreeMap<u32, Task>,
    processes: BTreeMap<u32, Process>,
    spawns: BTreeMap<u32, Pending>,
    parts: BTreeMap<u32, Part>,
    starts: BTreeMap<u32, Start>,
    made: Vec<Made>,
    notices: Notices,
    next: u32,
}

impl Manager {
    /// Of these hosts, on the first of which the user's program has a slot.
    pub(super) fn new(hosts: Vec<Host>) -> Self {
        let mut processes = BTreeMap::new();
        if let Some(first) = hosts.first() {
            processes.insert(first.tid, Process { has_slot: true });
        }
        Self {
            hosts,
            tasks: BTreeMap::new(),
            processes,
            spawns: BTreeMap::new(),
            parts: BTreeMap::new(),
            starts: BTreeMap::new(),
            made: Vec::new(),
            notices: Notices::default(),
            next: 1,
        }
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
            Heard::Hosts => answer(self.list_hosts()),
            Heard::Add(names) => answer(self.refuse_hosts(&names)),
            Heard::Remove(names) => {
                let pack = Pack::default().count(names.len());
                answer(names.iter().fold(pack, |pack, _| pack.int(error::DENIED)))
            }
            Heard::Notify(wish) => self.on_notify(&message, &wish),
            Heard::Ended { task, .. } => self.on_end_of_task(task),
            Heard::Successor => answer(Pack::default().int(error::ALREADY)),
            Heard::Start(start) if message.peer & DAEMON != 0 => self.on_start(start),
            Heard::Connect => {
                // Only over the daemons: this process has one connection.
                let denied = Pack::default().int(TASK_PROTOCOL).int(1).text(b"");
                let reply = Message { tag: tag::TC_CONACK, ..message.answer(denied) };
                vec![Order::Send(reply)]
            }
            Heard::Start(_)
            | Heard::Added(_)
            | Heard::HostLost(_)
            | Heard::StartHosts(_)
            | Heard::Other => Vec::new(),
        }
    }

    /// A process has ended, with a status as `wait` gives it.
    pub(super) fn on_end_of_process(&mut self, task: u32, status: i32) -> Vec<Order> {
        self.processes.remove(&task);
        let daemon = DAEMON | (task & HOST_BITS);
        let body = Pack::default().number(task).int(status).int(0).int(0).int(0).int(0);
        vec![Order::Send(Message::new(daemon, tag::SM_TASKX, body))]
    }

    /// The user's program has ended: its slot is free.
    pub(super) fn on_end_of_program(&mut self) {
        if let Some(first) = self.hosts.first() {
            self.processes.remove(&first.tid);
        }
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
            .filter(|host| is_wanted(host, spawn, parent))
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
        for &task in &tasks {
            self.processes.insert(task, Process { has_slot: part.has_slots });
            self.note(task, Task { parent, flags, file: file.clone() });
        }
        let mut orders: Vec<Order> = self.answer_if_whole(part.spawn).into_iter().collect();
        if !tasks.is_empty() {
            let is_server = !part.has_slots;
            let batch = Batch { host: part.host, is_server, ..Batch::default() };
            let tasks = tasks.into_iter().map(|task| (task, ByteBuf::new())).collect::<Vec<_>>();
            let missing = tasks.len();
            self.made.push(Made { batch: Batch { tasks, ..batch }, missing });
            orders.extend(self.start_made());
        }
        orders
    }

    fn note(&mut self, number: u32, task: Task) {
        if self.tasks.len() < TASKS_MAX && number & LOCAL_BITS != 0 && number & DAEMON == 0 {
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
        let mut orders: Vec<Order> =
            self.notices.on_end(task).into_iter().map(Order::Send).collect();
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
        orders.extend(self.start_made());
        orders
    }

    /// A number that answers have.
    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1).max(1);
        self.next
    }

    fn on_notify(&mut self, message: &Message, wish: &Notify) -> Vec<Order> {
        let (tasks, hosts) = (&self.tasks, &self.hosts);
        let is_there = |number: u32| match number & LOCAL_BITS {
            0 => hosts.iter().any(|host| host.tid == number & HOST_BITS),
            _ => tasks.contains_key(&number),
        };
        let sent = self.notices.on_wish(message, wish, is_there);
        sent.into_iter().map(Order::Send).collect()
    }

    fn list(&self, place: u32) -> Pack {
        if place != 0 && self.hosts.iter().all(|host| host.tid != place & HOST_BITS) {
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

    fn list_hosts(&self) -> Pack {
        let mut architectures: Vec<&ByteBuf> = self.hosts.iter().map(|host| &host.arch).collect();
        architectures.sort();
        architectures.dedup();
        let pack = Pack::default().count(self.hosts.len()).count(architectures.len());
        self.hosts.iter().fold(pack, |pack, host| {
            let pack = pack.number(host.tid).text(host.name.as_bytes()).text(&host.arch);
            pack.int(host.speed).int(host.signature)
        })
    }

    /// The hosts are the nodes of the job.
    fn refuse_hosts(&self, names: &[ByteBuf]) -> Pack {
        let pack = Pack::default().count(names.len()).int(1);
        names.iter().fold(pack, |pack, name| {
            let is_there = self.hosts.iter().any(|host| is_name_of(host, name));
            let code = if is_there { error::DUP_HOST } else { error::DENIED };
            pack.int(code).text(b"").text(b"").int(0).int(0)
        })
    }
}

impl Task {
    /// One that was not spawned.
    fn of_itself() -> Self {
        Self { parent: 0, flags: 0, file: ByteBuf::new() }
    }
}

fn is_name_of(host: &Host, name: &[u8]) -> bool {
    host.name.as_bytes().eq_ignore_ascii_case(name)
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
