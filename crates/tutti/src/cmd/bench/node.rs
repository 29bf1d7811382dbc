//! `tutti bench node`: what this node can do with whole numbers, with numbers of 32 and 64 bits, and in
//! moving memory. The running instance is told, for placements that go by the performance of nodes.
//!
//! One processor is measured, for a quarter of a second each, and the best of several short rounds
//! counts: whatever else runs can only make a round slower. The figures are only ever compared between
//! nodes, so what matters is that the same is measured everywhere.

use super::{Bench, progress};
use crate::cmd::{ask, unexpected};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_core::Figures;
use tutti_wire::local::{Reply, Request};

/// How long each figure is measured, and the shortest round.
const LENGTH: Duration = Duration::from_millis(250);
const ROUND: Duration = Duration::from_millis(5);
/// More than the caches of a processor hold.
const MEMORY_BYTES: usize = 64 << 20;
const MEMORY_WORDS: usize = MEMORY_BYTES / 8;

/// Measures, tells the instance, and shows.
///
/// # Errors
/// If there is no instance, or it may not be told.
pub(super) fn execute(bench: &Bench, json: bool) -> anyhow::Result<()> {
    let figures = measure(bench);
    let Reply::Done = ask(&Request::Measured { node: node_name(), figures })? else {
        return unexpected();
    };
    if json {
        return print_json(&figures);
    }
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Left)]);
    let rows = [
        ("whole numbers", figures.int, "million steps a second"),
        ("32 bits", figures.float, "million operations a second"),
        ("64 bits", figures.double, "million operations a second"),
        ("memory", figures.memory, "MB a second"),
    ];
    for (what, figure, unit) in rows {
        table.row([what.to_owned(), figure.to_string(), unit.to_owned()]);
    }
    // Its heading is empty.
    print(table.render().trim_start_matches('\n'))
}

/// The name that this machine's agent joins with.
fn node_name() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into_owned())
}

fn measure(bench: &Bench) -> Figures {
    let length = if bench.quick { LENGTH / 5 } else { LENGTH };
    progress("what this node can do");
    let mut memory = vec![1u64; MEMORY_WORDS];
    Figures {
        int: best(length, whole_numbers),
        float: best(length, short_numbers),
        double: best(length, long_numbers),
        memory: best(length, || move_memory(&mut memory)),
    }
}

/// The most that a round came to: what `round` says it did, in millions a second.
fn best(length: Duration, mut round: impl FnMut() -> usize) -> u32 {
    let end = Instant::now() + length;
    let mut most = 0;
    while Instant::now() < end {
        let begun = Instant::now();
        let mut done = 0u128;
        while begun.elapsed() < ROUND {
            done += round() as u128;
        }
        most = most.max(done * 1000 / begun.elapsed().as_nanos().max(1));
    }
    u32::try_from(most).unwrap_or(u32::MAX)
}

const STEPS: usize = 1 << 14;

fn whole_numbers() -> usize {
    let mut state = [1u64, 2, 3, 4];
    for step in 0..STEPS as u64 {
        for one in &mut state {
            *one = (*one ^ step).wrapping_mul(6_364_136_223_846_793_005).rotate_left(17);
        }
    }
    black_box(state);
    4 * STEPS
}

fn short_numbers() -> usize {
    let (scale, shift) = (black_box(0.999_f32), black_box(0.001_f32));
    let mut state = black_box([1.0_f32; 16]);
    for _ in 0..STEPS {
        for one in &mut state {
            *one = *one * scale + shift;
        }
    }
    black_box(state);
    2 * 16 * STEPS
}

fn long_numbers() -> usize {
    let (scale, shift) = (black_box(0.999_f64), black_box(0.001_f64));
    let mut state = black_box([1.0_f64; 8]);
    for _ in 0..STEPS {
        for one in &mut state {
            *one = *one * scale + shift;
        }
    }
    black_box(state);
    2 * 8 * STEPS
}

/// From one half of the memory to the other: every byte is read and written.
fn move_memory(memory: &mut [u64]) -> usize {
    let (from, to) = memory.split_at_mut(MEMORY_WORDS / 2);
    to.copy_from_slice(black_box(from));
    black_box(to);
    MEMORY_BYTES
}
