//! The table of parameters: names, ranges, defaults, and what each is for.

use super::SLURM_STRICT;
use crate::limits::{
    EVENTS_KEPT_MAX, FAN_OUT_MAX, HALF_LIFE_MAX, HALF_LIFE_MIN, HISTORY_MAX, HISTORY_MIB_MAX,
    PROCESSORS_MAX, QUANTUM_MAX, QUANTUM_MIN, ROWS_MAX, SHARE_WHOLE, TASKS_PER_NODE_MAX,
    WEIGHT_MAX,
};
use crate::param::{Param, ParamKind, Takes, UNBOUNDED};

const MS: u64 = 1_000_000;
const SEC: u64 = 1000 * MS;
const HOUR: u64 = 3600 * SEC;
const DAY: u64 = 24 * HOUR;

/// Where each parameter stands in [`TABLE`].
pub(super) mod at {
    pub(crate) const QUANTUM: usize = 0;
    pub(crate) const ROWS: usize = 1;
    pub(crate) const LEAD: usize = 2;
    pub(crate) const FRONT_END_GRACE: usize = 3;
    pub(crate) const FREEZE_DEADLINE: usize = 4;
    pub(crate) const RETRY_INTERVAL: usize = 5;
    pub(crate) const IDLE_EXIT: usize = 6;
    pub(crate) const POLICY: usize = 7;
    pub(crate) const DISCIPLINE: usize = 8;
    pub(crate) const LARGE_JOB: usize = 9;
    pub(crate) const LARGE_LIMIT: usize = 10;
    pub(crate) const JOB_LIMIT: usize = 11;
    pub(crate) const PACKING: usize = 12;
    pub(crate) const PLACEMENT: usize = 13;
    pub(crate) const TASKS_PER_NODE: usize = 14;
    pub(crate) const WEIGHT_INT: usize = 15;
    pub(crate) const WEIGHT_FLOAT: usize = 16;
    pub(crate) const WEIGHT_DOUBLE: usize = 17;
    pub(crate) const WEIGHT_MEMORY: usize = 18;
    pub(crate) const WEIGHT_LOAD_NOW: usize = 19;
    pub(crate) const WEIGHT_LOAD_5M: usize = 20;
    pub(crate) const WEIGHT_LOAD_15M: usize = 21;
    pub(crate) const MIGRATION: usize = 22;
    pub(crate) const DEADLINE_SLACK: usize = 23;
    pub(crate) const ORPHANS: usize = 24;
    pub(crate) const FAN_OUT: usize = 25;
    pub(crate) const LEASE: usize = 26;
    pub(crate) const TRAVERSAL: usize = 27;
    pub(crate) const KEEP_HISTORY: usize = 28;
    pub(crate) const HISTORY_SIZE: usize = 29;
    pub(crate) const CLOCK: usize = 30;
    pub(crate) const FOREIGN: usize = 31;
    pub(crate) const ORDER: usize = 32;
    pub(crate) const HALF_LIFE: usize = 33;
    pub(crate) const NICED: usize = 34;
    pub(crate) const EVENTS_KEPT: usize = 35;
    pub(crate) const NOTIFY_DEFAULT: usize = 36;
    pub(crate) const NOTIFY_COMMANDS: usize = 37;
    pub(crate) const NOTIFY_WEBHOOKS: usize = 38;
    pub(crate) const NOTIFY_PER_USER: usize = 39;
    pub(crate) const NOTIFY_TRIES: usize = 40;
    pub(crate) const NOTIFY_TIME: usize = 41;
    pub(crate) const POLICY_LIMIT: usize = 42;
    pub(crate) const USAGE_INTERVAL: usize = 43;
    pub(crate) const KEEP_USAGE: usize = 44;
    pub(crate) const USAGE_SIZE: usize = 45;
    pub(crate) const PREEMPTION: usize = 46;
    pub(crate) const MEASURE_AFTER: usize = 47;
    pub(crate) const SHARE_DEVICES: usize = 48;
    pub(crate) const SWAP: usize = 49;
    pub(crate) const SWAP_COST: usize = 51;
    pub(crate) const WEIGHT_NETWORK: usize = 52;
    pub(crate) const WEIGHT_LATENCY: usize = 53;
    pub(crate) const POLICY_MEMORY: usize = 54;
    pub(crate) const POLICY_PROCESSES: usize = 55;
    pub(crate) const COUNT: usize = 56;
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
        help: "How jobs are preempted: suspended in place, or those with --checkpoint or \
               --checkpoint-signal save their state, end and are queued again. One that does not \
               end in time is suspended.",
        takes: Takes::FromThenOn,
    },
    Param {
        name: "measure_after",
        kind: ParamKind::Duration,
        min: 0,
        max: DAY,
        default: 60 * SEC,
        help: "How long a node of a cluster must have had no job to be measured, its network too: after it has \
               joined, and a day after the last time. A job ends the measurement, which takes a second. \
               0: never.",
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
    weight(
        "weight_network",
        0,
        "How much a node's network bandwidth counts in estimates of its performance.",
    ),
    weight(
        "weight_latency",
        0,
        "How much a node's network latency counts in estimates of its performance, the less the better.",
    ),
    Param {
        name: "policy_memory",
        kind: ParamKind::BytesOr("unlimited"),
        min: 16 << 20,
        max: 1 << 40,
        default: 1 << 30,
        help: "How much memory the policy program and all that it has started may have together, on \
               each node. Over it they are ended, and the built-in policy goes on.",
        takes: Takes::Live,
    },
    Param {
        name: "policy_processes",
        kind: ParamKind::Count,
        min: 1,
        max: 100_000,
        default: 256,
        help: "How many processes and threads the policy program and all that it has started may be \
               together, on each node. Over it they are ended, and the built-in policy goes on.",
        takes: Takes::Live,
    },
];

const fn weight(name: &'static str, default: u64, help: &'static str) -> Param {
    let takes = Takes::FromThenOn;
    Param { name, kind: ParamKind::Count, min: 0, max: WEIGHT_MAX, default, help, takes }
}
