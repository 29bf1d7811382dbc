//! The crate from outside: clusters that are made, joined and attacked over 127.0.0.1.
#![allow(clippy::unwrap_used, reason = "a test that can't go on may panic")]

mod certificates;
mod files;
mod forger;
mod hostile;
mod join;
mod streams;
mod tokens;
mod world;
