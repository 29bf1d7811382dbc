//! One job's account.

use super::paces::{Due, List};
use super::{Rows, Runs};
use serde::{Deserialize, Serialize};
use tutti_types::ids::JobId;
use tutti_types::time::{ClusterTime, Nanos};

/// One job's account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Account {
    /// Of slots that it runs in no more.
    pub(super) settled: u64,
    /// Where it runs.
    pub(super) runs: Runs,
    /// What the clocks of these rows showed, added up, when it began to.
    pub(super) began: u64,
    /// When it is to begin, while it is new; since when it lends all that it has.
    pub(super) begins: ClusterTime,
    pub(super) processors: u64,
    /// How long it may run.
    pub(super) limit: Option<u64>,
    /// How long it may keep its processors after it was asked to end at its limit.
    pub(super) grace: u64,
    pub(super) standing: Standing,
    /// How long it lent all that it has, in loans that are over; a part of what is settled.
    pub(super) lent: u64,
}

/// What is to be expected of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Standing {
    /// No timetable that gives the job its turns, or gives them back, has activated yet.
    New,
    /// It runs when it is its turn.
    Open,
    /// A user suspends it: its end is unknown.
    Held,
    /// The job was asked to end: it goes on running, and is killed then.
    Ending(ClusterTime),
    /// The job was killed: it goes on running, and may be gone any moment.
    Killed,
    /// Its tasks have all ended: it runs in no slot whatever a timetable says.
    Halted,
    /// It lends all that it has: it runs in no slot, and its limit goes on by the clock.
    Lent,
}

impl Account {
    /// Enters what the running rows gave, and begins anew from what their clocks show.
    pub(super) const fn settle(&mut self, clock: u64) {
        self.settled += clock - self.began;
        self.began = clock;
    }

    /// How long the present loan lasts already.
    pub(super) fn loan(&self, now: ClusterTime) -> u64 {
        if self.standing == Standing::Lent { now.since(self.begins).0 } else { 0 }
    }

    /// A loan of all that it has is over.
    pub(super) fn end_loan(&mut self, now: ClusterTime) {
        if self.standing == Standing::Lent {
            let lasted = self.loan(now);
            self.settled += lasted;
            self.lent += lasted;
            self.standing = Standing::New;
        }
    }

    /// When its limit is reached by the clock, since it lends all that it has.
    pub(super) fn limit_of_loan(&self) -> Option<ClusterTime> {
        let left = self.limit?.saturating_sub(self.settled);
        (self.standing == Standing::Lent).then(|| self.begins + Nanos(left))
    }

    /// Whether its processors may come free any moment.
    pub(super) const fn leaves(&self) -> bool {
        matches!(self.standing, Standing::Killed | Standing::Halted)
    }

    /// Whether its limit has no meaning any more.
    const fn is_past_limit(&self) -> bool {
        self.leaves() || matches!(self.standing, Standing::Ending(_))
    }

    /// What the clocks of its rows show, added up, when it reaches its limit with the last of the
    /// turns that it was still given; `None` if it is not on its way out, or was stopped before.
    /// A job that runs nowhere and has had all of its time needs no other turn to end.
    pub(super) fn last_mark(&self) -> Option<u64> {
        let left = self.limit?.saturating_sub(self.settled);
        let spent = self.runs.rows.is_empty() && self.settled > 0 && left == 0;
        let outgoing = self.standing == Standing::Held && !self.runs.rows.is_empty();
        (!self.is_past_limit() && (spent || outgoing)).then(|| self.began.saturating_add(left))
    }

    /// The list of jobs in which it stands by [`Account::due`].
    pub(super) fn list(&self) -> List {
        match self.standing {
            Standing::Ending(_) => {
                List { runs: Runs { home: self.runs.home, rows: Rows::default() }, grace: 0 }
            }
            Standing::New
            | Standing::Open
            | Standing::Held
            | Standing::Lent
            | Standing::Killed
            | Standing::Halted => List { runs: self.runs.clone(), grace: self.grace },
        }
    }

    /// Its place in the list of its pace; `None` if it is unknown when its processors come free.
    pub(super) fn due(&self, job: JobId) -> Option<Due> {
        if let Standing::Ending(killed_at) = self.standing {
            let processors = self.processors;
            return (processors > 0).then_some(Due { mark: killed_at.0, job, processors });
        }
        let waits = matches!(self.standing, Standing::New | Standing::Lent);
        let held = self.standing == Standing::Held;
        if self.leaves() || held || (self.runs.rows.is_empty() && !waits) {
            return None;
        }
        let left = self.limit?.saturating_sub(self.settled);
        // A job that has not begun stands under no rows, and time itself is the clock.
        let from = if self.runs.rows.is_empty() { self.begins.0 } else { self.began };
        Some(Due { mark: from.saturating_add(left), job, processors: self.processors })
    }
}
