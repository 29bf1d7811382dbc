//! Messages between a client (a user's verb) and the controller, on the instance's Unix socket. The
//! kernel names the client's user; nothing in here does.

use crate::code::Code;
use crate::event::{EventQuery, EventRecord};
use crate::history::{EndedQuery, EndedReport, PageEnd};
use crate::launch::{LaunchSpec, Usage};
use crate::metrics::MetricsReport;
use crate::notify::Notify;
use crate::output::{OutputFile, OutputFrom, OutputPiece};
use crate::report::{
    AccessReport, BankReport, ClassReport, ClientReport, ForecastReport, HistoryReport, JobReport,
    NodeLife, NodeReport, ParamReport, PeriodReport, QueueReport, ResourceReport, StatusReport,
    SwitchRecord, Target, TaskReport, TimedMoment, TimedReport, TimetableReport, WeightReport,
};
use crate::show::ShowReport;
use crate::spawn::Spawned;
use crate::usage::{UsageQuery, UsageSample};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::job::{Checkpoint, Warning};
use tutti_types::{
    AfterJobs, ArraySpec, ClassName, Figures, FirstStep, Indices, JobId, Nanos, NodeId, OnBadExit,
    OnNodeLoss, Outcome, PolicyArgs, QueueName, ResourceWish, StepKey, StepSpec, Weights,
};

/// What a client can ask for. Each request gets one reply; `Run` gets more as the job goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a job whose front end this client is: `Accepted`, then `Ended`. A client that closes
    /// the connection before that has vanished.
    Run(JobRequest),
    /// Be the front end of a job again, whose controller ended and is back: `Accepted`, then as with `Run`;
    /// `Ended` at once if it has.
    Return {
        /// Which job.
        job: JobId,
    },
    /// Run a job without a front end: `Accepted`. A client that has had no answer may ask again
    /// with the same key, and gets the same job.
    Submit(JobRequest, SubmitKey),
    /// `Ended` when the job has ended, at once if it has already.
    Wait {
        /// Which job.
        job: JobId,
    },
    /// `Jobs`: a page of them.
    Jobs {
        /// Whether jobs that ended are wanted too.
        ended: bool,
        /// The first that may be on the page.
        from: JobId,
    },
    /// `Jobs`, those that ended too, and with what those that run have used so far.
    JobsWithUsage {
        /// The first that may be on the page.
        from: JobId,
    },
    /// `ShownJobs`: a page of the jobs that have not ended, each as [`Request::Show`] has it.
    ShowAll {
        /// The first that may be on the page.
        from: JobId,
    },
    /// What is known of a job that has ended: `History`.
    History {
        /// Which job.
        job: JobId,
    },
    /// Jobs that have ended, latest first, and as many as fit: `Past`.
    Past(EndedQuery),
    /// What the processors of nodes were used for, earliest first, and as much as fits: `Usage`.
    Usage(UsageQuery),
    /// The processes of a job, a task, or a process and all below it: a page of `Tasks`.
    Processes {
        /// Of which.
        target: Target,
        /// The first node that may be on the page.
        from: NodeId,
    },
    /// `Nodes`: a page of them.
    Nodes {
        /// The first that may be on the page.
        from: NodeId,
    },
    /// `Nodes`, with what the nodes say of themselves, those that answer soon.
    NodesClosely {
        /// The first that may be on the page.
        from: NodeId,
    },
    /// Give names to sets of nodes: `Nodes`.
    SetNodeSets {
        /// Names of sets, and lists of nodes ([`crate::host_list`]) or `none`; all are set or none.
        settings: Vec<(String, String)>,
    },
    /// Change which nodes take jobs, or belong to the cluster: `Nodes`.
    ChangeNodes {
        /// Which, as a list; all are changed or none.
        nodes: String,
        /// How.
        change: NodeChange,
    },
    /// Upgrade a node to another executable: `Done` when its agent has ended, as it does on the
    /// way.
    Upgrade {
        /// Its name.
        node: String,
        /// The path there.
        program: ByteBuf,
    },
    /// `Done` if a node's agent runs this executable.
    Runs {
        /// Its name.
        node: String,
        /// The path there.
        program: ByteBuf,
    },
    /// End a job, a task, or a process with all below it: `Done`.
    Cancel {
        /// Which.
        target: Target,
        /// Whether without SIGTERM and grace.
        at_once: bool,
    },
    /// Send a signal to a job, a task, or a process with all below it: `Done`.
    Signal {
        /// The target.
        target: Target,
        /// The signal's number.
        signal: u8,
        /// Whether every process gets it instead of the root processes' groups.
        every_process: bool,
    },
    /// Suspend a job, a task, or a process with all below it: `Done`.
    Suspend {
        /// Which.
        target: Target,
    },
    /// Resume it: `Done`.
    Resume {
        /// Which.
        target: Target,
    },
    /// `Params`.
    Params,
    /// Set parameters: `Params`.
    SetParams {
        /// Names and values, as text; all are set or none.
        settings: Vec<(String, String)>,
    },
    /// Define or change a class: `Params`.
    SetClass {
        /// Its name.
        class: ClassName,
        /// Its rules with their values, as text.
        settings: Vec<(String, String)>,
    },
    /// Have a class be no more: `Params`.
    ForgetClass {
        /// Its name.
        class: ClassName,
    },
    /// `Bank`.
    Bank,
    /// `Access`.
    Access,
    /// Set which users may submit jobs, and from where: `Access`.
    SetAccess {
        /// Users, groups (`@physics`) or `all`, and machines, as text; all are set or none.
        settings: Vec<(String, String)>,
    },
    /// Say what is otherwise in some hours of the week: `Params`.
    SetPeriod {
        /// Which hours, such as `mon-fri 08:00-18:00`.
        period: String,
        /// The class whose rules are meant, if not the parameters.
        class: Option<ClassName>,
        /// Names and values, as text; all are set or none.
        settings: Vec<(String, String)>,
    },
    /// Let nothing be otherwise in some hours any more: `Params`.
    ForgetPeriod {
        /// Which hours.
        period: String,
    },
    /// What a node was measured to do: `Done`.
    Measured {
        /// The node's name.
        node: String,
        /// What it can do.
        figures: Figures,
    },
    /// The latest switches of all nodes: `Switches`.
    Switches {
        /// The most that are wanted.
        count: u32,
        /// The first node that may be on the page.
        from: NodeId,
    },
    /// Signs of life of the daemons of all nodes: `SignsOfLife`.
    SignsOfLife {
        /// Whether those of keepers are wanted; else those of agents.
        of_keepers: bool,
        /// The first node that may be on the page.
        from: NodeId,
    },
    /// The timetable that a node follows: `Timetable`.
    Timetable {
        /// The node's name.
        node: String,
    },
    /// `Status`.
    Status,
    /// End all jobs and the instance: `Done`, then the connection closes when all is gone.
    Down {
        /// How long it may take to roll jobs out before that; `None`: they are ended at once.
        roll_out: Option<Nanos>,
    },
    /// `Done` when a task of the job has begun, at once if one has already; `Ended` if the job ends before.
    WaitBegun {
        /// Which job.
        job: JobId,
    },
    /// `Weights`.
    Weights,
    /// Set weights of users and groups: `Weights`.
    SetWeights {
        /// Users (`ada`) and groups (`@physics`) with their weights, as text; all are set or none.
        settings: Vec<(String, String)>,
    },
    /// `Queues`.
    Queues,
    /// `Params`, as they are set for all hours.
    StandingParams,
    /// Change what a site sets, all of it or nothing: `Configured`.
    Configure {
        /// What to set, in this order.
        settings: Vec<Setting>,
        /// Whether only to report what would change.
        dry_run: bool,
    },
    /// Keep a waiting job out of the line: `Done`.
    Hold {
        /// Which job.
        job: JobId,
    },
    /// Name devices of a node, or take them away: `Nodes`, the first page.
    SetDevices {
        /// The node.
        node: String,
        /// Names with numbers, and files, as text (`none`: there is no such device any more); all
        /// are set or none.
        settings: Vec<(String, String)>,
    },
    /// Put a held job in line: `Done`.
    Release {
        /// Which job.
        job: JobId,
    },
    /// Give a job another class: `Done`.
    SetJobClass {
        /// Which job.
        job: JobId,
        /// The class.
        class: ClassName,
    },
    /// Give a job another time limit: `Done`.
    SetTimeLimit {
        /// Which job, or array.
        job: JobId,
        /// The limit.
        limit: LimitChange,
    },
    /// Say whether the first task of a batch job only waits, so that all of its idle slots may be
    /// lent: `Done`.
    Lend {
        /// Which job.
        job: JobId,
        /// Whether it waits.
        lends: bool,
    },
    /// `Resources`.
    Resources,
    /// Set counted resources: `Resources`.
    SetResources {
        /// Names and counts, as text (`none`: there is none any more); all are set or none.
        settings: Vec<(String, String)>,
        /// How many jobs may have each number at a time.
        jobs_each: u32,
        /// Whether a preempted job gives its numbers back.
        lent: bool,
    },
    /// When such a job would start and end, if it were submitted now: `Starts`, or `Declined`.
    When(JobRequest),
    /// When the jobs that wait are expected to start and to end: a page of `Starts`.
    Starts {
        /// The first job that may be on the page.
        from: JobId,
        /// The forecast of the page before; 0: a new one. Another takes its place if it is gone.
        forecast: u64,
    },
    /// One job, ended or not: `Show`.
    Show {
        /// Which job.
        job: JobId,
        /// Whether the environment is wanted, which only its owner and root may see.
        environment: bool,
    },
    /// Give a waiting job another place in line: `Moved`.
    Move {
        /// Which job.
        job: JobId,
        /// The job just before which it stands; `None`: it stands before all.
        before: Option<JobId>,
        /// Whether only to report which promises would break.
        dry_run: bool,
    },
    /// Events, in the order of their numbers: `Events`.
    Events(EventQuery),
    /// Where the output of a job that runs can be seen: `Starting`.
    Keepers {
        /// Which job.
        job: JobId,
    },
    /// `Metrics`.
    Metrics,
    /// Run a further step of a job, whose front end this client is: `StepAccepted`, then as with
    /// `Run`. A client that was cut off asks again with the same key, and gets the same step.
    RunStep(alloc::boxed::Box<StepRequest>),
    /// End a further step: `Done`.
    CancelStep {
        /// Which step.
        key: StepKey,
        /// Whether without SIGTERM and grace.
        at_once: bool,
    },
    /// Send a signal to the root processes' groups of a further step: `Done`.
    SignalStep {
        /// Which step.
        key: StepKey,
        /// The signal's number.
        signal: u8,
    },
    /// End the run of a job that has no front end, and have it wait in line again under its number:
    /// `Done`.
    Requeue {
        /// Which job; of an array, all elements that run.
        job: JobId,
        /// Whether it is held until it is released.
        hold: bool,
        /// Whether it is not restored from its image; then it may wait in line already.
        anew: bool,
    },
    /// Send a signal to the steps of a job, or to its batch script alone: `Done`. What a job
    /// without a script starts with is a step.
    SignalSteps {
        /// Which job; of an array, all elements that have begun.
        job: JobId,
        /// The signal's number.
        signal: u8,
        /// Whether only the shell of the script gets it; of a job without one, the root processes
        /// of its first tasks.
        only_script: bool,
    },
    /// Ask a job to save its state: `Asked`.
    Checkpoint {
        /// Which job; of an array, all elements that can.
        job: JobId,
        /// What it is asked to do then.
        order: CheckpointWish,
    },
    /// Wait until it is known what became of the latest request to a job to save its state and end:
    /// `Checkpointed`, or `Ended`.
    AwaitCheckpoint {
        /// Which job.
        job: JobId,
    },
    /// Do something about elements of a job array: `Done`.
    Elements {
        /// The array.
        array: JobId,
        /// Which elements; those that the array has not are left out. `None`: all.
        indices: Option<Indices>,
        /// What to do.
        order: ArrayOrder,
    },
    /// Which jobs elements of an array are or were: `Elements`.
    FindElements {
        /// The array, which may have ended.
        array: JobId,
        /// Which elements; `None`: all.
        indices: Option<Indices>,
    },
    /// What a job that runs has used on each of its nodes: `UsageByNode`.
    UsageByNode {
        /// Which job.
        job: JobId,
    },
    /// All changes at times, and those that happen soon: `Timed`.
    Timed {
        /// Within how many seconds; `None`: none of them.
        ahead_s: Option<u64>,
    },
    /// The client machines of the cluster: a page of `Clients`.
    Clients {
        /// How many are on earlier pages.
        from: u32,
    },
    /// A piece of an output file, from the node that has it: `Output`. Only for the owner of the
    /// job, and root.
    ReadOutput {
        /// Which file.
        file: OutputFile,
        /// Where the piece begins.
        from: OutputFrom,
    },
    /// Set how many of counted resources nodes have, each of its own: `Nodes`, the first page.
    SetNodeResources {
        /// The nodes, as a list.
        nodes: String,
        /// Names and counts, as text (`none`: none any more); all are set or none.
        settings: Vec<(String, String)>,
    },
}

/// What a job is asked to do with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointWish {
    /// To save it and go on.
    GoOn,
    /// To save it and end, to be queued again.
    End {
        /// Whether the run is ended when it does not end within its grace; otherwise it goes on.
        force: bool,
        /// Whether the job is held in line.
        hold: bool,
    },
}

/// What became of a request to a job to save its state and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointEnd {
    /// It has, and is queued again.
    Saved,
    /// It did not end within its grace, and goes on as it was.
    Unanswered,
    /// It did not end within its grace, was ended, and is queued again.
    Forced,
    /// A task died of the signal: the job is queued again, and has lost what it had not saved
    /// before.
    Died,
    /// It is not known of any.
    Unknown,
    /// Its processes could not be saved to an image, and go on.
    NotSaved,
    /// Its processes could not be restored from an image before: it is held.
    NotRestored,
    /// Its processes could not be saved to an image and may be damaged by that: they were ended,
    /// and the job is queued again with an earlier image.
    Damaged,
}

/// Another time limit for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitChange {
    /// This one, in the job's turns; `None`: none.
    To(Option<Nanos>),
    /// So much more than it has.
    Longer(Nanos),
    /// So much less than it has.
    Shorter(Nanos),
}

/// What is to become of elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArrayOrder {
    /// They end.
    Cancel {
        /// Whether without SIGTERM and grace.
        at_once: bool,
    },
    /// Those that wait are kept out of the line.
    Hold,
    /// Those that are held come into line.
    Release,
    /// Those that are no jobs yet end; of the others none.
    CancelWaiting,
    /// Those that are held and no jobs yet end; of the others none.
    CancelHeld,
}

/// What a setting belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Section {
    /// The parameters.
    Params,
    /// A class.
    Class(ClassName),
    /// A queue.
    Queue(QueueName),
    /// The bank: the name of a setting is an account.
    Bank,
    /// Changes at times: the name of a setting is the time, its value what changes. With an empty
    /// name and the value `new`, there are to be none but these; a number with the value `remove`
    /// takes one away.
    At,
}

/// One thing to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The line of the file that it is from, counted from 1; 0: of no file.
    pub line: u32,
    /// What it belongs to.
    pub section: Section,
    /// The hours in which it holds, such as `mon-fri 08:00-18:00`; `None`: always.
    pub during: Option<String>,
    /// Its name. Empty for a queue: with the value `new`, all that is not set becomes as in a new
    /// queue; with `remove`, there is to be no such queue.
    pub name: String,
    /// Its value, as text.
    pub value: String,
}

impl Reply {
    /// Where a page of ended jobs ends, from the bytes of a reply that is one: a client may ask for
    /// the next page before it reads this one.
    #[must_use]
    pub fn next_of_past(message: &[u8]) -> Option<PageEnd> {
        // The number of the kind of reply; the two fields of an empty page have a byte each.
        let empty = postcard::to_allocvec(&Self::Past { next: None, jobs: Vec::new() }).ok()?;
        let behind_kind = message.strip_prefix(empty.get(..empty.len().checked_sub(2)?)?)?;
        postcard::take_from_bytes::<Option<PageEnd>>(behind_kind).ok()?.0
    }
}

impl Request {
    /// Whether it only asks, so that it may be sent again to the next controller.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one line for each request")]
    pub const fn only_asks(&self) -> bool {
        match self {
            Self::Wait { .. }
            | Self::WaitBegun { .. }
            | Self::Jobs { .. }
            | Self::JobsWithUsage { .. }
            | Self::ShowAll { .. }
            | Self::History { .. }
            | Self::Past(_)
            | Self::Usage(_)
            | Self::Processes { .. }
            | Self::Nodes { .. }
            | Self::NodesClosely { .. }
            | Self::Clients { .. }
            | Self::Runs { .. }
            | Self::Params
            | Self::Bank
            | Self::Access
            | Self::Queues
            | Self::Timed { .. }
            | Self::StandingParams
            | Self::Resources
            | Self::Switches { .. }
            | Self::Weights
            | Self::Timetable { .. }
            | Self::SignsOfLife { .. }
            | Self::Status
            | Self::When(_)
            | Self::Starts { .. }
            | Self::Show { .. }
            | Self::Events(_)
            | Self::Keepers { .. }
            | Self::FindElements { .. }
            | Self::AwaitCheckpoint { .. }
            | Self::UsageByNode { .. }
            | Self::ReadOutput { .. }
            | Self::Metrics => true,
            Self::Run(_)
            | Self::RunStep(_)
            | Self::CancelStep { .. }
            | Self::SignalStep { .. }
            | Self::SignalSteps { .. }
            | Self::Requeue { .. }
            | Self::Checkpoint { .. }
            | Self::Elements { .. }
            | Self::Return { .. }
            | Self::Submit(..)
            | Self::SetNodeSets { .. }
            | Self::ChangeNodes { .. }
            | Self::Upgrade { .. }
            | Self::Cancel { .. }
            | Self::Signal { .. }
            | Self::Suspend { .. }
            | Self::Resume { .. }
            | Self::Hold { .. }
            | Self::Release { .. }
            | Self::SetJobClass { .. }
            | Self::SetTimeLimit { .. }
            | Self::Lend { .. }
            | Self::Move { .. }
            | Self::SetResources { .. }
            | Self::SetDevices { .. }
            | Self::SetNodeResources { .. }
            | Self::SetParams { .. }
            | Self::SetClass { .. }
            | Self::ForgetClass { .. }
            | Self::SetAccess { .. }
            | Self::SetWeights { .. }
            | Self::SetPeriod { .. }
            | Self::ForgetPeriod { .. }
            | Self::Measured { .. }
            | Self::Configure { .. }
            | Self::Down { .. } => false,
        }
    }
}

/// Tells a job that is handed in from all others of its user: bytes that no other has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubmitKey(pub [u8; 16]);

/// What is to become of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeChange {
    /// They take no new jobs.
    Drain {
        /// Why; may be empty.
        reason: String,
    },
    /// They take jobs again.
    Resume,
    /// They are none of the cluster's any more.
    Remove {
        /// Whether even if they have jobs, which end.
        now: bool,
    },
}

/// On which nodes a job is to run; see [`tutti_types::NodeWish`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesRequest {
    /// How many.
    pub count: Option<u32>,
    /// None but these, as a list ([`crate::host_list`]).
    pub only: Option<String>,
    /// None of these.
    pub exclude: Option<String>,
    /// None but those that this holds for ([`crate::constraint`]).
    pub constraint: Option<String>,
    /// With as few tasks each as can be.
    pub spread: bool,
    /// With no other job in its row.
    pub exclusive: bool,
}

/// A job as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// See [`tutti_types::JobSpec::class`].
    pub class: ClassName,
    /// See [`tutti_types::JobSpec::tasks`].
    pub tasks: u32,
    /// See [`tutti_types::JobSpec::processors_per_task`].
    pub processors_per_task: Option<u32>,
    /// See [`tutti_types::JobSpec::memory_per_task_bytes`].
    pub memory_per_task_bytes: Option<u64>,
    /// See [`tutti_types::JobSpec::time_limit`].
    pub time_limit: Option<Nanos>,
    /// See [`tutti_types::JobSpec::deadline`].
    pub deadline: Option<Nanos>,
    /// See [`tutti_types::JobSpec::grace`].
    pub grace: Nanos,
    /// See [`tutti_types::JobSpec::weights`].
    pub weights: Option<Weights>,
    /// See [`tutti_types::JobSpec::nodes`].
    pub nodes: NodesRequest,
    /// See [`tutti_types::JobSpec::on_bad_exit`].
    pub on_bad_exit: OnBadExit,
    /// See [`tutti_types::JobSpec::on_node_loss`].
    pub on_node_loss: OnNodeLoss,
    /// See `no_requeue` of the options of a submission in the core.
    pub no_requeue: bool,
    /// The job that waits for this one: `tutti run` was started by a task of it.
    pub within: Option<JobId>,
    /// What to run.
    pub launch: LaunchSpec,
    /// The queue that it is for, if any.
    pub queue: Option<QueueName>,
    /// Whether the user named the class, so that the queue's default does not count.
    pub names_class: bool,
    /// Whether it is held from its submission on.
    pub hold: bool,
    /// See [`tutti_types::JobSpec::resources`].
    pub resources: Vec<ResourceWish>,
    /// What it starts with.
    pub first: FirstStep,
    /// The jobs that it starts after, if it does.
    pub after: Option<AfterJobs>,
    /// Whether it starts after all jobs of its user and name that were submitted before.
    pub singleton: bool,
    /// When it begins at the earliest, in milliseconds since 1970.
    pub begin_ms: Option<u64>,
    /// The signal that it gets before its time limit, if any.
    pub warning: Option<Warning>,
    /// The indices and the limit of an array; `None`: it is a single job.
    pub array: Option<ArraySpec>,
    /// When and how its user is notified; `None`: as the site has it.
    pub notify: Option<Notify>,
    /// The job's own parameters for the site's policy program.
    pub policy_args: PolicyArgs,
    /// How it saves its state by itself, if it does.
    pub checkpoint: Option<Checkpoint>,
    /// Whether its memory may leave while it is suspended or preempted.
    pub swap: bool,
}

/// A further step of a job as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRequest {
    /// The job.
    pub job: JobId,
    /// Tells it from all other steps.
    pub key: SubmitKey,
    /// Whether it was accepted before. Then it is not begun anew, should it be forgotten by now.
    pub again: bool,
    /// What is asked.
    pub spec: StepSpec,
    /// Memory that each task may use; `None`: as the job's.
    pub memory_per_task_bytes: Option<u64>,
    /// What to run.
    pub launch: LaunchSpec,
    /// What its tasks run, if tasks of the job have spawned it.
    pub spawned: Option<Spawned>,
    /// A list with one node of the job, which all of its tasks are to be on; `None`: any.
    pub node: Option<String>,
    /// See [`crate::launch::Launch::serves`].
    pub serves: bool,
}

/// Where a front end finds a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeeperAt {
    /// On its own node, at this socket.
    Here(ByteBuf),
    /// On another node, through the agent of its own.
    Node(NodeId),
}

/// What a controller answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The job is accepted.
    Accepted {
        /// Its number.
        job: JobId,
        /// Why it waits, or empty if it is being started. A front end that was told of its start already, and
        /// hears why it waits from a later controller, knows that this one does not know of it.
        waits: String,
    },
    /// A job that waited is being started, or an accepted one is at once: where its output is.
    Starting {
        /// Its number.
        job: JobId,
        /// The keepers of all its nodes.
        attach: Vec<KeeperAt>,
    },
    /// The job can't be accepted; the reason says what would be.
    Declined {
        /// Why.
        reason: String,
        /// In short.
        code: Code,
    },
    /// The job has ended, and nothing of it is left.
    Ended {
        /// Its number.
        job: JobId,
        /// How.
        outcome: Outcome,
        /// What a reader should know beyond the outcome; may be empty.
        detail: String,
        /// All that is known of it.
        report: Box<JobReport>,
    },
    /// It was done.
    Done,
    /// It could not be done, and why.
    Failed {
        /// Why, and what to do.
        reason: String,
        /// In short.
        code: Code,
    },
    /// A page of jobs, by number.
    Jobs {
        /// The jobs.
        jobs: Vec<JobReport>,
        /// Where the next page begins, if others follow.
        next: Option<JobId>,
    },
    /// A page of jobs with what `tutti show` shows, by number.
    ShownJobs {
        /// The jobs.
        jobs: Vec<ShowReport>,
        /// Where the next page begins, if others follow.
        next: Option<JobId>,
    },
    /// A job that has ended, with its tasks.
    History(Box<HistoryReport>),
    /// Jobs that have ended, latest first.
    Past {
        /// Where the page ends, if others may follow. First, for [`Reply::next_of_past`].
        next: Option<PageEnd>,
        /// The jobs; there may be none on a page that is not the last.
        jobs: Vec<EndedReport>,
    },
    /// What the processors of nodes were used for, earliest first. Others may follow behind the
    /// last one, unless there is none.
    Usage(Vec<UsageSample>),
    /// A page of tasks with their processes, by node and rank.
    Tasks {
        /// Of which job, or part of it, they are.
        target: Target,
        /// The tasks.
        tasks: Vec<TaskReport>,
        /// Where the next page begins, if others follow.
        next: Option<NodeId>,
    },
    /// A page of nodes, by number.
    Nodes {
        /// The nodes.
        nodes: Vec<NodeReport>,
        /// Where the next page begins, if others follow.
        next: Option<NodeId>,
    },
    /// The parameters and the classes.
    Params {
        /// Parameters.
        params: Vec<ParamReport>,
        /// Classes.
        classes: Vec<ClassReport>,
        /// Hours in which something is otherwise, in the order in which they were named.
        periods: Vec<PeriodReport>,
    },
    /// The accounts with an allowance, users first.
    Bank(Vec<BankReport>),
    /// The users that may submit jobs; empty: all users, from everywhere.
    Access(Vec<AccessReport>),
    /// A page of switches by node, oldest first.
    Switches {
        /// Names of nodes, and the switches of each.
        nodes: Vec<(String, Vec<SwitchRecord>)>,
        /// Where the next page begins, if others follow.
        next: Option<NodeId>,
    },
    /// The timetable of a node.
    Timetable(Box<TimetableReport>),
    /// A page of signs of life, by node.
    SignsOfLife {
        /// What each node has answered, if it has.
        nodes: Vec<NodeLife>,
        /// Where the next page begins, if others follow.
        next: Option<NodeId>,
    },
    /// How the instance fares.
    Status(StatusReport),
    /// The weights that were set, users first.
    Weights(Vec<WeightReport>),
    /// All queues, by name.
    Queues(Vec<QueueReport>),
    /// What was changed, or would be, in lines; none: nothing.
    Configured {
        /// The lines.
        changes: Vec<String>,
    },
    /// The counted resources, by name.
    Resources(Vec<ResourceReport>),
    /// A page of a forecast.
    Starts {
        /// What it is about, and what it rests on.
        report: ForecastReport,
        /// Where the next page begins, if others follow.
        next: Option<JobId>,
        /// The number of the forecast, for the next page.
        forecast: u64,
    },
    /// One job, as it is or was.
    Show(Box<ShowReport>),
    /// The jobs that are asked to save their state.
    Asked {
        /// Which; of an array, its elements.
        jobs: Vec<JobId>,
    },
    /// What became of a request to a job to save its state and end.
    Checkpointed {
        /// Which job.
        job: JobId,
        /// What.
        end: CheckpointEnd,
        /// Why, if more is known of a failure.
        why: String,
    },
    /// The job has its place or time limit, or would have.
    Moved {
        /// The jobs whose promised starts that breaks, by number.
        broken: Vec<BrokenPromise>,
    },
    /// What the front end tells its user about the job, as it is.
    Notice {
        /// The text.
        text: String,
    },
    /// Events that the reader may see.
    Events {
        /// The events, by number; there may be none.
        events: Vec<EventRecord>,
        /// The number of the earliest event that is kept; 0: none is.
        first: u64,
        /// The number up to which all were looked at, from which the reader goes on.
        until: u64,
        /// The number of the latest event.
        last: u64,
    },
    /// Figures for monitoring.
    Metrics(Box<MetricsReport>),
    /// The step is accepted.
    StepAccepted {
        /// The step.
        key: StepKey,
        /// Why it waits, or empty if it is being started.
        waits: String,
    },
    /// Elements of an array.
    Elements {
        /// The index of each that is or was a job, and the number of that, by index.
        jobs: Vec<(u32, JobId)>,
        /// How many others of those that were asked for are no jobs yet.
        waiting: u32,
        /// The exit code of those that ended before they were jobs, if there are any.
        never: Option<u8>,
    },
    /// What a job has used: the name of each node that answers, with that there.
    UsageByNode {
        /// In the order of the nodes' numbers.
        nodes: Vec<(String, Usage)>,
    },
    /// Changes at times.
    Timed {
        /// All, by number.
        changes: Vec<TimedReport>,
        /// What happens soon, in order.
        coming: Vec<TimedMoment>,
    },
    /// A page of client machines, by name.
    Clients {
        /// The machines.
        clients: Vec<ClientReport>,
        /// Where the next page begins, if others follow.
        next: Option<u32>,
    },
    /// A piece of an output file.
    Output(OutputPiece),
}

/// A promise that a move breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenPromise {
    /// The job that was promised a start.
    pub job: JobId,
    /// The name of its owner.
    pub user: String,
    /// Within how many seconds it was to start at the latest.
    pub promised_s: u64,
    /// Within how many seconds it is to start now; nothing: that is not promised.
    pub now_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_known_from_the_beginning_of_a_reply() {
        let past = |next| postcard::to_allocvec(&Reply::Past { next, jobs: Vec::new() }).unwrap();
        let end = (u64::MAX, JobId(70_000));
        let (last, mut page) = (past(None), past(Some(end)));
        assert_eq!(Reply::next_of_past(&last), None);
        assert_eq!(Reply::next_of_past(&page), Some(end));
        page.truncate(page.len() - 1);
        page.extend_from_slice(&[9, 9, 9]);
        assert_eq!(Reply::next_of_past(&page), Some(end));
        for other in [Reply::Done, Reply::Jobs { jobs: Vec::new(), next: Some(JobId(7)) }] {
            assert_eq!(Reply::next_of_past(&postcard::to_allocvec(&other).unwrap()), None);
        }
        for cut in 0..last.len() {
            assert_eq!(Reply::next_of_past(&last[..cut]), None);
        }
    }
}
