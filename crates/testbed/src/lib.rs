//! A cluster on one machine: each node is a network namespace with an address, a host name, a state
//! directory, a cgroup subtree and, if wanted, a monotonic clock of its own.
//!
//! ```text
//!   switch namespace: a bridge      n1 10.77.0.1   n2 10.77.0.2   ...
//!            '--- veth ---'-------------'--------------'
//! ```
//!
//! Nothing outside the namespaces is touched, so several test beds can stand beside each other. All
//! of it goes when the [`Testbed`] is dropped. It needs root, `ip` (iproute2), `nsenter` and
//! `unshare` (util-linux).

#![forbid(unsafe_code)]

mod checksum;
mod faults;
mod node;
mod slow;
mod ways;

pub use node::Node;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use ways::Ways;

/// The most nodes: the last number of an address.
pub const NODES_MAX: usize = 200;

/// What a test bed is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// A short name, different from those of other test beds on the machine.
    pub name: String,
    /// The `tutti` program.
    pub program: PathBuf,
    /// Where state directories are made.
    pub directory: PathBuf,
    /// How many nodes.
    pub nodes: usize,
    /// By how many seconds the monotonic clock of each node is ahead of the machine's, if at all;
    /// the last counts for all that follow. A clock cannot be put to before the machine's own
    /// start.
    pub clocks_ahead_s: Vec<i64>,
    /// What the last node sends, and what is sent to it, takes so long from the beginning.
    pub slow: Option<Duration>,
    /// Parameters that are set before the members join, as for `tutti params`.
    pub params: Vec<String>,
    /// How many of the machine's processors each node has: the first node the first ones, the next
    /// those that follow, and from the beginning again when all are given. If not said, every node
    /// has them all.
    pub processors: Option<NonZero<usize>>,
}

/// A standing test bed.
#[derive(Debug)]
pub struct Testbed {
    switch: String,
    directory: PathBuf,
    params: Vec<String>,
    nodes: Vec<Node>,
    ways: Arc<Ways>,
    /// Whether another process has made it, and will end it.
    is_guest: bool,
}

/// In the directory of a test bed: a line for each node, with what another process must know of it.
const NODES_FILE: &str = "nodes";

impl Testbed {
    /// Makes the namespaces, and nothing in them.
    ///
    /// # Errors
    /// If that needs what is not there: root, a program.
    pub fn new(options: &Options) -> anyhow::Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "a test bed needs root");
        ensure!((1..=NODES_MAX).contains(&options.nodes), "a test bed has 1 to {NODES_MAX} nodes");
        let switch = format!("tb-{}", options.name);
        let directory = options.directory.join(&switch);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let (nodes, params) = (Vec::new(), options.params.clone());
        let (ways, is_guest) = (Arc::new(Ways::of(&switch)), false);
        let mut bed = Self { switch: switch.clone(), directory, params, nodes, ways, is_guest };
        let lists = match options.processors {
            Some(each) => node::processors(options.nodes, each)?,
            None => Vec::new(),
        };
        ip(&["netns", "add", &switch])?;
        in_switch(&switch, &["link", "add", "br0", "type", "bridge"])?;
        in_switch(&switch, &["link", "set", "br0", "up"])?;
        for number in 1..=options.nodes {
            let ahead = options.clocks_ahead_s.get(number - 1).or(options.clocks_ahead_s.last());
            let ahead = ahead.copied().unwrap_or(0);
            let own = lists.get(number - 1).cloned();
            let node = Node::new(&bed, number, &options.program, ahead).bound_to(own);
            node.connect(&bed)?;
            bed.nodes.push(node);
        }
        let told: String = bed.nodes.iter().map(Node::line).collect();
        std::fs::write(bed.directory.join(NODES_FILE), told)
            .with_context(|| format!("cannot write to {}", bed.directory.display()))?;
        if let (Some(late), Some(last)) = (options.slow, bed.nodes.last()) {
            bed.delay(last, late)?;
        }
        Ok(bed)
    }

    /// The test bed of this directory, which another process has made: to do something to its
    /// nodes. It stays when this is dropped.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(directory: &Path, program: &Path) -> anyhow::Result<Self> {
        let file = directory.join(NODES_FILE);
        let told = std::fs::read_to_string(&file)
            .with_context(|| format!("there is no test bed: cannot read {}", file.display()))?;
        let switch = directory.file_name().and_then(|name| name.to_str());
        let switch = switch.context("that is no directory of a test bed")?.to_owned();
        let directory = directory.to_owned();
        let (params, nodes, ways) = (Vec::new(), Vec::new(), Arc::new(Ways::of(&switch)));
        let mut bed = Self { switch, directory, params, nodes, ways, is_guest: true };
        for (line, number) in told.lines().zip(1..) {
            let node = Node::told(&bed, number, program, line)?;
            bed.nodes.push(node);
        }
        Ok(bed)
    }

    /// Makes the first node the head of a cluster, and the others join it.
    ///
    /// # Errors
    /// With what `tutti` says.
    pub fn up(&self) -> anyhow::Result<()> {
        self.up_while(|| true)
    }

    /// The same, for as long as that is wanted.
    ///
    /// # Errors
    /// With what `tutti` says, or if it is not wanted any more.
    pub fn up_while(&self, is_wanted: impl Fn() -> bool) -> anyhow::Result<()> {
        let (head, members) = self.nodes.split_first().context("there is no node")?;
        let address = head.address();
        expect(head.tutti(&["up", "--listen", &address, "--name", head.name(), "--trust-root"]))?;
        // Libraries such as UCX know one machine by its kernel, and expect to reach all of its
        // processes.
        for class in ["interactive", "production", "benchmark", "standby"] {
            expect(head.tutti(&["params", "--class", class, "ipc=node"]))?;
        }
        // All nodes have the same processors: what one does with them is foreign to the others.
        let params = self.params.iter().map(String::as_str);
        let words: Vec<&str> = ["params", "foreign=0%"].into_iter().chain(params).collect();
        expect(head.tutti(&words))?;
        for member in members {
            ensure!(is_wanted(), "ended before all nodes were up");
            self.join(member)?;
        }
        ensure!(is_wanted(), "ended when all nodes were up");
        Ok(())
    }

    /// Makes a node join.
    ///
    /// # Errors
    /// With what `tutti` says.
    pub fn join(&self, member: &Node) -> anyhow::Result<()> {
        let head = self.head();
        let token = expect(head.tutti(&["invite", "--parsable"]))?;
        let token = String::from_utf8_lossy(&token.stdout).trim().to_owned();
        expect(member.tutti(&["join", &head.address(), &token, "--name", member.name()]))?;
        Ok(())
    }

    /// The node with the controller.
    ///
    /// # Panics
    /// Never: there is a node.
    #[must_use]
    pub fn head(&self) -> &Node {
        &self.nodes[0]
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How far off cluster time each node is in truth, in nanoseconds, by what `tutti nodes --json`
    /// says of it: below all their clocks is that of this machine. Nothing if not all have
    /// answered.
    #[must_use]
    pub fn clocks_off_ns(&self, told: &Value) -> Option<Vec<i64>> {
        let ahead_ns = |node: &Node| {
            let told = told.as_array()?.iter().find(|it| it["name"] == node.name())?;
            Some(told["clock_ahead_ns"].as_i64()? + node.clock_ahead_s() * 1_000_000_000)
        };
        let head_ns = ahead_ns(self.head())?;
        self.nodes.iter().map(|node| Some(ahead_ns(node)? - head_ns)).collect()
    }

    /// Where state directories and logs are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The node of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn node(&self, name: &str) -> anyhow::Result<&Node> {
        let found = self.nodes.iter().find(|node| node.name() == name);
        found.with_context(|| format!("there is no node {name}; there are {}", self.nodes.len()))
    }

    /// Lets other processes ask for [`Self::delay`], which this one must do; for as long as it
    /// lives.
    ///
    /// # Errors
    /// If it can't listen in the test bed's directory.
    pub fn take_orders(&self) -> anyhow::Result<()> {
        ways::take_orders(Arc::clone(&self.ways), self.nodes.clone(), &self.directory)
    }

    pub(crate) fn switch(&self) -> &str {
        &self.switch
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.is_guest {
            return;
        }
        // The head first: its end is that of all jobs.
        for node in &self.nodes {
            node.end();
        }
        self.ways.clear();
        for node in &self.nodes {
            let _ = ip(&["netns", "del", node.namespace()]);
        }
        let _ = ip(&["netns", "del", &self.switch]);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs a command to its end, which must be a good one.
///
/// # Errors
/// With what it said.
pub fn expect(mut command: Command) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    is_good(&format!("{command:?}"), output)
}

/// What a command came to.
///
/// # Errors
/// With what it said, if its end is not a good one.
pub fn is_good(command: &str, output: Output) -> anyhow::Result<Output> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command} ended with {}: {}", output.status, said.trim());
    }
    Ok(output)
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(args);
    expect(command).map(drop)
}

fn in_switch(switch: &str, args: &[&str]) -> anyhow::Result<()> {
    let args: Vec<&str> = ["-n", switch].iter().chain(args).copied().collect();
    ip(&args)
}
