//! Changes at times (General Resource Manager paper, section 4: the time-based controller).
//!
//! An administrator names a time of the week or of a day, and what changes then
//! ([`TimedChange`]). Only the driver knows people's clocks: it names the next moment of each
//! change, and says when moments have come ([`Event::TimedDue`]), all of them in one event and in
//! their order.
//!
//! A node that is to go out of service takes no job that may last longer than until that moment.
//! How long a job may last is its time limit and its grace; one without a limit may last for ever.
//! For such a job the node counts as one that it must not be on ([`Leaving`]). Jobs with turns may
//! last longer than their limits say: they run on, as on a node that was drained by hand.
//!
//! At the moment the node is drained, and it is remembered that a change did it. Only such nodes
//! come back by a change: one that an administrator drained stays so.

use crate::action::Action;
use crate::apply::Core;
use crate::event::Event;
use crate::orders::HeldBy;
use crate::policy::{Decision, Lack, Machine, WaitReason};
use crate::queue::holds;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::ids::{JobId, NodeId, NodeSetName};
use tutti_types::job::JobSpec;
use tutti_types::limits::TIMED_MAX;
use tutti_types::settings::{Overrides, Settings};
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::timed::{NamedJobs, NamedNodes, TimedChange, When};

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moment {
    /// By cluster time.
    pub at: ClusterTime,
    /// By people's clocks, in milliseconds since 1970. The core only keeps it.
    pub unix_ms: u64,
}

/// A change, and its times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimedEntry {
    /// When it happens.
    pub when: When,
    /// What happens.
    pub change: TimedChange,
    /// Its next moment; `None`: there is no other.
    pub next: Option<Moment>,
    /// Its latest moment.
    pub last: Option<LastTime>,
}

/// What became of a change at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastTime {
    /// The moment, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Why nothing was changed; `None`: it was.
    pub failed: Option<String>,
}

/// A change whose moment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueChange {
    /// Its number.
    pub number: u32,
    /// The moment, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The one after it; `None`: there is none.
    pub next: Option<Moment>,
}

/// When a node goes out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Leave {
    /// From when on it is looked at how long jobs last.
    from: ClusterTime,
    moment: Moment,
}

/// All changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Timed {
    entries: BTreeMap<u32, TimedEntry>,
    /// The highest number that one has had.
    made: u32,
    /// The nodes that are to go out of service.
    leaving: BTreeMap<NodeId, Vec<Leave>>,
    /// The nodes that a change has taken out of service.
    out: BTreeSet<NodeId>,
}

/// The nodes that are to go out of service, seen from a moment.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    now: ClusterTime,
    nodes: Option<&'a BTreeMap<NodeId, Vec<Leave>>>,
}

impl Leaving<'_> {
    /// Seen from a later moment.
    const fn from(self, at: ClusterTime) -> Self {
        Self { now: at, ..self }
    }

    /// When a node goes out of service before a job that starts now is gone, if it does.
    pub(crate) fn before_end(self, node: NodeId, spec: &JobSpec) -> Option<Moment> {
        self.nodes?.get(&node)?.iter().find_map(|leave| self.is_too_soon(leave, spec))
    }

    fn is_too_soon(self, leave: &Leave, spec: &JobSpec) -> Option<Moment> {
        let gone = match holds(spec) {
            u64::MAX => ClusterTime::NEVER,
            holds => self.now + Nanos(holds),
        };
        (self.now >= leave.from && gone > leave.moment.at).then_some(leave.moment)
    }

    /// The nodes on which a job that starts now must not be.
    pub(crate) fn too_soon(self, spec: &JobSpec) -> BTreeSet<NodeId> {
        let nodes = self.nodes.into_iter().flatten();
        let is_too_soon = |leave: &Leave| self.is_too_soon(leave, spec).is_some();
        nodes.filter(|(_, leaves)| leaves.iter().any(is_too_soon)).map(|(&node, _)| node).collect()
    }

    /// Whether there are any that it could be on.
    pub(crate) fn concern(self, spec: &JobSpec) -> bool {
        self.nodes.is_some_and(|nodes| {
            nodes.iter().any(|(&node, leaves)| {
                spec.nodes.allows(node)
                    && leaves.iter().any(|leave| self.is_too_soon(leave, spec).is_some())
            })
        })
    }
}

impl Core {
    /// All changes at times, by number.
    pub fn timed(&self) -> impl Iterator<Item = (u32, &TimedEntry)> {
        self.timed.entries.iter().map(|(&number, entry)| (number, entry))
    }

    /// The highest number that a change at a time has had.
    #[must_use]
    pub const fn timed_made(&self) -> u32 {
        self.timed.made
    }

    /// The nodes that go out of service, as of now.
    pub(crate) fn leaving(&self) -> Leaving<'_> {
        let nodes = Some(&self.timed.leaving).filter(|nodes| !nodes.is_empty());
        Leaving { now: self.now, nodes }
    }

    /// Whether no node that goes out of service is in the way of a job that starts then.
    pub(crate) fn stays_until_gone(&self, spec: &JobSpec, starts: ClusterTime) -> bool {
        !self.leaving().from(starts.max(self.now)).concern(spec)
    }

    /// Something happens to changes at times.
    pub(crate) fn on_timed_event(
        &mut self,
        now: ClusterTime,
        event: &Event,
        actions: &mut Vec<Action>,
    ) {
        if let Event::SetTimed { number, entry } = event {
            self.on_set_timed(*number, entry.as_ref());
        } else if let Event::SetTimedMoment { number, next } = event {
            self.on_set_timed_moment(*number, *next);
        } else if let Event::TimedDue { due } = event {
            self.on_timed_due(now, due, actions);
        }
    }

    /// Keeps a change, or forgets it.
    fn on_set_timed(&mut self, number: u32, entry: Option<&(When, TimedChange, Option<Moment>)>) {
        match entry {
            None => drop(self.timed.entries.remove(&number)),
            Some((when, change, next)) => {
                let is_new = !self.timed.entries.contains_key(&number);
                if is_new && self.timed.entries.len() >= TIMED_MAX {
                    return;
                }
                let (change, last) = (change.clone(), None);
                let entry = TimedEntry { when: *when, change, next: *next, last };
                self.timed.entries.insert(number, entry);
                self.timed.made = self.timed.made.max(number);
            }
        }
        self.after_timed();
    }

    /// The next moment of a change is another one by cluster time, since people's clocks were set.
    fn on_set_timed_moment(&mut self, number: u32, next: Option<Moment>) {
        if let Some(entry) = self.timed.entries.get_mut(&number) {
            entry.next = next;
            self.after_timed();
        }
    }

    /// Moments have come.
    fn on_timed_due(&mut self, now: ClusterTime, due: &[DueChange], actions: &mut Vec<Action>) {
        for &DueChange { number, unix_ms, next } in due {
            let Some(entry) = self.timed.entries.get_mut(&number) else { continue };
            entry.next = next;
            let change = entry.change.clone();
            let failed = self.change_now(now, (number, &change), actions).err();
            if next.is_none() && failed.is_none() {
                self.timed.entries.remove(&number);
            } else if let Some(entry) = self.timed.entries.get_mut(&number) {
                entry.last = Some(LastTime { unix_ms, failed });
            }
        }
        self.after_timed();
    }

    fn change_now(
        &mut self,
        now: ClusterTime,
        (number, change): (u32, &TimedChange),
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        match change {
            TimedChange::Set(overrides) => {
                self.settings = settings_after(&self.settings, overrides)?;
                self.take_settings(now);
            }
            TimedChange::Out { nodes, .. } => {
                for node in self.nodes_named(nodes) {
                    let is_in = self.nodes.get(node).is_some_and(|it| it.drained.is_none());
                    if is_in {
                        let reason = format!("out of service by `tutti at`, change {number}");
                        self.on_set_drained(now, node, Some(&reason));
                        self.timed.out.insert(node);
                    }
                }
            }
            TimedChange::In { nodes } => {
                for node in self.nodes_named(nodes) {
                    if self.timed.out.remove(&node) {
                        self.on_set_drained(now, node, None);
                    }
                }
            }
            TimedChange::Release(named) => {
                for job in self.held_of(named) {
                    self.on_release_order(now, (job, HeldBy::Administrator), actions);
                }
            }
        }
        Ok(())
    }

    /// An administrator drains a node, or has it take jobs again: no change brings it back.
    pub(crate) fn on_drained(&mut self, now: ClusterTime, node: NodeId, reason: Option<&str>) {
        self.timed.out.remove(&node);
        self.on_set_drained(now, node, reason);
    }

    /// A node is none any more.
    pub(crate) fn note_removed(&mut self, node: NodeId) {
        self.timed.out.remove(&node);
        self.find_leaving();
    }

    /// A set of nodes has others than before.
    pub(crate) fn on_set_node_set(&mut self, name: &NodeSetName, nodes: &BTreeSet<NodeId>) {
        self.nodes.set_named(name, nodes);
        if self.timed.entries.values().any(|entry| matches!(entry.change, TimedChange::Out { .. }))
        {
            self.after_timed();
        }
    }

    fn nodes_named(&self, named: &NamedNodes) -> BTreeSet<NodeId> {
        let sets = named.sets.iter().filter_map(|set| self.nodes.sets().get(set));
        sets.flatten().chain(&named.nodes).copied().collect()
    }

    /// The held jobs and arrays with held elements, of those that are named.
    fn held_of(&self, named: &NamedJobs) -> Vec<JobId> {
        let is_named = |job: JobId, spec: &JobSpec, queue| {
            named.jobs.contains(&job)
                || named.classes.contains(&spec.class)
                || Option::is_some_and(queue, |queue| named.queues.contains(queue))
        };
        let held = self.holds.keys().filter_map(|job| Some((*job, self.jobs.get(job)?)));
        let held = held.filter(|(job, it)| {
            let of_class = it.former.as_ref().is_some_and(|it| named.classes.contains(it));
            of_class || is_named(*job, &it.spec, self.queue_of(*job))
        });
        let arrays = self.arrays().filter(|it| {
            let is_held = !it.held.is_empty() || !it.held_by_administrator.is_empty();
            is_held && is_named(it.id, it.spec, it.queue)
        });
        held.map(|(job, _)| job).chain(arrays.map(|it| it.id)).collect()
    }

    /// What was promised, and which jobs find nodes, may be otherwise.
    fn after_timed(&mut self) {
        self.find_leaving();
        self.unpark();
        self.forget_promises();
        self.queue.disturbed = true;
    }

    /// With levels, a job waits for the block that was chosen for it. As time passes, nodes that go
    /// out of service are nothing for it any more; then another block may be chosen, with room.
    pub(crate) fn follow_leaving(&mut self, before: ClusterTime) {
        let may_differ = self.policy().has_levels && !self.timed.leaving.is_empty();
        if may_differ && before < self.now {
            self.queue.reconsider();
        }
    }

    /// When the next node is looked at that goes out of service, if that matters to jobs in line.
    pub(crate) fn next_leaving(&self) -> ClusterTime {
        if !self.policy().has_levels || self.queue.waiting.is_empty() {
            return ClusterTime::NEVER;
        }
        let leaves = self.timed.leaving.values().flatten().map(|leave| leave.from);
        leaves.filter(|&from| from > self.now).min().unwrap_or(ClusterTime::NEVER)
    }

    fn find_leaving(&mut self) {
        self.timed.leaving = self.leaving_by_entries();
    }

    fn leaving_by_entries(&self) -> BTreeMap<NodeId, Vec<Leave>> {
        let mut leaving: BTreeMap<NodeId, Vec<Leave>> = BTreeMap::new();
        for entry in self.timed.entries.values() {
            let (TimedChange::Out { nodes, ahead }, Some(moment)) = (&entry.change, entry.next)
            else {
                continue;
            };
            let from = ahead.map_or(ClusterTime(0), |ahead| moment.at - ahead);
            for node in self.nodes_named(nodes) {
                leaving.entry(node).or_default().push(Leave { from, moment });
            }
        }
        leaving
    }

    /// Why a job waits, where nodes that go out of service are what it lacks.
    pub(crate) fn or_leaving(&self, job: JobId, why: WaitReason) -> WaitReason {
        let Some(record) = self.jobs.get(&job).filter(|it| self.leaving().concern(&it.spec)) else {
            return why;
        };
        let (spec, machine) = (&record.spec, self.machine());
        let unbound = Machine { leaving: Leaving { nodes: None, ..machine.leaving }, ..machine };
        let is_why = match why.word() {
            "nodes" => (self.policy().placement)(unbound, spec, None) != Err(Lack::Nodes),
            "processors" => {
                matches!(self.policy().decide(unbound, spec), Some(Decision::Start { .. }))
            }
            _ => false,
        };
        let first = || {
            let nodes = machine.columns().filter(|&(node, _)| spec.nodes.allows(node));
            let moments = nodes.filter_map(|(node, _)| {
                let moment = machine.leaving.before_end(node, spec)?;
                Some((moment.at, node, moment.unix_ms))
            });
            moments.min()
        };
        match first().filter(|_| is_why) {
            Some((_, node, unix_ms)) => {
                WaitReason::Leaves { node, unix_ms, limited: spec.time_limit.is_some() }
            }
            None => why,
        }
    }

    /// What is wrong with the changes at times, if anything is.
    pub(crate) fn wrong_timed(&self) -> Option<String> {
        let leaving = self.leaving_by_entries();
        if leaving != self.timed.leaving {
            return Some(format!("{:?} leave, not {leaving:?}", self.timed.leaving));
        }
        let is_in = |node: &&NodeId| self.nodes.get(**node).is_none_or(|it| it.drained.is_none());
        let wrong = self.timed.out.iter().find(is_in);
        wrong.map(|node| format!("node {node} was taken out of service, and is in"))
    }
}

/// The settings with other standing values.
///
/// # Errors
/// If they can't be.
pub fn settings_after(settings: &Settings, overrides: &Overrides) -> Result<Settings, String> {
    let mut settings = settings.clone();
    for (name, &value) in &overrides.params {
        settings.params.set(name, value).map_err(|error| error.to_string())?;
    }
    settings.params.check().map_err(|error| error.to_string())?;
    for (class, rules) in &overrides.classes {
        let spec = settings.classes.get_mut(class);
        let spec = spec.ok_or_else(|| format!("there is no class {class}"))?;
        for (name, &value) in rules {
            spec.set(name, value).map_err(|error| format!("class {class}: {error}"))?;
        }
    }
    for class in overrides.classes.keys() {
        let checked = settings.classes.get(class).map(|spec| spec.check(class, &settings.classes));
        checked.unwrap_or(Ok(())).map_err(|error| format!("class {class}: {error}"))?;
    }
    settings.check().map_err(|error| error.to_string())?;
    Ok(settings)
}
