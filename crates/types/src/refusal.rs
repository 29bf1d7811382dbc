//! Why a request was refused, and where tasks are placed.

use crate::constraints::WishRefusal;
use crate::counted::Asked;
use crate::ids::{ClassName, JobId, ProcessorSet, Rank};
use crate::queue::QueueRefusal;
use crate::resource::{Amount, ResourceName, ResourceWish};
use crate::time::Nanos;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Where one task runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlacement {
    /// Which task.
    pub rank: Rank,
    /// The processors that it is bound to.
    pub processors: ProcessorSet,
}

/// Why a request was refused, each with the nearest request that would not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A job needs at least one task, one processor a task.
    NothingAsked,
    /// More processors than all nodes together have.
    TooManyProcessors {
        /// Asked for.
        asked: u64,
        /// What there is for tasks of that many processors each.
        available: u64,
    },
    /// More tasks than there are nodes, and each is to have a node of its own.
    TooFewNodes {
        /// Asked for.
        asked: u64,
        /// Nodes that can take a task.
        available: u64,
    },
    /// What is wished of nodes can't be had.
    Wish(WishRefusal),
    /// A task asks for more processors than any one node has.
    TaskTooWide {
        /// Asked for a task.
        asked: u32,
        /// The most that one node has.
        available: u32,
    },
    /// More memory than the machine can ever give to so many tasks.
    TooMuchMemory {
        /// Asked for each task, in bytes.
        asked_bytes: u64,
        /// The most that each of so many tasks could get, in bytes.
        available_bytes: u64,
    },
    /// More tasks than [`crate::limits::TASKS_PER_JOB_MAX`].
    TooManyTasks {
        /// The most.
        limit: u32,
    },
    /// There is no such class.
    UnknownClass {
        /// The name that was given.
        class: ClassName,
        /// Those that exist.
        known: Vec<ClassName>,
    },
    /// There is no such resource, or less of it than was asked for.
    NoResource {
        /// The name that was given.
        name: ResourceName,
        /// How much was asked for.
        amount: Amount,
        /// How many there are of that name; none if it is unknown.
        count: u32,
    },
    /// The nodes have no such devices, or too few for the job even with nothing else on them.
    NoDevices {
        /// The name that was given.
        name: ResourceName,
        /// How many were asked for.
        amount: Amount,
        /// How many all nodes have together.
        count: u32,
        /// The most that the job could ask for, of the same kind; zero: none.
        most: u32,
    },
    /// A limit on time that is zero or next to nothing.
    NoTime {
        /// The shortest that would do.
        shortest: Nanos,
    },
    /// As many jobs as the controller may know at once.
    TooManyJobs {
        /// The most.
        limit: u64,
    },
    /// It is not certain to be done by the deadline.
    Deadline {
        /// What was asked, from the submission on.
        asked: Nanos,
        /// The earliest that would have been accepted at that moment; `None`: none.
        earliest: Option<Nanos>,
    },
    /// A deadline without a limit on time.
    DeadlineWithoutLimit,
    /// A deadline under a policy that promises none.
    NoDeadlines,
    /// A deadline for a class that is sure of no time at all.
    NoTimeForClass {
        /// Which class.
        class: ClassName,
    },
    /// A deadline, and too little memory is free to promise the job any.
    NoMemoryByDeadline,
    /// The instance is ending.
    ShuttingDown,
    /// No node has joined yet.
    NoNodes,
    /// Its queue does not take it.
    Queue(QueueRefusal),
    /// A deadline for a job that is held.
    HeldWithDeadline,
    /// More resources than [`crate::limits::RESOURCES_PER_JOB_MAX`].
    TooManyResources {
        /// The most.
        limit: u32,
    },
    /// The same resource twice.
    ResourceTwice,
    /// A deadline for a job that needs counted resources.
    DeadlineWithResources,
    /// A deadline for a job that starts after others.
    DeadlineAfterJobs,
    /// It is to start after too many jobs.
    AfterTooMany {
        /// The most.
        limit: u32,
    },
    /// It is to start after a job that is not there.
    AfterNone {
        /// Which one.
        job: JobId,
    },
    /// Elements are to start after those of something that does not have them.
    AfterEach {
        /// Which job.
        job: JobId,
    },
    /// A deadline for a job that begins no earlier than at a moment.
    DeadlineWithBegin,
    /// An array asks for a deadline.
    ArrayWithDeadline,
}

/// Bytes, as people ask for them: in the largest unit that gives a whole number.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes > 0 && bytes % (1 << 30) == 0 => write!(f, "{}G", bytes >> 30),
            bytes => write!(f, "{}M", bytes.div_ceil(1 << 20)),
        }
    }
}

/// A length of time in seconds, the next whole one, so that a request for it asks for enough.
struct WholeSeconds(Nanos);

impl fmt::Display for WholeSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Nanos::from_secs(self.0.0.div_ceil(1_000_000_000)).fmt(f)
    }
}

fn write_deadline(
    f: &mut fmt::Formatter<'_>,
    asked: Nanos,
    earliest: Option<Nanos>,
) -> fmt::Result {
    write!(f, "it can't be guaranteed to end within {}", WholeSeconds(asked))?;
    match earliest {
        Some(earliest) => {
            let earliest = WholeSeconds(earliest);
            write!(f, "; the earliest possible is --deadline {earliest}")
        }
        None => f.write_str(", nor by any later time; leave out --deadline"),
    }
}

fn write_resource(
    f: &mut fmt::Formatter<'_>,
    name: &ResourceName,
    amount: Amount,
    count: u32,
) -> fmt::Result {
    match (amount, count) {
        (_, 0) => write!(
            f,
            "there is no resource {name}; `tutti resource` and `tutti nodes resource` list what \
             there is"
        ),
        (Amount::Number(number), count) => write!(
            f,
            "resource {name} has no number {number}; ask for one of 0 to {}",
            count.saturating_sub(1)
        ),
        (Amount::One | Amount::Count(_) | Amount::OnNodes { .. }, count) => write!(
            f,
            "{} of resource {name} were asked for and there are {count}; ask for at most \
             {name}:{count}",
            amount.count()
        ),
    }
}

fn write_devices(
    f: &mut fmt::Formatter<'_>,
    name: ResourceName,
    amount: Amount,
    (count, most): (u32, u32),
) -> fmt::Result {
    if count == 0 {
        return write!(f, "no node has a device {name}; `tutti nodes` lists what there is");
    }
    let asked = ResourceWish { name, amount };
    write!(f, "{asked} was asked for, which the nodes can't give to so many tasks; ")?;
    match (most, amount) {
        (1.., Amount::OnNodes { per, vacates, .. }) => {
            let amount = Amount::OnNodes { count: most, per, vacates };
            write!(f, "ask for at most {}", ResourceWish { name, amount })
        }
        _ => write!(f, "they have {count} in all: ask for fewer tasks"),
    }
}

impl From<WishRefusal> for Refusal {
    fn from(refusal: WishRefusal) -> Self {
        Self::Wish(refusal)
    }
}

const HELD_WITH_DEADLINE: &str =
    "a held job can't be promised a deadline; leave out --hold or --deadline";
const DEADLINE_WITH_BEGIN: &str =
    "no deadline can be promised to a job that begins later; leave out --deadline or --begin";
const DEADLINE_AFTER_JOBS: &str = "no deadline can be promised to a job that starts after others; leave out --deadline or --after";
const ARRAY_WITH_DEADLINE: &str =
    "no deadline can be promised to a job array; leave out --deadline or --array";
const DEADLINE_WITH_RESOURCES: &str = "no deadline can be promised to a job that needs counted \
                                       resources or devices; leave out --deadline, or what it \
                                       needs";

/// A name that was asked for and is none: as it is, if it could be one; else quoted, and cut.
pub(crate) struct Wanted<'a>(pub(crate) &'a str);

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 64;
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_long = self.0.chars().nth(SHOWN_MAX).is_some();
        match !self.0.is_empty() && !is_long && self.0.chars().all(is_plain) {
            true => f.write_str(self.0),
            false => {
                let shown: String = self.0.chars().take(SHOWN_MAX).collect();
                write!(f, "{shown:?}{}", if is_long { "..." } else { "" })
            }
        }
    }
}

fn write_unknown_class(
    f: &mut fmt::Formatter<'_>,
    class: &ClassName,
    known: &[ClassName],
) -> fmt::Result {
    write!(f, "there is no class {}; the classes are", Wanted(&class.0))?;
    for (i, name) in known.iter().enumerate() {
        write!(f, "{} {name}", if i == 0 { "" } else { "," })?;
    }
    Ok(())
}

fn too_many_before(f: &mut fmt::Formatter<'_>, limit: u32) -> fmt::Result {
    write!(f, "a job can start after at most {limit} others (--after)")
}

fn no_pairs(f: &mut fmt::Formatter<'_>, job: JobId) -> fmt::Result {
    write!(
        f,
        "--after {job}:each (in Slurm's words aftercorr:{job}) needs two arrays: submit with --array, and only indices that array {job} has; \
         it goes with no other :each and no `|`"
    )
}

fn none_before(f: &mut fmt::Formatter<'_>, job: JobId) -> fmt::Result {
    write!(f, "no job {job} is there to start after (--after); `tutti ps` lists jobs")
}

const NO_DEADLINES: &str = "the policy in force promises no deadlines; leave out --deadline, or set \
                            policy=deadline (tutti params)";

const NO_MEMORY_BY_DEADLINE: &str = "too little memory is free to promise the job any by a deadline; \
                                     ask for less, leave out --deadline, or try again when a job has \
                                     ended";

const RESOURCE_TWICE: &str =
    "a resource was asked for twice; name each once, such as --resource licence:2";

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingAsked => {
                f.write_str("a job needs at least one task and one processor a task")
            }
            Self::TooManyProcessors { asked, available } => write!(
                f,
                "{} asked for and the machine has {available}; ask for at most {available}, or leave \
                 out -c to let tasks share processors",
                Asked(*asked, "processor")
            ),
            Self::TooFewNodes { asked, available } => write!(
                f,
                "{asked} tasks were asked for, and placement=low-load gives each a node of its own, of \
                 which there are {available}; ask for at most {available}, or have the placement \
                 changed (tutti params placement=high-load)"
            ),
            Self::Wish(refusal) => refusal.fmt(f),
            Self::TaskTooWide { asked, available } => write!(
                f,
                "{asked} processors were asked for each task and no node has more than {available}; \
                 ask for at most -c {available}"
            ),
            Self::TooMuchMemory { asked_bytes, available_bytes } => write!(
                f,
                "{} of memory were asked for each task, and for that many tasks there is at most {1} \
                 each; ask for at most -m {1}, or for fewer tasks",
                Size(*asked_bytes),
                Size(available_bytes >> 20 << 20)
            ),
            Self::TooManyTasks { limit } => write!(f, "a job may have at most {limit} tasks"),
            Self::UnknownClass { class, known } => write_unknown_class(f, class, known),
            Self::NoResource { name, amount, count } => write_resource(f, name, *amount, *count),
            Self::NoDevices { name, amount, count, most } => {
                write_devices(f, *name, *amount, (*count, *most))
            }
            Self::NoTime { shortest } => {
                write!(f, "the time limit leaves no time; ask for at least {shortest}")
            }
            Self::TooManyJobs { limit } => {
                write!(f, "the controller holds {limit} jobs, its limit; try again when some ended")
            }
            Self::Deadline { asked, earliest } => write_deadline(f, *asked, *earliest),
            Self::DeadlineWithoutLimit => f.write_str(
                "a deadline can only be promised to a job with a time limit; give one with -t",
            ),
            Self::NoDeadlines => f.write_str(NO_DEADLINES),
            Self::NoTimeForClass { class } => write!(
                f,
                "the other classes have all of the time, so class {class} can be promised no deadline; \
                 leave out --deadline or name another class"
            ),
            Self::NoMemoryByDeadline => f.write_str(NO_MEMORY_BY_DEADLINE),
            Self::Queue(refusal) => refusal.fmt(f),
            Self::ShuttingDown => f.write_str("the instance is shutting down"),
            Self::NoNodes => f.write_str("no node has joined yet; try again when one has"),
            Self::HeldWithDeadline => f.write_str(HELD_WITH_DEADLINE),
            Self::TooManyResources { limit } => {
                write!(f, "a job may ask for at most {limit} resources (--resource)")
            }
            Self::ResourceTwice => f.write_str(RESOURCE_TWICE),
            Self::DeadlineWithResources => f.write_str(DEADLINE_WITH_RESOURCES),
            Self::DeadlineAfterJobs => f.write_str(DEADLINE_AFTER_JOBS),
            Self::AfterTooMany { limit } => too_many_before(f, *limit),
            Self::AfterNone { job } => none_before(f, *job),
            Self::AfterEach { job } => no_pairs(f, *job),
            Self::DeadlineWithBegin => f.write_str(DEADLINE_WITH_BEGIN),
            Self::ArrayWithDeadline => f.write_str(ARRAY_WITH_DEADLINE),
        }
    }
}
