//! Policies: which jobs get into the matrix, where, for how long at a time, and at whose expense.
//!
//! A policy is composed of four parts, each replaceable: admission, placement, shares, preemption.
//! Each is a function over what is known; none of them changes anything. The one ready-made policy
//! here is [`gang`](GANG).

mod admission;
mod gang;
mod placement;

pub use gang::GANG;
pub use placement::{Lack, Lay};

use crate::action::Refusal;
use crate::class::Classes;
use crate::frame::Lengths;
use crate::ids::{JobId, RowId};
use crate::job::JobSpec;
use crate::matrix::Matrix;
use crate::nodes::Nodes;
use crate::params::Params;
use crate::record::Part;
use crate::share::Present;
use crate::time::Nanos;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The nodes.
    pub nodes: &'a Nodes,
    /// Who is where.
    pub matrix: &'a Matrix,
    /// The classes.
    pub classes: &'a Classes,
    /// The parameters.
    pub params: &'a Params,
}

/// A policy: its four parts, and its name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Its name.
    pub name: &'static str,
    /// Whether a job may be accepted, or why not and what would be.
    pub admission: fn(Machine<'_>, &JobSpec) -> Result<(), Refusal>,
    /// Which processors of a row (`None`: of a new row) a job gets, or what is lacking there.
    pub placement: Lay,
    /// How long each row's slot is.
    pub shares: fn(&Present, &Classes, Nanos) -> Lengths,
    /// Whether the job is seated now, in a row with others or at their expense, or waits.
    pub preemption: fn(Machine<'_>, &JobSpec, Lay) -> Decision,
}

/// What becomes of the job whose turn in the queue it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It starts.
    Start {
        /// In this row; `None`: in a new one.
        row: Option<RowId>,
        /// On these processors.
        parts: Vec<Part>,
    },
    /// It waits.
    Wait(WaitReason),
}

/// Why a queued job is not in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitReason {
    /// No row has enough processors free, and there are as many rows as may be.
    Rows {
        /// As many as may be.
        limit: u32,
    },
    /// The resident jobs have been promised too much of the memory that it asks for.
    Memory,
    /// The nodes that are up have less than it asks for, even with nothing else on them.
    Nodes,
    /// A job that was accepted before it waits too.
    Behind(JobId),
    /// A user suspended it before it began.
    Suspended,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { limit } => {
                write!(f, "all {limit} rows are in use and none has enough free processors")
            }
            Self::Memory => f.write_str("the resident jobs leave too little memory"),
            Self::Nodes => f.write_str("the nodes that are up are too few"),
            Self::Behind(job) => write!(f, "behind job {job}"),
            Self::Suspended => f.write_str("suspended before it began"),
        }
    }
}
