//! The lines between Tutti and the program: `docs/reference/policy-protocol.md` describes them.

use crate::bounds::When;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tutti_core::{Order, RowChoice};
use tutti_types::limits::{POLICY_MESSAGE_BYTES_MAX, PROCESSORS_PER_NODE_MAX};
use tutti_types::{ClassName, ClusterTime, JobId, Nanos, NodeId, ProcessorSet, RowId};

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;

/// The longest line that a program may answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Orders in one answer.
pub const ORDERS_MAX: usize = 1000;

/// The length of the word that comes back with a timer, in bytes.
const TAG_BYTES_MAX: usize = 64;

/// Where the jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// On nodes, and time is real.
    Live,
    /// In a simulation.
    Simulation,
}

/// The first line to the program.
#[derive(Debug, Serialize)]
pub struct Hello<'a> {
    /// Always `hello`.
    pub message: &'a str,
    /// See [`PROTOCOL`].
    pub protocol: u32,
    /// Live or simulated.
    pub mode: Mode,
    /// Cluster time.
    pub now_ns: u64,
    /// The parameter `rows`.
    pub rows_max: u32,
    /// The parameter `quantum`.
    pub quantum_ns: u64,
    /// Of all nodes that are up.
    pub processors: u64,
    /// The names of the classes.
    pub classes: Vec<&'a str>,
}

/// What the program answers to the first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Greeting {
    /// Has to be [`PROTOCOL`].
    pub protocol: u32,
    /// Whether it wants to know nodes, and which processors jobs have; else it only gets counts.
    #[serde(default)]
    pub places: bool,
}

/// A round: what is new, for the program to answer.
#[derive(Debug, Serialize)]
pub(crate) struct Round<'a> {
    pub(crate) message: &'a str,
    pub(crate) round: u64,
    pub(crate) now_ns: u64,
    pub(crate) in_charge: bool,
    pub(crate) rows_max: u32,
    pub(crate) rows: Vec<RowFree>,
    /// How many processors a new row would have free; nothing if there may be none.
    pub(crate) new_row: Option<u64>,
    /// Whether more news follow with the next round.
    pub(crate) more: bool,
    pub(crate) events: Vec<News<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RowFree {
    pub(crate) row: u64,
    pub(crate) free: u64,
}

/// Processors of a node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlaceNews {
    pub(crate) node: u32,
    pub(crate) processors: String,
}

/// One thing that is new.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum News<'a> {
    /// A job is in line.
    Request(Box<RequestNews<'a>>),
    /// A job is in line no more, and was not started.
    Gone { job: u64 },
    /// A job has processors.
    Started {
        job: u64,
        row: Option<u64>,
        processors: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        places: Option<Vec<PlaceNews>>,
    },
    /// A job has its processors in another row, or in none.
    Moved { job: u64, row: Option<u64> },
    /// Some tasks of a job have ended.
    TasksEnded { job: u64, count: u64, ranks: Vec<u32> },
    /// A job has ended, and its processors are free.
    Ended { job: u64 },
    /// A node is new or otherwise than before.
    Node {
        node: u32,
        name: &'a str,
        processors: String,
        memory_bytes: u64,
        takes_jobs: bool,
        /// By row: what is free there. In a row that is not named, all processors are.
        free: BTreeMap<u64, String>,
    },
    /// A node is no more.
    NodeGone { node: u32 },
    /// A timer has come.
    Timer { tag: String },
    /// A part on a node sends a message.
    Message { node: u32, text: String },
    /// So many messages of parts did not come: there were too many.
    MessagesLost { count: u64 },
    /// An order was not done.
    Refused { round: u64, index: usize, job: Option<u64>, reason: String },
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestNews<'a> {
    pub(crate) job: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) class: &'a str,
    pub(crate) tasks: u32,
    pub(crate) processors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processors_per_task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_per_task_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_limit_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) since_ns: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) args: BTreeMap<&'a str, &'a str>,
}

/// Why an answer can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It is no JSON of this form.
    #[error("its answer is not what the protocol says: {0}")]
    Malformed(String),
    /// It answers another round than the one that was asked.
    #[error("it answered round {answered}, and round {asked} was asked")]
    OtherRound {
        /// Which was answered.
        answered: u64,
        /// Which was asked.
        asked: u64,
    },
    /// It speaks another version.
    #[error("it speaks version {0} of the protocol; this is version {PROTOCOL}")]
    OtherProtocol(u32),
    /// It orders too much at once.
    #[error("it gave {0} orders in one answer; at most {ORDERS_MAX} are possible")]
    TooMany(usize),
}

/// One thing in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An order for the core.
    Order(Order),
    /// The program wants to be asked at this time, with this word.
    Timer(When, String),
    /// A message to the part on a node, or to all of them.
    Message(Option<NodeId>, String),
    /// The built-in policy is to go on until the program says otherwise.
    Yield,
    /// The program decides again.
    TakeCharge,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The round that it is for.
    pub round: u64,
    /// In the order given.
    pub items: Vec<Item>,
    /// What the program waits for; `None`: any news.
    pub until: Option<Until>,
}

/// What a program waits for that has nothing to decide. Nothing: only for what is no news of jobs,
/// such as timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Until {
    /// A row, or a new one, has at least so many processors free.
    #[serde(default)]
    pub free: Option<u64>,
    /// A job that came into line since would fit a row, or a new one, by its processors.
    #[serde(default)]
    pub new_jobs: bool,
}

/// An answer with orders of some kind, as it stands in its line.
#[derive(Deserialize)]
struct RawAnswer<O, U> {
    round: u64,
    #[serde(default = "Vec::new")]
    orders: Vec<O>,
    /// Of parts on nodes it means nothing.
    until: Option<U>,
}

#[derive(Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
enum RawOrder {
    Start {
        job: u64,
        #[serde(default)]
        row: RawRow,
        #[serde(default)]
        places: Vec<RawPlace>,
    },
    Decline {
        job: u64,
        #[serde(default)]
        reason: String,
    },
    Move {
        job: u64,
        #[serde(default)]
        before: Option<u64>,
    },
    Preempt {
        job: u64,
    },
    Restore {
        job: u64,
    },
    Class {
        job: u64,
        class: String,
    },
    Leave {
        job: u64,
    },
    Timer {
        #[serde(default)]
        after_ns: Option<u64>,
        #[serde(default)]
        at_ns: Option<u64>,
        #[serde(default)]
        tag: String,
    },
    Message {
        #[serde(default)]
        node: Option<u32>,
        text: String,
    },
    Yield,
    TakeCharge,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum RawRow {
    Number(u64),
    Word(RowWord),
    #[default]
    Any,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RowWord {
    New,
    Any,
}

#[derive(Deserialize)]
struct RawPlace {
    node: u32,
    processors: String,
}

/// Reads the answer to the first line.
///
/// # Errors
/// If it is none, or of another version.
pub fn parse_greeting(line: &[u8]) -> Result<Greeting, Wrong> {
    let greeting: Greeting = serde_json::from_slice(line).map_err(malformed)?;
    match greeting.protocol {
        PROTOCOL => Ok(greeting),
        other => Err(Wrong::OtherProtocol(other)),
    }
}

/// Reads the answer to a round.
///
/// # Errors
/// If it is none, or holds too much.
pub fn parse_answer(line: &[u8], asked: u64) -> Result<Answer, Wrong> {
    let raw: RawAnswer<RawOrder, Until> = raw_answer(line, asked)?;
    let items = raw.orders.into_iter().map(item).collect::<Result<_, _>>()?;
    Ok(Answer { round: asked, items, until: raw.until })
}

/// The orders in the answer of a part on a node.
pub(crate) fn orders_of<O: DeserializeOwned>(line: &[u8], asked: u64) -> Result<Vec<O>, Wrong> {
    raw_answer::<O, IgnoredAny>(line, asked).map(|raw| raw.orders)
}

/// The answer to a round, if it is one and does not hold too much.
fn raw_answer<O: DeserializeOwned, U: DeserializeOwned>(
    line: &[u8],
    asked: u64,
) -> Result<RawAnswer<O, U>, Wrong> {
    let raw: RawAnswer<O, U> = serde_json::from_slice(line).map_err(malformed)?;
    if raw.round != asked {
        return Err(Wrong::OtherRound { answered: raw.round, asked });
    }
    if raw.orders.len() > ORDERS_MAX {
        return Err(Wrong::TooMany(raw.orders.len()));
    }
    Ok(raw)
}

fn malformed(error: serde_json::Error) -> Wrong {
    // What the program wrote may stand in it, at any length.
    Wrong::Malformed(error.to_string().chars().take(200).collect())
}

fn item(raw: RawOrder) -> Result<Item, Wrong> {
    Ok(Item::Order(match raw {
        RawOrder::Start { job, row, places } => {
            let row = match row {
                RawRow::Number(row) => RowChoice::In(RowId(row)),
                RawRow::Word(RowWord::New) => RowChoice::New,
                RawRow::Word(RowWord::Any) | RawRow::Any => RowChoice::Any,
            };
            let place = |RawPlace { node, processors }: RawPlace| {
                Ok((NodeId(node), parse_processors(&processors)?))
            };
            let places = places.into_iter().map(place).collect::<Result<_, Wrong>>()?;
            Order::Start { job: JobId(job), row, places }
        }
        RawOrder::Decline { job, reason } => Order::Decline { job: JobId(job), reason },
        RawOrder::Move { job, before } => {
            Order::Move { job: JobId(job), before: before.map(JobId) }
        }
        RawOrder::Preempt { job } => Order::Preempt { job: JobId(job) },
        RawOrder::Restore { job } => Order::Restore { job: JobId(job) },
        RawOrder::Class { job, class } => {
            Order::SetClass { job: JobId(job), class: ClassName::new(&class) }
        }
        RawOrder::Leave { job } => Order::Leave { job: JobId(job) },
        RawOrder::Timer { after_ns, at_ns, tag } => {
            let (when, tag) = timer(after_ns, at_ns, tag)?;
            return Ok(Item::Timer(when, tag));
        }
        RawOrder::Message { node, text } => {
            return Ok(Item::Message(node.map(NodeId), checked_message(text)?));
        }
        RawOrder::Yield => return Ok(Item::Yield),
        RawOrder::TakeCharge => return Ok(Item::TakeCharge),
    }))
}

/// When a timer comes, and its word.
pub(crate) fn timer(
    after_ns: Option<u64>,
    at_ns: Option<u64>,
    tag: String,
) -> Result<(When, String), Wrong> {
    let when = match (after_ns, at_ns) {
        (Some(after), None) => When::After(Nanos(after)),
        (None, Some(at)) => When::At(ClusterTime(at)),
        (None, None) | (Some(_), Some(_)) => {
            let reason = "a timer has either after_ns or at_ns";
            return Err(Wrong::Malformed(reason.to_owned()));
        }
    };
    if tag.len() > TAG_BYTES_MAX {
        let reason = format!("the tag of a timer has at most {TAG_BYTES_MAX} bytes");
        return Err(Wrong::Malformed(reason));
    }
    Ok((when, tag))
}

/// A message that is not too long.
pub(crate) fn checked_message(text: String) -> Result<String, Wrong> {
    if text.len() > POLICY_MESSAGE_BYTES_MAX {
        let reason = format!("a message has at most {POLICY_MESSAGE_BYTES_MAX} bytes");
        return Err(Wrong::Malformed(reason));
    }
    Ok(text)
}

/// A line of JSON.
pub(crate) fn to_line(message: &impl Serialize) -> String {
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

/// `0-3,8`.
fn parse_processors(text: &str) -> Result<ProcessorSet, Wrong> {
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        Wrong::Malformed(format!("{shown:?} is no list of processors, such as 0-3,8"))
    };
    let number = |text: &str| text.parse::<u32>().ok().filter(|it| *it < PROCESSORS_PER_NODE_MAX);
    let mut set = ProcessorSet::new();
    // In ascending order, so that no processor is named often.
    let mut least = 0;
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        if first > last || first < least {
            return Err(wrong());
        }
        least = last + 1;
        (first..=last).for_each(|processor| set.insert(processor));
    }
    Ok(set)
}
