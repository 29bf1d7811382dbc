//! What is kept of deadlines: a plan for each row, and the jobs without a guaranteed deadline.

use super::promise::{Promise, Promises};
use super::rate::Pace;
use super::row_shares::Sharers;
use crate::apply::Core;
use crate::ledger::Ledger;
use crate::slices::Cut;
use crate::state::record::{Course, Phase, Record};
use crate::termination::memory_of;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, RowId};
use tutti_types::time::{ClusterTime, Nanos};

/// The plan of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RowPlan {
    pub(crate) row: RowId,
    pub(crate) promises: Promises,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Plans {
    pub(crate) rows: BTreeMap<Sharers, RowPlan>,
    /// Jobs that may miss their deadline, and since when.
    pub(crate) at_risk: BTreeMap<JobId, ClusterTime>,
    /// What the promises were made on.
    pub(crate) basis: Basis,
    /// Something came free since those at risk were last tried.
    pub(crate) freed: bool,
}

/// What promises rest on besides what jobs do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Basis {
    pub(crate) paces: BTreeMap<Sharers, Pace>,
    pub(crate) cuts: BTreeMap<Sharers, Cut>,
    pub(crate) slack: Nanos,
}

impl Plans {
    /// Whether nothing was ever planned, or all of it was dropped.
    fn are_none(&self) -> bool {
        let Self { rows, at_risk, basis: Basis { paces, cuts, slack }, freed } = self;
        let basis = paces.is_empty() && cuts.is_empty() && *slack == Nanos::ZERO;
        rows.is_empty() && at_risk.is_empty() && basis && !freed
    }

    /// What a job was promised.
    pub(crate) fn promise(&self, job: JobId) -> Option<&Promise> {
        self.rows.values().find_map(|plan| plan.promises.get(job))
    }

    pub(crate) fn pace(&self, sharers: &Sharers) -> Pace {
        self.basis.paces.get(sharers).copied().unwrap_or(Pace { slot: 0, cycle: 1 })
    }
}

/// The moment at which what is decided now takes effect, and what holds then.
pub(crate) struct Ahead<'a> {
    pub(crate) at: ClusterTime,
    core: &'a Core,
    /// The ledger as of then, if that is not the moment of the latest event.
    ledger: Option<Ledger>,
}

impl Ahead<'_> {
    fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().unwrap_or(&self.core.ledger)
    }

    /// What a row's clock shows; nothing for a row that has none yet.
    pub(crate) fn clock(&self, row: Option<RowId>) -> u64 {
        self.ledger().clock(row.as_slice()).0
    }

    /// When a row's clock shows so much, if nothing changes.
    pub(crate) fn when(&self, row: RowId, clock: u64) -> ClusterTime {
        let need = clock.saturating_sub(self.clock(Some(row)));
        self.ledger().reaches_in(&[row], Nanos(need))
    }

    /// How long a job may still have its processors, in nanoseconds: what it may still run and its
    /// grace after that, or what is left of that; `None`: for ever.
    pub(crate) fn holds(&self, record: &Record) -> Option<u64> {
        let (spec, service) = (&record.spec, self.ledger().service(record.id, self.at));
        let most = spec.time_limit.map(|limit| (limit + spec.grace).0.saturating_sub(service.0));
        match record.residence().map(|residence| residence.course) {
            // If its limit was noticed late, it is killed late; other promises don't count on less.
            Some(Course::Terminating { kill_at, .. }) => {
                Some(kill_at.since(self.at).0.min(most.unwrap_or(u64::MAX)))
            }
            Some(Course::Killed { .. }) => Some(0),
            Some(Course::Running | Course::Orphaned { .. } | Course::Failing { .. }) | None => most,
        }
    }
}

impl Core {
    pub(crate) fn ahead(&self, now: ClusterTime) -> Ahead<'_> {
        let at = self.activation(now);
        // A caller that only asks may do so long after the latest event.
        let ledger = (at > self.now).then(|| {
            let mut ledger = self.ledger.clone();
            ledger.advance(at);
            ledger
        });
        Ahead { at, core: self, ledger }
    }

    /// Writes down a promise. What memory a job that has not begun needs is kept for it.
    pub(crate) fn enter_promise(&mut self, sharers: &Sharers, job: JobId, promise: Promise) {
        if self.residence(job).is_none() {
            self.admit_memory(job, &promise.parts);
        }
        let row = self.row_of(sharers);
        self.plans.at_risk.remove(&job);
        if let Some(plan) = self.plans.rows.get_mut(sharers) {
            debug_assert_eq!(plan.row, row);
            plan.promises.insert(job, promise);
        }
    }

    /// Takes a promise back, for any reason.
    pub(crate) fn drop_promise(&mut self, job: JobId) {
        let plans = self.plans.rows.values_mut();
        let Some(promise) = plans.filter_map(|plan| plan.promises.remove(job)).next() else {
            return;
        };
        self.plans.freed = true;
        let Some(record) = self.jobs.get(&job) else { return };
        if let Phase::Queued { .. } = record.phase
            && record.spec.memory_per_task_bytes.is_some()
        {
            for part in &promise.parts {
                self.nodes.release(part.node, memory_of(part, &record.spec));
            }
        }
    }

    /// The row of these, which is made if there is none.
    pub(crate) fn row_of(&mut self, sharers: &Sharers) -> RowId {
        if let Some(plan) = self.plans.rows.get(sharers) {
            return plan.row;
        }
        let row = self.matrix.keep_row();
        let plan = RowPlan { row, promises: Promises::default() };
        self.plans.rows.insert(sharers.clone(), plan);
        row
    }

    /// Lets go of rows that no job needs.
    pub(crate) fn drop_empty_rows(&mut self) {
        let matrix = &mut self.matrix;
        self.plans.rows.retain(|_, plan| {
            let homes = matrix.row(plan.row).map_or(0, |row| row.homes);
            let stays = homes > 0 || !plan.promises.is_empty();
            if !stays {
                matrix.let_go(plan.row);
            }
            stays
        });
    }

    /// Another policy decides from now on, which keeps no promises of this kind.
    pub(crate) fn drop_plans(&mut self, now: ClusterTime) {
        if self.plans.are_none() {
            return;
        }
        let promised = self.plans.rows.values().flat_map(|plan| plan.promises.iter());
        let promised: Vec<JobId> = promised.map(|(job, _)| job).collect();
        for job in promised {
            self.drop_promise(job);
            self.plans.at_risk.insert(job, now);
        }
        for plan in core::mem::take(&mut self.plans.rows).into_values() {
            self.matrix.let_go(plan.row);
        }
        let at_risk = core::mem::take(&mut self.plans.at_risk);
        let known = at_risk.into_iter().filter(|(job, _)| self.jobs.contains_key(job)).collect();
        self.plans = Plans { at_risk: known, ..Plans::default() };
    }
}
