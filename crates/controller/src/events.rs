//! The stream of events: made of the events and actions of the core, stored with the journal's
//! entries, and read by number ([`tutti_wire::event`]).
//!
//! An event is made where its cause is: [`Driver::events_of`] for events of the core, and the
//! places that carry out its actions. [`Driver::store`] numbers all that were made, and stores them
//! with the entries that they belong to. Only what is stored is shown.
//!
//! A reader asks for the events behind a number, and gets a page of those that it may see. If there
//! are none, its request waits. So nothing is queued for a reader that is slow: it asks later, by
//! the number that it has got to, and hears [`Code::EventsGone`] if that is not kept any more.

use super::bank::account_name;
use super::driver::Driver;
use super::error::Problem;
use super::jobs::{Ended, Entry};
use super::notify::of_end;
use super::requests::Forbidden;
use super::site::after_text;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tutti_core::{DueChange, Event as CoreEvent};
use tutti_journal::Number;
use tutti_node::platform::time::wall_ms;
use tutti_types::access::Grantee;
use tutti_types::account::BankAccount;
use tutti_types::param::{Param, Shown};
use tutti_types::{
    ClassName, ClassSpec, ClusterTime, JobId, Nanos, NodeId, NodeSpec, Rank, TaskStatus,
};
use tutti_wire::code::Code;
use tutti_wire::event::{
    EndOfTask, Event, EventNode, EventQuery, EventRecord, JobOf, SettingKind, What, ranks_text,
};
use tutti_wire::history::Ending;
use tutti_wire::launch::cut;
use tutti_wire::limits::{
    EVENT_JOBS_MAX, EVENT_NODES_BYTES_MAX, EVENT_NODES_MAX, EVENT_RANKS_MAX, EVENT_TEXT_BYTES_MAX,
    NAME_BYTES_MAX,
};
use tutti_wire::local::Reply;
use tutti_wire::notify::Notify;
use tutti_wire::show::NodeShare;

/// Latest events in memory, and their bytes, about: readers that follow need no others.
const RECENT_MAX: usize = 8192;
const RECENT_BYTES_MAX: usize = 4 << 20;

/// Events that are looked at for one answer, and bytes in it: one more event may be in it.
const PAGE_EVENTS: usize = 1000;
const PAGE_BYTES: usize = 256 << 10;

/// How often readers that wait are answered at most: what happens meanwhile is one answer.
const ANSWER_EVERY: Nanos = Nanos::from_millis(10);

/// After so many events that a reader does not want, it is answered without one: it learns how far
/// it has got.
const SKIPPED_MAX: u64 = 1000;

/// Events that a controller looks at when it takes over while a node is out of reach.
const LOOKED_BACK: u64 = 10_000;

/// Requests of one user for events that wait at once: each is looked at whenever something happens.
const READERS_PER_USER_MAX: usize = 64;

/// Numbers that are left out after a loss of power: far more than events may be forgotten.
pub(super) const NUMBERS_LEFT_OUT: u64 = 1_000_000;

/// What the controller has of the stream.
pub(super) struct Events {
    /// Those that have no number yet, each with its entry.
    made: Vec<(Number, Made)>,
    /// The entry that events made now belong to.
    entry: Number,
    /// The latest with a number, and about how many bytes they have.
    recent: VecDeque<EventRecord>,
    recent_bytes: usize,
    /// Requests that wait.
    readers: BTreeMap<u64, Reader>,
    /// The event up to which readers were answered.
    answered: u64,
    /// When they may be answered again.
    answer_at: ClusterTime,
    /// Nodes whose agents are there, or are expected since an earlier controller had them.
    up: BTreeSet<NodeId>,
    /// Nodes that do not answer.
    unreachable: BTreeSet<NodeId>,
    /// Whether the supervisor was asked for the process that delivers notifications.
    pub(super) has_notifier: bool,
}

/// A request for events that waits.
struct Reader {
    uid: u32,
    /// Whether it is one of the instance's own.
    is_own: bool,
    filter: Filter,
    /// From where it asked, and how far it was looked for.
    from: u64,
    after: u64,
}

/// Which events a reader wants, ready to be compared with each.
struct Filter {
    /// The jobs; none: all.
    jobs: BTreeSet<JobId>,
    /// The name of the user and, if it is one, the number.
    user: Option<(String, Option<u32>)>,
}

impl From<EventQuery> for Filter {
    fn from(query: EventQuery) -> Self {
        let number = |user: String| {
            let number = user.parse().ok();
            (user, number)
        };
        Self { jobs: query.jobs.into_iter().collect(), user: query.user.map(number) }
    }
}

impl Filter {
    fn takes(&self, record: &EventRecord) -> bool {
        let of = record.event.job.as_ref();
        let is_of_user = |of: &JobOf| {
            let Some((name, number)) = &self.user else { return true };
            of.user == *name || *number == Some(of.uid)
        };
        match of {
            Some(of) => (self.jobs.is_empty() || self.jobs.contains(&of.job)) && is_of_user(of),
            None => self.jobs.is_empty() && self.user.is_none(),
        }
    }
}

/// An event without a number.
enum Made {
    Whole(Event),
    /// Tasks of a job that ended alike, while more may.
    Tasks {
        at: (u64, ClusterTime),
        job: JobOf,
        ranks: Vec<Rank>,
        status: TaskStatus,
    },
}

impl Made {
    fn finish(self) -> Event {
        match self {
            Self::Whole(event) => event,
            Self::Tasks { at: (at_ms, ClusterTime(cluster_ns)), job, mut ranks, status } => {
                let signal = match status {
                    TaskStatus::Signaled(signal) => Some(signal),
                    _ => None,
                };
                let what = What::TasksEnded {
                    ranks: ranks_text(&mut ranks),
                    status: EndOfTask::of(status),
                    exit_code: status.exit_code(),
                    signal,
                };
                Event { at_ms, cluster_ns, job: Some(job), what }
            }
        }
    }
}

/// A page of events, as [`Reply::Events`] has it.
struct EventPage {
    events: Vec<EventRecord>,
    until: u64,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            made: Vec::new(),
            entry: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
            readers: BTreeMap::new(),
            answered: 0,
            answer_at: ClusterTime(0),
            up: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            has_notifier: false,
        }
    }
}

impl Events {
    /// Whether this client waits for events.
    pub(super) fn is_open_for(&self, client: u64) -> bool {
        self.readers.contains_key(&client)
    }

    /// Whether this client waits for events on behalf of the instance.
    pub(super) fn is_own(&self, client: u64) -> bool {
        self.readers.get(&client).is_some_and(|reader| reader.is_own)
    }

    /// No node is up, which readers know.
    pub(super) fn lose_all(&mut self) {
        self.up.clear();
        self.unreachable.clear();
    }

    /// Whether a node is up, as far as readers are to know.
    pub(super) fn count_as_up(&mut self, node: NodeId, is_up: bool) {
        match is_up {
            true => self.up.insert(node),
            false => self.up.remove(&node),
        };
    }

    /// Whether another request of a user may wait.
    fn has_room_for(&self, uid: u32) -> Result<(), Problem> {
        let of_user = self.readers.values().filter(|reader| reader.uid == uid).count();
        if of_user < READERS_PER_USER_MAX {
            return Ok(());
        }
        let reason = format!(
            "{of_user} readers of events wait already, the most that one user may have: end some, or read with \
             `tutti events --since`"
        );
        Err(Problem::new(Code::TooMuchAsked, reason))
    }

    /// The client is gone.
    pub(super) fn forget(&mut self, client: u64) {
        self.readers.remove(&client);
    }

    fn push(&mut self, now: ClusterTime, job: Option<JobOf>, what: What) {
        let (at_ms, cluster_ns) = (wall_ms(), now.0);
        self.made.push((self.entry, Made::Whole(Event { at_ms, cluster_ns, job, what })));
    }

    /// Whether the event made last says that this setting has changed; it is one of the present
    /// entry then too.
    fn has_just_changed(&mut self, kind: SettingKind, name: &str) -> bool {
        let Some((entry, Made::Whole(event))) = self.made.last_mut() else { return false };
        let What::SettingChanged { kind: of, name: so, .. } = &event.what else { return false };
        let is_that = *of == kind && so == name;
        if is_that {
            *entry = self.entry;
        }
        is_that
    }

    fn push_tasks(&mut self, now: ClusterTime, job: &JobOf, ended: &[Rank], status: TaskStatus) {
        let mut ended = ended;
        if let Some((entry, Made::Tasks { job: of, ranks, status: so, .. })) = self.made.last_mut()
            && of.job == job.job
            && *so == status
        {
            let more = ended.len().min(EVENT_RANKS_MAX.saturating_sub(ranks.len()));
            let (merged, rest) = ended.split_at(more);
            if more > 0 {
                ranks.extend_from_slice(merged);
                *entry = self.entry;
            }
            ended = rest;
        }
        for ranks in ended.chunks(EVENT_RANKS_MAX) {
            let (at, job, ranks) = ((wall_ms(), now), job.clone(), ranks.to_vec());
            self.made.push((self.entry, Made::Tasks { at, job, ranks, status }));
        }
    }

    /// Keeps an event for readers that follow; no more than the journal keeps.
    fn remember(&mut self, record: EventRecord, kept: u64) {
        self.recent_bytes += bytes_of(&record);
        self.recent.push_back(record);
        let most = usize::try_from(kept).map_or(RECENT_MAX, |kept| kept.min(RECENT_MAX));
        while self.recent.len() > most || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_bytes -= bytes_of(&oldest);
        }
    }
}

// ---------------------------------------------------------------------- what is made

impl Driver {
    /// What readers are shown of something that the core is about to get, and that is noted then
    /// as the next entry of the journal.
    pub(super) fn events_of(&mut self, event: &CoreEvent) {
        self.monitoring.events.entry = self.memory.journal.noted() + 1;
        match event {
            CoreEvent::NodeJoined { node, spec } => self.node_joined(*node, spec),
            CoreEvent::NodeOutOfReach { node } => self.node_unreachable(*node),
            CoreEvent::NodeLost { node } => self.node_lost(*node),
            CoreEvent::NodeRemoved { node } => {
                self.node_lost(*node);
                let node = self.node_name(*node);
                self.happened(None, What::NodeRemoved { node });
            }
            CoreEvent::SetDrained { node, reason } => {
                let node = self.node_name(*node);
                let what = match reason {
                    Some(reason) => {
                        let reason = cut(reason.clone(), EVENT_TEXT_BYTES_MAX);
                        What::NodeDrained { node, reason }
                    }
                    None => What::NodeResumed { node },
                };
                self.happened(None, what);
            }
            CoreEvent::TasksEnded { job, ranks, status } => {
                if let Some(of) = self.job_of(*job) {
                    let now = self.now();
                    self.monitoring.events.push_tasks(now, &of, ranks, *status);
                }
            }
            CoreEvent::Hold { job, .. } => self.job_event(*job, What::JobHeld {}),
            CoreEvent::Release { job, .. } => self.job_event(*job, What::JobReleased {}),
            CoreEvent::SetJobClass { job, class } => {
                self.job_event(*job, What::JobClassChanged { class: class.to_string() });
            }
            CoreEvent::SetTimeLimit { job, limit } => {
                let time_limit_ms = limit.map(|limit| limit.0 / 1_000_000);
                self.job_event(*job, What::JobLimitChanged { time_limit_ms });
            }
            CoreEvent::MoveJob { job, before } => {
                self.job_event(*job, What::JobMoved { before: *before });
            }
            // It was said when that began.
            CoreEvent::GoDown | CoreEvent::RollOut { .. } if self.core.is_rolling_out() => {}
            CoreEvent::ShutDown | CoreEvent::GoDown | CoreEvent::RollOut { .. } => {
                self.happened(None, What::InstanceEnding {});
            }
            CoreEvent::TimedDue { due } => self.timed_due(due),
            other => {
                if let Some((kind, name, values)) = self.setting_of(other) {
                    let is_renewal = matches!(other, CoreEvent::SetBankPeriod { .. });
                    if !(is_renewal && self.monitoring.events.has_just_changed(kind, &name)) {
                        self.happened(None, What::SettingChanged { kind, name, values });
                    }
                }
            }
        }
    }

    /// The setting that an event changes, if it does.
    fn setting_of(&self, event: &CoreEvent) -> Option<(SettingKind, String, Vec<String>)> {
        let none = Vec::new;
        let value_or_none = |value: Option<String>| vec![value.unwrap_or_else(|| "none".into())];
        Some(match event {
            CoreEvent::SetParams { params } => {
                let values = changed(self.core.settings().params.iter(), params.iter());
                (SettingKind::Params, String::new(), values)
            }
            CoreEvent::SetClass { class, spec } => {
                (SettingKind::Class, class.to_string(), self.rules_changed(class, spec))
            }
            CoreEvent::ForgetClass { class } => {
                (SettingKind::Class, class.to_string(), value_or_none(None))
            }
            CoreEvent::SetClassUsers { class, .. } => {
                (SettingKind::ClassUsers, class.to_string(), none())
            }
            CoreEvent::SetPeriod { period, .. } => (SettingKind::Hours, period.to_string(), none()),
            CoreEvent::SetQueue { name, spec } => {
                let values = if spec.is_none() { value_or_none(None) } else { none() };
                (SettingKind::Queue, name.to_string(), values)
            }
            CoreEvent::SetBank { account, allowance } => {
                let values = if allowance.is_none() { value_or_none(None) } else { none() };
                (SettingKind::Bank, account_name(*account), values)
            }
            CoreEvent::SetBankPeriod { account, .. } => {
                (SettingKind::Bank, account_name(*account), none())
            }
            CoreEvent::SetClassAfter { class, rule } => {
                let values = vec![format!("after={}", after_text(rule.as_ref()))];
                (SettingKind::Class, class.to_string(), values)
            }
            CoreEvent::SetWeight { account, weight } => {
                let weight = weight.map(|weight| weight.to_string());
                (SettingKind::Weight, account_name(*account), value_or_none(weight))
            }
            CoreEvent::SetAccess { grantee, origin } => {
                let name = match grantee {
                    Grantee::Everybody => "all".into(),
                    Grantee::User(user) => account_name(BankAccount::User(*user)),
                    Grantee::Group(group) => account_name(BankAccount::Group(*group)),
                };
                let values = if origin.is_none() { value_or_none(None) } else { none() };
                (SettingKind::Access, name, values)
            }
            CoreEvent::SetResource { name, .. } => {
                (SettingKind::Resource, name.to_string(), none())
            }
            CoreEvent::SetDevice { node, id, device } => {
                let values = if device.is_none() { value_or_none(None) } else { none() };
                (SettingKind::Device, format!("{} {id}", self.node_name(*node)), values)
            }
            CoreEvent::SetNodeSet { name, .. } => (SettingKind::NodeSet, name.to_string(), none()),
            CoreEvent::SetTimed { number, entry } => {
                let change = entry.as_ref().map(|(when, change, _)| format!("{when} {change}"));
                (SettingKind::At, number.to_string(), value_or_none(change))
            }
            _ => return None,
        })
    }

    /// Moments of changes have come.
    fn timed_due(&mut self, due: &[DueChange]) {
        let changes: BTreeMap<u32, String> =
            self.core.timed().map(|(number, it)| (number, it.change.to_string())).collect();
        for due in due {
            let values = changes.get(&due.number).map(|it| format!("now {it}")).into_iter();
            let (kind, name) = (SettingKind::At, due.number.to_string());
            self.happened(None, What::SettingChanged { kind, name, values: values.collect() });
        }
    }

    fn rules_changed(&self, class: &ClassName, spec: &ClassSpec) -> Vec<String> {
        let before = self.core.settings().classes.get(class).copied().unwrap_or_default();
        changed(before.iter(), spec.iter())
    }

    fn node_joined(&mut self, node: NodeId, spec: &NodeSpec) {
        if self.monitoring.events.unreachable.remove(&node) {
            let name = self.node_name(node);
            for job in self.jobs_on(node) {
                self.job_event(job, What::JobNodeBack { node: name.clone() });
            }
            self.happened(None, What::NodeBack { node: name });
        } else if self.monitoring.events.up.insert(node) {
            let what = What::NodeJoined {
                node: spec.name.to_string(),
                processors: spec.processors.count(),
                memory_bytes: spec.memory_bytes,
            };
            self.happened(None, what);
        }
    }

    fn node_unreachable(&mut self, node: NodeId) {
        if !self.monitoring.events.unreachable.insert(node) {
            return;
        }
        let name = self.node_name(node);
        self.happened(None, What::NodeUnreachable { node: name.clone() });
        for job in self.jobs_on(node) {
            self.job_event(job, What::JobNodeUnreachable { node: name.clone() });
        }
    }

    fn node_lost(&mut self, node: NodeId) {
        self.monitoring.events.unreachable.remove(&node);
        if !self.monitoring.events.up.remove(&node) {
            return;
        }
        let name = self.node_name(node);
        self.happened(None, What::NodeLost { node: name.clone() });
        for job in self.jobs_on(node) {
            self.job_event(job, What::JobNodeLost { node: name.clone() });
        }
    }

    /// Something happened now.
    fn happened(&mut self, job: Option<JobOf>, what: What) {
        let now = self.now();
        self.monitoring.events.push(now, job, what);
    }

    /// The jobs that were started on a node, and have not ended there.
    fn jobs_on(&self, node: NodeId) -> Vec<JobId> {
        let jobs = self.jobs.iter().filter(|(_, entry)| entry.run.started_on().contains(&node));
        jobs.map(|(&job, _)| job).filter(|&job| !self.has_cleared(node, job)).collect()
    }

    fn job_of(&self, job: JobId) -> Option<JobOf> {
        self.entry(job).map(|entry| of(job, entry))
    }

    /// Something happened to a job that has not ended.
    pub(super) fn job_event(&mut self, job: JobId, what: What) {
        if let Some(of) = self.job_of(job) {
            self.happened(Some(of), what);
        }
    }

    /// A job or an array was accepted.
    pub(super) fn job_submitted(&mut self, job: JobId) {
        let array = self.core.array(job);
        let held = match &array {
            Some(array) => array.waiting.is_empty(),
            None => self.core.held_by(job).is_some(),
        };
        // Its elements are counted.
        if array.is_none() {
            self.monitoring.metrics.count_submitted();
        }
        let Some(entry) = self.entry(job) else { return };
        let (class, queue, tasks) =
            (entry.terms.class.clone(), entry.terms.queue.clone(), entry.terms.tasks);
        self.job_event(job, What::JobSubmitted { class, queue, tasks, held });
    }

    /// A job is being started on these nodes; so many are left out behind them.
    pub(super) fn job_started(&mut self, job: JobId, nodes: Vec<EventNode>, nodes_left_out: u32) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let (launch, accepted) = (entry.requeues, entry.times.accepted);
        let now = self.now();
        self.monitoring.metrics.count_started(launch, accepted, now);
        let notification = self.notification_of_start(job, &nodes);
        self.job_event(job, What::JobStarted { launch, nodes, nodes_left_out });
        if let Some(notification) = notification {
            self.job_event(job, What::JobNotification(notification));
        }
    }

    /// A job is in another state than before, by its word.
    pub(super) fn job_state(&mut self, job: JobId, state: &str) {
        let what = match state {
            "suspended" => What::JobSuspended {},
            "preempted" => What::JobPreempted {},
            "running" => What::JobResumed {},
            "ending" => What::JobEnding {},
            _ => return,
        };
        self.job_event(job, what);
    }

    /// Nothing is left of a job, of whose end its user may want to be notified.
    pub(super) fn job_ended(&mut self, ended: &Ended, notify: Option<&Notify>) {
        let report = &ended.report;
        if !report.is_whole_array() {
            self.monitoring.metrics.count_ended(report, Ending::of(ended.outcome));
        }
        let (name, user) = (report.name.clone(), report.user.clone());
        let of = JobOf { job: report.job, name, user, uid: ended.uid };
        let what = What::JobEnded {
            ending: Ending::of(ended.outcome),
            exit_code: ended.outcome.exit_code,
            reason: cut(report.reason.clone(), EVENT_TEXT_BYTES_MAX),
            waited_ms: report.waited_ms,
            service_ms: report.service_ms,
        };
        self.happened(Some(of.clone()), what);
        if let Some(notification) = notify.and_then(|notify| of_end(notify, ended)) {
            self.happened(Some(of), What::JobNotification(notification));
        }
    }

    /// The nodes that readers have been shown as out of reach, by the latest events: such a node is
    /// soon back or lost.
    fn said_unreachable(&mut self) -> BTreeSet<String> {
        let journal = &mut self.memory.journal;
        let mut after = journal.published_until().saturating_sub(LOOKED_BACK);
        let mut said = BTreeSet::new();
        while let Ok(found) = journal.published::<Event>(after, PAGE_EVENTS)
            && let Some((last, ..)) = found.last()
        {
            after = *last;
            for (.., event) in found {
                match event.what {
                    What::NodeUnreachable { node } => {
                        said.insert(node);
                    }
                    What::NodeBack { node } | What::NodeLost { node } => {
                        said.remove(&node);
                    }
                    _ => {}
                }
            }
        }
        said
    }

    /// A controller takes over what there is, before anything happens to it. The event belongs to
    /// this entry.
    pub(super) fn controller_started(&mut self, entry: Number) {
        // An earlier one had them: they do not join now, and some may be back.
        let up = || self.core.nodes().filter(|view| view.up);
        self.monitoring.events.up = up().map(|view| view.id).collect();
        let away = up().filter(|view| view.away);
        let away: Vec<(NodeId, String)> =
            away.map(|view| (view.id, view.spec.name.to_string())).collect();
        if !away.is_empty() {
            // An earlier one may have begun without them, of which readers have not heard.
            let said = self.said_unreachable();
            let away = away.into_iter().filter(|(_, name)| said.contains(name));
            self.monitoring.events.unreachable = away.map(|(node, _)| node).collect();
        }
        self.monitoring.events.entry = entry;
        let release = env!("CARGO_PKG_VERSION").into();
        self.happened(None, What::ControllerStarted { release });
    }

    /// Gives numbers to all that was made, to be stored with its causes.
    pub(super) fn number_events(&mut self) {
        let made = std::mem::take(&mut self.monitoring.events.made);
        if made.is_empty() {
            return;
        }
        let (journal, kept) = (&mut self.memory.journal, self.core.params().events_kept());
        journal.keep_published(kept);
        for (entry, made) in made {
            let event = made.finish();
            let number = journal.publish(entry, &event);
            let record = EventRecord { number, entry, event };
            self.monitoring.events.remember(record, kept);
        }
    }
}

/// The nodes of a job as its event lists them, lowest ranks first, and how many it leaves out.
pub(super) fn event_nodes(shares: &[NodeShare]) -> (Vec<EventNode>, u32) {
    let (mut nodes, mut rank, mut bytes) = (Vec::new(), 0, 0);
    for share in shares.iter().take(EVENT_NODES_MAX) {
        let ranks = match share.tasks {
            0 => String::new(),
            1 => rank.to_string(),
            tasks => format!("{rank}-{}", rank + tasks - 1),
        };
        rank += share.tasks;
        bytes += share.node.len() + ranks.len() + share.processors.len();
        bytes += share.devices.iter().map(|device| device.len() + 3).sum::<usize>();
        let (node, processors) = (share.node.clone(), share.processors.clone());
        nodes.push(EventNode { node, ranks, processors, devices: share.devices.clone() });
        if bytes >= EVENT_NODES_BYTES_MAX {
            break;
        }
    }
    let left_out = u32::try_from(shares.len() - nodes.len()).unwrap_or(u32::MAX);
    (nodes, left_out)
}

/// The job of an event.
fn of(job: JobId, entry: &Entry) -> JobOf {
    let (name, user) = (entry.terms.name().to_owned(), entry.owner.user.clone());
    JobOf { job, name, user, uid: entry.owner.uid() }
}

/// The settings that have another value than before.
fn changed(
    before: impl Iterator<Item = (&'static Param, u64)>,
    now: impl Iterator<Item = (&'static Param, u64)>,
) -> Vec<String> {
    let pairs = before.zip(now).filter(|((_, before), (_, now))| before != now);
    pairs.map(|(_, (param, value))| format!("{}={}", param.name, Shown(param, value))).collect()
}

// ---------------------------------------------------------------------- what is read

impl Driver {
    pub(super) fn on_events(&mut self, token: u64, uid: u32, query: EventQuery) {
        if let Err(problem) = self.check_query(uid, &query) {
            return self.fail(token, problem);
        }
        let last = self.memory.journal.published_until();
        let (after, waits, is_own) = (query.after.unwrap_or(last), query.wait, query.is_own);
        let filter = Filter::from(query);
        match self.event_page(uid, &filter, after) {
            Ok(page) if page.events.is_empty() && waits && page.until >= last => {
                if let Err(problem) = self.monitoring.events.has_room_for(uid) {
                    return self.fail(token, problem);
                }
                let reader = Reader { uid, is_own, filter, from: after, after: page.until };
                self.monitoring.events.readers.insert(token, reader);
            }
            Ok(page) => self.reply_events(token, page),
            Err(problem) => self.fail(token, problem),
        }
    }

    fn check_query(&self, uid: u32, query: &EventQuery) -> Result<(), Problem> {
        if query.jobs.len() > EVENT_JOBS_MAX {
            let reason = format!(
                "events of {} jobs were asked for; at most {EVENT_JOBS_MAX} are possible: ask for all, or for a user",
                query.jobs.len()
            );
            return Err(Problem::new(Code::TooMuchAsked, reason));
        }
        let bytes = query.user.as_ref().map_or(0, String::len);
        if bytes > NAME_BYTES_MAX {
            let reason = format!(
                "the name of the user has {bytes} bytes; at most {NAME_BYTES_MAX} are possible: give a shorter one"
            );
            return Err(Problem::new(Code::TooMuchAsked, reason));
        }
        for &job in &query.jobs {
            match self.owned(uid, job) {
                Err(error @ Forbidden::NotYours(..)) if self.admin(uid).is_err() => {
                    return Err(error.into());
                }
                Err(Forbidden::NoJob(_)) if job.0 > self.core.jobs_made() => {
                    return Err(Forbidden::NoJob(job).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Events behind a number that a reader wants and may see.
    fn event_page(&mut self, uid: u32, filter: &Filter, after: u64) -> Result<EventPage, Problem> {
        let last = self.memory.journal.published_until();
        if after > last {
            let reason = format!(
                "there is no event {after}: the latest is {last}, since the journal is another one, or a part of it \
                 is lost; `tutti events --since 0` prints those that are kept"
            );
            return Err(Problem::new(Code::EventsGone, reason));
        }
        if after == last {
            return Ok(EventPage { events: Vec::new(), until: last });
        }
        let sees_all = self.admin(uid).is_ok();
        let is_recent =
            self.monitoring.events.recent.front().is_some_and(|first| first.number <= after + 1);
        let stored = if is_recent { Vec::new() } else { self.stored_events(after)? };
        let start = self.monitoring.events.recent.partition_point(|record| record.number <= after);
        let recent = self.monitoring.events.recent.range(start..);
        let found: Box<dyn Iterator<Item = &EventRecord>> = match is_recent {
            true => Box::new(recent.take_while(|record| record.number <= last)),
            false => Box::new(stored.iter()),
        };
        let (mut page, mut bytes, mut looked_at) =
            (EventPage { events: Vec::new(), until: after }, 0, 0);
        for record in found {
            page.until = record.number;
            if (sees_all || is_seen_by(record, uid)) && filter.takes(record) {
                bytes += bytes_of(record);
                page.events.push(record.clone());
            }
            looked_at += 1;
            if looked_at >= PAGE_EVENTS || bytes >= PAGE_BYTES {
                return Ok(page);
            }
        }
        page.until = last;
        Ok(page)
    }

    /// Events behind a number, from the journal: a page of them.
    fn stored_events(&mut self, after: u64) -> Result<Vec<EventRecord>, Problem> {
        let first = self.memory.journal.published_first()?.unwrap_or(0);
        if after > 0 && after + 1 < first {
            let reason = format!(
                "events {} to {} are not kept any more; go on with `tutti events --since {}`, and raise `tutti params \
                 events_kept` if readers are away for longer",
                after + 1,
                first - 1,
                first - 1
            );
            return Err(Problem::new(Code::EventsGone, reason));
        }
        let stored = self.memory.journal.published::<Event>(after, PAGE_EVENTS)?;
        let record = |(number, entry, event)| EventRecord { number, entry, event };
        Ok(stored.into_iter().map(record).collect())
    }

    fn reply_events(&mut self, token: u64, page: EventPage) {
        let last = self.memory.journal.published_until();
        let first = match self.memory.journal.published_first() {
            Ok(first) => first.unwrap_or(0),
            Err(error) => return self.fail(token, Problem::from(error)),
        };
        let EventPage { events, until } = page;
        self.reply(token, &Reply::Events { events, first, until, last });
    }

    /// When readers that wait are to be answered.
    pub(super) fn events_due(&self) -> ClusterTime {
        let has_more = self.monitoring.events.answered < self.memory.journal.published_until();
        match has_more && !self.monitoring.events.readers.is_empty() {
            true => self.monitoring.events.answer_at,
            false => ClusterTime::NEVER,
        }
    }

    /// Answers readers that wait, if something has happened. That comes in the round after it, in
    /// which what it led to has been sent: no launch waits for pages of events.
    pub(super) fn answer_readers(&mut self) {
        let now = self.now();
        if now < self.events_due() {
            return;
        }
        self.monitoring.events.answered = self.memory.journal.published_until();
        self.monitoring.events.answer_at = now + ANSWER_EVERY;
        for (token, mut reader) in std::mem::take(&mut self.monitoring.events.readers) {
            match self.event_page(reader.uid, &reader.filter, reader.after) {
                Ok(page)
                    if page.events.is_empty()
                        && page.until == self.monitoring.events.answered
                        && page.until < reader.from.saturating_add(SKIPPED_MAX) =>
                {
                    reader.after = page.until;
                    self.monitoring.events.readers.insert(token, reader);
                }
                Ok(page) => self.reply_events(token, page),
                Err(problem) => self.fail(token, problem),
            }
        }
    }
}

/// Whether a user without an administrator's rights sees an event.
fn is_seen_by(record: &EventRecord, uid: u32) -> bool {
    record.event.job.as_ref().is_none_or(|of| of.uid == uid)
}

/// What an event takes, about.
fn bytes_of(record: &EventRecord) -> usize {
    let texts = match &record.event.what {
        What::JobStarted { nodes, .. } => {
            let texts = |it: &EventNode| it.node.len() + it.ranks.len() + it.processors.len() + 24;
            nodes.iter().map(texts).sum()
        }
        What::SettingChanged { name, values, .. } => {
            name.len() + values.iter().map(|value| value.len() + 24).sum::<usize>()
        }
        What::TasksEnded { ranks: text, .. }
        | What::JobEnded { reason: text, .. }
        | What::NodeDrained { reason: text, .. } => text.len(),
        What::JobNotification(it) => {
            let ways = it.ways.iter().map(|way| way.text().len() + 32).sum::<usize>();
            ways + it.nodes.len() + it.reason.len() + it.key.as_ref().map_or(0, |key| key.len())
        }
        _ => 0,
    };
    let of = record.event.job.as_ref().map_or(0, |of| of.name.len() + of.user.len());
    size_of::<EventRecord>() + texts + of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u64, user: &str, uid: u32) -> JobOf {
        JobOf { job: JobId(number), name: "it".into(), user: user.into(), uid }
    }

    #[test]
    fn ends_of_tasks_are_merged_up_to_a_bound_and_have_the_latest_entry() {
        let (mut events, it) = (Events::default(), job(1, "ada", 1000));
        let ranks: Vec<Rank> = (0..500).map(Rank).collect();
        for (entry, part) in (7..).zip(ranks.chunks(150)) {
            events.entry = entry;
            events.push_tasks(ClusterTime(1), &it, part, TaskStatus::Exited(0));
        }
        events.push_tasks(ClusterTime(1), &it, &[Rank(500)], TaskStatus::Exited(1));
        let made = std::mem::take(&mut events.made);
        let seen = made.into_iter().map(|(entry, made)| match made.finish().what {
            What::TasksEnded { ranks, .. } => (entry, ranks),
            other => panic!("{other:?}"),
        });
        let wanted = [(8, "0-199"), (9, "200-399"), (10, "400-499"), (10, "500")];
        assert!(seen.eq(wanted.map(|(entry, ranks)| (entry, ranks.to_owned()))));
    }

    #[test]
    fn nodes_of_a_started_job_are_listed_as_far_as_there_is_room() {
        let share = |tasks, bytes: usize| NodeShare {
            node: "n1".into(),
            processors: "9".repeat(bytes),
            tasks,
            devices: Vec::new(),
        };
        let (nodes, left_out) = event_nodes(&[share(2, 3), share(0, 3), share(1, 3)]);
        let ranks: Vec<&str> = nodes.iter().map(|node| node.ranks.as_str()).collect();
        assert_eq!((ranks.as_slice(), left_out), (["0-1", "", "2"].as_slice(), 0));
        let (nodes, left_out) = event_nodes(&vec![share(1, 3); 300]);
        assert_eq!((nodes.len(), left_out), (EVENT_NODES_MAX, 44));
        let (nodes, left_out) = event_nodes(&vec![share(1, 500); 100]);
        assert_eq!((nodes.len(), left_out), (9, 91));
    }

    #[test]
    fn a_filter_takes_jobs_by_number_and_users_by_name_or_number() {
        let query = |jobs: &[u64], user: Option<&str>| {
            let (jobs, user) = (jobs.iter().map(|job| JobId(*job)).collect(), user.map(Into::into));
            Filter::from(EventQuery { jobs, user, ..EventQuery::default() })
        };
        let record = |job: Option<JobOf>| {
            let event = Event { at_ms: 0, cluster_ns: 0, job, what: What::JobHeld {} };
            EventRecord { number: 1, entry: 1, event }
        };
        let (of_ada, of_none) = (record(Some(job(3, "ada", 1000))), record(None));
        assert!(query(&[], None).takes(&of_none) && query(&[], None).takes(&of_ada));
        for (jobs, user, is_taken) in [
            (&[3, 4][..], None, true),
            (&[4], None, false),
            (&[], Some("ada"), true),
            (&[], Some("1000"), true),
            (&[], Some("1001"), false),
            (&[3], Some("bob"), false),
        ] {
            assert_eq!(query(jobs, user).takes(&of_ada), is_taken, "{jobs:?} {user:?}");
            assert!(!query(jobs, user).takes(&of_none));
        }
    }
}
