//! `tutti sim fuzz` and `tutti sim replay`: whether the scheduler keeps its rules, whatever
//! happens.

use anyhow::{Context, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use tutti_client::output::print;
use tutti_node::exit::Exit;
use tutti_sim::fuzz::{Failure, Script, Who, play, shrink};

/// More steps than this are never needed, and make no better scripts.
const EVENTS_MAX: usize = 100_000;

const FUZZ_EXAMPLES: &str = "\
Examples:
  tutti sim fuzz --seeds 10000
  tutti sim fuzz --seed 4711 --seeds 1         repeat a seed";

const REPLAY_EXAMPLES: &str = "\
Examples:
  tutti sim replay tutti-fuzz.txt";

#[derive(Args, Debug)]
#[command(after_help = FUZZ_EXAMPLES)]
pub(super) struct FuzzArgs {
    /// First seed: same seed, same script
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,

    /// Number of events of each script
    #[arg(long, value_name = "N", default_value_t = 150)]
    events: usize,

    /// File for a script that fails
    #[arg(long, value_name = "FILE", default_value = "tutti-fuzz.txt")]
    out: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = REPLAY_EXAMPLES)]
pub(super) struct ReplayArgs {
    /// Script: a line for the beginning, and one for each step
    #[arg(value_name = "FILE")]
    script: PathBuf,
}

/// Plays scripts from seeds until one fails, and makes that one short.
///
/// # Errors
/// If the script can't be written.
pub(super) fn fuzz(args: &FuzzArgs) -> anyhow::Result<Exit> {
    let (seeds, events) = (args.seeds, args.events);
    ensure!(events <= EVENTS_MAX, "{events} events are too many; ask for at most {EVENTS_MAX}");
    for seed in args.seed..args.seed.saturating_add(seeds) {
        let script = Script::random(seed, events, Who::Everybody);
        if let Some((script, failure)) = shrink(&script) {
            return found(seed, &script, &failure, &args.out);
        }
    }
    print(&format!("{seeds} scripts of {events} events: every rule was kept\n"))?;
    Ok(Exit::OK)
}

fn found(seed: u64, script: &Script, failure: &Failure, file: &Path) -> anyhow::Result<Exit> {
    let what = failure.what.replace('\n', "\n# ");
    let text = format!("# seed {seed}: {what}\n{script}");
    let name = file.display();
    fs::write(file, &text).with_context(|| format!("cannot write {name}"))?;
    print(&text)?;
    say!("tutti: seed {seed} breaks a rule after {} events;", failure.steps);
    say!("tutti: play it again with tutti sim replay {name}, and please report it");
    Ok(Exit::FAILED)
}

/// Plays a script again, and says what its steps are.
///
/// # Errors
/// If it can't be read.
pub(super) fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let name = args.script.display();
    let text = fs::read_to_string(&args.script).with_context(|| format!("cannot read {name}"))?;
    let script: Script = text.parse().with_context(|| format!("cannot play {name}"))?;
    let result = play(&script);
    let steps = result.as_ref().err().map_or(script.steps.len(), |failure| failure.steps);
    for (number, step) in (1..).zip(&script.steps).take(steps) {
        print(&format!("{number:>4}  {step}\n"))?;
    }
    match result {
        Ok(()) => {
            print("every rule was kept\n")?;
            Ok(Exit::OK)
        }
        Err(failure) => {
            print(&format!("{}\n", failure.what))?;
            Ok(Exit::FAILED)
        }
    }
}
