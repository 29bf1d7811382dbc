//! What the HTTP interface needs of an instance. The verb `tutti web` has it from the controller's
//! socket, with the rights of the user that started it.

use crate::submission::Submission;
use std::fmt;
use tutti_wire::code::Code;

/// An error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its code.
    pub code: Code,
    /// What happened, and what to do.
    pub text: String,
}

impl Failure {
    /// One of this code.
    pub fn new(code: Code, text: impl fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }
}

/// What an answer is, or why there is none.
pub type Answer<T> = Result<T, Failure>;

/// What is done to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is ended.
    Cancel {
        /// Whether without SIGTERM and grace.
        at_once: bool,
    },
    /// It gets no turns.
    Suspend,
    /// It gets turns again.
    Resume,
    /// It does not begin.
    Hold,
    /// It is in line again.
    Release,
    /// It gets this class.
    Class(String),
}

/// Which report is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportQuery {
    /// `user`, `group`, `class` or `queue`.
    pub by: String,
    /// Of jobs that ended at this time or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Of those that ended before.
    pub until_ms: Option<u64>,
}

/// Which use of processors is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// `interval`, `hour`, `day` or `node`.
    pub by: String,
    /// From this time on, in milliseconds since 1970; a day ago otherwise.
    pub since_ms: Option<u64>,
    /// Before this time.
    pub until_ms: Option<u64>,
    /// Of this node; of all otherwise.
    pub node: Option<String>,
}

/// Which ended jobs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Those of this user.
    pub user: Option<String>,
    /// Those that ended at this time or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Those that ended before.
    pub until_ms: Option<u64>,
    /// The latest of them, at most this number.
    pub last: usize,
}

/// Which output of a job is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputQuery {
    /// Of this rank; all otherwise.
    pub rank: Option<u32>,
    /// Standard error instead of standard output.
    pub error: bool,
    /// The last lines, at most this number; all otherwise.
    pub lines: Option<u64>,
}

/// An event as a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// Its number, by which a reader resumes.
    pub number: u64,
    /// The JSON, without a line end.
    pub json: String,
}

/// Some events, and how far they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLines {
    /// The events; there may be none.
    pub events: Vec<EventLine>,
    /// The number from which the next page goes on.
    pub until: u64,
    /// The number of the latest event.
    pub last: u64,
}

/// A place in the stream of events.
pub trait Events: Send {
    /// The next events. Those of [`Source::follow`] wait until there is one.
    ///
    /// # Errors
    /// If no instance answers, or those events are not kept.
    fn next(&mut self) -> Answer<EventLines>;
}

/// The output of a job, from a place on.
pub trait Output: Send {
    /// The next piece; nothing if there is none now.
    ///
    /// # Errors
    /// If it can't be read.
    fn next(&mut self) -> Answer<Option<Vec<u8>>>;

    /// Whether the job has ended, so that nothing more comes.
    ///
    /// # Errors
    /// If that can't be found out.
    fn has_ended(&mut self) -> Answer<bool>;
}

/// An instance, asked with the rights of one user. All calls may block.
pub trait Source: Send + Sync + 'static {
    /// Jobs, as `tutti ps --json` prints them; also those that ended, or only those of a user.
    ///
    /// # Errors
    /// If the instance does not answer. The same holds for all others.
    fn jobs(&self, ended: bool, user: Option<&str>) -> Answer<String>;
    /// One job, as an element of what `tutti show --json` prints.
    ///
    /// # Errors
    /// Also if there is no such job.
    fn job(&self, job: u64) -> Answer<String>;
    /// Nodes, as `tutti nodes --json` prints them.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn nodes(&self) -> Answer<String>;
    /// Nodes, jobs, and the latest turns of the rows.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn matrix(&self) -> Answer<String>;
    /// Parameters, as `tutti params --json` prints them.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn params(&self) -> Answer<String>;
    /// Ended jobs, as `tutti history --json` prints them.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn history(&self, query: &HistoryQuery) -> Answer<String>;
    /// Expected starts, as `tutti ps --start --json` prints them.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn starts(&self) -> Answer<String>;
    /// What `tutti metrics` prints.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn metrics(&self) -> Answer<String>;
    /// Events behind a number, without waiting.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn past(&self, after: u64) -> Answer<Box<dyn Events>>;
    /// Events behind a number, or from now on, with waiting. Its first page says from where.
    ///
    /// # Errors
    /// See [`Source::jobs`].
    fn follow(&self, after: Option<u64>) -> Answer<Box<dyn Events>>;
    /// The output of a job.
    ///
    /// # Errors
    /// Also if the job has none, or only its owner may see it.
    fn output(&self, job: u64, query: OutputQuery) -> Answer<Box<dyn Output>>;
    /// A report, as `tutti report --json` prints it.
    ///
    /// # Errors
    /// Also if there is no such report.
    fn report(&self, query: &ReportQuery) -> Answer<String>;
    /// What processors of nodes were used for, as `tutti history --usage --json` prints it.
    ///
    /// # Errors
    /// Also if there are no such rows.
    fn usage(&self, query: &UsageQuery) -> Answer<String>;
    /// Submits a job; its number.
    ///
    /// # Errors
    /// Also if it is declined.
    fn submit(&self, submission: &Submission) -> Answer<u64>;
    /// Does something to a job.
    ///
    /// # Errors
    /// Also if the user may not.
    fn act(&self, job: u64, action: Action) -> Answer<()>;
}
