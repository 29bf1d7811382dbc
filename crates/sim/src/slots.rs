//! Progress slot by slot: slow, simple, and what the arithmetic of groups is checked against.

use crate::driver::{Progression, Share};
use crate::jobs::{Index, Jobs, Rest};
use tutti_core::Core;
use tutti_core::frame::Frame;
use tutti_types::{ClusterTime, JobId, Nanos, RowId};

/// A job that has started.
#[derive(Debug)]
struct Runner {
    index: Index,
    rows: Vec<RowId>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SlotBySlot {
    now: ClusterTime,
    cost: Nanos,
    frame: Frame,
    runners: Vec<Runner>,
}

impl SlotBySlot {
    pub(crate) fn new(cost: Nanos) -> Self {
        let (now, frame) = (ClusterTime::default(), Frame::default());
        Self { now, cost, frame, runners: Vec::new() }
    }

    fn runs(&self, runner: &Runner, slot: usize) -> bool {
        self.frame.slots.get(slot).is_some_and(|slot| runner.rows.contains(&slot.row))
    }

    /// The slot in its turn, when that turn began and when it ends.
    fn turn(&self) -> Option<(usize, ClusterTime, ClusterTime)> {
        let (slot, begins) = self.frame.turn(self.now)?;
        let alone = self.frame.slots.len() == 1;
        let ends = if alone { ClusterTime::NEVER } else { begins + self.frame.slots[slot].length };
        Some((slot, begins, ends))
    }

    /// From when on a runner gets on in the turn that began at `begins`: its time is lost until
    /// `cost` is over since the first of the slots without a gap in which it runs.
    fn useful_from(&self, runner: &Runner, slot: usize, begins: ClusterTime) -> ClusterTime {
        let count = self.frame.slots.len();
        let mut lost = self.cost.0;
        let mut before = slot;
        for _ in 0..count {
            before = (before + count - 1) % count;
            if !self.runs(runner, before) {
                return begins + Nanos(lost);
            }
            lost = lost.saturating_sub(self.frame.slots[before].length.0);
        }
        begins
    }
}

impl Progression for SlotBySlot {
    fn advance(&mut self, to: ClusterTime, jobs: &mut Jobs) -> Share {
        let mut share = Share::default();
        while self.now < to {
            let Some((slot, begins, ends)) = self.turn() else {
                self.now = to;
                break;
            };
            let count = self.frame.slots.len();
            let before = (slot + count - 1) % count;
            let is_switch = count > 1 && begins == self.now && begins > self.frame.epoch;
            share.switches += u64::from(is_switch);
            let until = ends.min(to);
            for runner in &self.runners {
                let live = jobs.get_mut(runner.index);
                if !self.runs(runner, slot) {
                    live.course.preemptions += u64::from(is_switch && self.runs(runner, before));
                    continue;
                }
                let width = u128::from(live.width);
                let useful = until.since(self.useful_from(runner, slot, begins).max(self.now)).0;
                live.course.left = live.course.left.saturating_sub(useful);
                share.useful_ns += u128::from(useful) * width;
                share.held_ns += u128::from(until.since(self.now).0) * width;
            }
            self.now = until;
        }
        share
    }

    fn refresh(&mut self, core: &Core, jobs: &mut Jobs) {
        self.frame.clone_from(core.frame_in_effect());
        for &job in &core.moved().jobs {
            let Some(index) = jobs.find(job) else { continue };
            let rows = core.runs_in(job).to_vec();
            match self.runners.iter_mut().find(|runner| runner.index == index) {
                Some(runner) => runner.rows = rows,
                None => self.runners.push(Runner { index, rows }),
            }
        }
    }

    fn next(&self, jobs: &Jobs) -> ClusterTime {
        let Some((slot, begins, ends)) = self.turn() else { return ClusterTime::NEVER };
        let here = self.runners.iter().filter(|runner| self.runs(runner, slot));
        let done = here.map(|runner| {
            let from = self.useful_from(runner, slot, begins).max(self.now);
            from + Nanos(jobs.get(runner.index).course.left)
        });
        done.min().unwrap_or(ClusterTime::NEVER).min(ends)
    }

    fn done(&self, jobs: &Jobs) -> Option<JobId> {
        let runners = self.runners.iter().map(|runner| jobs.get(runner.index));
        runners
            .filter(|live| live.course.left == 0)
            .map(|live| (live.place_among_done(), live.id))
            .min()
            .map(|it| it.1)
    }

    fn go_on(&mut self, index: Index, with: Rest, jobs: &mut Jobs) {
        jobs.get_mut(index).set(with);
    }

    fn remove(&mut self, index: Index, _: &mut Jobs) {
        self.runners.retain(|runner| runner.index != index);
    }
}
