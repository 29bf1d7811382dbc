//! How long a node may be out of reach before it is lost: as long as it may take itself to be a part of
//! the cluster, and a margin.
//!
//! A node that hears nothing of the controller's machine runs its jobs for as long as a lease lasts
//! (parameter `lease`), and then suspends them. Where the parameter was made shorter, a node may not have
//! heard of it: what was promised before it still holds.

use crate::controller::Core;
use crate::params::Params;
use crate::time::{ClusterTime, Nanos};
use serde::{Deserialize, Serialize};

/// What a node may take to suspend its jobs when its lease is over.
const MARGIN: Nanos = Nanos::from_secs(2);

/// By which part of the lease clocks drift apart at most meanwhile, and more.
const DRIFT_PART: u64 = 1000;

/// What is remembered of longer leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Longer {
    /// When leases were last made shorter.
    changed: ClusterTime,
    /// Until when the longest may last that was given before.
    until: ClusterTime,
}

impl Longer {
    /// The parameters are others from now on.
    pub(crate) fn note(&mut self, now: ClusterTime, before: &Params, after: &Params) {
        if after.lease() < before.lease() {
            self.changed = now;
            self.until = self.until.max(now + before.lease());
        }
    }
}

impl Core {
    /// When a node is lost that is missed at `now`, and whose agent first joined at `joined`.
    #[must_use]
    pub fn lost_at(&self, now: ClusterTime, joined: ClusterTime) -> ClusterTime {
        let mut over = now + self.params.lease();
        if joined <= self.longer_leases.changed {
            over = over.max(self.longer_leases.until);
        }
        over + MARGIN + Nanos(over.since(now).0 / DRIFT_PART)
    }
}

#[cfg(test)]
mod tests {
    use crate::class::default_classes;
    use crate::controller::Core;
    use crate::event::Event;
    use crate::params::Params;
    use crate::time::{ClusterTime, Nanos};
    use alloc::vec::Vec;

    const fn at(seconds: u64) -> ClusterTime {
        ClusterTime(seconds * 1_000_000_000)
    }

    fn set(core: &mut Core, now: ClusterTime, seconds: u64) {
        let mut params = core.params().clone();
        params.set("lease", Nanos::from_secs(seconds).0).unwrap();
        core.apply(now, &Event::SetParams { params }, &mut Vec::new());
    }

    #[test]
    fn a_node_is_lost_only_after_its_lease_whatever_the_parameter_becomes() {
        let mut core = Core::new(Params::default(), default_classes());
        let joined = at(1);
        set(&mut core, at(5), 60);
        assert!(core.lost_at(at(10), joined) > at(72));
        set(&mut core, at(20), 10);
        // What it was told at 20 holds until 80.
        assert!(core.lost_at(at(21), joined) > at(82));
        assert!(core.lost_at(at(79), joined) > at(91) && core.lost_at(at(79), joined) < at(92));
        // Who has joined since then was told nothing longer.
        assert!(core.lost_at(at(21), at(21)) < at(34));
        set(&mut core, at(80), 30);
        assert!(core.lost_at(at(80), joined) > at(112));
        set(&mut core, at(81), 5);
        set(&mut core, at(82), 4);
        assert!(core.lost_at(at(83), joined) > at(113), "the longest of those before");
    }
}
