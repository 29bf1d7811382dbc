//! Hosts of the virtual machine: the nodes of its job. Each has a daemon and a tasker.
//!
//! A node becomes a host this way. The manager asks the first daemon to add it. That asks its
//! hoster, which is the manager again, to start a daemon there, and passes on what the new daemon
//! says. The host has tasks once its tasker serves, too.

use super::manager::Order;
use super::notices::Notices;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use tutti_wire::pvm::{
    Added, CONTEXT_DAEMON, DAEMON, HOST_BITS, HostToStart, Message, Pack, error, tag,
};

/// The answer to a daemon about a host on which no daemon could be started.
const NOT_STARTED: &str = "PvmCantStart";

/// Maximum number of requests to remove hosts that daemons have not answered.
const REMOVALS_MAX: usize = 1024;

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
    /// Whether its tasker serves.
    pub(super) is_ready: bool,
}

/// A node of the job.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its name.
    pub(super) name: String,
    /// Where other nodes reach it.
    pub(super) address: String,
    /// Slots that the job has there.
    pub(super) slots: usize,
}

/// Nodes that are becoming hosts, all that one request names.
#[derive(Debug)]
struct Joining {
    /// The number of the request to the first daemon.
    wait: u32,
    /// The request of a task; `None`: the manager's own.
    request: Option<Message>,
    /// For each name of the request the node that it means, or an error.
    places: Vec<Result<String, i32>>,
    /// What the first daemon has said of those without an error.
    added: Option<Vec<Added>>,
}

/// Daemons that are being started.
#[derive(Debug)]
struct Starting {
    request: Message,
    hosts: Vec<u32>,
    lines: BTreeMap<u32, Vec<u8>>,
}

/// A request to remove hosts.
#[derive(Debug)]
struct Removal {
    request: Message,
    /// A code for each name; `None`: the first daemon says it.
    codes: Vec<Option<i32>>,
}

/// All hosts, and the nodes that may be.
#[derive(Debug)]
pub(super) struct Hosts {
    all: Vec<Host>,
    nodes: Vec<Node>,
    joining: Option<Joining>,
    starting: Option<Starting>,
    /// Hosts of taskers that serve before the first daemon has said that they are added.
    early: BTreeSet<u32>,
    removals: BTreeMap<u32, Removal>,
}

impl Hosts {
    /// The first hosts, the first of which has the manager's daemon, and all nodes of the job.
    pub(super) const fn new(all: Vec<Host>, nodes: Vec<Node>) -> Self {
        Self {
            all,
            nodes,
            joining: None,
            starting: None,
            early: BTreeSet::new(),
            removals: BTreeMap::new(),
        }
    }

    /// All that are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Host> {
        self.all.iter()
    }

    /// The one with the manager's daemon.
    pub(super) fn first(&self) -> Option<&Host> {
        self.all.first()
    }

    /// Whether nodes are becoming hosts.
    pub(super) const fn are_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Whether there is a host of this number.
    pub(super) fn has(&self, tid: u32) -> bool {
        self.all.iter().any(|host| host.tid == tid)
    }

    /// The nodes that are no hosts.
    pub(super) fn others(&self) -> Vec<ByteBuf> {
        let others = self.nodes.iter().filter(|node| !self.is_host(&node.name));
        others.map(|node| ByteBuf::from(node.name.as_bytes())).collect()
    }

    fn is_host(&self, name: &str) -> bool {
        self.all.iter().any(|host| is_name_of(host, name.as_bytes()))
    }

    /// Has nodes become hosts, which a task has asked for, or the manager itself.
    pub(super) fn add(
        &mut self,
        request: Option<Message>,
        names: &[ByteBuf],
        wait: u32,
    ) -> Vec<Order> {
        let mut places: Vec<Result<String, i32>> = Vec::new();
        for name in names {
            // Options may follow.
            let name = name.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            let node = self.nodes.iter().find(|it| it.name.as_bytes().eq_ignore_ascii_case(name));
            let place = match node {
                Some(_) if self.joining.is_some() => Err(error::ALREADY),
                Some(node) if self.is_host(&node.name) => Err(error::DUP_HOST),
                Some(node) if places.contains(&Ok(node.name.clone())) => Err(error::DUP_HOST),
                Some(node) => Ok(node.name.clone()),
                None if self.all.iter().any(|host| is_name_of(host, name)) => Err(error::DUP_HOST),
                // The hosts are the nodes of the job.
                None => Err(error::DENIED),
            };
            places.push(place);
        }
        let asked: Vec<ByteBuf> = places.iter().flatten().filter_map(|it| self.named(it)).collect();
        let joining = Joining { wait, request, places, added: None };
        let Some(first) = self.first().filter(|_| !asked.is_empty()) else {
            return joining.answer(&[]).map(Order::Send).into_iter().collect();
        };
        let message = Message::new(DAEMON | first.tid, tag::SM_ADD, Pack::default().texts(&asked));
        self.joining = Some(joining);
        vec![Order::Send(Message { wait, ..message })]
    }

    /// A node in the words of a host file.
    fn named(&self, name: &str) -> Option<ByteBuf> {
        let node = self.nodes.iter().find(|node| node.name == name)?;
        Some(ByteBuf::from(format!("{} ip={}", node.name, node.address).into_bytes()))
    }

    /// The first daemon wants daemons to be started.
    pub(super) fn start(&mut self, request: Message, wanted: Vec<HostToStart>) -> Vec<Order> {
        let is_first = self.first().is_some_and(|host| is_daemon_of(request.peer, host.tid));
        if !is_first || self.joining.is_none() || wanted.len() > self.nodes.len() {
            return Vec::new();
        }
        let mut starting = Starting { request, hosts: Vec::new(), lines: BTreeMap::new() };
        let mut orders = Vec::new();
        for host in wanted {
            starting.hosts.push(host.host);
            let node =
                self.nodes.iter().find(|node| host.login.as_slice() == node.address.as_bytes());
            let words = host.command.split(|&byte| byte == b' ').map(String::from_utf8_lossy);
            // Its path is for the node to find.
            let command: Vec<String> = words.skip(1).map(std::borrow::Cow::into_owned).collect();
            match node {
                Some(node) => orders.push(Order::StartHost {
                    host: host.host,
                    node: node.name.clone(),
                    command,
                }),
                None => drop(starting.lines.insert(host.host, NOT_STARTED.into())),
            }
        }
        self.starting = Some(starting);
        orders.extend(self.answer_hosters());
        orders
    }

    /// A daemon has said how others reach it; `None`: it could not be started.
    pub(super) fn on_line(&mut self, host: u32, line: Option<Vec<u8>>) -> Vec<Order> {
        if let Some(starting) = self.starting.as_mut().filter(|it| it.hosts.contains(&host)) {
            starting
                .lines
                .entry(host)
                .or_insert_with(|| line.unwrap_or_else(|| NOT_STARTED.into()));
        }
        self.answer_hosters().into_iter().collect()
    }

    fn answer_hosters(&mut self) -> Option<Order> {
        let starting = self.starting.take_if(|it| it.lines.len() >= it.hosts.len())?;
        let pack = Pack::default().count(starting.lines.len());
        let pack =
            starting.lines.iter().fold(pack, |pack, (&host, line)| pack.number(host).text(line));
        let answer = starting.request.answer(pack);
        Some(Order::Send(Message { tag: tag::SM_STHOSTACK, ..answer }))
    }

    /// The first daemon has added hosts, or says why not.
    pub(super) fn on_added(
        &mut self,
        message: &Message,
        added: Result<Vec<Added>, i32>,
        notices: &mut Notices,
    ) -> Vec<Order> {
        let Some(joining) = self.joining.as_mut().filter(|it| it.wait == message.wait) else {
            return Vec::new();
        };
        self.starting = None;
        let names = joining.places.iter().flatten();
        let added = match added {
            Ok(added) => added,
            Err(code) => names.clone().map(|_| failed(code)).collect(),
        };
        let mut new = Vec::new();
        for (name, host) in names.zip(&added) {
            let node = self.nodes.iter().find(|node| node.name == *name);
            let tid = host.host.cast_unsigned();
            if let (true, Some(node)) = (host.host > 0 && tid & !HOST_BITS == 0, node) {
                self.all.push(Host {
                    tid,
                    name: node.name.clone(),
                    arch: host.arch.clone(),
                    speed: host.speed,
                    signature: host.signature,
                    slots: node.slots,
                    is_ready: self.early.remove(&tid),
                });
                new.push(tid);
            }
        }
        joining.added = Some(added);
        let mut orders: Vec<Order> = notices.on_new(&new).into_iter().map(Order::Send).collect();
        orders.extend(self.end_joining());
        orders
    }

    /// A host's tasker serves.
    pub(super) fn on_ready(&mut self, host: u32) -> Vec<Order> {
        match self.all.iter_mut().find(|it| it.tid == host) {
            Some(host) => host.is_ready = true,
            None => drop(self.early.insert(host)),
        }
        self.end_joining().into_iter().collect()
    }

    /// Answers when each new host is ready, or gone.
    fn end_joining(&mut self) -> Option<Order> {
        let all = &self.all;
        let waits = |added: &Added| {
            all.iter().any(|host| host.tid == added.host.cast_unsigned() && !host.is_ready)
        };
        let joining =
            self.joining.take_if(|it| it.added.as_ref().is_some_and(|it| !it.iter().any(waits)))?;
        joining.answer(all).map(Order::Send)
    }

    /// A host is gone. Gives whether it was there.
    pub(super) fn remove(&mut self, tid: u32) -> (bool, Vec<Order>) {
        let before = self.all.len();
        self.all.retain(|host| host.tid != tid);
        self.early.remove(&tid);
        let orders = self.on_line(tid, None);
        (self.all.len() < before, orders.into_iter().chain(self.end_joining()).collect())
    }

    /// A task asks to remove hosts.
    pub(super) fn ask_to_remove(
        &mut self,
        request: Message,
        names: &[ByteBuf],
        wait: u32,
    ) -> Option<Order> {
        let mut asked: Vec<ByteBuf> = Vec::new();
        let mut codes = Vec::new();
        for name in names {
            let found = self.all.iter().position(|host| is_name_of(host, name));
            let code = match found {
                None => Some(error::NO_HOST),
                Some(0) => Some(error::BAD_PARAM),
                Some(_) if self.removals.len() >= REMOVALS_MAX => Some(error::OUT_OF_RES),
                Some(at) => {
                    asked.push(ByteBuf::from(self.all[at].name.as_bytes()));
                    None
                }
            };
            codes.push(code);
        }
        let removal = Removal { request, codes };
        if asked.is_empty() {
            return Some(Order::Send(removal.answer(&[])));
        }
        self.removals.insert(wait, removal);
        Some(Order::Send(remove(&asked, wait)))
    }

    /// The first daemon removes hosts.
    pub(super) fn on_removed(&mut self, message: &Message, codes: &[i32]) -> Option<Order> {
        let removal = self.removals.remove(&message.wait)?;
        Some(Order::Send(removal.answer(codes)))
    }

    /// The answer to a task that asks for all hosts.
    pub(super) fn list(&self) -> Pack {
        let pack = Pack::default().count(self.all.len()).count(architectures(&self.all));
        self.all.iter().fold(pack, |pack, host| {
            let pack = pack.number(host.tid).text(host.name.as_bytes()).text(&host.arch);
            pack.int(host.speed).int(host.signature)
        })
    }
}

/// Asks the first daemon to remove hosts. It tells their daemons to end.
pub(super) fn remove(names: &[ByteBuf], wait: u32) -> Message {
    let message = Message::new(DAEMON, tag::TM_DELHOST, Pack::default().texts(names));
    Message { context: CONTEXT_DAEMON, wait, ..message }
}

impl Joining {
    fn answer(&self, hosts: &[Host]) -> Option<Message> {
        let request = self.request.as_ref()?;
        let mut added = self.added.iter().flatten();
        let pack = Pack::default().count(self.places.len()).count(architectures(hosts).max(1));
        let pack = self.places.iter().fold(pack, |pack, place| {
            let lost = failed(error::HOST_FAIL);
            let refused;
            let host = match place {
                Ok(_) => added.next().unwrap_or(&lost),
                Err(code) => {
                    refused = failed(*code);
                    &refused
                }
            };
            let is_there = hosts.iter().any(|it| it.tid == host.host.cast_unsigned());
            let host = if host.host > 0 && !is_there { &lost } else { host };
            let pack = pack.int(host.host).text(&host.name).text(&host.arch);
            pack.int(host.speed).int(host.signature)
        });
        Some(request.answer(pack))
    }
}

impl Removal {
    fn answer(&self, codes: &[i32]) -> Message {
        let mut codes = codes.iter().copied();
        let pack = Pack::default().count(self.codes.len());
        self.request.answer(self.codes.iter().fold(pack, |pack, code| {
            pack.int(code.or_else(|| codes.next()).unwrap_or(error::HOST_FAIL))
        }))
    }
}

/// How many architectures hosts have.
fn architectures(hosts: &[Host]) -> usize {
    hosts.iter().map(|host| &host.arch).collect::<BTreeSet<_>>().len()
}

/// A host that was not added.
fn failed(code: i32) -> Added {
    Added { host: code, name: ByteBuf::new(), arch: ByteBuf::new(), speed: 0, signature: 0 }
}

/// Whether a sender is the daemon of a host. To tasks beside it, it gives no number of a host.
pub(super) const fn is_daemon_of(peer: u32, host: u32) -> bool {
    peer == DAEMON || peer == DAEMON | host
}

/// Whether a host has this name.
pub(super) fn is_name_of(host: &Host, name: &[u8]) -> bool {
    host.name.as_bytes().eq_ignore_ascii_case(name)
}
