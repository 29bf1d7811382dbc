//! Living through simulated worlds: one seed, many, and as little as still fails of one that did.

use super::engine::World;
use super::log;
use super::script::{CLUSTER, Script};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tutti_node::simulated::set_loud;

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
    log::begin();
    set_loud(is_loud);
    let mut world = World::new(script, is_loud);
    let panicked = catch_unwind(AssertUnwindSafe(|| live_in(&mut world))).err();
    if let Some(panicked) = panicked {
        let text = panicked.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panicked.downcast_ref::<&str>().copied()).unwrap_or("something");
        world.wrong.push(format!("panicked: {text}"));
    }
    tutti_node::simulated::machine::leave();
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

/// The acts of a script, as `--only` takes them.
fn numbers(script: &Script) -> String {
    let numbers: Vec<String> = script.acts.iter().map(|act| act.number.to_string()).collect();
    numbers.join(",")
}

/// What many worlds were like together.
#[derive(Default)]
pub(super) struct Report {
    worlds: usize,
    machine_ns: u128,
    rounds: u64,
    accepted: usize,
    /// What happened in all of them, whichever came first.
    digest: u64,
    took: Duration,
    failed: Vec<(u64, Life)>,
}

/// Lives through the worlds of these seeds, on all processors. Each that fails is printed at once.
pub(super) fn live_all(seeds: &[u64]) -> Report {
    let began = Instant::now();
    let sum = Mutex::new(Report { worlds: seeds.len(), ..Report::default() });
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let life = live(Script::of(seed), false);
            sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, life);
        }
    };
    std::thread::scope(|scope| {
        (0..processors()).for_each(|_| drop(scope.spawn(work)));
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    Report { took: began.elapsed(), ..sum }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many hours of a cluster that is, of so many machines as hours of clusters are counted by.
fn cluster_hours(machine_ns: u128) -> f64 {
    let machine_s = u32::try_from(machine_ns / 1_000_000_000).unwrap_or(u32::MAX);
    f64::from(machine_s) / 3600.0 / CLUSTER as f64
}

impl Report {
    fn add(&mut self, seed: u64, life: Life) {
        self.machine_ns += u128::from(life.lasted_ns) * life.machines as u128;
        self.rounds += life.rounds;
        self.accepted += life.accepted;
        self.digest = self.digest.wrapping_add(life.digest);
        if !life.wrong.is_empty() {
            crate::show(format_args!("seed {seed}: {}", life.wrong[0]));
            self.failed.push((seed, life));
        }
    }

    /// The numbers, in a line.
    pub(super) fn summary(&self) -> String {
        let hours = cluster_hours(self.machine_ns);
        format!(
            "{} worlds, {} with something wrong: {} jobs, {} rounds; {hours:.1} hours of a cluster of {CLUSTER} \
             in {:.1?} on {} processors, {:.1} a minute; what happened: {:016x}",
            self.worlds,
            self.failed.len(),
            self.accepted,
            self.rounds,
            self.took,
            processors(),
            hours * 60.0 / self.took.as_secs_f64(),
            self.digest,
        )
    }

    /// What broke in the first that failed, with as few of its acts as still break it, and how to
    /// repeat that.
    pub(super) fn first_failure(&self) -> Option<String> {
        let (seed, life) = self.failed.first()?;
        let small = shrink(&Script::of(*seed));
        let wrong = live(small.clone(), false).wrong;
        Some(format!(
            "seed {seed}: {:#?}\nwith {} of its acts: {wrong:#?}\nto repeat it: \
             cargo run -p faultsim -- --seed {seed} --only {}",
            life.wrong,
            small.acts.len(),
            numbers(&small),
        ))
    }
}

#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;
