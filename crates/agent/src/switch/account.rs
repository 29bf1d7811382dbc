//! What the switch thread has done: counts since its start, and records of the latest switches.

use std::collections::VecDeque;
use tutti_wire::limits::{SWITCH_RECORD_JOBS_MAX, SWITCH_RECORDS_MAX};
use tutti_wire::metrics::{Histogram, SWITCH_BOUNDS_NS};
use tutti_wire::report::SwitchRecord;

/// What the switch thread has to tell.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The latest switches, oldest first.
    pub(crate) records: Vec<SwitchRecord>,
    /// Switches since the start.
    pub(crate) switches: u64,
    /// Switches that went on without a straggler.
    pub(crate) stragglers: u64,
    /// Timetables that arrived after they should have been active.
    pub(crate) late: u64,
    /// Whether the thread has real-time priority, or why not.
    pub(crate) realtime: String,
    /// How long switches took, and by how much they began too late, in nanoseconds.
    pub(crate) times: Histogram,
    pub(crate) delays: Histogram,
}

/// See the head of the file.
pub(super) struct Account {
    /// The counts; the records are beside them.
    counts: Report,
    records: VecDeque<SwitchRecord>,
    /// How many jobs they name together.
    records_jobs: usize,
}

impl Account {
    pub(super) fn new(realtime: String) -> Self {
        let counts = Report { realtime, ..Report::default() };
        Self { counts, records: VecDeque::new(), records_jobs: 0 }
    }

    /// A timetable has come too late.
    pub(super) const fn note_late(&mut self) {
        self.counts.late += 1;
    }

    /// A switch is over. Its record pushes the oldest out, where there are too many or they name
    /// too many jobs.
    pub(super) fn note_switch(&mut self, record: SwitchRecord) {
        let counts = &mut self.counts;
        counts.switches += 1;
        counts.times.add(record.resumed_ns.saturating_sub(record.began_ns), &SWITCH_BOUNDS_NS);
        counts.delays.add(record.began_ns.saturating_sub(record.due_ns), &SWITCH_BOUNDS_NS);
        counts.stragglers += u64::from(!record.running.is_empty());
        self.records_jobs += record.left.len() + record.came.len();
        while self.records.len() == SWITCH_RECORDS_MAX || self.records_jobs > SWITCH_RECORD_JOBS_MAX
        {
            let Some(oldest) = self.records.pop_front() else { break };
            self.records_jobs -= oldest.left.len() + oldest.came.len();
        }
        self.records.push_back(record);
    }

    /// The counts, with so many of the latest records.
    pub(super) fn report(&self, count: usize) -> Report {
        let skip = self.records.len().saturating_sub(count);
        Report {
            records: self.records.iter().skip(skip).cloned().collect(),
            realtime: self.counts.realtime.clone(),
            ..self.counts
        }
    }
}
