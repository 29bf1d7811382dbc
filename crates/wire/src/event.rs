//! The stream of events, as its readers have it: `tutti events`, notification, the page.
//!
//! This vocabulary is not that of the core. Its words and fields stay when the core changes, and
//! [`EVENTS_VERSION`] is raised when one of them means something else. Events and fields may be
//! added at any time: readers ignore what they do not know.
//!
//! The controller makes each event together with the entry of its journal, and stores both at once.

use crate::history::Ending;
use crate::notify::{NotifyMoment, NotifyWay};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, Rank, TaskStatus};

/// The version of the vocabulary.
pub const EVENTS_VERSION: u32 = 1;

/// One event with its place in the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its number, by which a reader resumes. Numbers rise; some may be missing.
    pub number: u64,
    /// The entry of the journal that it belongs to.
    pub entry: u64,
    /// What happened.
    pub event: Event,
}

/// What happened, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds since 1970 by the clock of the controller's machine.
    pub at_ms: u64,
    /// The same in cluster time, in nanoseconds: as `tutti switches` has it.
    pub cluster_ns: u64,
    /// The job, if it is about one.
    pub job: Option<JobOf>,
    /// What.
    pub what: What,
}

/// The job that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOf {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// The name of its owner.
    pub user: String,
    /// The number of its owner.
    pub uid: u32,
}

/// All that can happen, by its word in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A controller took over.
    ControllerStarted {
        /// Its release.
        release: String,
    },
    /// The instance is ending; no job is accepted any more.
    InstanceEnding {},
    /// A job was accepted.
    JobSubmitted {
        /// Its class.
        class: String,
        /// Its queue, if any.
        queue: Option<String>,
        /// The number of its tasks.
        tasks: u32,
        /// Whether it is held.
        held: bool,
    },
    /// A waiting job is kept out of the line.
    JobHeld {},
    /// A held job is in line.
    JobReleased {},
    /// A job has another class.
    JobClassChanged {
        /// The class.
        class: String,
    },
    /// A job has another time limit.
    JobLimitChanged {
        /// The limit, in its turns, in milliseconds; `None`: it has none.
        time_limit_ms: Option<u64>,
    },
    /// The tasks of a job are being started.
    JobStarted {
        /// The number of the launch, from 0: higher after a node was lost.
        launch: u32,
        /// Its nodes, lowest ranks first.
        nodes: Vec<EventNode>,
        /// How many nodes are left out behind those.
        nodes_left_out: u32,
    },
    /// A user took the job's turns.
    JobSuspended {},
    /// The job gave up its processors for another.
    JobPreempted {},
    /// The job has turns again.
    JobResumed {},
    /// A node of the job does not answer; its tasks there may go on.
    JobNodeUnreachable {
        /// The node.
        node: String,
    },
    /// It answers again.
    JobNodeBack {
        /// The node.
        node: String,
    },
    /// It is lost, and with it the tasks there.
    JobNodeLost {
        /// The node.
        node: String,
    },
    /// Tasks of a job ended, and nothing of them is left.
    TasksEnded {
        /// Their ranks, such as `0-3,7`.
        ranks: String,
        /// How.
        status: EndOfTask,
        /// Their part of the job's exit code.
        exit_code: u8,
        /// The signal that ended them, if one did.
        signal: Option<u8>,
    },
    /// The job lost a node and is in line again.
    JobRequeued {
        /// How often that has happened.
        requeues: u32,
    },
    /// The tasks of a job get SIGTERM, or SIGKILL.
    JobEnding {},
    /// Nothing of the job is left.
    JobEnded {
        /// How it ended.
        ending: Ending,
        /// Its exit code.
        exit_code: u8,
        /// Why, in words.
        reason: String,
        /// Between its acceptance and its start.
        waited_ms: u64,
        /// The time that its turns gave it.
        service_ms: u64,
    },
    /// A node joined for the first time, or after it was lost.
    NodeJoined {
        /// The node.
        node: String,
        /// The number of its processors.
        processors: u32,
        /// Its memory.
        memory_bytes: u64,
    },
    /// A node does not answer.
    NodeUnreachable {
        /// The node.
        node: String,
    },
    /// It answers again.
    NodeBack {
        /// The node.
        node: String,
    },
    /// A node is lost.
    NodeLost {
        /// The node.
        node: String,
    },
    /// A node takes no new jobs.
    NodeDrained {
        /// The node.
        node: String,
        /// Why; may be empty.
        reason: String,
    },
    /// A node takes jobs again.
    NodeResumed {
        /// The node.
        node: String,
    },
    /// A node belongs to the cluster no more.
    NodeRemoved {
        /// The node.
        node: String,
    },
    /// An administrator changed a setting.
    SettingChanged {
        /// Of what kind.
        kind: SettingKind,
        /// Of which class, queue, user and so on; empty for parameters.
        name: String,
        /// The new values, such as `rows=2`, where they are few.
        values: Vec<String>,
    },
    /// An administrator gave a waiting job another place in line.
    JobMoved {
        /// The job just before which it stands; `None`: it stands before all.
        before: Option<JobId>,
    },
    /// The user of a job is to be notified.
    JobNotification(Notification),
    /// Ranks of the job were lost with a node, and wait for processors to start on again.
    JobRanksLost {
        /// The node.
        node: String,
        /// The ranks, such as `0-3,7`.
        ranks: String,
        /// How long they wait at most.
        wait_ms: u64,
    },
    /// Lost ranks of the job are being started again.
    JobRanksRespawned {
        /// The node where they are now.
        node: String,
        /// The ranks.
        ranks: String,
        /// Their processors there.
        processors: String,
        /// The number of the launch, higher than all before of the job.
        launch: u32,
        /// The node where they were.
        from: String,
    },
    /// Lost ranks of the job are not started again.
    JobRanksGivenUp {
        /// The node where they were.
        node: String,
        /// The ranks.
        ranks: String,
    },
    /// The job is asked to save its state.
    JobCheckpointing {
        /// Whether it is asked to end then, too.
        ends: bool,
        /// How long it may take to end.
        grace_ms: Option<u64>,
    },
    /// The job has saved its state and ended its run; it is in line again.
    JobCheckpointed {},
    /// The job was asked to save its state and end, and has not.
    JobCheckpointFailed {
        /// What happened instead.
        why: CheckpointFault,
    },
    /// An administrator's order lets a waiting job start later than was promised.
    JobPromiseBroken {
        /// The job that was moved before it, or may run longer.
        by: JobId,
        /// When it was to start at the latest, in milliseconds since 1970.
        start_ms: u64,
    },
}

/// What happened to a job instead of what it was asked: to save its state and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointFault {
    /// It did not end within its grace, and goes on.
    Unanswered,
    /// It did not end within its grace, and is ended, to be in line again.
    Forced,
    /// A task died of the signal; the job is in line again.
    Died,
    /// Its processes could not be saved to an image, and go on.
    NotSaved,
    /// Its processes could not be restored from their image; the job is in line again, and held.
    NotRestored,
    /// Its processes could not be saved to an image and may be damaged by that: they were ended,
    /// and the job is in line again with an earlier image.
    Damaged,
}

/// What the user of a job is to be notified of, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Of what.
    pub on: NotifyMoment,
    /// In which ways; at least one.
    pub ways: Vec<NotifyWay>,
    /// The key that signs webhooks. It is no field of the event in JSON.
    pub key: Option<ByteBuf>,
    /// The group that the job runs with.
    pub gid: u32,
    /// The names of the job's nodes, as far as they fit, where it started.
    pub nodes: String,
    /// How it ended, if it did.
    pub ending: Option<Ending>,
    /// Its exit code, if it ended.
    pub exit_code: Option<u8>,
    /// Why it ended, in words.
    pub reason: String,
    /// Between its acceptance and its start.
    pub waited_ms: u64,
    /// The time that its turns gave it.
    pub service_ms: u64,
}

/// The part of a job on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventNode {
    /// The name of the node.
    pub node: String,
    /// The ranks there, such as `0-3`.
    pub ranks: String,
    /// The processors there.
    pub processors: String,
    /// The devices there, such as `gpu:0`.
    pub devices: Vec<String>,
}

/// How tasks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndOfTask {
    /// They returned an exit status.
    Exited,
    /// They died of a signal.
    Signaled,
    /// They asked through PMI that the job end.
    Aborted,
    /// Their program does not exist.
    NotFound,
    /// Their program could not be started.
    NotExecutable,
    /// They used more memory than they may.
    OutOfMemory,
    /// They were lost with their node or keeper.
    Lost,
    /// They ended, and how is not known.
    Unknown,
    /// They ended between `MPI_Init` and `MPI_Finalize`.
    Unfinalized,
    /// They were saved to an image, and ended for that.
    Saved,
    /// They could not be restored from their image.
    NotRestored,
    /// They could not be saved to an image, may be damaged by that, and were ended.
    Damaged,
}

/// What an administrator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// Parameters.
    Params,
    /// A class.
    Class,
    /// The users of a class.
    ClassUsers,
    /// Hours of the week.
    Hours,
    /// A queue.
    Queue,
    /// An allowance of processor time.
    Bank,
    /// A weight of a user or group.
    Weight,
    /// Which users may submit.
    Access,
    /// A counted resource.
    Resource,
    /// A set of nodes.
    NodeSet,
    /// Something that changes at times: it was set or removed, or its time has come.
    At,
    /// A device of a node.
    Device,
}

/// Which events a reader wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventQuery {
    /// Those behind this number; `None`: those that happen from now on.
    pub after: Option<u64>,
    /// Whether the answer may wait until there is one.
    pub wait: bool,
    /// Those of these jobs; none: of all.
    pub jobs: Vec<JobId>,
    /// Those of the jobs of this user, by name or number.
    pub user: Option<String>,
    /// Whether the reader is one of the instance's own: it does not keep an idle one from ending.
    pub is_own: bool,
}

impl EndOfTask {
    /// That of a status.
    #[must_use]
    pub const fn of(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Exited(_) => Self::Exited,
            TaskStatus::Signaled(_) => Self::Signaled,
            TaskStatus::Aborted(_) => Self::Aborted,
            TaskStatus::NotFound => Self::NotFound,
            TaskStatus::NotExecutable => Self::NotExecutable,
            TaskStatus::OutOfMemory => Self::OutOfMemory,
            TaskStatus::Lost => Self::Lost,
            TaskStatus::Unknown => Self::Unknown,
            TaskStatus::Unfinalized(_) => Self::Unfinalized,
            TaskStatus::Saved => Self::Saved,
            TaskStatus::NotRestored => Self::NotRestored,
            TaskStatus::Damaged => Self::Damaged,
        }
    }
}

/// Ranks as ranges, such as `0-3,7`; they are sorted for that.
#[must_use]
pub fn ranks_text(ranks: &mut [Rank]) -> String {
    ranks.sort_unstable();
    let (mut text, mut index) = (String::new(), 0);
    while let Some(&Rank(first)) = ranks.get(index) {
        let mut last = first;
        while let Some(&Rank(next)) = ranks.get(index)
            && next <= last.saturating_add(1)
        {
            last = next;
            index += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&match first == last {
            true => format!("{first}"),
            false => format!("{first}-{last}"),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Rank, ranks_text};

    #[test]
    fn ranks_are_listed_as_ranges() {
        let text = |ranks: &[u32]| {
            ranks_text(&mut ranks.iter().copied().map(Rank).collect::<alloc::vec::Vec<_>>())
        };
        assert_eq!(text(&[7, 0, 2, 1, 9, 8, 20]), "0-2,7-9,20");
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[5, 5]), "5");
        assert_eq!(text(&[u32::MAX, u32::MAX - 1]), "4294967294-4294967295");
    }
}
