//! What can happen to a node of a test bed: its network breaks, in both directions or in one, or is
//! slow; it hangs; its power fails.
//!
//! Nothing is needed but `ip`. How a way is made slow says `slow.rs`. Where one node is to hear
//! another no more, a neighbour entry for the other leads nowhere: the kernel sends, and no node
//! receives, as if a cable were broken in one direction.

use crate::{Node, Testbed, in_switch, ip, ways};
use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A hardware address that no node has.
const NOWHERE: &str = "02:00:00:00:00:fe";

/// How long all processes of a node may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

impl Testbed {
    /// Takes a node off the network, in both directions.
    ///
    /// # Errors
    /// If `ip` does not do it.
    pub fn cut(&self, node: &Node) -> anyhow::Result<()> {
        in_switch(self.switch(), &["link", "set", node.port(), "down"])
    }

    /// No node hears this one any more, and it hears all the others.
    ///
    /// # Errors
    /// If `ip` does not do it.
    pub fn mute(&self, node: &Node) -> anyhow::Result<()> {
        for other in self.others(node) {
            mislead(node, other)?;
        }
        Ok(())
    }

    /// A node hears no other any more, and all the others hear it.
    ///
    /// # Errors
    /// If `ip` does not do it.
    pub fn deafen(&self, node: &Node) -> anyhow::Result<()> {
        for other in self.others(node) {
            mislead(other, node)?;
        }
        Ok(())
    }

    /// What a node sends, and what is sent to it, takes so much longer from now on, in each
    /// direction; not any more if that is nothing. Connections stay.
    ///
    /// # Errors
    /// If `ip` does not do it, or the process that has made the test bed can't be asked.
    pub fn delay(&self, node: &Node, late: Duration) -> anyhow::Result<()> {
        match self.is_guest {
            true => ways::ask(self.directory(), node, late),
            false => self.ways.delay(node, late),
        }
    }

    /// Puts a node's network in order: undoes [`Self::cut`], [`Self::mute`], [`Self::deafen`],
    /// [`Self::delay`], and what [`Self::kill`] did to it.
    ///
    /// # Errors
    /// If `ip` does not do it, or as [`Self::delay`].
    pub fn heal(&self, node: &Node) -> anyhow::Result<()> {
        self.delay(node, Duration::ZERO)?;
        for other in self.others(node) {
            for (from, to) in [(node, other), (other, node)] {
                let _ = ip(&["-n", from.namespace(), "neigh", "del", to.host(), "dev", "eth0"]);
            }
        }
        in_switch(self.switch(), &["link", "set", node.port(), "up"])
    }

    /// A node loses power: nothing of it is heard any more, not even that its connections end, and
    /// none of its processes is left. With [`Self::heal`] and `tutti up` it is back.
    ///
    /// # Errors
    /// If `ip` does not do it, or a process can't be killed.
    pub fn kill(&self, node: &Node) -> anyhow::Result<()> {
        self.cut(node)?;
        let patience = Instant::now() + KILL_PATIENCE;
        loop {
            let left = processes_of(node)?;
            if left.is_empty() {
                return Ok(());
            }
            // None of them sees another end.
            for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
                for &pid in &left {
                    let _ = kill(Pid::from_raw(pid), signal);
                }
            }
            let node = node.name();
            anyhow::ensure!(Instant::now() < patience, "{node}: processes are left: {left:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn others(&self, node: &Node) -> impl Iterator<Item = &Node> {
        let name = node.name().to_owned();
        self.nodes().iter().filter(move |other| other.name() != name)
    }
}

/// What one node sends to another goes nowhere.
fn mislead(from: &Node, to: &Node) -> anyhow::Result<()> {
    let entry = ["neigh", "replace", to.host(), "lladdr", NOWHERE, "nud", "permanent"];
    ip(&[&["-n", from.namespace()], &entry[..], &["dev", "eth0"]].concat())
}

/// Every process that uses the node's network.
fn processes_of(node: &Node) -> anyhow::Result<Vec<i32>> {
    let path = format!("/run/netns/{}", node.namespace());
    let namespace = fs::metadata(&path).with_context(|| format!("cannot read {path}"))?.ino();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let is_there = |pid: &i32| {
        let found = fs::metadata(format!("/proc/{pid}/ns/net"));
        found.is_ok_and(|found| found.ino() == namespace)
    };
    let processes = fs::read_dir("/proc").context("cannot read /proc")?.flatten();
    Ok(processes.filter_map(number).filter(is_there).collect())
}
