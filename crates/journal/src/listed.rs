//! Jobs that have ended, as lists have them.
//!
//! A list of ten thousand jobs shows little of what is stored of each. So what it does not show is
//! passed over where it lies, and not copied.

use crate::entry::{Details, EndedJob};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use tutti_wire::launch::{InputTo, OpenMode};
use tutti_wire::show::{Asked, CheckpointReport, JobDetails, NodeShare, StepReport};

/// A job that has ended, as lists have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedJob {
    /// What is kept of it.
    pub job: EndedJob,
    /// Its nodes, lowest ranks first.
    pub nodes: Vec<NodeShare>,
    /// The latest of its further steps, lowest numbers first.
    pub steps: Vec<StepReport>,
    /// What it was to run, where that was asked for and is stored.
    pub details: Option<Box<JobDetails>>,
    /// How many bytes all that is stored of it has.
    pub stored_bytes: usize,
}

impl ListedJob {
    /// One of which all was read.
    pub(crate) fn whole(job: EndedJob, details: Option<Details>, stored_bytes: usize) -> Self {
        let (details, steps) = details.map(|it| (it.job, it.steps)).unzip();
        let nodes = details.as_ref().map_or_else(Vec::new, |details| details.nodes.clone());
        let (steps, details) = (steps.unwrap_or_default(), details.map(Box::new));
        Self { job, nodes, steps, details, stored_bytes }
    }
}

/// A stored [`JobDetails`], field by field, of which a list shows little.
#[derive(Deserialize)]
pub(crate) struct SeenDetails<'a> {
    #[serde(borrow)]
    _command: Passed<&'a str>,
    _command_left_out: u32,
    _script_bytes: Option<u64>,
    #[serde(borrow)]
    _directory: &'a [u8],
    #[serde(borrow)]
    _stdio: SeenStdio<'a>,
    #[serde(borrow)]
    _user_in_names: &'a str,
    _processes_max: Option<u64>,
    _nice: i32,
    asked: Asked,
    nodes: Vec<NodeShare>,
    _nodes_left_out: u32,
    _requeues: u32,
    #[serde(borrow)]
    _after: Passed<&'a str>,
    _after_one: bool,
    #[serde(borrow)]
    _states: Passed<(&'a str, u64)>,
    _states_left_out: u32,
    queue: Option<String>,
    first: String,
    slots: u32,
    _checkpoint: Option<CheckpointReport>,
}

/// A stored [`tutti_wire::launch::Stdio`].
#[derive(Deserialize)]
enum SeenStdio<'a> {
    FrontEnd {
        #[serde(rename = "input")]
        _input: InputTo,
    },
    Files {
        #[serde(borrow)]
        _input: Option<&'a [u8]>,
        #[serde(borrow)]
        _output: &'a [u8],
        #[serde(borrow)]
        _error: Option<&'a [u8]>,
        _mode: OpenMode,
    },
    Kept,
}

impl SeenDetails<'_> {
    /// The job that they are of.
    pub(crate) fn listed(
        self,
        mut job: EndedJob,
        steps: Vec<StepReport>,
        stored_bytes: usize,
    ) -> ListedJob {
        let report = &mut job.report;
        report.queue = self.queue;
        report.first = Some(self.first);
        report.slots = Some(self.slots);
        report.nodes_asked = self.asked.nodes;
        ListedJob { job, nodes: self.nodes, steps, details: None, stored_bytes }
    }
}

/// A sequence of which nothing is kept.
struct Passed<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Passed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Passing(PhantomData))
    }
}

struct Passing<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Passing<T> {
    type Value = Passed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Passed<T>, A::Error> {
        while all.next_element::<T>()?.is_some() {}
        Ok(Passed(PhantomData))
    }
}
