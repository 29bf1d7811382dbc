//! `testbed up N`: a cluster of N nodes on this machine, and a shell on its first one.
#![forbid(unsafe_code)]

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
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

    /// How many agents connect to the same one
    #[arg(long)]
    fan_out: Option<u32>,

    /// What to run on the first node instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let Verb::Up(args) = Cli::parse().verb;
    match up(args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn up(args: UpArgs) -> anyhow::Result<ExitCode> {
    let program = args.program.map_or_else(beside, Ok)?;
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
        fan_out: args.fan_out,
    };
    let bed = Testbed::new(&options)?;
    bed.up()?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
    let mut words = args.command.iter();
    let mut command = bed.head().command(words.next().unwrap_or(&shell));
    command.args(words);
    command.env("PATH", path_with(&program)).stdin(Stdio::inherit());
    command.env("TESTBED", bed.directory());
    if args.command.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "testbed: {} nodes are up, this is {}; try `tutti nodes`, `tutti run -n {} -- hostname`; \
             `exit` ends them",
            args.nodes,
            bed.head().name(),
            args.nodes,
        );
    }
    let status = run(command)?;
    Ok(u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Interrupts are the shell's, not ours: the cluster must be cleared away.
fn run(mut command: Command) -> anyhow::Result<i32> {
    use nix::sys::signal::{SigSet, Signal};
    let mut child = command.spawn().context("cannot start the command")?;
    let mut interrupts = SigSet::empty();
    interrupts.add(Signal::SIGINT);
    interrupts.thread_block()?;
    Ok(child.wait()?.code().unwrap_or(1))
}

fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("tutti");
    anyhow::ensure!(
        program.exists(),
        "there is no {}; build it with `cargo build`, or name it with --program",
        program.display()
    );
    Ok(program)
}

fn path_with(program: &std::path::Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    match program.parent() {
        Some(directory) => format!("{}:{path}", directory.display()),
        None => path,
    }
}
