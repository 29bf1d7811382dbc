//! What a keeper and the PMIx server of a job tell each other.
//!
//! The server is a process of the job's user that the keeper starts, one for each step and node. It
//! loads a library that the user chose, and its user can trace it. So the keeper takes nothing
//! that it says as given: every message goes through a [`Session`], which bounds and checks it.
//! Its first descriptor above the standard streams is the connection with its keeper, on which the
//! greeting and one [`ToPmix::Order`] come first.

mod ask;
mod far;
mod hub;

pub use ask::{
    ALL_RANKS, ASKS_MAX, Answer, Ask, Found, MODEX_BYTES_MAX, Meeting, Members, Refused, Value,
};
pub use far::{Far, Peer, Piece, Said};
pub use hub::{Hub, NAMES_PER_JOB_MAX, NAMES_USER_BYTES_MAX, Out, Part, WAITING_BYTES_MAX};

use crate::launch::Credentials;
use crate::limits::TASK_DETAIL_BYTES_MAX;
use crate::pmi::TaskState;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tutti_types::NodeId;

/// The number of the descriptor at which a PMIx server finds its keeper.
pub const PMIX_FD: i32 = 3;

/// Maximum length of a message of either side. What a fence carries comes in parts.
pub const PMIX_FRAME_BYTES_MAX: usize = 256 << 10;

/// Maximum length of a part of what a fence carries. The last part may be shorter.
pub const FENCE_PART_BYTES: usize = 48 << 10;

/// Maximum number of failed ranks in a message.
pub const FAILED_AT_ONCE: usize = 4096;

/// Maximum number of variables of a task.
pub const VARIABLES_MAX: usize = 64;

/// Maximum length of the variables of a task together.
pub const TASK_VARIABLES_BYTES_MAX: usize = 16 << 10;

/// Maximum length of a variable, with its name.
pub const VARIABLE_BYTES_MAX: usize = 4 << 10;

/// How the names of a task's variables begin.
const PREFIXES: [&[u8]; 2] = [b"PMIX_", b"OMPI_"];

/// Length of the part of a name space that can't be guessed, in hexadecimal digits: 128 bits.
pub const SPACE_DIGITS: usize = 32;

/// Whether the text is a part of a name space that can't be guessed.
#[must_use]
pub fn is_space(text: &[u8]) -> bool {
    text.len() == SPACE_DIGITS && text.iter().all(u8::is_ascii_hexdigit)
}

/// A node of the step, as its PMIx servers know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmixNode {
    /// Its number in the cluster.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// How many of the tasks it has. Lower ranks are on the nodes before.
    pub tasks: u32,
}

/// A step, as PMIx servers know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmixSpace {
    /// Its name space: the same on all of its nodes.
    pub name: String,
    /// All of its nodes, in the order of their ranks.
    pub nodes: Vec<PmixNode>,
    /// The place of this node among them.
    pub node: u32,
    /// How many tasks the job can have at a time.
    pub universe: u32,
    /// How many tasks run each of its programs, in the order of their ranks.
    pub programs: Vec<u32>,
    /// The name space and the rank of the task that has spawned it.
    pub parent: Option<(String, u32)>,
}

/// What a PMIx server is to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmixOrder {
    /// The step.
    pub space: PmixSpace,
    /// Where the library may be, the first choice first: paths, or names that the dynamic linker
    /// finds.
    pub libraries: Vec<ByteBuf>,
    /// A directory of the user for the server's files.
    pub directory: ByteBuf,
    /// The user that it is to become, as soon as it can be traced by no process of that user;
    /// `None`: it is that user's already.
    pub identity: Option<Credentials>,
    /// `NAME=value`: variables of the user that the library reads.
    pub environment: Vec<ByteBuf>,
    /// The memory that it may have, bytes.
    pub memory_bytes: u64,
}

/// From the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPmix {
    /// The first message.
    Order(PmixOrder),
    /// A part of what all nodes said in the oldest fence that waits.
    Fenced {
        /// Whether it is the last part, which ends the fence.
        is_last: bool,
        /// The part.
        data: ByteBuf,
    },
    /// Another step of the job is served on this node.
    Space(PmixSpace),
    /// It is not any more.
    Gone {
        /// Its name space.
        space: String,
    },
    /// The answer to a request.
    Answer {
        /// The number of the request.
        number: u32,
        /// The answer.
        answer: Answer,
    },
    /// Asks for what a task of this node has said of itself.
    Fetch {
        /// The number of this request.
        number: u32,
        /// The rank.
        rank: u32,
    },
    /// Ranks have failed, and the tasks of this node are to know.
    RanksFailed {
        /// Which; [`FAILED_AT_ONCE`] at most.
        ranks: Vec<u32>,
    },
}

/// From the PMIx server. A task is named by its place among those of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromPmix {
    /// What a task must find in its environment. Once for each task, in their order.
    Environment {
        /// `NAME=value`.
        variables: Vec<ByteBuf>,
    },
    /// Tasks may begin: all of them have their environments.
    Ready,
    /// No tasks can be served.
    Failed {
        /// Why.
        reason: String,
    },
    /// A task has begun MPI.
    Connected {
        /// Which.
        task: u32,
    },
    /// A task has said that it is done.
    Finalized {
        /// Which.
        task: u32,
    },
    /// A task wants the job ended.
    Abort {
        /// Which.
        task: u32,
        /// The status that it wants for the job.
        code: i32,
        /// Why; may be empty.
        message: String,
    },
    /// A part of what this node's tasks say in a fence of all tasks of a step on several nodes.
    Fence {
        /// Whether it is the last part. Then the answer is waited for before the next fence.
        is_last: bool,
        /// The part: of full length unless it is the last.
        data: ByteBuf,
    },
    /// A task asks for something beyond its own step.
    Ask {
        /// The number of the request; no other one that waits has it.
        number: u32,
        /// Which task.
        task: u32,
        /// What it asks for.
        ask: Ask,
    },
    /// The answer to [`ToPmix::Fetch`].
    Fetched {
        /// The number of the request.
        number: u32,
        /// What the task has said of itself, if anything is known.
        data: Option<ByteBuf>,
    },
}

/// What a valid message of the PMIx server asks its keeper to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// Start the tasks.
    Ready,
    /// End the step: there is no service.
    Failed(String),
    /// End the job, since a task asks for it.
    Abort {
        /// Which.
        task: usize,
        /// The status that it wants.
        code: i32,
        /// Why, in one line.
        message: String,
    },
    /// Keep a part for the other nodes.
    FencePart {
        /// Whether this node has said all.
        is_last: bool,
        /// The part.
        data: ByteBuf,
    },
    /// Answer a request.
    Ask {
        /// Its number.
        number: u32,
        /// Which task asks.
        task: usize,
        /// What it asks for.
        ask: Ask,
    },
    /// Pass on what a task has said of itself.
    Fetched {
        /// The number of the request.
        number: u32,
        /// What it has said.
        data: Option<ByteBuf>,
    },
}

/// Why a message is invalid. The job is ended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Not in this order.
    #[error("it sent a message out of order")]
    Order,
    /// There is no such task.
    #[error("it named a task that is not on this node")]
    Task,
    /// A variable that no PMIx server sets, or too many or too long ones.
    #[error("it sent an invalid environment")]
    Environment,
    /// A part of a fence of the wrong length.
    #[error("it sent an invalid part of a fence")]
    Part,
    /// A request that is too large, or one too many.
    #[error("it sent an invalid request")]
    Ask,
}

/// What a keeper knows of a PMIx server. Written as it is for a keeper that takes another's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    states: Vec<TaskState>,
    environment: Vec<Vec<ByteBuf>>,
    is_ready: bool,
    /// Whether the step has other nodes.
    is_spread: bool,
    /// Whether a fence waits for the other nodes.
    is_fencing: bool,
    /// Requests that wait for answers.
    asks: BTreeSet<u32>,
    /// The ranks of the step that have failed, as far as the others are to know.
    failed: BTreeSet<u32>,
}

impl Session {
    /// That of a server which has said nothing.
    #[must_use]
    pub fn new(tasks: usize, is_spread: bool) -> Self {
        Self {
            states: vec![TaskState::Silent; tasks],
            environment: Vec::new(),
            is_ready: false,
            is_spread,
            is_fencing: false,
            asks: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Ranks have failed. Those that were not known.
    pub fn fail(&mut self, ranks: impl Iterator<Item = u32>) -> Vec<u32> {
        ranks.filter(|rank| self.failed.insert(*rank)).collect()
    }

    /// The ranks that have failed.
    #[must_use]
    pub fn failed(&self) -> Vec<u32> {
        self.failed.iter().copied().collect()
    }

    /// Whether tasks may begin.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether a fence waits for the other nodes.
    #[must_use]
    pub const fn is_fencing(&self) -> bool {
        self.is_fencing
    }

    /// The variables of a task: none before the server is ready.
    #[must_use]
    pub fn environment(&self, task: usize) -> &[ByteBuf] {
        self.environment.get(task).map_or(&[], Vec::as_slice)
    }

    /// How far a task is.
    #[must_use]
    pub fn state(&self, task: usize) -> TaskState {
        self.states.get(task).copied().unwrap_or_default()
    }

    /// The other nodes have answered: the next fence may come.
    pub const fn end_fence(&mut self) {
        self.is_fencing = false;
    }

    /// A request is answered: its number may come again. Whether it has waited.
    pub fn end_ask(&mut self, number: u32) -> bool {
        self.asks.remove(&number)
    }

    /// The requests that wait for answers.
    pub fn asks(&self) -> impl ExactSizeIterator<Item = u32> {
        self.asks.iter().copied()
    }

    /// Takes in a message of the server.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn hear(&mut self, message: FromPmix) -> Result<Heard, Invalid> {
        match message {
            FromPmix::Environment { variables } => self.take_environment(variables),
            FromPmix::Ready => {
                if self.is_ready || self.environment.len() != self.states.len() {
                    return Err(Invalid::Order);
                }
                self.is_ready = true;
                Ok(Heard::Ready)
            }
            FromPmix::Failed { reason } => Ok(Heard::Failed(one_line(&reason))),
            FromPmix::Connected { task } => self.set(task, TaskState::Begun),
            FromPmix::Finalized { task } => self.set(task, TaskState::Finalized),
            FromPmix::Abort { task, code, message } => {
                let task = self.place(task)?;
                Ok(Heard::Abort { task, code, message: one_line(&message) })
            }
            FromPmix::Fence { is_last, data } => {
                if !self.is_ready || !self.is_spread || self.is_fencing {
                    return Err(Invalid::Order);
                }
                if data.len() > FENCE_PART_BYTES || (data.len() < FENCE_PART_BYTES && !is_last) {
                    return Err(Invalid::Part);
                }
                self.is_fencing = is_last;
                Ok(Heard::FencePart { is_last, data })
            }
            FromPmix::Ask { number, task, ask } => {
                let task = self.place(task)?;
                let is_valid = self.asks.len() < ASKS_MAX && ask.is_within_limits();
                if !is_valid || !self.asks.insert(number) {
                    return Err(Invalid::Ask);
                }
                Ok(Heard::Ask { number, task, ask })
            }
            FromPmix::Fetched { number, data } => {
                if !self.is_ready {
                    return Err(Invalid::Order);
                }
                if data.as_ref().is_some_and(|data| data.len() > MODEX_BYTES_MAX) {
                    return Err(Invalid::Ask);
                }
                Ok(Heard::Fetched { number, data })
            }
        }
    }

    fn take_environment(&mut self, variables: Vec<ByteBuf>) -> Result<Heard, Invalid> {
        if self.is_ready || self.environment.len() == self.states.len() {
            return Err(Invalid::Order);
        }
        let bytes: usize = variables.iter().map(|it| it.len()).sum();
        if variables.len() > VARIABLES_MAX
            || bytes > TASK_VARIABLES_BYTES_MAX
            || !variables.iter().all(|it| is_variable(it))
        {
            return Err(Invalid::Environment);
        }
        self.environment.push(variables);
        Ok(Heard::Nothing)
    }

    fn set(&mut self, task: u32, state: TaskState) -> Result<Heard, Invalid> {
        let place = self.place(task)?;
        self.states[place] = state;
        Ok(Heard::Nothing)
    }

    fn place(&self, task: u32) -> Result<usize, Invalid> {
        let place = usize::try_from(task).ok().filter(|place| *place < self.states.len());
        match place {
            None => Err(Invalid::Task),
            Some(_) if !self.is_ready => Err(Invalid::Order),
            Some(place) => Ok(place),
        }
    }
}

fn one_line(text: &str) -> String {
    let text = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    crate::launch::cut(text.collect(), TASK_DETAIL_BYTES_MAX)
}

/// Whether a task may get this variable of its PMIx server.
fn is_variable(variable: &[u8]) -> bool {
    let Some(end) = variable.iter().position(|byte| *byte == b'=') else { return false };
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    variable.len() <= VARIABLE_BYTES_MAX
        && PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
        && variable[..end].iter().all(is_of_name)
        && !variable.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[&str]) -> FromPmix {
        let variables = variables.iter().map(|it| ByteBuf::from(it.as_bytes())).collect();
        FromPmix::Environment { variables }
    }

    fn ready(tasks: usize, is_spread: bool) -> Session {
        let mut session = Session::new(tasks, is_spread);
        for _ in 0..tasks {
            assert_eq!(session.hear(environment(&["PMIX_RANK=0"])), Ok(Heard::Nothing));
        }
        assert_eq!(session.hear(FromPmix::Ready), Ok(Heard::Ready));
        session
    }

    #[test]
    fn tasks_begin_only_when_each_has_its_environment() {
        let mut session = Session::new(2, false);
        assert_eq!(session.hear(FromPmix::Ready), Err(Invalid::Order));
        assert_eq!(session.hear(FromPmix::Connected { task: 0 }), Err(Invalid::Order));
        assert_eq!(session.hear(environment(&["PMIX_RANK=0"])), Ok(Heard::Nothing));
        assert_eq!(session.hear(FromPmix::Ready), Err(Invalid::Order));
        assert_eq!(session.hear(environment(&["PMIX_RANK=1"])), Ok(Heard::Nothing));
        assert_eq!(session.hear(environment(&["PMIX_RANK=2"])), Err(Invalid::Order));
        assert_eq!(session.hear(FromPmix::Ready), Ok(Heard::Ready));
        assert_eq!(session.hear(FromPmix::Ready), Err(Invalid::Order));
        assert_eq!(session.environment(1), [ByteBuf::from(b"PMIX_RANK=1")]);
        assert!(session.environment(2).is_empty());
    }

    #[test]
    fn variables_of_other_names_are_invalid() {
        for bad in ["LD_PRELOAD=x", "PMIX_", "PMIX_A B=1", "=", "", "PMIX_A=\0"] {
            let mut session = Session::new(1, false);
            assert_eq!(session.hear(environment(&[bad])), Err(Invalid::Environment), "{bad}");
        }
        let long = alloc::format!("PMIX_A={}", "x".repeat(VARIABLE_BYTES_MAX));
        assert_eq!(Session::new(1, false).hear(environment(&[&long])), Err(Invalid::Environment));
        let many = vec!["PMIX_A=1"; VARIABLES_MAX + 1];
        assert_eq!(Session::new(1, false).hear(environment(&many)), Err(Invalid::Environment));
    }

    #[test]
    fn tasks_of_other_nodes_are_invalid() {
        let mut session = ready(2, false);
        assert_eq!(session.hear(FromPmix::Connected { task: 1 }), Ok(Heard::Nothing));
        assert_eq!((session.state(0), session.state(1)), (TaskState::Silent, TaskState::Begun));
        assert_eq!(session.hear(FromPmix::Finalized { task: 2 }), Err(Invalid::Task));
        let abort = |task| FromPmix::Abort { task, code: 7, message: "a\nb".into() };
        assert_eq!(session.hear(abort(u32::MAX)), Err(Invalid::Task));
        let Ok(Heard::Abort { task: 1, code: 7, message }) = session.hear(abort(1)) else {
            panic!("an abort of a task is valid");
        };
        assert!(!message.contains('\n'), "{message:?}");
    }

    #[test]
    fn one_fence_waits_at_a_time_and_only_where_there_are_other_nodes() {
        let part =
            |bytes, is_last| FromPmix::Fence { is_last, data: ByteBuf::from(vec![7; bytes]) };
        assert_eq!(ready(1, false).hear(part(1, true)), Err(Invalid::Order));
        let mut session = ready(1, true);
        assert_eq!(session.hear(part(1, false)), Err(Invalid::Part));
        assert_eq!(session.hear(part(FENCE_PART_BYTES + 1, true)), Err(Invalid::Part));
        assert!(session.hear(part(FENCE_PART_BYTES, false)).is_ok());
        assert!(session.hear(part(0, true)).is_ok());
        assert_eq!(session.hear(part(0, true)), Err(Invalid::Order));
        session.end_fence();
        assert!(session.hear(part(3, true)).is_ok());
    }

    #[test]
    fn a_space_has_128_bits() {
        assert!(is_space(b"0123456789abcdef0123456789abcdef"));
        assert!(!is_space(b"0123456789abcdef"));
        assert!(!is_space(b"0123456789abcdef0123456789abcde;"));
    }
}
