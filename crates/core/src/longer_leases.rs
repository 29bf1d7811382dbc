//! How long a node may be out of reach before it is lost: as long as it may take itself to be a
//! part of the cluster, and a margin.
//!
//! A node that hears nothing of the controller's machine runs its jobs for as long as a lease lasts
//! (parameter `lease`), and then suspends them. Where the parameter was made shorter, a node may
//! not have heard of it: the longer lease counts there until it is over, or the node confirms that
//! it goes by the shorter one.

use crate::apply::Core;
use serde::{Deserialize, Serialize};
use tutti_types::params::Params;
use tutti_types::time::{ClusterTime, Nanos};

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
    /// When leases were last made shorter. A node confirms that it goes by that.
    #[must_use]
    pub const fn leases_shortened(&self) -> ClusterTime {
        self.longer_leases.changed
    }

    /// When a node is lost that is missed at `now`. Its agent first joined at `joined`, and has
    /// confirmed the change of leases at `confirmed` (see [`Self::leases_shortened`]), or zero.
    #[must_use]
    pub fn lost_at(
        &self,
        now: ClusterTime,
        joined: ClusterTime,
        confirmed: ClusterTime,
    ) -> ClusterTime {
        let Longer { changed, until } = self.longer_leases;
        let mut over = now + self.params.lease();
        if joined <= changed && confirmed < changed {
            over = over.max(until);
        }
        over + MARGIN + Nanos(over.since(now).0 / DRIFT_PART)
    }
}

#[cfg(test)]
mod tests {
    use crate::apply::Core;
    use crate::event::Event;
    use alloc::vec::Vec;
    use tutti_types::class::default_classes;
    use tutti_types::params::Params;
    use tutti_types::time::{ClusterTime, Nanos};

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
        let never = ClusterTime(0);
        assert!(core.lost_at(at(10), joined, never) > at(72));
        set(&mut core, at(20), 10);
        // What it was told at 20 holds until 80.
        assert!(core.lost_at(at(21), joined, never) > at(82));
        assert!(core.lost_at(at(79), joined, never) > at(91));
        assert!(core.lost_at(at(79), joined, never) < at(92));
        // A node that has joined since then was told nothing longer.
        assert!(core.lost_at(at(21), at(21), never) < at(34));
        set(&mut core, at(80), 30);
        assert!(core.lost_at(at(80), joined, never) > at(112));
        set(&mut core, at(81), 5);
        set(&mut core, at(82), 4);
        assert!(core.lost_at(at(83), joined, never) > at(113), "the longest of those before");
    }

    #[test]
    fn a_node_that_confirms_a_shorter_lease_is_lost_by_that() {
        let mut core = Core::new(Params::default(), default_classes());
        let joined = at(1);
        set(&mut core, at(5), 60);
        set(&mut core, at(20), 10);
        let confirmed = core.leases_shortened();
        assert_eq!(confirmed, at(20));
        assert!(core.lost_at(at(21), joined, confirmed) < at(34));
        // It may not have heard of the next change, whatever it has confirmed before.
        set(&mut core, at(22), 5);
        assert!(core.lost_at(at(23), joined, confirmed) > at(82));
        assert!(core.lost_at(at(23), joined, core.leases_shortened()) < at(31));
    }
}
