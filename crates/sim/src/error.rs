//! Why a simulation can't go on.

use crate::site::NotAllowed;
use tutti_core::check::Violation;
use tutti_types::{ClusterTime, Refusal};

/// Why a simulation can't go on. `E` is the error of the workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError<E> {
    /// The workload can't be read any further.
    #[error(transparent)]
    Workload(E),
    /// The core declines a job.
    #[error("job {number} (line {line}) is declined: {refusal}")]
    Declined {
        /// The job's number in its workload.
        number: u64,
        /// Its line there; 0 if it comes from a model.
        line: u64,
        /// Why.
        refusal: Refusal,
    },
    /// A job may not use its queue or its class.
    #[error("job {number} (line {line}) is declined: {why}")]
    NotAllowed {
        /// The job's number in its workload.
        number: u64,
        /// Its line there; 0 if it comes from a model.
        line: u64,
        /// Why.
        why: NotAllowed,
    },
    /// A job waits for one that was not simulated.
    #[error(
        "job {number} (line {line}) is to come after job {preceding}, which is not above it among the \
         jobs that are simulated; correct field 17"
    )]
    Preceding {
        /// The job's number in its workload.
        number: u64,
        /// Its line there; 0 if it comes from a model.
        line: u64,
        /// The number that it names.
        preceding: u64,
    },
    /// Nothing happens any more, and jobs are left: a fault of the core or of this driver.
    #[error(
        "{left} jobs are left and nothing is due any more; under --policy ./PROGRAM, the program has \
         not started them, otherwise please report this"
    )]
    Stuck {
        /// How many.
        left: usize,
    },
    /// The policy outside gives no answer.
    #[error("the policy program failed: {0}")]
    Outside(String),
    /// An invariant of the core does not hold: a fault of the core.
    #[error("after {:.3} s the core breaks a rule of its own, {violation}; please report this", at.0 as f64 / 1e9)]
    Broken {
        /// When.
        at: ClusterTime,
        /// Which, and how.
        violation: Violation,
    },
    /// What comes out can't be written.
    #[error("cannot write the results")]
    Output(#[from] std::io::Error),
}
