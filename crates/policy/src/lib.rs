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
//! - [`Worker`]: a thread that waits for the program, so that a controller never does.
#![forbid(unsafe_code)]

pub mod program;
pub mod protocol;
mod session;
#[cfg(test)]
mod tests;
mod worker;

pub use program::{Failure, Program, Start};
pub use protocol::{Answer, Greeting, Mode, Wrong};
pub use session::Session;
pub use worker::{Reply, Worker};
