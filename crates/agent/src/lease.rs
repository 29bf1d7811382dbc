//! Until when the jobs of this node may run.
//!
//! A node that hears nothing of the controller's machine can't know whether its jobs have been
//! given up there, and run elsewhere. So an agent is told, with the time, until when that does not
//! happen: for as long as it is in reach the moment moves on; when it is over, the node's jobs are
//! suspended where they are, and go on if the node is back in time. The controller waits a little
//! longer before it takes the node for lost.
//!
//! The moment is kept on a clock of this machine that also counts while the machine sleeps. Three
//! look at it: the switch thread, which runs no job when it is over; the main thread, which moves
//! it on; and the keeper, which suspends the tasks itself, for the case that the agent is stopped
//! or gone. It is not told of each renewal, which would wake it up for little: by what it knows,
//! tasks are suspended a part of a lease earlier at most. An agent that has just begun knows of no
//! jobs before the keeper has told of them; if that does not answer, so that no agent looks after
//! them, the agent suspends what it finds, as far as there are cgroups.

use super::driver::Agent;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::warn;
use tutti_node::platform::time::{boottime_ns, monotonic_ns};
use tutti_types::Nanos;
use tutti_wire::code::Code;
use tutti_wire::keeper::ToKeeper;
use tutti_wire::tree::FromAgent;

/// See the head of the file. No lock: the switch thread reads it.
#[derive(Clone, Debug)]
pub(super) struct Lease(Arc<AtomicU64>);

/// It has no end.
const ENDLESS: u64 = u64::MAX;

/// It was ended for good; one that was never renewed is over as well.
const ENDED: u64 = 0;
const NOT_BEGUN: u64 = 1;

impl Lease {
    /// That of a machine with the controller on it, which needs none; or of one that has heard
    /// nothing.
    pub(super) fn new(is_endless: bool) -> Self {
        Self(Arc::new(AtomicU64::new(if is_endless { ENDLESS } else { NOT_BEGUN })))
    }

    /// Whether jobs may run now.
    pub(super) fn holds(&self) -> bool {
        let until_ns = self.0.load(Ordering::Acquire);
        until_ns == ENDLESS || boottime_ns() < until_ns
    }

    /// When it must be looked at again, by the monotonic clock; never, if it is over.
    pub(super) fn look_again_ns(&self) -> u64 {
        match self.0.load(Ordering::Acquire) {
            ENDLESS => ENDLESS,
            until_ns => match until_ns.saturating_sub(boottime_ns()) {
                0 => ENDLESS,
                left_ns => monotonic_ns() + left_ns,
            },
        }
    }

    /// When it ends, by the clock that counts sleep, if ever.
    fn until_ns(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|&until_ns| until_ns != ENDLESS)
    }

    /// It is over, and is not renewed.
    pub(super) fn end(&self) {
        self.0.store(ENDED, Ordering::Release);
    }

    /// It lasts until then, by the clock that counts sleep.
    fn renew(&self, until_ns: u64) {
        let renewed = |known: u64| (known != ENDED && known != ENDLESS).then_some(until_ns);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, renewed);
    }
}

/// By which part of a lease a moment must be later than the one that the keeper knows to be worth
/// telling.
const TELL_PART: u64 = 4;

/// And it is told of any later one when only so much of a lease is left by what it knows.
const TELL_LAST_PART: u64 = 2;

/// What the keeper was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Until when tasks may run, by the clock that counts sleep.
    until_ns: Option<u64>,
}

impl Told {
    /// When it is to be told that they may until then, while leases are so long.
    fn again_ns(self, until_ns: u64, length: Nanos) -> u64 {
        match self.until_ns {
            Some(told_ns) if told_ns <= until_ns => {
                let is_much_later = until_ns - told_ns >= length.0 / TELL_PART;
                let last_ns = told_ns.saturating_sub(length.0 / TELL_LAST_PART);
                if is_much_later { 0 } else { last_ns }
            }
            // It must not think that they may for longer.
            Some(_) | None => 0,
        }
    }
}

/// A keeper has so long to tell an agent that has just begun what it holds: longer than it takes
/// the time for, and no longer than any lease.
const KEEPER_FIRST_NS: u64 = 1_000_000_000;

/// The process that looks after the jobs of an earlier agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Former {
    /// The keeper may tell of them until then, by the monotonic clock.
    Unknown {
        /// See there.
        by_ns: u64,
    },
    /// It has not, and they were suspended.
    Suspended,
    /// They are known, or need no lease.
    Known,
}

impl Former {
    /// At the beginning of an agent.
    pub(super) fn new(lease: &Lease) -> Self {
        match lease.until_ns() {
            None => Self::Known,
            Some(_) => Self::Unknown { by_ns: monotonic_ns() + KEEPER_FIRST_NS },
        }
    }

    /// When something is to be done about them.
    pub(super) const fn due_ns(self) -> Option<u64> {
        match self {
            Self::Unknown { by_ns } => Some(by_ns),
            Self::Suspended | Self::Known => None,
        }
    }
}

impl Agent {
    /// When the lease must be looked at, if it is of interest.
    pub(super) fn lease_due_ns(&self) -> Option<u64> {
        if self.jobs.is_empty() {
            return None;
        }
        let now_ns = boottime_ns();
        let left_ns = self.tell_again_ns(now_ns).map(|at_ns| at_ns.saturating_sub(now_ns));
        let tell_ns = left_ns.map(|left_ns| monotonic_ns() + left_ns);
        tell_ns.into_iter().chain([self.leases.lease.look_again_ns()]).min()
    }

    /// When the keeper is to be told what the lease is now, by the clock that counts sleep, which
    /// shows this.
    fn tell_again_ns(&self, now_ns: u64) -> Option<u64> {
        let until_ns = self.leases.lease.until_ns().filter(|&until_ns| until_ns > now_ns)?;
        let is_news = self.leases.told.until_ns != Some(until_ns);
        is_news.then(|| self.leases.told.again_ns(until_ns, self.settings.lease))
    }

    /// Suspends what an earlier agent has left running, when the keeper has not told of it in time.
    pub(super) fn watch_former(&mut self) {
        if self.leases.former.due_ns().is_none_or(|due_ns| due_ns > monotonic_ns()) {
            return;
        }
        self.leases.former = Former::Suspended;
        let groups = self.job_groups();
        let suspended = groups.iter().filter(|(_, group)| group.request_freeze().is_ok()).count();
        if suspended > 0 {
            warn!(code = %Code::LeaseOver, "the keeper does not say what runs here; jobs are suspended until it does"
            );
        }
    }

    /// Sees to it that the switch thread does not sleep while the lease ends: after a sleep of the
    /// whole machine it may.
    pub(super) fn watch_lease(&mut self) {
        let holds = self.leases.lease.holds();
        if std::mem::replace(&mut self.leases.lease_held, holds) && !holds {
            self.switch.look_again();
            if !self.jobs.is_empty() {
                warn!(code = %Code::LeaseOver, "the controller's machine is out of reach; jobs here are suspended"
                );
                // So the keeper need not do it.
                self.switch.lapse();
                self.leases.told = Told::default();
                self.tell_keeper(&ToKeeper::Lease { until_ns: None });
            }
        }
        if self.jobs.is_empty() {
            return;
        }
        let now_ns = boottime_ns();
        if self.tell_again_ns(now_ns).is_some_and(|at_ns| at_ns <= now_ns) {
            self.tell_lease();
        }
    }

    /// Tells the controller that leases are as short here as they were made, once that is so: in
    /// this agent, its switch thread, and the keeper, which suspends tasks if the agent does not.
    pub(super) fn confirm_lease(&mut self) {
        let Some(since) = self.leases.shortened.filter(|_| self.has_joined()) else { return };
        let left_ns = |until_ns: u64| until_ns.saturating_sub(boottime_ns());
        let until_ns = self.leases.lease.until_ns();
        // One without an end is that of the controller's own machine.
        if until_ns.is_some_and(|until_ns| left_ns(until_ns) > self.settings.lease.0) {
            return;
        }
        let keeper_ns = self.leases.told.until_ns.filter(|_| !self.jobs.is_empty());
        if keeper_ns.is_some_and(|told_ns| left_ns(told_ns) > self.settings.lease.0) {
            return;
        }
        if let Some(keeper) = &mut self.keeping.keeper {
            // It is told before the controller is.
            let _ = keeper.flush();
        }
        self.leases.shortened = None;
        self.tell_controller(FromAgent::Lease(since));
    }

    /// The jobs here may run until that moment of the monotonic clock.
    pub(super) fn on_lease(&mut self, until_ns: u64) {
        let until_ns = boottime_ns().saturating_add(until_ns.saturating_sub(monotonic_ns()));
        let had_ended = !self.leases.lease.holds();
        if had_ended && !self.has_joined() {
            // What may go on here is not known before; and it is said again before long.
            return;
        }
        if had_ended {
            // Whatever suspended the jobs, the switch thread knows of it before it goes on.
            self.switch.lapse();
        }
        self.leases.lease.renew(until_ns);
        if had_ended {
            self.switch.look_again();
        }
    }

    /// The keeper has suspended all jobs, since it was not told that they may run.
    pub(super) fn on_keeper_lapse(&mut self) {
        warn!(code = %Code::LeaseOver, "nothing was heard of the controller's machine for too long; jobs were suspended"
        );
        self.switch.lapse();
        self.leases.told = Told::default();
    }

    /// The keeper is to know how long tasks may run, and so before the first of a job can start.
    pub(super) fn tell_lease(&mut self) {
        self.leases.told.until_ns = self.leases.lease.until_ns();
        if let Some(until_ns) = self.leases.told.until_ns {
            self.tell_keeper(&ToKeeper::Lease { until_ns: Some(until_ns) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_until_it_is_over() {
        let lease = Lease::new(false);
        assert!(!lease.holds());
        assert_eq!(lease.look_again_ns(), ENDLESS, "what is over needs no look");
        lease.renew(boottime_ns() + 3_600_000_000_000);
        assert!(lease.holds());
        let wait_ns = lease.look_again_ns() - monotonic_ns();
        assert!((3_500_000_000_000..=3_600_000_000_000).contains(&wait_ns), "{wait_ns}");
        lease.end();
        lease.renew(boottime_ns() + 3_600_000_000_000);
        assert!(!lease.holds(), "what was ended is not renewed");
    }

    #[test]
    fn the_keeper_is_told_of_what_is_much_later_and_in_time_of_what_is_not() {
        let length = Nanos::from_secs(40);
        let at = |seconds: u64| seconds * 1_000_000_000;
        assert_eq!(Told::default().again_ns(at(100), length), 0, "it knows of none");
        let told = Told { until_ns: Some(at(100)) };
        assert_eq!(told.again_ns(at(110), length), 0);
        assert_eq!(told.again_ns(at(109), length), at(80), "when half of it is left");
        assert_eq!(told.again_ns(at(99), length), 0, "leases were made shorter");
    }

    #[test]
    fn that_of_the_controllers_machine_has_no_end() {
        let lease = Lease::new(true);
        lease.renew(1);
        assert!(lease.holds());
        assert_eq!(lease.look_again_ns(), ENDLESS);
    }
}
