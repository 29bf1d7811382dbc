//! The core of Tutti: everything that decides, and nothing that acts.
//!
//! One function is the whole of its surface: [`Core::apply`] takes in one [`Event`] that happened at
//! a [`ClusterTime`](tutti_types::ClusterTime) and appends the [`Action`]s that must follow. Same
//! events, same times: same actions, bit for bit. There is no clock, file, thread, environment or
//! random number in here (`no_std` makes the compiler say so), no floating point, and no container
//! whose order depends on a hash. What is slow or random enters as an event.
//!
//! Map: [`event`] and [`action`] are the only way in and out, besides what [`view`] shows;
//! [`apply`] dispatches; [`state::record`] is a job and its states; [`matrix`] is the
//! Ousterhout matrix; [`share`] decides how long each row's slots are, [`slices`] how many;
//! [`frame`] how one cycle of slots follows another; [timetable](tutti_types::timetable) is what
//! one node is told of it; [`ledger`] counts which jobs ran how long, and [`bank`] charges for it;
//! [settings](tutti_types::settings) is what an administrator has set, and for which hours;
//! [`policy`] decides which jobs get into the matrix and where; `queue` in what order, and which
//! job may pass which; `policy::classes` which job is preempted for which, `policy::deadline` which
//! is promised to be done by when; `orders` is what owners and administrators change of jobs;
//! [`resources`] is what is counted; `preempt` is how a job gives its processors up and gets some
//! again;
//! [`levels`] is the tree of controllers of the policy `dhc`;
//! `nested` whether a job can start beside one that waits for it; [`forecast`] when jobs will start;
//! `node_events` is which nodes there are; `overrun` what jobs beyond their limits do, `by_use`
//! which class use gives, `after` which jobs start after others, [`begin`] which at a moment, `warning` which get signals before their limits;
//! [`outside`] is a policy that a program of the site decides;
//! [`timed`] is what changes at times that an administrator named;
//! [`allocation`] is what a job has beside tasks; [`check`] holds the invariants.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod access;
pub mod action;
mod after;
pub mod allocation;
pub mod apply;
pub mod arrays;
pub mod bank;
pub mod begin;
mod by_use;
pub mod check;
pub mod checkpoint;
pub mod devices;
mod due;
pub mod event;
mod failed_ranks;
pub mod forecast;
mod forget_class;
pub mod frame;
mod freed;
mod kept_memory;
pub mod ledger;
mod lending;
pub mod levels;
mod line;
mod local_moves;
mod longer_leases;
pub mod matrix;
mod memory_turns;
mod migrate;
mod nested;
pub mod network;
mod node_events;
mod node_loss;
mod orders;
pub mod outside;
mod overrun;
pub mod policy;
mod preempt;
mod publish;
mod queue;
mod queues;
mod reserve;
mod reserved_rows;
pub mod resources;
mod respawn;
mod roll_out;
pub mod share;
pub mod slices;
pub mod state;
pub mod steps;
mod swap;
mod termination;
pub mod timed;
mod vacate;
pub mod view;
mod warning;
mod weight;

pub use action::{Action, StepAction};
pub use apply::{Core, FormerCore};
pub use arrays::{ArrayEnds, ArrayView, ElementNumbers, ElementOrder, ElementState, NumberIndex};
pub use begin::Begin;
pub use by_use::check_rule_by_use;
pub use checkpoint::{CheckpointNews, CheckpointOrder, CheckpointRefusal, CheckpointView};
pub use devices::{DeviceView, Devices};
pub use event::{Event, SubmitOptions};
pub use forecast::{CutShort, Forecast, Foreseen, Unknown};
pub use forget_class::ClassStays;
pub use ledger::Moved;
pub use line::{InLine, Overridden};
pub use orders::{HeldBy, LimitStays};
pub use outside::{Home, Order, OrderRefusal, Request, RowChoice};
pub use policy::Expected;
pub use policy::{ShortestSlot, WaitReason, leaves_before, shortest_slot};
pub use resources::ResourceView;
pub use respawn::WaitingRanks;
pub use state::record::Part;
pub use state::record::Place;
pub use steps::StepView;
pub use swap::{SwapCourse, SwapView};
pub use timed::{DueChange, LastTime, Moment, TimedEntry, settings_after};
pub use view::{CellView, JobState, JobView, NodeView, PlacementView, RowView};
