//! Policies: which jobs get into the matrix, where, for how long at a time, and at the expense of
//! which jobs.
//!
//! A policy is composed of four parts, each replaceable: admission, placement, shares, preemption.
//! Each is a function over what is known; none of them changes anything. In what order jobs are let
//! in is not the policy's but the queue's business
//! ([`Discipline`](tutti_types::params::Discipline)): it asks the policy about one job at a time.
//!
//! The policy is a parameter, so it can be changed while jobs run: it is looked up by its place in
//! [`POLICIES`] each time.

mod admission;
#[cfg(test)]
mod alone;
mod buddy;
mod chosen;
pub(crate) mod classes;
pub(crate) mod deadline;
mod dhc;
mod expected_load;
mod gang;
mod grm;
mod packing;
mod placement;
#[cfg(test)]
mod replaceable;
mod shortest;

#[cfg(test)]
pub use alone::ALONE;
pub(crate) use chosen::lay_on;
pub use classes::CLASSES;
pub use deadline::{DEADLINE, Expected};
pub use dhc::DHC;
pub use gang::{EXTERNAL, GANG, SPACE};
pub(crate) use grm::after;
pub use placement::{Lack, Lay};
pub(crate) use placement::{
    choose, is_plain, processors, shared, shares_processors, tasks_by_memory,
};
pub use shortest::{ShortestSlot, shortest_slot};

use crate::devices::Devices;
use crate::frame::{Frame, Layout};
use crate::kept_memory::Admitted;
use crate::ledger::Ledger;
use crate::matrix::{Column, Matrix, Owner};
use crate::network::Network;
use crate::orders::HeldBy;
use crate::share::{self, Present};
use crate::state::nodes::Nodes;
use crate::state::record::{Part, Record};
use crate::state::table::Table;
use crate::timed::Leaving;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use tutti_types::after::After;
use tutti_types::class::{ClassSpec, Classes};
use tutti_types::counted::Counted;
use tutti_types::ids::{ClassName, JobId, NodeId, ProcessorSet, RowId};
use tutti_types::job::JobSpec;
use tutti_types::param::Shown;
use tutti_types::params::Params;
use tutti_types::queue::QueueLimit;
use tutti_types::refusal::Refusal;
use tutti_types::resource::ResourceName;
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::timetable::IfAbsent;

/// All policies, in the order of the values of the parameter `policy`.
pub const POLICIES: [Policy; 6] = [GANG, SPACE, CLASSES, DEADLINE, EXTERNAL, DHC];

/// The policy that parameters name.
pub(crate) fn of(params: &Params) -> &'static Policy {
    #[cfg(test)]
    if let Some(policy) = replaceable::in_place() {
        return policy;
    }
    POLICIES.get(params.policy()).unwrap_or(&POLICIES[0])
}

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The nodes.
    pub nodes: &'a Nodes,
    /// Which job is where.
    pub matrix: &'a Matrix,
    /// The classes.
    pub classes: &'a Classes,
    /// The parameters.
    pub params: &'a Params,
    /// How many rows there may be.
    pub rows: u32,
    /// Processors with external load, by node.
    pub external: &'a BTreeMap<NodeId, ProcessorSet>,
    /// The devices of the nodes.
    pub devices: &'a Devices,
    /// Bandwidth and latency between nodes.
    pub network: &'a Network,
    /// The jobs, and what they had of time.
    pub jobs: &'a Table<Record>,
    /// See [`Self::jobs`].
    pub ledger: &'a Ledger,
    /// When the latest event happened.
    pub now: ClusterTime,
    /// What jobs have of memory; `None`: what classes keep of it does not count.
    pub admitted: Option<Admitted<'a>>,
    /// Whether nodes that take no new jobs now, drained or out of reach, count like the others.
    pub whole: bool,
    /// The nodes that go out of service.
    pub leaving: Leaving<'a>,
}

impl<'a> Machine<'a> {
    /// The same with the nodes that take no new jobs now: what a job can have at best.
    pub(crate) const fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// The nodes that count, by number.
    pub(crate) fn columns(self) -> impl Iterator<Item = (NodeId, &'a Column)> {
        let counts =
            move |&(node, _): &(NodeId, &Column)| self.whole || !self.matrix.is_closed(node);
        self.matrix.columns().filter(counts)
    }

    /// How many processors these have.
    pub(crate) fn width(self) -> u64 {
        if self.whole { self.matrix.width() } else { self.matrix.blank().free() }
    }

    /// How many of these nodes have how many processors, fewest first.
    pub(crate) fn levels(self) -> Vec<(u32, u64)> {
        let open = self.matrix.blank().levels();
        if !self.whole || !self.matrix.has_closed() {
            return open.collect();
        }
        let mut levels: BTreeMap<u32, u64> = open.collect();
        for (_, column) in self.matrix.closed_columns() {
            *levels.entry(column.width).or_default() += 1;
        }
        levels.into_iter().collect()
    }
}

impl Machine<'_> {
    /// How loaded a processor is: the rows that use it, and one more for external load.
    pub(crate) fn load_of(self, node: NodeId, column: &Column, processor: u32) -> usize {
        let is_external = self.external.get(&node).is_some_and(|set| set.contains(processor));
        column.load_of(processor) + usize::from(is_external)
    }

    /// Whether a job can join a row, and no slot of the frame gets another length: its owner is at
    /// home there already, in the same class or in one that shares with it.
    pub(crate) fn keeps_slots(self, row: RowId, spec: &JobSpec, frame: &Frame) -> bool {
        let Some(row) = self.matrix.row(row).filter(|row| !row.classes.is_empty()) else {
            return false;
        };
        let sharers = share::sharers(self.classes, &spec.class);
        let is_same = |(class, owner): &(ClassName, Owner)| {
            *owner == Owner::of(spec)
                && share::sharers(self.classes, class) == sharers
                && *class != share::idle_only()
        };
        frame.slots.len() <= 1 || row.owners.keys().any(is_same)
    }
}

/// A policy: its four parts, and its name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Its name.
    pub name: &'static str,
    /// Whether a job may be accepted, or why not and what would be.
    pub admission: fn(Machine<'_>, &JobSpec) -> Result<(), Refusal>,
    /// Which processors of a row (`None`: of a new row) a job gets, or what is lacking there.
    pub placement: Lay,
    /// Which slots there are.
    pub shares: Shares,
    /// At the expense of which jobs a job is seated.
    pub preemption: Preemption,
    /// Whether blocks of processors have controllers ([`crate::levels`]), and rows a level each.
    pub has_levels: bool,
}

/// At the expense of which jobs a job is seated.
#[derive(Clone, Copy, Debug)]
pub enum Preemption {
    /// At no job's: it starts where there is room for it, beside others or in turns with them, or
    /// waits in line as the queue's discipline says.
    Nobodys(fn(Machine<'_>, &JobSpec, Lay) -> Decision),
    /// Jobs that the rules of classes name: they are preempted, and come back by these rules.
    ByClass,
    /// Jobs that were promised less: they are preempted, and come back when it is their turn.
    ByDeadline,
}

impl Policy {
    /// Whether it decides itself when preempted jobs come back; otherwise they do at once.
    #[must_use]
    pub const fn sets_aside(&self) -> bool {
        matches!(self.preemption, Preemption::ByClass | Preemption::ByDeadline)
    }

    /// Whether it seats jobs by what they were promised (the module `deadline`), each class with a
    /// share in a row of its own.
    #[must_use]
    pub const fn plans(&self) -> bool {
        matches!(self.preemption, Preemption::ByDeadline)
    }

    /// Whether jobs ever take turns, by the clock, with others or with empty slots.
    pub(crate) fn has_turns(&self, params: &Params, classes: &Classes) -> bool {
        let holds = |class: &ClassSpec| class.share() > 0 && class.empty() == IfAbsent::Hold;
        self.plans()
            || self.has_levels
            || (self.shares.rows)(params) > 1
            || classes.values().any(holds)
    }

    /// What becomes of the job that is next in line; `None` under a policy that knows no line.
    pub(crate) fn decide(&self, machine: Machine<'_>, spec: &JobSpec) -> Option<Decision> {
        match self.preemption {
            Preemption::Nobodys(decide) => Some(decide(machine, spec, self.placement)),
            Preemption::ByClass | Preemption::ByDeadline => None,
        }
    }
}

/// Which slots there are: how many, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// How many rows there may be; at least one.
    pub rows: fn(&Params) -> u32,
    /// Which slots each row has, and how long they are.
    pub layout: fn(&Present, &Classes, Nanos) -> Layout,
    /// How short a slot may become, and of which class that may be.
    pub shortest: fn(&Classes, Nanos) -> Option<(Nanos, ClassName)>,
}

/// What becomes of the job that is next in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It starts.
    Start {
        /// In this row; `None`: in a new one.
        row: Option<RowId>,
        /// On these processors.
        parts: Vec<Part>,
    },
    /// It waits.
    Wait(WaitReason),
}

/// Why a queued job is not in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitReason {
    /// No row has enough processors free, and there are as many rows as may be.
    Rows {
        /// As many as may be.
        limit: u32,
    },
    /// No row has a block of processors free that holds it, and there are as many rows as may be.
    Block {
        /// The block's size.
        size: u32,
    },
    /// No row has so many nodes on which no job is at home, and there are as many rows as may be.
    IdleNodes {
        /// How many it needs.
        nodes: u32,
    },
    /// No row has enough free on the nodes that it wants, and there are as many rows as may be.
    Wish {
        /// As many as may be.
        limit: u32,
    },
    /// Too much of the memory that it asks for is allocated to the resident jobs.
    Memory,
    /// The same, and the memory of one of them is leaving.
    MemoryLeaves {
        /// Which one.
        job: JobId,
    },
    /// Other classes keep the memory that is free.
    KeptMemory,
    /// Its memory was swapped out, and would come back too soon.
    SwappedOut {
        /// How much longer it stays out.
        left: Nanos,
    },
    /// The nodes that are up have less than it asks for, even with nothing else on them.
    Nodes,
    /// A job before it in line waits too: by arrival the one just before; with users in turn the
    /// one before among those of its user, or else the first in line.
    Behind(JobId),
    /// It could delay a job that was accepted before it.
    Delays {
        /// Which one.
        job: JobId,
        /// That job starts within so long, if jobs end by their limits.
        within: Nanos,
        /// Whether this one has a time limit; else it could delay anybody.
        limited: bool,
    },
    /// It has a reservation.
    Reserved {
        /// It starts within so long, if jobs end by their limits.
        within: Nanos,
    },
    /// It has more processors than one job may have now.
    JobLimit {
        /// How many that is.
        limit: u64,
    },
    /// Large jobs may have no more processors now.
    LargeLimit {
        /// How many they may have.
        limit: u64,
    },
    /// Jobs of its class may have no more processors now.
    ClassLimit {
        /// How many they may have.
        limit: u64,
    },
    /// As many jobs of its class have processors as may.
    ClassJobs {
        /// How many that is.
        limit: u64,
    },
    /// As many jobs of its user and class have processors as may.
    UserJobs {
        /// How many that is.
        limit: u64,
    },
    /// Other jobs have what it asks for of a resource, or there is too little of it now.
    Resource {
        /// Which one.
        name: ResourceName,
    },
    /// Too few processors are free, and its class has it wait so much longer before others are set
    /// aside.
    Patience {
        /// How much longer.
        left: Nanos,
    },
    /// Others are being preempted for another job first.
    Bumper {
        /// Which one.
        job: JobId,
    },
    /// Too few processors are free, and the jobs that have them may not be preempted for it.
    Undisturbed,
    /// A user suspended it before it began.
    Suspended,
    /// Others than the cluster's jobs use so many processors that those left are too few for it.
    Foreign {
        /// How many others use.
        processors: u64,
    },
    /// Too few processors are free, and jobs of its class preempt no others, however long they
    /// wait.
    NeverPreempts,
    /// All rows are in use, and so are those that its class keeps.
    KeptRows {
        /// How many rows there may be for all.
        limit: u32,
        /// How many more its class keeps.
        kept: u32,
    },
    /// A limit of its queue is used up.
    Queue {
        /// Which limit.
        limit: QueueLimit,
        /// How much it is.
        most: u64,
    },
    /// It is kept out of the line until it is released.
    Held {
        /// The user that holds it.
        by: HeldBy,
    },
    /// It has run beyond its time limit, and others wait.
    Overrun,
    /// It starts after other jobs.
    After {
        /// The first of them.
        after: After,
        /// How many more there are.
        more: u64,
        /// Whether one of them is enough.
        one: bool,
    },
    /// It was to start after a job that did not end as was asked.
    NeverAfter {
        /// Which one.
        job: JobId,
    },
    /// Its moment has not come.
    Begin {
        /// When it comes, in milliseconds since 1970.
        unix_ms: u64,
    },
    /// The site's policy program has not started it.
    Outside,
    /// A node goes out of service before the job is sure to have ended.
    Leaves {
        /// The first of them.
        node: NodeId,
        /// When, in milliseconds since 1970.
        unix_ms: u64,
        /// Whether the job has a time limit.
        limited: bool,
    },
    /// As many jobs as may take turns do so in each block of its level.
    Level {
        /// How many processors such a block has.
        size: u64,
        /// How many jobs may take turns.
        limit: u32,
    },
    /// Other jobs have the devices that it asks for, or the nodes have too few now.
    Device {
        /// Their name.
        name: ResourceName,
    },
}

impl WaitReason {
    /// It in one word, which stays what it is from release to release.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Rows { .. }
            | Self::Block { .. }
            | Self::IdleNodes { .. }
            | Self::Wish { .. }
            | Self::Patience { .. }
            | Self::Undisturbed
            | Self::NeverPreempts
            | Self::KeptRows { .. }
            | Self::Level { .. } => "processors",
            Self::Memory
            | Self::KeptMemory
            | Self::MemoryLeaves { .. }
            | Self::SwappedOut { .. } => "memory",
            Self::Nodes => "nodes",
            Self::Resource { .. } => "resource",
            Self::Device { .. } => "device",
            Self::Behind(_) | Self::Delays { .. } | Self::Bumper { .. } | Self::Reserved { .. } => {
                "line"
            }
            Self::JobLimit { .. }
            | Self::LargeLimit { .. }
            | Self::ClassLimit { .. }
            | Self::ClassJobs { .. }
            | Self::UserJobs { .. }
            | Self::Queue { .. } => "limit",
            Self::Suspended => "suspended",
            Self::Foreign { .. } => "external-load",
            Self::Held { by: HeldBy::Owner } => "held",
            Self::Held { by: HeldBy::Administrator } => "held-by-administrator",
            Self::Overrun => "overrun",
            Self::After { .. } => "after",
            Self::NeverAfter { .. } => "never",
            Self::Begin { .. } => "begin",
            Self::Outside => "policy",
            Self::Leaves { .. } => "out-of-service",
        }
    }
}

/// When a job starts. No time within the last second: jobs that leave for it may take longer.
struct Start(Nanos);

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            soon if soon <= Nanos::from_secs(1) => {
                f.write_str("next, as soon as its processors are free")
            }
            within => write!(f, "within {}", Seconds(within)),
        }
    }
}

/// A length of time to people: whole seconds, and of what is long no more than two units.
struct Seconds(Nanos);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.0.div_ceil(1_000_000_000);
        match seconds {
            0..60 => write!(f, "{seconds}s"),
            60..3600 => write!(f, "{}m{:02}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        }
    }
}

const UNDISTURBED: &str = "too few processors are free, and the jobs that have them may not be preempted for it; a job with \
     fewer tasks or of a more important class could start sooner";
const NEVER_PREEMPTS: &str = "too few processors are free, and jobs of its class never preempt others; a job with fewer tasks or \
     of another class (--class) could start sooner";

const OVERRUN: &str = "it is over its time limit, and goes on when no job waits (overrun=standby)";

fn foreign(f: &mut fmt::Formatter<'_>, processors: u64) -> fmt::Result {
    write!(
        f,
        "what is no job of the cluster keeps {} busy, and too few are left (parameter foreign)",
        Counted(processors, "processor")
    )
}

fn level_in_use(f: &mut fmt::Formatter<'_>, size: u64, limit: u32) -> fmt::Result {
    let size = Counted(size, "processor");
    write!(f, "each block of {size} has as many jobs as may take turns in it: {limit} (rows)")
}

const fn held(by: HeldBy) -> &'static str {
    match by {
        HeldBy::Owner => "held; `tutti release` puts it in line",
        HeldBy::Administrator => {
            "held by an administrator, and only an administrator can release it"
        }
    }
}

fn starts_after(
    f: &mut fmt::Formatter<'_>,
    After { job, what }: After,
    more: u64,
    one: bool,
) -> fmt::Result {
    write!(f, "starts when job {job} {}", what.said())?;
    match (more, one) {
        (0, _) => Ok(()),
        (1, true) => f.write_str(", or another job is as it asks"),
        (1, false) => f.write_str(", and another job is as it asks"),
        (more, true) => write!(f, ", or one of {more} others is as it asks"),
        (more, false) => write!(f, ", and {more} more are as it asks"),
    }
}

fn never(f: &mut fmt::Formatter<'_>, job: JobId) -> fmt::Result {
    write!(f, "never: job {job} did not end as it asks (--after); `tutti cancel` ends it")
}

/// What a job lacks for a node that goes out of service.
#[must_use]
pub const fn leaves_before(limited: bool) -> &'static str {
    match limited {
        true => ", before the time limit of the job (-t) is over",
        false => "; a time limit (-t) that is over before then lets the job start",
    }
}

fn leaves(f: &mut fmt::Formatter<'_>, node: NodeId, unix_ms: u64, limited: bool) -> fmt::Result {
    write!(f, "node {node} goes out of service {} s after 1970", unix_ms / 1000)?;
    f.write_str(leaves_before(limited))
}

fn used_up(f: &mut fmt::Formatter<'_>, limit: QueueLimit, most: u64) -> fmt::Result {
    write!(f, "a limit of its queue is used up: {limit}={}", Shown(limit.param(), most))
}

fn lacks_devices(f: &mut fmt::Formatter<'_>, name: ResourceName) -> fmt::Result {
    write!(f, "other jobs have what nodes have of {name} (see `tutti nodes`)")
}

fn kept_rows(f: &mut fmt::Formatter<'_>, limit: u32, kept: u32) -> fmt::Result {
    write!(f, "all {limit} rows are in use, and so are the {kept} more that its class keeps")
}

fn at_most(f: &mut fmt::Formatter<'_>, what: &str, most: Counted, when: &str) -> fmt::Result {
    write!(f, "{what} may have at most {most} {when}")
}

const KEPT_MEMORY: &str = "too little memory is free that no other class keeps (rule memory)";

fn stays_out(f: &mut fmt::Formatter<'_>, left: Nanos) -> fmt::Result {
    write!(f, "its memory was swapped out, and stays out {} longer (swap_cost)", Seconds(left))
}

const BUMPED_BY: &str = "too few processors are free, and job";
/// The words before the job that is being swapped out.
const MEMORY_LEAVES: &str = "too little memory is free; it is being swapped out of";

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { limit: 1 } => f.write_str("too few processors are free"),
            Self::Rows { limit } => {
                write!(f, "all {limit} rows are in use and none has enough free processors")
            }
            Self::Block { size: 1 } => f.write_str("no processor is free in any row"),
            Self::Block { size } => {
                write!(f, "no block of {size} processors is free in any row (packing=buddy)")
            }
            Self::IdleNodes { nodes } => {
                write!(f, "no row has {nodes} nodes that no other job uses (placement=low-load)")
            }
            Self::Wish { limit: 1 } => f.write_str("too little is free on the nodes that it wants"),
            Self::Wish { limit } => write!(
                f,
                "all {limit} rows are in use and none has enough free on the nodes that it wants"
            ),
            Self::Memory => f.write_str("the resident jobs leave too little memory"),
            Self::KeptMemory => f.write_str(KEPT_MEMORY),
            Self::MemoryLeaves { job } => write!(f, "{MEMORY_LEAVES} job {job}"),
            Self::SwappedOut { left } => stays_out(f, *left),
            Self::Nodes => f.write_str("the nodes that are up are too few"),
            Self::Behind(job) => write!(f, "behind job {job}"),
            Self::Delays { job, within, limited } => {
                let could = if *limited { "" } else { "; a time limit (-t) could let it by" };
                write!(f, "would delay job {job}, which starts {}{could}", Start(*within))
            }
            Self::Reserved { within } => write!(f, "starts {}", Start(*within)),
            Self::JobLimit { limit } => {
                at_most(f, "a job", Counted(*limit, "processor"), "now (job_limit)")
            }
            Self::LargeLimit { limit } => {
                at_most(f, "large jobs", Counted(*limit, "processor"), "now (large_limit)")
            }
            Self::ClassLimit { limit } => {
                at_most(f, "its class", Counted(*limit, "processor"), "now")
            }
            Self::ClassJobs { limit } => {
                at_most(f, "its class", Counted(*limit, "job"), "at a time now")
            }
            Self::UserJobs { limit } => {
                at_most(f, "its user", Counted(*limit, "job"), "of the class at a time now")
            }
            Self::Resource { name } => write!(
                f,
                "other jobs have what it asks for of resource {name} (see `tutti resource`)"
            ),
            Self::Device { name } => lacks_devices(f, *name),
            Self::Patience { left } => write!(
                f,
                "too few processors are free; if they stay so, others are preempted in {}",
                Seconds(*left)
            ),
            Self::Bumper { job } => write!(f, "{BUMPED_BY} {job} preempts others first"),
            Self::Undisturbed => f.write_str(UNDISTURBED),
            Self::NeverPreempts => f.write_str(NEVER_PREEMPTS),
            Self::Foreign { processors } => foreign(f, *processors),
            Self::Suspended => f.write_str("suspended before it began"),
            Self::KeptRows { limit, kept } => kept_rows(f, *limit, *kept),
            Self::Queue { limit, most } => used_up(f, *limit, *most),
            Self::Held { by } => f.write_str(held(*by)),
            Self::Overrun => f.write_str(OVERRUN),
            Self::After { after, more, one } => starts_after(f, *after, *more, *one),
            Self::NeverAfter { job } => never(f, *job),
            Self::Level { size, limit } => level_in_use(f, *size, *limit),
            Self::Outside => f.write_str("the site's policy program has not started it"),
            Self::Leaves { node, unix_ms, limited } => leaves(f, *node, *unix_ms, *limited),
            Self::Begin { unix_ms } => write!(f, "it begins {} s after 1970", unix_ms / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::POLICIES;
    use tutti_types::params::TABLE;

    #[test]
    fn the_parameter_names_all_policies_in_their_order() {
        let names: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
        let param = TABLE.iter().find(|param| param.name == "policy").unwrap();
        assert_eq!(param.kind.words(), names);
    }
}
