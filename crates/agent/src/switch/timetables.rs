//! The node's part of the matrix: the timetable in force, those that follow it, and the order of
//! local alternates ([`Service`]).

use super::service::Service;
use std::collections::VecDeque;
use tutti_types::{ClusterTime, IfAbsent, JobId, LaunchId, Position, Timetable};
use tutti_wire::limits::TIMETABLE_REPORT_MAX;
use tutti_wire::report::{CandidateReport, CandidateState, TimetableReport, TimetableSlotReport};

/// A timetable that arrives so long after its activation counts as late.
const LATE_NS: u64 = 1_000_000;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Timetables {
    current: Timetable,
    /// Those that are not in force yet, by the time of their activation.
    pending: VecDeque<Timetable>,
    service: Service,
}

impl Timetables {
    /// Takes a timetable that is newer than all others. Whether it has come too late.
    pub(super) fn take(&mut self, timetable: Timetable, now: ClusterTime) -> bool {
        let newest = self.pending.back().map_or(self.current.version, |last| last.version);
        if timetable.version <= newest {
            return false;
        }
        let is_late = timetable.activates.0.saturating_add(LATE_NS) < now.0;
        let is_late = is_late && timetable.slots.len() > 1;
        self.pending.push_back(timetable);
        is_late
    }

    /// Timetables come from another controller, which counts their versions from the beginning.
    pub(super) fn begin_anew(&mut self, lease_holds: bool) {
        self.pending.clear();
        self.current.version = 0;
        if !lease_holds {
            // Jobs that it names may run elsewhere by now.
            self.current = Timetable::default();
        }
    }

    /// Puts into force what is to be by now.
    pub(super) fn activate(&mut self, now: ClusterTime) {
        while self.pending.front().is_some_and(|next| next.activates <= now) {
            self.current = self.pending.pop_front().unwrap_or_default();
            self.service.follow(&self.current, now);
        }
        self.service.put_in_order(&mut self.current, now);
    }

    /// The slot at a time.
    pub(super) fn position(&self, now: ClusterTime) -> Option<Position> {
        self.current.position(now)
    }

    /// When the slot of this time ends, or another timetable is in force.
    pub(super) fn next_change(&self, now: ClusterTime) -> ClusterTime {
        let ends = self.position(now).map_or(ClusterTime::NEVER, |position| position.ends);
        self.pending.front().map_or(ends, |next| next.activates.min(ends))
    }

    /// The jobs that are to run at this time, of those that are present.
    pub(super) fn running(
        &self,
        now: ClusterTime,
        is_present: impl Fn(LaunchId) -> bool,
    ) -> Vec<JobId> {
        let mut running = Vec::new();
        if let Some(position) = self.position(now) {
            self.current.running(position.slot, is_present, &mut running);
            // A job that lends all that it has here has nothing to run.
            let slot = &self.current.slots[position.slot];
            let lends = slot.candidates.iter().filter(|it| it.processors.is_empty());
            lends.for_each(|it| running.retain(|launch| *launch != it.launch));
        }
        running.into_iter().map(|launch| launch.job).collect()
    }

    /// These jobs run from now on: their classes have the time.
    pub(super) fn note_running(&mut self, now: ClusterTime, running: &[JobId]) {
        self.service.run(&self.current, now, running);
    }

    /// What will run from the next change on, as far as it is known now.
    pub(super) fn foresee(
        &mut self,
        next: ClusterTime,
        is_present: impl Fn(LaunchId) -> bool,
    ) -> Vec<LaunchId> {
        let mut then = Vec::new();
        let in_force = self.pending.iter().take_while(|it| it.activates <= next).last();
        if in_force.is_none() && next != ClusterTime::NEVER {
            self.service.foresee(&mut self.current, next);
        }
        let timetable = in_force.unwrap_or(&self.current);
        let position = timetable.position(next).filter(|_| next != ClusterTime::NEVER);
        if let Some(position) = position {
            timetable.running(position.slot, is_present, &mut then);
        }
        then
    }

    /// Whether a launch of a job has turns at all.
    pub(super) fn names(&self, launch: LaunchId) -> bool {
        let mut named = self.current.slots.iter().flat_map(|slot| &slot.candidates);
        named.any(|candidate| candidate.launch == launch)
    }

    /// The timetable in force, as far as it fits into a report.
    pub(super) fn report(
        &mut self,
        now: ClusterTime,
        lease_holds: bool,
        state: impl Fn(LaunchId) -> CandidateState,
    ) -> TimetableReport {
        let position = self.position(now);
        let ends = position.map(|it| it.ends).filter(|it| *it != ClusterTime::NEVER);
        let mut report = TimetableReport {
            now_ns: now.0,
            version: self.current.version,
            lease_holds,
            slot: position.and_then(|it| u32::try_from(it.slot).ok()),
            begins_ns: position.map(|it| it.begins.0),
            ends_ns: ends.map(|it| it.0),
            next_activates_ns: self.pending.front().map(|next| next.activates.0),
            classes: self.service.report(now),
            ..TimetableReport::default()
        };
        let is_present = |launch| state(launch) != CandidateState::Absent;
        let mut room = TIMETABLE_REPORT_MAX;
        for (index, slot) in self.current.slots.iter().enumerate() {
            let mut running = Vec::new();
            self.current.running(index, is_present, &mut running);
            let mut candidates = Vec::new();
            for candidate in &slot.candidates {
                let more = candidate.processors.iter().count().max(1);
                if more > room {
                    report.left_out += 1;
                    continue;
                }
                room -= more;
                candidates.push(CandidateReport {
                    job: candidate.launch.job,
                    processors: candidate.processors.iter().collect(),
                    runs: running.contains(&candidate.launch),
                    state: state(candidate.launch),
                    hold: candidate.if_absent == IfAbsent::Hold,
                });
            }
            let (row, length_ns) = (Some(slot.row.0), slot.length.0);
            report.slots.push(TimetableSlotReport { row, length_ns, candidates });
        }
        report
    }
}
