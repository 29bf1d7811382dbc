//! How the switch thread reaches the processes of a job.

use crate::outside::groups::{Cgroup, resume_group_except, suspend_group};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tutti_linux::signal::{Root, Traversal, Walk, resume_forest_except, suspend_forest};
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
    /// Run where nobody else would.
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
    /// Processes that stay stopped when the job is resumed, named by number and start time.
    pub(super) stopped: BTreeSet<(i32, u64)>,
    /// How often it was suspended or resumed; read by the main thread.
    pub(super) switches: Arc<AtomicU64>,
}

impl Grip {
    pub(super) const fn is_by_signals(&self) -> bool {
        matches!(self, Self::SignalGroup(_) | Self::SignalTrees(_))
    }

    /// What an earlier agent has left the job in. Whether it makes way, its cgroup does not tell at once:
    /// so it does. Nobody is hurried any more whom that agent was about to stop.
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

    /// Freezes the group of a job that has no process yet, or has it make way: whether it can do nothing out of
    /// its turn now. Whoever makes processes in it is told after that, or this one could end in between.
    pub(super) fn hold(&self) -> bool {
        match self {
            Self::Freeze(group) => group.request_freeze().is_ok(),
            Self::Weigh(group) => group.set_yielding(true).is_ok(),
            Self::SignalGroup(_) | Self::SignalTrees(_) => false,
        }
    }

    /// Asks all to stop; where that is by signals, waits until they have, and says whether they did.
    pub(super) fn suspend(&self, settings: Settings) -> bool {
        match self {
            Self::Freeze(group) | Self::Weigh(group) => group.request_freeze().is_ok(),
            Self::SignalGroup(group) => suspend_group(group, &walk(settings)).is_ok(),
            Self::SignalTrees(trees) => suspend_forest(trees, &walk(settings)).is_ok(),
        }
    }
}

impl Member {
    /// Lets it run, or run where nobody else would, as its state says. What can't be resumed has ended;
    /// the keeper will say so.
    pub(super) fn resume(&self, settings: Settings) {
        let stopped = &self.stopped;
        match &self.grip {
            Grip::Freeze(group) => drop(group.request_thaw()),
            Grip::Weigh(group) => {
                drop(group.set_yielding(self.state != State::Runs));
                drop(group.request_thaw());
            }
            Grip::SignalGroup(group) => {
                drop(resume_group_except(group, stopped, &walk(settings)));
            }
            Grip::SignalTrees(trees) => {
                drop(resume_forest_except(trees, stopped, &walk(settings)));
            }
        }
    }

    /// Puts a cgroup without processes, which is frozen or makes way, into the state of the job.
    pub(super) fn be_born(&self, settings: Settings) {
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
            tutti_core::Traversal::DepthFirst => Traversal::DepthFirst,
            tutti_core::Traversal::BreadthFirst => Traversal::BreadthFirst,
            tutti_core::Traversal::Hybrid => Traversal::Hybrid,
            tutti_core::Traversal::AllAtOnce => Traversal::AllAtOnce,
        },
        retry_interval: Duration::from_nanos(settings.retry_interval.0),
        deadline: Duration::from_nanos(settings.freeze_deadline.0),
    }
}
