//! The discipline `conservative`: every job in line has a reservation.
//!
//! A job that comes into line gets the earliest place, over all rows, where it delays neither
//! running jobs nor reservations. When a job ends before its limit, all move forward as far as they
//! can: one after the other, by the moments at which they are to start, each into the earliest
//! place that the others leave. So none is ever moved back, as long as jobs end by their limits.
//!
//! A row's free processors over time are a list of steps. A job takes its limit and its grace in a
//! row's slots, and waits for as many turns of the other rows as it can have to: exact for one row,
//! and for several at most a frame too much. Reservations count processors; a job that lacks memory
//! or a resource, or that finds its processors spread over too many nodes, when its moment has
//! come, holds its place and is tried again.
//!
//! A job without a limit keeps its processors for ever, so there is no promise to jobs that need
//! them, and none to any job without a limit behind that one.

use crate::apply::Core;
use crate::policy::{Lack, WaitReason, processors};
use crate::queue::holds;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, RowId};
use tutti_types::job::JobSpec;
use tutti_types::limits::RESERVATIONS_MAX;
use tutti_types::time::{ClusterTime, Nanos};

/// A place in the future of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// `None`: a row that does not exist yet.
    pub(crate) row: Option<RowId>,
    pub(crate) start: ClusterTime,
    pub(crate) end: ClusterTime,
    pub(crate) processors: u64,
    /// The earliest that was ever said; never, if nothing was that could be kept to.
    pub(crate) first: ClusterTime,
}

/// How many processors of a row are free from when on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    row: Option<RowId>,
    /// The lengths of the row's slot, and of all others together.
    slots: (u64, u64),
    /// How long after it started a job begins its turns.
    lead: Nanos,
    /// Each until the next; the last for ever.
    steps: Vec<(ClusterTime, u64)>,
}

impl Profile {
    /// All that is free in a row, as of now.
    fn new(row: Option<RowId>, slots: (u64, u64), lead: Nanos, now: (ClusterTime, u64)) -> Self {
        Self { row, slots, lead, steps: [now].into() }
    }

    /// So many processors come free at some moment.
    fn release(&mut self, at: ClusterTime, processors: u64) {
        let from = self.split(at);
        for (_, free) in &mut self.steps[from..] {
            *free += processors;
        }
    }

    /// The step that begins at `at`, which is made if there is none.
    fn split(&mut self, at: ClusterTime) -> usize {
        let after = self.steps.partition_point(|&(begins, _)| begins < at);
        if self.steps.get(after).is_none_or(|&(begins, _)| begins != at) {
            let free = self.steps[after.saturating_sub(1)].1;
            self.steps.insert(after, (at, free));
        }
        after
    }

    fn spend(&mut self, place: &Reservation) -> Result<(), ()> {
        let (from, to) = self.stretch(place);
        if self.steps[from..to].iter().any(|&(_, free)| free < place.processors) {
            return Err(());
        }
        for (_, free) in &mut self.steps[from..to] {
            *free -= place.processors;
        }
        Ok(())
    }

    fn give_back(&mut self, place: &Reservation) {
        let (from, to) = self.stretch(place);
        for (_, free) in &mut self.steps[from..to] {
            *free += place.processors;
        }
    }

    fn stretch(&mut self, place: &Reservation) -> (usize, usize) {
        let start = place.start.max(self.steps[0].0);
        let from = self.split(start);
        let end = place.end.max(start);
        let to = if end == ClusterTime::NEVER { self.steps.len() } else { self.split(end) };
        (from, to)
    }

    /// When `limit` is reached at the latest by a job that starts at `start`.
    fn end(&self, start: ClusterTime, limit: u64) -> ClusterTime {
        if limit == u64::MAX {
            return ClusterTime::NEVER;
        }
        let (slot, others) = self.slots;
        let turns = u128::from(limit.div_ceil(slot.max(1)));
        let takes = u128::from(limit) + turns * u128::from(others);
        start + self.lead + Nanos(u64::try_from(takes).unwrap_or(u64::MAX))
    }

    /// The earliest moment from which on so many processors are free for long enough.
    fn earliest(&self, processors: u64, limit: u64) -> Option<(ClusterTime, ClusterTime)> {
        let mut index = 0;
        while let Some(&(start, _)) = self.steps.get(index) {
            let end = self.end(start, limit);
            let short = self.steps[index..]
                .iter()
                .take_while(|&&(begins, _)| begins < end || begins == start)
                .position(|&(_, free)| free < processors);
            match short {
                None => return Some((start, end)),
                Some(short) => index += short + 1,
            }
        }
        None
    }
}

impl Core {
    /// Gives each job in line a reservation, as early as may be, and starts those that have come
    /// up.
    pub(crate) fn seat_reserved(&mut self, now: ClusterTime, newcomer: Option<JobId>) {
        if self.queue.waiting.is_empty() {
            self.queue.blocked = None;
            return;
        }
        self.queue.stale |= self.queue.reservations.values().any(|place| place.start <= now);
        if !self.queue.stale && newcomer.is_none() {
            return;
        }
        self.outbox.reframed |= self.reframe(now);
        loop {
            self.reserve_and_start(now);
            if !self.reframe(now) {
                break;
            }
            // A job that started made the slots others than was counted on.
            self.outbox.reframed = true;
            self.queue.stale = true;
            self.queue.disturbed = true;
        }
        self.note_first();
        let limit = self.machine().rows;
        let waits = !self.queue.waiting.is_empty();
        self.queue.blocked = waits.then_some(WaitReason::Rows { limit });
    }

    fn reserve_and_start(&mut self, now: ClusterTime) {
        let mut profiles = self.profiles(now);
        if profiles.last().is_some_and(|profile| profile.row.is_none()) {
            // A new row can be had in place of one that is gone.
            for place in self.queue.reservations.values_mut() {
                place.row = place.row.filter(|&row| self.matrix.row(row).is_some());
            }
        }
        if self.enter_all(&mut profiles).is_err() {
            self.queue.reservations.clear();
            profiles = self.profiles(now);
        } else if self.queue.stale {
            self.move_forward(&mut profiles);
        }
        if !self.outside_decides() {
            self.reserve_new(&mut profiles);
        }
        self.start_reserved(now);
    }

    /// What the rows that may be have free over time, but for reservations.
    pub(crate) fn profiles(&self, now: ClusterTime) -> Vec<Profile> {
        let limit = self.machine().rows as usize;
        let frame: u64 = self.frame.slots.iter().map(|slot| slot.length.0).sum();
        let lead = self.params.lead();
        let mut profiles = Vec::new();
        for (id, row) in self.matrix.ordinary().take(limit) {
            let slot = self.frame.length_of(id).map_or(0, |length| length.0);
            let mut profile =
                Profile::new(Some(id), (slot, frame - slot), lead, (now, row.index.free()));
            for release in self.ledger.releases(id) {
                let at = self.when_served(now, id, release.need);
                if at < ClusterTime::NEVER {
                    profile.release(at, release.processors);
                }
            }
            profiles.push(profile);
        }
        if profiles.len() < limit {
            let slots = (self.params.quantum().0, frame);
            profiles.push(Profile::new(None, slots, lead, (now, self.matrix.blank().free())));
        }
        profiles
    }

    /// Enters all reservations.
    ///
    /// # Errors
    /// If they can't all be kept any more.
    pub(crate) fn enter_all(&self, profiles: &mut [Profile]) -> Result<(), ()> {
        self.queue.reservations.values().try_for_each(|place| {
            let profile = profiles.iter_mut().find(|profile| profile.row == place.row);
            profile.ok_or(())?.spend(place)
        })
    }

    /// Whether a job can start now in a row, on so many processors, with all reservations kept.
    pub(crate) fn fits_beside_reserved(
        &self,
        now: ClusterTime,
        (job, spec): (JobId, &JobSpec),
        row: RowId,
        processors: u64,
    ) -> bool {
        let mut profiles = self.profiles(now);
        let others = self.queue.reservations.iter().filter(|(other, _)| **other != job);
        let mut enter = |place: &Reservation| {
            let profile = profiles.iter_mut().find(|profile| profile.row == place.row);
            profile.ok_or(())?.spend(place)
        };
        if others.map(|(_, place)| place).try_for_each(&mut enter).is_err() {
            return false;
        }
        let Some(profile) = profiles.iter_mut().find(|profile| profile.row == Some(row)) else {
            return false;
        };
        let end = profile.end(now, holds(spec));
        let first = ClusterTime::NEVER;
        profile.spend(&Reservation { row: Some(row), start: now, end, processors, first }).is_ok()
    }

    fn move_forward(&mut self, profiles: &mut [Profile]) {
        let mut order: Vec<(ClusterTime, JobId)> =
            self.queue.reservations.iter().map(|(&job, place)| (place.start, job)).collect();
        order.sort_unstable();
        for (_, job) in order {
            let (Some(&place), Some(record)) =
                (self.queue.reservations.get(&job), self.jobs.get(&job))
            else {
                continue;
            };
            if let Some(profile) = profiles.iter_mut().find(|profile| profile.row == place.row) {
                profile.give_back(&place);
            }
            // A job that could not start when its moment came may find no place again.
            match reserve(profiles, place.processors, holds(&record.spec)) {
                Some(moved) => {
                    let first = place.first;
                    self.queue.reservations.insert(job, Reservation { first, ..moved });
                }
                None => drop(self.queue.reservations.remove(&job)),
            }
        }
    }

    /// Gives a reservation to jobs that have none, in the order of the line.
    fn reserve_new(&mut self, profiles: &mut [Profile]) {
        let machine = self.matrix.widths();
        let mut parked = Vec::new();
        let mut endless = false;
        let quantum = self.params.quantum();
        let line = self.queue.in_order(quantum, self.now).take(RESERVATIONS_MAX);
        let new = line.map(|(job, _)| job).filter(|job| !self.queue.reservations.contains_key(job));
        for job in new.collect::<Vec<JobId>>() {
            if self.queue.reservations.len() >= RESERVATIONS_MAX {
                break;
            }
            let Some(record) = self.jobs.get(&job) else { continue };
            let holds = holds(&record.spec);
            let needs = match record.spec.nodes.is_none() {
                true => processors(&record.spec, machine),
                false => self.machine().most_processors(&record.spec),
            };
            if (self.policy().placement)(self.machine(), &record.spec, None) == Err(Lack::Nodes) {
                parked.push(job);
            } else if !(endless && holds == u64::MAX)
                && let Some(place) = reserve(profiles, needs, holds)
            {
                self.queue.reservations.insert(job, place);
            } else {
                endless = true;
            }
        }
        for job in parked {
            self.park(job);
        }
    }

    /// When the next reservation comes up: mostly when a job ends, but one that was to be there
    /// before may not have started at all.
    pub(crate) fn next_reserved(&self, now: ClusterTime) -> ClusterTime {
        let starts = self.queue.reservations.values().map(|place| place.start);
        starts.filter(|&start| start > now).min().unwrap_or(ClusterTime::NEVER)
    }

    fn note_first(&mut self) {
        let mut reservations = core::mem::take(&mut self.queue.reservations);
        for (&job, place) in &mut reservations {
            let is_void = self.queue.disturbed || self.slots_may_change();
            let before = if is_void { ClusterTime::NEVER } else { place.first };
            place.first =
                if self.can_keep_to(job, place.start) { before.min(place.start) } else { before };
        }
        self.queue.reservations = reservations;
    }

    fn start_reserved(&mut self, now: ClusterTime) {
        let due = self.queue.reservations.iter().filter(|(_, place)| place.start <= now);
        let due: Vec<(JobId, Option<RowId>)> = due.map(|(&job, place)| (job, place.row)).collect();
        let mut opened = None;
        for (job, row) in due {
            let Some(record) = self.jobs.get(&job) else { continue };
            let row = row.or(opened);
            let machine = self.machine();
            if self.lacks_resource(&record.spec).is_none()
                && let Ok(parts) = (self.policy().placement)(machine, &record.spec, row)
            {
                self.start(now, job, row, parts);
                opened =
                    opened.or(self.matrix.seat(job).map(|seat| seat.row).filter(|_| row.is_none()));
            } else if machine.leaving.concern(&record.spec)
                && (self.policy().placement)(machine, &record.spec, None) == Err(Lack::Nodes)
            {
                // Nodes go out of service too soon for it by now; it must not hold up others.
                self.park(job);
            }
        }
        // What was to be in the new row is in it, or must be placed anew.
        for place in self.queue.reservations.values_mut().filter(|place| place.row.is_none()) {
            place.row = opened;
        }
        self.queue.reservations.retain(|_, place| place.row.is_some() || place.start > now);
    }
}

/// Takes the earliest place for so many processors, over all rows.
fn reserve(profiles: &mut [Profile], processors: u64, limit: u64) -> Option<Reservation> {
    let found = profiles.iter().enumerate().filter_map(|(index, profile)| {
        let (start, end) = profile.earliest(processors, limit)?;
        Some((start, index, end))
    });
    let (start, index, end) = found.min()?;
    let row = profiles[index].row;
    let place = Reservation { row, start, end, processors, first: ClusterTime::NEVER };
    profiles[index].spend(&place).ok()?;
    Some(place)
}
