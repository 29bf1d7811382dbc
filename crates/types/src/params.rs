//! The parameters of the whole: one table from which parsing, listing and checking are made.

use crate::limits::{
    EVENTS_KEPT_MAX, FAN_OUT_MAX, HALF_LIFE_MAX, HALF_LIFE_MIN, HISTORY_MAX, HISTORY_MIB_MAX,
    PROCESSORS_MAX, QUANTUM_MAX, QUANTUM_MIN, ROWS_MAX, SHARE_WHOLE, TASKS_PER_NODE_MAX,
    WEIGHT_MAX,
};
use crate::node_performance::Weights;
use crate::param::{self, Param, ParamError, ParamKind, Takes, UNBOUNDED, bounded};
use crate::placing::{Packing, Placement};
use crate::time::Nanos;
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What becomes of the jobs behind the first in line, while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Discipline {
    /// They wait too.
    #[default]
    Fcfs,
    /// A job that can't delay it starts, in the order of acceptance.
    Easy,
    /// A job that can't delay it starts, the shortest first.
    Sjbf,
    /// Every job has a reservation, and starts when it comes up.
    Conservative,
}

impl Discipline {
    const ALL: [Self; 4] = [Self::Fcfs, Self::Easy, Self::Sjbf, Self::Conservative];

    /// Whether jobs are looked for that may pass the first in line.
    #[must_use]
    pub const fn lets_by(self) -> bool {
        matches!(self, Self::Easy | Self::Sjbf)
    }
}

/// The order of the jobs in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LineOrder {
    /// By the time of their acceptance.
    #[default]
    Arrival,
    /// By the priority of their classes, then users in turn, then by arrival.
    Users,
}

/// Whether jobs continue on other processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Migration {
    /// None does.
    Off,
    /// Those that permit it go anywhere, and others within their nodes.
    Anywhere,
    /// Jobs of one task go to idle processors of their nodes.
    WithinNodes,
}

/// The process that gets the children of one that has ended (process-tracking paper, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Orphans {
    /// To their nearest living ancestor.
    #[default]
    Ancestor,
    /// To the task.
    Task,
}

/// Which clock agents know cluster time by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClockSource {
    /// The monotonic clock, compared with that of the controller's machine over the network.
    #[default]
    Own,
    /// The system's, which another program keeps on all machines.
    System,
}

/// In what order the signal method stops and continues processes (process-tracking paper, sections
/// 3 and 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Traversal {
    /// One process after the other, each stopped before the next is signalled.
    DepthFirst,
    /// One level of the tree after the other.
    #[default]
    BreadthFirst,
    /// Depth first; a process that has not stopped at once holds up only what is below it.
    Hybrid,
    /// All at once, parents before children, and verified after.
    AllAtOnce,
}

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;
const HOUR: u64 = 3600 * SEC;
const DAY: u64 = 24 * HOUR;

/// Where each parameter stands in [`TABLE`].
mod at {
    pub(super) const QUANTUM: usize = 0;
    pub(super) const ROWS: usize = 1;
    pub(super) const LEAD: usize = 2;
    pub(super) const FRONT_END_GRACE: usize = 3;
    pub(super) const FREEZE_DEADLINE: usize = 4;
    pub(super) const RETRY_INTERVAL: usize = 5;
    pub(super) const IDLE_EXIT: usize = 6;
    pub(super) const POLICY: usize = 7;
    pub(super) const DISCIPLINE: usize = 8;
    pub(super) const LARGE_JOB: usize = 9;
    pub(super) const LARGE_LIMIT: usize = 10;
    pub(super) const JOB_LIMIT: usize = 11;
    pub(super) const PACKING: usize = 12;
    pub(super) const PLACEMENT: usize = 13;
    pub(super) const TASKS_PER_NODE: usize = 14;
    pub(super) const WEIGHT_INT: usize = 15;
    pub(super) const WEIGHT_FLOAT: usize = 16;
    pub(super) const WEIGHT_DOUBLE: usize = 17;
    pub(super) const WEIGHT_MEMORY: usize = 18;
    pub(super) const WEIGHT_LOAD_NOW: usize = 19;
    pub(super) const WEIGHT_LOAD_5M: usize = 20;
    pub(super) const WEIGHT_LOAD_15M: usize = 21;
    pub(super) const MIGRATION: usize = 22;
    pub(super) const DEADLINE_SLACK: usize = 23;
    pub(super) const ORPHANS: usize = 24;
    pub(super) const FAN_OUT: usize = 25;
    pub(super) const LEASE: usize = 26;
    pub(super) const TRAVERSAL: usize = 27;
    pub(super) const KEEP_HISTORY: usize = 28;
    pub(super) const HISTORY_SIZE: usize = 29;
    pub(super) const CLOCK: usize = 30;
    pub(super) const FOREIGN: usize = 31;
    pub(super) const ORDER: usize = 32;
    pub(super) const HALF_LIFE: usize = 33;
    pub(super) const NICED: usize = 34;
    pub(super) const EVENTS_KEPT: usize = 35;
    pub(super) const NOTIFY_DEFAULT: usize = 36;
    pub(super) const NOTIFY_COMMANDS: usize = 37;
    pub(super) const NOTIFY_WEBHOOKS: usize = 38;
    pub(super) const NOTIFY_PER_USER: usize = 39;
    pub(super) const NOTIFY_TRIES: usize = 40;
    pub(super) const NOTIFY_TIME: usize = 41;
    pub(super) const POLICY_LIMIT: usize = 42;
    pub(super) const USAGE_INTERVAL: usize = 43;
    pub(super) const KEEP_USAGE: usize = 44;
    pub(super) const USAGE_SIZE: usize = 45;
    pub(super) const PREEMPTION: usize = 46;
    pub(super) const MEASURE_AFTER: usize = 47;
    pub(super) const SHARE_DEVICES: usize = 48;
    pub(super) const SWAP: usize = 49;
    pub(super) const SWAP_COST: usize = 51;
    pub(super) const COUNT: usize = 52;
}

/// The value of `order` that stands for [`LineOrder::Arrival`].
const ORDER_ARRIVAL: u64 = 1;

/// The policies under which a parameter, or a rule of a class, has an effect; `None`: under all.
#[must_use]
pub fn policies_of(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "discipline" => Some(&["gang", "space", "external"]),
        "order" | "half_life" => Some(&["gang", "space", "external", "dhc"]),
        "priority" => Some(&["gang", "space", "classes", "external", "dhc"]),
        "deadline_slack" => Some(&["deadline"]),
        "policy_limit" => Some(&["external"]),
        "share_devices" => Some(&["gang", "external", "dhc"]),
        "preemption" | "large_job" | "large_limit" | "job_limit" | "wait" | "do_not_disturb"
        | "processors" | "jobs" | "jobs_per_user" => Some(&["classes"]),
        _ => None,
    }
}

/// All parameters there are.
pub const TABLE: &[Param; at::COUNT] = &[
    Param {
        name: "quantum",
        kind: ParamKind::Duration,
        min: QUANTUM_MIN.0,
        max: QUANTUM_MAX.0,
        default: 100 * MS,
        help: "The length of a slot while no class has a share; the mean length otherwise.",
        takes: Takes::Live,
    },
    Param {
        name: "rows",
        kind: ParamKind::Count,
        min: 1,
        max: ROWS_MAX as u64,
        default: 4,
        help: "The multiprogramming limit: how many rows of jobs take turns, under dhc at each level; \
               further jobs queue. Suspended jobs keep their places and count.",
        takes: Takes::Live,
    },
    Param {
        name: "lead",
        kind: ParamKind::Duration,
        min: 0,
        max: 10 * SEC,
        default: 0,
        help: "Time until a change of the timetable takes effect, so that it reaches all nodes; each job begins this much later.",
        takes: Takes::Live,
    },
    Param {
        name: "front_end_grace",
        kind: ParamKind::Duration,
        min: 0,
        max: DAY,
        default: 2 * SEC,
        help: "How long a job outlives its vanished front end.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "freeze_deadline",
        kind: ParamKind::Duration,
        min: MS,
        max: 60 * SEC,
        default: 100 * MS,
        help: "How long a switch waits for a process that will not stop before it goes on.",
        takes: Takes::Live,
    },
    Param {
        name: "retry_interval",
        kind: ParamKind::Duration,
        min: 50_000,
        max: SEC,
        default: MS,
        help: "How long the signal method waits before it looks again whether all have stopped.",
        takes: Takes::Live,
    },
    Param {
        name: "idle_exit",
        kind: ParamKind::Duration,
        min: 0,
        max: 365 * DAY,
        default: 600 * SEC,
        help: "How long a private instance stays without a job before it ends; 0 means for ever.",
        takes: Takes::Live,
    },
    Param {
        name: "policy",
        kind: ParamKind::Choice(&["gang", "space", "classes", "deadline", "external", "dhc"]),
        min: 0,
        max: 5,
        default: 0,
        help: "How jobs share processors: in turns, each to its end, so that jobs that wait too long preempt \
               others by the rules of their class, so that deadlines are kept, as a program of the \
               site decides, or in turns within blocks of powers of two. space:easy also sets the \
               discipline.",
        takes: Takes::Live,
    },
    Param {
        name: "discipline",
        kind: ParamKind::Choice(&["fcfs", "easy", "sjbf", "conservative"]),
        min: 0,
        max: 3,
        default: 0,
        help: "Which jobs may pass the first in line: none, those that can't delay it, these with the \
               shortest first, or those that delay no other. Under the policy classes there is no line.",
        takes: Takes::Live,
    },
    Param {
        name: "large_job",
        kind: ParamKind::CountOr("none"),
        min: 1,
        max: PROCESSORS_MAX,
        default: UNBOUNDED,
        help: "Number of processors from which a job counts as large; for policy=classes, as the next two.",
        takes: Takes::Live,
    },
    Param {
        name: "large_limit",
        kind: ParamKind::CountOr("none"),
        min: 0,
        max: PROCESSORS_MAX,
        default: UNBOUNDED,
        help: "How many processors all large jobs together may have.",
        takes: Takes::Live,
    },
    Param {
        name: "job_limit",
        kind: ParamKind::CountOr("none"),
        min: 0,
        max: PROCESSORS_MAX,
        default: UNBOUNDED,
        help: "How many processors a single job may have; one that needs more waits.",
        takes: Takes::Live,
    },
    Param {
        name: "packing",
        kind: ParamKind::Choice(&["first-fit", "best-fit", "buddy"]),
        min: 0,
        max: 2,
        default: 0,
        help: "Which row a job joins: the first with room, the one that is left with the fewest \
               processors free, or where a free block of a power of two suits it best.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "placement",
        kind: ParamKind::Choice(&[
            "packed",
            "round-robin",
            "spare-cycles",
            "low-load",
            "high-load",
        ]),
        min: 0,
        max: 4,
        default: 0,
        help: "Which nodes a job gets: as few as possible, all in turn, the least loaded, the fastest by \
               estimate with one task each, or with several where that is faster still.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "tasks_per_node",
        kind: ParamKind::Count,
        min: 1,
        max: TASKS_PER_NODE_MAX,
        default: 4,
        help: "placement=high-load: maximum number of tasks of a job on a node, even one with fewer \
               processors.",
        takes: Takes::FromThenOn,
    },
    weight(
        "weight_int",
        1,
        "How much a node's speed with whole numbers counts in estimates of its performance.",
    ),
    weight(
        "weight_float",
        1,
        "How much a node's speed with numbers of 32 bits counts in estimates of its performance.",
    ),
    weight(
        "weight_double",
        1,
        "How much a node's speed with numbers of 64 bits counts in estimates of its performance.",
    ),
    weight(
        "weight_memory",
        1,
        "How much a node's memory bandwidth counts in estimates of its performance.",
    ),
    weight(
        "weight_load_now",
        3,
        "How much the load average of the last minute counts as a node's load.",
    ),
    weight(
        "weight_load_5m",
        2,
        "How much the load average of five minutes counts as a node's load.",
    ),
    weight(
        "weight_load_15m",
        1,
        "How much the load average of fifteen minutes counts as a node's load.",
    ),
    Param {
        name: "migration",
        kind: ParamKind::Choice(&["off", "on", "node"]),
        min: 0,
        max: 2,
        default: 2,
        help: "Whether jobs continue on other processors. node: a job of one task and one processor \
               that takes turns there goes to a processor of its node that is idle in all rows. on: \
               in simulations, jobs that permit it (tutti sim --movable) also go anywhere when \
               that makes rows fewer, or gives them more turns.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "deadline_slack",
        kind: ParamKind::Duration,
        min: 0,
        max: DAY,
        default: SEC,
        help: "How long before its deadline a job is planned to be done, so that it is kept although \
               the controller is late now and then.",
        takes: Takes::Live,
    },
    Param {
        name: "orphans",
        kind: ParamKind::Choice(&["ancestor", "task"]),
        min: 0,
        max: 1,
        default: 0,
        help: "Where the children of a process go that ends: to their nearest living ancestor, or to \
               the task. It decides what is below a process (tutti ps --tree, suspend JOB.RANK/PID).",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "fan_out",
        kind: ParamKind::Count,
        min: 2,
        max: FAN_OUT_MAX,
        default: 16,
        help: "Maximum number of children of an agent in the control tree, in a cluster whose head \
               trusts root of the others. Agents that are connected keep their places.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "lease",
        kind: ParamKind::Duration,
        min: SEC,
        max: HOUR,
        default: 30 * SEC,
        help: "How long jobs run on a node that hears nothing of the controller's machine. Then it suspends \
               them; a little later it counts as lost, and what becomes of them is as each asked.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "traversal",
        kind: ParamKind::Choice(&["depth-first", "breadth-first", "hybrid", "all-at-once"]),
        min: 0,
        max: 3,
        default: 1,
        help: "In what order the signal method stops processes: one after the other, level by level \
               of the tree, one after the other but for slow ones, or all at once. All at once is \
               fastest, but a parent may see a stopped child.",
        takes: Takes::Live,
    },
    Param {
        name: "keep_history",
        kind: ParamKind::DurationOr("always"),
        min: SEC,
        max: HISTORY_MAX.0,
        default: 30 * DAY,
        help: "How long jobs that have ended are kept for tutti history.",
        takes: Takes::Live,
    },
    Param {
        name: "history_size",
        kind: ParamKind::Count,
        min: 1,
        max: HISTORY_MIB_MAX,
        default: 256,
        help: "How much of the journal jobs that have ended may take, in MiB; the earliest are forgotten \
               before that.",
        takes: Takes::Live,
    },
    Param {
        name: "clock",
        kind: ParamKind::Choice(&["own", "system"]),
        min: 0,
        max: 1,
        default: 0,
        help: "By which clock the nodes of a cluster switch: by their own, compared over the network, \
               or by the system's, where chrony or PTP keep it on all machines. tutti nodes shows \
               how far off it may be.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "foreign",
        kind: ParamKind::Share,
        min: 0,
        max: SHARE_WHOLE as u64,
        default: SHARE_WHOLE as u64 / 2,
        help: "How much of a processor external load must use for it to count there, until it uses less than \
               half of that. policy=classes places no job there; every other policy places jobs there last, and \
               also counts processors that jobs of other instances hold. 0%: external load is ignored.",
        takes: Takes::Live,
    },
    Param {
        name: "order",
        kind: ParamKind::Choice(&["users", "arrival"]),
        min: 0,
        max: 1,
        default: 0,
        help: "The order of the line: class priority, then the user with the least use lately, divided by \
               weight (tutti weight), then arrival; or arrival alone.",
        takes: Takes::Live,
    },
    Param {
        name: "half_life",
        kind: ParamKind::DurationOr("never"),
        min: HALF_LIFE_MIN.0,
        max: HALF_LIFE_MAX.0,
        default: DAY,
        help: "order=users: the time after which use of the machine counts half; never: it always counts \
               in full.",
        takes: Takes::Live,
    },
    Param {
        name: "niced",
        kind: ParamKind::Choice(&["any", "standby"]),
        min: 0,
        max: 1,
        default: 0,
        help: "Class of jobs that name none and are submitted with a positive nice value, as by \
               `nice tutti run`: as without one, or standby.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "events_kept",
        kind: ParamKind::Count,
        min: 100,
        max: EVENTS_KEPT_MAX,
        default: 100_000,
        help: "Number of events that the journal keeps for tutti events --since; the earliest are forgotten \
               some at a time.",
        takes: Takes::Live,
    },
    Param {
        name: "notify_default",
        kind: ParamKind::Choice(&["none", "fail", "end", "all"]),
        min: 0,
        max: 3,
        default: 0,
        help: "When the user of a job without --notify gets mail: never, when it fails, when it ends, or also when it \
               starts.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "notify_commands",
        kind: ParamKind::Choice(&["off", "on"]),
        min: 0,
        max: 1,
        default: 1,
        help: "Whether jobs may have --notify-command: it runs on the controller's machine, as the job's user.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "notify_webhooks",
        kind: ParamKind::Choice(&["off", "on"]),
        min: 0,
        max: 1,
        default: 1,
        help: "Whether jobs may have --notify-webhook: a POST from the controller's machine, as the job's user.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "notify_per_user",
        kind: ParamKind::Count,
        min: 1,
        max: 10_000,
        default: 1000,
        help: "Number of notifications that one user may have outstanding; further ones are given up, with a log line.",
        takes: Takes::Live,
    },
    Param {
        name: "notify_tries",
        kind: ParamKind::Count,
        min: 1,
        max: 20,
        default: 8,
        help: "How often a webhook is tried, with pauses of 1 s, 2 s, 4 s and so on; commands and mail at most 3 times.",
        takes: Takes::Live,
    },
    Param {
        name: "notify_time",
        kind: ParamKind::Duration,
        min: SEC,
        max: HOUR,
        default: 60 * SEC,
        help: "How long one try of a notification may take, with all processes that it starts.",
        takes: Takes::Live,
    },
    Param {
        name: "policy_limit",
        kind: ParamKind::Duration,
        min: MS,
        max: 60 * SEC,
        default: SEC,
        help: "How long an answer of the policy program may take before the built-in policy goes on.",
        takes: Takes::Live,
    },
    Param {
        name: "usage_interval",
        kind: ParamKind::Duration,
        min: SEC,
        max: DAY,
        default: 300 * SEC,
        help: "How long the intervals are for which it is kept what the processors of each node were used \
               for.",
        takes: Takes::Live,
    },
    Param {
        name: "keep_usage",
        kind: ParamKind::Duration,
        min: 0,
        max: HISTORY_MAX.0,
        default: 30 * DAY,
        help: "How long that is kept for tutti history --usage. 0: it is not measured.",
        takes: Takes::Live,
    },
    Param {
        name: "usage_size",
        kind: ParamKind::Count,
        min: 1,
        max: HISTORY_MIB_MAX,
        default: 64,
        help: "How much of the journal that may take, in MiB; the earliest is forgotten before that.",
        takes: Takes::Live,
    },
    Param {
        name: "preemption",
        kind: ParamKind::Choice(&["suspend", "checkpoint"]),
        min: 0,
        max: 1,
        default: 0,
        help: "How jobs are preempted: suspended in place, or those with --checkpoint-signal save their \
               state, end and are queued again. One that does not end in time is suspended.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "measure_after",
        kind: ParamKind::Duration,
        min: 0,
        max: DAY,
        default: 60 * SEC,
        help: "How long a node of a cluster must have had no job to be measured: after it has joined, and a \
               day after the last time. A job ends the measurement, which takes a second. 0: never.",
        takes: Takes::Live,
    },
    Param {
        name: "share_devices",
        kind: ParamKind::Choice(&["vacate", "all", "never"]),
        min: 0,
        max: 2,
        default: 0,
        help: "Which jobs may have a device in turns with others: those with --vacate, all, or none. \
               Jobs that are suspended by priority never have.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "swap",
        kind: ParamKind::Choice(&["asked", "all", "never"]),
        min: 0,
        max: 2,
        default: 0,
        help: "Which jobs' memory may be swapped out while they are suspended or preempted, so that \
               others can have it: those with --swap, all, or none.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: SLURM_STRICT,
        kind: ParamKind::Choice(&["off", "on"]),
        min: 0,
        max: 1,
        default: 0,
        help: "Whether sbatch, srun and salloc reject an unknown partition, account or QOS, instead \
               of accepting it with a note.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "swap_cost",
        kind: ParamKind::Share,
        min: SHARE_WHOLE as u64 / 100,
        max: SHARE_WHOLE as u64,
        default: SHARE_WHOLE as u64 / 10,
        help: "The part of the time that a preempted job is swapped out which moving its memory may take. \
               The longer that took, the longer the job stays out. A user may resume it before.",
        takes: Takes::Live,
    },
];

/// The name of the parameter that has Slurm's commands reject unknown names. Only these commands
/// look at it.
pub const SLURM_STRICT: &str = "slurm_strict";

const fn weight(name: &'static str, default: u64, help: &'static str) -> Param {
    let takes = Takes::FromThenOn;
    Param { name, kind: ParamKind::Count, min: 0, max: WEIGHT_MAX, default, help, takes }
}

/// Which jobs may have a device in turns with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareDevices {
    /// Those that give it up before they lose a turn (`--vacate`).
    Vacate,
    /// All that are stopped between their turns.
    All,
    /// None: a device is one job's until it ends.
    Never,
}

/// Which jobs' memory may leave while they do not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapJobs {
    /// Those that were submitted with `--swap`.
    Asked,
    /// All.
    All,
    /// None.
    Never,
}

/// The value of every parameter. A value of this type is always within the ranges of [`TABLE`].
///
/// It travels as a map from names to numbers, so that a journal written before a parameter existed
/// still reads: what is missing has its default, but for [`LineOrder`]: jobs were in the order of
/// arrival before there was another, and an instance that is upgraded keeps to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "BTreeMap<String, u64>", try_from = "BTreeMap<String, u64>")]
pub struct Params {
    values: [u64; at::COUNT],
}

impl Default for Params {
    fn default() -> Self {
        let mut values = [0; at::COUNT];
        for (value, param) in values.iter_mut().zip(TABLE) {
            *value = param.default;
        }
        Self { values }
    }
}

impl Params {
    /// The value of the parameter of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        param::find(TABLE, name).ok().map(|index| self.values[index])
    }

    /// Sets one parameter.
    ///
    /// # Errors
    /// If there is none of that name, or the value is out of its range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ParamError> {
        let index = param::find(TABLE, name)?;
        TABLE[index].check(value)?;
        self.values[index] = value;
        Ok(())
    }

    /// Sets a parameter by a word; `policy` also takes `space:easy`, which sets
    /// `discipline` too.
    ///
    /// # Errors
    /// If there is none of that name, or the word is none of its; nothing is changed then.
    pub fn choose(&mut self, name: &str, word: &str) -> Result<(), ParamError> {
        let index = param::find(TABLE, name)?;
        if index == at::POLICY
            && let Some((policy, discipline)) = word.split_once(':')
        {
            let mut both = self.clone();
            both.choose(name, policy)?;
            both.choose(TABLE[at::DISCIPLINE].name, discipline)?;
            *self = both;
            return Ok(());
        }
        let place = TABLE[index].value_of(word)?;
        self.set(name, place)
    }

    /// Whether all values are within their ranges. They always are, unless this very type is
    /// broken; a driver that got the value from far away may still want to ask.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn check(&self) -> Result<(), ParamError> {
        self.iter().try_for_each(|(param, value)| param.check(value))
    }

    /// All parameters with their values, in the order of [`TABLE`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static Param, u64)> + '_ {
        TABLE.iter().zip(self.values)
    }

    /// The length of a slot.
    #[must_use]
    pub const fn quantum(&self) -> Nanos {
        Nanos(self.values[at::QUANTUM])
    }

    /// The multiprogramming limit.
    #[must_use]
    pub fn rows(&self) -> u32 {
        u32::try_from(self.values[at::ROWS]).unwrap_or(ROWS_MAX)
    }

    /// Whether jobs that can save their state are asked to before they are preempted.
    #[must_use]
    pub const fn preempts_by_checkpoint(&self) -> bool {
        self.values[at::PREEMPTION] == 1
    }

    /// How long a node must have had no job to be measured; zero: none is.
    #[must_use]
    pub const fn measure_after(&self) -> Nanos {
        Nanos(self.values[at::MEASURE_AFTER])
    }

    /// Which jobs may have devices in turns.
    #[must_use]
    pub const fn share_devices(&self) -> ShareDevices {
        match self.values[at::SHARE_DEVICES] {
            0 => ShareDevices::Vacate,
            1 => ShareDevices::All,
            _ => ShareDevices::Never,
        }
    }

    /// Which jobs' memory may be swapped out.
    #[must_use]
    pub const fn swap(&self) -> SwapJobs {
        match self.values[at::SWAP] {
            0 => SwapJobs::Asked,
            1 => SwapJobs::All,
            _ => SwapJobs::Never,
        }
    }

    /// The part of the time that a job is swapped out which moving its memory may take, of
    /// [`SHARE_WHOLE`].
    #[must_use]
    pub const fn swap_cost(&self) -> u64 {
        self.values[at::SWAP_COST]
    }

    /// How many children an agent has in the control tree before it sends others on to them.
    #[must_use]
    pub const fn fan_out(&self) -> u64 {
        self.values[at::FAN_OUT]
    }

    /// How long jobs run on a node that hears nothing of the controller's machine.
    #[must_use]
    pub const fn lease(&self) -> Nanos {
        Nanos(self.values[at::LEASE])
    }

    /// How much of a processor external load must use to count, in thousandths; 0: it never counts.
    #[must_use]
    pub fn foreign_milli(&self) -> u32 {
        let milli = (self.values[at::FOREIGN] * 1000).div_ceil(u64::from(SHARE_WHOLE));
        u32::try_from(milli).unwrap_or(u32::MAX)
    }

    /// How long jobs that have ended are kept, if not always.
    #[must_use]
    pub fn keep_history(&self) -> Option<Nanos> {
        bounded(self.values[at::KEEP_HISTORY]).map(Nanos)
    }

    /// How many bytes may be kept of them.
    #[must_use]
    pub const fn history_bytes(&self) -> u64 {
        self.values[at::HISTORY_SIZE] << 20
    }

    /// How long the intervals are for which the use of processors is kept; zero: it is not
    /// measured.
    #[must_use]
    pub const fn usage_interval(&self) -> Nanos {
        match self.keep_usage().0 {
            0 => Nanos::ZERO,
            _ => Nanos(self.values[at::USAGE_INTERVAL]),
        }
    }

    /// How long the use of processors is kept.
    #[must_use]
    pub const fn keep_usage(&self) -> Nanos {
        Nanos(self.values[at::KEEP_USAGE])
    }

    /// How many bytes may be kept of it.
    #[must_use]
    pub const fn usage_bytes(&self) -> u64 {
        self.values[at::USAGE_SIZE] << 20
    }

    /// How long an answer of the policy program may take.
    #[must_use]
    pub const fn policy_limit(&self) -> Nanos {
        Nanos(self.values[at::POLICY_LIMIT])
    }

    /// How many events are kept for their readers.
    #[must_use]
    pub const fn events_kept(&self) -> u64 {
        self.values[at::EVENTS_KEPT]
    }

    /// When a job without a wish of its own notifies its user: 0 never, 1 when it fails, 2 when it
    /// ends, 3 also when it starts.
    #[must_use]
    pub const fn notify_default(&self) -> u64 {
        self.values[at::NOTIFY_DEFAULT]
    }

    /// Whether jobs may notify by commands.
    #[must_use]
    pub const fn has_notify_commands(&self) -> bool {
        self.values[at::NOTIFY_COMMANDS] != 0
    }

    /// Whether jobs may notify by webhooks.
    #[must_use]
    pub const fn has_notify_webhooks(&self) -> bool {
        self.values[at::NOTIFY_WEBHOOKS] != 0
    }

    /// How many notifications of one user may be outstanding.
    #[must_use]
    pub const fn notify_per_user(&self) -> u64 {
        self.values[at::NOTIFY_PER_USER]
    }

    /// How often a webhook is tried.
    #[must_use]
    pub const fn notify_tries(&self) -> u64 {
        self.values[at::NOTIFY_TRIES]
    }

    /// How long one try of a notification may take.
    #[must_use]
    pub const fn notify_time(&self) -> Nanos {
        Nanos(self.values[at::NOTIFY_TIME])
    }

    /// How far ahead a change of the timetable activates.
    #[must_use]
    pub const fn lead(&self) -> Nanos {
        Nanos(self.values[at::LEAD])
    }

    /// How long before its deadline a job is planned to be done.
    #[must_use]
    pub const fn deadline_slack(&self) -> Nanos {
        Nanos(self.values[at::DEADLINE_SLACK])
    }

    /// How long a job outlives its vanished front end.
    #[must_use]
    pub const fn front_end_grace(&self) -> Nanos {
        Nanos(self.values[at::FRONT_END_GRACE])
    }

    /// How long a switch waits for a straggler.
    #[must_use]
    pub const fn freeze_deadline(&self) -> Nanos {
        Nanos(self.values[at::FREEZE_DEADLINE])
    }

    /// How long the signal method waits between two looks.
    #[must_use]
    pub const fn retry_interval(&self) -> Nanos {
        Nanos(self.values[at::RETRY_INTERVAL])
    }

    /// In what order the signal method stops processes.
    #[must_use]
    pub const fn traversal(&self) -> Traversal {
        match self.values[at::TRAVERSAL] {
            0 => Traversal::DepthFirst,
            1 => Traversal::BreadthFirst,
            2 => Traversal::Hybrid,
            _ => Traversal::AllAtOnce,
        }
    }

    /// The policy, as its place among all.
    #[must_use]
    pub fn policy(&self) -> usize {
        usize::try_from(self.values[at::POLICY]).unwrap_or(0)
    }

    /// Which jobs may pass the first in line.
    #[must_use]
    pub fn discipline(&self) -> Discipline {
        let place = usize::try_from(self.values[at::DISCIPLINE]).unwrap_or(0);
        Discipline::ALL.get(place).copied().unwrap_or_default()
    }

    /// The order of the jobs in line.
    #[must_use]
    pub const fn order(&self) -> LineOrder {
        match self.values[at::ORDER] {
            ORDER_ARRIVAL => LineOrder::Arrival,
            _ => LineOrder::Users,
        }
    }

    /// Whether niced jobs that name no class are of class standby.
    #[must_use]
    pub const fn niced_are_standby(&self) -> bool {
        self.values[at::NICED] == 1
    }

    /// The time after which use of the machine counts half; `None`: it always counts in full.
    #[must_use]
    pub fn half_life(&self) -> Option<Nanos> {
        bounded(self.values[at::HALF_LIFE]).map(Nanos)
    }

    /// From how many processors on a job counts as large; `None`: none does.
    #[must_use]
    pub fn large_job(&self) -> Option<u64> {
        bounded(self.values[at::LARGE_JOB])
    }

    /// How many processors all large jobs may have; `None`: any number.
    #[must_use]
    pub fn large_limit(&self) -> Option<u64> {
        bounded(self.values[at::LARGE_LIMIT])
    }

    /// How many processors a job may have; `None`: any number.
    #[must_use]
    pub fn job_limit(&self) -> Option<u64> {
        bounded(self.values[at::JOB_LIMIT])
    }

    /// Which row a job joins.
    #[must_use]
    pub fn packing(&self) -> Packing {
        let place = usize::try_from(self.values[at::PACKING]).unwrap_or(0);
        Packing::ALL.get(place).copied().unwrap_or_default()
    }

    /// Which nodes a job gets.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let place = usize::try_from(self.values[at::PLACEMENT]).unwrap_or(0);
        Placement::ALL.get(place).copied().unwrap_or_default()
    }

    /// How many tasks of a job may share a node.
    #[must_use]
    pub fn tasks_per_node(&self) -> u32 {
        u32::try_from(self.values[at::TASKS_PER_NODE]).unwrap_or(u32::MAX)
    }

    /// How much each figure of a node counts for jobs that don't say.
    #[must_use]
    pub fn weights(&self) -> Weights {
        let weight = |index: usize| u32::try_from(self.values[index]).unwrap_or(u32::MAX);
        Weights {
            int: weight(at::WEIGHT_INT),
            float: weight(at::WEIGHT_FLOAT),
            double: weight(at::WEIGHT_DOUBLE),
            memory: weight(at::WEIGHT_MEMORY),
        }
    }

    /// How much the load averages count, the shortest first.
    #[must_use]
    pub const fn load_weights(&self) -> [u64; 3] {
        let Self { values } = self;
        [values[at::WEIGHT_LOAD_NOW], values[at::WEIGHT_LOAD_5M], values[at::WEIGHT_LOAD_15M]]
    }

    /// Whether jobs may go on on other processors.
    #[must_use]
    pub const fn migration(&self) -> Migration {
        match self.values[at::MIGRATION] {
            0 => Migration::Off,
            1 => Migration::Anywhere,
            _ => Migration::WithinNodes,
        }
    }

    /// The process that gets the children of one that has ended.
    #[must_use]
    pub const fn orphans(&self) -> Orphans {
        match self.values[at::ORPHANS] {
            0 => Orphans::Ancestor,
            _ => Orphans::Task,
        }
    }

    /// Which clock agents know cluster time by.
    #[must_use]
    pub const fn clock(&self) -> ClockSource {
        match self.values[at::CLOCK] {
            0 => ClockSource::Own,
            _ => ClockSource::System,
        }
    }

    /// How long a private instance stays without a job; `None`: for ever.
    #[must_use]
    pub const fn idle_exit(&self) -> Option<Nanos> {
        match self.values[at::IDLE_EXIT] {
            0 => None,
            value => Some(Nanos(value)),
        }
    }
}

impl From<Params> for BTreeMap<String, u64> {
    fn from(params: Params) -> Self {
        params.iter().map(|(param, value)| (param.name.into(), value)).collect()
    }
}

impl TryFrom<BTreeMap<String, u64>> for Params {
    type Error = ParamError;
    fn try_from(values: BTreeMap<String, u64>) -> Result<Self, ParamError> {
        let mut params = Self::default();
        params.values[at::ORDER] = ORDER_ARRIVAL;
        for (name, value) in values {
            params.set(renamed(&name), value)?;
        }
        Ok(params)
    }
}

/// The present name of a parameter that an earlier journal calls something else.
#[must_use]
pub fn renamed(name: &str) -> &str {
    match name {
        "queue" => "discipline",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{Discipline, LineOrder, Params, TABLE, Traversal};
    use crate::param::{ParamError, ParamKind};
    use crate::time::Nanos;
    use std::collections::BTreeMap;

    #[test]
    fn defaults_are_within_their_ranges_and_the_accessors_agree_with_the_table() {
        let params = Params::default();
        assert_eq!(params.check(), Ok(()));
        assert_eq!(params.get("quantum"), Some(params.quantum().0));
        assert_eq!(params.get("rows"), Some(u64::from(params.rows())));
        assert_eq!(params.get("lead"), Some(params.lead().0));
        assert_eq!(params.get("front_end_grace"), Some(params.front_end_grace().0));
        assert_eq!(params.get("lease"), Some(params.lease().0));
        assert_eq!(params.get("freeze_deadline"), Some(params.freeze_deadline().0));
        assert_eq!(params.get("retry_interval"), Some(params.retry_interval().0));
        assert_eq!(params.get("idle_exit"), params.idle_exit().map(|idle| idle.0));
        assert_eq!(params.traversal(), Traversal::default());
        assert_eq!(params.iter().count(), TABLE.len());
    }

    #[test]
    fn a_value_out_of_range_names_the_range_and_changes_nothing() {
        let mut params = Params::default();
        let error = params.set("quantum", 1_000_000).unwrap_err();
        assert_eq!(error.to_string(), "quantum can't be 1ms; it may be 2ms to 1d");
        let error = params.set("rows", 0).unwrap_err();
        assert_eq!(error.to_string(), "rows can't be 0; it may be 1 to 1024");
        assert_eq!(params, Params::default());
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_or_all() {
        let mut params = Params::default();
        let error = params.set("quantm", 1).unwrap_err();
        assert_eq!(error.to_string(), "there is no parameter quantm; did you mean quantum?");
        let error = params.set("colour", 1).unwrap_err();
        assert!(matches!(error, ParamError::Unknown { nearest: None, .. }));
        assert!(error.to_string().contains("quantum, rows, lead"));
        assert!(params.set(&"q".repeat(100_000), 1).is_err());
    }

    #[test]
    fn choices_are_words_and_a_policy_may_name_its_discipline() {
        let mut params = Params::default();
        assert_eq!((params.policy(), params.discipline()), (0, Discipline::Fcfs));
        params.choose("policy", "space:sjbf").unwrap();
        assert_eq!(params.policy(), 1);
        assert_eq!(params.discipline(), Discipline::Sjbf);
        params.choose("policy", "gang").unwrap();
        assert_eq!((params.policy(), params.discipline()), (0, Discipline::Sjbf));
        let before = params.clone();
        let says = |name, word| params.clone().choose(name, word).unwrap_err().to_string();
        assert_eq!(
            says("policy", "spice"),
            "policy can't be \"spice\"; it may be gang, space, classes, deadline, external or dhc"
        );
        assert_eq!(
            says("policy", "space:best"),
            "discipline can't be \"best\"; it may be fcfs, easy, sjbf or conservative"
        );
        assert_eq!(says("polcy", "gang"), "there is no parameter polcy; did you mean policy?");
        assert_eq!(params, before);
        assert_eq!(
            params.set("discipline", 4).unwrap_err().to_string(),
            "discipline can't be 4; it may be fcfs, easy, sjbf or conservative"
        );
        for param in TABLE {
            if let ParamKind::Choice(words) = param.kind {
                assert_eq!((param.min, param.max), (0, words.len() as u64 - 1));
            }
        }
    }

    #[test]
    fn a_map_lacking_a_name_gets_its_default() {
        let map = |name: &str, value: u64| BTreeMap::from([(name.to_owned(), value)]);
        let params = Params::try_from(map("quantum", 5_000_000)).unwrap();
        assert_eq!(params.quantum(), Nanos::from_millis(5));
        assert_eq!(params.rows(), 4);
        assert!(Params::try_from(map("rows", 0)).is_err());
        // It was the only one before the parameter existed.
        assert_eq!(params.order(), LineOrder::Arrival);
        assert_eq!(Params::try_from(map("order", 0)).unwrap().order(), LineOrder::Users);
        let all = BTreeMap::from(Params::default());
        assert_eq!(Params::try_from(all), Ok(Params::default()));
        let former = Params::try_from(map("queue", 1)).unwrap();
        assert_eq!(former.discipline(), Discipline::Easy);
    }

    #[test]
    fn idle_exit_zero_means_never() {
        let mut params = Params::default();
        params.set("idle_exit", 0).unwrap();
        assert_eq!(params.idle_exit(), None);
    }
}
