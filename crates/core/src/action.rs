//! All that the core can ask of the world, carried out by a driver in the order given.

use crate::arrays::{ArrayEnds, ElementNumbers};
use crate::checkpoint::CheckpointNews;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use tutti_types::array::Positions;
use tutti_types::ids::{ClassName, JobId, NodeId, Rank, RequestId, StepKey};
use tutti_types::job::{ControlMethod, Outcome, StepRefusal};
use tutti_types::refusal::Refusal;
use tutti_types::time::ClusterTime;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Tell the asker that the job is accepted, under this number.
    Accept {
        /// The request of the `Submit`.
        request: RequestId,
        /// The new job.
        job: JobId,
    },
    /// Tell the asker that the job can't be accepted, and why.
    Decline {
        /// The request of the `Submit`.
        request: RequestId,
        /// Why, with the nearest request that would be accepted.
        refusal: Refusal,
    },
    /// Send a node its part of the matrix, which is [`Core::timetable`](crate::Core::timetable):
    /// made only for the submitter. Comes before the `Launch` of a job that it names.
    Timetable {
        /// Which node.
        node: NodeId,
        /// The version of the timetable; it replaces all before it.
        version: u64,
    },
    /// Send every node that is up its part of the matrix, as with `Timetable`: the frame is another
    /// one.
    Timetables {
        /// The version of the timetables.
        version: u64,
    },
    /// Start a job's tasks on all its nodes: where they run is [`Core::parts`](crate::Core::parts).
    Launch {
        /// Which job.
        job: JobId,
        /// How its processes are suspended and resumed.
        control: ControlMethod,
    },
    /// A job is preempted: make sure that its processors are free, and report `MovedOut`. The
    /// timetables before it name the job no more.
    MoveOut {
        /// Which job.
        job: JobId,
    },
    /// A preempted job has processors again, which are [`Core::parts`](crate::Core::parts): make
    /// sure that it can run there, and report `MovedIn`. No timetable names it before that.
    MoveIn {
        /// Which job.
        job: JobId,
    },
    /// Send a signal to the process groups of the root processes of a job's tasks on a node.
    Signal {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
        /// Which tasks; empty means all of that node.
        ranks: Vec<Rank>,
        /// The signal's number.
        signal: u8,
    },
    /// Ask the job to end on a node: SIGTERM to the process groups of the root processes of its
    /// tasks. What is suspended of the job, by users or by itself, goes on, so that it can act on
    /// that.
    Terminate {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
    },
    /// Move the memory of a job out of a node, or back, and report `Swapped`. The job does not run
    /// there, and does not before the report. A later order replaces an earlier one.
    Swap {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
        /// The number of the order, which the report repeats.
        order: u64,
        /// Out, or back.
        out: bool,
    },
    /// End every process of the job on a node, and report `JobCleared`.
    Kill {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
    },
    /// A job has lost a node, nothing of it is left on any, and it is in line again: forget how its
    /// tasks ended, and expect another `Launch`.
    Requeued {
        /// Which job.
        job: JobId,
    },
    /// Report the end of the job to all that wait for it. Nothing of it is left on any node.
    Ended {
        /// Which job.
        job: JobId,
        /// How.
        outcome: Outcome,
    },
    /// Send an [`Event::Tick`](crate::Event::Tick) at this time. Replaces an earlier wish.
    WakeAt {
        /// When; [`ClusterTime::NEVER`] withdraws the wish.
        at: ClusterTime,
    },
    /// An administrator has broken a promise, by a move or a longer time limit: tell the owner of
    /// the job.
    PromiseBroken {
        /// The job that was promised a start.
        job: JobId,
        /// When it was to start at the latest.
        at: ClusterTime,
        /// The job that was moved, or may run longer.
        by: JobId,
    },
    /// A rule gave a job another class: from now on its reports name that one.
    Reclassed {
        /// Which job.
        job: JobId,
        /// Its class.
        class: ClassName,
    },
    /// Something about a further step of a job.
    Step(StepAction),
    /// Send a signal to the root processes of a job's tasks on a node, and to no process that they
    /// have started.
    SignalRoots {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
        /// The signal's number.
        signal: u8,
    },
    /// An element of an array came into line, as a job of its own.
    ElementMade {
        /// The array.
        array: JobId,
        /// The position of the element.
        position: u32,
        /// The number that it has as a job.
        job: JobId,
    },
    /// Report the end of an array. None of its elements is left.
    ArrayEnded {
        /// Which one.
        array: JobId,
        /// That of the element with the highest exit code, and the service of all.
        outcome: Outcome,
        /// How its elements ended.
        ends: ArrayEnds,
        /// The numbers of those that were jobs.
        numbers: Vec<ElementNumbers>,
        /// Those that ended well.
        well: Positions,
    },
    /// The site's policy declines a job, which ends with the next action: tell its user why.
    JobDeclined {
        /// Which job.
        job: JobId,
        /// Why.
        reason: String,
    },
    /// Tasks of a job were lost, and are to be started again.
    RanksLost {
        /// Which job.
        job: JobId,
        /// The node where they were.
        node: NodeId,
        /// Which tasks.
        ranks: Vec<Rank>,
        /// How long they wait for processors.
        until: ClusterTime,
    },
    /// Start lost tasks of a job again, with the launch number that
    /// [`Core::launch_on`](crate::Core::launch_on) says.
    Respawn {
        /// Which job.
        job: JobId,
        /// The node where they are now.
        node: NodeId,
        /// The node where they were.
        from: NodeId,
        /// Which tasks.
        ranks: Vec<Rank>,
    },
    /// Lost tasks of a job are not started again: what the job named for that case holds.
    RanksGivenUp {
        /// Which job.
        job: JobId,
        /// The node where they were.
        node: NodeId,
        /// Which tasks.
        ranks: Vec<Rank>,
    },
    /// A job was asked to save its state, or it is known what became of that: tell those that wait
    /// for it. Comes before `Requeued` and `Ended` of the job.
    Checkpoint {
        /// Which job.
        job: JobId,
        /// What happened.
        news: CheckpointNews,
    },
}

/// One thing to do about a further step of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepAction {
    /// Tell the asker that the step is accepted, or was before, under this number.
    Accept {
        /// The request of the `SubmitStep`.
        request: RequestId,
        /// The step.
        key: StepKey,
    },
    /// Tell the asker that the step can't be had, and why.
    Decline {
        /// The request of the `SubmitStep`.
        request: RequestId,
        /// Why.
        refusal: StepRefusal,
    },
    /// Start a step's tasks: where they run is [`Core::step_parts`](crate::Core::step_parts).
    Launch {
        /// Which step.
        key: StepKey,
    },
    /// Ask a step to end on a node: SIGTERM to the process groups of the root processes of its
    /// tasks.
    Terminate {
        /// Which step.
        key: StepKey,
        /// On which node.
        node: NodeId,
    },
    /// End every process of a step on a node, and report `StepCleared`.
    Kill {
        /// Which step.
        key: StepKey,
        /// On which node.
        node: NodeId,
    },
    /// Report the end of a step. Nothing of it is left on any node.
    Ended {
        /// Which step.
        key: StepKey,
        /// How.
        outcome: Outcome,
    },
    /// Name ranks that have failed to the tasks of a step on these nodes, which go on.
    RanksFailed {
        /// Which step; also the first one of a job.
        key: StepKey,
        /// Which nodes have tasks left.
        nodes: Vec<NodeId>,
        /// Which ranks.
        ranks: Vec<Rank>,
    },
    /// Send a signal to the process groups of the root processes of a step's tasks on a node.
    Signal {
        /// Which step.
        key: StepKey,
        /// On which node.
        node: NodeId,
        /// The signal's number.
        signal: u8,
    },
}

impl From<StepAction> for Action {
    fn from(action: StepAction) -> Self {
        Self::Step(action)
    }
}
