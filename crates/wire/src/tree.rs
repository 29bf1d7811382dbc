//! Messages between the controller and an agent.

use crate::frame::{encoded_len, pack};
use crate::launch::{Launch, Share, Usage};
use crate::limits::{BATCH_BYTES_MAX, CANDIDATE_BYTES_MAX, ITEM_BYTES_MAX};
use crate::output::{OutputFrom, OutputPiece};
use crate::pmix::{Peer, Piece};
use crate::report::{AgentStatus, NodeSwap, SwitchRecord, Target, TaskReport, TimetableReport};
use crate::usage::UsedProcessors;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{
    ClockSource, ClusterTime, Device, FeatureName, Figures, IfAbsent, JobId, LaunchId,
    LoadAverages, Nanos, NetworkFigures, NodeId, NodeSpec, Orphans, ProcessorSet, Rank, RowId,
    Slot, TaskStatus, Timetable, Traversal,
};

/// What a controller tells an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one at a time is decoded, and used at once")]
pub enum ToAgent {
    /// The answer to `Join`.
    Welcome {
        /// The number of the node.
        node: NodeId,
        /// How far cluster time is ahead of the monotonic clock of the controller's machine, in
        /// nanoseconds; only an agent there can use it.
        clock_ahead_ns: u64,
        /// How to switch.
        settings: Settings,
        /// Launches that the agent's keeper holds and that are the controller's latest; all others
        /// are to be ended.
        known: Vec<LaunchId>,
    },
    /// The node may not join, and why.
    Refused {
        /// Why.
        reason: String,
    },
    /// How to switch, from now on.
    Settings(Settings),
    /// The node's part of the matrix.
    Timetable(Timetable),
    /// Start tasks. One message for all nodes of the job: each takes its own share.
    Launch {
        /// What is the same on all nodes; its share belongs to no node.
        launch: Launch,
        /// What each node gets, by node.
        shares: Vec<(NodeId, Share)>,
    },
    /// Send a signal to the process groups of tasks' root processes.
    Signal {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// Which tasks; empty means all of the node.
        ranks: Vec<Rank>,
        /// The signal's number.
        signal: u8,
    },
    /// Ask the job to end: SIGTERM as by `Signal`, and what is suspended of it goes on.
    Terminate {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// End every process of the job.
    Kill {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// The end of the job is known; nothing of it need be kept.
    Forget {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// A question or an order about a part of a job, answered by `Answer` with the same number.
    Ask {
        /// Ties the answer to it.
        query: u64,
        /// What is asked.
        question: Question,
    },
    /// End all jobs, the keeper and yourself.
    Stop,
    /// Go out of service: suspend all jobs, say `Leaving`, and wait for `Stop`.
    Leave,
    /// Slots of a timetable that is too long for one message: the `Timetable` of the same version,
    /// which follows, has the last of them.
    TimetablePart {
        /// Of which timetable.
        version: u64,
        /// The next slots.
        slots: Vec<Slot>,
    },
    /// Send a signal to the root processes of a job's tasks alone.
    SignalRoots {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// The signal's number.
        signal: u8,
    },
    /// Name ranks of a step that have failed to its tasks, which go on ([`OnBadExit::Notify`]).
    ///
    /// [`OnBadExit::Notify`]: tutti_types::OnBadExit::Notify
    RanksFailed {
        /// Which step, and which launch of its job.
        launch: LaunchId,
        /// Which ranks; such that were named before may be among them.
        ranks: Vec<Rank>,
    },
    /// For the keeper: a piece of what another keeper says about a job of both.
    Piece {
        /// That keeper, and the job.
        peer: Peer,
        /// The piece; `None` if that keeper, or the job there, is gone for good.
        piece: Option<Piece>,
    },
    /// Measure what the node can do, unless a job is there. Answered by `Measured`, if at all.
    Measure,
    /// Measure bandwidth and latency of the connection to the parent in so long, unless a job is
    /// there. Answered by `NetworkMeasured`, if at all.
    MeasureNetwork {
        /// In how long: nodes with one parent are measured one after the other.
        after: Nanos,
    },
    /// Move the memory of a job, which does not run, out or back. Answered by `Swapped`, unless
    /// another order about the job comes first.
    Swap {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// The number of the order.
        order: u64,
        /// Out, or back.
        out: bool,
    },
    /// Keep the images of these jobs' processes, and remove all others'.
    KeepImages {
        /// Which jobs.
        jobs: Vec<JobId>,
        /// Of images in directories that nodes share, those of all jobs that have not ended, with
        /// their numbers ([`SharedImage`]). They stay where they are.
        ///
        /// [`SharedImage`]: tutti_types::SharedImage
        shared: Vec<(JobId, u64)>,
    },
    /// Run this part of the site's policy from now on, or none. The timetable follows.
    PolicyPart(Option<PolicyPart>),
    /// Something new for the part of the site's policy.
    PolicyNews(PolicyNews),
}

/// The part of a site's policy on each node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyPart {
    /// The absolute path of its program.
    pub path: String,
    /// The user that it runs as; `None`: the default of the instance.
    pub user: Option<String>,
    /// How long an answer may take.
    pub limit: Nanos,
    /// How much memory it may have with all that it has started, bytes; `None`: any amount.
    pub memory_bytes: Option<u64>,
    /// How many processes and threads these may be.
    pub processes: u64,
}

/// What the controller has for the part of a policy on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyNews {
    /// The program at the controller sends a message.
    Message(String),
    /// An order was not done.
    Refused {
        /// The round of the answer that had it.
        round: u64,
        /// Its place there.
        index: u32,
        /// Why.
        reason: String,
    },
}

/// What the part of a policy on a node has for the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyReport {
    /// It was started and answers. What it ordered before holds no more.
    Began,
    /// It is late, dead or wrong. What it ordered holds no more.
    Failed,
    /// A message to the program at the controller.
    Message(String),
    /// It orders which candidates of a slot come first.
    Arrange {
        /// The round of the answer that has it.
        round: u64,
        /// Its place there.
        index: u32,
        /// Of which row; `None`: in all rows the built-in order holds again.
        row: Option<RowId>,
        /// What comes first, in this order.
        candidates: Vec<(JobId, IfAbsent)>,
    },
}

/// The orders that bring a timetable to a node: one, or several if it is too long for one message.
#[must_use]
pub fn timetable_orders(timetable: Timetable) -> Vec<ToAgent> {
    let candidates: usize = timetable.slots.iter().map(|slot| slot.candidates.len()).sum();
    // The usual case is not measured.
    let is_short = (candidates + timetable.slots.len()) * CANDIDATE_BYTES_MAX <= BATCH_BYTES_MAX;
    if is_short {
        return Vec::from([ToAgent::Timetable(timetable)]);
    }
    let mut lists = pack(timetable.slots, BATCH_BYTES_MAX, usize::MAX);
    let slots = lists.pop().unwrap_or_default();
    let version = timetable.version;
    let parts = lists.into_iter().map(|slots| ToAgent::TimetablePart { version, slots });
    parts.chain([ToAgent::Timetable(Timetable { slots, ..timetable })]).collect()
}

/// The parts of a timetable that has not come whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimetableParts {
    version: u64,
    slots: Vec<Slot>,
}

impl TimetableParts {
    /// Takes a `TimetablePart`. Parts of another version are dropped.
    pub fn add(&mut self, version: u64, slots: Vec<Slot>) {
        if self.version != version {
            *self = Self { version, slots: Vec::new() };
        }
        self.slots.extend(slots);
    }

    /// The whole timetable, given the order that ends it.
    #[must_use]
    pub fn complete(&mut self, timetable: Timetable) -> Timetable {
        let Self { version, mut slots } = core::mem::take(self);
        if version != timetable.version {
            return timetable;
        }
        slots.extend(timetable.slots);
        Timetable { slots, ..timetable }
    }
}

/// What a controller can ask of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The latest switches, at most so many.
    Switches {
        /// The most that are wanted.
        count: u32,
    },
    /// What the agent can do and how it fares.
    Status,
    /// The timetable that the node follows.
    Timetable,
    /// A sign of life (J25): of the agent and its switch thread, or of the node's keeper, which the
    /// agent asks in turn.
    SignOfLife {
        /// Whether the keeper's is wanted.
        of_keeper: bool,
    },
    /// Suspend a part of a job (a task, or a process and all below it).
    SuspendPart(Target),
    /// Resume a part of a job.
    ResumePart(Target),
    /// What the jobs that are here have used so far.
    Usages,
    /// How the node and its branch fare.
    Fares,
    /// The processes of a part of a job.
    Processes(Target),
    /// End a part of a job: SIGTERM to every process of it, and SIGKILL to those that are left.
    EndPart {
        /// Which part.
        target: Target,
        /// When the rest of it is killed.
        grace: Nanos,
    },
    /// Send a signal to every process of a part of a job.
    SignalPart {
        /// Which part.
        target: Target,
        /// The signal's number.
        signal: u8,
    },
    /// Upgrade to another executable, with all parts of the node. Answered only if that is refused:
    /// the agent ends on the way.
    Upgrade {
        /// Its path there.
        program: ByteBuf,
    },
    /// Whether the agent runs this executable; `Failed` if not, with the one that it runs.
    Runs {
        /// Its path there.
        program: ByteBuf,
    },
    /// What these devices are, of which the names and files are known; `Failed` if one is none.
    Devices {
        /// Those that an administrator names.
        devices: Vec<Device>,
        /// Those that the node has besides.
        others: Vec<Device>,
    },
    /// A piece of an output file of a job; `Failed` if it can't be read.
    Output {
        /// Its path there.
        path: ByteBuf,
        /// With the rights of which user it is read: the job's owner.
        uid: u32,
        /// Where the piece begins.
        from: OutputFrom,
    },
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Switches`, oldest first.
    Switches(Vec<SwitchRecord>),
    /// To `Status`.
    Status(Box<AgentStatus>),
    /// To `Timetable`.
    Timetable(Box<TimetableReport>),
    /// To `SignOfLife`; that of a keeper once the keeper has answered.
    Alive(Alive),
    /// To `Usages`, by job.
    Usages(Vec<(JobId, Usage)>),
    /// To `Fares`.
    Fares(Fares),
    /// To `Processes`, by rank.
    Tasks(Vec<TaskReport>),
    /// To `Devices`, with all that is known of them.
    Devices(Vec<Device>),
    /// To `Output`.
    Output(OutputPiece),
    /// It was done.
    Done,
    /// It could not be done, and why.
    Failed(String),
}

/// How a node and its branch of the control tree fare, for `tutti nodes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fares {
    /// How many of its processors, in thousandths, whatever is none of the cluster's jobs had on
    /// average; nothing where that is unknown.
    pub foreign_milli: Option<u32>,
    /// Its load averages over one, five and fifteen minutes, in thousandths, if they are known.
    pub load_averages_milli: Option<[u32; 3]>,
    /// Its memory that can be had without swapping, in bytes, if that is known.
    pub memory_free_bytes: Option<u64>,
    /// How it swaps out the memory of jobs.
    pub swap: NodeSwap,
    /// Its processes, whosever they are.
    pub processes: u32,
    /// Nodes that are connected through it.
    pub branch_nodes: u32,
    /// Jobs that have parts there or on these nodes.
    pub branch_jobs: u32,
    /// By how much cluster time is ahead of its monotonic clock.
    pub clock_ahead_ns: i64,
    /// Timetables that came after they should have been active.
    pub late_timetables: u64,
}

/// What an agent finds alive on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// How long the keeper, if that was asked for, or the switch thread took to answer; `None`: it
    /// has not answered.
    pub after_ns: Option<u64>,
    /// Whether the agent's supervisor lives.
    pub has_supervisor: bool,
}

/// How an agent switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// After so long a switch goes on without a process that has not stopped.
    pub freeze_deadline: Nanos,
    /// Time between two looks at a process that was sent SIGSTOP.
    pub retry_interval: Nanos,
    /// In what order processes are stopped by signals.
    pub traversal: Traversal,
    /// How often to say how busy the node is; zero: never.
    pub load_interval: Nanos,
    /// How long the intervals are for which the use of processors is measured; zero: it is not.
    pub usage_interval: Nanos,
    /// How much of a processor external load must use to be reported, in thousandths; zero: the
    /// agent does not look.
    pub foreign_milli: u32,
    /// Whether processors that jobs of other instances hold are reported too, used or not.
    pub held_count: bool,
    /// The process that gets the children of one that has ended.
    pub orphans: Orphans,
    /// How many children an agent has in the control tree before it sends others on to them.
    pub fan_out: u32,
    /// By which clock the time is known.
    pub clock: ClockSource,
    /// How long jobs run on a node that hears nothing of the controller's machine.
    pub lease: Nanos,
    /// When that was last made shorter; zero: never. See [`FromAgent::Lease`].
    pub lease_since: ClusterTime,
    /// Jobs up to this number are released: the instance was started without its former state
    /// since, and what still runs of them is external load. Zero: none is.
    pub released: JobId,
}

/// What an agent joins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// What the node has.
    pub spec: NodeSpec,
    /// Launches that the keeper holds.
    pub held: Vec<LaunchId>,
    /// Where a front end on this node reaches the keeper.
    pub attach: ByteBuf,
    /// Where other nodes reach this one; empty if there are none.
    pub address: String,
    /// How many tasks the keeper can hold at once.
    pub tasks_max: u32,
    /// What tells the keeper from an earlier one.
    pub keeper: u64,
    /// What programs may need of its processors.
    pub features: BTreeSet<FeatureName>,
    /// The devices that it found.
    pub devices: Vec<Device>,
    /// How it swaps out the memory of jobs.
    pub swap: NodeSwap,
    /// The directory that nodes share, where it puts images of processes: nodes with the same
    /// number share it.
    pub images: Option<u64>,
}

/// What an agent tells its controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The first message.
    Join(Join),
    /// A task's process exists.
    TaskStarted {
        /// Its job's launch.
        launch: LaunchId,
        /// Which task.
        rank: Rank,
        /// The process from which all others of the task descend.
        root: i32,
    },
    /// A task has ended and nothing is left of it.
    TaskEnded {
        /// Its job's launch.
        launch: LaunchId,
        /// Which task.
        rank: Rank,
        /// How.
        status: TaskStatus,
        /// What a reader should know beyond the status.
        detail: String,
        /// What it used.
        usage: Usage,
    },
    /// Nothing of the job is left on the node.
    Cleared {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// What it used here.
        usage: Usage,
    },
    /// The node goes out of service. It ends its tasks at the order to stop, or soon in any case.
    Leaving,
    /// How busy the node is, otherwise than when it was last told.
    Load(LoadAverages),
    /// What its processors were used for in an interval.
    Used(UsedProcessors),
    /// Processors with external load, if they are others than those reported before.
    Foreign(ProcessorSet),
    /// The answer to `Ask`.
    Answer {
        /// The number of the question.
        query: u64,
        /// The answer.
        answer: Answer,
    },
    /// Some output of a job is not in its files, and will not be.
    OutputLost {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// What, and why.
        what: String,
    },
    /// A piece of what this node's keeper says to that of another node of a job.
    Piece {
        /// That keeper, and the job.
        peer: Peer,
        /// The piece.
        piece: Piece,
    },
    /// A job was suspended before all of its processes that were asked to vacate were ready, for
    /// the first time on the node.
    NotVacated {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// Which process, and where.
        what: String,
    },
    /// The node has another keeper, with this number; what went with the one before was reported.
    Keeper(u64),
    /// No longer lease counts on the node any more, of those from before this moment of
    /// [`Settings::lease_since`].
    Lease(ClusterTime),
    /// The processes of a task go on after they were to be saved to an image.
    GoesOn {
        /// Its job's launch.
        launch: LaunchId,
        /// Why they could not be saved; `None`: they are.
        failure: Option<String>,
        /// Whether they were to end then.
        ends: bool,
    },
    /// What the node was measured to do.
    Measured(Figures),
    /// What the connection to the node's parent was measured to do.
    NetworkMeasured(NetworkFigures),
    /// Memory of a job was moved out or back, or could not be.
    Swapped {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// The number of the order.
        order: u64,
        /// What of it counts as resident, in bytes.
        resident_bytes: u64,
        /// What has left, in bytes.
        left_bytes: u64,
        /// How long it took.
        took: Nanos,
        /// Free swap space after that, in bytes.
        space_bytes: u64,
    },
    /// There is an image of a job's processes, made while they went on. Said at each join.
    HasImage {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// What the part of the site's policy has to say.
    Policy(PolicyReport),
    /// What jobs may have of the node's memory, in bytes, if that is not what it joined with:
    /// released jobs have ended, or have grown.
    Memory(u64),
}

impl FromAgent {
    /// The report; an answer that no message holds becomes a failure that says so.
    #[must_use]
    pub fn bounded(self) -> Self {
        let Self::Answer { query, answer } = self else { return self };
        let answer = match encoded_len(&answer) {
            ..=ITEM_BYTES_MAX => answer,
            bytes => Answer::Failed(format!(
                "the answer has {bytes} bytes, more than a message holds; ask for less"
            )),
        };
        Self::Answer { query, answer }
    }
}
