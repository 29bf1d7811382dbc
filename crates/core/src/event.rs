//! All that can happen. Closed: what is not here cannot change a decision.

use crate::arrays::ElementOrder;
use crate::begin::Begin;
use crate::checkpoint::CheckpointOrder;
use crate::orders::HeldBy;
use crate::outside::Order;
use crate::timed::{DueChange, Moment};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::access::{Grantee, Origin};
use tutti_types::account::{BankAccount, BankPeriod, ProcessorTime, Renewal};
use tutti_types::after::AfterJobs;
use tutti_types::array::{ArraySpec, Positions};
use tutti_types::class::{AfterUse, ClassSpec};
use tutti_types::device::{Device, DeviceId};
use tutti_types::ids::{
    ClassName, FeatureName, JobId, NodeId, NodeSetName, ProcessorSet, QueueName, Rank, RequestId,
    StepKey,
};
use tutti_types::job::{
    Checkpoint, EndReason, FirstStep, JobSpec, NodeSpec, StepSpec, TaskStatus, Warning,
};
use tutti_types::node_performance::{Figures, LoadAverages, NetworkFigures};
use tutti_types::params::Params;
use tutti_types::period::Period;
use tutti_types::policy::{PolicyArgs, PolicyProgram};
use tutti_types::queue::{Allowed, QueueSpec};
use tutti_types::resource::{ResourceName, ResourceSpec};
use tutti_types::settings::Overrides;
use tutti_types::time::{ClusterTime, Nanos};
use tutti_types::timed::{TimedChange, When};

/// One thing that happened, at the time given to [`Core::apply`](crate::Core::apply) with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A node holds a job of an earlier controller: its number is not given to another.
    Held {
        /// The highest of such jobs.
        job: JobId,
    },
    /// The machine with the journal has lost its power, or its disk was full: what happened last may not be known,
    /// and nodes that are out of reach may run what was launched then. No job begins before each of them is back or
    /// lost. Sent by the driver at its very beginning: `Began` follows, with which they are.
    Forgot {
        /// Up to this number, jobs may be known to nodes.
        job: JobId,
    },
    /// A node's agent joined, or joined again after it was lost. Sent by the driver, once per
    /// connection of an agent. If the node was never lost in between, its jobs go on: the new agent
    /// gets the timetable and the kills that may have missed it, but no launch a second time.
    NodeJoined {
        /// The number that the driver gave to the node of this name.
        node: NodeId,
        /// What it has.
        spec: NodeSpec,
    },
    /// A node's agent is gone, and may come back: `NodeJoined` or `NodeLost` follows. Its jobs go on, and
    /// no new ones are placed there. Sent by the driver, which may wait a little in case it is back
    /// at once.
    NodeOutOfReach {
        /// Which one.
        node: NodeId,
    },
    /// A node's agent is gone for longer than it may. The jobs with tasks there are lost.
    NodeLost {
        /// Which one.
        node: NodeId,
    },
    /// An administrator has a node take no new jobs, or take some again. Its jobs run on.
    SetDrained {
        /// Which one.
        node: NodeId,
        /// Why it takes none, which may be no words; `None`: it takes jobs again.
        reason: Option<String>,
    },
    /// An administrator takes a node out of the cluster: it is lost, if it was up, and nothing is kept
    /// of it.
    NodeRemoved {
        /// Which one.
        node: NodeId,
    },
    /// An administrator gives a set of nodes a name.
    SetNodeSet {
        /// The name.
        name: NodeSetName,
        /// The nodes, those that ever joined; none: there is no such set any more.
        nodes: BTreeSet<NodeId>,
    },
    /// A node was measured, by a benchmark.
    NodeMeasured {
        /// Which one.
        node: NodeId,
        /// What it can do.
        figures: Figures,
    },
    /// A node says how busy it is. Sent by its agent, when that is otherwise than it said before.
    NodeLoad {
        /// Which one.
        node: NodeId,
        /// How many processes want to run there.
        averages: LoadAverages,
    },
    /// A user asks for a job. Answered by `Accept` or `Decline` with the same request.
    Submit {
        /// The driver's number for the request.
        request: RequestId,
        /// What is asked.
        spec: JobSpec,
    },
    /// The root processes of some tasks of a job have ended alike and nothing of the tasks is left.
    /// Sent by the agents' side, once per task.
    TasksEnded {
        /// Their job.
        job: JobId,
        /// Which tasks; empty means all that had not ended.
        ranks: Vec<Rank>,
        /// How.
        status: TaskStatus,
    },
    /// Nothing of the job is left on some of its nodes: no process, no cgroup, and every task there
    /// has been reported as ended.
    JobCleared {
        /// Which job.
        job: JobId,
        /// On which nodes; empty means all of the job's.
        nodes: Vec<NodeId>,
    },
    /// All tasks that had not ended of some jobs have, alike, and nothing of these jobs is left on
    /// any node: `TasksEnded` and `JobCleared` for all, in one. What the jobs leave free is given
    /// away once, when all of them are gone.
    JobsEnded {
        /// Which jobs.
        jobs: Vec<JobId>,
        /// How their tasks ended.
        status: TaskStatus,
    },
    /// A request to end a job: its tasks get SIGTERM, and SIGKILL when the grace is over.
    Cancel {
        /// Which job.
        job: JobId,
        /// Why; becomes the reason of its end.
        reason: EndReason,
        /// Whether to leave out the SIGTERM and the grace.
        at_once: bool,
    },
    /// A request to send a signal to the root processes' groups of a job's tasks.
    Signal {
        /// Which job.
        job: JobId,
        /// Which tasks; empty means all.
        ranks: Vec<Rank>,
        /// The signal's number.
        signal: u8,
    },
    /// A request to take a job out of the turns until it is resumed.
    Suspend {
        /// Which job.
        job: JobId,
    },
    /// A request to give a suspended job its turns back.
    Resume {
        /// Which job.
        job: JobId,
    },
    /// A job that the core asked to move out has left: its processors are free. Sent by the driver,
    /// once per [`Action::MoveOut`](crate::Action::MoveOut).
    MovedOut {
        /// Which job.
        job: JobId,
    },
    /// A job that the core asked to move in is back where [`Core::parts`](crate::Core::parts) says,
    /// and can run. Sent by the driver, once per [`Action::MoveIn`](crate::Action::MoveIn).
    MovedIn {
        /// Which job.
        job: JobId,
    },
    /// The front end of an attached job is gone without a word.
    FrontEndLost {
        /// Which job.
        job: JobId,
    },
    /// An administrator sets the parameters.
    SetParams {
        /// All of them, already checked by [`Params::check`].
        params: Params,
    },
    /// An administrator defines a class or changes it.
    SetClass {
        /// Its name.
        class: ClassName,
        /// Its rules, already checked by [`ClassSpec::check`].
        spec: ClassSpec,
    },
    /// What people's clocks say, so that periods can hold. Sent by the driver when it begins, and
    /// when clocks are put forward or back.
    Calendar {
        /// How much of the week has passed since Monday 00:00, local time.
        week: Nanos,
    },
    /// An administrator says what is otherwise in some hours of the week.
    SetPeriod {
        /// Which hours.
        period: Period,
        /// What holds then, already checked by [`Settings::check`](tutti_types::Settings::check); empty:
        /// nothing is otherwise any more.
        overrides: Overrides,
    },
    /// Processors of a node with external load, in place of those before. Under the policy `classes` no
    /// job is placed there, under others last; a job that is there already stays.
    Foreign {
        /// Which node.
        node: NodeId,
        /// Which processors.
        processors: ProcessorSet,
    },
    /// An administrator says how many of a counted resource there are.
    SetResource {
        /// The name that jobs ask by.
        name: ResourceName,
        /// How many; none: there is no such resource any more.
        spec: ResourceSpec,
    },
    /// An administrator says how much processor time a user or group may use.
    SetBank {
        /// The account.
        account: BankAccount,
        /// How much in all; `None`: there is to be no account, so as much as they like.
        allowance: Option<ProcessorTime>,
    },
    /// An administrator sets which users may submit jobs, and from which machines.
    SetAccess {
        /// The user or group.
        grantee: Grantee,
        /// From where; `None`: it is not listed any more.
        origin: Option<Origin>,
    },
    /// A driver begins, with what an earlier one left: if that was told to end the instance, it has; and all nodes
    /// are out of reach, those that were lost excepted: `NodeJoined` or `NodeLost` follows for each.
    Began,
    /// The instance is to end: no job is accepted any more, and all are ended.
    ShutDown,
    /// The time that an action `WakeAt` asked for has come.
    Tick,
    /// An administrator has a class be no more. Nothing happens if any job is of it, or something else keeps it
    /// ([`Core::why_class_stays`](crate::Core::why_class_stays)).
    ForgetClass {
        /// Its name.
        class: ClassName,
    },
    /// The instance is to end for a while: no job is accepted or begun any more, and those that run are ended, as are
    /// those that a front end waits for. The others stay in line for the next driver.
    GoDown,
    /// An administrator sets the weight of a user or group among users.
    SetWeight {
        /// The user or group.
        account: BankAccount,
        /// From 1 to [`USER_WEIGHT_MAX`](tutti_types::limits::USER_WEIGHT_MAX); `None`: none of its own.
        weight: Option<u32>,
    },
    /// A user asks for a job, and for more than its specification says. Answered as `Submit`.
    SubmitWith {
        /// The driver's number for the request.
        request: RequestId,
        /// What is asked.
        spec: JobSpec,
        /// What is asked beside that.
        options: SubmitOptions,
    },
    /// An administrator makes a queue, changes it, or removes it. Nothing happens if there are too many, or if
    /// jobs are in a queue that is to go.
    SetQueue {
        /// Its name.
        name: QueueName,
        /// All of it, already checked by [`QueueSpec::check`]; `None`: there is to be no such queue.
        spec: Option<QueueSpec>,
    },
    /// An administrator sets the users that may use a class. The driver checks it: only it knows a user's groups.
    SetClassUsers {
        /// The class.
        class: ClassName,
        /// The users and groups; neither: all.
        allowed: Allowed,
    },
    /// A request to keep a waiting job out of the line until it is released.
    Hold {
        /// Which job.
        job: JobId,
        /// The user that asks.
        by: HeldBy,
    },
    /// A request to put a held job in line.
    Release {
        /// Which job.
        job: JobId,
        /// The user that asks; the owner can't release what an administrator holds.
        by: HeldBy,
    },
    /// A request to give a job another class.
    SetJobClass {
        /// Which job.
        job: JobId,
        /// The class, which exists.
        class: ClassName,
    },
    /// An administrator gives a waiting job another place in line. Promises that this breaks are
    /// named by [`Action::PromiseBroken`](crate::Action::PromiseBroken).
    MoveJob {
        /// Which job.
        job: JobId,
        /// The waiting job just before which it stands; `None`: it stands before all.
        before: Option<JobId>,
    },
    /// An administrator sets the class that jobs of another class get by their use.
    SetClassAfter {
        /// The class of the jobs.
        class: ClassName,
        /// The rule, already checked by [`check_rule_by_use`](crate::check_rule_by_use); `None`:
        /// there is to be none.
        rule: Option<AfterUse>,
    },
    /// An administrator has an account count from nothing again with each period. Nothing happens
    /// to an account without an allowance.
    SetBankPeriod {
        /// The account.
        account: BankAccount,
        /// How often, and when the present period began; `None`: never.
        renewal: Option<Renewal>,
    },
    /// A period of accounts has begun. Sent by the driver, at once or later.
    BankPeriod {
        /// Which period.
        period: BankPeriod,
        /// When it began, in milliseconds since 1970.
        began_ms: u64,
    },
    /// A task of a job, or its owner, asks for a further step in its slots. Answered by
    /// `AcceptStep` or `DeclineStep` with the same request.
    SubmitStep {
        /// The driver's number for the request.
        request: RequestId,
        /// The job.
        job: JobId,
        /// Drawn by the front end: a step that is asked for again is not made again.
        key: [u8; 16],
        /// What is asked.
        spec: StepSpec,
    },
    /// Tasks of a further step have ended alike, and nothing of them is left.
    StepTasksEnded {
        /// Which step.
        key: StepKey,
        /// Which tasks; empty means all that had not ended.
        ranks: Vec<Rank>,
        /// How.
        status: TaskStatus,
    },
    /// Nothing of a further step is left on some of its nodes.
    StepCleared {
        /// Which step.
        key: StepKey,
        /// On which nodes; empty means all of the step's.
        nodes: Vec<NodeId>,
    },
    /// A request to end a further step: its tasks get SIGTERM, and SIGKILL when the grace is over.
    CancelStep {
        /// Which step.
        key: StepKey,
        /// Why; becomes the reason of its end.
        reason: EndReason,
        /// Whether to leave out the SIGTERM and the grace.
        at_once: bool,
    },
    /// The front end of a further step is gone without a word.
    StepFrontEndLost {
        /// Which step.
        key: StepKey,
    },
    /// The moment at which a waiting job begins is another one by cluster time, since people's
    /// clocks were set, or cluster time stood still.
    SetBegin {
        /// Which job.
        job: JobId,
        /// When it begins at the earliest.
        at: ClusterTime,
    },
    /// A user asks for a job array. Answered as `Submit`, with the number of the array.
    SubmitArray {
        /// The driver's number for the request.
        request: RequestId,
        /// What is asked of each element.
        spec: JobSpec,
        /// What is asked beside that.
        options: SubmitOptions,
        /// The indices, and how many elements may live at once.
        array: ArraySpec,
    },
    /// A request about some elements of an array. `Cancel`, `Hold`, `Release` and `SetJobClass`
    /// with the number of an array are about all of them.
    Elements {
        /// The array.
        array: JobId,
        /// The positions of the elements.
        positions: Positions,
        /// What is to become of them.
        order: ElementOrder,
    },
    /// An administrator names the program of the site's own policy; `None`: there is to be none.
    SetPolicyProgram {
        /// The program.
        program: Option<PolicyProgram>,
    },
    /// Whether the program of the site's own policy decides from now on, or the built-in policy
    /// goes on. Sent by the driver, which knows whether the program answers in time.
    PolicyInCharge {
        /// Whether it does.
        on: bool,
    },
    /// What the program of the site's own policy orders. The driver has asked
    /// [`Core::check_order`](crate::Core::check_order); one that can't be done changes nothing.
    PolicyOrder {
        /// What.
        order: Order,
    },
    /// A request to a job to save its state. Nothing happens if it can't
    /// ([`Core::why_no_checkpoint`](crate::Core::why_no_checkpoint)).
    Checkpoint {
        /// Which job.
        job: JobId,
        /// What it is asked to do then.
        order: CheckpointOrder,
    },
    /// An administrator has something change at times; `None`: it does not any more.
    SetTimed {
        /// The number of the change.
        number: u32,
        /// When, what, and the next moment.
        entry: Option<(When, TimedChange, Option<Moment>)>,
    },
    /// The next moment of a change is another one by cluster time, since people's clocks were set,
    /// or cluster time stood still.
    SetTimedMoment {
        /// The number of the change.
        number: u32,
        /// Its next moment.
        next: Option<Moment>,
    },
    /// Moments of changes have come. Sent by the driver, once for each moment; of several that it
    /// missed of one change, for the latest.
    TimedDue {
        /// The changes, in the order in which they happen.
        due: Vec<DueChange>,
    },
    /// What programs may need of a node's processors, as its agent found it, if that is new.
    NodeFeatures {
        /// The node.
        node: NodeId,
        /// All that it has.
        features: BTreeSet<FeatureName>,
    },
    /// The agent of a node has found these devices there, in place of those before.
    DevicesFound {
        /// Which node.
        node: NodeId,
        /// All of them.
        devices: Vec<Device>,
    },
    /// An administrator names a device of a node. It holds whatever the agent finds.
    SetDevice {
        /// Which node.
        node: NodeId,
        /// The device.
        id: DeviceId,
        /// What it is; `None`: there is to be none of that name and number.
        device: Option<Device>,
    },
    /// The instance is to end for a while: no job is accepted or begun any more, and those that run
    /// leave as they can. Those that have not when the time is over are ended as by `GoDown`.
    RollOut {
        /// How long it may take.
        patience: Nanos,
    },
    /// Jobs that were rolled out come back. Sent by a driver that is no successor of the one that
    /// rolled them out, after `Began`.
    RollIn,
    /// A request to give a job another time limit.
    SetTimeLimit {
        /// Which job, or array.
        job: JobId,
        /// The limit, in its turns; `None`: it has none.
        limit: Option<Nanos>,
    },
    /// A node has moved memory of a job out or in, as [`Action::Swap`](crate::Action::Swap) had
    /// ordered, or has failed to.
    Swapped {
        /// Which job.
        job: JobId,
        /// Which node.
        node: NodeId,
        /// The number of the order.
        order: u64,
        /// What of the job is resident there, in bytes.
        resident_bytes: u64,
        /// What has left, in bytes; after it came back, what is still out.
        left_bytes: u64,
        /// How long it took.
        took: Nanos,
        /// Free swap space of the node after that, in bytes.
        space_bytes: u64,
    },
    /// A node has so much free swap space. Sent by the driver, when the node joins and has clearly
    /// more or less than is known.
    NodeSwap {
        /// Which node.
        node: NodeId,
        /// How much, in bytes; 0 where memory of jobs can't be moved out.
        space_bytes: u64,
    },
    /// The first task of a batch job only waits, as that of `tutti alloc` does, or does so no more:
    /// all idle slots of the job may be lent.
    Lend {
        /// Which job.
        job: JobId,
        /// Whether it waits.
        lends: bool,
    },
    /// A node has measured the network to another.
    NetworkMeasured {
        /// Which node.
        node: NodeId,
        /// The other one; the node itself where the figures are of no particular link.
        peer: NodeId,
        /// What it found.
        figures: NetworkFigures,
    },
    /// A node puts images of processes into a directory that others share, or does so no more.
    ImagePlace {
        /// Which node.
        node: NodeId,
        /// Which directory: nodes with the same number share it.
        place: Option<u64>,
    },
}

/// What may be asked for a job beside its specification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SubmitOptions {
    /// The queue that it is for.
    pub queue: Option<QueueName>,
    /// The user that holds it from its submission on.
    pub hold: Option<HeldBy>,
    /// What it starts with.
    pub first: FirstStep,
    /// The jobs that it starts after, if it does.
    pub after: Option<AfterJobs>,
    /// When it begins at the earliest; `None`: at any time.
    pub begin: Option<Begin>,
    /// The signal that it gets before its time limit, if any.
    pub warning: Option<Warning>,
    /// How long before it loses a turn it is asked to vacate, if it is.
    pub vacate: Option<Nanos>,
    /// The job's own parameters for the policy program, already checked by
    /// [`check_policy_args`](tutti_types::check_policy_args).
    pub args: PolicyArgs,
    /// How it saves its state by itself, if it does.
    pub checkpoint: Option<Checkpoint>,
    /// Whether its memory may leave while it is suspended or preempted.
    pub swap: bool,
    /// Whether it is never queued again once it has run: neither by request nor since a node was
    /// lost.
    pub no_requeue: bool,
    /// The job that has ended after which it, or elements of an array, can never start.
    pub never: Option<NeverAfter>,
}

/// What can never start after a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NeverAfter {
    /// The job that has ended.
    pub job: JobId,
    /// The elements of the new array; `None`: all of the new job, which waits until it is
    /// cancelled.
    pub elements: Option<Positions>,
    /// Whether these elements wait until they are cancelled; otherwise they end.
    pub stays: bool,
}

impl Event {
    /// A request for a job, with what is asked beside its specification.
    #[must_use]
    pub fn submit(request: RequestId, spec: JobSpec, options: SubmitOptions) -> Self {
        if options == SubmitOptions::default() {
            Self::Submit { request, spec }
        } else {
            Self::SubmitWith { request, spec, options }
        }
    }

    /// The answer to [`Action::Swap`](crate::Action::Swap) of a driver without memory to move: all
    /// of it has left, or is back.
    #[must_use]
    pub const fn swapped_at_once(job: JobId, node: NodeId, order: u64) -> Self {
        let (resident_bytes, left_bytes, took, space_bytes) = (0, 0, Nanos::ZERO, u64::MAX);
        Self::Swapped { job, node, order, resident_bytes, left_bytes, took, space_bytes }
    }

    /// What an event may do to promises. Jobs that come into line, and tasks that end before their
    /// fellows, do nothing.
    #[expect(clippy::too_many_lines, reason = "one line for each event")]
    const fn effect(&self) -> Effect {
        match self {
            Self::Held { .. }
            | Self::SetNodeSet { .. }
            | Self::NodeMeasured { .. }
            | Self::NetworkMeasured { .. }
            | Self::NodeFeatures { .. }
            | Self::NodeLoad { .. }
            | Self::NodeSwap { .. }
            | Self::Submit { .. }
            | Self::SubmitWith { .. }
            | Self::SubmitArray { .. }
            | Self::SetClassUsers { .. }
            | Self::SetClassAfter { .. }
            | Self::SetBankPeriod { .. }
            | Self::BankPeriod { .. }
            | Self::SubmitStep { .. }
            | Self::StepTasksEnded { .. }
            | Self::StepCleared { .. }
            | Self::CancelStep { .. }
            | Self::StepFrontEndLost { .. }
            | Self::Lend { .. }
            | Self::TasksEnded { .. }
            | Self::SetBegin { .. }
            | Self::Signal { .. }
            | Self::SetBank { .. }
            | Self::SetAccess { .. }
            | Self::Foreign { .. }
            | Self::SetWeight { .. }
            | Self::SetResource { .. }
            | Self::SetPolicyProgram { .. }
            | Self::PolicyOrder { .. }
            | Self::Tick => Effect::None,
            Self::JobCleared { .. }
            | Self::JobsEnded { .. }
            | Self::Cancel { .. }
            | Self::Checkpoint { .. }
            | Self::FrontEndLost { .. }
            | Self::Began
            | Self::ShutDown
            | Self::GoDown => Effect::OfJobs,
            Self::NodeJoined { .. }
            | Self::Forgot { .. }
            | Self::NodeOutOfReach { .. }
            | Self::NodeLost { .. }
            | Self::SetDrained { .. }
            | Self::NodeRemoved { .. }
            | Self::DevicesFound { .. }
            | Self::ImagePlace { .. }
            | Self::SetDevice { .. }
            | Self::Suspend { .. }
            | Self::Resume { .. }
            | Self::Hold { .. }
            | Self::Release { .. }
            | Self::Elements { .. }
            | Self::SetJobClass { .. }
            | Self::SetTimeLimit { .. }
            | Self::MoveJob { .. }
            | Self::MovedOut { .. }
            | Self::MovedIn { .. }
            | Self::PolicyInCharge { .. }
            | Self::RollOut { .. }
            | Self::RollIn
            | Self::SetParams { .. }
            | Self::SetQueue { .. }
            | Self::SetClass { .. }
            | Self::ForgetClass { .. }
            | Self::SetPeriod { .. }
            | Self::SetTimed { .. }
            | Self::SetTimedMoment { .. }
            | Self::TimedDue { .. }
            | Self::Swapped { .. }
            | Self::Calendar { .. } => Effect::Interference,
        }
    }

    /// Whether what promises rest on may be otherwise after an event.
    pub(crate) const fn may_break_promises(&self) -> bool {
        !matches!(self.effect(), Effect::None)
    }

    /// Whether an event may break promises, and no later job is to blame.
    pub(crate) const fn is_interference(&self) -> bool {
        matches!(self.effect(), Effect::Interference)
    }
}

/// What an event may do to promises.
enum Effect {
    /// Nothing.
    None,
    /// They may be otherwise, by what jobs do.
    OfJobs,
    /// They may be broken, and no later job is to blame.
    Interference,
}
