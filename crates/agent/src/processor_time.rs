//! What of the node's processors has been used, by all and by the jobs, since it was looked at
//! before. What is made of that: `external_load/`.

use crate::released::Own;
use std::collections::BTreeMap;
use tutti_linux::proc::Busy;
use tutti_node::platform::hardware::busy_processors;

/// What had been used at some moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at_ns: u64,
    /// Of each processor that tasks may use.
    pub(super) busy: BTreeMap<u32, Busy>,
    /// By the jobs, in microseconds.
    pub(super) own_us: u64,
}

impl Reading {
    /// Nothing where the kernel does not count.
    pub(super) fn take(at_ns: u64, own: Own<'_>) -> Option<Self> {
        let own_us = own.used_us()?;
        Some(Self { at_ns, busy: busy_processors().ok()?, own_us })
    }

    /// What has been used since an earlier one. Of a processor that was not there then nothing is
    /// known.
    pub(super) fn since(&self, last: &Self) -> Used {
        let since = |(processor, now): (&u32, &Busy)| {
            let before = last.busy.get(processor).unwrap_or(now);
            let us = now.us.saturating_sub(before.us);
            (*processor, Busy { us, niced_us: now.niced_us.saturating_sub(before.niced_us) })
        };
        Used {
            passed_us: (self.at_ns.saturating_sub(last.at_ns) / 1000).max(1),
            busy: self.busy.iter().map(since).collect(),
            own_us: self.own_us.saturating_sub(last.own_us),
        }
    }
}

/// What was used between two readings.
#[derive(Debug)]
pub(super) struct Used {
    passed_us: u64,
    pub(super) busy: BTreeMap<u32, Busy>,
    pub(super) own_us: u64,
}

impl Used {
    /// So much of the time in thousandths of a processor.
    pub(super) const fn milli(&self, us: u64) -> u64 {
        us.saturating_mul(1000) / self.passed_us
    }
}

#[cfg(test)]
mod tests {
    use super::{Busy, Reading};

    #[test]
    fn a_processor_that_was_not_there_before_has_used_nothing() {
        let reading = |at_ms: u64, of_each: &[(u32, u64)], own_us| {
            let busy = of_each.iter().map(|&(processor, us)| (processor, Busy { us, niced_us: 1 }));
            Reading { at_ns: at_ms * 1_000_000, busy: busy.collect(), own_us }
        };
        let last = reading(10, &[(0, 500), (1, 70)], 40);
        let used = reading(14, &[(0, 1500), (3, 9000)], 30).since(&last);
        let of_each: Vec<_> = used.busy.iter().map(|(&it, busy)| (it, busy.us)).collect();
        assert_eq!((of_each, used.own_us), (vec![(0, 1000), (3, 0)], 0));
        assert_eq!(used.milli(1000), 250);
    }
}
