//! Until when a program rests: it has nothing to decide, and says what it waits for.

use crate::protocol::Until;
use std::collections::BTreeSet;
use tutti_core::{Core, Event};
use tutti_types::JobId;

/// Whether the program rests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// What it waits for; `None`: any news.
    until: Option<Until>,
    /// Whether that has come.
    is_over: bool,
    /// Whether it was looked for among what came while the program was asked.
    is_checked: bool,
    /// Whether the program was in charge when it was asked.
    in_charge: bool,
}

impl Rest {
    /// The program is asked.
    pub(crate) const fn asked(&mut self, in_charge: bool) {
        *self = Self { until: None, is_over: false, is_checked: false, in_charge };
    }

    /// The program has answered.
    pub(crate) const fn begin(&mut self, until: Option<Until>) {
        self.until = until;
    }

    /// The orders of the answer are done. `touched`: the jobs that came into line, or left it,
    /// since the program was asked; `told`: those in line of which it knows.
    pub(crate) fn check(&mut self, core: &Core, touched: &BTreeSet<JobId>, told: &BTreeSet<JobId>) {
        if !self.is_checked {
            self.is_checked = true;
            self.look(core, touched.iter().copied(), told);
        }
    }

    /// The core has taken in an event. `about_nodes`: the program wants to know of nodes, and some
    /// are otherwise.
    pub(crate) fn note(
        &mut self,
        core: &Core,
        event: &Event,
        about_nodes: bool,
        told: &BTreeSet<JobId>,
    ) {
        self.is_over |= about_nodes || matches!(event, Event::SetParams { .. });
        if self.holds() {
            self.look(core, core.line_touched().iter().copied(), told);
        }
    }

    fn look(&mut self, core: &Core, jobs: impl Iterator<Item = JobId>, told: &BTreeSet<JobId>) {
        let Some(until) = &mut self.until else { return };
        for job in jobs {
            match core.request(job).map(|request| request.processors) {
                Some(needs) if until.new_jobs && !told.contains(&job) => {
                    until.free = Some(until.free.map_or(needs, |least| least.min(needs)));
                }
                // It may have been the one that others wait behind.
                None if told.contains(&job) && core.home(job).is_none() => self.is_over = true,
                Some(_) | None => {}
            }
        }
        self.is_over |= core.outside_decides() != self.in_charge
            || until.free.is_some_and(|least| core.most_free() >= least);
    }

    /// Whether news of jobs wait.
    pub(crate) const fn holds(&self) -> bool {
        self.until.is_some() && self.is_checked && !self.is_over
    }
}
