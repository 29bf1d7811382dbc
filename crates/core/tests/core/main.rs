//! Tests of the core from outside: only through events, actions and views.
#![allow(clippy::unwrap_used, reason = "a test that can't go on may panic")]

mod after;
mod arrays;
mod banks;
mod begin;
mod by_use;
mod checkpoint;
mod classes;
mod deadlines;
mod devices;
mod dhc;
mod external_load;
mod failed_ranks;
mod forecasts;
mod freed;
mod in_time;
mod kept_memory;
mod lending;
mod limits;
mod migration;
mod moves;
mod nested;
mod node_loss;
mod order;
mod orders;
mod outside;
mod overrun;
mod packing;
mod periods;
mod placement;
mod queues;
mod requeue;
mod resources;
mod respawn;
mod roll_out;
mod rooms;
mod scenarios;
mod sharing;
mod steps;
mod swap;
mod timed;
mod vacate;
mod warning;
mod weights;
mod wishes;

use tutti_sim::fuzz as cluster;
