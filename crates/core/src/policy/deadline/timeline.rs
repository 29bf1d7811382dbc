//! Time that is taken: stretches of a row's clock, in order, apart from each other.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// From one reading of a row's clock to a later one, in nanoseconds; the end is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Stretch {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Stretch {
    pub(crate) const fn length(self) -> u64 {
        self.to - self.from
    }
}

/// See the module. No two stretches touch, and none is empty: equal times are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Busy(Vec<Stretch>);

impl Busy {
    pub(crate) fn stretches(&self) -> &[Stretch] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn of(stretches: &[Stretch]) -> Self {
        Self(stretches.to_vec())
    }

    pub(crate) fn first(&self) -> Option<Stretch> {
        self.0.first().copied()
    }

    pub(crate) fn last(&self) -> Option<Stretch> {
        self.0.last().copied()
    }

    /// How long all of it lasts.
    pub(crate) fn length(&self) -> u64 {
        self.0.iter().map(|stretch| stretch.length()).sum()
    }

    /// How much of it lies before a moment.
    pub(crate) fn before(&self, moment: u64) -> u64 {
        let begun = self.0.iter().take_while(|stretch| stretch.from < moment);
        begun.map(|stretch| stretch.to.min(moment) - stretch.from).sum()
    }

    /// Takes what another takes too.
    pub(crate) fn add(&mut self, other: &Self) {
        if other.0.is_empty() {
            return;
        }
        let mut all = core::mem::take(&mut self.0);
        all.extend_from_slice(&other.0);
        all.sort_unstable();
        for stretch in all {
            match self.0.last_mut() {
                Some(last) if stretch.from <= last.to => last.to = last.to.max(stretch.to),
                _ => self.0.push(stretch),
            }
        }
    }

    /// Gives back the earliest of it, until no more than `left` is taken.
    pub(crate) fn shorten(&mut self, left: u64) {
        let mut spare = self.length().saturating_sub(left);
        let gone = self.0.iter().take_while(|stretch| {
            let whole = stretch.length() <= spare;
            spare -= if whole { stretch.length() } else { 0 };
            whole
        });
        let gone = gone.count();
        self.0.drain(..gone);
        if let Some(first) = self.0.first_mut() {
            first.from += spare;
        }
    }

    /// Leaves out what lies before a moment.
    pub(crate) fn forget_before(&mut self, moment: u64) {
        self.shorten(self.length() - self.before(moment));
    }

    /// Takes so much at least, by a later end of the last stretch; nothing stays nothing.
    pub(crate) fn prolong(&mut self, length: u64) {
        let lacks = length.saturating_sub(self.length());
        if let Some(last) = self.0.last_mut() {
            last.to = last.to.saturating_add(lacks);
        }
    }

    /// What is free from a moment on: stretches in order, the last without an end.
    pub(crate) fn gaps(&self, from: u64) -> impl Iterator<Item = Stretch> + '_ {
        let ends = core::iter::once(0).chain(self.0.iter().map(|stretch| stretch.to));
        let begins = self.0.iter().map(|stretch| stretch.from).chain(core::iter::once(u64::MAX));
        let gaps =
            ends.zip(begins).map(move |(end, begin)| Stretch { from: end.max(from), to: begin });
        gaps.filter(|gap| gap.from < gap.to)
    }

    /// When so much of what is free has passed, from a moment on; `u64::MAX`: never.
    pub(crate) fn completes(&self, from: u64, mut need: u64) -> u64 {
        for gap in self.gaps(from) {
            if need <= gap.length() {
                return gap.from + need;
            }
            need -= gap.length();
        }
        u64::MAX
    }

    /// The latest of what is free between two moments, so much of it; `None` if there is less.
    pub(crate) fn latest(&self, from: u64, due: u64, need: u64) -> Option<Self> {
        let gaps = self.gaps(from).take_while(|gap| gap.from < due);
        let gaps = gaps.map(|gap| Stretch { to: gap.to.min(due), ..gap });
        let mut free = Self(gaps.collect());
        if free.length() < need {
            return None;
        }
        free.shorten(need);
        Some(free)
    }

    /// Whether it has nothing of a stretch.
    pub(crate) fn leaves(&self, stretch: Stretch) -> bool {
        let after = self.0.partition_point(|taken| taken.to <= stretch.from);
        self.0.get(after).is_none_or(|taken| stretch.to <= taken.from)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "moments are few in tests")]
mod tests {
    use super::{Busy, Stretch};
    use proptest::prelude::*;

    const END: u64 = 40;

    fn busy(taken: &[bool]) -> Busy {
        let mut busy = Busy::default();
        for (from, _) in (0..).zip(taken).filter(|(_, taken)| **taken) {
            busy.add(&Busy(vec![Stretch { from, to: from + 1 }]));
        }
        busy
    }

    fn moments(busy: &Busy) -> Vec<bool> {
        (0..END).map(|m| !busy.leaves(Stretch { from: m, to: m + 1 })).collect()
    }

    proptest! {
        /// Each moment by itself says the same.
        #[test]
        fn it_is_a_set_of_moments(
            a in prop::collection::vec(any::<bool>(), END as usize),
            b in prop::collection::vec(any::<bool>(), END as usize),
            from in 0..END, due in 0..END, need in 0..END,
        ) {
            let (mut one, other) = (busy(&a), busy(&b));
            prop_assert_eq!(&moments(&one), &a);
            let count = |taken: &[bool]| taken.iter().filter(|t| **t).count() as u64;
            prop_assert_eq!(one.length(), count(&a));
            prop_assert_eq!(one.before(due), count(&a[..due as usize]));
            prop_assert!(one.stretches().windows(2).all(|pair| pair[0].to < pair[1].from));
            let mut passed = 0;
            let completes = (from..).take_while(|&m| {
                passed += u64::from(!a.get(m as usize).unwrap_or(&false));
                passed < need
            });
            let completes = if need == 0 { from } else { from + completes.count() as u64 + 1 };
            let at = one.completes(from, need);
            prop_assert!(at == completes || need == 0 && one.completes(from, 1) == at + 1);
            let free: Vec<u64> = (from..due).filter(|&m| !a[m as usize]).collect();
            match one.latest(from, due, need) {
                None => prop_assert!((free.len() as u64) < need),
                Some(taken) => {
                    let expected = &free[free.len() - need as usize..];
                    let taken = moments(&taken);
                    let taken: Vec<u64> = (0..END).filter(|&m| taken[m as usize]).collect();
                    prop_assert_eq!(taken, expected);
                }
            }
            let mut short = one.clone();
            short.shorten(need);
            let kept: Vec<u64> = (0..END).filter(|&m| a[m as usize]).collect();
            let kept = &kept[kept.len().saturating_sub(need as usize)..];
            let is_kept: Vec<bool> = (0..END).map(|m| kept.contains(&m)).collect();
            prop_assert_eq!(short, busy(&is_kept));
            let mut later = one.clone();
            later.forget_before(due);
            let is_later: Vec<bool> = (0..END).map(|m| m >= due && a[m as usize]).collect();
            prop_assert_eq!(&later, &busy(&is_later));
            later.prolong(need);
            let is_empty = count(&is_later) == 0;
            let length = if is_empty { 0 } else { need.max(count(&is_later)) };
            prop_assert_eq!(later.length(), length);
            prop_assert!(is_empty || later.first() == busy(&is_later).first() || need > count(&is_later));
            one.add(&other);
            let both: Vec<bool> = a.iter().zip(&b).map(|(a, b)| *a || *b).collect();
            prop_assert_eq!(one, busy(&both));
        }
    }
}
