//! What the resource manager of a virtual machine hears, and the longer of its own messages.

use super::{Malformed, Message, Pack, Unpack, tag};
use alloc::vec::Vec;
use serde_bytes::ByteBuf;

/// A task asks for new tasks (`pvm_spawn`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// The program, by its path or a name.
    pub file: ByteBuf,
    /// How hosts are chosen, and more, as bits.
    pub flags: i32,
    /// A host or an architecture, where `flags` say so.
    pub place: ByteBuf,
    /// Number of tasks.
    pub count: i32,
    /// Arguments of the program, without its name.
    pub arguments: Vec<ByteBuf>,
    /// Where output and traces of the tasks go: a task, a context and a tag, for each of the two.
    pub sinks: [u32; 6],
    /// `NAME=value`, what the tasks have from the one that asks.
    pub environment: Vec<ByteBuf>,
}

/// The resource manager asks a daemon to make tasks.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    /// The task that has asked.
    pub parent: u32,
    /// What it has asked for.
    pub spawn: &'a Spawn,
    /// Number of tasks on this host.
    pub count: usize,
    /// Number of the first of them among all of the spawn.
    pub first: usize,
}

impl Exec<'_> {
    /// Its values, packed.
    #[must_use]
    pub fn pack(&self) -> Pack {
        let spawn = self.spawn;
        let pack = Pack::default().number(self.parent).text(&spawn.file).int(spawn.flags);
        let pack = pack.count(self.count).texts(&spawn.arguments);
        let pack = spawn.sinks.iter().fold(pack, |pack, &sink| pack.number(sink));
        let of_all = usize::try_from(spawn.count).unwrap_or_default();
        pack.texts(&spawn.environment).count(self.first).count(of_all)
    }
}

/// A daemon asks its tasker to start the process of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The task.
    pub task: u32,
    /// The path of the program.
    pub path: ByteBuf,
    /// The program's name and arguments.
    pub argv: Vec<ByteBuf>,
    /// `NAME=value`. One is the number by which the daemon recognizes the task.
    pub environment: Vec<ByteBuf>,
}

/// A task asks for messages about other tasks or hosts (`pvm_notify`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// What is to happen, and whether an earlier wish is cancelled.
    pub flags: i32,
    /// The context of the messages.
    pub context: u32,
    /// Their tag.
    pub tag: u32,
    /// How many: of [`Self::about`], or of messages where hosts are added.
    pub count: i32,
    /// Tasks or hosts.
    pub about: Vec<u32>,
}

/// A host on which a daemon is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostToStart {
    /// Its number.
    pub host: u32,
    /// Options of the host file.
    pub options: ByteBuf,
    /// `USER@NAME` or its name.
    pub login: ByteBuf,
    /// The command line that starts it.
    pub command: ByteBuf,
}

/// A host that was added, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number, or an error below 0.
    pub host: i32,
    /// Its name.
    pub name: ByteBuf,
    /// Its architecture, in PVM's words.
    pub arch: ByteBuf,
    /// Its speed, as the host file says.
    pub speed: i32,
    /// How it stores numbers.
    pub signature: i32,
}

/// What a message to the resource manager says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Start tasks (`SM_SPAWN`).
    Spawn(Spawn),
    /// Tasks were made, or why not; and a task that has connected by itself (`SM_EXECACK`).
    Made(Vec<i32>),
    /// List the tasks of a host, one task, or all, where it is 0 (`SM_TASK`).
    List(u32),
    /// List the hosts (`SM_CONFIG`).
    Hosts,
    /// Add hosts (`SM_ADDHOST`).
    Add(Vec<ByteBuf>),
    /// Remove hosts (`SM_DELHOST`).
    Remove(Vec<ByteBuf>),
    /// Hosts were added, or why not one was (`SM_ADDACK`).
    Added(Result<Vec<Added>, i32>),
    /// Hosts are being removed, with a code for each (`TM_DELHOST`).
    Removed(Vec<i32>),
    /// Send messages when something happens (`SM_NOTIFY`).
    Notify(Notify),
    /// A task has ended (`SM_TASKX`).
    Ended {
        /// The task.
        task: u32,
        /// Its status, as `wait` gives it.
        status: i32,
    },
    /// A host is gone (`SM_HOSTX`).
    HostLost(u32),
    /// Another resource manager offers itself (`SM_SCHED`).
    Successor,
    /// Start daemons (`SM_STHOST`).
    StartHosts(Vec<HostToStart>),
    /// Start a process (`SM_STTASK`).
    Start(Start),
    /// Connect without the daemons between (`TC_CONREQ`).
    Connect,
    /// Nothing that is for a resource manager.
    Other,
}

impl Heard {
    /// What a message says.
    ///
    /// # Errors
    /// If its values are not those of its tag.
    pub fn read(message: &Message) -> Result<Self, Malformed> {
        let mut values = match message.tag {
            tag::SM_CONFIG => return Ok(Self::Hosts),
            tag::SM_SCHED => return Ok(Self::Successor),
            tag::TC_CONREQ => return Ok(Self::Connect),
            _ => Unpack::new(message)?,
        };
        let values = &mut values;
        Ok(match message.tag {
            tag::SM_SPAWN => Self::Spawn(spawn(values)?),
            tag::SM_EXECACK => {
                let count = values.int()?;
                let made = values.numbers(count)?;
                Self::Made(made.into_iter().map(u32::cast_signed).collect())
            }
            tag::SM_TASK => Self::List(values.number()?),
            tag::SM_ADDHOST => Self::Add(values.texts()?),
            tag::SM_DELHOST => Self::Remove(values.texts()?),
            tag::SM_ADDACK => Self::Added(added(values)?),
            tag::TM_DELHOST => {
                let count = values.int()?;
                let codes = values.numbers(count)?;
                Self::Removed(codes.into_iter().map(u32::cast_signed).collect())
            }
            tag::SM_NOTIFY => Self::Notify(notify(values)?),
            tag::SM_TASKX => Self::Ended { task: values.number()?, status: values.int()? },
            tag::SM_HOSTX => Self::HostLost(values.number()?),
            tag::SM_STHOST => Self::StartHosts(hosts_to_start(values)?),
            tag::SM_STTASK => Self::Start(start(values)?),
            _ => Self::Other,
        })
    }
}

fn spawn(values: &mut Unpack<'_>) -> Result<Spawn, Malformed> {
    Ok(Spawn {
        file: values.text()?,
        flags: values.int()?,
        place: values.text()?,
        count: values.int()?,
        arguments: values.texts()?,
        sinks: {
            let mut sinks = [0; 6];
            for sink in &mut sinks {
                *sink = values.number()?;
            }
            sinks
        },
        environment: values.texts()?,
    })
}

fn start(values: &mut Unpack<'_>) -> Result<Start, Malformed> {
    let task = values.number()?;
    let _flags = values.int()?;
    Ok(Start { task, path: values.text()?, argv: values.texts()?, environment: values.texts()? })
}

fn notify(values: &mut Unpack<'_>) -> Result<Notify, Malformed> {
    let (flags, context) = (values.int()?, values.number()?);
    let (tag, count) = (values.number()?, values.int()?);
    // A wish for hosts that are added names none.
    let is_about_others = flags & 0xff != HOST_ADDED;
    let about = if is_about_others { values.numbers(count)? } else { Vec::new() };
    Ok(Notify { flags, context, tag, count, about })
}

/// The kind of a wish to hear of new hosts (`PvmHostAdd`).
const HOST_ADDED: i32 = 3;

fn hosts_to_start(values: &mut Unpack<'_>) -> Result<Vec<HostToStart>, Malformed> {
    let count = values.int()?;
    let one = |values: &mut Unpack<'_>| {
        Ok(HostToStart {
            host: values.number()?,
            options: values.text()?,
            login: values.text()?,
            command: {
                let command = values.text()?;
                // The same for Windows, and the name of the virtual machine.
                let _others = (values.text()?, values.text()?);
                command
            },
        })
    };
    (0..count).map(|_| one(values)).collect()
}

fn added(values: &mut Unpack<'_>) -> Result<Result<Vec<Added>, i32>, Malformed> {
    let count = values.int()?;
    if count < 0 {
        return Ok(Err(count));
    }
    let _architectures = values.int()?;
    let one = |values: &mut Unpack<'_>| {
        Ok(Added {
            host: values.int()?,
            name: values.text()?,
            arch: values.text()?,
            speed: values.int()?,
            signature: values.int()?,
        })
    };
    (0..count).map(|_| one(values)).collect::<Result<_, _>>().map(Ok)
}
