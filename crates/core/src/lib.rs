//! The core of Tutti: everything that decides, and nothing that acts.
//!
//! One function is the whole of its surface: [`Core::apply`] takes in one [`Event`] that happened at
//! a [`ClusterTime`] and appends the [`Action`]s that must follow. Same events, same times: same
//! actions, bit for bit. There is no clock, file, thread, environment or random number in here
//! (`no_std` makes the compiler say so), no floating point, and no container whose order depends on
//! a hash. What is slow or random enters as an event.
//!
//! Map: [`event`] and [`action`] are the only way in and out, besides what [`view`] shows;
//! [`controller`] dispatches; [`record`] is a job and its states; [`matrix`] is the Ousterhout
//! matrix; [`share`] decides how long each row's slots are, [`slices`] how many; [`frame`] how one
//! cycle of slots follows another; [`timetable`] is what one node is told of it; [`ledger`] counts
//! who ran how long, and [`bank`] charges for it; [`settings`] is what an administrator has set,
//! and for which hours; [`policy`] decides which jobs get into the matrix and where; `queue` in
//! what order, and who may pass whom; `by_class` who is set aside for whom, `deadline` who is
//! promised to be done by when; `aside` is how a job gives its processors up and gets some again;
//! `nested` whether a job can start beside one that waits for it;
//! `attendance` is which nodes there are; [`check`] holds the invariants.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod access;
pub mod action;
mod aside;
mod attendance;
pub mod bank;
mod by_class;
pub mod check;
pub mod class;
pub mod controller;
mod counted;
mod deadline;
mod digest;
mod ending;
pub mod event;
pub mod figures;
mod forget_class;
pub mod frame;
pub mod ids;
pub mod job;
mod lease;
pub mod ledger;
pub mod limits;
pub mod matrix;
mod migrate;
mod nested;
mod node_loss;
pub mod nodes;
mod ordered;
pub mod param;
pub mod params;
pub mod period;
mod plan;
pub mod policy;
mod queue;
pub mod record;
mod reserve;
pub mod settings;
pub mod share;
pub mod slices;
pub mod table;
pub mod time;
pub mod timetable;
pub mod view;
mod wish;

pub use access::{Access, Grantee, Origin};
pub use action::{Action, Refusal, TaskPlacement};
pub use aside::Place;
pub use bank::{Balance, BankAccount, ProcessorTime};
pub use class::{ClassError, ClassSpec, Classes, default_classes};
pub use controller::Core;
pub use counted::Counted;
pub use deadline::Expected;
pub use event::Event;
pub use figures::{Figures, LoadAverages, Weights};
pub use forget_class::ClassStays;
pub use ids::{
    CircuitName, ClassName, GroupId, JobId, LaunchId, NodeId, NodeSetName, ProcessorSet, Rank,
    RequestId, RowId, UserId,
};
pub use job::{
    CircuitSpec, CircuitWish, ControlMethod, EndReason, JobSpec, NodeSpec, OnBadExit, Outcome,
    TaskStatus,
};
pub use ledger::Moved;
pub use param::{Param, ParamError, ParamKind};
pub use params::{ClockSource, Discipline, Orphans, Params, Traversal};
pub use period::{Calendar, Period, PeriodError, parse_week};
pub use policy::{Packing, Placement, WaitReason};
pub use record::Part;
pub use settings::{Overrides, Settings, SettingsError, ShortestSlot};
pub use time::{ClusterTime, Nanos};
pub use timetable::{Candidate, IfAbsent, Position, Slot, Timetable};
pub use view::{CellView, JobState, JobView, NodeView, PlacementView, RowView};
pub use wish::{NodeWish, OnNodeLoss, WishRefusal};
