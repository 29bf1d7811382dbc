//! What `tutti show` and `tutti logs` learn of one job.
//!
//! [`JobDetails`] and the [`StepReport`]s of a job are also stored when it ends, behind its row in
//! the journal. Their fields, and the order of these, change only with the journal's form.

use crate::history::Ending;
use crate::launch::{LaunchSpec, Stdio};
use crate::limits::{SHOWN_COMMAND_BYTES_MAX, STATE_CHANGES_MAX};
use crate::report::JobReport;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::{JobId, OnBadExit, OnNodeLoss};

/// A job by its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowReport {
    /// What `tutti ps` shows of it.
    pub job: JobReport,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// When its latest start was, if it has started.
    pub started_ms: Option<u64>,
    /// When it ended, if it has.
    pub ended_ms: Option<u64>,
    /// How it ended, if it has.
    pub ending: Option<Ending>,
    /// What only its owner and root may see. `None` for other users, and of a job that an earlier
    /// release ran.
    pub details: Option<Box<JobDetails>>,
    /// `NAME=value` as it was submitted, where that was asked for. Not kept of a job that has
    /// ended.
    pub environment: Option<Vec<ByteBuf>>,
    /// Its further steps, lowest numbers first: those that have not ended, and the latest of the
    /// others. Only for its owner and root.
    pub steps: Vec<StepReport>,
    /// The machine on which its front end is, while it has one.
    pub front_end: Option<String>,
    /// How many processors it has at present: none while it waits, is preempted or suspended.
    pub processors_in_use: u32,
    /// The jobs that have a device in turns with it, by number.
    pub shares_devices_with: Vec<JobId>,
}

/// A further step of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// Its number.
    pub step: u32,
    /// What it is called.
    pub name: String,
    /// How many tasks.
    pub tasks: u32,
    /// `waiting`, `running`, `ending` or `ended`.
    pub state: String,
    /// How it ended, if it has.
    pub reason: String,
    /// The exit code, once it has ended.
    pub exit_code: Option<u8>,
    /// Where it runs: `node:processors`, one for each node.
    pub placement: Vec<String>,
    /// Milliseconds of processor time of its tasks that have ended.
    pub cpu_ms: u64,
    /// Milliseconds since its tasks were started, or from then to its end; `null` of one that has
    /// not begun, or never did.
    pub elapsed_ms: Option<u64>,
}

/// What a job was to run, what it asked for, where it was, and when its state changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetails {
    /// The program and its arguments, at most [`SHOWN_COMMAND_BYTES_MAX`] bytes of them.
    pub command: Vec<String>,
    /// How many arguments are left out behind those.
    pub command_left_out: u32,
    /// The length of the script, if one was submitted.
    pub script_bytes: Option<u64>,
    /// The directory in which its tasks start.
    pub directory: ByteBuf,
    /// Where input comes from and output goes.
    pub stdio: Stdio,
    /// What `%u` stands for in the names of its files.
    pub user_in_names: String,
    /// The most processes that a task may have at once.
    pub processes_max: Option<u64>,
    /// The nice value.
    pub nice: i32,
    /// What it asked for.
    pub asked: Asked,
    /// Its nodes, lowest ranks first; of an ended job those of its latest start.
    pub nodes: Vec<NodeShare>,
    /// How many nodes are left out behind those.
    pub nodes_left_out: u32,
    /// How often it was queued again: since a node was lost, or by request.
    pub requeues: u32,
    /// What it waits for of other jobs, such as `7:ok`; nothing once it waits for none.
    pub after: Vec<String>,
    /// Whether one of these is enough.
    pub after_one: bool,
    /// Its states, oldest first.
    pub states: Vec<StateChange>,
    /// How many changes of its state are left out before the latest [`STATE_CHANGES_MAX`].
    pub states_left_out: u32,
    /// Its queue, if any.
    pub queue: Option<String>,
    /// What it started with, in the word of [`JobReport::first`].
    pub first: String,
    /// How many slots it asked for.
    pub slots: u32,
    /// How it saves its state by itself, if it does.
    pub checkpoint: Option<CheckpointReport>,
}

/// How a job saves its state: by itself, or as an image of its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// The number of the signal that asks for it; 0: its processes are saved to an image.
    pub signal: u8,
    /// Whether only the shell of a batch script gets it.
    pub only_shell: bool,
    /// How long its tasks may take to end then, in milliseconds.
    pub grace_ms: u64,
    /// The exit code of a run that has saved its state and is not done, if it named one.
    pub exit_code: Option<u8>,
    /// How often it is asked to save its state and go on, in milliseconds; nothing: never.
    pub every_ms: Option<u64>,
    /// How many earlier runs were asked, and did not die of that.
    pub resumes: u32,
    /// What became of the latest request to save its state and end: `asked`, `saved`, `unanswered`,
    /// `forced`, `died`, `not-saved`, `not-restored` or `damaged`; nothing: there was none.
    pub last: Option<String>,
    /// Why its processes could not be saved or restored, when that was tried last.
    pub why: Option<String>,
}

/// What a job asked for, besides tasks, time and class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Processors for each task, if it named a number.
    pub processors_per_task: Option<u32>,
    /// Memory for each task, in bytes.
    pub memory_per_task_bytes: Option<u64>,
    /// Its deadline, counted from its acceptance, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// How long it may take to end after SIGTERM, in milliseconds.
    pub grace_ms: u64,
    /// How many nodes.
    pub nodes: Option<u32>,
    /// The only nodes that it may be on.
    pub only: Option<String>,
    /// Nodes that it may not be on.
    pub exclude: Option<String>,
    /// Whether it asked for as few tasks on each node as possible.
    pub spread: bool,
    /// Whether it asked for nodes without other jobs in its row.
    pub exclusive: bool,
    /// What an unsuccessful task means for the others.
    pub on_bad_exit: OnBadExit,
    /// What happens to it when a node is lost.
    pub on_node_loss: OnNodeLoss,
    /// Whether it is never queued again once it has run.
    pub no_requeue: bool,
}

/// A job's part on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// The name of the node.
    pub node: String,
    /// The processors there.
    pub processors: String,
    /// How many tasks are there; the nodes before have the lower ranks.
    pub tasks: u32,
    /// The devices there, such as `gpu:0`.
    pub devices: Vec<String>,
}

/// The beginning of a state of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// The state, in the words of [`JobReport::state`].
    pub state: String,
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The states that a job has had, as they are noted while it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateLog {
    changes: Vec<(&'static str, u64)>,
    left_out: u32,
}

impl StateLog {
    /// Notes a state, unless it is the latest one; the oldest make room. Whether it is another one.
    pub fn note(&mut self, state: &'static str, at_ms: u64) -> bool {
        if self.changes.last().is_some_and(|(latest, _)| *latest == state) {
            return false;
        }
        if self.changes.len() == STATE_CHANGES_MAX {
            self.changes.remove(0);
            self.left_out = self.left_out.saturating_add(1);
        }
        // Most jobs wait with one state for long, and there may be a hundred thousand of them.
        if self.changes.is_empty() {
            self.changes.reserve_exact(1);
        }
        self.changes.push((state, at_ms));
        true
    }

    /// Whether this is the latest state.
    #[must_use]
    pub fn is_latest(&self, state: &str) -> bool {
        self.changes.last().is_some_and(|(latest, _)| *latest == state)
    }

    /// The changes that are kept, and how many are left out before them.
    #[must_use]
    pub fn shown(&self) -> (Vec<StateChange>, u32) {
        let shown = |&(state, at_ms): &(&str, u64)| StateChange { state: state.into(), at_ms };
        (self.changes.iter().map(shown).collect(), self.left_out)
    }
}

/// The words of a command that are shown, and how many are left out.
#[must_use]
pub fn shown_command(launch: &LaunchSpec) -> (Vec<String>, u32) {
    let (mut bytes, mut words) = (0, Vec::new());
    for word in &launch.argv {
        let word = String::from_utf8_lossy(word).to_string();
        bytes += word.len() + 1;
        if bytes > SHOWN_COMMAND_BYTES_MAX && !words.is_empty() {
            break;
        }
        words.push(crate::launch::cut(word, SHOWN_COMMAND_BYTES_MAX));
    }
    let left_out = launch.argv.len() - words.len();
    (words, u32::try_from(left_out).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::StateLog;
    use crate::limits::STATE_CHANGES_MAX;

    #[test]
    fn only_changes_are_noted_and_the_oldest_make_room() {
        let mut log = StateLog::default();
        log.note("queued", 1);
        log.note("queued", 2);
        assert_eq!(log.shown().0.len(), 1);
        for at_ms in 0..STATE_CHANGES_MAX as u64 {
            log.note(if at_ms % 2 == 0 { "running" } else { "suspended" }, at_ms);
        }
        let (changes, left_out) = log.shown();
        assert_eq!((changes.len(), left_out), (STATE_CHANGES_MAX, 1));
        assert_eq!((changes[0].state.as_str(), changes[0].at_ms), ("running", 0));
    }
}
