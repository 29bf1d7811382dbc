//! An exact amount of work that is of no use: what the jobs of `tutti demo` and of benchmarks do.

use anyhow::Context;
use clap::Args;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tutti_node::exit::Exit;

/// What the hidden verb `work` is told.
#[derive(Args, Debug)]
pub struct WorkArgs {
    /// How many rounds
    rounds: u64,
    /// How often that is done
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    again: u32,
    /// How long it waits after each time
    #[arg(long, value_name = "MS", default_value_t = 0)]
    wait_ms: u64,
    /// Prints so many blocks of lines each time, as fast as they are taken
    #[arg(long, value_name = "BLOCKS", default_value_t = 0)]
    print: u64,
}

/// A line such as a solver prints, of a length that makes a block full lines.
const LINE: &str = "step 000000042  residual 1.2345678e-05  energy -76.026765 t 0.1\n";

/// Bytes of a block: what a program with a buffer of the usual size for bulk writes at once.
pub const BLOCK_BYTES: u64 = 64 << 10;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(LINE.len() as u64));

/// Steps of a round: some tens of microseconds.
const STEPS: u64 = 20_000;

/// Does the work.
///
/// # Errors
/// If standard output can't be written.
pub fn execute(args: &WorkArgs) -> anyhow::Result<Exit> {
    for _ in 0..args.again {
        work(args.rounds);
        print_blocks(args.print)?;
        if args.wait_ms > 0 {
            std::thread::sleep(Duration::from_millis(args.wait_ms));
        }
    }
    Ok(Exit::OK)
}

fn print_blocks(blocks: u64) -> anyhow::Result<()> {
    if blocks == 0 {
        return Ok(());
    }
    let block = LINE.repeat(usize::try_from(BLOCK_BYTES / LINE.len() as u64)?);
    let mut out = std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    for _ in 0..blocks {
        out.write_all(block.as_bytes()).context("cannot write to standard output")?;
    }
    Ok(())
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
pub fn rounds_for(length: Duration) -> u64 {
    let begin = Instant::now();
    let mut done = 0u64;
    while begin.elapsed() < Duration::from_millis(100) {
        work(10);
        done += 10;
    }
    let rounds = u128::from(done) * length.as_nanos() / begin.elapsed().as_nanos().max(1);
    u64::try_from(rounds).unwrap_or(u64::MAX)
}
