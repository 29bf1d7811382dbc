//! What a controller remembers of the one before it, and how it makes sure that the next one will.
//!
//! Every event goes into the journal before anything is done about it: what is to be sent waits in
//! the connections until the journal has it ([`Driver::settle`](super::driver::Driver)). A
//! controller that was killed is followed by one with the same core, the same jobs and the same
//! nodes; the agents, which went on meanwhile, join again and tell what it missed.

use super::agents::{Gone, NodeEntry};
use super::driver::Driver;
use super::error::Problem;
use super::jobs::{Clients, Ended, Entry, Saving};
use super::launch_store;
use super::notify::notify_bytes;
use super::report;
use super::time_base::{Former, Reach, ReachFile};
use std::collections::{BTreeMap, VecDeque};
use tracing::{error, info, warn};
use tutti_core::{Event, JobState};
use tutti_journal::{Details, EndedJob, EndedSpan, History, Job, Journal, Keeper, Number};
use tutti_node::codes::code_of_journal;
use tutti_node::instance::Instance;
use tutti_types::{ClusterTime, EndReason, JobId, Nanos, NodeId};
use tutti_wire::code::Code;
use tutti_wire::local::Reply;

/// How long a job waits at least for its front end after its controller has come back: it tries again and
/// again.
pub(super) const FRONT_PATIENCE: Nanos = Nanos::from_secs(20);

/// How long for one on another node that is in reach: its connection may be on its way.
pub(super) const FRONT_MOMENT: Nanos = Nanos::from_secs(3);

/// So many numbers no job gets when the machine has lost its power, or the journal has taken
/// nothing in: far more than jobs are accepted before that is on disk or noticed.
const NUMBERS_LEFT_OUT: u64 = 1_000;

/// What the controller remembers by.
pub(super) struct Memory {
    pub(super) journal: Journal,
    /// What clients are to hear when that is on disk.
    pending: VecDeque<PendingAck>,
    /// How much of it is for each client.
    pending_of: BTreeMap<u64, usize>,
    /// What front ends are to hear when their jobs are stored, which is at the end of the round.
    begun: Vec<Begun>,
    /// The same of clients that have set or asked for something in this round.
    changed: Vec<Changed>,
    /// The last entry of the controllers before.
    taken_over: Number,
    /// The entry that says which numbers jobs may not have any more, since nodes may know others by them. While that
    /// is not on disk, a controller after the next loss of power would give out the same ones.
    numbered_from: Number,
    /// Whether things were done, by this controller or one before, that the journal does not tell of.
    pub(super) has_gap: bool,
    /// Where the next controller is told how far the journal goes.
    pub(super) reach: Option<ReachFile>,
    /// Jobs up to this number are of a former state that the instance was started without.
    pub(super) released: JobId,
    /// Jobs whose front ends have not come back.
    pub(super) abandoned: BTreeMap<JobId, Abandoned>,
}

/// How long a job waits for its front end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abandoned {
    pub(super) until: ClusterTime,
    /// The node that it is on, if the way there may be broken: as long as that is out of reach and not lost,
    /// the job waits.
    pub(super) node: Option<NodeId>,
}

impl Abandoned {
    /// The front ends that will not come back. On a node that is out of reach and not lost, they
    /// may.
    pub(super) fn late<Key: Copy>(
        all: &mut BTreeMap<Key, Self>,
        now: ClusterTime,
        nodes: &BTreeMap<NodeId, NodeEntry>,
    ) -> Vec<Key> {
        let is_missed =
            |node: NodeId| nodes.get(&node).is_some_and(|entry| entry.absence.missed.is_some());
        let mut late = Vec::new();
        for (&key, abandoned) in all {
            if abandoned.until <= now {
                match abandoned.node {
                    Some(node) if is_missed(node) => abandoned.until = now + FRONT_MOMENT,
                    _ => late.push(key),
                }
            }
        }
        late
    }
}

struct PendingAck {
    number: Number,
    token: u64,
    what: Ack,
}

/// A job that was accepted for a front end.
struct Begun {
    token: u64,
    job: JobId,
    replies: Vec<Reply>,
}

/// Something that was set, or asked for.
struct Changed {
    token: u64,
    replies: Vec<Reply>,
}

enum Ack {
    /// That a job is accepted.
    Job(JobId),
    /// Something else, which must not pass that.
    Reply(Box<Reply>),
}

impl Ack {
    /// How much of [`PENDING_ACKS_MAX`] it takes. A whole answer may be long: no more is taken from
    /// the client until it is sent.
    const fn weight(&self) -> usize {
        match self {
            Self::Job(_) => 1,
            Self::Reply(_) => PENDING_ACKS_MAX,
        }
    }
}

/// What one client may wait for before it must stop asking.
const PENDING_ACKS_MAX: usize = 256;

impl Memory {
    pub(super) fn new(journal: Journal, former: Option<Former>, instance: &Instance) -> Self {
        let has_gap = former.is_some_and(|former| former.has_gap);
        let released = instance.released();
        Self {
            taken_over: journal.noted(),
            numbered_from: 0,
            has_gap,
            released,
            reach: None,
            journal,
            pending: VecDeque::new(),
            pending_of: BTreeMap::new(),
            begun: Vec::new(),
            changed: Vec::new(),
            abandoned: BTreeMap::new(),
        }
    }

    /// Whether a loss of power may take away something of the controllers before.
    pub(super) fn is_unsafe_yet(&self) -> bool {
        self.journal.on_disk().0 < self.taken_over
    }

    /// Whether a loss of power may take away which numbers are left out.
    pub(super) fn may_repeat_numbers(&self) -> bool {
        self.journal.on_disk().0 < self.numbered_from
    }

    /// Why no job is accepted at present, if so: the next controller would not know of it.
    pub(super) fn why_it_takes_none(&self) -> Option<String> {
        if let Some(failure) = self.journal.failure() {
            return Some(failure.to_owned());
        }
        let failure = self.journal.on_disk().1?;
        // It may take more by now.
        self.journal.want_on_disk();
        Some(not_on_disk(&failure))
    }

    /// Whether nothing more is taken from this client until the disk has come on.
    pub(super) fn has_enough_pending(&self, token: u64) -> bool {
        self.pending_of.get(&token).is_some_and(|count| *count >= PENDING_ACKS_MAX)
    }

    fn keep_back(&mut self, token: u64, what: Ack) {
        let number = self.journal.noted();
        *self.pending_of.entry(token).or_default() += what.weight();
        self.pending.push_back(PendingAck { number, token, what });
    }

    /// A front end's job is accepted: it hears of it, and of all that follows, when it is stored.
    pub(super) fn begin(&mut self, token: u64, job: JobId) {
        self.begun.push(Begun { token, job, replies: Vec::new() });
    }

    /// A client sets or asks for something: it hears whether that is done when it is stored.
    pub(super) fn change(&mut self, token: u64) {
        self.changed.push(Changed { token, replies: Vec::new() });
    }

    /// Has a reply wait for those before it to this client, if there are any.
    pub(super) fn defer(&mut self, token: u64, reply: &Reply) -> bool {
        if let Some(changed) = self.changed.iter_mut().find(|changed| changed.token == token) {
            changed.replies.push(reply.clone());
            return true;
        }
        if let Some(begun) = self.begun.iter_mut().find(|begun| begun.token == token) {
            begun.replies.push(reply.clone());
            return true;
        }
        let waits = self.pending_of.contains_key(&token);
        if waits {
            self.keep_back(token, Ack::Reply(Box::new(reply.clone())));
        }
        waits
    }

    /// The next that may be kept.
    fn next_kept(&mut self, reached: Number) -> Option<PendingAck> {
        self.pending.front().filter(|ack| ack.number <= reached)?;
        let ack = self.pending.pop_front()?;
        if let Some(count) = self.pending_of.get_mut(&ack.token) {
            *count -= ack.what.weight();
            if *count == 0 {
                self.pending_of.remove(&ack.token);
            }
        }
        Some(ack)
    }
}

impl Driver {
    /// Takes over what an earlier controller left; as the first since the machine was started, or not. So many jobs are
    /// known to have been made.
    pub(super) fn remember(&mut self, history: History, is_first: bool, jobs_known: u64) {
        let lacks_something = history.remark.is_some();
        if let Some(remark) = &history.remark {
            error!(code = %Code::JournalDamaged, "{remark}");
        }
        if let Some(entry) = history.differs_at {
            info!(
                "this release decides otherwise than the one that wrote the journal, from entry \
                 {entry} on (`tutti replay` says what): jobs are now as it would have them, as far as their nodes agree"
            );
        }
        let Some(core) = history.core else {
            self.controller_started(self.memory.journal.noted());
            return self.take_count(lacks_something, jobs_known);
        };
        let ended_well = core.is_stopping();
        self.core = core;
        // An entry of its beginning follows.
        self.controller_started(self.memory.journal.noted() + 1);
        let mut former = launch_store::Former::new(history.chunks);
        for (job, launched) in history.jobs {
            self.remember_job(job, launched, &mut former);
        }
        for chunk in former.rest() {
            self.memory.journal.drop_chunk(chunk);
        }
        self.note_given_up(self.users.shelves.values().map(launch_store::Shelf::bytes).sum());
        self.remember_nodes(history.keepers);
        for node in history.bad_keepers {
            let node = self.node_name(node);
            error!(code = %Code::JournalDamaged, "what the journal keeps of the keeper of {node} is not what was written");
        }
        self.remember_ended();
        let (jobs, entries) = (self.jobs.len(), history.replayed);
        info!("jobs taken over: {jobs}; entries of the journal replayed: {entries}");
        // What it knows it may say only when that is on disk.
        self.memory.journal.want_on_disk();
        if lacks_something || !ended_well && (is_first || self.memory.has_gap) {
            // What was accepted and launched last may have been forgotten, and nodes may have it. Before anything else:
            // whatever happens may be a cause for a job to begin.
            self.leave_out_numbers(jobs_known);
            self.regain_lost_nodes();
        }
        self.apply(&Event::Began);
        self.miss_nodes();
        if ended_well {
            // It told all agents to end, and readers that the instance does.
            self.monitoring.events.lose_all();
            for node in self.cluster.nodes.keys().copied().collect::<Vec<_>>() {
                self.lose_node(node, Gone::Down);
            }
        }
        self.due.wake_at = self.core.wake_at();
        self.watch_calendar();
        self.watch_history();
    }

    /// Numbers that jobs may have had which are forgotten are not given again.
    fn leave_out_numbers(&mut self, jobs_known: u64) {
        let made = self.core.jobs_made().max(jobs_known);
        self.apply(&Event::Forgot { job: JobId(made.saturating_add(NUMBERS_LEFT_OUT)) });
        self.memory.numbered_from = self.memory.journal.noted();
        self.memory.journal.skip_published(super::events::NUMBERS_LEFT_OUT);
        self.ask_disk_now();
    }

    /// Job numbers go on after those of the instance before. Its journal was removed, or renamed
    /// with its jobs released, or is gone.
    fn take_count(&mut self, is_gone: bool, jobs_known: u64) {
        let made = self.instance.count_file().and_then(|file| std::fs::read_to_string(file).ok());
        let made: Option<u64> = made.and_then(|made| made.trim().parse().ok());
        let made = made.max(Some(self.memory.released.0).filter(|&released| released > 0));
        if is_gone {
            self.leave_out_numbers(jobs_known.max(made.unwrap_or(0)));
        } else if let Some(made) = made {
            self.apply(&Event::Forgot { job: JobId(made) });
        } else {
            return;
        }
        self.apply(&Event::Began);
    }

    /// Has the next controller know how far the journal goes.
    pub(super) fn say_reach(&self) {
        if let Some(file) = &self.memory.reach {
            let known = self.memory.journal.known();
            file.say(Reach { known, jobs: self.core.jobs_made() });
        }
    }

    /// Has the next instance know it.
    pub(super) fn leave_count(&self) {
        let Some(file) = self.instance.count_file() else { return };
        if let Err(error) = std::fs::write(&file, format!("{}\n", self.core.jobs_made())) {
            warn!(code = %Code::System, "cannot write {}: {error}", file.display());
        }
    }

    fn remember_job(
        &mut self,
        mut job: Job,
        launched: Option<ClusterTime>,
        former: &mut launch_store::Former,
    ) {
        let (id, now) = (job.job, self.now());
        // A release that decides otherwise may have given a number to another's job.
        let owner = self.core.array(id).map(|view| view.spec.owner);
        let owner = owner.or_else(|| self.core.job(id, now).map(|view| view.spec.owner));
        if owner.is_some_and(|owner| owner.0 != job.credentials.uid) {
            warn!("job {id} is of another user than in its row of the journal; the row is dropped");
            return self.memory.journal.drop_job(id);
        }
        if let Some(view) = self.core.array(id) {
            let shelf = self.users.shelves.entry(job.credentials.uid).or_default();
            let (name, segments) = (std::mem::take(&mut job.name), std::mem::take(&mut job.launch));
            let beside = notify_bytes(job.notify.as_ref());
            let launch = shelf.take_over((name, beside), segments, former);
            let mut entry = Entry::new(job, (view.spec, view.first), view.queue, launch);
            entry.terms.array = Some(view.array.clone());
            entry.shown = self.shown_of(id, view.spec, entry.times.accepted_ms);
            self.users.submitted.note(entry.owner.uid(), entry.owner.key, id);
            self.arrays.insert(id, Box::new(entry));
            return;
        }
        let element = self.element(id);
        let Some(view) = self.core.job(id, now) else {
            // Its acceptance was cut off with a torn end.
            return self.memory.journal.drop_job(id);
        };
        let shelf = self.users.shelves.entry(job.credentials.uid).or_default();
        let (name, segments) = (std::mem::take(&mut job.name), std::mem::take(&mut job.launch));
        let beside = notify_bytes(job.notify.as_ref());
        let launch = shelf.take_over((name, beside), segments, former);
        let mut entry = Entry::new(job, (view.spec, view.first), view.queue, launch);
        if element.is_some() {
            entry.terms.be_element(element);
        }
        entry.times.started = launched;
        entry.terms.note_processors(&view.placements);
        entry.clients = Clients::of_before(launched.is_some());
        entry.requeues = view.requeues;
        entry.run.start_on(view.placements.iter().map(|part| part.node).collect());
        entry.saving = Saving::of_before(self.core.image_of(id));
        entry.shown = self.shown_again(id, &entry);
        if view.spec.attached {
            // It may be on a node that is out of reach.
            let until = self.core.lost_at(now, now, now).max(now + FRONT_PATIENCE);
            self.memory.abandoned.insert(id, Abandoned { until, node: None });
        }
        self.users.submitted.note(entry.owner.uid(), entry.owner.key, id);
        self.jobs.insert(id, Box::new(entry));
        self.note_checkpoint(id);
    }

    /// Their agents are on their way.
    fn remember_nodes(&mut self, keepers: Vec<Keeper>) {
        let mut keepers: BTreeMap<NodeId, Keeper> =
            keepers.into_iter().map(|keeper| (keeper.node, keeper)).collect();
        for view in self.core.nodes() {
            let mut entry = NodeEntry::named(view.spec.name.clone());
            if let Some(keeper) = keepers.remove(&view.id) {
                entry.is_here = keeper.is_here;
                entry.attach = keeper.attach;
                entry.address = keeper.address;
                entry.keeper = Some(keeper.incarnation);
                entry.keeper_since = keeper.since;
            }
            entry.timetable = self.core.timetable(view.id);
            self.cluster.nodes.insert(view.id, entry);
            self.cluster.next_node = self.cluster.next_node.max(view.id.0.saturating_add(1));
        }
        self.remember_steps();
        for view in self.core.jobs(self.now()) {
            if matches!(view.state, JobState::Queued { .. }) {
                continue;
            }
            let started = self.jobs.get(&view.id).and_then(|entry| entry.times.started);
            for part in &view.placements {
                if let Some(entry) = self.cluster.nodes.get_mut(&part.node) {
                    let launch = self.core.launch_on(view.id, part.node);
                    entry.launches.launched.insert(launch);
                    // What a keeper before this one had begun ended with it, though that was not heard.
                    if started.is_some_and(|started| started >= entry.keeper_since) {
                        entry.launches.remembered.insert(launch);
                    }
                }
            }
        }
    }

    fn remember_ended(&mut self) {
        let all = EndedSpan::default();
        let ended = self.memory.journal.ended(&all, super::jobs::ENDED_MAX);
        self.say_left_out();
        match ended {
            Ok(ended) => {
                for job in ended.into_iter().rev() {
                    self.users.submitted.note(job.uid, job.key, job.report.job);
                    self.ends.ended.push(Ended::from(job));
                }
            }
            Err(error) => {
                warn!(code = %code_of_journal(&error), "{error}");
            }
        }
    }

    /// Says which jobs are missing in histories.
    pub(super) fn say_left_out(&mut self) {
        for job in self.memory.journal.left_out() {
            error!(code = %Code::JournalDamaged, "job {job} is left out of histories: what the journal keeps of it is not what was written");
        }
    }

    // ------------------------------------------------------------------ what the next one will need

    /// Notes how a node that has joined is reached.
    pub(super) fn note_keeper(&mut self, node: NodeId) {
        let Some(entry) = self.cluster.nodes.get(&node) else { return };
        let (attach, address) = (entry.attach.clone(), entry.address.clone());
        let (incarnation, is_here) = (entry.keeper.unwrap_or_default(), entry.is_here);
        let since = entry.keeper_since;
        let keeper = Keeper { node, incarnation, attach, address, is_here, since };
        self.memory.journal.note_keeper(&keeper);
    }

    /// Tells a client that its job is accepted, as soon as a loss of power would not change that.
    pub(super) fn accept_when_stored(&mut self, token: u64, job: JobId) {
        self.memory.keep_back(token, Ack::Job(job));
    }

    /// Stores what was noted; nothing that rests on it may have been sent before.
    pub(super) fn store(&mut self) {
        let failed_before = self.memory.journal.failure().is_some();
        self.number_events();
        self.memory.journal.store(&self.core);
        self.note_gap();
        let begun = std::mem::take(&mut self.memory.begun);
        let changed = std::mem::take(&mut self.memory.changed);
        let failure = self.memory.journal.failure().map(str::to_owned);
        for Changed { token, replies } in changed {
            for reply in replies {
                let reply = failure.iter().fold(reply, |reply, why| not_kept(reply, why));
                self.reply(token, &reply);
            }
        }
        match failure {
            None => {
                if !self.memory.pending.is_empty() {
                    self.memory.journal.want_on_disk();
                }
                for Begun { token, replies, .. } in begun {
                    replies.iter().for_each(|reply| self.send_reply(token, reply));
                }
            }
            Some(reason) => {
                if !failed_before {
                    error!(code = %Code::JournalUnusable, "{reason}; no job is accepted until then");
                }
                self.fail_pending(&reason);
                begun.into_iter().for_each(|begun| self.turn_away(&begun, &reason));
            }
        }
    }

    /// Has the controller after this one know whether what is done now is in the journal.
    fn note_gap(&mut self) {
        let has_gap = self.memory.journal.failure().is_some();
        if has_gap != self.memory.has_gap {
            self.memory.has_gap = has_gap;
            if self.clock.has_clock_file {
                super::time_base::note_gap(&self.instance, has_gap);
            }
        }
    }

    /// More has reached the disk.
    pub(super) fn on_disk(&mut self) {
        self.memory.journal.woken();
        self.say_reach();
        let (reached, failure) = self.memory.journal.on_disk();
        while let Some(PendingAck { token, what, .. }) = self.memory.next_kept(reached) {
            match what {
                Ack::Reply(reply) => self.send_reply(token, &reply),
                Ack::Job(job) => {
                    let waits = report::why_it_waits(self, job);
                    self.send_reply(token, &Reply::Accepted { job, waits });
                }
            }
        }
        self.forget_up_to(reached);
        self.take_early();
        if let Some(failure) = failure {
            let reason = not_on_disk(&failure);
            error!(code = %Code::JournalUnusable, "{reason}");
            self.fail_pending(&reason);
        }
    }

    /// Jobs that could be forgotten are not begun, or not gone on with.
    fn fail_pending(&mut self, reason: &str) {
        while let Some(PendingAck { token, what, .. }) = self.memory.next_kept(Number::MAX) {
            match what {
                Ack::Reply(reply) => self.send_reply(token, &reply),
                Ack::Job(job) => {
                    let reason = format!("job {job} is cancelled, since {reason}");
                    self.send_reply(token, &Problem::new(Code::JournalUnusable, reason).failed());
                    let reason = EndReason::Cancelled;
                    self.apply(&Event::Cancel { job, reason, at_once: true });
                }
            }
        }
    }

    /// A front end's job that a controller after this one would not know is not begun.
    fn turn_away(&mut self, &Begun { token, job, .. }: &Begun, reason: &str) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.clients.lose_front();
        }
        let reason = format!("no job is accepted at present: {reason}");
        self.send_reply(token, &Problem::new(Code::JournalUnusable, reason).failed());
        let reason = EndReason::Cancelled;
        self.apply(&Event::Cancel { job, reason, at_once: true });
    }

    /// A front end is back at the job whose controller ended.
    pub(super) fn on_return(&mut self, token: u64, uid: u32, job: JobId) {
        if self.is_ended_for(token, uid, job) {
            return;
        }
        let now = self.now();
        let front = self.core.job(job, now).is_some_and(|view| view.spec.attached);
        let taken = self.jobs.get(&job).is_none_or(|entry| entry.clients.front().is_some());
        if !front || taken {
            let reason = format!("job {job} does not wait for a front end");
            return self.fail(token, Problem::new(Code::Improper, reason));
        }
        self.memory.abandoned.remove(&job);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.clients.meet_front(token);
        }
        self.be_front(token, job);
        self.tell_why_it_waited(token, job);
    }

    /// The way to a job's front end broke, or it is gone.
    pub(super) fn await_front(&mut self, job: JobId, node: NodeId) {
        let until = self.now() + FRONT_MOMENT;
        if self.jobs.contains_key(&job) {
            self.memory.abandoned.insert(job, Abandoned { until, node: Some(node) });
        }
    }

    /// Front ends that have not come back will not.
    pub(super) fn give_up_fronts(&mut self, now: ClusterTime) {
        let late = Abandoned::late(&mut self.memory.abandoned, now, &self.cluster.nodes);
        for job in late {
            self.memory.abandoned.remove(&job);
            self.apply(&Event::FrontEndLost { job });
        }
        self.give_up_steps(now);
    }

    /// What a job that has ended leaves.
    pub(super) fn note_end(&mut self, ended: &Ended, details: Option<&Details>) {
        self.memory.abandoned.remove(&ended.report.job);
        let ended = EndedJob {
            report: ended.report.clone(),
            uid: ended.uid,
            gid: ended.gid,
            key: ended.key,
            time_limit: ended.time_limit,
            outcome: ended.outcome,
            accepted: ended.accepted,
            at: ended.at,
            accepted_ms: ended.accepted_ms,
            ended_ms: ended.ended_ms,
            tasks: ended.tasks.clone(),
        };
        self.memory.journal.note_end(&ended, details);
    }
}

/// What is said instead of that something is done, if the next controller would not know of it.
fn not_kept(reply: Reply, why: &str) -> Reply {
    if matches!(reply, Reply::Failed { .. } | Reply::Declined { .. }) {
        return reply;
    }
    let reason = format!(
        "it is done, but only until the controller is started again, which may undo it: {why}"
    );
    Problem::new(Code::JournalUnusable, reason).failed()
}

fn not_on_disk(failure: &str) -> String {
    format!("the journal can't be brought to disk: {failure}")
}

impl From<EndedJob> for Ended {
    fn from(job: EndedJob) -> Self {
        let EndedJob { report, uid, gid, key, time_limit, outcome, .. } = job;
        let EndedJob { accepted, at, accepted_ms, ended_ms, tasks, .. } = job;
        Self {
            report,
            accepted,
            at,
            accepted_ms,
            ended_ms,
            uid,
            gid,
            key,
            time_limit,
            outcome,
            tasks,
        }
    }
}
