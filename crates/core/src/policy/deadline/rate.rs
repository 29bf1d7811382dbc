//! How much of its time a row is sure to get.
//!
//! Under the policy `deadline` a row's slots have the same length whichever others are there: a row
//! that has nothing to run only drops out of the cycle. So between two turns of a row every other
//! has at most one, and at the worst a row waits for all others first, whenever one begins to
//! count: of any time it gets at least what is beyond that in each cycle.

use serde::{Deserialize, Serialize};
use tutti_types::time::Nanos;

/// The slots of one row in the longest cycle that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// The row's own, in nanoseconds.
    pub(crate) slot: u64,
    /// Those of all rows together.
    pub(crate) cycle: u64,
}

impl Pace {
    /// The least that the row gets of so much time, whenever that begins.
    pub(crate) fn sure(self, time: Nanos) -> u64 {
        if self.slot == 0 {
            return 0;
        }
        let (cycles, rest) = (time.0 / self.cycle, time.0 % self.cycle);
        cycles * self.slot + rest.saturating_sub(self.cycle - self.slot)
    }

    /// After how much time the row is sure to have got so much; `None`: unknown.
    pub(crate) fn takes(self, service: u64) -> Option<Nanos> {
        if service == 0 {
            return Some(Nanos::ZERO);
        }
        let cycles = (service - 1).checked_div(self.slot)?;
        let rest = self.cycle - self.slot + (service - cycles * self.slot);
        cycles.checked_mul(self.cycle)?.checked_add(rest).map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use proptest::prelude::*;
    use tutti_types::time::Nanos;

    #[test]
    fn a_row_alone_gets_all_and_one_without_a_slot_nothing() {
        let pace = Pace { slot: 7, cycle: 7 };
        assert_eq!((pace.sure(Nanos(100)), pace.takes(100)), (100, Some(Nanos(100))));
        let pace = Pace { slot: 0, cycle: 7 };
        assert_eq!(
            (pace.sure(Nanos(100)), pace.takes(1), pace.takes(0)),
            (0, None, Some(Nanos(0)))
        );
    }

    proptest! {
        /// The least over all beginnings of what a cycle gives, and the least time for it.
        #[test]
        fn it_is_the_worst_case(slot in 1u64..9, others in 0u64..9, time in 0u64..90) {
            let cycle = slot + others;
            let gets = |from: u64| (from..from + time).filter(|m| m % cycle < slot).count() as u64;
            let pace = Pace { slot, cycle };
            let sure = pace.sure(Nanos(time));
            prop_assert_eq!(Some(sure), (0..cycle).map(gets).min());
            prop_assert!(pace.takes(sure).unwrap() <= Nanos(time));
            prop_assert!(pace.takes(sure + 1).unwrap() > Nanos(time));
        }
    }
}
