//! The part of a policy on a node: the lines between an agent and the program there, what that
//! knows and what is new to it.
//!
//! It gets the timetable of its node, ends of tasks, timers, and messages of the program at the
//! controller. It orders which candidates of a slot come first on this node, and what becomes of
//! their empty time. Whether an order can be done is the core's to say ([`tutti_core::Order`]).

use crate::bounds::{Rate, TaskEnds, Timers, When};
use crate::protocol::{Mode, PROTOCOL, Wrong, checked_message, orders_of, timer, to_line};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tutti_types::limits::POLICY_CANDIDATES_MAX;
use tutti_types::{ClusterTime, IfAbsent, JobId, NodeId, Rank, RowId, Timetable};

/// Messages that wait for the next line, and refusals.
const MESSAGES_MAX: usize = 100;
const REFUSED_MAX: usize = 100;

/// Jobs of which ends of tasks wait for the next line.
const ENDS_MAX: usize = 1000;

/// Orders and messages to the controller: how many at once, and how many in each second.
const BURST: u64 = 100;
const PER_SECOND: u64 = 10;

#[derive(Debug, Serialize)]
struct NodeHello<'a> {
    message: &'a str,
    protocol: u32,
    part: &'a str,
    mode: Mode,
    now_ns: u64,
    node: u32,
    name: &'a str,
}

#[derive(Debug, Serialize)]
struct NodeRound<'a> {
    message: &'a str,
    round: u64,
    now_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timetable: Option<TimetableNews>,
    events: Vec<NodeNews>,
}

#[derive(Debug, Serialize)]
struct TimetableNews {
    activates_ns: u64,
    epoch_ns: u64,
    slots: Vec<SlotNews>,
}

#[derive(Debug, Serialize)]
struct SlotNews {
    row: u64,
    length_ns: u64,
    candidates: Vec<CandidateNews>,
}

#[derive(Debug, Serialize)]
struct CandidateNews {
    job: u64,
    processors: String,
    if_absent: Empty,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum NodeNews {
    /// Tasks of a job have ended here.
    TasksEnded { job: u64, count: u64, ranks: Vec<u32> },
    /// The program at the controller sends a message.
    Message { text: String },
    /// So many messages did not come: there were too many.
    MessagesLost { count: u64 },
    /// A timer has come.
    Timer { tag: String },
    /// An order was not done.
    Refused { round: u64, index: u32, reason: String },
}

/// What becomes of the processors of a job that is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Empty {
    Hold,
    #[default]
    Down,
}

#[derive(Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
enum RawOrder {
    Arrange {
        #[serde(default)]
        row: Option<u64>,
        #[serde(default)]
        candidates: Vec<RawCandidate>,
    },
    Message {
        text: String,
    },
    Timer {
        #[serde(default)]
        after_ns: Option<u64>,
        #[serde(default)]
        at_ns: Option<u64>,
        #[serde(default)]
        tag: String,
    },
}

#[derive(Deserialize)]
struct RawCandidate {
    job: u64,
    #[serde(default)]
    if_absent: Empty,
}

/// One thing in an answer of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Out(Out),
    Timer(When, String),
}

/// What a part wants of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Another order of a slot's candidates.
    Arrange {
        /// Of which row; `None`: in all rows the built-in order holds again.
        row: Option<RowId>,
        /// What comes first, in this order.
        candidates: Vec<(JobId, IfAbsent)>,
    },
    /// A message to the program at the controller.
    Message(String),
}

/// An answer of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAnswer {
    items: Vec<Item>,
}

/// Reads the answer of a part to a round.
///
/// # Errors
/// If it is none, or holds too much.
pub fn parse_node_answer(line: &[u8], asked: u64) -> Result<NodeAnswer, Wrong> {
    let items = orders_of(line, asked)?.into_iter().map(item).collect::<Result<_, _>>()?;
    Ok(NodeAnswer { items })
}

fn item(raw: RawOrder) -> Result<Item, Wrong> {
    Ok(match raw {
        RawOrder::Arrange { candidates, .. } if candidates.len() > POLICY_CANDIDATES_MAX => {
            let reason = format!("at most {POLICY_CANDIDATES_MAX} candidates have an order");
            return Err(Wrong::Malformed(reason));
        }
        RawOrder::Arrange { row, candidates } => {
            let candidate = |it: RawCandidate| {
                let if_absent = match it.if_absent {
                    Empty::Hold => IfAbsent::Hold,
                    Empty::Down => IfAbsent::Down,
                };
                (JobId(it.job), if_absent)
            };
            let candidates = candidates.into_iter().map(candidate).collect();
            Item::Out(Out::Arrange { row: row.map(RowId), candidates })
        }
        RawOrder::Message { text } => Item::Out(Out::Message(checked_message(text)?)),
        RawOrder::Timer { after_ns, at_ns, tag } => {
            let (when, tag) = timer(after_ns, at_ns, tag)?;
            Item::Timer(when, tag)
        }
    })
}

/// The conversation with the part on one node, over all its lives.
#[derive(Clone, Debug)]
pub struct NodeSession {
    mode: Mode,
    node: NodeId,
    name: String,
    round: u64,
    /// Whether a line awaits its answer.
    asked: bool,
    timetable: Timetable,
    /// Whether the program has yet to get that.
    is_new: bool,
    task_ends: TaskEnds,
    messages: VecDeque<String>,
    lost: u64,
    timers: Timers,
    refused: VecDeque<(u64, u32, String)>,
    items: VecDeque<(u32, Item)>,
    rate: Rate,
}

impl NodeSession {
    /// A session with a program that has not been started.
    #[must_use]
    pub fn new(mode: Mode, node: NodeId, name: &str) -> Self {
        Self {
            mode,
            node,
            name: name.to_owned(),
            round: 0,
            asked: false,
            timetable: Timetable::default(),
            is_new: true,
            task_ends: TaskEnds::of_at_most(ENDS_MAX),
            messages: VecDeque::new(),
            lost: 0,
            timers: Timers::default(),
            refused: VecDeque::new(),
            items: VecDeque::new(),
            rate: Rate::new(BURST, PER_SECOND),
        }
    }

    /// The first line for a program that was just started.
    #[must_use]
    pub fn hello(&self, now: ClusterTime) -> String {
        to_line(&NodeHello {
            message: "hello",
            protocol: PROTOCOL,
            part: "node",
            mode: self.mode,
            now_ns: now.0,
            node: self.node.0,
            name: &self.name,
        })
    }

    /// The program has answered the first line, or failed: the next line has the timetable.
    pub fn begin(&mut self) {
        self.asked = false;
        self.is_new = true;
        self.task_ends.clear();
        self.timers.clear();
        self.refused.clear();
        self.items.clear();
    }

    /// The node has another timetable.
    pub fn note_timetable(&mut self, timetable: &Timetable) {
        if self.timetable != *timetable {
            self.timetable.clone_from(timetable);
            self.is_new = true;
        }
    }

    /// Tasks of a job have ended on the node.
    pub fn note_ends(&mut self, job: JobId, ranks: impl IntoIterator<Item = Rank>) {
        self.task_ends.note(job, ranks);
    }

    /// The program at the controller has sent this.
    pub fn take_in(&mut self, text: String) {
        if self.messages.len() >= MESSAGES_MAX {
            self.messages.pop_front();
            self.lost += 1;
        }
        self.messages.push_back(text);
    }

    /// An order was not done.
    pub fn refuse(&mut self, round: u64, index: u32, reason: String) {
        if self.refused.len() >= REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((round, index, reason));
    }

    /// Whether a line awaits its answer.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.asked
    }

    /// The round of the latest line.
    #[must_use]
    pub const fn round(&self) -> u64 {
        self.round
    }

    /// When the next line is to be made; never, while there is nothing to tell. Refusals wait for
    /// other news, so that no refused order makes a round of its own.
    #[must_use]
    pub fn due(&self, now: ClusterTime) -> ClusterTime {
        if self.asked || !self.items.is_empty() {
            return ClusterTime::NEVER;
        }
        let is_silent = self.messages.is_empty() && self.lost == 0 && self.task_ends.is_empty();
        if self.is_new || !is_silent { now } else { self.timers.due() }
    }

    /// The next line.
    pub fn line(&mut self, now: ClusterTime) -> String {
        self.round += 1;
        self.asked = true;
        let mut events = Vec::new();
        while let Some((job, count, ranks)) = self.task_ends.take() {
            events.push(NodeNews::TasksEnded { job, count, ranks });
        }
        if self.lost > 0 {
            events.push(NodeNews::MessagesLost { count: std::mem::take(&mut self.lost) });
        }
        events.extend(self.messages.drain(..).map(|text| NodeNews::Message { text }));
        while let Some(tag) = self.timers.take(now) {
            events.push(NodeNews::Timer { tag });
        }
        let refused = self.refused.drain(..);
        events.extend(refused.map(|(round, index, reason)| NodeNews::Refused {
            round,
            index,
            reason,
        }));
        let timetable = std::mem::take(&mut self.is_new).then(|| news_of(&self.timetable));
        let (message, round, now_ns) = ("round", self.round, now.0);
        to_line(&NodeRound { message, round, now_ns, timetable, events })
    }

    /// Puts an answer in; [`NodeSession::next`] gives what follows.
    pub fn take(&mut self, answer: NodeAnswer) {
        self.asked = false;
        self.items = (0..).zip(answer.items).collect();
    }

    /// What the part wants of the controller, with its place in the answer.
    pub fn next(&mut self, now: ClusterTime) -> Option<(u32, Out)> {
        while let Some((index, item)) = self.items.pop_front() {
            let refusal = match item {
                Item::Timer(when, tag) => self.timers.set(now, when, tag).err(),
                Item::Out(out) if self.rate.take(now) => return Some((index, out)),
                Item::Out(_) => Some(format!("at most {PER_SECOND} orders in a second")),
            };
            if let Some(reason) = refusal {
                self.refuse(self.round, index, reason);
            }
        }
        None
    }
}

fn news_of(timetable: &Timetable) -> TimetableNews {
    let slots = timetable.slots.iter().map(|slot| SlotNews {
        row: slot.row.0,
        length_ns: slot.length.0,
        candidates: slot
            .candidates
            .iter()
            .map(|it| CandidateNews {
                job: it.launch.job.0,
                processors: it.processors.to_string(),
                if_absent: match it.if_absent {
                    IfAbsent::Hold => Empty::Hold,
                    IfAbsent::Down => Empty::Down,
                },
            })
            .collect(),
    });
    TimetableNews {
        activates_ns: timetable.activates.0,
        epoch_ns: timetable.epoch.0,
        slots: slots.collect(),
    }
}
