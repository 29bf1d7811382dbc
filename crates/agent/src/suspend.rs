//! How the switch thread reaches the processes of a job.

use super::subtree_control::{Name, SIGSTOP};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tutti_linux::signal::{
    Root, Traversal, Walk, continue_named, halt_forest, resume_forest_except, signal_named,
    stopped_among,
};
use tutti_node::platform::groups::{Cgroup, halt_group, resume_group_except};
use tutti_wire::tree::Settings;

/// How the processes of a job are reached.
#[derive(Debug)]
pub(crate) enum Grip {
    /// By the freezer of its cgroup.
    Freeze(Arc<Cgroup>),
    /// By how much its cgroup's processor time counts; by the freezer while it has no turns at all.
    Weigh(Arc<Cgroup>),
    /// By signals to all processes of its cgroup.
    SignalGroup(Arc<Cgroup>),
    /// By signals to these trees: what is below the tasks' minders, or adopted processes.
    SignalTrees(Vec<Root>),
}

/// What the processes of a job may do, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Nothing.
    Stands,
    /// Run where no other would.
    Yields,
    /// Run.
    Runs,
}

/// A job, as the switch thread knows it.
pub(super) struct Member {
    /// Which launch of the job it is: timetables that mean another are not about it.
    pub(super) number: u32,
    pub(super) grip: Grip,
    pub(super) state: State,
    /// Processes that users have suspended: they stay stopped when the job is resumed.
    pub(super) stopped: BTreeSet<Name>,
    /// Processes that the job itself had stopped when it was last suspended by signals: they stay
    /// so, too.
    pub(super) own: BTreeSet<Name>,
    /// Processes that users have stopped by a signal since the job was last resumed.
    halted: BTreeSet<Name>,
    /// Signals that stop processes unless their programs say otherwise. Sent while the processes
    /// stand still, they would be lost: they are sent when the job is resumed.
    later: BTreeMap<Name, i32>,
    /// Some had not stopped at the deadline.
    pub(super) late: Option<Late>,
    /// How often it was suspended or resumed; read by the main thread.
    pub(super) switches: Arc<AtomicU64>,
}

/// When a job that had not stopped in time is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// By the monotonic clock of the machine.
    pub(super) at_ns: u64,
    /// The pause before that; the next is twice as long.
    pause_ns: u64,
}

/// The first pause before a job is asked again to stop, and the longest.
const PAUSE_FIRST_NS: u64 = 20_000_000;
const PAUSE_LONGEST_NS: u64 = 1_000_000_000;

impl Late {
    /// Next attempt after one that failed just now.
    pub(super) fn after(before: Option<Self>, now_ns: u64) -> Self {
        let pause_ns = before.map_or(PAUSE_FIRST_NS, |it| (it.pause_ns * 2).min(PAUSE_LONGEST_NS));
        Self { at_ns: now_ns.saturating_add(pause_ns), pause_ns }
    }
}

/// Which stopped processes a suspension by signals takes to be the job's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learns {
    /// Those that had stopped before: the job has been running.
    Yes,
    /// None more: an earlier attempt, or an earlier agent, has stopped them.
    No,
}

impl Grip {
    pub(super) const fn is_by_signals(&self) -> bool {
        matches!(self, Self::SignalGroup(_) | Self::SignalTrees(_))
    }

    /// What an earlier agent has left the job in. Whether it makes way, its cgroup does not tell at
    /// once: so it does. No process is hurried any more that that agent was about to stop.
    pub(super) fn state(&self) -> State {
        match self {
            Self::Freeze(group) | Self::Weigh(group)
                if group.freeze_requested().unwrap_or(false) =>
            {
                group.calm();
                State::Stands
            }
            Self::Weigh(group) if group.set_yielding(true).is_ok() => State::Yields,
            _ => State::Runs,
        }
    }

    /// Freezes the group of a job that has no process yet, or has it make way: whether it can do
    /// nothing out of its turn now. The maker of processes in it is told after that, or this one
    /// could end in between.
    pub(super) fn hold(&self) -> bool {
        match self {
            Self::Freeze(group) => group.request_freeze().is_ok(),
            Self::Weigh(group) => group.set_yielding(true).is_ok(),
            Self::SignalGroup(_) | Self::SignalTrees(_) => false,
        }
    }
}

impl Member {
    /// One that has no process, or runs.
    pub(super) fn new(number: u32, grip: Grip, state: State, switches: Arc<AtomicU64>) -> Self {
        let (stopped, own, halted) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let later = BTreeMap::new();
        Self { number, grip, state, stopped, own, halted, later, late: None, switches }
    }

    /// Asks all to stop; where that is by signals, waits until they have. Gives whether they have
    /// stopped. Those that have not stay asked.
    pub(super) fn suspend(&mut self, walk: &Walk, learns: Learns) -> bool {
        let halt = match &self.grip {
            Grip::Freeze(group) | Grip::Weigh(group) => {
                let frozen = group.request_freeze().and_then(|()| group.is_frozen());
                return frozen.unwrap_or_else(|error| error.is_gone());
            }
            Grip::SignalGroup(group) => halt_group(group, walk),
            Grip::SignalTrees(trees) => halt_forest(trees, walk),
        };
        if learns == Learns::Yes {
            // Of what users have suspended since, it is known already.
            self.own.retain(|name| self.stopped.contains(name));
            self.own.extend(halt.before.difference(&self.stopped));
            // These may have been sent their signal, and not have acted upon it.
            self.own.append(&mut self.halted);
        }
        halt.outcome.is_ok()
    }

    /// Only these processes are suspended by users from now on. Where it `learns`, they are about
    /// to stop those that are new, and have not yet: what has stopped of them is the job's own.
    pub(super) fn spare(&mut self, stopped: BTreeSet<Name>, learns: Learns) {
        let before = std::mem::replace(&mut self.stopped, stopped);
        if self.state == State::Runs && self.grip.is_by_signals() {
            if learns == Learns::Yes {
                self.own.extend(stopped_among(self.stopped.difference(&before)));
            }
            self.let_go_on(&before);
        }
    }

    /// Continues those of these processes that nothing is to keep from running.
    pub(super) fn let_go_on(&self, names: &BTreeSet<Name>) {
        let kept = [&self.stopped, &self.own, &self.halted];
        let is_free = |name: &&Name| !kept.iter().any(|kept| kept.contains(name));
        if self.state == State::Runs && self.grip.is_by_signals() {
            continue_named(&names.iter().filter(is_free).copied().collect());
        }
    }

    /// A user sends these processes of a job that is switched by signals one that stops them, at
    /// once or as their programs say. They stay stopped until they are to go on, also if it is not
    /// the job's turn.
    pub(super) fn halt(&mut self, names: BTreeSet<Name>, signal: i32) {
        match (self.state, signal) {
            _ if !self.grip.is_by_signals() => {}
            (State::Runs, _) => {
                signal_named(&names, signal);
                if signal == SIGSTOP {
                    self.halted.extend(names);
                }
            }
            (_, SIGSTOP) => self.own.extend(names),
            _ => self.later.extend(names.into_iter().map(|name| (name, signal))),
        }
    }

    /// These processes of a job that is switched by signals go on, or all: now, or when it is its
    /// turn.
    pub(super) fn go_on(&mut self, names: Option<&BTreeSet<Name>>, settings: Settings) {
        match names {
            Some(names) => {
                self.own.retain(|name| !names.contains(name));
                self.halted.retain(|name| !names.contains(name));
                self.later.retain(|name, _| !names.contains(name));
            }
            None => {
                self.own.clear();
                self.halted.clear();
                self.later.clear();
                self.stopped.clear();
            }
        }
        match names {
            _ if self.state != State::Runs || !self.grip.is_by_signals() => {}
            Some(names) => continue_named(names),
            None => self.resume(settings),
        }
    }

    /// Lets it run, or run where no other would, as its state says. What can't be resumed has
    /// ended; the keeper will say so.
    pub(super) fn resume(&mut self, settings: Settings) {
        self.late = None;
        let kept = || self.stopped.iter().chain(&self.own).chain(&self.halted);
        let stopped = || kept().copied().collect();
        match &self.grip {
            Grip::Freeze(group) => drop(group.request_thaw()),
            Grip::Weigh(group) => {
                drop(group.set_yielding(self.state != State::Runs));
                drop(group.request_thaw());
            }
            Grip::SignalGroup(group) => {
                drop(resume_group_except(group, &stopped(), &walk(settings)));
            }
            Grip::SignalTrees(trees) => {
                drop(resume_forest_except(trees, &stopped(), &walk(settings)));
            }
        }
        for (name, signal) in std::mem::take(&mut self.later) {
            signal_named(&[name], signal);
        }
    }

    /// Puts a cgroup without processes, which is frozen or makes way, into the state of the job.
    pub(super) fn be_born(&mut self, settings: Settings) {
        match (self.state, &self.grip) {
            (State::Stands, Grip::Weigh(group)) => drop(group.request_freeze()),
            (State::Runs, Grip::Freeze(_) | Grip::Weigh(_)) => self.resume(settings),
            _ => {}
        }
    }
}

/// How a tree is walked, by the parameters.
pub(super) fn walk(settings: Settings) -> Walk {
    Walk {
        traversal: match settings.traversal {
            tutti_types::Traversal::DepthFirst => Traversal::DepthFirst,
            tutti_types::Traversal::BreadthFirst => Traversal::BreadthFirst,
            tutti_types::Traversal::Hybrid => Traversal::Hybrid,
            tutti_types::Traversal::AllAtOnce => Traversal::AllAtOnce,
        },
        retry_interval: Duration::from_nanos(settings.retry_interval.0),
        deadline: Duration::from_nanos(settings.freeze_deadline.0),
    }
}
