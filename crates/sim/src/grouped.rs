//! Progress between events, without stepping through quanta.
//!
//! Jobs that run in the slots of the same rows get on at the same pace, whatever these slots are.
//! So they form a group, with a clock of the useful time that its rows have given, and a heap of
//! the clock's readings at which its jobs are done. An event costs as many steps as there are
//! groups and slots, however many jobs and quanta there are; under space sharing there is one
//! group.

use crate::driver::{Progression, Share};
use crate::jobs::{Index, Jobs, Place, Rest};
use crate::turns::{Turns, switches};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use tutti_core::Core;
use tutti_core::frame::Frame;
use tutti_types::{ClusterTime, JobId, Nanos, RowId};

/// When a job is done, by its group's clock, and its place among those done at once.
type Due = Reverse<(u64, Place, JobId, Index)>;

#[derive(Debug, Default)]
struct Group {
    rows: Vec<RowId>,
    turns: Turns,
    /// Useful ns that the rows gave since the group was formed.
    clock: u64,
    /// How many runs of turns were over since then.
    turns_ended: u64,
    members: u32,
    /// The processors of all members.
    width: u64,
    /// Jobs that left are still in here, until they come up.
    due: BinaryHeap<Due>,
    /// When the first of them is done.
    next: ClusterTime,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Grouped {
    now: ClusterTime,
    cost: Nanos,
    frame: Frame,
    groups: Vec<Group>,
    vacant: Vec<u32>,
    by_rows: BTreeMap<Vec<RowId>, u32>,
}

impl Grouped {
    pub(crate) fn new(cost: Nanos) -> Self {
        Self {
            now: ClusterTime::default(),
            cost,
            frame: Frame::default(),
            groups: Vec::new(),
            vacant: Vec::new(),
            by_rows: BTreeMap::new(),
        }
    }

    fn leave(&mut self, index: Index, jobs: &mut Jobs) {
        let live = jobs.get_mut(index);
        let Some(number) = live.course.group.take() else { return };
        let group = &mut self.groups[number as usize];
        live.course.left = live.course.target - group.clock.min(live.course.target);
        live.course.preemptions += group.turns_ended - live.course.turns_before;
        group.members -= 1;
        group.width -= u64::from(live.width);
        if group.members == 0 {
            self.by_rows.remove(&group.rows);
            group.due.clear();
            group.next = ClusterTime::NEVER;
            self.vacant.push(number);
        } else if group.due.peek().is_some_and(|&Reverse((_, _, _, first))| first == index) {
            group.foretell(number, self.now, jobs);
        }
    }

    fn join(&mut self, index: Index, rows: &[RowId], jobs: &mut Jobs) {
        if rows.is_empty() {
            return;
        }
        let number = match self.by_rows.get(rows) {
            Some(&number) => number,
            None => self.form(rows),
        };
        let group = &mut self.groups[number as usize];
        let live = jobs.get_mut(index);
        let target = group.clock + live.course.left;
        live.course.group = Some(number);
        live.course.target = target;
        live.course.turns_before = group.turns_ended;
        group.members += 1;
        group.width += u64::from(live.width);
        let due = Reverse((target, live.place_among_done(), live.id, index));
        group.due.push(due);
        if group.due.peek() == Some(&due) {
            group.foretell(number, self.now, jobs);
        }
    }

    fn form(&mut self, rows: &[RowId]) -> u32 {
        let turns = Turns::of(&self.frame, rows, self.cost);
        let group = Group { rows: rows.to_vec(), turns, ..Group::default() };
        let number = match self.vacant.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                u32::try_from(self.groups.len() - 1).expect("there are fewer groups than jobs")
            }
        };
        self.by_rows.insert(rows.to_vec(), number);
        number
    }
}

impl Group {
    /// Works out when the first member is done.
    fn foretell(&mut self, number: u32, now: ClusterTime, jobs: &Jobs) {
        while let Some(&Reverse((target, _, id, index))) = self.due.peek() {
            let live = jobs.get(index);
            let is_member = live.id == id && live.course.group == Some(number);
            if is_member && live.course.target == target {
                let need = Nanos(target.saturating_sub(self.clock));
                self.next = self.turns.reaches(now, need);
                return;
            }
            self.due.pop();
        }
        self.next = ClusterTime::NEVER;
    }
}

impl Progression for Grouped {
    fn advance(&mut self, to: ClusterTime, _: &mut Jobs) -> Share {
        let mut share = Share::default();
        if to <= self.now {
            return share;
        }
        for group in self.groups.iter_mut().filter(|group| group.members > 0) {
            let useful = group.turns.useful(self.now, to).0;
            group.clock += useful;
            group.turns_ended += group.turns.ended(self.now, to);
            share.useful_ns += u128::from(useful) * u128::from(group.width);
            let held = group.turns.held(self.now, to).0;
            share.held_ns += u128::from(held) * u128::from(group.width);
        }
        share.switches = switches(&self.frame, self.now, to);
        self.now = to;
        share
    }

    fn refresh(&mut self, core: &Core, jobs: &mut Jobs) {
        let moved = core.moved();
        if moved.frame {
            self.frame.clone_from(core.frame_in_effect());
            for (number, group) in (0..).zip(&mut self.groups).filter(|(_, g)| g.members > 0) {
                group.turns = Turns::of(&self.frame, &group.rows, self.cost);
                group.foretell(number, self.now, jobs);
            }
        }
        for &job in &moved.jobs {
            let Some(index) = jobs.find(job) else { continue };
            let rows = core.runs_in(job);
            let group = jobs.get(index).course.group;
            let before = group.map_or(&[][..], |number| &self.groups[number as usize].rows);
            if rows != before {
                self.leave(index, jobs);
                self.join(index, rows, jobs);
            }
        }
    }

    fn next(&self, _: &Jobs) -> ClusterTime {
        self.groups.iter().map(|group| group.next).min().unwrap_or(ClusterTime::NEVER)
    }

    fn done(&self, _: &Jobs) -> Option<JobId> {
        let due = self.groups.iter().filter(|group| group.next <= self.now);
        let first = |group: &Group| group.due.peek().map(|&Reverse((_, place, id, _))| (place, id));
        due.filter_map(first).min().map(|(_, id)| id)
    }

    fn go_on(&mut self, index: Index, with: Rest, jobs: &mut Jobs) {
        let group = jobs.get(index).course.group;
        let rows = group.map_or(Vec::new(), |number| self.groups[number as usize].rows.clone());
        self.leave(index, jobs);
        jobs.get_mut(index).set(with);
        self.join(index, &rows, jobs);
    }

    fn remove(&mut self, index: Index, jobs: &mut Jobs) {
        self.leave(index, jobs);
    }
}
