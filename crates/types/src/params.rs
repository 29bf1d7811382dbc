//! The parameters of the whole: one table from which parsing, listing and checking are made.

mod table;
#[cfg(test)]
mod tests;

pub use table::TABLE;

use crate::limits::{ROWS_MAX, SHARE_WHOLE};
use crate::node_performance::Weights;
use crate::param::{self, Param, ParamError, bounded};
use crate::placing::{Packing, Placement};
use crate::time::Nanos;
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use table::at;

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
        "policy_limit" | "policy_memory" | "policy_processes" => Some(&["external"]),
        "share_devices" => Some(&["gang", "external", "dhc"]),
        "preemption" | "large_job" | "large_limit" | "job_limit" | "wait" | "do_not_disturb"
        | "processors" | "jobs" | "jobs_per_user" => Some(&["classes"]),
        _ => None,
    }
}

/// The name of the parameter that has Slurm's commands reject unknown names. Only these commands
/// look at it.
pub const SLURM_STRICT: &str = "slurm_strict";

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

    /// How much memory the policy program may have with all that it has started; `None`: any
    /// amount.
    #[must_use]
    pub fn policy_memory_bytes(&self) -> Option<u64> {
        bounded(self.values[at::POLICY_MEMORY])
    }

    /// How many processes and threads these may be.
    #[must_use]
    pub const fn policy_processes(&self) -> u64 {
        self.values[at::POLICY_PROCESSES]
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
            network: weight(at::WEIGHT_NETWORK),
            latency: weight(at::WEIGHT_LATENCY),
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
