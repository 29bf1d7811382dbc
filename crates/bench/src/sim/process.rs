//! One `tutti sim` as a process of its own: how long it took, and its memory.

use anyhow::{Context, bail};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tutti_node::executable::own_program;

/// What a run took.
pub(super) struct Took {
    /// From its start to its end.
    pub(super) seconds: f64,
    pub(super) memory_peak_bytes: u64,
}

/// A process that has closed its output is gone in less.
const NAP: Duration = Duration::from_micros(100);

/// Runs `tutti sim` to its end.
///
/// # Errors
/// If it can't be started, or fails.
pub(super) fn simulate(args: &[String]) -> anyhow::Result<Took> {
    let program = own_program()?;
    let mut command = Command::new(program);
    command.arg("sim").args(args).arg("--json");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().context("cannot start a simulation")?;
    let (mut out, mut said) = (String::new(), String::new());
    // What it has to say fits into a pipe.
    if let (Some(stdout), Some(stderr)) = (&mut child.stdout, &mut child.stderr) {
        stdout.read_to_string(&mut out)?;
        stderr.read_to_string(&mut said)?;
    }
    let reaped = loop {
        match tutti_linux::reap::reap(child.id().cast_signed())? {
            Some(reaped) => break reaped,
            None => std::thread::sleep(NAP),
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    if reaped.status != 0 {
        bail!("tutti sim {} failed: {}", args.join(" "), said.trim());
    }
    Ok(Took { seconds, memory_peak_bytes: reaped.memory_peak_bytes })
}
