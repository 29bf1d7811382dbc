//! Machines that are simulated, for daemons that are not: what the kernel would do for them. A
//! thread that is at such a machine ([`machine::at`]) finds it behind [`crate::platform`]; every
//! other thread finds the kernel.
//!
//! [`machine`] is a kernel with [`groups`] and [`process`]es and a [`clock`]; a [`stream`] is a
//! connection in memory; [`outside`] is the other half of [`crate::platform`]; what is drawn at
//! [`random`] comes from the seed.
#![allow(missing_docs, reason = "what stands for the kernel's is documented there")]

pub mod clock;
pub mod groups;
pub mod machine;
pub mod meeting;
pub mod outside;
pub mod process;
pub mod random;
pub mod stream;

use std::cell::Cell;
use std::fmt::Arguments;

thread_local! {
    static LOUD: Cell<bool> = const { Cell::new(false) };
}

/// Whether events of the daemons are to be printed.
pub fn set_loud(is_loud: bool) {
    LOUD.set(is_loud);
}

/// Says what happens.
#[expect(clippy::print_stdout, reason = "a test says what went wrong")]
pub fn say(now_ns: u64, text: Arguments<'_>) {
    let (s, us) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000 / 1000);
    // As tests do, so that it is shown when they fail.
    println!("{s:5}.{us:06} {text}");
}

/// Says what happens at no machine in particular.
pub fn remark(text: Arguments<'_>) {
    if LOUD.get() {
        say(machine::now(), text);
    }
}

/// Whether they are.
pub fn is_loud() -> bool {
    LOUD.get()
}
