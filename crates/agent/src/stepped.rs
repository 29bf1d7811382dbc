//! An agent that does a round when it is told to, and its switch thread that does so apart from it:
//! for simulations, which have them beside all the others in one thread.

use super::clock::ClusterClock;
use super::driver::{Agent, AgentOptions, first_settings};
use super::lease::Lease;
use super::switch::Switch;
use super::transport::Carrier;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tutti_node::link::{Poller, Ready};
use tutti_node::platform::groups::Hierarchy;
use tutti_node::platform::ways::Stream;
use tutti_secure::Member;
use tutti_types::{ClusterTime, JobId, LaunchId};

/// See the head of the file.
pub struct Stepped {
    agent: Agent,
    clock: ClusterClock,
    ready: Vec<Ready>,
}

impl Stepped {
    /// One that has just been started.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn start(options: AgentOptions) -> anyhow::Result<Self> {
        let clock = ClusterClock::default();
        let is_root = options.membership.as_ref().is_none_or(|it| it.head.is_empty());
        let lease = Lease::new(is_root);
        let switch = Switch::stepped(first_settings(), clock.clone(), lease.clone())?;
        let groups = Hierarchy::find(&options.cgroup_name).map_err(|it| anyhow::anyhow!("{it}"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&SigSet::empty(), flags)?;
        let groups = (Some(groups), String::new());
        let mut agent = Agent::new(options, groups, (switch, clock.clone(), lease), signals)?;
        agent.connect();
        Ok(Self { agent, clock, ready: Vec::new() })
    }

    /// The agent of another machine has connected.
    pub fn let_in(&mut self, stream: Stream, from: Member) {
        let carrier = Carrier::Simulated(stream, from);
        self.agent.tree.let_in(carrier, &self.agent.poller);
    }

    /// A process of this machine wants to be connected with a daemon of another one.
    pub fn take_guest(&mut self, stream: Stream) {
        self.agent.tree.take_guest(stream, &self.agent.poller);
    }

    /// Whether anything has come that it has not taken in.
    pub fn look(&mut self) -> bool {
        self.agent.poller.look(&mut self.ready).is_ok() && !self.ready.is_empty()
    }

    /// Readable when something has come.
    pub fn poller(&self) -> &Poller {
        &self.agent.poller
    }

    /// Does a round; with what [`Self::look`] has found. False if it has ended.
    pub fn round(&mut self) -> bool {
        let ready = std::mem::take(&mut self.ready);
        let goes_on = self.agent.round(&ready).is_ok() && !self.agent.has_ended();
        self.ready = ready;
        self.ready.clear();
        goes_on
    }

    /// When it has something to do, by its machine's clock.
    pub fn due_ns(&self) -> Option<u64> {
        self.agent.due_ns()
    }

    /// When its switch thread has.
    pub fn switch_due_ns(&self) -> u64 {
        self.agent.switch.wake_ns()
    }

    /// The switch thread wakes up.
    pub fn switch(&mut self) {
        self.agent.switch.step();
    }

    /// The jobs that are to run here, by the timetable that is in effect and the lease.
    pub fn named(&self) -> Vec<JobId> {
        self.agent.switch.named()
    }

    /// What is known of jobs here.
    pub fn launches(&self) -> Vec<LaunchId> {
        self.agent.jobs.values().map(|job| job.launch).collect()
    }

    /// Cluster time, as it has it, and by how much that may be wrong.
    pub fn time(&self) -> Option<(ClusterTime, u64)> {
        let error = self.agent.tree.known_error()?;
        Some((self.clock.now(), error.0))
    }

    /// Which cluster time it has.
    pub fn era(&self) -> u64 {
        self.agent.tree.era()
    }

    /// Whether anything here goes by that time: jobs run only while the lease holds.
    pub fn holds_lease(&self) -> bool {
        self.agent.leases.lease.holds()
    }

    /// Whether the controller knows of it.
    pub fn has_joined(&self) -> bool {
        self.agent.has_joined()
    }
}
