//! What an administrator sets: parameters, classes, and what is otherwise in which hours.

use super::agents::NodeEntry;
use super::driver::Driver;
use super::error::Problem;
use super::policy::program_of;
use super::report;
use std::collections::BTreeSet;
use tutti_core::{Begin, Event, ShortestSlot, shortest_slot};
use tutti_node::calendar::period_began_ms;
use tutti_node::platform::time::{clocks_change_in, local_week, system_clock, wall_ms};
use tutti_types::{
    BankPeriod, ClassName, ClockSource, ClusterTime, JobId, Nanos, Overrides, Period, Renewal,
    Settings,
};
use tutti_wire::local::{Section, Setting};
use tutti_wire::parameter::{override_param, override_rule, set_param, set_rule};
use tutti_wire::report::{ClocksReport, SlotReport};
use tutti_wire::tree::ToAgent;
use tutti_wire::units::format_duration_short;

/// How often people's clocks are looked at while periods rest on them: they may be set, and are put
/// forward and back twice a year.
const CALENDAR_EVERY: Nanos = Nanos::from_secs(3600);

/// How often they are looked at while allowances are renewed.
pub(super) const RENEW_EVERY: Nanos = Nanos::from_secs(60);

/// How long after clocks were put forward or back they are asked.
const CHANGED_AFTER: Nanos = Nanos::from_millis(10);

/// What the core's clock may be off before it is told.
const CALENDAR_SLACK: Nanos = Nanos::from_secs(1);

/// How many times as long as a clock may be off a slot must be: then at least half of each slot is
/// the same one everywhere, whatever the errors of two nodes add up to.
const CLOCKS_APART: u64 = 4;

/// Of a name with two values, one would be lost without a word.
pub(super) fn each_once<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("{name} is set twice; write it once"));
        }
    }
    Ok(())
}

impl Driver {
    pub(super) fn reply_params(&mut self, token: u64) {
        let reply = report::params(self);
        self.reply(token, &reply);
    }

    pub(super) fn on_set_params(&mut self, token: u64, uid: u32, values: &[(String, String)]) {
        let allowed = self.admin(uid).map_err(Problem::from);
        let split = allowed.and_then(|()| Ok(program_of(self.core.policy_program(), values)?));
        let (program, values) = match split {
            Ok(split) => split,
            Err(reason) => return self.fail(token, reason),
        };
        self.change_also(token, uid, program, |settings| {
            each_once(values.iter().map(|(name, _)| &**name))?;
            for (name, value) in &values {
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
        if values.iter().any(|(name, _)| matches!(&name[..], "users" | "after")) {
            let setting = |(name, value): &(String, String)| Setting {
                line: 0,
                section: Section::Class(class.clone()),
                during: None,
                name: name.clone(),
                value: value.clone(),
            };
            let settings: Vec<Setting> = values.iter().map(setting).collect();
            if self.configure(token, uid, &settings, false).is_some() {
                self.reply_params(token);
            }
            return;
        }
        self.change(token, uid, |settings| {
            if !settings.classes.contains_key(&class) {
                super::site::check_name(&class.0)?;
            }
            each_once(values.iter().map(|(name, _)| &**name))?;
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
            each_once(values.iter().map(|(name, _)| &**name))?;
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
        self.change_also(token, uid, None, change);
    }

    /// The same, with another event before it.
    fn change_also(
        &mut self,
        token: u64,
        uid: u32,
        also: Option<Event>,
        change: impl FnOnce(&mut Settings) -> Result<Event, String>,
    ) {
        let mut settings = self.core.settings().clone();
        let event = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let event = change(&mut settings)?;
            settings.check().map_err(|error| error.to_string())?;
            self.check_slots(&settings)?;
            self.check_clock(&settings)?;
            Ok(event)
        });
        match event {
            Ok(event) => {
                also.iter().for_each(|also| self.apply(also));
                self.apply(&event);
                self.watch_calendar();
                self.due.history_due = self.now();
                self.reply_params(token);
            }
            Err(reason) => self.fail(token, reason),
        }
    }

    /// Nodes with clocks that differ by a good part of a slot would not switch together.
    pub(super) fn check_slots(&self, settings: &Settings) -> Result<(), String> {
        let Some(slot) = shortest_slot(settings) else { return Ok(()) };
        let before = shortest_slot(self.core.settings());
        if before.is_some_and(|before| slot.length >= before.length) {
            return Ok(());
        }
        let worst = self.cluster.nodes.values().max_by_key(|node| node.place.time_error);
        let refusal = worst.and_then(|node| refusal(&slot, &node.name, node.place.time_error));
        refusal.map_or(Ok(()), Err)
    }

    /// How good the clocks are, and how good they must be; nothing where there is one node. Nodes
    /// come with any clock, and it may get worse: that is not refused.
    pub(super) fn clocks(&self) -> Option<ClocksReport> {
        let nodes = || self.cluster.nodes.values().filter(|node| node.agent.is_some());
        let worst = nodes().max_by_key(|node| node.place.time_error)?;
        let slot = shortest_slot(self.core.settings());
        let too_far = |node: &&NodeEntry| {
            slot.as_ref().is_some_and(|slot| slot.length < least_slot(node.place.time_error))
        };
        let shortest = slot.as_ref().map(|slot| SlotReport {
            length_ns: slot.length.0,
            class: slot.class.to_string(),
            quantum_ns: slot.quantum.0,
        });
        (nodes().count() > 1).then(|| ClocksReport {
            node: worst.name.clone(),
            error_ns: worst.place.time_error.0,
            least_ns: least_slot(worst.place.time_error).0,
            too_far: u32::try_from(nodes().filter(too_far).count()).unwrap_or(u32::MAX),
            shortest,
        })
    }

    /// Where nothing keeps this machine's clock, the others can't go by theirs.
    pub(super) fn check_clock(&self, settings: &Settings) -> Result<(), String> {
        let is_new = self.core.settings().params.clock() != settings.params.clock();
        if is_new && settings.params.clock() == ClockSource::System {
            system_clock().map_err(|reason| format!("clock=system can't be: {reason}"))?;
        }
        Ok(())
    }

    /// Tells the core what people's clocks say, if anything rests on that and it does not know.
    pub(super) fn watch_calendar(&mut self) {
        let hours = self.core.queues().values().any(|queue| !queue.periods.is_empty());
        self.renew_banks();
        self.watch_begins();
        let timed_due = self.watch_timed();
        let often = timed_due < ClusterTime::NEVER
            || !self.core.renewals().is_empty()
            || self.core.begins().next().is_some();
        if self.core.settings().periods.is_empty() && !hours {
            self.due.calendar_due = match often {
                false => ClusterTime::NEVER,
                true => (self.now() + RENEW_EVERY).min(timed_due),
            };
            return;
        }
        let now = self.now();
        let week = local_week();
        let known = self.core.week(now).is_some_and(|known| {
            let off = known.0.abs_diff(week.0);
            // Around midnight on Sunday, one clock may be in the next week.
            off <= CALENDAR_SLACK.0 || off >= tutti_types::period::WEEK - CALENDAR_SLACK.0
        });
        if !known {
            self.apply(&Event::Calendar { week });
        }
        let wait = if often { RENEW_EVERY } else { CALENDAR_EVERY };
        let wait = clocks_change_in().map_or(wait, |change| wait.min(change + CHANGED_AFTER));
        let next = now + wait;
        self.due.calendar_due = next.min(timed_due);
    }

    /// When a job begins that is to begin at a moment of people's clocks; `None`: at once.
    pub(super) fn begin_of(&self, unix_ms: u64) -> Option<Begin> {
        let ahead = unix_ms.checked_sub(wall_ms()).filter(|&ahead| ahead > 0)?;
        Some(Begin { at: self.now() + Nanos::from_millis(ahead), unix_ms })
    }

    /// The same of a moment of cluster time to come.
    pub(super) fn begin_at(&self, at: ClusterTime) -> Begin {
        let ahead_ms = at.since(self.now()).0 / 1_000_000;
        Begin { at, unix_ms: wall_ms().saturating_add(ahead_ms) }
    }

    /// Corrects the moments at which jobs begin, where people's clocks were set or cluster time
    /// stood still.
    fn watch_begins(&mut self) {
        let now = self.now();
        let moment = |begin: Begin| {
            let at = self.begin_of(begin.unix_ms).map_or(now, |begin| begin.at);
            (at.0.abs_diff(begin.at.0) > CALENDAR_SLACK.0 && at != begin.at).then_some(at)
        };
        let begins = self.core.begins();
        let wrong: Vec<(JobId, ClusterTime)> =
            begins.filter_map(|(job, begin)| Some((job, moment(begin)?))).collect();
        for (job, at) in wrong {
            self.apply(&Event::SetBegin { job, at });
        }
    }

    /// Has accounts count from nothing again whose period is over.
    fn renew_banks(&mut self) {
        for period in BankPeriod::ALL {
            let began_ms = period_began_ms(period, wall_ms());
            let is_over = |it: &Renewal| it.period == period && it.began_ms < began_ms;
            if self.core.renewals().values().any(is_over) {
                self.apply(&Event::BankPeriod { period, began_ms });
            }
        }
    }

    /// Parameters that agents go by may be others since the latest event.
    pub(super) fn tell_settings(&mut self) {
        let settings = self.agent_settings();
        if self.cluster.told_settings.replace(settings).is_some_and(|told| told != settings) {
            self.tell_nodes(
                self.cluster.nodes.keys().copied().collect(),
                ToAgent::Settings(settings),
            );
        }
    }
}

/// How long slots must be where a clock may be so far off; so that it is shown whole.
fn least_slot(time_error: Nanos) -> Nanos {
    let least = time_error.0.saturating_mul(CLOCKS_APART);
    let step = match least {
        0..10_000_000 => 100_000,
        10_000_000..1_000_000_000 => 1_000_000,
        1_000_000_000..10_000_000_000 => 100_000_000,
        _ => 1_000_000_000,
    };
    Nanos(least.checked_next_multiple_of(step).unwrap_or(u64::MAX))
}

/// Why a slot is too short where the clock of this node may be so far off.
fn refusal(slot: &ShortestSlot, node: &str, time_error: Nanos) -> Option<String> {
    let least = least_slot(time_error);
    let shown = format_duration_short;
    let (length, quantum, least_shown) = (shown(slot.length), shown(slot.quantum), shown(least));
    let class = &slot.class;
    let (what, mend) = match slot.length == slot.quantum {
        true => (format!("a quantum of {quantum} is"), format!("take {least_shown} or more")),
        false => (
            format!(
                "slots of {length}, as class {class} could have with a quantum of {quantum}, are"
            ),
            format!("take a longer quantum, or slot_min={least_shown} for class {class}"),
        ),
    };
    (slot.length < least).then(|| {
        format!(
            "{what} too short for nodes to switch together: the clock of {node} may be off by {}; {mend} \
             (`tutti nodes` shows the clocks)",
            shown(time_error),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{least_slot, refusal};
    use tutti_core::ShortestSlot;
    use tutti_types::{ClassName, Nanos};
    use tutti_wire::units::format_duration_short;

    const ERROR: Nanos = Nanos(1_230_000);

    fn slot(length_us: u64, quantum_us: u64) -> ShortestSlot {
        let [length, quantum] = [length_us, quantum_us].map(|us| Nanos(us * 1000));
        ShortestSlot { length, quantum, class: ClassName::new("standby") }
    }

    #[test]
    fn a_slot_is_four_times_as_long_as_a_clock_may_be_off() {
        assert_eq!(refusal(&slot(5000, 5000), "n3", ERROR), None);
        let refused = refusal(&slot(4000, 4000), "n3", ERROR).unwrap();
        for said in ["a quantum of 4.0ms is", "of n3 may be off by 1.2ms", "take 5.0ms or more"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
        assert_eq!(refusal(&slot(5000, 200_000), "n3", ERROR), None);
        // A client that takes the advice is not refused again.
        let least = |us: u64| format_duration_short(least_slot(Nanos(us * 1000)));
        assert_eq!([2_490, 22_001, 249_990].map(least), ["10ms", "89ms", "1.0s"]);
        let refused = refusal(&slot(4000, 200_000), "n3", ERROR).unwrap();
        let slots = "slots of 4.0ms, as class standby could have with a quantum of 200ms, are";
        for said in [slots, "of n3 may be off by 1.2ms", "slot_min=5.0ms for class standby"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
    }
}
