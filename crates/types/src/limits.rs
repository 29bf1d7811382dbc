//! Every maximum of the core, with its reason.

use crate::time::Nanos;

/// The largest processor number of a node, plus one: what a kernel can be built for (NR_CPUS).
pub const PROCESSORS_PER_NODE_MAX: u32 = 8192;

/// Jobs tried in vain, in one event, for a place beside the first in line: where counting
/// processors does not tell whether a job fits, each costs a search.
pub const BACKFILL_TRIES_MAX: usize = 1000;

/// Places considered for a job that preempts others: with more processors than that, only those
/// that begin at the lowest.
pub const POSITIONS_MAX: usize = 4096;

/// What setting a job aside costs at least, as if so much of its do-not-disturb time were left.
pub const BUMP_COST: Nanos = Nanos::from_secs(60);

/// How often it is looked whether an allowance of processor time is spent.
pub const BANK_GRAIN: Nanos = Nanos::from_secs(1);

/// The highest job number that a node can hold: there is always another one after it.
pub const JOB_NUMBER_MAX: u64 = u64::MAX / 2;

/// Jobs with a reservation under the discipline `conservative`; those behind them wait. Each costs
/// a search through all others when a job ends early.
pub const RESERVATIONS_MAX: usize = 1000;

/// Moments that are looked at to find when a job could be done beside what was promised: the work
/// of a submission grows with them.
pub const PLAN_MOMENTS_MAX: usize = 200;

/// Steps by which it is foretold when the jobs of a row end: what lies beyond is left open.
pub const FORECAST_STEPS_MAX: usize = 1000;

/// Events of a forecast of when jobs start: some for each of 100,000 jobs.
pub const FORECAST_EVENTS_MAX: u64 = 500_000;

/// How far ahead such a forecast looks: a year.
pub const FORECAST_AHEAD_MAX: Nanos = Nanos::from_secs(366 * 24 * 3600);

/// Jobs that a forecast names for each start that rests on their limits: as many as one would read.
pub const FORECAST_NAMED_MAX: usize = 8;

/// Nodes of one instance, and their numbers: far more than any machine has, few enough for a table.
pub const NODES_MAX: u32 = 1 << 20;

/// Children of one agent in the control tree: as many connections as a process may always have.
pub const FAN_OUT_MAX: u64 = 4096;

/// The longest that jobs that have ended can be kept, but for always: a hundred years.
pub const HISTORY_MAX: Nanos = Nanos::from_secs(36_500 * 86_400);

/// The most that may be kept of them, in MiB: a TiB.
pub const HISTORY_MIB_MAX: u64 = 1 << 20;

/// How often a job is put in line again after nodes were lost: one that takes nodes down with it
/// must not go round for ever.
pub const REQUEUES_MAX: u32 = 3;

/// The least time between two requests to a job to save its state: each is an entry of the journal
/// at least.
pub const CHECKPOINT_EVERY_MIN: Nanos = Nanos::from_secs(1);

/// How often lost ranks of a job are started again: one that takes nodes or keepers down with it
/// must not go round for ever.
pub const RESPAWNS_MAX: u32 = 100;

/// Jobs in a core of which a copy is tried out (`Core::can_start_beside`): a copy of more takes
/// milliseconds.
pub const TRIAL_JOBS_MAX: usize = 4096;

/// Steps of such a trial. In each, all jobs that run end, so that as many others get their turn.
pub const TRIAL_ROUNDS_MAX: usize = 64;

/// Features of one node.
pub const FEATURES_MAX: usize = 64;

/// Sets of nodes with a name: as many as one would remember.
pub const NODE_SETS_MAX: usize = 256;

/// Numbers of nodes that are tried to find one that a declined job could ask for.
pub const NEAREST_TRIES_MAX: u32 = 64;

/// Processors of one instance: what all its nodes can have.
pub const PROCESSORS_MAX: u64 = NODES_MAX as u64 * PROCESSORS_PER_NODE_MAX as u64;

/// Tasks of one job: beyond the largest MPI jobs ever run, and small enough to count in 32 bits.
pub const TASKS_PER_JOB_MAX: u32 = 16_777_216;

/// Further steps that a job may have at once, those that wait included.
pub const STEPS_PER_JOB_MAX: u32 = 1024;

/// Tasks of a job that may share a node which has fewer processors: beyond, none gets on.
pub const TASKS_PER_NODE_MAX: u64 = 1024;

/// The most that a figure of a node, or a load average, may count: finer ratios mean nothing.
pub const WEIGHT_MAX: u64 = 1000;

/// The largest weight of a user or group: finer ratios mean nothing.
pub const USER_WEIGHT_MAX: u32 = 1000;

/// Users and groups with a weight: beyond that, groups do.
pub const USER_WEIGHTS_MAX: usize = 10_000;

/// Users whose use of the machine is remembered, beside those with jobs in line; of more, those
/// with the least use are forgotten.
pub const USERS_REMEMBERED_MAX: usize = 100_000;

/// The shortest and the longest half-life of use.
pub const HALF_LIFE_MIN: Nanos = Nanos::from_secs(1);
/// See [`HALF_LIFE_MIN`].
pub const HALF_LIFE_MAX: Nanos = Nanos::from_secs(3650 * 86_400);

/// Jobs known at once; more are declined rather than let a controller run out of memory.
pub const JOBS_MAX: usize = 1_000_000;

/// Rows of the matrix (the multiprogramming limit) that an administrator may set.
pub const ROWS_MAX: u32 = 1024;

/// Rows that a class may keep for its jobs: each makes all turns rarer.
pub const ROWS_KEPT_MAX: u64 = 16;

/// Numbers of a counted resource: as many as one would look through for a free one.
pub const RESOURCE_COUNT_MAX: u32 = 1024;

/// Devices of one node: far more than any machine has, few enough for a message.
pub const DEVICES_PER_NODE_MAX: usize = 128;

/// Files of one device: a GPU has two.
pub const DEVICE_FILES_MAX: usize = 4;

/// The longest path of a device file.
pub const DEVICE_PATH_BYTES_MAX: usize = 255;

/// Counted resources that an administrator may define.
pub const RESOURCES_MAX: usize = 256;

/// Counted resources that one job may ask for.
pub const RESOURCES_PER_JOB_MAX: usize = 16;

/// The name of a counted resource, in bytes.
pub const RESOURCE_NAME_BYTES_MAX: usize = 31;

/// So many jobs of a node have their classes in its timetable; further ones come last of all
/// alternates.
pub const CLASS_JOBS_MAX: usize = 1024;

/// Classes that an administrator may define.
pub const CLASSES_MAX: usize = 64;

/// Queues that an administrator may make.
pub const QUEUES_MAX: usize = 256;

/// Users and groups that may be listed for a queue or a class.
pub const ALLOWED_MAX: usize = 1024;

/// Periods with parameters of their own: some for each day of a week.
pub const PERIODS_MAX: usize = 64;

/// Changes at times that an administrator may name: those of a busy week, many times over.
pub const TIMED_MAX: usize = 256;

/// Nodes, sets, jobs, queues and classes that one of them may name, and the bytes of the list.
pub const TIMED_LIST_BYTES_MAX: usize = 1024;

/// The shortest quantum: a switch costs some 0.2 ms with fifteen busy processes.
pub const QUANTUM_MIN: Nanos = Nanos::from_millis(2);

/// The longest quantum: a day; beyond it, jobs don't take turns in any useful sense.
pub const QUANTUM_MAX: Nanos = Nanos::from_secs(24 * 3600);

/// The highest priority of a class: room for every class that may be defined, twice.
pub const PRIORITY_MAX: u64 = 2 * CLASSES_MAX as u64;

/// The longest time that a rule of a class may name, short of for ever: a year.
pub const RULE_TIME_MAX: Nanos = Nanos::from_secs(365 * 24 * 3600);

/// The shortest limit on a job's time that is of any use: launching takes longer.
pub const TIME_LIMIT_MIN: Nanos = Nanos::from_millis(1);

/// How many jobs one job may be asked to start after.
pub const AFTER_MAX: usize = 256;

/// Waiting jobs that administrators may have moved in line: all of them are looked at when one is
/// moved.
pub const MOVED_MAX: usize = 1000;

/// Slots that a class may ask for in each frame: more cost a switch each, and come no sooner.
pub const SLOTS_MAX: u64 = 16;

/// The longest that a class may want each of its slots to be: with the least share and the most
/// slots, a frame of years can still be counted.
pub const SLOT_MIN_MAX: Nanos = Nanos::from_secs(3600);

/// Candidates that stand in for absent ones, in one slot of one node: they only matter between the
/// end of a job and the timetable that follows it, so a few are enough, and a message stays small.
pub const SUBSTITUTES_PER_SLOT_MAX: usize = 64;

/// A whole, in the unit of class shares: shares are counted in ten-thousandths.
pub const SHARE_WHOLE: u32 = 10_000;

const _: () = assert!(QUANTUM_MIN.0 < QUANTUM_MAX.0);
const _: () = assert!(QUANTUM_MAX.0.checked_mul(ROWS_MAX as u64 * 2).is_some());
const _: () = assert!(SLOT_MIN_MAX.0.checked_mul(SLOTS_MAX * SHARE_WHOLE as u64 * 2).is_some());
const _: () = assert!(PROCESSORS_PER_NODE_MAX.is_multiple_of(64));

/// Events that a journal keeps for their readers: of about 200 bytes each.
pub const EVENTS_KEPT_MAX: u64 = 1_000_000;

/// Elements of one job array.
pub const ARRAY_ELEMENTS_MAX: u32 = 100_000;

/// The highest index of an element.
pub const ARRAY_INDEX_MAX: u32 = 4_000_000;

/// Ranges in which the indices of an array are written: so what is shown of it stays small.
pub const ARRAY_RANGES_MAX: usize = 2000;

/// Elements of an array that are in line at a time: so policies see few of them.
pub const ELEMENTS_IN_LINE: usize = 32;

/// Parameters for the policy program that a job may have.
pub const POLICY_ARGS_MAX: usize = 32;
/// The length of the name of one, in bytes.
pub const POLICY_ARG_NAME_BYTES_MAX: usize = 64;
/// The length of the value of one, in bytes.
pub const POLICY_ARG_BYTES_MAX: usize = 256;
/// The length of the path of a policy program, in bytes.
pub const POLICY_PATH_BYTES_MAX: usize = 4095;
/// The length of the reason with which a policy program declines a job, in bytes.
pub const POLICY_REASON_BYTES_MAX: usize = 256;
/// The nodes that an order of a policy program may name.
pub const POLICY_PLACES_MAX: usize = 4096;
/// The candidates of a slot to which the part of a policy on a node may give an order.
pub const POLICY_CANDIDATES_MAX: usize = 256;
/// The length of a message between the parts of a policy, in bytes.
pub const POLICY_MESSAGE_BYTES_MAX: usize = 1024;
