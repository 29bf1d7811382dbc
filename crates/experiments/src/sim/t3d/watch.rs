//! What the comparisons need besides a report.

use super::super::run::Setup;
use serde::Serialize;
use std::io;
use tutti_sim::{Finished, Observer, Passed};
use tutti_types::{ClusterTime, JobId, Nanos, Period};

/// What was seen. Shares are from 0 to 1, of the machine in those hours.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    /// Monday to Friday, 8 to 18.
    pub(super) working_hours: f64,
    /// Monday to Friday, else.
    pub(super) nights: f64,
    /// Saturday and Sunday.
    pub(super) weekends: f64,
    /// When the last interactive job, and the last other job, was done; from the beginning, in
    /// seconds.
    pub(super) interactive_done_s: f64,
    pub(super) batch_done_s: f64,
}

/// Looks on.
pub(super) struct Watch {
    processors: u32,
    /// The class of interactive jobs, as an index.
    interactive: Option<usize>,
    /// Hours of the week, and what was used and what there was in them, in processors x ns.
    hours: [(Period, u128, u128); 2],
    rest: (u128, u128),
    done: [ClusterTime; 2],
}

/// Stretches of time are looked at in pieces that no hours begin or end in.
const HOUR_NS: u64 = 3_600_000_000_000;

impl Watch {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let hours = |text: &str| text.parse::<Period>().expect("a period that is written here");
        Self {
            processors: setup.processors(),
            interactive: setup.class("interactive"),
            hours: ["mon-fri 08:00-18:00", "sat,sun"].map(|text| (hours(text), 0, 0)),
            rest: (0, 0),
            done: [ClusterTime(0); 2],
        }
    }

    pub(super) fn seen(&self) -> Seen {
        let share = |used: u128, all: u128| used as f64 / all.max(1) as f64;
        let [working, weekend] = self.hours.map(|(_, used, all)| share(used, all));
        let seconds = |at: ClusterTime| at.0 as f64 / 1e9;
        Seen {
            working_hours: working,
            nights: share(self.rest.0, self.rest.1),
            weekends: weekend,
            interactive_done_s: seconds(self.done[0]),
            batch_done_s: seconds(self.done[1]),
        }
    }
}

impl Observer for Watch {
    fn passed(&mut self, passed: &Passed) {
        let length = u128::from(passed.to.since(passed.from).0.max(1));
        let mut from = passed.from.0;
        while from < passed.to.0 {
            let until = passed.to.0.min((from / HOUR_NS + 1) * HOUR_NS);
            let piece = u128::from(until - from);
            let used = passed.useful_ns * piece / length;
            let all = piece * u128::from(self.processors);
            // Models begin on a Monday at midnight.
            let holds = self.hours.iter_mut().find(|(period, ..)| period.holds(Nanos(from)));
            let (sum_used, sum_all) = match holds {
                Some((_, used, all)) => (used, all),
                None => (&mut self.rest.0, &mut self.rest.1),
            };
            *sum_used += used;
            *sum_all += all;
            from = until;
        }
    }

    fn ended(&mut self, _: JobId, job: &Finished) -> io::Result<()> {
        let is_batch = self.interactive != Some(usize::from(job.job.class));
        self.done[usize::from(is_batch)] = job.end;
        Ok(())
    }
}
