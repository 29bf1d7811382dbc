//! `testbed up N`: a cluster of N nodes on this machine, and a shell on its first one.
#![forbid(unsafe_code)]

mod bench;
mod shell;

use anyhow::Context;
use clap::{Parser, Subcommand};
use shell::Ends;
use std::ffi::OsStr;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tutti_testbed::{Options, Testbed};

/// A cluster of network namespaces on one machine.
#[derive(Parser, Debug)]
#[command(name = "testbed", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Start a cluster, and a shell on its first node; the cluster ends with the shell
    Up(UpArgs),

    /// Take a node off the network, in both directions
    Cut(NodeArgs),

    /// No other node hears a node any more, and it hears the others
    Mute(NodeArgs),

    /// A node hears no other any more, and the others hear it
    Deafen(NodeArgs),

    /// What a node sends, and what is sent to it, is late by so much from now on, in each direction
    Delay(DelayArgs),

    /// Put a node's network in order again
    Heal(NodeArgs),

    /// Stop all daemons of a node where they are, as if it hung
    Freeze(NodeArgs),

    /// Let them go on
    Thaw(NodeArgs),

    /// A node loses power: none of its processes is left; `heal` and `tutti up` there bring it back
    Kill(NodeArgs),

    /// Run a command on a node
    On(OnArgs),

    /// Measure a cluster that is made for it: launches, switches, turns, output
    Bench(bench::BenchArgs),
}

/// A node of the cluster that a shell of `testbed up` belongs to.
#[derive(clap::Args, Debug)]
struct NodeArgs {
    /// Its name: n1, n2, ...
    node: String,
}

#[derive(clap::Args, Debug)]
struct DelayArgs {
    #[command(flatten)]
    of: NodeArgs,

    /// Milliseconds; 0 takes it away
    #[arg(value_parser = clap::value_parser!(u64).range(..=DELAY_MS_MAX))]
    ms: u64,
}

/// Longer than anybody waits for an answer.
const DELAY_MS_MAX: u64 = 60_000;

#[derive(clap::Args, Debug)]
struct OnArgs {
    /// Its name: n1, n2, ...
    node: String,

    /// The command
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct UpArgs {
    /// How many nodes
    #[arg(default_value_t = 4)]
    nodes: usize,

    /// The tutti program; the one beside this unless given
    #[arg(long)]
    program: Option<PathBuf>,

    /// By how many seconds the clocks of the second and later nodes are ahead, separated by commas
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    clocks: Vec<i64>,

    /// What the last node sends, and what is sent to it, is late by so many milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=DELAY_MS_MAX))]
    slow: Option<u64>,

    /// A parameter to set before the others join, as in --param fan_out=2
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,

    /// Each node has so many of this machine's processors, one node after the other; all of them
    /// unless given
    #[arg(long)]
    processors: Option<NonZero<usize>>,

    /// The nodes are machines that know nothing of each other: no cluster is made of them
    #[arg(long, conflicts_with = "param")]
    bare: bool,

    /// What to run on the first node instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Up(args) => up(args),
        Verb::On(args) => on(&args),
        Verb::Bench(args) => measure(&args),
        Verb::Cut(args) => to(&args, Testbed::cut),
        Verb::Mute(args) => to(&args, Testbed::mute),
        Verb::Deafen(args) => to(&args, Testbed::deafen),
        Verb::Delay(args) => {
            to(&args.of, |bed, node| bed.delay(node, Duration::from_millis(args.ms)))
        }
        Verb::Heal(args) => to(&args, Testbed::heal),
        Verb::Kill(args) => to(&args, Testbed::kill),
        Verb::Freeze(args) => to(&args, |_, node| {
            node.freeze(true);
            Ok(())
        }),
        Verb::Thaw(args) => to(&args, |_, node| {
            node.freeze(false);
            Ok(())
        }),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The variable that names a test bed's directory to the shell on its first node.
const VARIABLE: &str = "TESTBED";

/// The test bed that this shell belongs to.
fn here() -> anyhow::Result<Testbed> {
    let directory = std::env::var_os(VARIABLE)
        .context("there is no test bed here; start one with `testbed up 4`")?;
    Testbed::open(Path::new(&directory), &beside()?)
}

/// Does something to a node.
fn to(
    args: &NodeArgs,
    what: impl Fn(&Testbed, &tutti_testbed::Node) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let bed = here()?;
    what(&bed, bed.node(&args.node)?)?;
    Ok(ExitCode::SUCCESS)
}

fn on(args: &OnArgs) -> anyhow::Result<ExitCode> {
    let (bed, mut words) = (here()?, args.command.iter());
    let mut command = bed.node(&args.node)?.command(words.next().context("there is no command")?);
    let status = command.args(words).stdin(Stdio::inherit()).status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into))
}

fn measure(args: &bench::BenchArgs) -> anyhow::Result<ExitCode> {
    let program = args.program.clone().map_or_else(built, Ok)?;
    bench::run(args, &program, path_with(&program))?;
    Ok(ExitCode::SUCCESS)
}

fn up(args: UpArgs) -> anyhow::Result<ExitCode> {
    let program = args.program.map_or_else(built, Ok)?;
    let ends = Ends::hold()?;
    let options = Options {
        name: std::process::id().to_string(),
        program: program.clone(),
        directory: std::env::temp_dir(),
        nodes: args.nodes,
        clocks_ahead_s: if args.clocks.is_empty() {
            Vec::new()
        } else {
            [0].into_iter().chain(args.clocks).collect()
        },
        slow: args.slow.map(Duration::from_millis),
        params: args.param,
        processors: args.processors,
    };
    let bed = Testbed::new(&options)?;
    bed.take_orders()?;
    if !args.bare {
        bed.up_while(|| ends.next().is_none())?;
    }
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
    let mut words = args.command.iter();
    let mut command = bed.head().command(words.next().unwrap_or(&shell));
    command.args(words);
    command.env("PATH", path_with(&program)).stdin(Stdio::inherit());
    command.env(VARIABLE, bed.directory());
    if args.command.is_empty() {
        let _ = writeln!(std::io::stderr(), "{}", welcome(&bed, args.bare));
    }
    shell::run(command, &ends)
}

/// What the shell on the first node begins with.
fn welcome(bed: &Testbed, bare: bool) -> String {
    let (head, count) = (bed.head(), bed.nodes().len());
    let (are, hint) = match bare {
        true => (
            "bare",
            format!(
                "`tutti up --listen {}`, and what that prints after `testbed on n2`; \
                 `tutti invite` for the next",
                head.host()
            ),
        ),
        false => (
            "up",
            format!(
                "`tutti nodes`, `tutti run -N {count} --label -- hostname`; `testbed cut n2`, \
                 `testbed heal n2`"
            ),
        ),
    };
    format!(
        "testbed: {count} nodes are {are}, this is {}; `exit` ends them\n\
         try: {hint}; `testbed --help`",
        head.name()
    )
}

/// The `tutti` program that belongs to this one.
fn beside() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("tutti"))
}

/// The same, which is there: `cargo run` builds this package alone, and says by a variable that it
/// was it.
fn built() -> anyhow::Result<PathBuf> {
    let program = beside()?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        build(&cargo, &program)?;
    }
    anyhow::ensure!(
        program.exists(),
        "there is no {}; build it with `cargo build -p tutti` (and `--release` if this was), or name it with --program",
        program.display()
    );
    Ok(program)
}

/// Builds `tutti` where this program is, as this program was; that takes no time if nothing has
/// changed.
fn build(cargo: &OsStr, program: &Path) -> anyhow::Result<()> {
    let place = program.parent().context("this program is nowhere")?;
    let profile = match place.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "tutti", "--profile", profile]);
    command.arg("--target-dir").arg(place.parent().unwrap_or(place));
    // There lies what cargo uses for all builds.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let status = command.status().with_context(|| format!("cannot run {}", cargo.display()))?;
    anyhow::ensure!(status.success(), "tutti could not be built");
    Ok(())
}

fn path_with(program: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    match program.parent() {
        Some(directory) => format!("{}:{path}", directory.display()),
        None => path,
    }
}
