//! Changes at times (`tutti at`): what an administrator asks for, and when moments have come.
//!
//! The core keeps the changes; this names their moments by people's clocks, and says when they have
//! come. Clocks are looked at at each moment and each minute. Moments that passed while no
//! controller ran, or that a clock skipped, come at once when that is seen: each change once, by
//! its latest moment, in the order of these. A moment that has come does not come again when clocks
//! are put back.

use super::driver::Driver;
use super::error::Problem;
use super::settings::each_once;
use std::collections::BTreeSet;
use tracing::{info, warn};
use tutti_core::{DueChange, Event, Moment, TimedEntry, settings_after};
use tutti_node::calendar::local_moment;
use tutti_node::platform::time::wall_ms;
use tutti_node::timed::{Occurrence, latest_moment, next_moment};
use tutti_types::limits::{TIMED_LIST_BYTES_MAX, TIMED_MAX};
use tutti_types::{
    ClassName, ClusterTime, JobId, NamedJobs, NamedNodes, Nanos, NodeSetName, Overrides, QueueName,
    TimedChange, When,
};
use tutti_wire::host_list::{HostItem, parse_host_list};
use tutti_wire::launch::cut;
use tutti_wire::limits::TIMED_COMING_MAX;
use tutti_wire::local::{Reply, Setting};
use tutti_wire::parameter::{override_param, override_rule};
use tutti_wire::report::{TimedMoment, TimedReport};
use tutti_wire::units::parse_duration;

/// What a moment by cluster time may be off before it is corrected.
const SLACK_MS: u64 = 1000;

/// What may stand behind a time.
const CHANGES: &str = "write params NAME=VALUE, nodes LIST out, nodes LIST in, or release JOBS";

/// A change, as it is to be.
struct Planned {
    when: When,
    change: TimedChange,
}

impl Driver {
    /// Answers with all changes, and what happens within so many seconds.
    pub(super) fn on_timed(&mut self, token: u64, ahead_s: Option<u64>) {
        let changes = self.core.timed().map(|(number, entry)| report(number, entry)).collect();
        let coming = ahead_s.map(|ahead_s| self.coming(ahead_s)).unwrap_or_default();
        self.reply(token, &Reply::Timed { changes, coming });
    }

    /// What happens within so many seconds, in order.
    fn coming(&self, ahead_s: u64) -> Vec<TimedMoment> {
        let until_ms = wall_ms().saturating_add(ahead_s.saturating_mul(1000));
        let mut coming: Vec<(Occurrence, u32, &TimedEntry)> = Vec::new();
        for (number, entry) in self.core.timed() {
            let mut after_ms = entry.next.map_or(u64::MAX, |next| next.unix_ms.saturating_sub(1));
            // More than what is shown of all is needed of none.
            for _ in 0..TIMED_COMING_MAX {
                let next = next_moment(entry.when, after_ms);
                let Some(next) = next.filter(|next| next.unix_ms <= until_ms) else { break };
                after_ms = next.unix_ms;
                coming.push((next, number, entry));
            }
        }
        coming.sort_by_key(|&(at, number, _)| (at, number));
        coming.truncate(TIMED_COMING_MAX);
        let moment = |(at, number, entry): (Occurrence, u32, &TimedEntry)| TimedMoment {
            unix_ms: at.unix_ms,
            at: local_moment(at.unix_ms),
            number,
            change: entry.change.to_string(),
        };
        coming.into_iter().map(moment).collect()
    }

    /// Sets changes, from the command line or a file; what was changed, or would be. With a first
    /// setting `new`, there are to be none but these.
    pub(super) fn configure_timed(
        &mut self,
        uid: u32,
        settings: &[Setting],
        dry_run: bool,
    ) -> Result<Vec<String>, Problem> {
        self.admin(uid)?;
        let mut gone: BTreeSet<u32> = BTreeSet::new();
        let mut planned: Vec<Planned> = Vec::new();
        let mut seen = BTreeSet::new();
        for setting in settings {
            let at_line = |reason: String| match setting.line {
                0 => reason,
                line => format!("{line}: {reason}"),
            };
            match (&*setting.name, &*setting.value) {
                ("", "new") => gone.extend(self.core.timed().map(|(number, _)| number)),
                (number, "remove") => {
                    gone.insert(self.timed_number(number).map_err(at_line)?);
                }
                (when, change) => {
                    let when: When = when.parse().map_err(|error| at_line(format!("{error}")))?;
                    let change = self.timed_change(change).map_err(at_line)?;
                    if !seen.insert(format!("{when} {change}")) {
                        let twice = format!("{when} {change} is set twice; write it once");
                        return Err(at_line(twice).into());
                    }
                    let is_past = next_moment(when, wall_ms()).is_none();
                    let stays = self.core.timed().find(|(number, entry)| {
                        gone.contains(number) && entry.when == when && entry.change == change
                    });
                    match stays.map(|(number, _)| number) {
                        Some(number) => drop(gone.remove(&number)),
                        // A file keeps what has happened.
                        None if is_past && setting.line > 0 => {}
                        None if is_past => {
                            return Err(at_line(format!("{when} has passed")).into());
                        }
                        None => {
                            let is_it =
                                |entry: &TimedEntry| entry.when == when && entry.change == change;
                            let mut known = self.core.timed().filter(|(_, entry)| is_it(entry));
                            if let (0, Some((number, _))) = (setting.line, known.next()) {
                                return Err(format!("change {number} is the same").into());
                            }
                            planned.push(Planned { when, change });
                        }
                    }
                }
            }
        }
        let known = self.core.timed().count() - gone.len();
        if known + planned.len() > TIMED_MAX {
            let reason = format!("there can be {TIMED_MAX} changes; remove one first");
            return Err(reason.into());
        }
        Ok(self.apply_timed(gone, planned, dry_run))
    }

    fn apply_timed(
        &mut self,
        gone: BTreeSet<u32>,
        planned: Vec<Planned>,
        dry_run: bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for number in gone {
            lines.push(format!("change {number} is removed"));
            if !dry_run {
                self.apply(&Event::SetTimed { number, entry: None });
            }
        }
        let mut number = self.core.timed_made();
        for Planned { when, change } in planned {
            number += 1;
            lines.push(format!("change {number} is new: {when} {change}"));
            if !dry_run {
                let next = next_moment(when, wall_ms()).map(|it| self.moment_of(it.unix_ms));
                self.apply(&Event::SetTimed { number, entry: Some((when, change, next)) });
            }
        }
        if !dry_run {
            self.watch_calendar();
        }
        lines
    }

    fn timed_number(&self, text: &str) -> Result<u32, String> {
        let number = text.parse().ok();
        let known = number.filter(|number| self.core.timed().any(|(it, _)| it == *number));
        known.ok_or_else(|| {
            format!("there is no change {}; `tutti at` shows all", cut(text.into(), 40))
        })
    }

    /// A change from the words behind its time.
    fn timed_change(&self, text: &str) -> Result<TimedChange, String> {
        if text.len() > TIMED_LIST_BYTES_MAX {
            return Err(format!("a change has at most {TIMED_LIST_BYTES_MAX} bytes"));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["params", ref values @ ..] if !values.is_empty() => self.timed_set(values),
            ["nodes", list, "out", ref rest @ ..] => {
                let ahead = match rest {
                    [] => None,
                    [one] => Some(ahead_of(one)?),
                    _ => return Err(CHANGES.into()),
                };
                Ok(TimedChange::Out { nodes: self.timed_nodes(list)?, ahead })
            }
            ["nodes", list, "in"] => Ok(TimedChange::In { nodes: self.timed_nodes(list)? }),
            ["release", list] => self.timed_release(list),
            _ => Err(format!("{:?} is no change; {CHANGES}", cut(text.into(), 80))),
        }
    }

    fn timed_set(&self, values: &[&str]) -> Result<TimedChange, String> {
        each_once(values.iter().map(|word| word.split('=').next().unwrap_or_default()))?;
        let mut overrides = Overrides::default();
        for word in values {
            let (name, value) = word.split_once('=').ok_or_else(|| {
                format!("{word:?} sets nothing; write NAME=VALUE or CLASS.RULE=VALUE")
            })?;
            match name.rsplit_once('.') {
                None => override_param(&mut overrides, name, value)?,
                Some((class, rule)) => {
                    override_rule(&mut overrides, &ClassName::new(class), rule, value)?;
                }
            }
        }
        let settings = settings_after(self.core.settings(), &overrides)?;
        self.check_slots(&settings)?;
        self.check_clock(&settings)?;
        Ok(TimedChange::Set(overrides))
    }

    fn timed_nodes(&self, list: &str) -> Result<NamedNodes, String> {
        // Whether all of it is known.
        self.named(list).map_err(|error| error.to_string())?;
        let (mut nodes, mut sets) = (BTreeSet::new(), BTreeSet::new());
        for item in parse_host_list(list).map_err(|error| error.to_string())? {
            match item {
                HostItem::Set(name) => drop(sets.insert(NodeSetName::new(&name))),
                HostItem::Names(names) => {
                    for name in names {
                        nodes.extend(self.named(&name).map_err(|error| error.to_string())?);
                    }
                }
            }
        }
        Ok(NamedNodes { list: list.into(), nodes, sets })
    }

    fn timed_release(&self, list: &str) -> Result<TimedChange, String> {
        let mut named = NamedJobs::default();
        for item in list.split(',') {
            if let Some(name) = item.strip_prefix("queue:") {
                let name = QueueName::new(name);
                if !self.core.queues().contains_key(&name) {
                    return Err(format!("there is no queue {name}; `tutti queue` shows all"));
                }
                named.queues.insert(name);
            } else if let Some(name) = item.strip_prefix("class:") {
                let name = ClassName::new(name);
                if !self.core.settings().classes.contains_key(&name) {
                    return Err(format!("there is no class {name}; `tutti params` shows all"));
                }
                named.classes.insert(name);
            } else {
                let job = item.parse().map(JobId).map_err(|_| {
                    format!("{item:?} is no job; write numbers, queue:NAME or class:NAME")
                })?;
                let is_known = self.jobs.contains_key(&job) || self.core.array(job).is_some();
                if !is_known {
                    return Err(format!("there is no job {job}; `tutti ps` shows all"));
                }
                named.jobs.insert(job);
            }
        }
        Ok(TimedChange::Release(named))
    }

    fn moment_of(&self, unix_ms: u64) -> Moment {
        let ahead = unix_ms.saturating_sub(wall_ms());
        Moment { at: self.now() + Nanos::from_millis(ahead), unix_ms }
    }

    /// Has changes happen whose moments have come, and corrects the others' by cluster time. When
    /// the next one comes; never, if none does.
    pub(super) fn watch_timed(&mut self) -> ClusterTime {
        let wall_ms = wall_ms();
        let mut due: Vec<(Occurrence, u32, When)> = Vec::new();
        for (number, entry) in self.core.timed() {
            let Some(next) = entry.next.filter(|next| next.unix_ms <= wall_ms) else { continue };
            let latest = latest_moment(entry.when, next.unix_ms, wall_ms);
            // Another time zone has other moments: the one that was named counts.
            let shown = || next_moment(entry.when, 0).map(|it| it.shown);
            let named = || Some(Occurrence { unix_ms: next.unix_ms, shown: shown()? });
            due.extend(latest.or_else(named).map(|at| (at, number, entry.when)));
        }
        due.sort_unstable_by_key(|&(at, number, _)| (at, number));
        if !due.is_empty() {
            self.do_timed(&due);
        }
        let wrong: Vec<(u32, Moment)> = self
            .core
            .timed()
            .filter_map(|(number, entry)| {
                let next = entry.next?;
                let right = self.moment_of(next.unix_ms);
                let off = right.at.0.abs_diff(next.at.0);
                (off > Nanos::from_millis(SLACK_MS).0).then_some((number, right))
            })
            .collect();
        for (number, next) in wrong {
            self.apply(&Event::SetTimedMoment { number, next: Some(next) });
        }
        let nexts = self.core.timed().filter_map(|(_, entry)| entry.next);
        let next_ms = nexts.map(|next| next.unix_ms).min();
        next_ms.map_or(ClusterTime::NEVER, |unix_ms| self.moment_of(unix_ms).at)
    }

    fn do_timed(&mut self, due: &[(Occurrence, u32, When)]) {
        let changes = due.iter().map(|&(at, number, when)| {
            let after_ms = at.unix_ms.max(wall_ms());
            let next = next_moment(when, after_ms).map(|it| self.moment_of(it.unix_ms));
            DueChange { number, unix_ms: at.unix_ms, next }
        });
        let event = Event::TimedDue { due: changes.collect() };
        for &(at, number, _) in due {
            let entry = self.core.timed().find(|(it, _)| *it == number);
            if let Some((_, entry)) = entry {
                let at = local_moment(at.unix_ms);
                info!("change {number} of {at} happens: {}", entry.change);
            }
        }
        self.apply(&event);
        for &(at, number, _) in due {
            let entry = self.core.timed().find(|(it, _)| *it == number);
            let last = entry.and_then(|(_, entry)| entry.last.as_ref());
            let last = last.filter(|last| last.unix_ms == at.unix_ms);
            if let Some(reason) = last.and_then(|last| last.failed.as_ref()) {
                warn!("change {number} of {} failed: {reason}", local_moment(at.unix_ms));
            }
        }
        self.due.history_due = self.now();
    }
}

fn ahead_of(word: &str) -> Result<Nanos, String> {
    let length = word.strip_prefix("ahead=").ok_or_else(|| {
        format!("{word:?} is nothing that `out` can have; write ahead=TIME, such as ahead=2d")
    })?;
    parse_duration(length).map_err(|error| format!("ahead: {error}"))
}

fn report(number: u32, entry: &TimedEntry) -> TimedReport {
    let last = entry.last.as_ref();
    TimedReport {
        number,
        when: entry.when.to_string(),
        change: entry.change.to_string(),
        next_ms: entry.next.map(|next| next.unix_ms),
        next: entry.next.map(|next| local_moment(next.unix_ms)),
        last_ms: last.map(|last| last.unix_ms),
        last: last.map(|last| local_moment(last.unix_ms)),
        failed: last.and_then(|last| last.failed.clone()),
    }
}
