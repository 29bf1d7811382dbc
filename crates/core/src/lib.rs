//! The core of Tutti: everything that decides, and nothing that acts.
//!
//! One function is the whole of its surface: [`Core::apply`] takes in one [`Event`] that happened at
//! a [`ClusterTime`](tutti_types::ClusterTime) and appends the [`Action`]s that must follow. Same events, same times: same
//! actions, bit for bit. There is no clock, file, thread, environment or random number in here
//! (`no_std` makes the compiler say so), no floating point, and no container whose order depends on
//! a hash. What is slow or random enters as an event.
//!
//! Map: [`event`] and [`action`] are the only way in and out, besides what [`view`] shows;
//! [`controller`] dispatches; [`record`] is a job and its states; [`matrix`] is the Ousterhout
//! matrix; [`share`] decides how long each row's slots are, [`slices`] how many; [`frame`] how one
//! cycle of slots follows another; [timetable](tutti_types::timetable) is what one node is told of it; [`ledger`] counts
//! who ran how long, and [`bank`] charges for it; [settings](tutti_types::settings) is what an administrator has set,
//! and for which hours; [`policy`] decides which jobs get into the matrix and where; `queue` in
//! what order, and who may pass whom; `by_class` who is set aside for whom, `deadline` who is
//! promised to be done by when; `orders` is what owners and administrators change of jobs;
//! [`resources`] is what is counted; `aside` is how a job gives its processors up and gets some
//! again;
//! `nested` whether a job can start beside one that waits for it; [`forecast`] when jobs will start;
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
pub mod controller;
mod deadline;
mod digest;
mod ending;
pub mod event;
pub mod forecast;
mod forget_class;
pub mod frame;
mod lease;
pub mod ledger;
mod line;
pub mod matrix;
mod migrate;
mod nested;
mod node_loss;
pub mod nodes;
mod ordered;
mod orders;
mod plan;
pub mod policy;
mod queue;
mod queues;
pub mod record;
mod reserve;
mod reserved_rows;
pub mod resources;
pub mod share;
pub mod slices;
pub mod table;
pub mod view;
mod weight;

pub use action::Action;
pub use aside::Place;
pub use controller::{Core, FormerCore};
pub use deadline::Expected;
pub use event::Event;
pub use forecast::{CutShort, Forecast, Foreseen, Unknown};
pub use forget_class::ClassStays;
pub use ledger::Moved;
pub use line::InLine;
pub use orders::HeldBy;
pub use policy::{ShortestSlot, WaitReason, shortest_slot};
pub use record::Part;
pub use resources::ResourceView;
pub use view::{CellView, JobState, JobView, NodeView, PlacementView, RowView};
