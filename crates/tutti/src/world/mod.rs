//! A simulated world for the daemons: controller, agents with their tree and switch threads, and keepers of
//! several machines in one thread, as they are, over a network, disks, clocks and processes that are not.
//! All that happens comes from one seed, so that a world that failed happens again as it did.
//!
//! What the daemons have from outside comes through [`outside`] (and `crate::outside`); each does a round when
//! [`engine`] says so. [`script`] says what users and misfortune do, [`acts`] does it, [`checks`] says what must
//! hold. [`machine`] is a kernel with [`groups`] and [`process`]es, [`network`] and [`disk`] are what they are
//! called, a [`stream`] is a connection, [`ears`] hear who has something to do, and [`users`] speak with the
//! controller, [`front`] with keepers.

mod acts;
mod checks;
mod clock;
mod disk;
mod ears;
mod engine;
mod front;
mod groups;
mod lapses;
mod launches;
mod machine;
mod network;
pub(crate) mod outside;
mod process;
mod random;
mod run;
mod script;
mod seat;
pub(crate) mod stream;
mod users;

use std::cell::Cell;
use std::fmt::Arguments;

thread_local! {
    static LOUD: Cell<bool> = const { Cell::new(false) };
}

/// Whether lines of the log are to be shown, in a simulated world.
fn set_loud(is_loud: bool) {
    LOUD.set(is_loud);
}

/// Says what happens.
#[expect(clippy::print_stdout, reason = "a test says what went wrong")]
fn say(now_ns: u64, text: Arguments<'_>) {
    let (s, us) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000 / 1000);
    // As tests do, so that it is shown when they fail.
    println!("{s:5}.{us:06} {text}");
}

/// Says what happens at no machine in particular.
fn remark(text: Arguments<'_>) {
    if LOUD.get() {
        say(machine::now(), text);
    }
}

/// A daemon of a simulated world has said something; false if it is none, and it must go to the log.
pub(crate) fn has_said(text: Arguments<'_>) -> bool {
    let Some(here) = machine::here() else { return false };
    if LOUD.get() {
        say(machine::now(), format_args!("n{here}: {text}"));
    }
    true
}
