//! What the program knows, what is new to it, and what of its answers becomes an event.
//!
//! A driver tells the session of each event that the core has taken in ([`Session::note`]), asks it
//! for the next line ([`Session::line`]) when [`Session::due`] says so and the program has answered
//! the last, and puts the answer in ([`Session::take`]). Then [`Session::next`] gives the events
//! that follow, one at a time: each was checked against the core as it is just then.
//!
//! What is kept is bounded by the jobs and nodes that there are: news are noted as *what* is
//! otherwise, and told as it is when the line is made. A line has a bounded number of news, so a
//! user that submits many jobs makes more rounds, not longer ones.
//!
//! Jobs with which the program failed twice are left to the built-in policy ([`Session::failed`]):
//! so no job can keep the program out for good.

use crate::bounds::{Rate, TaskEnds, Timers};
use crate::parts::Parts;
use crate::protocol::{
    Answer, Greeting, Hello, Item, Mode, News, PROTOCOL, PlaceNews, RequestNews, Round, RowFree,
    to_line,
};
use crate::rest::Rest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tutti_core::{Core, Event, Order};
use tutti_types::{ClusterTime, JobId, Nanos, NodeId, RowId};

/// News in one line.
const NEWS_MAX: usize = 500;

/// News of which a program that yields hears at once; fewer wait for more, so long at most.
const YIELDING_NEWS: usize = 100;
const YIELDING_AFTER: Nanos = Nanos::from_secs(60);

/// Nodes that an event of a start names in all; beyond that, they come with the nodes' own news.
const PLACES_MAX: usize = 4096;

/// Refusals that are kept for the next line.
const REFUSED_MAX: usize = 1000;

/// How long after an answer whose only news are refusals the next round comes: doubled each time.
const REFUSALS_AFTER: Nanos = Nanos::from_millis(10);

/// After so many such rounds, refusals wait for other news.
const REFUSAL_ROUNDS_MAX: u32 = 8;

/// Orders that are no starts: how many at once, and how many in each second.
const CHANGES_BURST: u64 = 1000;
const CHANGES_PER_SECOND: u64 = 200;

/// What the program knows of a job that has been placed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    row: Option<RowId>,
    nodes: Vec<NodeId>,
}

/// An order that was not done.
#[derive(Clone, Debug)]
struct Refused {
    round: u64,
    index: usize,
    job: Option<JobId>,
    reason: String,
}

/// The conversation with one program, over all its lives.
#[derive(Clone, Debug)]
pub struct Session {
    mode: Mode,
    greeting: Greeting,
    round: u64,
    /// Whether a line awaits its answer.
    asked: bool,
    /// Whether all was told once, and answered.
    caught_up: bool,
    /// Whether the program wants the built-in policy to go on.
    yields: bool,
    /// Whether the program has nothing to decide.
    rest: Rest,
    line: BTreeSet<JobId>,
    line_news: BTreeSet<JobId>,
    homes: BTreeMap<JobId, Told>,
    home_news: BTreeSet<JobId>,
    /// Those started by an order, of which no news came yet.
    started: BTreeSet<JobId>,
    nodes: BTreeSet<NodeId>,
    node_news: BTreeSet<NodeId>,
    task_ends: TaskEnds,
    /// Since when there are news that the program does not know.
    news_since: Option<ClusterTime>,
    timers: Timers,
    refused: Vec<Refused>,
    refusal_rounds: u32,
    refusals_due: ClusterTime,
    items: VecDeque<(usize, Item)>,
    rate: Rate,
    /// The requests in the latest line.
    latest: Vec<JobId>,
    /// How many requests a line may have: fewer after the program has failed.
    requests_max: usize,
    /// The jobs with which the program failed alone, and those that it does not get any more.
    suspects: BTreeSet<JobId>,
    left: BTreeSet<JobId>,
    /// Those of the latter that the core does not know about yet.
    to_leave: BTreeSet<JobId>,
    answers: u64,
    orders: u64,
    /// Its parts on nodes.
    parts: Parts,
}

impl Session {
    /// A session with a program that has not been started.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            greeting: Greeting::default(),
            round: 0,
            asked: false,
            caught_up: false,
            yields: false,
            rest: Rest::default(),
            line: BTreeSet::new(),
            line_news: BTreeSet::new(),
            homes: BTreeMap::new(),
            home_news: BTreeSet::new(),
            started: BTreeSet::new(),
            nodes: BTreeSet::new(),
            node_news: BTreeSet::new(),
            task_ends: TaskEnds::of_at_most(usize::MAX),
            news_since: None,
            timers: Timers::default(),
            refused: Vec::new(),
            refusal_rounds: 0,
            refusals_due: ClusterTime::NEVER,
            items: VecDeque::new(),
            rate: Rate::new(CHANGES_BURST, CHANGES_PER_SECOND),
            latest: Vec::new(),
            requests_max: NEWS_MAX,
            suspects: BTreeSet::new(),
            left: BTreeSet::new(),
            to_leave: BTreeSet::new(),
            answers: 0,
            orders: 0,
            parts: Parts::default(),
        }
    }

    /// The program's parts on nodes.
    pub const fn parts(&mut self) -> &mut Parts {
        &mut self.parts
    }

    /// The first line for a program that was just started.
    #[must_use]
    pub fn hello(&self, core: &Core) -> String {
        let hello = Hello {
            message: "hello",
            protocol: PROTOCOL,
            mode: self.mode,
            now_ns: core.now().0,
            rows_max: core.rows_max(),
            quantum_ns: core.params().quantum().0,
            processors: core.free_in_new_row(),
            classes: core.classes().keys().map(|class| &*class.0).collect(),
        };
        to_line(&hello)
    }

    /// The program has answered the first line: it gets all that there is.
    pub fn begin(&mut self, greeting: Greeting, core: &Core) {
        let fresh = Self::new(self.mode);
        let (requests_max, round, rate) = (self.requests_max, self.round, self.rate.clone());
        let (suspects, left) = (self.suspects.clone(), self.left.clone());
        let (answers, orders) = (self.answers, self.orders);
        let parts = self.parts.renewed();
        *self = Self { greeting, requests_max, round, rate, suspects, left, parts, ..fresh };
        (self.answers, self.orders) = (answers, orders);
        self.left.retain(|job| core.job_count() > 0 && core.request(*job).is_some());
        self.to_leave = self.left.clone();
        self.line_news = core.requests().collect();
        self.home_news = core.placed().collect();
        if greeting.places {
            self.node_news = core.node_numbers().collect();
        }
    }

    /// The core has taken in an event.
    pub fn note(&mut self, core: &Core, event: &Event) {
        self.line_news.extend(core.line_touched());
        for &job in core.homes_touched() {
            self.home_news.insert(job);
            if let (true, Some(told)) = (self.greeting.places, self.homes.get(&job)) {
                self.node_news.extend(&told.nodes);
            }
        }
        if let Event::TasksEnded { job, ranks, .. } = event {
            self.task_ends.note(*job, ranks.iter().copied());
        }
        let about_nodes = self.greeting.places && self.note_nodes(core, event);
        self.rest.note(core, event, about_nodes, &self.line);
        if self.news_since.is_none() && self.has_news() {
            self.news_since = Some(core.now());
        }
    }

    /// Notes the nodes that an event makes others than they were; those of the jobs that it moves
    /// were noted. Gives whether there are any.
    fn note_nodes(&mut self, core: &Core, event: &Event) -> bool {
        match event {
            Event::NodeJoined { node, .. }
            | Event::NodeOutOfReach { node }
            | Event::NodeLost { node }
            | Event::NodeRemoved { node }
            | Event::SetDrained { node, .. } => drop(self.node_news.insert(*node)),
            event if may_change_any_node(event) => {
                self.node_news.extend(core.node_numbers());
                self.node_news.extend(&self.nodes);
            }
            _ => return false,
        }
        true
    }

    fn has_news(&self) -> bool {
        !(self.line_news.is_empty()
            && self.home_news.is_empty()
            && self.node_news.is_empty()
            && self.task_ends.is_empty())
    }

    /// Since when and for how long news wait for more: those for a program that yields, which does
    /// nothing about most of them.
    fn gathers_since(&self) -> Option<ClusterTime> {
        let may_wait = self.yields && self.caught_up && self.parts.is_silent();
        self.news_since.filter(|_| may_wait && self.count_of_news() < YIELDING_NEWS)
    }

    /// Whether news wait for what the program waits for.
    fn rests(&self) -> bool {
        let may_wait = self.rest.holds() && self.caught_up && self.parts.is_silent();
        may_wait && self.count_of_news() < NEWS_MAX
    }

    fn count_of_news(&self) -> usize {
        self.line_news.len() + self.home_news.len() + self.node_news.len()
    }

    /// The program is dead, late or wrong. If it had one request in its hands, and failed with that
    /// before, the built-in policy gets that job.
    pub fn failed(&mut self) {
        if let ([job], true) = (&self.latest[..], self.asked)
            && !self.suspects.insert(*job)
        {
            self.left.insert(*job);
        }
        if self.asked && !self.latest.is_empty() {
            self.requests_max = (self.latest.len() / 4).max(1);
        }
        self.asked = false;
        self.caught_up = false;
        self.items.clear();
        self.timers.clear();
        self.refused.clear();
        self.parts.forget_messages();
    }

    /// Whether a line awaits its answer.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.asked
    }

    /// Whether the latest answer has more to do.
    #[must_use]
    pub fn has_items(&self) -> bool {
        !self.items.is_empty()
    }

    /// The round of the latest line.
    #[must_use]
    pub const fn round(&self) -> u64 {
        self.round
    }

    /// How many rounds were answered, and how many orders done.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        (self.answers, self.orders)
    }

    /// When the next line is to be made; never, while there is nothing to tell.
    #[must_use]
    pub fn due(&self, now: ClusterTime) -> ClusterTime {
        if self.asked || !self.items.is_empty() {
            return ClusterTime::NEVER;
        }
        let others = self.timers.due().min(self.refusals_due);
        if self.rests() {
            return others;
        }
        if let Some(since) = self.gathers_since() {
            return others.min(since + YIELDING_AFTER);
        }
        let has_news = self.has_news() || !self.parts.is_silent();
        if has_news || !self.caught_up { now } else { others }
    }

    /// The next line.
    pub fn line(&mut self, core: &Core, now: ClusterTime) -> String {
        self.round += 1;
        self.asked = true;
        self.rest.asked(core.outside_decides());
        let mut events = Vec::new();
        self.node_news(core, &mut events);
        self.home_news(core, &mut events);
        self.line_news(core, &mut events);
        self.parts.news(NEWS_MAX, &mut events);
        let others = events.len();
        self.timer_news(now, &mut events);
        if others > 0 {
            self.refusal_rounds = 0;
        }
        self.refusals_due = ClusterTime::NEVER;
        for Refused { round, index, job, reason } in self.refused.drain(..) {
            events.push(News::Refused { round, index, job: job.map(|job| job.0), reason });
        }
        self.news_since = self.has_news().then_some(now);
        let more =
            !(self.line_news.is_empty() && self.home_news.is_empty() && self.node_news.is_empty());
        let rows: Vec<RowFree> =
            core.free_in_rows().map(|(row, free)| RowFree { row: row.0, free }).collect();
        let may_open = rows.len() < core.rows_max() as usize;
        to_line(&Round {
            message: "round",
            round: self.round,
            now_ns: now.0,
            in_charge: core.outside_decides(),
            rows_max: core.rows_max(),
            rows,
            new_row: may_open.then(|| core.free_in_new_row()),
            more,
            events,
        })
    }

    fn node_news<'a>(&mut self, core: &'a Core, events: &mut Vec<News<'a>>) {
        // A node that a job has come to or left is otherwise than before.
        let mut pending = std::mem::take(&mut self.home_news);
        if self.greeting.places {
            for &job in &pending {
                let parts = core.home(job).map_or(&[][..], |home| home.parts);
                self.node_news.extend(parts.iter().map(|part| part.node));
            }
        }
        self.home_news.append(&mut pending);
        if self.node_news.is_empty() {
            return;
        }
        while events.len() < NEWS_MAX {
            let Some(node) = self.node_news.pop_first() else { return };
            let Some(spec) = core.up_node(node) else {
                if self.nodes.remove(&node) {
                    events.push(News::NodeGone { node: node.0 });
                }
                continue;
            };
            self.nodes.insert(node);
            let whole = core.free_for_new(None, node);
            let free = core.free_in_rows().filter_map(|(row, _)| {
                let free = core.free_for_new(Some(row), node);
                (free != whole).then(|| (row.0, free.to_string()))
            });
            events.push(News::Node {
                node: node.0,
                name: &spec.name,
                processors: spec.processors.to_string(),
                memory_bytes: spec.memory_bytes,
                takes_jobs: !whole.is_empty(),
                free: free.collect(),
            });
        }
    }

    fn home_news(&mut self, core: &Core, events: &mut Vec<News<'_>>) {
        while events.len() < NEWS_MAX {
            let Some((job, count, ranks)) = self.task_ends.take() else { break };
            events.push(News::TasksEnded { job, count, ranks });
        }
        while events.len() < NEWS_MAX {
            let Some(job) = self.home_news.pop_first() else { return };
            let Some(home) = core.home(job) else {
                // One that the program does not know of came and went.
                if self.homes.remove(&job).is_some() || self.started.remove(&job) {
                    self.line.remove(&job);
                    events.push(News::Ended { job: job.0 });
                }
                continue;
            };
            let row = home.row;
            let nodes = || home.parts.iter().map(|part| part.node).collect();
            let nodes = if self.greeting.places { nodes() } else { Vec::new() };
            let told = self.homes.insert(job, Told { row, nodes });
            match told {
                Some(told) if told.row == row => {}
                Some(_) => events.push(News::Moved { job: job.0, row: row.map(|row| row.0) }),
                None => {
                    self.line.remove(&job);
                    self.started.remove(&job);
                    let count = |part: &tutti_core::Part| u64::from(part.processors.count());
                    let places = |part: &tutti_core::Part| PlaceNews {
                        node: part.node.0,
                        processors: part.processors.to_string(),
                    };
                    let places =
                        || home.parts.iter().take(PLACES_MAX).map(places).collect::<Vec<_>>();
                    events.push(News::Started {
                        job: job.0,
                        row: row.map(|row| row.0),
                        processors: home.parts.iter().map(count).sum(),
                        places: self.greeting.places.then(places),
                    });
                }
            }
        }
    }

    fn line_news<'a>(&mut self, core: &'a Core, events: &mut Vec<News<'a>>) {
        self.latest.clear();
        while events.len() < NEWS_MAX && self.latest.len() < self.requests_max {
            let Some(job) = self.line_news.pop_first() else { break };
            let request = core.request(job).filter(|_| !self.left.contains(&job));
            let Some(request) = request else {
                if self.line.remove(&job) {
                    events.push(News::Gone { job: job.0 });
                }
                continue;
            };
            if !self.line.insert(job) {
                continue;
            }
            self.latest.push(job);
            let spec = request.spec;
            events.push(News::Request(Box::new(RequestNews {
                job: job.0,
                user: spec.owner.0,
                group: spec.group.0,
                class: &spec.class.0,
                tasks: spec.tasks,
                processors: request.processors,
                processors_per_task: spec.processors_per_task,
                memory_per_task_bytes: spec.memory_per_task_bytes,
                time_limit_ns: spec.time_limit.map(|limit| limit.0),
                deadline_ns: request.deadline.map(|at| at.0),
                since_ns: request.since.0,
                args: request.args.iter().map(|(name, value)| (&**name, &**value)).collect(),
            })));
        }
    }

    fn timer_news(&mut self, now: ClusterTime, events: &mut Vec<News<'_>>) {
        while events.len() < NEWS_MAX
            && let Some(tag) = self.timers.take(now)
        {
            events.push(News::Timer { tag });
        }
    }

    /// Puts an answer in; [`Session::next`] gives what follows.
    pub fn take(&mut self, answer: Answer) {
        self.asked = false;
        self.answers += 1;
        self.suspects.retain(|job| !self.latest.contains(job));
        if self.caught_up {
            // Not before: a job that fails the program has to come alone.
            self.requests_max = (self.requests_max * 2).min(NEWS_MAX);
        }
        let is_behind = !(self.line_news.is_empty() && self.home_news.is_empty());
        self.caught_up |= !is_behind && self.node_news.is_empty();
        self.items = answer.items.into_iter().enumerate().collect();
        self.rest.begin(answer.until);
    }

    /// The next event that follows from the answer; `None`: there is none, or none any more.
    pub fn next(&mut self, core: &Core, now: ClusterTime) -> Option<Event> {
        let decides = self.caught_up && !self.yields;
        if core.outside_decides() != decides && core.is_external() {
            return Some(Event::PolicyInCharge { on: decides });
        }
        while core.outside_decides()
            && let Some(job) = self.to_leave.pop_first()
        {
            let order = Order::Leave { job };
            if core.check_order(&order).is_ok() {
                return Some(Event::PolicyOrder { order });
            }
        }
        while let Some((index, item)) = self.items.pop_front() {
            match item {
                Item::Order(order) => match self.check(core, now, &order) {
                    Ok(()) => {
                        self.orders += 1;
                        if let Order::Start { job, .. } = order {
                            self.started.insert(job);
                        }
                        return Some(Event::PolicyOrder { order });
                    }
                    Err(reason) => self.refuse(now, index, order.job(), reason),
                },
                Item::Timer(when, tag) => {
                    if let Err(reason) = self.timers.set(now, when, tag) {
                        self.refuse(now, index, None, reason);
                    }
                }
                Item::Message(node, text) => {
                    if let Err(reason) = self.parts.send(core, now, (node, text)) {
                        self.refuse(now, index, None, reason);
                    }
                }
                Item::Yield | Item::TakeCharge => {
                    let yields = item == Item::Yield;
                    if self.yields != yields && !self.rate.take(now) {
                        self.refuse(now, index, None, too_often());
                    } else if self.yields != yields {
                        self.yields = yields;
                        let on = self.caught_up && !yields;
                        if core.outside_decides() != on && core.is_external() {
                            return Some(Event::PolicyInCharge { on });
                        }
                    }
                }
            }
        }
        self.rest.check(core, &self.line_news, &self.line);
        None
    }

    fn check(&mut self, core: &Core, now: ClusterTime, order: &Order) -> Result<(), String> {
        core.check_order(order).map_err(|refusal| refusal.to_string())?;
        if !order.is_final() && !self.rate.take(now) {
            return Err(too_often());
        }
        Ok(())
    }

    fn refuse(&mut self, now: ClusterTime, index: usize, job: Option<JobId>, reason: String) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(Refused { round: self.round, index, job, reason });
        }
        if self.refusals_due == ClusterTime::NEVER && self.refusal_rounds < REFUSAL_ROUNDS_MAX {
            self.refusals_due = now + Nanos(REFUSALS_AFTER.0 << self.refusal_rounds);
            self.refusal_rounds += 1;
        }
    }
}

fn too_often() -> String {
    format!("at most {CHANGES_PER_SECOND} orders in a second may be others than starts")
}

/// Whether an event may make any node another than it was, or what is free on it.
const fn may_change_any_node(event: &Event) -> bool {
    matches!(
        event,
        Event::Began
            | Event::Forgot { .. }
            | Event::TimedDue { .. }
            | Event::ShutDown
            | Event::GoDown
            | Event::RollOut { .. }
            | Event::RollIn
    )
}
