//! The policy `deadline`: jobs are accepted or declined by whether they can be done in time.
//!
//! This is the strategy of Jump-StarT (Gustafson 1996, sections 2.2 and 2.3.2). A job may name how
//! long it runs at most (its time limit) and by when it must be done (its deadline). It is accepted
//! if its processors have enough time in common until then that no other was promised; otherwise it
//! is declined, with the earliest deadline that would have been accepted. **Jobs accepted later
//! never make an accepted deadline slip**, as long as jobs keep their limits, nodes stay, and no
//! administrator changes the shares, the quantum or the policy, or suspends the job.
//!
//! - [`row_shares`]: each class with a share has a row, and so its part of the time; all others
//!   have one together. Everything else happens within one row, by the row's clock: how long its
//!   slots have lasted in all. [`rate`] says how much a row gets at least, and so what its clock
//!   will show at a deadline.
//! - [`accept`]: which processors a job gets, and whether there is time: [`cpu_groups`],
//!   [`select`], [`timeline`]. A job is promised the *latest* time that will do, so that what is
//!   early stays free for jobs that are in more of a hurry.
//! - [`dispatch`] and [`seat`]: which jobs run now. A job needn't wait for its promised time:
//!   whenever none with a better claim wants its processors it runs, and gives back as much of its
//!   promised time, the earliest first. So no processor idles that a job could use, jobs are mostly
//!   done long before they must be, and when one ends early all others get on sooner.
//! - [`forecast`]: when jobs are expected to be done, which is mostly long before they must be.
//! - [`update`]: promises from event to event. A job that lost promised time is at
//!   risk, and is said to be; it is promised time again as soon as there is enough.
//!
//! A job without a deadline, or without a promise, runs on what is free at the moment. A job that
//! is promised time and memory keeps both from its acceptance on; memory that is taken when it is
//! submitted counts as taken for ever.

mod accept;
mod check;
mod cpu_groups;
mod dispatch;
mod forecast;
mod plans;
mod promise;
mod rate;
mod row_shares;
mod seat;
mod select;
mod timeline;
mod update;

pub(crate) use check::check;
pub use forecast::Expected;
pub(crate) use plans::Plans;
use row_shares::{layout, shortest};

use super::{GANG, Policy, Preemption, Shares};

/// The policy `deadline`: jobs are seated by what they were promised, in rows by class.
///
/// It shares with `gang` which requests can be met at all, and the placement of jobs without a
/// promise.
pub const DEADLINE: Policy = Policy {
    name: "deadline",
    shares: Shares { rows: |_| 1, layout, shortest },
    preemption: Preemption::ByDeadline,
    ..GANG
};
