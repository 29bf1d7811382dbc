//! Messages between an agent and the keeper of its node.
//!
//! The keeper outlives agents. Whatever it reported stays in its memory until `Forget`, and a new
//! agent gets it all in `Welcome`, so no end of a task is lost with an agent.

use crate::launch::{Launch, Usage};
use crate::pmi::Exchange;
use crate::pmix::{Peer, Piece};
use crate::report::Target;
use crate::usage::CarriedBytes;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::take;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{ControlMethod, JobId, LaunchId, Nanos, Rank, TaskStatus};

/// What an agent tells its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one at a time is decoded, and used at once")]
pub enum ToKeeper {
    /// Start these tasks; if a front end is expected, when it has attached.
    Launch {
        /// What and how.
        launch: Launch,
        /// The job's cgroup, made by the agent; tasks get groups of their own below it. `None`: no
        /// cgroup can be written here, each task gets a minder.
        cgroup: Option<ByteBuf>,
    },
    /// End every process of the job.
    Kill {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// Send a signal to the process groups of tasks' root processes.
    Signal {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// Which tasks; empty means all.
        ranks: Vec<Rank>,
        /// The signal's number.
        signal: u8,
    },
    /// Keep for the next agent, in place of what was to be kept before, which parts of the job
    /// users have suspended by signals.
    Stopped {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// The parts.
        parts: Vec<StoppedPart>,
    },
    /// The end of the job is known where it must be; drop what is kept of it.
    Forget {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// A part of what all nodes of a job have stored before a barrier that all have completed.
    Exchanged(Exchange),
    /// The controller may have missed what this node has stored before barriers: send it, all from
    /// the beginning.
    SendExchanges {
        /// Which job, and which launch of it.
        launch: LaunchId,
    },
    /// Tasks may run until then. If no later moment is set before, all are to be suspended, and the
    /// agent gets a message of it: it stands still, or is gone.
    Lease {
        /// By this machine's clock that counts sleep, in nanoseconds; `None`: the agent has
        /// suspended all.
        until_ns: Option<u64>,
    },
    /// End all jobs and exit.
    Stop,
    /// Send a signal to the root processes of a job's tasks alone.
    SignalRoots {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// The signal's number.
        signal: u8,
    },
    /// Name ranks of a step that have failed to its tasks by their PMIx server.
    RanksFailed {
        /// Which step, and which launch of its job.
        launch: LaunchId,
        /// Which ranks; such that were named before may be among them.
        ranks: Vec<Rank>,
    },
    /// A piece of what another keeper says about a job of both.
    Piece {
        /// That keeper, and the job.
        peer: Peer,
        /// The piece; `None` if that keeper, or the job there, is gone for good.
        piece: Option<Piece>,
    },
    /// Answer with `Alive` at once.
    SignOfLife,
    /// Answer with `Carried`.
    AskCarried,
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
    /// Jobs up to this number are released: their processes go on as external load, also when this
    /// keeper has to stop. The next keeper knows it too.
    Release {
        /// The last of them.
        until: JobId,
    },
}

/// What a keeper tells its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromKeeper {
    /// The end of the answer to an agent's greeting: all that the keeper holds was sent before, in
    /// `Held`.
    Welcome {
        /// Drawn anew at each start of a keeper: another one means that the tasks of the one before
        /// are lost.
        incarnation: u64,
        /// How many tasks it can hold at once.
        tasks_max: u32,
    },
    /// A task's process exists.
    TaskStarted {
        /// Its job's launch.
        launch: LaunchId,
        /// Which task.
        rank: Rank,
        /// The process from which all others of the task descend: its root, or its minder.
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
        /// What a reader should know beyond the status: which file could not be opened, and why.
        detail: String,
        /// What it used.
        usage: Usage,
    },
    /// All tasks were suspended, since the time was over that the agent had told.
    Lapsed,
    /// All tasks here have entered a barrier in which those of other nodes take part: a part of
    /// what they have stored before it. It comes to no agent that has not asked for it or seen the
    /// barrier begin.
    Exchange(Exchange),
    /// A piece for the keeper of another node of a job. It may be lost: then it is sent again.
    Piece {
        /// That keeper, and the job.
        peer: Peer,
        /// The piece.
        piece: Piece,
    },
    /// Some output of the job is not in its files, and will not be.
    OutputLost {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// What, and why.
        what: String,
    },
    /// All tasks here have ended, nothing of the job is left, its output has been delivered or
    /// no agent is there to take it.
    Cleared {
        /// Which job, and which launch of it.
        launch: LaunchId,
        /// What it used.
        usage: Usage,
    },
    /// Parts of jobs that the keeper holds, before `Welcome`. Parts of one job follow each other.
    Held(Vec<HeldJob>),
    /// The answer to `SignOfLife`.
    Alive,
    /// The answer to `AskCarried`: what this keeper has carried since it began.
    Carried(CarriedBytes),
    /// The processes of a task go on after they were to be saved to an image.
    GoesOn {
        /// Its job's launch.
        launch: LaunchId,
        /// Why they could not be saved; `None`: they are.
        failure: Option<String>,
        /// Whether they were to end then.
        ends: bool,
    },
}

/// A part of a job that its user has suspended by signals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedPart {
    /// Which part.
    pub target: Target,
    /// Its processes, each by number and start time (clock ticks since boot).
    pub processes: Vec<(i32, u64)>,
}

/// A job that a keeper holds, or whose end has not been taken note of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    /// Which job, and which launch of it.
    pub launch: LaunchId,
    /// Its cgroup, if it has one.
    pub cgroup: Option<ByteBuf>,
    /// How its processes are suspended and resumed.
    pub control: ControlMethod,
    /// Processes from which all others of a task descend, for tasks that have started.
    pub roots: Vec<(Rank, i32)>,
    /// The processes with which an adopted task began, each by its number and start time.
    pub adopted: Vec<(i32, u64)>,
    /// Tasks that have ended.
    pub ended: Vec<(Rank, TaskStatus, String, Usage)>,
    /// Parts that users have suspended by signals.
    pub stopped: Vec<StoppedPart>,
    /// See [`crate::launch::LaunchSpec::vacate`].
    pub vacate: Option<Nanos>,
    /// Whether there is an image of its processes, made while they went on.
    pub has_image: bool,
    /// See [`crate::launch::Launch::serves`].
    pub serves: bool,
    /// Whether nothing of it is left, and what it used.
    pub cleared: Option<Usage>,
}

/// Roots in one part of a held job.
const ROOTS_PER_PART: usize = 4096;

/// Ended tasks in one part of a held job: each has a text.
const ENDED_PER_PART: usize = 256;

impl HeldJob {
    /// Splits the job into parts that travel, each with the job's number.
    #[must_use]
    pub fn into_parts(mut self) -> Vec<Self> {
        let mut roots = take(&mut self.roots).into_iter();
        let mut ended = take(&mut self.ended).into_iter();
        let mut stopped = take(&mut self.stopped).into_iter();
        let mut parts = Vec::new();
        loop {
            let adopted = take(&mut self.adopted);
            parts.push(Self {
                adopted,
                roots: roots.by_ref().take(ROOTS_PER_PART).collect(),
                ended: ended.by_ref().take(ENDED_PER_PART).collect(),
                stopped: stopped.by_ref().take(1).collect(),
                ..self.clone()
            });
            if roots.len() + ended.len() + stopped.len() == 0 {
                return parts;
            }
        }
    }

    /// Takes in the next part of the same job; gives it back if it is of another.
    #[must_use]
    pub fn take_in(&mut self, part: Self) -> Option<Self> {
        if part.launch != self.launch {
            return Some(part);
        }
        self.roots.extend(part.roots);
        self.adopted.extend(part.adopted);
        self.ended.extend(part.ended);
        self.stopped.extend(part.stopped);
        None
    }
}
