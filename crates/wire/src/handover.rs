//! What a keeper hands over to the program that takes its place: all that it holds, in one value.
//!
//! The upgrade of a keeper to another executable without the end of its tasks: it writes this to a
//! file in memory and executes the other, which keeps its number, its children and the descriptors
//! that are named here by theirs. The form has a number of its own ([`FORM`]): an executable says
//! which it understands before it is executed, and one that does not is not executed.
//!
//! Everything but the form's own number may change with it. What never changes is how a form begins
//! ([`MAGIC`], then two bytes of its number), what is asked of an executable
//! (`tutti keeper --can-take-over FORM`), and the messages [`ToHolder`] and [`FromHolder`], since
//! programs of two releases exchange them.

use crate::Role;
use crate::attach::{Stream, TerminalSize};
use crate::keeper::StoppedPart;
use crate::launch::{Launch, Usage};
use crate::pmi::{Names, Server};
use crate::pmix::{Far, Hub, Session};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{Rank, StepId, StepKey, TaskStatus};

/// The form of what is handed over. To be counted up with every change of it; a test holds it to
/// that.
pub const FORM: u16 = 6;

/// How what is handed over begins.
pub const MAGIC: [u8; 8] = *b"TUTTIKEE";

/// More is not handed over: the output and the exchanged values of all jobs of a node, with room to
/// spare.
pub const HANDOVER_BYTES_MAX: usize = 1 << 30;

/// Why what was handed over can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// It does not begin as it should.
    #[error("it is nothing that a keeper hands over")]
    NotAHandover,
    /// It is of another form.
    #[error("it is of form {theirs}, this program understands form {FORM}")]
    OtherForm {
        /// That of the keeper that wrote it.
        theirs: u16,
    },
    /// It is of this form, and broken.
    #[error("{bytes} bytes of form {FORM} are broken")]
    Broken {
        /// How many.
        bytes: usize,
    },
    /// It would be more than [`HANDOVER_BYTES_MAX`].
    #[error(
        "{bytes} bytes would have to be handed over; at most {HANDOVER_BYTES_MAX} are possible"
    )]
    TooLong {
        /// How many.
        bytes: usize,
    },
}

/// What the supervisor tells a keeper that is to be upgraded to another executable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHolder {
    /// Upgrade to it; it has been found to understand [`FORM`].
    Upgrade {
        /// Its path, from the root.
        program: ByteBuf,
        /// The version of the messages that it speaks: front ends that run speak ours.
        protocol: u16,
    },
}

/// The answer: of the keeper that was asked if it can't, of the one that took its place if it
/// could.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHolder {
    /// It was done.
    Done {
        /// How many jobs were handed over.
        jobs: u32,
    },
    /// Nothing has changed.
    Refused {
        /// Why.
        reason: String,
    },
}

/// The number of a descriptor that is handed over.
pub type Fd = i32;

/// All that a keeper holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handover {
    /// The version of the messages that the connected peers speak.
    pub protocol: u16,
    /// Drawn at the start of the first of these keepers.
    pub incarnation: u64,
    /// The limits on descriptors that it was started with, which tasks get.
    pub descriptors: (u64, u64),
    /// Where connections come in.
    pub listener: Fd,
    /// The connected peers that wait.
    pub newcomers: Vec<HeldNewcomer>,
    /// The peer that asked for all this, and waits for [`FromHolder`].
    pub asker: Option<HeldLink>,
    /// The agent.
    pub agent: Option<HeldLink>,
    /// The jobs.
    pub jobs: Vec<HandedJob>,
    /// Until when tasks may run, by the clock that counts sleep.
    pub lease_until_ns: Option<u64>,
    /// Names that MPI programs published.
    pub names: Names,
    /// What the PMIx servers have asked for.
    pub hub: Hub,
    /// What it has said to the keepers of other nodes, and they to it.
    pub far: Far,
    /// When to look again at a task of which something was left: monotonic time, job, place of the
    /// task.
    pub endings: Vec<(u64, StepKey, u32)>,
    /// Directories for temporary files that are kept empty.
    pub spares: HeldSpares,
}

/// Directories that jobs have left empty and others will have.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldSpares {
    /// Where each is, and its user and group.
    pub kept: Vec<(ByteBuf, (u32, u32))>,
    /// How many there were.
    pub numbers: u64,
}

/// A connection that carries messages.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldLink {
    /// Its socket.
    pub fd: Fd,
    /// Peers that greeted.
    pub greeted: Option<Role>,
    /// What was read and not taken.
    pub input: ByteBuf,
    /// What was queued and not sent.
    pub output: ByteBuf,
    /// How many bytes the messages had that were taken.
    pub taken: u64,
}

/// A front end that has not named a job, or whose job has not come.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldNewcomer {
    /// The connection.
    pub link: HeldLink,
    /// Its user.
    pub uid: u32,
    /// What is queued for it.
    pub outlet: Option<HeldOutlet>,
    /// The job that it waits for.
    pub waits: Option<StepKey>,
    /// How much of the job's output it has got.
    pub received: Option<u64>,
    /// When it is turned away, in monotonic time.
    pub until_ns: u64,
    /// The size of the terminal that rank 0 is to have.
    pub terminal: Option<TerminalSize>,
}

/// What waits to be written to a front end.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldOutlet {
    /// The bytes.
    pub unsent: ByteBuf,
    /// Pipes to be passed on, each with the place of its frame in those bytes.
    pub pipes: Vec<(u64, Fd)>,
    /// What was sent last, for a peer that may break off.
    pub kept: Option<HeldKept>,
}

/// What was sent last.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldKept {
    /// The bytes.
    pub bytes: ByteBuf,
    /// How many were sent before those.
    pub before: u64,
    /// What of the unsent does not count.
    pub uncounted: u64,
}

/// An attached front end.
#[derive(Debug, Serialize, Deserialize)]
pub struct HeldFront {
    /// Nothing while the way to it is broken.
    pub link: Option<HeldLink>,
    /// What waits for it.
    pub outlet: HeldOutlet,
    /// How many of its messages were taken in.
    pub heard: u64,
    /// Until when it may come back, in monotonic time.
    pub away_until_ns: Option<u64>,
    /// It has got everything.
    pub is_done: bool,
}

/// A job with its tasks.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedJob {
    /// What it is.
    pub launch: Launch,
    /// Its cgroup.
    pub cgroup_path: Option<ByteBuf>,
    /// Whether the group is still needed.
    pub has_group: bool,
    /// What all tasks run, or why none can.
    pub program: Result<HandedProgram, (TaskStatus, String)>,
    /// Its tasks on this node.
    pub tasks: Vec<HandedTask>,
    /// Its front end.
    pub front: Option<HeldFront>,
    /// Streams that wait for room.
    pub parked: Vec<(u32, Stream)>,
    /// Its PMI server.
    pub pmi: Option<HandedPmi>,
    /// The process that writes its files.
    pub writer: Option<HandedWriter>,
    /// Until when the writer on another node may attach, in monotonic time.
    pub writer_until_ns: Option<u64>,
    /// Why its files are not written any more.
    pub output_failure: Option<String>,
    /// What of its output is not in its files.
    pub lost: String,
    /// Whether its tasks were started.
    pub started: bool,
    /// Whether it was killed.
    pub killed: bool,
    /// How many tasks' ends were not told completely.
    pub undelivered: u32,
    /// Parts that users have suspended by signals.
    pub stopped: Vec<StoppedPart>,
    /// What it used.
    pub usage: Usage,
    /// The same, if nothing of it is left.
    pub cleared: Option<Usage>,
    /// Whether the agent has taken note of its end.
    pub forgotten: bool,
    /// Shared memory that its processes used.
    pub shared: Vec<ByteBuf>,
    /// Where its temporary files are.
    pub scratch: Option<ByteBuf>,
    /// The namespace of its IPC.
    pub ipc: Option<Fd>,
    /// When it began: seconds and nanoseconds since 1970.
    pub began: (u64, u32),
    /// Its PMIx server.
    pub pmix: Option<HandedPmix>,
    /// Where the files of its PMIx server are, if that is no task's directory.
    pub pmix_scratch: Option<ByteBuf>,
    /// The size of the terminal that rank 0 is to have, or has.
    pub terminal: Option<TerminalSize>,
    /// What its tasks have spawned.
    pub spawners: Vec<HandedSpawner>,
}

/// What a task has spawned.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedSpawner {
    /// The process that serves it.
    pub helper: HandedHelper,
    /// Its number in the job on this node.
    pub number: u32,
    /// The task's place.
    pub task: u32,
    /// Whether the task was answered.
    pub is_answered: bool,
    /// The number of the request, where the task has asked by PMIx.
    pub asked: Option<u32>,
    /// The step that it has started.
    pub child: Option<StepId>,
}

/// A process of a job's user that the keeper has started beside the job's tasks.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedHelper {
    /// Its number, until it is reaped.
    pub pid: Option<i32>,
    /// Tells whether it was started.
    pub report: Fd,
    /// Its connection, while that is of use.
    pub link: Option<HeldLink>,
    /// Its own cgroup, with the limit on memory there, bytes.
    pub group: Option<(ByteBuf, u64)>,
}

/// The PMIx server of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedPmix {
    /// Its process.
    pub helper: HandedHelper,
    /// What it has said.
    pub session: Session,
    /// Until when it must be ready, in monotonic time.
    pub until_ns: Option<u64>,
    /// Whether tasks wait for it.
    pub is_awaited: bool,
    /// The parts of the fence that it has sent.
    pub parts: u32,
    /// The fence that waits for the other nodes.
    pub fence: Option<u32>,
}

/// The process that writes the files which tasks of a job share.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedWriter {
    /// Its process. Its connection is this one's until it has attached.
    pub helper: HandedHelper,
    /// When it counts as stuck, in monotonic time, once the job was killed.
    pub stuck_at_ns: Option<u64>,
    /// Whether it has written something since that moment was set.
    pub has_written: bool,
    /// Whether it only tells other nodes that nothing is written.
    pub gives_up: bool,
}

/// What all tasks of a job run. No text has a zero byte in it.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedProgram {
    /// Its arguments.
    pub argv: Vec<ByteBuf>,
    /// Where it may be.
    pub candidates: Vec<ByteBuf>,
    /// What is the same for all tasks.
    pub environment: Vec<ByteBuf>,
    /// Where it runs.
    pub directory: ByteBuf,
    /// Resource, soft and hard limit.
    pub rlimits: Vec<(i32, u64, u64)>,
    /// User, group and further groups to become.
    pub identity: Option<(u32, u32, Vec<u32>)>,
    /// Programs of spawned tasks but the first, each with the lowest rank that runs it.
    pub others: Vec<HandedCommand>,
}

/// What some of the tasks of a job run. No text has a zero byte in it.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedCommand {
    /// The lowest rank.
    pub from: u32,
    /// Its arguments.
    pub argv: Vec<ByteBuf>,
    /// Where it may be.
    pub candidates: Vec<ByteBuf>,
    /// Where it runs.
    pub directory: ByteBuf,
}

/// A task.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedTask {
    /// Its rank.
    pub rank: Rank,
    /// Whether it has a group of its own.
    pub has_group: bool,
    /// Where it is in its life.
    pub phase: HandedPhase,
    /// Its standard output.
    pub output: Option<HandedOutPipe>,
    /// Its standard error.
    pub error: Option<HandedOutPipe>,
    /// Its input.
    pub input: Option<HandedInPipe>,
    /// Files that its output goes to.
    pub files: Vec<ByteBuf>,
    /// The status with which it asked that the job end.
    pub aborted: Option<(u8, String)>,
    /// What it used.
    pub usage: Usage,
    /// Whether its end was put into the front end's outlet.
    pub delivered: bool,
    /// Its terminal, and the other end of that, as its output and input have it.
    pub terminal: Option<(Fd, Fd)>,
}

/// Where a task is in its life.
#[derive(Debug, Serialize, Deserialize)]
pub enum HandedPhase {
    /// It has not begun.
    Waiting,
    /// Its root, or its minder, runs.
    Running {
        /// The number of that process.
        pid: i32,
        /// Tells whether its program was started.
        report: Fd,
        /// Set where a minder reaps what is below.
        minder: Option<HandedMinder>,
    },
    /// Its processes ran before it was a task.
    Adopted(Vec<HandedProcess>),
    /// Its root has ended.
    Ending {
        /// How.
        status: TaskStatus,
        /// What there is to say beyond that.
        detail: String,
        /// How often it was looked whether anything is left.
        naps: u32,
    },
    /// Nothing of it is left.
    Ended {
        /// How it ended.
        status: TaskStatus,
        /// What there is to say beyond that.
        detail: String,
    },
}

/// What a minder has said.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedMinder {
    /// Where it says it.
    pub fd: Fd,
    /// The root's number.
    pub root: Option<i32>,
    /// The root's wait status.
    pub status: Option<i32>,
    /// Whether it says no more.
    pub silent: bool,
    /// Signals that came before the root's number was known.
    pub early: Vec<i32>,
    /// What a saver has said instead of a wait status.
    pub told: Option<i32>,
    /// What a saver has said of processes that go on, which was not reported yet.
    pub goes_on: Option<i32>,
}

/// A process with which an adopted task began.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedProcess {
    /// Its number.
    pub pid: i32,
    /// Its descriptor.
    pub fd: Fd,
    /// Set when it has ended: its wait status, if that is known.
    pub ended: Option<Option<i32>>,
}

/// Our end of what a task writes to.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedOutPipe {
    /// Our end.
    pub fd: Fd,
    /// How much the next read asks for.
    pub want: u32,
    /// Its reader.
    pub reader: HandedReader,
    /// Whether it is not to be read for now.
    pub is_parked: bool,
}

/// The reader of what a task writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandedReader {
    /// The keeper.
    Us,
    /// None: the pipe is on its way to the front end.
    Nobody,
    /// The front end.
    FrontEnd,
}

/// Our end of what a task reads from.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedInPipe {
    /// Our end.
    pub fd: Fd,
    /// What waits for the task.
    pub pending: ByteBuf,
    /// Whether that is all.
    pub ended: bool,
    /// Whether what came last lacks the end of its line.
    pub is_in_line: bool,
}

/// A job's PMI server.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedPmi {
    /// What was stored, and which ranks wait for which.
    pub server: Server,
    /// Connections by the tasks' places.
    pub connections: Vec<Option<HandedPmiLink>>,
}

/// A task's PMI connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedPmiLink {
    /// Its socket.
    pub fd: Fd,
    /// What was read and is no whole line yet.
    pub lines: ByteBuf,
    /// Answers that were not sent.
    pub unsent: ByteBuf,
}

impl Handover {
    /// All of it, as another program reads it.
    ///
    /// # Errors
    /// If it is more than can be handed over.
    pub fn encode(&self) -> Result<Vec<u8>, HandoverError> {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend_from_slice(&FORM.to_le_bytes());
        let bytes = postcard::to_extend(self, bytes)
            .expect("a Vec takes any number of bytes and nothing in it fails to be written");
        match bytes.len() {
            0..=HANDOVER_BYTES_MAX => Ok(bytes),
            bytes => Err(HandoverError::TooLong { bytes }),
        }
    }

    /// Reads what [`Handover::encode`] of this form wrote.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, HandoverError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(HandoverError::NotAHandover)?;
        let (form, rest) = rest.split_first_chunk().ok_or(HandoverError::NotAHandover)?;
        match u16::from_le_bytes(*form) {
            FORM => {}
            theirs => return Err(HandoverError::OtherForm { theirs }),
        }
        match postcard::take_from_bytes(rest) {
            Ok((handover, [])) => Ok(handover),
            _ => Err(HandoverError::Broken { bytes: bytes.len() }),
        }
    }
}

#[cfg(test)]
mod tests;
