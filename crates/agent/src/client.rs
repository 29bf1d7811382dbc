//! The agent of a client machine: front ends here reach the controller and keepers through it.
//!
//! It has a place in the control tree ([`super::tree`]) and nothing else: no keeper, no jobs, no
//! timetable. A front end connects to the same sockets as on a node, and the kernel names its user.

use super::clock::ClusterClock;
use super::driver::{AgentOptions, RETRY_MAX_NS, RETRY_MIN_NS};
use super::tree::{Heard, Tree, TreeOptions};
use anyhow::Context;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Pid, getppid};
use tracing::{info, warn};
use tutti_node::link::{Interest, Poller, Ready};
use tutti_node::platform::time::monotonic_ns;
use tutti_node::signal_origin::answers_for;
use tutti_wire::code::Code;

/// What the poller calls the signals. The tree has other numbers below its first connection.
const SIGNALS: u64 = 1;

/// See the head of the file.
struct Client {
    tree: Tree,
    poller: Poller,
    signals: SignalFd,
    supervisor: Pid,
    connect_at_ns: Option<u64>,
    retry_ns: u64,
    /// Why there is no parent, as that was logged last.
    loss: String,
    is_ending: bool,
}

/// Serves until the supervisor ends it, or has ended.
///
/// # Errors
/// If it can't begin, or another process than the supervisor told it to end.
pub(super) fn run(options: &AgentOptions, signals: SignalFd) -> anyhow::Result<()> {
    let supervisor = getppid();
    // No task depends on it: without a supervisor it would only be in the way of the next one.
    set_pdeathsig(Signal::SIGTERM).context("cannot hear of the end of the supervisor")?;
    let poller = Poller::new()?;
    poller.add(&signals, SIGNALS, Interest::READ)?;
    let tree = Tree::new(TreeOptions::of(options), ClusterClock::default(), &poller);
    let mut client = Client {
        tree,
        poller,
        signals,
        supervisor,
        connect_at_ns: Some(0),
        retry_ns: RETRY_MIN_NS,
        loss: String::new(),
        is_ending: getppid() != supervisor,
    };
    let ended = client.serve();
    client.tree.close();
    ended
}

impl Client {
    fn serve(&mut self) -> anyhow::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.is_ending {
            let due_ns = self.tree.due_ns().into_iter().chain(self.connect_at_ns).min();
            self.poller.wait(due_ns, &mut ready)?;
            for event in &ready {
                if event.token == SIGNALS {
                    self.on_signals()?;
                } else {
                    let heard = self.tree.on_ready(event.token, &self.poller);
                    self.on_heard(heard);
                }
            }
            self.settle();
        }
        Ok(())
    }

    fn settle(&mut self) {
        let now_ns = monotonic_ns();
        let heard = self.tree.on_time(now_ns);
        self.on_heard(heard);
        if self.connect_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.connect_at_ns = None;
            self.tree.connect(&self.poller);
            if !self.tree.has_parent() {
                self.retry_later();
            }
        }
        let heard = self.tree.settle(&self.poller);
        self.on_heard(heard);
    }

    fn retry_later(&mut self) {
        self.connect_at_ns = Some(monotonic_ns() + self.retry_ns);
        self.retry_ns = (self.retry_ns * 2).min(RETRY_MAX_NS);
    }

    fn on_heard(&mut self, heard: Vec<Heard>) {
        for heard in heard {
            match heard {
                Heard::Taken => {
                    info!("connected with the head");
                    self.loss.clear();
                    self.retry_ns = RETRY_MIN_NS;
                }
                Heard::ParentLost(reason) => {
                    if self.loss != reason {
                        warn!(code = %Code::OutOfReach, "no connection with the head: {reason}");
                        self.loss = reason;
                    }
                    self.retry_later();
                }
                // A client machine is sent nowhere else.
                Heard::AskAnother => self.retry_later(),
                // No jobs are here.
                Heard::Order(_)
                | Heard::Exchanged(_)
                | Heard::JoinAgain
                | Heard::ClockStepped
                | Heard::Lease { .. } => {}
            }
        }
    }

    fn on_signals(&mut self) -> anyhow::Result<()> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let sender = signal.ssi_pid;
            if !answers_for(sender, self.supervisor) && getppid() == self.supervisor {
                anyhow::bail!("got SIGTERM of process {sender}; another agent is started");
            }
            self.is_ending = true;
        }
        Ok(())
    }
}
