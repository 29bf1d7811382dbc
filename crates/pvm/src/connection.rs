//! The connection of the resource manager with the daemon of its host.

use super::hosts::Host;
use anyhow::{Context, bail, ensure};
use nix::poll::{PollFd, PollFlags};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tutti_wire::pvm::{
    CONTEXT_DAEMON, DAEMON, Incoming, Message, Pack, TASK_PROTOCOL, Unpack, error, tag,
};

/// How long the daemon may take for an answer when the connection begins.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nothing is read while this much waits to be sent: answers may be longer than requests.
const UNSENT_MAX: usize = 1 << 20;

/// The most that is read at once.
const READ_BYTES: usize = 64 << 10;

/// The connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    incoming: Incoming,
    out: Vec<u8>,
    /// The number of this process as a task.
    me: u32,
    /// Number of the latest request to the daemon.
    latest: u32,
}

impl Connection {
    /// One through a process that is a task already ([`super::part`]), and says which later.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(super) fn over(stream: UnixStream) -> anyhow::Result<Self> {
        stream.set_nonblocking(true)?;
        let (incoming, out) = (Incoming::default(), Vec::new());
        Ok(Self { stream, incoming, out, me: 0, latest: 0 })
    }

    /// From now on it sends as this task.
    pub(super) const fn become_task(&mut self, task: u32) {
        self.me = task;
    }

    /// The task that it sends as.
    pub(super) const fn task(&self) -> u32 {
        self.me
    }

    /// Becomes a task of the daemon's virtual machine. Each side shows that it may write the
    /// files of the other's user.
    ///
    /// # Errors
    /// If the daemon refuses that, or says what it must not.
    pub(super) fn open(socket: &Path, directory: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("PVM's daemon does not answer")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (incoming, out) = (Incoming::default(), Vec::new());
        let mut this = Self { stream, incoming, out, me: 0, latest: 0 };
        let proof = directory.join("manager");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&proof)?;
        let body = Pack::default().int(TASK_PROTOCOL).text(proof.as_os_str().as_bytes());
        let reply = this.call(tag::TM_CONNECT, body)?;
        let values = &mut Unpack::new(&reply)?;
        let (version, is_taken) = (values.int()?, values.int()?);
        ensure!(
            version == TASK_PROTOCOL,
            "PVM's daemon has protocol {version}, not {TASK_PROTOCOL}"
        );
        ensure!(is_taken != 0, "PVM's daemon refuses the resource manager");
        let theirs = values.text()?;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&theirs));
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.write_all(b"/")?;
        let pid = i32::try_from(std::process::id())?;
        let reply = this.call(tag::TM_CONN2, Pack::default().int(pid).int(0))?;
        let values = &mut Unpack::new(&reply)?;
        ensure!(values.int()? != 0, "PVM's daemon refuses the resource manager");
        this.me = values.number()?;
        Ok(this)
    }

    /// Registers as resource manager, tasker and hoster. Gives the host, without name and slots.
    ///
    /// # Errors
    /// If another process is there already.
    pub(super) fn register(&mut self) -> anyhow::Result<Host> {
        let reply = self.call(tag::TM_SCHED, Pack::default())?;
        let values = &mut Unpack::new(&reply)?;
        let _former = values.int()?;
        let (tid, _name, arch) = (values.number()?, values.text()?, values.text()?);
        let (speed, signature) = (values.int()?, values.int()?);
        self.register_tasker()?;
        self.register_as(tag::TM_HOSTER, "hoster")?;
        self.stream.set_nonblocking(true)?;
        let (name, slots, is_ready) = (String::new(), 0, true);
        Ok(Host { tid, name, arch, speed, signature, slots, is_ready })
    }

    /// Registers as tasker.
    ///
    /// # Errors
    /// If another process is there already.
    pub(super) fn register_tasker(&mut self) -> anyhow::Result<()> {
        self.register_as(tag::TM_TASKER, "tasker")
    }

    fn register_as(&mut self, tag: u32, what: &str) -> anyhow::Result<()> {
        let reply = self.call(tag, Pack::default().int(1))?;
        match Unpack::new(&reply)?.int()? {
            0 => Ok(()),
            error::ALREADY => bail!("PVM's daemon has another {what}"),
            code => bail!("PVM's daemon takes no {what}: error {code}"),
        }
    }

    /// Its stream, and the bytes of messages that have come since.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(super) fn into_stream(self) -> anyhow::Result<(UnixStream, Vec<u8>)> {
        self.stream.set_read_timeout(None)?;
        Ok((self.stream, self.incoming.into_bytes()))
    }

    /// Asks the daemon something, and waits for its answer. Nothing else comes before others can
    /// know this process.
    fn call(&mut self, tag: u32, body: Pack) -> anyhow::Result<Message> {
        self.latest += 1;
        let message = Message::new(DAEMON, tag, body);
        self.send(&Message { context: CONTEXT_DAEMON, wait: self.latest, ..message });
        self.stream.write_all(&std::mem::take(&mut self.out))?;
        let mut room = [0; 4096];
        loop {
            while let Some(message) = self.incoming.next() {
                if message.tag == tag {
                    return Ok(message);
                }
            }
            let count = self.stream.read(&mut room).context("PVM's daemon does not answer")?;
            ensure!(count > 0, "PVM's daemon has closed the connection");
            self.incoming.push(&room[..count]);
        }
    }

    /// What is waited for.
    pub(super) fn poll(&self) -> PollFd<'_> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.out.len() < UNSENT_MAX);
        flags.set(PollFlags::POLLOUT, !self.out.is_empty());
        PollFd::new(self.stream.as_fd(), flags)
    }

    /// Whether not too much is in line already.
    pub(super) const fn takes_more(&self) -> bool {
        self.out.len() < UNSENT_MAX
    }

    /// Puts a message in line.
    pub(super) fn send(&mut self, message: &Message) {
        message.write(self.me, &mut self.out);
    }

    /// Sends what is taken. Gives whether the connection is open.
    pub(super) fn flush(&mut self) -> bool {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Reads what is there, once. Gives whether the connection is open.
    pub(super) fn receive(&mut self) -> bool {
        let Some(bytes) = self.read() else { return false };
        self.take_in(&bytes);
        true
    }

    /// The bytes that are there; `None`: the connection is closed.
    pub(super) fn read(&mut self) -> Option<Vec<u8>> {
        if self.out.len() >= UNSENT_MAX {
            return Some(Vec::new());
        }
        let mut room = vec![0; READ_BYTES];
        match self.stream.read(&mut room) {
            Ok(0) => None,
            Ok(count) => {
                room.truncate(count);
                Some(room)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Some(Vec::new()),
                _ => None,
            },
        }
    }

    /// Takes bytes of messages in.
    pub(super) fn take_in(&mut self, bytes: &[u8]) {
        self.incoming.push(bytes);
    }

    /// The next message that has come in whole.
    pub(super) fn next(&mut self) -> Option<Message> {
        self.incoming.next()
    }
}
