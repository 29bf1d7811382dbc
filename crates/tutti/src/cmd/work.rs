//! A hidden verb that does nothing useful for an exact amount of work: what `demo` and `bench` run.

use crate::exit::Exit;
use clap::Args;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct WorkArgs {
    /// How many rounds
    rounds: u64,
}

/// Steps of a round: some tens of microseconds.
const STEPS: u64 = 20_000;

pub(crate) fn execute(args: &WorkArgs) -> anyhow::Result<Exit> {
    work(args.rounds);
    Ok(Exit::OK)
}

fn work(rounds: u64) {
    let mut state = 1u64;
    for round in 0..rounds {
        for step in 0..STEPS {
            state =
                black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step ^ round));
        }
    }
}

/// How many rounds take so long on one processor of this machine.
pub(crate) fn rounds_for(length: Duration) -> u64 {
    let begin = Instant::now();
    let mut done = 0u64;
    while begin.elapsed() < Duration::from_millis(100) {
        work(10);
        done += 10;
    }
    let rounds = u128::from(done) * length.as_nanos() / begin.elapsed().as_nanos().max(1);
    u64::try_from(rounds).unwrap_or(u64::MAX)
}
