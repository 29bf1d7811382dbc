//! When, in a frame, jobs get on that run in the slots of a given set of rows.
//!
//! All by arithmetic on one cycle: pieces of it, repeated. What a switch costs is modelled here, as
//! lost service: where slots follow one another in which they run, the first `cost` of time gets
//! nothing done (the others are being suspended, they are being resumed, caches are cold). A job
//! that runs in all slots of the frame is never switched, and loses nothing.

use tutti_core::frame::Frame;
use tutti_types::{ClusterTime, Nanos, RowId};

/// Parts of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pieces {
    /// Begin and end in ns from the cycle's begin, in order, none empty.
    pieces: Vec<(u64, u64)>,
    /// The sum of them.
    sum: u64,
}

/// The turns of a set of rows in a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    epoch: ClusterTime,
    /// The length of the cycle in ns; 0: they run all the time, or never.
    cycle: u64,
    always: bool,
    /// When they have the processors.
    held: Pieces,
    /// When they get on.
    useful: Pieces,
    /// When a run of turns is over, in ns from the cycle's begin, in order.
    ends: Vec<u64>,
}

impl Pieces {
    fn push(&mut self, begin: u64, end: u64) {
        if begin < end {
            self.pieces.push((begin, end));
            self.sum += end - begin;
        }
    }

    /// How much of the cycle's first `offset` ns they cover.
    fn before(&self, offset: u64) -> u64 {
        let covered = |&(begin, end): &(u64, u64)| offset.clamp(begin, end) - begin;
        self.pieces.iter().map(covered).sum()
    }
}

impl Turns {
    /// The turns of jobs that run in the slots of `rows`.
    pub(crate) fn of(frame: &Frame, rows: &[RowId], cost: Nanos) -> Self {
        let runs: Vec<bool> = frame.slots.iter().map(|slot| rows.contains(&slot.row)).collect();
        let epoch = frame.epoch;
        let mut turns = Self { epoch, ..Self::default() };
        if runs.iter().all(|&runs| runs) {
            turns.always = !runs.is_empty();
            return turns;
        }
        if !runs.iter().any(|&runs| runs) {
            return turns;
        }
        // What is still to be lost of the run of turns that goes on; a run may begin before the
        // cycle does.
        let mut lose = frame.slots.iter().zip(&runs).rev().take_while(|&(_, &runs)| runs).fold(
            cost.0,
            |lose, (slot, _)| if runs[0] { lose.saturating_sub(slot.length.0) } else { lose },
        );
        let mut begin = 0;
        for (index, slot) in frame.slots.iter().enumerate() {
            let end = begin + slot.length.0;
            if runs[index] {
                turns.held.push(begin, end);
                let lost = lose.min(slot.length.0);
                turns.useful.push(begin + lost, end);
                lose -= lost;
                if !runs[(index + 1) % runs.len()] {
                    turns.ends.push(end);
                    lose = cost.0;
                }
            }
            begin = end;
        }
        turns.cycle = begin;
        turns
    }

    /// The useful time from `from` to `to`, neither before the epoch.
    pub(crate) fn useful(&self, from: ClusterTime, to: ClusterTime) -> Nanos {
        self.covered(&self.useful, from, to)
    }

    /// The time from `from` to `to` that they hold their processors, useful or not.
    pub(crate) fn held(&self, from: ClusterTime, to: ClusterTime) -> Nanos {
        self.covered(&self.held, from, to)
    }

    fn covered(&self, pieces: &Pieces, from: ClusterTime, to: ClusterTime) -> Nanos {
        if self.always {
            return to.since(from);
        }
        if self.cycle == 0 {
            return Nanos::ZERO;
        }
        Nanos(self.until(pieces, to) - self.until(pieces, from))
    }

    fn until(&self, pieces: &Pieces, t: ClusterTime) -> u64 {
        let since = t.since(self.epoch).0;
        since / self.cycle * pieces.sum + pieces.before(since % self.cycle)
    }

    /// How many runs of turns were over by `from` or later, and before `to`.
    pub(crate) fn ended(&self, from: ClusterTime, to: ClusterTime) -> u64 {
        if self.cycle == 0 {
            return 0;
        }
        let before = |t: ClusterTime| {
            let since = t.since(self.epoch).0.saturating_sub(1);
            let here = self.ends.iter().filter(|&&end| end <= since % self.cycle).count();
            since / self.cycle * self.ends.len() as u64 + here as u64
        };
        before(to) - before(from)
    }

    /// When they will have had `need` more useful time, from `from` on; not before the epoch.
    pub(crate) fn reaches(&self, from: ClusterTime, need: Nanos) -> ClusterTime {
        if need == Nanos::ZERO {
            return from;
        }
        if self.always {
            return from + need;
        }
        if self.useful.sum == 0 {
            return ClusterTime::NEVER;
        }
        // Whole cycles first, but so that at least a nanosecond is left: the moment lies at the end
        // of a piece, never at the beginning of the next.
        let sum = u128::from(self.until(&self.useful, from)) + u128::from(need.0);
        let cycles = (sum - 1) / u128::from(self.useful.sum);
        let mut left = sum - cycles * u128::from(self.useful.sum);
        for &(begin, end) in &self.useful.pieces {
            let length = u128::from(end - begin);
            if left <= length {
                let at = u128::from(self.epoch.0)
                    + cycles * u128::from(self.cycle)
                    + u128::from(begin)
                    + left;
                return ClusterTime(u64::try_from(at).unwrap_or(u64::MAX));
            }
            left -= length;
        }
        ClusterTime::NEVER
    }
}

/// How often the machine switches from one slot to another from `from` on, and before `to`.
pub(crate) fn switches(frame: &Frame, from: ClusterTime, to: ClusterTime) -> u64 {
    let cycle: u64 = frame.slots.iter().map(|slot| slot.length.0).sum();
    if frame.slots.len() < 2 || cycle == 0 {
        return 0;
    }
    let before = |t: ClusterTime| {
        let since = t.since(frame.epoch).0.saturating_sub(1);
        let mut end = 0;
        let ends = frame.slots.iter().filter(|slot| {
            end += slot.length.0;
            end <= since % cycle
        });
        since / cycle * frame.slots.len() as u64 + ends.count() as u64
    };
    before(to) - before(from)
}
