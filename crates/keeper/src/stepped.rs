//! A keeper that does a round when it is told to: for simulations, which have it beside all the
//! others in one thread.

use super::KeeperOptions;
use super::context::Context;
use super::driver::Keeper;
use super::watch::Event;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use tutti_node::link::Poller;
use tutti_node::platform::ways::Stream;
use tutti_types::LaunchId;
use tutti_wire::launch::Usage;

/// See the head of the file.
pub struct Stepped {
    keeper: Keeper,
    events: Vec<Event>,
    /// The other end of what stands for its listener.
    _nobody: UnixStream,
}

impl Stepped {
    /// One that has just been started.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn start(options: KeeperOptions) -> anyhow::Result<Self> {
        // Nothing connects to it: connections come from the caller.
        let (listener, nobody) = UnixStream::pair()?;
        let listener = UnixListener::from(OwnedFd::from(listener));
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&SigSet::empty(), flags)?;
        let context = Context::new(&options)?;
        let keeper = Keeper::hearing(options, listener, context, signals)?;
        keeper.remove_leftovers();
        Ok(Self { keeper, events: Vec::new(), _nobody: nobody })
    }

    /// A client has connected.
    pub fn take_in(&mut self, stream: Stream) {
        // A refused client is told, or closes.
        let _ = self.keeper.welcome_newcomer(stream);
    }

    /// A child has ended.
    pub fn reap(&mut self, pid: i32, end: tutti_linux::reap::End) {
        self.keeper.on_reaped(pid, end, &Usage::unknown());
    }

    /// Whether anything has come that it has not taken in.
    pub fn look(&mut self) -> bool {
        self.keeper.context.watches.look(&mut self.events).is_ok() && !self.events.is_empty()
    }

    /// Readable when something has come.
    pub fn poller(&self) -> &Poller {
        self.keeper.context.watches.poller()
    }

    /// Does a round; with what [`Self::look`] has found. False if it has ended.
    pub fn round(&mut self) -> bool {
        let events = std::mem::take(&mut self.events);
        let may_be_due = self.keeper.deadline_ns().is_some();
        self.keeper.round(&events, may_be_due);
        self.events = events;
        self.events.clear();
        !self.keeper.may_exit()
    }

    /// When it has something to do, by its machine's clock.
    pub fn due_ns(&self) -> Option<u64> {
        self.keeper.deadline_ns()
    }

    /// What it holds.
    pub fn launches(&self) -> Vec<LaunchId> {
        self.keeper.jobs.values().map(|job| job.launch.id()).collect()
    }
}
