//! Which processors a job gets, and by when it would be done there.
//!
//! A job runs on all its processors at once, so what counts is the time that they have free in
//! common. To find the best set of all is out of reach (it is a problem of cliques), so a few are
//! looked at, and always the same whatever the deadline: then a job is accepted from some deadline
//! on, which can be named exactly. They are
//!
//! - for each moment at which a job's time begins or ends: the least loaded until then (Gustafson,
//!   section 2.2.4), up to the first moment by which the job would be done on one of them;
//! - the first that are all free for as long as the job takes without a break.
//!
//! Processors are looked at in lots of which each is as good as another; so this costs steps by
//! what is planned, not by the size of the machine.

use super::timeline::{Busy, Stretch};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use tutti_types::limits::PLAN_MOMENTS_MAX;

/// Seats for tasks that are taken at the same times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lot {
    pub(crate) busy: Busy,
    pub(crate) seats: u64,
}

/// What a job needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// How many seats.
    pub(crate) seats: u64,
    /// From when on, by the row's clock.
    pub(crate) from: u64,
    /// For how long.
    pub(crate) time: u64,
}

/// Seats for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// How many of which lots, by their places.
    pub(crate) seats: Vec<(usize, u64)>,
    /// When any of them is taken.
    pub(crate) busy: Busy,
    /// When the job would be done there at the earliest.
    pub(crate) done: u64,
}

/// The choice by which the job is done earliest; `None` if there are too few seats.
pub(crate) fn earliest(lots: &[Lot], need: Need) -> Option<Choice> {
    let mut best: Option<Choice> = None;
    let all = |_: &Lot| true;
    for moment in moments(lots, need.from) {
        if best.as_ref().is_some_and(|best| best.done <= moment) {
            break;
        }
        let choice = least_loaded(lots, need, moment, all)?;
        if best.as_ref().is_none_or(|best| choice.done < best.done) {
            best = Some(choice);
        }
    }
    let unbroken = unbroken(lots, need);
    match (best, unbroken) {
        (Some(best), Some(unbroken)) if unbroken.done < best.done => Some(unbroken),
        (best, _) => best,
    }
}

/// The least loaded before a moment, those first in the list among equals; `None` if there are too
/// few that are `wanted`.
pub(crate) fn least_loaded(
    lots: &[Lot],
    need: Need,
    before: u64,
    wanted: impl Fn(&Lot) -> bool,
) -> Option<Choice> {
    let loads = lots.iter().enumerate().filter(|(_, lot)| lot.seats > 0 && wanted(lot));
    let mut loads: Vec<(u64, usize)> =
        loads.map(|(place, lot)| (lot.busy.before(before), place)).collect();
    loads.sort_unstable();
    let mut left = need.seats;
    let (mut seats, mut busy) = (Vec::new(), Busy::default());
    for (_, place) in loads {
        if left == 0 {
            break;
        }
        let taken = lots[place].seats.min(left);
        left -= taken;
        seats.push((place, taken));
        busy.add(&lots[place].busy);
    }
    let done = busy.completes(need.from, need.time);
    (left == 0).then_some(Choice { seats, busy, done })
}

fn unbroken(lots: &[Lot], need: Need) -> Option<Choice> {
    let ends = lots.iter().flat_map(|lot| lot.busy.stretches()).map(|stretch| stretch.to);
    let begins: BTreeSet<u64> = ends.filter(|&end| end > need.from).chain([need.from]).collect();
    begins.into_iter().take(PLAN_MOMENTS_MAX).find_map(|from| {
        let stretch = Stretch { from, to: from.saturating_add(need.time) };
        least_loaded(lots, need, stretch.to, |lot| lot.busy.leaves(stretch))
    })
}

/// The moments after `from` at which anybody's time begins or ends, and the end of all time.
fn moments(lots: &[Lot], from: u64) -> impl Iterator<Item = u64> {
    let stretches = lots.iter().flat_map(|lot| lot.busy.stretches());
    let moments = stretches.flat_map(|stretch| [stretch.from, stretch.to]);
    let moments: BTreeSet<u64> = moments.filter(|&moment| moment > from).collect();
    moments.into_iter().take(PLAN_MOMENTS_MAX).chain([u64::MAX])
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "moments are few in tests")]
mod tests {
    use super::{Choice, Lot, Need, earliest};
    use crate::policy::deadline::timeline::{Busy, Stretch};
    use proptest::prelude::*;

    const END: usize = 24;

    /// Lots by the moments at which they are taken.
    fn lots(taken: &[(Vec<bool>, u64)]) -> Vec<Lot> {
        let lot = |(taken, seats): &(Vec<bool>, u64)| {
            let mut busy = Busy::default();
            for (from, _) in (0..).zip(taken).filter(|(_, taken)| **taken) {
                busy.add(&Busy::of(&[Stretch { from, to: from + 1 }]));
            }
            Lot { busy, seats: *seats }
        };
        taken.iter().map(lot).collect()
    }

    /// When `time` moments have passed at which none of these is taken.
    fn done(taken: &[(Vec<bool>, u64)], places: &[usize], need: Need) -> u64 {
        let is_free = |m: usize| places.iter().all(|&p| !taken[p].0.get(m).unwrap_or(&false));
        let free = (need.from as usize..).filter(|&m| is_free(m));
        free.take(need.time as usize).last().map_or(need.from, |last| last as u64 + 1)
    }

    /// The sets that are looked at, each moment by itself.
    fn plain(taken: &[(Vec<bool>, u64)], need: Need) -> Option<(u64, Vec<usize>)> {
        let least_loaded = |before: usize, wanted: &dyn Fn(usize) -> bool| {
            let load = |p: usize| taken[p].0.iter().take(before).filter(|t| **t).count();
            let mut order: Vec<usize> = (0..taken.len()).filter(|&p| wanted(p)).collect();
            order.sort_by_key(|&p| (load(p), p));
            let mut left = need.seats;
            order.retain(|&p| {
                let used = left > 0 && taken[p].1 > 0;
                left -= left.min(taken[p].1);
                used
            });
            (left == 0).then_some(order)
        };
        let changes = |m: usize| {
            let at = |lot: &(Vec<bool>, u64), m: usize| *lot.0.get(m).unwrap_or(&false);
            taken.iter().any(|lot| at(lot, m) != at(lot, m - 1))
        };
        let from = need.from as usize;
        let mut best: Option<(u64, Vec<usize>)> = None;
        for moment in (from + 1..=END).filter(|&m| changes(m)).chain([usize::MAX]) {
            if best.as_ref().is_some_and(|best| best.0 <= moment as u64) {
                break;
            }
            let set = least_loaded(moment, &|_| true)?;
            let at = done(taken, &set, need);
            if best.as_ref().is_none_or(|best| at < best.0) {
                best = Some((at, set));
            }
        }
        let ends = (from + 1..=END).filter(|&m| {
            let ended = |lot: &(Vec<bool>, u64)| lot.0[m - 1] && !lot.0.get(m).unwrap_or(&false);
            taken.iter().any(ended)
        });
        let unbroken = [from].into_iter().chain(ends).find_map(|from| {
            let to = from + need.time as usize;
            let is_free = |p: usize| (from..to).all(|m| !taken[p].0.get(m).unwrap_or(&false));
            least_loaded(to, &is_free)
        });
        let unbroken = unbroken.map(|set| (done(taken, &set, need), set));
        match (best, unbroken) {
            (Some(best), Some(unbroken)) if unbroken.0 < best.0 => Some(unbroken),
            (best, _) => best,
        }
    }

    /// The best of all sets.
    fn optimum(taken: &[(Vec<bool>, u64)], need: Need) -> u64 {
        let sets = (0u32..1 << taken.len()).filter_map(|set| {
            let places: Vec<usize> = (0..taken.len()).filter(|p| set >> p & 1 == 1).collect();
            let seats: u64 = places.iter().map(|&p| taken[p].1).sum();
            (seats >= need.seats).then(|| done(taken, &places, need))
        });
        sets.min().unwrap_or(u64::MAX)
    }

    fn check(taken: &[(Vec<bool>, u64)], need: Need) {
        let lots = lots(taken);
        let found = earliest(&lots, need);
        let places = |choice: &Choice| choice.seats.iter().map(|&(p, _)| p).collect::<Vec<_>>();
        let shown = found.as_ref().map(|choice| (choice.done, places(choice)));
        assert_eq!(shown, plain(taken, need));
        let Some(choice) = found else {
            assert!(lots.iter().map(|lot| lot.seats).sum::<u64>() < need.seats);
            return;
        };
        assert_eq!(choice.seats.iter().map(|&(_, seats)| seats).sum::<u64>(), need.seats);
        assert!(choice.done >= optimum(taken, need));
        // From there on it can be done, and not a nanosecond before.
        let latest = |due| choice.busy.latest(need.from, due, need.time);
        assert!(latest(choice.done).is_some() && latest(choice.done - 1).is_none());
    }

    proptest! {
        #[test]
        fn it_is_what_each_moment_by_itself_says(
            taken in prop::collection::vec(
                (prop::collection::vec(any::<bool>(), END), 0u64..4), 1..6),
            seats in 1u64..9, from in 0u64..END as u64, time in 1u64..12,
        ) {
            check(&taken, Need { seats, from, time });
        }

        /// The same with few and long stretches, as plans have them.
        #[test]
        fn it_is_so_too_where_stretches_are_long(
            ends in prop::collection::vec((0..END, 0..END, 0u64..4), 1..6),
            seats in 1u64..9, from in 0u64..END as u64, time in 1u64..12,
        ) {
            let lot = |&(a, b, seats): &(usize, usize, u64)| {
                ((0..END).map(|m| a <= m && m < b).collect(), seats)
            };
            check(&ends.iter().map(lot).collect::<Vec<_>>(), Need { seats, from, time });
        }
    }
}
