//! What the manager has on another node of its job: a daemon there and a process that is its tasker
//! ([`super::node`]), through a front end of the step that they are.
//!
//! The step's output begins with lines: what the daemon says of itself, the number of its tasker,
//! its socket, its directory. What follows, and all of its input, are messages as the daemon and
//! its tasker exchange them.

use super::connection::Connection;
use super::daemon::variables_at;
use super::steps::{Spot, spawn};
use nix::poll::PollFd;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tutti_wire::pvm::{HOST_BITS, LOCAL_BITS, Message};

/// Maximum length of the lines together.
const LINES_BYTES_MAX: usize = 4 << 10;

/// Number of lines before the messages.
const LINES: usize = 4;

/// How long a part may take to end when its input has ended.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A part of the virtual machine on another node.
#[derive(Debug)]
pub(super) struct Part {
    /// The number of its host.
    pub(super) host: u32,
    node: String,
    front: Child,
    connection: Connection,
    text: Vec<u8>,
    lines: Vec<Vec<u8>>,
    is_open: bool,
}

/// What a part says.
#[derive(Debug)]
pub(super) enum Said {
    /// How other daemons reach its own.
    Line(Vec<u8>),
    /// The number of the tasker that serves now.
    Ready(u32),
    /// A message to the tasker.
    Heard(Message),
}

impl Part {
    /// Starts a daemon on a node, with these arguments.
    ///
    /// # Errors
    /// If there can be no further process.
    pub(super) fn start(host: u32, node: String, command: &[String]) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut front = Command::new(std::env::current_exe()?);
        front.args(["run", "--only-step", "--serves", "-n", "1", "-w"]).arg(&node);
        front.args(["--raw", "--input", "0", "--name", "pvmd", "--", "pvm-node"]);
        front.args(command);
        front.stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)));
        front.stdout(Stdio::from(OwnedFd::from(theirs)));
        // `^C` is for the program.
        std::os::unix::process::CommandExt::process_group(&mut front, 0);
        Ok(Self {
            host,
            node,
            front: spawn(&mut front)?,
            connection: Connection::over(ours)?,
            text: Vec::new(),
            lines: Vec::new(),
            is_open: true,
        })
    }

    /// What is waited for.
    pub(super) fn poll(&self) -> Option<PollFd<'_>> {
        self.is_open.then(|| self.connection.poll())
    }

    /// Whether its daemon and tasker are there.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Where its tasks run, and how they find its daemon; `None`: there is none yet.
    pub(super) fn spot(&self) -> Option<Spot> {
        let [_, _, socket, directory] = self.lines.as_slice() else { return None };
        let mut variables = variables_at(Path::new(OsStr::from_bytes(directory)));
        let socket: OsString = OsStr::from_bytes(socket).to_owned();
        variables.push(("PVMSOCK".into(), socket));
        Some(Spot { node: Some(self.node.clone()), variables })
    }

    /// Puts a message of the tasker in line.
    pub(super) fn send(&mut self, message: &Message) {
        self.connection.send(message);
    }

    /// Sends what is taken, and reads what is there.
    pub(super) fn exchange(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        if !self.is_open {
            return said;
        }
        self.is_open = self.connection.flush();
        match self.connection.read() {
            None => self.is_open = false,
            Some(bytes) if self.lines.len() < LINES => {
                self.text.extend_from_slice(&bytes);
                self.read_lines(&mut said);
            }
            Some(bytes) => self.connection.take_in(&bytes),
        }
        while let Some(message) = self.connection.next() {
            said.push(Said::Heard(message));
        }
        said
    }

    fn read_lines(&mut self, said: &mut Vec<Said>) {
        while self.lines.len() < LINES {
            let Some(end) = self.text.iter().position(|&byte| byte == b'\n') else {
                self.is_open &= self.text.len() <= LINES_BYTES_MAX;
                return;
            };
            let mut line: Vec<u8> = self.text.drain(..=end).collect();
            line.pop();
            if self.lines.is_empty() {
                said.push(Said::Line(line.clone()));
            }
            self.lines.push(line);
        }
        let number = std::str::from_utf8(&self.lines[1]).ok().and_then(|it| it.parse().ok());
        let is_its = |task: &u32| task & HOST_BITS == self.host && task & LOCAL_BITS != 0;
        let Some(tasker) = number.filter(is_its) else {
            self.is_open = false;
            return;
        };
        self.connection.become_task(tasker);
        said.push(Said::Ready(tasker));
        let rest = std::mem::take(&mut self.text);
        self.connection.take_in(&rest);
    }

    /// Has it end: its input does. The thread that is given waits for that.
    pub(super) fn end(self) -> JoinHandle<()> {
        let Self { mut front, connection, .. } = self;
        drop(connection);
        std::thread::spawn(move || {
            let until = Instant::now() + END_PATIENCE;
            while matches!(front.try_wait(), Ok(None)) {
                if Instant::now() > until {
                    super::steps::ask_to_end(&front);
                    let _ = front.wait();
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    }
}
