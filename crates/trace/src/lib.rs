//! Workload traces in and out, and models that make them: what a simulation is fed with.
//!
//! The format is the Standard Workload Format (SWF) of the Parallel Workloads Archive, one job a
//! line. Everything is a stream: a trace of any length is read, filtered, stretched and written
//! in the memory of one line. Nothing in here knows of the scheduler, the wire or the kernel.
//!
//! - in: [`open`] or [`Reader`] gives [`Job`]s, from plain or gzipped text, and a [`Header`]
//! - [`Clean`]: the filter that logs go through before runs are compared; gives [`CleanJob`]s
//! - [`Stretched`]: the load, changed by the times between arrivals
//! - [`Summary`]: offered load, means and shares of what passes
//! - out: [`Writer`]
//! - [`model`]: jobs from a seed, the same on every machine
//!
//! Any input gives jobs or a [`TraceError`] that names file, line and field; [`limits`] bounds what
//! is held of it.
//!
//! ```
//! # use tutti_trace::{Clean, ReadOptions, Reader, Summary};
//! let text = "; MaxProcs: 64\n1 0 -1 30 4 -1 -1 4 60 -1 1 1 1 -1 -1 -1 -1 -1\n";
//! let reader = Reader::new("example", text.as_bytes(), ReadOptions::default())?;
//! let machine = reader.header().machine_processors().unwrap_or(64);
//! let mut summary = Summary::default();
//! for job in Clean::new(reader, machine) {
//!     summary.add(&job?);
//! }
//! assert_eq!((summary.jobs(), summary.run_mean_s()), (1, 30.0));
//! # Ok::<(), tutti_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]

mod arrivals;
mod clean;
mod error;
mod fields;
mod header;
mod job;
pub mod limits;
pub mod model;
mod number;
mod reader;
mod source;
mod summary;
mod tally;
mod writer;

pub use arrivals::{Arrival, Stretch, StretchError, Stretched};
pub use clean::{Clean, CleanJob, LeftOut};
pub use error::{LineProblem, Tolerated, TraceError};
pub use header::{Directive, Header, Preemption};
pub use job::{FIELDS, Field, Job, Status};
pub use reader::{Order, ReadOptions, Reader, RolledJobs, Tolerance, open};
pub use summary::Summary;
pub use tally::Tally;
pub use writer::Writer;
