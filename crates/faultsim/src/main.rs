//! `faultsim`: the daemons of a whole cluster in one thread, under faults that a seed decides.
//!
//! Controller, agents with their tree and switch threads, and keepers of several machines run as
//! they are, over a network, disks, clocks and processes that are simulated. All that happens comes
//! from one seed, so that a world that failed happens again as it did.
//!
//! The daemons reach the kernel through `tutti_node::platform` only; at a simulated machine that is
//! `tutti_node::simulated`. Each does a round when [`engine`] says so. [`script`] says what users
//! and faults do, [`faults`] does it, [`checks`] says what must hold. [`network`] and [`disk`] are
//! what their names say, [`readiness`] tell which daemon has something to do, [`users`] speak with
//! the controller, [`front`] with keepers. [`run`] simulates one seed or many, and reduces one that
//! failed to the acts that it needs for that.
#![deny(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod checks;
mod data_loss;
mod disk;
mod engine;
mod faults;
mod front;
mod launches;
mod log;
mod network;
mod readiness;
mod run;
mod script;
mod seat;
mod users;

use clap::Parser;
use script::{FIRST_CALM_HOURS, Script};
use std::fmt::Arguments;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many new seeds are simulated if nothing is asked for.
const NEW: u64 = 1_000;

/// The daemons of a whole cluster in one thread, under faults that a seed decides.
///
/// Without options: a thousand new seeds. For many, a build with the profile `soak` is many times
/// faster: `cargo run --profile soak -p faultsim -- --seeds 0..100000`.
#[derive(Parser, Debug)]
#[command(name = "faultsim", max_term_width = 100)]
struct Options {
    /// Simulate one seed, and print all that happens
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Of that seed, only the acts of these numbers
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', requires = "seed")]
    only: Option<Vec<usize>>,

    /// Simulate many seeds: from A on, and below B
    #[arg(long, value_name = "A..B", value_parser = range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,

    /// Simulate so many clusters of 32 machines in calm hours, which last longer
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["seed", "seeds"])]
    calm: Option<u64>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bounds =
        text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match bounds {
        Some((from, to)) if from < to => Ok(from..to),
        _ => Err("two numbers such as 0..1000 are needed, the second above the first".into()),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        let mut script = Script::of(seed);
        if let Some(only) = options.only {
            script.acts.retain(|act| only.contains(&act.number));
        }
        let life = run::live(script, true);
        life.wrong.iter().for_each(|wrong| show(format_args!("wrong: {wrong}")));
        return if life.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let seeds = match (options.seeds, options.calm) {
        (Some(seeds), _) => seeds,
        (None, Some(count)) => FIRST_CALM_HOURS..FIRST_CALM_HOURS.saturating_add(count),
        (None, None) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            now..now + NEW
        }
    };
    show(format_args!("seeds {seeds:?}"));
    let report = run::live_all(&seeds.collect::<Vec<_>>());
    show(format_args!("{}", report.summary()));
    match report.first_failure() {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            show(format_args!("{failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line, though its reader may be gone.
fn show(line: Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
