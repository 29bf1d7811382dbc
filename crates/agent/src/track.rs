//! The live genealogy of the jobs on this node.
//!
//! It is fed by the kernel's process events where this agent may have them. They are read in
//! batches, at most a hundred times a second, and taken in [`SETTLE_NS`] late: by then the keeper
//! has mostly said which process is the root of a new task, so that what that root did first is
//! known to be the task's. What is told of unknown processes while a keeper has tasks to start is
//! kept until it has said ([`pending_events`]). Where there are no events, `/proc` is read, once a
//! second and on request. Which process belongs to a task is for its cgroup to say in any case: its
//! list repairs what was missed. While there is no job, there is no subscription, and nothing wakes
//! up.

mod cgroup_escapes;
mod io;
mod pending_events;

use super::subtree_control::{Name, name};
use cgroup_escapes::Watch;
use io::{Bytes, Io};
use pending_events::Early;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use tracing::info;
use tutti_linux::cgroup::processes_of;
use tutti_linux::proc;
use tutti_linux::track::events::{Drained, boot_ns};
use tutti_linux::track::{
    self, Forest, IoReports, Life, Member, Origin, ProcessEvent, ProcessEvents, Seen, Tally,
};
use tutti_node::link::{Interest, Poller};
use tutti_node::platform::time as clock;
use tutti_types::{Orphans, Rank, StepKey};
use tutti_wire::launch::Usage;

/// Names a task on this node.
pub(super) type TaskId = (StepKey, Rank);

/// How old an event is when it is taken in, and how often events are read.
const SETTLE_NS: u64 = 10_000_000;

/// How often `/proc` is read where there are no events. Longer where that takes long: a hundred
/// times as long as it took, so that it costs a hundredth of a processor.
const SCAN_NS: u64 = 1_000_000_000;

/// How long a subscription is kept when the last job has gone.
const KEPT_NS: u64 = 1_000_000_000;

/// What was told meanwhile is thrown away; more than so much takes longer than a new subscription.
const UNWANTED_MAX: usize = 1_000;

/// Room for events between two reads: those of 2,000,000 births and ends a second.
const BUFFER_BYTES: i32 = 16 << 20;

/// The same for reports of I/O, which are longer.
const REPORTS_BUFFER_BYTES: i32 = 32 << 20;

/// Processes of ended tasks of a job of which it is remembered when they lived.
const PAST_MAX: usize = 1 << 17;

/// Events that are read at once.
const BATCH_MAX: usize = 100_000;

/// Where a task's processes are found.
#[derive(Clone)]
pub(super) enum Place {
    /// In its cgroup.
    Group(PathBuf),
    /// Below its minder, which is at the top of the forest and not shown.
    Minder(Name),
    /// Wherever these adopted processes, and those that are known to descend from them, have
    /// children.
    Trees(Vec<Name>),
}

/// When a task began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Just now: all that it does is told.
    Now,
    /// Under an earlier agent.
    Before,
    /// Before it was a task, with so many processes.
    Adopted(usize),
}

impl Place {
    /// The processes there as they are now, given those that were known. What is gone has none.
    fn seen(&self, known: &[Member]) -> Vec<Seen> {
        match self {
            Self::Group(path) => seen_where_listed(|| processes_of(path).unwrap_or_default()),
            Self::Minder(minder) => seen_below(&seen_named(&[*minder])),
            Self::Trees(roots) => {
                let mut tops = seen_named(roots);
                let numbers: Vec<i32> = known.iter().map(|member| member.pid).collect();
                let known: HashMap<i32, &Member> = known.iter().map(|it| (it.pid, it)).collect();
                let is_known = |it: &Seen| known.get(&it.pid).is_some_and(|member| member.is(it));
                tops.extend(track::seen(&numbers).into_iter().filter(is_known));
                seen_below(&tops)
            }
        }
    }
}

/// The list of a task's processes, read anew each time, by any thread.
pub(super) struct List {
    place: Place,
    known: Vec<Member>,
}

impl List {
    /// Their numbers, in no order, without that of a minder.
    pub(super) fn read(&self) -> Vec<i32> {
        let numbers = |seen: Vec<Seen>| seen.into_iter().map(|it| it.pid);
        match &self.place {
            Place::Group(path) => processes_of(path).unwrap_or_default(),
            Place::Trees(_) => numbers(self.place.seen(&self.known)).collect(),
            Place::Minder((minder, _)) => {
                numbers(self.place.seen(&[])).filter(|pid| pid != minder).collect()
            }
        }
    }
}

/// What `/proc` says of those of the named processes that have not ended.
fn seen_named(names: &[Name]) -> Vec<Seen> {
    let look = |&(pid, start_time): &Name| {
        let stat = proc::ProcessStat::read(pid).ok().filter(|it| it.start_time == start_time)?;
        let seen = Seen { pid, parent: stat.ppid, born_ns: stat.born_ns() };
        (!stat.has_ended()).then_some(seen)
    };
    names.iter().filter_map(look).collect()
}

/// What `/proc` says of processes and all that are below them. A process that got the number of one
/// of them meanwhile was born after they were listed.
fn seen_below(tops: &[Seen]) -> Vec<Seen> {
    let mut listed = BTreeSet::new();
    for top in tops {
        let below = proc::descendants(top.pid).unwrap_or_default();
        if track::seen(&[top.pid]).first().is_some_and(|now| now.born_ns == top.born_ns) {
            listed.insert(top.pid);
            listed.extend(below);
        }
    }
    let listed_ns = boot_ns();
    let mut seen = track::seen(&listed.into_iter().collect::<Vec<i32>>());
    seen.retain(|it| it.born_ns <= listed_ns);
    seen
}

enum Source {
    /// No job is here.
    None,
    Events(Subscription),
    Scans,
}

/// What the kernel tells.
struct Subscription {
    events: ProcessEvents,
    /// Only beside events, without which it is unknown to which task a process belongs.
    reports: Option<IoReports>,
}

impl Subscription {
    fn new() -> tutti_linux::Result<Self> {
        let events = ProcessEvents::subscribe(BUFFER_BYTES)?;
        Ok(Self { events, reports: IoReports::subscribe(REPORTS_BUFFER_BYTES).ok() })
    }

    /// Throws away what was told while it was not needed; `false` if that is too much.
    fn skip(&mut self) -> bool {
        let (mut events, mut reports) = (Vec::new(), Vec::new());
        let drained = self.events.drain(UNWANTED_MAX, &mut events);
        let unread = self.reports.as_mut().map(|it| it.drain(UNWANTED_MAX, &mut reports));
        [Some(drained), unread].into_iter().flatten().all(|it| it == Drained::All)
            && events.len().max(reports.len()) < UNWANTED_MAX
    }
}

/// How many processes there were, and what they have read and written.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    processes: u64,
    /// The most that a task had at once.
    peak: u64,
    /// Whether none was missed.
    whole: bool,
    io: Bytes,
    /// Whether that is all of it.
    io_whole: bool,
}

impl Counted {
    /// Takes the place of what `usage` says of processes, and of I/O unless a controller counts it.
    pub(super) fn put_into(self, usage: &mut Usage) {
        if !usage.io_whole {
            usage.read_bytes = usage.read_bytes.max(self.io.read);
            usage.written_bytes = usage.written_bytes.max(self.io.written);
            usage.io_whole = self.io_whole;
        }
        usage.processes = Some(self.processes);
        usage.processes_peak = Some(self.peak);
        usage.processes_whole = self.whole;
    }

    /// Adds to what `usage` says of processes and I/O.
    pub(super) fn add_to(self, usage: &mut Usage) {
        let mut counted = Usage { io_whole: false, ..Usage::default() };
        self.put_into(&mut counted);
        usage.add(&counted);
    }
}

/// Follows the processes of all tasks.
pub(super) struct Tracker {
    forest: Forest<TaskId>,
    places: BTreeMap<TaskId, Place>,
    jobs: BTreeSet<StepKey>,
    /// When the processes of their ended tasks lived.
    past: BTreeMap<StepKey, BTreeMap<i32, Life>>,
    /// Those of which not every process was told.
    missed: BTreeSet<StepKey>,
    source: Source,
    /// A subscription that no job needs now, and until when it is kept.
    kept: Option<(Subscription, u64)>,
    /// Why there are no events, if they were asked for in vain.
    refusal: Option<String>,
    /// Told, but too young to be taken in.
    late: VecDeque<ProcessEvent>,
    /// Told of processes that may turn out to be a task's.
    early: Early,
    /// What was reported of I/O.
    io: Io,
    /// Those of which not every report was taken in.
    io_missed: BTreeSet<StepKey>,
    /// When to read again; with events, nothing is read before that.
    due_ns: Option<u64>,
    /// For processes that leave their groups.
    watch: Watch,
}

impl Tracker {
    pub(super) fn new() -> Self {
        Self {
            forest: Forest::default(),
            places: BTreeMap::new(),
            jobs: BTreeSet::new(),
            past: BTreeMap::new(),
            missed: BTreeSet::new(),
            source: Source::None,
            kept: None,
            refusal: None,
            late: VecDeque::new(),
            early: Early::default(),
            io: Io::default(),
            io_missed: BTreeSet::new(),
            due_ns: None,
            watch: Watch::default(),
        }
    }

    /// `yes` if the kernel tells of births and ends, or why not.
    pub(super) fn process_events(&self) -> String {
        match (&self.refusal, &self.source) {
            (Some(refusal), _) => format!("no: {refusal}"),
            (None, Source::Events(_)) => "yes".into(),
            (None, _) => match ProcessEvents::subscribe(BUFFER_BYTES) {
                Ok(_) => "yes".into(),
                Err(error) => format!("no: {}", words(&error)),
            },
        }
    }

    /// Whether the kernel tells of each process what it has read and written.
    pub(super) fn counts_io(&self) -> bool {
        match (&self.refusal, &self.source) {
            (Some(_), _) | (None, Source::Scans) => false,
            (None, Source::Events(subscription)) => subscription.reports.is_some(),
            (None, Source::None) => Subscription::new().is_ok_and(|it| it.reports.is_some()),
        }
    }

    /// The process to which children of ended processes go from now on.
    pub(super) const fn set_orphans(&mut self, orphans: Orphans) {
        self.forest.set_orphans(match orphans {
            Orphans::Ancestor => track::Orphans::Ancestor,
            Orphans::Task => track::Orphans::Task,
        });
    }

    /// A job is here from now on; called before its first process exists, with the tasks that the
    /// keeper is about to start.
    pub(super) fn begin(
        &mut self,
        job: StepKey,
        tasks: impl IntoIterator<Item = Rank>,
        poller: &Poller,
        token: u64,
    ) {
        if tutti_node::platform::processes::are_simulated() {
            // No kernel tells of them, and they have no children.
            return;
        }
        self.jobs.insert(job);
        self.early.expect(tasks.into_iter().map(|rank| (job, rank)));
        if !matches!(self.source, Source::None) {
            return;
        }
        self.source = match self.refusal {
            Some(_) => Source::Scans,
            None => match self.subscription() {
                Ok(subscription) => {
                    let _ = poller.add(&subscription.events, token, Interest::READ);
                    Source::Events(subscription)
                }
                Err(error) => {
                    self.refusal = Some(words(&error));
                    Source::Scans
                }
            },
        };
    }

    /// The one that was kept, if it is of use, or a new one.
    fn subscription(&mut self) -> tutti_linux::Result<Subscription> {
        if let Some((mut subscription, _)) = self.kept.take()
            && subscription.skip()
        {
            return Ok(subscription);
        }
        Subscription::new()
    }

    /// A task of the job has begun, with this root or minder.
    pub(super) fn started(&mut self, task: TaskId, root: i32, place: Place, begun: Begun) {
        if !self.jobs.contains(&task.0) || self.places.contains_key(&task) {
            return;
        }
        self.forest.add_task(
            task,
            match begun {
                Begun::Now | Begun::Before | Begun::Adopted(1) => Origin::OneRoot,
                Begun::Adopted(_) => Origin::Several,
            },
        );
        let is_told = begun == Begun::Now;
        match begun {
            Begun::Now => {}
            Begun::Before => {
                self.missed.insert(task.0);
            }
            // What they did before is reported with the rest.
            Begun::Adopted(_) => {
                self.io_missed.insert(task.0);
            }
        }
        if is_told {
            // One that has ended already can have made children: their births will be told.
            let born_ns = self.birth_of(root);
            self.forest.began(task, root, born_ns);
            self.take_in_early(task, born_ns);
        } else {
            self.early.has_begun(task);
        }
        self.watch.over(&place);
        self.places.insert(task, place);
        match self.source {
            Source::Events(_) if is_told => {}
            Source::Events(_) => self.scan(task),
            Source::Scans => self.due_ns = Some(clock::monotonic_ns()),
            Source::None => {}
        }
    }

    /// When a process was born that exists since a moment ago. The kernel told of it before the
    /// keeper knew; where it does not tell, `/proc` has it while it lives.
    fn birth_of(&mut self, pid: i32) -> u64 {
        self.told_birth(pid)
            .or_else(|| {
                self.read();
                self.told_birth(pid)
            })
            .or_else(|| track::seen(&[pid]).first().map(|seen| seen.born_ns))
            .unwrap_or(0)
    }

    fn told_birth(&self, pid: i32) -> Option<u64> {
        self.late.iter().rev().find_map(|event| match *event {
            ProcessEvent::Forked { child, at_ns, .. } if child == pid => Some(at_ns),
            _ => None,
        })
    }

    /// Forgets a task; says how many processes it had, and the most at once: as many as were told
    /// of, or seen where the kernel does not tell.
    pub(super) fn end_task(&mut self, task: TaskId) -> Counted {
        self.take_in_all();
        self.early.has_begun(task);
        let place = self.places.remove(&task);
        let lives = self.forest.lives(task, boot_ns());
        let io = self.io.end(task, lives.keys().copied());
        let past = self.past.entry(task.0).or_default();
        past.extend(lives.into_iter().take(PAST_MAX.saturating_sub(past.len())));
        let Tally { created, peak, .. } = self.forest.remove_task(task);
        let minder = u64::from(matches!(place, Some(Place::Minder(_))));
        Counted {
            processes: created.saturating_sub(minder),
            peak: peak.saturating_sub(minder),
            whole: self.counts_all(task.0),
            io,
            io_whole: self.counts_all_io(task.0),
        }
    }

    fn counts_all_io(&self, job: StepKey) -> bool {
        let is_reported = |subscription: &Subscription| subscription.reports.is_some();
        matches!(&self.source, Source::Events(subscription) if is_reported(subscription))
            && self.counts_all(job)
            && !self.io_missed.contains(&job)
    }

    fn counts_all(&self, job: StepKey) -> bool {
        matches!(self.source, Source::Events(_)) && !self.missed.contains(&job)
    }

    /// Forgets a job; says which processes its tasks had that have ended, and when they lived.
    pub(super) fn end(&mut self, job: StepKey, poller: &Poller) -> BTreeMap<i32, Life> {
        for rank in self.ranks(job) {
            self.places.remove(&(job, rank));
            self.forest.remove_task((job, rank));
            self.io.end((job, rank), std::iter::empty());
        }
        self.jobs.remove(&job);
        self.missed.remove(&job);
        self.io_missed.remove(&job);
        self.early.forget(job);
        self.forget_others_io();
        if self.jobs.is_empty() {
            if let Source::Events(told) = std::mem::replace(&mut self.source, Source::None) {
                poller.remove(&told.events);
                self.kept = Some((told, clock::monotonic_ns() + KEPT_NS));
            }
            self.late.clear();
            self.io.clear();
            self.due_ns = None;
        }
        self.past.remove(&job).unwrap_or_default()
    }

    /// Descendants of adopted processes that the kernel has given to others, and that were not told
    /// of before: where there is no cgroup, each is a tree of its own to stop.
    pub(super) fn new_strays(&mut self) -> Vec<(TaskId, Name)> {
        let mut found = Vec::new();
        for (&task, place) in &mut self.places {
            let Place::Trees(trees) = place else { continue };
            for member in self.forest.members(task) {
                let parent = proc::ProcessStat::read(member.pid).map(|stat| stat.ppid);
                let is_stray = parent.is_ok_and(|it| self.forest.task_of(it) != Some(task));
                if let Some(name) = name(&member).filter(|_| is_stray)
                    && !trees.contains(&name)
                {
                    trees.push(name);
                    found.push((task, name));
                }
            }
        }
        found
    }

    /// How the processes of a task are listed, as it is known now.
    pub(super) fn list_of(&self, task: TaskId) -> Option<List> {
        let place = self.places.get(&task)?;
        let known = match place {
            Place::Trees(_) => self.forest.members(task),
            Place::Group(_) | Place::Minder(_) => Vec::new(),
        };
        Some(List { place: place.clone(), known })
    }

    fn ranks(&self, job: StepKey) -> Vec<Rank> {
        self.places.keys().filter(|(of, _)| *of == job).map(|&(_, rank)| rank).collect()
    }

    /// When [`Tracker::on_time`] wants to be called.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let kept = self.kept.as_ref().map(|&(_, until_ns)| until_ns);
        self.due_ns.into_iter().chain(kept).chain(self.watch.due_ns()).min()
    }

    /// There is something to read: it will be, together with what comes soon.
    pub(super) fn on_ready(&mut self, poller: &Poller, token: u64) {
        let Source::Events(Subscription { events, .. }) = &self.source else { return };
        match self.due_ns {
            None => {
                self.due_ns = Some(clock::monotonic_ns() + SETTLE_NS);
                let _ = poller.modify(events, token, Interest::NONE);
            }
            // The buffer ran over: that is told whether or not one wants to read.
            Some(_) => self.read(),
        }
    }

    /// Reads what has come, if it is time to; says whether it was.
    pub(super) fn on_time(&mut self, now_ns: u64, poller: &Poller, token: u64) -> bool {
        self.kept.take_if(|&mut (_, until_ns)| until_ns <= now_ns);
        self.watch_runaways(now_ns);
        if self.due_ns.is_none_or(|due| due > now_ns) {
            return false;
        }
        self.due_ns = None;
        match &self.source {
            Source::None => {}
            Source::Scans => {
                self.scan_all();
                let took_ns = clock::monotonic_ns().saturating_sub(now_ns);
                self.due_ns = Some(now_ns + SCAN_NS.max(took_ns * 100));
            }
            Source::Events(_) => {
                self.read();
                self.take_in(boot_ns().saturating_sub(SETTLE_NS));
                if !self.late.is_empty() {
                    self.due_ns = Some(now_ns + SETTLE_NS);
                } else if let Source::Events(Subscription { events, .. }) = &self.source {
                    let _ = poller.modify(events, token, Interest::READ);
                }
            }
        }
        true
    }

    fn read(&mut self) {
        let Source::Events(Subscription { events, reports }) = &mut self.source else { return };
        let mut told = Vec::new();
        let drained = events.drain(BATCH_MAX, &mut told);
        self.late.extend(told);
        // After the events: what was reported before one of them is here with it.
        let mut reported = Vec::new();
        let is_whole =
            reports.as_mut().is_none_or(|it| it.drain(BATCH_MAX, &mut reported) == Drained::All);
        if !self.io.take_in(&reported) || !is_whole {
            self.io_missed.extend(&self.jobs);
        }
        if drained == Drained::Lost {
            info!("process events were lost; all processes are listed anew");
            self.missed.extend(&self.jobs);
            self.take_in(u64::MAX);
            self.scan_all();
        }
    }

    /// Takes in what happened up to a moment, nanoseconds since boot.
    fn take_in(&mut self, until_ns: u64) {
        while self.late.front().is_some_and(|event| event.at_ns() <= until_ns)
            && let Some(event) = self.late.pop_front()
        {
            if self.forest.task_of(subject(event)).is_none() {
                if !self.early.keep(event) {
                    self.missed.extend(self.early.expected());
                }
                if let ProcessEvent::Exited(exit) = event
                    && !self.early.is_kept()
                {
                    self.io.ended(exit.pid, None);
                }
            }
            self.apply(event);
        }
    }

    /// A task has a root now: what was told of it before is taken in.
    fn take_in_early(&mut self, task: TaskId, since_ns: u64) {
        for event in self.early.begin(task) {
            let is_known = self.forest.task_of(subject(event)).is_some();
            if is_known && event.at_ns() >= since_ns {
                self.apply(event);
            } else {
                self.early.keep(event);
            }
        }
        self.forget_others_io();
    }

    /// Of processes that have ended before it was known that they are no task's.
    fn forget_others_io(&mut self) {
        if !self.early.is_kept() {
            self.io.keep(|process| self.forest.has_had(process));
        }
    }

    fn apply(&mut self, event: ProcessEvent) {
        match event {
            ProcessEvent::Forked { parent, child, at_ns } => {
                self.forest.forked(parent, child, at_ns);
            }
            ProcessEvent::Exited(exit) => {
                if let Some(task) = self.forest.task_of(exit.pid) {
                    self.io.ended(exit.pid, Some(task));
                }
                self.forest.exited(exit.pid, exit.at_ns);
            }
        }
    }

    /// Takes in all that has happened until now.
    pub(super) fn catch_up(&mut self) {
        self.take_in_all();
    }

    fn take_in_all(&mut self) {
        self.read();
        self.take_in(u64::MAX);
    }

    fn scan_all(&mut self) {
        for task in self.places.keys().copied().collect::<Vec<_>>() {
            self.scan(task);
        }
    }

    fn scan(&mut self, task: TaskId) {
        self.bring_back(task);
        if let Some(place) = self.places.get(&task) {
            let seen = place.seen(&self.forest.members(task));
            self.forest.repair(task, &seen);
        }
    }

    /// The processes of a task as they are now, each before those below it.
    pub(super) fn members(&mut self, task: TaskId) -> Vec<Member> {
        self.take_in_all();
        self.scan(task);
        let mut members = self.forest.members(task);
        if let Some(&Place::Minder((minder, _))) = self.places.get(&task) {
            members.retain(|member| member.pid != minder);
            for top in members.iter_mut().filter(|member| member.parent == Some(minder)) {
                top.parent = None;
            }
        }
        members
    }

    /// How many processes the tasks of a job that have not ended have had until now.
    pub(super) fn count(&self, job: StepKey) -> Counted {
        let tallies = self.ranks(job).into_iter().map(|rank| {
            let minder = matches!(self.places.get(&(job, rank)), Some(Place::Minder(_)));
            let tally = self.forest.tally((job, rank));
            let less = |count: u64| count.saturating_sub(u64::from(minder));
            (less(tally.created), less(tally.peak))
        });
        let (processes, peak) =
            tallies.fold((0, 0), |(sum, most), (one, peak)| (sum + one, most.max(peak)));
        let mut io = Bytes::default();
        self.ranks(job).into_iter().for_each(|rank| io.add(self.io.of_task((job, rank))));
        // Of those that live nothing is reported yet.
        Counted { processes, peak, whole: self.counts_all(job), io, io_whole: false }
    }

    /// A process of a task and all below it, each before those below it; nothing if it is not the
    /// task's.
    pub(super) fn subtree(&mut self, task: TaskId, pid: i32) -> Vec<Member> {
        self.take_in_all();
        self.scan(task);
        let is_minder =
            matches!(self.places.get(&task), Some(&Place::Minder((it, _))) if it == pid);
        match self.forest.task_of(pid) {
            Some(of) if of == task && !is_minder => self.forest.subtree(pid),
            _ => Vec::new(),
        }
    }
}

/// What `/proc` says of the processes of a list. One may end before it is looked at, and its number
/// be that of another user's process then: that is not in the list when it is read again.
fn seen_where_listed(list: impl Fn() -> Vec<i32>) -> Vec<Seen> {
    let mut seen = track::seen(&list());
    let still: BTreeSet<i32> = list().into_iter().collect();
    seen.retain(|process| still.contains(&process.pid));
    seen
}

/// Of which known process an event tells, if it is one.
const fn subject(event: ProcessEvent) -> i32 {
    match event {
        ProcessEvent::Forked { parent, .. } => parent,
        ProcessEvent::Exited(exit) => exit.pid,
    }
}

fn words(error: &tutti_linux::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

#[cfg(test)]
mod tests;
