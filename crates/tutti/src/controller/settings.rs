//! What an administrator sets: parameters, classes, and what is otherwise in which hours.

use super::driver::Driver;
use super::problem::Problem;
use super::report;
use crate::outside::time::local_week;
use crate::outside::time::system_clock;
use crate::parameter::{override_param, override_rule, set_param, set_rule};
use tutti_core::{ClassName, ClockSource, ClusterTime, Event, Nanos, Overrides, Period, Settings};
use tutti_wire::tree::ToAgent;
use tutti_wire::units::format_duration_short;

/// How often people's clocks are looked at while periods rest on them: they may be set, and are put
/// forward and back twice a year.
const CALENDAR_EVERY: Nanos = Nanos::from_secs(3600);

/// What the core's clock may be off before it is told.
const CALENDAR_SLACK: Nanos = Nanos::from_secs(1);

/// How many times as long as a clock may be off a quantum must be: then at least half of each slot is
/// the same one everywhere, whatever the errors of two nodes add up to.
const CLOCKS_APART: u64 = 4;

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

    pub(super) fn on_forget_class(&mut self, token: u64, uid: u32, class: ClassName) {
        let stays = self.core.why_class_stays(&class);
        self.change(token, uid, |settings| match stays {
            Some(reason) => Err(reason.to_string()),
            None => {
                settings.classes.remove(&class);
                Ok(Event::ForgetClass { class })
            }
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
        let event = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let event = change(&mut settings)?;
            settings.check().map_err(|error| error.to_string())?;
            self.check_quantum(&settings)?;
            self.check_clock(&settings)?;
            Ok(event)
        });
        match event {
            Ok(event) => {
                self.apply(&event);
                self.watch_calendar();
                self.history_due = self.now();
                self.reply_params(token);
            }
            Err(reason) => self.fail(token, reason),
        }
    }

    /// Nodes whose clocks differ by a good part of a slot would not switch together.
    fn check_quantum(&self, settings: &Settings) -> Result<(), String> {
        let quantum = shortest_quantum(settings);
        if quantum >= shortest_quantum(self.core.settings()) {
            return Ok(());
        }
        let worst = self.nodes.values().max_by_key(|node| node.place.time_error);
        let refusal = worst.and_then(|node| refusal(quantum, &node.name, node.place.time_error));
        refusal.map_or(Ok(()), Err)
    }

    /// Where nobody keeps this machine's clock, the others can't go by theirs.
    fn check_clock(&self, settings: &Settings) -> Result<(), String> {
        let is_new = self.core.settings().params.clock() != settings.params.clock();
        if is_new && settings.params.clock() == ClockSource::System {
            system_clock().map_err(|reason| format!("clock=system can't be: {reason}"))?;
        }
        Ok(())
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
            self.tell_nodes(self.nodes.keys().copied().collect(), ToAgent::Settings(settings));
        }
    }
}

/// The shortest that holds at any hour.
fn shortest_quantum(settings: &Settings) -> Nanos {
    let periods = settings.periods.iter().filter_map(|(_, it)| it.params.get("quantum"));
    let shortest = periods.copied().map(Nanos).min();
    shortest.map_or(settings.params.quantum(), |it| it.min(settings.params.quantum()))
}

/// Why a quantum is too short where the clock of this node may be so far off.
fn refusal(quantum: Nanos, node: &str, time_error: Nanos) -> Option<String> {
    let least_us = time_error.0.saturating_mul(CLOCKS_APART).div_ceil(1000);
    let least = Nanos(least_us.next_multiple_of(100).saturating_mul(1000));
    (quantum < least).then(|| {
        format!(
            "a quantum of {} is too short for nodes to switch together: the clock of {node} may be off \
             by {}; take {} or more (`tutti nodes` shows the clocks)",
            format_duration_short(quantum),
            format_duration_short(time_error),
            format_duration_short(least),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::refusal;
    use tutti_core::Nanos;

    #[test]
    fn a_quantum_is_four_times_as_long_as_a_clock_may_be_off() {
        let error = Nanos(1_230_000);
        assert_eq!(refusal(Nanos(5_000_000), "n3", error), None);
        let refused = refusal(Nanos(4_000_000), "n3", error).unwrap();
        for said in ["of 4.0ms", "of n3 may be off by 1.2ms", "take 5.0ms or more"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
    }
}
