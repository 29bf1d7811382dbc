//! Living through simulated worlds: one seed, many, and as little as still fails of one that did.

use super::engine::World;
use super::script::Script;
use super::set_loud;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEC: u64 = 1_000_000_000;

/// How long all may take to come to an end once nothing fails any more.
const PATIENCE_NS: u64 = 900 * SEC;

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
    world.run_until(world.script.calm_ns);
    world.calm_down();
    let until_ns = world.now_ns + PATIENCE_NS;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_some_worlds_everything_goes_well() {
        let seeds = std::env::var("TUTTI_WORLD").ok().and_then(|it| it.parse().ok());
        for seed in seeds.map_or(0..20, |seed: u64| seed..seed + 1) {
            let life = live(Script::random(seed), seeds.is_some());
            assert!(life.wrong.is_empty(), "{seed}: {:#?}", life.wrong);
        }
    }
}
