//! What a job asks for, and how it can end.

use crate::constraints::{NodeWish, OnNodeLoss};
use crate::ids::{ClassName, GroupId, JobId, NodeId, ProcessorSet, Rank, StepId, UserId};
use crate::limits::CHECKPOINT_EVERY_MIN;
use crate::node_performance::Weights;
use crate::resource::{DeviceWish, ResourceWish};
use crate::time::Nanos;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What a user asks to run, as far as a decision needs to know it. What the tasks are (program,
/// arguments, environment) is the driver's to keep and the keeper's to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    /// The user, as the kernel said.
    pub owner: UserId,
    /// The user's group.
    pub group: GroupId,
    /// The class whose rules hold for the job.
    pub class: ClassName,
    /// How many slots, each with room for one task; at least one. Most jobs start with a task in
    /// each ([`FirstStep`]).
    pub tasks: u32,
    /// Processors of its own for each task. `None`: one for each task, or, where the machine has
    /// fewer processors than the job has tasks, the tasks share all of them.
    pub processors_per_task: Option<u32>,
    /// Memory that each task may use, in bytes; `None` counts as zero in admission and sets no
    /// limit.
    pub memory_per_task_bytes: Option<u64>,
    /// How long the job may run, counting only the time of its turns; `None`: for ever.
    pub time_limit: Option<Nanos>,
    /// By when it must be done, from its submission on; `None`: whenever.
    pub deadline: Option<Nanos>,
    /// How long a job that was asked to end may take before it is killed.
    pub grace: Nanos,
    /// Whether a front end waits for the job: it dies with its front end.
    pub attached: bool,
    /// Whether it may go on elsewhere after it was set aside; otherwise it comes back to the
    /// processors that it had.
    pub movable: bool,
    /// How much each figure of a node counts where nodes are chosen by their performance; `None`:
    /// as the parameters say.
    #[serde(with = "crate::node_performance::stored")]
    pub weights: Option<Weights>,
    /// On which nodes it wants to be.
    pub nodes: NodeWish,
    /// The counted resources and the devices that it needs, each at most once.
    pub resources: Vec<ResourceWish>,
    /// What an unsuccessful task means for the others.
    pub on_bad_exit: OnBadExit,
    /// What becomes of it when a node is lost.
    pub on_node_loss: OnNodeLoss,
}

impl JobSpec {
    /// What it needs of counted resources, which belong to the whole cluster.
    pub fn counted(&self) -> impl Iterator<Item = &ResourceWish> {
        self.resources.iter().filter(|wish| wish.devices().is_none())
    }

    /// What it needs of the devices of its nodes.
    pub fn devices(&self) -> impl Iterator<Item = DeviceWish> + '_ {
        self.resources.iter().filter_map(|wish| wish.devices())
    }
}

/// What a job starts with, in the slots that it has. A slot is room for one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FirstStep {
    /// A task in each slot.
    #[default]
    EachSlot,
    /// One task, on its first node, which starts others itself: a batch script.
    Once,
    /// So many tasks, in the lowest of its slots. The other slots are free for tasks that these
    /// start.
    Tasks(u32),
}

impl FirstStep {
    /// How many tasks a job with so many slots starts with.
    #[must_use]
    pub const fn tasks(self, slots: u32) -> u32 {
        match self {
            Self::EachSlot => slots,
            Self::Once => 1,
            Self::Tasks(tasks) => {
                if tasks < slots {
                    tasks
                } else {
                    slots
                }
            }
        }
    }

    /// The number of a step where a batch script is not counted, as Slurm numbers them: the first
    /// step that the script starts has 0. `None`: the script itself.
    #[must_use]
    pub const fn number_after_script(self, step: StepId) -> Option<u32> {
        match self {
            Self::Once => step.0.checked_sub(1),
            Self::EachSlot | Self::Tasks(_) => Some(step.0),
        }
    }
}

/// A signal that a job gets before its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Warning {
    /// The signal's number.
    pub signal: u8,
    /// How long before the limit, in time of the job's turns.
    pub before: Nanos,
    /// Whether only the root processes of its first step get it: a batch script's shell.
    pub only_shell: bool,
}

/// How a job saves its state, so that its next run goes on from there: by itself, for a signal; or
/// its processes are saved to an image by a program of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The number of the signal that asks its tasks to save their state, or [`Self::IMAGE`].
    pub signal: u8,
    /// Whether only the root processes of its first step get it: a batch script's shell.
    pub only_shell: bool,
    /// How long its tasks may take to save their state and end.
    pub grace: Nanos,
    /// The exit code of a run that has saved its state and is not done; `None`: any.
    pub exit_code: Option<u8>,
    /// How often the job is asked to save its state and go on; `None`: never.
    pub every: Option<Nanos>,
}

impl Checkpoint {
    /// No signal: its processes are saved to an image.
    pub const IMAGE: u8 = 0;

    /// In place of [`Self::IMAGE`], in an order to a node: the processes are saved and go on.
    pub const IMAGE_AND_GO_ON: u8 = u8::MAX;

    /// Whether its processes are saved to an image, rather than by themselves.
    #[must_use]
    pub const fn saves_image(&self) -> bool {
        self.signal == Self::IMAGE
    }

    /// Whether its signal is one that a program can handle: not SIGKILL or SIGSTOP.
    const fn is_heeded(&self) -> bool {
        matches!(self.signal, 1..=64) && !matches!(self.signal, 9 | 19)
    }

    /// Whether its numbers are in their ranges.
    #[must_use]
    pub fn is_proper(&self) -> bool {
        let is_long_enough = self.every.is_none_or(|every| every >= CHECKPOINT_EVERY_MIN);
        if self.saves_image() {
            return !self.only_shell && self.exit_code.is_none() && is_long_enough;
        }
        self.is_heeded() && self.exit_code != Some(0) && is_long_enough
    }
}

/// Where the images of a job's processes are, if in a directory that nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SharedImage {
    /// Which directory: nodes with the same number share it.
    pub place: u64,
    /// What tells them from those of other jobs with this job number, also of other clusters.
    pub number: u64,
}

/// What is asked for a further step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepSpec {
    /// How many tasks; at least one.
    pub tasks: u32,
    /// Processors of its own for each task, at least one; `None`: as the job's slots have.
    pub processors_per_task: Option<u32>,
    /// Whether it shares processors with other steps instead of waiting for free ones.
    pub overlap: bool,
    /// On how many of the job's nodes it is to be; `None`: on as few as it takes.
    pub nodes: Option<u32>,
    /// How long a step that was asked to end may take before it is killed.
    pub grace: Nanos,
    /// What an unsuccessful task means for the others.
    pub on_bad_exit: OnBadExit,
    /// The task of the first step that waits for this one, and lends it its processors meanwhile.
    pub lender: Option<Rank>,
    /// The task of the first step beside which the only task of this one runs: on its node, on its
    /// processors. Such a step never waits.
    pub beside: Option<Rank>,
    /// The step whose tasks have spawned it (`MPI_Comm_spawn`). Such a step takes free slots of its
    /// job at once, or is refused. If it fails as a job would, that step ends, too. One that is to
    /// go on in any case ([`OnBadExit::Continue`]) never fails so.
    pub spawned_by: Option<StepId>,
    /// The node of its job that all of its tasks are on; `None`: any.
    pub on_node: Option<NodeId>,
}

impl StepSpec {
    /// Whether it shares its processors with other steps.
    #[must_use]
    pub const fn shares(&self) -> bool {
        self.overlap || self.beside.is_some()
    }
}

/// Why a job can't have a further step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StepRefusal {
    /// No such job runs.
    NoJob,
    /// The job is ending.
    Ending,
    /// It asks for no task, or no processor for a task.
    Nothing,
    /// It asks for more than the job has.
    TooLarge {
        /// How many such tasks the job has processors for.
        tasks: u32,
        /// How many processors it has.
        processors: u32,
        /// On how many nodes.
        nodes: u32,
    },
    /// The job has as many steps as it can have at once.
    TooMany {
        /// How many that is.
        limit: u32,
    },
    /// It is to run beside a task, and the job has no such rank, or nothing of it where that was.
    NoRank {
        /// The rank.
        rank: Rank,
    },
    /// It is to run beside a task, and the job is suspended or preempted.
    Suspended,
    /// It was spawned, and asks for more slots than are free.
    NotFree {
        /// How many are.
        slots: u32,
    },
}

/// What happens to the other tasks when one ends badly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnBadExit {
    /// A task that died of a signal, or aborted through PMI, takes the job with it; one that merely
    /// returned a nonzero status does not.
    #[default]
    KillOnSignal,
    /// Any unsuccessful task ends the job.
    Kill,
    /// The others go on in any case.
    Continue,
    /// The others go on, and learn which failed: by PMIx, and by a signal where one is named. A
    /// task that aborts for all of them ends the job.
    Notify {
        /// What the others get; `None`: no signal.
        signal: Option<u8>,
    },
}

impl OnBadExit {
    /// Whether the others go on when a task dies.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        matches!(self, Self::Continue | Self::Notify { .. })
    }
}

/// How the processes of a class are suspended and resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ControlMethod {
    /// The freezer of cgroup v2; the agent falls back to signals where no cgroup may be written.
    #[default]
    Freeze,
    /// SIGSTOP from the top down, SIGCONT from the bottom up.
    Signal,
    /// Not stopped: the job whose turn it is comes first, and this one gets what is left idle. The
    /// agent falls back to the freezer where it has no controller of processor time.
    Priority,
}

impl fmt::Display for ControlMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Freeze => "freeze",
            Self::Signal => "signal",
            Self::Priority => "priority",
        })
    }
}

/// What a node has, as its agent found it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The host name.
    pub name: String,
    /// The processors that tasks may run on.
    pub processors: ProcessorSet,
    /// Memory that tasks may use, in bytes.
    pub memory_bytes: u64,
}

/// How one task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskStatus {
    /// It returned this exit status, 0 to 255.
    Exited(u8),
    /// It died of this signal.
    Signaled(u8),
    /// It asked through PMI that the whole job end, with this status.
    Aborted(u8),
    /// Its program does not exist (as a shell says 127).
    NotFound,
    /// Its program could not be started (as a shell says 126).
    NotExecutable,
    /// The kernel killed it for using more memory than it may.
    OutOfMemory,
    /// Its keeper is gone; how it ended is unknown.
    Lost,
    /// It ended by itself, and its status is unknown: it was another's child when it was adopted.
    Unknown,
    /// It returned this exit status between `MPI_Init` and `MPI_Finalize`: the other tasks may wait for
    /// it for ever.
    Unfinalized(u8),
    /// Its processes were saved to an image, and ended for that.
    Saved,
    /// Its processes could not be restored from their image; that is kept.
    NotRestored,
    /// Its processes could not be saved to an image, may be damaged by that, and were ended. An
    /// earlier image is kept.
    Damaged,
}

impl TaskStatus {
    /// Whether others of its job may count on it no more, and it did not end well.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Exited(status) => status != 0,
            Self::Signaled(_)
            | Self::Aborted(_)
            | Self::NotFound
            | Self::NotExecutable
            | Self::OutOfMemory
            | Self::Lost
            | Self::Unfinalized(_) => true,
            Self::Unknown | Self::Saved | Self::NotRestored | Self::Damaged => false,
        }
    }

    /// The task's part of the exit status of the job, as shells and MPI starters count it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Exited(status) | Self::Aborted(status) | Self::Unfinalized(status) => status,
            Self::Signaled(signal) => 128u8.saturating_add(signal),
            Self::NotFound => 127,
            Self::NotExecutable | Self::NotRestored => 126,
            Self::Saved => 0,
            Self::OutOfMemory => EndReason::OutOfMemory.exit_code_or(0),
            Self::Lost | Self::Unknown | Self::Damaged => {
                EndReason::NodeLost(NodeId(0)).exit_code_or(0)
            }
        }
    }
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// All tasks ended by themselves.
    Completed,
    /// A task ended badly and took the others with it.
    TaskFailed,
    /// A user with the right to do so ended it.
    Cancelled,
    /// Its time limit was reached.
    TimedOut,
    /// A task used more memory than it may.
    OutOfMemory,
    /// Its front end went away.
    FrontEndLost,
    /// A node that ran some of it is lost, or what held its tasks there is.
    NodeLost(NodeId),
    /// The instance is shutting down.
    ShutDown,
    /// It was to start after this job, which did not become what was asked.
    NeverAfter(JobId),
    /// The site's policy program declined it.
    Declined,
    /// Its owner has it wait in line again, held if so asked. A job does not end by that, but the
    /// steps of its run do.
    Requeued {
        /// Whether it is held then.
        hold: bool,
    },
}

impl EndReason {
    /// The exit code of `tutti run` for jobs that ended for this reason, where the reason decides
    /// it; otherwise `statuses`, the highest of the tasks' own.
    #[must_use]
    pub const fn exit_code_or(self, statuses: u8) -> u8 {
        match self {
            Self::Completed
            | Self::TaskFailed
            | Self::Cancelled
            | Self::FrontEndLost
            | Self::Requeued { .. } => statuses,
            Self::NodeLost(_) => 121,
            Self::ShutDown => 122,
            Self::NeverAfter(_) | Self::Declined => 120,
            Self::OutOfMemory => 123,
            Self::TimedOut => 124,
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::TaskFailed => f.write_str("a task failed"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::TimedOut => f.write_str("timed out"),
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::FrontEndLost => f.write_str("its front end was lost"),
            Self::NodeLost(node) => write!(f, "node {node} was lost"),
            Self::ShutDown => f.write_str("shut down"),
            Self::Declined => f.write_str("the site's policy declined it"),
            Self::Requeued { .. } => f.write_str("its job was queued again"),
            Self::NeverAfter(job) => {
                write!(f, "it never started, since job {job} did not end as it asks (--after)")
            }
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it ended.
    pub reason: EndReason,
    /// The exit code of the whole: the highest of the tasks', or the reason's own.
    pub exit_code: u8,
    /// Time that its turns gave it, in nanoseconds.
    pub service: Nanos,
}

impl Outcome {
    /// Whether all tasks ran to their ends and exited with 0.
    #[must_use]
    pub const fn ended_well(self) -> bool {
        matches!(self.reason, EndReason::Completed) && self.exit_code == 0
    }
}
