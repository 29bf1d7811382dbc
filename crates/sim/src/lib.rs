//! The simulator: the second driver of the core, beside the live controller.
//!
//! [`run`] feeds [`Core::apply`](tutti_core::Core::apply) with the events of a workload (jobs come,
//! jobs are done) and hands on what it decides. Nothing is decided here: neither which job starts,
//! nor which take turns with which. What the driver adds is what processes would have done: it
//! works out when a job has got as much time as it needs, from the rows in whose slots the core has
//! it run.
//!
//! - in: any iterator of [`Job`]s, such as [`Workload`] makes of a trace or a model
//! - out: whatever [`Observer`]s make of it: [`Summary`] (means, percentiles, utilisation),
//!   [`InOrder`] (each job by itself, in the order of submission), [`picture`]s
//!
//! Memory grows with the jobs in the system, not with the trace. Same workload, same settings: same
//! results, to the bit.
#![forbid(unsafe_code)]

mod driver;
mod error;
mod feedback;
pub mod fuzz;
mod grouped;
mod hosts;
mod jobs;
mod machine;
mod moves;
mod multifactor;
mod observer;
mod order;
mod outside;
mod pace;
pub mod picture;
mod policy;
mod site;
mod sketch;
mod slots;
mod summary;
mod timed;
mod turns;
mod uneven;
mod workload;

pub use driver::{Checks, Order, Progress, Settings, run, run_with};
pub use error::SimError;
pub use feedback::{Feedback, Follows};
pub use hosts::{Host, HostsError, parse_hosts};
pub use jobs::{Finished, Job};
pub use machine::{Machine, MachineError};
pub use moves::{MoveCost, SwapSpace};
pub use multifactor::{Multifactor, run_multifactor};
pub use observer::{Observer, Passed, Start};
pub use order::InOrder;
pub use outside::Outside;
pub use policy::{POLICIES, set_policy};
pub use site::{NotAllowed, Site, SiteQueue};
pub use sketch::Sketch;
pub use summary::{Fairness, Figures, GroupBy, Measure, REASONS_MAX, Results, Summary, TAU_S};
pub use timed::{ChangeAtTimes, TimedChanges, timed_events};
pub use workload::{Deadlines, Estimates, Field, MapRule, MapTo, Missing, Workload};
