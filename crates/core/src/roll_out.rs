//! Rolling jobs out before the machine goes down, and in again when it is back (LLNL paper: the
//! state of jobs is saved before a shutdown, and restored after it).
//!
//! Nothing begins while jobs are rolled out. Each job that runs has the best that it can:
//!
//! 1. One that saves its state by itself is asked to, and is ended and queued again if it does not
//!    end within its grace ([`checkpoint`](crate::checkpoint)).
//! 2. One that may start again from the beginning (`--on-node-loss requeue`) is queued again.
//! 3. Any other may go on until the time for all is over. Then it is ended, as by `GoDown`.
//!
//! A preempted job that saves its state is asked when it has processors again: the others leave
//! theirs. When the time is over, it is queued again without being asked.
//!
//! A job that is out is a job in line, with its number and its place. What is noted besides is on
//! which nodes it was: it begins there again, if there is room. So a machine that fails half-way
//! has each job either in line or where it was. Of the latter, those of the first two kinds are
//! queued again when their nodes are lost.

use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::policy::Decision;
use crate::state::record::{Phase, Record, Residence};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::constraints::OnNodeLoss;
use tutti_types::ids::{JobId, NodeId};
use tutti_types::job::EndReason;
use tutti_types::time::{ClusterTime, Nanos};

/// A run that got less than this has nothing to save: its handler may not be there yet.
const NOTHING_TO_SAVE: Nanos = Nanos::from_secs(1);

/// The jobs that are rolled out, or were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RollOut {
    /// When those that are left are ended; `None`: nothing is rolled out.
    until: Option<ClusterTime>,
    /// Whether a driver is about it. One that begins has not said yet whether it goes on.
    is_driven: bool,
    /// The jobs that were asked, or ended to be queued again.
    taken: BTreeSet<JobId>,
    /// Where jobs were that are out.
    nodes: BTreeMap<JobId, BTreeSet<NodeId>>,
}

impl RollOut {
    /// A job has begun, or is gone.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.taken.remove(&job);
        self.nodes.remove(&job);
    }

    /// A job is queued again that was on these nodes.
    pub(crate) fn note_out(&mut self, job: JobId, nodes: impl Iterator<Item = NodeId>) {
        if self.until.is_some() {
            self.nodes.insert(job, nodes.collect());
        }
    }

    /// Whether a job is queued again if its nodes are lost.
    pub(crate) fn has_taken(&self, job: JobId) -> bool {
        self.taken.contains(&job)
    }

    /// A driver begins.
    pub(crate) fn pause(&mut self) {
        self.is_driven = false;
    }

    /// Until when any job may take.
    pub(crate) fn until(&self) -> ClusterTime {
        self.until.unwrap_or(ClusterTime::NEVER)
    }
}

/// How a job leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It saves its state.
    Saves,
    /// It starts again from the beginning.
    Anew,
}

impl Core {
    /// Whether jobs are rolled out.
    #[must_use]
    pub const fn is_rolling_out(&self) -> bool {
        self.roll_out.until.is_some()
    }

    /// When the jobs that are not out are ended; never, if none is rolled out.
    #[must_use]
    pub fn roll_out_until(&self) -> ClusterTime {
        self.roll_out.until()
    }

    /// Whether no job begins, and none is accepted.
    pub(crate) const fn is_closed(&self) -> bool {
        self.is_stopping() || self.is_rolling_out()
    }

    /// Jobs are to be out, or come back.
    pub(crate) fn on_roll_event(
        &mut self,
        now: ClusterTime,
        event: &Event,
        actions: &mut Vec<Action>,
    ) {
        if let Event::RollOut { patience } = event {
            self.on_roll_out(now, *patience, actions);
        } else {
            self.on_roll_in(now);
        }
    }

    /// All jobs are to be out within this time; if that was said before, within the time that was
    /// said then.
    fn on_roll_out(&mut self, now: ClusterTime, patience: Nanos, actions: &mut Vec<Action>) {
        self.roll_out.until.get_or_insert(now + patience);
        self.roll_out.is_driven = true;
        self.open_or_close_all(now);
        // The others in line are for the next driver.
        let ends = |record: &&Record| {
            matches!(record.phase, Phase::Queued { .. }) && !record.may_wait_long()
        };
        for job in self.jobs.values().filter(ends).map(|it| it.id).collect::<Vec<JobId>>() {
            self.end_job(now, job, EndReason::ShutDown, actions);
        }
    }

    /// The instance ends for a while. What is rolled out has no more time.
    pub(crate) fn on_go_down(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        if self.is_rolling_out() {
            self.roll_out.until = Some(now);
            self.roll_out.is_driven = true;
        } else {
            self.on_shut_down(now, Record::may_wait_long, actions);
        }
    }

    /// The jobs that are out come back.
    fn on_roll_in(&mut self, now: ClusterTime) {
        if self.roll_out.until.take().is_some() {
            self.open_again(now);
        }
    }

    /// Has each job leave as it can; ends what is left when the time is over.
    pub(crate) fn follow_roll_out(&mut self, now: ClusterTime, actions: &mut Vec<Action>) {
        if self.next_of_roll_out() == ClusterTime::NEVER {
            return;
        }
        let is_over = self.roll_out.until() <= now;
        let resident = self.jobs.values().filter(|record| record.residence().is_some());
        let ways = resident.filter_map(|record| Some((record.id, self.way(record, is_over)?)));
        for (job, way) in ways.collect::<Vec<_>>() {
            self.roll_out.taken.insert(job);
            match way {
                Way::Saves => self.save_by_force(now, job, actions),
                Way::Anew => {
                    let reason = EndReason::Requeued { hold: false };
                    self.end_job(now, job, reason, actions);
                }
            }
        }
        if is_over {
            let is_out = |record: &Record| {
                let reason = record.residence().and_then(Residence::reason);
                matches!(reason, Some(EndReason::Requeued { .. }))
            };
            let stays = |record: &Record| record.may_wait_long() || is_out(record);
            self.on_shut_down(now, stays, actions);
        }
    }

    /// How a job leaves now, if it does.
    fn way(&self, record: &Record, is_over: bool) -> Option<Way> {
        let residence = record.residence().filter(|it| !it.ending())?;
        if record.spec.attached || self.roll_out.has_taken(record.id) && !is_over {
            return None;
        }
        let had = self.ledger.service(record.id, self.now);
        let saver = self.checkpoint(record.id);
        let once = self.runs_once(record.id);
        let saves = saver.is_some();
        let has_something = had >= NOTHING_TO_SAVE || saver.is_some_and(|it| it.spec.saves_image());
        match saves {
            true if (is_over || !has_something) && !once => Some(Way::Anew),
            true if residence.place.is_home() && self.can_be_asked(record.id) => Some(Way::Saves),
            true => None,
            false if once => None,
            false => (record.spec.on_node_loss == OnNodeLoss::Requeue).then_some(Way::Anew),
        }
    }

    /// The moment that the driver is to wake the core for.
    pub(crate) fn next_of_roll_out(&self) -> ClusterTime {
        match self.roll_out.is_driven && !self.is_stopping() {
            true => self.roll_out.until(),
            false => ClusterTime::NEVER,
        }
    }

    /// What becomes of a job in line: it begins where it was before it was rolled out, if it can.
    pub(crate) fn decide_where_it_was(&self, record: &Record) -> Option<Decision> {
        if let Some(nodes) = self.roll_out.nodes.get(&record.id) {
            let mut spec = record.spec.clone();
            let among = spec.nodes.among.take();
            let among = among.map_or_else(|| nodes.clone(), |it| &it & nodes);
            spec.nodes.among = Some(among);
            let decision = self.decide(&spec);
            if matches!(decision, Some(Decision::Start { .. })) {
                return decision;
            }
        }
        self.decide(&record.spec)
    }
}
