//! Where a daemon of a machine sits: it may be there or not, stopped or slow, and wakes up when
//! something comes or its time is.

use tutti_agent as agent;
use tutti_controller as controller;
use tutti_keeper as keeper;
use tutti_node::link::Poller;
use tutti_node::simulated::machine::{Daemon, machine, member_of};

/// Any of the daemons.
pub(super) enum Any {
    Controller(Box<controller::Stepped>),
    Agent(Box<agent::Stepped>),
    Keeper(Box<keeper::Stepped>),
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) daemon: Option<Any>,
    /// How often one has sat here.
    pub(super) life: u64,
    /// When it is to wake up, in the world's time.
    pub(super) wake_ns: Option<u64>,
    /// When the queue of events comes to it.
    queued_ns: Vec<u64>,
    /// It does nothing before that: it was stopped.
    pub(super) stopped_until_ns: u64,
    /// How many more things it does before it is killed, and after how long another one is there,
    /// in nanoseconds.
    pub(super) cut: Option<(u32, u64)>,
    /// When it wants to do something by itself, in the world's time.
    pub(super) due_ns: Option<u64>,
}

impl Seat {
    /// It is to wake up then, if not before. Whether the queue is to come to it then: it may before
    /// that.
    pub(super) fn wakes_at(&mut self, at_ns: u64) -> bool {
        if self.daemon.is_none() || self.wake_ns.is_some_and(|wake_ns| wake_ns <= at_ns) {
            return false;
        }
        self.wake_ns = Some(at_ns);
        self.is_queued_for(at_ns)
    }

    fn is_queued_for(&mut self, at_ns: u64) -> bool {
        let is_missing = !self.queued_ns.iter().any(|&queued_ns| queued_ns <= at_ns);
        if is_missing {
            self.queued_ns.push(at_ns);
        }
        is_missing
    }

    /// The queue has come to it: whether it wakes up, or when the queue is to come again.
    pub(super) fn on_queue(&mut self, now_ns: u64) -> Result<(), Option<u64>> {
        if let Some(index) = self.queued_ns.iter().position(|&queued_ns| queued_ns == now_ns) {
            self.queued_ns.swap_remove(index);
        }
        match self.wake_ns {
            Some(wake_ns) if wake_ns <= now_ns => Ok(()),
            Some(wake_ns) => Err(self.is_queued_for(wake_ns).then_some(wake_ns)),
            None => Err(None),
        }
    }

    /// Another one sits here now, which has something to do at once.
    pub(super) fn begin(&mut self, daemon: Any, now_ns: u64) {
        self.daemon = Some(daemon);
        self.life += 1;
        (self.wake_ns, self.due_ns, self.stopped_until_ns) = (None, Some(now_ns), 0);
        self.cut = None;
    }
}

impl Any {
    const fn which(&self) -> Daemon {
        match self {
            Self::Controller(_) => Daemon::Controller,
            Self::Agent(_) => Daemon::Agent,
            Self::Keeper(_) => Daemon::Keeper,
        }
    }

    /// Accepts the connections that have come to it on this machine; whether any has.
    pub(super) fn take_in(&mut self, site: usize) -> bool {
        let which = self.which();
        if machine(site, |machine| machine.knocks.is_empty() && machine.callers.is_empty()) {
            return false;
        }
        let (knocks, callers) = machine(site, |machine| {
            let knocks: Vec<_> = machine.knocks.extract_if(.., |knock| knock.0 == which).collect();
            let callers = match which {
                Daemon::Agent => std::mem::take(&mut machine.callers),
                Daemon::Controller | Daemon::Keeper => Vec::new(),
            };
            (knocks, callers)
        });
        let any = !knocks.is_empty() || !callers.is_empty();
        for (_, stream) in knocks {
            match self {
                // A connection that is closed before it is accepted does not count.
                Self::Controller(controller) => drop(controller.take_in(stream)),
                Self::Keeper(keeper) => keeper.take_in(stream),
                Self::Agent(agent) => agent.take_guest(stream),
            }
        }
        if let Self::Agent(agent) = self {
            for (from, stream) in callers {
                agent.let_in(stream, member_of(from));
            }
        }
        any
    }

    /// Readable when it has something to look at.
    pub(super) fn poller(&self) -> &Poller {
        match self {
            Self::Controller(controller) => controller.poller(),
            Self::Agent(agent) => agent.poller(),
            Self::Keeper(keeper) => keeper.poller(),
        }
    }

    pub(super) fn look(&mut self) -> bool {
        match self {
            Self::Controller(controller) => controller.look(),
            Self::Agent(agent) => agent.look(),
            Self::Keeper(keeper) => keeper.look(),
        }
    }

    /// False if it has ended.
    pub(super) fn round(&mut self) -> bool {
        match self {
            Self::Controller(controller) => {
                controller.round();
                true
            }
            Self::Agent(agent) => agent.round(),
            Self::Keeper(keeper) => keeper.round(),
        }
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        match self {
            Self::Controller(controller) => controller.due_ns(),
            Self::Agent(agent) => agent.due_ns(),
            Self::Keeper(keeper) => keeper.due_ns(),
        }
    }
}
