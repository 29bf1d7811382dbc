//! How much of the node's processors goes to what is none of the cluster's jobs: users' own
//! programs, daemons, the jobs of other clusters on the same machine.
//!
//! The kernel counts what was used in all, and what our group has used of it; the rest is foreign.
//! To look costs a few reads, so that is done on request, and now and then while the agent is awake
//! anyway: an answer is about the last seconds then, not about the time since the last question.

use crate::processor_time::Reading;
use crate::released::Own;

/// Counted in ticks of 10 ms, a shorter time says nothing.
const LOOK_MIN_NS: u64 = 1_000_000_000;
/// After so long it is looked at unasked.
const LOOK_MAX_NS: u64 = 10_000_000_000;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    last: Option<Reading>,
    share_milli: Option<u32>,
}

impl Foreign {
    /// How many processors, in thousandths, others had on average between the last two looks; the
    /// later one is now, unless the earlier was a moment ago.
    pub(crate) fn share(&mut self, now_ns: u64, own: Option<Own<'_>>) -> Option<u32> {
        if self.has_waited(now_ns, LOOK_MIN_NS) {
            self.look(Reading::take(now_ns, own?)?);
        }
        self.share_milli
    }

    /// Measures, if the last measurement is old.
    pub(crate) fn now_and_then(&mut self, now_ns: u64, own: Option<Own<'_>>) {
        if self.has_waited(now_ns, LOOK_MAX_NS)
            && let Some(reading) = own.and_then(|own| Reading::take(now_ns, own))
        {
            self.look(reading);
        }
    }

    fn has_waited(&self, now_ns: u64, at_least_ns: u64) -> bool {
        self.last.as_ref().is_none_or(|last| now_ns.saturating_sub(last.at_ns) >= at_least_ns)
    }

    fn look(&mut self, now: Reading) {
        if let Some(last) = &self.last {
            let used = now.since(last);
            let of_each = used.busy.values().map(|busy| busy.us.saturating_add(busy.niced_us));
            let foreign_us = of_each.fold(0, u64::saturating_add).saturating_sub(used.own_us);
            self.share_milli = Some(u32::try_from(used.milli(foreign_us)).unwrap_or(u32::MAX));
        }
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::{Foreign, Reading};
    use tutti_linux::proc::Busy;

    /// Of two processors, on one of which all processes give way.
    fn reading(at_ms: u64, busy_ms: u64, own_ms: u64) -> Reading {
        let half = busy_ms * 500;
        let busy = [Busy { us: half, niced_us: 0 }, Busy { us: 0, niced_us: half }];
        let (busy, own_us) = ((0..).zip(busy).collect(), own_ms * 1000);
        Reading { at_ns: at_ms * 1_000_000, busy, own_us }
    }

    #[test]
    fn what_is_not_ours_is_foreign() {
        let mut foreign = Foreign::default();
        let mut at = |at_ms: u64, busy_ms: u64, own_ms: u64| {
            foreign.look(reading(at_ms, busy_ms, own_ms));
            foreign.share_milli
        };
        assert_eq!(at(5_000, 90_000, 400), None, "one look says nothing");
        assert_eq!(at(7_000, 93_000, 900), Some(1250));
        assert_eq!(at(8_000, 94_000, 1_900), Some(0), "all of it is ours");
        // Ticks are coarser than what a group has used.
        assert_eq!(at(9_000, 94_990, 2_900), Some(0));
        assert_eq!(at(10_000, 96_990, 2_900), Some(2000));
    }

    #[test]
    fn it_is_looked_at_no_more_often_than_ticks_can_tell() {
        let mut foreign = Foreign::default();
        assert!(foreign.has_waited(0, 1_000));
        foreign.look(reading(5, 0, 0));
        assert!(!foreign.has_waited(5_000_999, 1_000));
        assert!(foreign.has_waited(5_001_000, 1_000));
    }
}
