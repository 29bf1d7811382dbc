//! When a job is asked to vacate and when it goes on: no clock, no connections.

use tutti_types::{ClusterTime, Nanos};

/// What a job does now, and whether that ends soon, as the switch thread sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It does not run.
    Stands,
    /// It runs.
    Runs {
        /// When its slot began.
        since: ClusterTime,
        /// When it stops, if the slot or timetable that comes next is another job's.
        leaves: Option<ClusterTime>,
    },
}

/// What a job is to be sent after a change of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was suspended: processes that are not ready have missed the notice of this number.
    Left(u64),
    /// The notice of this number is over.
    Resume(u64),
}

/// The notices of one job on this node.
#[derive(Clone, Debug)]
pub(super) struct Notices {
    lead: Nanos,
    turn: Turn,
    /// The number of the latest notice.
    number: u64,
    asked: Option<Asked>,
}

/// A notice that is not over.
#[derive(Clone, Copy, Debug)]
struct Asked {
    until: ClusterTime,
    /// Whether the job was suspended since.
    has_left: bool,
}

impl Notices {
    /// Those of a job that is asked so long before it leaves, at most.
    pub(super) const fn new(lead: Nanos) -> Self {
        Self { lead, turn: Turn::Stands, number: 0, asked: None }
    }

    pub(super) const fn lead(&self) -> Nanos {
        self.lead
    }

    /// The notice that a process which registers now still gets, and when its job leaves.
    pub(super) fn open(&self) -> Option<(u64, ClusterTime)> {
        let asked = self.asked.filter(|asked| !asked.has_left)?;
        Some((self.number, asked.until))
    }

    /// Takes in what the switch thread says. A job that was asked and leaves later than
    /// announced, or not at all, goes on: it is asked anew when it is time.
    pub(super) fn take(&mut self, turn: Turn) -> Option<Change> {
        self.turn = turn;
        let asked = self.asked.as_mut()?;
        match turn {
            Turn::Stands if asked.has_left => None,
            Turn::Stands => {
                asked.has_left = true;
                Some(Change::Left(self.number))
            }
            Turn::Runs { leaves: Some(at), .. } if !asked.has_left && at <= asked.until => {
                asked.until = at;
                None
            }
            Turn::Runs { .. } => {
                self.asked = None;
                Some(Change::Resume(self.number))
            }
        }
    }

    /// When the job is to be asked next, if it is known when it leaves: in the latter half of its
    /// slot.
    pub(super) fn due(&self) -> Option<ClusterTime> {
        match (self.asked, self.turn) {
            (None, Turn::Runs { since, leaves: Some(at) }) => {
                let half = since + Nanos(at.since(since).0 / 2);
                Some(half.max(at - self.lead))
            }
            _ => None,
        }
    }

    /// The next notice, if it is due and not too late: its number, and when the job leaves.
    pub(super) fn ask(&mut self, now: ClusterTime) -> Option<(u64, ClusterTime)> {
        let due = self.due()?;
        let Turn::Runs { leaves: Some(until), .. } = self.turn else { return None };
        if now < due || now >= until {
            return None;
        }
        self.number += 1;
        self.asked = Some(Asked { until, has_left: false });
        Some((self.number, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> ClusterTime {
        ClusterTime(ms * 1_000_000)
    }

    const fn runs(since: u64, leaves: Option<u64>) -> Turn {
        let leaves = match leaves {
            Some(ms) => Some(at(ms)),
            None => None,
        };
        Turn::Runs { since: at(since), leaves }
    }

    #[test]
    fn a_notice_comes_its_lead_before_the_end_but_in_the_latter_half() {
        for (lead, due) in [(10, 190), (50, 150), (80, 150), (100_000, 150)] {
            let mut notices = Notices::new(Nanos::from_millis(lead));
            assert_eq!(notices.due(), None);
            assert_eq!(notices.take(runs(100, Some(200))), None);
            assert_eq!(notices.due(), Some(at(due)), "{lead}");
            assert_eq!(notices.ask(at(due - 1)), None);
            assert_eq!(notices.ask(at(due)), Some((1, at(200))));
            assert_eq!((notices.due(), notices.ask(at(199))), (None, None), "once");
        }
    }

    #[test]
    fn no_notice_comes_when_the_job_stays_or_has_left() {
        let mut notices = Notices::new(Nanos::from_millis(10));
        notices.take(runs(0, None));
        assert_eq!((notices.due(), notices.ask(at(5))), (None, None));
        notices.take(runs(0, Some(20)));
        assert_eq!(notices.ask(at(20)), None, "too late");
        notices.take(Turn::Stands);
        assert_eq!(notices.due(), None);
    }

    #[test]
    fn a_notice_is_over_when_the_job_comes_again() {
        let mut notices = Notices::new(Nanos::from_millis(10));
        notices.take(runs(0, Some(100)));
        assert_eq!(notices.ask(at(95)), Some((1, at(100))));
        assert_eq!(notices.open(), Some((1, at(100))));
        assert_eq!(notices.take(Turn::Stands), Some(Change::Left(1)));
        assert_eq!(notices.open(), None);
        assert_eq!(notices.take(Turn::Stands), None);
        assert_eq!(notices.take(runs(200, Some(300))), Some(Change::Resume(1)));
        assert_eq!(notices.ask(at(295)), Some((2, at(300))));
    }

    #[test]
    fn a_job_that_stays_after_all_goes_on() {
        let mut notices = Notices::new(Nanos::from_millis(10));
        notices.take(runs(0, Some(100)));
        notices.ask(at(95));
        assert_eq!(notices.take(runs(0, Some(98))), None, "sooner: it was asked already");
        assert_eq!(notices.take(runs(0, Some(200))), Some(Change::Resume(1)));
        assert_eq!(notices.ask(at(190)), Some((2, at(200))));
        assert_eq!(notices.take(runs(0, None)), Some(Change::Resume(2)));
    }
}
