//! Parameters, classes and hours of the week are set, and what then holds.

use super::Core;
use crate::policy;
use alloc::vec::Vec;
use tutti_types::class::{ClassSpec, Classes};
use tutti_types::ids::ClassName;
use tutti_types::params::Params;
use tutti_types::period::{Calendar, Period};
use tutti_types::settings::{Overrides, Settings};
use tutti_types::time::{ClusterTime, Nanos};

impl Core {
    pub(super) fn on_set_params(&mut self, now: ClusterTime, params: &Params) {
        let settings = Settings { params: params.clone(), ..self.settings.clone() };
        if params.check().is_ok() && settings.check().is_ok() {
            self.settings = settings;
            self.take_settings(now);
        }
    }

    pub(super) fn on_set_class(&mut self, now: ClusterTime, class: &ClassName, spec: ClassSpec) {
        let mut settings = self.settings.clone();
        settings.classes.insert(class.clone(), spec);
        if spec.check(class, &self.settings.classes).is_ok() && settings.check().is_ok() {
            self.settings = settings;
            self.take_settings(now);
        }
    }

    pub(super) fn on_set_period(
        &mut self,
        now: ClusterTime,
        period: Period,
        overrides: &Overrides,
    ) {
        let mut settings = self.settings.clone();
        settings.set_period(period, overrides.clone());
        if settings.check().is_ok() {
            self.settings = settings;
            self.take_settings(now);
        }
    }

    pub(super) fn on_calendar(&mut self, now: ClusterTime, week: Nanos) {
        self.calendar = Some(Calendar::new(now, week));
        self.take_settings(now);
    }

    /// Makes what holds at this hour hold, and notes when to look again.
    pub(crate) fn take_settings(&mut self, now: ClusterTime) {
        let week = self.calendar.map(|calendar| calendar.week(now));
        let wait = week.and_then(|week| {
            let queues = self.queues.changes_in(week);
            self.settings.changes_in(week).into_iter().chain(queues).min()
        });
        self.settings_until = wait.map_or(ClusterTime::NEVER, |wait| now + wait);
        self.take_queue_limits(week);
        // They were checked for every hour when they were set.
        let Ok((params, classes)) = self.settings.at(week) else { return };
        if params != self.params {
            let is_other = |by: fn(&Params) -> bool| by(&params) != by(&self.params);
            if params.packing() != self.params.packing()
                || is_other(|params| policy::of(params).has_levels)
            {
                self.matrix.consider_all_homes();
            }
            // It says what nodes choose by themselves.
            self.outbox.all_nodes |= is_other(|params| policy::of(params).has_levels);
            self.longer_leases.note(now, &self.params, &params);
            self.params = params;
            self.outbox.reshaped = true;
            self.queue.stale = true;
            self.queue.disturbed = true;
            self.queue.reconsider();
            if !self.queue.parked.is_empty() {
                // A job that had too few nodes may fit by another placement.
                self.unpark();
                self.forget_promises();
            }
        }
        if classes != self.classes {
            let empty = |name, spec: &ClassSpec| {
                self.classes.get(name).is_some_and(|before| before.empty() != spec.empty())
            };
            self.outbox.all_nodes |= classes.iter().any(|(name, spec)| empty(name, spec));
            // Nodes know what classes have beside each other.
            self.outbox.all_nodes |= self.policy().has_levels;
            self.outbox.reshaped = true;
            self.queue.stale = true;
            self.queue.disturbed = true;
            let memory = |classes: &Classes| -> Vec<_> {
                classes.iter().map(|(name, spec)| (name.clone(), spec.memory())).collect()
            };
            let keeps_other_memory = memory(&classes) != memory(&self.classes);
            self.classes = classes;
            if keeps_other_memory {
                self.queue.reconsider();
                self.unpark();
                self.forget_promises();
            }
            if self.queue.line.has_lanes() {
                // Priorities may be others.
                self.line_up_all();
            }
        }
    }
}
