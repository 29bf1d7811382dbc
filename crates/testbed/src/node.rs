//! One node of a test bed.

use crate::{Testbed, in_switch, ip};
use anyhow::{Context, ensure};
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    namespace: String,
    port: String,
    address: String,
    directory: PathBuf,
    program: PathBuf,
    clock_ahead_s: i64,
    /// The machine's processors that are the node's, as for `taskset`; all if nothing is said.
    processors: Option<String>,
}

/// The port that agents listen at.
const PORT: u16 = 7716;

impl Node {
    pub(crate) fn new(bed: &Testbed, number: usize, program: &Path, clock_ahead_s: i64) -> Self {
        let name = format!("n{number}");
        Self {
            namespace: format!("{}-{name}", bed.switch),
            port: format!("port{number}"),
            address: format!("10.77.0.{number}"),
            directory: bed.directory.join(&name),
            program: program.to_owned(),
            clock_ahead_s,
            processors: None,
            name,
        }
    }

    /// With only these processors, if they are said.
    pub(crate) fn bound_to(self, processors: Option<String>) -> Self {
        Self { processors, ..self }
    }

    /// What [`Self::told`] is to know of it: how far its clock is ahead, and its processors, if
    /// they are said.
    pub(crate) fn line(&self) -> String {
        let processors = self.processors.as_deref().unwrap_or_default();
        format!("{} {processors}\n", self.clock_ahead_s)
    }

    /// The node of which another process has written this.
    pub(crate) fn told(
        bed: &Testbed,
        number: usize,
        program: &Path,
        line: &str,
    ) -> anyhow::Result<Self> {
        let mut words = line.split_whitespace();
        let ahead = words.next().and_then(|word| word.parse().ok());
        let ahead = ahead.context("the test bed is damaged")?;
        Ok(Self::new(bed, number, program, ahead).bound_to(words.next().map(str::to_owned)))
    }

    /// Makes its network, and connects it with the switch.
    pub(crate) fn connect(&self, bed: &Testbed) -> anyhow::Result<()> {
        let (node, switch, namespace) = (self, bed.switch.as_str(), self.namespace.as_str());
        ip(&["netns", "add", namespace])?;
        let veth = ["link", "add", &node.port, "type", "veth", "peer", "name", "eth0", "netns"];
        in_switch(switch, &[&veth[..], &[namespace]].concat())?;
        in_switch(switch, &["link", "set", &node.port, "master", "br0", "up"])?;
        let own = format!("{}/24", node.address);
        in_switch(namespace, &["address", "add", &own, "dev", "eth0"])?;
        in_switch(namespace, &["link", "set", "eth0", "up"])?;
        in_switch(namespace, &["link", "set", "lo", "up"])?;
        Ok(())
    }

    /// Its host name, which is its name in the cluster too.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its agent listens, if it does.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{PORT}", self.address)
    }

    /// Its state directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its address, without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.address
    }

    /// By how many seconds its monotonic clock is ahead of this machine's.
    pub(crate) const fn clock_ahead_s(&self) -> i64 {
        self.clock_ahead_s
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// A command on the node.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        // Not `ip netns exec`, which hides the cgroups.
        command.arg(format!("--net=/run/netns/{}", self.namespace));
        if let Some(processors) = &self.processors {
            command.args(["taskset", "--cpu-list", processors]);
        }
        command.args(["unshare", "--uts"]);
        if self.clock_ahead_s != 0 {
            let ahead = self.clock_ahead_s.to_string();
            command.args(["--time", "--fork", "--monotonic", &ahead, "--boottime", &ahead]);
        }
        command.args(["sh", "-c", "hostname \"$0\" && exec \"$@\"", &self.name]);
        command.arg(program);
        command.env("TUTTI_DIR", &self.directory).env_remove("TUTTI_CLUSTER");
        command.stdin(Stdio::null());
        command
    }

    /// A connection from the node to an address.
    ///
    /// # Errors
    /// If the node has no network, or nothing listens there.
    pub fn dial(&self, to: &str) -> io::Result<TcpStream> {
        in_namespace(&self.namespace, || TcpStream::connect(to))
    }

    /// Listens where the node's agent would.
    ///
    /// # Errors
    /// If the node has no network, or its agent listens there.
    pub fn listen(&self) -> io::Result<TcpListener> {
        in_namespace(&self.namespace, || TcpListener::bind(self.address()))
    }

    /// A verb on the node.
    #[must_use]
    pub fn tutti(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        command
    }

    /// The process of a daemon of the node: `agent`, `keeper`, `controller`, or `up`, their
    /// supervisor.
    #[must_use]
    pub fn daemon(&self, role: &str) -> Option<i32> {
        if role == "up" {
            return fs::read_to_string(self.directory.join("lock")).ok()?.trim().parse().ok();
        }
        let processes = fs::read_dir("/proc").ok()?.flatten();
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .find(|pid| self.is_daemon(*pid, role))
    }

    fn is_daemon(&self, pid: i32, role: &str) -> bool {
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
        let mut words = line.split(|&byte| byte == 0).skip(1);
        words.next() == Some(role.as_bytes())
            && words.next() == Some(b"--directory")
            && words.next() == Some(self.directory.as_os_str().as_encoded_bytes())
    }

    /// Sends a daemon a signal.
    ///
    /// # Errors
    /// If there is no such daemon.
    pub fn signal(&self, role: &str, signal: Signal) -> anyhow::Result<()> {
        let pid = self.daemon(role).with_context(|| format!("{} has no {role}", self.name))?;
        kill(Pid::from_raw(pid), signal)?;
        Ok(())
    }

    /// Stops all daemons of the node where they are, or lets them go on; as if the machine hung.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        for role in ["up", "agent", "controller", "keeper"] {
            let _ = self.signal(role, signal);
        }
    }

    /// Ends the node's daemons, kindly, and then not.
    pub(crate) fn end(&self) {
        self.freeze(false);
        let supervisor =
            || self.daemon("up").filter(|pid| Path::new(&format!("/proc/{pid}")).exists());
        let _ = self.signal("up", Signal::SIGTERM);
        let patience = Instant::now() + Duration::from_secs(20);
        while supervisor().is_some() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        for role in ["up", "agent", "controller", "keeper"] {
            let _ = self.signal(role, Signal::SIGKILL);
        }
    }
}

/// So many of this machine's processors for each of so many nodes, as for `taskset`.
pub(crate) fn processors(nodes: usize, each: NonZero<usize>) -> anyhow::Result<Vec<String>> {
    let ours = sched_getaffinity(Pid::from_raw(0))?;
    let ours: Vec<String> = (0..CpuSet::count())
        .filter(|&number| ours.is_set(number) == Ok(true))
        .map(|number| number.to_string())
        .collect();
    ensure!(
        each.get() <= ours.len(),
        "{each} processors for each node, and there are {}",
        ours.len()
    );
    let mut in_turn = ours.iter().cloned().cycle();
    let lists = (0..nodes).map(|_| in_turn.by_ref().take(each.get()).collect::<Vec<_>>().join(","));
    Ok(lists.collect())
}

/// Does something in a network namespace: sockets that are made there stay there.
pub(crate) fn in_namespace<T: Send>(
    name: &str,
    what: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = File::open(format!("/run/netns/{name}"))?;
    // A thread has its own network, and this one keeps the one that it has.
    let done = thread::scope(|scope| {
        let there = scope.spawn(|| {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            what()
        });
        there.join()
    });
    done.unwrap_or_else(|_| Err(io::Error::other("what was to be done there failed")))
}
