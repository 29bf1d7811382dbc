//! The words of the field, as types: what jobs, nodes, classes, parameters, times and timetables are, and nothing that
//! decides about them. All parts of Tutti speak of them in these types: the core, messages, daemons and verbs.
//!
//! - [`ids`]: numbers and names of jobs, nodes, users; sets of processors. [`time`]: lengths and cluster time
//! - [`job`]: what is asked for, and how it ended; [`after`]: jobs that start after others;
//!   [`constraints`]: wishes about nodes;
//!   [`refusal`]: why a request was refused
//! - [`mod@array`]: indices of job arrays
//! - [`class`], [`params`], [`param`]: rules of classes and parameters, each a table of names, ranges and defaults;
//!   [`period`]: hours of the week; [`settings`]: all of that together; [`timed`]: changes at times; [`placing`]: packing and placement
//! - [`timetable`]: what a node's switch thread follows
//! - [`access`], [`account`]: which users may submit, and how much processor time is theirs;
//!   [`node_performance`]: what nodes can do
//! - [`policy`]: the program of a site's own policy
//! - [`resource`]: what is counted and admitted by number, such as licences; [`device`]: those of
//!   one node
//! - [`limits`]: the most of everything; [`counted`]: numbers in messages; [`digest`]: one number
//!   for many bytes
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

pub mod access;
pub mod account;
pub mod after;
pub mod array;
pub mod class;
pub mod constraints;
pub mod counted;
pub mod device;
pub mod digest;
pub mod ids;
pub mod job;
pub mod limits;
pub mod node_performance;
pub mod param;
pub mod params;
pub mod period;
pub mod placing;
pub mod policy;
pub mod queue;
pub mod refusal;
pub mod resource;
pub mod settings;
pub mod time;
pub mod timed;
pub mod timetable;

pub use access::{Access, Grantee, Origin};
pub use account::{Balance, BankAccount, BankPeriod, ProcessorTime, Renewal};
pub use after::{After, AfterJobs, AfterWhat};
pub use array::{ArraySpec, IndexRange, Indices, IndicesError, Positions};
pub use class::{AfterUse, AfterUseError, ClassError, ClassSpec, Classes, default_classes};
pub use constraints::{NoRespawn, NodeWish, OnNodeLoss, WishRefusal};
pub use counted::Counted;
pub use device::{Device, DeviceError, DeviceId, Maker};
pub use ids::{
    ClassName, FeatureName, GroupId, JobId, LaunchId, NodeId, NodeSetName, ProcessorSet, QueueName,
    Rank, RequestId, RowId, StepId, StepKey, UserId,
};
pub use job::{
    Checkpoint, ControlMethod, EndReason, FirstStep, JobSpec, NodeSpec, OnBadExit, Outcome,
    SharedImage, StepRefusal, StepSpec, TaskStatus, Warning,
};
pub use node_performance::{Figures, LoadAverages, NetworkFigures, Weights};
pub use param::{Param, ParamError, ParamKind};
pub use params::{ClockSource, Discipline, Orphans, Params, Traversal};
pub use period::{Calendar, Period, PeriodError, parse_week};
pub use placing::{Packing, Placement};
pub use policy::{PolicyArgs, PolicyArgsError, PolicyProgram, check_policy_args};
pub use queue::{
    Allowed, QueueError, QueueLimit, QueueLimits, QueueRefusal, QueueScope, QueueSpec, Tally,
};
pub use refusal::{Refusal, TaskPlacement};
pub use resource::{
    Amount, DeviceWish, Grant, Per, ResourceError, ResourceName, ResourceSpec, ResourceWish,
};
pub use settings::{Overrides, Settings, SettingsError};
pub use time::{ClusterTime, Nanos};
pub use timed::{NamedJobs, NamedNodes, TimedChange, When, WhenError};
pub use timetable::{Candidate, ClassPart, IfAbsent, Position, Slot, Timetable};
