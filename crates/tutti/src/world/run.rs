//! Living through simulated worlds: one seed, many, and as little as still fails of one that did.

use super::engine::World;
use super::script::Script;
use super::set_loud;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEC: u64 = 1_000_000_000;

/// What a world was like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    /// What was wrong, if anything.
    pub(super) wrong: Vec<String>,
    /// What happened, in short.
    pub(super) digest: u64,
    /// How long it lasted, and how many machines there were.
    pub(super) lasted_ns: u64,
    pub(super) machines: usize,
    pub(super) rounds: u64,
    pub(super) accepted: usize,
    pub(super) refused: u64,
}

/// Lives through a script.
pub(super) fn live(script: Script, is_loud: bool) -> Life {
    set_loud(is_loud);
    let mut world = World::new(script, is_loud);
    let panicked = catch_unwind(AssertUnwindSafe(|| live_in(&mut world))).err();
    if let Some(panicked) = panicked {
        let text = panicked.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panicked.downcast_ref::<&str>().copied()).unwrap_or("something");
        world.wrong.push(format!("panicked: {text}"));
    }
    super::machine::leave();
    Life {
        wrong: std::mem::take(&mut world.wrong),
        digest: world.digest,
        lasted_ns: world.now_ns,
        machines: world.sites.len(),
        rounds: world.rounds,
        accepted: world.users.accepted.len(),
        refused: world.users.refused,
    }
}

fn live_in(world: &mut World) {
    world.prepare();
    come_to_an_end(world);
}

/// From wherever it is.
fn come_to_an_end(world: &mut World) {
    world.run_until(world.script.calm_ns);
    world.calm_down();
    let until_ns = world.now_ns + world.script.patience_ns;
    while world.wrong.is_empty() && !world.is_quiet() {
        if world.now_ns >= until_ns {
            let unrest = world.unrest();
            world.wrong.push(format!("it does not come to an end: {unrest}"));
        }
        world.run_until(world.now_ns + SEC);
    }
    if world.wrong.is_empty() {
        world.check_end();
    }
    if world.wrong.is_empty() {
        world.check_journal();
    }
}

/// As little of a script as still fails: without each act that is not needed.
pub(super) fn shrink(script: &Script) -> Script {
    let fails = |script: &Script| !live(script.clone(), false).wrong.is_empty();
    let mut small = script.clone();
    let mut piece = (small.acts.len() / 2).max(1);
    loop {
        let mut from = 0;
        while from < small.acts.len() {
            let mut without = small.clone();
            without.acts.drain(from..(from + piece).min(small.acts.len()));
            if fails(&without) {
                small = without;
            } else {
                from += piece;
            }
        }
        if piece == 1 {
            return small;
        }
        piece /= 2;
    }
}

/// The acts of a script, as `TUTTI_ONLY` takes them.
fn numbers(script: &Script) -> String {
    let numbers: Vec<String> = script.acts.iter().map(|act| act.number.to_string()).collect();
    numbers.join(",")
}

#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;
