//! `tutti bench`: measures this machine. `node` is measured here; the benchmarks of Tutti itself
//! are a program of their own, `tutti-bench`, which is started where it is installed.
//!
//! The agents of a cluster start `tutti measure`, which only measures and prints.
//!
//! `node`: what this node can do with whole numbers, with numbers of 32 and 64 bits, and in
//! moving memory. The running instance is told, for placements that go by the performance of nodes.
//!
//! One processor is measured, for a quarter of a second each, and the best of several short rounds
//! counts: whatever else runs can only make a round slower. The figures are only ever compared
//! between nodes, so what matters is that the same is measured everywhere.

use clap::{Args, Parser};
use std::ffi::OsString;
use std::hint::black_box;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tutti_client::ask::{ask, unexpected};
use tutti_client::output::{Align, Table, print, print_json};
use tutti_node::codes::coded;
use tutti_node::executable::own_path;
use tutti_node::exit::Exit;
use tutti_types::Figures;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request};

/// How long each figure is measured, and the shortest round.
const LENGTH: Duration = Duration::from_millis(250);
const ROUND: Duration = Duration::from_millis(5);
/// More than the caches of a processor hold.
const MEMORY_BYTES: usize = 64 << 20;
const MEMORY_WORDS: usize = MEMORY_BYTES / 8;

const EXAMPLES: &str = "\
Examples:
  tutti bench node             this node, for placements by performance
  tutti bench switch --quick   a benchmark of tutti-bench, where installed";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Benchmark and its options: `node`, or one of `tutti-bench --help`
    #[arg(value_name = "BENCHMARK", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Measure this node, and report to the instance, for placements by performance
#[derive(Parser, Debug)]
#[command(name = "tutti bench", max_term_width = 100)]
struct NodeBench {
    #[arg(value_name = "node", value_parser = ["node"])]
    _name: String,

    /// Fewer repetitions, and rougher figures
    #[arg(long)]
    quick: bool,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs a benchmark.
///
/// # Errors
/// If it fails, or its program is not installed.
pub(crate) fn execute(args: BenchArgs) -> anyhow::Result<Exit> {
    let is_name = |word: &&OsString| !word.as_encoded_bytes().starts_with(b"-");
    if args.words.iter().find(is_name).is_some_and(|word| word == "node") {
        let words = std::iter::once(OsString::from("tutti bench")).chain(args.words);
        let node = match NodeBench::try_parse_from(words) {
            Ok(node) => node,
            Err(error) => return Ok(super::say_usage(&error)),
        };
        tutti_client::noise::warn("bench");
        return measure_node(node.quick, node.json).map(|()| Exit::OK);
    }
    let beside = own_path()?.with_file_name(PROGRAM);
    let program = if beside.is_file() { beside } else { PROGRAM.into() };
    let error = Command::new(&program).args(args.words).exec();
    match error.kind() {
        ErrorKind::NotFound => Err(coded(
            Code::BadValue,
            "the benchmarks are a program of their own, tutti-bench, which is not installed here; \
             in the source: `cargo build --profile dist -p tutti-bench`",
        )),
        _ => Err(anyhow::Error::from(error).context(format!("cannot run {}", program.display()))),
    }
}

/// The program with the benchmarks.
const PROGRAM: &str = "tutti-bench";

/// Measures, tells the instance, and shows.
///
/// # Errors
/// If there is no instance, or it may not be told.
fn measure_node(is_quick: bool, json: bool) -> anyhow::Result<()> {
    say!("bench: what this node can do ...");
    let figures = measure(is_quick);
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

/// Measures for an agent: prints the figures in one line.
pub(crate) fn measure_alone() -> anyhow::Result<Exit> {
    // The agent has more priority, and is ended last where memory runs out.
    let _ = tutti_linux::rt::set_nice(0);
    let Figures { int, float, double, memory } = measure(false);
    print(&format!("{int} {float} {double} {memory}\n"))?;
    Ok(Exit::OK)
}

fn measure(is_quick: bool) -> Figures {
    let length = if is_quick { LENGTH / 5 } else { LENGTH };
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
