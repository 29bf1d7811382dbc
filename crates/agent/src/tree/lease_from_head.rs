//! Until when an agent may let jobs run, as it is told from above and tells those below.
//!
//! The agent on the controller's machine vouches for what is connected to it, each time that it
//! says what time it is: for so long no node that has joined through it is taken for lost. That
//! moment goes down the tree unchanged: an inner agent passes on what it was told last, and never
//! says more by itself. What it hears before it has joined counts from then on; what it heard at a
//! former place in the tree counts until it is over, but says nothing to those below, which have to
//! join again as well.
//!
//! A controller that takes over knows nothing of what was promised before. So it waits as long for
//! those which have not joined, and begins to count when the agent of its machine has joined: that
//! has vouched for others up to then. (`controller/src/leases.rs` has the other half.)

use super::{Heard, Tree};
use tutti_node::platform::time::monotonic_ns;
use tutti_types::{ClusterTime, Nanos};
use tutti_wire::branch::ClockReply;

/// What was told of it.
#[derive(Debug, Default)]
pub(super) struct Vouched {
    /// How long a lease is, as the controller has said.
    length: Nanos,
    /// Until when the parent has vouched, at this place in the tree.
    until: ClusterTime,
    /// What time it was then.
    said: ClusterTime,
}

impl Vouched {
    /// How long it is.
    pub(super) const fn length(&self) -> Nanos {
        self.length
    }

    /// The controller says how long.
    pub(super) const fn lasts(&mut self, length: Nanos) {
        self.length = length;
    }

    /// The parent has said until when.
    pub(super) const fn hear(&mut self, reply: &ClockReply) {
        self.until = reply.lease;
        self.said = reply.went;
    }

    /// Until when that counts: what was said before the controller made leases shorter does not any
    /// more, once that is known.
    fn counts_until(&self) -> ClusterTime {
        self.until.min(self.said + self.length)
    }

    /// There is another place in the tree: no agent has vouched for this one there.
    pub(super) const fn begin_anew(&mut self) {
        self.until = ClusterTime(0);
    }
}

impl Tree {
    /// What those below are told.
    pub(super) fn vouches_until(&self, now_ns: u64) -> ClusterTime {
        if self.options.is_root() {
            return self.time.clock.at(now_ns) + self.lease.length;
        }
        if self.routes.own().is_some() { self.lease.counts_until() } else { ClusterTime(0) }
    }

    /// Tells the agent itself, once it has joined: surely not later than it is by the controller's
    /// clock.
    pub(super) fn pass_lease_on(&mut self) {
        if self.options.is_root() || self.routes.own().is_none() {
            return;
        }
        let now_ns = monotonic_ns();
        let Some(error) = self.time_error(now_ns) else { return };
        let until = self.lease.counts_until();
        let until_ns = self.time.clock.own_ns(until).saturating_sub(error.0);
        if until_ns > now_ns {
            self.heard.push(Heard::Lease { until_ns });
        }
    }
}
