//! What an administrator sets: parameters, classes, and what is otherwise in which hours.

use super::driver::Driver;
use super::report;
use crate::calendar::local_week;
use crate::parameter::{override_param, override_rule, set_param, set_rule};
use tutti_core::{ClassName, ClusterTime, Event, Nanos, Overrides, Period, Settings};
use tutti_wire::tree::ToAgent;

/// How often people's clocks are looked at while periods rest on them: they may be set, and are put
/// forward and back twice a year.
const CALENDAR_EVERY: Nanos = Nanos::from_secs(3600);

/// What the core's clock may be off before it is told.
const CALENDAR_SLACK: Nanos = Nanos::from_secs(1);

impl Driver {
    pub(super) fn reply_params(&mut self, token: u64) {
        let reply = report::params(self);
        self.reply(token, &reply);
    }

    pub(super) fn on_set_params(&mut self, token: u64, uid: u32, values: &[(String, String)]) {
        self.change(token, uid, |settings| {
            for (name, value) in values {
                set_param(&mut settings.params, name, value)?;
            }
            Ok(Event::SetParams { params: settings.params.clone() })
        });
    }

    pub(super) fn on_set_class(
        &mut self,
        token: u64,
        uid: u32,
        class: ClassName,
        values: &[(String, String)],
    ) {
        self.change(token, uid, |settings| {
            let mut spec = settings.classes.get(&class).copied().unwrap_or_default();
            for (name, value) in values {
                set_rule(&mut spec, name, value)?;
            }
            spec.check(&class, &settings.classes).map_err(|error| error.to_string())?;
            settings.classes.insert(class.clone(), spec);
            Ok(Event::SetClass { class, spec })
        });
    }

    pub(super) fn on_set_period(
        &mut self,
        token: u64,
        uid: u32,
        (period, class): (&str, Option<&ClassName>),
        values: &[(String, String)],
    ) {
        self.change(token, uid, |settings| {
            let period: Period = period.parse().map_err(|error| format!("{error}"))?;
            let mut overrides = settings.period(period).cloned().unwrap_or_default();
            for (name, value) in values {
                match class {
                    None => override_param(&mut overrides, name, value)?,
                    Some(class) => override_rule(&mut overrides, class, name, value)?,
                }
            }
            settings.set_period(period, overrides.clone());
            Ok(Event::SetPeriod { period, overrides })
        });
    }

    pub(super) fn on_forget_period(&mut self, token: u64, uid: u32, period: &str) {
        self.change(token, uid, |settings| {
            let period: Period = period.parse().map_err(|error| format!("{error}"))?;
            if settings.period(period).is_none() {
                return Err(format!(
                    "nothing is otherwise {period}; `tutti params` lists the hours"
                ));
            }
            settings.set_period(period, Overrides::default());
            Ok(Event::SetPeriod { period, overrides: Overrides::default() })
        });
    }

    /// Puts other settings in place: all of a change, or nothing.
    fn change(
        &mut self,
        token: u64,
        uid: u32,
        change: impl FnOnce(&mut Settings) -> Result<Event, String>,
    ) {
        let mut settings = self.core.settings().clone();
        let event = self.admin(uid).map_err(|error| error.to_string()).and_then(|()| {
            let event = change(&mut settings)?;
            settings.check().map_err(|error| error.to_string())?;
            Ok(event)
        });
        match event {
            Ok(event) => {
                self.apply(&event);
                self.watch_calendar();
                self.reply_params(token);
            }
            Err(reason) => self.fail(token, &reason),
        }
    }

    /// Tells the core what people's clocks say, if anything rests on that and it does not know.
    pub(super) fn watch_calendar(&mut self) {
        if self.core.settings().periods.is_empty() {
            self.calendar_due = ClusterTime::NEVER;
            return;
        }
        let now = self.now();
        let week = local_week();
        let known = self.core.week(now).is_some_and(|known| {
            let off = known.0.abs_diff(week.0);
            // Around midnight on Sunday, one clock may be in the next week.
            off <= CALENDAR_SLACK.0 || off >= tutti_core::period::WEEK - CALENDAR_SLACK.0
        });
        if !known {
            self.apply(&Event::Calendar { week });
        }
        self.calendar_due = now + CALENDAR_EVERY;
    }

    /// Parameters that agents go by may be others since the latest event.
    pub(super) fn tell_settings(&mut self) {
        let settings = self.agent_settings();
        if self.told_settings.replace(settings).is_some_and(|told| told != settings) {
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.tell_node(node, ToAgent::Settings(settings));
            }
        }
    }
}
