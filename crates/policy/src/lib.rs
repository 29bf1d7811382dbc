//! A site's own policy: a program in any language that decides which jobs start where.
//!
//! The program is asked over its standard input, a line of JSON at a time, and answers each line
//! with one line on its standard output. What it may order, and what is refused, is the core's
//! ([`tutti_core::outside`]); here is what lies between the core and the program:
//!
//! - [`Session`]: what the program knows, what is new to it, and what of its answers becomes an
//!   event. It has no clock and no I/O, and is the same live and in simulations;
//! - [`protocol`]: the lines;
//! - [`Program`]: the process, its pipes, and the bounds on what it says;
//! - [`Worker`]: a thread that waits for the program, so that a daemon never does;
//! - [`Life`]: when it is started, and when again.
//!
//! A policy may have a part on each node, another process of such a program: its agent speaks with
//! it in a [`NodeSession`]. Messages between both go through agents and controller ([`Parts`]).
#![forbid(unsafe_code)]

mod bounds;
mod life;
mod limits;
mod node;
mod parts;
pub mod program;
pub mod protocol;
mod rest;
mod session;
#[cfg(test)]
mod tests;
mod worker;

pub use bounds::When;
pub use life::{Life, State};
pub use limits::Limits;
pub use node::{NodeAnswer, NodeSession, Out, parse_node_answer};
pub use parts::Parts;
pub use program::{Failure, Program, Start, start_of};
pub use protocol::{Answer, Greeting, Mode, Wrong};
pub use session::Session;
pub use worker::{Reply, Worker};
